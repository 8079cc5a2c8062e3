//! Vectors of two bytes: their PTX has no local memory, and gives what Lowered gives.

use super::ptx::agrees;
use super::ptxas::every_operation;
use warploom::codegen::compile;
use warploom::lower::{Lowered, lower};
use warploom::sim::{Mode, Options, Policy, run_lowered, run_ptx};
use warploom::target::Target;
use warploom::te::Layout;
use warploom::{Array, DType, Gemm, Schedule, gemm};

/// What LLVM's backend calls the local memory of a kernel.
const LOCAL_MEMORY: &str = "__local_depot";

fn in_registers(lowered: &Lowered, target: Target) {
    let text = compile(lowered, &target).unwrap_or_else(|e| panic!("{}: {e}", lowered.name)).text;
    assert!(!text.contains(LOCAL_MEMORY), "{} for {target} uses local memory:\n{text}", lowered.name);
}

#[test]
fn every_operation_on_two_bytes_is_in_registers() {
    for dtype in [DType::S8, DType::U8] {
        let lowered = every_operation(dtype, 2);
        in_registers(&lowered, Target::sm_90a());
        let kernels = compile(&lowered, &Target::sm_90a()).unwrap();
        let arrays = kernels.args.iter().zip(0..);
        let mut args: Vec<Array> =
            arrays.map(|(p, seed)| Array::random(p.dtype, &[p.shape[0] as usize], seed).unwrap()).collect();
        // A division by zero is an error of Lowered.
        args[1].bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = 1);
        let mut own = args.clone();
        run_lowered(&lowered, Mode::Real, &mut args).unwrap();
        run_ptx(&kernels, &Options::new(Mode::Real).with_policy(Policy::Reverse), &mut own).unwrap();
        for ((one, other), param) in args.iter().zip(&own).zip(&kernels.args) {
            assert!(one.bytes == other.bytes, "{dtype}: {} differs", param.name);
        }
    }
}

/// Pairs that are read where a condition holds, and used behind the branch.
#[test]
fn two_bytes_cross_branches_in_registers() {
    let guarded = "select(j < 13, A[i, j], 3)";
    let bodies = [
        format!("s8 = {guarded}"),
        format!("s8 = max({guarded}, D[i, j])"),
        format!("s8 = select(j < 9, {guarded} + D[i, j], D[i, j])"),
        format!("s8 = select({guarded} < D[i, j], {guarded}, abs(D[i, j]))"),
        format!("s32 = s32({guarded})*s32(D[i, j])"),
        format!("f32 = f32({guarded}) - f32(D[i, j])"),
        format!("f16 = f16(select(i < 3, D[i, j], {guarded}))"),
        format!("u8 = u8({guarded})"),
    ];
    for body in bodies {
        let text = format!(
            "program pairs\ninput A s8[6, 22]\ninput D s8[6, 22]\noutput B[i 6, j 22] {body}\ntarget sm_80
             split j ? 2 -> j0 j1\nbind i blockIdx.x\nbind j0 threadIdx.x\nvectorize j1"
        );
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{body}: {e}"));
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_or_else(|e| panic!("{body}: {e}"));
        in_registers(&lowered, schedule.target);
        agrees(&schedule, &lowered).unwrap_or_else(|e| panic!("{body}: {e}"));
    }
}

/// Pairs that are joined or separated in another block than the one that reads them.
#[test]
fn products_of_rows_of_even_length_are_in_registers() {
    for ([m, n, k], layout) in [
        ([549, 370, 15], Layout::NN),
        ([402, 96, 128], Layout::TN),
        ([402, 112, 128], Layout::TN),
        ([48, 6998, 64], Layout::TN),
        ([896, 576, 2174], Layout::TT),
        ([896, 640, 2174], Layout::TT),
    ] {
        let product = Gemm::new(m, n, k).of(DType::S8).layout(layout);
        let schedule = gemm::recommend(&product, &Target::sm_90a()).unwrap();
        in_registers(&lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap(), schedule.target);
    }
}
