//! Fragments of wmma (PTX ISA, "Matrix Fragments for WMMA"): how many registers each has, and a place for every
//! element.
//!
//! Which register of which lane holds which element is not specified. Here it is a permutation that depends on the
//! matrix, its layout, its type and the shape, so that a program which assumes any place, or exchanges fragments of
//! different kinds, computes something else. f16 fragments of A and B hold elements several times; the copies have to
//! agree.

use super::fragment::Lanes;
use crate::dtype::DType;

/// A matrix of wmma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matrix {
    A,
    B,
    Accumulator,
}

/// A fragment of one matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    pub registers: usize,
    /// What tells its permutation from others'.
    salt: usize,
}

/// The multiplier of the permutation: odd, so that it has an inverse modulo the (even) number of elements.
const STEP: usize = 37;

impl Fragment {
    /// The fragment of a matrix for `.m16n16k16` and the like; `row` is the layout of A and B. `None`: the ISA has no
    /// such fragment.
    pub fn of(matrix: Matrix, [m, n, k]: [usize; 3], dtype: DType, row: bool) -> Option<Fragment> {
        let (rows, columns) = match matrix {
            Matrix::A => (m, k),
            Matrix::B => (k, n),
            Matrix::Accumulator => (m, n),
        };
        let wide = matches!([m, n, k], [16, 16, 16] | [8, 32, 16] | [32, 8, 16]);
        let packed = rows * columns * dtype.bits() as usize / 1024;
        let registers = match (matrix, dtype) {
            (Matrix::Accumulator, DType::F32) if wide || [m, n, k] == [16, 16, 8] => 8,
            (Matrix::Accumulator, DType::F16) if wide => 4,
            (Matrix::Accumulator, DType::S32) if wide || matches!([m, n, k], [8, 8, 32 | 128]) => packed,
            (Matrix::Accumulator, _) => return None,
            (_, DType::F16) if wide => 8,
            (_, DType::Bf16 | DType::S8 | DType::U8) if wide => packed,
            (_, DType::Tf32) if [m, n, k] == [16, 16, 8] => 4,
            (_, DType::S4 | DType::U4) if [m, n, k] == [8, 8, 32] => 1,
            (_, DType::B1) if [m, n, k] == [8, 8, 128] => 1,
            _ => return None,
        };
        // Accumulators are loaded and stored in either layout.
        let layout = usize::from(row && matrix != Matrix::Accumulator);
        let salt = 11 * (matrix as usize) + 5 * layout + 3 * dtype as usize + m;
        Some(Fragment { dtype, rows, columns, registers, salt })
    }

    fn per_word(&self) -> usize {
        (32 / self.dtype.bits()) as usize
    }

    /// The element, counted row by row, in a slot.
    fn element(&self, register: usize, lane: usize, e: usize) -> usize {
        ((register * 32 + lane) * self.per_word() + e).wrapping_mul(STEP).wrapping_add(self.salt)
            % (self.rows * self.columns)
    }

    fn slots(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (registers, words) = (self.registers, self.per_word());
        (0..registers).flat_map(move |r| (0..32).flat_map(move |l| (0..words).map(move |e| (r, l, e))))
    }

    /// The registers of elements (their bits, row by row).
    pub fn pack(&self, elements: &[u32]) -> Vec<Lanes> {
        let mut out = vec![[0; 32]; self.registers];
        for (r, lane, e) in self.slots() {
            out[r][lane] |= elements[self.element(r, lane, e)] << (e as u32 * self.dtype.bits());
        }
        out
    }

    /// The bits of the elements, row by row; `None` where copies of one element differ.
    pub fn unpack(&self, registers: &[Lanes]) -> Option<Vec<u32>> {
        let mut out = vec![None; self.rows * self.columns];
        for (r, lane, e) in self.slots() {
            let bits = self.dtype.bits();
            let value = registers[r][lane] >> (e as u32 * bits) & (u32::MAX >> (32 - bits));
            let known = &mut out[self.element(r, lane, e)];
            if known.is_some_and(|k| k != value) {
                return None;
            }
            *known = Some(value);
        }
        out.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_the_registers_of_the_isa() {
        let count = |matrix, shape, dtype| Fragment::of(matrix, shape, dtype, true).map(|f| f.registers);
        use Matrix::{A, Accumulator as C, B};
        let table = [
            (DType::F16, [16, 16, 16], [8, 8]),
            (DType::F16, [32, 8, 16], [8, 8]),
            (DType::F16, [8, 32, 16], [8, 8]),
            (DType::Bf16, [16, 16, 16], [4, 4]),
            (DType::Bf16, [8, 32, 16], [2, 8]),
            (DType::Bf16, [32, 8, 16], [8, 2]),
            (DType::Tf32, [16, 16, 8], [4, 4]),
            (DType::S8, [16, 16, 16], [2, 2]),
            (DType::U8, [8, 32, 16], [1, 4]),
            (DType::S8, [32, 8, 16], [4, 1]),
            (DType::S4, [8, 8, 32], [1, 1]),
            (DType::B1, [8, 8, 128], [1, 1]),
        ];
        for (dtype, shape, [a, b]) in table {
            assert_eq!([count(A, shape, dtype), count(B, shape, dtype)], [Some(a), Some(b)], "{dtype} {shape:?}");
        }
        assert_eq!(count(C, [16, 16, 16], DType::F32), Some(8));
        assert_eq!(count(C, [8, 32, 16], DType::F16), Some(4));
        assert_eq!(count(C, [32, 8, 16], DType::S32), Some(8));
        assert_eq!(count(C, [8, 8, 32], DType::S32), Some(2));
        assert_eq!(count(A, [8, 8, 8], DType::F16), None);
        assert_eq!(count(C, [16, 16, 16], DType::S8), None);
    }

    #[test]
    fn every_element_has_a_place_and_copies_agree() {
        for (matrix, shape, dtype) in [
            (Matrix::A, [16, 16, 16], DType::F16),
            (Matrix::B, [8, 32, 16], DType::F16),
            (Matrix::B, [8, 32, 16], DType::S8),
            (Matrix::A, [8, 8, 32], DType::U4),
            (Matrix::B, [8, 8, 128], DType::B1),
            (Matrix::Accumulator, [32, 8, 16], DType::F32),
            (Matrix::Accumulator, [16, 16, 16], DType::F16),
        ] {
            let Some(f) = Fragment::of(matrix, shape, dtype, false) else { panic!("{dtype}") };
            let bits = u32::MAX >> (32 - dtype.bits());
            let elements: Vec<u32> =
                (0..f.rows * f.columns).map(|n| (n as u32).wrapping_mul(2_654_435_769) & bits).collect();
            let packed = f.pack(&elements);
            assert_eq!(f.unpack(&packed), Some(elements), "{dtype} {shape:?}");
        }
        let Some(f) = Fragment::of(Matrix::A, [16, 16, 16], DType::F16, true) else { panic!() };
        let mut packed = f.pack(&[7; 256]);
        packed[5][9] ^= 1;
        assert_eq!(f.unpack(&packed), None);
    }
}
