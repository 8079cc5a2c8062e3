//! Examples and cases with bytes, words, lines and numbers exchanged: whatever becomes of a text, it ends in 2 GiB of address space
//! and soon, in a program or in an error.
//!
//! The texts are compiled and run in a process of their own under `ulimit -v`, so that an abort or a signal ends that process
//! alone. A run tries 150 texts of a fixed seed. `WARPLOOM_HOSTILE=10000` tries so many, and demands that none takes longer than
//! [`LONGEST`]; what was counted stands in `target/tmp/hostile.txt`.

use crate::cases;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};
use warploom::reference::{self, Sample};
use warploom::sim::{self, Limits, Mode, Options};
use warploom::{Array, Error, Schedule, analysis, codegen, ir, lower, te};

/// Texts of an ordinary run.
const FEW: usize = 150;
/// KiB of address space: `ulimit -v`.
const KIB: usize = 2 << 20;
/// What a text may take where nothing else runs.
const LONGEST: Duration = Duration::from_secs(10);
/// Operations up to which a program runs.
const RUN: f64 = 1e6;
/// Tells the process that it is the one with the limit, and how many texts it is to try.
const WORKER: &str = "WARPLOOM_HOSTILE_WORKER";

/// Numbers at which something ends.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "16",
    "31",
    "32",
    "33",
    "63",
    "127",
    "1000",
    "1024",
    "4096",
    "60000",
    "65535",
    "65536",
    "2147483647",
    "4294967296",
    "68719476736",
    "1099511627776",
    "9223372036854775807",
    "99999999999999999999",
];

fn texts() -> Vec<String> {
    let mut out: Vec<String> = cases::examples().into_iter().map(|(_, text)| text).collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        out.extend(text.split("\n====\n").map(|case| case.split("\n---- ").next().unwrap_or("").to_string()));
    }
    out
}

/// A text with one to four of its parts exchanged.
fn mutated(texts: &[String], random: &mut fastrand::Rng) -> String {
    let mut text = texts[random.usize(..texts.len())].clone();
    for _ in 0..random.usize(1..=4) {
        text = match random.u32(..8) {
            0 => byte(&text, random),
            1 | 2 => line(&text, &texts[random.usize(..texts.len())], random),
            3..6 => number(&text, random),
            _ => word(&text, random),
        };
    }
    text
}

fn byte(text: &str, random: &mut fastrand::Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let at = random.usize(..bytes.len().max(1)).min(bytes.len());
    match random.u32(..3) {
        0 if at < bytes.len() => bytes[at] = random.u8(32..127),
        1 if at < bytes.len() => drop(bytes.remove(at)),
        _ => bytes.insert(at, random.u8(9..127)),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn line(text: &str, other: &str, random: &mut fastrand::Rng) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let others: Vec<&str> = other.lines().collect();
    if lines.is_empty() || others.is_empty() {
        return text.to_string();
    }
    let (at, to) = (random.usize(..lines.len()), random.usize(..lines.len()));
    match random.u32(..4) {
        0 => drop(lines.remove(at)),
        1 => lines.swap(at, to),
        2 => lines.insert(to, lines[at]),
        _ => lines.insert(at, others[random.usize(..others.len())]),
    }
    lines.join("\n")
}

/// The places of words for which something holds.
fn places(text: &str, holds: impl Fn(&str) -> bool) -> Vec<(usize, usize)> {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = Vec::new();
    let mut from = 0;
    for piece in text.split_inclusive(|c| !inside(c)) {
        let word = piece.trim_end_matches(|c| !inside(c));
        if !word.is_empty() && holds(word) {
            out.push((from, from + word.len()));
        }
        from += piece.len();
    }
    out
}

fn number(text: &str, random: &mut fastrand::Rng) -> String {
    let found = places(text, |w| w.bytes().all(|b| b.is_ascii_digit()));
    let Some((from, to)) = found.get(random.usize(..found.len().max(1))) else { return text.to_string() };
    format!("{}{}{}", &text[..*from], NUMBERS[random.usize(..NUMBERS.len())], &text[*to..])
}

fn word(text: &str, random: &mut fastrand::Rng) -> String {
    let found = places(text, |_| true);
    if found.is_empty() {
        return text.to_string();
    }
    let ((from, to), (a, b)) = (found[random.usize(..found.len())], found[random.usize(..found.len())]);
    let other = text[a..b].to_string();
    match random.u32(..3) {
        0 => format!("{}{}", &text[..from], &text[to..]),
        1 => format!("{}{other} {}", &text[..from], &text[from..]),
        _ => format!("{}{other}{}", &text[..from], &text[to..]),
    }
}

/// Everything that the command line does with a text.
fn everything(text: &str) -> Result<&'static str, Error> {
    let schedule = Schedule::parse(text)?;
    let func = schedule.scheduled()?;
    let _ = ir::print::func(&func);
    let lowered = lower::lower(&func, &schedule.target)?;
    let _ = analysis::cost_report(&lowered, &schedule.target);
    codegen::compile(&lowered, &schedule.target)?;
    if te::operations(&schedule.program) > RUN {
        return Ok("compiled");
    }
    let limits = Limits { statements: 1 << 22, bytes: 256 << 20 };
    let argument = |id: &ir::BufferId| {
        let buffer = func.buffer(*id);
        let elements = ir::layout::span(buffer).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        Array::random(buffer.dtype, &[elements], 1)
    };
    let mut arguments = func.params.iter().map(argument).collect::<Result<Vec<_>, Error>>()?;
    sim::run_lowered_with(&lowered, &Options::new(Mode::Real).with_limits(limits), &mut arguments)?;
    reference::outputs(&schedule.program, &arguments, Sample::Rows { count: 64, seed: 1 })?;
    Ok("ran")
}

/// Tries so many texts; the report, and whether all ended as they must.
fn try_all(count: usize) -> (String, bool) {
    let (texts, mut random) = (texts(), fastrand::Rng::with_seed(2026));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut longest, mut panics, mut report) = ((Duration::ZERO, String::new()), 0, String::new());
    for n in 0..count {
        let text = mutated(&texts, &mut random);
        // The text that ends this process is the last that it has shown.
        println!("text {n}:\n{text}\n");
        let start = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| everything(&text)));
        if start.elapsed() > longest.0 {
            longest = (start.elapsed(), text.clone());
        }
        let class = match ended {
            Ok(Ok(what)) => what.to_string(),
            Ok(Err(e)) => format!("{:?} error", e.fault()),
            Err(_) => {
                panics += 1;
                let _ = writeln!(report, "panic:\n{text}\n");
                "panic".to_string()
            }
        };
        *counts.entry(class).or_default() += 1;
    }
    let counts = counts.iter().map(|(class, n)| format!("{class} {n}")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(report, "{count} texts under {KIB} KiB: {counts}");
    let _ = writeln!(report, "the longest took {:.2} s:\n{}", longest.0.as_secs_f64(), longest.1);
    (report, panics == 0 && (count <= FEW || longest.0 < LONGEST))
}

#[test]
fn mutated_texts_end_within_two_gibibytes() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<usize>().ok());
    if let Some(count) = number(WORKER) {
        let (report, good) = try_all(count);
        std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/hostile.txt"), &report).unwrap();
        assert!(good, "{report}");
        return;
    }
    let count = number("WARPLOOM_HOSTILE").unwrap_or(FEW);
    let out = Command::new("sh")
        .args(["-c", &format!("ulimit -v {KIB} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "hostile::mutated::mutated_texts_end_within_two_gibibytes",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(WORKER, count.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let last = said.rfind("\ntext ").map_or("", |at| &said[at..]);
    assert!(out.status.success(), "{}: {}{last}", out.status, String::from_utf8_lossy(&out.stderr));
    println!("{}", std::fs::read_to_string(concat!(env!("CARGO_TARGET_TMPDIR"), "/hostile.txt")).unwrap());
}
