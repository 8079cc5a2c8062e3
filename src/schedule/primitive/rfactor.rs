//! `rfactor BLOCK LOOP -> RF [loops]`: each iteration of the reduce loop LOOP accumulates into an element of its own of
//! the new buffer RF, which has LOOP as an additional first dimension; the block RF keeps the loops, and BLOCK then
//! combines RF's elements in new loops `BLOCK_0`, `BLOCK_1`, .., one for each spatial iterator, and one for LOOP.
//!
//! Requires:
//! 1. BLOCK accumulates into one element an iteration, from an init, and no other block writes its output.
//! 2. It combines its output with a value that does not depend on it by +, *, min or max.
//! 3. The init is the neutral constant (0 for +, 1 for *, any constant for min and max).
//! 4. LOOP is one of BLOCK's loops, runs reduce iterators alone and is not placed.
//! 5. BLOCK's loops hold nothing else, stand at the root and are not tensorized, and none runs both kinds of iterators.
//! 6. BLOCK's spatial iterators sweep their whole domains.
//! 7. No part of BLOCK's predicate speaks of spatial and reduce loops at once.
//!
//! Preserves: the result, up to the order in which terms combine. Where the reduce loops are ragged, RF combines the
//! neutral constant instead of a term.
//!
//! ```text
//! for k0 in 0..4                                for k0 in 0..4
//!   for k1 in 0..8                                for k1 in 0..8
//!     C: C[0] = C[0] + A[k0*8 + k1]      ->         RF: RF[k1, 0] = RF[k1, 0] + A[k0*8 + k1]
//!                                               for C_0 in 0..8: C: C[0] = C[0] + RF[C_0, 0]
//! ```

use super::{Applied, Kind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{
    BinOp, Block, Buffer, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, Literal, LoopKind, Stmt, Store, Var,
    visit,
};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, dataflow, find, nest};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "rfactor",
    about: "Splits a reduction: one partial result for each iteration of a reduce loop, then their combination.",
    signature: &[
        Parameter::place("block", Kind::Block),
        Parameter::place("loop", Kind::Loop),
        Parameter::made("stage", Kind::Stage),
        Parameter::made("loops", Kind::Loops),
    ],
    requires: &[
        "BLOCK accumulates into one element an iteration, from an init, and no other block writes its output",
        "it combines its output with a value that does not depend on it by +, *, min or max",
        "the init is the neutral constant (0 for +, 1 for *, any constant for min and max)",
        "LOOP is one of BLOCK's loops, runs reduce iterators alone and is not placed",
        "BLOCK's loops hold nothing else, stand at the root and are not tensorized, and none runs both kinds of iterators",
        "BLOCK's spatial iterators sweep their whole domains",
        "no part of BLOCK's predicate speaks of spatial and reduce loops at once",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("rfactor", func);
    let block = find::block(func, args.get_word("block")?)?;
    let factor = find::loop_(func, args.get_word("loop")?)?;
    let found = check(refusal, func, block, factor)?;
    let name = func.block_name(block.name);
    let stage = find::new_stage(func, args.names.first(), &format!("{name}_rf"))?;
    let rank = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).count();
    let defaults: Vec<String> = (0..=rank).map(|n| format!("{name}_{n}")).collect();
    let loops = find::new_loops_from(func, args.names.get(1..).unwrap_or_default(), &defaults, &[])?;

    let mut out = func.clone();
    let output = func.buffer(found.store.buffer);
    let shape = std::iter::once(factor.extent.clone()).chain(output.shape.iter().cloned()).collect();
    let partial = out.add_buffer(Buffer::new(stage.clone(), output.dtype, shape, output.scope));
    let combine = combination(&mut out, block, factor, &found, partial, &loops);
    let accumulate = partial_block(&mut out, block, factor, &found, partial, &stage);
    visit::change_block(&mut out.body, block.name, &mut |b| *b = accumulate.clone());
    out.body.insert(found.root + 1, combine);
    Ok(Applied { func: out, names: std::iter::once(stage).chain(loops).collect() })
}

/// What the check finds out.
struct Found<'a> {
    store: &'a Store,
    op: BinOp,
    term: &'a Expr,
    init: &'a Expr,
    /// The reduce loops besides LOOP.
    others: Vec<&'a For>,
    /// The position of the nest in the root.
    root: usize,
    /// The part of the predicate about spatial loops.
    predicate: Cond,
    /// The part of the predicate about reduce loops: where there is a term.
    terms: Cond,
}

/// The block that accumulates the partial results, in BLOCK's place.
fn partial_block(func: &mut Func, block: &Block, factor: &For, found: &Found, partial: BufferId, stage: &str) -> Block {
    let name = func.add_block(stage);
    let mut iter_of = |l: &For, kind| {
        let var = func.add_var(format!("v{}", func.var_name(l.var)));
        Iter { var, kind, extent: l.extent.clone(), binding: Index::Var(l.var) }
    };
    let lane = iter_of(factor, IterKind::Spatial);
    let reduce: Vec<Iter> = found.others.iter().map(|l| iter_of(l, IterKind::Reduce)).collect();
    let loops: visit::Map =
        [&lane].into_iter().chain(&reduce).filter_map(|i| Some((i.binding.as_var()?, Index::Var(i.var)))).collect();
    let old = block.iters.iter().filter(|i| i.kind == IterKind::Reduce);
    let map: visit::Map = old.map(|i| (i.var, visit::subst_index(&i.binding, &loops))).collect();
    let mut term = visit::subst_expr(found.term, &map);
    let within = visit::subst_cond(&found.terms, &loops);
    if !within.is_true() {
        term = Expr::select(Expr::Cond(Box::new(within)), term, found.init.clone());
    }
    let indices: Vec<Index> =
        std::iter::once(Index::Var(lane.var)).chain(found.store.indices.iter().cloned()).collect();
    let store = |value| vec![Stmt::Store(Store::new(partial, indices.clone(), value))];
    let (init, value) = match reduce.is_empty() {
        true => (None, term),
        false => (Some(store(found.init.clone())), Expr::bin(found.op, Expr::load(partial, indices.clone()), term)),
    };
    let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).cloned();
    let iters = std::iter::once(lane).chain(spatial).chain(reduce).collect();
    Block {
        name,
        iters,
        predicate: found.predicate.clone(),
        init,
        body: store(value),
        copy_with: None,
        role: block.role,
    }
}

/// BLOCK in its new nest, combining the partial results.
fn combination(
    func: &mut Func,
    block: &Block,
    factor: &For,
    found: &Found,
    partial: BufferId,
    names: &[String],
) -> Stmt {
    let (mut loops, mut iters, mut map) = (Vec::new(), Vec::new(), visit::Map::new());
    let spatial: Vec<&Iter> = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).collect();
    for (it, name) in spatial.iter().zip(names) {
        let var = func.add_var(name.clone());
        loops.push(For::new(var, it.extent.clone(), LoopKind::Serial, Vec::new()));
        let own = func.add_var(func.var_name(it.var).to_string());
        map.insert(it.var, Index::Var(own));
        iters.push(Iter { var: own, binding: Index::Var(var), ..(*it).clone() });
    }
    let var = func.add_var(names.last().cloned().unwrap_or_default());
    loops.push(For::new(var, factor.extent.clone(), LoopKind::Serial, Vec::new()));
    let own = func.add_var(format!("v{}", func.var_name(factor.var)));
    iters.push(Iter { var: own, kind: IterKind::Reduce, extent: factor.extent.clone(), binding: Index::Var(var) });
    let at: Vec<Index> = found.store.indices.iter().map(|i| visit::subst_index(i, &map)).collect();
    let from: Vec<Index> = std::iter::once(Index::Var(own)).chain(at.iter().cloned()).collect();
    let output = found.store.buffer;
    let store = |value| vec![Stmt::Store(Store::new(output, at.clone(), value))];
    let value = Expr::bin(found.op, Expr::load(output, at.clone()), Expr::load(partial, from));
    let init = Some(store(found.init.clone()));
    let new = Block { iters, predicate: Cond::TRUE, init, body: store(value), ..block.clone() };
    nest::wrap(loops, Stmt::Block(new))
}

fn check<'a>(refusal: Refusal, func: &'a Func, block: &'a Block, factor: &For) -> Result<Found<'a>> {
    let name = func.block_name(block.name);
    let this = (Node::Block(block.name), "this block");
    let nature = dataflow::nature(block).and_then(|n| if n.reduction { Ok(n) } else { Err("it has no init".into()) });
    let nature = nature.map_err(|why| {
        let error = refusal.broken(1, format!("{name} cannot be factored: {why}"), &[this]);
        error.help("rfactor is for blocks that sum, before decompose_reduction")
    })?;
    if let Some(w) = dataflow::writers(func, nature.output).into_iter().find(|w| w.name != block.name) {
        let message = format!("{} also writes what {name} writes", func.block_name(w.name));
        return Err(refusal.broken(1, message, &[this, (Node::Block(w.name), "the other writer")]));
    }
    let Some((store, op, term)) = combined(block) else {
        let message = format!("{name} is no sum, product, minimum or maximum of its output and another value");
        return Err(refusal.broken(2, message, &[this]));
    };
    let init = block.init.as_deref().and_then(|i| if let [Stmt::Store(s)] = i { Some(&s.value) } else { None });
    let Some(init) = init.filter(|i| neutral(op, i)) else {
        return Err(refusal.broken(
            3,
            format!("the init of {name} is not the neutral constant of its operation"),
            &[this],
        ));
    };
    let (others, root) = check_loops(refusal, func, block, factor)?;
    let (predicate, terms) = check_terms(refusal, func, block, factor, &others)?;
    Ok(Found { store, op, term, init, others, root, predicate, terms })
}

/// The store, the operation and the value that is combined with the output.
fn combined(block: &Block) -> Option<(&Store, BinOp, &Expr)> {
    let [Stmt::Store(store)] = block.body.as_slice() else { return None };
    let Expr::Bin(op, a, b) = &store.value else { return None };
    let own = |e: &Expr| matches!(e, Expr::Load { buffer, indices, .. } if *buffer == store.buffer && *indices == store.indices);
    let free = |e: &Expr| {
        let mut free = true;
        visit::walk_expr(e, &mut |x| free &= !matches!(x, Expr::Load { buffer, .. } if *buffer == store.buffer));
        free
    };
    let known = matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max);
    match (own(a) && free(b), own(b) && free(a)) {
        (true, _) if known => Some((store, *op, b)),
        (_, true) if known => Some((store, *op, a)),
        _ => None,
    }
}

/// Whether an init is the neutral constant of an operation. A constant that begins a maximum or minimum changes nothing
/// when it is met again.
pub fn neutral(op: BinOp, init: &Expr) -> bool {
    let Expr::Const(_, literal) = init else { return false };
    let value = match literal {
        Literal::Int(i) => *i as f64,
        Literal::Float(f) => *f,
    };
    match op {
        BinOp::Add => value == 0.0,
        BinOp::Mul => value == 1.0,
        _ => true,
    }
}

/// Requirements 4 and 5; the other reduce loops, and the nest's position.
fn check_loops<'a>(refusal: Refusal, func: &'a Func, block: &Block, factor: &For) -> Result<(Vec<&'a For>, usize)> {
    let (name, loop_name) = (func.block_name(block.name), func.var_name(factor.var));
    let around = visit::loops_around(&func.body, block.name).unwrap_or_default();
    let runs = |l: &For, kind| {
        let own = l.defines();
        block.iters.iter().any(|i| i.kind == kind && own.iter().any(|(v, _)| i.binding.mentions(*v)))
    };
    let reduces = runs(factor, IterKind::Reduce) && !runs(factor, IterKind::Spatial);
    if !around.iter().any(|l| l.var == factor.var) || !reduces || nest::is_placed(factor) {
        let message = format!("{loop_name} is no unplaced loop of {name} that runs reduce iterators alone");
        return Err(refusal.broken(
            4,
            message,
            &[(Node::Block(block.name), "this block"), (Node::Loop(factor.var), "this loop")],
        ));
    }
    let bad = |l: &&&For| {
        let both = runs(l, IterKind::Spatial) && runs(l, IterKind::Reduce);
        l.body.len() != 1 || l.tensorize.is_some() || both
    };
    if let Some(l) = around.iter().find(bad) {
        let message =
            format!("{} holds more than {name}, is tensorized, or runs both kinds of iterators", func.var_name(l.var));
        return Err(refusal.broken(5, message, &[(Node::Loop(l.var), "this loop")]));
    }
    let Some(spot) = dataflow::spot_of_block(func, block.name) else { return Err(refusal.lost("the block")) };
    let others = around.into_iter().filter(|l| l.var != factor.var && runs(l, IterKind::Reduce)).collect();
    Ok((others, spot.steps.first().copied().unwrap_or_default()))
}

/// Requirements 6 and 7; the predicate's parts about spatial and about reduce loops.
fn check_terms(refusal: Refusal, func: &Func, block: &Block, factor: &For, others: &[&For]) -> Result<(Cond, Cond)> {
    let name = func.block_name(block.name);
    let this = [(Node::Block(block.name), "this block")];
    let around = visit::loops_around(&func.body, block.name).unwrap_or_default();
    let reduces = |v: Var| v == factor.var || others.iter().any(|l| l.var == v);
    let (mut predicate, mut terms) = (Cond::TRUE, Cond::TRUE);
    for part in block.predicate.conjuncts() {
        let (mut spatial, mut reduce) = (false, false);
        part.for_each_index(&mut |i| {
            i.for_each_var(&mut |v| *(if reduces(v) { &mut reduce } else { &mut spatial }) = true)
        });
        if spatial && reduce {
            let message =
                format!("`{}` speaks of spatial and reduce loops of {name}", crate::ir::print::cond(func, part));
            return Err(refusal.broken(7, message, &this));
        }
        let list = if reduce { &mut terms } else { &mut predicate };
        *list = list.clone().and(part.clone());
    }
    let spatial = Block { predicate: predicate.clone(), ..block.clone() };
    if !nest::sweeps_domains(&spatial, &around) {
        let message = format!("the loops of {name} do not sweep the whole domains of its spatial iterators");
        return Err(refusal.broken(6, message, &this));
    }
    Ok((predicate, terms))
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, rebind, redirect, refuses, refuses_on, steps};

    const MAXIMA: &str = "program maxima
        input A f32[5, 13]
        M: output M[i 5] f32 = max(k 13) A[i, k]";

    #[test]
    fn a_single_reduce_loop_leaves_no_sum() {
        let text = steps(MAXIMA, "rfactor M k -> P");
        assert!(text.contains("block P(vk = k, vi = i)\n        P[vk, vi] = A[vi, vk]\n"), "{text}");
    }

    #[test]
    fn ragged_partial_results_take_the_neutral_constant() {
        let text = steps(MAXIMA, "split k ? 3 -> a b; rfactor M a -> P");
        assert!(text.contains("max(P[va, vi], select(va*3 + vb < 13, A[vi, va*3 + vb], -inf))"), "{text}");
    }

    #[test]
    fn refusals() {
        const GEMM: &str = "gemm 6x5x4 f32 NN";
        let no = |func: &crate::ir::Func, step: &str, n: u32, message: &str| {
            refuses_on(func, &format!("rfactor {step}"), &format!("rfactor.{n}"), message);
        };
        no(&program("vec_add 8"), "C i", 1, "C cannot be factored: it has no init");
        let pair = "program pair
            input A f32[6, 4]
            S: S[i 6] f32 = sum(k 4) A[i, k]
            T: T[i 6] f32 = A[i, 0]
            Y: output Y[i 6] f32 = S[i] + T[i]";
        let mut func = program(pair);
        redirect(&mut func, "T", "S");
        no(&func, "S k", 1, "T also writes what S writes");
        let mut func = program(GEMM);
        body(&mut func, |value| crate::ir::Expr::un(crate::ir::UnOp::Neg, value));
        no(&func, "C k", 2, "C is no sum, product, minimum or maximum");
        let mut func = program(GEMM);
        body(&mut func, |value| match value {
            crate::ir::Expr::Bin(_, a, b) => crate::ir::Expr::Bin(crate::ir::BinOp::Mul, a, b),
            other => other,
        });
        no(&func, "C k", 3, "the init of C is not the neutral constant");
        no(&program(GEMM), "C j", 4, "j is no unplaced loop of C that runs reduce iterators alone");
        refuses(GEMM, "unroll k; rfactor C k", "rfactor.4", "k is no unplaced loop of C");
        refuses(GEMM, "cache_read C A local -> L; compute_at L j; rfactor C k", "rfactor.5", "j holds more than C");
        let mut func = program(GEMM);
        rebind(&mut func, "C", "vj", |j| j + 1);
        no(&func, "C k", 6, "the loops of C do not sweep the whole domains");
        let mut func = program(GEMM);
        let l = func.find_loop("k").unwrap().var;
        let id = func.find_block("C").unwrap().name;
        crate::ir::visit::change_block(&mut func.body, id, &mut |b| {
            b.predicate = crate::ir::Cond::lt(b.iters[0].binding.clone() + crate::ir::Index::Var(l), 9);
        });
        no(&func, "C k", 7, "`i + k < 9` speaks of spatial and reduce loops of C");
    }

    /// Changes what the block C stores.
    fn body(func: &mut crate::ir::Func, change: impl Fn(crate::ir::Expr) -> crate::ir::Expr) {
        let id = func.find_block("C").unwrap().name;
        crate::ir::visit::change_block(&mut func.body, id, &mut |b| {
            for stmt in &mut b.body {
                if let crate::ir::Stmt::Store(s) = stmt {
                    s.value = change(s.value.clone());
                }
            }
        });
    }
}
