//! Tiles of which two blocks of a cluster share a side, by multicast: L2 is read once for both.

use super::{MOST_STAGES, Wgmma, up};
use crate::gemm::tuning;
use crate::gemm::work::Work;
use crate::target::Target;
use crate::te::GemmSpec;

/// Cycles of L2 for a cycle of MMAs from which on blocks share tiles.
const SHARING_PAYS: f64 = 1.5;

impl Wgmma {
    /// The dimension of C along which blocks share the longer side of their tiles, and the blocks along it.
    pub(super) fn shared_side(&self, spec: &GemmSpec, many: bool) -> (usize, i64) {
        let shared = usize::from(self.block[0] > self.block[1] && many);
        (shared, up([spec.m, spec.n][shared], self.block[shared]))
    }

    /// Cycles of a block for the barriers of its cluster; those of blocks that stay are few beside their tiles.
    pub(super) fn cluster_ends(&self) -> f64 {
        let blocks = self.cluster[0] * self.cluster[1];
        if self.persistent { 0.0 } else { tuning::CLUSTER_ENDS * (blocks as f64).log2() }
    }

    /// The same tiles of one wave of which two blocks share the longer side; `None` where they do already, or find no partners, or where L2
    /// does not take much longer than the MMAs. On an H100 that takes 30.1 us instead of 31.8 for 12288x128x3072 NT of bf16 in 128 x 128, and
    /// 0.98 of the speed alone for 2048^3 NN of f16 in 128 x 256. Blocks that stay gain nothing: the tensor cores and the power limit decide
    /// there (4096^3 NT of f16, 8192^3 NN).
    pub(super) fn with_partner(&self, spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        let (shared, blocks) = self.shared_side(spec, false);
        let work = self.work(spec, target);
        let alone = spec.batch.is_none() && self.cluster == [1, 1] && !self.persistent;
        let fetches = Work { mma: 0.0, bubble: 0.0, ..work }.iteration(1, &target.device()).0 > SHARING_PAYS * work.mma;
        if !alone || !fetches || !self.stores_by_tma() || blocks % 2 != 0 {
            return None;
        }
        let mut w = Wgmma { producer: true, ..*self };
        w.cluster[shared] = 2;
        Some(w.with_slots(spec, target, MOST_STAGES))
    }
}
