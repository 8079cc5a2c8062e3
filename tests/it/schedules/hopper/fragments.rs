//! Products by mma.sync whose factors come by bulk copies: the recipe's steps with random parts. Pipelines of fragments cross
//! the slots of a role, or of the block itself.

use super::super::programs::Program;
use super::super::source::Source;
use warploom::gemm::{FragmentBuffers, Mma, Tma};
use warploom::te::{GemmSpec, Layout};
use warploom::{DType, Target};

/// The most multiplications.
const WORK: i64 = 300_000;

/// A product, and steps for it.
pub fn schedule(source: &mut Source) -> (Program, Vec<String>) {
    let (dtype, layout) = (source.of([DType::F16, DType::F16, DType::Bf16]), source.of(Layout::ALL));
    let out = if source.chance(70) { dtype } else { DType::F32 };
    let (rows, columns) = (source.of([32, 32, 64, 16]), source.of([16, 32, 32, 64]));
    let (bk, cluster) = (source.of([32, 32, 64]), source.of([[1, 1], [1, 1], [1, 1], [2, 1], [1, 2]]));
    let mut spec = GemmSpec::of(1, 1, 1, dtype, layout).types(dtype, dtype, DType::F32, out);
    let unit = [rows * cluster[0], columns * cluster[1], bk];
    let mut tiles = [1 + source.below(3) as i64, 1 + source.below(3) as i64, 1 + source.below(9) as i64];
    while (0..3).map(|d| tiles[d] * unit[d]).product::<i64>() > WORK && tiles != [1; 3] {
        let largest = (0..3).max_by_key(|d| tiles[*d] * unit[*d] * i64::from(tiles[*d] > 1)).unwrap_or(2);
        tiles[largest] -= 1;
    }
    let ragged = source.chance(25);
    let mut size = |d: usize| match ragged && source.chance(70) {
        true => (tiles[d] * unit[d] - source.of([1, 8, 8, 16])).max(1),
        false => tiles[d] * unit[d],
    };
    (spec.m, spec.n, spec.k) = (size(0), size(1), size(2));
    let target = Target::sm_90a();
    let warps = [if rows > 16 { source.of([1, 2]) } else { 1 }, if columns > 16 { source.of([1, 2]) } else { 1 }];
    let of = Mma::of(&spec, &target, [rows, columns], warps, 1);
    let loader = source.of([0, 1, 1, 2, 4]);
    let (stages, spread) = (source.of([2, 2, 3, 3, 4, 5, 6]), source.chance(40));
    let (ahead, fetched) =
        (source.of([FragmentBuffers::Double, FragmentBuffers::Double, FragmentBuffers::Single]), source.chance(85));
    let sweeps = if rows / warps[0] % 32 == 0 { source.of([1, 1, 2]) } else { 1 };
    let tiles = Mma { bk, stages, fragments: ahead, sweeps, tma: Some(Tma { warps: loader, cluster, spread }), ..of };
    let mut steps: Vec<String> = tiles.steps(&spec).to_string().lines().map(str::to_string).collect();
    steps.retain(|s| fetched || !s.starts_with("pipeline kk"));
    vary(&mut steps, source);
    let types = if out == dtype { format!("{dtype}>f32>{dtype}") } else { format!("{dtype}>f32") };
    let template = format!("gemm {{0}}x{{1}}x{{2}} {types} {}", layout.name());
    (Program { template, sizes: [spec.m, spec.n, spec.k].map(|n| n as usize).to_vec() }, steps)
}

/// What the recipe has not: blocks that stay, a role for each factor, threads that copy one, deeper rings of fragments.
fn vary(steps: &mut Vec<String>, source: &mut Source) {
    let mut replace = |beginning: &str, by: Vec<String>| {
        if let Some(at) = steps.iter().position(|s| s.starts_with(beginning)) {
            steps.splice(at..=at, by);
        }
    };
    if source.chance(35) {
        replace("bind tile blockIdx.x", vec!["bind tile blockIdx.x persistent".into()]);
    }
    if source.chance(20) {
        let second = format!("specialize B_s -> second warps={}", source.of([1, 2]));
        replace("specialize A_s B_s", vec!["specialize A_s -> load warps=1".into(), second]);
    }
    if source.chance(20) {
        replace("pipeline kk", vec![format!("pipeline kk stages={}", source.of([2, 3, 4]))]);
    }
    if source.chance(15) {
        let step = source.of(["unroll k0", "unroll kk", "annotate k0 spread 1", "annotate kk spread 1", "unroll jm"]);
        steps.push(step.to_string());
    }
}
