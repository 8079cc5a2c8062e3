//! Claims that are not decided, tried at some points; and points in words.

pub use crate::ir::decide::Ranged;
use crate::ir::{Cond, Func, Var};

/// As many random points are tried.
const RANDOM: i64 = 1 << 12;

/// The first of some points that breaks a claim, and how many were tried.
pub fn tried(cond: &Cond, given: &Cond, vars: &[Ranged]) -> (Option<Vec<Ranged>>, usize) {
    let vars = crate::ir::decide::mentioned(&[cond, given], vars);
    let points = sample(&vars, RANDOM);
    let count = points.len();
    let broken = points.into_iter().find(|point| {
        let value = |v: Var| point.iter().find(|(p, _)| *p == v).map(|(_, x)| *x);
        given.eval(&value) == Some(true) && cond.eval(&value) != Some(true)
    });
    (broken, count)
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

/// `i = 3, j = 0`
pub fn show(func: &Func, point: &[Ranged]) -> String {
    let parts: Vec<String> = point.iter().map(|(v, x)| format!("{} = {x}", func.var_name(*v))).collect();
    if parts.is_empty() { "everywhere".to_string() } else { format!("at {}", parts.join(", ")) }
}
