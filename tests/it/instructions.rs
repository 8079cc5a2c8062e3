//! The instructions of the PTX, without the names of registers, labels and symbols and without comments: of every golden, and of what is
//! recommended for each line of the suites. `tests/goldens/instructions.txt` has a hash of each, so that a change of names or of
//! structure shows that it changes no instruction.
//!
//! Of the lines of the suites a part is compiled, drawn for the commit; all where `WARPLOOM_ALL` is set. `WARPLOOM_BLESS=1` with
//! `WARPLOOM_ALL=1` writes the hashes. `WARPLOOM_PTX=FOLDER` writes the texts that are hashed there: two commits are compared by
//! `diff -r`.

use super::sample::{drawn, everything};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;
use warploom::gemm::{self, Kind};
use warploom::te::Layout;
use warploom::{DType, Gemm, Schedule, Target, compile};

const HASHES: &str = "tests/goldens/instructions.txt";

/// The PTX without comments, lines of the source, and declarations of registers; every other name is its kind and the number of its first
/// use.
pub fn instructions(ptx: &str) -> String {
    let mut out = String::new();
    let (mut names, mut counts) = (HashMap::new(), HashMap::new());
    let symbols = symbols(ptx);
    for line in ptx.lines().map(|l| l.split("//").next().unwrap_or("").trim()) {
        if line.is_empty() || [".reg", ".loc", ".file"].iter().any(|d| line.starts_with(d)) {
            continue;
        }
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let of_name = |c: char| c.is_alphanumeric() || "_$%".contains(c);
            let end = rest.find(|c| !of_name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end.max(c.len_utf8()));
            let kind = word.trim_end_matches(|c: char| c.is_ascii_digit());
            let numbered = kind.len() < word.len() && kind.starts_with('%');
            let kind = match word {
                _ if numbered => kind,
                _ if word.starts_with('$') => "$",
                // `add` of `add.s32` is no symbol.
                _ if symbols.contains(&word) && !after.starts_with('.') && !out.ends_with('.') => "@",
                _ => "",
            };
            if kind.is_empty() {
                out.push_str(word);
            } else {
                let number = *names.entry(word).or_insert_with(|| {
                    let count = counts.entry(kind).or_insert(0u32);
                    *count += 1;
                    *count
                });
                write!(out, "{kind}{number}").unwrap();
            }
            rest = after;
        }
        out.push('\n');
    }
    out
}

/// Names of kernels, parameters and variables.
fn symbols(ptx: &str) -> Vec<&str> {
    let declares = |l: &&str| [".entry ", ".param ", ".shared ", ".global ", ".const "].iter().any(|d| l.contains(d));
    let mut out = Vec::new();
    for line in ptx.lines().map(|l| l.split("//").next().unwrap_or("")).filter(declares) {
        let end = line.find(['(', '[', ',', ';', '=']).unwrap_or(line.len());
        out.extend(line[..end].split_whitespace().next_back());
        if let Some(entry) = line.split(".entry ").nth(1) {
            out.extend(entry.split(['(', ' ']).next());
        }
    }
    out
}

/// A line of a suite: types, layout, size, and the kind of code where it names one.
pub fn of_suite(line: &str) -> (Gemm, Option<Kind>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let size: Vec<i64> = words[2].split('x').map(|n| n.parse().unwrap()).collect();
    let product = match size[..] {
        [n] => Gemm::new(n, n, n),
        [m, n, k] => Gemm::new(m, n, k),
        [batch, m, n, k] => Gemm::new(m, n, k).batch(batch),
        _ => panic!("{line}"),
    };
    let product = product.of(DType::parse(words[0]).unwrap()).layout(Layout::parse(words[1]).unwrap());
    (product, words.get(3).and_then(|w| Kind::parse(w)))
}

/// What is recommended for the lines of the suites, by name.
fn recommended() -> Vec<(String, impl Fn() -> Schedule)> {
    let mut out = BTreeMap::new();
    let suites = [
        ("hopper", &["sm_90a"][..]),
        ("tensor", &["sm_90a", "sm_80"]),
        ("f32", &["sm_90a", "sm_80"]),
        ("float8", &["sm_90a", "sm_89"]),
    ];
    for (suite, chips) in suites {
        let text = std::fs::read_to_string(format!("benches/{suite}.suite")).unwrap();
        // Lines with the types of A, B, sums and result are not among them.
        let of_product = |l: &&str| l.split(' ').next().is_some_and(|types| DType::parse(types).is_some());
        for line in
            text.lines().filter_map(|l| l.split('#').next()?.split(" >=").next()).map(str::trim).filter(of_product)
        {
            let line = line.split(" beside").next().unwrap_or(line).trim();
            for chip in chips {
                out.insert(format!("{line} for {chip}"), (of_suite(line), Target::parse(chip).unwrap()));
            }
        }
    }
    let schedule = |(name, ((product, kind), target)): (String, ((Gemm, Option<Kind>), Target))| {
        let context = name.clone();
        let make = move || {
            let made = match kind {
                Some(kind) => kind.schedule(&product, &target),
                None => gemm::recommend(&product, &target),
            };
            made.unwrap_or_else(|e| panic!("{context}: {e}"))
        };
        (name, make)
    };
    out.into_iter().map(schedule).collect()
}

fn hash(name: &str, ptx: &str) -> String {
    let text = instructions(ptx);
    assert!(text.lines().count() > 5, "{name}: {text}");
    if let Some(folder) = std::env::var_os("WARPLOOM_PTX") {
        let file = Path::new(&folder).join(name.replace(['/', ' '], "-"));
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(file, &text)).unwrap();
    }
    Sha256::digest(text.as_bytes()).iter().take(12).fold(String::new(), |out, byte| format!("{out}{byte:02x}"))
}

fn goldens() -> Vec<(String, String)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir("tests/goldens").unwrap().flatten().filter(|e| e.path().is_dir()) {
        for file in std::fs::read_dir(entry.path()).unwrap().flatten().map(|e| e.path()) {
            if file.extension().is_some_and(|e| e == "ptx") {
                let name = file.strip_prefix("tests/goldens").unwrap().to_string_lossy().into_owned();
                out.push((name, std::fs::read_to_string(&file).unwrap()));
            }
        }
    }
    out.sort();
    out
}

#[test]
fn goldens_and_suites_keep_their_instructions() {
    let stored = std::fs::read_to_string(HASHES).unwrap_or_default();
    let stored: BTreeMap<&str, &str> = stored.lines().filter_map(|l| l.split_once(' ').map(|(h, n)| (n, h))).collect();
    let mut found: BTreeMap<String, String> =
        goldens().iter().map(|(name, ptx)| (name.clone(), hash(name, ptx))).collect();
    assert!(found.len() >= 58, "{} goldens", found.len());
    let suites = recommended();
    assert!(suites.len() >= 180, "{} lines", suites.len());
    for (name, schedule) in suites.iter().filter(|(name, _)| drawn(name, 12)) {
        let kernels = compile(&schedule()).unwrap_or_else(|e| panic!("{name}: {e}"));
        found.insert(name.clone(), hash(name, &kernels.text));
    }
    if std::env::var_os("WARPLOOM_BLESS").is_some() && everything() {
        let lines = found.iter().map(|(name, hash)| format!("{hash} {name}\n"));
        std::fs::write(HASHES, lines.collect::<String>()).unwrap();
        return;
    }
    let other = |(name, hash): &(&String, &String)| stored.get(name.as_str()) != Some(&hash.as_str());
    let other: Vec<&String> = found.iter().filter(other).map(|(name, _)| name).collect();
    assert!(
        other.is_empty(),
        "other instructions: {other:#?}\nif they are meant: WARPLOOM_ALL=1 WARPLOOM_BLESS=1 cargo test --test it instructions"
    );
}

#[test]
fn names_and_comments_are_no_instructions() {
    let one = "// one\n.visible .entry add(\n\t.param .u64 add_param_0\n)\n{\n\t.reg .b32 \t%r<3>;\n\t.loc 1 2 3\n\
               \tld.param.u32 \t%r1, [add_param_0]; // first\n$L__BB0_1:\n\tadd.s32 \t%r2, %r1, 1;\n\tbra $L__BB0_1;\n}\n";
    let other = one.replace("%r1", "%r7").replace("add_param_0", "sum_param_0").replace("entry add", "entry sum");
    let other = other.replace("BB0_1", "BB3_4").replace("first", "second");
    assert_ne!(one, other);
    assert_eq!(instructions(one), instructions(&other));
    for (from, to) in [("add.s32", "sub.s32"), ("%r1, 1", "%r1, 2"), ("%r2, %r1", "%r1, %r1"), ("bra", "@%p1 bra")] {
        assert_ne!(instructions(one), instructions(&one.replace(from, to)), "{from}");
    }
}
