//! Whose fault a failed run of a schedule is: the program's, a step's, or that of lowering.
//!
//! Steps and lowering keep what the naive program computes. So where that one runs and the scheduled or the lowered one does
//! not, the fault is warploom's, and the first step after which the program fails is named.

use super::data;
use crate::error::{Error, Fault, Result};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::machine::{self, Mode};

/// Operations up to which the programs after each step are run to find the faulty one.
const TRACED_OPERATIONS: f64 = data::CPU_OPERATIONS;

/// What says nothing of the program that runs: its cost, its arguments, and what the simulator does not know.
const OF_THE_RUN: [&str; 10] =
    ["limit", "arguments", "code", "mode", "unknown", "parse", "operand", "entry", "launch", "buffer"];

/// An error of a run on the simulator, or of the check of its result, with the fault where it belongs.
pub fn blame(schedule: &Schedule, seed: u64, error: Error) -> Error {
    let (who, what) = error.code().split_once('.').unwrap_or_default();
    let ran = ["machine", "ptx"].contains(&who) && !OF_THE_RUN.contains(&what) || error.code() == "reference.bound";
    if !ran || crate::te::operations(&schedule.program) > TRACED_OPERATIONS {
        return error;
    }
    if runs(&schedule.program, schedule, seed).is_err() {
        return error.blamed(Fault::Input).within("the naive program fails, too");
    }
    let mut faulty = None;
    let _ = schedule.trace(&mut |n, step, func| {
        if faulty.is_none() && runs(func, schedule, seed).is_err() {
            faulty =
                Some(format!("the naive program runs right; step {n}, `{step}`, is the first after which it does not"));
        }
    });
    let who = faulty.unwrap_or_else(|| {
        "the naive program runs right, and so does the program after each step: lowering or code generation is at fault"
            .to_string()
    });
    error.blamed(Fault::Bug).within(who)
}

/// Whether a program runs in sequence, with results within their bounds of the naive program's in f64.
fn runs(func: &Func, schedule: &Schedule, seed: u64) -> Result<()> {
    let mut arrays = data::arguments(&schedule.program, seed)?;
    let judge = data::Judge::new(&schedule.program, &arrays)?;
    machine::run_func(func, Mode::Real, &mut arrays)?;
    judge.worst(&arrays).map(|_| ())
}
