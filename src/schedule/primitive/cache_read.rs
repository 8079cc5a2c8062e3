//! `cache_read BLOCK BUF SCOPE [as=TYPE] -> NAME`: BLOCK reads a copy of BUF instead of BUF. The copy is a new buffer NAME of
//! the same shape in SCOPE, of BUF's type or of TYPE, filled by a new block NAME in a nest of its own, whose loops are
//! `NAME_0`, `NAME_1`, ..
//! It precedes the root's nest that holds BLOCK; where a block of that nest writes BUF, in the innermost body
//! around both, behind the last writer, and copies what BLOCK reads in that body.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: BLOCK reads the same values; all others read and write what they did.
//!
//! A copy of a wider type is what instructions need that do not take BUF's: 8-bit ones of 4-bit integers.
//!
//! ```text
//!                                    for A_s_0 in 0..8: A_s: A_s[A_s_0] = A[A_s_0]
//! for i in 0..8: C: C[i] = A[i]  ->  for i in 0..8: C: C[i] = A_s[i]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::print::Node;
use crate::ir::region::{self, Region, Touch};
use crate::ir::{Block, BufferId, Expr, Func, Index, Scope, Stmt, visit};
use crate::schedule::copy::{self, Copy};
use crate::schedule::dataflow::{self, Spot};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, find, members, nest};

/// What a copy may be kept as.
const TYPES: &[&str] = &["s8", "u8", "s32", "u32", "s64", "f16", "bf16", "f32", "f64"];

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "cache_read",
    about: "Makes a block read a copy of a buffer, which a new block fills.",
    example: "gemm 64x64x64 f32 NN\n\
              target sm_80\n\
              cache_read C A shared -> A_s",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("buffer", ParamKind::Buffer),
        Parameter::place("scope", ParamKind::Choice(&["global", "shared", "fragment", "local"])),
        Parameter::option("as", ParamKind::Choice(TYPES)),
        Parameter::made("stage", ParamKind::Stage),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK reads BUF and does not write it",
        "every block that writes BUF is before BLOCK",
        "BLOCK is not in a tensorized nest",
        "BLOCK and the last writer of BUF are nested in loops only",
        "each writer of BUF writes a box without holes",
        "where a block of that nest writes BUF, the box that is copied is what BLOCK reads, or a writer fills it before",
        "TYPE holds every value of BUF's type, and BLOCK casts what it reads of BUF to types that hold every value of TYPE",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("cache_read", func);
    let block = find::block(func, args.get_word("block")?)?;
    let from = find::buffer(func, args.get_word("buffer")?)?;
    let scope = scope(args)?;
    let place = check(refusal, func, block, from)?;
    let wider = args.find_word("as").and_then(DType::parse).filter(|t| *t != func.buffer(from).dtype);
    if let Some(wider) = wider {
        check_type(refusal, func, block, from, wider)?;
    }
    let region = copied(refusal, func, block, from, &place)?;
    let around = find::around(&func.body, block.name)?;
    let outside = &around[..place.loops.len().min(around.len())];
    let computed = !dataflow::writers(func, from).is_empty();
    let only = if computed { members::readable(func, block, from, outside) } else { Vec::new() };
    let default = format!("{}_{}", func.buffer(from).name, scope.name());
    let made = copy::names(func, &args.names, &default, region.len())?;

    let mut out = func.clone();
    let to = copy::add_buffer(&mut out, from, &made.stage, scope);
    if let Some(wider) = wider {
        out.buffer_mut(to).dtype = wider;
    }
    visit::change_block(&mut out.body, block.name, &mut |b| {
        b.init = b.init.take().map(|body| copy::reading(body, from, to));
        b.body = copy::reading(std::mem::take(&mut b.body), from, to);
        if let Some(wider) = wider {
            b.init = b.init.take().map(|body| uncast(body, to, wider));
            b.body = uncast(std::mem::take(&mut b.body), to, wider);
        }
    });
    let copy = Copy { from, to, region, only: &only, made: &made };
    let stmt = copy::stage(&mut out, &copy, &place.loops);
    dataflow::insert_at(&mut out.body, &place.steps, stmt);
    Ok(Applied { func: out, names: made.all() })
}

/// What is of the type that it was cast to needs no cast.
fn uncast(body: Vec<Stmt>, buffer: BufferId, dtype: DType) -> Vec<Stmt> {
    visit::map_body(body, &mut Index::clone, &mut |e| match e {
        Expr::Cast(to, load) if to == dtype && is_load(&load, buffer) => *load,
        e => e,
    })
}

fn is_load(expr: &Expr, of: BufferId) -> bool {
    matches!(expr, Expr::Load { buffer, .. } if *buffer == of)
}

/// Reading a wider copy under a cast is reading under that cast.
fn check_type(refusal: Refusal, func: &Func, block: &Block, from: BufferId, wider: DType) -> Result<()> {
    let (own, name) = (func.buffer(from).dtype, func.block_name(block.name));
    let buffer = &func.buffer(from).name;
    let this = (Node::Block(block.name), "this block");
    if !own.widens_to(wider) {
        return Err(refusal.broken(7, format!("{wider} does not hold every value of {own}"), &[this]));
    }
    let (mut loads, mut cast) = (0, 0);
    let mut count = |e: &Expr| match e {
        Expr::Load { buffer, .. } if *buffer == from => loads += 1,
        Expr::Cast(to, load) if is_load(load, from) && wider.widens_to(*to) => cast += 1,
        _ => {}
    };
    for body in block.init.iter().chain([&block.body]) {
        visit::walk(body, &mut |s| {
            if let Stmt::Store(store) = s {
                visit::walk_expr(&store.value, &mut count);
            }
        });
    }
    if loads == cast {
        return Ok(());
    }
    let message =
        format!("{name} uses {buffer} as {own}, not under a cast to a type that holds every value of {wider}");
    Err(refusal.broken(7, message, &[this, (Node::Buffer(from), "this buffer")]))
}

/// The scope that the step names.
pub fn scope(args: &Args) -> Result<Scope> {
    Scope::parse(args.get_word("scope")?).ok_or_else(|| Error::bug(Code::StepArgs, "a scope that is none"))
}

/// Checks everything; where the copy goes.
fn check(refusal: Refusal, func: &Func, block: &Block, from: BufferId) -> Result<Spot> {
    let (name, buffer) = (func.block_name(block.name), &func.buffer(from).name);
    let this = (Node::Block(block.name), "this block");
    if !dataflow::block_reads(block).contains(&from) {
        return Err(refusal.broken(
            1,
            format!("{name} does not read {buffer}"),
            &[this, (Node::Buffer(from), "this buffer")],
        ));
    }
    if dataflow::block_writes(block).contains(&from) {
        return Err(refusal.broken(1, format!("{name} also writes {buffer}"), &[this]).help("cache_write"));
    }
    let writers = dataflow::writers(func, from);
    let place = dataflow::place(func, block.name);
    if let Some(w) = writers.iter().find(|w| dataflow::place(func, w.name) > place) {
        let message = format!("{} writes {buffer} after {name}", func.block_name(w.name));
        return Err(refusal.broken(2, message, &[this, (Node::Block(w.name), "this writer")]));
    }
    let around = find::around(&func.body, block.name)?;
    if let Some(l) = around.iter().find(|l| l.tensorize.is_some()) {
        let message = format!("{name} is in the tensorized nest {}", func.var_name(l.var));
        return Err(refusal.broken(3, message, &[this, (Node::Loop(l.var), "this loop")]));
    }
    let holes = |w: &&&Block| {
        let around = visit::loops_around(&func.body, w.name).unwrap_or_default();
        !dataflow::is_dense(w, from, &around)
    };
    if let Some(w) = writers.iter().find(holes) {
        let message = format!("{} does not write a box without holes of {buffer}", func.block_name(w.name));
        return Err(refusal.broken(5, message, &[this, (Node::Block(w.name), "this writer")]));
    }
    let spot = dataflow::spot_of_block(func, block.name);
    let last = writers.last().map(|w| dataflow::spot_of_block(func, w.name));
    match (spot, last) {
        (Some(spot), None) => Ok(before(&spot, 0)),
        (Some(spot), Some(Some(last))) => Ok(before(&spot, spot.shared_loops(&last))),
        _ => Err(refusal.broken(4, format!("{name} or the last writer of {buffer} is under a condition"), &[this])),
    }
}

/// Before the statement that holds the spot in the body under `depth` of its loops.
fn before(spot: &Spot, depth: usize) -> Spot {
    Spot {
        steps: spot.steps.iter().take(depth + 1).copied().collect(),
        loops: spot.loops.iter().take(depth).copied().collect(),
    }
}

/// What is copied: of a buffer that the program computes, and inside a nest, what BLOCK reads; else everything.
fn copied(refusal: Refusal, func: &Func, block: &Block, from: BufferId, place: &Spot) -> Result<Region> {
    if dataflow::writers(func, from).is_empty() {
        return Ok(region::whole(func.buffer(from)));
    }
    let around = find::around(&func.body, block.name)?;
    let (outside, inside) = around.split_at(place.loops.len().min(around.len()));
    let env = nest::env_of(outside);
    let body = dataflow::body_at(&func.body, &place.steps);
    let own = dataflow::only(body, &|b| b.name == block.name);
    let (name, buffer) = (func.block_name(block.name), &func.buffer(from).name);
    let Some(region) = region::touched(func, &own, from, Touch::Reads, &env) else {
        let message = format!("{name} reads {buffer} only under conditions that never hold");
        return Err(refusal.broken(1, message, &[(Node::Block(block.name), "this block")]));
    };
    // What no iteration has written yet must not be copied.
    let complete = outside.is_empty() || dataflow::reads_box(block, from, inside);
    if complete || dataflow::fills(func, body, from, &region, &env) {
        return Ok(region);
    }
    let at = outside.last().map_or("", |l| func.var_name(l.var));
    let message = format!(
        "the box around what {name} reads of {buffer} in an iteration of {at} holds elements that it does not read, \
         and that need not be written yet"
    );
    let nodes = [(Node::Block(block.name), "this block"), (Node::Buffer(from), "this buffer")];
    Err(refusal.broken(6, message, &nodes).help(format!("cache_read {name} {buffer} before its loops are moved")))
}

#[cfg(test)]
mod tests {
    use crate::ir::{Cond, If, Stmt};
    use crate::schedule::testing::{CHAIN, program, rebind, redirect, refuses, refuses_on, steps, tensorize};

    #[test]
    fn a_computed_buffer_is_copied_behind_its_writer() {
        let text = steps(CHAIN, "cache_read Z Y shared -> S");
        assert!(text.contains("  for S_0 in 0..8\n    block S(v0 = S_0)\n      S[v0] = Y[v0]\n  for Z_i"), "{text}");
        let text = steps(CHAIN, "split i ? 4 -> a b; reverse_compute_at Y a -> y; cache_read Y X local -> L l");
        assert!(
            text.contains("    for l in 0..4\n      block L(v0 = a*4 + l)\n        L[v0] = X[v0]\n    for y"),
            "{text}"
        );
    }

    const CAST: &str = "program p\ninput A s4[8]\nX: X[i 8] s32 = s32(A[i])\nY: output Y[i 8] s8 = s8(A[i])";

    #[test]
    fn a_copy_may_be_of_a_wider_type() {
        let text = steps(CAST, "cache_read X A local as=s8 -> L; cache_read Y A local as=s8 -> M");
        assert!(text.contains("L[v0] = s8(A[v0])") && text.contains("X[vi] = s32(L[vi])"), "{text}");
        assert!(text.contains("M[v0] = s8(A[v0])") && text.contains("= M["), "{text}");
    }

    #[test]
    fn refusals() {
        refuses(CAST, "cache_read X A local as=u8", "cache_read.7", "u8 does not hold every value of s4");
        refuses(CAST, "cache_read Y A local as=f16", "cache_read.7", "Y uses A as s4, not under a cast to a type");
        refuses(CHAIN, "cache_read Y X local as=f64", "cache_read.7", "Y uses X as f32, not under a cast to a type");
        refuses(CHAIN, "cache_read X Y local", "cache_read.1", "X does not read Y");
        refuses("gemm 4x4x4 f32 NN", "cache_read C C local", "cache_read.1", "C also writes C");
        let mut func = program(CHAIN);
        redirect(&mut func, "Z", "A");
        refuses_on(&func, "cache_read X A local", "cache_read.2", "Z writes A after X");
        let mut func = program(CHAIN);
        tensorize(&mut func, "i");
        refuses_on(&func, "cache_read X A local", "cache_read.3", "X is in the tensorized nest i");
        let mut func = program(CHAIN);
        let block = func.body.remove(0);
        func.body.insert(0, Stmt::If(If { cond: Cond::TRUE, body: vec![block] }));
        refuses_on(&func, "cache_read X A local", "cache_read.4", "X or the last writer of A is under a condition");
        let mut func = program(CHAIN);
        rebind(&mut func, "X", "vi", |i| i * 2);
        refuses_on(&func, "cache_read Y X local", "cache_read.5", "X does not write a box without holes of X");
        let text = "split i ? 4 -> a b; cache_write C B global; reverse_compute_at B_global a
             transform_layout B_global [d] -> [d // 6, d % 6]; cache_read B_global B_global local";
        refuses("window_sum 12", text, "cache_read.6", "the box around what B_global reads of B_global in an");
    }

    #[test]
    fn domains_that_end_within_a_row_leave_holes() {
        let halves = |extent: i64| {
            format!(
                "program halves
                S: S[i {extent}] f32 = 0
                Y: output Y[i {extent}] f32 = S[i]"
            )
        };
        let steps_of = |layout: &str| format!("transform_layout S {layout}; split i ? 4; cache_read Y S shared");
        let hole = "S does not write a box without holes of S";
        refuses(&halves(5), &steps_of("[k] -> [k // 2, k % 2]"), "cache_read.5", hole);
        steps(&halves(6), &steps_of("[k] -> [k // 2, k % 2]"));
        steps(&halves(5), "split i ? 4; cache_read Y S shared");
    }
}
