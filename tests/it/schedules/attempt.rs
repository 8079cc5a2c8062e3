//! One attempt: a schedule is drawn and examined, and a failure made small, where a panic is a failure too.

use super::check::{Case, Depth, Failure, Tally, examine, grow};
use super::programs;
use super::shrink::{guarded, panicked, shrink};
use super::source::Source;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Whether a schedule keeps the promises of its generator.
pub type Examine = fn(&Case, Depth<'_>, &mut Tally) -> Result<(), Failure>;

/// Where random schedules come from, and what must hold of them.
#[derive(Clone, Copy)]
pub struct Generator {
    /// The folder of its failures, and in capitals the name of the variables that choose its seeds.
    pub name: &'static str,
    /// Draws a schedule into a case, which has what was drawn so far where that panics.
    pub draw: fn(&mut Source, &mut Tally, &mut Case),
    /// Holds a schedule against its promises.
    pub examine: Examine,
}

/// Any program with steps that suit it, for any chip.
pub const ANY: Generator = Generator { name: "schedule", draw: any, examine };

fn any(source: &mut Source, tally: &mut Tally, case: &mut Case) {
    case.program = programs::program(source);
    *case = grow(case.program.clone(), source, tally);
}

/// Draws a schedule and examines it.
pub fn attempt(
    generator: Generator,
    source: &mut Source,
    depth: Depth<'_>,
    tally: &mut Tally,
) -> (Case, Result<(), Failure>) {
    let mut case = Case::default();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (generator.draw)(source, tally, &mut case))) {
        return (case, Err(Failure { kind: "panic while it was drawn".into(), ..panicked(&*panic) }));
    }
    tally.schedules += 1;
    let result = guarded(generator.examine, &case, depth, tally);
    (case, result)
}

/// The smallest schedule that fails in the same way, as a `.loom` file that says why.
pub fn reproducer(generator: Generator, case: &Case, failure: &Failure, depth: Depth<'_>) -> String {
    let (small, why) = match failure.kind.as_str() {
        // The last steps are lost, the seed is not.
        "panic while it was drawn" => (case.clone(), failure.clone()),
        // A smaller text would be no program for another reason.
        kind if kind.starts_with("parse") => (case.clone(), failure.clone()),
        _ => shrink(generator.examine, case, depth),
    };
    let message: String = why.message.lines().map(|l| format!("# {l}\n")).collect();
    format!("# {}\n{message}{small}", why.kind)
}
