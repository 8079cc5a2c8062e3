//! The reference against sums by hand, against the simulator, and against results that are wrong.

use super::*;
use crate::error::Code;
use crate::sim::{Mode, run_func};
use crate::te::{Epilogue, GemmSpec, Layout, batched_gemm, gemm, gemm_with, window_sum};

fn arrays(func: &Func, make: impl Fn(DType, &[usize], u64) -> Result<Array>) -> Vec<Array> {
    let shape =
        |b: &BufferId| -> Vec<usize> { func.buffer(*b).const_shape().unwrap().iter().map(|n| *n as usize).collect() };
    let params = func.params.iter().enumerate();
    params.map(|(i, p)| make(func.buffer(*p).dtype, &shape(p), i as u64).unwrap()).collect()
}

fn small(dtype: DType, shape: &[usize], seed: u64) -> Result<Array> {
    Array::random_integers(dtype, shape, 2, seed)
}

fn spec(a: DType, acc: DType, out: DType, layout: Layout) -> GemmSpec {
    GemmSpec::of(19, 23, 37, a, layout).types(a, a, acc, out)
}

fn check(func: &Func) {
    let mut args = arrays(func, small);
    run_func(func, Mode::Real, &mut args).unwrap();
    for output in outputs(func, &args, Sample::All).unwrap() {
        output.exact(&args[output.param]).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut args = arrays(func, Array::random);
    run_func(func, Mode::Real, &mut args).unwrap();
    for output in outputs(func, &args, Sample::All).unwrap() {
        let worst = output.bound(&args[output.param]).unwrap_or_else(|e| panic!("{e}"));
        // Rounding shows where the reference itself is wider than the program.
        let rounds = output.dtype.is_float() && output.dtype != DType::F64;
        assert_eq!(rounds, worst.ratio > 0.0, "{worst:?}");
    }
}

#[test]
fn the_machine_agrees() {
    use DType::*;
    for layout in [Layout::NN, Layout::NT, Layout::TN, Layout::TT] {
        check(&gemm(&spec(F32, F32, F32, layout)).unwrap());
    }
    for (a, acc, out) in [(F16, F32, F16), (Bf16, F32, F32), (S8, S32, S32), (F64, F64, F64), (E4m3, F32, F16)] {
        check(&gemm(&spec(a, acc, out, Layout::NT)).unwrap());
    }
    check(&batched_gemm(3, &spec(F32, F32, F32, Layout::NN)).unwrap());
    check(&window_sum(64).unwrap());
}

#[test]
fn epilogues_keep_within_their_bounds() {
    let steps = [Epilogue::Bias, Epilogue::Gelu, Epilogue::Residual, Epilogue::Scale(0.5)];
    let func = gemm_with(&spec(DType::F16, DType::F32, DType::F16, Layout::NN), &steps).unwrap();
    let mut args = arrays(&func, Array::random);
    run_func(&func, Mode::Real, &mut args).unwrap();
    let output = outputs(&func, &args, Sample::All).unwrap().remove(0);
    let worst = output.bound(&args[output.param]).unwrap();
    assert!(worst.ratio > 0.0);
}

#[test]
fn wrong_results_are_found_and_named() {
    let func = gemm(&spec(DType::F32, DType::F32, DType::F32, Layout::NN)).unwrap();
    let mut args = arrays(&func, small);
    run_func(&func, Mode::Real, &mut args).unwrap();
    let output = outputs(&func, &args, Sample::All).unwrap().remove(0);
    let right = args[2].get(23 * 4 + 5);
    args[2].set(23 * 4 + 5, right + 1.0);
    let error = output.exact(&args[2]).unwrap_err();
    assert_eq!(error.message(), format!("C[4, 5] is {}, should be {right}", right + 1.0));
    assert_eq!(output.bound(&args[2]).unwrap_err().code(), Code::ReferenceBound);
    args[2].set(23 * 4 + 5, f64::NAN);
    assert_eq!(output.bound(&args[2]).unwrap_err().code(), Code::ReferenceBound);
}

/// 8 * 127 * 127 = 129032 lies beyond the largest f16, 65504; 4 * 127 * 127 = 64516 does not.
#[test]
fn what_is_too_large_for_its_type_is_infinite() {
    for (k, finite) in [(8, false), (4, true)] {
        let of = |out| GemmSpec { acc: DType::F32, out, ..GemmSpec::of(1, 1, k, DType::S8, Layout::NN) };
        let func = gemm(&of(DType::F16)).unwrap();
        let mut args = arrays(&func, |dtype, shape, _| Array::from_fn(dtype, shape, |_| 127.0));
        run_func(&func, Mode::Real, &mut args).unwrap();
        let output = outputs(&func, &args, Sample::All).unwrap().remove(0);
        assert_eq!(args[2].get(0).is_finite(), finite);
        output.bound(&args[2]).unwrap();
        output.exact(&args[2]).unwrap();
        for wrong in [f64::NEG_INFINITY, f64::NAN, if finite { f64::INFINITY } else { 65504.0 }] {
            args[2].set(0, wrong);
            assert_eq!(output.bound(&args[2]).unwrap_err().code(), Code::ReferenceBound, "{wrong}");
        }
    }
}

#[test]
fn samples_are_rows_of_the_whole() {
    let func = gemm(&spec(DType::F32, DType::F32, DType::F32, Layout::TN)).unwrap();
    let args = arrays(&func, Array::random);
    let whole = outputs(&func, &args, Sample::All).unwrap().remove(0);
    let some = outputs(&func, &args, Sample::Rows { count: 5, seed: 1 }).unwrap().remove(0);
    assert!(some.rows.len() <= 5 && some.rows.first() == Some(&0) && some.rows.last() == Some(&18));
    for (n, row) in some.rows.iter().enumerate() {
        assert_eq!(some.values[n * 23..][..23], whole.values[row * 23..][..23]);
    }
}

/// Dequantised weights: rounded to f16, so that the operand has errors of its own.
#[test]
fn operands_that_follow_from_inputs_are_computed_once() {
    let text = "program w4a16
        input X f16[6, 64]
        input W s4[10, 64]
        input S f16[10, 2]
        D: D[n 10, q 64] f16 = f16(W[n, q])*S[n, q // 32]
        mma: acc[i 6, j 10] f32 = sum(k 64) f32(X[i, k])*f32(D[j, k])
        out: output C[i 6, j 10] f16 = f16(acc[i, j])";
    let func = crate::te::parse(text).unwrap();
    check(&func);
    let mut args = arrays(&func, Array::random);
    let definitions = definition::of(&func).unwrap();
    let inputs: HashMap<BufferId, &Array> = func.params[..3].iter().copied().zip(&args).collect();
    let operands = operands::of(&func, &definitions, &inputs).unwrap();
    let (id, operand) = operands.iter().next().unwrap();
    assert_eq!((operands.len(), func.buffer(*id).name.as_str(), &operand.strides[..]), (1, "D", &[64, 1][..]));
    let sources = product::Sources { inputs: &inputs, operands: &operands };
    assert_eq!(product::find(&func, &definitions, &sources).len(), 1);
    // An element of D is wrong by one unit in the last place of f16 at most; a product with another weight is not.
    let output = outputs(&func, &args, Sample::All).unwrap().remove(0);
    run_func(&func, Mode::Real, &mut args).unwrap();
    output.bound(&args[3]).unwrap();
    let weight = args[1].get(0);
    args[1].set(0, if weight > 0.0 { -8.0 } else { 7.0 });
    run_func(&func, Mode::Real, &mut args).unwrap();
    assert_eq!(output.bound(&args[3]).unwrap_err().code(), Code::ReferenceBound);
}

#[test]
fn scheduled_programs_have_no_reference() {
    let mut func = gemm(&spec(DType::F32, DType::F32, DType::F32, Layout::NN)).unwrap();
    let nest = func.body.clone();
    func.body.extend(nest);
    let args = arrays(&func, Array::random);
    assert_eq!(outputs(&func, &args, Sample::All).unwrap_err().code(), Code::ReferenceForm);
}
