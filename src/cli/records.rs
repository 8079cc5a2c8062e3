//! `warploom records`: records of the tuner, listed, shown, verified, merged and exported.

use super::{input, show, trials};
use crate::artifact;
use crate::error::{Code, Error, Result};
use crate::loom::Schedule;
use crate::tune::{Record, records};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to do with records.
#[derive(Debug, Args)]
pub struct RecordsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A row for each record: program, chip, device, trials, the best.
    Ls {
        /// Records.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// What a record is of, its trials that have a value, and why the others have none.
    Show {
        /// A record.
        file: PathBuf,
        /// One line of JSON: the header, the trials and the runoffs.
        #[arg(long)]
        json: bool,
    },
    /// Name every line that is not what was written. Ends with 1 if there is one.
    Verify {
        /// Records.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Merge records of one program, chip and device: the same bytes whatever their order.
    Merge {
        /// Records.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Write the record into this file instead of printing it.
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the best schedule as a .loom text.
    Export {
        /// A record.
        file: PathBuf,
        /// Write the schedule into this file instead of printing it.
        #[arg(long, short, value_name = "FILE.loom")]
        out: Option<PathBuf>,
    },
}

/// Does it.
pub fn run(args: &RecordsArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Ls { files } => return list(files),
        Command::Verify { files } => return verify(files),
        Command::Show { file, json } => shown(&Record::read(file)?, *json)?,
        Command::Merge { files, out } => {
            let one = |file: &PathBuf| Ok((file.display().to_string(), Record::read(file)?));
            let merged = Record::merge(files.iter().map(one).collect::<Result<Vec<_>>>()?)?;
            merged.header.warnings().iter().for_each(show::note);
            put(&merged.text()?, out.as_deref())?;
        }
        Command::Export { file, out } => {
            let record = Record::read(file)?;
            put(&trials::exported(&record.trials, record.best()?), out.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes into a file, or prints.
fn put(text: &str, file: Option<&Path>) -> Result<()> {
    match file {
        Some(file) => {
            artifact::write_file(file, text)?;
            show::note(format_args!("wrote {}", file.display()));
        }
        None => show::put(text),
    }
    Ok(())
}

fn list(files: &[PathBuf]) -> Result<ExitCode> {
    let mut table = show::table(&["record", "program", "target", "device", "trials", "value", "best"]);
    let mut is_whole = true;
    for file in files {
        let name = file.display().to_string();
        match Record::read(file) {
            Ok(record) => {
                let (h, best) = (&record.header, record.winner());
                let program = title(&record);
                let value = best.map_or("-".into(), |b| trials::median(&record.trials, b));
                let best = best.map_or("-".into(), |b| b.name.clone());
                let trials = record.trials.len().to_string();
                table.add_row([name, program, h.target.clone(), h.device.clone(), trials, value, best]);
            }
            Err(e) => {
                show::error(&e, &name);
                is_whole = false;
            }
        }
    }
    show::line(table);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The program with its sizes; of one that no builder of `te` makes its first line.
fn title(record: &Record) -> String {
    let schedule = record.trials.iter().find_map(|t| Schedule::parse(&t.schedule).ok());
    let first_line = || record.header.program.lines().next().unwrap_or_default().to_string();
    schedule.as_ref().map_or_else(first_line, input::title)
}

fn verify(files: &[PathBuf]) -> Result<ExitCode> {
    let mut is_whole = true;
    for file in files {
        let bytes = std::fs::read(file)
            .map_err(|e| Error::input(Code::TuneRecord, format!("cannot read the record {}: {e}", file.display())))?;
        let found = records::damages(&bytes);
        for damage in &found {
            show::line(format_args!("{}:{}: {}", file.display(), damage.line, damage.why));
        }
        if found.is_empty() {
            let lines = bytes.iter().filter(|b| **b == b'\n').count();
            show::line(format_args!("{}: {} as written", file.display(), show::count(lines, "line")));
        }
        is_whole &= found.is_empty();
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn shown(record: &Record, is_json: bool) -> Result<()> {
    let h = &record.header;
    if is_json {
        let best = record.winner();
        return show::json(&serde_json::json!({
            "header": h, "trials": record.trials, "runoffs": record.runoffs, "best": best,
        }));
    }
    let unit =
        if h.device == records::NO_DEVICE { "predicted cycles".into() } else { format!("times on {}", h.device) };
    show::line(format_args!("{}, target {}, {unit}", title(record), h.target));
    for run in &h.runs {
        let driver = run.driver.as_ref().map_or(String::new(), |d| format!(", driver {d}"));
        let clocks = run.clocks.as_ref().map_or(String::new(), |c| format!(", {c}"));
        let space: String = run.space.chars().take(12).collect();
        show::line(format_args!("run of {}, space {space}, data seed {}{driver}{clocks}", run.compiler, run.seed));
    }
    h.warnings().iter().for_each(show::note);
    trials::reasons(Default::default(), &record.trials);
    trials::table(&record.trials, record.winner());
    trials::runoffs(&record.trials, &record.runoffs, None);
    Ok(())
}
