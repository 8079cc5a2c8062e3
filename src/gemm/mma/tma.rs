//! Tiles that TMA loads: one thread starts the boxes of a stage, and no other thread spends issue slots, registers for addresses or power
//! on them.
//!
//! A *producer* is one or more warps that only issue TMA copies: the other warps do not wait for a stage to be free. A scheduler of the
//! chip has a quarter of its registers, so that a ninth warp leaves 168 to each thread, of which tiles of 64 x 64 a warp need
//! over 200. Where that matters the producer is a warpgroup, which gives its registers to the others; chips that cannot move
//! them have no such producer. *Without* one a thread of the block starts the copies behind a barrier, as cp.async has one, and
//! C's tile may take the place of the stages; where two such blocks share a multiprocessor, one multiplies while the other waits.
//!
//! Blocks of a cluster along rows share tiles of B, along columns tiles of A: each is fetched once and lands in all of them.

use super::{ClusterLoops, FragmentBuffers, Mma, Operand, OperandForm, epilogue, tiles, up};
use crate::gemm::tuning;
use crate::gemm::work::{MMA_DEPTH, MMA_ELEMENTS, Work, cycles, further_reads, memory, mma_cycles};
use crate::schedule::Steps;
use crate::target::{Device, Features, LANES, LINE, SCHEDULERS, Target};
use crate::te::GemmSpec;

/// How TMA copies bring the tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tma {
    /// Warps that load and do nothing else: a warp, or a warpgroup that gives up registers; 0 where a thread of the block
    /// starts the copies.
    pub warps: i64,
    /// Blocks of a cluster along rows and along columns of C.
    pub cluster: [i64; 2],
    /// The arrival for a stage and the wait for the next one stand between the products of a step, not in front of one.
    pub spread: bool,
}

/// Warps of a producer that moves registers, and the registers that its threads keep.
const GROUP: i64 = 4;
const KEPT: i64 = 40;
/// Bytes of shared memory besides tiles: two mbarriers a stage, and what alignment may ask for.
const BARRIERS: i64 = 16;
const ALIGNED: i64 = 1024;
/// The most stages, and of large tiles: a fourth of 48 KB takes 1 % longer at 4096^3 on an H200.
const SLOTS: i64 = 8;
const LARGE_SLOTS: i64 = 3;
/// Elements of C of a large tile, by which a multiprocessor is full.
const LARGE: i64 = 128 * 256;

/// Terms of a stage of large tiles.
const LARGE_BK: i64 = 64;
/// Warps of a block of large tiles, and the blocks that share a multiprocessor: one multiplies while the other waits.
const WARPS: [(i64, i64); 2] = [(4, 2), (8, 1)];
/// Sides of a warp's tile, in fragments of 16 rows or columns.
const SIDES: std::ops::RangeInclusive<i64> = 3..=6;
/// Registers that a thread has for accumulators and fragments: with addresses as in other tiles, and where both operands run along
/// rows and columns of C, whose addresses take fewer (192 of accumulators and 28 of fragments do not spill).
const REGISTERS: i64 = 215;
const REGISTERS_TRANSPOSED: i64 = 220;

/// Large tiles of a block, which starts its own copies in stages of [`LARGE_BK`] terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LargeTile {
    block: [i64; 2],
    warps: [i64; 2],
    fragments: FragmentBuffers,
    sweeps: i64,
    /// Blocks that share a multiprocessor.
    blocks: i64,
}

impl LargeTile {
    /// All of them, those first that move fewer bytes, and of two alike the one that stores longer rows of C.
    fn all(spec: &GemmSpec) -> Vec<LargeTile> {
        let sides = || SIDES.flat_map(|m| SIDES.map(move |n| [16 * m, 16 * n]));
        let mut all: Vec<_> = WARPS
            .into_iter()
            .flat_map(|(warps, blocks)| sides().flat_map(move |tile| LargeTile::of(warps, tile, blocks, spec)))
            .filter(|t| t.blocks * t.block[0] * t.block[1] >= LARGE)
            .collect();
        // What a tile moves for an element of C: its sides over its area.
        let bytes = |t: &LargeTile| (t.block[0] + t.block[1]) as f64 / (t.block[0] * t.block[1]) as f64;
        all.sort_by(|a, b| bytes(a).total_cmp(&bytes(b)).then(b.block[1].cmp(&a.block[1])));
        all
    }

    /// So many warps with tiles of this size, where a thread has the registers for them.
    fn of(warps: i64, tile: [i64; 2], blocks: i64, spec: &GemmSpec) -> Vec<LargeTile> {
        let along_k = Operand::BOTH.into_iter().any(|operand| operand.runs_along_k(spec));
        let most = if along_k || spec.batch.is_some() { REGISTERS } else { REGISTERS_TRANSPOSED };
        let accumulators = tile[0] * tile[1] * i64::from(spec.acc.bits()) / 32 / LANES;
        let needed = |sets: i64, sweeps: i64| accumulators + sets * (tile[0] / sweeps + tile[1]) / 4;
        let fits = [(FragmentBuffers::Double, 2, 1), (FragmentBuffers::Single, 1, 1), (FragmentBuffers::Single, 1, 2)]
            .into_iter()
            .find(|(_, sets, sweeps)| tile[0] % (16 * sweeps) == 0 && needed(*sets, *sweeps) <= most);
        let Some((fragments, _, sweeps)) = fits else { return Vec::new() };
        let with =
            |warps: [i64; 2]| LargeTile { block: [0, 1].map(|d| warps[d] * tile[d]), warps, fragments, sweeps, blocks };
        tiles::all_arrangements(warps).map(with).collect()
    }

    /// What a GEMM asks of the device in these tiles: MMAs, bytes from L2, and the barrier of each stage, which blocks that share a multiprocessor
    /// hide for each other.
    fn work(&self, spec: &GemmSpec, device: &Device) -> Work {
        let [bm, bn] = self.block;
        let steps = LARGE_BK * i64::from(spec.a.bits()) / (8 * MMA_DEPTH);
        Work {
            mma: (steps * bm * bn / MMA_ELEMENTS) as f64 * mma_cycles(spec, device) / SCHEDULERS as f64,
            bubble: tuning::MMA_TMA_BUBBLE / self.blocks as f64,
            l2_bytes: Operand::BOTH.into_iter().map(|operand| self.read(spec, operand)).sum(),
            l2_share: tuning::WGMMA_L2_SHARE,
            launch: tuning::MMA_LAUNCH - tuning::EARLY_BEGIN,
            prologue: tuning::WGMMA_PROLOGUE,
            epilogue: (bm * bn) as f64 * f64::from(spec.out.bits()) / 8.0 / tuning::STORE_BYTES,
            iterations: up(spec.k, LARGE_BK) as f64,
            tiles: up(spec.m, bm).saturating_mul(up(spec.n, bn)).saturating_mul(spec.products()),
            resident: self.blocks,
            ..Work::NONE
        }
    }

    /// Bytes that TMA reads in L2 for a stage of an operand. Rows that begin inside lines are read in pieces: bf16 NT 697x15291x14264, whose rows are 16 bytes
    /// off, takes 937 us on an H200 in 64 x 256, and 884 in 128 x 128 by cp.async.
    fn read(&self, spec: &GemmSpec, operand: Operand) -> f64 {
        let row = (operand.multiple(spec) * i64::from(spec.a.bits()) / 8).max(1);
        let aligned = LINE.min(1 << row.trailing_zeros());
        let bytes = self.block[operand as usize] * LARGE_BK * i64::from(spec.a.bits()) / 8;
        bytes as f64 * (1.0 + further_reads(&tuning::UNALIGNED_READS, aligned))
    }
}

impl Tma {
    /// Bytes of shared memory: a producer may fill a stage at any time, so that C's tile has a place of its own beside them.
    pub(super) fn shared(self, ring: i64, rows: i64, stages: i64) -> i64 {
        let tiles = if self.warps > 0 { ring + rows } else { ring.max(rows) };
        tiles + BARRIERS * stages + ALIGNED
    }
}

impl Mma {
    /// The same tiles by TMA copies, in stages of `bk` terms, as many of them as fit: by a producer or not, shared by the blocks of
    /// a cluster. `None` where the chip has no such copies, the recipe none for these types or parts, or where a thread would
    /// have too few registers or a block too little shared memory.
    #[must_use]
    pub fn by_tma(self, spec: &GemmSpec, target: &Target, bk: i64, producer: bool, cluster: [i64; 2]) -> Option<Mma> {
        let warps = if producer { self.producer_warps(spec, target)? } else { 0 };
        self.with_tma(spec, target, bk, warps, cluster, i64::from(target.limits.shared_optin))
    }

    /// By TMA copies that so many warps of their own start, or the block if none, in stages that take so much shared memory at
    /// most.
    fn with_tma(
        self,
        spec: &GemmSpec,
        target: &Target,
        bk: i64,
        warps: i64,
        cluster: [i64; 2],
        room: i64,
    ) -> Option<Mma> {
        let halves = self.form == OperandForm::Stored && spec.a.bits() == 16 && spec.b == spec.a;
        let blocks = cluster[0] * cluster[1];
        let shared = blocks == 1
            || target.has(Features::CLUSTER) && blocks <= i64::from(target.limits.cluster) && spec.batch.is_none();
        let known = halves && self.parts == 1 && self.asynchronous && target.has(Features::TMA) && shared;
        // Rows of boxes are whole panels of 128 bytes, or one that is narrower, in whole steps of k.
        let row = |operand: Operand| 2 * if operand.runs_along_k(spec) { bk } else { self.block[operand as usize] };
        let panels = |operand: Operand| row(operand) % 128 == 0 || [32, 64].contains(&row(operand));
        let fits =
            [32, 64].contains(&bk) && Operand::BOTH.into_iter().all(panels) && self.block.iter().all(|n| *n <= 256);
        // A cluster that reaches far beyond C multiplies zeros.
        let used = (0..2).all(|d| cluster[d] == 1 || up([spec.m, spec.n][d], self.block[d]) >= cluster[d]);
        if !known || !fits || !used {
            return None;
        }
        let epilogue = epilogue::choose(spec, target, [0, 1].map(|d| self.block[d] * cluster[d]), self.parts);
        // Where the block starts the copies, a barrier of all warps separates two stages, which costs less in front
        // of a step than inside it.
        let tma = Some(Tma { warps, cluster, spread: warps > 0 });
        let with = |stages| Mma { bk, stages, epilogue, tma, min_blocks: None, ..self };
        let slots = if self.is_large() { LARGE_SLOTS } else { SLOTS };
        let most = slots.min(up(spec.k, bk).max(2));
        (2..=most).rev().map(with).find(|m| m.shared(spec) <= room)
    }

    /// By TMA copies in the cheapest [`LargeTile`]s, where tiles are large and their MMAs take longer than device memory, and less long than those of
    /// these tiles.
    /// 7937x7185x11 NN of bf16 takes 126 us on an H200 in 96 x 192 by TMA, 71 in 128 x 128 by cp.async (h200-2026-11-29/below.jsonl).
    pub(super) fn with_best_tiles(self, spec: &GemmSpec, target: &Target) -> Mma {
        if !self.is_large() || Operand::BOTH.into_iter().any(|operand| self.copies_pieces(spec, operand)) {
            return self;
        }
        let device = target.device();
        let moved = memory(&self.work(spec, target), &device);
        let fitting = LargeTile::all(spec).into_iter().filter_map(|tile| {
            Some((cycles(&tile.work(spec, &device), &device), self.with_large_tile(tile, spec, target)?))
        });
        let own = cycles(&self.work(spec, target), &device);
        let fitting = fitting.filter(|(cycles, _)| (moved..own).contains(cycles));
        fitting.min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(self, |(_, m)| m)
    }

    /// In this tile, in as many stages as leave room for the blocks that share a multiprocessor.
    fn with_large_tile(&self, tile: LargeTile, spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let LargeTile { block, warps, fragments, sweeps, blocks } = tile;
        let plain = Mma { fragments, sweeps, ..Mma::with(spec, target, block, warps, self.parts, self.form) };
        let limits = &target.limits;
        let room = i64::from(limits.shared_optin)
            .min(i64::from(limits.shared_per_sm) / blocks - i64::from(limits.shared_reserved));
        let tma_stage = plain.with_tma(spec, target, LARGE_BK, 0, [1, 1], room)?;
        // `LargeTile::of` knows the registers better than the estimate for all tiles.
        let registers = tma_stage.registers(spec).min(limits.registers_per_thread.into());
        let fits = tma_stage.resident_with(registers, spec, target) >= blocks;
        (tma_stage.is_used(spec) && fits).then_some(tma_stage)
    }

    /// What a GEMM asks of the device in these tiles, where they are large ones by TMA.
    pub(in crate::gemm) fn tma_work(&self, spec: &GemmSpec, device: &Device) -> Option<Work> {
        let own = |t: &LargeTile| {
            (t.block, t.warps, t.fragments, t.sweeps) == (self.block, self.warps, self.fragments, self.sweeps)
        };
        self.tma.and_then(|_| LargeTile::all(spec).into_iter().find(own)).map(|tile| tile.work(spec, device))
    }

    fn is_large(&self) -> bool {
        self.block[0] * self.block[1] >= LARGE
    }

    /// Warps of a producer that leaves the others the registers they need.
    fn producer_warps(&self, spec: &GemmSpec, target: &Target) -> Option<i64> {
        let (warps, needed) = (self.threads() / LANES, self.registers(spec));
        let all = i64::from(target.limits.registers_per_sm);
        let most = i64::from(target.limits.registers_per_thread);
        let each = |warps: i64| all / SCHEDULERS / LANES / up(warps, SCHEDULERS);
        if needed <= each(warps + 1).min(most) {
            return Some(1);
        }
        let moved = (each(warps + GROUP) / 8 * 8 * (warps + GROUP) - KEPT * GROUP) / warps / 8 * 8;
        let group = target.has(Features::SET_REGISTERS) && warps % GROUP == 0 && needed <= moved.min(most);
        group.then_some(GROUP)
    }

    /// Rows or columns of C that a cluster covers.
    pub(super) fn whole(&self, operand: Operand) -> i64 {
        self.block[operand as usize] * self.tma.map_or(1, |b| b.cluster[operand as usize])
    }

    /// The loops over the blocks of a cluster.
    pub(super) fn cluster(&self) -> ClusterLoops {
        ClusterLoops::new(self.tma.map_or([1, 1], |tma| tma.cluster))
    }

    /// Who loads.
    pub(super) fn producer(&self, s: &mut Steps) {
        let warps = self.tma.map_or(0, |tma| tma.warps);
        if warps > 0 {
            s.specialize(["A_s", "B_s"], "load", warps);
        }
        if warps == GROUP {
            s.registers(KEPT);
        }
    }
}
