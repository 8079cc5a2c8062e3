//! Indices that are data: `T[X[i], j]`.

use super::super::at;
use super::super::syntax::Node;
use super::Names;
use crate::error::{Code, Error, Result};
use crate::ir::{BufferId, Expr, Index, Var, print, typing};
use std::ops::Range;

/// A datum in an index.
pub(super) struct Datum {
    /// The variable that represents it, less its least value.
    pub var: Var,
    pub low: i64,
    pub extent: i64,
    pub value: Expr,
    /// The program states its values.
    is_stated: bool,
    span: Range<usize>,
}

impl Names<'_> {
    /// A datum as an index.
    pub(super) fn datum_index(&self, node: &Node, data: &mut Option<Vec<Datum>>) -> Result<Index> {
        let (value, dtype) = self.datum(node, None)?;
        let Some(all) = typing::gather_range(dtype) else {
            let error = at(Code::TeIndex, node.span.clone(), format!("an index is an integer, but this is {dtype}"));
            return Err(error.help("convert it: s32(..)"));
        };
        let buffer = loaded(&value).map(|b| self.func.buffer(b));
        let stated = buffer.and_then(|b| b.values);
        let (low, extent) = stated.map_or(all, |(low, end)| (low, end - low));
        let count = self.gathered.borrow().len();
        let var = Var((self.func.vars.len() + count) as u32);
        self.gathered.borrow_mut().push(buffer.map_or_else(|| format!("datum_{count}"), |b| b.name.clone()));
        let datum = Datum { var, low, extent, value, is_stated: stated.is_some(), span: node.span.clone() };
        data.get_or_insert_default().push(datum);
        Ok(Index::Var(var) + low)
    }

    /// Where an index is a datum of which nothing is known, that is what is wrong.
    pub(super) fn unknown_values(&self, error: Error, name: &str, indices: &[Index], data: &[Datum]) -> Error {
        let unknown = |d: &&Datum| !d.is_stated && indices.iter().any(|i| i.mentions(d.var));
        let Some(d) = data.iter().find(unknown) else { return error };
        let (text, own) = (print::expr(self.func, &d.value), "input X s32[..] in 0..1000");
        let help = match loaded(&d.value).filter(|b| self.func.params.contains(b)) {
            Some(buffer) => {
                let b = self.func.buffer(buffer);
                let (dim, end) = (0..indices.len())
                    .find(|n| indices[*n].mentions(d.var))
                    .and_then(|n| {
                        Some((n, self.func.find_buffer(name).map(|b| self.func.buffer(b))?.shape[n].as_int()?))
                    })
                    .unwrap_or((0, 0));
                let shape: Vec<String> = b.shape.iter().map(|e| print::index(self.func, e)).collect();
                let shape = if shape.is_empty() { String::new() } else { format!("[{}]", shape.join(", ")) };
                format!(
                    "state them: `input {} {}{shape} in 0..{end}`, the elements of dimension {dim} of {name}",
                    b.name, b.dtype
                )
            }
            _ => format!(
                "bound it: `min(max({text}, 0), 999)`, or take it from an input whose values are stated: `{own}`"
            ),
        };
        at(Code::TeGather, d.span.clone(), format!("this is an index of {name}, but its values are not known"))
            .help(help)
    }
}

/// The buffer of which a datum is an element, perhaps at an index that is a datum itself.
fn loaded(value: &Expr) -> Option<BufferId> {
    match value {
        Expr::Load { buffer, .. } => Some(*buffer),
        Expr::Gather { value, .. } => loaded(value),
        _ => None,
    }
}
