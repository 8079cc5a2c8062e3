//! What the primitives ask about loops and blocks before they rewrite.
//!
//! Order matters in a block only where it sums: its init must come first, and no term may be summed twice. The two
//! questions are [`init_comes_first`] and [`distinct`]; what cannot be shown is taken to be false.

use super::dataflow::constant_vars;
use super::digits;
use crate::ir::decide;
use crate::ir::reduction::Reduction;
use crate::ir::simplify::{Env, simplify, simplify_cond};
use crate::ir::{
    BinOp, Block, Cond, Expr, For, Func, Index, Iter, IterKind, LoopKind, Stmt, Store, Var, stmt::BlockId, visit,
};

/// How a block uses its iterators, which decides in which orders they may run. (Whether a block may move or vanish asks
/// more: `dataflow::nature`, which also demands that its iterations write apart.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Writes a function of its iterators; running an iteration twice changes nothing.
    Map,
    /// `buffer[..] = buffer[..] op ..` with a commutative operation over its reduce iterators, for one buffer or several, or a
    /// reducer of tuples.
    Reduction,
    /// Anything else.
    Other,
}

/// The kind of a block.
pub fn kind(func: &Func, block: &Block) -> BlockKind {
    let written = visit::writes(&block.body);
    let reads_own = visit::reads(&block.body).iter().any(|b| written.contains(b));
    let reduces = block.iters.iter().any(|i| i.kind == IterKind::Reduce);
    match (reduces, reads_own) {
        (false, false) if block.init.is_none() => BlockKind::Map,
        (true, true) if Reduction::of(func, block).is_some() => BlockKind::Reduction,
        _ => BlockKind::Other,
    }
}

/// The only store of a reduction, the operation, and what is added; `None` if the body is not of that form.
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
        LoopKind::Bound { axis, .. } => return Some(format!("is bound to {}", axis.name())),
        LoopKind::Persistent { .. } => return Some("is persistent".into()),
    }
    if l.raster.is_some() {
        return Some("iterates a rasterized pair".into());
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

/// Whether different values of the loops' variables, at fixed values of all others, give different values of the indices
/// wherever `predicate` holds.
pub fn distinct(loops: &[&For], indices: &[Index], predicate: &Cond, env: &Env) -> bool {
    let Some(mut vars) = constant_vars(loops) else { return false };
    // Loops that are longer than what they count, of which the first iteration alone does anything.
    let mut known = env.clone();
    known.assume(predicate);
    vars.retain(|(v, extent)| *extent > 1 && known.range(*v) != Some((0, 0)));
    let used = |(v, _): &(Var, i64)| indices.iter().any(|i| i.mentions(*v));
    let simple: Vec<Index> = indices.iter().map(|i| simplify(i, env)).collect();
    vars.iter().all(used) && digits::image(&simple, &vars).injective
}

/// The bindings of the iterators of a kind.
pub fn bindings(block: &Block, kind: IterKind) -> Vec<Index> {
    block.iters.iter().filter(|i| i.kind == kind).map(|i| i.binding.clone()).collect()
}

/// Whether all reduce iterators of the block are 0 exactly where all of `loops` are, which must be all that they mention:
/// then the init runs once, and first in every order of the loops.
pub fn init_comes_first(loops: &[&For], block: &Block, env: &Env) -> bool {
    let bindings = bindings(block, IterKind::Reduce);
    let zero: visit::Map = loops.iter().flat_map(|l| l.defines()).map(|(v, _)| (v, Index::Int(0))).collect();
    let starts = |b: &Index| decide::equal(&visit::subst_index(b, &zero), &Index::Int(0), env);
    bindings.iter().all(starts) && distinct(loops, &bindings, &block.predicate, env)
}

/// Simplifies bindings and predicates of every block in the body, given the loops around it. An iterator that a loop runs by
/// itself keeps it, though the loop have a single iteration: it may yet be split into more than that.
pub fn simplify_bindings(func: &mut Func) {
    let known: Vec<(BlockId, Env)> = visit::blocks(&func.body)
        .iter()
        .map(|b| (b.name, Env::with_loops(visit::loops_around(&func.body, b.name).unwrap_or_default())))
        .collect();
    for (block, env) in known {
        visit::change_block(&mut func.body, block, &mut |b| {
            for iter in b.iters.iter_mut().filter(|i| i.binding.as_var().is_none()) {
                iter.binding = simplify(&iter.binding, &env);
            }
            b.predicate = simplify_cond(&b.predicate, &env);
        });
    }
}
