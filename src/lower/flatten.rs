//! Makes every buffer flat: one extent, and per access one element index, simplified with all that is known around it.

use super::{Dim, LoweredKernel, bug, guards};
use crate::error::{Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{Buffer, Expr, Func, Index, Stmt, layout, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let strides: Vec<Vec<i64>> = kernel.func.buffers.iter().map(strides_of).collect::<Result<_>>()?;
    let env = kernel.env();
    let mut flat = Flatten { func: &kernel.func, strides: &strides, failed: None };
    let body = flat.body(kernel.func.body.clone(), &env);
    if let Some(e) = flat.failed {
        return Err(e);
    }
    kernel.func.body = body;
    let dims = |(b, strides): (&Buffer, &Vec<i64>)| {
        let extents = b.const_shape().unwrap_or_default().into_iter();
        extents.zip(strides).map(|(extent, stride)| Dim { extent, stride: *stride }).collect()
    };
    kernel.dims = kernel.func.buffers.iter().zip(&strides).map(dims).collect();
    for b in &mut kernel.func.buffers {
        let span = layout::span(b).unwrap_or(0);
        *b = Buffer { shape: vec![Index::Int(span)], strides: None, storage_align: None, ..b.clone() };
    }
    Ok(())
}

fn strides_of(buffer: &Buffer) -> Result<Vec<i64>> {
    layout::strides(buffer).ok_or_else(|| {
        Error::input("lower.size", format!("buffer {} has a symbolic shape, or more than 2^63 elements", buffer.name))
    })
}

struct Flatten<'a> {
    func: &'a Func,
    strides: &'a [Vec<i64>],
    failed: Option<Error>,
}

impl Flatten<'_> {
    fn body(&mut self, body: Vec<Stmt>, env: &Env) -> Vec<Stmt> {
        body.into_iter().map(|s| self.stmt(s, env)).collect()
    }

    fn stmt(&mut self, stmt: Stmt, env: &Env) -> Stmt {
        match stmt {
            Stmt::For(mut l) => {
                l.extent = simplify::simplify(&l.extent, env);
                let mut inner = env.clone();
                match l.extent.as_int() {
                    Some(n) if n > 0 => inner.bind(l.var, 0, n - 1),
                    _ => {
                        self.fail(bug("flatten", format!("loop {} has no constant extent", self.func.var_name(l.var))))
                    }
                }
                l.body = self.body(l.body, &inner);
                Stmt::For(l)
            }
            Stmt::Block(mut b) => {
                b.body = self.body(b.body, env);
                Stmt::Block(b)
            }
            Stmt::If(mut i) => {
                i.cond = simplify::simplify_cond(&i.cond, env);
                let mut inner = env.clone();
                inner.assume(&i.cond);
                i.body = self.body(i.body, &inner);
                Stmt::If(i)
            }
            Stmt::Store(mut s) => {
                s.indices = vec![self.index(s.buffer.0, &s.indices, env)];
                s.value = self.expr(&s.value, env);
                Stmt::Store(s)
            }
            Stmt::Call(mut call) => {
                for o in &mut call.operands {
                    o.indices = vec![self.index(o.buffer.0, &o.indices, env)];
                }
                Stmt::Call(call)
            }
            Stmt::Sync(_) => stmt,
        }
    }

    fn expr(&mut self, expr: &Expr, env: &Env) -> Expr {
        // Only one side of a select runs, but nothing more is assumed on it: the flat index is the same.
        let mut index = |i: &Index| i.clone();
        let rebuilt = visit::map_expr(expr, &mut index, &mut |e| match e {
            Expr::Load { buffer, indices, lanes } => {
                Expr::Load { buffer, indices: vec![self.index(buffer.0, &indices, env)], lanes }
            }
            Expr::Index(t, i) => Expr::Index(t, Box::new(simplify::simplify(&i, env))),
            Expr::Cond(c) => Expr::Cond(Box::new(simplify::simplify_cond(&c, env))),
            other => other,
        });
        guards::fold_select(&rebuilt)
    }

    fn index(&mut self, buffer: u32, indices: &[Index], env: &Env) -> Index {
        let strides = &self.strides[buffer as usize];
        if strides.len() != indices.len() {
            self.fail(bug(
                "flatten",
                format!("{} is indexed by {} indices", self.func.buffers[buffer as usize].name, indices.len()),
            ));
            return Index::Int(0);
        }
        let sum = indices.iter().zip(strides).fold(Index::Int(0), |sum, (i, s)| sum + i.clone() * *s);
        simplify::simplify(&sum, env)
    }

    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }
}
