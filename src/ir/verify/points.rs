//! Statements about all values of some variables: proved, or refuted by values.

use crate::ir::simplify::{Env, prove};
use crate::ir::{Cond, Func, Var};
use std::collections::BTreeSet;

/// A variable that runs from 0 to an extent.
pub type Ranged = (Var, i64);

/// At most this many assignments are tried.
const TRIES: i64 = 1 << 14;

/// Values for which `given` holds and `cond` does not; none if that is proved impossible or none are found.
pub fn counterexample(cond: &Cond, given: &Cond, vars: &[Ranged]) -> Option<Vec<Ranged>> {
    if cond.is_true() {
        return None;
    }
    let mut env = Env::new();
    for (var, extent) in vars {
        env.bind(*var, 0, extent.saturating_sub(1));
    }
    if !given.is_true() {
        env.assume(given);
    }
    if prove(cond, &env) {
        return None;
    }
    let mut mentioned = BTreeSet::new();
    for c in [cond, given] {
        c.for_each_index(&mut |i| {
            i.for_each_var(&mut |v| {
                mentioned.insert(v);
            });
        });
    }
    let vars: Vec<Ranged> = vars.iter().filter(|(v, _)| mentioned.contains(v)).copied().collect();
    assignments(&vars).into_iter().find(|point| {
        let value = |v: Var| point.iter().find(|(p, _)| *p == v).map(|(_, x)| *x);
        given.eval(&value) == Some(true) && cond.eval(&value) != Some(true)
    })
}

/// All assignments if they are few, else the corners and a seeded sample.
pub fn assignments(vars: &[Ranged]) -> Vec<Vec<Ranged>> {
    let all = vars.iter().try_fold(1i64, |n, (_, extent)| n.checked_mul(*extent)).filter(|n| *n <= TRIES);
    match all {
        Some(count) => (0..count).map(|n| digits(n, vars)).collect(),
        None => sample(vars, TRIES / 4),
    }
}

/// First and last values in all combinations (of up to ten variables), then random ones.
pub fn sample(vars: &[Ranged], random: i64) -> Vec<Vec<Ranged>> {
    let corners = 1u32 << vars.len().min(10);
    let corner = |mask: u32| {
        let end = |n: usize| mask >> n.min(31) & 1 == 1;
        vars.iter().enumerate().map(|(n, (v, extent))| (*v, if end(n) { (extent - 1).max(0) } else { 0 })).collect()
    };
    let mut rng = fastrand::Rng::with_seed(7);
    let mut out: Vec<Vec<Ranged>> = (0..corners).map(corner).collect();
    out.extend((0..random).map(|_| vars.iter().map(|(v, extent)| (*v, rng.i64(0..(*extent).max(1)))).collect()));
    out
}

/// The n-th assignment, the last variable fastest.
pub fn digits(mut n: i64, vars: &[Ranged]) -> Vec<Ranged> {
    let mut out = Vec::with_capacity(vars.len());
    for (var, extent) in vars.iter().rev() {
        out.push((*var, n % extent.max(&1)));
        n /= extent.max(&1);
    }
    out.reverse();
    out
}

/// The next assignment, the last variable fastest; the first one after the last.
pub fn advance(point: &mut [Ranged], vars: &[Ranged]) {
    for ((_, value), (_, extent)) in point.iter_mut().zip(vars).rev() {
        *value += 1;
        if *value < *extent {
            return;
        }
        *value = 0;
    }
}

/// `i = 3, j = 0`
pub fn show(func: &Func, point: &[Ranged]) -> String {
    let parts: Vec<String> = point.iter().map(|(v, x)| format!("{} = {x}", func.var_name(*v))).collect();
    if parts.is_empty() { "everywhere".to_string() } else { format!("at {}", parts.join(", ")) }
}
