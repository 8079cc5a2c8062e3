//! The recipe for products on Hopper's tensor cores by wgmma: 16-bit floats, and bytes.
//!
//! TMA loads fill a ring of swizzled stages in shared memory with tiles of A and B, from which warpgroups issue wgmmas. The epilogue
//! stages C in shared memory. Each part is a step that can be left out, and every subset is a program: a producer role for the loads,
//! persistent blocks, clusters whose blocks share tiles by multicast, wgmmas in flight, and TMA stores.
//!
//! Where tiles do not divide the GEMM, TMA loads fill in zeros, and elements beyond C are not stored. TMA needs rows aligned to 16
//! bytes: a separate kernel packs other operands first, and threads store other rows of C. wgmma on bytes needs k-major operands:
//! a separate kernel transposes the others.

mod cost;
mod pingpong;
mod reason;
mod rungs;
mod unaligned;
mod wide_epilogue;

pub use rungs::{RUNGS, Rung};

use super::mma::{Mma, Source, multiples, pack::packing, runs_along_k};
use super::operand::{Operand, along_k, contiguous, rows, up};
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
    pub warpgroups: i64,
    /// Ping-pong: each warpgroup has tiles of its own, and one issues MMAs while the other runs its epilogue.
    pub pingpong: bool,
    /// Swap A and B: compute C^T = B^T A^T.
    pub swap_ab: bool,
    /// k extent of a stage.
    pub bk: i64,
    /// Stages of the ring.
    pub stages: i64,
    /// Groups of products in flight.
    pub in_flight: i64,
    /// Bytes of the rows that are swizzled, of operands and of C; 0 for none: operands in panels of one chunk, C row after row.
    pub swizzle: i64,
    /// Blocks of a cluster along rows and along columns of C: those along rows share tiles of B, the others tiles of A.
    pub cluster: [i64; 2],
    /// Rows of blocks (of clusters) that are walked together; 0 walks row by row.
    pub raster_group: i64,
    /// As many blocks as fit at once walk the tiles.
    pub persistent: bool,
    /// Warps of their own load the tiles.
    pub producer: bool,
    /// The epilogue stores C by TMA, else by the threads that hold the accumulators.
    pub bulk_store: bool,
    /// Stages of the epilogue's ring.
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
const STORE_BYTES: i64 = 128;
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
        warpgroups: 2,
        pingpong: false,
        swap_ab: false,
        bk: 64,
        stages: 4,
        in_flight: 1,
        swizzle: 128,
        cluster: [2, 1],
        raster_group: 8,
        persistent: true,
        producer: true,
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
            TILES.iter().map(|(block, warpgroups)| Wgmma::of(spec, *block, *warpgroups, target)).collect();
        all.sort_by(|a, b| a.cycles(spec, target).total_cmp(&b.cycles(spec, target)));
        // The cost model does not count L2 lines that unaligned rows cross.
        let unaligned_tiles = Wgmma::unaligned_tiles(spec, target);
        // Nor the bubbles of cooperative warpgroups: `mma_cycles` compares them with ping-pong.
        let pingpong_tiles = Wgmma::pingpong_tiles(spec, target);
        let first = all
            .first()
            .zip(pingpong_tiles.first())
            .is_some_and(|(cooperative, pingpong)| pingpong.gains_over(cooperative, spec, target));
        let (ahead, behind) = if first { (pingpong_tiles, Vec::new()) } else { (Vec::new(), pingpong_tiles) };
        unaligned_tiles.into_iter().chain(ahead).chain(all).chain(behind).collect()
    }

    /// These tiles, with stages and routes that suit them.
    pub fn of(spec: &GemmSpec, block: [i64; 2], warpgroups: i64, target: &Target) -> Wgmma {
        let routes = routes(spec);
        let bulk_store = spec.n * bytes(spec.out) % 16 == 0;
        let plain = Wgmma { cluster: [1, 1], persistent: false, producer: false, ..Wgmma::LARGE };
        let mut w = Wgmma { block, warpgroups, bk: 128 / bytes(spec.a), bulk_store, routes, ..plain };
        // Where there are more tiles than multiprocessors, blocks that stay load the next tile while the last one leaves.
        let many = w.blocks(spec) > i64::from(processors(target));
        w.persistent = many && bulk_store;
        // Kernels of one wave begin beside the one in front of them: on an H200 that takes 0.35 us of 7.2 at 1000^3. Those whose
        // blocks stay gain nothing (64 products of 512^3 take 4 % longer). Asking for A and B at once takes another 0.15 us, and
        // as much as 2 us more at 2048^3, where what is needed first comes in turn with everything else.
        w.grid_dependency = if many { 0 } else { 2 };
        w.l2_prefetch = !many && (spec.m + spec.n) * spec.k * bytes(spec.a) * spec.products() <= AT_ONCE;
        w.producer = w.persistent;
        // Rows that begin anywhere in the cache's lines cost two reads each: two blocks share them, where they find partners.
        let unaligned = Wgmma::has_unaligned_rows(spec, routes);
        if unaligned && !many && bulk_store && up(spec.m, block[0]) % 2 == 0 {
            (w.cluster, w.producer) = ([2, 1], true);
        }
        // Such rows share lines with their neighbours, too: to fetch more than a line ahead of them takes 10 % longer at 1000^3
        // on an H200, and more than six stages that ask at once 4 %.
        let unaligned_tiles = unaligned && !many;
        let most = if unaligned_tiles { 6 } else { 8 };
        w.promotion = unaligned_tiles.then_some(LINE);
        w = w.with_slots(spec, target, most);
        let rows = up(spec.m, block[0]);
        w.raster_group = if rows % 16 == 0 || rows > 32 { 16 } else { 8 };
        if spec.batch.is_some() {
            // Blocks of one product run together.
            w.raster_group = w.raster_group.min(rows);
        }
        w
    }

    /// As many stages as k has use for, as leave room for C's own, and no more than so many.
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
        let sources = Operand::BOTH.map(|operand| self.source(spec, operand));
        let mut out = self.pad(spec, &sources);
        let accumulators = accumulators(spec);
        out += &self.nest(spec);
        for operand in Operand::BOTH {
            let (name, source) = (operand.name(), &sources[operand as usize]);
            let _ = writeln!(
                out,
                "cache_read {accumulators} {source} shared -> {name}_s; compute_at {name}_s k0{}",
                self.fetched(operand)
            );
            if self.pads(spec, operand) && self.routes[operand as usize] == Source::Direct {
                let _ = writeln!(out, "compute_inline {source}");
            }
            let _ = writeln!(out, "swizzle {name}_s {}", self.swizzle_of(spec, operand));
            let shared_by = ["jc", "ic"][operand as usize];
            match self.cluster[operand.other() as usize] > 1 {
                true => out += &format!("copy_with {name}_s tma multicast={shared_by}\n"),
                false => out += &format!("copy_with {name}_s tma\n"),
            }
        }
        out += &self.epilogue(spec);
        let types = format!("k{}.{}.{}.{}", DEPTH / bytes(spec.a), spec.acc, spec.a, spec.b);
        let (m, n, wide) = if self.swap_ab { ("jm", "in", self.block[0]) } else { ("im", "jn", self.block[1]) };
        let _ = writeln!(out, "tensorize {m} wgmma.m64n{wide}{types} m={m} n={n} k=ki");
        if self.stages > 1 || self.in_flight > 0 {
            let in_flight = if self.in_flight > 0 { format!(" in_flight={}", self.in_flight) } else { String::new() };
            let _ = writeln!(out, "pipeline k0 stages={}{in_flight}", self.stages);
        }
        if self.producer {
            // Registers are moved between whole warpgroups; one that multiplies alone has enough of them.
            // A copy for each panel of 16 bytes has more addresses to keep.
            let warps = match (self.warpgroups > 1, self.swizzle > 0) {
                (true, true) => "4 regs=40",
                (true, false) => "4 regs=88",
                (false, _) => "1",
            };
            let _ = writeln!(out, "specialize A_s B_s -> load warps={warps}");
        }
        out
    }

    /// Behind the placement of an operand's tile: how much the cache fetches for it at a time.
    fn fetched(&self, operand: Operand) -> String {
        let [row, column] = [["a0", "a1"], ["b0", "b1"]][operand as usize];
        match self.promotion {
            None => String::new(),
            Some(bytes) => format!(" -> {row} {column}; annotate {row} l2_promotion {bytes}"),
        }
    }

    /// Bytes of the panels that the rows of an operand's tile are cut into: no more than they have.
    fn swizzle_of(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        let row =
            bytes(spec.a) * if runs_along_k(spec, operand) { self.bk } else { self.stage_tile()[operand as usize] };
        if self.swizzle > 0 { self.swizzle.min(row) } else { CHUNK }
    }

    /// Tiles of 64 rows that a warpgroup has.
    fn tall(&self) -> i64 {
        self.block[usize::from(self.swap_ab)] / self.warpgroups / ROWS
    }

    /// The loops of blocks, warpgroups and instructions.
    fn nest(&self, spec: &GemmSpec) -> String {
        let [bi, bj] = self.cluster;
        let part = |n: i64, name: &str| if n > 1 { (format!(" {n}"), format!(" {name}")) } else { Default::default() };
        let ((ci, ic), (cj, jc)) = (part(bi, "ic"), part(bj, "jc"));
        let (tall, io) = part(self.tall(), "io");
        let [m, n] = self.block;
        let (warpgroups, warpgroup) = (self.warpgroups, if self.swap_ab { "jw" } else { "iw" });
        let (sides, inside) = match self.swap_ab {
            false => (
                format!("split i ?{ci} {warpgroups}{tall} {ROWS} -> i0{ic} iw{io} im; split j ?{cj} {n} -> j0{jc} jn"),
                format!("{io} im jn"),
            ),
            true => (
                format!("split i ?{ci} {m} -> i0{ic} in; split j ?{cj} {warpgroups}{tall} {ROWS} -> j0{jc} jw{io} jm"),
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
        let walk = match self.raster_group {
            0 => format!("fuse {rows} j0 -> tile"),
            raster_group => format!("rasterize {rows} j0 group={raster_group} -> tile"),
        };
        let persistent = if self.persistent { " persistent" } else { "" };
        let pingpong = if self.pingpong { " pingpong" } else { "" };
        let _ = write!(out, "{walk}; bind tile blockIdx.x{persistent}; bind {warpgroup} warpgroup{pingpong}");
        let overlap = match self.grid_dependency {
            0 => String::new(),
            value => format!(" grid_dependency={value}"),
        };
        let prefetch = if self.l2_prefetch { " l2_prefetch=1" } else { "" };
        if !overlap.is_empty() || !prefetch.is_empty() {
            let _ = write!(out, "; launch tile{overlap}{prefetch}");
        }
        for (n, name) in [(bi, "ic"), (bj, "jc")] {
            if n > 1 {
                let _ = write!(out, "; bind {name} cluster");
            }
        }
        out + "\n"
    }

    /// Whether an operand is read beyond its ends.
    fn pads(&self, spec: &GemmSpec, operand: Operand) -> bool {
        spec.k % self.bk != 0 || rows(spec)[operand as usize] % self.whole(operand) != 0
    }

    /// Rows or columns of C that a cluster covers.
    fn whole(&self, operand: Operand) -> i64 {
        self.block[operand as usize] * self.cluster[operand as usize]
    }

    /// Whether the tiles reach beyond C.
    fn grows(&self, spec: &GemmSpec) -> bool {
        Operand::BOTH.into_iter().any(|operand| rows(spec)[operand as usize] % self.whole(operand) != 0)
    }

    /// What the tile of an operand is copied from.
    fn source(&self, spec: &GemmSpec, operand: Operand) -> String {
        let end = match (self.pads(spec, operand), self.routes[operand as usize]) {
            (true, _) => "_pad",
            (false, Source::Packed) => "_pack",
            (false, Source::Direct) => "",
        };
        format!("{}{end}", operand.name())
    }

    /// Zeros around what tiles do not divide, and kernels that pack.
    fn pad(&self, spec: &GemmSpec, sources: &[String; 2]) -> String {
        let by = [self.whole(Operand::A), self.whole(Operand::B)];
        let pads = multiples(&[("i", spec.m, by[0]), ("j", spec.n, by[1]), ("k", spec.k, self.bk)]);
        let mut out = if pads.is_empty() { String::new() } else { format!("pad {} {pads}\n", accumulators(spec)) };
        for operand in Operand::BOTH.into_iter().filter(|operand| self.routes[*operand as usize] == Source::Packed) {
            let source = &sources[operand as usize];
            if !self.pads(spec, operand) {
                let _ = writeln!(out, "cache_read {} {} global -> {source}", accumulators(spec), operand.name());
            }
            out += &packing(spec, operand, source);
        }
        if self.grows(spec) && converts(spec) {
            let pads = multiples(&[("out_i", spec.m, by[0]), ("out_j", spec.n, by[1])]);
            let _ = writeln!(out, "compute_inline acc_pad; pad out {pads} -> acc_out C_pad; compute_inline acc_out");
        }
        out
    }

    /// From the accumulators to C.
    fn epilogue(&self, spec: &GemmSpec) -> String {
        let grows = self.grows(spec);
        if !converts(spec) && (bytes(spec.out) == 4 || !self.bulk_store && !grows) {
            return self.wide_epilogue(spec);
        }
        let (accumulators, c) = if grows { ("acc_pad", "C_pad") } else { ("acc", "C") };
        let mut out = if converts(spec) { format!("set_scope {accumulators} fragment\n") } else { String::new() };
        let inlined = if grows { "reverse_compute_inline C_pad\n" } else { "" };
        if !self.bulk_store && !grows {
            return out + "reverse_compute_at out iw\n";
        }
        let (tall, fo) = if self.tall() > 1 { ("4 16", "fo fw fr") } else { ("16", "fw fr") };
        if self.swap_ab {
            return out + &self.swapped_epilogue(spec, c) + inlined;
        }
        let store_columns = self.store_columns(spec);
        // Whole panels are swizzled; what is wider lies as it is, 8 columns at a time.
        let panels = store_columns * bytes(spec.out) == STORE_BYTES;
        let matrix = if panels { 16 } else { 8 };
        out += &match converts(spec) {
            true => format!(
                "cache_write out {c} shared -> C_s; cache_write out C_s fragment -> C_f\n\
                 reverse_compute_at out iw -> e0 en; split en ? {store_columns} -> ep e1; reorder ep e0 e1\n\
                 reverse_compute_at C_f ep -> f0 f1\n"
            ),
            // Accumulators that are C's own leave their registers as they are.
            false => format!(
                "cache_write C {c} shared -> C_s; cache_write C C_s fragment -> C_f\n\
                 reverse_compute_at C_f iw -> f0 fj; split fj ? {store_columns} -> ep f1; reorder ep f0 f1\n"
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
            let _ = writeln!(out, "swizzle C_s {}", self.swizzle.min(STORE_BYTES));
        }
        // A warp's own rows are stages of `ep` only with what was converted.
        out + &self.stored(if self.stores_by_warp() && converts(spec) { "fw" } else { "ep" }) + inlined
    }

    /// Columns of C that leave together: a panel, or of tiles that panels do not divide one half, or in turns as many as keep
    /// rows in shared memory an odd number of chunks of 16 bytes apart, which meets no bank twice.
    fn store_columns(&self, spec: &GemmSpec) -> i64 {
        let panel = STORE_BYTES / bytes(spec.out);
        let columns = self.block[1];
        if self.swap_ab || columns % panel == 0 {
            return panel;
        }
        let odd = |parts: &i64| columns % parts == 0 && (columns / parts * bytes(spec.out)) % 32 == 16;
        (2..=8).find(odd).filter(|_| self.pingpong).map_or(columns / 2, |parts| columns / parts)
    }

    /// From a tile of C in shared memory to C: what the loop `at` stages leaves at once.
    fn stored(&self, at: &str) -> String {
        if !self.bulk_store {
            // Rows of C begin anywhere: the threads store the block's tile element by element.
            return format!(
                "reverse_compute_at C_s tile -> s0 s1; fuse s0 s1 -> s; split s ? {} -> s_0 s_1; bind s_1 threadIdx.x\n",
                128 * self.warpgroups
            );
        }
        let mut out = format!("reverse_compute_at C_s {at} -> s0 s1; copy_with C_s tma\n");
        if self.out_stages > 1 {
            let _ = writeln!(out, "pipeline ep stages={}", self.out_stages);
        }
        out
    }
}

/// How A and B come into shared memory: what TMA copies cannot read, or tiles of bytes cannot have, is packed before.
fn routes(spec: &GemmSpec) -> [Source; 2] {
    Operand::BOTH.map(|operand| {
        let transposed = runs_along_k(spec, operand) != along_k(spec)[operand as usize];
        match contiguous(spec, operand) * bytes(spec.a) % 16 {
            0 if !transposed => Source::Direct,
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

/// Whether C is of another type than the accumulators.
fn converts(spec: &GemmSpec) -> bool {
    spec.acc != spec.out
}

/// The block that has the accumulators.
fn accumulators(spec: &GemmSpec) -> &'static str {
    if converts(spec) { "mma" } else { "C" }
}

/// Bytes of an element.
fn bytes(dtype: DType) -> i64 {
    i64::from(dtype.bits()) / 8
}
