//! Any recipe with what it decided: its name, its steps, and the cycles that its model takes it to cost.

use super::work::{Work, cycles, memory, passes, with_memory};
use super::{Combine, Gemv, Kind, Mma, Pipelined, Split, SwapAb, Tiles, WarpTiles, Wgmma, Wmma, tuning};
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::GemmSpec;

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
            Recipe::Wgmma(w) => tiled("wgmma", w.block, w.parts, w.combine) + form(w) + &sharing(w),
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

    /// Whether warpgroups work in ping-pong.
    pub fn is_pingpong(&self) -> bool {
        matches!(self, Recipe::Wgmma(w) if w.is_pingpong())
    }

    /// The cycles that the GEMM takes, comparable between recipes; infinite where a block does not fit on the chip.
    pub fn cycles(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let device = target.device();
        match self {
            Recipe::Wgmma(w) => w.compared_cycles(spec, target),
            Recipe::Mma(m) => match m.tma_work(spec, &device) {
                Some(work) => cycles(&work, &device) + passes(&m.work(spec, target), &device),
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

/// The blocks that share operands.
fn sharing(w: &Wgmma) -> String {
    match w.cluster {
        [1, 1] => String::new(),
        [rows, columns] => format!(", clusters of {rows} x {columns}"),
    }
}
