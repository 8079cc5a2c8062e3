//! A `.loom` text is a whole schedule: the program, a line `target sm_90a`, then the steps.
//!
//! The same text is example, test case, tuning record, command-line input and bug report. [`Schedule`] parses it and
//! prints it back; nothing besides its three parts influences the PTX. An error underlines the user's own text: the
//! parsers of the two halves see the whole file with the other half blanked out, so their places are places in it.
//!
//! A line `recommend` among the steps is replaced by recommended ones while the text is read. Which these are is `gemm`'s matter:
//! `gemm/line.rs` passes it to the parser.

mod format;

use crate::auto;
use crate::error::{Code, Error, Result};
use crate::ir::Func;
use crate::ir::verify::{self, Assurance};
use crate::schedule::{self, Step};
use crate::target::Target;
use crate::te::{self, Known};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

pub use format::format;
pub(crate) use format::layout;

/// Longer texts, in bytes, are refused before they are read.
pub const LONGEST_TEXT: usize = 1 << 20;

/// What to compute, for which chip, and how.
///
/// ```
/// use warploom::{Schedule, Target};
///
/// let schedule: Schedule = "vec_add 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x".parse()?;
/// assert_eq!(schedule.steps.len(), 3);
/// // The same program and steps at another size, for another chip.
/// let other = schedule.resized(&[4096])?.for_target(Target::sm_90());
/// assert_eq!(other.to_string().parse::<Schedule>()?, other);
/// # Ok::<(), warploom::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Schedule {
    /// What to compute, as `te` states it.
    pub program: Func,
    /// The chip that the PTX is for. No step looks at it once it is resolved.
    pub target: Target,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Schedule {
    /// A program with its steps, for a chip. Whether the steps apply shows in [`Schedule::scheduled`].
    pub fn new(program: Func, target: Target, steps: Vec<Step>) -> Schedule {
        Schedule { program, target, steps }
    }

    /// Parses a `.loom` text, for another chip where one is given; `recommend` yields the steps that a line `recommend`
    /// after these stands for.
    pub(crate) fn parse_with(
        text: &str,
        target: Option<Target>,
        recommend: &mut dyn FnMut(&Schedule) -> Result<Vec<Step>>,
    ) -> Result<Schedule> {
        // An editor's byte-order mark is no part of the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.len() > LONGEST_TEXT {
            let message = format!("a schedule of {} bytes is longer than {LONGEST_TEXT}", text.len());
            return Err(Error::input(Code::LoomSize, message));
        }
        refuse_knobs(text)?;
        let (whole, name) = target_statement(text)?;
        let own = Target::parse(&text[name.clone()]).map_err(|e| e.text(text).label(name, "this target"))?;
        let program = te::parse(&keep(text, 0..whole.start)).map_err(|e| in_users_text(e, text))?;
        let mut out = Schedule { program, target: target.unwrap_or(own), steps: Vec::new() };
        let mut from = whole.end;
        for line in recommended(text, whole.end)? {
            out.read_steps(text, from..line.start)?;
            let here = |e: Error| if e.labels().is_empty() { e.text(text).label(line.clone(), "this line") } else { e };
            let steps = recommend(&out).map_err(here)?;
            let whole: Arc<str> = text.into();
            out.steps.extend(steps.into_iter().map(|step| step.read_from(&whole, line.clone())));
            from = line.end;
        }
        out.read_steps(text, from..text.len())?;
        Ok(out)
    }

    /// Adds the steps of a part of the text.
    fn read_steps(&mut self, text: &str, part: Range<usize>) -> Result<()> {
        let steps = schedule::parse(&keep(text, part)).map_err(|e| in_users_text(e, text))?;
        // Errors of steps point into the user's text, too.
        let own: Arc<str> = text.into();
        let placed = |step: Step| match step.origin().map(|(_, span)| span) {
            Some(span) => step.read_from(&own, span),
            None => step,
        };
        self.steps.extend(steps.into_iter().map(placed));
        Ok(())
    }

    /// The program after all steps.
    ///
    /// # Errors
    /// What a step requires and the program lacks (`NAME.N`), underlined.
    pub fn scheduled(&self) -> Result<Func> {
        self.trace(&mut |_, _, _| {})
    }

    /// Like [`Self::scheduled`], showing each step (counted from 1) with the program after it.
    ///
    /// # Errors
    /// As [`Self::scheduled`]; the steps before the refused one have been shown.
    pub fn trace(&self, show: &mut dyn FnMut(usize, &Step, &Func)) -> Result<Func> {
        self.walk(show).map(|(func, _)| func)
    }

    /// The same schedule with claims of the verifier that are not decided tried at some points instead of refused:
    /// [`Schedule::assurance`] then shows them as tested. No text says so.
    #[must_use]
    pub fn allow_tested(mut self) -> Schedule {
        self.program.allow_tested = true;
        self
    }

    /// How the legality of the program after all steps is known. What `lower` could not decide is in
    /// `LoweredKernel::tested`.
    ///
    /// # Errors
    /// As [`Self::scheduled`], and what the verifier refuses.
    pub fn assurance(&self) -> Result<Assurance> {
        verify::assurance(&self.scheduled()?)
    }

    /// The same with every step that leaves a choice to the compiler resolved for the target ([`crate::auto`]): this
    /// schedule means the same for every chip.
    ///
    /// # Errors
    /// As [`Self::scheduled`].
    pub fn resolved(&self) -> Result<Schedule> {
        let names = |(step, stated): (Step, &Step)| step.with_names(stated.args().names.clone());
        let (_, steps) = self.walk(&mut |_, _, _| {})?;
        let steps = steps.into_iter().zip(&self.steps).map(names).collect();
        Ok(Schedule { steps, ..self.clone() })
    }

    /// The program after all steps; the steps as resolved, with every name stated.
    fn walk(&self, show: &mut dyn FnMut(usize, &Step, &Func)) -> Result<(Func, Vec<Step>)> {
        let (mut func, mut steps) = (self.program.clone(), Vec::with_capacity(self.steps.len()));
        for (i, step) in self.steps.iter().enumerate() {
            let at = |e| self.at_step(i, e).within(format!("step {} of {}", i + 1, self.steps.len()));
            let resolved = auto::resolve(&func, step, &self.target).map_err(at)?;
            let (next, stated) = schedule::complete(&func, &resolved).map_err(at)?;
            func = next;
            show(i + 1, &resolved, &func);
            steps.push(stated);
        }
        Ok((func, steps))
    }

    /// Underlines a step in the text that it was read from (else in the printed schedule), or the word of it that the message
    /// speaks of, where an error points nowhere yet; one that underlines the program says the step's line.
    fn at_step(&self, number: usize, error: Error) -> Error {
        let step = &self.steps[number];
        if !error.labels().is_empty() {
            return match step.origin() {
                Some((text, span)) => {
                    let line = text[..span.start].matches('\n').count() + 1;
                    error.at_line(line, &text[span])
                }
                None => error,
            };
        }
        let (text, before, step) = match step.origin() {
            Some((text, span)) => (text.to_string(), span.start, text[span].to_string()),
            None => {
                let before = Schedule { steps: self.steps[..number].to_vec(), ..self.clone() }.to_string().len();
                (self.to_string(), before, step.to_string())
            }
        };
        let word = step.split_whitespace().rfind(|w| error.name() == Some(w));
        let at = word.map_or(0, |w| w.as_ptr() as usize - step.as_ptr() as usize);
        let span = before + at..before + at + word.map_or(step.len(), str::len);
        error.text(text).label(span, if word.is_some() { "this name" } else { "this step" })
    }

    /// The same, resolved, with every name stated that a step makes by default.
    ///
    /// # Errors
    /// As [`Self::scheduled`].
    pub fn completed(&self) -> Result<Schedule> {
        let (_, steps) = self.walk(&mut |_, _, _| {})?;
        Ok(Schedule { steps, ..self.clone() })
    }

    /// The same steps on the same program at another size: n, or m, n and k for a matrix product. Only for the programs
    /// that `te` has builders for, with their epilogues ([`Known`]); the steps are checked when they are applied.
    ///
    /// # Errors
    /// `loom.resize` where no builder makes the program; `te.size` where it has another number of sizes; what the builder refuses.
    pub fn resized(&self, sizes: &[i64]) -> Result<Schedule> {
        let Some(known) = Known::of(&self.program) else {
            let message =
                format!("the text of program {} states its extents, which no other size replaces", self.program.name);
            return Err(Error::input(Code::LoomResize, message).help(
                "change the extents in the text, or begin it with a builder line such as `gemm 64x64x64 f32 NN`",
            ));
        };
        Ok(Schedule { program: known.resized(sizes)?.build()?, ..self.clone() })
    }

    /// The same program and steps for another chip.
    #[must_use]
    pub fn for_target(mut self, target: Target) -> Schedule {
        self.target = target;
        self
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Schedule> {
        Schedule::parse(text)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", te::print(&self.program).trim_end())?;
        writeln!(f, "target {}", self.target.name)?;
        self.steps.iter().try_for_each(|step| match step.remark() {
            Some(remark) => writeln!(f, "{step}  # {remark}"),
            None => writeln!(f, "{step}"),
        })
    }
}

/// Refuses a text with knobs (`split i ? {8,16} -> a b`): it is a space of schedules.
fn refuse_knobs(text: &str) -> Result<()> {
    let Some((at, statement)) =
        statements(text).into_iter().find_map(|s| Some((s.start + text[s.clone()].find('{')?, s)))
    else {
        return Ok(());
    };
    let end = text[at..statement.end].find('}').map_or(statement.end, |n| at + n + 1);
    Err(Error::input(Code::LoomKnobs, "the text has knobs: it is a space of schedules, not one")
        .text(text)
        .label(at..end, "this set of choices")
        .help("`warploom tune FILE` tries the choices and prints the best schedule"))
}

/// Where the statement `target NAME` stands, and where its name.
pub(crate) fn target_statement(text: &str) -> Result<(Range<usize>, Range<usize>)> {
    let mut found =
        statements(text).into_iter().filter(|s| words(text, s).first().is_some_and(|w| &text[w.clone()] == "target"));
    let Some(statement) = found.next() else {
        let end = text.trim_end().len();
        let last = text[..end].rfind('\n').map_or(0, |n| n + 1);
        return Err(Error::input(Code::LoomTarget, "no line names the target")
            .text(text)
            .label(last..end, "the text ends here")
            .help("a line `target sm_90a` between the program and the steps"));
    };
    if let Some(second) = found.next() {
        return Err(Error::input(Code::LoomTarget, "two lines name the target")
            .text(text)
            .label(statement, "here first")
            .label(second, "and here again"));
    }
    match words(text, &statement).as_slice() {
        [_, name] => Ok((statement, name.clone())),
        _ => Err(Error::input(Code::LoomTarget, "`target` takes one name, such as sm_90a")
            .text(text)
            .label(statement, "this line")),
    }
}

/// Where the statements `recommend` behind the target's are.
fn recommended(text: &str, after: usize) -> Result<Vec<Range<usize>>> {
    let is_own = |s: &Range<usize>| {
        let first = words(text, s).first().map(|w| &text[w.clone()] == schedule::RECOMMEND);
        s.start >= after && first == Some(true)
    };
    let found: Vec<Range<usize>> = statements(text).into_iter().filter(is_own).collect();
    match found.iter().find(|s| words(text, s).len() > 1) {
        None => Ok(found),
        Some(wrong) => {
            let error =
                Error::input(Code::LoomRecommend, "`recommend` takes nothing: it is for the program and the target");
            Err(error.text(text).label(wrong.clone(), "this line"))
        }
    }
}

/// The places of the statements: lines without their comments, cut at `;`, trimmed.
pub(crate) fn statements(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or("");
        let mut start = line_start;
        for statement in code.split(';') {
            let blank = statement.len() - statement.trim_start().len();
            out.push(start + blank..start + blank + statement.trim().len());
            start += statement.len() + 1;
        }
        line_start += line.len();
    }
    out
}

/// The places of the words of a statement.
fn words(text: &str, statement: &Range<usize>) -> Vec<Range<usize>> {
    let (mut out, mut from) = (Vec::new(), statement.start);
    for word in text[statement.clone()].split_whitespace() {
        let at = from + text[from..statement.end].find(word).unwrap_or(0);
        from = at + word.len();
        out.push(at..from);
    }
    out
}

/// The text with all but a part of it blanked, every byte in its place.
fn keep(text: &str, part: Range<usize>) -> String {
    let blank = |s: &str| -> String { s.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }).collect() };
    format!("{}{}{}", blank(&text[..part.start]), &text[part.clone()], blank(&text[part.end..]))
}

/// Puts the user's whole text under an error that points into a blanked copy.
fn in_users_text(error: Error, text: &str) -> Error {
    match error.source_text() {
        Some(seen) if seen.len() == text.len() => error.text(text),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# adds\nvec_add 1000  # ragged\ntarget sm_80\nsplit i ? 128 -> i0 i1 # a step\n";

    /// The error's first line, and what it underlines in the user's own text.
    fn refusal(text: &str) -> (String, Vec<String>) {
        let error = Schedule::parse(text).unwrap_err();
        let underlined = |l: &crate::error::Label| error.source_text().map(|t| t[l.span.clone()].to_string());
        let places = error.labels().iter().filter_map(underlined).collect();
        (error.to_string().lines().next().unwrap_or("").to_string(), places)
    }

    #[test]
    fn a_text_parses_prints_and_replays() {
        let schedule = Schedule::parse(TEXT).unwrap();
        assert_eq!((schedule.target.name, schedule.steps.len()), ("sm_80", 1));
        let printed = schedule.to_string();
        assert!(printed.ends_with("\ntarget sm_80\nsplit i ? 128 -> i0 i1\n"), "{printed}");
        assert_eq!(Schedule::parse(&printed).unwrap(), schedule);
        assert_eq!(Schedule::parse("vec_add 1000; target sm_80; split i ? 128 -> i0 i1").unwrap(), schedule);
        assert_eq!(schedule.scheduled().unwrap(), schedule.completed().unwrap().scheduled().unwrap());
    }

    #[test]
    fn the_target_is_named_once_and_known() {
        let none = "error in the input [loom.target]: no line names the target".to_string();
        assert_eq!(refusal("vec_add 8\n"), (none, vec!["vec_add 8".into()]));
        let twice = "error in the input [loom.target]: two lines name the target".to_string();
        assert_eq!(
            refusal("vec_add 8\ntarget sm_80\ntarget sm_90"),
            (twice, vec!["target sm_80".into(), "target sm_90".into()])
        );
        let (message, places) = refusal("vec_add 8\ntarget sm_81 # no such chip\n");
        assert!(message.contains("sm_81"), "{message}");
        assert_eq!(places, ["sm_81"]);
        let (message, places) = refusal("vec_add 8\ntarget sm_80 sm_90");
        assert_eq!(
            (message.as_str(), places),
            (
                "error in the input [loom.target]: `target` takes one name, such as sm_90a",
                vec!["target sm_80 sm_90".into()]
            )
        );
    }

    #[test]
    fn errors_underline_the_users_own_text() {
        let (message, places) = refusal("vec_add 8\ntarget sm_80\nsplit i ? 4\nspilt i ? 4\n");
        assert!(message.contains("no primitive `spilt`"), "{message}");
        assert_eq!(places, ["spilt"]);
        let (_, places) = refusal("# a comment with ü\nvec_ad 8\ntarget sm_80\n");
        assert!(places.iter().any(|p| p.contains("vec_ad")), "{places:?}");
    }

    #[test]
    fn a_refused_step_says_which_it_is() {
        let error =
            Schedule::parse("vec_add 8\ntarget sm_80\nsplit i ? 4\nsplit nope ? 2").unwrap().scheduled().unwrap_err();
        assert_eq!(error.context().last().map(String::as_str), Some("step 2 of 2"));
    }

    #[test]
    fn a_refused_step_is_underlined_where_the_user_wrote_it() {
        let text =
            "# two\nvec_add 64\ntarget sm_80; split i ? 4 -> a b   # fine\n\n  split   nope  ? 2 # wrong\nunroll b\n";
        let schedule = Schedule::parse(text).unwrap();
        for schedule in
            [schedule.clone(), schedule.clone().for_target(Target::sm_90()), schedule.resized(&[128]).unwrap()]
        {
            let error = schedule.scheduled().unwrap_err();
            assert_eq!(error.source_text(), Some(text));
            let [label] = error.labels() else { panic!("{error}") };
            assert_eq!((label.span.start, &text[label.span.clone()]), (text.find("nope").unwrap(), "nope"));
        }
        // A step from elsewhere has its own text.
        let steps = schedule::parse("split nope ? 2").unwrap();
        let made = Schedule { steps, ..schedule.clone() };
        assert_eq!(made.scheduled().unwrap_err().source_text(), Some("split nope ? 2"));
        // One that underlines the program says its line.
        let error = Schedule::parse("vec_add 64\ntarget sm_80\n\nbind i threadIdx.x; bind i threadIdx.y\n").unwrap();
        let error = error.scheduled().unwrap_err();
        assert!(error.context().iter().any(|c| c == "line 4: bind i threadIdx.y"), "{error}");
        assert_eq!(error.line(), Some(4));
    }

    #[test]
    fn a_schedule_takes_another_size() {
        let schedule = Schedule::parse(TEXT).unwrap();
        assert_eq!(Known::of(&schedule.resized(&[64]).unwrap().program), Some(Known::VecAdd(64)));
        assert_eq!(schedule.resized(&[1, 2]).unwrap_err().code(), Code::TeSize);
        let own = "program p\ninput A f32[8]\nB: output B[i 8] f32 = A[i]\ntarget sm_80\n";
        assert_eq!(Schedule::parse(own).unwrap().resized(&[4]).unwrap_err().code(), Code::LoomResize);
    }

    #[test]
    fn no_text_is_too_odd_to_refuse() {
        for text in [
            "",
            ";",
            "target",
            "target\u{a0}x",
            "\u{feff}",
            "target sm_90",
            "# target sm_90",
            "vec_add 8;target sm_90;;;",
        ] {
            let _ = Schedule::parse(text);
        }
        assert_eq!(Schedule::parse(&"x".repeat(LONGEST_TEXT + 1)).unwrap_err().code(), Code::LoomSize);
    }
}
