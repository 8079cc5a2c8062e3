//! What a terminal gets besides the text: colours and a pager; and what a command does whose output is closed or full.

use super::cli::{File, good, output};
use super::sample::drawn;
use std::process::{Command, Output, Stdio};

const FILE: &str = "examples/window_sum_cooperative.loom";

/// The binary in a shell, for redirections.
fn shell(line: &str) -> Output {
    let line = line.replace("warploom", env!("CARGO_BIN_EXE_warploom"));
    Command::new("sh").args(["-c", &line]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
}

/// What a command writes to a terminal, and its exit status. `script` makes the terminal; it is a part of every Debian.
fn on_terminal(variables: &[(&str, &str)], arguments: &str) -> (Option<i32>, String) {
    let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_warploom"));
    let mut script = Command::new("script");
    // The variables that choose colours or a pager are unset. `CI` is one: anstream colours a terminal where it is set.
    for variable in
        ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "CI", "PAGER", "WARPLOOM_PAGER", "LESS", "COLUMNS"]
    {
        script.env_remove(variable);
    }
    let mut script = script
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` of util-linux");
    // At the end of its input `script` types the terminal's end of file, which a terminal may echo: the input stays open.
    let input = script.stdin.take();
    let out = script.wait_with_output().unwrap();
    drop(input);
    (out.status.code(), String::from_utf8(out.stdout).unwrap().replace("\r\n", "\n"))
}

/// A text without its colours.
fn bare(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or("").to_string();
    parts.fold(first, |out, part| out + part.split_once('m').unwrap_or_else(|| panic!("{part:?}")).1)
}

/// A third of the commands, as the commit draws them, and the first.
#[test]
fn a_pipe_gets_the_text_alone() {
    let commands = [
        format!("explain {FILE}"),
        format!("explain {FILE} --diff"),
        format!("explain {FILE} --cost"),
        format!("dump {FILE} --emit schedule,ir,lowered,llvm,ptx"),
        "explain split".to_string(),
        "explain --primitives".to_string(),
        "explain --programs".to_string(),
        "explain --instructions mma --target sm_80".to_string(),
        "dump --help".to_string(),
    ];
    for command in commands.iter().filter(|c| **c == commands[0] || drawn(&format!("a pipe {c}"), 3)) {
        let words: Vec<&str> = command.split(' ').collect();
        let plain = good(&words);
        let piped = shell(&format!("env -u NO_COLOR TERM=xterm WARPLOOM_PAGER=false warploom {command} | cat"));
        assert_eq!(String::from_utf8(piped.stdout).unwrap(), plain, "{command}");
        assert!(!plain.contains('\u{1b}'), "{command}");
        // The colours are added to the same text, and each text has some.
        let coloured = good(&[&words[..], &["--color", "always"]].concat());
        assert!(coloured.contains('\u{1b}'), "{command}: {coloured}");
        assert_eq!(bare(&coloured), plain, "{command}");
        let forced = shell(&format!("env -u NO_COLOR CLICOLOR_FORCE=1 warploom {command}"));
        assert_eq!(String::from_utf8(forced.stdout).unwrap(), coloured, "{command}");
    }
}

#[test]
fn a_terminal_gets_colours_unless_it_is_told_not_to() {
    let command = format!("dump {FILE} --emit lowered --no-pager");
    let plain = good(&command.split(' ').collect::<Vec<_>>());
    let (status, text) = on_terminal(&[], &command);
    assert!(status == Some(0) && text.contains("\u{1b}["), "{status:?} {text}");
    assert_eq!(bare(&text), plain);
    for variables in [("NO_COLOR", "1"), ("TERM", "dumb"), ("CLICOLOR", "0")] {
        assert_eq!(on_terminal(&[variables], &command), (Some(0), plain.clone()), "{variables:?}");
    }
    assert_eq!(on_terminal(&[], &format!("{command} --color never")), (Some(0), plain.clone()));
    let (_, text) = on_terminal(&[("NO_COLOR", "1")], &format!("{command} --color=always"));
    assert_eq!(bare(&text), plain);
    assert_ne!(text, plain);
    // An error is coloured by the same rule.
    let wrong = "explain no/such.loom --no-pager";
    assert!(!on_terminal(&[], &format!("{wrong} --color never")).1.contains('\u{1b}'));
    let wrong = "explain docs/src/files/bind-k.loom --no-pager";
    assert!(on_terminal(&[], wrong).1.contains("\u{1b}["));
    assert!(!on_terminal(&[("NO_COLOR", "1")], wrong).1.contains('\u{1b}'));
}

#[test]
fn long_texts_go_to_the_pager_that_is_asked_for() {
    let command = format!("explain {FILE} --color never");
    let plain = good(&command.split(' ').collect::<Vec<_>>());
    let paged: String = plain.lines().map(|l| format!("paged {l}\n")).collect();
    for name in ["WARPLOOM_PAGER", "PAGER"] {
        assert_eq!(on_terminal(&[(name, "sed s/^/paged\\ /")], &command), (Some(0), paged.clone()), "{name}");
    }
    // The own variable is asked first; `cat` and nothing are no pager; a pager that is none is said.
    assert_eq!(on_terminal(&[("PAGER", "false"), ("WARPLOOM_PAGER", "cat")], &command), (Some(0), plain.clone()));
    assert_eq!(on_terminal(&[("PAGER", "")], &command), (Some(0), plain.clone()));
    assert_eq!(on_terminal(&[("PAGER", "false")], &format!("{command} --no-pager")), (Some(0), plain.clone()));
    let (status, text) = on_terminal(&[("PAGER", "no-such-pager -x")], &command);
    assert!(status == Some(0) && text.starts_with("cannot start the pager `no-such-pager -x`: "), "{text}");
    assert!(text.ends_with(&plain), "{text}");
    // One that ends early is no error, however much is left.
    let long = "dump examples/worked_example.loom --emit ptx --color never";
    let (status, text) = on_terminal(&[("PAGER", "head -n 2")], long);
    assert_eq!((status, text.lines().count()), (Some(0), 2), "{text}");
    assert_eq!(on_terminal(&[("PAGER", "true")], long), (Some(0), String::new()));
    // An error is said behind what the pager has shown, and ends with its own status.
    let (status, text) =
        on_terminal(&[("PAGER", "sed s/^/paged\\ /")], "explain docs/src/files/bind-k.loom --color never");
    let (last, error) = (text.rfind("paged "), text.find("[bind.3]"));
    assert!(status == Some(1) && last.is_some() && last < error, "{status:?} {text}");
    // `less` shows what fits on a screen and ends; where there is none, the text is printed.
    let (status, text) = on_terminal(&[("NO_COLOR", "1")], "explain examples/vec_add.loom --last");
    assert!(status == Some(0) && text.contains("func vec_add("), "{status:?} {text}");
}

/// Three trials, of which the first hangs once: the tuner asks again when the others have ended.
const SPACE: &str =
    "vec_add 4096\ntarget sm_80\nsplit i ? {32,64,128} -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x\n";

/// The lines of standard error name each trial, what became of it, and the best so far.
#[test]
fn a_search_is_lines_where_there_is_no_terminal() {
    let file = File::new("lines-of-a-search", SPACE);
    let arguments = ["tune", file.name(), "--device", "none", "--jobs", "1"];
    let out = output(&arguments);
    let [lines, text] = [out.stderr, out.stdout].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(out.status.success() && !lines.contains('\u{1b}') && !lines.contains('\r'), "{lines}");
    let trials: Vec<&str> = lines.lines().skip_while(|line| !line.starts_with("1/3 ")).collect();
    assert_eq!(trials.len(), 3, "{lines}");
    let mut least: Option<(f64, String)> = None;
    for (n, line) in trials.iter().enumerate() {
        let (trial, best) = line.split_once("; best ").unwrap_or_else(|| panic!("{lines}"));
        let (name, cycles) = trial.strip_prefix(&format!("{}/3 ", n + 1)).unwrap().split_once(": ").unwrap();
        let cycles: f64 = cycles.strip_suffix(" cycles").unwrap().parse().unwrap();
        // Of equal cycles the order of the space decides; the line is of the least.
        if least.as_ref().is_none_or(|(known, _)| cycles <= *known) {
            least = Some((cycles, name.to_string()));
        }
        let (least, _) = least.as_ref().unwrap();
        assert!(best.starts_with(&format!("{least:.0} cycles: i1=")), "{line}");
    }
    let names: Vec<_> = trials.iter().filter_map(|t| t.split([' ', ':']).nth(1)).collect();
    assert!(["i1=32", "i1=64", "i1=128"].iter().all(|name| names.contains(name)), "{lines}");
    assert!(!text.contains("1/3 ") && text.contains("3 trials: 3 right"), "{text}");
}

/// The bar has the number of trials, the best so far, and the time that is left: seconds, since the first trial hung for one.
#[test]
fn a_search_is_a_bar_on_a_terminal() {
    let file = File::new("bar-of-a-search", SPACE);
    let arguments = format!("tune {} --device none --jobs 1 --deadline 1 --color never", file.name());
    let (status, text) = on_terminal(&[("WARPLOOM_TUNE_FAULTS", "hang-once i1=32")], &arguments);
    let bars: Vec<&str> = text.split(['\r', '\n']).filter(|line| line.contains('\u{2591}')).collect();
    assert!(status == Some(0) && bars.first().is_some_and(|bar| bar.contains(" 0/3 ")), "{status:?} {text}");
    let bar = |words: &str| bars.iter().find(|bar| bar.contains(words)).unwrap_or_else(|| panic!("{words}: {text}"));
    let left = bar(" 1/3 best ").rsplit(' ').next().unwrap();
    assert!(bar(" 1/3 best ").contains(" cycles: i1=64 ") && left.ends_with(['s', 'm']) && left != "0s", "{left}");
    bar(" 2/3 best ");
    // A bar is a part of the width, filled by the share of the trials.
    let filled = |words: &str| bar(words).matches('\u{2588}').count();
    assert_eq!([filled(" 0/3 "), filled(" 1/3 best "), filled(" 2/3 best ")], [0, 10, 20], "{text}");
    // There are no lines of trials, and the last bar is wiped out before the table.
    assert!(!text.contains("1/3 i1="), "{text}");
    let (before, after) = text.split_once("3 trials: 3 right").unwrap_or_else(|| panic!("{text}"));
    assert!(before.ends_with("\u{1b}[2K") && !after.contains('\u{2588}'), "{text}");
}

/// The standard library opens /dev/null for a standard output that is closed. A third of the commands, as the commit draws them, and the first.
#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let ended = |line: &str| {
        let out = shell(line);
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let commands = [
        "explain --primitives",
        "explain --instructions",
        "dump examples/vec_add.loom",
        "run examples/vec_add.loom --small --device cpu",
        "doctor",
        "completions bash",
        "man",
        "--help",
        "dump --help",
        "--version",
        "explain examples/vec_add.loom --cost",
    ];
    for command in commands.into_iter().filter(|c| *c == commands[0] || drawn(&format!("no output {c}"), 3)) {
        let (status, error) = ended(&format!("exec warploom {command} >&-"));
        assert!(
            status == Some(74) && error.ends_with("cannot write the output: standard output is closed\n"),
            "{command}: {status:?} {error}"
        );
        let (status, error) = ended(&format!("exec warploom {command} >/dev/full"));
        assert!(status == Some(74) && error.contains("cannot write the output: "), "{command}: {status:?} {error}");
        // A reader that goes away is no fault, and neither is a file that drops everything.
        let (status, error) = ended(&format!("{{ warploom {command}; echo \"status $?\" >&2; }} | true"));
        assert!(status == Some(0) && error.ends_with("status 0\n"), "{command}: {error}");
        assert_eq!(ended(&format!("exec warploom {command} >/dev/null")).0, Some(0), "{command}");
        assert_eq!(ended(&format!("exec warploom {command} 1<>/dev/null")).0, Some(0), "{command}");
    }
    // What writes nothing there needs none.
    assert_eq!(ended("exec warploom fmt --check examples/vec_add.loom >&-").0, Some(0));
    let (status, error) = ended("exec warploom dump no/such.loom >&-");
    assert!(status == Some(1) && error.contains("[cli.file]"), "{status:?} {error}");
}
