//! `cache_write BLOCK BUF SCOPE -> NAME`: BLOCK writes a new buffer NAME of BUF's shape and type in SCOPE instead of BUF,
//! and a new block NAME behind the root's nest that holds BLOCK copies NAME to BUF, in loops `NAME_0`, `NAME_1`, ..
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: BUF holds the same values when others read it and at the end.
//!
//! ```text
//! for i in 0..8: C: C[i] = A[i]  ->  for i in 0..8: C: C_l[i] = A[i]
//!                                    for C_l_0 in 0..8: C_l: C[C_l_0] = C_l[C_l_0]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::region::{self, Region, Touch};
use crate::ir::simplify::Env;
use crate::ir::{Block, BufferId, Func, Stmt, Store, visit};
use crate::schedule::copy::{self, Copy};
use crate::schedule::members::Members;
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, dataflow, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "cache_write",
    about: "Makes a block write a new buffer, which a new block copies to the old one.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              cache_write C C local -> C_l",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("buffer", ParamKind::Buffer),
        Parameter::place("scope", ParamKind::Choice(&["global", "shared", "fragment", "local"])),
        Parameter::made("stage", ParamKind::Stage),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK writes BUF, not reading what was there before, and no other block writes it",
        "BLOCK writes a box without holes",
        "every other block that reads BUF is after the root's nest that holds BLOCK",
        "BLOCK is not in a tensorized nest",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("cache_write", func);
    let block = find::block(func, args.get_word("block")?)?;
    let to = find::buffer(func, args.get_word("buffer")?)?;
    let scope = super::cache_read::scope(args)?;
    let (root, region) = check(refusal, func, block, to)?;
    let default = format!("{}_{}", func.buffer(to).name, scope.name());
    let made = copy::names(func, &args.names, &default, region.len())?;

    let mut out = func.clone();
    let from = copy::add_buffer(&mut out, to, &made.stage, scope);
    visit::change_block(&mut out.body, block.name, &mut |b| {
        b.init = b.init.take().map(|body| renamed(body, to, from));
        b.body = renamed(std::mem::take(&mut b.body), to, from);
    });
    let around = find::around(&func.body, block.name)?;
    let only: Vec<Members> = match dataflow::store_to(block, to) {
        Some(store) => Members::of(func, block, &store.indices, &[], &around).into_iter().collect(),
        None => Vec::new(),
    };
    let stmt = copy::stage(&mut out, &Copy { from, to, region, only: &only, made: &made }, &[]);
    dataflow::insert_at(&mut out.body, &[root + 1], stmt);
    Ok(Applied { func: out, names: made.all() })
}

fn renamed(body: Vec<Stmt>, old: BufferId, new: BufferId) -> Vec<Stmt> {
    visit::rewrite(copy::reading(body, old, new), &mut |s| match s {
        Stmt::Store(s) if s.buffer == old => vec![Stmt::Store(Store { buffer: new, ..s })],
        s => vec![s],
    })
}

/// Checks everything; the root's nest that holds BLOCK, and what BLOCK writes.
fn check(refusal: Refusal, func: &Func, block: &Block, to: BufferId) -> Result<(usize, Region)> {
    let (name, buffer) = (func.block_name(block.name), &func.buffer(to).name);
    let this = (Node::Block(block.name), "this block");
    if !dataflow::block_writes(block).contains(&to) {
        return Err(refusal.broken(
            1,
            format!("{name} does not write {buffer}"),
            &[this, (Node::Buffer(to), "this buffer")],
        ));
    }
    if block.init.is_none() && dataflow::block_reads(block).contains(&to) {
        return Err(refusal.broken(1, format!("{name} reads what {buffer} held before"), &[this]));
    }
    if let Some(w) = dataflow::writers(func, to).into_iter().find(|w| w.name != block.name) {
        let message = format!("{buffer} is also written by {}", func.block_name(w.name));
        let error = refusal.broken(1, message, &[this, (Node::Block(w.name), "the other writer")]);
        return Err(error.help("cache_write before decompose_reduction"));
    }
    let around = find::around(&func.body, block.name)?;
    let region = region::touched(func, &func.body, to, Touch::Writes, &Env::new());
    let Some(region) = region.filter(|_| dataflow::is_dense(block, to, &around)) else {
        return Err(refusal.broken(2, format!("{name} does not write a box without holes of {buffer}"), &[this]));
    };
    let holds = |s: &Stmt| visit::blocks(std::slice::from_ref(s)).iter().any(|b| b.name == block.name);
    let root = func.body.iter().position(holds).unwrap_or_default();
    let early = visit::blocks(func.body.get(..=root).unwrap_or_default());
    let reads = |r: &&Block| r.name != block.name && dataflow::block_reads(r).contains(&to);
    if let Some(r) = early.into_iter().find(reads) {
        let message = format!("{} reads {buffer} and is not after the nest of {name}", func.block_name(r.name));
        return Err(refusal.broken(3, message, &[this, (Node::Block(r.name), "this reader")]));
    }
    if let Some(l) = around.iter().find(|l| l.tensorize.is_some()) {
        let message = format!("{name} is in the tensorized nest {}", func.var_name(l.var));
        return Err(refusal.broken(4, message, &[this, (Node::Loop(l.var), "this loop")]));
    }
    Ok((root, region))
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{CHAIN, program, rebind, redirect, refuses, refuses_on, steps, tensorize};

    #[test]
    fn the_copy_stands_behind_the_nest() {
        let text = steps(CHAIN, "cache_write X X local -> L");
        assert!(text.contains("    block X(vi = i)\n      L[vi] = A[vi]*2.0\n  for L_0 in 0..8\n"), "{text}");
        assert!(steps("gemm 5x4x3 f32 NN", "cache_write C C local").contains("C_local[vi, vj] = C_local[vi, vj] + "));
    }

    #[test]
    fn refusals() {
        refuses(CHAIN, "cache_write X Y local", "cache_write.1", "X does not write Y");
        let mut func = program(CHAIN);
        redirect(&mut func, "Y", "X");
        refuses_on(&func, "cache_write Y X local", "cache_write.1", "Y reads what X held before");
        let sums = "decompose_reduction C k; cache_write C_init C local";
        refuses("gemm 4x4x4 f32 NN", sums, "cache_write.1", "C is also written by C");
        let mut func = program(CHAIN);
        rebind(&mut func, "X", "vi", |i| i * 2);
        refuses_on(&func, "cache_write X X local", "cache_write.2", "X does not write a box without holes of X");
        let inside = "compute_at X Y_i; cache_write X X local";
        refuses(CHAIN, inside, "cache_write.3", "Y reads X and is not after the nest of X");
        let mut func = program(CHAIN);
        tensorize(&mut func, "i");
        refuses_on(&func, "cache_write X X local", "cache_write.4", "X is in the tensorized nest i");
    }
}
