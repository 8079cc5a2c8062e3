//! `transform_block_layout BLOCK [i, j] -> [..] -> LOOPS`: BLOCK iterates over the mapped index. The loops that the map
//! names, each of which runs one iterator of BLOCK, are replaced by one for each output, where the outermost of them
//! stands; their iterators by one for each output, too. Buffers stay as they are.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: every iteration, and the order of those that a sum combines.
//!
//! ```text
//! for i in 0..24                transform_block_layout X [i] -> [i % 8, i // 8]     for X_0 in 0..8
//!   X(vi = i): X[vi] = A[vi]                                                          for X_1 in 0..3
//!                                                              X(v0 = X_0, v1 = X_1): X[v1*8 + v0] = A[v1*8 + v0]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive, transform_layout};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::simplify::{self, Env};
use crate::ir::{Block, Expr, For, Func, Index, Iter, IterKind, LoopKind, Stmt, Var, visit};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, IndexMap, analyze, digits, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "transform_block_layout",
    about: "Lets a block iterate over the outputs of an index map in place of its loops.",
    example: "vec_add 24\n\
              target sm_80\n\
              transform_block_layout C [i] -> [i % 8, i // 8]",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("map", ParamKind::Map),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "each loop that the map names is serial, carries no placement, has a constant extent, and runs one whole spatial \
         iterator of BLOCK by itself; BLOCK has no predicate",
        "from the outermost of them inwards the loops hold BLOCK alone",
        "the map is one-to-one from the loops' box onto a box that starts at 0, each output a sum of digits of the loops \
         (`i // 8`, `i % 8`)",
        "BLOCK is in no tensorized nest",
    ],
    apply,
};

/// What replaces what.
struct Plan {
    /// The loops that go, in the map's order, and the iterators that they run.
    gone: Vec<(Var, Var)>,
    outermost: Var,
    /// Extents of the new loops.
    shape: Vec<i64>,
}

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("transform_block_layout", func);
    let block = find::block(func, args.get_word("block")?)?;
    let map = args.get_map("map")?;
    let plan = check(refusal, func, block, map)?;
    let freed: Vec<Var> = plan.gone.iter().map(|(l, _)| *l).collect();
    let defaults: Vec<String> = (0..plan.shape.len()).map(|n| format!("{}_{n}", func.block_name(block.name))).collect();
    let names = find::new_loops(func, args, &defaults, &freed)?;
    let Some(out) = rewrite(func.clone(), block, map, &plan, &names) else { return Err(refusal.lost("the inverse")) };
    Ok(Applied { func: out, names })
}

fn check(refusal: Refusal, func: &Func, block: &Block, map: &IndexMap) -> Result<Plan> {
    let name = func.block_name(block.name);
    let this = (Node::Block(block.name), "this block");
    let loops = find::loops(func, &map.inputs)?;
    let around = find::around(&func.body, block.name)?;
    if let Some(l) = around.iter().find(|l| l.tensorize.is_some()) {
        let message = format!("{name} is in the tensorized nest {}", func.var_name(l.var));
        return Err(refusal.broken(4, message, &[this]).help("transform_block_layout before tensorize"));
    }
    if !block.predicate.is_true() {
        let message = format!("{name} has a predicate");
        return Err(refusal.broken(1, message, &[this]).help("transform_block_layout before splitting"));
    }
    let mut gone = Vec::new();
    for l in &loops {
        let no = |number, what: &str| {
            let message = format!("loop `{}` {what}", func.var_name(l.var));
            refusal.broken(number, message, &[this, (Node::Loop(l.var), "this loop")])
        };
        if let Some(what) = analyze::placement(l) {
            return Err(no(1, &what).help("transform_block_layout before placing"));
        }
        let Some(it) = whole_iterator(block, l) else {
            let what = format!("does not run one whole spatial iterator of {name} by itself");
            return Err(no(1, &what).help("transform_block_layout before splitting, fusing and moving"));
        };
        if around.iter().skip_while(|a| a.var != l.var).any(|a| a.body.len() != 1) {
            return Err(no(2, &format!("does not hold {name} alone")));
        }
        gone.push((l.var, it.var));
    }
    let outermost = around.iter().find(|a| gone.iter().any(|(l, _)| *l == a.var)).map(|l| l.var);
    let Some(outermost) = outermost else { return Err(refusal.lost("the loops")) };
    let extents: Vec<i64> = loops.iter().filter_map(|l| l.extent.as_int()).collect();
    let inputs: Vec<(Var, i64)> = (0u32..).map(Var).zip(extents.iter().copied()).collect();
    let shape = transform_layout::image_shape(map, &extents);
    let Some(shape) = shape.filter(|_| digits::inverse(&map.outputs, &inputs, &map.outputs).is_some()) else {
        let message =
            format!("`{map}` is not one-to-one from the loops' {extents:?} onto a box from 0 of their digits");
        return Err(refusal.broken(3, message, &[this]).help(
            "every part of a loop must have its place and divide its extent, as in [i // 4, i % 4]; pad makes extents divide",
        ));
    };
    Ok(Plan { gone, outermost, shape })
}

/// The spatial iterator that is the loop's variable, which no other mentions.
pub(super) fn whole_iterator<'a>(block: &'a Block, l: &For) -> Option<&'a Iter> {
    let mut mentioning = block.iters.iter().filter(|i| i.binding.mentions(l.var));
    let it = mentioning.next()?;
    let extent = l.extent.as_int();
    let whole = extent.is_some() && it.extent.as_int() == extent && it.binding.as_var() == Some(l.var);
    (mentioning.next().is_none() && l.kind == LoopKind::Serial && whole && it.kind == IterKind::Spatial).then_some(it)
}

fn rewrite(mut func: Func, block: &Block, map: &IndexMap, plan: &Plan, names: &[String]) -> Option<Func> {
    let loops: Vec<Var> = names.iter().map(|n| func.add_var(n.clone())).collect();
    let stay = block.iters.iter().map(|i| i.var).filter(|v| !plan.gone.iter().any(|(_, it)| it == v));
    let taken: Vec<String> = stay.map(|v| func.var_name(v).to_string()).collect();
    let free = (0..).map(|n| format!("v{n}")).filter(|name| !taken.contains(name));
    let iters: Vec<Iter> = free
        .zip(loops.iter().zip(&plan.shape))
        .map(|(name, (l, extent))| Iter {
            var: func.add_var(name),
            kind: IterKind::Spatial,
            extent: Index::Int(*extent),
            binding: Index::Var(*l),
        })
        .collect();
    let extent = |var: Var| block.iters.iter().find(|i| i.var == var)?.extent.as_int();
    let inputs: Vec<(Var, i64)> = (0u32..).map(Var).zip(plan.gone.iter().filter_map(|(_, it)| extent(*it))).collect();
    let values: Vec<Index> = iters.iter().map(|i| Index::Var(i.var)).collect();
    // What is a single value here is seen to be a digit where the loops are longer.
    let longer: Vec<(Var, i64)> = inputs.iter().map(|(v, extent)| (*v, extent.saturating_mul(2))).collect();
    let unit = plan.shape.contains(&1).then(|| digits::inverse(&map.outputs, &longer, &values)).flatten();
    let back = unit.or_else(|| digits::inverse(&map.outputs, &inputs, &values))?;
    let old: visit::Map = plan.gone.iter().map(|(_, it)| *it).zip(back.into_iter().map(|(_, value)| value)).collect();

    let mut env = Env::new();
    // One of a single value stays where it is a part of an index: for the reader, and for steps that see digits.
    let several = |i: &&Iter| i.extent.as_int() != Some(1);
    block.iters.iter().chain(&iters).filter(several).for_each(|i| env.bind_loop(i.var, &i.extent));
    let through = |body: Vec<Stmt>| {
        visit::map_body(body, &mut |i| simplify::simplify(&visit::subst_index(i, &old), &env), &mut |e| match e {
            Expr::Cond(c) => Expr::Cond(Box::new(simplify::simplify_cond(&c, &env))),
            e => e,
        })
    };
    visit::change_block(&mut func.body, block.name, &mut |b| {
        b.iters.retain(|i| !old.contains_key(&i.var));
        b.iters.splice(0..0, iters.iter().cloned());
        for body in b.init.iter_mut().chain([&mut b.body]) {
            *body = through(std::mem::take(body));
        }
    });
    let gone = |v: Var| plan.gone.iter().any(|(l, _)| *l == v);
    func.body = visit::rewrite(std::mem::take(&mut func.body), &mut |stmt| match stmt {
        Stmt::For(l) if l.var == plan.outermost => loops
            .iter()
            .zip(&plan.shape)
            .rev()
            .fold(l.body, |body, (var, extent)| vec![Stmt::For(For::new(*var, *extent, LoopKind::Serial, body))]),
        Stmt::For(l) if gone(l.var) => l.body,
        other => vec![other],
    });
    Some(func)
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{limit, program, refuses, refuses_on, steps, tensorize};

    const GEMM: &str = "gemm 24x7x3 f32 NN";

    #[test]
    fn iterators_follow_the_map() {
        let text = steps(GEMM, "transform_block_layout C [i] -> [i % 8, i // 8] -> s q");
        let nest = "  for s in 0..8
    for q in 0..3
      for j in 0..7
        for k in 0..3
          block C(v0 = s, v1 = q, vj = j, reduce vk = k)
            init C[v1*8 + v0, vj] = 0.0
            C[v1*8 + v0, vj] = C[v1*8 + v0, vj] + A[v1*8 + v0, vk]*B[vk, vj]
";
        assert!(text.contains(nest), "{text}");
    }

    #[test]
    fn with_the_buffer_indices_are_plain_again() {
        let chain = "program chain
            input A f32[20]
            X: X[i 24] f32 = select(i < 20, A[i], 0)
            Y: output Y[i 24] f32 = X[i] + 1.0";
        let both = "transform_layout X [i] -> [i % 4, i // 4]; transform_block_layout X [i] -> [i % 4, i // 4]
            transform_block_layout Y [Y_i] -> [Y_i % 4, Y_i // 4]; compute_inline X";
        let text = steps(chain, both);
        assert!(text.contains("Y[v1*4 + v0] = select(v1 < 5, A[v1*4 + v0], 0.0) + 1.0\n"), "{text}");
    }

    #[test]
    fn names_of_iterators_stay_different() {
        let text = steps(GEMM, "cache_read C A shared -> L; transform_block_layout L [L_0] -> [L_0 % 8, L_0 // 8]");
        assert!(text.contains("block L(v0 = L_0, v2 = L_1_1, v1 = L_1)\n"), "{text}");
    }

    #[test]
    fn loops_may_be_joined_and_turned() {
        let text = steps(GEMM, "reorder i k j; transform_block_layout C [j, i] -> [j * 24 + i]");
        assert!(
            text.contains("for C_0 in 0..168\n    for k in 0..3\n      block C(v0 = C_0, reduce vk = k)"),
            "{text}"
        );
        assert!(text.contains("C[v0 % 24, v0 // 24]"), "{text}");
    }

    #[test]
    fn refusals() {
        let no = |steps: &str, code: &str, message: &str| refuses(GEMM, steps, code, message);
        let residues = "transform_block_layout C [i] -> [i % 8, i // 8]";
        no(&format!("unroll i; {residues}"), "transform_block_layout.1", "loop `i` is unrolled");
        let whole = "loop `a` does not run one whole spatial iterator of C by itself";
        no("split i ? 8 -> a b; transform_block_layout C [a] -> [a]", "transform_block_layout.1", whole);
        no(
            "transform_block_layout C [k] -> [k]",
            "transform_block_layout.1",
            "loop `k` does not run one whole spatial",
        );
        let mut func = program(GEMM);
        limit(&mut func, "C", "vi", 4);
        refuses_on(&func, residues, "transform_block_layout.1", "C has a predicate");
        let shared = format!("cache_read C A local -> L; compute_at L j; {residues}");
        no(&shared, "transform_block_layout.2", "loop `i` does not hold C alone");
        for map in ["[i // 8]", "[i % 7, i // 7]", "[i + 1]", "[i * 2]"] {
            let message = format!("`[i] -> {map}` is not one-to-one from the loops' [24] onto a box from 0");
            no(&format!("transform_block_layout C [i] -> {map}"), "transform_block_layout.3", &message);
        }
        let mut func = program(GEMM);
        tensorize(&mut func, "j");
        refuses_on(&func, residues, "transform_block_layout.4", "C is in the tensorized nest j");
        no("transform_block_layout C [x] -> [x]", "step.loop", "there is no loop `x`");
    }
}
