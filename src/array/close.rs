//! Approximate equality of arrays, by the traits of the crate `approx`: `assert_relative_eq!(c, expected)` and its siblings
//! take arrays.

use super::Array;
use crate::dtype::{DType, TF32};
use approx::{AbsDiffEq, RelativeEq, UlpsEq};

impl Array {
    /// Whether `close` holds for every pair of elements of two arrays of one type and shape.
    fn all_close(&self, other: &Array, close: impl Fn(usize) -> bool) -> bool {
        let count = self.len();
        // The fields are public: an array whose bytes do not fit its shape has no elements to compare.
        let whole = |array: &Array| array.bytes.len() as u64 == array.dtype.bytes_of(count as u64);
        self.dtype == other.dtype && self.shape == other.shape && whole(self) && whole(other) && (0..count).all(close)
    }

    /// The distance of two integer elements; s64 has distances that an f64 does not hold.
    fn integers_apart(&self, other: &Array, i: usize) -> u64 {
        self.integer(i).abs_diff(other.integer(i))
    }
}

/// Compares type, shape, and every pair of elements: they are close if they differ by at most `epsilon`.
///
/// Elements are compared as f64, integers exactly. Arrays of different types or shapes are not equal; NaN equals nothing, and an
/// infinity equals itself alone. The default of `epsilon` is that of f32, 1.2e-7, for arrays of every type.
impl AbsDiffEq for Array {
    type Epsilon = f64;

    fn default_epsilon() -> f64 {
        f64::from(f32::EPSILON)
    }

    fn abs_diff_eq(&self, other: &Array, epsilon: f64) -> bool {
        self.all_close(other, |i| match self.dtype.is_float() {
            true => self.get(i) == other.get(i) || self.get(i).abs_diff_eq(&other.get(i), epsilon),
            false => self.integers_apart(other, i) as f64 <= epsilon,
        })
    }
}

/// Compares type, shape, and every pair of elements: they are close if they differ by at most `epsilon`, or by at most
/// `max_relative` times the larger magnitude of the two.
///
/// Types, shapes, NaN and infinities are treated as by [`AbsDiffEq`]. The default of both bounds is that of f32, 1.2e-7: long sums
/// and elements of 16 or 8 bits need a larger `max_relative`.
///
/// ```
/// use approx::{assert_relative_eq, assert_relative_ne};
/// use warploom::{Array, Schedule, compile, simulate};
///
/// let schedule: Schedule = "program p\ninput A f32[64]\noutput C[i 64] f32 = A[i] / 3.0\ntarget sm_80\n".parse()?;
/// let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
/// let mut arrays = [Array::from_slice(&[64], &values)?, Array::poisoned(warploom::DType::F32, &[64])?];
/// simulate(&compile(&schedule)?, &mut arrays)?;
///
/// let thirds: Vec<f32> = values.iter().map(|v| v * (1.0 / 3.0)).collect();
/// let expected = Array::from_slice(&[64], &thirds)?;
/// assert_relative_eq!(arrays[1], expected);
/// assert_relative_ne!(arrays[0], expected, max_relative = 1e-3);
/// # Ok::<(), warploom::Error>(())
/// ```
impl RelativeEq for Array {
    fn default_max_relative() -> f64 {
        f64::from(f32::EPSILON)
    }

    fn relative_eq(&self, other: &Array, epsilon: f64, max_relative: f64) -> bool {
        self.all_close(other, |i| match self.dtype.is_float() {
            true => self.get(i).relative_eq(&other.get(i), epsilon, max_relative),
            false => {
                let largest = self.integer(i).unsigned_abs().max(other.integer(i).unsigned_abs());
                let apart = self.integers_apart(other, i) as f64;
                apart <= epsilon || apart <= largest as f64 * max_relative
            }
        })
    }
}

/// Compares type, shape, and every pair of elements: they are close if they differ by at most `epsilon`, or if they have one sign and
/// fewer than `max_ulps` numbers of the array's own type are between them.
///
/// For integers an ulp is 1; a tf32 is counted as the f32 that holds it. Types, shapes, NaN and infinities are treated as by
/// [`AbsDiffEq`]. The defaults are 1.2e-7 and 4 ulps.
impl UlpsEq for Array {
    fn default_max_ulps() -> u32 {
        4
    }

    fn ulps_eq(&self, other: &Array, epsilon: f64, max_ulps: u32) -> bool {
        self.all_close(other, |i| {
            if !self.dtype.is_float() {
                let apart = self.integers_apart(other, i);
                return apart as f64 <= epsilon || apart <= u64::from(max_ulps);
            }
            let (a, b) = (self.get(i), other.get(i));
            if a == b || a.abs_diff_eq(&b, epsilon) {
                return true;
            }
            let finite = a.is_finite() && b.is_finite() && a.is_sign_negative() == b.is_sign_negative();
            finite && self.bits(i).abs_diff(other.bits(i)) <= u64::from(max_ulps)
        })
    }
}

impl Array {
    /// The bits of a float element that are its value. Numbers of one sign are ordered by magnitude as their bits are.
    fn bits(&self, i: usize) -> u64 {
        let bytes = self.dtype.bits() as usize / 8;
        let bits =
            self.bytes[i * bytes..(i + 1) * bytes].iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        if self.dtype == DType::Tf32 { bits >> TF32.trailing_zeros() } else { bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use approx::{assert_abs_diff_eq, assert_abs_diff_ne, assert_relative_eq, assert_relative_ne};
    use approx::{assert_ulps_eq, assert_ulps_ne};

    fn of(dtype: DType, values: &[f64]) -> Array {
        Array::from_fn(dtype, &[values.len()], |i| values[i]).unwrap()
    }

    const FLOATS: [DType; 7] = [DType::F16, DType::Bf16, DType::Tf32, DType::F32, DType::F64, DType::E4m3, DType::E5m2];

    #[test]
    fn every_element_is_within_the_bound() {
        for dtype in FLOATS {
            let (a, b) = (of(dtype, &[1.0, 2.0, 8.0]), of(dtype, &[1.0, 2.0, 10.0]));
            assert_abs_diff_eq!(a, a);
            assert_abs_diff_eq!(a, b, epsilon = 2.0);
            assert_abs_diff_ne!(a, b, epsilon = 1.9);
            assert_relative_eq!(a, b, max_relative = 0.2);
            assert_relative_ne!(a, b, max_relative = 0.19);
            assert_relative_eq!(a, b, epsilon = 2.0, max_relative = 0.0);
            assert_relative_ne!(a, b);
        }
    }

    #[test]
    fn ulps_are_those_of_the_arrays_type() {
        for dtype in FLOATS {
            let one = of(dtype, &[1.0]);
            let mut next = one.clone();
            // The lowest bit of a tf32 is bit 13.
            let at = if dtype == DType::Tf32 { (1, 3 << 5) } else { (0, 3) };
            next.bytes[at.0] += at.1;
            assert_ulps_eq!(one, next, epsilon = 0.0, max_ulps = 3);
            assert_ulps_ne!(one, next, epsilon = 0.0, max_ulps = 2);
            assert_ulps_ne!(one, of(dtype, &[-1.0]), epsilon = 0.0, max_ulps = u32::MAX);
            assert_ulps_eq!(of(dtype, &[0.0]), of(dtype, &[-0.0]), epsilon = 0.0, max_ulps = 0);
        }
        let largest = of(DType::F32, &[f64::from(f32::MAX)]);
        assert_ulps_ne!(largest, of(DType::F32, &[f64::INFINITY]));
    }

    #[test]
    fn nan_equals_nothing_and_an_infinity_itself() {
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            let (nan, inf) = (of(dtype, &[1.0, f64::NAN]), of(dtype, &[1.0, f64::INFINITY]));
            assert_abs_diff_ne!(nan, nan, epsilon = f64::INFINITY);
            assert_relative_ne!(nan, nan, epsilon = f64::INFINITY, max_relative = f64::INFINITY);
            assert_ulps_ne!(nan, nan, epsilon = f64::INFINITY, max_ulps = u32::MAX);
            assert_abs_diff_eq!(inf, inf);
            assert_relative_eq!(inf, inf);
            assert_ulps_eq!(inf, inf);
            assert_abs_diff_ne!(inf, of(dtype, &[1.0, 1.0]), epsilon = 1e30);
            assert_relative_ne!(inf, of(dtype, &[1.0, f64::NEG_INFINITY]), max_relative = 1.0);
        }
    }

    #[test]
    fn types_and_shapes_are_compared() {
        let a = of(DType::F32, &[1.0, 2.0]);
        let reshaped = Array { shape: vec![2, 1], ..a.clone() };
        let short = Array { bytes: vec![0; 4], ..a.clone() };
        for other in [of(DType::Tf32, &[1.0, 2.0]), of(DType::F32, &[1.0]), reshaped, short.clone()] {
            assert_abs_diff_ne!(a, other, epsilon = f64::INFINITY);
            assert_relative_ne!(a, other, epsilon = f64::INFINITY);
            assert_ulps_ne!(a, other, epsilon = f64::INFINITY);
        }
        assert_abs_diff_ne!(short, short);
        let empty = of(DType::F32, &[]);
        assert_relative_eq!(empty, empty);
    }

    #[test]
    fn integers_are_compared_exactly() {
        let (a, b) = (
            Array::from_slice(&[2], &[i64::MAX, i64::MIN]).unwrap(),
            Array::from_slice(&[2], &[i64::MAX - 1, i64::MIN + 1]).unwrap(),
        );
        assert_abs_diff_ne!(a, b);
        assert_abs_diff_eq!(a, b, epsilon = 1.0);
        assert_relative_eq!(a, b);
        assert_relative_ne!(a, b, epsilon = 0.0, max_relative = 0.0);
        assert_ulps_eq!(a, b, max_ulps = 1);
        assert_ulps_ne!(a, b, max_ulps = 0);
        let ends = (Array::from_slice(&[1], &[i64::MAX]).unwrap(), Array::from_slice(&[1], &[i64::MIN]).unwrap());
        assert_ulps_ne!(ends.0, ends.1, max_ulps = u32::MAX);
        for dtype in [DType::S4, DType::U4, DType::S8, DType::U8, DType::Bool, DType::B1, DType::S32, DType::U32] {
            let (a, b) = (of(dtype, &[1.0, 0.0, 1.0]), of(dtype, &[1.0, 1.0, 1.0]));
            assert_abs_diff_eq!(a, a, epsilon = 0.0);
            assert_abs_diff_ne!(a, b);
            assert_abs_diff_eq!(a, b, epsilon = 1.0);
            assert_relative_ne!(a, b, max_relative = 0.5);
        }
    }
}
