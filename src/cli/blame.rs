//! Whose fault a failed run of a schedule is: the program's, a step's, or that of lowering.
//!
//! Steps and lowering keep what the naive program computes. So where that one runs and the scheduled or the lowered one does
//! not, the fault is warploom's, and the first step after which the program fails is named.

use super::data;
use crate::error::{Area, Code, Error, Fault, Result};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::sim::{self, Mode};

/// Operations of a program that is run again to find the faulty step: after each step, so far fewer than one run may have.
const TRACED_OPERATIONS: f64 = 16.0 * data::WATCHED_OPERATIONS;

/// What says nothing of the program that runs: its cost, its arguments, and what the simulator does not know.
const OF_THE_RUN: [Code; 12] = [
    Code::SimLimit,
    Code::SimArguments,
    Code::SimCode,
    Code::SimBuffer,
    Code::PtxLimit,
    Code::PtxArguments,
    Code::PtxMode,
    Code::PtxUnknown,
    Code::PtxParse,
    Code::PtxOperand,
    Code::PtxEntry,
    Code::PtxLaunch,
];

/// An error of a run on the simulator, or of the check of its result, with the fault where it belongs.
pub fn blame(schedule: &Schedule, seed: u64, error: Error) -> Error {
    let code = error.code();
    let is_run = matches!(code.area(), Some(Area::Sim | Area::Ptx)) && !OF_THE_RUN.contains(&code);
    let ran = is_run || code == Code::ReferenceBound;
    let operations = crate::te::operations(&schedule.program);
    if !ran || operations > data::CPU_OPERATIONS {
        return error;
    }
    if runs(&schedule.program, schedule, seed).is_err() {
        return error.blamed(Fault::Input).within("the naive program fails, too");
    }
    if operations > TRACED_OPERATIONS {
        return error.blamed(Fault::Bug).within("the naive program is correct: a step or the lowering is at fault");
    }
    let mut faulty = None;
    let _ = schedule.trace(&mut |n, step, func| {
        if faulty.is_none() && runs(func, schedule, seed).is_err() {
            faulty = Some(format!(
                "the naive program is correct; step {n}, `{step}`, is the first after which the program is not"
            ));
        }
    });
    let who = faulty.unwrap_or_else(|| {
        "the naive program is correct, and so is the program after each step: the lowering or code generation is at \
         fault"
            .to_string()
    });
    error.blamed(Fault::Bug).within(who)
}

/// Whether a program runs in sequence, with results within their bounds of the naive program's in f64.
fn runs(func: &Func, schedule: &Schedule, seed: u64) -> Result<()> {
    let mut arrays = data::arguments(&schedule.program, seed)?;
    let judge = data::Judge::new(&schedule.program, &arrays)?;
    sim::run_func(func, Mode::Real, &mut arrays)?;
    judge.worst(&arrays).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blamed(text: &str, code: Code) -> Error {
        blame(&Schedule::parse(text).unwrap(), 1, Error::input(code, "element 3 is not written"))
    }

    #[test]
    fn who_is_at_fault_depends_on_the_naive_program() {
        let right = "vec_add 64\ntarget sm_80\nsplit i ? 32 -> a b; bind a blockIdx.x; bind b threadIdx.x";
        let error = blamed(right, Code::SimUnwritten);
        assert_eq!(error.fault(), Fault::Bug);
        assert!(error.to_string().contains("the program after each step: the lowering or code generation is at fault"));
        // What a run costs, or was given, says nothing of the steps.
        assert_eq!(blamed(right, Code::SimLimit), Error::input(Code::SimLimit, "element 3 is not written"));
        assert_eq!(blamed(right, Code::LowerRole).fault(), Fault::Input);
        let wrong =
            "program halves\ninput A s32[4]\nB: output B[i 4] s32 = A[i] / (A[i] - A[i])\ntarget sm_80\nunroll i";
        let error = blamed(wrong, Code::SimZero);
        assert_eq!((error.fault(), error.context()), (Fault::Input, &["the naive program fails, too".to_string()][..]));
    }
}
