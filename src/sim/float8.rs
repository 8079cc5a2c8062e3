//! How tensor cores add products of 8-bit floats.
//!
//! Their accumulator has fewer bits than an f32 (e8m13: SageAttention2, and the DeepSeek-V3 report, which counts 14 bits with the one
//! before the point). The model: the accumulator and the products of an instruction, each exact, are aligned to the largest exponent among
//! them; each is truncated towards zero to `FRACTION` bits below that exponent; their sum is exact, and is truncated to `FRACTION` bits
//! below its own exponent. A GPU case measures the bits. The bounds of `reference` follow from this model.
//!
//! The model is that of wgmma on sm_90a and of mma.sync on sm_89. Later chips convert the operands of mma.sync to f16, and lose less.

use crate::dtype::FLOAT8_SUM_FRACTION as FRACTION;

/// Bits of the fraction of an f32.
const F32_FRACTION: i32 = 23;

/// The accumulator with the products of one instruction added.
pub(super) fn add(sum: f32, products: impl Iterator<Item = f32> + Clone) -> f32 {
    let terms = || std::iter::once(sum).chain(products.clone());
    if !terms().all(f32::is_finite) {
        return terms().sum();
    }
    let largest = terms().fold(0.0f32, |largest, term| largest.max(term.abs()));
    if largest == 0.0 {
        return terms().sum();
    }
    let step = 2f64.powi(exponent(largest) - FRACTION);
    let count: i64 = terms().map(|term| (f64::from(term) / step).trunc() as i64).sum();
    truncated((count as f64 * step) as f32)
}

/// The exponent of a number that is not zero.
fn exponent(x: f32) -> i32 {
    // An f32 is a normal f64.
    (f64::from(x).to_bits() >> 52 & 0x7FF) as i32 - 1023
}

/// A number without the bits that the accumulator lacks.
fn truncated(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !((1 << (F32_FRACTION - FRACTION)) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(terms: &[f32]) -> f32 {
        add(terms[0], terms[1..].iter().copied())
    }

    #[test]
    fn terms_are_truncated_below_the_largest() {
        let bit = |n: i32| 2f32.powi(n);
        assert_eq!(sum(&[1.0, bit(-13)]), 1.0 + bit(-13));
        assert_eq!(sum(&[1.0, bit(-14)]), 1.0);
        // Each is truncated before the sum, towards zero.
        assert_eq!(sum(&[1.0, bit(-14), bit(-14)]), 1.0);
        assert_eq!(sum(&[-1.0, 1.5 * bit(-13), 1.5 * bit(-13)]), -1.0 + bit(-12));
        // The sum has fewer bits below a larger exponent.
        assert_eq!(sum(&[1.0, 1.0, bit(-13)]), 2.0);
        assert_eq!(sum(&[448.0 * 448.0, -448.0 * 448.0, 1.0]), 0.0);
        assert_eq!(sum(&[0.0, 0.0]), 0.0);
        assert!(sum(&[f32::INFINITY, 1.0, f32::NEG_INFINITY]).is_nan());
    }

    #[test]
    fn small_integers_are_exact() {
        let terms: Vec<f32> = (0..32).map(|n| ((n * 37) % 511 - 255) as f32).collect();
        assert_eq!(sum(&terms), terms.iter().sum::<f32>());
    }
}
