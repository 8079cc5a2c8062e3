//! The tiles of pipelined copies that a GEMM of f32 may have, and what it asks of a device in each of them.

use super::{Pipelined, Route};
use crate::dtype::DType;
use crate::gemm::operand::{Operand, up};
use crate::gemm::simt::cost::memory_bytes;
use crate::gemm::split::{Combine, combining};
use crate::gemm::work::{Flight, Work, cycles, partly_written};
use crate::gemm::{split, tiles, tuning};
use crate::target::{Device, Features, LANES, Limits, SCHEDULERS, Target};
use crate::te::GemmSpec;
use std::collections::HashMap;

/// Warps of a block. Four of whole tiles leave room for a second block, eight for the accumulators of one.
const WARPS: [i64; 2] = [4, 8];
/// Vectors of rows and of columns of a thread: 64 to 128 accumulators. With 144 there are spills.
const VECTORS: [[i64; 2]; 7] = [[2, 2], [1, 4], [4, 1], [2, 3], [3, 2], [2, 4], [4, 2]];
/// How many times as long the longer side of a tile is at most.
const MOST_RATIO: i64 = 4;
/// A side of a tile that no smaller one can stand in for: most of it may lie beyond C.
const SHORT_SIDE: i64 = 64;
/// k iterations of a part at least.
const LEAST_ITERATIONS: i64 = 16;
/// Tiles for each multiprocessor up to which k is divided: of more, parts only add sums to add.
const MOST_TILES: i64 = 6;
/// Candidates with the same warps, thread tile and slices that are compared with those of other recipes.
const MOST_OF_A_SHAPE: usize = 2;
/// Copies of single words or pairs that a thread starts for a stage, up to which their addresses take no registers of their own; and in eight slices: 64 x 32 of
/// 16 x 4 a thread with six copies spilled 8 bytes for sm_80, asked for two blocks (130x70x9000 TN).
const FEW_COPIES: f64 = 7.0;
const FEW_IN_EIGHT_SLICES: f64 = 5.0;
/// Registers of a thread, by the estimate, above which tiles are no candidates: 128 accumulators with many copies of words spilled up to 60 bytes
/// for sm_90a.
const MOST_REGISTERS: i64 = 216;

impl Pipelined {
    /// All tiles that suit the product and fit on the chip, with what the model takes them to cost, the cheapest first.
    pub(in crate::gemm) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<(f64, Pipelined)> {
        let f32_alone = [spec.a, spec.b, spec.acc, spec.out].iter().all(|d| *d == DType::F32);
        if !f32_alone || !target.has(Features::CP_ASYNC) || spec.k < 32 {
            return Vec::new();
        }
        let device = target.device();
        let multiprocessors = i64::from(device.multiprocessors);
        let candidates = shapes(spec).flat_map(|p| p.routed(spec)).flat_map(|p| p.split(spec, multiprocessors));
        let fits = candidates.filter(|p| p.divides() && p.fits(&target.limits) && p.fills(spec, multiprocessors));
        let resident = fits.map(|p| Pipelined { resident: p.resident(spec, target), ..p });
        let works = resident.filter(|p| p.resident > 0).map(|p| (cycles(&p.work(spec, &device), &device), p));
        let mut all: Vec<_> = works.collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }

    /// The cheapest candidates of each shape: those with the same warps, thread tile and slices differ in routes of the operands and in split-K.
    pub(in crate::gemm) fn cheapest_of_each_shape(
        all: Vec<(f64, Pipelined)>,
    ) -> impl Iterator<Item = (f64, Pipelined)> {
        let mut seen = HashMap::new();
        all.into_iter().filter(move |(_, p)| {
            let number: &mut usize = seen.entry((p.warps, p.vectors, p.slices)).or_default();
            *number += 1;
            *number <= MOST_OF_A_SHAPE
        })
    }

    /// These tiles with each route of their operands: a transposed operand, or one in pieces, may be packed too.
    fn routed(self, spec: &GemmSpec) -> impl Iterator<Item = Pipelined> {
        let routes = move |operand: Operand| {
            let route = match (operand.along_k(spec), operand.is_aligned(spec)) {
                (true, _) => Route::Transposed,
                (false, true) => Route::Vectors,
                (false, false) => Route::Pieces,
            };
            std::iter::once(route).chain((route != Route::Vectors).then_some(Route::Packed))
        };
        routes(Operand::A).flat_map(move |a| routes(Operand::B).map(move |b| Pipelined { routes: [a, b], ..self }))
    }

    /// These tiles, and the same in parts of k where they are few.
    fn split(self, spec: &GemmSpec, multiprocessors: i64) -> impl Iterator<Item = Pipelined> {
        let suits = move |parts: i64| {
            let long = spec.k / parts >= LEAST_ITERATIONS * self.terms * self.slices;
            parts == 1 || long && self.tiles(spec).saturating_mul(parts) <= MOST_TILES * multiprocessors
        };
        split::PARTS.into_iter().filter(move |parts| suits(*parts)).map(move |parts| Pipelined { parts, ..self })
    }

    /// Whether all threads copy equally many elements of both operands, and add up equally many vectors of the slices.
    fn divides(&self) -> bool {
        let [bm, bn] = self.block();
        let copies = [bm, bn].iter().all(|side| side * self.terms * self.slices % self.threads() == 0);
        copies && (self.slices == 1 || bm * bn % (4 * self.threads()) == 0)
    }

    /// Whether a block has the shared memory for its stages and its accumulators.
    fn fits(&self, limits: &Limits) -> bool {
        self.shared() <= i64::from(limits.shared_optin)
    }

    /// Whether half of the multiprocessors have a tile.
    fn fills(&self, spec: &GemmSpec, multiprocessors: i64) -> bool {
        self.tiles(spec).saturating_mul(self.parts) >= multiprocessors - multiprocessors / 2
    }

    /// Blocks that fit on a multiprocessor at a time; 0 where a thread has too few registers.
    fn resident(&self, spec: &GemmSpec, target: &Target) -> i64 {
        let registers = self.registers(spec);
        // Threads that store rows of a tile through shared memory divide by its columns.
        if registers > MOST_REGISTERS || self.crops(spec) && self.block()[1].count_ones() > 1 {
            return 0;
        }
        let [threads, registers, shared] =
            [self.threads(), registers, self.shared()].map(|x| u32::try_from(x).unwrap_or(u32::MAX));
        i64::from(target.occupancy(threads, registers, shared).blocks)
    }

    /// Registers of a thread: an estimate.
    fn registers(&self, spec: &GemmSpec) -> i64 {
        let [rows, columns] = self.vectors.map(|v| 4 * v);
        let [words, _] = self.copies(spec);
        let few = if self.slices < 8 { FEW_COPIES } else { FEW_IN_EIGHT_SLICES };
        let addresses = if words > few { 2 * words.ceil() as i64 } else { 0 };
        rows * columns + 2 * (rows + columns) + tuning::PIPELINED_REGISTERS + addresses
    }

    /// Copies of a thread for a stage, of 4 or 8 bytes and of 16.
    fn copies(&self, spec: &GemmSpec) -> [f64; 2] {
        let mut out = [0.0, 0.0];
        for operand in Operand::BOTH {
            let vector = self.vector(spec, operand);
            let elements = self.block()[operand as usize] * self.terms * self.slices / self.threads();
            out[usize::from(vector == 4)] += elements as f64 / vector as f64;
        }
        out
    }

    /// Cycles in which the slices of a block put their accumulators into shared memory, where one of them adds them up: 32x15072x56 NN of f32 takes 5.6 us on
    /// an H200 in 32 x 128 by eight slices and 4.6 by four (h200-2026-11-28/choice.jsonl).
    fn adding(&self, device: &Device) -> f64 {
        let [bm, bn] = self.block();
        (4 * bm * bn * (self.slices - 1)) as f64 / f64::from(device.shared_bytes_per_cycle)
    }

    /// What the GEMM asks of the device in these tiles.
    pub(in crate::gemm) fn work(&self, spec: &GemmSpec, device: &Device) -> Work {
        let [bm, bn] = self.block();
        let mut passes = combining(spec, self.parts, Combine::Kernel);
        for operand in Operand::BOTH.into_iter().filter(|operand| self.routes[*operand as usize] == Route::Packed) {
            passes.packs += 1;
            passes.packed_bytes += operand.packing_bytes(spec, 32);
        }
        let warps = (self.threads() / LANES) as f64;
        let [rows, columns] = self.vectors.map(|v| v as f64);
        let [words, vectors] = self.copies(spec).map(|copies| copies / self.terms as f64);
        let copies = tuning::PIPELINED_WORD * words + tuning::PIPELINED_VECTOR * vectors;
        let step = 16.0 * rows * columns + tuning::PIPELINED_LOAD * (rows + columns) + copies;
        let terms = self.terms * self.slices * self.parts;
        let beside = if self.resident > 1 { tuning::PIPELINED_BESIDE } else { 1.0 };
        let [of_a, of_b] = tuning::PIPELINED_WAVEFRONTS;
        Work {
            issue: tuning::PIPELINED_ISSUE * beside * step * warps / SCHEDULERS as f64,
            latency: tuning::PIPELINED_LATENCY * step + tuning::PIPELINED_STAGE / self.terms as f64,
            warps,
            shared_bytes: 128.0 * warps * (of_a * rows + of_b * columns),
            l2_bytes: (4 * (bm + bn) * self.slices) as f64,
            l2_share: tuning::PIPELINED_L2_SHARE,
            overlap: tuning::PIPELINED_OVERLAP,
            iterations: (up(spec.k, terms) * self.terms) as f64,
            launch: tuning::PIPELINED_LAUNCH,
            prologue: tuning::PIPELINED_EDGES,
            epilogue: (4 * bm * bn) as f64 / tuning::STORE_BYTES + self.adding(device),
            memory_share: tuning::MEMORY_SHARE,
            memory_bytes: memory_bytes(spec) + if self.parts > 1 { 0.0 } else { partly_written(spec, bn) },
            flight: Flight::of(f64::INFINITY),
            tiles: self.tiles(spec).saturating_mul(self.parts),
            resident: self.resident,
            passes,
            ..Work::NONE
        }
    }
}

/// Tiles that are no larger than C asks for, without parts of k.
fn shapes(spec: &GemmSpec) -> impl Iterator<Item = Pipelined> {
    let most = [spec.m, spec.n];
    let suits = move |p: &Pipelined| {
        let [bm, bn] = p.block();
        let covers = |d: usize| p.block()[d] <= SHORT_SIDE || p.block()[d] / 2 < most[d];
        bm.max(bn) <= MOST_RATIO * bm.min(bn) && covers(0) && covers(1)
    };
    let slices = WARPS.into_iter().flat_map(|warps| [1, 2, 4, 8].map(|slices| (warps, slices)));
    let slices = slices.filter(|(warps, slices)| slices <= warps);
    let warps = slices.flat_map(|(warps, slices)| tiles::all_arrangements(warps / slices).map(move |w| (w, slices)));
    let all = warps
        .flat_map(|(warps, slices)| VECTORS.map(|vectors| Pipelined::new(warps, vectors, slices, [Route::Vectors; 2])));
    all.filter(suits)
}
