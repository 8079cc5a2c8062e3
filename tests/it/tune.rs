//! The tuner and its records, by the command line: what is found, what a worker's fault costs, and what a record survives.

use super::cli::{File, bad, good, output, warploom};
use super::kills::{self, ENDED, Stages};
use super::sample::drawn;
use super::scan::root;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use warploom::analysis::cost_report;
use warploom::artifact::{Artifact, Variant};
use warploom::compile;
use warploom::lower::lower;
use warploom::tune::{self, Record, Space};

/// Rows and columns of threads either way round: the columns of B and C are contiguous along threadIdx.x alone in one of them.
const SPACE: &str = "gemm 1024x512x32 f32 NN\ntarget sm_80\nsplit i ? {8,16} -> i0 i1; split j ? {16,32} -> j0 j1\n\
                     bind i0 blockIdx.y; bind j0 blockIdx.x\n\
                     bind i1 {rows: threadIdx.x,threadIdx.y}; bind j1 {columns: threadIdx.x,threadIdx.y}\n";

/// Many configurations that are soon tried.
const MANY: &str = "vec_add 64\ntarget sm_80\nsplit i ? {2,4,8,16,32} {1,2} -> i0 i1 i2; annotate i2 unroll_limit {2,3,4,5,6,7,8,9,10}\n\
                    bind i0 blockIdx.x; bind i1 threadIdx.x\n";

/// A file that goes away.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let path = std::env::temp_dir().join(format!("warploom-tune-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Temporary(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The rows of a run with `--json`: the trials, and the result.
fn tuned(arguments: &[&str], faults: &str) -> (Vec<Value>, Value) {
    let all = [&["tune", "--device", "none", "--json"], arguments].concat();
    let out = warploom(&all).env("WARPLOOM_TUNE_FAULTS", faults).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = rows.pop().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&out.stderr)));
    (rows, result)
}

/// 12345 as 12,345.
fn grouped(n: u64) -> String {
    if n < 1000 { n.to_string() } else { format!("{},{:03}", grouped(n / 1000), n % 1000) }
}

fn status(rows: &[Value], name: &str) -> (String, String) {
    let row = rows.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("{name}: {rows:?}"));
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_string();
    (text("status"), text("error"))
}

#[test]
fn all_of_a_small_space_is_tried_and_the_best_is_found() {
    let file = File::new("space", SPACE);
    let (rows, result) = tuned(&[file.name()], "");
    assert_eq!((rows.len(), &result["counts"]["ok"], &result["counts"]["refused"]), (16, &8.into(), &8.into()));
    // The least of the cycles that are counted here, one configuration after the other.
    let space = Space::parse(SPACE, None, None).unwrap();
    let cycles = |n: u64| {
        let schedule = space.configuration(n).unwrap().schedule.ok()?;
        let lowered = lower(&schedule.scheduled().ok()?, &schedule.target).ok()?;
        let kernels = warploom::compile(&schedule).ok()?;
        Some(cost_report(&lowered, &schedule.target).compiled(&kernels).predicted_cycles)
    };
    let least = (0..space.count()).filter_map(cycles).min_by(f64::total_cmp).unwrap();
    let best = &result["best"];
    assert_eq!(best["cycles"].as_f64(), Some(least), "{best}");
    // `explain --cost` prints the figure that the tuner orders by, whether there is a ptxas or not.
    let found = File::new("best-of-space", best["schedule"].as_str().unwrap());
    let cost: Value = serde_json::from_str(&good(&["explain", "--cost", "--json", found.name()])).unwrap();
    assert_eq!(cost["predicted_cycles"].as_f64(), Some(least), "{}", cost["kernels"][0]["predicted"]);
    let line = format!("  predicted      {} cycles, limited by ", grouped(least.ceil() as u64));
    assert!(good(&["explain", "--cost", found.name()]).contains(&line), "{line}");
    assert!(best["name"].as_str().unwrap().ends_with("rows=threadIdx.y columns=threadIdx.x"), "{best}");
    assert!(rows.iter().filter(|r| r["status"] == "ok").all(|r| r["error_ratio"].as_f64().is_some_and(|e| e <= 1.0)));
    // The table says why the others are refused.
    let text = good(&["tune", "--device", "none", file.name()]);
    assert!(text.contains(" = 16 configurations\n16 trials: 8 right, 8 without a value\n"), "{text}");
    assert!(
        text.contains("  6 refused [bind.4], such as: loop `j1` and loop `i1` on ")
            && text.contains("  2 refused [bind.5], "),
        "{text}"
    );
    assert!(text.contains("\nbind j1 threadIdx.x"), "{text}");
    let (first, second) = (result["best"].clone(), tuned(&[file.name()], "").1["best"].clone());
    assert_eq!(first, second);
}

#[test]
fn a_space_is_no_schedule_and_a_schedule_no_space() {
    let file = File::new("knobs", SPACE);
    for command in ["run", "dump", "explain"] {
        let (status, error) = bad(&[command, file.name()]);
        assert!(status == Some(1) && error.contains("[loom.knobs]") && error.contains("warploom tune"), "{error}");
        assert!(error.contains(":3:11: "), "{error}");
    }
    assert!(good(&["fmt", "--check", file.name()]).is_empty());
    let (status, error) = bad(&["tune", "--device", "none", "examples/vec_add.loom"]);
    assert!(status == Some(1) && error.contains("[tune.space]"), "{error}");
    let (status, error) = bad(&["tune", "--device", "none", "--gemm", "64", "--kind", "simt"]);
    assert!(status == Some(2) && error.contains("[cli.input]"), "{error}");
    let (status, error) = bad(&["tune", "--device", "gpu", file.name()]);
    assert!(status == Some(2) && error.contains("[cli.device]"), "{error}");
}

/// Each space has its configurations. The steps of all of them are applied in the smallest space, and in a third of the others.
#[test]
fn spaces_of_the_examples_are_whole() {
    let mut counts = Vec::new();
    let is_applied = |name: &str| name == "blocks_36" || drawn(&format!("space {name}"), 3);
    for entry in std::fs::read_dir(root().join("examples/spaces")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let space = Space::parse(&text, None, None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(tune::format(&text).unwrap(), text, "{}", path.display());
        let applies = |n: &u64| space.configuration(*n).and_then(|c| c.schedule.ok()?.scheduled().ok()).is_some();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let applied = is_applied(&name).then(|| (0..space.count()).filter(applies).count());
        counts.push((name, space.count(), applied));
    }
    counts.sort();
    // Steps of the spaces for tensor cores need tiles that all threads have a part of.
    let wanted = [
        ("blocks_36", 36, 36),
        ("mlc_tiles", 243, 243),
        ("tensor_cores_b1", 288, 165),
        ("tensor_cores_f16", 288, 181),
        ("tensor_cores_s4", 288, 121),
        ("tensor_cores_s8", 288, 181),
        ("tiling_75", 75, 75),
    ];
    let wanted = wanted.map(|(name, count, applied)| (name.to_string(), count, is_applied(name).then_some(applied)));
    assert_eq!(counts, wanted);
}

#[test]
fn a_worker_that_fails_costs_its_own_trial() {
    let file = File::new(
        "faults",
        "vec_add 4096\ntarget sm_80\nsplit i ? {32,64,128,256,512,1024,2048} -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x\n",
    );
    let faults = "hang i1=32; abort i1=64; panic i1=128; kill i1=256; rubbish i1=512";
    let (rows, result) = tuned(&[file.name(), "--deadline", "1"], faults);
    let cases = [
        ("32", "hung", "no answer within 2.0 s"),
        ("64", "crashed", "signal 6"),
        ("128", "crashed", "a fault that a test asks for"),
        ("256", "killed", "signal 9"),
        ("512", "garbled", "`rubbish`"),
        ("1024", "ok", ""),
        ("2048", "refused", "2048 threads"),
    ];
    for (block, wanted, words) in cases {
        let (status, error) = status(&rows, &format!("i1={block}"));
        assert!(status == wanted && error.contains(words), "{block}: {status} {error}");
    }
    assert_eq!(result["best"]["name"], "i1=1024");
    // A trial that hung has a second attempt, alone, which the record counts; one that answers then has a value.
    let attempts = |rows: &[Value], name: &str| rows.iter().find(|r| r["name"] == name).unwrap()["attempts"].clone();
    assert_eq!((attempts(&rows, "i1=32"), attempts(&rows, "i1=64")), (2.into(), Value::Null));
    let record = Temporary::new("attempts");
    let (rows, _) = tuned(&[file.name(), "--deadline", "2", "--record", record.name()], "hang-once i1=1024");
    assert_eq!((status(&rows, "i1=1024").0.as_str(), attempts(&rows, "i1=1024")), ("ok", 2.into()));
    let kept = Record::read(&record.0).unwrap().trials;
    assert_eq!(kept.iter().filter(|t| t.found.attempts == Some(2)).count(), 1);
    let (rows, result) = tuned(&[file.name(), "--memory", "300"], "wrong i1=32; memory i1=64");
    assert_eq!(status(&rows, "i1=32").0, "wrong");
    assert_eq!(rows.iter().find(|r| r["name"] == "i1=32").unwrap()["code"], "reference.bound");
    assert!(status(&rows, "i1=64").0 == "memory" && status(&rows, "i1=64").1.contains("a worker may take 300"));
    assert_eq!((&result["counts"]["ok"], &result["counts"]["refused"]), (&4.into(), &1.into()), "{result}");
    // Nothing is right: the command says so, and how often what went wrong.
    let all: String = [32, 64, 128, 256, 512, 1024].map(|n| format!("kill i1={n};")).concat();
    let out = warploom(&["tune", "--device", "none", file.name()]).env("WARPLOOM_TUNE_FAULTS", all).output().unwrap();
    let (text, error) =
        (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned());
    assert!(
        out.status.code() == Some(1) && error.contains("[tune.none]") && text.contains("  6 killed: "),
        "{text}{error}"
    );
}

/// Names of the trials that a tuner shows before it is killed, and whether it was killed.
fn shown_until_killed(arguments: &[&str], rng: &mut fastrand::Rng) -> (Vec<String>, bool) {
    let mut child = warploom(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut out, mut text) = (BufReader::new(child.stdout.take().unwrap()), String::new());
    // A quarter of them while they start.
    if rng.u8(..4) > 0 {
        out.read_line(&mut text).unwrap();
    }
    std::thread::sleep(Duration::from_micros(rng.u64(..25_000)));
    let _ = child.kill();
    out.read_to_string(&mut text).unwrap();
    let is_killed = !child.wait().unwrap().success();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let rows = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (rows.filter_map(|row| row["name"].as_str().map(str::to_string)).collect(), is_killed)
}

/// The stage at which a tuner was killed.
fn stage(record: &Path, shown: usize, is_killed: bool) -> String {
    let text = std::fs::read(record);
    let shown = match shown {
        0 => "before a trial was shown",
        1..=9 => "after 1 to 9 trials were shown",
        10..=89 => "after 10 to 89 trials were shown",
        _ => "after all trials were shown",
    };
    match text {
        _ if !is_killed => ENDED.into(),
        Err(_) => "before the record was made".into(),
        Ok(text) if !text.ends_with(b"\n") => "while a line of the record was written".into(),
        Ok(_) => shown.into(),
    }
}

/// Runs of a tuner, each killed at some point, go on with one record: it has every trial that any of them has shown, and none twice. Returns
/// how many were shown, and the stages of the kills.
fn killed(runs: usize, seed: u64) -> (usize, Stages) {
    let (file, mut rng) = (File::new(&format!("many-{seed}"), MANY), fastrand::Rng::with_seed(seed));
    let (mut count, mut record, mut shown) = (0, Temporary::new(&format!("killed-{seed}")), BTreeSet::new());
    let mut stages = Stages::default();
    for run in 1..=runs {
        let options = ["--device", "none", "--json", "--jobs", "1", "--trials", "90", "--record"];
        let arguments = [&["tune"], &options[..], &[record.name(), file.name()]].concat();
        let (names, is_killed) = shown_until_killed(&arguments, &mut rng);
        stages.count(stage(&record.0, names.len(), is_killed));
        shown.extend(names);
        if !is_killed || run % 10 == 0 || run == runs {
            good(&arguments);
            let kept = Record::read(&record.0).unwrap();
            let names: BTreeSet<String> = kept.trials.iter().map(|t| t.name.clone()).collect();
            assert!(names.is_superset(&shown), "{:?} are lost", shown.difference(&names).collect::<Vec<_>>());
            assert_eq!((kept.trials.len(), names.len()), (90, 90));
            count += std::mem::take(&mut shown).len();
            record = Temporary::new(&format!("killed-{seed}-{run}"));
        }
    }
    (count, stages)
}

#[test]
fn a_tuner_that_is_killed_loses_no_trial_that_it_has_shown() {
    let runs = kills::wanted(200);
    let (mut shown, mut stages) = (0, Stages::default());
    // On a host under load fewer trials are shown before the process is killed: more runs follow.
    for seed in [1, 3, 5] {
        if shown > runs && stages.kills() >= runs {
            break;
        }
        let halves = [seed, seed + 1].map(|seed| std::thread::spawn(move || killed(runs / 2, seed)));
        for half in halves {
            let (count, of_half) = half.join().unwrap();
            shown += count;
            stages.add(of_half);
        }
    }
    assert!(shown > runs && stages.kills() >= runs, "{shown} trials shown, {} kills", stages.kills());
    stages.print(&format!("tuners that continue a record of 90 trials, {shown} trials shown"));
}

#[test]
fn an_interrupt_keeps_what_was_tried() {
    let (file, record) = (File::new("interrupt", SPACE), Temporary::new("interrupt"));
    let name = "i1=16 j1=32 rows=threadIdx.y columns=threadIdx.x";
    let arguments = ["tune", "--device", "none", "--jobs", "1", "--record", record.name(), file.name()];
    let mut command = warploom(&arguments);
    command.env("WARPLOOM_TUNE_FAULTS", format!("hang {name}")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let id = child.id().to_string();
    // The hung trial is the 15th.
    let tried = || std::fs::read_to_string(&record.0).unwrap_or_default().lines().count();
    for _ in 0..500 {
        if tried() == 15 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(tried(), 15, "the tuner has not reached the trial that hangs");
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(130), "{text}");
    assert!(text.contains("14 trials: ") && text.contains("then interrupted"), "{text}");
    assert_eq!(Record::read(&record.0).unwrap().trials.len(), 14);
    let (rows, result) = tuned(&["--record", record.name(), file.name()], "");
    assert_eq!((rows.len(), &result["trials"]), (2, &16.into()));
}

#[test]
fn records_are_listed_verified_merged_and_exported() {
    let file = File::new("recorded", SPACE);
    let parts = ["a", "b"].map(Temporary::new);
    for (n, part) in parts.iter().enumerate() {
        let seed = (n + 1).to_string();
        tuned(&["--record", part.name(), "--seed", &seed, file.name()], "");
    }
    let [a, b] = parts.each_ref().map(Temporary::name);
    assert!(good(&["records", "ls", a, b]).contains("gemm 1024x512x32 f32 NN"));
    assert!(good(&["records", "show", a]).contains("  6 refused [bind.4], "));
    let (first, second) = (good(&["records", "merge", a, b]), good(&["records", "merge", b, a]));
    assert!(first == second && first.lines().count() == 25, "{first}");
    assert!(String::from_utf8(output(&["records", "merge", a, b]).stderr).unwrap().contains("data seed: 1, 2"));
    assert_eq!(good(&["records", "verify", a]), format!("{a}: 17 lines as written\n"));

    // A changed bit is named by its line, and a record that is damaged is not used.
    let damaged = Temporary::new("damaged");
    let mut bytes = std::fs::read(a).unwrap();
    let line = bytes[..3000].iter().filter(|b| **b == b'\n').count() + 1;
    bytes[3000] ^= 2;
    std::fs::write(&damaged.0, bytes).unwrap();
    let out = output(&["records", "verify", a, damaged.name()]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.code() == Some(1) && said.contains(&format!("{}:{line}: ", damaged.name())), "{said}");
    for command in [vec!["records", "export"], vec!["tune", "--device", "none", file.name(), "--record"]] {
        let (status, error) = bad(&[command.as_slice(), &[damaged.name()]].concat());
        assert!(
            status == Some(1) && error.contains("[tune.damage]") && error.contains(&format!("line {line}")),
            "{error}"
        );
    }

    // The best schedule is a schedule.
    let exported = File::new("exported", &good(&["records", "export", a]));
    assert!(good(&["run", "--device", "cpu", exported.name()]).contains("checked against f64"));
    // Another program is refused, and so is its record beside this one.
    let other = File::new("other-space", &SPACE.replace("1024x512x32", "512x512x32"));
    let (status, error) = bad(&["tune", "--device", "none", "--record", a, other.name()]);
    assert!(status == Some(1) && error.contains("[tune.mismatch]") && error.contains("another program"), "{error}");
}

/// A schedule that was tried several times counts by its median: one lucky trial does not rank it first.
#[test]
fn a_table_of_trials_ranks_medians() {
    let (file, record) = (File::new("medians", SPACE), Temporary::new("medians"));
    tuned(&["--record", record.name(), file.name()], "");
    let mut read = Record::read(&record.0).unwrap();
    read.trials.retain(|t| t.value().is_some());
    read.trials.truncate(2);
    let [mut lucky, mut steady] = [read.trials[0].clone(), read.trials[1].clone()];
    read.trials.clear();
    for (first, second) in [(10.0, 15.0), (30.0, 16.0)] {
        (lucky.found.us, steady.found.us) = (Some(first), Some(second));
        read.trials.extend([lucky.clone(), steady.clone()]);
    }
    std::fs::write(&record.0, read.text().unwrap()).unwrap();
    let text = good(&["records", "show", record.name()]);
    let rows: Vec<&str> = text.lines().filter(|l| l.starts_with("│ ") && !l.contains("configuration")).collect();
    let [first, second] = rows[..] else { panic!("{text}") };
    assert!(first.contains(&steady.name) && first.contains(" 15.50 ") && first.contains(" 1.000 "), "{text}");
    assert!(second.contains(&lucky.name) && second.contains(" 20.00 ") && second.contains(" 1.290 "), "{text}");
    let exported = good(&["records", "export", record.name()]);
    assert!(exported.starts_with(&format!("# {}: 15.50 us\n", steady.name)), "{exported}");
    assert!(good(&["records", "ls", record.name()]).contains("15.50 us"));
}

/// A file that cannot be written is refused before the first trial, and nothing is left behind.
#[test]
fn the_file_of_the_result_is_checked_first() {
    let file = File::new("checked-first", SPACE);
    let folder = std::env::temp_dir();
    for out in [folder.to_str().unwrap(), &format!("{}/best.loom", file.name())] {
        let (status, error) = bad(&["tune", "--device", "none", file.name(), "--out", out]);
        assert!(status == Some(1) && error.contains("[artifact.write]") && !error.contains("16 trials"), "{error}");
        assert!(!error.contains("predicted cycles"), "{error}");
    }
    let out = Temporary::new("checked-first.loom");
    good(&["tune", "--device", "none", "--trials", "16", file.name(), "--out", out.name()]);
    assert!(std::fs::read_to_string(&out.0).unwrap().starts_with("# i1="));
}

#[test]
fn recommended_steps_come_from_a_record_of_the_program_and_the_chip() {
    let (file, record) = (File::new("consulted", SPACE), Temporary::new("consulted"));
    tuned(&["--record", record.name(), file.name()], "");
    let dump = |size: &str, more: &[&str]| {
        good(&[&["dump", "--emit", "schedule", "--gemm", size, "--target", "sm_80"], more].concat())
    };
    let best = "bind i1 threadIdx.y\nbind j1 threadIdx.x\n";
    assert!(dump("1024x512x32", &["--records", record.name()]).contains(best));
    assert!(!dump("1024x512x32", &[]).contains(best));
    assert!(!dump("1024x512x64", &["--records", record.name()]).contains(best));
    let line = File::new("line", "gemm 1024x512x32 f32 NN\ntarget sm_80\nrecommend\n");
    let text = good(&["dump", "--emit", "schedule", line.name(), "--records", record.name()]);
    assert!(text.contains(best), "{text}");
    // `build` takes the same steps, and says where there are none.
    let folder = Temporary::new("built.warploom");
    let build = |what: &[&str]| {
        let all = [&["build", "-o", folder.name(), "--records", record.name(), "--target", "sm_80"], what].concat();
        let out = output(&all);
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.success(), "{said}");
        (good(&["inspect", folder.name(), "--variant", "1", "--emit", "schedule"]), said)
    };
    for what in [&[line.name()][..], &["--gemm", "1024x512x32"]] {
        let (text, said) = build(what);
        assert!(text.contains(best) && !said.contains("not from a record"), "{what:?}: {text}{said}");
    }
    let (text, said) = build(&["--gemm", "1024x512x64"]);
    assert!(!text.contains(best) && said.contains("the steps are not from a record"), "{said}");
    let (status, error) = bad(&["dump", line.name(), "--records", "no-such-record"]);
    assert!(status == Some(1) && error.contains("[tune.record]"), "{error}");
}

/// A record of another compiler is used with a warning that has both names.
#[test]
fn a_record_of_another_compiler_is_used_with_a_warning() {
    let (file, record) = (File::new("elsewhere", SPACE), Temporary::new("elsewhere"));
    tuned(&["--record", record.name(), file.name()], "");
    let said = |what: &[&str]| {
        let out = output(&[what, &["--gemm", "1024x512x32", "--target", "sm_80", "--records", record.name()]].concat());
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.success(), "{said}");
        said
    };
    let out = Temporary::new("elsewhere.warploom");
    let commands = [&["dump", "--emit", "schedule"][..], &["explain"], &["build", "-o", out.name()]];
    commands.iter().for_each(|what| assert!(!said(what).contains("warning"), "{what:?}"));
    let mut read = Record::read(&record.0).unwrap();
    let own = std::mem::replace(&mut read.header.runs[0].compiler, "warploom 0.0.1".into());
    std::fs::write(&record.0, read.text().unwrap()).unwrap();
    for what in commands {
        let (said, both) = (said(what), format!("another compiler: `warploom 0.0.1`, and this compiler is `{own}`"));
        assert_eq!(said.matches(&both).count(), 1, "{what:?}: {said}");
    }
}

/// Without `--ranges` a record of the whole range of M is one kernel; parts of the range have the steps of their records.
#[test]
fn ranges_of_m_take_the_steps_of_their_records() {
    let [whole, part, out] = ["whole", "part", "ranges.warploom"].map(Temporary::new);
    let gemm = |size: &'static str| ["--gemm", size, "--dtype", "f16", "--layout", "NT", "--target", "sm_80"];
    let build = |more: &[&str]| {
        let out = output(&[&["build", "-o", out.name()], &gemm("1..=256x256x256")[..], more].concat());
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.success(), "{said}");
        said
    };
    let built = || Artifact::read(&out.0).unwrap().variants;
    build(&["--ranges", "2"]);
    let [first, second] = &built()[..] else { panic!("two ranges") };
    let (low, high) = (&first.kernels.sizes[0], &second.kernels.sizes[0]);
    let size: &'static str = format!("{}..={}x256x256", low.low, low.high).leak();
    // A record whose one trial is slower than the recommended steps, so that it tells where it is used.
    for (size, record) in [("1..=256x256x256", &whole), (size, &part)] {
        tuned(&[&["--record", record.name(), "--trials", "3"], &gemm(size)[..]].concat(), "");
        let mut read = Record::read(&record.0).unwrap();
        let last = read.trials.iter().rposition(|t| t.value().is_some()).unwrap();
        read.trials = vec![read.trials.swap_remove(last)];
        std::fs::write(&record.0, read.text().unwrap()).unwrap();
    }
    let schedule = |record: &Temporary| Record::read(&record.0).unwrap().schedule().unwrap();
    let is_of =
        |variant: &Variant, record: &Temporary| compile(&schedule(record)).unwrap().ptx() == variant.kernels.ptx();
    let said = build(&["--records", whole.name()]);
    let [one] = &built()[..] else { panic!("{said}") };
    assert!(is_of(one, &whole) && said.contains("one kernel for the whole range, as in its record"), "{said}");
    let said = build(&["--records", whole.name(), "--ranges", "2"]);
    assert!(built().len() == 2 && said.contains("--ranges 1 is one kernel by them"), "{said}");
    let said = build(&["--records", part.name(), "--ranges", "2"]);
    let [one, other] = &built()[..] else { panic!("{said}") };
    assert!(
        is_of(one, &part) && other.schedule == second.schedule && said.contains(": the steps of a record"),
        "{said}"
    );
    assert_eq!((&one.kernels.sizes[0], &other.kernels.sizes[0]), (low, high));
    // A record of another program changes nothing, and the command says so.
    let (file, other) = (File::new("another", SPACE), Temporary::new("another"));
    tuned(&["--record", other.name(), file.name()], "");
    let said = build(&["--records", other.name(), "--ranges", "2"]);
    assert!(built()[0].schedule == first.schedule && said.contains("no record is of a range"), "{said}");
}

/// The candidates of a GEMM are a space, also of a line `recommend`.
#[test]
fn candidates_of_a_gemm_are_tuned() {
    let arguments = ["--gemm", "64x64x64", "--dtype", "f16", "--target", "sm_80", "--trials", "3"];
    let (rows, result) = tuned(&arguments, "");
    assert_eq!((rows.len(), &result["counts"]["ok"]), (3, &3.into()), "{rows:?}");
    assert!(rows.iter().any(|r| r["name"].as_str().is_some_and(|n| n.starts_with("mma "))), "{rows:?}");
    let line = File::new("candidates", "gemm 64x64x64 f16>f32>f16 NN\ntarget sm_80\nrecommend\n");
    let (again, _) = tuned(&[line.name(), "--trials", "3"], "");
    let names = |rows: &[Value]| rows.iter().map(|r| r["name"].to_string()).collect::<BTreeSet<_>>();
    assert_eq!(names(&again), names(&rows));
}
