//! Tiles of which blocks of a cluster share a side, by multicast: L2 is read once for all of them.

use super::{FEW_STAGES, SHORT, Wgmma, up};
use crate::gemm::tuning;
use crate::target::Target;
use crate::te::GemmSpec;

/// The clusters of candidates.
const CLUSTERS: [[i64; 2]; 4] = [[2, 1], [1, 2], [4, 1], [1, 4]];
/// Stages of the ring at most.
const STAGES: i64 = 16;

impl Wgmma {
    /// The dimension of C along which blocks share the longer side of their tiles, and the blocks along it.
    pub(super) fn shared_side(&self, spec: &GemmSpec, many: bool) -> (usize, i64) {
        let shared = usize::from(self.block[0] > self.block[1] && many);
        (shared, up([spec.m, spec.n][shared], self.block[shared]))
    }

    /// Cycles of a block for the barriers of its cluster. Of persistent blocks too: 1016x3456x16 NT of bf16 takes 5.3 to 5.9 us on an H100 in 128 x 128 by
    /// two and 4.6 alone.
    pub(super) fn cluster_ends(&self) -> f64 {
        let blocks = self.cluster[0] * self.cluster[1];
        tuning::CLUSTER_ENDS * (blocks as f64).log2()
    }

    /// The same tiles of one wave, or parts that a kernel adds up, of which two or four blocks share a side, along rows and along columns of C. Those of a
    /// last cluster that find no partner have tiles beyond C. It pays where L2 decides: on an H100 104x4048x448 TN of f16 takes 3.46 us in 64 x 64 by two
    /// and 4.84 in 128 x 64 alone, 490x11680x7720 NN of bf16 129 in 256 x 192 by two and 160 alone, 832x320x14680 TT of f16 22.2 in 128 x 80 by four in
    /// four parts of k and 31.7 where a cluster adds them up. Persistent blocks gain nothing but from unaligned rows: the tensor
    /// cores and the power limit decide there (4096^3 NT of f16, 8192^3 NN).
    pub(super) fn with_partners(&self, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let alone = spec.batch.is_none() && !self.adds_in_cluster() && self.cluster == [1, 1] && !self.persistent;
        let leaves = self.stores_by_tma() || self.parts > 1;
        let alone = alone && leaves && self.fits_beside_producer();
        let clusters = CLUSTERS.into_iter().filter(|cluster| {
            let along = usize::from(cluster[0] == 1);
            let blocks = up([spec.m, spec.n][along], self.block[along]);
            alone && blocks >= cluster[along]
        });
        let shared = clusters.map(|cluster| {
            let w = Wgmma { producer: true, cluster, ..*self };
            let w = w.with_slots(spec, target, FEW_STAGES);
            let few = Wgmma::has_unaligned_rows(spec, w.routes) && w.k_stages(spec) <= SHORT * FEW_STAGES;
            if few { w } else { w.with_slots(spec, target, STAGES) }
        });
        shared.collect()
    }

    /// The same tiles of which no block shares a side.
    pub(super) fn without_partners(&self, spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        let alone = Wgmma { cluster: [1, 1], producer: self.persistent, ..*self };
        (self.cluster != [1, 1]).then(|| alone.with_slots(spec, target, super::MOST_STAGES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::{Gemm, Product};
    use crate::te::Layout;

    #[test]
    fn partners_leave_registers_to_the_producer() {
        let target = Target::sm_90a();
        // 192 x 240 of three warpgroups fills one wave, for which ptxas finds no registers beside a producer.
        for [m, n, k] in [[360, 15680, 1312], [15680, 360, 1312], [7360, 592, 13232], [360, 15660, 1300]] {
            let gemm = Gemm::new(m, n, k).of(DType::Bf16);
            let all = Wgmma::candidates(gemm.spec(), &target);
            // Rows of C that TMA cannot store have no producer.
            assert_eq!(all.iter().any(|w| w.producer), n % 8 == 0, "{m}x{n}x{k}");
            let wide = all.iter().find(|w| w.producer && !w.fits_beside_producer());
            assert!(wide.is_none(), "{m}x{n}x{k}: {wide:?}");
        }
    }

    #[test]
    fn every_tile_lowers() {
        let target = Target::sm_90a();
        let sizes = [([808, 1448, 3819], Layout::TN), ([384, 1536, 8192], Layout::NT), ([832, 320, 14680], Layout::TT)];
        for ([m, n, k], layout) in sizes {
            let gemm = Gemm::new(m, n, k).of(DType::Bf16).layout(layout);
            let all = Wgmma::candidates(gemm.spec(), &target);
            let shared: Vec<_> = all.into_iter().filter(|w| w.cluster != [1, 1]).collect();
            assert!(shared.len() > 20 && shared.iter().any(|w| w.warpgroups == 1 && w.block[0] == 128));
            assert!(k < 4000 || shared.iter().any(|w| w.parts > 1 && w.producer));
            for w in shared {
                let steps = w.steps(gemm.spec());
                let schedule = crate::gemm::schedule(&Product::of_gemm(&gemm).unwrap(), &target, steps).unwrap();
                let lowered = schedule.scheduled().and_then(|func| crate::lower::lower(&func, &target));
                assert!(lowered.is_ok(), "{w:?} of {m}x{n}x{k}: {}", lowered.unwrap_err());
            }
        }
    }
}
