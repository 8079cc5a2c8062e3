//! Sectors that a kernel moves between L1, L2 and device memory: an estimate.
//!
//! A *window* is a part of the launch: for L1 some iterations of the loops of one block, for L2 some consecutive blocks. If the sectors
//! that the accesses of a window touch fit in the cache together, the cache fetches each of them once a window; the estimate takes the
//! largest window that fits. L2 has at least the window of the blocks that are resident at once, because they walk their loops in step.
//!
//! The sectors that an access touches follow from the factors of the variables in its address. Any other term counts as a variable
//! with the values of its interval, and conditions are ignored: no estimate exceeds the sectors of the requests, or those of the array.

use super::access::Counter;
use super::geometry::{Geometry, extent, lookup, set};
use super::interval::interval;
use super::report::{AccessCost, KernelCost};
use super::request::SECTOR;
use super::site::{Agent, Site};
use crate::ir::simplify;
use crate::ir::{Axis, BufferId, Index, Scope, Var};
use crate::target::Device;
use serde::Serialize;
use std::collections::BTreeMap;

/// Bits of a sector.
const SECTOR_BITS: u64 = SECTOR as u64 * 8;
/// An asynchronous copy of so many bytes bypasses L1 (`cp.async.cg`) unless the schedule says otherwise.
const BYPASS_BYTES: i64 = 16;

/// Sectors that a launch moves between the levels of the memory, by estimate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheTraffic {
    /// From L2 to L1, or past L1 to shared memory by `cp.async`, for loads of lanes. TMA bypasses L1 and is counted apart.
    pub l1_miss_sectors: u64,
    /// From device memory to L2, for all loads.
    pub device_load_sectors: u64,
    /// From L2 to device memory, for all stores.
    pub device_store_sectors: u64,
}

/// Estimates the traffic of a kernel from its accesses and its occupancy.
pub fn traffic(counter: &Counter<'_>, kernel: &KernelCost, device: &Device) -> CacheTraffic {
    let patterns = Patterns::of(counter, &kernel.accesses);
    let multiprocessors = u64::from(device.multiprocessors.max(1));
    let blocks = kernel.blocks().max(1);
    let resident = u64::from(kernel.occupancy.blocks.max(1)).min(blocks.div_ceil(multiprocessors));
    let shared = u64::from(kernel.shared_bytes).saturating_mul(resident);
    let l1 = u64::from(device.l1_bytes).saturating_sub(shared) / SECTOR as u64 / resident;
    let misses: Vec<u64> = patterns.all.iter().map(|p| patterns.l1_misses(p, l1, blocks)).collect();
    let mut found = CacheTraffic::default();
    for (pattern, misses) in patterns.all.iter().zip(&misses) {
        if !pattern.write && !pattern.bulk {
            found.l1_miss_sectors = found.l1_miss_sectors.saturating_add(*misses);
        }
    }
    let wave = resident.saturating_mul(multiprocessors).min(blocks);
    let l2 = u64::from(device.l2_bytes) / SECTOR as u64;
    for ((_, write), sectors) in patterns.device(&misses, l2, wave, blocks) {
        let sum = if write { &mut found.device_store_sectors } else { &mut found.device_load_sectors };
        *sum = sum.saturating_add(sectors);
    }
    found
}

/// Accesses of device memory whose addresses differ by constants alone.
struct Pattern<'k> {
    buffer: BufferId,
    write: bool,
    /// TMA makes it.
    bulk: bool,
    /// Loads that L1 keeps.
    cached: bool,
    /// Terms of the address in bits.
    terms: Vec<(Index, u64)>,
    /// First bits of the accesses.
    starts: Vec<u64>,
    /// Bits of one access of a thread, or of a row of a box.
    width: u64,
    /// The other dimensions of a box: the step in bits and how many.
    tile: Vec<(u64, u64)>,
    /// Loops around it, outermost first.
    loops: Vec<(Var, i64)>,
    /// Sectors of all its requests.
    requested: u64,
    geometry: &'k Geometry,
}

impl<'k> Pattern<'k> {
    fn of(counter: &'k Counter<'_>, site: &Site<'_>, cost: &AccessCost) -> Pattern<'k> {
        let func = &counter.kernel.func;
        let bits = u64::from(site.dtype(func).bits());
        let sum = simplify::affine(&site.index);
        let scaled = |factor: i64| factor.unsigned_abs().saturating_mul(bits);
        let mut tile = Vec::new();
        let mut width = bits.saturating_mul(site.lanes.into());
        if let Agent::Copy(copy) = site.by
            && let Some(map) = counter.kernel.maps.get(copy.map as usize)
        {
            tile = map.strides.iter().zip(&map.tile).map(|(s, n)| (scaled(*s), n.unsigned_abs())).collect();
            width = bits;
        }
        let bulk = matches!(site.by, Agent::Copy(_));
        let loops = site.around.loops.iter().flat_map(|l| l.defines());
        Pattern {
            buffer: site.buffer,
            write: site.write,
            bulk,
            cached: !(site.write || bulk || site.asynchronous && !site.through_l1 && cost.width >= BYPASS_BYTES),
            terms: sum.terms.into_iter().map(|(atom, factor)| (atom, scaled(factor))).collect(),
            starts: vec![u64::try_from(sum.constant).unwrap_or(0).saturating_mul(bits)],
            width,
            tile,
            loops: loops.map(|(var, extent)| (var, extent.as_int().unwrap_or(1))).collect(),
            requested: cost.cost.total().0,
            geometry: &counter.geometry,
        }
    }

    /// Whether the other pattern adds accesses to this one.
    fn is_alike(&self, other: &Pattern<'_>) -> bool {
        let kind = |p: &Pattern<'_>| (p.buffer, p.write, p.bulk, p.cached, p.width);
        kind(self) == kind(other) && self.terms == other.terms && self.tile == other.tile && self.loops == other.loops
    }

    /// Distinct sectors for these ranges of the variables.
    fn touched(&self, ranges: &[(i64, i64)]) -> u64 {
        let mut steps = self.tile.clone();
        lattice(&self.starts, &mut steps);
        for (atom, stride) in &self.terms {
            // An interval that overflows is one of a great many values.
            let values = interval(atom, &|v| lookup(ranges, v)).map_or(u64::MAX, extent);
            steps.push((*stride, values));
        }
        sectors(steps, self.width).min(self.requested)
    }

    /// The ranges of the variables in a part of a block: the first so many loops have one value, and the next loop has `part` values.
    fn ranges(&self, blocks: &[(Var, (i64, i64))], window: Option<(usize, i64)>) -> Vec<(i64, i64)> {
        let mut ranges = self.geometry.ranges.clone();
        blocks.iter().for_each(|(var, range)| set(&mut ranges, *var, *range));
        for (at, (var, extent)) in self.loops.iter().enumerate() {
            let values = match window {
                Some((fixed, _)) if at < fixed => 1,
                Some((fixed, part)) if at == fixed => part,
                _ => *extent,
            };
            set(&mut ranges, *var, (0, values.max(1) - 1));
        }
        ranges
    }
}

/// The accesses of device memory of a kernel.
struct Patterns<'k> {
    all: Vec<Pattern<'k>>,
    counter: &'k Counter<'k>,
}

impl<'k> Patterns<'k> {
    fn of(counter: &'k Counter<'k>, costs: &[AccessCost]) -> Patterns<'k> {
        let by_number: BTreeMap<u32, &AccessCost> = costs.iter().map(|c| (c.number, c)).collect();
        let mut all: Vec<Pattern<'k>> = Vec::new();
        for site in counter.sites.accesses.iter().filter(|a| a.scope(&counter.kernel.func) == Scope::Global) {
            let Some(cost) = by_number.get(&site.number).filter(|c| c.requests > 0) else { continue };
            let new = Pattern::of(counter, site, cost);
            match all.iter_mut().find(|p| p.is_alike(&new)) {
                Some(pattern) => {
                    pattern.starts.extend(new.starts);
                    pattern.requested = pattern.requested.saturating_add(new.requested);
                }
                None => all.push(new),
            }
        }
        for pattern in &mut all {
            pattern.starts.sort_unstable();
            pattern.starts.dedup();
        }
        Patterns { all, counter }
    }

    /// The ranges of the variables that tell blocks apart, of the first `number` blocks of the launch.
    fn blocks(&self, number: u64) -> Vec<(Var, (i64, i64))> {
        let (kernel, mut left, mut ranges) = (self.counter.kernel, number, Vec::new());
        for axis in [Axis::BlockX, Axis::BlockY, Axis::BlockZ] {
            if let Some(l) = kernel.launch.iter().find(|l| l.axis == axis) {
                let values = left.min(l.extent.max(1).into());
                ranges.push((l.var, (0, values as i64 - 1)));
                left = left.div_ceil(values.max(1));
            }
        }
        let of = |v: Var| ranges.iter().find(|(var, _)| *var == v).map_or((0, 0), |(_, range)| *range);
        let derived = kernel.derived.iter().map(|d| {
            let whole = (0, d.extent - 1);
            let (low, high) = interval(&d.value, &of).unwrap_or(whole);
            (d.var, (low.clamp(0, whole.1), high.clamp(0, whole.1)))
        });
        let derived: Vec<_> = derived.collect();
        ranges.extend(derived);
        ranges
    }

    /// Sectors that L2 delivers for a pattern; `capacity` is the part of L1 that a block has, in sectors.
    fn l1_misses(&self, pattern: &Pattern<'_>, capacity: u64, blocks: u64) -> u64 {
        if !pattern.cached {
            return pattern.requested;
        }
        let block = self.blocks(1);
        let mut outer = 1u64;
        for (fixed, (_, extent)) in pattern.loops.iter().enumerate() {
            let mut part = (*extent).max(1);
            loop {
                let window = Some((fixed, part));
                if self.held(pattern, &block, fixed, part) <= capacity {
                    let windows = outer.saturating_mul((*extent as u64).div_ceil(part as u64));
                    return self.times(pattern, &block, window, windows.saturating_mul(blocks));
                }
                if part == 1 {
                    break;
                }
                part = part / 2 + part % 2;
            }
            outer = outer.saturating_mul((*extent).max(1) as u64);
        }
        self.times(pattern, &block, Some((pattern.loops.len(), 1)), outer.saturating_mul(blocks))
    }

    fn times(&self, p: &Pattern<'_>, block: &[(Var, (i64, i64))], window: Option<(usize, i64)>, windows: u64) -> u64 {
        p.touched(&p.ranges(block, window)).saturating_mul(windows).min(p.requested)
    }

    /// Sectors that L1 holds for a block in a window of a pattern, for all loads under the same loops.
    fn held(&self, pattern: &Pattern<'_>, block: &[(Var, (i64, i64))], fixed: usize, part: i64) -> u64 {
        let is_whole = fixed == 0 && part >= pattern.loops.first().map_or(1, |l| l.1);
        let around = &pattern.loops[..=fixed];
        let cached = self.all.iter().filter(|p| p.cached);
        let of = |p: &Pattern<'_>| match (is_whole, p.loops.starts_with(around)) {
            (true, _) => p.touched(&p.ranges(block, None)),
            (false, true) => p.touched(&p.ranges(block, Some((fixed, part)))),
            (false, false) => 0,
        };
        cached.map(of).fold(0, u64::saturating_add)
    }

    /// Sectors between L2 and device memory, by buffer and direction, for windows of blocks: at least a wave of them.
    fn device(&self, misses: &[u64], capacity: u64, wave: u64, blocks: u64) -> BTreeMap<(BufferId, bool), u64> {
        let mut number = blocks;
        loop {
            let touched = self.touched(number);
            let sum = touched.values().copied().fold(0, u64::saturating_add);
            if sum <= capacity || number <= wave {
                let asked = self.asked(misses);
                let windows = blocks.div_ceil(number);
                let least = |(key, n): (_, u64)| (key, n.saturating_mul(windows).min(asked[&key]));
                return touched.into_iter().map(least).collect();
            }
            number = number.div_ceil(2).max(wave);
        }
    }

    /// Sectors that L2 is asked for, by buffer and direction.
    fn asked(&self, misses: &[u64]) -> BTreeMap<(BufferId, bool), u64> {
        let mut sums = BTreeMap::new();
        for (pattern, misses) in self.all.iter().zip(misses) {
            let sum: &mut u64 = sums.entry((pattern.buffer, pattern.write)).or_default();
            *sum = sum.saturating_add(*misses);
        }
        sums
    }

    /// Distinct sectors that the first blocks of the launch touch, by buffer and direction.
    fn touched(&self, number: u64) -> BTreeMap<(BufferId, bool), u64> {
        let (func, blocks) = (&self.counter.kernel.func, self.blocks(number));
        let mut sums = BTreeMap::new();
        for pattern in &self.all {
            let buffer = func.buffer(pattern.buffer);
            let elements = buffer.elements().and_then(|n| u64::try_from(n).ok());
            let whole = elements.map_or(u64::MAX, |n| buffer.dtype.bytes_of(n).div_ceil(SECTOR as u64));
            let sum: &mut u64 = sums.entry((pattern.buffer, pattern.write)).or_default();
            *sum = sum.saturating_add(pattern.touched(&pattern.ranges(&blocks, None))).min(whole);
        }
        sums
    }
}

/// Adds the steps from the first to the other numbers, which are sorted: of a line, a grid and so on; of irregular ones as many steps as
/// there are numbers.
fn lattice(starts: &[u64], steps: &mut Vec<(u64, u64)>) {
    let [first, second, ..] = starts else { return };
    let step = second - first;
    let line = starts.windows(2).take_while(|w| w[1] - w[0] == step).count() + 1;
    let mut lines = starts.chunks(line);
    let is_grid = lines.all(|l| l.len() == line && l.windows(2).all(|w| w[1] - w[0] == step));
    if is_grid {
        steps.push((step, line as u64));
        lattice(&starts.iter().copied().step_by(line).collect::<Vec<_>>(), steps);
    } else {
        let span = starts.last().map_or(0, |last| last - first);
        steps.push((span / (starts.len() as u64 - 1), starts.len() as u64));
    }
}

/// Distinct sectors of pieces of `width` bits at all sums of multiples of the steps: each step in bits and how many values it has.
fn sectors(mut steps: Vec<(u64, u64)>, width: u64) -> u64 {
    steps.retain(|(step, values)| *step > 0 && *values > 1);
    steps.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (step, values) in steps {
        match merged.last_mut() {
            Some(last) if last.0 == step => last.1 = last.1.saturating_add(values - 1),
            _ => merged.push((step, values)),
        }
    }
    // Pieces of `run` bits without a gap of a sector, and the bits from the first to the last.
    let (mut run, mut pieces, mut span) = (width, 1u64, width);
    for (step, values) in merged {
        let more = step.saturating_mul(values - 1);
        if pieces == 1 && step <= run.next_multiple_of(SECTOR_BITS) {
            run = run.saturating_add(more);
        } else {
            pieces = pieces.saturating_mul(values);
        }
        span = span.saturating_add(more);
    }
    pieces.saturating_mul(run.div_ceil(SECTOR_BITS)).min(span.div_ceil(SECTOR_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The sectors one by one.
    fn enumerated(steps: &[(u64, u64)], width: u64) -> u64 {
        let mut starts = vec![0u64];
        for (step, values) in steps {
            starts = starts.iter().flat_map(|s| (0..*values).map(move |n| s + n * step)).collect();
        }
        let sectors = starts.iter().flat_map(|s| s / SECTOR_BITS..=(s + width - 1) / SECTOR_BITS);
        sectors.collect::<BTreeSet<_>>().len() as u64
    }

    #[test]
    fn sectors_of_grids_are_those_of_an_enumeration() {
        let bits = |steps: &[(u64, u64)]| steps.iter().map(|(s, n)| (s * 8, *n)).collect::<Vec<_>>();
        let cases: [&[(u64, u64)]; 9] = [
            // A warp of words; of words two, four and eight words apart; and of rows.
            &[(4, 32)],
            &[(8, 32)],
            &[(16, 32)],
            &[(32, 32)],
            &[(4096, 32)],
            // A tile of 16 rows of 256 bytes, and whole rows.
            &[(4096, 16), (4, 64)],
            &[(256, 16), (4, 64)],
            // A stencil reads an overlap once.
            &[(4, 64), (4, 3), (4096, 8), (4096, 3)],
            &[],
        ];
        for steps in cases {
            let steps = bits(steps);
            assert_eq!(sectors(steps.clone(), 32), enumerated(&steps, 32), "{steps:?}");
        }
        // Random grids: the steps of one do not overlap, as in an array.
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let (mut step, mut steps) = (32u64, Vec::new());
            for _ in 0..rng.usize(1..4) {
                let values = 1 << rng.u32(0..5);
                steps.push((step, values));
                step *= values << rng.u32(0..4);
            }
            rng.shuffle(&mut steps);
            let (found, wanted) = (sectors(steps.clone(), 32), enumerated(&steps, 32));
            assert_eq!(found, wanted, "{steps:?}");
        }
    }

    #[test]
    fn constants_of_an_unrolled_tile_are_a_grid() {
        let tile: Vec<u64> = (0..4).flat_map(|row| (0..8).map(move |column| row * 4096 + column * 32)).collect();
        let mut steps = Vec::new();
        lattice(&tile, &mut steps);
        assert_eq!(steps, [(32, 8), (4096, 4)]);
        let (mut one, mut irregular) = (Vec::new(), Vec::new());
        lattice(&[7], &mut one);
        lattice(&[0, 32, 96], &mut irregular);
        assert_eq!((one, irregular), (vec![], vec![(48, 3)]));
    }
}
