//! Races: two accesses of the same bytes by different threads, one of them a write, that nothing orders.
//!
//! What orders two accesses of threads that share memory, in the code that the simulator runs:
//! - both are the same thread's;
//! - a barrier of the block is between them, and both threads are of that block;
//! - a barrier of the warp is between them, and both threads are of that warp;
//!   (barriers count for shared memory and for the parameters in [`crate::ir::lowered::LoweredKernel::exchanged`]: accesses
//!   of other parameters may be kept in registers across them)
//! - they belong to different kernels.
//!
//! Nothing else does: lanes of a warp are ordered by barriers alone although the simulator runs them in step, and
//! different blocks of a kernel are not ordered at all. So an earlier access is judged by *when* it happened and *who*
//! did it: the [`Clock`] counts accesses and keeps when the kernel, the block, its last barrier and each warp's last
//! barrier began, and every unit of memory has a [`Cell`] with its last write and what is to be known of the reads since.
//! The order that the simulator happens to run warps in is one that the barriers allow; a race is found in every such
//! order or in none.
//!
//! An asynchronous copy writes from its start on until its thread has waited for it ([`super::flight`]): its start is
//! judged as a write, then its units are in flight, after which nothing comes, not even in its own thread; the wait is the
//! write that barriers order. What comes later (mbarriers, the asynchronous proxy) makes `View::after` another question,
//! not the cells.
//!
//! To name the earlier access, the kernel runs again under a [`Watch`] that stops where it happens.

mod bytes;
mod engine;
mod watch;

use super::clocks::{self, Accessor, Clocks, Life};
use super::code::{Access, Location};
use super::warp::Trap;
pub(super) use bytes::Raw;
use std::ops::Range;
pub(super) use watch::Watch;

/// The bits of a stamp: 52 of time, two flags, ten of the thread's number in its block.
const TIME: u32 = 12;
/// Reads by more than one warp since the last barrier of the block.
const MANY_WARPS: u64 = 1 << 11;
/// Reads by more than one lane of the warp since its last barrier.
const MANY_LANES: u64 = 1 << 10;
const THREAD: u64 = MANY_LANES - 1;
const WARP: u64 = THREAD & !31;
/// A write that was a copy's.
const COPIED: u64 = MANY_WARPS;
/// A write by a copy under way. It is in nobody's past: not even in that of the thread whose bits are all set.
const IN_FLIGHT: u64 = u64::MAX;

/// What is known of a unit of memory: stamps, 0 where nothing happened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub write: u64,
    pub read: u64,
}

/// When things began, as stamps of thread 0.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now: u64,
    kernel: u64,
    block: u64,
    barrier: u64,
    /// The last barrier of each warp of the block.
    warps: Vec<u64>,
    /// What happens before what, where barriers of the block and the warp are not all.
    pub clocks: Clocks,
    precise: bool,
    /// The block is one thread; lanes are iterations of its loops.
    alone: bool,
    /// Lanes of a warp count as ordered: what is found then needs a barrier of the block.
    pub coarse: bool,
    /// Looking for one access instead of watching all.
    pub watch: Option<Watch>,
    /// The rank of the block whose shared memory is accessed.
    pub rank: usize,
}

impl Clock {
    fn next(&mut self) -> u64 {
        self.now += 1;
        self.now << TIME
    }

    /// Says whether the next kernel needs clocks of its warps. Whether that changes: stamps with clocks and without have different bits, so
    /// those of earlier kernels then have to go.
    #[must_use]
    pub fn with_clocks(&mut self, precise: bool) -> bool {
        std::mem::replace(&mut self.precise, precise) != precise
    }

    /// The time of something that orders accesses.
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A fence between what threads do and what other engines do.
    pub fn fence(&mut self, warp: usize, mask: u32, full: u32) {
        let now = self.tick();
        self.clocks.fence(warp, mask, full, now);
    }

    /// Warps meet with all their threads.
    pub fn meet(&mut self, warps: Range<usize>) {
        if self.precise {
            let now = self.tick();
            self.clocks.meet(warps, now);
        } else {
            self.block_barrier();
        }
    }

    pub fn life(&self, access: &Access) -> Life {
        self.life_of(matches!(access.place, Location::Shared { .. }), access.ordered)
    }

    fn life_of(&self, shared: bool, ordered: bool) -> Life {
        let born = if shared { self.block } else { self.kernel };
        Life { born: born >> TIME, ordered }
    }

    /// A kernel begins, with so many threads in a block and blocks in a cluster.
    pub fn kernel(&mut self, threads: usize, blocks: usize) {
        self.kernel = self.next();
        self.alone = threads <= 1 && blocks <= 1;
        self.warps = vec![0; threads.div_ceil(32) * blocks];
    }

    /// An access is made.
    pub fn next_access(&mut self) {
        self.now += 1;
    }

    /// Back to the beginning of the kernel.
    pub fn rewind(&mut self) {
        self.now = (self.kernel >> TIME) - 1;
    }

    /// A block begins.
    pub fn block(&mut self) {
        self.block = self.next();
        self.barrier = self.block;
        self.warps.fill(0);
        if self.precise {
            self.clocks.coarse = self.coarse;
            self.clocks.block(self.warps.len(), self.now);
        }
    }

    /// A wait for copies ends.
    pub fn wait(&mut self) -> u64 {
        self.next()
    }

    /// Copies of a thread to these units are no longer in flight.
    pub fn land(&self, cells: &mut [Cell], units: Range<usize>, by: Lands) {
        if self.precise {
            let cells = cells.get_mut(units).unwrap_or_default();
            return self.clocks.land(cells, Accessor::thread(by.warp, by.lane), self.now);
        }
        let thread = if self.alone { 0 } else { (by.warp as u64) << 5 | by.lane as u64 };
        for cell in cells.get_mut(units).unwrap_or_default() {
            if cell.write == IN_FLIGHT {
                cell.write = by.now | COPIED | thread;
            }
        }
    }

    /// All threads of the block have met.
    fn block_barrier(&mut self) {
        self.barrier = self.next();
    }

    /// All threads of the warp have met.
    pub fn warp_barrier(&mut self, warp: usize) {
        if self.precise {
            return self.meet(warp..warp + 1);
        }
        let now = self.next();
        if let Some(last) = self.warps.get_mut(warp) {
            *last = now;
        }
    }

    /// What a warp sees of a memory.
    #[inline(always)]
    pub fn view(&self, warp: usize, access: &Access) -> View {
        self.view_of(warp, matches!(access.place, Location::Shared { .. }), access.ordered)
    }

    #[inline(always)]
    fn view_of(&self, warp: usize, shared: bool, ordered: bool) -> View {
        let born = if shared { self.block } else { self.kernel };
        let last = self.warps.get(warp).copied().unwrap_or(0);
        let (barrier, last) = match (ordered, self.coarse) {
            (true, false) => (self.barrier, last),
            (true, true) => (self.barrier, u64::MAX),
            (false, _) => (self.block, 0),
        };
        View { born, block: self.block, barrier, last, warp: (warp as u64) << 5, alone: self.alone }
    }
}

/// What orders earlier accesses with those of a warp now.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// Accesses before this one do not matter: of another kernel, or of what the shared memory held before.
    born: u64,
    block: u64,
    barrier: u64,
    /// The warp's last barrier.
    last: u64,
    warp: u64,
    alone: bool,
}

impl View {
    #[inline(always)]
    fn thread(&self, lane: usize) -> u64 {
        if self.alone { 0 } else { self.warp | lane as u64 }
    }

    /// Whether an access of `thread` comes after an earlier one, whatever order is drawn.
    #[inline(always)]
    fn after(&self, earlier: u64, thread: u64) -> bool {
        let same_warp = (earlier ^ thread) & WARP == 0;
        earlier < self.born
            || earlier >= self.block
                && (earlier < self.barrier
                    || (earlier ^ thread) & (THREAD | MANY_LANES) == 0
                    || same_warp && earlier < self.last)
    }

    /// The same of all the reads that a stamp represents.
    #[inline(always)]
    fn after_reads(&self, read: u64, thread: u64) -> bool {
        if read < self.born || read >= self.block && read < self.barrier {
            return true;
        }
        let alone = read & MANY_LANES == 0 || read < self.last;
        self.after(read, thread) && read & MANY_WARPS == 0 && alone
    }
}

impl Cell {
    /// A thread reads; false if that is a race.
    #[inline(always)]
    fn reads(&mut self, view: &View, now: u64, thread: u64) -> bool {
        let read = self.read;
        if read < view.barrier {
            // What another block has read stays: it is not ordered with any write that comes.
            if read < view.born || read >= view.block {
                self.read = now | thread;
            }
        } else if read & MANY_WARPS == 0 {
            if (read ^ thread) & WARP != 0 {
                self.read = now | thread | MANY_WARPS;
            } else if read < view.last {
                self.read = now | thread;
            } else if (read ^ thread) & THREAD != 0 {
                self.read = read | MANY_LANES;
            }
        }
        view.after(self.write, thread)
    }

    /// A thread writes; false if that is a race, and then the cell still says with what.
    #[inline(always)]
    fn writes(&mut self, view: &View, write: u64, thread: u64) -> bool {
        let good = view.after(self.write, thread) && view.after_reads(self.read, thread);
        if good {
            *self = Cell { write, read: 0 };
        }
        good
    }

    /// Whether it was last written by a copy that an access of a thread does not come after.
    fn copied(&self, view: &View, thread: u64) -> bool {
        self.write & COPIED != 0 && !view.after(self.write, thread)
    }
}

/// Who has waited for copies, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lands {
    pub now: u64,
    pub warp: usize,
    pub lane: usize,
}

/// An access of one lane, as a race has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Touch {
    pub lane: usize,
    pub access: u32,
    pub element: i64,
    pub unit: usize,
    pub write: bool,
}

/// The lanes of an access: where each begins, in elements and units.
pub(super) struct Lanes<'a> {
    pub number: u32,
    pub access: &'a Access,
    pub warp: usize,
    pub write: bool,
    /// Units of an element.
    pub units: usize,
    /// The unit at which the buffer begins.
    pub base: usize,
}

impl Lanes<'_> {
    #[cold]
    pub fn touch(&self, lane: usize, element: i64, unit: usize) -> Touch {
        let past = unit.saturating_sub(self.base + element as usize * self.units) / self.units.max(1);
        Touch { lane, access: self.number, element: element + past as i64, unit, write: self.write }
    }

    /// Notes an access; `each` gives the lanes that take part with the first element of each.
    #[inline(always)]
    pub fn observe(
        &self,
        cells: &mut [Cell],
        starts: &mut [u64],
        clock: &mut Clock,
        each: impl Iterator<Item = (usize, i64)>,
    ) -> Result<(), Trap> {
        if clock.precise {
            return self.observe_precisely(cells, starts, clock, each);
        }
        let now = clock.next();
        let view = clock.view(self.warp, self.access);
        if let Some(watch) = &clock.watch {
            return self.watch(watch, &view, now, each);
        }
        let size = self.access.lanes as usize * self.units;
        match (self.write, size) {
            (false, 1) => self.all(cells, 1, each, |cell, lane| cell.reads(&view, now, view.thread(lane))),
            (false, _) => self.all(cells, size, each, |cell, lane| cell.reads(&view, now, view.thread(lane))),
            (true, 1) => self.all(cells, 1, each, |cell, lane| {
                let thread = view.thread(lane);
                cell.writes(&view, now | thread, thread)
            }),
            (true, _) => self.all(cells, size, each, |cell, lane| {
                let thread = view.thread(lane);
                cell.writes(&view, now | thread, thread)
            }),
        }
    }

    /// The units of the elements from one on.
    pub fn units_of(&self, element: i64) -> Range<usize> {
        let first = self.base + element as usize * self.units;
        first..first + self.access.lanes as usize * self.units
    }

    fn observe_precisely(
        &self,
        cells: &mut [Cell],
        starts: &mut [u64],
        clock: &mut Clock,
        each: impl Iterator<Item = (usize, i64)>,
    ) -> Result<(), Trap> {
        let (now, life) = (clock.tick(), clock.life(self.access));
        let Some(watch) = clock.watch else {
            return clock.clocks.observe(self, (cells, starts), (now, life), each);
        };
        for (lane, element) in each {
            let by = Accessor::thread(self.warp, lane);
            for unit in self.units_of(element).filter(|u| *u == watch.unit) {
                let unordered = match watch.partner {
                    Some(partner) => clocks::is_of(partner, by.stamp(now), watch.stamp),
                    None => !clock.clocks.after(watch.stamp, by, life),
                };
                if watch.may_be(self.access.place, clock.rank, self.write) && unordered {
                    return Err(Trap::Race(self.touch(lane, element, unit)));
                }
            }
        }
        Ok(())
    }

    /// Notes the start of a copy.
    pub fn start(
        &self,
        cells: &mut [Cell],
        starts: &mut [u64],
        clock: &mut Clock,
        each: impl Iterator<Item = (usize, i64)> + Clone,
    ) -> Result<(), Trap> {
        if clock.precise {
            return self.observe_precisely(cells, starts, clock, each);
        }
        let now = clock.next();
        let view = clock.view(self.warp, self.access);
        if let Some(watch) = &clock.watch {
            return self.watch(watch, &view, now, each);
        }
        let size = self.access.lanes as usize * self.units;
        self.all(cells, size, each.clone(), |cell, lane| cell.writes(&view, IN_FLIGHT, view.thread(lane)))?;
        for (lane, element) in each {
            let first = self.base + element as usize * self.units;
            starts.get_mut(first..first + size).unwrap_or_default().fill(now | view.thread(lane));
        }
        Ok(())
    }

    #[inline(always)]
    fn all(
        &self,
        cells: &mut [Cell],
        size: usize,
        each: impl Iterator<Item = (usize, i64)>,
        good: impl Fn(&mut Cell, usize) -> bool,
    ) -> Result<(), Trap> {
        for (lane, element) in each {
            let first = self.base + element as usize * self.units;
            for (n, cell) in cells.get_mut(first..first + size).unwrap_or_default().iter_mut().enumerate() {
                if !good(cell, lane) {
                    return Err(Trap::Race(self.touch(lane, element, first + n)));
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn watch(
        &self,
        watch: &Watch,
        view: &View,
        now: u64,
        each: impl Iterator<Item = (usize, i64)>,
    ) -> Result<(), Trap> {
        for (lane, element) in each {
            let first = self.base + element as usize * self.units;
            for unit in first..first + self.access.lanes as usize * self.units {
                let touch = self.touch(lane, element, unit);
                if watch.is_partner(self.access.place, &touch, now | view.thread(lane), view) {
                    return Err(Trap::Race(touch));
                }
            }
        }
        Ok(())
    }
}
