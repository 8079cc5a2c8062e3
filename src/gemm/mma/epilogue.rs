//! How the accumulators leave the registers of warps, and what becomes of parts of them.

use super::{Epilogue, Mma, Names, present};
use crate::gemm::epilogue::{divide_rows, row_vector};
use crate::gemm::split::{ClusterTile, Combine, PITCH_OF_PAIRS, combine_parts, share, shares_out};
use crate::gemm::tiles::FRAGMENT;
use crate::ir::{Axis, Scope};
use crate::schedule::Steps;
use crate::target::{Features, Target};
use crate::te::GemmSpec;

/// Elements of C from which on rows of it are stored together at its edges too (4095x4097x4099: 335 us for 405).
const LARGE: i64 = 1 << 21;

/// Rows of a tile are stored together. Lanes that store their own elements of rows that are not aligned to 16 bytes take much longer: on an H100
/// 60x14559x16 TT of f16 takes 7.3 us so and 2.8 in rows, 2304x321x66 NT 8.2 and 4.1, 1500x1501x64 NT 9.8 and 9.7; of s8, whose results have 32
/// bits, 9344x1036x16 NT 35.5 and 16.5, and 1856x13768x7 TN with whole sectors 47.4 and 39.1 (no record was kept). Where there is no stmatrix,
/// tiles that reach beyond a small C with an epilogue are stored from registers: its blocks then find what they read by the names of the program.
pub(super) fn choose(spec: &GemmSpec, target: &Target, block: [i64; 2], parts: i64) -> Epilogue {
    let grows = spec.least_m.is_some() || spec.m % block[0] != 0 || spec.n % block[1] != 0;
    let large = spec.m.saturating_mul(spec.n) >= LARGE;
    let matrices = target.has(Features::STMATRIX);
    let rows = large || !grows || matrices || !spec.epilogue;
    match (spec.out.bits(), parts == 1 && rows) {
        (16, true) if matrices => Epilogue::Stmatrix,
        (16 | 32, true) => Epilogue::Rows,
        // Pairs of 64-bit elements fill 16 bytes, so rows of whole pairs are stored as fast from registers.
        (64, true) if spec.n % 2 != 0 => Epilogue::Rows,
        _ => Epilogue::Direct,
    }
}

impl Mma {
    /// Whether a tile of C goes through shared memory.
    fn staged(&self) -> bool {
        self.epilogue != Epilogue::Direct
    }

    /// Elements between the rows of C's tile in shared memory. Rows of 16-bit elements that are whole panels of 128 bytes are swizzled. With 16
    /// bytes more, eight of other rows are in different banks. Of 32-bit elements the lanes of half a warp write pairs to four rows of 32 bytes,
    /// which are in different banks with 32 bytes more.
    pub(super) fn row_pad(&self, spec: &GemmSpec) -> i64 {
        if self.block[1] % 64 == 0 && spec.out.bits() == 16 { 0 } else { 8 }
    }

    /// Bytes of C's tile in shared memory.
    pub(super) fn staged_bytes(&self, spec: &GemmSpec) -> i64 {
        let row = (self.block[1] + self.row_pad(spec)) * i64::from(spec.out.bits()) / 8;
        if self.staged() { self.block[0] * row } else { 0 }
    }

    /// Whether the tiles reach beyond C.
    pub(super) fn grows(&self, spec: &GemmSpec) -> bool {
        self.padding(spec).pads_result()
    }

    /// The block that takes the accumulators out of registers, which are a fragment: the buffer between them and the conversion
    /// to C, or a copy of C's tile.
    pub(super) fn stored(&self, s: &mut Steps, spec: &GemmSpec, names: &Names) -> &'static str {
        let (padding, staged) = (self.padding(spec), self.staged());
        let written = if self.parts > 1 { "parts" } else { padding.written() };
        if !names.whole.converts() || self.parts > 1 {
            if staged {
                s.cache_write(names.accumulators, written, Scope::Shared, "C_s");
            }
            s.cache_write(names.accumulators, if staged { "C_s" } else { written }, Scope::Fragment, "C_f");
            return "C_f";
        }
        if padding.pads_result() {
            s.compute_inline("acc_pad");
        }
        if padding.pads_result() && staged {
            padding.pad_conversion(s);
        }
        s.set_scope(padding.converted(), Scope::Fragment);
        if staged {
            s.cache_write("out", written, Scope::Shared, "C_s");
        }
        if self.epilogue == Epilogue::Stmatrix {
            s.cache_write("out", "C_s", Scope::Fragment, "C_f");
        }
        "out"
    }

    /// What a warp does with its accumulators, and a block with the rows that they are put together to.
    pub(super) fn epilogue_loops(&self, s: &mut Steps, spec: &GemmSpec, stored: &str, names: &Names) {
        let copied = if self.parts > 1 { "op" } else { "" };
        // Where each element is stored under its own condition, those of a column one after the other need fewest registers.
        let by_column = self.grows(spec) && !self.staged() && spec.n % 2 != 0;
        let order = if by_column { ["on", "om"] } else { ["om", "on"] };
        let matrices = self.epilogue == Epilogue::Stmatrix;
        s.reverse_compute_at(stored, "w").made(present([copied, "o0", "o1"]));
        // Each lane has its elements in an order of its own where rows or columns of instructions have another one.
        if self.transposes_any(spec) {
            if self.staged() {
                self.store_rows(s, spec);
            }
            return;
        }
        s.split("o0", [self.shape[0]], ["om", "oi"]).split("o1", [if matrices { 16 } else { 8 }], ["on", "oj"]);
        s.reorder(present([copied].into_iter().chain(order).chain(["oi", "oj"])));
        let stmatrix = format!("stmatrix.m16n16.{}", spec.out);
        if matrices && names.whole.converts() {
            s.reverse_compute_at("C_f", "w").made(["d0", "d1"]);
            s.split("d0", [16], ["dm", "di"]).split("d1", [16], ["dn", "dj"]).reorder(["dm", "dn", "di", "dj"]);
            s.tensorize("di", &stmatrix);
        } else if matrices {
            s.tensorize("oi", &stmatrix);
        }
        if self.staged() {
            self.store_rows(s, spec);
        }
    }

    /// The threads of a block store the rows of C's tile from shared memory.
    fn store_rows(&self, s: &mut Steps, spec: &GemmSpec) {
        let vector = row_vector(spec);
        divide_rows(s, "C_s", self.cluster().innermost(), self.threads(), vector);
        if vector > 1 {
            s.vectorize("s_2");
        }
        s.bind("s_1", Axis::ThreadX);
        match self.row_pad(spec) {
            0 => s.swizzle("C_s", 128),
            pad => s.storage_align("C_s", 0, self.block[1], pad),
        };
        self.padding(spec).crop(s);
    }

    /// Whether the blocks of a cluster can add up the parts of a tile: a block's share is whole tiles of warps, or each of those is whole shares.
    pub(super) fn divides_shares(&self) -> bool {
        let fits = |(d, share): (usize, i64)| {
            let divides = |side: i64| share % side == 0 || side % share == 0;
            divides(self.block[d] / self.warps[d]) && divides(FRAGMENT)
        };
        shares_out(self.block, self.parts, self.threads()) && share(self.block, self.parts).is_some_and(fits)
    }

    /// Adds parts up, and leaves out what is beyond C.
    pub(super) fn finish(&self, s: &mut Steps, spec: &GemmSpec, names: &Names) {
        let (padding, converts) = (self.padding(spec), names.whole.converts());
        if self.parts == 1 {
            if !converts && !self.staged() {
                padding.crop(s);
            }
            return;
        }
        match self.combine {
            Combine::Kernel => combine_parts(s, names.whole, &padding, self.parts),
            Combine::Cluster => {
                let (tile, parts, threads) = (self.block, self.parts, self.threads());
                let shared = ClusterTile { tile, parts, threads, pitch: PITCH_OF_PAIRS, is_staged: false };
                shared.combine(s, names.whole, &padding);
            }
        }
    }
}
