//! Counting over all warps and iterations of a launch, without running them one by one.
//!
//! What lanes run and where they go depends on few variables. The space of the others (hardware block indices and
//! loops) is cut into boxes in which every condition is decided for every lane, by intervals; and variables that stand
//! in an address other than as `variable * constant` are cut down to single values. In what is left an address is a
//! sum: something of the lane, and `variable * constant` of the rest, of which only the remainder by a word or by a sector
//! matters. How often each remainder occurs is counted by convolution. So the count is exact, whatever the size.
//!
//! The row and column of a rasterized walk take the place of the block index that they are computed from where, as
//! checking all of them shows, every pair occurs once.
//!
//! Where that takes more boxes than [`MOST_CLASSES`], the first, a middle and the last value of each variable stand for
//! all of it, and the count says so.

use super::request::LANES;
use crate::ir::simplify::{self, Affine};
use crate::ir::{Axis, CmpOp, Cond, Index, IndexOp, Var, visit};
use crate::lower::LoweredKernel;
use std::collections::BTreeSet;

/// Boxes of one access that are looked at one by one.
pub const MOST_CLASSES: u64 = 1 << 17;
/// Blocks of a rasterized walk that are checked to be different.
const MOST_BLOCKS: u64 = 1 << 20;

/// The threads of a block, warp by warp, and the ranges of all other variables.
pub struct Geometry {
    warps: Vec<Warp>,
    threads: Vec<Var>,
    /// By number of the variable; of threads too.
    ranges: Vec<(i64, i64)>,
    blocks: Blocks,
}

/// The variables that tell blocks apart.
struct Blocks {
    /// Axes of the hardware.
    axes: Vec<Var>,
    /// What is computed from them.
    derived: visit::Map,
    /// Axes that `derived` is computed from.
    walked: Vec<Var>,
    /// Each combination of values of `derived` occurs once, so that they can stand for `walked`.
    once: bool,
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

fn distinct(vars: &mut Vec<Var>) {
    let mut seen = BTreeSet::new();
    vars.retain(|v| seen.insert(*v));
}

fn lookup(ranges: &[(i64, i64)], var: Var) -> (i64, i64) {
    ranges.get(var.0 as usize).copied().unwrap_or((0, 0))
}

/// The threads of a warp.
struct Warp {
    active: u32,
    /// Of each variable of [`Geometry::threads`], by lane.
    values: Vec<[i64; LANES]>,
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
        let [x, y, z] = kernel.block().map(u64::from);
        let threads = (x * y * z).min(1024);
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
        Geometry { warps, threads: axes.iter().map(|l| l.var).collect(), ranges, blocks }
    }

    /// Warps of a block.
    pub fn warps(&self) -> usize {
        self.warps.len()
    }

    /// Whether the lanes of some warp have different values of an index over threads.
    pub fn varies(&self, index: &Index) -> bool {
        let differs = |warp: &Warp| {
            let value = |lane: usize| {
                index.eval(&|v| {
                    let thread = self.threads.iter().position(|t| *t == v);
                    Some(thread.map_or(self.range(v).0, |at| warp.values[at][lane]))
                })
            };
            (0..LANES).filter(|l| warp.active >> l & 1 == 1).any(|l| value(l) != value(0))
        };
        self.warps.iter().any(differs)
    }

    fn range(&self, var: Var) -> (i64, i64) {
        lookup(&self.ranges, var)
    }

    fn is_thread(&self, var: Var) -> bool {
        self.threads.contains(&var)
    }
}

fn set(ranges: &mut [(i64, i64)], var: Var, range: (i64, i64)) {
    if let Some(r) = ranges.get_mut(var.0 as usize) {
        *r = range;
    }
}

/// What is counted: an address under conditions, for all values of some variables.
pub struct Question<'q> {
    /// The loops around.
    pub loops: &'q [Var],
    /// All must hold.
    pub conds: &'q [Cond],
    /// The element.
    pub index: &'q Index,
    /// Only the remainder of the index by this matters.
    pub modulus: i64,
}

/// Warps that do the same up to multiples of the modulus.
pub struct Class {
    /// The lanes that run.
    pub active: u32,
    /// The element of each lane, up to a multiple of the modulus that is the same for all.
    pub elements: [i64; LANES],
    /// How many warps, counted over blocks and iterations.
    pub times: u64,
    /// The smallest and the largest element of any active lane of them.
    pub range: (i64, i64),
}

/// How the classes were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Every warp of every block in every iteration is in one class.
    Exact,
    /// First, middle and last values stand for others.
    Sampled,
    /// There are too many even so, or arithmetic overflows: nothing is counted.
    Unknown,
}

/// Calls `f` on each class; not at all where the method is [`Method::Unknown`].
pub fn classes(geometry: &Geometry, question: &Question<'_>, f: &mut dyn FnMut(&Class)) -> Method {
    let plan = Plan::new(geometry, question);
    for method in [Method::Exact, Method::Sampled] {
        let mut found = Vec::new();
        let ranges = geometry.ranges.clone();
        let mut walk = Walk { geometry, plan: &plan, ranges, method, found: &mut found, left: 4 * MOST_CLASSES };
        if (0..geometry.warps.len()).all(|w| walk.cut(w, 1).is_some()) {
            found.iter().for_each(f);
            return method;
        }
    }
    Method::Unknown
}

/// An address taken apart.
struct Plan {
    conds: Vec<Cond>,
    /// Variables that conditions mention.
    deciding: Vec<Var>,
    /// Variables that must be single values.
    single: Vec<Var>,
    /// `variable * constant`.
    linear: Vec<(Var, i64)>,
    /// Everything else: of lanes, or of single values.
    rest: Affine,
    /// Iterations of variables that nothing depends on.
    repeats: u64,
    modulus: i64,
}

impl Plan {
    fn new(geometry: &Geometry, question: &Question<'_>) -> Plan {
        let blocks = &geometry.blocks;
        let mentions = |v: &Var| question.index.mentions(*v) || question.conds.iter().any(|c| c.mentions(*v));
        let mut free = question.loops.to_vec();
        if blocks.once && !blocks.walked.iter().any(mentions) {
            free.extend(blocks.axes.iter().filter(|a| !blocks.walked.contains(a)));
            free.extend(blocks.derived.keys());
            return Plan::over(geometry, &free, question.index, question.conds, question.modulus);
        }
        free.extend(&blocks.axes);
        let index = visit::subst_index(question.index, &blocks.derived);
        let conds: Vec<Cond> = question.conds.iter().map(|c| visit::subst_cond(c, &blocks.derived)).collect();
        Plan::over(geometry, &free, &index, &conds, question.modulus)
    }

    fn over(geometry: &Geometry, free: &[Var], index: &Index, conds: &[Cond], modulus: i64) -> Plan {
        let sum = simplify::affine(index);
        let mut plan = Plan {
            conds: conds.iter().flat_map(Cond::conjuncts).cloned().collect(),
            deciding: Vec::new(),
            single: Vec::new(),
            linear: Vec::new(),
            rest: Affine { terms: Vec::new(), constant: sum.constant },
            repeats: 1,
            modulus: modulus.max(1),
        };
        for (atom, factor) in sum.terms {
            match atom.as_var() {
                Some(var) if !geometry.is_thread(var) => plan.linear.push((var, factor)),
                _ => {
                    atom.for_each_var(&mut |v| plan.single.push(v));
                    plan.rest.terms.push((atom, factor));
                }
            }
        }
        let tidy = |vars: &mut Vec<Var>| {
            vars.retain(|v| !geometry.is_thread(*v));
            distinct(vars);
        };
        tidy(&mut plan.single);
        conds.iter().for_each(|c| c.for_each_index(&mut |i| i.for_each_var(&mut |v| plan.deciding.push(v))));
        tidy(&mut plan.deciding);
        for var in free {
            let matters =
                plan.single.contains(var) || plan.deciding.contains(var) || plan.linear.iter().any(|(v, _)| v == var);
            if !matters {
                plan.repeats = plan.repeats.saturating_mul(extent(geometry.range(*var)));
            }
        }
        // Conditions do not stand in the sum: their variables count by the size of the box.
        for var in &plan.deciding {
            if !plan.single.contains(var) && !plan.linear.iter().any(|(v, _)| v == var) {
                plan.linear.push((*var, 0));
            }
        }
        plan
    }
}

fn extent(range: (i64, i64)) -> u64 {
    u64::try_from(range.1 - range.0 + 1).unwrap_or(0)
}

/// Cutting the space into boxes.
struct Walk<'w> {
    geometry: &'w Geometry,
    plan: &'w Plan,
    /// The box.
    ranges: Vec<(i64, i64)>,
    method: Method,
    found: &'w mut Vec<Class>,
    /// Boxes that may still be looked at.
    left: u64,
}

impl Walk<'_> {
    /// Cuts until everything is decided; `None` where that becomes too much.
    fn cut(&mut self, warp: usize, weight: u64) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let mut active = self.geometry.warps[warp].active;
        for cond in &self.plan.conds {
            match self.decide(cond, warp, active)? {
                Ok(lanes) => active &= lanes,
                Err(var) => return self.halve(var, warp, weight),
            }
            if active == 0 {
                return Some(());
            }
        }
        let wide = self.plan.single.iter().find(|v| extent(self.range(**v)) > 1);
        match wide {
            Some(var) => self.halve(*var, warp, weight),
            None => self.class(warp, active, weight),
        }
    }

    fn range(&self, var: Var) -> (i64, i64) {
        lookup(&self.ranges, var)
    }

    fn halve(&mut self, var: Var, warp: usize, weight: u64) -> Option<()> {
        let (low, high) = self.range(var);
        let middle = low + (high - low) / 2;
        let parts = match self.method {
            Method::Sampled if high - low > 2 => {
                let inner = extent((low, high)) - 2;
                vec![((low, low), 1), ((middle, middle), inner), ((high, high), 1)]
            }
            _ => vec![((low, middle), 1), ((middle + 1, high), 1)],
        };
        for (range, times) in parts {
            set(&mut self.ranges, var, range);
            let done = self.cut(warp, weight.saturating_mul(times));
            set(&mut self.ranges, var, (low, high));
            done?;
        }
        Some(())
    }

    /// The lanes of `active` in which a condition holds everywhere in the box, if it is decided in each; else a variable
    /// to cut.
    fn decide(&self, cond: &Cond, warp: usize, active: u32) -> Option<Result<u32, Var>> {
        let mut holds = 0;
        for lane in (0..LANES).filter(|l| active >> l & 1 == 1) {
            let range = |v| self.lane_range(v, warp, lane);
            match truth(cond, &range)? {
                Some(true) => holds |= 1 << lane,
                Some(false) => {}
                None => {
                    let mut widest: Option<Var> = None;
                    let mut look = |v: Var| {
                        let wider = |w: Var| extent(self.range(v)) > extent(self.range(w));
                        if !self.geometry.is_thread(v) && extent(self.range(v)) > 1 && widest.is_none_or(wider) {
                            widest = Some(v);
                        }
                    };
                    cond.for_each_index(&mut |i| i.for_each_var(&mut look));
                    // Single values decide every condition that has a value.
                    return widest.map(Err);
                }
            }
        }
        Some(Ok(holds))
    }

    fn lane_range(&self, var: Var, warp: usize, lane: usize) -> (i64, i64) {
        match self.geometry.threads.iter().position(|t| *t == var) {
            Some(at) => {
                let value = self.geometry.warps[warp].values[at][lane];
                (value, value)
            }
            None => self.range(var),
        }
    }

    /// The remainders that occur in a box, each a class.
    fn class(&mut self, warp: usize, active: u32, weight: u64) -> Option<()> {
        let mut elements = [0i64; LANES];
        for lane in (0..LANES).filter(|l| active >> l & 1 == 1) {
            let value = |v| Some(self.lane_range(v, warp, lane).0);
            let mut total = self.plan.rest.constant;
            for (atom, factor) in &self.plan.rest.terms {
                total = total.checked_add(atom.eval(&value)?.checked_mul(*factor)?)?;
            }
            elements[lane] = total;
        }
        let (remainders, low, high) = self.remainders()?;
        let running = || (0..LANES).filter(|l| active >> l & 1 == 1).map(|l| elements[l]);
        let range = (running().min()?.checked_add(low)?, running().max()?.checked_add(high)?);
        let times = weight.saturating_mul(self.plan.repeats);
        for (remainder, count) in remainders.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let shifted = elements.map(|e| e.saturating_add(remainder as i64));
            self.found.push(Class { active, elements: shifted, times: times.saturating_mul(count), range });
        }
        (self.found.len() as u64 <= MOST_CLASSES).then_some(())
    }

    /// How often each remainder of the linear part occurs in the box, and its smallest and largest value.
    fn remainders(&self) -> Option<(Vec<u64>, i64, i64)> {
        let modulus = self.plan.modulus as usize;
        let mut counts = vec![0u64; modulus];
        counts[0] = 1;
        let (mut low, mut high) = (0i64, 0i64);
        for (var, factor) in &self.plan.linear {
            let (first, last) = self.range(*var);
            let ends = (first.checked_mul(*factor)?, last.checked_mul(*factor)?);
            low = low.checked_add(ends.0.min(ends.1))?;
            high = high.checked_add(ends.0.max(ends.1))?;
            let steps = extent((first, last));
            let mut next = vec![0u64; modulus];
            // The remainders of a multiple repeat after `modulus` steps.
            for step in 0..steps.min(modulus as u64) {
                let times = (steps - step).div_ceil(modulus as u64);
                let shift = (first + step as i64).wrapping_mul(*factor).rem_euclid(self.plan.modulus) as usize;
                for (at, count) in counts.iter().enumerate() {
                    let to = &mut next[(at + shift) % modulus];
                    *to = to.saturating_add(count.saturating_mul(times));
                }
            }
            counts = next;
        }
        Some((counts, low, high))
    }
}

/// Whether a condition holds for all values in the ranges (`Some(Some(..))`), or for some only (`Some(None)`). `None` where
/// arithmetic overflows.
fn truth(cond: &Cond, range: &dyn Fn(Var) -> (i64, i64)) -> Option<Option<bool>> {
    Some(match cond {
        Cond::Const(c) => Some(*c),
        Cond::Cmp(op, a, b) => compare(*op, interval(a, range)?, interval(b, range)?),
        Cond::And(a, b) => match (truth(a, range)?, truth(b, range)?) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        },
        Cond::Or(a, b) => match (truth(a, range)?, truth(b, range)?) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        },
        Cond::Not(a) => truth(a, range)?.map(|t| !t),
    })
}

fn compare(op: CmpOp, a: (i64, i64), b: (i64, i64)) -> Option<bool> {
    match op {
        CmpOp::Lt if a.1 < b.0 => Some(true),
        CmpOp::Lt if a.0 >= b.1 => Some(false),
        CmpOp::Le if a.1 <= b.0 => Some(true),
        CmpOp::Le if a.0 > b.1 => Some(false),
        CmpOp::Eq if a.0 == a.1 && a == b => Some(true),
        CmpOp::Eq if a.1 < b.0 || a.0 > b.1 => Some(false),
        CmpOp::Ne => compare(CmpOp::Eq, a, b).map(|t| !t),
        CmpOp::Ge => compare(CmpOp::Le, b, a),
        CmpOp::Gt => compare(CmpOp::Lt, b, a),
        _ => None,
    }
}

/// The values of an index, both ends inclusive; exact where no variable occurs twice.
fn interval(index: &Index, range: &dyn Fn(Var) -> (i64, i64)) -> Option<(i64, i64)> {
    let Index::Bin(op, a, b) = index else {
        return Some(match index {
            Index::Int(v) => (*v, *v),
            Index::Var(v) => range(*v),
            Index::Bin(..) => return None,
        });
    };
    let (a, b) = (interval(a, range)?, interval(b, range)?);
    let corners = || {
        let all = [op.eval(a.0, b.0)?, op.eval(a.0, b.1)?, op.eval(a.1, b.0)?, op.eval(a.1, b.1)?];
        Some((all.into_iter().min()?, all.into_iter().max()?))
    };
    match op {
        IndexOp::Add | IndexOp::Mul | IndexOp::Min | IndexOp::Max => corners(),
        IndexOp::Sub => Some((a.0.checked_sub(b.1)?, a.1.checked_sub(b.0)?)),
        IndexOp::FloorDiv if b.0 > 0 || b.1 < 0 => corners(),
        IndexOp::FloorMod if b.0 == b.1 && b.0 > 0 => {
            let same = a.0.div_euclid(b.0) == a.1.div_euclid(b.0);
            Some(if same { (a.0.rem_euclid(b.0), a.1.rem_euclid(b.0)) } else { (0, b.0 - 1) })
        }
        IndexOp::FloorMod if b.0 > 0 => Some((0, b.1 - 1)),
        _ => None,
    }
}
