//! Tiles for two warpgroups in ping-pong.
//!
//! Cooperative warpgroups issue no MMA during the epilogue of their tile, which takes twice as long for results of 32 bits, and the accumulators limit the
//! tile to 128 x 256. A warpgroup in
//! ping-pong has 128 rows and up to 192 columns of its own, and the tensor cores run the MMAs of the other during its epilogue. The
//! price is a bubble between stages, and more bytes from L2 for each MMA.
//!
//! On an H200 a stage takes some 27 cycles more than its MMAs in ping-pong, at every width; a cooperative stage of 128 x 256 takes 40
//! more, and each tile 2000. On an H100 sustained products in ping-pong also wait for their bytes ([`tuning::PINGPONG_L2_SHARE`]). So three
//! things decide: whether the multiprocessors have equally many tiles, how short k is, and how many bytes an MMA takes. On an H200
//! 4096x14336x4096 NT takes 4 % less in ping-pong at 128 x 176, 8 x 1024^3 4 % at 128 x 128, 8192^3 2 % at 128 x 168; on an H100 4096x14336x4096 TT
//! takes 2 % less at 128 x 176, 8192^3 NT 2 % more at 128 x 192.
//!
//! Swapped operands (C^T = B^T A^T) give a warpgroup 128 columns and up to 192 rows. Where A's rows run along k and B's do not (NN), these
//! rows may be any multiple of 8, and the columns of straight operands only whole panels of 32: 8192^3 NN has the 1568 tiles of NT then.
//! On an H100 5120^3 NN takes 0.91 of the time of 128 x 256 in 160 x 256 so, 8192x8192x1024 NN 0.95 and 8192^3 NT 0.99 in 168 x 256; each is a quotient
//! of ratios to the library (h100-2026-11-28).

use super::cost::pays_for_bytes;
use super::epilogue::STORE_PARTS;
use super::swapped::store_rows;
use super::thin::{fine_step, has_panels};
use super::{Accumulators, ROWS, SwapAb, Wgmma, bytes, room};
use crate::dtype::DType;
use crate::gemm::packing::Source;
use crate::gemm::tuning;
use crate::target::Target;
use crate::te::GemmSpec;

/// Rows of C of a warpgroup, or columns with swapped operands.
const TALL: i64 = 2 * ROWS;
/// Columns of C of a warpgroup, or rows with swapped operands. More leave no registers for addresses; of fewer the bubble between stages
/// is more than a sixteenth of the MMAs.
const LEAST: i64 = 112;
const MOST: i64 = 192;
/// The most where an epilogue follows, whose functions take registers beside the accumulators: ptxas spills 436 bytes of gelu and 1164 of
/// bias, gelu and residual at 168 columns, and none of a cooperative tile with 128 accumulators a thread.
const MOST_WITH_EPILOGUE: i64 = 128;
/// Minimum number of k iterations: fewer do not hide the other warpgroup's epilogue (64 x 512^3 of bf16, with 8, takes 2 % more;
/// 15696x6592x264 TT of f16, with 5, 10 % with the widest tile and 23 to 58 % with others on an H100).
const MIN_ITERATIONS: i64 = 16;

/// Columns of a warpgroup's tile, or rows with swapped operands, that an instruction has and that the epilogue stores in parts without bank conflicts.
fn widths(swap_ab: SwapAb, spec: &GemmSpec) -> impl Iterator<Item = i64> {
    let bytes = bytes(spec.out);
    let part = move |width| match swap_ab {
        SwapAb::Straight => super::epilogue::store_columns(width, bytes, true),
        SwapAb::Swapped => store_rows(width, STORE_PARTS),
    };
    let step = usize::try_from(fine_step(spec, LEAST)).unwrap_or(1);
    (LEAST..=MOST).step_by(step).filter(move |width| part(*width).is_some())
}

impl Wgmma {
    /// The ping-pong tiles of a GEMM of 16-bit floats or of bytes with persistent blocks, the cheapest first.
    pub(super) fn pingpong_tiles(spec: &GemmSpec, swap_ab: SwapAb, target: &Target) -> Vec<Wgmma> {
        let all = widths(swap_ab, spec).filter_map(|width| Wgmma::pingpong(spec, swap_ab, width, target));
        let mut all: Vec<(f64, Wgmma)> = all.map(|w| (w.mma_cycles(spec, target), w)).collect();
        let least = all.iter().map(|(cycles, _)| *cycles).fold(f64::INFINITY, f64::min);
        // Of tiles with equal cycles the widest is first: it moves the fewest bytes.
        let key = |(cycles, w): &(f64, Wgmma)| {
            if *cycles < tuning::SAME_CYCLES * least {
                (0.0, -w.block[swap_ab.columns() as usize])
            } else {
                (*cycles, 0)
            }
        };
        all.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        all.into_iter().map(|(_, w)| w).collect()
    }

    /// Adds the ping-pong tiles of swapped operands that take fewer cycles than all of straight operands: first where they gain over the first
    /// candidate, else last.
    pub(super) fn with_swapped_tiles(mut all: Vec<Wgmma>, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let straight = all.iter().filter(|w| w.pingpong).map(|w| w.mma_cycles(spec, target));
        let straight = straight.fold(f64::INFINITY, f64::min);
        let mut swapped = Wgmma::pingpong_tiles(spec, SwapAb::Swapped, target);
        swapped.retain(|w| tuning::SAME_CYCLES * w.mma_cycles(spec, target) < straight);
        let best = swapped.first().zip(all.first());
        let gains = best.is_some_and(|(swapped, first)| swapped.gains_over(first, spec, target));
        let at = if gains { 0 } else { all.len() };
        all.splice(at..at, swapped);
        all
    }

    /// Ping-pong tiles of this many columns, or rows with swapped operands, if the recipe has a form for the GEMM.
    fn pingpong(spec: &GemmSpec, swap_ab: SwapAb, width: i64, target: &Target) -> Option<Wgmma> {
        let mut block = [2 * TALL, width];
        if swap_ab.is_swapped() {
            block.reverse();
        }
        let alone = Wgmma { cluster: [1, 1], ..Wgmma::of(spec, block, 2, target) };
        let w = Wgmma { pingpong: true, swap_ab, ..alone };
        // Results of 16 bits are converted, those of 32 bits are the accumulators themselves, which stmatrix does not transpose.
        let leaves = match Accumulators::of(spec).converts() {
            true => bytes(spec.out) == 2,
            false => bytes(spec.out) == 4 && !swap_ab.is_swapped(),
        };
        let suited = (spec.a.bits() == 16 || spec.acc == DType::S32 && spec.a.bits() == 8)
            && leaves
            && (!spec.epilogue || width <= MOST_WITH_EPILOGUE)
            && w.persistent
            && w.routes == [Source::Direct; 2];
        let w = Wgmma { out_stages: 1, ..w }.with_slots(spec, target, 6);
        (suited
            && has_panels(&w, spec)
            && w.k_stages(spec) >= MIN_ITERATIONS
            && w.stages > 3
            && w.shared(spec) <= room(target))
        .then_some(w)
    }

    /// Whether ping-pong gains enough over other tiles: the more bytes it moves for each MMA, the more, where it pays for them.
    pub(super) fn gains_over(&self, other: &Wgmma, spec: &GemmSpec, target: &Target) -> bool {
        let bytes_of = |w: &Wgmma| w.stage_bytes(spec) as f64 / w.stage_tile().iter().product::<i64>() as f64;
        let more = if pays_for_bytes(spec) { (bytes_of(self) / bytes_of(other) - 1.0).max(0.0) } else { 0.0 };
        let share = 1.0 - tuning::PINGPONG_BYTES * more;
        other.persistent && self.mma_cycles(spec, target) < share * other.mma_cycles(spec, target)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SwapAb;
    use super::widths;
    use crate::dtype::DType;
    use crate::gemm::recommend::offered;
    use crate::gemm::{Gemm, Product, candidates, recommend};
    use crate::sample::drawn;
    use crate::target::Target;
    use crate::te::{GemmSpec, Layout};

    /// The name of the tiles that are offered first. For a sample of the GEMMs they are the first of the candidates, which lower.
    fn chosen(gemm: &Gemm) -> String {
        let target = Target::sm_90a();
        let name = offered(&Product::of_gemm(gemm).unwrap().spec, &target, 1)[0].name();
        if drawn(&format!("chosen {gemm:?}"), 4) {
            assert_eq!(candidates(gemm, &target).unwrap().swap_remove(0).0, name);
        }
        name
    }

    #[test]
    fn ping_pong_is_first_where_it_divides_the_gemm_better() {
        let of = |m, n, k, layout| chosen(&Gemm::new(m, n, k).of(DType::F16).layout(layout));
        // Sums of 16 stages leave 128 x 256 the epilogues that ping-pong hides.
        for layout in [Layout::NN, Layout::NT] {
            assert_eq!(of(8192, 8192, 1024, layout), "wgmma 256x192 in ping-pong");
        }
        // Whole waves of 1312 tiles of 128 x 176.
        assert_eq!(of(4096, 14336, 4096, Layout::TT), "wgmma 256x176 in ping-pong");
        // Whole waves of 1568 tiles, which take 0.99 of the time of 128 x 256 on an H200 (h200-2026-11-28/waves.jsonl).
        assert_eq!(of(8192, 8192, 8192, Layout::NT), "wgmma 168x256, A and B swapped");
        // One wave, and what moves too many bytes for what it wins.
        assert_eq!(of(2048, 2048, 2048, Layout::NT), "wgmma 128x256");
        assert_eq!(of(16384, 16384, 16384, Layout::NT), "wgmma 128x256");
        // Accumulators of 16 stages, and of 8.
        let batch = |n, k| chosen(&Gemm::new(n, n, k).of(DType::F16).batch(64));
        assert_eq!([batch(1024, 1024), batch(1024, 512)], ["wgmma 256x128 in ping-pong", "wgmma 128x256"]);
    }

    #[test]
    fn ping_pong_hides_the_epilogues_of_bytes() {
        let of = |n, dtype| chosen(&Gemm::new(n, n, n).of(dtype).layout(Layout::NT));
        assert_eq!(of(4096, DType::S8), "wgmma 256x128 in ping-pong");
        // 1824 tiles of 128 x 144 are 14 waves of 144 columns, 2048 of 128 x 128 are 16.
        assert_eq!(of(8192, DType::S8), "wgmma 256x144 in ping-pong");
        assert_eq!(of(16384, DType::S8), "wgmma 256x192 in ping-pong");
        // One wave.
        assert_eq!(of(2048, DType::S8), "wgmma 128x256");
    }

    #[test]
    fn every_width_lowers_in_its_stages() {
        let gemm = Gemm::new(8192, 8192, 8192).of(DType::Bf16).layout(Layout::NT);
        let all = candidates(&gemm, &Target::sm_90a()).unwrap();
        let pingpong_tiles: Vec<_> = all.iter().filter(|(name, _)| name.ends_with("in ping-pong")).collect();
        assert_eq!(pingpong_tiles.len(), widths(SwapAb::Straight, gemm.spec()).count());
        for (name, schedule) in pingpong_tiles {
            let lowered = crate::lower::lower(&schedule.scheduled().unwrap(), &schedule.target);
            assert!(lowered.is_ok(), "{name}: {}", lowered.unwrap_err());
        }
        let short = Gemm::new(8192, 8192, 1024).of(DType::Bf16).layout(Layout::NT);
        let reason = recommend(&short, &Target::sm_90a()).unwrap().to_string();
        assert!(reason.contains("of 2 warpgroups in ping-pong: 1376 blocks in 10.42 waves"), "{reason}");
    }

    /// The names of the ping-pong candidates with swapped operands and their places.
    fn swapped(gemm: &Gemm) -> Vec<(usize, String)> {
        let names = candidates(gemm, &Target::sm_90a()).unwrap().into_iter().map(|(name, _)| name);
        names.enumerate().filter(|(_, name)| name.ends_with("in ping-pong, A and B swapped")).collect()
    }

    /// The first GEMM, and a sample of the others: all candidates of a GEMM are lowered.
    #[test]
    fn swapped_operands_are_candidates_where_they_divide_the_gemm_better() {
        let of = |m, n, k, layout| swapped(&Gemm::new(m, n, k).of(DType::F16).layout(layout));
        let from_first = |rows: &[i64]| {
            let name = |m: &i64| format!("wgmma {m}x256 in ping-pong, A and B swapped");
            (0..).zip(rows.iter().map(name)).collect::<Vec<_>>()
        };
        // Before all others where they gain, else behind all.
        assert_eq!(of(5120, 5120, 1024, Layout::NN)[0].0, 0);
        // 920 tiles are 6.97 waves, which take 0.99 of the time of ping-pong on an H200 (h200-2026-11-28/waves.jsonl).
        assert_eq!(chosen(&Gemm::new(5120, 5120, 5120).of(DType::F16)), "wgmma 224x128, A and B swapped");
        // As many tiles as with straight operands, or whole panels for both operands, or more bytes than those have.
        for layout in Layout::ALL.into_iter().filter(|layout| drawn(&format!("swapped 8192 {}", layout.name()), 4)) {
            assert_eq!(of(8192, 8192, 8192, layout), []);
        }
        // 256 rows and 256 columns of a block divide rectangles differently. One wave has no persistent blocks.
        let others = [
            ([14336, 4096, 1024], Layout::NN, &[176, 160][..]),
            ([4096, 14336, 1024], Layout::NT, &[]),
            ([1024, 1024, 1024], Layout::NN, &[]),
        ];
        for ([m, n, k], layout, rows) in others.into_iter().filter(|other| drawn(&format!("swapped {other:?}"), 3)) {
            assert_eq!(of(m, n, k, layout), from_first(rows));
        }
    }

    #[test]
    fn every_swapped_width_lowers() {
        // NN has the widths that NT has with straight operands.
        for swap_ab in [SwapAb::Straight, SwapAb::Swapped] {
            let spec = GemmSpec::of(8192, 8192, 8192, DType::F16, Layout::NN);
            assert_eq!(widths(swap_ab, &spec).collect::<Vec<_>>(), [112, 120, 128, 144, 160, 168, 176, 192]);
        }
        // Instructions of bytes have a multiple of 16 columns.
        let bytes = GemmSpec::of(8192, 8192, 8192, DType::S8, Layout::NT);
        let bytes = GemmSpec { acc: DType::S32, out: DType::S32, ..bytes };
        assert_eq!(widths(SwapAb::Straight, &bytes).collect::<Vec<_>>(), [128, 144, 160, 192]);
        let target = Target::sm_90a();
        let of = |m, n, k| Gemm::new(m, n, k).of(DType::Bf16).layout(Layout::NN);
        for gemm in [of(8192, 8192, 8192), of(8200, 8208, 1096), of(2048, 2048, 1024).batch(8)] {
            let all = super::Wgmma::pingpong_tiles(gemm.spec(), SwapAb::Swapped, &target);
            assert_eq!(all.len(), widths(SwapAb::Swapped, gemm.spec()).count());
            for w in all {
                let schedule = crate::gemm::schedule(
                    &crate::gemm::Product::of_gemm(&gemm).unwrap(),
                    &target,
                    w.steps(gemm.spec()),
                )
                .unwrap();
                let lowered = crate::lower::lower(&schedule.scheduled().unwrap(), &target);
                assert!(lowered.is_ok(), "{:?} of {:?}: {}", w.block, gemm.spec(), lowered.unwrap_err());
            }
        }
    }
}
