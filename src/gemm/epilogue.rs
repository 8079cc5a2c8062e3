//! Accumulators and their way to C, as recipes share them.

use crate::ir::Scope;
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// How a tile of C gets from the registers of warps to device memory. Lanes have pairs of neighbouring elements: of 32-bit elements
/// whole sectors, of 16-bit ones less, so that shared memory holds rows of these before they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// Threads store their accumulators. Tiles of wgmma that reach beyond C pass through shared memory first.
    Direct,
    /// Threads write pairs to shared memory, and whole rows from there.
    Rows,
    /// Warps write four matrices of 8 x 8 at a time to shared memory (stmatrix), and threads whole rows from there.
    Stmatrix,
    /// TMA stores whole rows from shared memory.
    Tma,
}

/// The block that has the accumulators. Where C has their type, it is block `C`; else block `mma` sums into `acc`, and block `out`
/// converts to C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accumulators {
    /// C itself.
    Result,
    /// A buffer of another type than C.
    Converted,
}

impl Accumulators {
    /// Those of a GEMM.
    pub fn of(spec: &GemmSpec) -> Accumulators {
        if spec.acc == spec.out { Accumulators::Result } else { Accumulators::Converted }
    }

    /// Whether C has another type.
    pub fn converts(self) -> bool {
        self == Accumulators::Converted
    }

    /// The block that sums.
    pub fn block(self) -> &'static str {
        if self.converts() { "mma" } else { "C" }
    }

    /// Keeps the accumulators in registers of a thread, `copy` those of C; the block that stores them.
    pub fn keep_in_registers<'a>(self, s: &mut Steps, copy: &'a str) -> &'a str {
        match self {
            Accumulators::Result => {
                s.cache_write("C", "C", Scope::Local, copy);
                copy
            }
            Accumulators::Converted => {
                s.set_scope("acc", Scope::Local);
                "out"
            }
        }
    }
}
