//! How the threads of a block are numbered: threadIdx.x fastest; 32 consecutive threads are a warp, 128 a warpgroup.

use super::{LaunchAxis, LoweredKernel};
use crate::ir::simplify::{Env, simplify, simplify_cond};
use crate::ir::{Axis, Cond, Index, Var, visit};
use std::collections::BTreeMap;

pub use crate::target::LANES;
/// Threads of a warpgroup.
pub const WARPGROUP: i64 = 128;

/// The number of a thread in its block, threadIdx.x fastest.
pub fn number(launch: &[LaunchAxis]) -> (Index, i64) {
    let mut number = (Index::Int(0), 1);
    for axis in [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ] {
        if let Some(l) = launch.iter().find(|l| l.axis == axis) {
            number = (number.0 + l.var * number.1, number.1 * i64::from(l.extent));
        }
    }
    number
}

/// The number of a thread's warp.
pub fn warp(launch: &[LaunchAxis]) -> Index {
    simplify(&number(launch).0.floordiv(LANES), &ranges(launch))
}

/// The number of a thread's warp in its warpgroup.
pub fn warp_of_group(launch: &[LaunchAxis]) -> Index {
    simplify(&number(launch).0.floordiv(LANES).floormod(WARPGROUP / LANES), &ranges(launch))
}

/// The number of a thread's warpgroup.
pub fn warpgroup(launch: &[LaunchAxis]) -> Index {
    simplify(&number(launch).0.floordiv(WARPGROUP), &ranges(launch))
}

/// The number of a thread in its warpgroup.
pub fn thread_of_group(launch: &[LaunchAxis]) -> Index {
    simplify(&number(launch).0.floormod(WARPGROUP), &ranges(launch))
}

/// An index for the thread of that number, every other variable 0.
pub fn for_thread(index: &Index, launch: &[LaunchAxis], thread: i64) -> Option<i64> {
    let (mut values, mut left) = (BTreeMap::new(), thread);
    for axis in [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ] {
        if let Some(l) = launch.iter().find(|l| l.axis == axis) {
            values.insert(l.var, left % i64::from(l.extent));
            left /= i64::from(l.extent);
        }
    }
    index.eval(&|v| Some(values.get(&v).copied().unwrap_or(0)))
}

/// The number of a thread in its warp.
pub fn lane(launch: &[LaunchAxis]) -> Index {
    simplify(&number(launch).0.floormod(LANES), &ranges(launch))
}

/// The ranges of the variables of the axes.
pub fn ranges(launch: &[LaunchAxis]) -> Env {
    let mut env = Env::new();
    launch.iter().for_each(|l| env.bind(l.var, 0, i64::from(l.extent) - 1));
    env
}

/// Whether a condition is the same for all lanes of a warp.
pub fn is_uniform(cond: &Cond, kernel: &LoweredKernel) -> bool {
    let (apart, within, env) = in_runs(&kernel.launch, LANES, &kernel.env());
    !simplify_cond(&visit::subst_cond(cond, &apart), &env).mentions(within)
}

/// Whether an index is the same for all threads of each run of so many, which are those of a warp or of a warpgroup.
pub fn is_same_in(index: &Index, launch: &[LaunchAxis], threads: i64, env: &Env) -> bool {
    let (apart, within, env) = in_runs(launch, threads, env);
    !simplify(&visit::subst_index(index, &apart), &env).mentions(within)
}

/// The thread axes in terms of the run that a thread is in and its number there, which is the variable returned.
fn in_runs(launch: &[LaunchAxis], threads: i64, env: &Env) -> (visit::Map, Var, Env) {
    let (run, within) = (Var(u32::MAX - 1), Var(u32::MAX));
    let (number, mut apart, mut before) = (run * threads + within, visit::Map::new(), 1);
    for axis in [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ] {
        if let Some(l) = launch.iter().find(|l| l.axis == axis) {
            apart.insert(l.var, number.clone().floordiv(before).floormod(i64::from(l.extent)));
            before *= i64::from(l.extent);
        }
    }
    let mut env = env.clone();
    env.bind(run, 0, (before / threads - 1).max(0));
    env.bind(within, 0, threads - 1);
    (apart, within, env)
}
