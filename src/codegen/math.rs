//! Functions of floating-point numbers, as short sequences.
//!
//! LLVM's NVPTX backend has no library behind it, so each function is written out. Narrower types compute in f32 and
//! round once. The largest errors, for f32 and f64 (in units of the last place unless stated):
//!
//! | function | f32 | f64 | how |
//! |---|---|---|---|
//! | sqrt | exact rounding | exact rounding | hardware |
//! | rsqrt | 2 | 2 | hardware approximation; 1 / sqrt |
//! | exp2 | 2 | 2 | hardware; Taylor on [-1/2, 1/2], scaled |
//! | exp | 2 | 2 | x = j ln 2 + f in two parts (Cody and Waite), then as exp2 |
//! | log, log2 | 4 | 4 | exponent and mantissa apart, then 2 atanh((m - 1) / (m + 1)) as a series |
//! | tanh | 4 | 8 | series near 0, else 1 - 2 / (e^2x + 1) |
//! | sin, cos | 2 | 2 | [`trig`]: Cody and Waite up to 2^16 (f64: 2^20), Payne and Hanek beyond; then Taylor |
//! | erf | 2 | 2 | [`error`]: polynomials that fit erf x / x below 1 and erfc x above |
//! | log1p | 2 | 2 | [`power`]: as log, without the rounding of 1 + x |
//! | pow | 2 | 2 | [`power`]: 2^(y log2 x) with the logarithm in two words |
//!
//! `tests/it/functions.rs` measures the last four rows on the emitted instructions.

mod error;
mod power;
mod trig;

use super::body::Body;
use super::builder::Value;
use super::session::bug;
use super::value::Data;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::UnOp;
use inkwell::FloatPredicate;
use inkwell::values::InstructionOpcode as Op;
use std::f64::consts::{LN_2, LOG2_E, SQRT_2};

/// Scalar arithmetic in f32 or f64, to write formulas with.
struct Scalar<'b, 'c, 'm> {
    b: &'b super::builder::Builder<'c, 'm>,
    double: bool,
}

impl<'c> Body<'c, '_, '_> {
    /// A function of every lane.
    pub fn function(&self, op: UnOp, a: Data<'c>) -> Result<Data<'c>> {
        if matches!(a.dtype, DType::F16 | DType::Bf16 | DType::Tf32 | DType::E4m3 | DType::E5m2) {
            let wide = self.cast(DType::F32, a)?;
            let result = self.function(op, wide)?;
            return self.cast(a.dtype, result);
        }
        let s = Scalar { b: self.b, double: a.dtype == DType::F64 };
        let value = self.b.per_lane(&[a.value], a.lanes, |v| match op {
            UnOp::Sqrt => self.b.intrinsic("llvm.sqrt", &[v[0].get_type()], v),
            UnOp::Rsqrt => s.rsqrt(v[0]),
            UnOp::Exp2 => s.exp2(v[0]),
            UnOp::Exp => s.exp(v[0]),
            UnOp::Log => s.log(v[0], 1.0),
            UnOp::Log2 => s.log(v[0], LOG2_E),
            UnOp::Tanh => s.tanh(v[0]),
            UnOp::Erf => s.erf(v[0]),
            UnOp::Log1p => s.log1p(v[0]),
            UnOp::Sin => self.sine(&s, v[0], 0),
            UnOp::Cos => self.sine(&s, v[0], 1),
            UnOp::Neg | UnOp::Abs | UnOp::Not => Err(bug("no function")),
        })?;
        Ok(Data { value, ..a })
    }

    /// `a` to the power of `b`, in every lane.
    pub fn power(&self, a: Data<'c>, b: Data<'c>) -> Result<Data<'c>> {
        if matches!(a.dtype, DType::F16 | DType::Bf16 | DType::Tf32 | DType::E4m3 | DType::E5m2) {
            let wide = self.power(self.cast(DType::F32, a)?, self.cast(DType::F32, b)?)?;
            return self.cast(a.dtype, wide);
        }
        let s = Scalar { b: self.b, double: a.dtype == DType::F64 };
        let value = self.b.per_lane(&[a.value, b.value], a.lanes, |v| s.pow(v[0], v[1]))?;
        Ok(Data { value, ..a })
    }
}

impl<'c> Scalar<'_, 'c, '_> {
    fn dtype(&self) -> DType {
        if self.double { DType::F64 } else { DType::F32 }
    }

    fn number(&self, value: f64) -> Result<Value<'c>> {
        self.b.number(self.dtype(), 1, value)
    }

    fn add(&self, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.b.binary(Op::FAdd, a, b)
    }

    fn sub(&self, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.b.binary(Op::FSub, a, b)
    }

    fn mul(&self, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.b.binary(Op::FMul, a, b)
    }

    fn div(&self, a: Value<'c>, b: Value<'c>) -> Result<Value<'c>> {
        self.b.binary(Op::FDiv, a, b)
    }

    fn fma(&self, a: Value<'c>, b: Value<'c>, c: Value<'c>) -> Result<Value<'c>> {
        self.b.intrinsic("llvm.fma", &[a.get_type()], &[a, b, c])
    }

    fn abs(&self, a: Value<'c>) -> Result<Value<'c>> {
        self.b.intrinsic("llvm.fabs", &[a.get_type()], &[a])
    }

    fn with_sign(&self, magnitude: Value<'c>, sign: Value<'c>) -> Result<Value<'c>> {
        self.b.intrinsic("llvm.copysign", &[magnitude.get_type()], &[magnitude, sign])
    }

    fn less(&self, a: Value<'c>, b: f64) -> Result<Value<'c>> {
        self.b.compare_float(FloatPredicate::OLT, a, self.number(b)?)
    }

    /// NaN stays NaN, which the clamps on the way lose.
    fn unless_nan(&self, x: Value<'c>, result: Value<'c>) -> Result<Value<'c>> {
        let number = self.b.compare_float(FloatPredicate::ORD, x, x)?;
        self.b.select(number, result, x)
    }

    fn clamp(&self, x: Value<'c>, bound: f64) -> Result<Value<'c>> {
        let ty = x.get_type();
        let x = self.b.intrinsic("llvm.maxnum", &[ty], &[x, self.number(-bound)?])?;
        self.b.intrinsic("llvm.minnum", &[ty], &[x, self.number(bound)?])
    }

    /// The sum of `coefficients[i] * x^i`, by Horner's rule.
    fn polynomial(&self, x: Value<'c>, coefficients: &[f64]) -> Result<Value<'c>> {
        let mut sum = self.number(0.0)?;
        for (i, c) in coefficients.iter().rev().enumerate() {
            sum = if i == 0 { self.number(*c)? } else { self.fma(sum, x, self.number(*c)?)? };
        }
        Ok(sum)
    }

    fn rsqrt(&self, x: Value<'c>) -> Result<Value<'c>> {
        if self.double {
            let root = self.b.intrinsic("llvm.sqrt", &[x.get_type()], &[x])?;
            return self.div(self.number(1.0)?, root);
        }
        self.b.intrinsic("llvm.nvvm.rsqrt.approx.f", &[], &[x])
    }

    fn hardware_exp2(&self, x: Value<'c>) -> Result<Value<'c>> {
        self.b.intrinsic("llvm.nvvm.ex2.approx.f", &[], &[x])
    }

    fn exp2(&self, x: Value<'c>) -> Result<Value<'c>> {
        if !self.double {
            return self.hardware_exp2(x);
        }
        let bounded = self.clamp(x, 2000.0)?;
        let whole = self.nearest(bounded)?;
        let rest = self.mul(self.sub(bounded, whole)?, self.number(LN_2)?)?;
        self.unless_nan(x, self.scaled_exp(rest, whole)?)
    }

    fn exp(&self, x: Value<'c>) -> Result<Value<'c>> {
        // ln 2 in two parts, the upper short enough that its product with a small integer is exact.
        let (high, low) = if self.double {
            (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10)
        } else {
            (0.693_359_375, -2.121_944_400_546_905_8e-4)
        };
        let bounded = if self.double { self.clamp(x, 1400.0)? } else { x };
        let quotient = self.mul(bounded, self.number(LOG2_E)?)?;
        let whole = if self.double { self.nearest(quotient)? } else { self.clamp(self.truncated(quotient)?, 126.0)? };
        let minus = self.b.negate(whole)?;
        let rest = self.fma(minus, self.number(high)?, bounded)?;
        let rest = self.fma(minus, self.number(low)?, rest)?;
        if self.double {
            return self.unless_nan(x, self.scaled_exp(rest, whole)?);
        }
        let fraction = self.hardware_exp2(self.mul(rest, self.number(LOG2_E)?)?)?;
        self.mul(fraction, self.hardware_exp2(whole)?)
    }

    fn nearest(&self, x: Value<'c>) -> Result<Value<'c>> {
        self.b.intrinsic("llvm.rint", &[x.get_type()], &[x])
    }

    fn truncated(&self, x: Value<'c>) -> Result<Value<'c>> {
        self.b.intrinsic("llvm.trunc", &[x.get_type()], &[x])
    }

    /// `e^rest * 2^whole` for |rest| <= 0.35, and |whole| <= 2040 in f64, 250 in f32: scaled in two steps, so that results
    /// below the normal range round once and those above overflow.
    fn scaled_exp(&self, rest: Value<'c>, whole: Value<'c>) -> Result<Value<'c>> {
        let (terms, to_int) = if self.double { (14, "llvm.nvvm.d2i.rz") } else { (8, "llvm.nvvm.f2i.rz") };
        let sum = self.polynomial(rest, &inverse_factorials(terms))?;
        let n = self.b.intrinsic(to_int, &[], &[whole])?;
        let half = self.b.binary(Op::AShr, n, self.b.int(32, 1).into())?;
        let other = self.b.binary(Op::Sub, n, half)?;
        let scaled = self.mul(sum, self.power_of_two(half)?)?;
        self.mul(scaled, self.power_of_two(other)?)
    }

    /// 2 to an integer of 32 bits, in the range of normal numbers.
    fn power_of_two(&self, n: Value<'c>) -> Result<Value<'c>> {
        let (bits, mantissa, bias) = self.format();
        let biased = self.b.binary(Op::Add, n, self.b.int(32, bias).into())?;
        let wide = self.b.cast(Op::ZExt, biased, self.b.int(bits, 0).get_type().into())?;
        let bits = self.b.binary(Op::Shl, wide, self.b.int(bits, mantissa).into())?;
        self.b.cast(Op::BitCast, bits, self.b.element(self.dtype())?)
    }

    /// Bits of the type, bits of its mantissa, and the bias of its exponent.
    fn format(&self) -> (u32, i64, i64) {
        if self.double { (64, 52, 1023) } else { (32, 23, 127) }
    }

    /// The bits of a number as an integer.
    fn bits(&self, x: Value<'c>) -> Result<Value<'c>> {
        self.b.cast(Op::BitCast, x, self.b.int(self.format().0, 0).get_type().into())
    }

    /// `scale * ln x`: with x = 2^e m and m in [1/sqrt 2, sqrt 2), ln m = 2 (s + s^3/3 + ..), s = (m - 1) / (m + 1).
    fn log(&self, x: Value<'c>, scale: f64) -> Result<Value<'c>> {
        let (bits, mantissa, smallest, terms) =
            if self.double { (64, 52, f64::MIN_POSITIVE, 12) } else { (32, 23, 2f64.powi(-126), 6) };
        let int = |v: i64| Value::from(self.b.int(bits, v));
        let subnormal = self.less(x, smallest)?;
        let raised = self.mul(x, self.number(2f64.powi(mantissa))?)?;
        let normal = self.b.select(subnormal, raised, x)?;
        let raw = self.b.cast(Op::BitCast, normal, int(0).get_type())?;
        // Counted from 1/sqrt 2, the exponent field is e and the rest is m.
        let sqrt_half_bits =
            if self.double { (SQRT_2 / 2.0).to_bits() as i64 } else { i64::from((SQRT_2 as f32 / 2.0).to_bits()) };
        let offset = self.b.binary(Op::Sub, raw, int(sqrt_half_bits))?;
        let e = self.b.binary(Op::AShr, offset, int(i64::from(mantissa)))?;
        let field = self.b.binary(Op::Shl, e, int(i64::from(mantissa)))?;
        let m = self.b.cast(Op::BitCast, self.b.binary(Op::Sub, raw, field)?, x.get_type())?;
        let one = self.number(1.0)?;
        let s = self.div(self.sub(m, one)?, self.add(m, one)?)?;
        let coefficients: Vec<f64> = (0..terms).map(|k| 2.0 * scale / f64::from(2 * k + 1)).collect();
        let series = self.mul(self.polynomial(self.mul(s, s)?, &coefficients)?, s)?;
        let exponent = self.b.cast(Op::SIToFP, e, x.get_type())?;
        let correction = self.b.select(subnormal, self.number(f64::from(-mantissa))?, self.number(0.0)?)?;
        let exponent = self.add(exponent, correction)?;
        let result = self.fma(exponent, self.number(scale * LN_2)?, series)?;
        self.log_edges(x, result)
    }

    /// ln 0 = -inf, ln inf = inf, and NaN below 0.
    fn log_edges(&self, x: Value<'c>, result: Value<'c>) -> Result<Value<'c>> {
        let infinity = self.number(f64::INFINITY)?;
        let finite = self.b.compare_float(FloatPredicate::OLT, x, infinity)?;
        let result = self.b.select(finite, result, x)?;
        let zero = self.number(0.0)?;
        let is_zero = self.b.compare_float(FloatPredicate::OEQ, x, zero)?;
        let result = self.b.select(is_zero, self.number(f64::NEG_INFINITY)?, result)?;
        let negative = self.b.compare_float(FloatPredicate::OLT, x, zero)?;
        self.b.select(negative, self.number(f64::NAN)?, result)
    }

    fn tanh(&self, x: Value<'c>) -> Result<Value<'c>> {
        let magnitude = self.abs(x)?;
        let near = self.mul(self.polynomial(self.mul(x, x)?, &TANH)?, x)?;
        let double = self.exp(self.add(magnitude, magnitude)?)?;
        let one = self.number(1.0)?;
        let far = self.sub(one, self.div(self.number(2.0)?, self.add(double, one)?)?)?;
        let far = self.with_sign(far, x)?;
        let bound = if self.double { 0.25 } else { 0.55 };
        self.b.select(self.less(magnitude, bound)?, near, far)
    }
}

/// Coefficients of tanh(x) / x in x^2 (Abramowitz and Stegun 4.5.64).
const TANH: [f64; 10] = [
    1.0,
    -1.0 / 3.0,
    2.0 / 15.0,
    -17.0 / 315.0,
    62.0 / 2835.0,
    -1382.0 / 155_925.0,
    21844.0 / 6_081_075.0,
    -929_569.0 / 638_512_875.0,
    6_404_582.0 / 10_854_718_875.0,
    -443_861_162.0 / 1_856_156_927_625.0,
];

/// 1 / i!.
fn inverse_factorials(count: usize) -> Vec<f64> {
    let mut factorial = 1.0;
    (0..count)
        .map(|i| {
            factorial *= i.max(1) as f64;
            1.0 / factorial
        })
        .collect()
}
