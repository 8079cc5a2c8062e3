//! Vectorized loops become vector accesses.
//!
//! A loop of constant extent n is cut into accesses of w elements, the largest power of two up to 16 bytes for which
//! every access in the loop is contiguous in its variable, starts at a multiple of w on a base that is aligned so,
//! and runs under conditions that do not tell the w iterations apart. What is left runs unrolled; of elements narrower than
//! a word that a thread copies from device memory, it reads aligned words and shifts them ([`realign`]).

use crate::error::{Code, Result};
use crate::ir::lowered::{LoweredKernel, realign};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    BufferId, CmpOp, Cond, Expr, For, Func, Index, LoopKind, Peers, Remote, Scope, Stmt, Store, Var, visit,
};
use crate::lower::bug;
use crate::lower::map::guards::unless_once;
use crate::target::Target;

/// The widest access in bytes.
const WIDEST: i64 = 16;

/// The most elements of a vector, unless they are single bits of [`WIDEST`] bytes.
const MOST_LANES: i64 = 32;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let env = kernel.env();
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = walk(&kernel.func, body, &env)?;
    Ok(())
}

/// A statement with its vectorized loops as vector accesses.
pub fn pieces(func: &Func, stmt: Stmt, env: &Env) -> Result<Stmt> {
    let made = walk(func, vec![stmt], env)?;
    let [one] = <[Stmt; 1]>::try_from(made).map_err(|_| bug(Code::LowerVectors, "a copy is several statements"))?;
    Ok(one)
}

/// Takes the mark off loops by aligned words whose statement is no longer one that can be read so.
pub fn unmark(kernel: &mut LoweredKernel) {
    let body = std::mem::take(&mut kernel.func.body);
    let func = &kernel.func;
    let body = visit::rewrite(body, &mut |s| match s {
        Stmt::For(mut l) => {
            l.code.realigns &= realign::realigned(func, &l).is_some();
            vec![Stmt::For(l)]
        }
        other => vec![other],
    });
    kernel.func.body = body;
}

fn walk(func: &Func, body: Vec<Stmt>, env: &Env) -> Result<Vec<Stmt>> {
    let mut out = Vec::with_capacity(body.len());
    for stmt in body {
        match stmt {
            Stmt::For(l) if l.kind == LoopKind::Vectorized => out.extend(vectorize(func, l, env)?),
            Stmt::For(mut l) => {
                let inner = with_loop(env, &l);
                l.body = walk(func, l.body, &inner)?;
                out.push(Stmt::For(l));
            }
            Stmt::Block(mut b) => {
                b.body = walk(func, b.body, env)?;
                out.push(Stmt::Block(b));
            }
            Stmt::If(mut i) => {
                i.body = walk(func, i.body, env)?;
                out.push(Stmt::If(i));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

fn with_loop(env: &Env, l: &For) -> Env {
    let mut inner = env.clone();
    if let Some(n) = l.extent.as_int() {
        inner.bind(l.var, 0, n - 1);
    }
    inner
}

fn vectorize(func: &Func, mut l: For, env: &Env) -> Result<Vec<Stmt>> {
    let Some(extent) = l.extent.as_int() else {
        return Err(bug(Code::LowerVectors, format!("loop {} has no constant extent", func.var_name(l.var)))
            .about_loop(func.var_name(l.var)));
    };
    let inner = with_loop(env, &l);
    let width = widths(extent).find(|&w| l.body.iter().all(|s| fits(func, s, l.var, w, &inner)));
    l.kind = LoopKind::Unrolled;
    let narrow =
        |from: BufferId| width.is_none_or(|w| w * i64::from(func.buffer(from).dtype.bits()) < 8 * realign::WORD);
    if realign::realigned(func, &l).and_then(|read| read.from).is_some_and(|(from, _)| narrow(from)) {
        l.code.realigns = true;
        return Ok(vec![Stmt::For(l)]);
    }
    let Some(width) = width else {
        l.body = walk(func, l.body, &inner)?;
        return Ok(vec![Stmt::For(l)]);
    };
    // The variable now counts vectors.
    let start = [(l.var, l.var * width)].into();
    let body = visit::rewrite(std::mem::take(&mut l.body), &mut |s| match s {
        Stmt::Store(s) => vec![Stmt::Store(widen(s, l.var, width))],
        other => vec![other],
    });
    l.extent = Index::Int(extent / width);
    let inner = with_loop(env, &l);
    l.body = visit::map_body(visit::subst_body(body, &start), &mut |i| simplify::simplify(i, &inner), &mut |e| e);
    Ok(unless_once(l, &inner))
}

/// Powers of two above 1 that divide the extent, widest first.
fn widths(extent: i64) -> impl Iterator<Item = i64> {
    [128i64, 64, 32, 16, 8, 4, 2].into_iter().filter(move |w| extent % w == 0)
}

/// Whether `width` consecutive iterations are one vector statement.
fn fits(func: &Func, stmt: &Stmt, var: Var, width: i64, env: &Env) -> bool {
    match stmt {
        Stmt::Block(b) => b.body.iter().all(|s| fits(func, s, var, width, env)),
        Stmt::If(i) => uniform(&i.cond, var, width, env) && i.body.iter().all(|s| fits(func, s, var, width, env)),
        Stmt::Store(s) => {
            s.lanes == 1
                && (width <= MOST_LANES || func.buffer(s.buffer).dtype.bits() == 1)
                && same_block(s, var, width, env)
                && access_fits(func, s.buffer, &s.indices[0], var, width, env)
                && value_fits(func, &s.value, var, width, env)
        }
        Stmt::For(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => false,
    }
}

fn value_fits(func: &Func, value: &Expr, var: Var, width: i64, env: &Env) -> bool {
    let mut fits = true;
    visit::walk_expr(value, &mut |e| {
        fits &= match e {
            Expr::Load { buffer, indices, .. } => {
                !indices[0].mentions(var) || access_fits(func, *buffer, &indices[0], var, width, env)
            }
            Expr::Index(_, i) => !i.mentions(var),
            Expr::Cond(c) => uniform(c, var, width, env),
            // One choice for all lanes; a choice by lane has no vector form here.
            Expr::Select(c, ..) => matches!(c.as_ref(), Expr::Cond(_)),
            // The lanes of a vector are neighbours: their index is one datum.
            Expr::Gather { index, .. } => !visit::mentions(index, var),
            Expr::Splat(..) | Expr::Shuffle(..) | Expr::Cmp(..) => false,
            _ => true,
        };
    });
    fits
}

/// Whether `width` consecutive iterations, from a multiple of that on, store to the same block.
fn same_block(store: &Store, var: Var, width: i64, env: &Env) -> bool {
    let Some(Remote { peers: Peers::One(rank), .. }) = &store.remote else { return true };
    let at = |step: i64| simplify::simplify(&visit::subst_index(rank, &[(var, var * width + step)].into()), env);
    !rank.mentions(var) || (1..width).all(|step| at(step) == at(0))
}

/// Contiguous in the variable, at a multiple of the width, within the widest access, on an aligned base.
fn access_fits(func: &Func, buffer: BufferId, index: &Index, var: Var, width: i64, env: &Env) -> bool {
    let b = func.buffer(buffer);
    let bytes = width * i64::from(b.dtype.bits()) / 8;
    let aligned = b.scope != Scope::Global || i64::from(b.align) % bytes.max(1) == 0;
    // Registers have no addresses: what is read there is as wide as what it is for.
    if !aligned || bytes < 1 || bytes > WIDEST && b.scope != Scope::Local {
        return false;
    }
    let affine = simplify::affine(&simplify::simplify(index, env));
    let step: i64 = affine.terms.iter().filter(|(a, _)| *a == Index::Var(var)).map(|(_, c)| *c).sum();
    let rest = simplify::simplify(&visit::subst_index(index, &[(var, Index::Int(0))].into()), env);
    let elsewhere = affine.terms.iter().any(|(a, _)| *a != Index::Var(var) && a.mentions(var));
    step == 1 && !elsewhere && simplify::divisor(&rest, env) % width == 0
}

/// Whether a condition is the same for each aligned group of `width` values of the variable.
fn uniform(cond: &Cond, var: Var, width: i64, env: &Env) -> bool {
    cond.conjuncts().into_iter().all(|c| match c {
        c if !c.mentions(var) => true,
        // a + v < b with a and b multiples of the width.
        Cond::Cmp(CmpOp::Lt | CmpOp::Ge, left, right) => {
            let difference = simplify::affine(&simplify::simplify(&(left.clone() - right.clone()), env));
            difference.terms.iter().all(|(atom, c)| {
                if *atom == Index::Var(var) {
                    *c == 1
                } else {
                    !atom.mentions(var) && (c * simplify::divisor(atom, env)) % width == 0
                }
            }) && difference.constant % width == 0
        }
        _ => false,
    })
}

fn widen(store: Store, var: Var, width: i64) -> Store {
    let lanes = width as u32;
    Store { value: widen_expr(store.value, var, lanes), lanes, ..store }
}

/// The expression with `lanes` lanes: loads that follow the variable widen, everything else is the same in each lane.
fn widen_expr(expr: Expr, var: Var, lanes: u32) -> Expr {
    let again = |e: Box<Expr>| Box::new(widen_expr(*e, var, lanes));
    match expr {
        Expr::Load { buffer, indices, .. } if indices[0].mentions(var) => Expr::Load { buffer, indices, lanes },
        Expr::Un(op, a) => Expr::Un(op, again(a)),
        Expr::Bin(op, a, b) => Expr::Bin(op, again(a), again(b)),
        Expr::Cast(t, a) => Expr::Cast(t, again(a)),
        Expr::Select(c, a, b) => Expr::Select(c, again(a), again(b)),
        Expr::Gather { var: datum, low, extent, index, value } => {
            Expr::Gather { var: datum, low, extent, index, value: again(value) }
        }
        other => Expr::Splat(lanes, Box::new(other)),
    }
}
