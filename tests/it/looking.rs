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

/// The lowered program of a file in lines.
fn lowered(file: &str, size: &[&str]) -> Vec<String> {
    let text = good(&[&["dump", file, "--emit", "lowered"][..], size].concat());
    text.lines().map(str::to_string).collect()
}

#[test]
fn threads_write_what_the_scheduled_program_says() {
    let file = "examples/window_sum_cooperative.loom";
    let print = |more: &[&str]| {
        good(
            &[&["run", file, "--level", "lowered", "--print", "A_shared[129]", "--print", "B[128]"][..], more].concat(),
        )
    };
    let text = print(&[]);
    let writes: Vec<&str> = text.lines().filter(|l| l.contains("] = ")).collect();
    // Each of 8 blocks has an A_shared of its own.
    assert_eq!(writes.len(), 8 + 1, "{text}");
    assert!(
        text.starts_with("the lowered kernels, by threads\n") && text.contains("\n9 writes\nchecked against f64: ")
    );
    let line = 1 + lowered(file, &[]).iter().position(|l| l.trim_start().starts_with("A_shared[ax0_0")).unwrap();
    let place = format!("  # line {line}, block (0, 0, 0), thread (1, 0, 0): ax0_0 = 1");
    assert!(writes[0].ends_with(&place), "{}", writes[0]);
    // The values are those of the scheduled program, element by element.
    let scheduled = good(&["run", file, "--print", "A_shared[129]", "--print", "B[128]"]);
    let values = |text: &str, name: &str| -> Vec<String> {
        let of = |l: &str| Some(l.strip_prefix(name)?.strip_prefix(" = ")?.split("  #").next()?.to_string());
        text.lines().filter_map(of).collect()
    };
    assert_eq!(values(&text, "B[128]"), values(&scheduled, "B[128]"));
    assert_eq!(values(&text, "A_shared[129]")[0], values(&scheduled, "A_shared[129]")[0]);
    let (third, none) = (print(&["--block", "3"]), print(&["--thread", "5"]));
    assert!(third.contains("\n1 write\n") && third.contains("block (3, 0, 0)"), "{third}");
    assert!(none.contains("nothing has written A_shared[129]\nnothing has written B[128]\n0 writes\n"), "{none}");
}

/// Parameters have their own dimensions; registers are a thread's; what an engine writes is in flight when it starts.
#[test]
fn engines_and_instructions_write_too() {
    let file = "examples/worked_example.loom";
    let size = ["--size", "512x512x128"];
    let print = |elements: &[&str]| {
        let words: Vec<&str> = elements.iter().flat_map(|e| e.split(' ')).collect();
        good(&[&["run", file, "--level", "lowered"][..], &size, &words].concat())
    };
    let text = print(&["--print C[300,5]", "--print A_s[0]"]);
    let lines: Vec<&str> = text.lines().filter(|l| l.contains("] = ")).collect();
    let program = lowered(file, &size);
    let of = |line: &str| -> &str {
        let number: usize = line.split("# line ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        program[number - 1].trim_start()
    };
    // Stage 0 of the ring is filled in two of four tiles, in each of two blocks.
    assert!(lines.iter().filter(|l| l.starts_with("A_s[0] = ")).count() >= 4, "{text}");
    for line in &lines {
        assert!(line.contains(" in flight  # line ") && of(line).starts_with("bulk "), "{line}: {}", of(line));
    }
    let text = print(&["--print acc[5] --thread 130 --block 1"]);
    let sums: Vec<&str> = text.lines().filter(|l| l.starts_with("acc[5] = ")).collect();
    assert!(sums.iter().all(|l| of(l).starts_with("wgmma.m64n256k16") && l.contains("thread (130, 0, 0)")), "{text}");
    assert!(sums[1].ends_with(", k0 = 0, kk = 1") && sums[0].contains(" in flight  #"), "{}", sums[1]);
    // mma.sync, ldmatrix and cp.async.
    let text =
        good(&["run", "examples/gemm_cp_async.loom", "--size", "128", "--level", "lowered", "--print", "A_s[7]"]);
    assert!(text.lines().any(|l| l.starts_with("A_s[7] = ") && l.contains(" in flight  # line ")), "{text}");
    let text =
        good(&["run", "examples/mma_f16.loom", "--small", "--level", "lowered", "--print", "acc[0]", "--thread", "3"]);
    assert!(text.lines().filter(|l| l.starts_with("acc[0] = ")).count() > 1, "{text}");
}

#[test]
fn a_block_is_walked_with_all_its_warps() {
    let text = walked(
        &["examples/window_sum_cooperative.loom", "--level", "lowered", "--block", "2"],
        "\n\nb C\nc\np A_shared[128..131]\n\ns\nc\n",
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "kernel window_sum, block (2, 0, 0): 4 warps, 3 statements; `h` shows the commands", "{text}");
    assert_eq!(lines[3].trim(), "warps 0..4, threads 0..128: ax0_0 = 0", "{text}");
    assert!(lines[4].contains("A_shared[0] = ") && lines[4].ends_with("  # thread (0, 0, 0)"), "{text}");
    assert!(text.contains("      .. and 124 more writes\n"), "{text}");
    // Only two threads have a second element.
    assert!(text.contains("      warp 0, threads 0..2: ax0_0 = 1\n"), "{text}");
    assert!(
        text.contains("  barrier  # RAW A_shared: C reads what A_shared wrote\n      warps 0..4, threads 0..128\n"),
        "{text}"
    );
    assert!(text.contains("an index 128..131 that is not inside 0..130"), "{text}");
    assert!(text.ends_with("of its bound\n"), "a walk to the end checks the result: {text}");
}

#[test]
fn a_walk_shows_roles_mbarriers_and_what_is_in_flight() {
    let walk = |commands: &str| {
        walked(&["examples/worked_example.loom", "--level", "lowered", "--size", "512x512x256"], commands)
    };
    let text = walk("s\n\n\n\n\n\n\nt 8\n6\ns\nt\nb mma\nc\np acc[0] 200\n\ns\np A_s[0]\nq\n");
    assert!(text.contains("  mbarrier.init  # before any arrival or wait\n      warp 0, thread 0\n"), "{text}");
    assert!(text.contains("mbarrier A_s_empty[0..4]: not initialised\n"), "{text}");
    assert!(
        text.contains("      warps 0..8 of role compute, threads 0..256: tile_round = 0, i0 = 0, j0 = 0, k0 = 0\n"),
        "{text}"
    );
    assert!(text.contains("      warp 8 of role load, thread 256: "), "{text}");
    assert!(text.contains("warps 0..8: in line 25 waits for phase 0 of A_s_full[0]\n"), "{text}");
    assert!(text.contains("mbarrier A_s_full[0]: phase 0, 1 of 1 arrivals, 49152 bytes to come\n"), "{text}");
    assert!(text.contains("bulk load of 16384 bytes to A_s[0] in flight, counted on A_s_full[0]\n"), "{text}");
    assert!(text.contains("acc[0] of thread (200, 0, 0) is not written yet, or in flight\n"), "{text}");
    assert!(text.contains("; wgmma on 128 registers in flight, 0 closed groups\n"), "{text}");
    // The stage has landed when the MMA begins.
    assert!(text.contains("mbarrier A_s_full[0..4]: phase 1, 0 of 1 arrivals\n"), "{text}");
    assert!(text.contains("      A_s[0] = "), "{text}");
    let text = walked(
        &["examples/gemm_cp_async.loom", "--level", "lowered", "--size", "128"],
        "b A_s\nc\n2\ns\nt 99\nb nothing\np T\np C[0, 0..2]\nfly\nh\nq\n",
    );
    for says in [
        "warps 0..8: line ",
        "; cp.async of ",
        "`99` is no warp of the block",
        "no statement is at `nothing`; blocks: A_s, B_s, C, C_init, C_l; lines of statements: ",
        "the lowered program has no buffer `T`",
        "C[0, 1] is not written yet, or in flight",
        "`fly` is no command",
        "show warps, mbarriers and copies in flight",
        "quit: the run ends after ",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    // Every kind of kernel is walked to its end, with the result of every run.
    for (file, more) in [
        ("examples/worked_example.loom", &["--size", "512x512x128"][..]),
        ("examples/wgmma_f16_pingpong.loom", &["--small"]),
        ("examples/wgmma_f16_registers.loom", &["--small"]),
        ("examples/window_sum_roles.loom", &["--small"]),
        ("examples/split_k.loom", &["--small"]),
        ("examples/layernorm.loom", &["--small"]),
    ] {
        let text = walked(&[&[file, "--level", "lowered"][..], more].concat(), "c\n");
        assert!(text.ends_with("of its bound\n"), "{file}: {text}");
    }
}

#[test]
fn what_cannot_be_looked_at_by_threads_is_an_error() {
    let file = "examples/vec_add.loom";
    for (words, status, says) in [
        ("--level lowered", 2, "[cli.level]"),
        ("--step --block 0", 2, "[cli.level]"),
        ("--print C[0] --thread 0", 2, "[cli.level]"),
        ("--step --level lowered --block 8", 2, "no kernel has a block (8, 0, 0): the grids are [8, 1, 1]"),
        ("--step --level lowered --block 1,2,3,4", 2, "is no place"),
        ("--print C[5000] --level lowered", 2, "not inside 0..1024"),
        ("--print A[0] --level lowered", 2, "no statement of the lowered program writes `A`"),
        ("--print S[0] --level lowered", 2, "the lowered program has no buffer `S`"),
    ] {
        let words: Vec<&str> = ["run", file].into_iter().chain(words.split(' ')).collect();
        let (ended, error) = bad(&words);
        assert!(ended == Some(status) && error.contains(says), "{words:?}: {ended:?} {error}");
    }
    let late = File::new("late", "vec_add 64\ntarget sm_80\nbind i threadIdx.x\n");
    assert!(good(&["run", late.name(), "--level", "scheduled", "--print", "C[3]"]).contains("1 write\n"));
}
