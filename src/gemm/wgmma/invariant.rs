//! Tiles by wgmma that all sum the elements of C in one order: the rows of instructions are rows of C, k is divided into so many parts, and
//! each part is summed in steps of an instruction in ascending k. Columns of an instruction, warpgroups, stages, clusters and ping-pong may
//! differ.

use super::{DEPTH, ROWS, Wgmma, elements};
use crate::gemm::tiles;
use crate::target::Target;
use crate::te::GemmSpec;

impl Wgmma {
    /// Whether the recipe has tiles for these types, N and K, for every M, that are not filled with zeros for the most part.
    pub(in crate::gemm) fn suits_every_m(spec: &GemmSpec, target: &Target) -> bool {
        2 * spec.n > ROWS && Wgmma::suits(spec, target)
    }

    /// k extent of an instruction.
    pub(in crate::gemm) fn depth(spec: &GemmSpec) -> i64 {
        elements(DEPTH, spec)
    }

    /// k extent of a stage, which is the same for all tiles.
    pub(in crate::gemm) fn stage_depth(spec: &GemmSpec) -> i64 {
        elements(128, spec)
    }

    /// The tiles with so many parts of k, with the cycles of those in which warpgroups cooperate, the preferred first.
    pub(in crate::gemm) fn in_order(spec: &GemmSpec, target: &Target, parts: i64) -> Vec<(f64, Wgmma)> {
        let all = match parts {
            1 => Wgmma::of_any_rows(spec, target),
            _ => Wgmma::divided(spec, target, parts),
        };
        let straight = all.into_iter().filter(|w| w.parts == parts && !w.swap_ab.is_swapped());
        straight.map(|w| (w.cycles_with_packing(spec, target), w)).collect()
    }

    /// All tiles with so many parts of k, the cheapest first, even where the tiles alone fill the device.
    fn divided(spec: &GemmSpec, target: &Target, parts: i64) -> Vec<Wgmma> {
        let of = |(block, warpgroups)| Wgmma::of(spec, block, warpgroups, target).in_parts(parts, spec, target);
        let all: Vec<Wgmma> = tiles::wgmma().into_iter().map(of).collect();
        let halved: Vec<Wgmma> = all.iter().filter_map(|w| w.with_half_the_ring(spec, target)).collect();
        let mut all: Vec<_> = halved.into_iter().chain(all).map(|w| (w.cycles(spec, target), w)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.into_iter().map(|(_, w)| w).collect()
    }

    /// Whether warpgroups work in turns, whose cycles the model counts otherwise.
    pub(in crate::gemm) fn is_pingpong(&self) -> bool {
        self.pingpong
    }
}
