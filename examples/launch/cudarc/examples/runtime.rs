//! The runtime of warploom on a stream and buffers that cudarc owns: `cargo run --example runtime`. Both use the primary context of the
//! device, so addresses and streams of one are addresses and streams of the other.

use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut};
use half::f16;
use launch::{halves, stream};
use std::error::Error;
use warploom::runtime::Device;

/// What `rust_warploom` wrote for the same kernels as `launch::gemm`.
mod gemm {
    include!("../../kernels/gemm_warploom.rs");
}

/// C = A B^T by the first kernels that the device runs: A, B and C.
pub fn run() -> Result<[Vec<f16>; 3], Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let stream = stream(&context)?;
    let device = Device::open(0)?;
    let kernels = gemm::Kernels::load(&device)?;
    let found = gemm::SHAPES.iter().find_map(|shapes| Some((shapes, kernels.variant(shapes).ok()?)));
    let (shapes, variant) = found.ok_or("the device runs none of the kernels")?;
    let (a, b) = (stream.clone_htod(&halves(shapes.a, 1))?, stream.clone_htod(&halves(shapes.b, 2))?);
    let mut c = stream.alloc_zeros::<f16>((shapes.c[0] * shapes.c[1]) as usize)?;
    {
        // The guards tell cudarc, when they are dropped after the launch, that the stream uses the buffers until then.
        let ((at_a, _a), (at_b, _b)) = (a.device_ptr(&stream), b.device_ptr(&stream));
        let (at_c, _c) = c.device_ptr_mut(&stream);
        // SAFETY: the stream is one of the device's primary context, which `Device::open` uses; the buffers are as large as the shapes say
        // and live until the stream is waited for; C is borrowed by this launch alone.
        unsafe { variant.launch_raw(stream.cu_stream().cast(), at_a, at_b, at_c) }?;
    }
    Ok([stream.clone_dtoh(&a)?, stream.clone_dtoh(&b)?, stream.clone_dtoh(&c)?])
}

fn main() -> Result<(), Box<dyn Error>> {
    let [_, _, c] = run()?;
    println!("C[0..4] = {:?}", &c[..4]);
    Ok(())
}
