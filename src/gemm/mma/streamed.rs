//! GEMMs of 4-bit integers with few rows or columns of C: device memory is read once, and its bandwidth limits them.
//!
//! A producer warp fills a ring of stages by TMA, and the other warps unpack what they multiply. 16x28672x8192 NT of s4 takes 31.8 us on an H200 in
//! seven warps of 32 columns, and 37.4 in 896 blocks of a warp that copies its own tiles by cp.async (h200-2026-11-30).

use super::{Epilogue, FragmentBuffers, Mma, Operand, OperandForm, Source, Tma, up};
use crate::gemm::work::{Flight, Work};
use crate::ir::Note;
use crate::schedule::Steps;
use crate::target::{BOX_SIDE, Features, Target};
use crate::te::GemmSpec;

/// Rows or columns of the smaller side of C at most (16 were measured), and what the sides of tiles are a multiple of.
const FEW: i64 = 32;
const STEP: i64 = 16;
/// Warps along the stream, and their rows or columns.
const WARPS: std::ops::RangeInclusive<i64> = 1..=8;
const SIDES: [i64; 3] = [16, 32, 64];
/// Stages at most.
const STAGES: i64 = 8;

impl Mma {
    /// The tiles; none where warps unpack nothing or TMA cannot read the operands as they are.
    pub(super) fn streamed(spec: &GemmSpec, target: &Target) -> Vec<Mma> {
        let unpacks = OperandForm::of(spec, target).contains(&OperandForm::Unpacked);
        let sizes = [spec.m, spec.n];
        let few = usize::from(spec.n < spec.m);
        let side = up(sizes[few], STEP) * STEP;
        if !unpacks || !target.has(Features::TMA) || spec.batch.is_some() || side > FEW {
            return Vec::new();
        }
        let tiles = WARPS.flat_map(|warps| SIDES.map(|of_warp| (warps, of_warp)));
        let tiles = tiles.filter(|(warps, of_warp)| warps * of_warp <= BOX_SIDE);
        let with = |(warps, of_warp): (i64, i64)| {
            let ([mut block, mut number], many) = ([[side; 2], [1; 2]], 1 - few);
            (block[many], number[many]) = (warps * of_warp, warps);
            let plain = Mma::with(spec, target, block, number, 1, OperandForm::Unpacked);
            let direct = plain.routes == [Source::Direct; 2];
            let tma = Some(Tma { warps: 1, cluster: [1, 1], spread: false });
            let tiles = Mma { fragments: FragmentBuffers::Single, epilogue: Epilogue::Direct, tma, ..plain };
            let along_k = Operand::BOTH.into_iter().all(|operand| operand.runs_along_k(spec));
            (direct && along_k).then(|| tiles.with_long_ring(spec, target)).flatten()
        };
        tiles.filter_map(with).collect()
    }

    /// With the largest number of stages that shared memory holds and that divides the number of k iterations, or the largest that it holds
    /// where none of three or more divides it.
    fn with_long_ring(self, spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let iterations = up(spec.k, self.bk);
        let with = |stages| Mma { stages, ..self };
        let fits = |stages: &i64| with(*stages).shared(spec) <= i64::from(target.limits.shared_optin);
        let most = (2..=STAGES.min(iterations.max(2))).rev().find(fits)?;
        let even = (3..=most).rev().find(|stages| iterations % stages == 0);
        let tiles = with(even.unwrap_or(most));
        let tiles = Mma { min_blocks: Some(tiles.resident(spec, target)).filter(|n| *n > 0), ..tiles };
        Some(tiles.with_early_start(spec, target))
    }

    /// Whether a producer streams operands that the warps unpack.
    pub(super) fn is_streamed(&self) -> bool {
        self.tma.is_some() && self.form == OperandForm::Unpacked
    }

    /// Unrolls the k loop by the number of stages where that divides its iterations, so that the stage of each iteration is a constant.
    pub(super) fn unroll_stream(&self, s: &mut Steps, spec: &GemmSpec) {
        if self.is_streamed() && up(spec.k, self.bk) % self.stages == 0 {
            s.annotate("k0", Note::UnrollLimit, self.stages);
        }
    }

    /// What a GEMM asks of the device in streamed tiles, beside the same tiles by cp.async: TMA reaches the bandwidths of L2 and of device memory.
    pub(super) fn stream(&self, work: Work, spec: &GemmSpec) -> Work {
        if !self.is_streamed() {
            return work;
        }
        let bytes = Operand::BOTH.map(|operand| self.tile_bytes(spec, operand)).iter().sum::<i64>();
        Work {
            l2_share: 1.0,
            memory_share: 1.0,
            warps: (self.warps[0] * self.warps[1]) as f64,
            flight: Flight::of((bytes * (self.stages - 1)) as f64),
            ..work
        }
    }
}
