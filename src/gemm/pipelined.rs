//! The recipe for products of f32 on chips with asynchronous copies: tiles of 64 to 128 elements a thread, copies one
//! or two tiles ahead in shared memory, and operands one step of k ahead in registers.
//!
//! A thread has vectors of four rows and of four columns of C, in one of seven shapes from 8 x 8 to 16 x 8, so that tiles have the sides that C
//! asks for. Four or eight warps of a block share its tile, or *slices* of them take turns along k, and
//! the block adds their accumulators up in shared memory, in a fixed order. Operands lie in shared memory with k outermost. One
//! whose rows run along k is transposed word by word on its way there; where that would cost more than a
//! pass of its own through device memory, it is packed. Copies of 4 or 8 bytes load rows that are not aligned to 16. A product that the
//! tiles do not divide is padded: with zeros that the copies fill in, or while an operand is packed; its epilogue stores tiles through
//! shared memory. Where there are few tiles, blocks divide k (split-K).
//!
//! What decides the speed is which registers the multiply-adds read: consecutive ones share an operand (`zigzag`), and
//! the lanes of a warp are dealt out to rows and columns by turns, so that two lanes in four read the same vector.

pub(super) mod cost;

use super::adapt::epilogue_in_copies;
use super::epilogue::{Accumulators, digits, row_vector, store_rows};
use super::grid::bind_blocks;
use super::operand::{Operand, up};
use super::packing::Packing;
use super::padding::Padding;
use super::split::{Split, combine_parts, combine_slices};
use super::staging::{STAGED, Staging, divide_among_threads, fuse_all, present, source};
use crate::ir::{Axis, CopyKind, Index, Note, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::{LANES, Target};
use crate::te::GemmSpec;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipelined {
    /// Warps of a slice, along rows and columns of C.
    pub warps: [i64; 2],
    /// Vectors of four rows and of four columns of C that a thread has.
    pub vectors: [i64; 2],
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
    /// Blocks that are resident on a multiprocessor: ptxas leaves registers for as many.
    pub resident: i64,
}

/// How an operand comes into shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// In vectors of 16 bytes.
    Vectors,
    /// In the pieces of 4 or 8 bytes that its rows are aligned to.
    Pieces,
    /// In words, transposed.
    Transposed,
    /// In vectors of 16 bytes, from workspace that a kernel of its own fills: transposed, padded or both.
    Packed,
}

/// Rows and columns of C of a warp whose threads have a vector of each.
const WARP: [i64; 2] = [16, 32];
/// Words behind the rows of a transposed operand in shared memory.
const PAD: i64 = 4;

impl Pipelined {
    /// The cheapest tiles; `None` where the product is not one of f32 alone, the chip has no asynchronous copies, a sum has fewer than 32
    /// terms, or half of the chip would have nothing to do.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Pipelined> {
        Pipelined::candidates(spec, target).first().map(|(_, p)| *p)
    }

    /// Bytes of shared memory of a block: the ring of stages, or the accumulators of all slices, which take its place. 16 bytes keep the
    /// rows of a transposed operand apart.
    pub fn shared(&self) -> i64 {
        let [bm, bn] = self.block();
        let ring = (bm + bn + 2 * PAD) * self.terms * self.slices * self.slots;
        let gathered = if self.slices > 1 { self.slices * bm * bn } else { 0 };
        4 * ring.max(gathered)
    }

    /// These tiles, slices and routes, with stages that suit them. Slices are few rounds of the loop: three short stages are
    /// written out as half the instructions of two long ones, which the cache of instructions does not hold in time, and
    /// copies have two rounds to arrive (1024x512x2048: 45.5 us for 51.4; 1000^3: 44.8 for 52.0).
    pub fn new(warps: [i64; 2], vectors: [i64; 2], slices: i64, routes: [Route; 2]) -> Pipelined {
        let (terms, slots) = if slices > 1 { (4, 3) } else { (8, 2) };
        Pipelined { warps, vectors, slices, parts: 1, terms, slots, routes, resident: 1 }
    }

    /// The tiles in words: `pipelined 128x256 of 16x8 a thread, split-K by 3, A transposed, B packed`.
    pub(super) fn name(&self) -> String {
        let ([m, n], [rows, columns]) = (self.block(), self.vectors.map(|v| 4 * v));
        let some = |number: i64, words: String| if number > 1 { words } else { String::new() };
        let slices = some(self.slices, format!(", {} slices", self.slices));
        let parts = some(self.parts, format!(", split-K by {}", self.parts));
        let route = |operand: Operand| match self.routes[operand as usize] {
            Route::Vectors => String::new(),
            Route::Pieces => format!(", {} in pieces", operand.name()),
            Route::Transposed => format!(", {} transposed", operand.name()),
            Route::Packed => format!(", {} packed", operand.name()),
        };
        let [a, b] = Operand::BOTH.map(route);
        format!("pipelined {m}x{n} of {rows}x{columns} a thread{slices}{parts}{a}{b}")
    }

    /// Rows and columns of C of a block.
    pub fn block(&self) -> [i64; 2] {
        [0, 1].map(|d| self.warps[d] * self.vectors[d] * WARP[d])
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        LANES * self.warps[0] * self.warps[1] * self.slices
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

    /// Elements of an operand that a thread copies at once: as many as its rows are aligned to, and as leave each thread a copy.
    fn vector(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        let most = match self.routes[operand as usize] {
            Route::Transposed => 1,
            Route::Pieces => operand.piece(spec) / 4,
            Route::Vectors | Route::Packed => 4,
        };
        let each = self.block()[operand as usize] * self.terms * self.slices / self.threads();
        most.min(1 << each.max(1).trailing_zeros())
    }

    /// Whether C passes through shared memory on its way out of registers, so that what is beyond it is not stored: stores at the edge, each
    /// under its own condition, would take the registers of a thread that holds a whole tile (160 to 2,500 bytes of 16 x 8 elements spilled).
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
            combine_slices(&mut s, [whole, written, "C_c"], "j0", own, [self.threads(), vector]);
            if self.parts == 1 {
                padding.crop(&mut s);
            }
        }
        if self.parts > 1 {
            combine_parts(&mut s, Accumulators::Result, &padding, self.parts);
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
        let ([wi, wj], [gi, gj], [bm, bn]) = (self.warps, self.vectors, self.block());
        let split = self.division();
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
        s.split("i", [gi, wi, 2, 2, 4], ["i0", "ig", "iw", "il", "im", "ie"]);
        s.split("j", [gj, wj, 2, 2, 2, 4], ["j0", "jg", "jw", "jl", "jm", "jn", "je"]);
        let threads = [ks, "iw", "jw", "jl", "il", "jm", "im", "jn"];
        let registers = ["k0", "k1", "ig", "ie", "jg", "je"];
        s.reorder(present([split.part(), "i0", "j0"].into_iter().chain(threads).chain(registers)));
        // Adjacent blocks share the larger operand, so that fewer of its reads come from device memory. Not measured by itself.
        let (rows, columns) = (("i0", up(spec.m, bm)), ("j0", up(spec.n, bn)));
        let [slow, fast] = if spec.m < spec.n { [columns, rows] } else { [rows, columns] };
        bind_blocks(s, slow, fast);
        if self.resident > 1 {
            s.launch("j0").min_blocks(self.resident);
        }
        let own = if self.parts > 1 { "up" } else { "" };
        s.reverse_compute_at("C_r", "j0").made(present([us, own, "u", "v"]));
        s.split_all("u", [gi, wi, 2, 2, 4], ["ug", "uw", "ul", "um", "ue"]);
        s.split_all("v", [gj, wj, 2, 2, 2, 4], ["vg", "vw", "vl", "vm", "vn", "ve"]);
        let copying = [us, "uw", "vw", "vl", "ul", "vm", "um", "vn"];
        let registers = if crops { ["ue", "vg", "ve", ""] } else { ["ug", "ue", "vg", "ve"] };
        let turns = if crops { "ug" } else { "" };
        s.reorder(present([own, turns].into_iter().chain(copying).chain(registers)));
        for (loops, fused, between) in [(threads, "t", "p"), (copying, "z", "q")] {
            fuse_all(s, &present(loops), fused, between);
            s.bind(fused, Axis::ThreadX);
        }
        // Accumulators that pass through shared memory, a vector of rows of each thread at a time, or that are added up there, are stored as vectors.
        s.vectorize("ve").transform_layout("C_r", self.layout());
        if crops {
            store_rows(s, spec, turns, "", self.threads());
            // Rows of a warp that are four apart use different banks.
            s.storage_align("C_s", 0, bn, 4);
            self.padding(spec).crop(s);
        }
    }

    /// The layout of the accumulators: digits of their rows and columns, after the slice.
    fn layout(&self) -> IndexMap {
        let ([ti, tj], [gi, gj]) = (self.lanes(), self.vectors);
        let both = |i: Index, j: Index| [digits(i, [gi, ti, 4]), digits(j, [gj, tj, 4])].concat();
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
        let staging = Staging {
            operand,
            buffer: STAGED[operand as usize],
            accumulators,
            source: &self.source(spec, operand),
            fills_zeros,
        };
        let staged = staging.buffer;
        staging.read(s);
        staging.inline_padding(s);
        let [first, second, high, low, group] = ["0", "1", "h", "l", "g"].map(|end| format!("{n}{end}"));
        let [fused, outer, thread, element] = ["f", "o", "t", "v"].map(|end| format!("{n}{end}"));
        s.compute_at(staged, "k0").made([&first, &second]);
        // Eight words of k of four rows at a time are whole sectors of memory, and no two words of them meet in a bank. Where
        // a stage has more, 16 words of two rows are faster, although two meet (51.5 for 54.3 us at 1024x512x2048).
        match route {
            Route::Transposed if self.slices > 1 => {
                s.split(&second, [(self.slices * self.terms).min(16)], [&high, &low]).reorder([&high, &first, &low]);
                s.fuse([&high, &first], &group).fuse([&group, &low], &fused);
                s.split(&fused, [self.threads()], [&outer, &thread]);
            }
            Route::Transposed => {
                s.fuse([&first, &second], &fused).split(&fused, [self.threads()], [&outer, &thread]);
            }
            Route::Vectors | Route::Packed | Route::Pieces => {
                let vector = self.vector(spec, operand);
                let made = [outer, thread.clone(), element.clone()];
                let mut loops = [&first, &second];
                if self.vectors[operand as usize].count_ones() > 1 {
                    // Indices then divide by powers of two.
                    s.split(&second, [4 * t], [&high, &low]).reorder([&high, &first, &low]);
                    s.fuse([&high, &first], &group);
                    loops = [&group, &low];
                }
                divide_among_threads(s, loops.map(String::as_str), &fused, self.threads(), vector, made);
                s.vectorize(&element);
            }
        }
        s.bind(&thread, Axis::ThreadX).copy_with(staged, CopyKind::CpAsync);
        let digits =
            |k: Index, w: Index| vec![k, w.clone().floordiv(4 * t), w.clone().floordiv(4).floormod(t), w.floormod(4)];
        match route {
            Route::Transposed => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::te::Layout;

    const WHOLE: [i64; 2] = [4, 2];

    fn all(m: i64, n: i64, k: i64, layout: Layout, target: Target) -> impl Iterator<Item = Pipelined> {
        Pipelined::candidates(&GemmSpec::of(m, n, k, DType::F32, layout), &target).into_iter().map(|(_, p)| p)
    }

    fn choice(m: i64, n: i64, k: i64, layout: Layout) -> Option<([i64; 2], i64, [Route; 2])> {
        all(m, n, k, layout, Target::sm_90a()).next().map(|p| (p.block(), p.slices, p.routes))
    }

    #[test]
    fn the_turned_operand_is_on_the_short_side_or_packed() {
        use Route::{Packed, Transposed, Vectors};
        assert_eq!(choice(2048, 2048, 2048, Layout::NN), Some(([128, 256], 1, [Transposed, Vectors])));
        assert_eq!(choice(2048, 2048, 2048, Layout::TT), Some(([256, 128], 1, [Vectors, Transposed])));
        assert_eq!(choice(4096, 4096, 4096, Layout::NT), Some(([128, 256], 1, [Packed, Packed])));
        assert_eq!(choice(4096, 4096, 4096, Layout::TN).map(|c| c.2), Some([Vectors, Vectors]));
    }

    #[test]
    fn few_tiles_share_their_sums_out() {
        assert_eq!(choice(1024, 1024, 1024, Layout::NN).map(|c| (c.0, c.1)), Some(([64, 128], 4)));
        assert_eq!(choice(1024, 512, 2048, Layout::TT).map(|c| (c.0, c.1)), Some(([64, 64], 8)));
        assert!(all(4608, 128, 9280, Layout::TN, Target::sm_90a()).next().is_some_and(|p| p.parts > 1));
        // 256 terms are too few for parts of k, and the tiles of C fewer than half of the 132 multiprocessors.
        assert_eq!(choice(64, 64, 256, Layout::NN), None);
    }

    #[test]
    fn tiles_have_the_sides_that_a_result_asks_for() {
        // Seven tiles of 32 rows have 224, five of 48 have 240, four of 64 have 256.
        let sides: Vec<i64> =
            all(209, 13040, 7421, Layout::TN, Target::sm_90a()).take(8).map(|p| p.block()[0]).collect();
        assert!(sides.iter().all(|rows| up(209, *rows) * rows <= 240), "{sides:?}");
        // A tile of 256 rows would lie beyond C for the most part.
        for p in all(70, 9000, 2048, Layout::NN, Target::sm_90a()) {
            assert!(p.block()[0] <= 128, "{p:?}");
        }
    }

    #[test]
    fn copies_of_unaligned_rows_are_pieces_or_packed() {
        use Route::{Packed, Pieces, Transposed, Vectors};
        let routes = |m, n, k, layout| all(m, n, k, layout, Target::sm_90a()).map(|p| p.routes).collect::<Vec<_>>();
        let odd = routes(4095, 4097, 4099, Layout::TN);
        assert!([[Pieces, Pieces], [Pieces, Packed], [Packed, Packed]].iter().all(|r| odd.contains(r)));
        let even = routes(4096, 4096, 4096, Layout::TN);
        assert!(even.iter().all(|r| *r == [Vectors, Vectors]));
        assert!(
            routes(1000, 1000, 1000, Layout::NN)
                .iter()
                .all(|r| r[1] == Vectors && [Transposed, Packed].contains(&r[0]))
        );
    }

    #[test]
    fn every_block_has_whole_copies_and_room() {
        for (target, [m, n, k]) in
            [Target::sm_80(), Target::sm_86(), Target::sm_89(), Target::sm_90a()].into_iter().flat_map(|target| {
                [[1024, 1024, 1024], [4095, 4097, 4099], [33, 5000, 777], [4608, 128, 9280]].map(|size| (target, size))
            })
        {
            for layout in Layout::ALL {
                let spec = GemmSpec::of(m, n, k, DType::F32, layout);
                for p in all(m, n, k, layout, target) {
                    assert!(p.shared() <= i64::from(target.limits.shared_optin) && p.resident >= 1, "{p:?}");
                    assert!([128, 256].contains(&p.threads()), "{p:?}");
                    for operand in Operand::BOTH {
                        let elements = p.block()[operand as usize] * p.terms * p.slices;
                        assert_eq!(elements % (p.threads() * p.vector(&spec, operand)), 0, "{p:?} {operand:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_that_reach_beyond_c_leave_through_shared_memory() {
        let steps = |m, n| {
            let spec = GemmSpec::of(m, n, 4096, DType::F32, Layout::NN);
            Pipelined::new([2, 4], WHOLE, 1, [Route::Transposed, Route::Vectors]).steps(&spec).to_string()
        };
        assert!(steps(4000, 4096).contains("C_pad shared -> C_s") && steps(4096, 4100).contains("C_pad shared -> C_s"));
        assert!(!steps(4096, 4096).contains("C_pad"));
    }

    #[test]
    fn blocks_next_to_each_other_share_the_larger_operand() {
        let bound = |m, n| {
            let spec = GemmSpec::of(m, n, 4096, DType::F32, Layout::NN);
            let steps = Pipelined::new([2, 4], WHOLE, 1, [Route::Transposed, Route::Vectors]).steps(&spec).to_string();
            steps.contains("bind i0 blockIdx.x")
        };
        assert!(bound(256, 8192) && !bound(8192, 256) && !bound(4096, 4096));
    }

    #[test]
    fn other_types_and_chips_have_other_recipes() {
        let spec = |d| GemmSpec::of(4096, 4096, 4096, d, Layout::NN);
        assert_eq!(Pipelined::choose(&spec(DType::F64), &Target::sm_90a()), None);
        assert_eq!(Pipelined::choose(&spec(DType::F32), &Target::sm_75()), None);
    }
}
