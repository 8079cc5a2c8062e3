//! `bind LOOP AXIS [persistent|pingpong]`: the iterations run on the units of an axis.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every iteration. A placement: the text keeps its meaning.
//!
//! ```text
//! for i in 0..8            bind i blockIdx.x            for i in 0..8 @blockIdx.x
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::{Code, Error, Result};
use crate::ir::cross_thread;
use crate::ir::print::Node;
use crate::ir::simplify::Env;
use crate::ir::{Axis, BindMode, For, Func, IterKind, LoopKind, Scope, visit};
use crate::schedule::Args;
use crate::schedule::analyze::{BlockKind, bindings, blocks_below, distinct, kind, mentions, placement, sums_over};
use crate::schedule::find::{self, loop_, refuse};

const AXES: &[&str] = &[
    "blockIdx.x",
    "blockIdx.y",
    "blockIdx.z",
    "cluster",
    "warpgroup",
    "warp",
    "threadIdx.x",
    "threadIdx.y",
    "threadIdx.z",
];

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "bind",
    about: "Runs the iterations of a loop on the units of an axis.",
    example: "vec_add 1024\n\
              target sm_80\n\
              split i ? 128 -> i_0 i_1\n\
              bind i_1 threadIdx.x",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::place("axis", ParamKind::Choice(AXES)),
        Parameter::optional("how", ParamKind::Choice(&["persistent", "pingpong"])),
    ],
    requires: &[
        "the loop is serial: not bound, unrolled or vectorized, and neither pipelined nor tensorized",
        "the extent is a positive constant",
        "no block below reduces over the loop, unless the axis is a threadIdx or the cluster and the block reduces by \
         +, *, min, max or a reducer of tuples from its init, into outputs of one scope",
        "every loop of the nest that is bound to the axis has the same extent; loops around the staged buffers of a \
         role alone count the role's own threads",
        "a loop around or inside is bound to the same axis only if the axis is within a block and no block inside both \
         loops uses both",
        "iterations that share a buffer do not sum into one element of it",
        "`persistent` goes with blockIdx.x, `pingpong` with warpgroup",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let l = loop_(func, args.get_word("loop")?)?;
    let word = args.get_word("axis")?;
    let axis = Axis::parse(word)
        .ok_or_else(|| Error::input(Code::StepWord, format!("`{word}` is not an axis")).naming(word))?;
    let mode = match args.find_word("how") {
        None => BindMode::Plain,
        Some("persistent") => BindMode::Persistent,
        Some(_) => BindMode::PingPong,
    };
    check_loop(func, l, axis)?;
    check_axis(func, l, axis)?;
    check_sums(func, l, axis)?;
    let own = match mode {
        BindMode::Plain => None,
        BindMode::Persistent => Some((Axis::BlockX, "persistent")),
        BindMode::PingPong => Some((Axis::Warpgroup, "pingpong")),
    };
    if let Some((only, how)) = own.filter(|(only, _)| *only != axis) {
        let (name, only) = (func.var_name(l.var), only.name());
        let message = format!("`{how}` does not go with {word}");
        return Err(refuse("bind", 7, message, func, &[(Node::Loop(l.var), "this loop")])
            .help(format!("bind {name} {only} {how}, or bind {name} {word} without `{how}`")));
    }
    let (var, mut out) = (l.var, func.clone());
    visit::change_loop(&mut out.body, var, &mut |l| l.kind = LoopKind::Bound { axis, mode });
    cross_thread::find(&out).map_err(|r| across(func, &r))?;
    Ok(out.into())
}

/// A reduction that the threads cannot do together.
fn across(func: &Func, r: &cross_thread::Refused) -> Error {
    let (block, name) = (func.block_name(r.block), func.var_name(r.over));
    let message = format!("block `{block}` cannot reduce over loop `{name}` across threads: {}", r.why);
    let nodes = [(Node::Loop(r.over), "bound to threads"), (Node::Block(r.block), "reduces over it")];
    refuse("bind", 3, message, func, &nodes).help(r.help.clone())
}

fn check_loop(func: &Func, l: &For, axis: Axis) -> Result<()> {
    let name = func.var_name(l.var);
    let no = |n, message: String| refuse("bind", n, message, func, &[(Node::Loop(l.var), "this loop")]);
    if l.kind != LoopKind::Serial || l.pipeline.is_some() || l.tensorize.is_some() {
        return Err(no(1, format!("loop `{name}` {}", placement(l).unwrap_or_default())));
    }
    match l.extent.as_int() {
        Some(extent) if extent > 0 => {}
        _ => return Err(no(2, format!("the extent of loop `{name}` is not a positive constant"))),
    }
    if let Some(block) = sums_over(l).filter(|_| !cross_thread::AXES.contains(&axis)) {
        let message = format!("block `{}` sums over loop `{name}`", func.block_name(block.name));
        let nodes = [(Node::Loop(l.var), "its iterations must follow each other"), (Node::Block(block.name), "sums")];
        return Err(refuse("bind", 3, message, func, &nodes).help(format!(
            "`rfactor {} {name}` makes it a spatial loop of a partial sum",
            func.block_name(block.name)
        )));
    }
    Ok(())
}

fn check_axis(func: &Func, l: &For, axis: Axis) -> Result<()> {
    let name = func.var_name(l.var);
    let nest = func.body.iter().find(|s| visit::loops(std::slice::from_ref(s)).iter().any(|x| x.var == l.var));
    let all = nest.map(|s| visit::loops(std::slice::from_ref(s))).unwrap_or_default();
    for other in all.into_iter().filter(|o| o.axis() == Some(axis)) {
        let nodes = [(Node::Loop(l.var), "this loop"), (Node::Loop(other.var), "bound to the same axis")];
        let other_name = func.var_name(other.var);
        let apart = !axis.is_block_level() && visit::role_of(&other.body) != visit::role_of(&l.body);
        if other.extent != l.extent && !apart {
            let message = format!("loop `{name}` and loop `{other_name}` on {} have different extents", axis.name());
            return Err(refuse("bind", 4, message, func, &nodes).help(format!("split `{name}` to match")));
        }
        let nested = if contains(other, l) { Some((other, l)) } else { contains(l, other).then_some((l, other)) };
        let Some((outer, inner)) = nested else { continue };
        if axis.is_block_level() || uses_both(outer, inner) {
            let message = format!("loop `{name}` and loop `{other_name}` are nested, both on {}", axis.name());
            return Err(
                refuse("bind", 5, message, func, &nodes).help(format!("fuse them, or bind `{name}` to another axis"))
            );
        }
    }
    Ok(())
}

fn contains(outer: &For, inner: &For) -> bool {
    visit::loops(&outer.body).iter().any(|l| l.var == inner.var)
}

fn uses_both(outer: &For, inner: &For) -> bool {
    blocks_below(inner).iter().any(|(_, b)| {
        let uses = |l: &For| {
            b.iters.iter().any(|i| mentions(&i.binding, l)) || l.defines().iter().any(|d| b.predicate.mentions(d.0))
        };
        uses(outer) && uses(inner)
    })
}

fn check_sums(func: &Func, l: &For, axis: Axis) -> Result<()> {
    for (path, block) in blocks_below(l) {
        let uses = block.iters.iter().any(|i| mentions(&i.binding, l));
        if kind(func, block) != BlockKind::Reduction {
            continue;
        }
        let shared = visit::writes(&block.body).iter().any(|b| match func.buffer(*b).scope {
            Scope::Global => true,
            // A shared stage that does not mention the loop is cooperative: filled once for all iterations.
            Scope::Shared => !axis.is_block_level() && uses,
            Scope::Cluster => (!axis.is_block_level() || axis == Axis::Cluster) && uses,
            Scope::Fragment | Scope::Local => false,
        });
        let env = Env::with_loops(find::around(&func.body, block.name)?);
        let reduces = |p: &&&For| block.iters.iter().any(|i| i.kind == IterKind::Reduce && mentions(&i.binding, p));
        let around: Vec<&For> = path.iter().filter(|p| !reduces(p)).copied().collect();
        if shared && !distinct(&around, &bindings(block, IterKind::Spatial), &block.predicate, &env) {
            let name = func.block_name(block.name);
            let message =
                format!("two iterations of loop `{}` may sum into one element of `{name}`", func.var_name(l.var));
            return Err(refuse("bind", 6, message, func, &[(Node::Block(block.name), "sums here")]));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, steps, symbolic};

    #[test]
    fn blocks_and_threads() {
        let text = steps("vec_add 1024", "split i ? 128 -> i0 i1; bind i0 blockIdx.x persistent; bind i1 threadIdx.x");
        assert!(text.contains("for i0 in 0..8 @blockIdx.x persistent\n"), "{text}");
        assert!(text.contains("for i1 in 0..128 @threadIdx.x\n"), "{text}");
    }

    #[test]
    fn refusals() {
        let gemm = "gemm 8x8x16 f32 NN";
        refuses(gemm, "unroll i; bind i threadIdx.x", "bind.1", "loop `i` is unrolled");
        refuses(gemm, "bind k blockIdx.x", "bind.3", "block `C` sums over loop `k`");
        let decomposed = "block `C` cannot reduce over loop `k` across threads: it has no init";
        refuses(gemm, "decompose_reduction C k; bind k threadIdx.x", "bind.3", decomposed);
        let warps = "block `C` cannot reduce over loop `k` across threads: loop `i` around it is bound to warp";
        refuses(gemm, "bind i warp; bind k threadIdx.x", "bind.3", &warps.replace("`i`", "i"));
        let mut func = program(gemm);
        symbolic(&mut func, "j");
        refuses_on(&func, "bind j threadIdx.x", "bind.2", "the extent of loop `j` is not a positive constant");
        let mut func = program(gemm);
        crate::schedule::testing::rebind(&mut func, "C", "vi", |i| i.floordiv(2));
        let message = "two iterations of loop `i` may sum into one element of `C`";
        refuses_on(&func, "bind i threadIdx.x", "bind.6", message);
        let two = "split i 2 4; bind i_0 threadIdx.x; bind j threadIdx.x";
        refuses(gemm, two, "bind.4", "loop `j` and loop `i_0` on threadIdx.x have different extents");
        let nested = "loop `j` and loop `i` are nested, both on threadIdx.x";
        refuses(gemm, "bind i threadIdx.x; bind j threadIdx.x", "bind.5", nested);
        refuses(gemm, "bind i warp persistent", "bind.7", "`persistent` does not go with warp");
        refuses(gemm, "bind i blockIdx.x pingpong", "bind.7", "`pingpong` does not go with blockIdx.x");
    }
}
