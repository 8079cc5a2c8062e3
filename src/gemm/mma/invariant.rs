//! Tiles by mma.sync that all sum the elements of C in one order: k is divided into so many parts, and each part is summed in steps of an
//! instruction in ascending k, with as many zeros behind it. Tiles, warps, stages and copies may differ.

use super::unaligned::LEAST_PIECE;
use super::{Epilogue, Mma, Operand, epilogue, ring, up};
use crate::gemm::work::ranked;
use crate::target::{Features, Target};
use crate::te::GemmSpec;

impl Mma {
    /// k extent of an instruction, of floats.
    pub(in crate::gemm) fn depth(spec: &GemmSpec, target: &Target) -> Option<i64> {
        super::shape(spec, target).map(|[_, k]| k)
    }

    /// k extent of a stage that all tiles have that sum in one order.
    pub(in crate::gemm) fn stage_depth(spec: &GemmSpec, target: &Target) -> i64 {
        let bits = i64::from(spec.a.bits());
        8 * ring(spec, target.has(Features::CP_ASYNC), false, bits).0 / bits
    }

    /// The tiles with so many parts of k, with their cycles, the cheapest first. Not of integers.
    pub(in crate::gemm) fn in_order(spec: &GemmSpec, target: &Target, parts: i64) -> Vec<(f64, Mma)> {
        let bk = Mma::stage_depth(spec, target);
        // M and N of 1 use the tiles of 2: the candidates of 1 lack tiles whose epilogue needs a loop over rows and columns.
        let at_least_two = GemmSpec { m: spec.m.max(2), n: spec.n.max(2), ..*spec };
        let all = Mma::with_cycles(&at_least_two, target).into_iter().filter(|(_, m)| m.parts == parts);
        // Rows of one element are shorter than the narrowest copy.
        let is_copied =
            |m: &Mma| Operand::BOTH.into_iter().all(|o| !m.copies_pieces(spec, o) || o.piece(spec) >= LEAST_PIECE);
        let all = all.filter(|(_, m)| is_copied(m));
        let all = all.map(|(_, m)| m.staged_by(bk).stored_from_any_tile(spec, target));
        let works = all.map(|m| (m.work(spec, target), m)).filter(|(work, _)| work.resident > 0);
        let best = |(cycles, m): (f64, Mma)| {
            let tma = m.with_best_tiles(spec, target);
            (cycles, if tma.terms(spec) == m.terms(spec) { tma } else { m })
        };
        ranked(works.collect(), 1.0, &target.device()).into_iter().map(best).collect()
    }

    /// Terms of a part of k, with the zeros behind the last.
    fn terms(&self, spec: &GemmSpec) -> i64 {
        up(spec.k, self.bk * self.parts) * self.bk
    }

    /// The same tiles in stages of this k extent, as many as take about as much shared memory.
    fn staged_by(self, bk: i64) -> Mma {
        if self.bk == bk {
            return self;
        }
        Mma { bk, stages: up(self.stages * self.bk, bk).max(2), min_blocks: None, ..self }
    }

    /// The same tiles with an epilogue that has a form for one row or column of C.
    fn stored_from_any_tile(self, spec: &GemmSpec, target: &Target) -> Mma {
        if self.stores_all_lanes(spec) {
            return self;
        }
        let epilogue = if target.has(Features::STMATRIX) { Epilogue::Stmatrix } else { Epilogue::Rows };
        let chosen = epilogue::choose(spec, target, self.block, self.parts);
        Mma { epilogue: if chosen == Epilogue::Direct { epilogue } else { chosen }, ..self }
    }
}
