//! Tiles of the recipe by mma.sync whose bytes run across k, without a kernel that transposes them.
//!
//! ldmatrix.trans gives a lane four bytes along k of two neighbouring rows of A or columns of B, 2 g and 2 g + 1, and a byte permutation makes
//! registers of the instruction of them: rows g and g + 8 of A, or column g of two instructions. So rows and columns of instructions are those of C
//! in another order, which the accumulators have, too. Where both operands come so, their terms have another order as well, by which each matrix comes from
//! different banks.

use super::{Epilogue, FragmentBuffers, Mma, Names, Operand, OperandForm, Source, up};
use crate::gemm::order::{self, COLUMNS, Dimension};
use crate::gemm::split::PARTS;
use crate::gemm::tiles;
use crate::ir::{Index, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::{Features, Target};
use crate::te::GemmSpec;

/// Rows or columns of C of a load, and terms.
const ROWS: i64 = 16;
const TERMS: i64 = 32;
/// The shortest row of a tile in shared memory, in bytes.
const LEAST_ROW: i64 = 32;
/// Byte permutations of a load.
const PERMUTATIONS: f64 = 4.0;

impl Mma {
    /// Whether an operand's bytes are transposed on their way to registers.
    pub(super) fn transposes(&self, spec: &GemmSpec, operand: Operand) -> bool {
        let bytes = spec.a.bits() == 8 && self.form == OperandForm::Stored;
        bytes && !operand.along_k(spec) && self.routes[operand as usize] == Source::Direct
    }

    /// Whether any operand's are.
    pub(super) fn transposes_any(&self, spec: &GemmSpec) -> bool {
        Operand::BOTH.into_iter().any(|operand| self.transposes(spec, operand))
    }

    /// Whether instructions have the terms in the order in which ldmatrix.trans gives them: where both operands come so.
    fn permutes_terms(&self, spec: &GemmSpec) -> bool {
        Operand::BOTH.into_iter().all(|operand| self.transposes(spec, operand))
    }

    /// The terms of an instruction.
    pub(super) fn term_loops(&self, spec: &GemmSpec) -> Dimension {
        Dimension::of("ki", self.shape[1], self.permutes_terms(spec).then_some(&order::TERMS))
    }

    /// Tiles without packing where an operand of bytes runs across k, by their cycles. On an H200 they take 1.25 to 1.8 times as long as the model has them
    /// (h200-2026-11-29/README.md, "Bytes across k"): none of them is among the [candidates](Mma::candidates).
    pub(in crate::gemm) fn with_transposed_operands(spec: &GemmSpec, target: &Target) -> Vec<Mma> {
        if spec.a.bits() != 8
            || spec.batch.is_some()
            || Mma::lacks(spec, target).is_some()
            || !target.has(Features::CP_ASYNC)
        {
            return Vec::new();
        }
        let sides = tiles::mma([64, 64], [spec.m, spec.n], spec.a.bits().into()).into_iter();
        let sides = sides.flat_map(|tile| PARTS.map(|parts| (tile, parts)));
        let all = sides.filter_map(|((block, warps), parts)| {
            Mma::with(spec, target, block, warps, parts, OperandForm::Stored).transposed(spec, target)
        });
        let all = all.flat_map(|m| std::iter::once(m).chain(m.in_cluster(spec, target)));
        Mma::ranked(all, spec, target).into_iter().map(|(_, m)| m).collect()
    }

    /// The same tiles with operands across k as they are; `None` where there are none, or an operand needs packing for its rows.
    fn transposed(self, spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let mut out = self;
        for operand in Operand::BOTH.into_iter().filter(|operand| !operand.along_k(spec)) {
            out.routes[operand as usize] = Source::Direct;
        }
        let fits = |operand: Operand| {
            let side = out.block[operand as usize];
            side >= LEAST_ROW && (side / out.warps[operand as usize]) % ROWS == 0
        };
        let suits = out != self && !out.routes.contains(&Source::Packed) && out.shape == [ROWS, TERMS];
        let aligned = Operand::BOTH.into_iter().all(|operand| operand.is_aligned(spec));
        let transposed = Operand::BOTH.into_iter().filter(|operand| out.transposes(spec, *operand)).all(fits);
        let epilogue = if out.epilogue == Epilogue::Stmatrix { Epilogue::Rows } else { out.epilogue };
        // With one set of fragments each byte would be a statement of its own.
        let out = Mma { epilogue, fragments: FragmentBuffers::Double, ..out };
        let has_room = out.registers(spec) <= i64::from(target.limits.registers_per_thread);
        let out = Mma { min_blocks: out.told_blocks(spec, target), ..out };
        (suits && aligned && transposed && has_room).then(|| out.with_early_start(spec, target))
    }

    /// Cycles of the issue slots for the byte permutations of a warp in a step of k.
    pub(super) fn permuting(&self, spec: &GemmSpec) -> f64 {
        let rows = |o: Operand| self.block[o as usize] / self.warps[o as usize];
        let transposed = Operand::BOTH.into_iter().filter(|operand| self.transposes(spec, *operand));
        transposed.map(|operand| up(rows(operand), ROWS) as f64 * PERMUTATIONS).sum()
    }

    /// The loops over the rows of an instruction, with their extents, in the order of C's rows. Two rows of a transposed A that follow each other are eight apart
    /// in the instruction.
    pub(super) fn row_loops(&self, spec: &GemmSpec) -> (Vec<i64>, [&'static str; 2]) {
        let m = self.shape[0];
        if self.transposes(spec, Operand::A) { (vec![m / 2, 2], ["ip", "ir"]) } else { (vec![m], ["ii", ""]) }
    }

    /// The loops over the columns of a warp's tile, with their extents, in the order of C's columns; and the loops over its `tiles` instructions. Two
    /// columns of a transposed B that follow each other are in two instructions.
    pub(super) fn column_loops(&self, spec: &GemmSpec, tiles: i64) -> (Vec<i64>, [&'static str; 3], [&'static str; 2]) {
        match self.transposes(spec, Operand::B) {
            true => (vec![tiles / 2, 8, 2], ["jq", "ji", "jr"], ["jq", "jr"]),
            false => (vec![tiles, 8], ["jm", "ji", ""], ["jm", ""]),
        }
    }

    /// One loop over the rows of an instruction, and one over the instructions of a row of the warp's tile.
    pub(super) fn fuse_transposed(&self, s: &mut Steps, spec: &GemmSpec) {
        if self.transposes(spec, Operand::A) {
            s.fuse(["ir", "ip"], "ii");
        }
        if self.transposes(spec, Operand::B) {
            s.fuse(["jq", "jr"], "jm");
        }
    }

    /// What a warp has of an operand in registers: as it is loaded for each step of k, and in the order of the instruction.
    pub(super) fn transposed_fragment(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand, accumulators: &str) {
        let [tile, loaded, fragment] = [["A_s", "A_t", "A_f"], ["B_s", "B_t", "B_f"]][operand as usize];
        let [f0, f1, fm, fi] = [["f0", "f1", "fm", "fi"], ["g0", "g1", "gm", "gi"]][operand as usize];
        s.cache_read(accumulators, tile, Scope::Fragment, loaded);
        s.cache_read(accumulators, loaded, Scope::Fragment, fragment).compute_at(fragment, "kq");
        s.compute_at(loaded, "kk").made([f0, f1]).split(f1, [ROWS], [fm, fi]).reorder([fm, f0, fi]);
        let in_turn = if self.permutes_terms(spec) { "" } else { "quads." };
        s.tensorize(f0, &format!("ldmatrix.trans.{in_turn}m32n16.{}", operand.dtype(spec)));
        let term = |k: Index| if self.permutes_terms(spec) { order::TERMS.place(&k) } else { k };
        s.transform_layout(fragment, IndexMap::new(["k", "w"], |[k, w]| vec![term(k), COLUMNS.place(&w)]));
    }

    /// The accumulators in the order of the instructions' rows and columns.
    pub(super) fn reorder_accumulators(&self, s: &mut Steps, spec: &GemmSpec, names: &Names) {
        let transposed = Operand::BOTH.map(|operand| self.transposes(spec, operand));
        if transposed == [false; 2] {
            return;
        }
        let converted = names.whole.converts() && self.parts == 1;
        let accumulators = if converted { self.padding(spec).converted() } else { "C_f" };
        let place = |index: Index, transposed: bool| if transposed { COLUMNS.place(&index) } else { index };
        let element = |i: Index, j: Index| [place(i, transposed[0]), place(j, transposed[1])];
        let map = match self.parts {
            1 => IndexMap::new(["i", "j"], |[i, j]| element(i, j).to_vec()),
            _ => IndexMap::new(["p", "i", "j"], |[p, i, j]| std::iter::once(p).chain(element(i, j)).collect()),
        };
        s.transform_layout(accumulators, map);
    }
}
