//! The tree holds its own rules: which module uses which, heads, sizes, and what occurs nowhere.
//!
//! Sources are scanned with comments and literals blanked out, so that a rule speaks of code alone; test modules are
//! left out of the layer table, because a test may build its input with any room.

mod style;

use super::scan::{files, relative, root, sources, tokens, uses};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Used by every room, and by each other.
const LEAVES: [&str; 4] = ["error", "dtype", "array", "size"];

/// A room and the rooms besides the leaves that it may use. The map of src/ARCHITECTURE.md in one table; `cli` and `lib` use all.
/// `lowered` is src/ir/lowered: the Lowered program as data.
const LAYERS: [(&str, &[&str]); 31] = [
    ("error", &[]),
    ("dtype", &[]),
    ("array", &[]),
    ("size", &[]),
    ("index", &[]),
    ("ir", &["index"]),
    ("te", &["ir"]),
    ("target", &[]),
    ("intrin", &["ir", "te", "target"]),
    ("lowered", &["index", "ir", "intrin", "target"]),
    ("schedule", &["index", "ir", "intrin"]),
    ("auto", &["ir", "intrin", "schedule", "target"]),
    ("loom", &["ir", "te", "schedule", "auto", "target"]),
    ("lower", &["index", "ir", "lowered", "intrin", "target"]),
    ("gemm", &["ir", "te", "intrin", "schedule", "target", "loom", "lower"]),
    ("rows", &["ir", "te", "schedule", "loom", "target"]),
    ("sim", &["ir", "lowered", "intrin", "kernel"]),
    ("kernel", &["target"]),
    ("artifact", &["kernel"]),
    ("assemble", &["kernel"]),
    ("analysis", &["ir", "lowered", "intrin", "target", "sim", "kernel", "assemble"]),
    ("codegen", &["ir", "lowered", "intrin", "target", "kernel"]),
    ("validate", &["ir", "te", "schedule", "loom", "lower", "sim", "kernel", "codegen", "reference"]),
    ("build", &["ir", "target", "schedule", "loom", "lower", "kernel", "artifact", "assemble", "analysis", "codegen"]),
    ("runtime", &["kernel", "artifact", "target"]),
    ("reference", &["ir"]),
    ("measure", &["te", "target", "kernel", "reference", "sim", "runtime"]),
    (
        "tune",
        &[
            "ir",
            "te",
            "target",
            "loom",
            "lower",
            "gemm",
            "sim",
            "kernel",
            "artifact",
            "analysis",
            "codegen",
            "validate",
            "runtime",
            "reference",
            "measure",
        ],
    ),
    ("page", &["ir", "te", "intrin", "loom", "lower", "sim", "kernel", "assemble", "analysis", "codegen", "validate"]),
    ("cli", &["*"]),
    ("python", &["*"]),
];

/// Foreign crates with one home each.
const HOMES: [(&str, &[&str]); 12] = [
    ("inkwell", &["src/codegen/"]),
    ("cust", &["src/runtime/"]),
    ("libloading", &["src/runtime/", "src/measure/"]),
    ("anstream", &["src/cli/"]),
    ("anstyle", &["src/cli/"]),
    ("clap", &["src/cli/"]),
    ("signal_hook", &["src/cli/"]),
    ("indicatif", &["src/cli/"]),
    ("comfy_table", &["src/cli/"]),
    ("ariadne", &["src/cli/"]),
    ("plotters", &["src/cli/"]),
    ("thiserror", &["src/error.rs"]),
];

/// Where code may leave the checked language.
const UNSAFE: [&str; 5] = ["src/runtime/", "src/codegen/", "src/measure/library/", "src/main.rs", "src/python/src/"];

/// Lines of a file without its test modules.
const LONGEST_FILE: usize = 700;

/// The room that a name under the root belongs to: itself, or the leaf that it is re-exported from.
fn room_of(name: &str) -> &str {
    match name {
        "Error" | "Result" => "error",
        "DType" => "dtype",
        "Array" => "array",
        room => room,
    }
}

fn may_use(room: &str, used: &str) -> bool {
    let allowed = LAYERS.iter().find(|l| l.0 == room).map_or(&[][..], |l| l.1);
    room == used || LEAVES.contains(&used) || allowed.contains(&used) || allowed == ["*"]
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn rooms_use_only_the_rooms_below_them() {
    let mut faults = Vec::new();
    for s in sources("src").iter().filter(|s| !matches!(s.room(), "lib" | "main")) {
        for (at, name) in uses(s) {
            let used = room_of(&name);
            if !may_use(s.room(), used) {
                faults.push(format!("{}:{}: {} may not use {used}", s.path, s.line(at), s.room()));
            }
        }
    }
    report(&faults);
}

#[test]
fn every_room_stands_in_the_table() {
    let rooms = sources("src").iter().map(|s| s.room().to_string()).collect::<std::collections::BTreeSet<_>>();
    let unknown: Vec<_> =
        rooms.into_iter().filter(|r| r != "lib" && r != "main" && !LAYERS.iter().any(|l| l.0 == r)).collect();
    assert!(unknown.is_empty(), "rooms without a row in LAYERS: {unknown:?}");
}

/// A cycle would make the table meaningless.
#[test]
fn the_table_has_no_cycle() {
    for (i, (room, allowed)) in LAYERS.iter().enumerate() {
        for below in allowed.iter().filter(|b| **b != "*") {
            let at = LAYERS.iter().position(|l| l.0 == *below);
            let order = ["kernel", "reference"].contains(below) || at.is_some_and(|at| at < i);
            assert!(order, "{room} uses {below}, which is after it");
        }
    }
}

/// The files of the command line can be read one after the other, each after those that it uses.
#[test]
fn commands_do_not_lean_on_each_other_in_a_circle() {
    let files: Vec<(String, String)> = sources("src/cli")
        .into_iter()
        .filter_map(|s| Some((s.path.strip_prefix("src/cli/")?.strip_suffix(".rs")?.to_string(), s.code)))
        .filter(|(name, _)| name != "mod")
        .collect();
    let uses = |code: &str, name: &str| {
        code.split("super::").skip(1).any(|after| {
            let group = if after.starts_with('{') { after.split(';').next().unwrap_or("") } else { "" };
            let first = after.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            first == Some(name) || group.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        })
    };
    let mut left: Vec<&(String, String)> = files.iter().collect();
    while let Some(at) = left.iter().position(|(_, code)| !left.iter().any(|(other, _)| uses(code, other))) {
        left.remove(at);
    }
    let left: Vec<&String> = left.into_iter().map(|f| &f.0).collect();
    assert!(files.len() > 10 && left.is_empty(), "these files use each other in a circle: {left:?}");
}

#[test]
fn foreign_crates_have_one_home() {
    let mut faults = Vec::new();
    for s in sources("src") {
        for (at, word) in tokens(&s.code) {
            let home = HOMES.iter().find(|h| h.0 == word && s.code[at + word.len()..].starts_with("::"));
            if let Some((name, homes)) = home.filter(|h| !h.1.iter().any(|h| s.path.starts_with(h))) {
                faults.push(format!("{}:{}: {name} belongs to {homes:?}", s.path, s.line(at)));
            }
        }
    }
    report(&faults);
}

#[test]
fn unsafe_stands_only_where_it_must() {
    let mut faults = Vec::new();
    for s in sources("src").iter().filter(|s| !UNSAFE.iter().any(|u| s.path.starts_with(u))) {
        for (at, _) in tokens(&s.code).into_iter().filter(|t| t.1 == "unsafe") {
            faults.push(format!("{}:{}: unsafe", s.path, s.line(at)));
        }
    }
    report(&faults);
}

#[test]
fn every_file_opens_with_what_it_promises() {
    let all = ["src", "tests", "benches"].into_iter().flat_map(sources);
    let bare: Vec<_> = all.filter(|s| s.path != "src/lib.rs" && !s.text.starts_with("//! ")).map(|s| s.path).collect();
    assert!(bare.is_empty(), "no //! head: {bare:?}");
}

#[test]
fn files_stay_readable() {
    let mut faults = Vec::new();
    for s in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        // Lines that only the test modules have do not count.
        let tests = s.code.lines().zip(s.plain.lines()).filter(|(code, plain)| code.trim() != plain.trim()).count();
        let lines = s.text.lines().count() - tests;
        if lines > LONGEST_FILE {
            faults.push(format!("{}: {lines} lines", s.path));
        }
    }
    report(&faults);
}

/// Only the command line talks to the terminal and reads the environment; besides it, what looks for a library, and what a build
/// script calls, which talks to cargo.
#[test]
fn printing_and_the_environment_belong_to_the_command_line() {
    let mut faults = Vec::new();
    for s in sources("src").iter().filter(|s| !matches!(s.room(), "cli" | "main" | "build")) {
        let tokens = tokens(&s.plain);
        for pair in tokens.windows(2) {
            let (at, word) = pair[0];
            let printing = matches!(word, "print" | "println" | "eprint" | "eprintln" | "dbg") && pair[1].1 == "!";
            let reading = s.plain[at..].starts_with("env::var") && !s.path.starts_with("src/measure/library/");
            if printing || reading {
                faults.push(format!("{}:{}: {word}", s.path, s.line(at)));
            }
        }
    }
    report(&faults);
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["todo", "unimplemented", "should_panic"];
    let mark = ["FIX", "ME"].concat();
    let mut faults = Vec::new();
    for s in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        for (at, word) in tokens(&s.code) {
            let ignored = word == "ignore" && s.code[..at].trim_end().ends_with("#[");
            if words.contains(&word) || ignored {
                faults.push(format!("{}:{}: {word}", s.path, s.line(at)));
            }
        }
        if s.text.contains(&mark) {
            faults.push(format!("{}: {mark}", s.path));
        }
    }
    report(&faults);
}

/// The compiler knows no matrix product and no instruction by name: rows say what an instruction is.
#[test]
fn lowering_knows_no_algorithm_and_no_instruction() {
    let names = ["gemm", "matmul", "wgmma", "wmma", "ldmatrix", "stmatrix", "mma"];
    let mut faults = Vec::new();
    for s in sources("src/lower") {
        for (at, word) in tokens(&s.plain) {
            if word.split('_').any(|w| names.contains(&w.to_lowercase().as_str())) {
                faults.push(format!("{}:{}: {word}", s.path, s.line(at)));
            }
        }
    }
    report(&faults);
}

/// Rooms that a user of the library calls first: what returns an error says which.
#[test]
fn what_can_fail_says_how() {
    let rooms = ["src/array.rs", "src/loom.rs", "src/sim/mod.rs", "src/reference/mod.rs", "src/rows.rs"];
    let programs = ["src/te/build.rs", "src/te/known.rs", "src/te/program.rs", "src/te/text.rs"];
    let more = ["src/lower/run.rs", "src/gemm/mod.rs", "src/gemm/candidates.rs", "src/gemm/recommend.rs"];
    let mut devices = Vec::new();
    files(&root().join("src/runtime"), &|p: &Path| p.extension().is_some_and(|e| e == "rs"), &mut devices);
    devices.retain(|p| p.parent().is_some_and(|folder| folder.ends_with("runtime")));
    let devices: Vec<String> = devices.iter().map(|p| relative(p)).collect();
    let (mut faults, mut found) = (Vec::new(), 0);
    for path in rooms.into_iter().chain(programs).chain(more).chain(devices.iter().map(String::as_str)) {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub fn ")) {
            let head: String = lines[n..].iter().take_while(|l| !l.starts_with('}')).take(8).copied().collect();
            if !head.split('{').next().is_some_and(|head| head.contains("-> Result<")) {
                continue;
            }
            found += 1;
            let documented = lines[..n].iter().rev().take_while(|l| l.starts_with("///") || l.starts_with("#["));
            if !documented.into_iter().any(|l| *l == "/// # Errors") {
                faults.push(format!("{path}:{}: {line}", n + 1));
            }
        }
    }
    assert!(found > 60, "{found}");
    report(&faults);
}

/// A path of somebody's machine in the tree helps nobody else.
#[test]
fn the_tree_names_no_machine() {
    let (mut paths, mut faults) = (Vec::new(), Vec::new());
    let text =
        |p: &Path| p.extension().is_some_and(|e| ["rs", "md", "loom", "toml", "txt", "sh"].iter().any(|t| e == *t));
    for folder in ["src", "tests", "benches", "examples", ".ci"] {
        files(&root().join(folder), &text, &mut paths);
    }
    paths.extend([root().join("README.md"), root().join("Cargo.toml")]);
    let homes = [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat(), ["/ho", "me/"].concat()];
    // Nor does a number in a list that is not in the tree.
    let lists = [["Seed", " 00"].concat(), ["seed", " 00"].concat(), ["DES", "IGN "].concat()];
    let names: Vec<String> = homes.into_iter().chain(lists).collect();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_default();
        faults.extend(names.iter().filter(|h| text.contains(*h)).map(|h| format!("{}: {h}", relative(&path))));
    }
    report(&faults);
}

/// The packages of a section of a manifest, as code names them.
fn packages<'a>(manifest: &'a str, section: &'a str) -> impl Iterator<Item = String> + 'a {
    let lines = manifest.lines().skip_while(move |line| line.trim() != section).skip(1);
    let entries = lines.take_while(|line| !line.starts_with('['));
    entries
        .filter_map(|line| Some(line.split_once('=')?.0.trim().replace('-', "_")))
        .filter(|name| !name.starts_with('#'))
}

/// The packages of a section that no path in this code begins with.
fn unused(manifest: &str, section: &str, code: &[&str]) -> Vec<String> {
    let begins = |code: &str, name: &str| {
        tokens(code).iter().any(|(at, word)| *word == name && code[at + word.len()..].starts_with("::"))
    };
    packages(manifest, section).filter(|name| !code.iter().any(|code| begins(code, name))).collect()
}

/// A declared package is used: a dependency by code of the library or the command line, a dev-dependency by tests or benches.
#[test]
fn every_declared_package_is_used() {
    let made_up = "[dependencies]\n# a = \"1\"\nhalf-float = \"2\"\nidle = { version = \"1\" }\n\n[dev-dependencies]\nbench = \"1\"\n";
    assert_eq!(unused(made_up, "[dependencies]", &["use half_float::f16; fn idle() {}"]), ["idle"]);
    assert_eq!(unused(made_up, "[dev-dependencies]", &["let bench = 1;"]), ["bench"]);

    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let product = sources("src");
    let product: Vec<&str> = product.iter().map(|s| s.plain.as_str()).collect();
    let equipment: Vec<_> = ["src", "tests", "benches"].into_iter().flat_map(sources).collect();
    let equipment: Vec<&str> = equipment.iter().map(|s| s.code.as_str()).collect();
    let idle = [unused(&manifest, "[dependencies]", &product), unused(&manifest, "[dev-dependencies]", &equipment)];
    assert!(idle.iter().all(Vec::is_empty), "declared and unused: {idle:?}");
    let declared: Vec<String> =
        ["[dependencies]", "[dev-dependencies]"].into_iter().flat_map(|section| packages(&manifest, section)).collect();
    // The packages that the design names.
    for name in ["approx", "bitflags", "criterion", "cust", "inkwell", "thiserror"] {
        assert!(declared.iter().any(|d| d == name), "{name} is not declared");
    }
}

/// The rows of the table in `src/runtime/mod.rs`: a call, and by whom.
fn driver_calls() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("src/runtime/mod.rs")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | `cu"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()).collect::<Vec<_>>();
    let names =
        |cell: &str| format!("`cu{cell}").split('`').map(str::to_string).filter(|n| n.starts_with("cu")).collect();
    cells
        .iter()
        .flat_map(|row| {
            let names: Vec<String> = names(row[0]);
            names.into_iter().map(|name| (name, row[1].to_string()))
        })
        .collect()
}

/// The table says which driver calls cust makes, which are made by its bindings, and which are declared by hand. All but the last are
/// guarded.
#[test]
fn the_table_of_driver_calls_is_true() {
    let (table, sources) = (driver_calls(), sources("src/runtime"));
    let by = |who: &str| -> BTreeSet<String> {
        table.iter().filter(|row| row.1.split(", ").any(|by| by == who)).map(|row| row.0.clone()).collect()
    };
    let is_call = |word: &str| word.starts_with("cu") && word[2..].starts_with(|c: char| c.is_ascii_uppercase());
    let mut guarded = BTreeSet::new();
    let (mut bindings, mut by_hand) = (BTreeSet::new(), BTreeSet::new());
    for s in sources.iter().filter(|s| !s.path.ends_with("/names.rs")) {
        let words = tokens(&s.plain);
        for (n, (at, word)) in words.iter().enumerate().filter(|(_, (_, word))| is_call(word)) {
            let call = (*word).to_string();
            if s.plain[..*at].ends_with("api::") {
                bindings.insert(call);
            } else if n > 0 && words[n - 1].1.starts_with("take") {
                guarded.insert(call);
            }
        }
        // Literals of code, which `plain` has as spaces; those of test modules are in `code` no more than in `plain`.
        let text: String =
            s.text.lines().zip(s.plain.lines()).filter(|(_, plain)| !plain.trim().is_empty()).map(|l| l.0).collect();
        by_hand.extend(text.split('"').filter(|part| is_call(part) && *part != "cuInit").map(str::to_string));
    }
    assert_eq!(by("`cust::sys`"), bindings);
    assert_eq!(by("by hand"), by_hand);
    assert_eq!(&by("cust") | &bindings, guarded);
}
