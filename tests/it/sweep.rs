//! `warploom sweep` and `tune --random` on predicted cycles: their tables, their records, and the script that runs all of them.

use super::cli::{bad, good, output};
use super::scan::root;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use warploom::tune::Record;

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("warploom-sweep-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The cells of a row of a table.
fn row<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let found = text.lines().find(|l| l.strip_prefix("│ ").is_some_and(|l| l.starts_with(name)));
    let found = found.unwrap_or_else(|| panic!("{name}\n{text}"));
    found.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn the_tables_of_a_sweep_come_from_its_record() {
    let folder = Folder::new("tiling");
    let arguments = ["sweep", "tiling", "--device", "none", "--sizes", "64", "--max-threads", "32"];
    let arguments = [&arguments[..], &["--record", folder.name()]].concat();
    let text = good(&arguments);
    // 32 x 32 in tiles of 4 x 8, 8 x 4 and 8 x 8, and 8 x 8 of 32 x 64 and 64 x 32.
    assert!(
        text.starts_with("15 configurations: 5 block tiles x 5 thread tiles x 3 patterns = 75 at 1 size; 15 "),
        "{text}"
    );
    assert!(
        text.contains("predicted cycles at 1740 MHz (A40), not times") && text.contains("of an RTX A500"),
        "{text}"
    );
    let record = Record::read(&folder.0.join("tiling-64-32.record")).unwrap();
    let speed = |of: &dyn Fn(&str) -> bool| {
        let of = record.trials.iter().filter(|t| of(&t.name)).filter_map(|t| t.found.cycles);
        // 2 * 64^3 operations at the 1740 MHz of an A40.
        of.map(|cycles| 2.0 * 64f64.powi(3) / (cycles / 1.74e9) / 1e9).collect::<Vec<f64>>()
    };
    for pattern in ["standard", "k_after_threads", "k_innermost"] {
        let speeds = speed(&|name| name.ends_with(&format!("pattern={pattern}")));
        assert_eq!(speeds.len(), 5);
        let (average, best) = (speeds.iter().sum::<f64>() / 5.0, speeds.iter().copied().fold(0.0, f64::max));
        assert_eq!(row(&text, pattern)[1..3], [format!("{average:.0}"), format!("{best:.0}")], "{text}");
    }
    assert_eq!(row(&text, "8x4")[1], "32");
    assert_eq!(row(&text, "2x2")[1..4], ["-", "-", "-"]);
    let step_1 = speed(&|name| name == "step 1");
    assert_eq!(row(&text, "64x64 ")[1], format!("{:.0}", step_1[0]));
    // Nothing is tried again.
    let out = output(&arguments);
    assert_eq!(String::from_utf8(out.stdout).unwrap(), text);
    assert!(String::from_utf8(out.stderr).unwrap().contains("16 of 16 are in the record"));
    let (status, error) = bad(&[&arguments[..], &["--target", "sm_1"]].concat());
    assert!(status == Some(1) && error.contains("sm_1"), "{error}");
}

#[test]
fn random_products_have_shares_of_their_best_candidate() {
    let folder = Folder::new("random");
    let arguments = ["tune", "--random", "2", "--seed", "5", "--types", "f32", "--trials", "2", "--drawn", "1"];
    let arguments = [&arguments[..], &["--device", "none", "--target", "sm_80", "--record", folder.name()]].concat();
    let text = good(&[&arguments[..], &["--json"]].concat());
    let rows: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(rows.len(), 2, "{text}");
    for row in &rows {
        let share: Vec<f64> = row["share"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
        assert!(share.len() == 6 && share.is_sorted() && share[2] == 1.0 && share[5] == 1.0, "{row}");
        assert_eq!((&row["tried"], &row["valued"], &row["continued"]), (&3.into(), &3.into(), &false.into()), "{row}");
        assert!(row["seconds"].as_f64().unwrap() > 0.0 && row["cycles"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    // The table of the same records has the same shares, and says that the trials were known.
    let text = good(&arguments);
    for json in &rows {
        let cells = row(&text, json["gemm"].as_str().unwrap());
        assert_eq!(cells[3], format!("{:.3}", json["share"][0].as_f64().unwrap()), "{text}");
        assert!(cells[9].ends_with('*'), "{text}");
    }
    assert!(
        text.contains("│ geometric mean ") && text.contains("2 products, 6 candidates tried, 0 without a value"),
        "{text}"
    );
    let (status, error) = bad(&["tune", "--random", "2", "--gemm", "64"]);
    assert!(status == Some(2) && error.contains("--random"), "{error}");
}

/// The script with a stand-in for warploom that says what it is asked, and fails for one of the searches.
#[cfg(unix)]
#[test]
fn the_script_of_all_sweeps_keeps_the_tables_and_the_status() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("script");
    fs::create_dir_all(&folder.0).unwrap();
    let fake = folder.0.join("fake");
    fs::write(&fake, "#!/bin/sh\necho \"$@\"\n[ \"$2\" != mlc ] || { echo no >&2; exit 1; }\n").unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let out = folder.0.join("out");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(root().join("benches/seeds.sh"));
        command.arg(&out).args(arguments).env("WARPLOOM", &fake).env("DEVICE", "none").env("SEED", "7");
        command.output().unwrap()
    };
    let ran = run(&["3"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("mlc ended with status 1: no"), "{ran:?}");
    let records = out.join("records");
    for name in ["tiling", "autotvm", "mlc", "tensor-cores"] {
        let wanted = format!("sweep {name} --record {} --device none\n", records.display());
        assert_eq!(fs::read_to_string(out.join(format!("{name}.txt"))).unwrap(), wanted);
    }
    let wanted = format!("tune --random 3 --seed 7 --record {}/random --device none\n", records.display());
    assert_eq!(fs::read_to_string(out.join("random.txt")).unwrap(), wanted);
    let _ = fs::remove_file(out.join("random.txt"));
    run(&[]);
    assert!(!out.join("random.txt").exists());
    let none = Command::new(root().join("benches/seeds.sh")).output().unwrap();
    assert!(none.status.code() == Some(2) && String::from_utf8_lossy(&none.stdout).contains("benches/seeds.sh DIR"));
}
