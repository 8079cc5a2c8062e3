//! What can be wrong with mbarriers: the number of arrivals that end a phase, and arrivals that come too early.

use super::{Change, change};
use crate::ir::{Stmt, Sync, SyncKind};
use crate::lower::LoweredKernel;

/// A list in which the threads of a statement arrive in front of what stands before it, where that is not synchronisation:
/// the slot is filled, or free, too early.
pub fn early(body: &[Stmt], n: usize) -> Option<Change> {
    let reason = arrival(body.get(n + 1)?)?;
    if matches!(body[n], Stmt::Sync(_)) || arrival(&body[n]).is_some() {
        return None;
    }
    let mut early = body.to_vec();
    early.swap(n, n + 1);
    Some(change("arrival moved", format!("mbarrier.arrive ({reason}) moved up"), early))
}

/// Why a statement arrives, if it does nothing else.
fn arrival(stmt: &Stmt) -> Option<&str> {
    let body = match stmt {
        Stmt::Sync(Sync { kind: SyncKind::Arrive { .. }, reason }) => return Some(reason),
        Stmt::Elect(e) => &e.body,
        Stmt::If(i) => &i.body,
        _ => return None,
    };
    let meets = |s: &Stmt| matches!(s, Stmt::Sync(s) if s.kind.is_meeting());
    let alone = body.iter().all(|s| meets(s) || arrival(s).is_some());
    body.iter().find_map(arrival).filter(|_| alone)
}

/// One arrival more or less in a phase.
pub fn counts(kernel: &LoweredKernel) -> Vec<(String, LoweredKernel)> {
    let one = |n: usize, by: i64| {
        let mut damaged = kernel.clone();
        let array = &mut damaged.func.mbarriers[n];
        let was = array.arrivals;
        array.arrivals = u32::try_from(i64::from(was) + by).ok().filter(|a| *a > 0)?;
        Some((format!("phases of {} end with {} arrivals, not {was}", array.name, array.arrivals), damaged))
    };
    (0..kernel.func.mbarriers.len()).flat_map(|n| [one(n, -1), one(n, 1)]).flatten().collect()
}
