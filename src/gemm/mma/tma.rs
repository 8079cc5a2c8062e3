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

use super::{ClusterLoops, FragmentBuffers, Mma, Operand, OperandForm, epilogue, up};
use crate::gemm::work::{Work, cycles};
use crate::schedule::Steps;
use crate::target::{Features, LANES, Target};
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
/// Schedulers of a multiprocessor, each with its part of the registers.
const SCHEDULERS: i64 = 4;
/// Bytes of shared memory besides tiles: two mbarriers a stage, and what alignment may ask for.
const BARRIERS: i64 = 16;
const ALIGNED: i64 = 1024;
/// The most stages, and of large tiles: a fourth of 48 KB takes 1 % longer at 4096^3 on an H200.
const SLOTS: i64 = 8;
const LARGE_SLOTS: i64 = 3;
/// Elements of C of a large tile, by which a multiprocessor is full.
const LARGE: i64 = 128 * 256;

/// A shape of large tiles.
struct Shape {
    block: [i64; 2],
    warps: [i64; 2],
    fragments: FragmentBuffers,
    sweeps: i64,
    /// Blocks that share a multiprocessor: one multiplies while the other waits, begins or ends.
    blocks: i64,
    /// The share of a multiprocessor's cycles in which its tensor cores are busy, as counted at 8192^3 on an H200; of 128 x 256
    /// as its speed beside that of 128 x 128 has it, which are shared out as evenly.
    busy: f64,
}

/// Large tiles to choose from, started by the block itself, in stages of `SHAPE_BK` terms. Two things decide at full load. How
/// evenly the multiprocessors share the tiles: at 8192^3 four of 132 have 32 of 128 x 128 where the others have 31, and all wait a
/// thirty-second of the time for them, but nearly all have 25 of 80 x 256. And what the tensor cores stand idle for: a lone block
/// for its barriers and its ends (0.646 of cuBLAS with 128 x 256), two of them less (0.663 with 128 x 128), and with larger tiles
/// of warps less still (0.680 to 0.682 with 64 x 80 or 80 x 64, 0.677 with 96 x 64). 0.97 is what they are busy where nothing
/// is loaded at all: 0.704 of cuBLAS, as mma.sync takes six cycles for 16 x 8 x 16 where wgmma takes four.
const SHAPES: [Shape; 5] = [
    Shape { block: [128, 256], warps: [2, 4], fragments: FragmentBuffers::Double, sweeps: 1, blocks: 1, busy: 0.911 },
    Shape { block: [128, 128], warps: [2, 2], fragments: FragmentBuffers::Double, sweeps: 1, blocks: 2, busy: 0.934 },
    Shape { block: [80, 256], warps: [1, 4], fragments: FragmentBuffers::Single, sweeps: 1, blocks: 2, busy: 0.947 },
    Shape { block: [256, 80], warps: [4, 1], fragments: FragmentBuffers::Single, sweeps: 1, blocks: 2, busy: 0.947 },
    Shape { block: [192, 128], warps: [2, 2], fragments: FragmentBuffers::Single, sweeps: 2, blocks: 2, busy: 0.948 },
];
const SHAPE_BK: i64 = 64;

impl Shape {
    /// What a GEMM asks of the device in these tiles: MMAs alone, which keep the tensor cores busy for a share of the cycles.
    fn work(&self, spec: &GemmSpec) -> Work {
        let [bm, bn] = self.block;
        Work {
            mma: (bm * bn) as f64 / self.busy,
            iterations: up(spec.k, SHAPE_BK) as f64,
            tiles: up(spec.m, bm).saturating_mul(up(spec.n, bn)).saturating_mul(spec.products()),
            ..Work::NONE
        }
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

    /// By TMA copies where those are faster, which is for large tiles: of those of [`SHAPES`] that cost least.
    pub(super) fn with_best_tiles(self, spec: &GemmSpec, target: &Target) -> Mma {
        if !self.is_large() {
            return self;
        }
        let device = target.device();
        let fitting = SHAPES
            .iter()
            .filter_map(|shape| Some((cycles(&shape.work(spec), &device), self.shaped(shape, spec, target)?)));
        fitting.min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(self, |(_, m)| m)
    }

    /// Tiles of another shape, in as many stages as leave room for the blocks that share a multiprocessor.
    fn shaped(&self, shape: &Shape, spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let plain = Mma::with(spec, target, shape.block, shape.warps, self.parts, self.form);
        let plain = Mma { fragments: shape.fragments, sweeps: shape.sweeps, ..plain };
        // With other layouts, or with the coordinate of a batch, that many accumulators leave too few registers for addresses.
        let along_k = Operand::BOTH.into_iter().any(|operand| operand.runs_along_k(spec));
        if shape.sweeps > 1 && (along_k || spec.batch.is_some()) {
            return None;
        }
        let limits = &target.limits;
        let room = i64::from(limits.shared_optin)
            .min(i64::from(limits.shared_per_sm) / shape.blocks - i64::from(limits.shared_reserved));
        let tma_stage = plain.with_tma(spec, target, SHAPE_BK, 0, [1, 1], room)?;
        // The shapes are known to need no more registers than a thread has, whatever the estimate says.
        let registers = tma_stage.registers(spec).min(limits.registers_per_thread.into());
        let fits = tma_stage.resident_with(registers, spec, target) >= shape.blocks;
        (tma_stage.is_used(spec) && fits).then_some(tma_stage)
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
