//! Conversions: floats round to nearest even, floats to integers truncate and saturate (NaN is 0), integers wrap.

use super::body::Body;
use super::builder::Value;
use super::packed::is_packed;
use super::value::{Data, is_unsigned};
use crate::dtype::{Class, DType, TF32};
use crate::error::Result;
use inkwell::values::InstructionOpcode as Op;
use inkwell::{FloatPredicate, IntPredicate};

impl<'c> Body<'c, '_, '_> {
    /// Converts every lane.
    pub fn cast(&self, to: DType, from: Data<'c>) -> Result<Data<'c>> {
        if let Some(wide) = self.integers_to_halves(to, from)? {
            return Ok(wide);
        }
        match (is_packed(from.dtype), is_packed(to)) {
            _ if from.dtype == to => return Ok(from),
            (true, _) => return self.cast(to, self.spread_out(from)?),
            (_, true) => return self.cast_to_packed(to, from),
            _ if from.dtype.is_float8() => return self.cast(to, self.widen_float8(from)?),
            _ if to.is_float8() => return self.cast_to_float8(to, from),
            _ => {}
        }
        if from.dtype == DType::Tf32 {
            return self.cast(to, Data { value: self.tf32_to_f32(from)?, dtype: DType::F32, ..from });
        }
        if to == DType::Tf32 {
            return Ok(Data { value: self.to_tf32(from)?, dtype: to, lanes: from.lanes });
        }
        let value = match (from.dtype.class(), to.class()) {
            (Class::Float, Class::Float) => self.float_to_float(to, from)?,
            (Class::Float, Class::Bool) => {
                let zero = self.b.number(from.dtype, from.lanes, 0.0)?;
                self.b.compare_float(FloatPredicate::UNE, from.value, zero)?
            }
            (_, Class::Bool) => {
                let zero = self.b.number(from.dtype, from.lanes, 0.0)?;
                self.b.compare_int(IntPredicate::NE, from.value, zero)?
            }
            (Class::Float, _) => self.float_to_int(to, from)?,
            (_, Class::Float) => self.int_to_float(to, from)?,
            _ => self.int_to_int(to, from)?,
        };
        Ok(Data { value, dtype: to, lanes: from.lanes })
    }

    /// Floats saturate at the ends of the type, integers are cut.
    fn cast_to_packed(&self, to: DType, from: Data<'c>) -> Result<Data<'c>> {
        if !from.dtype.is_float() {
            return self.pack(self.cast(DType::S8, from)?, to);
        }
        let wide = self.cast(DType::S32, from)?;
        let (low, high) = match to {
            DType::B1 => (0, 1),
            DType::U4 => (0, 15),
            _ => (-8, 7),
        };
        let value = self.b.per_lane(&[wide.value], wide.lanes, |v| self.saturate(v[0], low, high))?;
        self.pack(Data { value, dtype: DType::S8, ..wide }, to)
    }

    /// By way of f32, which holds every value of a narrower type; wider values are rounded to odd first.
    fn cast_to_float8(&self, to: DType, from: Data<'c>) -> Result<Data<'c>> {
        if from.dtype != DType::F64 {
            return self.narrow_to_float8(to, self.cast(DType::F32, from)?);
        }
        let value = self.b.per_lane(&[from.value], from.lanes, |v| self.f64_to_odd(v[0]))?;
        self.narrow_to_float8(to, Data { value, dtype: DType::F32, ..from })
    }

    fn float_to_float(&self, to: DType, from: Data<'c>) -> Result<Value<'c>> {
        let ty = self.b.shape(to, from.lanes)?;
        match (from.dtype, to) {
            // There is no single conversion; f32 holds f16 exactly.
            (DType::F16, DType::Bf16) | (DType::Bf16, DType::F16) => {
                let wide = self.cast(DType::F32, from)?;
                self.b.cast(Op::FPTrunc, wide.value, ty)
            }
            (DType::F64, DType::Bf16) => self.b.per_lane(&[from.value], from.lanes, |v| self.f64_to_bf16(v[0])),
            (a, b) if a.bits() < b.bits() => self.b.cast(Op::FPExt, from.value, ty),
            _ => self.b.cast(Op::FPTrunc, from.value, ty),
        }
    }

    /// Rounding to f32 and then to bf16 would round twice. Rounded to odd first, the second rounding is the only one
    /// that counts (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums").
    fn f64_to_bf16(&self, x: Value<'c>) -> Result<Value<'c>> {
        self.b.cast(Op::FPTrunc, self.f64_to_odd(x)?, self.b.element(DType::Bf16)?)
    }

    /// An f64 as the f32 towards zero, its last bit 1 where that is not exact.
    fn f64_to_odd(&self, x: Value<'c>) -> Result<Value<'c>> {
        let truncated = self.b.intrinsic("llvm.nvvm.d2f.rz", &[], &[x])?;
        let back = self.b.cast(Op::FPExt, truncated, x.get_type())?;
        let inexact = self.b.compare_float(FloatPredicate::UNE, back, x)?;
        self.odd(truncated, inexact)
    }

    /// The f32 with its last bit set where it is inexact.
    fn odd(&self, truncated: Value<'c>, inexact: Value<'c>) -> Result<Value<'c>> {
        let bits = self.b.cast(Op::BitCast, truncated, self.b.i32().into())?;
        let sticky = self.b.cast(Op::ZExt, inexact, self.b.i32().into())?;
        let odd = self.b.binary(Op::Or, bits, sticky)?;
        self.b.cast(Op::BitCast, odd, self.b.element(DType::F32)?)
    }

    /// The bits that are the value.
    fn tf32_to_f32(&self, from: Data<'c>) -> Result<Value<'c>> {
        self.b.per_lane(&[from.value], from.lanes, |v| {
            let bits = self.b.reinterpret(v[0], self.b.i32().into())?;
            let value = self.b.binary(Op::And, bits, self.b.int(32, i64::from(TF32)).into())?;
            self.b.reinterpret(value, self.b.element(DType::F32)?)
        })
    }

    /// Rounded to nearest, ties away from zero, once: an f64 is first rounded to odd.
    fn to_tf32(&self, from: Data<'c>) -> Result<Value<'c>> {
        let float = self.b.element(DType::F32)?;
        let doubles = from.dtype == DType::F64;
        let from = if doubles { from } else { self.cast(DType::F32, from)? };
        self.b.per_lane(&[from.value], from.lanes, |v| {
            let x = if doubles { self.f64_to_odd(v[0])? } else { v[0] };
            let bits = self.b.reinterpret(x, self.b.i32().into())?;
            let up = self.b.binary(Op::Add, bits, self.b.int(32, i64::from(!TF32 / 2 + 1)).into())?;
            let rounded = self.b.binary(Op::And, up, self.b.int(32, i64::from(TF32)).into())?;
            let is_number = self.b.compare_float(FloatPredicate::ORD, x, x)?;
            let nan = self.b.int(32, i64::from(f32::NAN.to_bits() & TF32)).into();
            self.b.reinterpret(self.b.select(is_number, rounded, nan)?, float)
        })
    }

    fn float_to_int(&self, to: DType, from: Data<'c>) -> Result<Value<'c>> {
        if matches!(from.dtype, DType::F16 | DType::Bf16) {
            return self.float_to_int(to, self.cast(DType::F32, from)?);
        }
        let suffix = match to {
            DType::U32 => "2ui.rz",
            DType::S64 => "2ll.rz",
            _ => "2i.rz",
        };
        let letter = if from.dtype == DType::F64 { "d" } else { "f" };
        let name = format!("llvm.nvvm.{letter}{suffix}");
        self.b.per_lane(&[from.value], from.lanes, |v| {
            let wide = self.b.intrinsic(&name, &[], v)?;
            let wide = match from.dtype == DType::F64 || to == DType::S64 {
                true => self.nan_is_zero(v[0], wide)?,
                false => wide,
            };
            match to {
                DType::S8 => self.saturate(wide, -128, 127),
                DType::U8 => self.saturate(wide, 0, 255),
                _ => Ok(wide),
            }
        })
    }

    /// Conversions of or to 64 bits give the smallest number for a NaN on the hardware (tried on an H200).
    fn nan_is_zero(&self, x: Value<'c>, wide: Value<'c>) -> Result<Value<'c>> {
        let number = self.b.compare_float(FloatPredicate::ORD, x, x)?;
        self.b.select(number, wide, self.b.int(wide.into_int_value().get_type().get_bit_width(), 0).into())
    }

    fn saturate(&self, wide: Value<'c>, low: i64, high: i64) -> Result<Value<'c>> {
        let bound = |v: i64| Value::from(self.b.int(32, v));
        let wide = self.b.intrinsic("llvm.smax", &[wide.get_type()], &[wide, bound(low)])?;
        let wide = self.b.intrinsic("llvm.smin", &[wide.get_type()], &[wide, bound(high)])?;
        self.b.cast(Op::Trunc, wide, self.b.element(DType::S8)?)
    }

    fn int_to_float(&self, to: DType, from: Data<'c>) -> Result<Value<'c>> {
        if to == DType::Bf16 {
            return self.int_to_bf16(from);
        }
        let op = if is_unsigned(from.dtype) { Op::UIToFP } else { Op::SIToFP };
        self.b.cast(op, from.value, self.b.shape(to, from.lanes)?)
    }

    /// Through f32 rounded to odd, as in [`Body::f64_to_odd`]; exact for 8 bits anyway.
    fn int_to_bf16(&self, from: Data<'c>) -> Result<Value<'c>> {
        let wide = self.int_to_int(DType::S64, from)?;
        self.b.per_lane(&[wide], from.lanes, |v| {
            let truncated = self.b.intrinsic("llvm.nvvm.ll2f.rz", &[], v)?;
            let back = self.b.intrinsic("llvm.nvvm.f2ll.rz", &[], &[truncated])?;
            let inexact = self.b.compare_int(IntPredicate::NE, back, v[0])?;
            self.b.cast(Op::FPTrunc, self.odd(truncated, inexact)?, self.b.element(DType::Bf16)?)
        })
    }

    fn int_to_int(&self, to: DType, from: Data<'c>) -> Result<Value<'c>> {
        let bits = |d: DType| if d == DType::Bool { 1 } else { d.bits() };
        let op = match bits(to).cmp(&bits(from.dtype)) {
            std::cmp::Ordering::Less => Op::Trunc,
            std::cmp::Ordering::Equal => return Ok(from.value),
            std::cmp::Ordering::Greater if is_unsigned(from.dtype) => Op::ZExt,
            std::cmp::Ordering::Greater => Op::SExt,
        };
        self.b.cast(op, from.value, self.b.shape(to, from.lanes)?)
    }
}
