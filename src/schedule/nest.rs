//! Taking a block out of its nest and putting it under loops of its own elsewhere.
//!
//! The loops that held nothing but the block go with it: those of its spatial iterators are replaced by loops over the
//! wanted ranges, those of its reduce iterators are kept. An iterator that could leave its domain under the new loops
//! gets a predicate.

use super::dataflow;
use super::refusal::Refusal;
use super::{Args, digits, find, members};
use crate::error::{Error, Result};
use crate::index::Digit;
use crate::ir::decide;
use crate::ir::print::Node;
use crate::ir::region::Range;
use crate::ir::simplify::{self, Env};
use crate::ir::{Block, BlockId, BufferId, Cond, For, Func, Index, Iter, IterKind, LoopKind, Stmt, Var, visit};

/// Why a block cannot get new loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// It is inside an instruction's nest.
    Tensorized(Var),
    /// A loop that would vanish says how it is to run.
    Placed(Var),
    /// A loop of a reduce iterator is shared with other statements or with a spatial iterator, or its extent varies.
    Reduce(Var),
    /// A part of its predicate says more than that its iterators stay in their domains.
    Predicate(Cond),
}

impl Stuck {
    /// The refusal to do `what` with the block. `numbers` are the requirements about instructions' nests, placed loops,
    /// reduce loops and predicates.
    pub fn refuse(&self, refusal: Refusal, func: &Func, block: &Block, what: &str, numbers: [usize; 4]) -> Error {
        let number = match self {
            Stuck::Tensorized(_) => numbers[0],
            Stuck::Placed(_) => numbers[1],
            Stuck::Reduce(_) => numbers[2],
            Stuck::Predicate(_) => numbers[3],
        };
        let name = func.block_name(block.name);
        let message = format!("{name} cannot {what}: {}", self.reason(func, name));
        refusal.broken(number, message, &[(Node::Block(block.name), "this block")])
    }

    /// The reason in words, with the program's names.
    fn reason(&self, func: &Func, block: &str) -> String {
        match self {
            Stuck::Tensorized(v) => format!("it is under {}, which is tensorized", func.var_name(*v)),
            Stuck::Placed(v) => format!("its loop {} is already placed and would be removed", func.var_name(*v)),
            Stuck::Reduce(v) => format!("its reduce loop {} is not its own", func.var_name(*v)),
            Stuck::Predicate(c) => {
                let c = crate::ir::print::cond(func, c);
                format!("the predicate `{c}` of {block} is more than the domain of its iterators")
            }
        }
    }
}

/// What moves with a block.
#[derive(Debug, Clone)]
pub struct Leaving {
    /// Loops that hold nothing but the block, outermost first.
    pub lost: Vec<Var>,
    /// Those among them that run its reduce iterators.
    pub kept: Vec<Var>,
    /// What stays of its predicate.
    pub predicate: Cond,
    /// What its iterators sweep so far; see [`sweep`].
    pub sweep: Vec<Solved>,
}

/// What would move with the block to a place under the loops `target`, or why it cannot.
pub fn leaving(func: &Func, block: &Block, target: &[&For]) -> Result<Leaving, Stuck> {
    let around = visit::loops_around(&func.body, block.name).unwrap_or_default();
    if let Some(l) = target.iter().chain(&around).find(|l| l.tensorize.is_some()) {
        return Err(Stuck::Tensorized(l.var));
    }
    let lost: Vec<&For> = around.iter().rev().take_while(|l| l.body.len() == 1).copied().collect();
    let lost_vars: Vec<Var> = lost.iter().rev().map(|l| l.var).collect();
    let (mut kept, mut spatial) = (Vec::new(), Vec::new());
    for it in &block.iters {
        let list = if it.kind == IterKind::Reduce { &mut kept } else { &mut spatial };
        it.binding.for_each_var(&mut |v| list.push(v));
    }
    let defined = |v: Var, l: &For| l.defines().iter().any(|(d, _)| *d == v);
    let shared = |v: &&Var| spatial.contains(v) || !lost.iter().any(|l| l.var == **v && l.raster.is_none());
    if let Some(v) = kept.iter().find(shared) {
        return Err(Stuck::Reduce(*v));
    }
    let vanishes = |l: &&&For| !kept.contains(&l.var) && is_placed(l);
    if let Some(l) = lost.iter().find(vanishes) {
        return Err(Stuck::Placed(l.var));
    }
    let around_target = |v: Var| target.iter().any(|l| defined(v, l));
    let gone = |v: Var| !kept.contains(&v) && !around_target(v) && around.iter().any(|l| defined(v, l));
    let ragged = |l: &&&For| {
        let mut outside = false;
        l.extent.for_each_var(&mut |v| outside |= !around_target(v));
        kept.contains(&l.var) && outside
    };
    if let Some(l) = lost.iter().find(ragged) {
        return Err(Stuck::Reduce(l.var));
    }
    let predicate = remaining(block, &around, &gone).map_err(Stuck::Predicate)?;
    kept.sort();
    kept.dedup();
    Ok(Leaving { lost: lost_vars, kept, predicate, sweep: Vec::new() })
}

/// Whether a loop says how it is to run.
pub fn is_placed(l: &For) -> bool {
    l.kind != LoopKind::Serial
        || l.pipeline.is_some()
        || l.raster.is_some()
        || l.tensorize.is_some()
        || !l.notes.is_empty()
}

/// The predicate without what the domains of the spatial iterators say; an error where the rest mentions a variable
/// that goes.
fn remaining(block: &Block, around: &[&For], gone: &dyn Fn(Var) -> bool) -> Result<Cond, Cond> {
    let plain = env_of(around);
    let mut domains = plain.clone();
    let spatial = || block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    for it in spatial() {
        domains.assume(&Cond::lt(it.binding.clone(), it.extent.clone()));
        domains.assume(&Cond::ge(it.binding.clone(), 0));
    }
    let mut rest = Cond::TRUE;
    for part in block.predicate.conjuncts() {
        if spatial().any(|it| says_domain(part, it, &plain)) || decide::proves(part, &domains) {
            continue;
        }
        let mut lost = false;
        part.for_each_index(&mut |i| i.for_each_var(&mut |v| lost |= gone(v)));
        if lost {
            return Err(part.clone());
        }
        rest = rest.and(part.clone());
    }
    Ok(rest)
}

/// Whether a condition is implied by an iterator staying below its extent.
pub fn says_domain(part: &Cond, it: &Iter, env: &Env) -> bool {
    match part {
        Cond::Cmp(crate::ir::CmpOp::Lt, a, b) => {
            decide::equal(a, &it.binding, env) && decide::proves(&Cond::ge(b.clone(), it.extent.clone()), env)
        }
        Cond::Cmp(crate::ir::CmpOp::Ge, a, b) => {
            decide::equal(a, &it.binding, env) && decide::proves(&Cond::ge(Index::Int(0), b.clone()), env)
        }
        _ => false,
    }
}

/// The ranges of the variables of constant loops.
pub fn env_of(loops: &[&For]) -> Env {
    let mut env = Env::new();
    for (v, e) in loops.iter().flat_map(|l| l.defines()) {
        if let Some(e) = e.as_int() {
            env.bind(v, 0, (e - 1).max(0));
        }
    }
    env
}

/// Takes a block out, with the loops that held nothing else (outermost first, bodies empty).
pub fn take(func: &mut Func, name: BlockId) -> Option<(Block, Vec<For>)> {
    take_from(&mut func.body, name)
}

fn take_from(body: &mut Vec<Stmt>, name: BlockId) -> Option<(Block, Vec<For>)> {
    for position in 0..body.len() {
        match &mut body[position] {
            Stmt::Block(b) if b.name == name => {
                let Stmt::Block(b) = body.remove(position) else { return None };
                return Some((b, Vec::new()));
            }
            Stmt::For(l) => {
                if let Some((block, mut lost)) = take_from(&mut l.body, name) {
                    if l.body.is_empty()
                        && let Stmt::For(l) = body.remove(position)
                    {
                        lost.insert(0, l);
                    }
                    return Some((block, lost));
                }
            }
            _ => {}
        }
    }
    None
}

/// The block under new loops over `ranges` (one for each spatial iterator, in order, where it has a name), then its kept
/// loops.
/// `env` knows the loops around the place where it will stand.
pub fn renest(
    func: &mut Func,
    taken: (Block, Vec<For>),
    leaving: &Leaving,
    ranges: &[Range],
    names: &[Option<String>],
    env: &Env,
) -> Stmt {
    let (mut block, lost) = taken;
    let mut env = env.clone();
    let mut loops: Vec<For> = Vec::new();
    let mut predicate = leaving.predicate.clone();
    let spatial = block.iters.iter_mut().enumerate().filter(|(_, i)| i.kind == IterKind::Spatial);
    for (((position, it), range), name) in spatial.zip(ranges).zip(names) {
        let mut value = range.min.clone();
        if let Some(name) = name {
            let var = func.add_var(name.clone());
            env.bind_loop(var, &range.extent);
            loops.push(For::new(var, range.extent.clone(), LoopKind::Serial, Vec::new()));
            value = value + Index::Var(var);
        }
        it.binding = simplify::simplify(&value, &env);
        let mut bounds = vec![(Index::Int(0), it.extent.clone())];
        if let Some(Solved { range: Range { min, extent }, whole: false, .. }) = leaving.sweep.get(position) {
            bounds.push((min.clone(), min.clone() + extent.clone()));
        }
        for (min, end) in bounds {
            for part in [Cond::ge(it.binding.clone(), min), Cond::lt(it.binding.clone(), end)] {
                let part = simplify::simplify_cond(&part, &env);
                if !decide::proves(&part, &env) {
                    predicate = predicate.and(part);
                }
            }
        }
    }
    block.predicate = predicate;
    loops.extend(lost.into_iter().filter(|l| leaving.kept.contains(&l.var)));
    wrap(loops, Stmt::Block(block))
}

/// A statement under loops, outermost first.
pub fn wrap(loops: Vec<For>, stmt: Stmt) -> Stmt {
    loops.into_iter().rev().fold(stmt, |inner, mut l| {
        l.body = vec![inner];
        Stmt::For(l)
    })
}

/// A range for an iterator.
#[derive(Debug, Clone)]
pub struct Solved {
    /// Contains every value that reaches the region; within the iterator's domain where `whole`.
    pub range: Range,
    /// Every value in the range (and the domain) reaches the region.
    pub exact: bool,
    /// The range is the iterator's whole domain.
    pub whole: bool,
}

/// For each iterator of a block, the values for which `at` meets `region`. `full` says which dimensions of the region
/// are the whole buffer.
pub fn solve(iters: &[Iter], at: &[Index], region: &[Range], full: &[bool], env: &Env) -> Vec<Solved> {
    let vars: Option<Vec<(Var, i64)>> = iters.iter().map(|i| Some((i.var, i.extent.as_int()?))).collect();
    let vars = vars.unwrap_or_default();
    let mut found: Vec<(Digit<Var>, Range)> = Vec::new();
    let (mut unclear, mut reached): (Vec<Var>, bool) = (Vec::new(), true);
    for ((index, range), full) in at.iter().zip(region).zip(full) {
        let mut sum = digits::parse(index, &vars);
        if let Some(s) = sum.as_mut().filter(|s| s.parts.len() > 1) {
            // An iterator of a single value is 0.
            let several = |v: Var| vars.iter().any(|(var, extent)| *var == v && *extent > 1);
            s.parts.retain(|p| p.digit.is_none_or(|d| several(d.of)));
        }
        let single = sum.as_ref().and_then(|s| match s.parts.as_slice() {
            [digits::Part { coefficient: 1, digit: Some(d) }] => Some((*d, s.constant)),
            _ => None,
        });
        match single {
            Some((d, c)) => {
                let min = simplify::simplify(&(range.min.clone() - c), env);
                found.push((d, Range { min, extent: range.extent.clone() }));
            }
            None if *full || holds(range, index, env) => {}
            None => {
                reached = false;
                index.for_each_var(&mut |v| unclear.push(v));
            }
        }
    }
    let solved = iters.iter().map(|it| solve_one(it, &found, unclear.contains(&it.var), env));
    solved.map(|s| Solved { exact: s.exact && reached, ..s }).collect()
}

/// Whether an index that mentions no iterator provably is in the range.
fn holds(range: &Range, index: &Index, env: &Env) -> bool {
    let Some(at) = index.as_int() else { return false };
    let end = range.min.clone() + range.extent.clone();
    decide::proves(&Cond::ge(Index::Int(at), range.min.clone()), env)
        && decide::proves(&Cond::lt(Index::Int(at), end), env)
}

fn solve_one(it: &Iter, found: &[(Digit<Var>, Range)], unclear: bool, env: &Env) -> Solved {
    let whole = |exact| Solved { range: Range { min: Index::Int(0), extent: it.extent.clone() }, exact, whole: true };
    let mut own: Vec<&(Digit<Var>, Range)> = found.iter().filter(|(d, _)| d.of == it.var).collect();
    own.sort_by_key(|(d, _)| d.low);
    let Some(extent) = it.extent.as_int() else { return whole(own.is_empty() && !unclear) };
    if own.is_empty() || unclear {
        return whole(!unclear);
    }
    let Some((range, exact)) = from_digits(&own, extent, env) else { return whole(false) };
    // A range of as many values that begins elsewhere meets the domain in some iterations only: one row of sixteen that padding made of one.
    match range.extent.as_int() {
        Some(e) if e >= extent && decide::equal(&range.min, &Index::Int(0), env) => whole(exact),
        _ => Solved { range, exact, whole: false },
    }
}

/// Puts the ranges of a variable's digits together; `None` where they overlap. Digits that are missing are free.
fn from_digits(own: &[&(Digit<Var>, Range)], extent: i64, env: &Env) -> Option<(Range, bool)> {
    if let [(d, range)] = own
        && d.low == 1
        && d.high == Some(extent)
    {
        return Some((range.clone(), true));
    }
    let mut min = Index::Int(0);
    let (mut span, mut low, mut all_below_whole, mut exact) = (0i64, 1i64, true, true);
    for (d, range) in own {
        if d.low % low != 0 || d.low < low {
            return None;
        }
        span = span.checked_add(low.checked_mul(d.low / low - 1)?)?;
        let size = range.extent.as_int()?;
        min = min + range.min.clone() * d.low;
        span = span.checked_add(d.low.checked_mul(size.min(d.size()?) - 1)?)?;
        exact &= size == 1 || all_below_whole;
        all_below_whole &= size >= d.size()? && decide::equal(&range.min, &Index::Int(0), env);
        low = d.high?;
    }
    if low < extent {
        span = span.checked_add(low.checked_mul((extent - 1) / low)?)?;
        exact &= all_below_whole;
    }
    Some((Range { min: simplify::simplify(&min, env), extent: Index::Int(span + 1) }, exact))
}

/// Which dimensions of a region are the whole buffer.
pub fn full(func: &Func, buffer: BufferId, region: &[Range], env: &Env) -> Vec<bool> {
    let shape = &func.buffer(buffer).shape;
    let whole = |(r, e): (&Range, &Index)| {
        decide::equal(&r.min, &Index::Int(0), env) && decide::proves(&Cond::ge(r.extent.clone(), e.clone()), env)
    };
    region.iter().zip(shape).map(whole).collect()
}

/// The loops around a loop and itself, outermost first, and their ranges.
pub fn surroundings<'a>(func: &'a Func, l: &'a For) -> (Vec<&'a For>, Env) {
    let mut around = visit::loops_around_loop(&func.body, l.var).unwrap_or_default();
    around.push(l);
    let env = env_of(&around);
    (around, env)
}

/// Names of the new loops of a block, one for each spatial iterator: `BLOCK_0`, `BLOCK_1`, .. unless the step states
/// them. An iterator that takes one value gets no loop, unless the step states a name for every iterator.
///
/// # Errors
/// As [`find::new_loops`].
pub fn new_loops(
    func: &Func,
    args: &Args,
    block: &Block,
    ranges: &[Range],
    freed: &[Var],
) -> Result<Vec<Option<String>>> {
    let all = args.names.len() == ranges.len();
    let looped: Vec<bool> =
        ranges.iter().map(|r| all && !args.names.is_empty() || r.extent.as_int() != Some(1)).collect();
    let name = func.block_name(block.name);
    let positions = looped.iter().enumerate().filter(|(_, looped)| **looped);
    let defaults: Vec<String> = positions.map(|(n, _)| format!("{name}_{n}")).collect();
    let mut names = find::new_loops(func, args, &defaults, freed)?.into_iter();
    Ok(looped.into_iter().map(|looped| if looped { names.next() } else { None }).collect())
}

/// Whether the loops around a block, all constant, sweep the whole domains of its spatial iterators.
pub fn sweeps_domains(func: &Func, block: &Block, around: &[&For]) -> bool {
    let block = &func.largest_block(block);
    let env = env_of(around);
    let spatial: Vec<&Iter> = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).collect();
    let bindings: Vec<Index> = spatial.iter().map(|i| i.binding.clone()).collect();
    let dense = dataflow::constant_vars(around).is_some_and(|vars| digits::image(&bindings, &vars).dense);
    let whole = |i: &&Iter| {
        let bounds = simplify::bounds(&i.binding, &env);
        bounds.zip(i.extent.as_int()).is_some_and(|((min, max), extent)| min == 0 && max >= extent - 1)
    };
    dense && spatial.iter().all(whole) && dataflow::bounded_by_domains(block, around)
}

/// What a block's iterators sweep in an iteration of the loops that it shares with a target: wherever it moves, it
/// computes no more, because its own inputs may not hold more.
pub fn sweep(func: &Func, block: &Block, target: &For) -> Vec<Solved> {
    let spots = dataflow::spot_of_block(func, block.name).zip(dataflow::spot_of_loop(func, target.var));
    let around = visit::loops_around(&func.body, block.name).unwrap_or_default();
    let found = spots.and_then(|(from, to)| {
        let (shared, own) = around.split_at_checked(from.shared_loops(&to))?;
        let env = env_of(shared);
        let swept = members::swept(func, block, own, &env)?;
        let whole = |it: &Iter, r: &Range| {
            let all = Cond::ge(r.extent.clone(), it.extent.clone());
            decide::equal(&r.min, &Index::Int(0), &env) && decide::proves(&all, &env)
        };
        let solved = block.iters.iter().zip(swept);
        Some(solved.map(|(it, range)| Solved { whole: whole(it, &range), exact: true, range }).collect())
    });
    found.unwrap_or_default()
}

impl Leaving {
    /// The loops that vanish.
    pub fn freed(&self) -> Vec<Var> {
        self.lost.iter().copied().filter(|v| !self.kept.contains(v)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::testing::{program, symbolic};

    /// The sum of a triangle: a loop of the reduction is as long as a loop says that does not move.
    #[test]
    fn a_reduce_loop_whose_extent_needs_a_loop_that_vanishes_does_not_move() {
        let mut func =
            program("program rows\ninput A f32[8, 6]\nS: S[i 8] f32 = sum(k 6) A[i, k]\noutput Y[i 8] f32 = S[i]");
        let stuck = |func: &Func| {
            let target = func.find_loop("Y_i").unwrap();
            leaving(func, func.find_block("S").unwrap(), &[target]).err()
        };
        assert!(stuck(&func).is_none());
        symbolic(&mut func, "k");
        let k = func.find_loop("k").unwrap().var;
        assert!(matches!(stuck(&func), Some(Stuck::Reduce(v)) if v == k));
    }
}
