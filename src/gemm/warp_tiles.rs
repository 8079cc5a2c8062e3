//! The recipe for products large enough to fill a chip with ordinary code: warp tiles, operands in shared memory with
//! the summed dimension outermost, and loads one tile ahead.
//!
//! A thread owns `groups` x `groups` pieces of C of `per` x `per` elements, spread over the block's tile, so that the
//! lanes of a warp read neighbouring vectors of both operands: no two lanes meet in a bank unless they read the same
//! word. An operand whose rows run along k is transposed while it is stored; its rows are padded by one vector for that.

mod cost;

use super::adapt::epilogue_in_copies;
use super::epilogue::digits;
use super::grid::{bind_blocks, group_of, walk};
use super::operand::Operand;
use super::split::Split;
use super::staging::{STAGED, Staging, divide_among_threads, present};
use crate::dtype::DType;
use crate::ir::{Axis, BindMode, Index, Note, Scope, Var};
use crate::schedule::{IndexMap, Steps};
use crate::te::GemmSpec;

/// What the recipe decided: `[rows of C, columns of C]` each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarpTiles {
    /// Pieces of a thread.
    pub groups: [i64; 2],
    /// Warps of a block.
    pub warps: [i64; 2],
    /// Lanes of a warp.
    pub lanes: [i64; 2],
    /// Elements of a piece.
    pub per: [i64; 2],
    /// Terms of the accumulators in a stage of shared memory.
    pub bk: i64,
    /// Blocks of a multiprocessor to compile for, where the registers need the bound.
    pub min_blocks: Option<i64>,
    /// Steps of k written out at a time, where all of them would take more registers than the bound leaves.
    pub unroll_limit: Option<i64>,
    /// Rows of blocks that are walked together, so that blocks that run at the same time read the same tiles.
    pub raster: Option<i64>,
    /// How the accumulators of a tile are shared out.
    pub split: Split,
}

/// A tile of 8 x 8 elements of f32 a thread.
const F32: WarpTiles = WarpTiles {
    groups: [2, 2],
    warps: [4, 2],
    lanes: [4, 8],
    per: [4, 4],
    bk: 8,
    min_blocks: Some(2),
    unroll_limit: None,
    raster: None,
    split: Split::NONE,
};

/// The same for f64: of such elements a register file holds half as many, and 16 bytes are two.
const F64: WarpTiles = WarpTiles { groups: [4, 2], per: [2, 2], ..F32 };

/// The tile of a thread; `None` where the GEMM is not one of f32 alone or of f64 alone.
fn base(spec: &GemmSpec) -> Option<WarpTiles> {
    let alone = [spec.b, spec.acc, spec.out].iter().all(|d| *d == spec.a);
    match spec.a {
        DType::F32 if alone => Some(F32),
        DType::F64 if alone => Some(F64),
        _ => None,
    }
}

impl WarpTiles {
    /// The tiles with what the layouts of the operands ask for.
    pub(super) fn fitted(mut self, spec: &GemmSpec) -> WarpTiles {
        // ptxas spills where both operands are transposed through registers and eight steps of k are unrolled. For doubles transposing
        // B alone spills (TT 6144x5952x64 on sm_80 and sm_89: 28 bytes), A alone does not. With 24 prefetched floats a thread two
        // steps spill too (NT 512x512x512 on sm_89: 8 bytes; 123 registers with one step).
        let transposed = Operand::BOTH.map(|operand| operand.along_k(spec));
        if transposed[1] && (transposed[0] || spec.b.bits() == 64) && self.min_blocks.is_some() {
            self.unroll_limit = Some(if self.prefetched() > 16 { 1 } else { 2 });
        }
        // In parts of k doubles spill with two steps too (sm_70: NN 6592x4096x4032 4 bytes, with eight steps 36; TT 2048^3 4).
        if spec.b.bits() == 64 && self.split.parts > 1 && self.min_blocks.is_some() {
            self.unroll_limit = Some(1);
        }
        self
    }

    /// Elements of both operands that a thread prefetches for the next tile.
    fn prefetched(&self) -> i64 {
        self.block().iter().sum::<i64>() * self.bk * self.split.slices / self.threads()
    }

    /// Rows and columns of C of a block.
    pub fn block(&self) -> [i64; 2] {
        [0, 1].map(|d| self.groups[d] * self.warps[d] * self.lanes[d] * self.per[d])
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        self.split.slices * self.warps.iter().chain(&self.lanes).product::<i64>()
    }

    /// The steps, for a program of [`crate::te::gemm`] of one type.
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let plain = self.plain_steps(spec);
        if spec.epilogue { epilogue_in_copies(plain) } else { plain }
    }

    /// The steps without an epilogue.
    fn plain_steps(&self, spec: &GemmSpec) -> Steps {
        // Elements of 16 bytes.
        let wide = 128 / i64::from(spec.a.bits());
        let mut s = Steps::new();
        self.split.cut(&mut s, self.bk);
        let inner = self.tile(&mut s, spec);
        for operand in Operand::BOTH {
            self.stage(&mut s, operand, operand.along_k(spec), wide);
        }
        s.decompose_reduction(self.split.sums(), "k0").pipeline("k0", 2);
        if let Some(blocks) = self.min_blocks {
            s.launch(inner).min_blocks(blocks);
        }
        if let Some(limit) = self.unroll_limit {
            s.annotate("k1", Note::UnrollLimit, limit);
        }
        self.split.combine(&mut s, self.block(), self.threads(), wide, inner);
        s
    }

    /// The tile of a block and the registers of a thread; the innermost loop over blocks. After [`Split::cut`] the accumulators' loops are
    /// i, j, k0 and k1, and those of the split.
    fn tile(&self, s: &mut Steps, spec: &GemmSpec) -> &'static str {
        let WarpTiles { groups: [gi, gj], warps: [wi, wj], lanes: [li, lj], per: [pi, pj], .. } = *self;
        let sums = self.split.sums();
        let stored = format!("{sums}_l");
        let (part, [slice, copied]) = (self.split.part(), self.split.slice());
        s.cache_write(sums, sums, Scope::Local, &stored);
        s.split("i", [gi, wi, li, pi], ["i0", "ig", "iw", "il", "ie"]);
        s.split("j", [gj, wj, lj, pj], ["j0", "jg", "jw", "jl", "je"]);
        s.reorder(present([part, "i0", "j0", slice, "iw", "jw", "il", "jl", "k0", "k1", "ig", "ie", "jg", "je"]));
        // The innermost loop over blocks.
        let inner = match self.raster {
            None => {
                let [bm, bn] = self.block();
                bind_blocks(s, ("i0", spec.m / bm), ("j0", spec.n / bn));
                "j0"
            }
            group => {
                walk(s, "i0", group.and_then(|group| group_of(spec, group)), BindMode::Plain);
                "tile"
            }
        };
        s.reverse_compute_at(&stored, inner).made(present([copied, "u", "v"]));
        s.split_all("u", [gi, wi, li, pi], ["ug", "uw", "ul", "ue"]);
        s.split_all("v", [gj, wj, lj, pj], ["vg", "vw", "vl", "ve"]);
        s.reorder(present([copied, "uw", "vw", "ul", "vl", "ug", "ue", "vg", "ve"])).vectorize("ve");
        s.fuse(present([slice, "iw", "jw"]), "w")
            .fuse(["il", "jl"], "l")
            .fuse(["w", "l"], "t")
            .bind("t", Axis::ThreadX);
        s.fuse(present([copied, "uw", "vw"]), "x")
            .fuse(["ul", "vl"], "y")
            .fuse(["x", "y"], "z")
            .bind("z", Axis::ThreadX);
        s.transform_layout(&stored, self.layout());
        inner
    }

    /// The layout of the accumulators: digits of their rows and columns.
    fn layout(&self) -> IndexMap {
        let dims = self.split.dims();
        let inputs = dims.iter().chain(&["i", "j"]).map(|name| name.to_string()).collect();
        let all = [0, 1, 2, 3].map(|n| Index::Var(Var(n)));
        let (before, rows_and_columns) = all.split_at(dims.len());
        let mut outputs = before.to_vec();
        for (d, index) in rows_and_columns.iter().take(2).enumerate() {
            outputs.extend(digits(index.clone(), [self.groups[d], self.warps[d] * self.lanes[d], self.per[d]]));
        }
        IndexMap { inputs, outputs }
    }

    /// An operand's way into shared memory.
    fn stage(&self, s: &mut Steps, operand: Operand, transposed: bool, wide: i64) {
        let (n, threads, width) = (operand.name(), self.threads(), self.block()[operand as usize]);
        let vector = wide.min(width * self.bk * self.split.slices / threads);
        let staging = Staging {
            operand,
            buffer: STAGED[operand as usize],
            accumulators: self.split.sums(),
            source: n,
            fills_zeros: false,
        };
        staging.read(s);
        let [first, second, queue, half, fused, outer, thread, element] =
            ["0", "1", "q", "h", "f", "o", "t", "v"].map(|end| format!("{n}{end}"));
        s.compute_at(staging.buffer, "k0").made([&first, &second]);
        // Neighbours take two vectors of a row that is transposed, then the next row, so that what they store lies in
        // different banks.
        if transposed && self.split.slices > 1 {
            s.split(&second, [2, vector], [&queue, &half, &element]).reorder([&queue, &first, &half, &element]);
            s.fuse([&queue, &first, &half], &fused).split(&fused, [threads], [&outer, &thread]);
        } else {
            divide_among_threads(
                s,
                [&first, &second],
                &fused,
                threads,
                vector,
                [outer, thread.clone(), element.clone()],
            );
        }
        s.vectorize(&element).bind(&thread, Axis::ThreadX);
        if transposed {
            let swapped = IndexMap::new(["i", "j"], |[i, j]| vec![j, i]);
            s.transform_layout(staging.buffer, swapped).storage_align(staging.buffer, 0, 2 * wide, wide);
        }
    }
}
