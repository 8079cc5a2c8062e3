//! Software pipelining: `pipeline L stages=N` starts the copies of an iteration N - 1 iterations ahead of its compute.
//!
//! Every staged buffer directly under L becomes a ring of N stages. The first N - 1 tiles are copied before the loop. An iteration
//! starts the copy of the tile that is needed N - 1 iterations later into the stage that has just been released, and computes
//! from its own stage. A [`ring::Ring`] describes the stages. Four forms:
//!
//! - *Shared memory, filled by threads or cp.async* (`unrolled`). A copy by threads is split: the tile is loaded into registers before
//!   the compute and stored after it. A cp.async copy stays whole, before the compute; `order` adds the wait. The loop is unrolled by N,
//!   so each copy of the body names its stages by constants and `order` sees exactly which accesses conflict: one barrier and
//!   one wait an iteration remain.
//! - *Shared memory, filled by TMA* (`tma`), or by a producer role (the pass `roles`). The ring has mbarriers. Registers
//!   that the consumers fill from a stage at the loop itself have no stages: each iteration loads them after its wait. Those that the
//!   consumers of a role's stages fill from device memory are loaded an iteration ahead.
//! - *Registers, filled from shared memory* (`unrolled`). The loop is unrolled whole, because registers have no index. Inside a loop of
//!   the first form it continues from tile to tile: its last iterations load the first fragments of the next tile, so no iteration
//!   begins with a wait for shared memory. Inside a ring with mbarriers, `prefetch` does the same.
//! - *One set of registers* (`stages=1`, `refill`): each register is reloaded in place after its last use.
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
use crate::lower::data::vectors;
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
    vectors::unmark(kernel);
    Ok(())
}

/// The staged buffer that a statement only fills, and that a pipeline would make a ring.
pub fn stage_of(stmt: &Stmt, func: &Func, written: &[BufferId]) -> Option<BufferId> {
    copy::filled(stmt, func, written).map(|f| f.buffer).filter(|b| !func.buffer(*b).exchange)
}

fn list(body: Vec<Stmt>, func: &mut Func, written: &[BufferId], env: &Env) -> Result<Vec<Stmt>> {
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body {
        if let Stmt::For(l) = stmt {
            match prefetch::prefetched(l, func, written, env)? {
                Ok(prefetched) => {
                    out.extend(prefetched);
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
