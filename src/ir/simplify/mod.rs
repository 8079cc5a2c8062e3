//! Simplifies index arithmetic: equal values get equal, short forms.
//!
//! Every index is brought to a sum of `atom * coefficient` and a constant ([`Affine`]). Atoms are variables,
//! quotients, remainders, minima, maxima and products of sums that are themselves in this form. Terms are in the order
//! in which they first appear, so that `blockIdx.x*16384 + threadIdx.x*512 + k` reads as it was written.
//!
//! What is promised, for every assignment of the variables within their ranges that satisfies the assumed facts and
//! under which every part of the original has a value: [`simplify`] and [`simplify_cond`] keep that value, `bounds` contains it,
//! [`divisor`] divides it, and what [`prove`] and [`equal`] affirm holds. They may fail to see something; they never
//! affirm what is false. Arithmetic that would leave 62 bits is left as it is; nothing here panics.

mod affine;
mod bounds;
mod canonical;
mod condition;
mod divide;
mod env;
#[cfg(test)]
mod tests;

pub use affine::{Affine, affine, gcd};
pub use condition::{holds_in_ranges, prove, simplify_cond};
pub use env::Env;

pub(super) use bounds::{lower, upper};
pub(super) use canonical::canonical;

use super::{Index, IndexOp};

/// The same value in canonical form.
pub fn simplify(index: &Index, env: &Env) -> Index {
    canonical(index, env).to_index()
}

/// The smallest and the largest value that the index can be shown to have, both inclusive.
pub fn bounds(index: &Index, env: &Env) -> Option<(i64, i64)> {
    let sum = canonical(index, env);
    Some((lower(&sum, env)?, upper(&sum, env)?))
}

/// Whether both provably have the same value.
pub fn equal(a: &Index, b: &Index, env: &Env) -> bool {
    if a == b {
        return true;
    }
    let difference = canonical::difference(a, b, env);
    let zero = |sum: &Affine| sum.as_constant() == Some(0);
    zero(&difference)
        || divide::without_remainders(&difference, env).is_some_and(|d| zero(&d))
        || (upper(&difference, env) == Some(0) && lower(&difference, env) == Some(0))
}

/// The largest integer known to divide the index; 0 if the index is 0.
pub fn divisor(index: &Index, env: &Env) -> i64 {
    sum_divisor(&canonical(index, env))
}

fn sum_divisor(sum: &Affine) -> i64 {
    let terms = sum.terms.iter().fold(0, |g, (atom, c)| gcd(g, c.saturating_mul(atom_divisor(atom))));
    gcd(terms, sum.constant)
}

fn atom_divisor(atom: &Index) -> i64 {
    let Index::Bin(op, a, b) = atom else { return atom.as_int().map_or(1, i64::saturating_abs) };
    let (x, y) = (sum_divisor(&affine(a)), sum_divisor(&affine(b)));
    match op {
        IndexOp::Mul => x.checked_mul(y).unwrap_or(1),
        IndexOp::FloorDiv => match b.as_int() {
            Some(c) if c != 0 && x % c == 0 => (x / c).saturating_abs(),
            _ => 1,
        },
        IndexOp::Add | IndexOp::Sub | IndexOp::FloorMod | IndexOp::Min | IndexOp::Max => gcd(x, y),
        // The low bits that are zero in both; 0 divides what is 0 alone.
        IndexOp::Xor => 1 << (x | y).trailing_zeros().min(62),
    }
}
