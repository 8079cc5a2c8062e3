#![doc = include_str!("ARCHITECTURE.md")]

// In reading order. tests/it/tidy.rs holds which room may use which.
#[doc(hidden)]
pub mod array;
#[doc(hidden)]
pub mod dtype;
pub mod error;
pub mod size;

#[doc(hidden)]
pub mod index;

pub mod ir;
pub mod te;

pub mod target;

#[doc(hidden)]
pub mod intrin;

pub mod rows;
pub mod schedule;

#[doc(hidden)]
pub mod auto;

pub mod loom;

pub mod lower;

pub mod gemm;

pub mod sim;

#[doc(hidden)]
pub mod validate;

pub mod kernel;

pub mod artifact;

#[cfg(feature = "compile")]
#[doc(hidden)]
pub mod codegen;

#[doc(hidden)]
pub mod assemble;

pub mod analysis;

#[cfg(feature = "compile")]
pub mod build;

#[cfg(feature = "runtime")]
pub mod runtime;

#[doc(hidden)]
pub mod reference;

#[cfg(all(feature = "runtime", unix))]
#[doc(hidden)]
pub mod measure;

pub mod tune;

#[cfg(all(feature = "cli", feature = "compile"))]
#[doc(hidden)]
pub mod page;

#[cfg(all(feature = "cli", feature = "compile"))]
#[doc(hidden)]
pub mod cli;

/// What most programs use: `use warploom::prelude::*;`.
pub mod prelude {
    #[cfg(feature = "runtime")]
    pub use crate::Device;
    pub use crate::{Array, DType, Gemm, Kernels, Result, Schedule, Target, gemm, simulate};
    #[cfg(feature = "compile")]
    pub use crate::{compile, compile_gemm};
}

/// [`Array`] implements the comparison traits of this version of the crate.
pub use approx;
pub use array::{Array, Element};
pub use dtype::DType;
pub use error::{Error, Fault, Result};
pub use gemm::Gemm;
pub use ir::Func;
pub use kernel::Kernels;
pub use loom::Schedule;
pub use lower::Lowered;
#[cfg(feature = "runtime")]
pub use runtime::Device;
pub use schedule::Step;
pub use target::Target;
pub use validate::Validation;

/// Compiles a schedule: applies its steps, lowers, and translates to PTX. Needs no GPU, and nothing but the schedule
/// influences the result.
///
/// A debug build of this library (`cfg(debug_assertions)`) validates the schedule first ([`validate`]), where an instance of at
/// most [`validate::DEBUG_OPERATIONS`] operations takes its steps.
///
/// # Errors
/// A step that is refused, a placement that the chip cannot realise, or a program that breaks a rule; what
/// [`Schedule::validate`] finds.
#[cfg(feature = "compile")]
pub fn compile(schedule: &Schedule) -> Result<Kernels> {
    if cfg!(debug_assertions) {
        schedule.validate_within(validate::DEBUG_OPERATIONS)?;
    }
    let lowered = lower::lower(&schedule.scheduled()?, &schedule.target)?;
    codegen::compile(&lowered, &schedule.target)
}

/// Like [`compile`], through a cache. A hit reads the kernels from disk, without LLVM. With an assembler, a `Ptxas` or a `Device`, the kernels
/// also have a cubin, which the driver loads without compiling. Failures to write the cache are ignored.
///
/// The key of an entry is a digest of the schedule's text, the sources of this compiler, the version of LLVM, and the assembler.
///
/// # Errors
/// The errors of [`compile`] and of the assembler.
#[cfg(feature = "compile")]
pub fn compile_cached(
    schedule: &Schedule,
    cache: &artifact::Cache,
    assembler: Option<&dyn kernel::Assembler>,
) -> Result<Kernels> {
    let make = || {
        let mut kernels = compile(schedule)?;
        kernels.cubin = assembler.map(|assembler| assembler.cubin(&kernels)).transpose()?;
        Ok(artifact::Variant::new(kernels, schedule.to_string(), codegen::llvm_version()))
    };
    build::cached("kernels", schedule, cache, assembler, make).map(|variant| variant.kernels)
}

/// Embeds the artefact with this name that the crate's build script made with [`build::script`], as bytes for
/// [`Artifact::from_bytes`](artifact::Artifact::from_bytes). Only the build script needs the feature `compile`.
#[macro_export]
macro_rules! include_artifact {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".warploom"))
    };
}

/// Runs compiled kernels on the simulator: their PTX is interpreted, thread by thread, and every access checked. `arrays` are the
/// arguments of the program in the order of `kernels.args`. The outputs among them hold the results afterwards.
///
/// # Errors
/// `sim.arguments` where the arrays are not the program's arguments; what the simulator finds: races, accesses out of bounds, reads of
/// memory that nothing has written, deadlocks; `ptx.limit` where the program is too much work.
pub fn simulate(kernels: &Kernels, arrays: &mut [Array]) -> Result<()> {
    let options = sim::Options::new(sim::Mode::Real);
    sim::run_ptx(kernels, &options, arrays).map(|_| ())
}

/// Like [`compile`], for a GEMM alone: the kernels take A, B, the inputs of its epilogue in the order of [`Gemm::epilogues`], and C.
///
/// # Errors
/// As [`compile`], and `gemm.program` where the program is not what [`Gemm::program`] makes.
#[cfg(feature = "compile")]
pub fn compile_gemm(schedule: &Schedule) -> Result<Kernels> {
    match gemm::describe(&schedule.program) {
        Some(_) => compile(schedule),
        None => Err(Error::input(
            error::Code::GemmProgram,
            format!("program {} is not a matrix product", schedule.program.name),
        )
        .help("`compile` takes every program")),
    }
}

/// The README's Rust compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// Samples of long sets of cases, in the way of the tests in `tests/it`.
#[cfg(test)]
#[path = "../tests/it/sample.rs"]
mod sample;

// The tests lower thousands of schedules, and a third of that is allocation.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
