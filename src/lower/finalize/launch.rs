//! What the code of a kernel assumes of its launch: warp numbers that are the same for all lanes, and how many registers a thread begins with.

use crate::error::Result;
use crate::intrin::Level;
use crate::ir::Stmt;
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::threads::LANES;
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    kernel.uniform_warp = wants_uniform_warp(kernel);
    // Where roles take registers over from each other, ptxas has to know how many a thread begins with.
    let moves = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(r) if r.regs.is_some()));
    kernel.min_blocks = kernel.min_blocks.or(moves.then_some(1));
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
