//! `warploom tune`: tries the schedules of a space in worker processes, and prints the best.

#[cfg(feature = "runtime")]
use super::data;
use super::input::What;
use super::trials::{self, Shown};
use super::{cache, input, memory, show};
use crate::artifact::{self, Workspace};
use crate::assemble::Folder;
use crate::error::{Code, Error, Result};
use crate::loom::Schedule;
use crate::target::Target;
use crate::tune::records::{Header, NO_DEVICE, Run};
use crate::tune::{Journal, Outcome, Place, Space, Tuner, Worker, WorkerOptions};
use clap::Args;
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The exit status after an interrupt, as shells have it.
const INTERRUPTED: u8 = 130;

/// Bytes of memory of a worker at least, whatever the host has left: one that compiles takes about 200 MiB.
const LEAST_MEMORY_BYTES: u64 = 512 << 20;

/// What to tune, and how.
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub what: What,
    /// Maximum number of trials. The tuner tries every configuration of a space that is no larger. Of a larger space it tries the
    /// configurations with the fewest predicted cycles; of the candidates of --gemm the first.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trials: u32,
    /// Keep the trials in this record, and continue it where it has some of them already.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write the best schedule into this file instead of printing it.
    #[arg(long, value_name = "FILE.loom")]
    out: Option<PathBuf>,
    /// A GPU's number, or `none`: then a trial is the cycles that the cost model predicts, not a time, and a small instance is checked on
    /// the simulator. Without it: the first GPU, or none if there is none.
    #[arg(long, value_name = "N|none")]
    device: Option<String>,
    /// Worker processes at a time that compile and predict; one for each processor without it. One process at a time measures.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Seconds after which a worker that has no answer is killed.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400))]
    deadline: u64,
    /// MiB of memory above which a worker is killed. Without it a share of what the host has left, and no limit for the process that
    /// measures, which holds the arrays.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    memory: Option<u64>,
    /// Seed of the data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One line of JSON for each trial, and one for the result, instead of a table.
    #[arg(long)]
    json: bool,
}

/// Where trials are timed; without a device they are predicted.
#[derive(Debug, Default)]
struct Clock {
    /// The number of the device, for the worker.
    ordinal: Option<String>,
    name: Option<String>,
    sm: Option<u32>,
    target: Option<Target>,
    driver: Option<String>,
    clocks: Option<String>,
}

impl Clock {
    fn of(device: Option<&str>) -> Result<Clock> {
        match device {
            Some("none" | "sim" | "cpu") => Ok(Clock::default()),
            Some(text) => {
                let wrong = || Error::input(Code::CliDevice, format!("`{text}` is not a device"));
                let number = text.parse::<u32>().map_err(|_| wrong().help("none, or a number such as 0"))?;
                let none = || Error::machine(Code::CliDevice, format!("there is no device {number}"));
                Clock::found(number)?.ok_or_else(|| none().help("`warploom doctor` says which devices there are"))
            }
            None => Ok(Clock::found(0)?.unwrap_or_default()),
        }
    }

    #[cfg(feature = "runtime")]
    fn found(ordinal: u32) -> Result<Option<Clock>> {
        let probe = crate::runtime::probe();
        let Some(info) = probe.devices.iter().find(|d| d.ordinal == ordinal) else { return Ok(None) };
        Ok(Some(Clock {
            ordinal: Some(ordinal.to_string()),
            name: Some(info.name.clone()),
            sm: Some(info.sm()),
            target: Some(data::chip(info)?),
            driver: Some(info.driver_text()),
            clocks: Some(format!("{} MHz, memory {} MHz", info.clock_khz / 1000, info.memory_clock_khz / 1000)),
        }))
    }

    #[cfg(not(feature = "runtime"))]
    fn found(_: u32) -> Result<Option<Clock>> {
        Ok(None)
    }

    /// Whether the device runs code for a chip.
    fn runs(&self, target: Target) -> bool {
        self.sm.is_none_or(|sm| target.runs_on(sm))
    }
}

/// Tunes.
pub fn run(args: &TuneArgs) -> Result<ExitCode> {
    args.out.as_deref().map_or(Ok(()), artifact::check_file)?;
    let clock = Clock::of(args.device.as_deref())?;
    let space = args.what.space(clock.target)?;
    if !clock.runs(space.target()) {
        let message = format!("the device, {}, does not run {}", clock.name.unwrap_or_default(), space.target());
        return Err(Error::input(Code::CliDevice, message).help("--target").help("--device none"));
    }
    let title = input::title(&Schedule::new(space.program().clone(), space.target(), Vec::new()));
    if clock.ordinal.is_none() {
        let chip = space.target();
        show::note(format_args!("no GPU is used: trials are predicted cycles on {chip}, not times"));
    }
    let mut journal = args.record.as_deref().map(|file| journal(file, &space, &clock, args.seed)).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    // The first interrupt ends the search with what there is; the second ends the process.
    let _ = signal_hook::flag::register_conditional_shutdown(SIGINT, i32::from(INTERRUPTED), Arc::clone(&stop));
    let _ = signal_hook::flag::register(SIGINT, Arc::clone(&stop));
    if !args.json {
        show::line(format_args!("{title}, target {}: {}", space.target(), space.describe()));
    }
    let outcome = searched(args, &space, &clock, journal.as_mut(), &stop)?;
    finish(args, &space, &outcome)
}

/// The folder of compiled kernels that wait for the clock.
enum Scratch {
    /// In the user's cache, where the next tuner removes it if this process is killed.
    Cache(Workspace),
    /// In the temporary folder, without a cache.
    Temporary(Folder),
}

impl Scratch {
    fn new() -> Result<Scratch> {
        match cache::of_user().map(|cache| cache.workspace()) {
            Some(Ok(workspace)) => return Ok(Scratch::Cache(workspace)),
            Some(Err(e)) => show::note(e.message()),
            None => {}
        }
        Folder::new().map(Scratch::Temporary)
    }

    fn path(&self) -> &Path {
        match self {
            Scratch::Cache(workspace) => workspace.path(),
            Scratch::Temporary(folder) => folder.path(),
        }
    }
}

/// Searches with worker processes.
fn searched(
    args: &TuneArgs,
    space: &Space,
    clock: &Clock,
    journal: Option<&mut Journal>,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let program = std::env::current_exe();
    let program = program.map_err(|e| Error::machine(Code::TuneWorker, format!("the program is not known: {e}")))?;
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let share = (memory::available() / jobs as f64) as u64;
    let limit = |unstated: u64| args.memory.map_or(unstated, |mib| mib << 20);
    let options = |device: Option<&str>, memory: u64| {
        let words = ["tune-worker"].into_iter().chain(device.iter().flat_map(|d| ["--device", *d]));
        let arguments: Vec<OsString> = words.map(OsString::from).collect();
        WorkerOptions::new(program.clone(), arguments, Duration::from_secs(args.deadline), memory)
    };
    let plain = options(None, limit(share.max(LEAST_MEMORY_BYTES)));
    let measuring = options(clock.ordinal.as_deref(), limit(u64::MAX));
    // Without a device no kernels are written.
    let scratch = clock.ordinal.as_ref().map(|_| Scratch::new()).transpose()?;
    let place = || Box::new(Worker::new(&plain)) as Box<dyn Place + '_>;
    let measure = |s: &Scratch| (Box::new(Worker::new(&measuring)) as Box<dyn Place + '_>, s.path().to_path_buf());
    let clock = scratch.as_ref().map(measure);
    let tuner = Tuner { space, trials: args.trials as usize, jobs, seed: args.seed, place: &place, clock };
    let mut shown = Shown::new(args.json);
    let outcome = tuner.run(journal, stop, &mut |event| shown.event(event));
    shown.close();
    outcome
}

fn journal(file: &Path, space: &Space, clock: &Clock, seed: u64) -> Result<Journal> {
    let run = Run::new(space, seed, clock.driver.clone(), clock.clocks.clone());
    let device = clock.name.as_deref().unwrap_or(NO_DEVICE);
    let header = Header::new(space.program(), &space.target(), device, run);
    let (journal, said) = Journal::open(file, &header)?;
    said.iter().for_each(show::note);
    Ok(journal)
}

/// Prints what was found.
fn finish(args: &TuneArgs, space: &Space, outcome: &Outcome) -> Result<ExitCode> {
    let status = if outcome.is_stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS };
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
