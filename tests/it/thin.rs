//! Products with few rows, few columns, few terms or few tiles of long sums: tiles as long as one operand has, and k in parts.

use super::sample::drawn;
use super::tensor::{lowered, right};
use warploom::error::Code;
use warploom::gemm::{Combine, Gemm, Kind, Mma, SwapAb, Wgmma, recommend};
use warploom::lower::print;
use warploom::te::Layout;
use warploom::{DType, Schedule, Target};

/// Few rows, few columns, both, with few terms and with many.
const THIN: [[i64; 3]; 10] = [
    [1, 300, 130],
    [300, 1, 72],
    [8, 200, 264],
    [130, 16, 700],
    [3, 5, 7],
    [5, 129, 1],
    [33, 2, 513],
    [1, 1, 600],
    [16, 64, 1024],
    [20, 20, 16],
];

/// A sample of the sizes and layouts, and one of several tiles in every run.
#[test]
fn thin_products_by_mma_are_exact_in_every_layout() {
    let types = [DType::F16, DType::Bf16, DType::S8, DType::U8];
    for (at, [m, n, k]) in THIN.into_iter().enumerate() {
        for (turn, layout) in Layout::ALL.into_iter().enumerate() {
            let dtype = types[(at + turn) % types.len()];
            let target = [Target::sm_80(), Target::sm_90()][(at + turn / 2) % 2];
            let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
            if (at, turn) == (2, 0) || drawn(&format!("{gemm:?} {target}"), 6) {
                let schedule = match Kind::Mma.schedule(&gemm, &target) {
                    Ok(schedule) => schedule,
                    // Converted accumulators of one row leave as matrices or in parts of k, which not every size and chip has.
                    Err(e) if e.code() == Code::GemmKind && m.min(n) == 1 => continue,
                    Err(e) => panic!("{gemm:?} on {target}: {e}"),
                };
                assert!(print(&right(&schedule)).contains("mma.m16n8k"), "{schedule}");
            }
        }
    }
}

/// A sample of the sizes and layouts, and the first.
#[test]
fn recommended_thin_products_are_exact() {
    let (chips, types) = ([Target::sm_75(), Target::sm_90a(), Target::sm_80()], [DType::F32, DType::F16, DType::S8]);
    for (at, [m, n, k]) in THIN.into_iter().enumerate() {
        for (turn, layout) in Layout::ALL.into_iter().enumerate() {
            let gemm = Gemm::new(m, n, k).of(types[(at + turn) % 3]).layout(layout);
            let target = chips[(at + turn / 3) % 3];
            if (at, turn) == (0, 0) || drawn(&format!("recommended {gemm:?} {target}"), 6) {
                right(&recommend(&gemm, &target).unwrap());
            }
        }
    }
}

/// A sample of the sizes and layouts, and the smallest size in the first.
#[test]
fn parts_of_k_by_wgmma_are_exact_in_every_layout() {
    let target = Target::sm_90a();
    let sizes = [([100, 72, 640], 2), ([64, 128, 520], 3), ([17, 40, 300], 2), ([65, 63, 401], 3)];
    for (at, ([m, n, k], parts)) in sizes.into_iter().enumerate() {
        for (turn, layout) in Layout::ALL.into_iter().enumerate() {
            let dtype = [DType::F16, DType::Bf16, DType::S8][(at + turn) % 3];
            let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
            if (at, turn) != (2, 0) && !drawn(&format!("parts {gemm:?}"), 8) {
                continue;
            }
            let plain = Wgmma::of(gemm.spec(), [64, 64], 1, &target);
            let steps = plain.in_parts(parts, gemm.spec(), &target).steps(gemm.spec()).finish().unwrap();
            let schedule = Schedule::new(gemm.program().unwrap(), target, steps);
            assert!(print(&right(&schedule)).contains("wgmma.m64n64k"), "{schedule}");
        }
    }
}

/// The smallest product, and a sample of the others; all lower.
#[test]
fn sums_of_many_parts_that_several_threads_add_are_exact() {
    let cases = [
        ([16, 48, 9000], DType::F16, Layout::NT),
        ([3, 33, 6401], DType::Bf16, Layout::NN),
        ([8, 32, 5216], DType::F32, Layout::TT),
        ([2, 32, 7872], DType::F64, Layout::TN),
        ([4, 64, 6240], DType::S8, Layout::TN),
        ([60, 7, 4111], DType::F32, Layout::NT),
    ];
    for ([m, n, k], dtype, layout) in cases {
        let schedule = recommend(&Gemm::new(m, n, k).of(dtype).layout(layout), &Target::sm_90a()).unwrap();
        let text = print(&lowered(&schedule));
        // A thread adds a share, and one adds the shares.
        assert!(text.contains("shares") && text.contains("threadIdx.y"), "{schedule}");
        if dtype == DType::F64 || drawn(&format!("many parts {m}x{n}x{k} {dtype}"), 5) {
            right(&schedule);
        }
    }
}

#[test]
fn small_operands_go_through_l1() {
    // 64 KB of A, and more; half as much of elements of 16 bits.
    for (dtype, k, through_l1) in
        [(DType::F64, 256, true), (DType::F64, 264, false), (DType::F16, 512, true), (DType::F16, 520, false)]
    {
        let gemm = Gemm::new(32, 4864, k).of(dtype);
        let text = Kind::Mma.schedule(&gemm, &Target::sm_80()).unwrap().to_string();
        let copies = |operand: &str| text.contains(&format!("copy_with {operand}_s cp_async cache=l1"));
        assert_eq!([copies("A"), copies("B")], [through_l1, false], "{text}");
    }
}

/// A sample of the tiles, and the first.
#[test]
fn tiles_with_sides_that_are_no_powers_of_two_are_exact() {
    // Ragged and whole sizes, rows that cp.async copies in pieces, parts of k by a kernel and in a cluster.
    let cases = [
        (DType::F64, Layout::NT, [48, 64], [1, 4], 1, [100, 70, 45]),
        (DType::F64, Layout::TN, [64, 48], [4, 1], 1, [128, 96, 40]),
        (DType::F64, Layout::NN, [96, 64], [2, 2], 2, [96, 64, 136]),
        (DType::F64, Layout::TT, [96, 128], [2, 4], 3, [90, 130, 200]),
        (DType::Tf32, Layout::TN, [96, 96], [2, 2], 1, [100, 188, 68]),
        (DType::Tf32, Layout::NT, [96, 128], [2, 2], 1, [161, 130, 71]),
        (DType::Tf32, Layout::NN, [32, 96], [2, 2], 2, [30, 192, 264]),
        (DType::Tf32, Layout::TT, [96, 64], [2, 2], 2, [97, 66, 260]),
    ];
    let tried = |at: usize| at == 0 || drawn(&format!("no powers of two {at}"), 3);
    for (_, (dtype, layout, block, warps, parts, [m, n, k])) in cases.into_iter().enumerate().filter(|(n, _)| tried(*n))
    {
        let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
        let target = Target::sm_90a();
        let tiles = Mma::of(gemm.spec(), &target, block, warps, parts);
        let combined = if parts == 2 { Combine::Cluster } else { Combine::Kernel };
        let steps = Mma { combine: combined, ..tiles }.steps(gemm.spec()).finish().unwrap();
        right(&Schedule::new(gemm.program().unwrap(), target, steps));
    }
}

#[test]
fn columns_of_short_panels_are_exact() {
    let target = Target::sm_90a();
    let cases = [
        (Layout::NN, SwapAb::Straight, [64, 96], [70, 100, 130]),
        (Layout::TN, SwapAb::Straight, [128, 160], [128, 160, 72]),
        (Layout::TN, SwapAb::Swapped, [96, 64], [96, 64, 200]),
        (Layout::TT, SwapAb::Swapped, [160, 64], [168, 72, 72]),
    ];
    for (layout, swap_ab, block, [m, n, k]) in cases {
        let gemm = Gemm::new(m, n, k).of(DType::F16).layout(layout);
        let of = Wgmma::of(gemm.spec(), block, 1, &target);
        let tiles = Wgmma { swap_ab, swizzle: 64, cluster: [1, 1], persistent: false, producer: false, ..of };
        let steps = tiles.steps(gemm.spec()).finish().unwrap();
        let schedule = Schedule::new(gemm.program().unwrap(), target, steps);
        let panels = if swap_ab.is_swapped() { "swizzle A_s 64" } else { "swizzle B_s 64" };
        assert!(schedule.to_string().contains(panels), "{schedule}");
        right(&schedule);
    }
}
