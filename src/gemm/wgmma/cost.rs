//! What tiles take: shared memory, blocks, clocks.

use super::{ROWS, Wgmma, bytes, processors, room, up};
use crate::target::Target;
use crate::te::GemmSpec;

/// Clocks of a block that do not depend on k: the first loads, and the way out of the sums, for each 2048 bytes of C.
const BEFORE: f64 = 1400.0;
const BEHIND: f64 = 45.0;

impl Wgmma {
    /// Bytes of shared memory of a block.
    pub fn shared(&self, spec: &GemmSpec) -> i64 {
        let ring = self.slot().iter().sum::<i64>() * self.bk * bytes(spec.a) * self.stages;
        // Where no role may already load the next tile, C lies where the factors were.
        let out = if self.bulk_store && (self.persistent || self.loader) {
            self.block[0] * self.leaving(spec) * bytes(spec.out) * self.out_stages
        } else {
            0
        };
        let tile = if self.bulk_store { 0 } else { self.block[0] * self.block[1] * bytes(spec.out) };
        (ring + out).max(tile) + 16 * self.stages + 2048
    }

    /// Rows and columns of C whose factors a slot has: those of one turn, or all of the block's.
    pub(super) fn slot(&self) -> [i64; 2] {
        let mut slot = self.block;
        if self.in_turns {
            slot[usize::from(self.turned)] /= self.groups;
        }
        slot
    }

    /// Blocks of the grid.
    pub fn blocks(&self, spec: &GemmSpec) -> i64 {
        up(spec.m, self.block[0]) * up(spec.n, self.block[1]) * spec.products()
    }

    /// Ring stages that a tile of C takes along k.
    pub(super) fn slots_of_k(&self, spec: &GemmSpec) -> i64 {
        up(spec.k, self.bk)
    }

    /// Clocks of a slot's products, of its bytes from the second-level cache, and of what goes through shared memory:
    /// 40 bytes a clock from the cache, 128 in and out of shared memory.
    pub(super) fn step(&self, spec: &GemmSpec, target: &Target) -> [f64; 3] {
        let ([m, n], row) = (self.slot(), self.bk * bytes(spec.a));
        let groups = if self.in_turns { 1 } else { self.groups };
        let rate = target.device().operations_per_clock(spec.a, spec.acc).unwrap_or(f64::INFINITY);
        let products = (2 * m * n * self.bk) as f64 / rate;
        let bytes = ((m + n) * row) as f64;
        let (tall, wide) = if self.turned { (n, m) } else { (m, n) };
        let operands = (groups * (tall / groups + wide * (tall / groups / ROWS)) * row) as f64;
        [products, bytes / 40.0, (operands + bytes) / 128.0]
    }

    /// Clocks that the product takes, as far as tiles decide: waves of blocks, each as long as its products or its bytes.
    pub(super) fn clocks(&self, spec: &GemmSpec, target: &Target) -> f64 {
        if self.in_turns {
            return BEFORE + self.walked(spec, target);
        }
        let [m, n] = self.block;
        let steps = self.slots_of_k(spec) as f64;
        let step = self.step(spec, target).into_iter().fold(0.0, f64::max);
        let behind = BEHIND * (m * n * bytes(spec.out)) as f64 / 2048.0;
        let tile = BEFORE + steps * step + behind;
        // Small blocks share a multiprocessor.
        let resident = (room(target) / self.shared(spec)).clamp(1, 4) as f64;
        let waves = self.blocks(spec) as f64 / (f64::from(processors(target)) * resident);
        let last = waves.ceil();
        let full = BEFORE + (steps * step + behind) * resident;
        if waves <= 1.0 / resident { tile } else { full * if waves < 4.0 { last } else { waves } }
    }
}
