//! Synchronisation of a whole warp that only a part of its lanes reaches.

use super::{Change, change, name};
use crate::ir::{Axis, CmpOp, Cond, Func, If, Index, Stmt, Sync, SyncKind, Var};

/// The instructions that PTX demands all lanes of a warp to execute together, under a condition that odd lanes alone meet.
pub fn divergent(func: &Func, sync: &Sync) -> Option<Change> {
    let of_a_warp = matches!(
        sync.kind,
        SyncKind::Block
            | SyncKind::Warp
            | SyncKind::Warpgroup
            | SyncKind::Cluster
            | SyncKind::ClusterRelaxed
            | SyncKind::ProductFence
            | SyncKind::ProductCommit
            | SyncKind::ProductWait { .. }
    );
    let thread = func.vars.iter().rposition(|n| n == Axis::ThreadX.name()).filter(|_| of_a_warp)?;
    let odd = Cond::cmp(CmpOp::Eq, Index::Var(Var(thread as u32)).floormod(2), 1);
    let body = vec![Stmt::Sync(sync.clone())];
    Some(change("divergence", format!("{} of odd lanes only", name(sync)), vec![Stmt::If(If { cond: odd, body })]))
}
