//! Samples: what a run tries of a set that is too long for every run. Another part for each commit; everything where `WARPLOOM_ALL`
//! is set.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

/// Whether everything is tried.
pub fn everything() -> bool {
    std::env::var_os("WARPLOOM_ALL").is_some()
}

/// The first 32 bits of the commit; 0 where no commit is known.
pub fn commit() -> u64 {
    static COMMIT: OnceLock<u64> = OnceLock::new();
    *COMMIT.get_or_init(|| {
        let git = std::process::Command::new("git")
            .args(["rev-parse", "--short=8", "HEAD"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        let name = git.ok().and_then(|out| String::from_utf8(out.stdout).ok()).unwrap_or_default();
        u64::from_str_radix(name.trim().get(..8).unwrap_or(""), 16).unwrap_or(0)
    })
}

/// Whether this commit tries the part of that name: one part in `of` is tried on average, and every part by some commit.
pub fn drawn(part: &str, of: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (commit(), part).hash(&mut hasher);
    everything() || hasher.finish().is_multiple_of(of)
}
