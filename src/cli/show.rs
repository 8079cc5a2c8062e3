//! What reaches the terminal: text that survives a closed pipe, errors underlined, progress that hides where nobody looks.

use super::{colour, input, locate, pager};
use crate::error::{Area, Code, Error, Fault, Result, counted};
use crate::loom::Schedule;
use crate::schedule;
use ariadne::{Color, Config, IndexType, Label, Report, ReportKind, Source};
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the process was started without a standard output.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Says that the process was started without a standard output: what is written is an error.
pub fn output_is_closed() {
    IS_CLOSED.store(true, Ordering::Relaxed);
}

/// Writes text to the pager, or to standard output. A reader that has gone away ends the program quietly, as it ends others.
pub fn put(text: impl Display) {
    let text = text.to_string();
    if text.is_empty() {
        return;
    }
    if IS_CLOSED.load(Ordering::Relaxed) {
        end_unwritten("standard output is closed");
    }
    let written = pager::write(&text).unwrap_or_else(|| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    });
    let Err(e) = written else { return };
    pager::close();
    if e.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    end_unwritten(e);
}

fn end_unwritten(why: impl Display) -> ! {
    note(format_args!("cannot write the output: {why}"));
    std::process::exit(UNWRITTEN);
}

/// Writes a line to standard output.
pub fn line(text: impl Display) {
    put(format_args!("{text}\n"));
}

/// Says something about the run that is not its result, on standard error.
pub fn note(text: impl Display) {
    let text = text.to_string();
    if !pager::keep(&text) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
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
    let stated = schedule::requirement(error.code()).map(|text| error.clone().within(text));
    let error = stated.as_ref().unwrap_or(error);
    let file = if name == "-" { None } else { input::text(name.as_ref()).ok() };
    let is_file = match (error.source_text(), &file) {
        (Some(text), Some(file)) => text == file.trim_start_matches('\u{feff}'),
        (Some(_), None) => name == "-" && error.line().is_none(),
        (None, _) => false,
    };
    // A refusal of the printed program has its cause in a line of the file.
    let is_known = is_file || error.line().is_some();
    let cause = file.as_deref().filter(|_| !is_known && matches!(error.fault(), Fault::Input | Fault::Chip));
    let caused = cause.and_then(|file| locate::cause(error, file));
    let caused = caused.map(|(line, statement)| error.clone().at_line(line, &statement));
    let error = caused.as_ref().unwrap_or(error);
    let location = location(error, name, is_file);
    let shown = match error.source_text() {
        Some(text) if !error.labels().is_empty() => underlined(error, if is_file { name } else { "as printed" }, text),
        _ => None,
    };
    note(format_args!("{location}{}", shown.unwrap_or_else(|| error.to_string()).trim_end()));
}

/// The exit status of what the chip cannot.
pub const CHIP: u8 = 3;

/// The exit status of an output that cannot be written (EX_IOERR of sysexits.h).
const UNWRITTEN: i32 = 74;

/// The exit status of a wrong command line, as clap has it.
pub const USAGE: u8 = 2;

/// The exit status that says who has to act.
pub fn status(error: &Error) -> ExitCode {
    // What a file says, or that it cannot be read, is no mistake of the command line.
    let usage = error.code().area() == Some(Area::Cli) && !matches!(error.code(), Code::CliFile | Code::CliSuite);
    ExitCode::from(match error.fault() {
        Fault::Input if usage => USAGE,
        Fault::Input => 1,
        Fault::Chip => CHIP,
        Fault::Machine => 4,
        Fault::Bug => 70,
    })
}

/// Bytes of a line that are shown, and how many of them in front of what is underlined.
const SHOWN: usize = 240;
const SHOWN_BEFORE: usize = 80;

/// The text and a place in it without what makes the place's line longer than a screen; and what was cut off in front.
fn clipped(text: &str, span: Range<usize>) -> (String, Range<usize>, usize) {
    let begin = text[..span.start].rfind('\n').map_or(0, |n| n + 1);
    let end = text[span.start..].find('\n').map_or(text.len(), |n| span.start + n);
    if end - begin <= SHOWN {
        return (text.to_string(), span, 0);
    }
    let boundary = |mut at: usize| {
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let from = boundary(span.start.saturating_sub(SHOWN_BEFORE).max(begin));
    let to = boundary((from + SHOWN).min(end));
    let cut = from - begin;
    let kept = format!("{}{}{}", &text[..begin], &text[from..to], &text[end..]);
    (kept, span.start - cut..span.end.min(to).max(span.start) - cut, cut)
}

fn underlined(error: &Error, name: &str, text: &str) -> Option<String> {
    let inside = |at: usize| at.min(text.len());
    let span = |l: &crate::error::Label| inside(l.span.start)..inside(l.span.end.max(l.span.start));
    // Several places are those of programs that are printed, whose lines are short.
    let (kept, only, cut) = match error.labels() {
        [one] if text.is_char_boundary(inside(one.span.start)) => clipped(text, span(one)),
        _ => (text.to_string(), 0..0, 0),
    };
    let is_clipped = kept.len() != text.len();
    let place = |l: &crate::error::Label| (name, if is_clipped { only.clone() } else { span(l) });
    let text = kept;
    let config = Config::default().with_index_type(IndexType::Byte).with_color(colour::errors());
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
    if is_clipped {
        report = report.with_note(format!("only a part of the line is shown, from byte {} on", cut + 1));
    }
    for help in error.helps() {
        report = report.with_help(format!("try: {help}"));
    }
    let mut out = Vec::new();
    report.finish().write((name, Source::from(text)), &mut out).ok()?;
    String::from_utf8(out).ok()
}

/// `FILE:LINE:COLUMN: `, as editors read it: of the first place in the file, or of the step that an error in a printed program is
/// about.
fn location(error: &Error, name: &str, is_file: bool) -> String {
    let step = || error.line().map(|line| (line, 1));
    let own = || {
        let (text, at) = (error.source_text()?, error.labels().first()?.span.start);
        let before = text.get(..at)?;
        let begin = before.rfind('\n').map_or(0, |n| n + 1);
        Some((before.matches('\n').count() + 1, before[begin..].chars().count() + 1))
    };
    match if is_file { own() } else { step() } {
        Some((line, column)) => format!("{name}:{line}:{column}: "),
        None => String::new(),
    }
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

/// A table with light rules, no wider than a terminal that it is printed to.
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    if colour::output() {
        let bold = |h: &&str| comfy_table::Cell::new(h).add_attribute(comfy_table::Attribute::Bold);
        table.enforce_styling().set_header(header.iter().map(bold));
    } else {
        table.set_header(header);
    }
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    }
    table
}

/// Columns of text where standard output is no terminal, and the most on one.
const COLUMNS: usize = 120;

/// Text in lines that fit the terminal, each indented.
pub fn wrapped(text: &str, indent: &str) -> String {
    let columns = if std::io::stdout().is_terminal() { textwrap::termwidth().min(COLUMNS) } else { COLUMNS };
    textwrap::fill(text, textwrap::Options::new(columns).initial_indent(indent).subsequent_indent(indent))
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|e| Error::bug(Code::CliJson, e.to_string()))?;
    line(text);
    Ok(())
}

/// `1 step`, `2 steps`.
pub fn count(n: usize, what: &str) -> String {
    counted(n, what)
}

/// Seconds in a unit that reads well.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// The geometric mean; `None` of no numbers.
pub fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), r: f64| (sum + r.ln(), count + 1.0));
    (count > 0.0).then(|| (sum / count).exp())
}

/// Says how near the result is; one beyond its bound has been refused before.
pub fn verdict(worst: f64) -> ExitCode {
    line(format_args!("checked against f64: the largest error is {worst:.3} of its bound"));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_what_is_underlined_is_shown() {
        let line = format!("{}BAD{}", "ü".repeat(10_000), "x".repeat(10_000));
        let (text, at) = (format!("short\n{line}\nend\n"), 6 + 20_000);
        let (kept, span, cut) = clipped(&text, at..at + 3);
        assert_eq!(&kept[span], "BAD");
        assert!(kept.starts_with("short\n") && kept.ends_with("\nend\n") && kept.len() < 300, "{}", kept.len());
        assert_eq!(cut, 20_000 - SHOWN_BEFORE);
        // What is underlined may be the line itself.
        let (kept, span, _) = clipped(&text, 6..text.len());
        assert!(kept.len() < 300 && span.end <= kept.len() && span.start == 6);
        assert_eq!(clipped("a b c", 2..3), ("a b c".to_string(), 2..3, 0));
    }

    #[test]
    fn a_line_of_another_text_is_no_place_in_the_users_file() {
        let error = Error::input(Code::SimBounds, "outside").within("line 48: st.global.f32");
        assert_eq!(location(&error, "a.loom", false), "");
        assert_eq!(location(&error.at_line(4, "bind i threadIdx.x"), "a.loom", false), "a.loom:4:1: ");
    }
}
