//! What reaches the terminal: text that survives a closed pipe, errors underlined, progress that hides where nobody looks.

use crate::error::{Error, Fault, Result};
use crate::loom::Schedule;
use ariadne::{Color, Config, IndexType, Label, Report, ReportKind, Source};
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Writes text to standard output. A reader that has gone away ends the program quietly, as it ends others.
pub fn put(text: impl Display) {
    let mut out = std::io::stdout().lock();
    if let Err(e) = write!(out, "{text}").and_then(|()| out.flush()) {
        std::process::exit(if e.kind() == ErrorKind::BrokenPipe { 0 } else { 74 });
    }
}

/// Writes a line to standard output.
pub fn line(text: impl Display) {
    put(format_args!("{text}\n"));
}

/// Says something about the run that is not its result, on standard error.
pub fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// What was chosen for steps that leave a choice to the compiler, on standard error.
pub fn choices(schedule: &Schedule) -> Result<()> {
    for step in schedule.resolved()?.steps {
        if let Some(remark) = step.remark() {
            note(format_args!("{step}  # {remark}"));
        }
    }
    Ok(())
}

/// Prints an error with its places underlined: in the file of this name, or in the text that was made of it.
pub fn error(error: &Error, name: &str) {
    let shown = match error.source_text() {
        Some(text) if !error.labels().is_empty() => {
            let is_file = std::fs::read_to_string(name).is_ok_and(|file| file == text);
            underlined(error, if is_file { name } else { "as printed" }, text)
        }
        _ => None,
    };
    note(shown.unwrap_or_else(|| error.to_string()).trim_end());
}

/// The exit status that says who has to act.
pub fn status(error: &Error) -> ExitCode {
    ExitCode::from(match error.fault() {
        Fault::Input => 1,
        Fault::Chip => 3,
        Fault::Machine => 4,
        Fault::Bug => 70,
    })
}

fn underlined(error: &Error, name: &str, text: &str) -> Option<String> {
    let inside = |at: usize| at.min(text.len());
    let place = |l: &crate::error::Label| (name, inside(l.span.start)..inside(l.span.end.max(l.span.start)));
    let color = colourful();
    let config = Config::default().with_index_type(IndexType::Byte).with_color(color);
    let mut report = Report::build(ReportKind::Error, place(error.labels().first()?))
        .with_config(config)
        .with_code(error.code())
        .with_message(match error.fault() {
            Fault::Input => error.message().to_string(),
            fault => format!("{fault}: {}", error.message()),
        });
    for l in error.labels() {
        report = report.with_label(Label::new(place(l)).with_message(&l.message).with_color(Color::Red));
    }
    for context in error.context() {
        report = report.with_note(context);
    }
    for help in error.helps() {
        report = report.with_help(format!("try: {help}"));
    }
    let mut out = Vec::new();
    report.finish().write((name, Source::from(text)), &mut out).ok()?;
    String::from_utf8(out).ok()
}

fn colourful() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// A spinner for work of unknown length; nothing where standard error is no terminal.
pub fn spinner(what: impl Into<std::borrow::Cow<'static, str>>) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A bar for a counted piece of work; nothing where standard error is no terminal.
pub fn bar(length: usize) -> indicatif::ProgressBar {
    let style = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg} {eta}");
    let bar = indicatif::ProgressBar::new(length as u64);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A table with light rules.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED).set_header(header);
    table
}

/// Seconds in a unit that reads well.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Says how near the result is; one beyond its bound has been refused before.
pub fn verdict(worst: f64) -> ExitCode {
    line(format_args!("checked against f64: the largest error is {worst:.3} of its bound"));
    ExitCode::SUCCESS
}
