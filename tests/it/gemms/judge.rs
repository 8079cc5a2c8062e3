//! One case: its schedule, how it is run, and what must hold of the result.

use super::table::{Case, LARGE_CANDIDATE, Recipe};
use warploom::error::Code;
use warploom::gemm;
use warploom::intrin::{self, Action};
use warploom::lower::{self, Lowered};
use warploom::reference::{self, Output, Sample};
use warploom::target::Features;
use warploom::te::{self, GemmSpec};
use warploom::{Array, DType, Error, Func, Gemm, Result, Schedule, Target};

/// Whether an error says that a case is not to be had, rather than that it went wrong: no recipe of a kind fits, or rows of 4-bit integers are no whole bytes.
pub fn is_beyond(error: &Error) -> bool {
    [Code::AdmitRow, Code::GemmKind].contains(&error.code())
}

/// The schedule of a case for a chip.
pub fn schedule(case: &Case, target: Target) -> Result<Schedule> {
    if !case.epilogues.is_empty() {
        return gemm::recommend_for(&te::gemm_with(&case.spec, &case.epilogues)?, &target);
    }
    match case.recipe {
        Recipe::Recommended => gemm::recommend(&Gemm::from(case.spec), &target),
        Recipe::Kind(kind) => kind.schedule(&Gemm::from(case.spec), &target),
        Recipe::Simt(tiles) => with_steps(case, target, &tiles.steps(&case.spec).to_string()),
        Recipe::Gemv(gemv) => with_steps(case, target, &gemv.steps(&case.spec).to_string()),
        Recipe::Example(name) => {
            let (_, text) = crate::cases::examples().into_iter().find(|e| e.0 == name).expect("an example");
            let GemmSpec { m, n, k, .. } = case.spec;
            let schedule = Schedule::parse(&text)?.resized(&[m, n, k])?;
            let spec = gemm::describe(&schedule.program).expect("a product");
            assert_eq!(*spec.spec(), case.spec, "{name} is another product");
            // Its own chip, if the device is older: lowering then says what is missing.
            let own = schedule.target;
            Ok(schedule.for_target(if target.sm < own.sm { own } else { target }))
        }
        Recipe::Candidate(name) => {
            if !target.has(Features::WGMMA) {
                return Err(Error::chip(Code::GemmKind, format!("{target} has no wgmma")));
            }
            let mut large = case.spec;
            [large.m, large.n, large.k] = LARGE_CANDIDATE;
            let all = gemm::candidates(&Gemm::from(large), &target)?;
            let (_, schedule) = all.into_iter().find(|(other, _)| other == name).expect("a candidate of this name");
            let GemmSpec { m, n, k, .. } = case.spec;
            schedule.resized(&[m, n, k])
        }
    }
}

/// The program of a case with these steps.
fn with_steps(case: &Case, target: Target, steps: &str) -> Result<Schedule> {
    Schedule::parse(&format!("{}\ntarget {target}\n{steps}", te::print(&te::gemm(&case.spec)?)))
}

/// The instruction that multiplies in lowered kernels, if it is none of a thread.
pub fn instruction(lowered: &Lowered) -> Option<&'static str> {
    let text = lower::print(lowered);
    let multiplies = |r: &&intrin::Row| r.action == Action::MultiplyAdd && text.contains(&r.name);
    // Where one name begins another, the longer one stands there.
    intrin::all().iter().filter(multiplies).map(|r| r.name.as_str()).max_by_key(|n| n.len())
}

/// The inputs of a case with what is right: on small integers bit by bit, on reals within a bound.
pub struct Trial {
    exact: bool,
    /// All arguments; outputs are poisoned.
    pub arguments: Vec<Array>,
    outputs: Vec<Output>,
}

/// Rows of a result that are checked where all would take too long.
pub const SAMPLE_ROWS: usize = 64;
const SAMPLE: Sample = Sample::Rows { count: SAMPLE_ROWS, seed: 7 };
/// Multiply-adds up to which all are.
const CHECKED: i64 = 1 << 26;

/// The trials of a case: the exact tier always, the bound tier where sums round.
pub fn trials(case: &Case, program: &Func) -> Result<Vec<Trial>> {
    let sample = if case.volume() > CHECKED { SAMPLE } else { Sample::All };
    let tiers: &[bool] = if case.spec.acc.is_float() { &[true, false] } else { &[true] };
    tiers.iter().map(|exact| trial(case, program, *exact, sample)).collect()
}

/// The exact tier alone: every element where it takes at most `checked` multiply-adds, else some rows.
pub fn exact_trial(case: &Case, program: &Func, checked: i64) -> Result<Trial> {
    trial(case, program, true, if case.volume() > checked { SAMPLE } else { Sample::All })
}

fn trial(case: &Case, program: &Func, exact: bool, sample: Sample) -> Result<Trial> {
    let arguments = arguments(case, program, exact)?;
    let outputs = reference::outputs(program, &arguments, sample)?;
    Ok(Trial { exact, arguments, outputs })
}

fn arguments(case: &Case, program: &Func, exact: bool) -> Result<Vec<Array>> {
    let outputs = warploom::ir::visit::writes(&program.body);
    let magnitude = magnitude(case);
    let one = |(seed, id): (u64, &warploom::ir::BufferId)| {
        let buffer = program.buffer(*id);
        let shape: Vec<usize> = buffer.const_shape().unwrap_or_default().iter().map(|e| *e as usize).collect();
        match (outputs.contains(id), magnitude, exact) {
            (true, ..) => Array::poisoned(buffer.dtype, &shape),
            (_, Some(magnitude), true) => Array::random_integers(buffer.dtype, &shape, magnitude, seed),
            _ => Array::random(buffer.dtype, &shape, seed),
        }
    };
    (1..).zip(&program.params).map(one).collect()
}

/// The largest integers of which no sum rounds: k R^2 <= 2^24 for sums of f32 (2^13 of products of 8-bit floats), 2^11 of f16, 2^53 of
/// f64. Sums of s32 have
/// room for every product, and take the whole range (`None`).
fn magnitude(case: &Case) -> Option<i64> {
    let limit = match case.spec.acc {
        DType::F16 => 1 << 11,
        // Tensor cores add products of 8-bit floats with 13 bits below the largest term.
        DType::F32 if case.spec.a.is_float8() => 1 << 13,
        DType::F32 => 1 << 24,
        DType::F64 => 1i64 << 53,
        _ => return None,
    };
    // What is added behind the sum, and multiplied to it, takes a bit.
    let largest = (limit as f64 / 2.0 / case.spec.k as f64).sqrt().floor() as i64;
    let exact_inputs = [case.spec.a, case.spec.b].map(|dtype| match dtype {
        DType::E5m2 => 8,
        DType::E4m3 => 16,
        DType::Bf16 => 255,
        _ => 2047,
    });
    let exact_inputs = exact_inputs[0].min(exact_inputs[1]);
    Some(largest.clamp(1, exact_inputs).min(if case.spec.out == DType::F16 { 16 } else { 2047 }))
}

impl Trial {
    /// Holds arguments after a run against what they should be: inputs unchanged, outputs right. The largest error over
    /// its bound, of the bound tier.
    pub fn judge(&self, after: &[Array]) -> Result<Option<f64>> {
        let written = |n: usize| self.outputs.iter().any(|o| o.param == n);
        if (0..after.len()).any(|n| !written(n) && after[n] != self.arguments[n]) {
            return Err(Error::bug(Code::MeasureChanged, "an input changed"));
        }
        let mut worst = None;
        for output in &self.outputs {
            if self.exact {
                not_poisoned(&after[output.param])?;
                output.exact(&after[output.param])?;
            } else {
                worst = Some(output.bound(&after[output.param])?.ratio.max(worst.unwrap_or(0.0)));
            }
        }
        Ok(worst)
    }
}

/// Whether every element was written, those of rows that are not computed too: no result of the exact tier has the bits of a poisoned
/// element of 16 bits or more, which is no integer as a float and beyond every sum as an s32.
fn not_poisoned(output: &Array) -> Result<()> {
    let bytes = output.dtype.bits() as usize / 8;
    let poisoned = Array::poisoned(output.dtype, &[1])?;
    match output.bytes.chunks(bytes.max(1)).position(|element| bytes > 1 && element == poisoned.bytes) {
        Some(at) => Err(Error::bug(
            Code::MeasureWrong,
            format!("element {at} of an output of {} was not written", output.dtype),
        )),
        None => Ok(()),
    }
}

#[test]
fn rows_that_are_not_computed_must_be_written() {
    let case = Case::new(super::TYPES[0], te::Layout::NN, [200, 16, 8]);
    let schedule = schedule(&case, Target::sm_80()).unwrap();
    let trial = exact_trial(&case, &schedule.program, 0).unwrap();
    let mut after = trial.arguments.clone();
    lower::lower(&schedule.scheduled().unwrap(), &schedule.target)
        .and_then(|lowered| warploom::sim::run_lowered(&lowered, warploom::sim::Mode::Real, &mut after))
        .unwrap();
    trial.judge(&after).unwrap();
    let output = trial.outputs[0].param;
    assert!(trial.outputs[0].rows.len() <= SAMPLE_ROWS);
    for row in 0..200 {
        let mut missing = after.clone();
        missing[output].bytes[32 * row..][..2].fill(0xA5);
        assert!(trial.judge(&missing).is_err(), "row {row}");
    }
}
