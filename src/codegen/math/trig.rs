//! sin and cos: x = q pi/2 + r with |r| <= pi/4, then the series of Taylor of r by what q mod 4 says.
//!
//! Up to 2^16 (f32) and 2^20 (f64) r is x less q times pi/2 in three parts (Cody and Waite): the first difference is exact. Beyond,
//! x 2/pi mod 4 is computed in integers from the bits of 2/pi that matter (Payne and Hanek, "Radian reduction for trigonometric
//! functions", 1983): x = M 2^E with an integer M, and bits of 2/pi in front of bit E - 1 make multiples of 4.

use super::super::body::Body;
use super::super::builder::Value;
use super::{Scalar, inverse_factorials};
use crate::error::Result;
use inkwell::FloatPredicate;
use inkwell::IntPredicate;
use inkwell::values::InstructionOpcode as Op;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// pi/2 in three parts of f32 and of f64.
const HALF_PI: [[f64; 3]; 2] = [
    [1.570_796_370_506_286_6, -4.371_138_828_673_793e-8, -1.715_124_510_005_881_9e-15],
    [FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33],
];

/// Bits of 2/pi, behind 64 bits of zeros.
const TWO_OVER_PI: [u32; 39] = [
    0,
    0,
    0xa2f9_836e,
    0x4e44_1529,
    0xfc27_57d1,
    0xf534_ddc0,
    0xdb62_9599,
    0x3c43_9041,
    0xfe51_63ab,
    0xdebb_c561,
    0xb724_6e3a,
    0x424d_d2e0,
    0x0649_2eea,
    0x09d1_921c,
    0xfe1d_eb1c,
    0xb129_a73e,
    0xe882_35f5,
    0x2ebb_4484,
    0xe99c_7026,
    0xb45f_7e41,
    0x3991_d639,
    0x8353_39f4,
    0x9c84_5f8b,
    0xbdf9_283b,
    0x1ff8_97ff,
    0xde05_980f,
    0xef2f_118b,
    0x5a0a_6d1f,
    0x6d36_7ecf,
    0x27cb_09b7,
    0x4f46_3f66,
    0x9e5f_ea2d,
    0x7527_bac7,
    0xebe5_f17b,
    0x3d07_39f7,
    0x8a52_92ea,
    0x6bfb_5fb1,
    0x1f8d_5d08,
    0x5603_3046,
];

impl<'c> Body<'c, '_, '_> {
    /// sin(x + quarters pi/2).
    pub(super) fn sine(&self, s: &Scalar<'_, 'c, '_>, x: Value<'c>, quarters: i64) -> Result<Value<'c>> {
        let (r, q) = self.reduced(s, x)?;
        let int = |v: i64| Value::from(self.b.int(32, v));
        let q = self.b.binary(Op::Add, q, int(quarters))?;
        let square = s.mul(r, r)?;
        let (odd, even) = series(s.double);
        let sine = s.fma(s.mul(r, square)?, s.polynomial(square, &odd)?, r)?;
        let cosine = s.fma(square, s.polynomial(square, &even)?, s.number(1.0)?)?;
        let bit = |n: i64| self.b.compare_int(IntPredicate::NE, self.b.binary(Op::And, q, int(n))?, int(0));
        let value = self.b.select(bit(1)?, cosine, sine)?;
        let value = self.b.select(bit(2)?, self.b.negate(value)?, value)?;
        if quarters != 0 {
            return Ok(value);
        }
        // The sine of a negative zero is one.
        let zero = self.b.compare_float(FloatPredicate::OEQ, x, s.number(0.0)?)?;
        self.b.select(zero, x, value)
    }

    /// The rest r of a number and its quotient q, an integer of 32 bits; NaN and infinities have a rest of NaN.
    fn reduced(&self, s: &Scalar<'_, 'c, '_>, x: Value<'c>) -> Result<(Value<'c>, Value<'c>)> {
        let bound = s.number(if s.double { 2f64.powi(20) } else { 2f64.powi(16) })?;
        let large = self.b.compare_float(FloatPredicate::OGT, s.abs(x)?, bound)?;
        let (near, far, after) = (self.new_block("near"), self.new_block("far"), self.new_block("reduced"));
        self.b.branch(large, far, near)?;
        self.b.at_end(near);
        let close = s.near(x)?;
        let near = self.b.here()?;
        self.b.jump(after)?;
        self.b.at_end(far);
        let distant = s.far(x)?;
        let far = self.b.here()?;
        self.b.jump(after)?;
        self.b.at_end(after);
        let r = self.b.join((close.0, near), (distant.0, far))?;
        Ok((r, self.b.join((close.1, near), (distant.1, far))?))
    }
}

impl<'c> Scalar<'_, 'c, '_> {
    fn near(&self, x: Value<'c>) -> Result<(Value<'c>, Value<'c>)> {
        let whole = self.nearest(self.mul(x, self.number(FRAC_2_PI)?)?)?;
        let minus = self.b.negate(whole)?;
        let mut r = x;
        for part in HALF_PI[usize::from(self.double)] {
            r = self.fma(minus, self.number(part)?, r)?;
        }
        Ok((r, self.b.intrinsic(if self.double { "llvm.nvvm.d2i.rz" } else { "llvm.nvvm.f2i.rz" }, &[], &[whole])?))
    }

    fn far(&self, x: Value<'c>) -> Result<(Value<'c>, Value<'c>)> {
        let (bits, mantissa, bias) = self.format();
        let (i32t, i64t) = (self.b.i32().into(), self.b.int(64, 0).get_type().into());
        let int = |v: i64| Value::from(self.b.int(32, v));
        let own = |v: i64| Value::from(self.b.int(bits, v));
        let raw = self.bits(x)?;
        // x = M 2^E; the window of 2/pi begins at bit E - 1, which behind 64 zeros is bit E + 62.
        let field = self.b.binary(Op::And, self.b.binary(Op::LShr, raw, own(mantissa))?, own(2 * bias + 1))?;
        let exponent = if self.double { self.b.cast(Op::Trunc, field, i32t)? } else { field };
        let first = self.b.binary(Op::Add, exponent, int(62 - bias - mantissa))?;
        let m = self.b.binary(Op::And, raw, own((1 << mantissa) - 1))?;
        let m = self.b.binary(Op::Or, m, own(1 << mantissa))?;
        let limbs = if self.double {
            vec![self.b.cast(Op::Trunc, m, i32t)?, self.b.cast(Op::Trunc, self.b.binary(Op::LShr, m, own(32))?, i32t)?]
        } else {
            vec![m]
        };
        let window = self.window(first, if self.double { 6 } else { 3 })?;
        let product = self.product_low(&limbs, &window)?;
        let top = product[product.len() - 1];
        // Two bits of quotient; the fraction behind them is rounded to the nearest quotient and made a magnitude.
        let quotient = self.b.binary(Op::LShr, top, int(30))?;
        let upper = self.b.binary(Op::LShr, self.b.binary(Op::Shl, top, int(2))?, int(31))?;
        let quotient = self.b.binary(Op::Add, quotient, upper)?;
        let mask = self.b.binary(Op::Sub, int(0), upper)?;
        let mut digits = Vec::new();
        for i in (0..product.len()).rev() {
            let below = if i == 0 { int(0) } else { product[i - 1] };
            let shifted = self.b.intrinsic("llvm.fshl", &[i32t], &[product[i], below, int(2)])?;
            digits.push(self.b.binary(Op::Xor, shifted, mask)?);
        }
        let fraction = self.fraction(&digits, i64t)?;
        let [high, low, _] = HALF_PI[usize::from(self.double)];
        let r = self.fma(fraction, self.number(high)?, self.mul(fraction, self.number(low)?)?)?;
        // The sign of the rest: that of x, turned where the quotient was rounded up; and of the quotient.
        let up = self.b.compare_int(IntPredicate::NE, upper, int(0))?;
        let r = self.b.select(up, self.b.negate(r)?, r)?;
        let negative = self.less(x, 0.0)?;
        let r = self.b.select(negative, self.b.negate(r)?, r)?;
        let quotient = self.b.select(negative, self.b.binary(Op::Sub, int(0), quotient)?, quotient)?;
        let finite = self.b.compare_float(FloatPredicate::OLT, self.abs(x)?, self.number(f64::INFINITY)?)?;
        Ok((self.b.select(finite, r, self.number(f64::NAN)?)?, quotient))
    }

    /// Words of 2/pi from a bit on, the first word first.
    fn window(&self, first: Value<'c>, count: usize) -> Result<Vec<Value<'c>>> {
        let int = |v: i64| Value::from(self.b.int(32, v));
        let word = self.b.binary(Op::LShr, first, int(5))?;
        let shift = self.b.binary(Op::And, first, int(31))?;
        // f32 begins in one of the first 8 words. Each bit of the number chooses between words that are as far apart.
        let digits: &[usize] = if self.double { &[32, 16, 8, 4, 2, 1] } else { &[4, 2, 1] };
        let mut words: Vec<Value> = TWO_OVER_PI.iter().map(|w| int(i64::from(*w))).collect();
        for (n, digit) in digits.iter().enumerate() {
            let later: usize = digits[n + 1..].iter().sum();
            let set = self.b.binary(Op::And, word, int(*digit as i64))?;
            let set = self.b.compare_int(IntPredicate::NE, set, int(0))?;
            let choose = |i: usize| match (words.get(i), words.get(i + digit)) {
                (Some(low), Some(high)) => self.b.select(set, *high, *low).map(Some),
                (low, _) => Ok(low.copied()),
            };
            words = (0..=later + count).filter_map(|i| choose(i).transpose()).collect::<Result<_>>()?;
        }
        let pairs = words.windows(2).take(count);
        pairs.map(|w| self.b.intrinsic("llvm.fshl", &[w[0].get_type()], &[w[0], w[1], shift])).collect()
    }

    /// The lowest words of a product, as many as the window has, the lowest first.
    fn product_low(&self, limbs: &[Value<'c>], window: &[Value<'c>]) -> Result<Vec<Value<'c>>> {
        let i64t = self.b.int(64, 0).get_type().into();
        let (mask, half) = (Value::from(self.b.int(64, 0xffff_ffff)), Value::from(self.b.int(64, 32)));
        let wide = |v: Value<'c>| self.b.cast(Op::ZExt, v, i64t);
        let count = window.len();
        let mut columns: Vec<Vec<Value>> = vec![Vec::new(); count + 1];
        for (i, limb) in limbs.iter().enumerate() {
            for (j, word) in window.iter().rev().enumerate().filter(|(j, _)| i + j < count) {
                let product = self.b.binary(Op::Mul, wide(*limb)?, wide(*word)?)?;
                columns[i + j].push(self.b.binary(Op::And, product, mask)?);
                columns[i + j + 1].push(self.b.binary(Op::LShr, product, half)?);
            }
        }
        let mut carry = Value::from(self.b.int(64, 0));
        let mut out = Vec::new();
        for column in columns.iter().take(count) {
            for part in column {
                carry = self.b.binary(Op::Add, carry, *part)?;
            }
            out.push(self.b.cast(Op::Trunc, carry, self.b.i32().into())?);
            carry = self.b.binary(Op::LShr, carry, half)?;
        }
        Ok(out)
    }

    /// The number 0.d0 d1 d2 .. of words, rounded: no part is negative, so no digit is lost.
    fn fraction(&self, digits: &[Value<'c>], i64t: super::super::builder::Type<'c>) -> Result<Value<'c>> {
        let ty = self.b.element(self.dtype())?;
        let mut sum = None;
        for (n, pair) in digits.chunks(2).enumerate().rev() {
            let high = self.b.cast(Op::ZExt, pair[0], i64t)?;
            let high = self.b.binary(Op::Shl, high, self.b.int(64, 32).into())?;
            let low = match pair.get(1) {
                Some(low) => self.b.cast(Op::ZExt, *low, i64t)?,
                None => self.b.int(64, 0).into(),
            };
            let whole = self.b.cast(Op::UIToFP, self.b.binary(Op::Or, high, low)?, ty)?;
            let scale = self.number(2f64.powi(-64 * (n as i32 + 1)))?;
            sum = Some(match sum {
                Some(sum) => self.fma(whole, scale, sum)?,
                None => self.mul(whole, scale)?,
            });
        }
        sum.map_or_else(|| self.number(0.0), Ok)
    }
}

/// Coefficients in r^2 of (sin r - r) / r^3 and (cos r - 1) / r^2.
fn series(double: bool) -> (Vec<f64>, Vec<f64>) {
    let factorials = inverse_factorials(if double { 20 } else { 12 });
    let signed = |(n, f): (usize, &f64)| if n % 2 == 0 { -f } else { *f };
    let odd = factorials.iter().skip(3).step_by(2).enumerate().map(signed).collect();
    (odd, factorials.iter().skip(2).step_by(2).enumerate().map(signed).collect())
}
