//! The pending accesses: those since the last barrier, and asynchronous copies in flight.

use super::conflict::{By, Level};
use std::collections::BTreeMap;

/// How far an access has come. Later is further, so the smaller of two is the safe one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flight {
    /// A TMA load whose phase has no wait yet.
    Loading,
    /// A copy of a group that is not closed.
    Open,
    /// A copy of a closed group, and at least so many groups have been closed since.
    Group(u32),
    /// Done, as far as its own thread is concerned.
    Landed,
}

/// Threads that have met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Each is where it is.
    None,
    /// Those of each warp.
    Warp,
    /// Those of each warpgroup.
    Group,
}

/// An access that something may still have to be ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub flight: Flight,
    /// Who has met since.
    pub step: Step,
    /// It is a bulk store's: its groups are counted apart.
    stores: bool,
    /// A write of threads that the copy engine does not see yet.
    pub unfenced: bool,
    /// Blocks of the cluster that have not met since may still start a copy to its bytes.
    pub apart: bool,
    /// Of a TMA store whose stage is used again after some iterations: what orders it with the uses of its stage.
    pub settled: Option<Settled>,
    /// All threads of the block have met since: only the copy engine, or another block, may not have seen it.
    pub met: bool,
}

/// Of all stores of a site but those of so many last groups, the threads of a level know that they have read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The level's rank.
    pub rank: u8,
    /// Groups that were closed between the latest store before and the one that had to have read.
    pub groups: u32,
}

impl Settled {
    /// Whether it says as much as another.
    pub fn covers(self, other: Settled) -> bool {
        self.rank >= other.rank && self.groups <= other.groups
    }
}

impl State {
    fn is_in_group_before(&self, groups: u32, stores: bool) -> bool {
        self.stores == stores && matches!(self.flight, Flight::Group(n) if n >= groups)
    }
}

/// The accesses by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    pub states: BTreeMap<usize, State>,
}

impl Pending {
    /// An access happens. `unfenced`: the copy engine does not see it without a fence; `apart`: other blocks copy to its bytes.
    pub fn happens(&mut self, site: usize, by: By, unfenced: bool, apart: bool) {
        let flight = match by {
            By::Threads => Flight::Landed,
            By::Copy => Flight::Open,
            By::Load { .. } => Flight::Loading,
            // Its group ends with the statement.
            By::Store { .. } => Flight::Group(0),
        };
        let stores = matches!(by, By::Store { .. });
        self.states
            .insert(site, State { flight, step: Step::None, stores, unfenced, apart, settled: None, met: false });
    }

    /// A group is closed: of bulk stores or of other copies.
    pub fn commit(&mut self, stores: bool) {
        for s in self.states.values_mut().filter(|s| s.stores == stores) {
            s.flight = match s.flight {
                Flight::Open => Flight::Group(0),
                Flight::Group(n) => Flight::Group(n + 1),
                other => other,
            };
        }
    }

    /// Every thread waits until at most `groups` closed groups, of bulk stores or of other copies, are under way.
    pub fn wait(&mut self, groups: u32, stores: bool) {
        let landed = |s: &&mut State| s.is_in_group_before(groups, stores);
        for s in self.states.values_mut().filter(landed) {
            (s.flight, s.step) = (Flight::Landed, Step::None);
        }
    }

    /// Every thread has waited for loads.
    pub fn landed(&mut self, is: impl Fn(usize) -> bool) {
        self.states.retain(|site, _| !is(*site));
    }

    /// The copy engine sees what has landed, once the threads have met.
    pub fn fence(&mut self) {
        self.states.values_mut().filter(|s| s.flight == Flight::Landed).for_each(|s| s.unfenced = false);
    }

    /// The threads of each warp, or warpgroup, meet.
    pub fn meet_in(&mut self, step: Step) {
        self.states.values_mut().filter(|s| s.flight == Flight::Landed).for_each(|s| s.step = s.step.max(step));
    }

    /// The earlier stores of a site have read, as far as threads of a level are concerned.
    pub fn settle(&mut self, site: usize, settled: Settled) {
        if let Some(s) = self.states.get_mut(&site) {
            s.settled = Some(settled);
        }
    }

    /// All threads of the cluster meet.
    pub fn meet_in_cluster(&mut self) {
        self.states.values_mut().filter(|s| s.flight == Flight::Landed).for_each(|s| s.apart = false);
        self.meet();
    }

    /// All threads meet: only copies under way are left, and what the copy engine or another block does not see.
    pub fn meet(&mut self) {
        self.states.retain(|_, s| s.flight != Flight::Landed || s.unfenced || s.apart);
        self.states.values_mut().filter(|s| s.flight == Flight::Landed).for_each(|s| s.met = true);
    }

    /// An access has landed, and the threads of a level have met since, after a fence perhaps.
    pub fn ordered(&mut self, site: usize, level: Level, fenced: bool) {
        let Some(s) = self.states.get_mut(&site) else { return };
        s.unfenced &= !fenced;
        s.apart &= level != Level::Cluster;
        s.flight = Flight::Landed;
        if level == Level::Warp {
            s.step = s.step.max(Step::Warp);
        } else if level == Level::Group {
            s.step = s.step.max(Step::Group);
        } else if s.unfenced || s.apart {
            s.met = true;
        } else {
            self.states.remove(&site);
        }
    }

    /// What holds whichever of two ways was taken.
    pub fn join(&self, other: &Pending) -> Pending {
        let mut out = self.clone();
        for (&site, &b) in &other.states {
            let either = |a: &mut State| {
                a.flight = a.flight.min(b.flight);
                a.step = a.step.min(b.step);
                a.met &= b.met;
                a.settled = a
                    .settled
                    .zip(b.settled)
                    .map(|(a, b)| Settled { rank: a.rank.min(b.rank), groups: a.groups.max(b.groups) });
                a.unfenced |= b.unfenced;
                a.apart |= b.apart;
            };
            out.states.entry(site).and_modify(either).or_insert(b);
        }
        out
    }
}
