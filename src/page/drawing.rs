//! What a timeline consists of, as the script of the page reads it.

use super::lanes::Lane;
use serde::Serialize;

/// A stretch of time on a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The lane, by its number.
    pub lane: usize,
    /// Its first step and the one behind its last.
    pub from: u32,
    /// The end.
    pub to: u32,
    /// What it is: the class in the style sheet.
    pub kind: &'static str,
    /// The line of the lowered program, from 1.
    pub line: usize,
    /// What happens, as a sentence.
    pub text: String,
    /// Statements in it.
    #[serde(skip)]
    pub runs: u64,
}

/// A moment on a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// The lane, by its number.
    pub lane: usize,
    /// The step.
    pub at: u32,
    /// What it is: the class in the style sheet.
    pub kind: &'static str,
    /// The line of the lowered program, from 1; 0 for none.
    pub line: usize,
    /// What happens, as a sentence.
    pub text: String,
}

/// What makes something on another lane go on: an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Arrow {
    /// Lane and step of the cause.
    pub from: (usize, u32),
    /// Lane and step of the effect.
    pub to: (usize, u32),
}

/// The timeline of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// The kernel's name.
    pub kernel: String,
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// In the order of time.
    pub spans: Vec<Span>,
    /// In the order of time.
    pub marks: Vec<Mark>,
    /// Causes and effects on different lanes.
    pub arrows: Vec<Arrow>,
    /// The last step.
    pub end: u32,
    /// Whether the run went on.
    pub is_cut: bool,
}
