//! Quantised weights on tensor cores by mma.sync: the dequantised weights are operand A of the instruction.
//!
//! A and B are swapped (C^T = D X^T): an instruction has 16 rows of W and 8 rows of X. TMA, or cp.async on chips without it, fills a ring of
//! stages with tiles of X, packed weights, scales and zero points. In each stage a lane loads its weights, 16 bytes at a time, and dequantises them
//! to fragments, or converts them and multiplies the partial sums of a group by its scale. The fragments of X come by ldmatrix. Where there are
//! few tiles, warps of a block divide k (slices), or blocks do (parts), and a second kernel adds the parts.

use super::{Quantized, Tiles};
use crate::gemm::epilogue::Accumulators;
use crate::gemm::grid::{group_of, walk};
use crate::gemm::padding::Padding;
use crate::gemm::split::{Combine, combine_parts, split_k};
use crate::gemm::staging::{divide_among_threads, present};
use crate::ir::{Axis, BindMode, CopyKind, Note, Scope};
use crate::schedule::Steps;
use crate::target::{BOX_SIDE, LANES, Target};

/// Rows of W and of X, and terms of an instruction.
pub(super) const SHAPE: [i64; 3] = [16, 8, 16];
/// Bytes of a copy, and of the rows of a swizzled tile.
const COPY: i64 = 16;
const PANEL: i64 = 128;
/// Rows of blocks that are walked together.
const RASTER_GROUP: i64 = 8;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByWarps {
    /// Rows of X of a tile.
    pub rows: i64,
    /// Warps along the rows of W.
    pub warps: i64,
    /// Instructions of a warp along the rows of W.
    pub tall: i64,
    /// Groups of warps that alternate along k.
    pub slices: i64,
    /// k extent of a slice of a stage.
    pub bk: i64,
    /// Stages of the ring.
    pub stages: i64,
    /// Parts of k, each summed by a block of its own.
    pub parts: i64,
    /// A producer warp issues TMA loads; without it all threads copy by cp.async.
    pub has_producer: bool,
    /// Blocks that share a multiprocessor. ptxas spills where it is not told.
    pub resident: i64,
    /// The next kernel may begin beside this one.
    pub releases_early: bool,
    /// Scales multiply partial sums, not weights. With a producer alone.
    pub promoted: bool,
}

impl ByWarps {
    /// Rows of W of a tile.
    pub fn weights(&self) -> i64 {
        SHAPE[0] * self.tall * self.warps
    }

    /// Threads that multiply.
    fn threads(&self) -> i64 {
        LANES * self.warps * self.slices
    }

    /// Threads of a block.
    pub(super) fn block_threads(&self) -> i64 {
        self.threads() + if self.has_producer { LANES } else { 0 }
    }

    /// The block that has the accumulators of a warp.
    fn sums(&self) -> &'static str {
        match (self.parts > 1, self.slices > 1) {
            (true, _) => "parts",
            (_, true) => "slices",
            _ => "mma",
        }
    }

    /// Whether one ldmatrix loads 8 rows of X for two steps of k, rather than 16 rows for one.
    fn pairs_steps(&self) -> bool {
        self.rows % MATRIX != 0
    }

    /// The steps, for [`Quantized::program`] with packed weights.
    pub fn steps(&self, q: &Quantized) -> Steps {
        let padding = Padding::new(&q.product(), [self.rows, 1], 1);
        let (sums, x) = (self.sums(), q.activations);
        let mut s = Steps::new();
        padding.pad(&mut s, "mma");
        s.compute_inline(if self.promoted { "D" } else { "U" });
        split_k(&mut s, self.parts, Combine::Kernel);
        if self.promoted {
            self.promoted_nest(&mut s, q);
        } else {
            self.nest(&mut s);
        }
        self.walk(&mut s, q);
        let products = if self.promoted { "part" } else { sums };
        if self.promoted {
            self.partial_sums(&mut s, q);
        }
        self.copies(&mut s, q, products, padding.pads_result());
        s.cache_read(products, "X_s", Scope::Fragment, "X_f").compute_at("X_f", "kk").made(["f0", "f1"]);
        if self.pairs_steps() {
            s.tensorize("f0", &format!("ldmatrix.m8n32.{x}"));
        } else {
            s.split("f0", [MATRIX], ["fm", "fi"]).tensorize("fi", &format!("ldmatrix.row.m16n16.{x}"));
        }
        self.results(&mut s, &padding);
        s.decompose_reduction(sums, "k0").made(["zero"]);
        let [j, i] = if self.promoted { ["pj", "pi"] } else { ["ji", "ii"] };
        if self.promoted {
            s.decompose_reduction(products, "kk").made(["zero_part"]);
        }
        s.tensorize_by(j, &format!("mma.m16n8k16.f32.{x}.{x}"), [j, i, "ki"]);
        if self.has_producer {
            let zeros = if q.has_zeros { Some("Z_s") } else { None };
            s.specialize(["X_s", "P_s", "S_s"].into_iter().chain(zeros), "load", 1);
            if self.unrolls(q) {
                s.annotate("k0", Note::UnrollLimit, self.stages);
            }
        }
        s
    }

    /// Whether the body of the loop over stages has an iteration for each stage of the ring, so that slots are constants: M = 16 of 28672x8192
    /// takes 42.3 us on an H200 with four stages, and 48.5 without (h200-2026-11-30/weights.jsonl).
    fn unrolls(&self, q: &Quantized) -> bool {
        self.iterations(q) % self.stages == 0
    }

    /// Iterations of the loop over stages.
    pub(super) fn iterations(&self, q: &Quantized) -> i64 {
        q.sizes[2] / (self.bk * self.slices * self.parts)
    }

    /// The loops of blocks, warps and instructions.
    fn nest(&self, s: &mut Steps) {
        let [weights, rows, terms] = SHAPE;
        s.split("i", [self.rows / rows, rows], ["i0", "im", "ii"]);
        s.split("j", [self.warps, self.tall, weights], ["j0", "jw", "jm", "ji"]);
        let (slices, ks) = self.slice_loop();
        let (steps, kp) = self.pair_loop();
        let matrices = self.bk / (terms * steps.unwrap_or(1));
        s.split(
            "k",
            slices.into_iter().chain([matrices]).chain(steps).chain([terms]),
            present(["k0", ks, "kk", kp, "ki"]),
        );
        if self.slices > 1 {
            s.rfactor("mma", "ks").made(["slices", "ti", "tj", "ts"]).set_scope("slices", Scope::Shared);
        }
        let part = if self.parts > 1 { "part" } else { "" };
        s.reorder(present([part, "i0", "j0", "jw", ks, "k0", "kk", kp, "jm", "im", "ji", "ii", "ki"]));
    }

    /// The loops of blocks, warps and accumulators, to which partial sums of the terms of a group are added.
    fn promoted_nest(&self, s: &mut Steps, q: &Quantized) {
        let [weights, rows, _] = SHAPE;
        let (terms, sums) = (q.partial_terms(self.bk), self.sums());
        let (slices, ks) = self.slice_loop();
        s.split("k", slices.into_iter().chain([terms]), present(["kg", ks, "kt"]));
        if self.slices > 1 {
            s.rfactor("mma", "ks").made(["slices", "ti", "tj", "ts"]).set_scope("slices", Scope::Shared);
            s.cache_write("slices", "slices", Scope::Fragment, "C_f");
        }
        let rs = self.warp_slices();
        s.promote(sums, "kg").made(present(["part", rs, "ri", "rj", "k0"]));
        let (groups, kb) = if terms < self.bk { (Some(self.bk / terms), "kb") } else { (None, "") };
        if let Some(groups) = groups {
            s.split("k0", [groups], ["k0", "kb"]);
        }
        s.split("ri", [self.rows / rows, rows], ["i0", "im", "ii"]);
        s.split("rj", [self.warps, self.tall, weights], ["j0", "jw", "jm", "ji"]);
        s.reorder(present(["i0", "j0", "jw", rs, "k0", kb, "jm", "im", "ji", "ii"]));
    }

    /// The partial sums of the terms of a group: loops of instructions.
    fn partial_sums(&self, s: &mut Steps, q: &Quantized) {
        let [weights, rows, terms] = SHAPE;
        let (steps, kp) = self.pair_loop();
        s.compute_at("part", q.group_loop(self.bk)).made(["p0", "p1"]).set_scope("part", Scope::Fragment);
        s.split("p0", [rows], ["pm", "pi"]).split("p1", [weights], ["pn", "pj"]);
        s.split("kt", steps.into_iter().chain([terms]), present(["kk", kp, "ki"]));
        s.reorder(present(["kk", kp, "pn", "pm", "pj", "pi", "ki"]));
    }

    /// The loop over slices around the accumulators.
    fn warp_slices(&self) -> &'static str {
        match (self.slices > 1, self.promoted) {
            (false, _) => "",
            (true, false) => "ks",
            (true, true) => "rs",
        }
    }

    fn slice_loop(&self) -> (Option<i64>, &'static str) {
        if self.slices > 1 { (Some(self.slices), "ks") } else { (None, "") }
    }

    /// The two steps of k of an ldmatrix.
    fn pair_loop(&self) -> (Option<i64>, &'static str) {
        if self.pairs_steps() { (Some(2), "kp") } else { (None, "") }
    }

    /// The order of the tiles, the warps, and how the kernel is launched.
    fn walk(&self, s: &mut Steps, q: &Quantized) {
        walk(s, "i0", group_of(&q.product(), RASTER_GROUP), BindMode::Plain);
        if self.slices > 1 {
            s.fuse(["jw", self.warp_slices()], "w");
        }
        s.bind(self.warp(), Axis::Warp);
        s.launch("tile").min_blocks(self.resident);
        if self.releases_early {
            s.grid_dependency(2);
        }
    }

    /// The loop over warps.
    fn warp(&self) -> &'static str {
        if self.slices > 1 { "w" } else { "jw" }
    }

    /// X, weights, scales and zero points in shared memory, and the weights on their way to registers.
    fn copies(&self, s: &mut Steps, q: &Quantized, products: &str, pads: bool) {
        let source = if pads { "X_pad" } else { "X" };
        s.cache_read(products, source, Scope::Shared, "X_s");
        self.copy(s, "X_s", q.activations.bits());
        if pads {
            s.compute_inline("X_pad");
        }
        s.swizzle("X_s", PANEL);
        self.copy_with(s, "X_s");
        let (weights, at, scaled) =
            if self.promoted { ("U", q.group_loop(self.bk), self.sums()) } else { ("D", "k0", "D") };
        s.set_scope(weights, Scope::Fragment).compute_at(weights, at).made(["d0", "d1"]);
        let zeros = q.has_zeros.then_some((weights, "Z", "Z_s", q.activations));
        let own = [(weights, "P", "P_s", q.weights), (scaled, "S", "S_s", q.activations)];
        for (of, from, to, dtype) in own.into_iter().chain(zeros) {
            s.cache_read(of, from, Scope::Shared, to);
            self.copy(s, to, dtype.bits());
            self.copy_with(s, to);
        }
        if self.stages > 1 {
            s.pipeline("k0", self.stages);
        }
        s.cache_read(weights, "P_s", Scope::Fragment, "P_f");
    }

    /// The copy of a tile for each iteration of `k0`, which all threads make where no producer does, 16 bytes at a time.
    fn copy(&self, s: &mut Steps, to: &str, bits: u32) {
        s.compute_at(to, "k0");
        let name = |end: &str| format!("{}{end}", to.to_lowercase().trim_end_matches("_s"));
        let [first, second, third, both] = ["0", "1", "2", "r"].map(name);
        // Packed weights have three dimensions.
        let loops = [&first, &second, &third];
        s.made(&loops[..if to == "P_s" { 3 } else { 2 }]);
        if self.has_producer {
            if to == "X_s" && self.bk * self.slices > BOX_SIDE {
                s.split(&second, [BOX_SIDE], ["xp", "xe"]).reorder(["xp", &first, "xe"]);
            }
            return;
        }
        let [first, second] = if to == "P_s" {
            s.fuse([&first, &second], &both);
            [both, third]
        } else {
            [first, second]
        };
        let vector = 8 * COPY / i64::from(bits);
        divide_among_threads(s, [&first, &second], &name("e"), self.threads(), vector, ["_0", "_1", "_2"].map(name));
        s.bind(&name("_1"), Axis::ThreadX).vectorize(&name("_2"));
    }

    fn copy_with(&self, s: &mut Steps, to: &str) {
        s.copy_with(to, if self.has_producer { CopyKind::Tma } else { CopyKind::CpAsync });
    }

    /// From accumulators to C.
    fn results(&self, s: &mut Steps, padding: &Padding) {
        let [weights, rows, _] = SHAPE;
        let tile = |s: &mut Steps| {
            s.split("o0", [rows], ["om", "oi"]).split("o1", [weights], ["on", "oj"]).reorder(["om", "on", "oi", "oj"]);
        };
        if self.sums() != "mma" {
            if !self.promoted {
                s.cache_write(self.sums(), self.sums(), Scope::Fragment, "C_f");
            }
            s.reverse_compute_at("C_f", self.warp()).made(["op", "o0", "o1"]);
            tile(s);
        }
        if self.parts > 1 {
            return combine_parts(s, Accumulators::Converted, padding, self.parts);
        }
        if self.slices > 1 {
            return self.add_slices(s, padding);
        }
        if padding.pads_result() {
            s.compute_inline("acc_pad");
            padding.pad_conversion(s);
        }
        s.set_scope(padding.converted(), Scope::Fragment).reverse_compute_at("out", "jw").made(["o0", "o1"]);
        tile(s);
        padding.crop(s);
    }

    /// All threads add up the slices, each those of as many elements.
    fn add_slices(&self, s: &mut Steps, padding: &Padding) {
        let stored = Accumulators::Converted.keep_padded_in_registers(s, padding, "C_l");
        s.reverse_compute_at("mma", "tile").made(["ci", "cj"]);
        let elements = self.rows * self.weights();
        let vector = [4, 2].into_iter().find(|v| elements % (self.threads() * v) == 0).unwrap_or(1);
        divide_among_threads(s, ["ci", "cj"], "cf", self.threads(), vector, ["c0", "c1", "cv"].map(str::to_string));
        s.reorder(["ts", "cv"]).bind("c1", Axis::ThreadX);
        s.reverse_compute_at(stored, "c1").made(["yi", "yj"]).vectorize("yj").vectorize("cv").unroll("ts");
    }

    /// The tiles, the cheapest first; none where the chip or the product has no form for them.
    pub fn candidates(q: &Quantized, target: &Target) -> Vec<ByWarps> {
        let own = |tiles| if let Tiles::Warps(tiles) = tiles { Some(tiles) } else { None };
        super::cost::tiles(q, target).into_iter().filter_map(|(_, tiles)| own(tiles)).collect()
    }
}

/// Rows of a matrix of ldmatrix for one step of k.
pub(super) const MATRIX: i64 = 16;
