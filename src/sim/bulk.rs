//! Bulk copies: boxes between device memory and shared memory, moved by TMA.
//!
//! A box is found as the hardware finds it: by the coordinates, extents and strides of the tensor map, and in shared memory
//! by the address alone, whose bits 4 and up are flipped by its bits 7 and up. What is outside of the array is read as zero
//! and not written. Which buffer the bytes of shared memory belong to is not asked.
//!
//! A load lands at any time from its start on: at once, when nothing else can go on, or as drawn; its bytes are poison until
//! then. When it has landed its mbarrier counts its bytes, and whoever sees that phase end comes after it. A store reads and
//! writes at any time until its thread has waited for its group. The verdict on races depends on none of these times.

use super::access::{World, failure, stored};
use super::clocks::{Accessor, Seen};
use super::code::{Access, Code, LANES, Location, Op, Operand, SiteKind, Slot};
use super::compile::Compiler;
use super::listen::{BoxCopy, EventKind, Flight};
use super::race::Touch;
use super::warp::{Trap, Warp};
use crate::error::{self, Error, Result};
use crate::ir::{BulkCopy, Index, Way};

/// What the address of a box is a multiple of, in bytes.
const ALIGN: i64 = 128;
/// What a box begins at a multiple of in a row of its array, in bytes.
const ROW_ALIGN: i64 = 16;

/// A compiled bulk copy.
#[derive(Debug, Clone)]
pub(super) struct Bulk {
    /// The first element in shared memory.
    shared: u32,
    /// The array.
    global: u32,
    coordinates: Vec<Operand>,
    extents: Vec<i64>,
    strides: Vec<i64>,
    tile: Vec<i64>,
    /// Chunks of a row that are permuted, less one.
    mask: i64,
    /// Where the buffer begins in shared memory, and the bits of an element.
    base: i64,
    bits: i64,
    /// The mbarrier of a load: its array and which one.
    full: Option<(u32, Operand)>,
    /// So many blocks of the cluster get the load; 0 for the block alone.
    blocks: usize,
}

impl Compiler<'_> {
    /// Compiles a bulk copy.
    pub fn bulk(&mut self, copy: &BulkCopy) -> Result<()> {
        let broken = |what: &str| Error::bug(error::Code::SimBulk, format!("a bulk copy {what}"));
        let map = self.plan.maps.get(copy.map as usize).filter(|m| m.buffer == copy.global);
        let map = map.ok_or_else(|| broken("has no tensor map of its array"))?;
        let ranks = [map.extents.len(), map.strides.len(), map.tile.len(), copy.coordinates.len()];
        if ranks.iter().any(|n| *n != ranks[0] || *n == 0) {
            return Err(broken("has more coordinates than its tensor map, or fewer"));
        }
        self.here(SiteKind::Bulk(copy.clone()));
        let buffer = self.buffer(copy.shared)?;
        let shared = self.access(copy.shared, &copy.indices, 1)?;
        if !matches!(self.accesses[shared as usize].place, Location::Shared { .. }) {
            return Err(broken("is not between device memory and shared memory"));
        }
        let global = self.access(copy.global, &[Index::Int(0)], 1)?;
        let load = copy.way != Way::Store;
        self.accesses[shared as usize].copies = load;
        self.accesses[shared as usize].engine = true;
        self.accesses[global as usize].engine = true;
        let coordinates = copy.coordinates.iter().map(|i| self.operand(i)).collect::<Result<_>>()?;
        let (full, blocks) = match &copy.way {
            Way::Store => (None, 0),
            Way::Load { full, multicast } => {
                (Some((full.barrier, self.operand(&full.index)?)), multicast.unwrap_or(0) as usize)
            }
        };
        let bulk = Bulk {
            shared,
            global,
            coordinates,
            extents: map.extents.clone(),
            strides: map.strides.clone(),
            tile: map.tile.clone(),
            mask: (i64::from(map.swizzle) / 16 - 1).max(0),
            base: i64::from(buffer.offset.unwrap_or(0)),
            bits: i64::from(buffer.dtype.bits()),
            full,
            blocks,
        };
        let number = self.bulks.len() as u32;
        self.bulks.push(bulk);
        self.emit(Op::Bulk(number));
        Ok(())
    }
}

/// One element of a box: its unit in shared memory, and its place in the array, if it is inside.
#[derive(Debug, Clone, Copy)]
struct Pair {
    unit: usize,
    at: Option<usize>,
}

/// A load under way.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// The block of the cluster that gets it, and the mbarrier there by its number in the cluster.
    pub rank: usize,
    pub slot: usize,
    pub by: Accessor,
    pub access: u32,
    /// Where each value goes.
    values: Vec<(usize, u64)>,
    pub bytes: u32,
}

impl Load {
    /// The unit of shared memory where it begins.
    pub fn first_unit(&self) -> usize {
        self.values.iter().map(|v| v.0).min().unwrap_or(0)
    }
}

/// A store that its thread has not waited for.
#[derive(Debug, Clone)]
struct Store {
    number: u32,
    lane: usize,
    pairs: Vec<Pair>,
    /// How many groups the thread had closed before.
    group: u64,
    done: bool,
}

/// The bulk stores of a warp's elected thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Stores {
    open: Vec<Store>,
    /// When each group was closed.
    closed: Vec<u64>,
}

impl Stores {
    /// Stores that nothing has waited for.
    pub fn under_way(&self) -> usize {
        self.open.len()
    }
}

impl Bulk {
    /// The elements of the box that a lane copies, in the order in which they are.
    fn pairs(&self, warp: &Warp, lane: usize, code: &Code, world: &mut World) -> Result<Vec<Pair>, Trap> {
        let access = &code.accesses[self.shared as usize];
        let first: Vec<i64> = self.coordinates.iter().map(|c| warp.value(*c, lane)).collect();
        let element = warp.value(access.at, lane);
        let start = self.base + element * self.bits / 8;
        if start % ALIGN != 0 || element * self.bits % 8 != 0 {
            return Err(Trap::Misaligned { lane, access: self.shared, element });
        }
        let bits = first.last().map_or(0, |first| first.saturating_mul(self.bits));
        if bits % (8 * ROW_ALIGN) != 0 {
            return Err(Trap::Row { lane, access: self.global, bytes: bits / 8 });
        }
        let (memory, _, span) = world.memory(access.place)?;
        let units = memory.bytes.len() * 8 / if memory.integer { 32 } else { memory.unit_bits as usize };
        let outside = Trap::OutOfBounds { lane, access: self.shared };
        let mut at = vec![0; self.tile.len()];
        let mut pairs = Vec::new();
        loop {
            let behind = pairs.len() as i64 * self.bits;
            let address = start + behind / 8;
            let swizzled = address ^ (((address >> 7) & self.mask) << 4);
            let element = ((swizzled - self.base) * 8 + behind % 8) / self.bits;
            let unit = span.base as i64 + element * span.units as i64;
            let unit = usize::try_from(unit).ok().filter(|u| u + span.units <= units).ok_or(outside.clone())?;
            let place: Vec<i64> = first.iter().zip(&at).map(|(a, b)| a + b).collect();
            let inside = place.iter().zip(&self.extents).all(|(i, n)| (0..*n).contains(i));
            let flat: i64 = place.iter().zip(&self.strides).map(|(i, s)| i * s).sum();
            pairs.push(Pair { unit, at: usize::try_from(flat).ok().filter(|_| inside) });
            // The next element, the last dimension fastest.
            let Some(d) = (0..at.len()).rev().find(|d| at[*d] + 1 < self.tile[*d]) else { return Ok(pairs) };
            at[d] += 1;
            at[d + 1..].fill(0);
        }
    }
}

impl Bulk {
    /// What is read of the array, with where each value goes.
    fn source(&self, lane: usize, code: &Code, world: &mut World, pairs: &[Pair]) -> Result<Vec<(usize, u64)>, Trap> {
        let source = &code.accesses[self.global as usize];
        let (memory, ..) = world.memory(source.place)?;
        let value = |pair: &Pair| {
            let Some(at) = pair.at else { return Ok((pair.unit, 0)) };
            let touch = Touch { lane, access: self.global, element: at as i64, unit: at, write: false };
            memory.check(at, 1).map_err(|f| failure(f, touch))?;
            let value = memory.read(source.dtype, at).ok_or(Trap::OutOfBounds { lane, access: self.global })?;
            Ok((pair.unit, value))
        };
        pairs.iter().map(value).collect()
    }
}

impl Bulk {
    /// Lets who listens know of the box.
    fn tell(&self, world: &mut World, pairs: &[Pair], shared: i64, full: Option<(u32, i64)>) {
        if world.is_heard() {
            let elements: Vec<Option<i64>> = pairs.iter().map(|p| p.at.map(|at| at as i64)).collect();
            let row = self.tile.last().map_or(1, |n| *n as usize);
            let (accesses, blocks) = ([self.shared, self.global], self.blocks.max(1));
            world.tell(EventKind::Box(BoxCopy { accesses, shared, full, elements: &elements, row, blocks }));
        }
    }
}

impl Bulk {
    /// The access that it writes by.
    pub fn written(&self) -> u32 {
        if self.full.is_some() { self.shared } else { self.global }
    }

    /// The ranks of the blocks that get it, of one that a block of that rank starts.
    pub fn receivers(&self, rank: usize) -> std::ops::Range<usize> {
        if self.blocks == 0 { rank..rank + 1 } else { 0..self.blocks }
    }
}

/// What a bulk copy that a lane has just started writes: the unit of each element in the memory that it goes to, and its bits.
pub(super) fn values(
    warp: &Warp,
    lane: usize,
    code: &Code,
    world: &mut World,
    number: u32,
) -> Result<Vec<(usize, u64)>, Trap> {
    let bulk = &code.bulks[number as usize];
    let pairs = bulk.pairs(warp, lane, code, world)?;
    if bulk.full.is_some() {
        return bulk.source(lane, code, world, &pairs);
    }
    let from = &code.accesses[bulk.shared as usize];
    let (memory, ..) = world.memory(from.place)?;
    let value = |pair: &Pair| Some((pair.at?, memory.read(from.dtype, pair.unit)?));
    Ok(pairs.iter().filter_map(value).collect())
}

/// Starts a bulk copy.
pub(super) fn run(warp: &mut Warp, code: &Code, world: &mut World, number: u32) -> Result<(), Trap> {
    let bulk = &code.bulks[number as usize];
    let lane = one(warp)?;
    let pairs = bulk.pairs(warp, lane, code, world)?;
    let access = &code.accesses[bulk.shared as usize];
    let full = bulk.full.map(|(array, at)| (array, warp.value(at, lane)));
    bulk.tell(world, &pairs, warp.value(access.at, lane), full);
    let Some((array, at)) = bulk.full else {
        let by = Accessor { warp: warp.number, lane, agent: world.clock.clocks.stores(warp.number) };
        let here = world.clock.rank;
        note(world, (access, here), (bulk.shared, false, by), pairs.iter().map(|p| p.unit))?;
        let group = warp.stores.closed.len() as u64;
        let mut store = Store { number, lane, pairs, group, done: false };
        if world.landing.now() {
            store.perform(warp.number, code, world)?;
        }
        warp.stores.open.push(store);
        return Ok(());
    };
    let values = bulk.source(lane, code, world, &pairs)?;
    let index = warp.value(at, lane);
    for rank in bulk.receivers(world.clock.rank) {
        let slot = world.barriers.number_in(rank, array, index, lane)?;
        let by = Accessor { warp: warp.number, lane, agent: world.clock.clocks.landing(slot) };
        note(world, (access, rank), (bulk.shared, true, by), pairs.iter().map(|p| p.unit))?;
        let (memory, _) = world.shared_of(rank)?;
        for pair in &pairs {
            let poisoned = memory.poison_range(pair.unit, access.units());
            poisoned.ok_or(Trap::OutOfBounds { lane, access: bulk.shared })?;
        }
        let bytes = (pairs.len() as i64 * bulk.bits / 8) as u32;
        world.tell(EventKind::Flight(Flight { rank, bytes: bytes.into() }));
        world.loads.push(Load { rank, slot, by, access: bulk.shared, values: values.clone(), bytes });
        if world.landing.now() {
            land(world, code, world.loads.len() - 1)?;
        }
    }
    Ok(())
}

/// Stores to the same place in other blocks of the cluster, where an mbarrier counts the bytes.
pub(super) fn send(
    warp: &mut Warp,
    code: &Code,
    world: &mut World,
    (src, blocks, (array, at)): (Slot, &[(usize, u32)], (u32, Operand)),
    number: u32,
) -> Result<(), Trap> {
    let access = &code.accesses[number as usize];
    let (_, _, span) = world.memory(access.place)?;
    let mask = warp.mask;
    for lane in (0..LANES).filter(|l| mask >> l & 1 == 1) {
        let index = warp.value(at, lane);
        let element = warp.value(access.at, lane);
        let values = stored(warp, access, src, lane);
        let unit = |j: usize| usize::try_from(element + j as i64).ok().map(|e| span.base + e * span.units);
        let outside = Trap::OutOfBounds { lane, access: number };
        let placed = values.iter().enumerate().map(|(j, v)| Some((unit(j)?, *v)));
        let values: Vec<(usize, u64)> = placed.collect::<Option<_>>().ok_or(outside.clone())?;
        let bytes = access.dtype.bytes_of(u64::from(access.lanes)) as u32;
        for &(rank, _) in blocks.iter().filter(|(_, lanes)| lanes >> lane & 1 == 1) {
            let slot = world.barriers.number_in(rank, array, index, lane)?;
            let by = Accessor { warp: warp.number, lane, agent: world.clock.clocks.landing(slot) };
            note(world, (access, rank), (number, true, by), values.iter().map(|v| v.0))?;
            let (memory, _) = world.shared_of(rank)?;
            for (unit, _) in &values {
                memory.poison_range(*unit, access.units()).ok_or(outside.clone())?;
            }
            world.tell(EventKind::Flight(Flight { rank, bytes: bytes.into() }));
            world.loads.push(Load { rank, slot, by, access: number, values: values.clone(), bytes });
            if world.landing.now() {
                land(world, code, world.loads.len() - 1)?;
            }
        }
    }
    Ok(())
}

/// The one lane that runs.
fn one(warp: &Warp) -> Result<usize, Trap> {
    match warp.mask.count_ones() {
        1 => Ok(warp.mask.trailing_zeros() as usize),
        _ => Err(Trap::Divergence { mask: warp.mask }),
    }
}

/// Lets the clock and the cells know of an access by TMA.
fn note(
    world: &mut World,
    (access, rank): (&Access, usize),
    (number, write, by): (u32, bool, Accessor),
    units: impl Iterator<Item = usize>,
) -> Result<(), Trap> {
    if !access.watched {
        return Ok(());
    }
    let (_, _, span) = world.memory(access.place)?;
    let units = units.flat_map(|u| u..u + span.units);
    let element = |unit: usize| (unit as i64 - span.base as i64) / span.units as i64;
    let touch = |unit| Touch { lane: by.lane, access: number, element: element(unit), unit, write };
    let (memory, clock) = match access.place {
        Location::Shared { .. } => world.shared_of(rank)?,
        place => {
            let (memory, clock, _) = world.memory(place)?;
            (memory, clock)
        }
    };
    clock.observe_engine(memory, (access, rank), by, write, units).map_err(|unit| Trap::Race(touch(unit)))
}

/// A load lands.
pub(super) fn land(world: &mut World, code: &Code, which: usize) -> Result<(), Trap> {
    let load = world.loads.swap_remove(which);
    world.tell(EventKind::Flight(Flight { rank: load.rank, bytes: -i64::from(load.bytes) }));
    world.barriers.reach(load.rank, load.by.lane, load.slot)?;
    let access = &code.accesses[load.access as usize];
    let (now, units) = (world.clock.tick(), access.units());
    let outside = Trap::OutOfBounds { lane: load.by.lane, access: load.access };
    let (memory, clock) = world.shared_of(load.rank)?;
    for (unit, value) in &load.values {
        memory.write(access.dtype, *unit, *value).ok_or(outside.clone())?;
        memory.mark(*unit, units).map_err(|_| outside.clone())?;
        let cells = memory.cells.get_mut(*unit..unit + units).unwrap_or_default();
        clock.clocks.land(cells, load.by, now);
    }
    let over = world.barriers.over(load.slot);
    world.tell_landing(&load, world.each);
    world.barriers.land(load.slot, load.bytes, now, &world.clock.clocks)?;
    world.tell_over(load.slot, over);
    Ok(())
}

impl Store {
    /// Reads shared memory and writes the array.
    fn perform(&mut self, warp: usize, code: &Code, world: &mut World) -> Result<(), Trap> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(());
        }
        let bulk = &code.bulks[self.number as usize];
        let (from, to) = (&code.accesses[bulk.shared as usize], &code.accesses[bulk.global as usize]);
        let lane = self.lane;
        let mut written = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            let Some(at) = pair.at else { continue };
            let (memory, _, span) = world.memory(from.place)?;
            let element = (pair.unit - span.base) as i64 / span.units as i64;
            let touch = Touch { lane, access: bulk.shared, element, unit: pair.unit, write: false };
            memory.check(pair.unit, span.units).map_err(|f| failure(f, touch))?;
            let value = memory.read(from.dtype, pair.unit).ok_or(Trap::OutOfBounds { lane, access: bulk.shared })?;
            let (memory, ..) = world.memory(to.place)?;
            memory.write(to.dtype, at, value).ok_or(Trap::OutOfBounds { lane, access: bulk.global })?;
            let touch = Touch { lane, access: bulk.global, element: at as i64, unit: at, write: true };
            memory.mark(at, 1).map_err(|f| failure(f, touch))?;
            written.push(at);
        }
        let by = Accessor { warp, lane, agent: world.clock.clocks.stores(warp) };
        let here = world.clock.rank;
        note(world, (to, here), (bulk.global, true, by), written.into_iter())
    }
}

impl Warp {
    /// The elected thread closes the group of its stores.
    pub fn bulk_commit(&mut self, code: &Code, world: &mut World) -> Result<(), Trap> {
        one(self)?;
        let now = world.clock.tick();
        self.stores.closed.push(now);
        let mut open = std::mem::take(&mut self.stores.open);
        for store in &mut open {
            if world.landing.now() {
                store.perform(self.number, code, world)?;
            }
        }
        self.stores.open = open;
        Ok(())
    }

    /// The elected thread waits until at most so many of its groups are under way.
    pub fn bulk_wait(&mut self, code: &Code, world: &mut World, groups: u32, read: bool) -> Result<(), Trap> {
        one(self)?;
        let closed = self.stores.closed.len() as u64;
        let Some(last) = closed.checked_sub(u64::from(groups) + 1) else { return Ok(()) };
        let (waited, open) = std::mem::take(&mut self.stores.open).into_iter().partition(|s: &Store| s.group <= last);
        self.stores.open = open;
        let waited: Vec<Store> = waited;
        for mut store in waited {
            store.perform(self.number, code, world)?;
        }
        let now = world.clock.tick();
        let at = if read { self.stores.closed[last as usize] } else { now };
        let mut seen = Seen::default();
        seen.add(world.clock.clocks.stores(self.number), at);
        world.clock.clocks.acquire(self.number, self.mask, self.full, &seen);
        Ok(())
    }

    /// Nobody may leave while stores read the block's memory.
    pub fn bulk_end(&self) -> Result<(), Trap> {
        match self.stores.open.first() {
            Some(store) => Err(Trap::Unfinished { lane: store.lane.min(LANES - 1), what: "a bulk store" }),
            None => Ok(()),
        }
    }
}
