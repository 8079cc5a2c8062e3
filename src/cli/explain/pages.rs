//! Pages of the reference: a step, all steps, the grammar of programs, and the instructions that `tensorize` takes.

use super::super::colour::{self, Text};
use super::super::show;
use crate::error::{Code, Error, Result};
use crate::intrin::{self, Action, Emit, Level, Place, Row};
use crate::ir::print;
use crate::loom::Schedule;
use crate::schedule::{Primitive, primitive};
use crate::target::{FEATURES, Target};
use crate::te;
use std::fmt::Write;

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For a terminal: wrapped to its width.
    Text,
    /// For the book.
    Markdown,
}

/// Every step in one line, with what it does.
pub fn steps(form: Form) -> String {
    if form == Form::Markdown {
        return crate::schedule::reference();
    }
    let mut out = String::new();
    for p in primitive::ALL {
        let _ = writeln!(out, "{}\n{}", colour::paint(Text::Loom, &p.usage()), show::wrapped(p.about, "    "));
    }
    let recommended = show::wrapped(crate::schedule::RECOMMENDED, "");
    out + &format!("\n{recommended}\n`warploom explain STEP` shows what a step requires and an example.\n")
}

/// The page of a step: form, what it does, what it requires, and the program before and after it.
pub fn step(p: &Primitive, form: Form) -> Result<String> {
    let (before, after) = example(p)?;
    let (program, step) = p.example.rsplit_once('\n').unwrap_or(("", p.example));
    let mut out = String::new();
    if form == Form::Markdown {
        let _ = write!(out, "# {}\n\n```text\n{}\n```\n\n{}\n\n## Requires\n\n", p.name, p.usage(), p.about);
        for (n, r) in p.requires.iter().enumerate() {
            let _ = writeln!(out, "{}. {}", n + 1, r.replace('|', "\\|"));
        }
        let _ = write!(
            out,
            "\nA step that breaks requirement N is refused with the code `{}.N`.\n\n## Example\n\n```loom,partial\n{}\n```\n\nBefore \
             `{step}`:\n\n```text\n{}\n```\n\nAfter it:\n\n```text\n{}\n```\n",
            p.name,
            p.example,
            before.trim_end(),
            after.trim_end()
        );
        return Ok(out);
    }
    let (usage, requires) = (p.usage(), colour::head("Requires:"));
    let _ = write!(out, "{}\n\n{}\n\n{requires}\n", colour::paint(Text::Loom, &usage), show::wrapped(p.about, "    "));
    for (n, r) in p.requires.iter().enumerate() {
        let _ = writeln!(out, "{}", show::wrapped(&format!("{}. {r}", n + 1), "    "));
    }
    let indented = |kind: Text, text: &str| {
        let lines: String = text.lines().map(|l| format!("    {l}\n")).collect();
        colour::paint(kind, &lines).into_owned()
    };
    let _ = write!(
        out,
        "\n{}\n{}\n{}\n{}\n{}\n{}",
        colour::head("Example:"),
        indented(Text::Loom, &format!("{program}\n{step}")),
        colour::head(&format!("The program before `{step}`:")),
        indented(Text::Program, &before),
        colour::head("The program after it:"),
        indented(Text::Program, &after)
    );
    Ok(out)
}

/// The program of a primitive's example before and after its last step.
fn example(p: &Primitive) -> Result<(String, String)> {
    let schedule = Schedule::parse(p.example)?;
    let mut shown = vec![print::func(&schedule.program)];
    schedule.trace(&mut |_, _, func| shown.push(print::func(func)))?;
    let after = shown.pop().unwrap_or_default();
    Ok((shown.pop().unwrap_or_default(), after))
}

/// How programs are written.
pub fn programs(form: Form) -> String {
    if form == Form::Markdown {
        return te::GRAMMAR.to_string();
    }
    let mut out = String::new();
    let mut is_code = false;
    let mut paragraph = String::new();
    for line in te::GRAMMAR.lines().chain([""]) {
        if is_code || line.is_empty() || line.starts_with("```") {
            if !paragraph.is_empty() {
                let _ = writeln!(out, "{}", show::wrapped(&paragraph, ""));
                paragraph.clear();
            }
            is_code ^= line.starts_with("```");
            if !line.starts_with("```") {
                let indent = if line.is_empty() { "" } else { "    " };
                let _ =
                    writeln!(out, "{indent}{}", if is_code { colour::paint(Text::Loom, line) } else { line.into() });
            }
        } else {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    out
}

/// The instructions whose names begin with a prefix, for a chip or for all: grouped by what differs in the extents alone; of one
/// row a page.
pub fn instructions(prefix: &str, target: Option<&Target>, form: Form) -> Result<String> {
    let rows: Vec<&Row> =
        intrin::all().iter().filter(|r| r.name.starts_with(prefix) && target.is_none_or(|t| t.has(r.needs))).collect();
    match rows[..] {
        [] => Err(none(prefix, target)),
        [row] => Ok(page(row)),
        _ if rows.iter().any(|r| r.name == prefix) => {
            Ok(rows.iter().filter(|r| r.name == prefix).map(|r| page(r)).collect())
        }
        _ => Ok(listing(&rows, target, form)),
    }
}

fn none(prefix: &str, target: Option<&Target>) -> Error {
    if let Some(target) = target
        && intrin::all().iter().any(|r| r.name.starts_with(prefix))
    {
        let message = format!("{target} has no instruction whose name begins with `{prefix}`");
        return Error::input(Code::CliInstruction, message)
            .help("without --target the instructions of all chips are listed");
    }
    let families = || -> Vec<&str> {
        let mut out: Vec<&str> = intrin::all().iter().map(|r| r.name.split('.').next().unwrap_or_default()).collect();
        out.sort_unstable();
        out.dedup();
        out
    };
    Error::input(Code::CliInstruction, format!("no instruction's name begins with `{prefix}`"))
        .help(format!("the names begin with {}", families().join(", ")))
}

/// Rows that differ in the extents of their names alone, in one line: `wgmma.m64n{8..256}k16.f32.f16.f16`.
fn listing(rows: &[&Row], target: Option<&Target>, form: Form) -> String {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let alike = |other: &&Row| {
            pattern(&other.name) == pattern(&row.name) && other.level == row.level && other.needs == row.needs
        };
        match groups.iter_mut().find(|g| g.first().is_some_and(alike)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let header = ["instruction", "rows", "run by", "operands", "from"];
    let cells = groups
        .iter()
        .map(|g| [names(g), g.len().to_string(), level(g[0].level).to_string(), operands(g[0]), needs(g[0])]);
    let mut out = if form == Form::Markdown {
        let rule = "|---".repeat(header.len()) + "|";
        let body: String = cells.map(|c| format!("| `{}` | {} |\n", c[0], c[1..].join(" | "))).collect();
        format!("| {} |\n{rule}\n{body}", header.join(" | "))
    } else {
        let mut table = show::table(&header);
        for row in cells {
            table.add_row(row);
        }
        format!("{table}\n")
    };
    if form == Form::Text {
        let whose = target.map_or_else(|| "all chips".to_string(), |t| t.to_string());
        let _ = writeln!(
            out,
            "{} instructions for {whose}. `warploom explain --instructions NAME` shows what one computes and how it is written.",
            rows.len()
        );
    }
    out
}

/// One name for rows of one pattern, or the first and the last where their extents are no grid.
fn names(rows: &[&Row]) -> String {
    let grid: usize = extents(rows).iter().map(Vec::len).product();
    match rows {
        [first, .., last] if grid != rows.len() => format!("{} .. {}", first.name, last.name),
        _ => together(rows),
    }
}

/// The values of each extent in the names of rows of one pattern, ascending.
fn extents(rows: &[&Row]) -> Vec<Vec<i64>> {
    let mut out: Vec<Vec<i64>> = Vec::new();
    for row in rows {
        for (n, number) in numbers(&row.name).into_iter().enumerate() {
            if out.len() <= n {
                out.push(Vec::new());
            }
            out[n].push(number);
        }
    }
    for values in &mut out {
        values.sort_unstable();
        values.dedup();
    }
    out
}

/// A name with its numbers blanked out.
fn pattern(name: &str) -> String {
    let shape = |part: &str| part.starts_with(['m', 'n', 'k']) && part[1..].starts_with(|c: char| c.is_ascii_digit());
    name.split('.')
        .map(|part| if shape(part) { part.split(|c: char| c.is_ascii_digit()).collect() } else { part.to_string() })
        .collect::<Vec<String>>()
        .join(".")
}

/// One name for rows of one pattern: numbers that differ stand as a list, or as first..last.
fn together(rows: &[&Row]) -> String {
    let shown: Vec<String> = extents(rows)
        .into_iter()
        .map(|values| match values[..] {
            [one] => one.to_string(),
            [first, .., last] if values.windows(2).all(|w| w[1] - w[0] == values[1] - first) && values.len() > 4 => {
                format!("{{{first}..{last} by {}}}", values[1] - first)
            }
            _ => format!("{{{}}}", values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")),
        })
        .collect();
    let (mut out, mut n, name) = (String::new(), 0, &rows[0].name);
    for part in name.split('.') {
        if !out.is_empty() {
            out.push('.');
        }
        if pattern(part) == part {
            out.push_str(part);
            continue;
        }
        for letter in part.chars().filter(char::is_ascii_alphabetic) {
            out.push(letter);
            out.push_str(&shown[n]);
            n += 1;
        }
    }
    out
}

/// The extents in a name, in order.
fn numbers(name: &str) -> Vec<i64> {
    let parts = name.split('.').filter(|part| pattern(part) != **part);
    parts.flat_map(|part| part.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok())).collect()
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Block => "block",
        Level::Warpgroup => "warpgroup",
        Level::Warp => "warp",
        Level::Thread => "thread",
    }
}

/// Each operand with its type and where it is.
fn operands(row: &Row) -> String {
    let mut out: Vec<(String, &str)> = Vec::new();
    for o in &row.operands {
        let typed = format!("{} {}", o.name, intrin::dtype_of(row, o.name).map_or("?", |t| t.name()));
        match out.last_mut() {
            Some((names, held)) if *held == place(&o.place) => *names = format!("{names}, {typed}"),
            _ => out.push((typed, place(&o.place))),
        }
    }
    out.iter().map(|(names, held)| format!("{names} in {held}")).collect::<Vec<_>>().join("; ")
}

fn place(place: &Place) -> &'static str {
    match place {
        Place::Registers(_) => "registers",
        Place::Opaque(_) => "wmma registers",
        Place::Rows(_) => "shared or global memory",
        Place::Addresses(_) => "shared memory",
        Place::Descriptor { .. } => "shared memory, by descriptor",
    }
}

/// The first chip that has what a row needs.
fn needs(row: &Row) -> String {
    let first = Target::ALL.iter().find(|t| t.has(row.needs)).map_or("no chip", |t| t.name);
    match row.emulated_from {
        Some(sm) => format!("{first}; emulated from sm_{sm} on"),
        None => first.to_string(),
    }
}

/// Everything that a row says.
fn page(row: &Row) -> String {
    let mut out = format!("{}\n\n{}\n\n", colour::paint(Text::Loom, &row.name), show::wrapped(row.about, "    "));
    let dims: Vec<String> = row.dims.iter().map(|(d, extent)| format!("{d} = {extent}")).collect();
    let _ = writeln!(out, "run by:      a {}", level(row.level));
    let _ = writeln!(out, "dimensions:  {}", dims.join(", "));
    for o in &row.operands {
        let dtype = intrin::dtype_of(row, o.name).map_or("?", |t| t.name());
        let registers = match o.place {
            Place::Registers(_) | Place::Opaque(_) => format!(", {} of 32 bits in each lane", o.registers()),
            _ => String::new(),
        };
        let _ = writeln!(out, "operand {}:   {dtype}, in {}{registers}", o.name, place(&o.place));
    }
    let features: Vec<&str> = FEATURES.iter().filter(|f| row.needs.contains(f.flag)).map(|f| f.name).collect();
    let _ = writeln!(out, "needs:       {} ({})", features.join(", "), needs(row));
    let chips: Vec<&str> = Target::ALL.iter().filter(|t| t.has(row.needs)).map(|t| t.name).collect();
    let _ = writeln!(out, "chips:       {}", chips.join(", "));
    let verb = if row.action == Action::Copy { "copies" } else { "computes" };
    let _ = write!(out, "\nWhat it {verb}, as a program:\n");
    for line in row.meaning.lines() {
        let _ = writeln!(out, "    {}", colour::paint(Text::Loom, line));
    }
    match &row.emit {
        Some(Emit::Intrinsic { name, .. }) => {
            let _ = write!(out, "\nIn LLVM IR: {name}\n");
        }
        Some(Emit::Template { text, fields, .. } | Emit::Product { text, fields }) => {
            let _ = write!(out, "\nIn PTX:\n");
            let filled =
                fields.iter().fold(text.to_string(), |t, (field, value)| t.replace(&format!("{{{field}}}"), value));
            for line in filled.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with("//")) {
                let _ = writeln!(out, "    {}", colour::paint(Text::Ptx, line));
            }
        }
        None => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_primitive_has_an_example_of_itself() {
        for p in primitive::ALL {
            let (before, after) = example(p).unwrap_or_else(|e| panic!("{}: {e}", p.name));
            let last = Schedule::parse(p.example).unwrap().steps.last().unwrap().to_string();
            assert!(last.starts_with(&format!("{} ", p.name)), "{last}");
            assert_ne!(before, after, "{}: the example changes nothing", p.name);
            let page = step(p, Form::Text).unwrap();
            assert!(page.lines().all(|l| l.len() <= 160), "{}", p.name);
            assert!(step(p, Form::Markdown).unwrap().contains("```loom,partial\n"));
        }
    }

    #[test]
    fn every_instruction_is_in_one_line_of_the_listing() {
        let rows: Vec<&Row> = intrin::all().iter().collect();
        let text = listing(&rows, None, Form::Markdown);
        let counted: usize =
            text.lines().skip(2).map(|l| l.split(" | ").nth(1).unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!(counted, rows.len());
        assert!(text.contains("`wgmma.m64n{8..256 by 8}k16.f32.f16.f16`"), "{text}");
        for row in &rows {
            assert!(page(row).contains(&row.meaning.lines().next().unwrap().to_string()), "{}", row.name);
        }
        let none = instructions("wgmma", Some(&Target::sm_80()), Form::Text).unwrap_err();
        assert_eq!(none.message(), "sm_80 has no instruction whose name begins with `wgmma`");
        assert!(instructions("foo", None, Form::Text).unwrap_err().helps()[0].contains("ldmatrix"));
    }
}
