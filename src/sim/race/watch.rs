//! Finding the access that another is not ordered with, by running the kernel again.

use super::{Clock, THREAD, TIME, Touch, View};
use crate::sim::clocks::{Accessor, Lack};
use crate::sim::code::{Access, Location};
use crate::sim::memory::Memory;

/// Looks for the access that one is not ordered with.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Watch {
    pub(super) place: Location,
    /// Of shared memory, the rank of its block.
    pub(super) rank: usize,
    pub(super) unit: usize,
    pub(super) write: bool,
    /// When the access happened and by which thread.
    pub(super) stamp: u64,
    pub(super) view: View,
    /// When its partner happened and by which thread, if that is known.
    pub(super) partner: Option<u64>,
    /// What would order the two.
    pub lack: Lack,
}

impl Watch {
    /// Watches for the partner of an access that has just been made; `memory` is where.
    pub fn new(clock: &Clock, warp: usize, access: &Access, touch: &Touch, memory: &Memory) -> Watch {
        let view = clock.view(warp, access);
        let (start, cell) = (memory.starts.get(touch.unit).copied(), memory.cells.get(touch.unit));
        let (stamp, partner, lack) = if clock.precise {
            // Which of the engines it is makes no difference to what it comes after.
            let agent = if access.engine { clock.clocks.stores(warp) } else { warp };
            let (by, life) = (Accessor { warp, lane: touch.lane, agent }, clock.life(access));
            let partner = cell.and_then(|c| clock.clocks.partner(c, by, life, start));
            let lack = partner.map_or(Lack::Edge, |earlier| clock.clocks.lacks(earlier, by));
            (by.stamp(clock.now), partner, lack)
        } else {
            let thread = view.thread(touch.lane);
            let copied = cell.is_some_and(|c| c.copied(&view, thread));
            (clock.now << TIME | thread, start.filter(|_| copied), Lack::Edge)
        };
        let (rank, unit, write) = (clock.rank, touch.unit, touch.write);
        Watch { place: access.place, rank, unit, write, stamp, view, partner, lack }
    }

    /// Whether it is about this memory, and one of the two a write.
    pub(super) fn may_be(&self, place: Location, rank: usize, write: bool) -> bool {
        let same = match (self.place, place) {
            (Location::Global(a), Location::Global(b)) => a == b,
            (Location::Shared { .. }, Location::Shared { .. }) => self.rank == rank,
            _ => false,
        };
        same && (write || self.write)
    }

    pub(super) fn is_partner(&self, place: Location, touch: &Touch, stamp: u64, view: &View) -> bool {
        let unordered = match self.partner {
            Some(partner) => stamp == partner,
            None if stamp >> TIME <= self.stamp >> TIME => !self.view.after(stamp, self.stamp & THREAD),
            None => !view.after(self.stamp, stamp & THREAD),
        };
        self.may_be(place, self.rank, touch.write) && touch.unit == self.unit && unordered
    }
}
