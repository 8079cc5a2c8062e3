//! What a launch costs the host: ours, with its checks, beside the driver's call alone, with and without clusters:
//! `cargo bench --bench launch`.
//!
//! Needs a GPU; without one it says SKIPPED. The queue of the stream is emptied outside of what is timed: a full one makes
//! the host wait.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::time::{Duration, Instant};
use warploom::Result;
use warploom::measure::nothing;
use warploom::runtime::{Device, Program};

/// Launches between two waits: fewer than a queue holds.
const ROUND: u64 = 256;

/// The host's time of so many launches, some at a time.
fn rounds(device: &Device, mut count: u64, some: &dyn Fn(u64) -> Result<Duration>) -> Result<Duration> {
    let mut total = Duration::ZERO;
    while count > 0 {
        let now = count.min(ROUND);
        total += some(now)?;
        device.synchronize()?;
        count -= now;
    }
    Ok(total)
}

fn ours(program: &Program, count: u64) -> Result<Duration> {
    let start = Instant::now();
    (0..count).try_for_each(|_| program.launch(&[]))?;
    Ok(start.elapsed())
}

fn all(c: &mut Criterion, device: &Device) -> Result<()> {
    let mut group = c.benchmark_group("launch");
    for cluster in [1, 2] {
        if cluster > 1 && !device.info().clusters {
            continue;
        }
        let program = device.load(&nothing(cluster))?;
        rounds(device, ROUND, &|n| ours(&program, n))?;
        let bare = |n| program.time_bare_launches(n);
        let whole = |n| ours(&program, n);
        for (name, some) in [("driver", &bare as &dyn Fn(u64) -> Result<Duration>), ("warploom", &whole)] {
            let time = |count| rounds(device, count, some).unwrap_or_default();
            group.bench_function(BenchmarkId::new(name, format!("clusters of {cluster}")), |b| b.iter_custom(time));
        }
    }
    group.finish();
    Ok(())
}

fn launch(c: &mut Criterion) {
    let outcome = Device::open(0).and_then(|device| all(c, &device));
    if let Err(error) = outcome {
        eprintln!("SKIPPED: {}", error.message());
    }
}

criterion_group!(benches, launch);
criterion_main!(benches);
