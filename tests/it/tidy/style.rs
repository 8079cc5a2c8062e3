//! How long functions are, and words that the project no longer uses: comments and messages speak the field's language.

use super::super::scan::{Source, source, sources, tokens};
use super::report;

/// Lines of a function, from `fn` to its closing brace.
const LONGEST_FUNCTION: usize = 60;

/// Functions that may be longer, and how long: most are one match with an arm for each form of a type.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[
    ("src/analysis/compiled/warp.rs", "execute", 66),
    ("src/codegen/product.rs", "call_product", 70),
    ("src/codegen/ranges.rs", "evaluate", 64),
    ("src/gemm/mma.rs", "with", 63),
    ("src/ir/cross_thread.rs", "of", 83),
    ("src/lower/data/fragments/descriptor.rs", "descriptor", 62),
    ("src/sim/mutate.rs", "stores", 68),
    ("src/sim/mutate/calls.rs", "damaged", 65),
    ("src/lower/sync/conflict.rs", "gather", 68),
    ("src/lower/sync/rings.rs", "frame", 68),
    ("src/lower/pipeline/unrolled.rs", "new", 77),
    ("src/ir/lowered/verify.rs", "stmt", 68),
    ("src/sim/fault.rs", "sentence", 75),
    ("src/sim/ptx/decode/control.rs", "control", 97),
    ("src/sim/ptx/exec.rs", "rest", 65),
    ("src/sim/ptx/exec.rs", "run_group", 79),
    ("src/sim/ptx/exec.rs", "step", 64),
    ("src/sim/ptx/poison.rs", "spread", 61),
    ("src/sim/ptx/tensor/bulk.rs", "load", 63),
    ("src/sim/ptx/tensor/fragment.rs", "shapes", 77),
    ("src/sim/report.rs", "order", 62),
    ("src/sim/warp.rs", "run", 155),
    ("src/te/text/reducers.rs", "several", 78),
];

/// Words that occur no more in comments, messages and text of sources. The second column says what to write.
const GONE: &[(&str, &str)] = &[
    ("takes the part of", "replaces"),
    ("stands in line", "is ordered after"),
    ("crooked", "unaligned"),
    ("what others write", "which threads write what"),
    ("by what suits", "the rule of the choice"),
    ("cpu machine", "simulator"),
    ("certificate", "analysis or cost report"),
    ("the ring of integers", "integer mode"),
    ("sums are emptied", "the epilogue"),
    ("emptied", "the epilogue"),
];

/// Words on their way out: how often they may still occur. The numbers only fall.
const FALLING: &[(&str, usize, &str)] = &[
    ("at hand", 14, "available"),
    ("certificates", 4, "cost reports"),
    ("in turns", 11, "ping-pong"),
    ("in vain", 2, "what does not happen"),
    ("lies", 79, "is"),
    ("neighbours", 40, "programmatic dependent launch, where that is meant"),
    ("nobody", 42, "which thread, warp or user does not"),
    ("second-level cache", 16, "L2"),
    ("side by side", 32, "cooperative, where warpgroups are meant"),
    ("slots", 146, "stages of a ring"),
    ("somebody", 13, "which thread, warp or user does"),
    ("stand in line", 2, "are ordered after"),
    ("stands", 179, "is"),
    ("sums leave", 10, "the epilogue, the epilogue store"),
    ("take the part of", 4, "replace"),
    ("take turns", 16, "ping-pong"),
    ("the copy engine", 47, "TMA"),
    ("the machine", 15, "simulator, host or device"),
    ("what no role took", 6, "the producer warps"),
];

/// The functions of a text with comments and literals blanked: place, name, and lines.
fn functions(code: &str) -> Vec<(usize, &str, usize)> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    for n in 0..tokens.len().saturating_sub(1) {
        let ((at, word), (_, name)) = (tokens[n], tokens[n + 1]);
        // `fn(A) -> B` is a type.
        if word != "fn" || !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            continue;
        }
        let (mut braces, mut brackets) = (0, 0);
        for (end, token) in &tokens[n + 2..] {
            match *token {
                "(" | "[" => brackets += 1,
                ")" | "]" => brackets -= 1,
                "{" => braces += 1,
                "}" => braces -= 1,
                // A declaration without a body.
                ";" if braces == 0 && brackets == 0 => break,
                _ => {}
            }
            if *token == "}" && braces == 0 && brackets == 0 {
                found.push((at, name, code[at..*end].matches('\n').count() + 1));
                break;
            }
        }
    }
    found
}

#[test]
fn functions_are_found_with_their_lines() {
    let text = "trait T { fn declared(a: [u8; 2]); }\nfn one() {}\nfn two(f: fn(u8) -> u8) {\n    if a { b }\n}\n";
    let text = source("x.rs".into(), text.into());
    let found: Vec<_> = functions(&text.code).into_iter().map(|f| (f.1, f.2)).collect();
    assert_eq!(found, [("one", 1), ("two", 3)]);
}

/// Test modules are left out: their tables are long where they are complete.
#[test]
fn functions_stay_readable() {
    let mut faults = Vec::new();
    for s in ["src", "benches"].into_iter().flat_map(sources) {
        for (at, name, lines) in functions(&s.plain) {
            let excused = LONG_FUNCTIONS.iter().find(|long| (long.0, long.1) == (s.path.as_str(), name));
            if lines > excused.map_or(LONGEST_FUNCTION, |long| long.2) {
                faults.push(format!("{}:{}: {name} has {lines} lines", s.path, s.line(at)));
            }
        }
    }
    report(&faults);
}

/// The comments and literals of a source: what the code has as spaces. Lower case, with line breaks and comment marks as spaces, so
/// that a phrase is found across lines.
fn words(s: &Source) -> String {
    let text: String =
        s.text.char_indices().map(|(at, c)| if s.code.as_bytes().get(at) == Some(&b' ') { c } else { ' ' }).collect();
    let words = text.split(|c: char| c.is_whitespace() || c == '/' || c == '!').filter(|w| !w.is_empty());
    format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase())
}

/// How often a phrase occurs, as whole words.
fn count(text: &str, phrase: &str) -> usize {
    let edge = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let whole = |at: &usize| edge(text[..*at].chars().next_back()) && edge(text[at + phrase.len()..].chars().next());
    text.match_indices(phrase).map(|m| m.0).filter(whole).count()
}

/// Sources whose text is the project's own; this file lists the words.
fn texts() -> Vec<(String, String)> {
    let all = ["src", "tests", "benches"].into_iter().flat_map(sources);
    all.filter(|s| !s.path.ends_with("tidy/style.rs")).map(|s| (s.path.clone(), words(&s))).collect()
}

#[test]
fn phrases_are_counted_in_comments_and_messages() {
    let text = "// Sums\n// leave here.\nlet leave = \"sums leave\"; // assume sums_leave\n";
    assert_eq!(count(&words(&source("x.rs".into(), text.into())), "sums leave"), 2);
}

#[test]
fn words_that_are_gone_stay_gone() {
    let mut faults = Vec::new();
    for (path, text) in texts() {
        let used = GONE.iter().filter(|(phrase, _)| count(&text, phrase) > 0);
        faults.extend(used.map(|(phrase, better)| format!("{path}: \"{phrase}\": write {better}")));
    }
    report(&faults);
}

#[test]
fn words_on_their_way_out_become_fewer() {
    let texts = texts();
    let mut faults = Vec::new();
    for (phrase, most, better) in FALLING {
        let found: usize = texts.iter().map(|(_, text)| count(text, phrase)).sum();
        if found > *most {
            faults.push(format!("\"{phrase}\" occurs {found} times, and {most} are left: write {better}"));
        }
    }
    report(&faults);
}
