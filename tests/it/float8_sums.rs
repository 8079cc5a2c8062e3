//! How many bits tensor cores keep of sums of products of 8-bit floats: both simulators agree with the model, and a device is asked.

use warploom::dtype::FLOAT8_SUM_FRACTION;
use warploom::measure::run_once;
use warploom::runtime::Device;
use warploom::sim::{Mode, Options, run_lowered, run_ptx};
use warploom::target::Features;
use warploom::{Array, DType, Schedule, Target, compile};

/// Rows, columns and terms of the product: one instruction.
const SIZE: [usize; 3] = [64, 16, 32];

/// A product of one wgmma, or of mma.sync on a chip without it.
fn schedule(target: Target, [a, b]: [DType; 2]) -> Schedule {
    let [m, n, k] = SIZE;
    let head = format!("gemm {m}x{n}x{k} {a}*{b}>f32 NT\ntarget {target}\n");
    let head = if a == b { head.replace(&format!("{a}*{b}"), a.name()) } else { head };
    let steps = if target.has(Features::WGMMA) {
        let stage = |x: &str| {
            format!(
                "cache_read C {x} shared -> {x}_s; compute_at {x}_s b -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}e\n\
                 split {x}e ? 128 4 -> {x}o {x}t {x}v; bind {x}t threadIdx.x; vectorize {x}v; swizzle {x}_s 32\n"
            )
        };
        format!(
            "split i ? 64 -> b mi; split k ? 32 -> kk ki; reorder b kk mi j ki; bind b blockIdx.x\n{}{}\
             cache_write C C fragment -> sum; reverse_compute_at sum b; tensorize mi wgmma.m64n{n}k32.f32.{a}.{b}\n",
            stage("A"),
            stage("B")
        )
    } else {
        format!(
            "split i ? 16 -> io ii; split j ? 8 -> jo ji; split k ? 32 -> ko ki; reorder io jo ko ii ji ki; bind io blockIdx.x\n\
             cache_read C A fragment -> A_f; compute_at A_f ko; cache_read C B fragment -> B_f; compute_at B_f ko\n\
             cache_write C C fragment -> sum; reverse_compute_at sum jo\n\
             decompose_reduction C ko -> zero; tensorize ii mma.m16n8k32.f32.{a}.{b}\n"
        )
    };
    Schedule::parse(&format!("{head}{steps}")).unwrap()
}

/// C[i, j] = 2^8 + 2^(8 - i - j) for i < 10, j < 8, where the second term is 1.5 times as large for odd j of the later columns; other rows
/// have numbers at random.
fn inputs([a, b]: [DType; 2]) -> Vec<Array> {
    let [m, n, k] = SIZE;
    let mut rng = fastrand::Rng::with_seed(3);
    let mut x = Array::zeros(a, &[m, k]).unwrap();
    let mut y = Array::zeros(b, &[n, k]).unwrap();
    for i in 0..m {
        if i < 10 {
            x.set(i * k, 16.0);
            x.set(i * k + 1, 2f64.powi(4 - i as i32));
            continue;
        }
        (0..k).for_each(|t| x.set(i * k + t, (rng.f64() - 0.5) * 2f64.powi(rng.i32(-6..6))));
    }
    for j in 0..n {
        y.set(j * k, 16.0);
        y.set(j * k + 1, 2f64.powi(4 - (j % 8) as i32) * if j < 8 { 1.0 } else { 1.5 });
        (2..k).for_each(|t| y.set(j * k + t, (rng.f64() - 0.5) * 2f64.powi(rng.i32(-6..6))));
    }
    vec![x, y, Array::zeros(DType::F32, &[m, n]).unwrap()]
}

/// The bits of the fraction that a result has: the last of 2^8 + 2^(8 - d) that is not 2^8.
fn kept(c: &Array) -> i32 {
    let sum = |d: usize| c.get(d.min(9) * SIZE[1] + d.saturating_sub(9));
    (1..=16).rev().find(|d| sum(*d) != 256.0).unwrap_or(0) as i32
}

const MIXES: [[DType; 2]; 4] =
    [[DType::E4m3, DType::E4m3], [DType::E4m3, DType::E5m2], [DType::E5m2, DType::E4m3], [DType::E5m2, DType::E5m2]];

#[test]
fn both_simulators_keep_the_bits_that_are_stated() {
    for (target, types) in [Target::sm_89(), Target::sm_90a()].into_iter().flat_map(|t| MIXES.map(|m| (t, m))) {
        let schedule = schedule(target, types);
        let [mut by_level, mut by_ptx] = [inputs(types), inputs(types)];
        run_lowered(&crate::tensor::lowered(&schedule), Mode::Real, &mut by_level).unwrap();
        run_ptx(&compile(&schedule).unwrap(), &Options::new(Mode::Real), &mut by_ptx).unwrap();
        assert_eq!(by_level[2], by_ptx[2], "{target} {types:?}");
        assert_eq!(kept(&by_level[2]), FLOAT8_SUM_FRACTION, "{target} {types:?}");
        // Such sums are within the bound of the reference.
        for output in
            warploom::reference::outputs(&schedule.program, &by_level, warploom::reference::Sample::All).unwrap()
        {
            assert!(output.bound(&by_level[2]).unwrap().ratio > 0.0);
        }
    }
}

/// The device's sums are those of the model, element by element.
pub fn on_device(device: &Device) {
    let (major, minor) = device.info().capability;
    let target = Target::for_device(10 * major + minor).unwrap();
    if !target.has(Features::WGMMA) {
        eprintln!("    no wgmma on {target}: not measured");
        return;
    }
    for types in MIXES {
        let schedule = schedule(target, types);
        let program = device.load(&compile(&schedule).unwrap()).unwrap();
        let after = run_once(&program, &inputs(types)).unwrap();
        let mut simulated = inputs(types);
        run_lowered(&crate::tensor::lowered(&schedule), Mode::Real, &mut simulated).unwrap();
        let (found, model) = (&after[2], &simulated[2]);
        let other = (0..found.len()).filter(|i| found.get(*i) != model.get(*i)).count();
        let [a, b] = types;
        eprintln!(
            "    {a} * {b}: {} bits of the fraction are kept; {other} of {} sums differ from the model",
            kept(found),
            found.len()
        );
        for output in warploom::reference::outputs(&schedule.program, &after, warploom::reference::Sample::All).unwrap()
        {
            output.bound(found).unwrap();
        }
        assert_eq!(kept(found), FLOAT8_SUM_FRACTION, "{a} * {b}");
    }
}
