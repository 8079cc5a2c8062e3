//! The simulator: runs programs of every stage on the CPU, in the real types or in integer mode.
//!
//! [`run_func`] runs a Tensor or Scheduled program in sequence, as its text reads from top to bottom: bound, unrolled
//! and vectorized loops are loops, rasterized loops follow the formula of [`crate::ir::Raster`], placements are passed
//! over, a tensorized nest is its own meaning, every buffer is whole. [`run_lowered`] runs the kernels of a Lowered
//! program in order, each with its real grid, blocks, warps and barriers; shared memory is bytes at the plan's offsets,
//! poisoned when a block starts. Asynchronous copies land at any time between their start and the wait for them.
//!
//! Both report, with buffer, index, statement, loop values, block and thread: accesses out of bounds, reads of what
//! nothing has written, misaligned vector accesses, integer division by zero, barriers that only part of a block or
//! warp reaches, and output elements that were never written.
//!
//! Kernels are searched for races (`race`): two accesses of the same bytes by different threads, one of them a write,
//! that no barrier orders, whether or not the order that was drawn shows it. Both accesses are named and underlined in
//! the printed kernel, with the barrier that is missing. The verdict does not depend on the [`Policy`]; on a kernel that
//! is right there is none.
//!
//! # Modes
//!
//! [`Mode::Real`] computes in the real types, each operation rounded to its type (a product and a sum are rounded
//! apart, where a GPU fuses them). [`Mode::Integer`] computes with integers modulo 2^32, where every legal schedule gives
//! the same bits as the naive program: [`naive_integers`] and [`integers`] run the same inputs through both.
//!
//! # How
//!
//! A body is compiled to a bytecode (`code`) that each warp runs with 32 lanes at once (`warp`, `alu`, `access`).
//! Index arithmetic is done where its innermost variable changes. A program in sequence is one warp of one lane, whose
//! innermost loops run 32 iterations at a time where that changes nothing (`lanes`).

mod access;
mod alu;
mod bulk;
mod clocks;
mod code;
mod collective;
mod compile;
mod expr;
mod fault;
mod flight;
mod float8;
mod grid;
mod index;
mod inspect;
mod integer;
mod lanes;
mod launch;
mod listen;
mod mbarrier;
mod memory;
#[doc(hidden)]
pub mod mutate;
mod product;
mod ptx;
mod race;
mod report;
mod scene;
mod slices;
mod spread;
mod steps;
mod value;
mod walk;
mod warp;

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod mbarrier_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod tests;

use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Code, Result};
use crate::ir::lowered::Lowered;
use crate::ir::{Buffer, Func};
use inspect::Watcher;
use launch::Sequence;
use listen::Listener;
use scene::Onlooker;
use std::ops::ControlFlow;

pub use inspect::{Datum, Moment, Seen};
pub use listen::{
    Arrival, BoxCopy, Event, EventKind, Flight, Landing, Mbarrier, Meeting, Phase, Request, Statement, Tile,
};
pub use ptx::{run_ptx, run_ptx_traced};
pub use scene::{At, LoadState, MbarrierState, Scene, Sight, View, WarpState, Write};

/// What data are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Numbers of the program's types.
    Real,
    /// Integers modulo 2^32; arguments are then arrays of u32, an element for an element.
    Integer,
}

/// In which order the warps of a block, the blocks of a grid, and asynchronous copies take effect; and how many blocks there
/// are of a persistent kernel: in order one, reversed a number that does not divide the tiles, at random one, two or that
/// number as the seed's remainder by 3 says, and one for each tile where 8 divides the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The first that can go on, to its next barrier; copies land when they are waited for.
    InOrder,
    /// The last that can go on, to its next barrier; copies land when they start.
    Reverse,
    /// Any, for a few statements, drawn with this seed; copies land at any time between.
    Random(u64),
}

/// What a run may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Statements of single threads, and loop iterations of warps.
    pub statements: u64,
    /// Bytes that the simulator allocates (arguments not counted).
    pub bytes: u64,
}

impl Default for Limits {
    /// 2^34 statements (some minutes) and 8 GiB.
    fn default() -> Self {
        Limits { statements: 1 << 34, bytes: 8 << 30 }
    }
}

/// How to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// What data are.
    pub mode: Mode,
    /// Who is next.
    pub policy: Policy,
    /// When to stop.
    pub limits: Limits,
    /// Whether to look for races between the threads of a lowered program.
    pub races: bool,
}

impl Options {
    /// A mode, in order, with the usual limits; races are looked for.
    pub fn new(mode: Mode) -> Options {
        Options { mode, policy: Policy::InOrder, limits: Limits::default(), races: true }
    }

    /// The same with another order.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Options {
        Options { policy, ..self }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Options {
        Options { limits, ..self }
    }

    /// The same, looking for races or not.
    #[must_use]
    pub fn with_races(self, races: bool) -> Options {
        Options { races, ..self }
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Stores of single threads that ran (a vector store is one).
    pub statements: u64,
    /// Time from the first statement to the last.
    pub seconds: f64,
}

impl Stats {
    /// Statements per second.
    pub fn rate(&self) -> f64 {
        self.statements as f64 / self.seconds.max(1e-9)
    }
}

/// Runs a Tensor or Scheduled program in sequence.
///
/// `args` are the parameters in order; outputs (the parameters that the program writes) are overwritten. An array has
/// its parameter's type (u32 in integer mode) and at least the elements that its shape and strides span.
///
/// # Errors
/// The arguments' fault where they do not fit the parameters; what is wrong with the program where it shows as it runs: an access
/// out of bounds, a value that no thread wrote, more work than the limits allow.
pub fn run_func(func: &Func, mode: Mode, args: &mut [Array]) -> Result<Stats> {
    run_func_with(func, &Options::new(mode), args)
}

/// [`run_func`] with limits. The policy has no say: there is one thread.
///
/// # Errors
/// As [`run_func`].
pub fn run_func_with(func: &Func, options: &Options, args: &mut [Array]) -> Result<Stats> {
    launch::sequential(func, options, args, Sequence::Lanes)
}

/// [`run_func_with`], with `watch` called before each statement and after each write; `None` where it has ended the run.
///
/// # Errors
/// As [`run_func`].
pub fn run_func_watched(
    func: &Func,
    options: &Options,
    args: &mut [Array],
    watch: impl FnMut(&Moment<'_>) -> ControlFlow<()> + 'static,
) -> Result<Option<Stats>> {
    stopped(launch::sequential(func, options, args, Sequence::Watched(Watcher::new(watch))))
}

/// Runs a Lowered program; `args` as for [`run_func`].
///
/// # Errors
/// As [`run_func`]; and what only threads do wrong: races, waits that do not end, barriers that not all reach.
pub fn run_lowered(lowered: &Lowered, mode: Mode, args: &mut [Array]) -> Result<Stats> {
    run_lowered_with(lowered, &Options::new(mode), args)
}

/// [`run_lowered`] with a policy and limits.
///
/// # Errors
/// As [`run_lowered`].
pub fn run_lowered_with(lowered: &Lowered, options: &Options, args: &mut [Array]) -> Result<Stats> {
    launch::parallel(lowered, options, args, Default::default())
}

/// [`run_lowered_with`] in order, with `watch` called as the view says: at each write of some buffers, or at each statement of one block
/// and at each write by it. `None` where it has ended the run.
///
/// # Errors
/// As [`run_lowered`].
pub fn run_lowered_watched(
    lowered: &Lowered,
    options: &Options,
    args: &mut [Array],
    view: View,
    watch: impl FnMut(&Scene<'_>) -> ControlFlow<()> + 'static,
) -> Result<Option<Stats>> {
    let options = options.with_policy(Policy::InOrder);
    let onlooker = Onlooker::new(view, watch);
    stopped(launch::parallel(lowered, &options, args, (Listener::default(), onlooker)))
}

/// No error where who watched has ended the run.
fn stopped(ran: Result<Stats>) -> Result<Option<Stats>> {
    match ran {
        Err(e) if e.code() == Code::SimStopped => Ok(None),
        ran => ran.map(Some),
    }
}

/// [`run_lowered_with`], with `listen` called at everything that runs.
///
/// # Errors
/// As [`run_lowered`].
pub fn run_lowered_observed(
    lowered: &Lowered,
    options: &Options,
    args: &mut [Array],
    mut listen: impl FnMut(&Event<'_>) + 'static,
) -> Result<Stats> {
    let listen = move |event: &Event<'_>| {
        listen(event);
        true
    };
    launch::parallel(lowered, options, args, (Listener::of(listen, false), Onlooker::default()))
}

/// [`run_lowered_observed`] of the first cluster of each kernel alone (without clusters, its first block): the outputs stay incomplete,
/// the arguments are zeros, wgmma adds nothing, races are not looked for. A kernel ends where `listen` returns false.
///
/// # Errors
/// As [`run_lowered`].
pub fn run_first_cluster(
    lowered: &Lowered,
    policy: Policy,
    limits: Limits,
    listen: impl FnMut(&Event<'_>) -> bool + 'static,
) -> Result<Stats> {
    let mut args = Vec::new();
    for (span, _) in launch::lowered_spans(lowered)? {
        args.push(Array::zeros(DType::U32, &[span])?);
    }
    let options = Options { mode: Mode::Integer, policy, limits, races: false };
    launch::parallel(lowered, &options, &mut args, (Listener::of(listen, true), Onlooker::default()))
}

/// The parameters after a run in integer mode, in order, on inputs that depend on the seed and the element alone.
///
/// # Errors
/// As [`run_func`].
pub fn naive_integers(func: &Func, seed: u64) -> Result<Vec<Vec<u32>>> {
    let mut args = integer::inputs(&launch::spans(func)?, &Limits::default(), seed)?;
    run_func(func, Mode::Integer, &mut args)?;
    Ok(args.iter().map(elements).collect())
}

/// [`naive_integers`] of a Lowered program: equal to the naive program's, or lowering is wrong.
///
/// # Errors
/// As [`run_lowered`].
pub fn integers(lowered: &Lowered, seed: u64) -> Result<Vec<Vec<u32>>> {
    integers_with(lowered, &Options::new(Mode::Integer), seed)
}

/// [`integers`] with a policy and limits; the mode is always integer mode.
///
/// # Errors
/// As [`run_lowered`].
pub fn integers_with(lowered: &Lowered, options: &Options, seed: u64) -> Result<Vec<Vec<u32>>> {
    let mut args = integer::inputs(&launch::lowered_spans(lowered)?, &options.limits, seed)?;
    run_lowered_with(lowered, &Options { mode: Mode::Integer, ..*options }, &mut args)?;
    Ok(args.iter().map(elements).collect())
}

/// An element of an input in integer mode: any number, or one of the values that the buffer can have if they are stated.
pub fn integer_input(buffer: &Buffer, number: u32) -> u32 {
    integer::Domain::of(buffer).pick(number)
}

fn elements(array: &Array) -> Vec<u32> {
    array.bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
