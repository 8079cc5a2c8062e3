//! `compute_at BLOCK LOOP [-> loops]`: the producer BLOCK moves under LOOP, before the first block there that reads
//! what it writes, and computes in each iteration just the region that is read under LOOP. Its spatial iterators get
//! new loops, named `BLOCK_0`, `BLOCK_1`, .. unless stated; one that takes a single value gets none, unless a name is
//! stated for each. Its reduce loops move with it.
//!
//! The region of a *shared* buffer is taken over all iterations of the enclosing loops that are bound to `threadIdx`,
//! `warp` or `warpgroup` (not `pingpong`) so far, because the threads of a block fill it together. Where such a loop is
//! bound later, each of its iterations fills what it reads itself: the same values, but no cooperation, and a refusal
//! where threads would write one element at once (`lower.race`). No two blocks fill one element (`verify.overlap`).
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every element that is read holds, when it is read, the value that it held before.
//!
//! ```text
//! for i in 0..9: X: X[i] = f(A[i])              for j in 0..4
//! for j in 0..4                            ->     for X_0 in 0..3: X: X[j*2 + X_0] = f(A[j*2 + X_0])
//!   Y: Y[j] = X[j*2] + X[j*2 + 2]                 Y: Y[j] = X[j*2] + X[j*2 + 2]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::region::{self, Range, Region, Touch};
use crate::ir::simplify::Env;
use crate::ir::{Block, BufferId, For, Func, Iter, IterKind, Scope, Stmt, visit};
use crate::schedule::Args;
use crate::schedule::dataflow::{self, Nature};
use crate::schedule::find;
use crate::schedule::nest::{self, Leaving};
use crate::schedule::refusal::Refusal;

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "compute_at",
    about: "Moves a producer under a loop of its readers, over the region that is read there.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              split i ? 16 -> i0 i1\n\
              cache_read C A shared -> A_s\n\
              compute_at A_s i0",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("loop", ParamKind::Loop),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK computes one element of each of its outputs an iteration, and running it again gives the same",
        "no output is a parameter",
        "no other block writes an output",
        "LOOP is after BLOCK, and not around it",
        "every block that reads an output is under LOOP, and there is one",
        "no block after BLOCK writes what BLOCK reads",
        "neither BLOCK nor LOOP is in a tensorized nest",
        "the loops that are removed are not placed (bound, unrolled, pipelined, ..)",
        "BLOCK's reduce loops hold nothing else and run no spatial iterator",
        "BLOCK's predicate says no more than that its spatial iterators stay in their domains",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("compute_at", func);
    let (b, l) = (find::block(func, args.get_word("block")?)?, find::loop_(func, args.get_word("loop")?)?);
    let (nature, mut leaving) = check(refusal, func, b, l)?;
    leaving.sweep = nest::sweep(func, b, l);
    let (around, env) = nest::surroundings(func, l);
    let ranges = ranges(func, b, l, &nature, (&around, &env));
    let Some(ranges) = ranges else {
        // The readers do read it, but under conditions that never hold.
        let (block, at) = (func.block_name(b.name), func.var_name(l.var));
        let message = format!("no iteration of {at} reads what {block} writes");
        let nodes = [(Node::Block(b.name), "this block"), (Node::Loop(l.var), "nothing is needed here")];
        return Err(refusal.broken(5, message, &nodes));
    };
    let names = nest::new_loops(func, args, b, &ranges, &leaving.freed())?;

    let mut out = func.clone();
    let Some(taken) = nest::take(&mut out, b.name) else { return Err(refusal.lost("the block")) };
    let stmt = nest::renest(&mut out, taken, &leaving, &ranges, &names, &env);
    let reads = |s: &Stmt| nature.outputs().any(|o| !dataflow::readers_in(std::slice::from_ref(s), o).is_empty());
    visit::change_loop(&mut out.body, l.var, &mut |l| {
        let position = l.body.iter().position(reads).unwrap_or(0);
        l.body.insert(position, stmt.clone());
    });
    Ok(Applied { func: out, names: names.into_iter().flatten().collect() })
}

fn check(refusal: Refusal, func: &Func, block: &Block, l: &For) -> Result<(Nature, Leaving)> {
    let (name, at) = (func.block_name(block.name), func.var_name(l.var));
    let this = (Node::Block(block.name), "this block");
    let nature =
        dataflow::nature(block).map_err(|why| refusal.broken(1, format!("{name} cannot move: {why}"), &[this]))?;
    if let Some(output) = nature.outputs().find(|o| func.params.contains(o)) {
        let buffer = &func.buffer(output).name;
        let message = format!("{name} writes {buffer}, which is a parameter: all of it must be written");
        return Err(refusal
            .broken(2, message, &[this])
            .help(format!("cache_write {name} {buffer} .. first, or reverse_compute_at")));
    }
    let other = |output: BufferId| dataflow::other_writer(func, output, block).map(|other| (output, other));
    if let Some((output, other)) = nature.outputs().find_map(other) {
        let buffer = &func.buffer(output).name;
        let message = format!("{buffer} is also written by {}", func.block_name(other.name));
        return Err(refusal.broken(3, message, &[this, (Node::Block(other.name), "the other writer")]));
    }
    let spots = dataflow::spot_of_block(func, block.name).zip(dataflow::spot_of_loop(func, l.var));
    let Some((from, to)) = spots else { return Err(refusal.lost(at)) };
    if from.under(l.var) || to.steps < from.steps {
        let is_inside = from.under(l.var);
        let message = format!("{at} is {} {name}", if is_inside { "around" } else { "before" });
        let error = refusal.broken(4, message, &[this, (Node::Loop(l.var), "this loop")]);
        return Err(if is_inside {
            error.help(format!("{name} is computed in {at} already: remove this step"))
        } else {
            error.help(
                "compute_at moves a producer to a later loop; reverse_compute_at moves a consumer to an earlier one",
            )
        });
    }
    let read = |o: &BufferId| !dataflow::readers(func, *o).into_iter().all(|r| r.name == block.name);
    let outputs: Vec<BufferId> = nature.outputs().collect();
    let used: Vec<BufferId> = outputs.iter().copied().filter(read).collect();
    // One of several outputs may have no reader.
    let asked = if used.is_empty() { &outputs } else { &used };
    asked.iter().try_for_each(|output| check_consumers(refusal, func, block, l, *output))?;
    if let Some(w) = dataflow::later_writer(func, block) {
        let message = format!("{} writes what {name} reads, and is after it", func.block_name(w.name));
        return Err(refusal.broken(6, message, &[this, (Node::Block(w.name), "the writer")]));
    }
    let (around, _) = nest::surroundings(func, l);
    let leaving = nest::leaving(func, block, &around)
        .map_err(|stuck| stuck.refuse(refusal, func, block, "move", [7, 8, 9, 10]))?;
    Ok((nature, leaving))
}

fn check_consumers(refusal: Refusal, func: &Func, block: &Block, l: &For, output: BufferId) -> Result<()> {
    let (name, at, buffer) = (func.block_name(block.name), func.var_name(l.var), &func.buffer(output).name);
    let under = dataflow::readers_in(&l.body, output);
    let readers = dataflow::readers(func, output);
    let outside = readers.iter().find(|r| r.name != block.name && !under.contains(&r.name));
    if let Some(r) = outside {
        let reader = func.block_name(r.name);
        let message = format!("{reader} reads {buffer} and is not under {at}");
        let nodes = [(Node::Block(block.name), "this block"), (Node::Block(r.name), "a reader outside the loop")];
        return Err(refusal.broken(5, message, &nodes).help(format!("compute_at {reader} {at} first")));
    }
    if under.is_empty() {
        let message = format!("nothing under {at} reads {buffer}, which {name} writes");
        return Err(refusal.broken(5, message, &[(Node::Loop(l.var), "this loop")]));
    }
    Ok(())
}

/// The values of the spatial iterators that are needed under `l`; `None` where nothing is. Where several outputs need different
/// ones, an iterator takes all.
fn ranges(func: &Func, block: &Block, l: &For, nature: &Nature, (around, env): (&[&For], &Env)) -> Option<Vec<Range>> {
    let mut found: Option<Vec<Range>> = None;
    for (output, at) in &nature.written {
        let Some(region) = needed(func, l, around, *output, env) else { continue };
        let full = nest::full(func, *output, &region, env);
        let solved = nest::solve(&func.largest_block(block).iters, at, &region, &full, env);
        let spatial = || block.iters.iter().filter(|it| it.kind == IterKind::Spatial);
        let own = block.iters.iter().zip(solved).filter(|(it, _)| it.kind == IterKind::Spatial);
        let own: Vec<Range> = own.map(|(it, s)| within_domain(s.range, it)).collect();
        found = Some(match found {
            None => own,
            Some(before) => {
                let both = before.into_iter().zip(own).zip(spatial());
                both.map(|((a, b), it)| if a == b { a } else { Range { min: 0.into(), extent: it.extent.clone() } })
                    .collect()
            }
        });
    }
    found
}

/// The region of `buffer` that is read under `l`, over the threads that share the buffer.
fn needed(func: &Func, l: &For, around: &[&For], buffer: BufferId, env: &Env) -> Option<Region> {
    let region = region::touched(func, &l.body, buffer, Touch::Reads, env)?;
    if func.buffer(buffer).scope != Scope::Shared {
        return Some(region);
    }
    let sharing: Vec<&For> = around.iter().filter(|l| l.is_of_threads()).copied().collect();
    match dataflow::constant_vars(&sharing) {
        Some(vars) => {
            let still = |r: &Range| vars.iter().any(|(v, _)| r.min.mentions(*v) || r.extent.mentions(*v));
            let whole = region::whole(func.buffer(buffer));
            let shared = region::over(&region, &vars, env);
            Some(shared.into_iter().zip(whole).map(|(r, all)| if still(&r) { all } else { r }).collect())
        }
        None => Some(region::whole(func.buffer(buffer))),
    }
}

/// A range that is wider than the iterator's domain is the domain.
fn within_domain(range: Range, it: &Iter) -> Range {
    match (range.extent.as_int(), it.extent.as_int()) {
        (Some(wanted), Some(all)) if wanted >= all => Range { min: 0.into(), extent: it.extent.clone() },
        _ => range,
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::ir::Expr;
    use crate::schedule::testing::{
        CHAIN, another_store, limit, program, redirect, refuses, refuses_on, revalue, steps, tensorize,
    };

    const ROWS: &str = "program rows
        input A f32[8, 6]
        S: S[i 8] f32 = sum(k 6) A[i, k]
        Y: output Y[i 8, j 6] f32 = A[i, j] / S[i]";

    #[test]
    fn a_reduction_moves_with_its_reduce_loop() {
        let text = steps(ROWS, "split Y_i ? 4 -> a b; compute_at S a");
        let nest = "  for a in 0..2
    for S_0 in 0..4
      for k in 0..6
        block S(vi = a*4 + S_0, reduce vk = k)
          init S[vi] = 0.0
";
        assert!(text.contains(nest), "{text}");
        assert!(steps(ROWS, "compute_at S Y_i -> s").contains("for s in 0..1"));
    }

    #[test]
    fn a_shared_stage_serves_all_threads() {
        let bound = "split i ? 4 -> a b; bind a blockIdx.x; bind b threadIdx.x; cache_read C A shared -> S; compute_at S b -> s";
        assert!(steps("window_sum 16", bound).contains("for s in 0..6"));
        let local = bound.replace("shared", "local");
        assert!(steps("window_sum 16", &local).contains("for s in 0..3"));
    }

    #[test]
    fn refusals() {
        let mut func = program(CHAIN);
        another_store(&mut func, "X");
        refuses_on(&func, "compute_at X Y_i", "compute_at.1", "X cannot move: its body is not one store");
        refuses(CHAIN, "compute_at Z i", "compute_at.2", "Z writes Z, which is a parameter");
        let twice = "program twice
            input A f32[8]
            X: X[i 8] f32 = A[i]
            W: W[i 8] f32 = A[i]
            Y: output Y[i 8] f32 = X[i] + W[i]";
        let mut func = program(twice);
        redirect(&mut func, "W", "X");
        refuses_on(&func, "compute_at X Y_i", "compute_at.3", "X is also written by W");
        refuses(CHAIN, "compute_at X i", "compute_at.4", "i is around X");
        refuses(CHAIN, "compute_at Y i", "compute_at.4", "i is before Y");
        refuses(CHAIN, "compute_at X Z_i", "compute_at.5", "Y reads X and is not under Z_i");
        refuses(
            "gemm 4x4x4 f16>f32>f16 NN",
            "cache_read mma A local -> L; cache_read mma B local -> M; compute_at L M_0",
            "compute_at.5",
            "mma reads L and is not under M_0",
        );
        let mut func = program(CHAIN);
        revalue(&mut func, "Y", |_| Expr::constant(DType::F32, 1.0));
        refuses_on(&func, "compute_at X Z_i", "compute_at.5", "nothing under Z_i reads X, which X writes");
        let mut func = program(CHAIN);
        redirect(&mut func, "Y", "A");
        refuses_on(&func, "compute_at X Y_i", "compute_at.6", "Y writes what X reads, and is after it");
        for (at, name) in [("i", "i"), ("Y_i", "Y_i")] {
            let mut func = program(CHAIN);
            tensorize(&mut func, at);
            let message = format!("X cannot move: it is under {name}, which is tensorized");
            refuses_on(&func, "compute_at X Y_i", "compute_at.7", &message);
        }
        refuses(CHAIN, "unroll i; compute_at X Y_i", "compute_at.8", "X cannot move: its loop i is already placed");
        let shared = "cache_read S A local -> L; compute_at L k; compute_at S Y_i";
        refuses(ROWS, shared, "compute_at.9", "S cannot move: its reduce loop k is not its own");
        let mut func = program(CHAIN);
        limit(&mut func, "X", "vi", 5);
        refuses_on(&func, "compute_at X Y_i", "compute_at.10", "X cannot move: the predicate `i < 5` of X is more");
    }
}
