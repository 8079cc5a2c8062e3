//! Accumulators and their way to C, as recipes share them.

use super::operand::multiple_of_result;
use super::padding::Padding;
use super::staging::present;
use crate::ir::{Axis, Index, Scope};
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// How a tile of C gets from the registers of warps to device memory. Lanes have pairs of neighbouring elements: a warp that stores them writes
/// pieces of 16 or 32 bytes of each row. So shared memory holds rows before they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// Threads store their accumulators. Tiles of wgmma that reach beyond C pass through shared memory first.
    Direct,
    /// Threads write pairs to shared memory, and whole rows from there.
    Rows,
    /// Warps write four matrices of 8 x 8 at a time to shared memory (stmatrix), and threads whole rows from there.
    Stmatrix,
    /// TMA stores whole rows from shared memory.
    Tma,
}

/// Moves a tile of C that block `stored` copies from shared memory under a loop over blocks, and divides it among threads: loops `s_0`,
/// `s_1` over threads, and `s_2` over the elements of a vector where it has several.
pub(super) fn divide_rows(s: &mut Steps, stored: &str, at: &str, threads: i64, vector: i64) {
    divide_rows_of(s, stored, at, "", threads, vector);
}

/// The same with a loop `batch` over the products of a batch, if it has a name.
fn divide_rows_of(s: &mut Steps, stored: &str, at: &str, batch: &str, threads: i64, vector: i64) {
    s.reverse_compute_at(stored, at).made(present([batch, "s0", "s1"])).fuse(["s0", "s1"], "s");
    match vector {
        1 => s.split("s", [threads], ["s_0", "s_1"]),
        _ => s.split("s", [threads, vector], ["s_0", "s_1", "s_2"]),
    };
}

/// The loops of block `C_s` of ordinary code, which stores a tile of C from shared memory: adjacent threads store adjacent elements of a row,
/// in vectors that rows of C are aligned to.
pub(super) fn store_rows(s: &mut Steps, spec: &GemmSpec, at: &str, batch: &str, threads: i64) {
    let vector = row_vector(spec);
    divide_rows_of(s, "C_s", at, batch, threads, vector);
    if vector > 1 {
        s.vectorize("s_2");
    }
    s.bind("s_1", Axis::ThreadX);
}

/// Elements of the widest vector that the rows of C are aligned to, up to 16 bytes.
pub(super) fn row_vector(spec: &GemmSpec) -> i64 {
    1 << multiple_of_result(spec).trailing_zeros().min((128 / spec.out.bits()).trailing_zeros())
}

/// Whether rows of C are not aligned to 16 bytes. Stores from registers are then not coalesced.
pub(super) fn has_unaligned_rows(spec: &GemmSpec) -> bool {
    multiple_of_result(spec) * i64::from(spec.out.bits()) % 128 != 0
}

/// A row or column of the accumulators as that of a block, the group in it, the thread, and what the thread has of the group, for a layout by
/// which threads are told apart.
pub(super) fn digits(x: Index, [groups, threads, own]: [i64; 3]) -> [Index; 4] {
    let digit = |below: i64, extent: i64| x.clone().floordiv(below).floormod(extent);
    [
        x.clone().floordiv(groups * threads * own),
        digit(threads * own, groups),
        digit(own, threads),
        x.clone().floormod(own),
    ]
}

/// The block that has the accumulators. Where C has their type and no epilogue follows, it is block `C`; else block `mma` sums into `acc`,
/// and block `out` converts to C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accumulators {
    /// C itself.
    Result,
    /// A buffer of another type than C, or one that an epilogue reads.
    Converted,
}

impl Accumulators {
    /// Those of a GEMM.
    pub fn of(spec: &GemmSpec) -> Accumulators {
        if spec.acc == spec.out && !spec.epilogue { Accumulators::Result } else { Accumulators::Converted }
    }

    /// Whether C has another type.
    pub fn converts(self) -> bool {
        self == Accumulators::Converted
    }

    /// The block that sums.
    pub fn block(self) -> &'static str {
        if self.converts() { "mma" } else { "C" }
    }

    /// Keeps accumulators with what tiles add in registers of a thread, `copy` those of C; the block that stores them.
    pub fn keep_padded_in_registers<'a>(self, s: &mut Steps, padding: &Padding, copy: &'a str) -> &'a str {
        match self {
            Accumulators::Result => {
                s.cache_write("C", padding.written(), Scope::Local, copy);
                copy
            }
            Accumulators::Converted => {
                if padding.pads_result() {
                    s.compute_inline("acc_pad");
                }
                s.set_scope(padding.converted(), Scope::Local);
                "out"
            }
        }
    }

    /// The same, but the block stores to a tile `C_s` in shared memory, which block `C_s` copies to C.
    pub fn keep_behind_rows<'a>(self, s: &mut Steps, padding: &Padding, copy: &'a str) -> &'a str {
        match self {
            Accumulators::Result => {
                s.cache_write("C", padding.written(), Scope::Shared, "C_s").cache_write("C", "C_s", Scope::Local, copy);
                copy
            }
            Accumulators::Converted => {
                if padding.pads_result() {
                    s.compute_inline("acc_pad");
                    padding.pad_conversion(s);
                }
                s.set_scope(padding.converted(), Scope::Local);
                s.cache_write("out", padding.written(), Scope::Shared, "C_s");
                "out"
            }
        }
    }

    /// Keeps the accumulators in registers of a thread, `copy` those of C; the block that stores them.
    pub fn keep_in_registers<'a>(self, s: &mut Steps, copy: &'a str) -> &'a str {
        match self {
            Accumulators::Result => {
                s.cache_write("C", "C", Scope::Local, copy);
                copy
            }
            Accumulators::Converted => {
                s.set_scope("acc", Scope::Local);
                "out"
            }
        }
    }
}
