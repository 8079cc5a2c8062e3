//! Small tiles for each thread, spread over three axes of threads, from stages that tensor cores can take over: the schedule
//! of TVM's tutorial on automatic tensor cores (How to optimize matmul with Auto TensorCore CodeGen).
//!
//! The steps are those of ordinary code: slices of both operands in shared memory, from which each thread reads its row and its
//! columns into registers, and a last step `tensor_core ko`. Where the chip and the sizes allow, that makes 32 neighbouring
//! threads a warp that owns a matrix of 16 x 16 or 8 x 32 elements (of 8 x 8 for 4-bit integers); elsewhere it says why not and
//! leaves the steps to what they are.

use crate::te::GemmSpec;
use std::fmt::Write as _;

/// The tutorial's knobs, by its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadTiles {
    /// Threads along a row of C, each with its share of columns.
    pub bx: i64,
    /// Threads along a column of C, each with one row.
    pub by: i64,
    /// Steps of 16 terms (of 32 for 4-bit integers) in a slice of shared memory.
    pub step_k: i64,
    /// Elements that a thread copies at once.
    pub v: i64,
}

/// Columns of a thread, those of a warp's matrix at most, and terms of a step.
struct Shape {
    thread: i64,
    warp: i64,
    terms: i64,
}

impl ThreadTiles {
    /// What the tutorial's search found best for f16 at 512 x 32 x 512.
    pub const BEST: ThreadTiles = ThreadTiles { bx: 4, by: 32, step_k: 16, v: 8 };

    /// The whole space that the tutorial searches.
    pub fn space() -> impl Iterator<Item = ThreadTiles> {
        let knobs = [2, 4, 8].into_iter().flat_map(|bx| [8, 16, 32, 64].map(|by| (bx, by)));
        let knobs = knobs.flat_map(|(bx, by)| [1, 2, 4, 8, 16, 32].map(|step_k| (bx, by, step_k)));
        knobs.flat_map(|(bx, by, step_k)| [4, 8, 16, 32].map(|v| ThreadTiles { bx, by, step_k, v }))
    }

    /// The steps as text, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> String {
        let ThreadTiles { bx, by, step_k, .. } = *self;
        let Shape { thread, warp, terms } = shape(spec);
        let columns = bx * thread;
        let warp = warp.min(columns);
        // One type: block C accumulators, and its sum is copied. Otherwise block mma accumulators into acc, which block out converts.
        let single = spec.acc == spec.out;
        let (block, last) = if single { ("C", "CL") } else { ("mma", "out") };
        let mut out = String::new();
        for x in ["A", "B"] {
            let _ = writeln!(out, "cache_read {block} {x} shared -> {x}{x}\ncache_read {block} {x}{x} local -> {x}L");
        }
        out.push_str(if single { "cache_write C C local -> CL\n" } else { "set_scope acc local\n" });
        // As in the tutorial, whose letters for layouts differ.
        let (factor, offset) = alignment(spec.a.bits());
        if !spec.layout.a_transposed() {
            let _ = writeln!(out, "storage_align AA 0 {factor} {offset}");
        }
        if spec.layout.a_transposed() {
            let _ = writeln!(out, "storage_align BB 0 {factor} {offset}");
        }
        let _ = write!(
            out,
            "split i ? {by} 1 -> yo ty yi\nsplit j ? {} {} {thread} -> xo tz tx xi\n\
             split k ? {step_k} {terms} -> ko kl ki\nreorder yo xo tz ty tx ko kl ki yi xi\n\
             reverse_compute_at {last} tx -> c0 c1\n\
             bind yo blockIdx.y; bind xo blockIdx.x\n\
             bind ty threadIdx.y; bind tz threadIdx.z; bind tx threadIdx.x\n\
             compute_at AL kl -> a0 a1; compute_at BL kl -> b0 b1\n",
            columns / warp,
            warp / thread,
        );
        out.push_str(&self.slice("AA", "a", warp / thread));
        out.push_str(&self.slice("BB", "b", warp / thread));
        out.push_str("tensor_core ko\n");
        out
    }

    /// A slice's way into shared memory: all threads share it out, `v` elements at a time.
    fn slice(&self, stage: &str, x: &str, tx: i64) -> String {
        let ThreadTiles { bx, by, v, .. } = *self;
        let tz = bx / tx;
        format!(
            "compute_at {stage} ko -> {x}r {x}c\nsplit {x}c ? {tz} {tx} {v} -> {x}o {x}z {x}x {x}v\n\
             fuse {x}r {x}o -> {x}f; split {x}f ? {by} -> {x}g {x}y\n\
             bind {x}y threadIdx.y; bind {x}z threadIdx.z; bind {x}x threadIdx.x; vectorize {x}v\n"
        )
    }
}

/// The tutorial's tiles by the width of the operands.
fn shape(spec: &GemmSpec) -> Shape {
    match spec.a.bits() {
        4 => Shape { thread: 2, warp: 8, terms: 32 },
        _ => Shape { thread: 8, warp: 16, terms: 16 },
    }
}

/// Elements that rows of a slice are 1 past a multiple of, in units of 16 bytes.
fn alignment(bits: u32) -> (i64, i64) {
    let offset = 128 / i64::from(bits);
    (2 * offset, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::te::Layout;

    #[test]
    fn the_space_and_its_alignments_are_the_tutorials() {
        assert_eq!(ThreadTiles::space().count(), 3 * 4 * 6 * 4);
        let aligned = |dtype, layout| {
            let spec = GemmSpec { acc: DType::S32, out: DType::S32, ..GemmSpec::of(64, 64, 64, dtype, layout) };
            let steps = ThreadTiles::BEST.steps(&spec);
            steps.lines().find(|l| l.starts_with("storage_align")).unwrap().to_string()
        };
        assert_eq!(aligned(DType::F16, Layout::NN), "storage_align AA 0 16 8");
        assert_eq!(aligned(DType::S8, Layout::NT), "storage_align AA 0 32 16");
        assert_eq!(aligned(DType::S8, Layout::TN), "storage_align BB 0 32 16");
        assert_eq!(aligned(DType::S4, Layout::NT), "storage_align AA 0 64 32");
    }
}
