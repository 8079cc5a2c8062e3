//! Whether two accesses can touch the same bytes from different threads of a block.
//!
//! Decided exactly, by enumerating the threads and the loop values that the indices mention, up to a budget; two indices
//! with the same mixed-radix digits are told apart without enumeration. Where neither decides, the answer is
//! [`Level::Unknown`] and a barrier is the safe choice.

use super::super::LoweredKernel;
use crate::ir::simplify::{self, Affine, Env};
use crate::ir::{BlockId, BufferId, Cond, Expr, For, Func, Held, Index, Scope, Stmt, Var, visit};
use std::cell::RefCell;
use std::collections::HashMap;

/// Evaluations of one index that an enumeration may take.
const BUDGET: i64 = 1 << 16;

/// How far apart the threads are that depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// They share no bytes, or both read.
    Apart,
    /// Every thread depends on itself alone.
    Own,
    /// Only on threads of its own warp.
    Warp,
    /// On threads of other warps.
    Block,
    /// Not decided.
    Unknown,
}

/// One access of shared or global memory.
#[derive(Debug)]
pub struct Site {
    buffer: BufferId,
    write: bool,
    /// A write that lands later.
    pub asynchronous: bool,
    index: Index,
    lanes: u32,
    /// Lanes of a warp make the access together: whichever gives the address, it counts as made by all of them.
    together: bool,
    /// What must hold for the access to happen.
    cond: Cond,
    /// The loops around it.
    loops: Vec<(Var, i64)>,
    /// The name of the block around it.
    pub block: String,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
    /// Starts a copy.
    Copy,
}

/// All accesses of a kernel.
pub struct Sites<'a> {
    kernel: &'a LoweredKernel,
    threads: Vec<(Var, i64)>,
    sites: Vec<Site>,
    loops: Vec<(Var, i64)>,
    known: RefCell<HashMap<(usize, usize), Level>>,
}

impl<'a> Sites<'a> {
    pub fn new(kernel: &'a LoweredKernel) -> Self {
        let threads = kernel.thread_vars();
        Sites { kernel, threads, sites: Vec::new(), loops: Vec::new(), known: RefCell::default() }
    }

    /// The kernel's program.
    pub fn func(&self) -> &'a Func {
        &self.kernel.func
    }

    pub fn site(&self, id: usize) -> &Site {
        &self.sites[id]
    }

    pub fn enter(&mut self, l: &For) {
        self.loops.push((l.var, l.extent.as_int().unwrap_or(i64::MAX)));
    }

    pub fn leave(&mut self) {
        self.loops.pop();
    }

    /// Numbers the accesses of a statement that holds no place for a barrier.
    pub fn collect(&mut self, stmt: &Stmt) -> Vec<usize> {
        let first = self.sites.len();
        self.gather(stmt, &Cond::TRUE, None);
        (first..self.sites.len()).collect()
    }

    fn gather(&mut self, stmt: &Stmt, cond: &Cond, block: Option<BlockId>) {
        match stmt {
            Stmt::For(l) => {
                self.enter(l);
                l.body.iter().for_each(|s| self.gather(s, cond, block));
                self.leave();
            }
            Stmt::Block(b) => b.body.iter().for_each(|s| self.gather(s, cond, Some(b.name))),
            Stmt::If(i) => {
                let both = cond.clone().and(i.cond.clone());
                i.body.iter().for_each(|s| self.gather(s, &both, block));
            }
            Stmt::Store(s) => {
                visit::walk_expr(&s.value, &mut |e| {
                    if let Expr::Load { buffer, indices, lanes } = e {
                        self.add(*buffer, Does::Read, &indices[0], *lanes, cond, block);
                    }
                });
                let does = if s.asynchronous { Does::Copy } else { Does::Write };
                self.add(s.buffer, does, &s.indices[0], s.lanes, cond, block);
            }
            Stmt::Call(call) => {
                for o in &call.operands {
                    let Held::Address(lanes) = o.held else { continue };
                    for (_, does) in [(o.reads, Does::Read), (o.writes, Does::Write)].into_iter().filter(|x| x.0) {
                        self.add(o.buffer, does, &o.indices[0], lanes, cond, block);
                        self.sites.last_mut().into_iter().for_each(|s| s.together = true);
                    }
                }
            }
            Stmt::Sync(_) => {}
        }
    }

    fn add(&mut self, buffer: BufferId, does: Does, index: &Index, lanes: u32, cond: &Cond, block: Option<BlockId>) {
        let func = &self.kernel.func;
        let (write, asynchronous) = (does != Does::Read, does == Does::Copy);
        let read_only = || !visit::writes(&func.body).contains(&buffer);
        let scope = func.buffer(buffer).scope;
        if scope == Scope::Local || (scope == Scope::Global && !write && read_only()) {
            return;
        }
        let block = block.map_or_else(|| "?".to_string(), |b| func.block_name(b).to_string());
        let loops = self.loops.clone();
        let (index, cond) = (index.clone(), cond.clone());
        self.sites.push(Site { buffer, write, asynchronous, index, lanes, together: false, cond, loops, block });
    }

    /// The global buffers through which threads pass values, as far as can be decided.
    pub fn exchanged(&self) -> Vec<BufferId> {
        let global = |s: &Site| self.kernel.func.buffer(s.buffer).scope == Scope::Global;
        let passes = |id: BufferId| {
            let of: Vec<usize> = (0..self.sites.len()).filter(|s| self.sites[*s].buffer == id).collect();
            of.iter().any(|a| of.iter().any(|b| a <= b && !matches!(self.level(*a, *b), Level::Apart | Level::Own)))
        };
        let mut ids: Vec<BufferId> = self.sites.iter().filter(|s| global(s)).map(|s| s.buffer).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().filter(|id| passes(*id)).collect()
    }

    /// The name of what a site accesses.
    pub fn buffer_name(&self, id: usize) -> &str {
        &self.kernel.func.buffer(self.sites[id].buffer).name
    }

    /// Why the later access has to wait for the earlier one.
    pub fn reason(&self, before: usize, now: usize) -> String {
        let (a, b) = (&self.sites[before], &self.sites[now]);
        let kind = match (a.write, b.write) {
            (true, false) => "RAW",
            (false, true) => "WAR",
            _ => "WAW",
        };
        let name = |s: &Site| self.kernel.func.buffer(s.buffer).name.clone();
        let verb = |s: &Site| if s.write { "writes" } else { "reads" };
        let earlier = if before >= now { " in the iteration before" } else { "" };
        if a.buffer == b.buffer {
            let did = match (a.write, a.asynchronous) {
                (true, true) => "copied",
                (true, false) => "wrote",
                (false, _) => "read",
            };
            format!("{kind} {}: {} {} what {} {did}{earlier}", name(a), b.block, verb(b), a.block)
        } else {
            let (new, old) = (name(b), name(a));
            format!("{kind} {new}: {} {} bytes that {} used as {old}{earlier}", b.block, verb(b), a.block)
        }
    }

    /// How far apart the threads are that depend on each other through these two accesses.
    pub fn level(&self, before: usize, now: usize) -> Level {
        let key = (before.min(now), before.max(now));
        if let Some(level) = self.known.borrow().get(&key) {
            return *level;
        }
        let level = self.decide(&self.sites[key.0], &self.sites[key.1]);
        self.known.borrow_mut().insert(key, level);
        level
    }

    fn decide(&self, a: &Site, b: &Site) -> Level {
        if !a.write && !b.write {
            return Level::Apart;
        }
        if a.buffer != b.buffer {
            return if self.overlap(a.buffer, b.buffer) { self.widest() } else { Level::Apart };
        }
        let Some((a, b)) = self.same_block(a, b) else { return Level::Unknown };
        if self.same_digits(&a, &b) {
            return Level::Own;
        }
        if self.far_apart(&a, &b) {
            return Level::Apart;
        }
        self.enumerate(&a, &b)
    }

    /// Different buffers conflict where the plan laid them over each other.
    fn overlap(&self, a: BufferId, b: BufferId) -> bool {
        let range = |id: BufferId| {
            let b = self.kernel.func.buffer(id);
            let from = u64::from(b.offset?);
            Some((from, from + b.dtype.bytes_of(b.elements()? as u64)))
        };
        match (range(a), range(b)) {
            (Some(a), Some(b)) => a.0 < b.1 && b.0 < a.1,
            _ => false,
        }
    }

    fn widest(&self) -> Level {
        let threads: i64 = self.threads.iter().map(|(_, n)| *n).product();
        if threads <= 32 { Level::Warp } else { Level::Block }
    }

    /// The two indices without what depends on the block alone; `None` where that part is not the same or not apart.
    fn same_block<'s>(&self, a: &'s Site, b: &'s Site) -> Option<(Flat<'s>, Flat<'s>)> {
        let blocks = self.kernel.block_vars();
        let split = |s: &'s Site| {
            let affine = simplify::affine(&s.index);
            let (of_block, rest): (Vec<_>, Vec<_>) =
                affine.terms.into_iter().partition(|(atom, _)| blocks.iter().any(|v| atom.mentions(*v)));
            let flat = Flat { site: s, affine: Affine { terms: rest, constant: affine.constant } };
            let only_blocks = of_block.iter().all(|(atom, _)| {
                let mut only = true;
                atom.for_each_var(&mut |v| only &= blocks.contains(&v));
                only
            });
            (of_block, flat, only_blocks)
        };
        let ((mut x, fa, pure_a), (mut y, fb, pure_b)) = (split(a), split(b));
        x.sort();
        y.sort();
        (x == y && pure_a && pure_b).then_some((fa, fb))
    }

    /// Whether both indices are the same mixed-radix number, in which the threads are digits: equal elements then mean
    /// equal threads.
    fn same_digits(&self, a: &Flat, b: &Flat) -> bool {
        if a.site.together || b.site.together {
            return false;
        }
        match (self.digits(a), self.digits(b)) {
            (Some(x), Some(y)) => x == y && a.affine.constant == b.affine.constant && a.site.lanes == b.site.lanes,
            _ => false,
        }
    }

    /// Whether all elements of one lie before all of the other, as those of different slots do.
    fn far_apart(&self, a: &Flat, b: &Flat) -> bool {
        match (self.span(a), self.span(b)) {
            (Some(a), Some(b)) => a.1 < b.0 || b.1 < a.0,
            _ => false,
        }
    }

    /// The first and the last element.
    fn span(&self, flat: &Flat) -> Option<(i64, i64)> {
        let mut env = Env::new();
        self.threads.iter().chain(&flat.site.loops).for_each(|(v, n)| env.bind(*v, 0, *n - 1));
        let (first, last) = simplify::bounds(&flat.affine.to_index(), &env)?;
        Some((first, last.checked_add(i64::from(flat.site.lanes) - 1)?))
    }

    /// (coefficient, extent, thread) of each digit, smallest first, if they do not overlap and name every thread.
    fn digits(&self, flat: &Flat) -> Option<Vec<(i64, i64, Option<Var>)>> {
        let mut digits = Vec::new();
        for (atom, c) in &flat.affine.terms {
            let var = atom.as_var()?;
            let thread = self.threads.iter().find(|(v, _)| *v == var);
            let extent = thread.or_else(|| flat.site.loops.iter().find(|(v, _)| *v == var))?.1;
            digits.push((*c, extent, thread.map(|(v, _)| *v)));
        }
        digits.sort_unstable();
        let mut span = i64::from(flat.site.lanes);
        for (c, extent, _) in &digits {
            if *c < span {
                return None;
            }
            span = c.checked_mul(*extent)?;
        }
        let named = |v: Var| digits.iter().any(|(_, _, t)| *t == Some(v));
        self.threads.iter().all(|(v, n)| *n == 1 || named(*v)).then_some(digits)
    }

    /// Whether two accesses of one run of a statement, in the same iteration of the `depth` outermost loops, provably
    /// touch an element from two threads. Undecided counts as no: the order of the threads is then left to chance only
    /// in programs too large to be counted out.
    pub fn meet(&self, a: usize, b: usize, depth: usize) -> bool {
        let (a, b) = (&self.sites[a], &self.sites[b]);
        if !(a.write || b.write) || a.buffer != b.buffer {
            return false;
        }
        if let Some((a, b)) = self.same_block(a, b)
            && self.same_digits(&a, &b)
        {
            return false;
        }
        let blocks = self.kernel.launch.iter().filter(|l| l.axis.is_block_level());
        let mut around: Vec<(Var, i64)> = blocks.map(|l| (l.var, i64::from(l.extent))).collect();
        around.extend(&a.loops[..depth.min(a.loops.len())]);
        around.retain(|(v, _)| a.mentions(*v) || b.mentions(*v));
        self.meet_within(a, b, &around).unwrap_or(false)
    }

    /// [`Sites::meet`] with the variables that both share; `None` where it cannot be decided.
    fn meet_within(&self, a: &Site, b: &Site, around: &[(Var, i64)]) -> Option<bool> {
        let inner = |s: &Site| {
            let free = |v: &&(Var, i64)| s.mentions(v.0) && !around.iter().any(|(w, _)| *w == v.0);
            s.loops.iter().filter(free).chain(&self.threads).copied().collect::<Vec<(Var, i64)>>()
        };
        let (of_a, of_b) = (inner(a), inner(b));
        let size = |vars: &[(Var, i64)]| vars.iter().try_fold(1i64, |n, (_, e)| n.checked_mul(*e));
        let each = size(&of_a)?.checked_add(size(&of_b)?)?;
        let runs = size(around)?.min(BUDGET / each.max(1));
        if runs < 1 {
            return None;
        }
        (0..runs).try_fold(false, |met, n| Some(met || self.meet_once((a, &of_a), (b, &of_b), &point(n, around))?))
    }

    fn meet_once(&self, a: Ranged, b: Ranged, around: &[(Var, i64)]) -> Option<bool> {
        let mut owners: HashMap<i64, Owner> = HashMap::new();
        self.run(a, around, &mut |thread, element| {
            owners.entry(element).and_modify(|o| o.add(thread)).or_insert_with(|| Owner::new(thread));
        })?;
        let mut met = false;
        self.run(b, around, &mut |thread, element| {
            met |= owners.get(&element).is_some_and(|o| !matches!(o.seen_from(thread), Level::Apart | Level::Own));
        })?;
        Some(met)
    }

    /// Calls `f(thread, element)` for every access while some variables keep their values; `None` where a condition or an
    /// index cannot be evaluated.
    fn run(&self, (site, vars): Ranged, around: &[(Var, i64)], f: &mut dyn FnMut(i64, i64)) -> Option<()> {
        let total: i64 = vars.iter().map(|(_, e)| *e).product();
        for n in 0..total {
            let here = point(n, vars);
            let value = |v: Var| here.iter().chain(around).find(|(w, _)| *w == v).map(|(_, x)| *x);
            if !site.cond.eval(&value)? {
                continue;
            }
            let element = site.index.eval(&value)?;
            let thread = self.threads.iter().rev().fold(0, |id, (v, e)| id * e + value(*v).unwrap_or(0));
            // What lanes do together is done by one of them as far as they themselves are concerned.
            let thread = if site.together { thread / 32 * 32 } else { thread };
            (0..i64::from(site.lanes)).for_each(|lane| f(thread, element + lane));
        }
        Some(())
    }

    fn enumerate(&self, a: &Flat, b: &Flat) -> Level {
        let mut owners: HashMap<i64, Owner> = HashMap::new();
        let filled = self.each(a, &mut |thread, element| {
            owners.entry(element).and_modify(|o| o.add(thread)).or_insert_with(|| Owner::new(thread));
            true
        });
        if !filled {
            return Level::Unknown;
        }
        let mut level = Level::Apart;
        let finished = self.each(b, &mut |thread, element| {
            match owners.get(&element).map_or(Level::Apart, |o| o.seen_from(thread)) {
                Level::Block => level = Level::Block,
                Level::Warp => level = Level::Warp,
                Level::Own if level == Level::Apart => level = Level::Own,
                _ => {}
            }
            level != Level::Block
        });
        if finished || level == Level::Block { level } else { Level::Unknown }
    }

    /// Calls `f(thread, element)` for every access; stops early where `f` says so. False if over budget or undecidable.
    fn each(&self, flat: &Flat, f: &mut dyn FnMut(i64, i64) -> bool) -> bool {
        let mut vars = self.threads.clone();
        let mut known = true;
        for (atom, _) in &flat.affine.terms {
            atom.for_each_var(&mut |v| {
                if vars.iter().all(|(w, _)| *w != v) {
                    match flat.site.loops.iter().find(|(w, _)| *w == v) {
                        Some(l) => vars.push(*l),
                        None => known = false,
                    }
                }
            });
        }
        let total = vars.iter().try_fold(1i64, |n, (_, e)| n.checked_mul(*e)).filter(|n| *n <= BUDGET);
        let (true, Some(total)) = (known, total) else { return false };
        let mut values: Vec<(Var, i64)> = vars.iter().map(|(v, _)| (*v, 0)).collect();
        for n in 0..total {
            // Threads vary slowest: a dependence between threads shows early.
            let mut rest = n;
            for (slot, (_, extent)) in values.iter_mut().zip(&vars).rev() {
                slot.1 = rest % extent;
                rest /= extent;
            }
            let value = |v: Var| values.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
            // A condition on what is not enumerated is taken to hold.
            if flat.site.cond.conjuncts().iter().any(|c| c.eval(&value) == Some(false)) {
                continue;
            }
            let Some(element) = flat.element(&value) else { return false };
            let thread = self.threads.iter().rev().fold(0, |id, (v, e)| id * e + value(*v).unwrap_or(0));
            // Two lanes stand for all of them: no thread is both.
            let threads = if flat.site.together { [thread / 32 * 32, thread / 32 * 32 + 31] } else { [thread, thread] };
            for (lane, thread) in (0..i64::from(flat.site.lanes)).flat_map(|lane| threads.map(|t| (lane, t))) {
                if !f(thread, element + lane) {
                    return true;
                }
            }
        }
        true
    }
}

/// A site with the variables that its accesses run through.
type Ranged<'a> = (&'a Site, &'a [(Var, i64)]);

/// The n-th assignment, the last variable fastest.
fn point(mut n: i64, vars: &[(Var, i64)]) -> Vec<(Var, i64)> {
    let mut out = vars.to_vec();
    for (_, extent) in out.iter_mut().rev() {
        (n, *extent) = (n / (*extent).max(1), n % (*extent).max(1));
    }
    out
}

impl Site {
    fn mentions(&self, v: Var) -> bool {
        self.index.mentions(v) || self.cond.mentions(v)
    }
}

/// A site with its index taken apart.
struct Flat<'a> {
    site: &'a Site,
    affine: Affine,
}

impl Flat<'_> {
    fn element(&self, value: &impl Fn(Var) -> Option<i64>) -> Option<i64> {
        let mut sum = self.affine.constant;
        for (atom, c) in &self.affine.terms {
            sum = sum.checked_add(atom.eval(value)?.checked_mul(*c)?)?;
        }
        Some(sum)
    }
}

/// Which threads touched an element.
struct Owner {
    thread: i64,
    several: bool,
    several_warps: bool,
}

impl Owner {
    fn new(thread: i64) -> Owner {
        Owner { thread, several: false, several_warps: false }
    }

    fn add(&mut self, thread: i64) {
        self.several |= thread != self.thread;
        self.several_warps |= thread / 32 != self.thread / 32;
    }

    fn seen_from(&self, thread: i64) -> Level {
        if self.several_warps || thread / 32 != self.thread / 32 {
            Level::Block
        } else if self.several || thread != self.thread {
            Level::Warp
        } else {
            Level::Own
        }
    }
}
