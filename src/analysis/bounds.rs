//! Why an access stays inside its buffer: by ranges alone, by the conditions around it, or because every lane was counted.

use super::report::Bounds;
use super::site::{Agent, Site};
use crate::ir::lowered::LoweredKernel;
use crate::ir::simplify::{self, Env};
use crate::ir::{Cond, print};

/// Bounds of an access; `counted` is the first and last element of all lanes, where they were counted exactly.
pub fn of(kernel: &LoweredKernel, site: &Site<'_>, counted: Option<(i64, i64)>) -> Bounds {
    let (func, maps, launch) = (&kernel.func, &kernel.maps, kernel.env());
    let threads: Vec<_> = kernel.launch.iter().filter(|l| !l.axis.is_block_level()).map(|l| l.var).collect();
    let elements = func.buffer(site.buffer).elements().unwrap_or(0);
    let behind = match site.by {
        Agent::Lanes => i64::from(site.lanes.max(1)),
        Agent::Product(_) => return Bounds::NotJudged,
        Agent::Copy(copy) if site.buffer == copy.global => return Bounds::Clipped,
        Agent::Copy(copy) => maps.get(copy.map as usize).map_or(1, |m| m.tile.iter().product()),
    } - 1;
    let mut env = launch;
    if let Some(role) = site.around.role {
        threads.iter().for_each(|t| env.bind(*t, 0, i64::from(role.warps) * 32 - 1));
    }
    for l in &site.around.loops {
        for (var, extent) in l.defines() {
            env.bind_loop(var, &extent);
        }
    }
    let reach = |env: &Env| simplify::bounds(&site.index, env).map(|(low, high)| (low, high.saturating_add(behind)));
    let inside = |range: &(i64, i64)| range.0 >= 0 && range.1 < elements;
    let plain = reach(&env);
    if let Some(range) = plain.filter(inside) {
        return Bounds::Proved { range, elements };
    }
    let parts: Vec<&Cond> = site.around.conds.iter().flat_map(Cond::conjuncts).collect();
    let with = |conds: &[&Cond]| {
        let mut env = env.clone();
        conds.iter().for_each(|c| env.assume(c));
        reach(&env).filter(inside)
    };
    // One condition that is enough says more than all of them.
    let one = parts.iter().find_map(|c| Some((with(&[c])?, print::cond(func, c))));
    let all = || {
        let words: Vec<String> = parts.iter().map(|c| print::cond(func, c)).collect();
        Some((with(&parts)?, words.join(" and ")))
    };
    if let Some((range, by)) = one.or_else(all) {
        return Bounds::Predicated { range, elements, by };
    }
    match counted.map(|(low, high)| (low, high.saturating_add(behind))) {
        Some(range) if inside(&range) => Bounds::Counted { range, elements },
        range => Bounds::Open { range: range.or(plain), elements },
    }
}
