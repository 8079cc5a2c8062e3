//! Placements hold as long as they stand: after every step each one's check is asked again.
//!
//! So a rewrite can never take the ground from under a placement, and the checks of a placement are said once, on the
//! program that has it.

use super::primitive::{copy_with, launch, pipeline, specialize, tensorize};
use crate::error::Result;
use crate::ir::{Func, visit};

/// Asks every placement on loops, blocks and kernels whether it still holds.
///
/// # Errors
/// The code of the placement's broken requirement.
pub fn check(func: &Func) -> Result<()> {
    for l in visit::loops(&func.body) {
        if let Some(placed) = &l.tensorize {
            tensorize::check(func, l, placed)?;
        }
        if let Some(placed) = l.pipeline {
            pipeline::check(func, l, placed)?;
        }
    }
    for block in visit::blocks(&func.body) {
        if let Some(placed) = &block.copy_with {
            copy_with::check(func, block, placed)?;
        }
        if block.role.is_some() {
            specialize::check(func, block)?;
        }
    }
    launch::check(func)
}
