//! Conditions: decided where bounds or assumed facts decide them, brought to one form where not.

use super::affine::{Affine, gcd};
use super::bounds::{by_ranges, lower, upper};
use super::canonical::difference;
use super::divide::{separate, shrink, without_remainders};
use super::env::Env;
use crate::ir::{CmpOp, Cond, Index};

/// Conjunctions of up to this many comparisons are searched for members that the others imply.
const CONJUNCTS: usize = 8;

/// The same condition with decided parts gone. Comparisons have their constants on the right.
pub fn simplify_cond(cond: &Cond, env: &Env) -> Cond {
    let simple = match cond {
        Cond::Const(_) => return cond.clone(),
        Cond::Cmp(..) if holds_in_ranges(cond, env) => return Cond::TRUE,
        Cond::Cmp(op @ (CmpOp::Eq | CmpOp::Ne), a, b) => equality(*op, &difference(a, b, env), env),
        Cond::Cmp(op, a, b) => order(*op, &difference(a, b, env), env),
        Cond::And(..) => return conjunction(cond, env),
        Cond::Or(a, b) => either(a, b, env),
        Cond::Not(a) => return simplify_cond(&negate(a), env),
    };
    if env.conditions.contains(&simple) {
        return Cond::TRUE;
    }
    if !env.conditions.is_empty() && env.conditions.contains(&negate(&simple)) {
        return Cond::Const(false);
    }
    simple
}

/// Whether the condition provably holds.
pub fn prove(cond: &Cond, env: &Env) -> bool {
    holds_in_ranges(cond, env) || simplify_cond(cond, env).is_true()
}

/// Whether the ranges of the variables alone show that the condition holds: most conditions that hold need no more.
pub fn holds_in_ranges(cond: &Cond, env: &Env) -> bool {
    let below = |a: &Index, b: &Index, gap: i64| {
        let (most, least) = (by_ranges(a, env).1, by_ranges(b, env).0);
        most.zip(least).is_some_and(|(most, least)| most.checked_add(gap).is_some_and(|most| most <= least))
    };
    match cond {
        Cond::Const(holds) => *holds,
        Cond::Cmp(CmpOp::Lt, a, b) | Cond::Cmp(CmpOp::Gt, b, a) => below(a, b, 1),
        Cond::Cmp(CmpOp::Le, a, b) | Cond::Cmp(CmpOp::Ge, b, a) => below(a, b, 0),
        Cond::Cmp(CmpOp::Eq, a, b) => below(a, b, 0) && below(b, a, 0),
        Cond::Cmp(CmpOp::Ne, a, b) => below(a, b, 1) || below(b, a, 1),
        Cond::And(a, b) => holds_in_ranges(a, env) && holds_in_ranges(b, env),
        Cond::Or(a, b) => holds_in_ranges(a, env) || holds_in_ranges(b, env),
        Cond::Not(_) => false,
    }
}

/// The opposite, without `Not` at the top.
pub(super) fn negate(cond: &Cond) -> Cond {
    match cond {
        Cond::Const(c) => Cond::Const(!c),
        Cond::Cmp(op, a, b) => {
            let op = match op {
                CmpOp::Lt => CmpOp::Ge,
                CmpOp::Le => CmpOp::Gt,
                CmpOp::Eq => CmpOp::Ne,
                CmpOp::Ne => CmpOp::Eq,
                CmpOp::Ge => CmpOp::Lt,
                CmpOp::Gt => CmpOp::Le,
            };
            Cond::Cmp(op, a.clone(), b.clone())
        }
        Cond::And(a, b) => Cond::Or(Box::new(negate(a)), Box::new(negate(b))),
        Cond::Or(a, b) => negate(a).and(negate(b)),
        Cond::Not(a) => (**a).clone(),
    }
}

fn conjunction(cond: &Cond, env: &Env) -> Cond {
    let mut known = env.clone();
    let mut kept: Vec<Cond> = Vec::new();
    for part in cond.conjuncts() {
        let simple = simplify_cond(part, &known);
        if simple == Cond::Const(false) {
            return simple;
        }
        known.assume_simplified(&simple);
        kept.extend(simple.conjuncts().into_iter().cloned());
    }
    if kept.len() <= CONJUNCTS && kept.iter().all(|c| matches!(c, Cond::Cmp(..))) {
        drop_implied(&mut kept, env);
    }
    kept.into_iter().fold(Cond::TRUE, Cond::and)
}

/// Drops what the others imply; each was simplified knowing those before it, so only later ones are asked.
fn drop_implied(kept: &mut Vec<Cond>, env: &Env) {
    let mut at = 0;
    while at + 1 < kept.len() {
        let mut others = env.clone();
        for (i, other) in kept.iter().enumerate() {
            if i != at {
                others.assume_simplified(other);
            }
        }
        if prove(&kept[at], &others) {
            kept.remove(at);
        } else {
            at += 1;
        }
    }
}

fn either(a: &Cond, b: &Cond, env: &Env) -> Cond {
    let a = simplify_cond(a, env);
    if a.is_true() {
        return a;
    }
    // The second side matters only where the first does not hold.
    let mut otherwise = env.clone();
    otherwise.assume_simplified(&negate(&a));
    let b = simplify_cond(b, &otherwise);
    match (&a, &b) {
        (_, Cond::Const(true)) | (Cond::Const(false), _) => b,
        (_, Cond::Const(false)) => a,
        _ => Cond::Or(Box::new(a), Box::new(b)),
    }
}

/// `difference == 0` or `!= 0`.
fn equality(op: CmpOp, difference: &Affine, env: &Env) -> Cond {
    let equal = match decide_zero(difference, env) {
        Some(equal) => equal,
        None => {
            let content = difference.content().max(1);
            let reduced = shrink(difference, content);
            let (left, right, constant) = sides(&reduced);
            let (left, right, constant) =
                if left.terms.is_empty() { (right, left, -constant) } else { (left, right, constant) };
            return Cond::Cmp(op, left.to_index(), moved(&right, -constant));
        }
    };
    Cond::Const(equal == (op == CmpOp::Eq))
}

/// Whether a sum is 0 everywhere or nowhere.
fn decide_zero(sum: &Affine, env: &Env) -> Option<bool> {
    if let Some(value) = sum.as_constant() {
        return Some(value == 0);
    }
    if sum.constant % sum.content().max(1) != 0 {
        return Some(false);
    }
    match (lower(sum, env), upper(sum, env)) {
        (Some(0), Some(0)) => Some(true),
        (Some(lo), _) if lo > 0 => Some(false),
        (_, Some(hi)) if hi < 0 => Some(false),
        _ => without_remainders(sum, env).is_some_and(|s| s.as_constant() == Some(0)).then_some(true),
    }
}

/// `difference op 0` for the four orders.
fn order(op: CmpOp, difference: &Affine, env: &Env) -> Cond {
    let plain = || Cond::cmp(op, difference.to_index(), 0);
    let Some(mut negative) = below_zero(op, difference) else { return plain() };
    loop {
        if upper(&negative, env).is_some_and(|v| v < 0) {
            return Cond::TRUE;
        }
        if lower(&negative, env).is_some_and(|v| v >= 0) {
            return Cond::Const(false);
        }
        match coarser(&negative, env) {
            Some(reduced) => negative = reduced,
            None => break,
        }
    }
    relation(&negative, matches!(op, CmpOp::Gt | CmpOp::Ge))
}

/// The sum s with `difference op 0` the same as `s < 0`.
fn below_zero(op: CmpOp, difference: &Affine) -> Option<Affine> {
    let mut sum = difference.times(if matches!(op, CmpOp::Gt | CmpOp::Ge) { -1 } else { 1 })?;
    if matches!(op, CmpOp::Le | CmpOp::Ge) {
        sum.add_constant(-1)?;
    }
    Some(shrink(&sum, sum.content().max(1)))
}

/// The sum s with `difference op 0` the same as `s <= 0`.
pub(super) fn at_most_zero(op: CmpOp, difference: &Affine) -> Option<Affine> {
    let mut sum = below_zero(op, difference)?;
    sum.add_constant(1)?;
    Some(sum)
}

/// A sum is negative just where its floor quotient is: terms that stay below a common factor of the others go.
fn coarser(sum: &Affine, env: &Env) -> Option<Affine> {
    let mut factors: Vec<i64> = Vec::new();
    for (_, a) in &sum.terms {
        for (_, b) in &sum.terms {
            factors.push(gcd(*a, *b));
        }
    }
    factors.sort_unstable();
    factors.dedup();
    let quotient = |factor: &i64| separate(sum, *factor, env).map(|(big, _)| big);
    factors.iter().rev().filter(|f| **f > 1).find_map(quotient)
}

/// Positive terms, negated negative terms, constant: `left - right + constant`.
fn sides(sum: &Affine) -> (Affine, Affine, i64) {
    let (left, right): (Vec<_>, Vec<_>) = sum.terms.iter().cloned().partition(|(_, c)| *c > 0);
    let right = right.into_iter().map(|(atom, c)| (atom, -c)).collect();
    (Affine { terms: left, constant: 0 }, Affine { terms: right, constant: 0 }, sum.constant)
}

fn moved(side: &Affine, constant: i64) -> Index {
    Affine { terms: side.terms.clone(), constant }.to_index()
}

/// `sum < 0` with each term where its coefficient is positive and the constant on the right; `>` if reversed.
fn relation(sum: &Affine, reversed: bool) -> Cond {
    let (low, high, k) = sides(sum);
    let two_sided = !low.terms.is_empty() && !high.terms.is_empty();
    if low.terms.is_empty() || (reversed && two_sided) {
        return match k {
            0 if two_sided => Cond::cmp(CmpOp::Gt, high.to_index(), low.to_index()),
            _ => Cond::cmp(CmpOp::Ge, high.to_index(), moved(&low, k + 1)),
        };
    }
    match k {
        -1 if two_sided => Cond::cmp(CmpOp::Le, low.to_index(), high.to_index()),
        _ => Cond::cmp(CmpOp::Lt, low.to_index(), moved(&high, -k)),
    }
}
