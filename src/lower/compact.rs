//! Shrinks buffers within the block to the region in use at a time.
//!
//! A buffer is in use inside the innermost body that holds all its accesses. The loops around that body are at one
//! iteration at a time, so their variables stay symbolic in the region's minimum, which is taken off every index.
//! A shared buffer belongs to the block: its region is taken over all threads. A fragment belongs to the warp, a local
//! buffer to the thread, whose number stays symbolic. Global buffers keep their shape.

use super::{LoweredKernel, bug};
use crate::error::Result;
use crate::ir::region::{self, Region, Touch};
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Cond, Expr, For, Func, Index, LoopKind, Scope, Stmt, Var, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    for id in (0..kernel.func.buffers.len() as u32).map(BufferId) {
        let scope = kernel.func.buffer(id).scope;
        if scope != Scope::Global {
            let threads = if scope == Scope::Shared { kernel.thread_vars() } else { Vec::new() };
            if let Some(region) = in_use(kernel, id, &threads) {
                shrink(&mut kernel.func, id, &region)?;
            }
        }
    }
    Ok(())
}

/// The region of the buffer that is in use at a time; `None` if it is not used or its size is not constant.
fn in_use(kernel: &LoweredKernel, id: BufferId, threads: &[(Var, i64)]) -> Option<Region> {
    let mut env = kernel.env();
    let body = innermost(&kernel.func, &kernel.func.body, id, threads, &mut env)?;
    let region = region_of(&kernel.func, body, id, Touch::Both, threads, &env)?;
    region.iter().all(|r| r.extent.as_int().is_some()).then_some(region)
}

fn region_of(
    func: &Func,
    body: &[Stmt],
    id: BufferId,
    touch: Touch,
    threads: &[(Var, i64)],
    env: &Env,
) -> Option<Region> {
    // The threads are ranged over by loops around the body, so that conditions on them tighten the region.
    let around =
        threads.iter().fold(body.to_vec(), |b, &(var, n)| vec![Stmt::For(For::new(var, n, LoopKind::Serial, b))]);
    region::touched(func, &around, id, touch, env)
}

/// The innermost body that holds all accesses, with the loops around it added to `env`.
fn innermost<'a>(
    func: &Func,
    body: &'a [Stmt],
    id: BufferId,
    threads: &[(Var, i64)],
    env: &mut Env,
) -> Option<&'a [Stmt]> {
    let mut users = body.iter().filter(|s| uses(s, id));
    let (first, second) = (users.next()?, users.next());
    if second.is_some() {
        return Some(body);
    }
    match first {
        Stmt::For(l) => {
            let mut inner = env.clone();
            inner.bind(l.var, 0, l.extent.as_int()? - 1);
            if carried(func, l, id, threads, &inner) {
                return Some(body);
            }
            *env = inner;
            innermost(func, &l.body, id, threads, env)
        }
        Stmt::Block(b) => innermost(func, &b.body, id, threads, env),
        Stmt::If(i) => innermost(func, &i.body, id, threads, env),
        Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) => Some(body),
    }
}

/// Whether an iteration may read what an earlier one wrote at a place that moves with the loop.
fn carried(func: &Func, l: &For, id: BufferId, threads: &[(Var, i64)], env: &Env) -> bool {
    let Some(reads) = region_of(func, &l.body, id, Touch::Reads, threads, env) else { return false };
    let Some(writes) = region_of(func, &l.body, id, Touch::Writes, threads, env) else { return false };
    let moves = |r: &Region| r.iter().any(|d| d.min.mentions(l.var) || d.extent.mentions(l.var));
    if !moves(&reads) && !moves(&writes) {
        return false;
    }
    !reads.iter().zip(&writes).all(|(r, w)| {
        simplify::prove(&Cond::ge(r.min.clone(), w.min.clone()), env)
            && simplify::prove(&Cond::ge(w.min.clone() + w.extent.clone(), r.min.clone() + r.extent.clone()), env)
    })
}

fn uses(stmt: &Stmt, id: BufferId) -> bool {
    let body = std::slice::from_ref(stmt);
    visit::reads(body).contains(&id) || visit::writes(body).contains(&id)
}

/// Gives the buffer the region's shape and takes the region's minimum off its indices.
fn shrink(func: &mut Func, id: BufferId, region: &Region) -> Result<()> {
    let buffer = func.buffer(id);
    if region.len() != buffer.shape.len() {
        return Err(bug("compact", format!("the region of {} has {} dimensions", buffer.name, region.len())));
    }
    func.buffer_mut(id).shape = region.iter().map(|r| r.extent.clone()).collect();
    let off = |indices: &mut Vec<Index>| {
        for (i, r) in indices.iter_mut().zip(region) {
            *i = std::mem::replace(i, Index::Int(0)) - r.min.clone();
        }
    };
    let body = visit::map_body(std::mem::take(&mut func.body), &mut Index::clone, &mut |mut e| {
        if let Expr::Load { buffer, indices, .. } = &mut e
            && *buffer == id
        {
            off(indices);
        }
        e
    });
    func.body = visit::rewrite(body, &mut |mut s| {
        if let Stmt::Store(store) = &mut s
            && store.buffer == id
        {
            off(&mut store.indices);
        }
        vec![s]
    });
    Ok(())
}
