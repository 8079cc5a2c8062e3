//! `vectorize LOOP`: the iterations run together, as one vector access where alignment proves it, in pieces where not.
//! Elements of 8 or 16 bits that are copied from an array of constant size are then read in aligned 32-bit words, and shifted.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every iteration. A placement: the text keeps its meaning.
//!
//! ```text
//! for v in 0..4            vectorize v                  for v in 0..4 vectorized
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{Func, LoopKind, visit};
use crate::schedule::Args;
use crate::schedule::analyze::{BlockKind, blocks_below, kind, placement, sums_over};
use crate::schedule::find::{loop_, refuse};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "vectorize",
    about: "Runs the iterations of an innermost loop as one vector access.",
    example: "vec_add 1024\n\
              target sm_80\n\
              split i ? 4 -> i_0 i_1\n\
              vectorize i_1",
    signature: &[Parameter::place("loop", ParamKind::Loop)],
    requires: &[
        "the loop is serial: not bound, unrolled or vectorized, and neither pipelined nor tensorized",
        "the extent is a constant from 1 to 128",
        "the loop is innermost",
        "every block inside writes a function of its iterators, or a reduction that does not sum over the loop",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let l = loop_(func, args.get_word("loop")?)?;
    let name = func.var_name(l.var);
    let no = |n, message: String| refuse("vectorize", n, message, func, &[(Node::Loop(l.var), "this loop")]);
    if l.kind != LoopKind::Serial || l.pipeline.is_some() || l.tensorize.is_some() {
        return Err(no(1, format!("loop `{name}` {}", placement(l).unwrap_or_default())));
    }
    match l.extent.as_int() {
        Some(1..=128) => {}
        Some(n) => return Err(no(2, format!("{n} iterations of loop `{name}` are no vector")).help("split it first")),
        None => return Err(no(2, format!("the extent of loop `{name}` is not a constant"))),
    }
    if let Some(inner) = visit::loops(&l.body).first() {
        let message = format!("loop `{}` is inside loop `{name}`", func.var_name(inner.var));
        return Err(no(3, message).help(format!("reorder `{name}` to be innermost")));
    }
    let other = blocks_below(l).into_iter().map(|(_, b)| b).find(|b| kind(func, b) == BlockKind::Other);
    if let Some(block) = sums_over(l).or(other) {
        let message =
            format!("iterations of block `{}` depend on each other along loop `{name}`", func.block_name(block.name));
        let nodes = [(Node::Loop(l.var), "this loop"), (Node::Block(block.name), "depends on the order")];
        return Err(refuse("vectorize", 4, message, func, &nodes)
            .help(format!("vectorize a loop of what is written; along `{name}`, unroll")));
    }
    let (var, mut out) = (l.var, func.clone());
    visit::change_loop(&mut out.body, var, &mut |l| l.kind = LoopKind::Vectorized);
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{refuses, steps};

    #[test]
    fn the_loop_is_marked() {
        let text = steps("vec_add 64", "split i ? 4; vectorize i_1");
        assert!(text.contains("for i_1 in 0..4 vectorized\n"), "{text}");
    }

    #[test]
    fn refusals() {
        let gemm = "gemm 4x8x16 f32 NN";
        refuses(gemm, "unroll k; vectorize k", "vectorize.1", "loop `k` is unrolled");
        refuses("vec_add 129", "vectorize i", "vectorize.2", "129 iterations of loop `i` are no vector");
        refuses(gemm, "vectorize j", "vectorize.3", "loop `k` is inside loop `j`");
        refuses(gemm, "vectorize k", "vectorize.4", "iterations of block `C` depend on each other along loop `k`");
    }
}
