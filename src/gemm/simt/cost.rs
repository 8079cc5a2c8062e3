//! The tiles that ordinary code may have, and what a GEMM asks of a device in each of them.

use super::{MIN_BLOCKS, Tiles, shares_bytes};
use crate::dtype::DType;
use crate::gemm::grid::MOST_BLOCKS;
use crate::gemm::operand::{Operand, up};
use crate::gemm::parts::{Sums, numbers};
use crate::gemm::tuning;
use crate::gemm::work::{Flight, SECTOR, Work, operand_bytes, partly_written, ranked, result_bytes};
use crate::target::{Device, LANES, SCHEDULERS, Target};
use crate::te::GemmSpec;

/// Sides of a block's tile and of a thread's.
const SIDES: [i64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const THREAD_SIDES: [i64; 4] = [8, 4, 2, 1];
/// Terms of a stage.
const TERMS: [i64; 7] = [16, 32, 64, 8, 4, 2, 1];
/// Terms of a stage at least, where k has as many, and those of tiles that sum in one order.
const LEAST_TERMS: i64 = 16;
pub(in crate::gemm) const ORDERED_TERMS: i64 = 8;
/// Threads of a warp, and the most of a block.
const WARP: i64 = 32;
const MOST_THREADS: i64 = 256;
/// The accumulators of a thread take fewer bits: half of the registers that it can have.
const RESULT_BITS: i64 = 128 * 32;
/// Registers of 32 bits that a thread has at most for operands on their way from device memory to a second stage.
const MOST_PREFETCHED: i64 = 32;
/// Terms of a sum below which a thread has few results: there is little to multiply, and ragged tiles of 8 x 8 spill.
const FEW_TERMS: i64 = 16;
const FEW_RESULTS: i64 = 16;
/// Copies of a thread that are written out for a stage at most: more do not stay in the cache of instructions.
const MOST_COPIES: f64 = 32.0;
/// k iterations of a part at least: in fewer, a block mostly waits for its first loads.
const ITERATIONS: i64 = 4;
/// Static shared memory of a block on every chip, in bytes.
pub(in crate::gemm) const SHARED: i64 = 48 << 10;

impl Tiles {
    /// All tiles that suit the GEMM and fit on the chip, with the cycles that the model takes them to cost, the cheapest first.
    pub(in crate::gemm) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<(f64, Tiles)> {
        let device = target.device();
        let mut all = Vec::new();
        for tile in tiles(spec, LEAST_TERMS, WARP) {
            for parts in numbers(spec, ITERATIONS * tile.bk) {
                let tiles = Tiles { parts, ..tile };
                let Some(work) = tiles.work(spec, target, &device) else { continue };
                all.push((work, tiles));
                // More parts only add sums to add.
                if parts > 1 && work.tiles > 2 * work.resident * i64::from(device.multiprocessors) {
                    break;
                }
            }
        }
        ranked(all, tuning::SIMT_ALIKE, &device)
    }

    /// The tiles with so many parts of k, of `terms` each with the zeros behind the last, with their cycles, the cheapest first.
    pub(in crate::gemm) fn in_order(spec: &GemmSpec, target: &Target, parts: i64, terms: i64) -> Vec<(f64, Tiles)> {
        let device = target.device();
        // Operands of a few elements are too few for the threads of a warp to copy.
        let of_threads = |least: i64| {
            let all = tiles(spec, ORDERED_TERMS, least).map(|tile| Tiles { parts, ..tile });
            let same = all.filter(|t| up(spec.k, t.bk * parts) * t.bk == terms);
            same.filter_map(|t| Some((t.work(spec, target, &device)?, t))).collect::<Vec<_>>()
        };
        let works = Some(of_threads(WARP)).filter(|all| !all.is_empty()).unwrap_or_else(|| of_threads(1));
        ranked(works, tuning::SIMT_ALIKE, &device)
    }

    /// What the GEMM asks of the device in these tiles; `None` where a block does not fit.
    pub(in crate::gemm) fn work(&self, spec: &GemmSpec, target: &Target, device: &Device) -> Option<Work> {
        let Tiles { bm, bn, bk, tm, tn, stages, parts } = *self;
        let threads = self.threads();
        let shared = self.shared(spec);
        let blocks =
            up(spec.m, bm).saturating_mul(up(spec.n, bn)).saturating_mul(spec.products()).saturating_mul(parts);
        if shared > SHARED || blocks > MOST_BLOCKS {
            return None;
        }
        let registers = u32::try_from(self.registers(spec)).ok()?;
        let resident = target.occupancy(u32::try_from(threads).ok()?, registers, u32::try_from(shared).ok()?).blocks;
        if i64::from(resident) < MIN_BLOCKS {
            return None;
        }
        let warps = up(threads, 32) as f64;
        let mma = (up(threads, 32) * 32 * tm * tn) as f64 / multiply_adds(spec, device);
        let schedulers = SCHEDULERS as f64;
        let issue = warps * self.instructions(spec) / schedulers / tuning::SIMT_ISSUE_SHARE;
        let per_scheduler = issue.max(mma) * schedulers / warps.max(schedulers);
        // A lone block waits for its loads, or, with a second stage, for what takes longer: loads or multiply-adds.
        let compute = bk as f64 * (issue.max(mma) + tuning::SIMT_LATENCY_WARPS * per_scheduler);
        let loads = tuning::SIMT_LOADS * f64::from(device.memory_latency_cycles);
        let lone = if stages > 1 { compute.max(loads) } else { compute + loads };
        let bytes = self.fetched(spec);
        Some(Work {
            mma,
            issue,
            latency: (lone + tuning::SIMT_BARRIER) / bk as f64,
            first: [bk as f64, (compute + tuning::SIMT_BARRIER) / bk as f64],
            warps,
            bubble: tuning::SIMT_BUBBLE * tuning::SIMT_LATENCY_WARPS * per_scheduler,
            shared_bytes: tuning::SIMT_SHARED * (warps * 128.0 * self.wavefronts(spec) + 2.0 * bytes),
            l2_bytes: bytes,
            l2_share: tuning::SIMT_L2_SHARE,
            overlap: tuning::SIMT_OVERLAP,
            memory_share: tuning::MEMORY_SHARE,
            iterations: (up(spec.k, bk * parts) * bk) as f64,
            launch: tuning::SIMT_LAUNCH + tuning::SIMT_CODE * bk as f64 * self.instructions(spec),
            epilogue: (bm * bn * i64::from(spec.out.bits()) / 8) as f64 * self.store_turns(spec)
                / tuning::SIMT_STORE_BYTES,
            tiles: blocks,
            resident: i64::from(resident),
            memory_bytes: memory_bytes(spec) + partly_written(spec, self.bn) + self.written_by_sector(spec),
            flight: Flight::of(bytes * bk as f64),
            passes: Sums::new(spec, self.padding(spec), parts).passes(),
            ..Work::NONE
        })
    }

    /// Turns in which a lane stores a group of its columns, 16 bytes each: between two of them lie those of other lanes, so that each turn
    /// writes parts of sectors. 1433x3584x64 NT of f32 took 24.1 us on an H100 in 64 x 64 of 8 x 4 a thread, and 35.9 of 4 x 8 in one group
    /// (no record was kept).
    fn store_turns(&self, spec: &GemmSpec) -> f64 {
        let bytes = self.tn / self.groups(spec)[1] * i64::from(spec.out.bits()) / 8;
        if self.parts > 1 { 1.0 } else { (bytes as f64 / 16.0).max(1.0) }
    }

    /// Bytes that a k step of a block reads from L2: of narrow rows whole sectors.
    fn fetched(&self, spec: &GemmSpec) -> f64 {
        let one = |operand: Operand| {
            let side = [self.bm, self.bn][operand as usize].min(operand.rows(spec));
            let bytes = f64::from(operand.dtype(spec).bits()) / 8.0;
            let row = if operand.along_k(spec) { self.bk } else { side } as f64 * bytes;
            side as f64 * bytes * (SECTOR / row).max(1.0)
        };
        Operand::BOTH.into_iter().map(one).sum()
    }

    /// What rows of C of a single sector take of device memory beside their bytes, as an access has two: 9216x2592x8 TT of s8 takes 41.9 us on an H100 in
    /// rows of 8 elements and 31.2 in rows of 16 to 64, 3000x6000x2 TT of f32 31.4 and 23.2 to 23.7.
    fn written_by_sector(&self, spec: &GemmSpec) -> f64 {
        let row = self.bn as f64 * f64::from(spec.out.bits()) / 8.0;
        let alone = row <= SECTOR && spec.m > 1 && spec.n > self.bn && self.parts == 1;
        if alone { tuning::SIMT_SECTOR_ROWS * result_bytes(spec) } else { 0.0 }
    }

    /// Wavefronts of 128 bytes in which a warp reads its operands of a k step from shared memory. Each serves as many lanes as have 128 bytes
    /// together.
    fn wavefronts(&self, spec: &GemmSpec) -> f64 {
        let one = |operand: Operand| {
            let bytes = up([self.tm, self.tn][operand as usize] * i64::from(operand.dtype(spec).bits()), 8);
            up(bytes, VECTOR) * up(LANES, (WAVEFRONT / bytes.min(VECTOR)).min(LANES))
        };
        Operand::BOTH.into_iter().map(one).sum::<i64>() as f64
    }

    /// Bytes of shared memory of a block, with the padding of the rows of transposed operands.
    fn shared(&self, spec: &GemmSpec) -> i64 {
        let one = |operand: Operand| {
            let bits = i64::from(operand.dtype(spec).bits());
            let padded = if operand.along_k(spec) { 2 * 128 / bits } else { 0 };
            self.stages * self.bk * ([self.bm, self.bn][operand as usize] + padded) * bits / 8
        };
        Operand::BOTH.into_iter().map(one).sum()
    }

    /// Registers that a thread keeps for a second stage.
    fn prefetched(&self, spec: &GemmSpec) -> i64 {
        let bits = |operand: Operand| [self.bm, self.bn][operand as usize] * i64::from(operand.dtype(spec).bits());
        up((bits(Operand::A) + bits(Operand::B)) * self.bk, 32 * self.threads())
    }

    /// Registers of a thread: an estimate.
    fn registers(&self, spec: &GemmSpec) -> i64 {
        let words = up(i64::from(spec.acc.bits()), 32);
        let operands = 2 * (self.tm + self.tn) * words;
        let prefetched = if self.stages > 1 { self.prefetched(spec) } else { 0 };
        (self.tm * self.tn * words + operands + prefetched + tuning::ADDRESS_REGISTERS).min(255)
    }

    /// Instructions of a thread for a k step: multiply-adds, loads from shared memory, conversions, and its share of the copies.
    fn instructions(&self, spec: &GemmSpec) -> f64 {
        let side = |operand: Operand| {
            let (bits, thread) = (i64::from(operand.dtype(spec).bits()), [self.tm, self.tn][operand as usize]);
            let converted = if operand.dtype(spec) == spec.acc { 0 } else { thread };
            (up(thread * bits, 128) + converted) as f64
        };
        // A copy is a load and a store.
        let copied = 2.0 * self.copies(spec) / self.bk as f64;
        let all = (self.tm * self.tn) as f64 + Operand::BOTH.into_iter().map(side).sum::<f64>() + copied;
        if spec.a.bits() == 4 { tuning::SIMT_NARROW * all } else { all }
    }

    /// Copies of a thread into a stage of shared memory: of vectors, or of elements where these are transposed or not aligned.
    fn copies(&self, spec: &GemmSpec) -> f64 {
        let one = |operand: Operand| {
            let elements = [self.bm, self.bn][operand as usize] * self.bk;
            let aligned = 1 << operand.multiple(spec).trailing_zeros().min(6);
            let wide = if operand.along_k(spec) { 1 } else { self.vector(spec, operand).min(aligned) };
            elements as f64 / (self.threads() * wide) as f64
        };
        Operand::BOTH.into_iter().map(one).sum()
    }
}

/// Bytes that shared memory reads at once, and those of the widest load of a lane.
const WAVEFRONT: i64 = 128;
const VECTOR: i64 = 16;

/// Bytes that a GEMM reads and writes in device memory at least.
pub(in crate::gemm) fn memory_bytes(spec: &GemmSpec) -> f64 {
    let operands: f64 = Operand::BOTH.into_iter().map(|operand| operand_bytes(spec, operand)).sum();
    operands + spec.products() as f64 * spec.m as f64 * spec.n as f64 * f64::from(spec.out.bits()) / 8.0
}

/// Multiply-adds of these accumulators that a multiprocessor does in a cycle.
pub(in crate::gemm) fn multiply_adds(spec: &GemmSpec, device: &Device) -> f64 {
    f64::from(match spec.acc {
        DType::F64 => device.double_lanes,
        dtype if dtype.is_float() => device.lanes,
        _ => device.integer_lanes,
    })
}

/// Tiles no larger than the GEMM, without split-K, with so many terms of a stage at least where k has as many, and so many threads where C has as
/// many elements.
fn tiles(spec: &GemmSpec, least_terms: i64, least_threads: i64) -> impl Iterator<Item = Tiles> {
    let power =
        |extent: i64| extent.min(SIDES[SIDES.len() - 1]).max(1).cast_unsigned().next_power_of_two().cast_signed();
    let [m, n] = [spec.m, spec.n].map(power);
    // Tiles of fewer than 8 rows or columns are for products that have no more.
    let sides = |most: i64| SIDES.into_iter().filter(move |side| *side <= most && *side >= most.min(8));
    let blocks = sides(m).flat_map(move |bm| sides(n).map(move |bn| [bm, bn]));
    let threads = blocks
        .flat_map(|[bm, bn]| THREAD_SIDES.into_iter().flat_map(move |tm| THREAD_SIDES.map(|tn| [bm, bn, tm, tn])));
    let stages = if shares_bytes(spec) { &[1][..] } else { &[2, 1] };
    let most_terms = TERMS.into_iter().filter(|bk| *bk <= spec.k).max().unwrap_or(1);
    let least_terms = most_terms.min(least_terms);
    let parts = 1;
    let all = threads.flat_map(move |[bm, bn, tm, tn]| {
        let terms = TERMS.into_iter().filter(move |bk| (least_terms..=most_terms).contains(bk));
        terms.flat_map(move |bk| stages.iter().map(move |stages| Tiles { bm, bn, bk, tm, tn, stages: *stages, parts }))
    });
    all.filter(move |t| t.is_sound(spec, least_threads.min(m * n)))
}

impl Tiles {
    /// Whether a block has whole warps, a thread its share of the tile and registers for it.
    fn is_sound(&self, spec: &GemmSpec, least_threads: i64) -> bool {
        let Tiles { bm, bn, bk, tm, tn, stages, .. } = *self;
        let divides = tm <= bm && tn <= bn && tm.max(tn) <= 4 * tm.min(tn).min(bm.min(bn));
        divides
            && (least_threads..=MOST_THREADS).contains(&self.threads())
            && tm * tn * i64::from(spec.acc.bits()) < RESULT_BITS
            && (spec.k >= FEW_TERMS || tm * tn <= FEW_RESULTS)
            && (stages == 1 || self.prefetched(spec) <= MOST_PREFETCHED && up(spec.k, bk) > 1)
            && self.copies(spec) <= MOST_COPIES
            // A slice is no larger than what all threads copy of it at once.
            && bk * (bm + bn) >= self.threads()
    }
}
