//! `warploom run FILE --step --level lowered`: walks a block of the lowered kernels statement by statement, all of its warps.

use super::look;
use super::show;
use super::step;
use super::threads::{Kernel, Program, place, ranges};
use crate::sim::{At, LoadState, MbarrierState, Scene, Sight, WarpState};
use std::io::IsTerminal;
use std::ops::ControlFlow;

const COMMANDS: &str = "\
enter, or a number N   run the next statement, or the next N
c                      continue to the next breakpoint, or to the end
b NAME, b LINE         set a breakpoint at a block, or at a line of the program; again: remove it
b                      list the breakpoints
t N                    stop only where warp N runs; t: where any does
p T[3], p T[0..2]      print elements of a buffer; of registers those of the first thread that runs
p T[3] N               of registers, those of thread N
s                      show warps, mbarriers and copies in flight
w                      show where the run is, in the program
h                      show these commands
q                      quit";

/// The most writes of a statement that are shown one by one.
const MOST_WRITES: usize = 4;

/// Until where the kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The statement after so many more; what each writes is shown.
    Statements(u64),
    /// A breakpoint.
    Breakpoint,
    /// The end.
    End,
}

/// A walk through the kernels.
pub struct Walker {
    program: Program,
    until: Until,
    /// Lines at which the run stops.
    breakpoints: Vec<usize>,
    /// The warp whose statements it stops at.
    warp: Option<usize>,
    /// Statements that have begun, of all warps that run one together one.
    begun: u64,
    /// What the statement before has written: the first lines, and how many there are.
    written: (Vec<String>, usize),
    /// The kernel whose head has been shown.
    kernel: Option<usize>,
    /// Whether a user sees a prompt.
    prompts: bool,
}

impl Walker {
    /// A walk that stops before the first statement.
    pub fn new(program: Program) -> Walker {
        Walker {
            program,
            until: Until::Statements(0),
            breakpoints: Vec::new(),
            warp: None,
            begun: 0,
            written: (Vec::new(), 0),
            kernel: None,
            prompts: std::io::stdin().is_terminal(),
        }
    }

    /// What to do at a moment of the run.
    pub fn at(&mut self, scene: &Scene<'_>) -> ControlFlow<()> {
        if matches!(scene.sight, Sight::Before { .. }) {
            self.flush();
        }
        let Some(kernel) = self.program.kernels.get(scene.kernel) else { return ControlFlow::Continue(()) };
        match scene.sight {
            Sight::Wrote(write) => {
                if matches!(self.until, Until::Statements(_)) {
                    self.written.1 += 1;
                    if self.written.0.len() < MOST_WRITES {
                        let by = if write.block == scene.block { "" } else { " of another block" };
                        let thread = kernel.thread(write.thread);
                        self.written.0.push(format!("{}  # thread {thread}{by}", kernel.value(scene, &write)));
                    }
                }
                ControlFlow::Continue(())
            }
            Sight::Before { statement, warps } => {
                self.begun += 1;
                if self.kernel != Some(scene.kernel) {
                    self.kernel = Some(scene.kernel);
                    let (warps, statements) = (scene.warps().len(), kernel.spots.len());
                    show::line(format_args!(
                        "kernel {}, block {}: {}, {}; `h` shows the commands",
                        kernel.func.name,
                        place(scene.block),
                        show::count(warps, "warp"),
                        show::count(statements, "statement")
                    ));
                }
                let line = kernel_line(kernel, statement);
                if !self.stops(line, warps) {
                    return ControlFlow::Continue(());
                }
                show::line(self.next(scene, statement, warps));
                self.commands(scene, statement, warps)
            }
        }
    }

    /// Shows what the last statement has written.
    pub fn flush(&mut self) {
        let (lines, count) = std::mem::take(&mut self.written);
        for line in &lines {
            show::line(format_args!("      {line}"));
        }
        if count > lines.len() {
            show::line(format_args!("      .. and {}", show::count(count - lines.len(), "more write")));
        }
    }

    fn stops(&mut self, line: usize, warps: &[(usize, u32)]) -> bool {
        if self.warp.is_some_and(|warp| warps.iter().all(|w| w.0 != warp)) {
            return false;
        }
        let met = match &mut self.until {
            Until::Statements(0) => true,
            Until::Statements(left) => {
                *left -= 1;
                false
            }
            Until::Breakpoint | Until::End => false,
        };
        met || self.breakpoints.contains(&line)
    }

    /// The statement that is next, who runs it, and the loops around it.
    fn next(&self, scene: &Scene<'_>, statement: u32, warps: &[(usize, u32)]) -> String {
        let Some((kernel, spot)) = self.spot(scene, statement) else { return String::new() };
        let role = spot.role.as_ref().map_or(String::new(), |r| format!(" of role {r}"));
        let threads =
            warps.iter().flat_map(|(w, mask)| (0..32).filter(move |l| mask >> l & 1 == 1).map(move |l| w * 32 + l));
        let threads: Vec<usize> = threads.collect();
        let noun = |n: usize, one: &str| if n == 1 { one.to_string() } else { format!("{one}s") };
        let who = format!(
            "{} {}{role}, {} {}",
            noun(warps.len(), "warp"),
            ranges(warps.iter().map(|w| w.0)),
            noun(threads.len(), "thread"),
            ranges(threads.iter().copied())
        );
        let (warp, lane) = first_thread(warps);
        let loops = kernel.loops(&scene.loops(warp, lane));
        let colon = if loops.is_empty() { "" } else { ": " };
        format!("{:>4}  {}\n      {who}{colon}{loops}", spot.line, self.program.line(spot.line))
    }

    fn spot(&self, scene: &Scene<'_>, statement: u32) -> Option<(&Kernel, &super::threads::Spot)> {
        let kernel = self.program.kernels.get(scene.kernel)?;
        Some((kernel, kernel.spot(statement)?))
    }

    /// Reads commands up to one that lets the kernels run.
    fn commands(&mut self, scene: &Scene<'_>, statement: u32, warps: &[(usize, u32)]) -> ControlFlow<()> {
        loop {
            if self.prompts {
                show::put("(step) ");
            }
            let Some(command) = step::read() else { return self.quit("the commands end") };
            let mut words = command.split_whitespace();
            let (word, rest) = (words.next().unwrap_or(""), words.collect::<Vec<_>>().join(" "));
            match (word, rest.as_str()) {
                ("", "") => self.until = Until::Statements(0),
                ("c", "") => self.until = if self.breakpoints.is_empty() { Until::End } else { Until::Breakpoint },
                ("q", "") => return self.quit("quit"),
                (word, "") if word.parse::<u64>().is_ok_and(|n| n > 0) => {
                    self.until = Until::Statements(word.parse::<u64>().map_or(0, |n| n - 1));
                }
                _ => {
                    self.ask(word, &rest, scene, statement, warps);
                    continue;
                }
            }
            return ControlFlow::Continue(());
        }
    }

    /// Commands after which the kernels are where they were.
    fn ask(&mut self, word: &str, rest: &str, scene: &Scene<'_>, statement: u32, warps: &[(usize, u32)]) {
        match (word, rest) {
            ("h" | "?" | "help", "") => show::line(COMMANDS),
            ("w", "") => self.surroundings(scene, statement, warps),
            ("s", "") => self.state(scene),
            ("b", "") => step::list(&self.program.lines, &self.breakpoints),
            ("b", at) => self.breakpoint(at, scene),
            ("t", "") => {
                self.warp = None;
                show::line("stops where any warp runs");
            }
            ("t", number) => {
                match number.parse::<usize>().ok().filter(|n| scene.warps().iter().any(|w| w.warp == *n)) {
                    Some(warp) => {
                        self.warp = Some(warp);
                        show::line(format_args!("stops where warp {warp} runs"));
                    }
                    None => show::line(format_args!("`{number}` is no warp of the block")),
                }
            }
            ("p", "") => show::line("p needs elements: p T[3]"),
            ("p", elements) => self.print(elements, scene, warps),
            _ => show::line(format_args!("`{}` is no command; `h` shows them", format!("{word} {rest}").trim())),
        }
    }

    fn quit(&self, why: &str) -> ControlFlow<()> {
        let begun = show::count(self.begun.saturating_sub(1) as usize, "statement");
        show::line(format_args!("{why}: the run ends after {begun}, its result is not checked"));
        ControlFlow::Break(())
    }

    /// The lines around the current one.
    fn surroundings(&self, scene: &Scene<'_>, statement: u32, warps: &[(usize, u32)]) {
        let Some((_, spot)) = self.spot(scene, statement) else { return };
        step::around(&self.program.lines, spot.line, &self.breakpoints);
        show::line(self.next(scene, statement, warps));
    }

    /// Warps, mbarriers and copies.
    fn state(&self, scene: &Scene<'_>) {
        let Some(kernel) = self.program.kernels.get(scene.kernel) else { return };
        let mut groups: Vec<(Vec<usize>, String)> = Vec::new();
        for warp in scene.warps() {
            let does = self.does(kernel, &warp);
            match groups.last_mut().filter(|g| g.1 == does) {
                Some(group) => group.0.push(warp.warp),
                None => groups.push((vec![warp.warp], does)),
            }
        }
        for (warps, does) in groups {
            let noun = if warps.len() == 1 { "warp" } else { "warps" };
            show::line(format_args!("{noun} {}: {does}", ranges(warps.into_iter())));
        }
        // Those of an array that are alike are in one line.
        let mut groups: Vec<(u32, Vec<usize>, String)> = Vec::new();
        for MbarrierState { at, phase, arrived, of, bytes, .. } in scene.mbarriers() {
            let bytes = if bytes == 0 { String::new() } else { format!(", {bytes} bytes to come") };
            let state = match phase {
                Some(phase) => format!("phase {phase}, {arrived} of {of} arrivals{bytes}"),
                None => "not initialised".to_string(),
            };
            match groups.last_mut().filter(|g| g.0 == at.array && g.2 == state) {
                Some(group) => group.1.push(at.index as usize),
                None => groups.push((at.array, vec![at.index as usize], state)),
            }
        }
        for (array, indices, state) in groups {
            let name = kernel.func.mbarriers.get(array as usize).map_or("?", |b| b.name.as_str());
            show::line(format_args!("mbarrier {name}[{}]: {state}", ranges(indices.into_iter())));
        }
        for LoadState { buffer, element, bytes, full, .. } in scene.loads() {
            let to = look::named(kernel.func.buffer(buffer), element);
            let full = mbarrier(kernel, full.array, full.index);
            show::line(format_args!("bulk load of {bytes} bytes to {to} in flight, counted on {full}"));
        }
    }

    /// Where a warp is, and what it has not waited for.
    fn does(&self, kernel: &Kernel, warp: &WarpState) -> String {
        let line = |statement: u32| kernel_line(kernel, statement);
        let mut out = match warp.at {
            At::Statement(next) => format!("line {} is next", line(next)),
            At::Barrier { statement, missing } => {
                format!("at the barrier in line {}, which waits for {}", line(statement), show::count(missing, "warp"))
            }
            At::Phase { statement, mbarrier: m, phase } => {
                format!("in line {} waits for phase {phase} of {}", line(statement), mbarrier(kernel, m.array, m.index))
            }
            _ => "has ended".to_string(),
        };
        let mut add = |n: usize, text: String| {
            if n > 0 {
                out += &format!("; {text}");
            }
        };
        let groups = |n: usize| show::count(n, "closed group");
        add(
            warp.copies,
            format!("cp.async of {} in flight, {}", show::count(warp.copies, "element"), groups(warp.copy_groups)),
        );
        add(
            warp.accumulators,
            format!(
                "wgmma on {} in flight, {}",
                show::count(warp.accumulators, "register"),
                groups(warp.product_groups)
            ),
        );
        add(warp.bulk_stores, format!("{} in flight", show::count(warp.bulk_stores, "bulk store")));
        out
    }

    /// Sets the breakpoint of a block, or of a line, or takes it away.
    fn breakpoint(&mut self, at: &str, scene: &Scene<'_>) {
        let line = at.parse::<usize>().ok();
        let spots = || self.program.kernels.iter().flat_map(|k| &k.spots);
        let Some(line) = spots().find(|s| line.map_or(s.block == at, |line| s.line == line)).map(|s| s.line) else {
            let own = self.program.kernels.get(scene.kernel).map_or(&[][..], |k| &k.spots);
            let mut names: Vec<&str> = own.iter().map(|s| s.block.as_str()).filter(|b| !b.is_empty()).collect();
            names.sort_unstable();
            names.dedup();
            let lines = ranges(own.iter().map(|s| s.line));
            return show::line(format_args!(
                "no statement is at `{at}`; blocks: {}; lines of statements: {lines}",
                names.join(", ")
            ));
        };
        step::toggle(&mut self.breakpoints, line);
    }

    fn print(&self, text: &str, scene: &Scene<'_>, warps: &[(usize, u32)]) {
        let Some(kernel) = self.program.kernels.get(scene.kernel) else { return };
        let (elements, thread) = match text.rsplit_once(' ').map(|(e, n)| (e, n.parse::<usize>())) {
            Some((elements, Ok(thread))) if elements.ends_with(']') || !elements.contains('[') => {
                (elements, Some(thread))
            }
            _ => (text, None),
        };
        let (warp, lane) = first_thread(warps);
        let thread = thread.unwrap_or(warp * 32 + lane);
        step::print(elements, (&kernel.func, "lowered"), |element| {
            let own = if scene.is_of_threads(element.buffer) {
                format!(" of thread {}", kernel.thread(thread))
            } else {
                String::new()
            };
            match scene.read(element.buffer, element.at, thread) {
                Some(value) => format!("{}{own} = {value}", element.name),
                None => format!("{}{own} is not written yet, or in flight", element.name),
            }
        });
    }
}

fn kernel_line(kernel: &Kernel, statement: u32) -> usize {
    kernel.spot(statement).map_or(0, |s| s.line)
}

/// `A_s_full[1]`.
fn mbarrier(kernel: &Kernel, array: u32, index: i64) -> String {
    let name = kernel.func.mbarriers.get(array as usize).map_or("?", |b| b.name.as_str());
    format!("{name}[{index}]")
}

/// The first warp that runs, and its first lane.
fn first_thread(warps: &[(usize, u32)]) -> (usize, usize) {
    warps.first().map_or((0, 0), |(warp, mask)| (*warp, (mask.trailing_zeros() as usize).min(31)))
}
