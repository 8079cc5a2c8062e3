//! The tiles of quantised weights in registers: which there are, and their [`Work`].

use super::registers::{FromRegisters, TERMS};
use super::{Quantized, ROWS};
use crate::dtype::DType;
use crate::gemm::operand::up;
use crate::gemm::split::{parts_bytes, sharing_out};
use crate::gemm::tiles::WARPGROUP;
use crate::gemm::tuning;
use crate::gemm::work::{Flight, Work, ranked};
use crate::target::{Features, LANES, SCHEDULERS, Target};

/// Rows of X of a tile at most, and what they are a multiple of.
const MOST_ROWS: i64 = 256;
const STEP: i64 = 8;
/// Warpgroups, and instructions of each along the rows of W.
const TALL: [(i64, i64); 3] = [(1, 1), (2, 1), (2, 2)];
/// Registers of a thread that loads.
const PRODUCER_REGISTERS: i64 = 40;
/// Cycles between two stages of a tile in which none of its wgmmas runs: 256x28672x8192 of s4 takes 175 us on an H100 in persistent tiles of 256
/// rows of X, 187 in 128 (no record was kept).
const STAGE_BUBBLE: f64 = 70.0;
/// k extents of a stage.
const DEPTHS: [i64; 3] = [64, 128, 256];
/// Parts of k.
const PARTS: [i64; 4] = [1, 2, 4, 8];
/// Stages of the ring: the least, so that loads run ahead, and the most.
const STAGES: (i64, i64) = (3, 16);
/// Registers of a thread at most, of a multiprocessor, and blocks of a multiprocessor at most.
const MOST_REGISTERS: i64 = 232;
const REGISTERS: i64 = 65536;
const MOST_RESIDENT: i64 = 4;
/// Instructions of a lane to dequantise the weights of a 32-bit register, two halves: LOP3, HFMA2 and HMUL2, a part of the loads and shifts,
/// and of the MMAs with their descriptors. For other types than 4-bit integers a permutation more.
const INSTRUCTIONS: f64 = 4.3;
/// Instructions of a lane for a stage besides these: the barrier, addresses, copies. Both are counted in the SASS of tiles of 64 rows
/// of W and 16 rows of X (200 instructions with stages of 128 terms, 342 with 256).
const STAGE_INSTRUCTIONS: f64 = 58.0;
/// Cycles of a stage of a lone warpgroup besides its instructions: the barrier, loads from shared memory, the end of the last wgmma. An
/// estimate.
const STAGE_LATENCY: f64 = 250.0;

/// Whether the chip has the instructions, and TMA can read what there is.
pub(super) fn suits(q: &Quantized, target: &Target) -> bool {
    let [m, n, k] = q.sizes;
    let bits = |elements: i64, dtype: DType| elements * i64::from(dtype.bits()) % 128 == 0;
    let aligned = bits(k, q.activations) && bits(k, q.weights) && bits(n, q.activations);
    q.is_packed && target.has(Features::WGMMA | Features::TMA) && aligned && m > 0
}

/// Cycles of the issue slots of a multiprocessor to dequantise so many weights.
pub(super) fn dequantising(q: &Quantized, weights: i64) -> f64 {
    let permutes = if q.weights.bits() == 4 { 0.0 } else { 1.0 };
    let registers = weights as f64 / 2.0 / LANES as f64 / SCHEDULERS as f64;
    registers * (INSTRUCTIONS + permutes)
}

/// Bytes that the product reads and writes in device memory at least.
pub(super) fn memory_bytes(q: &Quantized) -> f64 {
    let ([m, n, k], spec) = (q.sizes, q.product());
    let bytes = |elements: i64, dtype: DType| elements as f64 * f64::from(dtype.bits()) / 8.0;
    let scales = spec.n * (k / q.group()) * if q.has_zeros { 2 } else { 1 };
    bytes(m * k + m * n + scales, q.activations) + bytes(spec.n * k, q.weights)
}

/// The tiles, the cheapest first.
pub(super) fn ranked_tiles(q: &Quantized, target: &Target) -> Vec<FromRegisters> {
    let mut all = Vec::new();
    for rows in rows(q.sizes[0]) {
        for ((warpgroups, tall), bk) in TALL.into_iter().flat_map(|t| DEPTHS.map(|bk| (t, bk))) {
            for (parts, sharing) in PARTS.map(|parts| (parts, 1)).into_iter().chain([(1, 2)]) {
                let plain = FromRegisters { rows, tall, warpgroups, bk, stages: 0, parts, sharing, persistent: true };
                all.extend(plain.fitted(1, q, target));
                let plain = FromRegisters { persistent: false, ..plain };
                all.extend((1..=MOST_RESIDENT).filter_map(|resident| plain.fitted(resident, q, target)));
            }
        }
    }
    let works = all.into_iter().map(|tiles| (tiles.work(q, target), tiles)).collect();
    ranked(works, 1.0, &target.device()).into_iter().map(|(_, tiles)| tiles).collect()
}

/// Numbers of rows of X of a tile: equal parts of m, as few as there can be or twice as many.
fn rows(m: i64) -> Vec<i64> {
    let fewest = up(m, MOST_ROWS);
    let part = |tiles: i64| {
        let rows = up(up(m, tiles), STEP) * STEP;
        // Tiles that are stored in parts have whole parts.
        if rows > 64 { up(rows, 64) * 64 } else { rows }
    };
    let mut all = vec![part(fewest), part(2 * fewest)];
    all.dedup();
    all
}

impl FromRegisters {
    /// With as many stages as there is room for so many blocks; `None` where the recipe has no such tiles.
    fn fitted(self, resident: i64, q: &Quantized, target: &Target) -> Option<FromRegisters> {
        let [_, n, k] = q.sizes;
        let padded = up(n, ROWS) * ROWS;
        let divides = padded % (self.weights() * self.sharing) == 0 && k % (self.bk * self.parts) == 0;
        let iterations = k / self.bk / self.parts;
        let stages = iterations.clamp(1, STAGES.1);
        let room = i64::from(target.limits.shared_optin) / resident;
        let fits = |stages: &i64| FromRegisters { stages: *stages, ..self }.shared(q) <= room;
        let stages = (1..=stages).rev().find(fits)?;
        let tiles = FromRegisters { stages, ..self };
        let many = tiles.tiles(q) > i64::from(target.device().multiprocessors);
        // Blocks that stay load the next tile during the epilogue, which pays where the tensor cores are busy.
        let Work { mma, issue, .. } = tiles.work(q, target);
        let alone = !self.persistent || self.parts == 1 && self.warpgroups > 1 && many && mma > issue;
        let small = self.registers() <= MOST_REGISTERS && resident * self.block_registers() <= REGISTERS;
        let long = stages >= STAGES.0.min(iterations);
        // Blocks that share wait for each other at each stage, which a producer does for them.
        let shares = self.sharing == 1 || self.has_producer();
        (divides && q.suits_stage(self.bk) && small && alone && long && shares && self.adds_up()).then_some(tiles)
    }

    /// Registers of a thread for accumulators, the fragments of a stage and addresses. Of weights a lane has words and halves.
    fn registers(&self) -> i64 {
        let (accumulators, halves) = (self.tall * self.rows / 2, self.tall * self.bk / 4);
        accumulators + halves * 3 / 2 + tuning::ADDRESS_REGISTERS
    }

    /// Registers of a block.
    fn block_registers(&self) -> i64 {
        let loading = if self.has_producer() { PRODUCER_REGISTERS } else { 0 };
        WARPGROUP * (self.warpgroups * self.registers() + loading)
    }

    fn tiles(&self, q: &Quantized) -> i64 {
        let [m, n, _] = q.sizes;
        up(m, self.rows) * up(n, self.weights()) * self.parts
    }

    /// Bytes of a stage: X and the packed weights, and its scales.
    fn stage_bytes(&self, q: &Quantized) -> [i64; 2] {
        let bytes = |elements: i64, dtype: DType| elements * i64::from(dtype.bits()) / 8;
        let scales = q.stage_scales(self.weights(), self.bk);
        [
            bytes(self.rows * self.bk, q.activations),
            bytes(self.weights() * self.bk, q.weights) + bytes(scales, q.activations),
        ]
    }

    /// Bytes of shared memory of a block.
    fn shared(&self, q: &Quantized) -> i64 {
        let ring = self.stage_bytes(q).iter().sum::<i64>() * self.stages;
        let stages = if self.stored_rows() < self.rows { 2 } else { 1 };
        let out = if self.parts == 1 { self.stored_rows() * self.weights() * 2 * stages } else { 0 };
        let parts = if self.parts > 1 { parts_bytes([self.rows, self.weights()], self.parts) } else { 0 };
        ring + out + parts + 16 * self.stages + 2048
    }

    /// What the product asks of the device in these tiles.
    fn work(&self, q: &Quantized, target: &Target) -> Work {
        let ([_, _, k], device) = (q.sizes, target.device());
        let rate = device.operations_per_clock(q.activations, DType::F32).unwrap_or(f64::INFINITY);
        let [x, p] = self.stage_bytes(q).map(|b| b as f64);
        let (weights, bk) = (self.weights() as f64, self.bk as f64);
        let own = self.warpgroups as f64;
        let issue = dequantising(q, self.weights() * self.bk) + own * STAGE_INSTRUCTIONS;
        let mma = 2.0 * self.rows as f64 * weights * bk / rate;
        let instructions = self.tall as f64 * (bk / TERMS as f64) * 32.0;
        let room = i64::from(target.limits.shared_optin);
        let by_registers = REGISTERS / self.block_registers();
        let resident = (room / self.shared(q)).min(by_registers).clamp(1, MOST_RESIDENT);
        let resident = if self.persistent { 1 } else { resident };
        Work {
            mma,
            bubble: STAGE_BUBBLE,
            issue,
            latency: STAGE_LATENCY + issue / own + (mma / own).max(instructions),
            shared_bytes: x * (weights / ROWS as f64 + 1.0) + 2.0 * p,
            l2_bytes: x / self.sharing as f64 + p,
            l2_share: tuning::PACKED_L2_SHARE,
            iterations: (k / self.bk / self.parts) as f64,
            prologue: tuning::PACKED_PROLOGUE,
            epilogue: match self.parts {
                1 => 2.0 * self.rows as f64 * weights / tuning::PACKED_STORE_BYTES,
                parts => sharing_out([self.rows, self.weights()], parts),
            },
            tiles: self.tiles(q),
            resident,
            cluster: self.parts.max(self.sharing),
            memory_bytes: memory_bytes(q),
            flight: Flight::of((self.stages - 1) as f64 * (x + p)),
            ..Work::NONE
        }
    }
}
