//! Products with scales of blocks: partial sums by wgmma that threads multiply and promote.

use super::ptxas::{assemble, tools};
use super::sample::drawn;
use super::tensor::{arguments, lowered, right_on};
use warploom::error::Code;
use warploom::gemm::{Activation, Along, Gemm, Kind, candidates, recommend, recommend_promoted};
use warploom::reference::{Sample, outputs};
use warploom::sim::{Mode, Options, Policy, run_lowered_with, run_ptx};
use warploom::te::Layout;
use warploom::{Array, DType, Schedule, Target, compile};

/// M, N, K, the types of A, B and C.
type Case = ([i64; 3], [DType; 3]);

/// Sizes that tiles divide, and sizes with a last tile of few rows and columns.
const CASES: [Case; 5] = [
    ([256, 128, 512], [DType::E4m3, DType::E4m3, DType::Bf16]),
    ([200, 136, 256], [DType::E4m3, DType::E4m3, DType::F32]),
    ([17, 33, 256], [DType::E5m2, DType::E4m3, DType::F16]),
    ([70, 300, 128], [DType::E4m3, DType::E5m2, DType::E4m3]),
    ([129, 257, 384], [DType::E4m3, DType::E4m3, DType::Bf16]),
];

/// Whether a test runs a case: the smallest in every run, and a third of the others, as the commit draws them.
fn is_run(test: &str, case: Case) -> bool {
    case == CASES[2] || drawn(&format!("{test} {case:?}"), 3)
}

fn gemm(([m, n, k], [a, b, out]): Case) -> Gemm {
    let spec = *Gemm::new(m, n, k).accumulate(DType::F32).output(out).layout(Layout::NT).spec();
    Gemm::from(spec.types(a, b, DType::F32, out)).block_scales()
}

/// Small integers, so that every sum is exact: powers of two as scales, and operands of one bit.
fn exact_arguments(schedule: &Schedule) -> Vec<Array> {
    let mut all = arguments(schedule);
    let mut rng = fastrand::Rng::with_seed(7);
    for array in all.iter_mut().take(4) {
        for i in 0..array.len() {
            array.set(i, if array.dtype.is_float8() { f64::from(rng.i32(-1..2)) } else { 2f64.powi(rng.i32(-1..2)) });
        }
    }
    all
}

/// The steps of all cases promote. The smallest runs, and a sample of the others.
#[test]
fn recommended_steps_promote_and_are_exact() {
    for case in CASES {
        let schedule = recommend(&gemm(case), &Target::sm_90a()).unwrap();
        let text = schedule.to_string();
        assert!(text.contains("promote ") && text.contains("tensorize p0 wgmma.m64n"), "{text}");
        // Results of 8 bits are no exact sums.
        if case.1[2] == DType::E4m3 || !is_run("exact", case) {
            continue;
        }
        right_on(&schedule, exact_arguments(&schedule));
    }
}

/// The smallest case, and a sample of the others.
#[test]
fn results_are_within_their_bound_in_every_order_and_as_ptx() {
    for case in CASES.into_iter().filter(|case| is_run("bound", *case)) {
        let schedule = recommend(&gemm(case), &Target::sm_90a()).unwrap();
        let kernels = lowered(&schedule);
        let shapes = schedule.program.params.iter().map(|p| schedule.program.buffer(*p));
        let inputs: Vec<Array> = shapes
            .zip(1..)
            .map(|(b, seed)| {
                let shape: Vec<usize> = b.const_shape().unwrap().iter().map(|n| *n as usize).collect();
                Array::random(b.dtype, &shape, seed).unwrap()
            })
            .collect();
        let check = |args: &[Array]| {
            for output in outputs(&schedule.program, args, Sample::All).unwrap() {
                let worst = output.bound(&args[output.param]).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
                assert!(worst.ratio <= 1.0, "{schedule}");
            }
        };
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3)] {
            let mut args = inputs.clone();
            run_lowered_with(&kernels, &Options::new(Mode::Real).with_policy(policy), &mut args).unwrap();
            check(&args);
        }
        let mut args = inputs.clone();
        run_ptx(&compile(&schedule).unwrap(), &Options::new(Mode::Real), &mut args).unwrap();
        check(&args);
    }
}

/// The first candidate of one size, and a sample of the others.
#[test]
fn candidates_stay_in_registers_and_their_wgmmas_in_flight() {
    let tools = tools();
    let sizes = [[4096, 4096, 7168], [512, 7168, 2048], [64, 2112, 7168]];
    for size in sizes.into_iter().filter(|size| size[0] == 64 || drawn(&format!("candidates {size:?}"), 3)) {
        let gemm = gemm((size, [DType::E4m3, DType::E4m3, DType::Bf16]));
        let all = candidates(&gemm, &Target::sm_90a()).unwrap();
        assert!(all.len() > 2, "{size:?}");
        for (at, (name, schedule)) in all.into_iter().enumerate() {
            if at > 0 && !drawn(&format!("candidate {name} of {size:?}"), 3) {
                continue;
            }
            let kernels = lowered(&schedule);
            assemble(&tools, &kernels, &schedule.target, true).unwrap_or_else(|e| panic!("{name} of {size:?}: {e}"));
        }
    }
}

/// The text of the kernels that the recommended steps lower to.
fn lowered_text(size: [i64; 3]) -> String {
    let schedule = recommend(&gemm((size, [DType::E4m3, DType::E4m3, DType::Bf16])), &Target::sm_90a()).unwrap();
    warploom::lower::print(&lowered(&schedule))
}

#[test]
fn scales_are_loaded_an_iteration_ahead() {
    let text = lowered_text([4096, 4096, 7168]);
    let (before, inside) = text.split_once("for k0 in 0..56").unwrap();
    assert!(
        before.contains("a_f_next[a_f_1_0 + a_f_1_1*2] = a_scales[") && before.contains("b_f_next[0] = b_scales["),
        "{text}"
    );
    let wait = inside.find("mbarrier.wait A_s_full").unwrap();
    for load in ["a_f[3] = a_f_next[3]", "if k0 < 55", "b_f_next[0] = b_scales[", "a_scales[(k0 + 1)*4096"] {
        assert!(inside[..wait].contains(load), "{load}\n{text}");
    }
    // A sum of one iteration has nothing to load ahead.
    assert!(!lowered_text([256, 128, 128]).contains("_next"));
}

#[test]
fn stages_are_released_before_their_sums_are_promoted() {
    let text = lowered_text([4096, 4096, 7168]);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
    let [last, release, adds] = ["if io >= 1", "mbarrier.arrive A_s_empty", "block mma\n"].map(at);
    let wait = text[..last].rfind("wgmma_wait 0").unwrap();
    assert!(wait < last && last < release && release < adds, "{text}");
}

#[test]
fn programs_of_other_names_with_an_epilogue_are_promoted() {
    let text = "program layer
        input X e4m3[100, 256]
        input W e4m3[140, 256]
        input x f32[2, 100]
        input w f32[2, 2]
        input bias f32[140]
        dot: acc[row 100, unit 140] f32 = sum(c 256) f32(X[row, c])*x[c // 128, row]*w[unit // 128, c // 128]*f32(W[unit, c])
        H: H[row 100, unit 140] f32 = acc[row, unit] + bias[unit]
        Y: output Y[row 100, unit 140] bf16 = bf16(max(H[row, unit], 0.0))
        target sm_90a
        recommend";
    let schedule = Schedule::parse(text).unwrap();
    assert!(schedule.to_string().contains("promote dot "), "{schedule}");
    right_on(&schedule, exact_arguments(&schedule));
    let gemm = gemm(CASES[4]).bias(Along::Columns).activation(Activation::Relu);
    let schedule = recommend(&gemm, &Target::sm_90a()).unwrap();
    assert!(schedule.to_string().contains("promote mma "), "{schedule}");
    right_on(&schedule, exact_arguments(&schedule));
    let other = text.replace("x[c // 128, row]", "x[c // 64 % 2, row]");
    let error = Schedule::parse(&other).unwrap_err();
    assert_eq!(error.code(), Code::GemmLayout);
    assert!(error.message().contains("scales terms otherwise than by"), "{error}");
}

#[test]
fn other_chips_and_other_sizes_have_steps_without_tensor_cores() {
    for (size, target) in [([40, 24, 200], Target::sm_90a()), ([40, 24, 256], Target::sm_80())] {
        let schedule = recommend(&gemm((size, [DType::E4m3, DType::E4m3, DType::Bf16])), &target).unwrap();
        assert!(!schedule.to_string().contains("tensorize"), "{schedule}");
        right_on(&schedule, exact_arguments(&schedule));
    }
}

/// The largest error of C, in f32, of a GEMM of 4096 positive terms by these steps, relative to the largest element.
fn error_of(schedule: &Schedule) -> f64 {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut args = arguments(schedule);
    args[..2].iter_mut().for_each(|x| (0..x.len()).for_each(|i| x.set(i, f64::from(rng.i32(1..16)) / 16.0)));
    run_lowered_with(&lowered(schedule), &Options::new(Mode::Real), &mut args).unwrap();
    let exact = &outputs(&schedule.program, &args, Sample::All).unwrap()[0];
    let errors = exact.values.iter().enumerate().map(|(i, v)| (args[exact.param].get(i) - v).abs());
    errors.fold(0.0, f64::max) / exact.values.iter().fold(0.0, |a: f64, b| a.max(*b))
}

#[test]
fn promoted_sums_have_smaller_errors() {
    let gemm = Gemm::new(64, 32, 4096).of(DType::E4m3).output(DType::F32).layout(Layout::NT);
    let target = Target::sm_90a();
    let promoted = recommend_promoted(&gemm, &target).unwrap();
    assert!(promoted.to_string().contains("promote C kb -> part"), "{promoted}");
    let plain = Kind::Wgmma.schedule(&gemm, &target).unwrap();
    let [promoted, plain] = [promoted, plain].map(|s| error_of(&s));
    // 128 terms of 13 bits, and 4096.
    assert!(8.0 * promoted < plain, "{promoted:e} against {plain:e}");
}
