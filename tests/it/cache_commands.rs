//! `warploom cache`, and what a command does with a damaged entry.

use super::cli::{in_time, warploom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use warploom::artifact::Cache;

/// A cache in a folder of its own, which goes away.
struct Own(PathBuf);

impl Own {
    fn new(name: &str) -> Own {
        let path = std::env::temp_dir().join(format!("warploom-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Own(path)
    }

    /// Exit status, standard output and standard error of a command with this cache.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = warploom(arguments);
        command.env("WARPLOOM_CACHE", self.0.join("cache"));
        let out = in_time(command);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    }

    /// Fills the cache with a program for each of two chips.
    fn build(&self) -> String {
        let out = self.0.join("out.warploom");
        let build = ["build", "examples/vec_add.loom", "--target", "sm_80,sm_90", "-o", out.to_str().unwrap()];
        let (status, _, said) = self.run(&build);
        assert_eq!(status, Some(0), "{said}");
        said
    }

    /// The files of the entries, the one that was used last first.
    fn files(&self) -> Vec<PathBuf> {
        Cache::at(self.0.join("cache")).unwrap().entries().unwrap().into_iter().map(|entry| entry.path).collect()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn damage(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn entries_are_listed_collected_and_cleared() {
    let own = Own::new("commands");
    own.build();
    let (status, table, _) = own.run(&["cache", "ls"]);
    assert!(status == Some(0) && table.contains("2 programs, ") && table.contains("vec_add(A f32[1024]"), "{table}");
    let (_, rows, _) = own.run(&["cache", "ls", "--json"]);
    let rows: Vec<serde_json::Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut chips: Vec<&str> = rows.iter().map(|row| row["chip"].as_str().unwrap()).collect();
    chips.sort_unstable();
    assert_eq!(chips, ["sm_80", "sm_90"]);
    let files = own.files();
    let bytes = std::fs::metadata(&files[0]).unwrap().len();
    assert!(rows.iter().any(|row| row["bytes"] == bytes), "{rows:?}");
    // The entry that was used longest ago goes first.
    let old = SystemTime::now() - Duration::from_secs(1000);
    std::fs::File::open(&files[0]).unwrap().set_modified(old).unwrap();
    let limit = std::fs::metadata(&files[1]).unwrap().len().to_string();
    let (status, said, _) = own.run(&["cache", "gc", "--limit", &limit]);
    assert_eq!((status, said), (Some(0), format!("removed 1 file ({bytes} bytes)\n")));
    assert_eq!(own.files(), files[1..]);
    let (status, said, _) = own.run(&["cache", "clear"]);
    assert!(status == Some(0) && said.starts_with("removed 1 file (") && own.files().is_empty(), "{said}");
    let (status, said, _) = own.run(&["cache", "verify"]);
    assert_eq!((status, said), (Some(0), "0 programs right, 0 damaged\n".to_string()));
}

#[test]
fn damaged_entries_are_named_by_verify_and_removed() {
    let own = Own::new("verify");
    own.build();
    assert_eq!(own.run(&["cache", "verify"]).1, "2 programs right, 0 damaged\n");
    let file = own.files().remove(0);
    damage(&file);
    assert!(own.run(&["cache", "ls"]).1.contains("damaged"));
    let (status, text, said) = own.run(&["cache", "verify"]);
    assert_eq!((status, text), (Some(1), "1 program right, 1 damaged\n".to_string()));
    assert!(said.contains(&format!("removed {}: ", file.display())) && !file.exists(), "{said}");
    assert_eq!(own.run(&["cache", "verify"]).0, Some(0));
}

/// A command that finds a damaged entry compiles again, and names the entry once.
#[test]
fn a_damaged_entry_is_named_once_and_compiled_again() {
    let own = Own::new("flawed");
    own.build();
    let whole = std::fs::read(own.0.join("out.warploom")).unwrap();
    assert!(!own.build().contains("damaged"));
    let file = own.files().remove(0);
    damage(&file);
    let said = own.build();
    assert_eq!(said.matches(&format!("removed the damaged entry {}: ", file.display())).count(), 1, "{said}");
    assert_eq!(said.matches("damaged").count(), 1, "{said}");
    assert_eq!(std::fs::read(own.0.join("out.warploom")).unwrap(), whole);
    assert!(file.exists() && !own.build().contains("damaged"), "it was kept anew");
}

#[test]
fn a_cache_that_is_none_is_an_error_of_the_command() {
    let own = Own::new("none");
    std::fs::create_dir_all(&own.0).unwrap();
    std::fs::write(own.0.join("cache"), "a file").unwrap();
    for what in ["ls", "verify", "gc", "clear"] {
        let (status, _, error) = own.run(&["cache", what]);
        assert!(status == Some(4) && error.contains("[cache.open]") && error.contains("WARPLOOM_CACHE"), "{error}");
        let out = in_time(warploom(&["cache", what]));
        let error = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(1) && error.contains("WARPLOOM_CACHE is off"), "{error}");
    }
}
