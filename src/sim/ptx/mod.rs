//! Runs PTX text on the CPU, without a GPU: what LLVM emitted, not what codegen meant to emit.
//!
//! [`run_ptx`] parses the text of [`Kernels`], and launches its entries one after the other with the arguments and the workspace
//! that [`crate::kernel`] describes. It shares no code with codegen.
//!
//! # What is checked
//!
//! Every access: bounds of the buffer, alignment (a buffer has the alignment that its parameter promises and no more), uses of
//! bytes that nothing has written, writes to a buffer that the program only reads, `ld.global.nc` of what the kernel writes, and races with
//! the happens-before rules of the simulator of Lowered programs (`race`, `clocks`). Barriers and `.sync` instructions check that
//! the lanes that have to take part do. Deadlocks are reported. An instruction that the simulator does not have is an error.
//!
//! # Model
//!
//! - **Divergence.** Lanes that a branch parts run as two groups until its immediate post-dominator. Which group runs first is
//!   the policy's choice.
//! - **Order.** Barriers and mbarriers order accesses; instructions that exchange values between lanes (`shfl`, `vote`) do not.
//! - **Rounding.** Every instruction rounds once, as the PTX ISA says; NaN results have the hardware's pattern in f32 and f64.
//! - **`.approx` and `.full`** (`ex2`, `lg2`, `rsqrt`, `rcp`, `sqrt`, `sin`, `cos`, `tanh`, `div`): computed in f64 and rounded
//!   once to the type. The hardware may differ in the last bits.
//! - **Bytes that nothing has written** load as poison (`poison`): a fault where they are stored, branched on or used as an address.
//! - **Registers** hold arbitrary values until they are written.
//! - **`cp.async`** reads its source when it starts, and writes at any time until its group has been waited for.

mod access;
mod alu;
mod code;
mod copies;
mod decode;
mod exec;
mod flow;
mod grid;
mod inst;
mod launch;
mod parse;
mod poison;
mod report;
mod special;
mod tensor;
mod token;
mod trace;
mod trap;
mod warp;
mod world;

use super::{Options, Stats};
use crate::array::Array;
use crate::error::Result;
use crate::kernel::Kernels;

/// Runs a compiled program's PTX; `args` are its arguments in order, outputs are overwritten.
///
/// # Errors
/// Arguments that do not fit; a text that is no PTX or that has an instruction which the simulator does not have; and what shows
/// as it runs: accesses out of bounds, values that nothing has written, races, barriers that not all threads reach, deadlocks.
pub fn run_ptx(kernels: &Kernels, options: &Options, args: &mut [Array]) -> Result<Stats> {
    launch::run(kernels, options, args, None).map(|(stats, _)| stats)
}

/// As [`run_ptx`], with a digest of what the instruction on a line of the text (counted from 1) wrote in every thread; without a
/// line, of the addresses and the values of all accesses of memory, of conditional branches and of barriers. Two texts with the
/// same digest do the same for these arguments.
///
/// # Errors
/// As [`run_ptx`].
pub fn run_ptx_traced(
    kernels: &Kernels,
    options: &Options,
    args: &mut [Array],
    line: Option<u32>,
) -> Result<(Stats, u64)> {
    launch::run(kernels, options, args, Some(line))
}
