//! The recipe for products on tensor cores by mma.sync: f16, bf16, tf32 and f64, and integers of 8 bits, 4 bits and one bit.
//!
//! cp.async fills a ring of stages in shared memory with tiles of A and B, swizzled so that neither the copies nor ldmatrix have bank
//! conflicts. A warp loads the fragments of its next k iteration during the MMAs of this one. ldmatrix.trans transposes 16-bit
//! operands that are not k-major. Of bytes it transposes pairs: a separate kernel transposes them (*packing*), or a byte permutation puts them in
//! order (`transposed`). That kernel also packs operands whose rows are not aligned to 16 bytes, which cp.async cannot read. Lanes load single elements where ldmatrix has none of their width
//! (`elements`). Rows that no cp.async can read also come through registers, element by element, where packing takes longer.
//! Where tiles do not divide the GEMM, the copies or the packing kernel fill in zeros. Where there are few tiles, k is split across
//! blocks (split-K).
//!
//! From Hopper on TMA loads large tiles of 16-bit operands (`tma`), which leaves more of the power for MMAs; other tiles can be asked
//! for ([`Mma::by_tma`]).
//!
//! Turing has no asynchronous copies, and shorter instructions: tiles pass through registers there, in two stages.
//!
//! The power limit bounds an H200 at full load, so bytes moved for an MMA decide: large GEMMs have large tiles, neighbouring blocks read
//! the same ones, and the fragments of B stay in registers while those of A change.

mod cost;
mod elements;
mod epilogue;
mod invariant;
mod narrow;
mod streamed;
mod tma;
mod transposed;
mod unaligned;

pub use narrow::OperandForm;
pub use tma::Tma;

use super::epilogue::{Accumulators, Epilogue};
use super::grid::{ClusterLoops, bind_batch, group_of, rows_of, walk};
use super::operand::{Operand, both_along_k, up};
use super::packing::{Packing, Source, transposes};
use super::padding::Padding;
use super::split::{Combine, PARTS, part_loops, parts_bytes, split_k};
use super::staging::{Fragment, STAGED, Staging, present, source};
use super::tiles;
use super::tuning;
use super::work::{Placement, operand_bytes, ranked, releases_early};
use crate::dtype::DType;
use crate::intrin;
use crate::ir::{Axis, BindMode, CopyKind, Note};
use crate::schedule::Steps;
use crate::target::{Features, Target};
use crate::te::GemmSpec;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mma {
    /// Rows and columns of C of a block.
    pub block: [i64; 2],
    /// Warps of a block, along rows and columns of C.
    pub warps: [i64; 2],
    /// Terms of the accumulators in a stage of shared memory.
    pub bk: i64,
    /// Stages.
    pub stages: i64,
    /// Where a warp loads the operands of its next step of k while it multiplies those of this one.
    pub fragments: FragmentBuffers,
    /// Parts of a warp's rows that it multiplies one after the other in each step: the operands of one are loaded while it
    /// multiplies those of another.
    pub sweeps: i64,
    /// How the accumulators leave registers.
    pub epilogue: Epilogue,
    /// Rows and terms of the instruction.
    pub shape: [i64; 2],
    /// Whether tiles are copied asynchronously, or on their way through registers.
    pub asynchronous: bool,
    /// Rows of blocks that are walked together.
    pub group: i64,
    /// Parts of k that blocks of their own sum over.
    pub parts: i64,
    /// Who adds parts up.
    pub combine: Combine,
    /// How A and B come into shared memory.
    pub routes: [Source; 2],
    /// What tensor cores are given of them.
    pub form: OperandForm,
    /// How TMA copies bring the tiles, where these do ([`Mma::by_tma`]).
    pub tma: Option<Tma>,
    /// `.minnctapersm`, the blocks for each multiprocessor that ptxas is asked for.
    pub min_blocks: Option<i64>,
    /// Whether the kernels use programmatic dependent launch (PDL).
    pub begins_early: bool,
    /// Whether the next kernel may begin beside the GEMM's own.
    pub releases_early: bool,
}

/// Registers for the operands of a warp's next step of k.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentBuffers {
    /// Two sets: the other one is loaded.
    Double,
    /// One set: each fragment is reloaded after the last MMA that reads it, which leaves room for more accumulators.
    Single,
}

impl Mma {
    /// The cheapest tiles; `None` where the chip or its tensor cores have no such product, or it is smaller than a tile.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Mma> {
        Mma::candidates(spec, target).first().copied()
    }

    /// All tiles that suit the product, the cheapest first.
    pub(super) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<Mma> {
        let all = Mma::with_cycles(spec, target).into_iter();
        all.map(|(_, m)| m.with_best_tiles(spec, target)).collect()
    }

    /// All tiles without copies by TMA, with their cycles, the cheapest first.
    fn with_cycles(spec: &GemmSpec, target: &Target) -> Vec<(f64, Mma)> {
        if Mma::lacks(spec, target).is_some() {
            return Vec::new();
        }
        // Larger tiles of fewer warps ask less of shared memory: at 1000^3 four of 64 x 32 take 10.2 us on an H200, eight of 32 x 32 take
        // 10.5. Where tiles pass through registers, a warp has room for fewer accumulators; not measured.
        // Accumulators of 64 bits take twice the registers.
        let most = if target.has(Features::CP_ASYNC) && spec.acc.bits() <= 32 { [64, 64] } else { [64, 32] };
        let tiles = tiles::mma(most, [spec.m, spec.n], spec.a.bits().into()).into_iter();
        let tiles = tiles.flat_map(|tile| PARTS.map(|parts| (tile, parts)));
        let with = |form: OperandForm| {
            let packed =
                tiles.clone().map(move |((block, warps), parts)| Mma::with(spec, target, block, warps, parts, form));
            let whole = packed.flat_map(|m| {
                [Some(m), m.in_pieces(spec, target), m.through_registers(spec, target)].into_iter().flatten()
            });
            whole.flat_map(|m| std::iter::once(m).chain(m.in_cluster(spec, target)))
        };
        let plain = OperandForm::of(spec, target).into_iter().flat_map(with);
        Mma::ranked(plain.chain(Mma::streamed(spec, target)), spec, target)
    }

    /// Those of the tiles that suit the product, with their cycles, the cheapest first.
    fn ranked(all: impl Iterator<Item = Mma>, spec: &GemmSpec, target: &Target) -> Vec<(f64, Mma)> {
        // Every part has some tiles of k.
        // A batch has the dimension of the grid that parts would have.
        let parts = |m: &Mma| m.parts == 1 || (spec.batch.is_none() && spec.k / m.parts >= 4 * m.bk);
        let device = target.device();
        let divides = |m: &Mma| m.tma.is_some() || m.divides_stages(spec);
        let suited = all.filter(|m| m.is_used(spec) && divides(m) && m.stores_all_lanes(spec) && parts(m));
        let works = suited.map(|m| (m.work(spec, target), m)).filter(|(work, _)| work.resident > 0);
        ranked(works.collect(), 1.0, &device)
    }

    /// What keeps a product from its tensor cores.
    pub fn lacks(spec: &GemmSpec, target: &Target) -> Option<&'static str> {
        if spec.block_scales {
            return Some("the recipe multiplies no partial sums by scales of blocks");
        }
        if OperandForm::of(spec, target).is_empty() {
            return Some("the chip has no mma.sync for these types with matching ldmatrix loads");
        }
        if spec.batch.is_some() && spec.a.bits() < 8 {
            return Some("no separate kernel transposes, widens or packs elements below a byte of a batched GEMM");
        }
        // Several of them share a byte, and the smallest tiles would be filled with zeros for the most part.
        let small = narrow::is_narrow(spec) && (spec.m.min(spec.n) < 16 || spec.k * i64::from(spec.a.bits()) < 128);
        small.then_some("tiles of elements below a byte need at least 16 rows, 16 columns and 16 bytes of k")
    }

    /// These tiles, with stages and routes that suit them.
    pub fn of(spec: &GemmSpec, target: &Target, block: [i64; 2], warps: [i64; 2], parts: i64) -> Mma {
        let form = OperandForm::of(spec, target).first().copied().unwrap_or(OperandForm::Stored);
        Mma::with(spec, target, block, warps, parts, form)
    }

    /// These tiles of these operands.
    pub fn with(
        spec: &GemmSpec,
        target: &Target,
        block: [i64; 2],
        warps: [i64; 2],
        parts: i64,
        form: OperandForm,
    ) -> Mma {
        let large = block[0] / warps[0] * (block[1] / warps[1]) > 1 << 11;
        let (asynchronous, bits) = (target.has(Features::CP_ASYNC), form.bits(spec));
        let (row, stages) = ring(spec, asynchronous, large, bits);
        // Large K-major tiles have one set of fragments: on an H200 f16 NT takes 0.984 of the time of two sets at 4096^3, 0.97 at
        // 1024^3 and 1.01 at 4096x4096x256 and x512; s8 takes 0.982 at 4096^3. f16 NN, TN and TT would take 1.014, 1.033 and 1.048.
        let k_major = bits < 16 || both_along_k(spec);
        let fragments =
            if asynchronous && large && k_major { FragmentBuffers::Single } else { FragmentBuffers::Double };
        let bk = 8 * row / bits;
        let rows = up(spec.m, block[0]);
        let group = if rows % 16 == 0 || rows > 32 { 16 } else { 8 };
        let routes = Operand::BOTH.map(|operand| {
            let unaligned = !operand.is_aligned(spec);
            let transposed = bits < 16 && !operand.along_k(spec);
            let widened = form == OperandForm::Widened;
            if unaligned || transposed || widened { Source::Packed } else { Source::Direct }
        });
        // The main loop runs all k tiles if there are two rounds of the ring, and ptxas then does not spill. With four or five k tiles
        // that takes two stages; they take 1.04 (f16 NT) to 1.21 (f16 NN) of the time of three on an H200, s8 1.06 to 1.12, s4 1.00.
        // Without a main loop only 4-bit tiles spill (777x3334x556 NN on sm_80: 304 bytes).
        let tiles = up(spec.k, bk * parts);
        let fewest = if bits < 8 && tiles >= 4 { 2 } else { 3 };
        let stages = if large && asynchronous { stages.min((tiles / 2).max(fewest)) } else { stages };
        let epilogue = epilogue::choose(spec, target, block, parts);
        let shape = form.shape(spec, target).unwrap_or([16, form.depth(spec)]);
        let mma = Mma {
            block,
            warps,
            bk,
            stages,
            fragments,
            sweeps: 1,
            epilogue,
            shape,
            asynchronous,
            group,
            parts,
            combine: Combine::Kernel,
            routes,
            form,
            tma: None,
            min_blocks: None,
            begins_early: false,
            releases_early: true,
        };
        let mma = mma.with_registers(spec, target);
        Mma { min_blocks: mma.told_blocks(spec, target), ..mma }.with_early_start(spec, target)
    }

    /// The same tiles with programmatic dependent launch, where the chip has it.
    fn with_early_start(self, spec: &GemmSpec, target: &Target) -> Mma {
        let begins_early = target.has(Features::GRID_DEPENDENCY);
        Mma { begins_early, releases_early: self.can_release(spec, target), ..self }
    }

    /// The same tiles where a thread has no registers for two sets of fragments: with the shorter instruction of f64, or with one set. f64 NN
    /// 4096^3 on an H200, beside the floor at the clock of each: tiles of 64 x 32 a warp 0.949 with two sets of m16n8k4, 0.920 with one of
    /// m16n8k8, 0.869 of m16n8k16; tiles of 32 x 32 0.953 with two sets of m16n8k8, 0.942 of m16n8k4, 0.891 of m16n8k16
    /// (h200-2026-11-26).
    fn with_registers(self, spec: &GemmSpec, target: &Target) -> Mma {
        let fits = |m: &Mma| m.registers(spec) <= i64::from(target.limits.registers_per_thread);
        let [rows, terms] = self.shape;
        let shorter = Mma { shape: [rows, terms / 2], ..self };
        match self.fragments {
            _ if fits(&self) => self,
            FragmentBuffers::Double if spec.a == DType::F64 && rows > 8 && fits(&shorter) => shorter,
            _ => Mma { fragments: FragmentBuffers::Single, ..self },
        }
    }

    /// Terms that a warp loads at once: those of an instruction, and at least the bytes that instructions of recent chips take.
    fn loaded_terms(&self, spec: &GemmSpec) -> i64 {
        self.form.depth(spec).max(self.shape[1])
    }

    /// Whether the next kernel may begin beside the GEMM's own and the multiprocessors stay even. Not where the next kernel packs operands or adds
    /// parts up in small blocks: 2000x2000x500 NN of s8 takes 19.0 us in 128 x 256 on an H100 so, and 14.4 where each kernel begins behind the one
    /// before it (h100-2026-11-27/early.md).
    fn can_release(&self, spec: &GemmSpec, target: &Target) -> bool {
        let small = self.routes.contains(&Source::Packed) || self.parts > 1 && !self.adds_in_cluster();
        let kernel = Placement {
            blocks: self.blocks(spec),
            resident: self.resident(spec, target),
            cluster: if self.adds_in_cluster() { self.parts } else { 1 },
            packs: false,
        };
        !small && self.is_one_wave(spec, target) && releases_early(kernel, &target.device())
    }

    /// The same parts, which the blocks of a cluster add up; `None` where they cannot.
    fn in_cluster(self, spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let known = target.has(Features::CLUSTER) && self.parts <= i64::from(target.limits.cluster);
        let w = Mma { combine: Combine::Cluster, ..self };
        let w = Mma { min_blocks: w.told_blocks(spec, target), ..w };
        let can = known && self.divides_shares();
        can.then(|| w.with_early_start(spec, target))
    }

    fn is_one_wave(&self, spec: &GemmSpec, target: &Target) -> bool {
        self.blocks(spec) <= i64::from(target.device().multiprocessors) * self.resident(spec, target)
    }

    /// Blocks of the grid.
    fn blocks(&self, spec: &GemmSpec) -> i64 {
        let tiles = up(spec.m, self.block[0]).saturating_mul(up(spec.n, self.block[1]));
        tiles.saturating_mul(self.parts).saturating_mul(spec.products())
    }

    /// Whether the lanes of a fragment are loops of what stores it. One row or column of C is no loop, so that converted accumulators of one
    /// leave as matrices or in parts of k.
    fn stores_all_lanes(&self, spec: &GemmSpec) -> bool {
        let direct = self.epilogue == Epilogue::Direct && self.parts == 1 && Accumulators::of(spec).converts();
        !direct || spec.m > 1 && spec.n > 1
    }

    /// Whether every warp of a lone tile has some of C.
    fn is_used(&self, spec: &GemmSpec) -> bool {
        (0..2).all(|d| [spec.m, spec.n][d] > self.block[d] - self.block[d] / self.warps[d])
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        32 * self.warps[0] * self.warps[1]
    }

    /// Bytes of shared memory of a block.
    pub fn shared(&self, spec: &GemmSpec) -> i64 {
        let rows = self.staged_bytes(spec);
        let tiles: i64 = Operand::BOTH.into_iter().map(|operand| self.tile_bytes(spec, operand)).sum();
        let ring = tiles * self.stages;
        let words = i64::from(spec.acc.bits()) / 32;
        let parts = if self.adds_in_cluster() { words * parts_bytes(self.block, self.parts) } else { 0 };
        match self.tma {
            None => ring.max(rows) + parts,
            Some(tma) => tma.shared(ring, rows, self.stages),
        }
    }

    /// Whether the blocks of a cluster add up parts.
    fn adds_in_cluster(&self) -> bool {
        self.parts > 1 && self.combine == Combine::Cluster
    }

    /// What the tiles add to the GEMM.
    fn padding(&self, spec: &GemmSpec) -> Padding {
        Padding::new(spec, Operand::BOTH.map(|operand| self.whole(operand)), self.bk * self.parts)
    }
}

/// The steps.
impl Mma {
    /// The steps, for a program of [`crate::te::gemm`] of types that tensor cores multiply.
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let names = Names::of(self, spec);
        let mut s = Steps::new();
        self.widen(&mut s, &names);
        self.padding(spec).pad(&mut s, names.whole.block());
        for operand in Operand::BOTH {
            self.pack(&mut s, spec, operand, &names);
        }
        self.nest(&mut s, spec, &names);
        for operand in Operand::BOTH {
            self.stage(&mut s, spec, operand, &names);
        }
        s.pipeline("k0", self.stages);
        // Copies by threads start between products.
        if self.tma.is_none_or(|tma| tma.spread) {
            s.annotate("k0", Note::Spread, 1);
        }
        for operand in Operand::BOTH {
            self.fragment(&mut s, spec, operand, &names);
        }
        self.reorder_accumulators(&mut s, spec, &names);
        s.pipeline("kk", if self.fragments == FragmentBuffers::Double { 2 } else { 1 });
        s.decompose_reduction(names.accumulators, "k0").made(["zero"]).tensorize("ii", &self.instruction(spec));
        self.producer(&mut s);
        self.unroll_stream(&mut s, spec);
        self.finish(&mut s, spec, &names);
        bind_batch(&mut s, spec);
        s
    }

    /// The kernel that packs an operand: eight rows a thread, or tiles of 64 x 64 bytes that are transposed in shared memory.
    fn pack(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand, names: &Names) {
        if self.routes[operand as usize] == Source::Direct {
            return;
        }
        if narrow::is_narrow(spec) {
            return self.pack_narrow(s, spec, operand, names);
        }
        let padding = self.padding(spec);
        let is_transposed = transposes(operand, spec);
        let packed: &str = &names.sources[operand as usize];
        let packing = Packing { operand, packed, padding, is_transposed, releasing: 0 };
        packing.kernel(s, spec, names.whole.block());
    }

    /// The loops of blocks, warps and instructions, and those of what stores the accumulators.
    fn nest(&self, s: &mut Steps, spec: &GemmSpec, names: &Names) {
        let ([wi, wj], [ti, tj], ki) = (self.warps, self.tiles(), self.shape[1]);
        split_k(s, self.parts, self.combine);
        let stored = self.stored(s, spec, names);
        let cluster = self.cluster();
        // Loops that there may be: over parts, blocks of a cluster, sweeps, and instructions that are shorter than what a warp loads at
        // once.
        let [of_grid, of_cluster] = part_loops(self.parts, self.combine);
        let [(ci, ic), (cj, jc)] = cluster.factors();
        let (sweeps, is) = if self.sweeps > 1 { (Some(self.sweeps), "is") } else { (None, "") };
        let depth = self.loaded_terms(spec);
        let terms = self.term_loops(spec);
        let (factors, made) = match depth / ki {
            // Loads of the next step go ahead of what orders the bytes of this one.
            1 if self.transposes_any(spec) => {
                ([vec![1], terms.factors.clone()].concat(), [vec!["kq"], terms.loops.clone()].concat())
            }
            1 => (vec![ki], vec!["ki"]),
            short if self.form == OperandForm::Unpacked => (vec![ki, short], vec!["ki", "kq"]),
            short => (vec![short, ki], vec!["kq", "ki"]),
        };
        let kq = if factors.len() > 1 { "kq" } else { "" };
        let (rows, of_rows) = self.row_loops(spec);
        let (columns, of_columns, [of_tiles, of_pairs]) = self.column_loops(spec, tj);
        let rows = ci.into_iter().chain([wi]).chain(sweeps).chain([ti / self.sweeps]).chain(rows);
        s.split("i", rows, present(["i0", ic, "iw", is, "im"].into_iter().chain(of_rows)));
        s.split(
            "j",
            cj.into_iter().chain([wj]).chain(columns),
            present(["j0", jc, "jw"].into_iter().chain(of_columns)),
        );
        let steps = std::iter::once(self.bk / depth).chain(factors);
        s.split("k", steps, ["k0", "kk"].into_iter().chain(made));
        let inner =
            [of_cluster, "iw", "jw", "k0", "kk", kq, is, of_tiles, of_pairs, "im", of_rows[1], of_rows[0], "ji"];
        let inner = inner.into_iter().chain(terms.order.iter().copied());
        s.reorder(present([of_grid, "i0", "j0", ic, jc].into_iter().chain(inner)));
        self.fuse_transposed(s, spec);
        terms.fuse(s, "terms");
        let (rows, _) = rows_of(s, spec, ("i0", up(spec.m, self.whole(Operand::A))));
        walk(s, rows, group_of(spec, self.group), BindMode::Plain);
        s.fuse(["iw", "jw"], "w").bind("w", Axis::Warp);
        cluster.bind(s);
        if self.min_blocks.is_some() || self.begins_early {
            s.launch("tile");
        }
        if let Some(blocks) = self.min_blocks {
            s.min_blocks(blocks);
        }
        if self.begins_early {
            s.grid_dependency(if self.releases_early { 2 } else { 1 });
        }
        self.epilogue_loops(s, spec, stored, names);
    }

    fn instruction(&self, spec: &GemmSpec) -> String {
        let [m, k] = self.shape;
        let [a, b] = [spec.a, spec.b].map(|t| self.form.multiplied(t));
        format!("mma.m{m}n8k{k}.{}.{a}.{b}", spec.acc)
    }

    /// Tiles of the instruction that a warp has, along rows and columns.
    fn tiles(&self) -> [i64; 2] {
        [self.block[0] / self.warps[0] / self.shape[0], self.block[1] / self.warps[1] / 8]
    }

    /// An operand's tile in shared memory.
    fn stage(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand, names: &Names) {
        let source = &*names.sources[operand as usize];
        let fills_zeros = self.padding(spec).pads_operand(operand) && self.routes[operand as usize] == Source::Direct;
        let staging = Staging {
            operand,
            buffer: STAGED[operand as usize],
            accumulators: names.accumulators,
            source,
            fills_zeros,
        };
        staging.read(s);
        staging.inline_padding(s);
        let bits = self.form.bits(spec);
        let panel = (self.row(spec, operand) * bits / 8).min(128);
        if self.tma.is_some() {
            s.compute_at(staging.buffer, "k0");
            return staging.copy_by_tma(s, panel, self.cluster());
        }
        let piece = self.copied_bytes(spec, operand);
        staging.copy_by_threads(s, self.threads(), 8 * piece / bits);
        match self.loads_matrices(spec, operand) {
            true => s.swizzle(staging.buffer, panel),
            false => self.pad_rows(s, spec, staging.buffer),
        };
        if self.asynchronous {
            s.copy_with(staging.buffer, CopyKind::CpAsync);
            let hot = if bits == 64 { tuning::HOT_BYTES_OF_64 } else { tuning::HOT_BYTES };
            if piece == 16 && operand_bytes(spec, operand) <= hot {
                s.through_l1();
            }
        }
    }

    /// What a warp has of an operand in registers: four matrices at a time, in the order of the instruction's registers.
    fn fragment(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand, names: &Names) {
        if self.transposes(spec, operand) {
            return self.transposed_fragment(s, spec, operand, names.accumulators);
        }
        if !self.loads_matrices(spec, operand) {
            return self.fragment_of_elements(s, spec, operand, names.accumulators);
        }
        let (dtype, ki) = (self.form.loaded(operand.dtype(spec)), self.form.depth(spec));
        let along_k = operand.runs_along_k(spec);
        let order = if (operand == Operand::B) == along_k { ".row" } else { "" };
        let transposed = if along_k { "" } else { ".trans" };
        let fragment = Fragment {
            operand,
            accumulators: names.accumulators,
            rows: 16,
            along_k,
            load: format!("ldmatrix{transposed}{order}.m16n{ki}.{dtype}"),
        };
        fragment.read(s);
        let unpacked = self.unpack(s, operand, names);
        fragment.load(s);
        if let Some(unpacked) = unpacked {
            s.transform_layout(&unpacked, narrow::unpacked_order());
        }
    }
}

/// Bytes of a row of a stage, and stages, for `large` tiles of warps or smaller ones of elements of so many bits.
///
/// 128 bytes of a row: all banks, and as many as are read together. Of large tiles of warps of 16-bit elements more but shorter stages are a
/// little faster (at 4096^3 NN on an H200 0.645 of cuBLAS with six of 64 bytes, 0.642 with five, 0.637 with four, 0.632 with three of 128),
/// unless both operands lie along k, whose rows would be half lines (NT: 0.636 with three of 128, 0.627 with five of 64). Bytes of long stages
/// spill on some chips.
fn ring(spec: &GemmSpec, asynchronous: bool, large: bool, bits: i64) -> (i64, i64) {
    match (asynchronous, large, bits) {
        // What is on its way is in registers, and there is half as much shared memory.
        (false, ..) => (64, 2),
        (_, true, 16) if both_along_k(spec) => (128, 3),
        (_, true, 16) => (64, 6),
        (_, true, _) => (64, 4),
        // Of fewer terms no more is read than there is.
        _ if spec.k * bits <= 64 * 8 => (64, 4),
        _ => (128, 4),
    }
}

/// What blocks and buffers are called.
struct Names {
    /// The accumulators of a whole sum.
    whole: Accumulators,
    /// The block whose accumulators are in registers.
    accumulators: &'static str,
    /// What the tiles of A and B are copied from.
    sources: [String; 2],
}

impl Names {
    fn of(mma: &Mma, spec: &GemmSpec) -> Names {
        let (whole, padding) = (Accumulators::of(spec), mma.padding(spec));
        let widened = mma.form == OperandForm::Widened;
        let sources = Operand::BOTH.map(|operand| {
            let name = format!("{}{}", operand.name(), if widened { "_wide" } else { "" });
            let is_packed = mma.routes[operand as usize] == Source::Packed;
            // What is packed is padded on the way, but for rows of elements below a byte.
            let on_the_way = is_packed && !widened && (!narrow::is_narrow(spec) || transposes(operand, spec));
            let is_padded = padding.pads_operand(operand) && !on_the_way;
            source(&name, is_padded, is_packed && !widened)
        });
        Names { whole, accumulators: if mma.parts > 1 { "parts" } else { whole.block() }, sources }
    }
}

/// Rows and terms of the instruction for these types; `None` where the chip has none.
fn shape(spec: &GemmSpec, target: &Target) -> Option<[i64; 2]> {
    use DType::{B1, Bf16, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
    let hopper = target.has(Features::MMA_F64);
    let [ampere, turing] = match (spec.a, spec.b, spec.acc) {
        (F64, F64, F64) => [Some(if hopper { [16, 8] } else { [8, 4] }), None],
        (Tf32, Tf32, F32) => [Some([16, 8]), None],
        (F16, F16, F32 | F16) => [Some([16, 16]), Some([16, 8])],
        (Bf16, Bf16, F32) => [Some([16, 16]), None],
        (E4m3 | E5m2, E4m3 | E5m2, F32) => [Some([16, 32]).filter(|_| multiplies_float8(target)), None],
        (S8 | U8, S8 | U8, S32) => [Some([16, 32]), Some([8, 16])],
        (S4 | U4, S4 | U4, S32) => [Some([16, 64]), Some([8, 32])],
        // Turing counts where bits differ, and not what they have in common.
        (B1, B1, S32) => [Some([16, 256]), None],
        _ => return None,
    };
    let turing = turing.filter(|_| target.has(Features::MMA_F16 | Features::MMA_INT | Features::LDMATRIX));
    if target.has(Features::MMA_AMPERE | Features::CP_ASYNC) { ampere } else { turing }
}

/// Whether the chip multiplies 8-bit floats by mma.sync and does not convert them to f16 first, as it does from sm_90 on.
fn multiplies_float8(target: &Target) -> bool {
    intrin::find("mma.m16n8k32.f32.e4m3.e4m3").is_some_and(|row| row.is_native_to(target))
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
            // Nearly all multiprocessors have 25 tiles of 256 x 80; boxes of 80 columns or rows are whole panels only along k.
            let block = match layout {
                Layout::TN => [192, 128],
                Layout::TT => [256, 80],
                _ => [80, 256],
            };
            assert_eq!(chosen.block, block, "{layout:?}");
            assert_eq!((chosen.parts, chosen.routes), (1, [Source::Direct; 2]));
        }
    }

    /// 7680x177x208 NT of f16 takes 11.3 us on an H200 in 128 x 160 by TMA, 5.9 in 128 x 128 by cp.async.
    #[test]
    fn short_sums_have_no_large_tiles_by_tma() {
        assert_eq!(choice(7680, 177, 208, HALF, Layout::NT).tma, None);
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
    fn thin_tiles_that_no_copy_can_read_come_through_registers() {
        let bf16 = [DType::Bf16, DType::F32, DType::Bf16];
        let chosen = choice(26, 4111, 4704, bf16, Layout::TN);
        assert_eq!((chosen.asynchronous, chosen.routes), (false, [Source::Direct; 2]));
        assert!(chosen.parts > 1, "{chosen:?}");
        // Copies of 4 bytes read rows of 4110 elements, and bytes across k are transposed by a kernel of their own.
        let all = |m, n, types, layout| Mma::candidates(&spec(m, n, 4704, types, layout), &Target::sm_90a());
        assert!(all(26, 4110, bf16, Layout::TN).iter().all(|m| m.asynchronous));
        assert!(all(27, 4111, BYTE, Layout::NN).iter().all(|m| m.routes[1] == Source::Packed));
        assert!(all(27, 4111, bf16, Layout::NN).iter().any(|m| !m.asynchronous));
        // Bytes come in stages of half a row.
        let bytes = Mma::candidates(&spec(32, 14310, 235, BYTE, Layout::NT), &Target::sm_90a());
        assert!(bytes.iter().any(|m| !m.asynchronous && m.bk == 64), "{:?}", bytes.first());
    }

    #[test]
    fn few_tiles_are_smaller_or_share_their_sums_out() {
        let blocks = |m: Mma, size: i64| up(size, m.block[0]) * up(size, m.block[1]) * m.parts;
        for size in [512, 1000, 1024] {
            let chosen = choice(size, size, size, HALF, Layout::NN);
            assert!(blocks(chosen, size) >= 64, "{size}: {chosen:?}");
        }
        assert!(choice(128, 128, 65536, HALF, Layout::NN).parts > 16);
    }

    #[test]
    fn tiles_of_c_leave_in_rows_but_for_parts_of_sums() {
        let epilogue = |types, n: i64, parts| {
            let spec = spec(4096, n, 64, types, Layout::NT);
            Mma::of(&spec, &Target::sm_90a(), [128, 128], [2, 2], parts).epilogue
        };
        assert_eq!([epilogue(BYTE, 4096, 1), epilogue(BYTE, 4099, 1)], [Epilogue::Rows; 2]);
        assert_eq!(epilogue(HALF, 4096, 1), Epilogue::Stmatrix);
        assert_eq!([epilogue(BYTE, 4096, 2), epilogue(HALF, 4096, 2)], [Epilogue::Direct; 2]);
        // Pairs of 64-bit elements fill rows of whole pairs.
        assert_eq!(
            [epilogue([DType::F64; 3], 4099, 1), epilogue([DType::F64; 3], 4098, 1)],
            [Epilogue::Rows, Epilogue::Direct]
        );
    }

    #[test]
    fn the_scheduler_with_most_warps_decides() {
        // 560 blocks of a warp are up to five on a multiprocessor, of which two share a scheduler.
        let bf16 = [DType::Bf16, DType::F32, DType::Bf16];
        let chosen = choice(24, 4472, 5650, bf16, Layout::TT);
        assert!(chosen.warps.iter().product::<i64>() >= 2, "{chosen:?}");
    }

    #[test]
    fn thin_products_have_tiles_as_long_as_few_rows_allow() {
        for thin in [1, 8, 16] {
            assert_eq!(choice(thin, 8192, 4096, HALF, Layout::NT).block[0], 16);
            assert_eq!(choice(8192, thin, 4096, HALF, Layout::NT).block[1], 16);
        }
        let all = Mma::candidates(&spec(8, 8192, 4096, HALF, Layout::NT), &Target::sm_90a());
        assert!([64, 128, 256].into_iter().all(|n| all.iter().any(|m| m.block == [16, n])));
        // Each row of one term is a stage of 64 bytes.
        assert_eq!(choice(512, 512, 1, HALF, Layout::NN).bk, 32);
    }

    #[test]
    fn other_types_and_chips_have_other_recipes() {
        let none = |types, target: Target| Mma::choose(&spec(4096, 4096, 4096, types, Layout::NN), &target).is_none();
        assert!(none([DType::F32; 3], Target::sm_90a()));
        assert!(none([DType::Bf16, DType::Bf16, DType::Bf16], Target::sm_90a()));
        assert!(none(HALF, Target::sm_70()));
        assert!(!none(HALF, Target::sm_75()) && none([DType::Bf16, DType::F32, DType::Bf16], Target::sm_75()));
        assert!(!none(HALF, Target::sm_86()));
        let narrow = [DType::S4, DType::S32, DType::S32];
        assert!(Mma::choose(&spec(1, 4096, 4096, narrow, Layout::NN), &Target::sm_90a()).is_none());
    }
}
