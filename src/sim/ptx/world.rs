//! Memory of a launch: device buffers, the shared memory of the blocks of a cluster, kernel parameters; addresses, bounds,
//! written bytes and races.
//!
//! | state space | address |
//! |---|---|
//! | global | buffer n begins at `(n + 1) << 40`, plus the alignment that its parameter promises and no more |
//! | shared | `SHARED` + offset in the block; plus `(rank + 1) << 24` in a block of the cluster |
//! | local, parameters, shared as generic addresses | with a tag in bits 60 to 63 |

use super::tensor;
use super::trap::{At, Trap};
use crate::error::Code;
use crate::kernel::TensorMap;
use crate::sim::clocks::Accessor;
use crate::sim::flight::Landing;
use crate::sim::race::{Cell, Clock, Raw};

/// Where shared memory begins in its window: an address that is a null pointer or a plain offset is out of bounds.
pub(in crate::sim::ptx) const SHARED: u64 = 1024;
/// The tags of generic addresses.
pub(in crate::sim::ptx) const GENERIC_SHARED: u64 = 1 << 60;
pub(in crate::sim::ptx) const GENERIC_LOCAL: u64 = 2 << 60;
pub(in crate::sim::ptx) const GENERIC_PARAM: u64 = 3 << 60;
const TAG: u64 = 15 << 60;
/// Bits of an address that count buffers.
const BUFFER_SHIFT: u32 = 40;
/// Bits of a shared address that count blocks of the cluster.
const RANK_SHIFT: u32 = 24;

/// A state space of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Space {
    Global,
    Shared,
    Local,
    Param,
    Generic,
}

/// A memory of bytes.
#[derive(Debug, Clone, Default)]
pub(in crate::sim::ptx) struct Bytes {
    /// For messages.
    pub name: String,
    pub bytes: Vec<u8>,
    /// 1 for each byte that has been written; empty where all bytes are from the start, and then no thread may write.
    pub written: Vec<u8>,
    /// The address of the first byte, in its own state space.
    pub base: u64,
    /// What is known of the accesses of each unit ([`World::unit_shift`]).
    pub cells: Vec<Cell>,
    /// The last write and the last read of each unit.
    pub sites: Vec<[Site; 2]>,
    /// Bytes that `ld.global.nc` has read in this kernel; empty until there is one.
    pub constant: Vec<u8>,
}

/// An access: its line, and the number of its block in the grid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Site {
    pub line: u32,
    pub block: u32,
}

/// The bytes of an access.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim::ptx) struct Spot {
    /// The number of the memory in [`World::memories`].
    pub memory: usize,
    pub offset: usize,
}

/// The value of a kernel parameter.
#[derive(Debug, Clone)]
pub(in crate::sim::ptx) enum ParamValue {
    /// An address, or the value of a dynamic size.
    Number(u64),
    /// A tensor map, and the number of its array in [`World::memories`].
    Map(TensorMap, usize),
}

/// A digest of what an instruction wrote, whatever order threads ran in.
#[derive(Debug, Clone, Copy)]
pub(in crate::sim::ptx) struct Trace {
    /// The line of the instruction; without one, all that access memory, wait or branch.
    pub line: Option<u32>,
    pub digest: u64,
}

/// What the warps of a cluster share.
#[derive(Debug)]
pub(in crate::sim::ptx) struct World {
    /// Device buffers, then the shared memory of the blocks of the cluster by rank.
    pub memories: Vec<Bytes>,
    /// How many device buffers there are.
    pub buffers: usize,
    /// The parameters of the kernel that runs, with their places in the parameter space.
    pub params: Vec<(u32, u32, ParamValue)>,
    /// What orders accesses.
    pub clock: Clock,
    /// When asynchronous operations land.
    pub landing: Landing,
    /// mbarriers and what is under way.
    pub tensor: tensor::State,
    /// Whether races are looked for.
    pub races: bool,
    /// Bytes of a unit of [`Bytes::cells`], as a power of two.
    pub unit_shift: u32,
    /// Blocks of the cluster that have ended.
    pub ended: Vec<bool>,
    /// Blocks of a cluster.
    pub cluster: [u32; 3],
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// The block of the grid that the cluster's first block is.
    pub origin: [u32; 3],
    pub shared_bytes: u32,
    /// The line of the instruction that runs, and the number in the grid of its cluster's first block.
    pub line: u32,
    pub number: u32,
    /// Instructions of warps that have run, and the most that may.
    pub steps: u64,
    pub limit: u64,
    /// Stores of single threads that have run.
    pub stores: u64,
    /// Counts what a blocked warp may wait for: phases that end, copies that land.
    pub progress: u64,
    /// The instruction whose results are gathered.
    pub trace: Option<Trace>,
    /// The kernel may have begun before the one in front of it ended.
    pub early: bool,
    /// The kernel runs concurrently with preceding kernels, and waits for them before it ends.
    pub concurrent: bool,
}

impl World {
    /// A world without memory.
    pub fn new(limit: u64, races: bool) -> World {
        World {
            memories: Vec::new(),
            buffers: 0,
            params: Vec::new(),
            clock: Clock::default(),
            landing: Landing::Late,
            tensor: tensor::State::default(),
            races,
            unit_shift: 0,
            ended: Vec::new(),
            cluster: [1; 3],
            grid: [1; 3],
            block: [1; 3],
            origin: [0; 3],
            shared_bytes: 0,
            line: 0,
            number: 0,
            steps: 0,
            stores: 0,
            limit,
            progress: 0,
            trace: None,
            early: false,
            concurrent: false,
        }
    }

    /// The address at which a buffer begins.
    pub fn buffer_address(number: usize, align: u32) -> u64 {
        ((number as u64 + 1) << BUFFER_SHIFT) + u64::from(align.max(1))
    }

    /// Blocks of a cluster.
    pub fn blocks(&self) -> usize {
        self.cluster.iter().map(|n| *n as usize).product()
    }

    /// The shared address of the same place in another block of the cluster (`mapa`).
    pub fn address_in(address: u64, rank: usize) -> u64 {
        address & ((1 << RANK_SHIFT) - 1) | ((rank as u64 + 1) << RANK_SHIFT)
    }

    /// The rank of the block that a shared address names, and the offset in its shared memory (which may be outside).
    pub fn shared_place(&self, rank: usize, address: u64) -> (usize, i64) {
        let at = address & !TAG;
        let named = at >> RANK_SHIFT;
        let rank = if named == 0 { rank as u64 } else { named - 1 };
        (rank as usize, (at & ((1 << RANK_SHIFT) - 1)) as i64 - SHARED as i64)
    }

    /// The memory and the offset of `bytes` bytes at an address, for a lane of a block of that rank. The address has to be a
    /// multiple of `align`.
    pub fn locate(
        &self,
        (space, rank, lane): (Space, usize, usize),
        address: u64,
        bytes: usize,
        align: usize,
    ) -> Result<Spot, Trap> {
        let shared = match space {
            Space::Shared => true,
            Space::Generic => address & TAG == GENERIC_SHARED,
            _ => false,
        };
        let (memory, offset) = if shared {
            let (rank, offset) = self.shared_place(rank, address);
            if self.ended.get(rank) == Some(&true) {
                let message = format!("the shared memory of block {rank} of the cluster, which has ended, is accessed");
                return Err(Trap::lane(Code::PtxEnded, lane, message));
            }
            (self.buffers + rank, offset)
        } else {
            let number = (address >> BUFFER_SHIFT) as usize;
            let memory = number.wrapping_sub(1);
            let base = self.memories.get(memory).map_or(0, |m| m.base);
            (if memory < self.buffers { memory } else { usize::MAX }, address.wrapping_sub(base) as i64)
        };
        let Some(found) = self.memories.get(memory) else {
            let message = format!("address {address:#x} is in no buffer");
            return Err(Trap::lane(Code::PtxBounds, lane, message));
        };
        if offset < 0 || offset as usize + bytes > found.bytes.len() {
            let message = format!(
                "{bytes} bytes at byte {offset} of {} are outside of its {} bytes",
                found.name,
                found.bytes.len()
            );
            return Err(Trap::lane(Code::PtxBounds, lane, message));
        }
        if !(found.base + offset as u64).is_multiple_of(align as u64) {
            let message = format!(
                "the address of byte {offset} of {} is no multiple of {align}, the size of the access",
                found.name
            );
            return Err(Trap::lane(Code::PtxMisaligned, lane, message));
        }
        Ok(Spot { memory, offset: offset as usize })
    }

    /// What the threads of a warp, or an agent of it, do at one time: pass it to [`World::read`] and [`World::write`].
    pub fn access(&mut self, by: Accessor, shared: bool) -> Raw {
        self.clock.raw(by.warp, by.agent, shared)
    }

    /// Whether a memory is shared memory.
    pub fn is_shared(&self, memory: usize) -> bool {
        memory >= self.buffers
    }

    fn site(&self) -> Site {
        Site { line: self.line, block: self.number }
    }

    fn units(&self, spot: Spot, bytes: usize) -> std::ops::Range<usize> {
        spot.offset >> self.unit_shift..(spot.offset + bytes).div_ceil(1 << self.unit_shift)
    }

    /// Reads bytes: never-written bytes and races are faults.
    #[inline]
    pub fn read(&mut self, raw: &Raw, lane: usize, spot: Spot, out: &mut [u8]) -> Result<(), Trap> {
        self.note_read(raw, lane, spot, out.len())?;
        out.copy_from_slice(&self.memories[spot.memory].bytes[spot.offset..spot.offset + out.len()]);
        Ok(())
    }

    /// Notes that bytes are read, without reading them.
    #[inline]
    pub fn note_read(&mut self, raw: &Raw, lane: usize, spot: Spot, bytes: usize) -> Result<(), Trap> {
        let (units, site) = (self.units(spot, bytes), self.site());
        let memory = &mut self.memories[spot.memory];
        if !memory.written.is_empty() {
            let marks = &memory.written[spot.offset..spot.offset + bytes];
            let unwritten = marks.iter().position(|m| *m == 0);
            if let Some(cells) = memory.cells.get_mut(units.clone()) {
                if let Err(n) = self.clock.raw_read(raw, lane, cells) {
                    return Err(self.race(lane, spot.memory, units.start + n, false));
                }
                memory.sites[units].iter_mut().for_each(|s| s[1] = site);
            }
            if let Some(n) = unwritten {
                let byte = spot.offset + n;
                let message = format!("byte {byte} of {} is read, but nothing has written it", memory.name);
                return Err(Trap::lane(Code::PtxUninitialised, lane, message).of(spot.memory, byte, false));
            }
        }
        Ok(())
    }

    /// Writes bytes; races and read-only buffers are faults.
    #[inline]
    pub fn write(&mut self, raw: &Raw, lane: usize, spot: Spot, data: &[u8]) -> Result<(), Trap> {
        self.note_write(raw, lane, spot, data.len(), false)?;
        self.set(spot, data);
        Ok(())
    }

    /// Stores bytes and marks them as written, without looking for races.
    #[inline]
    pub fn set(&mut self, spot: Spot, data: &[u8]) {
        let memory = &mut self.memories[spot.memory];
        let range = spot.offset..spot.offset + data.len();
        memory.bytes[range.clone()].copy_from_slice(data);
        memory.written[range].fill(1);
    }

    /// Notes that bytes are written, or (`copies`) that a copy to them begins, without writing them.
    #[inline]
    pub fn note_write(&mut self, raw: &Raw, lane: usize, spot: Spot, bytes: usize, copies: bool) -> Result<(), Trap> {
        let (units, site) = (self.units(spot, bytes), self.site());
        let memory = &mut self.memories[spot.memory];
        if memory.written.is_empty() {
            let message = format!("{} is written, but the program only reads it", memory.name);
            return Err(Trap::lane(Code::PtxReadonly, lane, message));
        }
        if !memory.constant.is_empty() && memory.constant[spot.offset..spot.offset + bytes].contains(&1) {
            let message = format!("{} is written where ld.global.nc has read it in the same kernel", memory.name);
            return Err(Trap::lane(Code::PtxNc, lane, message));
        }
        if let Some(cells) = memory.cells.get_mut(units.clone()) {
            if let Err(n) = self.clock.raw_write(raw, lane, cells, copies) {
                return Err(self.race(lane, spot.memory, units.start + n, true));
            }
            memory.sites[units].iter_mut().for_each(|s| s[0] = site);
        }
        Ok(())
    }

    /// Notes that ld.global.nc reads bytes: the kernel may not write them.
    pub fn note_constant(&mut self, lane: usize, spot: Spot, bytes: usize) -> Result<(), Trap> {
        let units = self.units(spot, bytes);
        let memory = &mut self.memories[spot.memory];
        if memory.written.is_empty() {
            return Ok(());
        }
        let cells = memory.cells.get(units).unwrap_or_default();
        if cells.iter().any(|c| c.write != 0 && self.clock.is_of_kernel(c.write)) {
            let message = format!("ld.global.nc reads {} where the same kernel has written it", memory.name);
            return Err(Trap::lane(Code::PtxNc, lane, message));
        }
        memory.constant.resize(memory.bytes.len(), 0);
        memory.constant[spot.offset..spot.offset + bytes].fill(1);
        Ok(())
    }

    /// Forgets the bytes of a copy that begins: they hold nothing until it lands.
    pub fn poison(&mut self, spot: Spot, bytes: usize) {
        let memory = &mut self.memories[spot.memory];
        memory.bytes[spot.offset..spot.offset + bytes].fill(0xA5);
        memory.written[spot.offset..spot.offset + bytes].fill(0);
    }

    /// Copies to these bytes, under way until now, are writes of that agent from now on.
    pub fn land(&mut self, spot: Spot, bytes: usize, by: Accessor) {
        let units = self.units(spot, bytes);
        self.clock.tick();
        let memory = &mut self.memories[spot.memory];
        self.clock.raw_land(&mut memory.cells, units, by);
    }

    /// A race on a unit of a memory.
    #[cold]
    fn race(&self, lane: usize, memory: usize, unit: usize, write: bool) -> Trap {
        let found = &self.memories[memory];
        let (cell, [written, read]) = (found.cells[unit], found.sites[unit]);
        let byte = unit << self.unit_shift;
        // A write that is not ordered with this access, or else the reads that this write is not ordered with.
        let by_read = write && cell.read != 0 && self.clock.is_of_kernel(cell.read) && read.line != 0;
        let (stamp, site) = if by_read { (cell.read, read) } else { (cell.write, written) };
        let verb = |write| if write { "written" } else { "read" };
        let message = format!(
            "byte {byte} of {} is {} by two threads, and nothing orders them: {} is the other",
            found.name,
            if write != by_read { verb(write) } else { "read and written" },
            self.clock.who(stamp),
        );
        let at = Some(At { memory, byte, write });
        Trap { at, other: Some(site.line), other_block: Some(site.block), ..Trap::lane(Code::PtxRace, lane, message) }
    }

    /// The tensor map that a generic address of the parameter space names, and the memory of its array.
    pub fn tensor_map(&self, address: u64) -> Option<(&TensorMap, usize)> {
        if address & TAG != GENERIC_PARAM {
            return None;
        }
        let at = (address & !TAG) as u32;
        self.params.iter().find_map(|(offset, _, value)| match value {
            ParamValue::Map(map, memory) if *offset == at => Some((map, *memory)),
            _ => None,
        })
    }

    /// The value of `bytes` bytes of the parameter space.
    pub fn param(&self, offset: u32, bytes: u32) -> Option<u64> {
        self.params.iter().find_map(|(at, size, value)| match value {
            ParamValue::Number(value) if *at <= offset && offset + bytes <= at + size => {
                let value = value >> (8 * (offset - at));
                Some(if bytes >= 8 { value } else { value & ((1 << (8 * bytes)) - 1) })
            }
            _ => None,
        })
    }
}
