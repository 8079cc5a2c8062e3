//! Shrinks buffers within the block to the region in use at a time.
//!
//! A buffer is in use inside the innermost body that holds all its accesses. The loops around that body are at one
//! iteration at a time, so their variables stay symbolic in the region's minimum, which is taken off every index.
//! A shared buffer belongs to the block: its region is taken over all threads; that of a cluster's buffer over all its blocks, too. A fragment belongs to the warp, a local
//! buffer to the thread, whose number stays symbolic. Global buffers keep their shape.
//!
//! Swizzled rows that are longer than a panel get whole panels, of which the last may be in use in part.

use crate::error::{Code, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::threads::WARPGROUP;
use crate::ir::region::{self, Range, Region};
use crate::ir::simplify;
use crate::ir::{Axis, Buffer, BufferId, Expr, Func, Index, Scope, Stmt, visit};
use crate::lower::bug;
use crate::lower::map::units;
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    for id in (0..kernel.func.buffers.len() as u32).map(BufferId) {
        let scope = kernel.func.buffer(id).scope;
        if scope != Scope::Global {
            let mut threads = if scope.is_of_several_threads() { kernel.thread_vars() } else { Vec::new() };
            if scope == Scope::Cluster {
                let ranks = kernel.launch.iter().filter(|l| l.axis == Axis::Cluster);
                threads.extend(ranks.map(|l| (l.var, i64::from(l.extent))));
            }
            if scope.is_of_several_threads() && !is_of_role(&kernel.func, id) {
                // Ping-pong warpgroups use it at the same time, in different iterations.
                threads.extend(kernel.pingpong_loops());
            }
            let of_group = if scope == Scope::Fragment { of_warpgroup(kernel, id) } else { None };
            if let Some(region) = of_group.or_else(|| region::in_use(&kernel.func, id, &threads, &kernel.env())) {
                shrink(&mut kernel.func, id, &region)?;
            }
            whole_panels(kernel.func.buffer_mut(id));
        }
    }
    Ok(())
}

/// Rounds the rows of a swizzled buffer up to whole panels, if they are longer than one.
fn whole_panels(buffer: &mut Buffer) {
    let bits = i64::from(buffer.dtype.bits());
    let (Some(width), Some(row)) = (buffer.swizzle, buffer.shape.last_mut()) else { return };
    let panel = i64::from(width) * 8 / bits;
    if let Some(columns) = row.as_int().filter(|columns| *columns > panel) {
        *row = Index::Int(columns.saturating_add(panel - 1) / panel * panel);
    }
}

/// Whether the warps of a role fill a buffer.
fn is_of_role(func: &Func, id: BufferId) -> bool {
    visit::blocks(&func.body).iter().any(|b| b.role.is_some() && visit::writes(&b.body).contains(&id))
}

/// Where warpgroups work together, what a fragment's warpgroup has in use: over its 128 threads, its number symbolic. `None`
/// where no warpgroups do, or their threads are numbered along several axes.
fn of_warpgroup(kernel: &LoweredKernel, id: BufferId) -> Option<Region> {
    let mut threads = kernel.launch.iter().filter(|l| !l.axis.is_block_level());
    let (Some(axis), None) = (threads.next(), threads.next()) else { return None };
    let (thread, threads) = (axis.var, i64::from(axis.extent));
    if !units::has_warpgroups(&kernel.func.body) {
        return None;
    }
    let mut func = kernel.func.clone();
    let (group, inside) = (func.add_var("warpgroup"), func.add_var("thread_of_group"));
    let number = Index::Var(group) * WARPGROUP + inside;
    func.body = visit::subst_body(func.body, &[(thread, number)].into());
    let mut env = kernel.env();
    env.bind(group, 0, (threads / WARPGROUP - 1).max(0));
    let region = region::in_use(&func, id, &[(inside, WARPGROUP)], &env)?;
    let back: visit::Map = [(group, Index::Var(thread).floordiv(WARPGROUP))].into();
    let known = kernel.env();
    let own = |r: Range| Range { min: simplify::simplify(&visit::subst_index(&r.min, &back), &known), ..r };
    Some(region.into_iter().map(own).collect())
}

/// Gives the buffer the region's shape and takes the region's minimum off its indices.
fn shrink(func: &mut Func, id: BufferId, region: &Region) -> Result<()> {
    let buffer = func.buffer(id);
    if region.len() != buffer.shape.len() {
        return Err(bug(Code::LowerCompact, format!("the region of {} has {} dimensions", buffer.name, region.len()))
            .about_buffer(&buffer.name));
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
