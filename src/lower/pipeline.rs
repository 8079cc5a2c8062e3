//! `pipeline L stages=N`: copies run ahead of the compute by N - 1 iterations.
//!
//! Every stage directly under L has N slots in shared memory. The first N - 1 tiles are copied before the loop. An
//! iteration starts the copy of the tile that is needed N - 1 iterations later into the slot that has just become free,
//! and computes from its own slot. An ordinary copy is taken apart: the tile is loaded into registers before the compute
//! and stored after it. An asynchronous copy stays whole, before the compute, and lands when `order` waits for it.
//!
//! The loop is written out N times, so that each copy of the body names its slots by constants and `order` sees exactly
//! which accesses meet: one barrier an iteration is left, and one wait, for the tile of that iteration.

use super::LoweredKernel;
use super::blocks::guarded;
use crate::error::{Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{Buffer, BufferId, Cond, Expr, For, Func, Index, LoopKind, Scope, Stmt, Var, visit};
use crate::target::Target;

/// Slots begin at a multiple of this many elements, so that vectors stay aligned.
const SLOT: i64 = 32;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let env = kernel.env();
    let body = std::mem::take(&mut kernel.func.body);
    let written = visit::writes(&body);
    kernel.func.body = list(body, &mut kernel.func, &written, &env)?;
    Ok(())
}

fn list(body: Vec<Stmt>, func: &mut Func, written: &[BufferId], env: &Env) -> Result<Vec<Stmt>> {
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body {
        let mut inner = env.clone();
        if let Stmt::For(l) = &stmt {
            inner.bind_loop(l.var, &l.extent);
        }
        for child in visit::children_mut(&mut stmt) {
            *child = list(std::mem::take(child), func, written, &inner)?;
        }
        match stmt {
            Stmt::For(l) if l.pipeline.is_some() => out.extend(Ring::new(l, func, written)?.written_out(func, env)),
            other => out.push(other),
        }
    }
    Ok(out)
}

/// A pipelined loop taken apart.
struct Ring {
    var: Var,
    extent: i64,
    slots: i64,
    /// Iterations that loads are ahead.
    ahead: i64,
    copies: Vec<Copy>,
    compute: Vec<Stmt>,
}

/// A stage: the copy as it stood, and for an ordinary one its two halves, into registers and out of them.
struct Copy {
    whole: Stmt,
    halves: Option<(Stmt, Stmt)>,
    stage: BufferId,
    /// Elements of a slot.
    size: i64,
}

impl Ring {
    fn new(l: For, func: &mut Func, written: &[BufferId]) -> Result<Ring> {
        let name = func.var_name(l.var).to_string();
        let refuse = |why: String| {
            Error::chip("lower.pipeline", format!("pipeline {name}: {why}"))
                .help("stages that are copied from device memory, first thing in the loop, can be pipelined")
        };
        let (Some(p), Some(extent)) = (l.pipeline, l.extent.as_int()) else {
            return Err(refuse("the loop has no constant extent".into()));
        };
        if p.in_flight != 0 {
            let why = "in_flight counts batches of asynchronous instructions that compute, and these compute at once";
            return Err(refuse(why.into()));
        }
        let slots = i64::from(p.stages.max(2));
        let mut ring = Ring { var: l.var, extent, slots, ahead: slots - 1, copies: Vec::new(), compute: Vec::new() };
        for stmt in l.body {
            match copied(&stmt, func, written) {
                Some(moved) if ring.compute.is_empty() => ring.copies.push(ring.apart(stmt, moved, func)),
                _ => ring.compute.push(stmt),
            }
        }
        if ring.copies.is_empty() {
            return Err(refuse("no stage stands directly under it that is copied from device memory".into()));
        }
        if let Some(b) = visit::writes(&ring.compute).into_iter().find(|b| func.buffer(*b).scope == Scope::Shared) {
            let b = &func.buffer(b).name;
            return Err(refuse(format!(
                "{b} is a stage under it that is not a copy from device memory, or not the first"
            )));
        }
        for copy in &ring.copies {
            let stage = func.buffer_mut(copy.stage);
            stage.shape = vec![Index::Int(copy.size * slots)];
        }
        Ok(ring)
    }

    fn apart(&self, whole: Stmt, (stage, elements): (BufferId, i64), func: &mut Func) -> Copy {
        let size = (func.buffer(stage).elements().unwrap_or(0) + SLOT - 1) / SLOT * SLOT;
        if asynchronous(&whole) {
            return Copy { whole, halves: None, stage, size };
        }
        let (name, dtype) = (func.buffer(stage).name.clone(), func.buffer(stage).dtype);
        let next = func.unused_buffer_name(&format!("{name}_next"));
        let next = func.add_buffer(Buffer::new(next, dtype, vec![Index::Int(elements)], Scope::Local));
        let (mut load, mut store) = (whole.clone(), whole.clone());
        through(&mut load, next, &mut Vec::new(), true);
        through(&mut store, next, &mut Vec::new(), false);
        Copy { whole, halves: Some((load, store)), stage, size }
    }

    fn written_out(self, func: &mut Func, env: &Env) -> Vec<Stmt> {
        let mut out = Vec::new();
        for k in 0..self.ahead.min(self.extent) {
            out.extend(self.copies.iter().map(|c| self.at(c.whole.clone(), &Index::Int(k), k % self.slots, env)));
        }
        let rounds = self.extent / self.slots;
        if rounds > 0 {
            let round = func.add_var(format!("{}_round", func.var_name(self.var)));
            let mut inner = env.clone();
            inner.bind(round, 0, rounds - 1);
            let iterations =
                (0..self.slots).flat_map(|u| self.iteration(&(round * self.slots + u), u, &inner)).collect();
            if rounds == 1 {
                out.extend(visit::subst_body(iterations, &[(round, Index::Int(0))].into()));
            } else {
                out.push(Stmt::For(For::new(round, rounds, LoopKind::Serial, iterations)));
            }
        }
        for k in rounds * self.slots..self.extent {
            out.extend(self.iteration(&Index::Int(k), k % self.slots, env));
        }
        out
    }

    /// Iteration k, which computes from `slot`: what starts copies, compute, what ends them.
    fn iteration(&self, k: &Index, slot: i64, env: &Env) -> Vec<Stmt> {
        let later = simplify::simplify(&(k.clone() + self.ahead), env);
        let more = simplify::simplify_cond(&Cond::lt(later.clone(), self.extent), env);
        let free = (slot + self.ahead) % self.slots;
        let each = |pick: fn(&Copy) -> Option<&Stmt>| -> Vec<Stmt> {
            if more == Cond::Const(false) {
                return Vec::new();
            }
            let all = self.copies.iter().filter_map(pick).map(|s| self.at(s.clone(), &later, free, env));
            Some(all.collect::<Vec<_>>())
                .filter(|all| !all.is_empty())
                .map_or(Vec::new(), |all| guarded(more.clone(), all))
        };
        let mut out = each(|c| Some(c.halves.as_ref().map_or(&c.whole, |(load, _)| load)));
        out.extend(self.compute.iter().map(|s| self.at(s.clone(), k, slot, env)));
        out.extend(each(|c| c.halves.as_ref().map(|(_, store)| store)));
        out
    }

    /// A statement of iteration k with its stages in a slot.
    fn at(&self, stmt: Stmt, k: &Index, slot: i64, env: &Env) -> Stmt {
        let offset = |b: BufferId| self.copies.iter().find(|c| c.stage == b).map(|c| c.size * slot);
        let map = [(self.var, k.clone())].into();
        let mut moved =
            visit::map_stmt(stmt, &mut |i| simplify::simplify(&visit::subst_index(i, &map), env), &mut |mut e| {
                if let Expr::Load { buffer, indices, .. } = &mut e
                    && let Some(o) = offset(*buffer)
                {
                    indices[0] = indices[0].clone() + o;
                }
                e
            });
        visit::each_store(std::slice::from_mut(&mut moved), &mut |s| {
            if let Some(o) = offset(s.buffer) {
                s.indices[0] = s.indices[0].clone() + o;
            }
        });
        moved
    }
}

/// Whether a copy lands later.
fn asynchronous(copy: &Stmt) -> bool {
    let mut found = false;
    visit::walk(std::slice::from_ref(copy), &mut |s| found |= matches!(s, Stmt::Store(s) if s.asynchronous));
    found
}

/// The stage that a statement fills and the elements each thread moves, if it only copies from device memory that the
/// kernel never writes.
fn copied(stmt: &Stmt, func: &Func, written: &[BufferId]) -> Option<(BufferId, i64)> {
    let only = |body: &[Stmt]| match body {
        [one] => copied(one, func, written),
        _ => None,
    };
    match stmt {
        Stmt::For(l) => {
            let (stage, elements) = only(&l.body)?;
            Some((stage, elements.checked_mul(l.extent.as_int()?)?))
        }
        Stmt::Block(b) => only(&b.body),
        Stmt::If(i) => only(&i.body),
        Stmt::Store(s) => {
            let mut from_memory = true;
            visit::walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, .. } = e {
                    from_memory &= func.buffer(*buffer).scope == Scope::Global && !written.contains(buffer);
                }
            });
            let shared = func.buffer(s.buffer).scope == Scope::Shared;
            (shared && from_memory).then_some((s.buffer, i64::from(s.lanes)))
        }
        Stmt::Sync(_) => None,
    }
}

/// Makes a copy one into registers (`load`) or out of them.
fn through(stmt: &mut Stmt, registers: BufferId, around: &mut Vec<(Var, i64)>, load: bool) {
    match stmt {
        Stmt::For(l) => {
            l.kind = LoopKind::Unrolled;
            around.push((l.var, l.extent.as_int().unwrap_or(1)));
            l.body.iter_mut().for_each(|s| through(s, registers, around, load));
            around.pop();
        }
        Stmt::Block(b) => b.body.iter_mut().for_each(|s| through(s, registers, around, load)),
        Stmt::If(i) => i.body.iter_mut().for_each(|s| through(s, registers, around, load)),
        Stmt::Store(s) => {
            let number = around.iter().fold(Index::Int(0), |n, (var, extent)| n * *extent + *var);
            let index = vec![number * i64::from(s.lanes)];
            if load {
                s.buffer = registers;
                s.indices = index;
            } else {
                s.value = Expr::Load { buffer: registers, indices: index, lanes: s.lanes };
            }
        }
        Stmt::Sync(_) => {}
    }
}
