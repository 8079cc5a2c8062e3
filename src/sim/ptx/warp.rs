//! A warp: its registers and its groups of lanes, and what an instruction may do to it.

use super::flow::{Frame, Group};
use super::inst::{Entry, Inst, Operand};
use super::special;
use super::trap::Trap;
use super::world::{Space, World};
use crate::error::Code;
use crate::sim::clocks::Accessor;

/// Lanes of a warp.
pub(in crate::sim::ptx) const LANES: usize = 32;

/// A register of all lanes; bits above the register's width are zero.
pub(in crate::sim::ptx) type Lanes = [u64; LANES];

/// A warp.
#[derive(Debug, Clone)]
pub(in crate::sim::ptx) struct Warp {
    /// Its number among the warps of its cluster; without clusters, of its block.
    pub number: usize,
    /// Its number in its block.
    pub place: usize,
    /// The rank of its block in the cluster.
    pub rank: usize,
    /// The lanes that exist.
    pub full: u32,
    /// The lanes that have not ended.
    pub live: u32,
    /// The lane that `elect.sync` chooses.
    pub elected: usize,
    pub registers: Vec<Lanes>,
    /// A bit for each lane.
    pub predicates: Vec<u32>,
    /// Local memory of each lane, one behind the other, and which bytes of it have been written.
    pub local: Vec<u8>,
    pub local_written: Vec<bool>,
    pub local_bytes: usize,
    /// Groups of lanes that run the same code together.
    pub groups: Vec<Group>,
    /// The branches that part them.
    pub frames: Vec<Frame>,
    /// The lanes that know that the kernel in front has ended (griddepcontrol.wait).
    pub waited: u32,
    /// Values that nothing has written.
    pub poison: super::poison::Poison,
    /// How often the traced instruction ran in this block.
    pub traced: u64,
    /// Copies of cp.async under way.
    pub copies: super::copies::Copies,
}

/// What follows an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Next {
    /// The next instruction.
    Go,
    /// The same instruction again, once [`World::progress`] has changed: a phase that is not over, a barrier of the cluster.
    Blocked,
}

/// What an instruction sees and changes: the warp, the lanes that execute it, and memory.
pub(in crate::sim::ptx) struct Context<'a> {
    pub entry: &'a Entry,
    pub inst: &'a Inst,
    pub warp: &'a mut Warp,
    /// The lanes that execute the instruction (the guard is applied).
    pub mask: u32,
    pub world: &'a mut World,
}

impl Context<'_> {
    /// The lanes that execute the instruction.
    pub fn lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask;
        (0..LANES).filter(move |l| mask >> l & 1 == 1)
    }

    /// An `.aligned` instruction: all lanes of the warp that have not ended have to execute it.
    pub fn aligned(&self) -> Result<(), Trap> {
        match self.mask == self.warp.full {
            true => Ok(()),
            false => {
                let message = format!(
                    "{} is executed by lanes {:#010x} of a warp whose lanes are {:#010x}",
                    self.inst.name(),
                    self.mask,
                    self.warp.full
                );
                Err(Trap::warp(Code::PtxDivergence, message))
            }
        }
    }

    /// The value of an operand in a lane: a register, an immediate, a special register, or the address of `[..]`. A predicate
    /// is 0 or 1.
    pub fn value(&self, operand: &Operand, lane: usize) -> u64 {
        match operand {
            Operand::Reg { reg, .. } => self.warp.registers[*reg as usize][lane],
            Operand::Pred { reg, negated } => {
                u64::from(self.warp.predicates[*reg as usize] >> lane & 1 == 1) ^ u64::from(*negated)
            }
            Operand::Imm(bits) => *bits,
            Operand::Special(special) => special::value(*special, self.warp, self.world, lane),
            Operand::Address { base, offset } => {
                let base = base.map_or(0, |b| self.warp.registers[b as usize][lane]);
                base.wrapping_add(*offset as u64)
            }
            Operand::Param { offset } => super::world::GENERIC_PARAM + u64::from(*offset),
            Operand::Tensor { map, .. } => self.value(map, lane),
            _ => 0,
        }
    }

    /// Writes a lane of a destination; `_` takes nothing. The value is cut to the register's width.
    pub fn set(&mut self, operand: &Operand, lane: usize, value: u64) {
        match operand {
            Operand::Reg { reg, bits } => {
                let value = if *bits >= 64 { value } else { value & ((1 << bits) - 1) };
                self.warp.registers[*reg as usize][lane] = value;
            }
            Operand::Pred { reg, .. } => {
                let bits = &mut self.warp.predicates[*reg as usize];
                *bits = *bits & !(1 << lane) | (u32::from(value != 0) << lane);
            }
            _ => {}
        }
    }

    /// This thread as an agent.
    pub fn by(&self, lane: usize) -> Accessor {
        Accessor::thread(self.warp.number, lane)
    }

    /// Writes memory as a thread: bounds, alignment and races are checked.
    pub fn write(&mut self, space: Space, lane: usize, address: u64, align: usize, data: &[u8]) -> Result<(), Trap> {
        let spot = self.world.locate((space, self.warp.rank, lane), address, data.len(), align)?;
        let shared = self.world.is_shared(spot.memory);
        self.early(shared, lane)?;
        let raw = self.world.access(self.by(lane), shared);
        self.world.write(&raw, lane, spot, data)
    }

    /// Global memory is not to be accessed while the kernel in front may still run.
    pub fn early(&self, shared: bool, lane: usize) -> Result<(), Trap> {
        if shared || !self.world.early || self.warp.waited >> lane & 1 == 1 {
            return Ok(());
        }
        let message = "global memory is accessed before griddepcontrol.wait, while the previous kernel may still run";
        Err(Trap::lane(Code::PtxPdl, lane, message))
    }
}
