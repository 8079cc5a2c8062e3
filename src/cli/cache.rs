//! `warploom cache`: lists, verifies and removes cached kernels.

use super::show;
use crate::artifact::Cache;
use crate::artifact::cache::LIMIT;
use crate::build::{self, CACHE_VARIABLE};
use crate::error::{Code, Error, Result};
use clap::{Args, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// Options of `warploom cache`.
#[derive(Debug, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the entries, most recently used first.
    Ls {
        /// One JSON object for each entry.
        #[arg(long)]
        json: bool,
    },
    /// Compare the checksums of every entry. Damaged entries are removed and named; the exit status is then 1.
    Verify,
    /// Evict the least recently used entries until the rest fits the limit, and remove unfinished files of killed processes.
    Gc {
        /// The size limit in bytes.
        #[arg(long, value_name = "BYTES", default_value_t = LIMIT)]
        limit: u64,
    },
    /// Remove all entries.
    Clear,
}

/// The user's cache. If it cannot be used, a note says why and kernels are compiled without it.
pub fn of_user() -> Option<Cache> {
    let cache = build::user_cache().unwrap_or_else(|e| {
        show::note(e.message());
        None
    });
    let told = |path: &Path, error: &Error| {
        show::note(format_args!("removed the damaged entry {}: {}; compiled again", path.display(), error.message()));
    };
    cache.map(|cache| cache.on_damage(told))
}

/// Runs the subcommand.
pub fn run(args: &CacheArgs) -> Result<ExitCode> {
    let Some(cache) = build::user_cache()? else {
        let message = format!("there is no cache: {CACHE_VARIABLE} is off, or there is no home folder");
        return Err(Error::input(Code::CacheOpen, message).help(format!("{CACHE_VARIABLE}=FOLDER")));
    };
    match args.what {
        What::Ls { json } => list(&cache, json)?,
        What::Verify => {
            let (right, damaged) = cache.verify()?;
            for (entry, error) in &damaged {
                show::note(format_args!("removed {}: {}", entry.path.display(), error.message()));
            }
            show::line(format_args!("{} right, {} damaged", show::count(right, "program"), damaged.len()));
            return Ok(ExitCode::from(u8::from(!damaged.is_empty())));
        }
        What::Gc { limit } => removed(cache.shrink(limit)?),
        What::Clear => removed(cache.clear()?),
    }
    Ok(ExitCode::SUCCESS)
}

fn removed(removed: crate::artifact::cache::Removed) {
    show::line(format_args!("removed {} ({} bytes)", show::count(removed.files, "file"), removed.bytes));
}

/// Prints a row for each entry.
fn list(cache: &Cache, json: bool) -> Result<()> {
    let entries = cache.entries()?;
    let mut table = show::table(&["key", "program", "chip", "bytes", "used s ago"]);
    for entry in &entries {
        let artifact = crate::artifact::Artifact::read(&entry.path);
        let first = artifact.ok().and_then(|a| a.variants.into_iter().next());
        let (program, chip) =
            first.map_or(("damaged".to_string(), String::new()), |v| (v.signature(), v.kernels.target));
        let age = SystemTime::now().duration_since(entry.used).map_or(0, |age| age.as_secs());
        if json {
            let row = serde_json::json!({
                "key": entry.key, "program": program, "chip": chip, "bytes": entry.bytes, "used_s_ago": age,
            });
            show::line(row);
        } else {
            table.add_row([entry.key[..12].to_string(), program, chip, entry.bytes.to_string(), age.to_string()]);
        }
    }
    if !json {
        show::line(table);
        let bytes: u64 = entries.iter().map(|e| e.bytes).sum();
        let all = show::count(entries.len(), "program");
        show::line(format_args!("{all}, {bytes} bytes, in {}", cache.folder().display()));
    }
    Ok(())
}
