//! Recipes of every kind for programs with an epilogue, on the simulator.

use super::pipelined::Route;
use super::program::Product;
use super::*;
use crate::array::Array;
use crate::ir::visit;
use crate::loom::Schedule;
use crate::lower::lower;
use crate::reference::{self, Sample};
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
        let gemv = Gemv { lanes: 8, groups: 4, vector: 4, unroll: 1, rows: 4, parts };
        by(&layer(gemm), Target::sm_80(), |spec| gemv.steps(spec));
        by(&layer(gemm.of(DType::F16)), Target::sm_80(), |spec| gemv.steps(spec));
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
        let routes = [Route::Turned, Route::Vectors];
        by(&layer(Gemm::new(m, n, k)), Target::sm_80(), |spec| Pipelined::new(warps, slices, routes).steps(spec));
    }
}

#[test]
fn tensor_cores_compute_epilogues() {
    let f16 = DType::F16;
    let types =
        |gemm: Gemm| [gemm.of(f16), gemm.of(f16).output(DType::F32), gemm.of(f16).accumulate(f16), gemm.of(DType::S8)];
    for [m, n, k] in [[64, 64, 64], [50, 44, 40], [33, 40, 48]] {
        for gemm in types(Gemm::new(m, n, k).layout(Layout::NT)) {
            let gemm = layer(gemm);
            for target in [Target::sm_75(), Target::sm_80(), Target::sm_90()] {
                by(&gemm, target, |spec| Mma::of(spec, &target, [32, 32], [2, 1], 1).steps(spec));
                by(&gemm, target, |spec| Mma::of(spec, &target, [32, 32], [2, 1], 2).steps(spec));
            }
            by(&gemm.batch(2), Target::sm_80(), |spec| {
                Mma::of(spec, &Target::sm_80(), [32, 32], [2, 1], 1).steps(spec)
            });
            by(&gemm, Target::sm_80(), |spec| Wmma::of(spec, &Target::sm_80(), [32, 32], [2, 1]).steps(spec));
        }
    }
}

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
            by(&gemm, target, |spec| Wgmma::of(spec, [64, 64], 1, &target).steps(spec));
            by(&gemm, target, |spec| Wgmma::of(spec, [64, 64], 1, &target).in_parts(2, spec, &target).steps(spec));
        }
        by(&layer(Gemm::new(m, n, k).of(f16).batch(2)), target, |spec| {
            Wgmma::of(spec, [64, 64], 1, &target).steps(spec)
        });
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
