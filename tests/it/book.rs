//! The README, the book under docs/ and the page of records: their schedules lower, their commands run and print the output shown, their
//! links resolve, and the generated pages are what the binary prints.
//!
//! A block `loom` is a schedule that lowers, `loom,partial` one whose steps apply. A block `console` holds lines `$ warploom ..`, each with
//! lines of its output below it: `..` stands for what is left out, and `# exit N` behind a command says how it fails. Other blocks are
//! not looked at here.

use super::cli::output;
use super::sample::drawn;
use super::scan::root;
use std::path::{Path, PathBuf};
use warploom::{Schedule, lower, schedule::primitive};

/// A block of a page: its language, the line where it begins, and its text.
struct Block {
    language: String,
    line: usize,
    text: String,
}

/// Every page: the README, the page of records, and the files of the book.
fn pages() -> Vec<(PathBuf, String)> {
    let mut out = vec![root().join("README.md"), root().join("benches/results/README.md")];
    let mut folders = vec![root().join("docs/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                out.push(path);
            }
        }
    }
    out.sort();
    out.into_iter().map(|path| (path.clone(), std::fs::read_to_string(&path).unwrap())).collect()
}

fn blocks(text: &str) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (n, line) in text.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            if !is_open {
                out.push(Block { language: language.trim().to_string(), line: n + 1, text: String::new() });
            }
            is_open = !is_open;
        } else if is_open && let Some(block) = out.last_mut() {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    out
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn schedules_of_the_book_lower() {
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in pages() {
        for block in blocks(&text).iter().filter(|b| b.language.starts_with("loom")) {
            count += 1;
            let is_partial = block.language == "loom,partial";
            let lowered = Schedule::parse(&block.text).and_then(|s| {
                let func = s.scheduled()?;
                if is_partial { Ok(()) } else { lower::lower(&func, &s.target).map(|_| ()) }
            });
            if let Err(e) = lowered {
                faults.push(format!("{}:{}: {e}", name(&path), block.line));
            }
        }
    }
    report(&faults);
    assert!(count > 30, "{count} schedules");
}

/// Words of a command, of which some may stand in quotes.
fn words(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (n, part) in line.split('"').enumerate() {
        if n % 2 == 1 {
            out.push(part.to_string());
        } else {
            out.extend(part.split_whitespace().map(str::to_string));
        }
    }
    out
}

/// What is wrong with a command and the lines that stand below it.
fn fault(command: &str, expected: &[&str]) -> Option<String> {
    let (command, exit) = command.split_once("# exit ").unwrap_or((command, "0"));
    let wanted: Option<i32> = exit.trim().parse().ok();
    let arguments = words(command);
    let out = output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.code() != wanted {
        return Some(format!("`warploom {command}` ends with {:?}\n{text}", out.status.code()));
    }
    let mut lines = text.lines();
    for line in expected {
        let line = line.trim();
        if line.is_empty() || line == ".." {
            continue;
        }
        if !lines.any(|l| matches(l.trim(), line)) {
            return Some(format!("`warploom {command}` does not print `{line}` there:\n{text}"));
        }
    }
    None
}

/// Whether a line of output is the one in the book, where `..` stands for whatever differs from run to run.
fn matches(line: &str, pattern: &str) -> bool {
    let mut rest = line;
    for (n, part) in pattern.split("..").enumerate() {
        // Ranges of loops have dots of their own: they match as they are.
        let Some(at) = rest.find(part) else { return line.contains(pattern) };
        if n == 0 && at != 0 {
            return line.contains(pattern);
        }
        rest = &rest[at + part.len()..];
    }
    true
}

/// A sixth of the commands, as the commit draws them, the first, and all that write a file: others read it.
#[test]
fn commands_of_the_book_print_what_it_says() {
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in pages() {
        for block in blocks(&text).iter().filter(|b| b.language == "console") {
            let lines: Vec<&str> = block.text.lines().collect();
            let starts: Vec<usize> = (0..lines.len()).filter(|n| lines[*n].starts_with("$ ")).collect();
            for (n, start) in starts.iter().enumerate() {
                let end = starts.get(n + 1).copied().unwrap_or(lines.len());
                let Some(command) = lines[*start].strip_prefix("$ warploom ") else {
                    faults.push(format!(
                        "{}:{}: `{}` is no command of warploom",
                        name(&path),
                        block.line,
                        lines[*start]
                    ));
                    continue;
                };
                count += 1;
                let is_tried = count == 1 || command.contains(" -o ");
                if !is_tried && !drawn(&format!("{} {command}", name(&path)), 6) {
                    continue;
                }
                if let Some(why) = fault(command, &lines[start + 1..end]) {
                    faults.push(format!("{}:{}: {why}", name(&path), block.line + start + 1));
                }
            }
        }
    }
    report(&faults);
    assert!(count > 20, "{count} commands");
}

/// The targets of links and pictures of a page, blocks left out.
fn links(text: &str) -> Vec<String> {
    let mut is_open = false;
    let plain = text.lines().filter(|line| {
        is_open ^= line.starts_with("```");
        !is_open && !line.starts_with("```")
    });
    let mut out = Vec::new();
    for line in plain {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                out.push(rest[..end].to_string());
            }
        }
        for part in line.split("src=\"").skip(1) {
            out.extend(part.split('"').next().map(str::to_string));
        }
    }
    out
}

#[test]
fn links_of_the_book_lead_somewhere() {
    let mut faults = Vec::new();
    for (path, text) in pages() {
        for link in links(&text) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !path.parent().unwrap().join(target).exists() {
                faults.push(format!("{}: {link} leads nowhere", name(&path)));
            }
        }
    }
    report(&faults);
}

#[test]
fn the_summary_lists_every_page() {
    let summary = std::fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let missing: Vec<String> = pages()
        .iter()
        .filter_map(|(path, _)| Some(path.strip_prefix(root().join("docs/src")).ok()?.display().to_string()))
        .filter(|page| page != "SUMMARY.md" && !listed.iter().any(|l| l == page || l == &format!("./{page}")))
        .collect();
    report(&missing);
}

#[test]
fn generated_pages_are_what_the_binary_prints() {
    let print = |arguments: &[&str]| {
        let out = output(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let note = "<!-- Generated by `WARPLOOM_BLESS=1 cargo test --test it generated_pages`. -->\n\n";
    let titled = |title: &str, text: String| format!("{note}# {title}\n\n{text}");
    let mut pages = vec![
        ("programs.md".to_string(), titled("Programs", print(&["explain", "--programs", "--markdown"]))),
        ("steps/README.md".to_string(), titled("Steps", print(&["explain", "--primitives", "--markdown"]))),
        ("errors.md".to_string(), titled("Errors", print(&["explain", "--codes", "--markdown"]))),
        ("instructions.md".to_string(), titled("Instructions", print(&["explain", "--instructions", "--markdown"]))),
    ];
    for p in primitive::ALL {
        let page = print(&["explain", p.name, "--markdown"]);
        pages.push((format!("steps/{}.md", p.name), format!("{note}{page}")));
    }
    let bless = std::env::var_os("WARPLOOM_BLESS").is_some();
    for (page, text) in pages {
        let path = root().join("docs/src").join(&page);
        if bless {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        } else {
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                stored == text,
                "{page} is not what the binary prints: WARPLOOM_BLESS=1 cargo test --test it generated_pages"
            );
        }
    }
}
