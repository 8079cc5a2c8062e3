//! Tiles that take boxes of rows in turn, for a dynamic number of rows M.
//!
//! Of `tiles` tiles along M, tile b has the boxes b, b + tiles, b + 2 tiles .. of `rows` rows of A. So the tiles have equally many rows at every M, but for one box,
//! and as many multiprocessors have work at the least M of a range as at its largest; the kernel leaves boxes beyond M out, and MMAs the columns
//! that they would be. Tiles of rows that follow one another fill a wave at some M alone: 544 x 4096 is 80 tiles of 128 x 256 for the 132 multiprocessors of an
//! H200, and 1024 x 4096 is 128; four interleaved tiles beside 32 of 128 columns are 128 at both.

use super::{Accumulators, Epilogue, SwapAb, Wgmma, processors, room, up};
use crate::gemm::padding::Padding;
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// How tiles share rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleaved {
    /// Tiles along M.
    pub tiles: i64,
    /// Rows of a box: an eighth of a tile or more, as each box is a TMA copy of its own.
    pub rows: i64,
}

/// Rows of a box at least: smaller ones take as long to copy.
const LEAST_ROWS: i64 = 16;
/// Boxes of a tile at most.
const MOST_BOXES: i64 = 8;
/// Columns of an instruction at most, and the least tile.
const MOST_COLUMNS: i64 = 256;
const LEAST_COLUMNS: i64 = 64;
/// Warpgroups of a tile, each with 64 columns of C.
const WARPGROUPS: std::ops::RangeInclusive<i64> = 1..=3;
/// Stages of the ring at most.
const MOST_STAGES: i64 = 16;
/// Waves of blocks at most.
const MOST_WAVES: i64 = 2;

impl Interleaved {
    /// The tile and the row in it, of a row and another index, which have these names.
    fn map(self, names: [&str; 2]) -> IndexMap {
        let Interleaved { tiles, rows } = self;
        IndexMap::new(names, move |[i, j]| {
            let of_turn = i.clone().floordiv(tiles * rows) * rows + i.clone().floormod(rows);
            vec![i.floordiv(rows).floormod(tiles), of_turn, j]
        })
    }
}

impl Wgmma {
    /// The tiles for a range of M up to `spec.m`: as many blocks as fill whole waves, alone and in clusters of two that share tiles of B.
    pub(in crate::gemm) fn interleaved(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let mut out = Vec::new();
        for warpgroups in WARPGROUPS {
            let columns = up(spec.n, 64 * warpgroups);
            for waves in 1..=MOST_WAVES {
                let tiles = waves * i64::from(processors(target)) / columns;
                let rows = up(up(spec.m, tiles.max(1)), MOST_BOXES * 8) * 8;
                let rows = rows.max(LEAST_ROWS);
                let most = up(spec.m, tiles.max(1) * rows) * rows;
                if tiles < 2 || !(LEAST_COLUMNS..=MOST_COLUMNS).contains(&most) {
                    continue;
                }
                let tile = ([most, 64 * warpgroups], warpgroups);
                let alone = Wgmma::alone(spec, SwapAb::Swapped, tile, 1, target).into_iter();
                let alone = alone.filter(|w| w.cluster == [1, 1] && !w.persistent && !w.pingpong);
                let interleaved = Some(Interleaved { tiles, rows });
                // Without a producer warp the boxes of a stage are copied between its MMAs.
                let loading = |w: Wgmma| Wgmma { producer: w.fits_beside_producer(), ..w };
                let alone = alone.map(|w| loading(Wgmma { interleaved, ..w }));
                let all = alone.flat_map(|w| {
                    let shared = (tiles % 2 == 0 && w.producer).then_some(Wgmma { cluster: [2, 1], ..w });
                    [Some(w), shared].into_iter().flatten().map(|w| w.with_slots(spec, target, MOST_STAGES))
                });
                out.extend(all.filter(|w| w.interleaves(spec) && w.shared(spec) <= room(target)));
            }
        }
        out.dedup();
        out
    }

    /// Whether the recipe has such tiles: of a result that leaves by TMA, converted.
    fn interleaves(&self, spec: &GemmSpec) -> bool {
        let plain = spec.batch.is_none() && !self.needs_packing() && self.parts == 1 && !self.promoted && !self.widened;
        plain && self.epilogue == Epilogue::Tma && Accumulators::of(spec).converts() && !self.rows_in_registers
    }

    /// Whether M is more than interleaved tiles have.
    pub(in crate::gemm) fn is_exceeded(&self, spec: &GemmSpec) -> bool {
        self.interleaved.is_some_and(|interleaved| spec.m > interleaved.tiles * self.block[0])
    }

    /// Gives tiles and rows in them loops and dimensions of their own: `i0` and `in`.
    pub(super) fn interleave(&self, s: &mut Steps, padding: &Padding, accumulators: &str) {
        let Some(interleaved) = self.interleaved else { return };
        for buffer in [padding.converted(), "A_pad", padding.written()] {
            s.transform_layout(buffer, interleaved.map(["i", "j"]));
        }
        let blocks =
            [(accumulators, ["i", "j"], ["i0", "in", "j"]), ("out", ["out_i", "out_j"], ["o0", "out_i", "out_j"])];
        for (block, loops, made) in blocks.into_iter().chain([("A_pad", ["A_pad_0", "A_pad_1"], ["p0", "pi", "pk"])]) {
            s.transform_block_layout(block, interleaved.map(loops)).made(made);
        }
    }

    /// Divides the loop over the rows of a tile into boxes, where tiles are interleaved.
    pub(super) fn in_boxes(&self, s: &mut Steps, rows: &str, made: [&str; 2]) {
        if let Some(interleaved) = self.interleaved {
            s.split(rows, [interleaved.rows], made);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::{Gemm, Product};
    use crate::lower::lower;
    use crate::te::Layout;

    #[test]
    fn every_tile_lowers() {
        let target = Target::sm_90a();
        let mut count = 0;
        for (dtype, layout, [m, n, k]) in [
            (DType::F16, Layout::NT, [1024, 4096, 256]),
            (DType::Bf16, Layout::NN, [777, 2000, 200]),
            (DType::F16, Layout::NT, [260, 2112, 64]),
        ] {
            let gemm = Gemm::new(m, n, k).of(dtype).layout(layout).rows_from(1);
            let product = Product::of_gemm(&gemm).unwrap();
            for w in Wgmma::interleaved(&product.spec, &target) {
                let Interleaved { tiles, rows } = w.interleaved.unwrap();
                assert!(tiles * w.block[0] >= m && w.block[0] % rows == 0, "{w:?}");
                let schedule = crate::gemm::schedule(&product, &target, w.steps(&product.spec)).unwrap();
                let lowered =
                    lower(&schedule.scheduled().unwrap(), &target).unwrap_or_else(|e| panic!("{e}\n{schedule}"));
                // A kernel for the largest M alone has as many blocks.
                assert_eq!(i64::from(lowered.kernels[0].grid()[0]), tiles * up(n, 64 * w.warpgroups), "{w:?}");
                count += 1;
            }
        }
        assert!(count > 6, "{count}");
    }

    #[test]
    fn as_many_rows_at_every_m() {
        let tile = |m: i64| {
            let gemm = Gemm::new(1024, 4096, 4096).of(DType::F16).layout(Layout::NT).rows_from(1);
            let spec = GemmSpec { m, ..*gemm.spec() };
            let w = Wgmma::interleaved(&GemmSpec { m: 1024, ..spec }, &Target::sm_90a());
            let w = w.into_iter().find(|w| w.warpgroups == 2).unwrap();
            (w.interleaved.unwrap().tiles, w.in_use(&spec).block[0], w.is_exceeded(&spec))
        };
        // 132 multiprocessors, 32 tiles along N.
        assert_eq!([513, 640, 1024].map(tile), [(4, 160, false), (4, 160, false), (4, 256, false)]);
        assert!(tile(1025).2);
    }
}
