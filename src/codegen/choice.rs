//! Statements of which a launch runs one: conditions on a dynamic size that exclude one another.
//!
//! All conditions come first, and the bodies behind them. Written one after the other, each condition would stand behind the body before it, and a block would
//! fetch code from device memory for each of the conditions up to its own: the code of a kernel is in no cache when its first block begins.

use super::body::Body;
use crate::error::Result;
use crate::ir::{CmpOp, Cond, If, Index, Stmt, Var};

/// The leading statements that are such conditions, if they are several.
pub(super) fn choices<'s>(body: &'s [Stmt], sizes: &[Var]) -> Vec<&'s If> {
    let mut all: Vec<(&If, Vec<Within>)> = Vec::new();
    for stmt in body {
        let Stmt::If(guard) = stmt else { break };
        let of_size = sizes.iter().any(|size| guard.cond.mentions(*size));
        let Some(within) = within(&guard.cond).filter(|own| of_size && all.iter().all(|(_, w)| exclude(w, own))) else {
            break;
        };
        all.push((guard, within));
    }
    if all.len() < 2 { Vec::new() } else { all.into_iter().map(|(guard, _)| guard).collect() }
}

/// An index with its least and its largest value.
type Within<'s> = (&'s Index, i64, i64);

/// The ranges that a condition asks of indices, all of them.
fn within(cond: &Cond) -> Option<Vec<Within<'_>>> {
    let (low, high) = (i64::MIN, i64::MAX);
    Some(match cond {
        Cond::And(a, b) => [within(a)?, within(b)?].concat(),
        Cond::Cmp(op, a, b) => match (op, a.as_int(), b.as_int()) {
            (CmpOp::Lt, None, Some(n)) => vec![(a, low, n.checked_sub(1)?)],
            (CmpOp::Le, None, Some(n)) => vec![(a, low, n)],
            (CmpOp::Lt, Some(n), None) => vec![(b, n.checked_add(1)?, high)],
            (CmpOp::Le, Some(n), None) => vec![(b, n, high)],
            (CmpOp::Eq, None, Some(n)) => vec![(a, n, n)],
            (CmpOp::Eq, Some(n), None) => vec![(b, n, n)],
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether no values are within both.
fn exclude(a: &[Within<'_>], b: &[Within<'_>]) -> bool {
    let apart = |x: &Within<'_>, y: &Within<'_>| x.0 == y.0 && (x.2 < y.1 || y.2 < x.1);
    a.iter().any(|x| b.iter().any(|y| apart(x, y)))
}

impl Body<'_, '_, '_> {
    /// Statements one after the other, or by their conditions.
    pub(super) fn stmts(&mut self, body: &[Stmt]) -> Result<()> {
        let sizes: Vec<Var> = self.func.sizes.iter().map(|s| s.var).collect();
        let mut rest = body;
        while let [first, others @ ..] = rest {
            let choices = if sizes.is_empty() { Vec::new() } else { choices(rest, &sizes) };
            if choices.is_empty() {
                self.stmt(first)?;
                rest = others;
            } else {
                self.one_of(&choices)?;
                rest = &rest[choices.len()..];
            }
        }
        Ok(())
    }

    fn one_of(&mut self, all: &[&If]) -> Result<()> {
        let tests: Vec<_> = all.iter().skip(1).map(|_| self.new_block("test")).collect();
        let bodies: Vec<_> = all.iter().map(|_| self.new_block("then")).collect();
        let after = self.new_block("after");
        for (n, guard) in all.iter().enumerate() {
            let condition = self.condition(&guard.cond)?;
            let next = tests.get(n).copied().unwrap_or(after);
            self.b.branch(condition, bodies[n], next)?;
            self.b.at_end(next);
        }
        bodies.into_iter().zip(all).try_for_each(|(then, guard)| self.under(guard, (then, after)))?;
        self.b.at_end(after);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conditions_on_sizes_that_exclude_one_another_are_chosen_among() {
        let (size, other) = (Index::Var(Var(0)), Index::Var(Var(1)));
        let stmt = |cond: Cond| Stmt::If(If { cond, body: Vec::new() });
        let count = |all: Vec<Cond>| choices(&all.into_iter().map(stmt).collect::<Vec<_>>(), &[Var(0)]).len();
        let [few, three, more] = [Cond::lt(size.clone(), 3), Cond::eq(size.clone(), 3), Cond::lt(3, size.clone())];
        assert_eq!(count(vec![few.clone(), three.clone(), more.clone()]), 3);
        // The third condition overlaps the first one; conditions on other variables are not among them.
        assert_eq!(count(vec![few.clone(), more.clone(), Cond::lt(size.clone(), 2)]), 2);
        assert_eq!(count(vec![few.clone()]), 0);
        assert_eq!(count(vec![Cond::lt(other.clone(), 3), Cond::eq(other.clone(), 3)]), 0);
        let both = |n: i64| few.clone().and(Cond::eq(other.clone(), n));
        assert_eq!(count(vec![both(0), both(1), both(0)]), 2);
    }
}
