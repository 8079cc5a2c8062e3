//! `pad BLOCK L=MULTIPLE.. -> STAGES.. [loops..]`: the domains of the iterators that the loops L run grow to multiples.
//!
//! Each operand that such an iterator indexes is read through a new stage and buffer `OPERAND_pad` before the root's
//! nest, which holds the operand where there is one (beyond what was read of it too, where a spatial iterator reaches what
//! is written there) and the neutral element of BLOCK's operation elsewhere; an undefined value (`any`) where
//! spatial iterators alone grow. Where a spatial iterator grows, BLOCK writes a new buffer `OUTPUT_pad`, and a stage of that
//! name behind the nest copies what belongs to the output. Stages come in the order in which BLOCK reads, the output's last, whether the domain grows or not; compute_inline takes them into the
//! copies that read them, reverse_compute_inline the last one into the copy that writes it.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the output, bit for bit: neutral terms change no sum.
//!
//! ```text
//!                                          for A_pad_0 in 0..8: A_pad: A_pad[..] = select(A_pad_0 < 6, A[A_pad_0], 0.0)
//! for k in 0..6: S: S[0] += A[k]     ->    for k in 0..8: S: S[0] += A_pad[k]
//! ```

pub(super) mod check;

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::region::Range;
use crate::ir::simplify::{self, Env};
use crate::ir::{Buffer, BufferId, Cond, Expr, Func, Index, IterKind, Literal, Scope, Stmt, Store, visit};
use crate::schedule::copy::{self, Made};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, find};
use check::{Access, Check, Dim, Grown, Plan};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "pad",
    about: "Extends domains to multiples: operands are read through padded buffers that hold the neutral element \
            beyond their ends, or any value where that reaches no result.",
    example: "gemm 100x64x64 f32 NN\n\
              target sm_80\n\
              pad C i=16",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("multiples", ParamKind::Multiples),
        Parameter::made("stages", ParamKind::Blocks),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "every multiple is positive, and what the extents grow to stays within the largest number",
        "each L is serial, carries no placement, has a constant extent, holds BLOCK alone, and runs one whole iterator of \
         BLOCK by itself; BLOCK has no predicate but that such iterators stay below a dynamic size",
        "BLOCK alone writes its output, one element an iteration: at once, or as a sum, product, minimum or maximum from \
         its neutral constant",
        "BLOCK reads and writes at the plain iterator wherever one that L runs occurs, and in bounds in the added \
         iterations; or it reads along that dimension what the other iterations read",
        "beyond the old domain of a reduce iterator, the term is the neutral element",
        "operands are written before the root's nest that holds BLOCK, its output is read after that nest, and each \
         writer fills a box without holes",
        "BLOCK is nested in loops only, none of them tensorized",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("pad", func);
    let block = find::block(func, args.get_word("block")?)?;
    let check = Check { refusal, func, block, more: 0 };
    let plan = check.all(args.get_multiples("multiples")?)?;
    let made = names(func, &plan, "pad", &args.names)?;
    let names = made.iter().map(|m| m.stage.clone()).chain(made.iter().flat_map(|m| m.loops.clone())).collect();
    Ok(Applied { func: check.in_bounds(rewrite(func.clone(), block.name, &plan, &made))?, names })
}

/// Names of the stages, by default those of their buffers with an end, and of their loops.
pub(super) fn names(func: &Func, plan: &Plan, end: &str, stated: &[String]) -> Result<Vec<Made>> {
    let all: Vec<&Access> = plan.reads.iter().chain(&plan.output).collect();
    let defaults: Vec<String> = all.iter().map(|a| format!("{}_{end}", func.buffer(a.buffer).name)).collect();
    let (stages, loops) = stated.split_at(stated.len().min(all.len()));
    let stages = find::new_stages(func, stages, &defaults)?;
    let numbered = stages.iter().zip(&all).flat_map(|(s, a)| (0..a.at.len()).map(move |n| format!("{s}_{n}")));
    let mut loops = find::new_loops_from(func, loops, &numbered.collect::<Vec<_>>(), &[])?.into_iter();
    let made = stages.into_iter().zip(all);
    Ok(made.map(|(stage, a)| Made { stage, loops: loops.by_ref().take(a.at.len()).collect() }).collect())
}

fn rewrite(mut func: Func, block: crate::ir::BlockId, plan: &Plan, made: &[Made]) -> Func {
    let mut root = plan.root;
    let mut replaced: Vec<(BufferId, &[Index], BufferId)> = Vec::new();
    for (read, made) in plan.reads.iter().zip(made) {
        let fill = plan.combination.as_ref().and_then(|c| c.fill(func.buffer(read.buffer).dtype));
        let to = add_buffer(&mut func, read, made);
        let stage = filled(&mut func, read, to, fill, made);
        func.body.insert(root, stage);
        root += 1;
        replaced.push((read.buffer, &read.at, to));
    }
    let cropped = plan.output.as_ref().zip(made.last()).map(|(output, made)| {
        let from = add_buffer(&mut func, output, made);
        let stage = crop(&mut func, output, from, made);
        func.body.insert(root + 1, stage);
        (output.buffer, from)
    });
    grow(&mut func.body, &plan.grown);
    let domains: Vec<Cond> = plan.grown.iter().filter_map(|g| g.below(&func)).collect();
    visit::change_block(&mut func.body, block, &mut |b| {
        let rest = b.predicate.conjuncts().into_iter().filter(|part| !domains.contains(part)).cloned();
        b.predicate = rest.fold(Cond::TRUE, Cond::and);
        for it in &mut b.iters {
            if let Some(g) = plan.grown.iter().find(|g| g.iter == it.var) {
                it.extent = Index::Int(g.to);
            }
        }
        for body in b.init.iter_mut().chain([&mut b.body]) {
            *body = through(std::mem::take(body), &replaced, cropped);
        }
    });
    func
}

/// The loops as long as they will be.
pub(super) fn grow(body: &mut [Stmt], grown: &[Grown]) {
    for g in grown {
        visit::change_loop(body, g.run_by, &mut |l| l.extent = Index::Int(g.to));
    }
}

/// A buffer like the accessed one, with the dimensions grown.
fn add_buffer(func: &mut Func, access: &Access, made: &Made) -> BufferId {
    let like = func.buffer(access.buffer);
    let extent = |(dim, extent): (&Dim, &Index)| dim.grown.map_or(extent.clone(), |g| Index::Int(g.to));
    let shape = access.dims.iter().zip(&like.shape).map(extent).collect();
    let buffer = Buffer::new(&made.stage, like.dtype, shape, Scope::Global);
    func.add_buffer(buffer)
}

/// The stage that reads an operand inside its old domain and stores `fill` (0 unless stated) beyond. Where spatial iterators alone grow, the values
/// beyond are undefined, because the results of the added iterations are cropped.
fn filled(func: &mut Func, read: &Access, to: BufferId, fill: Option<Expr>, made: &Made) -> Stmt {
    let dtype = func.buffer(read.buffer).dtype;
    let mut narrowed = read.dims.iter().filter(|dim| dim.grown.is_some() || dim.read != dim.range);
    let fill = match narrowed.all(|dim| dim.grown.is_some_and(|g| g.kind == IterKind::Spatial)) {
        true => Expr::Const(dtype, Literal::Any),
        false => fill.unwrap_or_else(|| Expr::constant(dtype, 0.0)),
    };
    let dims = boxed(func, read, |g| (g.to, Index::Int(g.to)));
    let ends: Vec<i64> = dims.iter().map(|(_, extent)| extent.as_int().unwrap_or(i64::MAX)).collect();
    copy::over(func, made, &dims, &[], &|_| Vec::new(), |at| {
        let all = read.dims.iter().zip(&at).zip(&ends);
        // Elsewhere the stage sweeps no more than is read.
        let part = all.filter(|((dim, _), _)| dim.grown.is_some() || dim.read != dim.range);
        let inside = part.fold(Cond::TRUE, |all, ((dim, v), end)| all.and(within(v, &dim.read, *end)));
        let load = Expr::load(read.buffer, at.clone());
        let value = if inside.is_true() { load } else { Expr::select(Expr::Cond(Box::new(inside)), load, fill) };
        Store::new(to, at, value)
    })
}

/// Whether a value from 0 to `end` is in the range.
pub(super) fn within(v: &Index, range: &Range, end: i64) -> Cond {
    let mut env = Env::new();
    v.for_each_var(&mut |v| env.bind(v, 0, end - 1));
    let last = range.min.clone() + range.extent.clone();
    simplify::simplify_cond(&Cond::ge(v.clone(), range.min.clone()).and(Cond::lt(v.clone(), last)), &env)
}

/// The stage that copies what belongs to the output.
fn crop(func: &mut Func, output: &Access, from: BufferId, made: &Made) -> Stmt {
    let dims = boxed(func, output, |g| (g.from, g.end(func)));
    copy::over(func, made, &dims, &[], &|_| Vec::new(), |at| {
        let value = Expr::load(from, at.clone());
        Store::new(output.buffer, at, value)
    })
}

/// What a stage over the dimensions sweeps, and the domains of its iterators.
fn boxed(func: &Func, access: &Access, extent: impl Fn(&Grown) -> (i64, Index)) -> Vec<(Range, Index)> {
    let whole = |(sweep, domain): (i64, Index)| (Range { min: Index::Int(0), extent: Index::Int(sweep) }, domain);
    let shape = &func.buffer(access.buffer).shape;
    let dims = access.dims.iter().zip(shape).map(|(dim, all)| match &dim.grown {
        Some(g) => whole(extent(g)),
        None => (dim.range.clone(), all.clone()),
    });
    dims.collect()
}

/// The statements reading and writing the new buffers.
fn through(
    body: Vec<Stmt>,
    reads: &[(BufferId, &[Index], BufferId)],
    output: Option<(BufferId, BufferId)>,
) -> Vec<Stmt> {
    let body = visit::map_body(body, &mut Index::clone, &mut |e| {
        let Expr::Load { buffer, indices, lanes } = e else { return e };
        let padded = reads.iter().find(|(b, at, _)| *b == buffer && *at == indices).map(|(.., to)| *to);
        let own = output.filter(|(b, _)| *b == buffer).map(|(_, to)| to);
        Expr::Load { buffer: padded.or(own).unwrap_or(buffer), indices, lanes }
    });
    visit::rewrite(body, &mut |s| match (s, output) {
        (Stmt::Store(s), Some((old, new))) if s.buffer == old => vec![Stmt::Store(Store { buffer: new, ..s })],
        (s, _) => vec![s],
    })
}

#[cfg(test)]
mod tests {
    use crate::ir::{Cond, If, Stmt};
    use crate::schedule::testing::{
        another_store, limit, program, rebind, refuses, refuses_on, steps, symbolic, tensorize, two_writers,
    };

    const GEMM: &str = "gemm 5x7x3 f32 NN";

    #[test]
    fn a_block_under_a_condition_stays() {
        let mut func = program(GEMM);
        let body = std::mem::take(&mut func.body);
        func.body = vec![Stmt::If(If { cond: Cond::TRUE, body })];
        refuses_on(&func, "pad C i=4", "pad.7", "C is inside a conditional");
    }

    #[test]
    fn operands_end_in_zeros_and_the_result_is_cropped() {
        let text = steps(GEMM, "pad C i=4 j=4 k=2");
        for line in [
            "A_pad: global f32[8, 4]\n",
            "A_pad[v0, v1] = select(v0 < 5 and v1 < 3, A[v0, v1], 0.0)\n",
            "B_pad[v0, v1] = select(v0 < 3 and v1 < 7, B[v0, v1], 0.0)\n",
            "C_pad[vi, vj] = C_pad[vi, vj] + A_pad[vi, vk]*B_pad[vk, vj]\n",
            "for C_pad_1 in 0..7\n      block C_pad(v0 = C_pad_0, v1 = C_pad_1)\n        C[v0, v1] = C_pad[v0, v1]\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn stages_vanish_into_the_copies_beside_them() {
        let text = steps(
            GEMM,
            "pad C i=4 k=2 -> A_p B_p C_p; cache_write C C_p local -> C_l; reverse_compute_inline C_p
             cache_read C A_p shared -> A_s; compute_inline A_p; cache_read C B_p shared -> B_s; compute_inline B_p",
        );
        assert!(text.contains("A_s[v0, v1] = select(v0 < 5 and v1 < 3, A[v0, v1], 0.0)\n"), "{text}");
        assert!(text.contains("block C_l(v0 = C_l_0, v1 = C_l_1)\n        where C_l_0 < 5\n"), "{text}");
        assert!(!text.contains("_p"), "{text}");
    }

    #[test]
    fn what_divides_gets_plain_copies() {
        let text = steps("gemm 8x8x8 f32 NT", "pad C i=4 k=8");
        assert!(text.contains("A_pad[v0, v1] = A[v0, v1]\n") && text.contains("B_pad[v0, v1] = B[v0, v1]\n"), "{text}");
    }

    #[test]
    fn one_operand_read_in_two_ways_has_two_stages() {
        let text = "program syrk
            input A f32[5, 3]
            C: output C[i 5, j 5] f32 = sum(k 3) A[i, k]*A[j, k]";
        let text = steps(text, "pad C i=4 k=4");
        assert!(text.contains("A_pad[vi, vk]*A_pad_1[vj, vk]"), "{text}");
        assert!(text.contains("A_pad: global f32[8, 4]") && text.contains("A_pad_1: global f32[5, 4]"), "{text}");
    }

    #[test]
    fn a_quotient_that_reads_no_more_stays() {
        let scaled = "program scaled
            input A f32[5]; input S f32[3]
            C: output C[i 5] f32 = A[i]*S[i // 4]";
        assert!(steps(scaled, "pad C i=4").contains("C_pad[vi] = A_pad[vi]*S[vi // 4]\n"));
        let message = "C reads S at an expression of `vi`, not at `vi` itself";
        refuses(scaled, "pad C i=12", "pad.4", message);
    }

    #[test]
    fn an_operand_ends_where_its_own_iterator_did() {
        let text = "program corner
            input A f32[1, 2]
            S: output S[i 1] f32 = sum(k 1) max(A[k, 1], A[0, k])";
        let text = steps(text, "pad S k=2");
        assert!(text.contains("A_pad[v0, v1] = select(v0 < 1, A[v0, v1], 0.0)"), "{text}");
        assert!(text.contains("A_pad_1[v0, v1] = select(v1 < 1, A[v0, v1], 0.0)"), "{text}");
    }

    #[test]
    fn what_reads_a_padded_result_reads_on() {
        let text = "pad mma i=4 j=4 -> A_p B_p acc_p; compute_inline acc_p; pad out out_i=4 out_j=4 -> acc_q C_p";
        let text = steps("gemm 5x7x4 f16>f32>f16 NN", text);
        assert!(text.contains("acc_q[v0, v1] = acc_p[v0, v1]\n"), "{text}");
        assert!(text.contains("C[v0, v1] = C_p[v0, v1]\n"), "{text}");
        // Further than what is written, and where other blocks write too, an end is an end.
        let further = "pad mma i=4 j=4 -> A_p B_p acc_p; compute_inline acc_p; pad out out_i=16 out_j=4 -> acc_q C_p";
        let text = steps("gemm 5x7x4 f16>f32>f16 NN", further);
        assert!(text.contains("select(v0 < 5, acc_p[v0, v1], any)\n"), "{text}");
    }

    #[test]
    fn extremes_are_padded_with_their_own_element() {
        let rows = "program rows
            input A f32[5, 13]
            M: output M[i 5] f32 = max(k 13) A[i, k]";
        assert!(steps(rows, "pad M k=4").contains("select(v1 < 13, A[v0, v1], -inf)"));
        let mixed = "program mixed
            input A f16[5, 13]; input B f16[13]
            S: output S[i 5] f32 = sum(k 13) f32(A[i, k])*f32(B[k])";
        assert!(steps(mixed, "pad S k=4").contains("select(v0 < 13, B[v0], 0.0)"));
    }

    #[test]
    fn only_what_a_block_reads_is_copied() {
        let shifted = "program shifted
            input A f32[20, 9]
            Y: output Y[i 7, j 3] f32 = select(i < 5, A[i, j + 2], 0)";
        let text = steps(shifted, "pad Y i=4");
        assert!(text.contains("for A_pad_1 in 0..3\n") && text.contains("v1 = A_pad_1 + 2"), "{text}");
        assert!(text.contains("select(v0 < 5, A[v0, v1], any)"), "{text}");
    }

    #[test]
    fn multiples_and_loops_are_checked() {
        refuses(GEMM, "pad C i=0", "pad.1", "the multiple 0 of loop `i` is not positive");
        refuses(GEMM, "pad C i=1099511627776 j=1099511627776; pad C i=1099511627775", "pad.1", "loop `i` would grow");
        refuses(GEMM, "unroll k; pad C k=4", "pad.2", "loop `k` is unrolled");
        let mut func = program(GEMM);
        symbolic(&mut func, "k");
        refuses_on(&func, "pad C k=4", "pad.2", "the extent of loop `k` is not a constant");
        let shared = "cache_read C A local -> L; compute_at L j; pad C i=4";
        refuses(GEMM, shared, "pad.2", "loop `i` does not hold C alone");
        refuses("gemm 4x4x4 f16>f32>f16 NN", "pad out i=8", "pad.2", "loop `i` does not hold out alone");
        refuses(GEMM, "split k 2 2; pad C k_0=4", "pad.2", "loop `k_0` does not run one whole iterator of C by itself");
        let mut func = program(GEMM);
        limit(&mut func, "C", "vi", 4);
        refuses_on(&func, "pad C k=4", "pad.2", "C has a predicate");
        refuses(GEMM, "pad C i=4 i=4", "step.twice", "`i` is named twice");
    }

    #[test]
    fn natures_and_indices_are_checked() {
        let mut func = program(GEMM);
        another_store(&mut func, "C");
        refuses_on(&func, "pad C i=4", "pad.3", "C cannot be padded: its body is not one store");
        refuses(GEMM, "decompose_reduction C k; pad C i=4", "pad.2", "loop `i` does not hold C alone");
        let mut func = program(GEMM);
        let id = func.find_block("C").unwrap().name;
        crate::ir::visit::change_block(&mut func.body, id, &mut |b| b.init = b.body.first().map(|_| b.body.clone()));
        refuses_on(&func, "pad C k=4", "pad.3", "C cannot be padded: its init is not one store");
        refuses_on(&two_writers(), "pad S i=4", "pad.3", "T also writes what S writes");
        let window = "program window
            input A f32[12]
            B: output B[i 9] f32 = sum(w 3) A[i + w]";
        refuses(window, "pad B i=4", "pad.4", "B reads A at an expression of `vi`, not at `vi` itself");
    }

    #[test]
    fn terms_must_vanish() {
        let no = |term: &str, message: &str| {
            let text = format!("program p\ninput A f32[5, 3]; input B f32[5]\nS: output S[i 5] f32 = sum(k 3) {term}");
            refuses(&text, "pad S k=4", "pad.5", message);
        };
        let message = "beyond the end of `k` the term of S is not its neutral element";
        no("A[i, k]*B[i]", message);
        no("A[i, k] + 1.0", message);
        no("exp(A[i, k])", message);
        no("B[i]", message);
    }

    #[test]
    fn the_nest_must_stand_between_writers_and_readers() {
        let chain = "program chain
            input A f32[6, 3]
            X: X[i 6, k 3] f32 = A[i, k]*2.0
            S: S[i 6] f32 = sum(k 3) X[i, k]
            Y: output Y[i 6] f32 = S[i] + 1.0";
        steps(chain, "pad S S_i=4 S_k=4");
        refuses(chain, "compute_at X S_i; pad S S_k=4", "pad.6", "X writes what S reads, not before its nest");
        let mut func = program(chain);
        rebind(&mut func, "X", "vi", |i| i * 2);
        refuses_on(&func, "pad S S_i=4", "pad.6", "X does not write a box without holes of X");
        let mut func = program(chain);
        func.body.swap(1, 2);
        refuses_on(&func, "pad S S_i=4", "pad.6", "Y reads what S writes, not after its nest");
        let mut func = program(GEMM);
        tensorize(&mut func, "j");
        refuses_on(&func, "pad C k=4", "pad.7", "C is in the tensorized nest j");
    }
}
