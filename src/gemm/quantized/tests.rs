//! Programs, the order of packed weights, formats, and what is refused.

use super::*;
use crate::array::Array;
use crate::sim::{Mode, run_func};

/// Every type of weights.
const WEIGHTS: [DType; 5] = [DType::S4, DType::U4, DType::S8, DType::U8, DType::E4m3];

#[test]
fn packing_and_unpacking_are_inverse() {
    for (weights, [n, k]) in WEIGHTS.into_iter().flat_map(|w| [[64, 128], [96, 64], [64, 96], [7, 384]].map(|s| (w, s)))
    {
        let packing = Quantized::new(8, n, k).weights(weights).packing().unwrap();
        for q in 0..k {
            assert_eq!(packing.weight_at(packing.place_of(q)), q % packing.block(), "{weights} {k}");
        }
        let [rows, pitch] = [packing.rows() as usize, k as usize];
        let shape = packing.packed_shape().map(|n| n as usize);
        let block = shape[2];
        let mut w = Array::zeros(weights, &[n as usize, pitch]).unwrap();
        (0..w.len()).for_each(|i| {
            w.set(i, (i * 7 % 13) as f64 - if weights.class() == crate::dtype::Class::Unsigned { 0.0 } else { 5.0 })
        });
        let mut packed = vec![w.clone(), Array::zeros(weights, &shape).unwrap()];
        run_func(&packing.program().unwrap(), Mode::Real, &mut packed).unwrap();
        let p = packed.pop().unwrap();
        for (row, q) in (0..rows).flat_map(|row| (0..pitch).map(move |q| (row, q))) {
            let wanted = if row < n as usize { w.get(row * pitch + q) } else { 0.0 };
            let place = (q / block * rows + row) * block + packing.place_of(q as i64) as usize;
            assert_eq!(p.get(place), wanted, "{weights} {row} {q}");
        }
        let mut unpacked = vec![p, Array::zeros(weights, &[n as usize, pitch]).unwrap()];
        run_func(&packing.inverse().unwrap(), Mode::Real, &mut unpacked).unwrap();
        assert_eq!(unpacked[1].bytes, w.bytes, "{weights} {n} {k}");
    }
}

#[test]
fn formats_of_other_libraries_are_read() {
    let qweight = Array::from_slice(&[1, 2], &[0x7654_3210u32, 0xFEDC_BA98]).unwrap();
    let gptq = from_gptq(&qweight).unwrap();
    assert_eq!((gptq.dtype, &gptq.shape[..]), (DType::U4, &[2, 8][..]));
    assert!((0..16).all(|i| gptq.get(i) == i as f64), "{gptq:?}");
    // Numbers of a word are columns 0, 2, 4, 6, 1, 3, 5, 7.
    let qweight = Array::from_slice(&[1, 1], &[0x7531_6420u32]).unwrap();
    let awq = from_awq(&qweight).unwrap();
    assert!((0..8).all(|n| awq.get(n) == n as f64), "{awq:?}");
    let wrong = from_gptq(&Array::zeros(DType::F32, &[2, 2]).unwrap()).unwrap_err();
    assert_eq!(wrong.code(), Code::GemmWeights);
}

#[test]
fn types_and_groups_that_there_are_not_are_refused() {
    let plain = Quantized::new(8, 64, 256);
    let refused = [
        plain.activations(DType::F32),
        plain.weights(DType::F16),
        plain.groups(48),
        plain.groups(16),
        plain.groups(0),
        plain.groups(512),
    ];
    for q in refused {
        assert_eq!(q.program().unwrap_err().code(), Code::GemmWeights, "{q:?}");
        assert_eq!(recommend_quantized(&q, &Target::sm_90a()).unwrap_err().code(), Code::GemmWeights);
    }
    for huge in [1 << 37, i64::MAX] {
        for [m, n, k] in [[huge, 64, 64], [8, huge, 64], [8, 64, huge], [huge; 3]] {
            let code = Quantized::new(m, n, k).packed().program().unwrap_err().code();
            assert!(matches!(code, Code::TeLimit | Code::TeExtent), "{m} {n} {k}: {code}");
        }
    }
    assert_eq!(Quantized::new(0, 64, 256).program().unwrap_err().code(), Code::TeExtent);
    assert_eq!(Quantized::new(8, 64, 0).program().unwrap_err().code(), Code::TeExtent);
}

#[test]
fn packed_programs_are_recognised() {
    for weights in WEIGHTS {
        for q in [Quantized::new(8, 64, 256), Quantized::new(9, 72, 128).groups(32), Quantized::new(3, 64, 64).zeros()]
        {
            let q = q.weights(weights).packed();
            assert_eq!(
                Quantized::describe(&q.program().unwrap()).map(|d| d.program().unwrap()),
                Some(q.program().unwrap())
            );
        }
    }
    assert_eq!(Quantized::describe(&Quantized::new(8, 64, 256).program().unwrap()), None);
}
