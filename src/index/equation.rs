//! Equations: solved for a variable, or taken apart into smaller ones.

use super::linear::{Int, Linear, Variable, content, gcd};
use super::state::{State, Stop};

type Terms = Vec<(Variable, Int)>;

impl State<'_> {
    /// Uses one equation among the rows up; says whether there was one. Equations without a coefficient of 1, whose terms are no digits,
    /// are left alone unless `all` is set.
    pub(super) fn equations(&mut self, all: bool) -> Result<bool, Stop> {
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            if row.low != row.high {
                continue;
            }
            self.budget.spend(4 * row.terms.len())?;
            let value = row.low;
            if let Some((multiples, rest, own)) = self.digits(&row.terms, value)? {
                self.rows.swap_remove(at);
                let form = |terms: Terms| Linear { terms, constant: 0 };
                self.add_row(&form(rest), own, Some(own))?;
                self.add_row(&form(multiples), value - own, Some(value - own))?;
                return Ok(true);
            }
            if let Some((v, by)) = self.unit(&row.terms, value)? {
                self.rows.swap_remove(at);
                self.solve(v, by)?;
                return Ok(true);
            }
            if all {
                let row = self.rows.swap_remove(at);
                self.reduce(row.terms, value)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The terms that a factor divides and the others, where ranges leave these only one value that the factor allows: what the
    /// digits of a number do. With that value.
    fn digits(&self, terms: &[(Variable, Int)], value: Int) -> Result<Option<(Terms, Terms, Int)>, Stop> {
        let mut sorted = terms.to_vec();
        sorted.sort_by_key(|t| t.1.abs());
        let mut factors: Vec<Int> = sorted.iter().map(|t| t.1.abs()).collect();
        let mut suffix = 0;
        for (_, c) in sorted.iter().rev() {
            suffix = gcd(suffix, *c);
            factors.push(suffix);
        }
        factors.sort_unstable();
        factors.dedup();
        for factor in factors.into_iter().rev().filter(|f| *f > 1) {
            let (multiples, rest): (Terms, Terms) = terms.iter().partition(|t| t.1 % factor == 0);
            if multiples.is_empty() || rest.is_empty() {
                continue;
            }
            self.budget.spend(terms.len())?;
            let (low, high) = self.sum_range(&rest)?;
            // The smallest value at least `low` that leaves a multiple of the factor.
            let first = low + (value - low).rem_euclid(factor);
            if first > high {
                return Err(Stop::Conflict);
            }
            if first + factor > high {
                return Ok(Some((multiples, rest, first)));
            }
        }
        Ok(None)
    }

    /// A variable that the equation gives, and what it is. The best one needs no row to stay in its range; else the one in the fewest
    /// rows.
    fn unit(&self, terms: &[(Variable, Int)], value: Int) -> Result<Option<(Variable, Linear)>, Stop> {
        let mut best: Option<((bool, usize), Variable, Linear)> = None;
        for (v, c) in terms.iter().filter(|t| t.1.abs() == 1) {
            let rest: Terms = terms.iter().filter(|t| t.0 != *v).map(|(w, d)| (*w, -d * c)).collect();
            let by = Linear { terms: rest, constant: value * c };
            let (low, high) = self.range(&by)?;
            let (from, to) = self.ranges[v.0 as usize];
            let inside = from <= low && high <= to;
            let rows = self.rows.iter().filter(|r| r.terms.iter().any(|t| t.0 == *v)).count();
            let rank = (!inside, rows);
            if best.as_ref().is_none_or(|b| rank < b.0) {
                best = Some((rank, *v, by));
            }
        }
        Ok(best.map(|(_, v, by)| (v, by)))
    }

    /// No coefficient is 1: the variable with the smallest one is replaced by a sum in which the others are subtracted as often as
    /// makes their coefficients smaller than that, until the equation gives a variable.
    fn reduce(&mut self, mut terms: Terms, mut value: Int) -> Result<(), Stop> {
        loop {
            let factor = content(&terms).max(1);
            if value % factor != 0 {
                return Err(Stop::Conflict);
            }
            (terms, value) = (terms.into_iter().map(|(v, c)| (v, c / factor)).collect(), value / factor);
            if let Some((v, by)) = self.unit(&terms, value)? {
                return self.solve(v, by);
            }
            let Some((x, c)) = terms.iter().min_by_key(|t| t.1.abs()).copied() else { return Ok(()) };
            self.budget.spend(4 * terms.len())?;
            let mut shift = Linear::default();
            let mut left = Linear::default();
            for (v, d) in terms.iter().filter(|t| t.0 != x) {
                // The nearest multiple.
                let times = (2 * d + c.abs()).div_euclid(2 * c.abs()) * c.signum();
                let term = Linear::from(*v);
                shift = shift.plus(&term, times).ok_or(Stop::Spent)?;
                left = left.plus(&term, d - times * c).ok_or(Stop::Spent)?;
            }
            let sum = Linear::from(x).plus(&shift, 1).ok_or(Stop::Spent)?;
            let range = self.range(&sum)?;
            let t = Linear::from(self.introduce(range));
            terms = left.plus(&t, c).ok_or(Stop::Spent)?.terms;
            self.solve(x, t.plus(&shift, -1).ok_or(Stop::Spent)?)?;
        }
    }
}
