//! What random schedules have found, and what must stay right: each of these was once compiled wrongly, or not at all.
//! What was accepted and had to be refused stands in `tests/cases/found.txt`.

use super::check::{Depth, Tally, examine_text};
use warploom::assemble::Ptxas;

/// Programs that were once compiled wrongly, or not at all.
const FOUND: &[&str] = &[
    // A parameter that no kernel uses.
    "program p\ninput A f64[1, 1]\ninput R f64[1]\nT0: output T0[i 1, j 1] f64 = A[i, j] - A[i, j]*3\ntarget sm_80",
    // A shared buffer that another kernel of the program uses.
    "gemm 1x1x1 f16>f32 NN scale 2 residual\ntarget sm_86\ncache_read mma A shared -> A_s\ncompute_at A_s k",
    // Iterations of the producer that its predicate leaves out.
    "gemm 2x2x1 f32 NN relu scale 2\ntarget sm_70\nsplit scale_i ? 2 16 -> a b c\ncache_write scale C local -> C_w
     reverse_compute_at C_w c",
    // Registers beyond the last, in copies of an unrolled body that never run.
    "vec_add 2\ntarget sm_90\ncache_write C C local -> C_w\nsplit i 1 ? -> i_0 i_1\nreverse_compute_at C_w i_0
     split i_1 ? 4 -> a b",
    // More combinations of loops than elements.
    "gemm 6x22x5 u32 TT\ntarget sm_75\nreorder k j\nsplit k ? 16 -> a b\nsplit b ? 8 8 -> c d e",
    // What only the first iteration of a loop has to wait for takes a wider barrier than what all of them wait for.
    "gemm 11x3x1 f32 NN scale 2\ntarget sm_90\ndecompose_reduction mma j -> mma_init j_init
     split j_init 3 ? -> j_init_0 j_init_1\ncache_read mma B shared -> B_s\ncompute_at B_s j
     bind i threadIdx.x\nbind j_init_0 threadIdx.y",
    // A stage for all threads of an axis that occurs in its predicate alone.
    "program convolution\ninput A f32[3, 8]; input W f32[3, 3]
     B: output B[i 1, j 6] f32 = sum(u 3, v 3) A[i + u, j + v]*W[u, v]\ntarget sm_70
     cache_read B W shared -> W_s\ncompute_at W_s u\nsplit j ? 5 -> jo ji\nbind jo threadIdx.y",
    // A stage that grows with a loop that a select compares with another one.
    "program mixed\ninput D f32[2, 2]; input Z f32[2]\nG: output G[i 2, j 2] f32 = select(i < j, D[i, j], 0) + Z[j]
     target sm_70\npad G j=8",
];

#[test]
fn what_was_found_stays_right() {
    let tools = Ptxas::find(None).unwrap_or_default();
    for text in FOUND {
        let depth = Depth { real: true, code: Some(&tools) };
        let mut tally = Tally::default();
        if let Err(failure) = examine_text(text, depth, &mut tally) {
            panic!("{text}\n{}: {}", failure.kind, failure.message);
        }
        assert!(tally.ends.contains_key("ran"), "{text}\n{tally}");
    }
}
