//! What can be wrong with mbarriers: the number of arrivals that end a phase, and arrivals that come too early.

use super::{Change, change};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{Func, Scope, Stmt, Sync, SyncKind, visit};

/// A list in which the threads of a statement arrive in front of what precedes it, where that is not synchronisation:
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

/// A list in which a slot is left in front of what reads it last, by the lane that arrives for its warp, or by each thread.
pub fn left_early(func: &Func, body: &[Stmt], n: usize) -> Option<Change> {
    let reason = arrival(body.get(n)?)?;
    // The fence of what was read and the warp's barrier go along.
    let beside = |s: &&Stmt| matches!(s, Stmt::Sync(s) if matches!(s.kind, SyncKind::Warp | SyncKind::ProxyFence));
    let from = n - body[..n].iter().rev().take_while(beside).count();
    let shared =
        |s: &Stmt| visit::reads(std::slice::from_ref(s)).iter().any(|b| func.buffer(*b).scope == Scope::Shared);
    let last = (0..from).rev().take_while(|m| !matches!(body[*m], Stmt::Sync(_))).find(|m| shared(&body[*m]))?;
    // In front of its neighbour `early` moves it.
    if from == n && last + 1 == from {
        return None;
    }
    let (before, rest) = (&body[..last], &body[last..from]);
    let early = [before, &body[from..=n], rest, &body[n + 1..]].concat();
    Some(change("arrival moved", format!("mbarrier.arrive ({reason}) moved up before the last read"), early))
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

/// One arrival more or less in a phase, and the arrivals of the next array of mbarriers: those of `empty` for those of `full`.
pub fn counts(kernel: &LoweredKernel) -> Vec<(String, LoweredKernel)> {
    let one = |n: usize, by: i64| {
        let mut damaged = kernel.clone();
        let array = &mut damaged.func.mbarriers[n];
        let was = array.arrivals;
        array.arrivals = u32::try_from(i64::from(was) + by).ok().filter(|a| *a > 0)?;
        Some((format!("phases of {} end with {} arrivals, not {was}", array.name, array.arrivals), damaged))
    };
    let exchanged = |n: usize| {
        let mut damaged = kernel.clone();
        let [a, b] = damaged.func.mbarriers.get_mut(n..n + 2)? else { return None };
        std::mem::swap(&mut a.arrivals, &mut b.arrivals);
        let what = format!("phases of {} end with the arrivals of {}, and those with its own", a.name, b.name);
        // A change by one is a mutant already.
        (a.arrivals.abs_diff(b.arrivals) > 1).then_some((what, damaged))
    };
    let all = 0..kernel.func.mbarriers.len();
    all.flat_map(|n| [one(n, -1), one(n, 1), exchanged(n)]).flatten().collect()
}
