//! From threads that own elements to warps that own matrices: the loops that 32 consecutive threads run next to each other move
//! inwards, into the nests that they share out, and what is left of the loops around becomes one loop over warps.
//!
//! Iterations of loops bound to threads exchange nothing but through shared memory ([`crate::ir::verify`]), so it is the same
//! to run them nest by nest. A nest that the moved loops do not occur in, such as a cooperative copy, runs as often as before:
//! once for all of them.

use super::find;
use super::refusal::Refusal;
use super::{digits, nest};
use crate::error::Result;
use crate::ir::decide;
use crate::ir::print::Node;
use crate::ir::simplify::{self, Env};
use crate::ir::{Axis, Block, BlockId, BufferId, Cond, For, Func, Index, Iter, IterKind, LoopKind, Stmt, Var, visit};

/// Threads of a warp.
const LANES: i64 = 32;

/// The threads' axes, fastest first.
const THREADS: [Axis; 3] = [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ];

/// The numbers of the requirements that regrouping has, in the list of the primitive that asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// The nests that they share out.
    pub nests: usize,
    /// The sizes.
    pub sizes: usize,
}

/// A loop of the threads.
#[derive(Debug, Clone, Copy)]
struct Thread {
    var: Var,
    extent: i64,
    /// How many of its consecutive iterations are in one warp.
    lanes: i64,
    axis: Axis,
}

/// The loops of the threads around a loop.
#[derive(Debug)]
pub struct Threads {
    /// Outermost first.
    loops: Vec<Thread>,
}

impl Threads {
    /// The loops bound to threads around `inner`, if 32 consecutive threads are a box of their iterations.
    ///
    /// # Errors
    /// Requirement `number` of the primitive.
    pub fn around(func: &Func, inner: &For, refusal: Refusal, number: usize) -> Result<Threads> {
        let around = find::around_loop(&func.body, inner.var)?;
        let name = func.var_name(inner.var);
        let no = |message: String| refusal.broken(number, message, &[(Node::Loop(inner.var), "around this loop")]);
        let bound = |l: &For| l.axis().filter(|a| THREADS.contains(a));
        let Some(first) = around.iter().position(|l| bound(l).is_some()) else {
            return Err(no(format!("no loop around `{name}` is bound to threads")));
        };
        let last = around.iter().rposition(|l| bound(l).is_some()).unwrap_or(first);
        let mut loops = Vec::new();
        for (n, l) in around.iter().enumerate().take(last + 1).skip(first) {
            let alone = n == last || matches!(l.body.as_slice(), [Stmt::For(_)]);
            let (Some(axis), Some(extent), true) = (bound(l), l.extent.as_int(), alone) else {
                let message = format!(
                    "the loops bound to threads around `{name}` are not directly nested: `{}` is between them",
                    func.var_name(l.var)
                );
                return Err(no(message).help("reorder the loops bound to threads to be directly nested"));
            };
            loops.push(Thread { var: l.var, extent, lanes: 1, axis });
        }
        let mut threads = Threads { loops };
        let kernel = around[0];
        threads.complete(func, kernel).map_err(no)?;
        threads.share_a_warp().map_err(no)?;
        Ok(threads)
    }

    /// No nest of the kernel runs on threads that these loops leave out.
    fn complete(&self, func: &Func, kernel: &For) -> Result<(), String> {
        let other = visit::loops(std::slice::from_ref(&Stmt::For(kernel.clone())))
            .into_iter()
            .filter_map(|l| Some((func.var_name(l.var).to_string(), l.axis().filter(|a| THREADS.contains(a))?)))
            .find(|(_, axis)| self.loops.iter().all(|t| t.axis != *axis));
        match other {
            None => Ok(()),
            Some((name, axis)) => {
                Err(format!("loop `{name}` is bound to {}, which no loop around the reduction is", axis.name()))
            }
        }
    }

    /// Divides the lanes of a warp among the axes, fastest first.
    fn share_a_warp(&mut self) -> Result<(), String> {
        let all: i64 = self.loops.iter().map(|t| t.extent).product();
        if all % LANES != 0 {
            return Err(format!("the {all} threads of a block are not whole warps of 32"));
        }
        let mut left = LANES;
        for axis in THREADS {
            let Some(thread) = self.loops.iter_mut().find(|t| t.axis == axis) else { continue };
            thread.lanes = if thread.extent % left == 0 { left } else { thread.extent };
            if left % thread.lanes != 0 {
                return Err(format!(
                    "32 consecutive threads are no box of iterations: {} has extent {}",
                    axis.name(),
                    thread.extent
                ));
            }
            left /= thread.lanes;
        }
        Ok(())
    }

    /// The number of warps.
    fn warps(&self) -> i64 {
        self.loops.iter().map(|t| t.extent / t.lanes).product()
    }
}

/// A nest that belonged to threads and now belongs to a warp: loops `0..extent` over each iterator of its block, in their
/// order.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Its block.
    pub block: BlockId,
    /// For each iterator its loop and how far it goes.
    pub loops: Vec<(Var, i64)>,
    /// For each iterator where it begins.
    base: Vec<Index>,
}

/// A program whose nests on some buffers belong to warps.
#[derive(Debug, Clone)]
pub struct Regrouped {
    /// The program.
    pub func: Func,
    /// Those nests, in the order of the text.
    pub nests: Vec<Whole>,
}

/// Regroups the loops of the threads: nests that touch one of `held` become those of warps, under a loop `warp`.
///
/// # Errors
/// The requirements `numbers` of the primitive, of the program before.
pub fn regroup(
    func: &Func,
    threads: &Threads,
    held: &[BufferId],
    warp: &str,
    refusal: Refusal,
    numbers: Numbers,
) -> Result<Regrouped> {
    let mut out = func.clone();
    let warp = out.add_var(warp.to_string());
    let (mut lanes, mut map, mut before) = (Vec::new(), visit::Map::new(), 1);
    let mut env = nest::env_of(&visit::loops(&func.body));
    env.bind(warp, 0, threads.warps() - 1);
    for axis in THREADS {
        let Some(t) = threads.loops.iter().find(|t| t.axis == axis) else { continue };
        let outer = Index::Var(warp).floordiv(before).floormod(t.extent / t.lanes);
        before *= t.extent / t.lanes;
        let mut value = outer * t.lanes;
        if t.lanes > 1 {
            let lane = out.add_var(func.var_name(t.var).to_string());
            env.bind(lane, 0, t.lanes - 1);
            lanes.push((lane, t.lanes));
            value = value + Index::Var(lane);
        }
        map.insert(t.var, simplify::simplify(&value, &env));
    }
    let mut sink = Sink { func: &mut out, lanes, held, env, refusal, numbers, nests: Vec::new() };
    let outermost = threads.loops[0].var;
    let mut failed = None;
    let body = std::mem::take(&mut sink.func.body);
    let body = visit::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(l) if l.var == outermost => {
            let body = visit::subst_body(inside(l, threads.loops.len()), &map);
            match sink.body(body) {
                Ok(body) => {
                    vec![Stmt::For(For::new(warp, threads.warps(), LoopKind::bound(Axis::Warp), body))]
                }
                Err(e) => {
                    failed.get_or_insert(e);
                    Vec::new()
                }
            }
        }
        other => vec![other],
    });
    let nests = std::mem::take(&mut sink.nests);
    if let Some(error) = failed {
        return Err(error);
    }
    out.body = body;
    super::analyze::simplify_bindings(&mut out);
    Ok(Regrouped { func: out, nests })
}

fn zero(var: Var) -> (Var, Index) {
    (var, Index::Int(0))
}

/// The body of the innermost of `depth` loops that have one statement each.
fn inside(l: For, depth: usize) -> Vec<Stmt> {
    (1..depth).fold(l.body, |body, _| match body.into_iter().next() {
        Some(Stmt::For(inner)) => inner.body,
        _ => Vec::new(),
    })
}

/// Whether a statement's loops, bindings or conditions speak of one of the variables.
fn speaks(stmt: &Stmt, vars: &[(Var, i64)]) -> bool {
    let on = |i: &Index| vars.iter().any(|(v, _)| i.mentions(*v));
    let mut found = false;
    visit::walk(std::slice::from_ref(stmt), &mut |s| match s {
        Stmt::For(l) => found |= on(&l.extent),
        Stmt::Block(b) => {
            found |= b.iters.iter().any(|i| on(&i.binding)) || vars.iter().any(|(v, _)| b.predicate.mentions(*v));
        }
        Stmt::If(i) => found |= vars.iter().any(|(v, _)| i.cond.mentions(*v)),
        _ => {}
    });
    found
}

struct Sink<'a> {
    func: &'a mut Func,
    /// What the lanes of a warp run next to each other.
    lanes: Vec<(Var, i64)>,
    held: &'a [BufferId],
    /// Knows every loop.
    env: Env,
    refusal: Refusal<'a>,
    numbers: Numbers,
    nests: Vec<Whole>,
}

impl Sink<'_> {
    fn body(&mut self, body: Vec<Stmt>) -> Result<Vec<Stmt>> {
        let mut out = Vec::with_capacity(body.len());
        for stmt in body {
            let touched = self.touches(&stmt);
            if !touched && !speaks(&stmt, &self.lanes) {
                out.push(stmt);
                continue;
            }
            out.push(match (chain(&stmt), stmt) {
                (Some((loops, block)), _) => self.nest(&loops, &block)?,
                (None, Stmt::For(mut l)) => {
                    l.body = self.body(l.body)?;
                    Stmt::For(l)
                }
                (None, other) => other,
            });
        }
        Ok(out)
    }

    fn touches(&self, stmt: &Stmt) -> bool {
        let body = std::slice::from_ref(stmt);
        visit::reads(body).iter().chain(&visit::writes(body)).any(|b| self.held.contains(b))
    }

    /// A nest of one block, over whole ranges of its iterators.
    fn nest(&mut self, loops: &[For], block: &Block) -> Result<Stmt> {
        let label = self.func.block_name(block.name).to_string();
        let refusal = self.refusal;
        let no = |n, message: String| refusal.broken(n, message, &[(Node::Block(block.name), "this block")]);
        if !self.touches(&Stmt::Block(block.clone())) {
            let message = format!(
                "block `{label}` belongs to single threads, and accesses neither the accumulator nor an operand of the \
                 matrix product"
            );
            return Err(no(self.numbers.nests, message)
                .help("distribute it by its own loops bound to threads, as in cooperative copies"));
        }
        let extents = loops.iter().map(|l| Some((l.var, l.extent.as_int()?))).collect::<Option<Vec<_>>>();
        let moving: Vec<(Var, i64)> = extents.into_iter().flatten().chain(self.lanes.iter().copied()).collect();
        let ranges = ranges(block, &moving, &self.env);
        let ranges = ranges.map_err(|why| no(self.numbers.nests, format!("block `{label}` {why}")))?;
        let mut whole = Whole { block: block.name, loops: Vec::new(), base: Vec::new() };
        let mut iters = Vec::new();
        for (n, (it, (base, extent))) in block.iters.iter().zip(ranges).enumerate() {
            let name = self.func.unused_loop_name(&format!("{label}_{n}"));
            let var = self.func.add_var(name);
            self.env.bind(var, 0, extent - 1);
            iters
                .push(Iter { binding: simplify::simplify(&(base.clone() + Index::Var(var)), &self.env), ..it.clone() });
            whole.loops.push((var, extent));
            whole.base.push(base);
        }
        let predicate = self.predicate(block, &whole, &moving)?;
        let shells = whole.loops.iter().map(|(v, e)| For::new(*v, *e, LoopKind::Serial, Vec::new())).collect();
        self.nests.push(whole);
        Ok(nest::wrap(shells, Stmt::Block(Block { iters, predicate, ..block.clone() })))
    }

    /// What is left of a predicate for whole ranges: it must be the same all over them.
    fn predicate(&self, block: &Block, whole: &Whole, moving: &[(Var, i64)]) -> Result<Cond> {
        let (mut out, mut domains) = (Cond::TRUE, self.env.clone());
        for it in &block.iters {
            domains.assume(&Cond::lt(it.binding.clone(), it.extent.clone()));
            domains.assume(&Cond::ge(it.binding.clone(), 0));
        }
        let by_domain = |part: &Cond| {
            block.iters.iter().any(|it| nest::says_domain(part, it, &self.env)) || decide::proves(part, &domains)
        };
        let (cut, kept): (Vec<&Cond>, Vec<&Cond>) =
            block.predicate.conjuncts().into_iter().partition(|part| moving.iter().any(|(v, _)| part.mentions(*v)));
        if let Some(part) = cut.iter().find(|part| !by_domain(part)) {
            let text = crate::ir::print::cond(self.func, part);
            let label = self.func.block_name(block.name);
            let message =
                format!("the condition `{text}` of block `{label}` may hold for a part of a warp's tile alone");
            return Err(self.refusal.broken(self.numbers.sizes, message, &[(Node::Block(block.name), "this block")]));
        }
        kept.into_iter().for_each(|part| out = std::mem::replace(&mut out, Cond::TRUE).and(part.clone()));
        for ((it, base), (_, extent)) in
            block.iters.iter().zip(&whole.base).zip(&whole.loops).filter(|_| !cut.is_empty())
        {
            let size = it.extent.as_int().unwrap_or(1);
            let end = Cond::lt(base.clone() + (extent - 1), size);
            if decide::proves(&end, &self.env) {
                continue;
            }
            if size % extent != 0 || simplify::divisor(base, &self.env) % extent != 0 {
                return Err(self.ragged(block, it, size, *extent));
            }
            out = out.and(simplify::simplify_cond(&Cond::lt(base.clone(), size), &self.env));
        }
        Ok(out)
    }

    fn ragged(&self, block: &Block, it: &Iter, size: i64, extent: i64) -> crate::error::Error {
        let message = format!(
            "`{}` of block `{}` has {size} values, no multiple of the {extent} of a warp's tile",
            self.func.var_name(it.var),
            self.func.block_name(block.name)
        );
        self.refusal.broken(self.numbers.sizes, message, &[(Node::Block(block.name), "this block")])
    }
}

/// The loops of a nest around one block, outermost first, if nothing else is in it.
fn chain(stmt: &Stmt) -> Option<(Vec<For>, Block)> {
    match stmt {
        Stmt::Block(b) => Some((Vec::new(), b.clone())),
        Stmt::For(l) if l.axis().is_none() && l.raster.is_none() => {
            let [inner] = l.body.as_slice() else { return None };
            let (mut loops, block) = chain(inner)?;
            loops.insert(0, For { body: Vec::new(), ..l.clone() });
            Some((loops, block))
        }
        _ => None,
    }
}

/// Where each iterator begins and how far it goes while the variables run through their extents; in words why that is no
/// box.
fn ranges(block: &Block, moving: &[(Var, i64)], env: &Env) -> Result<Vec<(Index, i64)>, String> {
    let bindings: Vec<Index> = block.iters.iter().map(|i| simplify::simplify(&i.binding, env)).collect();
    let image = digits::image(&bindings, moving);
    let left_out = moving.iter().find(|(v, e)| *e > 1 && !image.mentioned.contains(v));
    if !image.dense {
        return Err("is not covered in whole boxes by the threads of a warp".into());
    }
    if block.iters.iter().any(|i| i.kind == IterKind::Reduce) && (!image.injective || left_out.is_some()) {
        return Err("sums into one element more than once".into());
    }
    let start: visit::Map = moving.iter().map(|(v, _)| zero(*v)).collect();
    let range = |binding: &Index| {
        let sum = digits::parse(binding, moving)?;
        let reach = sum.parts.iter().try_fold(1i64, |reach, p| match p.digit {
            None => Some(reach),
            Some(d) if p.coefficient > 0 => reach.checked_add(p.coefficient.checked_mul(d.size()? - 1)?),
            Some(_) => None,
        })?;
        Some((simplify::simplify(&visit::subst_index(binding, &start), env), reach))
    };
    bindings.iter().map(|b| range(b).ok_or_else(|| "has an index that is no sum of the loops'".to_string())).collect()
}

impl Regrouped {
    /// The nest of a block.
    pub fn nest(&self, block: BlockId) -> Option<&Whole> {
        self.nests.iter().find(|n| n.block == block)
    }

    /// Cuts a nest into tiles of `sizes`, one size an iterator: loops over the tiles, those of the iterators `order` first,
    /// around loops through one. Returns the loops through a tile, one an iterator.
    pub fn cut(&mut self, nest: &Whole, sizes: &[i64], order: &[usize]) -> Vec<Var> {
        let label = self.func.block_name(nest.block).to_string();
        let (mut outer, mut inner, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (n, ((var, extent), size)) in nest.loops.iter().zip(sizes).enumerate() {
            let mut value = nest.base[n].clone();
            if extent > size {
                let tile = self.func.unused_loop_name(&format!("{label}_t{n}"));
                let tile = self.func.add_var(tile);
                value = value + Index::Var(tile) * *size;
                outer.push((n, For::new(tile, extent / size, LoopKind::Serial, Vec::new())));
            }
            values.push(value + Index::Var(*var));
            inner.push(For::new(*var, *size, LoopKind::Serial, Vec::new()));
        }
        outer.sort_by_key(|(n, _)| order.iter().position(|o| o == n));
        let vars = inner.iter().map(|l| l.var).collect();
        let shells: Vec<For> = outer.into_iter().map(|(_, l)| l).chain(inner).collect();
        self.replace(nest, shells, &values);
        vars
    }

    fn replace(&mut self, nest: &Whole, shells: Vec<For>, values: &[Index]) {
        let top = nest.loops.first().map(|l| l.0);
        let body = std::mem::take(&mut self.func.body);
        self.func.body = visit::rewrite(body, &mut |stmt| match stmt {
            Stmt::For(l) if Some(l.var) == top => match chain(&Stmt::For(l)) {
                Some((_, mut block)) => {
                    block.iters.iter_mut().zip(values).for_each(|(it, value)| it.binding = value.clone());
                    vec![nest::wrap(shells.clone(), Stmt::Block(block))]
                }
                None => Vec::new(),
            },
            other => vec![other],
        });
        super::analyze::simplify_bindings(&mut self.func);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::testing::program;

    #[test]
    fn lanes_are_shared_out_fastest_axis_first() {
        let lanes = |extents: [i64; 3]| {
            let thread = |(axis, extent)| Thread { var: Var(0), extent, lanes: 1, axis };
            let mut threads = Threads { loops: THREADS.into_iter().zip(extents).map(thread).collect() };
            threads.share_a_warp().map(|()| threads.loops.iter().map(|t| t.lanes).collect::<Vec<_>>())
        };
        assert_eq!(lanes([2, 32, 2]), Ok(vec![2, 16, 1]));
        assert_eq!(lanes([2, 8, 4]), Ok(vec![2, 8, 2]));
        assert_eq!(lanes([64, 2, 1]), Ok(vec![32, 1, 1]));
        assert_eq!(lanes([2, 8, 1]), Err("the 16 threads of a block are not whole warps of 32".to_string()));
        assert!(lanes([24, 4, 1]).is_err_and(|e| e.contains("threadIdx.x has extent 24")));
    }

    #[test]
    fn ranges_are_boxes() {
        let func = program("gemm 32x16x16 f16>f32>f32 NT");
        let block = func.find_block("C").unwrap();
        let loops: Vec<(Var, i64)> =
            visit::loops(&func.body).iter().map(|l| (l.var, l.extent.as_int().unwrap())).collect();
        let env = nest::env_of(&visit::loops(&func.body));
        let whole = ranges(block, &loops, &env).unwrap();
        assert_eq!(whole.iter().map(|r| r.1).collect::<Vec<_>>(), [32, 16, 16]);
        let part = ranges(block, &loops[1..], &env).unwrap();
        assert_eq!(part[0], (Index::Var(loops[0].0), 1));
    }

    #[test]
    fn ranges_are_whole_and_summed_once() {
        let mut func = program("gemm 32x16x16 f16>f32>f32 NT");
        let mut block = func.find_block("C").unwrap().clone();
        let mut loops: Vec<(Var, i64)> =
            visit::loops(&func.body).iter().map(|l| (l.var, l.extent.as_int().unwrap())).collect();
        let mut env = nest::env_of(&visit::loops(&func.body));
        loops.push((func.add_var("again"), 2));
        env.bind(loops[3].0, 0, 1);
        assert_eq!(ranges(&block, &loops, &env).unwrap_err(), "sums into one element more than once");
        block.iters[0].binding = Index::Var(loops[0].0) * 2;
        let holes = ranges(&block, &loops[..3], &env).unwrap_err();
        assert_eq!(holes, "is not covered in whole boxes by the threads of a warp");
    }
}
