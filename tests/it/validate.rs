//! Translation validation of schedules that users compile: at which sizes it runs them, and that it says so.

use warploom::{Schedule, Validation};

fn validated(text: &str) -> Validation {
    let schedule: Schedule = text.parse().unwrap_or_else(|e| panic!("{text}\n{e}"));
    schedule.validate().unwrap_or_else(|e| panic!("{text}\n{e}"))
}

const LEVELS: [&str; 2] = ["the kernels in 3 orders", "the PTX"];

/// Tiles, stages, vectors, a ragged edge: what is validated is cut as the schedule is.
#[test]
fn a_large_product_is_validated_through_its_ptx() {
    let text = "gemm 8192x1000x4096 f32 NT\ntarget sm_80
        split i ? 16 -> i0 i1; split j ? 8 -> j0 j1; split k ? 8 -> k0 k1; reorder i0 j0 i1 j1 k0 k1
        bind i0 blockIdx.y; bind j0 blockIdx.x; bind i1 threadIdx.y; bind j1 threadIdx.x
        cache_read C A local -> A_l; compute_at A_l k0 -> a0 a1; vectorize a1
        cache_write C C local -> C_l; reverse_compute_at C_l j1";
    let validation = validated(text);
    assert!(validation.reduced && validation.skipped.is_empty(), "{validation}");
    assert_eq!(validation.compared[1..], LEVELS);
    let shape = |n: usize| {
        let program = &validation.instance.program;
        program.buffer(program.params[n]).const_shape().unwrap()
    };
    let ([m, n], k) = ([shape(2)[0], shape(2)[1]], shape(0)[1]);
    assert!(m % 16 == 0 && n % 8 == 0 && k % 8 == 0 && m.max(n).max(k) < 100, "{validation}");
}

/// A program without a builder, with strides and a window.
#[test]
fn a_program_in_text_is_validated_at_reduced_sizes() {
    let text = "program window
        input A f32[100002] align 4; input W f32[3]
        T[i 100000] f32 = sum(w 3) A[i + w] * W[w]
        output U[i 100000] f32 = max(T[99999 - i], 0)
        target sm_80
        split U_i ? 128 -> b t; split i ? 128 -> b_1 t_1
        bind b blockIdx.x; bind t threadIdx.x; bind b_1 blockIdx.x; bind t_1 threadIdx.x";
    let validation = validated(text);
    assert!(validation.reduced && validation.skipped.is_empty(), "{validation}");
    let extent = validation.instance.program.buffer(validation.instance.program.params[2]).const_shape().unwrap()[0];
    assert!(extent > 128 && extent % 128 != 0 && extent < 1000, "{validation}");
}

/// A program whose size no number of its text states apart is run whole where it is small, and else not at all.
#[test]
fn what_cannot_be_run_is_not_called_validated() {
    let text = "program far\ninput A f32[4294967296]\noutput U[i 4294967296] f32 = A[i] + 1\ntarget sm_80\nsplit i 4294967296 ? -> a b";
    let validation = validated(text);
    assert!(validation.compared.is_empty() && !validation.skipped.is_empty(), "{validation}");
    assert!(validation.to_string().starts_with("program far is not validated: "), "{validation}");
}
