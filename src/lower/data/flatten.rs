//! Makes every buffer flat: one extent, and per access one element index, simplified with all that is known around it. A
//! swizzled buffer is walked by the digits of its layout, and the flips of its addresses are written out.

use crate::error::{Code, Error, Result};
use crate::ir::layout::{self, Coordinate, Layout};
use crate::ir::lowered::{Dim, LoweredKernel};
use crate::ir::simplify::{self, Env};
use crate::ir::{Buffer, Expr, Func, Index, Peers, Remote, Stmt, visit};
use crate::lower::bug;
use crate::lower::map::guards;
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let strides: Vec<Vec<i64>> = kernel.func.buffers.iter().map(strides_of).collect::<Result<_>>()?;
    let env = kernel.env();
    let swizzles: Vec<Option<Layout>> = kernel.func.buffers.iter().map(swizzle_of).collect::<Result<_>>()?;
    let mut flat = Flatten { func: &kernel.func, strides: &strides, swizzles: &swizzles, failed: None };
    let body = flat.body(kernel.func.body.clone(), &env);
    if let Some(e) = flat.failed {
        return Err(e);
    }
    kernel.func.body = body;
    let func = &kernel.func;
    let dims = |(b, strides): (&Buffer, &Vec<i64>)| {
        // Rows of a swizzled buffer are not a stride apart.
        let plain = func.largest(b).const_shape().filter(|_| b.swizzle.is_none());
        let extents = plain.unwrap_or_default().into_iter().zip(&b.shape);
        let dim = |((extent, own), stride): ((i64, &Index), &i64)| Dim {
            extent,
            stride: *stride,
            dynamic: func.size_of(own),
        };
        extents.zip(strides).map(dim).collect()
    };
    kernel.dims = kernel.func.buffers.iter().zip(&strides).map(dims).collect();
    let spans: Vec<Option<i64>> = func.buffers.iter().map(|b| layout::span(&func.largest(b))).collect();
    for (b, span) in kernel.func.buffers.iter_mut().zip(spans) {
        let span = span.ok_or_else(|| sizeless(b))?;
        *b = Buffer { shape: vec![Index::Int(span)], strides: None, storage_align: None, swizzle: None, ..b.clone() };
    }
    Ok(())
}

fn strides_of(buffer: &Buffer) -> Result<Vec<i64>> {
    layout::strides(buffer).ok_or_else(|| sizeless(buffer))
}

fn sizeless(buffer: &Buffer) -> Error {
    let message = format!("buffer {} has a symbolic shape, or 2^63 elements or more", buffer.name);
    Error::input(Code::LowerSize, message).about_buffer(&buffer.name)
}

/// The layout of a swizzled buffer.
fn swizzle_of(buffer: &Buffer) -> Result<Option<Layout>> {
    let Some(width) = buffer.swizzle else { return Ok(None) };
    let layout = Layout::of(buffer).ok_or_else(|| {
        let rows = buffer.shape.last().and_then(Index::as_int).unwrap_or(0);
        let bytes = buffer.dtype.bytes_of(rows as u64);
        let message = format!("rows of {} are {bytes} bytes, which panels of {width} bytes do not divide", buffer.name);
        Error::input(Code::LowerSwizzle, message)
            .about_buffer(&buffer.name)
            .help("swizzle with another width, or make its tiles another size")
    })?;
    Ok(Some(layout))
}

/// The element at indices: the digits of the layout, then its flips. What lies below and above the flipped bits stays
/// apart from them, so that neighbours stay neighbours and whole rows further on are a constant.
fn swizzled(layout: &Layout, bits: i64, indices: &[Index], env: &Env) -> Index {
    let mut flat = unflipped(layout, bits, indices, env);
    for flip in layout.flips() {
        let (from, to, mask) = ((1 << flip.from) / bits, (1 << flip.to) / bits, 1 << flip.bits);
        let part = |at: i64| simplify::simplify(&flat.clone().floordiv(at).floormod(mask), env);
        let (low, high) = (flat.clone().floormod(to), flat.clone().floordiv(to * mask) * (to * mask));
        flat = simplify::simplify(&(high + part(to).xor(part(from)) * to + low), env);
    }
    flat
}

/// The element at indices by the digits of the layout alone.
fn unflipped(layout: &Layout, bits: i64, indices: &[Index], env: &Env) -> Index {
    let mut sum = Index::Int(0);
    for d in layout.digits() {
        let Coordinate::Index(dim) = d.from else { continue };
        let whole = indices[dim].clone().floordiv(d.at);
        let last = d.at * d.extent == layout.extent(d.from);
        sum = sum + if last { whole } else { whole.floormod(d.extent) } * (d.stride / bits);
    }
    simplify::simplify(&sum, env)
}

struct Flatten<'a> {
    func: &'a Func,
    strides: &'a [Vec<i64>],
    swizzles: &'a [Option<Layout>],
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
                    _ => self.fail(
                        bug(Code::LowerFlatten, format!("loop {} has no constant extent", self.func.var_name(l.var)))
                            .about_loop(self.func.var_name(l.var)),
                    ),
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
                if let Some(Remote { peers: Peers::One(rank), .. }) = &mut s.remote {
                    *rank = simplify::simplify(rank, env);
                }
                Stmt::Store(s)
            }
            Stmt::Call(mut call) => {
                for o in &mut call.operands {
                    o.indices = vec![self.index(o.buffer.0, &o.indices, env)];
                }
                if let Some(columns) = &mut call.columns {
                    columns.below = simplify::simplify(&columns.below, env);
                }
                Stmt::Call(call)
            }
            Stmt::Bulk(mut copy) => {
                // The copy engine flips the bits of addresses by itself.
                copy.indices = vec![self.straight(copy.shared.0, &copy.indices, env)];
                copy.coordinates.iter_mut().for_each(|i| *i = simplify::simplify(i, env));
                Stmt::Bulk(copy)
            }
            Stmt::Elect(mut e) => {
                e.body = self.body(e.body, env);
                Stmt::Elect(e)
            }
            Stmt::Role(mut r) => {
                r.body = self.body(r.body, env);
                Stmt::Role(r)
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
            self.fail(
                bug(
                    Code::LowerFlatten,
                    format!("{} is indexed by {} indices", self.func.buffers[buffer as usize].name, indices.len()),
                )
                .about_buffer(&self.func.buffers[buffer as usize].name),
            );
            return Index::Int(0);
        }
        if let Some(layout) = &self.swizzles[buffer as usize] {
            return swizzled(layout, i64::from(self.func.buffers[buffer as usize].dtype.bits()), indices, env);
        }
        let sum = indices.iter().zip(strides).fold(Index::Int(0), |sum, (i, s)| sum + i.clone() * *s);
        simplify::simplify(&sum, env)
    }

    /// [`Flatten::index`] without the flips of a swizzle.
    fn straight(&mut self, buffer: u32, indices: &[Index], env: &Env) -> Index {
        match &self.swizzles[buffer as usize] {
            Some(layout) => unflipped(layout, i64::from(self.func.buffers[buffer as usize].dtype.bits()), indices, env),
            None => self.index(buffer, indices, env),
        }
    }

    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }
}
