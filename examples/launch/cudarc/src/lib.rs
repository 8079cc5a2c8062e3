//! Compiled kernels on the streams and buffers of cudarc, by launchers that `warploom::artifact::launcher::rust_cudarc` wrote beside the
//! PTX in `examples/launch/kernels`. warploom is no dependency of this crate.

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DriverError, sys};
use half::f16;
use std::sync::Arc;

/// C = A B^T in f16, for the shapes `gemm::SHAPES`.
pub mod gemm {
    include!("../../kernels/gemm_cudarc.rs");
}

/// C = A B in f32 by two kernels with workspace between them.
pub mod split {
    include!("../../kernels/split_cudarc.rs");
}

/// C = A B^T in f16 for every number of rows up to 256, by a kernel for each of two ranges.
pub mod rows {
    include!("../../kernels/rows_cudarc.rs");
}

/// What goes wrong here.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A matrix of small whole numbers, whose products f16 and f32 hold exactly.
pub fn numbers([rows, columns]: [i64; 2], seed: i64) -> Vec<f32> {
    (0..rows * columns).map(|n| ((n * 7 + seed) % 5 - 2) as f32).collect()
}

/// As [`numbers`], in f16.
pub fn halves(shape: [i64; 2], seed: i64) -> Vec<f16> {
    numbers(shape, seed).into_iter().map(f16::from_f32).collect()
}

/// Runs the kernels for these shapes on a stream; A, B and C as they are afterwards.
///
/// # Errors
/// Shapes and devices without kernels; what the driver answers.
pub fn product(stream: &Arc<CudaStream>, kernels: &gemm::Kernels, shapes: &gemm::Shapes) -> Result<[Vec<f16>; 3]> {
    let variant = kernels.variant(shapes)?;
    let (a, b) = (stream.clone_htod(&halves(shapes.a, 1))?, stream.clone_htod(&halves(shapes.b, 2))?);
    let mut c = stream.alloc_zeros::<f16>((shapes.c[0] * shapes.c[1]) as usize)?;
    variant.launch(stream, &a, &b, &mut c)?;
    Ok([stream.clone_dtoh(&a)?, stream.clone_dtoh(&b)?, stream.clone_dtoh(&c)?])
}

/// Runs the kernels for so many rows on a stream: a dispatch finds the range that has them.
///
/// # Errors
/// As [`product`].
pub fn rows_product(stream: &Arc<CudaStream>, kernels: &rows::Kernels, count: i64) -> Result<Vec<f16>> {
    let shapes = rows::Shapes { a: [count, 64], c: [count, 64], ..rows::SHAPES[0] };
    let (a, b) = (stream.clone_htod(&halves(shapes.a, 1))?, stream.clone_htod(&halves(shapes.b, 2))?);
    let mut c = stream.alloc_zeros::<f16>((count * 64) as usize)?;
    kernels.dispatch(&shapes, stream, &a, &b, &mut c)?;
    Ok(stream.clone_dtoh(&c)?)
}

/// As [`product`] for kernels that need workspace, which is allocated once and serves every launch on the stream.
///
/// # Errors
/// As there.
pub fn split_product(stream: &Arc<CudaStream>, kernels: &split::Kernels) -> Result<[Vec<f32>; 3]> {
    let shapes = split::SHAPES[0];
    let variant = kernels.variant(&shapes)?;
    let mut workspace = stream.alloc_zeros::<u8>(variant.workspace_bytes())?;
    let (a, b) = (stream.clone_htod(&numbers(shapes.a, 1))?, stream.clone_htod(&numbers(shapes.b, 2))?);
    let mut c = stream.alloc_zeros::<f32>((shapes.c[0] * shapes.c[1]) as usize)?;
    variant.launch(stream, &a, &b, &mut c, Some(&mut workspace))?;
    Ok([stream.clone_dtoh(&a)?, stream.clone_dtoh(&b)?, stream.clone_dtoh(&c)?])
}

/// Records a launch in a graph, and launches the graph so many times; C afterwards. Inside a recording the launch takes addresses, because
/// cudarc records events for its buffers.
///
/// # Errors
/// As [`product`].
pub fn recorded(
    stream: &Arc<CudaStream>,
    kernels: &gemm::Kernels,
    shapes: &gemm::Shapes,
    times: usize,
) -> Result<Vec<f16>> {
    let variant = kernels.variant(shapes)?;
    let (a, b) = (stream.clone_htod(&halves(shapes.a, 1))?, stream.clone_htod(&halves(shapes.b, 2))?);
    let c = stream.alloc_zeros::<f16>((shapes.c[0] * shapes.c[1]) as usize)?;
    let [at_a, at_b, at_c] = [&a, &b, &c].map(|buffer| buffer.device_ptr(stream).0);
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    // SAFETY: the buffers are as large as the shapes say, and live until the graph has run.
    let launched = unsafe { variant.launch_raw(stream.cu_stream(), at_a, at_b, at_c) };
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0))?;
    launched?;
    let graph = graph.ok_or("nothing was recorded")?;
    (0..times).try_for_each(|_| graph.launch())?;
    Ok(stream.clone_dtoh(&c)?)
}

/// The stream that the launches use: not the default one, which cannot be captured.
///
/// # Errors
/// What the driver answers.
pub fn stream(context: &Arc<CudaContext>) -> std::result::Result<Arc<CudaStream>, DriverError> {
    context.new_stream()
}
