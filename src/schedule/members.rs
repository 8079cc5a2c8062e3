//! Which elements of a buffer a block touches, as conditions over their indices.
//!
//! The box around what a block touches may hold more than that: where a layout exchanges digits of an iterator, or a predicate
//! cuts the iterator off in the middle of a row, the box is rounded up. A stage that copies the box must leave out what nothing
//! has written.

use super::{dataflow, digits, nest};
use crate::ir::decide;
use crate::ir::region::{self, Range, Region, Touch};
use crate::ir::simplify::Env;
use crate::ir::{Block, Buffer, BufferId, Cond, Expr, For, Func, Index, Scope, Stmt, Store, Var, visit};

/// The elements that a block touches at one place.
#[derive(Debug)]
pub struct Members {
    /// Where, over its iterators.
    at: Vec<Index>,
    /// Its iterators that move, with their extents, and what they sweep.
    vars: Vec<(Var, i64)>,
    ranges: Vec<Range>,
    /// What its predicate says of the loops outside.
    outside: Cond,
}

impl Members {
    /// What `block` touches at `at` in the loops `inside`, the innermost ones around it, at fixed values of those `outside`;
    /// `None` where an element does not tell its iteration, or the predicate says more of the loops inside than that the
    /// iterators stay in their domains.
    pub fn of(func: &Func, block: &Block, at: &[Index], outside: &[&For], inside: &[&For]) -> Option<Members> {
        let env = nest::env_of(outside);
        let all: Vec<&For> = outside.iter().chain(inside).copied().collect();
        let known = nest::env_of(&all);
        let mut kept = Cond::TRUE;
        for part in block.predicate.conjuncts() {
            let domain = block.iters.iter().any(|it| nest::says_domain(part, it, &known));
            if domain || decide::proves(part, &known) {
                continue;
            }
            if inside.iter().any(|l| l.defines().iter().any(|(v, _)| part.mentions(*v))) {
                return None;
            }
            kept = kept.and(part.clone());
        }
        let swept = swept(func, block, inside, &env)?;
        let moving = || block.iters.iter().zip(&swept).filter(|(it, _)| it.extent.as_int() != Some(1));
        let vars: Vec<(Var, i64)> =
            moving().map(|(it, _)| Some((it.var, func.most(&it.extent)?))).collect::<Option<_>>()?;
        let unit = block.iters.iter().filter(|it| it.extent.as_int() == Some(1));
        let units: visit::Map = unit.map(|it| (it.var, Index::Int(0))).collect();
        let at: Vec<Index> = at.iter().map(|i| visit::subst_index(i, &units)).collect();
        digits::left_inverse(&at, &vars, &at)?;
        Some(Members { at, vars, ranges: moving().map(|(_, r)| r.clone()).collect(), outside: kept })
    }

    /// Everything, in the iterations of the loops outside in which the block runs.
    fn anywhere(block: &Block, inside: &[&For]) -> Members {
        let inner = |part: &Cond| inside.iter().any(|l| l.defines().iter().any(|(v, _)| part.mentions(*v)));
        let kept = block.predicate.conjuncts().into_iter().filter(|part| !inner(part));
        let outside = kept.fold(Cond::TRUE, |all, part| all.and(part.clone()));
        Members { at: Vec::new(), vars: Vec::new(), ranges: Vec::new(), outside }
    }

    /// What holds for an element that is touched, and for no other one.
    pub fn conditions(&self, element: &[Index]) -> Vec<Cond> {
        let Some(back) = digits::left_inverse(&self.at, &self.vars, element) else { return Vec::new() };
        let map: visit::Map = back.iter().cloned().collect();
        let mut out: Vec<Cond> = self.outside.conjuncts().into_iter().cloned().collect();
        for (((_, index), (_, extent)), range) in back.iter().zip(&self.vars).zip(&self.ranges) {
            let end = range.min.clone() + range.extent.clone();
            out.extend([Cond::ge(index.clone(), 0), Cond::lt(index.clone(), *extent)]);
            out.extend([Cond::ge(index.clone(), range.min.clone()), Cond::lt(index.clone(), end)]);
        }
        let same = self.at.iter().zip(element).map(|(at, e)| Cond::eq(visit::subst_index(at, &map), e.clone()));
        out.extend(same);
        out
    }
}

/// What a block's iterators sweep as the loops run, the innermost ones around it; `env` knows the others.
pub fn swept(func: &Func, block: &Block, loops: &[&For], env: &Env) -> Option<Region> {
    let mut func = func.clone();
    let shape = block.iters.iter().map(|it| it.extent.clone()).collect();
    let to = func.add_buffer(Buffer::new("", crate::DType::S32, shape, Scope::Local));
    let at = block.iters.iter().map(|it| Index::Var(it.var)).collect();
    let store = Stmt::Store(Store::new(to, at, Expr::constant(crate::DType::S32, 0.0)));
    let block = Block { init: None, body: vec![store], ..block.clone() };
    let hollow = |l: &&For| For { body: Vec::new(), ..(*l).clone() };
    let body = nest::wrap(loops.iter().map(hollow).collect(), Stmt::Block(block));
    region::touched(&func, &[body], to, Touch::Writes, env)
}

/// What of a buffer a copy for `block` may read, at fixed values of the loops `outside`: what the block itself may read there,
/// and what its only writer writes at all.
pub fn readable(func: &Func, block: &Block, of: BufferId, outside: &[&For]) -> Vec<Members> {
    let split = |b: &Block, outer: usize| {
        let around = visit::loops_around(&func.body, b.name).unwrap_or_default();
        let inner = around.get(outer..).unwrap_or_default().to_vec();
        (around.get(..outer).unwrap_or_default().to_vec(), inner)
    };
    let mut out = Vec::new();
    let (outer, inner) = split(block, outside.len());
    let at = dataflow::reads_at(block, of);
    let one = at.first().filter(|first| at.iter().all(|a| a == *first) && dataflow::over_iterators(block, first));
    let own = one.and_then(|at| Members::of(func, block, at, &outer, &inner));
    out.push(own.unwrap_or_else(|| Members::anywhere(block, &inner)));
    if let [writer] = dataflow::writers(func, of)[..]
        && let Some(store) = dataflow::store_to(writer, of)
    {
        let (outer, inner) = split(writer, 0);
        out.extend(Members::of(func, writer, &store.indices, &outer, &inner));
    }
    out
}
