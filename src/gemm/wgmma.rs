//! The recipe for products on Hopper's tensor cores by wgmma: floats of 16 and 8 bits, tf32, integers of 8 bits, and single bits.
//!
//! TMA loads fill a ring of swizzled stages in shared memory with tiles of A and B, from which warpgroups issue wgmmas. The epilogue
//! stages C in shared memory. Each part is a step that can be left out, and every subset is a program: a producer role for the loads,
//! persistent blocks, clusters whose blocks share tiles by multicast, wgmmas in flight, and TMA stores.
//!
//! Where tiles do not divide the GEMM, TMA loads fill in zeros, and elements beyond C are not stored. TMA needs rows aligned to 16
//! bytes: a separate kernel packs other operands first, and threads store other rows of C. wgmma on bytes, bits and tf32 needs k-major operands:
//! a separate kernel transposes the others, or one of them comes through registers (`registers`) and of bytes the other is transposed in shared memory (`transposed`).
//! Kernels make bytes of 4-bit integers first (`widened`).

mod cost;
mod epilogue;
mod fitted;
mod interleaved;
mod invariant;
mod partners;
mod pingpong;
mod placement;
mod promoted;
mod reason;
mod registers;
mod rungs;
mod swapped;
mod thin;
mod transposed;
mod unaligned;
mod wide_epilogue;
mod widened;

pub use interleaved::Interleaved;
pub use rungs::{RUNGS, Rung};

use super::epilogue::{Accumulators, Epilogue};
use super::grid::ClusterLoops;
use super::operand::{Operand, multiple_of_result, up};
use super::packing::{Packing, Source};
use super::padding::Padding;
use super::split::{Combine, PARTS, part_loops, shares_out, split_k};
use super::staging::{Staging, present, source};
use super::tiles;
use super::tuning;
use super::work::{Placement, ranked, releases_early};
use crate::dtype::DType;
use crate::ir::Note;
use crate::schedule::Steps;
use crate::target::{Features, LINE, Target};
use crate::te::GemmSpec;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wgmma {
    /// Rows and columns of C of a block.
    pub block: [i64; 2],
    /// Warpgroups that multiply, one above the other (one beside the other with swapped operands).
    pub warpgroups: i64,
    /// Ping-pong: each warpgroup has tiles of its own, and one issues MMAs while the other runs its epilogue.
    pub pingpong: bool,
    /// Which operand gives the rows of the instruction.
    pub swap_ab: SwapAb,
    /// Whether the operand that gives the rows of the instruction comes through registers: its tile in shared memory may then have rows across
    /// k, whatever its type.
    pub rows_in_registers: bool,
    /// Parts of k that blocks of their own sum over.
    pub parts: i64,
    /// Who adds parts up.
    pub combine: Combine,
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
    /// [`Epilogue::Tma`], or [`Epilogue::Direct`] where TMA cannot store C.
    pub epilogue: Epilogue,
    /// Stages of the epilogue's ring.
    pub out_stages: i64,
    /// How A and B come into shared memory.
    pub routes: [Source; 2],
    /// Bytes that the second-level cache fetches at a time for copies; `None` leaves it to the compiler.
    pub promotion: Option<i64>,
    /// Whether the kernel begins beside the one in front of it in the stream (1), and lets the next one begin beside it (2).
    pub grid_dependency: i64,
    /// Threads add partial sums of 128 terms up in accumulators of their own, as scales of blocks need it.
    pub promoted: bool,
    /// Blocks of a packing kernel up to which the GEMM's own may begin beside it: one for each multiprocessor.
    pub early_blocks: i64,
    /// Its blocks ask the second-level cache for A and B before they wait for the kernel in front.
    pub l2_prefetch: bool,
    /// For a dynamic number of rows: tiles take boxes of rows in turn.
    pub interleaved: Option<Interleaved>,
    /// Whether kernels of their own make bytes of 4-bit integers first. All else is of a GEMM of bytes in NT.
    pub widened: bool,
}

/// Which operand gives the rows of an instruction, of which it has 64, and which its columns, of which it has up to 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapAb {
    /// A the rows: C = A B.
    Straight,
    /// B the rows: C^T = B^T A^T.
    Swapped,
}

impl SwapAb {
    /// The dimension of C (rows 0, columns 1) that the rows of instructions are.
    fn rows(self) -> usize {
        self as usize
    }

    /// The operand that gives the columns of instructions: B, or A where they are swapped.
    fn columns(self) -> Operand {
        Operand::BOTH[self.rows()].other()
    }

    /// Rows and columns of C of so many rows and columns of instructions.
    fn block(self, rows: i64, columns: i64) -> [i64; 2] {
        match self {
            SwapAb::Straight => [rows, columns],
            SwapAb::Swapped => [columns, rows],
        }
    }

    /// Whether the operands are swapped.
    pub fn is_swapped(self) -> bool {
        self == SwapAb::Swapped
    }
}

/// Rows of C of an instruction.
const ROWS: i64 = 64;
/// Bytes of A and B that are worth to be asked for at once.
const AT_ONCE: i64 = 6 << 20;
/// The most stages.
const MOST_STAGES: i64 = 8;
/// The most stages of tiles of one wave whose rows begin inside the lines of L2, where the sum is short.
const FEW_STAGES: i64 = 6;
/// Rounds of such a ring up to which a sum is short.
const SHORT: i64 = 4;
/// Stages of a part of k at least.
const LEAST_STAGES: i64 = 4;
/// Stages of k of a part from which on a full ring gains more than the next kernel's early blocks.
const LONG_PART: i64 = 48;
/// Bytes of a row of C that leave together.
const STORE_BYTES: i64 = 128;
/// Bytes of a panel that is not swizzled.
const CHUNK: i64 = 16;
/// Bytes along k of an instruction.
const DEPTH: i64 = 32;
/// Rows and columns of C that candidates have at least.
const LEAST_SIDE: i64 = 16;

impl Wgmma {
    /// The tiles of large products: all parts together.
    pub const LARGE: Wgmma = Wgmma {
        block: [128, 256],
        warpgroups: 2,
        pingpong: false,
        swap_ab: SwapAb::Straight,
        rows_in_registers: false,
        parts: 1,
        combine: Combine::Kernel,
        bk: 64,
        stages: 4,
        in_flight: 1,
        swizzle: 128,
        cluster: [2, 1],
        raster_group: 8,
        persistent: true,
        producer: true,
        epilogue: Epilogue::Tma,
        out_stages: 2,
        routes: [Source::Direct; 2],
        promotion: None,
        grid_dependency: 0,
        early_blocks: 0,
        promoted: false,
        l2_prefetch: false,
        interleaved: None,
        widened: false,
    };

    /// The tiles that suit a product; `None` where the chip has no wgmma, or the recipe no form for the product.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        Wgmma::candidates(spec, target).first().copied()
    }

    /// All tiles that there are for a product, the cheapest first.
    pub(super) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        if spec.block_scales {
            return Wgmma::promoted_tiles(spec, target);
        }
        if let Some(bytes) = widened::of_bytes(spec) {
            return Wgmma::widened_tiles(&bytes, target);
        }
        let thin = Wgmma::thin_tiles(spec, target);
        if spec.m < LEAST_SIDE || !Wgmma::suits(spec, target) {
            return thin;
        }
        let all = Wgmma::with_tiles_alone(Wgmma::of_any_rows(spec, target), thin, spec, target);
        let all = Wgmma::with_register_tiles(all, spec, target).into_iter();
        all.map(|w| w.with_raster_group(spec, target)).collect()
    }

    /// Whether the recipe has a form for the types, N and K on the chip.
    pub(super) fn suits(spec: &GemmSpec, target: &Target) -> bool {
        let small = spec.n < LEAST_SIDE || in_bytes(spec.k, spec) < DEPTH;
        known(spec) && !small && target.has(Features::WGMMA | Features::TMA)
    }

    /// All tiles for a product that suits the recipe, of however few rows, the cheapest first.
    fn of_any_rows(spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let mut all: Vec<Wgmma> =
            tiles::wgmma().into_iter().map(|(block, warpgroups)| Wgmma::of(spec, block, warpgroups, target)).collect();
        // Where threads store C, their indices divide by the columns of the tile: 190 times in 64 x 192, never in 64 x 256, whose divisions are
        // shifts. The model counts no divisions. On an H100 the tiles take 12.9 and 9.6 us for 3x63x8191x128
        // (h100-2026-11-25/choice.md).
        let split: Vec<_> = all.iter().flat_map(|w| w.split(spec, target)).collect();
        let halved: Vec<_> = all.iter().chain(&split).filter_map(|w| w.with_half_the_ring(spec, target)).collect();
        all.retain(|w| w.stores_by_tma() || w.block[1].count_ones() == 1);
        all.extend(Wgmma::fitted_tiles(spec, target));
        let alone: Vec<_> = all.iter().filter_map(|w| w.without_partners(spec, target)).collect();
        all.extend(alone);
        let partners: Vec<_> = all.iter().flat_map(|w| w.with_partners(spec, target)).collect();
        all.extend(partners.into_iter().chain(Wgmma::unaligned_tiles(spec, target)));
        all.extend(Wgmma::fitted_parts(spec, target));
        let works = halved.into_iter().chain(all).chain(split).map(|w| (w.work(spec, target), w)).collect();
        let mut all: Vec<Wgmma> = ranked(works, 1.0, &target.device()).into_iter().map(|(_, w)| w).collect();
        all.dedup();
        // The model does not count the bubbles of cooperative warpgroups: `mma_cycles` compares them with ping-pong.
        let pingpong_tiles = Wgmma::pingpong_tiles(spec, SwapAb::Straight, target);
        let shares = |w: &Wgmma| w.cluster != [1, 1];
        let first = all
            .first()
            .filter(|w| !shares(w))
            .zip(pingpong_tiles.first())
            .is_some_and(|(cooperative, pingpong)| pingpong.gains_over(cooperative, spec, target));
        let (ahead, behind) = if first { (pingpong_tiles, Vec::new()) } else { (Vec::new(), pingpong_tiles) };
        let all = ahead.into_iter().chain(all).chain(behind).collect();
        Wgmma::with_swapped_tiles(all, spec, target)
    }

    /// These tiles, with stages and routes that suit them.
    pub fn of(spec: &GemmSpec, block: [i64; 2], warpgroups: i64, target: &Target) -> Wgmma {
        Wgmma::of_operands(spec, SwapAb::Straight, (block, warpgroups), target)
    }

    /// The same with either operand as the rows of instructions.
    fn of_operands(spec: &GemmSpec, swap_ab: SwapAb, (block, warpgroups): ([i64; 2], i64), target: &Target) -> Wgmma {
        let routes = routes(spec);
        let epilogue =
            if multiple_of_result(spec) * bytes(spec.out) % 16 == 0 { Epilogue::Tma } else { Epilogue::Direct };
        let plain = Wgmma { cluster: [1, 1], persistent: false, producer: false, ..Wgmma::LARGE };
        // The k extent of a stage covers a short k with few zeros. K-major panels have 64 bytes at least: with 32 bytes s8 NN 12832x64x32
        // takes 10 us on an H100, with 128 bytes 5 (no record was kept).
        let k_major = Operand::BOTH.into_iter().any(|operand| runs_along_k(operand, spec));
        let least = if k_major { 2 * DEPTH } else { DEPTH };
        let covers = |row: &i64| *row >= least && in_bytes(spec.k, spec) <= *row;
        let row = [DEPTH, 2 * DEPTH].into_iter().find(covers).unwrap_or(4 * DEPTH);
        let mut w = Wgmma { block, warpgroups, swap_ab, bk: elements(row, spec), epilogue, routes, ..plain };
        // Where there are more tiles than multiprocessors, persistent blocks load the next tile while the last one leaves.
        let many = w.blocks(spec) > i64::from(processors(target));
        w.persistent = many && w.stores_by_tma();
        if w.persistent {
            w.out_stages = w.store_stages(spec);
        }
        // Kernels of one wave begin beside the one in front of them: on an H200 that takes 0.35 us of 7.2 at 1000^3. Those whose
        // blocks stay begin behind it. Asking for A and B at once takes another 0.15 us, and as much as 2 us more at 2048^3, where what is needed
        // first comes in turn with everything else.
        w.grid_dependency = if many { 0 } else { 2 };
        w.early_blocks = i64::from(processors(target));
        w.l2_prefetch = !many && in_bytes((spec.m + spec.n) * spec.k, spec) * spec.products() <= AT_ONCE;
        w.producer = w.persistent;
        // Rows that begin anywhere in the cache's lines cost two reads each: two blocks share them, where they find partners. Of many tiles, two that
        // share take 89.5 us for 3712x2048x3928 TT of f16 on an H100, lone ones 129; 108 and 127 for 8576x1552x2304 TN of bf16; 438 and 661 for
        // 5000^3 NT.
        let unaligned = Wgmma::has_unaligned_rows(spec, routes);
        let (shared, partners) = w.shared_side(spec, many);
        if unaligned && w.stores_by_tma() && spec.batch.is_none() && (partners % 2 == 0 || many && partners > 1) {
            w.producer = true;
            w.cluster[shared] = 2;
        }
        // Such rows share lines with their neighbours, too: more than six stages that ask at once take 4 % longer at 1000^3 on an H200.
        w = w.with_slots(spec, target, if unaligned && !many { FEW_STAGES } else { MOST_STAGES });
        if unaligned && !many && w.k_stages(spec) > SHORT * FEW_STAGES {
            w = w.with_slots(spec, target, MOST_STAGES);
        }
        w.with_raster_group(spec, target)
    }

    /// The same tiles with k divided among blocks where the tiles alone do not fill the device. No more parts than fill it twice, and each
    /// has some stages.
    fn split(&self, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let most = 2 * i64::from(processors(target));
        let suits = |parts: &i64| {
            let long = up(spec.k, self.bk) >= LEAST_STAGES * parts;
            *parts > 1 && long && self.tiles(spec).saturating_mul(*parts) <= most
        };
        let parts = PARTS.into_iter().filter(|parts| spec.batch.is_none() && suits(parts));
        parts.flat_map(|parts| self.in_all_parts(parts, spec, target)).collect()
    }

    /// The same tiles with k in so many parts, which a second kernel adds up, or where they can the blocks of a cluster.
    fn in_all_parts(&self, parts: i64, spec: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let by_kernel = self.in_parts(parts, spec, target);
        let cluster = by_kernel.in_cluster(spec, target);
        cluster.into_iter().chain([by_kernel]).collect()
    }

    /// The same parts, which the blocks of a cluster add up; `None` where they cannot.
    fn in_cluster(self, spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        let can =
            self.parts <= i64::from(target.limits.cluster) && shares_out(self.block, self.parts, 128 * self.warpgroups);
        let w = Wgmma { combine: Combine::Cluster, ..self }.with_slots(spec, target, MOST_STAGES);
        (can && w.shared(spec) <= room(target)).then_some(w)
    }

    /// The same tiles with k divided among so many blocks, which store their accumulators in workspace from registers. Not of a batch.
    #[must_use]
    pub fn in_parts(self, parts: i64, spec: &GemmSpec, target: &Target) -> Wgmma {
        let alone = Wgmma { cluster: [1, 1], persistent: false, producer: false, ..self };
        let direct = Wgmma { parts, epilogue: Epilogue::Direct, grid_dependency: 2, l2_prefetch: false, ..alone };
        direct.with_slots(spec, target, MOST_STAGES)
    }

    /// The same tiles where device memory decides, with half of the ring, so that two blocks share a multiprocessor and none stays for a
    /// second tile. On an H100 64 x 128 takes 33.4 us instead of 36.0 for 16x11008x4096 of bf16 NT, 35.3 instead of 39.8 for
    /// 96x11008x4096 of f16 NT. Not for long parts of one wave, which a kernel adds up: the next product begins behind that. 256x256x65536 takes 34.2
    /// us with half of the ring in 12 parts and 28.6 with all of it, 2368x64x3136 TN in 6 parts 10.2 and 10.4.
    fn with_half_the_ring(&self, spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        let stages = self.stages / 2;
        let unaligned = Wgmma::has_unaligned_rows(spec, self.routes);
        let suits = stages >= LEAST_STAGES && !unaligned && self.waits_for_memory(spec, target);
        let few = self.blocks(spec) <= 2 * i64::from(processors(target));
        let one_wave = self.blocks(spec) <= i64::from(processors(target));
        let long = self.parts > 1 && !self.adds_in_cluster() && self.k_stages(spec) >= LONG_PART;
        // What lies beyond C is not on its way.
        let [m, n] = self.stage_tile();
        let used = in_bytes((m.min(spec.m) + n.min(spec.n)) * self.bk, spec) * (stages - 1);
        let enough = up(self.blocks(spec), i64::from(processors(target))) * used >= tuning::ENOUGH_IN_FLIGHT;
        let alone = Wgmma { persistent: false, producer: false, stages, ..*self };
        let half = Wgmma { grid_dependency: 2, out_stages: 2, ..alone };
        (suits && few && enough && !(one_wave && long)).then_some(half.with_early_release(spec, target))
    }

    /// As many stages as k has use for, as leave room for C's own, and no more than so many. Where few fit beside C and a block
    /// has one tile, C takes their place, so that more fit; and always for tiles that take boxes of rows in turn, of which fewer bytes are on their way at
    /// fewer rows: 166x4096x4096 NT of f16 takes 15.3 us on an H200 in two tiles of 128 x 64 with eight stages, and 14.4 with nine.
    fn with_slots(self, spec: &GemmSpec, target: &Target, most: i64) -> Wgmma {
        let of = |stages: i64| Wgmma { stages, ..self };
        let most_of = |most: i64, fits: &dyn Fn(&i64) -> bool| (2..=most).rev().find(fits).unwrap_or(2);
        let beside = most_of(most, &|n| of(*n).shared_apart(spec) <= room(target));
        let few = if self.interleaved.is_some() { most } else { most.min(FEW_STAGES) };
        let stages = beside.max(most_of(few, &|n| of(*n).shared(spec) <= room(target)));
        // A persistent block that has a multiprocessor to itself loads the stages of its next tiles, too.
        let lone = self.persistent && self.takes_all_registers();
        let tiles = if lone { up(self.blocks(spec), processors(target).into()) } else { 1 };
        let stages = stages.min((self.k_stages(spec) * tiles).max(2));
        Wgmma { stages, in_flight: i64::from(stages > 2), ..self }.with_early_release(spec, target)
    }

    /// The same tiles, of which the next kernel may begin beside those of one wave where that keeps the multiprocessors even.
    fn with_early_release(self, spec: &GemmSpec, target: &Target) -> Wgmma {
        if self.grid_dependency == 0 {
            return self;
        }
        let kernel = Placement {
            blocks: self.blocks(spec),
            resident: self.resident(spec, target),
            cluster: if self.adds_in_cluster() { self.parts } else { self.cluster.iter().product() },
            packs: self.needs_packing(),
        };
        // The kernels that add parts up have small blocks.
        let small = self.parts > 1 && !self.adds_in_cluster();
        Wgmma { grid_dependency: if !small && releases_early(kernel, &target.device()) { 2 } else { 1 }, ..self }
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
    /// The steps, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        if self.promoted {
            return self.promoted_steps(spec);
        }
        let mut s = Steps::new();
        self.widen(&mut s, spec);
        let spec = &self.multiplied(spec);
        self.pad(&mut s, spec);
        self.interleave(&mut s, &self.padding(spec), self.accumulators(spec));
        split_k(&mut s, self.parts, self.combine);
        self.nest(&mut s, spec);
        for operand in Operand::BOTH {
            self.stage(&mut s, spec, operand);
        }
        self.epilogue(&mut s, spec);
        let ([m, n], wide, [rows, columns]) = match self.swap_ab {
            SwapAb::Straight => (["im", "jn"], self.block[1], [spec.a, spec.b]),
            SwapAb::Swapped => (["jm", "in"], self.block[0], [spec.b, spec.a]),
        };
        let types = format!("k{}.{}.{rows}.{columns}", elements(DEPTH, spec), spec.acc);
        let word = if self.rows_in_registers { "wgmma_rs" } else { "wgmma" };
        s.tensorize_by(m, &format!("{word}.m64n{wide}{types}"), [m, n, "ki"]);
        if self.stages > 1 || self.in_flight > 0 {
            s.pipeline("k0", self.stages);
        }
        if self.in_flight > 0 {
            s.in_flight(self.in_flight);
        }
        self.specialize(&mut s, spec);
        s
    }

    /// The block whose accumulators are those of the instruction.
    fn accumulators(&self, spec: &GemmSpec) -> &'static str {
        match (self.parts > 1, self.promoted) {
            (true, _) => "parts",
            (false, true) => "part",
            (false, false) => Accumulators::of(spec).block(),
        }
    }

    /// An operand's tile in shared memory.
    fn stage(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        let is_packed = self.routes[operand as usize] == Source::Packed;
        let fills_zeros = self.padding(spec).pads_operand(operand) && !is_packed;
        let accumulators = self.accumulators(spec);
        let buffer = self.loaded(spec, operand);
        let staging = Staging { operand, buffer, accumulators, source: &self.source(spec, operand), fills_zeros };
        staging.read(s);
        s.compute_at(buffer, "k0");
        if let Some(bytes) = self.promotion {
            let [row, column] = ["0", "1"].map(|end| format!("{}{end}", operand.lower()));
            s.made([&row, &column]).annotate(&row, Note::L2Promotion, bytes);
        }
        if operand == Operand::A && self.interleaved.is_some() {
            s.made(["ar", "ak"]);
            self.in_boxes(s, "ar", ["ab", "ai"]);
        }
        staging.inline_padding(s);
        staging.copy_by_tma(s, self.swizzle_of(spec, operand), self.cluster_loops());
        if self.holds(operand) {
            self.rows_fragment(s, spec, operand);
        }
        if self.transposes_tile(spec, operand) {
            self.transpose_tile(s, spec, operand);
        }
    }

    /// Bytes of the panels that the rows of an operand's tile are cut into: the widest that divide them, or that rows are longer than. The last
    /// panel of those may be in use in part.
    fn swizzle_of(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        let row = if self.tile_along_k(spec, operand) { self.bk } else { self.stage_tile()[operand as usize] };
        let row = in_bytes(row, spec);
        match self.swizzle {
            0 => CHUNK,
            swizzle if row > swizzle => swizzle,
            swizzle => swizzle.min(1 << row.trailing_zeros()),
        }
    }

    /// The loop over warpgroups.
    fn warpgroup_loop(&self) -> &'static str {
        if self.swap_ab.is_swapped() { "jw" } else { "iw" }
    }

    /// Tiles of 64 rows that a warpgroup has.
    fn tall(&self) -> i64 {
        self.block[self.swap_ab.rows()] / self.warpgroups / ROWS
    }

    /// The loops over the blocks of a cluster.
    fn cluster_loops(&self) -> ClusterLoops {
        ClusterLoops::new(self.cluster)
    }

    /// The loops of blocks, warpgroups and instructions.
    fn nest(&self, s: &mut Steps, spec: &GemmSpec) {
        let cluster = self.cluster_loops();
        let [(ci, ic), (cj, jc)] = cluster.factors();
        let warpgroups = self.warpgroups;
        let (tall, io) = if self.tall() > 1 { (Some(self.tall()), "io") } else { (None, "") };
        let (warpgroup, row, column) = match self.swap_ab {
            SwapAb::Straight => ("iw", "im", "jn"),
            SwapAb::Swapped => ("jw", "jm", "in"),
        };
        let (rows, columns, terms) = (self.rows(spec, row), self.columns(spec, column), self.terms(spec, "ki"));
        let row_factors = || std::iter::once(warpgroups).chain(tall).chain(rows.factors.iter().copied());
        let column_factors = || columns.factors.iter().copied();
        let row_loops = || [warpgroup, io].into_iter().chain(rows.loops.iter().copied());
        let column_loops = || columns.loops.iter().copied();
        match self.swap_ab {
            SwapAb::Straight => {
                s.split("i", ci.into_iter().chain(row_factors()), present(["i0", ic].into_iter().chain(row_loops())));
                s.split(
                    "j",
                    cj.into_iter().chain(column_factors()),
                    present(["j0", jc].into_iter().chain(column_loops())),
                );
            }
            SwapAb::Swapped => {
                let within = if self.interleaved.is_none() { &columns.factors[..] } else { &[] };
                let (factors, loops) = (ci.into_iter().chain(within.iter().copied()), ["i0", ic]);
                match self.interleaved.is_some() {
                    true if ci.is_some() => s.split("i0", factors, loops),
                    true => &mut *s,
                    false => s.split("i", factors, present(loops.into_iter().chain(column_loops()))),
                };
                s.split("j", cj.into_iter().chain(row_factors()), present(["j0", jc].into_iter().chain(row_loops())));
            }
        }
        let steps = std::iter::once(in_bytes(self.bk, spec) / DEPTH).chain(terms.factors.iter().copied());
        s.split("k", steps, ["k0", "kk"].into_iter().chain(terms.loops.iter().copied()));
        let [of_grid, of_cluster] = part_loops(self.parts, self.combine);
        let outside = [of_grid, "i0", "j0", ic, jc, of_cluster, warpgroup, "k0", "kk", io];
        let inside = [&rows, &columns, &terms].into_iter().flat_map(|dimension| dimension.order.iter().copied());
        s.reorder(present(outside.into_iter().chain(inside)));
        rows.fuse(s, "rows");
        columns.fuse(s, "columns");
        terms.fuse(s, "terms");
        self.walk_tiles(s, spec, "b");
    }

    /// What the tiles of a cluster add to the GEMM.
    fn padding(&self, spec: &GemmSpec) -> Padding {
        // Interleaved tiles are all of the rows.
        let tiles = [self.interleaved.map_or(self.cluster[0], Interleaved::all_tiles), self.cluster[1]];
        Padding::new(spec, [0, 1].map(|d| self.block[d] * tiles[d]), self.bk * self.parts)
    }

    /// Whether the tiles reach beyond C.
    fn grows(&self, spec: &GemmSpec) -> bool {
        self.padding(spec).pads_result()
    }

    /// What the tile of an operand is copied from.
    fn source(&self, spec: &GemmSpec, operand: Operand) -> String {
        let is_packed = self.routes[operand as usize] == Source::Packed;
        let name = if self.widened { widened::name(operand) } else { operand.name() };
        // The packing kernel pads its operand.
        source(name, !is_packed && self.padding(spec).pads_operand(operand), is_packed)
    }

    /// Zeros around what tiles do not divide, and kernels that pack.
    fn pad(&self, s: &mut Steps, spec: &GemmSpec) {
        let (padding, accumulators) = (self.padding(spec), Accumulators::of(spec));
        padding.pad(s, accumulators.block());
        for operand in Operand::BOTH.into_iter().filter(|operand| self.routes[*operand as usize] == Source::Packed) {
            let (packed, is_transposed) = (&self.source(spec, operand), transposes(operand, spec));
            let releasing = if self.grid_dependency > 1 { self.early_blocks } else { 0 };
            let packing = Packing { operand, packed, padding, is_transposed, releasing };
            match spec.a.bits() < 8 {
                true => packing.kernel_of_bits(s, spec, accumulators.block()),
                false => packing.kernel(s, spec, accumulators.block()),
            }
        }
        if padding.pads_result() && accumulators.converts() && self.parts == 1 {
            s.compute_inline("acc_pad");
            padding.pad_conversion(s);
        }
    }
}

/// How A and B come into shared memory: what TMA copies cannot read, or tiles of bytes cannot have, is packed before.
fn routes(spec: &GemmSpec) -> [Source; 2] {
    Operand::BOTH.map(|operand| {
        if operand.is_aligned(spec) && !transposes(operand, spec) { Source::Direct } else { Source::Packed }
    })
}

/// Whether the rows of an operand's tile run along k: wgmma reads others of 16-bit elements alone.
fn runs_along_k(operand: Operand, spec: &GemmSpec) -> bool {
    operand.along_k(spec) || spec.a.bits() != 16
}

/// Whether a kernel of its own transposes an operand.
fn transposes(operand: Operand, spec: &GemmSpec) -> bool {
    runs_along_k(operand, spec) != operand.along_k(spec)
}

/// Whether the recipe has a form for these types.
pub(super) fn known(spec: &GemmSpec) -> bool {
    use DType::{B1, Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let any = spec.epilogue && converts_to(spec.out);
    match (spec.a, spec.b) {
        (F16, F16) if spec.acc == F16 => any || spec.out == F16,
        (F16, F16) | (Bf16, Bf16) => spec.acc == F32 && (any || spec.out == spec.a || spec.out == F32),
        (Tf32, Tf32) => spec.acc == F32 && (any || spec.out == F32),
        (S8 | U8, S8 | U8) => spec.acc == S32 && (any || spec.out == S32),
        (E4m3 | E5m2, E4m3 | E5m2) if spec.acc == F16 => any || spec.out == F16,
        (E4m3 | E5m2, E4m3 | E5m2) => spec.acc == F32 && (any || matches!(spec.out, F16 | Bf16 | F32 | E4m3 | E5m2)),
        // No separate kernel packs the bits of a batch.
        (B1, B1) => {
            let packs = spec.batch.is_some() && routes(spec).contains(&Source::Packed);
            spec.acc == S32 && (any || spec.out == S32) && !packs
        }
        _ => false,
    }
}

/// Whether the epilogue stores results of other types than those of [`known`]: what a block after the product computes.
fn converts_to(dtype: DType) -> bool {
    matches!(dtype.bits(), 8 | 16 | 32) && dtype != DType::Bool
}

/// Bytes of so many elements of an operand.
fn in_bytes(elements: i64, spec: &GemmSpec) -> i64 {
    // Elements of an enormous GEMM are counted before they are refused.
    let bits = i64::from(spec.a.bits());
    if bits < 8 { elements / (8 / bits) } else { elements * (bits / 8) }
}

/// Elements of an operand that have so many bytes.
fn elements(bytes: i64, spec: &GemmSpec) -> i64 {
    8 * bytes / i64::from(spec.a.bits())
}

/// Bytes of an element of the result or of an accumulator.
fn bytes(dtype: DType) -> i64 {
    i64::from(dtype.bits()) / 8
}
