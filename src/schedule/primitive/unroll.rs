//! `unroll LOOP`: the iterations are written out one after the other; local buffers that they index stay in registers.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every iteration and their order. A placement: the text keeps its meaning.
//!
//! ```text
//! for k in 0..4            unroll k                     for k in 0..4 unrolled
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{For, Func, LoopKind, Stmt, visit};
use crate::schedule::analyze::placement;
use crate::schedule::find::{self, loop_, refuse};
use crate::schedule::{Args, limits};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "unroll",
    about: "Writes the iterations of a loop out one after the other.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              split k ? 4 -> k0 ki\n\
              unroll ki",
    signature: &[Parameter::place("loop", ParamKind::Loop)],
    requires: &[
        "the loop is serial: not bound, unrolled or vectorized, and neither pipelined nor tensorized",
        "the extent is a constant",
        "the unrolled loops around, inside and this one together make at most 65536 copies of a body",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let l = loop_(func, args.get_word("loop")?)?;
    let name = func.var_name(l.var);
    let no = |n, message: String| refuse("unroll", n, message, func, &[(Node::Loop(l.var), "this loop")]);
    if l.kind != LoopKind::Serial || l.pipeline.is_some() || l.tensorize.is_some() {
        return Err(no(1, format!("loop `{name}` {}", placement(l).unwrap_or_default())));
    }
    let Some(extent) = l.extent.as_int() else {
        return Err(no(2, format!("the extent of loop `{name}` is not a constant")));
    };
    let around = find::around_loop(&func.body, l.var)?;
    let outside = around.iter().map(|l| copies_of(l)).fold(1, i64::saturating_mul);
    let copies = outside.saturating_mul(extent).saturating_mul(copies_in(&l.body));
    if copies > limits::UNROLL {
        let message = format!("{copies} copies of the body of loop `{name}` are more than {}", limits::UNROLL);
        return Err(no(3, message).help("split the loop and unroll the inner part"));
    }
    let (var, mut out) = (l.var, func.clone());
    visit::change_loop(&mut out.body, var, &mut |l| l.kind = LoopKind::Unrolled);
    Ok(out.into())
}

fn copies_of(l: &For) -> i64 {
    if l.kind == LoopKind::Unrolled { l.extent.as_int().unwrap_or(i64::MAX) } else { 1 }
}

/// The most copies that unrolled loops inside make of one body.
fn copies_in(body: &[Stmt]) -> i64 {
    let inside = body.iter().map(|stmt| {
        let own = if let Stmt::For(l) = stmt { copies_of(l) } else { 1 };
        visit::children(stmt).into_iter().map(|child| copies_in(child)).max().unwrap_or(1).saturating_mul(own)
    });
    inside.max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, steps, symbolic};

    #[test]
    fn the_loop_is_marked() {
        let text = steps("gemm 4x8x16 f32 NN", "unroll k");
        assert!(text.contains("for k in 0..16 unrolled\n"), "{text}");
    }

    #[test]
    fn refusals() {
        refuses("vec_add 64", "unroll i; unroll i", "unroll.1", "loop `i` is unrolled");
        let mut func = program("gemm 4x4x4 f32 NN");
        symbolic(&mut func, "k");
        refuses_on(&func, "unroll k", "unroll.2", "the extent of loop `k` is not a constant");
        let many = "unroll i; unroll k";
        refuses("gemm 512x8x512 f32 NN", many, "unroll.3", "262144 copies of the body of loop `k` are more than 65536");
    }
}
