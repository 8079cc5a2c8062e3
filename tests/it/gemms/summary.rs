//! What came of many cases, as a table: by types, how many in each layout and tier, by which instructions, and the worst
//! error over its bound.

use super::is_beyond;
use super::table::Case;
use std::collections::BTreeMap;
use std::fmt;
use warploom::te::Layout;
use warploom::{Error, Result};

/// A case that was right.
pub struct Outcome {
    /// What multiplied; nothing for ordinary code.
    pub instruction: Option<&'static str>,
    /// Trials that were right bit by bit.
    pub exact: usize,
    /// The largest error over its bound, where there was a trial of that tier.
    pub worst: Option<f64>,
}

/// The cases of some types.
#[derive(Default)]
struct Line {
    layouts: [usize; 4],
    epilogues: usize,
    exact: usize,
    bound: usize,
    worst: f64,
    instructions: BTreeMap<&'static str, usize>,
    skipped: usize,
}

/// All cases so far.
#[derive(Default)]
pub struct Summary {
    lines: Vec<(String, Line)>,
    skips: BTreeMap<String, usize>,
    /// Cases that were right bit by bit in a trial, by instruction.
    exact: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
}

impl Summary {
    /// Counts a case; what cannot be done yet is skipped, everything else that fails is wrong.
    pub fn add(&mut self, case: &Case, result: Result<Outcome>) {
        let name = case.types().name();
        let at = self.lines.iter().position(|l| l.0 == name).unwrap_or_else(|| {
            self.lines.push((name, Line::default()));
            self.lines.len() - 1
        });
        let line = &mut self.lines[at].1;
        match result {
            Ok(outcome) => {
                line.layouts[Layout::ALL.iter().position(|l| *l == case.spec.layout).unwrap_or(0)] += 1;
                line.epilogues += usize::from(!case.epilogues.is_empty());
                line.exact += outcome.exact;
                line.bound += usize::from(outcome.worst.is_some());
                line.worst = line.worst.max(outcome.worst.unwrap_or(0.0));
                let instruction = outcome.instruction.unwrap_or("SIMT");
                *line.instructions.entry(instruction).or_default() += 1;
                *self.exact.entry(instruction).or_default() += usize::from(outcome.exact > 0);
            }
            Err(error) if is_beyond(&error) => {
                line.skipped += 1;
                *self.skips.entry(reason(&error)).or_default() += 1;
            }
            Err(error) => self.wrong.push(format!("{case}: {error}")),
        }
    }

    /// Cases that were right.
    pub fn right(&self) -> usize {
        self.lines.iter().map(|l| l.1.layouts.iter().sum::<usize>()).sum()
    }

    /// Cases that were right bit by bit, multiplied by instructions whose names begin so.
    pub fn exact_by(&self, family: &str) -> usize {
        self.exact.iter().filter(|(name, _)| name.starts_with(family)).map(|(_, n)| n).sum()
    }

    /// Fails where a case is wrong, or fewer than so many are right.
    pub fn finish(&self, least: usize) {
        let shown = self.wrong.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(self.wrong.is_empty(), "{} cases are wrong:\n{shown}", self.wrong.len());
        assert!(self.right() >= least, "{} cases are right, fewer than {least}", self.right());
    }
}

/// An error without the names of a case: its first words, up to the first number.
fn reason(error: &Error) -> String {
    let words = error.message().split(' ').take_while(|w| !w.contains(|c: char| c.is_ascii_digit()) || w.len() < 4);
    format!("[{}] {} ..", error.code(), words.collect::<Vec<_>>().join(" "))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:16} {:>4} {:>4} {:>4} {:>4} {:>8} {:>6} {:>6} {:>7} {:>8}  multiplied by",
            "types", "NN", "NT", "TN", "TT", "epilogue", "exact", "bound", "worst", "skipped"
        )?;
        for (name, l) in &self.lines {
            let [nn, nt, tn, tt] = l.layouts;
            let used: Vec<String> = l.instructions.iter().map(|(i, n)| format!("{n} {i}")).collect();
            writeln!(
                f,
                "{name:16} {nn:4} {nt:4} {tn:4} {tt:4} {:8} {:6} {:6} {:7.3} {:8}  {}",
                l.epilogues,
                l.exact,
                l.bound,
                l.worst,
                l.skipped,
                used.join(", ")
            )?;
        }
        writeln!(f, "{} cases are right, {} wrong", self.right(), self.wrong.len())?;
        writeln!(f, "{} of them are right bit by bit by wgmma", self.exact_by("wgmma."))?;
        self.skips.iter().try_for_each(|(reason, n)| writeln!(f, "{n} skipped: {reason}"))
    }
}

#[test]
fn instructions_are_counted_where_a_result_is_exact() {
    let (mut summary, case) = (Summary::default(), &super::table::all()[0]);
    for (instruction, exact) in
        [(Some("wgmma.a"), 1), (Some("wgmma.b"), 1), (Some("wgmma.b"), 0), (Some("mma.c"), 1), (None, 1)]
    {
        summary.add(case, Ok(Outcome { instruction, exact, worst: None }));
    }
    assert_eq!((summary.right(), summary.exact_by("wgmma."), summary.exact_by("mma.")), (5, 2, 1));
}
