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
        let pairs = plan.arguments.iter().zip(shapes);
        let fields: Vec<String> = pairs.map(|(a, shape)| format!("{}: {}", a.identifier, list(shape))).collect();
        format!("    Shapes {{ {} }},\n", fields.join(", "))
    };
    plan.shapes.iter().map(one).collect()
}

/// Something of each argument, between commas.
pub(super) fn joined(plan: &Plan<'_>, of: impl Fn(&Argument) -> String) -> String {
    plan.arguments.iter().map(of).collect::<Vec<_>>().join(", ")
}
