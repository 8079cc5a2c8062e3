//! Elements and places of a program that a user asks about: `T[3, 4]`, the statement in line 12.

use super::show;
use crate::error::{self, Code, Error, Result};
use crate::ir::print::{self, Printed};
use crate::ir::{Axis, Buffer, BufferId, Func, Stmt, Var, layout, visit};
use crate::sim::{Moment, Seen};
use std::collections::HashMap;
use std::str::FromStr;

/// The most elements that one `T[..]` may name.
const MOST_ELEMENTS: i64 = 1 << 16;

/// `T[3, 4]`, `T[0..2, 4]`, `T[.., 4]`, or `T` for the whole buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements {
    text: String,
    buffer: String,
    /// A range for each dimension; an end that is left out is that of the dimension. `None`: all dimensions as they are.
    ranges: Option<Vec<(i64, Option<i64>)>>,
}

impl FromStr for Elements {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Elements, String> {
        let wrong = || format!("`{text}` names no elements: write T[3, 4], T[0..2, 4], T[.., 4] or T");
        let text = text.trim();
        let (buffer, ranges) = match text.split_once('[') {
            None => (text, None),
            Some((buffer, rest)) => {
                let inside = rest.strip_suffix(']').ok_or_else(wrong)?;
                let parts = if inside.trim().is_empty() { Vec::new() } else { inside.split(',').collect() };
                (buffer.trim_end(), Some(parts.into_iter().map(range).collect::<Option<Vec<_>>>().ok_or_else(wrong)?))
            }
        };
        let is_name = !buffer.is_empty() && buffer.chars().all(|c| c.is_alphanumeric() || "_.".contains(c));
        if !is_name {
            return Err(wrong());
        }
        Ok(Elements { text: text.to_string(), buffer: buffer.to_string(), ranges })
    }
}

/// `3`, `0..2`, `2..` or `..`.
fn range(text: &str) -> Option<(i64, Option<i64>)> {
    let number = |t: &str| t.trim().parse::<i64>().ok();
    match text.split_once("..") {
        None => number(text).and_then(|n| Some((n, Some(n.checked_add(1)?)))),
        Some((from, to)) => {
            let from = if from.trim().is_empty() { 0 } else { number(from)? };
            Some((from, if to.trim().is_empty() { None } else { Some(number(to)?) }))
        }
    }
}

/// An element of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The buffer.
    pub buffer: BufferId,
    /// Its place, counted in the buffer's strides.
    pub at: i64,
    /// `T[3, 4]`.
    pub name: String,
}

impl Elements {
    /// The name of the buffer.
    pub fn buffer(&self) -> &str {
        &self.buffer
    }

    /// The elements that are meant in a program of that level.
    pub fn of(&self, func: &Func, level: &str) -> Result<Vec<Element>> {
        let id = func.find_buffer(&self.buffer).ok_or_else(|| {
            let names: Vec<&str> = func.buffers.iter().map(|b| b.name.as_str()).collect();
            let near = error::suggestion(&self.buffer, names.iter().copied());
            Error::input(Code::CliPrint, format!("the {level} program has no buffer `{}`{near}", self.buffer))
                .help(format!("its buffers are {}", names.join(", ")))
        })?;
        let buffer = func.buffer(id);
        let ranges = self.inside(buffer)?;
        let strides = layout::strides(buffer).ok_or_else(|| shapeless(buffer))?;
        let mut out = vec![(0i64, Vec::new())];
        for (&(from, to), stride) in ranges.iter().zip(&strides) {
            let along = |(at, index): &(i64, Vec<String>)| {
                let (at, index) = (*at, index.clone());
                (from..to).map(move |i| (at + i * stride, [&index[..], &[i.to_string()]].concat()))
            };
            out = out.iter().flat_map(along).collect();
        }
        let element = |(at, index): (i64, Vec<String>)| Element {
            buffer: id,
            at,
            name: format!("{}[{}]", buffer.name, index.join(", ")),
        };
        Ok(out.into_iter().map(element).collect())
    }

    /// The ranges that are meant, each inside its dimension.
    fn inside(&self, buffer: &Buffer) -> Result<Vec<(i64, i64)>> {
        let shape = buffer.const_shape().ok_or_else(|| shapeless(buffer))?;
        let wrong =
            |why: String| Err(Error::input(Code::CliPrint, why).help(format!("{}{shape:?} is its shape", buffer.name)));
        let ranges = match &self.ranges {
            None => vec![(0, None); shape.len()],
            Some(ranges) => ranges.clone(),
        };
        if ranges.len() != shape.len() {
            let given = show::count(ranges.len(), "index");
            let has = show::count(shape.len(), "dimension");
            return wrong(format!("`{}` has {given}, and the buffer has {has}", self.text));
        }
        let ranges: Vec<(i64, i64)> = ranges.iter().zip(&shape).map(|((a, b), n)| (*a, b.unwrap_or(*n))).collect();
        if let Some(((from, to), extent)) = ranges.iter().zip(&shape).find(|((a, b), n)| *a < 0 || a >= b || b > n) {
            return wrong(format!("`{}` has an index {from}..{to} that is not inside 0..{extent}", self.text));
        }
        let count = ranges.iter().try_fold(1i64, |n, (a, b)| n.checked_mul(b - a)).filter(|n| *n <= MOST_ELEMENTS);
        match count {
            Some(_) => Ok(ranges),
            None => wrong(format!("`{}` has more than {MOST_ELEMENTS} elements", self.text)),
        }
    }
}

fn shapeless(buffer: &Buffer) -> Error {
    Error::bug(Code::CliPrint, format!("{} has no constant shape", buffer.name))
}

/// `T[3, 4]`: the element of a buffer at a place that is counted in its strides.
pub fn named(buffer: &Buffer, element: i64) -> String {
    let (shape, strides) = (buffer.const_shape().unwrap_or_default(), layout::strides(buffer).unwrap_or_default());
    let mut order: Vec<usize> = (0..shape.len().min(strides.len())).filter(|d| shape[*d] > 1).collect();
    order.sort_by_key(|d| std::cmp::Reverse(strides[*d]));
    let (mut rest, mut index) = (element, vec![0; shape.len()]);
    for d in order {
        let stride = strides[d].max(1);
        (index[d], rest) = (rest / stride, rest % stride);
    }
    let index: Vec<String> = index.iter().map(i64::to_string).collect();
    format!("{}[{}]", buffer.name, index.join(", "))
}

/// A loop around a statement.
#[derive(Debug, Clone)]
pub struct Around {
    /// Its variable.
    pub var: Var,
    /// The variables that the body sees, with their names: its own, or those of the two loops that a rasterized loop walks.
    names: Vec<(Var, String)>,
    axis: Option<Axis>,
    /// A loop inside is bound to the same axis: the units of this loop share what is inside, and in sequence it is repeated.
    is_shared: bool,
}

/// A statement and where it is.
#[derive(Debug, Clone)]
pub struct StatementPosition {
    /// The line in the printed program, counted from 1.
    pub line: usize,
    /// The block that it belongs to.
    pub block: String,
    /// The loops around it, outermost first.
    pub loops: Vec<Around>,
}

/// The statements of a printed program in the order of its text.
pub struct Places {
    /// The lines of the text.
    pub lines: Vec<String>,
    places: Vec<StatementPosition>,
}

impl Places {
    /// The statements of a program.
    pub fn of(func: &Func) -> Places {
        let Printed { text, statements, .. } = print::print(func);
        let mut places = Vec::new();
        gather(func, &func.body, (&mut Vec::new(), ""), &mut places);
        for (place, span) in places.iter_mut().zip(&statements) {
            place.line = text[..span.start].matches('\n').count() + 1;
        }
        Places { lines: text.lines().map(str::to_string).collect(), places }
    }

    /// The place of a statement.
    pub fn get(&self, statement: usize) -> &StatementPosition {
        &self.places[statement.min(self.places.len() - 1)]
    }

    /// All places.
    pub fn all(&self) -> &[StatementPosition] {
        &self.places
    }

    /// Whether the statement repeats what the first thread of a loop whose threads share it has done.
    pub fn repeats(&self, moment: &Moment<'_>) -> bool {
        let mut shared = self.get(moment.statement).loops.iter().filter(|l| l.is_shared).peekable();
        shared.peek().is_some() && {
            let values = moment.loops();
            shared.any(|l| values.iter().any(|(var, value)| *var == l.var && *value != 0))
        }
    }

    /// `block C: i_0 = 3 (blockIdx.x), k = 5`: where a run is.
    pub fn describe(&self, moment: &Moment<'_>) -> String {
        let (place, values): (&StatementPosition, HashMap<Var, i64>) =
            (self.get(moment.statement), moment.loops().into_iter().collect());
        let one = |around: &Around| {
            let value = |(var, name): &(Var, String)| Some(format!("{name} = {}", values.get(var)?));
            let shown: Vec<String> = around.names.iter().filter_map(value).collect();
            let axis = around.axis.map_or(String::new(), |axis| format!(" ({})", axis.name()));
            format!("{}{axis}", shown.join(", "))
        };
        let loops: Vec<String> = place.loops.iter().filter(|l| !l.is_shared).map(one).collect();
        let colon = if loops.is_empty() { "" } else { ": " };
        format!("block {}{colon}{}", place.block, loops.join(", "))
    }
}

fn gather(func: &Func, body: &[Stmt], (loops, block): (&mut Vec<Around>, &str), out: &mut Vec<StatementPosition>) {
    for stmt in body {
        match stmt {
            Stmt::For(l) => {
                let names = l.defines().into_iter().map(|(v, _)| (v, func.var_name(v).to_string())).collect();
                loops.push(Around { var: l.var, names, axis: l.axis(), is_shared: false });
                gather(func, &l.body, (loops, block), out);
                loops.pop();
            }
            Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => {
                let mut loops = loops.clone();
                for n in 0..loops.len() {
                    loops[n].is_shared =
                        loops[n].axis.is_some() && loops[n + 1..].iter().any(|l| l.axis == loops[n].axis);
                }
                out.push(StatementPosition { line: 0, block: block.to_string(), loops });
            }
            other => {
                let own = if let Stmt::Block(b) = other { func.block_name(b.name) } else { block };
                visit::children(other).into_iter().for_each(|body| gather(func, body, (loops, own), out));
            }
        }
    }
}

/// The elements whose writes are shown, and how often each has been written.
pub struct Writes {
    elements: HashMap<(BufferId, i64), (String, u64)>,
    order: Vec<(BufferId, i64)>,
}

impl Writes {
    /// The elements of a program that are asked for; each can be written.
    pub fn of(func: &Func, asked: &[Elements]) -> Result<Writes> {
        let written = visit::writes(&func.body);
        let mut out = Writes { elements: HashMap::new(), order: Vec::new() };
        for elements in asked {
            for Element { buffer, at, name } in elements.of(func, "scheduled")? {
                if !written.contains(&buffer) {
                    let message = format!("`{}` is an input: no statement writes it", elements.buffer);
                    let names: Vec<&str> = written.iter().map(|b| func.buffer(*b).name.as_str()).collect();
                    return Err(
                        Error::input(Code::CliPrint, message).help(format!("statements write {}", names.join(", ")))
                    );
                }
                if out.elements.insert((buffer, at), (name, 0)).is_none() {
                    out.order.push((buffer, at));
                }
            }
        }
        Ok(out)
    }

    /// A line for a write of an element that is asked for.
    pub fn line(&mut self, places: &Places, moment: &Moment<'_>) -> Option<String> {
        let Seen::Wrote { buffer, element, value } = moment.seen else { return None };
        let (name, times) = self.elements.get_mut(&(buffer, element))?;
        if places.repeats(moment) {
            return None;
        }
        *times += 1;
        Some(format!("{name} = {value}  # line {}, {}", places.get(moment.statement).line, places.describe(moment)))
    }

    /// The elements that nothing has written.
    pub fn never(&self) -> Vec<&str> {
        let of = |key: &(BufferId, i64)| self.elements.get(key).filter(|e| e.1 == 0).map(|e| e.0.as_str());
        self.order.iter().filter_map(of).collect()
    }

    /// How many writes were shown.
    pub fn total(&self) -> u64 {
        self.elements.values().map(|e| e.1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;

    #[test]
    fn elements_are_read_and_placed() {
        let func = Schedule::parse("gemm 8x4x2 f32 NN\ntarget sm_80").unwrap().program;
        let names = |text: &str| -> Vec<String> {
            let of = text.parse::<Elements>().unwrap().of(&func, "scheduled").unwrap();
            of.into_iter().map(|e| format!("{}@{}", e.name, e.at)).collect()
        };
        assert_eq!(names("C[3, 2]"), ["C[3, 2]@14"]);
        assert_eq!(names(" C [0..2 , 3]"), ["C[0, 3]@3", "C[1, 3]@7"]);
        assert_eq!(names("B[1, 2..]"), ["B[1, 2]@6", "B[1, 3]@7"]);
        assert_eq!(names("A").len(), 16);
        for wrong in
            ["", "[3]", "C[3", "C[3]]", "C[a]", "C[3, ]", "C[1;2]", "C[99999999999999999999]", "C[9223372036854775807]"]
        {
            assert!(wrong.parse::<Elements>().is_err(), "{wrong}");
        }
        for (wrong, says) in [
            ("D[0]", "has no buffer `D`"),
            ("C[0]", "has 1 index, and the buffer has 2 dimensions"),
            ("C[8, 0]", "an index 8..9 that is not inside 0..8"),
            ("C[2..2, 0]", "an index 2..2 that is not inside 0..8"),
            ("C[-1, 0]", "an index -1..0 that is not inside 0..8"),
        ] {
            let error = wrong.parse::<Elements>().unwrap().of(&func, "scheduled").unwrap_err();
            assert!(error.code() == Code::CliPrint && error.message().contains(says), "{wrong}: {error}");
        }
        let inputs = Writes::of(&func, &["A[0, 0]".parse().unwrap()]).map(|_| ()).unwrap_err();
        assert!(inputs.message().contains("`A` is an input"), "{inputs}");
    }
}
