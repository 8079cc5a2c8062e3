//! Text round trips, every documented form, and refusals that underline the right words.

use super::*;
use crate::error::Code;
use crate::ir::print as ir_print;

/// Parses, prints, parses again: the same program. Returns it.
fn round_trip(text: &str) -> Func {
    let first = parse(text).unwrap_or_else(|e| panic!("{e}\n{:?}", e.labels()));
    let printed = print(&first);
    let second = parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(first, second, "{printed}");
    assert_eq!(print(&second), printed);
    first
}

/// Parses to an error of the code; returns the underlined words and the message.
fn refused(text: &str, code: &str) -> (Vec<String>, String) {
    let error = parse(text).expect_err(text);
    assert_eq!(error.code().to_string(), code, "{text}: {error}");
    assert_eq!(error.source_text(), Some(text));
    assert!(!error.labels().is_empty(), "{text}: {error}");
    (error.labels().iter().map(|l| text[l.span.clone()].to_string()).collect(), error.message().to_string())
}

#[test]
fn the_worked_example_parses() {
    let func = round_trip(
        "# f16 GEMM on Hopper\n\
         program gemm\n\
         \x20 input A f16[4096, 4096]; input B f16[4096, 4096]      # layout NT\n\
         \x20 mma: acc[i 4096, j 4096] f32 = sum(k 4096) f32(A[i, k]) * f32(B[j, k])\n\
         \x20 out: output C[i, j] f16 = f16(acc[i, j])\n",
    );
    assert_eq!(func, parse("gemm 4096x4096x4096 f16>f32>f16 NT").unwrap());
    assert_eq!(
        print(&func),
        "program gemm\n\
         \x20 input A f16[4096, 4096]\n\
         \x20 input B f16[4096, 4096]\n\
         \x20 mma: acc[i 4096, j 4096] f32 = sum(k 4096) f32(A[i, k])*f32(B[j, k])\n\
         \x20 out: output C[i 4096, j 4096] f16 = f16(acc[i, j])\n"
    );
}

#[test]
fn builder_lines_round_trip() {
    for line in [
        "vec_add 1024",
        "window_sum 1024",
        "gemm 1024x512x2048 f32 NN",
        "gemm 8x4x2 f16>f32 TN",
        "gemm 8x4x2 e4m3*e5m2>f32>f16 TT",
        "gemm 8x4x2 s8>s32 NT relu scale 2",
        "gemm 64x32x16 f16>f32>f16 NT scale 0.1 bias residual gelu relu # comment",
        "gemm 64x32x16 s8>s32>s8 TN row_scales column_scales scale 0.5 beta -2 bias row_bias silu residual saturate",
        "batched_gemm 3x64x32x16 bf16>f32>bf16 NN",
    ] {
        round_trip(line);
    }
    assert_eq!(round_trip("\n# first\n vec_add 8 # n\n\n"), crate::te::vec_add(8).unwrap());
}

#[test]
fn every_form_round_trips() {
    let func = round_trip(
        "program forms\n\
         input A f32[16, 8] strides [32, 1] align 256\n\
         input M s32[16]; input H f16[16]\n\
         neg: T[i, j] f32 = -A[i, j] - -1.5 + -(2.5)*inf / abs(A[i, 7 - j])\n\
         U[i, j 8] f32 = select(i >= 1 and (j < 4 or not j == 6), T[i - 1, j], exp(T[i, j]) + f32(i*2 + 1))\n\
         best: V[i] f32 = max(j) max(U[i, j], A[i, j]) * 1e-30\n\
         least: L[i 16] s32 = min(i2 4, j2 2) min(M[(i + i2*3 + j2) % 16], -7)\n\
         bits: W[i] s32 = (M[i] << 2 | M[i] >> 1 & 3) ^ ~M[i // 2] & L[i]\n\
         cmp: output X[i] f16 = select((V[i] < 0.5) & (i != 3), H[i], f16(tanh(V[i]) - erf(V[i])))\n\
         output Y[i] f32 strides [4] align 4 = sqrt(V[i])*rsqrt(V[i]) + log(V[i]) - log2(exp2(V[i])) + f32(M[i])\n\
         output Z[] s32 = sum(i) W[i]*max(M[i], s32(f32(3)))\n",
    );
    let names: Vec<&str> = func.params.iter().map(|p| func.buffer(*p).name.as_str()).collect();
    assert_eq!(names, ["A", "M", "H", "X", "Y", "Z"]);
    let text = ir_print::func(&func);
    assert!(text.contains("init V[vi] = -inf\n"), "{text}");
    assert!(text.contains("init L[vi] = 2147483647\n"), "{text}");
    assert!(text.contains("V[vi] = max(V[vi], max(U[vi, vj], A[vi, vj])*1e-30)"), "{text}");
    assert!(
        text.contains("for best_i in 0..16\n    for best_j in 0..8\n      block best(vi = best_i, reduce vj = best_j)"),
        "{text}"
    );
}

#[test]
fn loop_names_never_clash() {
    let func = round_trip(
        "program p\ninput A f32[4, 4]\n\
         a: B[i, j] f32 = A[i, j]\n\
         b: output C[i, b_i] f32 = B[i, b_i]\n\
         c: output D[b_i, b_b_i] f32 = B[b_i, b_b_i]\n",
    );
    let mut names: Vec<&str> = crate::ir::visit::loops(&func.body).iter().map(|l| func.var_name(l.var)).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn refusals_underline_their_reason() {
    let p = "program p\ninput A f32[16]\ninput H f16[16]\n";
    let cases = [
        ("", "te.syntax", "input"),
        ("output C[i] f32 = A[i] + H[i]", "te.type", "A[i]"),
        ("output C[i] f32 = H[i]", "te.type", "H[i]"),
        ("output C[i] f32 = A[j]", "te.extent", "i"),
        ("output C[i 4] f32 = A[j]", "te.name", "j"),
        ("output C[i 4] f32 = D[i]", "te.name", "D[i]"),
        ("output C[i 4] f32 = C[i]", "te.name", "C[i]"),
        ("output C[i 4] f32 = A[i, i]", "te.index", "A[i, i]"),
        ("output C[i 4] f32 = A[i / 2]", "te.index", "i / 2"),
        ("output C[i 4] f32 = A[4 // i]", "te.index", "i"),
        ("output C[i 4] f32 = A[i % 0]", "te.index", "0"),
        ("output C[i 4] f32 = i", "te.type", "i"),
        ("output C[i 4] f32 = gauss(A[i])", "te.name", "gauss(A[i])"),
        ("output C[i 4] f32 = 1 + sum(k 3) A[k]", "te.syntax", "sum"),
        ("output C[i 4] f32 = exp(A[i], A[i])", "te.type", "exp(A[i], A[i])"),
        ("output C[i 4] f32 = A[i] < 1 < 2", "te.syntax", "<"),
        ("output C[i 4] f32 = A[i] $", "te.syntax", "$"),
        ("output C[i 4] f32 = A[i] é", "te.syntax", "é"),
        ("output C[i 4] f33 = A[i]", "te.type", "f33"),
        ("output C[i 4] bool = max(k 4) A[i + k] < 1", "te.type", "C"),
        ("output C[i 0] f32 = A[i]", "te.extent", "C"),
        ("output A[i 4] f32 = A[i]", "te.name", "A"),
        ("output C[i 4, i 4] f32 = A[i]", "te.name", "C"),
        ("output C[i 99999999999999] f32 = A[0]", "te.extent", "C"),
        ("output C[i 99999999999999999999] f32 = A[0]", "te.limit", "99999999999999999999"),
        ("output C[i 4] f32 = A[i] + 1e999", "te.limit", "1e999"),
        ("output C[i 4] s32 = 3000000000", "te.type", "3000000000"),
        ("output C[i 4] s32 = s32(1.5)", "te.type", "1.5"),
        ("C[i 4] f32 = A[i]", "te.output", "p"),
        ("C[i 4] f32 align 64 = A[i]", "te.storage", "C"),
        ("output C[i 4] f32 align 3 = A[i]", "te.storage", "C"),
        ("output C[i 4] f32 strides [0] = A[i]", "te.storage", "C"),
        ("output C[i 4] f32 = sum() A[i]", "te.reduce", "C"),
        ("output C[not 4] f32 = A[0]", "te.name", "C"),
        ("output C[i 16] f32 = A[i + 1]", "verify.bounds", "i + 1"),
        ("output C[i 16] f32 = select(i > 1, 0, A[i - 1])", "verify.bounds", "i - 1"),
        (
            "output C[i 4] f32 = A[i*9223372036854775807 + 9223372036854775807]",
            "verify.bounds",
            "i*9223372036854775807 + 9223372036854775807",
        ),
        ("output C[i 4] f32 = (A[i]", "te.syntax", "]"),
    ];
    for (statement, code, words) in &cases[1..] {
        let (labels, _) = refused(&format!("{p}{statement}"), code);
        assert_eq!(labels.first().map(String::as_str), Some(*words), "{statement}");
    }
    refused("input A f32[4]", "te.syntax");
    refused("gemm 8x8 f32 NN", "te.syntax");
    refused("gemm 8x8x0 f32 NN", "te.syntax");
    refused("gemm 8x8x8 f32 XY", "te.syntax");
    for (line, words) in [
        ("gemm 8..=64/ax8x8 f32 NT", "8..=64/ax8x8"),
        ("gemm 8..=64x8x8 by f32 NT", "by"),
        ("gemm 8..=64x8x8 by f32 NT relu", "f32"),
        ("gemm 8..=64x8x8 by 0 f32 NT", "0"),
        ("gemm 8..=64/8x8x8 by 8 f32 NT", "8"),
        ("gemm 64x8x8 by 8 f32 NT", "8"),
        ("gemm 64/8x8x8 f32 NT", "64/8x8x8"),
    ] {
        assert_eq!(refused(line, "te.syntax").0, [words], "{line}");
    }
    assert!(refused("gemm 8..=60/8x8x8 f32 NT", "size.range").1.contains("60, is no multiple of 8"));
    refused("gemm 8x8x8 f32", "te.syntax");
    refused("gemm 8x8x8 float NN", "te.type");
    refused("gemm 8x8x8 f32 NN swish", "te.name");
    refused("gemm 8x8x8 f32 NN relu relu", "te.epilogue");
    refused("gemm 8x8x8 s8>s32 NN gelu", "te.epilogue");
    refused("gemm 8x8x8 s8>s32 NN scale 0.5", "te.epilogue");
    refused("gemm 8x8x8 s8>s32 NN silu row_scales", "te.epilogue");
    refused("gemm 8x8x8 f32 NN saturate", "te.epilogue");
    refused("gemm 8x8x8 f32 NN beta bias", "te.syntax");
    assert_eq!(refused("vec_add 8\nsplit i 4", "te.syntax").0, ["split i 4"]);
}

/// Multiples of a dynamic M, in words and behind the range.
#[test]
fn multiples_of_m_are_those_of_a_size() {
    let plain = parse("gemm 8..=64x16x32 f16>f32>f16 NT relu").unwrap();
    for line in ["gemm 8..=64x16x32 by 8 f16>f32>f16 NT relu", "gemm 8..=64/8x16x32 f16>f32>f16 NT relu"] {
        let func = round_trip(line);
        assert_eq!(func.sizes[0].size.text(), "size M in 8..=64 by 8");
        assert!(print(&func) == print(&plain).replace("in 8..=64", "in 8..=64 by 8"), "{}", print(&func));
    }
}

#[test]
fn two_extents_are_named() {
    let text = "program p\ninput A f32[16]\ninput B f32[8]\noutput C[i] f32 = A[i] + B[i]";
    assert_eq!(refused(text, "te.extent").1, "i has two extents");
}

#[test]
fn hostile_text_ends_in_an_error() {
    let p = "program p\ninput A f32[16]\n";
    let deep =
        |open: &str, close: &str, n: usize| format!("{p}output C[i] f32 = {}A[i]{}", open.repeat(n), close.repeat(n));
    for text in [deep("(", ")", 10_000), deep("-", "", 10_000), deep("~", "", 10_000), deep("abs(", ")", 10_000)] {
        refused(&text, "te.limit");
    }
    for text in
        [deep("A[", "]", 10_000), deep("A[i] + (", ")", 10_000), deep("not ", "", 10_000), deep("A[i] + ", "", 10_000)]
    {
        assert!(parse(&text).is_err());
    }
    round_trip(&deep("(", ")", 30));
    round_trip(&deep("A[i] + ", "", 90));
    assert_eq!(parse(&" ".repeat(MAX_TEXT + 1)).unwrap_err().code(), Code::TeLimit);
    let many: String = (0..300).map(|n| format!("output C{n}[i] f32 = A[i]\n")).collect();
    refused(&format!("{p}{many}"), "te.limit");
    refused(
        "program p\noutput C[i 9223372036854775807] f32 = f32(i*9223372036854775807*9223372036854775807)",
        "te.extent",
    );
}

/// `max(a, b)` of buffers of rank 0 is data, whatever operator follows.
#[test]
fn maxima_of_scalars_are_data() {
    let p = "program p\ninput a f32\ninput b f32\ninput A f32[4, 8]\n";
    for value in ["max(a, b) - 1.0", "max(a, a)*a", "min(a, b)", "A[i, 0] + max(a, b)", "max(k) A[i, k]"] {
        round_trip(&format!("{p}output C[i 4] f32 = {value}"));
    }
}

/// Whatever is in the text, parsing ends without a panic: every prefix and random mixtures of a program's pieces.
#[test]
fn garbage_never_panics() {
    let text =
        "program p\ninput A f32[4, 4] strides [4, 1] align 16; l: output C[i, j 4] f32 = sum(k 4) -A[i, k]*1.5e3 # é\n";
    for end in (0..=text.len()).filter(|e| text.is_char_boundary(*e)) {
        let _ = parse(&text[..end]);
        let _ = parse(&text[end..]);
    }
    let pieces = [
        "program", " p", "\n", "input", "output", " A", "[", "]", "(", ")", "f32", "9", "é", "=", "-", "//", "%", ",",
        ":", ";", "#", "sum", "max", "select", "<", "and", "not", "gemm", "8x8x8", "NN", "inf", "1e", ".", "i",
        "strides", "align",
    ];
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let soup: String = (0..rng.usize(1..30)).map(|_| pieces[rng.usize(..pieces.len())]).collect();
        let start = if rng.bool() { "program p\ninput A f32[4]\noutput C[i] f32 = " } else { "" };
        if let Err(e) = parse(&format!("{start}{soup}")) {
            for label in e.labels() {
                assert!(e.source_text().is_some_and(|t| t.get(label.span.clone()).is_some()), "{soup}");
            }
        }
    }
}

/// What the grammar shows as builder lines and names as functions, the parser takes.
#[test]
fn the_grammar_tells_no_lies() {
    let lines: Vec<&str> = GRAMMAR.lines().filter(|l| builder::NAMES.iter().any(|n| l.starts_with(n))).collect();
    assert!(lines.len() >= 6, "{lines:?}");
    for line in lines {
        assert!(parse(line).is_ok(), "{line}");
    }
    let functions = GRAMMAR.split('`').find(|part| part.starts_with("abs ")).unwrap();
    for function in functions.split_whitespace() {
        let text = format!("program p\ninput A f32[8] strides [2] align 64\nl: output C[i 8] f32 = {function}(A[i])\n");
        assert!(parse(&text).is_ok(), "{text}");
    }
    for reducer in ["sum", "max", "min"] {
        assert!(GRAMMAR.contains(&format!("`{reducer}`")));
        let text = format!("program p; input A f32[8, 4]; output C[i] f32 = {reducer}(k) A[i, k]");
        assert!(parse(&text).is_ok(), "{text}");
    }
}
