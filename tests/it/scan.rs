//! Sources as the rules of the tree read them: comments and literals blanked out, test modules left out, and the names
//! that a file uses from the crate's root.

use std::fs;
use std::path::{Path, PathBuf};

/// A source file in the forms that the rules read.
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    /// As it is.
    pub text: String,
    /// The same length, with comments and literals blanked.
    pub code: String,
    /// `code` with test modules blanked.
    pub plain: String,
}

impl Source {
    /// `ir` for `src/ir/print.rs`, `loom` for `src/loom.rs`; `lowered` for what is under `src/ir/lowered`.
    pub fn room(&self) -> &str {
        if self.path.starts_with("src/ir/lowered/") {
            return "lowered";
        }
        let rest = self.path.strip_prefix("src/").unwrap_or(&self.path);
        rest.split('/').next().unwrap_or(rest).trim_end_matches(".rs")
    }

    /// How many `super` lead to the crate's root: 1 for `src/loom.rs` and `src/ir/mod.rs`, 2 for `src/ir/print.rs`.
    pub fn depth(&self) -> usize {
        self.path.matches('/').count() - usize::from(self.path.ends_with("/mod.rs"))
    }

    pub fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn files(folder: &Path, keep: &impl Fn(&Path) -> bool, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            // What cargo built is nobody's text.
            true if path.ends_with("target") && path.with_file_name("Cargo.toml").exists() => {}
            true => files(&path, keep, out),
            false if keep(&path) => out.push(path),
            false => {}
        }
    }
}

pub fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

pub fn sources(folder: &str) -> Vec<Source> {
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

pub fn source(path: String, text: String) -> Source {
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
pub fn tokens(code: &str) -> Vec<(usize, &str)> {
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
pub fn uses(source: &Source) -> Vec<(usize, String)> {
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

/// The first name of a path, or of each path of a group. Under `ir`, `lowered` counts as a name of its own.
fn path_heads(tokens: &[(usize, &str)], at: usize, out: &mut Vec<(usize, String)>) {
    let Some(&(place, word)) = tokens.get(at) else { return };
    let goes_on = |i: usize| matches!((tokens.get(i), tokens.get(i + 1)), (Some((_, ":")), Some((_, ":"))));
    if word == "ir" && goes_on(at + 1) {
        let mut below = Vec::new();
        path_heads(tokens, at + 3, &mut below);
        let lowered = |name: &str| if name == "lowered" { "lowered" } else { "ir" }.to_string();
        let mut rooms: Vec<String> = below.iter().map(|(_, name)| lowered(name)).collect();
        rooms.dedup();
        out.extend(rooms.into_iter().map(|room| (place, room)));
        return;
    }
    if word != "{" {
        out.push((place, word.to_string()));
        return;
    }
    let (mut depth, mut fresh) = (1, true);
    for (n, &(place, word)) in tokens.iter().enumerate().skip(at + 1) {
        match word {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => fresh = true,
            _ if fresh => {
                match word {
                    "ir" => path_heads(tokens, n, out),
                    _ => out.push((place, word.to_string())),
                }
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

fn scanned(path: &str, text: &str) -> Vec<String> {
    uses(&source(path.to_string(), text.to_string())).into_iter().map(|u| u.1).collect()
}

#[test]
fn finds_uses_however_written() {
    let text = "use crate::{ir::{Func, Stmt}, te}; fn f() { crate :: lower::lower(); }";
    assert_eq!(scanned("src/a.rs", text), ["ir", "te", "lower"]);
    let text = "use crate::ir::lowered::{Lowered, verify}; use crate::{ir::{Func, lowered}, te}; use crate::ir;";
    assert_eq!(scanned("src/a.rs", text), ["lowered", "ir", "lowered", "te", "ir"]);
    assert_eq!(scanned("src/ir/print.rs", "use super::Func; use super::super::dtype;"), ["dtype"]);
    assert_eq!(scanned("src/ir/mod.rs", "use super::dtype; mod a { use crate::array::Array; }"), ["dtype", "array"]);
}

#[test]
fn reads_over_comments_literals_and_tests() {
    let text =
        "// crate::a\n/* crate::b /* */ crate::c */ fn f<'a>() { r#\"crate::d\"#; \"\\\"crate::e\"; '\"'; b'\\''; }
        #[cfg(test)] mod tests { use crate::g; } use crate::h;";
    assert_eq!(scanned("src/a.rs", text), ["h"]);
}
