//! The command line: parses, calls the library, prints. No logic of the compiler lives here.

mod bench;
mod blame;
mod build;
mod cache;
#[cfg(feature = "runtime")]
mod choice;
mod colour;
mod cpu;
mod data;
mod doctor;
#[cfg(feature = "runtime")]
mod drawn;
mod dump;
mod explain;
mod fmt;
#[cfg(feature = "runtime")]
mod gpu;
mod input;
mod inspect;
mod ladder;
#[cfg(feature = "runtime")]
mod launch;
mod launchers;
#[cfg(feature = "runtime")]
mod lines;
mod locate;
mod look;
mod memory;
mod mutate;
mod new;
mod pager;
#[cfg(feature = "runtime")]
mod plot;
mod random;
mod records;
mod run;
mod search;
mod shipped;
mod show;
mod sizes;
mod source;
#[cfg(feature = "runtime")]
mod start;
mod step;
mod subject;
mod suite;
mod sweep;
mod threads;
mod trials;
mod tune;
mod tune_random;
mod values;
mod walk;
mod watch;
pub mod words;
mod worker;

use crate::error::{Code, Error, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use colour::When;
use std::process::ExitCode;

/// Compiles scheduled loop nests to PTX, shows every stage, and runs them with checked results.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Colours of what is printed. `auto` is on a terminal, unless NO_COLOR is set or TERM is dumb; CLICOLOR_FORCE=1 is `always`.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = When::Auto, hide_possible_values = true, display_order = 900)]
    color: When,
}

const EXIT_STATUS: &str = "\
Exit status:
   0 done
   1 the input is wrong, or a result was
   2 the command line is wrong
   3 the chip cannot; `run` on the simulator then checks the steps in sequence
   4 this host cannot
   5 nothing found a fault that `run --mutate` planted
  70 a fault of warploom itself
  74 the output cannot be written
 130 `tune` or `sweep` was interrupted, and kept its trials";

#[derive(Debug, Subcommand)]
enum Command {
    /// Compile, run on random input, and check the result.
    Run(run::RunArgs),
    /// Print the program at each level of the compilation.
    Dump(dump::DumpArgs),
    /// Compile schedules for several chips and sizes into an artefact that runs without the compiler.
    Build(build::BuildArgs),
    /// Show the variants of an artefact.
    Inspect(inspect::InspectArgs),
    /// List, verify or remove cached kernels.
    Cache(cache::CacheArgs),
    /// Measure schedules against cuBLAS.
    Bench(subject::BenchArgs),
    /// Repeat the searches of published tutorials, and print their tables.
    Sweep(sweep::SweepArgs),
    /// Try the schedules of a file with knobs, or the candidates of a GEMM, and print the best.
    Tune(tune::TuneArgs),
    /// List, show, verify, merge and export records of `tune`.
    Records(records::RecordsArgs),
    /// A worker process of `tune`.
    #[command(hide = true)]
    TuneWorker(worker::WorkerArgs),
    /// A process that `bench --start` measures.
    #[cfg(feature = "runtime")]
    #[command(hide = true)]
    FirstLaunch(start::StartArgs),
    /// Show each step of a schedule with the program after it.
    Explain(explain::ExplainArgs),
    /// Write files in the one layout of `.loom` texts.
    Fmt(fmt::FmtArgs),
    /// Write a crate to start from: a kernel, a build script that compiles it, and a program that runs it.
    New(new::NewArgs),
    /// Report which of LLVM, driver, device and tools are available, and how to install what is missing.
    Doctor(doctor::DoctorArgs),
    /// Print what makes a shell complete this command line: `warploom completions bash > FILE`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page: `warploom man > warploom.1`.
    Man,
}

/// Runs the command that the process was started with. `is_closed`: it was started without a standard output.
pub fn main(is_closed: bool) -> ExitCode {
    if is_closed {
        show::output_is_closed();
    }
    let when = When::of(std::env::args_os().filter_map(|a| a.into_string().ok()));
    colour::decide(when);
    let matches = command().color(when.for_clap()).try_get_matches();
    let cli = match matches.and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let (outcome, name) = match cli.command {
        Command::Run(args) => (run::run(&args), args.what.name()),
        Command::Dump(args) => (dump::run(&args), args.what.name()),
        Command::Bench(args) => (bench::run(&args), "bench".to_string()),
        Command::Build(args) => (build::run(&args), "build".to_string()),
        Command::Inspect(args) => (inspect::run(&args), "inspect".to_string()),
        Command::Cache(args) => (cache::run(&args), "cache".to_string()),
        Command::Sweep(args) => (sweep::run(&args), "sweep".to_string()),
        Command::Tune(args) => (tune::run(&args), args.what.name()),
        Command::Records(args) => (records::run(&args), "records".to_string()),
        Command::TuneWorker(args) => (worker::run(&args), "tune-worker".to_string()),
        #[cfg(feature = "runtime")]
        Command::FirstLaunch(args) => (start::first_launch(&args), "first-launch".to_string()),
        Command::Explain(args) if args.certificates => {
            command().error(ErrorKind::UnknownArgument, "`--certificates` is now `--cost`").exit()
        }
        Command::Explain(args) => (explain::run(&args), args.name()),
        Command::Fmt(args) => (fmt::run(&args), "fmt".to_string()),
        Command::New(args) => (new::run(&args), "new".to_string()),
        Command::Doctor(args) => (doctor::run(&args), "doctor".to_string()),
        Command::Completions { shell } => (completions(shell), String::new()),
        Command::Man => (manual(), String::new()),
    };
    finish(outcome, &name)
}

/// Prints the help or the version that is asked for, or what is wrong with the command line.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let _ = error.print();
    } else {
        let text = error.render();
        show::put(if colour::output() { text.ansi().to_string() } else { text.to_string() });
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(show::USAGE))
}

/// The command line; the file that `explain` takes may also be the name of a step or the code of an error.
fn command() -> clap::Command {
    let or_word = "A schedule: program, target and steps; `-` is standard input. Or the name of a step, such as split, or the code of an \
                   error, such as lower.race: its page";
    Cli::command().mut_subcommand("explain", |c| c.mut_arg("file", |a| a.help(or_word)))
}

/// Prints the completions of a shell.
fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command(), "warploom", &mut out);
    show::put(String::from_utf8_lossy(&out));
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual page: of the command and of each of its subcommands.
fn manual() -> Result<ExitCode> {
    let mut out = Vec::new();
    let failed = |e: std::io::Error| Error::bug(Code::CliMan, e.to_string());
    let mut command = command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut out).map_err(failed)?;
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help" && !s.is_hide_set()) {
        let man = clap_mangen::Man::new(sub.clone());
        man.render_name_section(&mut out).map_err(failed)?;
        man.render_synopsis_section(&mut out).map_err(failed)?;
        man.render_options_section(&mut out).map_err(failed)?;
    }
    show::put(String::from_utf8_lossy(&out));
    Ok(ExitCode::SUCCESS)
}

fn finish(outcome: Result<ExitCode>, name: &str) -> ExitCode {
    pager::close();
    outcome.unwrap_or_else(|error| {
        show::error(&error, name);
        show::status(&error)
    })
}
