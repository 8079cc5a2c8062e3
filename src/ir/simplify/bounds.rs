//! The largest and smallest value of a sum.
//!
//! First each term by itself. Where terms share variables that is too coarse, so relations between atoms are
//! put in: a minimum is at most either side, a quotient times its divisor is at most its dividend and more than that less
//! the divisor, and an assumed fact can be subtracted from the sum.

use super::affine::{Affine, affine, gcd};
use super::env::Env;
use crate::ir::{Index, IndexOp};

/// How many relations may be put in one after the other.
const DEPTH: u32 = 3;

/// The largest value that the sum can be shown to have.
pub(in crate::ir) fn upper(sum: &Affine, env: &Env) -> Option<i64> {
    at_most(sum, env, DEPTH)
}

/// The smallest value that the sum can be shown to have.
pub(in crate::ir) fn lower(sum: &Affine, env: &Env) -> Option<i64> {
    at_least(sum, env, DEPTH)
}

fn at_least(sum: &Affine, env: &Env, depth: u32) -> Option<i64> {
    least_of(sum, term_by_term(sum, env, depth).0, env, depth)
}

fn at_most(sum: &Affine, env: &Env, depth: u32) -> Option<i64> {
    most_of(sum, term_by_term(sum, env, depth).1, env, depth)
}

/// Both ends; each atom is looked at once, so that a deep nest costs no more than its size.
fn ends(sum: &Affine, env: &Env, depth: u32) -> Ends {
    let (lo, hi) = term_by_term(sum, env, depth);
    (least_of(sum, lo, env, depth), most_of(sum, hi, env, depth))
}

fn least_of(sum: &Affine, plain: Option<i64>, env: &Env, depth: u32) -> Option<i64> {
    match further(sum, env, depth) {
        Some(depth) => related(&sum.times(-1)?, plain.and_then(i64::checked_neg), env, depth)?.checked_neg(),
        None => plain,
    }
}

fn most_of(sum: &Affine, plain: Option<i64>, env: &Env, depth: u32) -> Option<i64> {
    match further(sum, env, depth) {
        Some(depth) => related(sum, plain, env, depth),
        None => plain,
    }
}

/// How many more relations may follow one that is put in now; `None` where no relation can say more than the terms by
/// themselves. Sums with many relations get fewer in a row, so that the work stays small.
fn further(sum: &Affine, env: &Env, depth: u32) -> Option<u32> {
    let left = depth.checked_sub(1)?;
    let in_fact = |atom: &Index| env.facts.iter().filter(|f| f.terms.iter().any(|(a, _)| a == atom)).count();
    let relations = sum.terms.iter().enumerate().map(|(at, (atom, _))| match atom {
        Index::Bin(IndexOp::Min | IndexOp::Max, ..) => 1,
        Index::Bin(IndexOp::FloorDiv | IndexOp::FloorMod, ..) => usize::from(sum.entangled(at)) + in_fact(atom),
        _ => in_fact(atom),
    });
    match relations.sum() {
        0 => None,
        1..=6 => Some(left),
        7..=12 => Some(left.min(1)),
        _ => Some(0),
    }
}

/// The largest value of a sum, with relations put in; `plain` is what its terms say by themselves.
fn related(sum: &Affine, plain: Option<i64>, env: &Env, depth: u32) -> Option<i64> {
    let mut best = plain;
    for at in 0..sum.terms.len() {
        smaller(&mut best, with_relation(sum, at, env, depth));
    }
    for fact in &env.facts {
        smaller(&mut best, with_fact(sum, fact, env, depth));
    }
    best
}

fn smaller(best: &mut Option<i64>, other: Option<i64>) {
    if let Some(o) = other {
        *best = Some(best.map_or(o, |b| b.min(o)));
    }
}

fn term_by_term(sum: &Affine, env: &Env, depth: u32) -> Ends {
    let constant = Some(sum.constant);
    sum.terms.iter().fold((constant, constant), |(least, most), (atom, c)| {
        let (lo, hi) = atom_bounds(atom, env, depth);
        let (lo, hi) = if *c > 0 { (lo, hi) } else { (hi, lo) };
        let add = |total: Option<i64>, end: Option<i64>| total?.checked_add(end?.checked_mul(*c)?);
        (add(least, lo), add(most, hi))
    })
}

/// A known smallest and a known largest value.
type Ends = (Option<i64>, Option<i64>);

fn sum_bounds(index: &Index, env: &Env, depth: u32) -> Ends {
    match index {
        Index::Int(_) | Index::Var(_) => atom_bounds(index, env, depth),
        _ => {
            let sum = affine(index);
            if matches!(sum.terms.as_slice(), [(atom, 1)] if sum.constant == 0 && atom == index) {
                return atom_bounds(index, env, depth);
            }
            ends(&sum, env, depth)
        }
    }
}

fn atom_bounds(atom: &Index, env: &Env, depth: u32) -> Ends {
    match atom {
        Index::Int(v) => (Some(*v), Some(*v)),
        Index::Var(v) => env.range(*v).map_or((None, None), |(lo, hi)| (Some(lo), Some(hi))),
        Index::Bin(op, a, b) => {
            // A chain of operations costs one level each, so that bounds of bounds stay cheap.
            let depth = depth.saturating_sub(1);
            let (x, y) = (sum_bounds(a, env, depth), sum_bounds(b, env, depth));
            operation(*op, x, y)
        }
    }
}

/// Both ends by the ranges of the variables alone: what each operation makes of the ends of its sides. It allocates nothing.
pub(super) fn by_ranges(index: &Index, env: &Env) -> Ends {
    match index {
        Index::Int(_) | Index::Var(_) => atom_bounds(index, env, 0),
        Index::Bin(op, a, b) => operation(*op, by_ranges(a, env), by_ranges(b, env)),
    }
}

fn operation(op: IndexOp, x: Ends, y: Ends) -> Ends {
    let both = |a: Option<i64>, b: Option<i64>, f: fn(i64, i64) -> Option<i64>| f(a?, b?);
    let either = |a: Option<i64>, b: Option<i64>, f: fn(i64, i64) -> i64| match (a, b) {
        (Some(a), Some(b)) => Some(f(a, b)),
        (a, b) => a.or(b),
    };
    match op {
        IndexOp::Add => (both(x.0, y.0, i64::checked_add), both(x.1, y.1, i64::checked_add)),
        IndexOp::Sub => (both(x.0, y.1, i64::checked_sub), both(x.1, y.0, i64::checked_sub)),
        IndexOp::Min => (both(x.0, y.0, |a, b| Some(a.min(b))), either(x.1, y.1, i64::min)),
        IndexOp::Max => (either(x.0, y.0, i64::max), both(x.1, y.1, |a, b| Some(a.max(b)))),
        IndexOp::Mul => product(x, y),
        IndexOp::FloorDiv => quotient(x, y),
        IndexOp::FloorMod => remainder(x, y),
        IndexOp::Xor => exclusive(x, y),
    }
}

/// Numbers of so many bits stay numbers of so many bits.
fn exclusive(x: Ends, y: Ends) -> Ends {
    match (x, y) {
        ((Some(0..), Some(a)), (Some(0..), Some(b))) => {
            let bits = 64 - (a.max(0) | b.max(0)).leading_zeros();
            (Some(0), (bits < 63).then(|| (1 << bits) - 1))
        }
        _ => (None, None),
    }
}

fn product(x: Ends, y: Ends) -> Ends {
    let corners = || {
        let (x, y) = ((x.0?, x.1?), (y.0?, y.1?));
        let all = [x.0.checked_mul(y.0)?, x.0.checked_mul(y.1)?, x.1.checked_mul(y.0)?, x.1.checked_mul(y.1)?];
        Some((*all.iter().min()?, *all.iter().max()?))
    };
    match (corners(), x.0, y.0) {
        (Some((lo, hi)), ..) => (Some(lo), Some(hi)),
        (None, Some(a), Some(b)) if a >= 0 && b >= 0 => (a.checked_mul(b), None),
        _ => (None, None),
    }
}

/// The ends of a divisor that is at least 1. Facts that contradict each other can leave the ends crossed.
fn positive(y: Ends) -> Option<(i64, Option<i64>)> {
    let least = y.0.filter(|least| *least >= 1)?;
    if y.1.is_some_and(|most| most < least) { None } else { Some((least, y.1)) }
}

fn quotient(x: Ends, y: Ends) -> Ends {
    let Some((least, most)) = positive(y) else { return (None, None) };
    // A larger divisor brings the quotient nearer to 0 (or to -1 from below).
    let lo = x.0.map(|v| if v < 0 { v.div_euclid(least) } else { most.map_or(0, |m| v.div_euclid(m)) });
    let hi = x.1.map(|v| if v >= 0 { v.div_euclid(least) } else { most.map_or(-1, |m| v.div_euclid(m)) });
    (lo, hi)
}

fn remainder(x: Ends, y: Ends) -> Ends {
    let Some((least, most)) = positive(y) else { return (None, None) };
    if let ((Some(lo), Some(hi)), Some(c)) = (x, most)
        && least == c
        && lo.div_euclid(c) == hi.div_euclid(c)
        && lo <= hi
    {
        return (Some(lo.rem_euclid(c)), Some(hi.rem_euclid(c)));
    }
    let largest = most.map(|m| m - 1);
    match x {
        (Some(lo), Some(hi)) if lo >= 0 => (Some(0), Some(largest.map_or(hi, |l| l.min(hi)))),
        _ => (Some(0), largest),
    }
}

/// The bound after one atom is replaced by what it is related to.
fn with_relation(sum: &Affine, at: usize, env: &Env, depth: u32) -> Option<i64> {
    let (Index::Bin(op, a, b), c) = &sum.terms[at] else { return None };
    match op {
        IndexOp::Min | IndexOp::Max => {
            let either = |side: &Index| at_most(&sum.without(at).plus(&affine(side), *c)?, env, depth);
            let (x, y) = (either(a), either(b));
            if (*op == IndexOp::Min) == (*c > 0) {
                return match (x, y) {
                    (Some(x), Some(y)) => Some(x.min(y)),
                    (x, y) => x.or(y),
                };
            }
            Some(x?.max(y?))
        }
        IndexOp::FloorDiv if sum.entangled(at) => with_dividend(sum, at, a, b.as_int()?, env, depth),
        // x % d is at most x where x is not negative.
        IndexOp::FloorMod if *c > 0 && sum.entangled(at) && b.as_int()? > 0 => {
            let x = affine(a);
            (at_least(&x, env, depth)? >= 0).then_some(())?;
            at_most(&sum.without(at).plus(&x, *c)?, env, depth)
        }
        _ => None,
    }
}

/// Uses `x - (d - 1) <= (x // d) * d <= x`.
fn with_dividend(sum: &Affine, at: usize, x: &Index, d: i64, env: &Env, depth: u32) -> Option<i64> {
    (d > 0).then_some(())?;
    let c = sum.terms[at].1;
    let scale = d / gcd(c, d);
    let times = c.checked_mul(scale)? / d;
    let mut relaxed = sum.without(at).times(scale)?.plus(&affine(x), times)?;
    if times < 0 {
        relaxed.add_constant(times.checked_neg()?.checked_mul(d - 1)?)?;
    }
    Some(at_most(&relaxed, env, depth)?.div_euclid(scale))
}

/// Subtracts a fact (a sum that is at most 0) as often as it takes for a shared atom to cancel.
fn with_fact(sum: &Affine, fact: &Affine, env: &Env, depth: u32) -> Option<i64> {
    let mut best = None;
    for (atom, f) in &fact.terms {
        let Some((_, c)) = sum.terms.iter().find(|(a, c)| (*c > 0) == (*f > 0) && a == atom) else { continue };
        let g = gcd(*c, *f);
        let (scale, times) = ((f / g).abs(), (c / g).abs());
        let reduced = sum.times(scale).and_then(|s| s.plus(fact, -times));
        let bound = reduced.and_then(|r| at_most(&r, env, depth));
        smaller(&mut best, bound.map(|b| b.div_euclid(scale)));
    }
    best
}
