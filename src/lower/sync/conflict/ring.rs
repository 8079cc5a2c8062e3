//! Stages of a ring: the number of iterations after which an access uses the bytes of another again.

use super::{Flat, Sites};
use crate::ir::simplify::{self, Affine};
use crate::ir::{Index, IndexOp, Var};
use std::borrow::Cow;

impl Sites<'_> {
    /// The innermost loop around both accesses and the stages of its ring, which its iterations use in turn, also from one run of
    /// the loop to the next: only accesses that are a multiple of so many iterations apart touch the same bytes. `None` where that is
    /// not known.
    pub fn ring(&self, a: usize, b: usize) -> Option<(Var, u32)> {
        let (a, b) = (&self.sites[a], &self.sites[b]);
        if a.buffer != b.buffer {
            return None;
        }
        let common: Vec<(Var, i64)> =
            a.loops.iter().zip(&b.loops).take_while(|(x, y)| x == y).map(|(x, _)| *x).collect();
        let (var, _) = *common.last()?;
        let (a, b) = self.same_block(a, b)?;
        let stage = |(atom, size): &(Index, i64)| {
            let Index::Bin(IndexOp::FloorMod, number, stages) = atom else { return None };
            let stages = stages.as_int().filter(|n| *n > 1)?;
            let theirs = b.affine.terms.iter().any(|(x, s)| x == atom && s == size);
            (theirs && counts(number, &common, stages)).then(|| (atom.clone(), *size, stages))
        };
        let (atom, size, stages) = a.affine.terms.iter().find_map(stage)?;
        let inside = |flat: &Flat| {
            let terms = flat.affine.terms.iter().filter(|(x, _)| *x != atom).cloned().collect();
            self.span(&Flat { site: flat.site, affine: Cow::Owned(Affine { terms, constant: flat.affine.constant }) })
        };
        let ((x, y), (z, w)) = (inside(&a)?, inside(&b)?);
        let apart = y.max(w).checked_sub(x.min(z))? < size;
        apart.then_some((var, u32::try_from(stages).ok()?))
    }
}

/// Whether a number grows by one from iteration to iteration of the innermost loop and from its last one to the first of its next
/// run, up to multiples of `stages`.
fn counts(number: &Index, loops: &[(Var, i64)], stages: i64) -> bool {
    let affine = simplify::affine(number);
    let variables = affine.terms.iter().all(|(atom, _)| loops.iter().any(|(v, _)| atom.as_var() == Some(*v)));
    let mut runs = Some(1i64);
    variables
        && loops.iter().rev().all(|(v, extent)| {
            let grows = runs.is_some_and(|n| (affine.coefficient(*v) - n) % stages == 0);
            runs = runs.and_then(|n| n.checked_mul(*extent));
            grows || *extent == 1
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_on_from_run_to_run() {
        let (outer, inner) = (Var(0), Var(1));
        let loops = [(outer, 5), (inner, 4)];
        let number = |of_outer: i64, of_inner: i64| Index::Var(outer) * of_outer + Index::Var(inner) * of_inner;
        assert!(counts(&number(4, 1), &loops, 3));
        assert!(counts(&(number(4, 1) + 7), &loops, 3));
        // Four more are none in a ring of two or four stages.
        assert!(counts(&number(0, 1), &loops, 4));
        assert!(!counts(&number(0, 1), &loops, 3));
        assert!(!counts(&number(4, 2), &loops, 3));
        assert!(!counts(&(number(4, 1) + Index::Var(Var(2))), &loops, 3));
    }
}
