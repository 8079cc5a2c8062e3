//! What the primitives ask about loops and blocks before they rewrite.
//!
//! Order matters in a block only where it sums: its init must come first, and no term may be summed twice. The two
//! questions are [`init_comes_first`] and [`distinct`]. Both are answered from affine bindings, or by enumeration where
//! the nest is small; what cannot be shown is taken to be false.

use crate::ir::simplify::{Env, affine, simplify, simplify_cond};
use crate::ir::{
    BinOp, Block, Expr, For, Func, Index, IndexOp, Iter, IterKind, LoopKind, Stmt, Store, Var, stmt::BlockId, visit,
};
use std::collections::{HashMap, HashSet};

/// Iterations that are enumerated at most.
const ENUMERATED: i64 = 1 << 16;

/// How a block uses its iterators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Writes a function of its iterators; running an iteration twice changes nothing.
    Map,
    /// `buffer[..] = buffer[..] op ..` with a commutative operation over its reduce iterators.
    Reduction,
    /// Anything else.
    Other,
}

/// The kind of a block.
pub fn kind(block: &Block) -> BlockKind {
    let written = visit::writes(&block.body);
    let reads_own = visit::reads(&block.body).iter().any(|b| written.contains(b));
    let reduces = block.iters.iter().any(|i| i.kind == IterKind::Reduce);
    match (reduces, reads_own) {
        (false, false) if block.init.is_none() => BlockKind::Map,
        (true, true) if update(block).is_some() => BlockKind::Reduction,
        _ => BlockKind::Other,
    }
}

/// The store of a reduction, the operation, and what is added; `None` if the body is not of that form.
pub fn update(block: &Block) -> Option<(&Store, BinOp, &Expr)> {
    let [Stmt::Store(store)] = block.body.as_slice() else { return None };
    let Expr::Bin(op, a, b) = &store.value else { return None };
    let commutes =
        matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max | BinOp::And | BinOp::Or | BinOp::Xor);
    let itself = |e: &Expr| matches!(e, Expr::Load { buffer, indices, .. } if *buffer == store.buffer && *indices == store.indices);
    let term = match (itself(a), itself(b)) {
        (true, false) => b,
        (false, true) => a,
        _ => return None,
    };
    let mut clean = commutes && !store.indices.iter().any(|i| mentions_reduce(block, i));
    visit::walk_expr(term, &mut |e| clean &= !matches!(e, Expr::Load { buffer, .. } if *buffer == store.buffer));
    clean.then_some((store, *op, term))
}

fn mentions_reduce(block: &Block, index: &Index) -> bool {
    block.iters.iter().any(|i| i.kind == IterKind::Reduce && index.mentions(i.var))
}

/// What is attached to a loop, in words; `None` for a plain serial loop.
pub fn placement(l: &For) -> Option<String> {
    match l.kind {
        LoopKind::Serial => {}
        LoopKind::Unrolled => return Some("is unrolled".into()),
        LoopKind::Vectorized => return Some("is vectorized".into()),
        LoopKind::Bound(axis) => return Some(format!("is bound to {}", axis.name())),
    }
    if l.raster.is_some() {
        return Some("walks a rasterized pair".into());
    }
    if l.pipeline.is_some() {
        return Some("is pipelined".into());
    }
    if let Some(t) = &l.tensorize {
        return Some(format!("is tensorized as {}", t.row));
    }
    l.notes.keys().next().map(|n| format!("is annotated with {}", n.name()))
}

/// Whether the loop's variable, or one of the pair it walks, occurs.
pub fn mentions(index: &Index, l: &For) -> bool {
    l.defines().iter().any(|(v, _)| index.mentions(*v))
}

/// Each outermost block below a loop, with the loops from that loop down to the block, outermost first.
pub fn blocks_below(l: &For) -> Vec<(Vec<&For>, &Block)> {
    fn collect<'a>(body: &'a [Stmt], path: &mut Vec<&'a For>, out: &mut Vec<(Vec<&'a For>, &'a Block)>) {
        for stmt in body {
            match stmt {
                Stmt::Block(b) => out.push((path.clone(), b)),
                Stmt::For(l) => {
                    path.push(l);
                    collect(&l.body, path, out);
                    path.pop();
                }
                other => visit::children(other).into_iter().for_each(|child| collect(child, path, out)),
            }
        }
    }
    let (mut out, mut path) = (Vec::new(), vec![l]);
    collect(&l.body, &mut path, &mut out);
    out
}

/// The iterators of a kind whose binding mentions the loop.
pub fn iters_on<'a>(block: &'a Block, l: &For, kind: IterKind) -> Vec<&'a Iter> {
    block.iters.iter().filter(|i| i.kind == kind && mentions(&i.binding, l)).collect()
}

/// A block below the loop whose reduce iterators mention it.
pub fn sums_over(l: &For) -> Option<&Block> {
    blocks_below(l).into_iter().map(|(_, b)| b).find(|b| !iters_on(b, l, IterKind::Reduce).is_empty())
}

/// The variables of loops with constant extents above 1; `None` where an extent is symbolic.
fn ranges(loops: &[&For]) -> Option<Vec<(Var, i64)>> {
    let all = loops.iter().flat_map(|l| l.defines());
    let constant: Option<Vec<(Var, i64)>> = all.map(|(v, e)| e.as_int().map(|e| (v, e))).collect();
    Some(constant?.into_iter().filter(|(_, e)| *e > 1).collect())
}

fn env_of(vars: &[(Var, i64)]) -> Env {
    let mut env = Env::new();
    vars.iter().for_each(|(v, e)| env.bind(*v, 0, e - 1));
    env
}

/// Whether different values of the loops' variables, at fixed values of all others, give different values of the indices.
pub fn distinct(loops: &[&For], indices: &[&Index]) -> bool {
    let Some(vars) = ranges(loops) else { return false };
    if vars.iter().any(|(v, _)| !indices.iter().any(|i| i.mentions(*v))) {
        return false;
    }
    let mut left: Vec<(Var, i64)> = vars.clone();
    let env = env_of(&vars);
    for index in indices {
        let own: Vec<(Var, i64)> = vars.iter().copied().filter(|(v, _)| index.mentions(*v)).collect();
        if mixed_radix(&simplify(index, &env), &own) {
            left.retain(|l| !own.contains(l));
        }
    }
    left.is_empty() || enumerate(&vars, |points| points.all_distinct(indices))
}

/// Whether the index is a sum of each variable times a stride, where no two assignments coincide.
fn mixed_radix(index: &Index, vars: &[(Var, i64)]) -> bool {
    let mut terms: Vec<(i64, i64)> = Vec::new();
    for (atom, coefficient) in &affine(index).terms {
        match atom.as_var().and_then(|v| vars.iter().find(|(w, _)| *w == v)) {
            Some((_, extent)) => terms.push((coefficient.abs(), *extent)),
            None if vars.iter().any(|(v, _)| atom.mentions(*v)) => return false,
            None => {}
        }
    }
    terms.sort_unstable();
    let mut reach = 0i64;
    terms.len() == vars.len()
        && terms.iter().all(|(stride, extent)| {
            let apart = *stride > reach;
            reach = reach.saturating_add(stride.saturating_mul(extent - 1));
            apart
        })
}

/// Whether all reduce iterators of the block are 0 exactly where all of `loops` (those that its reduce iterators mention)
/// are 0: then the init runs first in every order of the loops, and once.
pub fn init_comes_first(loops: &[&For], block: &Block) -> bool {
    let Some(vars) = ranges(loops) else { return false };
    let reduce: Vec<&Index> = block.iters.iter().filter(|i| i.kind == IterKind::Reduce).map(|i| &i.binding).collect();
    let env = env_of(&vars);
    let mut left = vars.clone();
    for index in &reduce {
        let sum = affine(&simplify(index, &env));
        let positive = sum.constant == 0 && sum.terms.iter().all(|(a, c)| *c > 0 && a.as_var().is_some());
        if positive {
            left.retain(|(v, _)| sum.coefficient(*v) == 0);
        }
    }
    left.is_empty() || enumerate(&vars, |points| points.zero_only_at_zero(&reduce))
}

/// The assignments of some variables.
struct Points<'a> {
    vars: &'a [(Var, i64)],
    total: i64,
}

fn enumerate(vars: &[(Var, i64)], ask: impl FnOnce(&Points) -> bool) -> bool {
    let total = vars.iter().try_fold(1i64, |p, (_, e)| p.checked_mul(*e)).filter(|t| *t <= ENUMERATED);
    total.is_some_and(|total| ask(&Points { vars, total }))
}

impl Points<'_> {
    /// The indices at an assignment, variables that are not enumerated counting as unknown.
    fn values(&self, mut number: i64, indices: &[&Index]) -> Option<Vec<i64>> {
        let mut values = HashMap::new();
        for (v, e) in self.vars {
            values.insert(*v, number % e);
            number /= e;
        }
        let mentioned = indices.iter().filter(|i| self.vars.iter().any(|(v, _)| i.mentions(*v)));
        mentioned.map(|i| i.eval(&|v| values.get(&v).copied())).collect()
    }

    fn all_distinct(&self, indices: &[&Index]) -> bool {
        let mut seen = HashSet::new();
        (0..self.total).all(|n| self.values(n, indices).is_some_and(|v| seen.insert(v)))
    }

    fn zero_only_at_zero(&self, indices: &[&Index]) -> bool {
        (0..self.total).all(|n| {
            let values = self.values(n, indices);
            values.is_some_and(|v| v.iter().all(|x| *x == 0) == (n == 0))
        })
    }
}

/// Simplifies bindings and predicates of every block in the body, given the loops around it.
pub fn simplify_bindings(func: &mut Func) {
    let known: Vec<(BlockId, Env)> = visit::blocks(&func.body)
        .iter()
        .map(|b| (b.name, Env::with_loops(visit::loops_around(&func.body, b.name).unwrap_or_default())))
        .collect();
    for (block, env) in known {
        visit::change_block(&mut func.body, block, &mut |b| {
            for iter in &mut b.iters {
                iter.binding = simplify(&iter.binding, &env);
            }
            b.predicate = simplify_cond(&b.predicate, &env);
        });
    }
}

/// Whether an index is its smallest part times nothing: used for box copies. True where the index is `base + var` with
/// exactly one of the variables, or none.
pub fn walks_at_most_one(index: &Index, vars: &[Var]) -> bool {
    let sum = affine(index);
    let mentioned: Vec<&(Index, i64)> =
        sum.terms.iter().filter(|(atom, _)| vars.iter().any(|v| atom.mentions(*v))).collect();
    match mentioned.as_slice() {
        [] => true,
        [(atom, 1)] => {
            !matches!(atom, Index::Bin(IndexOp::FloorDiv | IndexOp::FloorMod | IndexOp::Min | IndexOp::Max, ..))
        }
        _ => false,
    }
}
