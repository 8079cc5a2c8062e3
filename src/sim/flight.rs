//! Asynchronous copies under way: when their bytes land, and who may touch them until then.
//!
//! A copy may land at any time between its start and the end of the wait for its group. [`Landing`] draws one of these
//! times, but no verdict depends on it: from its start to the wait a copy is in flight whatever has landed
//! ([`super::race`]), so every other access of its bytes is a race. The wait counts as its write. As a second net a copy
//! that lands late leaves poison where its bytes will be.
//!
//! The value is read when the copy starts. That is one of the times at which it may be read, and the verifier of lowered
//! kernels makes sure that nothing writes the source.

use super::Policy;
use super::access::World;
use super::code::{Access, LANES};
use super::memory::Memory;
use super::race::Lands;
use super::warp::Trap;
use std::collections::BTreeSet;

/// When copies land.
#[derive(Debug, Default)]
pub(super) enum Landing {
    /// When the thread has to wait for them.
    #[default]
    Late,
    /// As soon as they start.
    AtOnce,
    /// Some time between, as drawn.
    AnyTime(fastrand::Rng),
}

impl Landing {
    /// What goes with an order of warps: in order late, reversed at once, random at any time.
    pub fn of(policy: Policy) -> Landing {
        match policy {
            Policy::InOrder => Landing::Late,
            Policy::Reverse => Landing::AtOnce,
            Policy::Random(seed) => Landing::AnyTime(fastrand::Rng::with_seed(seed)),
        }
    }

    /// Whether something under way lands now.
    pub fn now(&mut self) -> bool {
        match self {
            Landing::Late => false,
            Landing::AtOnce => true,
            Landing::AnyTime(rng) => rng.bool(),
        }
    }
}

/// A copy of one thread.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    pub lane: usize,
    /// The access that writes.
    pub access: u32,
    /// Where it goes in shared memory.
    pub unit: usize,
    /// An element each.
    pub values: Vec<u64>,
    /// How many groups its thread had closed before.
    group: u64,
    landed: bool,
}

impl Copy {
    /// A copy that starts, in the group that its thread will close next.
    pub fn new(lane: usize, access: u32, unit: usize, values: Vec<u64>) -> Copy {
        Copy { lane, access, unit, values, group: 0, landed: false }
    }

    fn land(&mut self, memory: &mut Memory, access: &Access, units: usize) -> Result<(), Trap> {
        self.landed = true;
        let outside = Trap::OutOfBounds { lane: self.lane, access: self.access };
        for (n, value) in self.values.iter().enumerate() {
            let unit = self.unit + n * units;
            memory.write(access.dtype, unit, *value).ok_or(outside.clone())?;
            memory.mark(unit, units).map_err(|_| outside.clone())?;
        }
        Ok(())
    }
}

/// The copies of a warp that nothing has waited for yet.
#[derive(Debug, Clone, Default)]
pub(super) struct CopiesInFlight {
    /// Groups that each lane has closed.
    closed: [u64; LANES],
    copies: Vec<Copy>,
}

impl CopiesInFlight {
    /// Elements under way, and the groups of them that are closed.
    pub fn under_way(&self) -> (usize, usize) {
        let elements = self.copies.iter().map(|c| c.values.len()).sum();
        let closed = self.copies.iter().filter(|c| c.group < self.closed[c.lane]).map(|c| c.group);
        (elements, closed.collect::<BTreeSet<u64>>().len())
    }

    /// A copy starts: its bytes are poison until it lands.
    pub fn start(&mut self, mut copy: Copy, world: &mut World, access: &Access, units: usize) -> Result<(), Trap> {
        copy.group = self.closed[copy.lane];
        if world.landing.now() {
            copy.land(&mut world.shared, access, units)?;
        } else {
            let poisoned = world.shared.poison_range(copy.unit, copy.values.len() * units);
            poisoned.ok_or(Trap::OutOfBounds { lane: copy.lane, access: copy.access })?;
        }
        self.copies.push(copy);
        Ok(())
    }

    /// The lanes of a mask close a group.
    pub fn commit(&mut self, mask: u32, world: &mut World, accesses: &[Access]) -> Result<(), Trap> {
        (0..LANES).filter(|l| mask >> l & 1 == 1).for_each(|l| self.closed[l] += 1);
        for copy in self.copies.iter_mut().filter(|c| !c.landed) {
            if world.landing.now() {
                let access = &accesses[copy.access as usize];
                copy.land(&mut world.shared, access, access.units())?;
            }
        }
        Ok(())
    }

    /// The lanes of a mask wait until at most `groups` of their closed groups are under way.
    pub fn wait(
        &mut self,
        (warp, mask): (usize, u32),
        groups: u32,
        world: &mut World,
        accesses: &[Access],
    ) -> Result<(), Trap> {
        let now = world.clock.wait();
        let closed = self.closed;
        let done = |c: &Copy| mask >> c.lane & 1 == 1 && c.group + u64::from(groups) < closed[c.lane];
        let (landing, rest) = std::mem::take(&mut self.copies).into_iter().partition(done);
        self.copies = rest;
        for mut copy in landing {
            let access = &accesses[copy.access as usize];
            if !copy.landed {
                copy.land(&mut world.shared, access, access.units())?;
            }
            let units = copy.unit..copy.unit + copy.values.len() * access.units();
            if access.watched {
                world.clock.land(&mut world.shared.cells, units, Lands { now, warp, lane: copy.lane });
            }
        }
        Ok(())
    }

    /// The block has ended: what was never waited for was nobody's.
    pub fn abandon(&mut self, world: &mut World, accesses: &[Access]) {
        for copy in std::mem::take(&mut self.copies) {
            let units = copy.unit..copy.unit + copy.values.len() * accesses[copy.access as usize].units();
            world.shared.cells.get_mut(units).unwrap_or_default().fill(Default::default());
        }
        self.closed = [0; LANES];
    }
}
