//! Tiles at which two warpgroups take turns.
//!
//! Warpgroups that share a tile stop multiplying together while its sums leave, and their two tiles of 64 rows fill the registers:
//! no more than 128 x 256 a block, which has to divide C well. One that has 128 rows to itself may have any width up to 192; while
//! its sums leave the other multiplies, and the tensor cores go on. The price is a pause between slots that nobody fills, and
//! more bytes for each product.
//!
//! On an H200, by one clock for both: some 27 clocks more than its products for each slot in turns, whatever the width; for 128 x 256
//! side by side 40, and 2000 behind each tile. So the number of tiles decides, which multiprocessors share evenly or not, and how
//! short k is: 4096x14336x4096 NT takes 4 % less in turns at 128 x 176, 8 x 1024^3 4 % at 128 x 128, 8192^3 2 % at 128 x 168.

use super::{ROWS, Wgmma, bytes, room};
use crate::gemm::mma::Source;
use crate::gemm::tuning;
use crate::target::Target;
use crate::te::GemmSpec;

/// Rows of C in a turn.
const TALL: i64 = 2 * ROWS;
/// Widths to choose from. 200 and more leave no registers for addresses; others leave in no equal parts whose rows in shared
/// memory meet no bank twice.
const WIDTHS: [i64; 8] = [112, 120, 128, 144, 160, 168, 176, 192];
/// Slots of a sum. While the products of fewer run, the other's sums do not leave: 64 x 512^3 of bf16, with 8, takes 2 % more.
const LONG: i64 = 16;
impl Wgmma {
    /// The tiles in turns that there are for a product, the cheapest first: of 16-bit floats, where blocks walk tiles.
    pub(super) fn turns(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let all = WIDTHS.iter().filter_map(|width| Wgmma::in_turns(spec, *width, target));
        let mut all: Vec<(f64, Wgmma)> = all.map(|w| (w.mma_cycles(spec, target), w)).collect();
        let least = all.iter().map(|(clocks, _)| *clocks).fold(f64::INFINITY, f64::min);
        // Of those that take as many clocks the widest comes first, which has the fewest bytes to move.
        let key = |(clocks, w): &(f64, Wgmma)| {
            if *clocks < tuning::SAME_CYCLES * least { (0.0, -w.block[1]) } else { (*clocks, 0) }
        };
        all.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        all.into_iter().map(|(_, w)| w).collect()
    }

    /// Tiles of this width in turns, if the product has use for them.
    fn in_turns(spec: &GemmSpec, width: i64, target: &Target) -> Option<Wgmma> {
        let w = Wgmma { in_turns: true, ..Wgmma::of(spec, [2 * TALL, width], 2, target) };
        let suited = bytes(spec.a) == 2
            && bytes(spec.out) == 2
            && super::converts(spec)
            && w.persistent
            && w.routes == [Source::Direct; 2];
        // Panels of columns divide B's tile where its rows are not k.
        let panels = super::runs_along_k(spec, 1) || width * bytes(spec.a) % 128 == 0;
        let w = Wgmma { out_stages: 1, ..w }.with_slots(spec, target, 6);
        (suited && panels && w.slots_of_k(spec) >= LONG && w.stages > 3 && w.shared(spec) <= room(target)).then_some(w)
    }

    /// Whether it is worth it to take turns where others would work side by side.
    pub(super) fn is_ahead(&self, large: &Wgmma, spec: &GemmSpec, target: &Target) -> bool {
        large.persistent && self.mma_cycles(spec, target) < tuning::PINGPONG_GAIN * large.mma_cycles(spec, target)
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
        // Sums of 16 slots, and of 8.
        let batch = |n, k| chosen(&Gemm::new(n, n, k).of(DType::F16).batch(64));
        assert_eq!([batch(1024, 1024), batch(1024, 512)], ["wgmma 256x128 in ping-pong", "wgmma 128x256"]);
    }

    #[test]
    fn every_width_lowers_in_its_slots() {
        let gemm = Gemm::new(8192, 8192, 8192).of(DType::Bf16).layout(Layout::NT);
        let all = candidates(&gemm, &Target::sm_90a()).unwrap();
        let turns: Vec<_> = all.iter().filter(|(name, _)| name.ends_with("in ping-pong")).collect();
        assert_eq!(turns.len(), super::WIDTHS.len());
        for (name, schedule) in turns {
            let lowered = crate::lower::lower(&schedule.scheduled().unwrap(), &schedule.target);
            assert!(lowered.is_ok(), "{name}: {}", lowered.unwrap_err());
        }
        let why = recommend(&gemm, &Target::sm_90a()).unwrap().to_string();
        assert!(why.contains("of 2 warpgroups in ping-pong: 1568 blocks in 11.88 waves"), "{why}");
    }
}
