//! Kernels of their own that pack an operand: padded, transposed or both, because no asynchronous copy can read it as it is.

use super::grid::{Blocks, bind_blocks, binds_batch, fuses_batch};
use super::operand::{Operand, up};
use super::padding::Padding;
use super::staging::{divide_among_threads, fuse_all, source};
use crate::ir::{Axis, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::te::GemmSpec;

/// What a tile of an operand is copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The operand itself: 16 bytes at a time, or as many as its rows are aligned to.
    Direct,
    /// Workspace that a kernel of its own fills: padded, transposed or both.
    Packed,
}

/// Threads of a block that packs, and rows of which each has a piece.
pub(super) const THREADS: i64 = 256;
const ROWS: i64 = 8;
/// Lanes of a warp that transposes along rows in memory, at most.
const MOST_ALONG: i64 = 8;
/// Warps of a block that transposes.
const WARPS: i64 = 4;

/// The divisors of a power of two, the largest first.
fn divisors(of: i64) -> impl DoubleEndedIterator<Item = i64> {
    (0..=of.ilog2()).rev().map(|n| 1 << n)
}

/// The largest divisor `number` of a power of two for which `number * by` divides a size.
fn dividing(most: i64, by: i64, size: i64) -> Option<i64> {
    divisors(most).find(|number| size % (number * by) == 0)
}

/// Whether packing transposes an operand: tiles have its rows along k, and memory does not.
pub(super) fn transposes(operand: Operand, spec: &GemmSpec) -> bool {
    operand.runs_along_k(spec) != operand.along_k(spec)
}

/// An operand and the buffer that it is packed to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packing<'a> {
    pub operand: Operand,
    pub packed: &'a str,
    /// What the tiles add to the operand.
    pub padding: Padding,
    /// Whether its rows and columns change places.
    pub is_transposed: bool,
    /// Blocks of a packing kernel up to which the GEMM's own kernel may begin beside it; 0 for never.
    pub releasing: i64,
}

impl Packing<'_> {
    /// Loops are named after the operand.
    pub fn name(&self, end: &str) -> String {
        format!("{}{end}", self.operand.lower())
    }

    /// The loops over rows and over elements of the packed buffer, without that over the products of a batch.
    pub fn loops(&self, spec: &GemmSpec) -> [String; 2] {
        let first = i32::from(spec.batch.is_some());
        [first, first + 1].map(|n| format!("{}_{n}", self.packed))
    }

    /// Rows of the operand in memory, and elements of one, with their zeros.
    pub fn lines(&self, spec: &GemmSpec) -> [i64; 2] {
        let [terms, others] = self.padding.operand(self.operand);
        if self.operand.along_k(spec) { [others, terms] } else { [terms, others] }
    }

    /// The buffer of a tile in shared memory on its way.
    fn tile(&self) -> String {
        format!("{}_x", self.operand.name())
    }

    /// Makes the packed buffer, which padding has made otherwise.
    pub fn copy(&self, s: &mut Steps, block: &str, is_padded: bool) {
        if !is_padded {
            s.cache_read(block, self.operand.name(), Scope::Global, self.packed);
        }
    }

    /// The kernel that packs the operand for a block. The loads to registers fill in the zeros of the padding, so the stores have no
    /// conditions and stay vectors.
    pub fn kernel(&self, s: &mut Steps, spec: &GemmSpec, block: &str) {
        let pads = self.padding.pads_operand(self.operand);
        let source = source(self.operand.name(), pads, false);
        s.cache_read(block, &source, Scope::Global, self.packed);
        if self.is_transposed {
            self.columns(s, spec)
        } else {
            self.rows(s, spec, self.vector(spec))
        }
        let [t, y, z, z0, z1, z2] = ["t", "y", "z", "z0", "z1", "z2"].map(|end| self.name(end));
        s.bind(&t, Axis::ThreadX);
        s.cache_read(self.packed, &source, Scope::Local, &y);
        if self.is_transposed {
            s.cache_read(self.packed, &y, Scope::Local, &z);
            Packing::swap(s, spec, &z);
            let batch = spec.batch.map(|_| &z2);
            s.compute_at(&z, &t).made(batch.into_iter().chain([&z0, &z1])).unroll(&z0).unroll(&z1);
        }
        self.read(s, spec, &y, &t);
        if pads {
            s.compute_inline(&source);
        }
    }

    /// A thread reads elements of several rows: as many at once as rows are aligned to, or aligned words that it shifts.
    fn read(&self, s: &mut Steps, spec: &GemmSpec, y: &str, t: &str) {
        let [y0, y1, y2, y3, y4] = ["y0", "y1", "y2", "y3", "y4"].map(|end| self.name(end));
        let at_once = self.operand.piece(spec) / self.bytes(spec);
        s.compute_at(y, t).made(spec.batch.map(|_| &y4).into_iter().chain([&y0, &y1])).unroll(&y0);
        match self.vector(spec) / at_once {
            _ if self.vector(spec) == 1 => s.unroll(&y1),
            0 | 1 => s.vectorize(&y1),
            _ if at_once == 1 => s.vectorize(&y1),
            _ => s.split(&y1, [at_once], [&y2, &y3]).unroll(&y2).vectorize(&y3),
        };
    }

    fn bytes(&self, spec: &GemmSpec) -> i64 {
        i64::from(self.operand.dtype(spec).bits()) / 8
    }

    /// Adjacent elements of a row that a thread reads: 4 to 16 bytes without transposition, else the alignment of rows, up to four elements.
    fn vector(&self, spec: &GemmSpec) -> i64 {
        let (piece, bytes) = (self.operand.piece(spec), self.bytes(spec));
        if self.is_transposed { (piece / bytes).min(4) } else { piece.max(4) / bytes }
    }

    /// Swaps the last two dimensions of a buffer.
    fn swap(s: &mut Steps, spec: &GemmSpec, buffer: &str) {
        s.transform_layout(
            buffer,
            match spec.batch {
                None => IndexMap::new(["k", "w"], |[k, w]| vec![w, k]),
                Some(_) => IndexMap::new(["b", "k", "w"], |[b, k, w]| vec![b, w, k]),
            },
        );
    }

    /// The loops of a kernel that packs row by row: a thread copies a vector of each of eight rows. The loop over threads is `t`.
    pub fn rows(&self, s: &mut Steps, spec: &GemmSpec, vector: i64) {
        let [count, length] = self.lines(spec);
        // Threads that divide rows and their number read under one condition each. Short rows leave threads for more of them.
        let along = dividing(THREADS, vector, length).filter(|along| *along >= 8);
        let along =
            along.or_else(|| divisors(THREADS).rev().find(|threads| threads * vector >= length)).unwrap_or(THREADS);
        let down = dividing(THREADS / along, ROWS, count).filter(|down| *down * along >= 64).unwrap_or(THREADS / along);
        let [first, second] = self.loops(spec);
        let [a0, a1, a2, b0, b1, b2] = ["a0", "a1", "a2", "b0", "b1", "b2"].map(|end| self.name(end));
        s.split(&first, [down, ROWS], [&a0, &a1, &a2]).split(&second, [along, vector], [&b0, &b1, &b2]);
        s.reorder([&a0, &b0, &a1, &b1, &a2, &b2]).unroll(&a2).vectorize(&b2);
        self.blocks(s, spec, (&a0, up(count, down * ROWS)), (&b0, up(length, along * vector)));
        s.fuse([&a1, &b1], &self.name("t"));
    }

    /// The loops of a kernel that transposes: a thread reads up to four adjacent elements of several rows, and writes 16 bytes. Lanes read
    /// up to 32 bytes of a row together, and write 64 or more.
    fn columns(&self, s: &mut Steps, spec: &GemmSpec) {
        Packing::swap(s, spec, self.packed);
        let ([count, length], read, written) = (self.lines(spec), self.vector(spec), 16 / self.bytes(spec));
        // Lanes along rows in memory and across them, and the elements that they have together; then warps. A lane stores 16 bytes of a packed row,
        // and adjacent lanes across rows store adjacent pieces of it: with 8 lanes along rows, 4 lanes store 64 contiguous bytes. A kernel that
        // packs 576x11967x4245 NN of s8, and its GEMM, take 186 us on an H100 with 32 lanes along rows, 114 with 16 and 112 with 8 (no record was
        // kept).
        let along = (32 / (read * self.bytes(spec))).min(MOST_ALONG);
        let (wide, high) = (along * read, 32 / along * written);
        let warps = dividing(WARPS, wide, length).unwrap_or(1);
        let more = dividing(WARPS / warps, high, count).unwrap_or(1);
        let [a0, a1, a2, a3, b0, b1, b2, b3] =
            ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"].map(|end| self.name(end));
        let [first, second] = self.loops(spec);
        s.split(&first, [more, 32 / along, written], [&a0, &a1, &a2, &a3]);
        s.split(&second, [warps, along, read], [&b0, &b1, &b2, &b3]);
        s.reorder([&a0, &b0, &a1, &b1, &a2, &b2, &b3, &a3]);
        self.blocks(s, spec, (&a0, up(count, more * high)), (&b0, up(length, warps * wide)));
        let t = self.name("t");
        fuse_all(s, &[&a1, &b1, &a2, &b2], &t, &t);
        s.unroll(&b3).vectorize(&a3);
    }

    /// Binds loops to blocks, with the products of a batch.
    fn blocks(&self, s: &mut Steps, spec: &GemmSpec, rows: Blocks, columns: Blocks) {
        let batch = format!("{}_0", self.packed);
        if fuses_batch(spec) {
            let fused = self.name("z");
            s.fuse([&batch, rows.0], &fused);
            return bind_blocks(s, (&fused, spec.products().saturating_mul(rows.1)), columns);
        }
        // Beside more blocks s8 NN 2000^3 takes 26.6 us instead of 20.7 on an H100 (no record was kept).
        if rows.1.saturating_mul(columns.1).saturating_mul(spec.products()) <= self.releasing {
            s.launch(rows.0).grid_dependency(2);
        }
        bind_blocks(s, rows, columns);
        if binds_batch(spec) {
            s.bind(&batch, Axis::BlockZ);
        }
    }

    /// The loops of a kernel that transposes tiles of 64 x 64 bytes: two adjacent threads write 32 bytes of a row, and read 16 columns of
    /// each of 16 rows at a time.
    fn transpose_bytes(&self, s: &mut Steps, spec: &GemmSpec) {
        let [terms, others] = self.lines(spec).map(|extent| up(extent, 64));
        let [a0, a1, a2, a3] = ["a0", "a1", "a2", "a3"].map(|end| self.name(end));
        let [b0, b1, b2, t] = ["b0", "b1", "b2", "t"].map(|end| self.name(end));
        let [first, second] = self.loops(spec);
        s.transform_layout(self.packed, IndexMap::new(["k", "w"], |[k, w]| vec![w, k]));
        s.split(&first, [2, 2, 16], [&a0, &a1, &a2, &a3]).split(&second, [4, 16], [&b0, &b1, &b2]);
        s.reorder([&a0, &b0, &b1, &a1, &b2, &a2, &a3]);
        bind_blocks(s, (&a0, terms), (&b0, others));
        fuse_all(s, &[&b1, &a1, &b2, &a2], &t, &t);
        s.bind(&t, Axis::ThreadX).vectorize(&a3);
    }

    /// The kernel that unpacks tiles of 64 x 64 4-bit integers to bytes on the way into shared memory, and transposes them as bytes.
    pub fn widen_and_transpose(&self, s: &mut Steps, spec: &GemmSpec, vector: i64) {
        self.transpose_bytes(s, spec);
        let [x, x0, x1, x2, x3, x4] = ["x", "x0", "x1", "x2", "x3", "x4"].map(|end| self.name(end));
        s.cache_read_as(self.packed, self.operand.name(), Scope::Shared, crate::DType::S8, &self.tile());
        s.compute_at(&self.tile(), &self.name("b0")).made([&x0, &x1]);
        divide_among_threads(s, [&x0, &x1], &x, THREADS, vector, [x2, x3.clone(), x4.clone()]);
        s.bind(&x3, Axis::ThreadX).vectorize(&x4);
    }
}
