//! Accesses of bytes that no buffer names: the interpreted PTX makes them. A cell represents a few consecutive bytes.

use super::{COPIED, Cell, Clock, IN_FLIGHT, Lands, TIME, View};
use crate::sim::clocks::{self, Accessor, Life};
use std::ops::Range;

/// The accesses of a warp, or of an agent on its behalf, at one time.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim) struct Raw {
    warp: usize,
    agent: usize,
    now: u64,
    view: View,
    life: Life,
}

impl Clock {
    /// The next access of an agent of a warp; `shared`: to shared memory.
    pub fn raw(&mut self, warp: usize, agent: usize, shared: bool) -> Raw {
        let now = self.next();
        Raw { warp, agent, now, view: self.view_of(warp, shared, true), life: self.life_of(shared, true) }
    }

    /// A lane reads cells; the first that it races on.
    #[inline]
    pub fn raw_read(&mut self, raw: &Raw, lane: usize, cells: &mut [Cell]) -> Result<(), usize> {
        if self.precise {
            let by = Accessor { warp: raw.warp, lane, agent: raw.agent };
            let found = cells.iter_mut().position(|c| !self.clocks.read(c, by, raw.now >> TIME, raw.life));
            return found.map_or(Ok(()), Err);
        }
        let thread = raw.view.thread(lane);
        let mut at = cells.iter_mut();
        at.position(|c| !c.reads(&raw.view, raw.now, thread)).map_or(Ok(()), Err)
    }

    /// A lane writes cells, or (`copies`) starts a copy to them; the first that it races on.
    #[inline]
    pub fn raw_write(&mut self, raw: &Raw, lane: usize, cells: &mut [Cell], copies: bool) -> Result<(), usize> {
        if self.precise {
            let by = Accessor { warp: raw.warp, lane, agent: raw.agent };
            let found = cells.iter_mut().position(|c| !self.clocks.write(c, by, raw.now >> TIME, raw.life, copies));
            return found.map_or(Ok(()), Err);
        }
        let thread = raw.view.thread(lane);
        let stamp = if copies { IN_FLIGHT } else { raw.now | thread };
        let mut at = cells.iter_mut();
        at.position(|c| !c.writes(&raw.view, stamp, thread)).map_or(Ok(()), Err)
    }

    /// Copies to these cells, under way until now, are writes of that agent from now on ([`Clock::tick`] comes first).
    pub fn raw_land(&self, cells: &mut [Cell], units: Range<usize>, by: Accessor) {
        if self.precise {
            return self.clocks.land(cells.get_mut(units).unwrap_or_default(), by, self.now);
        }
        self.land(cells, units, Lands { now: self.now << TIME, warp: by.warp, lane: by.lane });
    }

    /// These warps meet with all their lanes; without vector clocks they are all warps of the block.
    pub fn raw_meet(&mut self, warps: &[usize]) {
        if !self.precise {
            return self.block_barrier();
        }
        let now = self.tick();
        let mut seen = clocks::Seen::default();
        warps.iter().for_each(|w| seen.join(&self.clocks.release(*w, u32::MAX, u32::MAX, now)));
        warps.iter().for_each(|w| self.clocks.acquire(*w, u32::MAX, u32::MAX, &seen));
    }

    /// Lanes of a warp meet; `full`: the lanes that the warp has.
    pub fn raw_meet_lanes(&mut self, warp: usize, mask: u32, full: u32) {
        if !self.precise || mask == full {
            return self.warp_barrier(warp);
        }
        let now = self.tick();
        let seen = self.clocks.release(warp, mask, full, now);
        self.clocks.acquire(warp, mask, full, &seen);
    }

    /// Whether the access that a write stamp represents was made since the kernel began.
    pub fn is_of_kernel(&self, stamp: u64) -> bool {
        match self.precise {
            true => clocks::time(stamp) >= self.kernel >> TIME,
            false => stamp >= self.kernel,
        }
    }

    /// What is known of who made the access of a stamp: warp and lane, or that a copy did.
    pub fn who(&self, stamp: u64) -> String {
        if stamp == IN_FLIGHT {
            return "a copy under way".to_string();
        }
        let (warp, lane, copied) = match self.precise {
            true => clocks::who(stamp),
            false => (((stamp & super::THREAD) >> 5) as usize, (stamp & 31) as usize, stamp & COPIED != 0),
        };
        let copy = if copied { "a copy of " } else { "" };
        if warp >= self.warps.len() {
            return format!("{copy}an asynchronous engine");
        }
        format!("{copy}lane {lane} of warp {warp}")
    }
}
