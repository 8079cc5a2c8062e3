//! A pager for texts that are longer than a screen: `$WARPLOOM_PAGER`, `$PAGER`, or `less`, where standard output is a terminal.
//!
//! The pager begins with the first text, and warploom ends after it.

use clap::Args;
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where text goes.
enum State {
    /// To standard output.
    Direct,
    /// To a pager that begins with the first text.
    Wanted,
    /// To this one.
    Open(Child, ChildStdin, Vec<String>),
}

static STATE: Mutex<State> = Mutex::new(State::Direct);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is one.
#[derive(Debug, Args)]
pub struct PagerArgs {
    /// Print to the terminal without a pager. Otherwise a text longer than the screen goes to $WARPLOOM_PAGER, $PAGER or less.
    #[arg(long)]
    no_pager: bool,
}

impl PagerArgs {
    /// Sends what is printed from now on to a pager, if standard output is a terminal and no option is against it.
    pub fn want(&self) {
        if !self.no_pager && std::io::stdout().is_terminal() {
            *state() = State::Wanted;
        }
    }
}

/// Writes to the pager; `None` where there is none.
pub fn write(text: &str) -> Option<std::io::Result<()>> {
    let mut state = state();
    if matches!(*state, State::Wanted) {
        *state = open().unwrap_or(State::Direct);
    }
    match &mut *state {
        State::Open(_, input, _) => Some(input.write_all(text.as_bytes())),
        _ => None,
    }
}

/// Keeps what is said on standard error until the pager, which has the screen, has ended; false where there is none.
pub fn keep(text: &str) -> bool {
    match &mut *state() {
        State::Open(_, _, kept) if std::io::stderr().is_terminal() => {
            kept.push(text.to_string());
            true
        }
        _ => false,
    }
}

/// Waits for the pager to end; then what was kept for standard error is said.
pub fn close() {
    let before = std::mem::replace(&mut *state(), State::Direct);
    if let State::Open(mut child, input, kept) = before {
        drop(input);
        let _ = child.wait();
        for text in kept {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

/// Starts the pager that is asked for; `None` where there is none, or where it cannot be started.
fn open() -> Option<State> {
    let asked = ["WARPLOOM_PAGER", "PAGER"].iter().find_map(std::env::var_os);
    let mut command = match &asked {
        None => {
            let mut less = Command::new("less");
            less.arg("-FRX");
            less
        }
        Some(asked) => asked_for(asked)?,
    };
    // A pager that is named without options gets those of git: no more than a screen is not paged, colours stay.
    for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    match command.stdin(Stdio::piped()).spawn() {
        Ok(mut child) => {
            let input = child.stdin.take()?;
            // An interrupt is for the pager, which would lose its terminal if warploom ended before it.
            let _ = signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)));
            Some(State::Open(child, input, Vec::new()))
        }
        Err(e) => {
            if let Some(asked) = asked {
                let _ = writeln!(std::io::stderr(), "cannot start the pager `{}`: {e}", asked.display());
            }
            None
        }
    }
}

/// The command of a variable; `None` for none and for `cat`, which is the same.
fn asked_for(asked: &OsString) -> Option<Command> {
    let text = asked.to_str().map(str::trim);
    if matches!(text, Some("" | "cat")) {
        return None;
    }
    match text {
        // What a shell would take apart is started without one, so that a name that is none is known as such.
        Some(text) if !text.contains(|c: char| "|&;<>()$`\\\"'*?[#~=%\n".contains(c)) => {
            let mut words = text.split_whitespace();
            let mut command = Command::new(words.next()?);
            command.args(words);
            Some(command)
        }
        _ => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(asked);
            Some(shell)
        }
    }
}
