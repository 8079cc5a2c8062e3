//! The operands of a GEMM as recipes see them: extents, rows in memory, and names in steps.

use crate::te::GemmSpec;

/// An operand of the GEMM. Pairs `[A, B]` and `[rows of C, columns of C]` are indexed by `operand as usize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    A = 0,
    B = 1,
}

impl Operand {
    /// Both, in the order of pairs.
    pub const BOTH: [Operand; 2] = [Operand::A, Operand::B];

    /// The name of its array.
    pub fn name(self) -> &'static str {
        ["A", "B"][self as usize]
    }

    /// The first letter of its loops.
    pub fn lower(self) -> &'static str {
        ["a", "b"][self as usize]
    }

    /// The operand that it is multiplied with.
    pub fn other(self) -> Operand {
        if self == Operand::A { Operand::B } else { Operand::A }
    }
}

/// Whether the rows of A and of B run along k in memory.
pub(super) fn along_k(spec: &GemmSpec) -> [bool; 2] {
    [!spec.layout.a_transposed(), spec.layout.b_transposed()]
}

/// The extents of C: rows of A, and columns of B.
pub(super) fn rows(spec: &GemmSpec) -> [i64; 2] {
    [spec.m, spec.n]
}

/// Elements of a row of an operand in memory.
pub(super) fn contiguous(spec: &GemmSpec, operand: Operand) -> i64 {
    if along_k(spec)[operand as usize] { spec.k } else { rows(spec)[operand as usize] }
}

/// How many of size `by` cover `size`.
pub(super) fn up(size: i64, by: i64) -> i64 {
    size / by + i64::from(size % by != 0)
}

/// Whether an operand's rows run along k in shared memory: bytes and smaller elements are transposed before.
pub(super) fn runs_along_k(spec: &GemmSpec, operand: Operand) -> bool {
    along_k(spec)[operand as usize] || spec.a.bits() < 16
}
