//! The operand that k does not run along, through registers: wgmma reads tiles of 32-bit elements from shared memory along k alone, and the
//! operand that gives the rows of the instruction from registers.
//!
//! TMA loads its tile as it lies in memory, and each lane loads the elements of its fragment. Where that operand is B, A and B are swapped
//! (C^T = B^T A^T). Where neither operand lies along k, a separate kernel transposes B.
//!
//! Lane 4 g + t loads row g of the instruction at k = t. Rows of a swizzled tile hold 32 rows of the operand in chunks of four, and chunk c of
//! row k is stored at c XOR k % 8. If rows of the instruction were rows of the operand, the chunks g / 4 of t and of t + 1 would be in the same
//! banks. So rows of the instruction take those of the operand in another order: g / 4 steps by 16, and all 32 lanes read different banks.

use super::{Epilogue, MOST_STAGES, Operand, ROWS, STORE_BYTES, Source, SwapAb, Wgmma, bytes, room};
use crate::gemm::staging::fuse_all;
use crate::ir::{CopyKind, Index, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// Sides of a tile: along the rows of instructions and along their columns.
const SIDES: [[i64; 2]; 4] = [[128, 256], [128, 192], [128, 128], [128, 64]];
/// Warpgroups of a tile: one loads fragments while the other multiplies.
const WARPGROUPS: i64 = 2;
/// Rows of C that leave at once where A and B are swapped.
pub(super) const STORED_ROWS: i64 = 32;
/// Parts of the 64 rows of an instruction, in the order of the operand's rows: their extents and loops. The instruction has them in the order
/// of [`ORDER`].
const PARTS: [(i64, &str); 5] = [(2, "r4"), (2, "r3"), (2, "r2"), (2, "r1"), (4, "r0")];
const ORDER: [&str; 5] = ["r4", "r2", "r1", "r3", "r0"];
/// Bits of the elements that lanes load one by one.
const BITS: u32 = 32;

impl Wgmma {
    /// Whether an operand comes through registers.
    pub(super) fn holds(&self, operand: Operand) -> bool {
        self.rows_in_registers && operand == self.swap_ab.columns().other()
    }

    /// Whether the rows of an operand's tile in shared memory run along k.
    pub(super) fn tile_along_k(&self, spec: &GemmSpec, operand: Operand) -> bool {
        if self.holds(operand) { operand.along_k(spec) } else { super::runs_along_k(operand, spec) }
    }

    /// Extents of the loops over the rows of an instruction.
    pub(super) fn row_factors(&self) -> Vec<i64> {
        if self.rows_in_registers { PARTS.map(|(extent, _)| extent).to_vec() } else { vec![ROWS] }
    }

    /// These loops in the order of the operand's rows.
    pub(super) fn row_loops(&self, row: &'static str) -> Vec<&'static str> {
        if self.rows_in_registers { PARTS.map(|(_, name)| name).to_vec() } else { vec![row] }
    }

    /// These loops in the order of the instruction's rows.
    pub(super) fn row_order(&self, row: &'static str) -> Vec<&'static str> {
        if self.rows_in_registers { ORDER.to_vec() } else { vec![row] }
    }

    /// One loop over the rows of an instruction.
    pub(super) fn fuse_rows(&self, s: &mut Steps, row: &str) {
        if self.rows_in_registers {
            fuse_all(s, &ORDER, row, "rows");
        }
    }

    /// The accumulators, and the operand's fragment, in the order of the instruction's rows; `stored` is the block that takes the accumulators.
    pub(super) fn reorder_rows(&self, s: &mut Steps, spec: &GemmSpec, stored: &str) {
        let accumulators = if stored == "out" { self.padding(spec).converted() } else { stored };
        let row = |i: &Index| {
            let part = |lower: i64, extent: i64| i.clone().floormod(lower * extent).floordiv(lower);
            i.clone().floordiv(32) * 32 + part(8, 2) * 16 + part(4, 2) * 8 + part(16, 2) * 4 + i.clone().floormod(4)
        };
        let fragment = ["A_f", "B_f"][self.swap_ab.columns().other() as usize];
        s.transform_layout(fragment, IndexMap::new(["k", "r"], |[k, r]| vec![k, row(&r)]));
        let of_c = match self.swap_ab {
            SwapAb::Straight => IndexMap::new(["i", "j"], |[i, j]| vec![row(&i), j]),
            SwapAb::Swapped => IndexMap::new(["i", "j"], |[i, j]| vec![i, row(&j)]),
        };
        s.transform_layout(accumulators, of_c);
    }

    /// These tiles among others, by their cycles with the kernels that pack operands.
    pub(super) fn with_register_tiles(mut all: Vec<Wgmma>, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let across = |operand: &Operand| !operand.along_k(spec) && operand.is_aligned(spec);
        let Some(operand) = Operand::BOTH.into_iter().find(across).filter(|_| spec.a.bits() == BITS) else {
            return all;
        };
        for sides in SIDES {
            let Some(w) = Wgmma::through_registers(spec, operand, sides, target) else { continue };
            let cycles = w.cycles_with_packing(spec, target);
            let at = all.iter().position(|other| cycles < other.cycles_with_packing(spec, target));
            all.insert(at.unwrap_or(all.len()), w);
        }
        all
    }

    /// Tiles whose rows of instructions are those of an operand; `None` where they cannot leave by TMA, or have no room.
    fn through_registers(spec: &GemmSpec, operand: Operand, [tall, wide]: [i64; 2], target: &Target) -> Option<Wgmma> {
        let swap_ab = if operand == Operand::A { SwapAb::Straight } else { SwapAb::Swapped };
        let block = if swap_ab.is_swapped() { [wide, tall] } else { [tall, wide] };
        let plain = Wgmma::of(spec, block, WARPGROUPS, target);
        let mut w = Wgmma { swap_ab, rows_in_registers: true, cluster: [1, 1], ..plain };
        w.routes[operand as usize] = Source::Direct;
        let suits = spec.batch.is_none() && w.epilogue == Epilogue::Tma && bytes(spec.out) == 4;
        let w = w.with_slots(spec, target, MOST_STAGES);
        (suits && w.shared(spec) <= room(target)).then_some(w)
    }

    /// What a warpgroup has of the operand in registers: all steps of k of a stage.
    pub(super) fn rows_fragment(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        let [tile, fragment] = [["A_s", "A_f"], ["B_s", "B_f"]][operand as usize];
        s.cache_read(self.accumulators(spec), tile, Scope::Fragment, fragment).compute_at(fragment, "kk");
        s.pipeline("kk", super::in_bytes(self.bk, spec) / super::DEPTH);
    }

    /// From accumulators whose rows are columns of C to C: lanes store single elements to shared memory, some rows of C at a time.
    pub(super) fn wide_swapped_epilogue(&self, s: &mut Steps, spec: &GemmSpec) {
        let padding = self.padding(spec);
        let stored = self.staged_result(s, spec);
        s.reverse_compute_at(stored, "jw").made(["e0", "en"]);
        s.split("e0", [STORED_ROWS], ["ep", "e1"]).reorder(["ep", "e1", "en"]);
        s.swizzle("C_s", self.swizzle.min(STORE_BYTES));
        s.reverse_compute_at("C_s", "ep").made(["s0", "s1"]).copy_with("C_s", CopyKind::Tma);
        if self.out_stages > 1 {
            s.pipeline("ep", self.out_stages);
        }
        padding.crop(s);
        self.reorder_rows(s, spec, stored);
    }
}
