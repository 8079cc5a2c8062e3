//! What is still to be ordered with what comes: the accesses since the last barrier, and copies under way.

use std::collections::BTreeMap;

/// How far an access has come. Later is further, so the smaller of two is the safe one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flight {
    /// A copy of a group that is not closed.
    Open,
    /// A copy of a closed group, and at least so many groups have been closed since.
    Group(u32),
    /// Done, as far as its own thread is concerned.
    Landed,
}

/// An access that something may still have to be ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub flight: Flight,
    /// The threads of a warp have met since.
    pub in_step: bool,
}

/// The accesses by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    pub states: BTreeMap<usize, State>,
}

impl Pending {
    /// An access happens.
    pub fn happens(&mut self, site: usize, asynchronous: bool) {
        let flight = if asynchronous { Flight::Open } else { Flight::Landed };
        self.states.insert(site, State { flight, in_step: false });
    }

    /// A group is closed.
    pub fn commit(&mut self) {
        for s in self.states.values_mut() {
            s.flight = match s.flight {
                Flight::Open => Flight::Group(0),
                Flight::Group(n) => Flight::Group(n + 1),
                Flight::Landed => Flight::Landed,
            };
        }
    }

    /// Every thread waits until at most `groups` closed groups are under way.
    pub fn wait(&mut self, groups: u32) {
        let landed = |s: &&mut State| matches!(s.flight, Flight::Group(n) if n >= groups);
        self.states.values_mut().filter(landed).for_each(|s| *s = State { flight: Flight::Landed, in_step: false });
    }

    /// The threads of each warp meet.
    pub fn meet_in_warps(&mut self) {
        self.states.values_mut().filter(|s| s.flight == Flight::Landed).for_each(|s| s.in_step = true);
    }

    /// All threads meet: only copies under way are left.
    pub fn meet(&mut self) {
        self.states.retain(|_, s| s.flight != Flight::Landed);
    }

    /// An access has landed, and the threads of each warp (`in_warps`), or all, have met since.
    pub fn ordered(&mut self, site: usize, in_warps: bool) {
        if !in_warps {
            self.states.remove(&site);
        } else if let Some(s) = self.states.get_mut(&site) {
            *s = State { flight: Flight::Landed, in_step: true };
        }
    }

    /// What holds whichever of two ways was taken.
    pub fn join(&self, other: &Pending) -> Pending {
        let mut out = self.clone();
        for (&site, &b) in &other.states {
            let either = |a: &mut State| {
                *a = State { flight: a.flight.min(b.flight), in_step: a.in_step && b.in_step };
            };
            out.states.entry(site).and_modify(either).or_insert(b);
        }
        out
    }
}
