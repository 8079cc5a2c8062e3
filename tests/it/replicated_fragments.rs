//! Fragments with fewer indices than the accumulators that they are read with: scales of rows and of columns, of which several lanes hold
//! copies.

use super::tensor::{refused, right};
use warploom::Schedule;

/// A kernel of two warps by mma.sync whose block `out` multiplies accumulators by a scale for each row and each column.
fn scaled(result: &str, more: &str) -> String {
    format!(
        "program scaled
  input A f16[32, 32]
  input B f16[16, 32]
  input R f32[32]
  input S f32[16]
  mma: acc[i 32, j 16] f32 = sum(k 32) f32(A[i, k])*f32(B[j, k])
  {result}
target sm_80
split i ? 16 -> iw ii; split j ? 8 -> j0 ji; split k ? 16 -> k0 ki; reorder iw k0 j0 ii ji ki; bind iw warp
set_scope acc fragment
cache_read mma A fragment -> A_f; compute_at A_f k0; cache_read mma B fragment -> B_f; compute_at B_f k0
{more}
decompose_reduction mma k0 -> zero; tensorize ii mma.m16n8k16.f32.f16.f16"
    )
}

const OUT: &str = "out: output C[i 32, j 16] f32 = acc[i, j]*R[i]*S[j]";
const SCALES: &str = "cache_read out R fragment -> R_f; cache_read out S fragment -> S_f\n";

#[test]
fn scales_of_rows_and_columns_are_copied_to_every_lane_that_multiplies_by_them() {
    let more = format!("reverse_compute_at out iw -> o0 o1\n{SCALES}compute_at R_f iw; compute_at S_f iw");
    let kernels = right(&Schedule::parse(&scaled(OUT, &more)).unwrap());
    let func = &kernels.kernels[0].func;
    // A lane of mma.m16n8k16 has two rows, and two columns of each tile of 8.
    let elements = |name: &str| func.buffer(func.find_buffer(name).unwrap()).shape[0].as_int();
    assert_eq!(["R_f", "S_f", "acc"].map(elements), [Some(2), Some(4), Some(8)]);
}

#[test]
fn what_the_copies_give_may_be_computed_from_copies() {
    let more = format!(
        "reverse_compute_at out iw -> o0 o1\n{SCALES}cache_read out R_f fragment -> R_g\n\
         compute_at R_g iw; compute_at R_f iw; compute_at S_f iw"
    );
    right(&Schedule::parse(&scaled(OUT, &more)).unwrap());
}

#[test]
fn copies_are_not_stored_by_every_lane() {
    let copied = "Q: Q[q 32] f32 = R[q]*2.0\n  T: T[t 32] f32 = Q[t]\n  mma:";
    let more = "set_scope Q fragment; set_scope T shared; reverse_compute_at out iw; compute_at T iw; compute_at Q iw";
    let text = scaled(&OUT.replace("R[i]*S", "Q[i]*T[i]*S"), more).replace("mma:", copied);
    let error = refused(&text);
    assert!(error.starts_with("lower.distribute: several lanes hold copies of each element of Q"), "{error}");
    assert!(error.ends_with("all of them would store to T"), "{error}");
}

#[test]
fn a_sum_over_the_elements_of_several_lanes_is_no_copy() {
    let sums = "sums: W[i 32] f32 = sum(j 16) acc[i, j]\n  out: output C[i 32, j 16] f32 = acc[i, j]*W[i]";
    let more = "set_scope W fragment; reverse_compute_at sums iw; reverse_compute_at out iw";
    let error = refused(&scaled(sums, more));
    assert!(error.starts_with("lower.distribute: several lanes hold copies of each element of W"), "{error}");
    assert!(error.ends_with("each would store another value there"), "{error}");
}

#[test]
fn a_nest_over_part_of_the_lanes_places_no_fragment() {
    // Four of the eight columns of a tile: half of the lanes have nothing to do with R.
    let half = "out: output C[i 32, j 4] f32 = acc[i, j]*R[i]";
    let more = "reverse_compute_at out iw; cache_read out R fragment -> R_f; compute_at R_f iw";
    let error = refused(&scaled(half, more));
    assert_eq!(error, "lower.fragment: no instruction uses fragment R_f");
}
