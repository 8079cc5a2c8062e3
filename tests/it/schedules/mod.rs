//! Random schedules: programs and legal steps drawn from a seed or from a fuzzer's bytes.
//!
//! There are two generators: `schedule` takes any program, any steps and any chip, `hopper` starts from what recipes for sm_90a
//! do and changes it. `cargo test --test it schedules` tries 100 of the one, whose seeds follow from the commit, and a few of
//! the other; for the second one the names of the variables below have `HOPPER` in the place of `SCHEDULE`.
//! `WARPLOOM_SCHEDULES=100000` tries the first 100,000 seeds on all cores, `WARPLOOM_SCHEDULES=40000..100000` those; what was
//! counted goes, every 500 seeds, to the file that `WARPLOOM_SCHEDULES_LOG` names, else to `target/tmp/schedules.log`.
//! `WARPLOOM_SCHEDULE=17` tries the one of seed 17 and prints it. A failure is made small and written to
//! `target/tmp/schedules/SEED.loom`. `tests/fuzz` feeds a fuzzer's bytes to the same generator.

mod attempt;
mod check;
mod found;
mod groups;
mod hopper;
mod huge;
mod levels;
mod products;
mod programs;
mod random;
mod recipes;
mod rewrites;
mod shrink;
mod source;
mod steps;
mod times;

use super::sample;
use attempt::{ANY, Generator, attempt, reproducer};
use check::{Case, Depth, LIMITS, Tally};
use source::Source;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use warploom::assemble::Ptxas;
use warploom::schedule::primitive::{ALL, Primitive};

/// How many are tried where nothing else is said.
const USUAL: u64 = 100;

/// The first seed: another one for every commit, 0 where no commit is known.
fn first_seed() -> u64 {
    sample::commit() * USUAL
}

/// After so many failures there is enough to do.
const ENOUGH: usize = 12;

/// The log is written after so many.
const CHUNK: u64 = 500;

/// The numbers that a variable names: `17`, as many as that from 0 on, or `3..17`.
pub fn numbers(variable: &str) -> Option<Range<u64>> {
    let variable = format!("WARPLOOM_{}", variable.to_uppercase());
    let text = std::env::var(&variable).ok()?;
    let number = |t: &str| t.parse().unwrap_or_else(|_| panic!("{variable}={text}: write N or FROM..TO"));
    Some(text.split_once("..").map_or_else(|| 0..number(&text), |(from, to)| number(from)..number(to)))
}

/// How often a part of what is tried is tried: for every so many schedules once.
#[derive(Clone, Copy)]
struct Every {
    /// The PTX runs.
    ptx: u64,
    /// ptxas assembles it.
    assembled: u64,
}

/// What is tried of the n-th; every eighth runs in the real types on reals.
fn depth(n: u64, every: Every, tools: &[Ptxas]) -> Depth<'_> {
    Depth {
        real: n.is_multiple_of(8),
        ptx: n.is_multiple_of(every.ptx),
        code: n.is_multiple_of(every.assembled).then_some(tools),
        limits: LIMITS,
    }
}

/// A failure in full, which is also written to a file.
fn report(generator: Generator, seed: u64, reproducer: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}s", generator.name));
    let path = folder.join(format!("{seed}.loom"));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, reproducer));
    written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    format!("seed {seed}, {}:\n{reproducer}--\n", path.display())
}

/// Tries the seeds on so many threads.
fn tries(
    generator: Generator,
    seeds: Range<u64>,
    threads: usize,
    every: Every,
    tools: &[Ptxas],
) -> (Tally, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut tally, mut failures) = (Tally::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failures.len() >= ENOUGH {
                return (tally, failures);
            }
            let depth = depth(seed, every, tools);
            if let (case, Err(failure)) = attempt(generator, &mut Source::seeded(seed), depth, &mut tally) {
                let small = reproducer(generator, &case, &failure, depth);
                failures.push(report(generator, seed, &small));
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
fn record(generator: Generator, seeds: Range<u64>) -> (Tally, Vec<String>) {
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let name = generator.name;
    let path = std::env::var(format!("WARPLOOM_{}S_LOG", name.to_uppercase()))
        .unwrap_or_else(|_| format!("{}/{name}s.log", env!("CARGO_TARGET_TMPDIR")));
    let tools = Ptxas::find(None).unwrap_or_default();
    let (mut tally, mut failures, mut done) = (Tally::default(), Vec::new(), seeds.start);
    while done < seeds.end && failures.len() < ENOUGH {
        let end = seeds.end.min(done + CHUNK);
        let (counted, found) = tries(generator, done..end, threads, Every { ptx: 1, assembled: 100 }, &tools);
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

/// The schedule of one seed, those of a long run, or so many on so many threads, every `assembled`-th through ptxas.
fn keeps_every_promise(generator: Generator, first: u64, usual: u64, threads: usize, every: Every) -> Tally {
    let one = numbers(generator.name).map(|s| s.end);
    if let Some(seed) = one {
        let mut case = Case::default();
        (generator.draw)(&mut Source::seeded(seed), &mut Tally::default(), &mut case);
        eprintln!("{case}");
    }
    let tools = Ptxas::find(None).unwrap_or_default();
    let (tally, failures) = match (one, numbers(&format!("{}s", generator.name))) {
        (Some(seed), _) => tries(generator, seed..seed + 1, 1, Every { ptx: 1, assembled: 1 }, &tools),
        (None, Some(seeds)) => record(generator, seeds),
        (None, None) => tries(generator, first..first + usual, threads, every, &tools),
    };
    eprintln!("{tally}{}", failures.join("\n"));
    assert!(failures.is_empty(), "{} schedules break a promise; they are shown above", failures.len());
    tally
}

/// How often a program of random steps was proved legal, and how often that was not decided.
pub fn verdicts(seeds: Range<u64>) -> [usize; 2] {
    let mut tally = Tally::default();
    for seed in seeds {
        (ANY.draw)(&mut Source::seeded(seed), &mut tally, &mut Case::default());
    }
    [tally.proved, tally.undecided]
}

#[test]
fn random_schedules_keep_every_promise() {
    let tally = keeps_every_promise(ANY, first_seed(), USUAL, 2, Every { ptx: 4, assembled: 20 });
    let share = 100.0 * tally.share();
    let tensorized = 100.0 * tally.tensorized();
    assert!(tensorized > 5.0 || tally.schedules < 1000, "only {tensorized:.1} % of the schedules had an instruction");
    assert!(share > 85.0 || tally.schedules < 100, "only {share:.1} % of the chosen steps were accepted");
    let never = |p: &&&Primitive| !tally.accepted.contains_key(p.name);
    let never: Vec<&str> = ALL.iter().filter(never).map(|p| p.name).collect();
    assert!(never.is_empty() || tally.schedules < 2000, "no step of {never:?} was ever accepted");
}

/// Every feature of Hopper comes with every other one that it can go with. The commit draws one of five parts of the usual schedules.
#[test]
fn random_schedules_for_hopper_keep_every_promise() {
    let part = hopper::USUAL / 5;
    let (first, count) = if sample::everything() { (0, hopper::USUAL) } else { (sample::commit() % 5 * part, part) };
    let tally = keeps_every_promise(hopper::HOPPER, first, count, 2, Every { ptx: 4, assembled: 10 });
    let ran = tally.ends.get("ran").copied().unwrap_or(0);
    assert!(4 * ran > tally.schedules || tally.schedules < 50, "only {ran} of {} schedules ran", tally.schedules);
}

/// Extents up to 2^33: all but the run.
#[test]
fn huge_extents_compile_or_are_refused() {
    let tally = keeps_every_promise(huge::HUGE, first_seed(), huge::USUAL, 1, Every { ptx: 1, assembled: 1 });
    let compiled = tally.ends.get("compiled").copied().unwrap_or(0);
    assert!(2 * compiled > tally.schedules || tally.schedules < 50, "only {compiled} of {}", tally.schedules);
}

/// Bytes of any kind make a schedule, as a fuzzer would.
#[test]
fn bytes_make_schedules_too() {
    let mut tally = Tally::default();
    for n in 0..20u64 {
        let bytes: Vec<u8> = (0..40 + n).map(|i| (i.wrapping_mul(n.wrapping_mul(77) + 13) >> 1) as u8).collect();
        let depth = Depth { real: false, ptx: true, code: None, limits: LIMITS };
        if let (_, Err(failure)) = attempt(ANY, &mut Source::Bytes(&bytes), depth, &mut tally) {
            panic!("{bytes:?}: {}\n{}", failure.kind, failure.message);
        }
    }
    assert_eq!(tally.schedules, 20);
}
