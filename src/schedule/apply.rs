//! Applying steps: each to a program that is not changed, yielding a new one.

use super::primitive::launch;
use super::{Step, limits, placed};
use crate::error::{Code, Error, Result};
use crate::ir::{Func, Stmt, verify, visit};

/// The program after a step.
///
/// # Errors
/// The broken requirement (`split.2`) with the program underlined, within `in step ..`.
pub fn apply(func: &Func, step: &Step) -> Result<Func> {
    complete(func, step).map(|(func, _)| func)
}

/// The program after a step, and the step with every name that it made stated: that step replays to the same program.
///
/// # Errors
/// As [`apply`].
pub fn complete(func: &Func, step: &Step) -> Result<(Func, Step)> {
    let within = |e: Error| stated(e, step).within(format!("in step `{step}`"));
    let applied = (step.primitive().apply)(func, step.args()).map_err(within)?;
    launch::kept(func, &applied.func).map_err(within)?;
    placed::check(&applied.func).map_err(within)?;
    verify::gathers(&applied.func, Code::StepGather).map_err(within)?;
    if visit::loops(&applied.func.body).len() > limits::LOOPS {
        let message = format!("more than {} loops after `{step}`", limits::LOOPS);
        return Err(Error::input(Code::StepLimit, message));
    }
    if visit::depth(&applied.func.body) > limits::DEPTH {
        let message = format!("more than {} loops around a statement after `{step}`", limits::DEPTH);
        return Err(Error::input(Code::StepLimit, message));
    }
    if operations(&applied.func) > limits::OPERATIONS {
        let message = format!("more than {} operations after `{step}`", limits::OPERATIONS);
        return Err(
            Error::input(Code::StepLimit, message).help("keep some buffers: an inlined block is computed at every use")
        );
    }
    #[cfg(debug_assertions)]
    made_rightly(func, &applied.func, step)?;
    Ok((applied.func, step.clone().with_names(applied.names)))
}

#[cfg(debug_assertions)]
thread_local! {
    /// Well-formed programs that the last steps made on this thread; the next step begins with one of them. Two, as a recipe's steps go to two
    /// programs in turn.
    static MADE: std::cell::RefCell<std::collections::VecDeque<Func>> = const { std::cell::RefCell::new(std::collections::VecDeque::new()) };
}

/// In tests and debug builds: a program that a primitive made wrongly out of a right one is caught at that step.
#[cfg(debug_assertions)]
fn made_rightly(func: &Func, made: &Func, step: &Step) -> Result<()> {
    if !MADE.with_borrow(|all| all.contains(func)) && verify::well_formed(func).is_err() {
        return Ok(());
    }
    verify::well_formed(made).map_err(|e| e.within(format!("after step `{step}`, which broke it")))?;
    MADE.with_borrow_mut(|all| {
        all.push_front(made.clone());
        all.truncate(2);
    });
    Ok(())
}

/// A refusal whose number is one of the primitive's requirements; any other number is a fault of the primitive.
fn stated(error: Error, step: &Step) -> Error {
    let primitive = step.primitive();
    match error.code() {
        Code::Requirement { primitive: name, number: n }
            if name == primitive.name && (n == 0 || n > primitive.requires.len()) =>
        {
            Error::bug(Code::StepRequirement, format!("{} has no requirement {n}: {}", primitive.name, error.message()))
        }
        _ => error,
    }
}

/// The program after all steps.
///
/// # Errors
/// The first refusal, with the number of its step.
pub fn apply_all(func: &Func, steps: &[Step]) -> Result<Func> {
    complete_all(func, steps).map(|(func, _)| func)
}

/// The program after all steps, and the steps with every name stated.
///
/// # Errors
/// As [`apply_all`].
pub fn complete_all(func: &Func, steps: &[Step]) -> Result<(Func, Vec<Step>)> {
    let mut func = func.clone();
    let mut done = Vec::with_capacity(steps.len());
    for (n, step) in steps.iter().enumerate() {
        let (next, stated) =
            complete(&func, step).map_err(|e| e.within(format!("step {} of {}", n + 1, steps.len())))?;
        func = next;
        done.push(stated);
    }
    Ok((func, done))
}

fn operations(func: &Func) -> usize {
    let mut count = 0;
    visit::walk(&func.body, &mut |s| {
        if let Stmt::Store(store) = s {
            visit::walk_expr(&store.value, &mut |_| count += 1);
        }
    });
    count
}
