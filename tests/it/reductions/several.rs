//! Several reductions of one loop, and reducers of tuples: each kind through every form of a reduction, at ragged and prime sizes.

use super::{check, is_tried};
use warploom::lower::lower;
use warploom::reference::{Sample, outputs};
use warploom::sim::mutate;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};
use warploom::{Array, DType, Schedule, Target, ir, te};

/// The pair of one-pass softmax: the largest value, and the sum of the exponentials of all values relative to it.
const ONLINE: &str = "reducer online(m f32, s f32) with (n, t) from (-3.4028234663852886e38, 0.0) = \
                      (max(m, n), s*exp(m - max(m, n)) + t*exp(n - max(m, n)))\n";

/// What reduces X over k: a declaration, the types of both results, and the reducers with their values.
const KINDS: [(&str, &str, [&str; 2], &str); 7] = [
    ("moments", "", ["f32", "f32"], "sum(k) X[i, k], sum(k) X[i, k]*X[i, k]"),
    ("extremes", "", ["f32", "f32"], "max(k) X[i, k], min(k) X[i, k]"),
    ("argmax", "", ["f32", "s32"], "argmax(k) (X[i, k], s32(k))"),
    ("argmin", "", ["f32", "s64"], "argmin(k) (X[i, k], s64(k))"),
    ("online", ONLINE, ["f32", "f32"], "online(k) (X[i, k], 1.0)"),
    (
        "complex",
        "reducer rotated(a f32, b f32) with (c, d) from (0.0, 0.0) = (a + c, b + d)\n",
        ["f32", "f32"],
        "rotated(k) (X[i, k], X[i, k]*3.0)",
    ),
    (
        "product",
        "reducer product(a s32) with (b) from (1) = (a*b)\n",
        ["s32", "f32"],
        "product(k) (s32(k)*2 + 1), max(k) X[i, k]",
    ),
];

/// 6 rows of `columns`, reduced into M and N, both read by an element-wise block; and its steps.
fn program(kind: &(&str, &str, [&str; 2], &str), columns: i64, steps: &str) -> Schedule {
    let (_, declaration, [m, n], value) = kind;
    let text = format!(
        "program p\n{declaration}input X f32[6, {columns}]\nM[i 6] {m}, N[i] {n} = {value}\n\
         output Y[i 6, j {columns}] f32 = X[i, j] + f32(M[i])*f32(N[i])\ntarget sm_80\n{steps}"
    );
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// The row's block, of so many threads along x, with both results in a scope.
fn rows(threads: i64, scope: &str) -> String {
    format!(
        "set_scope M {scope}\nset_scope N {scope}\ncompute_at M Y_i\nsplit k ? {threads} -> k0 k1\nbind Y_i blockIdx.x\n\
         bind k1 threadIdx.x\nsplit j ? {threads} -> j0 j1\nbind j1 threadIdx.x"
    )
}

/// The program comes back from its text, and means the same without a schedule, on the simulator and as a kernel.
#[test]
fn every_kind_without_steps() {
    for kind in &KINDS {
        let schedule = program(kind, 13, "");
        assert_eq!(te::parse(&te::print(&schedule.program)).unwrap(), schedule.program, "{}", kind.0);
        check(kind.0, &schedule);
    }
}

/// A sixth of the kinds and groups, as the commit draws them.
#[test]
fn groups_of_every_size() {
    let groups = [(1, 5), (2, 8), (8, 61), (32, 101), (64, 64), (96, 100), (20, 61), (250, 257)];
    for (n, kind) in KINDS.iter().enumerate() {
        for (at, (threads, k)) in groups.into_iter().enumerate() {
            for (s, scope) in ["local", "shared"].into_iter().enumerate() {
                if !is_tried("groups of several", 2 * (groups.len() * n + at) + s, 6) {
                    continue;
                }
                let text = check(&format!("{} {threads} {scope}", kind.0), &program(kind, k, &rows(threads, scope)));
                if threads == 64 {
                    assert!(text.contains("shuffle_xor(16, ") && text.contains("M_across_N"), "{text}");
                }
            }
        }
    }
    // More values of warps than a thread reads at once.
    for (_, kind) in KINDS[..5].iter().enumerate().filter(|(n, _)| is_tried("long groups of several", *n, 5)) {
        check(kind.0, &program(kind, 1031, &rows(1000, "local")));
    }
}

/// A third of the kinds and axes, as the commit draws them.
#[test]
fn axes_of_a_block() {
    let two = "compute_at M Y_i\nsplit k ? 4 16 -> k0 ky kx\nbind ky threadIdx.y\nbind kx threadIdx.x\n\
               split j ? 4 16 -> j0 jy jx\nbind jy threadIdx.y\nbind jx threadIdx.x\nset_scope M local\nset_scope N local\n\
               bind Y_i blockIdx.x";
    let by_rows = "split Y_i ? 4 -> ib iy\ncompute_at M iy\nsplit k ? 8 -> k0 k1\nbind k1 threadIdx.x\nbind iy threadIdx.y\n\
                   split j ? 8 -> j0 j1\nbind j1 threadIdx.x\nset_scope M local\nset_scope N local\nbind ib blockIdx.x";
    let depth = "compute_at M Y_i\nsplit k ? 3 16 -> k0 kz kx\nbind kz threadIdx.z\nbind kx threadIdx.x\n\
                 split j ? 3 16 -> j0 jz jx\nbind jz threadIdx.z\nbind jx threadIdx.x\nset_scope M local\nset_scope N local\n\
                 bind Y_i blockIdx.x";
    for (n, kind) in KINDS.iter().enumerate() {
        for (at, steps) in [two, by_rows, depth].into_iter().enumerate() {
            if is_tried("axes of several", 3 * n + at, 3) {
                check(kind.0, &program(kind, 131, steps));
            }
        }
    }
}

/// A tile of tuples in each thread, inside and outside the reduced loops, straight to the program's outputs.
#[test]
fn tiles_and_outputs() {
    let text = "program p\ninput X f32[12, 97]\ninput W f32[5, 97]\n\
                output V[i 12, j 5] f32, output I[i, j] s32 = argmax(k 97) (X[i, k] * W[j, k], s32(k))\ntarget sm_80\n";
    for (name, steps) in [
        (
            "inside",
            "split i ? 4 -> i0 i1\nsplit k ? 32 -> k0 k1\nreorder i0 k0 k1 i1 j\nbind i0 blockIdx.x\nbind k1 threadIdx.x\nunroll i1\nunroll j",
        ),
        ("around", "split k ? 64 -> k0 k1\nbind i blockIdx.x\nbind k1 threadIdx.x"),
        ("between", "split k ? 4 16 -> k0 k1 k2\nreorder k0 i k1 j k2\nbind k1 threadIdx.y\nbind k2 threadIdx.x"),
        ("bound inside", "split k ? 16 -> k0 k1\nreorder k0 k1 j i\nbind j threadIdx.y\nbind k1 threadIdx.x"),
        ("by threads", "fuse i j -> f\nbind f threadIdx.x"),
    ] {
        check(name, &Schedule::parse(&format!("{text}{steps}")).unwrap());
    }
}

/// A sixth of the kinds and steps, as the commit draws them.
#[test]
fn clusters() {
    let at = |scope: &str, steps: &str| {
        format!("set_scope M {scope}\nset_scope N {scope}\ncompute_at M Y_i\nbind Y_i blockIdx.x\n{steps}")
    };
    let threads = "split k 2 ? 32 -> kc k0 k1\nbind kc cluster\nbind k1 threadIdx.x\n\
                   split j 2 ? 32 -> jc j0 j1\nbind jc cluster\nbind j1 threadIdx.x";
    let alone = "split k 4 ? -> kc k0\nbind kc cluster\nsplit j 4 ? -> jc j0\nbind jc cluster";
    let global =
        "split k 4 ? 64 -> kc k0 k1\nbind i blockIdx.x\nbind kc cluster\nbind k1 threadIdx.x\nbind Y_i blockIdx.x";
    for (n, kind) in KINDS.iter().enumerate() {
        let local = [threads, alone].into_iter().flat_map(|steps| ["local", "shared"].map(|scope| at(scope, steps)));
        for (number, steps) in local.chain([global.to_string()]).enumerate() {
            if !is_tried("clusters of several", 5 * n + number, 6) {
                continue;
            }
            let mut schedule = program(kind, 601, &steps);
            schedule.target = Target::sm_90();
            let text = check(&format!("{} {steps}", kind.0), &schedule);
            assert!(text.contains("st_async(") && text.contains("_full[0], phase 0  # RAW"), "{text}");
        }
    }
}

/// The steps that take a reduction apart, or move it: loops, partial results, initialisation, copies. A fifth of them, as the commit draws them for
/// each kind.
#[test]
fn steps_of_reductions() {
    for (n, kind) in KINDS.iter().enumerate() {
        for (at, steps) in [
            "split k ? 4 -> k0 k1\nreorder k1 k0 i\nunroll k0",
            "split i ? 4\nfuse i_1 k -> f\nunroll f",
            "rfactor M k -> P",
            "split k ? 8 -> k0 k1\nrfactor M k1 -> P\nset_scope P_M local\nset_scope P_N local\ncompute_at P M_0\nunroll M_1",
            // As in TVM: partial results of threads, combined by one of them.
            "split k ? 16 -> k0 k1\nrfactor M k1 -> P\nset_scope P_M shared\nset_scope P_N shared\ncompute_at P M_0 -> t\n\
             bind M_0 blockIdx.x\nbind t threadIdx.x\nbind Y_i blockIdx.x\nbind j threadIdx.x",
            "split k ? 32 -> k0 k1\nrfactor M k1 -> P\nset_scope P_M shared\nset_scope P_N shared\ncompute_at P M_0 -> t\n\
             bind M_0 blockIdx.x\nbind t threadIdx.x\nbind M_1 threadIdx.x\nbind Y_i blockIdx.x\nbind j threadIdx.x",
            "decompose_reduction M k\nbind i threadIdx.x",
            "decompose_reduction M i\nsplit k ? 5\nreorder k_0 i k_1",
            "set_scope M local\nset_scope N shared\ncompute_at M Y_i\nbind Y_i blockIdx.x\nbind j threadIdx.x",
            "set_scope M local\nset_scope N global\ncompute_at M Y_i\nbind Y_i threadIdx.x",
            "split i ? 2\ncache_read M X shared -> X_s\ncompute_at X_s i_0\nbind i_0 blockIdx.x\nbind i_1 threadIdx.x",
            "split Y_i ? 2 -> a b\nsplit j ? 5 -> c d\ncompute_at M a\nbind a blockIdx.x\nset_scope M shared\nset_scope N shared",
            "cache_write M M local -> C\nreverse_compute_at C i\nbind i threadIdx.x\nbind Y_i blockIdx.x",
            "split_k k 3 -> P\nbind k_part blockIdx.x\nbind i threadIdx.x\nbind M_0 threadIdx.x",
            "reverse_compute_at Y i\nbind i blockIdx.x\nbind Y_1 threadIdx.x\nset_scope M shared\nset_scope N shared",
            "transform_layout N [i] -> [i % 3, i // 3]\ntransform_layout M [i] -> [5 - i]",
            "split i ? 2\nreorder i_0 k i_1\nvectorize i_1\nbind i_0 threadIdx.x",
        ]
        .into_iter()
        .enumerate()
        {
            if is_tried("steps of several", 100 * n + at, 5) {
                check(&format!("{} {steps}", kind.0), &program(kind, 37, steps));
            }
        }
    }
}

/// Values and indices of every type: a third of the pairs, as the commit draws them.
#[test]
fn places_of_every_type() {
    for (n, value) in ["f16", "bf16", "f32", "f64", "s8", "s32", "u8", "u32", "s64"].into_iter().enumerate() {
        let indices = [("s32", "argmax", 70), ("u32", "argmin", 64), ("s64", "argmax", 64)];
        for (at, (index, reducer, k)) in indices.into_iter().enumerate() {
            if !is_tried("places", 3 * n + at, 3) {
                continue;
            }
            let kind = ("", "", [value, index], &*format!("{reducer}(k) ({value}(X[i, k]), {index}(k))"));
            check(&format!("{value} {index} {k}"), &program(&kind, k, &rows(64, "local")));
        }
    }
}

/// Equal values: the smaller index wins in every schedule, also among infinities; what is not a number is left out.
#[test]
fn ties_and_special_values() {
    for (name, steps) in [
        ("serial", ""),
        ("threads", "split k ? 32 -> k0 k1\nbind i blockIdx.x\nbind k1 threadIdx.x"),
        ("one element a thread", "bind i blockIdx.x\nbind k threadIdx.x"),
        ("backwards", "split k ? 7 -> a b\nreorder b a\nbind i threadIdx.x"),
        ("partial", "rfactor S k -> P\nbind i blockIdx.x\nbind S_0 blockIdx.x"),
    ] {
        for reducer in ["argmax", "argmin"] {
            let text = format!(
                "program p\ninput X f32[5, 67]\nS: output V[i 5] f32, output I[i] s32 = {reducer}(k 67) (X[i, k], s32(k))\n\
                 target sm_80\n{steps}"
            );
            let schedule = Schedule::parse(&text).unwrap();
            let (inf, nan) = (f64::INFINITY, f64::NAN);
            let mut x = Array::zeros(DType::F32, &[5, 67]).unwrap();
            for k in 0..67 {
                let row =
                    [(k % 5) as f64, -inf, inf, if k % 3 == 0 { nan } else { -2.0 }, (40 - k as i64).abs() as f64];
                row.iter().enumerate().for_each(|(i, v)| x.set(i * 67 + k, *v));
            }
            let zeros = |d| Array::zeros(d, &[5]).unwrap();
            let mut args = vec![x, zeros(DType::F32), zeros(DType::S32)];
            let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
            let kernels = warploom::codegen::compile(&lowered, &schedule.target).unwrap();
            let (mut own, mut ptx) = (args.clone(), args.clone());
            warploom::sim::run_func(&schedule.program, Mode::Real, &mut args).unwrap();
            warploom::sim::run_lowered(&lowered, Mode::Real, &mut own).unwrap();
            warploom::sim::run_ptx(&kernels, &Options::new(Mode::Real), &mut ptx).unwrap();
            let wanted: [i64; 5] = if reducer == "argmax" { [4, 0, 0, 1, 0] } else { [0, 0, 0, 1, 40] };
            for found in [&args, &own, &ptx] {
                let places: Vec<i64> = (0..5).map(|i| found[2].get(i) as i64).collect();
                assert_eq!(places, wanted, "{name} {reducer}");
                let values: Vec<f64> = (0..5).map(|i| found[1].get(i)).collect();
                assert_eq!(values[1..4], [-inf, inf, -2.0], "{name} {reducer}");
            }
        }
    }
}

/// One pass gives what two passes give: bit for bit in integer mode, where exp turns sums into products, and within bounds in f32.
#[test]
fn one_pass_softmax_is_softmax() {
    let softmax = |stages: &str| {
        let text = format!(
            "program p\n{ONLINE}input X f32[6, 53]\n{stages}output Y[i 6, j 53] f32 = exp(X[i, j] - M[i]) / S[i]\n"
        );
        te::parse(&text).unwrap_or_else(|e| panic!("{e}"))
    };
    let online = softmax("M[i 6] f32, S[i] f32 = online(k 53) (X[i, k], 1.0)\n");
    let plain = softmax("M[i 6] f32 = max(k 53) X[i, k]\nS[i 6] f32 = sum(k 53) exp(X[i, k] - M[i])\n");
    assert!(naive_integers(&online, 11).unwrap() == naive_integers(&plain, 11).unwrap());
    // Masked rows: -inf has no weight.
    let mut args = vec![Array::random(DType::F32, &[6, 53], 1).unwrap(), Array::zeros(DType::F32, &[6, 53]).unwrap()];
    (0..6).for_each(|i| (0..50).for_each(|k| args[0].set(i * 53 + k, f64::NEG_INFINITY)));
    warploom::sim::run_func(&online, Mode::Real, &mut args).unwrap();
    let rows = Array::from_fn(DType::F64, &[6], |i| (0..53).map(|k| args[1].get(i * 53 + k)).sum()).unwrap();
    approx::assert_relative_eq!(rows, Array::from_slice(&[6], &[1.0f64; 6]).unwrap(), max_relative = 1e-6);
}

/// The index is exact where the values are; a wrong index, and a wrong value, are found.
#[test]
fn the_reference_tells_right_from_wrong() {
    let kind = &KINDS[2];
    let (_, _, _, value) = kind;
    let text = format!("program p\ninput X f32[6, 37]\noutput V[i 6] f32, output I[i] s32 = {value}\n");
    let program = te::parse(&text).unwrap();
    let x = Array::random(DType::F32, &[6, 37], 5).unwrap();
    let zeros = |d| Array::zeros(d, &[6]).unwrap();
    let mut args = vec![x, zeros(DType::F32), zeros(DType::S32)];
    warploom::sim::run_func(&program, Mode::Real, &mut args).unwrap();
    let references = outputs(&program, &args, Sample::All).unwrap();
    assert_eq!(references.len(), 2);
    for output in &references {
        output.exact(&args[output.param]).unwrap();
        let unit = if output.dtype.is_float() { 1e-7 } else { 0.0 };
        assert!(output.values.iter().zip(&output.bounds).all(|(v, b)| *b <= unit * v.abs()), "{:?}", output.bounds);
        let mut wrong = args[output.param].clone();
        wrong.set(3, wrong.get(3) + 1.0);
        output.bound(&wrong).unwrap_err();
    }
}

/// What is written out for the verifier gives what the program gives.
#[test]
fn the_verifier_judges_an_equal_program() {
    for kind in &KINDS {
        let schedule = program(kind, 100, &rows(32, "local"));
        let scheduled = schedule.scheduled().unwrap();
        let written = ir::cross_thread::through_shared(&scheduled).unwrap().expect("a reduction across threads");
        assert!(
            naive_integers(&written, 3).unwrap() == naive_integers(&schedule.program, 3).unwrap(),
            "{}",
            ir::print::func(&written)
        );
    }
}

/// A wrong mask, a missing barrier, a lost value: each damaged kernel is found.
#[test]
fn damage_is_found() {
    for kind in [&KINDS[0], &KINDS[2], &KINDS[4]] {
        let schedule = program(kind, 200, &rows(64, "local"));
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let naive = naive_integers(&schedule.program, 5).unwrap();
        let mutants = mutate::mutants(&lowered);
        let masks: Vec<_> = mutants.iter().filter(|m| m.kind == "shuffle").collect();
        assert_eq!(masks.len(), 20, "{:?}", masks.iter().map(|m| &m.what).collect::<Vec<_>>());
        for mutant in masks {
            let found = [Policy::InOrder, Policy::Reverse, Policy::Random(3)].into_iter().any(|policy| {
                let options = Options::new(Mode::Integer).with_policy(policy);
                integers_with(&mutant.lowered, &options, 5).map_or(true, |result| result != naive)
            });
            assert!(found, "{} {}", kind.0, mutant.what);
        }
    }
}

#[test]
fn what_takes_one_output_refuses_several() {
    let refused = |steps: &str, code: &str, words: &str| {
        let text = "program p\ninput X f32[6, 37]\nM[i 6] f32, N[i] s32 = argmax(k 37) (X[i, k], s32(k))\n\
                    output Y[i 6] f32 = M[i] + f32(N[i])\ntarget sm_80\n";
        let error = Schedule::parse(&format!("{text}{steps}"))
            .and_then(|s| s.scheduled().and_then(|f| lower(&f, &s.target)))
            .map(|_| steps)
            .unwrap_err();
        assert_eq!(error.code().to_string(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refused("compute_inline M", "compute_inline.1", "it is a reduction");
    refused("decompose_reduction M k\ncompute_inline M_init", "compute_inline.1", "it computes 2 buffers at once");
    refused("pad M k=40", "pad.3", "it computes 2 buffers at once");
    refused(
        "set_scope M local\ncompute_at M Y_i\nbind k threadIdx.x\nbind Y_i blockIdx.x",
        "bind.3",
        "its outputs N (global) and M (local) are in different scopes",
    );
    refused("decompose_reduction M k\nbind k threadIdx.x", "bind.3", "it has no init");
    refused("bind k blockIdx.x", "bind.3", "block `M` sums over loop `k`");
    refused("vectorize k", "vectorize.4", "depend on each other along loop `k`");
}
