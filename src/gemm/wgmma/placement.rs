//! Who runs: blocks walk over tiles, warpgroups have parts of a tile, and producer warps load.

use super::{Wgmma, processors, up};
use crate::gemm::grid::{Walk, group_of, walk};
use crate::ir::{Axis, BindMode};
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::GemmSpec;

impl Wgmma {
    /// The same tiles in the raster group that suits them.
    pub(super) fn with_raster_group(self, spec: &GemmSpec, target: &Target) -> Wgmma {
        let sides = [0, 1].map(|d| self.block[d] * self.cluster[d]);
        let clusters = [up(spec.m, sides[0]), up(spec.n, sides[1])];
        let parts = if self.adds_in_cluster() { self.parts } else { 1 };
        let blocks = self.cluster.iter().product::<i64>() * parts;
        // 4096x7168x16384 of e4m3 with scales of blocks takes 1.11 million cycles on an H200 in groups of eight, in which L2 joins 9 % of the reads, and 1.32 million
        // in groups of four, in which it joins 46 %; one scale for each tensor takes 0.96 million in both (h200-2026-11-29/blocks.jsonl).
        let joined = if self.promoted { 1.0 - self.drift(spec) } else { 1.0 };
        let raster_group = Walk { clusters, sides, blocks, joined }.raster_group(processors(target).into());
        // Blocks of one product of a batch run together.
        let most = if spec.batch.is_some() { clusters[0] } else { raster_group };
        Wgmma { raster_group: raster_group.min(most), ..self }
    }

    /// Blocks walk the tiles of `i0`, `j0` and a batch, and warpgroups take their parts.
    pub(super) fn walk_tiles(&self, s: &mut Steps, spec: &GemmSpec, batch: &str) {
        let warpgroup = self.warpgroup_loop();
        // The tiles of a batch are rows of one walk.
        let rows = if spec.batch.is_some() { "bi" } else { "i0" };
        if spec.batch.is_some() {
            s.fuse([batch, "i0"], "bi");
        }
        let mode = if self.persistent { BindMode::Persistent } else { BindMode::Plain };
        walk(s, rows, group_of(spec, self.raster_group), mode);
        s.bind_as(warpgroup, Axis::Warpgroup, if self.pingpong { BindMode::PingPong } else { BindMode::Plain });
        if self.grid_dependency > 0 || self.l2_prefetch {
            s.launch("tile");
        }
        if self.grid_dependency > 0 {
            s.grid_dependency(self.grid_dependency);
        }
        if self.l2_prefetch {
            s.l2_prefetch();
        }
        self.cluster_loops().bind(s);
    }

    /// The producer warps, if there are any.
    pub(super) fn specialize(&self, s: &mut Steps, spec: &GemmSpec) {
        if !self.producer {
            return;
        }
        if let Some(operand) = self.transposed_operand(spec) {
            return self.specialize_transposing(s, spec, operand);
        }
        // Registers are moved between whole warpgroups; one that multiplies alone has enough of them.
        // A copy for each panel of 16 bytes has more addresses to keep.
        match (self.warpgroups > 1, self.swizzle > 0) {
            (true, swizzled) => s.specialize(["A_s", "B_s"], "load", 4).registers(if swizzled { 40 } else { 88 }),
            (false, _) => s.specialize(["A_s", "B_s"], "load", 1),
        };
    }
}
