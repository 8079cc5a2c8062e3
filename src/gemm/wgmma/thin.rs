//! Tiles for products of few rows or columns. The n extent of a wgmma is the short dimension of C: N, or M with swapped operands (C^T = B^T A^T).
//!
//! C has few such tiles, so k is divided among the blocks of a cluster (split-K). The ring fills shared memory with one block, or with two or four that
//! share a multiprocessor, and a stage has one line of each row or several.

use super::{
    Accumulators, DEPTH, Epilogue, LEAST_STAGES, LINE, MOST_STAGES, Operand, PARTS, ROWS, SwapAb, Wgmma, bytes,
    in_bytes, known, processors, room, runs_along_k, shares_out, up,
};
use crate::gemm::split::Combine;
use crate::gemm::work::ranked;
use crate::target::{BOX_SIDE, Features, Target};
use crate::te::GemmSpec;

/// Columns of an instruction at most.
const MOST: i64 = 256;
/// Rows or columns of C up to which these tiles are tried: with more, the tiles of large products have as little beyond C.
const FEW: i64 = 2 * MOST;
/// What the columns of instructions are a multiple of: up to 32, and beyond that for 16-bit elements.
const STEP: i64 = 8;
/// The long side of a block's tile, and warpgroups that share it.
const LONG: [(i64, i64); 3] = [(ROWS, 1), (2 * ROWS, 1), (2 * ROWS, 2)];
/// Accumulators of a thread at most.
const MOST_ACCUMULATORS: i64 = 128;
/// Stages of the ring at most.
const STAGES: i64 = 16;
/// Lines of a row in a deep stage of 64 rows. 8x28672x8192 NT of f16 takes 159.5 us on an H100 in 8 x 64 with six stages of four lines, 160.4 in 8 x 128
/// with three stages of two lines, 166 in the first with two lines, and 1x28672x8192 171 in 8 x 128 with 13 stages of one line; 109, 109, 108 and 110 on an H200
/// (h200-2026-11-28/lines.jsonl).
const LINES: i64 = 4;
/// Blocks that share a multiprocessor, with shorter rings.
const RESIDENT: [i64; 2] = [2, 4];
/// Columns of instructions above which a ring has no more stages than that of other tiles: blocks with more in flight run apart, and L2 answers each by
/// itself. On an H100 384x1536x8192 NT of bf16 takes 31.1 us in 64 x 72 with 13 stages and 23.8 with 8, 2925x256x4992 NT of f16 24.0 in 96 x 64 with
/// 11 and 22.8 with 8.
const WIDE: i64 = 64;
/// Bytes of the shortest rows of a TMA box of an MN-major operand, of which tiles have whole multiples. The model counts a shorter row as a line
/// (`l2_bytes`). f16 on an H100, by wgmma and by mma.sync (no record was kept): 16x9888x128 TT 5.2 us with 16 bytes, 3.6 with 32, 2.7; 16x11008x512 TT 7.1
/// with 32 bytes, 5.9; 7168x16x15904 NN 82 with 32 bytes, 90.
const PANEL: i64 = 64;

impl Wgmma {
    /// The tiles, the cheapest first.
    pub(super) fn thin_tiles(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let known = known(spec) && in_bytes(spec.k, spec) >= DEPTH && target.has(Features::WGMMA | Features::TMA);
        if !known || spec.batch.is_some() {
            return Vec::new();
        }
        let (mut all, most) = (Vec::new(), i64::from(target.limits.cluster));
        for swap_ab in [SwapAb::Swapped, SwapAb::Straight] {
            for columns in columns(spec, swap_ab) {
                for (long, warpgroups) in LONG {
                    let block = swap_ab.block(long, columns);
                    if block[0] * block[1] / (128 * warpgroups) <= MOST_ACCUMULATORS {
                        let of = |parts| Wgmma::alone(spec, swap_ab, (block, warpgroups), parts, target);
                        let tiles: Vec<_> = PARTS.into_iter().filter(|parts| *parts <= most).filter_map(of).collect();
                        let deep = tiles.iter().flat_map(|w| w.with_deep_stages(spec, target));
                        all.extend(tiles.iter().flat_map(|w| w.with_shorter_rings(spec, target)).chain(deep));
                    }
                }
            }
        }
        let works = all.into_iter().map(|w| (w.work(spec, target), w)).collect();
        ranked(works, 1.0, &target.device()).into_iter().map(|(_, w)| w).collect()
    }

    /// The same tiles with stages of several lines of each row, where operands run along k: what is next to each other in device memory is asked for
    /// together. 64 rows have [`LINES`] lines and a ring that fills shared memory, or half as many lines where fewer than four stages of that fit: 48x4096x4096
    /// NT of f16 takes 10.65 us on an H200 with seven stages of two lines, 10.80 with 15 of one, and 112x4096x4096 12.3 with four of two lines, 12.1
    /// with eight of one. 128 rows have half as many lines and leave room for a second block. Four lines
    /// of bytes have more elements than the side of a TMA box. A kernel for a range of M has either: where few rows are loaded, more of the shorter stages fit.
    fn with_deep_stages(&self, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let long = self.block[self.swap_ab.rows()] / ROWS;
        let along_k = Operand::BOTH.into_iter().all(|operand| self.tile_along_k(spec, operand));
        let deep = |lines: i64| Wgmma { bk: lines / long * self.bk, ..*self };
        let suits = |w: &Wgmma| w.bk <= BOX_SIDE && w.k_stages(spec) >= LEAST_STAGES;
        if in_bytes(self.bk, spec) < LINE || !along_k {
            return Vec::new();
        }
        let fits = |w: &Wgmma| w.shared(spec) <= room(target) && w.resident(spec, target) >= long;
        let ring = |w: Wgmma, least: i64, most: i64| {
            (least..=most).rev().map(|stages| Wgmma { stages, ..w }).find(fits).filter(|_| suits(&w))
        };
        let (most, of_range) = (LEAST_STAGES + 2, spec.least_m.is_some());
        // A sum of fewer stages is on its way as a whole. Fewer rows of a range have more stages.
        let narrow = long == 1 && (of_range || self.block[1 - self.swap_ab.rows()] <= WIDE);
        let least = if of_range { LEAST_STAGES } else { most };
        let few = || ring(deep(LINES / 2), least, 2 * most).filter(|w| narrow && w.k_stages(spec) >= most);
        let deepest = ring(deep(LINES), LEAST_STAGES + 1 - long, most);
        let rings = if of_range { vec![deepest, few()] } else { vec![deepest.or_else(few)] };
        let in_k = |ring: Wgmma| Wgmma { stages: ring.stages.min(ring.k_stages(spec)), ..ring };
        rings.into_iter().flatten().map(|ring| in_k(ring).with_early_release(spec, target)).collect()
    }

    /// The same tiles, and where there are more blocks than multiprocessors those with shorter rings: of blocks that share a multiprocessor some load while
    /// others begin or add up parts. On an H200 16x11008x4096 NT of s8 takes 15.3 us in 16 x 64 in two parts of k with 16 stages, and 13.2 with 6.
    fn with_shorter_rings(&self, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let of = |blocks: i64| {
            let fits = |stages: &i64| Wgmma { stages: *stages, ..*self }.resident(spec, target) >= blocks;
            let stages = (LEAST_STAGES..self.stages).rev().find(fits)?;
            Some(Wgmma { stages, ..*self }.with_early_release(spec, target))
        };
        let many = self.blocks(spec) > processors(target).into();
        let shorter = RESIDENT.into_iter().filter(|_| many).filter_map(of);
        let mut all: Vec<Wgmma> = std::iter::once(*self).chain(shorter).collect();
        all.dedup();
        all
    }

    /// These tiles among others, by their cycles.
    pub(super) fn with_tiles_alone(
        mut all: Vec<Wgmma>,
        alone: Vec<Wgmma>,
        spec: &GemmSpec,
        target: &Target,
    ) -> Vec<Wgmma> {
        let mut cycles: Vec<f64> = all.iter().map(|w| w.cycles(spec, target)).collect();
        for w in alone {
            let own = w.cycles(spec, target);
            let at = cycles.iter().position(|other| own < *other).unwrap_or(all.len());
            all.insert(at, w);
            cycles.insert(at, own);
        }
        all
    }

    /// Tiles of blocks that have one each, with so many parts of k; `None` where the recipe has no form for them.
    pub(super) fn alone(
        spec: &GemmSpec,
        swap_ab: SwapAb,
        (block, warpgroups): ([i64; 2], i64),
        parts: i64,
        target: &Target,
    ) -> Option<Wgmma> {
        let plain = Wgmma::of(spec, block, warpgroups, target);
        let alone = Wgmma { cluster: [1, 1], persistent: false, producer: false, ..plain };
        let w = Wgmma { swap_ab, out_stages: 1, grid_dependency: 2, l2_prefetch: false, ..alone };
        // A lone tile of swapped operands leaves by stmatrix.
        let in_pairs = swap_ab.is_swapped() && !(bytes(spec.out) == 2 && Accumulators::of(spec).converts());
        // One of straight operands leaves in panels, or in two halves of whole matrices.
        let [_, n] = block;
        let whole = super::epilogue::store_columns(n, bytes(spec.out), false).is_some() || n % (2 * STEP) == 0;
        let leaves = parts > 1 || w.stores_by_tma() && !in_pairs && (whole || swap_ab.is_swapped());
        let long = parts == 1 || up(spec.k, w.bk) >= LEAST_STAGES * parts;
        let few = w.tiles(spec).saturating_mul(parts) <= 4 * i64::from(target.device().multiprocessors);
        if !leaves || !has_panels(&w, spec) || !long || !few {
            return None;
        }
        let divided = Wgmma { parts, epilogue: Epilogue::Direct, combine: Combine::Cluster, ..w };
        let adds = shares_out(block, parts, 128 * warpgroups);
        let stages = if block[1 - swap_ab.rows()] > WIDE { MOST_STAGES } else { STAGES };
        let w = if parts > 1 { divided } else { w }.with_slots(spec, target, stages);
        ((parts == 1 || adds) && w.shared(spec) <= room(target)).then_some(w)
    }
}

/// Numbers of columns of instructions: equal parts of a side of C, as few as there can be or twice as many.
fn columns(spec: &GemmSpec, swap_ab: SwapAb) -> Vec<i64> {
    let side = [spec.m, spec.n][1 - swap_ab.rows()];
    if side > FEW {
        return Vec::new();
    }
    let fewest = up(side, MOST);
    let mut all: Vec<i64> = [fewest, 2 * fewest].into_iter().flat_map(|tiles| parts(spec, swap_ab, tiles)).collect();
    all.dedup();
    all
}

/// Columns of the instructions of so many equal parts of a side of C: for each of their [`steps`] the next multiple.
pub(super) fn parts(spec: &GemmSpec, swap_ab: SwapAb, tiles: i64) -> Vec<i64> {
    let columns = up([spec.m, spec.n][1 - swap_ab.rows()], tiles);
    let mut all: Vec<i64> = steps(spec, swap_ab, columns).map(|step| up(columns, step) * step).collect();
    all.dedup();
    all
}

/// What the columns of an instruction are a multiple of, where they are about so many.
pub(super) fn fine_step(spec: &GemmSpec, columns: i64) -> i64 {
    if spec.a.bits() < 16 && columns > 4 * STEP { 2 * STEP } else { STEP }
}

/// What so many columns of instructions are a multiple of: the instruction's own step, and where the operand that gives them does not run along k,
/// whole short panels, or either: tiles of whole short panels begin with sectors of L2.
fn steps(spec: &GemmSpec, swap_ab: SwapAb, columns: i64) -> impl Iterator<Item = i64> {
    let bits = i64::from(spec.a.bits());
    let (fine, panel) = (Some(fine_step(spec, columns)), 8 * PANEL / bits);
    let both = match runs_along_k(swap_ab.columns(), spec) {
        true => [fine, None],
        false => [fine.filter(|_| columns * bits > 8 * LINE), Some(panel)],
    };
    both.into_iter().flatten()
}

/// Whether the rows of a tile that give the columns of instructions are whole panels or longer than a line, where they do not run along k, and C has as many: 8x3312x408
/// TT of f16 takes 6.0 us on an H100 in panels of 32 elements, of which 24 are beyond C, the library 4.0 (h100-2026-11-27).
pub(super) fn has_panels(w: &Wgmma, spec: &GemmSpec) -> bool {
    let side = w.swap_ab.columns().rows(spec);
    let [row, used] = [w.block[1 - w.swap_ab.rows()], up(side, STEP) * STEP].map(|elements| in_bytes(elements, spec));
    runs_along_k(w.swap_ab.columns(), spec) || (row % PANEL == 0 || row > LINE) && used >= PANEL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::{Gemm, Product, schedule};
    use crate::lower::lower;
    use crate::sample::drawn;
    use crate::te::Layout;

    fn choice([m, n, k]: [i64; 3], dtype: DType) -> (GemmSpec, Wgmma) {
        let spec = *Gemm::new(m, n, k).of(dtype).layout(Layout::NT).spec();
        let first = Wgmma::thin_tiles(&spec, &Target::sm_90a()).into_iter().next();
        (spec, first.unwrap())
    }

    #[test]
    fn large_weights_are_read_in_several_lines_of_a_row() {
        for (dtype, row) in [(DType::F16, 4 * LINE), (DType::S8, 2 * LINE)] {
            let (spec, w) = choice([8, 28672, 8192], dtype);
            assert_eq!(in_bytes(w.bk, &spec), row, "{w:?}");
        }
    }

    /// Four lines where four stages of them fit, else two where six fit, and one where the sum has fewer stages than that.
    #[test]
    fn stages_have_as_many_lines_as_the_ring_has_room_for() {
        for (size, dtype, wanted) in [
            ([16, 4096, 4096], DType::F16, (4 * LINE, 5)),
            ([48, 4096, 4096], DType::F16, (2 * LINE, 7)),
            ([64, 4096, 4096], DType::F16, (2 * LINE, 6)),
            ([112, 4096, 4096], DType::F16, (LINE, 8)),
            ([8, 4096, 4096], DType::S8, (2 * LINE, 8)),
            ([60, 2048, 2048], DType::S8, (LINE, 8)),
        ] {
            let (spec, w) = choice(size, dtype);
            assert_eq!((in_bytes(w.bk, &spec), w.stages), wanted, "{size:?} {dtype}: {w:?}");
        }
    }

    #[test]
    fn more_blocks_than_multiprocessors_share_them() {
        for dtype in [DType::F16, DType::S8] {
            let (spec, w) = choice([16, 11008, 4096], dtype);
            let all = i64::from(processors(&Target::sm_90a()));
            assert!(w.blocks(&spec) > 2 * all && w.resident(&spec, &Target::sm_90a()) == 4, "{w:?}");
        }
    }

    /// A sample of the tiles, and the first of each GEMM.
    #[test]
    fn every_tile_lowers() {
        let target = Target::sm_90a();
        let sizes =
            [[8, 4096, 4096], [64, 11008, 4096], [60, 500, 7000], [3000, 40, 2049], [1, 77, 900], [300, 264, 700]];
        for (dtype, layout) in [DType::F16, DType::S8].into_iter().flat_map(|d| Layout::ALL.map(|l| (d, l))) {
            for [m, n, k] in sizes {
                let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
                for (at, w) in Wgmma::thin_tiles(gemm.spec(), &target).into_iter().enumerate() {
                    if at > 0 && !drawn(&format!("thin {w:?} of {gemm:?}"), 4) {
                        continue;
                    }
                    let schedule = schedule(&Product::of_gemm(&gemm).unwrap(), &target, w.steps(gemm.spec())).unwrap();
                    let lowered = schedule.scheduled().and_then(|func| lower(&func, &target));
                    assert!(lowered.is_ok(), "{w:?} of {m}x{n}x{k} {}: {}", layout.name(), lowered.unwrap_err());
                }
            }
        }
    }
}
