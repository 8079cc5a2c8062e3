//! Tiles for products with scales of blocks: partial sums of 128 terms are promoted to f32 accumulators.
//!
//! The scales of a block are the same for the 128 terms that a stage of the ring has, so the instructions sum these terms alone, into a
//! fragment of partial sums that begins from zero with each stage. Threads then multiply it by its two scales and add it to the accumulators.
//! Sums on the tensor cores of Hopper, which keep 13 bits of a fraction, are then no longer than 128 terms.
//!
//! A warpgroup waits for its wgmmas in each stage, and issues none while its threads add. Meanwhile the tensor cores run those of the other
//! warpgroup. Partial sums take as many registers as the accumulators of 64 rows. A warpgroup of 128 rows has the partial sums of one half
//! at a time, and releases the stage before it adds the last ones.
//!
//! The threads load their scales of rows, two of 64 rows each, and the scale of B an iteration ahead. On an H200 8192^3 takes 1.20 million cycles
//! so, 1.26 with the scales of A by TMA, 1.64 with loads at the beginning of each iteration, and 1.16 without any (h200-2026-11-29/blocks.jsonl).

use super::{ROWS, Wgmma, bytes, elements, known, processors, room};
use crate::dtype::DType;
use crate::gemm::epilogue::Accumulators;
use crate::gemm::staging::present;
use crate::gemm::tuning;
use crate::gemm::work::ranked;
use crate::ir::Scope;
use crate::schedule::Steps;
use crate::target::{Features, Target};
use crate::te::{GemmSpec, SCALE_BLOCK};

/// Rows and columns of C of a block, and warpgroups. Columns are those of an instruction, and divide a block of scales.
const TILES: [([i64; 2], i64); 7] =
    [([256, 128], 2), ([128, 128], 2), ([128, 64], 2), ([256, 64], 2), ([64, 128], 1), ([64, 64], 1), ([64, 32], 1)];
/// Stages of the ring at most.
const MOST_STAGES: i64 = 8;

impl Wgmma {
    /// Whether the recipe has tiles for the types, N and K, whatever M: each stage has the terms of one scale.
    pub(in crate::gemm) fn suits_promotion(spec: &GemmSpec, target: &Target) -> bool {
        // Zeros beyond K have no scale.
        let whole = !spec.block_scales || spec.k % SCALE_BLOCK == 0;
        let float8 = spec.a.is_float8() && spec.acc == DType::F32;
        known(spec) && float8 && whole && target.has(Features::WGMMA | Features::TMA)
    }

    /// The tiles, the cheapest first.
    pub(in crate::gemm) fn promoted_tiles(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        if !Wgmma::suits_promotion(spec, target) {
            return Vec::new();
        }
        let tiles = TILES.into_iter().flat_map(|(block, warpgroups)| {
            [[1, 1], [2, 1], [1, 2]]
                .into_iter()
                .filter_map(move |cluster| Wgmma::promoted(spec, block, warpgroups, cluster, target))
        });
        let works = tiles.map(|w| (w.work(spec, target), w)).collect();
        ranked(works, 1.0, &target.device()).into_iter().map(|(_, w)| w).collect()
    }

    /// These tiles, if shared memory holds them, and the blocks of clusters find partners.
    fn promoted(
        spec: &GemmSpec,
        block: [i64; 2],
        warpgroups: i64,
        cluster: [i64; 2],
        target: &Target,
    ) -> Option<Wgmma> {
        let plain = Wgmma::of(spec, block, warpgroups, target);
        let many = plain.blocks(spec) > i64::from(processors(target));
        let shared = cluster == [1, 1] || many && plain.stores_by_tma() && spec.batch.is_none();
        // Threads that loaded the tiles would meet in each stage, and the warpgroups would add at the same time.
        let producer = warpgroups > 1 || plain.producer || cluster != [1, 1];
        let w = Wgmma { promoted: true, bk: SCALE_BLOCK, cluster, producer, ..plain };
        let fits = |w: &Wgmma| w.shared(spec) <= room(target);
        let staged = |w: Wgmma| {
            let stages = (2..=MOST_STAGES).rev().find(|stages| fits(&Wgmma { stages: *stages, ..w })).unwrap_or(2);
            Wgmma { stages: stages.min(w.k_stages(spec).max(2)), in_flight: 0, ..w }
        };
        // A fourth stage is worth more than a second stage of the epilogue.
        let (w, single) = (staged(w), staged(Wgmma { out_stages: 1, ..w }));
        let w = if w.stages < 4 && single.stages > w.stages { single } else { w };
        (shared && fits(&w)).then(|| w.with_raster_group(spec, target))
    }

    /// Cycles of a k iteration in which no wgmma runs: what the threads of a warpgroup take to add their partial sums beyond the time in which
    /// other warpgroups multiply.
    pub(super) fn promotion_bubble(&self, mma: f64) -> f64 {
        if !self.promoted {
            return 0.0;
        }
        // Each of the four schedulers has a warp of each warpgroup, and issues an FFMA for 32 elements in a cycle.
        let adds = (ROWS * self.block[1]) as f64 / 128.0 + tuning::PROMOTION_LATENCY;
        let own = mma / self.warpgroups as f64 + self.tall() as f64 * adds;
        (own - mma).max(0.0)
    }

    /// The steps.
    pub(super) fn promoted_steps(&self, spec: &GemmSpec) -> Steps {
        let (mut steps, sums) = (Steps::new(), Accumulators::of(spec).block());
        let s = &mut steps;
        self.pad(s, spec);
        let batch = if spec.batch.is_some() { "rb" } else { "" };
        s.split("k", [SCALE_BLOCK], ["kb", "kt"]).promote(sums, "kb").made(present(["part", batch, "ri", "rj", "k0"]));
        self.promoted_nest(s, spec);
        let half = if self.tall() > 1 { "io" } else { "k0" };
        if spec.block_scales {
            self.scales(s, spec, sums);
        }
        s.compute_at("part", half).made(["p0", "p1"]);
        s.split("kt", [elements(super::DEPTH, spec)], ["kk", "ki"]);
        s.reorder(["kk", "p0", "p1", "ki"]).set_scope("part", Scope::Fragment);
        for operand in super::Operand::BOTH {
            self.stage(s, spec, operand);
        }
        self.epilogue(s, spec);
        s.decompose_reduction(sums, "k0");
        let row =
            format!("wgmma.m64n{}k{}.{}.{}.{}", self.block[1], elements(super::DEPTH, spec), spec.acc, spec.a, spec.b);
        s.tensorize_by("p0", &row, ["p0", "p1", "ki"]);
        s.pipeline("k0", self.stages);
        self.specialize(s, spec);
        steps
    }

    /// The loops of the accumulators.
    fn promoted_nest(&self, s: &mut Steps, spec: &GemmSpec) {
        let [(ci, ic), (cj, jc)] = self.cluster_loops().factors();
        let (tall, io) = if self.tall() > 1 { (Some(self.tall()), "io") } else { (None, "") };
        s.split(
            "ri",
            ci.into_iter().chain([self.warpgroups]).chain(tall).chain([ROWS]),
            present(["i0", ic, "iw", io, "im"]),
        );
        s.split("rj", cj.into_iter().chain([self.block[1]]), present(["j0", jc, "jn"]));
        s.reorder(present(["i0", "j0", ic, jc, "iw", "k0", io, "im", "jn"]));
        self.walk_tiles(s, spec, "rb");
    }

    /// The scales in registers: of the rows that a thread has, and the one of B.
    fn scales(&self, s: &mut Steps, spec: &GemmSpec, sums: &str) {
        s.cache_read(sums, "b_scales", Scope::Local, "b_f").compute_at("b_f", "k0");
        let pads = self.padding(spec).pads_rows();
        let rows = if pads { "a_scales_pad" } else { "a_scales" };
        s.cache_read(sums, rows, Scope::Fragment, "a_f").compute_at("a_f", "k0");
        if pads {
            s.compute_inline(rows);
        }
    }

    /// Bytes of registers of a thread for partial sums beside the accumulators.
    pub(super) fn partial_registers(&self, spec: &GemmSpec) -> i64 {
        if self.promoted { ROWS * self.block[1] / 128 * bytes(spec.acc) / 4 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Gemm, Product, recommend, recommend_promoted, schedule};
    use crate::te::Layout;

    #[test]
    fn every_tile_lowers() {
        let target = Target::sm_90a();
        let plain = Gemm::new(300, 200, 512).of(DType::E4m3).layout(Layout::NT).block_scales();
        for gemm in [plain, plain.output(DType::F32), plain.output(DType::Bf16).batch(3)] {
            for (block, warpgroups) in TILES {
                let w = Wgmma::promoted(gemm.spec(), block, warpgroups, [1, 1], &target).unwrap();
                let schedule = schedule(&Product::of_gemm(&gemm).unwrap(), &target, w.steps(gemm.spec())).unwrap();
                let lowered = schedule.scheduled().and_then(|func| crate::lower::lower(&func, &target));
                assert!(lowered.is_ok(), "{block:?} of {:?}: {}", gemm.spec(), lowered.unwrap_err());
            }
        }
    }

    #[test]
    fn sums_without_scales_are_promoted_at_any_k() {
        let target = Target::sm_90a();
        for k in [96, 1000, 4096] {
            let gemm = Gemm::new(300, 200, k).of(DType::E4m3).layout(Layout::NT);
            let schedule = recommend_promoted(&gemm, &target).unwrap();
            assert!(schedule.to_string().contains("promote mma kb -> part"), "{schedule}");
        }
        // Sums of other types have the bits of f32.
        let f16 = Gemm::new(300, 200, 1000).of(DType::F16).layout(Layout::NT);
        assert_eq!(recommend_promoted(&f16, &target).unwrap(), recommend(&f16, &target).unwrap());
    }

    #[test]
    fn large_products_have_tall_tiles_and_clusters() {
        let target = Target::sm_90a();
        let gemm = Gemm::new(4096, 7168, 2048).of(DType::E4m3).output(DType::Bf16).layout(Layout::NT).block_scales();
        let all = Wgmma::promoted_tiles(gemm.spec(), &target);
        assert_eq!((all[0].block, all[0].warpgroups, all[0].stages), ([256, 128], 2, 4));
        assert!(all.iter().any(|w| w.cluster == [2, 1]));
        // Stages have the terms of one scale.
        let ragged = Gemm::new(4096, 7168, 2000).of(DType::E4m3).layout(Layout::NT).block_scales();
        assert!(Wgmma::promoted_tiles(ragged.spec(), &target).is_empty());
    }

    #[test]
    fn threads_of_one_warpgroup_add_while_another_multiplies() {
        let gemm = Gemm::new(4096, 4096, 4096).of(DType::E4m3).layout(Layout::NT).block_scales();
        let of = |block, warpgroups| Wgmma::of(gemm.spec(), block, warpgroups, &Target::sm_90a());
        let promoted = |block, warpgroups| Wgmma { promoted: true, ..of(block, warpgroups) };
        assert_eq!(promoted([128, 128], 2).promotion_bubble(512.0), 0.0);
        assert_eq!(promoted([64, 128], 1).promotion_bubble(256.0), 64.0 + tuning::PROMOTION_LATENCY);
        assert_eq!(of([64, 128], 1).promotion_bubble(256.0), 0.0);
    }
}
