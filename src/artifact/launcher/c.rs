//! The launcher in C: tables of the kernels between the parts of `launcher.c`.

use super::map::DriverMap;
use super::plan::{Argument, Placed, Plan, WORKSPACE_ALIGN, devices};
use super::{CFiles, Unit, describe, filled, names};
use crate::error::Result;
use crate::kernel::{Follows, Kernel, Kernels, Param};
use std::fmt::Write as _;

/// Writes `NAME.h` and `NAME.c`, which launch the units by the driver's API. They hold PTX and machine code, and need neither cuda.h nor
/// the driver's library to build: the library is opened at run time, so that a program with them starts everywhere.
///
/// # Errors
/// `artifact.launcher` where the name is no identifier, or where the units are not of one program: other arguments, or twice the same
/// shapes for the same chip.
pub fn c(name: &str, units: &[Unit<'_>]) -> Result<CFiles> {
    let plan = Plan::new(name, units)?;
    let upper = name.to_ascii_uppercase();
    let number = |n: usize| n.to_string();
    let about = names::inside_comment(&describe::about(&plan));
    let parameters: String =
        plan.arguments.iter().map(|a| format!(",\n        unsigned long long {}", a.identifier)).collect();
    let shape_text =
        format!("{name}: there are no kernels for these shapes; there are kernels for {}", describe::shapes(&plan));
    let chip_text = format!(
        "{name}: there are no kernels for this device, or none of these shapes; there are kernels for {}",
        describe::chips(&plan)
    );
    let size_text = format!(
        "{name}: a size has a value that these kernels do not take; there are kernels for {}",
        describe::shapes(&plan)
    );
    let scalars = if plan.arguments.iter().any(|a| a.rank == 0) { "; a scalar has one extent, 1" } else { "" };
    let words: &[(&str, &str)] = &[
        ("name", name),
        ("NAME", &upper),
        ("version", env!("CARGO_PKG_VERSION")),
        ("about", &about),
        ("scalars", scalars),
        ("shapes_fields", &plan.arguments.iter().map(field).collect::<String>()),
        ("parameters", &parameters),
        ("size_count", &number(plan.sizes.len())),
        ("size_room", &number(plan.sizes.len().max(1))),
        ("size_parameters", &plan.sizes.iter().map(|s| format!(", int64_t {}", s.identifier)).collect::<String>()),
        ("size_given", &plan.sizes.iter().map(|s| format!(", {}", s.identifier)).collect::<String>()),
        ("size_gather", &size_gather(&plan)),
        ("size_reads", &size_lines(&plan, |n, a| format!("    sizes[{n}] = given->{a}[0];\n"))),
        ("size_writes", &size_writes(&plan)),
        ("size_of_shapes", &size_lines(&plan, |_, a| format!(", shapes->{a}[0]"))),
        ("size_text", &names::c_literal(&size_text)),
        ("shapes_note", if plan.sizes.is_empty() { "" } else { SHAPES_NOTE }),
        ("dispatch_note", if plan.sizes.is_empty() { "" } else { ", at the sizes that the shapes have" }),
        ("given", &plan.arguments.iter().map(|a| format!(", {}", a.identifier)).collect::<String>()),
        ("workspace_align", &number(WORKSPACE_ALIGN as usize)),
        ("shape_count", &number(plan.shapes.len())),
        ("unit_count", &number(plan.units.len())),
        ("argument_count", &number(plan.arguments.len())),
        ("argument_room", &number(plan.arguments.len())),
        ("most_kernels", &number(plan.most(|k| k.kernels.len()))),
        ("most_parameters", &number(plan.most(|k| k.kernels.iter().map(|k| k.params.len()).max().unwrap_or(0)))),
        ("shape_text", &names::c_literal(&shape_text)),
        ("chip_text", &names::c_literal(&chip_text)),
        ("cubin_piece", &number(LITERAL_BYTES)),
        ("gather", &gather(&plan)),
        ("tables", &tables(name, &plan)?),
    ];
    let header = filled(include_str!("launcher.h"), words);
    Ok(CFiles { header, source: filled(include_str!("launcher.c"), words) })
}

fn field(argument: &Argument) -> String {
    format!("    int64_t {}[{}];\n", argument.identifier, argument.rank.max(1))
}

fn gather(plan: &Plan<'_>) -> String {
    let one = |(n, argument): (usize, &Argument)| format!("    arguments[{n}] = {};\n", argument.identifier);
    plan.arguments.iter().enumerate().map(one).collect()
}

/// `{1, 2, 3}`.
fn list(numbers: impl IntoIterator<Item = impl ToString>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(|n| n.to_string()).collect();
    format!("{{{}}}", numbers.join(", "))
}

fn tables(name: &str, plan: &Plan<'_>) -> Result<String> {
    let mut out = format!("const {name}_shapes {name}_all_shapes[{}_SHAPES] = {{\n", name.to_ascii_uppercase());
    for shapes in &plan.shapes {
        let extents = |shape: &Vec<i64>| if shape.is_empty() { list([1]) } else { list(shape) };
        let shapes: Vec<String> = shapes.extents.iter().map(extents).collect();
        let _ = writeln!(out, "    {{{}}},", shapes.join(", "));
    }
    out += "};\n\n";
    out += &ranges(name, plan);
    let mut rows = String::new();
    for (n, placed) in plan.units.iter().enumerate() {
        out += &code(n, placed);
        for (k, kernel) in placed.kernels().kernels.iter().enumerate() {
            out += &parameters((n, k), placed.kernels(), kernel, plan)?;
        }
        out += &kernels(n, placed, plan);
        rows += &row(n, placed);
    }
    Ok(out + "static const unit units[] = {\n" + &rows + "};\n\n")
}

/// What the header says of shapes that have a dynamic size.
const SHAPES_NOTE: &str = " /* a dynamic extent has its largest value */";

/// The values of each size for each of the shapes.
fn ranges(name: &str, plan: &Plan<'_>) -> String {
    let (rows, room) = (format!("{}_SHAPES", name.to_ascii_uppercase()), plan.sizes.len().max(1));
    let mut out = format!("static const size_range ranges[{rows}][{room}] = {{\n");
    for shapes in &plan.shapes {
        let all = if shapes.ranges.is_empty() { vec![[1, 1, 1]] } else { shapes.ranges.clone() };
        let _ = writeln!(out, "    {},", list(all.into_iter().map(list)));
    }
    out + "};\n\n"
}

/// A line for each size, from its number and the first argument that has it.
fn size_lines(plan: &Plan<'_>, line: impl Fn(usize, &str) -> String) -> String {
    let of = |n: usize| plan.arguments.iter().find(|a| a.size == Some(n)).map(|a| line(n, &a.identifier));
    let lines: String = (0..plan.sizes.len()).filter_map(of).collect();
    lines
}

fn size_gather(plan: &Plan<'_>) -> String {
    plan.sizes.iter().enumerate().map(|(n, size)| format!("    sizes[{n}] = {};\n", size.identifier)).collect()
}

/// The extents that have a size, which the shapes for a range have for each of its values.
fn size_writes(plan: &Plan<'_>) -> String {
    if plan.sizes.is_empty() {
        return "    (void)sizes;\n".into();
    }
    let dynamic = plan.arguments.iter().filter_map(|a| Some((&a.identifier, a.size?)));
    dynamic.map(|(a, size)| format!("    known.{a}[0] = sizes[{size}];\n")).collect()
}

/// PTX by lines and machine code by pieces, each a literal: a literal of C99 has at most 4095 bytes for certain.
fn code(n: usize, placed: &Placed<'_>) -> String {
    let kernels = placed.kernels();
    let mut out = format!("/* {} for {} */\nstatic const char *const ptx_{n}[] = {{\n", kernels.name, kernels.target);
    for line in lines(kernels.ptx()) {
        let _ = writeln!(out, "    {},", names::c_literal(line));
    }
    out += "};\n\n";
    if let Some((cubin, ..)) = placed.code() {
        let _ = writeln!(out, "static const char *const cubin_{n}[] = {{");
        for bytes in cubin.bytes.chunks(LITERAL_BYTES) {
            let _ = writeln!(out, "    {},", names::c_bytes(bytes));
        }
        out += "};\n\n";
    }
    out
}

/// Bytes of a literal before escapes, which are at most four for one.
const LITERAL_BYTES: usize = 1000;

/// The lines of a text with their ends; what is longer than a literal is several.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            let end = (0..=LITERAL_BYTES.min(rest.len())).rev().find(|end| rest.is_char_boundary(*end))?;
            let (piece, after) = rest.split_at(end);
            rest = after;
            (!piece.is_empty()).then_some(piece)
        })
    })
}

/// The tensor maps and the parameters of a kernel.
fn parameters((n, k): (usize, usize), kernels: &Kernels, kernel: &Kernel, plan: &Plan<'_>) -> Result<String> {
    let (mut maps, mut rows) = (String::new(), String::new());
    for (at, param) in kernel.params.iter().enumerate() {
        let (array, map) = match param {
            Param::TensorMap(map) => {
                let DriverMap { data_type, extents, strides, tile, swizzle, promotion } = DriverMap::of(map)?;
                let rank = extents.len();
                let (dynamic, size) =
                    map.dynamic.map_or((-1, 0), |(d, size)| (outermost(d, rank), plan.size(kernels, size)));
                let strides = if strides.is_empty() { list([0]) } else { list(strides) };
                let (extents, tile) = (list(extents), list(tile));
                let _ = writeln!(
                    maps,
                    "static const tensor_map map_{n}_{k}_{at} =\n    \
                     {{{data_type}, {rank}, {extents}, {strides}, {tile}, {swizzle}, {promotion}, {dynamic}, {size}}};"
                );
                (map.array.as_ref(), format!("&map_{n}_{k}_{at}"))
            }
            plain => (plain, "NULL".to_string()),
        };
        let (kind, index) = match array {
            Param::Workspace(index) => ("OF_WORKSPACE", *index),
            Param::Arg(index) => ("OF_ARGUMENTS", *index),
            Param::Size(size) => ("OF_SIZES", plan.size(kernels, *size)),
            Param::TensorMap(_) => ("OF_ARGUMENTS", 0),
        };
        let _ = writeln!(rows, "    {{{kind}, {index}, {map}}},");
    }
    if rows.is_empty() {
        rows += "    {OF_ARGUMENTS, 0, NULL},\n";
    }
    Ok(format!("{maps}static const parameter parameters_{n}_{k}[] = {{\n{rows}}};\n"))
}

/// A dimension counted from the innermost one.
fn outermost(dimension: usize, rank: usize) -> i64 {
    rank.checked_sub(dimension + 1).and_then(|n| i64::try_from(n).ok()).unwrap_or(0)
}

/// What the number of blocks in x, y and z follows from.
fn clips(kernels: &Kernels, kernel: &Kernel, plan: &Plan<'_>) -> String {
    let one = |follows: Option<Follows>| {
        list(follows.map_or([0; 3], |f| [plan.size(kernels, f.size) as u64, f.times.into(), f.per.into()]))
    };
    list(kernel.clips.0.map(one))
}

fn kernels(n: usize, placed: &Placed<'_>, plan: &Plan<'_>) -> String {
    let (offsets, _) = placed.workspace();
    let offsets = if offsets.is_empty() { list([0]) } else { list(offsets) };
    let mut out =
        format!("static const uint64_t workspace_{n}[] = {offsets};\nstatic const kernel kernels_{n}[] = {{\n");
    for (k, kernel) in placed.kernels().kernels.iter().enumerate() {
        let _ = writeln!(
            out,
            "    {{{}, {}, {}, {}, {}, {}, {}, {}, parameters_{n}_{k}, {}}},",
            names::c_literal(&kernel.entry),
            list(kernel.grid),
            list(kernel.block),
            list(kernel.cluster),
            kernel.shared_bytes,
            u8::from(kernel.persistent),
            u8::from(kernel.early),
            kernel.params.len(),
            clips(placed.kernels(), kernel, plan)
        );
    }
    out + "};\n\n"
}

fn row(n: usize, placed: &Placed<'_>) -> String {
    let kernels = placed.kernels();
    let (first, last) = devices(placed.chip);
    let (cubin, bytes, first_code, last_code) = match placed.code() {
        Some((cubin, _, (first, last))) => (format!("cubin_{n}"), cubin.bytes.len(), first, last),
        None => ("NULL".to_string(), 0, 0, 0),
    };
    format!(
        "    /* {} */\n    {{{}, {first}, {last}, {first_code}, {last_code}, {cubin}, {bytes}, ptx_{n}, {}, {}, workspace_{n}, {}, {}, kernels_{n}}},\n",
        kernels.target,
        placed.shape,
        kernels.ptx().len(),
        placed.workspace().1,
        list(kernels.args.iter().map(|arg| arg.align.max(1))),
        kernels.kernels.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_several_literals() {
        let text = format!("a\n\n{}é\nb", "x".repeat(LITERAL_BYTES - 1));
        let pieces: Vec<&str> = lines(&text).collect();
        assert_eq!(pieces.concat(), text);
        assert!(pieces.len() == 5 && pieces.iter().all(|piece| piece.len() <= LITERAL_BYTES), "{pieces:?}");
    }
}
