//! `pipeline L stages=N`: copies run ahead of the compute by N - 1 iterations.
//!
//! Every stage directly under L has N slots. The first N - 1 tiles are copied before the loop. An iteration starts the
//! copy of the tile that is needed N - 1 iterations later into the slot that has just become free, and computes from its
//! own slot.
//!
//! A stage in shared memory is filled from device memory. An ordinary copy is taken apart: the tile is loaded into
//! registers before the compute and stored after it. An asynchronous copy stays whole, before the compute, and lands when
//! `order` waits for it. The loop is written out N times, so that each copy of the body names its slots by constants and
//! `order` sees exactly which accesses meet: one barrier an iteration is left, and one wait, for the tile of that
//! iteration.
//!
//! Stages that are copied in bulk, or by a role, stand in rings whose slots are computed (`bulk`, and the pass `roles`).
//!
//! A stage in registers is filled from shared memory, and its loop is written out whole, because registers have no
//! index. Such a loop inside a loop of the first kind runs on from tile to tile: its last iterations load what the first
//! ones of the next tile compute with, so that no iteration begins by waiting for shared memory. In a ring of mbarriers it
//! crosses from slot to slot in the same way (`cross`). With one slot registers are loaded anew in place, each behind its last
//! use (`refill`).
//!
//! If accumulators and fragments take more than half of a thread's registers, the main loop also runs the last iterations, with
//! predicated copies: ptxas spills such kernels if the last iterations are unrolled after the main loop.

mod copy;
mod prefetch;
mod refill;
pub mod ring;
pub mod roles;
mod tma;
mod unrolled;

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::simplify::Env;
use crate::ir::{BufferId, Func, Stmt, visit};
use crate::lower::map::guards;
use crate::target::Target;
use ring::is_ring;
use unrolled::Unrolled;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, target: &Target) -> Result<()> {
    let env = kernel.env();
    let body = std::mem::take(&mut kernel.func.body);
    let written = visit::writes(&body);
    let body = tma::rings(body, &mut kernel.func, &written, &env)?;
    kernel.func.body = list(body, &mut kernel.func, &written, &env)?;
    // Conditions on the loop's variable are known in most copies of the body.
    guards::run(kernel, target)?;
    // Where a copy lies beyond an edge as a whole nothing is left to read: its zeros are stored at once.
    visit::each_store(&mut kernel.func.body, &mut |s| s.asynchronous &= s.source().is_some());
    Ok(())
}

/// The stage that a statement only fills, and that a pipeline would give slots.
pub fn stage_of(stmt: &Stmt, func: &Func, written: &[BufferId]) -> Option<BufferId> {
    copy::filled(stmt, func, written).map(|f| f.buffer).filter(|b| !func.buffer(*b).exchange)
}

fn list(body: Vec<Stmt>, func: &mut Func, written: &[BufferId], env: &Env) -> Result<Vec<Stmt>> {
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body {
        if let Stmt::For(l) = stmt {
            match prefetch::crossed(l, func, written, env)? {
                Ok(crossed) => {
                    out.extend(crossed);
                    continue;
                }
                Err(l) => stmt = Stmt::For(l),
            }
        }
        match stmt {
            Stmt::For(l) if l.pipeline.is_some() && !is_ring(&l) => {
                let mut inner = env.clone();
                inner.bind_loop(l.var, &l.extent);
                out.extend(Unrolled::new(l, func, written, &inner)?.written_out(func, env));
                continue;
            }
            _ => {}
        }
        let mut inner = env.clone();
        if let Stmt::For(l) = &stmt {
            inner.bind_loop(l.var, &l.extent);
        }
        for child in visit::children_mut(&mut stmt) {
            *child = list(std::mem::take(child), func, written, &inner)?;
        }
        out.push(stmt);
    }
    Ok(out)
}
