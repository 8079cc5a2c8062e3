//! Register prefetch across stages: a register pipeline inside a ring with mbarriers continues from stage to stage.
//!
//! ```text
//! for k                                   wait full[0]; load 0 of stage 0
//!   wait full[k]                          for k
//!   for kk pipeline stages=2                load 1; compute 0        (all but the last steps)
//!     load kk; compute kk          ->       arrive empty[k]          (the last read of the stage is complete)
//!   arrive empty[k]                         wait full[k + 1]; load 0 of stage k + 1; compute with the last load of stage k
//!                                         ... the last k without the wait and the load
//! ```
//!
//! No iteration begins with a wait for shared memory, and consumers release a stage as soon as its last fragments are in registers.
//! A fragment load is a synchronous read, which the arrival after it releases. Where one lane arrives for its warp, the lanes
//! synchronise in between.
//!
//! The earlier wait is for the same phase. It cannot delay the producer, which depends only on the releases of earlier stages, and
//! these are all before the wait. The statement that issues TMA loads ahead moves up with the wait; the stage that it refills
//! has been read, too.
//!
//! With the note *spread*, the release and the wait are in the middle of the MMAs of the last step before the loads of the next
//! stage, after the last loads of the current one: those loads have then returned, and the wait delays no MMA after it.
//!
//! The loop is unrolled by the number of stages where that makes them constants: addresses then differ by constants, and no
//! remainder is computed. The last iterations follow the loop, so its body needs no condition.

use super::ring::is_ring;
use super::unrolled::{Unrolled, in_pieces};
use crate::error::Result;
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, BulkCopy, Elect, For, Func, Index, LoopKind, Note, Stmt, Sync, SyncKind, Var, Way, visit};

/// Steps of the inner loop up to which the loop is unrolled by its stages.
const WRITTEN_OUT: i64 = 64;

/// The loop of a ring, taken apart around its register pipeline.
pub struct Prefetched {
    l: For,
    extent: i64,
    /// The waits for a stage, and the statements that issue the TMA loads of a later one.
    enter: Vec<Stmt>,
    /// The other statements before the inner loop.
    before: Vec<Stmt>,
    inner: Unrolled,
    /// The arrivals that release a stage.
    release: Vec<Stmt>,
    /// The other statements after it.
    after: Vec<Stmt>,
}

/// The statements that replace a loop, if it is such a ring; the loop itself if not.
pub fn prefetched(
    l: For,
    func: &mut Func,
    written: &[BufferId],
    env: &Env,
) -> Result<std::result::Result<Vec<Stmt>, For>> {
    let Some(at) = place_of_inner(&l, func) else { return Ok(Err(l)) };
    let Stmt::For(inner) = &l.body[at] else { return Ok(Err(l)) };
    let mut known = env.clone();
    known.bind_loop(l.var, &l.extent);
    let mut inside = known.clone();
    inside.bind_loop(inner.var, &inner.extent);
    // On a copy of the program: the loop may not fit.
    let mut tried = func.clone();
    let Ok(inner) = Unrolled::new(inner.clone(), &mut tried, written, &inside) else { return Ok(Err(l)) };
    if !inner.repeats() || !inner.computes_in_registers(func) {
        return Ok(Err(l));
    }
    let Some(loop_) = Prefetched::new(l.clone(), at, inner) else { return Ok(Err(l)) };
    *func = tried;
    Ok(Ok(loop_.statements(func, env)))
}

/// Which statement of a ring of mbarriers is the pipelined loop that comes first in it.
fn place_of_inner(l: &For, func: &Func) -> Option<usize> {
    let plain = l.kind == LoopKind::Serial && l.pipeline.is_none() && l.extent.as_int().is_some();
    if !plain || !is_ring(l) || func.mbarriers.is_empty() {
        return None;
    }
    l.body.iter().position(|s| matches!(s, Stmt::For(l) if l.pipeline.is_some_and(|p| p.in_flight == 0) && !is_ring(l)))
}

impl Prefetched {
    /// Takes a loop apart, if no statement prevents loads of the next stage.
    fn new(mut l: For, at: usize, inner: Unrolled) -> Option<Prefetched> {
        let extent = l.extent.as_int()?;
        let mut after = std::mem::take(&mut l.body);
        let mut enter = Vec::new();
        let mut before = Vec::new();
        for stmt in after.drain(..=at).take(at) {
            if enters(&stmt) { enter.push(stmt) } else { before.push(stmt) }
        }
        let left = after.iter().take_while(|s| releases(s)).count();
        let release: Vec<Stmt> = after.drain(..left).collect();
        // Buffers that are read or loaded ahead: no statement that is passed may touch them.
        let mut ahead = inner.touched();
        ahead.extend(visit::writes(&enter));
        let passed = || before.iter().chain(&after);
        let calm = passed().all(|s| !syncs(s)) && passed().all(|s| touches(s, &ahead).is_none());
        (calm && awaited(&enter)).then_some(Prefetched { l, extent, enter, before, inner, release, after })
    }

    fn statements(self, func: &mut Func, env: &Env) -> Vec<Stmt> {
        let zero = Index::Int(0);
        let mut out = self.at(&self.enter, &zero, env);
        for step in 0..self.inner.ahead().min(self.inner.extent()) {
            out.extend(self.at(&self.inner.loads(step, env), &zero, env));
        }
        let (var, stages, rounds) = self.written_out(func, env).unwrap_or((self.l.var, 1, self.extent - 1));
        let mut known = env.clone();
        known.bind(var, 0, rounds - 1);
        let turn = |u: i64| self.iteration(&simplify::simplify(&(Index::Var(var) * stages + u), &known), &known);
        match rounds {
            0 => {}
            1 => out.extend((0..stages).flat_map(|k| self.iteration(&Index::Int(k), env))),
            _ => {
                let body = (0..stages).flat_map(turn).collect();
                out.push(Stmt::For(For { var, extent: Index::Int(rounds), body, ..self.l.clone() }));
            }
        }
        for k in rounds * stages..self.extent {
            out.extend(self.iteration(&Index::Int(k), env));
        }
        out
    }

    /// The variable that counts the rounds of the loop unrolled by its stages, the number of stages and of rounds; nothing where the
    /// stages would not be constants.
    fn written_out(&self, func: &mut Func, env: &Env) -> Option<(Var, i64, i64)> {
        let mut stages = 1;
        visit::walk(&self.enter, &mut |s| {
            if let Stmt::Sync(Sync { kind: SyncKind::Await { slot, .. }, .. }) = s
                && let Some(array) = func.mbarriers.get(slot.barrier as usize)
            {
                stages = lcm(stages, i64::from(array.slots));
            }
        });
        if stages * self.inner.extent() > WRITTEN_OUT {
            return None;
        }
        // The loop ends before the iterations that issue no loads.
        let fills = self.enter.iter().any(|s| !matches!(s, Stmt::Sync(_)));
        let rounds = ((self.extent - 1) / stages - i64::from(fills)).max(0);
        let var = func.add_var(format!("{}_round", func.var_name(self.l.var)));
        let mut known = env.clone();
        known.bind(var, 0, rounds.max(1) - 1);
        let mut constant = true;
        visit::walk(&self.at(&self.enter, &(Index::Var(var) * stages), &known), &mut |s| {
            if let Stmt::Sync(Sync { kind: SyncKind::Await { slot, .. }, .. }) = s {
                constant &= slot.index.as_int().is_some();
            }
        });
        constant.then_some((var, stages, rounds))
    }

    /// Iteration k, whose first fragments are loaded; it loads those of the next one, if there is one.
    fn iteration(&self, k: &Index, env: &Env) -> Vec<Stmt> {
        let next = (k.as_int() != Some(self.extent - 1)).then(|| simplify::simplify(&(k.clone() + 1), env));
        let (extent, ahead) = (self.inner.extent(), self.inner.ahead());
        let mut switch = self.at(&self.release, k, env);
        switch.extend(next.iter().flat_map(|next| self.at(&self.enter, next, env)));
        // One set of registers is reloaded between the MMAs, up to the last of them.
        let spread = self.l.notes.contains_key(&Note::Spread) && !self.inner.in_place();
        let mut out = self.at(&self.before, k, env);
        for step in 0..extent {
            let load = step + ahead;
            if load == extent {
                out.append(&mut switch);
            }
            let of = if load < extent { Some(k) } else { next.as_ref() };
            let loads = of.iter().flat_map(|k| self.at(&self.inner.loads(load % extent, env), k, env)).collect();
            let computes = self.at(&self.inner.computes(step, env), k, env);
            if !spread || load + 1 != extent {
                out.extend(self.inner.step(computes, loads, env));
                continue;
            }
            out.extend(loads);
            // The last loads have returned by the middle of the MMAs, and the wait delays none of the MMAs after it.
            let mut pieces = in_pieces(computes);
            pieces.insert(pieces.len().div_ceil(2), std::mem::take(&mut switch));
            out.extend(pieces.concat());
        }
        out.extend(self.at(&self.after, k, env));
        out
    }

    /// Statements of iteration k.
    fn at(&self, stmts: &[Stmt], k: &Index, env: &Env) -> Vec<Stmt> {
        let map: visit::Map = [(self.l.var, k.clone())].into();
        let mut index = |i: &Index| simplify::simplify(&visit::subst_index(i, &map), env);
        stmts.iter().map(|s| visit::map_stmt(s.clone(), &mut index, &mut |e| e)).collect()
    }
}

/// Whether a statement only waits for a stage, or issues TMA loads.
fn enters(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Sync(s) => matches!(s.kind, SyncKind::Await { .. }),
        Stmt::Elect(Elect { body, .. }) => !body.is_empty() && body.iter().all(starts),
        Stmt::If(i) => !i.body.is_empty() && i.body.iter().all(|s| matches!(s, Stmt::Elect(_)) && enters(s)),
        _ => false,
    }
}

/// Whether the statements await all loads that they issue.
fn awaited(stmts: &[Stmt]) -> bool {
    let (mut loaded, mut awaited) = (Vec::new(), Vec::new());
    visit::walk(stmts, &mut |s| match s {
        Stmt::Sync(Sync { kind: SyncKind::Await { slot, .. }, .. }) => awaited.push(slot.barrier),
        Stmt::Bulk(BulkCopy { way: Way::Load { full, .. }, .. }) => loaded.push(full.barrier),
        _ => {}
    });
    loaded.iter().all(|b| awaited.contains(b))
}

/// Whether a statement only issues TMA loads.
fn starts(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Bulk(copy) => copy.way != Way::Store,
        Stmt::For(l) => l.body.iter().all(starts),
        Stmt::Block(b) => b.body.iter().all(starts),
        _ => false,
    }
}

/// Whether a statement only releases a stage.
fn releases(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Sync(s) => matches!(s.kind, SyncKind::ProxyFence | SyncKind::Warp | SyncKind::Arrive { .. }),
        Stmt::Elect(e) => !e.body.is_empty() && e.body.iter().all(releases),
        _ => false,
    }
}

/// Whether a statement synchronises, or lets another engine copy.
fn syncs(stmt: &Stmt) -> bool {
    let mut found = false;
    visit::walk(std::slice::from_ref(stmt), &mut |s| {
        found |= matches!(s, Stmt::Sync(_) | Stmt::Elect(_) | Stmt::Bulk(_));
    });
    found
}

/// The first of the buffers that a statement touches.
fn touches(stmt: &Stmt, buffers: &[BufferId]) -> Option<BufferId> {
    let body = std::slice::from_ref(stmt);
    visit::reads(body).into_iter().chain(visit::writes(body)).find(|b| buffers.contains(b))
}

fn lcm(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
