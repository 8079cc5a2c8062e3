//! What is read at an index that is a datum.
//!
//! Nothing says which element that is, so nothing can say which thread has written it, or what part of the buffer a copy has to
//! hold: the buffer is global memory that the kernel does not write.

use crate::error::{Code, Error, Result};
use crate::ir::print::{Node, underline};
use crate::ir::visit::{blocks, walk, walk_expr, writes};
use crate::ir::{BufferId, Expr, Func, Scope, Stmt, Var};
use std::slice::from_ref;

/// Fails with this code (`verify.gather`, or `step.gather` where a step made it so) where what is read at an index that is a datum is not global memory, or written in the same nest.
pub fn gathers(func: &Func, code: Code) -> Result<()> {
    func.body.iter().try_for_each(|nest| {
        let written = writes(from_ref(nest));
        let mut found = Vec::new();
        walk(from_ref(nest), &mut |s| {
            if let Stmt::Store(store) = s {
                walk_expr(&store.value, &mut |e| {
                    if let Expr::Gather { var, value, .. } = e {
                        found.extend(read_at(*var, value));
                    }
                });
            }
        });
        found.into_iter().try_for_each(|buffer| allowed(func, nest, (buffer, &written), code))
    })
}

/// The buffers that are read at an index that mentions the variable.
fn read_at(var: Var, value: &Expr) -> Vec<BufferId> {
    let mut out = Vec::new();
    walk_expr(value, &mut |e| {
        if let Expr::Load { buffer, indices, .. } = e
            && indices.iter().any(|i| i.mentions(var))
        {
            out.push(*buffer);
        }
    });
    out
}

fn allowed(func: &Func, nest: &Stmt, (buffer, written): (BufferId, &[BufferId]), code: Code) -> Result<()> {
    let Some(b) = func.buffers.get(buffer.0 as usize) else { return Ok(()) };
    let is_written = written.contains(&buffer);
    if b.scope == Scope::Global && !is_written {
        return Ok(());
    }
    let place = if is_written { "is written in the same nest" } else { "is not global memory" };
    let scope = b.scope.name();
    let message = format!("{} ({scope}) is read at an index that is a datum, but {place}", b.name);
    let writers = blocks(from_ref(nest)).into_iter().filter(|w| writes(&w.body).contains(&buffer));
    let mut nodes = vec![(Node::Buffer(buffer), "this buffer")];
    nodes.extend(writers.map(|w| (Node::Block(w.name), "it is written here")));
    let error = underline(Error::input(code, message), func, &nodes);
    Err(error.help(format!(
        "which elements of {} are read is known at run time alone: read them in a stage of their own, `G[i, j] = {}[X[i], j]`, \
         and place that stage (compute_at, set_scope)",
        b.name, b.name
    )))
}
