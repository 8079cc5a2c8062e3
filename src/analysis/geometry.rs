//! Who runs a kernel: the threads of a block warp by warp, and the ranges of loops and blocks.
//!
//! The row and column of a rasterized walk take the place of the block index that they are computed from where, as
//! checking all of them shows, every pair occurs once.

use super::request::LANES;
use super::site::Around;
use crate::ir::lowered::LoweredKernel;
use crate::ir::{Axis, Index, LoopKind, Var, visit};
use std::collections::BTreeSet;

/// Blocks of a rasterized walk that are checked to be different.
const MOST_BLOCKS: u64 = 1 << 20;

/// The threads of a block, warp by warp, and the ranges of all other variables.
pub struct Geometry {
    pub warps: Vec<Warp>,
    threads: Vec<Var>,
    /// By number of the variable; of threads too.
    pub ranges: Vec<(i64, i64)>,
    /// The variables that tell blocks apart.
    pub blocks: Blocks,
    /// Variables that count the rounds of a walk: how many blocks share it decides which tile is in which.
    pub rounds: Vec<Var>,
}

/// The warps that run a statement.
pub struct ThreadSet {
    /// Each with its threads as they are numbered there.
    pub warps: Vec<Warp>,
    /// One thread of each runs it, and which one is not said.
    pub elected: bool,
}

/// The variables that tell blocks apart.
pub struct Blocks {
    /// Axes of the hardware.
    pub axes: Vec<Var>,
    /// What is computed from them.
    pub derived: visit::Map,
    /// Axes that `derived` is computed from.
    pub walked: Vec<Var>,
    /// Each combination of values of `derived` occurs once, so that they can represent `walked`.
    pub once: bool,
}

impl Blocks {
    fn of(kernel: &LoweredKernel, ranges: &[(i64, i64)]) -> Blocks {
        let axes = kernel.launch.iter().filter(|l| l.axis.is_block_level()).map(|l| l.var).collect();
        let mut walked = Vec::new();
        kernel.derived.iter().for_each(|d| d.value.for_each_var(&mut |v| walked.push(v)));
        distinct(&mut walked);
        let derived = kernel.derived.iter().map(|d| (d.var, d.value.clone())).collect();
        Blocks { axes, derived, once: occur_once(kernel, &walked, ranges), walked }
    }
}

/// Walks over all blocks; false too where there are more than [`MOST_BLOCKS`].
fn occur_once(kernel: &LoweredKernel, walked: &[Var], ranges: &[(i64, i64)]) -> bool {
    let [axis] = walked else { return false };
    let blocks = extent(lookup(ranges, *axis));
    let values = kernel.derived.iter().fold(1u64, |n, d| n.saturating_mul(u64::try_from(d.extent).unwrap_or(0)));
    if blocks != values || blocks > MOST_BLOCKS {
        return false;
    }
    let mut seen = vec![false; blocks as usize];
    (0..blocks as i64).all(|block| {
        let mixed = kernel.derived.iter().try_fold(0i64, |n, d| {
            let value = d.value.eval(&|v| (v == *axis).then_some(block))?;
            (0..d.extent).contains(&value).then_some(n * d.extent + value)
        });
        let place = mixed.and_then(|n| seen.get_mut(n as usize));
        place.is_some_and(|seen| !std::mem::replace(seen, true))
    })
}

/// Keeps the first of each.
pub fn distinct(vars: &mut Vec<Var>) {
    let mut seen = BTreeSet::new();
    vars.retain(|v| seen.insert(*v));
}

/// The range of a variable; one value where there is none.
pub fn lookup(ranges: &[(i64, i64)], var: Var) -> (i64, i64) {
    ranges.get(var.0 as usize).copied().unwrap_or((0, 0))
}

/// The threads of a warp.
#[derive(Debug, Clone)]
pub struct Warp {
    /// The lanes that are threads.
    pub active: u32,
    /// Of each variable of [`Geometry::threads`], by lane.
    pub values: Vec<[i64; LANES]>,
}

impl Geometry {
    /// Of a kernel. Threads are numbered x fastest; 32 consecutive ones are a warp.
    pub fn of(kernel: &LoweredKernel) -> Geometry {
        let mut ranges = vec![(0, 0); kernel.func.vars.len()];
        for l in &kernel.launch {
            set(&mut ranges, l.var, (0, i64::from(l.extent) - 1));
        }
        for d in &kernel.derived {
            set(&mut ranges, d.var, (0, d.extent - 1));
        }
        for l in visit::loops(&kernel.func.body) {
            for (var, extent) in l.defines() {
                set(&mut ranges, var, (0, extent.as_int().unwrap_or(1) - 1));
            }
        }
        let [x, y, z] = kernel.block().map(|n| u64::from(n.max(1)));
        let threads = x.saturating_mul(y).saturating_mul(z).min(1024);
        let axes: Vec<_> = kernel.launch.iter().filter(|l| !l.axis.is_block_level()).collect();
        let value = |axis: Axis, t: u64| match axis {
            Axis::ThreadX => (t % x) as i64,
            Axis::ThreadY => (t / x % y) as i64,
            Axis::ThreadZ => (t / x / y) as i64,
            _ => 0,
        };
        let warp = |first: u64| Warp {
            active: u32::MAX >> (LANES as u64 - (threads - first).min(LANES as u64)),
            values: axes.iter().map(|l| std::array::from_fn(|lane| value(l.axis, first + lane as u64))).collect(),
        };
        let warps = (0..threads).step_by(LANES).map(warp).collect();
        let blocks = Blocks::of(kernel, &ranges);
        let mut rounds = Vec::new();
        for l in visit::loops(&kernel.func.body) {
            if let LoopKind::Persistent { round } = l.kind {
                set(&mut ranges, round, (0, i64::from(kernel.extent(Axis::BlockX)) - 1));
                rounds.push(round);
            }
        }
        Geometry { warps, threads: axes.iter().map(|l| l.var).collect(), ranges, blocks, rounds }
    }

    /// The warps that run a statement; `None` where a role's threads are not numbered along one axis, as its variable says.
    pub fn crew(&self, around: &Around<'_>) -> Option<ThreadSet> {
        let mut warps = match around.role {
            None => self.warps.clone(),
            Some(role) if self.threads.len() == 1 => {
                let (first, last) = (role.first as usize, role.first.saturating_add(role.warps) as usize);
                let mut warps = self.warps.get(first..last)?.to_vec();
                let before = i64::from(role.first) * LANES as i64;
                warps.iter_mut().flat_map(|w| &mut w.values).flatten().for_each(|v| *v -= before);
                warps
            }
            Some(_) => return None,
        };
        if let Some(every) = around.elect {
            warps = warps.into_iter().step_by(every.max(1) as usize).collect();
        }
        Some(ThreadSet { warps, elected: around.elect.is_some() })
    }

    /// Whether the lanes of some warp have different values of an index over threads.
    pub fn varies(&self, index: &Index) -> bool {
        let differs = |warp: &Warp| {
            let value =
                |lane: usize| index.eval(&|v| Some(self.thread(v).map_or(self.range(v).0, |at| warp.values[at][lane])));
            (0..LANES).filter(|l| warp.active >> l & 1 == 1).any(|l| value(l) != value(0))
        };
        self.warps.iter().any(differs)
    }

    /// The values of a variable.
    pub fn range(&self, var: Var) -> (i64, i64) {
        lookup(&self.ranges, var)
    }

    /// Where the values of a variable of threads stand.
    pub fn thread(&self, var: Var) -> Option<usize> {
        self.threads.iter().position(|t| *t == var)
    }

    /// Whether it tells threads apart.
    pub fn is_thread(&self, var: Var) -> bool {
        self.threads.contains(&var)
    }
}

/// Sets the range of a variable.
pub fn set(ranges: &mut [(i64, i64)], var: Var, range: (i64, i64)) {
    if let Some(r) = ranges.get_mut(var.0 as usize) {
        *r = range;
    }
}

/// How many values.
pub fn extent(range: (i64, i64)) -> u64 {
    u64::try_from(range.1 - range.0 + 1).unwrap_or(0)
}
