//! `tensorize LOOP ROW [m=LOOP n=LOOP k=LOOP]`: the nest from LOOP on is one instruction.
//!
//! Without names the loops play the row's dimensions in their order; named otherwise, the operands of a product swap.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. A placement: the nest stays as what the instruction means.
//!
//! ```text
//! for im in 0..64          tensorize im                 for im in 0..64 tensorize wgmma.. m=im n=jn k=ki
//!   for jn in 0..256         wgmma.m64n256k16...          ..
//!     for ki in 0..16
//!       block mma(..)
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::intrin::{self, Mismatch, Row};
use crate::ir::print::Node;
use crate::ir::simplify::affine;
use crate::ir::{For, Func, Stmt, Tensorize, Var, visit};
use crate::schedule::Args;
use crate::schedule::find::{self, loop_, refuse};

/// The row of this primitive.
pub static PRIMITIVE: Primitive = Primitive {
    name: "tensorize",
    about: "Makes a nest one instruction; its loops are matched to the row's dimensions.",
    example: "gemm 64x256x16 f16>f32>f32 NT\n\
              target sm_90a\n\
              tensorize i wgmma.m64n256k16.f32.f16.f16",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::place("row", ParamKind::Row),
        Parameter::option("m", ParamKind::Loop),
        Parameter::option("n", ParamKind::Loop),
        Parameter::option("k", ParamKind::Loop),
    ],
    requires: &[
        "the row exists, and each of its dimensions is matched to one loop",
        "LOOP is the outermost of these loops, every loop has its dimension's extent and is serial, and one block is \
         inside",
        "the block computes what the row means, unpredicated inside the nest",
        "every operand has the row's type and moves by one along one dimension of its buffer for each of its dimensions",
        "an init is the row's own, and the row can initialise its accumulator",
        "LOOP is not tensorized yet, and is in no tensorized nest",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let l = loop_(func, args.get_word("loop")?)?;
    let no = |n, message: String| refuse("tensorize", n, message, func, &[(Node::Loop(l.var), "this nest")]);
    let listed = "`warploom explain --instructions` lists all instructions, with --target those of a chip";
    let row = row(args.get_word("row")?).map_err(|message| no(1, message).help(listed))?;
    let around = find::around_loop(&func.body, l.var)?;
    let inside = visit::loops(&l.body);
    if let Some(other) = around.into_iter().chain([l]).chain(inside).find(|o| o.tensorize.is_some()) {
        let message = format!("loop `{}` is already tensorized", func.var_name(other.var));
        return Err(no(6, message).help("one instruction is a whole nest: remove one of the steps"));
    }
    let dims = dims(func, l, row, args)?;
    let (var, mut out) = (l.var, func.clone());
    visit::change_loop(&mut out.body, var, &mut |l| {
        l.tensorize = Some(Tensorize { row: row.name.clone(), dims: dims.clone() });
    });
    Ok(out.into())
}

fn row(name: &str) -> Result<&'static Row, String> {
    intrin::find(name).ok_or_else(|| format!("there is no instruction `{name}`{}", intrin::suggestion(name)))
}

/// Which loop plays which dimension: as named, else the loops from LOOP inwards in the row's order.
fn dims(func: &Func, l: &For, row: &Row, args: &Args) -> Result<Vec<(String, Var)>> {
    let no = |message: String| refuse("tensorize", 1, message, func, &[(Node::Loop(l.var), "this nest")]);
    let named: Vec<&str> = ["m", "n", "k"].into_iter().filter(|d| args.find_word(d).is_some()).collect();
    let wanted: Vec<&str> = row.dims.iter().map(|d| d.0).collect();
    if named.is_empty() {
        let nest = chain(l);
        if nest.len() != wanted.len() {
            let message = format!("{} loops are given where {} has {} dimensions", nest.len(), row.name, wanted.len());
            return Err(no(message));
        }
        return Ok(wanted.iter().map(|d| d.to_string()).zip(nest).collect());
    }
    if named.len() != wanted.len() || named.iter().any(|d| !wanted.contains(d)) {
        let example: Vec<String> = wanted.iter().map(|d| format!("{d}=LOOP")).collect();
        return Err(no(format!("the dimensions of {} are {}", row.name, wanted.join(", ")))
            .help(format!("name a loop for each: {}", example.join(" "))));
    }
    let mut out: Vec<(String, Var)> = Vec::new();
    for dim in wanted {
        let var = loop_(func, args.get_word(dim)?)?.var;
        if out.iter().any(|(_, v)| *v == var) {
            return Err(no(format!("loop `{}` is matched to two dimensions", func.var_name(var)))
                .help("split it, and name a part for each dimension"));
        }
        out.push((dim.to_string(), var));
    }
    Ok(out)
}

fn chain(l: &For) -> Vec<Var> {
    let mut out = vec![l.var];
    let mut current = l;
    while let [Stmt::For(inner)] = current.body.as_slice() {
        out.push(inner.var);
        current = inner;
    }
    out
}

/// What a tensorized loop promises; asked after every step.
pub fn check(func: &Func, l: &For, placed: &Tensorize) -> Result<()> {
    let no = |n, message: String| refuse("tensorize", n, message, func, &[(Node::Loop(l.var), "this nest")]);
    let row = row(&placed.row).map_err(|message| no(1, message))?;
    match intrin::matches(func, l, row, &placed.dims)? {
        Ok(()) => Ok(()),
        Err(Mismatch::Loops(message)) => Err(no(2, message)
            .help("split to the extents of the instruction, and reorder so that nothing else is in its nest")),
        Err(Mismatch::Computation(message)) => {
            let computes = row.meaning.lines().last().unwrap_or_default();
            Err(no(3, message)
                .help(format!("the instruction computes {computes}"))
                .help("`warploom explain --instructions PREFIX` lists instructions with the types of their operands"))
        }
        Err(Mismatch::Predicated(message, var)) => Err(no(3, message).help(padded(func, l, var))),
        Err(Mismatch::Operand(message)) => Err(no(4, message)),
        Err(Mismatch::Init(message)) => Err(no(5, message).help("decompose_reduction takes the init out")),
    }
}

/// What makes tiles of one dimension whole: the iterator grows to a multiple of what its outermost loop steps by.
fn padded(func: &Func, l: &For, var: Var) -> String {
    let blocks = visit::blocks(&l.body);
    let found = blocks.iter().find_map(|b| Some((b, b.iters.iter().find(|i| i.binding.mentions(var))?)));
    let Some((block, iter)) = found else {
        return "pad the block's domain to whole tiles before it is split".to_string();
    };
    let steps = affine(&iter.binding).terms.iter().map(|(_, step)| step.abs()).max();
    let (block, iter, multiple) = (func.block_name(block.name), func.var_name(iter.var), steps.unwrap_or(1));
    format!(
        "`pad {block} L={multiple}`, L being the loop of `{iter}`, before L is split: tiles are whole then, with zeros \
         beyond the end"
    )
}

#[cfg(test)]
mod tests {
    use crate::ir::{Expr, Stmt, visit};
    use crate::schedule::testing::{program, refuses, refuses_on, steps};

    const WGMMA: &str = "wgmma.m64n256k16.f32.f16.f16";
    const GEMM: &str = "gemm 64x256x16 f16>f32>f16 NT";

    #[test]
    fn loops_play_dimensions() {
        let text = steps(GEMM, &format!("tensorize i {WGMMA}"));
        assert!(text.contains(WGMMA) && text.contains("m=i n=j k=k"), "{text}");
        steps("gemm 64x256x16 f16>f32>f16 NN", &format!("tensorize i {WGMMA}"));
        // The product is the same with A and B exchanged.
        steps("gemm 256x64x16 f16>f32>f16 NT", &format!("tensorize i {WGMMA} m=j n=i k=k"));
    }

    #[test]
    fn refusals() {
        refuses(GEMM, "tensorize i wgmma.m64n256k16.f32.f16.f61", "tensorize.1", "there is no instruction");
        refuses(GEMM, &format!("tensorize j {WGMMA}"), "tensorize.1", "2 loops are given where");
        refuses(GEMM, &format!("tensorize i {WGMMA} m=i n=j"), "tensorize.1", "the dimensions of");
        refuses(
            GEMM,
            &format!("tensorize i {WGMMA} m=i n=j k=j"),
            "tensorize.1",
            "loop `j` is matched to two dimensions",
        );
        let large = "gemm 128x256x16 f16>f32>f16 NT";
        refuses(large, &format!("tensorize i {WGMMA}"), "tensorize.2", "loop `i` does not have the 64 iterations");
        refuses(GEMM, &format!("unroll k; tensorize i {WGMMA}"), "tensorize.2", "loop `k` is not serial");
        let message = "loop `out_i` is matched to no dimension";
        refuses(GEMM, &format!("tensorize out_i {WGMMA} m=i n=j k=k"), "tensorize.2", message);
        let square = "gemm 16x16x16 f16>f32>f16 NT";
        refuses(square, "tensorize out_i stmatrix.m16n16.f16", "tensorize.3", "block `out` does not compute");
        let swapped = format!("split i 4 16; split k 1 16; tensorize i_0 {WGMMA}");
        refuses(GEMM, &swapped, "tensorize.1", "5 loops are given where");
        refuses("gemm 64x256x16 bf16>f32>bf16 NT", &format!("tensorize i {WGMMA}"), "tensorize.4", "operand A is f16");
        let mut func = program(GEMM);
        let id = func.find_block("mma").unwrap().name;
        visit::change_block(&mut func.body, id, &mut |b| {
            for stmt in b.init.iter_mut().flatten() {
                if let Stmt::Store(s) = stmt {
                    s.value = Expr::constant(crate::DType::F32, 1.0);
                }
            }
        });
        let message = "the init of block `mma` is not that of wgmma";
        refuses_on(&func, &format!("tensorize i {WGMMA}"), "tensorize.5", message);
        let twice = format!("tensorize i {WGMMA}; tensorize i {WGMMA}");
        refuses(GEMM, &twice, "tensorize.6", "loop `i` is already tensorized");
        refuses(
            "program p
input A f16[64, 16]; input B f16[256, 16]
D: output D[m 64, n 256] f32 = max(k 16) f32(A[m, k]) * f32(B[n, k])",
            &format!("tensorize m {WGMMA}"),
            "tensorize.3",
            "block `D`",
        );
    }

    #[test]
    fn later_steps_cannot_break_the_nest() {
        refuses(
            GEMM,
            &format!("tensorize i {WGMMA}; split j ? 16"),
            "tensorize.2",
            "loop `j_0` is matched to no dimension",
        );
        refuses(GEMM, &format!("tensorize i {WGMMA}; unroll k"), "tensorize.2", "loop `k` is not serial");
    }
}
