//! Whether two accesses can touch the same bytes from different threads of a block.
//!
//! Decided exactly, by enumerating the threads and the loop values that the indices mention, up to a budget; two indices
//! with the same mixed-radix digits are told apart without enumeration. Where neither decides, the answer is
//! [`Level::Unknown`] and a barrier is the safe choice.

mod enumerate;

use super::super::LoweredKernel;
use crate::ir::simplify::{self, Affine, Env};
use crate::ir::{BlockId, BufferId, Cond, Expr, For, Func, Index, Scope, Stmt, Var, visit};
use std::cell::RefCell;
use std::collections::HashMap;

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
    lane: Index,
    threads: Vec<(Var, i64)>,
    sites: Vec<Site>,
    loops: Vec<(Var, i64)>,
    known: RefCell<HashMap<(usize, usize), Level>>,
}

impl<'a> Sites<'a> {
    pub fn new(kernel: &'a LoweredKernel) -> Self {
        let threads = kernel.thread_vars();
        Sites { kernel, lane: kernel.lane(), threads, sites: Vec::new(), loops: Vec::new(), known: RefCell::default() }
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
                    let Some((index, lanes)) = o.run_of(&self.lane) else { continue };
                    for (_, does) in [(o.reads, Does::Read), (o.writes, Does::Write)].into_iter().filter(|x| x.0) {
                        self.add(o.buffer, does, &index, lanes, cond, block);
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
        if std::ptr::eq(a.site, b.site) && a.site.together && self.once(&a) {
            return Level::Own;
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
