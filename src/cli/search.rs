//! How `warploom tune` and `sweep` search: the options that they share, the device, the worker processes, the record.

#[cfg(feature = "runtime")]
use super::data;
use super::{cache, memory, show};
use crate::artifact::Workspace;
use crate::assemble::Folder;
use crate::error::{Code, Error, Result};
use crate::target::Target;
use crate::tune::records::{Header, NO_DEVICE, Run};
use crate::tune::{Event, Journal, Outcome, Place, Space, Tuner, Worker, WorkerOptions};
use clap::Args;
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The exit status after an interrupt, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// Bytes of memory of a worker at least, whatever the host has left: one that compiles takes about 200 MiB.
const LEAST_MEMORY_BYTES: u64 = 512 << 20;

/// Where trials run, and when a worker is killed.
#[derive(Debug, Args)]
pub struct SearchArgs {
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
    pub seed: u64,
}

impl SearchArgs {
    /// The device that is asked for.
    pub fn clock(&self) -> Result<Clock> {
        Clock::of(self.device.as_deref())
    }
}

/// Where trials are timed; without a device they are predicted.
#[derive(Debug, Default)]
pub struct Clock {
    /// The number of the device, for the worker.
    ordinal: Option<String>,
    pub name: Option<String>,
    sm: Option<u32>,
    /// Its chip.
    pub target: Option<Target>,
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

    /// Whether trials are times.
    pub fn is_device(&self) -> bool {
        self.ordinal.is_some()
    }
}

/// Set by the first interrupt, which ends the search with what there is. The second ends the process.
pub fn interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let _ = signal_hook::flag::register_conditional_shutdown(SIGINT, i32::from(INTERRUPTED), Arc::clone(&stop));
    let _ = signal_hook::flag::register(SIGINT, Arc::clone(&stop));
    stop
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

/// A search: how and where, over any number of spaces.
pub struct Search<'a> {
    pub args: &'a SearchArgs,
    pub clock: &'a Clock,
    /// Trials of a space at most.
    pub trials: usize,
    /// Trials besides these, drawn from the other candidates of a GEMM.
    pub drawn: usize,
    /// Ends the search once it is set.
    pub stop: &'a AtomicBool,
}

impl Search<'_> {
    /// That the device runs code for a chip.
    pub fn check(&self, target: Target) -> Result<()> {
        if self.clock.sm.is_none_or(|sm| target.runs_on(sm)) {
            return Ok(());
        }
        let name = self.clock.name.as_deref().unwrap_or_default();
        let message = format!("the device, {name}, does not run {target}");
        Err(Error::input(Code::CliDevice, message).help("--target").help("--device none"))
    }

    /// The record of a space in a file: a new one, or the one that is continued.
    pub fn journal(&self, space: &Space, file: &Path) -> Result<Journal> {
        let run = Run::new(space, self.args.seed, self.clock.driver.clone(), self.clock.clocks.clone());
        let device = self.clock.name.as_deref().unwrap_or(NO_DEVICE);
        let header = Header::new(space.program(), &space.target(), device, run);
        let (journal, said) = Journal::open(file, &header)?;
        said.iter().for_each(show::note);
        Ok(journal)
    }

    /// The worker processes of a search.
    pub fn workers(&self) -> Result<Workers> {
        let (args, clock) = (self.args, self.clock);
        let program = std::env::current_exe();
        let program =
            program.map_err(|e| Error::machine(Code::TuneWorker, format!("the program is not known: {e}")))?;
        let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
        let share = (memory::available() / jobs as f64) as u64;
        let limit = |unstated: u64| args.memory.map_or(unstated, |mib| mib << 20);
        let options = |words: &[&str], memory: u64| {
            let arguments: Vec<OsString> = ["tune-worker"].iter().chain(words).map(OsString::from).collect();
            WorkerOptions::new(program.clone(), arguments, Duration::from_secs(args.deadline), memory)
        };
        let assembler: Vec<&str> = clock.driver.iter().flat_map(|version| ["--ptxas", version]).collect();
        let measuring = clock.ordinal.as_ref().map(|n| options(&["--device", n], limit(u64::MAX)));
        Ok(Workers { jobs, plain: options(&assembler, limit(share.max(LEAST_MEMORY_BYTES))), measuring })
    }

    /// Searches a space with worker processes.
    pub fn run(&self, space: &Space, journal: Option<&mut Journal>, say: Said<'_>) -> Result<Outcome> {
        let workers = self.workers()?;
        self.run_with(&workers, &mut workers.measuring(), space, (journal, say))
    }

    /// As [`Self::run`]. One process measures all spaces.
    pub fn run_with(
        &self,
        workers: &Workers,
        measuring: &mut Option<Worker<'_>>,
        space: &Space,
        (journal, say): (Option<&mut Journal>, Said<'_>),
    ) -> Result<Outcome> {
        // Without a device no kernels are written.
        let scratch = measuring.as_ref().map(|_| Scratch::new()).transpose()?;
        let place = || Box::new(Worker::new(&workers.plain)) as Box<dyn Place + '_>;
        let measure = |(s, worker): (&Scratch, _)| (worker as &mut dyn Place, s.path().to_path_buf());
        let clock = scratch.as_ref().zip(measuring.as_mut()).map(measure);
        let (trials, drawn, jobs, seed) = (self.trials, self.drawn, workers.jobs, self.args.seed);
        Tuner { space, trials, drawn, jobs, seed, place: &place, clock }.run(journal, self.stop, say)
    }
}

/// Hears what happens during a search.
pub type Said<'a> = &'a mut dyn FnMut(&Event<'_>) -> Result<()>;

/// How the worker processes of a search are started.
pub struct Workers {
    /// Processes at a time that compile and predict.
    jobs: usize,
    plain: WorkerOptions,
    /// Of the process that measures.
    measuring: Option<WorkerOptions>,
}

impl Workers {
    /// The process that measures, if there is a device.
    pub fn measuring(&self) -> Option<Worker<'_>> {
        self.measuring.as_ref().map(Worker::new)
    }
}
