//! Brings an index to canonical form, from the leaves up.

use super::affine::{Affine, affine, fits, same};
use super::divide::{divide, modulo};
use super::env::{Env, is_nonnegative, is_nonpositive};
use super::{lower, upper};
use crate::index::Digit;
use crate::ir::{Index, IndexOp};

/// Products of sums are multiplied out up to this many terms.
const PRODUCT_TERMS: usize = 16;

/// The canonical sum of an index; the index as one atom where arithmetic does not fit.
pub(in crate::ir) fn canonical(index: &Index, env: &Env) -> Affine {
    let mut sum = Affine::default();
    if collect(&mut sum, index, 1, env).is_none() {
        return Affine::atom(index.clone());
    }
    join_digits(sum, env)
}

/// The canonical sum of `a - b`.
pub(super) fn difference(a: &Index, b: &Index, env: &Env) -> Affine {
    let mut sum = Affine::default();
    if collect(&mut sum, a, 1, env).and_then(|()| collect(&mut sum, b, -1, env)).is_none() {
        return Affine::atom(Index::Bin(IndexOp::Sub, Box::new(a.clone()), Box::new(b.clone())));
    }
    join_digits(sum, env)
}

fn collect(sum: &mut Affine, index: &Index, scale: i64, env: &Env) -> Option<()> {
    let Index::Bin(op, a, b) = index else {
        return match index {
            Index::Int(v) => sum.add_constant(v.checked_mul(scale)?),
            Index::Var(v) => match env.range(*v) {
                Some((lo, hi)) if lo == hi => sum.add_constant(lo.checked_mul(scale)?),
                _ => sum.add_term(index, scale),
            },
            Index::Bin(..) => None,
        };
    };
    match op {
        IndexOp::Add => {
            collect(sum, a, scale, env)?;
            collect(sum, b, scale, env)
        }
        IndexOp::Sub => {
            collect(sum, a, scale, env)?;
            collect(sum, b, scale.checked_neg()?, env)
        }
        IndexOp::Mul => match (a.as_int(), b.as_int()) {
            (_, Some(k)) => collect(sum, a, fits(k.checked_mul(scale)?)?, env),
            (Some(k), _) => collect(sum, b, fits(k.checked_mul(scale)?)?, env),
            _ => sum.add(&operation(*op, canonical(a, env), canonical(b, env), env), scale),
        },
        _ => sum.add(&operation(*op, canonical(a, env), canonical(b, env), env), scale),
    }
}

/// An operation on canonical sums that is not a sum itself.
fn operation(op: IndexOp, a: Affine, b: Affine, env: &Env) -> Affine {
    let result = match (op, b.as_constant()) {
        (IndexOp::FloorDiv, Some(c)) if c > 0 => divide(&a, c, env),
        (IndexOp::FloorMod, Some(c)) if c > 0 => modulo(&a, c, env),
        // A negative divisor: both sides change sign, and so does the remainder.
        (IndexOp::FloorDiv, Some(c)) if c < 0 => a.times(-1).and_then(|n| divide(&n, -c, env)),
        (IndexOp::FloorMod, Some(c)) if c < 0 => a.times(-1).and_then(|n| modulo(&n, -c, env)?.times(-1)),
        (IndexOp::FloorDiv | IndexOp::FloorMod, None) => by_symbol(op, &a, &b, env),
        (IndexOp::Mul, _) => product(&a, &b),
        (IndexOp::Min | IndexOp::Max, _) => extreme(op, &a, &b, env),
        (IndexOp::Xor, _) => exclusive(&a, &b),
        _ => None,
    };
    let result = result.unwrap_or_else(|| Affine::atom(Index::bin(op, a.to_index(), b.to_index())));
    settled(&result, env).map_or(result, Affine::constant)
}

/// The one value that facts leave a quotient or a remainder: `x // 8` is 0 where `x // 8 * 8 + y` is below 3.
fn settled(sum: &Affine, env: &Env) -> Option<i64> {
    let [(atom @ Index::Bin(IndexOp::FloorDiv | IndexOp::FloorMod, ..), 1)] = sum.terms.as_slice() else { return None };
    let known = env.facts.iter().any(|f| f.terms.iter().any(|(a, _)| a == atom));
    let value = known.then(|| upper(sum, env)).flatten()?;
    (lower(sum, env) == Some(value)).then_some(value)
}

/// Known of constants alone, and where one side is 0.
fn exclusive(a: &Affine, b: &Affine) -> Option<Affine> {
    match (a.as_constant(), b.as_constant()) {
        (Some(x), Some(y)) => IndexOp::Xor.eval(x, y).map(Affine::constant),
        (Some(0), _) => Some(b.clone()),
        (_, Some(0)) => Some(a.clone()),
        _ => None,
    }
}

fn product(a: &Affine, b: &Affine) -> Option<Affine> {
    match (a.as_constant(), b.as_constant()) {
        (Some(k), _) => return b.times(k),
        (_, Some(k)) => return a.times(k),
        _ => {}
    }
    if a.terms.len() * b.terms.len() > PRODUCT_TERMS {
        return None;
    }
    let mut out = Affine::default();
    for (x, c) in &a.terms {
        for (y, d) in &b.terms {
            let mut factors = factors(x);
            factors.extend(self::factors(y));
            out.add_term(&multiply(factors), c.checked_mul(*d)?)?;
        }
        out.add_term(x, c.checked_mul(b.constant)?)?;
    }
    for (y, d) in &b.terms {
        out.add_term(y, d.checked_mul(a.constant)?)?;
    }
    out.add_constant(a.constant.checked_mul(b.constant)?)?;
    Some(out)
}

fn factors(atom: &Index) -> Vec<Index> {
    match atom {
        Index::Bin(IndexOp::Mul, a, b) => {
            let mut all = factors(a);
            all.extend(factors(b));
            all
        }
        _ => vec![atom.clone()],
    }
}

/// The product of factors in one fixed order.
fn multiply(mut factors: Vec<Index>) -> Index {
    factors.sort();
    let mut factors = factors.into_iter();
    let first = factors.next().unwrap_or(Index::Int(1));
    factors.fold(first, |product, f| Index::Bin(IndexOp::Mul, Box::new(product), Box::new(f)))
}

/// `(q*n + r) // n` and `% n` for a symbol n that is at least 1.
fn by_symbol(op: IndexOp, a: &Affine, b: &Affine, env: &Env) -> Option<Affine> {
    let [(n, 1)] = b.terms.as_slice() else { return None };
    if b.constant != 0 || !is_nonpositive(&Affine::constant(1).plus(b, -1)?, env) {
        return None;
    }
    let (mut quotient, mut rest) = (Affine::default(), Affine::constant(a.constant));
    for (atom, c) in &a.terms {
        let mut factors = factors(atom);
        match factors.iter().position(|f| f == n) {
            Some(_) if factors.len() == 1 => quotient.add_constant(*c)?,
            Some(at) => {
                factors.remove(at);
                quotient.add_term(&multiply(factors), *c)?;
            }
            None => rest.add_term(atom, *c)?,
        }
    }
    let below = rest.plus(b, -1)?.plus(&Affine::constant(1), 1)?;
    let inside = is_nonnegative(&rest, env) && is_nonpositive(&below, env);
    match (op, inside) {
        (IndexOp::FloorDiv, true) => Some(quotient),
        (IndexOp::FloorDiv, false) => {
            quotient.add_term(&Index::bin(op, rest.to_index(), n.clone()), 1)?;
            Some(quotient)
        }
        (_, true) => Some(rest),
        (_, false) => Some(Affine::atom(Index::bin(op, rest.to_index(), n.clone()))),
    }
}

/// The minimum or maximum: one side where the order is known.
fn extreme(op: IndexOp, a: &Affine, b: &Affine, env: &Env) -> Option<Affine> {
    let difference = a.plus(b, -1)?;
    if is_nonpositive(&difference, env) {
        return Some(if op == IndexOp::Min { a.clone() } else { b.clone() });
    }
    is_nonnegative(&difference, env).then(|| if op == IndexOp::Min { b.clone() } else { a.clone() })
}

fn digit(atom: &Index) -> Option<Digit<&Index>> {
    let Index::Bin(op, base, by) = atom else { return None };
    let by = by.as_int()?;
    match (op, base.as_ref()) {
        (IndexOp::FloorMod, base) => Digit::whole(base).remainder(by),
        (IndexOp::FloorDiv, Index::Bin(IndexOp::FloorMod, inner, upper)) => {
            let of_remainder = Digit::whole(inner.as_ref()).remainder(upper.as_int().unwrap_or(0));
            of_remainder.and_then(|d| d.quotient(by)).or_else(|| Digit::whole(base.as_ref()).quotient(by))
        }
        (IndexOp::FloorDiv, base) => Digit::whole(base).quotient(by),
        _ => None,
    }
}

/// Joins neighbouring digits of one number: `x//8*8 + x%8` is x, and `x - x//8*8` is `x%8`.
pub(super) fn join_digits(mut sum: Affine, env: &Env) -> Affine {
    while let Some(joined) = join_once(&sum, env) {
        sum = joined;
    }
    sum
}

/// Joins one pair; each time the sum gets smaller. `None` where there is nothing to join.
fn join_once(sum: &Affine, env: &Env) -> Option<Affine> {
    for (i, (atom, c)) in sum.terms.iter().enumerate() {
        let Some(high) = digit(atom) else { continue };
        if high.high.is_none()
            && let Some(out) = join_remainder(sum, i, &high, *c)
        {
            return Some(out);
        }
        for (j, (other, d)) in sum.terms.iter().enumerate() {
            let Some(low) = digit(other).filter(|_| i != j) else { continue };
            // The joined value takes the place of the first of the two, and the order of its terms.
            let base = if i < j { high.of } else { low.of };
            let joined = if adjacent(&high, *c, &low, *d) {
                rebuild(base, high.high, low.low, env)
            } else if contained(&high, *c, &low, *d) {
                rebuild(base, Some(high.low), low.low, env)
            } else {
                None
            };
            if let Some(out) = joined.and_then(|value| replace_pair(sum, i.min(j), i.max(j), &value, *d)) {
                return Some(out);
            }
        }
    }
    None
}

/// `[x, u, m] * (d * m / l) + [x, m, l] * d` is `[x, u, l] * d`.
fn adjacent(high: &Digit<&Index>, c: i64, low: &Digit<&Index>, d: i64) -> bool {
    low.ends_at(high) && d.checked_mul(high.low / low.low) == Some(c) && same(high.of, low.of)
}

/// `[x, u, l] * d - [x, u, m] * (d * m / l)` is `[x, m, l] * d`.
fn contained(high: &Digit<&Index>, c: i64, low: &Digit<&Index>, d: i64) -> bool {
    high.high == low.high
        && high.low > low.low
        && high.low % low.low == 0
        && d.checked_mul(-(high.low / low.low)) == Some(c)
        && same(high.of, low.of)
}

/// The number of quotients and remainders, then of terms: what joining makes smaller.
fn size(sum: &Affine) -> (usize, usize) {
    fn digits(index: &Index) -> usize {
        let Index::Bin(op, a, b) = index else { return 0 };
        usize::from(matches!(op, IndexOp::FloorDiv | IndexOp::FloorMod)) + digits(a) + digits(b)
    }
    (sum.terms.iter().map(|(atom, _)| digits(atom)).sum(), sum.terms.len())
}

fn rebuild(base: &Index, upper: Option<i64>, lower: i64, env: &Env) -> Option<Affine> {
    let base = affine(base);
    let inner = match upper {
        Some(u) => modulo(&base, u, env)?,
        None => base,
    };
    if lower == 1 { Some(inner) } else { divide(&inner, lower, env) }
}

fn replace_pair(sum: &Affine, first: usize, second: usize, value: &Affine, scale: i64) -> Option<Affine> {
    let mut out = Affine::constant(sum.constant);
    for (at, (atom, c)) in sum.terms.iter().enumerate() {
        if at == first {
            out.add(value, scale)?;
        } else if at != second {
            out.add_term(atom, *c)?;
        }
    }
    (size(&out) < size(sum)).then_some(out)
}

/// `x*s - (x // m) * (m*s)` is `(x % m) * s`, where all terms of x are in the sum.
fn join_remainder(sum: &Affine, at: usize, high: &Digit<&Index>, c: i64) -> Option<Affine> {
    if c % high.low != 0 {
        return None;
    }
    let s = -(c / high.low);
    let base = affine(high.of);
    let present = |(atom, b): &(Index, i64)| {
        let wanted = b.checked_mul(s);
        sum.terms.iter().any(|(a, d)| Some(*d) == wanted && same(a, atom))
    };
    if !base.terms.iter().all(present) {
        return None;
    }
    let remainder = Index::bin(IndexOp::FloorMod, (*high.of).clone(), Index::Int(high.low));
    let mut out = Affine::constant(sum.constant);
    out.add_constant(base.constant.checked_mul(s)?.checked_neg()?)?;
    let gone = |i: usize, atom: &Index| i == at || base.terms.iter().any(|(b, _)| same(b, atom));
    let first = sum.terms.iter().enumerate().position(|(i, (atom, _))| gone(i, atom));
    for (i, (atom, d)) in sum.terms.iter().enumerate() {
        if Some(i) == first {
            out.add_term(&remainder, s)?;
        }
        if !gone(i, atom) {
            out.add_term(atom, *d)?;
        }
    }
    (size(&out) < size(sum)).then_some(out)
}
