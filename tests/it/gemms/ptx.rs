//! Recommended products as PTX: what LLVM emits for each chip runs on the CPU, in every order, and is held against f64.
//!
//! A sample of types, layouts, chips and sizes runs in every test; all types and layouts on every chip, and as many
//! random sizes as the issue asks for, where `WARPLOOM_ALL` is set.

use super::judge::is_beyond;
use super::table::{Case, TYPES};
use super::{Summary, ready, trials, verdict};
use std::collections::BTreeMap;
use warploom::error::Code;
use warploom::sim::{Mode, Options, Policy, run_ptx};
use warploom::te::Layout;
use warploom::{Array, Error, Result, Target, codegen};

/// Extents that end at something: tiles, instructions, vectors, bytes.
const EXTENTS: [i64; 16] = [1, 7, 8, 16, 31, 48, 64, 65, 80, 96, 100, 128, 136, 160, 192, 256];
/// Extents that tiles divide; every other case has these, so that the instructions of a chip are used.
const WHOLE: [i64; 4] = [64, 128, 192, 256];
/// Multiply-adds of a case, so that it takes a moment.
const MOST: i64 = 1 << 22;
/// Cases of a usual run, and the distance between them: coprime to the number of types, layouts and chips.
const USUAL: usize = 14;
const STEP: usize = 11;

/// The chips. Their number, that of the types and that of the layouts have no common divisor, so that the cases count
/// up all three at once.
fn chips() -> Vec<Target> {
    Target::ALL.into_iter().filter(|t| t.sm <= 90).collect()
}

/// The n-th case, at a size that the seed draws.
fn case(n: usize, seed: u64) -> (Case, Target) {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n as u64));
    let chips = chips();
    let (types, layout, target) = (TYPES[n % TYPES.len()], Layout::ALL[n % 4], chips[n % chips.len()]);
    let extents = if rng.bool() { &WHOLE[..] } else { &EXTENTS[..] };
    let size = loop {
        let size: [i64; 3] = std::array::from_fn(|_| extents[rng.usize(..extents.len())]);
        if size.iter().product::<i64>() <= MOST {
            break size;
        }
    };
    (Case::new(types, layout, size), target)
}

/// Runs a case in every order; the orders that end otherwise than right are errors.
fn check(case: &Case, target: Target, seed: u64) -> Result<super::Outcome> {
    let ready = ready(case, target)?;
    let kernels = codegen::compile(&ready.lowered, &ready.schedule.target)?;
    let trials = trials(case, &ready.schedule.program)?;
    let mut last = None;
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(seed)] {
        let options = Options::new(Mode::Real).with_policy(policy);
        let outcome = verdict(&ready, &trials, &|arguments: &[Array]| {
            let mut after = arguments.to_vec();
            run_ptx(&kernels, &options, &mut after).map(|_| after)
        });
        last = Some(outcome.map_err(|e| e.within(format!("{policy:?}")))?);
    }
    last.ok_or_else(|| Error::bug(Code::SimResult, "no order was tried"))
}

/// The seed: another one for every commit, 0 where no commit is known; or the one that `WARPLOOM_PTX_SEED` names.
fn seed() -> u64 {
    let named = std::env::var("WARPLOOM_PTX_SEED").ok().and_then(|t| t.parse().ok());
    let git = || {
        let mut git = std::process::Command::new("git");
        let out = git.args(["rev-parse", "--short=8", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let commit = out.ok().and_then(|out| String::from_utf8(out.stdout).ok()).unwrap_or_default();
        u64::from_str_radix(commit.trim(), 16).unwrap_or(0)
    };
    named.unwrap_or_else(git)
}

#[test]
fn recommended_products_are_right_as_ptx() {
    let every = TYPES.len() * 4 * chips().len();
    let whole = crate::sample::everything();
    let (seed, count) = (seed(), if whole { every } else { USUAL });
    println!("WARPLOOM_PTX_SEED={seed}, {count} products");
    let mut summary = Summary::default();
    let mut by_chip: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for n in (0..count).map(|n| (seed as usize % every + n * STEP) % every) {
        let (case, target) = case(n, seed);
        let result = check(&case, target, seed);
        if let Ok(outcome) = &result {
            let family = outcome.instruction.map_or("SIMT", |i| i.split('.').next().unwrap_or(i));
            *by_chip.entry(target.name).or_default().entry(family).or_default() += 1;
        }
        if let Err(error) = &result
            && !is_beyond(error)
        {
            println!("{case} for {target}: {error}");
        }
        summary.add(&case, result.map_err(|e| e.within(format!("for {target}"))));
    }
    println!("{summary}");
    by_chip.iter().for_each(|(chip, found)| println!("{chip}: {found:?}"));
    summary.finish(count / 2);
}
