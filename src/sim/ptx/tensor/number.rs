//! The elements of matrix instructions, and the arithmetic of a multiply-accumulate.
//!
//! # The model
//!
//! The PTX ISA leaves the order and the rounding inside mma, wmma and wgmma open. Here:
//!
//! - Floating point: the product of two elements is exact in f32 (11 + 11 bits of f16 and tf32, 8 + 8 of bf16, 4 + 4 of e4m3). The sum begins with
//!   the accumulator as an f32; the products of one instruction are added one after the other in ascending k, each addition rounded
//!   to the nearest even f32. An f16 accumulator is rounded once, when the instruction ends. Nothing is flushed to zero.
//! - Products of 8-bit floats are added with fewer bits: [`crate::sim::float8`].
//! - tf32 operands: the lower 13 bits are ignored.
//! - Integers: sums wrap modulo 2^32.
//!
//! The simulator of Lowered programs has the same model, so the two agree bit for bit on any data. A tensor core
//! truncates instead of rounding and adds groups of products at once; the bounds of `reference` allow for both.

use crate::dtype::{DType, TF32};
use crate::sim::value::fp8_to_f32;
use half::{bf16, f16};

/// What an accumulator adds up.
pub(super) trait Number: Copy + Default + PartialEq {
    /// An element of an operand by its bits.
    fn operand(dtype: DType, bits: u32) -> Self;
    /// An element of an accumulator by its bits.
    fn accumulator(dtype: DType, bits: u32) -> Self;
    /// The bits of an element of an accumulator.
    fn bits(self, dtype: DType) -> u32;
    /// `self + x * y`.
    fn plus(self, x: Self, y: Self) -> Self;
    fn negated(self) -> Self;

    /// Adds the products of A (rows of `depth` elements) and B (`depth` rows of `columns` elements) to the accumulators
    /// (rows of `columns` elements).
    fn multiply(sums: &mut [Self], a: &[Self], b: &[Self], columns: usize, depth: usize) {
        for (sums, a) in sums.chunks_exact_mut(columns).zip(a.chunks_exact(depth)) {
            for (x, b) in a.iter().zip(b.chunks_exact(columns)) {
                for (sum, y) in sums.iter_mut().zip(b) {
                    *sum = sum.plus(*x, *y);
                }
            }
        }
    }
}

impl Number for f32 {
    #[inline(always)]
    fn operand(dtype: DType, bits: u32) -> f32 {
        match dtype {
            DType::F16 => f16::from_bits(bits as u16).to_f32(),
            DType::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            DType::Tf32 => f32::from_bits(bits & TF32),
            DType::E4m3 | DType::E5m2 => fp8_to_f32(dtype, bits as u8),
            _ => f32::from_bits(bits),
        }
    }

    fn accumulator(dtype: DType, bits: u32) -> f32 {
        if dtype == DType::F16 { f16::from_bits(bits as u16).to_f32() } else { f32::from_bits(bits) }
    }

    fn bits(self, dtype: DType) -> u32 {
        if dtype == DType::F16 { u32::from(f16::from_f32(self).to_bits()) } else { self.to_bits() }
    }

    #[inline(always)]
    fn plus(self, x: f32, y: f32) -> f32 {
        self + x * y
    }

    fn negated(self) -> f32 {
        -self
    }
}

impl Number for i32 {
    #[inline(always)]
    fn operand(dtype: DType, bits: u32) -> i32 {
        match dtype {
            DType::S8 => i32::from(bits as u8 as i8),
            DType::U8 => i32::from(bits as u8),
            DType::S4 => (bits << 28) as i32 >> 28,
            DType::U4 => (bits & 15) as i32,
            DType::B1 => (bits & 1) as i32,
            _ => bits as i32,
        }
    }

    fn accumulator(_: DType, bits: u32) -> i32 {
        bits as i32
    }

    fn bits(self, _: DType) -> u32 {
        self as u32
    }

    #[inline(always)]
    fn plus(self, x: i32, y: i32) -> i32 {
        self.wrapping_add(x.wrapping_mul(y))
    }

    fn negated(self) -> i32 {
        self.wrapping_neg()
    }
}

/// Whether a type of operands is added up in integers.
pub(super) fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::S8 | DType::U8 | DType::S4 | DType::U4 | DType::B1)
}

/// [`Number::multiply`].
pub(super) fn multiply<N: Number>(sums: &mut [N], a: &[N], b: &[N], columns: usize, depth: usize) {
    N::multiply(sums, a, b, columns, depth);
}

/// Adds the exclusive ors of single bits in the place of products.
pub(super) fn count_differing(sums: &mut [i32], a: &[i32], b: &[i32], columns: usize, depth: usize) {
    for (sums, a) in sums.chunks_exact_mut(columns).zip(a.chunks_exact(depth)) {
        for (x, b) in a.iter().zip(b.chunks_exact(columns)) {
            for (sum, y) in sums.iter_mut().zip(b) {
                *sum = sum.wrapping_add(x ^ y);
            }
        }
    }
}

/// The elements of 32 bits or fewer in a run of bytes, the first in the lowest bits.
pub(super) fn elements<N: Number>(dtype: DType, bytes: &[u8], mut take: impl FnMut(usize, N)) {
    match dtype.bits() {
        1 => bytes.iter().enumerate().for_each(|(n, b)| {
            (0..8).for_each(|bit| take(8 * n + bit, N::operand(dtype, u32::from(b >> bit & 1))));
        }),
        4 => bytes.iter().enumerate().for_each(|(n, b)| {
            take(2 * n, N::operand(dtype, u32::from(b & 15)));
            take(2 * n + 1, N::operand(dtype, u32::from(b >> 4)));
        }),
        8 => bytes.iter().enumerate().for_each(|(n, b)| take(n, N::operand(dtype, u32::from(*b)))),
        16 => bytes.chunks_exact(2).enumerate().for_each(|(n, b)| {
            take(n, N::operand(dtype, u32::from(u16::from_le_bytes([b[0], b[1]]))));
        }),
        _ => bytes.chunks_exact(4).enumerate().for_each(|(n, b)| {
            take(n, N::operand(dtype, u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_from_the_lowest_bits_on() {
        let mut found = Vec::new();
        elements::<i32>(DType::S4, &[0x8f, 0x71], |n, v| found.push((n, v)));
        assert_eq!(found, [(0, -1), (1, -8), (2, 1), (3, 7)]);
        let mut found = Vec::new();
        elements::<i32>(DType::B1, &[0x05, 0x80], |n, v| found.push((n, v)));
        assert_eq!(found.iter().filter(|f| f.1 == 1).map(|f| f.0).collect::<Vec<_>>(), [0, 2, 15]);
        assert_eq!(found.len(), 16);
        let mut found = Vec::new();
        elements::<f32>(DType::Bf16, &[0x80, 0x3f, 0x00, 0xc0], |_, v| found.push(v));
        assert_eq!(found, [1.0, -2.0]);
        let mut found = Vec::new();
        elements::<i32>(DType::U8, &[255, 1], |_, v| found.push(v));
        assert_eq!(found, [255, 1]);
    }

    #[test]
    fn products_are_added_in_ascending_k() {
        // 2^24 + 1 rounds back to 2^24: only the order of the model gives 2^24 + 2 for the second row.
        let (big, one) = (16_777_216.0, 1.0);
        let mut sums = [0.0f32; 2];
        multiply(&mut sums, &[big, one, one, one, one, big], &[1.0, 1.0, 1.0], 1, 3);
        assert_eq!(sums, [big, big + 2.0]);
        let mut sums = [i32::MAX];
        multiply(&mut sums, &[1, 1], &[1, 1], 1, 2);
        assert_eq!(sums, [i32::MIN + 1]);
    }

    #[test]
    fn tf32_ignores_the_lower_bits() {
        assert_eq!(f32::operand(DType::Tf32, 1.0f32.to_bits() | 0x1fff), 1.0);
        assert_eq!(f32::accumulator(DType::F16, 0x3c00), 1.0);
        assert_eq!(2049.0f32.bits(DType::F16), 0x6800);
    }
}
