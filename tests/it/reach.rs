//! What the language reaches besides numbers at indices of loops: truth values in memory, indices that are data, and inputs of one
//! number. Each program runs as it is written, scheduled, lowered and as PTX, in integer mode and in the real types.

use warploom::error::Code;
use warploom::lower::lower;
use warploom::reference::{Sample, outputs};
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers, run_func, run_lowered, run_ptx};
use warploom::{Array, Result, Schedule, compile, te};

/// Inputs of a program: integers where their values are stated.
fn inputs(schedule: &Schedule, seed: u64) -> Vec<Array> {
    let program = &schedule.program;
    let one = |(n, id): (usize, &warploom::ir::BufferId)| {
        let b = program.buffer(*id);
        let shape: Vec<usize> = b.const_shape().unwrap().iter().map(|n| *n as usize).collect();
        match b.values {
            Some(values) => Array::random_values(b.dtype, &shape, values, seed + n as u64).unwrap(),
            None => Array::random(b.dtype, &shape, seed + n as u64).unwrap(),
        }
    };
    program.params.iter().enumerate().map(one).collect()
}

/// All levels of a schedule agree.
fn agrees(text: &str) {
    let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let again =
        te::parse(&te::print(&schedule.program)).unwrap_or_else(|e| panic!("{}\n{e}", te::print(&schedule.program)));
    assert_eq!(again, schedule.program, "{}", te::print(&schedule.program));
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{text}\n{e}"));
    schedule.assurance().unwrap_or_else(|e| panic!("{text}\n{e}"));
    let lowered = lower(&func, &schedule.target).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let naive = naive_integers(&schedule.program, 1).unwrap_or_else(|e| panic!("{text}\n{e}"));
    assert_eq!(naive_integers(&func, 1).unwrap(), naive, "scheduled in integer mode\n{text}");
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3)] {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let kernels = integers_with(&lowered, &options, 1).unwrap_or_else(|e| panic!("{text}\n{e}"));
        assert_eq!(kernels, naive, "lowered in integer mode\n{text}");
    }
    let before = inputs(&schedule, 5);
    let check = |level: &str, run: &dyn Fn(&mut Vec<Array>) -> Result<()>| {
        let mut args = before.clone();
        run(&mut args).unwrap_or_else(|e| panic!("{level}: {text}\n{e}"));
        for output in outputs(&schedule.program, &before, Sample::All).unwrap() {
            output.bound(&args[output.param]).unwrap_or_else(|e| panic!("{level}: {text}\n{e}"));
        }
    };
    check("naive", &|args| run_func(&schedule.program, Mode::Real, args).map(|_| ()));
    check("lowered", &|args| run_lowered(&lowered, Mode::Real, args).map(|_| ()));
    let kernels = compile(&schedule).unwrap_or_else(|e| panic!("{text}\n{e}"));
    check("ptx", &|args| run_ptx(&kernels, &Options::new(Mode::Real), args).map(|_| ()));
}

const THREADS: &str = "target sm_80\nsplit i ? 4 -> i0 i1; bind i0 blockIdx.x; bind i1 threadIdx.y";

#[test]
fn truth_values_are_inputs_stages_and_outputs() {
    agrees(&format!(
        "program masked\ninput A f32[12, 40]; input M bool[12, 40]\n\
         output C[i, j] f32 = select(M[i, j], A[i, j], -1)\n{THREADS}\nsplit j ? 8 -> j0 j1; bind j0 threadIdx.x"
    ));
    // A stage of truth values in each scope that threads have.
    agrees(
        "program staged\ninput A f32[12, 8]; input M bool[12, 8]\n\
         P[i, j] bool = A[i, j] > 0 and not M[i, j] or j == 3\n\
         output C[i, j] f32 = select(P[i, j], A[i, j], 0)\n\
         output Q[i, j] bool = P[i, 7 - j] ^ M[i, j]\ntarget sm_80\n\
         split i ? 4 -> p0 p1; bind p0 blockIdx.x; bind p1 threadIdx.y\n\
         bind C_i blockIdx.x; bind C_j threadIdx.x; bind Q_i blockIdx.x; bind Q_j threadIdx.x",
    );
    for place in ["compute_at P i0; set_scope P shared; bind P_1 threadIdx.x", "compute_at P j; set_scope P local"] {
        agrees(&format!(
            "program staged\ninput A f32[12, 8]; input M bool[12, 8]\n\
             P[p, q] bool = A[p, q] > 0 and not M[p, q] or q == 3\n\
             output C[i, j] f32 = select(P[i, j], A[i, j], 0)\n{THREADS}\n{place}"
        ));
    }
    // Conversions in both directions, comparisons of truth values, and several at a time.
    agrees(&format!(
        "program converted\ninput A s32[12, 16]; input M bool[12, 16]\n\
         output N[i, j] bool = bool(A[i, j] & 3) == M[i, j]\n\
         output S[n 12] s32 = sum(k 16) s32(M[n, k])\n\
         output F[u 12, v 16] f16 = f16(M[u, v])\n{}\nvectorize v; bind u blockIdx.x; bind n threadIdx.x",
        THREADS
    ));
    agrees(&format!("program copied\ninput M bool[12, 16]\noutput N[i, j] bool = M[i, j]\n{THREADS}\nvectorize j"));
}

#[test]
fn a_byte_of_a_mask_is_true_unless_it_is_0() {
    let text = format!(
        "program masked\ninput M bool[12, 16]\noutput C[i, j] f32 = select(M[i, j], 1, 2)\n\
         output N[u 12, v 16] bool = M[u, v]\n{THREADS}\nbind u blockIdx.x; vectorize v"
    );
    let schedule = Schedule::parse(&text).unwrap();
    let kernels = compile(&schedule).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let mut before = inputs(&schedule, 1);
    before[0].bytes = (0..192).map(|n| if n % 3 == 0 { 0 } else { n as u8 | 2 }).collect();
    type Run<'a> = &'a dyn Fn(&mut Vec<Array>) -> Result<()>;
    let runs: [Run; 2] = [&|args| run_lowered(&lowered, Mode::Real, args).map(|_| ()), &|args| {
        run_ptx(&kernels, &Options::new(Mode::Real), args).map(|_| ())
    }];
    for run in runs {
        let mut args = before.clone();
        run(&mut args).unwrap();
        for n in 0..192 {
            let set = n % 3 != 0;
            assert_eq!(args[1].get(n), if set { 1.0 } else { 2.0 }, "{n}");
            assert_eq!(args[2].bytes[n], u8::from(set), "{n}");
        }
    }
}

const LOOKUP: &str = "program lookup\ninput T f32[50, 32]; input X s32[12] in 0..50\n\
                      output Y[i, j] f32 = T[X[i], j]\n";

#[test]
fn rows_are_looked_up_by_data() {
    for steps in ["", "vectorize j", "split j ? 8 -> j0 j1; bind j0 threadIdx.x; vectorize j1", "bind j threadIdx.x"] {
        agrees(&format!("{LOOKUP}{THREADS}\n{steps}"));
    }
    // The index through registers and through shared memory.
    agrees(&format!("{LOOKUP}{THREADS}\ncache_read Y X local -> X_l xl; compute_at X_l i1; vectorize j"));
    agrees(&format!("{LOOKUP}{THREADS}\ncache_read Y X shared -> X_s xs; compute_at X_s i0; bind j threadIdx.x"));
    // A copy of the table in global memory, and indices that are computed: bounded, of another stage, of an element of a table.
    agrees(&format!("{LOOKUP}{THREADS}\ncache_read Y T global -> T_g t0 t1; bind t0 blockIdx.x; bind t1 threadIdx.x"));
    for (inputs, value) in [
        ("input X s32[12]", "T[min(max(X[i], 0), 49), j]"),
        ("input X u8[12] in 3..20", "T[X[i]*2 + 1, j] - T[X[11 - i] - 3, X[i]]"),
        ("input X s64[12] in -4..5", "T[X[i] + 10, j]"),
        ("input X s32[12] in 0..12; input Z u32[12] in 0..50", "T[Z[X[i]], (j + X[i]) % 32]"),
        ("input X s32[12] in 0..50; input M bool[12]", "select(M[i] and j < 20, T[X[i], j + 12], 0)"),
        ("input n s32 in 0..50; input X s32[12] in 0..32", "T[n, X[i]]*2"),
    ] {
        agrees(&format!(
            "program lookup\ninput T f32[50, 32]; {inputs}\noutput Y[i 12, j 32] f32 = {value}\n{THREADS}\nbind j threadIdx.x"
        ));
    }
    agrees(&format!(
        "program inlined\ninput T f32[50, 32]; input X s32[12] in 0..50\nE[p, q] f32 = exp(T[p, q])\nZ[r] s32 = X[r]\n\
         output Y[i, j 32] f32 = E[min(max(Z[i], 0), 49), j]\n{THREADS}\ncompute_inline E; compute_inline Z; vectorize j"
    ));
}

#[test]
fn a_product_of_gathered_rows_is_scheduled_as_any_other() {
    let program = "program rows\ninput A f32[50, 16]; input B f32[16, 24]; input X s32[12] in 0..50\n";
    agrees(&format!(
        "{program}output C[i, j] f32 = sum(k) A[X[i], k]*B[k, j]\n{THREADS}\nbind j threadIdx.x; split k ? 4 -> k0 k1; unroll k1"
    ));
    // Staged in shared memory as tiles, with copies of gathered rows.
    for more in ["", "vectorize G_1", "vectorize G_1; copy_with G cp_async", "vectorize G_1; pipeline k0 stages=2"] {
        agrees(&format!(
            "{program}G[g, h] f32 = A[X[g], h]\noutput C[i, j] f32 = sum(k) G[i, k]*B[k, j]\ntarget sm_80\n\
             split i ? 4 -> i0 i1; split k ? 4 -> k0 k1; reorder i0 k0 i1 j k1\ncompute_at G k0; set_scope G shared\n\
             bind i0 blockIdx.x; bind i1 threadIdx.y; bind G_0 threadIdx.y; bind j threadIdx.x\n{more}"
        ));
    }
}

#[test]
fn numbers_are_inputs() {
    agrees(&format!(
        "program axpy\ninput alpha f32; input beta f32; input A f32[12, 32]; input B f32[12, 32]\n\
         output C[i, j] f32 = alpha*A[i, j] + beta*B[i, j]\n{THREADS}\nvectorize j"
    ));
    agrees(
        "program total\ninput A f32[64]; input on bool\nt[] f32 = sum(k) A[k]\noutput m[] f32 = select(on, t*2, 0)\n\
         output B[i] f32 = A[i] / (t + 100)\ntarget sm_80\nbind i threadIdx.x",
    );
}

#[test]
fn data_outside_the_stated_values_are_found_before_and_while_a_program_runs() {
    let schedule = Schedule::parse(&format!("{LOOKUP}{THREADS}\nvectorize j")).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let kernels = compile(&schedule).unwrap();
    let mut args = inputs(&schedule, 1);
    kernels.check_values(&args).unwrap();
    args[1].set(7, 50.0);
    let found = [
        kernels.check_values(&args),
        run_func(&schedule.program, Mode::Real, &mut args.clone()).map(|_| ()),
        run_lowered(&lowered, Mode::Real, &mut args.clone()).map(|_| ()),
        run_ptx(&kernels, &Options::new(Mode::Real), &mut args.clone()).map(|_| ()),
    ];
    for found in found {
        let error = found.unwrap_err();
        assert_eq!(error.code(), Code::ArrayValues);
        assert_eq!(error.message(), "X[7] is 50, but the values of X are stated to be in 0..50");
    }
    // What a program computes has no stated values: those of its type are bounded, or the index is refused.
    let computed =
        "program p\ninput T f32[8]; input X s32[4] in 0..8\nZ[k] s32 = X[k] + 5\noutput Y[i 4] f32 = T[Z[i]]\n";
    let error = te::parse(computed).unwrap_err();
    assert_eq!(error.code(), Code::TeGather, "{error}");
}

#[test]
fn what_gathers_cannot_do_is_refused_with_what_to_try() {
    let refused = |text: &str, code: &str, words: &str| {
        let found = Schedule::parse(text).and_then(|s| s.assurance().map(|_| ()));
        let error = found.expect_err(text);
        assert_eq!(error.code().to_string(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let program = |inputs: &str, value: &str| {
        format!("program p\ninput T f32[50, 32]; {inputs}\noutput Y[i 12, j 32] f32 = {value}\n{THREADS}")
    };
    refused(&program("input X s32[12]", "T[X[i], j]"), "te.gather", "input X s32[12] in 0..50");
    refused(&program("input X s32[12] in 0..51", "T[X[i], j]"), "verify.bounds", "dimension 0 of T has 50 elements");
    refused(&program("input X f32[12]", "T[X[i], j]"), "te.index", "an index is an integer");
    refused(&program("input X f32[12] in 0..5", "T[i, j]"), "te.gather", "f32 has no integers");
    refused(&program("input X s32[12] in 5..5", "T[i, j]"), "te.gather", "5..5 is empty");
    refused(&program("input X u8[12] in -1..5", "T[i, j]"), "te.gather", "not among those of u8");
    refused(
        "program p\ninput A f32[4]; input X s32[4] in 0..4\noutput B[X[i]] f32 = A[i]\ntarget sm_80",
        "te.index",
        "scatter",
    );
    refused(&program("input M bool[12, 32]", "sum(k 32) f32(M[i, k]) + T[i, j"), "te.syntax", "expected");
    refused(
        "program p\ninput M bool[4, 8]\noutput Y[i] bool = max(k) M[i, k]\ntarget sm_80",
        "te.type",
        "s32(M[i, k])",
    );
    refused(&format!("{LOOKUP}{THREADS}\ncache_read Y T shared -> T_s"), "step.gather", "in a stage of their own");
    let staged = "program p\ninput A f32[50, 32]; input X s32[12] in 0..50\nT[p, q] f32 = A[p, q]*2\n\
                  output Y[i, j] f32 = T[X[i], j]\n";
    refused(&format!("{staged}{THREADS}\ncompute_at T i0"), "step.gather", "is written in the same nest");
    refused(&format!("{staged}{THREADS}\nset_scope T local"), "step.gather", "is not global memory");
    let gathered = "program p\ninput A f32[50, 16]; input X s32[12] in 0..50\nG[g, h] f32 = A[X[g], h]\n\
                    output C[i, j] f32 = G[i, j]*2\n";
    let tile = "compute_at G i0; set_scope G shared\ncopy_with G tma";
    refused(&format!("{gathered}{THREADS}\n{tile}"), "copy_with.4", "copy_with G cp_async");
    refused(&format!("{staged}{THREADS}\npad Y j=48"), "pad.4", "index that is a datum");
    agrees(&format!("{staged}{THREADS}\nbind p blockIdx.x; bind q threadIdx.x; bind j threadIdx.x"));
}
