//! Random schedules: programs and legal steps drawn from a seed or from a fuzzer's bytes.
//!
//! `cargo test --test it schedules` tries 2,000. `WARPLOOM_SCHEDULES=100000` tries the first 100,000 seeds on all cores,
//! `WARPLOOM_SCHEDULES=40000..100000` those; what was counted goes, every 1,000 seeds, to the file that
//! `WARPLOOM_SCHEDULES_LOG` names, else to `target/tmp/schedules.log`. `WARPLOOM_SCHEDULE=17` tries the one of seed 17 and
//! prints it. A failure is made small and written to `target/tmp/schedules/SEED.loom`. `tests/fuzz` feeds a fuzzer's bytes
//! to the same generator.

mod attempt;
mod check;
mod found;
mod groups;
mod products;
mod programs;
mod shrink;
mod source;
mod steps;

use attempt::{attempt, reproducer};
use check::{Depth, Tally, grow};
use source::Source;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use warploom::assemble::Ptxas;

/// How many are tried where nothing else is said.
const USUAL: u64 = 2000;

/// After so many failures there is enough to do.
const ENOUGH: usize = 12;

/// The log is written after so many.
const CHUNK: u64 = 1000;

/// The seeds that a variable names: `17`, as many as that from 0 on, or `3..17`.
fn seeds(variable: &str) -> Option<Range<u64>> {
    let text = std::env::var(variable).ok()?;
    let number = |t: &str| t.parse().unwrap_or_else(|_| panic!("{variable}={text}: write N or FROM..TO"));
    Some(text.split_once("..").map_or_else(|| 0..number(&text), |(from, to)| number(from)..number(to)))
}

/// What is tried of the n-th: every fourth runs in the real types, every `assembled`-th is assembled.
fn depth(n: u64, assembled: u64, tools: &[Ptxas]) -> Depth<'_> {
    Depth { real: n.is_multiple_of(4), code: n.is_multiple_of(assembled).then_some(tools) }
}

/// A failure in full, which is also written to a file.
fn report(seed: u64, reproducer: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schedules");
    let path = folder.join(format!("{seed}.loom"));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, reproducer));
    written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    format!("seed {seed}, {}:\n{reproducer}--\n", path.display())
}

/// Tries the seeds on so many threads.
fn tries(seeds: Range<u64>, threads: usize, assembled: u64, tools: &[Ptxas]) -> (Tally, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut tally, mut failures) = (Tally::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failures.len() >= ENOUGH {
                return (tally, failures);
            }
            let depth = depth(seed, assembled, tools);
            if let (case, Err(failure)) = attempt(&mut Source::seeded(seed), depth, &mut tally) {
                failures.push(report(seed, &reproducer(&case, &failure, depth)));
            }
        }
    };
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (counted, found) = worker.join().expect("a worker ends");
            tally.merge(&counted);
            failures.extend(found);
        }
    });
    (tally, failures)
}

/// A long run: on all cores, in chunks, with a log that is up to date.
fn record(seeds: Range<u64>) -> (Tally, Vec<String>) {
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let path = std::env::var("WARPLOOM_SCHEDULES_LOG")
        .unwrap_or_else(|_| concat!(env!("CARGO_TARGET_TMPDIR"), "/schedules.log").into());
    let tools = Ptxas::find(None).unwrap_or_default();
    let (mut tally, mut failures, mut done) = (Tally::default(), Vec::new(), seeds.start);
    while done < seeds.end && failures.len() < ENOUGH {
        let end = seeds.end.min(done + CHUNK);
        let (counted, found) = tries(done..end, threads, 100, &tools);
        tally.merge(&counted);
        failures.extend(found);
        done = end;
        let log = format!(
            "seeds {}..{done} of {}..{}: {} failures, {:.0} s on {threads} threads\n{tally}\n{}",
            seeds.start,
            seeds.start,
            seeds.end,
            failures.len(),
            started.elapsed().as_secs_f64(),
            failures.join("\n")
        );
        fs::write(&path, log).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    (tally, failures)
}

#[test]
fn random_schedules_keep_every_promise() {
    let one = seeds("WARPLOOM_SCHEDULE").map(|s| s.end);
    if let Some(seed) = one {
        let source = &mut Source::seeded(seed);
        eprintln!("{}", grow(programs::program(source), source, &mut Tally::default()));
    }
    let tools = Ptxas::find(None).unwrap_or_default();
    let (tally, failures) = match (one, seeds("WARPLOOM_SCHEDULES")) {
        (Some(seed), _) => tries(seed..seed + 1, 1, 1, &tools),
        (None, Some(seeds)) => record(seeds),
        (None, None) => tries(0..USUAL, 1, 10, &tools),
    };
    eprintln!("{tally}{}", failures.join("\n"));
    assert!(failures.is_empty(), "{} schedules break a promise; they are shown above", failures.len());
    let share = 100.0 * tally.share();
    let tensorized = 100.0 * tally.tensorized();
    assert!(tensorized > 5.0 || tally.schedules < 1000, "only {tensorized:.1} % of the schedules had an instruction");
    assert!(share > 85.0 || tally.schedules < 100, "only {share:.1} % of the steps were accepted");
}

/// Bytes of any kind make a schedule, as a fuzzer would.
#[test]
fn bytes_make_schedules_too() {
    let mut tally = Tally::default();
    for n in 0..20u64 {
        let bytes: Vec<u8> = (0..40 + n).map(|i| (i.wrapping_mul(n.wrapping_mul(77) + 13) >> 1) as u8).collect();
        let depth = Depth { real: false, code: None };
        if let (_, Err(failure)) = attempt(&mut Source::Bytes(&bytes), depth, &mut tally) {
            panic!("{bytes:?}: {}\n{}", failure.kind, failure.message);
        }
    }
    assert_eq!(tally.schedules, 20);
}
