//! `rfactor BLOCK LOOP -> RF [loops]`: each iteration of the reduce loop LOOP accumulates into an element of its own of
//! the new buffer RF, which has LOOP as an additional first dimension; the block RF keeps the loops, and BLOCK then
//! combines RF's elements in new loops `BLOCK_0`, `BLOCK_1`, .., one for each spatial iterator, and one for LOOP. Where BLOCK has several
//! outputs, the new buffers are `RF_OUTPUT`, one for each.
//!
//! Requires what [`PRIMITIVE`] lists, in this order.
//!
//! Preserves: the result, up to the order in which terms combine. Where the reduce loops are ragged, RF combines the
//! neutral constant instead of a term.
//!
//! ```text
//! for k0 in 0..4                                for k0 in 0..4
//!   for k1 in 0..8                                for k1 in 0..8
//!     C: C[0] = C[0] + A[k0*8 + k1]      ->         RF: RF[k1, 0] = RF[k1, 0] + A[k0*8 + k1]
//!                                               for C_0 in 0..8: C: C[0] = C[0] + RF[C_0, 0]
//! ```

use super::{Applied, ParamKind, Parameter, Primitive};
use crate::error::Result;
use crate::ir::Func;
use crate::schedule::factor::{Factoring, Names};
use crate::schedule::refusal::Refusal;
use crate::schedule::{Args, find};

/// The row.
pub static PRIMITIVE: Primitive = Primitive {
    name: "rfactor",
    about: "Splits a reduction: one partial result for each iteration of a reduce loop, then their combination.",
    example: "program total\n\
              input A f32[1024]\n\
              S: output S[z 1] f32 = sum(k 1024) A[k]\n\
              target sm_80\n\
              split k ? 32 -> k0 k1\n\
              rfactor S k1 -> P",
    signature: &[
        Parameter::place("block", ParamKind::Block),
        Parameter::place("loop", ParamKind::Loop),
        Parameter::made("stage", ParamKind::Stage),
        Parameter::made("loops", ParamKind::Loops),
    ],
    requires: &[
        "BLOCK accumulates into one element of each of its outputs an iteration, from an init, and no other block writes them",
        "it combines its outputs with values that do not depend on them by +, *, min, max or reducers of tuples",
        "the init is neutral (0 for +, 1 for *, any constant for min and max, the neutral tuple of a reducer)",
        "LOOP is one of BLOCK's loops, runs reduce iterators alone and is not placed",
        "BLOCK's loops hold nothing else, are at the root and are not tensorized, and none runs both kinds of \
         iterators",
        "BLOCK's spatial iterators sweep their whole domains",
        "no part of BLOCK's predicate uses spatial and reduce loops at once",
    ],
    apply,
};

fn apply(func: &Func, args: &Args) -> Result<Applied> {
    let block = find::block(func, args.get_word("block")?)?;
    let factor = find::loop_(func, args.get_word("loop")?)?;
    let found = Factoring::check(Refusal::new("rfactor", func), func, block, factor)?;
    let names = Names::of(func, block, &args.names, "rf", &[])?;
    let out = found.rewrite(func, &names, found.scope(func));
    Ok(Applied { func: out, names: names.all() })
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::{refuses_to_factor, steps};

    const MAXIMA: &str = "program maxima
        input A f32[5, 13]
        M: output M[i 5] f32 = max(k 13) A[i, k]";

    #[test]
    fn a_single_reduce_loop_leaves_no_sum() {
        let text = steps(MAXIMA, "rfactor M k -> P");
        assert!(text.contains("block P(vk = k, vi = i)\n        P[vk, vi] = A[vi, vk]\n"), "{text}");
    }

    #[test]
    fn ragged_partial_results_take_the_neutral_constant() {
        let text = steps(MAXIMA, "split k ? 3 -> a b; rfactor M a -> P");
        assert!(text.contains("max(P[va, vi], select(va*3 + vb < 13, A[vi, va*3 + vb], -inf))"), "{text}");
    }

    #[test]
    fn refusals() {
        refuses_to_factor("rfactor", |block, name| format!("rfactor {block} {name}"));
    }
}
