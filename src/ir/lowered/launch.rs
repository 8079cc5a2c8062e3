//! The launch of a kernel: hardware axes, indices that are derived from them, and the threads of roles.

use super::threads::LANES;
use crate::ir::{Axis, Func, Index, RoleId, Var};
use crate::target::{REGISTERS_PER_SM, REGISTERS_PER_THREAD};

/// The most warp-specialized roles of a kernel, the consumer warps included. Each role has a named barrier, and so has each
/// warpgroup; a block has 16 (PTX ISA, `barrier`).
pub const ROLES: u32 = 7;

/// The thread axes of a role: they count the threads of its staged buffers, as those of the launch count the consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoleThreads {
    /// Which role.
    pub role: RoleId,
    /// Its thread axes.
    pub axes: Vec<LaunchAxis>,
}

/// A hardware axis of a kernel: blockIdx, the rank in the cluster, or threadIdx. Where there are clusters, blockIdx.x counts
/// clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchAxis {
    /// Which.
    pub axis: Axis,
    /// The variable that represents it in the body.
    pub var: Var,
    /// How many.
    pub extent: u32,
}

impl LaunchAxis {
    /// An axis with its variable and extent.
    #[doc(hidden)]
    pub fn new(axis: Axis, var: Var, extent: u32) -> LaunchAxis {
        LaunchAxis { axis, var, extent }
    }
}

/// A block axis whose extent follows from a dynamic size: `times * ceil(size / per)` iterations are launched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clipped {
    /// Which.
    pub axis: Axis,
    /// The number of the size.
    pub size: usize,
    /// Iterations for each part of the size.
    pub times: i64,
    /// How much of the size is a part.
    pub per: i64,
}

impl Clipped {
    /// The extent as an index over the variable of the size.
    pub fn value(&self, func: &Func) -> Index {
        let size = func.sizes.get(self.size).map_or(Index::Int(0), |s| s.value());
        (size + (self.per - 1)).floordiv(self.per) * self.times
    }

    /// The extent at a value of the size; at least 1.
    pub fn at(&self, size: i64) -> i64 {
        self.times.saturating_mul((size + self.per - 1).div_euclid(self.per)).max(1)
    }
}

/// A variable that is the same for all threads of a block: the row or column of a block in a rasterized grid.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Derived {
    /// Which.
    pub var: Var,
    /// Its value, from the block axes of the launch.
    pub value: Index,
    /// The value is in 0 to this, exclusive.
    pub extent: i64,
}

/// The registers that each thread of a block of so many warps has at its start, where so many blocks share a multiprocessor.
pub(crate) fn registers_at_start(warps: u32, blocks: u32) -> u32 {
    let threads = warps.saturating_mul(LANES as u32).saturating_mul(blocks).max(1);
    (REGISTERS_PER_SM / threads / 8 * 8).min(REGISTERS_PER_THREAD / 8 * 8)
}
