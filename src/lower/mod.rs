//! From Scheduled to Lowered: threads, memory and synchronisation made explicit, one named pass a line.
//!
//! [`lower`] first asks `admit` whether the chip and this version can run the program at all, then makes one kernel of
//! every nest of the root (`kernels`) and runs [`PASSES`] on each. No pass knows what a GEMM is. The result says
//! everything: code generation only translates.

mod admit;
mod bind;
mod blocks;
mod bulk;
mod compact;
mod copies;
mod cross_thread;
mod flatten;
mod fragments;
mod grid;
mod guards;
mod kernels;
mod order;
mod pipeline;
mod plan;
mod point;
mod registers;
mod roles;
mod units;
mod vectors;
mod walks;

use crate::error::{Error, Result};
use crate::ir::{Buffer, Func, layout};
use crate::target::Target;
use std::time::{Duration, Instant};

pub use crate::ir::lowered::{
    Derived, Dim, GridDependency, LaunchAxis, Lowered, LoweredKernel, RoleThreads, Shape, TensorMap, print, print_bulk,
    print_derived, print_kernel, print_walk, statement_lines, verify,
};

/// A pass over one kernel.
pub struct Pass {
    /// Its name in dumps.
    pub name: &'static str,
    /// What it promises of the program after it.
    pub promise: &'static str,
    run: fn(&mut LoweredKernel, &Target) -> Result<()>,
}

/// The passes, in order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "cross_thread",
        promise: "no block reduces over a bound loop: threads combine partial results by shuffles and shared memory",
        run: cross_thread::run,
    },
    Pass {
        name: "blocks",
        promise: "blocks are labels: bindings, predicates and inits are written out",
        run: blocks::run,
    },
    Pass {
        name: "bind",
        promise: "bound loops are hardware indices; a block that does not use an axis runs on one of its threads",
        run: bind::run,
    },
    Pass { name: "compact", promise: "buffers within the block hold only what is in use at a time", run: compact::run },
    Pass {
        name: "bulk",
        promise: "staged buffers that TMA copies are TMA boxes, issued by one thread",
        run: bulk::run,
    },
    Pass {
        name: "fragments",
        promise: "nests of instructions are calls, the elements of fragments belong to lanes and their registers",
        run: fragments::run,
    },
    Pass { name: "flatten", promise: "every buffer is flat, every access one element index", run: flatten::run },
    Pass { name: "guards", promise: "no condition is left that always holds", run: guards::run },
    Pass {
        name: "vectors",
        promise: "vectorized loops are accesses of a width that alignment proves",
        run: vectors::run,
    },
    Pass {
        name: "copies",
        promise: "asynchronous copies into staged buffers are of 4, 8 or 16 bytes",
        run: copies::run,
    },
    Pass {
        name: "roles",
        promise: "the warps of a role run a slice of the kernel; rings of stages connect the slices",
        run: roles::run,
    },
    Pass {
        name: "pipeline",
        promise: "pipelined loops fill stages of shared memory ahead: asynchronously, or through registers",
        run: pipeline::run,
    },
    Pass {
        name: "registers",
        promise: "local buffers are indexed by constants once unrolled loops are written out",
        run: registers::run,
    },
    Pass {
        name: "plan",
        promise: "shared buffers have offsets; buffers not in use together may share bytes",
        run: plan::run,
    },
    Pass {
        name: "order",
        promise: "synchronisation between accesses that depend on each other, and nowhere else",
        run: order::run,
    },
];

/// Lowers a Scheduled program for a target.
///
/// # Errors
/// The input's fault where the program does not verify or a stage cannot be shared between threads as it is placed; the chip's where it lacks
/// an instruction or room (threads, shared memory, registers).
pub fn lower(func: &Func, target: &Target) -> Result<Lowered> {
    lower_traced(func, target, &mut |_| {})
}

/// What a pass did, for dumps.
pub struct Trace<'a> {
    /// The pass.
    pub pass: &'static str,
    /// The kernel after it.
    pub kernel: &'a LoweredKernel,
    /// How long it took.
    pub time: Duration,
}

/// [`lower`], with `trace` called after every pass on every kernel.
///
/// # Errors
/// As [`lower`]; the passes before the failing one have been shown.
pub fn lower_traced(func: &Func, target: &Target, trace: &mut dyn FnMut(&Trace)) -> Result<Lowered> {
    crate::ir::verify::verify(func)?;
    pass_by_pass(func, target, trace).map_err(|e| point::point(e, func))
}

fn pass_by_pass(func: &Func, target: &Target, trace: &mut dyn FnMut(&Trace)) -> Result<Lowered> {
    admit::admit(func, target)?;
    let mut kernels = kernels::split(func)?;
    for kernel in &mut kernels {
        for pass in PASSES {
            let start = Instant::now();
            (pass.run)(kernel, target)
                .map_err(|e| e.within(format!("lowering {}, pass {}", kernel.func.name, pass.name)))?;
            trace(&Trace { pass: pass.name, kernel, time: start.elapsed() });
        }
        admit::admit_kernel(kernel, target)?;
        verify(kernel).map_err(|e| e.within(format!("lowering {}", kernel.func.name)))?;
    }
    let params = func.params.iter().map(|p| func.buffer(*p).name.clone()).collect();
    let shape = |buffer: &Buffer| Some((buffer.const_shape()?, layout::strides(buffer)?));
    let shapes = func.params.iter().map(|p| shape(func.buffer(*p)).unwrap_or_default()).collect();
    Ok(Lowered { name: func.name.clone(), params, shapes, kernels })
}

/// A fault of a pass itself.
fn bug(pass: &str, message: impl std::fmt::Display) -> Error {
    Error::bug(format!("lower.{pass}"), message.to_string())
}
