//! Registers that the consumers of a ring fill from device memory are loaded an iteration ahead.
//!
//! ```text
//! for k                        x_next = X[0]
//!   x = X[k]              ->   for k
//!   wait full[k]                 x = x_next
//!   compute with x               if k + 1 < n: x_next = X[k + 1]
//!                                wait full[k]; compute with x
//! ```
//!
//! A load from device memory takes longer than an iteration has between its begin and the first use of such registers. The move from one set of
//! registers to the other is for the loads of the iteration before, which have returned.

use crate::error::{Code, Result};
use crate::ir::{Buffer, BufferId, Cond, Expr, For, Func, Index, Scope, Stmt, Store, visit};
use crate::lower::elements;
use crate::lower::map::blocks::guarded;

/// The statements before a loop of consumers, and the loop, whose registers are loaded ahead. `written` are the buffers that the kernel writes.
///
/// # Errors
/// A fault of the pass that makes buffers flat.
pub fn loaded_ahead(mut l: For, written: &[BufferId], func: &mut Func) -> Result<(Vec<Stmt>, For)> {
    let Some(extent) = l.extent.as_int().filter(|n| *n > 1) else { return Ok((Vec::new(), l)) };
    let (mut first, mut moves, mut loads, mut rest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let body = std::mem::take(&mut l.body);
    for (at, stmt) in body.iter().enumerate() {
        let at_zero = visit::subst_body(vec![stmt.clone()], &[(l.var, Index::Int(0))].into());
        let mut others = body[..at].iter().chain(&body[at + 1..]);
        let filled = filled_from_memory(stmt, written, func)
            .filter(|b| at_zero[0] != *stmt && others.all(|s| !visit::writes(std::slice::from_ref(s)).contains(b)));
        let Some(buffer) = filled else {
            rest.push(stmt.clone());
            continue;
        };
        let size = elements(func.buffer(buffer), Code::LowerRoles)?;
        let (name, dtype) = (func.buffer(buffer).name.clone(), func.buffer(buffer).dtype);
        let name = func.unused_buffer_name(&format!("{name}_next"));
        let next = func.add_buffer(Buffer::new(name, dtype, vec![Index::Int(size)], Scope::Local));
        let mut load = vec![stmt.clone()];
        visit::each_store(&mut load, &mut |s| s.buffer = next);
        first.extend(visit::subst_body(load.clone(), &[(l.var, Index::Int(0))].into()));
        loads.extend(visit::subst_body(load, &[(l.var, Index::Var(l.var) + 1)].into()));
        let one = |n: i64| Store::new(buffer, vec![Index::Int(n)], Expr::load(next, vec![Index::Int(n)]));
        moves.extend((0..size).map(|n| Stmt::Store(one(n))));
    }
    let ahead = if loads.is_empty() { loads } else { guarded(Cond::lt(l.var, extent - 1), loads) };
    l.body = [moves, ahead, rest].concat();
    Ok((first, l))
}

/// The registers that a statement fills with elements of device memory that the kernel does not write.
fn filled_from_memory(stmt: &Stmt, written: &[BufferId], func: &Func) -> Option<BufferId> {
    match stmt {
        Stmt::Store(s) if func.buffer(s.buffer).scope == Scope::Local && !s.asynchronous => {
            let (mut any, mut all) = (false, true);
            visit::walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, .. } = e {
                    any = true;
                    all &= func.buffer(*buffer).scope == Scope::Global && !written.contains(buffer);
                }
            });
            (any && all).then_some(s.buffer)
        }
        Stmt::For(_) | Stmt::Block(_) | Stmt::If(_) => match visit::children(stmt).as_slice() {
            [body] => match body.as_slice() {
                [one] => filled_from_memory(one, written, func),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}
