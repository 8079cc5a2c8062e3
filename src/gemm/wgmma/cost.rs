//! What tiles of the recipe by wgmma need: shared memory, blocks, and their [`Work`].

use super::{ROWS, SwapAb, Wgmma, bytes, room, up};
use crate::gemm::tuning;
use crate::gemm::work::{Work, cycles};
use crate::target::Target;
use crate::te::GemmSpec;

impl Wgmma {
    /// Bytes of shared memory of a block.
    pub fn shared(&self, spec: &GemmSpec) -> i64 {
        let ring = self.stage_tile().iter().sum::<i64>() * self.bk * bytes(spec.a) * self.stages;
        // Where a producer already loads the next tile, the ring has no room for C.
        let out = if self.stores_by_tma() && (self.persistent || self.producer) {
            self.store_tile_shape(spec).iter().product::<i64>() * bytes(spec.out) * self.out_stages
        } else {
            0
        };
        let tile = if self.stores_by_tma() { 0 } else { self.block[0] * self.block[1] * bytes(spec.out) };
        (ring + out).max(tile) + 16 * self.stages + 2048
    }

    /// Rows and columns of C whose operands a stage holds: those of one warpgroup in ping-pong, or all of the block's.
    pub(super) fn stage_tile(&self) -> [i64; 2] {
        let mut stage_tile = self.block;
        if self.pingpong {
            stage_tile[self.swap_ab.rows()] /= self.warpgroups;
        }
        stage_tile
    }

    /// Rows and columns of C that a block stores at once.
    fn store_tile_shape(&self, spec: &GemmSpec) -> [i64; 2] {
        match self.swap_ab {
            SwapAb::Straight => [self.block[0], self.store_columns(spec)],
            SwapAb::Swapped => [self.store_rows(), self.block[1]],
        }
    }

    /// Blocks of the grid.
    pub fn blocks(&self, spec: &GemmSpec) -> i64 {
        up(spec.m, self.block[0]) * up(spec.n, self.block[1]) * spec.products()
    }

    /// Ring stages that a tile of C takes along k.
    pub(super) fn k_stages(&self, spec: &GemmSpec) -> i64 {
        up(spec.k, self.bk)
    }

    /// Blocks that share a multiprocessor.
    pub(super) fn resident(&self, spec: &GemmSpec, target: &Target) -> i64 {
        // More than four small ones were not measured.
        (room(target) / self.shared(spec)).clamp(1, 4)
    }

    /// What the GEMM asks of the device in these tiles.
    pub(super) fn work(&self, spec: &GemmSpec, target: &Target) -> Work {
        let ([m, n], row) = (self.stage_tile(), self.bk * bytes(spec.a));
        let rate = target.device().operations_per_clock(spec.a, spec.acc).unwrap_or(f64::INFINITY);
        let fetched = (m + n) * row;
        // A warpgroup reads its rows of A once, and all columns of B for each 64 rows.
        let warpgroups = if self.pingpong { 1 } else { self.warpgroups };
        let (tall, wide) = if self.swap_ab.is_swapped() { (n, m) } else { (m, n) };
        let operands = warpgroups * (tall / warpgroups + wide * (tall / warpgroups / ROWS)) * row;
        let common = Work {
            mma: (2 * m * n * self.bk) as f64 / rate,
            tiles: self.blocks(spec),
            prologue: tuning::WGMMA_PROLOGUE,
            ..Work::NONE
        };
        let stages = self.k_stages(spec) as f64;
        if self.pingpong {
            // Bytes from L2 and through shared memory are left out: at the widths of ping-pong the MMAs take longer. The prologue
            // and the epilogue of a warpgroup overlap the MMAs of the other.
            let iterations = stages * self.warpgroups as f64;
            return Work { bubble: tuning::PINGPONG_BUBBLE, iterations, prologue: 0.0, ..common };
        }
        let [m, n] = self.block;
        Work {
            shared_bytes: (operands + fetched) as f64,
            l2_bytes: fetched as f64,
            l2_share: tuning::WGMMA_L2_SHARE,
            iterations: stages,
            epilogue: (m * n * bytes(spec.out)) as f64 / tuning::WGMMA_STORE_BYTES,
            resident: self.resident(spec, target),
            ..common
        }
    }

    /// Cycles of the tiles of the busiest multiprocessor, by which ping-pong and cooperative warpgroups are compared: MMAs and the
    /// bubbles around them.
    pub(super) fn mma_cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let work = self.work(spec, target);
        let epilogue = if self.pingpong { 0.0 } else { tuning::COOPERATIVE_EPILOGUE };
        let bubble = if self.pingpong { work.bubble } else { tuning::COOPERATIVE_BUBBLE };
        let Work { mma, iterations, tiles, .. } = work;
        cycles(&Work { mma, bubble, iterations, tiles, epilogue, ..Work::NONE }, &target.device())
    }

    /// Cycles that the GEMM takes in these tiles.
    pub(super) fn cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        cycles(&self.work(spec, target), &target.device())
    }
}
