//! Products of quantised weights: every way in which they are recommended, at sizes that tiles divide and at others.

use super::sample::drawn;
use super::tensor::right;
use warploom::gemm::{ByWarps, FromRegisters, Quantized, recommend_for, recommend_quantized};
use warploom::lower::print;
use warploom::{DType, Schedule, Target};

/// Sizes with the weights that share a scale.
const SIZES: [([i64; 3], i64); 6] = [
    ([16, 128, 512], 128),
    ([1, 64, 256], 64),
    ([5, 200, 384], 128),
    ([33, 128, 256], 256),
    ([130, 192, 128], 32),
    ([72, 72, 192], 64),
];

/// A sample of the sizes and types, and the smallest size with the first type.
#[test]
fn recommended_products_of_packed_weights_are_right() {
    for (at, (size, group)) in SIZES.into_iter().enumerate() {
        for (turn, weights) in [DType::S4, DType::U4, DType::S8, DType::U8, DType::E4m3].into_iter().enumerate() {
            let x = [DType::F16, DType::Bf16][(at + turn) % 2];
            let q = Quantized::new(size[0], size[1], size[2]).activations(x).weights(weights).groups(group).packed();
            let q = if (at + turn) % 3 == 0 { q.zeros() } else { q };
            let target = [Target::sm_90a(), Target::sm_90a(), Target::sm_80()][(at + turn) % 3];
            if (at, turn) != (1, 0) && !drawn(&format!("packed {size:?} {weights}"), 6) {
                continue;
            }
            let schedule = recommend_quantized(&q, &target).unwrap();
            let lowered = print(&right(&schedule));
            assert!(lowered.contains("mma.m16n8k16") || lowered.contains("wgmma_rs.m64"), "{q:?}\n{schedule}");
            assert!(!lowered.contains("D_all"), "{q:?}\n{schedule}");
            if target == Target::sm_90a() {
                // Products of these sizes are recommended by mma.sync.
                let steps = FromRegisters::candidates(&q, &target)[0].steps(&q).finish().unwrap();
                let lowered = print(&right(&Schedule::new(q.program().unwrap(), target, steps)));
                assert!(lowered.contains("wgmma_rs.m64") && !lowered.contains("D_all"), "{q:?}\n{lowered}");
            }
        }
    }
}

/// The tiles are there at every size. Those of the smallest run, and a sample of the others.
#[test]
fn tiles_of_either_instruction_are_right_on_hopper() {
    let target = Target::sm_90a();
    let (mut of_slices, mut promoted) = ([[0; 2]; 2], [0; 2]);
    for (at, (size, group)) in SIZES.into_iter().enumerate() {
        let weights = [DType::S4, DType::U4, DType::S8][at % 3];
        let q = Quantized::new(size[0], size[1], size[2]).weights(weights).groups(group).packed();
        let q = if at % 2 == 0 { q.zeros() } else { q };
        let is_right = |steps: Vec<warploom::Step>| {
            let schedule = Schedule::new(q.program().unwrap(), target, steps);
            if at == 1 || drawn(&format!("tiles {schedule}"), 4) {
                right(&schedule);
            }
        };
        let of_warps: Vec<ByWarps> = ByWarps::candidates(&q, &target).into_iter().filter(|t| t.has_producer).collect();
        for (n, m) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let tall = 1 + (at + n) as i64 % 2;
            let suits = |t: &&ByWarps| (t.slices > 1) == (n == 1) && t.promoted == (m == 1) && t.tall == tall;
            let Some(tiles) = of_warps.iter().rfind(suits) else { continue };
            of_slices[m][n] += 1;
            is_right(tiles.steps(&q).finish().unwrap());
        }
        let of_warpgroups = FromRegisters::candidates(&q, &target);
        let tiles = of_warpgroups.iter().find(|t| t.resident > 1 && t.warpgroups > 1).unwrap_or(&of_warpgroups[0]);
        is_right(tiles.steps(&q).finish().unwrap());
        for (n, count) in promoted.iter_mut().enumerate() {
            let suits = |t: &&FromRegisters| t.promoted && t.tall == 1 + (at + n) as i64 % 2;
            let Some(tiles) = of_warpgroups.iter().rfind(|t| suits(t) && t.has_producer == (n == 0)) else { continue };
            *count += 1;
            is_right(tiles.steps(&q).finish().unwrap());
        }
    }
    assert!(
        of_slices.into_iter().flatten().all(|n| n > 1) && promoted.into_iter().all(|n| n > 1),
        "{of_slices:?} {promoted:?}"
    );
}

/// The MMAs of few rows of X multiply weights without their scales, of which a lane multiplies fewer partial sums than weights.
#[test]
fn scales_multiply_partial_sums_of_few_rows() {
    for (m, expected) in [(1, true), (16, true), (512, false)] {
        let q = Quantized::new(m, 28672, 8192).groups(128).packed();
        let schedule = recommend_quantized(&q, &Target::sm_90a()).unwrap().to_string();
        assert_eq!(schedule.contains("\npromote "), expected, "{schedule}");
    }
}

#[test]
fn the_line_recommend_knows_packed_weights() {
    let q = Quantized::new(16, 128, 256).groups(128).packed();
    let of_builder = recommend_quantized(&q, &Target::sm_90a()).unwrap();
    assert_eq!(recommend_for(&q.program().unwrap(), &Target::sm_90a()).unwrap(), of_builder);
    let text = of_builder.to_string();
    let program = text.split("target").next().unwrap();
    let line = Schedule::parse(&format!("{program}target sm_90a\nrecommend")).unwrap();
    assert_eq!(line.steps, of_builder.steps);
}

#[test]
fn plain_weights_run_on_every_chip() {
    let q = Quantized::new(9, 40, 64).weights(DType::U4).groups(32).zeros();
    for target in [Target::sm_70(), Target::sm_75(), Target::sm_80(), Target::sm_90a()] {
        right(&recommend_quantized(&q, &target).unwrap());
    }
}

/// The steps lower for a chip: a fifth of the tiles, as the commit draws them, and the first.
fn lowers(q: &Quantized, (at, what): (usize, &dyn std::fmt::Debug), steps: Vec<warploom::Step>, target: Target) {
    if at > 0 && !drawn(&format!("{what:?} of {q:?} {target}"), 5) {
        return;
    }
    let schedule = Schedule::new(q.program().unwrap(), target, steps);
    let lowered = schedule.scheduled().and_then(|func| warploom::lower::lower(&func, &target));
    assert!(lowered.is_ok(), "{what:?}: {}", lowered.unwrap_err());
}

/// A fifth of the tiles, and the first of each kind and size.
#[test]
fn every_tile_of_packed_weights_lowers() {
    let sizes = [([16, 4096, 4096], 128), ([1, 1024, 2048], 2048), ([300, 512, 1024], 64), ([5, 200, 384], 32)];
    for (size, group) in sizes {
        let q = Quantized::new(size[0], size[1], size[2]).groups(group).packed();
        let q = if group == 32 { q.zeros().weights(DType::S8) } else { q };
        let of_warpgroups = FromRegisters::candidates(&q, &Target::sm_90a());
        let of_warps = ByWarps::candidates(&q, &Target::sm_80());
        assert!(of_warpgroups.len() > 4 && of_warps.len() > 2, "{q:?}: {} {}", of_warpgroups.len(), of_warps.len());
        for (at, tiles) in of_warpgroups.into_iter().enumerate() {
            lowers(&q, (at, &tiles), tiles.steps(&q).finish().unwrap(), Target::sm_90a());
        }
        for (at, tiles) in of_warps.into_iter().enumerate() {
            lowers(&q, (at, &tiles), tiles.steps(&q).finish().unwrap(), Target::sm_80());
        }
        for (at, tiles) in ByWarps::candidates(&q, &Target::sm_90a()).into_iter().step_by(5).enumerate() {
            lowers(&q, (at, &tiles), tiles.steps(&q).finish().unwrap(), Target::sm_90a());
        }
    }
}

#[test]
fn packing_kernels_are_right() {
    for (weights, [n, k]) in
        [DType::S4, DType::U8, DType::E4m3].into_iter().flat_map(|w| [(w, [100, 128]), (w, [64, 96])])
    {
        let packing = Quantized::new(1, n, k).weights(weights).packing().unwrap();
        right(&packing.schedule(&Target::sm_80()).unwrap());
    }
}
