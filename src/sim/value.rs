//! What a datum is and what the operations do to it, in the real types and in integer mode.
//!
//! A register lane holds 64 bits. Real mode: the types of up to 32 bits of floating point are there as the bits of an
//! `f32` whose value the type can represent, `f64` as its bits, integers sign- or zero-extended to 64 bits, truth as
//! 0 or 1. Every operation rounds to its type at once, so that the width of the register never shows. (f32 has more
//! than twice the precision of the narrower types: rounding twice is harmless for + - * / and square root.)
//! Transcendental functions are computed in f64 and rounded: they are nearer to the truth than a GPU's.
//!
//! Integer mode ([`super::Mode::Integer`]): see [`super::integer`].

use crate::array::{erf, fp8_bits, fp8_value, tf32};
use crate::dtype::{Class, DType};
use crate::ir::{BinOp, Literal, UnOp};
use half::{bf16, f16};
use std::sync::LazyLock;

/// How a register lane is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberKind {
    /// Bits of an f32.
    F32,
    /// Bits of an f64.
    F64,
    /// An i64 that fits the type.
    Int,
    /// A u32 of integer mode.
    Integer,
}

/// How a type is in a register, in real mode.
pub(super) fn kind_of(dtype: DType) -> NumberKind {
    match dtype.class() {
        Class::Float if dtype == DType::F64 => NumberKind::F64,
        Class::Float => NumberKind::F32,
        _ => NumberKind::Int,
    }
}

static E4M3: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|i| fp8_value(i as u8, 4, 3) as f32));
static E5M2: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|i| fp8_value(i as u8, 5, 2) as f32));

/// The value of an 8-bit float.
pub(super) fn fp8_to_f32(dtype: DType, code: u8) -> f32 {
    if dtype == DType::E4m3 { E4M3[code as usize] } else { E5M2[code as usize] }
}

/// The code of the 8-bit float nearest to a value.
pub(super) fn f32_to_fp8(dtype: DType, value: f32) -> u8 {
    if dtype == DType::E4m3 { fp8_bits(f64::from(value), 4, 3) } else { fp8_bits(f64::from(value), 5, 2) }
}

/// The code of a value that the 8-bit float has. Conversions saturate; an infinity is one that was read.
pub(super) fn fp8_code(dtype: DType, value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    if dtype == DType::E5m2 && value.is_infinite() { sign | 0x7C } else { f32_to_fp8(dtype, value) }
}

/// Rounds to a floating-point type of at most 32 bits.
pub(super) fn round_f32(dtype: DType, v: f32) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(v).to_f32(),
        DType::Bf16 => bf16::from_f32(v).to_f32(),
        DType::Tf32 => tf32(f64::from(v)),
        DType::E4m3 | DType::E5m2 => fp8_to_f32(dtype, f32_to_fp8(dtype, v)),
        _ => v,
    }
}

/// f64 to f32 rounded to odd: rounding the result once more to a narrower type gives what one rounding would.
fn f64_to_f32_odd(v: f64) -> f32 {
    let near = v as f32;
    if !near.is_finite() || f64::from(near) == v || near.to_bits() & 1 == 1 {
        return near;
    }
    // `near` is even and not exact: the odd neighbour on the side of `v` is the one wanted.
    let away = (f64::from(near).abs() < v.abs()) as u32;
    if near == 0.0 {
        return f32::from_bits((v.is_sign_negative() as u32) << 31 | 1);
    }
    f32::from_bits(if away == 1 { near.to_bits() + 1 } else { near.to_bits() - 1 })
}

/// Rounds an f64 once to a floating-point type of at most 32 bits.
pub(super) fn round_f64(dtype: DType, v: f64) -> f32 {
    match dtype {
        DType::F32 => v as f32,
        DType::Tf32 => tf32(v),
        DType::E4m3 => fp8_to_f32(dtype, fp8_bits(v, 4, 3)),
        DType::E5m2 => fp8_to_f32(dtype, fp8_bits(v, 5, 2)),
        _ => round_f32(dtype, f64_to_f32_odd(v)),
    }
}

/// Wraps an integer to a type.
pub(super) fn wrap(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::S8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::S4 => v << 60 >> 60,
        DType::U4 => v & 15,
        DType::B1 | DType::Bool => v & 1,
        DType::S32 => i64::from(v as i32),
        DType::U32 => i64::from(v as u32),
        _ => v,
    }
}

/// The least and the largest value of an integer type.
fn int_range(dtype: DType) -> (i64, i64) {
    match dtype.class() {
        Class::Signed => {
            let top = i64::MAX >> (64 - dtype.bits());
            (-top - 1, top)
        }
        _ if matches!(dtype, DType::Bool | DType::B1) => (0, 1),
        _ => (0, (1i64 << dtype.bits()) - 1),
    }
}

/// The integer for an undefined value ([`Literal::Any`]).
const ANY: i64 = 0x5b5b_5b5b_5b5b_5b5b;

/// A literal as register bits, in real mode.
pub(super) fn literal(dtype: DType, literal: Literal) -> u64 {
    match (kind_of(dtype), literal) {
        (NumberKind::F64, Literal::Float(v)) => v.to_bits(),
        (NumberKind::F64, Literal::Int(v)) => (v as f64).to_bits(),
        (NumberKind::F32, Literal::Float(v)) => u64::from(round_f64(dtype, v).to_bits()),
        (NumberKind::F32, Literal::Int(v)) => u64::from(round_f64(dtype, v as f64).to_bits()),
        // A result that depends on an undefined value is wrong, so that a check finds it.
        (NumberKind::F64 | NumberKind::F32, Literal::Any) => self::literal(dtype, Literal::Float(f64::NAN)),
        (_, Literal::Any) => wrap(dtype, ANY) as u64,
        (_, Literal::Int(v)) => wrap(dtype, v) as u64,
        (_, Literal::Float(v)) => wrap(dtype, v as i64) as u64,
    }
}

/// An index as a datum of a type, in real mode.
pub(super) fn from_index(dtype: DType, v: i64) -> u64 {
    match kind_of(dtype) {
        NumberKind::F64 => (v as f64).to_bits(),
        NumberKind::F32 => u64::from(int_to_f32(dtype, v).to_bits()),
        _ => wrap(dtype, v) as u64,
    }
}

fn int_to_f32(dtype: DType, v: i64) -> f32 {
    if dtype == DType::F32 { v as f32 } else { round_f64(dtype, v as f64) }
}

/// Converts register bits from one type to another, in real mode.
pub(super) fn cast(from: DType, to: DType, bits: u64) -> u64 {
    match (kind_of(from), kind_of(to)) {
        (NumberKind::F32, NumberKind::F32) => u64::from(round_f32(to, f32_of(bits)).to_bits()),
        (NumberKind::F32, NumberKind::F64) => f64::from(f32_of(bits)).to_bits(),
        (NumberKind::F64, NumberKind::F32) => u64::from(round_f64(to, f64::from_bits(bits)).to_bits()),
        (NumberKind::F64, NumberKind::F64) => bits,
        (NumberKind::F32, _) => float_to_int(to, f64::from(f32_of(bits))) as u64,
        (NumberKind::F64, _) => float_to_int(to, f64::from_bits(bits)) as u64,
        (_, NumberKind::F32) => u64::from(int_to_f32(to, bits as i64).to_bits()),
        (_, NumberKind::F64) => (bits as i64 as f64).to_bits(),
        _ if to == DType::Bool => u64::from(bits != 0),
        _ => wrap(to, bits as i64) as u64,
    }
}

fn float_to_int(to: DType, v: f64) -> i64 {
    if to == DType::Bool {
        return i64::from(v != 0.0);
    }
    let (low, high) = int_range(to);
    (v as i64).clamp(low, high)
}

pub(super) fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// A binary operation on floats of either width, not rounded to a narrower type; `None` for those of integers alone.
macro_rules! bin_float {
    ($name:ident, $t:ty) => {
        #[inline(always)]
        pub(super) fn $name(op: BinOp, a: $t, b: $t) -> Option<$t> {
            Some(match op {
                BinOp::Add => a + b,
                BinOp::Sub => a - b,
                BinOp::Mul => a * b,
                BinOp::Div => a / b,
                BinOp::Min => a.min(b),
                BinOp::Max => a.max(b),
                // Through f64 and rounded, as the functions of one number.
                BinOp::Pow => f64::from(a).powf(f64::from(b)) as $t,
                _ => return None,
            })
        }
    };
}
bin_float!(bin_f32, f32);
bin_float!(bin_f64, f64);

/// A binary operation on integers, before wrapping; division is done apart. Shifts by the width or more shift
/// everything out.
#[inline(always)]
pub(super) fn bin_int(op: BinOp, a: i64, b: i64) -> i64 {
    match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Div => a.checked_div(b).unwrap_or(if b == 0 { 0 } else { a }),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
        BinOp::Shr => a >> b.clamp(0, 63),
        // Of floats alone: no program that verifies has it.
        BinOp::Pow => 0,
    }
}

/// A unary operation on an f64 (narrower floats go through it and are rounded).
pub(super) fn un_f64(op: UnOp, a: f64) -> Option<f64> {
    Some(match op {
        UnOp::Neg => -a,
        UnOp::Abs => a.abs(),
        UnOp::Exp => a.exp(),
        UnOp::Exp2 => a.exp2(),
        UnOp::Log => a.ln(),
        UnOp::Log2 => a.log2(),
        UnOp::Sqrt => a.sqrt(),
        UnOp::Rsqrt => 1.0 / a.sqrt(),
        UnOp::Tanh => a.tanh(),
        UnOp::Erf => erf(a),
        UnOp::Log1p => a.ln_1p(),
        UnOp::Sin => a.sin(),
        UnOp::Cos => a.cos(),
        UnOp::Not => return None,
    })
}

/// A unary operation on an integer, before wrapping.
pub(super) fn un_int(op: UnOp, dtype: DType, a: i64) -> Option<i64> {
    Some(match op {
        UnOp::Neg => a.wrapping_neg(),
        UnOp::Abs => a.wrapping_abs(),
        UnOp::Not if dtype == DType::Bool => i64::from(a == 0),
        UnOp::Not => !a,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_once_is_rounding_once() {
        // 1 + 2^-11 + 2^-40 is above the tie of f16; f32 alone would land on the tie and round down.
        let v = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(round_f64(DType::F16, v), 1.0 + 2f32.powi(-10));
        assert_eq!(round_f64(DType::F16, 1.0 + 2f64.powi(-11)), 1.0);
        assert_eq!(round_f64(DType::Bf16, -1.0 - 2f64.powi(-8) - 2f64.powi(-40)), -1.0 - 2f32.powi(-7));
        assert_eq!(round_f32(DType::Tf32, 1.0 + 2f32.powi(-11)), 1.0 + 2f32.powi(-10));
        assert_eq!(round_f32(DType::Tf32, 1.0 + 3.0 * 2f32.powi(-11)), 1.0 + 2f32.powi(-9));
    }

    #[test]
    fn casts_saturate_and_wrap() {
        let f = |v: f32| u64::from(v.to_bits());
        assert_eq!(cast(DType::F32, DType::S8, f(300.7)) as i64, 127);
        assert_eq!(cast(DType::F32, DType::S8, f(-1.9)) as i64, -1);
        assert_eq!(cast(DType::F32, DType::U8, f(-5.0)) as i64, 0);
        assert_eq!(cast(DType::F32, DType::S32, f(f32::NAN)) as i64, 0);
        assert_eq!(cast(DType::S32, DType::S8, 300) as i64, 44);
        assert_eq!(cast(DType::S32, DType::U4, -1i64 as u64), 15);
        assert_eq!(cast(DType::S32, DType::S4, 12) as i64, -4);
        assert_eq!(f32_of(cast(DType::F32, DType::F16, f(1.0 + 2f32.powi(-11)))), 1.0);
    }
}
