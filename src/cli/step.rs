//! `warploom run FILE --step`: walks the scheduled program statement by statement, as commands on standard input say.
//!
//! The run ends where the commands end: no command is waited for twice.

use super::look::{self, Element, Elements, Places};
use super::show;
use crate::ir::{Func, Var};
use crate::sim::{Moment, Seen};
use std::io::{BufRead, IsTerminal, Read};
use std::ops::ControlFlow;

const COMMANDS: &str = "\
enter, or a number N   run the next statement, or the next N
n, n N                 run to the end of the innermost loop, or of the N innermost loops
c                      continue to the next breakpoint, or to the end
b NAME, b LINE         set a breakpoint at a block, or at a line of the program; again: remove it
b                      list the breakpoints
p T[3, 4], p T[0..2]   print elements of a buffer
w                      show where the run is, in the program
h                      show these commands
q                      quit";

/// Lines of the program around the current one that `w` shows, on either side.
const LINES_AROUND: usize = 8;

/// The most elements that `p` prints.
const MOST_PRINTED: usize = 64;

/// The longest command that is read, in bytes.
const LONGEST_COMMAND: u64 = 4096;

/// Until where the program runs.
enum Until {
    /// The statement after so many more; each write is shown.
    Statements(u64),
    /// The first statement outside of these loops: the innermost of them, and the values of those around it.
    Outside(Var, Vec<(Var, i64)>),
    /// A breakpoint.
    Breakpoint,
    /// The end of the program.
    End,
}

/// A walk through a program.
pub struct Stepper {
    func: Func,
    places: Places,
    until: Until,
    /// Lines at which the run stops.
    breakpoints: Vec<usize>,
    /// Statements that have begun.
    begun: u64,
    /// Whether a user sees a prompt.
    prompts: bool,
}

impl Stepper {
    /// A walk that stops before the first statement.
    pub fn new(func: &Func) -> Stepper {
        let prompts = std::io::stdin().is_terminal();
        let stepper = Stepper {
            places: Places::of(func),
            func: func.clone(),
            until: Until::Statements(0),
            breakpoints: Vec::new(),
            begun: 0,
            prompts,
        };
        let statements = show::count(stepper.places.all().len(), "statement");
        show::line(format_args!(
            "the scheduled program, in sequence: blocks and threads are loops; {statements}, `h` shows the commands"
        ));
        stepper
    }

    /// What to do at a moment of the run.
    pub fn at(&mut self, moment: &Moment<'_>) -> ControlFlow<()> {
        if self.places.repeats(moment) {
            return ControlFlow::Continue(());
        }
        match moment.seen {
            Seen::Wrote { buffer, element, value } => {
                if matches!(self.until, Until::Statements(_)) {
                    show::line(format_args!("      {} = {value}", look::named(self.func.buffer(buffer), element)));
                }
                ControlFlow::Continue(())
            }
            Seen::Before => {
                self.begun += 1;
                if !self.stops(moment) {
                    return ControlFlow::Continue(());
                }
                self.show(moment);
                self.commands(moment)
            }
        }
    }

    fn stops(&mut self, moment: &Moment<'_>) -> bool {
        let line = self.places.get(moment.statement).line;
        let loops = self.loops(moment);
        let met = match &mut self.until {
            Until::Statements(0) => true,
            Until::Statements(left) => {
                *left -= 1;
                false
            }
            Until::Outside(inner, outer) => {
                loops.get(..outer.len()) != Some(&outer[..]) || loops.get(outer.len()).is_none_or(|l| l.0 != *inner)
            }
            Until::Breakpoint | Until::End => false,
        };
        met || self.breakpoints.contains(&line)
    }

    /// The loops around the statement, a rasterized pair as one, with their values.
    fn loops(&self, moment: &Moment<'_>) -> Vec<(Var, i64)> {
        let values = moment.loops();
        let of = |var: Var| values.iter().rev().find(|v| v.0 == var).map(|v| v.1);
        self.places.get(moment.statement).loops.iter().filter_map(|l| Some((l.var, of(l.var)?))).collect()
    }

    /// Shows the statement that is next.
    fn show(&self, moment: &Moment<'_>) {
        let line = self.places.get(moment.statement).line;
        let text = self.places.lines.get(line - 1).map_or("", |l| l.trim());
        show::line(format_args!("{line:>4}  {text}  # {}", self.places.describe(moment)));
    }

    /// Reads commands up to one that lets the program run.
    fn commands(&mut self, moment: &Moment<'_>) -> ControlFlow<()> {
        loop {
            if self.prompts {
                show::put("(step) ");
            }
            let Some(command) = read() else {
                return self.quit("the commands end");
            };
            let mut words = command.split_whitespace();
            let (word, rest) = (words.next().unwrap_or(""), words.collect::<Vec<_>>().join(" "));
            match (word, rest.as_str()) {
                ("", "") => self.until = Until::Statements(0),
                ("c", "") => self.until = if self.breakpoints.is_empty() { Until::End } else { Until::Breakpoint },
                ("n", rest) => match self.outside(moment, rest) {
                    Some(until) => self.until = until,
                    None => {
                        show::line(format_args!("`{rest}` is no number of loops"));
                        continue;
                    }
                },
                ("q", "") => return self.quit("quit"),
                (word, "") if word.parse::<u64>().is_ok_and(|n| n > 0) => {
                    self.until = Until::Statements(word.parse::<u64>().map_or(0, |n| n - 1));
                }
                _ => {
                    self.ask(word, &rest, moment);
                    continue;
                }
            }
            return ControlFlow::Continue(());
        }
    }

    /// Commands after which the program is where it was.
    fn ask(&mut self, word: &str, rest: &str, moment: &Moment<'_>) {
        match (word, rest) {
            ("h" | "?" | "help", "") => show::line(COMMANDS),
            ("w", "") => self.surroundings(moment),
            ("b", "") => list(&self.places.lines, &self.breakpoints),
            ("b", at) => self.breakpoint(at),
            ("p", "") => show::line("p needs elements: p T[3, 4]"),
            ("p", elements) => self.print(elements, moment),
            _ => show::line(format_args!("`{}` is no command; `h` shows them", format!("{word} {rest}").trim())),
        }
    }

    fn quit(&self, why: &str) -> ControlFlow<()> {
        let begun = show::count(self.begun.saturating_sub(1) as usize, "statement");
        show::line(format_args!("{why}: the run ends after {begun}, its result is not checked"));
        ControlFlow::Break(())
    }

    /// What ends so many loops; `None` where it is no number.
    fn outside(&self, moment: &Moment<'_>, count: &str) -> Option<Until> {
        let count: usize = if count.is_empty() { 1 } else { count.parse().ok().filter(|n| *n > 0)? };
        let mut loops = self.loops(moment);
        let Some(at) = loops.len().checked_sub(count) else { return Some(Until::End) };
        let inner = loops[at].0;
        loops.truncate(at);
        Some(Until::Outside(inner, loops))
    }

    /// The lines around the current one.
    fn surroundings(&self, moment: &Moment<'_>) {
        around(&self.places.lines, self.places.get(moment.statement).line, &self.breakpoints);
        show::line(self.places.describe(moment));
    }

    /// Sets the breakpoints of a block, or of a line, or takes them away.
    fn breakpoint(&mut self, at: &str) {
        let line = at.parse::<usize>().ok();
        let here = self.places.all().iter().filter(|p| line.map_or(p.block == at, |line| p.line == line));
        let mut found: Vec<usize> = here.map(|p| p.line).collect();
        if line.is_none() {
            // A block has one breakpoint: where it begins.
            found.truncate(1);
        }
        let Some(&line) = found.first() else {
            let mut names: Vec<&str> = self.places.all().iter().map(|p| p.block.as_str()).collect();
            names.dedup();
            let lines: Vec<String> = self.places.all().iter().map(|p| p.line.to_string()).collect();
            show::line(format_args!(
                "no statement is at `{at}`; blocks: {}; lines of statements: {}",
                names.join(", "),
                lines.join(", ")
            ));
            return;
        };
        toggle(&mut self.breakpoints, line);
    }

    fn print(&self, elements: &str, moment: &Moment<'_>) {
        print(elements, (&self.func, "scheduled"), |element| match moment.read(element.buffer, element.at) {
            Some(value) => format!("{} = {value}", element.name),
            None => format!("{} is not written yet", element.name),
        });
    }
}

/// Prints the lines around the current one, with the breakpoints among them.
pub fn around(lines: &[String], line: usize, breakpoints: &[usize]) {
    let first = line.saturating_sub(LINES_AROUND + 1);
    for (n, text) in lines.iter().enumerate().skip(first).take(2 * LINES_AROUND + 1) {
        let mark = match n + 1 {
            at if at == line => '>',
            at if breakpoints.contains(&at) => 'b',
            _ => ' ',
        };
        show::line(format_args!("{mark}{:>3}  {text}", n + 1));
    }
}

/// Prints the lines that have a breakpoint.
pub fn list(lines: &[String], breakpoints: &[usize]) {
    if breakpoints.is_empty() {
        show::line("no breakpoints");
    }
    for line in breakpoints {
        show::line(format_args!("{line:>4}  {}", lines.get(line - 1).map_or("", |l| l.trim())));
    }
}

/// Prints elements of a program of that level, `T[3, 4]`, each in the words of `words`.
pub fn print(text: &str, (func, level): (&Func, &str), words: impl Fn(&Element) -> String) {
    let found = text.parse::<Elements>().and_then(|e| e.of(func, level).map_err(|e| e.message().to_string()));
    let found = match found {
        Ok(found) => found,
        Err(why) => return show::line(why),
    };
    for element in found.iter().take(MOST_PRINTED) {
        show::line(format_args!("      {}", words(element)));
    }
    if found.len() > MOST_PRINTED {
        show::line(format_args!("      .. and {} more", found.len() - MOST_PRINTED));
    }
}

/// Sets the breakpoint of a line, or takes it away.
pub fn toggle(breakpoints: &mut Vec<usize>, line: usize) {
    match breakpoints.iter().position(|l| *l == line) {
        Some(n) => {
            breakpoints.remove(n);
            show::line(format_args!("no longer stops at line {line}"));
        }
        None => {
            breakpoints.push(line);
            breakpoints.sort_unstable();
            show::line(format_args!("stops at line {line}"));
        }
    }
}

/// The next line of standard input; `None` at its end, or where it cannot be read.
pub fn read() -> Option<String> {
    let mut line = Vec::new();
    let length = std::io::stdin().lock().take(LONGEST_COMMAND).read_until(b'\n', &mut line).ok()?;
    (length > 0).then(|| String::from_utf8_lossy(&line).trim().to_string())
}
