//! The worked example and the recommended schedules compute what their naive programs compute, bit by bit in integer mode.
//! (`differential` holds this of the other examples.)

use super::cases::examples;
use super::sample::drawn;
use warploom::gemm::{Mma, OperandForm, Pipelined, Route, Source, Split, WarpTiles};
use warploom::te::{GemmSpec, Layout};
use warploom::{DType, Gemm, Schedule, Target, gemm, lower, sim};

const SEED: u64 = 7;

/// Compares the scheduled program, and the lowered one where it lowers, with the naive program.
fn bit_equal_in_integers(name: &str, schedule: &Schedule) {
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
    let naive = sim::naive_integers(&schedule.program, SEED).unwrap_or_else(|e| panic!("{name}, naive: {e}"));
    let scheduled = sim::naive_integers(&func, SEED).unwrap_or_else(|e| panic!("{name}, scheduled: {e}"));
    assert!(scheduled == naive, "{name}: the scheduled program differs from the naive one");
    match lower::lower(&func, &schedule.target) {
        Ok(lowered) => {
            let parallel = sim::integers(&lowered, SEED).unwrap_or_else(|e| panic!("{name}, lowered: {e}"));
            assert!(parallel == naive, "{name}: the lowered program differs from the naive one");
        }
        Err(e) => panic!("{name}: {e}"),
    }
}

/// Until lowering knows its placements, the worked example runs as its text says.
#[test]
fn the_worked_example_computes_what_the_naive_program_computes() {
    let (_, text) = examples().into_iter().find(|(name, _)| name == "worked_example").unwrap();
    let schedule = Schedule::parse(&text).unwrap();
    for size in [[256, 256, 64], [512, 256, 128]] {
        bit_equal_in_integers("worked_example", &schedule.resized(&size).unwrap());
    }
}

/// The recommended steps suit every size, type and layout: a quarter of them, as the commit draws them, and the smallest in the first layout.
#[test]
fn recommended_schedules_compute_matrix_products() {
    let sizes = [(1, 1, 1), (3, 5, 7), (1, 100, 33), (64, 64, 64), (65, 33, 17)];
    for (m, n, k) in sizes {
        for layout in Layout::ALL {
            for dtype in [DType::F32, DType::F16, DType::S8] {
                let product = Gemm::new(m, n, k).of(dtype).layout(layout);
                if (m, n, k, layout) != (1, 1, 1, Layout::NN) && !drawn(&format!("recommended {product:?}"), 4) {
                    continue;
                }
                let schedule = gemm::recommend(&product, &Target::sm_80()).unwrap();
                let name = format!("{dtype} {} {m}x{n}x{k}", layout.name());
                bit_equal_in_integers(&name, &schedule);
                warploom::compile_gemm(&schedule).unwrap_or_else(|e| panic!("{name}: {e}\n{schedule}"));
            }
        }
    }
}

/// The pipelined recipe at small sizes: in every layout, with every route and number of slices, also where tiles do not
/// divide the product. A third of the cases, as the commit draws them, and the first.
#[test]
fn pipelined_tiles_compute_matrix_products() {
    use Route::{Packed, Pieces, Transposed, Vectors};
    let whole = [4, 2];
    let cases = [
        ((64, 128, 40), Layout::NN, [1, 2], whole, 4, [Transposed, Vectors]),
        ((64, 64, 128), Layout::NT, [1, 1], whole, 8, [Transposed, Packed]),
        ((61, 68, 72), Layout::TN, [1, 1], whole, 8, [Vectors, Vectors]),
        ((128, 256, 24), Layout::TN, [2, 4], whole, 1, [Vectors, Vectors]),
        ((250, 67, 43), Layout::TT, [4, 2], whole, 1, [Packed, Packed]),
        ((45, 133, 45), Layout::TN, [1, 2], [3, 2], 2, [Pieces, Pieces]),
        ((100, 128, 70), Layout::NN, [2, 2], [3, 2], 1, [Transposed, Vectors]),
        ((64, 100, 66), Layout::TN, [2, 1], [2, 3], 4, [Vectors, Vectors]),
        ((33, 70, 50), Layout::TT, [1, 1], [2, 2], 4, [Pieces, Transposed]),
        ((65, 127, 41), Layout::NT, [1, 4], [4, 1], 1, [Packed, Transposed]),
        ((31, 128, 70), Layout::NN, [2, 1], [1, 4], 2, [Transposed, Pieces]),
        ((64, 128, 24), Layout::TT, [2, 1], [2, 4], 2, [Vectors, Packed]),
    ];
    for (at, ((m, n, k), layout, warps, vectors, slices, routes)) in cases.into_iter().enumerate() {
        if at > 0 && !drawn(&format!("pipelined {at}"), 3) {
            continue;
        }
        let spec = GemmSpec::of(m, n, k, DType::F32, layout);
        let name = format!("gemm {m}x{n}x{k} f32 {}", layout.name());
        let text = format!("{name}\ntarget sm_80\n{}", Pipelined::new(warps, vectors, slices, routes).steps(&spec));
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        bit_equal_in_integers(&name, &schedule);
    }
}

/// The recipe on tensor cores at small sizes: in every layout and with every type, where tiles divide the product, where
/// copies fill the rest up with zeros, where factors are packed for it, and where parts of the sums are added up later;
/// for a chip with stmatrix, one without, and one without asynchronous copies. An eighth of the cases, as the commit draws them, and
/// the first on the chip with stmatrix.
#[test]
fn tensor_core_tiles_compute_matrix_products() {
    use DType::{Bf16, F16, F32, S8, S32, U8};
    let types = [[F16, F32, F16], [F16, F32, F32], [F16, F16, F16], [Bf16, F32, Bf16], [S8, S32, S32], [U8, S32, S32]];
    let cases = [
        ((64, 128, 192), [32, 64], [1, 2], 1),
        ((72, 56, 136), [64, 64], [2, 2], 1),
        ((61, 67, 71), [32, 64], [1, 2], 1),
        ((50, 66, 300), [64, 64], [2, 2], 2),
    ];
    for (n, ((m, n_, k), block, warps, parts)) in cases.into_iter().enumerate() {
        for (t, [a, acc, out]) in types.into_iter().enumerate() {
            // Every type in two layouts a size, and every layout with each route.
            let layouts = Layout::ALL.into_iter().filter(|l| (n + t + *l as usize).is_multiple_of(2));
            let targets = [Target::sm_90(), if t % 2 == n % 2 { Target::sm_80() } else { Target::sm_75() }];
            for (layout, target) in layouts.flat_map(|l| targets.map(|target| (l, target))) {
                let spec = GemmSpec::of(m, n_, k, a, layout).types(a, a, acc, out);
                if (n, t, target.sm) != (0, 0, 90) && !drawn(&format!("{spec:?} {target}"), 8) {
                    continue;
                }
                if a == Bf16 && target.sm < 80 {
                    continue;
                }
                let name = format!("gemm {m}x{n_}x{k} {a}>{acc}>{out} {}", layout.name());
                let tiles = Mma::of(&spec, &target, block, warps, parts);
                let text = format!("{name}\ntarget {target}\n{}", tiles.steps(&spec));
                let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
                bit_equal_in_integers(&format!("{name} for {target}"), &schedule);
                assert_eq!(tiles.routes.contains(&Source::Packed), text.contains("_0 ? "), "{text}");
            }
        }
    }
}

/// 4-bit integers on tensor cores alike, by every instruction that there is for them and its own chip. An eighth of the cases, as the commit draws
/// them, and the first.
#[test]
fn tensor_core_tiles_of_4_bit_integers_compute_matrix_products() {
    use OperandForm::{Stored, Unpacked, Widened};
    let (turing, hopper) = (Target::sm_75(), Target::sm_90());
    let ways = [(Stored, Target::sm_80()), (Stored, turing), (Unpacked, hopper), (Widened, hopper)];
    let cases = [
        ((64, 128, 256), [32, 64], [1, 2], 1),
        ((72, 56, 160), [64, 64], [2, 2], 1),
        ((62, 66, 74), [32, 64], [1, 2], 1),
        ((50, 68, 600), [64, 64], [2, 2], 2),
    ];
    for (n, ((m, n_, k), block, warps, parts)) in cases.into_iter().enumerate() {
        for (w, (form, target)) in ways.into_iter().enumerate() {
            for (l, layout) in Layout::ALL.into_iter().enumerate().filter(|(l, _)| (n + w + l).is_multiple_of(2)) {
                let a = [DType::S4, DType::U4][l / 2];
                let out = [DType::S32, DType::S8][w % 2];
                let spec = GemmSpec::of(m, n_, k, a, layout).types(a, a, DType::S32, out);
                let name = format!("gemm {m}x{n_}x{k} {a}>s32>{out} {}", layout.name());
                if (n, w) != (0, 0) && !drawn(&format!("{name} {target} {w}"), 8) {
                    continue;
                }
                let tiles = Mma::with(&spec, &target, block, warps, parts, form);
                let text = format!("{name}\ntarget {target}\n{}", tiles.steps(&spec));
                let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
                bit_equal_in_integers(&name, &schedule);
            }
        }
    }
}

/// The warp-tiled recipe at a small size, in every layout: the first, and a third of the others, as the commit draws them.
#[test]
fn warp_tiles_compute_matrix_products() {
    let tiles = WarpTiles {
        groups: [1, 2],
        warps: [2, 1],
        lanes: [4, 8],
        per: [4, 4],
        bk: 8,
        min_blocks: None,
        unroll_limit: None,
        raster: None,
        split: Split::NONE,
    };
    for layout in [Layout::NN, Layout::NT, Layout::TN, Layout::TT] {
        for tiles in [tiles, WarpTiles { raster: Some(2), ..tiles }] {
            let spec = GemmSpec::of(96, 128, 24, DType::F32, layout);
            let name = format!("gemm 96x128x24 f32 {}", layout.name());
            let text = format!("{name}\ntarget sm_80\n{}", tiles.steps(&spec));
            let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
            let is_first = layout == Layout::NN && tiles.raster.is_none();
            if is_first || drawn(&format!("warp tiles {text}"), 3) {
                bit_equal_in_integers(&name, &schedule);
            }
        }
        for (parts, slices, raster) in [(1, 2, None), (2, 1, None), (2, 2, Some(2))] {
            let tiles = WarpTiles { split: Split { parts, slices }, raster, ..tiles };
            let name = format!("gemm 64x64x32 f32 {}", layout.name());
            let spec = GemmSpec::of(64, 64, 32, DType::F32, layout);
            let text = format!("{name}\ntarget sm_80\n{}", tiles.steps(&spec));
            let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
            if drawn(&format!("warp tiles {text}"), 3) {
                bit_equal_in_integers(&format!("{name} in {parts} parts of {slices} slices"), &schedule);
            }
        }
    }
}
