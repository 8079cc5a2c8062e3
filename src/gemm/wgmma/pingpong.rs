//! Tiles for two warpgroups in ping-pong.
//!
//! Cooperative warpgroups issue no MMA during the epilogue of their tile, and the accumulators limit the tile to 128 x 256. A warpgroup in
//! ping-pong has 128 rows and up to 192 columns of its own, and the tensor cores run the MMAs of the other during its epilogue. The
//! price is a bubble between stages, and more bytes from L2 for each MMA.
//!
//! On an H200 a stage takes some 27 cycles more than its MMAs in ping-pong, at every width; a cooperative stage of 128 x 256 takes 40
//! more, and each tile 2000. So two things decide: whether the multiprocessors have equally many tiles, and how short k is.
//! 4096x14336x4096 NT takes 4 % less in ping-pong at 128 x 176, 8 x 1024^3 4 % at 128 x 128, 8192^3 2 % at 128 x 168.

use super::{Accumulators, Operand, ROWS, Wgmma, bytes, room};
use crate::gemm::packing::Source;
use crate::gemm::tuning;
use crate::target::Target;
use crate::te::GemmSpec;

/// Rows of C of a warpgroup.
const TALL: i64 = 2 * ROWS;
/// Columns of C of a warpgroup. More leave no registers for addresses; of fewer the bubble between stages is more than an eighth of the
/// MMAs.
const LEAST: i64 = 112;
const MOST: i64 = 192;
/// Minimum number of k iterations: fewer do not hide the other warpgroup's epilogue (64 x 512^3 of bf16, with 8, takes 2 % more).
const MIN_ITERATIONS: i64 = 16;

/// Columns that rows of a tile of 16-bit elements in shared memory may have, without bank conflicts in the epilogue.
fn widths() -> impl Iterator<Item = i64> {
    (LEAST..=MOST).step_by(8).filter(|width| super::store_columns(*width, 2, true).is_some())
}

impl Wgmma {
    /// The ping-pong tiles of a GEMM of 16-bit floats with persistent blocks, the cheapest first.
    pub(super) fn pingpong_tiles(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let all = widths().filter_map(|width| Wgmma::pingpong(spec, width, target));
        let mut all: Vec<(f64, Wgmma)> = all.map(|w| (w.mma_cycles(spec, target), w)).collect();
        let least = all.iter().map(|(cycles, _)| *cycles).fold(f64::INFINITY, f64::min);
        // Of tiles with equal cycles the widest is first: it moves the fewest bytes.
        let key = |(cycles, w): &(f64, Wgmma)| {
            if *cycles < tuning::SAME_CYCLES * least { (0.0, -w.block[1]) } else { (*cycles, 0) }
        };
        all.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        all.into_iter().map(|(_, w)| w).collect()
    }

    /// Ping-pong tiles of this many columns, if the recipe has a form for the GEMM.
    fn pingpong(spec: &GemmSpec, width: i64, target: &Target) -> Option<Wgmma> {
        let w = Wgmma { pingpong: true, ..Wgmma::of(spec, [2 * TALL, width], 2, target) };
        let suited = bytes(spec.a) == 2
            && bytes(spec.out) == 2
            && Accumulators::of(spec).converts()
            && w.persistent
            && w.routes == [Source::Direct; 2];
        // Panels of columns divide B's tile where its rows are not k.
        let panels = Operand::B.runs_along_k(spec) || width * bytes(spec.a) % 128 == 0;
        let w = Wgmma { out_stages: 1, ..w }.with_slots(spec, target, 6);
        (suited && panels && w.k_stages(spec) >= MIN_ITERATIONS && w.stages > 3 && w.shared(spec) <= room(target))
            .then_some(w)
    }

    /// Whether ping-pong gains enough over cooperative warpgroups.
    pub(super) fn gains_over(&self, cooperative: &Wgmma, spec: &GemmSpec, target: &Target) -> bool {
        cooperative.persistent
            && self.mma_cycles(spec, target) < tuning::PINGPONG_GAIN * cooperative.mma_cycles(spec, target)
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::gemm::{Gemm, candidates, recommend};
    use crate::target::Target;
    use crate::te::Layout;

    fn chosen(gemm: &Gemm) -> String {
        candidates(gemm, &Target::sm_90a()).unwrap().swap_remove(0).0
    }

    #[test]
    fn products_come_to_turns_where_those_divide_them_better() {
        let of = |m, n, k, layout| chosen(&Gemm::new(m, n, k).of(DType::F16).layout(layout));
        assert_eq!(of(8192, 8192, 8192, Layout::NT), "wgmma 256x168 in ping-pong");
        assert_eq!(of(4096, 14336, 4096, Layout::TT), "wgmma 256x176 in ping-pong");
        // Rows of B that are not k come in whole panels; and 8192 is not shared any better by those.
        assert_eq!(of(8192, 8192, 8192, Layout::NN), "wgmma 128x256");
        // One wave, and what moves too many bytes for what it wins.
        assert_eq!(of(2048, 2048, 2048, Layout::NT), "wgmma 128x256");
        assert_eq!(of(16384, 16384, 16384, Layout::NT), "wgmma 128x256");
        // Accumulators of 16 stages, and of 8.
        let batch = |n, k| chosen(&Gemm::new(n, n, k).of(DType::F16).batch(64));
        assert_eq!([batch(1024, 1024), batch(1024, 512)], ["wgmma 256x128 in ping-pong", "wgmma 128x256"]);
    }

    #[test]
    fn every_width_lowers_in_its_slots() {
        let gemm = Gemm::new(8192, 8192, 8192).of(DType::Bf16).layout(Layout::NT);
        let all = candidates(&gemm, &Target::sm_90a()).unwrap();
        let pingpong_tiles: Vec<_> = all.iter().filter(|(name, _)| name.ends_with("in ping-pong")).collect();
        assert_eq!(pingpong_tiles.len(), super::widths().count());
        for (name, schedule) in pingpong_tiles {
            let lowered = crate::lower::lower(&schedule.scheduled().unwrap(), &schedule.target);
            assert!(lowered.is_ok(), "{name}: {}", lowered.unwrap_err());
        }
        let reason = recommend(&gemm, &Target::sm_90a()).unwrap().to_string();
        assert!(reason.contains("of 2 warpgroups in ping-pong: 1568 blocks in 11.88 waves"), "{reason}");
    }
}
