//! log1p and pow.
//!
//! pow is 2^(y log2 x). The product loses as many bits as its integer part has, so the logarithm has two words: its error
//! is below 2^-35 in f32 and 2^-64 in f64, relative to itself.

use super::super::builder::Value;
use super::Scalar;
use crate::error::Result;
use inkwell::FloatPredicate;
use inkwell::values::InstructionOpcode as Op;
use std::f64::consts::{FRAC_1_SQRT_2, LN_2};

/// A number as the sum of a rounded one and a small rest.
type Words<'c> = (Value<'c>, Value<'c>);

/// 1/3 and 2 / ln 2 in two words of f32 and of f64.
const THIRD: [[f64; 2]; 2] =
    [[0.333_333_343_267_440_8, -9.934_107_758_624_577e-9], [0.333_333_333_333_333_3, 1.850_371_707_708_594e-17]];
const TWO_OVER_LN_2: [[f64; 2]; 2] =
    [[2.885_390_043_258_667, 3.851_926_067_000_022e-8], [2.885_390_081_777_926_8, 4.071_054_748_186_206_6e-17]];

impl<'c> Scalar<'_, 'c, '_> {
    fn words(&self, table: &[[f64; 2]; 2]) -> Result<Words<'c>> {
        let [high, low] = table[usize::from(self.double)];
        Ok((self.number(high)?, self.number(low)?))
    }

    /// The sum of two numbers of which the first is the larger, exactly.
    fn sum_of(&self, a: Value<'c>, b: Value<'c>) -> Result<Words<'c>> {
        let sum = self.add(a, b)?;
        Ok((sum, self.sub(b, self.sub(sum, a)?)?))
    }

    fn product_of(&self, a: Words<'c>, b: Words<'c>) -> Result<Words<'c>> {
        let high = self.mul(a.0, b.0)?;
        let low = self.fma(a.0, b.0, self.b.negate(high)?)?;
        let low = self.fma(a.0, b.1, low)?;
        Ok((high, self.fma(a.1, b.0, low)?))
    }

    /// The exponent of a number from its bits, counted from the square root of 1/2, as an integer, and its field.
    fn exponent(&self, raw: Value<'c>) -> Result<Words<'c>> {
        let (bits, mantissa, _) = self.format();
        let int = |v: i64| Value::from(self.b.int(bits, v));
        let root = FRAC_1_SQRT_2;
        let start = if self.double { root.to_bits() as i64 } else { i64::from((root as f32).to_bits()) };
        let e = self.b.binary(Op::AShr, self.b.binary(Op::Sub, raw, int(start))?, int(mantissa))?;
        Ok((e, self.b.binary(Op::Shl, e, int(mantissa))?))
    }

    fn float_of(&self, bits: Value<'c>) -> Result<Value<'c>> {
        self.b.cast(Op::BitCast, bits, self.b.element(self.dtype())?)
    }

    /// ln(1 + x): with 1 + x = 2^k (1 + f), k is that of the rounded sum, but f is made of x. Then
    /// ln(1 + f) = f - (f^2/2 - s (f^2/2 + r(s^2))), s = f / (2 + f), which loses nothing of a small f.
    pub(super) fn log1p(&self, x: Value<'c>) -> Result<Value<'c>> {
        let (bits, mantissa, bias) = self.format();
        let (one, zero) = (self.number(1.0)?, self.number(0.0)?);
        let (e, field) = self.exponent(self.bits(self.add(x, one)?)?)?;
        // 2^(2 - k), which is a normal number for every k, and x / 2^k by its bits: x is 0 or as large as 2^k where k is not 0.
        let four = Value::from(self.b.int(bits, (bias + 2) << mantissa));
        let scale = self.float_of(self.b.binary(Op::Sub, four, field)?)?;
        let quarter = self.number(0.25)?;
        let scaled = self.mul(self.mul(x, quarter)?, scale)?;
        let rest = self.fma(quarter, scale, self.number(-1.0)?)?;
        let same = self.b.compare_int(inkwell::IntPredicate::EQ, e, self.b.int(bits, 0).into())?;
        let f = self.b.select(same, x, self.add(scaled, rest)?)?;
        let half_square = self.mul(self.mul(f, f)?, self.number(0.5)?)?;
        let s = self.div(f, self.add(self.number(2.0)?, f)?)?;
        let square = self.mul(s, s)?;
        let terms = if self.double { 12 } else { 5 };
        let coefficients: Vec<f64> = (0..terms).map(|k| 2.0 / f64::from(2 * k + 3)).collect();
        let r = self.mul(square, self.polynomial(square, &coefficients)?)?;
        let low = self.sub(half_square, self.mul(s, self.add(half_square, r)?)?)?;
        let k = self.b.cast(Op::SIToFP, e, x.get_type())?;
        // ln 2 in two parts, the first short enough that its product with k is exact.
        let (ln_2, rest) = if self.double {
            (0.693_147_180_560_117_7, -1.723_944_452_561_483_5e-13)
        } else {
            (0.693_115_234_375, 3.194_618_329_871_446e-5)
        };
        let low = self.sub(low, self.mul(k, self.number(rest)?)?)?;
        let result = self.fma(k, self.number(ln_2)?, self.sub(f, low)?)?;
        // ln 0, infinity, NaN, and a zero with its sign.
        let finite = self.b.compare_float(FloatPredicate::OLT, x, self.number(f64::INFINITY)?)?;
        let result = self.b.select(finite, result, x)?;
        let is_zero = self.b.compare_float(FloatPredicate::OEQ, x, zero)?;
        let result = self.b.select(is_zero, x, result)?;
        let end = self.b.compare_float(FloatPredicate::OEQ, x, self.number(-1.0)?)?;
        let result = self.b.select(end, self.number(f64::NEG_INFINITY)?, result)?;
        self.b.select(self.less(x, -1.0)?, self.number(f64::NAN)?, result)
    }

    /// log2 of a positive finite number.
    fn log2_in_words(&self, x: Value<'c>) -> Result<Words<'c>> {
        let (_, mantissa, bias) = self.format();
        let subnormal = self.less(x, 2f64.powi(1 - bias as i32))?;
        let raised = self.mul(x, self.number(2f64.powi(mantissa as i32))?)?;
        let raw = self.bits(self.b.select(subnormal, raised, x)?)?;
        let (e, field) = self.exponent(raw)?;
        let m = self.float_of(self.b.binary(Op::Sub, raw, field)?)?;
        let one = self.number(1.0)?;
        // s = (m - 1) / (m + 1), the divisor in two words.
        let (above, below) = (self.sub(m, one)?, self.sum_of(one, m)?);
        let swapped = self.sum_of(m, one)?;
        let larger = self.b.compare_float(FloatPredicate::OGT, m, one)?;
        let rest = self.b.select(larger, swapped.1, below.1)?;
        let inverse = self.div(one, below.0)?;
        let high = self.mul(above, inverse)?;
        let minus = self.b.negate(high)?;
        let left = self.fma(minus, rest, self.fma(minus, below.0, above)?)?;
        let s = (high, self.mul(left, inverse)?);
        // log2 m = 2 / ln 2 (s + s^3 (1/3 + s^2/5 + ..)), of which the last sum needs one word.
        let square = self.product_of(s, s)?;
        let terms = if self.double { 11 } else { 5 };
        let coefficients: Vec<f64> = (0..terms).map(|k| 1.0 / f64::from(2 * k + 5)).collect();
        let (third, third_rest) = self.words(&THIRD)?;
        let inner = self.sum_of(third, self.mul(square.0, self.polynomial(square.0, &coefficients)?)?)?;
        let inner = (inner.0, self.add(inner.1, third_rest)?);
        let cubic = self.product_of(s, self.product_of(square, inner)?)?;
        let sum = self.sum_of(s.0, cubic.0)?;
        let sum = (sum.0, self.add(sum.1, self.add(s.1, cubic.1)?)?);
        let scaled = self.product_of(sum, self.words(&TWO_OVER_LN_2)?)?;
        let exponent = self.b.cast(Op::SIToFP, e, x.get_type())?;
        let correction = self.b.select(subnormal, self.number(-(mantissa as f64))?, self.number(0.0)?)?;
        let total = self.sum_of(self.add(exponent, correction)?, scaled.0)?;
        self.sum_of(total.0, self.add(total.1, scaled.1)?)
    }

    /// x to the power of y, with the special cases of IEEE 754 (and of C, annex F).
    pub(super) fn pow(&self, x: Value<'c>, y: Value<'c>) -> Result<Value<'c>> {
        let magnitude = self.power_of_magnitude(self.abs(x)?, y)?;
        let (zero, one, nan) = (self.number(0.0)?, self.number(1.0)?, self.number(f64::NAN)?);
        let is = |p, a, b| self.b.compare_float(p, a, b);
        let half = self.mul(y, self.number(0.5)?)?;
        let (whole, even) =
            (is(FloatPredicate::OEQ, self.truncated(y)?, y)?, is(FloatPredicate::OEQ, self.truncated(half)?, half)?);
        let odd = self.b.binary(Op::And, whole, self.b.binary(Op::Xor, even, self.b.truth(true).into())?)?;
        // The sign of x, negative zero and infinity too, is that of an odd power.
        let signed = self.with_sign(magnitude, x)?;
        let result = self.b.select(odd, signed, magnitude)?;
        // Of finite negative numbers there are whole powers alone.
        let negative = self.less(x, 0.0)?;
        let finite = is(FloatPredicate::OGT, x, self.number(f64::NEG_INFINITY)?)?;
        let broken = self.b.binary(Op::Xor, whole, self.b.truth(true).into())?;
        let none = self.b.binary(Op::And, self.b.binary(Op::And, negative, finite)?, broken)?;
        let result = self.b.select(none, nan, result)?;
        let result = self.b.select(is(FloatPredicate::UNO, x, y)?, nan, result)?;
        let result = self.b.select(is(FloatPredicate::OEQ, y, zero)?, one, result)?;
        self.b.select(is(FloatPredicate::OEQ, x, one)?, one, result)
    }

    /// [`Self::pow`] of a number that is not negative.
    fn power_of_magnitude(&self, x: Value<'c>, y: Value<'c>) -> Result<Value<'c>> {
        let (limit, most) = if self.double { (2f64.powi(100), 2040.0) } else { (2f64.powi(40), 250.0) };
        let log = self.log2_in_words(x)?;
        // Powers beyond the limit overflow and underflow as those at it, of every number but 1.
        let product = self.product_of((self.clamp(y, limit)?, self.number(0.0)?), log)?;
        let bounded = self.clamp(product.0, most)?;
        let inside = self.less(self.abs(product.0)?, most)?;
        let low = self.b.select(inside, product.1, self.number(0.0)?)?;
        let whole = self.nearest(bounded)?;
        let fraction = self.add(self.sub(bounded, whole)?, low)?;
        let power = self.scaled_exp(self.mul(fraction, self.number(LN_2)?)?, whole)?;
        let (zero, infinity) = (self.number(0.0)?, self.number(f64::INFINITY)?);
        let is_infinite = self.b.compare_float(FloatPredicate::OEQ, x, infinity)?;
        let is_zero = self.b.compare_float(FloatPredicate::OEQ, x, zero)?;
        let positive = self.b.compare_float(FloatPredicate::OGT, y, zero)?;
        let of_zero = self.b.select(positive, zero, infinity)?;
        let of_infinity = self.b.select(positive, infinity, zero)?;
        let power = self.b.select(is_zero, of_zero, power)?;
        self.b.select(is_infinite, of_infinity, power)
    }
}
