//! Single bits (`b1`) in ordinary code: loads, stores of whole bytes, conversions, arithmetic and staged copies. Each program
//! gives the same in integer mode at every level, and its PTX gives the bytes of its kernels.

use super::lower::refused;
use super::ptx::agrees;
use super::tensor::right_and_clean;
use warploom::Schedule;

fn checked(text: &str) {
    let lowered = right_and_clean(text);
    let schedule = Schedule::parse(text).unwrap();
    agrees(&schedule, &lowered).unwrap_or_else(|e| panic!("{text}\n{e}"));
}

#[test]
fn bits_are_read_as_numbers_of_every_type() {
    for dtype in ["s32", "u32", "s64", "s8", "u8", "f16", "bf16", "f32", "f64", "bool"] {
        for index in ["j", "63 - j", "j * 7 % 64", "i * 8 + j // 8"] {
            let text = format!(
                "program p\ninput A b1[4, 64]\nC: output C[i 4, j 64] {dtype} = {dtype}(A[i, {index}])\ntarget sm_80\n\
                 bind i blockIdx.x; split j ? 2 -> jo ji; bind jo threadIdx.x; vectorize ji\n"
            );
            checked(&text);
        }
    }
}

#[test]
fn numbers_of_every_type_become_bits() {
    for dtype in ["s32", "u32", "s64", "s8", "u4", "f16", "bf16", "f32", "f64", "bool"] {
        let text = format!(
            "program p\ninput A {dtype}[4, 64]\nC: output C[i 4, j 64] b1 = b1(A[i, j])\ntarget sm_75\n\
             bind i blockIdx.x; split j ? 8 -> jo ji; bind jo threadIdx.x; vectorize ji\n\
             cache_read C A local -> A_l; compute_at A_l jo -> a0 a1\n"
        );
        checked(&text);
    }
}

#[test]
fn bits_are_computed_with() {
    let all = [
        "~A[i, j]",
        "A[i, j] & B[i, j] | ~A[i, j] ^ B[i, 127 - j]",
        "A[i, j] + B[i, j]",
        "A[i, j] - B[i, j] * A[i, j]",
        "-A[i, j]",
        "max(A[i, j], B[i, j]) - min(A[i, j], B[i, j])",
        "A[i, j] << B[i, j]",
        "A[i, j] >> B[i, j]",
        "select(A[i, j] < B[i, j], B[i, 127 - j], A[i, j])",
        "select(i < 2, A[i, j], B[i, j])",
    ];
    for (value, lanes) in all.into_iter().flat_map(|value| [8, 32, 64, 128].map(|lanes| (value, lanes))) {
        let text = format!(
            "program p\ninput A b1[4, 128]; input B b1[4, 128]\nC: output C[i 4, j 128] b1 = {value}\ntarget sm_90\n\
             bind i blockIdx.x; split j ? {lanes} -> jo ji; bind jo threadIdx.x\n\
             cache_write C C local -> C_l; reverse_compute_at C_l jo -> c; vectorize c\n"
        );
        checked(&text);
    }
}

/// Rows of bits go by vectors of up to 16 bytes, through shared memory and registers.
#[test]
fn products_of_staged_bits_are_right_in_every_layout() {
    for (layout, width) in [("NT", 32), ("NN", 8), ("TN", 16), ("TT", 32)] {
        let text = format!(
            "gemm 32x32x256 b1>s32 {layout}\ntarget sm_80\nsplit i ? 4 -> io ii; split j ? 4 -> jo ji; split k ? 128 -> ko ki\n\
             reorder io jo ko ki ii ji; bind io threadIdx.y; bind jo threadIdx.x\n\
             cache_read C A shared -> A_s; compute_at A_s ko -> a0 a1; cache_read C B shared -> B_s; compute_at B_s ko -> b0 b1\n\
             fuse a0 a1 -> a; split a ? 8 8 {width} -> a2 a3 a4 a5; bind a3 threadIdx.y; bind a4 threadIdx.x; vectorize a5\n\
             fuse b0 b1 -> b; split b ? 8 8 {width} -> b2 b3 b4 b5; bind b3 threadIdx.y; bind b4 threadIdx.x; vectorize b5\n"
        );
        checked(&text);
    }
}

#[test]
fn copies_move_sixteen_bytes() {
    for engine in ["", "copy_with A_s cp_async\n"] {
        let text = format!(
            "program p\ninput A b1[64, 512]\nC: output C[i 64, j 512] s8 = s8(A[i, j])\ntarget sm_80\n\
             split i ? 32 -> io ii; bind io blockIdx.x; bind ii threadIdx.x; split j ? 128 4 -> jo jm ji; vectorize ji\n\
             cache_read C A shared -> A_s; compute_at A_s ii -> a0 a1; split a1 ? 128 -> a2 a3; vectorize a3\n{engine}"
        );
        checked(&text);
        let ptx = warploom::compile(&Schedule::parse(&text).unwrap()).unwrap().text;
        let wide = if engine.is_empty() { "ld.global.nc.v4" } else { "cp.async.c" };
        assert!(ptx.contains(wide), "{ptx}");
    }
}

#[test]
fn parts_of_a_byte_are_not_written() {
    let byte =
        "program p\ninput A s32[4, 8]\nC: output C[i 4, j 8] b1 = b1(A[i, j])\ntarget sm_80\nbind i blockIdx.x\n";
    assert_eq!(refused(byte), "admit.byte");
    assert_eq!(refused(&format!("{byte}split j ? 4 -> jo ji; vectorize ji\n")), "admit.byte");
    let row =
        "program p\ninput A b1[4, 12]\nC: output C[i 4, j 12] s32 = s32(A[i, j])\ntarget sm_80\nbind i blockIdx.x\n";
    assert_eq!(refused(row), "admit.row");
}

/// TMA copies bits as bytes.
#[test]
fn boxes_of_bits_are_boxes_of_bytes() {
    let from = |first: i64| {
        format!(
            "program p\ninput A b1[64, 384]\nC: output C[i 64, j 256] s8 = s8(A[i, j + {first}])\ntarget sm_90\n\
             split i ? 32 -> io ii; bind io blockIdx.x; bind ii threadIdx.x; split j ? 128 -> jo ji; reorder io jo ii ji\n\
             cache_read C A shared -> A_s; compute_at A_s jo -> a0 a1; copy_with A_s tma\n"
        )
    };
    checked(&from(0));
    checked(&from(128));
    for first in [64, 8, 4] {
        assert_eq!(refused(&from(first)), "lower.bulk_align");
    }
    let stored = "program p\ninput A b1[64, 512]\nC: output C[i 64, j 512] b1 = ~A[i, j]\ntarget sm_90\n\
        split i ? 32 -> io ii; bind io blockIdx.x; split j ? 256 -> jo ji; reorder io jo ii ji\n\
        cache_write C C shared -> C_s; reverse_compute_at C_s jo; copy_with C_s tma\n\
        bind ii threadIdx.x; split ji ? 32 -> jm jv; vectorize jv\n";
    checked(stored);
}
