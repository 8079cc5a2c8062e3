//! GEMMs with too few tiles to fill a device: warps or blocks divide the sum over k of a tile.
//!
//! *Slices* (sliced-K): groups of warps of a block alternate along k, each with the whole tile in its registers; the block adds their
//! tiles in shared memory. *Parts* (split-K): blocks sum over parts of k into a workspace, and a second kernel adds the parts.
//! Both add in one fixed order. Slices keep a multiprocessor busy whose block has a small tile,
//! parts give work to multiprocessors that have none.

use super::epilogue::Accumulators;
use super::grid::bind_blocks;
use super::operand::up;
use super::padding::Padding;
use super::staging::{divide_among_threads, present};
use super::work::Passes;
use crate::ir::{Axis, Scope};
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// How the sum over k of a tile is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Parts of k, each summed by a block of its own (split-K).
    pub parts: i64,
    /// Groups of warps of a block that alternate along k (sliced-K).
    pub slices: i64,
}

/// Threads of a block that adds up parts.
const COMBINING: i64 = 128;

impl Split {
    /// Each thread sums over all of k.
    pub const NONE: Split = Split { parts: 1, slices: 1 };

    /// The block whose accumulators are in registers.
    pub(super) fn sums(&self) -> &'static str {
        if self.slices > 1 { "slices" } else { self.whole() }
    }

    /// The block that has the accumulators of a kernel's tile.
    fn whole(&self) -> &'static str {
        if self.parts > 1 { "parts" } else { "C" }
    }

    /// Makes the loops k0 and k1 of the accumulators, and those of the split.
    pub(super) fn cut(&self, s: &mut Steps, bk: i64) {
        split_k(s, self.parts);
        if self.slices == 1 {
            s.split("k", [bk], ["k0", "k1"]);
            return;
        }
        s.split("k", [self.slices, bk], ["k0", "ks", "k1"]);
        let own = if self.parts > 1 { "tp" } else { "" };
        s.rfactor(self.whole(), "ks")
            .made(present(["slices", own, "ti", "tj", "ts"]))
            .set_scope("slices", Scope::Shared);
    }

    /// The loop over parts, before those of a tile; empty without.
    pub(super) fn part(&self) -> &'static str {
        if self.parts > 1 { "part" } else { "" }
    }

    /// The loop over slices, and that of their copies; empty without.
    pub(super) fn slice(&self) -> [&'static str; 2] {
        if self.slices > 1 { ["ks", "us"] } else { ["", ""] }
    }

    /// The dimensions of the accumulators before rows and columns.
    pub(super) fn dims(&self) -> &'static [&'static str] {
        match (self.slices > 1, self.parts > 1) {
            (false, false) => &[],
            (true, true) => &["s", "p"],
            _ => &["s"],
        }
    }

    /// Adds up slices under the loop `inner` over blocks, and parts in a kernel of their own, in vectors of `wide` elements.
    pub(super) fn combine(&self, s: &mut Steps, tile: [i64; 2], threads: i64, wide: i64, inner: &str) {
        if self.slices > 1 {
            let (whole, own) = (self.whole(), if self.parts > 1 { "xp" } else { "" });
            let vector = wide.min((tile[0] * tile[1] / threads).max(1));
            combine_slices(s, [whole, whole, &format!("{whole}_s")], inner, own, [threads, vector]);
        }
        if self.parts > 1 {
            s.cache_write("C", "C", Scope::Local, "C_l");
            divide_among_threads(s, ["ci", "cj"], "cf", COMBINING, wide, ["c0", "c1", "cv"].map(str::to_string));
            s.reorder(["cp", "cv"]).bind("c0", Axis::BlockX).bind("c1", Axis::ThreadX);
            s.reverse_compute_at("C_l", "c1").made(["di", "dj"]).vectorize("dj").vectorize("cv").unroll("cp");
        }
    }
}

/// Divides k among so many blocks (split-K), whose accumulators are block `parts`.
pub(super) fn split_k(s: &mut Steps, parts: i64) {
    if parts > 1 {
        s.split_k("k", parts).made(["parts", "part", "ci", "cj", "cp"]).bind("part", Axis::BlockZ);
    }
}

/// Numbers of parts that candidates have: at most 1.5 apart from each other.
pub(super) const PARTS: [i64; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];

/// Threads of a block that adds parts.
const ADDING: i64 = 128;

/// Adds up parts in a kernel of its own, in which a thread has one element of C. It converts to C and leaves out what lies beyond it; it may
/// begin beside the GEMM's own.
pub(super) fn combine_parts(s: &mut Steps, accumulators: Accumulators, padding: &Padding, begins_early: bool) {
    share_out(s, padding.result());
    let stored = accumulators.keep_padded_in_registers(s, padding, "C_l");
    s.reverse_compute_at(stored, "c1").unroll("cp");
    if !accumulators.converts() {
        padding.crop(s);
    }
    if begins_early {
        s.launch("c0").grid_dependency(2);
    }
}

/// Shares the elements of C out to threads: all of them in their order where whole blocks cover them, else those of its longer side.
fn share_out(s: &mut Steps, [rows, columns]: [i64; 2]) {
    if rows.saturating_mul(columns) % ADDING == 0 {
        s.fuse(["ci", "cj"], "c").split("c", [ADDING], ["c0", "c1"]).bind("c0", Axis::BlockX);
    } else if columns >= rows {
        let threads = ADDING.min(columns);
        s.split("cj", [threads], ["c0", "c1"]);
        bind_blocks(s, ("ci", rows), ("c0", up(columns, threads)));
    } else {
        let threads = ADDING.min(rows);
        s.split("ci", [threads], ["c0", "c1"]).reorder(["cj", "c1"]);
        bind_blocks(s, ("c0", up(rows, threads)), ("cj", columns));
    }
    s.bind("c1", Axis::ThreadX);
}

/// What parts on tensor cores take besides the GEMM's own kernel: they are written to workspace, read by a kernel that adds them up, and C
/// is written. The workspace moves as slowly as device memory: 512x512x16384 takes 20.0, 21.2 and 26.2 us on an H100 with 4, 8 and 16 MB
/// of it.
pub(super) fn combining(spec: &GemmSpec, parts: i64) -> Passes {
    match parts {
        1 => Passes::default(),
        _ => Passes {
            kernels: 1.0,
            memory_bytes: (4 * (2 * parts + 1)) as f64 * spec.m as f64 * spec.n as f64,
            ..Passes::default()
        },
    }
}

/// Adds up the slices of a tile under the loop `inner` over blocks: block `whole` sums in registers (`copy`) and writes `written`. `own`
/// is the loop over the dimension of parts, or empty.
pub(super) fn combine_slices(
    s: &mut Steps,
    [whole, written, copy]: [&str; 3],
    inner: &str,
    own: &str,
    [threads, vector]: [i64; 2],
) {
    s.cache_write(whole, written, Scope::Local, copy).reverse_compute_at(whole, inner).made(["xi", "xj"]);
    divide_among_threads(s, ["xi", "xj"], "xf", threads, vector, ["x0", "x1", "xv"].map(str::to_string));
    s.reorder(["ts", "xv"]).bind("x1", Axis::ThreadX);
    s.reverse_compute_at(copy, "x1").made(present([own, "yi", "yj"])).vectorize("yj").vectorize("xv").unroll("ts");
}
