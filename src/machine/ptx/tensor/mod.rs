//! Matrix and asynchronous instructions: mma, ldmatrix, stmatrix, wmma, wgmma, mbarriers, bulk copies, clusters.

use super::inst::{Entry, Inst};
use super::trap::Trap;
use super::warp::{Context, Next};
use super::world::World;
use crate::error::Result;

/// A decoded instruction of this module.
#[derive(Debug, Clone)]
pub(in crate::machine::ptx) enum Op {}

/// What the blocks of a cluster share beside memory: mbarriers, and copies and products under way.
#[derive(Debug, Clone, Default)]
pub(in crate::machine::ptx) struct State {}

impl State {
    /// A cluster of so many blocks, each of so many warps, begins.
    pub fn begin(&mut self, _blocks: usize, _warps: usize) {}

    /// How many asynchronous operations may land now.
    pub fn pending(&self) -> usize {
        0
    }

    /// One of them lands. [`World::tensor`] is empty meanwhile: `self` was taken out of it.
    pub fn land(&mut self, _which: usize, _world: &mut World) -> std::result::Result<(), Trap> {
        Ok(())
    }

    /// All threads of the cluster have ended and nothing is pending: what is left undone.
    pub fn end(&mut self, _world: &mut World) -> std::result::Result<(), Trap> {
        Ok(())
    }

    /// For a deadlock: what the warps wait for.
    pub fn waits(&self) -> String {
        String::new()
    }
}

/// The instruction, if this module knows it.
///
/// # Errors
/// An instruction of this module with a form or with operands that it does not have.
pub(in crate::machine::ptx) fn decode(_inst: &Inst, _entry: &Entry) -> Result<Option<Op>> {
    Ok(None)
}

/// Whether the instruction needs vector clocks: it orders accesses of some warps, or another agent accesses memory.
pub(in crate::machine::ptx) fn needs_clocks(op: &Op) -> bool {
    match *op {}
}

/// Executes the instruction for the lanes of the context's mask.
pub(in crate::machine::ptx) fn step(op: &Op, _context: &mut Context<'_>) -> std::result::Result<Next, Trap> {
    match *op {}
}
