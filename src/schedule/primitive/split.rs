//! `split LOOP FACTORS.. -> LOOPS..`: one loop becomes several nested ones with the same order of iterations.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every iteration and their order. Where the product is larger than the extent, the blocks inside get a
//! predicate.
//!
//! ```text
//! for i in 0..1024         split i ? 128 -> i0 i1       for i0 in 0..8
//!   ..i..                                                 for i1 in 0..128
//!                                                           ..i0*128 + i1..
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::{Cond, For, Func, Index, LoopKind, Stmt, Var, visit};
use crate::schedule::analyze::{placement, simplify_bindings};
use crate::schedule::find::{loop_, new_loops, refuse};
use crate::schedule::{Args, limits};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "split",
    about: "Makes nested loops of one, the last innermost; `?` is inferred.",
    example: "vec_add 1000\n\
              target sm_80\n\
              split i ? 128 -> i_0 i_1",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::place("factors", ParamKind::Factors),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "every factor is positive and at most one is left to infer (`?`)",
        "the product of the factors covers the extent and stays within the largest number",
        "the loop is serial and carries no placement",
        "the extent is a constant",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let target = loop_(func, args.get_word("loop")?)?;
    let node = [(Node::Loop(target.var), "this loop")];
    let no = |number, message: String| refuse("split", number, message, func, &node);
    let name = func.var_name(target.var).to_string();
    if let Some(what) = placement(target) {
        return Err(no(3, format!("loop `{name}` {what}")).help("split before placing"));
    }
    let Some(extent) = target.extent.as_int() else {
        return Err(no(4, format!("the extent of loop `{name}` is not a constant")));
    };
    let factors = args.get_factors("factors")?;
    let Some(given) = product(factors) else {
        return Err(no(1, wrong(factors)).help(format!("split {name} ? 4")));
    };
    let inferred = if given == 0 { 0 } else { (extent + given - 1).div_euclid(given).max(1) };
    let factors: Vec<i64> = factors.iter().map(|f| f.unwrap_or(inferred)).collect();
    let total = factors.iter().try_fold(1i64, |p, f| p.checked_mul(*f)).unwrap_or(i64::MAX);
    if total < extent || total > limits::NUMBER {
        let rest: Vec<String> = factors.iter().skip(1).map(|f| f.to_string()).collect();
        return Err(no(
            2,
            format!("the factors make {} of the {extent} of loop `{name}`", crate::error::counted(total, "iteration")),
        )
        .help(format!("split {name} ? {} takes as many as are needed", rest.join(" ")).replace("  ", " ")));
    }
    let defaults: Vec<String> = (0..factors.len()).map(|n| format!("{name}_{n}")).collect();
    let names = new_loops(func, args, &defaults, &[target.var])?;
    Ok(rewrite(func.clone(), target.var, extent, &factors, names))
}

/// How a list breaks requirement 1.
fn wrong(factors: &[Option<i64>]) -> String {
    let unknown = factors.iter().filter(|f| f.is_none()).count();
    match factors.iter().flatten().find(|f| **f <= 0) {
        Some(f) => format!("the factor {f} is not positive"),
        None if unknown > 1 => format!("{unknown} factors are `?`, and only one can be inferred"),
        None => format!("the product of the factors is beyond {}", limits::NUMBER),
    }
}

/// The product of the given factors; `None` where the list breaks requirement 1.
fn product(factors: &[Option<i64>]) -> Option<i64> {
    let inferred = factors.iter().filter(|f| f.is_none()).count();
    let mut given = factors.iter().flatten();
    let product = given.try_fold(1i64, |p, f| p.checked_mul(*f).filter(|q| *f > 0 && *q <= limits::NUMBER))?;
    (inferred <= 1).then_some(product)
}

/// The program with the loop cut, outermost factor first.
pub(super) fn rewrite(mut func: Func, var: Var, extent: i64, factors: &[i64], names: Vec<String>) -> Applied {
    let vars: Vec<Var> = names.iter().map(|n| func.add_var(n.clone())).collect();
    let mut value = Index::Int(0);
    for (v, factor) in vars.iter().zip(factors) {
        value = value * *factor + *v;
    }
    let exact = factors.iter().product::<i64>() == extent;
    let within = if exact { Cond::TRUE } else { Cond::lt(value.clone(), extent) };
    let body = std::mem::take(&mut func.body);
    func.body = visit::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(l) if l.var == var => {
            let mut body = visit::subst_body(l.body, &visit::Map::from([(var, value.clone())]));
            guard(&mut body, &within);
            for (v, factor) in vars.iter().zip(factors).rev() {
                body = vec![Stmt::For(For::new(*v, *factor, LoopKind::Serial, body))];
            }
            body
        }
        other => vec![other],
    });
    simplify_bindings(&mut func);
    Applied { func, names }
}

/// Adds the condition to the outermost blocks inside.
fn guard(body: &mut [Stmt], within: &Cond) {
    for stmt in body {
        match stmt {
            Stmt::Block(b) => b.predicate = std::mem::replace(&mut b.predicate, Cond::TRUE).and(within.clone()),
            other => visit::children_mut(other).into_iter().for_each(|child| guard(child, within)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, steps};

    #[test]
    fn exact_factors_need_no_predicate() {
        let text = steps("vec_add 1024", "split i ? 8 4 -> a b c");
        assert!(text.contains("for a in 0..32\n") && text.contains("vi = a*32 + b*4 + c"), "{text}");
        assert!(!text.contains("1024 "), "{text}");
    }

    #[test]
    fn factors_that_cover_more_get_a_predicate() {
        let text = steps("vec_add 1000", "split i ? 128");
        assert!(text.contains("for i_0 in 0..8\n") && text.contains("i_0*128 + i_1 < 1000"), "{text}");
    }

    #[test]
    fn refusals() {
        for (factors, message) in [
            ("0 4", "the factor 0 is not positive"),
            ("-1", "the factor -1 is not positive"),
            ("? ?", "2 factors are `?`, and only one can be inferred"),
            ("1099511627776 1099511627776", "the product of the factors is beyond 1099511627776"),
        ] {
            refuses("vec_add 64", &format!("split i {factors}"), "split.1", message);
        }
        refuses("vec_add 64", "split i 7 9", "split.2", "the factors make 63 iterations of the 64 of loop `i`");
        refuses("vec_add 64", "unroll i; split i ? 4", "split.3", "loop `i` is unrolled");
        refuses("vec_add 64", "annotate i l2_hint 1; split i ? 4", "split.3", "loop `i` is annotated with l2_hint");
        let mut func = program("gemm 4x8x16 f32 NN");
        crate::schedule::testing::symbolic(&mut func, "k");
        refuses_on(&func, "split k ? 4", "split.4", "the extent of loop `k` is not a constant");
        refuses("vec_add 64", "split j ? 4", "step.loop", "there is no loop `j`");
        refuses("gemm 4x4x4 f32 NN", "split i ? 2 -> j i", "step.names", "the name `j` is in use");
        refuses("vec_add 64", "split i ? 2 -> a", "step.names", "2 loops are made, 1 name is given after `->`");
    }
}
