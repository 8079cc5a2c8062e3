//! Random schedules: programs and legal steps drawn from a seed or from a fuzzer's bytes.
//!
//! `cargo test --test it schedules` tries 2,000. `WARPLOOM_SCHEDULES=100000` tries as many, on all cores, and writes
//! what it counted to the file that `WARPLOOM_SCHEDULES_LOG` names, else to `target/schedules.log`.
//! `WARPLOOM_SCHEDULE=17` tries the one of seed 17 and prints it.

mod check;
mod found;
mod programs;
mod shrink;
mod source;
mod steps;

use check::{Case, Depth, Failure, Tally, grow};
use shrink::{guarded, panicked, shrink};
use source::Source;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use warploom::assemble::Ptxas;

/// How many are tried where nothing else is said.
const USUAL: u64 = 2000;

/// After so many failures there is enough to do.
const ENOUGH: usize = 12;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|v| v.parse().ok())
}

/// What is tried of the n-th: every fourth runs in the real types, every `assembled`-th is assembled.
fn depth(n: u64, assembled: u64, tools: &[Ptxas]) -> Depth<'_> {
    Depth { real: n.is_multiple_of(4), code: n.is_multiple_of(assembled).then_some(tools) }
}

/// Grows a schedule and examines it.
fn attempt(source: &mut Source, depth: Depth<'_>, tally: &mut Tally) -> (Case, Result<(), Failure>) {
    let program = programs::program(source);
    let empty = Case { program: program.clone(), target: "sm_90", steps: Vec::new() };
    match catch_unwind(AssertUnwindSafe(|| grow(program, source, tally))) {
        Err(panic) => (empty, Err(panicked(&*panic))),
        Ok(case) => {
            tally.schedules += 1;
            let result = guarded(&case, depth, tally);
            (case, result)
        }
    }
}

fn report(seed: u64, case: &Case, failure: &Failure, depth: Depth<'_>) -> String {
    let (small, why) = match failure.kind.as_str() {
        // While it was grown: the steps are lost, the seed is not.
        "panic" if case.steps.is_empty() => (case.clone(), failure.clone()),
        _ => shrink(case, depth),
    };
    format!("seed {seed}: {}\n{}\n{}--\n", why.kind, why.message, small)
}

/// Tries the seeds on so many threads.
fn tries(seeds: std::ops::Range<u64>, threads: usize, assembled: u64) -> (Tally, Vec<String>) {
    let tools = Ptxas::find(None).unwrap_or_default();
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut tally, mut failures) = (Tally::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failures.len() >= ENOUGH {
                return (tally, failures);
            }
            let depth = depth(seed, assembled, &tools);
            if let (case, Err(failure)) = attempt(&mut Source::seeded(seed), depth, &mut tally) {
                failures.push(report(seed, &case, &failure, depth));
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

#[test]
fn random_schedules_keep_every_promise() {
    let started = Instant::now();
    let (count, threads) = match number("WARPLOOM_SCHEDULES") {
        None => (USUAL, 1),
        Some(n) => (n, std::thread::available_parallelism().map_or(1, usize::from)),
    };
    let first = number("WARPLOOM_SCHEDULE").map_or(0..count, |seed| seed..seed + 1);
    if first.end - first.start == 1 {
        let source = &mut Source::seeded(first.start);
        eprintln!("{}", grow(programs::program(source), source, &mut Tally::default()));
    }
    let (tally, failures) = tries(first, threads, if threads == 1 { 10 } else { 100 });
    let seconds = started.elapsed().as_secs_f64();
    let log = format!("{tally}{} failures, {seconds:.0} s\n\n{}", failures.len(), failures.join("\n"));
    if number("WARPLOOM_SCHEDULES").is_some() {
        let path = std::env::var("WARPLOOM_SCHEDULES_LOG").unwrap_or_else(|_| "target/schedules.log".into());
        std::fs::write(&path, &log).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    eprintln!("{log}");
    assert!(failures.is_empty(), "{} schedules break a promise; the log above shows them", failures.len());
    assert!(tally.share() > 0.5 || count < 100, "only {:.1} % of the steps were accepted", 100.0 * tally.share());
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
