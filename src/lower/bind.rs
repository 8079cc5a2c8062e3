//! Bound loops become hardware indices.
//!
//! All loops bound to one axis share its variable. A statement that writes shared or global memory and mentions no
//! variable of a thread axis would be done by every thread of that axis: it runs on thread 0 of it instead.
//! Cooperative stages come out right by the same rule: their own bound loops stand for the threads, whatever loops
//! of the same axis stand around them.

use super::blocks::guarded;
use super::{LaunchAxis, LoweredKernel};
use crate::error::{Error, Result};
use crate::ir::{Axis, Block, Cond, Expr, For, Func, Index, Scope, Stmt, Store, Var, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    kernel.launch = launch(&mut kernel.func)?;
    let launch = kernel.launch.clone();
    check_shadowing(&kernel.func.body, &kernel.func, &mut Vec::new())?;
    let body = std::mem::take(&mut kernel.func.body);
    let body = visit::rewrite(body, &mut |s| match s {
        Stmt::For(l) => unbind(l, &launch),
        other => vec![other],
    });
    let func = &kernel.func;
    kernel.func.body = visit::rewrite(body, &mut |s| match s {
        Stmt::Block(b) => vec![Stmt::Block(elect(b, func, &launch))],
        other => vec![other],
    });
    Ok(())
}

/// The axes in use, each with one new variable named after it.
fn launch(func: &mut Func) -> Result<Vec<LaunchAxis>> {
    let mut found: Vec<(Axis, u32, String)> = Vec::new();
    for l in visit::loops(&func.body) {
        let Some(axis) = l.axis() else { continue };
        let name = func.var_name(l.var).to_string();
        let extent = l.extent.as_int().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(|| {
            Error::input(
                "lower.extent",
                format!("loop {name} is bound to {}, but its extent is no positive 32-bit constant", axis.name()),
            )
        })?;
        match found.iter().find(|(a, ..)| *a == axis) {
            None => found.push((axis, extent, name)),
            Some((_, n, other)) if *n != extent => {
                return Err(Error::input(
                    "lower.extents",
                    format!(
                        "{} has two extents in one kernel: {n} by loop {other} and {extent} by loop {name}",
                        axis.name()
                    ),
                )
                .help(format!(
                    "split {name} so that its bound part has extent {n}; a predicate covers what is left over"
                )));
            }
            Some(_) => {}
        }
    }
    found.sort_by_key(|(axis, ..)| *axis);
    Ok(found.into_iter().map(|(axis, extent, _)| LaunchAxis { axis, var: func.add_var(axis.name()), extent }).collect())
}

/// Inside a second loop of an axis nothing may speak of the first.
fn check_shadowing(body: &[Stmt], func: &Func, around: &mut Vec<(Axis, Var)>) -> Result<()> {
    for stmt in body {
        if let Stmt::For(l) = stmt
            && let Some(axis) = l.axis()
        {
            if let Some((_, outer)) = around.iter().find(|(a, _)| *a == axis)
                && mentions(&l.body, *outer)
            {
                return Err(Error::input(
                    "lower.shadow",
                    format!(
                        "loops {} and {} are both bound to {}, one inside the other, and statements inside speak of both",
                        func.var_name(*outer),
                        func.var_name(l.var),
                        axis.name()
                    ),
                )
                .help("only a shared stage that does not depend on the outer loop may share out its work over the same axis"));
            }
            around.push((axis, l.var));
            check_shadowing(&l.body, func, around)?;
            around.pop();
            continue;
        }
        for child in visit::children(stmt) {
            check_shadowing(child, func, around)?;
        }
    }
    Ok(())
}

/// Whether any index or condition in the body speaks of the variable.
pub fn mentions(body: &[Stmt], var: Var) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| match s {
        Stmt::Store(s) => found |= store_mentions(s, var),
        Stmt::If(i) => found |= i.cond.mentions(var),
        Stmt::For(l) => found |= l.extent.mentions(var),
        _ => {}
    });
    found
}

fn store_mentions(store: &Store, var: Var) -> bool {
    let mut found = store.indices.iter().any(|i| i.mentions(var));
    visit::walk_expr(&store.value, &mut |e| match e {
        Expr::Load { indices, .. } => found |= indices.iter().any(|i| i.mentions(var)),
        Expr::Index(_, i) => found |= i.mentions(var),
        Expr::Cond(c) => found |= c.mentions(var),
        _ => {}
    });
    found
}

fn unbind(l: For, launch: &[LaunchAxis]) -> Vec<Stmt> {
    match l.axis().and_then(|a| launch.iter().find(|x| x.axis == a)) {
        None => vec![Stmt::For(l)],
        Some(x) => visit::subst_body(l.body, &[(l.var, Index::Var(x.var))].into()),
    }
}

/// Guards a block that writes what others share and leaves a thread axis out.
fn elect(block: Block, func: &Func, launch: &[LaunchAxis]) -> Block {
    let shared =
        visit::writes(&block.body).iter().any(|b| matches!(func.buffer(*b).scope, Scope::Shared | Scope::Global));
    let guard = launch
        .iter()
        .filter(|x| shared && x.extent > 1 && !x.axis.is_block_level() && !mentions(&block.body, x.var))
        .fold(Cond::TRUE, |all, x| all.and(Cond::eq(x.var, 0)));
    Block { body: guarded(guard, block.body), ..block }
}
