//! Drops conditions that always hold, also those of choices, statements that never run, and loops that run once.
//!
//! A pipelined loop whose stages a role fills is kept where it runs once for each tile of a persistent block: its ring continues from tile to tile. The
//! pass `roles` drops the loop.

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::simplify::{self, Env};
use crate::ir::{Cond, Expr, For, Index, LoopKind, Stmt, visit};
use crate::lower::map::blocks::guarded;
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let env = kernel.env();
    kernel.func.body = body(std::mem::take(&mut kernel.func.body), &env, false);
    Ok(())
}

/// Statements, in a loop over the tiles of a persistent block or not.
fn body(stmts: Vec<Stmt>, env: &Env, persistent: bool) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for stmt in stmts {
        out.extend(one(stmt, env, persistent));
    }
    out
}

fn one(stmt: Stmt, env: &Env, persistent: bool) -> Vec<Stmt> {
    match stmt {
        Stmt::For(mut l) => {
            let mut inner = env.clone();
            if let Some(n) = l.extent.as_int() {
                inner.bind(l.var, 0, n - 1);
            }
            let within = persistent || matches!(l.kind, LoopKind::Persistent { .. });
            l.body = body(l.body, &inner, within);
            let filled = || l.body.iter().any(|s| visit::role_of(std::slice::from_ref(s)).is_some());
            match l.body.is_empty() {
                true => Vec::new(),
                false if persistent && l.pipeline.is_some() && filled() => vec![Stmt::For(l)],
                false => unless_once(l, &inner),
            }
        }
        Stmt::Block(mut b) => {
            b.body = body(b.body, env, persistent);
            if b.body.is_empty() { Vec::new() } else { vec![Stmt::Block(b)] }
        }
        Stmt::If(i) => {
            let cond = simplify::simplify_cond(&i.cond, env);
            if cond == Cond::Const(false) {
                return Vec::new();
            }
            let mut inner = env.clone();
            inner.assume(&cond);
            let inside = body(i.body, &inner, persistent);
            if inside.is_empty() { inside } else { guarded(cond, inside) }
        }
        Stmt::Store(mut s) => {
            s.value = decided(&s.value, env);
            vec![Stmt::Store(s)]
        }
        other => vec![other],
    }
}

/// A value with its conditions simplified, and decided where they are known.
pub fn decided(value: &Expr, env: &Env) -> Expr {
    fold_select(&visit::map_expr(value, &mut Index::clone, &mut |e| match e {
        Expr::Cond(c) => Expr::Cond(Box::new(simplify::simplify_cond(&c, env))),
        other => other,
    }))
}

/// A select whose condition is known is the chosen side.
pub fn fold_select(expr: &Expr) -> Expr {
    visit::map_expr(expr, &mut Index::clone, &mut |e| match e {
        Expr::Select(c, a, b) => match *c {
            Expr::Cond(ref cond) if **cond == Cond::Const(true) => *a,
            Expr::Cond(ref cond) if **cond == Cond::Const(false) => *b,
            _ => Expr::Select(c, a, b),
        },
        other => other,
    })
}

/// The loop, or its body where it runs once.
pub fn unless_once(l: For, env: &Env) -> Vec<Stmt> {
    if l.extent != Index::Int(1) {
        return vec![Stmt::For(l)];
    }
    let body = visit::subst_body(l.body, &[(l.var, Index::Int(0))].into());
    visit::map_body(body, &mut |i| simplify::simplify(i, env), &mut |e| e)
}
