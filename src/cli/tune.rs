//! `warploom tune`: tries the schedules of a space in worker processes, and prints the best.

use super::input::What;
use super::search::{self, Search, SearchArgs};
use super::trials::{self, Shown};
use super::tune_random::{self, FIRST, Random};
use super::{input, show};
use crate::artifact;
use crate::error::{Code, Error, Result};
use crate::loom::Schedule;
use crate::tune::{Outcome, Space};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Trials of a space, and of each product of --random.
const TRIALS: usize = 64;
const TRIALS_OF_RANDOM: usize = FIRST[FIRST.len() - 1];

/// What to tune, and how.
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub what: What,
    /// Maximum number of trials. The tuner tries every configuration of a space that is no larger. Of a larger space it tries the
    /// configurations with the fewest predicted cycles; of the candidates of --gemm the first. 64 without it, with --random 32 a product.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trials: Option<u32>,
    /// Of the candidates of --gemm and --random, also try so many that are drawn at random, from --seed, behind the first of --trials.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "file")]
    drawn: u32,
    /// Try the candidates of so many products of random sizes and layouts, drawn from --seed as those of `bench --random`, and print for each
    /// the share of the best candidate's speed that the best of the first 1, 2, 4, 8, 16 and 32 candidates reaches, and the seconds
    /// that generating, compiling, checking and measuring them took.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with_all = ["file", "gemm", "rows", "size", "dtype", "layout", "out"])]
    random: Option<u32>,
    /// Types of --random, separated by commas; they take turns.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f16,bf16,f32,s8", requires = "random")]
    types: Vec<String>,
    /// Keep the trials in this record, and continue it where it has some of them already. With --random a folder, with a record for each
    /// product.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write the best schedule into this file instead of printing it.
    #[arg(long, value_name = "FILE.loom")]
    out: Option<PathBuf>,
    #[command(flatten)]
    search: SearchArgs,
    /// One line of JSON for each trial, and one for the result, instead of a table.
    #[arg(long)]
    json: bool,
}

/// Tunes.
pub fn run(args: &TuneArgs) -> Result<ExitCode> {
    args.out.as_deref().map_or(Ok(()), artifact::check_file)?;
    let (clock, stop) = (args.search.clock()?, search::interrupt());
    let trials = args.trials.map_or(if args.random.is_some() { TRIALS_OF_RANDOM } else { TRIALS }, |n| n as usize);
    let drawn = args.drawn as usize;
    let search = Search { args: &args.search, clock: &clock, trials, drawn, stop: &stop };
    if let Some(count) = args.random {
        let (target, records) = (args.what.target()?, args.record.as_deref());
        let random = Random { count: count as usize, types: &args.types, target, records, is_json: args.json };
        let is_stopped = tune_random::run(&random, &search, &clock)?;
        return Ok(if is_stopped { ExitCode::from(search::INTERRUPTED) } else { ExitCode::SUCCESS });
    }
    let space = args.what.space(clock.target)?;
    search.check(space.target())?;
    let title = input::title(&Schedule::new(space.program().clone(), space.target(), Vec::new()));
    if !clock.is_device() {
        let chip = space.target();
        show::note(format_args!("no GPU is used: trials are predicted cycles on {chip}, not times"));
    }
    let mut journal = args.record.as_deref().map(|file| search.journal(&space, file)).transpose()?;
    if !args.json {
        show::line(format_args!("{title}, target {}: {}", space.target(), space.describe()));
    }
    let mut shown = Shown::new(args.json);
    let outcome = search.run(&space, journal.as_mut(), &mut |event| shown.event(event));
    shown.close();
    finish(args, &space, &outcome?)
}

/// Prints what was found.
fn finish(args: &TuneArgs, space: &Space, outcome: &Outcome) -> Result<ExitCode> {
    let status = if outcome.is_stopped { ExitCode::from(search::INTERRUPTED) } else { ExitCode::SUCCESS };
    match args.json {
        true => show::json(&trials::result(space, outcome))?,
        false => trials::report(space, outcome),
    }
    let Some(best) = outcome.winner() else {
        if outcome.is_stopped {
            return Ok(status);
        }
        let looked = outcome.trials.len().max(outcome.predicted);
        let message = format!("none of the {looked} configurations that were tried is legal, right and has a value");
        let error = Error::input(Code::TuneNone, message);
        return Err(if (looked as u64) < space.count() {
            error.help("--trials N with a larger number")
        } else {
            error
        });
    };
    let text = trials::exported(&outcome.trials, best);
    if let Some(file) = &args.out {
        artifact::write_file(file, &text)?;
        show::note(format_args!("wrote {}", file.display()));
    } else if !args.json {
        show::put(format_args!("\n{text}"));
    }
    Ok(status)
}
