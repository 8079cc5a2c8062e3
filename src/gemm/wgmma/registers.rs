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
use crate::gemm::order::{BYTES, COLUMNS, Dimension, Order, TERMS, WORDS};
use crate::gemm::staging::present;
use crate::ir::{CopyKind, Index, Note, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// Sides of a tile: along the rows of instructions and along their columns.
const SIDES: [[i64; 2]; 4] = [[128, 256], [128, 192], [128, 128], [128, 64]];
/// Warpgroups of a tile: one loads fragments while the other multiplies.
pub(super) const WARPGROUPS: i64 = 2;
/// Rows of C that leave at once where A and B are swapped.
pub(super) const STORED_ROWS: i64 = 32;
impl Wgmma {
    /// Whether an operand comes through registers.
    pub(super) fn holds(&self, operand: Operand) -> bool {
        self.rows_in_registers && operand == self.swap_ab.columns().other()
    }

    /// Whether the rows of an operand's tile in shared memory run along k.
    pub(super) fn tile_along_k(&self, spec: &GemmSpec, operand: Operand) -> bool {
        let as_it_lies = self.holds(operand) || self.transposes_tile(spec, operand);
        if as_it_lies { operand.along_k(spec) } else { super::runs_along_k(operand, spec) }
    }

    /// The order of rows of an operand that comes through registers.
    fn order_of_rows(&self, spec: &GemmSpec) -> Option<&'static Order> {
        order_for(spec.a.bits()).filter(|_| self.rows_in_registers)
    }

    /// The rows of an instruction.
    pub(super) fn rows(&self, spec: &GemmSpec, name: &'static str) -> Dimension {
        Dimension::of(name, ROWS, self.order_of_rows(spec))
    }

    /// The accumulators, and the operand's fragment, in the order of the instruction's rows; `stored` is the block that takes the accumulators.
    pub(super) fn reorder_rows(&self, s: &mut Steps, spec: &GemmSpec, stored: &str) {
        let Some(rows) = self.order_of_rows(spec) else { return };
        let accumulators = if stored == "out" { self.padding(spec).converted() } else { stored };
        let fragment = ["A_f", "B_f"][self.swap_ab.columns().other() as usize];
        let term = |index: Index| if self.transposed_operand(spec).is_some() { TERMS.place(&index) } else { index };
        s.transform_layout(fragment, IndexMap::new(["k", "r"], |[k, r]| vec![term(k), rows.place(&r)]));
        let column = |index: Index| if self.transposed_operand(spec).is_some() { COLUMNS.place(&index) } else { index };
        let of_c = match self.swap_ab {
            SwapAb::Straight => IndexMap::new(["i", "j"], |[i, j]| vec![rows.place(&i), column(j)]),
            SwapAb::Swapped => IndexMap::new(["i", "j"], |[i, j]| vec![column(i), rows.place(&j)]),
        };
        s.transform_layout(accumulators, of_c);
    }

    /// These tiles among others, by their cycles with the kernels that pack operands.
    pub(super) fn with_register_tiles(mut all: Vec<Wgmma>, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let across = |operand: &Operand| !operand.along_k(spec) && operand.is_aligned(spec);
        if order_for(spec.a.bits()).is_none() {
            return all;
        }
        let held: Vec<Operand> = Operand::BOTH.into_iter().filter(across).collect();
        let found = held.into_iter().flat_map(|operand| {
            let plain = SIDES.map(|sides| Wgmma::through_registers(spec, operand, (sides, WARPGROUPS), target));
            plain.into_iter().flatten().chain(Wgmma::transposing_tiles(spec, operand, target))
        });
        for w in found {
            let cycles = w.cycles_with_packing(spec, target);
            let at = all.iter().position(|other| cycles < other.cycles_with_packing(spec, target));
            all.insert(at.unwrap_or(all.len()), w);
        }
        all
    }

    /// Tiles whose rows of instructions are those of an operand; `None` where they cannot leave by TMA, or have no room.
    pub(super) fn through_registers(
        spec: &GemmSpec,
        operand: Operand,
        ([tall, wide], warpgroups): ([i64; 2], i64),
        target: &Target,
    ) -> Option<Wgmma> {
        let swap_ab = if operand == Operand::A { SwapAb::Straight } else { SwapAb::Swapped };
        let block = if swap_ab.is_swapped() { [wide, tall] } else { [tall, wide] };
        let plain = Wgmma::of(spec, block, warpgroups, target);
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
            s.cache_read(accumulators, tile, Scope::Fragment, matrices);
            let (steps, in_turn) = if self.transposed_operand(spec).is_some() {
                // Step by step, for which the registers suffice: a warpgroup loads while others multiply. Written out, ptxas puts the MMAs of 256 x 128 one
                // after the other for some N.
                s.annotate("kk", Note::UnrollLimit, 1).compute_at(matrices, "kk").made(["ti", "t1"]);
                ("", "")
            } else {
                // All steps of a stage at once: the loads go on while the MMAs of the stage before read the fragment.
                s.made([matrices, "t0", "t1"]).split("t0", [DEPTH], ["tk", "ti"]);
                ("tk", "quads.")
            };
            s.cache_read(accumulators, matrices, Scope::Fragment, fragment);
            if self.tall() > 1 {
                s.split("t1", [ROWS], ["tb", "tr"]).reorder(present([steps, "tb", "ti", "tr"]));
            }
            s.tensorize("ti", &format!("ldmatrix.trans.{in_turn}m32n64.{}", operand.dtype(spec)));
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

/// The order of rows of elements of so many bits; `None` where no instruction loads them transposed.
fn order_for(bits: u32) -> Option<&'static Order> {
    match bits {
        32 => Some(&WORDS),
        8 => Some(&BYTES),
        _ => None,
    }
}
