//! The steps that move blocks: the seeds' programs have the seeds' structure, and every schedule computes what the
//! naive program computes, in ring mode, where that means equal bits.

use super::{apply_all, parse};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::Error;
use crate::ir::{Func, print, visit};
use crate::sim::{self, Mode};
use crate::te;

fn program(text: &str) -> Func {
    te::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// A program after steps; the test fails with the refusal.
fn after(program: &Func, steps: &str) -> Func {
    let steps = parse(steps).unwrap_or_else(|e| panic!("{e}"));
    apply_all(program, &steps).unwrap_or_else(|e| panic!("{e}\n{}", e.source_text().unwrap_or("")))
}

/// Demands that steps are refused with this code and a message that contains these words.
fn refused(text: &str, steps: &str, code: &str, words: &str) {
    let e: Error = apply_all(&program(text), &parse(steps).unwrap()).expect_err("these steps must be refused");
    assert_eq!(e.code().to_string(), code, "{e}");
    assert!(e.message().contains(words), "{e}");
}

/// What a program computes in ring mode: its parameters after a run.
pub fn results(func: &Func) -> Vec<Array> {
    let outputs = visit::writes(&func.body);
    let array = |(n, p): (usize, &crate::ir::BufferId)| {
        let shape: Vec<usize> = func.buffer(*p).const_shape().unwrap().iter().map(|e| *e as usize).collect();
        match outputs.contains(p) {
            true => Array::poisoned(DType::U32, &shape).unwrap(),
            false => {
                Array::from_fn(DType::U32, &shape, |i| ((i + 1) * (n + 3) * 2654435761 % 4294967291) as f64).unwrap()
            }
        }
    };
    let mut args: Vec<Array> = func.params.iter().enumerate().map(array).collect();
    sim::run_func(func, Mode::Integer, &mut args).unwrap_or_else(|e| panic!("{e}\n{}", print::func(func)));
    args
}

/// Demands that the program after the steps computes the same; returns its text.
fn same(text: &str, steps: &str) -> String {
    let before = program(text);
    let after = after(&before, steps);
    assert!(results(&before) == results(&after), "{steps}\n{}", print::func(&after));
    print::func(&after)
}

/// Every pass walks nests by recursion, so no text may make them deeper than it can follow.
#[test]
fn nests_are_no_deeper_than_the_limit() {
    use super::limits::DEPTH;
    let split = |n: usize| match n {
        0 => "split i ? 2 -> a0 b0\n".to_string(),
        n => format!("split a{} ? 2 -> a{n} b{n}\n", n - 1),
    };
    let deepest: String = (0..DEPTH - 1).map(split).collect();
    let func = after(&program("vec_add 4096"), &deepest);
    assert_eq!(visit::depth(&func.body), DEPTH);
    refused("vec_add 4096", &(deepest + &split(DEPTH - 1)), "step.limit", "more than 64 loops around a statement");
}

#[test]
fn a_stage_under_a_loop_takes_what_is_read_there() {
    let text = same(
        "window_sum 1024",
        "split i ? 128 -> i_0 i_1\ncache_read C A shared -> A_shared\ncompute_at A_shared i_0 -> ax0",
    );
    assert_eq!(
        text,
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
fn an_output_is_not_recomputed() {
    refused("window_sum 16", "split i ? 4 -> a b; compute_at C a", "compute_at.2", "B, which is a parameter");
}

const GEMM: &str = "gemm 13x7x5 f32 NN";

#[test]
fn ragged_products_stay_equal() {
    for steps in [
        "cache_write C C local -> C_l; split i ? 4 -> i0 i1; reverse_compute_at C_l i1",
        "cache_write C C local -> C_l; split i ? 4 -> i0 i1; reverse_compute_at C_l i0; cache_read C A shared -> A_s; compute_at A_s i0",
        "split i ? 4 -> i0 i1; cache_read C A shared -> A_s; cache_read C A_s local -> A_l; compute_at A_l j; compute_at A_s i0",
        "split k ? 2 -> k0 k1; decompose_reduction C k0",
        "split k ? 2 -> k0 k1; decompose_reduction C i",
        "split k ? 2 -> k0 k1; rfactor C k1 -> P",
        "split k ? 2 -> k0 k1; rfactor C k0 -> P",
        "split_k k 2",
        "split_k k 5 by=cluster",
        "split k ? 2 -> k0 k1; split_k k0 2",
        "split k ? 2 -> k0 k1; split_k k1 2; split_k k0 3",
        "cache_read C A shared -> A_s; transform_layout A_s [i, j] -> [j, i]",
    ] {
        same(GEMM, steps);
    }
}

/// The steps of a file under examples/, without those that need another size's divisibility.
fn example(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/");
    let text = std::fs::read_to_string(format!("{path}{name}.loom")).unwrap();
    let lines: Vec<&str> = text.lines().map(|l| l.split('#').next().unwrap_or("").trim_end()).collect();
    let target = lines.iter().position(|l| l.starts_with("target")).unwrap();
    lines[target + 1..].join("\n")
}

#[test]
fn the_seeds_schedules_stay_equal() {
    for (name, line, has) in [
        ("window_sum_cooperative", "window_sum 1024", "where ax0_0*128 + ax0_1 < 130"),
        (
            "mlc_local",
            "gemm 128x128x16 f32 NN",
            "block C_init(vi = i_0*64 + i_1*8 + i_2_init, vj = j_0*64 + j_1*8 + j_2_init)",
        ),
        (
            "mlc_shared",
            "gemm 128x128x16 f32 NN",
            "block A_shared(v0 = i_0*64 + a_0*32 + a_1 // 2, v1 = k_0*8 + a_1 % 2*4 + a_2)",
        ),
        ("d2l", "gemm 128x128x64 f32 NN", "A_local[v0, v1] = A_shared[v0, v1]"),
        ("gpu_v3", "gemm 64x48x24 f32 NN", "where a1_0 < 8"),
        ("mlc_shared", "gemm 100x90x13 f32 NN", "C_local[vi, vj]"),
        ("d2l", "gemm 100x90x45 f32 NN", "C_local[vi, vj]"),
        ("gpu_v3", "gemm 50x47x21 f32 NN", "a1_0 < 8"),
    ] {
        let text = same(line, &example(name));
        assert!(text.contains(has), "{name}\n{text}");
    }
}

#[test]
fn a_consumer_that_reads_other_elements_does_not_move() {
    let pairs = "program pairs
        input A f32[4, 4]
        Y: Y[i 4, j 4] f32 = A[i, j]
        Z: output Z[i 4, j 2] f32 = Y[i, j * 2] - Y[i, j * 2 + 1]";
    let steps = "transform_layout Y [i, j] -> [i, j // 2, j % 2]; reverse_compute_at Z ";
    refused(pairs, &format!("{steps} j"), "reverse_compute_at.7", "no box of its iterators");
    same(pairs, &format!("split j ? 2 -> a b; {steps} a"));
}

#[test]
fn a_stage_never_computes_more_than_before() {
    // The copy of a copy, moved to where its reader is idle in some iterations, must not read what is not there.
    let steps = "split i ? 5 -> i_0 i_1; split i_0 5 ? -> i_00 i_01; reorder i_1 i_01 i_00; split i_1 ? 2 -> a b
        split i_01 ? 3 -> c d; cache_read C A local -> L; compute_at L c; cache_read C L local -> M; compute_at M i_00";
    same("window_sum 30", steps);
}
