//! Faults as errors: the thread, the line of the PTX, and the loop and the statement that codegen's comments name there.

use super::exec::Program;
use super::grid::Stop;
use super::inst::Entry;
use super::warp::LANES;
use crate::error::Error;
use crate::kernel::{Kernel, Kernels};
use std::ops::Range;

/// The bytes of a line of a text, without its indentation.
fn line_of(text: &str, number: u32) -> Option<Range<usize>> {
    let lines = text.split_inclusive('\n');
    let start: usize = lines.take(number.checked_sub(1)? as usize).map(str::len).sum();
    let line = text.get(start..)?.lines().next()?;
    let indent = line.len() - line.trim_start().len();
    Some(start + indent..start + line.trim_end().len())
}

/// An error of decoding, with the text that it is about.
pub(in crate::machine::ptx) fn with_text(error: Error, kernels: &Kernels) -> Error {
    error.text(kernels.text.clone())
}

/// What codegen says of the block of code that a line belongs to.
fn note(entry: &Entry, line: u32) -> Option<&str> {
    let (at, text) = entry.notes.iter().rfind(|(at, _)| *at <= line)?;
    (*at > entry.line).then_some(text.as_str())
}

/// The error of a fault.
pub(in crate::machine::ptx) fn error(
    stop: &Stop,
    kernels: &Kernels,
    kernel: &Kernel,
    program: &Program<'_>,
) -> Error {
    let trap = &stop.halt.trap;
    let code = format!("ptx.{}", trap.code);
    let error = match trap.code {
        "limit" => Error::input(code, trap.message.clone()),
        _ => Error::bug(code, trap.message.clone()),
    };
    let Some(inst) = program.entry.insts.get(stop.halt.pc).filter(|_| stop.warp.is_some()) else { return error };
    let span = line_of(&kernels.text, inst.line);
    let shown = span.clone().and_then(|s| kernels.text.get(s)).unwrap_or("");
    let shown = shown.split("//").next().unwrap_or("").trim().to_string();
    let mut error = error.within(format!("line {} of the PTX: {shown}", inst.line));
    if let Some(note) = note(program.entry, inst.line) {
        error = error.within(format!("in {note}"));
    }
    if let Some(other) = trap.other.filter(|o| *o > 0)
        && let Some(at) = line_of(&kernels.text, other)
    {
        let text = kernels.text.get(at.clone()).unwrap_or("").split("//").next().unwrap_or("").trim().to_string();
        let place = note(program.entry, other).map_or(String::new(), |n| format!(", in {n}"));
        error = error.within(format!("the other: line {other} of the PTX: {text}{place}"));
        error = error.label(at, "and this");
    }
    let warp = stop.warp.unwrap_or(0);
    let [x, y, z] = stop.block;
    let thread = trap.lane.map(|lane| (warp * LANES + lane) as u32).map(|t| {
        let [bx, by, _] = kernel.block;
        format!("thread ({}, {}, {})", t % bx, t / bx % by, t / bx / by)
    });
    let who = thread.unwrap_or_else(|| format!("warp {warp}"));
    error = error.within(format!("{who} of block ({x}, {y}, {z})"));
    if let Some(span) = span {
        error = error.label(span, "this");
    }
    error.text(kernels.text.clone())
}
