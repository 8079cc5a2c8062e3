//! The recipe for products whose C has few rows or few columns: each element of the large operand is read once, straight into registers,
//! and multiplied with all of the few rows or columns of the small operand. The bytes in flight decide the speed.
//!
//! *Along k*: the large operand is K-major. Neighbouring threads of a group load neighbouring vectors of a row, so that loads are coalesced; a
//! group has several rows, and shuffles add the accumulators of its threads. *Across*: the large operand is MN-major. Neighbouring threads
//! load neighbouring columns, each group sums over a slice of k, and the block adds the slices in shared memory (sliced-K). Both may divide k
//! among blocks (split-K). All sums are added in a fixed order.
//!
//! Where k ends inside the run of terms that a thread reads, or rows of the small operand have no vectors, a thread reads each element of
//! the small operand by itself under a condition. Then the block may stage its part of the small operand in shared memory once, and threads
//! read vectors of that. Vectors of rows that begin between words are read in aligned words, or element by element.

mod cost;

use super::grid::{bind_batch, rows_of};
use super::operand::{Operand, WORD, up};
use super::padding::Padding;
use super::parts::Sums;
use super::simt::MIN_BLOCKS;
use super::staging::present;
use crate::ir::{Axis, Index, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemv {
    /// Threads of a group, which load neighbouring vectors of the large operand (coalesced).
    pub lanes: i64,
    /// Groups of a block: they have other rows along k, other slices of k across.
    pub groups: i64,
    /// Elements of a row that a thread loads at once.
    pub vector: i64,
    /// Vectors that a thread loads of each of its rows before it multiplies; across, those of so many terms.
    pub unroll: i64,
    /// Rows of the large operand of a group along k; one across.
    pub rows: i64,
    /// Parts of k, each summed by a block of its own (split-K).
    pub parts: i64,
    /// The threads of a block copy the block's part of the small operand to shared memory, with the zeros beyond its end.
    pub staged: bool,
}

/// The most rows or columns of the small operand: the accumulators of as many rows of the large one are in registers.
pub(super) const FEW: i64 = 16;

/// The operand with more rows or columns of C.
fn large(spec: &GemmSpec) -> Operand {
    if spec.m > spec.n { Operand::A } else { Operand::B }
}

/// Rows or columns of C of the other operand.
fn few(spec: &GemmSpec) -> i64 {
    large(spec).other().rows(spec)
}

impl Gemv {
    /// The cheapest for the chip's device; `None` where C has many rows and many columns, or elements are smaller than a byte.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Gemv> {
        Gemv::candidates(spec, target).first().map(|(_, gemv)| *gemv)
    }

    /// The recipe's choice in words.
    pub(super) fn name(&self) -> String {
        let Gemv { lanes, groups, vector, unroll, rows, parts, staged } = *self;
        let split = if parts > 1 { format!(", split-K by {parts}") } else { String::new() };
        let small = if staged { ", staged small operand" } else { "" };
        format!("gemv of {groups}x{lanes} threads, {rows} rows of {unroll} vectors of {vector}{split}{small}")
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        self.lanes * self.groups
    }

    /// Rows of the large operand of a block, and terms of one of its k iterations.
    fn tile(&self, spec: &GemmSpec) -> [i64; 2] {
        match large(spec).along_k(spec) {
            true => [self.groups * self.rows, self.unroll * self.lanes * self.vector],
            false => [self.lanes * self.vector, self.groups * self.unroll],
        }
    }

    fn padding(&self, spec: &GemmSpec) -> Padding {
        let [rows, terms] = self.tile(spec);
        let block = if large(spec) == Operand::A { [rows, 1] } else { [1, rows] };
        Padding::new(spec, block, terms * self.parts)
    }

    /// The steps, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let (mut s, sums) = (Steps::new(), Sums::new(spec, self.padding(spec), self.parts));
        sums.divide(&mut s);
        match large(spec).along_k(spec) {
            true => self.along_k(&mut s, spec, &sums),
            false => self.across(&mut s, spec, &sums),
        }
        sums.finish(&mut s);
        bind_batch(&mut s, spec);
        s
    }

    /// Binds the blocks along the large operand's rows of C.
    fn bind_blocks(&self, s: &mut Steps, spec: &GemmSpec) {
        let blocks = up(large(spec).rows(spec), self.tile(spec)[0]);
        let (name, _) = rows_of(s, spec, ("l0", blocks));
        s.bind(name, Axis::BlockX).launch(name).min_blocks(MIN_BLOCKS);
    }

    /// Lanes along k: each has its own terms, and shuffles add what they have.
    fn along_k(&self, s: &mut Steps, spec: &GemmSpec, sums: &Sums) {
        let Gemv { lanes, groups, vector, unroll, rows, .. } = *self;
        let [many, other] = loops(spec);
        let stored = sums.keep_in_registers(s);
        s.split(many, [groups, rows], ["l0", "lg", "lr"]).split("k", [unroll, lanes, vector], ["k0", "ku", "kl", "kv"]);
        s.reorder(present([sums.part(), "l0", "lg", "k0", "ku", other, "lr", "kl", "kv"]));
        self.bind_blocks(s, spec);
        s.bind("lg", Axis::ThreadY).bind("kl", Axis::ThreadX);
        s.reverse_compute_at(stored, "lg").made(present([sums.leading("c_p"), "c_0", "c_1"]));
        for operand in Operand::BOTH {
            let [batch, row, term, u, t, v, e, w] =
                ["b", "r", "k", "u", "t", "v", "e", "w"].map(|end| name(operand, end));
            self.read(s, spec, sums, sums.block(), operand);
            place(s, spec, operand, [&batch, &row, &term]);
            s.split_all(&term, [unroll, lanes, vector], [&u, &t, &v]).unroll(&u).bind(&t, Axis::ThreadX);
            match operand.along_k(spec) {
                true => s.unroll(&row).vectorize(&v),
                false => self.small_vectors(s, spec, [&v, &row], [&e, &w]),
            };
            s.transform_layout(&buffer(operand), self.lanes_apart(spec, operand));
        }
        self.stage(s, spec);
        ["ku", other, "lr", "kv"].into_iter().for_each(|l| _ = s.unroll(l));
    }

    /// The layout of an operand in registers: the digit of k that numbers lanes is a dimension of its own.
    fn lanes_apart(&self, spec: &GemmSpec, operand: Operand) -> IndexMap {
        let Gemv { lanes, vector, .. } = *self;
        let digits = |k: Index| {
            let round = k.clone().floordiv(lanes * vector);
            [round, k.clone().floordiv(vector).floormod(lanes), k.floormod(vector)]
        };
        match (spec.batch.is_some(), operand.along_k(spec)) {
            (false, true) => IndexMap::new(["n", "k"], |[n, k]| std::iter::once(n).chain(digits(k)).collect()),
            (false, false) => IndexMap::new(["k", "n"], |[k, n]| digits(k).into_iter().chain([n]).collect()),
            (true, true) => IndexMap::new(["b", "n", "k"], |[b, n, k]| [b, n].into_iter().chain(digits(k)).collect()),
            (true, false) => {
                let all = |[b, k, n]: [Index; 3]| std::iter::once(b).chain(digits(k)).chain([n]).collect();
                IndexMap::new(["b", "k", "n"], all)
            }
        }
    }

    /// Lanes along C: groups of threads have slices of k.
    fn across(&self, s: &mut Steps, spec: &GemmSpec, sums: &Sums) {
        let Gemv { lanes, groups, vector, unroll, .. } = *self;
        let [many, other] = loops(spec);
        let slices = groups > 1;
        let slice = if slices { "ks" } else { "" };
        let (summed, stored) = match slices {
            true => {
                s.split("k", [groups, unroll], ["k0", "ks", "ku"]).rfactor(sums.block(), "ks");
                s.made(present(["slices", sums.leading("tp"), "ti", "tj", "ts"])).set_scope("slices", Scope::Shared);
                s.cache_write("slices", "slices", Scope::Local, "S_local");
                ("slices", "S_local")
            }
            false => {
                let stored = sums.keep_in_registers(s);
                s.split("k", [unroll], ["k0", "ku"]);
                (sums.block(), stored)
            }
        };
        s.split(many, [lanes, vector], ["l0", "ll", "lv"]);
        s.reorder(present([sums.part(), "l0", slice, "ll", "k0", "ku", other, "lv"]));
        self.bind_blocks(s, spec);
        s.bind("ll", Axis::ThreadX);
        if slices {
            s.bind("ks", Axis::ThreadY);
        }
        s.reverse_compute_at(stored, "ll").made(present([
            if slices { "us" } else { "" },
            sums.leading("c_p"),
            "c_0",
            "c_1",
        ]));
        for operand in Operand::BOTH {
            let [batch, row, term, e, w] = ["b", "r", "k", "e", "w"].map(|end| name(operand, end));
            self.read(s, spec, sums, summed, operand);
            place(s, spec, operand, [&batch, &row, &term]);
            match operand == large(spec) {
                true => s.unroll(&term).vectorize(&row),
                false if operand.along_k(spec) => {
                    s.unroll(&row);
                    vectors(s, &[&term], unroll, [&e, &w], self.small_vector(spec))
                }
                false => self.small_vectors(s, spec, [&term, &row], [&e, &w]),
            };
        }
        self.stage(s, spec);
        s.decompose_reduction(summed, "k0");
        ["ku", other, "lv"].into_iter().for_each(|l| _ = s.unroll(l));
        if slices {
            self.combine(s, spec, sums);
        }
    }

    /// Copies what a block reads of an operand to registers, of the small operand from shared memory if it is staged.
    fn read(&self, s: &mut Steps, spec: &GemmSpec, sums: &Sums, block: &str, operand: Operand) {
        if self.staged && operand != large(spec) {
            sums.read(s, block, operand, Scope::Shared, &staged(operand));
            s.cache_read(block, &staged(operand), Scope::Local, &buffer(operand));
        } else {
            sums.read(s, block, operand, Scope::Local, &buffer(operand));
        }
    }

    /// Shares the copy of the small operand to shared memory out to the threads of a block, adjacent elements to adjacent threads.
    fn stage(&self, s: &mut Steps, spec: &GemmSpec) {
        if !self.staged {
            return;
        }
        let batch = if spec.batch.is_some() { "sb" } else { "" };
        s.compute_at(&staged(large(spec).other()), "l0").made(present([batch, "s0", "s1"])).fuse(["s0", "s1"], "s");
        match self.groups > 1 {
            true => s.split("s", [self.groups, self.lanes], ["sr", "sg", "sl"]).bind("sg", Axis::ThreadY),
            false => s.split("s", [self.lanes], ["sr", "sl"]),
        };
        s.bind("sl", Axis::ThreadX);
    }

    /// Loads a run of terms of the small operand, whose rows run along C: in vectors of the run, or of each row.
    fn small_vectors<'a>(
        &self,
        s: &'a mut Steps,
        spec: &GemmSpec,
        [term, row]: [&str; 2],
        made: [&str; 2],
    ) -> &'a mut Steps {
        let (wide, few) = (self.small_vector(spec), few(spec));
        match self.separates_rows(spec) {
            true => vectors(s.unroll(term), &[row], few, made, wide),
            false => vectors(s, &[term, row], self.run(spec) * few, made, wide),
        }
    }

    /// Consecutive terms of the small operand that a thread reads.
    fn run(&self, spec: &GemmSpec) -> i64 {
        if large(spec).along_k(spec) { self.vector } else { self.unroll }
    }

    /// Whether k ends inside a run of terms that a thread reads under a condition.
    fn ends_inside(&self, spec: &GemmSpec) -> bool {
        !self.staged && spec.k % self.run(spec) != 0
    }

    /// Whether that condition separates rows of several elements, which are one run in memory.
    fn separates_rows(&self, spec: &GemmSpec) -> bool {
        few(spec) > 1 && self.ends_inside(spec)
    }

    /// Elements of the small operand that a thread loads at once.
    fn small_vector(&self, spec: &GemmSpec) -> i64 {
        let small = large(spec).other();
        let own = |elements: i64| 1 << elements.trailing_zeros().min(6);
        let run = match (small.along_k(spec), large(spec).along_k(spec)) {
            (true, true) => self.vector,
            (true, false) if self.staged => own(self.unroll),
            (true, false) => own(self.unroll).min(aligned(spec, small)),
            (false, _) if self.separates_rows(spec) => own(few(spec)).min(aligned(spec, small)),
            (false, _) if self.ends_inside(spec) => own(self.run(spec)).min(own(spec.k)),
            (false, _) => own(self.run(spec) * few(spec)),
        };
        run.min(widest(spec, small))
    }

    /// Adds the slices of a block: all threads share the elements out where they divide them, else the lanes of one group.
    fn combine(&self, s: &mut Steps, spec: &GemmSpec, sums: &Sums) {
        let copy = sums.keep_in_registers(s);
        s.reverse_compute_at(sums.block(), "l0")
            .made(present([sums.leading("xp"), "xi", "xj"]))
            .fuse(["xi", "xj"], "x");
        match self.all_combine(spec) {
            true => s.split("x", [self.groups, self.lanes], ["x0", "xg", "xl"]).bind("xg", Axis::ThreadY),
            false => s.split("x", [self.lanes], ["x0", "xl"]),
        };
        s.bind("xl", Axis::ThreadX);
        s.reverse_compute_at(copy, "xl").made(present([sums.leading("yp"), "yi", "yj"])).unroll("ts");
    }

    /// Whether all threads of a block add slices.
    fn all_combine(&self, spec: &GemmSpec) -> bool {
        self.vector * few(spec) % self.groups == 0
    }
}

/// Copies an operand to registers under loop `k0`; the loops are those over the batch, its rows and its terms.
fn place(s: &mut Steps, spec: &GemmSpec, operand: Operand, [batch, row, term]: [&str; 3]) {
    let order = if operand.along_k(spec) { [row, term] } else { [term, row] };
    let batch = if spec.batch.is_some() { batch } else { "" };
    s.compute_at(&buffer(operand), "k0").made(present([batch, order[0], order[1]]));
}

/// The loop over rows of C of the large operand, and that of the small one.
fn loops(spec: &GemmSpec) -> [&'static str; 2] {
    if large(spec) == Operand::A { ["i", "j"] } else { ["j", "i"] }
}

fn name(operand: Operand, end: &str) -> String {
    format!("{}{end}", operand.lower())
}

/// An operand in registers.
fn buffer(operand: Operand) -> String {
    format!("{}_l", operand.name())
}

/// An operand in shared memory.
fn staged(operand: Operand) -> String {
    format!("{}_s", operand.name())
}

/// Elements of 16 bytes.
fn widest(spec: &GemmSpec, operand: Operand) -> i64 {
    128 / i64::from(operand.dtype(spec).bits())
}

/// The largest power of two that divides the rows of an operand in memory.
fn aligned(spec: &GemmSpec, operand: Operand) -> i64 {
    1 << operand.multiple(spec).trailing_zeros().min(6)
}

/// Elements of a word; 1 where they are wider.
fn word(spec: &GemmSpec, operand: Operand) -> i64 {
    (8 * WORD / i64::from(operand.dtype(spec).bits())).max(1)
}

/// Loads loops over neighbouring elements, so many in all, in vectors of at most `widest`.
fn vectors<'a>(
    s: &'a mut Steps,
    loops: &[&str],
    elements: i64,
    [fused, vector]: [&str; 2],
    widest: i64,
) -> &'a mut Steps {
    let wide = widest.min(1 << elements.trailing_zeros().min(6));
    let whole = match loops {
        [one] => one,
        several => {
            s.fuse(several, fused);
            fused
        }
    };
    let outer = format!("{vector}o");
    s.split_all(whole, [elements / wide, wide], [&*outer, vector]).unroll(&outer).vectorize(vector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::Gemm;
    use crate::te::Layout;

    fn spec(m: i64, n: i64, k: i64, dtype: DType, layout: Layout) -> GemmSpec {
        *Gemm::new(m, n, k).of(dtype).layout(layout).spec()
    }

    fn chosen(m: i64, n: i64, k: i64, dtype: DType, layout: Layout) -> Gemv {
        Gemv::choose(&spec(m, n, k, dtype, layout), &Target::sm_90a()).unwrap()
    }

    #[test]
    fn few_rows_or_columns_and_whole_bytes_are_needed() {
        let none = |m, n, dtype| Gemv::choose(&spec(m, n, 4096, dtype, Layout::NT), &Target::sm_90a()).is_none();
        assert!(none(17, 4096, DType::F16) && none(4096, 17, DType::F16) && none(1, 4096, DType::S4));
        assert!(!none(16, 4096, DType::F16) && !none(4096, 1, DType::S8) && !none(1, 1, DType::F64));
    }

    #[test]
    fn rows_are_read_in_vectors_as_wide_as_their_alignment() {
        let vector = |k, dtype| chosen(1, 4096, k, dtype, Layout::NT).vector;
        assert_eq!([vector(4096, DType::F16), vector(4100, DType::F16), vector(4099, DType::F16)], [8, 4, 1]);
        assert_eq!([vector(4096, DType::F32), vector(4096, DType::S8), vector(4096, DType::F64)], [4, 16, 2]);
    }

    #[test]
    fn enough_bytes_are_in_flight() {
        let device = Target::sm_90a().device();
        let needed = device.memory_bytes_per_cycle() * f64::from(device.memory_latency_cycles);
        for (layout, dtype) in Layout::ALL.into_iter().flat_map(|l| [DType::F16, DType::F32, DType::S8].map(|d| (l, d)))
        {
            for (m, n) in [(1, 8192), (8192, 2)] {
                let spec = spec(m, n, 8192, dtype, layout);
                let gemv = Gemv::choose(&spec, &Target::sm_90a()).unwrap();
                let work = gemv.work(&spec, &Target::sm_90a(), &device).unwrap();
                let resident = work.tiles.min(work.resident * i64::from(device.multiprocessors));
                assert!(resident as f64 * work.flight.bytes >= needed, "{spec:?}: {gemv:?}");
            }
        }
    }

    #[test]
    fn a_product_and_its_transpose_have_the_same_shape() {
        for (layout, transposed) in [(Layout::NT, Layout::NT), (Layout::NN, Layout::TT), (Layout::TN, Layout::TN)] {
            let [one, other] =
                [chosen(3, 4096, 1000, DType::F16, layout), chosen(4096, 3, 1000, DType::F16, transposed)];
            assert_eq!(one, other, "{layout:?}");
        }
    }

    /// Loads of the small operand to registers in the Lowered program: the lanes of each, in the order of the program.
    fn small_loads(gemm: &Gemm, gemv: Gemv) -> Vec<i64> {
        let target = Target::sm_80();
        let product = crate::gemm::Product::of_gemm(gemm).unwrap();
        let made = crate::gemm::schedule(&product, &target, gemv.steps(gemm.spec())).unwrap();
        let lowered = made.scheduled().and_then(|f| crate::lower::lower(&f, &target)).unwrap();
        let func = &lowered.kernels[0].func;
        let small = buffer(large(gemm.spec()).other());
        let mut lanes = Vec::new();
        crate::ir::visit::walk(&func.body, &mut |stmt| {
            if let crate::ir::Stmt::Store(store) = stmt
                && func.buffers[store.buffer.0 as usize].name == small
            {
                lanes.push(i64::from(store.lanes));
            }
        });
        lanes
    }

    #[test]
    fn the_small_operand_is_read_in_the_vectors_that_the_model_counts() {
        let mut widened = 0;
        for (layout, [few, many, k]) in Layout::ALL
            .into_iter()
            .flat_map(|l| [[3, 70, 131], [4, 70, 130], [6, 70, 132], [1, 70, 130], [5, 70, 128]].map(|s| (l, s)))
        {
            for ([m, n], dtype) in [([few, many], DType::F16), ([many, few], DType::S8), ([few, many], DType::F32)] {
                let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
                let vector = shapes_of(&gemm);
                let plain = Gemv { lanes: 16, groups: 2, vector, unroll: 4, rows: 1, parts: 2, staged: false };
                let staged = Gemv { staged: true, ..plain };
                widened += i64::from(staged.small_vector(gemm.spec()) > plain.small_vector(gemm.spec()));
                for gemv in [plain, staged] {
                    let [loads, vector] = [small_loads(&gemm, gemv), vec![gemv.small_vector(gemm.spec())]];
                    assert_eq!(loads, vector, "{gemm:?} {gemv:?}");
                }
            }
        }
        assert!(widened > 10, "{widened}");
    }

    /// The widest vector that rows of the large operand are aligned to.
    fn shapes_of(gemm: &Gemm) -> i64 {
        let spec = gemm.spec();
        widest(spec, large(spec)).min(aligned(spec, large(spec)))
    }

    #[test]
    fn a_small_operand_is_staged_where_k_ends_inside_a_run() {
        let staged = |m, n, k| {
            let all = Gemv::candidates(&spec(m, n, k, DType::F16, Layout::TN), &Target::sm_90a());
            all.iter().any(|(_, gemv)| gemv.staged)
        };
        assert!(staged(3, 700, 4999) && staged(3, 700, 4998) && !staged(3, 700, 5000) && !staged(1, 700, 5000));
        assert!(chosen(3, 686, 4955, DType::F16, Layout::TN).staged);
    }

    #[test]
    fn every_candidate_of_a_small_product_lowers() {
        for (layout, [m, n, k]) in
            Layout::ALL.into_iter().flat_map(|l| [[2, 67, 130], [96, 3, 64], [1, 9, 999]].map(|s| (l, s)))
        {
            let one = Gemm::new(m, n, k).of(DType::F16).layout(layout);
            let gemm = if k == 64 { one.batch(3) } else { one };
            let all = Gemv::candidates(gemm.spec(), &Target::sm_80());
            assert!(!all.is_empty());
            for (_, gemv) in all.iter().step_by(all.len().div_ceil(12)) {
                let made = crate::gemm::schedule(
                    &crate::gemm::Product::of_gemm(&gemm).unwrap(),
                    &Target::sm_80(),
                    gemv.steps(gemm.spec()),
                )
                .unwrap();
                let lowered = made.scheduled().and_then(|f| crate::lower::lower(&f, &Target::sm_80()));
                assert!(lowered.is_ok(), "{gemv:?} of {gemm:?}: {}", lowered.unwrap_err());
            }
        }
    }
}
