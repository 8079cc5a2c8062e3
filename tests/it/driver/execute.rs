//! Programs from their text to results that come back from the device: the mock driver has the simulator run each
//! kernel, on the memory that its launch names.

use super::mock::{Launch, Mock, alone};
use crate::sample::drawn;
use crate::{cases, gemms, gpu};
use std::sync::Mutex;
use warploom::lower::{self, Lowered, LoweredKernel};
use warploom::measure::run_once;
use warploom::reference::{self, Sample};
use warploom::runtime::Device;
use warploom::sim::{self, Mode};
use warploom::{Array, Kernels, Schedule};

/// The kernels of the program at hand, by entry.
static KERNELS: Mutex<Vec<(String, LoweredKernel)>> = Mutex::new(Vec::new());

/// Compiles a schedule, and from now on has the driver run its kernels on the simulator.
pub fn compile(mock: &Mock, schedule: &Schedule) -> Kernels {
    let kernels = warploom::compile(schedule).unwrap();
    let lowered = lower::lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let entries = kernels.kernels.iter().map(|k| k.entry.clone());
    *KERNELS.lock().unwrap() = entries.zip(lowered.kernels).collect();
    mock.executor(run);
    kernels
}

/// CUDA_ERROR_LAUNCH_FAILED where the simulator finds anything wrong.
extern "C" fn run(launch: &Launch) -> i32 {
    let kernels = KERNELS.lock().unwrap();
    let Some((_, kernel)) = kernels.iter().find(|k| k.0 == launch.entry()) else { return 719 };
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
    let mut alone = kernel.clone();
    alone.workspace.clear();
    let params = buffers.iter().map(|b| b.name.clone()).collect();
    let lowered = Lowered::new(func.name.clone(), params, vec![alone]);
    let places: Vec<(u64, usize)> = launch.addresses().into_iter().zip(buffers.iter().map(|b| bytes(b))).collect();
    let mut arrays = Vec::new();
    for (buffer, (address, bytes)) in buffers.iter().zip(&places) {
        let shape: Vec<usize> = buffer.const_shape().unwrap().iter().map(|e| *e as usize).collect();
        // SAFETY: the driver has seen that the address is in an allocation; a program's buffers are as large as this.
        let bytes = unsafe { launch.memory(*address, *bytes) }.to_vec();
        arrays.push(Array { dtype: buffer.dtype, shape, bytes });
    }
    sim::run_lowered(&lowered, Mode::Real, &mut arrays)?;
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

/// A quarter of the examples, as the commit draws them, and the first.
#[test]
fn every_example_is_right_from_text_to_result() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let examples = cases::compiling_examples().enumerate();
        for (_, (name, schedule)) in examples.filter(|(n, (name, _))| *n == 0 || drawn(&format!("to result {name}"), 4))
        {
            let size = if name == "worked_example" { [256, 256, 64] } else { [128, 128, cases::depth(&schedule)] };
            let small = schedule.resized(&size).ok().filter(|small| small.scheduled().is_ok());
            is_right(mock, &device, &name, &small.unwrap_or_else(|| cases::small_example(&name, &schedule)));
        }
    });
}

#[test]
fn products_at_edges_are_right_from_text_to_result() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let few = gemms::few();
        assert!(few.len() >= 8, "{}", few.len());
        few.iter().for_each(|(name, schedule)| is_right(mock, &device, name, schedule));
    });
}

fn is_right(mock: &Mock, device: &Device, name: &str, schedule: &Schedule) {
    let kernels = compile(mock, schedule);
    let given = gpu::arguments(&schedule.program, |dtype, shape, seed| Array::random_integers(dtype, shape, 3, seed));
    let given = given.unwrap();
    let after = device.load(&kernels).and_then(|program| run_once(&program, &given));
    let after = after.unwrap_or_else(|e| panic!("{name}: {e}"));
    let rows = Sample::Rows { count: 16, seed: 3 };
    for output in reference::outputs(&schedule.program, &given, rows).unwrap() {
        let got = &after[output.param];
        match gpu::rounds(&schedule.program) {
            true => assert!(output.bound(got).unwrap_or_else(|e| panic!("{name}: {e}")).ratio <= 1.0, "{name}"),
            false => output.exact(got).unwrap_or_else(|e| panic!("{name}: {e}")),
        }
    }
}
