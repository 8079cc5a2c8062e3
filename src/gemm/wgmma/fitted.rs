//! Tiles of one wave: instructions have as few columns as give each multiprocessor at most one tile.
//!
//! Tiles of whole panels leave multiprocessors without work where there are a few more of them than multiprocessors. On an H100 (132
//! multiprocessors) 7360x592x13232 NT of f16 takes 227 us in 232 tiles of 128 x 192 and 173 in 117 of 192 x 200; 1792x1920x15168 NT takes
//! 155 us in 105 tiles of 256 x 128 and 139 in 126 of 128 x 216. Two waves of such tiles, without blocks that stay, gained nothing
//! (768x9864x768 TT: 23.5 us in 128 x 232, 22.8 in 128 x 256; 7360x592x13232 NT: 281 us in 128 x 152).

use super::{LEAST_STAGES, SwapAb, Wgmma, processors, thin, up};
use crate::target::Target;
use crate::te::GemmSpec;

/// The long side of a block's tile, in rows of instructions, and warpgroups that share it.
const LONG: [(i64, i64); 4] = [(64, 1), (128, 2), (192, 3), (256, 2)];
/// Columns of instructions: fewer are those of thin products.
const COLUMNS: std::ops::RangeInclusive<i64> = 72..=256;
/// Accumulators of a thread at most, as with warpgroups in ping-pong, and where an epilogue follows.
const MOST_ACCUMULATORS: i64 = 192;
const MOST_WITH_EPILOGUE: i64 = 128;

impl Wgmma {
    /// The tiles, in no order.
    pub(super) fn fitted_tiles(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        // One wave at the largest M of a range is a part of one at others.
        if spec.batch.is_some() || spec.least_m.is_some() {
            return Vec::new();
        }
        let most = if spec.epilogue { MOST_WITH_EPILOGUE } else { MOST_ACCUMULATORS };
        let mut all = Vec::new();
        for swap_ab in [SwapAb::Straight, SwapAb::Swapped] {
            let sides = [spec.m, spec.n];
            let (rows, side) = (sides[swap_ab.rows()], sides[1 - swap_ab.rows()]);
            for (long, warpgroups) in LONG {
                let tiles = i64::from(processors(target)) / up(rows, long);
                let Some(columns) = (tiles > 0).then(|| thin::part(side, tiles, spec.a.bits())) else { continue };
                let fits = COLUMNS.contains(&columns) && long * columns / (128 * warpgroups) <= most;
                let block = if swap_ab.is_swapped() { [columns, long] } else { [long, columns] };
                if fits {
                    all.extend(Wgmma::alone(spec, swap_ab, (block, warpgroups), 1, target));
                }
            }
        }
        // Beside a producer the ring leaves no room for C; a short one does not hide the loads.
        let long = |w: &Wgmma| w.stages >= LEAST_STAGES.min(w.k_stages(spec));
        let partners: Vec<Wgmma> = all.iter().filter_map(|w| w.with_partner(spec, target)).filter(long).collect();
        all.extend(partners);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::{Gemm, Product, schedule};
    use crate::lower::lower;
    use crate::te::Layout;

    #[test]
    fn a_tile_for_each_multiprocessor_is_first_where_panels_make_two_waves() {
        let chosen = |m, n, k, layout| {
            let w = Wgmma::choose(&GemmSpec::of(m, n, k, DType::F16, layout), &Target::sm_90a()).unwrap();
            (w.block, w.warpgroups)
        };
        assert_eq!(chosen(7360, 592, 13232, Layout::NT), ([192, 200], 3));
        // Whole waves of panels.
        assert_eq!(chosen(2048, 2048, 2048, Layout::NT), ([128, 256], 2));
    }

    #[test]
    fn every_tile_lowers() {
        let target = Target::sm_90a();
        let sizes = [[7360, 592, 1328], [2920, 704, 488], [1792, 1920, 1500], [1208, 4544, 1014], [256, 9408, 48]];
        let mut count = 0;
        for (dtype, layout) in [DType::F16, DType::S8].into_iter().flat_map(|d| Layout::ALL.map(|l| (d, l))) {
            for [m, n, k] in sizes {
                let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
                for w in Wgmma::fitted_tiles(gemm.spec(), &target) {
                    let schedule = schedule(&Product::of_gemm(&gemm).unwrap(), &target, w.steps(gemm.spec())).unwrap();
                    let lowered = schedule.scheduled().and_then(|func| lower(&func, &target));
                    assert!(lowered.is_ok(), "{w:?} of {m}x{n}x{k} {}: {}", layout.name(), lowered.unwrap_err());
                    assert!(w.blocks(gemm.spec()) <= 132, "{w:?} of {m}x{n}x{k}");
                    count += 1;
                }
            }
        }
        assert!(count > 60, "{count}");
    }
}
