//! One attempt: a schedule is grown and examined, and a failure made small, where a panic is a failure too.

use super::check::{Case, Depth, Failure, Tally, grow};
use super::programs;
use super::shrink::{guarded, panicked, shrink};
use super::source::Source;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Grows a schedule and examines it.
pub fn attempt(source: &mut Source, depth: Depth<'_>, tally: &mut Tally) -> (Case, Result<(), Failure>) {
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

/// The smallest schedule that fails in the same way, as a `.loom` file that says why.
pub fn reproducer(case: &Case, failure: &Failure, depth: Depth<'_>) -> String {
    let (small, why) = match failure.kind.as_str() {
        // While it was grown: the steps are lost, the seed is not.
        "panic" if case.steps.is_empty() => (case.clone(), failure.clone()),
        _ => shrink(case, depth),
    };
    let message: String = why.message.lines().map(|l| format!("# {l}\n")).collect();
    format!("# {}\n{message}{small}", why.kind)
}
