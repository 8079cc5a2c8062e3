//! From a schedule's text to PTX, for every example: the whole by criterion, the shares of its parts, and a hit of the cache.
//!
//! `cargo bench --bench compile` prints one line for each example, then criterion's figures. `cached` is a hit of a cache of few entries,
//! `of 4096` a hit beside 4096 others: a hit lists no folder, so both are alike, and below a millisecond. Every example is to stay under
//! 50 ms, and the worked example, which takes every step for Hopper, under 60.

use criterion::{Criterion, criterion_group, criterion_main};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use warploom::artifact::Cache;
use warploom::{Schedule, codegen, compile_cached, lower};

/// Runs for each share; the median counts.
const RUNS: usize = 9;

/// Other entries of the crowded cache.
const OTHERS: usize = 4096;

/// A cache in a folder of its own, with so many entries that no key finds.
fn cache(name: &str, others: usize) -> Cache {
    let folder = std::env::temp_dir().join(format!("warploom-bench-{name}-{}", std::process::id()));
    let cache = Cache::at(&folder).expect("a cache in the folder for temporary files");
    (0..others).for_each(|n| fs::write(folder.join(format!("{n:064x}.warploom")), "").expect("an entry"));
    cache
}

fn examples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut paths: Vec<_> = fs::read_dir(folder).expect("examples/").flatten().map(|e| e.path()).collect();
    paths.sort();
    let read = |p: std::path::PathBuf| {
        let name = p.file_stem()?.to_str()?.to_string();
        Some((name, fs::read_to_string(&p).ok()?))
    };
    let compiles = |(_, text): &(String, String)| Schedule::parse(text).and_then(|s| warploom::compile(&s)).is_ok();
    paths.into_iter().filter_map(read).filter(compiles).collect()
}

/// The median time of a piece of work, with its last result.
fn timed<T>(mut work: impl FnMut() -> warploom::Result<T>) -> (Duration, T) {
    let mut times = Vec::with_capacity(RUNS);
    let mut last = None;
    for _ in 0..RUNS {
        let start = Instant::now();
        let result = black_box(work());
        times.push(start.elapsed());
        last = result.ok();
    }
    times.sort();
    (times[RUNS / 2], last.expect("the example compiles"))
}

fn shares(examples: &[(String, String)]) {
    eprintln!(
        "{:24} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  milliseconds",
        "example", "parse", "steps", "lower", "LLVM", "whole", "cached", "of 4096"
    );
    let (few, many) = (cache("few", 0), cache("many", OTHERS));
    for (name, text) in examples {
        let (parse, schedule) = timed(|| Schedule::parse(text));
        let (steps, func) = timed(|| schedule.scheduled());
        let (lowering, lowered) = timed(|| lower::lower(&func, &schedule.target));
        let (llvm, _) = timed(|| codegen::compile(&lowered, &schedule.target));
        // The first of these runs compiles; the median is a hit.
        let [cached, crowded] = [&few, &many].map(|cache| timed(|| compile_cached(&schedule, cache, None)).0);
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let whole = parse + steps + lowering + llvm;
        eprintln!(
            "{name:24} {:9.3} {:9.3} {:9.3} {:9.3} {:9.3} {:9.3} {:9.3}",
            ms(parse),
            ms(steps),
            ms(lowering),
            ms(llvm),
            ms(whole),
            ms(cached),
            ms(crowded)
        );
    }
    [few, many].iter().for_each(|cache| drop(fs::remove_dir_all(cache.folder())));
}

fn schedule_to_ptx(c: &mut Criterion) {
    let examples = examples();
    shares(&examples);
    let mut group = c.benchmark_group("schedule to PTX");
    group.sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    for (name, text) in &examples {
        group.bench_function(name, |b| {
            b.iter(|| Schedule::parse(black_box(text)).and_then(|s| warploom::compile(&s)));
        });
    }
    group.finish();
}

criterion_group!(benches, schedule_to_ptx);
criterion_main!(benches);
