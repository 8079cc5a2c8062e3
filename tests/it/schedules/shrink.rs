//! A failure made small: steps, statements and parts of expressions left out, numbers reduced, as long as it fails for the same
//! reason. A program of a builder becomes text first, so that its numbers can change one by one.

use super::attempt::Examine;
use super::check::{Case, Depth, Failure, Tally};
use super::programs::Program;
use crate::oracle;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What it says of a schedule, where a panic is a failure too.
pub fn guarded(examine: Examine, case: &Case, depth: Depth<'_>, tally: &mut Tally) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(|| examine(case, depth, tally))).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The failure that a panic is.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
    Failure { kind: "panic".into(), message }
}

/// So many smaller ones are tried at most, for at most that long.
const TRIES: usize = 3000;
const PATIENCE: Duration = Duration::from_secs(20);

/// The smallest case found that fails in the same way.
pub fn shrink(examine: Examine, case: &Case, depth: Depth<'_>) -> (Case, Failure) {
    let fails = |c: &Case| guarded(examine, c, depth, &mut Tally::default()).err();
    let Some(mut failure) = fails(case) else {
        return (case.clone(), Failure { kind: "vanished".into(), message: "it passes when it is run again".into() });
    };
    let (started, mut best, tries) = (Instant::now(), case.clone(), std::cell::Cell::new(0));
    loop {
        let more = || tries.get() < TRIES && started.elapsed() < PATIENCE;
        let smaller = candidates(&best).into_iter().take_while(|_| more()).find_map(|c| {
            tries.set(tries.get() + 1);
            let found = fails(&c).filter(|f| f.kind == failure.kind)?;
            Some((c, found))
        });
        let Some((case, found)) = smaller else { return (best, failure) };
        (best, failure) = (case, found);
    }
}

fn candidates(case: &Case) -> Vec<Case> {
    let mut out = Vec::new();
    let steps = case.steps.len();
    if steps > 3 {
        out.push(Case { steps: case.steps[..steps / 2].to_vec(), ..case.clone() });
    }
    for n in (0..steps).rev() {
        let mut without = case.clone();
        without.steps.remove(n);
        out.push(without);
    }
    for n in 0..case.program.sizes.len() {
        let size = case.program.sizes[n];
        for smaller in [size / 4, size / 2, size.saturating_sub(1)] {
            if smaller >= 1 && smaller < size {
                let mut case = case.clone();
                case.program.sizes[n] = smaller;
                out.push(case);
            }
        }
    }
    let text = case.program.text();
    let with = |template: String| Case { program: Program { template, sizes: Vec::new() }, ..case.clone() };
    if text.trim_start().starts_with("program") {
        out.extend(texts(&text).into_iter().map(with));
        for n in 0..steps {
            out.extend(numbers(&case.steps[n]).into_iter().map(|step| {
                let mut case = case.clone();
                case.steps[n] = step;
                case
            }));
        }
    } else if let Ok(func) = warploom::te::parse(&text) {
        out.push(with(warploom::te::print(&func)));
    }
    out
}

/// Smaller programs, most of them wrong.
fn texts(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for n in 1..lines.len() {
        let kept = lines.iter().enumerate().filter(|(m, _)| *m != n);
        out.push(kept.map(|(_, line)| *line).collect::<Vec<_>>().join("\n"));
    }
    for value in oracle::expressions(text) {
        parts(&value, text, &mut out);
    }
    out.extend(numbers(text));
    for ty in ["f64", "f16", "bf16", "tf32", "s8", "u8", "s32", "u32", "s64"] {
        let plain = text.replace(&format!(" {ty}["), " f32[").replace(&format!(" {ty} "), " f32 ");
        let plain = plain.replace(&format!("{ty}("), "f32(");
        if plain != text {
            out.push(plain);
        }
    }
    out
}

/// The text with an expression replaced by one of those that it is made of, or by 0.
fn parts(node: &oracle::Node, text: &str, out: &mut Vec<String>) {
    let replaced = |by: &str| format!("{}{by}{}", &text[..node.span.start], &text[node.span.end..]);
    out.extend(node.children().into_iter().map(|child| replaced(&text[child.span.clone()])));
    if !matches!(node.tree, oracle::Tree::Int(_)) {
        out.push(replaced("0"));
    }
    node.children().into_iter().for_each(|child| parts(child, text, out));
}

/// The text with smaller numbers: everywhere the same one, then one at a time.
fn numbers(text: &str) -> Vec<String> {
    let mut places = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_' || **b == b'.').count();
        if bytes[at].is_ascii_digit()
            && let Ok(n) = text[at..at + length].parse::<i64>()
        {
            places.push((at..at + length, n));
        }
        at += length.max(1);
    }
    let smaller = |n: i64| [1, n / 2, n - 1].into_iter().filter(move |m| *m < n && *m >= 0).collect::<BTreeSet<i64>>();
    let mut out = Vec::new();
    for n in places.iter().map(|p| p.1).collect::<BTreeSet<i64>>() {
        for m in smaller(n) {
            let (mut made, mut from) = (String::new(), 0);
            for (span, _) in places.iter().filter(|p| p.1 == n) {
                made += &text[from..span.start];
                made += &m.to_string();
                from = span.end;
            }
            out.push(made + &text[from..]);
        }
    }
    for (span, n) in &places {
        out.extend(smaller(*n).into_iter().map(|m| format!("{}{m}{}", &text[..span.start], &text[span.end..])));
    }
    out
}
