//! The recipe for products of f32 on chips with asynchronous copies: tiles of 16 x 8 elements a thread, copies one
//! or two tiles ahead in shared memory, and operands one step of k ahead in registers.
//!
//! Eight warps of a block have a tile of 64 x 64 of C each, or share one: *slices* of warps then take turns along k, and
//! the block adds their accumulators up in shared memory, in a fixed order. Operands lie in shared memory with k outermost. One
//! whose rows run along k is turned word by word on its way there; on the long side of a tile that would cost more than a
//! pass of its own through device memory (*packing*). Copies of 4 or 8 bytes load rows that are not aligned to 16. A product that the
//! tiles do not divide is padded: with zeros that the copies fill in, or while an operand is packed; its epilogue stores tiles through
//! shared memory. Where there are few tiles, blocks divide k (split-K).
//!
//! What decides the speed is which registers the multiply-adds read: consecutive ones share an operand (`zigzag`), and
//! the lanes of a warp are dealt out to rows and columns by turns, so that two lanes in four read the same vector.

use super::adapt::epilogue_in_copies;
use super::epilogue::{Accumulators, digits, row_vector, store_rows};
use super::grid::bind_blocks;
use super::operand::{Operand, up};
use super::packing::Packing;
use super::padding::Padding;
use super::parts::numbers;
use super::simt::cost::memory_bytes;
use super::split::{Combine, Split, combine_parts, combine_slices, combining};
use super::staging::{Staging, divide_among_threads, fuse_all, present, source};
use super::tiles;
use super::tuning;
use super::work::{Work, cycles};
use crate::dtype::DType;
use crate::ir::{Axis, CopyKind, Index, Note, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::{Features, Target};
use crate::te::GemmSpec;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipelined {
    /// Warps of a slice, along rows and columns of C.
    pub warps: [i64; 2],
    /// Slices of warps that take turns along k.
    pub slices: i64,
    /// Parts of k that blocks of their own sum over; a second kernel adds them.
    pub parts: i64,
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
    /// In the pieces of 4 or 8 bytes that its rows are aligned to.
    Pieces,
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

/// k iterations of a part at least.
const LEAST_ITERATIONS: i64 = 16;

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
        let all = [1, 2, 4, 8]
            .into_iter()
            .flat_map(|slices| tiles::arrangements(WARPS / slices, [WARP; 2]).map(move |warps| (warps, slices)));
        let device = target.device();
        let multiprocessors = i64::from(device.multiprocessors);
        let candidates = all.flat_map(|(warps, slices)| {
            // A turned operand, or one in pieces, may be packed too.
            [[false, false], [false, true], [true, false], [true, true]]
                .map(|pack| Pipelined::of(spec, warps, slices, pack))
        });
        let candidates = candidates.flat_map(|p| p.split(spec, multiprocessors));
        let fits = |p: &Pipelined| {
            p.shared() <= i64::from(target.limits.shared_optin) && p.fills(spec, multiprocessors) && !p.spills(spec)
        };
        let mut fitting: Vec<_> = candidates.filter(fits).map(|p| (cycles(&p.work(spec), &device), p)).collect();
        fitting.sort_by(|a, b| a.0.total_cmp(&b.0));
        fitting
    }

    /// These tiles, and the same in parts of k where the tiles alone leave multiprocessors without one.
    fn split(self, spec: &GemmSpec, multiprocessors: i64) -> impl Iterator<Item = Pipelined> {
        let suits = move |parts: i64| {
            let long = spec.k / parts >= LEAST_ITERATIONS * self.terms * self.slices;
            parts == 1 || long && self.tiles(spec).saturating_mul(parts) <= 2 * multiprocessors
        };
        numbers(spec, 1).filter(move |parts| suits(*parts)).map(move |parts| Pipelined { parts, ..self })
    }

    /// Whether ptxas runs out of registers: a thread with a whole tile turns both operands under conditions (652x1838x400 NT).
    fn spills(&self, spec: &GemmSpec) -> bool {
        let turns = |operand: Operand| {
            self.routes[operand as usize] == Route::Turned && self.padding(spec).pads_operand(operand)
        };
        self.slices == 1 && Operand::BOTH.into_iter().all(turns)
    }

    /// Whether half of the multiprocessors have a tile.
    fn fills(&self, spec: &GemmSpec, multiprocessors: i64) -> bool {
        self.tiles(spec).saturating_mul(self.parts) >= multiprocessors - multiprocessors / 2
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
        Pipelined { warps, slices, parts: 1, terms, slots, routes }
    }

    fn of(spec: &GemmSpec, warps: [i64; 2], slices: i64, pack: [bool; 2]) -> Pipelined {
        let mut p = Pipelined::new(warps, slices, [Route::Vectors; 2]);
        for operand in Operand::BOTH {
            let padded = p.padding(spec).pads_operand(operand);
            p.routes[operand as usize] = if pack[operand as usize] || padded && volume(spec) >= LARGE {
                Route::Packed
            } else if operand.along_k(spec) {
                Route::Turned
            } else if operand.is_aligned(spec) {
                Route::Vectors
            } else {
                Route::Pieces
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

    /// What the tiles add to the GEMM.
    fn padding(&self, spec: &GemmSpec) -> Padding {
        Padding::new(spec, self.block(), self.terms * self.slices * self.parts)
    }

    /// How k is divided.
    fn division(&self) -> Split {
        Split { parts: self.parts, slices: self.slices }
    }

    /// What the GEMM asks of the device in these tiles.
    pub(super) fn work(&self, spec: &GemmSpec) -> Work {
        let [m, n, k] = [spec.m, spec.n, spec.k].map(|x| x as f64);
        let (mut words, mut vectors, mut passes) = (0.0, 0.0, combining(spec, self.parts, Combine::Kernel));
        for operand in Operand::BOTH {
            let copied = (self.block()[operand as usize] * self.slices) as f64 / THREADS as f64;
            match self.routes[operand as usize] {
                Route::Turned => words += copied,
                Route::Pieces => words += copied / (operand.piece(spec) / 4) as f64,
                Route::Vectors | Route::Packed => vectors += copied / 4.0,
            }
            if self.routes[operand as usize] == Route::Packed {
                passes.kernels += 1.0;
                passes.memory_bytes += 8.0 * [m, n][operand as usize] * k;
            }
        }
        Work {
            issue: tuning::PIPELINED_SLOWER
                * (tuning::PIPELINED_STEP
                    + tuning::PIPELINED_WORDS * words * words
                    + tuning::PIPELINED_VECTOR * vectors),
            iterations: k / (self.slices * self.parts) as f64,
            launch: tuning::PIPELINED_LAUNCH,
            prologue: tuning::PIPELINED_EDGES,
            epilogue: self.block().iter().product::<i64>() as f64 * 4.0 / tuning::STORE_BYTES,
            overlap: tuning::SIMT_OVERLAP,
            memory_share: tuning::MEMORY_SHARE,
            memory_bytes: memory_bytes(spec),
            flight_bytes: f64::INFINITY,
            tiles: self.tiles(spec) * self.parts,
            passes,
            ..Work::NONE
        }
    }

    /// Whether C passes through shared memory on its way out of registers, so that what is beyond it is not stored: stores at the edge, each
    /// under its own condition, would take the registers of a thread that holds a whole tile (160 to 2,500 bytes of them spilled).
    fn crops(&self, spec: &GemmSpec) -> bool {
        self.padding(spec).pads_result() && self.slices == 1 && self.parts == 1
    }

    /// The steps, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let plain = self.plain_steps(spec);
        if spec.epilogue { epilogue_in_copies(plain) } else { plain }
    }

    /// The steps without an epilogue.
    fn plain_steps(&self, spec: &GemmSpec) -> Steps {
        let (mut s, padding) = (Steps::new(), self.padding(spec));
        padding.pad(&mut s, "C");
        for operand in Operand::BOTH.into_iter().filter(|operand| self.routes[*operand as usize] == Route::Packed) {
            let (packed, is_transposed) = (&self.source(spec, operand), operand.along_k(spec));
            Packing { operand, packed, padding, is_transposed, releasing: 0 }.kernel(&mut s, spec, "C");
        }
        self.nest(&mut s, spec);
        for operand in Operand::BOTH {
            self.stage(&mut s, spec, operand);
        }
        s.decompose_reduction(self.division().sums(), "k0").pipeline("k1", 2).pipeline("k0", self.slots);
        s.annotate("jg", Note::Zigzag, 1).annotate("je", Note::Zigzag, 1);
        if self.slices > 1 {
            let (whole, written, own, vector) = match self.parts {
                1 => ("C", padding.written(), "", row_vector(spec)),
                _ => ("parts", "parts", "xp", 4),
            };
            combine_slices(&mut s, [whole, written, "C_c"], "j0", own, [THREADS, vector]);
            if self.parts == 1 {
                padding.crop(&mut s);
            }
        }
        if self.parts > 1 {
            combine_parts(&mut s, Accumulators::Result, &padding);
        }
        s
    }

    /// The operand that the tiles are copied from.
    fn source(&self, spec: &GemmSpec, operand: Operand) -> String {
        let is_packed = self.routes[operand as usize] == Route::Packed;
        source(operand.name(), !is_packed && self.padding(spec).pads_operand(operand), is_packed)
    }

    /// The loops of the tiles, of the accumulators in registers, and of what stores these.
    fn nest(&self, s: &mut Steps, spec: &GemmSpec) {
        let ([wi, wj], [bm, bn], split) = (self.warps, self.block(), self.division());
        let [ks, us] = split.slice();
        split.cut(s, self.terms);
        let crops = self.crops(spec);
        match (self.slices * self.parts > 1, crops) {
            (true, _) => s.cache_write(split.sums(), split.sums(), Scope::Local, "C_r"),
            (false, true) => {
                s.cache_write("C", "C_pad", Scope::Shared, "C_s").cache_write("C", "C_s", Scope::Local, "C_r")
            }
            (false, false) => s.cache_write("C", "C", Scope::Local, "C_r"),
        };
        s.split("i", [4, wi, 2, 2, 4], ["i0", "ig", "iw", "il", "im", "ie"]);
        s.split("j", [2, wj, 2, 2, 2, 4], ["j0", "jg", "jw", "jl", "jm", "jn", "je"]);
        let threads = [ks, "iw", "jw", "jl", "il", "jm", "im", "jn"];
        let registers = ["k0", "k1", "ig", "ie", "jg", "je"];
        s.reorder(present([split.part(), "i0", "j0"].into_iter().chain(threads).chain(registers)));
        bind_blocks(s, ("i0", up(spec.m, bm)), ("j0", up(spec.n, bn)));
        let own = if self.parts > 1 { "up" } else { "" };
        s.reverse_compute_at("C_r", "j0").made(present([us, own, "u", "v"]));
        s.split_all("u", [4, wi, 2, 2, 4], ["ug", "uw", "ul", "um", "ue"]);
        s.split_all("v", [2, wj, 2, 2, 2, 4], ["vg", "vw", "vl", "vm", "vn", "ve"]);
        let copying = [us, "uw", "vw", "vl", "ul", "vm", "um", "vn"];
        let registers = if crops { ["ue", "vg", "ve", ""] } else { ["ug", "ue", "vg", "ve"] };
        let turns = if crops { "ug" } else { "" };
        s.reorder(present([own, turns].into_iter().chain(copying).chain(registers)));
        for (loops, fused, between) in [(threads, "t", "p"), (copying, "z", "q")] {
            fuse_all(s, &present(loops), fused, between);
            s.bind(fused, Axis::ThreadX);
        }
        // Accumulators that pass through shared memory, a quarter of the rows at a time, or that are added up there, are stored as vectors.
        s.vectorize("ve").transform_layout("C_r", self.layout());
        if crops {
            store_rows(s, spec, turns, "", THREADS);
            // Rows of a warp that are four apart use different banks.
            s.storage_align("C_s", 0, bn, 4);
            self.padding(spec).crop(s);
        }
    }

    /// The layout of the accumulators: digits of their rows and columns, after the slice.
    fn layout(&self) -> IndexMap {
        let [ti, tj] = self.lanes();
        let both = |i: Index, j: Index| [digits(i, [4, ti, 4]), digits(j, [2, tj, 4])].concat();
        match self.division().dims() {
            [] => IndexMap::new(["i", "j"], |[i, j]| both(i, j)),
            [_] => IndexMap::new(["s", "i", "j"], |[s, i, j]| [vec![s], both(i, j)].concat()),
            _ => IndexMap::new(["s", "p", "i", "j"], |[s, p, i, j]| [vec![s, p], both(i, j)].concat()),
        }
    }

    /// Vectors that the threads of a slice have next to each other, along rows and columns.
    fn lanes(&self) -> [i64; 2] {
        [self.warps[0] * 4, self.warps[1] * 8]
    }

    /// An operand's tile in shared memory, and what a thread has of it in registers.
    fn stage(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        let (n, t, route) = (operand.name(), self.lanes()[operand as usize], self.routes[operand as usize]);
        let accumulators = self.division().sums();
        let fills_zeros = self.padding(spec).pads_operand(operand) && route != Route::Packed;
        let staging = Staging { operand, accumulators, source: &self.source(spec, operand), fills_zeros };
        let staged = staging.buffer();
        staging.read(s);
        staging.inline_padding(s);
        let [first, second, high, low, group] = ["0", "1", "h", "l", "g"].map(|end| format!("{n}{end}"));
        let [fused, outer, thread, element] = ["f", "o", "t", "v"].map(|end| format!("{n}{end}"));
        s.compute_at(staged, "k0").made([&first, &second]);
        // Eight words of k of four rows at a time are whole sectors of memory, and no two words of them meet in a bank. Where
        // a stage has more, 16 words of two rows are faster, although two meet (51.5 for 54.3 us at 1024x512x2048).
        match route {
            Route::Turned if self.slices > 1 => {
                s.split(&second, [(self.slices * self.terms).min(16)], [&high, &low]).reorder([&high, &first, &low]);
                s.fuse([&high, &first], &group).fuse([&group, &low], &fused);
                s.split(&fused, [THREADS], [&outer, &thread]);
            }
            Route::Turned => {
                s.fuse([&first, &second], &fused).split(&fused, [THREADS], [&outer, &thread]);
            }
            Route::Vectors | Route::Packed | Route::Pieces => {
                let vector = if route == Route::Pieces { operand.piece(spec) / 4 } else { 4 };
                let made = [outer, thread.clone(), element.clone()];
                divide_among_threads(s, [&first, &second], &fused, THREADS, vector, made);
                s.vectorize(&element);
            }
        }
        s.bind(&thread, Axis::ThreadX).copy_with(staged, CopyKind::CpAsync);
        let digits =
            |k: Index, w: Index| vec![k, w.clone().floordiv(4 * t), w.clone().floordiv(4).floormod(t), w.floormod(4)];
        match route {
            Route::Turned => {
                s.transform_layout(staged, IndexMap::new(["w", "k"], |[w, k]| digits(k, w)));
                s.storage_align(staged, 0, 8, 4);
            }
            Route::Vectors | Route::Packed | Route::Pieces => {
                s.transform_layout(staged, IndexMap::new(["k", "w"], |[k, w]| digits(k, w)));
            }
        }
        let (registers, loops) = (format!("{n}_r"), ["a", "b", "c", "d"].map(|end| format!("{n}{end}")));
        s.cache_read(accumulators, staged, Scope::Local, &registers).compute_at(&registers, "k1").made(&loops);
        s.vectorize(&loops[3]);
    }
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
    fn tiles_that_reach_beyond_c_leave_through_shared_memory() {
        let steps = |m, n| {
            let spec = GemmSpec::of(m, n, 4096, DType::F32, Layout::NN);
            Pipelined::new([2, 4], 1, [Route::Turned, Route::Vectors]).steps(&spec).to_string()
        };
        assert!(steps(4000, 4096).contains("C_pad shared -> C_s") && steps(4096, 4100).contains("C_pad shared -> C_s"));
        assert!(!steps(4096, 4096).contains("C_pad"));
    }

    #[test]
    fn other_types_and_chips_have_other_recipes() {
        let spec = |d| GemmSpec::of(4096, 4096, 4096, d, Layout::NN);
        assert_eq!(Pipelined::choose(&spec(DType::F64), &Target::sm_90a()), None);
        assert_eq!(Pipelined::choose(&spec(DType::F32), &Target::sm_75()), None);
    }
}
