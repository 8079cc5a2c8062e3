//! What is known where an index stands: ranges of variables and conditions that hold.

use super::affine::Affine;
use super::canonical::difference;
use super::condition::{at_most_zero, simplify_cond};
use super::{affine, bounds, lower, upper};
use crate::ir::{CmpOp, Cond, For, Index, IndexOp, Var};

/// Ranges of variables and assumed facts.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// Sorted by variable; both ends inclusive.
    ranges: Vec<(Var, i64, i64)>,
    /// Sums that are at most 0.
    pub(super) facts: Vec<Affine>,
    /// Other simplified conditions that hold.
    pub(super) conditions: Vec<Cond>,
}

impl Env {
    /// Nothing is known.
    pub fn new() -> Env {
        Env::default()
    }

    /// The ranges of the loops' variables, outermost first.
    pub fn with_loops<'a>(loops: impl IntoIterator<Item = &'a For>) -> Env {
        let mut env = Env::new();
        for l in loops {
            for (var, extent) in l.defines() {
                env.bind_loop(var, &extent);
            }
        }
        env
    }

    /// A loop's variable: from 0 to the largest value its extent can be shown to have, exclusive.
    pub fn bind_loop(&mut self, var: Var, extent: &Index) {
        if let Some((_, most)) = bounds(extent, self) {
            self.bind(var, 0, most.saturating_sub(1));
        }
        if extent.as_int().is_none() {
            self.assume(&Cond::ge(var, 0));
            self.assume(&Cond::lt(var, extent.clone()));
        }
    }

    /// The variable has values from `min` to `max`, both inclusive. An empty range counts as `min` alone.
    pub fn bind(&mut self, var: Var, min: i64, max: i64) {
        let entry = (var, min, max.max(min));
        match self.ranges.binary_search_by_key(&var, |r| r.0) {
            Ok(at) => self.ranges[at] = entry,
            Err(at) => self.ranges.insert(at, entry),
        }
    }

    /// The range of a variable, both ends inclusive.
    pub fn range(&self, var: Var) -> Option<(i64, i64)> {
        let at = self.ranges.binary_search_by_key(&var, |r| r.0).ok()?;
        Some((self.ranges[at].1, self.ranges[at].2))
    }

    /// What is known to hold besides the ranges.
    pub fn facts(&self) -> impl Iterator<Item = Cond> + '_ {
        let sums = self.facts.iter().map(|sum| Cond::ge(0, sum.to_index()));
        sums.chain(self.conditions.iter().cloned())
    }

    /// From here on the condition holds.
    pub fn assume(&mut self, cond: &Cond) {
        let cond = simplify_cond(cond, self);
        self.assume_simplified(&cond);
    }

    /// [`Env::assume`] for a condition that need not be simplified again.
    pub(super) fn assume_simplified(&mut self, cond: &Cond) {
        for part in cond.conjuncts() {
            match part {
                Cond::Cmp(CmpOp::Ne, a, b) => {
                    self.exclude(a, b);
                    self.conditions.push(part.clone());
                }
                Cond::Cmp(op, a, b) => self.assume_comparison(*op, a, b),
                Cond::Const(_) => {}
                _ => self.conditions.push(part.clone()),
            }
        }
        // What one fact says about a range can sharpen what another says.
        for _ in 0..2 {
            for at in 0..self.facts.len() {
                self.tighten(at);
            }
        }
    }

    fn assume_comparison(&mut self, op: CmpOp, a: &Index, b: &Index) {
        let difference = difference(a, b, self);
        let sides = match op {
            CmpOp::Eq => vec![Some(difference.clone()), difference.times(-1)],
            _ => vec![at_most_zero(op, &difference)],
        };
        for fact in sides.into_iter().flatten() {
            self.add_fact(fact);
        }
    }

    fn add_fact(&mut self, fact: Affine) {
        if let Some(implied) = inside_quotient(&fact) {
            self.add_fact(implied);
        }
        if !fact.terms.is_empty() && !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
    }

    /// `var != end` shortens the range by one.
    fn exclude(&mut self, a: &Index, b: &Index) {
        let (Index::Var(var), Index::Int(value)) = (a, b) else { return };
        match self.range(*var) {
            Some((lo, hi)) if lo == *value && lo < hi => self.bind(*var, lo + 1, hi),
            Some((lo, hi)) if hi == *value && lo < hi => self.bind(*var, lo, hi - 1),
            _ => {}
        }
    }

    /// Narrows the ranges of the variables in a fact: `c * var <= -(rest)`.
    fn tighten(&mut self, at: usize) {
        let fact = self.facts[at].clone();
        for (i, (atom, c)) in fact.terms.iter().enumerate() {
            let Index::Var(var) = atom else { continue };
            let Some((lo, hi)) = self.range(*var) else { continue };
            let Some(rest) = lower(&fact.without(i), self) else { continue };
            let Some(limit) = rest.checked_neg() else { continue };
            // Floor for an upper end, ceiling for a lower one.
            let (lo, hi) =
                if *c > 0 { (lo, hi.min(limit.div_euclid(*c))) } else { (lo.max(-(limit.div_euclid(-c))), hi) };
            // An empty range means that this place is never reached; then anything said about it is true.
            if lo <= hi {
                self.bind(*var, lo, hi);
            }
        }
    }
}

/// Takes a fact out of its one quotient: `rest + x // d <= 0` says `rest*d + x <= d - 1`, and `rest - x // d <= 0`
/// says `rest*d - x <= 0`.
fn inside_quotient(fact: &Affine) -> Option<Affine> {
    let is_quotient = |(atom, _): &&(Index, i64)| matches!(atom, Index::Bin(IndexOp::FloorDiv, ..));
    if fact.terms.iter().filter(is_quotient).count() != 1 {
        return None;
    }
    let at = fact.terms.iter().position(|t| is_quotient(&t))?;
    let (Index::Bin(IndexOp::FloorDiv, x, d), sign @ (1 | -1)) = &fact.terms[at] else { return None };
    let d = d.as_int().filter(|d| *d > 0)?;
    let mut inside = fact.without(at).times(d)?.plus(&affine(x), *sign)?;
    if *sign > 0 {
        inside.add_constant(1 - d)?;
    }
    Some(inside)
}

/// Whether a sum is at least 0 everywhere.
pub(super) fn is_nonnegative(sum: &Affine, env: &Env) -> bool {
    lower(sum, env).is_some_and(|v| v >= 0)
}

/// Whether a sum is at most 0 everywhere.
pub(super) fn is_nonpositive(sum: &Affine, env: &Env) -> bool {
    upper(sum, env).is_some_and(|v| v <= 0)
}
