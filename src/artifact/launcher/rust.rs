//! Text that both launchers in Rust need: shapes as arrays, lists, and tables of units.

use super::plan::{Argument, Plan, Shapes};

/// `[1, 2]`.
pub(super) fn list(numbers: impl IntoIterator<Item = impl ToString>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(|n| n.to_string()).collect();
    format!("[{}]", numbers.join(", "))
}

/// The fields of `struct Shapes`.
pub(super) fn fields(plan: &Plan<'_>) -> String {
    let field =
        |a: &Argument| format!("    /// Of the argument `{}`.\n    pub {}: [i64; {}],\n", a.name, a.identifier, a.rank);
    plan.arguments.iter().map(field).collect()
}

/// The elements of `SHAPES`.
pub(super) fn shapes(plan: &Plan<'_>) -> String {
    let one = |shapes: &Shapes| {
        let pairs = plan.arguments.iter().zip(&shapes.extents);
        let fields: Vec<String> = pairs.map(|(a, shape)| format!("{}: {}", a.identifier, list(shape))).collect();
        format!("    Shapes {{ {} }},\n", fields.join(", "))
    };
    plan.shapes.iter().map(one).collect()
}

/// The parameters of a launch that state the dynamic sizes, each a line with this indent.
pub(super) fn size_parameters(plan: &Plan<'_>, indent: &str) -> String {
    plan.sizes.iter().map(|size| format!("{indent}{}: i64,\n", size.identifier)).collect()
}

/// The elements of `RANGES`: for each shape the least and the largest value of each size, and what a value is a multiple of.
pub(super) fn ranges(plan: &Plan<'_>) -> String {
    let one = |shapes: &Shapes| format!("    {},\n", list(shapes.ranges.iter().map(|r| format!("{:?}", r))));
    plan.shapes.iter().map(one).collect()
}

/// The lines of `sizes_of`: where shapes state each size, and the extents that have it.
pub(super) struct SizeLines {
    pub(super) reads: String,
    pub(super) binding: &'static str,
    pub(super) writes: String,
}

impl SizeLines {
    pub(super) fn of(plan: &Plan<'_>) -> SizeLines {
        let with = |size: usize| plan.arguments.iter().find(move |a| a.size == Some(size)).map(|a| &a.identifier);
        let reads = (0..plan.sizes.len()).filter_map(with).map(|a| format!("given.{a}[0]"));
        let dynamic = plan.arguments.iter().filter_map(|a| Some((&a.identifier, a.size?)));
        let writes = dynamic.map(|(a, size)| format!("    known.{a}[0] = sizes[{size}];\n"));
        let binding = if plan.sizes.is_empty() { "let known" } else { "let mut known" };
        SizeLines { reads: list(reads), binding, writes: writes.collect() }
    }
}

/// Something of each argument, between commas.
pub(super) fn joined(plan: &Plan<'_>, of: impl Fn(&Argument) -> String) -> String {
    plan.arguments.iter().map(of).collect::<Vec<_>>().join(", ")
}
