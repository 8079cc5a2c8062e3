//! Trials on a device: kernels that are right are timed, and what goes wrong is the trial's own.

use super::command::Folder;
use super::mock::alone;
use super::programs::sum;
use std::fs;
use warploom::runtime::Device;
use warploom::tune::{Answer, Evaluator, Job, Record, Status, Task};

/// A device whose cache is soon made cold.
const SMALL: &str = "attribute 38 65536";

/// The program whose sum the driver's executor makes; its buffers are as large as that takes them to be.
fn text(block: u32) -> String {
    format!("vec_add 256\ntarget sm_80\nsplit i ? {block} -> a b\nbind a blockIdx.x; bind b threadIdx.x\n")
}

#[test]
fn trials_are_checked_timed_and_run_off() {
    alone(SMALL, |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let evaluator = Evaluator::new(Box::new(|job: &Job| job.name == "wrong")).on_device(&device).unwrap();
        let folder = std::env::temp_dir().join(format!("warploom-trials-{}", std::process::id()));
        let folders = [32, 64].map(|block| folder.join(block.to_string()));
        let ask = |task, block: u32, name: &str, folders: &[std::path::PathBuf]| -> Answer {
            evaluator.answer(&Job::new(block.into(), task, name, &text(block)).in_folders(folders))
        };
        for (block, own) in [32, 64].into_iter().zip(&folders) {
            let own = std::slice::from_ref(own);
            assert_eq!(ask(Task::Compile, block, "right", own).found.status, Status::Ok);
            let answer = ask(Task::Measure, block, "right", own);
            // A kernel of the mock driver takes 10 us, and so does a mark.
            assert!(answer.found.status == Status::Ok && (9.0..30.0).contains(&answer.found.us.unwrap()), "{answer:?}");
            assert!(answer.found.error_ratio.unwrap() <= 1.0 && answer.found.noise.is_some(), "{answer:?}");
            assert_eq!(ask(Task::Measure, block, "wrong", own).found.status, Status::Wrong);
        }
        let answer = ask(Task::Runoff, 32, "right", &folders);
        assert!(answer.found.status == Status::Ok && (0.5..2.0).contains(&answer.ratio.unwrap()), "{answer:?}");
        fs::remove_dir_all(&folder).unwrap();
        // Files that are gone are no kernels.
        assert_ne!(ask(Task::Measure, 32, "right", &folders[..1]).found.status, Status::Ok);
    });
}

/// The steps of a record of another device and driver are used, and the command names both of each.
#[test]
fn records_of_another_device_or_driver_are_used_with_a_warning() {
    let folder = Folder::new("elsewhere");
    let [file, line, path] = ["space.loom", "line.loom", "record"].map(|name| folder.file(name));
    fs::write(
        &file,
        "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? {4,8} -> a b\nbind a blockIdx.x\nbind b threadIdx.x\n",
    )
    .unwrap();
    fs::write(&line, "gemm 64x64x64 f32 NN\ntarget sm_80\nrecommend\n").unwrap();
    let name = |path: &std::path::Path| path.to_str().unwrap().to_string();
    let (line, record) = (name(&line), name(&path));
    let (status, _, said) = folder.run("", &["tune", &name(&file), "--device", "none", "--record", &record]);
    assert_eq!(status, Some(0), "{said}");
    let mut made = Record::read(&path).unwrap();
    made.header.device = "Mock 0".into();
    made.header.runs[0].driver = Some("12.4".into());
    let commands = [&["dump", "--emit", "schedule"][..], &["run", "--device", "0", "--once"]];
    let said = |made: &Record, what: &[&str]| {
        fs::write(&path, made.text().unwrap()).unwrap();
        folder.run("driver 12040", &[what, &[&line, "--records", &record]].concat()).2
    };
    for what in commands {
        let said = said(&made, what);
        assert!(!said.contains("warning"), "{said}");
    }
    made.header.device = "Mock 7".into();
    made.header.runs[0].driver = Some("11.8".into());
    for what in commands {
        let said = said(&made, what);
        for both in ["device: `Mock 7`, and this device is `Mock 0`", "driver: `11.8`, and this driver is `12.4`"] {
            assert!(said.contains(&format!("is of another {both}")), "{said}");
        }
    }
}

/// One allocation of a trial fails: the trial has the status `memory`, and the next one on the same device is timed.
#[test]
fn a_trial_without_memory_costs_itself() {
    alone(SMALL, |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let evaluator = Evaluator::new(Box::new(|_| false)).on_device(&device).unwrap();
        let folder = std::env::temp_dir().join(format!("warploom-memory-{}", std::process::id()));
        let ask =
            |task| evaluator.answer(&Job::new(1, task, "only", &text(32)).in_folders(std::slice::from_ref(&folder)));
        assert_eq!(ask(Task::Compile).found.status, Status::Ok);
        mock.journal();
        assert_eq!(ask(Task::Measure).found.status, Status::Ok);
        let allocations = mock.calls("cuMemAlloc_v2").len();
        // The first ones are of the three arrays, the others of their copies, which are timed.
        for call in [1, 2, 3, 4, allocations / 2, allocations] {
            mock.configure(&format!("{SMALL}\nfail cuMemAlloc_v2 {call} 2"));
            let found = ask(Task::Measure).found;
            assert_eq!((found.status, found.code.as_deref()), (Status::Memory, Some("driver.2")), "{found:?}");
            assert!(found.error.as_deref().is_some_and(|e| e.contains("memory")), "{found:?}");
            assert!(!evaluator.is_lost());
            mock.configure(SMALL);
            assert_eq!(ask(Task::Measure).found.status, Status::Ok, "after call {call}");
        }
        fs::remove_dir_all(&folder).unwrap();
    });
}

/// The trials before and behind one that has no memory have their own results.
#[test]
fn a_search_goes_on_after_a_trial_without_memory() {
    let folder = Folder::new("memory");
    let space = folder.file("space.loom");
    fs::write(&space, text(32).replace("? 32", "? {32,64,128}")).unwrap();
    // A trial allocates three arrays: these are the second trial's. No kernel runs here, so the other results are found wrong.
    for call in 4..=6 {
        let settings = format!("{SMALL}\nfail cuMemAlloc_v2 {call} 2");
        let (_, lines, said) = folder.run(&settings, &["tune", space.to_str().unwrap(), "--device", "0", "--json"]);
        let rows = lines.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        let rows: Vec<_> =
            rows.filter_map(|r| Some((r["status"].as_str()?.to_string(), r["code"].to_string()))).collect();
        let rows: Vec<_> = rows.iter().map(|(status, code)| [status.as_str(), code.as_str()]).collect();
        let (wrong, memory) = (["wrong", "\"reference.bound\""], ["memory", "\"driver.2\""]);
        assert_eq!(rows, [wrong, memory, wrong], "{said}");
    }
}

#[test]
fn a_trial_that_loses_the_device_costs_itself() {
    let folder = Folder::new("tune");
    let [space, record] = ["space.loom", "record"].map(|name| folder.file(name));
    let fixed = text(32).replace("? 32", "? {32,64}");
    fs::write(&space, &fixed).unwrap();
    let tune = ["tune", space.to_str().unwrap(), "--device", "0", "--json"];
    let rows = |settings: &str, more: &[&str]| {
        let (_, lines, said) = folder.run(settings, &[&tune[..], more].concat());
        let mut rows: Vec<serde_json::Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let result = rows.pop().unwrap_or_else(|| panic!("{said}"));
        assert_eq!((rows.len(), &result["best"]), (2, &serde_json::Value::Null), "{said}");
        rows.iter().map(|r| (r["status"].to_string(), r["code"].to_string())).collect::<Vec<_>>()
    };
    let both = |status: &str, code: &str| vec![(format!("\"{status}\""), format!("\"{code}\"")); 2];
    // No kernel runs here: the results are found wrong before any clock.
    assert_eq!(rows(SMALL, &["--record", record.to_str().unwrap()]), both("wrong", "reference.bound"));
    let header = fs::read_to_string(&record).unwrap();
    assert!(header.contains("\"device\":\"Mock 0\"") && header.contains("\"driver\":\""), "{header}");
    // Each trial has a context of its own after one that is lost.
    assert_eq!(rows(&format!("{SMALL}\nfault vec_add 700"), &[]), both("failed", "driver.700"));
    let hung = rows(&format!("{SMALL}\nhang vec_add forever"), &["--deadline", "2"]);
    assert!(hung.iter().all(|r| r.0 == "\"hung\""), "{hung:?}");
}
