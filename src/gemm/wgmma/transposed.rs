//! The operand that gives the columns of instructions, transposed in shared memory: TMA loads its tile of bytes across k as it lies, and warps of a role of
//! their own make a tile along k of it, which wgmma reads. No kernel transposes the operand before.
//!
//! ldmatrix.trans gives a lane pairs of terms of two neighbouring columns, a byte permutation puts them in order, and stmatrix stores them. The
//! columns of a tile along k are in the order of [`COLUMNS`], by which each stmatrix stores to different banks; the accumulators have that order, too.
//! Its terms are in the order of [`TERMS`], by which each ldmatrix loads from different banks; the operand that comes through registers has that
//! order, too.

use super::{DEPTH, Epilogue, Operand, Source, Wgmma, elements, in_bytes, room, runs_along_k};
use crate::gemm::order::{COLUMNS, Dimension, TERMS, TILE_TERMS};
use crate::gemm::staging::STAGED;
use crate::gemm::tuning;
use crate::ir::{Axis, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// Sides of a tile, along the rows of instructions and along their columns, and its warpgroups. A stage of 256 x 128 is transposed for as many MMAs as one of 128 x
/// 256, and has half of the bytes to transpose.
const SIDES: [([i64; 2], i64); 5] =
    [([256, 128], 2), ([128, 256], 2), ([128, 192], 2), ([128, 128], 2), ([128, 64], 2)];
/// Bytes along k of a stage where fewer than three longer ones have room. 4096^3 of s8 takes 122.5 us on an H200 in three stages of 128, 133.6 in seven of 64.
const SHORT_STAGE: i64 = 64;
/// The most stages: a power of two, by which counters of stages wrap around at no cost.
const MOST_TRANSPOSED_STAGES: i64 = 4;
/// Columns that a warp transposes at a time.
const MATRIX: i64 = 16;
/// Warps that transpose a tile. Four leave a thread 128 registers instead of 168: too few for more accumulators than `FEW_ACCUMULATORS`.
const WARPS: [i64; 3] = [4, 3, 2];
const FEW_ACCUMULATORS: i64 = 96;

impl Wgmma {
    /// Whether an operand's tile is transposed in shared memory, where the other operand comes through registers.
    pub(super) fn transposes_tile(&self, spec: &GemmSpec, operand: Operand) -> bool {
        let direct = self.routes[operand as usize] == Source::Direct;
        direct
            && self.rows_in_registers
            && !self.holds(operand)
            && runs_along_k(operand, spec)
            && !operand.along_k(spec)
    }

    /// The operand whose tile is.
    pub(super) fn transposed_operand(&self, spec: &GemmSpec) -> Option<Operand> {
        Operand::BOTH.into_iter().find(|operand| self.transposes_tile(spec, *operand))
    }

    /// Tiles with an operand through registers and the other one transposed.
    pub(super) fn transposing_tiles(spec: &GemmSpec, operand: Operand, target: &Target) -> Vec<Wgmma> {
        if spec.a.bits() != 8 || Operand::BOTH.into_iter().any(|o| o.along_k(spec) || !o.is_aligned(spec)) {
            return Vec::new();
        }
        let all = SIDES.into_iter().filter_map(|tile| Wgmma::through_registers(spec, operand, tile, target));
        all.filter_map(|w| w.with_transposed_columns(spec, target)).collect()
    }

    /// The same tiles with the operand of columns transposed instead of packed; `None` where they have no room. Lanes hold four columns of C, or pairs of
    /// them where A and B are swapped, that follow each other, so whole tiles leave registers without a way through shared memory.
    fn with_transposed_columns(self, spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        let mut w = Wgmma { producer: true, ..self };
        w.routes[self.swap_ab.columns() as usize] = Source::Direct;
        if !w.grows(spec) {
            w = Wgmma { epilogue: Epilogue::Direct, ..w };
        }
        let forms = [(self.bk, w.out_stages), (self.bk, 1), (self.bk.min(SHORT_STAGE), w.out_stages)];
        let mut all = forms
            .into_iter()
            .map(|(bk, out_stages)| Wgmma { bk, out_stages, ..w }.with_slots(spec, target, MOST_TRANSPOSED_STAGES));
        all.find(|w| w.transposing_warps().is_some() && w.stages > 2 && w.shared(spec) <= room(target))
    }

    /// Columns of an instruction.
    fn wide(&self) -> i64 {
        self.block[1 - self.swap_ab.rows()]
    }

    /// Warps that transpose tiles.
    pub(super) fn transposing_warps(&self) -> Option<i64> {
        let many = self.tall() * self.wide() / 2 > FEW_ACCUMULATORS;
        WARPS.into_iter().find(|warps| self.wide() % (warps * MATRIX) == 0 && !(many && *warps == WARPS[0]))
    }

    /// Cycles in which the warps transpose a stage, 0 where they transpose none.
    pub(super) fn transposing(&self, spec: &GemmSpec) -> f64 {
        let matrices = self.transposed_bytes(spec) / (MATRIX * DEPTH);
        matrices as f64 / self.transposing_warps().unwrap_or(1) as f64 * tuning::TRANSPOSING_CYCLES
    }

    /// The columns of an instruction.
    pub(super) fn columns(&self, spec: &GemmSpec, name: &'static str) -> Dimension {
        Dimension::of(name, self.wide(), self.transposed_operand(spec).map(|_| &COLUMNS))
    }

    /// The terms of an instruction.
    pub(super) fn terms(&self, spec: &GemmSpec, name: &'static str) -> Dimension {
        Dimension::of(name, elements(DEPTH, spec), self.transposed_operand(spec).map(|_| &TERMS))
    }

    /// The buffer that TMA loads an operand's tile into.
    pub(super) fn loaded(&self, spec: &GemmSpec, operand: Operand) -> &'static str {
        match self.transposes_tile(spec, operand) {
            true => ["A_across", "B_across"][operand as usize],
            false => STAGED[operand as usize],
        }
    }

    /// The tile along k, of the one that TMA loaded.
    pub(super) fn transpose_tile(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        let [tile, taken, ordered] = [["A_s", "A_t", "A_f"], ["B_s", "B_t", "B_f"]][operand as usize];
        let (across, dtype) = (self.loaded(spec, operand), operand.dtype(spec));
        let warps = self.transposing_warps().unwrap_or(1);
        let in_order = || IndexMap::new(["k", "w"], |[k, w]| vec![COLUMNS.place(&w), TERMS.place(&k)]);
        let terms = Dimension::of("wt", DEPTH, Some(&TILE_TERMS));
        s.cache_read(self.accumulators(spec), across, Scope::Shared, tile).made([tile, "w0", "w1"]);
        s.split("w1", [self.wide() / MATRIX / warps, MATRIX / 2, 2], ["ww", "wm", "wp", "wr"]);
        s.split("w0", terms.factors.iter().copied(), std::iter::once("wk").chain(terms.loops.iter().copied()));
        s.reorder(["ww", "wm", "wk", "wr", "wp"].into_iter().chain(terms.order.iter().copied()));
        s.bind("ww", Axis::Warp).fuse(["wr", "wp"], "wi");
        terms.fuse(s, "terms");
        s.transform_layout(tile, in_order()).swizzle(tile, in_bytes(self.bk, spec).min(self.swizzle));
        // All loads of a stage come before its stores, which they would wait for.
        s.cache_read(tile, across, Scope::Fragment, taken);
        s.cache_read(tile, taken, Scope::Fragment, ordered).compute_at(ordered, "wk");
        s.compute_at(taken, "ww").made(["y0", "y1"]);
        s.split("y0", [DEPTH], ["yk", "yt"]).split("y1", [MATRIX], ["ym", "yi"]).reorder(["ym", "yk", "yt", "yi"]);
        s.tensorize("yt", &format!("ldmatrix.trans.m32n16.{dtype}"));
        s.transform_layout(ordered, in_order()).tensorize("wi", &format!("stmatrix.m16n32.{dtype}"));
    }

    /// Warps of their own load and transpose.
    pub(super) fn specialize_transposing(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        s.specialize(Operand::BOTH.map(|o| self.loaded(spec, o)), "load", 1);
        s.specialize([STAGED[operand as usize]], "transpose", self.transposing_warps().unwrap_or(1));
    }

    /// Bytes of a stage that are transposed.
    pub(super) fn transposed_bytes(&self, spec: &GemmSpec) -> i64 {
        self.transposed_operand(spec).map_or(0, |_| in_bytes(self.wide() * self.bk, spec))
    }
}
