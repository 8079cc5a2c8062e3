//! `warploom run`: compile, run on random input, check the result, say how long it took.

use super::data::{self, Place};
use super::input::{self, What};
#[cfg(feature = "runtime")]
use super::lines::Compiler;
use super::subject::check_lines;
use super::{blame, look, mutate, shipped, show, threads, values, watch};
use crate::array::Array;
use crate::codegen;
use crate::error::{Code, Error, Fault, Result, counted};
#[cfg(feature = "runtime")]
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::lower;
#[cfg(feature = "runtime")]
use crate::lower::Lowered;
use crate::sim::{self, Mode, Options, Stats};
use clap::Args;
use std::fmt::{Display, Formatter};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// The heading of the options that show a run from inside.
const LOOKING: &str = "Looking inside the run";

/// What to run, and where. FILE may also be an artefact.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub what: What,
    /// The variant of an artefact, by label or by row number of `warploom inspect`.
    #[arg(long, value_name = "LABEL")]
    variant: Option<String>,
    /// `sim` or `cpu` (the simulator), `ptx` (the simulator interprets the emitted PTX), or a GPU's number. Without it: the first
    /// GPU, or the simulator if there is none.
    #[arg(long)]
    device: Option<String>,
    /// Seed of the random input.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// At a size of some million operations, reached by halving: for tools that watch each access.
    #[arg(long, conflicts_with = "size")]
    small: bool,
    /// Take this input from a .npy or .safetensors file instead of drawing it; may be given for several inputs.
    #[arg(long, value_name = "A=FILE", conflicts_with_all = ["small", "mutate"])]
    input: Vec<data::Filed>,
    /// Give an input of one number this value instead of drawing it, `--set alpha=0.5`, or a dynamic size instead of its largest, `--set M=64`;
    /// may be given several times.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "mutate")]
    set: Vec<values::Set>,
    /// Write this output to a .npy or .safetensors file.
    #[arg(long, value_name = "C=FILE", conflicts_with_all = ["small", "mutate"])]
    output: Vec<data::Filed>,
    /// On the simulator, at the size that is asked for, however long that takes.
    #[arg(long, conflicts_with = "small")]
    whole: bool,
    /// On a GPU, launch once and check the result, without timing and without cuBLAS.
    #[arg(long)]
    once: bool,
    /// Plant a fault in the lowered program, as a faulty pass could make it, and report what finds it: `list` prints all of them
    /// with their numbers, `#17` plants that one, and other words, such as `barrier removed`, each one whose description holds
    /// them. Ends with 0 if each is found and with 5 if not. A GPU launches the first one, once.
    #[arg(long, value_name = "list|#N|WORDS")]
    mutate: Option<String>,
    /// On a GPU, add `.loc` lines to the kernels and write the lowered text as NAME.lowered into the current folder: Nsight Compute then
    /// shows the loops beside the instructions.
    #[arg(long, conflicts_with = "mutate")]
    lines: bool,
    /// Seconds to wait for the GPU before giving up.
    #[arg(long, default_value_t = data::PATIENCE_S, value_parser = clap::value_parser!(u64).range(1..=86400))]
    patience: u64,
    /// Validate the steps first: run a small instance of the schedule and compare the program before and after its steps, its
    /// kernels (in integer mode) and its PTX (on small integers). A difference is a fault of warploom (exit 70) and names the first step that makes one.
    #[arg(long)]
    validate: bool,
    /// Show each write of these elements of a buffer of any scope, such as T[3, 4] or T[0..2, 4], with the value, the block and
    /// the loop variables. The scheduled program runs in sequence on the simulator: blocks and threads are loops, and indices are
    /// those of the program. With `--level lowered` the kernels run by threads. May be given several times.
    #[arg(long, value_name = "T[I, J]", conflicts_with_all = ["mutate", "once", "step"], help_heading = LOOKING)]
    print: Vec<look::Elements>,
    /// Walk the scheduled program statement by statement, as commands on standard input say: `h` lists them. With `--level lowered`
    /// walk a block of the kernels, with all its warps.
    #[arg(long, conflicts_with_all = ["mutate", "once"], help_heading = LOOKING)]
    step: bool,
    /// The program that --print and --step show: `scheduled`, in sequence, or `lowered`, by threads.
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = LOOKING)]
    level: Option<Level>,
    /// With `--level lowered`: the block that --step walks (0 by default), or whose writes --print shows (all by default).
    #[arg(long, value_name = "X[,Y[,Z]]", help_heading = LOOKING)]
    block: Option<threads::Position>,
    /// With `--level lowered`: the thread whose writes --print shows (all by default).
    #[arg(long, value_name = "X[,Y[,Z]]", conflicts_with = "step", help_heading = LOOKING)]
    thread: Option<threads::Position>,
}

/// A program to look at as it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// After all steps.
    Scheduled,
    /// The kernels.
    Lowered,
}

impl RunArgs {
    /// Whether the scheduled program is watched as it runs in sequence.
    fn is_watched(&self) -> bool {
        self.step || !self.print.is_empty()
    }

    /// Whether data comes from files or goes into them: then the sizes are the program's own.
    fn has_files(&self) -> bool {
        !self.input.is_empty() || !self.output.is_empty()
    }
}

/// Runs the kernels of an artefact, without compiling.
fn run_shipped(args: &RunArgs, path: &Path) -> Result<ExitCode> {
    let options = [
        (args.what.is_changed(), "another size or chip"),
        (args.small, "--small"),
        (args.mutate.is_some(), "--mutate"),
        (args.lines, "--lines"),
        (args.validate, "--validate"),
        (args.is_watched(), "--print and --step"),
    ];
    if let Some((_, option)) = options.iter().find(|(given, _)| *given) {
        let message = format!("{option} is for a schedule, and {} holds compiled kernels", path.display());
        let help = format!("warploom inspect {} --variant 1 --emit schedule > own.loom", path.display());
        return Err(Error::input(Code::CliArtifact, message).help(help).help("warploom run own.loom"));
    }
    let request = shipped::Request {
        path,
        variant: args.variant.as_deref(),
        seed: args.seed,
        inputs: &args.input,
        values: &args.set,
        outputs: &args.output,
    };
    let place = match args.device.as_deref() {
        Some("ptx") => Place::Cpu,
        device => data::place_for(device, args.patience)?,
    };
    shipped::run(&request, &place)
}

/// Runs the schedule once with its result checked.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    check_watched(args)?;
    if let Some(path) = args.what.path().filter(|path| shipped::is_artifact(path)) {
        return run_shipped(args, path);
    }
    if args.variant.is_some() {
        let error = Error::input(Code::CliVariant, "--variant is for an artefact, and none is named");
        return Err(error.help("warploom build FILE -o DIR").help("warploom run DIR --variant LABEL"));
    }
    let on_ptx = args.device.as_deref() == Some("ptx");
    // A device is looked for first where the steps depend on it, and behind the file's own errors where they do not.
    let place = || {
        if on_ptx || args.is_watched() {
            Ok(Place::Cpu)
        } else {
            data::place_for(args.device.as_deref(), args.patience)
        }
    };
    let (schedule, place) = match args.what.asks_for_chip() {
        true => {
            let place = place()?;
            (args.what.schedule(place.chip()?)?, place)
        }
        false => (args.what.schedule(None)?, place()?),
    };
    args.what.record_notes(&schedule, || place.here())?.iter().for_each(show::note);
    data::check_outputs(&schedule.program, &args.output)?;
    if args.validate {
        show::note(schedule.validate()?);
    }
    let schedule = if args.small { data::reduced(&schedule, data::WATCHED_OPERATIONS) } else { schedule };
    match place {
        Place::Cpu => {
            check_lines(args.lines).and_then(|()| on_cpu(args, schedule, if on_ptx { How::Ptx } else { How::Threads }))
        }
        #[cfg(feature = "runtime")]
        Place::Gpu(device) if args.once || args.mutate.is_some() || args.has_files() || !args.set.is_empty() => {
            let schedule = super::gpu::for_device(schedule, &device)?;
            let compiler = Compiler::with_lines(args.lines);
            let arrays = inputs(args, &schedule)?;
            let once = |kernels: &Kernels| super::gpu::once(&schedule, kernels, &arrays, &args.output, &device);
            let faulty = |lowered: &Lowered| once(&compiler.lowered(lowered, &schedule.target)?);
            match &args.mutate {
                Some(words) if mutate::is_list(words) => mutate::list(&schedule),
                Some(words) => mutate::on_device(&schedule, words, &args.what.name(), faulty),
                None => once(&compiler.schedule(&schedule, &device)?),
            }
        }
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => {
            show::choices(&super::gpu::for_device(schedule.clone(), &device)?)?;
            super::gpu::run(&args.what.name(), args.seed, schedule, &device, &Compiler::with_lines(args.lines))
        }
    }
}

/// That a run which is watched is one on the simulator, and that its commands are not the schedule.
fn check_watched(args: &RunArgs) -> Result<()> {
    let is_lowered = args.level == Some(Level::Lowered);
    if !args.is_watched() && args.level.is_some() {
        return Err(Error::input(
            Code::CliLevel,
            "--level says which program --print or --step shows, and neither is given",
        )
        .help("--print 'T[3]' --level lowered")
        .help("--step --level lowered"));
    }
    if !is_lowered && (args.block.is_some() || args.thread.is_some()) {
        let message = "--block and --thread choose what --print and --step show of the lowered kernels";
        return Err(Error::input(Code::CliLevel, message).help("--step --level lowered --block 0"));
    }
    if !args.is_watched() {
        return Ok(());
    }
    if let Some(other) = args.device.as_deref().filter(|d| !["sim", "cpu"].contains(d)) {
        let message = format!("--print and --step run the program on the simulator, not on device `{other}`");
        return Err(Error::input(Code::CliDevice, message).help("--device sim, or no --device"));
    }
    if args.step && args.what.is_standard_input() {
        return Err(Error::input(
            Code::CliStep,
            "--step reads its commands from standard input, and so is the schedule read",
        )
        .help("write the schedule to a file"));
    }
    Ok(())
}

fn on_cpu(args: &RunArgs, schedule: Schedule, how: How) -> Result<ExitCode> {
    let asked = input::title(&schedule);
    let operations = if args.is_watched() { data::WATCHED_OPERATIONS } else { data::CPU_OPERATIONS };
    let whole = args.whole || args.what.has_size() || args.has_files();
    let schedule = if whole { schedule } else { data::reduced(&schedule, operations) };
    let title = input::title(&schedule);
    if title != asked {
        let other = if args.what.is_gemm() {
            "--whole runs it as it is"
        } else {
            "--whole runs it as it is, --size at another size"
        };
        show::note(format_args!("reduced for the simulator: {title} instead of {asked} ({other})"));
    }
    if let Some(patience) = data::patience_for(&schedule.program, whole) {
        show::note(patience);
    }
    show::choices(&schedule)?;
    if let Some(words) = &args.mutate {
        if mutate::is_list(words) {
            return mutate::list(&schedule);
        }
        return mutate::run(&schedule, words, args.seed, &args.what.name(), how == How::Ptx);
    }
    data::check_memory(&schedule)?;
    if args.is_watched() {
        let mut arrays = inputs(args, &schedule)?;
        let ran = match args.level {
            Some(Level::Lowered) => watch::run_lowered(&schedule, &args.print, (args.block, args.thread), &mut arrays),
            _ => watch::run(&schedule, &args.print, &mut arrays),
        };
        return match ran.map_err(|e| blame::blame(&schedule, args.seed, e))? {
            None => Ok(ExitCode::SUCCESS),
            Some(_) => checked(args, &schedule, &arrays),
        };
    }
    let spinner = show::spinner(format!("running {title}"));
    let mut arrays = inputs(args, &schedule)?;
    let begin = Instant::now();
    let (stats, how) = match how {
        How::Ptx => interpreted(&schedule, args.seed, &mut arrays)?,
        _ => on_machine(&schedule, &args.what.name(), args.seed, &mut arrays)?,
    };
    let time = begin.elapsed().as_secs_f64();
    spinner.set_message(format!("checking {title}"));
    // The inputs are as they were: no program writes them.
    let judge = data::Judge::new(&schedule.program, &arrays)?;
    let worst = judge.worst(&arrays).map_err(|e| blame::blame(&schedule, args.seed, e))?;
    spinner.finish_and_clear();
    show::line(format_args!("{title}, {}, target {}", show::count(schedule.steps.len(), "step"), schedule.target));
    let rate = stats.statements as f64 / time / 1e6;
    let statements = counted(stats.statements, "statement");
    show::line(format_args!("ran {how} in {}: {statements}, {rate:.1} M/s", show::seconds(time)));
    let status = show::verdict(worst);
    data::write(&schedule.program, &args.output, &arrays)?;
    // The result is right, but no kernel of the chip computed it.
    Ok(if how == How::Sequence { ExitCode::from(show::CHIP) } else { status })
}

/// The arguments of a run: drawn at random, from files, and as set by hand.
fn inputs(args: &RunArgs, schedule: &Schedule) -> Result<Vec<Array>> {
    data::inputs(&schedule.program, args.seed, &args.input, &args.set)
}

/// Checks the result of a run that has been watched, and writes it where that is asked for.
fn checked(args: &RunArgs, schedule: &Schedule, arrays: &[Array]) -> Result<ExitCode> {
    let judge = data::Judge::new(&schedule.program, arrays)?;
    let worst = judge.worst(arrays).map_err(|e| blame::blame(schedule, args.seed, e))?;
    let status = show::verdict(worst);
    data::write(&schedule.program, &args.output, arrays)?;
    Ok(status)
}

/// How the simulator ran a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Its kernels, with their threads and barriers.
    Threads,
    /// The PTX of its kernels, as LLVM emitted it.
    Ptx,
    /// The scheduled program from top to bottom: the chip cannot run its kernels.
    Sequence,
}

impl Display for How {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            How::Threads => "on the simulator, thread by thread,",
            How::Ptx => "as PTX on the simulator, thread by thread,",
            How::Sequence => "on the simulator, in sequence,",
        })
    }
}

/// Runs the kernels with their threads and barriers; `name` is what errors call the schedule. What the chip cannot runs as the scheduled program says. What goes wrong is
/// the fault of warploom where the naive program runs.
pub fn on_machine(schedule: &Schedule, name: &str, seed: u64, arrays: &mut [Array]) -> Result<(Stats, How)> {
    let func = schedule.scheduled()?;
    let blamed = |e| blame::blame(schedule, seed, e);
    match lower::lower(&func, &schedule.target) {
        Ok(lowered) => Ok((sim::run_lowered(&lowered, Mode::Real, arrays).map_err(blamed)?, How::Threads)),
        Err(e) if e.fault() == Fault::Chip => {
            show::error(&e, name);
            show::note("the scheduled program runs in sequence instead");
            Ok((sim::run_func(&func, Mode::Real, arrays).map_err(blamed)?, How::Sequence))
        }
        Err(e) => Err(e),
    }
}

/// Runs the PTX of the kernels.
fn interpreted(schedule: &Schedule, seed: u64, arrays: &mut [Array]) -> Result<(Stats, How)> {
    let lowered = lower::lower(&schedule.scheduled()?, &schedule.target)?;
    let kernels = codegen::compile(&lowered, &schedule.target)?;
    let ran = sim::run_ptx(&kernels, &Options::new(Mode::Real), arrays);
    Ok((ran.map_err(|e| blame::blame(schedule, seed, e))?, How::Ptx))
}
