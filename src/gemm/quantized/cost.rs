//! The tiles of quantised weights: which there are, and their [`Work`].

use super::registers::{FromRegisters, PRODUCER_REGISTERS, TERMS};
use super::warps::{ByWarps, MATRIX, SHAPE};
use super::{Quantized, ROWS, Tiles};
use crate::dtype::DType;
use crate::gemm::operand::up;
use crate::gemm::split::{Combine, combining, parts_bytes, sharing_out};
use crate::gemm::tiles::WARPGROUP;
use crate::gemm::tuning;
use crate::gemm::work::{Flight, Placement, Work, mma_cycles, ranked, releases_early};
use crate::target::{BOX_SIDE, Features, LANES, REGISTERS_PER_SM, SCHEDULERS, Target};

/// Rows of X of a tile at most, and what they are a multiple of.
const MOST_ROWS: i64 = 256;
const STEP: i64 = 8;
/// Warpgroups, and instructions of each along the rows of W.
const TALL: [(i64, i64); 3] = [(1, 1), (2, 1), (2, 2)];
/// k extents of a stage.
const DEPTHS: [i64; 3] = [64, 128, 256];
/// Parts of k.
const PARTS: [i64; 4] = [1, 2, 4, 8];
/// Stages of the ring: the least, so that loads run ahead, and the most.
const STAGES: (i64, i64) = (3, 16);
/// Registers of a thread at most, of a multiprocessor, and blocks of a multiprocessor at most.
const MOST_REGISTERS: i64 = 232;
const REGISTERS: i64 = REGISTERS_PER_SM as i64;
const MOST_RESIDENT: i64 = 4;
/// Instructions of a lane to dequantise the weights of a 32-bit register, two halves: LOP3, HFMA2 and HMUL2, a part of the loads and shifts,
/// and of the MMAs with their descriptors. For other types than 4-bit integers a permutation more.
const INSTRUCTIONS: f64 = 4.7;
/// Instructions of a lane for a stage besides these: the barrier, addresses, copies.
const STAGE_INSTRUCTIONS: f64 = 20.0;
/// Cycles of a stage of a lone warpgroup besides its instructions and MMAs: the barrier, loads from shared memory.
const STAGE_LATENCY: f64 = 134.0;
/// Cycles of a stage in which partial sums are complete before they are added, and of each part of k for the blocks of a cluster to meet.
const PROMOTION: f64 = 53.0;
const MEETING_PARTS: f64 = 74.0;
/// Cycles before the first MMA of a block.
const PROLOGUE: f64 = 1020.0;
/// How well engines overlap ([`Work::overlap`]), and the share of the device memory bandwidth that is reached. The MMAs add to the issue slots.
const OVERLAP: f64 = 10.2;
const MEMORY_SHARE: f64 = 0.96;
/// Figures of tiles by mma.sync and TMA; these and those of tiles by wgmma are of a fit to 773 times of 25 products with up to 256 rows of X on H200s
/// (h200-2026-11-30/weights.jsonl): the first candidate reaches 0.968 of the fastest measured one at the geometric mean, 0.825 at least, and
/// 0.964 and 0.861 for eight random products that were drawn afterwards. First the
/// instructions of a warp to dequantise the weights of a register (in its SASS 3.25); cycles of an MMA, in which the warps of its scheduler issue no
/// others. Cycles of a stage of a lone warp: those of its barrier, of each instruction and of each MMA. Cycles before the first MMA of a block.
const WARP_INSTRUCTIONS: f64 = 3.5;
const WARP_MMA_CYCLES: f64 = 7.5;
const WARP_STAGE_LATENCY: f64 = 106.0;
const WARP_INSTRUCTION_LATENCY: f64 = 2.3;
const WARP_MMA_LATENCY: f64 = 5.5;
const WARP_PROLOGUE: f64 = 280.0;
/// Cycles of a block for each slice that it adds up.
const ADDING_SLICE: f64 = 200.0;
/// The same for tiles by cp.async: instructions to dequantise the weights of a register, cycles of a stage, of a step of k for the loads of its
/// operands, and before the first MMA of a block, and the share of the bytes from L2. Estimates.
const COPYING_INSTRUCTIONS: f64 = 3.65;
const COPYING_STAGE_LATENCY: f64 = 200.0;
const COPYING_STEP_LATENCY: f64 = 60.0;
const COPYING_PROLOGUE: f64 = 1500.0;
const COPYING_L2_SHARE: f64 = 32.0 / 61.0;
/// Bytes of C that a multiprocessor stores in a cycle by mma.sync. An estimate.
const WARP_STORE_BYTES: f64 = 32.0;
/// Registers of a thread besides its accumulators.
const WARP_REGISTERS: i64 = 48;
/// Instructions of a lane for a register of weights that promotion saves, and for the two scales of 16 rows of W of a group: loads and conversions.
const SCALING: f64 = 1.0;
const SCALES: i64 = 8;
/// Registers of a thread besides accumulators, partial sums and weights where they are promoted. ptxas takes 63, 72, 90 and 121 for tiles of 8,
/// 16, 32 and 64 rows of X with groups of 128.
const PROMOTED_ADDRESS_REGISTERS: i64 = 30;
/// Rows of X of a tile at most whose partial sums are promoted: as many FFMAs as the multiplications of weights by scales.
const MOST_PROMOTED_ROWS: i64 = 64;
/// Rows of X of a tile by cp.async at most; rows times instructions of a warp along the rows of W by TMA at most, beyond which ptxas spills.
const MOST_WARP_ROWS: i64 = 128;
const MOST_FED_ROWS: i64 = 32;
/// Instructions of a warp along the rows of W, k extents of a stage, and parts of k by cp.async.
const WARP_TALL: [i64; 3] = [1, 2, 4];
const WARP_DEPTHS: [i64; 2] = [128, 64];
const WARP_PARTS: [i64; 6] = [1, 2, 4, 8, 16, 32];
/// Warps of a block by cp.async; by TMA along the rows of W at most, and with slices.
const COPYING_WARPS: i64 = 4;
const MOST_WARPS: i64 = 16;
const MOST_FED_WARPS: i64 = 28;
/// Slices of a block.
const SLICES: [i64; 3] = [1, 2, 4];
/// Stages of a ring by cp.async at most.
const COPYING_STAGES: i64 = 8;
/// Registers of a thread for accumulators and the fragments of a stage at most.
const MOST_WARP_REGISTERS: i64 = 160;

/// Whether TMA can read what there is.
fn suits_tma(q: &Quantized, target: &Target) -> bool {
    let [m, n, k] = q.sizes;
    let bits = |elements: i64, dtype: DType| elements * i64::from(dtype.bits()) % 128 == 0;
    let aligned = bits(k, q.activations) && bits(k, q.weights) && bits(n, q.activations);
    q.is_packed && target.has(Features::TMA) && aligned && m > 0
}

/// Whether the chip has the instructions of tiles by wgmma, and TMA can read what there is.
fn suits(q: &Quantized, target: &Target) -> bool {
    suits_tma(q, target) && target.has(Features::WGMMA)
}

/// Instructions of a lane to dequantise the weights of a register: `plain` of them without permutations, with the multiplication by the scale.
fn converting(q: &Quantized, plain: f64, promoted: bool) -> f64 {
    let permutes = if q.weights.bits() == 4 { 0.0 } else { 1.0 };
    plain + permutes - if promoted { SCALING } else { 0.0 }
}

/// Cycles of the issue slots of a multiprocessor to dequantise so many weights.
fn dequantising(q: &Quantized, weights: i64, plain: f64, promoted: bool) -> f64 {
    let registers = weights as f64 / 2.0 / LANES as f64 / SCHEDULERS as f64;
    registers * converting(q, plain, promoted)
}

/// Instructions of a lane to promote the partial sums of so many groups, each of so many elements and scales.
fn promoting(groups: i64, elements: i64, scales: i64) -> f64 {
    (groups * (elements + scales)) as f64
}

/// Stages that are on their way while one is multiplied, or all of them where the ring holds every iteration.
fn ahead(stages: i64, iterations: i64) -> f64 {
    if stages < iterations { (stages - 1) as f64 } else { stages as f64 }
}

/// Bytes that the product reads and writes in device memory at least.
fn memory_bytes(q: &Quantized) -> f64 {
    let ([m, n, k], spec) = (q.sizes, q.product());
    let bytes = |elements: i64, dtype: DType| elements as f64 * f64::from(dtype.bits()) / 8.0;
    let scales = spec.n * (k / q.group()) * if q.has_zeros { 2 } else { 1 };
    bytes(m * k + m * n + scales, q.activations) + bytes(spec.n * k, q.weights)
}

/// Within this factor of the least cycles the tiles with the least work come first.
const TOLERANCE: f64 = 1.005;

/// The tiles of both recipes with their cycles, the cheapest first.
pub(super) fn tiles(q: &Quantized, target: &Target) -> Vec<(f64, Tiles)> {
    let of_registers = registers(q, target).into_iter().map(|tiles| (tiles.work(q, target), Tiles::Registers(tiles)));
    // Few rows aside, wgmma is faster than tiles by cp.async.
    let copied = if suits(q, target) { Vec::new() } else { copied(q, target) };
    let of_warps = fed(q, target).into_iter().chain(copied);
    let of_warps = of_warps.map(|tiles| (tiles.work(q, target), Tiles::Warps(tiles)));
    ranked(of_registers.chain(of_warps).collect(), TOLERANCE, &target.device())
}

/// The tiles by wgmma.
fn registers(q: &Quantized, target: &Target) -> Vec<FromRegisters> {
    if !suits(q, target) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for rows in rows(q.sizes[0]) {
        for ((warpgroups, tall), bk) in TALL.into_iter().flat_map(|t| DEPTHS.map(|bk| (t, bk))) {
            let divided = PARTS.map(|parts| (parts, 1)).into_iter().chain([(1, 2)]);
            for ((parts, sharing), promoted) in divided.flat_map(|d| [(d, false), (d, true)]) {
                let persistent = FromRegisters {
                    rows,
                    tall,
                    warpgroups,
                    bk,
                    stages: 0,
                    parts,
                    sharing,
                    persistent: true,
                    has_producer: true,
                    resident: 1,
                    releases_early: false,
                    promoted,
                };
                all.extend(persistent.fitted(1, q, target));
                for (has_producer, resident) in (1..=MOST_RESIDENT).flat_map(|n| [(false, n), (true, n)]) {
                    let plain = FromRegisters { persistent: false, has_producer, ..persistent };
                    all.extend(plain.fitted(resident, q, target));
                }
            }
        }
    }
    all
}

/// Tiles by mma.sync that a producer fills by TMA.
fn fed(q: &Quantized, target: &Target) -> Vec<ByWarps> {
    if !suits_tma(q, target) {
        return Vec::new();
    }
    let m = q.sizes[0];
    let rows = if m <= SHAPE[1] { SHAPE[1] } else { up(up(m, up(m, MOST_FED_ROWS)), MATRIX) * MATRIX };
    let mut all = Vec::new();
    for (warps, tall) in (1..=MOST_WARPS).flat_map(|warps| [(warps, 1), (warps, 2)]) {
        for (slices, bk) in SLICES.into_iter().flat_map(|slices| DEPTHS.map(|bk| (slices, bk))) {
            let (parts, stages) = (1, 0);
            let plain = ByWarps {
                rows,
                warps,
                tall,
                slices,
                bk,
                stages,
                parts,
                has_producer: true,
                resident: 1,
                releases_early: false,
                promoted: false,
            };
            for (promoted, resident) in (1..=MOST_RESIDENT).flat_map(|n| [(false, n), (true, n)]) {
                all.extend(ByWarps { promoted, ..plain }.fitted(resident, q, target));
            }
        }
    }
    all
}

/// Tiles by mma.sync that all threads fill by cp.async.
fn copied(q: &Quantized, target: &Target) -> Vec<ByWarps> {
    let bits = |dtype: DType| q.sizes[2] * i64::from(dtype.bits()) % 128 == 0;
    let aligned = bits(q.activations) && bits(q.weights);
    if !q.is_packed || !aligned || !target.has(Features::MMA_AMPERE | Features::CP_ASYNC) {
        return Vec::new();
    }
    let fewest = up(q.sizes[0], MOST_WARP_ROWS);
    let rows = up(up(q.sizes[0], fewest.max(1)), MATRIX) * MATRIX;
    let mut all = Vec::new();
    for (tall, bk) in WARP_TALL.into_iter().flat_map(|tall| WARP_DEPTHS.map(|bk| (tall, bk))) {
        let (warps, slices, stages, has_producer) = (COPYING_WARPS, 1, 0, false);
        let tiles = WARP_PARTS.map(|parts| ByWarps {
            rows,
            warps,
            tall,
            slices,
            bk,
            stages,
            parts,
            has_producer,
            resident: 1,
            releases_early: false,
            promoted: false,
        });
        // A ring has room for two blocks.
        all.extend(tiles.into_iter().filter_map(|tiles| tiles.fitted(2, q, target)));
    }
    all
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
        let tiles = FromRegisters { stages, resident, ..self };
        let many = tiles.tiles(q) > i64::from(target.device().multiprocessors);
        // Blocks that stay load the next tile during the epilogue, which pays where the tensor cores are busy.
        let Work { mma, issue, .. } = tiles.work(q, target);
        let alone = !self.persistent || self.parts == 1 && self.warpgroups > 1 && many && 2.0 * mma > issue;
        let small = self.registers(q) <= MOST_REGISTERS && resident * self.block_registers(q) <= REGISTERS;
        // Two of the shortest stages are enough where the MMAs of one take longer than loads are on their way.
        let shortest = DEPTHS.into_iter().find(|bk| q.suits_stage(*bk)) == Some(self.bk);
        let loaded = shortest && stages > 1 && mma > f64::from(target.device().memory_latency_cycles);
        let long = loaded || stages >= STAGES.0.min(iterations);
        // Blocks that share wait for each other at each stage, which a producer does for them.
        let shares = self.sharing == 1 || self.has_producer;
        // One warpgroup has as many threads as would load, and parts meet in clusters without one.
        let loads = !self.has_producer || self.persistent || self.warpgroups > 1 && self.parts == 1;
        let promotes = !self.promoted
            || self.parts == 1 && self.rows <= MOST_PROMOTED_ROWS && q.promotes(q.partial_terms(self.bk));
        let blocks = Placement {
            blocks: tiles.tiles(q),
            resident: tiles.resident(q, target),
            cluster: self.parts.max(self.sharing),
            packs: false,
        };
        let tiles =
            FromRegisters { releases_early: !self.persistent && releases_early(blocks, &target.device()), ..tiles };
        let suits = divides && q.suits_stage(self.bk) && loads && promotes;
        (suits && small && alone && long && shares && self.adds_up()).then_some(tiles)
    }

    /// Blocks that a multiprocessor has at a time.
    fn resident(&self, q: &Quantized, target: &Target) -> i64 {
        // Blocks with roles get the registers of as many as share a multiprocessor, and no more of them fit.
        if self.has_producer {
            return self.resident;
        }
        let room = i64::from(target.limits.shared_optin);
        (room / self.shared(q)).min(REGISTERS / self.block_registers(q)).clamp(1, MOST_RESIDENT)
    }

    /// Registers of a thread for accumulators, the fragments of a stage and addresses. Of weights a lane has words and halves.
    fn registers(&self, q: &Quantized) -> i64 {
        let accumulators = self.tall * self.rows / 2;
        if self.promoted {
            // Those of 64 rows of W have partial sums at a time, and a group has its weights.
            return accumulators
                + self.rows / 2
                + self.tall * q.partial_terms(self.bk) / 4
                + PROMOTED_ADDRESS_REGISTERS;
        }
        accumulators + self.tall * self.bk / 4 * 3 / 2 + tuning::ADDRESS_REGISTERS
    }

    /// Registers of a block.
    fn block_registers(&self, q: &Quantized) -> i64 {
        let loading = if self.has_producer { PRODUCER_REGISTERS } else { 0 };
        WARPGROUP * (self.warpgroups * self.registers(q) + loading)
    }

    fn tiles(&self, q: &Quantized) -> i64 {
        let [m, n, _] = q.sizes;
        up(m, self.rows) * up(n, self.weights()) * self.parts
    }

    fn stage_bytes(&self, q: &Quantized) -> [i64; 2] {
        q.stage_bytes([self.rows, self.weights(), self.bk])
    }

    /// Bytes of shared memory of a block.
    fn shared(&self, q: &Quantized) -> i64 {
        let ring = self.stage_bytes(q).iter().sum::<i64>() * self.stages;
        let stages = if self.stored_rows() < self.rows { 2 } else { 1 };
        let out = if self.parts == 1 { self.stored_rows() * self.weights() * 2 * stages } else { 0 };
        let parts = if self.parts > 1 { parts_bytes([self.rows, self.weights()], self.parts) } else { 0 };
        // Without a producer, which may fill the ring at any time, C is staged in its memory.
        let staged = if self.has_producer { ring + out } else { ring.max(out) };
        staged + parts + 16 * self.stages + 2048
    }

    /// What the product asks of the device in these tiles.
    fn work(&self, q: &Quantized, target: &Target) -> Work {
        let ([_, _, k], device) = (q.sizes, target.device());
        let rate = device.operations_per_clock(q.activations, DType::F32).unwrap_or(f64::INFINITY);
        let [x, p] = self.stage_bytes(q).map(|b| b as f64);
        let (weights, bk) = (self.weights() as f64, self.bk as f64);
        let own = self.warpgroups as f64;
        let promoting = match self.promoted {
            true => promoting(self.bk / q.partial_terms(self.bk), self.tall * self.rows / 2, self.tall * SCALES),
            false => 0.0,
        };
        let ordinary = dequantising(q, self.weights() * self.bk, INSTRUCTIONS, self.promoted)
            + own * (STAGE_INSTRUCTIONS + promoting);
        let mma = 2.0 * self.rows as f64 * weights * bk / rate;
        let instructions = self.tall as f64 * (bk / TERMS as f64) * 32.0;
        let stage = STAGE_LATENCY + if self.promoted { PROMOTION } else { 0.0 };
        // Warpgroups that meet in each stage dequantise at the same time.
        let apart = if self.has_producer { own } else { 1.0 };
        Work {
            mma,
            issue: ordinary + mma,
            latency: stage + ordinary / apart + (mma / apart).max(instructions),
            shared_bytes: x * (weights / ROWS as f64 + 1.0) + 2.0 * p,
            l2_bytes: x / self.sharing as f64 + p,
            overlap: OVERLAP,
            memory_share: MEMORY_SHARE,
            iterations: (k / self.bk / self.parts) as f64,
            launch: f64::from(device.launch_cycles),
            prologue: PROLOGUE,
            epilogue: match self.parts {
                1 => 2.0 * self.rows as f64 * weights / tuning::PACKED_STORE_BYTES,
                parts => sharing_out([self.rows, self.weights()], parts) + MEETING_PARTS * parts as f64,
            },
            tiles: self.tiles(q),
            resident: self.resident(q, target),
            cluster: self.parts.max(self.sharing),
            memory_bytes: memory_bytes(q),
            flight: Flight::of(ahead(self.stages, k / self.bk / self.parts) * (x + p)),
            ..Work::NONE
        }
    }
}

impl ByWarps {
    /// With as many stages as there is room for so many blocks; `None` where the recipe has no such tiles.
    fn fitted(self, resident: i64, q: &Quantized, target: &Target) -> Option<ByWarps> {
        let ([_, n, k], stage) = (q.sizes, self.bk * self.slices);
        let divides = up(n, ROWS) * ROWS % self.weights() == 0 && k % (stage * self.parts) == 0;
        let suits =
            q.suits_stage(self.bk) && q.suits_stage(stage) && (!self.has_producer || self.weights() <= BOX_SIDE);
        if !divides || !suits {
            return None;
        }
        let room = i64::from(target.limits.shared_optin) / resident;
        let most = if self.has_producer { STAGES.1 } else { COPYING_STAGES };
        let fits = |stages: &i64| ByWarps { stages: *stages, ..self }.shared(q) <= room;
        let iterations = self.iterations(q);
        let stages = (1..=most.min(iterations).max(1)).rev().find(fits)?;
        // Slots are constants where the stages divide the iterations.
        let even = (STAGES.0 + 1..=stages).rev().find(|stages| self.has_producer && iterations % stages == 0);
        let tiles = ByWarps { stages: even.unwrap_or(stages), ..self };
        let placement =
            Placement { blocks: tiles.tiles(q), resident: tiles.resident(q, target), cluster: 1, packs: false };
        let releases_early = self.has_producer && releases_early(placement, &target.device());
        let accumulators = self.tall * self.rows / 2;
        let small = match self.has_producer {
            true => self.rows * self.tall <= MOST_FED_ROWS && self.warps * self.slices <= MOST_FED_WARPS,
            false => accumulators + self.tall * self.bk / 8 * 5 <= MOST_WARP_REGISTERS,
        };
        let few = self.parts == 1 || self.tiles(q) <= 4 * i64::from(target.device().multiprocessors);
        let long = !self.has_producer || tiles.stages >= STAGES.0.min(iterations);
        let promotes = !self.promoted || q.promotes(q.partial_terms(self.bk));
        let resident = tiles.resident(q, target);
        let small = small && tiles.block_threads() * tiles.registers() <= REGISTERS;
        (small && few && long && promotes).then_some(ByWarps { resident, releases_early, ..tiles })
    }

    fn stage_bytes(&self, q: &Quantized) -> [i64; 2] {
        q.stage_bytes([self.rows, self.weights(), self.bk * self.slices])
    }

    fn tiles(&self, q: &Quantized) -> i64 {
        up(q.sizes[0], self.rows) * up(q.sizes[1], self.weights()) * self.parts
    }

    /// Bytes of shared memory of a block.
    fn shared(&self, q: &Quantized) -> i64 {
        let ring = self.stage_bytes(q).iter().sum::<i64>() * self.stages;
        if !self.has_producer {
            return ring;
        }
        let slices = if self.slices > 1 { 4 * self.slices * self.rows * self.weights() } else { 0 };
        ring + slices + 16 * self.stages + 2048
    }

    /// Blocks that a multiprocessor has at a time.
    fn resident(&self, q: &Quantized, target: &Target) -> i64 {
        let by_shared = i64::from(target.limits.shared_optin) / self.shared(q).max(1);
        let by_registers = REGISTERS / (self.block_threads() * self.registers());
        by_shared.min(by_registers).clamp(1, MOST_RESIDENT)
    }

    /// Registers of a thread.
    fn registers(&self) -> i64 {
        // The loop over the stages of TMA has an iteration's fragments in registers, that of cp.async those of several.
        let fragments = if self.has_producer { 0 } else { self.tall * self.bk / 8 * 5 };
        let sums = self.tall * self.rows / 2 * if self.promoted { 2 } else { 1 };
        WARP_REGISTERS + sums + fragments
    }

    /// What the product asks of the device in these tiles.
    fn work(&self, q: &Quantized, target: &Target) -> Work {
        let (device, spec) = (target.device(), q.product());
        let [weights, rows, terms] = SHAPE;
        let bk = self.bk * self.slices;
        let mmas = (self.tall * self.rows / rows * self.bk / terms) as f64;
        let own = (self.warps * self.slices) as f64 / SCHEDULERS as f64;
        let mma = own * mmas * mma_cycles(&spec, &device);
        let [x, p] = self.stage_bytes(q).map(|b| b as f64);
        let (stored, stage) = ((self.rows * self.weights()) as f64, x + p);
        let steps = (self.bk / terms) as f64;
        let common = Work {
            mma,
            shared_bytes: 2.0 * stage + x * (self.warps - 1) as f64,
            iterations: self.iterations(q) as f64,
            epilogue: 2.0 * stored / WARP_STORE_BYTES
                + if self.slices > 1 { ADDING_SLICE * self.slices as f64 } else { 0.0 },
            tiles: self.tiles(q),
            resident: self.resident(q, target),
            memory_bytes: memory_bytes(q),
            passes: combining(&spec, self.parts, Combine::Kernel),
            ..Work::NONE
        };
        if !self.has_producer {
            let issue = dequantising(q, self.weights() * bk, COPYING_INSTRUCTIONS, false);
            let issues = issue + own * mmas;
            return Work {
                issue: issues,
                latency: COPYING_STAGE_LATENCY + COPYING_STEP_LATENCY * steps + issue + mma,
                l2_bytes: stage,
                l2_share: COPYING_L2_SHARE,
                prologue: COPYING_PROLOGUE,
                flight: Flight::of(ahead(self.stages, self.iterations(q)) * stage),
                ..common
            };
        }
        let registers = (self.tall * weights * self.bk / 2 / LANES) as f64;
        let loads = steps * (self.rows as f64 / MATRIX as f64);
        let promoting = match self.promoted {
            true => promoting(self.bk / q.partial_terms(self.bk), self.tall * self.rows / 2, self.tall * SCALES),
            false => 0.0,
        };
        let instructions = registers * converting(q, WARP_INSTRUCTIONS, self.promoted) + loads + promoting;
        // TMA reads no rows beyond the end of X.
        let read = x * (q.sizes[0] as f64 / self.rows as f64).min(1.0) + p;
        Work {
            mma: 0.0,
            issue: own * (instructions + mmas * WARP_MMA_CYCLES),
            latency: WARP_STAGE_LATENCY + instructions * WARP_INSTRUCTION_LATENCY + mmas * WARP_MMA_LATENCY,
            warps: (self.warps * self.slices) as f64,
            l2_bytes: read,
            overlap: OVERLAP,
            memory_share: MEMORY_SHARE,
            launch: f64::from(device.launch_cycles),
            prologue: WARP_PROLOGUE,
            flight: Flight::of(ahead(self.stages, self.iterations(q)) * read),
            ..common
        }
    }
}
