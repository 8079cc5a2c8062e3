//! The two arithmetics: integer mode, and exact small integers.

use super::types::{Kind, Type};
use super::{Unknown, compare};
use std::fmt::Debug;

/// What numbers are and what operations do to them.
pub trait Arithmetic {
    /// A number.
    type Number: Copy + PartialEq + Debug;
    /// What memory holds before it is written.
    const ZERO: Self::Number;
    /// What a maximum or minimum begins with, where that can be seen in the result.
    fn initial(reducer: &str, ty: Type) -> Option<Self::Number>;
    /// A literal, with its value as an integer where it has one.
    fn literal(ty: Type, real: f64, int: Option<i128>) -> Result<Self::Number, Unknown>;
    /// An index as a number.
    fn index(ty: Type, value: i64) -> Result<Self::Number, Unknown>;
    /// A truth value.
    fn truth(value: bool) -> Self::Number;
    /// A number of a type as an index.
    fn as_index(ty: Type, value: Self::Number) -> i64;
    /// Whether a truth value is true.
    fn is_true(value: Self::Number) -> bool;
    /// A comparison of data.
    fn compare(op: &str, ty: Type, a: Self::Number, b: Self::Number) -> Result<Self::Number, Unknown>;
    /// An operation on one number.
    fn unary(op: &str, ty: Type, a: Self::Number) -> Result<Self::Number, Unknown>;
    /// An operation on two numbers.
    fn binary(op: &str, ty: Type, a: Self::Number, b: Self::Number) -> Result<Self::Number, Unknown>;
    /// A conversion.
    fn cast(from: Type, to: Type, a: Self::Number) -> Result<Self::Number, Unknown>;
}

/// Integer mode: numbers modulo 2^32. Operations that it replaces by hashes are unknown here.
pub struct Integers;

impl Arithmetic for Integers {
    type Number = u32;
    const ZERO: u32 = 0;

    fn initial(reducer: &str, ty: Type) -> Option<u32> {
        // The least value of a signed type is a large number here.
        let (low, high) = ty.range()?;
        match reducer {
            "max" => Some(low as u32),
            "min" => Some(high as u32),
            _ => None,
        }
    }

    fn literal(_: Type, real: f64, int: Option<i128>) -> Result<u32, Unknown> {
        match int {
            Some(v) => Ok(v as u32),
            None if real == f64::INFINITY => Ok(u32::MAX),
            None if real == f64::NEG_INFINITY => Ok(0),
            None => Err(Unknown(format!("the literal {real}"))),
        }
    }

    fn index(_: Type, value: i64) -> Result<u32, Unknown> {
        Ok(value as u32)
    }

    fn as_index(ty: Type, value: u32) -> i64 {
        // The number of the type that is equal to it modulo a power of two.
        let bits = ty.bits.min(32);
        let cut = i64::from(value) & ((1 << bits) - 1);
        if ty.kind == Kind::Signed && cut >> (bits - 1) != 0 { cut - (1 << bits) } else { cut }
    }

    fn truth(value: bool) -> u32 {
        u32::from(value)
    }

    fn is_true(value: u32) -> bool {
        value != 0
    }

    fn compare(op: &str, _: Type, a: u32, b: u32) -> Result<u32, Unknown> {
        compare(op, &a, &b).map(u32::from)
    }

    fn unary(op: &str, ty: Type, a: u32) -> Result<u32, Unknown> {
        match op {
            "-" => Ok(0u32.wrapping_sub(a)),
            "~" if ty == Type::BOOL => Ok(1 - a.min(1)),
            _ => Err(Unknown(format!("{op} on {}", ty.name))),
        }
    }

    fn binary(op: &str, ty: Type, a: u32, b: u32) -> Result<u32, Unknown> {
        let truths = ty == Type::BOOL;
        Ok(match op {
            "+" => a.wrapping_add(b),
            "-" => a.wrapping_sub(b),
            "*" => a.wrapping_mul(b),
            "min" => a.min(b),
            "max" => a.max(b),
            "&" if truths => a & b,
            "|" if truths => a | b,
            "^" if truths => a ^ b,
            _ => return Err(Unknown(format!("{op} on {}", ty.name))),
        })
    }

    fn cast(from: Type, to: Type, a: u32) -> Result<u32, Unknown> {
        match from.fits_in(to) {
            None => Ok(u32::from(a != 0)),
            Some(true) => Ok(a),
            Some(false) => Err(Unknown(format!("{} to {}", from.name, to.name))),
        }
    }
}

/// An integer that a type holds, and how large any partial result behind it can be.
#[derive(Debug, Clone, Copy)]
pub struct Exact {
    /// The number.
    pub value: i128,
    /// No partial sum or product on the way, in any order, is larger in magnitude. Only floats ask for it.
    bound: i128,
}

impl PartialEq for Exact {
    fn eq(&self, other: &Exact) -> bool {
        self.value == other.value
    }
}

impl Exact {
    /// A given number.
    pub fn of(value: i128) -> Exact {
        Exact { value, bound: value.abs() }
    }

    /// A result in a type: wrapped into an integer type, refused where a float type might round.
    fn held(ty: Type, value: i128, bound: i128) -> Result<Exact, Unknown> {
        let Some((low, high)) = ty.range() else {
            return match bound <= ty.exact() {
                true => Ok(Exact { value, bound }),
                false => Err(Unknown(format!("{} may round {value} (partial results up to {bound})", ty.name))),
            };
        };
        let value = (value - low).rem_euclid(high - low + 1) + low;
        Ok(Exact { value, bound: value.abs() })
    }
}

impl Arithmetic for Exact {
    type Number = Exact;
    const ZERO: Exact = Exact { value: 0, bound: 0 };

    fn initial(_: &str, _: Type) -> Option<Exact> {
        None
    }

    fn literal(ty: Type, real: f64, int: Option<i128>) -> Result<Exact, Unknown> {
        match int {
            Some(v) => Exact::held(ty, v, v.abs()),
            None => Err(Unknown(format!("the literal {real}"))),
        }
    }

    fn index(ty: Type, value: i64) -> Result<Exact, Unknown> {
        let value = i128::from(value);
        match ty.range() {
            Some((low, high)) if !(low..=high).contains(&value) => Err(Unknown(format!("{value} as {}", ty.name))),
            _ => Exact::held(ty, value, value.abs()),
        }
    }

    fn as_index(_: Type, value: Exact) -> i64 {
        value.value as i64
    }

    fn truth(value: bool) -> Exact {
        Exact::of(i128::from(value))
    }

    fn is_true(value: Exact) -> bool {
        value.value != 0
    }

    fn compare(op: &str, _: Type, a: Exact, b: Exact) -> Result<Exact, Unknown> {
        compare(op, &a.value, &b.value).map(Exact::truth)
    }

    fn unary(op: &str, ty: Type, a: Exact) -> Result<Exact, Unknown> {
        match op {
            "-" => Exact::held(ty, -a.value, a.bound),
            "abs" => Exact::held(ty, a.value.abs(), a.bound),
            "~" if ty == Type::BOOL => Ok(Exact::truth(a.value == 0)),
            "~" => Exact::held(ty, -1 - a.value, 0),
            _ => Err(Unknown(format!("{op} on {}", ty.name))),
        }
    }

    fn binary(op: &str, ty: Type, a: Exact, b: Exact) -> Result<Exact, Unknown> {
        let (x, y) = (a.value, b.value);
        let integers = ty.kind != Kind::Float;
        match op {
            "+" => Exact::held(ty, x + y, a.bound + b.bound),
            "-" => Exact::held(ty, x - y, a.bound + b.bound),
            // A factor of zero leaves the other's partial results behind.
            "*" => Exact::held(ty, x * y, (a.bound.max(1)).saturating_mul(b.bound.max(1))),
            "min" => Exact::held(ty, x.min(y), a.bound.max(b.bound)),
            "max" => Exact::held(ty, x.max(y), a.bound.max(b.bound)),
            "&" if integers => Exact::held(ty, x & y, 0),
            "|" if integers => Exact::held(ty, x | y, 0),
            "^" if integers => Exact::held(ty, x ^ y, 0),
            _ => Err(Unknown(format!("{op} on {}", ty.name))),
        }
    }

    fn cast(from: Type, to: Type, a: Exact) -> Result<Exact, Unknown> {
        let value = a.value;
        if to == Type::BOOL {
            return Ok(Exact::truth(value != 0));
        }
        match (from.kind, to.range()) {
            // A float saturates, an integer wraps.
            (Kind::Float, Some((low, high))) => Ok(Exact::of(value.clamp(low, high))),
            (Kind::Float, None) => Exact::held(to, value, a.bound),
            _ => Exact::held(to, value, value.abs()),
        }
    }
}
