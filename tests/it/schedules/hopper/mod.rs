//! Random schedules for Hopper: what recipes do, changed at random.
//!
//! A schedule begins with steps that reach wgmma, bulk copies, clusters, roles and persistent walks together ([`products`]), that
//! multiply fragments of warps which cross the slots of such rings ([`fragments`]), or that stage an elementwise program through
//! shared memory ([`staged`]); then [`edits`] leaves steps out, swaps them and changes
//! numbers. Steps that are refused are left out. Every refusal has a code and a place, and one of the whole says what to try;
//! what is not refused is right: in integer mode under adversarial orders, in the real types, its cost report, and through ptxas.

pub mod edits;
pub mod features;
mod fragments;
mod products;
mod staged;

use super::attempt::Generator;
use super::check::{self, Case, Depth, Failure, Tally, broken, count, end, failure, unpointed};
use super::levels::Oracle;
use super::source::Source;
use warploom::ir::verify::verify;
use warploom::loom::Schedule;
use warploom::lower::lower;
use warploom::schedule::{complete, parse};
use warploom::sim::Limits;
use warploom::{Error, Fault};

/// The generator.
pub const HOPPER: Generator = Generator { name: "hopper", draw, examine };

/// How many are tried where nothing else is said.
pub const USUAL: u64 = 120;

/// What the simulator may do for one run: what lost its tensor cores on the way is not worth more.
const LIMITS: Limits = Limits { statements: 1 << 21, bytes: 1 << 28 };

/// The same for a program in sequence.
const SEQUENCE: Limits = Limits { statements: 1 << 34, bytes: 8 << 30 };

/// Whether a refusal is none, or says less than it must.
fn is_wrong(e: &Error) -> bool {
    e.fault() == Fault::Bug || unpointed(e)
}

fn draw(source: &mut Source, tally: &mut Tally, case: &mut Case) {
    let (program, steps) = match source.below(6) {
        0 => staged::schedule(source),
        1 => fragments::schedule(source),
        _ => products::schedule(source),
    };
    case.program = program;
    case.target = "sm_90a";
    let Ok(mut func) = warploom::te::parse(&case.program.text()) else { return };
    for text in edits::edited(steps, source) {
        let name = text.split(' ').next().unwrap_or("").to_string();
        let Some(step) = parse(&text).ok().filter(|steps| steps.len() == 1) else {
            count(&mut tally.reasons, "parse");
            count(&mut tally.refused, &name);
            continue;
        };
        // Whatever a step breaks is the last step of the case, for `examine` to find.
        case.steps.push(text);
        match complete(&func, &step[0]) {
            Ok((next, stated)) => {
                case.steps.pop();
                case.steps.push(stated.to_string());
                func = next;
                count(&mut tally.accepted, &name);
            }
            Err(e) if is_wrong(&e) => return,
            Err(e) => {
                case.steps.pop();
                count(&mut tally.reasons, &e.code().to_string());
                count(&mut tally.refused, &name);
            }
        }
    }
    tally.kept += case.steps.len();
}

/// Whether a schedule keeps every promise; says how it ended.
fn examine(case: &Case, depth: Depth<'_>, tally: &mut Tally) -> Result<(), Failure> {
    let schedule = Schedule::parse(&case.to_string()).map_err(|e| broken("parse", &e))?;
    if Schedule::parse(&schedule.to_string()).map_err(|e| broken("print", &e))? != schedule {
        return Err(failure("print", "the schedule does not print back"));
    }
    let oracle = Oracle::of(&case.to_string(), &schedule, 1)?;
    let naive = oracle.run(&schedule.program, SEQUENCE).map_err(|e| broken("naive", &e))?;
    if oracle.compare_naive(&naive)? {
        count(&mut tally.levels, "naive = text in integer mode");
    }
    let mut func = schedule.program.clone();
    for step in &schedule.steps {
        func = match complete(&func, step) {
            Ok((next, _)) => next,
            Err(e) if is_wrong(&e) => return Err(failure(format!("says too little {}", e.code()), e)),
            Err(e) => return refused(&e, tally),
        };
    }
    let scheduled = oracle.run(&func, SEQUENCE).map_err(|e| broken("scheduled", &e))?;
    if scheduled != naive {
        return Err(failure("ring scheduled", "the scheduled program computes something else"));
    }
    let lowered = match verify(&func).and_then(|()| lower(&func, &schedule.target)) {
        Ok(lowered) => lowered,
        // What broke is no requirement of one step, so that nothing else says what to do.
        Err(e) if e.helps().is_empty() => return Err(failure(format!("no help {}", e.code()), e)),
        Err(e) => {
            tally.refusal(e.code(), &format!("{schedule}{e}"));
            return refused(&e, tally);
        }
    };
    let before = tally.ends.get("ran").copied();
    check::run(&schedule, &lowered, &oracle, &naive, Depth { limits: LIMITS, ..depth }, tally)?;
    if tally.ends.get("ran").copied() != before {
        tally.together.add(&case.steps);
    }
    Ok(())
}

/// A refusal says what to try.
fn refused(e: &Error, tally: &mut Tally) -> Result<(), Failure> {
    match is_wrong(e) {
        true => Err(failure(format!("says too little {}", e.code()), e)),
        false => end(tally, &e.code().to_string()),
    }
}
