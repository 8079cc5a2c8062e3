//! What a launch costs the host: by warploom with its checks, by the driver's call alone, and in a graph, for kernels with
//! nothing, arrays, tensor maps and clusters: `cargo bench --bench launch`. The built program runs by itself: `launch --bench`.
//!
//! Needs a GPU; without one it says SKIPPED. After criterion's figures it prints a line of JSON for each and a table, as
//! `warploom bench --launch` does.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use warploom::measure::{LaunchPath, Launches};
use warploom::{Device, Error, Schedule};

fn launch(c: &mut Criterion) {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => return eprintln!("SKIPPED: {}", error.message()),
    };
    let mut group = c.benchmark_group("launch");
    let mut table =
        format!("{:42} {:>9} {:>9} {:>9}  host us a launch\n", "kernel with", "driver", "warploom", "graph");
    let skipped = |name: &str, error: Error| eprintln!("SKIPPED: {name}: {}", error.message());
    for (name, launches) in Launches::all(&device, &|text| warploom::compile(&Schedule::parse(text)?)) {
        let launches = match launches {
            Ok(launches) => launches,
            Err(error) => {
                skipped(name, error);
                continue;
            }
        };
        for way in LaunchPath::ALL {
            let time = |count| launches.time(way, count).unwrap_or_default();
            group.bench_function(BenchmarkId::new(way.name(), name), |b| b.iter_custom(time));
        }
        match launches.row() {
            Ok(row) => {
                println!("{}", serde_json::to_string(&row).unwrap_or_default());
                let [driver, ours, graph] = [row.driver_us, row.warploom_us, row.graph_us];
                table += &format!("{name:42} {driver:9.3} {ours:9.3} {graph:9.3}\n");
            }
            Err(error) => skipped(name, error),
        }
    }
    group.finish();
    print!("{table}");
}

criterion_group!(benches, launch);
criterion_main!(benches);
