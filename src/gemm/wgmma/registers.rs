//! The operand that k does not run along, through registers: wgmma reads tiles of 32-bit elements and of bytes from shared memory along k alone, and
//! the operand that gives the rows of the instruction from registers.
//!
//! TMA loads its tile as it lies in memory, and each lane loads the elements of its fragment. Where that operand is B, A and B are swapped
//! (C^T = B^T A^T). Where neither operand lies along k, a separate kernel transposes B.
//!
//! Of 32-bit elements lane 4 g + t loads row g of the instruction at k = t. Rows of a swizzled tile hold 32 rows of the operand in chunks of four, and
//! chunk c of row k is stored at c XOR k % 8. If rows of the instruction were rows of the operand, the chunks g / 4 of t and of t + 1 would be in the
//! same banks. So rows of the instruction take those of the operand in another order: g / 4 steps by 16, and all 32 lanes read different banks.
//!
//! Of bytes ldmatrix.trans gives lane 4 g + t rows 2 g and 2 g + 1 of the operand at k = 4 t to 4 t + 3, and a byte permutation makes rows g and g + 8 of
//! the instruction of them. Rows k and k + 8 of a matrix are in the same banks, so each load takes twice as long as it might.

use super::{DEPTH, Epilogue, MOST_STAGES, Operand, ROWS, STORE_BYTES, Source, SwapAb, Wgmma, bytes, room};
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
/// In which order an instruction has the rows of the operand, 64 by 64: parts of them, in the order of the operand's rows, their extents and
/// loops; and the loops in the order of the instruction's rows. The first part is the first of both.
struct RowOrder {
    parts: &'static [(i64, &'static str)],
    order: &'static [&'static str],
}

/// Of elements of 32 bits, which lanes load one by one.
const WORDS: RowOrder = RowOrder {
    parts: &[(2, "r4"), (2, "r3"), (2, "r2"), (2, "r1"), (4, "r0")],
    order: &["r4", "r2", "r1", "r3", "r0"],
};

/// Of bytes, of which ldmatrix gives a lane two rows that follow each other: rows g and g + 8 of an instruction.
const BYTES: RowOrder = RowOrder { parts: &[(4, "r2"), (8, "r1"), (2, "r0")], order: &["r2", "r0", "r1"] };

impl RowOrder {
    /// For elements of so many bits; `None` where no instruction loads them transposed.
    fn of(bits: u32) -> Option<&'static RowOrder> {
        match bits {
            32 => Some(&WORDS),
            8 => Some(&BYTES),
            _ => None,
        }
    }

    /// The row of an instruction of a row of the operand.
    fn row(&self, i: &Index) -> Index {
        let below = |at: usize, of: &dyn Fn(usize) -> i64, count: usize| (at + 1..count).map(of).product::<i64>();
        let extent = |name: &str| self.parts.iter().find(|(_, own)| *own == name).map_or(1, |(extent, _)| *extent);
        let terms = self.order.iter().enumerate().map(|(n, name)| {
            let at = self.parts.iter().position(|(_, own)| own == name).unwrap_or(0);
            let lower = below(at, &|p| self.parts[p].0, self.parts.len());
            let stride = below(n, &|o| extent(self.order[o]), self.order.len());
            match n {
                0 => i.clone().floordiv(lower) * stride,
                _ => i.clone().floormod(lower * extent(name)).floordiv(lower) * stride,
            }
        });
        terms.reduce(|sum, term| sum + term).unwrap_or_else(|| i.clone())
    }
}

impl Wgmma {
    /// Whether an operand comes through registers.
    pub(super) fn holds(&self, operand: Operand) -> bool {
        self.rows_in_registers && operand == self.swap_ab.columns().other()
    }

    /// Whether the rows of an operand's tile in shared memory run along k.
    pub(super) fn tile_along_k(&self, spec: &GemmSpec, operand: Operand) -> bool {
        if self.holds(operand) { operand.along_k(spec) } else { super::runs_along_k(operand, spec) }
    }

    /// The order of rows of an operand that comes through registers.
    fn rows_of(&self, spec: &GemmSpec) -> Option<&'static RowOrder> {
        RowOrder::of(spec.a.bits()).filter(|_| self.rows_in_registers)
    }

    /// Extents of the loops over the rows of an instruction.
    pub(super) fn row_factors(&self, spec: &GemmSpec) -> Vec<i64> {
        self.rows_of(spec).map_or(vec![ROWS], |rows| rows.parts.iter().map(|(extent, _)| *extent).collect())
    }

    /// These loops in the order of the operand's rows.
    pub(super) fn row_loops(&self, spec: &GemmSpec, row: &'static str) -> Vec<&'static str> {
        self.rows_of(spec).map_or(vec![row], |rows| rows.parts.iter().map(|(_, name)| *name).collect())
    }

    /// These loops in the order of the instruction's rows.
    pub(super) fn row_order(&self, spec: &GemmSpec, row: &'static str) -> Vec<&'static str> {
        self.rows_of(spec).map_or(vec![row], |rows| rows.order.to_vec())
    }

    /// One loop over the rows of an instruction.
    pub(super) fn fuse_rows(&self, s: &mut Steps, spec: &GemmSpec, row: &str) {
        if let Some(rows) = self.rows_of(spec) {
            fuse_all(s, rows.order, row, "rows");
        }
    }

    /// The accumulators, and the operand's fragment, in the order of the instruction's rows; `stored` is the block that takes the accumulators.
    pub(super) fn reorder_rows(&self, s: &mut Steps, spec: &GemmSpec, stored: &str) {
        let Some(rows) = self.rows_of(spec) else { return };
        let accumulators = if stored == "out" { self.padding(spec).converted() } else { stored };
        let fragment = ["A_f", "B_f"][self.swap_ab.columns().other() as usize];
        s.transform_layout(fragment, IndexMap::new(["k", "r"], |[k, r]| vec![k, rows.row(&r)]));
        let of_c = match self.swap_ab {
            SwapAb::Straight => IndexMap::new(["i", "j"], |[i, j]| vec![rows.row(&i), j]),
            SwapAb::Swapped => IndexMap::new(["i", "j"], |[i, j]| vec![i, rows.row(&j)]),
        };
        s.transform_layout(accumulators, of_c);
    }

    /// These tiles among others, by their cycles with the kernels that pack operands.
    pub(super) fn with_register_tiles(mut all: Vec<Wgmma>, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let across = |operand: &Operand| !operand.along_k(spec) && operand.is_aligned(spec);
        let bits = spec.a.bits();
        let Some(operand) = Operand::BOTH.into_iter().find(across).filter(|_| RowOrder::of(bits).is_some()) else {
            return all;
        };
        let found = SIDES.into_iter().filter_map(|sides| Wgmma::through_registers(spec, operand, sides, target));
        if bits == 8 {
            // Not measured: behind the tiles whose operands a kernel packs.
            all.extend(found);
            return all;
        }
        for w in found {
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
        let suits = spec.batch.is_none() && w.epilogue == Epilogue::Tma;
        let w = w.with_slots(spec, target, MOST_STAGES);
        (suits && w.shared(spec) <= room(target)).then_some(w)
    }

    /// What a warpgroup has of the operand in registers: all steps of k of a stage.
    pub(super) fn rows_fragment(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        let [tile, fragment, matrices] = [["A_s", "A_f", "A_t"], ["B_s", "B_f", "B_t"]][operand as usize];
        let accumulators = self.accumulators(spec);
        if spec.a.bits() == 8 {
            // All steps of a stage at once: the loads go on while the MMAs of the stage before read the fragment.
            s.cache_read(accumulators, tile, Scope::Fragment, matrices).made([matrices, "t0", "t1"]);
            s.cache_read(accumulators, matrices, Scope::Fragment, fragment).split("t0", [DEPTH], ["tk", "ti"]);
            s.tensorize("ti", &format!("ldmatrix.trans.quads.m32n64.{}", [spec.a, spec.b][operand as usize]));
            return;
        }
        s.cache_read(accumulators, tile, Scope::Fragment, fragment).compute_at(fragment, "kk");
        s.pipeline("kk", super::in_bytes(self.bk, spec) / DEPTH);
    }

    /// From accumulators whose rows are columns of C to C: lanes store single elements to shared memory, some rows of C at a time.
    pub(super) fn wide_swapped_epilogue(&self, s: &mut Steps, spec: &GemmSpec) {
        let padding = self.padding(spec);
        let stored = self.staged_result(s, spec);
        s.reverse_compute_at(stored, "jw").made(["e0", "en"]);
        s.split("e0", [STORED_ROWS], ["ep", "e1"]).reorder(["ep", "e1", "en"]);
        // A warpgroup stores the columns of its own rows of instructions.
        s.swizzle("C_s", self.swizzle.min(STORE_BYTES).min(self.tall() * ROWS * bytes(spec.out)));
        s.reverse_compute_at("C_s", "ep").made(["s0", "s1"]).copy_with("C_s", CopyKind::Tma);
        if self.out_stages > 1 {
            s.pipeline("ep", self.out_stages);
        }
        padding.crop(s);
        self.reorder_rows(s, spec, stored);
    }
}
