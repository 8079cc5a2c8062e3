//! `fuse LOOPS.. -> LOOP`: nested loops become one with the same order of iterations.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every iteration and their order.
//!
//! ```text
//! for i in 0..4            fuse i j -> f                for f in 0..32
//!   for j in 0..8                                         ..f // 8, f % 8..
//!     ..i, j..
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{For, Func, Index, LoopKind, Stmt, Var, visit};
use crate::schedule::analyze::{placement, simplify_bindings};
use crate::schedule::find::{loops, new_loops, refuse};
use crate::schedule::{Args, limits};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "fuse",
    about: "Makes one loop of nested ones.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              fuse i j -> f",
    signature: &[Parameter::place("loops", ParamKind::Loops), Parameter::made("fused", ParamKind::Loop)],
    requires: &[
        "at least two loops are named",
        "each loop is directly inside the one named before it and is the only statement there",
        "every loop is serial and carries no placement",
        "every extent is a constant, so that none depends on an outer loop",
        "the product of the extents stays within the largest number",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let chain = loops(func, args.get_words("loops")?)?;
    let name = |l: &For| func.var_name(l.var).to_string();
    let no = |n, message: String, l: &For| refuse("fuse", n, message, func, &[(Node::Loop(l.var), "this loop")]);
    if chain.len() < 2 {
        let alone: Vec<_> = chain.iter().map(|l| (Node::Loop(l.var), "this loop alone")).collect();
        return Err(refuse("fuse", 1, "only one loop is named", func, &alone).help("name the loop inside it too"));
    }
    for pair in chain.windows(2) {
        if !matches!(pair[0].body.as_slice(), [Stmt::For(inner)] if inner.var == pair[1].var) {
            let message = format!("loop `{}` is not the only statement of loop `{}`", name(pair[1]), name(pair[0]));
            return Err(no(2, message, pair[1]).help("reorder them to be directly nested, outermost first"));
        }
    }
    let mut total = 1i64;
    for l in &chain {
        if let Some(what) = placement(l) {
            return Err(no(3, format!("loop `{}` {what}", name(l)), l));
        }
        let Some(extent) = l.extent.as_int() else {
            return Err(no(4, format!("the extent of loop `{}` is not a constant", name(l)), l));
        };
        total = total.saturating_mul(extent);
    }
    if total > limits::NUMBER {
        return Err(no(5, format!("{total} iterations are more than {}", limits::NUMBER), chain[0]));
    }
    let default = chain.iter().map(|l| name(l)).chain(["fused".to_string()]).collect::<Vec<_>>().join("_");
    let freed: Vec<Var> = chain.iter().map(|l| l.var).collect();
    let names = new_loops(func, args, &[default], &freed)?;
    let extents: Vec<(Var, i64)> = chain.iter().filter_map(|l| Some((l.var, l.extent.as_int()?))).collect();
    Ok(rewrite(func.clone(), &extents, total, names))
}

fn rewrite(mut func: Func, chain: &[(Var, i64)], total: i64, names: Vec<String>) -> Applied {
    let fused = func.add_var(names.first().cloned().unwrap_or_default());
    let mut map = visit::Map::new();
    let mut below = 1i64;
    for (n, (var, extent)) in chain.iter().enumerate().rev() {
        let quotient = Index::Var(fused).floordiv(below);
        // The outermost digit needs no remainder: it cannot overflow.
        map.insert(*var, if n == 0 { quotient } else { quotient.floormod(*extent) });
        below *= extent.max(&1);
    }
    let outermost = chain[0].0;
    let depth = chain.len();
    let body = std::mem::take(&mut func.body);
    func.body = visit::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(l) if l.var == outermost => {
            let body = visit::subst_body(inside(l, depth), &map);
            vec![Stmt::For(For::new(fused, total, LoopKind::Serial, body))]
        }
        other => vec![other],
    });
    simplify_bindings(&mut func);
    Applied { func, names }
}

/// The body of the innermost of `depth` loops that have one statement each.
fn inside(l: For, depth: usize) -> Vec<Stmt> {
    let mut body = l.body;
    for _ in 1..depth {
        body = body.into_iter().flat_map(|s| if let Stmt::For(l) = s { l.body } else { vec![s] }).collect();
    }
    body
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, steps, symbolic};

    #[test]
    fn rows_and_columns_become_one_loop() {
        let text = steps("vec_add 1024", "split i ? 4 8 -> a b c; fuse a b c -> f");
        assert!(text.contains("for f in 0..1024\n") && text.contains("C(vi = f)"), "{text}");
    }

    #[test]
    fn refusals() {
        refuses("vec_add 64", "fuse i", "fuse.1", "only one loop is named");
        refuses("gemm 4x4x4 f32 NN", "fuse j i", "fuse.2", "loop `i` is not the only statement of loop `j`");
        refuses("gemm 4x4x4 f32 NN", "unroll k; fuse j k", "fuse.3", "loop `k` is unrolled");
        let mut func = program("gemm 4x4x4 f32 NN");
        symbolic(&mut func, "k");
        refuses_on(&func, "fuse j k", "fuse.4", "the extent of loop `k` is not a constant");
        let large = "gemm 32x262144x262144 f32 NN";
        refuses(large, "fuse i j k", "fuse.5", "2199023255552 iterations are more than 1099511627776");
    }
}
