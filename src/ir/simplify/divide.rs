//! Floor division and remainder of a canonical sum by a positive constant.
//!
//! Both take the same steps, so that quotient and remainder of one sum speak of the same parts: multiples of the divisor
//! leave; a rest within one block of the divisor is settled; common factors cancel; where the divisor has a factor d such
//! that the terms that are no multiples of d stay within one block of d, those are separated; a quotient of a quotient is
//! one quotient. What remains becomes an atom.

use super::affine::{Affine, affine, fits, gcd};
use super::bounds::{lower, upper};
use super::canonical::join_digits;
use super::env::Env;
use crate::ir::{Index, IndexOp};

/// `floor(sum / c)` for c > 0.
pub(super) fn divide(sum: &Affine, c: i64, env: &Env) -> Option<Affine> {
    if c == 1 {
        return Some(sum.clone());
    }
    let (mut out, rest) = split_multiples(sum, c)?;
    let remaining = match step(&rest, c, env)? {
        Step::Within(block) => Affine::constant(block),
        Step::Common(reduced, factor) => divide(&reduced, c / factor, env)?,
        Step::Separate { big, factor, .. } => divide(&big, c / factor, env)?,
        Step::Nested(dividend, lower) => divide(&dividend, fits(c.checked_mul(lower)?)?, env)?,
        Step::Atom => Affine::atom(Index::bin(IndexOp::FloorDiv, rest.to_index(), Index::Int(c))),
    };
    out.add(&remaining, 1)?;
    Some(out)
}

/// `sum - floor(sum / c) * c` for c > 0.
pub(super) fn modulo(sum: &Affine, c: i64, env: &Env) -> Option<Affine> {
    if c == 1 {
        return Some(Affine::constant(0));
    }
    let (_, rest) = split_multiples(&drop_wider_remainders(sum, c, env)?, c)?;
    match step(&rest, c, env)? {
        Step::Within(block) => {
            let mut out = rest;
            out.add_constant(c.checked_mul(block)?.checked_neg()?)?;
            Some(out)
        }
        Step::Common(reduced, factor) => {
            let mut out = modulo(&reduced, c / factor, env)?.times(factor)?;
            out.add_constant(rest.constant.rem_euclid(factor))?;
            Some(out)
        }
        Step::Separate { big, small, factor } => {
            let mut out = modulo(&big, c / factor, env)?.times(factor)?;
            out.add(&small, 1)?;
            Some(out)
        }
        Step::Nested(dividend, lower) => {
            let inner = modulo(&dividend, fits(c.checked_mul(lower)?)?, env)?;
            divide(&inner, lower, env)
        }
        Step::Atom => Some(Affine::atom(Index::bin(IndexOp::FloorMod, rest.to_index(), Index::Int(c)))),
    }
}

/// What can be done with a rest of which no term is a multiple of the divisor.
enum Step {
    /// It is in this block of the divisor everywhere.
    Within(i64),
    /// Divided by a factor common to its coefficients and the divisor (its constant rounded down).
    Common(Affine, i64),
    /// It is `big * factor + small` with `small` in 0..factor everywhere.
    Separate { big: Affine, small: Affine, factor: i64 },
    /// It is this dividend floor-divided by this.
    Nested(Affine, i64),
    /// Nothing.
    Atom,
}

fn step(rest: &Affine, c: i64, env: &Env) -> Option<Step> {
    if let Some(block) = block_of(rest, c, env) {
        return Some(Step::Within(block));
    }
    let common = gcd(rest.content(), c);
    if common > 1 {
        return Some(Step::Common(shrink(rest, common), common));
    }
    let mut factors: Vec<i64> = rest.terms.iter().map(|(_, a)| gcd(*a, c)).filter(|g| *g > 1).collect();
    factors.sort_unstable();
    factors.dedup();
    for factor in factors.into_iter().rev() {
        if let Some((big, small)) = separate(rest, factor, env) {
            return Some(Step::Separate { big, small, factor });
        }
    }
    Some(match rest.terms.as_slice() {
        [(Index::Bin(IndexOp::FloorDiv, x, d), 1)] => match d.as_int() {
            Some(d) if d > 0 && d.checked_mul(c).and_then(fits).is_some() => {
                let mut dividend = affine(x);
                dividend.add_constant(rest.constant.checked_mul(d)?)?;
                Step::Nested(dividend, d)
            }
            _ => Step::Atom,
        },
        _ => Step::Atom,
    })
}

/// The block of c in which the sum lies everywhere.
fn block_of(sum: &Affine, c: i64, env: &Env) -> Option<i64> {
    let lo = lower(sum, env)?.div_euclid(c);
    (upper(sum, env)?.div_euclid(c) == lo).then_some(lo)
}

/// The quotient by a factor of all coefficients; the constant is rounded down.
pub(super) fn shrink(sum: &Affine, factor: i64) -> Affine {
    Affine {
        terms: sum.terms.iter().map(|(atom, a)| (atom.clone(), a / factor)).collect(),
        constant: sum.constant.div_euclid(factor),
    }
}

/// The sum as `big * factor + small` with `small` in 0..factor everywhere.
pub(super) fn separate(sum: &Affine, factor: i64, env: &Env) -> Option<(Affine, Affine)> {
    let (multiples, others) = sum.terms.iter().cloned().partition(|(_, a)| a % factor == 0);
    let mut small = Affine { terms: others, constant: sum.constant };
    let block = block_of(&small, factor, env)?;
    small.add_constant(factor.checked_mul(block)?.checked_neg()?)?;
    let mut big = shrink(&Affine { terms: multiples, constant: 0 }, factor);
    big.add_constant(block)?;
    Some((big, small))
}

/// `sum = quotient * c + rest`: terms that are multiples of c leave; the constant of the rest is in 0..c. A term
/// that is no multiple stays whole, so that quotient and remainder read like the sum and join to it again.
fn split_multiples(sum: &Affine, c: i64) -> Option<(Affine, Affine)> {
    let (mut quotient, mut rest) = (Affine::default(), Affine::default());
    for (atom, a) in &sum.terms {
        if a % c == 0 {
            quotient.add_term(atom, a / c)?;
        } else {
            rest.add_term(atom, *a)?;
        }
    }
    quotient.add_constant(sum.constant.div_euclid(c))?;
    rest.add_constant(sum.constant.rem_euclid(c))?;
    Some((quotient, rest))
}

/// Replaces `x % u` by x, and `x % u // l` by `x // l`, where the difference is a multiple of c; also in what comes out.
fn drop_wider_remainders(sum: &Affine, c: i64, env: &Env) -> Option<Affine> {
    if !sum.terms.iter().any(|t| wider_remainder(t, c).is_some()) {
        return Some(sum.clone());
    }
    let mut out = Affine::constant(sum.constant);
    for term in &sum.terms {
        match wider_remainder(term, c) {
            Some(r) => out.add(&divide(&affine(r.base), r.lower, env)?, term.1)?,
            None => out.add_term(&term.0, term.1)?,
        }
    }
    drop_wider_remainders(&join_digits(out, env), c, env)
}

fn wider_remainder((atom, a): &(Index, i64), c: i64) -> Option<Remainder<'_>> {
    remainder(atom).filter(|r| a.checked_mul(r.modulus / r.lower).is_some_and(|s| s % c == 0))
}

/// `base % modulus // lower`, the modulus a multiple of `lower`.
struct Remainder<'a> {
    base: &'a Index,
    modulus: i64,
    lower: i64,
}

fn remainder(atom: &Index) -> Option<Remainder<'_>> {
    let Index::Bin(op, a, by) = atom else { return None };
    let by = by.as_int().filter(|b| *b > 0)?;
    match (op, a.as_ref()) {
        (IndexOp::FloorMod, base) => Some(Remainder { base, modulus: by, lower: 1 }),
        (IndexOp::FloorDiv, Index::Bin(IndexOp::FloorMod, base, u)) => {
            let modulus = u.as_int().filter(|u| *u > 0 && *u % by == 0)?;
            Some(Remainder { base, modulus, lower: by })
        }
        _ => None,
    }
}

/// The same value with every remainder among the terms written as a difference of quotients,
/// `x % u // l = x // l - (x // u) * (u / l)`, and quotients of coefficients below the divisor: a form in which equal
/// sums of digits cancel.
pub(super) fn without_remainders(sum: &Affine, env: &Env) -> Option<Affine> {
    let mut out = Affine::constant(sum.constant);
    for (atom, c) in &sum.terms {
        if let Some(r) = remainder(atom) {
            add_quotient(&mut out, r.base, r.lower, *c, env)?;
            let step = c.checked_mul(r.modulus / r.lower)?;
            add_quotient(&mut out, r.base, r.modulus, step.checked_neg()?, env)?;
            continue;
        }
        match atom {
            Index::Bin(IndexOp::FloorDiv, x, d) if d.as_int().is_some_and(|d| d > 0) => {
                add_quotient(&mut out, x, d.as_int()?, *c, env)?;
            }
            _ => out.add_term(atom, *c)?,
        }
    }
    Some(out)
}

/// Adds `(base // d) * scale`, with the coefficients of the dividend brought into 0..d.
fn add_quotient(out: &mut Affine, base: &Index, d: i64, scale: i64, env: &Env) -> Option<()> {
    let (mut quotient, mut rest) = (Affine::default(), Affine::default());
    let base = affine(base);
    for (atom, a) in &base.terms {
        quotient.add_term(atom, a.div_euclid(d))?;
        rest.add_term(atom, a.rem_euclid(d))?;
    }
    rest.add_constant(base.constant)?;
    out.add(&quotient, scale)?;
    out.add(&divide(&rest, d, env)?, scale)
}
