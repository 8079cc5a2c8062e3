//! Looking inside a run: `--print` shows each write of an element, `--step` walks the program as its standard input says.

use super::cli::{File, bad, good, warploom};
use std::io::Write;
use std::process::Stdio;

/// Standard output of a walk with these commands, which must end by itself.
fn walked(arguments: &[&str], commands: &str) -> String {
    let mut child = warploom(&[&["run"][..], arguments, &["--step"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{commands:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// `C[i] = (A[i] + A[i + 1]) * 2` by way of a sum in shared memory, with known numbers.
const TEXT: &str = "program sums\ninput A s32[9]\nS[i 8] s32 = A[i] + A[i + 1]\noutput C[i 8] s32 = S[i] * 2\ntarget sm_80\n\
                    split i ? 4 -> b t\n";

#[test]
fn each_write_of_an_element_is_shown_with_its_place() {
    let text =
        good(&["run", "examples/mlc_shared.loom", "--size", "64", "--print", "C_local[9, 10]", "--print", "C[9, 10]"]);
    let writes: Vec<&str> = text.lines().filter(|l| l.starts_with("C")).collect();
    // The initialisation, a term for each k, and the copy to C.
    assert_eq!(writes.len(), 1 + 64 + 1, "{text}");
    assert!(writes[0].starts_with("C_local[9, 10] = 0.0  # line 11, block C_init: i_0 = 0 (blockIdx.y), "), "{text}");
    let third =
        "block C: i_0 = 0 (blockIdx.y), j_0 = 0 (blockIdx.x), tx = 9 (threadIdx.x), k_0 = 0, k_1 = 2, i_2 = 1, j_2 = 2";
    assert!(writes[3].ends_with(third), "{text}");
    let value = |line: &str| line.split(" = ").nth(1).and_then(|l| l.split("  #").next()).unwrap().to_string();
    assert_eq!(value(writes[64]), value(writes[65]), "{text}");
    assert!(text.contains("\n66 writes\nchecked against f64: "), "{text}");
    // All threads of a block copy A_shared together: in sequence each thread of the outer loop repeats the copy.
    let text = good(&["run", "examples/window_sum_cooperative.loom", "--print", "A_shared[128..130]"]);
    let writes: Vec<&str> = text.lines().filter(|l| l.starts_with("A_shared")).collect();
    assert_eq!(writes.len(), 4, "{text}");
    assert!(writes[0].ends_with("i_0 = 0 (blockIdx.x), ax0_0 = 1, ax0_1 = 0 (threadIdx.x)"), "{text}");
    assert!(writes[2].ends_with("i_0 = 1 (blockIdx.x), ax0_0 = 0, ax0_1 = 0 (threadIdx.x)"), "{text}");
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    for (element, says) in [
        ("S[3]", "has no buffer `S`"),
        ("C[1, 2]", "`C[1, 2]` has 2 indices, and the buffer has 1 dimension"),
        ("C[4096]", "not inside 0..4096"),
        ("A[3]", "`A` is an input: no statement writes it"),
        ("C[3", "names no elements"),
    ] {
        let (status, error) = bad(&["run", "examples/vec_add.loom", "--size", "4096", "--print", element]);
        assert!(status == Some(2) && error.contains(says), "{element}: {status:?} {error}");
    }
    let (status, error) = bad(&["run", "examples/vec_add.loom", "--print", "C[3]", "--device", "ptx"]);
    assert!(status == Some(2) && error.contains("not on device `ptx`"), "{error}");
    let (status, error) = bad(&["run", "-", "--step"]);
    assert!(status == Some(2) && error.contains("[cli.step]"), "{error}");
}

#[test]
fn a_program_is_walked_statement_by_statement() {
    let file = File::new("walked", TEXT);
    let text = walked(&[file.name()], "\np S[0..2]\n2\nw\nn\n\nq\n");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("2 statements"), "{text}");
    assert!(lines[1].contains("S[vi] = A[vi] + A[vi + 1]  # block S: b = 0, t = 0"), "{text}");
    let written = lines[2].trim().strip_prefix("S[0] = ").unwrap();
    assert!(lines[3].ends_with("# block S: b = 0, t = 1"), "{text}");
    assert_eq!(lines[4].trim(), format!("S[0] = {written}"));
    assert_eq!(lines[5].trim(), "S[1] is not written yet");
    // Two statements, then the next one is shown; `n` runs to the end of loop t.
    assert!(lines[6].trim().starts_with("S[1] = ") && lines[7].trim().starts_with("S[2] = "), "{text}");
    assert!(lines[8].ends_with("# block S: b = 0, t = 3"), "{text}");
    assert!(text.contains("\n>  ") && text.contains("# block S: b = 1, t = 0"), "{text}");
    assert!(text.ends_with("quit: the run ends after 5 statements, its result is not checked\n"), "{text}");
}

#[test]
fn a_walk_stops_at_breakpoints_and_ends_where_its_commands_end() {
    let file = File::new("breaks", TEXT);
    let text = walked(&[file.name()], "b C\nc\np S[7]\nb C\nc\n");
    assert!(text.contains("# block C: C_i = 0\n      S[7] = ") && text.contains("no longer stops at line "), "{text}");
    assert!(text.ends_with("of its bound\n"), "a walk to the end checks the result: {text}");
    let text = walked(&[file.name()], "");
    assert!(text.ends_with("the commands end: the run ends after 0 statements, its result is not checked\n"), "{text}");
    let text = walked(&[file.name()], "b nothing\nb 1\np T\nn x\n0\nfly\np\nh\nb\n\u{0}\n");
    for says in [
        "no statement is at `nothing`; blocks: S, C; lines of statements: ",
        "no statement is at `1`",
        "the scheduled program has no buffer `T`",
        "`x` is no number of loops",
        "`0` is no command",
        "`fly` is no command",
        "p needs elements",
        "run the next statement",
        "no breakpoints",
        "the commands end",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    // Beyond the outermost loop is the end of the nest.
    let text = walked(&[file.name()], "n 2\nn 5\n");
    assert!(text.contains("# block C: C_i = 0\n") && text.contains("checked against f64"), "{text}");
}
