//! `run --print` and `run --step` with `--level lowered`: what the threads of the lowered kernels do.

use super::look::{self, Elements};
use super::show;
use crate::error::{Code, Error, Result};
use crate::ir::{BufferId, Func, RoleBody, Scope, Stmt, Var, visit};
use crate::lower::{self, Lowered};
use crate::sim::{Scene, Write};
use std::collections::{HashMap, HashSet};
use std::str::FromStr;

/// A block or a thread: `1`, `1,0` or `1,0,2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(pub [u32; 3]);

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Position, String> {
        let wrong = || format!("`{text}` is no place: write X, X,Y or X,Y,Z");
        let mut out = [0; 3];
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > 3 {
            return Err(wrong());
        }
        for (n, part) in parts.iter().enumerate() {
            out[n] = part.trim().parse().map_err(|_| wrong())?;
        }
        Ok(Position(out))
    }
}

/// `(1, 0, 2)`.
pub fn place([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

/// A statement of a kernel and where it is.
#[derive(Debug, Clone)]
pub struct Spot {
    /// The line in the printed program, counted from 1.
    pub line: usize,
    /// The block that it belongs to.
    pub block: String,
    /// The role whose warps run it.
    pub role: Option<String>,
}

/// A kernel as the user sees it.
pub struct Kernel {
    /// With the shapes of parameters as the program states them.
    pub func: Func,
    /// Blocks of the grid, and threads of a block.
    pub grid: [u32; 3],
    threads: [u32; 3],
    /// The variables of the axes.
    axes: Vec<Var>,
    /// Its statements in the order of the text.
    pub spots: Vec<Spot>,
}

/// The kernels of a lowered program.
pub struct Program {
    /// The lines of the text that `dump --emit lowered` prints.
    pub lines: Vec<String>,
    /// In launch order.
    pub kernels: Vec<Kernel>,
}

impl Program {
    /// A lowered program with its text.
    pub fn of(lowered: &Lowered) -> Program {
        let (mut first, mut kernels) = (1, Vec::new());
        for k in &lowered.kernels {
            let mut func = k.func.clone();
            for (name, (extents, strides)) in lowered.params.iter().zip(&lowered.shapes) {
                let own = |b: &&mut crate::ir::Buffer| b.name == *name && b.scope == Scope::Global;
                if let Some(buffer) = func.buffers.iter_mut().find(own) {
                    buffer.shape = extents.iter().map(|n| (*n).into()).collect();
                    buffer.strides = Some(strides.clone());
                }
            }
            let mut lines = lower::statement_lines(k).map(|n| n + first);
            let mut spots = Vec::new();
            walk(&k.func, &k.func.body, (None, ""), &mut lines, &mut spots);
            let axes = k.launch.iter().map(|l| l.var).collect();
            kernels.push(Kernel { func, grid: k.grid(), threads: k.block(), axes, spots });
            // An empty line is between two kernels.
            first += lower::print_kernel(k).lines().count() + 1;
        }
        Program { lines: lower::print(lowered).lines().map(str::to_string).collect(), kernels }
    }

    /// The text of a line, counted from 1.
    pub fn line(&self, line: usize) -> &str {
        self.lines.get(line.wrapping_sub(1)).map_or("", |l| l.trim())
    }

    /// The kernel and the elements that are meant: of the first kernel that writes such a buffer, else of the first that has one.
    pub fn elements(&self, asked: &Elements) -> Result<Vec<look::Element>> {
        let knows = |k: &&Kernel| k.func.find_buffer(asked.buffer()).is_some();
        let kernel = self.kernels.iter().find(knows).or(self.kernels.first());
        match kernel {
            Some(kernel) => asked.of(&kernel.func, "lowered"),
            None => Err(Error::input(Code::CliPrint, "the lowered program has no kernel")),
        }
    }
}

impl Kernel {
    /// A statement of the kernel.
    pub fn spot(&self, statement: u32) -> Option<&Spot> {
        self.spots.get(statement as usize)
    }

    /// `(32, 0, 0)`: a thread by its number.
    pub fn thread(&self, number: usize) -> String {
        let [x, y, _] = self.threads.map(|n| n.max(1) as usize);
        place([number % x, number / x % y, number / x / y].map(|n| n as u32))
    }

    /// The number of a thread in its block.
    pub fn number(&self, Position([x, y, z]): Position) -> usize {
        let [nx, ny, _] = self.threads.map(|n| n as usize);
        x as usize + (y as usize + z as usize * ny) * nx
    }

    /// `k0 = 3, kk = 0`: the loops around a statement, and what follows from the block.
    pub fn loops(&self, values: &[(Var, i64)]) -> String {
        let own = values.iter().filter(|(v, _)| !self.axes.contains(v));
        let shown: Vec<String> = own.map(|(v, n)| format!("{} = {n}", self.func.var_name(*v))).collect();
        shown.join(", ")
    }

    /// `A_s[5] = 0.25 in flight`.
    pub fn value(&self, scene: &Scene<'_>, write: &Write) -> String {
        let name = look::named(self.func.buffer(write.buffer), write.element);
        let flight = if write.in_flight { " in flight" } else { "" };
        let other =
            if write.block == scene.block { String::new() } else { format!(" to block {}", place(write.block)) };
        format!("{name} = {}{flight}{other}", write.value)
    }

    /// The same, with what is to be said of the statement and the thread.
    fn write(&self, scene: &Scene<'_>, write: &Write) -> String {
        let line = self.spot(write.statement).map_or(0, |s| s.line);
        let loops = self.loops(&scene.loops(write.thread / 32, write.thread % 32));
        let colon = if loops.is_empty() { "" } else { ": " };
        let (block, thread) = (place(scene.block), self.thread(write.thread));
        format!("{}  # line {line}, block {block}, thread {thread}{colon}{loops}", self.value(scene, write))
    }
}

fn walk(
    func: &Func,
    body: &[Stmt],
    (role, block): (Option<&str>, &str),
    lines: &mut dyn Iterator<Item = usize>,
    out: &mut Vec<Spot>,
) {
    for stmt in body {
        let line = lines.next().unwrap_or(0);
        if matches!(stmt, Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Sync(_)) {
            out.push(Spot { line, block: block.to_string(), role: role.map(str::to_string) });
        }
        let role = if let Stmt::Role(r) = stmt { Some(role_name(func, r)) } else { role };
        let block = if let Stmt::Block(b) = stmt { func.block_name(b.name) } else { block };
        visit::children(stmt).into_iter().for_each(|body| walk(func, body, (role, block), lines, out));
    }
}

fn role_name<'f>(func: &'f Func, role: &RoleBody) -> &'f str {
    role.role.and_then(|id| func.roles.get(id.0 as usize)).map_or("compute", |r| r.name.as_str())
}

/// The elements whose writes are shown, and how often each has been written.
pub struct Writes {
    elements: HashMap<(BufferId, i64), (String, u64)>,
    order: Vec<(BufferId, i64)>,
    block: Option<[u32; 3]>,
    thread: Option<Position>,
}

impl Writes {
    /// The elements of a program that are asked for; each can be written.
    pub fn of(
        program: &Program,
        lowered: &Lowered,
        asked: &[Elements],
        (block, thread): (Option<Position>, Option<Position>),
    ) -> Result<Writes> {
        let written: HashSet<BufferId> = lowered.kernels.iter().flat_map(|k| visit::writes(&k.func.body)).collect();
        let block = block.map(|b| b.0);
        let mut out = Writes { elements: HashMap::new(), order: Vec::new(), block, thread };
        for elements in asked {
            for look::Element { buffer, at, name } in program.elements(elements)? {
                if !written.contains(&buffer) {
                    let message = format!("no statement of the lowered program writes `{}`", elements.buffer());
                    return Err(Error::input(Code::CliPrint, message)
                        .help("`warploom dump FILE --emit lowered` prints the program"));
                }
                if out.elements.insert((buffer, at), (name, 0)).is_none() {
                    out.order.push((buffer, at));
                }
            }
        }
        Ok(out)
    }

    /// Their buffers.
    pub fn buffers(&self) -> Vec<BufferId> {
        let mut out: Vec<BufferId> = self.order.iter().map(|(buffer, _)| *buffer).collect();
        out.sort_by_key(|b| b.0);
        out.dedup();
        out
    }

    /// A line for a write of an element that is asked for.
    pub fn line(&mut self, program: &Program, scene: &Scene<'_>, write: &Write) -> Option<String> {
        let kernel = program.kernels.get(scene.kernel)?;
        let is_thread = self.thread.is_none_or(|t| kernel.number(t) == write.thread);
        if !is_thread || self.block.is_some_and(|b| b != scene.block) {
            return None;
        }
        self.elements.get_mut(&(write.buffer, write.element))?.1 += 1;
        Some(kernel.write(scene, write))
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

/// `0..128`, `0, 32, 64`: numbers in ascending order, those that follow each other as a range.
pub fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    let mut out: Vec<std::ops::Range<usize>> = Vec::new();
    for n in numbers {
        match out.last_mut() {
            Some(last) if last.end == n => last.end += 1,
            _ => out.push(n..n + 1),
        }
    }
    let one =
        |r: &std::ops::Range<usize>| if r.len() == 1 { r.start.to_string() } else { format!("{}..{}", r.start, r.end) };
    let shown: Vec<String> = out.iter().take(MOST_RANGES).map(one).collect();
    let more = if out.len() > MOST_RANGES { ", .." } else { "" };
    shown.join(", ") + more
}

/// The most ranges that are shown.
const MOST_RANGES: usize = 6;

/// That no kernel has the block that is to be walked.
pub fn no_block(at: Position, program: &Program) -> Error {
    let grids: Vec<String> = program.kernels.iter().map(|k| format!("{:?}", k.grid)).collect();
    let message = format!("no kernel has a block {}: the grids are {}", place(at.0), grids.join(", "));
    Error::input(Code::CliBlock, message).help("a persistent kernel runs with one block here")
}

/// Prints how many writes there were.
pub fn sum(writes: &Writes) {
    for name in writes.never() {
        show::line(format_args!("nothing has written {name}"));
    }
    show::line(show::count(writes.total() as usize, "write"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_ranges_read_well() {
        assert_eq!("3".parse(), Ok(Position([3, 0, 0])));
        assert_eq!("3, 1".parse(), Ok(Position([3, 1, 0])));
        for wrong in ["", "a", "1,2,3,4", "-1", "1,,2"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
        assert_eq!(ranges([0, 1, 2, 5, 7, 8].into_iter()), "0..3, 5, 7..9");
        assert_eq!(ranges((0..20).step_by(2)), "0, 2, 4, 6, 8, 10, ..");
        assert_eq!(ranges([].into_iter()), "");
    }
}
