//! The one layout of `.loom` texts: over everything that the tree has, and over texts with blanks put in and taken out at random,
//! it keeps the meaning and every comment, and a second time changes nothing.

use super::cases::examples;
use super::cli::{File, bad, good, output, warploom};
use super::scan::root;
use std::io::Write;
use std::process::Stdio;
use warploom::loom::format;
use warploom::{DType, Gemm, Schedule, gemm};

/// Schedules of the book's pages and files, of the examples, and recommended ones.
pub fn texts() -> Vec<(String, String)> {
    let mut out = examples();
    let mut folders = vec![root().join("docs/src")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()) {
            let name = path.display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".loom") {
                out.push((name, std::fs::read_to_string(&path).unwrap()));
            } else if name.ends_with(".md") {
                let text = std::fs::read_to_string(&path).unwrap();
                let blocks = text.split("\n```loom\n").skip(1).filter_map(|b| b.split("\n```").next());
                out.extend(blocks.enumerate().map(|(n, b)| (format!("{name}, block {n}"), format!("{b}\n"))));
            }
        }
    }
    for (n, dtype) in [DType::F32, DType::F16, DType::S8].into_iter().enumerate() {
        let gemm = Gemm::new(512, 512, 256 * (n as i64 + 1)).of(dtype);
        let schedule = gemm::recommend(&gemm, &gemm.default_target()).unwrap();
        out.push((format!("recommended for {dtype}"), schedule.to_string()));
    }
    // Some show what is refused.
    out.retain(|(_, text)| Schedule::parse(text).is_ok());
    out
}

fn comments(text: &str) -> Vec<String> {
    let of = |line: &str| line.split_once('#').map(|(_, c)| c.trim().to_string());
    text.lines().filter_map(of).collect()
}

/// The same text with blanks and empty lines put in, and the blanks of its layout made wider.
fn scattered(text: &str, rng: &mut fastrand::Rng) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let (code, comment) = line.find('#').map_or((line, ""), |at| line.split_at(at));
        out.push_str(&" \t".repeat(rng.usize(..3)));
        let (mut brackets, chars) = (0i32, code.trim().chars());
        for c in chars {
            brackets += i32::from(c == '[' || c == '(') - i32::from(c == ']' || c == ')');
            match c {
                ' ' => out.push_str(&" ".repeat(1 + rng.usize(..3))),
                ';' => out.push_str([";", " ; ", ";\t; "][rng.usize(..3)]),
                ',' if brackets > 0 => out.push_str([",", " , ", ",  "][rng.usize(..3)]),
                c => out.push(c),
            }
        }
        if !comment.is_empty() {
            out.push_str(&" ".repeat(rng.usize(..4)));
            out.push_str(comment.trim_end());
        }
        out.push_str(["\n", " \n", "\r\n"][rng.usize(..3)]);
        if line.is_empty() {
            out.push_str(&"\n".repeat(rng.usize(..3)));
        }
    }
    out
}

#[test]
fn formatting_keeps_the_meaning_and_the_comments_and_is_done_once() {
    let texts = texts();
    assert!(texts.len() > 80, "{} schedules", texts.len());
    let mut rng = fastrand::Rng::with_seed(7);
    for (name, text) in &texts {
        let once = format(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(Schedule::parse(&once).unwrap(), Schedule::parse(text).unwrap(), "{name}");
        assert_eq!(format(&once).unwrap(), once, "{name}: a second time changes it");
        assert_eq!(comments(&once), comments(text), "{name}");
        let statements = |t: &str| {
            t.lines().flat_map(|l| l.split('#').next().unwrap().split(';')).filter(|s| !s.trim().is_empty()).count()
        };
        assert_eq!(statements(&once), statements(text), "{name}");
        for _ in 0..8 {
            let scattered = scattered(text, &mut rng);
            assert_eq!(format(&scattered).as_ref(), Ok(&once), "{name}:\n{scattered}");
        }
    }
}

#[test]
fn what_dump_prints_is_in_the_layout() {
    for (name, text) in texts() {
        let printed = Schedule::parse(&text).unwrap().to_string();
        assert_eq!(format(&printed).unwrap(), printed, "{name}");
    }
}

#[test]
fn examples_are_in_the_layout() {
    let files: Vec<String> = examples().into_iter().map(|(name, _)| format!("examples/{name}.loom")).collect();
    let all: Vec<&str> = ["fmt", "--check"].into_iter().chain(files.iter().map(String::as_str)).collect();
    good(&all);
}

#[test]
fn files_are_rewritten_and_checked() {
    let file = File::new("formatted", "vec_add   8 # eight\n\n\ntarget sm_80\n");
    let wanted = "vec_add 8  # eight\n\ntarget sm_80\n";
    let out = output(&["fmt", "--check", file.name()]);
    let (diff, said) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert_eq!(out.status.code(), Some(1));
    assert!(["-vec_add   8 # eight\n", "+vec_add 8  # eight\n"].iter().all(|l| diff.contains(l)), "{diff}");
    assert!(said.contains("1 file of 1 would change"), "{said}");
    good(&["fmt", file.name()]);
    assert_eq!(std::fs::read_to_string(file.name()).unwrap(), wanted);
    assert_eq!(good(&["fmt", "--check", file.name()]), "");
    // What does not parse is reported and left alone, and the other files are formatted.
    let (wrong, other) =
        (File::new("wrong", "vec_add  8\ntarget sm_1\n"), File::new("other", "vec_add  8\ntarget sm_80"));
    let (status, error) = bad(&["fmt", wrong.name(), other.name(), "no-such-file.loom"]);
    assert!(
        status == Some(1) && error.contains("[target.name]") && error.contains("no-such-file"),
        "{status:?} {error}"
    );
    assert_eq!(std::fs::read_to_string(wrong.name()).unwrap(), "vec_add  8\ntarget sm_1\n");
    assert_eq!(std::fs::read_to_string(other.name()).unwrap(), "vec_add 8\ntarget sm_80\n");
    let mut child = warploom(&["fmt", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"vec_add   8 # eight\n\n\ntarget sm_80").unwrap();
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), wanted);
}
