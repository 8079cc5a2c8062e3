//! What the code of a kernel assumes of its launch: warp numbers that are the same for all lanes, and how many registers a thread begins with.

use crate::error::Result;
use crate::intrin::Level;
use crate::ir::lowered::threads::LANES;
use crate::ir::lowered::{LaunchAxis, LoweredKernel};
use crate::ir::{Stmt, Var};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    kernel.uniform_warp = uniform_warp(kernel);
    // Where roles take registers over from each other, ptxas has to know how many a thread begins with.
    let moves = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(r) if r.regs.is_some()));
    kernel.min_blocks = kernel.min_blocks.or(moves.then_some(1));
    Ok(())
}

/// The axis that alone numbers the threads, if the number of a warp is part of the addresses of roles or of wgmma: each index then takes
/// the number from the first lane, so that ptxas knows it to be the same for all lanes.
fn uniform_warp(kernel: &LoweredKernel) -> Option<Var> {
    let is_alone =
        |l: &&LaunchAxis| !l.axis.is_block_level() && kernel.threads() == l.extent && i64::from(l.extent) > LANES;
    let axis = kernel.launch.iter().find(is_alone)?;
    let roles = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(_)));
    let in_addresses = roles || kernel.instructions().iter().any(|row| row.level == Level::Warpgroup);
    in_addresses.then_some(axis.var)
}
