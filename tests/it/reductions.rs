//! Reductions across threads from end to end: shuffles, shared memory, and both; every level against the naive program.

mod several;

use super::sample::drawn;
use approx::assert_relative_eq;
use warploom::lower::{lower, print};
use warploom::rows::{RowKind, Rows};
use warploom::sim::mutate;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers, run_lowered};
use warploom::{Array, DType, Schedule, Target, ir};

/// A program of 6 x K, reduced over k, whose result an element-wise block reads; and its steps.
fn program(dtype: &str, reducer: &str, k: i64, steps: &str) -> Schedule {
    let text = format!(
        "program p\ninput X {dtype}[6, {k}]\nM[i 6] {dtype} = {reducer}(k {k}) X[i, k]\n\
         output Y[i 6, j {k}] {dtype} = X[i, j] + M[i]\ntarget sm_80\n{steps}"
    );
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Whether a case is tried: the first of a test, and a part of the others, as the commit draws them.
fn is_tried(test: &str, at: usize, of: u64) -> bool {
    at == 0 || drawn(&format!("{test} {at}"), of)
}

fn check(name: &str, schedule: &Schedule) -> String {
    let scheduled = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
    let lowered = lower(&scheduled, &schedule.target).unwrap_or_else(|e| panic!("{name}: {e}"));
    let naive = naive_integers(&schedule.program, 5).unwrap();
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3)] {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let found = integers_with(&lowered, &options, 5).unwrap_or_else(|e| panic!("{name} {policy:?}: {e}"));
        assert!(found == naive, "{name} {policy:?}\n{}", print(&lowered));
    }
    schedule.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
    print(&lowered)
}

/// The row's block, of so many threads along x, with M in a scope.
fn rows(threads: i64, scope: &str) -> String {
    format!(
        "set_scope M {scope}\ncompute_at M Y_i\nsplit k ? {threads} -> k0 k1\nbind Y_i blockIdx.x\nbind k1 threadIdx.x\n\
         split j ? {threads} -> j0 j1\nbind j1 threadIdx.x"
    )
}

/// Groups within a warp, of several warps, of no whole warps, and too long to be read at once: a third, as the commit draws them.
#[test]
fn groups_of_every_size() {
    let groups =
        [(1, 5), (2, 8), (8, 64), (16, 50), (32, 100), (64, 64), (96, 100), (20, 61), (250, 300), (1000, 1001)];
    let cases = groups.into_iter().flat_map(|group| ["local", "shared"].map(|scope| (group, scope))).enumerate();
    for (_, ((threads, k), scope)) in cases.filter(|(at, _)| is_tried("groups", *at, 3)) {
        let text = check(&format!("{threads} {scope}"), &program("f32", "sum", k, &rows(threads, scope)));
        let shuffles = (1..6).filter(|n| text.contains(&format!("shuffle_xor({}, ", 1 << (n - 1)))).count();
        let expected = match threads {
            n if n % 32 == 0 => 5,
            n if n & (n - 1) == 0 => n.ilog2() as usize,
            _ => 0,
        };
        assert_eq!(shuffles, expected, "{threads}\n{text}");
    }
}

/// A third of the types and reducers, as the commit draws them.
#[test]
fn every_reducer_and_type() {
    let types = ["f16", "bf16", "f32", "f64", "s8", "s32", "u32", "s64"];
    let cases = types.into_iter().flat_map(|dtype| ["sum", "max", "min"].map(|reducer| (dtype, reducer))).enumerate();
    for (_, (dtype, reducer)) in cases.filter(|(at, _)| is_tried("reducers", *at, 3)) {
        check(&format!("{reducer} {dtype}"), &program(dtype, reducer, 70, &rows(64, "local")));
        check(&format!("{reducer} {dtype}, a term a thread"), &program(dtype, reducer, 64, &rows(64, "local")));
    }
}

/// Reduced axes beside axes that are not: x, y, both, and an axis that tells rows apart.
#[test]
fn axes_of_a_block() {
    let two = "compute_at M Y_i\nsplit k ? 4 16 -> k0 ky kx\nbind ky threadIdx.y\nbind kx threadIdx.x\n\
               split j ? 4 16 -> j0 jy jx\nbind jy threadIdx.y\nbind jx threadIdx.x\nset_scope M local\nbind Y_i blockIdx.x";
    let text = check("x and y", &program("f32", "sum", 128, two));
    assert!(text.contains("shuffle_xor(16, ") && text.contains("M_across: shared f32[2]"), "{text}");
    let rows = "split Y_i ? 4 -> ib iy\ncompute_at M iy\nsplit k ? 8 -> k0 k1\nbind k1 threadIdx.x\nbind iy threadIdx.y\n\
                split j ? 8 -> j0 j1\nbind j1 threadIdx.x\nset_scope M local\nbind ib blockIdx.x";
    let text = check("rows by y", &program("f32", "max", 40, rows));
    assert!(text.contains("shuffle_xor(4, ") && !text.contains("shared f32"), "{text}");
    let wide = "split Y_i ? 3 -> ib iy\ncompute_at M iy\nsplit k ? 64 -> k0 k1\nbind k1 threadIdx.x\nbind iy threadIdx.y\n\
                split j ? 64 -> j0 j1\nbind j1 threadIdx.x\nset_scope M local\nbind ib blockIdx.x";
    let text = check("rows of two warps", &program("f32", "sum", 100, wide));
    assert!(text.contains("M_across: shared f32[6]"), "{text}");
    // The columns of a matrix: x tells them apart, y reduces.
    for x in [4, 16, 32, 40] {
        let columns = format!(
            "program columns\ninput X f32[90, {x}]\noutput S[j {x}] f32 = sum(k 90) X[k, j]\ntarget sm_80\n\
             split k ? 8 -> k0 k1\nbind j threadIdx.x\nbind k1 threadIdx.y"
        );
        check(&format!("columns {x}"), &Schedule::parse(&columns).unwrap());
    }
}

/// A tile of results in each thread, inside and outside the reduced loops.
#[test]
fn tiles_in_registers() {
    let text = "program p\ninput X f32[12, 200]\ninput W f32[5, 200]\n\
                output S[i 12, j 5] f32 = sum(k 200) X[i, k] * W[j, k]\ntarget sm_80\n";
    for (name, steps) in [
        (
            "inside",
            "split i ? 4 -> i0 i1\nsplit k ? 32 -> k0 k1\nreorder i0 k0 k1 i1 j\nbind i0 blockIdx.x\nbind k1 threadIdx.x\nunroll i1\nunroll j",
        ),
        ("around", "split k ? 64 -> k0 k1\nbind i blockIdx.x\nbind k1 threadIdx.x"),
        ("between", "split k ? 4 16 -> k0 k1 k2\nreorder k0 i k1 j k2\nbind k1 threadIdx.y\nbind k2 threadIdx.x"),
        ("bound inside", "split k ? 16 -> k0 k1\nreorder k0 k1 j i\nbind j threadIdx.y\nbind k1 threadIdx.x"),
    ] {
        check(name, &Schedule::parse(&format!("{text}{steps}")).unwrap());
    }
}

/// The blocks of a cluster reduce together: partial results in each other's shared memory, barriers of the cluster.
#[test]
fn clusters() {
    let at = |scope: &str, steps: &str| format!("set_scope M {scope}\ncompute_at M Y_i\nbind Y_i blockIdx.x\n{steps}");
    let threads = "split k 2 ? 32 -> kc k0 k1\nbind kc cluster\nbind k1 threadIdx.x\n\
                   split j 2 ? 32 -> jc j0 j1\nbind jc cluster\nbind j1 threadIdx.x";
    let alone = "split k 4 ? -> kc k0\nbind kc cluster\nsplit j 4 ? -> jc j0\nbind jc cluster";
    let global =
        "split k 4 ? 64 -> kc k0 k1\nbind i blockIdx.x\nbind kc cluster\nbind k1 threadIdx.x\nbind Y_i blockIdx.x";
    let local = [threads, alone].into_iter().flat_map(|steps| ["local", "shared"].map(|scope| at(scope, steps)));
    for steps in local.chain([global.to_string()]) {
        let mut schedule = program("f32", "sum", 600, &steps);
        schedule.target = Target::sm_90();
        let text = check(&steps, &schedule);
        assert!(text.contains("st_async(") && text.contains("mbarrier.wait M_ranks_full[0], phase 0  # RAW"), "{text}");
    }
}

/// Rows in a pipelined loop, which is written out: barriers of the cluster order the values of one row and the next.
#[test]
fn clusters_in_a_pipelined_loop() {
    let steps = "set_scope M local\ncache_read M X shared -> R\nsplit Y_i 2 3 -> ib is\ncompute_at M is\ncompute_at R is -> r\n\
                 bind ib blockIdx.x\nsplit r 2 ? 32 -> rc r0 r1\nbind rc cluster\nbind r1 threadIdx.x\n\
                 split k 2 ? 32 -> kc k0 k1\nbind kc cluster\nbind k1 threadIdx.x\n\
                 split j 2 ? 32 -> jc j0 j1\nbind jc cluster\nbind j1 threadIdx.x\npipeline is stages=2";
    let mut schedule = program("f32", "sum", 512, steps);
    schedule.target = Target::sm_90();
    let text = check(steps, &schedule);
    assert!(text.contains("broadcast(") && text.contains("cluster_barrier  # RAW"), "{text}");
}

/// Kernels over rows with recommended steps: every kind and type, rows that no piece divides, rows of several blocks. A quarter of them, as the
/// commit draws them.
#[test]
fn recommended_rows() {
    let mut cases = 0;
    for (rows, columns) in [(5, 1001), (70, 64), (3, 1000), (2, 4104), (1, 40000), (1, 33333), (1, 7), (70, 1), (1, 1)]
    {
        for kind in RowKind::ALL {
            for dtype in [DType::F16, DType::Bf16, DType::F32] {
                for target in [Target::sm_75(), Target::sm_90()] {
                    if columns > 5000 && (dtype != DType::F16 || target.sm < 90) {
                        continue;
                    }
                    cases += 1;
                    if !is_tried("rows", cases - 1, 4) {
                        continue;
                    }
                    let schedule = Rows::new(kind, rows, columns, dtype).recommend(&target).unwrap();
                    check(&format!("{} {rows}x{columns} {dtype} {}", kind.name(), target.name), &schedule);
                }
            }
        }
    }
}

/// Softmax of rows that blocks share: warps without a finite element, a row of the least numbers, and a ragged end.
#[test]
fn masked_rows_that_blocks_share() {
    let (rows, columns) = (3, 5003 * 4);
    let schedule = Rows::new(RowKind::Softmax, rows, columns, DType::F32).recommend(&Target::sm_90()).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let text = print(&lowered);
    assert!(text.contains("clusters of") && text.contains("M_ranks_S_full"), "{text}");
    let n = columns as usize;
    let x = Array::from_fn(DType::F32, &[3, n], |at| match (at / n, at % n) {
        (0, k) if k > 300 => f64::NEG_INFINITY,
        (1, _) => f64::from(f32::MIN),
        (_, k) => (k % 97) as f64 / 8.0,
    });
    let mut args = vec![x.unwrap(), Array::zeros(DType::F32, &[3, n]).unwrap()];
    run_lowered(&lowered, Mode::Real, &mut args).unwrap();
    for row in 0..3 {
        let given: Vec<f64> = (0..n).map(|k| args[0].get(row * n + k)).collect();
        let largest = given.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = given.iter().map(|x| (x - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        for (k, power) in powers.iter().enumerate() {
            assert_relative_eq!(args[1].get(row * n + k), power / sum, max_relative = 1e-5);
        }
    }
}

/// What is written out for the verifier gives what the program gives.
#[test]
fn the_verifier_judges_an_equal_program() {
    let schedule = program("f32", "sum", 100, &rows(32, "local"));
    let scheduled = schedule.scheduled().unwrap();
    let written = ir::cross_thread::through_shared(&scheduled).unwrap().expect("a reduction across threads");
    assert!(
        naive_integers(&written, 3).unwrap() == naive_integers(&schedule.program, 3).unwrap(),
        "{}",
        ir::print::func(&written)
    );
}

/// A wrong mask, a missing barrier, a lost value: each damaged kernel is found, or computes the same.
#[test]
fn damage_is_found() {
    let schedule = program("f32", "sum", 200, &rows(64, "local"));
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let naive = naive_integers(&schedule.program, 5).unwrap();
    let mutants = mutate::mutants(&lowered);
    let masks: Vec<_> = mutants.iter().filter(|m| m.kind == "shuffle").collect();
    assert_eq!(masks.len(), 10, "{:?}", masks.iter().map(|m| &m.what).collect::<Vec<_>>());
    for mutant in masks {
        let found = [Policy::InOrder, Policy::Reverse, Policy::Random(3)].into_iter().any(|policy| {
            let options = Options::new(Mode::Integer).with_policy(policy);
            integers_with(&mutant.lowered, &options, 5).map_or(true, |result| result != naive)
        });
        assert!(found, "{}", mutant.what);
    }
}

#[test]
fn what_threads_cannot_reduce_together_is_refused() {
    let refused = |steps: &str, code: &str, words: &str| {
        let text = format!("gemm 64x64x64 f32 NN\ntarget sm_80\n{steps}");
        let error = Schedule::parse(&text).and_then(|s| s.scheduled().and_then(|f| lower(&f, &s.target))).unwrap_err();
        assert_eq!(error.code().to_string(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refused("bind k blockIdx.x", "bind.3", "block `C` sums over loop `k`");
    refused("bind k warp", "bind.3", "block `C` sums over loop `k`");
    refused("decompose_reduction C k\nbind k threadIdx.x", "bind.3", "it has no init");
    refused("bind k threadIdx.x\ndecompose_reduction C j", "verify.reduction", "it has no init");
}
