//! `pipeline L stages=N` over stages that bulk copies fill or empty.
//!
//! Each stage has N slots, and the iteration with the running number `it` (over all loops around) uses slot `it % N`, so
//! the loop stays a loop. The loads of the first tiles are started before it, those of the others as many iterations ahead:
//! one mbarrier a slot counts the bytes of all stages. An iteration waits for the phase `it / N % 2` of its slot where
//! something first touches a stage. What bulk stores empty takes its turn through the slots in the same way.
//!
//! The running number of a loop inside a persistent loop counts the rounds of the block, so the phases run on.

use super::copy::{self, Kind};
use crate::error::{Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Cond, Elect, Expr, For, Func, Index, LoopKind, Slot, Stmt, Sync, SyncKind, Way, visit};
use crate::lower::data::bulk;
use crate::lower::map::blocks::guarded;
use crate::lower::sync;

/// Iterations of a ring that only stores up to which it is written out.
const WRITTEN_OUT: i64 = 16;

/// Turns every pipelined loop whose stages are copied in bulk into a ring.
pub fn rings(body: Vec<Stmt>, func: &mut Func, written: &[BufferId], env: &Env) -> Result<Vec<Stmt>> {
    list(body, func, written, env, &Index::Int(0))
}

/// `number` says how many iterations of the loops around have begun before this one.
fn list(body: Vec<Stmt>, func: &mut Func, written: &[BufferId], env: &Env, number: &Index) -> Result<Vec<Stmt>> {
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body {
        let (mut inner, mut inside) = (env.clone(), number.clone());
        if let Stmt::For(l) = &stmt {
            inner.bind_loop(l.var, &l.extent);
            inside = running(l, number);
        }
        for child in visit::children_mut(&mut stmt) {
            *child = list(std::mem::take(child), func, written, &inner, &inside)?;
        }
        match stmt {
            Stmt::For(l) if l.pipeline.is_some() && l.body.iter().any(is_copy) => {
                out.extend(Ring::new(l, func, written, number)?.statements(func, env)?);
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// The number of an iteration of a loop, where `number` is that of the iteration around.
pub fn running(l: &For, number: &Index) -> Index {
    match (l.kind, l.extent.as_int()) {
        (LoopKind::Persistent { round }, _) => Index::Var(round),
        (_, Some(extent)) => number.clone() * extent + l.var,
        _ => number.clone(),
    }
}

/// Whether a loop is such a ring already, of which `order` has still to know the products in flight.
pub fn is_ring(l: &For) -> bool {
    l.body.iter().any(|s| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Await { .. }, .. })))
}

fn is_copy(stmt: &Stmt) -> bool {
    let mut copies = false;
    if let Stmt::Elect(e) = stmt {
        visit::walk(&e.body, &mut |s| copies |= matches!(s, Stmt::Bulk(_)));
    }
    copies
}

/// A pipelined loop whose stages are copied in bulk.
struct Ring {
    l: For,
    extent: i64,
    slots: i64,
    /// Iterations that loads are ahead.
    ahead: i64,
    /// The number of the loop's first iteration.
    first: Index,
    /// What starts the loads of a tile, if there are any.
    fill: Option<Elect>,
    /// The mbarriers of the slots.
    full: u32,
    /// The stages with the elements of a slot.
    stages: Vec<(BufferId, i64)>,
    compute: Vec<Stmt>,
}

impl Ring {
    fn new(mut l: For, func: &mut Func, written: &[BufferId], number: &Index) -> Result<Ring> {
        let name = func.var_name(l.var).to_string();
        let refuse = |why: String| Error::input("lower.pipeline", format!("pipeline {name}: {why}"));
        let (Some(p), Some(extent)) = (l.pipeline.take(), l.extent.as_int()) else {
            return Err(refuse("the loop has no constant extent".to_string()).help("remove the step"));
        };
        let body = std::mem::take(&mut l.body);
        let other = body.iter().filter_map(|s| copy::filled(s, func, written)).find(|f| f.kind == Kind::Shared);
        if let Some(other) = other {
            let stage = &func.buffer(other.stage).name;
            return Err(refuse(format!("{stage} is copied by threads, and another staged buffer by tma"))
                .help("give all staged buffers under the loop one kind of copy"));
        }
        let slots = i64::from(p.stages.max(2));
        if p.in_flight > 0 {
            if !sync::products::any(&body) {
                let why = "in_flight counts groups of asynchronous MMAs, and the loop has none";
                return Err(refuse(why.to_string()).help("remove in_flight="));
            }
            if i64::from(p.in_flight) + 1 >= slots {
                let why =
                    format!("with {slots} stages and {} groups in flight no stage is free to load ahead", p.in_flight);
                return Err(refuse(why).help(format!("stages={}, or fewer groups in flight", p.in_flight + 2)));
            }
            // `order` waits for the groups accordingly.
            l.pipeline = Some(p);
        }
        let mut ring = Ring {
            extent,
            slots,
            ahead: (slots - 1 - i64::from(p.in_flight)).max(0),
            first: number.clone() * extent,
            fill: None,
            full: 0,
            stages: Vec::new(),
            compute: Vec::new(),
            l,
        };
        for stmt in body {
            ring.add(stmt, func);
        }
        ring.allot(func);
        Ok(ring)
    }

    /// Takes in a statement of the loop.
    fn add(&mut self, mut stmt: Stmt, func: &Func) {
        if is_copy(&stmt) {
            bulk::each_copy(&mut stmt, &mut |copy| {
                if self.stages.iter().all(|(b, _)| *b != copy.shared) {
                    self.stages.push((copy.shared, slot_of(func, copy.shared)));
                }
            });
        }
        match (stmt, &mut self.fill) {
            (Stmt::Elect(e), fill) if bulk::is_load(&Stmt::Elect(e.clone())) => match fill {
                Some(fill) if fill.warps == e.warps => fill.body.extend(e.body),
                Some(_) => self.compute.push(Stmt::Elect(e)),
                None => *fill = Some(e),
            },
            (other, _) => self.compute.push(other),
        }
    }

    /// Gives the stages and the mbarriers their slots.
    fn allot(&mut self, func: &mut Func) {
        for (stage, size) in &self.stages {
            func.buffer_mut(*stage).shape = vec![Index::Int(size * self.slots)];
        }
        let Some(fill) = &mut self.fill else { return };
        let mut first = None;
        for stmt in &mut fill.body {
            bulk::each_copy(stmt, &mut |copy| {
                if let Way::Load { full, .. } = &mut copy.way {
                    full.barrier = *first.get_or_insert(full.barrier);
                }
            });
        }
        self.full = first.unwrap_or(0);
        if let Some(array) = func.mbarriers.get_mut(self.full as usize) {
            array.slots = self.slots as u32;
        }
    }

    /// The statements that stand for the loop.
    fn statements(mut self, func: &mut Func, env: &Env) -> Result<Vec<Stmt>> {
        let mut out = Vec::new();
        let mut inner = env.clone();
        inner.bind(self.l.var, 0, self.extent - 1);
        let compute = std::mem::take(&mut self.compute);
        if self.fill.is_none() && self.extent <= WRITTEN_OUT {
            // Slots by their numbers: `order` then sees how many stores lie between a slot's two uses.
            let all = (0..self.extent).flat_map(|k| compute.iter().map(move |s| (k, s)));
            return Ok(all.map(|(k, s)| self.at(s.clone(), &Index::Int(k), env)).collect());
        }
        let mut body = Vec::new();
        if self.fill.is_some() {
            out.extend(self.prologue(func, env));
            let later = Index::Var(self.l.var) + self.ahead;
            let more = simplify::simplify_cond(&Cond::lt(later.clone(), self.extent), &inner);
            if more != Cond::Const(false) {
                body.extend(guarded(more, self.fill_at(&later, &inner)));
            }
        }
        let k = Index::Var(self.l.var);
        let mut wait = self.fill.is_some().then(|| self.wait(&k, &inner, func));
        for stmt in compute {
            if wait.is_some() && touches(&stmt, &self.stages) {
                body.extend(wait.take());
            }
            body.push(self.at(stmt, &k, &inner));
        }
        body.extend(wait);
        self.l.body = body;
        out.push(Stmt::For(self.l));
        Ok(out)
    }

    /// The loads of the first tiles.
    fn prologue(&self, func: &mut Func, env: &Env) -> Vec<Stmt> {
        let count = self.ahead.min(self.extent);
        if count <= 1 {
            return (0..count).flat_map(|k| self.fill_at(&Index::Int(k), env)).collect();
        }
        let var = func.add_var(format!("{}_first", func.var_name(self.l.var)));
        let mut inner = env.clone();
        inner.bind(var, 0, count - 1);
        vec![Stmt::For(For::new(var, count, LoopKind::Serial, self.fill_at(&Index::Var(var), &inner)))]
    }

    fn fill_at(&self, k: &Index, env: &Env) -> Vec<Stmt> {
        self.fill.iter().map(|fill| self.at(Stmt::Elect(fill.clone()), k, env)).collect()
    }

    fn slot(&self, k: &Index, env: &Env) -> Index {
        simplify::simplify(&(self.first.clone() + k.clone()).floormod(self.slots), env)
    }

    /// Waits for the loads of iteration k.
    fn wait(&self, k: &Index, env: &Env, func: &Func) -> Stmt {
        let phase = (self.first.clone() + k.clone()).floordiv(self.slots);
        let slot = Slot { barrier: self.full, index: self.slot(k, env) };
        let loaded = self.fill.iter().flat_map(|f| visit::writes(&f.body));
        let names: Vec<&str> = loaded.map(|b| func.buffer(b).name.as_str()).collect();
        let phase = simplify::simplify(&phase, env);
        Stmt::Sync(Sync {
            kind: SyncKind::Await { slot, phase },
            reason: format!("RAW {}: the loads of the stage are complete", names.join(", ")),
        })
    }

    /// A statement of iteration k with its stages in their slot.
    fn at(&self, stmt: Stmt, k: &Index, env: &Env) -> Stmt {
        let slot = self.slot(k, env);
        let offset = |b: BufferId| self.stages.iter().find(|(s, _)| *s == b).map(|(_, size)| slot.clone() * *size);
        let moved = |i: &Index, offset: Index| simplify::simplify(&(i.clone() + offset), env);
        let map: visit::Map = [(self.l.var, k.clone())].into();
        let mut stmt =
            visit::map_stmt(stmt, &mut |i| simplify::simplify(&visit::subst_index(i, &map), env), &mut |mut e| {
                if let Expr::Load { buffer, indices, .. } = &mut e
                    && let Some(o) = offset(*buffer)
                {
                    indices[0] = moved(&indices[0], o);
                }
                e
            });
        visit::each_store(std::slice::from_mut(&mut stmt), &mut |s| {
            if let Some(o) = offset(s.buffer) {
                s.indices[0] = moved(&s.indices[0], o);
            }
        });
        visit::each_operand(&mut stmt, &mut |operand| {
            if let Some(o) = offset(operand.buffer) {
                operand.indices[0] = moved(&operand.indices[0], o);
            }
        });
        bulk::each_copy(&mut stmt, &mut |copy| {
            if let Some(o) = offset(copy.shared) {
                copy.indices[0] = moved(&copy.indices[0], o);
            }
            if let Way::Load { full, .. } = &mut copy.way
                && full.barrier == self.full
                && self.fill.is_some()
            {
                full.index = slot.clone();
            }
        });
        stmt
    }
}

/// Elements of a slot: whole units of the stage's alignment.
pub fn slot_of(func: &Func, stage: BufferId) -> i64 {
    let b = func.buffer(stage);
    let unit = (i64::from(b.align) * 8 / i64::from(b.dtype.bits())).max(1);
    let elements = b.elements().unwrap_or(0);
    elements.div_euclid(unit) * unit + if elements % unit == 0 { 0 } else { unit }
}

/// Whether a statement touches a stage that was loaded.
fn touches(stmt: &Stmt, stages: &[(BufferId, i64)]) -> bool {
    let body = std::slice::from_ref(stmt);
    let all: Vec<BufferId> = visit::reads(body).into_iter().chain(visit::writes(body)).collect();
    stages.iter().any(|(s, _)| all.contains(s))
}
