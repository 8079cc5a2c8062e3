//! Checks the results of this crate's kernels, and times their launches on the host: `cargo run --release --example launches [BATCHES]`.
//!
//! A launch is timed in three ways, in turn: by the driver's own call with prepared parameters, by the generated launcher for cudarc, and by the
//! generated launcher for warploom's runtime. A batch is 200 launches behind one another; the figures are medians over the batches, in us.

#[allow(dead_code)]
#[path = "runtime.rs"]
mod runtime;

use cudarc::driver::{CudaContext, DevicePtr};
use half::f16;
use launch::{Result, halves, numbers, product, recorded, rows, rows_product, split, split_product, stream};
use std::time::Instant;

/// The generated launcher for cudarc once more, with the driver's own call beside it.
mod own {
    include!("../../kernels/gemm_cudarc.rs");

    /// The parameters of a launch of a single kernel without dynamic sizes.
    pub struct Prepared {
        values: Vec<Value>,
        attributes: [sys::CUlaunchAttribute; 2],
    }

    impl Prepared {
        /// Those for these addresses of A, B and C.
        pub fn new(variant: &Variant, addresses: &[u64; 3]) -> Result<Prepared, Error> {
            let value = |parameter: &Parameter| match parameter {
                Parameter::Map(map) => match map.array {
                    Place::Argument(n) => encode(map, addresses[n], 0),
                    Place::Workspace(_) => Err(Error::Workspace { needed: 0 }),
                },
                Parameter::Address(Place::Argument(n)) => Ok(Value([addresses[*n]; 16])),
                _ => Err(Error::Workspace { needed: 0 }),
            };
            let kernel = variant.kernels[0].kernel;
            let values = kernel.parameters.iter().map(value).collect::<Result<_, _>>()?;
            Ok(Prepared { values, attributes: attributes_of(kernel).0 })
        }

        /// The driver's own call, as the launcher makes it.
        ///
        /// # Safety
        /// As [`Variant::launch_raw`] with the addresses of [`Prepared::new`].
        pub unsafe fn launch(&mut self, variant: &Variant, stream: sys::CUstream) -> Result<(), DriverError> {
            let loaded = &variant.kernels[0];
            let mut pointers = [std::ptr::null_mut::<c_void>(); MOST_PARAMETERS];
            for (pointer, value) in pointers.iter_mut().zip(&mut self.values) {
                *pointer = (value as *mut Value).cast();
            }
            let count = attributes_of(loaded.kernel).1;
            let config = config_of(loaded, grid_of(loaded, &[]), stream, &mut self.attributes[..count]);
            // SAFETY: the values are those of the launcher, and live until the driver has copied them.
            unsafe { sys::cuLaunchKernelEx(&config, loaded.function, pointers.as_mut_ptr(), std::ptr::null_mut()) }
                .result()
        }
    }
}

/// The launcher for warploom's runtime.
mod by_runtime {
    include!("../../kernels/gemm_warploom.rs");
}

/// Whether C is A B, or A B^T, of these shapes, to the last bit: the matrices hold small whole numbers.
fn right([m, k]: [i64; 2], [b_rows, b_columns]: [i64; 2], transposed: bool, c: &[f32]) -> bool {
    let (a, b) = (numbers([m, k], 1), numbers([b_rows, b_columns], 2));
    let n = if transposed { b_rows } else { b_columns };
    let at =
        |j: i64, t: i64| if transposed { b[(j * b_columns + t) as usize] } else { b[(t * b_columns + j) as usize] };
    let element = |i: i64, j: i64| (0..k).map(|t| a[(i * k + t) as usize] * at(j, t)).sum::<f32>();
    c.len() as i64 == m * n && (0..m * n).all(|e| c[e as usize] == element(e / n, e % n))
}

fn floats(c: &[f16]) -> Vec<f32> {
    c.iter().map(|value| value.to_f32()).collect()
}

/// The number of results of kernels for fixed sizes that were checked: launched, in a graph, with workspace, and by the runtime.
pub fn check() -> Result<usize> {
    let context = CudaContext::new(0)?;
    let stream = stream(&context)?;
    let mut checked = Checked(0);
    let gemms = launch::gemm::Kernels::load(&context)?;
    for shapes in &launch::gemm::SHAPES {
        let Ok([_, _, c]) = product(&stream, &gemms, shapes) else { continue };
        checked.add("gemm", right(shapes.a, shapes.b, true, &floats(&c)))?;
        let again = recorded(&stream, &gemms, shapes, 2)?;
        checked.add("gemm in a graph", right(shapes.a, shapes.b, true, &floats(&again)))?;
    }
    let [_, _, c] = split_product(&stream, &split::Kernels::load(&context)?)?;
    checked.add("split", right(split::SHAPES[0].a, split::SHAPES[0].b, false, &c))?;
    let [a, b, c] = runtime::run()?;
    let shapes =
        launch::gemm::SHAPES.iter().find(|s| s.a[0] * s.a[1] == a.len() as i64 && s.b[0] * s.b[1] == b.len() as i64);
    let shapes = shapes.ok_or("the runtime's launcher has other shapes")?;
    checked.add("the runtime's launcher", right(shapes.a, shapes.b, true, &floats(&c)))?;
    Ok(checked.0)
}

/// The number of values of a dynamic M whose results were checked.
fn check_dynamic() -> Result<usize> {
    let context = CudaContext::new(0)?;
    let stream = stream(&context)?;
    let mut checked = Checked(0);
    let ranges = rows::Kernels::load(&context)?;
    for count in [1, 17, 64, 65, 129, 256] {
        let c = rows_product(&stream, &ranges, count)?;
        checked.add("rows", right([count, 64], rows::SHAPES[0].b, true, &floats(&c)))?;
    }
    Ok(checked.0)
}

/// Results that are right.
struct Checked(usize);

impl Checked {
    fn add(&mut self, name: &str, is_right: bool) -> Result<()> {
        self.0 += 1;
        if is_right { Ok(()) } else { Err(format!("{name}: a result is wrong").into()) }
    }
}

/// Microseconds of the host for a launch in batches of so many: by the driver's own call, by the launcher for cudarc, by the launcher for the runtime.
pub fn times(batches: usize, launches: u32) -> Result<[f64; 3]> {
    let context = CudaContext::new(0)?;
    let stream = stream(&context)?;
    let device = warploom::runtime::Device::open(0)?;
    let (kernels, raw) = (own::Kernels::load(&context)?, by_runtime::Kernels::load(&device)?);
    let found = own::SHAPES.iter().find_map(|shapes| Some((shapes, kernels.variant(shapes).ok()?)));
    let (shapes, variant) = found.ok_or("the device runs none of the kernels")?;
    let of_runtime = by_runtime::SHAPES.iter().find(|s| (s.a, s.b, s.c) == (shapes.a, shapes.b, shapes.c));
    let of_runtime = raw.variant(of_runtime.ok_or("the launchers have other shapes")?)?;
    let (a, b) = (stream.clone_htod(&halves(shapes.a, 1))?, stream.clone_htod(&halves(shapes.b, 2))?);
    let c = stream.alloc_zeros::<f16>((shapes.c[0] * shapes.c[1]) as usize)?;
    let at = [&a, &b, &c].map(|buffer| buffer.device_ptr(&stream).0);
    let mut prepared = own::Prepared::new(variant, &at)?;
    let mut one = |way: usize| -> Result<()> {
        // SAFETY: the buffers are as large as the shapes say, live until the stream has been waited for, and C is used here alone.
        unsafe {
            match way {
                0 => prepared.launch(variant, stream.cu_stream())?,
                1 => variant.launch_raw(stream.cu_stream(), at[0], at[1], at[2])?,
                _ => of_runtime.launch_raw(stream.cu_stream().cast(), at[0], at[1], at[2])?,
            }
        }
        Ok(())
    };
    let mut all = [const { Vec::new() }; 3];
    for batch in 0..batches + 2 {
        for (way, times) in all.iter_mut().enumerate() {
            stream.synchronize()?;
            let begin = Instant::now();
            (0..launches).try_for_each(|_| one(way))?;
            let us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(launches);
            // The first two load the code and fill caches.
            if batch > 1 {
                times.push(us);
            }
        }
    }
    stream.synchronize()?;
    Ok(all.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

fn main() -> Result<()> {
    let batches = std::env::args().nth(1).map_or(Ok(50), |batches| batches.parse())?;
    println!("{} results are right to the last bit", check()? + check_dynamic()?);
    let [own, cudarc, runtime] = times(batches.max(1), 200)?;
    println!(
        "us of the host for a launch: the driver's own call {own:.3}, the launcher for cudarc {cudarc:.3}, the launcher for the runtime {runtime:.3}"
    );
    Ok(())
}
