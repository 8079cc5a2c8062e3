//! Writes blocks out: iterators become their bindings, the predicate and the init become conditions. The block stays as
//! a label, so that errors, barriers and the PTX can name the statement.

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::{Block, Cond, If, IterKind, Stmt, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = visit::rewrite(body, &mut |s| match s {
        Stmt::Block(b) => vec![Stmt::Block(label(b))],
        other => vec![other],
    });
    Ok(())
}

fn label(block: Block) -> Block {
    let map = block.iters.iter().map(|i| (i.var, i.binding.clone())).collect();
    let first = block
        .iters
        .iter()
        .filter(|i| i.kind == IterKind::Reduce)
        .fold(Cond::TRUE, |all, i| all.and(Cond::eq(i.binding.clone(), 0)));
    let mut inside = Vec::new();
    if let Some(init) = block.init {
        inside.extend(guarded(first, visit::subst_body(init, &map)));
    }
    inside.extend(visit::subst_body(block.body, &map));
    Block { iters: Vec::new(), predicate: Cond::TRUE, init: None, body: guarded(block.predicate, inside), ..block }
}

/// The statements under a condition, or as they are where it always holds.
pub fn guarded(cond: Cond, body: Vec<Stmt>) -> Vec<Stmt> {
    if cond.is_true() { body } else { vec![Stmt::If(If { cond, body })] }
}
