//! The cluster exit check: whether a block may exit while other blocks of its cluster still access its shared memory.
//!
//! Blocks of a cluster access each other's shared memory by arrivals at mbarriers, multicast copies and stores. No such access may
//! target a block that has exited. A block that has waited for every phase that other blocks arrive at, or load for, needs no
//! cluster barrier before its exit. Where a phase has no wait, or the number of phases is not constant (persistent blocks), the
//! kernel ends with a cluster barrier.

use super::LoweredKernel;
use super::threads::LANES;
use crate::ir::{Cond, Elect, LoopKind, Slot, Stmt, Sync, SyncKind, Var, Way, visit};
use std::collections::{BTreeMap, HashMap};

/// Arrivals and waits that are followed one by one; more are not.
const FOLLOWED: u32 = 1 << 16;

/// Whether other blocks reach a block's shared memory.
pub fn reach(body: &[Stmt]) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| match s {
        Stmt::Bulk(copy) => found |= matches!(copy.way, Way::Load { multicast: Some(_), .. }),
        Stmt::Sync(Sync { kind: SyncKind::Arrive { blocks, .. }, .. }) => found |= blocks.is_some(),
        _ => {}
    });
    found || store(body) || !signalled(body).is_empty()
}

/// Whether threads store to the shared memory of other blocks, such that a barrier of the cluster orders it.
pub fn store(body: &[Stmt]) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| {
        found |= matches!(s, Stmt::Store(s) if s.remote.as_ref().is_some_and(|to| to.full.is_none()));
    });
    found
}

/// The mbarriers that asynchronous stores to other blocks signal.
pub fn signalled(body: &[Stmt]) -> Vec<Slot> {
    let mut out = Vec::new();
    visit::walk(body, &mut |s| {
        if let Stmt::Store(s) = s {
            out.extend(s.remote.as_ref().and_then(|to| to.full.clone()));
        }
    });
    out
}

/// Whether the cluster meets behind all of it: in a list, or where a condition chooses between lists, in each of them.
pub fn meet_last(body: &[Stmt]) -> bool {
    let meets = |s: &Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Cluster | SyncKind::ClusterRelaxed, .. }));
    let behind = body.iter().rposition(meets).map_or(0, |at| at + 1);
    let mut reaching = body[behind..].iter().filter(|s| reach(std::slice::from_ref(s)));
    reaching.all(|s| matches!(s, Stmt::If(i) if meet_last(&i.body)))
}

/// Whether each block waits for all of it: for every phase of each mbarrier that others arrive at, or load for.
pub fn are_awaited(kernel: &LoweredKernel) -> bool {
    let warps = kernel.warps();
    let mut followed =
        Followed { cluster: kernel.cluster(), warps, values: HashMap::new(), slots: BTreeMap::new(), left: FOLLOWED };
    if store(&kernel.func.body) || followed.list(&kernel.func.body, None).is_none() {
        return false;
    }
    // The bytes of the asynchronous stores arrive in the phases that their block expects them in.
    for full in signalled(&kernel.func.body) {
        match followed.slot(&full) {
            Some(slot) => slot.reached = true,
            None => return false,
        }
    }
    let of = |barrier: u32| kernel.func.mbarriers.get(barrier as usize).map_or(0, |array| u64::from(array.arrivals));
    followed.slots.iter().filter(|(_, slot)| slot.reached).all(|((barrier, _), slot)| {
        let (arrivals, phases) = (of(*barrier), u64::try_from(slot.awaited).unwrap_or(0));
        arrivals > 0 && slot.arrivals > 0 && slot.arrivals == phases * arrivals
    })
}

/// An mbarrier of a block.
#[derive(Default)]
struct Seen {
    /// What arrives at it, from whichever block.
    arrivals: u64,
    /// The phases up to the last one that is waited for.
    awaited: i64,
    /// Other blocks arrive at it, or load for it.
    reached: bool,
}

/// The runs of a kernel's statements, as far as they are the same in all blocks.
struct Followed {
    cluster: u32,
    /// Warps that run what is followed.
    warps: u32,
    values: HashMap<Var, i64>,
    slots: BTreeMap<(u32, i64), Seen>,
    left: u32,
}

impl Followed {
    /// `None` where blocks, or warps, may differ, or there is too much.
    fn list(&mut self, body: &[Stmt], elected: Option<u32>) -> Option<()> {
        body.iter().filter(|s| counts(s)).try_for_each(|s| self.stmt(s, elected))
    }

    fn stmt(&mut self, stmt: &Stmt, elected: Option<u32>) -> Option<()> {
        match stmt {
            Stmt::For(l) => {
                let serial = matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled);
                for n in 0..l.extent.as_int().filter(|_| serial)? {
                    self.values.insert(l.var, n);
                    self.list(&l.body, elected)?;
                }
                self.values.remove(&l.var);
                Some(())
            }
            Stmt::If(i) => {
                if self.holds(&i.cond)? {
                    self.list(&i.body, elected)
                } else {
                    Some(())
                }
            }
            Stmt::Block(b) => self.list(&b.body, elected),
            Stmt::Elect(Elect { warps, body }) => self.list(body, Some(*warps)),
            Stmt::Role(r) => {
                let all = std::mem::replace(&mut self.warps, r.warps);
                self.list(&r.body, elected)?;
                self.warps = all;
                Some(())
            }
            Stmt::Sync(Sync { kind, .. }) => self.sync(kind, elected),
            Stmt::Bulk(copy) => match &copy.way {
                Way::Load { full, multicast } => {
                    self.slot(full)?.reached |= multicast.is_some();
                    Some(())
                }
                Way::Store => Some(()),
            },
            _ => Some(()),
        }
    }

    fn sync(&mut self, kind: &SyncKind, elected: Option<u32>) -> Option<()> {
        // One thread of every so many warps, or all of them.
        let threads = elected.map_or(u64::from(self.warps) * LANES as u64, |n| u64::from(self.warps.div_ceil(n)));
        let cluster = self.cluster;
        match kind {
            SyncKind::Expect { slot, .. } | SyncKind::Arrive { slot, blocks: None } => {
                self.slot(slot)?.arrivals += threads
            }
            SyncKind::Arrive { slot, blocks: Some(n) } if *n == cluster => {
                let slot = self.slot(slot)?;
                slot.arrivals += threads * u64::from(cluster);
                slot.reached = true;
            }
            SyncKind::Arrive { .. } => return None,
            SyncKind::Await { slot, phase } => {
                let phase = phase.eval(&|v| self.values.get(&v).copied())?;
                let slot = self.slot(slot)?;
                slot.awaited = slot.awaited.max(phase + 1);
            }
            _ => {}
        }
        Some(())
    }

    fn slot(&mut self, slot: &Slot) -> Option<&mut Seen> {
        self.left = self.left.checked_sub(1)?;
        let index = slot.index.eval(&|v| self.values.get(&v).copied())?;
        Some(self.slots.entry((slot.barrier, index)).or_default())
    }

    fn holds(&self, cond: &Cond) -> Option<bool> {
        cond.eval(&|v| self.values.get(&v).copied())
    }
}

/// Whether a statement has to do with phases.
fn counts(stmt: &Stmt) -> bool {
    let mut found = false;
    visit::walk(std::slice::from_ref(stmt), &mut |s| match s {
        Stmt::Bulk(copy) => found |= copy.way != Way::Store,
        Stmt::Sync(Sync { kind, .. }) => {
            found |= matches!(kind, SyncKind::Expect { .. } | SyncKind::Arrive { .. } | SyncKind::Await { .. });
        }
        _ => {}
    });
    found
}
