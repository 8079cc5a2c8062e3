//! `split_k LOOP PARTS [by=kernel|cluster] -> SUMS [loops]`: a long sum is cut into PARTS contiguous parts, so that more
//! blocks of threads can work on it. A new outermost loop `LOOP_part` runs over the parts, LOOP over the iterations of
//! one; block SUMS adds each part up in a slice of its own of the new global buffer SUMS, and BLOCK, the one block under
//! LOOP, then combines the slices in ascending order in a nest of its own, in new loops `BLOCK_0`, `BLOCK_1`, .., one for
//! each spatial iterator, and one for the parts. Each nest becomes a kernel, SUMS workspace.
//!
//! With `by=cluster` the parts run on the blocks of a cluster and SUMS is memory of the cluster, so no second kernel is needed: move
//! `LOOP_part` inside the loops over tiles (`reorder`), and BLOCK behind it under the loop over tiles (`reverse_compute_at`). In lowered
//! programs a block reads its own part of SUMS alone: `transform_layout SUMS [p, i, j] -> [i // R, p, i % R, j]` gives each block the sums of
//! R rows, over which it adds the parts up.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the result, up to the order in which terms combine, which no launch changes. Where PARTS does not divide
//! LOOP, the last parts combine the neutral constant instead of terms.
//!
//! ```text
//! for k in 0..32                                for k_part in 0..4
//!   C: C[0] = C[0] + A[k]                         for k in 0..8
//!                          split_k k 4 -> P         P: P[k_part, 0] = P[k_part, 0] + A[k_part*8 + k]
//!                                               for C_0 in 0..4: C: C[0] = C[0] + P[C_0, 0]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive, split};
use crate::error::{Result, counted};
use crate::ir::print::Node;
use crate::ir::{Axis, Block, For, Func, LoopKind, Scope, Stmt, Var, visit};
use crate::schedule::analyze::blocks_below;
use crate::schedule::factor::{Factoring, Names};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "split_k",
    about: "Splits a reduction over blocks (split-K); a second kernel, or the blocks of a cluster, add the partial sums in a fixed order.",
    example: "gemm 16x16x1024 f32 NN\n\
              target sm_80\n\
              split_k k 4 -> P",
    signature: &[
        Parameter::place("loop", ParamKind::Loop),
        Parameter::place("parts", ParamKind::Int),
        Parameter::option("by", ParamKind::Choice(&["kernel", "cluster"])),
        Parameter::made("stage", ParamKind::Stage),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK accumulates into one element of each of its outputs an iteration, from an init, and no other block writes them",
        "it combines its outputs with values that do not depend on them by +, *, min, max or reducers of tuples",
        "the init is neutral (0 for +, 1 for *, any constant for min and max, the neutral tuple of a reducer)",
        "LOOP is one of BLOCK's loops, runs reduce iterators alone and is not placed",
        "BLOCK is the one block under LOOP; its loops hold nothing else, are at the root and are not tensorized, and \
         none runs both kinds of iterators",
        "BLOCK's spatial iterators sweep their whole domains",
        "no part of BLOCK's predicate uses spatial and reduce loops at once",
        "the extent of LOOP is a constant, PARTS at least 2 and at most that",
        "with `by=cluster`, none of BLOCK's loops is bound to `cluster`",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let target = find::loop_(func, args.get_word("loop")?)?;
    let (parts, refusal) = (args.get_int("parts")?, Refusal::new("split_k", func));
    let block = only_block(refusal, func, target)?;
    let extent = check_parts(refusal, func, target, parts)?;
    Factoring::check(refusal, func, block, target)?;
    let cluster = args.find_word("by") == Some("cluster");
    if cluster {
        check_cluster(refusal, func, block)?;
    }
    let name = func.var_name(target.var).to_string();
    let names = Names::of(func, block, &args.names, "part", &[format!("{name}_part")])?;

    // The loop becomes two, the outer one is factored, and moves outside all others.
    let length = (extent + parts - 1) / parts;
    let two = names.own.iter().cloned().chain([name]).collect();
    let cut = split::rewrite(func.clone(), target.var, extent, &[parts, length], two).func;
    let part = names.own.first().and_then(|name| cut.find_loop(name));
    let (Some(block), Some(part)) = (cut.find_block(func.block_name(block.name)), part) else {
        return Err(refusal.lost("the block"));
    };
    let found = Factoring::check(Refusal::new("split_k", &cut), &cut, block, part)?;
    let scope = if cluster { Scope::Cluster } else { Scope::Global };
    let mut out = found.rewrite(&cut, &names, scope);
    let kind = if cluster { LoopKind::bound(Axis::Cluster) } else { LoopKind::Serial };
    hoist(&mut out.body, found.root, part.var, kind);
    Ok(Applied { func: out, names: names.all() })
}

/// The block that sums over the loop, if nothing else is there (a part of requirement 5).
fn only_block<'a>(refusal: Refusal, func: &'a Func, target: &'a For) -> Result<&'a Block> {
    let below = blocks_below(target);
    match below.as_slice() {
        [(_, block)] => Ok(block),
        _ => {
            let message = format!("{} blocks are under {}", below.len(), func.var_name(target.var));
            let help = "split the reduction before blocks are moved under its loops";
            Err(refusal.broken(5, message, &[(Node::Loop(target.var), "this loop")]).help(help))
        }
    }
}

/// Requirement 8; the extent of the loop.
fn check_parts(refusal: Refusal, func: &Func, target: &For, parts: i64) -> Result<i64> {
    let (name, this) = (func.var_name(target.var), [(Node::Loop(target.var), "this loop")]);
    let Some(extent) = target.extent.as_int() else {
        return Err(refusal.broken(8, format!("the extent of {name} is not a constant"), &this));
    };
    if !(2..=extent).contains(&parts) {
        let message = format!(
            "{name} has {}, and {} requested; 2 to {extent} are possible",
            counted(extent, "iteration"),
            if parts == 1 { "1 part is".to_string() } else { format!("{parts} parts are") }
        );
        return Err(refusal.broken(8, message, &this));
    }
    Ok(extent)
}

/// Requirement 9.
fn check_cluster(refusal: Refusal, func: &Func, block: &Block) -> Result<()> {
    let around = find::around(&func.body, block.name)?;
    let Some(l) = around.iter().find(|l| l.axis() == Some(Axis::Cluster)) else { return Ok(()) };
    let message = format!("{} is bound to cluster already", func.var_name(l.var));
    Err(refusal.broken(9, message, &[(Node::Loop(l.var), "this loop")]))
}

/// Puts a loop of the nest outside all others.
fn hoist(body: &mut Vec<Stmt>, root: usize, var: Var, kind: LoopKind) {
    let mut taken = None;
    let nest = visit::rewrite(vec![body.remove(root)], &mut |stmt| match stmt {
        Stmt::For(mut l) if l.var == var => {
            let inner = std::mem::take(&mut l.body);
            taken = Some(l);
            inner
        }
        other => vec![other],
    });
    match taken {
        Some(part) => body.insert(root, Stmt::For(For { kind, body: nest, ..part })),
        None => body.splice(root..root, nest).for_each(drop),
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, refuses_to_factor, steps, symbolic};

    const GEMM: &str = "gemm 6x5x8 f32 NN";

    #[test]
    fn parts_run_outside_and_are_combined_behind() {
        let text = steps(GEMM, "split_k k 4 -> P s i2 j2 s2");
        let wanted = "  P: global f32[4, 6, 5]
  for s in 0..4
    for i in 0..6
      for j in 0..5
        for k in 0..2
          block P(vs = s, vi = i, vj = j, reduce vk = k)
            init P[vs, vi, vj] = 0.0
            P[vs, vi, vj] = P[vs, vi, vj] + A[vi, vs*2 + vk]*B[vs*2 + vk, vj]
  for i2 in 0..6
    for j2 in 0..5
      for s2 in 0..4
        block C(vi = i2, vj = j2, reduce vs = s2)
          init C[vi, vj] = 0.0
          C[vi, vj] = C[vi, vj] + P[vs, vi, vj]
";
        assert!(text.ends_with(wanted), "{text}");
    }

    #[test]
    fn an_outer_loop_is_cut_between_its_iterations() {
        let text = steps(GEMM, "split k ? 4 -> k0 k1; split_k k0 2");
        assert!(
            text.contains(
                "for k0_part in 0..2
    for i in 0..6
"
            ),
            "{text}"
        );
        assert!(text.contains("A[vi, vk0_part*4 + vk1]") || text.contains("vk0_part*4 + vk0*4 + vk1"), "{text}");
    }

    #[test]
    fn the_last_parts_of_a_ragged_cut_take_the_neutral_constant() {
        let text = steps(GEMM, "split_k k 3");
        assert!(
            text.contains(
                "for k_part in 0..3
"
            ) && text.contains(
                "for k in 0..3
"
            ),
            "{text}"
        );
        assert!(text.contains("select(vk_part*3 + vk < 8, A["), "{text}");
    }

    #[test]
    fn the_workspace_is_global_wherever_the_sum_lies() {
        let text = steps("gemm 6x5x8 f16>f32>f16 NN", "set_scope acc local; split_k k 2");
        assert!(
            text.contains(
                "mma_part: global f32[2, 6, 5]
"
            ),
            "{text}"
        );
    }

    #[test]
    fn parts_of_a_cluster() {
        let text = steps(GEMM, "split_k k 4 by=cluster");
        assert!(text.contains("C_part: cluster f32[4, 6, 5]\n"), "{text}");
        assert!(
            text.contains(
                "for k_part in 0..4 @cluster
"
            ),
            "{text}"
        );
    }

    #[test]
    fn refusals() {
        refuses_to_factor("split_k", |_, name| format!("split_k {name} 2"));
        let no = |func: &crate::ir::Func, step: &str, n: u32, message: &str| {
            refuses_on(func, &format!("split_k {step}"), &format!("split_k.{n}"), message);
        };
        refuses(GEMM, "cache_read C A local -> L; compute_at L k; split_k k 2", "split_k.5", "2 blocks are under k");
        let mut func = program(GEMM);
        symbolic(&mut func, "k");
        no(&func, "k 2", 8, "the extent of k is not a constant");
        for parts in [-1, 0, 1, 9] {
            let parts_are = if parts == 1 { "1 part is".to_string() } else { format!("{parts} parts are") };
            let message = format!("k has 8 iterations, and {parts_are} requested; 2 to 8 are possible");
            no(&program(GEMM), &format!("k {parts}"), 8, &message);
        }
        refuses(GEMM, "bind i cluster; split_k k 2 by=cluster", "split_k.9", "i is bound to cluster already");
        refuses(GEMM, "split_k k 2 -> P s", "step.names", "4 loops are made, 1 name is given after `->`");
    }
}
