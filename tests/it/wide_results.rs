//! Products by wgmma whose results are as wide as their sums, of bytes and of 16-bit floats with sums of 32 bits or of 16: parts of the recipe, layouts, and
//! sizes that no tile divides.

use super::ptxas::{assemble, tools};
use super::sample::drawn;
use super::tensor::{lowered, right};
use warploom::error::Code;
use warploom::gemm::{Epilogue, Gemm, Kind, Wgmma, recommend};
use warploom::lower::print;
use warploom::te::Layout;
use warploom::{DType, Schedule, Target};

/// A product on Hopper.
fn gemm([m, n, k]: [i64; 3], types: [DType; 3], layout: Layout) -> Gemm {
    let [a, acc, out] = types;
    Gemm::new(m, n, k).inputs(a).accumulate(acc).output(out).layout(layout)
}

const BYTES: [DType; 3] = [DType::S8, DType::S32, DType::S32];
const UNSIGNED: [DType; 3] = [DType::U8, DType::S32, DType::S32];
const HALVES: [DType; 3] = [DType::F16, DType::F32, DType::F32];
const SHORT: [DType; 3] = [DType::F16; 3];
const BRAINS: [DType; 3] = [DType::Bf16, DType::F32, DType::F32];

/// The recipe's schedule with parts of its own.
fn schedule(gemm: &Gemm, parts: &Wgmma) -> Schedule {
    let steps = parts.steps(gemm.spec()).finish().unwrap();
    Schedule::new(gemm.program().unwrap(), Target::sm_90a(), steps)
}

/// Whether the lowered program multiplies by wgmma.
fn multiplies(schedule: &Schedule) -> bool {
    let text = print(&lowered(schedule));
    // An operand of bytes across k may come through registers.
    text.contains("wgmma.m64n") || text.contains("wgmma_rs.m64n")
}

/// A sample of the parts and types, and the first.
#[test]
fn every_part_of_the_recipe_suits_sums_that_are_the_result() {
    // {cluster, persistent, roles, bulk stores}, and slots.
    for (bits, stages) in [(0u32, 2), (8, 3), (9, 2), (10, 3), (11, 4), (14, 2), (15, 2), (15, 3)] {
        let has = |n: u32| bits >> n & 1 == 1;
        let tried = |t: &[DType; 3]| bits == 0 && *t == BYTES || drawn(&format!("{bits} {stages} {t:?}"), 6);
        for types in [BYTES, HALVES, SHORT].into_iter().filter(tried) {
            let k = 1024 / i64::from(types[0].bits());
            let gemm = gemm([256, 128, 5 * k / 2], types, Layout::NT);
            let parts = Wgmma {
                block: [64, 64],
                warpgroups: 1,
                bk: k,
                stages,
                in_flight: i64::from(stages > 2),
                cluster: if has(0) { [2, 1] } else { [1, 1] },
                raster_group: if has(1) { 8 } else { 0 },
                persistent: has(1),
                producer: has(2),
                epilogue: if has(3) { Epilogue::Tma } else { Epilogue::Direct },
                out_stages: stages.min(2),
                ..Wgmma::LARGE
            };
            // Half a slot of k is beyond the end.
            right(&schedule(&gemm, &parts));
        }
    }
}

/// All are by wgmma. The smallest of each layout and a sample of the others run.
#[test]
fn products_of_bytes_are_right_in_every_layout_and_at_every_edge() {
    let sizes = [[128, 64, 256], [127, 129, 131], [131, 61, 37], [100, 60, 160], [64, 68, 33], [17, 16, 32]];
    for (at, size) in sizes.into_iter().enumerate() {
        for (turn, layout) in Layout::ALL.into_iter().enumerate() {
            let types = [BYTES, UNSIGNED, HALVES, BRAINS][(at + turn) % 4];
            let gemm = gemm(size, types, layout);
            let schedule = Kind::Wgmma.schedule(&gemm, &Target::sm_90a()).unwrap();
            assert!(multiplies(&schedule), "{size:?} {types:?} {layout:?}");
            if size[0] == 17 || drawn(&format!("bytes {size:?} {types:?} {layout:?}"), 6) {
                right(&schedule);
            }
        }
    }
}

/// All have the instruction. The first and a sample of the others run.
#[test]
fn sums_of_16_bits_are_right_in_every_layout_and_at_every_edge() {
    for (at, size) in [[128, 64, 64], [127, 129, 63], [131, 61, 37], [100, 64, 72]].into_iter().enumerate() {
        for (turn, layout) in Layout::ALL.into_iter().enumerate() {
            let gemm = gemm(size, SHORT, layout);
            let target = Target::sm_90a();
            let tiles = [([64, 64], 1), ([128, 64], 2), ([128, 128], 1)][(at + turn) % 3];
            let plain = Wgmma::of(gemm.spec(), tiles.0, tiles.1, &target);
            let by_tma = plain.epilogue == Epilogue::Tma;
            let parts = Wgmma { persistent: by_tma, producer: by_tma, ..plain };
            let both = [Kind::Wgmma.schedule(&gemm, &target).unwrap(), schedule(&gemm, &parts)];
            for (n, schedule) in both.into_iter().enumerate() {
                assert!(print(&lowered(&schedule)).contains("k16.f16.f16.f16"), "{size:?} {layout:?}");
                if (at, turn, n) == (0, 0, 0) || drawn(&format!("short {size:?} {layout:?} {n}"), 4) {
                    right(&schedule);
                }
                // Rows of C that copies take leave as matrices.
                let whole = schedule.to_string().contains("copy_with C_s tma");
                assert_eq!(whole, size[1] % 8 == 0, "{schedule}");
                assert!(!whole || schedule.to_string().contains("stmatrix."), "{schedule}");
            }
        }
    }
}

#[test]
fn products_with_sums_of_16_bits_come_to_wgmma_and_assemble_clean() {
    let (tools, target) = (tools(), Target::sm_90a());
    for (layout, size) in
        [(Layout::NT, [4096; 3]), (Layout::NN, [4096; 3]), (Layout::TN, [1000; 3]), (Layout::TT, [4095, 4097, 4099])]
    {
        let schedule = recommend(&gemm(size, SHORT, layout), &target).unwrap();
        assert!(multiplies(&schedule), "{schedule}");
        assemble(&tools, &lowered(&schedule), &target, true).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    }
}

#[test]
fn bytes_of_both_signs_are_right() {
    let spec = *gemm([128, 64, 128], UNSIGNED, Layout::NT).spec();
    let spec = spec.types(spec.a, DType::S8, spec.acc, spec.out);
    let mixed = Kind::Wgmma.schedule(&spec.into(), &Target::sm_90a()).unwrap();
    assert!(print(&right(&mixed)).contains("k32.s32.u8.s8"));
}

#[test]
fn large_and_thin_products_of_bytes_come_to_wgmma_and_small_ones_need_not() {
    let chosen = |size| multiplies(&recommend(&gemm(size, BYTES, Layout::NT), &Target::sm_90a()).unwrap());
    assert!(chosen([4096; 3]) && chosen([1024; 3]));
    // The rows of C are the columns of instructions.
    assert!(chosen([16, 4096, 4096]));
    assert!(!chosen([64, 64, 16]));
    let portable = recommend(&gemm([4096; 3], BYTES, Layout::NT), &Target::sm_90()).unwrap();
    assert!(!multiplies(&portable));
}

#[test]
fn large_products_with_results_of_32_bits_assemble_clean() {
    let tools = tools();
    for (types, layout, size) in [
        (BYTES, Layout::NT, [4096; 3]),
        (BYTES, Layout::TN, [4095, 4097, 4099]),
        (HALVES, Layout::NN, [4096; 3]),
        (BRAINS, Layout::TT, [4095, 4097, 4099]),
    ] {
        let schedule = Kind::Wgmma.schedule(&gemm(size, types, layout), &Target::sm_90a()).unwrap();
        assemble(&tools, &lowered(&schedule), &schedule.target, true).unwrap();
    }
    let all = Wgmma { bk: 128, ..Wgmma::LARGE };
    for parts in [all, Wgmma { cluster: [1, 1], ..all }, Wgmma { block: [256, 128], stages: 3, ..all }] {
        let schedule = schedule(&gemm([4096; 3], BYTES, Layout::NT), &parts);
        assemble(&tools, &lowered(&schedule), &schedule.target, true).unwrap();
    }
}

#[test]
fn bytes_across_the_rows_of_a_tile_are_refused() {
    let gemm = gemm([128, 128, 256], BYTES, Layout::NN);
    let direct = Wgmma { routes: Wgmma::LARGE.routes, ..Wgmma::of(gemm.spec(), [64, 128], 1, &Target::sm_90a()) };
    let scheduled = schedule(&gemm, &direct);
    let error = scheduled.scheduled().and_then(|f| warploom::lower::lower(&f, &scheduled.target)).unwrap_err();
    assert_eq!(error.code(), Code::LowerTile, "{error}");
    assert!(error.message().contains("k runs across the rows of B_s"), "{error}");
}
