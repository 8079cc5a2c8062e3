//! Who runs: blocks walk over tiles, warpgroups have parts of a tile, and producer warps load.

use super::Wgmma;
use crate::gemm::grid::{group_of, walk};
use crate::ir::{Axis, BindMode};
use crate::schedule::Steps;
use crate::te::GemmSpec;

impl Wgmma {
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
    pub(super) fn specialize(&self, s: &mut Steps) {
        if !self.producer {
            return;
        }
        // Registers are moved between whole warpgroups; one that multiplies alone has enough of them.
        // A copy for each panel of 16 bytes has more addresses to keep.
        match (self.warpgroups > 1, self.swizzle > 0) {
            (true, swizzled) => s.specialize(["A_s", "B_s"], "load", 4).registers(if swizzled { 40 } else { 88 }),
            (false, _) => s.specialize(["A_s", "B_s"], "load", 1),
        };
    }
}
