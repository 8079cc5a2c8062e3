//! Products of single bits by the recipes for tensor cores: every chip that has their instructions, layouts whose bits a kernel of its
//! own transposes, and sizes that no tile divides.

use super::ptx::{agrees, computes_and_assembles};
use super::ptxas::{assemble, tools};
use super::sample::drawn;
use super::tensor::{lowered, right};
use warploom::gemm::{Gemm, Kind, recommend};
use warploom::lower::print;
use warploom::te::Layout;
use warploom::{DType, Schedule, Target};

fn product([m, n, k]: [i64; 3], layout: Layout) -> Gemm {
    Gemm::new(m, n, k).of(DType::B1).layout(layout)
}

/// The instruction of a lowered program.
fn multiplies_by(schedule: &Schedule) -> &'static str {
    let text = print(&lowered(schedule));
    match (text.contains("k256.s32.b1.b1"), text.contains("wgmma.m64n")) {
        (true, true) => "wgmma",
        (true, false) => "mma",
        (false, _) => "none",
    }
}

/// Whole tiles, and extents that no tile divides: rows of whole bytes, of words, and of 16 bytes.
const SIZES: [[i64; 3]; 4] = [[128, 128, 1024], [72, 40, 264], [136, 96, 1184], [256, 24, 640]];

/// Each recipe has the instruction in every layout. Those of the smallest size run, and a sample of the others.
#[test]
fn recipes_multiply_bits_in_every_layout() {
    let chips = [
        (Kind::Mma, Target::sm_80()),
        (Kind::Mma, Target::sm_89()),
        (Kind::Mma, Target::sm_90()),
        (Kind::Wgmma, Target::sm_90a()),
    ];
    for (n, (kind, target)) in chips.into_iter().enumerate() {
        for (at, layout) in Layout::ALL.into_iter().enumerate() {
            let size = SIZES[(n + at) % SIZES.len()];
            let schedule =
                kind.schedule(&product(size, layout), &target).unwrap_or_else(|e| panic!("{kind:?} {size:?}: {e}"));
            assert_eq!(multiplies_by(&schedule), kind.name(), "{schedule}");
            let name = format!("bits {kind:?} {target} {size:?}");
            if size == SIZES[1] || drawn(&format!("{name} run"), 8) {
                computes_and_assembles(&schedule, &name);
            }
        }
    }
}

#[test]
fn recommended_products_of_bits_are_by_tensor_cores() {
    let by = |layout, target| multiplies_by(&recommend(&product([2048, 2048, 8192], layout), &target).unwrap());
    for layout in Layout::ALL {
        assert_eq!(by(layout, Target::sm_80()), "mma");
        assert_eq!(by(layout, Target::sm_90()), "mma");
        assert_eq!(by(layout, Target::sm_90a()), "wgmma");
        // Turing counts where bits differ, and not what they have in common.
        assert_eq!(by(layout, Target::sm_75()), "none");
    }
}

/// A sum over where bits differ, by the instruction that counts them.
#[test]
fn differences_are_counted_from_shared_memory() {
    for (target, row, [m, k]) in [
        (Target::sm_80(), "mma_xor.m8n8k128.s32.b1.b1", [8, 128]),
        (Target::sm_80(), "mma_xor.m16n8k256.s32.b1.b1", [16, 256]),
        (Target::sm_90(), "mma_xor.m16n8k128.s32.b1.b1", [16, 128]),
    ] {
        let load = if m == 8 { "ldmatrix.m8n128.b1".to_string() } else { format!("ldmatrix.m16n{k}.b1") };
        let load_b = if k == 128 { "ldmatrix.m8n128.b1" } else { "ldmatrix.m8n256.b1" };
        let text = format!(
            "program differ\ninput A b1[64, 1024]; input B b1[32, 1024]\n\
             C: output C[i 64, j 32] s32 = sum(k 1024) s32(A[i, k] ^ B[j, k])\ntarget {target}\n\
             split i ? 2 {m} -> io iw ii; split j ? 8 -> jm ji; split k ? {k} -> ko ki; reorder io iw ko jm ii ji ki\n\
             bind io blockIdx.x; bind iw warp; cache_write C C fragment -> sum; reverse_compute_at sum iw\n\
             cache_read C A shared -> A_s; compute_at A_s ko -> a0 a1; fuse a0 a1 -> a; split a ? 64 32 -> a2 a3 a4\n\
             bind a3 threadIdx.x; vectorize a4; storage_align A_s 0 256 128\n\
             cache_read C B shared -> B_s; compute_at B_s ko -> b0 b1; fuse b0 b1 -> b; split b ? 64 32 -> b2 b3 b4\n\
             bind b3 threadIdx.x; vectorize b4; storage_align B_s 0 256 128\n\
             cache_read C A_s fragment -> A_f f0 f1; split f0 ? {m} -> fm fi; tensorize fi {load}\n\
             cache_read C B_s fragment -> B_f g0 g1; split g0 ? 8 -> gm gi; tensorize gi {load_b}\n\
             decompose_reduction C ko -> zero; tensorize ii {row}\n"
        );
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let kernels = right(&schedule);
        assert!(print(&kernels).contains(row), "{text}");
        assemble(&tools(), &kernels, &schedule.target, true).unwrap_or_else(|e| panic!("{text}\n{e}"));
        agrees(&schedule, &kernels).unwrap_or_else(|e| panic!("{text}\n{e}"));
    }
}

#[test]
fn batches_whose_bits_would_be_packed_have_ordinary_code() {
    let batch = |size, layout| recommend(&product(size, layout).batch(3), &Target::sm_90a()).unwrap();
    let by_wgmma = batch([128, 128, 1024], Layout::NT);
    assert_eq!(multiplies_by(&by_wgmma), "wgmma");
    right(&by_wgmma);
    assert_eq!(multiplies_by(&batch([128, 128, 1024], Layout::NN)), "none");
}
