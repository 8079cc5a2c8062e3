//! Products of 4-bit integers by wgmma, which multiplies bytes: kernels that widen both operands, in every layout, and sizes that no tile divides.

use super::ptx::computes_and_assembles;
use warploom::gemm::{Gemm, Kind, recommend, recommend_without_workspace};
use warploom::te::Layout;
use warploom::{DType, Target};

/// Whole tiles, rows and columns that no tile divides, k that no stage divides, and parts of k.
const SIZES: [[i64; 3]; 4] = [[128, 128, 256], [70, 130, 144], [300, 72, 400], [64, 48, 2048]];

#[test]
fn widened_products_are_exact_in_every_layout() {
    let target = Target::sm_90a();
    for (turn, dtype) in [DType::S4, DType::U4].into_iter().enumerate() {
        for (at, layout) in Layout::ALL.into_iter().enumerate() {
            let size @ [m, n, k] = SIZES[(turn + at) % SIZES.len()];
            let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
            let schedule = Kind::Wgmma.schedule(&gemm, &target).unwrap_or_else(|e| panic!("{dtype} {size:?}: {e}"));
            let text = schedule.to_string();
            assert!(text.contains("s32.s8.s8") && text.contains("A_wide") && text.contains("B_wide"), "{text}");
            computes_and_assembles(&schedule, &format!("widened {dtype} {layout:?}"));
        }
    }
}

#[test]
fn large_products_of_4_bits_are_widened_where_there_is_workspace() {
    let target = Target::sm_90a();
    let of = |[m, n, k]: [i64; 3], layout| Gemm::new(m, n, k).of(DType::S4).layout(layout);
    for layout in Layout::ALL {
        let text = recommend(&of([4096; 3], layout), &target).unwrap().to_string();
        assert!(text.contains("wgmma.m64n") && text.contains("A_wide"), "{text}");
    }
    // Few rows leave most of the bytes in one operand, and rows of 4104 bytes are not aligned to 16.
    for (size, layout) in [([16, 28672, 8192], Layout::NT), ([4096, 4096, 4104], Layout::NT)] {
        let text = recommend(&of(size, layout), &target).unwrap().to_string();
        assert!(text.contains(" mma.m16n8k32"), "{text}");
    }
    let text = recommend_without_workspace(&of([4096; 3], Layout::NT), &target).unwrap().to_string();
    assert!(!text.contains("A_wide"), "{text}");
}
