//! A value with how far a computed result may be from it: the operations on such pairs, and the types' units.

use super::float8;
use crate::array::erf;
use crate::dtype::{Class, DType};
use crate::ir::{BinOp, CmpOp, UnOp};

/// A value and its bound.
pub(super) type Pair = (f64, f64);

/// Roundoff of a function in units of its type, of which two are an ulp. A GPU's approximations are this good, and the sequences of
/// `codegen/math.rs` are at least twice as good as this.
fn function_units(op: UnOp) -> f64 {
    match op {
        UnOp::Sin | UnOp::Cos | UnOp::Log1p | UnOp::Erf => 8.0,
        _ => 16.0,
    }
}

/// Roundoff of a power in units.
const POWER_UNITS: f64 = 8.0;

/// Half the distance of neighbours relative to a value: the unit roundoff of a type.
pub(super) fn unit(dtype: DType) -> f64 {
    let digits = match dtype {
        DType::F16 | DType::Tf32 => 11,
        DType::Bf16 => 8,
        DType::F32 => 24,
        DType::F64 => 53,
        DType::E4m3 => 4,
        DType::E5m2 => 3,
        _ => return 0.0,
    };
    2f64.powi(-digits)
}

/// Half the smallest step of a type.
fn underflow(dtype: DType) -> f64 {
    let exponent = match dtype {
        DType::F16 => -25,
        DType::Bf16 => -134,
        DType::Tf32 => -137,
        DType::F32 => -150,
        DType::F64 => -1074,
        DType::E4m3 => -10,
        DType::E5m2 => -17,
        _ => return 0.0,
    };
    2f64.powi(exponent)
}

/// `gamma_n = n u / (1 - n u)` with twice the unit roundoff, since tensor cores may truncate.
pub(super) fn gamma(dtype: DType, n: f64) -> f64 {
    let nu = n * 2.0 * unit(dtype);
    if nu < 1.0 { nu / (1.0 - nu) } else { f64::INFINITY }
}

/// The bound of an element once it is stored in its type.
pub(super) fn stored(dtype: DType, v: f64, e: f64) -> f64 {
    e + unit(dtype) * v.abs() + underflow(dtype)
}

/// Adds one rounding to a bound.
fn rounded(dtype: DType, v: f64, e: f64) -> Pair {
    (v, e + unit(dtype) * (v.abs() + e) + underflow(dtype))
}

/// Wraps an integer to its type.
pub(super) fn wrap(dtype: DType, v: f64) -> f64 {
    let i = v as i64;
    (match dtype {
        DType::S8 => i64::from(i as i8),
        DType::U8 => i64::from(i as u8),
        DType::S4 => i << 60 >> 60,
        DType::U4 => i & 15,
        DType::B1 | DType::Bool => i & 1,
        DType::S32 => i64::from(i as i32),
        DType::U32 => i64::from(i as u32),
        _ => return v,
    }) as f64
}

/// A binary operation.
pub(super) fn bin(op: BinOp, dtype: DType, (a, ea): Pair, (b, eb): Pair) -> Pair {
    if !dtype.is_float() {
        return (wrap(dtype, integer(op, a, b)), unsure(op, (a, ea), (b, eb)));
    }
    match op {
        BinOp::Add => rounded(dtype, a + b, ea + eb),
        BinOp::Sub => rounded(dtype, a - b, ea + eb),
        BinOp::Mul => rounded(dtype, a * b, ea * b.abs() + eb * a.abs() + ea * eb),
        BinOp::Div => {
            let v = a / b;
            let e = if eb < b.abs() { (ea + v.abs() * eb) / (b.abs() - eb) } else { f64::INFINITY };
            rounded(dtype, v, if ea == 0.0 && eb == 0.0 { 0.0 } else { e })
        }
        BinOp::Min => (a.min(b), ea.max(eb)),
        BinOp::Max => (a.max(b), ea.max(eb)),
        BinOp::Pow => power(dtype, (a, ea), (b, eb)),
        _ => (f64::NAN, 0.0),
    }
}

/// A comparison. One that rounding may turn is unsure: its bound is 1.
pub(super) fn compare(op: CmpOp, (x, ex): Pair, (y, ey): Pair) -> Pair {
    let unsure = ex + ey > 0.0 && (x - y).abs() <= ex + ey;
    (f64::from(u8::from(op.holds(x.partial_cmp(&y)))), f64::from(u8::from(unsure)))
}

/// A choice.
pub(super) fn choose((c, unsure): Pair, a: Pair, b: Pair) -> Pair {
    let (chosen, other) = if c != 0.0 { (a, b) } else { (b, a) };
    if unsure == 0.0 { chosen } else { (chosen.0, chosen.1.max(other.1 + (chosen.0 - other.0).abs())) }
}

/// How far an integer may be off: only what comparisons of rounded numbers decide can be.
fn unsure(op: BinOp, (a, ea): Pair, (b, eb): Pair) -> f64 {
    if ea == 0.0 && eb == 0.0 {
        return 0.0;
    }
    match op {
        BinOp::Add | BinOp::Sub => ea + eb,
        BinOp::Mul => ea * b.abs() + eb * a.abs() + ea * eb,
        BinOp::Min | BinOp::Max => ea.max(eb),
        // Of truth values; of other integers whole digits may differ.
        BinOp::And | BinOp::Or | BinOp::Xor if a.abs() <= 1.0 && b.abs() <= 1.0 => 1.0,
        _ => f64::INFINITY,
    }
}

fn integer(op: BinOp, a: f64, b: f64) -> f64 {
    let (x, y) = (a as i64, b as i64);
    match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => x.wrapping_mul(y) as f64,
        BinOp::Div => x.checked_div(y).map_or(f64::NAN, |q| q as f64),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::And => (x & y) as f64,
        BinOp::Or => (x | y) as f64,
        BinOp::Xor => (x ^ y) as f64,
        BinOp::Shl => u32::try_from(y).ok().and_then(|y| x.checked_shl(y)).unwrap_or(0) as f64,
        BinOp::Shr => (x >> y.clamp(0, 63)) as f64,
        BinOp::Pow => f64::NAN,
    }
}

/// A unary operation. Bounds go through the largest slope within reach of the value.
pub(super) fn un(op: UnOp, dtype: DType, (a, e): Pair) -> Pair {
    if !dtype.is_float() {
        let i = a as i64;
        let v = match op {
            UnOp::Neg => i.wrapping_neg(),
            UnOp::Abs => i.wrapping_abs(),
            UnOp::Not if dtype == DType::Bool => i64::from(i == 0),
            _ => !i,
        };
        return (wrap(dtype, v as f64), e);
    }
    let reach = |f: &dyn Fn(f64) -> f64, slope: f64| {
        let v = f(a);
        let grown = if e == 0.0 { 0.0 } else { slope * e };
        (v, grown + function_units(op) * unit(dtype) * (v.abs() + grown) + underflow(dtype))
    };
    let low = a - e;
    match op {
        UnOp::Neg => (-a, e),
        UnOp::Abs => (a.abs(), e),
        UnOp::Exp => reach(&f64::exp, (a + e).exp()),
        UnOp::Exp2 => reach(&f64::exp2, (a + e).exp2()),
        UnOp::Log => reach(&f64::ln, above(low, |x| 1.0 / x)),
        UnOp::Log2 => reach(&f64::log2, above(low, |x| std::f64::consts::LOG2_E / x)),
        UnOp::Sqrt => reach(&f64::sqrt, above(low, |x| 0.5 / x.sqrt())),
        UnOp::Rsqrt => reach(&|x| 1.0 / x.sqrt(), above(low, |x| 0.5 / (x * x.sqrt()))),
        UnOp::Tanh => reach(&f64::tanh, 1.0),
        UnOp::Erf => reach(&erf, std::f64::consts::FRAC_2_SQRT_PI),
        UnOp::Log1p => reach(&f64::ln_1p, above(1.0 + low, |x| 1.0 / x)),
        UnOp::Sin => reach(&f64::sin, 1.0),
        UnOp::Cos => reach(&f64::cos, 1.0),
        UnOp::Not => (f64::NAN, 0.0),
    }
}

/// A power. The logarithm of the result moves by what b ln a moves.
fn power(dtype: DType, (a, ea): Pair, (b, eb): Pair) -> Pair {
    let v = a.powf(b);
    let grown = if ea == 0.0 && eb == 0.0 {
        0.0
    } else {
        let moved = above(a - ea, |low| ea / low);
        v.abs() * (b.abs() * moved + eb * (a.ln().abs() + moved)).exp_m1()
    };
    (v, grown + POWER_UNITS * unit(dtype) * (v.abs() + grown) + underflow(dtype))
}

fn above(low: f64, slope: impl Fn(f64) -> f64) -> f64 {
    if low > 0.0 { slope(low) } else { f64::INFINITY }
}

/// A conversion.
pub(super) fn cast(from: DType, to: DType, (v, e): Pair) -> Pair {
    match (from.class(), to.class()) {
        (_, Class::Bool) => (f64::from(u8::from(v != 0.0)), f64::from(u8::from(e > 0.0 && v.abs() <= e))),
        (Class::Float, Class::Float) if from.widens_to(to) => (v, e),
        (_, Class::Float) => {
            let v = float8::saturated(to, v);
            // Exact where the value is one of the type's, as small integers and widened numbers are.
            let digits = v.abs() / 2f64.powi(v.abs().log2().floor() as i32 + 1) / unit(to);
            if e == 0.0 && (v == 0.0 || (digits.fract() == 0.0 && v.abs() >= 1.0)) {
                (v, 0.0)
            } else {
                rounded(to, v, e)
            }
        }
        (Class::Float, _) => {
            let (low, high) = integer_range(to);
            let whole = if v.is_nan() { 0.0 } else { v.trunc().clamp(low, high) };
            (whole, if e == 0.0 { 0.0 } else { e.ceil() })
        }
        _ => (wrap(to, v), e),
    }
}

fn integer_range(dtype: DType) -> (f64, f64) {
    let bits = dtype.bits() as i32;
    match dtype.class() {
        Class::Signed => (-2f64.powi(bits - 1), 2f64.powi(bits - 1) - 1.0),
        _ => (0.0, 2f64.powi(bits) - 1.0),
    }
}
