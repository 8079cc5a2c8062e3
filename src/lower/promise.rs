//! What each pass promises of the kernel after it, as far as a program can check it.
//!
//! Debug builds check the promise of a pass after it. The unit tests check those of all earlier passes, too, which later passes
//! keep. The verifier of Lowered ([`verify`]) is the promise of the pass `order`.

use super::pipeline::ring::is_ring;
use super::{PASSES, Pass, data, finalize};
use crate::error::{Code, Error, Result};
use crate::ir::lowered::size::Size;
use crate::ir::lowered::{CP_ASYNC_BITS, LoweredKernel, verify};
use crate::ir::lowered::{permute, realign};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    Block, BufferId, Cond, CopyKind, For, Func, Index, IndexOp, IterKind, LoopKind, Scope, Stmt, Var, visit,
};
use crate::target::Target;

/// Whether a promise is kept; if not, what breaks it.
pub type Kept = std::result::Result<(), String>;

/// The pass whose promise later passes need not keep: they add conditions of their own.
const MOMENTARY: &str = "guards";

/// Checks, after the pass of that number, its promise in debug builds, and in unit tests those of all passes so far.
pub fn check(kernel: &LoweredKernel, number: usize) -> Result<()> {
    if cfg!(test) {
        return all(kernel, number + 1);
    }
    if cfg!(debug_assertions) { PASSES.get(number).map_or(Ok(()), |pass| keeps(pass, kernel)) } else { Ok(()) }
}

/// Checks the promises of the first `passes` passes.
fn all(kernel: &LoweredKernel, passes: usize) -> Result<()> {
    let kept = |(n, pass): &(usize, &Pass)| pass.name != MOMENTARY || n + 1 == passes;
    PASSES.iter().enumerate().take(passes).filter(kept).try_for_each(|(_, pass)| keeps(pass, kernel))
}

fn keeps(pass: &Pass, kernel: &LoweredKernel) -> Result<()> {
    (pass.holds)(kernel)
        .map_err(|why| Error::bug(Code::LowerPromise, format!("{why}; {} promises: {}", pass.name, pass.promise)))
}

pub fn verified(kernel: &LoweredKernel) -> Kept {
    verify(kernel).map_err(|e| e.message().to_string())
}

/// The pass has nothing more to do.
pub fn narrow(kernel: &LoweredKernel) -> Kept {
    match data::narrow::kept(kernel.func.body.clone(), &kernel.func) == kernel.func.body {
        true => Ok(()),
        false => Err("narrow elements are converted once for readers on both sides of a barrier".to_string()),
    }
}

/// That no loop of the kernel is such; `what` says it of one that is.
fn no_loop(kernel: &LoweredKernel, is: impl Fn(&For) -> bool, what: &str) -> Kept {
    let found = visit::loops(&kernel.func.body).into_iter().find(|l| is(l));
    found.map_or(Ok(()), |l| Err(format!("loop {} {what}", kernel.func.var_name(l.var))))
}

pub fn permuted(kernel: &LoweredKernel) -> Kept {
    let held = permute::held(&kernel.func.body);
    let first = visit::loops(&kernel.func.body).into_iter().map(|l| (l.var, Index::Int(0))).collect();
    let none = |l: &For| l.code.permutes && permute::copied(&kernel.func, &held, l, &first).is_none();
    no_loop(kernel, none, "permutes no bytes")
}

pub fn unrolled(kernel: &LoweredKernel) -> Kept {
    let open = |l: &For| l.code.copies.is_none() && !matches!(l.kind, LoopKind::Persistent { .. });
    no_loop(kernel, open, "is neither written out nor left")
}

/// The pass has nothing more to do.
pub fn conditions_outside(kernel: &LoweredKernel) -> Kept {
    match finalize::conditions::outside(kernel.func.body.clone(), &kernel.func) == kernel.func.body {
        true => Ok(()),
        false => Err("a loop asks one condition in each iteration".to_string()),
    }
}

/// The direction of a loop is known where the loop is written out.
pub fn directed(kernel: &LoweredKernel) -> Kept {
    let known =
        visit::loops(&kernel.func.body).into_iter().filter(|l| matches!(l.kind, LoopKind::Unrolled | LoopKind::Serial));
    let known: Vec<Var> = known.map(|l| l.var).collect();
    let unknown = |l: &For| {
        let mut found = false;
        if let Some(index) = &l.code.backwards {
            index.for_each_var(&mut |v| found |= v == l.var || !known.contains(&v));
        }
        found || (l.code.backwards.is_some() && !l.is_written_out())
    };
    no_loop(kernel, unknown, "has a direction that no loop around it determines")
}

pub fn counted(kernel: &LoweredKernel) -> Kept {
    let remainder = |l: &For, counter: &Index| match counter {
        Index::Bin(IndexOp::FloorMod, sum, modulus) => sum.mentions(l.var) && modulus.as_int().is_some_and(|n| n > 2),
        _ => false,
    };
    no_loop(kernel, |l| !l.code.counters.iter().all(|c| remainder(l, c)), "counts what is no remainder")
}

pub fn split(kernel: &LoweredKernel) -> Kept {
    nothing_to_do(kernel, finalize::descriptors::run, "a constant is added outside the inline PTX of wgmma")
}

pub fn used_columns(kernel: &LoweredKernel) -> Kept {
    nothing_to_do(kernel, finalize::columns::run, "an MMA computes columns of which no rows of operand B are loaded")
}

pub fn launched(kernel: &LoweredKernel) -> Kept {
    nothing_to_do(kernel, finalize::launch::run, "the launch is not complete")
}

/// The pass has nothing more to do.
fn nothing_to_do(
    kernel: &LoweredKernel,
    run: impl Fn(&mut LoweredKernel, &Target) -> Result<()>,
    otherwise: &str,
) -> Kept {
    let mut again = kernel.clone();
    // None of these passes looks at the chip.
    run(&mut again, &Target::sm_80()).map_err(|e| e.message().to_string())?;
    if again == *kernel { Ok(()) } else { Err(otherwise.to_string()) }
}

pub fn fits(kernel: &LoweredKernel) -> Kept {
    match Size::of(kernel) {
        Some(size) if size.fits() => Ok(()),
        size => Err(format!("the kernel is too large: {size:?}")),
    }
}

/// The first of some faults.
fn none(faults: Vec<String>) -> Kept {
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// The buffers that the body accesses.
fn used(func: &Func) -> Vec<BufferId> {
    visit::reads(&func.body).into_iter().chain(visit::writes(&func.body)).collect()
}

pub fn no_reduction_over_threads(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    let bound = |l: &&For| matches!(l.kind, LoopKind::Bound { .. });
    let vars: Vec<Var> =
        visit::loops(&func.body).into_iter().filter(bound).flat_map(|l| l.defines()).map(|(v, _)| v).collect();
    let over = |block: &Block| {
        let reduced = block.iters.iter().filter(|it| it.kind == IterKind::Reduce);
        reduced.into_iter().any(|it| vars.iter().any(|v| it.binding.mentions(*v)))
    };
    let found = visit::blocks(&func.body).into_iter().find(|b| over(b));
    found.map_or(Ok(()), |b| Err(format!("block {} reduces over a bound loop", func.block_name(b.name))))
}

pub fn labels(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    let more = |b: &&Block| !b.iters.is_empty() || b.init.is_some() || b.predicate != Cond::TRUE;
    let found = visit::blocks(&func.body).into_iter().find(more);
    found.map_or(Ok(()), |b| Err(format!("block {} is more than a label", func.block_name(b.name))))
}

/// A ping-pong loop stays bound until the pass `roles`.
pub fn no_bound_loop(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    let found =
        visit::loops(&func.body).into_iter().find(|l| matches!(l.kind, LoopKind::Bound { .. }) && !l.is_pingpong());
    found.map_or(Ok(()), |l| Err(format!("loop {} is bound", func.var_name(l.var))))
}

pub fn constant_sizes(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    let within =
        |b: &BufferId| func.buffer(*b).scope != Scope::Global && func.buffer(*b).elements().is_none_or(|n| n < 1);
    let found = used(func).into_iter().find(within);
    found.map_or(Ok(()), |b| Err(format!("{} has no constant size", func.buffer(b).name)))
}

pub fn boxes(kernel: &LoweredKernel) -> Kept {
    let (func, mut faults) = (&kernel.func, Vec::new());
    visit::walk(&func.body, &mut |s| match s {
        Stmt::Block(b) if b.copy_with.as_ref().is_some_and(|c| c.kind == CopyKind::Tma) => {
            visit::walk(&b.body, &mut |s| {
                if matches!(s, Stmt::Store(_)) {
                    faults.push(format!("threads store in block {}", func.block_name(b.name)));
                }
            });
        }
        Stmt::Bulk(copy) if kernel.maps.get(copy.map as usize).is_none_or(|m| m.buffer != copy.global) => {
            faults.push(format!("the copy of {} has no tensor map", func.buffer(copy.shared).name));
        }
        _ => {}
    });
    none(faults)
}

pub fn no_fragment(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    if let Some(l) = visit::loops(&func.body).into_iter().find(|l| l.tensorize.is_some()) {
        return Err(format!("loop {} is still tensorized", func.var_name(l.var)));
    }
    let found = used(func).into_iter().find(|b| func.buffer(*b).scope == Scope::Fragment);
    found.map_or(Ok(()), |b| Err(format!("{} is still a fragment", func.buffer(b).name)))
}

pub fn no_cluster_buffer(kernel: &LoweredKernel) -> Kept {
    let found = used(&kernel.func).into_iter().find(|b| kernel.func.buffer(*b).scope == Scope::Cluster);
    found.map_or(Ok(()), |b| Err(format!("{} still belongs to a cluster", kernel.func.buffer(b).name)))
}

pub fn flat(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    if let Some(b) = used(func).into_iter().find(|b| func.buffer(*b).shape.len() != 1) {
        return Err(format!("{} has {} dimensions", func.buffer(b).name, func.buffer(b).shape.len()));
    }
    let mut faults = Vec::new();
    visit::each_access(&func.body, &mut |b, indices| {
        if indices.len() != 1 {
            faults.push(format!("{} is accessed by {} indices", func.buffer(b).name, indices.len()));
        }
    });
    none(faults)
}

pub fn needed_conditions(kernel: &LoweredKernel) -> Kept {
    needed(&kernel.func.body, &kernel.env())
}

fn needed(body: &[Stmt], env: &Env) -> Kept {
    body.iter().try_for_each(|stmt| match stmt {
        Stmt::For(l) => {
            let mut inner = env.clone();
            inner.bind_loop(l.var, &l.extent);
            needed(&l.body, &inner)
        }
        Stmt::If(i) if simplify::simplify_cond(&i.cond, env) == Cond::TRUE => {
            Err(format!("a condition always holds: {:?}", i.cond))
        }
        Stmt::If(i) => {
            let mut inner = env.clone();
            inner.assume(&i.cond);
            needed(&i.body, &inner)
        }
        other => visit::children(other).into_iter().try_for_each(|child| needed(child, env)),
    })
}

pub fn no_vector_loop(kernel: &LoweredKernel) -> Kept {
    no_loop(kernel, |l| l.kind == LoopKind::Vectorized, "is vectorized")?;
    let other = |l: &For| l.code.realigns && realign::realigned(&kernel.func, l).is_none();
    no_loop(kernel, other, "reads no words that can be shifted")
}

pub fn copies(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    let mut faults = Vec::new();
    visit::walk(&func.body, &mut |s| {
        let Stmt::Store(s) = s else { return };
        let to = func.buffer(s.buffer);
        let from = s.source().is_some_and(|b| func.buffer(b).scope == Scope::Global);
        if s.asynchronous
            && !(from && to.scope == Scope::Shared && CP_ASYNC_BITS.contains(&(to.dtype.bits() * s.lanes)))
        {
            faults.push(format!("{} is filled by no copy of 4, 8 or 16 bytes", to.name));
        }
    });
    none(faults)
}

pub fn roles(kernel: &LoweredKernel) -> Kept {
    if !kernel.roles.is_empty() || visit::loops(&kernel.func.body).into_iter().any(|l| l.is_pingpong()) {
        return Err("a role has no slice of the kernel, or a ping-pong loop is left".into());
    }
    let at_root = kernel.func.body.iter().filter(|s| matches!(s, Stmt::Role(_))).count();
    let mut all = 0;
    visit::walk(&kernel.func.body, &mut |s| all += usize::from(matches!(s, Stmt::Role(_))));
    if all == at_root { Ok(()) } else { Err("a role is inside another statement".into()) }
}

/// The loop of a ring keeps the number of its MMA groups in flight for the pass `order`.
pub fn pipelined(kernel: &LoweredKernel) -> Kept {
    let func = &kernel.func;
    let left = |l: &&For| l.pipeline.is_some_and(|p| p.in_flight == 0 || !is_ring(l));
    let found = visit::loops(&func.body).into_iter().find(left);
    found.map_or(Ok(()), |l| Err(format!("loop {} is still to be pipelined", func.var_name(l.var))))
}

pub fn constant_registers(kernel: &LoweredKernel) -> Kept {
    registers(&kernel.func, &kernel.func.body, &mut Vec::new())
}

fn registers(func: &Func, body: &[Stmt], unrolled: &mut Vec<Var>) -> Kept {
    for stmt in body {
        let before = unrolled.len();
        match stmt {
            Stmt::For(l) if l.kind == LoopKind::Unrolled => unrolled.push(l.var),
            Stmt::Store(_) | Stmt::Call(_) => {
                let mut faults = Vec::new();
                visit::each_access(std::slice::from_ref(stmt), &mut |b, indices| {
                    let mut constant = true;
                    indices.iter().for_each(|i| i.for_each_var(&mut |v| constant &= unrolled.contains(&v)));
                    if func.buffer(b).scope == Scope::Local && !constant {
                        faults.push(format!("local {} is indexed by what is not unrolled", func.buffer(b).name));
                    }
                });
                none(faults)?;
            }
            _ => {}
        }
        visit::children(stmt).into_iter().try_for_each(|child| registers(func, child, unrolled))?;
        unrolled.truncate(before);
    }
    Ok(())
}

pub fn planned(kernel: &LoweredKernel) -> Kept {
    let (func, bytes) = (&kernel.func, u64::from(kernel.shared_bytes));
    for b in used(func).into_iter().map(|b| func.buffer(b)).filter(|b| b.scope == Scope::Shared) {
        let Some(elements) = b.elements() else { return Err(format!("{} has no constant size", b.name)) };
        let size = b.dtype.bytes_of(elements as u64);
        if b.offset.is_none_or(|o| u64::from(o) + size > bytes) {
            return Err(format!("{} has no place in shared memory", b.name));
        }
    }
    let outside = |offset: Option<u32>, count: u32| offset.is_none_or(|o| u64::from(o) + 8 * u64::from(count) > bytes);
    let found = func.mbarriers.iter().find(|array| outside(array.offset, array.slots));
    found.map_or(Ok(()), |array| Err(format!("mbarrier {} has no place in shared memory", array.name)))
}

#[cfg(test)]
mod tests;
