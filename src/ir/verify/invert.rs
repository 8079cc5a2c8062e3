//! Which iteration of a writer writes an element: the write's indices, solved for its loops.
//!
//! Indices are sums of loops and of digits of loops (`(i // 4) % 8`) with constant factors. A sum is taken apart from its largest
//! factor down, as a number is into digits; the digits of one index are put together again. What comes out is a guess that
//! the asker checks: for indices of another form, or where several iterations write the element, it may miss the one that counts.

use super::points::Ranged;
use crate::index::Digit;
use crate::index::{Int, Linear};
use crate::ir::decide::{Terms, Values};
use crate::ir::simplify::{Affine, Env, affine, bounds, simplify};
use crate::ir::{CmpOp, Cond, Index, IndexOp, Var};

/// A writer as far as it matters which of its iterations writes.
pub struct Writer<'a> {
    /// The element that it writes.
    pub indices: &'a [Index],
    /// What holds where it writes.
    pub given: &'a Cond,
    /// The loops of which an iteration is sought; others have the values of the reader.
    pub own: &'a [Ranged],
}

/// What an unmentioned loop is set to.
#[derive(Clone, Copy)]
pub enum Rest<'a> {
    /// Its first iteration.
    First,
    /// Its last iteration; of a loop that the reader is in, too, the one before the reader's.
    Last,
    /// Its value, and that of digits that nothing gives, in an iteration that is known to write what is read in some iteration: the
    /// values of the writer's loops and of the reader's others.
    At(&'a [Ranged]),
}

/// A digit of an index whose value is known.
struct Known {
    digit: Digit<Index>,
    value: Linear,
}

impl Rest<'_> {
    /// The value of an index in the iteration that is known.
    fn value(self, index: &Index) -> Option<i64> {
        let Rest::At(point) = self else { return None };
        index.eval(&|v| point.iter().find(|(w, _)| *w == v).map(|(_, x)| *x))
    }
}

struct Inverse<'a, 't> {
    terms: &'t mut Terms,
    own: &'a [Ranged],
    env: Env,
    /// The values of the variables that are known.
    values: Values,
    /// The values of digits that are known.
    atoms: Vec<(Index, Linear)>,
    digits: Vec<Known>,
    rest: Rest<'a>,
}

/// The values of all variables in an iteration that may write `element`; `None` where a term does not fit. `around` holds the
/// values of the reader's variables, `env` the ranges of the variables that reader and writer share.
pub fn invert(
    terms: &mut Terms,
    writer: &Writer<'_>,
    element: &[Linear],
    around: &Values,
    env: &Env,
    rest: Rest<'_>,
) -> Option<Values> {
    let mut env = env.clone();
    writer.own.iter().for_each(|(v, extent)| env.bind(*v, 0, extent.saturating_sub(1)));
    let is_own = |v: &Var| writer.own.iter().any(|(w, _)| w == v);
    let values = around.iter().filter(|(v, _)| !is_own(v)).cloned().collect();
    let mut inverse = Inverse { terms, own: writer.own, env, values, atoms: Vec::new(), digits: Vec::new(), rest };
    let mut left: Vec<(Affine, Linear)> = writer
        .indices
        .iter()
        .zip(element)
        .map(|(index, value)| (affine(&simplify(index, &inverse.env)), value.clone()))
        .collect();
    while !left.is_empty() {
        let unknown = |(sum, _): &(Affine, Linear)| sum.terms.iter().filter(|(a, _)| !inverse.is_known(a)).count();
        let at = (0..left.len()).min_by_key(|at| unknown(&left[*at])).unwrap_or(0);
        let (sum, value) = left.remove(at);
        inverse.sum(&sum, value)?;
        inverse.join(false)?;
    }
    inverse.join(true)?;
    inverse.equalities(writer.given)?;
    for (v, extent) in writer.own {
        if inverse.value(*v).is_none() {
            let value = match rest {
                Rest::First => Linear::default(),
                Rest::Last => match around.iter().find(|(w, _)| w == v) {
                    Some((_, now)) => now.offset(-1)?,
                    None => Linear::from(extent - 1),
                },
                Rest::At(point) => Linear::from(point.iter().find(|(w, _)| w == v).map_or(0, |(_, x)| *x)),
            };
            inverse.values.push((*v, value));
        }
    }
    Some(inverse.values)
}

impl Inverse<'_, '_> {
    fn value(&self, v: Var) -> Option<&Linear> {
        self.values.iter().find(|(w, _)| *w == v).map(|(_, x)| x)
    }

    fn is_known(&self, atom: &Index) -> bool {
        let mut all = true;
        atom.for_each_var(&mut |v| all &= self.value(v).is_some());
        all || self.atoms.iter().any(|(a, _)| a == atom)
    }

    fn known(&mut self, atom: &Index) -> Option<Linear> {
        if let Some((_, value)) = self.atoms.iter().find(|(a, _)| a == atom) {
            return Some(value.clone());
        }
        let values = std::mem::take(&mut self.values);
        let value = self.terms.index(atom, &values);
        self.values = values;
        value
    }

    /// Solves `sum = value` for its unknown terms.
    fn sum(&mut self, sum: &Affine, value: Linear) -> Option<()> {
        let mut rest = value.offset(-Int::from(sum.constant))?;
        let mut unknown: Vec<(Index, i64, i64, i64)> = Vec::new();
        for (atom, c) in &sum.terms {
            if self.is_known(atom) {
                rest = rest.plus(&self.known(atom)?, -Int::from(*c))?;
            } else {
                let (low, high) = bounds(atom, &self.env)?;
                unknown.push((atom.clone(), *c, low, high));
            }
        }
        unknown.sort_by_key(|(_, c, ..)| c.unsigned_abs());
        // As digits that count up from 0: of a negative factor from the last value down.
        let mut spans: Vec<Int> = Vec::new();
        let mut span: Int = 0;
        for (_, c, low, high) in &unknown {
            spans.push(span);
            span += (Int::from(*high) - Int::from(*low)) * Int::from(*c).abs();
            let first = if *c > 0 { low } else { high };
            rest = rest.offset(-Int::from(*c) * Int::from(*first))?;
        }
        for ((atom, c, low, high), below) in unknown.into_iter().zip(spans).rev() {
            let weight = Int::from(c).abs();
            let (mut digit, mut left) = self.terms.question.divide(&rest, weight)?;
            if below >= weight {
                // Digits overlap: as much as there is goes into the larger one.
                digit = self.terms.question.min(&digit, &Linear::from(high - low))?;
                left = rest.plus(&digit, -weight)?;
            }
            rest = left;
            let value = if c > 0 { digit.offset(Int::from(low))? } else { Linear::from(high).plus(&digit, -1)? };
            self.set(&atom, value)?;
        }
        Some(())
    }

    /// Takes down the value of a variable or a digit.
    fn set(&mut self, atom: &Index, value: Linear) -> Option<()> {
        if let Some(v) = atom.as_var() {
            if self.own.iter().any(|(w, _)| *w == v) && self.value(v).is_none() {
                self.values.push((v, value));
            }
            return Some(());
        }
        self.atoms.push((atom.clone(), value.clone()));
        let Index::Bin(op, a, b) = atom else { return Some(()) };
        match (op, b.as_int()) {
            // (x % n) // b, or x // b.
            (IndexOp::FloorDiv, Some(by)) if by > 0 => {
                let inner = match a.as_ref() {
                    Index::Bin(IndexOp::FloorMod, x, n) => {
                        Digit::whole((**x).clone()).remainder(n.as_int().unwrap_or(0))
                    }
                    _ => None,
                };
                let digit = inner.and_then(|d| d.quotient(by)).or_else(|| Digit::whole((**a).clone()).quotient(by))?;
                self.digits.push(Known { digit, value });
            }
            // (x // d) % b, or x % b.
            (IndexOp::FloorMod, Some(by)) if by > 0 => {
                let inner = match a.as_ref() {
                    Index::Bin(IndexOp::FloorDiv, x, d) => {
                        Digit::whole((**x).clone()).quotient(d.as_int().unwrap_or(0))
                    }
                    _ => None,
                };
                let digit = inner.unwrap_or_else(|| Digit::whole((**a).clone())).remainder(by)?;
                self.digits.push(Known { digit, value });
            }
            (IndexOp::Xor, _) => {
                let (known, other) = if self.is_known(a) { (a, b) } else { (b, a) };
                if self.is_known(known) {
                    let known = self.known(known)?;
                    let other = other.clone();
                    if let Some(value) = self.terms.question.xor(&value, &known) {
                        let sum = affine(&simplify(&other, &self.env));
                        self.sum(&sum, value)?;
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Puts the digits of indices that are not known yet together: those without a missing digit, or `all`, with 0 for a digit that
    /// is missing.
    fn join(&mut self, all: bool) -> Option<()> {
        let mut of: Vec<Index> = Vec::new();
        for known in &self.digits {
            if !of.contains(&known.digit.of) {
                of.push(known.digit.of.clone());
            }
        }
        for index in of {
            let of_index = || self.digits.iter().filter(|k| k.digit.of == index);
            let mut own: Vec<(i64, Linear)> = of_index().map(|k| (k.digit.low, k.value.clone())).collect();
            own.sort_by_key(|d| d.0);
            own.dedup_by_key(|d| d.0);
            let lowest = own.first().is_some_and(|d| d.0 == 1);
            // The highest digit has no end where the others lead up to it.
            let highest = of_index().any(|k| k.digit.high.is_none());
            let end = of_index().filter_map(|k| k.digit.high).max().unwrap_or(1).max(1);
            if (all || lowest && highest) && !self.is_known(&index) {
                let mut sum = Linear::default();
                for (weight, value) in &own {
                    sum = sum.plus(value, Int::from(*weight))?;
                }
                if let Some(at) = self.rest.value(&index) {
                    // Below the lowest digit, and above the highest.
                    sum = sum.offset(Int::from(at.rem_euclid(own.first().map_or(1, |d| d.0))))?;
                    if !highest {
                        sum = sum.offset(Int::from(at - at.rem_euclid(end)))?;
                    }
                }
                self.digits.retain(|k| k.digit.of != index);
                self.sum(&affine(&simplify(&index, &self.env)), sum)?;
            }
        }
        Some(())
    }

    /// Variables that a condition gives.
    fn equalities(&mut self, given: &Cond) -> Option<()> {
        for part in given.conjuncts() {
            let Cond::Cmp(CmpOp::Eq, a, b) = part else { continue };
            let difference = affine(&simplify(&Index::bin(IndexOp::Sub, a.clone(), b.clone()), &self.env));
            let unknown = difference.terms.iter().filter(|(atom, _)| !self.is_known(atom)).count();
            if unknown == 1 {
                self.sum(&difference, Linear::default())?;
                self.join(true)?;
            }
        }
        Some(())
    }
}
