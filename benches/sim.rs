//! Speed of the simulator in statements a second: `cargo bench --bench machine`.
//!
//! The naive GEMM in sequence, and the kernels of some examples with their warps, with the search for races and without.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use warploom::loom::Schedule;
use warploom::lower::lower;
use warploom::sim::{Mode, Options, run_func, run_lowered_with};
use warploom::{Array, Error, Result};

const EXAMPLES: [(&str, &str); 3] = [
    ("gpu_v2", include_str!("../examples/gpu_v2.loom")),
    ("gpu_v3", include_str!("../examples/gpu_v3.loom")),
    ("mlc_shared", include_str!("../examples/mlc_shared.loom")),
];

fn arguments(schedule: &Schedule) -> Result<Vec<Array>> {
    let func = &schedule.program;
    let shape = |p: &warploom::ir::BufferId| func.buffer(*p).const_shape().unwrap_or_default();
    let random = |p| {
        let shape: Vec<usize> = shape(p).into_iter().map(|n| n as usize).collect();
        Array::random(func.buffer(*p).dtype, &shape, 1)
    };
    func.params.iter().map(random).collect()
}

fn all(c: &mut Criterion) -> Result<()> {
    let mut group = c.benchmark_group("sim");
    group.sample_size(10);
    for (name, text) in EXAMPLES {
        let schedule = Schedule::parse(text)?.resized(&[128, 128, 128])?;
        let lowered = lower(&schedule.scheduled()?, &schedule.target)?;
        let mut args = arguments(&schedule)?;
        if name == EXAMPLES[0].0 {
            let stats = run_func(&schedule.program, Mode::Real, &mut args)?;
            group.throughput(Throughput::Elements(stats.statements));
            group.bench_function("in sequence", |b| b.iter(|| run_func(&schedule.program, Mode::Real, &mut args)));
        }
        for mode in [Mode::Real, Mode::Integer] {
            if mode == Mode::Integer {
                let ring = |a: &Array| Array::zeros(warploom::DType::U32, &a.shape);
                args = args.iter().map(ring).collect::<Result<_>>()?;
            }
            for races in [true, false] {
                let options = Options::new(mode).with_races(races);
                let stats = run_lowered_with(&lowered, &options, &mut args)?;
                group.throughput(Throughput::Elements(stats.statements));
                let id = BenchmarkId::new(name, format!("{mode:?}{}", if races { "" } else { " unchecked" }));
                group.bench_function(id, |b| b.iter(|| run_lowered_with(&lowered, &options, &mut args)));
            }
        }
    }
    group.finish();
    Ok(())
}

fn machine(c: &mut Criterion) {
    if let Err(error) = all(c) {
        let error: Error = error;
        eprintln!("{error}");
    }
}

criterion_group!(benches, machine);
criterion_main!(benches);
