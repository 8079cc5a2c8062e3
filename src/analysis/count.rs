//! Counting over all warps and iterations of a launch, without running them one by one.
//!
//! What lanes run and where they go depends on few variables. The space of the others (hardware block indices and
//! loops) is cut into boxes in which every condition is decided for every lane, by intervals; and variables that stand
//! in an address other than as `variable * constant` are cut down to single values. In what is left an address is a
//! sum: something of the lane, and `variable * constant` of the rest, of which only the remainder by a word or by a sector
//! matters. How often each remainder occurs is counted by convolution. So the count is exact, whatever the size.
//!
//! Where that takes more boxes than [`MOST_CLASSES`], the first, a middle and the last value of each variable represent
//! all of it, and the count says so.

use super::geometry::{Geometry, ThreadSet, distinct, extent, lookup, set};
use super::interval::{interval, truth};
use super::request::LANES;
use crate::ir::simplify::{self, Affine};
use crate::ir::{Cond, Index, Var, visit};

/// Boxes of one access that are looked at one by one.
pub const MOST_CLASSES: u64 = 1 << 17;

/// What is counted: an address under conditions, for all values of some variables.
pub struct AddressQuery<'q> {
    /// Who runs it.
    pub crew: &'q ThreadSet,
    /// The loops around, with their extents.
    pub loops: &'q [(Var, i64)],
    /// All must hold.
    pub conds: &'q [Cond],
    /// The element.
    pub index: &'q Index,
    /// Only the remainder of the index by this matters.
    pub modulus: i64,
    /// Indices that have one value in a class.
    pub fixed: &'q [Index],
}

/// Warps that do the same up to multiples of the modulus.
pub struct Class {
    /// The lanes that run.
    pub active: u32,
    /// The element of each lane, up to a multiple of the modulus that is the same for all.
    pub elements: [i64; LANES],
    /// The element of each lane in the first of the warps.
    pub first: [i64; LANES],
    /// How many warps, counted over blocks and iterations.
    pub times: u64,
    /// The smallest and the largest element of any active lane of them.
    pub range: (i64, i64),
    /// The values of [`AddressQuery::fixed`].
    pub values: Vec<i64>,
}

/// How the classes were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Every warp of every block in every iteration is in one class.
    Exact,
    /// First, middle and last values represent others.
    Sampled,
    /// Nothing is counted, and why.
    Unknown(&'static str),
}

/// There is too much, or too large.
const TOO_MUCH: &str = "there are too many cases, or its indices overflow";
/// The rounds of a walk.
const BY_ROUND: &str = "it depends on how many blocks share the tiles of the persistent loop";
/// One lane of a warp.
const BY_ELECTION: &str = "it depends on which lane is elected";

/// Calls `f` on each class; not at all where the method is [`Method::Unknown`].
pub fn classes(geometry: &Geometry, question: &AddressQuery<'_>, f: &mut dyn FnMut(&Class)) -> Method {
    let mut ranges = geometry.ranges.clone();
    for (var, extent) in question.loops {
        set(&mut ranges, *var, (0, extent - 1));
    }
    if question.loops.iter().any(|(_, extent)| *extent < 1) {
        return Method::Exact;
    }
    let Some(plan) = AddressParts::new(geometry, &ranges, question) else { return Method::Unknown(BY_ROUND) };
    let (crew, left, mut why) = (question.crew, 4 * MOST_CLASSES, TOO_MUCH);
    for method in [Method::Exact, Method::Sampled] {
        let (mut found, ranges) = (Vec::new(), ranges.clone());
        let mut walk = Walk { geometry, plan: &plan, crew, ranges, method, found: &mut found, left, why };
        if (0..crew.warps.len()).all(|w| walk.cut(w, 1).is_some()) {
            found.iter().for_each(f);
            return method;
        }
        why = walk.why;
    }
    Method::Unknown(why)
}

/// An address taken apart.
struct AddressParts {
    conds: Vec<Cond>,
    /// Variables that conditions mention.
    deciding: Vec<Var>,
    /// Variables that must be single values.
    single: Vec<Var>,
    /// `variable * constant`.
    linear: Vec<(Var, i64)>,
    /// Everything else: of lanes, or of single values.
    rest: Affine,
    /// What the rounds of a walk add: multiples of the modulus between these.
    rounds: (i64, i64),
    /// Indices that have one value in a class.
    fixed: Vec<Index>,
    /// Iterations of variables that nothing depends on.
    repeats: u64,
    modulus: i64,
}

impl AddressParts {
    /// `None` where the rounds of a walk matter.
    fn new(geometry: &Geometry, ranges: &[(i64, i64)], question: &AddressQuery<'_>) -> Option<AddressParts> {
        let (blocks, fixed) = (&geometry.blocks, question.fixed);
        let mentions = |v: &Var| {
            let indices = std::iter::once(question.index).chain(fixed);
            indices.into_iter().any(|i| i.mentions(*v)) || question.conds.iter().any(|c| c.mentions(*v))
        };
        let mut free: Vec<Var> = question.loops.iter().map(|(v, _)| *v).collect();
        if blocks.once && !blocks.walked.iter().any(mentions) {
            free.extend(blocks.axes.iter().filter(|a| !blocks.walked.contains(a)));
            free.extend(blocks.derived.keys());
            let plan = AddressParts { fixed: fixed.to_vec(), ..AddressParts::empty(question.conds, question.modulus) };
            return plan.over(geometry, ranges, &free, question.index);
        }
        free.extend(&blocks.axes);
        let index = visit::subst_index(question.index, &blocks.derived);
        let conds: Vec<Cond> = question.conds.iter().map(|c| visit::subst_cond(c, &blocks.derived)).collect();
        let fixed = fixed.iter().map(|i| visit::subst_index(i, &blocks.derived)).collect();
        AddressParts { fixed, ..AddressParts::empty(&conds, question.modulus) }.over(geometry, ranges, &free, &index)
    }

    fn empty(conds: &[Cond], modulus: i64) -> AddressParts {
        AddressParts {
            conds: conds.iter().flat_map(Cond::conjuncts).cloned().collect(),
            deciding: Vec::new(),
            single: Vec::new(),
            linear: Vec::new(),
            rest: Affine { terms: Vec::new(), constant: 0 },
            rounds: (0, 0),
            fixed: Vec::new(),
            repeats: 1,
            modulus: modulus.max(1),
        }
    }

    fn over(self, geometry: &Geometry, ranges: &[(i64, i64)], free: &[Var], index: &Index) -> Option<AddressParts> {
        let mut plan = self;
        let rounds = |i: &Index| geometry.rounds.iter().any(|r| i.mentions(*r));
        if geometry.rounds.iter().any(|r| plan.conds.iter().any(|c| c.mentions(*r))) || plan.fixed.iter().any(rounds) {
            return None;
        }
        let sum = simplify::affine(index);
        plan.rest.constant = sum.constant;
        for (atom, factor) in sum.terms {
            match atom.as_var() {
                _ if rounds(&atom) => {
                    let mut of_thread = false;
                    atom.for_each_var(&mut |v| of_thread |= geometry.is_thread(v));
                    let (low, high) = interval(&atom, &|v| lookup(ranges, v)).filter(|_| !of_thread)?;
                    let ends = (low.checked_mul(factor)?, high.checked_mul(factor)?);
                    (factor % plan.modulus == 0).then_some(())?;
                    plan.rounds.0 = plan.rounds.0.checked_add(ends.0.min(ends.1))?;
                    plan.rounds.1 = plan.rounds.1.checked_add(ends.0.max(ends.1))?;
                }
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
        plan.fixed.iter().for_each(|i| i.for_each_var(&mut |v| plan.single.push(v)));
        tidy(&mut plan.single);
        plan.conds.iter().for_each(|c| c.for_each_index(&mut |i| i.for_each_var(&mut |v| plan.deciding.push(v))));
        tidy(&mut plan.deciding);
        for var in free {
            let matters =
                plan.single.contains(var) || plan.deciding.contains(var) || plan.linear.iter().any(|(v, _)| v == var);
            if !matters {
                plan.repeats = plan.repeats.saturating_mul(extent(lookup(ranges, *var)));
            }
        }
        // Conditions are not in the sum: their variables count by the size of the box.
        for var in &plan.deciding {
            if !plan.single.contains(var) && !plan.linear.iter().any(|(v, _)| v == var) {
                plan.linear.push((*var, 0));
            }
        }
        Some(plan)
    }
}

/// Cutting the space into boxes.
struct Walk<'w> {
    geometry: &'w Geometry,
    plan: &'w AddressParts,
    crew: &'w ThreadSet,
    /// The box.
    ranges: Vec<(i64, i64)>,
    method: Method,
    found: &'w mut Vec<Class>,
    /// Boxes that may still be looked at.
    left: u64,
    /// Why it stopped, where it did.
    why: &'static str,
}

impl Walk<'_> {
    /// Cuts until everything is decided; `None` where that becomes too much.
    fn cut(&mut self, warp: usize, weight: u64) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let mut active = self.crew.warps[warp].active;
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
        match self.geometry.thread(var) {
            Some(at) => {
                let value = self.crew.warps[warp].values[at][lane];
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
        if self.crew.elected {
            self.why = BY_ELECTION;
            (active == self.crew.warps[warp].active && self.alike(warp, active, &elements)).then_some(())?;
            self.why = TOO_MUCH;
        }
        let (remainders, low, high) = self.remainders()?;
        let start = self
            .plan
            .linear
            .iter()
            .try_fold(0i64, |sum, (var, factor)| sum.checked_add(self.range(*var).0.checked_mul(*factor)?))?;
        let first = elements.map(|e| e.saturating_add(start));
        let running = || (0..LANES).filter(|l| active >> l & 1 == 1).map(|l| elements[l]);
        let (low, high) = (low.checked_add(self.plan.rounds.0)?, high.checked_add(self.plan.rounds.1)?);
        let range = (running().min()?.checked_add(low)?, running().max()?.checked_add(high)?);
        let lane = active.trailing_zeros() as usize;
        let value = |v| Some(self.lane_range(v, warp, lane).0);
        let values: Vec<i64> = self.plan.fixed.iter().map(|i| i.eval(&value)).collect::<Option<_>>()?;
        let active = if self.crew.elected { 1 } else { active };
        let times = weight.saturating_mul(self.plan.repeats);
        for (remainder, count) in remainders.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let shifted = elements.map(|e| e.saturating_add(remainder as i64));
            let times = times.saturating_mul(count);
            self.found.push(Class { active, elements: shifted, first, times, range, values: values.clone() });
        }
        (self.found.len() as u64 <= MOST_CLASSES).then_some(())
    }

    /// Whether every lane would do the same.
    fn alike(&self, warp: usize, active: u32, elements: &[i64; LANES]) -> bool {
        let fixed = |lane: usize| {
            let value = move |v| Some(self.lane_range(v, warp, lane).0);
            self.plan.fixed.iter().map(|i| i.eval(&value)).collect::<Vec<_>>()
        };
        let mut lanes = (0..LANES).filter(|l| active >> l & 1 == 1);
        let Some(first) = lanes.next() else { return true };
        lanes.all(|l| elements[l] == elements[first] && fixed(l) == fixed(first))
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

#[cfg(test)]
mod tests {
    use super::super::site::Around;
    use super::*;
    use crate::ir::lowered::{LaunchAxis, LoweredKernel};
    use crate::ir::{Axis, CmpOp, Func, RoleBody};
    use std::collections::BTreeMap;

    /// Threads t (and y), blocks u, loops k and j.
    struct Space {
        kernel: LoweredKernel,
        loops: Vec<(Var, i64)>,
    }

    const T: Var = Var(0);
    const Y: Var = Var(1);
    const U: Var = Var(2);
    const K: Var = Var(3);
    const J: Var = Var(4);

    fn space(threads: [u32; 2], blocks: u32, loops: [i64; 2]) -> Space {
        let mut func = Func::default();
        for name in ["t", "y", "u", "k", "j"] {
            func.add_var(name);
        }
        let inner = crate::ir::For::new(J, loops[1], crate::ir::LoopKind::Serial, Vec::new());
        let outer = crate::ir::For::new(K, loops[0], crate::ir::LoopKind::Serial, vec![crate::ir::Stmt::For(inner)]);
        func.body = vec![crate::ir::Stmt::For(outer)];
        let axis = |axis, var, extent| LaunchAxis { axis, var, extent };
        let launch =
            vec![axis(Axis::BlockX, U, blocks), axis(Axis::ThreadX, T, threads[0]), axis(Axis::ThreadY, Y, threads[1])];
        let kernel = LoweredKernel { launch, ..LoweredKernel::new(func) };
        Space { kernel, loops: vec![(K, loops[0]), (J, loops[1])] }
    }

    type Found = BTreeMap<(u32, Vec<i64>), u64>;

    /// Lanes relative to a multiple of the modulus: what classes are about.
    fn key(active: u32, elements: &[i64; LANES], modulus: i64) -> (u32, Vec<i64>) {
        let running: Vec<i64> = (0..LANES).filter(|l| active >> l & 1 == 1).map(|l| elements[l]).collect();
        let base = running.first().map_or(0, |f| f.div_euclid(modulus) * modulus);
        (active, running.iter().map(|e| e - base).collect())
    }

    fn counted(s: &Space, conds: &[Cond], index: &Index, modulus: i64) -> (Found, Method, (i64, i64)) {
        let geometry = Geometry::of(&s.kernel);
        let crew = geometry.crew(&Around::default()).unwrap();
        counted_by(s, (&geometry, &crew), conds, index, modulus)
    }

    fn counted_by(
        s: &Space,
        (geometry, crew): (&Geometry, &ThreadSet),
        conds: &[Cond],
        index: &Index,
        modulus: i64,
    ) -> (Found, Method, (i64, i64)) {
        let question = AddressQuery { crew, loops: &s.loops, conds, index, modulus, fixed: &[] };
        let (mut found, mut range) = (Found::new(), (i64::MAX, i64::MIN));
        let method = classes(geometry, &question, &mut |c| {
            *found.entry(key(c.active, &c.elements, modulus)).or_default() += c.times;
            range = (range.0.min(c.range.0), range.1.max(c.range.1));
        });
        (found, method, range)
    }

    /// One warp of one block in one iteration after the other.
    fn one_by_one(s: &Space, conds: &[Cond], index: &Index, modulus: i64) -> (Found, (i64, i64)) {
        let [x, y] = [s.kernel.extent(Axis::ThreadX), s.kernel.extent(Axis::ThreadY)].map(i64::from);
        let geometry = Geometry::of(&s.kernel);
        let ranges = [U, K, J].map(|v| geometry.range(v));
        let (mut found, mut range) = (Found::new(), (i64::MAX, i64::MIN));
        for u in ranges[0].0..=ranges[0].1 {
            for k in ranges[1].0..=ranges[1].1 {
                for j in ranges[2].0..=ranges[2].1 {
                    for warp in 0..(x * y + 31) / 32 {
                        let (mut active, mut elements) = (0, [0; LANES]);
                        for lane in (0..LANES).filter(|l| warp * 32 + (*l as i64) < x * y) {
                            let thread = warp * 32 + lane as i64;
                            let value = |v: Var| Some([thread % x, thread / x, u, k, j][v.0 as usize]);
                            if conds.iter().all(|c| c.eval(&value).unwrap()) {
                                active |= 1 << lane;
                                elements[lane] = index.eval(&value).unwrap();
                                range = (range.0.min(elements[lane]), range.1.max(elements[lane]));
                            }
                        }
                        if active != 0 {
                            *found.entry(key(active, &elements, modulus)).or_default() += 1;
                        }
                    }
                }
            }
        }
        (found, range)
    }

    #[test]
    fn ragged_ends_run_in_part() {
        let s = space([128, 1], 8, [1, 1]);
        let at = U * 128 + T;
        let (found, method, range) = counted(&s, &[Cond::lt(at.clone(), 1000)], &at, 8);
        assert_eq!((method, range), (Method::Exact, (0, 999)));
        let by_lanes: Vec<(u32, u64)> = found.iter().map(|((active, _), n)| (active.count_ones(), *n)).collect();
        assert_eq!(by_lanes, [(8, 1), (32, 31)]);
    }

    #[test]
    fn rows_of_odd_length_begin_everywhere_in_a_sector() {
        let s = space([32, 1], 1, [1 << 40, 1]);
        let (found, method, _) = counted(&s, &[], &(K * 33 + T), 8);
        assert_eq!((method, found.len()), (Method::Exact, 8));
        assert!(found.values().all(|n| *n == 1 << 37));
    }

    #[test]
    fn what_is_too_much_is_sampled_or_not_counted() {
        let s = space([32, 1], 1 << 20, [1 << 20, 1]);
        let tangled = (U * 3 + Index::Var(T)).floordiv(7) + (K * 5 + Index::Var(T)).floordiv(11);
        let (found, method, _) = counted(&s, &[], &tangled, 8);
        assert_eq!(method, Method::Sampled);
        assert_eq!(found.values().sum::<u64>(), 1 << 40);
        let large = U * (1 << 60) + (K * (1 << 60)) * 4;
        assert_eq!(counted(&s, &[], &large, 8).1, Method::Unknown(TOO_MUCH));
    }

    #[test]
    fn a_role_counts_its_own_threads_and_loops() {
        let mut s = space([128, 1], 3, [4, 1]);
        s.kernel.launch.retain(|l| l.axis != Axis::ThreadY);
        let role = RoleBody { role: None, first: 2, warps: 2, regs: None, body: Vec::new() };
        let geometry = Geometry::of(&s.kernel);
        let crew = geometry.crew(&Around { role: Some(&role), ..Around::default() }).unwrap();
        // The same variable walks further in another role.
        s.loops[0].1 = 6;
        let (found, method, range) = counted_by(&s, (&geometry, &crew), &[], &Index::Var(T), 8);
        assert_eq!((method, found.values().sum::<u64>(), range), (Method::Exact, 2 * 3 * 6, (0, 63)));
        // A loop without iterations.
        s.loops[0].1 = 0;
        assert!(counted_by(&s, (&geometry, &crew), &[], &Index::Var(K), 8).0.is_empty());
        let beyond = RoleBody { first: 3, ..role.clone() };
        assert!(geometry.crew(&Around { role: Some(&beyond), ..Around::default() }).is_none());
        let square = Geometry::of(&space([16, 8], 1, [1, 1]).kernel);
        assert!(square.crew(&Around { role: Some(&role), ..Around::default() }).is_none());
    }

    #[test]
    fn an_elected_thread_is_any_lane_or_refused() {
        let s = space([256, 1], 5, [1, 1]);
        let geometry = Geometry::of(&s.kernel);
        let crew = geometry.crew(&Around { elect: Some(4), ..Around::default() }).unwrap();
        let by_group = Index::Var(T).floordiv(128) * 8 + U * 16;
        let (found, method, range) = counted_by(&s, (&geometry, &crew), &[], &by_group, 8);
        assert_eq!((method, found.len(), range), (Method::Exact, 1, (0, 4 * 16 + 8)));
        assert_eq!(found.into_iter().next().unwrap(), ((1, vec![0]), 2 * 5));
        for (conds, index) in [(vec![], Index::Var(T)), (vec![Cond::lt(T, 7)], Index::Int(0))] {
            let method = counted_by(&s, (&geometry, &crew), &conds, &index, 8).1;
            assert_eq!(method, Method::Unknown(BY_ELECTION), "{index:?}");
        }
    }

    #[test]
    fn rounds_of_a_walk_matter_or_not() {
        let s = space([32, 1], 6, [3, 1]);
        let mut geometry = Geometry::of(&s.kernel);
        geometry.rounds.push(J);
        set(&mut geometry.ranges, J, (0, 5));
        let crew = geometry.crew(&Around::default()).unwrap();
        let slot = |bytes: i64| (Index::Var(J) * 3 + K).floormod(2) * bytes + T;
        let (found, method, range) = counted_by(&s, (&geometry, &crew), &[], &slot(64), 8);
        assert_eq!((method, found.len(), range), (Method::Exact, 1, (0, 64 + 31)));
        for (conds, index) in [(vec![], slot(4)), (vec![Cond::lt(J, 2)], Index::Var(T))] {
            assert_eq!(counted_by(&s, (&geometry, &crew), &conds, &index, 8).1, Method::Unknown(BY_ROUND));
        }
    }

    fn random_index(rng: &mut fastrand::Rng, depth: u32) -> Index {
        let vars = [T, Y, U, K, J];
        let mut sum = Index::Int(rng.i64(0..4));
        for _ in 0..rng.usize(1..4) {
            let var = Index::Var(vars[rng.usize(..vars.len())]);
            sum = sum + var * rng.i64(-3..40);
        }
        if depth > 0 && rng.u32(..2) == 0 {
            let inner = random_index(rng, depth - 1);
            let divisor = rng.i64(1..9);
            sum = sum + if rng.bool() { inner.floordiv(divisor) } else { inner.floormod(divisor) * rng.i64(1..20) };
        }
        if depth > 0 && rng.u32(..6) == 0 { sum.min(random_index(rng, 0)) } else { sum }
    }

    fn random_cond(rng: &mut fastrand::Rng) -> Cond {
        let ops = [CmpOp::Lt, CmpOp::Le, CmpOp::Eq, CmpOp::Ne, CmpOp::Ge, CmpOp::Gt];
        let one = |rng: &mut fastrand::Rng| {
            Cond::cmp(ops[rng.usize(..6)], random_index(rng, 1), Index::Int(rng.i64(-10..200)))
        };
        match rng.u32(..4) {
            0 => Cond::Or(Box::new(one(rng)), Box::new(one(rng))),
            1 => Cond::Not(Box::new(one(rng))),
            2 => one(rng).and(one(rng)),
            _ => one(rng),
        }
    }

    #[test]
    fn counts_are_those_of_running_one_by_one() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut partial = 0;
        for case in 0..400 {
            let threads = [[32, 1], [48, 1], [16, 4], [8, 3], [1, 1]][rng.usize(..5)];
            let s = space(threads, rng.u32(1..5), [rng.i64(1..6), rng.i64(1..4)]);
            let conds: Vec<Cond> = (0..rng.usize(..3)).map(|_| random_cond(&mut rng)).collect();
            let (index, modulus) = (random_index(&mut rng, 2), [1, 2, 8, 32][rng.usize(..4)]);
            let (found, method, range) = counted(&s, &conds, &index, modulus);
            let (wanted, most) = one_by_one(&s, &conds, &index, modulus);
            assert_eq!((method, found == wanted), (Method::Exact, true), "{case}: {index:?} {conds:?} {threads:?}");
            // The range of a box is exact where no variable occurs twice, and never too small.
            assert!(wanted.is_empty() || range.0 <= most.0 && most.1 <= range.1, "{case}: {range:?} {most:?}");
            partial += u32::from(!conds.is_empty() && !wanted.is_empty());
        }
        assert!(partial > 100, "{partial}");
    }
}
