//! From the accumulators of warpgroups to C: by TMA through shared memory, some columns at a time, or from threads.

use super::{Accumulators, CHUNK, Epilogue, STORE_BYTES, SwapAb, Wgmma, bytes};
use crate::gemm::epilogue::store_rows;
use crate::gemm::split::{ClusterTile, Combine, PITCH_OF_ELEMENTS, PITCH_OF_PAIRS, combine_parts};
use crate::gemm::staging::present;
use crate::ir::{Axis, CopyKind, Scope};
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// Equal parts in which warpgroups store a tile. Fewer parts take shared memory from the ring; each part waits for the
/// TMA store of the part before.
pub(super) const STORE_PARTS: std::ops::RangeInclusive<i64> = 2..=8;

impl Wgmma {
    /// Whether TMA stores C.
    pub(super) fn stores_by_tma(&self) -> bool {
        self.epilogue == Epilogue::Tma
    }

    /// From the accumulators to C.
    pub(super) fn epilogue(&self, s: &mut Steps, spec: &GemmSpec) {
        let (padding, converts) = (self.padding(spec), Accumulators::of(spec).converts());
        if self.parts > 1 {
            let shared = ClusterTile {
                tile: self.block,
                parts: self.parts,
                threads: 128 * self.warpgroups,
                pitch: if self.swap_ab.is_swapped() { PITCH_OF_ELEMENTS } else { PITCH_OF_PAIRS },
                is_staged: self.stages_parts(),
            };
            shared.keep(s, self.warpgroup_loop());
            return match self.combine {
                Combine::Cluster => shared.combine(s, Accumulators::of(spec), &padding),
                Combine::Kernel => combine_parts(s, Accumulators::of(spec), &padding, self.parts),
            };
        }
        let from_registers = !self.stores_by_tma() && !padding.pads_result();
        // stmatrix has elements of 16 bits; swapped operands have such results alone.
        let in_pairs = (bytes(spec.out) != 2 || self.rows_in_registers) && !from_registers;
        if self.rows_in_registers && self.swap_ab.is_swapped() && !from_registers {
            return self.wide_swapped_epilogue(s, spec);
        }
        if in_pairs || !converts && from_registers {
            return self.wide_epilogue(s, spec);
        }
        if converts {
            s.set_scope(padding.converted(), Scope::Fragment);
        }
        if from_registers {
            s.reverse_compute_at("out", self.warpgroup_loop());
            if self.rows_in_registers {
                self.reorder_rows(s, spec, "out");
            }
            return;
        }
        match self.swap_ab {
            SwapAb::Straight => self.staged_epilogue(s, spec, converts),
            SwapAb::Swapped => self.swapped_epilogue(s, spec),
        }
        padding.crop(s);
    }

    /// From accumulators to C through shared memory, some columns at a time.
    fn staged_epilogue(&self, s: &mut Steps, spec: &GemmSpec, converts: bool) {
        let c = self.padding(spec).written();
        let store_columns = self.store_columns(spec);
        // Whole panels are swizzled; what is wider lies as it is, 8 columns at a time.
        let panels = store_columns * bytes(spec.out) == STORE_BYTES;
        let matrix = if panels { 16 } else { 8 };
        if converts {
            s.cache_write("out", c, Scope::Shared, "C_s").cache_write("out", "C_s", Scope::Fragment, "C_f");
            s.reverse_compute_at("out", "iw").made(["e0", "en"]);
            s.split("en", [store_columns], ["ep", "e1"]).reorder(["ep", "e0", "e1"]);
            s.reverse_compute_at("C_f", "ep").made(["f0", "f1"]);
        } else {
            // Accumulators that are C's own leave their registers as they are.
            s.cache_write("C", c, Scope::Shared, "C_s").cache_write("C", "C_s", Scope::Fragment, "C_f");
            s.reverse_compute_at("C_f", "iw").made(["f0", "fj"]);
            s.split("fj", [store_columns], ["ep", "f1"]).reorder(["ep", "f0", "f1"]);
        }
        let (tall, fo) = if self.tall() > 1 { (Some(4), "fo") } else { (None, "") };
        s.split("f0", tall.into_iter().chain([16]), present([fo, "fw", "fr"])).split("f1", [matrix], ["fc", "fi"]);
        s.reorder(present([fo, "fw", "fc", "fr", "fi"])).bind("fw", Axis::Warp);
        s.tensorize("fr", &format!("stmatrix.m16n{matrix}.{}", spec.out));
        if self.swizzle > 0 && panels {
            s.swizzle("C_s", self.swizzle.min(STORE_BYTES));
        }
        // A warp's own rows are stages of `ep` only with what was converted.
        self.store_tile(s, spec, if self.stores_by_warp() && converts { "fw" } else { "ep" });
    }

    /// Columns of C of one TMA store: a panel, or a whole tile that panels do not divide, if its rows in shared memory are an odd number of
    /// chunks of 16 bytes apart, which meets no bank twice. Else half of the tile, or in ping-pong an equal part with such rows.
    pub(super) fn store_columns(&self, spec: &GemmSpec) -> i64 {
        let columns = self.block[1];
        store_columns(columns, bytes(spec.out), self.pingpong).unwrap_or(columns / 2)
    }

    /// Stages of the epilogue's ring: the least number from 2 on that divides the parts in which a tile is stored. Each part then uses the
    /// same stage for every tile. f16 NT 8192x8192x256 on an H100: tiles of 128 x 192 (three parts) take 81.2 us with two stages and 66.5 with
    /// three, tiles of 128 x 256 (four parts) 63.9 with two and 83.5 with three (no record was kept).
    pub(super) fn store_stages(&self, spec: &GemmSpec) -> i64 {
        let parts = match self.swap_ab {
            SwapAb::Straight => self.block[1] / self.store_columns(spec),
            SwapAb::Swapped => self.block[0] / self.store_rows(),
        };
        (2..=parts).find(|stages| parts % stages == 0).unwrap_or(1)
    }

    /// From a tile of C in shared memory to C: what the loop `at` stages leaves at once.
    pub(super) fn store_tile(&self, s: &mut Steps, spec: &GemmSpec, at: &str) {
        if !self.stores_by_tma() {
            // TMA cannot store unaligned rows of C: the threads store the tile in vectors that the rows are aligned to.
            store_rows(s, spec, "tile", "", 128 * self.warpgroups);
            return;
        }
        s.reverse_compute_at("C_s", at).made(["s0", "s1"]).copy_with("C_s", CopyKind::Tma);
        if self.out_stages > 1 {
            s.pipeline("ep", self.out_stages);
        }
    }
}

/// Columns of a tile whose rows in shared memory meet no bank twice: a panel, or an odd number of chunks, which in ping-pong are equal parts of
/// the tile. A chunk is what four lanes store beside each other: eight columns, of 16 bytes where stmatrix stores 16-bit results.
pub(super) fn store_columns(columns: i64, bytes: i64, pingpong: bool) -> Option<i64> {
    let panel = STORE_BYTES / bytes;
    let chunk = if pingpong { CHUNK.max(8 * bytes) } else { CHUNK };
    let odd = |parts: &i64| columns % parts == 0 && (columns / parts * bytes) % (2 * chunk) == chunk;
    // Wider results would take the room of a stage of the ring.
    let narrow = |parts: &i64| odd(parts) && (bytes <= 2 || columns / parts <= panel);
    match columns % panel {
        0 => Some(panel),
        _ if columns < panel => Some(columns),
        _ if pingpong => STORE_PARTS.into_iter().find(narrow).map(|parts| columns / parts),
        _ => odd(&1).then_some(columns),
    }
}
