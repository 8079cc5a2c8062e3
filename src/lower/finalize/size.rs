//! Refuses kernels that are too large for the compiler once their loops are written out.

use crate::error::{Code, Error, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::size::{LOOP, MOST_OPERATIONS, Size};
use crate::lower::bug;
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let size = Size::of(kernel).ok_or_else(|| bug(Code::LowerOperations, "a loop has no constant extent"))?;
    if size.fits() {
        return Ok(());
    }
    let (name, Size { operations, loops }) = (&kernel.func.name, size);
    let message = format!(
        "written out, kernel {name} has {operations} operations and loads, {loops} loops counted as {LOOP} each; \
         {MOST_OPERATIONS} are allowed"
    );
    Err(Error::input(Code::LowerOperations, message)
        .help("unroll fewer loops, or split them and unroll the inner part")
        .help("annotate a loop `unroll_limit 1`, and it is not written out"))
}

#[cfg(test)]
mod tests {
    use crate::Schedule;
    use crate::lower::lower;

    fn refusal(text: &str) -> Option<String> {
        let schedule: Schedule = text.parse().unwrap();
        lower(&schedule.scheduled().unwrap(), &schedule.target).err().map(|e| e.message().to_string())
    }

    #[test]
    fn loops_and_operations_that_are_written_out_count() {
        let unrolled = |i| format!("gemm {i}x1024x1024 f32 NN\ntarget sm_90\nunroll i\nunroll j");
        let said = refusal(&unrolled(3)).unwrap();
        assert!(said.contains("3072 loops") && said.contains("262144 are allowed"), "{said}");
        assert_eq!(refusal("gemm 16x16x1024 f32 NN\ntarget sm_90\nunroll i\nunroll j"), None);
        assert_eq!(refusal("gemm 1024x1024x1024 f32 NN\ntarget sm_90"), None);
    }
}
