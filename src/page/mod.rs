//! A kernel as a page: one HTML file that needs no network. Panes show schedule, program, lowered program, PTX and machine code; what
//! belongs together is linked; a timeline shows one block.
//!
//! Every link comes from data: which step changes what, by comparing the programs before and after it (`names`); which instruction comes
//! from which line, by the debug locations that code generation carries through LLVM and ptxas (`code`); what happens when, by
//! recording the simulator (`record`, `timeline`).

mod code;
mod drawing;
mod groups;
mod html;
mod instance;
mod lanes;
mod names;
mod picture;
mod record;
mod stages;
mod streams;
mod timeline;

use crate::analysis::{self, CostReport};
use crate::assemble::Ptxas;
use crate::codegen;
use crate::error::{Code, Error, Result};
use crate::ir::print::{INDENT, LineKind};
use crate::kernel::Kernels;
use crate::loom::Schedule;
use crate::lower::{self, Lowered};
use drawing::Timeline;
use html::escape;
use names::{Kind, Line, Name, Names};
use std::collections::BTreeSet;
use std::fmt::Write;

pub use picture::picture;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of a schedule, under this title.
///
/// # Errors
/// A step that is refused, a program that does not lower or compile, and what the simulator finds in the kernels. Where a tool of the
/// host is missing, the page says so instead.
pub fn page(schedule: &Schedule, title: &str) -> Result<String> {
    let schedule = schedule.resolved()?;
    let func = schedule.scheduled()?;
    let lowered = lower::lower(&func, &schedule.target)?;
    let kernels = codegen::compile_with_lines(&lowered, &schedule.target, &format!("{}.lowered", lowered.name))?;
    let names = Names::of(&schedule, &lowered)?;
    let ptx = code::ptx(&kernels.text);
    let report = cost(&schedule, &lowered, &Kernels { text: code::plain(&ptx), ..kernels.clone() }).summed(&func);
    let sass = match code::sass(&kernels.text, schedule.target.name) {
        Ok(lines) => html::code("sass", &lines),
        Err(e) => html::absent(&format!("There is no machine code here: {}.", e.message())),
    };
    let (timelines, said) = timelines(&schedule, &lowered)?;
    let json = serde_json::to_string(&timelines).map_err(|e| Error::bug(Code::PageJson, e.to_string()))?;
    let fields = [
        ("TITLE", escape(title)),
        ("TARGET", escape(&schedule.target.to_string())),
        ("STYLE", STYLE.to_string()),
        ("SCHEDULE", schedule_pane(&schedule, &names)),
        ("NAMES", names_list(&names)),
        ("PROGRAM", program_pane(&names)),
        ("LOWERED", lowered_pane(&names, &lowered, &report)),
        ("COST", escape(&analysis::summary(&report))),
        ("PTX", html::code("ptx", &ptx)),
        ("SASS", sass),
        ("SAID", escape(&said)),
        ("RULES", escape(timeline::RULES)),
        ("TIMELINE", html::script(&json)),
        ("SCRIPT", SCRIPT.to_string()),
    ];
    Ok(filled(TEMPLATE, &fields))
}

/// The template with its fields, each `{{NAME}}`; what a field holds is not looked at again.
fn filled(template: &str, fields: &[(&str, String)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out.push_str(fields.iter().find(|f| f.0 == name).map_or("", |f| f.1.as_str()));
        rest = after;
    }
    out + rest
}

/// The cost report, with the registers that ptxas counts where it is available.
fn cost(schedule: &Schedule, lowered: &Lowered, kernels: &Kernels) -> CostReport {
    let chip = schedule.target.name;
    let report = analysis::cost_report(lowered, &schedule.target).compiled(kernels);
    let assembled = Ptxas::for_chip(None, chip).and_then(|p| Ok((p.assemble(kernels.ptx(), chip)?.usage, p.version)));
    match assembled {
        Ok((usage, version)) => report.assembled(kernels, &version, &usage, &schedule.target),
        Err(_) => report,
    }
}

/// Program, target and steps. A step is linked with what it changes and what becomes of that.
fn schedule_pane(schedule: &Schedule, names: &Names) -> String {
    let mut out = String::new();
    let program = crate::te::print(&schedule.program);
    let mut number = 0;
    for line in names.loose(program.trim_end()) {
        number += 1;
        let links = html::ids(line.tokens.iter().flat_map(|t| &t.2));
        out.push_str(&html::line(&format!("schedule-{number}"), number, &links, "", &html::linked(&line)));
    }
    number += 1;
    out.push_str(&html::line(
        &format!("schedule-{number}"),
        number,
        "",
        "",
        &format!("target {}", escape(&schedule.target.to_string())),
    ));
    for (n, step) in names.steps.iter().enumerate() {
        number += 1;
        let links = html::ids(&names.closure(&step.names));
        let remark = step.remark.as_ref().map_or(String::new(), |r| format!("<i>  # {}</i>", escape(r)));
        let text = names.loose(&step.text).iter().map(html::linked).collect::<Vec<_>>().join(" ");
        let attributes = format!(" data-step=\"{}\"", n + 1);
        out.push_str(&html::line(&format!("step-{}", n + 1), number, &links, &attributes, &(text + &remark)));
    }
    out
}

/// Every name with the steps that make and change it.
fn names_list(names: &Names) -> String {
    let mut out = String::new();
    for (name, made) in &names.made {
        let steps: Vec<String> =
            (1..).zip(&names.steps).filter(|(_, s)| s.names.contains(name)).map(|(n, _)| format!("step-{n}")).collect();
        let by = match made {
            Some(0) => "of the program".to_string(),
            Some(n) => format!("made by step {n}"),
            None => "made by the lowering".to_string(),
        };
        let links = if steps.is_empty() { String::new() } else { format!(" data-link=\"{}\"", steps.join(" ")) };
        let (word, text) = (name.word(), escape(&name.text));
        let _ = writeln!(
            out,
            "<span class=\"chip {word}\" id=\"{}\"{links} title=\"{word} {text}, {by}\">{text}</span>",
            name.id()
        );
    }
    out
}

/// The program before the first step and after each.
fn program_pane(names: &Names) -> String {
    let mut out = String::new();
    let none = BTreeSet::new();
    let after = names.steps.iter().map(|s| (&s.program, &s.changed));
    for (step, (program, changed)) in std::iter::once((&names.program, &none)).chain(after).enumerate() {
        let _ = writeln!(out, "<div class=\"version\" data-step=\"{step}\" hidden>");
        for (n, line) in program.iter().enumerate() {
            let links = html::ids(own(program, n).iter());
            let attributes = if changed.contains(&n) { " data-changed" } else { "" };
            out.push_str(&html::line(
                &format!("program-{step}-{}", n + 1),
                n + 1,
                &links,
                attributes,
                &html::linked(line),
            ));
        }
        out.push_str("</div>\n");
    }
    out
}

/// What a line is about: what it introduces; else the block that it is in, the buffer that it begins with and its mbarriers.
fn own(lines: &[Line], n: usize) -> Vec<Name> {
    let line = &lines[n];
    if !line.introduces.is_empty() {
        return line.introduces.clone();
    }
    let is_around = |l: &&Line| l.kind == Some(LineKind::Block) && l.depth < line.depth;
    let block = lines[..n].iter().rev().find(is_around);
    let mut out: Vec<Name> =
        block.and_then(|l| l.introduces.first().cloned().or_else(|| first(l, Kind::Block))).into_iter().collect();
    out.extend(first(line, Kind::Mbarrier).or_else(|| first(line, Kind::Buffer)).or_else(|| first(line, Kind::Block)));
    out
}

fn first(line: &Line, kind: Kind) -> Option<Name> {
    line.tokens.iter().flat_map(|t| &t.2).find(|n| n.kind == kind).cloned()
}

/// The lowered program with the cost report below the lines that it speaks of.
fn lowered_pane(names: &Names, lowered: &Lowered, report: &CostReport) -> String {
    let lines = names.lowered(lowered);
    let remarks = analysis::remarks(report);
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        let links = html::ids(own(&lines, n).iter());
        // The head of a kernel is linked with its own line, not with the whole kernel.
        let is_head = matches!(line.kind, None | Some(LineKind::Comment | LineKind::Head));
        let inside = lines[n + 1..].iter().take_while(|l| l.depth > line.depth).count();
        let end = if is_head { n + 1 } else { n + 1 + inside };
        out.push_str(&html::line(
            &format!("lowered-{}", n + 1),
            n + 1,
            &links,
            &format!(" data-end=\"{end}\""),
            &html::linked(line),
        ));
        for remark in remarks.iter().filter(|r| r.line == n + 1) {
            let class = if remark.advice.is_empty() { "cost" } else { "cost bad" };
            let advice: String = remark.advice.iter().map(|a| format!("<br>{}", escape(a))).collect();
            let margin = line.depth * INDENT;
            let _ = writeln!(
                out,
                "<div class=\"{class}\" data-link=\"lowered-{}\" style=\"--indent:{margin}\">{}{advice}</div>",
                n + 1,
                escape(&remark.text)
            );
        }
    }
    out
}

/// The timeline of each kernel, and what was run for them.
fn timelines(schedule: &Schedule, lowered: &Lowered) -> Result<(Vec<Timeline>, String)> {
    let Some(instance) = instance::of(schedule, lowered)? else {
        return Ok((
            Vec::new(),
            "There is no timeline: the simulator takes too long for one cluster of this program.".into(),
        ));
    };
    let records = match record::record(&instance.lowered) {
        Ok(records) => records,
        Err(e) => return Ok((Vec::new(), format!("There is no timeline: {}.", e.message()))),
    };
    let rings = stages::pipelined(&instance.schedule.scheduled()?);
    let mut out = Vec::new();
    let mut line = 1;
    for (kernel, record) in instance.lowered.kernels.iter().zip(&records) {
        let numbered = record::number(kernel, line);
        // Kernels are printed with an empty line between them.
        line += lower::print_kernel(kernel).lines().count() + 1;
        let mut timeline = timeline::of(kernel, &numbered, record, &rings);
        let shown = |line: &mut usize| *line = instance.lines.get(line).copied().unwrap_or(0);
        timeline.spans.iter_mut().for_each(|s| shown(&mut s.line));
        timeline.marks.iter_mut().for_each(|m| shown(&mut m.line));
        out.push(timeline);
    }
    let which = match instance.schedule.program == schedule.program {
        true => "the program itself".to_string(),
        false => format!("a smaller instance, {}", shapes(&instance.schedule)),
    };
    let clusters = lowered.kernels.iter().any(|k| k.cluster() > 1);
    let part = if clusters { "its first cluster of blocks" } else { "its first block" };
    let cut = if out.iter().any(|t| t.is_cut) { " The record is cut: the kernel goes on." } else { "" };
    Ok((out, format!("Recorded on the simulator: {which}; {part}.{cut}")))
}

/// The parameters of a program with their extents.
fn shapes(schedule: &Schedule) -> String {
    let program = &schedule.program;
    let shape = |id: &crate::ir::BufferId| {
        let buffer = program.buffer(*id);
        format!("{}{:?}", buffer.name, buffer.const_shape().unwrap_or_default())
    };
    program.params.iter().map(shape).collect::<Vec<_>>().join(" ")
}
