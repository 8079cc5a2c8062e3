//! Ring mode: data are integers modulo 2^32, so that every legal schedule is bit-equal to the naive program.
//!
//! - `+ - *` and negation are the ring's: sums may be taken in any order and products distributed.
//! - `min`, `max` and comparisons are those of u32; truth values are 0 and 1 and their logic is exact.
//! - A cast to a type that can represent every value of its source is the identity; every other cast, and every
//!   other operation, is a fixed pseudo-random function of the operation, the types and the arguments.
//! - A literal of an integer value is that integer modulo 2^32 (0 and 1 are neutral); `-inf` is 0 and `inf` is the
//!   largest u32 (neutral for `max` and `min`); any other literal is a hash of its value, whatever its type.
//! - An index as a datum is the index modulo 2^32. Index arithmetic itself stays exact.

use super::Limits;
use crate::array::Array;
use crate::dtype::{Class, DType};
use crate::error::{Error, Result};
use crate::ir::{BinOp, Buffer, Literal, UnOp};

/// A fixed mixing of 64 bits (the finaliser of splitmix64, <https://prng.di.unimi.it/splitmix64.c>).
pub(super) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

fn hash(tag: u64, a: u64, b: u64) -> u32 {
    mix(mix(mix(tag) ^ a) ^ b) as u32
}

/// The datum of an input element: the same for every stage of a program.
pub(super) fn input(seed: u64, param: usize, element: usize) -> u32 {
    hash(seed ^ 0x5EED, param as u64, element as u64)
}

/// A number as an index: that of its type which is equal to it modulo a power of two.
pub(super) fn index(dtype: DType, a: u32) -> i64 {
    let bits = dtype.bits().min(32);
    let cut = i64::from(a) & ((1 << bits) - 1);
    let negative = dtype.class() == Class::Signed && cut >> (bits - 1) != 0;
    if negative { cut - (1 << bits) } else { cut }
}

/// What the elements of an array can be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Domain {
    /// All numbers.
    All,
    /// Integers from a first one to an end.
    Values(i64, i64),
}

impl Domain {
    /// Of a buffer.
    pub fn of(buffer: &Buffer) -> Domain {
        match buffer.values {
            Some((low, end)) => Domain::Values(low, end),
            None if buffer.dtype == DType::Bool => Domain::Values(0, 2),
            None => Domain::All,
        }
    }

    /// One of them.
    pub fn pick(self, hash: u32) -> u32 {
        match self {
            Domain::All => hash,
            Domain::Values(low, end) => (low + i64::from(hash) % (end - low).max(1)) as u32,
        }
    }
}

/// A literal.
pub(super) fn literal(literal: Literal) -> u32 {
    match literal {
        Literal::Int(v) => v as u32,
        Literal::Float(v) if v == f64::NEG_INFINITY => 0,
        Literal::Float(v) if v == f64::INFINITY => u32::MAX,
        // The remainder is exact, also of values far beyond 2^64.
        Literal::Float(v) if v.fract() == 0.0 => (v % 4294967296.0) as i64 as u32,
        Literal::Float(v) => hash(0x11, v.to_bits(), 0),
    }
}

/// A binary operation on a type.
pub(super) fn bin(op: BinOp, dtype: DType, a: u32, b: u32) -> u32 {
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
pub(super) fn un(op: UnOp, dtype: DType, a: u32) -> u32 {
    match op {
        UnOp::Neg => a.wrapping_neg(),
        UnOp::Not if dtype == DType::Bool => u32::from(a == 0),
        _ => hash(0x33 + ((op as u64) << 8) + ((dtype as u64) << 16), u64::from(a), 0),
    }
}

/// A conversion.
pub(super) fn cast(from: DType, to: DType, a: u32) -> u32 {
    if to == DType::Bool {
        u32::from(a != 0)
    } else if from.widens_to(to) {
        a
    } else {
        hash(0x44 + ((from as u64) << 8) + ((to as u64) << 16), u64::from(a), 0)
    }
}

/// The arguments of a run in ring mode: an array of u32 for each span, each element a hash of the seed and its place.
pub(super) fn inputs(spans: &[(usize, Domain)], limits: &Limits, seed: u64) -> Result<Vec<Array>> {
    let bytes = spans.iter().try_fold(0u64, |sum, n| sum.checked_add(4 * n.0 as u64));
    if bytes.is_none_or(|n| n > limits.bytes) {
        return Err(Error::input("sim.limit", "the arguments need more memory than the simulator was allowed"));
    }
    let make = |(p, &(n, domain)): (usize, &(usize, Domain))| {
        let mut array = Array::zeros(DType::U32, &[n])?;
        for (i, cell) in array.bytes.chunks_exact_mut(4).enumerate() {
            cell.copy_from_slice(&domain.pick(input(seed, p, i)).to_le_bytes());
        }
        Ok(array)
    };
    spans.iter().enumerate().map(make).collect()
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
}
