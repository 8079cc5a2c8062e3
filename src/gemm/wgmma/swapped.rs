//! The epilogue of swapped operands: the accumulators are C^T, and stmatrix.trans writes them to shared memory as rows of C.
//!
//! A row of C in shared memory has 64 columns of a warpgroup, or a multiple, as swizzled panels of 128 bytes: 8 rows at the same columns are
//! in different banks, so a part of the tile may have any multiple of 8 rows.

use super::epilogue::STORE_PARTS;
use super::{Interleaved, LINE, ROWS, Source, SwapAb, Wgmma, in_bytes, room, up};
use crate::gemm::staging::present;
use crate::gemm::tuning;
use crate::ir::{Axis, CopyKind, Scope};
use crate::schedule::Steps;
use crate::target::{self, Target};
use crate::te::GemmSpec;

/// Rows of the smallest matrix of stmatrix.trans, and columns of C that a warp has of 64.
const MATRIX: i64 = 8;
const WARP_COLUMNS: i64 = 16;
/// Stages of the ring of a tile of few rows at most.
const STAGES: i64 = 16;
/// Bytes of the mbarriers of a stage.
const MBARRIERS: i64 = 16;
/// Equal parts in which cooperative warpgroups store a tile, as few as leave room for two of them beside the ring.
const SMALL_PARTS: std::ops::RangeInclusive<i64> = 4..=8;

/// Rows of C that warpgroups store at once from a tile of so many: its largest equal parts of whole matrices.
pub(super) fn store_rows(rows: i64, parts: std::ops::RangeInclusive<i64>) -> Option<i64> {
    parts.into_iter().find(|parts| rows % (parts * MATRIX) == 0).map(|parts| rows / parts)
}

impl Wgmma {
    /// The tiles that a kernel for a dynamic number of rows multiplies where there are fewer rows than a tile has: rows of A are columns of
    /// MMAs, of which only as many are loaded and multiplied as there are, rounded up to the rows of a TMA box (pass `bulk`).
    pub(in crate::gemm) fn in_use(&self, spec: &GemmSpec, target: &Target) -> Wgmma {
        let rows = self.block[0];
        if let Some(Interleaved { tiles, rows: of_box, .. }) = self.interleaved {
            return self.of_rows((up(spec.m, tiles * of_box) * of_box).min(rows), spec, target);
        }
        let loads = self.swap_ab == SwapAb::Swapped && self.cluster[1] == 1 && self.routes[0] == Source::Direct;
        match target::piece_rows(rows).filter(|_| loads && spec.m < rows) {
            Some(piece) => self.of_rows(up(spec.m, piece) * piece, spec, target),
            None => *self,
        }
    }

    /// These tiles where only so many rows of A are loaded, and the ring has as many stages of them as there is room for (pass `columns`). The ring of
    /// persistent blocks goes on from tile to tile.
    fn of_rows(&self, rows: i64, spec: &GemmSpec, target: &Target) -> Wgmma {
        let used = Wgmma { block: [rows, self.block[1]], ..*self };
        let ring = self.stage_bytes(spec) * self.stages;
        let free = if self.resident(spec, target) > 1 { 0 } else { (room(target) - self.shared(spec)).max(0) };
        let stages = (ring + free) / (used.stage_bytes(spec) + MBARRIERS);
        let stages = if self.persistent { 0 } else { stages.min(self.k_stages(spec)) };
        Wgmma { stages: stages.max(self.stages), ..used }
    }

    /// Rows of C that a warpgroup stores at once: a part of its tile where the block has another one, or the whole tile.
    pub(super) fn store_rows(&self) -> i64 {
        let rows = self.block[0];
        let part = match (self.pingpong, self.persistent) {
            (true, _) => store_rows(rows, STORE_PARTS),
            (false, true) => store_rows(rows, SMALL_PARTS).or_else(|| store_rows(rows, STORE_PARTS)),
            (false, false) => None,
        };
        part.unwrap_or(rows)
    }

    /// Cycles that tiles of fewer rows than the ring was made for take longer than with the ring that they would have alone, and for each stage what the
    /// other terms do not count, by which stages of a line and of two lines differ.
    pub(in crate::gemm) fn missing_stages(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let behind = if self.producer { 0 } else { self.in_flight };
        let lines = (in_bytes(self.bk, spec) as f64 / LINE as f64).max(1.0);
        let ahead = |stages: i64| (stages - 1 - behind).max(1) as f64 * lines;
        let alone = self.with_slots(spec, target, STAGES).stages.max(self.stages);
        // MMAs hide a part of it.
        let mma = self.work(spec, target).mma / lines;
        let waits = |stages: i64| (tuning::WGMMA_MISSING_LINES / ahead(stages).powi(2)).hypot(mma) - mma;
        self.k_stages(spec) as f64 * (lines * (waits(self.stages) - waits(alone)) + tuning::WGMMA_STAGE)
    }

    /// From accumulators whose rows are columns of C to C.
    pub(super) fn swapped_epilogue(&self, s: &mut Steps, spec: &GemmSpec) {
        let c = self.padding(spec).written();
        let rows = self.store_rows();
        s.cache_write("out", c, Scope::Shared, "C_s").cache_write("out", "C_s", Scope::Fragment, "C_f");
        let of_tile = |tile: &'static str| if self.interleaved.is_some() { tile } else { "" };
        s.reverse_compute_at("out", "jw").made(present([of_tile("et"), "e0", "en"]));
        let at = if rows < self.block[0] { "ep" } else { "jw" };
        if at == "ep" {
            s.split("e0", [rows], ["ep", "e1"]);
        }
        s.reverse_compute_at("C_f", at).made(present([of_tile("ft"), "f0", "f1"]));
        let matrix = if rows % (2 * MATRIX) == 0 { 2 * MATRIX } else { MATRIX };
        let (tall, fo) = if self.tall() > 1 { (Some(ROWS / WARP_COLUMNS), "fo") } else { (None, "") };
        s.split("f0", [matrix], ["fc", "fi"]);
        s.split("f1", tall.into_iter().chain([WARP_COLUMNS]), present([fo, "fw", "fr"]));
        s.reorder(present([fo, "fw", "fc", "fi", "fr"])).bind("fw", Axis::Warp);
        s.tensorize("fi", &format!("stmatrix.trans.m{matrix}n{WARP_COLUMNS}.{}", spec.out)).swizzle("C_s", 128);
        s.reverse_compute_at("C_s", at).made(present([of_tile("st"), "s0", "s1"]));
        self.in_boxes(s, "s0", ["sb", "si"]);
        s.copy_with("C_s", CopyKind::Tma);
        if at == "ep" && self.out_stages > 1 {
            s.pipeline("ep", self.out_stages);
        }
    }
}
