//! The binary as a user meets it: what it prints, how it ends, and that a closed pipe is no fault.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub fn warploom(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).env("NO_COLOR", "1");
    // Tests compile; those of the cache name one.
    command.env("WARPLOOM_CACHE", "off");
    command
}

pub fn output(arguments: &[&str]) -> Output {
    in_time(warploom(arguments))
}

/// How long a command of a test may take: far more than any of them does.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a command to its end, which must come within [`LIMIT`].
pub fn in_time(mut command: Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id().to_string();
    let (ended, end) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let late = end.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout);
        late && Command::new("kill").args(["-9", &id]).status().is_ok()
    });
    let out = child.wait_with_output().unwrap();
    drop(ended);
    assert!(!watch.join().unwrap(), "{command:?} has not ended within {LIMIT:?}");
    out
}

/// Standard output of a command that must succeed.
pub fn good(arguments: &[&str]) -> String {
    let out = output(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Exit status and standard error.
pub fn bad(arguments: &[&str]) -> (Option<i32>, String) {
    let out = output(arguments);
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

/// A schedule in a file of its own, which goes away.
pub struct File(PathBuf);

impl File {
    pub fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("warploom-{}-{name}.loom", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    pub fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn run_checks_the_result_and_says_how_long_it_took() {
    let text = good(&["run", "examples/window_sum_cooperative.loom", "--device", "sim"]);
    assert!(text.contains("window_sum 1024, 7 steps, target sm_90\n"), "{text}");
    assert!(text.contains("ran on the simulator, thread by thread, in "), "{text}");
    assert!(text.contains("checked against f64: the largest error is 0."), "{text}");
    let text = good(&["run", "--gemm", "33x17x9", "--dtype", "f16", "--layout", "TN", "--device", "cpu"]);
    assert!(text.contains("gemm 33x17x9 f16>f32>f16 TN"), "{text}");
    let text = good(&["run", "examples/window_sum_cooperative.loom", "--device", "ptx"]);
    assert!(text.contains("ran as PTX on the simulator, thread by thread, in "), "{text}");
    assert!(text.contains("checked against f64: the largest error is 0."), "{text}");
    // Sizes are reduced as they are for the simulator.
    let text = good(&["run", "--gemm", "33x17x9", "--dtype", "f16", "--layout", "TN", "--device", "ptx"]);
    assert!(text.contains("gemm 33x17x9 f16>f32>f16 TN"), "{text}");
}

#[test]
fn products_of_every_type_run_by_their_names() {
    for (types, shown) in [
        ("bf16", "bf16>f32>bf16"),
        ("f16>f16>f16", "f16"),
        ("s8", "s8>s32>s32"),
        ("u8*s8>s32", "u8*s8>s32>s32"),
        ("s4", "s4>s32>s32"),
        ("u4", "u4>s32>s32"),
        ("b1", "b1>s32>s32"),
    ] {
        let text = good(&["run", "--gemm", "12x16x8", "--dtype", types, "--layout", "NT", "--device", "cpu"]);
        assert!(text.contains(&format!("gemm 12x16x8 {shown} NT, ")), "{text}");
        assert!(text.contains("checked against f64: the largest error is "), "{text}");
    }
}

#[test]
fn products_come_by_kinds() {
    let naive = ["dump", "--gemm", "64x32x16", "--dtype", "f16", "--kind", "naive", "--emit", "schedule"];
    assert!(good(&naive).contains("bind i_1 threadIdx.y"));
    let (status, error) = bad(&["dump", "--gemm", "8x8x8", "--kind", "fastest", "--emit", "ptx"]);
    assert!(status == Some(2) && error.contains("the kinds are naive, simt, wmma, mma"), "{error}");
    // f64 has neither fragments of wmma nor of mma.sync on Volta.
    let (status, error) = bad(&["run", "--gemm", "8x8x8", "--dtype", "f64", "--kind", "wmma", "--target", "sm_70"]);
    assert!(status == Some(3) && error.contains("[gemm.kind]"), "{error}");
}

/// Exit status, what was said, and the seconds that a command took under a limit of its address space.
fn limited(kib: u64, arguments: &[&str]) -> (Option<i32>, String, f64) {
    let start = std::time::Instant::now();
    let out = Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_warploom")])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (out.status.code(), said, start.elapsed().as_secs_f64())
}

#[test]
fn a_run_takes_no_more_memory_than_there_is() {
    let large = "program b\ninput A f32[60000, 60000]\noutput O[i 60000, j 60000] f32 = A[i, j] * 2.0\ntarget sm_80\n";
    let large = File::new("large", large);
    let (status, said, _) = limited(2 << 20, &["run", large.name(), "--device", "cpu"]);
    assert!(status == Some(4) && said.contains("[cli.memory]") && said.contains("GiB"), "{status:?} {said}");
    // The size that it chooses itself fits.
    let small = File::new(
        "chosen",
        "vec_add 68719476736\ntarget sm_80\nsplit i ? 256 -> a b\nbind a blockIdx.x\nbind b threadIdx.x\n",
    );
    let (status, said, _) = limited(1 << 20, &["run", small.name(), "--device", "cpu"]);
    assert!(status == Some(0) && said.contains("instead of vec_add 68719476736"), "{status:?} {said}");
}

#[test]
fn millions_of_short_rows_are_checked_soon() {
    let rows = File::new("rows", "batched_gemm 4294967296x2x1x1 f32 NN\ntarget sm_80\n");
    let (status, said, seconds) = limited(4 << 20, &["run", rows.name(), "--small", "--device", "cpu"]);
    assert!(status == Some(0) && seconds < 20.0, "{status:?} {seconds} {said}");
}

#[test]
fn bench_climbs_ladders_and_runs_lists() {
    let small = ["--device", "cpu", "--layout", "NT", "--dtype", "f16,s8", "--gemm", "24"];
    let text = good(&[&["bench", "--ladder"][..], &small].concat());
    assert_eq!(text.matches("naive: an element of C a thread").count(), 2, "{text}");
    assert!(text.contains("gemm 24x24x24 f16>f32>f16 NT") && text.contains("gemm 24x24x24 s8>s32>s32 NT"), "{text}");
    let text = good(&[&["bench", "--kinds", "naive,simt"][..], &small].concat());
    assert!(text.contains("simt s8>s32>s32") && text.contains("naive f16>f32>f16"), "{text}");
    // What nobody names is everything that the chip has, beyond the naive code.
    let kinds = |target| good(&["bench", "--gemm", "64", "--dtype", "f16", "--device", "cpu", "--target", target]);
    let (without, with) = (kinds("sm_90"), kinds("sm_90a"));
    assert!(without.contains("sm_90") && !without.contains("wgmma") && !without.contains("naive"), "{without}");
    assert!(["simt", "wmma", "mma", "wgmma", "sm_90a"].iter().all(|word| with.contains(word)), "{with}");
    let ladder = ["bench", "--ladder", "--gemm", "64", "--dtype", "f16", "--device", "cpu", "--target", "sm_90a"];
    let text = good(&ladder);
    assert!(text.contains("wgmma: A and B read from shared memory") && text.contains("sm_90a"), "{text}");
    let list = File::new("list", "# products\nf16 NT 16 >= 0.5\ns8 NN 16x8x8 naive beside s8 NT\n");
    let text = good(&["bench", "--suite", list.name(), "--device", "cpu"]);
    assert!(text.contains("f16 NT 16 >= 0.5") && text.contains("gemm 16x8x8 s8>s32>s32 NN"), "{text}");
    std::fs::write(&list.0, "f16 NT 16 fastest\n").unwrap();
    let (status, error) = bad(&["bench", "--suite", list.name(), "--device", "cpu"]);
    assert_eq!(status, Some(1));
    assert!(error.contains("an unknown word: `fastest`") && error.contains("in line 1 of the list"), "{error}");
    assert_eq!(bad(&["bench", "--gemm", "16", "--kinds", "fast"]).0, Some(2));
    let mma = ["bench", "--gemm", "128", "--dtype", "f16", "--target", "sm_90"];
    let rows = good(&[&mma[..], &["--candidates", "--device", "cpu", "--json"]].concat());
    let names: Vec<&str> =
        rows.lines().filter_map(|row| row.split("\"schedule\":\"").nth(1)?.split('"').next()).collect();
    // Candidates of ordinary code are behind the first by mma.sync, and there are no others.
    let (mma, others): (Vec<&str>, Vec<&str>) = names.iter().copied().partition(|n| n.starts_with("mma "));
    assert!(names[0].starts_with("mma ") && mma.len() > 2, "{names:?}");
    assert!(!others.is_empty() && others.iter().all(|n| n.starts_with("tiles ")), "{names:?}");
    // Kinds are those of products; a schedule has its own.
    assert_eq!(bad(&["bench", "--kinds", "simt", "examples/vec_add.loom"]).0, Some(2));
    let (status, error) = bad(&["bench", "--gemm", "16x8", "--device", "cpu"]);
    assert!(
        status == Some(2) && error.contains("[cli.gemm]") && error.contains("try: --gemm 1024x512x2048"),
        "{error}"
    );
    let (status, error) = bad(&["bench", "--ladder", "--target", "sm_5", "--device", "cpu"]);
    assert!(status == Some(1) && error.contains("[target.name]"), "{error}");
}

/// Without a GPU what is asked for is reduced, and said so, however large: an answer comes in seconds.
#[test]
fn bench_reduces_what_the_simulator_would_take_minutes_for() {
    let begin = std::time::Instant::now();
    let sizes = [&["--gemm", "4096", "--dtype", "f16", "--kinds", "mma,wmma"][..], &["--ladder", "--dtype", "f16"][..]];
    for words in sizes {
        let output = output(&[&["bench", "--device", "cpu"][..], words].concat());
        let (rows, notes) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{notes}");
        assert!(
            notes.contains(": reduced for the simulator: gemm ") && notes.contains(" instead of gemm 4096x4096x4096")
        );
        assert!(!rows.contains("4096") && rows.contains("mma"), "{rows}");
    }
    assert!(begin.elapsed().as_secs() < 120, "{:?}", begin.elapsed());
}

#[test]
fn run_plants_faults_on_request_and_says_what_finds_them() {
    let run = |words: &str| {
        let out =
            output(&["run", "examples/window_sum_cooperative.loom", "--small", "--device", "cpu", "--mutate", words]);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let (status, found, error) = run("barrier removed");
    assert_eq!((status, found.as_str()), (Some(0), "found by the simulator\n"));
    assert!(error.contains(" barrier removed: barrier (RAW A_shared: "), "{error}");
    assert!(error.contains("[sim.race]") && error.contains("nothing orders them"), "{error}");
    // The list has every damage once, and each is planted by its number.
    let (status, list, _) = run("list");
    let lines: Vec<&str> = list.lines().collect();
    assert!(status == Some(0) && lines.len() > 20, "{list}");
    let descriptions: std::collections::BTreeSet<&str> =
        lines.iter().filter_map(|l| l.split_once(' ').map(|(_, what)| what)).collect();
    assert_eq!(descriptions.len(), lines.len(), "{list}");
    let number = 1 + lines.iter().position(|l| l.contains("barrier removed")).unwrap();
    assert_eq!(run(&format!("#{number}")), (Some(0), found, error));
    // Words that several descriptions hold plant each of them; a fault that survives is said, and ends with 5.
    let (status, found, error) = run("loop ax0_0 runs");
    assert!(status == Some(5) && error.starts_with("2 mutants match `loop ax0_0 runs`\n"), "{error}");
    assert!(found.contains("NOT FOUND") && found.ends_with("1 of 2 found\n"), "{found}");
    let (status, _, error) = run("a hole");
    assert_eq!(status, Some(2));
    assert!(error.contains("matches `a hole`") && error.contains("try: barrier removed: "), "{error}");
    let (status, _, error) = run("#1000");
    assert!(status == Some(2) && error.contains("has mutants #1 to #29, not #1000"), "{error}");
}

#[test]
fn dump_prints_every_stage() {
    let text = good(&["dump", "examples/vec_add.loom", "--emit", "ptx,schedule,ir,lowered,llvm", "--target", "sm_75"]);
    let places: Vec<usize> = ["// ---- schedule", "// ---- ir", "// ---- lowered", "// ---- llvm", "// ---- ptx"]
        .iter()
        .map(|head| text.find(head).unwrap_or_else(|| panic!("no {head} in\n{text}")))
        .collect();
    assert!(places.is_sorted());
    assert!(text.contains("target sm_75\n") && text.contains(".target sm_75"), "{text}");
    let schedule = good(&["dump", "examples/d2l.loom", "--emit", "schedule"]);
    assert!(schedule.parse::<warploom::Schedule>().is_ok());
    let passes = good(&["dump", "examples/vec_add.loom", "--emit", "lowered", "--passes"]);
    assert!(passes.contains("# after blocks") && passes.contains("# after order"), "{passes}");
    let (status, error) = bad(&["dump", "examples/vec_add.loom", "--emit", "lowered", "--passes", "nope"]);
    assert_eq!(status, Some(2));
    assert!(error.contains("there is no pass `nope`"), "{error}");
    // A later pass fails: what was made before it is still to be seen.
    let lonely = "vec_add 64\ntarget sm_80\nsplit i ? 32 -> io ii; bind io blockIdx.x\ncache_read C A fragment -> A_f; compute_at A_f io";
    let file = File::new("lonely", lonely);
    let out = output(&["dump", file.name(), "--emit", "lowered", "--passes", "bind"]);
    let (printed, error) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(!out.status.success() && error.contains("no instruction uses fragment A_f"), "{error}");
    assert!(printed.contains("# after bind") && !printed.contains("# after compact"), "{printed}");
}

/// `dump --out` writes what `build -o` does: a folder, or one file by its name.
#[test]
fn dump_writes_one_file_where_its_name_says_so() {
    let folder = std::env::temp_dir().join(format!("warploom-dump-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("one.warploom");
    let name = path.to_str().unwrap();
    good(&["dump", "examples/vec_add.loom", "--out", name]);
    assert!(path.is_file() && good(&["inspect", name]).contains("vec_add"));
    let (status, error) = bad(&["dump", "examples/vec_add.loom", "--out", name, "--lines"]);
    assert!(status == Some(2) && error.contains("[cli.lines]") && error.contains("--out DIR --lines"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Files that cannot be written are refused before the run, with the file's name.
#[test]
fn outputs_of_a_run_are_checked_first() {
    let folder = std::env::temp_dir().join(format!("warploom-outputs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let name = |file: &str| format!("C={}/{file}", folder.display());
    let run = |output: &str| output_of(&["run", "examples/vec_add.loom", "--device", "sim", "--output", output]);
    std::fs::create_dir(folder.join("folder.npy")).unwrap();
    for (output, code) in [
        (name("a.txt"), "[array.file]"),
        (name("folder.npy"), "[artifact.write]"),
        (name("a.npy").replace("C=", "A="), "[cli.parameter]"),
    ] {
        let (text, error) = run(&output);
        assert!(error.contains(code) && !text.contains("checked against f64"), "{output}: {text}{error}");
    }
    let (text, error) = run(&name("new/c.npy"));
    assert!(text.contains("checked against f64") && folder.join("new/c.npy").is_file(), "{text}{error}");
    let left = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(left, 2);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Standard output and standard error.
fn output_of(arguments: &[&str]) -> (String, String) {
    let out = output(arguments);
    (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn sizes_that_a_file_does_not_take_are_refused_with_its_name() {
    let (file, folder) = ("examples/softmax.loom", std::env::temp_dir().join("never-written"));
    for command in [
        vec!["bench", file, "--sizes", "64", "--device", "sim"],
        vec!["build", file, "--sizes", "64", "-o", folder.to_str().unwrap()],
    ] {
        let (status, error) = bad(&command);
        assert!(status == Some(1) && error.contains(file), "{command:?}: {error}");
    }
    assert!(!folder.exists());
}

#[test]
fn cost_reports_are_text_or_json() {
    let text = good(&["explain", "--cost", "examples/gpu_v3.loom"]);
    for part in [
        "shared loads   67,108,864 requests, ",
        "limited by ",
        "^ A_shared load: 4 B, 4-way bank conflict",
        "where threadIdx.y < 8",
        "\nsums: each element of C adds 2048 terms in ascending vk, one at a time\n",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let json = good(&["explain", "--cost", "--json", "examples/gpu_v3.loom"]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["kernels"][0]["totals"]["shared_load_requests"], 67_108_864);
    assert_eq!(value["sums"], "each element of C adds 2048 terms in ascending vk, one at a time");
    assert_eq!(bad(&["explain", "--json", "examples/gpu_v3.loom"]).0, Some(2));
    let (status, error) = bad(&["explain", "--certificates", "examples/gpu_v3.loom"]);
    assert!(status == Some(2) && error.contains("`--certificates` is now `--cost`"), "{error}");
}

#[test]
fn explain_says_what_the_text_does_not_show() {
    let text = good(&["explain", "examples/window_sum_shared.loom"]);
    assert!(text.contains("step 1: split i ? 128 -> i_0 i_1"), "{text}");
    assert!(text.contains("one thread fills it"), "{text}");
    let text = good(&["explain", "examples/split_k.loom", "--last"]);
    assert!(text.contains("note: P is workspace of 4194304 bytes: kernel 1 writes it, kernel 2 reads it"), "{text}");
    let serial = File::new("serial", "vec_add 8\ntarget sm_70\n");
    assert!(good(&["explain", serial.name()]).contains("has no bound loop: it runs as one block of one thread"));
    let lone = File::new(
        "lone",
        "program p\ninput A f32[4, 8]\nm: M[i 4] f32 = max(k 8) A[i, k]\n\
        o: output O[i 4, j 8] f32 = A[i, j] - M[i]\ntarget sm_70\nset_scope M shared\nbind o_i blockIdx.x; bind j threadIdx.x",
    );
    let text = good(&["explain", lone.name()]);
    assert!(
        text.contains("note: this schedule does not compile for sm_70: error in the input [verify.safety]"),
        "{text}"
    );
    std::fs::write(&lone.0, std::fs::read_to_string(&lone.0).unwrap() + "; compute_at m o_i").unwrap();
    let text = good(&["explain", lone.name()]);
    assert!(text.contains("note: block m is under no loop bound to threads: one thread of a block runs it"), "{text}");
    assert!(!text.contains("does not compile"), "{text}");
    assert!(good(&["explain", "--primitives"]).starts_with("split LOOP FACTORS.. [-> LOOPS..]\n"));
    assert!(good(&["explain", "--primitives", "--markdown"]).contains("| `split LOOP FACTORS.."));
    assert_eq!(good(&["explain", "--programs", "--markdown"]), warploom::te::GRAMMAR);
    assert!(good(&["explain", "--programs"]).contains("\n    input BUFFER TYPE[EXTENT, ..]"));
}

#[test]
fn explain_says_what_the_code_of_an_error_means() {
    let meaning = "Threads access the same element, and nothing orders them.";
    let code: warploom::error::Code = "lower.race".parse().unwrap();
    let remedy = code.remedy().unwrap();
    assert_eq!(code.meaning(), meaning);
    let text = good(&["explain", "lower.race"]);
    assert!(text.starts_with(&format!("lower.race\n\n    {meaning}\n\n    try: Give each thread ")), "{text}");
    assert_eq!(good(&["explain", "lower.race", "--markdown"]), format!("# lower.race\n\n{meaning}\n\ntry: {remedy}\n"));
    let text = good(&["explain", "split.2"]);
    assert!(text.starts_with("split.2\n\n    requirement 2 of split: "), "{text}");
    assert!(text.ends_with("\n`warploom explain split` shows the step.\n"), "{text}");
    assert!(good(&["explain", "driver.222"]).contains("The CUDA driver answers"));
    assert!(good(&["explain", "split.lost"]).contains("\n    try: Report it "));
    assert!(good(&["explain", "--codes"]).contains(&format!("\nlower.race\n    {meaning}\n")));
    let row = format!("\n| `lower.race` | {meaning} | {remedy} |\n");
    assert!(good(&["explain", "--codes", "--markdown"]).contains(&row));
    let (status, error) = bad(&["explain", "lower.rase"]);
    assert!(status == Some(1) && error.contains("did you mean `lower.race`?"), "{error}");
    let (_, error) = bad(&["explain", "lower.loom"]);
    assert!(error.contains("[cli.file]"), "{error}");
}

#[test]
fn errors_underline_and_the_status_says_whose_they_are() {
    let typo = File::new("typo", "vec_add 8\ntarget sm_70\nsplti i ? 4\n");
    let (status, error) = bad(&["explain", typo.name()]);
    assert_eq!(status, Some(1));
    assert!(error.contains("there is no primitive `splti`") && error.contains("───"), "{error}");
    let (status, error) =
        bad(&["dump", "--gemm", "64x64x64", "--dtype", "f16", "--kind", "mma", "--target", "sm_70", "--emit", "ptx"]);
    assert_eq!(status, Some(3));
    assert!(error.contains("not possible on this chip"), "{error}");
    assert_eq!(bad(&["run", "no/such/file.loom"]).0, Some(1));
    assert_eq!(bad(&["run"]).0, Some(2));
    assert_eq!(bad(&["run", "--gemm", "0x1x1"]).0, Some(2));
    assert_eq!(bad(&["run", "--gemm", "8x8x8", "--dtype", "float"]).0, Some(2));
    assert_eq!(bad(&["run", "examples/vec_add.loom", "--size", "1x2"]).0, Some(1));
    assert_eq!(bad(&["run", "examples/vec_add.loom", "--device", "gpu"]).0, Some(2));
}

/// Every schedule of the cases that is refused is refused with a place in its file.
#[test]
fn errors_about_a_file_begin_with_their_place() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut refused = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for case in text.split("\n====\n").filter(|case| case.contains("\n---- error\n")) {
            let file = File::new("placed", case.split("\n---- ").next().unwrap());
            let (status, error) = bad(&["dump", file.name(), "--emit", "lowered"]);
            let place = error.strip_prefix(&format!("{}:", file.name())).unwrap_or_default();
            let numbers: Vec<&str> = place.splitn(3, ':').take(2).collect();
            let is_placed = numbers.len() == 2 && numbers.iter().all(|n| n.parse::<usize>().is_ok_and(|n| n > 0));
            assert!(is_placed && status != Some(0), "{status:?} {error}\nof {case}");
            refused += 1;
        }
    }
    assert!(refused > 80, "{refused}");
}

#[test]
fn help_fits_the_terminal() {
    for command in ["", "run", "dump", "bench", "sweep", "explain", "fmt", "doctor", "completions", "man"] {
        for (columns, option) in [(80, "--help"), (80, "-h"), (120, "--help"), (120, "-h"), (300, "--help")] {
            let words: Vec<&str> = [command, option].into_iter().filter(|w| !w.is_empty()).collect();
            let out = warploom(&words).env("COLUMNS", columns.to_string()).output().unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            assert!(out.status.success() && text.contains("Usage: warploom"), "{words:?}: {text}");
            let long: Vec<&str> = text.lines().filter(|l| l.chars().count() > columns.min(120)).collect();
            assert!(long.is_empty(), "{words:?} at {columns} columns: {long:?}");
        }
    }
    assert!(good(&["explain", "-h"]).contains("Or the name of a step"));
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    for arguments in [
        "bench examples/vec_add.loom --out NAME",
        "bench --gemm 16 --out NAME",
        "bench examples/vec_add.loom --only foo",
        "bench examples/vec_add.loom --candidates",
        "bench --ladder --gemm 16 --candidates",
        "bench examples/vec_add.loom --device cpu --seconds 2",
        "bench --suite benches/f32.suite --seconds nan",
        "bench --suite benches/f32.suite --seconds 0",
        "bench examples/vec_add.loom --dtype f16",
        "bench examples/vec_add.loom --layout NT",
        "bench --ladder --sizes 16",
        "run examples/vec_add.loom --dtype f16",
        "run examples/vec_add.loom --layout NT",
        "dump examples/vec_add.loom --kind simt",
        "dump examples/vec_add.loom --invariant --emit ptx",
        "dump --gemm 8x8x8 --kind simt --invariant --emit ptx",
        "bench --gemm 8x8x8 --kinds simt --invariant",
        "bench --ladder --invariant",
        "explain --certificates examples/vec_add.loom",
        "explain --primitives --cost examples/vec_add.loom",
        "explain --primitives examples/vec_add.loom",
        "explain --programs examples/vec_add.loom",
        "explain --last --cost examples/vec_add.loom",
    ] {
        let words: Vec<&str> = arguments.split(' ').chain(["--device", "cpu"]).collect();
        let with_device = matches!(words[0], "bench" | "run");
        let (status, error) = bad(if with_device { &words } else { &words[..words.len() - 2] });
        assert!(status == Some(2) && error.contains("--help"), "{arguments}: {status:?}\n{error}");
    }
    for (passes, wanted) in [("bind", "`lowered` is not among the dumps"), ("split", "there is no pass `split`")] {
        let (status, error) = bad(&["dump", "examples/vec_add.loom", "--emit", "ptx", "--passes", passes]);
        assert!(status == Some(2) && error.contains("[cli.pass]") && error.contains(wanted), "{error}");
    }
}

#[test]
fn huge_sizes_are_refused() {
    for size in ["9223372036854775807", "4611686018427387904", "1099511627776"] {
        for arguments in [&["dump", "--target", "sm_90a"][..], &["bench", "--ladder"], &["bench", "--candidates"]] {
            let (status, error) = bad(&[arguments, &["--gemm", size, "--dtype", "f16"]].concat());
            assert!(status == Some(1) && error.contains("[te."), "{arguments:?} {size}: {error}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_do_not_end_and_outputs_that_are_full_are_said() {
    // Bounded, so that a reader without a bound does not take the memory of the machine.
    let limited = |arguments: &str| {
        let line = format!("ulimit -v 8000000; exec {} {arguments}", env!("CARGO_BIN_EXE_warploom"));
        let out = Command::new("sh").args(["-c", &line]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    for arguments in ["run /dev/zero", "bench --suite /dev/zero --device cpu", "explain /dev/urandom"] {
        let (status, error) = limited(arguments);
        assert!(status == Some(1) && error.contains("[cli.file]") && error.contains("is longer than"), "{error}");
    }
    let (status, error) = limited("dump examples/vec_add.loom > /dev/full");
    assert!(status == Some(74) && error.starts_with("cannot write the output: "), "{status:?} {error}");
    assert!(good(&["--help"]).contains("74 the output cannot be written"));
}

#[test]
fn what_the_chip_cannot_is_checked_in_sequence_and_ends_so() {
    let file = File::new("chip", "vec_add 4096\ntarget sm_80\nbind i threadIdx.x\n");
    let out = output(&["run", file.name(), "--device", "cpu"]);
    let (printed, error) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(error.contains("runs in sequence instead") && printed.contains("in sequence, in "), "{printed}{error}");
    assert!(printed.contains("checked against f64"), "{printed}");
    assert_eq!(out.status.code(), Some(3));
}

#[test]
fn programs_with_strides_run() {
    let text = "program apart\ninput A f32[100, 100] strides [128, 1]\n\
                output B[i 100, j 100] f32 strides [104, 1] = A[i, j] + 1.0\ntarget sm_80\n\
                bind i blockIdx.x; bind j threadIdx.x\n";
    let text = good(&["run", File::new("strides", text).name(), "--device", "cpu"]);
    assert!(text.contains("apart, 2 steps") && text.contains("checked against f64"), "{text}");
}

#[test]
fn a_refused_step_is_shown_in_its_file() {
    let wrong = File::new("line", "# a comment\nvec_add 8\n\ntarget sm_70\n# another\nsplit nope ? 4\n");
    let (status, error) = bad(&["run", wrong.name(), "--device", "cpu"]);
    assert!(status == Some(1) && error.contains(&format!("{}:6:7", wrong.name())), "{error}");
    assert!(!error.contains("as printed"), "{error}");
}

#[test]
fn what_is_said_reads_well() {
    let text = "program p\ninput A f32[8]\nT[i 8] f32 = A[i]\noutput B[i 8] f32 = T[i]\n\
                output C[i 8] f32 = T[i] + A[i]\ntarget sm_80\n";
    let shared = File::new("shared", text);
    let note = "note: T is workspace of 32 bytes: kernel 1 writes it, kernels 2 and 3 read it";
    assert!(good(&["explain", shared.name()]).contains(note));
    // A line of any length is shown where it is wrong, and there alone.
    let long = File::new(
        "long",
        &format!("program p\ninput A f32[8]\noutput B[i 8] f32 = {}\ntarget sm_80\n", "9".repeat(200_000)),
    );
    let (status, error) = bad(&["run", long.name()]);
    assert!(status == Some(1) && error.contains("[te.limit]") && error.len() < 2_000, "{} bytes", error.len());
    let odd = "gemm 64x60x16 f16>f32>f32 NT\ntarget sm_90a\ntensorize i wgmma.m64n60k16.f32.f16.f16\n";
    let (_, error) = bad(&["run", File::new("width", odd).name()]);
    assert!(error.contains("its n is 8 to 256 in steps of 8") && !error.contains("did you mean"), "{error}");
}

#[test]
fn doctor_reports_every_part() {
    let report: serde_json::Value = serde_json::from_str(&good(&["doctor", "--json"])).unwrap();
    let parts: Vec<&str> = report["findings"].as_array().unwrap().iter().filter_map(|f| f["part"].as_str()).collect();
    assert!(parts.starts_with(&["compiler", "ptxas"]), "{parts:?}");
    assert!(parts.contains(&"device"), "{parts:?}");
    assert_eq!(report["findings"][0]["state"], "good");
}

#[test]
fn a_closed_pipe_is_no_fault() {
    let mut command = warploom(&["explain", "examples/mlc_shared.loom"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(error, "");
}
