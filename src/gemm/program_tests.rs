//! Recipes of every kind for programs with an epilogue, on the simulator.

use super::pipelined::Route;
use super::program::Product;
use super::*;
use crate::array::Array;
use crate::error::Code;
use crate::ir::visit;
use crate::loom::Schedule;
use crate::lower::lower;
use crate::reference::{self, Sample};
use crate::sample::drawn;
use crate::schedule::Steps;
use crate::sim::{Mode, run_lowered};

/// Runs a schedule on integers, whose sums are exact, and on reals, and compares the outputs with the reference.
fn right(schedule: &Schedule, exact: bool) {
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    let kernels = lower(&func, &schedule.target).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    let program = &schedule.program;
    let written = visit::writes(&program.body);
    let tiers: &[bool] = if exact { &[true, false] } else { &[false] };
    for &integers in tiers {
        let argument = |(seed, id): (u64, &crate::ir::BufferId)| {
            let buffer = program.buffer(*id);
            let shape = [crate::ir::layout::span(buffer).unwrap() as usize];
            match (written.contains(id), integers) {
                (true, _) => Array::poisoned(buffer.dtype, &shape),
                (_, true) => Array::random_integers(buffer.dtype, &shape, 3, seed),
                _ => Array::random(buffer.dtype, &shape, seed),
            }
        };
        let before = (1..).zip(&program.params).map(argument).collect::<Result<Vec<_>>>().unwrap();
        let mut after = before.clone();
        run_lowered(&kernels, Mode::Real, &mut after).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
        for output in reference::outputs(program, &before, Sample::All).unwrap() {
            let got = &after[output.param];
            let compared = if integers { output.exact(got) } else { output.bound(got).map(|_| ()) };
            compared.unwrap_or_else(|e| panic!("{schedule}\n{e}"));
        }
    }
}

/// A GEMM with an epilogue by these steps.
fn by(gemm: &Gemm, target: Target, steps: impl Fn(&GemmSpec) -> Steps) {
    let product = Product::of_gemm(gemm).unwrap();
    let schedule = adapt::schedule(&product, &target, steps(&product.spec)).unwrap_or_else(|e| panic!("{gemm:?}\n{e}"));
    right(&schedule, true);
}

fn layer(gemm: Gemm) -> Gemm {
    gemm.bias(Along::Columns).activation(Activation::Relu).residual()
}

const SIZES: [[i64; 3]; 2] = [[64, 64, 32], [50, 44, 36]];

#[test]
fn ordinary_code_computes_epilogues() {
    for [m, n, k] in SIZES {
        for dtype in [DType::F32, DType::F16, DType::S8] {
            for gemm in [layer(Gemm::new(m, n, k).of(dtype)), layer(Gemm::new(m, n, k).of(dtype).batch(2))] {
                by(&gemm, Target::sm_80(), kind::naive);
                let tiles = Tiles { bm: 32, bn: 16, bk: 8, tm: 4, tn: 2, stages: 2, parts: 1 };
                by(&gemm, Target::sm_80(), |spec| tiles.steps(spec));
                if gemm.spec().batch.is_none() {
                    by(&gemm, Target::sm_80(), |spec| Tiles { parts: 2, ..tiles }.steps(spec));
                }
            }
        }
    }
    for (gemm, parts) in [(Gemm::new(3, 68, 264).layout(Layout::NT), 1), (Gemm::new(68, 2, 264), 2)] {
        for staged in [false, true] {
            let gemv = Gemv { lanes: 8, groups: 4, vector: 4, unroll: 1, rows: 4, parts, staged };
            by(&layer(gemm), Target::sm_80(), |spec| gemv.steps(spec));
            by(&layer(gemm.of(DType::F16)), Target::sm_80(), |spec| gemv.steps(spec));
        }
    }
}

#[test]
fn copies_of_accumulators_compute_epilogues() {
    let gemm = layer(Gemm::new(128, 128, 32));
    for split in [Split::NONE, Split { parts: 2, slices: 1 }, Split { parts: 1, slices: 2 }] {
        by(&gemm, Target::sm_80(), |spec| {
            let (_, tiles) =
                WarpTiles::choose(&GemmSpec { m: 2048, n: 2048, k: 2048, ..*spec }, &Target::sm_80()).unwrap();
            WarpTiles { split, groups: [1, 1], ..tiles }.steps(spec)
        });
    }
    for ([m, n, k], slices) in [([128, 256, 16], 1), ([120, 250, 12], 1), ([60, 64, 16], 4)] {
        let warps = if slices > 1 { [1, 2] } else { [2, 4] };
        let routes = [Route::Transposed, Route::Vectors];
        by(&layer(Gemm::new(m, n, k)), Target::sm_80(), |spec| {
            Pipelined::new(warps, [4, 2], slices, routes).steps(spec)
        });
    }
}

/// The first tiles of each type, and a sample of the others.
#[test]
fn tensor_cores_compute_epilogues() {
    let f16 = DType::F16;
    let types =
        |gemm: Gemm| [gemm.of(f16), gemm.of(f16).output(DType::F32), gemm.of(f16).accumulate(f16), gemm.of(DType::S8)];
    for [m, n, k] in [[64, 64, 64], [50, 44, 40], [33, 40, 48]] {
        for gemm in types(Gemm::new(m, n, k).layout(Layout::NT)) {
            let gemm = layer(gemm);
            let tried = |gemm: &Gemm, how: &str| drawn(&format!("tensor cores {how} {gemm:?}"), 4);
            let chips = [Target::sm_80(), Target::sm_75(), Target::sm_90()];
            for (n, (target, parts)) in chips.into_iter().flat_map(|t| [(t, 1), (t, 2)]).enumerate() {
                if (m, n) == (64, 0) || tried(&gemm, &format!("{target} {parts}")) {
                    by(&gemm, target, |spec| Mma::of(spec, &target, [32, 32], [2, 1], parts).steps(spec));
                }
            }
            let batch = gemm.batch(2);
            if tried(&batch, "batch") {
                by(&batch, Target::sm_80(), |spec| Mma::of(spec, &Target::sm_80(), [32, 32], [2, 1], 1).steps(spec));
            }
            if tried(&gemm, "wmma") {
                by(&gemm, Target::sm_80(), |spec| Wmma::of(spec, &Target::sm_80(), [32, 32], [2, 1]).steps(spec));
            }
        }
    }
}

/// The first tiles of each type, and a sample of the others.
#[test]
fn warpgroups_compute_epilogues() {
    let (f16, target) = (DType::F16, Target::sm_90a());
    let types = |gemm: Gemm| {
        let s8 = gemm.of(DType::S8);
        let wide = [gemm.of(f16), gemm.of(f16).output(DType::F32), gemm.of(f16).accumulate(f16), s8];
        wide.into_iter().chain([s8.output(DType::S8).saturate()])
    };
    for [m, n, k] in [[64, 64, 64], [80, 80, 72], [70, 43, 40]] {
        for gemm in types(Gemm::new(m, n, k).layout(Layout::NT)) {
            let gemm = layer(gemm);
            if m == 64 || drawn(&format!("warpgroups {gemm:?}"), 4) {
                by(&gemm, target, |spec| Wgmma::of(spec, [64, 64], 1, &target).steps(spec));
            }
            if drawn(&format!("warpgroups in parts {gemm:?}"), 4) {
                by(&gemm, target, |spec| Wgmma::of(spec, [64, 64], 1, &target).in_parts(2, spec, &target).steps(spec));
            }
        }
        let batch = layer(Gemm::new(m, n, k).of(f16).batch(2));
        if drawn(&format!("warpgroups {batch:?}"), 4) {
            by(&batch, target, |spec| Wgmma::of(spec, [64, 64], 1, &target).steps(spec));
        }
    }
}

#[test]
fn every_epilogue_is_right_with_the_recommended_steps() {
    use crate::te::Epilogue;
    for (m, n, k, dtype, target) in [
        (64, 72, 40, DType::F16, Target::sm_90a()),
        (40, 24, 32, DType::Bf16, Target::sm_80()),
        (33, 17, 9, DType::F32, Target::sm_80()),
    ] {
        let of = |steps: &[Epilogue]| Gemm { fused: Fused::of(steps).unwrap(), ..Gemm::new(m, n, k).of(dtype) };
        for step in Epilogue::ALL.into_iter().filter(|e| dtype != DType::F32 || *e != Epilogue::Saturate) {
            right(&recommend(&of(&[step]), &target).unwrap(), false);
        }
    }
}

/// The recommended schedule of a program in text, right on the simulator.
fn recommended(text: &str, target: Target) -> Schedule {
    let program = te::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let schedule = recommend_for(&program, &target).unwrap_or_else(|e| panic!("{text}\n{e}"));
    right(&schedule, true);
    schedule
}

/// Programs that are a GEMM of 48 x 40 x 32 under names of their own.
const PROGRAMS: [(&str, &str); 7] = [
    (
        "factors in the other order, and names that recipes use",
        "program swapped
         input A_s f16[40, 32]; input C_pad f16[48, 32]; input acc f16[40]
         out: i0[i0 48, tile 40] f32 = sum(ki 32) f32(A_s[tile, ki])*f32(C_pad[i0, ki])
         mma: A[i 48, j 40] f32 = i0[i, j] + f32(acc[j])
         zero: output B[k0 48, k1 40] f16 = f16(max(A[k0, k1], 0.0))",
    ),
    (
        "one result of the accumulators' type",
        "program single
         input X f16[32, 48]; input Y f16[32, 40]
         output Z[r 48, c 40] f32 = sum(t 32) f32(X[t, r])*f32(Y[t, c])",
    ),
    (
        "two results of the accumulators, and blocks between them",
        "program two
         input A f16[48, 32]; input B f16[40, 32]; input bias f32[40]
         mma: acc[i 48, j 40] f32 = sum(k 32) f32(A[i, k])*f32(B[j, k])
         H: H[i 48, j 40] f32 = acc[i, j] + bias[j]
         pre: output P[i 48, j 40] f16 = f16(H[i, j])
         out: output C[i 48, j 40] f16 = f16(max(H[i, j], 0.0))",
    ),
    (
        "results that are not converted on their way",
        "program behind
         input A f16[48, 32]; input B f16[40, 32]
         mma: output S[i 48, j 40] f32 = sum(k 32) f32(A[i, k])*f32(B[j, k])
         out: output C[j 40, i 48] f16 = f16(max(S[i, j], 0.0))",
    ),
    (
        "an operand that a block computes",
        "program computed
         input A f16[48, 32]; input Q s8[40, 32]; input s f16[40]
         W: W[n 40, k 32] f16 = f16(Q[n, k])*s[n]
         half: h[n 40] f32 = f32(s[n])*0.5
         mma: acc[i 48, j 40] f32 = sum(k 32) f32(A[i, k])*f32(W[j, k])
         out: output C[i 48, j 40] f16 = f16(acc[i, j] + h[j])",
    ),
    (
        "a batch with rows apart",
        "program strided
         input A f16[2, 48, 32] strides [1920, 40, 1]; input B f16[2, 32, 40] strides [1312, 41, 1]
         mma: acc[b 2, i 48, j 40] f32 = sum(k 32) f32(A[b, i, k])*f32(B[b, k, j])
         out: output C[b 2, i 48, j 40] f16 strides [2112, 44, 1] = f16(acc[b, i, j]*0.5)",
    ),
    (
        "parameters that are aligned to less than 16 bytes",
        "program unaligned
         input A f16[48, 32] align 4; input B f16[40, 32] align 8
         mma: acc[i 48, j 40] f32 = sum(k 32) f32(A[i, k])*f32(B[j, k])
         out: output C[i 48, j 40] f16 align 4 = f16(acc[i, j]*0.5)",
    ),
];

#[test]
fn programs_of_other_forms_are_right_on_every_chip() {
    for (what, text) in PROGRAMS {
        for target in [Target::sm_70(), Target::sm_80(), Target::sm_90a()] {
            let schedule = recommended(text, target);
            let tensor = schedule.steps.iter().any(|step| step.primitive().name == "tensorize");
            // Where rows are not aligned, a kernel that packs can cost more than ordinary code.
            assert!(tensor || text.contains("strides") || text.contains("align"), "{what} for {target}:\n{schedule}");
        }
        // The same in f32 has ordinary code.
        recommended(&text.replace("f16", "f32").replace("f32(f32", "(f32").replace("s8", "f32"), Target::sm_80());
    }
}

#[test]
fn results_that_accumulators_can_be_converted_to_leave_one_kernel() {
    let kernels = |n: usize, target: Target| {
        let schedule = recommended(PROGRAMS[n].1, target);
        lower(&schedule.scheduled().unwrap(), &target).unwrap().kernels.len()
    };
    for target in [Target::sm_80(), Target::sm_90a()] {
        assert_eq!([0, 2].map(|n| kernels(n, target)), [1, 1]);
        assert_eq!([3, 4].map(|n| kernels(n, target)), [2, 2]);
    }
}

#[test]
fn every_tensor_recipe_stores_two_results() {
    let product = Product::of(&te::parse(PROGRAMS[2].1).unwrap()).unwrap();
    let by = |target: Target, steps: &dyn Fn(&GemmSpec, &Target) -> Steps| {
        let schedule = adapt::schedule(&product, &target, steps(&product.spec, &target));
        let schedule = schedule.unwrap_or_else(|e| panic!("{target}: {e}"));
        right(&schedule, true);
        assert_eq!(lower(&schedule.scheduled().unwrap(), &target).unwrap().kernels.len(), 1, "{schedule}");
    };
    for target in [Target::sm_80(), Target::sm_90()] {
        by(target, &|spec, target| Mma::of(spec, target, [32, 32], [2, 1], 1).steps(spec));
    }
    by(Target::sm_80(), &|spec, target| Wmma::of(spec, target, [32, 32], [2, 1]).steps(spec));
    by(Target::sm_90a(), &|spec, target| Wgmma::of(spec, [64, 64], 1, target).steps(spec));
}

/// Persistent blocks, clusters, ping-pong and swapped operands: the first candidate of each kind for a large GEMM, at a size of few tiles. A sample
/// of the kinds runs, and the first in every run.
#[test]
fn large_tiles_of_warpgroups_compute_epilogues() {
    // 112 rows divide it into whole waves, which 128 columns do not.
    let large = layer(Gemm::new(3696, 8192, 8192).of(DType::F16));
    let all = candidates(&large, &Target::sm_90a()).unwrap();
    let kind = |name: &str| (name.contains("ping-pong"), name.contains("swapped"));
    for wanted in [(false, false), (true, false), (true, true)] {
        let (name, schedule) = all.iter().find(|(name, _)| name.starts_with("wgmma ") && kind(name) == wanted).unwrap();
        let tile = name.strip_prefix("wgmma ").and_then(|words| words.split(' ').next()).unwrap();
        let mut size: Vec<i64> = tile.split('x').map(|extent| extent.parse().unwrap()).collect();
        // Without ping-pong two blocks of a cluster, one above the other, share a tile.
        size[0] *= if wanted.0 { 1 } else { 2 };
        size.push(128);
        let small = schedule.resized(&size).unwrap();
        if wanted == (false, false) || drawn(name, 3) {
            right(&small, true);
        }
    }
}

fn refused(text: &str) -> String {
    let error = recommend_for(&te::parse(text).unwrap_or_else(|e| panic!("{e}")), &Target::sm_90a()).unwrap_err();
    assert!(!error.helps().is_empty() || error.code() == Code::GemmProgram, "{error}");
    format!("{}: {}", error.code(), error.message())
}

#[test]
fn programs_that_no_recipe_has_are_refused_with_a_reason() {
    let operands = "program p\ninput A f32[8, 8]; input B f32[8, 8]; input T f32[2, 8, 8]; input c f32[8]\n";
    for (blocks, reason) in [
        ("output C[i 8] f32 = A[i, 0]", "gemm.program: program p: no block is a sum over k"),
        ("output C[i 8] f32 = sum(k 8) A[i, k]", "gemm.program: program p: block C does not sum products"),
        ("output C[i 8, j 8] f32 = max(k 8) A[i, k]*B[k, j]", "gemm.program: program p: block C is no sum of one term"),
        (
            "output C[i 8, j 8] f32 = sum(k 8) A[i, k]*A[k, j]",
            "gemm.program: program p: block C multiplies A by itself",
        ),
        (
            "output C[i 8, j 8] f32 = sum(k 8) (A[i, k] + 1.0)*B[k, j]",
            "gemm.program: program p: block C does not sum products",
        ),
        (
            "S[i 8] f32 = sum(k 8) A[i, k]\noutput C[i 8, j 8] f32 = sum(k 8) A[i, k]*B[k, j]",
            "gemm.program: program p: blocks S, C are reductions",
        ),
        ("output C[i 8] f32 = sum(k 8) A[i, k]*c[k]", "gemm.layout: block C writes C with one index"),
        ("output C[j 8, b 2, i 8] f32 = sum(k 8) T[b, i, k]*B[k, j]", "gemm.layout: block C has C[j, b, i] = sum of"),
        ("output C[i 8, j 8] f32 = sum(b 2, k 8) T[b, i, k]*B[k, j]", "gemm.layout: block C sums over 2 iterators"),
        ("output C[i 8, j 8] f32 = sum(k 8) A[k, (i + j) % 8]*B[k, j]", "gemm.layout: block C has"),
        (
            "output C[b 2, i 8, j 8] f32 = sum(k 8) T[b, i, k]*B[k, j]",
            "gemm.layout: block C has C[b, i, j] = sum of T[b, i, k]*B[k, j]: the dimensions of B[k, j] are not",
        ),
    ] {
        let refused = refused(&format!("{operands}{blocks}"));
        assert!(refused.starts_with(reason), "{blocks}\n{refused}");
    }
    let columns = "program p\ninput A f32[8, 8] strides [1, 8]; input B f32[8, 8]\noutput C[i 8, j 8] f32 = sum(k 8) A[i, k]*B[k, j]";
    assert!(refused(columns).starts_with("gemm.layout: A has strides [1, 8]"), "{}", refused(columns));
}
