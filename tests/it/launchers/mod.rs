//! Launchers that are written for compiled kernels: what they say, and what they do against the mock driver.

pub(crate) mod c;
mod written;

use warploom::artifact::launcher::Unit;
use warploom::{Kernels, Schedule, compile};

/// An example at another size, compiled.
fn example(name: &str, size: &[i64]) -> Kernels {
    compile(&schedule(name, size)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn schedule(name: &str, size: &[i64]) -> Schedule {
    let text = std::fs::read_to_string(format!("examples/{name}.loom")).unwrap();
    let schedule: Schedule = text.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
    schedule.resized(size).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// `vec_add` for a size and a chip.
fn add(size: i64, target: &str) -> Kernels {
    let text =
        format!("vec_add {size}\ntarget {target}\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x");
    compile(&text.parse().unwrap()).unwrap()
}

/// A GEMM of dynamic M, 64 columns and k of 64, with recommended steps.
fn rows(range: &str, target: &str) -> Kernels {
    let text = format!("gemm {range}x64x64 f16>f32>f16 NT\ntarget {target}\nrecommend\n");
    compile(&text.parse().unwrap()).unwrap()
}

fn unit(kernels: &Kernels) -> Unit<'_> {
    Unit { kernels, ptx: "kernels.ptx", cubin: None }
}
