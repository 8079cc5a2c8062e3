//! The command line: parses, calls the library, prints. No logic of the compiler lives here.

mod explain;
mod input;
mod show;

use crate::error::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Compiles scheduled loop nests to PTX, shows every stage, and runs them with checked results.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUS: &str = "Exit status: 0 done; 1 the input is wrong, or a result was; 2 the command line is wrong; \
                           3 the chip cannot; 4 this machine cannot; 70 a fault of warploom itself.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show each step of a schedule with the program after it.
    Explain(explain::ExplainArgs),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let (outcome, name) = match cli.command {
        Command::Explain(args) => (explain::run(&args), args.name()),
    };
    finish(outcome, &name)
}

fn finish(outcome: Result<ExitCode>, name: &str) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        show::error(&error, name);
        show::status(&error)
    })
}
