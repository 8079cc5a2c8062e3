//! The walk over a kernel that finds where synchronisation is needed between accesses.
//!
//! The walk keeps the pending accesses: no synchronisation orders them before the next statement yet. If the statement depends on one
//! of them, what orders the two is placed before it. A loop is walked with the accesses that its own last iteration leaves
//! pending, so dependences between iterations are seen. Where only accesses before the loop need one more barrier
//! inside, the barrier is placed before the loop instead.

use super::conflict::{By, Level, Sites};
use super::pending::{Flight, Pending, Settled, Step};
use super::{Item, Kind};
use crate::ir::{Elect, Stmt, SyncKind, Var};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The synchronisation before a statement: waits, a fence, a barrier, in this order.
#[derive(Debug, Clone)]
pub struct Placed {
    pub before: usize,
    commit: bool,
    wait: Option<(u32, String)>,
    /// A wait for bulk stores, by one thread of so many warps.
    stored: Option<(u32, u32, String)>,
    fence: Option<String>,
    meet: Option<(Level, String)>,
}

impl Placed {
    /// As statements.
    pub fn statements(self) -> impl Iterator<Item = Stmt> {
        let stored = self.stored.map(|(groups, warps, reason)| {
            let wait = SyncKind::BulkWait { groups, read: true }.because(reason);
            Stmt::Elect(Elect { warps, body: vec![Stmt::Sync(wait)] })
        });
        let commit = self.commit.then(|| SyncKind::Commit.because("copies that a later wait covers"));
        let wait = self.wait.map(|(groups, reason)| SyncKind::Wait { groups }.because(reason));
        let fence = self.fence.map(|reason| SyncKind::ProxyFence.because(reason));
        let meet = self.meet.map(|(level, reason)| match level {
            Level::Warp => SyncKind::Warp.because(reason),
            Level::Group => SyncKind::Warpgroup.because(reason),
            Level::Cluster => SyncKind::Cluster.because(reason),
            _ => SyncKind::Block.because(reason),
        });
        stored.into_iter().chain(commit.into_iter().chain(wait).chain(fence).chain(meet).map(Stmt::Sync))
    }

    /// The same but for the reasons.
    fn like(&self, other: &Placed) -> bool {
        let waits = |p: &Placed| (p.wait.as_ref().map(|w| w.0), p.stored.as_ref().map(|w| (w.0, w.1)));
        let parts = |p: &Placed| (p.before, p.commit, p.fence.is_some(), p.meet.as_ref().map(|m| rank(m.0)));
        waits(self) == waits(other) && parts(self) == parts(other)
    }
}

fn rank(level: Level) -> u8 {
    match level {
        Level::Apart | Level::Own => 0,
        Level::Warp => 1,
        Level::Group => 2,
        Level::Unknown | Level::Block => 3,
        Level::Cluster => 4,
    }
}

/// A pending access that a statement has to wait for.
struct Need {
    before: usize,
    now: usize,
    level: Level,
    flight: Flight,
    /// Of a TMA store whose stage is used again after some iterations: the groups closed from the store that has to have read to the
    /// latest one, whose own are counted in `flight`.
    older: u32,
    /// The copy engine has to see it.
    fence: bool,
}

impl Need {
    /// What is settled once it is met.
    fn settles(&self) -> Option<Settled> {
        (self.older > 0).then(|| Settled { rank: rank(self.level), groups: self.older })
    }
}

/// The last barrier of the list at hand: which it is, and how far what it came after was then. A barrier of the block for
/// these alone takes the place of one of the warp, and a wait for one of these alone goes in front of it, instead of a
/// second barrier; but no wait goes further up than where copies start, or it would hold up what needs no wait.
struct Last {
    at: usize,
    seen: BTreeMap<usize, Flight>,
    /// Only copies have started since.
    near: bool,
}

/// Where a walk through a list is.
struct Here<'o> {
    pending: Pending,
    last: Option<Last>,
    out: &'o mut Vec<Placed>,
}

impl Here<'_> {
    /// These accesses happen, again perhaps; whether they only start copies.
    fn happen(&mut self, sites: &[usize], starts: bool) {
        if let Some(last) = &mut self.last {
            last.seen.retain(|s, _| !sites.contains(s));
            last.near &= starts;
        }
    }
}

pub struct Walker<'a> {
    sites: &'a Sites<'a>,
    /// Groups of bulk stores that each iteration of a loop closes, at least.
    closed: BTreeMap<Var, u32>,
    /// Why something would have to wait for a load that it does not wait for.
    lost: RefCell<Option<String>>,
    /// Of each access whether the copy engine needs a fence to see it, and whether other blocks copy to its bytes.
    seen_from_afar: Vec<(bool, bool)>,
}

impl<'a> Walker<'a> {
    pub fn new(sites: &'a Sites<'a>, items: &[Item]) -> Walker<'a> {
        let mut closed = BTreeMap::new();
        count_closed(items, &mut closed);
        let seen_from_afar = sites.ids().map(|s| (sites.feeds_proxy(s), sites.is_reached_by_peers(s))).collect();
        Walker { sites, closed, lost: RefCell::default(), seen_from_afar }
    }

    /// Why something would have to wait for a load that it does not wait for.
    pub fn lost(&self) -> Option<String> {
        self.lost.borrow().clone()
    }

    /// What has to be put into the list.
    pub fn places(&self, items: &[Item]) -> Vec<Placed> {
        let mut out = Vec::new();
        self.list(items, &Pending::default(), &mut out);
        out
    }

    /// Walks a list; returns what is pending after it.
    fn list(&self, items: &[Item], pending: &Pending, out: &mut Vec<Placed>) -> Pending {
        let mut here = Here { pending: pending.clone(), last: None, out };
        for item in items {
            match &item.kind {
                Kind::Commit => here.pending.commit(false),
                Kind::Await(which) => {
                    let of = By::Load { barrier: *which };
                    here.pending.landed(|site| self.sites.site(site).by == of);
                }
                Kind::Whole { sites, starts, closes } => {
                    self.order_before(item.number, sites, &mut here);
                    if *closes {
                        here.pending.commit(true);
                    }
                    for s in sites {
                        let (unfenced, apart) = self.seen_from_afar[*s];
                        here.pending.happens(*s, self.sites.site(*s).by, unfenced, apart);
                    }
                    here.happen(sites, *starts);
                }
                Kind::Loop(_, inside) => {
                    self.repeated(item, inside, &mut here);
                    here.happen(&item.sites(), false);
                }
            }
        }
        here.pending
    }

    fn repeated(&self, item: &Item, inside: &[Item], here: &mut Here) {
        // What an iteration finds pending from the ones before it.
        let mut carried = Pending::default();
        let (end, alone) = loop {
            let mut alone = Vec::new();
            let end = self.list(inside, &carried, &mut alone);
            let joined = carried.join(&end);
            if joined == carried {
                break (end, alone);
            }
            carried = joined;
        };
        let both = carried.join(&here.pending);
        let (end_with, with) = if both == carried {
            (end.clone(), alone.clone())
        } else {
            let mut with = Vec::new();
            (self.list(inside, &both, &mut with), with)
        };
        let meets = |p: &[Placed]| -> Vec<_> {
            p.iter().filter_map(|p| p.meet.as_ref().map(|m| (p.before, rank(m.0)))).collect()
        };
        let chosen = if alone.len() == with.len() && alone.iter().zip(&with).all(|(a, b)| a.like(b)) {
            // The first reason seen may be the one from before the loop; the loop's own says more.
            here.pending = end_with;
            alone
        } else if meets(&alone) != meets(&with) && self.order_before(item.number, &item.sites(), here) {
            let kept = self.list(inside, &carried.join(&here.pending), &mut Vec::new());
            here.pending = end.join(&kept);
            alone
        } else {
            here.pending = end_with;
            with
        };
        if !chosen.is_empty() {
            // The last barrier is now in another list.
            here.last = None;
        }
        here.out.extend(chosen);
    }

    /// Puts in front of a statement what its accesses need; says whether they need anything.
    fn order_before(&self, number: usize, sites: &[usize], here: &mut Here) -> bool {
        let needs = self.needs(sites, &here.pending);
        if needs.is_empty() {
            return false;
        }
        let worst =
            needs.iter().filter(|n| rank(n.level) > 0).reduce(|a, b| if rank(b.level) > rank(a.level) { b } else { a });
        let meet = worst.map(|n| (n.level, self.sites.reason(n.before, n.now)));
        let covers = |last: &Last| {
            needs.iter().all(|n| match last.seen.get(&n.before) {
                Some(Flight::Landed) => true,
                Some(Flight::Group(_)) => last.near,
                Some(Flight::Loading | Flight::Open) | None => false,
            })
        };
        match (here.last.take(), meet) {
            (Some(last), Some(meet)) if covers(&last) => self.strengthen(last, &needs, meet, here),
            (last, meet) => {
                here.last = last;
                self.place(number, &needs, meet, here);
            }
        }
        true
    }

    fn stores(&self, site: usize) -> bool {
        matches!(self.sites.site(site).by, By::Store { .. })
    }

    fn needs(&self, sites: &[usize], pending: &Pending) -> Vec<Need> {
        let mut out = Vec::new();
        for &now in sites {
            let site = self.sites.site(now);
            // Threads that store to other blocks say so of each pair.
            let (by, to_peers) = (site.by, site.to_peers && !site.is_remote());
            for (&before, state) in &pending.states {
                let level = self.sites.level(before, now);
                let (flight, landed) = (state.flight, state.flight == Flight::Landed);
                if level == Level::Apart {
                    continue;
                }
                if flight == Flight::Loading {
                    // The phases of its mbarriers separate the stages of a ring.
                    if self.sites.site(before).by != by {
                        self.lost.borrow_mut().get_or_insert(self.sites.reason(before, now));
                    }
                    continue;
                }
                let fence = state.unfenced && self.sites.site(now).is_proxied();
                // A copy to all blocks goes to the same bytes of each.
                let level = if state.apart && to_peers { Level::Cluster } else { level };
                let older = if self.stores(before) { self.older(before, now) } else { 0 };
                let need = Need { before, now, level, flight, older, fence };
                if need.settles().zip(state.settled).is_some_and(|(wanted, settled)| settled.covers(wanted)) && !fence {
                    continue;
                }
                let needed = match level {
                    Level::Cluster => true,
                    Level::Apart => false,
                    _ if state.met => false,
                    Level::Own => !landed,
                    Level::Warp => !landed || state.step < Step::Warp,
                    Level::Group => !landed || state.step < Step::Group,
                    Level::Block | Level::Unknown => true,
                };
                if needed || fence {
                    out.push(need);
                }
            }
        }
        out
    }

    /// Of a TMA store whose stage is used again after some iterations of a loop: the groups that are closed from the one that has to have
    /// read when the stage is used again to the latest one, which is of the iteration before.
    fn older(&self, before: usize, now: usize) -> u32 {
        let slots = self.sites.ring(before, now).filter(|_| before > now);
        slots.map_or(0, |(of, slots)| (slots - 1).saturating_mul(self.closed.get(&of).copied().unwrap_or(0)))
    }

    fn place(&self, before: usize, needs: &[Need], meet: Option<(Level, String)>, here: &mut Here) {
        let commit = needs.iter().any(|n| n.flight == Flight::Open);
        let wait = self.wait(needs, |n| match n.flight {
            Flight::Open => Some(0),
            Flight::Group(groups) if !self.stores(n.before) => Some(groups + u32::from(commit)),
            _ => None,
        });
        let stored = self.stored(needs, |n| n.flight);
        if commit {
            here.pending.commit(false);
        }
        if let Some((groups, _)) = wait {
            here.pending.wait(groups, false);
        }
        if let Some((groups, ..)) = stored {
            here.pending.wait(groups, true);
        }
        let fence = self.fence(needs);
        if fence.is_some() {
            here.pending.fence();
        }
        if let Some((level, _)) = &meet {
            let seen = here.pending.states.iter().map(|(site, s)| (*site, s.flight)).collect();
            here.last = Some(Last { at: here.out.len(), seen, near: true });
            match level {
                Level::Warp => here.pending.meet_in(Step::Warp),
                Level::Group => here.pending.meet_in(Step::Group),
                Level::Cluster => here.pending.meet_in_cluster(),
                _ => here.pending.meet(),
            }
        }
        settle(needs, &mut here.pending);
        here.out.push(Placed { before, commit, wait, stored, fence, meet });
    }

    /// The wait for the copies among the needs, of which `groups` says how many groups were closed since.
    fn wait(&self, needs: &[Need], groups: impl Fn(&Need) -> Option<u32>) -> Option<(u32, String)> {
        let of = |n| groups(n).map(|g| (g, n));
        let (groups, need) = needs.iter().filter_map(of).min_by_key(|(g, _)| *g)?;
        Some((groups, self.sites.reason(need.before, need.now)))
    }

    /// The wait for the bulk stores among the needs, which have come as far as `flight` says.
    fn stored(&self, needs: &[Need], flight: impl Fn(&Need) -> Flight) -> Option<(u32, u32, String)> {
        let of = |n: &Need| match (flight(n), self.sites.site(n.before).by) {
            (Flight::Group(groups), By::Store { warps }) => {
                Some((groups + n.older, warps, self.sites.reason(n.before, n.now)))
            }
            _ => None,
        };
        needs.iter().filter_map(of).min_by_key(|w| w.0)
    }

    /// Why a fence is needed, if it is.
    fn fence(&self, needs: &[Need]) -> Option<String> {
        needs.iter().find(|n| n.fence).map(|n| self.sites.reason(n.before, n.now))
    }

    /// Makes the last barrier do for these needs too.
    fn strengthen(&self, mut last: Last, needs: &[Need], meet: (Level, String), here: &mut Here) {
        let placed = &mut here.out[last.at];
        let wait = self.wait(needs, |n| match last.seen.get(&n.before) {
            Some(Flight::Group(groups)) if !self.stores(n.before) => Some(*groups),
            _ => None,
        });
        if wait.as_ref().is_some_and(|w| placed.wait.as_ref().is_none_or(|old| w.0 < old.0)) {
            placed.wait = wait;
        }
        let stored = self.stored(needs, |n| last.seen.get(&n.before).copied().unwrap_or(Flight::Landed));
        if stored.as_ref().is_some_and(|w| placed.stored.as_ref().is_none_or(|old| w.0 < old.0)) {
            placed.stored = stored;
        }
        placed.fence = placed.fence.take().or_else(|| self.fence(needs));
        if placed.meet.as_ref().is_none_or(|old| rank(meet.0) > rank(old.0)) {
            placed.meet = Some(meet);
        }
        let groups = placed.wait.as_ref().map(|w| w.0);
        let level = placed.meet.as_ref().map_or(Level::Block, |m| m.0);
        let stored = placed.stored.as_ref().map(|w| w.0);
        for (site, flight) in &mut last.seen {
            let least = if self.stores(*site) { stored } else { groups };
            if matches!(*flight, Flight::Group(n) if least.is_some_and(|g| n >= g)) {
                *flight = Flight::Landed;
            }
            if *flight == Flight::Landed {
                here.pending.ordered(*site, level, placed.fence.is_some());
            }
        }
        settle(needs, &mut here.pending);
        here.last = Some(last);
    }
}

/// What needs are met is settled, where it does not end what is pending.
fn settle(needs: &[Need], pending: &mut Pending) {
    for need in needs {
        if let Some(settled) = need.settles() {
            pending.settle(need.before, settled);
        }
    }
}

/// The groups of bulk stores that each iteration of a loop closes, besides those of loops inside.
fn count_closed(items: &[Item], out: &mut BTreeMap<Var, u32>) {
    for item in items {
        let Kind::Loop(var, inside) = &item.kind else { continue };
        let closes = |item: &&Item| matches!(item.kind, Kind::Whole { closes: true, .. });
        out.insert(*var, inside.iter().filter(closes).count() as u32);
        count_closed(inside, out);
    }
}
