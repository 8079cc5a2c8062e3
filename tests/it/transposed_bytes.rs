//! Factors of 8 bits whose k is not contiguous, on tensor cores: loaded as pairs of bytes with rows and columns exchanged, and
//! put together as words along k from register to register.

use super::tensor::right_and_clean;
use warploom::error::Code;
use warploom::lower::lower;
use warploom::te::Layout;
use warploom::{Schedule, compile};

/// Where row k of 16 lies, so that a lane finds four neighbours along k in two registers.
const ALONG_K: &str = "k // 16 * 16 + k % 4 // 2 * 8 + k % 16 // 4 * 2 + k % 2";

/// Even elements of 16 before the odd ones.
fn even_first(index: &str) -> String {
    format!("{index} // 16 * 16 + {index} % 2 * 8 + {index} % 16 // 2")
}

/// The steps of a factor, and what is said once everything has its loops.
fn factor(x: &str, dtype: &str, across: bool) -> (String, String) {
    let shared = format!(
        "cache_read C {x} shared -> {x}_s; compute_at {x}_s ko -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}e\n\
         split {x}e ? 64 -> {x}o {x}t; bind {x}t threadIdx.x\n"
    );
    if !across {
        let steps = format!(
            "{shared}storage_align {x}_s 0 64 16; cache_read C {x}_s fragment -> {x}_f {x}q {x}r; split {x}q ? 16 -> {x}n {x}j\n"
        );
        return (steps, format!("tensorize {x}j ldmatrix.m16n32.{dtype}\n"));
    }
    let steps = format!(
        "{shared}cache_read C {x}_s fragment -> {x}_p {x}p {x}v; cache_read C {x}_p fragment -> {x}_f {x}q {x}r\n\
         split {x}r ? 16 -> {x}n {x}j; reorder {x}n {x}q {x}j; split {x}v ? 16 -> {x}pn {x}pj\n\
         split {x}p ? 4 2 2 -> {x}a {x}b {x}c {x}d; reorder {x}pn {x}a {x}c {x}b {x}d {x}pj; fuse {x}a {x}c {x}b {x}d -> {x}k\n"
    );
    let placed = format!(
        "transform_layout {x}_s [k, r] -> [{ALONG_K}, r]; transform_layout {x}_p [k, r] -> [{ALONG_K}, r]\n\
         transform_layout {x}_f [k, r] -> [k, {}]; tensorize {x}k ldmatrix.trans.m32n16.{dtype}\n",
        even_first("r")
    );
    (steps, placed)
}

/// A product of 64 x 32 x 64 by two warps of 16 x 32 a block.
fn product(layout: Layout, [a, b]: [&str; 2]) -> String {
    let (of_a, of_b) = (layout.a_transposed(), !layout.b_transposed());
    let pick = |across: bool, yes: &'static str, no: &'static str| if across { yes } else { no };
    let side = |across: bool, index: &str| if across { even_first(index) } else { index.to_string() };
    let ((a_steps, a_placed), (b_steps, b_placed)) = (factor("A", a, of_a), factor("B", b, of_b));
    format!(
        "program gemm\ninput A {a}[64, 64]; input B {b}[{b_shape}]\n\
         C: output C[i 64, j 32] s32 = sum(k 64) s32({at_a}) * s32({at_b})\ntarget sm_80\n\
         split i ? {rows}; split j ? {columns}; split k ? 32 -> ko ki\n\
         reorder io jo iw ko jm {odd_b}{odd_a} ji ki; {fused}bind io blockIdx.y; bind jo blockIdx.x; bind iw warp\n\
         cache_write C C fragment -> acc; reverse_compute_at acc iw\n\
         {a_steps}{b_steps}{a_placed}{b_placed}transform_layout acc [x, y] -> [{x}, {y}]\n\
         decompose_reduction C ko -> zero; tensorize ii mma.m16n8k32.s32.{a}.{b}",
        b_shape = pick(of_b, "64, 32", "32, 64"),
        at_a = pick(of_a, "A[k, i]", "A[i, k]"),
        at_b = pick(of_b, "B[k, j]", "B[j, k]"),
        rows = pick(of_a, "2 8 2 -> io iw ia ip", "2 16 -> io iw ii"),
        columns = pick(of_b, "2 8 2 -> jo jm ji jp", "4 8 -> jo jm ji"),
        odd_b = pick(of_b, "jp ", ""),
        odd_a = pick(of_a, "ip ia", "ii"),
        fused = pick(of_a, "fuse ip ia -> ii; ", ""),
        x = side(of_a, "x"),
        y = side(of_b, "y"),
    )
}

#[test]
fn words_along_k_are_put_together_in_registers() {
    for (layout, types) in Layout::ALL.into_iter().flat_map(|l| [["s8", "s8"], ["u8", "s8"]].map(|t| (l, t))) {
        right_and_clean(&product(layout, types));
    }
}

/// A permutation a register: four of A, eight of B, each the even or the odd bytes of two others.
#[test]
fn a_word_is_one_permutation_of_two() {
    for (layout, count) in [(Layout::NT, 0), (Layout::TT, 4), (Layout::NN, 8), (Layout::TN, 12)] {
        let ptx = compile(&Schedule::parse(&product(layout, ["s8", "s8"])).unwrap()).unwrap().text;
        let permutations = ptx.lines().filter(|l| l.contains("prmt.b32")).count();
        assert_eq!(permutations, count, "{layout:?}\n{ptx}");
    }
}

#[test]
fn bytes_that_are_not_put_together_are_refused() {
    // Without the order of the rows, a lane has other rows than the product asks of it.
    let text = product(Layout::NN, ["s8", "s8"]).replace(ALONG_K, "k");
    let text = text
        .replace(
            "split Bp ? 4 2 2 -> Ba Bb Bc Bd; reorder Bpn Ba Bc Bb Bd Bpj; fuse Ba Bc Bb Bd -> Bk",
            "reorder Bpn Bp Bpj",
        )
        .replace("tensorize Bk", "tensorize Bp");
    let schedule = Schedule::parse(&text).unwrap();
    let error = lower(&schedule.scheduled().unwrap_or_else(|e| panic!("{text}\n{e}")), &schedule.target).unwrap_err();
    assert_eq!(error.code(), Code::LowerDistribute, "{error}");
    let message = error.message();
    assert!(message.contains("ldmatrix.trans.m32n16.s8") && message.contains("mma.m16n8k32.s32.s8.s8"), "{message}");
}
