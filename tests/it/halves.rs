//! Integers of 4 and 8 bits as f16 and bf16: every code, as the emitted PTX computes it and as the simulator does.

use warploom::lower::lower;
use warploom::sim::{Mode, Options, run_lowered, run_ptx};
use warploom::{Array, DType, Schedule, compile};

/// Chips without pairs of bf16, with them, and with all arithmetic on bf16.
const CHIPS: [&str; 3] = ["sm_75", "sm_80", "sm_90"];

/// Every byte, and each once more in another place of a word.
fn bytes() -> Vec<u8> {
    (0..=255u8).chain((0..=255).rev()).collect()
}

/// An array whose bytes are all there are.
fn codes(dtype: DType) -> Array {
    let elements = bytes().len() * 8 / dtype.bits() as usize;
    Array { dtype, shape: vec![elements], bytes: bytes() }
}

/// What the kernels of a schedule give for one input, as PTX and as the simulator runs them.
fn computed(schedule: &Schedule, x: &Array, to: DType) -> [Array; 2] {
    let args = || vec![x.clone(), Array::zeros(to, &[x.len()]).unwrap()];
    let kernels = compile(schedule).unwrap();
    let mut by_ptx = args();
    run_ptx(&kernels, &Options::new(Mode::Real), &mut by_ptx).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let mut by_level = args();
    run_lowered(&lowered, Mode::Real, &mut by_level).unwrap();
    [by_ptx, by_level].map(|mut all| all.pop().unwrap())
}

#[test]
fn every_code_of_small_integers_becomes_the_half_of_its_value() {
    for from in [DType::S4, DType::U4, DType::S8, DType::U8] {
        let x = codes(from);
        for (to, chip) in [DType::F16, DType::Bf16].into_iter().flat_map(|to| CHIPS.map(|chip| (to, chip))) {
            for lanes in [1, 2, 4, 8, 16, 32] {
                let text = format!(
                    "program one\ninput X {from}[{n}]\noutput Z[i {n}] {to} = {to}(X[i])\n\
                     target {chip}\nsplit i ? 16 {lanes} -> a b c; bind a blockIdx.x; bind b threadIdx.x; vectorize c\n",
                    n = x.len()
                );
                let schedule: Schedule = text.parse().unwrap();
                let ptx = compile(&schedule).unwrap().ptx().to_string();
                let in_pairs = lanes > 1 && (to == DType::F16 || chip != "sm_75");
                assert_eq!(in_pairs, !ptx.contains("cvt.rn.") && ptx.contains("prmt.b32"), "{text}\n{ptx}");
                for found in computed(&schedule, &x, to) {
                    let wrong = (0..x.len()).find(|i| found.get(*i).to_bits() != (x.get(*i) + 0.0).to_bits());
                    assert_eq!(wrong.map(|i| (x.get(i), found.get(i))), None, "{text}");
                }
            }
        }
    }
}

/// A product whose weights are in the order in which a lane's word has two neighbours of a fragment 16 bits apart.
fn product(from: DType, to: DType, chip: &str) -> String {
    format!(
        "program w4a16
  input X {to}[16, 64]
  input P {from}[16, 64]
  input S {to}[16]
  D: D[n 16, q 64] {to} = {to}(P[n, q // 32*32 + q % 8 // 2*8 + q % 2*4 + q % 32 // 16*2 + q % 16 // 8])*S[n]
  output C[i 16, j 16] f32 = sum(k 64) f32(X[i, k])*f32(D[j, k])
target {chip}
split i ? 8 -> im ii; split j ? 16 -> jw ji; split k ? 4 16 -> ks kk ki
reorder jw ks kk im ji ii ki
bind jw warp
cache_write C C fragment -> acc; reverse_compute_at acc jw -> o0 o1
split o0 ? 8 -> om oi; reorder om o1 oi
cache_read C X shared -> X_s; compute_at X_s ks -> a0 a1; fuse a0 a1 -> a
split a ? 32 8 -> a_0 a_1 a_2; bind a_1 threadIdx.x; vectorize a_2
set_scope D fragment; compute_at D ks -> d0 d1
cache_read D P shared -> P_s; compute_at P_s ks -> b0 b1; fuse b0 b1 -> b
split b ? 32 32 -> b_0 b_1 b_2; bind b_1 threadIdx.x; vectorize b_2
cache_read D P_s fragment -> P_f
cache_read C X_s fragment -> X_f; compute_at X_f kk -> f0 f1
tensorize f0 ldmatrix.row.m16n16.f16
decompose_reduction C ks -> zero
tensorize ji mma.m16n8k16.f32.{to}.{to} m=ji n=ii k=ki
",
    )
}

#[test]
fn pairs_of_a_word_reach_fragments_exactly() {
    for (from, to) in [DType::S4, DType::U4].into_iter().flat_map(|f| [DType::F16, DType::Bf16].map(|t| (f, t))) {
        let text = product(from, to, "sm_80").replace("ldmatrix.row.m16n16.f16", &format!("ldmatrix.row.m16n16.{to}"));
        let schedule: Schedule = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
        let kernels = compile(&schedule).unwrap();
        let ptx = kernels.ptx();
        let count = |what: &str| ptx.matches(what).count();
        assert_eq!((count("lop3.b32"), count("prmt.b32")), (16, 0), "{ptx}");
        // Row i of X has a one at k = 16 t + i: C[i, j] is D[j, 16 t + i] exactly.
        for t in 0..4 {
            let weights = Array { dtype: from, shape: vec![16, 64], bytes: bytes() };
            let mut x = Array::zeros(to, &[16, 64]).unwrap();
            (0..16).for_each(|i| x.set(i * 64 + 16 * t + i, 1.0));
            let mut scales = Array::zeros(to, &[16]).unwrap();
            (0..16).for_each(|n| scales.set(n, if n % 2 == 0 { 1.0 } else { 0.5 }));
            let mut args = vec![x, weights.clone(), scales.clone(), Array::zeros(DType::F32, &[16, 16]).unwrap()];
            run_ptx(&kernels, &Options::new(Mode::Real), &mut args).unwrap();
            let place = |q: usize| q / 32 * 32 + q % 8 / 2 * 8 + q % 2 * 4 + q % 32 / 16 * 2 + q % 16 / 8;
            for (i, j) in (0..16).flat_map(|i| (0..16).map(move |j| (i, j))) {
                let wanted = weights.get(j * 64 + place(16 * t + i)) * scales.get(j);
                assert_eq!(args[3].get(i * 16 + j), wanted, "{from} {to} at {i}, {j} of {t}");
            }
        }
    }
}
