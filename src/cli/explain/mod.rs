//! `warploom explain`: each step with the program after it, what the placements come to, and the reference of steps; or
//! what the lowered program costs.

mod codes;
mod pages;
mod remarks;

use super::colour::{self, Text};
use super::data;
use super::input::{self, What};
use super::pager::PagerArgs;
use super::show;
use crate::analysis::{self, CostReport};
use crate::assemble::Ptxas;
use crate::error::{Code, Error, Result, suggestion};
use crate::ir::print;
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::lower;
use crate::schedule::{self, primitive};
use clap::Args;
use pages::Form;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to explain.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    what: What,
    /// List every step that there is.
    #[arg(long, conflicts_with_all = ["file", "gemm", "last", "cost", "instructions", "programs"])]
    primitives: bool,
    /// List every code that an error can have, with its meaning.
    #[arg(long, conflicts_with_all = ["file", "gemm", "last", "cost", "instructions", "programs", "primitives"])]
    codes: bool,
    /// Print the grammar of programs, which are the text before `target`.
    #[arg(long, conflicts_with_all = ["file", "gemm", "last", "cost", "instructions"])]
    programs: bool,
    /// List the instructions that `tensorize` takes, or those whose names begin with PREFIX, for one chip with --target; a whole
    /// name shows what the instruction computes.
    #[arg(long, value_name = "PREFIX", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["file", "gemm", "last", "cost"])]
    instructions: Option<String>,
    /// Show only the program after the last step.
    #[arg(long, conflicts_with = "cost")]
    last: bool,
    /// Show for each step only the lines that it changed.
    #[arg(long, conflicts_with_all = ["cost", "last"])]
    diff: bool,
    /// Print the cost report of the lowered program instead: bank conflicts, sectors and bounds of every access; registers,
    /// occupancy and totals of every kernel.
    #[arg(long)]
    cost: bool,
    /// Write a page: schedule, lowered program, PTX and machine code side by side, linked line by line with the cost report, and a timeline
    /// of one block. One HTML file that needs no network.
    #[arg(long, value_name = "OUT.html", conflicts_with_all = ["cost", "last", "diff", "primitives", "programs", "codes", "instructions", "markdown"])]
    html: Option<PathBuf>,
    /// Write a picture of the schedule: its loops as nested boxes, coloured by what they are bound to, with the statements inside and the
    /// buffers above. `-` is standard output.
    #[arg(long, value_name = "OUT.svg", conflicts_with_all = ["cost", "last", "diff", "primitives", "programs", "codes", "instructions", "markdown", "html"])]
    svg: Option<PathBuf>,
    /// The old name of --cost, which the command line refuses.
    #[arg(long, hide = true)]
    pub certificates: bool,
    /// With --cost: as JSON.
    #[arg(long, requires = "cost")]
    json: bool,
    /// Pages of steps, programs, instructions and codes as Markdown.
    #[arg(long)]
    markdown: bool,
    #[command(flatten)]
    pager: PagerArgs,
}

impl ExplainArgs {
    /// What errors call it.
    pub fn name(&self) -> String {
        self.what.name()
    }
}

/// Prints the steps with the programs between them, or a page of the reference.
pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    args.pager.want();
    if let Some(page) = page(args)? {
        show::put(page);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(word) = args.what.word().filter(|w| *w != "-" && !std::path::Path::new(w).exists()) {
        let guess = suggestion(word, primitive::ALL.iter().map(|p| p.name));
        if schedule::is_name(word) {
            return Err(Error::input(Code::CliInput, format!("`{word}` is neither a file nor a step{guess}"))
                .help("`warploom explain --primitives` lists the steps"));
        }
    }
    let own = if args.what.asks_for_chip() { data::own_chip() } else { None };
    let schedule = args.what.schedule(own)?;
    args.what.record_notes(&schedule, || data::here_for(&schedule.target))?.iter().for_each(show::note);
    if args.cost {
        return cost(&schedule, args.json);
    }
    if let Some(file) = &args.html {
        return html(&schedule, file);
    }
    if let Some(file) = &args.svg {
        return svg(&schedule, file);
    }
    let title = input::title(&schedule);
    let mut before = print::func(&schedule.program);
    if !args.last {
        let head = format!("{title}, for {}", schedule.target);
        show::line(format_args!("{}\n\n{}", colour::head(&head), colour::paint(Text::Program, &before)));
    }
    let func = schedule.trace(&mut |n, step, func| {
        if args.last {
            return;
        }
        let after = print::func(func);
        let shown =
            if args.diff { changed(&before, &after) } else { colour::paint(Text::Program, &after).into_owned() };
        let (head, step) = (format!("step {n}:"), step.to_string());
        show::line(format_args!("{} {}\n\n{shown}", colour::head(&head), colour::paint(Text::Loom, &step)));
        before = after;
    })?;
    if args.last {
        show::line(colour::paint(Text::Program, &print::func(&func)));
    }
    for remark in remarks::remarks(&func).into_iter().chain(remarks::emulated(&func, &schedule.target)) {
        show::line(format_args!("{} {remark}", colour::note("note:")));
    }
    match lower::lower(&func, &schedule.target) {
        Err(e) => show::line(format_args!(
            "{} this schedule does not compile for {}: {e}",
            colour::note("note:"),
            schedule.target
        )),
        Ok(lowered) => show::line(format_args!("{} {}", colour::head("legality:"), lowered.assurance(&func)?)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a schedule.
fn html(schedule: &Schedule, file: &Path) -> Result<ExitCode> {
    let text = crate::page::page(schedule, &input::title(schedule))?;
    write(file, &text, Code::CliHtml, "--html kernel.html")
}

/// Writes the picture of a schedule.
fn svg(schedule: &Schedule, file: &Path) -> Result<ExitCode> {
    let text = crate::page::picture(schedule, &input::title(schedule))?;
    if file.as_os_str() == "-" {
        show::put(text);
        return Ok(ExitCode::SUCCESS);
    }
    write(file, &text, Code::CliSvg, "--svg kernel.svg")
}

fn write(file: &Path, text: &str, code: Code, example: &str) -> Result<ExitCode> {
    let cannot = |e: std::io::Error| {
        Error::machine(code, format!("cannot write {}: {e}", file.display()))
            .help(format!("name a file in a folder that exists, such as `{example}`"))
    };
    std::fs::write(file, text).map_err(cannot)?;
    show::note(format_args!("wrote {}", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// A page of the reference, if one is asked for.
fn page(args: &ExplainArgs) -> Result<Option<String>> {
    let form = if args.markdown { Form::Markdown } else { Form::Text };
    if args.primitives {
        return Ok(Some(pages::steps(form)));
    }
    if args.codes {
        return Ok(Some(codes::all(form)));
    }
    if args.programs {
        return Ok(Some(pages::programs(form)));
    }
    if let Some(prefix) = &args.instructions {
        return pages::instructions(prefix, args.what.target()?.as_ref(), form).map(Some);
    }
    match args.what.word() {
        Some(word) => match primitive::find(word) {
            Some(p) => pages::step(p, form).map(Some),
            None => codes::page(word, form),
        },
        None => Ok(None),
    }
}

/// The lines of two programs that differ, as a diff without context but for one line around each change.
fn changed(before: &str, after: &str) -> String {
    let diff = similar::TextDiff::from_lines(before, after);
    let mut out = String::new();
    for (n, group) in diff.grouped_ops(1).iter().enumerate() {
        if n > 0 {
            out.push_str("  ..\n");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let mark = match change.tag() {
                similar::ChangeTag::Delete => '-',
                similar::ChangeTag::Insert => '+',
                similar::ChangeTag::Equal => ' ',
            };
            out.push_str(&colour::change(mark, &format!("{mark} {}", change.value())));
        }
    }
    if out.is_empty() { "  (the text of the program stays as it was)\n".to_string() } else { out }
}

/// Prints what the lowered program costs; ptxas counts registers where it is available.
fn cost(schedule: &Schedule, json: bool) -> Result<ExitCode> {
    let func = schedule.scheduled()?;
    let lowered = lower::lower(&func, &schedule.target)?;
    let kernels = crate::codegen::compile(&lowered, &schedule.target)?;
    let report = analysis::cost_report(&lowered, &schedule.target).compiled(&kernels).summed(&func);
    let report = assembled(report, schedule, &kernels)?;
    if json {
        let text = serde_json::to_string_pretty(&report);
        show::line(text.map_err(|e| Error::bug(Code::CliJson, e.to_string()))?);
    } else {
        show::put(colour::paint(Text::Cost, &analysis::print(&report, &lower::print(&lowered))));
    }
    Ok(ExitCode::SUCCESS)
}

/// The cost report with the registers that ptxas reports, or as it is where there is no ptxas.
fn assembled(report: CostReport, schedule: &Schedule, kernels: &Kernels) -> Result<CostReport> {
    let Ok(ptxas) = Ptxas::for_chip(None, schedule.target.name) else { return Ok(report) };
    let usage = ptxas.assemble(kernels.ptx(), schedule.target.name)?.usage;
    Ok(report.assembled(kernels, &ptxas.version, &usage, &schedule.target))
}
