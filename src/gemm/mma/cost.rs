//! What tiles of the recipe on tensor cores are taken to cost: clocks, by the resource that is short.

use super::{Ahead, Factors, Mma, Source, rows, up};
use crate::target::Target;
use crate::te::GemmSpec;

/// Clocks of a scheduler for a product of 16 x 8 x 32 bytes: as measured at 4096^3 on an H200, whose power limits it there.
const PRODUCT: f64 = 8.3;
/// Clocks of a warp for a step of k besides its products: loads of factors, copies and its share of a barrier.
const STEP: f64 = 60.0;
/// Bytes that the L2 cache gives a multiprocessor in a clock while all of them read (4000 to 4500 for 132 of an H800,
/// arXiv 2402.13499).
const L2: f64 = 32.0;
/// Clocks before the first product of a block.
const FILL: f64 = 1500.0;
/// Bytes of sums that a multiprocessor stores in a clock: 4000 clocks for a tile of 128 x 256 were measured.
const STORE: f64 = 32.0;
/// Clocks from kernel to kernel, and bytes that all multiprocessors move through device memory in a clock.
const LAUNCH: f64 = 4000.0;
const MEMORY: f64 = 1600.0;
/// Clocks of a scheduler for a word of eight 4-bit integers of each lane that become bytes: six operations of 16 lanes.
const UNPACK: f64 = 12.0;
/// Registers of a thread besides sums and factors.
const ADDRESSES: i64 = 40;

impl Mma {
    /// Clocks for the product; infinite where a block does not fit.
    pub(in crate::gemm) fn clocks(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let multiprocessors = i64::from(target.device().multiprocessors);
        let resident = self.resident(spec, target);
        if resident == 0 {
            return f64::INFINITY;
        }
        let tiles = up(spec.m, self.block[0]).saturating_mul(up(spec.n, self.block[1]));
        let blocks = tiles.saturating_mul(self.parts).saturating_mul(spec.products());
        let places = multiprocessors * resident;
        let rest = up(blocks % places, multiprocessors);
        let full = (blocks / places) as f64 * self.busy(spec, resident);
        full + if rest > 0 { self.busy(spec, rest) } else { 0.0 } + self.passes(spec, multiprocessors)
    }

    /// Blocks that a multiprocessor has room for.
    fn resident(&self, spec: &GemmSpec, target: &Target) -> i64 {
        self.resident_with(self.registers(spec), spec, target)
    }

    /// Blocks that a multiprocessor has room for if each thread has so many registers.
    pub(super) fn resident_with(&self, registers: i64, spec: &GemmSpec, target: &Target) -> i64 {
        let number = |n: i64| u32::try_from(n).ok();
        let sizes = number(registers).zip(number(self.threads())).zip(number(self.shared(spec)));
        sizes.map_or(0, |((registers, threads), shared)| target.occupancy(threads, registers, shared).blocks.into())
    }

    /// Registers of a thread.
    pub(super) fn registers(&self, spec: &GemmSpec) -> i64 {
        let [wm, wn] = self.warp();
        let sums = wm * wn / 32 * i64::from(spec.acc.bits()) / 32;
        let unpacked = if self.factors == Factors::Unpacked { (wm + wn) / 2 } else { 0 };
        let factors = (wm + wn) / 4 * if self.ahead == Ahead::Apart { 2 } else { 1 } + unpacked;
        let copied = if self.asynchronous {
            0
        } else {
            (self.block[0] + self.block[1]) * self.bk * self.factors.bits(spec) / 32 / self.threads()
        };
        sums + factors + copied + ADDRESSES
    }

    /// Rows and columns of C of a warp.
    fn warp(&self) -> [i64; 2] {
        [0, 1].map(|d| self.block[d] / self.warps[d])
    }

    /// Clocks of a multiprocessor for so many blocks at a time.
    fn busy(&self, spec: &GemmSpec, blocks: i64) -> f64 {
        let ([bm, bn], [wm, wn], blocks) = (self.block, self.warp(), blocks as f64);
        let steps = (up(spec.k, self.bk * self.parts) * self.bk / self.factors.depth(spec)) as f64;
        let (product, unpack) = match self.factors {
            Factors::Unpacked => (2.0 * PRODUCT, (wm + wn) as f64 / 4.0 * UNPACK),
            _ => (PRODUCT, 0.0),
        };
        let warps = (self.warps[0] * self.warps[1]) as f64;
        let all = blocks / 4.0 * ((bm * bn / 128) as f64 * product).max(warps * unpack);
        let own = (wm * wn / 128) as f64 * product + STEP + unpack;
        let fetched = blocks * (32 * (bm + bn)) as f64 / L2;
        let stored = blocks * (4 * bm * bn) as f64 / STORE;
        steps * all.max(own).max(fetched) + FILL + stored
    }

    /// Clocks of the kernels before and after the product's own.
    pub(in crate::gemm) fn passes(&self, spec: &GemmSpec, multiprocessors: i64) -> f64 {
        let mut out = 0.0;
        for side in 0..2 {
            if self.routes[side] == Source::Packed {
                let bits = i64::from(spec.a.bits()) + self.factors.bits(spec);
                let moved = bits as f64 / 8.0 * rows(spec)[side] as f64 * spec.k as f64 * spec.products() as f64;
                out += LAUNCH + moved / MEMORY;
            }
        }
        if self.parts > 1 {
            let moved = (4 * (self.parts + 1)) as f64 * spec.m as f64 * spec.n as f64;
            out += LAUNCH + moved / (L2 * multiprocessors as f64);
        }
        out
    }
}
