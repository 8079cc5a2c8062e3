//! `decompose_reduction BLOCK LOOP [-> INIT loops]`: the init of BLOCK becomes a block of its own, INIT (`BLOCK_init`),
//! before LOOP, under copies of the loops from LOOP inwards that run BLOCK's spatial iterators (`LOOP_init`, ..). The
//! update keeps the name BLOCK.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: each element starts from the same value before its first term.
//!
//! ```text
//! for i in 0..8                          for i in 0..8
//!   for k in 0..4                          C_init: C[i] = 0
//!     C: init C[i] = 0               ->    for k in 0..4
//!        C[i] = C[i] + A[i, k]               C: C[i] = C[i] + A[i, k]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::decide;
use crate::ir::print::Node;
use crate::ir::simplify;
use crate::ir::{Block, Cond, For, Func, Index, Iter, IterKind, Stmt, visit};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, dataflow, digits, find, nest};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "decompose_reduction",
    about: "Makes the init of a reduction a block of its own, before a loop.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              decompose_reduction C k",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("loop", ParamKind::Loop),
        Parameter::made("init", ParamKind::Block),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK accumulates into one element of each of its outputs an iteration, from an init",
        "LOOP is around BLOCK",
        "no loop around LOOP runs a reduce iterator of BLOCK",
        "each loop from LOOP inwards runs spatial iterators or reduce iterators, not both, not none, and is not rasterized",
        "an element is accumulated once under LOOP: different iterations of the spatial loops give different elements",
        "the first iteration of an element is that in which all its reduce loops are at 0",
        "no other block writes an output, and none under LOOP reads one before BLOCK",
        "LOOP is not in a tensorized nest",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("decompose_reduction", func);
    let block = find::block(func, args.get_word("block")?)?;
    let at = find::loop_(func, args.get_word("loop")?)?;
    let Roles { spatial, reduce } = check(refusal, func, block, at)?;
    let name = find::new_block(func, args.names.first(), &format!("{}_init", func.block_name(block.name)))?;
    let defaults: Vec<String> = spatial.iter().map(|l| format!("{}_init", func.var_name(l.var))).collect();
    let loops = find::new_loops_from(func, args.names.get(1..).unwrap_or_default(), &defaults, &[])?;

    let mut out = func.clone();
    let first: visit::Map = reduce.iter().map(|l| (l.var, Index::Int(0))).collect();
    let init = initialiser(&mut out, block, &name, &spatial, &loops, &first);
    let Some(spot) = dataflow::spot_of_loop(&out, at.var) else { return Err(refusal.lost("the loop")) };
    dataflow::insert_at(&mut out.body, &spot.steps, init);
    visit::change_block(&mut out.body, block.name, &mut |b| b.init = None);
    Ok(Applied { func: out, names: std::iter::once(name).chain(loops).collect() })
}

/// The loops from LOOP inwards by what they run, outermost first.
struct Roles<'a> {
    spatial: Vec<&'a For>,
    reduce: Vec<&'a For>,
}

/// INIT under copies of the spatial loops, which run as the originals do.
fn initialiser(
    func: &mut Func,
    block: &Block,
    name: &str,
    spatial: &[&For],
    names: &[String],
    first: &visit::Map,
) -> Stmt {
    let mut map = first.clone();
    let mut loops = Vec::new();
    for (l, name) in spatial.iter().zip(names) {
        let var = func.add_var(name.clone());
        map.insert(l.var, Index::Var(var));
        loops.push(For::new(var, visit::subst_index(&l.extent, &map), l.kind, Vec::new()));
    }
    let around = visit::loops(&func.body).into_iter().filter(|l| !map.contains_key(&l.var));
    let mut env = nest::env_of(&around.collect::<Vec<_>>());
    loops.iter().for_each(|l| env.bind_loop(l.var, &l.extent));
    let mut own = visit::Map::new();
    let mut iters = Vec::new();
    for it in block.iters.iter().filter(|i| i.kind == IterKind::Spatial) {
        let var = func.add_var(func.var_name(it.var).to_string());
        own.insert(it.var, Index::Var(var));
        iters.push(Iter {
            var,
            binding: simplify::simplify(&visit::subst_index(&it.binding, &map), &env),
            ..it.clone()
        });
    }
    let body = visit::subst_body(block.init.clone().unwrap_or_default(), &own);
    let mut predicate = Cond::TRUE;
    for part in block.predicate.conjuncts() {
        let part = visit::subst_cond(part, &map);
        if !decide::proves(&part, &env) {
            predicate = predicate.and(part);
        }
    }
    let name = func.add_block(name);
    nest::wrap(
        loops,
        Stmt::Block(Block { name, iters, predicate, init: None, body, copy_with: None, role: block.role }),
    )
}

fn check<'a>(refusal: Refusal, func: &'a Func, block: &Block, at: &For) -> Result<Roles<'a>> {
    let (name, loop_name) = (func.block_name(block.name), func.var_name(at.var));
    let this = (Node::Block(block.name), "this block");
    let nature = dataflow::nature(block).and_then(|n| if n.reduction { Ok(n) } else { Err("it has no init".into()) });
    let nature = nature.map_err(|why| refusal.broken(1, format!("{name} cannot be decomposed: {why}"), &[this]))?;
    let around = find::around(&func.body, block.name)?;
    let position = around.iter().position(|l| l.var == at.var);
    let Some(position) = position.filter(|_| dataflow::spot_of_block(func, block.name).is_some()) else {
        let message = format!("{loop_name} is not around {name}");
        return Err(refusal.broken(2, message, &[this, (Node::Loop(at.var), "this loop")]));
    };
    let (outer, inner) = around.split_at(position);
    let runs = |l: &For, kind| {
        let own = l.defines();
        block.iters.iter().any(|i| i.kind == kind && own.iter().any(|(v, _)| i.binding.mentions(*v)))
    };
    if let Some(l) = outer.iter().find(|l| runs(l, IterKind::Reduce)) {
        let reduce = func.var_name(l.var);
        let message = format!("{reduce}, around {loop_name}, runs a reduce iterator of {name}");
        let error =
            refusal.broken(3, message, &[(Node::Loop(l.var), "the reduce loop"), (Node::Loop(at.var), "this loop")]);
        return Err(error.help(format!("decompose_reduction {name} {reduce}")));
    }
    let mut roles = Roles { spatial: Vec::new(), reduce: Vec::new() };
    for l in inner {
        match (runs(l, IterKind::Spatial), runs(l, IterKind::Reduce), l.raster.is_some()) {
            (true, false, false) => roles.spatial.push(*l),
            (false, true, false) => roles.reduce.push(*l),
            (false, false, false) if l.extent.as_int() == Some(1) => {}
            _ => {
                let message =
                    format!("{} runs both kinds of iterators of {name}, none, or is rasterized", func.var_name(l.var));
                return Err(refusal.broken(4, message, &[(Node::Loop(l.var), "this loop")]));
            }
        }
    }
    check_elements(refusal, func, block, &roles)?;
    nature.outputs().try_for_each(|output| check_others(refusal, func, block, at, output))?;
    if let Some(l) = outer.iter().find(|l| l.tensorize.is_some()) {
        let message = format!("{loop_name} is in the tensorized nest {}", func.var_name(l.var));
        return Err(refusal.broken(8, message, &[(Node::Loop(at.var), "this loop")]));
    }
    Ok(roles)
}

/// Requirements 5 and 6.
fn check_elements(refusal: Refusal, func: &Func, block: &Block, roles: &Roles) -> Result<()> {
    let name = func.block_name(block.name);
    let this = [(Node::Block(block.name), "this block")];
    let bindings =
        |kind| -> Vec<Index> { block.iters.iter().filter(|i| i.kind == kind).map(|i| i.binding.clone()).collect() };
    let injective = |kind, loops: &[&For]| {
        dataflow::constant_vars(loops).is_some_and(|vars| digits::image(&bindings(kind), &vars).injective)
    };
    if !injective(IterKind::Spatial, &roles.spatial) {
        return Err(refusal.broken(
            5,
            format!("{name} may accumulate an element more than once under the loop"),
            &this,
        ));
    }
    let zero: visit::Map = roles.reduce.iter().map(|l| (l.var, Index::Int(0))).collect();
    let env = nest::env_of(&find::around(&func.body, block.name)?);
    let starts = |b: &Index| decide::equal(&visit::subst_index(b, &zero), &Index::Int(0), &env);
    if !bindings(IterKind::Reduce).iter().all(starts) || !injective(IterKind::Reduce, &roles.reduce) {
        return Err(refusal.broken(
            6,
            format!("the reduce iterators of {name} are not all 0 just where its reduce loops are"),
            &this,
        ));
    }
    Ok(())
}

/// Requirement 7.
fn check_others(refusal: Refusal, func: &Func, block: &Block, at: &For, output: crate::ir::BufferId) -> Result<()> {
    let (name, buffer) = (func.block_name(block.name), &func.buffer(output).name);
    let this = (Node::Block(block.name), "this block");
    if let Some(w) = dataflow::writers(func, output).into_iter().find(|w| w.name != block.name) {
        let message = format!("{buffer} is also written by {}", func.block_name(w.name));
        return Err(refusal.broken(7, message, &[this, (Node::Block(w.name), "the other writer")]));
    }
    let under = visit::blocks(&at.body);
    let before = under.iter().take_while(|b| b.name != block.name);
    if let Some(r) = before.into_iter().find(|b| dataflow::block_reads(b).contains(&output)) {
        let message = format!("{} reads {buffer} under the loop before {name}", func.block_name(r.name));
        return Err(refusal.broken(7, message, &[this, (Node::Block(r.name), "this reader")]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ir::{Index, Stmt, visit};
    use crate::schedule::testing::{program, rebind, refuses, refuses_on, steps, tensorize, two_writers};

    const GEMM: &str = "gemm 6x5x4 f32 NN";

    #[test]
    fn a_reader_in_front_of_the_sum_stays() {
        let mut func = program(
            "program rows
            input A f32[4, 6]
            S: S[i 4] f32 = sum(k 6) A[i, k]
            Y: output Y[i 4] f32 = S[i]",
        );
        let Some(Stmt::For(second)) = func.body.pop() else { panic!("two nests") };
        let first = func.find_loop("i").unwrap().var;
        let reader = visit::subst_body(second.body, &[(second.var, Index::Var(first))].into());
        assert!(visit::change_loop(&mut func.body, first, &mut |l| {
            l.body.splice(0..0, reader.clone());
        }));
        let why = "Y reads S under the loop before S";
        refuses_on(&func, "decompose_reduction S i", "decompose_reduction.7", why);
    }

    #[test]
    fn the_init_gets_the_spatial_loops() {
        let text = steps(
            GEMM,
            "split j ? 2 -> a b; split k ? 2 -> k0 k1; reorder i a k0 k1 b; decompose_reduction C k0 -> Z z",
        );
        let init = "      for z in 0..2\n        block Z(vi = i, vj = a*2 + z)\n          where a*2 + z < 5\n          C[vi, vj] = 0.0\n";
        assert!(text.contains(init), "{text}");
    }

    #[test]
    fn refusals() {
        const NAME: &str = "decompose_reduction";
        let no = |func: &crate::ir::Func, step: &str, n: u32, message: &str| {
            refuses_on(func, &format!("{NAME} {step}"), &format!("{NAME}.{n}"), message);
        };
        no(&program("vec_add 8"), "C i", 1, "C cannot be decomposed: it has no init");
        refuses(
            GEMM,
            "cache_write C C local -> L; decompose_reduction C L_0",
            "decompose_reduction.2",
            "L_0 is not around C",
        );
        refuses(
            GEMM,
            "split k ? 2 -> k0 k1; decompose_reduction C k1",
            "decompose_reduction.3",
            "k0, around k1, runs a reduce iterator",
        );
        refuses(
            GEMM,
            "fuse j k -> f; decompose_reduction C f",
            "decompose_reduction.4",
            "f runs both kinds of iterators of C",
        );
        let mut func = program(GEMM);
        rebind(&mut func, "C", "vj", |_| 0.into());
        no(&func, "C j", 4, "j runs both kinds of iterators of C, none, or is rasterized");
        let mut func = program(GEMM);
        rebind(&mut func, "C", "vj", |j| j.floordiv(2));
        no(&func, "C j", 5, "C may accumulate an element more than once under the loop");
        let mut func = program(GEMM);
        rebind(&mut func, "C", "vk", |k| crate::ir::Index::Int(3) - k);
        no(&func, "C j", 6, "the reduce iterators of C are not all 0 just where its reduce loops are");
        no(&two_writers(), "S k", 7, "S is also written by T");
        let mut func = program(GEMM);
        tensorize(&mut func, "j");
        no(&func, "C k", 8, "k is in the tensorized nest j");
    }
}
