//! The recipe for products on tensor cores by mma.sync: f16 and bf16, and 8-bit integers.
//!
//! Tiles of both factors come into a ring of slots in shared memory by asynchronous copies, swizzled so that neither they
//! nor ldmatrix meet a bank twice; a warp has the factors of its next step of k in registers while it multiplies those of
//! this one. 16-bit factors whose rows do not run along k are turned by ldmatrix on the way. There is no such instruction
//! for bytes: those are turned by a kernel of their own (*packing*), as are factors whose rows are not aligned to 16 bytes,
//! which asynchronous copies cannot read. A product that the tiles do not divide is padded with zeros, by the copies or
//! while a factor is packed. Where there are few tiles, blocks of their own sum over parts of k.
//!
//! An H200 at full load is limited by its power: what counts is how few bytes are moved for a product. So large products
//! have large tiles, neighbouring blocks read the same ones, and B's registers stay while A's change.

mod cost;

use super::sides::{along_k, contiguous, rows, up};
use crate::dtype::DType;
use crate::target::{Features, Target};
use crate::te::GemmSpec;
use std::fmt::Write as _;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mma {
    /// Rows and columns of C of a block.
    pub block: [i64; 2],
    /// Warps of a block, along rows and columns of C.
    pub warps: [i64; 2],
    /// Terms of the sums in a slot of shared memory.
    pub bk: i64,
    /// Slots.
    pub stages: i64,
    /// Whether a warp loads factors one step of k ahead.
    pub ahead: bool,
    /// Rows of blocks that are walked together.
    pub group: i64,
    /// Parts of k that blocks of their own sum over.
    pub parts: i64,
    /// How A and B come into shared memory.
    pub routes: [Source; 2],
}

/// What a tile of a factor is copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The factor itself, 16 bytes at a time.
    Direct,
    /// Workspace that a kernel of its own fills: padded, turned or both.
    Packed,
}

/// Tiles and warps to choose from.
const CANDIDATES: [([i64; 2], [i64; 2]); 7] = [
    ([128, 256], [2, 4]),
    ([256, 128], [4, 2]),
    ([128, 128], [2, 2]),
    ([128, 64], [4, 2]),
    ([64, 128], [2, 4]),
    ([64, 64], [2, 2]),
    ([32, 64], [1, 2]),
];
/// Numbers of parts to choose from.
const PARTS: [i64; 6] = [1, 2, 3, 4, 6, 8];
/// Elements of C from which on rows of it are stored together at its edges too (4095x4097x4099: 335 us for 405).
const LARGE: i64 = 1 << 21;
/// Threads of a block that packs, and of one that adds parts up.
const THREADS: i64 = 256;
const ADDING: i64 = 128;

impl Mma {
    /// The cheapest tiles; `None` where the chip or its tensor cores have no such product, or it is smaller than a tile.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let needed = Features::CP_ASYNC | Features::MMA_AMPERE | Features::LDMATRIX;
        if instruction(spec).is_none() || !target.has(needed) || spec.m.min(spec.n) < 16 || spec.k < 32 {
            return None;
        }
        let parts = |tile: &'static ([i64; 2], [i64; 2])| PARTS.into_iter().map(move |p| (tile, p));
        let all = CANDIDATES.iter().flat_map(parts).map(|((block, warps), parts)| Mma::of(spec, *block, *warps, parts));
        // Every warp of a lone tile has some of C, and every part some tiles of k.
        let used = |m: &Mma| (0..2).all(|d| rows(spec)[d] > m.block[d] - m.block[d] / m.warps[d]);
        let fits = |m: &Mma| used(m) && (m.parts == 1 || spec.k / m.parts >= 4 * m.bk);
        let cost = |m: &Mma| m.clocks(spec, target);
        all.filter(|m| fits(m) && cost(m).is_finite()).min_by(|a, b| cost(a).total_cmp(&cost(b)))
    }

    /// These tiles, with slots and routes that suit them.
    pub fn of(spec: &GemmSpec, block: [i64; 2], warps: [i64; 2], parts: i64) -> Mma {
        // 128 bytes of a row: all banks, and as many as are read together. Of large tiles of warps of 16-bit elements more
        // but shorter slots are a little faster (0.646 for 0.639 of cuBLAS at 4096^3 NN on an H200).
        // Bytes of long slots spill on some chips.
        let large = block[0] / warps[0] * (block[1] / warps[1]) > 1 << 11;
        let (row, stages) = match (large, bytes(spec)) {
            (true, 2) => (64, 5),
            (true, _) => (64, 4),
            _ => (128, 4),
        };
        let bk = row / bytes(spec);
        let rows = up(spec.m, block[0]);
        let group = if rows % 16 == 0 || rows > 32 { 16 } else { 8 };
        let routes = [0, 1].map(|side| {
            let unaligned = contiguous(spec, side) * bytes(spec) % 16 != 0;
            let turned = bytes(spec) == 1 && !along_k(spec)[side];
            if unaligned || turned { Source::Packed } else { Source::Direct }
        });
        Mma { block, warps, bk, stages, ahead: true, group, parts, routes }
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        32 * self.warps[0] * self.warps[1]
    }

    /// Bytes of shared memory of a block.
    pub fn shared(&self, spec: &GemmSpec) -> i64 {
        (self.block[0] + self.block[1]) * self.bk * self.stages * bytes(spec)
    }

    /// Whether k does not come out even.
    fn pads_k(&self, spec: &GemmSpec) -> bool {
        spec.k % (self.bk * self.parts) != 0
    }

    /// Whether a factor is read beyond its ends.
    fn pads(&self, spec: &GemmSpec, side: usize) -> bool {
        self.pads_k(spec) || rows(spec)[side] % self.block[side] != 0
    }

    /// Whether the tiles reach beyond C.
    fn grows(&self, spec: &GemmSpec) -> bool {
        spec.m % self.block[0] != 0 || spec.n % self.block[1] != 0
    }
}

/// The steps.
impl Mma {
    /// The steps as text, for a program of [`crate::te::gemm`] of types that tensor cores multiply.
    pub fn steps(&self, spec: &GemmSpec) -> String {
        let names = Names::of(self, spec);
        let mut out = self.pad(spec, &names);
        for side in 0..2 {
            out += &self.pack(spec, side, &names);
        }
        out += &self.nest(spec, &names);
        for side in 0..2 {
            out += &self.stage(spec, side, &names);
        }
        let _ = writeln!(out, "pipeline k0 stages={}; annotate k0 spread 1", self.stages);
        for side in 0..2 {
            out += &self.fragment(spec, side, &names);
        }
        if self.ahead {
            out.push_str("pipeline kk stages=2\n");
        }
        let (sums, row) = (names.sums, instruction(spec).unwrap_or_default());
        let _ = writeln!(out, "decompose_reduction {sums} k0 -> zero\nannotate im zigzag 1\ntensorize ii {row}");
        out + &self.finish(spec, &names)
    }

    fn pad(&self, spec: &GemmSpec, names: &Names) -> String {
        let sizes = [("i", spec.m, self.block[0]), ("j", spec.n, self.block[1]), ("k", spec.k, self.bk * self.parts)];
        let pads = multiples(&sizes);
        if pads.is_empty() { String::new() } else { format!("pad {} {pads}\n", names.whole) }
    }

    /// The kernel that packs a factor: eight rows a thread, or tiles of 64 x 64 bytes that are turned in shared memory.
    fn pack(&self, spec: &GemmSpec, side: usize, names: &Names) -> String {
        if self.routes[side] == Source::Direct {
            return String::new();
        }
        let (name, packed) = (NAMES[side], &names.sources[side]);
        let p = name.to_lowercase();
        let mut out = String::new();
        if !self.pads(spec, side) {
            let _ = writeln!(out, "cache_read {} {name} global -> {packed}", names.whole);
        }
        if bytes(spec) > 1 || along_k(spec)[side] {
            let _ = writeln!(
                out,
                "split {packed}_0 ? 8 -> {p}a0 {p}a1; split {packed}_1 ? {THREADS} -> {p}b0 {p}b1\n\
                 reorder {p}a0 {p}b0 {p}b1 {p}a1; unroll {p}a1\n\
                 bind {p}a0 blockIdx.y; bind {p}b0 blockIdx.x; bind {p}b1 threadIdx.x"
            );
            return out;
        }
        // Two neighbours write 32 bytes of a row, and read 16 columns of each of 16 rows at a time.
        let _ = writeln!(
            out,
            "transform_layout {packed} [k, w] -> [w, k]\n\
             split {packed}_0 ? 2 2 16 -> {p}a0 {p}a1 {p}a2 {p}a3; split {packed}_1 ? 4 16 -> {p}b0 {p}b1 {p}b2\n\
             reorder {p}a0 {p}b0 {p}b1 {p}a1 {p}b2 {p}a2 {p}a3; bind {p}a0 blockIdx.y; bind {p}b0 blockIdx.x\n\
             {}bind {p}t threadIdx.x; vectorize {p}a3\n\
             cache_read {packed} {name} shared -> {name}_x; compute_at {name}_x {p}b0 -> {p}x0 {p}x1; fuse {p}x0 {p}x1 -> {p}x",
            fused(&[format!("{p}b1"), format!("{p}a1"), format!("{p}b2"), format!("{p}a2")], &format!("{p}t")),
        );
        let _ = match contiguous(spec, side) % 16 {
            0 => {
                writeln!(out, "split {p}x ? {THREADS} 16 -> {p}x2 {p}x3 {p}x4; bind {p}x3 threadIdx.x; vectorize {p}x4")
            }
            _ => writeln!(out, "split {p}x ? {THREADS} -> {p}x2 {p}x3; bind {p}x3 threadIdx.x"),
        };
        out
    }

    /// The loops of blocks, warps and instructions, and those of what stores the sums.
    fn nest(&self, spec: &GemmSpec, names: &Names) -> String {
        let ([wi, wj], [ti, tj], ki) = (self.warps, self.tiles(), depth(spec));
        let mut out = String::new();
        let part = if self.parts > 1 { "part " } else { "" };
        if self.parts > 1 {
            let _ = writeln!(out, "split_k k {} -> parts part ci cj cp; bind part blockIdx.z", self.parts);
        }
        let (stored, steps) = self.stored(spec, names);
        out += &steps;
        let copied = if self.parts > 1 { "op " } else { "" };
        // Where each element is stored under its own condition, those of a column one after the other need fewest registers.
        let order = if self.grows(spec) && !self.staged(spec) && spec.n % 2 != 0 { "on om" } else { "om on" };
        let _ = write!(
            out,
            "split i ? {wi} {ti} 16 -> i0 iw im ii; split j ? {wj} {tj} 8 -> j0 jw jm ji\n\
             split k ? {} {ki} -> k0 kk ki\nreorder {part}i0 j0 iw jw k0 kk jm im ii ji ki\n\
             rasterize i0 j0 group={} -> tile; bind tile blockIdx.x; fuse iw jw -> w; bind w warp\n\
             reverse_compute_at {stored} w -> {copied}o0 o1\n\
             split o0 ? 16 -> om oi; split o1 ? 8 -> on oj; reorder {copied}{order} oi oj\n",
            self.bk / ki,
            self.group
        );
        if self.staged(spec) {
            let vector = if spec.n % 8 == 0 { " 8 -> s_0 s_1 s_2; vectorize s_2" } else { " -> s_0 s_1" };
            let _ = writeln!(
                out,
                "reverse_compute_at C_s tile -> s0 s1; fuse s0 s1 -> s; split s ? {}{vector}; bind s_1 threadIdx.x\n\
                 swizzle C_s 128",
                self.threads(),
            );
            if self.grows(spec) {
                out.push_str("reverse_compute_inline C_pad\n");
            }
        }
        out
    }

    /// Whether a tile of C goes through shared memory, so that rows of it are stored together: of 32-bit elements, lanes
    /// have whole sectors of memory anyway. Tiles that reach beyond a small C are stored from registers, each element under
    /// its own condition: blocks behind the product then find what they read by the names of the program.
    fn staged(&self, spec: &GemmSpec) -> bool {
        let large = spec.m.saturating_mul(spec.n) >= LARGE;
        self.parts == 1 && spec.out.bits() == 16 && (large || !self.grows(spec))
    }

    /// The block that takes the sums out of registers, which are a fragment: the buffer between them and the conversion
    /// to C, or a copy of C's tile.
    fn stored(&self, spec: &GemmSpec, names: &Names) -> (&'static str, String) {
        let (grows, mut out) = (self.grows(spec), String::new());
        let written = match (self.parts > 1, grows) {
            (true, _) => "parts",
            (false, true) => "C_pad",
            (false, false) => "C",
        };
        if !names.converts || self.parts > 1 {
            let to = if self.staged(spec) { "C_s" } else { written };
            if self.staged(spec) {
                let _ = writeln!(out, "cache_write {} {written} shared -> C_s", names.sums);
            }
            let _ = writeln!(out, "cache_write {} {to} fragment -> C_f", names.sums);
            return ("C_f", out);
        }
        if grows {
            out.push_str("compute_inline acc_pad\n");
        }
        if grows && self.staged(spec) {
            let sizes = [("out_i", spec.m, self.block[0]), ("out_j", spec.n, self.block[1])];
            let _ = writeln!(out, "pad out {} -> acc_out C_pad; compute_inline acc_out", multiples(&sizes));
        }
        let _ = writeln!(out, "set_scope {} fragment", if grows { "acc_pad" } else { "acc" });
        if self.staged(spec) {
            let _ = writeln!(out, "cache_write out {written} shared -> C_s");
        }
        ("out", out)
    }

    /// Tiles of the instruction that a warp has, along rows and columns.
    fn tiles(&self) -> [i64; 2] {
        [self.block[0] / self.warps[0] / 16, self.block[1] / self.warps[1] / 8]
    }

    /// A factor's tile in shared memory.
    fn stage(&self, spec: &GemmSpec, side: usize, names: &Names) -> String {
        let (n, source, x) = (NAMES[side], &names.sources[side], ["a", "b"][side]);
        let vector = 16 / bytes(spec);
        let mut out = format!("cache_read {} {source} shared -> {n}_s\n", names.sums);
        if self.pads(spec, side) && self.routes[side] == Source::Direct {
            let _ = writeln!(out, "compute_inline {source}");
        }
        let row = if runs_along_k(spec, side) { self.bk } else { self.block[side] };
        let _ = writeln!(
            out,
            "compute_at {n}_s k0 -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}; split {x} ? {} {vector} -> {x}_0 {x}_1 {x}_2\n\
             bind {x}_1 threadIdx.x; vectorize {x}_2; swizzle {n}_s {}; copy_with {n}_s cp_async",
            self.threads(),
            (row * bytes(spec)).min(128)
        );
        out
    }

    /// What a warp has of a factor in registers: four matrices at a time, in the order of the instruction's registers.
    fn fragment(&self, spec: &GemmSpec, side: usize, names: &Names) -> String {
        let (n, f, dtype, ki) = (NAMES[side], ["f", "g"][side], [spec.a, spec.b][side], depth(spec));
        let along = runs_along_k(spec, side);
        let order = if (side == 1) == along { ".row" } else { "" };
        let load = if along {
            format!("split {f}0 ? 16 -> {f}m {f}i; tensorize {f}i ldmatrix{order}.m16n{ki}.{dtype}")
        } else {
            format!(
                "split {f}1 ? 16 -> {f}m {f}i; reorder {f}m {f}0 {f}i; tensorize {f}0 ldmatrix.trans{order}.m16n{ki}.{dtype}"
            )
        };
        format!("cache_read {} {n}_s fragment -> {n}_f; compute_at {n}_f kk -> {f}0 {f}1; {load}\n", names.sums)
    }

    /// Adds parts up, and leaves out what lies beyond C.
    fn finish(&self, spec: &GemmSpec, names: &Names) -> String {
        let mut out = String::new();
        if self.parts == 1 {
            if self.grows(spec) && !names.converts && !self.staged(spec) {
                out.push_str("reverse_compute_inline C_pad\n");
            }
            return out;
        }
        let (whole, buffer) = (names.whole, if names.converts { "acc" } else { "C" });
        let summed = if self.grows(spec) { format!("{buffer}_pad") } else { buffer.to_string() };
        if self.grows(spec) && names.converts {
            let _ = writeln!(out, "compute_inline acc_pad");
        }
        let _ =
            writeln!(out, "split cj ? {ADDING} -> c0 c1; bind ci blockIdx.y; bind c0 blockIdx.x; bind c1 threadIdx.x");
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

/// What blocks and buffers are called.
struct Names {
    /// Whether C is of another type than the sums.
    converts: bool,
    /// The block that has the sums.
    whole: &'static str,
    /// The block whose sums are in registers.
    sums: &'static str,
    /// What the tiles of A and B are copied from.
    sources: [String; 2],
}

impl Names {
    fn of(mma: &Mma, spec: &GemmSpec) -> Names {
        let converts = spec.acc != spec.out;
        let whole = if converts { "mma" } else { "C" };
        let sources = [0, 1].map(|side| match (mma.pads(spec, side), mma.routes[side]) {
            (true, _) => format!("{}_pad", NAMES[side]),
            (false, Source::Packed) => format!("{}_pack", NAMES[side]),
            (false, Source::Direct) => NAMES[side].to_string(),
        });
        Names { converts, whole, sums: if mma.parts > 1 { "parts" } else { whole }, sources }
    }
}

/// The factors.
const NAMES: [&str; 2] = ["A", "B"];

/// The instruction for these types.
fn instruction(spec: &GemmSpec) -> Option<String> {
    use DType::{Bf16, F16, F32, S8, S32, U8};
    let known = match (spec.a, spec.b) {
        (F16, F16) => matches!(spec.acc, F32 | F16),
        (Bf16, Bf16) => spec.acc == F32,
        (S8 | U8, S8 | U8) => spec.acc == S32,
        _ => false,
    };
    known.then(|| format!("mma.m16n8k{}.{}.{}.{}", depth(spec), spec.acc, spec.a, spec.b))
}

/// Terms that an instruction adds up.
fn depth(spec: &GemmSpec) -> i64 {
    32 / bytes(spec)
}

/// Bytes of an element of a factor.
fn bytes(spec: &GemmSpec) -> i64 {
    (i64::from(spec.a.bits()) / 8).max(1)
}

/// Whether a factor's rows run along k in shared memory: bytes are turned before.
fn runs_along_k(spec: &GemmSpec, side: usize) -> bool {
    along_k(spec)[side] || bytes(spec) == 1
}

/// Loops whose extents a size does not divide, with the size.
fn multiples(sizes: &[(&str, i64, i64)]) -> String {
    let uneven = sizes.iter().filter(|(_, size, by)| size % by != 0);
    uneven.map(|(l, _, by)| format!("{l}={by}")).collect::<Vec<_>>().join(" ")
}

/// Steps that fuse loops into `name`; those between get it with a number.
fn fused(loops: &[String], name: &str) -> String {
    let mut out = String::new();
    let mut whole = loops[0].clone();
    for (i, l) in loops.iter().enumerate().skip(1) {
        let next = if i + 1 == loops.len() { name.to_string() } else { format!("{name}{i}") };
        let _ = write!(out, "fuse {whole} {l} -> {next}; ");
        whole = next;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    fn spec(m: i64, n: i64, k: i64, [a, acc, out]: [DType; 3], layout: Layout) -> GemmSpec {
        GemmSpec { acc, out, ..GemmSpec::of(m, n, k, a, layout) }
    }

    const HALF: [DType; 3] = [DType::F16, DType::F32, DType::F16];
    const BYTE: [DType; 3] = [DType::S8, DType::S32, DType::S32];

    fn choice(m: i64, n: i64, k: i64, types: [DType; 3], layout: Layout) -> Mma {
        Mma::choose(&spec(m, n, k, types, layout), &Target::sm_90a()).unwrap()
    }

    #[test]
    fn large_products_have_large_tiles() {
        for layout in Layout::ALL {
            let chosen = choice(8192, 8192, 8192, HALF, layout);
            assert_eq!(chosen.block.iter().product::<i64>(), 1 << 15, "{layout:?}");
            assert_eq!((chosen.parts, chosen.routes), (1, [Source::Direct; 2]));
        }
    }

    #[test]
    fn what_copies_cannot_read_is_packed() {
        use Source::{Direct, Packed};
        assert_eq!(choice(4095, 4097, 4099, HALF, Layout::NN).routes, [Packed, Packed]);
        assert_eq!(choice(4095, 4096, 4096, HALF, Layout::NN).routes, [Direct, Direct]);
        assert_eq!(choice(4095, 4096, 4096, HALF, Layout::TN).routes, [Packed, Direct]);
        // Rows of 1000 halves are whole vectors.
        assert_eq!(choice(1000, 1000, 1000, HALF, Layout::NT).routes, [Direct, Direct]);
        assert_eq!(choice(4096, 4096, 4096, BYTE, Layout::NT).routes, [Direct, Direct]);
        assert_eq!(choice(4096, 4096, 4096, BYTE, Layout::NN).routes, [Direct, Packed]);
        assert_eq!(choice(4096, 4096, 4096, BYTE, Layout::TN).routes, [Packed, Packed]);
    }

    #[test]
    fn few_tiles_are_smaller_or_share_their_sums_out() {
        let blocks = |m: Mma, size: i64| up(size, m.block[0]) * up(size, m.block[1]) * m.parts;
        for size in [512, 1000, 1024] {
            let chosen = choice(size, size, size, HALF, Layout::NN);
            assert!(blocks(chosen, size) >= 64, "{size}: {chosen:?}");
        }
        assert!(choice(128, 128, 65536, HALF, Layout::NN).parts > 1);
    }

    #[test]
    fn other_types_and_chips_have_other_recipes() {
        let none = |types, target: Target| Mma::choose(&spec(4096, 4096, 4096, types, Layout::NN), &target).is_none();
        assert!(none([DType::F32; 3], Target::sm_90a()));
        assert!(none([DType::Bf16, DType::Bf16, DType::Bf16], Target::sm_90a()));
        assert!(none(HALF, Target::sm_75()));
        assert!(!none(HALF, Target::sm_86()));
        assert!(Mma::choose(&spec(1, 4096, 4096, HALF, Layout::NN), &Target::sm_90a()).is_none());
    }
}
