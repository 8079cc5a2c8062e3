//! Products of few rows or columns of 4-bit integers: a producer warp streams the operands by TMA to warps that unpack them.

use super::ptx::computes_and_assembles;
use super::sample::drawn;
use super::tensor::right;
use warploom::gemm::{Gemm, candidates, recommend};
use warploom::te::Layout;
use warploom::{DType, Schedule, Target};

/// The candidates with a producer warp.
fn streamed(gemm: &Gemm) -> Vec<Schedule> {
    let all = candidates(gemm, &Target::sm_90a()).unwrap().into_iter().map(|(_, schedule)| schedule);
    let is_streamed = |text: String| {
        text.contains("specialize A_s B_s -> load warps=1") && text.contains("cache_read C A_f fragment as=s8")
    };
    all.filter(|schedule| is_streamed(schedule.to_string())).collect()
}

/// A sample of the sizes, and the one of one stage.
#[test]
fn streams_of_either_operand_are_exact() {
    // Whole tiles, rows and columns that no tile divides, k that no stage divides, and one stage.
    let sizes = [[16, 96, 1024], [30, 200, 768], [200, 19, 544], [32, 160, 256]];
    for (at, [m, n, k]) in sizes.into_iter().enumerate() {
        if at != 3 && !drawn(&format!("streams {m}x{n}x{k}"), 4) {
            continue;
        }
        let all = streamed(&Gemm::new(m, n, k).of([DType::S4, DType::U4][at % 2]).layout(Layout::NT));
        assert!(!all.is_empty(), "{m} {n} {k}");
        computes_and_assembles(&all[0], &format!("streamed {m}x{n}x{k}"));
        right(&all[all.len() - 1]);
    }
}

#[test]
fn few_rows_of_4_bits_are_streamed() {
    for [m, n] in [[16, 28672], [28672, 16]] {
        let gemm = Gemm::new(m, n, 8192).of(DType::S4).layout(Layout::NT);
        let text = recommend(&gemm, &Target::sm_90a()).unwrap().to_string();
        assert!(text.contains("load warps=1"), "{text}");
        // Operands that do not lie along k are packed.
        assert!(streamed(&gemm.layout(Layout::NN)).is_empty());
    }
}
