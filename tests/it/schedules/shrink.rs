//! A failure made small: steps left out, sizes reduced, as long as it fails for the same reason.

use super::attempt::Examine;
use super::check::{Case, Depth, Failure, Tally};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What it says of a schedule, where a panic is a failure too.
pub fn guarded(examine: Examine, case: &Case, depth: Depth<'_>, tally: &mut Tally) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(|| examine(case, depth, tally))).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The failure that a panic is.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
    Failure { kind: "panic".into(), message }
}

/// So many smaller ones are tried at most.
const TRIES: usize = 200;

/// The smallest case found that fails in the same way.
pub fn shrink(examine: Examine, case: &Case, depth: Depth<'_>) -> (Case, Failure) {
    let fails = |c: &Case| guarded(examine, c, depth, &mut Tally::default()).err();
    let Some(mut failure) = fails(case) else {
        return (case.clone(), Failure { kind: "vanished".into(), message: "it passes when it is run again".into() });
    };
    let (mut best, tries) = (case.clone(), std::cell::Cell::new(0));
    loop {
        let smaller = candidates(&best).into_iter().take_while(|_| tries.get() < TRIES).find_map(|c| {
            tries.set(tries.get() + 1);
            let found = fails(&c).filter(|f| f.kind == failure.kind)?;
            Some((c, found))
        });
        let Some((case, found)) = smaller else { return (best, failure) };
        (best, failure) = (case, found);
    }
}

/// Without one step or without the last half; with a smaller size.
fn candidates(case: &Case) -> Vec<Case> {
    let mut out = Vec::new();
    let steps = case.steps.len();
    if steps > 3 {
        out.push(Case { steps: case.steps[..steps / 2].to_vec(), ..case.clone() });
    }
    for n in (0..steps).rev() {
        let mut without = case.clone();
        without.steps.remove(n);
        out.push(without);
    }
    for n in 0..case.program.sizes.len() {
        let size = case.program.sizes[n];
        for smaller in [size / 4, size / 2, size.saturating_sub(1)] {
            if smaller >= 1 && smaller < size {
                let mut case = case.clone();
                case.program.sizes[n] = smaller;
                out.push(case);
            }
        }
    }
    out
}
