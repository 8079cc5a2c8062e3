//! Texts that mean harm: whatever they ask for, parsing, scheduling and compiling end soon, in a program or in an error of
//! the user's, never in a panic, and without much memory.

mod mutated;

use std::time::{Duration, Instant};
use warploom::loom::Schedule;
use warploom::{Error, Fault};

/// Far above what any of these takes, far below what a missing limit would.
const SOON: Duration = Duration::from_secs(20);

/// The error of a text, or of compiling what it means; `None` where it compiles.
fn refusal(text: &str) -> Option<Error> {
    let start = Instant::now();
    let result = Schedule::parse(text).and_then(|s| warploom::compile(&s));
    let shown: String = text.chars().take(200).collect();
    assert!(start.elapsed() < SOON, "{:?} for {shown}", start.elapsed());
    let error = result.err()?;
    assert_ne!(error.fault(), Fault::Bug, "{shown}: {error}");
    assert!(error.to_string().len() < 1 << 18, "{} bytes of error for {shown}", error.to_string().len());
    for label in error.labels() {
        assert!(error.source_text().is_some_and(|t| t.get(label.span.clone()).is_some()), "{shown}: {error}");
    }
    Some(error)
}

fn refused(text: &str, codes: &[&str]) {
    let shown: String = text.chars().take(200).collect();
    let error = refusal(text).unwrap_or_else(|| panic!("nothing refuses {shown}"));
    assert!(codes.contains(&error.code().to_string().as_str()), "{shown}: {error}");
}

#[test]
fn deep_and_long_texts_are_refused() {
    let program = |value: &str| format!("program p\ninput A f32[8]\nB: output B[i 8] f32 = {value}\ntarget sm_90\n");
    for (open, close) in [("(", ")"), ("abs(", ")"), ("-", ""), ("select(i < 1, ", ", 1)"), ("A[i] + (", ")")] {
        refused(
            &program(&format!("{}A[i]{}", open.repeat(20_000), close.repeat(20_000))),
            &["te.limit", "te.type", "te.syntax"],
        );
    }
    refused(&program(&"9".repeat(100_000)), &["te.limit", "te.syntax", "te.type"]);
    refused(&"x".repeat(2 << 20), &["loom.size"]);
    refused(&format!("vec_add 8\ntarget sm_90\nsplit {} ? 2", "i".repeat(100_000)), &["step.name", "step.limit"]);
    refused(&format!("vec_add 8\ntarget sm_90\nfuse {}", "i ".repeat(100_000)), &["step.limit"]);
    refused(&format!("vec_add 8\ntarget sm_90\n{}", "split i ? 2\n".repeat(5000)), &["step.limit"]);
    let map = format!("[i] -> [{}i{}]", "(".repeat(50_000), ")".repeat(50_000));
    refused(
        &format!("vec_add 8\ntarget sm_90\ncache_read C A shared -> S\ntransform_layout S {map}"),
        &["step.limit", "step.map"],
    );
    refused(&"target sm_90\n".repeat(50_000), &["loom.target"]);
}

#[test]
fn enormous_extents_are_numbers_like_others() {
    // 2^36 elements are the most a buffer has: nothing is allocated, nothing is written out.
    for steps in
        ["", "split i ? 1024 -> a b\nbind a blockIdx.x\nbind b threadIdx.x", "split i 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 ?"]
    {
        let _ = refusal(&format!("vec_add 68719476736\ntarget sm_90\n{steps}"));
    }
    refused("vec_add 68719476737\ntarget sm_90", &["te.limit"]);
    refused(
        "gemm 9223372036854775807x9223372036854775807x9223372036854775807 f64 NN\ntarget sm_90",
        &["te.limit", "te.extent"],
    );
    refused("vec_add 8\ntarget sm_90\nsplit i 1048576 1048576 1048576", &["split.1"]);
    refused("vec_add 68719476736\ntarget sm_90\nbind i threadIdx.x", &["admit.threads", "lower.extent"]);
    refused(
        "vec_add 68719476736\ntarget sm_90\ncache_read C A shared -> S\ncompute_at S i\nsplit i ? 4 -> a b\nunroll b\nunroll a",
        &["unroll.3"],
    );
}

#[test]
fn loops_that_are_written_out_are_counted_before_llvm_sees_them() {
    // 3,072 loops of eight steps each, which LLVM takes 40 s for.
    refused("gemm 3x1024x1024 f32 NN\ntarget sm_90\nunroll i\nunroll j", &["lower.operations"]);
    refused("gemm 8x1024x1024 f32 NN\ntarget sm_90\nunroll j\nunroll k", &["unroll.3", "lower.operations"]);
}

#[test]
fn products_of_copies_are_bounded() {
    // Each alone is allowed; together they would write out more than any machine holds.
    let many = |steps: &str| format!("gemm 256x256x256 f32 NN\ntarget sm_90\n{steps}");
    refused(&many("unroll i\nunroll j\nunroll k"), &["unroll.3"]);
    // Copies of copies of copies.
    let mut chain = String::from("vec_add 64\ntarget sm_90\n");
    for n in 0..40 {
        let from = if n == 0 { "A".to_string() } else { format!("S{}", n - 1) };
        chain += &format!("cache_read C {from} global -> S{n}\n");
    }
    let _ = refusal(&chain);
    // Each inlining doubles the expression.
    let mut doubling = String::from("program p\ninput A f32[8]\n");
    for n in 0..40 {
        let from = if n == 0 { "A".to_string() } else { format!("T{}", n - 1) };
        let output = if n == 39 { "output " } else { "" };
        doubling += &format!("T{n}: {output}T{n}[i 8] f32 = {from}[i]*{from}[i]\n");
    }
    doubling += "target sm_90\n";
    for n in 0..39 {
        doubling += &format!("compute_inline T{n}\n");
    }
    refused(&doubling, &["step.limit", "compute_inline.5"]);
}
