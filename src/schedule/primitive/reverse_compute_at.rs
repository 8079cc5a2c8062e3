//! `reverse_compute_at BLOCK LOOP [-> loops]`: the consumer BLOCK moves under LOOP, behind the last block there that
//! writes what it reads, and in each iteration handles just the elements that are finished in it. Its spatial iterators
//! get new loops, named `BLOCK_0`, `BLOCK_1`, .. unless stated; one that takes a single value gets none, unless a name is
//! stated for each. Its reduce loops move with it.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: BLOCK handles every element that it handled before, after its inputs are final.
//!
//! ```text
//! for i in 0..8                                 for i in 0..8
//!   for j in 0..16: X: X[i, j] = f(A[i, j])       for j in 0..16: X: X[i, j] = f(A[i, j])
//! for y0 in 0..8                           ->     for Y_1 in 0..16: Y: Y[i, Y_1] = X[i, Y_1]
//!   for y1 in 0..16: Y: Y[y0, y1] = X[y0, y1]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::decide;
use crate::ir::print::Node;
use crate::ir::region::{self, Range, Region, Touch};
use crate::ir::simplify::{self, Env};
use crate::ir::{Block, BufferId, Cond, Expr, For, Func, Index, IterKind, Stmt, visit};
use crate::schedule::Args;
use crate::schedule::dataflow;
use crate::schedule::find;
use crate::schedule::members::Members;
use crate::schedule::nest::{self, Leaving, Solved};
use crate::schedule::refusal::Refusal;

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "reverse_compute_at",
    about: "Moves a consumer under a loop of its producers, over what is finished there.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              cache_write C C local -> C_l\n\
              reverse_compute_at C_l j",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("loop", ParamKind::Loop),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK computes one element of each of its outputs an iteration, and running it again gives the same",
        "no other block writes an output, and none before BLOCK reads one",
        "LOOP is before BLOCK, and not around it",
        "a block under LOOP writes what BLOCK reads; every other writer of what BLOCK reads is before LOOP",
        "those producers finish what they write within an iteration of LOOP: no loop of a reduce iterator of theirs is LOOP or around it",
        "what a producer writes in an iteration is a box without holes, the same for all producers of a buffer",
        "for each read of the producers' buffers, a box of BLOCK's spatial iterators is what the producers finish, and \
         the box of one read is inside those of all others",
        "of a parameter the producers write all that BLOCK reads",
        "neither BLOCK nor LOOP is in a tensorized nest",
        "the loops that are removed are not placed (bound, unrolled, pipelined, ..)",
        "BLOCK's reduce loops hold nothing else and run no spatial iterator",
        "BLOCK's predicate says no more than that its spatial iterators stay in their domains",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("reverse_compute_at", func);
    let (b, l) = (find::block(func, args.get_word("block")?)?, find::loop_(func, args.get_word("loop")?)?);
    let mut leaving = check_order(refusal, func, b, l)?;
    leaving.sweep = nest::sweep(func, b, l);
    let (_, env) = nest::surroundings(func, l);
    let (ranges, decisive) = finished(refusal, func, b, l, &env)?;
    let names = nest::new_loops(func, args, b, &ranges, &leaving.freed())?;

    let mut out = func.clone();
    let Some(taken) = nest::take(&mut out, b.name) else { return Err(refusal.lost("the block")) };
    let mut stmt = nest::renest(&mut out, taken, &leaving, &ranges, &names, &env);
    only_where_finished(refusal, func, b, l, &env, &mut stmt)?;
    only_what_is_written(func, b, l, &env, &decisive, &mut stmt);
    let inputs = inputs(b);
    let writes = |s: &Stmt| inputs.iter().any(|x| !dataflow::writers_in(std::slice::from_ref(s), *x).is_empty());
    visit::change_loop(&mut out.body, l.var, &mut |l| {
        let position = l.body.iter().rposition(writes).map_or(l.body.len(), |p| p + 1);
        l.body.insert(position, stmt.clone());
    });
    Ok(Applied { func: out, names: names.into_iter().flatten().collect() })
}

/// Where a producer is idle in an iteration of `l`, because its predicate says so, BLOCK is idle too: it would handle
/// again what an earlier iteration finished, and the stage in between may hold one iteration's elements only.
fn only_where_finished(refusal: Refusal, func: &Func, b: &Block, l: &For, env: &Env, stmt: &mut Stmt) -> Result<()> {
    let moved = std::slice::from_ref(stmt);
    let mut known = env.clone();
    for inner in visit::loops(moved) {
        known.bind_loop(inner.var, &inner.extent);
    }
    visit::blocks(moved).iter().for_each(|b| known.assume(&b.predicate));
    let mut also = Cond::TRUE;
    for writer in inputs(b).iter().flat_map(|input| dataflow::writers_in(&l.body, *input)) {
        let Some(producer) = visit::blocks(&l.body).into_iter().find(|p| p.name == writer) else { continue };
        let inner = visit::loops_around(&l.body, writer).unwrap_or_default();
        for part in producer.predicate.conjuncts() {
            let Some(part) = at_its_weakest(part, &inner, env) else {
                let message = format!("{} does not write a box without holes in an iteration", func.block_name(writer));
                return Err(refusal.broken(6, message, &[(Node::Block(writer), "this producer")]));
            };
            if !decide::proves(&part, &known) {
                known.assume(&part);
                also = also.and(part);
            }
        }
    }
    visit::change_block(std::slice::from_mut(stmt), b.name, &mut |b| {
        b.predicate = b.predicate.clone().and(also.clone())
    });
    Ok(())
}

/// Where a layout, or BLOCK's read, exchanges digits of an iterator that the producer's predicate cuts off, the box that an
/// iteration of `l` writes holds elements of other iterations. BLOCK leaves them to those.
fn only_what_is_written(func: &Func, b: &Block, l: &For, env: &Env, read: &Read, stmt: &mut Stmt) {
    let blocks = visit::blocks(&l.body);
    let mut writers = blocks.into_iter().filter(|w| dataflow::block_writes(w).contains(&read.buffer));
    let (Some(producer), None) = (writers.next(), writers.next()) else { return };
    let Some(store) = dataflow::store_to(producer, read.buffer) else { return };
    let plain = |at: &[Index]| at.iter().all(|i| i.as_var().is_some() || i.as_int().is_some());
    if producer.predicate.is_true() || plain(&store.indices) && plain(&read.at) {
        return;
    }
    let around = visit::loops_around(&func.body, producer.name).unwrap_or_default();
    let depth = around.iter().position(|o| o.var == l.var).map_or(0, |at| at + 1);
    let (outer, inner) = around.split_at(depth);
    let Some(written) = Members::of(func, producer, &store.indices, outer, inner) else { return };
    let mut known = env.clone();
    visit::loops(std::slice::from_ref(stmt)).iter().for_each(|inner| known.bind_loop(inner.var, &inner.extent));
    visit::change_block(std::slice::from_mut(stmt), b.name, &mut |b| {
        known.assume(&b.predicate);
        let bindings: visit::Map = b.iters.iter().map(|it| (it.var, it.binding.clone())).collect();
        let element = read.at.iter().map(|i| simplify::simplify(&visit::subst_index(i, &bindings), &known));
        for part in written.conditions(&element.collect::<Vec<_>>()) {
            let part = simplify::simplify_cond(&part, &known);
            if !decide::proves(&part, &known) {
                known.assume(&part);
                b.predicate = b.predicate.clone().and(part);
            }
        }
    });
}

/// A condition without the loops inside: it holds if the condition does in any of their iterations.
fn at_its_weakest(cond: &Cond, inner: &[&For], env: &Env) -> Option<Cond> {
    let first: visit::Map = inner.iter().flat_map(|l| l.defines()).map(|(v, _)| (v, 0.into())).collect();
    if !first.keys().any(|v| cond.mentions(*v)) {
        return Some(cond.clone());
    }
    let weakest = simplify::simplify_cond(&visit::subst_cond(cond, &first), env);
    let mut known = env.clone();
    inner.iter().flat_map(|l| l.defines()).for_each(|(v, extent)| known.bind_loop(v, &extent));
    known.assume(cond);
    decide::proves(&weakest, &known).then_some(weakest)
}

/// Whether BLOCK, by a select, reads the buffer in some of its iterations only, so that the others follow from no producer.
fn reads_in_part(func: &Func, block: &Block, l: &For, input: BufferId, env: &Env) -> bool {
    fn selected<'e>(e: &'e Expr, inside: bool, found: &mut dyn FnMut(&'e Expr)) {
        match e {
            Expr::Select(c, a, b) => {
                selected(c, inside, found);
                selected(a, true, found);
                selected(b, true, found);
            }
            Expr::Bin(_, a, b) | Expr::Cmp(_, a, b) => {
                selected(a, inside, found);
                selected(b, inside, found);
            }
            Expr::Un(_, a) | Expr::Cast(_, a) | Expr::Splat(_, a) | Expr::Shuffle(_, a) => selected(a, inside, found),
            Expr::Gather { index, value, .. } => {
                selected(index, inside, found);
                selected(value, inside, found);
            }
            Expr::Load { .. } if inside => found(e),
            _ => {}
        }
    }
    let shape = &func.buffer(input).shape;
    let written = written_in_all(func, block, l, input);
    // An iterator that counts through a dimension of which the producers write the whole, or through its first elements, is handled in each of its
    // values all the same.
    let mut known = env.clone();
    func.size_vars().into_iter().for_each(|(size, extent)| known.bind(size, 0, extent - 1));
    let counts =
        |extent: &Index, own: &Index| own == extent || decide::proves(&Cond::ge(extent.clone(), own.clone()), &known);
    let whole = |((index, extent), written): ((&Index, &Index), &bool)| {
        *written
            && index.as_var().is_some_and(|v| block.iters.iter().any(|it| it.var == v && counts(extent, &it.extent)))
    };
    let mut part = false;
    for stmt in &block.body {
        if let Stmt::Store(s) = stmt {
            selected(&s.value, false, &mut |e| {
                if let Expr::Load { buffer, indices, .. } = e {
                    part |= *buffer == input && !indices.iter().zip(shape).zip(&written).all(whole);
                }
            });
        }
    }
    part
}

/// Of which dimensions the producers under `l` write the whole before BLOCK runs where it stands.
fn written_in_all(func: &Func, block: &Block, l: &For, input: BufferId) -> Vec<bool> {
    let Some((body, env)) = shared(func, block, l) else { return vec![false; func.buffer(input).shape.len()] };
    let dense = |w: &Block| {
        let around = visit::loops_around(body, w.name).unwrap_or_default();
        !dataflow::block_writes(w).contains(&input) || dataflow::is_dense(w, input, &around)
    };
    let written = region::touched(func, body, input, Touch::Writes, &env).unwrap_or_default();
    let whole = nest::full(func, input, &written, &env);
    let dense = visit::blocks(body).into_iter().all(dense);
    func.buffer(input).shape.iter().enumerate().map(|(d, _)| dense && whole.get(d) == Some(&true)).collect()
}

/// The body of the innermost loop around both BLOCK and `l`, or the root's, with what is known there.
fn shared<'a>(func: &'a Func, block: &Block, l: &For) -> Option<(&'a [Stmt], Env)> {
    let (from, to) = dataflow::spot_of_block(func, block.name).zip(dataflow::spot_of_loop(func, l.var))?;
    let shared = from.shared_loops(&to);
    let around = visit::loops_around(&func.body, block.name).unwrap_or_default();
    let env = nest::env_of(around.get(..shared).unwrap_or_default());
    Some((dataflow::body_at(&func.body, to.steps.get(..=shared).unwrap_or_default()), env))
}

fn inputs(block: &Block) -> Vec<BufferId> {
    let own = dataflow::block_writes(block);
    dataflow::block_reads(block).into_iter().filter(|x| !own.contains(x)).collect()
}

/// Requirements 1 to 4 and 9 to 12.
fn check_order(refusal: Refusal, func: &Func, block: &Block, l: &For) -> Result<Leaving> {
    let (name, at) = (func.block_name(block.name), func.var_name(l.var));
    let this = (Node::Block(block.name), "this block");
    let nature =
        dataflow::nature(block).map_err(|why| refusal.broken(1, format!("{name} cannot move: {why}"), &[this]))?;
    nature.outputs().try_for_each(|output| check_output(refusal, func, block, output))?;
    let spots = dataflow::spot_of_block(func, block.name).zip(dataflow::spot_of_loop(func, l.var));
    let Some((from, to)) = spots else { return Err(refusal.lost(at)) };
    if from.under(l.var) || from.steps < to.steps {
        let message = format!("{at} is {} {name}", if from.under(l.var) { "around" } else { "behind" });
        return Err(refusal.broken(3, message, &[this, (Node::Loop(l.var), "this loop")]));
    }
    check_producers(refusal, func, block, l)?;
    let (around, _) = nest::surroundings(func, l);
    nest::leaving(func, block, &around).map_err(|stuck| stuck.refuse(refusal, func, block, "move", [9, 10, 11, 12]))
}

fn check_output(refusal: Refusal, func: &Func, block: &Block, output: BufferId) -> Result<()> {
    let (name, buffer) = (func.block_name(block.name), &func.buffer(output).name);
    let other = dataflow::writers(func, output).into_iter().find(|w| w.name != block.name);
    let place = dataflow::place(func, block.name);
    let early = dataflow::readers(func, output).into_iter().find(|r| dataflow::place(func, r.name) < place);
    if let Some((o, verb)) = other.map(|o| (o, "written")).or(early.map(|e| (e, "read"))) {
        let when = if verb == "read" { " before it is computed" } else { "" };
        let message = format!("{buffer}, which {name} writes, is also {verb} by {}{when}", func.block_name(o.name));
        return Err(refusal.broken(
            2,
            message,
            &[(Node::Block(block.name), "this block"), (Node::Block(o.name), "the other")],
        ));
    }
    Ok(())
}

fn check_producers(refusal: Refusal, func: &Func, block: &Block, l: &For) -> Result<()> {
    let (name, at) = (func.block_name(block.name), func.var_name(l.var));
    let start = visit::blocks(&l.body).first().map_or(usize::MAX, |b| dataflow::place(func, b.name));
    let mut under = 0;
    for input in inputs(block) {
        let inside = dataflow::writers_in(&l.body, input);
        under += inside.len();
        let late = |w: &&Block| !inside.contains(&w.name) && dataflow::place(func, w.name) > start;
        if let Some(w) = dataflow::writers(func, input).into_iter().find(late) {
            let writer = func.block_name(w.name);
            let message = format!("{name} reads {}, which {writer} writes after {at}", func.buffer(input).name);
            let nodes = [(Node::Block(block.name), "this block"), (Node::Block(w.name), "a writer outside the loop")];
            return Err(refusal.broken(4, message, &nodes).help(format!("reverse_compute_at {writer} {at} first")));
        }
        if !inside.is_empty()
            && let Some(w) = dataflow::writers(func, input).into_iter().find(|w| !inside.contains(&w.name))
        {
            let message = format!("{} is written under {at} and outside it", func.buffer(input).name);
            return Err(refusal.broken(4, message, &[(Node::Block(w.name), "a writer outside the loop")]));
        }
    }
    if under == 0 {
        let message = format!("nothing under {at} writes what {name} reads");
        return Err(refusal.broken(4, message, &[(Node::Loop(l.var), "this loop")]));
    }
    Ok(())
}

/// The values of the spatial iterators whose inputs are final after an iteration of `l` (requirements 5 to 8).
fn finished(refusal: Refusal, func: &Func, block: &Block, l: &For, env: &Env) -> Result<(Vec<Range>, Read)> {
    let name = func.block_name(block.name);
    let this = (Node::Block(block.name), "this block");
    let mut reads: Vec<Read> = Vec::new();
    for input in inputs(block) {
        let writers = dataflow::writers_in(&l.body, input);
        if writers.is_empty() {
            continue;
        }
        if reads_in_part(func, block, l, input, env) {
            let buffer = &func.buffer(input).name;
            let message = format!("{name} reads {buffer} in some of its iterations only, and the others would be lost");
            return Err(refusal
                .broken(7, message, &[this, (Node::Buffer(input), "read in one branch of a select")])
                .help(format!("compute_at the blocks that write {buffer} under a loop of {name} instead")));
        }
        let region = written(refusal, func, l, input, env)?;
        let full = nest::full(func, input, &region, env);
        for at in dataflow::reads_at(block, input) {
            let solved = nest::solve(&func.largest_block(block).iters, &at, &region, &full, env);
            let scalar = block.iters.is_empty() && !full.iter().all(|f| *f);
            if scalar || !solved.iter().all(|s| s.exact) {
                let buffer = &func.buffer(input).name;
                let message = format!("what {name} reads of {buffer} is no box of its iterators");
                return Err(refusal.broken(7, message, &[this, (Node::Buffer(input), "read here")]));
            }
            reads.push(Read { buffer: input, at, solved });
        }
        check_covered(refusal, func, block, l, input)?;
    }
    let decisive = decisive(refusal, func, block, l, reads, env)?;
    let mut out = Vec::new();
    for (it, s) in func.largest_block(block).iters.iter().zip(&decisive.solved) {
        match (it.kind, s.whole) {
            (IterKind::Spatial, false) => out.push(s.range.clone()),
            (IterKind::Spatial, true) => out.push(Range { min: 0.into(), extent: it.extent.clone() }),
            (IterKind::Reduce, true) => {}
            (IterKind::Reduce, false) => {
                let message = format!("{name} sums over more than one iteration of {} finishes", func.var_name(l.var));
                return Err(refusal.broken(7, message, &[this]));
            }
        }
    }
    Ok((out, decisive))
}

/// A read of what the producers write.
#[derive(Clone)]
struct Read {
    buffer: BufferId,
    at: Vec<Index>,
    /// The iterations of BLOCK whose elements an iteration of the loop finishes.
    solved: Vec<Solved>,
}

/// The read whose box of iterators is in the boxes of all others. Every iteration of BLOCK has its element of that read
/// finished in some iteration of `l`, and all its other elements with it. Without such a read, `U[i, j] = T[i] * T[j]` would
/// compute the pairs alone whose elements one iteration finishes.
fn decisive(refusal: Refusal, func: &Func, block: &Block, l: &For, reads: Vec<Read>, env: &Env) -> Result<Read> {
    let lies_in =
        |inner: &Solved, outer: &Solved| outer.whole || !inner.whole && within(&inner.range, &outer.range, env);
    let objects = |one: &Read| {
        let all = |other: &&Read| one.solved.iter().zip(&other.solved).all(|(inner, outer)| lies_in(inner, outer));
        reads.iter().find(|other| !all(other))
    };
    if let Some(found) = reads.iter().find(|one| objects(one).is_none()) {
        return Ok(found.clone());
    }
    let [name, at] = [func.block_name(block.name), func.var_name(l.var)];
    let Some((first, second)) = reads.first().and_then(|one| Some((one.buffer, objects(one)?.buffer))) else {
        return Err(refusal.lost("the producers"));
    };
    let [a, b] = [first, second].map(|b| &func.buffer(b).name);
    let message = format!(
        "an iteration of {at} finishes different iterations of {name} for one read of {a} than for another of {b}, and \
         iterations that no iteration of {at} finishes for both would be lost"
    );
    let nodes =
        [(Node::Block(block.name), "this block"), (Node::Buffer(first), "read"), (Node::Buffer(second), "read")];
    let help = format!("compute_at the blocks that write {a} under a loop of {name} instead");
    Err(refusal.broken(7, message, &nodes).help(help))
}

/// Whether a range provably is in another.
fn within(inner: &Range, outer: &Range, env: &Env) -> bool {
    let end = |r: &Range| r.min.clone() + r.extent.clone();
    decide::proves(&Cond::ge(inner.min.clone(), outer.min.clone()), env)
        && decide::proves(&Cond::ge(end(outer), end(inner)), env)
}

/// The box of `buffer` that is written and final after an iteration of `l`.
fn written(refusal: Refusal, func: &Func, l: &For, buffer: BufferId, env: &Env) -> Result<Region> {
    let at = func.var_name(l.var);
    let mut found: Option<Region> = None;
    for writer in visit::blocks(&l.body).into_iter().filter(|b| dataflow::block_writes(b).contains(&buffer)) {
        let name = func.block_name(writer.name);
        let node = [(Node::Block(writer.name), "this producer")];
        let inner = visit::loops_around(&l.body, writer.name).unwrap_or_default();
        let around = find::around(&func.body, writer.name)?;
        let inside = |v| inner.iter().any(|l| l.defines().iter().any(|(w, _)| *w == v));
        let mut outside = false;
        for it in writer.iters.iter().filter(|i| i.kind == IterKind::Reduce) {
            it.binding.for_each_var(&mut |v| outside |= !inside(v));
        }
        if outside {
            let message = format!("{name} is not finished within an iteration of {at}: it reduces over loops outside");
            return Err(refusal.broken(5, message, &node).help("choose a loop around the reduction"));
        }
        let alone = dataflow::only(&l.body, &|b| b.name == writer.name);
        let region = region::touched(func, &alone, buffer, Touch::Writes, env);
        let Some(region) = region.filter(|_| dataflow::is_dense_under(writer, buffer, &inner, &around)) else {
            let message = format!("{name} does not write a box without holes in an iteration of {at}");
            return Err(refusal.broken(6, message, &node));
        };
        if found.as_ref().is_some_and(|f| !same(f, &region, env)) {
            let message =
                format!("the producers of {} write different boxes in an iteration of {at}", func.buffer(buffer).name);
            return Err(refusal.broken(6, message, &node));
        }
        found = Some(region);
    }
    found.ok_or_else(|| refusal.lost("the region written"))
}

fn same(a: &Region, b: &Region, env: &Env) -> bool {
    let equal =
        |(x, y): (&Range, &Range)| decide::equal(&x.min, &y.min, env) && decide::equal(&x.extent, &y.extent, env);
    a.iter().zip(b).all(equal)
}

/// A parameter holds the caller's data where no producer writes it, so all that is read must be written.
fn check_covered(refusal: Refusal, func: &Func, block: &Block, l: &For, input: BufferId) -> Result<()> {
    if !func.params.contains(&input) {
        return Ok(());
    }
    let Some((body, env)) = shared(func, block, l) else { return Err(refusal.lost("the block")) };
    let (read, rest) =
        (dataflow::only(body, &|b| b.name == block.name), dataflow::only(body, &|b| b.name != block.name));
    let read = region::touched(func, &read, input, Touch::Reads, &env).unwrap_or_default();
    let write = region::touched(func, &rest, input, Touch::Writes, &env).unwrap_or_default();
    if read.len() == write.len() && read.iter().zip(&write).all(|(r, w)| within(r, w, &env)) {
        return Ok(());
    }
    let (name, buffer) = (func.block_name(block.name), &func.buffer(input).name);
    let message = format!(
        "{name} also reads elements of the parameter {buffer} that nothing under {} writes",
        func.var_name(l.var)
    );
    Err(refusal.broken(8, message, &[(Node::Block(block.name), "this block")]))
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{
        CHAIN, another_store, apply, limit, program, rebind, redirect, refuses, refuses_on, steps, tensorize,
    };

    const ROWS: &str = "program rows
        input A f32[8, 6]
        S: S[i 8] f32 = sum(k 6) A[i, k]
        Y: output Y[i 8, j 6] f32 = A[i, j] / S[i]";

    #[test]
    fn a_consumer_handles_what_is_finished() {
        let text = steps(CHAIN, "split i ? 4 -> a b; reverse_compute_at Y a -> y; reverse_compute_at Z a -> z");
        assert!(text.contains("    for z in 0..4\n      block Z(vi = a*4 + z)"), "{text}");
        assert!(steps(CHAIN, "split i ? 3 -> a b; reverse_compute_at Y a -> y").contains("where a*3 + y < 8"));
        let digits = "transform_layout X [i] -> [i // 4, i % 4]; split i ? 4 -> a b; reverse_compute_at Y a -> y";
        assert!(steps(CHAIN, digits).contains("block Y(vi = a*4 + y)"));
    }

    /// One read may decide which iterations are finished where all others are finished with it.
    #[test]
    fn reads_of_more_than_is_needed_do_not_object() {
        let pairs = "program pairs
            input A f32[8, 6]
            T[i 8, j 6] f32 = A[i, j] * 2
            output U[i 8, j 6, k 6] f32 = T[i, j] - T[i, k]";
        let text = steps(pairs, "reverse_compute_at U i -> a b");
        assert!(text.contains("block U(vi = i, vj = a, vk = b)"), "{text}");
        let rows = "program rows
            input A f32[8, 6]
            T[i 8, j 6] f32 = A[i, j] * 2
            S[i 8] f32 = sum(j 6) T[i, j]
            output U[i 8, j 6] f32 = T[i, j] / S[i]";
        let text = steps(rows, "reverse_compute_at S i -> s; reverse_compute_at U i -> u");
        assert!(text.contains("block U(vi = i, vj = u)"), "{text}");
    }

    #[test]
    fn refusals() {
        let mut func = program(CHAIN);
        another_store(&mut func, "Y");
        refuses_on(&func, "reverse_compute_at Y i", "reverse_compute_at.1", "Y cannot move: its body is not one store");
        let mut func = apply(ROWS, "decompose_reduction S k -> zero").unwrap();
        rebind(&mut func, "zero", "vi", |i| (i + 1).floormod(8));
        let boxes = "the producers of S write different boxes in an iteration of i";
        refuses_on(&func, "reverse_compute_at Y i", "reverse_compute_at.6", boxes);
        let two = "decompose_reduction S k; reverse_compute_at S i";
        refuses(ROWS, two, "reverse_compute_at.1", "S cannot move: it reduces without an init");
        let mut func = program(CHAIN);
        redirect(&mut func, "Z", "Y");
        refuses_on(&func, "reverse_compute_at Y i", "reverse_compute_at.2", "Y, which Y writes, is also written by Z");
        refuses(CHAIN, "reverse_compute_at Y Y_i", "reverse_compute_at.3", "Y_i is around Y");
        refuses(CHAIN, "reverse_compute_at Y Z_i", "reverse_compute_at.3", "Z_i is behind Y");
        refuses(CHAIN, "reverse_compute_at Z i", "reverse_compute_at.4", "Z reads Y, which Y writes after i");
        let aside = "program aside
            input A f32[8]
            X: X[i 8] f32 = A[i]
            Y: output Y[i 8] f32 = A[i]";
        refuses(aside, "reverse_compute_at Y i", "reverse_compute_at.4", "nothing under i writes what Y reads");
        let apart = "decompose_reduction S i; reverse_compute_at Y i";
        refuses(ROWS, apart, "reverse_compute_at.4", "S is written under i and outside it");
        refuses(ROWS, "reverse_compute_at Y k", "reverse_compute_at.5", "S is not finished within an iteration of k");
        let mut func = program(CHAIN);
        rebind(&mut func, "X", "vi", |i| i * 2);
        refuses_on(
            &func,
            "split i ? 2 -> a b; reverse_compute_at Y a",
            "reverse_compute_at.6",
            "X does not write a box without holes in an iteration of a",
        );
        let window = "program window
            input A f32[10]
            X: X[i 10] f32 = A[i]
            Y: output Y[i 8] f32 = X[i] + X[i + 1]";
        refuses(
            window,
            "split i ? 5 -> a b; reverse_compute_at Y a",
            "reverse_compute_at.7",
            "an iteration of a finishes different iterations of Y for one read of X than for another of X",
        );
        let strided = "program strided
            input A f32[12]
            X: X[i 12] f32 = A[i]
            Y: output Y[i 4] f32 = X[i*3]";
        refuses(
            strided,
            "split i ? 5 -> a b; reverse_compute_at Y a",
            "reverse_compute_at.7",
            "what Y reads of X is no box",
        );
        let outer = "program outer
            input A f32[8, 6]
            T[i 8] f32 = sum(k 6) A[i, k]
            output U[i 8, j 8] f32 = T[i] * T[j]";
        let lost = "an iteration of i finishes different iterations of U for one read of T than for another of T";
        refuses(outer, "reverse_compute_at U i", "reverse_compute_at.7", lost);
        let pairs = "program pairs
            input A f32[8, 6]
            T[i 8, j 6] f32 = A[i, j] * 2
            output U[i 8, j 6, k 6] f32 = T[i, j] - T[i, k]";
        refuses(pairs, "reverse_compute_at U j", "reverse_compute_at.7", "an iteration of j finishes different");
        let two = "program two
            input A f32[8]
            X[i 8] f32 = A[i] + 1
            Y[i 8] f32 = X[i] * 2
            output U[i 8, j 8] f32 = X[i] * Y[j]";
        let steps = "reverse_compute_at Y i; reverse_compute_at U i";
        refuses(
            two,
            steps,
            "reverse_compute_at.7",
            "an iteration of i finishes different iterations of U for one read of X than for another of Y",
        );
        let partial = "program partial
            input A f32[8]
            X: output X[i 8] f32 = A[i]
            Y: output Y[i 8] f32 = X[i]";
        let mut func = program(partial);
        limit(&mut func, "X", "vi", 5);
        refuses_on(
            &func,
            "reverse_compute_at Y i",
            "reverse_compute_at.6",
            "X does not write a box without holes in an iteration of i",
        );
        let mut func = program(partial);
        let half = func.find_loop("i").unwrap().var;
        crate::ir::visit::change_loop(&mut func.body, half, &mut |l| l.extent = 4.into());
        refuses_on(&func, "reverse_compute_at Y i", "reverse_compute_at.8", "Y also reads elements of the parameter X");
        for at in ["i", "Y_i"] {
            let mut func = program(CHAIN);
            tensorize(&mut func, at);
            let message = format!("Y cannot move: it is under {at}, which is tensorized");
            refuses_on(&func, "reverse_compute_at Y i", "reverse_compute_at.9", &message);
        }
        let placed = "unroll Y_i; reverse_compute_at Y i";
        refuses(CHAIN, placed, "reverse_compute_at.10", "Y cannot move: its loop Y_i is already placed");
        let sums = "program sums
            input A f32[8, 6]
            X: X[i 8, j 6] f32 = A[i, j]
            S: output S[i 8] f32 = sum(k 6) X[i, k] * A[i, k]";
        let fused = "fuse S_i k -> f; reverse_compute_at S i";
        refuses(sums, fused, "reverse_compute_at.11", "S cannot move: its reduce loop f is not its own");
        refuses(
            sums,
            "reverse_compute_at S j",
            "reverse_compute_at.7",
            "S sums over more than one iteration of j finishes",
        );
        let mut func = program(CHAIN);
        limit(&mut func, "Y", "vi", 5);
        refuses_on(&func, "reverse_compute_at Y i", "reverse_compute_at.12", "Y cannot move: the predicate `Y_i < 5`");
    }
}
