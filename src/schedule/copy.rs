//! Stages that copy a buffer, or a box of it: what cache_read and cache_write add.

use super::members::Members;
use super::{find, nest};
use crate::error::Result;
use crate::ir::decide;
use crate::ir::region::{Range, Region};
use crate::ir::simplify;
use crate::ir::{
    Block, Buffer, BufferId, Cond, Expr, For, Func, Index, Iter, IterKind, LoopKind, Scope, Stmt, Store, Var, visit,
};

/// The names of a new copying stage.
#[derive(Debug, Clone)]
pub struct Made {
    /// Of the block and its buffer.
    pub stage: String,
    /// Of its loops, one for each dimension.
    pub loops: Vec<String>,
}

impl Made {
    /// All names in the order in which a step states them.
    pub fn all(&self) -> Vec<String> {
        std::iter::once(self.stage.clone()).chain(self.loops.iter().cloned()).collect()
    }
}

/// The names that a step states (stage, then perhaps loops), and defaults for the rest.
pub fn names(func: &Func, stated: &[String], default: &str, rank: usize) -> Result<Made> {
    let stage = find::new_stage(func, stated.first(), default)?;
    let defaults: Vec<String> = (0..rank).map(|n| format!("{stage}_{n}")).collect();
    let loops = find::new_loops_from(func, stated.get(1..).unwrap_or_default(), &defaults, &[])?;
    Ok(Made { stage, loops })
}

/// A new buffer like another one.
pub fn add_buffer(func: &mut Func, like: BufferId, name: &str, scope: Scope) -> BufferId {
    let like = func.largest(func.buffer(like));
    let buffer = Buffer::new(name, like.dtype, like.shape, scope);
    func.add_buffer(buffer)
}

/// The statements reading another buffer at the same places.
pub fn reading(body: Vec<Stmt>, old: BufferId, new: BufferId) -> Vec<Stmt> {
    visit::map_body(body, &mut Index::clone, &mut |e| match e {
        Expr::Load { buffer, indices, lanes } if buffer == old => Expr::Load { buffer: new, indices, lanes },
        e => e,
    })
}

/// A copying stage; where the types differ, it casts.
#[derive(Debug)]
pub struct Copy<'a> {
    /// What is read.
    pub from: BufferId,
    /// What is written.
    pub to: BufferId,
    /// Which part of both.
    pub region: Region,
    /// What of that part is there to be read.
    pub only: &'a [Members],
    /// The names of the block and its loops.
    pub made: &'a Made,
}

/// The nest of a copying stage that will are under the given loops.
pub fn stage(func: &mut Func, copy: &Copy, under: &[Var]) -> Stmt {
    let shape = func.buffer(copy.from).shape.clone();
    let dims: Vec<(Range, Index)> = copy.region.iter().cloned().zip(shape).collect();
    let [from, to] = [copy.from, copy.to].map(|b| func.buffer(b).dtype);
    let only = |element: &[Index]| copy.only.iter().flat_map(|m| m.conditions(element)).collect();
    over(func, copy.made, &dims, under, &only, |at| {
        let load = Expr::load(copy.from, at.clone());
        let value = if from == to { load } else { Expr::cast(to, load) };
        Store::new(copy.to, at, value)
    })
}

/// The nest of a stage that stores one element an iteration, over a box: for each dimension what its loop sweeps, and
/// the domain of its iterator. `only` are the conditions for an element, by its indices over the loops.
pub fn over(
    func: &mut Func,
    made: &Made,
    dims: &[(Range, Index)],
    under: &[Var],
    only: &dyn Fn(&[Index]) -> Vec<Cond>,
    store: impl FnOnce(Vec<Index>) -> Store,
) -> Stmt {
    let around: Vec<For> = visit::loops(&func.body).into_iter().filter(|l| under.contains(&l.var)).cloned().collect();
    let mut env = nest::env_of(&around.iter().collect::<Vec<_>>());
    let (mut loops, mut iters, mut predicate) = (Vec::new(), Vec::new(), Cond::TRUE);
    for (n, ((Range { min, extent }, domain), name)) in dims.iter().zip(&made.loops).enumerate() {
        let var = func.add_var(name.clone());
        env.bind_loop(var, extent);
        loops.push(For::new(var, extent.clone(), LoopKind::Serial, Vec::new()));
        let binding = simplify::simplify(&(min.clone() + Index::Var(var)), &env);
        for part in [Cond::ge(binding.clone(), 0), Cond::lt(binding.clone(), domain.clone())] {
            if !decide::proves(&part, &env) {
                predicate = predicate.and(part);
            }
        }
        let var = func.add_var(format!("v{n}"));
        iters.push(Iter { var, kind: IterKind::Spatial, extent: domain.clone(), binding });
    }
    let element: Vec<Index> = iters.iter().map(|it| it.binding.clone()).collect();
    for part in only(&element) {
        let mut known = env.clone();
        known.assume(&predicate);
        let part = simplify::simplify_cond(&part, &env);
        if !decide::proves(&part, &known) {
            predicate = predicate.and(part);
        }
    }
    let body = vec![Stmt::Store(store(iters.iter().map(|i| Index::Var(i.var)).collect()))];
    let name = func.add_block(made.stage.clone());
    let block = Block { name, iters, predicate, init: None, body, copy_with: None, role: None };
    nest::wrap(loops, Stmt::Block(block))
}
