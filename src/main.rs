//! The `warploom` command; everything is in [`warploom::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    warploom::cli::main()
}
