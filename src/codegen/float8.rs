//! 8-bit floating-point numbers (e4m3, e5m2). LLVM has no type for them: an element is a byte that holds its code.
//!
//! Arithmetic is that of f32, rounded after every operation. Conversions to them round to nearest even, saturate at the largest
//! finite number, infinities too, and make 0x7F of NaN, as `cvt.rn.satfinite` does. Chips before sm_89 have no such instruction: there
//! the conversion is integer code, with the same results.

use super::body::Body;
use super::builder::Value;
use super::bulk::expand;
use super::value::{Data, vector_of};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::{Expr, Stmt, visit};
use crate::target::Features;
use inkwell::IntPredicate;
use inkwell::values::InstructionOpcode as Op;

const TO_FLOAT8: &str = include_str!("../../ptx-templates/cvt_to_float8.ptx");
const FROM_FLOAT8: &str = include_str!("../../ptx-templates/cvt_from_float8.ptx");

/// Bits of the fraction of an f32, and the bias of its exponent.
const F32_FRACTION: i64 = 23;
const F32_BIAS: i64 = 127;

/// The pattern of an infinite f32.
const F32_INFINITY: i64 = 0x7F80_0000;
/// The code of NaN that conversions write.
const NAN: i64 = 0x7F;

/// Whether a kernel has values of these types, which it may convert.
pub fn is_used_by(kernel: &LoweredKernel) -> bool {
    let mut found = kernel.func.buffers.iter().any(|b| b.dtype.is_float8());
    visit::walk(&kernel.func.body, &mut |s| {
        if let Stmt::Store(s) = s {
            visit::walk_expr(&s.value, &mut |e| found |= matches!(e, Expr::Cast(to, _) if to.is_float8()));
        }
    });
    found
}

/// A format of 8 bits.
#[derive(Debug, Clone, Copy)]
struct Format {
    /// Bits of the fraction.
    fraction: i64,
    bias: i64,
    /// The code of the largest finite number.
    largest: i64,
}

impl Format {
    fn of(dtype: DType) -> Format {
        match dtype {
            DType::E5m2 => Format { fraction: 2, bias: 15, largest: 0x7B },
            _ => Format { fraction: 3, bias: 7, largest: 0x7E },
        }
    }

    /// Bits of the fraction of an f32 that the format lacks.
    fn dropped(self) -> i64 {
        F32_FRACTION - self.fraction
    }

    /// The pattern of an f32.
    fn f32_bits(value: f64) -> i64 {
        i64::from((value as f32).to_bits())
    }

    /// The exponent of the smallest step.
    fn least_step(self) -> i32 {
        (1 - self.bias - self.fraction) as i32
    }
}

impl<'c> Body<'c, '_, '_> {
    /// As f16 or f32, exactly.
    pub fn widen_float8(&self, from: Data<'c>) -> Result<Data<'c>> {
        let native = self.b.features.contains(Features::FP8);
        let (value, dtype) = match from.dtype {
            _ if native => (self.widen_pairs(from)?, DType::F16),
            DType::E5m2 => (self.e5m2_to_f16(from)?, DType::F16),
            _ => (self.b.per_lane(&[from.value], from.lanes, |v| self.e4m3_to_f32(v[0]))?, DType::F32),
        };
        Ok(Data { value, dtype, lanes: from.lanes })
    }

    /// From f32, rounded and saturated.
    pub fn narrow_to_float8(&self, to: DType, from: Data<'c>) -> Result<Data<'c>> {
        let value = if self.b.features.contains(Features::FP8) {
            self.narrow_pairs(to, from)?
        } else {
            self.b.per_lane(&[from.value], from.lanes, |v| self.f32_to_float8(Format::of(to), v[0]))?
        };
        Ok(Data { value, dtype: to, lanes: from.lanes })
    }

    fn widen_pairs(&self, from: Data<'c>) -> Result<Value<'c>> {
        let (word, pair) = (self.b.i32().into(), self.b.int(16, 0).get_type().into());
        let text = expand(FROM_FLOAT8, &[("type", from.dtype.to_string())], &[("D", 1), ("S", 1)]);
        let convert = |codes: Value<'c>| self.b.pure_asm(text.clone(), "=r,h", word, &[codes]);
        let halves = self.b.shape(DType::F16, from.lanes)?;
        if from.lanes.is_multiple_of(2) {
            let codes = self.b.reinterpret(from.value, vector_of(pair, from.lanes / 2)?)?;
            let words = self.b.per_lane(&[codes], from.lanes / 2, |v| convert(v[0]))?;
            return self.b.reinterpret(words, halves);
        }
        self.b.per_lane(&[from.value], from.lanes, |v| {
            let word = convert(self.b.cast(Op::ZExt, v[0], pair)?)?;
            self.b.reinterpret(self.b.cast(Op::Trunc, word, pair)?, self.b.element(DType::F16)?)
        })
    }

    fn narrow_pairs(&self, to: DType, from: Data<'c>) -> Result<Value<'c>> {
        let pair = self.b.int(16, 0).get_type().into();
        let text = expand(TO_FLOAT8, &[("type", to.to_string())], &[("D", 1), ("H", 1), ("L", 1)]);
        let convert = |high: Value<'c>, low: Value<'c>| self.b.pure_asm(text.clone(), "=h,f,f", pair, &[high, low]);
        let codes = self.b.shape(to, from.lanes)?;
        if from.lanes.is_multiple_of(2) {
            let pairs = (0..from.lanes / 2)
                .map(|n| convert(self.b.lane(from.value, 2 * n + 1)?, self.b.lane(from.value, 2 * n)?))
                .collect::<Result<Vec<_>>>()?;
            return self.b.reinterpret(self.b.gather(&pairs)?, codes);
        }
        self.b
            .per_lane(&[from.value], from.lanes, |v| self.b.cast(Op::Trunc, convert(v[0], v[0])?, self.b.element(to)?))
    }

    /// The code is the upper byte of the f16.
    fn e5m2_to_f16(&self, from: Data<'c>) -> Result<Value<'c>> {
        let wide = vector_of(self.b.int(16, 0).get_type().into(), from.lanes)?;
        let codes = self.b.cast(Op::ZExt, from.value, wide)?;
        let eight = self.b.gather(&vec![self.b.int(16, 8).into(); from.lanes as usize])?;
        let bits = self.b.binary(Op::Shl, codes, eight)?;
        self.b.reinterpret(bits, self.b.shape(DType::F16, from.lanes)?)
    }

    /// Exponent and fraction moved to those of an f32 give the value times a power of two, of subnormal numbers too.
    fn e4m3_to_f32(&self, code: Value<'c>) -> Result<Value<'c>> {
        let format = Format::of(DType::E4m3);
        let int = |v: i64| Value::from(self.b.int(32, v));
        let (word, float) = (self.b.i32().into(), self.b.element(DType::F32)?);
        let code = self.b.cast(Op::ZExt, code, word)?;
        let magnitude = self.b.binary(Op::And, code, int(0x7F))?;
        let moved = self.b.binary(Op::Shl, magnitude, int(format.dropped()))?;
        let scale = self.b.number(DType::F32, 1, 2f64.powi((F32_BIAS - format.bias) as i32))?;
        let value = self.b.binary(Op::FMul, self.b.reinterpret(moved, float)?, scale)?;
        let nan = self.b.compare_int(IntPredicate::EQ, magnitude, int(NAN))?;
        let value = self.b.select(nan, self.b.number(DType::F32, 1, f64::NAN)?, value)?;
        let sign = self.b.binary(Op::And, code, int(0x80))?;
        let sign = self.b.binary(Op::Shl, sign, int(24))?;
        let bits = self.b.binary(Op::Or, self.b.reinterpret(value, word)?, sign)?;
        self.b.reinterpret(bits, float)
    }

    /// Normal numbers round in the pattern of the f32: half of what is dropped is added, less one where the last bit kept is even.
    /// Subnormal numbers round by the addition of the power of two whose last bit is the smallest step.
    fn f32_to_float8(&self, format: Format, x: Value<'c>) -> Result<Value<'c>> {
        let int = |v: i64| Value::from(self.b.int(32, v));
        let (word, float) = (self.b.i32().into(), self.b.element(DType::F32)?);
        let bits = self.b.reinterpret(x, word)?;
        let magnitude = self.b.binary(Op::And, bits, int(0x7FFF_FFFF))?;
        let dropped = format.dropped();
        let last = self.b.binary(Op::And, self.b.binary(Op::LShr, magnitude, int(dropped))?, int(1))?;
        let up = self.b.binary(Op::Add, last, int((1 << (dropped - 1)) - 1))?;
        let rounded = self.b.binary(Op::LShr, self.b.binary(Op::Add, magnitude, up)?, int(dropped))?;
        let normal = self.b.binary(Op::Sub, rounded, int((F32_BIAS - format.bias) << format.fraction))?;
        let normal = self.b.intrinsic("llvm.umin", &[word], &[normal, int(format.largest)])?;
        let power = 2f64.powi(format.least_step() + F32_FRACTION as i32);
        let size = self.b.reinterpret(magnitude, float)?;
        let sum = self.b.binary(Op::FAdd, size, self.b.number(DType::F32, 1, power)?)?;
        let subnormal = self.b.binary(Op::Sub, self.b.reinterpret(sum, word)?, int(Format::f32_bits(power)))?;
        let least = Format::f32_bits(2f64.powi((1 - format.bias) as i32));
        let small = self.b.compare_int(IntPredicate::ULT, magnitude, int(least))?;
        let code = self.b.select(small, subnormal, normal)?;
        let sign = self.b.binary(Op::And, self.b.binary(Op::LShr, bits, int(24))?, int(0x80))?;
        let code = self.b.binary(Op::Or, code, sign)?;
        let nan = self.b.compare_int(IntPredicate::UGT, magnitude, int(F32_INFINITY))?;
        let code = self.b.select(nan, int(NAN), code)?;
        self.b.cast(Op::Trunc, code, self.b.int(8, 0).get_type().into())
    }
}
