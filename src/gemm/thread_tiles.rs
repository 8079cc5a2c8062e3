//! Small tiles for each thread, spread over three axes of threads, from stages that tensor cores can take over: the schedule
//! of TVM's tutorial on automatic tensor cores (How to optimize matmul with Auto TensorCore CodeGen).
//!
//! The steps are those of ordinary code: slices of both operands in shared memory, from which each thread reads its row and its
//! columns into registers, and a last step `tensor_core ko`. Where the chip and the sizes allow, that makes 32 neighbouring
//! threads a warp that owns a matrix of 16 x 16 or 8 x 32 elements (of 8 x 8 for 4-bit integers and single bits); elsewhere it says why not and
//! leaves the steps to what they are.

use super::epilogue::Accumulators;
use crate::ir::{Axis, Scope};
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// The tutorial's knobs, by its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadTiles {
    /// Threads along a row of C, each with its share of columns.
    pub bx: i64,
    /// Threads along a column of C, each with one row.
    pub by: i64,
    /// Steps of 16 terms (of 32 for 4-bit integers, of 128 for single bits) in a slice of shared memory.
    pub step_k: i64,
    /// Elements that a thread copies at once; of single bits at least the eight of a byte.
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

    /// The steps, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let ThreadTiles { bx, by, step_k, .. } = *self;
        let Shape { thread, warp, terms } = shape(spec);
        let columns = bx * thread;
        let warp = warp.min(columns);
        let (mut s, accumulators) = (Steps::new(), Accumulators::of(spec));
        for (operand, staged, local) in [("A", "AA", "AL"), ("B", "BB", "BL")] {
            s.cache_read(accumulators.block(), operand, Scope::Shared, staged);
            s.cache_read(accumulators.block(), staged, Scope::Local, local);
        }
        let last = accumulators.keep_in_registers(&mut s, "CL");
        // As in the tutorial, whose letters for layouts differ.
        let (factor, offset) = alignment(spec.a.bits());
        s.storage_align(if spec.layout.a_transposed() { "BB" } else { "AA" }, 0, factor, offset);
        s.split("i", [by, 1], ["yo", "ty", "yi"]);
        s.split("j", [columns / warp, warp / thread, thread], ["xo", "tz", "tx", "xi"]);
        s.split("k", [step_k, terms], ["ko", "kl", "ki"]);
        s.reorder(["yo", "xo", "tz", "ty", "tx", "ko", "kl", "ki", "yi", "xi"]);
        s.reverse_compute_at(last, "tx").made(["c0", "c1"]);
        s.bind("yo", Axis::BlockY).bind("xo", Axis::BlockX);
        s.bind("ty", Axis::ThreadY).bind("tz", Axis::ThreadZ).bind("tx", Axis::ThreadX);
        s.compute_at("AL", "kl").made(["a0", "a1"]).compute_at("BL", "kl").made(["b0", "b1"]);
        let v = self.v.max(8 / i64::from(spec.a.bits()));
        let slices = ThreadTiles { v, ..*self };
        slices.slice(&mut s, "AA", "a", warp / thread);
        slices.slice(&mut s, "BB", "b", warp / thread);
        s.tensor_core("ko");
        s
    }

    /// A slice's way into shared memory: all threads share it out, `v` elements at a time.
    fn slice(&self, s: &mut Steps, stage: &str, x: &str, tx: i64) {
        let ThreadTiles { bx, by, v, .. } = *self;
        let [row, column, outer, fused, rounds, ty, tz, lane, element] =
            ["r", "c", "o", "f", "g", "y", "z", "x", "v"].map(|end| format!("{x}{end}"));
        s.compute_at(stage, "ko").made([&row, &column]);
        s.split(&column, [bx / tx, tx, v], [&outer, &tz, &lane, &element]);
        s.fuse([&row, &outer], &fused).split(&fused, [by], [&rounds, &ty]);
        s.bind(&ty, Axis::ThreadY).bind(&tz, Axis::ThreadZ).bind(&lane, Axis::ThreadX).vectorize(&element);
    }
}

/// The tutorial's tiles by the width of the operands.
fn shape(spec: &GemmSpec) -> Shape {
    match spec.a.bits() {
        1 => Shape { thread: 2, warp: 8, terms: 128 },
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
            let steps = ThreadTiles::BEST.steps(&spec).to_string();
            steps.lines().find(|l| l.starts_with("storage_align")).unwrap().to_string()
        };
        assert_eq!(aligned(DType::F16, Layout::NN), "storage_align AA 0 16 8");
        assert_eq!(aligned(DType::S8, Layout::NT), "storage_align AA 0 32 16");
        assert_eq!(aligned(DType::S8, Layout::TN), "storage_align BB 0 32 16");
        assert_eq!(aligned(DType::S4, Layout::NT), "storage_align AA 0 64 32");
        assert_eq!(aligned(DType::B1, Layout::NT), "storage_align AA 0 256 128");
    }
}
