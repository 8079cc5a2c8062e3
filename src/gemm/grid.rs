//! The walk of blocks over tiles of C: loops over blocks are bound to the axes of a grid, of which x has 2^31 - 1 blocks and y and z
//! have 65535.

use super::operand::{Operand, up};
use crate::ir::{Axis, BindMode};
use crate::schedule::Steps;
use crate::target::GPC;
use crate::te::GemmSpec;

/// The most blocks along y or z, on every chip ([`crate::target::Limits::grid_dims`]).
const MOST: i64 = 65535;
/// The most blocks along x, and fewer than a grid can have.
pub(super) const MOST_BLOCKS: i64 = (1 << 31) - 1;

/// A loop over blocks: its name and its extent.
pub(super) type Blocks<'a> = (&'a str, i64);

/// Binds rows of blocks to y and columns to x, or the other way round where there are more rows than fit along y. No product has
/// more than fit along y of both: its arrays have 2^36 elements at most.
pub(super) fn bind_blocks(s: &mut Steps, rows: Blocks, columns: Blocks) {
    let [x, y] = if rows.1 > MOST { [rows.0, columns.0] } else { [columns.0, rows.0] };
    s.bind(y, Axis::BlockY).bind(x, Axis::BlockX);
}

/// Whether the products of a batch are more than fit along z: they are then rows of the walk over blocks.
pub(super) fn fuses_batch(spec: &GemmSpec) -> bool {
    spec.products() > MOST
}

/// Fuses the loop over a large batch with the loop over rows of blocks; the loop over rows after that.
pub(super) fn rows_of<'a>(s: &mut Steps, spec: &GemmSpec, rows: Blocks<'a>) -> Blocks<'a> {
    if !fuses_batch(spec) {
        return rows;
    }
    s.fuse(["b", rows.0], "bi");
    ("bi", rows.1.saturating_mul(spec.products()))
}

/// Whether the loop over the products of a batch is bound to z.
pub(super) fn binds_batch(spec: &GemmSpec) -> bool {
    spec.batch.is_some() && !fuses_batch(spec)
}

/// Binds the loop over the products of a batch that fits along z.
pub(super) fn bind_batch(s: &mut Steps, spec: &GemmSpec) {
    if binds_batch(spec) {
        s.bind("b", Axis::BlockZ);
    }
}

/// The raster group of a walk; none where M is dynamic: the grid then ends with the last row of tiles that has work.
pub(super) fn group_of(spec: &GemmSpec, group: i64) -> Option<i64> {
    (group > 0 && spec.least_m.is_none()).then_some(group)
}

/// The tiles of C, or its clusters of tiles, that blocks walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    /// Clusters along rows and along columns of C.
    pub clusters: [i64; 2],
    /// Rows and columns of C of a cluster.
    pub sides: [i64; 2],
    /// Blocks of a cluster.
    pub blocks: i64,
    /// The share of the reads by blocks of one GPC that L2 joins.
    pub joined: f64,
}

impl Walk {
    /// The raster group with which blocks that run together read the fewest rows of A and B, of several alike the largest.
    ///
    /// Without clusters an H200 places 16 consecutive blocks on one GPC, after the first 16 (h200-2026-11-28/smid.txt). L2 sends a row once that several of them ask for at
    /// about the same time; and what all blocks of a chip read at a time comes once from device memory. Both count alike where all such reads are joined. On an H200 f16 NT 4096x512x4096 takes 29.8 us in 256 x 64 with
    /// groups of two and 35.6 with groups of 16, 512x4096x4096 in 64 x 256 29.0 with eight and 36.0 with one (h200-2026-11-28/raster.jsonl).
    pub fn raster_group(&self, multiprocessors: i64) -> i64 {
        let [of_gpc, of_chip] = [GPC, multiprocessors].map(|blocks| up(blocks, self.blocks));
        let cost = |group: i64| self.joined * self.read(of_gpc, group) + self.read(of_chip, group);
        let groups = GROUPS.into_iter().map(|group| (cost(group), group));
        groups.min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(1, |(_, group)| group)
    }

    /// Rows of A and B that so many consecutive clusters read, for each cluster.
    fn read(&self, consecutive: i64, group: i64) -> f64 {
        let [rows, columns] = self.clusters;
        let high = group.min(rows).min(consecutive);
        let wide = up(consecutive, high);
        let [high, wide] = if wide > columns { [up(consecutive, columns).min(rows), columns] } else { [high, wide] };
        (high * self.sides[0] + wide * self.sides[1]) as f64 / consecutive as f64
    }
}

/// Raster groups, the largest first.
const GROUPS: [i64; 5] = [16, 8, 4, 2, 1];

/// Walks the loop over rows of blocks and `j0` over columns as one loop `tile`, in raster groups of so many rows; row by row without.
pub(super) fn walk(s: &mut Steps, rows: &str, raster_group: Option<i64>, mode: BindMode) {
    match raster_group {
        Some(group) => s.rasterize([rows, "j0"], group, "tile"),
        None => s.fuse([rows, "j0"], "tile"),
    };
    s.bind_as("tile", Axis::BlockX, mode);
}

/// The loops over the blocks of a cluster, along rows and along columns of C; a loop of one block is left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClusterLoops {
    blocks: [i64; 2],
}

impl ClusterLoops {
    const NAMES: [&'static str; 2] = ["ic", "jc"];

    pub fn new(blocks: [i64; 2]) -> ClusterLoops {
        ClusterLoops { blocks }
    }

    /// The factor of a split and the name of the loop that it makes, along rows and along columns; no factor and an empty name of a loop
    /// that is left out.
    pub fn factors(self) -> [(Option<i64>, &'static str); 2] {
        [0, 1].map(|along| match self.name(along) {
            Some(name) => (Some(self.blocks[along]), name),
            None => (None, ""),
        })
    }

    /// The loops that are not left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [0, 1].into_iter().filter_map(move |along| self.name(along))
    }

    fn name(self, along: usize) -> Option<&'static str> {
        (self.blocks[along] > 1).then_some(Self::NAMES[along])
    }

    /// The innermost loop over blocks.
    pub fn innermost(self) -> &'static str {
        self.name(1).or(self.name(0)).unwrap_or("tile")
    }

    /// The loop over the blocks that share the tile of an operand: those along columns share tiles of A, those along rows tiles of B.
    pub fn sharing(self, operand: Operand) -> Option<&'static str> {
        self.name(operand.other() as usize)
    }

    /// Binds the loops.
    pub fn bind(self, s: &mut Steps) {
        self.names().for_each(|name| _ = s.bind(name, Axis::Cluster));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_run_together_share_the_longer_side() {
        let of = |clusters, sides, blocks, joined| Walk { clusters, sides, blocks, joined }.raster_group(132);
        let group = |clusters, sides, blocks| of(clusters, sides, blocks, 1.0);
        assert_eq!(group([16, 8], [256, 64], 1), 2);
        assert_eq!(group([8, 16], [64, 256], 1), 16);
        assert_eq!(group([32, 32], [128, 128], 1), 4);
        // A cluster of four is four blocks of its GPC.
        assert_eq!(group([32, 4], [256, 256], 4), 2);
        assert_eq!(group([1, 1], [128, 128], 1), 16);
        // Of 132 blocks, 8 by 17 read the fewest rows.
        assert_eq!((group([16, 56], [256, 128], 1), of([16, 56], [256, 128], 1, 0.0)), (4, 8));
    }

    #[test]
    fn the_longer_loop_is_bound_to_x() {
        let bound = |rows, columns| {
            let mut s = Steps::new();
            bind_blocks(&mut s, rows, columns);
            s.to_string()
        };
        assert_eq!(bound(("i", 65535), ("j", 70000)), "bind i blockIdx.y\nbind j blockIdx.x\n");
        assert_eq!(bound(("i", 65536), ("j", 3)), "bind j blockIdx.y\nbind i blockIdx.x\n");
    }
}
