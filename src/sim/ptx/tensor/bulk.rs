//! Bulk copies between device memory and shared memory (PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor").
//!
//! A load lands at any time from its start on; its bytes hold nothing until then. When it has landed, its mbarrier
//! counts its bytes, and whoever sees that phase end comes after it. A store reads and writes at any time until its
//! thread has waited for its group. The verdict on races depends on none of these times. Prefetches are hints: their
//! addresses are checked.

use super::super::inst::{Inst, Operand};
use super::super::trap::Trap;
use super::super::warp::{Context, LANES};
use super::super::world::{Space, Spot, World};
use super::mbarrier::{Mbarriers, landing};
use super::operands::{address, count, unsupported};
use super::tensor_map::{Map, Run};
use super::tile::swizzled;
use crate::error::{Code, Result};
use crate::sim::clocks::{Accessor, Seen};
use std::collections::BTreeMap;

/// What the address of a box in shared memory is a multiple of, in bytes; and of other bulk copies, and their size.
const ALIGN_BOX: usize = 128;
const ALIGN: u64 = 16;

/// A decoded instruction of this module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bulk {
    /// A box to shared memory.
    Load {
        dimensions: usize,
        multicast: bool,
    },
    /// A value of so many bytes to the shared memory of a block of the cluster (st.async).
    Send {
        bytes: usize,
    },
    /// A box to device memory.
    Store {
        dimensions: usize,
    },
    Commit,
    /// Until at most so many groups are under way; `read`: until they have read shared memory.
    Wait {
        groups: u64,
        read: bool,
    },
    /// A hint for bytes of device memory.
    Prefetch,
    PrefetchMap,
}

impl Bulk {
    pub fn decode(inst: &Inst) -> Result<Bulk> {
        let last = inst.opcode.last().map_or("", String::as_str);
        match (inst.opcode.get(3).map_or("", String::as_str), last) {
            ("commit_group", _) => return Ok(Bulk::Commit),
            ("wait_group", read) => {
                count(inst, 1..=1)?;
                let groups = super::operands::constant(inst, 0)?;
                return Ok(Bulk::Wait { groups, read: read == "read" });
            }
            ("prefetch", "global") if inst.has("L2") => {
                count(inst, 2..=2)?;
                address(inst, 0)?;
                return Ok(Bulk::Prefetch);
            }
            ("tensor", _) => {}
            _ => return Err(unsupported(inst, "this bulk copy is not supported")),
        }
        let dimensions = (1..=5).find(|d| inst.has(&format!("{d}d")));
        let dimensions = dimensions.ok_or_else(|| unsupported(inst, "the number of dimensions is missing"))?;
        if inst.has("L2::cache_hint") || inst.opcode.iter().any(|m| m.starts_with("im2col")) {
            return Err(unsupported(inst, "only tiles without a cache policy are supported"));
        }
        let is_load = inst.has("global") && inst.has("mbarrier::complete_tx::bytes");
        let multicast = inst.has("multicast::cluster");
        let (map, other, operands) = match (is_load, inst.has("bulk_group")) {
            (true, false) => (1, 0, 3 + usize::from(multicast)),
            (false, true) if !multicast => (0, 1, 2),
            _ => return Err(unsupported(inst, "a load completes on an mbarrier, a store in a bulk group")),
        };
        count(inst, operands..=operands)?;
        address(inst, other)?;
        match &inst.operands[map] {
            Operand::Tensor { coordinates, .. } if coordinates.len() == dimensions => {}
            _ => {
                return Err(unsupported(
                    inst,
                    &format!("operand {} is no tensor map with {dimensions} coordinates", map + 1),
                ));
            }
        }
        if !is_load {
            return Ok(Bulk::Store { dimensions });
        }
        address(inst, 2)?;
        Ok(Bulk::Load { dimensions, multicast })
    }

    pub fn step(
        &self,
        state: &mut Copies,
        mbarriers: &mut Mbarriers,
        context: &mut Context<'_>,
    ) -> std::result::Result<(), Trap> {
        for lane in context.lanes() {
            match *self {
                Bulk::Load { dimensions, multicast } => {
                    state.load(context, mbarriers, lane, (dimensions, multicast))?;
                }
                Bulk::Send { bytes } => state.send(context, mbarriers, lane, bytes)?,
                Bulk::Store { dimensions } => state.store(context, lane, dimensions)?,
                Bulk::Commit => state.commit(context.warp.number, lane, context.world)?,
                Bulk::Wait { groups, read } => state.wait(context, lane, groups, read)?,
                Bulk::Prefetch => prefetch(context, lane)?,
                Bulk::PrefetchMap => {
                    let at = context.value(&context.inst.operands[0], lane);
                    map_at(context, lane, at)?;
                }
            }
        }
        Ok(())
    }
}

/// A hint for bytes of device memory: they have to be there.
fn prefetch(context: &Context<'_>, lane: usize) -> std::result::Result<(), Trap> {
    let [at, bytes] = [0, 1].map(|n| context.value(&context.inst.operands[n], lane));
    let bytes = bytes & 0xffff_ffff;
    if at % ALIGN != 0 || bytes % ALIGN != 0 {
        let message = format!("a prefetch of {bytes} bytes at {at:#x}: both have to be multiples of {ALIGN}");
        return Err(Trap::lane(Code::PtxMisaligned, lane, message));
    }
    context.world.locate((Space::Global, context.warp.rank, lane), at, bytes as usize, 1).map(|_| ())
}

/// The tensor map at a generic address, and the memory of its array.
fn map_at(context: &Context<'_>, lane: usize, at: u64) -> std::result::Result<(Map, usize), Trap> {
    let Some((map, memory)) = context.world.tensor_map(at) else {
        return Err(Trap::lane(Code::PtxTensorMap, lane, format!("there is no tensor map at address {at:#x}")));
    };
    let encoded = Map::encode(map).map_err(|why| Trap::lane(Code::PtxTensorMap, lane, why))?;
    match context.world.memories.get(memory) {
        Some(array) if array.base.is_multiple_of(ALIGN) => Ok((encoded, memory)),
        _ => Err(Trap::lane(Code::PtxTensorMap, lane, "the array of a tensor map is not aligned to 16 bytes")),
    }
}

/// A load under way.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub mbarrier: usize,
    pub by: Accessor,
    /// The shared memory, and where each chunk of so many bytes goes.
    pub memory: usize,
    pub chunk: usize,
    pub chunks: Vec<usize>,
    pub data: Vec<u8>,
    pub line: u32,
}

/// A store that its thread has not waited for.
#[derive(Debug, Clone)]
struct Store {
    by: Accessor,
    shared: usize,
    chunks: Vec<usize>,
    array: usize,
    runs: Vec<Run>,
    /// How many groups the thread had closed before.
    group: u64,
    done: bool,
    line: u32,
}

/// The bulk stores of a thread.
#[derive(Debug, Clone, Default)]
struct Stores {
    open: Vec<Store>,
    /// When each group was closed.
    closed: Vec<u64>,
}

/// The bulk copies of a cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Copies {
    pub loads: Vec<Load>,
    /// By warp and lane.
    stores: BTreeMap<(usize, usize), Stores>,
}

/// The instruction's operands that a box is found by.
struct Request {
    map: Map,
    array: usize,
    first: Vec<i64>,
    spot: Spot,
    /// The address of the box in shared memory.
    start: u64,
}

fn request(
    context: &Context<'_>,
    lane: usize,
    (map, shared): (usize, usize),
    dimensions: usize,
) -> std::result::Result<Request, Trap> {
    let inst = context.inst;
    let at = context.value(&inst.operands[map], lane);
    let (encoded, array) = map_at(context, lane, at)?;
    let Operand::Tensor { coordinates, .. } = &inst.operands[map] else {
        return Err(Trap::lane(Code::PtxTensorMap, lane, "there are no coordinates"));
    };
    if encoded.tile.len() != dimensions {
        let message = format!("a tensor map of {} dimensions is used with {dimensions}", encoded.tile.len());
        return Err(Trap::lane(Code::PtxTensorMap, lane, message));
    }
    let first: Vec<i64> = coordinates.iter().map(|c| i64::from(context.value(c, lane) as i32)).collect();
    let row = first.first().map_or(0, |first| first * encoded.bytes);
    if row % ALIGN as i64 != 0 {
        let message =
            format!("a box begins {row} bytes from the beginning of a row of its array, no multiple of {ALIGN}");
        return Err(Trap::lane(Code::PtxMisaligned, lane, message));
    }
    let address = context.value(&inst.operands[shared], lane);
    let place = (Space::Shared, context.warp.rank, lane);
    let spot = context.world.locate(place, address, encoded.box_bytes(), ALIGN_BOX)?;
    let start = context.world.memories[spot.memory].base + spot.offset as u64;
    Ok(Request { map: encoded, array, first, spot, start })
}

impl Request {
    /// The offset in shared memory of each chunk of 16 bytes of the box.
    fn chunks(&self, world: &World, lane: usize) -> std::result::Result<Vec<usize>, Trap> {
        let base = self.start - self.spot.offset as u64;
        let bytes = world.memories[self.spot.memory].bytes.len();
        let chunk = |n: usize| {
            let at = swizzled(self.start, 16 * n as u64, self.map.width);
            let offset = usize::try_from(at.wrapping_sub(base)).ok().filter(|o| o + 16 <= bytes);
            offset.ok_or_else(|| Trap::lane(Code::PtxBounds, lane, "a swizzled box reaches outside shared memory"))
        };
        (0..self.map.box_bytes() / 16).map(chunk).collect()
    }
}

impl Copies {
    fn load(
        &mut self,
        context: &mut Context<'_>,
        mbarriers: &mut Mbarriers,
        lane: usize,
        (dimensions, multicast): (usize, bool),
    ) -> std::result::Result<(), Trap> {
        let inst = context.inst;
        let request = request(context, lane, (1, 0), dimensions)?;
        context.early(false, lane)?;
        let named = mbarriers.at(context, (lane, context.value(&inst.operands[2], lane), true))?;
        let (home, offset) = mbarriers.place(named);
        let blocks = context.world.blocks();
        let ranks: Vec<usize> = match multicast {
            false => vec![request.spot.memory - context.world.buffers],
            true => {
                let mask = context.value(&inst.operands[3], lane) as u16;
                if mask == 0 || u32::from(mask) >> blocks != 0 {
                    let message = format!("a copy is multicast to blocks {mask:#x} of a cluster of {blocks}");
                    return Err(Trap::lane(Code::PtxMulticast, lane, message));
                }
                (0..blocks).filter(|r| mask >> r & 1 == 1).collect()
            }
        };
        if !multicast && home != ranks[0] {
            let message = "a copy completes on an mbarrier of another block than the one that it writes";
            return Err(Trap::lane(Code::PtxMbarrier, lane, message));
        }
        let chunks = request.chunks(context.world, lane)?;
        let line = inst.line;
        let data = fetch(context, &request, lane, named)?;
        for rank in ranks {
            let mbarrier = mbarriers.in_block(rank, offset).ok_or_else(|| no_mbarrier(rank, lane))?;
            let memory = context.world.buffers + rank;
            if context.world.ended.get(rank) == Some(&true) {
                let message =
                    format!("a copy writes the shared memory of block {rank} of the cluster, which has ended");
                return Err(Trap::lane(Code::PtxEnded, lane, message));
            }
            let clocks = &context.world.clock.clocks;
            let by = Accessor { warp: context.warp.number, lane, agent: landing(mbarrier, clocks) };
            if context.world.races && !mbarriers.is_visible_to_copies(mbarrier, by, clocks) {
                let message = format!(
                    "a copy completes on {}, whose initialisation it may not see: fence.mbarrier_init is missing",
                    mbarriers.name(mbarrier)
                );
                return Err(Trap::lane(Code::PtxProxy, lane, message));
            }
            let raw = context.world.access(by, true);
            for offset in &chunks {
                let spot = Spot { memory, offset: *offset };
                context.world.note_write(&raw, lane, spot, 16, true)?;
                context.world.poison(spot, 16);
            }
            let (chunks, data) = (chunks.clone(), data.clone());
            self.loads.push(Load { mbarrier, by, memory, chunk: 16, chunks, data, line });
            if context.world.landing.now() {
                self.land(self.loads.len() - 1, mbarriers, context.world)?;
            }
        }
        Ok(())
    }

    fn store(&mut self, context: &mut Context<'_>, lane: usize, dimensions: usize) -> std::result::Result<(), Trap> {
        let request = request(context, lane, (0, 1), dimensions)?;
        context.early(false, lane)?;
        if request.spot.memory - context.world.buffers != context.warp.rank {
            return Err(Trap::lane(Code::PtxBounds, lane, "a bulk store reads the shared memory of another block"));
        }
        let chunks = request.chunks(context.world, lane)?;
        let warp = context.warp.number;
        let by = Accessor { warp, lane, agent: context.world.clock.clocks.stores(warp) };
        let raw = context.world.access(by, true);
        let runs = request.map.runs(&request.first);
        // Chunks of which every byte is outside of the array are read by no thread.
        let mut used = vec![false; chunks.len()];
        runs.iter().for_each(|r| used[r.in_box / 16..(r.in_box + r.bytes).div_ceil(16)].fill(true));
        for (offset, _) in chunks.iter().zip(&used).filter(|(_, used)| **used) {
            context.world.note_read(&raw, lane, Spot { memory: request.spot.memory, offset: *offset }, 16)?;
        }
        let stores = self.stores.entry((warp, lane)).or_default();
        let group = stores.closed.len() as u64;
        let (shared, array, line) = (request.spot.memory, request.array, context.inst.line);
        let mut store = Store { by, shared, chunks, array, runs, group, done: false, line };
        if context.world.landing.now() {
            store.perform(context.world)?;
        }
        stores.open.push(store);
        Ok(())
    }

    fn commit(&mut self, warp: usize, lane: usize, world: &mut World) -> std::result::Result<(), Trap> {
        let stores = self.stores.entry((warp, lane)).or_default();
        stores.closed.push(world.clock.tick());
        Ok(())
    }

    fn wait(
        &mut self,
        context: &mut Context<'_>,
        lane: usize,
        groups: u64,
        read: bool,
    ) -> std::result::Result<(), Trap> {
        let warp = context.warp.number;
        let stores = self.stores.entry((warp, lane)).or_default();
        let closed = stores.closed.len() as u64;
        let Some(last) = closed.checked_sub(groups.saturating_add(1)) else { return Ok(()) };
        let (waited, open): (Vec<Store>, Vec<Store>) = stores.open.drain(..).partition(|s| s.group <= last);
        stores.open = open;
        for mut store in waited {
            store.perform(context.world)?;
        }
        let now = context.world.clock.tick();
        let at = if read { stores.closed[last as usize] } else { now };
        let mut seen = Seen::default();
        seen.add(context.world.clock.clocks.stores(warp), at);
        context.world.clock.clocks.acquire(warp, 1 << lane, context.warp.full, &seen);
        Ok(())
    }

    /// How many copies may land now: the loads, and the stores that have not written.
    pub fn pending(&self) -> usize {
        self.loads.len() + self.undone().count()
    }

    fn undone(&self) -> impl Iterator<Item = ((usize, usize), usize)> {
        let all =
            self.stores.iter().flat_map(|(who, s)| s.open.iter().enumerate().map(move |(n, store)| (*who, n, store)));
        all.filter(|(.., store)| !store.done).map(|(who, n, _)| (who, n))
    }

    /// A copy lands.
    pub fn land(
        &mut self,
        which: usize,
        mbarriers: &mut Mbarriers,
        world: &mut World,
    ) -> std::result::Result<(), Trap> {
        if which >= self.loads.len() {
            let Some((who, n)) = self.undone().nth(which - self.loads.len()) else { return Ok(()) };
            let store = self.stores.get_mut(&who).and_then(|s| s.open.get_mut(n));
            return store.map_or(Ok(()), |store| store.perform(world));
        }
        let load = self.loads.remove(which);
        if world.ended.get(load.memory - world.buffers) == Some(&true) {
            let message = format!(
                "a copy (line {}) writes the shared memory of block {} of the cluster, which has ended",
                load.line,
                load.memory - world.buffers
            );
            return Err(Trap { other: Some(load.line), ..Trap::lane(Code::PtxEnded, load.by.lane % LANES, message) });
        }
        for (offset, data) in load.chunks.iter().zip(load.data.chunks_exact(load.chunk)) {
            let spot = Spot { memory: load.memory, offset: *offset };
            world.set(spot, data);
            world.land(spot, load.chunk, load.by);
        }
        world.progress += 1;
        mbarriers.land(load.mbarrier, load.data.len() as u64, load.by.lane, world)
    }

    /// The cluster ends: its shared memory is gone, so nothing may read or write it any more.
    pub fn end(&self) -> std::result::Result<(), Trap> {
        if let Some(load) = self.loads.first() {
            let message = format!("the kernel ends before the copy of line {} is complete", load.line);
            return Err(Trap::warp(Code::PtxUnfinished, message));
        }
        match self.stores.iter().find_map(|((_, lane), s)| s.open.first().map(|store| (lane, store))) {
            Some((lane, store)) => {
                let message = format!(
                    "the kernel ends, and its thread has not waited until the bulk store of line {} has read shared memory",
                    store.line
                );
                Err(Trap { other: Some(store.line), ..Trap::lane(Code::PtxUnfinished, *lane, message) })
            }
            None => Ok(()),
        }
    }
}

/// The bytes of a box, zero where it is outside of the array.
fn fetch(
    context: &mut Context<'_>,
    request: &Request,
    lane: usize,
    mbarrier: usize,
) -> std::result::Result<Vec<u8>, Trap> {
    let mut data = vec![0; request.map.box_bytes()];
    let by = Accessor { warp: context.warp.number, lane, agent: landing(mbarrier, &context.world.clock.clocks) };
    let raw = context.world.access(by, false);
    for run in request.map.runs(&request.first) {
        let spot = in_array(context.world, request.array, &run, lane)?;
        context.world.read(&raw, lane, spot, &mut data[run.in_box..run.in_box + run.bytes])?;
    }
    Ok(data)
}

/// A block of a multicast copy has no mbarrier where the others have theirs.
fn no_mbarrier(rank: usize, lane: usize) -> Trap {
    Trap::lane(Code::PtxMbarrier, lane, format!("block {rank} has no mbarrier at the same place"))
}

fn in_array(world: &World, array: usize, run: &Run, lane: usize) -> std::result::Result<Spot, Trap> {
    let bytes = world.memories.get(array).map_or(0, |m| m.bytes.len());
    match run.in_array.checked_add(run.bytes).is_some_and(|end| end <= bytes) {
        true => Ok(Spot { memory: array, offset: run.in_array }),
        false => Err(Trap::lane(Code::PtxBounds, lane, "a tensor map reaches outside its array")),
    }
}

impl Store {
    /// Reads shared memory and writes the array.
    fn perform(&mut self, world: &mut World) -> std::result::Result<(), Trap> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(());
        }
        let line = std::mem::replace(&mut world.line, self.line);
        let mut data = vec![0; 16 * self.chunks.len()];
        for (offset, out) in self.chunks.iter().zip(data.chunks_exact_mut(16)) {
            out.copy_from_slice(&world.memories[self.shared].bytes[*offset..offset + 16]);
        }
        let raw = world.access(self.by, false);
        for run in &self.runs {
            let spot = in_array(world, self.array, run, self.by.lane)?;
            world.write(&raw, self.by.lane, spot, &data[run.in_box..run.in_box + run.bytes])?;
        }
        world.line = line;
        Ok(())
    }
}
