//! What happens before what in kernels whose warps are ordered by more than barriers of the block and the warp: roles,
//! mbarriers, asynchronous engines.
//!
//! Every access has a time, which all warps of a block count together, and belongs to an **agent**: a warp (what its threads
//! do themselves), or something that works on its own: the copies that land on one mbarrier, the bulk stores of a warp, the
//! products of a warp. [`Seen`] says up to which time a thread knows of each agent. An edge (a barrier, an arrival and the
//! wait that sees its phase end, a wait for a group) hands on what its one end has seen.
//!
//! A warp has one clock for all its lanes, and one more for each lane that alone has seen more (the elected one that waited)
//! until the warp meets. Lanes see of each other what was before the last time that the warp met.
//!
//! What TMA and wgmma do to shared memory comes after what threads did themselves only where a proxy fence of
//! those threads lies on the way: [`Seen::fenced`] is what is known of them behind such fences. That holds for reads, too: one
//! may be on its way still when its thread arrives or meets, and TMA overwrites what it was to find.

use super::race::{Cell, Lanes};
use super::warp::Trap;
use std::collections::BTreeMap;

/// The bits of a stamp: 36 of time, two flags, 21 of agent and 5 of lane.
const TIME: u32 = 28;
/// Reads by several agents: the rest is a position in the pool.
const MANY_AGENTS: u64 = 1 << 27;
/// Reads by several lanes of the warp since it last met.
const MANY_LANES: u64 = 1 << 26;
/// A write that was a copy's.
const COPIED: u64 = MANY_AGENTS;
const WHO: u64 = MANY_LANES - 1;
/// A write by a copy under way: in nobody's past.
const IN_FLIGHT: u64 = u64::MAX;

pub(super) fn time(stamp: u64) -> u64 {
    stamp >> TIME
}

/// The agent and the lane of a stamp, and whether a copy made the access.
pub(super) fn who(stamp: u64) -> (usize, usize, bool) {
    (agent(stamp), (stamp & 31) as usize, stamp & COPIED != 0)
}

fn agent(stamp: u64) -> usize {
    ((stamp & WHO) >> 5) as usize
}

/// Times, by agent; and of single threads of warps, where more is known of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Times {
    agents: Vec<u64>,
    threads: BTreeMap<u64, u64>,
}

impl Times {
    fn has(&self, stamp: u64) -> bool {
        let at = time(stamp);
        self.agents.get(agent(stamp)).is_some_and(|t| *t >= at)
            || stamp & MANY_LANES == 0 && self.threads.get(&(stamp & WHO)).is_some_and(|t| *t >= at)
    }

    fn set(&mut self, agent: usize, at: u64) {
        if self.agents.len() <= agent {
            self.agents.resize(agent + 1, 0);
        }
        self.agents[agent] = self.agents[agent].max(at);
    }

    fn set_thread(&mut self, who: u64, at: u64) {
        let known = self.threads.entry(who).or_insert(0);
        *known = at.max(*known);
    }

    fn set_lanes(&mut self, warp: usize, mask: u32, full: u32, at: u64) {
        if mask == full {
            self.set(warp, at);
        } else {
            lanes(mask).for_each(|lane| self.set_thread(Accessor::thread(warp, lane).stamp(0), at));
        }
    }

    fn join(&mut self, other: &Times) {
        for (agent, at) in other.agents.iter().enumerate() {
            self.set(agent, *at);
        }
        for (who, at) in &other.threads {
            self.set_thread(*who, *at);
        }
        let agents = &self.agents;
        self.threads.retain(|who, at| agents.get(agent(*who)).is_none_or(|t| t < at));
    }
}

/// What a thread, or an edge, knows of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    known: Times,
    /// What of it follows a fence for the other engines.
    fenced: Times,
}

impl Seen {
    /// Adds what something else has seen.
    pub fn join(&mut self, other: &Seen) {
        self.known.join(&other.known);
        self.fenced.join(&other.fenced);
    }

    /// Whether what the lanes of a mask did at a time is part of it. A whole warp waits in one instruction, and its lanes
    /// converge before one of them is elected, so one lane of it speaks for all.
    pub fn has(&self, (warp, mask, full): (usize, u32, u32), at: u64) -> bool {
        let all = || lanes(mask).all(|l| self.known.has(Accessor::thread(warp, l).stamp(at)));
        let any = || lanes(mask).any(|l| self.known.has(Accessor::thread(warp, l).stamp(at)));
        if mask == full { any() } else { all() }
    }

    /// Adds all that an agent has done up to now.
    pub fn add(&mut self, agent: usize, now: u64) {
        self.known.set(agent, now);
        self.fenced.set(agent, now);
    }
}

/// What would order two accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// A barrier, or an arrival and the wait that sees its phase end.
    Edge,
    /// A fence between the proxies: threads are ordered already.
    Fence,
    /// The warp of a product waits for its group.
    ProductWait,
    /// The thread of a bulk store waits for its group.
    StoreWait,
    /// A wait for the phase in which a bulk copy lands.
    PhaseWait,
}

/// The clock of a warp.
#[derive(Debug, Clone, Default)]
struct WarpClock {
    all: Seen,
    /// Of lanes that have seen more.
    own: BTreeMap<usize, Seen>,
}

/// An access of one thread, or of an agent on its behalf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accessor {
    pub warp: usize,
    pub lane: usize,
    /// The agent; a warp's own number is what its threads do themselves.
    pub agent: usize,
}

impl Accessor {
    /// A thread.
    pub fn thread(warp: usize, lane: usize) -> Accessor {
        Accessor { warp, lane, agent: warp }
    }

    /// Whether it reaches memory by another way than threads do.
    fn is_engine(self) -> bool {
        self.agent != self.warp
    }

    /// Its stamp at a time.
    pub fn stamp(self, now: u64) -> u64 {
        now << TIME | (self.agent as u64) << 5 | self.lane as u64
    }
}

/// What a memory is to its accesses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    /// Accesses before this time do not matter: of another kernel, or of what the shared memory held before.
    pub born: u64,
    /// Whether edges order its accesses at all: parameters may be kept in registers across them.
    pub ordered: bool,
}

/// The clocks of the warps of a block (of a cluster).
#[derive(Debug, Clone, Default)]
pub(super) struct Clocks {
    warps: Vec<WarpClock>,
    /// When the block began.
    block: u64,
    /// Reads by several agents: a stamp for each.
    pool: Vec<Vec<u64>>,
    free: Vec<usize>,
    /// Lanes of a warp count as ordered.
    pub coarse: bool,
}

impl Clocks {
    /// A block of so many warps begins.
    pub fn block(&mut self, warps: usize, now: u64) {
        *self =
            Clocks { warps: vec![WarpClock::default(); warps], block: now, coarse: self.coarse, ..Clocks::default() };
    }

    /// The agent of the copies that land on an mbarrier, by its number in the block.
    pub fn landing(&self, slot: usize) -> usize {
        3 * self.warps.len() + slot
    }

    /// The agent that ends the phases of an mbarrier, of so many in the cluster. Its times are numbers of phases.
    pub fn phases(&self, slot: usize, slots: usize) -> usize {
        self.landing(slots) + slot
    }

    /// Whether a thread knows that an agent has reached a time.
    pub fn knows(&self, (warp, lane): (usize, usize), agent: usize, at: u64) -> bool {
        let Some(known) = self.warps.get(warp) else { return false };
        let reached = |seen: &Seen| seen.known.agents.get(agent).is_some_and(|t| *t >= at);
        at == 0 || reached(&known.all) || known.own.get(&lane).is_some_and(reached)
    }

    /// The agent of the bulk stores of a warp.
    pub fn stores(&self, warp: usize) -> usize {
        self.warps.len() + warp
    }

    /// The agent of the asynchronous products of a warp.
    pub fn products(&self, warp: usize) -> usize {
        2 * self.warps.len() + warp
    }

    /// Warps meet, with all their lanes.
    pub fn meet(&mut self, warps: std::ops::Range<usize>, now: u64) {
        let mut all = Seen::default();
        for warp in warps.clone() {
            let Some(known) = self.warps.get_mut(warp) else { continue };
            all.join(&known.all);
            known.own.values().for_each(|own| all.join(own));
            known.own.clear();
            all.known.set(warp, now);
        }
        for warp in warps {
            if let Some(known) = self.warps.get_mut(warp) {
                known.all = all.clone();
            }
        }
    }

    /// What the lanes of a mask hand on now; `full`: they are all lanes of the warp.
    pub fn release(&self, warp: usize, mask: u32, full: u32, now: u64) -> Seen {
        let Some(known) = self.warps.get(warp) else { return Seen::default() };
        let mut seen = known.all.clone();
        known.own.iter().filter(|(lane, _)| mask >> **lane & 1 == 1).for_each(|(_, own)| seen.join(own));
        seen.known.set_lanes(warp, mask, full, now);
        seen
    }

    /// The lanes of a mask learn what something has seen.
    pub fn acquire(&mut self, warp: usize, mask: u32, full: u32, seen: &Seen) {
        let Some(known) = self.warps.get_mut(warp) else { return };
        if mask == full {
            known.all.join(seen);
        } else {
            lanes(mask).for_each(|lane| known.own.entry(lane).or_default().join(seen));
        }
    }

    /// The lanes of a mask fence what they have done for the other engines.
    pub fn fence(&mut self, warp: usize, mask: u32, full: u32, now: u64) {
        let Some(known) = self.warps.get_mut(warp) else { return };
        known.all.fenced.set_lanes(warp, mask, full, now);
    }

    /// Whether an access comes after an earlier one, whatever order is drawn.
    pub fn after(&self, earlier: u64, by: Accessor, life: Life) -> bool {
        if time(earlier) < life.born || earlier == 0 {
            return true;
        }
        if time(earlier) < self.block {
            return false;
        }
        let same = (earlier ^ by.stamp(0)) & (WHO | MANY_LANES) == 0;
        if !by.is_engine() && (same || !life.ordered) {
            return same;
        }
        let Some(known) = self.warps.get(by.warp) else { return false };
        let mut seen = std::iter::once(&known.all).chain(known.own.get(&by.lane));
        let near = agent(earlier) == by.warp && (self.coarse || (earlier ^ by.lane as u64) & (31 | MANY_LANES) == 0);
        (near || seen.clone().any(|s| s.known.has(earlier)))
            && (!by.is_engine() || agent(earlier) >= self.warps.len() || seen.any(|s| s.fenced.has(earlier)))
    }

    /// What would order an access behind an earlier one that it is not ordered with. Where the thread has heard of the earlier one's
    /// warp since, something orders the two warps, and a fence or a wait for what that warp started is missing.
    pub fn lacks(&self, earlier: u64, by: Accessor) -> Lack {
        let (warps, who) = (self.warps.len(), agent(earlier));
        let Some(known) = self.warps.get(by.warp) else { return Lack::Edge };
        let mut seen = std::iter::once(&known.all).chain(known.own.get(&by.lane)).map(|s| &s.known);
        let since = |known: &Times, warp: usize| {
            let of_threads = || known.threads.iter().any(|(w, at)| agent(*w) == warp && *at >= time(earlier));
            known.agents.get(warp).is_some_and(|at| *at >= time(earlier)) || of_threads()
        };
        match who / warps.max(1) {
            0 if by.is_engine() && (who == by.warp || seen.any(|s| s.has(earlier))) => Lack::Fence,
            1 if who - warps == by.warp || seen.any(|s| since(s, who - warps)) => Lack::StoreWait,
            2 if who - 2 * warps == by.warp || seen.any(|s| since(s, who - 2 * warps)) => Lack::ProductWait,
            0..=2 => Lack::Edge,
            _ => Lack::PhaseWait,
        }
    }

    /// Whether a write comes after all reads of a cell.
    fn after_reads(&self, read: u64, by: Accessor, life: Life) -> bool {
        if time(read) < life.born || read & MANY_AGENTS == 0 || time(read) < self.block {
            return self.after(read, by, life);
        }
        self.pool.get((read & WHO) as usize).is_none_or(|all| all.iter().all(|r| self.after(*r, by, life)))
    }

    /// Notes a read; false if that is a race.
    pub fn read(&mut self, cell: &mut Cell, by: Accessor, now: u64, life: Life) -> bool {
        let (old, new) = (cell.read, by.stamp(now));
        if time(old) < life.born || old == 0 {
            cell.read = new;
        } else if time(old) < self.block {
            // What another block has read stays: it is not ordered with any write that comes.
        } else if old & MANY_AGENTS == 0 {
            match self.joined(old, new, by, life) {
                Some(one) => cell.read = one,
                None => cell.read = now << TIME | MANY_AGENTS | self.pooled([old, new]),
            }
        } else if let Some(mut all) = self.pool.get_mut((old & WHO) as usize).map(std::mem::take) {
            match all.iter().position(|r| agent(*r) == by.agent) {
                Some(n) => all[n] = self.joined(all[n], new, by, life).unwrap_or(new),
                None => all.push(new),
            }
            self.pool[(old & WHO) as usize] = all;
            cell.read = now << TIME | old & (MANY_AGENTS | WHO);
        }
        self.after(cell.write, by, life)
    }

    /// One stamp for two reads, if one can represent both.
    fn joined(&self, old: u64, new: u64, by: Accessor, life: Life) -> Option<u64> {
        let same = agent(old) == by.agent;
        if self.after(old, Accessor { agent: by.warp, ..by }, life) && (same || !by.is_engine()) {
            return Some(new);
        }
        same.then_some(new | MANY_LANES)
    }

    fn pooled(&mut self, stamps: [u64; 2]) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.pool.push(Vec::new());
            self.pool.len() - 1
        });
        self.pool[at].extend(stamps);
        at as u64
    }

    /// Notes a write; false if that is a race, and then the cell still says with what. `lands`: it is a copy that is under
    /// way from now on.
    pub fn write(&mut self, cell: &mut Cell, by: Accessor, now: u64, life: Life, lands: bool) -> bool {
        let good = self.after(cell.write, by, life) && self.after_reads(cell.read, by, life);
        if good {
            if cell.read & MANY_AGENTS != 0 && time(cell.read) >= self.block {
                let at = (cell.read & WHO) as usize;
                if let Some(all) = self.pool.get_mut(at) {
                    all.clear();
                    self.free.push(at);
                }
            }
            *cell = Cell { write: if lands { IN_FLIGHT } else { by.stamp(now) }, read: 0 };
        }
        good
    }

    /// A copy that was under way has landed, for those who see this.
    pub fn land(&self, cells: &mut [Cell], by: Accessor, now: u64) {
        cells.iter_mut().filter(|c| c.write == IN_FLIGHT).for_each(|c| c.write = by.stamp(now) | COPIED);
    }

    /// The earlier access that one is not ordered with, as far as the cell knows it; of a copy, `start` is when it began.
    pub fn partner(&self, cell: &Cell, by: Accessor, life: Life, start: Option<u64>) -> Option<u64> {
        if !self.after(cell.write, by, life) {
            return if cell.write & COPIED != 0 { start } else { Some(cell.write) };
        }
        if cell.read & MANY_AGENTS == 0 {
            return (!self.after(cell.read, by, life)).then_some(cell.read);
        }
        let all = self.pool.get((cell.read & WHO) as usize)?;
        all.iter().copied().find(|r| !self.after(*r, by, life))
    }

    /// Notes an access of the lanes of a warp.
    pub fn observe(
        &mut self,
        lanes: &Lanes<'_>,
        (cells, starts): (&mut [Cell], &mut [u64]),
        (now, life): (u64, Life),
        each: impl Iterator<Item = (usize, i64)>,
    ) -> Result<(), Trap> {
        let copies = lanes.write && lanes.access.copies;
        for (lane, element) in each {
            let by = Accessor::thread(lanes.warp, lane);
            for unit in lanes.units_of(element) {
                let Some(cell) = cells.get_mut(unit) else { continue };
                let good = match lanes.write {
                    true => self.write(cell, by, now, life, copies),
                    false => self.read(cell, by, now, life),
                };
                if !good {
                    return Err(Trap::Race(lanes.touch(lane, element, unit)));
                }
                if let (true, Some(start)) = (copies, starts.get_mut(unit)) {
                    *start = by.stamp(now);
                }
            }
        }
        Ok(())
    }
}

/// Whether an access is the one that a stamp of a cell represents: of several lanes' reads, any before that is another lane's.
pub(super) fn is_of(partner: u64, stamp: u64, other: u64) -> bool {
    if agent(partner) != agent(stamp) {
        return false;
    }
    let lane = |s: u64| s & 31;
    let mine = agent(other) == agent(stamp) && lane(other) == lane(stamp);
    match partner & MANY_LANES != 0 {
        true => time(stamp) <= time(partner) && !mine,
        false => time(stamp) == time(partner) && lane(stamp) == lane(partner),
    }
}

fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}
