//! Loads, stores and copies of a warp, and what its lanes exchange.

use super::code::{Access, NONE, Op, Shuffle, Vote};
use super::exec::lanes;
use super::trap::Trap;
use super::warp::Warp;
use super::world::{GENERIC_LOCAL, Space, Spot, World};
use crate::error::Code;
use crate::sim::clocks::Accessor;
use crate::sim::race::Raw;

const TAG: u64 = 15 << 60;

/// The accesses of an instruction: to shared memory and to other memory they are different to the clock.
#[derive(Default)]
struct Accesses {
    shared: Option<Raw>,
    other: Option<Raw>,
}

impl Accesses {
    #[inline(always)]
    fn of(&mut self, world: &mut World, warp: usize, spot: Spot) -> Raw {
        let shared = world.is_shared(spot.memory);
        let raw = if shared { &mut self.shared } else { &mut self.other };
        *raw.get_or_insert_with(|| world.access(Accessor::thread(warp, 0), shared))
    }
}

impl Warp {
    /// Where a lane's access goes; local memory is the warp's own.
    #[inline(always)]
    fn spot(&self, world: &World, access: &Access, address: u64, lane: usize) -> Result<Spot, Trap> {
        let bytes = access.bytes as usize * access.values.len();
        let spot = world.locate((access.space, self.rank, lane), address, bytes, bytes)?;
        if world.early && !world.is_shared(spot.memory) && self.waited >> lane & 1 == 0 {
            let message =
                "global memory is accessed before griddepcontrol.wait, while the previous kernel may still run";
            return Err(Trap::lane(Code::PtxPdl, lane, message));
        }
        Ok(spot)
    }

    /// Where a lane's access is in its local memory, if it does.
    fn local(&self, access: &Access, address: u64, lane: usize) -> Result<Option<usize>, Trap> {
        let address = match access.space {
            Space::Local => address,
            Space::Generic if address & TAG == GENERIC_LOCAL => address & !TAG,
            _ => return Ok(None),
        };
        let bytes = access.bytes as u64 * access.values.len() as u64;
        if address.checked_add(bytes).is_none_or(|end| end > self.local_bytes as u64) {
            let message = format!(
                "{bytes} bytes at byte {address} of local memory are outside of its {} bytes",
                self.local_bytes
            );
            return Err(Trap::lane(Code::PtxBounds, lane, message));
        }
        if !address.is_multiple_of(bytes) {
            let message = format!("byte {address} of local memory is no multiple of {bytes}, the size of the access");
            return Err(Trap::lane(Code::PtxMisaligned, lane, message));
        }
        Ok(Some(lane * self.local_bytes + address as usize))
    }

    /// Loads for the lanes of a mask.
    pub fn load(&mut self, world: &mut World, access: &Access, op: &Op, mask: u32) -> Result<(), Trap> {
        let each = access.bytes as usize;
        let size = each * access.values.len();
        let mut raws = Accesses::default();
        let addresses = self.registers[op.a as usize];
        for lane in lanes(mask) {
            let address = addresses[lane].wrapping_add(access.offset as u64);
            let mut raw = [0; 16];
            match self.local(access, address, lane)? {
                Some(at) => {
                    if let Some(n) = self.local_written[at..at + size].iter().position(|w| !w) {
                        let message = format!(
                            "byte {} of local memory is read, but nothing has written it",
                            address as usize + n
                        );
                        let trap = Trap::lane(Code::PtxUninitialised, lane, message);
                        self.poison((&access.values, lane), trap, world.line);
                    }
                    raw[..size].copy_from_slice(&self.local[at..at + size]);
                }
                None => {
                    let spot = self.spot(world, access, address, lane)?;
                    let by = raws.of(world, self.number, spot);
                    if access.constant {
                        world.note_constant(lane, spot, size)?;
                    }
                    match world.read(&by, lane, spot, &mut raw[..size]) {
                        Err(trap) if trap.code == Code::PtxUninitialised => {
                            self.poison((&access.values, lane), trap, world.line);
                        }
                        other => other?,
                    }
                }
            }
            for (n, register) in access.values.iter().enumerate().filter(|(_, r)| **r != NONE) {
                let mut wide = [0; 8];
                wide[..each].copy_from_slice(&raw[n * each..(n + 1) * each]);
                let mut value = u64::from_le_bytes(wide);
                if let Some(bits) = access.signed {
                    let shift = 64 - 8 * access.bytes;
                    value = ((value << shift) as i64 >> shift) as u64;
                    value &= if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
                }
                self.registers[*register as usize][lane] = value;
            }
        }
        Ok(())
    }

    /// Stores for the lanes of a mask.
    pub fn store(&mut self, world: &mut World, access: &Access, op: &Op, mask: u32) -> Result<(), Trap> {
        let each = access.bytes as usize;
        let size = each * access.values.len();
        let mut raws = Accesses::default();
        world.stores += u64::from(mask.count_ones());
        for lane in lanes(mask) {
            let address = self.registers[op.a as usize][lane].wrapping_add(access.offset as u64);
            let mut raw = [0; 16];
            for (n, register) in access.values.iter().enumerate() {
                let value = self.registers[*register as usize][lane].to_le_bytes();
                raw[n * each..(n + 1) * each].copy_from_slice(&value[..each]);
            }
            match self.local(access, address, lane)? {
                Some(at) => {
                    self.local[at..at + size].copy_from_slice(&raw[..size]);
                    self.local_written[at..at + size].fill(true);
                }
                None => {
                    let spot = self.spot(world, access, address, lane)?;
                    let by = raws.of(world, self.number, spot);
                    world.write(&by, lane, spot, &raw[..size])?;
                }
            }
        }
        Ok(())
    }

    /// cp.async for the lanes of a mask.
    pub fn copy(
        &mut self,
        world: &mut World,
        op: &Op,
        (bytes, source): (u32, Option<u32>),
        mask: u32,
    ) -> Result<(), Trap> {
        let [to, from, first, second] = [op.dst, op.a, op.b, op.c].map(|r| self.registers[r as usize]);
        let size = bytes as usize;
        let (mut reads, mut writes) = (Accesses::default(), Accesses::default());
        let access = |space, bytes: usize| Access {
            space,
            offset: 0,
            bytes: bytes as u32,
            values: vec![NONE],
            signed: None,
            constant: false,
        };
        for lane in lanes(mask) {
            let own = source.map_or(bytes, |r| self.registers[r as usize][lane] as u32);
            if own > bytes {
                let message = format!("a copy of {bytes} bytes is to read {own} bytes");
                return Err(Trap::lane(Code::PtxCopy, lane, message));
            }
            let mut data = vec![0; size];
            let target = self.spot(world, &access(Space::Shared, size), to[lane].wrapping_add(first[lane]), lane)?;
            if own > 0 {
                let address = from[lane].wrapping_add(second[lane]);
                let spot = world.locate((Space::Global, self.rank, lane), address, own as usize, size)?;
                let by = reads.of(world, self.number, spot);
                world.read(&by, lane, spot, &mut data[..own as usize])?;
            }
            let by = writes.of(world, self.number, target);
            world.note_write(&by, lane, target, size, true)?;
            let mut copies = std::mem::take(&mut self.copies);
            copies.start(world, lane, target, data);
            self.copies = copies;
        }
        world.stores += u64::from(mask.count_ones());
        Ok(())
    }

    /// shfl.sync (PTX ISA, shfl.sync): a source lane that does not take part has no value.
    pub fn shuffle(&mut self, op: &Op, (mode, predicate): (Shuffle, u32), mask: u32) -> Result<(), Trap> {
        let members = self.uniform(op.d, mask, "the mask")? as u32 & self.full;
        if members != mask {
            return Err(self.apart("shfl.sync", members, mask));
        }
        let [a, b, c] = [op.a, op.b, op.c].map(|r| self.registers[r as usize]);
        let (mut out, mut inside) = (a, 0u32);
        for lane in lanes(mask) {
            let (by, clamp, segment) = (b[lane] as i64 & 31, c[lane] as i64 & 31, c[lane] as i64 >> 8 & 31);
            let own = lane as i64;
            let most = own & segment | clamp & !segment;
            let (from, holds) = match mode {
                Shuffle::Up => (own - by, own - by >= most),
                Shuffle::Down => (own + by, own + by <= most),
                Shuffle::Bfly => (own ^ by, own ^ by <= most),
                Shuffle::Idx => {
                    let from = own & segment | by & !segment;
                    (from, from <= most)
                }
            };
            let from = if holds { from as usize } else { lane };
            if mask >> from & 1 == 0 {
                let message = format!("shfl.sync reads lane {from}, which does not execute it");
                return Err(Trap::lane(Code::PtxDivergence, lane, message));
            }
            out[lane] = a[from];
            inside |= u32::from(holds) << lane;
        }
        if let Some(to) = self.registers.get_mut(op.dst as usize) {
            lanes(mask).for_each(|l| to[l] = out[l]);
        }
        self.put_predicate(mask, predicate, inside);
        Ok(())
    }

    /// vote.sync.
    pub fn vote(&mut self, op: &Op, vote: Vote, mask: u32) -> Result<(), Trap> {
        let members = self.uniform(op.a, mask, "the mask")? as u32 & self.full;
        if members != mask {
            return Err(self.apart("vote.sync", members, mask));
        }
        let holds = |truth: super::code::Truth| truth.mask(&self.predicates) & mask;
        let (value, ballot) = match vote {
            Vote::All(t) => (holds(t) == mask, 0),
            Vote::Any(t) => (holds(t) != 0, 0),
            Vote::Uni(t) => (holds(t) == 0 || holds(t) == mask, 0),
            Vote::Ballot(t) => (false, holds(t)),
        };
        match vote {
            Vote::Ballot(_) => {
                if let Some(to) = self.registers.get_mut(op.dst as usize) {
                    lanes(mask).for_each(|l| to[l] = u64::from(ballot));
                }
            }
            _ => self.put_predicate(mask, op.dst, if value { u32::MAX } else { 0 }),
        }
        Ok(())
    }
}
