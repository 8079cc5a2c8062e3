//! Reading a program of te as definitions: each buffer is a function of its indices.

use crate::error::{Error, Result};
use crate::ir::{BinOp, Block, BufferId, Expr, Func, Index, IterKind, Stmt, Store, Var, visit};
use std::collections::HashMap;

/// The one block that defines a buffer.
#[derive(Debug, Clone)]
pub(super) struct Definition<'a> {
    /// The iterators that stand for the buffer's indices, in order.
    pub spatial: Vec<Var>,
    /// The iterators that are combined over, with extents.
    pub reduce: Vec<(Var, i64)>,
    /// How values are combined, and what with.
    pub combine: Option<(BinOp, &'a Expr)>,
    /// The element, or the value to combine.
    pub value: &'a Expr,
}

/// The definitions of all buffers that a program writes.
pub(super) fn of(func: &Func) -> Result<HashMap<BufferId, Definition<'_>>> {
    let mut out = HashMap::new();
    for block in visit::blocks(&func.body) {
        let (buffer, definition) = read(block).ok_or_else(|| {
            let name = func.blocks.get(block.name.0 as usize).map_or("?", String::as_str);
            let message = format!("block {name} is not of the form that te writes: it has no reference");
            Error::input("reference.form", message).help("give the program before its schedule")
        })?;
        if out.insert(buffer, definition).is_some() {
            let message = format!("buffer {} is written by two blocks: it has no reference", func.buffer(buffer).name);
            return Err(Error::input("reference.form", message).help("give the program before its schedule"));
        }
    }
    Ok(out)
}

fn read(block: &Block) -> Option<(BufferId, Definition<'_>)> {
    let [Stmt::Store(store)] = block.body.as_slice() else { return None };
    let kind = |kind| block.iters.iter().filter(move |i| i.kind == kind);
    let spatial: Vec<Var> = kind(IterKind::Spatial).map(|i| i.var).collect();
    let reduce: Option<Vec<(Var, i64)>> = kind(IterKind::Reduce).map(|i| Some((i.var, i.extent.as_int()?))).collect();
    let indices: Option<Vec<Var>> = store.indices.iter().map(Index::as_var).collect();
    if indices? != spatial || !block.predicate.is_true() {
        return None;
    }
    let (combine, value) = match &block.init {
        None => (None, &store.value),
        Some(init) => {
            let [Stmt::Store(first)] = init.as_slice() else { return None };
            let (op, value) = combined(store)?;
            (Some((op, &first.value)), value)
        }
    };
    Some((store.buffer, Definition { spatial, reduce: reduce?, combine, value }))
}

/// `X[..] = X[..] op value`, either way round.
fn combined(store: &Store) -> Option<(BinOp, &Expr)> {
    let Expr::Bin(op, a, b) = &store.value else { return None };
    let own = |e: &Expr| matches!(e, Expr::Load { buffer, indices, .. } if *buffer == store.buffer && *indices == store.indices);
    let ordered = matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max);
    match (own(a), own(b)) {
        (true, false) if ordered => Some((*op, b)),
        (false, true) if ordered => Some((*op, a)),
        _ => None,
    }
}
