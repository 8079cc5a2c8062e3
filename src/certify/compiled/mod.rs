//! The same counts of the compiled program: the PTX of a kernel, with its warps followed through loops and branches.
//!
//! This is what is left of the lowered program's accesses when neighbours were merged, equal values loaded once, and loads
//! taken out of loops. Only addresses, predicates and branches are computed (`warp`); data are not. Every warp of
//! some blocks is followed; the others are taken to do what the followed block nearest to them along each axis does.

mod flow;
mod parse;
mod warp;

use super::report::{Compiled, Traffic};
use super::request::{self, LANES, Lanes, SECTOR, WORD};
use parse::{Entry, Space, What};
use warp::{Listen, Lost, Place, Warp};

/// Instructions of warps that are followed in a kernel.
const MOST_STEPS: u64 = 1 << 25;

/// The counts of an entry point of a module; `None` if there is no such entry.
pub fn count(ptx: &str, entry: &str, grid: [u32; 3], block: [u32; 3]) -> Option<Compiled> {
    let entries = parse::entries(ptx);
    let entry = entries.iter().find(|e| e.name == entry)?;
    Some(follow(entry, grid, block))
}

fn follow(entry: &Entry, grid: [u32; 3], block: [u32; 3]) -> Compiled {
    let kernel = Kernel { entry, meetings: flow::meetings(entry), grid, block };
    let blocks = grid.iter().fold(1, |n: u64, e| n.saturating_mul(u64::from(*e)));
    match kernel.launch() {
        Ok((traffic, blocks_followed)) => Compiled { blocks, blocks_followed, traffic: Some(traffic), why: None },
        Err(why) => Compiled { blocks, blocks_followed: 0, traffic: None, why: Some(why) },
    }
}

/// A kernel with its launch.
struct Kernel<'e> {
    entry: &'e Entry,
    meetings: Vec<usize>,
    grid: [u32; 3],
    block: [u32; 3],
}

impl Kernel<'_> {
    /// The traffic of all blocks, and how many of them were followed.
    fn launch(&self) -> Result<(Traffic, u64), Lost> {
        // One block says how long the others take.
        let mut steps = MOST_STEPS;
        let first = self.block([0; 3], &mut steps)?;
        let chosen = choose(self.grid, MOST_STEPS / (MOST_STEPS - steps).max(1));
        let mut all = Traffic::default();
        for (at, weight) in &chosen {
            match at {
                [0, 0, 0] => all.add(&first, *weight),
                at => all.add(&self.block(*at, &mut MOST_STEPS.clone())?, *weight),
            }
        }
        Ok((all, chosen.len() as u64))
    }

    /// The traffic of one block.
    fn block(&self, at: [u32; 3], steps: &mut u64) -> Result<Traffic, Lost> {
        let mut counted =
            Counted { entry: self.entry, traffic: Traffic::default(), last: vec![None; self.entry.code.len()] };
        for warp in 0..self.block.iter().product::<u32>().div_ceil(LANES as u32) {
            let place = Place { block: at, grid: self.grid, threads: self.block, warp };
            Warp::new(self.entry, &self.meetings, place).run(steps, &mut counted)?;
        }
        Ok(counted.traffic)
    }
}

/// Blocks to follow, with how many each stands for: along each axis the first, some between, the last.
fn choose(grid: [u32; 3], affordable: u64) -> Vec<([u32; 3], u64)> {
    let wide = grid.iter().filter(|n| **n > 1).count() as u32;
    // Along one axis alone there may be a walk in two dimensions.
    let wanted: u64 = if wide == 1 { 9 } else { 3 };
    let each = (1..=wanted).rev().find(|n| n.pow(wide) <= affordable).unwrap_or(1);
    let along = |n: u32| -> Vec<(u32, u64)> {
        let count = u64::from(n).min(each);
        let last = u64::from(n) - 1;
        let at: Vec<u64> = (0..count).map(|i| if count == 1 { last / 2 } else { i * last / (count - 1) }).collect();
        // The first and the last stand for themselves; those between share the rest.
        let inner = count.saturating_sub(2);
        let weight = |i: u64| match (count, inner) {
            (1, _) => u64::from(n),
            (2, _) if i == 0 => u64::from(n) - 1,
            _ if i == 0 || i == count - 1 => 1,
            _ => (u64::from(n) - 2) / inner + u64::from((i - 1) < (u64::from(n) - 2) % inner),
        };
        at.into_iter().zip(0..).map(|(a, i)| (a as u32, weight(i))).collect()
    };
    let [x, y, z] = grid.map(along);
    let mut out = Vec::new();
    for (c, wc) in &z {
        for (b, wb) in &y {
            out.extend(x.iter().map(|(a, wa)| ([*a, *b, *c], wa * wb * wc)));
        }
    }
    out
}

/// Counting the warps of a block.
struct Counted<'e> {
    entry: &'e Entry,
    traffic: Traffic,
    /// The last request of each instruction: its lanes relative to its first, and what it cost. Most repeat.
    last: Vec<Option<(Lanes, i64, u64)>>,
}

impl Counted<'_> {
    /// Wavefronts or sectors. A request that differs from the last one of the instruction by a multiple of what matters
    /// costs the same.
    fn cost(&mut self, at: usize, shared: bool, write: bool, bytes: i64, lanes: &Lanes) -> u64 {
        let period = if shared { WORD } else { SECTOR };
        let origin = lanes.addresses().next().unwrap_or(0).div_euclid(period) * period;
        let mut relative = *lanes;
        for lane in 0..LANES {
            relative.at[lane] = if lanes.runs(lane) { lanes.at[lane].wrapping_sub(origin) } else { 0 };
        }
        if let Some((last, width, cost)) = &self.last[at]
            && *last == relative
            && *width == bytes
        {
            return *cost;
        }
        let cost = if shared {
            request::bank_conflicts(&relative, bytes, write).wavefronts
        } else {
            request::sectors(&relative, bytes).touched
        };
        self.last[at] = Some((relative, bytes, cost));
        cost
    }
}

impl Listen for Counted<'_> {
    fn instruction(&mut self, at: usize) {
        self.traffic.instructions += 1;
        self.traffic.fma_instructions += u64::from(matches!(self.entry.code[at].what, What::Fma { .. }));
    }

    fn request(&mut self, at: usize, space: Space, write: bool, bytes: i64, lanes: &Lanes) {
        let shared = space == Space::Shared;
        let cost = self.cost(at, shared, write, bytes, lanes);
        self.traffic.request(shared, write, 1, cost);
    }
}
