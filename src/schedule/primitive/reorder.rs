//! `reorder LOOPS..`: puts the named loops of a nest in this order, outermost first; loops between them stay in place.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the iterations. The order in which a reduction adds its terms changes.
//!
//! ```text
//! for i in 0..8            reorder k i                  for k in 0..4
//!   for k in 0..4                                         for i in 0..8
//!     ..i, k..                                              ..i, k..
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::simplify::Env;
use crate::ir::{Block, For, Func, IterKind, LoopKind, Stmt, Var, visit};
use crate::schedule::Args;
use crate::schedule::analyze::{
    BlockKind, bindings, blocks_below, distinct, init_comes_first, iters_on, kind, mentions, placement,
};
use crate::schedule::find::{self, loops, refuse};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "reorder",
    about: "Puts nested loops in this order, outermost first; loops between them stay in place.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              reorder k j",
    signature: &[Parameter::place("loops", ParamKind::Loops)],
    requires: &[
        "at least two loops are named",
        "they are in one chain: from the outermost to the innermost of them, each loop is the only statement of the \
         one around it",
        "no loop of that chain is vectorized, pipelined or tensorized",
        "no extent depends on a loop of the chain",
        "every block below writes a function of its iterators or is a commutative reduction",
        "for every reduction with an init below: different spatial iterations are different elements, no loop is in both \
         a spatial and a reduce iterator, and the init still comes first",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let named = loops(func, args.get_words("loops")?)?;
    if named.len() < 2 {
        let alone: Vec<_> = named.iter().map(|l| (Node::Loop(l.var), "this loop alone")).collect();
        let error = refuse("reorder", 1, "only one loop is named", func, &alone);
        return Err(error.help("name the loops that change places, in their new order, outermost first"));
    }
    let chain = chain(func, &named)?;
    for l in &chain {
        check_loop(func, l, &chain)?;
    }
    for (path, block) in blocks_below(chain[0]) {
        check_block(func, &path, block)?;
    }
    let mut order = named.iter().map(|l| l.var);
    let is_named = |l: &&For| named.iter().any(|n| n.var == l.var);
    let vars: Vec<Var> =
        chain.iter().map(|l| if is_named(l) { order.next().unwrap_or(l.var) } else { l.var }).collect();
    Ok(rewrite(func.clone(), &chain, &vars).into())
}

/// The loops from the outermost to the innermost of the named ones.
fn chain<'a>(func: &'a Func, named: &[&'a For]) -> Result<Vec<&'a For>> {
    let inside = |outer: &For| {
        named.iter().all(|n| n.var == outer.var || visit::loops(&outer.body).iter().any(|l| l.var == n.var))
    };
    let Some(top) = named.iter().find(|l| inside(l)) else {
        let nodes: Vec<(Node, &str)> = named.iter().map(|l| (Node::Loop(l.var), "not in one nest")).collect();
        return Err(refuse("reorder", 2, "the loops are not in one nest", func, &nodes));
    };
    let mut out = vec![*top];
    let mut missing: Vec<Var> = named.iter().map(|l| l.var).filter(|v| *v != top.var).collect();
    while let Some(last) = out.last().filter(|_| !missing.is_empty()) {
        let [Stmt::For(next)] = last.body.as_slice() else {
            let message = format!("loop `{}` holds more than one loop", func.var_name(last.var));
            return Err(refuse("reorder", 2, message, func, &[(Node::Loop(last.var), "branches here")]));
        };
        missing.retain(|v| *v != next.var);
        out.push(next);
    }
    Ok(out)
}

fn check_loop(func: &Func, l: &For, chain: &[&For]) -> Result<()> {
    let name = func.var_name(l.var);
    let node = [(Node::Loop(l.var), "this loop")];
    if l.kind == LoopKind::Vectorized || l.pipeline.is_some() || l.tensorize.is_some() {
        let message = format!("loop `{name}` {}", placement(l).unwrap_or_default());
        return Err(refuse("reorder", 3, message, func, &node));
    }
    if chain.iter().any(|outer| mentions(&l.extent, outer)) {
        let message = format!("the extent of loop `{name}` depends on the chain");
        return Err(refuse("reorder", 4, message, func, &node));
    }
    Ok(())
}

/// `path` are the loops from the outermost of the chain down to the block.
fn check_block(func: &Func, path: &[&For], block: &Block) -> Result<()> {
    let name = func.block_name(block.name);
    let no = |n, message: String| refuse("reorder", n, message, func, &[(Node::Block(block.name), "this block")]);
    if kind(func, block) == BlockKind::Other {
        return Err(no(
            5,
            format!("block `{name}` is neither a function of its iterators nor a commutative reduction"),
        ));
    }
    if kind(func, block) == BlockKind::Map || block.init.is_none() {
        return Ok(());
    }
    let around = find::around(&func.body, block.name)?;
    let env = Env::with_loops(around.iter().copied());
    let reduces = |l: &&For| !iters_on(block, l, IterKind::Reduce).is_empty();
    let spatial: Vec<&For> = path.iter().copied().filter(|l| !reduces(l)).collect();
    // Reduce loops around the chain keep their place, but the iterators count them too.
    let reduce: Vec<&For> = around.into_iter().filter(reduces).collect();
    if let Some(l) = reduce.iter().find(|l| !iters_on(block, l, IterKind::Spatial).is_empty()) {
        let message = format!("loop `{}` is in a spatial and in a reduce iterator of `{name}`", func.var_name(l.var));
        return Err(no(6, message).help("split or reorder before fusing spatial with reduce loops"));
    }
    if !distinct(&spatial, &bindings(block, IterKind::Spatial), &block.predicate, &env) {
        return Err(no(6, format!("two iterations around `{name}` may sum into one element")));
    }
    if !init_comes_first(&reduce, block, &env) {
        return Err(no(6, format!("the init of `{name}` may no longer come first")).help("decompose_reduction first"));
    }
    Ok(())
}

/// Puts the loops `vars` where `chain` stood.
fn rewrite(mut func: Func, chain: &[&For], vars: &[Var]) -> Func {
    let shells: Vec<For> = vars
        .iter()
        .filter_map(|v| chain.iter().find(|l| l.var == *v))
        .map(|l| For { body: Vec::new(), ..(*l).clone() })
        .collect();
    let innermost = chain.last().map(|l| l.body.clone()).unwrap_or_default();
    let nest = shells.into_iter().rev().fold(innermost, |body, shell| vec![Stmt::For(For { body, ..shell })]);
    let top = chain[0].var;
    let body = std::mem::take(&mut func.body);
    func.body = visit::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(l) if l.var == top => nest.clone(),
        other => vec![other],
    });
    func
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{another_store, program, rebind, refuses, refuses_on, steps, symbolic};

    #[test]
    fn the_reduce_loop_goes_outside() {
        let text = steps("gemm 4x8x16 f32 NN", "reorder k i");
        let loops: Vec<&str> = text.lines().map(str::trim).filter(|l| l.starts_with("for")).collect();
        assert_eq!(loops, ["for k in 0..16", "for j in 0..8", "for i in 0..4"]);
    }

    #[test]
    fn loops_that_were_fused_and_split_stay_movable() {
        steps(
            "gemm 64x1024x4096 f32 NN",
            "fuse i j -> f; split f ? 8 64 -> a b c; split k 64 64; reorder a k_0 b k_1 c",
        );
        steps("gemm 60x1000x7 f32 NN", "split j ? 64; split k ? 2; reorder k_1 i k_0 j_1 j_0");
    }

    #[test]
    fn refusals() {
        let gemm = "gemm 4x8x16 f32 NN";
        refuses(gemm, "reorder i", "reorder.1", "only one loop is named");
        refuses("gemm 4x8x16 f16>f32>f16 NN", "reorder i out_i", "reorder.2", "the loops are not in one nest");
        refuses(
            "window_sum 64",
            "split i 8 8; vectorize i_1; reorder i_1 i_0",
            "reorder.3",
            "loop `i_1` is vectorized",
        );
        let mut func = program(gemm);
        symbolic(&mut func, "k");
        refuses_on(&func, "reorder k i", "reorder.4", "the extent of loop `k` depends on the chain");
        let mut func = program(gemm);
        another_store(&mut func, "C");
        let message = "block `C` is neither a function of its iterators nor a commutative reduction";
        refuses_on(&func, "reorder k i", "reorder.5", message);
        let mut func = program(gemm);
        rebind(&mut func, "C", "vi", |i| i.floordiv(2));
        refuses_on(&func, "reorder k i", "reorder.6", "two iterations around `C` may sum into one element");
        let mut func = program(gemm);
        rebind(&mut func, "C", "vk", |k| (k + 1).floormod(16));
        refuses_on(&func, "reorder k i", "reorder.6", "the init of `C` may no longer come first");
        let fused = "fuse j k -> f; split f ? 5 -> f0 f1; reorder f1 f0";
        refuses(gemm, fused, "reorder.6", "loop `f0` is in a spatial and in a reduce iterator of `C`");
    }
}
