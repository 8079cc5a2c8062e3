//! A pipelined loop, unrolled: the stages of its [`Ring`] are constants, in registers or in shared memory that threads or cp.async fill.
//! The ring has no mbarriers: `order` sees which accesses conflict.

use super::copy::{Copy, Kind, filled};
use super::refill::refilled;
use super::ring::Ring;
use crate::error::{Code, Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{Buffer, BufferId, Cond, For, Func, Index, LoopKind, Note, Scope, Stmt, SyncKind, Var, visit};
use crate::lower::data::registers::MOST_STATEMENTS;
use crate::lower::map::blocks::guarded;
use crate::lower::map::guards::decided;
use crate::target::REGISTERS_PER_THREAD;

/// A pipelined loop, taken apart into copies and compute.
pub struct Unrolled {
    var: Var,
    kind: Kind,
    extent: i64,
    ring: Ring,
    /// Iterations that loads are ahead.
    ahead: i64,
    copies: Vec<Copy>,
    /// A register pipeline that is first in the compute, and continues from iteration to iteration.
    inner: Option<Box<Unrolled>>,
    compute: Vec<Stmt>,
    /// Copies start between the iterations of `inner`, not all at once.
    spread: bool,
    /// Closes the group of the asynchronous copies of a tile, if there are any.
    commit: Option<Stmt>,
    /// The main loop also runs the iterations that no longer prefetch; their copies are predicated.
    predicated: bool,
}

/// The kernel itself writes what a staged buffer is filled from.
fn filled_by_kernel(refuse: impl Fn(String) -> Error, why: &str, stage: &str) -> Error {
    refuse(format!("{why}; the kernel itself writes what {stage} is filled from")).about_buffer(stage)
}

impl Unrolled {
    /// Takes a loop apart. `env` knows its variable.
    pub fn new(l: For, func: &mut Func, written: &[BufferId], env: &Env) -> Result<Unrolled> {
        let name = func.var_name(l.var).to_string();
        let refuse = |why: String| {
            Error::input(Code::LowerPipeline, format!("pipeline {name}: {why}")).about_loop(&name).help(
                "staged buffers that are copied from device or shared memory at the start of the loop can be pipelined",
            )
        };
        let (Some(p), Some(extent)) = (l.pipeline, l.extent.as_int()) else {
            return Err(refuse("the loop has no constant extent".into()));
        };
        if p.in_flight != 0 {
            let why = "in_flight counts groups of asynchronous MMAs, and the instructions of this loop are synchronous";
            return Err(refuse(why.into()));
        }
        let fills = |s: &Stmt, kind: Kind| filled(s, func, written).is_some_and(|f| f.kind == kind);
        let kind = if l.body.iter().any(|s| fills(s, Kind::Shared)) { Kind::Shared } else { Kind::Registers };
        let stages = i64::from(p.stages);
        if stages == 1 && kind == Kind::Shared {
            return Err(refuse("one stage of shared memory cannot be filled while it is read".into()).help(
                "stages=2 or more; stages=1 is for staged buffers in registers, each reloaded after its last use",
            ));
        }
        let spread = l.notes.contains_key(&Note::Spread);
        let (mut copies, mut compute) = (Vec::new(), Vec::new());
        for stmt in l.body {
            match filled(&stmt, func, written).filter(|f| f.kind == kind && compute.is_empty()) {
                Some(found) => copies.push(Copy::new(stmt, &found, func, env)?),
                None => compute.push(stmt),
            }
        }
        if copies.is_empty() {
            let why = "no staged buffer directly under the loop is copied from device or shared memory";
            let error = match visit::writes(&compute).into_iter().find(|b| func.buffer(*b).scope == Scope::Shared) {
                Some(b) => filled_by_kernel(refuse, why, &func.buffer(b).name),
                None => refuse(why.into()),
            };
            return Err(error.help(format!(
                "cache_read makes such a buffer, and compute_at STAGE {name} moves it there; or remove the step"
            )));
        }
        if let Some(b) = rewritten(&copies, &compute, kind, func, written) {
            let b = &func.buffer(b).name;
            let why = match kind {
                Kind::Shared => {
                    format!("staged buffer {b} is not a copy from device memory, or not at the start of the loop")
                }
                Kind::Registers => format!("the loop writes {b}, so {b} cannot be read ahead"),
            };
            return Err(refuse(why).about_buffer(b));
        }
        let ring = Ring::new(stages, copies.iter().map(|c| (c.buffer, c.size)).collect());
        ring.allot(func);
        // One set of registers is reloaded for the next iteration after its last use.
        let (ahead, commit) = ((stages - 1).max(1), commit(&copies, func));
        let mut unrolled = Unrolled {
            var: l.var,
            kind,
            extent,
            ring,
            ahead,
            copies,
            inner: None,
            compute,
            spread,
            commit,
            predicated: false,
        };
        unrolled.nest(func, written, env)?;
        unrolled.predicated = unrolled.has_many_fragments(func);
        unrolled.fits(&name, env)?;
        Ok(unrolled)
    }

    /// Refuses a loop that is too long once it is written out.
    fn fits(&self, name: &str, env: &Env) -> Result<()> {
        let statements = self.statements(env);
        if statements > MOST_STATEMENTS {
            let message = format!(
                "pipeline {name}: written out, the loop has {statements} statements; {MOST_STATEMENTS} are allowed"
            );
            return Err(Error::input(Code::LowerPipeline, message)
                .about_loop(name)
                .help("split the loop and pipeline the inner part"));
        }
        Ok(())
    }

    /// The number of statements of the unrolled loop: those of the first iteration, times all iterations if the stages are registers,
    /// times at most three rounds of the ring if they are shared memory.
    fn statements(&self, env: &Env) -> i64 {
        let mut statements = 0i64;
        visit::walk(&self.iteration(&Index::Int(0), env), &mut |_| statements += 1);
        statements.saturating_mul(match self.kind {
            Kind::Shared => self.extent.min(self.ring.stages.saturating_mul(3)),
            Kind::Registers => self.extent,
        })
    }

    /// Unrolls the pipelined loops inside; a register pipeline that is first continues from tile to tile instead, where it can.
    fn nest(&mut self, func: &mut Func, written: &[BufferId], env: &Env) -> Result<()> {
        let mut compute = std::mem::take(&mut self.compute);
        if self.kind == Kind::Shared
            && matches!(compute.first(), Some(Stmt::For(l)) if l.pipeline.is_some())
            && let Stmt::For(l) = compute.remove(0)
        {
            let mut known = env.clone();
            known.bind_loop(l.var, &l.extent);
            let inner = Unrolled::new(l, func, written, &known)?;
            if inner.runs_on_in(self) {
                self.inner = Some(Box::new(inner));
            } else {
                compute.splice(0..0, inner.written_out(func, env));
            }
        }
        self.compute = super::list(compute, func, written, env)?;
        Ok(())
    }

    /// Whether the loads ahead may be those of the next iteration of `outer`: its stages are then the same iterations in each tile,
    /// and it reads only stages of `outer`.
    fn runs_on_in(&self, outer: &Unrolled) -> bool {
        self.repeats() && self.sources().iter().all(|b| outer.copies.iter().any(|c| c.buffer == *b))
    }

    /// Whether a register pipeline may continue where the loop around repeats it: its stages are the same iterations each time.
    pub fn repeats(&self) -> bool {
        self.kind == Kind::Registers && self.extent % self.ring.stages == 0 && self.ahead <= self.extent
    }

    /// Whether its compute touches registers and device memory alone, and nothing waits in it.
    pub fn computes_in_registers(&self, func: &Func) -> bool {
        let mut waits = false;
        visit::walk(&self.compute, &mut |s| waits |= matches!(s, Stmt::Sync(_) | Stmt::Elect(_) | Stmt::Bulk(_)));
        let touched = visit::reads(&self.compute).into_iter().chain(visit::writes(&self.compute));
        !waits && touched.into_iter().all(|b| func.buffer(b).scope != Scope::Shared)
    }

    /// What its copies read.
    pub fn sources(&self) -> Vec<BufferId> {
        self.copies.iter().flat_map(|c| visit::reads(std::slice::from_ref(&c.whole))).collect()
    }

    /// What its copies read and write.
    pub fn touched(&self) -> Vec<BufferId> {
        self.sources().into_iter().chain(self.copies.iter().map(|c| c.buffer)).collect()
    }

    /// Whether there is one set of registers, each reloaded in place.
    pub fn in_place(&self) -> bool {
        self.kind == Kind::Registers && self.ring.stages == 1
    }

    /// The compute of an iteration with the loads that it makes ahead.
    pub fn step(&self, compute: Vec<Stmt>, mut loads: Vec<Stmt>, env: &Env) -> Vec<Stmt> {
        if self.in_place() {
            return refilled(compute, loads, env);
        }
        loads.extend(compute);
        loads
    }

    /// Its iterations.
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// Iterations that its copies are ahead.
    pub fn ahead(&self) -> i64 {
        self.ahead
    }

    /// The copies of an iteration.
    pub fn loads(&self, step: i64, env: &Env) -> Vec<Stmt> {
        self.filled_at(&Index::Int(step), env)
    }

    /// The compute of an iteration.
    pub fn computes(&self, step: i64, env: &Env) -> Vec<Stmt> {
        self.all_at(self.compute.clone(), &Index::Int(step), env)
    }

    /// The statements that replace the loop.
    pub fn written_out(self, func: &mut Func, env: &Env) -> Vec<Stmt> {
        let mut out: Vec<Stmt> =
            (0..self.ahead.min(self.extent)).flat_map(|k| self.closed(self.filled_at(&Index::Int(k), env))).collect();
        if let Some(inner) = &self.inner {
            let first = (0..inner.ahead).flat_map(|step| inner.filled_at(&Index::Int(step), env));
            out.extend(self.all_at(first.collect(), &Index::Int(0), env));
        }
        let (head, rounds) = self.rounds();
        for k in 0..head {
            out.extend(self.iteration(&Index::Int(k), env));
        }
        if rounds > 0 {
            let round = func.add_var(format!("{}_round", func.var_name(self.var)));
            let mut inner = env.clone();
            inner.bind(round, 0, rounds - 1);
            let iterations = (0..self.ring.stages)
                .flat_map(|u| self.iteration(&(round * self.ring.stages + head + u), &inner))
                .collect();
            if rounds == 1 {
                out.extend(visit::subst_body(iterations, &[(round, Index::Int(0))].into()));
            } else {
                let mut rolled = For::new(round, rounds, LoopKind::Serial, iterations);
                if self.predicated {
                    rolled.notes.insert(Note::UnrollLimit, 1);
                }
                out.push(Stmt::For(rolled));
            }
        }
        for k in head + rounds * self.ring.stages..self.extent {
            out.extend(self.iteration(&Index::Int(k), env));
        }
        out
    }

    /// Whether accumulators and fragments take more than half of a thread's registers. ptxas spills such kernels if iterations are
    /// unrolled after the main loop: it hoists their fragment loads and the addresses of the epilogue.
    fn has_many_fragments(&self, func: &Func) -> bool {
        let loads_fragments = |inner: &Unrolled| inner.copies.iter().any(|c| has_call(&c.whole));
        let locals = func.buffers.iter().filter(|b| b.scope == Scope::Local);
        let bits = |b: &Buffer| b.elements().unwrap_or(0).saturating_mul(b.dtype.bits().into());
        self.inner.as_deref().is_some_and(loads_fragments)
            && self.extent >= 2 * self.ring.stages
            && self.copies.iter().all(Copy::asynchronous)
            && locals.map(bits).sum::<i64>() / 32 > i64::from(REGISTERS_PER_THREAD / 2)
    }

    /// The number of iterations before the main loop, and the number of iterations of the main loop, which are rounds of the ring.
    ///
    /// A predicated main loop runs all rounds. Otherwise the last round of a loop with a fragment prefetch follows the main loop, so
    /// that copies and fragment loads of the main loop need no condition.
    fn rounds(&self) -> (i64, i64) {
        let rounds = self.extent / self.ring.stages;
        match self.kind {
            Kind::Registers => (0, 0),
            Kind::Shared if self.predicated => (self.extent % self.ring.stages, rounds),
            Kind::Shared => (0, (rounds - i64::from(self.inner.is_some())).max(0)),
        }
    }

    /// The copies of tile k as a whole.
    fn filled_at(&self, k: &Index, env: &Env) -> Vec<Stmt> {
        self.copies.iter().map(|c| self.at(c.whole.clone(), k, env)).collect()
    }

    /// Iteration k: the starts of copies, compute, the ends of copies.
    fn iteration(&self, k: &Index, env: &Env) -> Vec<Stmt> {
        let (mut starts, ends) = (Vec::new(), self.ends(k, env));
        for copy in &self.copies {
            if self.spread && self.inner.is_some() {
                starts.extend(copy.parts());
            } else {
                starts.push(copy.start().clone());
            }
        }
        let Some(inner) = &self.inner else {
            let starts = self.closed(self.later(starts, k, env));
            let mut out = self.step(self.all_at(self.compute.clone(), k, env), starts, env);
            out.extend(ends);
            return out;
        };
        let mut out = Vec::new();
        // Before its last loads the inner pipeline reads nothing of a stage that is being filled.
        let calm = inner.extent - inner.ahead;
        // The stores of a register prefetch wait for its last load, so the loads are issued in the first half. On an H200 16320x68x10653 NN of f16 takes
        // 366 us with loads between all MMAs, 241 so, and 215 with all loads before the MMAs, which costs 8 % for 43x4138x482 NT of s8
        // (h200-2026-11-29/registers.jsonl).
        let through_registers = self.copies.iter().any(|copy| copy.end().is_some());
        let steps = match self.spread {
            true if through_registers => (calm / 2).max(1),
            true => calm.max(1),
            false => 1,
        };
        let pieces = |step: i64| {
            let compute = inner.all_at(inner.compute.clone(), &Index::Int(step), env);
            let compute = self.all_at(compute, k, env);
            if self.spread { in_pieces(compute) } else { vec![compute] }
        };
        // Copies go before the pieces of these steps, as many before each.
        let (count, places) = (starts.len(), (0..steps).map(|s| pieces(s).len()).sum::<usize>());
        let mut starts = starts.into_iter();
        let (mut ends, mut copied, mut place) = (Some(ends), false, 0);
        for step in 0..inner.extent {
            if step == calm {
                out.extend(ends.take().unwrap_or_default());
            }
            let mut computed = Vec::new();
            for piece in pieces(step) {
                if place < places {
                    let mine = (place + 1) * count / places - place * count / places;
                    let some = self.later(starts.by_ref().take(mine).collect(), k, env);
                    copied |= !some.is_empty();
                    computed.extend(some);
                    place += 1;
                    if place == places && copied {
                        computed.extend(self.commit.clone());
                    }
                }
                computed.extend(piece);
            }
            // The fragment loads of the next step are first: copies would delay them.
            out.extend(inner.step(computed, self.loaded(inner, step + inner.ahead, k, env), env));
        }
        out.extend(self.all_at(self.compute.clone(), k, env));
        out
    }

    /// The copies of a tile, if there are any, with the end of their group.
    fn closed(&self, mut copies: Vec<Stmt>) -> Vec<Stmt> {
        if !copies.is_empty() {
            copies.extend(self.commit.clone());
        }
        copies
    }

    /// The loads of the inner pipeline for one of its iterations, counted from the first of tile k.
    fn loaded(&self, inner: &Unrolled, step: i64, k: &Index, env: &Env) -> Vec<Stmt> {
        let load = |step: i64| inner.filled_at(&Index::Int(step), env);
        if step < inner.extent {
            return self.all_at(load(step), k, env);
        }
        let next = simplify::simplify(&(k.clone() + 1), env);
        let more = simplify::simplify_cond(&Cond::lt(next.clone(), self.extent), env);
        let loads = self.all_at(load(step - inner.extent), &next, env);
        // The last iteration of a predicated loop prefetches fragments from a stale stage; no MMA reads them.
        let always = self.predicated && more != Cond::Const(false);
        under(if always { Cond::TRUE } else { more }, loads)
    }

    /// Statements for the tile that is needed `ahead` iterations after k, if there is one.
    fn later(&self, stmts: Vec<Stmt>, k: &Index, env: &Env) -> Vec<Stmt> {
        let later = simplify::simplify(&(k.clone() + self.ahead), env);
        let more = simplify::simplify_cond(&Cond::lt(later.clone(), self.extent), env);
        let later = self.all_at(stmts, &later, env);
        if self.predicated {
            // One `if` for each copy: codegen predicates an `if` with a single cp.async.
            return later.into_iter().flat_map(|s| under(more.clone(), vec![s])).collect();
        }
        under(more, later)
    }

    fn ends(&self, k: &Index, env: &Env) -> Vec<Stmt> {
        self.later(self.copies.iter().filter_map(|c| c.end().cloned()).collect(), k, env)
    }

    fn all_at(&self, stmts: Vec<Stmt>, k: &Index, env: &Env) -> Vec<Stmt> {
        stmts.into_iter().map(|s| self.at(s, k, env)).collect()
    }

    /// A statement of iteration k, with its accesses to the ring in the stage of the iteration.
    fn at(&self, stmt: Stmt, k: &Index, env: &Env) -> Stmt {
        let map = [(self.var, k.clone())].into();
        let mut index = |i: &Index| simplify::simplify(&visit::subst_index(i, &map), env);
        let mut moved = self.ring.moved(visit::map_stmt(stmt, &mut index, &mut |e| e), k, env);
        visit::each_store(std::slice::from_mut(&mut moved), &mut |s| {
            // Where a tile lies beyond its source's end, nothing is left to copy but a constant.
            s.value = decided(&s.value, env);
            s.asynchronous &= s.source().is_some();
        });
        moved
    }
}

/// Iterations of a loop that is written out so that copies can start between them.
const PIECES: i64 = 16;

/// What computes, in as many pieces as its outermost loop has iterations, if these are few.
pub fn in_pieces(compute: Vec<Stmt>) -> Vec<Vec<Stmt>> {
    match <[Stmt; 1]>::try_from(compute) {
        Ok([Stmt::For(l)]) if few(&l).is_some() => {
            let once = |i: i64| visit::subst_body(l.body.clone(), &[(l.var, Index::Int(i))].into());
            (0..few(&l).unwrap_or(0)).map(once).collect()
        }
        Ok([other]) => vec![vec![other]],
        Err(compute) => vec![compute],
    }
}

/// The iterations of a loop of a thread, if they are few.
fn few(l: &For) -> Option<i64> {
    // The pass `zigzag` decides the direction of such a loop.
    let zigzag = l.notes.contains_key(&Note::Zigzag);
    let own = matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) && l.pipeline.is_none() && !zigzag;
    l.extent.as_int().filter(|n| own && *n <= PIECES)
}

/// What closes the group of the asynchronous ones among a tile's copies.
fn commit(copies: &[Copy], func: &Func) -> Option<Stmt> {
    let stages = copies.iter().filter(|c| c.asynchronous());
    let names: Vec<&str> = stages.map(|c| func.buffer(c.buffer).name.as_str()).collect();
    (!names.is_empty()).then(|| Stmt::Sync(SyncKind::Commit.because(names.join(", "))))
}

/// Whether a statement contains a tensor-core instruction.
fn has_call(stmt: &Stmt) -> bool {
    let mut found = false;
    visit::walk(std::slice::from_ref(stmt), &mut |s| found |= matches!(s, Stmt::Call(_)));
    found
}

/// Statements under a condition, if there are any and it can hold.
fn under(cond: Cond, stmts: Vec<Stmt>) -> Vec<Stmt> {
    if stmts.is_empty() || cond == Cond::Const(false) { Vec::new() } else { guarded(cond, stmts) }
}

/// What the compute writes that must not change. Under a ring of shared memory: a stage of the ring, and what is copied from device
/// memory too late to have stages. What is computed there is not copied ahead, and `order` puts barriers around it. Under a ring of
/// registers: what its copies read.
fn rewritten(copies: &[Copy], compute: &[Stmt], kind: Kind, func: &Func, written: &[BufferId]) -> Option<BufferId> {
    if kind == Kind::Registers {
        let read: Vec<BufferId> = copies.iter().flat_map(|c| visit::reads(std::slice::from_ref(&c.whole))).collect();
        return visit::writes(compute).into_iter().find(|b| read.contains(b));
    }
    let mut late = None;
    visit::walk(compute, &mut |s| {
        let copied = matches!(s, Stmt::Store(_)).then(|| filled(s, func, written)).flatten();
        late = late.or(copied.filter(|f| f.kind == Kind::Shared).map(|f| f.buffer));
    });
    late.or_else(|| visit::writes(compute).into_iter().find(|b| copies.iter().any(|c| c.buffer == *b)))
}
