//! Faults as errors: the thread, the line of the PTX, the element that is accessed, and the loop and the statement that codegen's
//! comments name.

use super::exec::Program;
use super::grid::Stop;
use super::inst::Entry;
use super::trap::At;
use super::warp::LANES;
use crate::error::{Code, Error};
use crate::kernel::{Kernel, Kernels};
use crate::sim::fault;
use std::ops::Range;

/// Statements of the kernel that an error lists.
const MOST_STATEMENTS: usize = 4;

/// The bytes of a line of a text, without its indentation.
fn line_of(text: &str, number: u32) -> Option<Range<usize>> {
    let lines = text.split_inclusive('\n');
    let start: usize = lines.take(number.checked_sub(1)? as usize).map(str::len).sum();
    let line = text.get(start..)?.lines().next()?;
    let indent = line.len() - line.trim_start().len();
    Some(start + indent..start + line.trim_end().len())
}

/// The instruction on a line.
fn instruction(text: &str, number: u32) -> String {
    let line = line_of(text, number).and_then(|s| text.get(s)).unwrap_or("");
    line.split("//").next().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An error of decoding, with the text that it is about.
pub(in crate::sim::ptx) fn with_text(error: Error, kernels: &Kernels) -> Error {
    error.text(kernels.text.clone())
}

/// What codegen says of the block of code that a line belongs to.
fn note(entry: &Entry, line: u32) -> Option<&str> {
    let (at, text) = entry.notes.iter().rfind(|(at, _)| *at <= line)?;
    (*at > entry.line).then_some(text.as_str())
}

/// The kernel as codegen prints it in front of the entry: declarations and statements, a line each.
fn listing(entry: &Entry) -> impl Iterator<Item = &str> {
    let above = entry.notes.iter().take_while(|(at, _)| *at < entry.line).map(|(_, text)| text.as_str());
    above.skip_while(|text| !text.starts_with("kernel "))
}

/// A buffer of shared memory: its name, where it begins, and the bits of an element.
fn shared_buffer(entry: &Entry, byte: usize) -> Option<(String, usize, usize)> {
    // `A_s: shared f32[4608] align 128 @0`
    let declared = listing(entry).filter_map(|text| {
        let (name, rest) = text.trim().split_once(": shared ")?;
        let (kind, rest) = rest.split_once('[')?;
        let count: usize =
            rest.split_once(']')?.0.split(", ").map(|n| n.parse::<usize>().ok()).product::<Option<_>>()?;
        let offset: usize = rest.split_once('@')?.1.split(' ').next()?.parse().ok()?;
        let bits: usize = kind.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().ok().unwrap_or(8);
        let bits = if kind.starts_with("tf") { 32 } else { bits };
        let inside = (offset..offset + (count * bits).div_ceil(8)).contains(&byte);
        inside.then(|| (name.to_string(), offset, bits))
    });
    // Buffers that use the same bytes one after the other: the first is named.
    declared.into_iter().next()
}

/// The buffer and the element of bytes: `C[3, 130]`.
fn element(at: At, kernels: &Kernels, entry: &Entry) -> Option<(String, String)> {
    if let Some(arg) = kernels.args.get(at.memory) {
        let mut rest = (at.byte as u64 * 8 / u64::from(arg.dtype.bits())) as i64;
        let mut order: Vec<usize> = (0..arg.shape.len()).collect();
        order.sort_by_key(|d| std::cmp::Reverse(arg.strides.get(*d).copied().unwrap_or(1)));
        let mut index = vec![0; arg.shape.len()];
        for d in order {
            let stride = arg.strides.get(d).copied().unwrap_or(1);
            if stride > 0 {
                (index[d], rest) = (rest / stride, rest % stride);
            }
        }
        let index: Vec<String> = index.iter().map(i64::to_string).collect();
        return Some((arg.name.clone(), format!("{}[{}]", arg.name, index.join(", "))));
    }
    let buffers = kernels.args.len() + kernels.workspace.len();
    if let Some(buffer) = kernels.workspace.get(at.memory.wrapping_sub(kernels.args.len())) {
        return Some((buffer.name.clone(), format!("byte {} of {}", at.byte, buffer.name)));
    }
    let (name, offset, bits) = shared_buffer(entry, at.byte).filter(|_| at.memory >= buffers)?;
    let element = format!("{name}[{}]", (at.byte - offset) * 8 / bits);
    Some((name, element))
}

/// The statements of the kernel that read or write a buffer.
fn statements<'a>(entry: &'a Entry, name: &str, write: bool) -> Vec<&'a str> {
    let named = format!("{name}[");
    let uses = |text: &str| {
        text.match_indices(&named).any(|(n, _)| !text[..n].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let all = listing(entry).map(str::trim).filter(|text| match text.split_once(" = ") {
        Some((to, from)) => uses(if write { to } else { from }),
        // Instructions name their operands without saying which are written.
        None => uses(text) && !text.contains(": "),
    });
    all.collect()
}

/// The error of a fault.
pub(in crate::sim::ptx) fn error(stop: &Stop, kernels: &Kernels, kernel: &Kernel, program: &Program<'_>) -> Error {
    let trap = &stop.halt.trap;
    let error = match trap.code {
        Code::PtxLimit => Error::input(trap.code, trap.message.clone()),
        _ => fault::listed(Error::bug(trap.code, trap.message.clone()), &stop.waits),
    };
    let (text, entry) = (&kernels.text, program.entry);
    let Some(inst) = entry.insts.get(stop.halt.pc).filter(|_| stop.warp.is_some()) else { return error };
    let place = |line| note(entry, line).map_or(String::new(), |n| format!(", in `{n}`"));
    let mut error = error;
    if let Some((name, element)) = trap.at.and_then(|at| element(at, kernels, entry)) {
        error = error.within(format!("these bytes are of {element}"));
        let write = trap.at.is_some_and(|at| at.write);
        let verb = if write { "writes" } else { "reads" };
        for statement in statements(entry, &name, write).into_iter().take(MOST_STATEMENTS) {
            error = error.within(format!("the kernel {verb} {name} in `{statement}`"));
        }
    }
    let [x, y, z] = stop.block;
    let warp = stop.warp.unwrap_or(0);
    let who = match trap.lane {
        Some(lane) => {
            let (t, [bx, by, _]) = ((warp * LANES + lane) as u32, kernel.block);
            format!("thread ({}, {}, {}) of block ({x}, {y}, {z})", t % bx, t / bx % by, t / bx / by)
        }
        None => format!("warp {warp} of block ({x}, {y}, {z})"),
    };
    let line = inst.line;
    error = error.within(format!("{who}, line {line}: `{}`{}", instruction(text, line), place(line)));
    if let Some(line) = trap.other.filter(|line| *line > 0) {
        let [gx, gy, _] = kernel.grid;
        let block = trap
            .other_block
            .map_or(String::new(), |b| format!(" of block ({}, {}, {})", b % gx, b / gx % gy, b / gx / gy));
        let shown = instruction(text, line);
        error = error.within(format!("the other{block}, line {line}: `{shown}`{}", place(line)));
        if let Some(span) = line_of(text, line).filter(|_| line != inst.line) {
            error = error.label(span, "and this");
        }
    }
    if let Some(span) = line_of(text, line) {
        error = error.label(span, "this");
    }
    error.text(text.clone())
}
