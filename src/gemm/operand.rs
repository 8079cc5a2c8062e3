//! The operands of a GEMM as recipes see them: extents, rows in memory, and names in steps.

use super::tuning;
use crate::dtype::DType;
use crate::te::GemmSpec;

/// Bytes of a 32-bit word.
pub(super) const WORD: i64 = 4;

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

    /// The type of its elements.
    pub fn dtype(self, spec: &GemmSpec) -> DType {
        [spec.a, spec.b][self as usize]
    }

    /// Its extent that is not k: rows of C for A, columns of C for B.
    pub fn rows(self, spec: &GemmSpec) -> i64 {
        [spec.m, spec.n][self as usize]
    }

    /// Whether its rows run along k in memory.
    pub fn along_k(self, spec: &GemmSpec) -> bool {
        match self {
            Operand::A => !spec.layout.a_transposed(),
            Operand::B => spec.layout.b_transposed(),
        }
    }

    /// Whether its rows run along k in shared memory: bytes and smaller elements are transposed before.
    pub fn runs_along_k(self, spec: &GemmSpec) -> bool {
        self.along_k(spec) || spec.a.bits() < 16
    }

    /// Whether each of its rows in memory begins at a multiple of 16 bytes.
    pub fn is_aligned(self, spec: &GemmSpec) -> bool {
        self.multiple(spec) * i64::from(self.dtype(spec).bits()) % 128 == 0
    }

    /// Bytes of the widest copies that each of its rows in memory consists of, up to 16.
    pub fn piece(self, spec: &GemmSpec) -> i64 {
        let row = self.multiple(spec) * i64::from(self.dtype(spec).bits()) / 8;
        1 << row.trailing_zeros().min(4)
    }

    /// Whether its rows begin between words of 32 bits, so that vectors are unaligned loads.
    pub fn begins_between_words(self, spec: &GemmSpec) -> bool {
        self.piece(spec) < WORD
    }

    /// Bytes of device memory that a kernel moves which packs it into elements of so many bits; more where the kernel takes longer for them.
    pub fn packing_bytes(self, spec: &GemmSpec, packed_bits: i64) -> f64 {
        let bits = i64::from(spec.a.bits()) + packed_bits;
        let bytes = bits as f64 / 8.0 * self.rows(spec) as f64 * spec.k as f64 * spec.products() as f64;
        // Elements of 4 bits are transposed as bytes or as words of eight.
        if spec.a.bits() == 4 {
            return if self.along_k(spec) { bytes } else { tuning::WIDENING_TRANSPOSED * bytes };
        }
        let is_odd = !self.along_k(spec) && self.piece(spec) == 1;
        if is_odd { tuning::PACKING_ODD * bytes } else { bytes }
    }

    /// A number that a power of two divides where it divides both the elements of a row in memory and those from a row to the next.
    pub fn multiple(self, spec: &GemmSpec) -> i64 {
        self.contiguous(spec) | spec.row_strides[self as usize].unwrap_or(0)
    }

    /// Elements of a row in memory.
    pub fn contiguous(self, spec: &GemmSpec) -> i64 {
        if self.along_k(spec) { spec.k } else { self.rows(spec) }
    }
}

/// Whether the rows of both operands run along k in memory.
pub(super) fn both_along_k(spec: &GemmSpec) -> bool {
    Operand::BOTH.into_iter().all(|operand| operand.along_k(spec))
}

/// [`Operand::multiple`] of the rows of C.
pub(super) fn multiple_of_result(spec: &GemmSpec) -> i64 {
    spec.n | spec.row_strides[2].unwrap_or(0)
}

/// How many of size `by` cover `size`.
pub(super) fn up(size: i64, by: i64) -> i64 {
    size / by + i64::from(size % by != 0)
}
