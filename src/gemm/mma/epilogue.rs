//! How the accumulators leave the registers of warps, and what becomes of parts of them.

use super::{Mma, Names, Operand, multiples, up};
use crate::gemm::grid::bind_blocks;
use crate::target::{Features, Target};
use crate::te::GemmSpec;
use std::fmt::Write as _;

/// The way of a tile of C from registers to memory. Lanes have pairs of neighbours: of 32-bit elements whole sectors, of
/// 16-bit ones less, so that rows of these are put together in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// Pairs, straight to memory.
    Direct,
    /// Pairs to shared memory, and whole rows from there.
    Rows,
    /// Four matrices of 8 x 8 at a time to shared memory (stmatrix), and whole rows from there.
    Stmatrix,
}

/// Elements of C from which on rows of it are stored together at its edges too (4095x4097x4099: 335 us for 405).
const LARGE: i64 = 1 << 21;
/// Threads of a block that adds parts up.
const ADDING: i64 = 128;

impl Epilogue {
    /// Tiles that reach beyond a small C are stored from registers where there is no stmatrix, each element under its own
    /// condition: blocks behind the product then find what they read by the names of the program.
    pub(super) fn of(spec: &GemmSpec, target: &Target, block: [i64; 2], parts: i64) -> Epilogue {
        let grows = spec.m % block[0] != 0 || spec.n % block[1] != 0;
        let large = spec.m.saturating_mul(spec.n) >= LARGE;
        let matrices = target.has(Features::STMATRIX);
        let rows = large || !grows || matrices && spec.n % 8 == 0;
        match parts == 1 && spec.out.bits() == 16 && rows {
            false => Epilogue::Direct,
            true if matrices => Epilogue::Stmatrix,
            true => Epilogue::Rows,
        }
    }
}

impl Mma {
    /// Whether a tile of C goes through shared memory.
    fn staged(&self) -> bool {
        self.epilogue != Epilogue::Direct
    }

    /// Elements between the rows of C's tile in shared memory: rows that are no whole panels of 128 bytes are not swizzled, and
    /// 16 bytes more let eight of them lie in different banks.
    pub(super) fn row_pad(&self) -> i64 {
        if self.block[1] % 64 == 0 { 0 } else { 8 }
    }

    /// Whether the tiles reach beyond C.
    pub(super) fn grows(&self, spec: &GemmSpec) -> bool {
        spec.m % self.whole(Operand::A) != 0 || spec.n % self.whole(Operand::B) != 0
    }

    /// The block that takes the accumulators out of registers, which are a fragment: the buffer between them and the conversion
    /// to C, or a copy of C's tile.
    pub(super) fn stored(&self, spec: &GemmSpec, names: &Names) -> (&'static str, String) {
        let (grows, mut out) = (self.grows(spec), String::new());
        let written = match (self.parts > 1, grows) {
            (true, _) => "parts",
            (false, true) => "C_pad",
            (false, false) => "C",
        };
        if !names.converts || self.parts > 1 {
            let to = if self.staged() { "C_s" } else { written };
            if self.staged() {
                let _ = writeln!(out, "cache_write {} {written} shared -> C_s", names.accumulators);
            }
            let _ = writeln!(out, "cache_write {} {to} fragment -> C_f", names.accumulators);
            return ("C_f", out);
        }
        if grows {
            out.push_str("compute_inline acc_pad\n");
        }
        if grows && self.staged() {
            let sizes = [("out_i", spec.m, self.whole(Operand::A)), ("out_j", spec.n, self.whole(Operand::B))];
            let _ = writeln!(out, "pad out {} -> acc_out C_pad; compute_inline acc_out", multiples(&sizes));
        }
        let _ = writeln!(out, "set_scope {} fragment", if grows { "acc_pad" } else { "acc" });
        if self.staged() {
            let _ = writeln!(out, "cache_write out {written} shared -> C_s");
        }
        if self.epilogue == Epilogue::Stmatrix {
            out.push_str("cache_write out C_s fragment -> C_f\n");
        }
        ("out", out)
    }

    /// What a warp does with its accumulators, and a block with the rows that they are put together to.
    pub(super) fn epilogue_loops(&self, spec: &GemmSpec, stored: &str, names: &Names) -> String {
        let copied = if self.parts > 1 { "op " } else { "" };
        // Where each element is stored under its own condition, those of a column one after the other need fewest registers.
        let order = if self.grows(spec) && !self.staged() && spec.n % 2 != 0 { "on om" } else { "om on" };
        let matrices = self.epilogue == Epilogue::Stmatrix;
        let columns = if matrices { 16 } else { 8 };
        let mut out = format!(
            "reverse_compute_at {stored} w -> {copied}o0 o1\n\
             split o0 ? {} -> om oi; split o1 ? {columns} -> on oj; reorder {copied}{order} oi oj\n",
            self.shape[0]
        );
        if matrices && names.converts {
            let _ = writeln!(
                out,
                "reverse_compute_at C_f w -> d0 d1; split d0 ? 16 -> dm di; split d1 ? 16 -> dn dj\n\
                 reorder dm dn di dj; tensorize di stmatrix.m16n16.{}",
                spec.out
            );
        } else if matrices {
            let _ = writeln!(out, "tensorize oi stmatrix.m16n16.{}", spec.out);
        }
        if self.staged() {
            let vector = if spec.n % 8 == 0 { " 8 -> s_0 s_1 s_2; vectorize s_2" } else { " -> s_0 s_1" };
            let _ = writeln!(
                out,
                "reverse_compute_at C_s {} -> s0 s1; fuse s0 s1 -> s; split s ? {}{vector}; bind s_1 threadIdx.x\n\
                 {}",
                self.innermost(),
                self.threads(),
                match self.row_pad() {
                    0 => "swizzle C_s 128".to_string(),
                    pad => format!("storage_align C_s 0 {} {pad}", self.block[1]),
                }
            );
            if self.grows(spec) {
                out.push_str("reverse_compute_inline C_pad\n");
            }
        }
        out
    }

    /// Adds parts up, and leaves out what lies beyond C.
    pub(super) fn finish(&self, spec: &GemmSpec, names: &Names) -> String {
        let mut out = String::new();
        if self.parts == 1 {
            if self.grows(spec) && !names.converts && !self.staged() {
                out.push_str("reverse_compute_inline C_pad\n");
            }
            return out;
        }
        let (whole, buffer) = (names.whole, if names.converts { "acc" } else { "C" });
        let summed = if self.grows(spec) { format!("{buffer}_pad") } else { buffer.to_string() };
        if self.grows(spec) && names.converts {
            let _ = writeln!(out, "compute_inline acc_pad");
        }
        let [rows, columns] = Operand::BOTH
            .map(|operand| up([spec.m, spec.n][operand as usize], self.whole(operand)) * self.whole(operand));
        let bound = bind_blocks(("ci", rows), ("c0", up(columns, ADDING)));
        let _ = writeln!(out, "split cj ? {ADDING} -> c0 c1; bind c1 threadIdx.x; {}", bound.trim_end());
        if names.converts {
            let _ = writeln!(out, "set_scope {summed} local; reverse_compute_at out c1");
        } else {
            let _ = writeln!(out, "cache_write {whole} {summed} local -> C_l; reverse_compute_at C_l c1");
            if self.grows(spec) {
                out.push_str("reverse_compute_inline C_pad\n");
            }
        }
        out + "unroll cp\n"
    }
}
