//! Conditions around loads from device memory leave the loops that are written out, where no iteration changes them.
//!
//! A branch around each load makes it wait for the load before: the compiler moves no load across it.
//!
//! ```text
//! for i in 0..16 unrolled            if blockIdx.x*8 + threadIdx.x < 12
//!   if blockIdx.x*8 + threadIdx.x < 12      for i in 0..16 unrolled
//!     r[i] = B[i*48 + threadIdx.x]            r[i] = B[i*48 + threadIdx.x]
//! ```

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::{Cond, Expr, For, Func, If, Scope, Stmt, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = outside(body, &kernel.func);
    Ok(())
}

/// A body with these conditions outside of their loops, inner loops first.
pub fn outside(body: Vec<Stmt>, func: &Func) -> Vec<Stmt> {
    visit::rewrite(body, &mut |s| match s {
        Stmt::For(l) => vec![hoisted(l, func)],
        other => vec![other],
    })
}

/// A loop inside the conditions that it does not change.
fn hoisted(mut l: For, func: &Func) -> Stmt {
    let written_out = l.code.copies.map(i64::from) == l.extent.as_int() && l.extent.as_int() > Some(1);
    let same = guard(&l.body).filter(|cond| !cond.mentions(l.var)).cloned();
    let Some(cond) = same.filter(|_| written_out && l.code.backwards.is_none() && loads(&l.body, func)) else {
        return Stmt::For(l);
    };
    l.body = unguarded(l.body);
    Stmt::If(If { cond, body: vec![hoisted(l, func)] })
}

/// The condition around all that a body does.
fn guard(body: &[Stmt]) -> Option<&Cond> {
    match body {
        [Stmt::If(i)] => Some(&i.cond),
        [Stmt::Block(b)] => guard(&b.body),
        _ => None,
    }
}

fn unguarded(mut body: Vec<Stmt>) -> Vec<Stmt> {
    match body.pop() {
        Some(Stmt::If(i)) => i.body,
        Some(Stmt::Block(mut b)) => {
            b.body = unguarded(b.body);
            vec![Stmt::Block(b)]
        }
        other => other.into_iter().collect(),
    }
}

/// Whether threads load from device memory, and neither wait for anything nor start copies.
fn loads(body: &[Stmt], func: &Func) -> bool {
    let (mut loads, mut plain) = (false, true);
    visit::walk(body, &mut |s| match s {
        Stmt::Store(s) => {
            plain &= !s.asynchronous;
            visit::walk_expr(&s.value, &mut |e| {
                loads |= matches!(e, Expr::Load { buffer, .. } if func.buffer(*buffer).scope == Scope::Global);
            });
        }
        Stmt::For(_) | Stmt::Block(_) | Stmt::If(_) => {}
        _ => plain = false,
    });
    loads && plain
}
