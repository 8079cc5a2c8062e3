//! Tensor programs to text that parses back to the same program.

use crate::ir::reducer::TupleReducer;
use crate::ir::reduction::{self, Combiner, Reduction};
use crate::ir::{Block, Buffer, BufferId, Expr, Func, Iter, IterKind, Store, Var, print as ir_print, visit};
use crate::te::program::Reducer;
use std::collections::HashMap;

/// The program in te's text. [`super::parse`] returns the identical [`Func`] for every program that te made; of a
/// scheduled program this prints what each block computes, whatever the loops around it.
pub fn print(func: &Func) -> String {
    let mut out = format!("program {}\n", func.name);
    func.sizes.iter().for_each(|size| out.push_str(&format!("  {}\n", size.size.text())));
    let written = visit::writes(&func.body);
    for id in func.params.iter().filter(|id| !written.contains(id)) {
        let b = func.buffer(*id);
        let shape: Vec<String> = b.shape.iter().map(|e| func.extent_text(e)).collect();
        let shape = if shape.is_empty() { String::new() } else { format!("[{}]", shape.join(", ")) };
        let values = b.values.map(|(low, end)| format!(" in {low}..{end}")).unwrap_or_default();
        out.push_str(&format!("  input {} {}{shape}{values}{}\n", b.name, b.dtype, storage(func, *id)));
    }
    func.reducers.iter().for_each(|r| out.push_str(&reducer(r)));
    for block in visit::blocks(&func.body) {
        if let Some(text) = several(func, block) {
            out.push_str(&text);
        } else if let Some(stores) = reduction::stores(&block.body) {
            stores.into_iter().for_each(|store| out.push_str(&statement(func, block, store)));
        }
    }
    out
}

/// The statement that makes a reducer of tuples.
fn reducer(r: &TupleReducer) -> String {
    let (numbers, combine) = r.parts();
    let (left, right) = numbers.buffers.split_at(r.components());
    let tuple = |parts: Vec<String>| format!("({})", parts.join(", "));
    let values = |all: &[Expr]| {
        let one = |(e, b): (&Expr, &Buffer)| ir_print::expr_with(numbers, e, Some(b.dtype), &HashMap::new());
        tuple(all.iter().zip(left).map(one).collect())
    };
    let components = tuple(left.iter().map(|b| format!("{} {}", b.name, b.dtype)).collect());
    let others = tuple(right.iter().map(|b| b.name.clone()).collect());
    format!("  reducer {}{components} with {others} from {} = {}\n", r.name(), values(r.neutral()), values(combine))
}

/// The statement of a block that reduces several buffers, or one by a reducer that the program states.
fn several(func: &Func, block: &Block) -> Option<String> {
    let reduction = Reduction::of(func, block).filter(|_| block.init.is_some())?;
    if matches!(reduction.combiners.as_slice(), [Combiner::Op(_)]) {
        return None;
    }
    let names = iterator_names(func, block);
    let (mut targets, mut values, mut at) = (Vec::new(), Vec::new(), 0);
    for combiner in &reduction.combiners {
        // The statement has components in their own order.
        let (name, order) = match combiner {
            Combiner::Op(op) => (Reducer::ALL.into_iter().find(|r| r.op() == *op)?.name(), vec![0]),
            Combiner::Tuple(t) => {
                (t.name(), (0..t.components()).map(|c| t.order().iter().position(|o| *o == c)).collect::<Option<_>>()?)
            }
        };
        let own: Vec<usize> = order.iter().map(|n| at + n).collect();
        at += own.len();
        let value = |n: &usize| {
            let dtype = func.buffer(reduction.stores[*n].buffer).dtype;
            ir_print::expr_with(func, &reduction.terms[*n], Some(dtype), &names)
        };
        let all: Vec<String> = own.iter().map(value).collect();
        let tuple = matches!(combiner, Combiner::Tuple(_));
        let all = if tuple { format!("({})", all.join(", ")) } else { all.concat() };
        let over = axes(func, block, &names, IterKind::Reduce, values.is_empty());
        values.push(format!("{name}({over}) {all}"));
        for store in own.iter().map(|n| &reduction.stores[*n]) {
            let buffer = func.buffer(store.buffer);
            let output = if func.params.contains(&store.buffer) { "output " } else { "" };
            let space = axes(func, block, &names, IterKind::Spatial, targets.is_empty());
            targets.push(format!("{output}{}[{space}] {}{}", buffer.name, buffer.dtype, storage(func, store.buffer)));
        }
    }
    let label = func.block_name(block.name);
    let first = targets.first()?.trim_start_matches("output ");
    let own = first.split('[').next() == Some(label);
    let label = if own { String::new() } else { format!("{label}: ") };
    Some(format!("  {label}{} = {}\n", targets.join(", "), values.join(", ")))
}

/// The iterators of a kind, with their extents or without.
fn axes(func: &Func, block: &Block, names: &HashMap<Var, String>, kind: IterKind, extents: bool) -> String {
    let one = |it: &Iter| match extents {
        true => format!("{} {}", names[&it.var], func.extent_text(&it.extent)),
        false => names[&it.var].clone(),
    };
    block.iters.iter().filter(|it| it.kind == kind).map(one).collect::<Vec<_>>().join(", ")
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
    let axes = |kind| axes(func, block, &names, kind, true);
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
