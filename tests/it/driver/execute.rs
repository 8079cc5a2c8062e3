//! Kernels that the mock driver runs: each on the CPU machine, on the memory that its launch names.

use super::mock::{Launch, Mock};
use std::sync::OnceLock;
use warploom::lower::{self, Lowered, LoweredKernel};
use warploom::machine::{self, Mode};
use warploom::{Array, Kernels, Schedule};

/// The kernels of this process's program, by entry.
static KERNELS: OnceLock<Vec<(String, LoweredKernel)>> = OnceLock::new();

/// Compiles a schedule, and has the driver run its kernels on the CPU machine. Once a process.
pub fn compile(mock: &Mock, text: &str) -> (Schedule, Kernels) {
    let schedule = Schedule::parse(text).unwrap();
    let kernels = warploom::compile(&schedule).unwrap();
    let lowered = lower::lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let entries = kernels.kernels.iter().map(|k| k.entry.clone());
    assert!(KERNELS.set(entries.zip(lowered.kernels).collect()).is_ok(), "a second program in this process");
    mock.executor(run);
    (schedule, kernels)
}

/// CUDA_ERROR_LAUNCH_FAILED where the machine finds anything wrong.
extern "C" fn run(launch: &Launch) -> i32 {
    let kernel = KERNELS.get().and_then(|all| all.iter().find(|k| k.0 == launch.entry()));
    let Some((_, kernel)) = kernel else { return 719 };
    if (launch.grid, launch.block, launch.shared_bytes) != (kernel.grid(), kernel.block(), kernel.shared_bytes) {
        return 719;
    }
    match on_machine(kernel, launch) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}: {error}", launch.entry());
            719
        }
    }
}

fn on_machine(kernel: &LoweredKernel, launch: &Launch) -> warploom::Result<()> {
    let func = &kernel.func;
    let buffers: Vec<_> = func.params.iter().map(|id| func.buffer(*id)).collect();
    let alone = LoweredKernel { workspace: Vec::new(), ..kernel.clone() };
    let params = buffers.iter().map(|b| b.name.clone()).collect();
    let lowered = Lowered { name: func.name.clone(), params, kernels: vec![alone] };
    let places: Vec<(u64, usize)> = launch.addresses().into_iter().zip(buffers.iter().map(|b| bytes(b))).collect();
    let mut arrays = Vec::new();
    for (buffer, (address, bytes)) in buffers.iter().zip(&places) {
        let shape: Vec<usize> = buffer.const_shape().unwrap().iter().map(|e| *e as usize).collect();
        // SAFETY: the driver has seen that the address is in an allocation; a program's buffers are as large as this.
        let bytes = unsafe { launch.memory(*address, *bytes) }.to_vec();
        arrays.push(Array { dtype: buffer.dtype, shape, bytes });
    }
    machine::run_lowered(&lowered, Mode::Real, &mut arrays)?;
    for (array, (address, bytes)) in arrays.iter().zip(places) {
        // SAFETY: as above; the view of before is gone.
        unsafe { launch.memory(address, bytes) }.copy_from_slice(&array.bytes);
    }
    Ok(())
}

fn bytes(buffer: &warploom::ir::Buffer) -> usize {
    let elements: i64 = buffer.const_shape().unwrap().iter().product();
    buffer.dtype.bytes_of(elements as u64) as usize
}
