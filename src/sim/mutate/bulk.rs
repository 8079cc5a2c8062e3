//! What can be wrong with bulk copies, their slots, and what orders them.

use super::{Change, change, name};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BulkCopy, Elect, Index, IndexOp, Slot, Stmt, Sync, SyncKind, Way, print};

/// A copy that is missing, whose box lies elsewhere, or that goes to another slot or counts on another.
pub fn copies(kernel: &LoweredKernel, copy: &BulkCopy) -> Vec<Change> {
    let line = |c: &BulkCopy| print::stmts(&kernel.func, &[Stmt::Bulk(c.clone())]).trim().to_string();
    let text = line(copy);
    let mut out = vec![change("copy removed", format!("`{text}` removed"), Vec::new())];
    let mut became = |kind, new: BulkCopy| {
        out.push(change(kind, format!("`{text}` became `{}`", line(&new)), vec![Stmt::Bulk(new)]));
    };
    for n in 0..copy.coordinates.len() {
        for by in [-1, 1] {
            let mut new = copy.clone();
            new.coordinates[n] = new.coordinates[n].clone() + by;
            became("box moved", new);
        }
    }
    if let Some(index) = copy.indices.first().and_then(|i| next_slot(kernel, i)) {
        became("stage", BulkCopy { indices: vec![index], ..copy.clone() });
    }
    if let Way::Load { full, multicast: Some(_) } = &copy.way {
        became("multicast", BulkCopy { way: Way::Load { full: full.clone(), multicast: None }, ..copy.clone() });
    }
    if let Way::Load { full, multicast } = &copy.way
        && let Some(index) = next_slot(kernel, &full.index)
    {
        let full = Slot { barrier: full.barrier, index };
        became("stage", BulkCopy { way: Way::Load { full, multicast: *multicast }, ..copy.clone() });
    }
    out
}

/// What one thread runs, run by all, or by one of more or fewer warps.
pub fn elected(e: &Elect) -> Vec<Change> {
    let to = match e.body.first() {
        Some(Stmt::Sync(sync)) => format!(" to {}", name(sync)),
        _ => String::new(),
    };
    let what = format!("the election of one thread of {} warps{to}", e.warps);
    let warps = if e.warps == 1 { 2 } else { 1 };
    vec![
        change("election removed", format!("{what} removed"), e.body.clone()),
        change(
            "election changed",
            format!("{what} became one of {warps}"),
            vec![Stmt::Elect(Elect { warps, body: e.body.clone() })],
        ),
    ]
}

/// An arrival or a wait with other bytes, another phase or another slot.
pub fn arrivals(kernel: &LoweredKernel, sync: &Sync) -> Vec<Change> {
    let mut out = Vec::new();
    let mut became = |kind, how: &str, new: SyncKind| {
        out.push(change(
            kind,
            format!("{} {how}", name(sync)),
            vec![Stmt::Sync(Sync { kind: new, reason: sync.reason.clone() })],
        ));
    };
    match &sync.kind {
        SyncKind::Expect { slot, bytes } => {
            for more in [-16, 16] {
                let other = bytes.clone() + more;
                became(
                    "bytes",
                    &format!("of {} bytes more than are copied", more),
                    SyncKind::Expect { slot: slot.clone(), bytes: other },
                );
            }
        }
        SyncKind::Arrive { slot, blocks: Some(_) } => {
            became("arrival removed", "in its own block alone", SyncKind::Arrive { slot: slot.clone(), blocks: None });
        }
        SyncKind::Await { slot, phase } => {
            let other = phase.clone() + 1;
            became("phase", "of the other parity", SyncKind::Await { slot: slot.clone(), phase: other });
        }
        _ => {}
    }
    let mut moved = sync.kind.clone();
    if let Some(slot) = moved.slot_mut()
        && let Some(index) = next_slot(kernel, &slot.index)
    {
        slot.index = index;
        became("stage", "of the next stage", moved);
    }
    out
}

/// The index with the number of a slot of a ring one more; `None` where it has none.
pub fn next_slot(kernel: &LoweredKernel, index: &Index) -> Option<Index> {
    let ring = |n: i64| n > 1 && kernel.func.mbarriers.iter().any(|b| i64::from(b.slots) == n);
    let threads = kernel.thread_vars();
    let of_threads = |i: &Index| threads.iter().any(|(v, _)| i.mentions(*v));
    match index {
        Index::Bin(IndexOp::FloorMod, a, b) if b.as_int().is_some_and(ring) && !of_threads(a) => {
            Some(((**a).clone() + 1).floormod((**b).clone()))
        }
        Index::Bin(op, a, b) => match (next_slot(kernel, a), next_slot(kernel, b)) {
            (Some(a), _) => Some(Index::bin(*op, a, (**b).clone())),
            (None, Some(b)) => Some(Index::bin(*op, (**a).clone(), b)),
            (None, None) => None,
        },
        _ => None,
    }
}

/// Tensor maps with another swizzle or box.
pub fn maps(kernel: &LoweredKernel) -> Vec<(String, LoweredKernel)> {
    let mut out = Vec::new();
    for (n, map) in kernel.maps.iter().enumerate() {
        let mut became = |what: &str, change: &dyn Fn(&mut crate::ir::lowered::TensorMap)| {
            let mut damaged = kernel.clone();
            change(&mut damaged.maps[n]);
            out.push((format!("map {n} {what}"), damaged));
        };
        if map.swizzle > 0 {
            became("without swizzle", &|m| m.swizzle = 0);
        }
        if let Some(d) = map.tile.iter().position(|t| *t > 1) {
            became("with a smaller box", &|m| m.tile[d] -= 1);
            became("with a larger box", &|m| m.tile[d] += 1);
        }
    }
    out
}
