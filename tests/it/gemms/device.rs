//! All cases on a GPU, made ready ahead by all cores, and some of them many times over.

use super::judge::{Trial, trials};
use super::summary::Summary;
use super::table::{self, Case};
use super::{Ready, in_parallel, ready, verdict};
use warploom::codegen::compile;
use warploom::error::Code;
use warploom::measure::run_once;
use warploom::runtime::{Device, Program};
use warploom::target::Features;
use warploom::{Array, Error, Func, Kernels, Result, Target};

/// Launches of a case that must all give the same bits.
const REPEATS: usize = 100;

/// Products that wgmma computes bit by bit at the least, on chips that have it.
const EXACT_BY_WGMMA: usize = 150;

/// The chip to compile for.
pub(super) fn target(device: &Device) -> Result<Target> {
    Target::for_device(device.info().sm())
        .ok_or_else(|| Error::chip(Code::DeviceTarget, "no chip of this device is known"))
}

/// Runs every case and says what came of them.
pub fn on_device(device: &Device, say: &dyn Fn(&str)) {
    let cases = table::all();
    let mut summary = Summary::default();
    run(device, &cases, &trials, &mut summary);
    summary.to_string().lines().for_each(|line| say(&format!("    {line}")));
    summary.finish(200);
    // A recipe that no longer fits would leave its products to other instructions, and all of them right.
    if target(device).unwrap().has(Features::WGMMA) {
        let exact = summary.exact_by("wgmma.");
        assert!(exact >= EXACT_BY_WGMMA, "{exact} products by wgmma are exact, fewer than {EXACT_BY_WGMMA}");
    }
}

/// Runs the trials of cases and adds what came of them.
pub(super) fn run(device: &Device, cases: &[Case], trials: &Trials<'_>, summary: &mut Summary) {
    for (case, prepared) in cases.iter().zip(prepared(cases, target(device).unwrap(), trials)) {
        let result = prepared.and_then(|Prepared { ready, kernels, trials }| {
            let program = load(device, &kernels)?;
            verdict(&ready, &trials, &|arguments: &[Array]| run_once(&program, arguments))
        });
        summary.add(case, result);
    }
}

/// Loads kernels, which must need no local memory.
fn load(device: &Device, kernels: &Kernels) -> Result<Program> {
    let program = device.load(kernels)?;
    match program.resources().into_iter().find(|r| r.local_bytes > 0) {
        Some(r) => {
            Err(Error::bug(Code::MeasureWrong, format!("{} has {} bytes of local memory", r.entry, r.local_bytes)))
        }
        None => Ok(program),
    }
}

/// A case with its kernels, its input and what is right.
struct Prepared {
    ready: Ready,
    kernels: Kernels,
    trials: Vec<Trial>,
}

/// The trials of a case of this program.
pub(super) type Trials<'a> = dyn Fn(&Case, &Func) -> Result<Vec<Trial>> + Sync + 'a;

/// Every case, made ready.
fn prepared(cases: &[Case], target: Target, trials: &Trials<'_>) -> Vec<Result<Prepared>> {
    in_parallel(cases.len(), |n| {
        let ready = ready(&cases[n], target)?;
        let kernels = compile(&ready.lowered, &ready.schedule.target)?;
        let trials = trials(&cases[n], &ready.schedule.program)?;
        Ok(Prepared { ready, kernels, trials })
    })
}

/// The same bits in every launch, on products that many blocks share.
pub fn repeat(device: &Device, say: &dyn Fn(&str)) {
    let target = target(device).unwrap();
    let wide = |c: &Case| c.epilogues.is_empty() && [1024, 1000, 511, 512].contains(&c.spec.m) && c.spec.k >= 512;
    let mut chosen: Vec<Case> = Vec::new();
    for case in table::all().into_iter().filter(wide) {
        if chosen.iter().all(|c| c.types() != case.types()) {
            chosen.push(case);
        }
    }
    for (case, prepared) in chosen.iter().zip(prepared(&chosen, target, &trials)) {
        match prepared.and_then(|prepared| repeated(device, prepared)) {
            Ok(()) => say(&format!("    {case}: {REPEATS} launches, the same bits")),
            Err(error) if super::is_beyond(&error) => say(&format!("    {case}: skipped: {}", error.message())),
            Err(error) => panic!("{case}: {error}"),
        }
    }
}

fn repeated(device: &Device, mut prepared: Prepared) -> Result<()> {
    let program = load(device, &prepared.kernels)?;
    // The last trial: reals, whose sums depend on their order.
    let trial = prepared.trials.pop().expect("a trial");
    let first = run_once(&program, &trial.arguments)?;
    trial.judge(&first)?;
    for n in 1..REPEATS {
        if run_once(&program, &trial.arguments)? != first {
            return Err(Error::bug(Code::MeasureWrong, format!("launch {} gives other bits than the first", n + 1)));
        }
    }
    Ok(())
}
