//! Quantised weights on tensor cores by mma.sync: the dequantised weights are operand A of the instruction.
//!
//! A and B are swapped (C^T = D X^T): an instruction has 16 rows of W and 8 rows of X. cp.async fills a ring of stages with tiles of X,
//! packed weights, scales and zero points. In each stage a lane loads its weights, 8 bytes at a time, and dequantises them to fragments; the
//! fragments of X come by ldmatrix. Where there are few tiles, k is split across blocks, and a second kernel adds the parts.

use super::{Quantized, ROWS};
use crate::dtype::DType;
use crate::gemm::epilogue::Accumulators;
use crate::gemm::grid::{group_of, walk};
use crate::gemm::operand::up;
use crate::gemm::padding::Padding;
use crate::gemm::split::{Combine, combine_parts, combining, split_k};
use crate::gemm::staging::{divide_among_threads, present};
use crate::gemm::work::{Flight, Work, mma_cycles, ranked};
use crate::ir::{Axis, BindMode, CopyKind, Scope};
use crate::schedule::Steps;
use crate::target::{Features, LANES, SCHEDULERS, Target};

/// Rows of W and of X, and terms of an instruction.
const SHAPE: [i64; 3] = [16, 8, 16];
/// Warps of a block.
const WARPS: i64 = 4;
/// Instructions of a warp along the rows of W.
const TALL: [i64; 3] = [1, 2, 4];
/// Rows of X of a tile: multiples of a matrix of ldmatrix, and the most.
const MATRIX: i64 = 16;
const MOST_ROWS: i64 = 128;
/// k extents of a stage, stages of the ring, and parts of k.
const DEPTHS: [i64; 2] = [128, 64];
const STAGES: i64 = 8;
const PARTS: [i64; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes of a copy, and of the rows of a swizzled tile.
const COPY: i64 = 16;
const PANEL: i64 = 128;
/// Registers of a thread for accumulators and the fragments of a stage at most.
const MOST_REGISTERS: i64 = 160;
/// Rows of blocks that are walked together.
const RASTER_GROUP: i64 = 8;

/// Cycles of a stage for its barrier, of a step of k for the loads of its operands, and before the first MMA of a block; the share of the
/// bytes from L2, and bytes of C that a multiprocessor stores in a cycle. Estimates, with which these tiles were chosen.
const STAGE_LATENCY: f64 = 200.0;
const STEP_LATENCY: f64 = 60.0;
const PROLOGUE: f64 = 1500.0;
const L2_SHARE: f64 = 32.0 / 61.0;
const STORE_BYTES: f64 = 32.0;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByWarps {
    /// Rows of X of a tile.
    pub rows: i64,
    /// Instructions of a warp along the rows of W.
    pub tall: i64,
    /// k extent of a stage.
    pub bk: i64,
    /// Stages of the ring.
    pub stages: i64,
    /// Parts of k.
    pub parts: i64,
}

impl ByWarps {
    /// Rows of W of a tile.
    pub fn weights(&self) -> i64 {
        SHAPE[0] * self.tall * WARPS
    }

    /// The steps, for [`Quantized::program`] with packed weights.
    pub fn steps(&self, q: &Quantized) -> Steps {
        let padding = Padding::new(&q.product(), [self.rows, 1], 1);
        let sums = if self.parts > 1 { "parts" } else { "mma" };
        let x = q.activations;
        let mut s = Steps::new();
        padding.pad(&mut s, "mma");
        split_k(&mut s, self.parts, Combine::Kernel);
        self.nest(&mut s, q);
        self.copies(&mut s, q, (sums, padding.pads_result()));
        s.cache_read(sums, "X_s", Scope::Fragment, "X_f").compute_at("X_f", "kk").made(["f0", "f1"]);
        s.split("f0", [MATRIX], ["fm", "fi"]).tensorize("fi", &format!("ldmatrix.row.m16n16.{x}"));
        self.results(&mut s, &padding);
        s.decompose_reduction(sums, "k0").made(["zero"]);
        s.tensorize_by("ji", &format!("mma.m16n8k16.f32.{x}.{x}"), ["ji", "ii", "ki"]);
        s
    }

    /// The loops of blocks, warps and instructions.
    fn nest(&self, s: &mut Steps, q: &Quantized) {
        let [weights, rows, terms] = SHAPE;
        s.split("i", [self.rows / rows, rows], ["i0", "im", "ii"]);
        s.split("j", [WARPS, self.tall, weights], ["j0", "jw", "jm", "ji"]);
        s.split("k", [self.bk / terms, terms], ["k0", "kk", "ki"]);
        let part = if self.parts > 1 { "part" } else { "" };
        s.reorder(present([part, "i0", "j0", "jw", "k0", "kk", "jm", "im", "ji", "ii", "ki"]));
        walk(s, "i0", group_of(&q.product(), RASTER_GROUP), BindMode::Plain);
        s.bind("jw", Axis::Warp);
    }

    /// X, weights, scales and zero points in shared memory, and the weights on their way to registers.
    fn copies(&self, s: &mut Steps, q: &Quantized, (sums, pads): (&str, bool)) {
        let source = if pads { "X_pad" } else { "X" };
        s.cache_read(sums, source, Scope::Shared, "X_s");
        copy(s, "X_s", q.activations);
        if pads {
            s.compute_inline("X_pad");
        }
        s.swizzle("X_s", PANEL).copy_with("X_s", CopyKind::CpAsync);
        s.set_scope("D", Scope::Fragment).compute_at("D", "k0").made(["d0", "d1"]);
        let zeros = q.has_zeros.then_some(("Z", "Z_s", q.activations));
        let own = [("P", "P_s", q.weights), ("S", "S_s", q.activations)];
        for (from, to, dtype) in own.into_iter().chain(zeros) {
            s.cache_read("D", from, Scope::Shared, to);
            copy(s, to, dtype);
            s.copy_with(to, CopyKind::CpAsync);
        }
        if self.stages > 1 {
            s.pipeline("k0", self.stages);
        }
        s.cache_read("D", "P_s", Scope::Fragment, "P_f");
    }

    /// From accumulators to C.
    fn results(&self, s: &mut Steps, padding: &Padding) {
        let [weights, rows, _] = SHAPE;
        let tile = |s: &mut Steps| {
            s.split("o0", [rows], ["om", "oi"]).split("o1", [weights], ["on", "oj"]).reorder(["om", "on", "oi", "oj"]);
        };
        if self.parts > 1 {
            s.cache_write("parts", "parts", Scope::Fragment, "C_f")
                .reverse_compute_at("C_f", "jw")
                .made(["op", "o0", "o1"]);
            tile(s);
            return combine_parts(s, Accumulators::Converted, padding, self.parts);
        }
        if padding.pads_result() {
            s.compute_inline("acc_pad");
            padding.pad_conversion(s);
        }
        s.set_scope(padding.converted(), Scope::Fragment).reverse_compute_at("out", "jw").made(["o0", "o1"]);
        tile(s);
        padding.crop(s);
    }

    /// The tiles, the cheapest first; none where the chip or the product has no form for them.
    pub fn candidates(q: &Quantized, target: &Target) -> Vec<ByWarps> {
        let bits = |elements: i64, dtype: DType| elements * i64::from(dtype.bits()) % (8 * COPY) == 0;
        let aligned = bits(q.sizes[2], q.activations) && bits(q.sizes[2], q.weights);
        if !q.is_packed || !aligned || !target.has(Features::MMA_AMPERE | Features::CP_ASYNC) {
            return Vec::new();
        }
        let fewest = up(q.sizes[0], MOST_ROWS);
        let rows = up(up(q.sizes[0], fewest.max(1)), MATRIX) * MATRIX;
        let mut all = Vec::new();
        for (tall, bk) in TALL.into_iter().flat_map(|tall| DEPTHS.map(|bk| (tall, bk))) {
            let tiles = PARTS.map(|parts| ByWarps { rows, tall, bk, stages: 0, parts });
            all.extend(tiles.into_iter().filter_map(|tiles| tiles.fitted(q, target)));
        }
        let works = all.into_iter().map(|tiles| (tiles.work(q, target), tiles)).collect();
        ranked(works, 1.0, &target.device()).into_iter().map(|(_, tiles)| tiles).collect()
    }

    /// With as many stages as there is room for two blocks; `None` where the recipe has no such tiles.
    fn fitted(self, q: &Quantized, target: &Target) -> Option<ByWarps> {
        let [_, n, k] = q.sizes;
        let divides = up(n, ROWS) * ROWS % self.weights() == 0 && k % (self.bk * self.parts) == 0;
        let accumulators = self.tall * self.rows / 2;
        let small = accumulators + self.tall * self.bk / 8 * 5 <= MOST_REGISTERS;
        let most = STAGES.min(k / self.bk / self.parts).max(1);
        let room = i64::from(target.limits.shared_optin);
        let stages = (1..=most).rev().find(|stages| 2 * stages * self.stage_bytes(q) <= room)?;
        let few = self.parts == 1 || self.tiles(q) <= 4 * i64::from(target.device().multiprocessors);
        (divides && q.suits_stage(self.bk) && small && few).then_some(ByWarps { stages, ..self })
    }

    fn tiles(&self, q: &Quantized) -> i64 {
        up(q.sizes[0], self.rows) * up(q.sizes[1], self.weights()) * self.parts
    }

    /// Bytes of a stage.
    fn stage_bytes(&self, q: &Quantized) -> i64 {
        let bytes = |elements: i64, dtype: DType| elements * i64::from(dtype.bits()) / 8;
        let scales = q.stage_scales(self.weights(), self.bk);
        bytes((self.rows * self.bk) + scales, q.activations) + bytes(self.weights() * self.bk, q.weights)
    }

    /// What the product asks of the device in these tiles.
    fn work(&self, q: &Quantized, target: &Target) -> Work {
        let ([_, _, k], device, spec) = (q.sizes, target.device(), q.product());
        let [weights, rows, terms] = SHAPE;
        let instructions = (self.weights() / weights * self.rows / rows * self.bk / terms) as f64;
        let mma = instructions * mma_cycles(&spec, &device) / SCHEDULERS as f64;
        let issue = super::cost::dequantising(q, self.weights() * self.bk);
        let (stage, stored) = (self.stage_bytes(q) as f64, (self.rows * self.weights()) as f64);
        let room = i64::from(target.limits.shared_optin);
        Work {
            mma,
            issue: issue + instructions / SCHEDULERS as f64,
            latency: STAGE_LATENCY + STEP_LATENCY * (self.bk / terms) as f64 + issue + mma,
            shared_bytes: 2.0 * stage + (self.rows * self.bk * 2 * (WARPS - 1)) as f64,
            l2_bytes: stage,
            l2_share: L2_SHARE,
            iterations: (k / self.bk / self.parts) as f64,
            prologue: PROLOGUE,
            epilogue: 2.0 * stored / STORE_BYTES,
            tiles: self.tiles(q),
            resident: (room / (self.stages * self.stage_bytes(q))).clamp(1, 4),
            memory_bytes: super::cost::memory_bytes(q),
            flight: Flight::of((self.stages - 1) as f64 * stage),
            passes: combining(&spec, self.parts, Combine::Kernel),
            ..Work::NONE
        }
    }
}

/// All threads copy a tile for each iteration of `k0`, 16 bytes at a time.
fn copy(s: &mut Steps, to: &str, dtype: DType) {
    let name = |end: &str| format!("{}{end}", to.to_lowercase().trim_end_matches("_s"));
    let [first, second] = ["0", "1"].map(name);
    s.compute_at(to, "k0").made([&first, &second]);
    let vector = 8 * COPY / i64::from(dtype.bits());
    divide_among_threads(s, [&first, &second], &name("e"), LANES * WARPS, vector, ["_0", "_1", "_2"].map(name));
    s.bind(&name("_1"), Axis::ThreadX).vectorize(&name("_2"));
}
