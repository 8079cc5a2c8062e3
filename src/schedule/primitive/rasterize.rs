//! `rasterize I J group=G -> LOOP`: one loop walks I and J in groups of G rows of I, so that blocks that run together
//! read the same tiles; inside a group J is outer and I inner. I and J stay the variables of the body.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every iteration; their order changes.
//!
//! ```text
//! for i in 0..16           rasterize i j group=8 -> t   for (i, j) in 16 x 16 grouped 8 as t
//!   for j in 0..16                                        ..
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{For, Func, Index, LoopKind, Raster, Stmt, visit};
use crate::schedule::analyze::{BlockKind, blocks_below, kind, placement, sums_over};
use crate::schedule::find::{loops, new_loops, refuse};
use crate::schedule::{Args, limits};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "rasterize",
    about: "Makes two loops one that iterates in raster groups of rows, so that adjacent blocks read the same tiles.",
    example: "gemm 1024x1024x64 f32 NN\n\
              target sm_80\n\
              split i ? 64 -> i0 i1\n\
              split j ? 64 -> j0 j1\n\
              reorder i0 j0 i1 j1\n\
              rasterize i0 j0 group=8 -> tile",
    signature: &[
        Parameter::place("loops", ParamKind::Loops),
        Parameter::setting("group", ParamKind::Int),
        Parameter::made("walk", ParamKind::Loop),
    ],
    requires: &[
        "two loops are named, and the second is the only statement of the first",
        "both are serial and carry no placement",
        "both extents are constants",
        "the group has at least one row",
        "no block below sums over either, and each is a function of its iterators or a commutative reduction",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let named = loops(func, args.get_words("loops")?)?;
    let group = args.get_int("group")?;
    let [outer, inner] = named.as_slice() else {
        let these: Vec<_> = named.iter().map(|l| (Node::Loop(l.var), "this loop")).collect();
        return Err(refuse("rasterize", 1, format!("{} loops are named", named.len()), func, &these)
            .help("name two loops: the rows, and directly inside them the columns"));
    };
    check(func, outer, inner, group)?;
    let (Some(rows), Some(columns)) = (outer.extent.as_int(), inner.extent.as_int()) else {
        return Err(refuse(
            "rasterize",
            3,
            "an extent is not a constant",
            func,
            &[(Node::Loop(outer.var), "this nest")],
        ));
    };
    let default = format!("{}_{}_walk", func.var_name(outer.var), func.var_name(inner.var));
    let names = new_loops(func, args, &[default], &[])?;
    let mut out = func.clone();
    let walk = out.add_var(names.first().cloned().unwrap_or_default());
    let raster = Raster {
        outer: outer.var,
        outer_extent: Index::Int(rows),
        inner: inner.var,
        inner_extent: Index::Int(columns),
        group,
    };
    let body = std::mem::take(&mut out.body);
    out.body = visit::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(l) if l.var == outer.var => {
            let mut made = For::new(walk, rows.saturating_mul(columns), LoopKind::Serial, inner.body.clone());
            made.raster = Some(raster.clone());
            vec![Stmt::For(made)]
        }
        other => vec![other],
    });
    Ok(Applied { func: out, names })
}

fn check(func: &Func, outer: &For, inner: &For, group: i64) -> Result<()> {
    let no = |n, message: String, l: &For| refuse("rasterize", n, message, func, &[(Node::Loop(l.var), "this loop")]);
    let name = |l: &For| func.var_name(l.var).to_string();
    if !matches!(outer.body.as_slice(), [Stmt::For(l)] if l.var == inner.var) {
        let message = format!("loop `{}` is not the only statement of loop `{}`", name(inner), name(outer));
        return Err(no(1, message, inner)
            .help(format!("reorder {} {} first, so that one is directly inside the other", name(outer), name(inner)))
            .help("and compute_at the blocks between them further in, or outside of both"));
    }
    for l in [outer, inner] {
        if let Some(what) = placement(l) {
            return Err(no(2, format!("loop `{}` {what}", name(l)), l)
                .help("rasterize first, and place the resulting loop: rasterize I J group=G -> W; bind W blockIdx.x"));
        }
        if l.extent.as_int().is_none_or(|e| e > limits::NUMBER) {
            return Err(no(3, format!("the extent of loop `{}` is not a constant", name(l)), l)
                .help("rasterize loops whose extents no other loop changes"));
        }
    }
    if group < 1 {
        return Err(no(4, format!("a group of {group} rows"), outer).help("group=8, or any other number from 1"));
    }
    let other = blocks_below(outer).into_iter().map(|(_, b)| b).find(|b| kind(func, b) == BlockKind::Other);
    if let Some(block) = sums_over(outer).or(sums_over(inner)).or(other) {
        let message = format!(
            "block `{}` depends on the order of `{}` and `{}`",
            func.block_name(block.name),
            name(outer),
            name(inner)
        );
        return Err(refuse("rasterize", 5, message, func, &[(Node::Block(block.name), "this block")]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, steps, symbolic};

    const GEMM: &str = "gemm 16x8x4 f32 NN";

    #[test]
    fn a_pair_is_walked() {
        let text = steps(GEMM, "rasterize i j group=4 -> t; bind t blockIdx.x");
        assert!(text.contains("for (i, j) in 16 x 8 grouped 4 as t @blockIdx.x\n"), "{text}");
    }

    #[test]
    fn refusals() {
        refuses(GEMM, "rasterize i j k group=4", "rasterize.1", "3 loops are named");
        refuses(GEMM, "rasterize j i group=4", "rasterize.1", "loop `i` is not the only statement of loop `j`");
        refuses(GEMM, "bind j threadIdx.x; rasterize i j group=4", "rasterize.2", "loop `j` is bound to threadIdx.x");
        let mut func = program(GEMM);
        symbolic(&mut func, "j");
        refuses_on(&func, "rasterize i j group=4", "rasterize.3", "the extent of loop `j` is not a constant");
        refuses(GEMM, "rasterize i j group=0", "rasterize.4", "a group of 0 rows");
        refuses(GEMM, "rasterize j k group=2", "rasterize.5", "block `C` depends on the order of `j` and `k`");
        refuses(GEMM, "rasterize i j group=4 -> t; split i 4 4", "step.loop", "`i` is iterated by loop `t`");
    }
}
