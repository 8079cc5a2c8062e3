//! The tree holds its own rules: which room uses which, heads, sizes, and what must stand nowhere.
//!
//! Sources are scanned with comments and literals blanked out, so that a rule speaks of code alone; test modules are
//! left out of the layer table, because a test may build its input with any room.

use std::fs;
use std::path::{Path, PathBuf};

/// Used by every room, and by each other.
const LEAVES: [&str; 4] = ["error", "dtype", "dump", "array"];

/// A room and the rooms besides the leaves that it may use. DESIGN 2 in one table; `cli` and `lib` use all.
const LAYERS: [(&str, &[&str]); 20] = [
    ("error", &[]),
    ("dtype", &[]),
    ("dump", &[]),
    ("array", &[]),
    ("ir", &[]),
    ("te", &["ir"]),
    ("target", &[]),
    ("intrin", &["ir", "te", "target"]),
    ("schedule", &["ir", "intrin"]),
    ("loom", &["ir", "te", "schedule", "target"]),
    ("gemm", &["ir", "te", "schedule", "target", "loom"]),
    ("lower", &["ir", "intrin", "target"]),
    ("machine", &["ir", "intrin", "lower"]),
    ("kernel", &[]),
    ("assemble", &[]),
    ("codegen", &["ir", "intrin", "target", "lower", "kernel"]),
    ("runtime", &["kernel"]),
    ("reference", &["ir"]),
    ("measure", &["ir", "kernel", "reference", "machine", "runtime"]),
    ("cli", &["*"]),
];

/// Foreign crates with one home each.
const HOMES: [(&str, &[&str]); 9] = [
    ("inkwell", &["src/codegen/"]),
    ("cust", &["src/runtime/"]),
    ("libloading", &["src/runtime/", "src/measure/"]),
    ("clap", &["src/cli/"]),
    ("indicatif", &["src/cli/"]),
    ("comfy_table", &["src/cli/"]),
    ("ariadne", &["src/cli/"]),
    ("plotters", &["src/cli/"]),
    ("thiserror", &["src/error.rs"]),
];

/// Where code may leave the checked language.
const UNSAFE: [&str; 3] = ["src/runtime/", "src/codegen/", "src/measure/library/"];

/// Lines of a file without its test modules.
const LONGEST_FILE: usize = 800;

/// A source file in the forms that the rules read.
struct Source {
    /// Relative to the root, with `/`.
    path: String,
    /// As it is.
    text: String,
    /// The same length, with comments and literals blanked.
    code: String,
    /// `code` with test modules blanked.
    plain: String,
}

impl Source {
    /// `ir` for `src/ir/print.rs`, `loom` for `src/loom.rs`.
    fn room(&self) -> &str {
        let rest = self.path.strip_prefix("src/").unwrap_or(&self.path);
        rest.split('/').next().unwrap_or(rest).trim_end_matches(".rs")
    }

    /// How many `super` lead to the crate's root: 1 for `src/loom.rs` and `src/ir/mod.rs`, 2 for `src/ir/print.rs`.
    fn depth(&self) -> usize {
        self.path.matches('/').count() - usize::from(self.path.ends_with("/mod.rs"))
    }

    fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, keep: &impl Fn(&Path) -> bool, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => files(&path, keep, out),
            false if keep(&path) => out.push(path),
            false => {}
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

fn sources(folder: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    files(&root().join(folder), &|p| p.extension().is_some_and(|e| e == "rs"), &mut paths);
    let mut all: Vec<Source> = paths.iter().map(|p| source(relative(p), fs::read_to_string(p).unwrap())).collect();
    // A room's tests may also lie in files of their own.
    let tests: Vec<String> = all.iter().flat_map(test_files).collect();
    for s in all.iter_mut().filter(|s| tests.contains(&s.path)) {
        s.plain = String::new();
    }
    all
}

fn source(path: String, text: String) -> Source {
    let code = blank_literals(&text);
    let plain = blank_tests(&code);
    Source { path, text, code, plain }
}

/// The files that a file declares as `#[cfg(test)] mod NAME;`.
fn test_files(source: &Source) -> Vec<String> {
    let folder = match source.path.strip_suffix("/mod.rs") {
        Some(folder) => folder.to_string(),
        None => source.path.trim_end_matches(".rs").to_string(),
    };
    let mut out = Vec::new();
    for (at, mark) in source.code.match_indices("#[cfg(test)]") {
        let item = tokens(&source.code[at + mark.len()..]);
        let declared = item.iter().position(|t| t.1 == "mod").filter(|n| *n < 5);
        if let Some([(_, name), (_, ";")]) = declared.and_then(|n| item.get(n + 1..n + 3)) {
            out.push(format!("{folder}/{name}.rs"));
        }
    }
    out
}

/// Replaces comments, strings and characters by spaces; newlines stay.
fn blank_literals(text: &str) -> String {
    let b = text.as_bytes();
    let mut out = b.to_vec();
    let mut i = 0;
    while i < b.len() {
        let end = literal_end(b, i);
        if end > i {
            for byte in &mut out[i..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            i = end;
        } else {
            // Step over a whole word, so that the r of `for"` opens no raw string.
            let word = b[i..].iter().take_while(|c| c.is_ascii_alphanumeric() || **c == b'_').count();
            i += word.max(1);
        }
    }
    String::from_utf8(out).unwrap()
}

/// Where the comment or literal that begins at `i` ends; `i` if none begins.
fn literal_end(b: &[u8], i: usize) -> usize {
    let rest = &b[i..];
    if rest.starts_with(b"//") {
        return i + rest.iter().position(|c| *c == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(b, i);
    }
    let prefix = rest.iter().take_while(|c| matches!(c, b'b' | b'r' | b'c')).count().min(2);
    let hashes = rest[prefix..].iter().take_while(|c| **c == b'#').count();
    let raw = rest[..prefix].contains(&b'r');
    if raw && rest.get(prefix + hashes) == Some(&b'"') {
        let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
        let body = i + prefix + hashes + 1;
        return find(&b[body..], &close).map_or(b.len(), |n| body + n + close.len());
    }
    match rest.get(prefix) {
        Some(b'"') if hashes == 0 => string_end(b, i + prefix + 1),
        Some(b'\'') if hashes == 0 => char_end(b, i + prefix).unwrap_or(i),
        _ => i,
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

fn block_comment_end(b: &[u8], start: usize) -> usize {
    let (mut depth, mut i) = (0, start);
    while i < b.len() {
        match &b[i..] {
            r if r.starts_with(b"/*") => (depth, i) = (depth + 1, i + 2),
            r if r.starts_with(b"*/") => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    b.len()
}

fn string_end(b: &[u8], mut i: usize) -> usize {
    while i < b.len() && b[i] != b'"' {
        i += if b[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(b.len())
}

/// The end of a character literal whose quote stands at `i`; `None` for a lifetime.
fn char_end(b: &[u8], i: usize) -> Option<usize> {
    if b.get(i + 1) == Some(&b'\\') {
        return b[i + 3..].iter().position(|c| *c == b'\'').map(|n| i + 3 + n + 1);
    }
    let width = std::str::from_utf8(&b[i + 1..]).ok()?.chars().next()?.len_utf8();
    (b.get(i + 1 + width) == Some(&b'\'')).then_some(i + 2 + width)
}

/// Blanks the item after each `#[cfg(test)]`.
fn blank_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]").map(|n| from + n) {
        let end = item_end(code.as_bytes(), at + "#[cfg(test)]".len());
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        from = end;
    }
    String::from_utf8(out).unwrap()
}

fn item_end(b: &[u8], start: usize) -> usize {
    let mut depth = 0;
    for (i, c) in b.iter().enumerate().skip(start) {
        match c {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(c, b'}' | b';') {
            return i + 1;
        }
    }
    b.len()
}

/// Words and single punctuation marks with their places.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let mut i = 0;
    while let Some(c) = code[i..].chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match word(c) {
            true => code[i..].find(|c| !word(c)).unwrap_or(code.len() - i),
            false => c.len_utf8(),
        };
        if !c.is_whitespace() {
            out.push((i, &code[i..i + length]));
        }
        i += length;
    }
    out
}

/// The names directly under the crate's root that a file uses, however the path is written.
fn uses(source: &Source) -> Vec<(usize, String)> {
    let tokens = tokens(&source.plain);
    let is = |i: usize, s: &str| tokens.get(i).is_some_and(|t| t.1 == s);
    let colons = |i: usize| is(i, ":") && is(i + 1, ":");
    let mut out = Vec::new();
    for (i, &(_, word)) in tokens.iter().enumerate() {
        let mut next = i + 1;
        match word {
            "crate" => {}
            "super" if !(i >= 3 && is(i - 3, "super") && colons(i - 2)) => {
                let mut climbs = 1;
                while colons(next) && is(next + 2, "super") {
                    (climbs, next) = (climbs + 1, next + 3);
                }
                if climbs < source.depth() {
                    continue;
                }
            }
            _ => continue,
        }
        if colons(next) {
            path_heads(&tokens, next + 2, &mut out);
        }
    }
    out
}

/// The first name of a path, or of each path of a group.
fn path_heads(tokens: &[(usize, &str)], at: usize, out: &mut Vec<(usize, String)>) {
    let Some(&(place, word)) = tokens.get(at) else { return };
    if word != "{" {
        out.push((place, word.to_string()));
        return;
    }
    let (mut depth, mut fresh) = (1, true);
    for &(place, word) in &tokens[at + 1..] {
        match word {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => fresh = true,
            _ if fresh => {
                out.push((place, word.to_string()));
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

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
            assert!(order, "{room} uses {below}, which stands after it");
        }
    }
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

/// Only the command line talks to the terminal and reads the environment; besides it, what looks for a library.
#[test]
fn printing_and_the_environment_belong_to_the_command_line() {
    let mut faults = Vec::new();
    for s in sources("src").iter().filter(|s| s.room() != "cli" && s.room() != "main") {
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
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_default();
        faults.extend(homes.iter().filter(|h| text.contains(*h)).map(|h| format!("{}: {h}", relative(&path))));
    }
    report(&faults);
}

/// Requirements that no program of `te` with any steps breaks: they guard against programs built by hand.
const BEYOND_TEXT: [&str; 9] = [
    "decompose_reduction.5",
    "decompose_reduction.6",
    "decompose_reduction.7",
    "reverse_compute_inline.4",
    "reverse_compute_inline.8",
    "rfactor.2",
    "rfactor.3",
    "rfactor.6",
    "rfactor.7",
];

/// Every requirement of every step has a case that breaks it, in a test of the steps or in a text case.
#[test]
fn every_requirement_has_a_refusing_case() {
    let mut paths = Vec::new();
    files(&root().join("tests/cases"), &|_| true, &mut paths);
    files(&root().join("src/schedule"), &|_| true, &mut paths);
    let texts: Vec<String> = paths.iter().map(|p| fs::read_to_string(p).unwrap_or_default()).collect();
    let refused = |code: &str| {
        let forms = [format!("\"{code}\""), format!("[{code}]")];
        texts.iter().any(|t| forms.iter().any(|f| t.contains(f)))
    };
    let mut faults = Vec::new();
    for primitive in warploom::schedule::primitive::ALL {
        for (n, words) in primitive.requires.iter().enumerate() {
            let code = format!("{}.{}", primitive.name, n + 1);
            if refused(&code) == BEYOND_TEXT.contains(&code.as_str()) {
                faults.push(format!("{code}: {words}"));
            }
        }
    }
    report(&faults);
}

mod the_scanner {
    use super::*;

    fn scanned(path: &str, text: &str) -> Vec<String> {
        uses(&source(path.to_string(), text.to_string())).into_iter().map(|u| u.1).collect()
    }

    #[test]
    fn finds_uses_however_written() {
        let text = "use crate::{ir::{Func, Stmt}, te}; fn f() { crate :: lower::lower(); }";
        assert_eq!(scanned("src/a.rs", text), ["ir", "te", "lower"]);
        assert_eq!(scanned("src/ir/print.rs", "use super::Func; use super::super::dtype;"), ["dtype"]);
        assert_eq!(
            scanned("src/ir/mod.rs", "use super::dtype; mod a { use crate::array::Array; }"),
            ["dtype", "array"]
        );
    }

    #[test]
    fn reads_over_comments_literals_and_tests() {
        let text =
            "// crate::a\n/* crate::b /* */ crate::c */ fn f<'a>() { r#\"crate::d\"#; \"\\\"crate::e\"; '\"'; b'\\''; }
            #[cfg(test)] mod tests { use crate::g; } use crate::h;";
        assert_eq!(scanned("src/a.rs", text), ["h"]);
    }
}
