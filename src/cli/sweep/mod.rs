//! `warploom sweep`: the searches of published tutorials, and their tables. Each search is a space of the tuner, so a record can hold its
//! trials, and each table has the rows and columns of the tutorial beside the figures that it reports.

mod autotvm;
mod mlc;
mod tensor_cores;
mod tiling;

use super::search::{self, Clock, Search, SearchArgs};
use super::trials::{self, Shown};
use super::{input, show};
use crate::error::{Code, Error, Result};
use crate::loom::Schedule;
use crate::target::Target;
use crate::te;
use crate::tune::{Outcome, Space, Status, Trial};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// The tutorials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// "TVM Matrix Multiplication Optimization", step 2: block tiles, thread tiles and places of the k loops.
    Tiling,
    /// "TVM: GEMM GPU Optimization": three schedules by hand and AutoTVM's 36 configurations.
    Autotvm,
    /// The MLC course's chapter on GPUs: two schedules by hand and a search of 64 trials.
    Mlc,
    /// TVM's "How to optimize matmul with Auto TensorCore CodeGen": 288 configurations of each of f16, s8, s4 and b1.
    TensorCores,
}

/// Which search, and how.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The tutorial whose search is repeated.
    #[arg(value_enum, default_value_t = Which::Tiling)]
    which: Which,
    /// Of `tiling`: sizes of the square matrices.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024], value_parser = clap::value_parser!(i64).range(1..))]
    sizes: Vec<i64>,
    /// Of `tiling`: only configurations with at most so many threads a block. 512 leaves 138 of the 150 configurations at two sizes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    max_threads: Option<i64>,
    /// Compile for this chip; without it for the device's own, or without a device for that of the tutorial.
    #[arg(long, value_name = "sm_XX")]
    target: Option<String>,
    /// Keep the trials of each space in a record in this folder, and continue the records. Where all trials are there, the command only prints
    /// the tables.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    #[command(flatten)]
    search: SearchArgs,
    /// One line of JSON for each trial instead of tables.
    #[arg(long)]
    json: bool,
}

/// Searches, and prints the tables.
pub fn run(args: &SweepArgs) -> Result<ExitCode> {
    let stated = args.target.as_deref().map(Target::parse).transpose()?;
    let (clock, stop) = (args.search.clock()?, search::interrupt());
    if let Some(folder) = &args.record {
        let cannot = |e| Error::input(Code::TuneRecord, format!("cannot make the folder {}: {e}", folder.display()));
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let mut session =
        Session { args, target: stated.or(clock.target), clock, stop: &stop, faults: 0, is_stopped: false };
    match args.which {
        Which::Tiling => tiling::run(&mut session)?,
        Which::Autotvm => autotvm::run(&mut session)?,
        Which::Mlc => mlc::run(&mut session)?,
        Which::TensorCores => tensor_cores::run(&mut session)?,
    }
    Ok(match session.is_stopped {
        true => ExitCode::from(search::INTERRUPTED),
        false => ExitCode::from(u8::from(session.faults > 0)),
    })
}

/// The searches of a run.
struct Session<'a> {
    args: &'a SweepArgs,
    clock: Clock,
    /// The chip that is asked for, or that of the device.
    target: Option<Target>,
    stop: &'a AtomicBool,
    /// Trials that are neither right nor refused.
    faults: usize,
    is_stopped: bool,
}

/// What a search found, on what.
struct Searched {
    space: Space,
    outcome: Outcome,
}

impl Session<'_> {
    /// Searches a space, with a record of this name where there is a folder for records. `None` once the run is interrupted.
    fn searched(&mut self, name: &str, space: Space, trials: usize) -> Result<Option<Searched>> {
        if self.is_stopped {
            return Ok(None);
        }
        let search = Search { args: &self.args.search, clock: &self.clock, trials, drawn: 0, stop: self.stop };
        search.check(space.target())?;
        let file = self.args.record.as_ref().map(|folder| folder.join(format!("{name}.record")));
        let mut journal = file.map(|file| search.journal(&space, &file)).transpose()?;
        let mut shown = Shown::new(self.args.json);
        let outcome = search.run(&space, journal.as_mut(), &mut |event| shown.event(event));
        shown.close();
        let outcome = outcome?;
        self.is_stopped |= outcome.is_stopped;
        let is_fault = |t: &&Trial| !matches!(t.found.status, Status::Ok | Status::Refused);
        self.faults += outcome.trials.iter().filter(is_fault).count();
        Ok(Some(Searched { space, outcome }))
    }

    /// Prints a line, unless rows of JSON are asked for.
    fn line(&self, text: impl std::fmt::Display) {
        if !self.args.json {
            show::line(text);
        }
    }

    /// What the values of the tables are.
    fn unit(&self, target: Target) -> String {
        let device = target.device();
        match &self.clock.name {
            Some(name) => format!("times on {name}"),
            None => format!("predicted cycles at {} MHz ({}), not times", device.clock_mhz, device.name),
        }
    }

    /// Prints why trials of some searches have no value, if some have none.
    fn reasons(&self, all: &[Searched]) {
        if !self.args.json {
            let trials: Vec<Trial> = all.iter().flat_map(|s| s.outcome.trials.clone()).collect();
            trials::reasons(BTreeMap::new(), &trials);
        }
    }
}

impl Searched {
    /// The seconds of a trial: a time, or predicted cycles at the highest clock of the chip's device.
    fn seconds(&self, trial: &Trial) -> Option<f64> {
        trial.value()?;
        let clock_hz = f64::from(self.space.target().device().clock_mhz) * 1e6;
        trial.found.us.map(|us| us * 1e-6).or_else(|| Some(trial.found.cycles? / clock_hz))
    }

    /// The speed of a trial.
    fn gflops(&self, trial: &Trial) -> Option<f64> {
        Some(te::operations(self.space.program()) / self.seconds(trial)? / 1e9)
    }

    /// The trial of a configuration.
    fn trial(&self, name: &str) -> Option<&Trial> {
        self.outcome.trials.iter().find(|t| t.name == name)
    }

    /// The program with its sizes.
    fn title(&self) -> String {
        input::title(&Schedule::new(self.space.program().clone(), self.space.target(), Vec::new()))
    }
}

/// The choice of a knob in the name of a configuration.
fn choice<'n>(name: &'n str, knob: &str) -> Option<&'n str> {
    name.split(' ').find_map(|part| part.split_once('=').filter(|(own, _)| *own == knob).map(|(_, choice)| choice))
}

/// A figure with so many digits, or a dash.
fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

/// Schedules with names as a space, for a chip where one is given.
fn listed(texts: &[(&str, &str)], target: Option<Target>) -> Result<Space> {
    let one = |(name, text): &(&str, &str)| {
        let schedule = target.map_or_else(|| Schedule::parse(text), |target| Schedule::parse_for(text, target));
        Ok((name.to_string(), schedule?))
    };
    Space::list(texts.iter().map(one).collect::<Result<Vec<_>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_from_a_name() {
        let name = "block=32x32x32 thread=8x4 pattern=k_innermost";
        assert_eq!([choice(name, "thread"), choice(name, "read")], [Some("8x4"), None]);
        assert_eq!(figure(Some(2.345), 1), "2.3");
        assert_eq!(figure(None, 1), "-");
    }
}
