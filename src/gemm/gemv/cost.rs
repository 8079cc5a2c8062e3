//! The shapes that a product with few rows or columns may have, and what it asks of a device in each of them.

use super::{FEW, Gemv, aligned, few, large, widest, word};
use crate::gemm::grid::MOST_BLOCKS;
use crate::gemm::operand::{Operand, up};
use crate::gemm::parts::{Sums, numbers};
use crate::gemm::simt::cost::{SHARED, memory_bytes, multiply_adds};
use crate::gemm::tuning;
use crate::gemm::work::{ACCESS, Flight, Work, ranked};
use crate::target::{Device, LANES, SCHEDULERS, Target};
use crate::te::GemmSpec;

/// Lanes of a group, the groups of a block, the rows of a group, and the vectors of a row in flight.
const LANE_NUMBERS: [i64; 6] = [32, 64, 128, 256, 16, 8];
const GROUPS: [i64; 6] = [1, 2, 4, 8, 16, 32];
const ROWS: [i64; 4] = [1, 2, 4, 8];
const UNROLLS: [i64; 4] = [1, 2, 4, 8];
/// Threads of a block.
const THREADS: std::ops::RangeInclusive<i64> = 32..=256;
/// Words of 32 bits of a thread for accumulators, and for the elements that it multiplies at a time.
const MOST_RESULTS: i64 = 64;
const MOST_OPERANDS: i64 = 96;
/// Multiply-adds of an iteration that are written out at most: more do not stay in the cache of instructions.
const MOST_WRITTEN: i64 = 1024;

impl Gemv {
    /// All that suit the GEMM and fit on the chip, with the cycles that the model takes them to cost, the cheapest first.
    pub(in crate::gemm) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<(f64, Gemv)> {
        if few(spec) > FEW || spec.a.bits().min(spec.b.bits()) < 8 {
            return Vec::new();
        }
        let device = target.device();
        let mut all = Vec::new();
        for shape in shapes(spec) {
            for parts in numbers(spec, shape.tile(spec)[1]) {
                let gemv = Gemv { parts, ..shape };
                let staged = Gemv { staged: true, ..gemv };
                let widens = staged.small_vector(spec) > gemv.small_vector(spec) || gemv.realigns_small(spec);
                let both = [Some(gemv), widens.then_some(staged)].into_iter().flatten();
                let works: Vec<_> = both.filter_map(|g| Some((g.work(spec, target, &device)?, g))).collect();
                let filled = |(work, _): &(Work, Gemv)| work.tiles > work.resident * i64::from(device.multiprocessors);
                // More parts only add sums to add.
                let enough = works.first().is_some_and(filled);
                all.extend(works);
                if enough {
                    break;
                }
            }
        }
        ranked(all, tuning::SIMT_ALIKE, &device)
    }

    /// What the GEMM asks of the device; `None` where a block does not fit.
    pub(in crate::gemm) fn work(&self, spec: &GemmSpec, target: &Target, device: &Device) -> Option<Work> {
        let [rows, terms] = self.tile(spec);
        let shared = self.shared(spec);
        let threads = u32::try_from(self.threads()).ok()?;
        let registers = u32::try_from(self.registers(spec)).ok().filter(|_| self.has_few_results(spec))?;
        let resident = i64::from(target.occupancy(threads, registers, u32::try_from(shared).ok()?).blocks);
        let tiles = up(large(spec).rows(spec), rows).saturating_mul(spec.products()).saturating_mul(self.parts);
        if resident == 0 || shared > SHARED || tiles > MOST_BLOCKS || self.words(spec) > MOST_OPERANDS {
            return None;
        }
        let warps = up(self.threads(), LANES) as f64;
        let lanes = warps * LANES as f64;
        let mma = lanes * (self.results(spec) * self.depth(spec)) as f64 / multiply_adds(spec, device);
        let converted = lanes * (self.conversions(spec) + self.shifts(spec)) / f64::from(device.integer_lanes);
        let issue = warps * self.instructions(spec) / SCHEDULERS as f64 / tuning::SIMT_ISSUE_SHARE;
        let own = issue.max(mma + converted) * (SCHEDULERS as f64 / warps).min(1.0);
        let [read, other] = self.bytes(spec);
        let passes = if self.shifts_vectors(spec, large(spec)) { self.passes(spec, large(spec)) } else { 1.0 };
        Some(Work {
            mma: mma + converted,
            issue,
            // A warp loads, waits, and multiplies.
            latency: f64::from(device.memory_latency_cycles) + own,
            shared_bytes: tuning::GEMV_L1 * (warps * self.small_bytes(spec) + self.threads() as f64 * read * passes),
            l2_bytes: self.threads() as f64 * read + other,
            l2_share: tuning::GEMV_L2_SHARE,
            iterations: up(spec.k, terms * self.parts) as f64,
            prologue: tuning::GEMV_EDGES + self.staging(spec, device),
            epilogue: warps * self.sums(spec) / SCHEDULERS as f64,
            tiles,
            resident,
            memory_bytes: memory_bytes(spec) * (ACCESS / self.run_bytes(spec)).max(1.0),
            flight: Flight::of(self.threads() as f64 * read),
            passes: Sums::new(spec, self.padding(spec), self.parts).passes(),
            ..Work::NONE
        })
    }

    /// Whether lanes are along k.
    fn is_along_k(spec: &GemmSpec) -> bool {
        large(spec).along_k(spec)
    }

    /// Accumulators of a thread.
    fn results(&self, spec: &GemmSpec) -> i64 {
        few(spec) * if Self::is_along_k(spec) { self.rows } else { self.vector }
    }

    /// Terms that a thread multiplies in an iteration.
    fn depth(&self, spec: &GemmSpec) -> i64 {
        self.unroll * if Self::is_along_k(spec) { self.vector } else { 1 }
    }

    /// Elements of the large and of the small operand that a thread has in an iteration.
    fn elements(&self, spec: &GemmSpec) -> [i64; 2] {
        [self.rows * self.unroll * self.vector, few(spec) * self.depth(spec)]
    }

    /// Words of 32 bits of these elements.
    fn words(&self, spec: &GemmSpec) -> i64 {
        let bits = |operand: Operand| i64::from(operand.dtype(spec).bits());
        let [large_elements, elements] = self.elements(spec);
        let (small, vector) = (large(spec).other(), self.small_vector(spec));
        // A load takes whole registers, and one word more where words are shifted.
        let more = if self.shifts_vectors(spec, large(spec)) { large_elements / self.vector } else { 0 };
        let large_words = up(large_elements * bits(large(spec)), 32) + more;
        large_words + elements / vector * up(vector * bits(small), 32)
    }

    /// Whether vectors of an operand are read in aligned words and shifted.
    fn shifts_vectors(&self, spec: &GemmSpec, operand: Operand) -> bool {
        operand.begins_between_words(spec) && self.vector >= word(spec, operand)
    }

    /// Whether a thread shifts words of the small operand: both have their rows along k, between words.
    fn realigns_small(&self, spec: &GemmSpec) -> bool {
        let small = large(spec).other();
        !self.staged && Self::is_along_k(spec) && small.along_k(spec) && self.shifts_vectors(spec, small)
    }

    /// Words that a thread loads for a vector of an operand which it shifts.
    fn shifted_words(&self, spec: &GemmSpec, operand: Operand) -> f64 {
        (self.vector / word(spec, operand) + 1) as f64
    }

    /// How many times as long L1 takes for vectors that are shifted: each load of words goes through all lines that the vectors are in, one a cycle.
    fn passes(&self, spec: &GemmSpec, operand: Operand) -> f64 {
        (self.shifted_words(spec, operand) / tuning::GEMV_L1).max(1.0)
    }

    /// Vectors of each operand, large and small, that a thread shifts in an iteration.
    fn shifted_vectors(&self, spec: &GemmSpec) -> [(Operand, f64); 2] {
        let (own, small) = (large(spec), large(spec).other());
        let of_own = if self.shifts_vectors(spec, own) { (self.rows * self.unroll) as f64 } else { 0.0 };
        [(own, of_own), (small, if self.realigns_small(spec) { self.loads(spec) } else { 0.0 })]
    }

    /// Integer operations of a thread that shift vectors in an iteration.
    fn shifts(&self, spec: &GemmSpec) -> f64 {
        let one = |(operand, vectors)| vectors * SHIFT_OPERATIONS * self.shifted_words(spec, operand);
        self.shifted_vectors(spec).into_iter().map(one).sum()
    }

    /// Whether a thread has registers for its results. A kernel for few rows may be asked about more: those of a range of M.
    fn has_few_results(&self, spec: &GemmSpec) -> bool {
        self.results(spec) * up(i64::from(spec.acc.bits()), 32) <= MOST_RESULTS
    }

    fn registers(&self, spec: &GemmSpec) -> i64 {
        let results = self.results(spec) * up(i64::from(spec.acc.bits()), 32);
        (results + self.words(spec) + tuning::ADDRESS_REGISTERS).min(255)
    }

    /// Conversions of a thread to the type of the accumulators in an iteration.
    fn conversions(&self, spec: &GemmSpec) -> f64 {
        let operands = [large(spec), large(spec).other()];
        let all = self.elements(spec).into_iter().zip(operands);
        all.filter(|(_, operand)| operand.dtype(spec) != spec.acc).map(|(elements, _)| elements as f64).sum()
    }

    /// Bytes of L1 that a warp occupies for the small operand in an iteration, as many as in [`tuning::GEMV_L1`] times the cycles: along k each
    /// lane has its own elements, across all have the same, and a load takes one wavefront.
    fn small_bytes(&self, spec: &GemmSpec) -> f64 {
        let [_, elements] = self.elements(spec);
        let bytes = f64::from(large(spec).other().dtype(spec).bits()) / 8.0;
        let wavefronts = WAVEFRONT * self.loads(spec);
        match Self::is_along_k(spec) {
            false => wavefronts,
            true => {
                let own = LANES as f64 * elements as f64 * bytes;
                let small = large(spec).other();
                let passes = if self.realigns_small(spec) { self.passes(spec, small) } else { 1.0 };
                (own * passes).max(wavefronts * self.lines(spec) / tuning::GEMV_L1)
            }
        }
    }

    /// Lines of L1 that a load of the small operand goes through along k, one a cycle: 32 lanes load 4 bytes at a time, 16 lanes 8 and 8 lanes 16. Where
    /// the small operand has its rows across k, lanes are a run of terms apart: 14528x16x48 NN of f32 takes 5.9 us on an H200 in four rows a
    /// group, 3.8 in tiles of ordinary code (h200-2026-11-29/few.jsonl).
    fn lines(&self, spec: &GemmSpec) -> f64 {
        let small = large(spec).other();
        let bytes = f64::from(small.dtype(spec).bits()) / 8.0;
        let phases = (self.small_vector(spec) as f64 * bytes / 4.0).ceil().clamp(1.0, 4.0);
        if small.along_k(spec) {
            return 1.0;
        }
        let lanes = (LANES as f64 / phases).floor().min(self.lanes as f64);
        let apart = (self.run(spec) * few(spec)) as f64 * bytes;
        phases * (lanes * apart / WAVEFRONT).ceil().min(lanes)
    }

    /// Loads of the small operand of a thread in an iteration.
    fn loads(&self, spec: &GemmSpec) -> f64 {
        let [_, elements] = self.elements(spec);
        elements as f64 / self.small_vector(spec) as f64
    }

    /// Instructions of a thread in an iteration: multiply-adds, conversions, loads, and what the loop takes.
    fn instructions(&self, spec: &GemmSpec) -> f64 {
        let more = |(operand, vectors)| vectors * (self.shifted_words(spec, operand) - 1.0);
        let shifted: f64 = self.shifted_vectors(spec).into_iter().map(more).sum();
        let alone = self.ends_inside(spec) && self.shifts_vectors(spec, large(spec));
        let small = self.loads(spec) * if alone { CONDITIONAL_LOADS } else { 1.0 };
        let loads = (self.rows * self.unroll) as f64 + small + shifted;
        (self.results(spec) * self.depth(spec)) as f64
            + self.conversions(spec)
            + self.shifts(spec)
            + 2.0 * loads
            + tuning::GEMV_LOOP
    }

    /// Elements of the small operand that a block stages: those of its part of k; 0 if it stages none.
    fn staged_elements(&self, spec: &GemmSpec) -> i64 {
        let terms = self.tile(spec)[1];
        if self.staged { up(spec.k, terms * self.parts).saturating_mul(terms * few(spec)) } else { 0 }
    }

    /// Cycles in which a block stages the small operand: the latency of its loads, their instructions, and a barrier.
    fn staging(&self, spec: &GemmSpec, device: &Device) -> f64 {
        if !self.staged {
            return 0.0;
        }
        let rounds = up(self.staged_elements(spec), self.threads()) as f64;
        let issued = rounds * STAGING * up(self.threads(), LANES) as f64 / SCHEDULERS as f64;
        f64::from(device.memory_latency_cycles) + issued / tuning::SIMT_ISSUE_SHARE + tuning::SIMT_BARRIER
    }

    /// Bytes of the large operand that a thread reads in an iteration, and those of the small one that a block does. Of the large one, lanes
    /// read whole accesses of device memory.
    fn bytes(&self, spec: &GemmSpec) -> [f64; 2] {
        let bytes = |operand: Operand| f64::from(operand.dtype(spec).bits()) / 8.0;
        let [own, _] = self.elements(spec);
        let terms = self.tile(spec)[1];
        [
            own as f64 * bytes(large(spec)) * (ACCESS / self.run_bytes(spec)).max(1.0),
            (few(spec) * terms) as f64 * bytes(large(spec).other()),
        ]
    }

    /// Contiguous bytes that the threads of a group load together.
    fn run_bytes(&self, spec: &GemmSpec) -> f64 {
        (self.lanes * self.vector) as f64 * f64::from(large(spec).dtype(spec).bits()) / 8.0
    }

    /// Bytes of shared memory of a block: slices or what warps of a group exchange, and the staged small operand.
    fn shared(&self, spec: &GemmSpec) -> i64 {
        let bytes = i64::from(spec.acc.bits()) / 8;
        let sums = match Self::is_along_k(spec) {
            true => self.results(spec) * up(self.threads(), LANES) * bytes * i64::from(self.lanes > LANES),
            false => self.results(spec) * self.threads() * bytes * i64::from(self.groups > 1),
        };
        sums + self.staged_elements(spec).saturating_mul(i64::from(large(spec).other().dtype(spec).bits()) / 8)
    }

    /// Instructions of a thread that add the sums of lanes or of slices, and store them.
    fn sums(&self, spec: &GemmSpec) -> f64 {
        let results = self.results(spec) as f64;
        match Self::is_along_k(spec) {
            true => {
                results * (2.0 * (self.lanes.min(LANES) as f64).log2() + 2.0 * (up(self.lanes, LANES) - 1) as f64 + 1.0)
            }
            // Each is written once, and read and added once, by one group for all others or by all.
            false if self.groups > 1 => {
                results * if self.all_combine(spec) { 4.0 } else { 2.0 + 2.0 * self.groups as f64 }
            }
            false => results,
        }
    }
}

/// Integer operations for a word that is shifted, and loads that one counts as which is under a condition of its own. Set by hand to times of an H200:
/// 8x10452x855 NT of s8 takes 16 us in vectors of 16 bytes, 2806x10x307 NN 6.3, 1x4096x4099 NT of bf16 13.7 and element by element 12.1
/// (h200-2026-11-29/unaligned.jsonl).
const SHIFT_OPERATIONS: f64 = 10.0;
const CONDITIONAL_LOADS: f64 = 3.0;

/// Instructions of a thread for an element that it stages: its load and its store, their addresses, and a condition.
const STAGING: f64 = 6.0;

/// Bytes of L1 or shared memory that a multiprocessor reads at once.
const WAVEFRONT: f64 = 128.0;

/// The shapes of one part.
fn shapes(spec: &GemmSpec) -> impl Iterator<Item = Gemv> {
    let (operand, along_k) = (large(spec), Gemv::is_along_k(spec));
    let plain = widest(spec, operand).min(aligned(spec, operand));
    let halves = |of: i64, least: i64| (0..).map(move |n| of >> n).take_while(move |v| *v >= least);
    // Vectors that are shifted, where rows begin between words.
    let shifted = operand.begins_between_words(spec).then(|| halves(widest(spec, operand), word(spec, operand)));
    let number = if along_k { 1 } else { usize::MAX };
    let vectors = halves(plain, 1).take(number).chain(shifted.into_iter().flatten().take(number));
    let blocks = LANE_NUMBERS.into_iter().flat_map(|lanes| GROUPS.map(|groups| [lanes, groups]));
    let blocks = blocks.filter(|[lanes, groups]| THREADS.contains(&(lanes * groups)));
    let rows = if along_k { &ROWS[..] } else { &ROWS[..1] };
    let loads = UNROLLS.into_iter().flat_map(move |unroll| rows.iter().map(move |rows| [unroll, *rows]));
    let all = vectors.flat_map(move |vector| loads.clone().map(move |[unroll, rows]| [vector, unroll, rows]));
    let (parts, staged) = (1, false);
    let all = blocks.flat_map(move |[lanes, groups]| {
        all.clone().map(move |[vector, unroll, rows]| Gemv { lanes, groups, vector, unroll, rows, parts, staged })
    });
    all.filter(|g| g.is_sound(spec))
}

impl Gemv {
    /// Whether a thread has registers for its share, and neither lanes nor rows are mostly beyond the GEMM.
    fn is_sound(&self, spec: &GemmSpec) -> bool {
        let [rows, terms] = self.tile(spec);
        let extent = large(spec).rows(spec);
        // What adds slices stores whole rows of lanes.
        let fits = if Self::is_along_k(spec) { rows < 2 * extent.max(LANES) } else { rows <= extent };
        self.has_few_results(spec)
            && self.results(spec) * self.depth(spec) <= MOST_WRITTEN
            && fits
            && terms < 2 * spec.k.max(LANES)
    }
}
