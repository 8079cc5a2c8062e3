//! The factors of a product as recipes see them: side 0 is A, side 1 is B.

use crate::te::GemmSpec;

/// Whether the rows of A and of B run along k in memory.
pub(super) fn along_k(spec: &GemmSpec) -> [bool; 2] {
    [!spec.layout.a_transposed(), spec.layout.b_transposed()]
}

/// The extents of C: rows of A, and columns of B.
pub(super) fn rows(spec: &GemmSpec) -> [i64; 2] {
    [spec.m, spec.n]
}

/// Elements of a row of a factor in memory.
pub(super) fn contiguous(spec: &GemmSpec, side: usize) -> i64 {
    if along_k(spec)[side] { spec.k } else { rows(spec)[side] }
}

/// How many of size `by` cover `size`.
pub(super) fn up(size: i64, by: i64) -> i64 {
    size / by + i64::from(size % by != 0)
}
