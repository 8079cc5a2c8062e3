//! Kernels whose PTX names the lines of the lowered text.

use crate::error::Result;
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::{codegen, lower};

/// The file that `.file` names, beside the PTX: `NAME.lowered`.
pub fn file_name(program: &str) -> String {
    format!("{program}.lowered")
}

/// The lowered text that the lines count: what `dump --emit lowered` prints.
pub fn lowered(schedule: &Schedule) -> Result<String> {
    Ok(lower::print(&lower::lower(&schedule.scheduled()?, &schedule.target)?))
}

/// Compiles with `.file` and `.loc`.
pub fn compile(schedule: &Schedule) -> Result<Kernels> {
    let lowered = lower::lower(&schedule.scheduled()?, &schedule.target)?;
    codegen::compile_with_lines(&lowered, &schedule.target, &file_name(&lowered.name))
}
