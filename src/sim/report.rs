//! What is said of a race: both accesses with statement, loop values, thread and element, underlined in the printed
//! kernel, and the barrier that would order them.

use super::clocks::Lack;
use super::code::{Access, Code, Location, Site, SiteKind};
use super::fault::{self, Where};
use super::race::Touch;
use super::warp::Warp;
use crate::error::{self, Error};
use crate::ir::{Expr, Func, Stmt, Var, print, visit};
use std::ops::Range;

/// One of the two accesses.
pub(super) struct Party {
    at: Where,
    lane: usize,
    write: bool,
    /// It starts an asynchronous copy.
    copies: bool,
    /// What accesses memory for the thread, through the asynchronous proxy.
    engine: Option<&'static str>,
    shared: bool,
    ordered: bool,
    buffer: String,
    /// `S[63]`.
    element: String,
    /// `S[63 - threadIdx.x]`, as the program has it.
    access: String,
    statement: String,
    /// The instruction, where it is one.
    row: String,
    /// How many stores and instructions precede the statement in the text.
    stores: u32,
    values: Vec<(Var, i64)>,
}

impl Party {
    /// An access that a warp has just made.
    pub fn new(code: &Code, warp: &Warp, at: Where, touch: &Touch) -> Party {
        let site = code.site_of.get(warp.pc).and_then(|s| code.sites.get(*s as usize));
        let access = code.accesses.get(touch.access as usize);
        let value = |site: &Site| site.loops.iter().map(|(v, o)| (*v, warp.value(*o, touch.lane))).collect();
        let statement = site.map_or(String::new(), |s| match &s.statement {
            SiteKind::Store(s) => print::stmts(&code.func, &[Stmt::Store(s.clone())]).trim().to_string(),
            SiteKind::Call(c) => print::stmts(&code.func, &[Stmt::Call(c.clone())]).trim().to_string(),
            SiteKind::Bulk(c) => print::stmts(&code.func, &[Stmt::Bulk(c.clone())]).trim().to_string(),
            _ => String::new(),
        });
        let row = match site.map(|s| &s.statement) {
            Some(SiteKind::Call(call)) => call.row.clone(),
            _ => String::new(),
        };
        Party {
            row,
            at,
            lane: touch.lane,
            write: touch.write,
            copies: touch.write && access.is_some_and(|a| a.copies),
            engine: access.filter(|a| a.engine).and(site).and_then(|s| match &s.statement {
                SiteKind::Bulk(_) => Some("the copy engine"),
                SiteKind::Call(_) => Some("wgmma"),
                _ => None,
            }),
            shared: access.is_some_and(|a| matches!(a.place, Location::Shared { .. })),
            ordered: access.is_some_and(|a| a.ordered),
            buffer: access.map_or(String::new(), |a| code.func.buffer(a.buffer).name.clone()),
            element: access.map_or(String::new(), |a| element(code, warp, a, touch)),
            access: access.map_or(String::new(), |a| text(code, a)),
            statement,
            stores: site.map_or(u32::MAX, |s| s.stores),
            values: site.map_or_else(Vec::new, value),
        }
    }

    /// Whether the threads of both are of one warp of one block.
    pub fn in_warp_of(&self, other: &Party) -> bool {
        (self.at.block, self.at.warp) == (other.at.block, other.at.warp)
    }

    fn is_by_engine(&self) -> bool {
        self.engine.is_some()
    }

    fn in_thread_of(&self, other: &Party) -> bool {
        self.in_warp_of(other) && self.lane == other.lane
    }

    fn verb(&self) -> &'static str {
        match (self.copies, self.write) {
            (true, _) => "copies to",
            (_, true) => "writes",
            _ => "reads",
        }
    }

    fn done(&self) -> &'static str {
        match (self.copies, self.write) {
            (true, _) if self.is_by_engine() => "filled by",
            (true, _) => "filled by a copy of",
            (_, true) => "written by",
            _ => "read by",
        }
    }

    fn thread(&self) -> String {
        fault::thread(self.at, self.lane)
    }

    fn line(&self, code: &Code) -> String {
        let name = |v: &Var| code.func.vars.get(v.0 as usize).map_or("?", |n| n.as_str()).to_string();
        let values: Vec<String> = self.values.iter().map(|(v, n)| format!("{} = {n}", name(v))).collect();
        let with = if values.is_empty() { String::new() } else { format!(", with {}", values.join(", ")) };
        format!("{} {} {} in `{}`{with}", self.thread(), self.verb(), self.element, self.statement)
    }
}

/// The element of an access that a race is about: of a vector, the one inside it.
fn element(code: &Code, warp: &Warp, a: &Access, touch: &Touch) -> String {
    if a.engine {
        return format!("{}[{}]", code.func.buffer(a.buffer).name, touch.element);
    }
    let name = fault::element(code, warp, a, touch.lane);
    if a.lanes > 1 { format!("element {} of the vector {name}", touch.element) } else { name }
}

fn text(code: &Code, a: &Access) -> String {
    print::expr(&code.func, &Expr::Load { buffer: a.buffer, indices: a.indices.clone(), lanes: a.lanes })
}

/// The error of two accesses that nothing orders.
pub(super) fn race(code: &Code, one: Party, other: Party, lack: Lack) -> Error {
    let tree = Tree::new(&code.func);
    // What a fence or a wait for a group is missing between happened in this order.
    let swapped = lack == Lack::Edge && tree.before(&other, &one);
    let (first, second) = if swapped { (other, one) } else { (one, other) };
    let what = match (first.done(), second.done()) {
        (one, two) if first.is_by_engine() || second.is_by_engine() => {
            let by = |p: &Party, thread: &'static str| p.engine.unwrap_or(thread);
            format!("is {one} {} and {two} {}", by(&first, "a thread"), by(&second, "a thread"))
        }
        _ if first.in_thread_of(&second) => {
            format!("is {} a thread and {} the same thread", first.done(), second.done())
        }
        (one, two) if one == two => format!("is {one} two threads"),
        (one, two) => format!("is {one} one thread and {two} another"),
    };
    let also =
        if first.element == second.element { String::new() } else { format!(" (the bytes of {})", second.element) };
    let why = match lack {
        Lack::Fence => "and no proxy fence is between them".to_string(),
        Lack::ProductWait => format!("and the group of {} has not been waited for", first.row),
        Lack::StoreWait => "and the group of the bulk store has not been waited for".to_string(),
        Lack::PhaseWait if first.is_by_engine() => {
            "and the phase that it completes has not been waited for".to_string()
        }
        _ => "and nothing orders them".to_string(),
    };
    let message = format!("{}{also} {what}, {why}", first.element);
    let mut error = Error::bug(error::Code::SimRace, message).within(first.line(code)).within(second.line(code));
    let order = tree.order(code, &first, &second, lack);
    error = error.help(order.advice).text(tree.printed.clone());
    if !first.ordered && order.place.is_some() {
        error = error.help(format!("{} must also be among the kernel's exchanged parameters", first.buffer));
    }
    for party in [&first, &second] {
        if let Some(span) = tree.access(party) {
            let thread = fault::thread(party.at, party.lane);
            error = error.label(
                span,
                match party.engine {
                    Some(engine) => format!("{engine} {} this, started by {thread}", party.verb()),
                    None => format!("{thread} {} this", party.verb()),
                },
            );
        }
    }
    match order.place.and_then(|p| tree.line(p)) {
        Some(span) if lack == Lack::Fence => error.label(span, "the fence must be before this"),
        Some(span) if first.copies || lack != Lack::Edge => error.label(span, "the wait must be before this"),
        Some(span) => error.label(span, "the barrier must be before this"),
        None => error,
    }
}

/// What would order two accesses.
struct Order<'a> {
    advice: String,
    place: Option<&'a Stmt>,
}

/// The printed kernel with its statements: each is one line, in the order of the text.
struct Tree<'a> {
    func: &'a Func,
    printed: String,
    statements: Vec<&'a Stmt>,
}

impl<'a> Tree<'a> {
    fn new(func: &'a Func) -> Tree<'a> {
        let mut statements = Vec::new();
        visit::walk(&func.body, &mut |s| statements.push(s));
        Tree { func, printed: print::func(func), statements }
    }

    /// The line of a statement, without its indentation.
    fn line(&self, stmt: &Stmt) -> Option<Range<usize>> {
        let position = self.statements.iter().position(|s| std::ptr::eq(*s, stmt))?;
        let head = self.printed.lines().count().checked_sub(self.statements.len())?;
        let start: usize = self.printed.split_inclusive('\n').take(head + position).map(str::len).sum();
        let line = self.printed.get(start..)?.lines().next()?;
        let indent = line.len() - line.trim_start().len();
        Some(start + indent..start + line.len())
    }

    fn store(&self, party: &Party) -> Option<&'a Stmt> {
        self.statements
            .iter()
            .filter(|s| matches!(s, Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_)))
            .nth(party.stores as usize)
            .copied()
    }

    /// The place of an access: in its statement's line, the target or what is read.
    fn access(&self, party: &Party) -> Option<Range<usize>> {
        let line = self.line(self.store(party)?)?;
        let text = self.printed.get(line.clone())?;
        let from = if party.write { 0 } else { text.find(" = ").map_or(0, |n| n + 3) };
        let Some(found) = text.get(from..).and_then(|t| t.find(&party.access)) else { return Some(line) };
        let start = line.start + from + found;
        Some(start..start + party.access.len())
    }

    /// The statements from the body down to a party's store.
    fn chain(&self, party: &Party) -> Vec<&'a Stmt> {
        fn descend<'a>(body: &'a [Stmt], target: &Stmt, chain: &mut Vec<&'a Stmt>) -> bool {
            body.iter().any(|s| {
                chain.push(s);
                let found = std::ptr::eq(s, target) || visit::children(s).iter().any(|c| descend(c, target, chain));
                if !found {
                    chain.pop();
                }
                found
            })
        }
        let mut chain = Vec::new();
        if let Some(target) = self.store(party) {
            descend(&self.func.body, target, &mut chain);
        }
        chain
    }

    /// Whether the first party comes before the second where one thread runs the text from top to bottom.
    fn before(&self, a: &Party, b: &Party) -> bool {
        for (x, y) in self.chain(a).iter().zip(self.chain(b)) {
            if !std::ptr::eq(*x, y) {
                let place = |s: &Stmt| self.statements.iter().position(|t| std::ptr::eq(*t, s));
                return place(x) < place(y);
            }
            if let Stmt::For(l) = x
                && value(a, l.var) != value(b, l.var)
            {
                return value(a, l.var) < value(b, l.var);
            }
        }
        !a.write && b.write
    }

    /// The barrier that would order two accesses, of which the first comes first in the text or in a loop.
    fn order(&self, code: &Code, first: &Party, second: &Party, lack: Lack) -> Order<'a> {
        let advice = |text: &str| Order { advice: text.to_string(), place: None };
        if first.at.block != second.at.block && lack == Lack::Edge {
            return advice(
                "no barrier orders the blocks of a kernel: one block has to make both accesses, or the two belong in two kernels",
            );
        }
        let unit = if first.at.warp == second.at.warp { "warp" } else { "block" };
        let sync = match (first.copies, first.in_thread_of(second)) {
            _ if lack == Lack::Fence => {
                let done = if first.write { "wrote" } else { "read" };
                format!(
                    "a proxy_fence (fence.proxy.async) by each thread that {done} {}, before the barrier or arrival",
                    first.buffer
                )
            }
            _ if lack == Lack::ProductWait => {
                format!("a wgmma_wait (wgmma.wait_group) for the group of {}", first.row)
            }
            _ if lack == Lack::StoreWait => {
                "a bulk_wait (cp.async.bulk.wait_group) for the group of the store".to_string()
            }
            _ if lack == Lack::PhaseWait => {
                "a wait for the phase of the mbarrier that counts the copy's bytes".to_string()
            }
            (true, true) => "a wait for the group of the copy".to_string(),
            (true, false) => format!("a wait for the group of the copy, then a barrier of the {unit},"),
            _ => format!("a barrier of the {unit}"),
        };
        let per_thread = |v: Var| code.launch_vectors.iter().any(|(w, _)| *w == v);
        let mut inside = String::new();
        let chain = self.chain(second);
        for (x, y) in self.chain(first).iter().zip(&chain) {
            if !std::ptr::eq(*x, *y) {
                let text = format!("{sync} before {}{inside}", self.name(y));
                return Order { advice: text, place: Some(y) };
            }
            match x {
                Stmt::For(l) if value(first, l.var) != value(second, l.var) => {
                    let next = chain.iter().skip_while(|s| !std::ptr::eq(**s, *y)).nth(1).unwrap_or(y);
                    let name = self.func.var_name(l.var);
                    let text = format!("{sync} in each iteration of loop {name}, before {}{inside}", self.name(next));
                    return Order { advice: text, place: Some(next) };
                }
                Stmt::If(i)
                    if code
                        .func
                        .vars
                        .iter()
                        .enumerate()
                        .any(|(n, _)| per_thread(Var(n as u32)) && i.cond.mentions(Var(n as u32))) =>
                {
                    inside = format!("; {} has to be split around it", self.name(x));
                }
                _ => {}
            }
        }
        let memory = if first.shared { "shared" } else { "global" };
        advice(&format!(
            "no barrier orders threads inside one run of a statement: one thread has to do it, or each its own element of {memory} memory"
        ))
    }

    fn name(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::For(l) => format!("loop {}", self.func.var_name(l.var)),
            Stmt::Block(b) => format!("block {}", self.func.block_name(b.name)),
            Stmt::If(i) => format!("`if {}`", print::cond(self.func, &i.cond)),
            Stmt::Elect(e) => format!("the election of one thread of {}", crate::error::counted(e.warps, "warp")),
            Stmt::Role(r) => format!("the role of warps {}..{}", r.first, r.first + r.warps),
            Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => {
                format!("`{}`", print::stmts(self.func, std::slice::from_ref(stmt)).trim())
            }
        }
    }
}

fn value(party: &Party, var: Var) -> Option<i64> {
    party.values.iter().rev().find(|(v, _)| *v == var).map(|(_, n)| *n)
}
