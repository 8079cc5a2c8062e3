//! `warploom explain`: each step with the program after it, what the placements come to, and the reference of steps; or
//! what the lowered program costs.

use super::input;
use super::show;
use crate::assemble::Ptxas;
use crate::certify::{self, Certificate};
use crate::error::{Error, Result};
use crate::intrin;
use crate::ir::{Axis, Block, BufferId, CopyKind, For, Func, Scope, Stmt, print, visit};
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::lower;
use crate::schedule;
use crate::target::Target;
use crate::te;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to explain.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A schedule: program, target and steps.
    #[arg(required_unless_present_any = ["primitives", "programs"])]
    file: Option<PathBuf>,
    /// List every step that there is, with its arguments.
    #[arg(long, conflicts_with_all = ["file", "last", "cost"])]
    primitives: bool,
    /// Print the grammar of programs, which are the text before `target`.
    #[arg(long, conflicts_with_all = ["file", "last", "cost", "primitives"])]
    programs: bool,
    /// Show only the program after the last step.
    #[arg(long, conflicts_with = "cost")]
    last: bool,
    /// Print the cost report of the lowered program instead: bank conflicts, sectors and bounds of every access; registers,
    /// occupancy and totals of every kernel.
    #[arg(long)]
    cost: bool,
    /// The old name of --cost, which the command line refuses.
    #[arg(long, hide = true)]
    pub certificates: bool,
    /// Test legality claims that are not decided at some points instead of refusing the schedule; they are listed as tested.
    #[arg(long)]
    allow_tested: bool,
    /// With --cost: as JSON.
    #[arg(long, requires = "cost")]
    json: bool,
}

impl ExplainArgs {
    /// What errors call it.
    pub fn name(&self) -> String {
        self.file.as_ref().map_or_else(String::new, |f| f.display().to_string())
    }
}

/// Prints the steps with the programs between them.
pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    if args.primitives {
        show::put(schedule::reference());
        return Ok(ExitCode::SUCCESS);
    }
    if args.programs {
        show::put(te::GRAMMAR);
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.file.as_ref().ok_or_else(|| Error::input("cli.input", "no file is given"))?;
    let schedule = input::read(file)?;
    let schedule = if args.allow_tested { schedule.allow_tested() } else { schedule };
    if args.cost {
        return cost(&schedule, args.json);
    }
    if !args.last {
        show::line(format_args!(
            "{}, for {}\n\n{}",
            input::title(&schedule),
            schedule.target,
            print::func(&schedule.program)
        ));
    }
    let func = schedule.trace(&mut |n, step, func| {
        if !args.last {
            show::line(format_args!("step {n}: {step}\n\n{}", print::func(func)));
        }
    })?;
    if args.last {
        show::line(print::func(&func));
    }
    for remark in remarks(&func).into_iter().chain(emulated(&func, &schedule.target)) {
        show::line(format_args!("note: {remark}"));
    }
    match lower::lower(&func, &schedule.target) {
        Err(e) => show::line(format_args!("note: this schedule does not compile for {}: {e}", schedule.target)),
        Ok(lowered) => show::line(format_args!("legality: {}", lowered.assurance(&func)?)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what the lowered program costs; ptxas counts registers where it is available.
fn cost(schedule: &Schedule, json: bool) -> Result<ExitCode> {
    let lowered = lower::lower(&schedule.scheduled()?, &schedule.target)?;
    let kernels = crate::codegen::compile(&lowered, &schedule.target)?;
    let certificate = certify::certify(&lowered, &schedule.target).compiled(&kernels);
    let certificate = assembled(certificate, schedule, &kernels)?;
    if json {
        let text = serde_json::to_string_pretty(&certificate);
        show::line(text.map_err(|e| Error::bug("cli.json", e.to_string()))?);
    } else {
        show::put(certify::print(&certificate, &lower::print(&lowered)));
    }
    Ok(ExitCode::SUCCESS)
}

/// The cost report with the registers that ptxas reports, or as it is where there is no ptxas.
fn assembled(certificate: Certificate, schedule: &Schedule, kernels: &Kernels) -> Result<Certificate> {
    let Ok(ptxas) = Ptxas::for_chip(None, schedule.target.name) else { return Ok(certificate) };
    let usage = ptxas.assemble(kernels.ptx(), schedule.target.name)?.usage;
    Ok(certificate.assembled(kernels, &ptxas.version, &usage, &schedule.target))
}

/// What the placements of a program come to that its text does not show.
fn remarks(func: &Func) -> Vec<String> {
    let mut out = Vec::new();
    for (n, nest) in func.body.iter().enumerate() {
        let inside = visit::loops(std::slice::from_ref(nest));
        let bound = |level: fn(Axis) -> bool| inside.iter().any(|l| l.axis().is_some_and(level));
        let names: Vec<&str> =
            visit::blocks(std::slice::from_ref(nest)).iter().map(|b| func.block_name(b.name)).collect();
        let nest_name = format!("kernel {} ({})", n + 1, names.join(", "));
        match (bound(Axis::is_block_level), bound(|a| !a.is_block_level())) {
            (false, false) => out.push(format!("{nest_name} has no bound loop: it runs as one block of one thread")),
            (false, true) => out.push(format!("{nest_name} has no loop bound to blocks: it runs as one block")),
            (true, false) => out.push(format!("{nest_name} has no loop bound to threads: its blocks have one thread")),
            (true, true) => {}
        }
        if bound(|a| !a.is_block_level()) {
            lone_stages(func, std::slice::from_ref(nest), &mut Vec::new(), &mut out);
        }
    }
    out.extend((0..func.buffers.len() as u32).filter_map(|n| workspace(func, BufferId(n))));
    out
}

/// Instructions that the chip has in name only.
fn emulated(func: &Func, target: &Target) -> Vec<String> {
    let mut out = Vec::new();
    for l in visit::loops(&func.body) {
        let row = l.tensorize.as_ref().and_then(|t| intrin::find(&t.row)).filter(|row| row.is_emulated_on(target));
        out.extend(row.map(|row| {
            let name = func.var_name(l.var);
            format!("tensorize {name} {}: emulated on {target}, by a routine of other instructions that is many times slower", row.name)
        }));
    }
    out
}

/// What lies between kernels: a global buffer that is no parameter.
fn workspace(func: &Func, id: BufferId) -> Option<String> {
    let buffer = func.buffer(id);
    if buffer.scope != Scope::Global || func.params.contains(&id) {
        return None;
    }
    let touching = |touched: fn(&[Stmt]) -> Vec<BufferId>, verb: &str| {
        let nests = func.body.iter().zip(1..).filter(|(nest, _)| touched(std::slice::from_ref(*nest)).contains(&id));
        let numbers: Vec<String> = nests.map(|(_, n): (_, usize)| n.to_string()).collect();
        match &numbers[..] {
            [] => format!("no kernel {verb}s it"),
            [one] => format!("kernel {one} {verb}s it"),
            [first @ .., last] => format!("kernels {} and {last} {verb} it", first.join(", ")),
        }
    };
    let bytes = buffer.dtype.bytes_of(u64::try_from(buffer.elements()?).ok()?);
    Some(format!(
        "{} is workspace of {bytes} bytes: {}, {}",
        buffer.name,
        touching(visit::writes, "write"),
        touching(visit::reads, "read")
    ))
}

/// What one thread of many does alone: blocks under no loop that is bound to threads, and shared stages that neither
/// mention such a loop nor share its iterations out.
fn lone_stages<'a>(func: &Func, body: &'a [Stmt], around: &mut Vec<&'a For>, out: &mut Vec<String>) {
    for stmt in body {
        match stmt {
            Stmt::For(l) => {
                around.push(l);
                lone_stages(func, &l.body, around, out);
                around.pop();
            }
            Stmt::Block(b) => out.extend(lone_stage(func, b, around)),
            Stmt::If(i) => lone_stages(func, &i.body, around, out),
            Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
        }
    }
}

fn lone_stage(func: &Func, block: &Block, around: &[&For]) -> Option<String> {
    let together = block.copy_with.as_ref().is_some_and(|c| c.kind == CopyKind::Tma);
    if together || around.iter().any(|l| l.tensorize.is_some()) {
        return None;
    }
    let name = func.block_name(block.name);
    let threads: Vec<&&For> = around.iter().filter(|l| l.axis().is_some_and(|a| !a.is_block_level())).collect();
    if threads.is_empty() {
        return Some(format!("block {name} is under no loop bound to threads: one thread of a block runs it"));
    }
    let written = visit::writes(&block.body).into_iter().find(|b| func.buffer(*b).scope == Scope::Shared)?;
    let mentioned = |l: &For| l.defines().iter().any(|(v, _)| block.iters.iter().any(|i| i.binding.mentions(*v)));
    if threads.iter().any(|l| mentioned(l)) {
        return None;
    }
    let loops: Vec<&str> = threads.iter().map(|l| func.var_name(l.var)).collect();
    let buffer = &func.buffer(written).name;
    let loops = loops.join(" and ");
    Some(format!(
        "block {name} fills {buffer} once for all iterations of {loops}, and none of its own loops is bound: one \
         thread fills it"
    ))
}
