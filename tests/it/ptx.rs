//! The emitted PTX, run on the CPU: every example at reduced sizes gives what its Lowered program gives, what LLVM once made wrong
//! is found, and so is damaged PTX.

mod damage;
mod mutants;

use crate::copies;
use crate::differential::{POLICIES, arguments, with_some};
use crate::ptxas::{assemble, tools};
use crate::sample::drawn;
use crate::tensor::right;
use warploom::error::Code;
use warploom::kernel::Param;
use warploom::lower::{Lowered, lower};
use warploom::reference::{Sample, outputs};
use warploom::sim::{Mode, Options, Policy, run_lowered, run_ptx};
use warploom::{Array, DType, Error, Kernels, Result, Schedule, codegen, compile};

fn options(policy: Policy) -> Options {
    Options::new(Mode::Real).with_policy(policy)
}

/// Whether every argument has the same bytes.
fn same(left: &[Array], right: &[Array]) -> Result<()> {
    match left.iter().zip(right).position(|(l, r)| l.bytes != r.bytes) {
        None => Ok(()),
        Some(n) => Err(Error::bug(Code::SimResult, format!("argument {n} differs between Lowered and PTX"))),
    }
}

/// Runs a schedule on the simulator and assembles it without spill; one in two, drawn by `name`, also runs as PTX.
pub fn computes_and_assembles(schedule: &Schedule, name: &str) {
    let kernels = right(schedule);
    assemble(&tools(), &kernels, &schedule.target, true).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    if drawn(name, 2) {
        agrees(schedule, &kernels).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    }
}

/// Runs the PTX of a lowered program in every order: on small integers it gives the bytes of Lowered, on reals the reference within
/// its bound.
pub fn agrees(schedule: &Schedule, lowered: &Lowered) -> Result<()> {
    let kernels = codegen::compile(lowered, &schedule.target)?;
    let mut args = arguments(&schedule.program, |d, s, seed| Array::random_integers(d, s, 8, seed))?;
    let inputs = args.clone();
    run_lowered(lowered, Mode::Real, &mut args)?;
    for policy in POLICIES {
        let mut own = inputs.clone();
        let run = run_ptx(&kernels, &options(policy), &mut own).and_then(|_| same(&args, &own));
        run.map_err(|e| e.within(format!("{policy:?}")))?;
    }
    let mut args = arguments(&schedule.program, Array::random)?;
    run_ptx(&kernels, &options(Policy::InOrder), &mut args)?;
    for output in outputs(&schedule.program, &args, Sample::All)? {
        output.bound(&args[output.param])?;
    }
    Ok(())
}

/// A sixth of the examples and sizes, as the commit draws them.
#[test]
fn the_ptx_of_every_example_gives_what_its_kernels_give() {
    with_some("ptx", 6, |schedule, _, lowered| agrees(schedule, lowered));
}

#[test]
fn asynchronous_copies_of_every_form_land_in_the_ptx() {
    for (name, text) in copies::programs() {
        let schedule = Schedule::parse(&text).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        agrees(&schedule, &lowered).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// Functions, conversions and integer arithmetic of every type.
const PROGRAMS: [&str; 10] = [
    "B[i 97] f32 = exp(A[i]) + log(A[i]*A[i] + 1) + sqrt(abs(A[i])) + tanh(A[i])",
    "B[i 97] f32 = select(A[i] < 0, -A[i], erf(A[i]))",
    "B[i 97] f64 = exp(f64(A[i])) + log2(f64(A[i]*A[i]) + 1)",
    "B[i 97] f16 = f16(A[i])*f16(2.5) + f16(A[96 - i])",
    "B[i 97] bf16 = bf16(A[i])*bf16(3) - bf16(A[96 - i])",
    "B[i 97] s32 = s32(A[i]*100)*7 - s32(A[96 - i]*10)",
    "B[i 97] s8 = s8(A[i]*100)",
    "B[i 97] f32 = max(A[i], min(A[96 - i], 0.25)) / (abs(A[i]) + 1)",
    "B[i 97] f32 = A[i*7 % 97] + A[i // 3]",
    "B[i 97] s64 = s64(s32(A[i]*1000))*1000003",
];

#[test]
fn functions_and_conversions_are_those_of_the_reference() {
    let mut ran = 0;
    for body in PROGRAMS {
        let text = format!(
            "program own\ninput A f32[97]\noutput {body}\ntarget sm_90\nsplit i ? 32 -> a b; bind a blockIdx.x; bind b threadIdx.x\n"
        );
        let schedule = match Schedule::parse(&text) {
            Ok(schedule) => schedule,
            Err(e) => panic!("{body}: {e}"),
        };
        let kernels = compile(&schedule).unwrap_or_else(|e| panic!("{body}: {e}"));
        let mut args = arguments(&schedule.program, Array::random).unwrap();
        run_ptx(&kernels, &options(Policy::Reverse), &mut args).unwrap_or_else(|e| panic!("{body}: {e}"));
        for output in outputs(&schedule.program, &args, Sample::All).unwrap() {
            output.bound(&args[output.param]).unwrap_or_else(|e| panic!("{body}: {e}"));
        }
        ran += 1;
    }
    assert_eq!(ran, PROGRAMS.len());
}

/// A program whose PTX was wrong: LLVM added with an `or` whose flag held under a guard alone.
fn once_wrong(program: &str, text: &str) -> (Kernels, Vec<Array>) {
    let schedule = Schedule::parse(program).unwrap();
    let mut kernels = compile(&schedule).unwrap();
    kernels.text = text.to_string();
    let args = arguments(&schedule.program, |d: DType, s: &[usize], seed| Array::random_integers(d, s, 8, seed));
    (kernels, args.unwrap())
}

#[test]
fn a_sum_that_llvm_made_an_or_is_found() {
    let prefix = "program prefix\ninput A f32[8, 2, 24]\ninput C f32[24]\n\
        output B[i 8, j 2, k 24] f32 = select(k < 16, A[i, j, k], 0) + C[k]\n\
        target sm_90\nbind i threadIdx.x; bind j blockIdx.x; bind k threadIdx.y\n";
    let rotary = "program rotary\ninput Q f32[4, 6, 96]\ninput C f32[96]\n\
        output O[b 4, i 6, j 96] f32 = select(j < 32, Q[b, i, j], 0) * C[j]\n\
        target sm_90\nbind b blockIdx.x; bind i threadIdx.x; bind j blockIdx.y\n";
    let cases = [
        (prefix, include_str!("ptx/or_disjoint.ptx"), "B[1, 0, 0]"),
        (rotary, include_str!("ptx/or_disjoint_rotary.ptx"), "O[1, 0, 0]"),
    ];
    for (program, text, element) in cases {
        let (kernels, args) = once_wrong(program, text);
        for policy in POLICIES {
            let error = run_ptx(&kernels, &options(policy), &mut args.clone()).unwrap_err();
            assert_eq!(error.code(), Code::PtxRace, "{error}");
            assert!(error.to_string().contains("line 48: `st.global.f32 [%rd10], %f5;`"), "{error}");
            assert!(policy != Policy::InOrder || error.to_string().contains(element), "{error}");
        }
        // Without looking for races the elements that nothing writes show it.
        let blind = options(Policy::InOrder).with_races(false);
        assert_eq!(run_ptx(&kernels, &blind, &mut args.clone()).unwrap_err().code(), Code::PtxUnwritten);
    }
}

#[test]
fn an_instruction_that_is_not_known_is_named_with_its_line() {
    let schedule =
        Schedule::parse("vec_add 64\ntarget sm_90\nsplit i ? 32 -> a b; bind a blockIdx.x; bind b threadIdx.x")
            .unwrap();
    let mut kernels = compile(&schedule).unwrap();
    let args = arguments(&schedule.program, Array::random).unwrap();
    let line = 1 + kernels.text.lines().position(|l| l.contains("add.rn.f32") || l.contains("add.f32")).unwrap();
    kernels.text = kernels.text.replace("add.rn.f32", "frobnicate.f32");
    let error = run_ptx(&kernels, &options(Policy::InOrder), &mut args.clone()).unwrap_err();
    assert_eq!(error.code(), Code::PtxUnknown);
    assert!(error.to_string().contains(&format!("frobnicate.f32 (line {line} of the PTX)")), "{error}");
    for broken in ["{", "ld.global.f32", ".reg .b32 %r<99999999>;", "bra nowhere;", "mov.b32 %r1, %q2;", "\u{1F600}"] {
        let mut kernels = kernels.clone();
        kernels.text = kernels.text.replacen("ret;", broken, 1);
        assert!(run_ptx(&kernels, &options(Policy::InOrder), &mut args.clone()).is_err(), "{broken}");
    }
}

#[test]
fn a_tensor_map_is_no_number_that_a_kernel_loads() {
    let text = std::fs::read_to_string("examples/mma_f16_tma.loom").unwrap();
    let schedule = Schedule::parse(&text).unwrap().resized(&[128, 128, 448]).unwrap();
    let mut kernels = compile(&schedule).unwrap();
    let args = arguments(&schedule.program, Array::random).unwrap();
    let kernel = &kernels.kernels[0];
    let map = kernel.params.iter().position(|p| matches!(p, Param::TensorMap(_))).unwrap();
    let load = format!("ld.param.b64 %rd1, [{}_param_{map}];\n\tret;", kernel.entry);
    kernels.text = kernels.text.replacen("ret;", &load, 1);
    let error = run_ptx(&kernels, &options(Policy::InOrder), &mut args.clone()).unwrap_err();
    assert_eq!(error.code(), Code::PtxLaunch, "{error}");
    assert!(error.message().ends_with("of its parameters is loaded, and has no value"), "{error}");
}
