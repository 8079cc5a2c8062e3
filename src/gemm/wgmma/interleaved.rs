//! Tiles that take boxes of rows in turn, for a dynamic number of rows M.
//!
//! Of `tiles` tiles along M, tile b has the boxes b, b + tiles, b + 2 tiles .. of `rows` rows of A. So the tiles have equally many rows at every M, but for one box,
//! and as many multiprocessors have work at the least M of a range as at its largest; the kernel leaves boxes beyond M out, and MMAs the columns
//! that they would be. Tiles of rows that follow one another fill a wave at some M alone: 544 x 4096 is 80 tiles of 128 x 256 for the 132 multiprocessors of an
//! H200, and 1024 x 4096 is 128; four interleaved tiles beside 32 of 128 columns are 128 at both.
//!
//! Where a range has more rows than such tiles, rows come in groups, each a wave of tiles, and persistent blocks walk the groups. Lowering gives the groups of a
//! launch equally many rows (pass `columns`), so its waves are alike at every M.

use super::{Accumulators, Epilogue, SwapAb, Wgmma, processors, room, up};
use crate::gemm::padding::Padding;
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// How tiles share rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleaved {
    /// Tiles along M of a group.
    pub tiles: i64,
    /// Rows of a box: a sixteenth of a tile or more, as each box is a TMA copy of its own.
    pub rows: i64,
    /// Groups of rows.
    pub groups: i64,
}

/// Rows of a box at least: smaller ones take as long to copy.
const LEAST_ROWS: i64 = 16;
/// Boxes of a tile at most. Tiles have up to a box of rows more than an even share.
const MOST_BOXES: i64 = 16;
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
    /// Tiles along M of all groups.
    pub(super) fn all_tiles(self) -> i64 {
        self.tiles * self.groups
    }

    /// The tile and the row in it, of a row and another index, which have these names. A tile has so many rows.
    fn map(self, names: [&str; 2], tile: i64) -> IndexMap {
        let Interleaved { tiles, rows, groups } = self;
        IndexMap::new(names, move |[i, j]| {
            let (of_tile, in_group) = (i.clone().floordiv(rows).floormod(tiles), i.clone().floormod(tiles * tile));
            let (before, i_in_group) = match groups {
                1 => (None, i.clone()),
                _ => (Some(i.clone().floordiv(tiles * tile) * tiles), in_group),
            };
            let of_turn = i_in_group.floordiv(tiles * rows) * rows + i.floormod(rows);
            vec![before.map_or(of_tile.clone(), |before| before + of_tile), of_turn, j]
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
                let groups = up(spec.m, tiles.max(1) * MOST_COLUMNS);
                let rows = up(up(spec.m, tiles.max(1) * groups), MOST_BOXES * 8) * 8;
                let rows = rows.max(LEAST_ROWS);
                let most = up(spec.m, tiles.max(1) * groups * rows) * rows;
                if tiles < 2 || groups > 1 && waves > 1 || !(LEAST_COLUMNS..=MOST_COLUMNS).contains(&most) {
                    continue;
                }
                let tile = ([most, 64 * warpgroups], warpgroups);
                let alone =
                    Wgmma::alone(&GemmSpec { m: spec.m.min(tiles * most), ..*spec }, SwapAb::Swapped, tile, 1, target);
                let alone = alone.into_iter().filter(|w| w.cluster == [1, 1] && !w.persistent && !w.pingpong);
                let interleaved = Some(Interleaved { tiles, rows, groups });
                // Without a producer warp the boxes of a stage are copied between its MMAs.
                let loading = |w: Wgmma| Wgmma { producer: w.fits_beside_producer(), ..w };
                let alone = alone.filter_map(|w| if groups > 1 { w.walking_groups(spec) } else { Some(w) });
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

    /// The same tiles of persistent blocks, of which each has a tile of every group; `None` where no producer warp fits beside them.
    fn walking_groups(self, spec: &GemmSpec) -> Option<Wgmma> {
        let w = Wgmma { persistent: true, producer: true, grid_dependency: 0, ..self };
        w.fits_beside_producer().then(|| Wgmma { out_stages: w.store_stages(spec), ..w })
    }

    /// Whether M is more than interleaved tiles have.
    pub(in crate::gemm) fn is_exceeded(&self, spec: &GemmSpec) -> bool {
        self.interleaved.is_some_and(|interleaved| spec.m > interleaved.all_tiles() * self.block[0])
    }

    /// Whether blocks walk groups of rows, and so many rows are one group.
    pub(in crate::gemm) fn has_one_group(&self, m: i64) -> bool {
        self.interleaved.is_some_and(|i| i.groups > 1 && m <= i.tiles * self.block[0])
    }

    /// The cycles that a kernel for a range takes at one M, comparable between recipes. Groups have equally many rows (pass `columns`).
    pub(in crate::gemm) fn cycles_at(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let (used, spec) = match self.interleaved.filter(|interleaved| interleaved.groups > 1) {
            Some(Interleaved { tiles, rows, .. }) => {
                let groups = up(spec.m, tiles * self.block[0]);
                let of_tile = up(up(spec.m, tiles * rows), groups) * rows;
                let used = Wgmma { block: [of_tile, self.block[1]], ..*self };
                (used, GemmSpec { m: groups * tiles * of_tile, ..*spec })
            }
            None => (self.in_use(spec, target), *spec),
        };
        used.compared_cycles(&spec, target) + used.missing_stages(&spec, target)
    }

    /// Gives tiles and rows in them loops and dimensions of their own: `i0` and `in`.
    pub(super) fn interleave(&self, s: &mut Steps, padding: &Padding, accumulators: &str) {
        let Some(interleaved) = self.interleaved else { return };
        for buffer in [padding.converted(), "A_pad", padding.written()] {
            s.transform_layout(buffer, interleaved.map(["i", "j"], self.block[0]));
        }
        let blocks =
            [(accumulators, ["i", "j"], ["i0", "in", "j"]), ("out", ["out_i", "out_j"], ["o0", "out_i", "out_j"])];
        for (block, loops, made) in blocks.into_iter().chain([("A_pad", ["A_pad_0", "A_pad_1"], ["p0", "pi", "pk"])]) {
            s.transform_block_layout(block, interleaved.map(loops, self.block[0])).made(made);
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
            (DType::F16, Layout::NT, [5000, 4096, 64]),
        ] {
            let gemm = Gemm::new(m, n, k).of(dtype).layout(layout).rows_from(1);
            let product = Product::of_gemm(&gemm).unwrap();
            for w in Wgmma::interleaved(&product.spec, &target) {
                let interleaved @ Interleaved { rows, .. } = w.interleaved.unwrap();
                let tiles = interleaved.all_tiles();
                assert!(tiles * w.block[0] >= m && w.block[0] % rows == 0, "{w:?}");
                let schedule = crate::gemm::schedule(&product, &target, w.steps(&product.spec)).unwrap();
                let lowered =
                    lower(&schedule.scheduled().unwrap(), &target).unwrap_or_else(|e| panic!("{e}\n{schedule}"));
                // A kernel for the largest M alone has as many blocks.
                let blocks = tiles * up(n, 64 * w.warpgroups);
                assert_eq!(i64::from(lowered.kernels[0].grid()[0]), blocks, "{w:?}");
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
            (w.interleaved.unwrap().tiles, w.in_use(&spec, &Target::sm_90a()).block[0], w.is_exceeded(&spec))
        };
        // 132 multiprocessors, 32 tiles along N.
        assert_eq!([513, 640, 1024].map(tile), [(4, 144, false), (4, 160, false), (4, 256, false)]);
        assert!(tile(1025).2);
    }

    #[test]
    fn groups_of_rows_are_waves() {
        let target = Target::sm_90a();
        let gemm = Gemm::new(8192, 4096, 4096).of(DType::F16).layout(Layout::NT).rows_from(1);
        let at = |m: i64| GemmSpec { m, ..*gemm.spec() };
        let w = Wgmma::interleaved(gemm.spec(), &target).into_iter().find(|w| w.warpgroups == 2).unwrap();
        assert_eq!((w.interleaved.unwrap(), w.block[0]), (Interleaved { tiles: 4, rows: 16, groups: 8 }, 256));
        // Three groups of 896 rows, of which each tile has 224.
        let even = Wgmma { block: [224, 128], ..w };
        let cycles = even.compared_cycles(&at(2688), &target) + even.missing_stages(&at(2688), &target);
        assert_eq!(w.cycles_at(&at(2560), &target), cycles);
        // A turn of the four tiles has 64 rows.
        assert_eq!(w.cycles_at(&at(2561), &target), cycles);
        assert!(w.cycles_at(&at(2689), &target) > cycles);
    }
}
