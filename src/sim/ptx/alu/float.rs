//! Floating-point instructions (PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions").
//!
//! `.approx` and `.full` instructions compute in f64 and round once: the model that the module's head states.

use super::round::{Format, Mode, add_to_odd};
use super::{Compare, Map1, Map2, Map3};

/// What a NaN of the hardware is.
const NAN_F32: u32 = 0x7fff_ffff;
const NAN_F64: u64 = 0x7fff_ffff_ffff_ffff;

#[inline(always)]
fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

#[inline(always)]
fn b(value: f32) -> u64 {
    u64::from(if value.is_nan() { NAN_F32 } else { value.to_bits() })
}

#[inline(always)]
fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

#[inline(always)]
fn q(value: f64) -> u64 {
    if value.is_nan() { NAN_F64 } else { value.to_bits() }
}

/// Subnormal numbers are zero where the instruction says `.ftz`.
#[inline(always)]
pub(in crate::sim::ptx) fn flush<const FTZ: bool>(value: f32) -> f32 {
    if FTZ && value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

#[inline(always)]
fn one<const FTZ: bool>(a: u64, op: impl Fn(f32) -> f32) -> u64 {
    b(flush::<FTZ>(op(flush::<FTZ>(f(a)))))
}

#[inline(always)]
fn two<const FTZ: bool>(x: u64, y: u64, op: impl Fn(f32, f32) -> f32) -> u64 {
    b(flush::<FTZ>(op(flush::<FTZ>(f(x)), flush::<FTZ>(f(y)))))
}

/// The smaller number; a NaN loses against a number, and -0 is smaller than 0.
fn least(x: f64, y: f64) -> f64 {
    match (x.is_nan(), y.is_nan()) {
        (true, _) => y,
        (_, true) => x,
        _ if x == y => {
            if x.is_sign_negative() {
                x
            } else {
                y
            }
        }
        _ => {
            if x < y {
                x
            } else {
                y
            }
        }
    }
}

fn most(x: f64, y: f64) -> f64 {
    -least(-x, -y)
}

fn or_nan(op: fn(f64, f64) -> f64, x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { op(x, y) }
}

fn approx(name: &str, x: f64) -> f64 {
    match name {
        "rcp" => 1.0 / x,
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "ex2" => x.exp2(),
        "lg2" => x.log2(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        _ => x.tanh(),
    }
}

macro_rules! approximate {
    ($function:ident, $name:literal) => {
        fn $function<const FTZ: bool>(a: u64) -> u64 {
            one::<FTZ>(a, |x| approx($name, f64::from(x)) as f32)
        }
    };
}

approximate!(rcp32, "rcp");
approximate!(sqrt32, "sqrt");
approximate!(rsqrt32, "rsqrt");
approximate!(ex2_32, "ex2");
approximate!(lg2_32, "lg2");
approximate!(sin32, "sin");
approximate!(cos32, "cos");
approximate!(tanh32, "tanh");

fn neg32<const FTZ: bool>(a: u64) -> u64 {
    one::<FTZ>(a, |x| -x)
}

fn abs32<const FTZ: bool>(a: u64) -> u64 {
    one::<FTZ>(a, f32::abs)
}

fn add32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| x + y)
}

fn sub32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| x - y)
}

fn mul32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| x * y)
}

fn div32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| x / y)
}

fn min32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| least(f64::from(x), f64::from(y)) as f32)
}

fn max32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| most(f64::from(x), f64::from(y)) as f32)
}

fn min_nan32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| or_nan(least, f64::from(x), f64::from(y)) as f32)
}

fn max_nan32<const FTZ: bool>(x: u64, y: u64) -> u64 {
    two::<FTZ>(x, y, |x, y| or_nan(most, f64::from(x), f64::from(y)) as f32)
}

fn fma32<const FTZ: bool>(x: u64, y: u64, z: u64) -> u64 {
    let [x, y, z] = [x, y, z].map(|n| flush::<FTZ>(f(n)));
    b(flush::<FTZ>(x.mul_add(y, z)))
}

/// `copysign a, b`: the sign of a, the rest of b.
fn copysign32(x: u64, y: u64) -> u64 {
    y & 0x7fff_ffff | x & 0x8000_0000
}

fn copysign64(x: u64, y: u64) -> u64 {
    y & (u64::MAX >> 1) | x & (1 << 63)
}

fn neg64(a: u64) -> u64 {
    q(-d(a))
}

fn abs64(a: u64) -> u64 {
    q(d(a).abs())
}

fn sqrt64(a: u64) -> u64 {
    q(d(a).sqrt())
}

fn rcp64(a: u64) -> u64 {
    q(1.0 / d(a))
}

fn rsqrt64(a: u64) -> u64 {
    q(1.0 / d(a).sqrt())
}

fn add64(x: u64, y: u64) -> u64 {
    q(d(x) + d(y))
}

fn sub64(x: u64, y: u64) -> u64 {
    q(d(x) - d(y))
}

fn mul64(x: u64, y: u64) -> u64 {
    q(d(x) * d(y))
}

fn div64(x: u64, y: u64) -> u64 {
    q(d(x) / d(y))
}

fn min64(x: u64, y: u64) -> u64 {
    q(least(d(x), d(y)))
}

fn max64(x: u64, y: u64) -> u64 {
    q(most(d(x), d(y)))
}

fn fma64(x: u64, y: u64, z: u64) -> u64 {
    q(d(x).mul_add(d(y), d(z)))
}

/// A format of 16 bits.
const fn half<const BF: bool>() -> Format {
    if BF { Format::BF16 } else { Format::F16 }
}

fn h<const BF: bool>(bits: u64) -> f64 {
    half::<BF>().value(bits & 0xffff)
}

fn r<const BF: bool>(value: f64) -> u64 {
    half::<BF>().round(value, Mode::Nearest, false)
}

fn neg16(a: u64) -> u64 {
    a ^ 0x8000
}

fn abs16(a: u64) -> u64 {
    a & 0x7fff
}

/// A sum or a product of two numbers of 11 bits is rounded once: f64 holds it, or it is rounded to odd.
fn add16<const BF: bool>(x: u64, y: u64) -> u64 {
    r::<BF>(add_to_odd(h::<BF>(x), h::<BF>(y)))
}

fn sub16<const BF: bool>(x: u64, y: u64) -> u64 {
    r::<BF>(add_to_odd(h::<BF>(x), -h::<BF>(y)))
}

fn mul16<const BF: bool>(x: u64, y: u64) -> u64 {
    r::<BF>(h::<BF>(x) * h::<BF>(y))
}

fn min16<const BF: bool>(x: u64, y: u64) -> u64 {
    r::<BF>(least(h::<BF>(x), h::<BF>(y)))
}

fn max16<const BF: bool>(x: u64, y: u64) -> u64 {
    r::<BF>(most(h::<BF>(x), h::<BF>(y)))
}

fn fma16<const BF: bool>(x: u64, y: u64, z: u64) -> u64 {
    r::<BF>(add_to_odd(h::<BF>(x) * h::<BF>(y), h::<BF>(z)))
}

fn ex2_16<const BF: bool>(x: u64) -> u64 {
    r::<BF>(h::<BF>(x).exp2())
}

fn tanh16<const BF: bool>(x: u64) -> u64 {
    r::<BF>(h::<BF>(x).tanh())
}

macro_rules! packed {
    ($name:ident, $of:ident) => {
        fn $name<const BF: bool>(x: u64, y: u64) -> u64 {
            $of::<BF>(x & 0xffff, y & 0xffff) | $of::<BF>(x >> 16, y >> 16) << 16
        }
    };
}

packed!(add_x2, add16);
packed!(sub_x2, sub16);
packed!(mul_x2, mul16);
packed!(min_x2, min16);
packed!(max_x2, max16);

fn fma_x2<const BF: bool>(x: u64, y: u64, z: u64) -> u64 {
    fma16::<BF>(x & 0xffff, y & 0xffff, z & 0xffff) | fma16::<BF>(x >> 16, y >> 16, z >> 16) << 16
}

fn neg_x2(a: u64) -> u64 {
    a ^ 0x8000_8000
}

fn abs_x2(a: u64) -> u64 {
    a & 0x7fff_7fff
}

macro_rules! with_ftz {
    ($ftz:expr, $name:ident as $kind:ty) => {
        Some(if $ftz { $name::<true> as $kind } else { $name::<false> as $kind })
    };
}

/// An instruction of one operand, by its name with `approx` or `rn`, and its type.
pub(in crate::sim::ptx) fn unary(name: &str, kind: &str, ftz: bool) -> Option<Map1> {
    match (name, kind) {
        ("neg", "f32") => with_ftz!(ftz, neg32 as Map1),
        ("abs", "f32") => with_ftz!(ftz, abs32 as Map1),
        ("sqrt.rn" | "sqrt.approx", "f32") => with_ftz!(ftz, sqrt32 as Map1),
        ("rcp.rn" | "rcp.approx", "f32") => with_ftz!(ftz, rcp32 as Map1),
        ("rsqrt.approx", "f32") => with_ftz!(ftz, rsqrt32 as Map1),
        ("ex2.approx", "f32") => with_ftz!(ftz, ex2_32 as Map1),
        ("lg2.approx", "f32") => with_ftz!(ftz, lg2_32 as Map1),
        ("sin.approx", "f32") => with_ftz!(ftz, sin32 as Map1),
        ("cos.approx", "f32") => with_ftz!(ftz, cos32 as Map1),
        ("tanh.approx", "f32") => with_ftz!(ftz, tanh32 as Map1),
        ("neg", "f64") => Some(neg64),
        ("abs", "f64") => Some(abs64),
        ("sqrt.rn", "f64") => Some(sqrt64),
        ("rcp.rn" | "rcp.approx", "f64") => Some(rcp64),
        ("rsqrt.approx", "f64") => Some(rsqrt64),
        ("neg", "f16" | "bf16") => Some(neg16),
        ("abs", "f16" | "bf16") => Some(abs16),
        ("neg", "f16x2" | "bf16x2") => Some(neg_x2),
        ("abs", "f16x2" | "bf16x2") => Some(abs_x2),
        ("ex2.approx", "f16") => Some(ex2_16::<false>),
        ("ex2.approx", "bf16") => Some(ex2_16::<true>),
        ("tanh.approx", "f16") => Some(tanh16::<false>),
        ("tanh.approx", "bf16") => Some(tanh16::<true>),
        _ => None,
    }
}

/// An instruction of two operands.
pub(in crate::sim::ptx) fn binary(name: &str, kind: &str, ftz: bool) -> Option<Map2> {
    match (name, kind) {
        ("add" | "add.rn", "f32") => with_ftz!(ftz, add32 as Map2),
        ("sub" | "sub.rn", "f32") => with_ftz!(ftz, sub32 as Map2),
        ("mul" | "mul.rn", "f32") => with_ftz!(ftz, mul32 as Map2),
        ("div.rn" | "div.full" | "div.approx", "f32") => with_ftz!(ftz, div32 as Map2),
        ("min", "f32") => with_ftz!(ftz, min32 as Map2),
        ("max", "f32") => with_ftz!(ftz, max32 as Map2),
        ("min.NaN", "f32") => with_ftz!(ftz, min_nan32 as Map2),
        ("max.NaN", "f32") => with_ftz!(ftz, max_nan32 as Map2),
        ("copysign", "f32") => Some(copysign32),
        ("add" | "add.rn", "f64") => Some(add64),
        ("sub" | "sub.rn", "f64") => Some(sub64),
        ("mul" | "mul.rn", "f64") => Some(mul64),
        ("div.rn", "f64") => Some(div64),
        ("min", "f64") => Some(min64),
        ("max", "f64") => Some(max64),
        ("copysign", "f64") => Some(copysign64),
        ("add" | "add.rn", "f16") => Some(add16::<false>),
        ("sub" | "sub.rn", "f16") => Some(sub16::<false>),
        ("mul" | "mul.rn", "f16") => Some(mul16::<false>),
        ("min", "f16") => Some(min16::<false>),
        ("max", "f16") => Some(max16::<false>),
        ("add" | "add.rn", "bf16") => Some(add16::<true>),
        ("sub" | "sub.rn", "bf16") => Some(sub16::<true>),
        ("mul" | "mul.rn", "bf16") => Some(mul16::<true>),
        ("min", "bf16") => Some(min16::<true>),
        ("max", "bf16") => Some(max16::<true>),
        ("add" | "add.rn", "f16x2") => Some(add_x2::<false>),
        ("sub" | "sub.rn", "f16x2") => Some(sub_x2::<false>),
        ("mul" | "mul.rn", "f16x2") => Some(mul_x2::<false>),
        ("min", "f16x2") => Some(min_x2::<false>),
        ("max", "f16x2") => Some(max_x2::<false>),
        ("add" | "add.rn", "bf16x2") => Some(add_x2::<true>),
        ("sub" | "sub.rn", "bf16x2") => Some(sub_x2::<true>),
        ("mul" | "mul.rn", "bf16x2") => Some(mul_x2::<true>),
        ("min", "bf16x2") => Some(min_x2::<true>),
        ("max", "bf16x2") => Some(max_x2::<true>),
        _ => None,
    }
}

/// fma.
pub(in crate::sim::ptx) fn ternary(name: &str, kind: &str, ftz: bool) -> Option<Map3> {
    match (name, kind) {
        ("fma.rn" | "mad.rn", "f32") => with_ftz!(ftz, fma32 as Map3),
        ("fma.rn" | "mad.rn", "f64") => Some(fma64),
        ("fma.rn", "f16") => Some(fma16::<false>),
        ("fma.rn", "bf16") => Some(fma16::<true>),
        ("fma.rn", "f16x2") => Some(fma_x2::<false>),
        ("fma.rn", "bf16x2") => Some(fma_x2::<true>),
        _ => None,
    }
}

trait Number {
    fn of(bits: u64) -> f64;
}

struct Single;
struct Flushed;
struct Double;
struct Half;
struct Brain;

impl Number for Single {
    fn of(bits: u64) -> f64 {
        f64::from(f(bits))
    }
}

impl Number for Flushed {
    fn of(bits: u64) -> f64 {
        f64::from(flush::<true>(f(bits)))
    }
}

impl Number for Double {
    fn of(bits: u64) -> f64 {
        d(bits)
    }
}

impl Number for Half {
    fn of(bits: u64) -> f64 {
        h::<false>(bits)
    }
}

impl Number for Brain {
    fn of(bits: u64) -> f64 {
        h::<true>(bits)
    }
}

/// A comparison that holds where one operand is NaN.
fn or_unordered<N: Number>(x: u64, y: u64, holds: impl Fn(std::cmp::Ordering) -> bool) -> bool {
    N::of(x).partial_cmp(&N::of(y)).is_none_or(holds)
}

fn comparison<N: Number>(name: &str) -> Option<Compare> {
    Some(match name {
        "eq" => |x, y| N::of(x) == N::of(y),
        // Ordered: false where one is NaN.
        "ne" => |x, y| N::of(x) < N::of(y) || N::of(x) > N::of(y),
        "lt" => |x, y| N::of(x) < N::of(y),
        "le" => |x, y| N::of(x) <= N::of(y),
        "gt" => |x, y| N::of(x) > N::of(y),
        "ge" => |x, y| N::of(x) >= N::of(y),
        "equ" => |x, y| or_unordered::<N>(x, y, |o| o.is_eq()),
        "neu" => |x, y| N::of(x) != N::of(y),
        "ltu" => |x, y| or_unordered::<N>(x, y, |o| o.is_lt()),
        "leu" => |x, y| or_unordered::<N>(x, y, |o| o.is_le()),
        "gtu" => |x, y| or_unordered::<N>(x, y, |o| o.is_gt()),
        "geu" => |x, y| or_unordered::<N>(x, y, |o| o.is_ge()),
        "num" => |x, y| !N::of(x).is_nan() && !N::of(y).is_nan(),
        "nan" => |x, y| N::of(x).is_nan() || N::of(y).is_nan(),
        _ => return None,
    })
}

/// A comparison of setp.
pub(in crate::sim::ptx) fn compare(name: &str, kind: &str, ftz: bool) -> Option<Compare> {
    match (kind, ftz) {
        ("f32", false) => comparison::<Single>(name),
        ("f32", true) => comparison::<Flushed>(name),
        ("f64", _) => comparison::<Double>(name),
        ("f16", _) => comparison::<Half>(name),
        ("bf16", _) => comparison::<Brain>(name),
        _ => None,
    }
}
