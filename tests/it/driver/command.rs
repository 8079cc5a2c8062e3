//! The command line on a machine whose libcuda is the mock driver: it is found in the loader's path, as a real one is.

use super::mock::{Age, library};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use warploom::artifact::{Artifact, Cache};

/// A folder in which the driver has its usual name; it goes away.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("warploom-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(library(Age::New), folder.join("libcuda.so.1")).unwrap();
        Folder(folder)
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A command with these settings of the driver.
    fn command(&self, settings: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .envs([("NO_COLOR", "1"), ("WARPLOOM_CACHE", "off"), ("WARPLOOM_MOCK_SETTINGS", settings)])
            .env("LD_LIBRARY_PATH", &self.0);
        command
    }

    /// Exit status, standard output and standard error of a command with these settings of the driver.
    pub fn run(&self, settings: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let out = self.command(settings, arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_driver_of_the_loaders_path_is_taken() {
    let folder = Folder::new("doctor");
    let (status, report, _) = folder.run("driver 12040", &["doctor", "--json"]);
    assert_eq!(status, Some(0), "{report}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let fact = |part: &str| {
        let of = |f: &&serde_json::Value| f["part"] == part;
        report["findings"].as_array().unwrap().iter().find(of).map(|f| f["facts"].to_string()).unwrap_or_default()
    };
    assert!(fact("driver").contains("libcuda.so.1") && fact("driver").contains("CUDA 12.4"), "{}", fact("driver"));
    assert!(fact("device").contains("Mock 0, sm_90"), "{}", fact("device"));
}

#[test]
fn what_goes_wrong_on_a_device_ends_with_whose_it_is() {
    let folder = Folder::new("run");
    let run = ["run", "examples/vec_add.loom", "--device", "0"];
    for (settings, status, code) in [
        // No kernel runs here: the result is found wrong.
        ("", 70, "[reference.bound]"),
        ("fail cuMemAlloc_v2 1 2", 4, "[driver.2]"),
        ("fail cuInit 1 999", 4, "[driver.999]"),
        ("fault vec_add 700", 70, "[driver.700]"),
        ("capability 7.5\nfail cuModuleLoadDataEx 1 209", 3, "[driver.209]"),
        ("driver 11000", 4, "[driver.222]"),
        ("devices 0", 4, "[driver.100]"),
    ] {
        let (ended, _, error) = folder.run(settings, &run);
        assert!(ended == Some(status) && error.contains(code), "{settings}: {ended:?} {error}");
    }
    // What is underlined is the PTX, not the file.
    let (_, _, error) = folder.run("driver 11000", &run);
    assert!(error.contains("[ as printed:1:1 ]") && error.contains("current version is '7.0'"), "{error}");
    let (status, _, error) = folder.run("hang vec_add forever", &[&run[..], &["--patience", "1"]].concat());
    assert_eq!(status, Some(4), "{error}");
    assert!(
        error.contains("kernel vec_add of vec_add (grid 8 x 1 x 1, block 128 x 1 x 1): not finished within 1000 ms")
    );
}

#[test]
fn lines_come_with_the_text_that_they_count() {
    let folder = Folder::new("lines");
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/vec_add.loom");
    for command in ["run", "bench"] {
        let _ = fs::remove_file(folder.0.join("vec_add.lowered"));
        let out = folder
            .command("", &[command, file.to_str().unwrap(), "--device", "0", "--lines"])
            .current_dir(&folder.0)
            .output()
            .unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        // No kernel runs here: the result is found wrong.
        assert!(said.contains("wrote vec_add.lowered") && said.contains("[reference.bound]"), "{said}");
        let text = fs::read_to_string(folder.0.join("vec_add.lowered")).unwrap();
        assert!(text.contains("func vec_add("), "{text}");
    }
    let (status, _, error) = folder.run("", &["run", "examples/vec_add.loom", "--device", "cpu", "--lines"]);
    assert!(status == Some(2) && error.contains("[cli.lines]") && error.contains("try: --device 0"), "{error}");
}

#[test]
fn launches_are_timed_in_every_way_that_the_device_has() {
    let folder = Folder::new("launch");
    for (settings, kinds) in [("", 4), ("capability 7.5", 2)] {
        let (status, lines, notes) = folder.run(settings, &["bench", "--launch", "--json", "--device", "0"]);
        assert_eq!(status, Some(0), "{notes}");
        let rows: Vec<serde_json::Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((rows.len(), notes.matches("skipped").count()), (kinds, 4 - kinds), "{lines}{notes}");
        for row in &rows {
            let us = |way: &str| row[way].as_f64().unwrap_or_default();
            assert!(us("driver_us") > 0.0 && us("warploom_us") > 0.0 && us("graph_us") > 0.0, "{row}");
            assert_eq!(row["device"], "Mock 0");
        }
    }
    let (_, table, _) = folder.run("", &["bench", "--launch", "--device", "0"]);
    assert!(table.contains("3 arrays, 2 tensor maps, clusters of 2"), "{table}");
    let (status, _, error) = folder.run("", &["bench", "--launch", "--device", "cpu"]);
    assert!(status == Some(2) && error.contains("--device 0"), "{status:?} {error}");
}

#[test]
fn a_later_start_compiles_nothing() {
    let folder = Folder::new("start");
    let start = ["bench", "--start", "--gemm", "64,128", "--dtype", "f32,f16", "--device", "0"];
    let (status, lines, notes) = folder.run("", &[&start[..], &["--json"]].concat());
    assert_eq!(status, Some(0), "{notes}");
    let rows: Vec<serde_json::Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |row: &serde_json::Value| (row["cache"].as_str().unwrap().to_string(), row["llvm"].as_bool().unwrap());
    let (first, later) = (("empty".to_string(), true), ("filled".to_string(), false));
    assert_eq!(
        rows.iter().map(of).collect::<Vec<_>>(),
        [&first, &later].repeat(4).into_iter().cloned().collect::<Vec<_>>()
    );
    for row in &rows {
        let parts =
            ["device_ms", "steps_ms", "kernels_ms", "load_ms", "launch_ms"].map(|part| row[part].as_f64().unwrap());
        assert!(parts.iter().sum::<f64>() <= row["all_ms"].as_f64().unwrap() + 1e-6, "{row}");
    }
    let (_, table, _) = folder.run("", &["bench", "--start", "--device", "0"]);
    assert!(table.contains("f32 NN 4096x4096x4096") && table.contains("filled"), "{table}");
    // The process that failed says why and whose fault it is, once.
    for (settings, ended, code) in [("fail cuMemAlloc_v2 1 2", 4, "[driver.2]"), ("fault gemm 700", 70, "[driver.700]")]
    {
        let (status, _, error) = folder.run(settings, &start);
        assert!(status == Some(ended) && error.contains(code), "{status:?} {error}");
        assert!(!error.contains("[cli.launch]"), "{error}");
    }
    let (status, _, error) = folder.run("", &["bench", "--start", "--device", "cpu"]);
    assert!(status == Some(2) && error.contains("--device 0"), "{status:?} {error}");
}

/// The cache keeps the driver's machine code, so that a later process asks neither LLVM nor the driver's assembler.
#[test]
fn runs_and_measurements_keep_the_machine_code() {
    let folder = Folder::new("machine-code");
    let commands = [&["run"][..], &["run", "--once"], &["run", "--output", "C=c.npy"], &["bench"]];
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/vec_add.loom");
    for command in commands {
        let cache = folder.file("cache");
        let _ = fs::remove_dir_all(&cache);
        let run = |settings: &str| {
            let mut process =
                folder.command(settings, &[command, &[example.to_str().unwrap(), "--device", "0"]].concat());
            let out = process.env("WARPLOOM_CACHE", &cache).current_dir(&folder.0).output().unwrap();
            String::from_utf8(out.stderr).unwrap()
        };
        // No kernel runs here: the result is found wrong.
        let said = run("");
        assert!(said.contains("[reference.bound]"), "{command:?}: {said}");
        let entries = Cache::at(&cache).unwrap().entries().unwrap();
        let [entry] = &entries[..] else { panic!("{command:?}: {entries:?}") };
        let kept = Artifact::read(&entry.path).unwrap();
        let cubin = kept.variants[0].kernels.cubin.as_ref().unwrap();
        assert!(cubin.assembler.starts_with("driver ") && cubin.bytes.starts_with(b"\x7fELF"), "{}", cubin.assembler);
        // An assembler that is asked would fail.
        let said = run("fail cuLinkAddData_v2 1 218");
        assert!(said.contains("[reference.bound]") && !said.contains("[driver.218]"), "{command:?}: {said}");
        let _ = fs::remove_dir_all(&cache);
        assert!(run("fail cuLinkAddData_v2 1 218").contains("[driver.218]"), "{command:?}");
    }
}

#[test]
fn candidates_that_fail_are_said() {
    let folder = Folder::new("choice");
    let (status, _, error) =
        folder.run("", &["bench", "--gemm", "64", "--dtype", "f16", "--choice", "--device", "cpu"]);
    assert!(status == Some(2) && error.contains("[cli.launch]") && error.contains("--device 0"), "{status:?} {error}");
    let (status, table, error) =
        folder.run("", &["bench", "--gemm", "64", "--dtype", "f16", "--choice", "--device", "0"]);
    // No kernel runs here: the results are found wrong before any clock.
    assert!(status == Some(1) && error.contains("[reference.bound]") && table.contains("fastest"), "{table}{error}");
}

#[test]
fn kernels_of_dynamic_size_are_launched_at_each_value() {
    let folder = Folder::new("dynamic");
    let gemm = ["bench", "--gemm", "1..=64x64x64", "--dtype", "f16", "--layout", "NT", "--set", "M=3,64", "--fixed"];
    let (status, _, error) = folder.run("", &[&gemm[..], &["--device", "0"]].concat());
    // No kernel runs here: the results are found wrong before any clock.
    assert!(status == Some(1) && error.matches("[reference.bound]").count() == 4, "{error}");
    for name in ["recommended, M in 1..=64, gemm 1..=64x64x64 f16>f32>f16 NT", "recommended, M = 3, gemm 3x64x64"] {
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_table_of_record_holds_what_failed_too() {
    let folder = Folder::new("suite");
    let [list, out] = ["list.suite", "record"].map(|name| folder.0.join(name));
    fs::write(&list, "f16 NT 32 >= 0.5\ns4 NT 32x16x16 simt beside s8 NT\n").unwrap();
    let arguments = ["bench", "--device", "0", "--suite", list.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let (status, table, error) = folder.run("attribute 38 65536", &arguments);
    // No kernel runs here: the results are found wrong before any clock.
    assert_eq!(status, Some(1), "{error}");
    assert!(table.starts_with("Mock 0, CUDA ") && table.contains("| f16 NT 32 >= 0.5 | "), "{table}");
    assert_eq!(fs::read_to_string(out.with_extension("md")).unwrap(), table);
    let record = fs::read_to_string(out.with_extension("json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!((&record["device"]["name"], &record["rows"][0]["wanted"]), (&"Mock 0".into(), &0.5.into()));
    let failed = |n: usize| record["rows"][n]["error"].as_str().unwrap_or_default().to_string();
    assert!(failed(0).contains("[reference.bound]") && failed(0).contains("gemm 32x32x32 f16>f32>f16 NT"), "{record}");
    assert!(!failed(1).is_empty() && record["data"].as_str().is_some_and(|d| d.contains("seed 1")), "{record}");
}

#[test]
fn recommended_steps_are_for_the_chip_of_the_device() {
    let folder = Folder::new("chip");
    let dump = |settings: &str, more: &[&str]| {
        let (status, text, said) =
            folder.run(settings, &[&["dump", "--gemm", "512", "--emit", "schedule"], more].concat());
        assert_eq!(status, Some(0), "{settings}: {said}");
        (text.lines().find(|l| l.starts_with("target ")).unwrap_or("").to_string(), said)
    };
    assert_eq!(dump("capability 9.0", &["--dtype", "f16"]).0, "target sm_90a");
    assert_eq!(dump("capability 8.0", &["--dtype", "f16"]).0, "target sm_80");
    assert_eq!(dump("capability 8.7", &[]).0, "target sm_86");
    assert_eq!(dump("capability 8.0", &["--target", "sm_75"]).0, "target sm_75");
    let (target, said) = dump("capability 12.0", &["--dtype", "f16"]);
    assert!(target == "target sm_90" && said.contains("sm_120) is newer than every target"), "{target} {said}");
    // Without a device the types decide.
    assert_eq!(dump("devices 0", &["--dtype", "f16"]).0, "target sm_90a");
    assert_eq!(dump("devices 0", &[]).0, "target sm_90");
    // A run takes the chip, too: what it compiles is for this one. (No kernel runs here: the result is found wrong.)
    let run = ["run", "--gemm", "64", "--dtype", "f16", "--once", "--device", "0"];
    let (status, _, said) = folder.run("capability 8.0", &run);
    assert!(
        status == Some(70) && said.contains("[reference.bound]") && !said.contains("instead of"),
        "{status:?} {said}"
    );
}
