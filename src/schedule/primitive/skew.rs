//! `skew BLOCK LOOP [i] -> [SHIFT] [multiple=M] -> STAGES.. [loops..]`: the terms that LOOP combines come SHIFT iterations
//! later, by a shift that depends on the output: iteration `k` combines what iteration `k - SHIFT` did. SHIFT is an
//! expression of loops of BLOCK. LOOP grows by the largest shift, and from there to a multiple of M.
//!
//! Each operand that LOOP's iterator indexes is read through a new stage and buffer `OPERAND_skew` before the root's nest,
//! which holds the neutral element of BLOCK's operation before the operand's beginning, as often as the largest shift
//! reaches back, and behind its end. Stages come in the order in which BLOCK reads; compute_inline takes them into the copies
//! that read them. (Loop skewing: Wolfe 1986. Here the wavefront is a window on memory: tiles of LOOP begin where a row of
//! an operand does in a line of the cache.)
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Conditions and numbers over LOOP's iterator are stated for the iteration that they belonged to.
//!
//! Preserves: the output, bit for bit: the terms combine in their order, between neutral ones.
//!
//! ```text
//! for i in 0..4                   skew S k [i] -> [i % 2 * 3]    for i in 0..4
//!   for k in 0..6                                                  for k in 0..9
//!     S: S[i] += A[i, k]                                             S: S[i] += A_skew[i, k + 3 - i % 2 * 3]
//! ```
//! where `A_skew[i, x]` is `select(3 <= x < 9, A[i, x - 3], 0)`.

use super::pad::check::{Access, Check, Plan};
use super::pad::{grow, names, within};
use super::{Applied, ParamKind, Parameter, Primitive, transform_block_layout};
use crate::error::Result;
use crate::ir::print::Node;
use crate::ir::simplify::{self, Env};
use crate::ir::{Block, Buffer, BufferId, Cond, Expr, Func, Index, IterKind, Scope, Stmt, Store, Var, visit};
use crate::schedule::copy::{self, Made};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, IndexMap, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "skew",
    about: "Shifts the terms of a reduction along their loop, by an expression of the output's loops: the terms \
            shifted in are neutral.",
    example: "program rows\n\
              input A f32[4, 6]\n\
              S: output S[i 4] f32 = sum(k 6) A[i, k]\n\
              target sm_80\n\
              skew S k [i] -> [i % 2 * 3]",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("loop", ParamKind::Loop),
        Parameter::place("map", ParamKind::Map),
        Parameter::option("multiple", ParamKind::Int),
        Parameter::made("stages", ParamKind::Blocks),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "M is positive, and what the extents grow to stays within the largest number",
        "LOOP is serial, carries no placement, has a constant extent, holds BLOCK alone, and runs one whole iterator of \
         BLOCK by itself; BLOCK has no predicate",
        "BLOCK alone writes its output, as a sum, product, minimum or maximum from its neutral constant, and LOOP's \
         iterator is one that it combines over",
        "BLOCK reads at the plain iterator wherever it occurs, and in bounds in the added iterations",
        "beyond the old domain of the iterator, the term is the neutral element",
        "operands are written before the root's nest that holds BLOCK, and each writer fills a box without holes",
        "BLOCK is nested in loops only, none of them tensorized",
        "the map has one output, and names loops that run whole spatial iterators of BLOCK by themselves",
        "no value of the shift is negative, and its bounds are known",
    ],
    apply,
};

/// By how much terms shift.
struct Shift {
    /// Over BLOCK's iterators.
    by: Index,
    /// The largest value.
    most: i64,
}

/// Shifts of so many outputs are looked at one by one.
const EACH: i64 = 1 << 16;

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("skew", func);
    let block = find::block(func, args.get_word("block")?)?;
    let l = find::loop_(func, args.get_word("loop")?)?;
    let shift = shift(refusal, func, block, args.get_map("map")?)?;
    let multiple = (func.var_name(l.var).to_string(), args.find_int("multiple").unwrap_or(1));
    let check = Check { refusal, func, block, more: shift.most };
    let plan = check.all(&[multiple])?;
    if plan.grown.iter().any(|g| g.kind != IterKind::Reduce) {
        let (name, var) = (func.block_name(block.name), func.var_name(l.var));
        let message = format!("{name} combines nothing over `{var}`, which is an index of its output");
        return Err(refusal.broken(3, message, &[(Node::Loop(l.var), "this loop")]));
    }
    let made = names(func, &plan, "skew", &args.names)?;
    let names = made.iter().map(|m| m.stage.clone()).chain(made.iter().flat_map(|m| m.loops.clone())).collect();
    Ok(Applied { func: check.in_bounds(rewrite(func.clone(), block, &plan, &shift, &made))?, names })
}

/// Requirements 8 and 9.
fn shift(refusal: Refusal, func: &Func, block: &Block, map: &IndexMap) -> Result<Shift> {
    let name = func.block_name(block.name);
    let this = [(Node::Block(block.name), "this block")];
    let [shift] = map.outputs.as_slice() else {
        let message = format!("`{map}` has {} outputs, and a shift is one", map.outputs.len());
        return Err(refusal.broken(8, message, &this));
    };
    let (mut env, mut inputs, mut extents) = (Env::new(), Vec::new(), Vec::new());
    for l in find::loops(func, &map.inputs)? {
        let it = transform_block_layout::whole_iterator(block, l);
        let Some((it, extent)) = it.and_then(|it| Some((it.var, it.extent.as_int()?))) else {
            let var = func.var_name(l.var);
            let message = format!("loop `{var}` does not run one whole spatial iterator of {name} by itself");
            let nodes = [this[0], (Node::Loop(l.var), "this loop")];
            return Err(refusal.broken(8, message, &nodes).help("skew before splitting, fusing and placing"));
        };
        env.bind(it, 0, extent - 1);
        inputs.push(Index::Var(it));
        extents.push(extent);
    }
    let by = simplify::simplify(&map.apply(&inputs).remove(0), &env);
    match bounds(shift, &extents).or_else(|| simplify::bounds(&by, &env)) {
        Some((0.., most)) => Ok(Shift { by, most }),
        Some((least, _)) => {
            let message = format!("the shift `{map}` has values down to {least}");
            let help = format!("add {} to it: the shift of a term is at least 0 iterations", least.unsigned_abs());
            Err(refusal.broken(9, message, &this).help(help))
        }
        None => Err(refusal.broken(9, format!("the shift `{map}` has no value for some output"), &this)),
    }
}

/// The least and the largest value over few inputs from 0 to their extents, by trying all of them; `None` where they are many.
fn bounds(shift: &Index, extents: &[i64]) -> Option<(i64, i64)> {
    let points = extents.iter().try_fold(1i64, |n, e| n.checked_mul(*e)).filter(|n| *n <= EACH)?;
    let mut found: Option<(i64, i64)> = None;
    for point in 0..points {
        let mut rest = point;
        let mut at = Vec::with_capacity(extents.len());
        for extent in extents {
            at.push(rest % extent);
            rest /= extent;
        }
        let value = shift.eval(&|Var(n)| at.get(n as usize).copied())?;
        let (least, most) = found.unwrap_or((value, value));
        found = Some((least.min(value), most.max(value)));
    }
    found
}

fn rewrite(mut func: Func, block: &Block, plan: &Plan, shift: &Shift, made: &[Made]) -> Func {
    let mut replaced: Vec<(&Access, BufferId)> = Vec::new();
    for (root, (read, made)) in (plan.root..).zip(plan.reads.iter().zip(made)) {
        let dtype = func.buffer(read.buffer).dtype;
        let fill = plan.combination.as_ref().and_then(|c| c.fill(dtype));
        let fill = fill.unwrap_or_else(|| Expr::constant(dtype, 0.0));
        let to = add_buffer(&mut func, read, shift.most, made);
        let stage = shifted(&mut func, read, (to, shift.most), fill, made);
        func.body.insert(root, stage);
        replaced.push((read, to));
    }
    grow(&mut func.body, &plan.grown);
    let later = |i: &Index| i.clone() + shift.most - shift.by.clone();
    // Conditions and numbers mean the iteration of the term, which is that of the loop less the shift.
    let earlier: visit::Map = plan.grown.iter().map(|g| (g.iter, Index::Var(g.iter) - shift.by.clone())).collect();
    visit::change_block(&mut func.body, block.name, &mut |b| {
        for it in &mut b.iters {
            if let Some(g) = plan.grown.iter().find(|g| g.iter == it.var) {
                it.extent = Index::Int(g.to);
            }
        }
        b.body = visit::map_body(std::mem::take(&mut b.body), &mut Index::clone, &mut |e| match e {
            Expr::Load { buffer, indices, lanes } => {
                match replaced.iter().find(|(read, _)| read.buffer == buffer && read.at == indices) {
                    Some((read, to)) => {
                        let dims = indices.iter().zip(&read.dims);
                        let at = dims.map(|(i, d)| if d.grown.is_some() { later(i) } else { i.clone() });
                        Expr::Load { buffer: *to, indices: at.collect(), lanes }
                    }
                    None => Expr::Load { buffer, indices, lanes },
                }
            }
            Expr::Cond(c) => Expr::Cond(Box::new(visit::subst_cond(&c, &earlier))),
            Expr::Index(t, i) => Expr::Index(t, Box::new(visit::subst_index(&i, &earlier))),
            e => e,
        });
    });
    func
}

/// A buffer like the accessed one, with room before and behind.
fn add_buffer(func: &mut Func, access: &Access, before: i64, made: &Made) -> BufferId {
    let like = func.buffer(access.buffer);
    let dims = access.dims.iter().zip(&like.shape);
    let shape = dims.map(|(d, extent)| d.grown.map_or(extent.clone(), |g| Index::Int(before + g.to))).collect();
    let buffer = Buffer::new(&made.stage, like.dtype, shape, Scope::Global);
    func.add_buffer(buffer)
}

/// The stage that stores an operand behind `before` neutral elements, and as many more as there is room for.
fn shifted(func: &mut Func, read: &Access, (to, before): (BufferId, i64), fill: Expr, made: &Made) -> Stmt {
    let shape = func.buffer(to).shape.clone();
    let dims = read.dims.iter().zip(shape).map(|(d, extent)| {
        let all = crate::ir::region::Range { min: Index::Int(0), extent: extent.clone() };
        (if d.grown.is_some() { all } else { d.range.clone() }, extent)
    });
    let dims: Vec<_> = dims.collect();
    copy::over(func, made, &dims, &[], &|_| Vec::new(), |at| {
        let (mut from, mut inside) = (at.clone(), Cond::TRUE);
        for (index, dim) in from.iter_mut().zip(&read.dims) {
            if let Some(g) = dim.grown {
                let own = std::mem::replace(index, index.clone() - before);
                let mut range = dim.read.clone();
                range.min = range.min + before;
                inside = inside.and(within(&own, &range, before + g.to));
            } else if dim.read != dim.range {
                inside = inside.and(within(index, &dim.read, i64::MAX));
            }
        }
        let load = Expr::load(read.buffer, from);
        let value = if inside.is_true() { load } else { Expr::select(Expr::Cond(Box::new(inside)), load, fill) };
        Store::new(to, at, value)
    })
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{limit, program, refuses, refuses_on, steps, symbolic, tensorize};

    const GEMM: &str = "gemm 6x5x7 f32 NN";
    const ROWS: &str = "program rows
        input A f32[4, 6]
        S: output S[i 4] f32 = sum(k 6) A[i, k]";

    #[test]
    fn terms_come_later() {
        let text = steps(ROWS, "skew S k [i] -> [i % 2 * 3]");
        for line in [
            "A_skew: global f32[4, 12]\n",
            "A_skew[v0, v1] = select(v1 >= 3 and v1 < 9, A[v0, v1 - 3], 0.0)\n",
            "for k in 0..9\n      block S(vi = i, reduce vk = k)\n",
            "S[vi] = S[vi] + A_skew[vi, vk + 3 - vi % 2*3]\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        let text = steps(ROWS, "skew S k [i] -> [i % 2 * 3] multiple=8 -> L");
        assert!(text.contains("for k in 0..16\n") && text.contains("L: global f32[4, 19]"), "{text}");
    }

    #[test]
    fn every_factor_shifts_alike() {
        let text = steps(GEMM, "skew C k [i] -> [i * 3 % 4] multiple=4");
        let sum = "C[vi, vj] = C[vi, vj] + A_skew[vi, vk + 3 - vi*3 % 4]*B_skew[vk + 3 - vi*3 % 4, vj]\n";
        assert!(text.contains(sum) && text.contains("for k in 0..12\n"), "{text}");
        // The largest shift is the largest of those that occur: 0, 3 and 2 of the rows 0 to 2.
        assert!(steps("gemm 3x5x7 f32 NN", "skew C k [i] -> [i * 3 % 5]").contains("for k in 0..10\n"));
    }

    #[test]
    fn conditions_and_numbers_shift_with_their_terms() {
        let banded = "program banded
            input A f32[2, 4]
            input B f32[4, 2]
            T: output T[i 2] f32 = sum(k 4) select(k < 2, A[i, k], B[k, i])";
        let text = steps(banded, "skew T k [i] -> [i]");
        let sum = "T[vi] = T[vi] + select(vk - vi < 2, A_skew[vi, vk + 1 - vi], B_skew[vk + 1 - vi, vi])\n";
        assert!(text.contains(sum), "{text}");
        let numbers = "program numbers
            input A s32[2, 4]
            T: output T[i 2] s32 = sum(k 4) A[i, k] * s32(k)";
        let text = steps(numbers, "skew T k [i] -> [i]");
        assert!(text.contains("A_skew[vi, vk + 1 - vi]*s32(vk - vi)"), "{text}");
    }

    #[test]
    fn extremes_shift_among_their_own_elements() {
        let most = ROWS.replace("sum(k 6)", "max(k 6)");
        assert!(steps(&most, "skew S k [i] -> [i]").contains("A[v0, v1 - 3], -inf)"));
    }

    #[test]
    fn stages_vanish_into_the_copies_beside_them() {
        let text =
            "pad C i=4; skew C k [i] -> [i % 2]; cache_read C A_pad_skew shared -> A_s; compute_inline A_pad_skew
            compute_inline A_pad";
        let text = steps(GEMM, text);
        assert!(text.contains("A_s[v0, v1] = select(v1 >= 1 and v1 < 8 and v0 < 6, A[v0, v1 - 1], 0.0)\n"), "{text}");
    }

    #[test]
    fn shared_requirements_are_checked() {
        let no = |steps: &str, code: &str, message: &str| refuses(GEMM, steps, code, message);
        no("skew C k [i] -> [i] multiple=0", "skew.1", "the multiple 0 of loop `k` is not positive");
        no("skew C k [i] -> [i * 1099511627776]", "skew.1", "loop `k` would grow beyond");
        no("unroll k; skew C k [i] -> [i]", "skew.2", "loop `k` is unrolled");
        no("split k ? 4; skew C k_0 [i] -> [i]", "skew.2", "loop `k_0` does not run one whole iterator of C");
        let mut func = program(GEMM);
        limit(&mut func, "C", "vi", 4);
        refuses_on(&func, "skew C k [i] -> [i]", "skew.2", "C has a predicate");
        let mut func = program(GEMM);
        symbolic(&mut func, "k");
        refuses_on(&func, "skew C k [i] -> [1]", "skew.2", "the extent of loop `k` is not a constant");
        no("skew C j [i] -> [i]", "skew.3", "C combines nothing over `j`");
        let window = "program window
            input A f32[12]
            B: output B[i 9] f32 = sum(w 3) A[i + w]";
        refuses(window, "skew B w [i] -> [i]", "skew.4", "B reads A at an expression of `vw`, not at `vw` itself");
        let plus = ROWS.replace("A[i, k]", "A[i, k] + 1.0");
        let message = "beyond the end of `k` the term of S is not its neutral element";
        refuses(&plus, "skew S k [i] -> [i]", "skew.5", message);
        let chain = "program chain
            input A f32[6, 3]
            X: X[i 6, k 3] f32 = A[i, k]*2.0
            S: output S[i 6] f32 = sum(k 3) X[i, k]";
        let early = "compute_at X S_i; skew S S_k [S_i] -> [S_i]";
        refuses(chain, early, "skew.6", "X writes what S reads, not before its nest");
        let mut func = program(GEMM);
        tensorize(&mut func, "j");
        refuses_on(&func, "skew C k [i] -> [i]", "skew.7", "C is in the tensorized nest j");
    }

    #[test]
    fn shifts_are_checked() {
        let no = |map: &str, code: &str, message: &str| refuses(GEMM, &format!("skew C k {map}"), code, message);
        no("[i] -> [i, i]", "skew.8", "`[i] -> [i, i]` has 2 outputs, and a shift is one");
        no("[k] -> [k]", "skew.8", "loop `k` does not run one whole spatial iterator of C");
        refuses(GEMM, "split i ? 2 -> a b; skew C k [a] -> [a]", "skew.8", "loop `a` does not run one whole");
        no("[i] -> [i - 2]", "skew.9", "the shift `[i] -> [i - 2]` has values down to -2");
        no("[i] -> [4 // i]", "skew.9", "the shift `[i] -> [4 // i]` has no value for some output");
    }
}
