//! Which loops of a program that runs in sequence may run 32 iterations at a time, as lanes.

use super::compile::Compiler;
use crate::error::Result;
use crate::ir::{BinOp, Expr, For, Store, Var};

/// Whether running each statement of the loop for 32 iterations at once gives what running them in turn gives.
pub(super) fn may_run_as_lanes(_: &Compiler, _: &For) -> Result<bool> {
    Ok(false)
}

/// The operation and the other operand of a store that combines one element with a value of each lane.
pub(super) fn reduction<'e>(_: &Compiler, _: &'e Store, _: Var) -> Option<(BinOp, &'e Expr)> {
    None
}
