//! Any recipe with what it decided: its name, its steps, and the cycles that its model takes it to cost.

use super::packing::Source;
use super::pipelined::Route;
use super::work::{Work, cycles, memory, passes, with_memory};
use super::{Combine, Gemv, Kind, Mma, Pipelined, Split, SwapAb, Tiles, WarpTiles, Wgmma, Wmma, tuning};
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::GemmSpec;

/// What the cycles of a candidate are multiplied by, beyond 1, for each candidate before it of the same kind, and with the same tile, parts of k and cluster. Chosen
/// by 6,700 times of 100 GEMMs on an H200 and an earlier model: the best of four candidates has 0.986 of the best speed, in the order of cycles 0.978; by
/// 1,750 times of 81 on an H100 0.990 and 0.988.
const ALIKE_KIND: f64 = 0.05;
const ALIKE: [f64; 3] = [0.1, 0.05, 0.02];

/// What a recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    Wgmma(Wgmma),
    Mma(Mma),
    Wmma(Wmma),
    Pipelined(Pipelined),
    WarpTiles(WarpTiles),
    Tiles(Tiles),
    Gemv(Gemv),
}

impl Recipe {
    /// The steps for a GEMM.
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        match self {
            Recipe::Wgmma(w) => w.steps(spec),
            Recipe::Mma(m) => m.steps(spec),
            Recipe::Wmma(w) => w.steps(spec),
            Recipe::Pipelined(p) => p.steps(spec),
            Recipe::WarpTiles(w) => w.steps(spec),
            Recipe::Tiles(t) => t.steps(spec),
            Recipe::Gemv(g) => g.steps(spec),
        }
    }

    /// The tiles in words: `wgmma 128x256 in ping-pong`.
    pub fn name(&self) -> String {
        match self {
            Recipe::Wgmma(w) => tiled("wgmma", w.block, w.parts, w.combine) + form(w) + loaded(w) + &sharing(w),
            Recipe::Mma(m) => tiled("mma", m.block, m.parts, m.combine),
            Recipe::Wmma(w) => tiled("wmma", w.block, 1, Combine::Kernel),
            Recipe::Pipelined(p) => p.name(),
            Recipe::WarpTiles(w) => {
                let ([m, n], Split { parts, slices }) = (w.block(), w.split);
                format!("warp tiles {m}x{n}, {parts} parts of {slices} slices")
            }
            Recipe::Tiles(t) => t.name(),
            Recipe::Gemv(g) => g.name(),
        }
    }

    /// Whether both are of one kind: by wgmma, mma.sync, wmma, or ordinary code.
    pub fn is_like(&self, other: &Recipe) -> bool {
        let kind = |recipe: &Recipe| match recipe {
            Recipe::Wgmma(_) => Kind::Wgmma,
            Recipe::Mma(_) => Kind::Mma,
            Recipe::Wmma(_) => Kind::Wmma,
            Recipe::Pipelined(_) | Recipe::WarpTiles(_) | Recipe::Tiles(_) | Recipe::Gemv(_) => Kind::Simt,
        };
        kind(self) == kind(other)
    }

    /// How alike two recipes are, by kind, tile, parts of k and cluster. The model's errors are alike for alike recipes.
    pub fn likeness(&self, other: &Recipe) -> f64 {
        if !self.is_like(other) {
            return 0.0;
        }
        let shares =
            [self.tile() == other.tile(), self.division() == other.division(), self.cluster() == other.cluster()];
        ALIKE_KIND + shares.into_iter().zip(ALIKE).filter(|(is_shared, _)| *is_shared).map(|(_, w)| w).sum::<f64>()
    }

    /// Rows and columns of the tile of a block; of matrix-vector products its groups of threads and the rows of each.
    fn tile(&self) -> [i64; 2] {
        match self {
            Recipe::Wgmma(w) => w.block,
            Recipe::Mma(m) => m.block,
            Recipe::Wmma(w) => w.block,
            Recipe::Pipelined(p) => p.block(),
            Recipe::WarpTiles(w) => w.block(),
            Recipe::Tiles(t) => [t.bm, t.bn],
            Recipe::Gemv(g) => [g.groups, g.rows],
        }
    }

    /// Parts of k, and whether a cluster adds them up.
    fn division(&self) -> (i64, bool) {
        let divided = |parts, combine| (parts, parts > 1 && combine == Combine::Cluster);
        match self {
            Recipe::Wgmma(w) => divided(w.parts, w.combine),
            Recipe::Mma(m) => divided(m.parts, m.combine),
            Recipe::Wmma(_) => (1, false),
            Recipe::Pipelined(p) => (p.parts, false),
            Recipe::WarpTiles(w) => (w.split.parts, false),
            Recipe::Tiles(t) => (t.parts, false),
            Recipe::Gemv(g) => (g.parts, false),
        }
    }

    /// Whether another kernel packs an operand, or adds up parts of k.
    pub fn needs_workspace(&self) -> bool {
        let packs = match self {
            Recipe::Wgmma(w) => w.needs_packing(),
            Recipe::Mma(m) => m.routes.contains(&Source::Packed),
            Recipe::Pipelined(p) => p.routes.contains(&Route::Packed),
            Recipe::Wmma(_) | Recipe::WarpTiles(_) | Recipe::Tiles(_) | Recipe::Gemv(_) => false,
        };
        let (parts, in_cluster) = self.division();
        packs || parts > 1 && !in_cluster
    }

    /// Blocks of a cluster that share operands.
    fn cluster(&self) -> [i64; 2] {
        match self {
            Recipe::Wgmma(w) => w.cluster,
            Recipe::Mma(m) => m.tma.map_or([1, 1], |tma| tma.cluster),
            _ => [1, 1],
        }
    }

    /// Whether warpgroups work in ping-pong.
    pub fn is_pingpong(&self) -> bool {
        matches!(self, Recipe::Wgmma(w) if w.is_pingpong())
    }

    /// The cycles of its kernel for a dynamic number of rows where they are `spec.m`: MMAs leave out columns that no rows have.
    pub fn cycles_at(&self, spec: &GemmSpec, target: &Target) -> f64 {
        match self {
            Recipe::Wgmma(w) if w.is_exceeded(spec) => f64::INFINITY,
            Recipe::Wgmma(w) => w.cycles_at(spec, target),
            _ => self.cycles(spec, target),
        }
    }

    /// The cycles that the GEMM takes, comparable between recipes; infinite where a block does not fit on the chip.
    pub fn cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let device = target.device();
        match self {
            Recipe::Wgmma(w) => w.compared_cycles(spec, target),
            Recipe::Mma(m) => match m.tma_work(spec, &device) {
                Some(tiles) => {
                    let work = m.work(spec, target);
                    with_memory(cycles(&tiles, &device), memory(&work, &device)) + passes(&work, &device)
                }
                None => cycles(&m.work(spec, target), &device),
            },
            Recipe::Wmma(w) => cycles(&w.work(spec, target), &device),
            Recipe::Pipelined(p) => cycles(&p.work(spec, &device), &device),
            Recipe::WarpTiles(w) => {
                let work = w.work(spec, target);
                work.map_or(f64::INFINITY, |work| tuning::WARP_TILES_SLOWER * cycles(&work, &device))
            }
            Recipe::Tiles(t) => {
                let work = t.work(spec, target, &device);
                work.map_or(f64::INFINITY, |work| cycles(&work, &device))
            }
            Recipe::Gemv(g) => {
                let work = g.work(spec, target, &device);
                work.map_or(f64::INFINITY, |work| {
                    let resident = cycles(&Work { memory_bytes: 0.0, ..work }, &device);
                    with_memory(tuning::GEMV_SLOWER * resident, memory(&work, &device))
                })
            }
        }
    }
}

/// A kind of code with rows and columns of its tile, and how k is split.
fn tiled(kind: &str, [m, n]: [i64; 2], parts: i64, combine: Combine) -> String {
    match (parts, combine) {
        (1, _) => format!("{kind} {m}x{n}"),
        (parts, Combine::Kernel) => format!("{kind} {m}x{n}, split-K by {parts}"),
        (parts, Combine::Cluster) => format!("{kind} {m}x{n}, split-K by {parts} in a cluster"),
    }
}

/// How the warpgroups of a tile work.
fn form(w: &Wgmma) -> &'static str {
    match (w.pingpong, w.swap_ab) {
        _ if w.promoted && w.cluster != [1, 1] => " with promoted sums in clusters",
        _ if w.promoted => " with promoted sums",
        (false, SwapAb::Straight) => "",
        (false, SwapAb::Swapped) => ", A and B swapped",
        (true, SwapAb::Straight) => " in ping-pong",
        (true, SwapAb::Swapped) => " in ping-pong, A and B swapped",
    }
}

/// What becomes of the operands first, or which one comes through registers.
fn loaded(w: &Wgmma) -> &'static str {
    match (w.rows_in_registers, w.swap_ab) {
        _ if w.widened => ", widened",
        (false, _) => "",
        (true, SwapAb::Straight) => ", A through registers",
        (true, SwapAb::Swapped) => ", B through registers",
    }
}

/// The blocks that share operands.
fn sharing(w: &Wgmma) -> String {
    let turns = w.interleaved.map(|interleaved| match interleaved.groups {
        1 => format!(", rows interleaved over {} tiles", interleaved.tiles),
        _ => format!(", each {} rows interleaved over {} tiles", interleaved.tiles * w.block[0], interleaved.tiles),
    });
    let clusters = match w.cluster {
        [1, 1] => String::new(),
        [rows, columns] => format!(", clusters of {rows} x {columns}"),
    };
    turns.unwrap_or_default() + &clusters
}
