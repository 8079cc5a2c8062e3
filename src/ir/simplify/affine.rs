//! Sums of atoms with integer coefficients, in order of first appearance.

use crate::ir::{Index, IndexOp, Var};

/// Coefficients and constants stay below this, so that negation and small sums of them cannot overflow.
const LIMIT: u64 = 1 << 62;

/// The sum of `atom * coefficient` over the terms, plus the constant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Affine {
    /// Each atom (a variable or a subterm that is no sum) once, with a coefficient that is not 0.
    pub terms: Vec<(Index, i64)>,
    /// What is added.
    pub constant: i64,
}

/// Reads the sum off an index as it is written; nothing is simplified below an atom.
pub fn affine(index: &Index) -> Affine {
    let mut sum = Affine::default();
    match collect(&mut sum, index, 1) {
        Some(()) => sum,
        None => Affine::atom(index.clone()),
    }
}

fn collect(sum: &mut Affine, index: &Index, scale: i64) -> Option<()> {
    match index {
        Index::Int(v) => sum.add_constant(v.checked_mul(scale)?),
        Index::Bin(IndexOp::Add, a, b) => {
            collect(sum, a, scale)?;
            collect(sum, b, scale)
        }
        Index::Bin(IndexOp::Sub, a, b) => {
            collect(sum, a, scale)?;
            collect(sum, b, scale.checked_neg()?)
        }
        Index::Bin(IndexOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (_, Some(k)) => collect(sum, a, fits(k.checked_mul(scale)?)?),
            (Some(k), _) => collect(sum, b, fits(k.checked_mul(scale)?)?),
            _ => sum.add_term(index, scale),
        },
        Index::Var(_) | Index::Bin(..) => sum.add_term(index, scale),
    }
}

/// The value, if it is small enough for a coefficient.
pub(super) fn fits(value: i64) -> Option<i64> {
    (value.unsigned_abs() < LIMIT).then_some(value)
}

/// The greatest common divisor; `gcd(0, x)` is the magnitude of x.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    // Only 2^63 does not fit; 1 divides it as well.
    i64::try_from(a).unwrap_or(1)
}

impl Affine {
    /// A sum without terms.
    pub fn constant(value: i64) -> Affine {
        Affine { terms: Vec::new(), constant: value }
    }

    /// One atom, once.
    pub fn atom(atom: Index) -> Affine {
        Affine { terms: vec![(atom, 1)], constant: 0 }
    }

    /// The value, if there are no terms.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The coefficient of a variable that is alone; 0 if it does not.
    pub fn coefficient(&self, var: Var) -> i64 {
        self.terms.iter().find(|(atom, _)| atom.as_var() == Some(var)).map_or(0, |(_, c)| *c)
    }

    /// Whether the variable occurs, also inside atoms.
    pub fn mentions(&self, var: Var) -> bool {
        self.terms.iter().any(|(atom, _)| atom.mentions(var))
    }

    /// The sum as an index: positive terms lead, constants come last.
    pub fn to_index(&self) -> Index {
        let lead = self.terms.iter().position(|(_, c)| *c > 0);
        let mut out = match (lead, self.terms.first()) {
            (Some(at), _) => scaled(&self.terms[at]),
            (None, Some(first)) if self.constant <= 0 => scaled(first),
            _ => Index::Int(self.constant),
        };
        let start = lead.or((self.constant <= 0).then_some(0));
        for (at, (atom, c)) in self.terms.iter().enumerate() {
            if Some(at) == start {
                continue;
            }
            let term = scaled(&(atom.clone(), c.saturating_abs()));
            out = Index::bin(if *c > 0 { IndexOp::Add } else { IndexOp::Sub }, out, term);
        }
        match (start, self.constant) {
            (None, _) => out,
            _ if self.terms.is_empty() => out,
            (_, k) if k < 0 => Index::bin(IndexOp::Sub, out, Index::Int(k.saturating_neg())),
            (_, k) => Index::bin(IndexOp::Add, out, Index::Int(k)),
        }
    }

    /// Adds to the constant; `None` where it does not fit.
    pub(in crate::ir) fn add_constant(&mut self, value: i64) -> Option<()> {
        self.constant = fits(self.constant.checked_add(value)?)?;
        Some(())
    }

    /// Adds a multiple of an atom; `None` where a coefficient does not fit.
    pub(in crate::ir) fn add_term(&mut self, atom: &Index, coefficient: i64) -> Option<()> {
        match self.terms.iter().position(|(a, _)| same(a, atom)) {
            Some(at) => {
                let c = fits(self.terms[at].1.checked_add(coefficient)?)?;
                if c == 0 {
                    self.terms.remove(at);
                } else {
                    self.terms[at].1 = c;
                }
            }
            None if coefficient == 0 => {}
            None => self.terms.push((atom.clone(), fits(coefficient)?)),
        }
        Some(())
    }

    /// Adds a multiple of another sum; `None` where a coefficient does not fit.
    pub(in crate::ir) fn add(&mut self, other: &Affine, scale: i64) -> Option<()> {
        for (atom, c) in &other.terms {
            self.add_term(atom, c.checked_mul(scale)?)?;
        }
        self.add_constant(other.constant.checked_mul(scale)?)
    }

    /// `self + other * scale`.
    pub(in crate::ir) fn plus(&self, other: &Affine, scale: i64) -> Option<Affine> {
        let mut out = self.clone();
        out.add(other, scale)?;
        Some(out)
    }

    /// `self * factor`.
    pub(super) fn times(&self, factor: i64) -> Option<Affine> {
        if factor == 0 {
            return Some(Affine::default());
        }
        let times = |value: i64| value.checked_mul(factor).and_then(fits);
        let terms = self.terms.iter().map(|(atom, c)| Some((atom.clone(), times(*c)?))).collect::<Option<_>>()?;
        Some(Affine { terms, constant: times(self.constant)? })
    }

    /// The greatest common divisor of the coefficients; 0 without terms.
    pub(super) fn content(&self) -> i64 {
        self.terms.iter().fold(0, |g, (_, c)| gcd(g, *c))
    }

    /// Without the term at a position.
    pub(super) fn without(&self, at: usize) -> Affine {
        let terms = self.terms.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, t)| t.clone()).collect();
        Affine { terms, constant: self.constant }
    }

    /// Whether the atom of the term at a position shares a variable with another term.
    pub(super) fn entangled(&self, at: usize) -> bool {
        let mut shared = false;
        self.terms[at].0.for_each_var(&mut |v| {
            shared |= self.terms.iter().enumerate().any(|(i, (atom, _))| i != at && atom.mentions(v));
        });
        shared
    }
}

fn scaled((atom, coefficient): &(Index, i64)) -> Index {
    Index::bin(IndexOp::Mul, atom.clone(), Index::Int(*coefficient))
}

/// Whether two canonical indices are equal up to the order of terms.
pub(super) fn same(a: &Index, b: &Index) -> bool {
    let (Index::Bin(op, a0, a1), Index::Bin(other, b0, b1)) = (a, b) else { return a == b };
    match (op, other) {
        (IndexOp::FloorDiv, IndexOp::FloorDiv) | (IndexOp::FloorMod, IndexOp::FloorMod) => same(a1, b1) && same(a0, b0),
        (IndexOp::Min, IndexOp::Min) | (IndexOp::Max, IndexOp::Max) | (IndexOp::Xor, IndexOp::Xor) => {
            (same(a0, b0) && same(a1, b1)) || (same(a0, b1) && same(a1, b0))
        }
        (IndexOp::Add | IndexOp::Sub | IndexOp::Mul, IndexOp::Add | IndexOp::Sub | IndexOp::Mul) => {
            a == b || same_sum(&affine(a), &affine(b), a)
        }
        _ => false,
    }
}

fn same_sum(x: &Affine, y: &Affine, whole: &Index) -> bool {
    // An atom that is its own sum (a product, or one too large to take apart) was compared by the caller.
    if x.terms.iter().any(|(atom, _)| atom == whole) {
        return false;
    }
    x.constant == y.constant
        && x.terms.len() == y.terms.len()
        && x.terms.iter().all(|(atom, c)| y.terms.iter().any(|(other, d)| c == d && same(atom, other)))
}
