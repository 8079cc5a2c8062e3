#![doc = include_str!("ARCHITECTURE.md")]

// In reading order. tests/it/tidy.rs holds which room may use which.
pub mod array;
pub mod dtype;
pub mod error;

pub mod index;

pub mod ir;
pub mod te;

pub mod target;

pub mod intrin;

pub mod schedule;

pub mod auto;

pub mod loom;

pub mod lower;

pub mod gemm;

pub mod machine;

pub mod validate;

pub mod kernel;

pub mod codegen;

pub mod assemble;

pub mod certify;

#[cfg(feature = "cuda")]
pub mod runtime;

pub mod reference;

#[cfg(feature = "cuda")]
pub mod measure;

#[cfg(feature = "cli")]
pub mod cli;

pub use array::Array;
pub use dtype::DType;
pub use error::{Error, Fault, Result};
pub use gemm::Gemm;
pub use ir::Func;
pub use kernel::Kernels;
pub use loom::Schedule;
pub use lower::Lowered;
#[cfg(feature = "cuda")]
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
pub fn compile(schedule: &Schedule) -> Result<Kernels> {
    if cfg!(debug_assertions) {
        schedule.validate_within(validate::DEBUG_OPERATIONS)?;
    }
    let lowered = lower::lower(&schedule.scheduled()?, &schedule.target)?;
    codegen::compile(&lowered, &schedule.target)
}

/// Like [`compile`], for a matrix product alone: the kernels take A, B and C.
///
/// # Errors
/// As [`compile`], and `gemm.program` where the program is not what [`te::gemm`] builds.
pub fn compile_gemm(schedule: &Schedule) -> Result<Kernels> {
    match gemm::describe(&schedule.program) {
        Some(_) => compile(schedule),
        None => Err(Error::input("gemm.program", format!("program {} is not a matrix product", schedule.program.name))
            .help("`compile` takes every program")),
    }
}
