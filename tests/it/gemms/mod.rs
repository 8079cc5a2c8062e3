//! Matrix products at every edge: a table of cases that run on the simulator, through the mock driver and on a GPU, held
//! against f64.
//!
//! Each case runs in the exact tier (small integers, bit by bit) and, where sums round, in the bound tier (random reals;
//! the largest error over its bound is reported). Outputs are poisoned before, inputs must be unchanged after. The summary
//! says which instruction each kind of types came to, so that nothing falls back to ordinary code unseen.

mod chips;
mod device;
mod edges;
mod judge;
mod ptx;
mod summary;
mod table;

pub use device::{on_device, repeat};
pub use edges::on_device as at_edges;
use judge::{Trial, instruction, is_beyond, schedule, trials};
use std::sync::atomic::{AtomicUsize, Ordering};
use summary::{Outcome, Summary};
use table::{ALIGNED, Case, Recipe};
pub use table::{TYPES, Types};
use warploom::gemm::{Gemm, Kind};
use warploom::lower::{Lowered, lower};
use warploom::sim::{Mode, run_lowered};
use warploom::target::Features;
use warploom::{Array, Result, Schedule, Target};

/// From which chip on the recommended steps for a product of aligned size must come to which instructions: types, compute
/// capability times ten, and how the names of the instructions begin. The last line that fits counts.
const MUST_USE: [(&str, u32, &str); 20] = [
    ("f16>f32>f16", 70, "wmma."),
    ("f16>f32>f16", 75, "mma."),
    ("f16>f32", 75, "mma."),
    ("f16", 75, "mma."),
    ("s8>s32", 75, "mma."),
    ("u8>s32", 75, "mma."),
    ("u8*s8>s32", 75, "mma."),
    ("s8*u8>s32", 75, "mma."),
    ("s4>s32", 75, "mma."),
    ("u4>s32", 75, "mma."),
    ("bf16>f32>bf16", 80, "mma."),
    ("bf16>f32", 80, "mma."),
    ("tf32>f32", 80, "mma."),
    ("f64", 90, "mma."),
    ("e4m3>f32>f16", 89, "mma."),
    ("e4m3*e5m2>f32", 89, "mma."),
    ("e5m2*e4m3>f32>e4m3", 89, "mma."),
    // Later chips have mma.sync of 8-bit floats in name only.
    ("e4m3>f32>f16", 90, ""),
    ("e4m3*e5m2>f32", 90, ""),
    ("e5m2*e4m3>f32>e4m3", 90, ""),
];

/// The types whose recommended products are by wgmma on the chips that have it.
const BY_WGMMA: [&str; 13] = [
    "f16>f32>f16",
    "f16>f32",
    "f16",
    "bf16>f32>bf16",
    "bf16>f32",
    "tf32>f32",
    "s8>s32",
    "u8>s32",
    "u8*s8>s32",
    "s8*u8>s32",
    "e4m3>f32>f16",
    "e4m3*e5m2>f32",
    "e5m2*e4m3>f32>e4m3",
];

/// What the recommended steps for a case must come to.
fn must_use(case: &Case, target: Target) -> Option<&'static str> {
    let size = [case.spec.m, case.spec.n, case.spec.k];
    let asked = case.recipe == Recipe::Recommended && case.epilogues.is_empty() && size == ALIGNED;
    let fits = |row: &&(&str, u32, &str)| asked && row.0 == case.types().name() && row.1 <= target.sm;
    let by_wgmma = target.has(Features::WGMMA) && BY_WGMMA.contains(&case.types().name().as_str());
    let must = MUST_USE.iter().rfind(fits).map(|row| if by_wgmma { "wgmma." } else { row.2 });
    must.filter(|must| !must.is_empty())
}

/// A case made ready for a chip.
struct Ready {
    schedule: Schedule,
    lowered: Lowered,
    instruction: Option<&'static str>,
}

/// Schedules and lowers a case, and sees to the instruction that it must come to.
fn ready(case: &Case, target: Target) -> Result<Ready> {
    let schedule = schedule(case, target)?;
    let lowered = lower(&schedule.scheduled()?, &schedule.target)?;
    let instruction = instruction(&lowered);
    if let Some(must) = must_use(case, target) {
        // Small products whose operands a kernel of its own would transpose may come to ordinary code or to mma.sync: the instruction's recipe
        // has them.
        let transposed = case.spec.a.bits() != 16 && case.spec.layout != warploom::te::Layout::NT;
        // Those of one tile may come to mma.sync in the place of wgmma.
        let tensor = instruction.is_some_and(|i| i.starts_with("mma."));
        let by_recipe = if transposed || tensor { by_kind(case, target, must)? } else { None };
        let found = instruction.filter(|i| i.starts_with(must)).or(by_recipe);
        assert!(found.is_some_and(|i| i.starts_with(must)), "{case} for {target}: {instruction:?}, not {must}");
    }
    Ok(Ready { schedule, lowered, instruction })
}

/// The instruction of the recipe that has one named so.
fn by_kind(case: &Case, target: Target, must: &str) -> Result<Option<&'static str>> {
    let kind = Kind::parse(must.trim_end_matches('.')).expect("a kind of code");
    let schedule = kind.schedule(&Gemm::from(case.spec), &target)?;
    Ok(instruction(&lower(&schedule.scheduled()?, &target)?))
}

/// Runs the trials of a case; `execute` takes all arguments and returns them as they are afterwards.
fn verdict(ready: &Ready, trials: &[Trial], execute: &dyn Fn(&[Array]) -> Result<Vec<Array>>) -> Result<Outcome> {
    let mut outcome = Outcome { instruction: ready.instruction, exact: 0, worst: None };
    for trial in trials {
        match trial.judge(&execute(&trial.arguments)?)? {
            None => outcome.exact += 1,
            worst => outcome.worst = worst,
        }
    }
    Ok(outcome)
}

/// What `one` gives for each number below `count`, by all cores.
fn in_parallel<T: Send>(count: usize, one: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(n) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < count) {
            done.push((n, one(n)));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    all.sort_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, made)| made).collect()
}

/// Multiply-adds that the simulator does in a moment.
const SMALL: i64 = 300_000;

/// The cases for the simulator: the first small ones of every types and layout, and every one behind those.
fn sample() -> Vec<Case> {
    let mut out: Vec<Case> = Vec::new();
    for case in table::all().into_iter().filter(|c| c.volume() <= SMALL) {
        let plain = case.recipe == Recipe::Recommended && case.epilogues.is_empty() && case.spec.batch.is_none();
        let like = |c: &&Case| (c.types(), c.spec.layout) == (case.types(), case.spec.layout);
        if !plain || out.iter().filter(like).count() < 2 {
            out.push(case);
        }
    }
    out
}

/// A fifth of the sampled cases, as the commit draws them.
#[test]
fn small_products_are_right_on_the_simulator() {
    let chips = [Target::sm_90(), Target::sm_80(), Target::sm_75(), Target::sm_70(), Target::sm_86(), Target::sm_89()];
    let mut summary = Summary::default();
    let drawn = |case: &Case| crate::sample::drawn(&format!("simulator {case}"), 5);
    for (n, case) in sample().iter().enumerate().filter(|(_, case)| drawn(case)) {
        let result = ready(case, chips[n % chips.len()]).and_then(|ready| {
            verdict(&ready, &trials(case, &ready.schedule.program)?, &|arguments: &[Array]| {
                let mut after = arguments.to_vec();
                run_lowered(&ready.lowered, Mode::Real, &mut after).map(|_| after)
            })
        });
        summary.add(case, result);
    }
    println!("{summary}");
    summary.finish(if crate::sample::everything() { 50 } else { 20 });
}

/// Multiply-adds of a named candidate that the simulator does in seconds: a tile of it is larger than [`SMALL`].
const A_TILE: i64 = 1 << 24;

/// Every named candidate lowers at the sizes of its cases, and is right where these are small.
#[test]
fn named_candidates_are_right_on_the_simulator() {
    let cases = table::all().into_iter().filter(|case| matches!(case.recipe, Recipe::Candidate(_)));
    let mut exact = 0;
    for case in cases {
        let ready = ready(&case, Target::sm_90a()).unwrap_or_else(|e| panic!("{case}: {e}"));
        if case.volume() > A_TILE {
            continue;
        }
        let outcome = verdict(&ready, &trials(&case, &ready.schedule.program).unwrap(), &|arguments: &[Array]| {
            let mut after = arguments.to_vec();
            run_lowered(&ready.lowered, Mode::Real, &mut after).map(|_| after)
        });
        exact += outcome.unwrap_or_else(|e| panic!("{case}: {e}")).exact;
    }
    assert!(exact >= 2, "{exact}");
}

/// Cases for drivers that run on the simulator: some of each kind.
pub fn few() -> Vec<(String, Schedule)> {
    let every = sample().into_iter().step_by(9).take(12);
    every.filter_map(|case| Some((case.to_string(), ready(&case, Target::sm_90()).ok()?.schedule))).collect()
}
