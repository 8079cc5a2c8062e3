//! Text cases and goldens. Both rewrite themselves: `WARPLOOM_BLESS=1 cargo test --test it cases`.
//!
//! - Every schedule under `examples/` parses back, replays, and matches `tests/goldens/NAME/`: its text, the program after
//!   its steps, the lowered program, its PTX for the chip it names, and for every chip what its PTX consists of.
//! - Every file under `tests/cases/` holds schedules, each followed by a line `---- ir`, `---- lowered`, `---- ptx`,
//!   `---- choice`, `---- cost` or `---- error` and the text that comes of it; `====` lines stand between cases. A choice is what was
//!   chosen for the steps that leave a choice to the compiler.

use crate::convolutions;
use crate::sample::{commit, drawn, everything};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use warploom::ir::print;
use warploom::loom::Schedule;
use warploom::lower::lower;
use warploom::target::Target;
use warploom::te::{Known, operations};
use warploom::validate::smaller;
use warploom::{Error, Fault, Result};

/// The examples that `lower` cannot realise yet: it must say which of their placements it cannot.
const BEYOND_LOWERING: [&str; 0] = [];

/// The examples whose cost reports are goldens.
const COSTED: [&str; 4] = ["gpu_v3", "mlc_shared", "window_sum_shared", "worked_example"];

/// The repository: where it was when the test was built, or, for a binary carried to another machine, the folder at hand.
fn root() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    if built.exists() { built } else { PathBuf::from(".") }
}

fn blessing() -> bool {
    std::env::var_os("WARPLOOM_BLESS").is_some_and(|v| v == "1")
}

/// The files of a folder with an extension, sorted; there must be some.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut out: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    out.retain(|p| p.extension().is_some_and(|e| e == extension));
    out.sort();
    assert!(!out.is_empty(), "no .{extension} file in {folder}");
    out
}

/// Every example: name and text.
pub fn examples() -> Vec<(String, String)> {
    let name = |p: &Path| p.file_stem().unwrap().to_string_lossy().into_owned();
    files("examples", "loom").iter().map(|p| (name(p), fs::read_to_string(p).unwrap())).collect()
}

/// Every example that compiles.
pub fn compiling_examples() -> impl Iterator<Item = (String, Schedule)> {
    let keep = |(name, text): (String, String)| {
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        (!BEYOND_LOWERING.contains(&name.as_str())).then_some((name, schedule))
    };
    examples().into_iter().filter_map(keep)
}

/// An example whose program has no size of its own to change, at sizes that the simulator runs in a moment.
pub fn small_example(name: &str, schedule: &Schedule) -> Schedule {
    if let Some(small) = convolutions::small(name, schedule) {
        return small;
    }
    let moment = |s: &Schedule| operations(&s.program) < 2e6;
    let runs = |s: &Schedule| moment(s) && s.scheduled().is_ok_and(|f| lower(&f, &s.target).is_ok());
    if moment(schedule) {
        return schedule.clone();
    }
    // The largest of the small ones: several blocks, several rounds of each loop.
    smaller(schedule).into_iter().rev().find(runs).unwrap_or_else(|| schedule.clone())
}

/// A depth of a small product that the steps of instructions divide: twice as much for 4-bit integers, and for bytes in whole panels of a
/// swizzle; eight times for single bits.
pub fn depth(schedule: &Schedule) -> i64 {
    let panels = schedule.steps.iter().any(|s| s.to_string().contains(" tma"));
    let small = schedule.program.buffers.iter().any(|b| b.dtype.bits() < if panels { 9 } else { 8 });
    let bits = schedule.program.buffers.iter().any(|b| b.dtype.bits() == 1);
    let depth = match (bits, small) {
        (true, _) => 512,
        (_, true) => 128,
        _ => 64,
    };
    whole_blocks(schedule, depth)
}

/// So many terms, or those of whole blocks of scales where the product has them.
fn whole_blocks(schedule: &Schedule, k: i64) -> i64 {
    match Known::of(&schedule.program) {
        Some(Known::Gemm(spec)) if spec.block_scales => (k as u64).next_multiple_of(128) as i64,
        _ => k,
    }
}

/// The size of a small product, or a larger one where the schedule has instructions whose tiles that does not fill.
pub fn product_size(schedule: &Schedule, small: [i64; 3]) -> [i64; 3] {
    let has = |word: &str| schedule.steps.iter().any(|s| s.to_string().contains(word));
    let [m, n, k] = match (has("tensorize "), has("pipeline ")) {
        (true, false) => [128, 128, depth(schedule)],
        // A ring of three slots goes round, and ends in its middle.
        (true, true) => [128, 128, whole_blocks(schedule, 160)],
        _ => small,
    };
    // Tiles of two warpgroups, two blocks of a cluster, and rows of whole boxes.
    let [m, n, k] = if has(" cluster") && has(" tma") { [256, n, 256] } else { [m, n, k] };
    // Where a block walks several tiles there are several.
    if has(" persistent") { [m, n.max(256), k] } else { [m, n, k] }
}

/// Collects what differs, so that one run shows all.
#[derive(Default)]
struct Goldens {
    differing: Vec<String>,
}

impl Goldens {
    fn check(&mut self, path: &Path, found: &str) {
        if blessing() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, found).unwrap();
            return;
        }
        let wanted = fs::read_to_string(path).unwrap_or_default();
        if wanted != found {
            self.differing.push(format!("{}: {}", path.display(), first_difference(&wanted, found)));
        }
    }

    /// A file with a part for each chip, which begins with the chip's name. The parts of the chosen chips are made and compared.
    fn check_chips(
        &mut self,
        path: &Path,
        chips: &[Target],
        chosen: impl Fn(&Target) -> bool,
        make: impl Fn(&Target) -> String,
    ) {
        let wanted = fs::read_to_string(path).unwrap_or_default();
        let parts = wanted.split_inclusive('\n').fold(Vec::<String>::new(), |mut parts, line| {
            match parts.last_mut() {
                Some(last) if !line.starts_with("sm_") => last.push_str(line),
                _ => parts.push(line.to_string()),
            }
            parts
        });
        let part = |chip: &Target| {
            let known = parts.iter().find(|p| p.split([':', '\n']).next() == Some(chip.name));
            let skipped = !blessing() && !chosen(chip);
            known.filter(|_| skipped).cloned().unwrap_or_else(|| make(chip))
        };
        let found: String = chips.iter().map(part).collect();
        self.check(path, &found);
    }

    fn finish(self) {
        let advice = "if the new text is right: WARPLOOM_BLESS=1 cargo test --test it cases";
        assert!(self.differing.is_empty(), "{}\n{advice}", self.differing.join("\n"));
    }
}

/// Holds the part of a file of `tests/goldens/` for the chip that this commit draws against what is made.
pub fn golden_of_chips(name: &str, chips: &[Target], make: impl Fn(&Target) -> String) {
    let mut goldens = Goldens::default();
    let one = chips[(commit() as usize + name.len()) % chips.len()];
    let chosen = |chip: &Target| *chip == one || everything();
    goldens.check_chips(&root().join("tests/goldens").join(name), chips, chosen, make);
    goldens.finish();
}

/// Holds a text against a file of `tests/goldens/`.
pub fn golden(name: &str, found: &str) {
    let mut goldens = Goldens::default();
    goldens.check(&root().join("tests/goldens").join(name), found);
    goldens.finish();
}

fn first_difference(wanted: &str, found: &str) -> String {
    let (mut w, mut f) = (wanted.lines(), found.lines());
    for n in 1.. {
        match (w.next(), f.next()) {
            (None, None) => break,
            (w, f) if w != f => {
                return format!("line {n}\n  wanted: {}\n  found:  {}", w.unwrap_or("(end)"), f.unwrap_or("(end)"));
            }
            _ => {}
        }
    }
    "only line ends differ".to_string()
}

#[test]
fn examples_parse_back_and_replay() {
    for (name, text) in examples() {
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let printed = schedule.to_string();
        let again = Schedule::parse(&printed).unwrap_or_else(|e| panic!("{name}, printed:\n{printed}\n{e}"));
        assert_eq!(again, schedule, "{name}");
        assert_eq!(again.to_string(), printed, "{name}");
        let (one, two) = (schedule.scheduled(), again.scheduled());
        assert_eq!(one.unwrap_or_else(|e| panic!("{name}: {e}")), two.unwrap(), "{name}");
    }
}

/// What a step prints names everything that it made: with all defaults written out it yields the same program.
#[test]
fn examples_match_their_goldens() {
    let mut goldens = Goldens::default();
    for (name, text) in examples() {
        let folder = root().join("tests/goldens").join(&name);
        let schedule = Schedule::parse(&text).unwrap();
        goldens.check(&folder.join("schedule.loom"), &schedule.to_string());
        let func = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
        goldens.check(&folder.join("scheduled.txt"), &print::func(&func));
        let lowered = warploom::lower::lower(&func, &schedule.target).map(|l| warploom::lower::print(&l));
        assert_eq!(lowered.is_err(), BEYOND_LOWERING.contains(&name.as_str()), "{name}: {lowered:?}");
        goldens.check(&folder.join("lowered.txt"), &lowered.unwrap_or_else(|e| format!("{e}\n")));
        if COSTED.contains(&name.as_str()) {
            let lowered = warploom::lower::lower(&func, &schedule.target).unwrap();
            let cost = warploom::analysis::cost_report(&lowered, &schedule.target);
            let text = warploom::analysis::print(&cost, &warploom::lower::print(&lowered));
            goldens.check(&folder.join("cost.txt"), &text);
        }
    }
    goldens.finish();
}

/// Half of the examples for their own chips, and a ninth for each chip, as the commit draws them. The first is tried for its chip in every run.
#[test]
fn ptx_matches_its_goldens() {
    let mut goldens = Goldens::default();
    let version = root().join("tests/goldens/llvm.txt");
    let same_llvm = fs::read_to_string(&version).is_ok_and(|v| v.trim() == warploom::codegen::llvm_version());
    if blessing() {
        goldens.check(&version, &format!("{}\n", warploom::codegen::llvm_version()));
    }
    for (n, (name, schedule)) in compiling_examples().enumerate() {
        let folder = root().join("tests/goldens").join(&name);
        if blessing() || n == 0 || drawn(&format!("ptx of {name}"), 2) {
            let own = warploom::compile(&schedule).unwrap_or_else(|e| panic!("{name}: {e}"));
            let path = folder.join(format!("{}.ptx", schedule.target.name));
            // Another LLVM 19 may choose other registers; what the PTX consists of is compared in any case.
            if blessing() || same_llvm {
                goldens.check(&path, &own.text);
            }
        }
        let chosen = |chip: &Target| drawn(&format!("{name} {chip}"), 9);
        goldens.check_chips(&folder.join("chips.txt"), &Target::ALL, chosen, |target| {
            let text = match warploom::compile(&schedule.clone().for_target(*target)) {
                Ok(kernels) => consists_of(&kernels.text),
                // Which chips lack what a schedule asks for belongs to the golden; the one that it names does not.
                Err(e) if e.fault() == Fault::Chip && *target != schedule.target => format!("  {}\n", e.message()),
                Err(e) => panic!("{name}, {target}: {e}"),
            };
            format!("{target}\n{text}\n")
        });
    }
    goldens.finish();
}

/// Directives, and how often each memory access, barrier, fused multiply-add and instruction of a warp occurs.
pub fn consists_of(ptx: &str) -> String {
    let mut out = String::new();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for line in ptx.lines().map(str::trim) {
        let first = line.split_whitespace().next().unwrap_or("");
        if [".version", ".target", ".maxntid", ".reqntid", ".minnctapersm"].contains(&first) {
            let _ = writeln!(out, "  {line}");
        }
        // The operation stands behind a predicate, if there is one.
        let operation = line.split_whitespace().find(|w| !w.starts_with('@')).unwrap_or("").trim_end_matches(';');
        let counted = [
            "ld.",
            "st.",
            "bar.",
            "fma.",
            "cp.",
            "barrier.",
            "red.",
            "atom.",
            "mma.",
            "ldmatrix.",
            "stmatrix.",
            "wmma.",
        ];
        if counted.iter().any(|c| operation.starts_with(c)) && !operation.starts_with("ld.param") {
            *counts.entry(operation).or_default() += 1;
        }
    }
    for (word, n) in counts {
        let _ = writeln!(out, "  {n} {word}");
    }
    out
}

/// A case: its schedule, and what is asked of it. The answer is compared as part of the file.
struct Case<'a> {
    schedule: &'a str,
    kind: &'a str,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let split = |case| {
        let (schedule, rest): (&str, &str) =
            str::split_once(case, "---- ").unwrap_or_else(|| panic!("no `---- ` line in\n{case}"));
        let kind = rest.lines().next().unwrap_or("");
        Case { schedule, kind }
    };
    text.split("====\n").map(split).collect()
}

fn answer(schedule: &str, kind: &str) -> Result<String> {
    let schedule = Schedule::parse(schedule)?;
    if kind == "choice" {
        let chosen = schedule.resolved()?.steps;
        let remark = |s: &warploom::Step| Some(format!("{s}  # {}\n", s.remark()?));
        return Ok(chosen.iter().filter_map(remark).collect());
    }
    let func = schedule.scheduled()?;
    if kind == "ir" {
        return Ok(print::func(&func));
    }
    let lowered = warploom::lower::lower(&func, &schedule.target)?;
    if kind == "lowered" {
        return Ok(warploom::lower::print(&lowered));
    }
    let kernels = warploom::codegen::compile(&lowered, &schedule.target)?;
    if kind == "cost" {
        let cost = warploom::analysis::cost_report(&lowered, &schedule.target).compiled(&kernels);
        return Ok(warploom::analysis::print(&cost, &warploom::lower::print(&lowered)));
    }
    Ok(consists_of(&kernels.text))
}

/// The error as the user sees it, with the words beside each underline.
fn shown(error: &Error) -> String {
    let mut out = format!("{error}\n");
    for l in error.labels() {
        let text = error.source_text().unwrap_or("").get(l.span.clone()).unwrap_or("(outside the text)");
        let _ = writeln!(out, "  at `{}`: {}", text.trim(), l.message);
    }
    out
}

#[test]
fn cases_come_out_as_written() {
    let mut goldens = Goldens::default();
    for path in files("tests/cases", "txt") {
        let text = fs::read_to_string(&path).unwrap();
        let mut parts = Vec::new();
        for case in cases(&text) {
            let outcome = answer(case.schedule, case.kind);
            assert!(
                ["ir", "lowered", "ptx", "choice", "cost", "error"].contains(&case.kind),
                "{}: ---- {}",
                path.display(),
                case.kind
            );
            let found = match (outcome, case.kind) {
                (Err(error), _) => ("error", shown(&error)),
                (Ok(_), "error") => ("error", "(nothing is refused)\n".to_string()),
                (Ok(text), kind) => (kind, text),
            };
            parts.push(format!("{}---- {}\n{}", case.schedule, found.0, found.1));
            if !blessing() && found.0 != case.kind {
                goldens.differing.push(format!("{}: refused:\n{}{}", path.display(), case.schedule, found.1));
            }
        }
        goldens.check(&path, &parts.join("====\n"));
    }
    goldens.finish();
}
