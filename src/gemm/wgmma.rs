//! The recipe for products on Hopper's tensor cores by wgmma: 16-bit floats, and bytes.
//!
//! Tiles of both factors come by bulk copies into a ring of swizzled slots in shared memory, where warpgroups multiply them; the
//! sums leave through shared memory, too. Each part of it is a step that can be left out, and every subset is a program of its
//! own: a role of its own for the copies, blocks that walk tile after tile, clusters whose blocks share a factor's tile, groups
//! of products in flight, and bulk stores.
//!
//! What the tiles do not divide is padded with zeros by the copies, and not stored. Bulk copies read rows that are aligned to 16
//! bytes: other factors are packed by a kernel of their own first, and other rows of C are stored by the threads. Bytes are
//! multiplied along rows alone: a factor whose rows do not run along k is turned by such a kernel, too.

mod cost;
mod crossing;
mod rungs;
mod turns;
mod why;
mod wide;

pub use rungs::{RUNGS, Rung};

use super::mma::{Mma, Source, multiples, pack::packing, runs_along_k};
use super::sides::{along_k, contiguous, rows, up};
use crate::dtype::DType;
use crate::target::{Features, LINE, Target};
use crate::te::GemmSpec;
use std::fmt::Write as _;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wgmma {
    /// Rows and columns of C of a block.
    pub block: [i64; 2],
    /// Warpgroups that multiply, one above the other (side by side where rows and columns are turned).
    pub groups: i64,
    /// The warpgroups take turns: one multiplies its part of the block's rows while the sums of the other leave.
    pub in_turns: bool,
    /// Columns of C take the part of rows in the instruction, and A that of its second factor.
    pub turned: bool,
    /// Terms of the sums in a slot.
    pub bk: i64,
    /// Slots.
    pub stages: i64,
    /// Groups of products in flight.
    pub in_flight: i64,
    /// Bytes of the rows that are swizzled, of factors and of C; 0 for none: factors in panels of one chunk, C row after row.
    pub swizzle: i64,
    /// Blocks of a cluster along rows and along columns of C: those along rows share tiles of B, the others tiles of A.
    pub cluster: [i64; 2],
    /// Rows of blocks (of clusters) that are walked together; 0 walks row by row.
    pub group: i64,
    /// As many blocks as fit at once walk the tiles.
    pub persistent: bool,
    /// Warps of their own load the tiles.
    pub loader: bool,
    /// Sums leave by bulk stores, else by the threads that have them.
    pub bulk_store: bool,
    /// Slots of C on its way out.
    pub out_stages: i64,
    /// How A and B come into shared memory.
    pub routes: [Source; 2],
    /// Bytes that the second-level cache fetches at a time for copies; `None` leaves it to the compiler.
    pub promotion: Option<i64>,
    /// Whether the kernel begins beside the one in front of it in the stream (1), and lets the next one begin beside it (2).
    pub grid_dependency: i64,
    /// Its blocks ask the second-level cache for A and B before they wait for the kernel in front.
    pub l2_prefetch: bool,
}

/// Rows of C of an instruction.
const ROWS: i64 = 64;
/// Bytes of A and B that are worth to be asked for at once.
const AT_ONCE: i64 = 6 << 20;
/// Bytes of a row of C that leave together.
const LEAVING: i64 = 128;
/// Bytes of a panel that is not swizzled.
const CHUNK: i64 = 16;
/// Bytes along k of an instruction.
const DEPTH: i64 = 32;
/// Tiles to choose from: of a block, with the warpgroups that share it.
const TILES: [([i64; 2], i64); 8] = [
    ([128, 256], 2),
    ([256, 128], 2),
    ([128, 192], 2),
    ([128, 128], 2),
    ([64, 256], 1),
    ([64, 128], 1),
    ([128, 64], 2),
    ([64, 64], 1),
];

impl Wgmma {
    /// The tiles of large products: all parts together.
    pub const LARGE: Wgmma = Wgmma {
        block: [128, 256],
        groups: 2,
        in_turns: false,
        turned: false,
        bk: 64,
        stages: 4,
        in_flight: 1,
        swizzle: 128,
        cluster: [2, 1],
        group: 8,
        persistent: true,
        loader: true,
        bulk_store: true,
        out_stages: 2,
        routes: [Source::Direct; 2],
        promotion: None,
        grid_dependency: 0,
        l2_prefetch: false,
    };

    /// The tiles that suit a product; `None` where the chip has no wgmma, or the recipe no form for the product.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        Wgmma::candidates(spec, target).first().copied()
    }

    /// All tiles that there are for a product, the cheapest first.
    pub(super) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let small = spec.m.min(spec.n) < 16 || spec.k * bytes(spec.a) < DEPTH;
        if !known(spec) || small || !target.has(Features::WGMMA | Features::TMA) {
            return Vec::new();
        }
        // As for mma.sync, bytes of a batch are not turned or packed by a kernel of their own.
        if spec.batch.is_some() && spec.a.bits() == 8 && routes(spec) != [Source::Direct; 2] {
            return Vec::new();
        }
        let mut all: Vec<Wgmma> =
            TILES.iter().map(|(block, groups)| Wgmma::of(spec, *block, *groups, target)).collect();
        all.sort_by(|a, b| a.cycles(spec, target).total_cmp(&b.cycles(spec, target)));
        // The clocks know nothing of lines that are crossed.
        let crossing = Wgmma::crossing(spec, target);
        // Nor of what a warpgroup leaves idle that works beside another: tiles in turns come first by a reckoning of their own.
        let turns = Wgmma::turns(spec, target);
        let first = all.first().zip(turns.first()).is_some_and(|(large, turns)| turns.is_ahead(large, spec, target));
        let (ahead, behind) = if first { (turns, Vec::new()) } else { (Vec::new(), turns) };
        crossing.into_iter().chain(ahead).chain(all).chain(behind).collect()
    }

    /// These tiles, with slots and routes that suit them.
    pub fn of(spec: &GemmSpec, block: [i64; 2], groups: i64, target: &Target) -> Wgmma {
        let routes = routes(spec);
        let bulk_store = spec.n * bytes(spec.out) % 16 == 0;
        let plain = Wgmma { cluster: [1, 1], persistent: false, loader: false, ..Wgmma::LARGE };
        let mut w = Wgmma { block, groups, bk: 128 / bytes(spec.a), bulk_store, routes, ..plain };
        // Where there are more tiles than multiprocessors, blocks that stay load the next tile while the last one leaves.
        let many = w.blocks(spec) > i64::from(processors(target));
        w.persistent = many && bulk_store;
        // Kernels of one wave begin beside the one in front of them: on an H200 that takes 0.35 us of 7.2 at 1000^3. Those whose
        // blocks stay gain nothing (64 products of 512^3 take 4 % longer). Asking for A and B at once takes another 0.15 us, and
        // as much as 2 us more at 2048^3, where what is needed first comes in turn with everything else.
        w.grid_dependency = if many { 0 } else { 2 };
        w.l2_prefetch = !many && (spec.m + spec.n) * spec.k * bytes(spec.a) * spec.products() <= AT_ONCE;
        w.loader = w.persistent;
        // Rows that begin anywhere in the cache's lines cost two reads each: two blocks share them, where they find partners.
        let crooked = Wgmma::is_crooked(spec, routes);
        if crooked && !many && bulk_store && up(spec.m, block[0]) % 2 == 0 {
            (w.cluster, w.loader) = ([2, 1], true);
        }
        // Such rows share lines with their neighbours, too: to fetch more than a line ahead of them takes 10 % longer at 1000^3
        // on an H200, and more than six slots that ask at once 4 %.
        let crossing = crooked && !many;
        let most = if crossing { 6 } else { 8 };
        w.promotion = crossing.then_some(LINE);
        w = w.with_slots(spec, target, most);
        let rows = up(spec.m, block[0]);
        w.group = if rows % 16 == 0 || rows > 32 { 16 } else { 8 };
        if spec.batch.is_some() {
            // Blocks of one product run together.
            w.group = w.group.min(rows);
        }
        w
    }

    /// As many slots as k has use for, as leave room for C's own, and no more than so many.
    fn with_slots(self, spec: &GemmSpec, target: &Target, most: i64) -> Wgmma {
        let fits = |n: &i64| Wgmma { stages: *n, ..self }.shared(spec) <= room(target);
        let stages = (2..=most).rev().find(fits).unwrap_or(2).min(up(spec.k, self.bk).max(2));
        Wgmma { stages, in_flight: i64::from(stages > 2), ..self }
    }
}

/// Multiprocessors of the chip.
fn processors(target: &Target) -> u32 {
    target.device().multiprocessors
}

/// Bytes of shared memory that a block can have.
fn room(target: &Target) -> i64 {
    i64::from(target.limits.shared_optin)
}

/// The steps.
impl Wgmma {
    /// The steps as text, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> String {
        let sources = [0, 1].map(|side| self.source(spec, side));
        let mut out = self.pad(spec, &sources);
        let sums = sums(spec);
        out += &self.nest(spec);
        for (side, name) in NAMES.into_iter().enumerate() {
            let source = &sources[side];
            let _ = writeln!(
                out,
                "cache_read {sums} {source} shared -> {name}_s; compute_at {name}_s k0{}",
                self.fetched(side)
            );
            if self.pads(spec, side) && self.routes[side] == Source::Direct {
                let _ = writeln!(out, "compute_inline {source}");
            }
            let _ = writeln!(out, "swizzle {name}_s {}", self.swizzle_of(spec, side));
            let shared_by = ["jc", "ic"][side];
            match self.cluster[1 - side] > 1 {
                true => out += &format!("copy_with {name}_s tma multicast={shared_by}\n"),
                false => out += &format!("copy_with {name}_s tma\n"),
            }
        }
        out += &self.leave(spec);
        let types = format!("k{}.{}.{}.{}", DEPTH / bytes(spec.a), spec.acc, spec.a, spec.b);
        let (m, n, wide) = if self.turned { ("jm", "in", self.block[0]) } else { ("im", "jn", self.block[1]) };
        let _ = writeln!(out, "tensorize {m} wgmma.m64n{wide}{types} m={m} n={n} k=ki");
        if self.stages > 1 || self.in_flight > 0 {
            let in_flight = if self.in_flight > 0 { format!(" in_flight={}", self.in_flight) } else { String::new() };
            let _ = writeln!(out, "pipeline k0 stages={}{in_flight}", self.stages);
        }
        if self.loader {
            // Registers are moved between whole warpgroups; one that multiplies alone has enough of them.
            // A copy for each panel of 16 bytes has more addresses to keep.
            let warps = match (self.groups > 1, self.swizzle > 0) {
                (true, true) => "4 regs=40",
                (true, false) => "4 regs=88",
                (false, _) => "1",
            };
            let _ = writeln!(out, "specialize A_s B_s -> load warps={warps}");
        }
        out
    }

    /// Behind the placement of a factor's tile: how much the cache fetches for it at a time.
    fn fetched(&self, side: usize) -> String {
        let [row, column] = [["a0", "a1"], ["b0", "b1"]][side];
        match self.promotion {
            None => String::new(),
            Some(bytes) => format!(" -> {row} {column}; annotate {row} l2_promotion {bytes}"),
        }
    }

    /// Bytes of the panels that the rows of a factor's tile are cut into: no more than they have.
    fn swizzle_of(&self, spec: &GemmSpec, side: usize) -> i64 {
        let row = bytes(spec.a) * if runs_along_k(spec, side) { self.bk } else { self.slot()[side] };
        if self.swizzle > 0 { self.swizzle.min(row) } else { CHUNK }
    }

    /// Tiles of 64 rows that a warpgroup has.
    fn tall(&self) -> i64 {
        self.block[usize::from(self.turned)] / self.groups / ROWS
    }

    /// The loops of blocks, warpgroups and instructions.
    fn nest(&self, spec: &GemmSpec) -> String {
        let [bi, bj] = self.cluster;
        let part = |n: i64, name: &str| if n > 1 { (format!(" {n}"), format!(" {name}")) } else { Default::default() };
        let ((ci, ic), (cj, jc)) = (part(bi, "ic"), part(bj, "jc"));
        let (tall, io) = part(self.tall(), "io");
        let [m, n] = self.block;
        let (groups, warpgroup) = (self.groups, if self.turned { "jw" } else { "iw" });
        let (sides, inside) = match self.turned {
            false => (
                format!("split i ?{ci} {groups}{tall} {ROWS} -> i0{ic} iw{io} im; split j ?{cj} {n} -> j0{jc} jn"),
                format!("{io} im jn"),
            ),
            true => (
                format!("split i ?{ci} {m} -> i0{ic} in; split j ?{cj} {groups}{tall} {ROWS} -> j0{jc} jw{io} jm"),
                format!("{io} jm in"),
            ),
        };
        let mut out = format!(
            "{sides}\nsplit k ? {} {} -> k0 kk ki; reorder i0 j0{ic}{jc} {warpgroup} k0 kk{inside} ki\n",
            self.bk * bytes(spec.a) / DEPTH,
            DEPTH / bytes(spec.a),
        );
        // The tiles of a batch are rows of one walk.
        let (rows, fused) = if spec.batch.is_some() { ("bi", "fuse b i0 -> bi\n") } else { ("i0", "") };
        out += fused;
        let walk = match self.group {
            0 => format!("fuse {rows} j0 -> tile"),
            group => format!("rasterize {rows} j0 group={group} -> tile"),
        };
        let persistent = if self.persistent { " persistent" } else { "" };
        let pingpong = if self.in_turns { " pingpong" } else { "" };
        let _ = write!(out, "{walk}; bind tile blockIdx.x{persistent}; bind {warpgroup} warpgroup{pingpong}");
        if self.grid_dependency > 0 {
            let _ = write!(out, "; annotate tile grid_dependency {}", self.grid_dependency);
        }
        if self.l2_prefetch {
            out += "; annotate tile l2_prefetch 1";
        }
        for (n, name) in [(bi, "ic"), (bj, "jc")] {
            if n > 1 {
                let _ = write!(out, "; bind {name} cluster");
            }
        }
        out + "\n"
    }

    /// Whether a factor is read beyond its ends.
    fn pads(&self, spec: &GemmSpec, side: usize) -> bool {
        spec.k % self.bk != 0 || rows(spec)[side] % self.whole(side) != 0
    }

    /// Rows or columns of C that a cluster covers.
    fn whole(&self, side: usize) -> i64 {
        self.block[side] * self.cluster[side]
    }

    /// Whether the tiles reach beyond C.
    fn grows(&self, spec: &GemmSpec) -> bool {
        (0..2).any(|side| rows(spec)[side] % self.whole(side) != 0)
    }

    /// What the tile of a factor is copied from.
    fn source(&self, spec: &GemmSpec, side: usize) -> String {
        let end = match (self.pads(spec, side), self.routes[side]) {
            (true, _) => "_pad",
            (false, Source::Packed) => "_pack",
            (false, Source::Direct) => "",
        };
        format!("{}{end}", NAMES[side])
    }

    /// Zeros around what tiles do not divide, and kernels that pack.
    fn pad(&self, spec: &GemmSpec, sources: &[String; 2]) -> String {
        let by = [self.whole(0), self.whole(1)];
        let pads = multiples(&[("i", spec.m, by[0]), ("j", spec.n, by[1]), ("k", spec.k, self.bk)]);
        let mut out = if pads.is_empty() { String::new() } else { format!("pad {} {pads}\n", sums(spec)) };
        for (side, source) in sources.iter().enumerate().filter(|(side, _)| self.routes[*side] == Source::Packed) {
            if !self.pads(spec, side) {
                let _ = writeln!(out, "cache_read {} {} global -> {source}", sums(spec), NAMES[side]);
            }
            out += &packing(spec, side, source);
        }
        if self.grows(spec) && converts(spec) {
            let pads = multiples(&[("out_i", spec.m, by[0]), ("out_j", spec.n, by[1])]);
            let _ = writeln!(out, "compute_inline acc_pad; pad out {pads} -> acc_out C_pad; compute_inline acc_out");
        }
        out
    }

    /// From the sums to C.
    fn leave(&self, spec: &GemmSpec) -> String {
        let grows = self.grows(spec);
        if !converts(spec) && (bytes(spec.out) == 4 || !self.bulk_store && !grows) {
            return self.leave_wide(spec);
        }
        let (sums, c) = if grows { ("acc_pad", "C_pad") } else { ("acc", "C") };
        let mut out = if converts(spec) { format!("set_scope {sums} fragment\n") } else { String::new() };
        let inlined = if grows { "reverse_compute_inline C_pad\n" } else { "" };
        if !self.bulk_store && !grows {
            return out + "reverse_compute_at out iw\n";
        }
        let (tall, fo) = if self.tall() > 1 { ("4 16", "fo fw fr") } else { ("16", "fw fr") };
        if self.turned {
            return out + &self.leave_turned(spec, c) + inlined;
        }
        let leaving = self.leaving(spec);
        // Whole panels are swizzled; what is wider lies as it is, 8 columns at a time.
        let panels = leaving * bytes(spec.out) == LEAVING;
        let matrix = if panels { 16 } else { 8 };
        out += &match converts(spec) {
            true => format!(
                "cache_write out {c} shared -> C_s; cache_write out C_s fragment -> C_f\n\
                 reverse_compute_at out iw -> e0 en; split en ? {leaving} -> ep e1; reorder ep e0 e1\n\
                 reverse_compute_at C_f ep -> f0 f1\n"
            ),
            // Sums that are C's own leave their registers as they are.
            false => format!(
                "cache_write C {c} shared -> C_s; cache_write C C_s fragment -> C_f\n\
                 reverse_compute_at C_f iw -> f0 fj; split fj ? {leaving} -> ep f1; reorder ep f0 f1\n"
            ),
        };
        let _ = write!(
            out,
            "split f0 ? {tall} -> {fo}; split f1 ? {matrix} -> fc fi; reorder {fo_order} fc fr fi; bind fw warp\n\
             tensorize fr stmatrix.m16n{matrix}.{}\n",
            spec.out,
            fo_order = fo.trim_end_matches(" fr"),
        );
        if self.swizzle > 0 && panels {
            let _ = writeln!(out, "swizzle C_s {}", self.swizzle.min(LEAVING));
        }
        // A warp's own rows are stages of `ep` only with what was converted.
        out + &self.stored(if self.leaves_by_warps() && converts(spec) { "fw" } else { "ep" }) + inlined
    }

    /// Columns of C that leave together: a panel, or of tiles that panels do not divide one half, or in turns as many as keep
    /// rows in shared memory an odd number of chunks of 16 bytes apart, which meets no bank twice.
    fn leaving(&self, spec: &GemmSpec) -> i64 {
        let panel = LEAVING / bytes(spec.out);
        let columns = self.block[1];
        if self.turned || columns % panel == 0 {
            return panel;
        }
        let odd = |parts: &i64| columns % parts == 0 && (columns / parts * bytes(spec.out)) % 32 == 16;
        (2..=8).find(odd).filter(|_| self.in_turns).map_or(columns / 2, |parts| columns / parts)
    }

    /// From a tile of C in shared memory to C: what the loop `at` stages leaves at once.
    fn stored(&self, at: &str) -> String {
        if !self.bulk_store {
            // Rows of C begin anywhere: the threads store the block's tile element by element.
            return format!(
                "reverse_compute_at C_s tile -> s0 s1; fuse s0 s1 -> s; split s ? {} -> s_0 s_1; bind s_1 threadIdx.x\n",
                128 * self.groups
            );
        }
        let mut out = format!("reverse_compute_at C_s {at} -> s0 s1; copy_with C_s tma\n");
        if self.out_stages > 1 {
            let _ = writeln!(out, "pipeline ep stages={}", self.out_stages);
        }
        out
    }
}

/// How A and B come into shared memory: what bulk copies cannot read, or tiles of bytes cannot have, is packed before.
fn routes(spec: &GemmSpec) -> [Source; 2] {
    [0, 1].map(|side| {
        let turned = runs_along_k(spec, side) != along_k(spec)[side];
        match contiguous(spec, side) * bytes(spec.a) % 16 {
            0 if !turned => Source::Direct,
            _ => Source::Packed,
        }
    })
}

/// Whether the recipe has a form for these types.
pub(super) fn known(spec: &GemmSpec) -> bool {
    use DType::{Bf16, F16, F32, S8, S32, U8};
    match (spec.a, spec.b) {
        (F16, F16) if spec.acc == F16 => spec.out == F16,
        (F16, F16) | (Bf16, Bf16) => spec.acc == F32 && (spec.out == spec.a || spec.out == F32),
        (S8 | U8, S8 | U8) => spec.acc == S32 && spec.out == S32,
        _ => false,
    }
}

/// Whether C is of another type than the sums.
fn converts(spec: &GemmSpec) -> bool {
    spec.acc != spec.out
}

/// The block that has the sums.
fn sums(spec: &GemmSpec) -> &'static str {
    if converts(spec) { "mma" } else { "C" }
}

/// Bytes of an element.
fn bytes(dtype: DType) -> i64 {
    i64::from(dtype.bits()) / 8
}

/// The factors.
const NAMES: [&str; 2] = ["A", "B"];
