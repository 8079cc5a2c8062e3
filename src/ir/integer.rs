//! The operations of integer mode: data are integers modulo 2^32, so that every legal schedule is bit-equal to the naive program.
//!
//! - `+ - *` and negation are the ring's: sums may be taken in any order and products distributed.
//! - `min`, `max` and comparisons are those of u32; truth values are 0 and 1 and their logic is exact.
//! - `exp` and `exp2` are powers of an odd number of the operation and type, so that `exp(a) * exp(b)` is `exp(a + b)`.
//! - A cast to a type that can represent every value of its source is the identity; every other cast, and every
//!   other operation, is a fixed pseudo-random function of the operation, the types and the arguments.
//! - A literal of an integer value is that integer modulo 2^32 (0 and 1 are neutral); `-inf` is 0 and `inf` is the
//!   largest u32 (neutral for `max` and `min`); any other literal is a hash of its value, whatever its type.

use super::expr::{BinOp, Literal, UnOp};
use crate::dtype::DType;

/// A fixed mixing of 64 bits (the finaliser of splitmix64, <https://prng.di.unimi.it/splitmix64.c>).
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

pub(crate) fn hash(tag: u64, a: u64, b: u64) -> u32 {
    mix(mix(mix(tag) ^ a) ^ b) as u32
}

/// A literal.
pub(crate) fn literal(literal: Literal) -> u32 {
    match literal {
        Literal::Int(v) => v as u32,
        Literal::Float(v) if v == f64::NEG_INFINITY => 0,
        Literal::Float(v) if v == f64::INFINITY => u32::MAX,
        // The remainder is exact, also of values far beyond 2^64.
        Literal::Float(v) if v.fract() == 0.0 => (v % 4294967296.0) as i64 as u32,
        Literal::Float(v) => hash(0x11, v.to_bits(), 0),
        Literal::Any => hash(0x12, 0, 0),
    }
}

/// A binary operation on a type.
pub(crate) fn bin(op: BinOp, dtype: DType, a: u32, b: u32) -> u32 {
    match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::And if dtype == DType::Bool => a & b,
        BinOp::Or if dtype == DType::Bool => a | b,
        BinOp::Xor if dtype == DType::Bool => a ^ b,
        _ => hash(0x22 + ((op as u64) << 8) + ((dtype as u64) << 16), u64::from(a), u64::from(b)),
    }
}

/// A unary operation on a type.
pub(crate) fn un(op: UnOp, dtype: DType, a: u32) -> u32 {
    match op {
        UnOp::Neg => a.wrapping_neg(),
        UnOp::Not if dtype == DType::Bool => u32::from(a == 0),
        // A homomorphism, as the function that it represents is: g^(a + b) = g^a * g^b modulo 2^32, also where a + b wraps, as the order
        // of an odd g divides 2^30.
        UnOp::Exp | UnOp::Exp2 => (5 + ((op as u32) << 3) + ((dtype as u32) << 8)).wrapping_pow(a),
        _ => hash(0x33 + ((op as u64) << 8) + ((dtype as u64) << 16), u64::from(a), 0),
    }
}

/// A conversion.
pub(crate) fn cast(from: DType, to: DType, a: u32) -> u32 {
    conversion(from, to)(a)
}

/// The conversion between two types, to be applied to many data.
pub(crate) fn conversion(from: DType, to: DType) -> impl Fn(u32) -> u32 {
    let widens = from.widens_to(to);
    let tag = 0x44 + ((from as u64) << 8) + ((to as u64) << 16);
    move |a| match to {
        DType::Bool => u32::from(a != 0),
        _ if widens => a,
        _ => hash(tag, u64::from(a), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_neutral_where_they_should() {
        assert_eq!(literal(Literal::Float(0.0)), 0);
        assert_eq!(literal(Literal::Float(-1.0)), u32::MAX);
        assert_eq!(literal(Literal::Float(f64::NEG_INFINITY)), 0);
        assert_eq!(literal(Literal::Float(f64::from(f32::MIN))), 0);
        assert_ne!(literal(Literal::Float(0.5)), literal(Literal::Float(0.25)));
    }

    #[test]
    fn exponentials_turn_sums_into_products() {
        for op in [UnOp::Exp, UnOp::Exp2] {
            for dtype in [DType::F16, DType::F32] {
                let f = |a| un(op, dtype, a);
                for (a, b) in [(0, 7), (3, 4), (u32::MAX, 1), (0x8000_0001, 0x9000_0003), (u32::MAX, u32::MAX)] {
                    assert_eq!(f(a).wrapping_mul(f(b)), f(a.wrapping_add(b)), "{a} {b}");
                }
                assert_ne!(f(3), f(4));
            }
        }
        assert_ne!(un(UnOp::Exp, DType::F32, 3), un(UnOp::Exp2, DType::F32, 3));
    }
}
