//! Finds the nests that copy elements from registers to registers by permutations of bytes.

use crate::error::Result;
use crate::index::{POINTS, Points};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::permute;
use crate::ir::{BufferId, For, Func, Index, LoopKind, Stmt, Var, visit};
use crate::target::Target;
use std::collections::HashSet;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let held = permute::held(&kernel.func.body);
    let mut body = std::mem::take(&mut kernel.func.body);
    mark(&kernel.func, &held, &mut body, &mut Vec::new());
    kernel.func.body = body;
    Ok(())
}

/// Marks the outermost loop of each such nest. `around` are the unrolled loops around with their extents.
fn mark(func: &Func, held: &HashSet<BufferId>, body: &mut [Stmt], around: &mut Vec<(Var, i64)>) {
    for stmt in body {
        let before = around.len();
        if let Stmt::For(l) = stmt
            && l.kind == LoopKind::Unrolled
        {
            l.code.permutes = permutes(func, held, l, around);
            if l.code.permutes {
                continue;
            }
            around.extend(l.extent.as_int().map(|extent| (l.var, extent)));
        }
        visit::children_mut(stmt).into_iter().for_each(|child| mark(func, held, child, around));
        around.truncate(before);
    }
}

/// Whether a nest permutes bytes at all values of the loops around.
fn permutes(func: &Func, held: &HashSet<BufferId>, l: &For, around: &[(Var, i64)]) -> bool {
    let mentioned = |var: Var| {
        let mut found = false;
        visit::each_access(&l.body, &mut |_, indices| found |= indices.iter().any(|i| i.mentions(var)));
        found
    };
    let around: Vec<(Var, i64)> = around.iter().copied().filter(|(var, _)| mentioned(*var)).collect();
    let permuted = |point: &[(Var, i64)]| {
        let values = point.iter().map(|(var, value)| (*var, Index::Int(*value))).collect();
        permute::copied(func, held, l, &values).is_some()
    };
    Points::within(&around, POINTS / permute::MOST_ELEMENTS).is_some_and(|points| points.all(permuted))
}
