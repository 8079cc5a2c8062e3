//! Reading a program of te as definitions: each buffer is a function of its indices.

use super::joint::Joint;
use crate::error::{Code, Error, Result};
use crate::ir::reduction::{self, Combiner, Reduction};
use crate::ir::{BinOp, Block, BufferId, Expr, Func, Index, IterKind, Store, Var, visit};
use std::collections::HashMap;
use std::sync::Arc;

/// The one block that defines a buffer.
#[derive(Debug, Clone)]
pub(super) struct Definition<'a> {
    /// The iterators that represent the buffer's indices, in order.
    pub spatial: Vec<Var>,
    /// The iterators that are combined over, with extents.
    pub reduce: Vec<(Var, i64)>,
    /// How values are combined, and what with.
    pub combine: Option<(BinOp, &'a Expr)>,
    /// The element, or the value to combine.
    pub value: &'a Expr,
    /// What it is combined with together, and which component of that it is; `value` then says nothing.
    pub joint: Option<(Arc<Joint>, usize)>,
}

/// The definitions of all buffers that a program writes.
pub(super) fn of(func: &Func) -> Result<HashMap<BufferId, Definition<'_>>> {
    let mut out = HashMap::new();
    for block in visit::blocks(&func.body) {
        let definitions = read(func, block).ok_or_else(|| {
            let name = func.blocks.get(block.name.0 as usize).map_or("?", String::as_str);
            let message = format!("block {name} is not of the form that te writes: it has no reference");
            Error::input(Code::ReferenceForm, message).help("give the program before its schedule")
        })?;
        for (buffer, definition) in definitions {
            if out.insert(buffer, definition).is_some() {
                let message =
                    format!("buffer {} is written by two blocks: it has no reference", func.buffer(buffer).name);
                return Err(Error::input(Code::ReferenceForm, message).help("give the program before its schedule"));
            }
        }
    }
    Ok(out)
}

fn read<'a>(func: &Func, block: &'a Block) -> Option<Vec<(BufferId, Definition<'a>)>> {
    let stores = reduction::stores(&block.body)?;
    let kind = |kind| block.iters.iter().filter(move |i| i.kind == kind);
    let spatial: Vec<Var> = kind(IterKind::Spatial).map(|i| i.var).collect();
    let reduce: Option<Vec<(Var, i64)>> = kind(IterKind::Reduce).map(|i| Some((i.var, i.extent.as_int()?))).collect();
    let reduce = reduce?;
    for store in &stores {
        let indices: Option<Vec<Var>> = store.indices.iter().map(Index::as_var).collect();
        if indices? != spatial || !block.predicate.is_true() {
            return None;
        }
    }
    let define =
        |value, combine, joint| Definition { spatial: spatial.clone(), reduce: reduce.clone(), combine, value, joint };
    let Some(init) = &block.init else {
        // Stores behind each other could read what was stored; te makes one.
        let [store] = stores[..] else { return None };
        return Some(vec![(store.buffer, define(&store.value, None, None))]);
    };
    let inits = reduction::stores(init).filter(|all| all.len() == stores.len())?;
    let (mut out, mut at) = (Vec::new(), 0);
    let whole = Reduction::of(func, block);
    let combiners = whole.as_ref().map_or(vec![None; stores.len()], |r| r.combiners.iter().map(Some).collect());
    for combiner in combiners {
        match (combiner, &whole) {
            (Some(Combiner::Tuple(t)), Some(whole)) => {
                let end = at + t.components();
                let first: Vec<Expr> = inits[at..end].iter().map(|s| s.value.clone()).collect();
                let buffers = stores[at..end].iter().map(|s| s.buffer).collect();
                let terms = whole.terms[at..end].to_vec();
                let joint = Arc::new(Joint::new(t, buffers, first, terms));
                for (n, store) in stores[at..end].iter().enumerate() {
                    out.push((store.buffer, define(&store.value, None, Some((joint.clone(), n)))));
                }
                at = end;
            }
            _ => {
                let (op, value) = combined(stores[at])?;
                out.push((stores[at].buffer, define(value, Some((op, &inits[at].value)), None)));
                at += 1;
            }
        }
    }
    Some(out)
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
