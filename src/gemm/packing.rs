//! Kernels of their own that pack an operand: padded, transposed or both, because no asynchronous copy can read it as it is.

use super::grid::{bind_blocks, binds_batch, fuses_batch};
use super::operand::{Operand, up};
use super::padding::Padding;
use super::staging::{divide_among_threads, fuse_all};
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

/// Threads of a block that packs.
pub(super) const THREADS: i64 = 256;

/// An operand and the buffer that it is packed to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packing<'a> {
    pub operand: Operand,
    pub packed: &'a str,
    /// What the tiles add to the operand.
    pub padding: Padding,
}

impl Packing<'_> {
    /// Loops are named after the operand.
    pub fn name(&self, end: &str) -> String {
        format!("{}{end}", self.operand.lower())
    }

    /// The loops over rows and over elements of the packed buffer.
    pub fn loops(&self) -> [String; 2] {
        [0, 1].map(|n| format!("{}_{n}", self.packed))
    }

    /// Rows of the operand in memory, and elements of one, with their zeros.
    pub fn lines(&self, spec: &GemmSpec) -> [i64; 2] {
        let [terms, others] = self.padding.operand(self.operand);
        if self.operand.along_k(spec) { [others, terms] } else { [terms, others] }
    }

    /// The buffer of a tile in shared memory on its way.
    pub fn tile(&self) -> String {
        format!("{}_x", self.operand.name())
    }

    /// Makes the packed buffer, which padding has made otherwise.
    pub fn copy(&self, s: &mut Steps, block: &str, is_padded: bool) {
        if !is_padded {
            s.cache_read(block, self.operand.name(), Scope::Global, self.packed);
        }
    }

    /// The kernel that packs: rows as they are, or bytes that are transposed because their rows do not run along k.
    pub fn kernel(&self, s: &mut Steps, spec: &GemmSpec) {
        if self.operand.runs_along_k(spec) == self.operand.along_k(spec) {
            return self.rows(s, spec);
        }
        self.transpose_bytes(s, spec);
        let [x, x0, x1, x2, x3, x4] = ["x", "x0", "x1", "x2", "x3", "x4"].map(|end| self.name(end));
        s.cache_read(self.packed, self.operand.name(), Scope::Shared, &self.tile());
        s.compute_at(&self.tile(), &self.name("b0")).made([&x0, &x1]).fuse([&x0, &x1], &x);
        match self.operand.contiguous(spec) % 16 {
            0 => s.split(&x, [THREADS, 16], [&x2, &x3, &x4]).bind(&x3, Axis::ThreadX).vectorize(&x4),
            _ => s.split(&x, [THREADS], [&x2, &x3]).bind(&x3, Axis::ThreadX),
        };
    }

    /// The loops of a kernel that packs row by row, eight rows a thread.
    fn rows(&self, s: &mut Steps, spec: &GemmSpec) {
        let [count, length] = self.lines(spec);
        let (n, row) = if spec.batch.is_some() { (1, 2) } else { (0, 1) };
        let [a0, a1, b0, b1] = ["a0", "a1", "b0", "b1"].map(|end| self.name(end));
        let batch = format!("{}_0", self.packed);
        s.split(&format!("{}_{n}", self.packed), [8], [&a0, &a1]);
        s.split(&format!("{}_{row}", self.packed), [THREADS], [&b0, &b1]);
        s.reorder([&a0, &b0, &b1, &a1]).unroll(&a1);
        let outer = match fuses_batch(spec) {
            true => {
                let fused = self.name("z");
                s.fuse([&batch, &a0], &fused);
                (fused, spec.products().saturating_mul(up(count, 8)))
            }
            false => (a0, up(count, 8)),
        };
        bind_blocks(s, (&outer.0, outer.1), (&b0, up(length, THREADS)));
        s.bind(&b1, Axis::ThreadX);
        if binds_batch(spec) {
            s.bind(&batch, Axis::BlockZ);
        }
    }

    /// The loops of a kernel that transposes tiles of 64 x 64 bytes: two neighbours write 32 bytes of a row, and read 16 columns of
    /// each of 16 rows at a time.
    pub fn transpose_bytes(&self, s: &mut Steps, spec: &GemmSpec) {
        let [terms, others] = self.lines(spec).map(|extent| up(extent, 64));
        let [a0, a1, a2, a3] = ["a0", "a1", "a2", "a3"].map(|end| self.name(end));
        let [b0, b1, b2, t] = ["b0", "b1", "b2", "t"].map(|end| self.name(end));
        let [first, second] = self.loops();
        s.transform_layout(self.packed, IndexMap::new(["k", "w"], |[k, w]| vec![w, k]));
        s.split(&first, [2, 2, 16], [&a0, &a1, &a2, &a3]).split(&second, [4, 16], [&b0, &b1, &b2]);
        s.reorder([&a0, &b0, &b1, &a1, &b2, &a2, &a3]);
        bind_blocks(s, (&a0, terms), (&b0, others));
        fuse_all(s, &[&b1, &a1, &b2, &a2], &t, &t);
        s.bind(&t, Axis::ThreadX).vectorize(&a3);
    }

    /// The kernel that packs words to the extents of the padding: squares of 32 x 32 transposed in shared memory, or rows as they are.
    pub fn words(&self, s: &mut Steps, spec: &GemmSpec) {
        let [terms, others] = self.padding.operand(self.operand);
        if !self.operand.along_k(spec) {
            return copy_by_rows(s, self.packed, self.operand.lower(), [terms, others]);
        }
        let [a0, a1, b0, b1, b2, b3] = ["a0", "a1", "b0", "b1", "b2", "b3"].map(|end| self.name(end));
        let [x0, x1, x2, x3] = ["x0", "x1", "x2", "x3"].map(|end| self.name(end));
        let [first, second] = self.loops();
        s.transform_layout(self.packed, IndexMap::new(["w", "k"], |[w, k]| vec![k, w]));
        s.split(&first, [32], [&a0, &a1]).split(&second, [32], [&b0, &b1]).reorder([&a0, &b0, &b1, &a1]);
        bind_blocks(s, (&a0, up(others, 32)), (&b0, up(terms, 32)));
        s.cache_read(self.packed, self.operand.name(), Scope::Shared, &self.tile());
        s.compute_at(&self.tile(), &b0).made([&x0, &x1]);
        s.split(&x0, [8], [&x2, &x3]).bind(&x3, Axis::ThreadY).bind(&x1, Axis::ThreadX);
        s.split(&b1, [8], [&b2, &b3]).bind(&b3, Axis::ThreadY).bind(&a1, Axis::ThreadX);
        s.storage_align(&self.tile(), 0, 32, 1);
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

/// Copies a staged buffer of two dimensions row by row; loops are named after `prefix`.
pub(super) fn copy_by_rows(s: &mut Steps, stage: &str, prefix: &str, [rows, columns]: [i64; 2]) {
    let [b0, b1] = ["b0", "b1"].map(|end| format!("{prefix}{end}"));
    s.split(&format!("{stage}_1"), [THREADS], [&b0, &b1]).bind(&b1, Axis::ThreadX);
    bind_blocks(s, (&format!("{stage}_0"), rows), (&b0, up(columns, THREADS)));
}
