//! What the launch decides: which numbers are the same for all lanes of a warp, what each block prefetches, and how many registers
//! ptxas may give a thread.

use crate::error::Result;
use crate::intrin::Level;
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::threads::LANES;
use crate::ir::{Stmt, SyncKind, visit};
use crate::target::{LINE, Target};

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    kernel.uniform_warp = wants_uniform_warp(kernel);
    // Where roles take registers over from each other, ptxas has to know how many a thread begins with.
    let moves = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(r) if r.regs.is_some()));
    kernel.min_blocks = kernel.min_blocks.or(moves.then_some(1));
    if kernel.persistent().is_none() {
        shares(kernel);
    }
    Ok(())
}

/// Whether the number of a warp is taken from its first lane, so that ptxas knows it to be the same for all: it is part of the addresses
/// of roles and of wgmma. One axis numbers the threads then.
fn wants_uniform_warp(kernel: &LoweredKernel) -> bool {
    let mut axes = kernel.launch.iter().filter(|l| !l.axis.is_block_level());
    let alone = axes.any(|l| kernel.threads() == l.extent && i64::from(l.extent) > LANES);
    let roles = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(_)));
    alone && (roles || kernel.instructions().iter().any(|row| row.level == Level::Warpgroup))
}

/// Gives each block its share of what is prefetched: whole lines, as many as the other blocks', the last ones fewer or none.
fn shares(kernel: &mut LoweredKernel) {
    let blocks = kernel.grid().iter().map(|n| u64::from(*n)).product::<u64>().max(1);
    let line = LINE.unsigned_abs();
    let bytes: Vec<u64> =
        kernel.func.buffers.iter().map(|b| b.dtype.bytes_of(b.elements().unwrap_or(0) as u64)).collect();
    kernel.func.body = visit::rewrite(std::mem::take(&mut kernel.func.body), &mut |mut stmt| {
        if let Stmt::Sync(sync) = &mut stmt
            && let SyncKind::Prefetch { buffer, share } = &mut sync.kind
        {
            let whole = bytes.get(buffer.0 as usize).map_or(0, |n| n & !15);
            *share = Some((whole.div_ceil(line).max(1)).div_ceil(blocks) * line);
        }
        vec![stmt]
    });
}
