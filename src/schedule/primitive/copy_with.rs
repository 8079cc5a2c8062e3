//! `copy_with STAGES.. sync|cp_async|tma [multicast=LOOP] [cache=l1]`: how the copies of these stages are done.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the text and its meaning. A placement.
//!
//! ```text
//! block A_s(..)            copy_with A_s tma            block A_s(..) tma
//!   A_s[..] = A[..]                                       A_s[..] = A[..]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::{Code, Error, Result};
use crate::ir::print::Node;
use crate::ir::simplify::affine;
use crate::ir::{
    Axis, Block, Buffer, BufferId, CopyKind, CopyWith, Expr, For, Func, Index, LoopKind, Scope, Stmt, Var, layout,
    visit,
};
use crate::schedule::Args;
use crate::schedule::dataflow;
use crate::schedule::find::{self, block, loop_, refuse};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "copy_with",
    about: "Chooses the mechanism by which blocks copy.",
    example: "gemm 64x64x64 f16>f32>f32 NT\n\
              target sm_80\n\
              cache_read C A shared -> A_s\n\
              copy_with A_s cp_async",
    signature: &[
        Parameter::place("stages", ParamKind::Blocks),
        Parameter::place("kind", ParamKind::Choice(&["sync", "cp_async", "tma"])),
        Parameter::option("multicast", ParamKind::Loop),
        Parameter::option("cache", ParamKind::Choice(&["l1"])),
    ],
    requires: &[
        "no STAGE has a mechanism yet",
        "each STAGE is a block that stores what it loads from another buffer of the same type, or zero where a select \
         says so",
        "cp_async copies from global to shared memory; a vectorized loop inside makes 4, 8 or 16 bytes",
        "tma copies between global and shared memory, under no loop bound to threads, and from global memory under none \
         bound to warps that copy boxes of their own",
        "tma copies a box: innermost serial loops that each move by one along one dimension of the global buffer and along \
         one dimension of the shared buffer, there by one or by what the box's loops inside fill; the global buffer has at \
         most 5 dimensions, and each loop at most 256 iterations, along rows of elements below a byte 256 bytes",
        "tma's global side is contiguous along its last dimension, and its other strides and the box's rows are \
         multiples of 16 bytes",
        "multicast goes with tma, and its loop is around STAGE, is serial or bound to cluster, and does not occur in \
         the region that is copied",
        "cache=l1 goes with cp_async: copies of 16 bytes, which else bypass the L1 cache, leave there what other blocks of the \
         multiprocessor read, too",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let word = args.get_word("kind")?;
    let kind = CopyKind::parse(word)
        .ok_or_else(|| Error::input(Code::StepWord, format!("`{word}` is not a mechanism")).naming(word))?;
    let multicast = args.find_word("multicast").map(|l| loop_(func, l).map(|l| l.var)).transpose()?;
    let through_l1 = args.find_word("cache").is_some();
    let mut out = func.clone();
    for name in args.get_words("stages")? {
        let stage = block(&out, name)?;
        let id = stage.name;
        if let Some(old) = &stage.copy_with {
            let message = format!("block `{name}` already copies with {}", old.kind.name());
            return Err(refuse("copy_with", 1, message, func, &[(Node::Block(id), "this block")])
                .help("remove one of the two steps"));
        }
        visit::change_block(&mut out.body, id, &mut |b| b.copy_with = Some(CopyWith { kind, multicast, through_l1 }));
    }
    Ok(out.into())
}

/// One side of a copy, with indices over the loops around the block.
struct Side {
    buffer: BufferId,
    indices: Vec<Index>,
}

/// What `copy_with` promises of a stage; asked after every step.
pub fn check(func: &Func, stage: &Block, placed: &CopyWith) -> Result<()> {
    let name = func.block_name(stage.name);
    let no = |n, message: String| refuse("copy_with", n, message, func, &[(Node::Block(stage.name), "this block")]);
    if placed.through_l1 && placed.kind != CopyKind::CpAsync {
        let message = format!("{} has no cache=l1: only cp_async chooses a cache", placed.kind.name());
        return Err(no(8, message).help(format!("copy_with {name} cp_async cache=l1, or leave cache=l1 out")));
    }
    if placed.kind == CopyKind::Tma && dataflow::gathers(stage) {
        let message = format!("block `{name}` reads at an index that is a datum, which tma cannot look up");
        return Err(no(4, message).help(format!("copy_with {name} cp_async")));
    }
    let Some((from, to)) = sides(func, stage) else {
        return Err(
            no(2, format!("block `{name}` is not a copy")).help("cache_read and cache_write make blocks that copy")
        );
    };
    let around = find::around(&func.body, stage.name)?;
    let refusal = match placed.kind {
        CopyKind::Sync => None,
        CopyKind::CpAsync => cp_async(func, name, &around, &from, &to),
        CopyKind::Tma => tma(func, name, &around, &from, &to),
    };
    if let Some((n, message)) = refusal {
        return Err(no(n, message).help(match placed.kind {
            CopyKind::Tma => "tma copies whole boxes of rows of 16 bytes and their multiples, by serial loops; else cp_async",
            _ => "cp_async copies 4, 8 or 16 bytes from global to shared memory, by serial, bound or vectorized loops; else sync",
        }));
    }
    match placed.multicast.and_then(|l| multicast(func, name, stage, placed.kind, &around, l)) {
        Some(message) => Err(no(7, message).help(
            "multicast= takes a loop around the block that is bound to cluster and whose iterations copy the same \
             region",
        )),
        None => Ok(()),
    }
}

/// Where the stage reads and where it writes, if it is a copy.
fn sides(func: &Func, stage: &Block) -> Option<(Side, Side)> {
    let [Stmt::Store(store)] = stage.body.as_slice() else { return None };
    let source = store.value.zero_filled().map_or(&store.value, |(_, value)| value);
    let Expr::Load { buffer, indices, .. } = source.ungathered() else { return None };
    let same = func.buffer(*buffer).dtype == func.buffer(store.buffer).dtype;
    if stage.init.is_some() || *buffer == store.buffer || !same {
        return None;
    }
    let bindings: visit::Map = stage.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
    let side = |buffer: BufferId, indices: &[Index]| Side {
        buffer,
        indices: indices.iter().map(|i| visit::subst_index(i, &bindings)).collect(),
    };
    Some((side(*buffer, indices), side(store.buffer, &store.indices)))
}

type Broken = Option<(usize, String)>;

fn cp_async(func: &Func, name: &str, around: &[&For], from: &Side, to: &Side) -> Broken {
    let (source, target) = (func.buffer(from.buffer), func.buffer(to.buffer));
    if (source.scope, target.scope) != (Scope::Global, Scope::Shared) {
        let (a, b) = (source.scope.name(), target.scope.name());
        return Some((3, format!("block `{name}` copies from {a} to {b} memory")));
    }
    let vector = around.last().filter(|l| l.kind == LoopKind::Vectorized)?;
    let bits = vector.extent.as_int()?.saturating_mul(i64::from(source.dtype.bits()));
    let fits = matches!(bits, 32 | 64 | 128);
    (!fits).then(|| (3, format!("loop `{}` makes {bits} bits, not 4, 8 or 16 bytes", func.var_name(vector.var))))
}

fn tma(func: &Func, name: &str, around: &[&For], from: &Side, to: &Side) -> Broken {
    let (source, target) = (func.buffer(from.buffer), func.buffer(to.buffer));
    let (global, shared) = match (source.scope, target.scope) {
        (Scope::Global, Scope::Shared) => (from, to),
        (Scope::Shared, Scope::Global) => (to, from),
        (a, b) => return Some((4, format!("block `{name}` copies from {} to {} memory", a.name(), b.name()))),
    };
    // Warps that need the same box have it copied once; what a warp has staged by itself it may store by itself.
    let stores = target.scope == Scope::Global;
    let own = |l: &For| !stores && [global, shared].iter().any(|s| s.indices.iter().any(|i| i.mentions(l.var)));
    let bound = |l: &For, a: Axis| a.level() > Axis::Warp.level() || a.level() == Axis::Warp.level() && own(l);
    if let Some(l) = around.iter().find(|l| l.axis().is_some_and(|a| bound(l, a))) {
        let axis = l.axis().map(Axis::name).unwrap_or_default();
        return Some((4, format!("loop `{}` around `{name}` is bound to {axis}", func.var_name(l.var))));
    }
    let rows = box_of(around, global, shared);
    if rows.is_empty() {
        return Some((5, format!("no serial loop directly around `{name}` moves by one along both buffers")));
    }
    let (array, rank) = (&func.buffer(global.buffer).name, global.indices.len());
    if rank > 5 {
        return Some((5, format!("block `{name}` copies a box of `{array}`, which has {rank} dimensions")));
    }
    // Of elements below a byte TMA copies bytes.
    let bits = i64::from(func.buffer(global.buffer).dtype.bits());
    let most = |v: &Var| if moves(global, *v) == Some((rank - 1, 1)) { 256 * (8 / bits).max(1) } else { 256 };
    if let Some((v, extent)) = rows.iter().find(|(v, extent)| *extent > most(v)) {
        return Some((5, format!("loop `{}` makes a box of {extent}", func.var_name(*v))));
    }
    strides(func.buffer(global.buffer), global, &rows).map(|message| (6, message))
}

/// The innermost loops of a box, with their extents: the global side moves by one along a dimension of its own, the shared side
/// along one dimension by as much as the loops inside fill there.
fn box_of(around: &[&For], global: &Side, shared: &Side) -> Vec<(Var, i64)> {
    let mut rows: Vec<(Var, i64)> = Vec::new();
    let mut taken: Vec<usize> = Vec::new();
    let mut filled = vec![1i64; shared.indices.len()];
    for (n, l) in around.iter().enumerate().rev() {
        let only = around.get(n + 1).is_none_or(|_| l.body.len() == 1);
        let (LoopKind::Serial, Some(extent), true) = (l.kind, l.extent.as_int(), only && l.body.len() == 1) else {
            break;
        };
        if l.raster.is_some() || l.pipeline.is_some() {
            break;
        }
        if extent == 1 {
            continue;
        }
        let (Some((d, 1)), Some((s, step))) = (moves(global, l.var), moves(shared, l.var)) else { break };
        if taken.contains(&d) || step != filled[s] {
            break;
        }
        taken.push(d);
        filled[s] = filled[s].saturating_mul(extent);
        rows.push((l.var, extent));
    }
    rows
}

/// The one dimension of the side along which the loop moves, and by how much.
fn moves(side: &Side, var: Var) -> Option<(usize, i64)> {
    let mut mentioned = side.indices.iter().enumerate().filter(|(_, i)| i.mentions(var));
    let (dim, index) = mentioned.next()?;
    let sum = affine(index);
    let step = sum.coefficient(var);
    let plain = sum.terms.iter().filter(|(atom, _)| atom.mentions(var)).count() == 1 && step > 0;
    (mentioned.next().is_none() && plain).then_some((dim, step))
}

fn strides(buffer: &Buffer, global: &Side, rows: &[(Var, i64)]) -> Option<String> {
    let name = &buffer.name;
    let Some(strides) = layout::strides(buffer) else {
        return Some(format!("the strides of `{name}` are not constants"));
    };
    let bits = i64::from(buffer.dtype.bits());
    let last = strides.len().saturating_sub(1);
    if strides.last() != Some(&1) {
        return Some(format!("the last dimension of `{name}` is not contiguous"));
    }
    if let Some(stride) = strides[..last].iter().find(|s| s.saturating_mul(bits) % 128 != 0) {
        return Some(format!("a stride of `{name}`, {stride} elements, is not a multiple of 16 bytes"));
    }
    let inner = rows.iter().find(|(v, _)| moves(global, *v) == Some((last, 1))).map_or(1, |(_, extent)| *extent);
    if inner.saturating_mul(bits) % 128 != 0 {
        return Some(format!("rows of {inner} elements of `{name}` are not a multiple of 16 bytes"));
    }
    (buffer.align < 16).then(|| format!("`{name}` is aligned to {} bytes only", buffer.align))
}

fn multicast(func: &Func, name: &str, stage: &Block, kind: CopyKind, around: &[&For], var: Var) -> Option<String> {
    let l = func.var_name(var);
    if kind != CopyKind::Tma {
        return Some(format!("{} has no multicast", kind.name()));
    }
    let Some(found) = around.iter().find(|l| l.var == var) else {
        return Some(format!("loop `{l}` is not around `{name}`"));
    };
    if !matches!(found.kind, LoopKind::Serial | LoopKind::Bound { axis: Axis::Cluster, .. }) {
        return Some(format!("loop `{l}` is not a cluster's"));
    }
    let mentioned = stage.iters.iter().any(|i| i.binding.mentions(var)) || stage.predicate.mentions(var);
    mentioned.then(|| format!("`{name}` copies another region for each iteration of `{l}`"))
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{program, refuses, refuses_on, steps};

    const GEMM: &str = "gemm 64x64x64 f16>f32>f16 NT";
    const STAGE: &str = "split i 4 16 -> ic im; split k 4 16 -> k0 ki; reorder ic k0 im j ki; \
                         cache_read mma A shared -> A_s; compute_at A_s k0 -> r c; \
                         cache_read mma B shared -> B_s; compute_at B_s k0 -> br bc; ";

    fn staged(more: &str) -> String {
        format!("{STAGE}{more}")
    }

    #[test]
    fn boxes_are_copied() {
        let text = steps(GEMM, &staged("bind ic cluster; copy_with A_s tma; copy_with B_s tma multicast=ic"));
        assert!(text.contains("tma") && text.contains("multicast"), "{text}");
        // Warps store what they staged, each by itself.
        let own = "cache_write out C shared -> C_s; split C_s_0 ? 16 -> iw im; bind iw warp; copy_with C_s tma";
        assert!(steps(GEMM, own).contains("tma"));
        steps(GEMM, &staged("vectorize c; copy_with A_s sync"));
        steps(GEMM, &staged("split c 2 8; vectorize c_1; copy_with A_s cp_async"));
    }

    #[test]
    fn refusals() {
        let no = |more: &str, code: &str, message: &str| refuses(GEMM, &staged(more), code, message);
        no("copy_with A_s sync; copy_with A_s tma", "copy_with.1", "block `A_s` already copies with sync");
        no("copy_with out sync", "copy_with.2", "block `out` is not a copy");
        no("copy_with mma tma", "copy_with.2", "block `mma` is not a copy");
        no(
            "set_scope A_s local; copy_with A_s cp_async",
            "copy_with.3",
            "block `A_s` copies from global to local memory",
        );
        no("vectorize c; copy_with A_s cp_async", "copy_with.3", "loop `c` makes 256 bits, not 4, 8 or 16 bytes");
        no("set_scope A_s local; copy_with A_s tma", "copy_with.4", "block `A_s` copies from global to local memory");
        no("bind r warp; copy_with A_s tma", "copy_with.4", "loop `r` around `A_s` is bound to warp");
        no("unroll c; copy_with A_s tma", "copy_with.5", "no serial loop directly around `A_s`");
        no("split c 4 4; copy_with A_s tma", "copy_with.6", "rows of 4 elements of `A` are not a multiple of 16 bytes");
        no("copy_with A_s tma cache=l1", "copy_with.8", "tma has no cache=l1: only cp_async chooses a cache");
        no("copy_with A_s sync multicast=ic", "copy_with.7", "sync has no multicast");
        no("copy_with A_s tma multicast=ic", "copy_with.7", "`A_s` copies another region for each iteration of `ic`");
        no("copy_with B_s tma multicast=im", "copy_with.7", "loop `im` is not around `B_s`");
        no("bind ic threadIdx.x; copy_with B_s tma multicast=ic", "copy_with.4", "loop `ic` around `B_s` is bound to");
        no("bind ic blockIdx.x; copy_with B_s tma multicast=ic", "copy_with.7", "loop `ic` is not a cluster's");
    }

    #[test]
    fn later_steps_cannot_break_a_copy() {
        let message = "loop `r` around `A_s` is bound to threadIdx.x";
        refuses(GEMM, &staged("copy_with A_s tma; bind r threadIdx.x"), "copy_with.4", message);
    }

    #[test]
    fn strides_and_boxes_have_limits() {
        let stage = "cache_read mma A shared -> A_s; copy_with A_s tma";
        let strided = program("gemm 4x4x12 f16>f32>f16 NT");
        refuses_on(&strided, stage, "copy_with.6", "a stride of `A`, 12 elements, is not a multiple of 16 bytes");
        refuses("gemm 512x8x8 f16>f32>f16 NT", stage, "copy_with.5", "loop `A_s_0` makes a box of 512");
        let six = "program p\ninput A f16[2, 2, 2, 2, 2, 8]\nB: output B[a, b, c, d, e, f] f16 = A[a, b, c, d, e, f]";
        refuses(
            six,
            "cache_read B A shared -> A_s; copy_with A_s tma",
            "copy_with.5",
            "block `A_s` copies a box of `A`, which has 6 dimensions",
        );
        let mut func = program("gemm 4x4x16 f16>f32>f16 NT");
        func.buffers[0].align = 8;
        refuses_on(&func, stage, "copy_with.6", "`A` is aligned to 8 bytes only");
        let mut func = program("gemm 4x4x16 f16>f32>f16 NT");
        func.buffers[0].strides = Some(vec![64, 2]);
        refuses_on(&func, stage, "copy_with.6", "the last dimension of `A` is not contiguous");
    }
}
