//! Copies of cp.async: what a thread copies from device memory to shared memory, in groups that it waits for.

use super::warp::LANES;
use super::world::{Spot, World};
use crate::sim::clocks::Accessor;

/// A copy of one lane.
#[derive(Debug, Clone)]
struct Copy {
    lane: usize,
    spot: Spot,
    data: Vec<u8>,
    /// How many groups its thread had closed before.
    group: u64,
    landed: bool,
}

/// The copies of a warp that nothing has waited for yet.
#[derive(Debug, Clone, Default)]
pub(in crate::sim::ptx) struct Copies {
    closed: [u64; LANES],
    copies: Vec<Copy>,
}

impl Copies {
    /// A copy of bytes that were read at its start begins.
    pub fn start(&mut self, world: &mut World, lane: usize, spot: Spot, data: Vec<u8>) {
        let landed = world.landing.now();
        match landed {
            true => world.set(spot, &data),
            false => world.poison(spot, data.len()),
        }
        self.copies.push(Copy { lane, spot, data, group: self.closed[lane], landed });
    }

    /// Lanes close a group.
    pub fn commit(&mut self, world: &mut World, mask: u32) {
        (0..LANES).filter(|l| mask >> l & 1 == 1).for_each(|l| self.closed[l] += 1);
        for copy in self.copies.iter_mut().filter(|c| !c.landed) {
            if world.landing.now() {
                copy.landed = true;
                world.set(copy.spot, &copy.data);
            }
        }
    }

    /// Lanes wait until at most so many of their closed groups are under way; `None`: until all their copies have landed.
    pub fn wait(&mut self, world: &mut World, warp: usize, mask: u32, groups: Option<u64>) {
        let closed = self.closed;
        let done = |c: &Copy| mask >> c.lane & 1 == 1 && groups.is_none_or(|n| c.group + n < closed[c.lane]);
        let (landing, rest) = std::mem::take(&mut self.copies).into_iter().partition(done);
        self.copies = rest;
        for copy in landing {
            if !copy.landed {
                world.set(copy.spot, &copy.data);
            }
            world.land(copy.spot, copy.data.len(), Accessor::thread(warp, copy.lane));
        }
    }

    /// The block ends: copies that nothing has waited for land, and the next block finds none under way.
    pub fn end(&mut self, world: &mut World, warp: usize) {
        self.wait(world, warp, u32::MAX, None);
        self.closed = [0; LANES];
    }
}
