//! The recipe for products of f32 on chips with asynchronous copies: tiles of 16 x 8 elements a thread, copies one
//! or two tiles ahead in shared memory, and operands one step of k ahead in registers.
//!
//! Eight warps of a block have a tile of 64 x 64 of C each, or share one: *slices* of warps then take turns along k, and
//! the block adds their accumulators up in shared memory, in a fixed order. Operands lie in shared memory with k outermost. One
//! whose rows run along k is turned word by word on its way there; on the long side of a tile that would cost more than a
//! pass of its own through device memory (*packing*), and so would rows whose vectors are not aligned. A product that the
//! tiles do not divide is padded: with zeros that the copies fill in, or while an operand is packed.
//!
//! What decides the speed is which registers the multiply-adds read: consecutive ones share an operand (`zigzag`), and
//! the lanes of a warp are dealt out to rows and columns by turns, so that two lanes in four read the same vector.

use super::grid::bind_blocks;
use super::operand::{Operand, along_k, contiguous, rows, up};
use super::tuning;
use super::work::{Passes, Work, cycles};
use crate::dtype::DType;
use crate::target::{Features, Target};
use crate::te::GemmSpec;
use std::fmt::Write as _;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipelined {
    /// Warps of a slice, along rows and columns of C.
    pub warps: [i64; 2],
    /// Slices of warps that take turns along k.
    pub slices: i64,
    /// Terms of the accumulators that a slice has in a stage of shared memory.
    pub terms: i64,
    /// Stages of shared memory.
    pub slots: i64,
    /// How A and B come into shared memory.
    pub routes: [Route; 2],
}

/// How an operand comes into shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// In vectors of 16 bytes.
    Vectors,
    /// In words, turned.
    Turned,
    /// In vectors of 16 bytes, from workspace that a kernel of its own fills: turned, padded or both.
    Packed,
}

/// Rows and columns of a warp's tile.
const WARP: i64 = 64;
/// Words behind the rows of a turned operand in shared memory.
const PAD: i64 = 4;
/// Warps of a block.
const WARPS: i64 = 8;
/// Threads of a block.
const THREADS: i64 = 32 * WARPS;

/// The tiles and slices to choose from.
const CANDIDATES: [([i64; 2], i64); 6] = [([2, 4], 1), ([4, 2], 1), ([2, 2], 2), ([1, 2], 4), ([2, 1], 4), ([1, 1], 8)];

/// Multiply-adds from which on padding is left to a pass of its own: the copies of the tiles then ask for no bounds.
const LARGE: i64 = 1 << 34;

impl Pipelined {
    /// The cheapest tiles; `None` where the product is not one of f32 alone, the chip has no asynchronous copies or too little
    /// shared memory, or half of a large chip would have nothing to do.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Pipelined> {
        Pipelined::candidates(spec, target).first().map(|(_, p)| *p)
    }

    /// All tiles that suit the product and fit on the chip, with what the model takes them to cost, the cheapest first.
    pub(super) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<(f64, Pipelined)> {
        let f32_alone = [spec.a, spec.b, spec.acc, spec.out].iter().all(|d| *d == DType::F32);
        if !f32_alone || !target.has(Features::CP_ASYNC) || spec.k < 32 {
            return Vec::new();
        }
        let candidates = CANDIDATES.iter().flat_map(|(warps, slices)| {
            // A turned operand may be packed too.
            [[false, false], [false, true], [true, false], [true, true]]
                .map(|pack| Pipelined::of(spec, *warps, *slices, pack))
        });
        let device = target.device();
        let multiprocessors = i64::from(device.multiprocessors);
        let fits =
            |p: &Pipelined| p.shared() <= i64::from(target.limits.shared_optin) && p.fills(spec, multiprocessors);
        let mut fitting: Vec<_> = candidates.filter(fits).map(|p| (cycles(&p.work(spec), &device), p)).collect();
        fitting.sort_by(|a, b| a.0.total_cmp(&b.0));
        fitting
    }

    /// Whether half of the multiprocessors have a tile.
    fn fills(&self, spec: &GemmSpec, multiprocessors: i64) -> bool {
        self.tiles(spec) >= multiprocessors - multiprocessors / 2
    }

    /// Bytes of shared memory of a block: the ring of stages, or the accumulators of all slices, which take its place. 16 bytes keep the
    /// rows of a turned operand apart.
    pub fn shared(&self) -> i64 {
        let [bm, bn] = self.block();
        let ring = (bm + bn + 2 * PAD) * self.terms * self.slices * self.slots;
        let gathered = if self.slices > 1 { self.slices * bm * bn } else { 0 };
        4 * ring.max(gathered)
    }

    /// Whether a chip has shared memory for the accumulators of several slices, which all tiles of the recipe need alike.
    pub(super) fn slices_fit(target: &Target) -> bool {
        4 * WARPS * WARP * WARP <= i64::from(target.limits.shared_optin)
    }

    /// These tiles, slices and routes, with stages that suit them. Slices are few rounds of the loop: three short stages are
    /// written out as half the instructions of two long ones, which the cache of instructions does not hold in time, and
    /// copies have two rounds to arrive (1024x512x2048: 45.5 us for 51.4; 1000^3: 44.8 for 52.0).
    pub fn new(warps: [i64; 2], slices: i64, routes: [Route; 2]) -> Pipelined {
        let (terms, slots) = if slices > 1 { (4, 3) } else { (8, 2) };
        Pipelined { warps, slices, terms, slots, routes }
    }

    fn of(spec: &GemmSpec, warps: [i64; 2], slices: i64, pack: [bool; 2]) -> Pipelined {
        let mut p = Pipelined::new(warps, slices, [Route::Vectors; 2]);
        let turned = along_k(spec);
        for operand in Operand::BOTH {
            let unaligned = !turned[operand as usize] && contiguous(spec, operand) % 4 != 0;
            let padded = p.pads(spec, operand);
            p.routes[operand as usize] = if pack[operand as usize] || unaligned || padded && volume(spec) >= LARGE {
                Route::Packed
            } else if turned[operand as usize] {
                Route::Turned
            } else {
                Route::Vectors
            };
        }
        p
    }

    /// Rows and columns of C of a block.
    pub fn block(&self) -> [i64; 2] {
        self.warps.map(|w| w * WARP)
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        THREADS
    }

    fn tiles(&self, spec: &GemmSpec) -> i64 {
        let [bm, bn] = self.block();
        up(spec.m, bm).saturating_mul(up(spec.n, bn))
    }

    /// Whether k does not come out even.
    fn pads_k(&self, spec: &GemmSpec) -> bool {
        spec.k % (self.terms * self.slices) != 0
    }

    /// Whether an operand is read beyond its ends.
    fn pads(&self, spec: &GemmSpec, operand: Operand) -> bool {
        self.pads_k(spec) || rows(spec)[operand as usize] % self.block()[operand as usize] != 0
    }

    /// Extents of an operand with its zeros: along k, and along rows or columns of C.
    fn padded(&self, spec: &GemmSpec, operand: Operand) -> [i64; 2] {
        let (terms, block) = (self.terms * self.slices, self.block()[operand as usize]);
        [up(spec.k, terms) * terms, up(rows(spec)[operand as usize], block) * block]
    }

    /// What the GEMM asks of the device in these tiles.
    fn work(&self, spec: &GemmSpec) -> Work {
        let [m, n, k] = [spec.m, spec.n, spec.k].map(|x| x as f64);
        let (mut words, mut vectors, mut passes) = (0.0, 0.0, Passes::default());
        for operand in Operand::BOTH {
            let copied = (self.block()[operand as usize] * self.slices) as f64 / THREADS as f64;
            match self.routes[operand as usize] {
                Route::Turned => words += copied,
                Route::Vectors | Route::Packed => vectors += copied / 4.0,
            }
            if self.routes[operand as usize] == Route::Packed {
                passes.kernels += 1.0;
                passes.memory_bytes += 8.0 * [m, n][operand as usize] * k;
            }
        }
        if self.crops(spec) {
            passes.kernels += 1.0;
            passes.memory_bytes += 8.0 * m * n;
        }
        Work {
            issue: tuning::PIPELINED_STEP
                + tuning::PIPELINED_WORDS * words * words
                + tuning::PIPELINED_VECTOR * vectors,
            iterations: k / self.slices as f64,
            prologue: tuning::PIPELINED_EDGES,
            epilogue: if self.slices > 1 { tuning::PIPELINED_SLICES } else { 0.0 },
            tiles: self.tiles(spec),
            passes,
            ..Work::NONE
        }
    }

    /// Whether C is cut out of padded workspace by a kernel of its own: stores at the edge, each under its own condition, would
    /// take the registers of a thread that holds a whole tile (160 to 2,500 bytes of them spilled, in vectors too).
    fn crops(&self, spec: &GemmSpec) -> bool {
        self.grows(spec) && self.slices == 1
    }

    /// Whether the tiles reach beyond C.
    fn grows(&self, spec: &GemmSpec) -> bool {
        let [bm, bn] = self.block();
        spec.m % bm != 0 || spec.n % bn != 0
    }

    /// The steps as text, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> String {
        let mut out = self.pad(spec);
        let sums = if self.slices > 1 { "slices" } else { "C" };
        for operand in Operand::BOTH {
            out += &self.pack(spec, operand);
        }
        out += &self.nest(spec, sums);
        for operand in Operand::BOTH {
            out += &self.stage(spec, operand, sums);
        }
        let _ = write!(
            out,
            "decompose_reduction {sums} k0\npipeline k1 stages=2\npipeline k0 stages={}\n\
             annotate jg zigzag 1\nannotate je zigzag 1\n",
            self.slots
        );
        out + &self.finish(spec)
    }

    fn pad(&self, spec: &GemmSpec) -> String {
        let [bm, bn] = self.block();
        let sizes = [("i", spec.m, bm), ("j", spec.n, bn), ("k", spec.k, self.terms * self.slices)];
        let pads: Vec<String> =
            sizes.iter().filter(|(_, size, by)| size % by != 0).map(|(l, _, by)| format!("{l}={by}")).collect();
        if pads.is_empty() { String::new() } else { format!("pad C {}\n", pads.join(" ")) }
    }

    /// The operand that the tiles are copied from.
    fn source(&self, spec: &GemmSpec, operand: Operand) -> String {
        let name = operand.name();
        match (self.pads(spec, operand), self.routes[operand as usize]) {
            (true, _) => format!("{name}_pad"),
            (false, Route::Packed) => format!("{name}_pack"),
            _ => name.to_string(),
        }
    }

    /// The kernel that packs an operand: squares of 32 x 32 turned in shared memory, or rows as they are.
    fn pack(&self, spec: &GemmSpec, operand: Operand) -> String {
        if self.routes[operand as usize] != Route::Packed {
            return String::new();
        }
        let (name, packed) = (operand.name(), self.source(spec, operand));
        let p = name.to_lowercase();
        let [terms, others] = self.padded(spec, operand);
        let mut out = String::new();
        if !self.pads(spec, operand) {
            let _ = writeln!(out, "cache_read C {name} global -> {packed}");
        }
        let bound = bind_blocks((&format!("{p}a0"), up(others, 32)), (&format!("{p}b0"), up(terms, 32)));
        let _ = if along_k(spec)[operand as usize] {
            write!(
                out,
                "transform_layout {packed} [w, k] -> [k, w]\n\
                 split {packed}_0 ? 32 -> {p}a0 {p}a1; split {packed}_1 ? 32 -> {p}b0 {p}b1\n\
                 reorder {p}a0 {p}b0 {p}b1 {p}a1; {bound}\
                 cache_read {packed} {name} shared -> {name}_x; compute_at {name}_x {p}b0 -> {p}x0 {p}x1\n\
                 split {p}x0 ? 8 -> {p}x2 {p}x3; bind {p}x3 threadIdx.y; bind {p}x1 threadIdx.x\n\
                 split {p}b1 ? 8 -> {p}b2 {p}b3; bind {p}b3 threadIdx.y; bind {p}a1 threadIdx.x\n\
                 storage_align {name}_x 0 32 1\n"
            )
        } else {
            writeln!(out, "{}", copied_by_rows(&packed, &p, [terms, others]))
        };
        out
    }

    /// The loops of the tiles, of the accumulators in registers, and of what stores these.
    fn nest(&self, spec: &GemmSpec, sums: &str) -> String {
        let [wi, wj] = self.warps;
        let ([bm, bn], [ti, tj]) = (self.block(), self.lanes());
        let (slices, terms, sliced) = (self.slices, self.terms, self.slices > 1);
        let mut out = String::new();
        let _ = if sliced {
            writeln!(
                out,
                "split k ? {slices} {terms} -> k0 ks k1; rfactor C ks -> slices ti tj ts; set_scope slices shared\n\
                 cache_write slices slices local -> C_l"
            )
        } else {
            let written = if self.grows(spec) { "C_pad" } else { "C" };
            writeln!(out, "split k ? {terms} -> k0 k1\ncache_write {sums} {written} local -> C_l")
        };
        let (ks, us, s) = if sliced { ("ks ", "us ", "s, ") } else { ("", "", "") };
        let bound = bind_blocks(("i0", up(spec.m, bm)), ("j0", up(spec.n, bn)));
        let _ = write!(
            out,
            "split i ? 4 {wi} 2 2 4 -> i0 ig iw il im ie\nsplit j ? 2 {wj} 2 2 2 4 -> j0 jg jw jl jm jn je\n\
             reorder i0 j0 {ks}iw jw jl il jm im jn k0 k1 ig ie jg je\n{bound}\
             reverse_compute_at C_l j0 -> {us}u v\n\
             split u 4 {wi} 2 2 4 -> ug uw ul um ue\nsplit v 2 {wj} 2 2 2 4 -> vg vw vl vm vn ve\n\
             reorder {us}uw vw vl ul vm um vn ug ue vg ve\n"
        );
        for (slice, first, names) in
            [("ks", "iw jw jl il jm im jn", ["t", "p"]), ("us", "uw vw vl ul vm um vn", ["z", "q"])]
        {
            let loops: Vec<&str> = sliced.then_some(slice).into_iter().chain(first.split(' ')).collect();
            out += &fused(&loops, names);
            let _ = writeln!(out, "bind {} threadIdx.x", names[0]);
        }
        // Accumulators that are cropped by a kernel of their own, or added up in shared memory, are stored as vectors.
        out.push_str("vectorize ve\n");
        let _ = writeln!(
            out,
            "transform_layout C_l [{s}i, j] -> [{s}i // {bm}, i // {} % 4, i // 4 % {ti}, i % 4, j // {bn}, \
             j // {} % 2, j // 4 % {tj}, j % 4]",
            4 * ti,
            4 * tj
        );
        out
    }

    /// Vectors that the threads of a slice have next to each other, along rows and columns.
    fn lanes(&self) -> [i64; 2] {
        [self.warps[0] * 4, self.warps[1] * 8]
    }

    /// An operand's tile in shared memory, and what a thread has of it in registers.
    fn stage(&self, spec: &GemmSpec, operand: Operand, sums: &str) -> String {
        let (n, source, t) = (operand.name(), self.source(spec, operand), self.lanes()[operand as usize]);
        let mut out = format!("cache_read {sums} {source} shared -> {n}_s\n");
        if self.pads(spec, operand) && self.routes[operand as usize] != Route::Packed {
            let _ = writeln!(out, "compute_inline {source}");
        }
        let _ = writeln!(out, "compute_at {n}_s k0 -> {n}0 {n}1");
        // Eight words of k of four rows at a time are whole sectors of memory, and no two words of them meet in a bank. Where
        // a stage has more, 16 words of two rows are faster, although two meet (51.5 for 54.3 us at 1024x512x2048).
        let _ = match self.routes[operand as usize] {
            Route::Turned if self.slices > 1 => write!(
                out,
                "split {n}1 ? {} -> {n}h {n}l; reorder {n}h {n}0 {n}l; fuse {n}h {n}0 -> {n}g; fuse {n}g {n}l -> {n}f\n\
                 split {n}f ? {THREADS} -> {n}o {n}t\n",
                (self.slices * self.terms).min(16)
            ),
            Route::Turned => write!(out, "fuse {n}0 {n}1 -> {n}f\nsplit {n}f ? {THREADS} -> {n}o {n}t\n"),
            Route::Vectors | Route::Packed => {
                write!(out, "fuse {n}0 {n}1 -> {n}f\nsplit {n}f ? {THREADS} 4 -> {n}o {n}t {n}v\nvectorize {n}v\n")
            }
        };
        let turned = self.routes[operand as usize] == Route::Turned;
        let from = if turned { "[w, k]" } else { "[k, w]" };
        let _ = writeln!(
            out,
            "bind {n}t threadIdx.x; copy_with {n}_s cp_async\n\
             transform_layout {n}_s {from} -> [k, w // {}, w // 4 % {t}, w % 4]",
            4 * t
        );
        if turned {
            let _ = writeln!(out, "storage_align {n}_s 0 8 4");
        }
        let _ = writeln!(
            out,
            "cache_read {sums} {n}_s local -> {n}_r; compute_at {n}_r k1 -> {n}a {n}b {n}c {n}d; vectorize {n}d"
        );
        out
    }

    /// Adds slices up, and cuts C out of padded workspace.
    fn finish(&self, spec: &GemmSpec) -> String {
        let mut out = String::new();
        let written = if self.grows(spec) { "C_pad" } else { "C" };
        if self.slices > 1 {
            let _ = write!(
                out,
                "cache_write C {written} local -> C_c\nreverse_compute_at C j0 -> xi xj\n\
                 fuse xi xj -> xf; split xf ? {THREADS} 4 -> x0 x1 xv; reorder ts xv; bind x1 threadIdx.x\n\
                 reverse_compute_at C_c x1 -> yi yj; vectorize yj; vectorize xv; unroll ts\n"
            );
        }
        if self.crops(spec) {
            let _ = writeln!(
                out,
                "{}",
                copied_by_rows("C_pad", "c", Operand::BOTH.map(|operand| self.padded(spec, operand)[1]))
            );
        } else if self.grows(spec) {
            out.push_str("reverse_compute_inline C_pad\n");
        }
        out
    }
}

/// Steps that copy a stage of two dimensions row by row.
fn copied_by_rows(stage: &str, p: &str, [rows, columns]: [i64; 2]) -> String {
    let bound = bind_blocks((&format!("{stage}_0"), rows), (&format!("{p}b0"), up(columns, THREADS)));
    format!("split {stage}_1 ? {THREADS} -> {p}b0 {p}b1; bind {p}b1 threadIdx.x; {}", bound.trim_end())
}

/// Steps that fuse loops into the first of `names`; those between get the second with a number.
fn fused(loops: &[&str], names: [&str; 2]) -> String {
    let mut out = String::new();
    let mut whole = loops[0].to_string();
    for (i, l) in loops.iter().enumerate().skip(1) {
        let next = if i + 1 == loops.len() { names[0].to_string() } else { format!("{}{i}", names[1]) };
        let _ = write!(out, "{}fuse {whole} {l} -> {next}", if i > 1 { "; " } else { "" });
        whole = next;
    }
    out + "\n"
}

fn volume(spec: &GemmSpec) -> i64 {
    spec.m.saturating_mul(spec.n).saturating_mul(spec.k)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    fn choice(m: i64, n: i64, k: i64, layout: Layout) -> Option<([i64; 2], i64, [Route; 2])> {
        let p = Pipelined::choose(&GemmSpec::of(m, n, k, DType::F32, layout), &Target::sm_90a())?;
        Some((p.block(), p.slices, p.routes))
    }

    #[test]
    fn the_turned_operand_is_on_the_short_side_or_packed() {
        use Route::{Packed, Turned, Vectors};
        assert_eq!(choice(4096, 4096, 4096, Layout::NN), Some(([128, 256], 1, [Turned, Vectors])));
        assert_eq!(choice(4096, 4096, 4096, Layout::TT), Some(([256, 128], 1, [Vectors, Turned])));
        assert_eq!(choice(4096, 4096, 4096, Layout::NT), Some(([128, 256], 1, [Turned, Packed])));
        assert_eq!(choice(4096, 4096, 4096, Layout::TN).map(|c| c.2), Some([Vectors, Vectors]));
    }

    #[test]
    fn few_tiles_share_their_sums_out() {
        assert_eq!(choice(1024, 1024, 1024, Layout::NN).map(|c| (c.0, c.1)), Some(([64, 128], 4)));
        assert_eq!(choice(1024, 512, 2048, Layout::NN).map(|c| (c.0, c.1)), Some(([64, 64], 8)));
        assert_eq!(choice(256, 256, 256, Layout::NN), None);
    }

    #[test]
    fn ragged_products_are_packed_with_padding() {
        let (_, _, routes) = choice(4095, 4097, 4099, Layout::NN).unwrap();
        assert_eq!(routes, [Route::Packed, Route::Packed]);
        // Rows of 1000 floats are aligned, and this product is not large.
        assert_eq!(choice(1000, 1000, 1000, Layout::NN).map(|c| c.2), Some([Route::Turned, Route::Vectors]));
    }

    #[test]
    fn slices_whose_sums_do_not_fit_are_no_choice() {
        let on = |target| Pipelined::candidates(&GemmSpec::of(1024, 1024, 1024, DType::F32, Layout::NN), &target);
        assert!(on(Target::sm_90()).iter().any(|(_, p)| p.slices > 1));
        for target in [Target::sm_86(), Target::sm_89()] {
            assert!(!Pipelined::slices_fit(&target));
            assert!(on(target).iter().all(|(_, p)| p.slices == 1));
        }
    }

    #[test]
    fn tiles_that_reach_beyond_c_are_cropped_by_a_kernel_of_their_own() {
        let steps = |m, n| {
            let spec = GemmSpec::of(m, n, 4096, DType::F32, Layout::NN);
            Pipelined::new([2, 4], 1, [Route::Turned, Route::Vectors]).steps(&spec)
        };
        assert!(steps(4000, 4096).contains("split C_pad_1") && steps(4096, 4100).contains("split C_pad_1"));
        assert!(!steps(4096, 4096).contains("C_pad"));
    }

    #[test]
    fn other_types_and_chips_have_other_recipes() {
        let spec = |d| GemmSpec::of(4096, 4096, 4096, d, Layout::NN);
        assert_eq!(Pipelined::choose(&spec(DType::F64), &Target::sm_90a()), None);
        assert_eq!(Pipelined::choose(&spec(DType::F32), &Target::sm_75()), None);
    }
}
