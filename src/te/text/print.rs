//! Tensor programs to text that parses back to the same program.

use crate::ir::{Block, BufferId, Expr, Func, IterKind, Stmt, Store, Var, print as ir_print, visit};
use crate::te::program::Reducer;
use std::collections::HashMap;

/// The program in te's text. [`super::parse`] returns the identical [`Func`] for every program that te made; of a
/// scheduled program this prints what each block computes, whatever the loops around it.
pub fn print(func: &Func) -> String {
    let mut out = format!("program {}\n", func.name);
    let written = visit::writes(&func.body);
    for id in func.params.iter().filter(|id| !written.contains(id)) {
        let b = func.buffer(*id);
        let shape: Vec<String> = b.shape.iter().map(|e| ir_print::index(func, e)).collect();
        let shape = if shape.is_empty() { String::new() } else { format!("[{}]", shape.join(", ")) };
        let values = b.values.map(|(low, end)| format!(" in {low}..{end}")).unwrap_or_default();
        out.push_str(&format!("  input {} {}{shape}{values}{}\n", b.name, b.dtype, storage(func, *id)));
    }
    for block in visit::blocks(&func.body) {
        if let [Stmt::Store(store)] = block.body.as_slice() {
            out.push_str(&statement(func, block, store));
        }
    }
    out
}

fn storage(func: &Func, id: BufferId) -> String {
    let b = func.buffer(id);
    let mut out = String::new();
    if let Some(strides) = &b.strides {
        let strides: Vec<String> = strides.iter().map(i64::to_string).collect();
        out.push_str(&format!(" strides [{}]", strides.join(", ")));
    }
    if b.align != 16 {
        out.push_str(&format!(" align {}", b.align));
    }
    out
}

fn statement(func: &Func, block: &Block, store: &Store) -> String {
    let names = iterator_names(func, block);
    let axes = |kind| {
        let of_kind = block.iters.iter().filter(|it| it.kind == kind);
        let text = of_kind.map(|it| format!("{} {}", names[&it.var], ir_print::index(func, &it.extent)));
        text.collect::<Vec<_>>().join(", ")
    };
    let buffer = func.buffer(store.buffer);
    let label = func.block_name(block.name);
    let label = if label == buffer.name { String::new() } else { format!("{label}: ") };
    let output = if func.params.contains(&store.buffer) { "output " } else { "" };
    let (reducer, value) = match reduction(block, store) {
        Some((r, value)) => (format!("{}({}) ", r.name(), axes(IterKind::Reduce)), value),
        None => (String::new(), &store.value),
    };
    let value = ir_print::expr_with(func, value, Some(buffer.dtype), &names);
    let (name, dtype, space) = (&buffer.name, buffer.dtype, axes(IterKind::Spatial));
    format!("  {label}{output}{name}[{space}] {dtype}{} = {reducer}{value}\n", storage(func, store.buffer))
}

/// Inside a block `i` is called `vi`; text says `i`.
fn iterator_names(func: &Func, block: &Block) -> HashMap<Var, String> {
    let name = |var: Var| {
        let name = func.var_name(var);
        name.strip_prefix('v').filter(|n| !n.is_empty()).unwrap_or(name).to_string()
    };
    block.iters.iter().map(|it| (it.var, name(it.var))).collect()
}

/// The reducer and the value that it combines, if the block's body is `B[..] = B[..] op VALUE`.
fn reduction<'f>(block: &Block, store: &'f Store) -> Option<(Reducer, &'f Expr)> {
    block.init.as_ref()?;
    let Expr::Bin(op, old, value) = &store.value else { return None };
    let own = matches!(old.as_ref(), Expr::Load { buffer, indices, .. } if *buffer == store.buffer && *indices == store.indices);
    let reducer = Reducer::ALL.into_iter().find(|r| r.op() == *op)?;
    own.then_some((reducer, value.as_ref()))
}
