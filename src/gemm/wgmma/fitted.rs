//! Tiles of whole waves: instructions have as few columns as give each multiprocessor at most one tile, or two to 32, or one part of a tile.
//!
//! Tiles of whole panels leave multiprocessors without work where there are a few more of them than in whole waves. On an H100 (132
//! multiprocessors) 7360x592x13232 NT of f16 takes 227 us in 232 tiles of 128 x 192 and 163 in 117 of 192 x 200; 1792x1920x15168 NT takes
//! 155 us in 105 tiles of 256 x 128 and 136 in 126 of 128 x 216. In two waves of persistent blocks 2634x2432x6560 NT takes 138 us in
//! 128 x 256 and 119 in 128 x 208, in three 768x9864x768 TT 22.7 in 128 x 256 and 20.8 in 128 x 152, in four 14367x896x368 NN 24.3 in
//! 128 x 256 and 20.4 in 192 x 128. Swapped operands divide the rows of C so: 1426x9072x1464 NN of bf16 takes 75.6 us in 128 x 256 by two and 63.2 in
//! 208 x 128 by two, 1670x4192x14272 NT 298 in 128 x 256 and 271 in 144 x 192. Parts of k divide a product of fewer tiles so: on an H200 640x640x8192 NT of
//! f16 takes 19.6 us in 64 x 128 in two parts, which are 100, and 14.5 in 160 x 64 in three, which are 120 (h200-2026-11-28/parts.jsonl).
//!
//! Where sums are long, whole waves save time of many waves, too: on an H200 10000^3 NT of bf16 has 0.990 of the library's speed in 24 waves
//! of 128 x 256 and 1.006 in 23 of 176 x 192 swapped, 8192^3 NN and NT 1.028 in 16 of 128 x 256 and 1.037 in 12 of 168 x 256 swapped, on an H100 0.998 and 1.030, and the same
//! (h200-2026-11-28/waves.jsonl).
//!
//! Where the operand that gives the columns does not run along k, a tile of any width reads whole panels of 64 elements, and one that is no multiple of
//! 64 begins inside lines of L2. The model counts both: 4224x1904x6144 TN of bf16 takes 147 us in 256 x 128 and 130 in 192 x 160 by two,
//! 7616x1120x384 NN 14.9 in 128 x 192 and 13.9 in 176 x 192; but 1443x7936x1216 TN 44.4 in 128 x 256 and 61.2 in 168 x 192.

use super::{Accumulators, LEAST_STAGES, MOST_STAGES, PARTS, ROWS, SwapAb, Wgmma, bytes, processors, room, thin, up};
use crate::gemm::work::ranked;
use crate::target::Target;
use crate::te::GemmSpec;

/// The long side of a block's tile, in rows of instructions, and warpgroups that share it.
const LONG: [(i64, i64); 4] = [(64, 1), (128, 2), (192, 3), (256, 2)];
/// Columns of blocks of one to three warpgroups beside a producer: three leave 128 registers to a thread, of which 192 columns take 96.
const MOST_BESIDE_PRODUCER: [i64; 3] = [256, 256, 192];
/// Waves of persistent blocks. Sums of fewer stages than [`LEAST_STAGES`] wait for their stores: 2560x4416x64 TT of bf16 takes 15.9 us in
/// 256 x 176 and 10.2 in 64 x 192.
const WAVES: std::ops::RangeInclusive<i64> = 2..=4;
/// Further waves, and the tiles of them that are candidates, the cheapest.
const MANY_WAVES: std::ops::RangeInclusive<i64> = 5..=32;
const MOST_OF_MANY_WAVES: usize = 8;
/// Stages along k of these tiles at least. Set by hand, as the model does not count what ping-pong hides: with 80 stages whole waves take less time than
/// ping-pong (5120^3 NN), with 16 ping-pong takes less than 128 x 256 (8192x8192x1024 NN). Between them nothing was measured.
const MANY_STAGES: i64 = 64;
/// Columns of instructions: fewer are those of thin products.
const COLUMNS: std::ops::RangeInclusive<i64> = 72..=256;
/// Accumulators of a thread at most, as with warpgroups in ping-pong, and where an epilogue follows.
const MOST_ACCUMULATORS: i64 = 192;
const MOST_WITH_EPILOGUE: i64 = 128;
/// Candidates with parts of k, the cheapest: a search lowers each before it measures.
const MOST_PARTED: usize = 24;

impl Wgmma {
    /// Whether threads of these warpgroups have registers for the accumulators beside a producer's.
    pub(super) fn fits_beside_producer(&self) -> bool {
        let most = MOST_BESIDE_PRODUCER.get(self.warpgroups as usize - 1);
        most.is_some_and(|most| self.block[self.swap_ab.columns() as usize] <= *most)
    }

    /// The tiles, in no order.
    pub(super) fn fitted_tiles(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        // One wave at the largest M of a range is a part of one at others.
        if spec.batch.is_some() || spec.least_m.is_some() {
            return Vec::new();
        }
        let mut all = Wgmma::fitted_to_waves(spec, target);
        for swap_ab in [SwapAb::Straight, SwapAb::Swapped] {
            for (long, warpgroups) in LONG {
                for columns in fitted_columns(spec, swap_ab, (long, warpgroups), processors(target).into()) {
                    let block = swap_ab.block(long, columns);
                    all.extend(Wgmma::alone(spec, swap_ab, (block, warpgroups), 1, target));
                }
            }
        }
        all
    }

    /// Tiles of which most multiprocessors have one part, and none has two; a second kernel adds them up. Of them and those of which blocks share a
    /// side, the cheapest.
    pub(super) fn fitted_parts(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        if spec.batch.is_some() || spec.least_m.is_some() {
            return Vec::new();
        }
        let all = i64::from(processors(target));
        let suits = |w: &Wgmma| {
            let long = up(spec.k, w.bk) >= LEAST_STAGES * w.parts;
            long && 3 * w.blocks(spec) >= 2 * all && thin::has_panels(w, spec)
        };
        let mut tiles = Vec::new();
        for parts in PARTS.into_iter().filter(|parts| *parts > 1) {
            for swap_ab in [SwapAb::Straight, SwapAb::Swapped] {
                for (long, warpgroups) in LONG {
                    for columns in fitted_columns(spec, swap_ab, (long, warpgroups), all / parts) {
                        let tile = (swap_ab.block(long, columns), warpgroups);
                        tiles.push(Wgmma::of_operands(spec, swap_ab, tile, target).in_parts(parts, spec, target));
                    }
                }
            }
        }
        tiles.retain(suits);
        let partners: Vec<_> = tiles.iter().flat_map(|w| w.with_partners(spec, target)).collect();
        let works = tiles.into_iter().chain(partners).map(|w| (w.work(spec, target), w)).collect();
        let cheapest = ranked(works, 1.0, &target.device()).into_iter().take(MOST_PARTED);
        cheapest.map(|(_, w)| w).collect()
    }

    /// Tiles of persistent blocks, in two waves or more.
    fn fitted_to_waves(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        // Swapped operands leave by stmatrix.
        let in_pairs = bytes(spec.out) != 2 || !Accumulators::of(spec).converts();
        let orders = if in_pairs { &[SwapAb::Straight][..] } else { &[SwapAb::Straight, SwapAb::Swapped] };
        let of = |waves: i64| {
            let tiles = orders.iter().flat_map(|order| LONG.map(|long| (*order, long)));
            tiles.flat_map(move |(swap_ab, (long, warpgroups))| {
                let most = waves * i64::from(processors(target));
                fitted_columns(spec, swap_ab, (long, warpgroups), most).flat_map(move |columns| {
                    let block = swap_ab.block(long, columns);
                    Wgmma::in_waves(spec, swap_ab, (block, warpgroups), waves, target)
                })
            })
        };
        let suits = |w: &Wgmma| w.k_stages(spec) >= MANY_STAGES && w.block.iter().any(|side| side % ROWS != 0);
        let many = MANY_WAVES.flat_map(of).filter(suits).map(|w| (w.work(spec, target), w)).collect();
        let mut many: Vec<Wgmma> = ranked(many, 1.0, &target.device()).into_iter().map(|(_, w)| w).collect();
        many.dedup();
        WAVES.flat_map(of).chain(many.into_iter().take(MOST_OF_MANY_WAVES)).collect()
    }

    /// Such tiles, alone and where their rows cross lines in clusters.
    fn in_waves(
        spec: &GemmSpec,
        swap_ab: SwapAb,
        tile: ([i64; 2], i64),
        waves: i64,
        target: &Target,
    ) -> impl Iterator<Item = Wgmma> {
        let w = Wgmma::of_operands(spec, swap_ab, tile, target);
        // One stage of C leaves the ring more room than two.
        let roomy = |w: Wgmma| match w.stages < LEAST_STAGES {
            true => Wgmma { out_stages: 1, ..w }.with_slots(spec, target, MOST_STAGES),
            false => w,
        };
        let alone = roomy(Wgmma { cluster: [1, 1], ..w }.with_slots(spec, target, MOST_STAGES));
        let w = roomy(w);
        // Beside a producer the ring leaves no room for C; a short one does not hide the loads.
        let long = move |w: &Wgmma| w.stages >= LEAST_STAGES && w.shared(spec) <= room(target);
        let busy = move |w: &Wgmma| {
            w.k_stages(spec) >= LEAST_STAGES && w.blocks(spec) <= waves * i64::from(processors(target))
        };
        let fits = move |w: &Wgmma| w.persistent && busy(w) && w.fits_beside_producer();
        let both = [Some(alone), (w != alone).then_some(w)].into_iter().flatten();
        both.filter(move |w| fits(w) && thin::has_panels(w, spec) && long(w))
    }
}

/// Columns of instructions that make at most so many tiles, if a thread has registers for their accumulators.
fn fitted_columns(
    spec: &GemmSpec,
    swap_ab: SwapAb,
    (long, warpgroups): (i64, i64),
    most_tiles: i64,
) -> impl Iterator<Item = i64> {
    let most = if spec.epilogue { MOST_WITH_EPILOGUE } else { MOST_ACCUMULATORS };
    let tiles = most_tiles / up([spec.m, spec.n][swap_ab.rows()], long);
    let parts = if tiles > 0 { thin::parts(spec, swap_ab, tiles) } else { Vec::new() };
    let fits = move |columns: &i64| COLUMNS.contains(columns) && long * columns / (128 * warpgroups) <= most;
    parts.into_iter().filter(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::{Gemm, Product, schedule};
    use crate::lower::lower;
    use crate::sample::drawn;
    use crate::te::Layout;

    #[test]
    fn whole_waves_are_first_where_panels_make_parts_of_waves() {
        let chosen = |m, n, k, layout| {
            let spec = GemmSpec::of(m, n, k, DType::F16, layout);
            let w = Wgmma::choose(&spec, &Target::sm_90a()).unwrap();
            (w.block[1] % 64, w.blocks(&spec))
        };
        let waves = |(beyond_panels, blocks): (i64, i64), waves: i64| {
            beyond_panels > 0 && (132 * waves - 16..=132 * waves).contains(&blocks)
        };
        assert!(waves(chosen(7360, 592, 13232, Layout::NT), 1));
        assert!(waves(chosen(2634, 2432, 6560, Layout::NT), 2));
        // Whole waves of panels.
        assert_eq!(chosen(2048, 2048, 2048, Layout::NT), (0, 128));
    }

    #[test]
    fn swapped_tiles_of_several_waves_are_first_where_they_divide_the_gemm_better() {
        // 8 by 33 tiles are two waves; straight ones of 128 rows are more or longer.
        let gemm = Gemm::new(1670, 4192, 14272).of(DType::Bf16);
        let spec = *gemm.spec();
        let w = Wgmma::choose(&spec, &Target::sm_90a()).unwrap();
        assert_eq!((w.block, w.swap_ab, w.persistent), ([216, 128], SwapAb::Swapped, true));
        assert_eq!(w.blocks(&spec), 264);
        // Results of 32 bits leave in pairs.
        let wide = GemmSpec { out: DType::F32, ..spec };
        let all = Wgmma::fitted_tiles(&wide, &Target::sm_90a());
        assert!(all.iter().all(|w| !w.swap_ab.is_swapped()) && !all.is_empty());
    }

    /// The first tiles, and a sample of the others. The waves of all tiles are counted.
    #[test]
    fn every_tile_lowers() {
        let target = Target::sm_90a();
        let sizes = [[7360, 592, 1328], [2920, 704, 488], [1792, 1920, 1500], [1208, 4544, 1014], [256, 9408, 48]];
        let mut count = 0;
        for (dtype, layout) in [DType::F16, DType::S8].into_iter().flat_map(|d| Layout::ALL.map(|l| (d, l))) {
            for [m, n, k] in sizes {
                let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
                for w in Wgmma::fitted_tiles(gemm.spec(), &target) {
                    let waves = if w.persistent { *MANY_WAVES.end() } else { 1 };
                    assert!(w.blocks(gemm.spec()) <= waves * 132, "{w:?} of {m}x{n}x{k}");
                    count += 1;
                    if count > 1 && !drawn(&format!("fitted {w:?} of {gemm:?}"), 4) {
                        continue;
                    }
                    let schedule = schedule(&Product::of_gemm(&gemm).unwrap(), &target, w.steps(gemm.spec())).unwrap();
                    let lowered = schedule.scheduled().and_then(|func| lower(&func, &target));
                    assert!(lowered.is_ok(), "{w:?} of {m}x{n}x{k} {}: {}", layout.name(), lowered.unwrap_err());
                }
            }
        }
        assert!(count > 60, "{count}");
    }
}
