//! Tests of the steps that move blocks: the seeds' structures, refusals, and equal results.

use super::{apply_all, parse};
use crate::error::Error;
use crate::ir::{Func, print};
use crate::te;

/// A program after steps; the test fails with the refusal.
pub fn after(program: &Func, steps: &str) -> Func {
    apply_all(program, &parse(steps).unwrap()).unwrap_or_else(|e| panic!("{e}\n{}", e.source_text().unwrap_or("")))
}

/// The refusal of steps.
pub fn refused(program: &Func, steps: &str) -> Error {
    apply_all(program, &parse(steps).unwrap()).expect_err("these steps must be refused")
}

#[test]
fn a_stage_under_a_loop_takes_what_is_read_there() {
    let f = te::window_sum(1024).unwrap();
    let g = after(&f, "split i ? 128 -> i_0 i_1\ncache_read C A shared -> A_shared\ncompute_at A_shared i_0 -> ax0");
    assert_eq!(
        print::func(&g),
        "\
func window_sum(A: global f32[1027], B: global f32[1024])
  A_shared: shared f32[1027]
  for i_0 in 0..8
    for ax0 in 0..130
      block A_shared(v0 = i_0*128 + ax0)
        A_shared[v0] = A[v0]
    for i_1 in 0..128
      block C(vi = i_0*128 + i_1)
        B[vi] = A_shared[vi] + A_shared[vi + 1] + A_shared[vi + 2]
"
    );
}

#[test]
fn an_output_cannot_be_recomputed() {
    let f = te::window_sum(16).unwrap();
    assert_eq!(refused(&f, "split i ? 4 -> a b\ncompute_at C a").code(), "compute_at.2");
}
