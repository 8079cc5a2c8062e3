//! `promote BLOCK LOOP -> PARTS [loops]`: the sum of BLOCK is promoted: each iteration of the reduce loop LOOP sums into an element of its own
//! of the new buffer PARTS, as [`super::rfactor`] has it, and BLOCK adds these partial sums up. Factors of the terms that are the same in all
//! iterations of the other reduce loops, such as a scale for each 128 terms, leave the terms: BLOCK multiplies the partial sums by them. So do such
//! factors of a product of floats that is converted to a type which has all its values (`f32(W[k]*S[k // 128])`).
//!
//! PARTS computed at the loop over partial sums in BLOCK (`compute_at`), in fragments, are accumulators of an instruction that are
//! added to accumulators of more bits every so many terms. The instruction then sees products of two operands alone.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the result, up to the order in which terms are added and factors multiply, and the rounding of products whose factors leave. Where the
//! reduce loops are ragged, PARTS adds zeros.
//!
//! ```text
//! for k0 in 0..4                                            for k0 in 0..4
//!   for k1 in 0..8                                            for k1 in 0..8
//!     C: C[0] = C[0] + A[k0*8 + k1]*S[(k0*8 + k1) // 8]  ->     P: P[k0, 0] = P[k0, 0] + A[k0*8 + k1]
//!                                                           for C_0 in 0..4: C: C[0] = C[0] + P[C_0, 0]*S[C_0]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::BinOp;
use crate::ir::Func;
use crate::ir::print::Node;
use crate::ir::reduction::{Combiner, Reduction};
use crate::schedule::factor::{Factoring, Names};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "promote",
    about: "Splits a sum into partial sums, one for each iteration of a reduce loop; factors that a partial sum's terms share multiply the \
            partial sum.",
    example: "program scaled\n\
              input A f32[1024]\n\
              input S f32[8]\n\
              sum: output C[z 1] f32 = sum(k 1024) A[k]*S[k // 128]\n\
              target sm_80\n\
              split k ? 128 -> k0 k1\n\
              promote sum k0 -> P",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("loop", ParamKind::Loop),
        Parameter::made("stage", ParamKind::Stage),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK accumulates into one element of its output an iteration, from an init, and no other block writes it",
        "it is a sum of one output and of values that do not depend on it",
        "the init is 0",
        "LOOP is one of BLOCK's loops, runs reduce iterators alone and is not placed",
        "BLOCK's loops hold nothing else, are at the root and are not tensorized, and none runs both kinds of \
         iterators",
        "BLOCK's spatial iterators sweep their whole domains",
        "no part of BLOCK's predicate uses spatial and reduce loops at once",
        "LOOP is not the only loop that runs reduce iterators of BLOCK: a partial sum has terms to add",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let refusal = Refusal::new("promote", func);
    let block = find::block(func, args.get_word("block")?)?;
    let factor = find::loop_(func, args.get_word("loop")?)?;
    let mut found = Factoring::check(refusal, func, block, factor)?;
    let this = (Node::Block(block.name), "this block");
    let combiners = Reduction::of(func, block).map(|r| r.combiners);
    if combiners.as_deref() != Some(&[Combiner::Op(BinOp::Add)]) {
        let error = refusal.broken(2, format!("{} is no sum of one output", func.block_name(block.name)), &[this]);
        return Err(error.help("rfactor takes products, minima, maxima and several outputs"));
    }
    if !found.has_other_loops() {
        let message =
            format!("{} is the only reduce loop of {}", func.var_name(factor.var), func.block_name(block.name));
        let error = refusal.broken(8, message, &[this, (Node::Loop(factor.var), "this loop")]);
        return Err(error.help(format!(
            "split {} ? 128: the inner loop runs the terms of a partial sum",
            func.var_name(factor.var)
        )));
    }
    found.take_common_factors(func);
    let names = Names::of(func, block, &args.names, "part", &[])?;
    let out = found.rewrite(func, &names, found.scope(func));
    Ok(Applied { func: out, names: names.all() })
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{refuses, refuses_to_factor, steps};

    const SCALED: &str = "program scaled
        input A f32[5, 32]
        input B f32[5, 32]
        input R f32[5, 4]
        input S f32[4]
        C: output C[i 5] f32 = sum(k 32) A[i, k]*R[i, k // 8]*B[i, k]*S[k // 8]";

    #[test]
    fn factors_that_a_partial_sum_shares_multiply_it() {
        let text = steps(SCALED, "split k ? 8 -> k0 k1; promote C k0 -> P");
        assert!(text.contains("P[vk0, vi] = P[vk0, vi] + A[vi, vk0*8 + vk1]*B[vi, vk0*8 + vk1]\n"), "{text}");
        assert!(text.contains("C[vi] = C[vi] + P[vk0, vi]*(R[vi, vk0]*S[vk0])\n"), "{text}");
    }

    #[test]
    fn factors_leave_a_product_that_is_widened() {
        let widened = "program widened
            input A f16[5, 32]
            input W f16[32]
            input S f16[4]
            C: output C[i 5] f32 = sum(k 32) f32(A[i, k])*f32(W[k]*S[k // 8])";
        let text = steps(widened, "split k ? 8 -> k0 k1; promote C k0 -> P");
        assert!(text.contains("+ f32(A[vi, vk0*8 + vk1])*f32(W[vk0*8 + vk1])\n"), "{text}");
        assert!(text.contains("C[vi] = C[vi] + P[vk0, vi]*f32(S[vk0])\n"), "{text}");
        // Without a common factor the product stays as it is.
        let text = steps(widened, "split k ? 16 -> k0 k1; promote C k0 -> P");
        assert!(text.contains("*f32(W[vk0*16 + vk1]*S[(vk0*16 + vk1) // 8])\n"), "{text}");
        // f16 has fewer values than f32, and products of integers wrap.
        for (from, to) in [("f32", "f16"), ("s8", "s32")] {
            let narrowed = widened
                .replace("f16", from)
                .replace("f32(", &format!("{to}("))
                .replace("] f32 =", &format!("] {to} ="));
            let text = steps(&narrowed, "split k ? 8 -> k0 k1; promote C k0 -> P");
            assert!(text.contains(&format!("{to}(W[vk0*8 + vk1]*S[")), "{text}");
        }
    }

    #[test]
    fn factors_that_change_within_a_partial_sum_stay() {
        let text = steps(SCALED, "split k ? 16 -> k0 k1; promote C k0 -> P");
        assert!(text.contains("+ A[vi, vk0*16 + vk1]*R[vi, (vk0*16 + vk1) // 8]"), "{text}");
        assert!(text.contains("C[vi] = C[vi] + P[vk0, vi]\n"), "{text}");
    }

    #[test]
    fn partial_sums_of_shared_factors_alone_keep_one() {
        let powers = "program powers
            input S f32[4]
            C: output C[i 5] f32 = sum(k 32) S[k // 8]*S[k // 16]";
        let text = steps(powers, "split k ? 8 -> k0 k1; promote C k0 -> P");
        assert!(text.contains("P[vk0, vi] = P[vk0, vi] + S["), "{text}");
        assert!(text.contains("C[vi] = C[vi] + P[vk0, vi]*S[vk0]\n"), "{text}");
    }

    #[test]
    fn one_partial_sum_is_multiplied_too() {
        let text = steps(&SCALED.replace("k // 8", "k // 32"), "split k ? 32 -> k0 k1; promote C k0 -> P");
        assert!(text.contains("C[vi] = C[vi] + P[vk0, vi]*(R[vi, 0]*S[0])\n"), "{text}");
    }

    #[test]
    fn ragged_partial_sums_add_zeros() {
        let ragged = SCALED.replace("32]", "30]").replace("k 32", "k 30");
        let text = steps(&ragged, "split k ? 8 -> k0 k1; promote C k0 -> P");
        assert!(text.contains("select(vk0*8 + vk1 < 30, A[vi, vk0*8 + vk1]*B[vi, vk0*8 + vk1], 0.0)"), "{text}");
        assert!(text.contains("P[vk0, vi]*(R[vi, vk0]*S[vk0])"), "{text}");
    }

    #[test]
    fn refusals() {
        refuses_to_factor("promote", |block, name| format!("promote {block} {name}"));
        let maxima = "program maxima
            input A f32[5, 13]
            M: output M[i 5] f32 = max(k 13) A[i, k]";
        refuses(maxima, "split k ? 4 -> k0 k1; promote M k0", "promote.2", "M is no sum of one output");
        refuses("gemm 6x5x4 f32 NN", "promote C k", "promote.8", "k is the only reduce loop of C");
    }
}
