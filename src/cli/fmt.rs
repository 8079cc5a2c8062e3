//! `warploom fmt`: files in the one layout.

use super::{input, show};
use crate::error::{Code, Error, Result};
use crate::tune;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to format.
#[derive(Debug, Args)]
pub struct FmtArgs {
    /// The .loom files to rewrite in the one layout.
    /// `-` is standard input, whose layout is printed.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write nothing: show what would change, and end with 1 where something would.
    #[arg(long)]
    check: bool,
}

/// Lines around a change that its diff shows.
const CONTEXT_LINES: usize = 2;

/// Formats each file. One that cannot be formatted is reported, and the others are.
pub fn run(args: &FmtArgs) -> Result<ExitCode> {
    let (mut status, mut changed) = (ExitCode::SUCCESS, 0);
    for file in &args.files {
        match format(file, args.check) {
            Ok(is_changed) => changed += usize::from(is_changed),
            Err(error) => {
                show::error(&error, &file.display().to_string());
                status = show::status(&error);
            }
        }
    }
    if args.check && changed > 0 {
        let files = show::count(changed, "file");
        show::note(format_args!("{files} of {} would change: run `warploom fmt` without --check", args.files.len()));
        return Ok(if status == ExitCode::SUCCESS { ExitCode::FAILURE } else { status });
    }
    Ok(status)
}

/// Formats a file; whether that changes it.
fn format(file: &Path, check: bool) -> Result<bool> {
    let before = input::text(file)?;
    let after = tune::format(&before)?;
    let is_input = file.to_str() == Some("-");
    if check {
        let name = file.display().to_string();
        let diff = similar::TextDiff::from_lines(&before, &after);
        show::put(diff.unified_diff().context_radius(CONTEXT_LINES).header(&name, &format!("{name}, formatted")));
    } else if is_input {
        show::put(&after);
    } else if before != after {
        std::fs::write(file, &after)
            .map_err(|e| Error::input(Code::CliFile, format!("cannot write {}: {e}", file.display())))?;
        show::note(format_args!("formatted {}", file.display()));
    }
    Ok(before != after)
}
