//! GEMMs by each recipe and by cuBLAS, in time of the device: `cargo bench --bench gemm`.
//!
//! Needs a GPU; without one it says SKIPPED. For figures of record, with a cold cache and paired samples, there is
//! `warploom bench`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;
use warploom::error::Code;
use warploom::gemm::Kind;
use warploom::measure::{Cublas, run_once};
use warploom::runtime::{Device, DeviceBuffer};
use warploom::te::Layout;
use warploom::{Array, DType, Error, Gemm, Result, Target};

/// What is multiplied.
const PRODUCTS: [(DType, Layout); 4] =
    [(DType::F16, Layout::NT), (DType::Bf16, Layout::NN), (DType::S8, Layout::NT), (DType::S4, Layout::NT)];
const SIZES: [i64; 2] = [1024, 4096];

/// Random A, B and C.
fn arrays(gemm: &Gemm) -> Result<Vec<Array>> {
    let program = gemm.program()?;
    let random = |(seed, id): (u64, &warploom::ir::BufferId)| {
        let buffer = program.buffer(*id);
        let shape: Vec<usize> = buffer.const_shape().unwrap_or_default().into_iter().map(|e| e as usize).collect();
        Array::random(buffer.dtype, &shape, seed)
    };
    (1..).zip(&program.params).map(random).collect()
}

/// The device's time of so many launches.
fn launches(device: &Device, count: u64, launch: &dyn Fn() -> Result<()>) -> Result<Duration> {
    let (start, end) = (device.event()?, device.event()?);
    start.record()?;
    (0..count).try_for_each(|_| launch())?;
    end.record()?;
    end.synchronize()?;
    Ok(Duration::from_secs_f64(end.microseconds_since(&start)? * 1e-6))
}

fn all(c: &mut Criterion, device: &Device) -> Result<()> {
    let target = Target::for_device(device.info().sm())
        .ok_or_else(|| Error::chip(Code::DeviceTarget, "no chip of this device is known"))?;
    let cublas = Cublas::open(device, None);
    for (dtype, layout) in PRODUCTS {
        let mut group = c.benchmark_group(format!("{dtype} {}", layout.name()));
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for n in SIZES {
            let gemm = Gemm::new(n, n, n).of(dtype).layout(layout);
            let arrays = arrays(&gemm)?;
            let buffers = arrays.iter().map(|a| device.upload(a)).collect::<Result<Vec<DeviceBuffer>>>()?;
            group.throughput(Throughput::Elements(2 * (n * n * n) as u64));
            for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Naive) {
                let program = match kind.schedule(&gemm, &target).and_then(|s| device.load(&warploom::compile(&s)?)) {
                    Ok(program) => program,
                    Err(error) => {
                        eprintln!("SKIPPED: {} {dtype} {n}: {}", kind.name(), error.message());
                        continue;
                    }
                };
                run_once(&program, &arrays)?;
                let launch = || program.launch(&buffers.iter().collect::<Vec<_>>());
                let time = |count| launches(device, count, &launch).unwrap_or_default();
                group.bench_function(BenchmarkId::new(kind.name(), n), |b| b.iter_custom(time));
            }
            if let (Ok(cublas), [a, b, c, ..]) = (&cublas, &buffers[..])
                && cublas.gemm(gemm.spec(), a, b, c).is_ok()
            {
                let launch = || cublas.gemm(gemm.spec(), a, b, c);
                let time = |count| launches(device, count, &launch).unwrap_or_default();
                group.bench_function(BenchmarkId::new("cuBLAS", n), |b| b.iter_custom(time));
            }
        }
        group.finish();
    }
    Ok(())
}

fn gemm(c: &mut Criterion) {
    let outcome = Device::open(0).and_then(|device| all(c, &device));
    if let Err(error) = outcome {
        eprintln!("SKIPPED: {}", error.message());
    }
}

criterion_group!(benches, gemm);
criterion_main!(benches);
