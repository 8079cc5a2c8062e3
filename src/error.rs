//! One error type for the whole crate: whose fault, where, and what to try.
//!
//! A room says what is wrong in one [`Error`] and never panics on input. The fault decides who has to act
//! ([`Fault`]); the [`Code`] names the broken requirement (`split.2` is requirement 2 of `split`); labels underline
//! the places in a printed program or in the user's own text; `help` is a step to try.

mod code;
mod subject;

pub use code::{Area, Code};
use std::ops::Range;
pub use subject::Subject;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who has to act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The program, the schedule, the text or the arguments are wrong.
    Input,
    /// The program is legal, but the target chip (or this version of the compiler for it) cannot run it.
    Chip,
    /// The host: no driver, one too old, no device, out of memory, a tool that is missing.
    Machine,
    /// warploom itself; please report it.
    Bug,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Input => "error in the input",
            Fault::Chip => "not possible on this chip",
            Fault::Machine => "this host cannot",
            Fault::Bug => "a fault of warploom itself",
        })
    }
}

/// An underlined place: a byte range of [`Error::text`] and what to say there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Label {
    /// Byte range in the text.
    pub span: Range<usize>,
    /// What is said beside the underline.
    pub message: String,
}

/// What went wrong. Cheap to move: the details are boxed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render())]
pub struct Error(Box<Details>);

/// `; did you mean ..?`, or nothing where no known name is near.
#[doc(hidden)]
pub fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = known.map(|k| (distance(name, k), k)).min();
    match near {
        Some((d, k)) if d <= name.chars().count().max(3) / 3 => format!("; did you mean `{k}`?"),
        _ => String::new(),
    }
}

/// Names are compared by so many characters at most.
const COMPARED: usize = 64;

/// The number of single-character edits and exchanges of neighbours between two words (Wagner and Fischer's table, three
/// rows at a time).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(COMPARED).collect(), b.chars().take(COMPARED).collect());
    let mut rows = [vec![0; b.len() + 1], vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        rows.rotate_left(1);
        let [before, last, row] = &mut rows;
        row[0] = i;
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
    }
    rows[2][b.len()]
}

/// `1 warp`, `2 warps`: a number with its unit, in the plural unless it is one.
#[doc(hidden)]
pub fn counted(n: impl std::fmt::Display, unit: &str) -> String {
    let n = n.to_string();
    match unit.strip_suffix('x') {
        _ if n == "1" => format!("1 {unit}"),
        Some("inde") => format!("{n} indices"),
        Some(_) => format!("{n} {unit}es"),
        None => format!("{n} {unit}s"),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    fault: Fault,
    code: Code,
    message: String,
    name: Option<String>,
    subjects: Vec<Subject>,
    line: Option<usize>,
    steps: Vec<String>,
    context: Vec<String>,
    text: Option<String>,
    labels: Vec<Label>,
    help: Vec<String>,
}

impl Error {
    /// An error with its fault, the code of the broken requirement and one sentence.
    pub fn new(fault: Fault, code: Code, message: impl Into<String>) -> Self {
        Error(Box::new(Details {
            fault,
            code,
            message: message.into(),
            name: None,
            subjects: Vec::new(),
            line: None,
            steps: Vec::new(),
            context: Vec::new(),
            text: None,
            labels: Vec::new(),
            help: Vec::new(),
        }))
    }

    /// Shorthand for [`Fault::Input`].
    pub fn input(code: Code, message: impl Into<String>) -> Self {
        Self::new(Fault::Input, code, message)
    }

    /// Shorthand for [`Fault::Chip`].
    pub fn chip(code: Code, message: impl Into<String>) -> Self {
        Self::new(Fault::Chip, code, message)
    }

    /// Shorthand for [`Fault::Machine`].
    pub fn machine(code: Code, message: impl Into<String>) -> Self {
        Self::new(Fault::Machine, code, message)
    }

    /// Shorthand for [`Fault::Bug`].
    pub fn bug(code: Code, message: impl Into<String>) -> Self {
        Self::new(Fault::Bug, code, message)
    }

    /// The word of the user's text that the message is about.
    #[must_use]
    pub fn naming(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Adds what the message is about in the Scheduled program.
    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        if !self.0.subjects.contains(&subject) {
            self.0.subjects.push(subject);
        }
        self
    }

    /// [`Self::about`] several.
    #[must_use]
    pub fn about_all(self, subjects: impl IntoIterator<Item = Subject>) -> Self {
        subjects.into_iter().fold(self, Error::about)
    }

    /// [`Self::about`] a loop.
    #[must_use]
    pub fn about_loop(self, name: impl Into<String>) -> Self {
        self.about(Subject::Loop(name.into()))
    }

    /// [`Self::about`] a block.
    #[must_use]
    pub fn about_block(self, name: impl Into<String>) -> Self {
        self.about(Subject::Block(name.into()))
    }

    /// [`Self::about`] a buffer.
    #[must_use]
    pub fn about_buffer(self, name: impl Into<String>) -> Self {
        self.about(Subject::Buffer(name.into()))
    }

    /// [`Self::about`] a role.
    #[must_use]
    pub fn about_role(self, name: impl Into<String>) -> Self {
        self.about(Subject::Role(name.into()))
    }

    /// Adds a step that the message is about, as its text without options.
    #[must_use]
    pub fn of_step(mut self, step: impl Into<String>) -> Self {
        self.0.steps.push(step.into());
        self
    }

    /// Adds what was being done, outermost last: `in step 3, split i ? 7`.
    #[must_use]
    pub fn within(mut self, context: impl Into<String>) -> Self {
        self.0.context.push(context.into());
        self
    }

    /// Says the line of the user's file that the error is about, counted from 1, and the statement there. The first line that an
    /// error is given stays its line.
    #[must_use]
    pub fn at_line(mut self, line: usize, statement: &str) -> Self {
        self.0.line.get_or_insert(line);
        self.within(format!("line {line}: {statement}"))
    }

    /// Adds something to try.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.0.help.push(help.into());
        self
    }

    /// The text that the labels point into; replaces an earlier one.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.0.text = Some(text.into());
        self
    }

    /// Underlines a byte range of the text.
    #[must_use]
    pub fn label(mut self, span: Range<usize>, message: impl Into<String>) -> Self {
        self.0.labels.push(Label { span, message: message.into() });
        self
    }

    /// The same with another who has to act.
    #[must_use]
    pub fn blamed(mut self, fault: Fault) -> Self {
        self.0.fault = fault;
        self
    }

    /// Who has to act.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// The broken requirement.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The sentence alone.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The word of the user's text that the message is about.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// What the message is about in the Scheduled program.
    pub fn subjects(&self) -> &[Subject] {
        &self.0.subjects
    }

    /// The line of the user's file that the error is about, counted from 1.
    pub fn line(&self) -> Option<usize> {
        self.0.line
    }

    /// The steps that the message is about, as their texts without options.
    pub fn steps(&self) -> &[String] {
        &self.0.steps
    }

    /// What was being done, innermost first.
    pub fn context(&self) -> &[String] {
        &self.0.context
    }

    /// What to try.
    pub fn helps(&self) -> &[String] {
        &self.0.help
    }

    /// The text that the labels point into.
    pub fn source_text(&self) -> Option<&str> {
        self.0.text.as_deref()
    }

    /// The underlined places.
    pub fn labels(&self) -> &[Label] {
        &self.0.labels
    }

    fn render(&self) -> String {
        let d = &self.0;
        let mut out = format!("{} [{}]: {}", d.fault, d.code, d.message);
        for line in &d.context {
            out.push_str(&format!("\n  {line}"));
        }
        for line in &d.help {
            out.push_str(&format!("\n  try: {line}"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_units_in_the_plural() {
        let all =
            [counted(1, "warp"), counted(0, "warp"), counted("1.50", "sector"), counted(2, "box"), counted(3, "index")];
        assert_eq!(all, ["1 warp", "0 warps", "1.50 sectors", "2 boxes", "3 indices"]);
    }

    #[test]
    fn near_names_are_suggested() {
        let known = ["split", "fuse", "reorder"];
        for (word, near) in [("spilt", "split"), ("spli", "split"), ("reoder", "reorder"), ("fuse", "fuse")] {
            assert_eq!(suggestion(word, known.into_iter()), format!("; did you mean `{near}`?"));
        }
        assert_eq!(suggestion("banana", known.into_iter()), "");
        assert_eq!(suggestion("", known.into_iter()), "");
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("abcd", "badc")), (3, 3, 2));
    }
}
