//! Local buffers become registers: every loop whose variable indexes one is unrolled.
//!
//! Registers have no addresses, so an index of a local buffer that still depends on a thread, or on a loop too long to
//! write out, is refused here instead of becoming a local-memory frame.

use crate::error::{Code, Error, Result, Subject};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BufferId, Func, LoopKind, Note, Scope, Stmt, Var, visit};
use crate::target::Target;
use std::collections::BTreeSet;

/// Statements that a kernel may have once its unrolled loops are written out.
pub const MOST_STATEMENTS: i64 = 1 << 14;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let mut indexing = BTreeSet::new();
    visit::each_access(&kernel.func.body, &mut |buffer, indices| {
        if kernel.func.buffer(buffer).scope == Scope::Local {
            indices.iter().for_each(|index| {
                index.for_each_var(&mut |v| {
                    indexing.insert((v, buffer));
                });
            });
        }
    });
    for (var, buffer) in &indexing {
        let axis = kernel.launch.iter().find(|l| l.var == *var).map(|l| l.axis.name());
        let walked = || kernel.derived.iter().find(|d| d.var == *var).map(|d| kernel.func.var_name(d.var));
        if let Some(name) = axis.or_else(walked) {
            let about = axis.map_or_else(|| Subject::Loop(name.to_string()), Subject::Axis);
            return Err(by_thread(&kernel.func, *buffer, name).about(about));
        }
    }
    let vars: BTreeSet<Var> = indexing.iter().map(|(v, _)| *v).collect();
    kernel.func.body = visit::rewrite(std::mem::take(&mut kernel.func.body), &mut |s| match s {
        Stmt::For(mut l) => {
            if vars.contains(&l.var) {
                l.kind = LoopKind::Unrolled;
            }
            vec![Stmt::For(l)]
        }
        other => vec![other],
    });
    check_limits(&kernel.func, &indexing)?;
    check_size(&kernel.func, &indexing)
}

/// No loop that must be written out whole is told to be written out in part.
fn check_limits(func: &Func, indexing: &BTreeSet<(Var, BufferId)>) -> Result<()> {
    for l in visit::loops(&func.body) {
        let limit = l.notes.get(&Note::UnrollLimit).copied().unwrap_or(i64::MAX);
        let Some((_, buffer)) = indexing.iter().find(|(v, _)| *v == l.var) else { continue };
        if l.extent.as_int().is_some_and(|extent| extent <= limit) {
            continue;
        }
        let (name, buffer) = (func.var_name(l.var), &func.buffer(*buffer).name);
        let why = "and registers cannot be indexed at run time";
        let message =
            format!("{limit} iterations of {name} are to be written out, but it indexes local buffer {buffer}, {why}");
        return Err(Error::input(Code::LowerUnrollLimit, message)
            .about_loop(name)
            .about_buffer(buffer)
            .help(format!("annotate a loop that does not index {buffer}, or keep {buffer} in shared memory")));
    }
    Ok(())
}

fn by_thread(func: &Func, buffer: BufferId, axis: &str) -> Error {
    let name = &func.buffer(buffer).name;
    Error::input(
        Code::LowerLocalByThread,
        format!("local buffer {name} is indexed by {axis}, but registers belong to one thread and have no addresses"),
    )
    .about_buffer(name)
    .help(format!("set_scope {name} shared, so that threads can pass values"))
    .help(format!("or compute_at the blocks of {name} under the loop bound to {axis}"))
}

fn check_size(func: &Func, indexing: &BTreeSet<(Var, BufferId)>) -> Result<()> {
    let mut longest: Option<(&str, i64, Var)> = None;
    let total = size(func, &func.body, &mut longest);
    if total <= MOST_STATEMENTS {
        return Ok(());
    }
    let (name, extent, var) = longest.unwrap_or(("?", 0, Var(0)));
    let local = indexing.iter().find(|(v, _)| *v == var).map(|(_, b)| func.buffer(*b).name.as_str());
    let why = match local {
        Some(b) => format!("it indexes local buffer {b}, and registers cannot be indexed at run time"),
        None => "a step unrolls it".to_string(),
    };
    let error = Error::input(
        Code::LowerUnroll,
        format!(
            "unrolled, the kernel has {total} statements, over the limit of {MOST_STATEMENTS}; the longest unrolled loop is {name} with {extent} iterations: {why}"
        ),
    )
    .about_loop(name);
    Err(match local {
        Some(b) => error
            .about_buffer(b)
            .help(format!("split {name} and keep its outer part serial and out of the indices of {b}"))
            .help(format!("or keep {b} in shared memory")),
        None => error.help(format!("split {name} and unroll the inner part only, or unroll fewer loops")),
    })
}

/// Statements once unrolled loops are written out; saturates.
fn size<'a>(func: &'a Func, body: &[Stmt], longest: &mut Option<(&'a str, i64, Var)>) -> i64 {
    body.iter().fold(0i64, |sum, s| {
        let n = match s {
            Stmt::For(l) => {
                let inside = size(func, &l.body, longest);
                match (l.kind, l.extent.as_int()) {
                    (LoopKind::Unrolled, Some(n)) => {
                        if longest.is_none_or(|(_, m, _)| n > m) {
                            *longest = Some((func.var_name(l.var), n, l.var));
                        }
                        inside.saturating_mul(n)
                    }
                    _ => inside.saturating_add(1),
                }
            }
            Stmt::Block(b) => size(func, &b.body, longest),
            Stmt::If(i) => size(func, &i.body, longest).saturating_add(1),
            Stmt::Elect(e) => size(func, &e.body, longest),
            Stmt::Role(r) => size(func, &r.body, longest),
            Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => 1,
        };
        sum.saturating_add(n)
    })
}
