//! Clusters, proxy fences, register counts of warpgroups and grid dependencies (PTX ISA, "barrier.cluster", "mapa",
//! "fence.proxy", "setmaxnreg", "griddepcontrol").
//!
//! # Registers
//!
//! A block of W warps has 65536 registers; each warp begins with the largest multiple of 8 for a thread that they
//! suffice for, at most 255. `setmaxnreg.dec` gives registers back, `setmaxnreg.inc` waits until there are as many as
//! it asks for. The warps of a warpgroup execute the same ones.

use super::super::inst::Inst;
use super::super::trap::Trap;
use super::super::warp::{Context, Next};
use super::super::world::World;
use super::mbarrier::Mbarriers;
use super::operands::{constant, count, unsupported};
use crate::error::{Code, Result};
use crate::sim::clocks::Seen;
use crate::sim::fault::Waits;

/// Registers of a block, and the most of a thread.
const REGISTERS: u32 = 65536;
const MOST_REGISTERS: u32 = 255;
/// Warps of a warpgroup.
const WARPS: usize = 4;

/// A decoded instruction of this module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// `fence.proxy.async`.
    Fence,
    /// `fence.mbarrier_init`.
    FenceInit,
    /// `barrier.cluster.arrive`; `release`: it hands on what its threads have done.
    Arrive {
        release: bool,
    },
    Wait,
    /// The same shared address in another block.
    Map,
    /// More registers, or fewer.
    Registers {
        count: u32,
        more: bool,
    },
    /// `griddepcontrol.wait`, or `.launch_dependents`, which changes nothing here: kernels run one after the other.
    Grid {
        waits: bool,
    },
}

impl Op {
    pub fn decode(inst: &Inst) -> Result<Op> {
        let second = inst.opcode.get(1).map_or("", String::as_str);
        match (inst.opcode[0].as_str(), second) {
            ("fence", "mbarrier_init") => Ok(Op::FenceInit),
            ("fence", _) if inst.opcode.get(2).is_some_and(|m| m == "async") => Ok(Op::Fence),
            ("barrier", _) if inst.has("aligned") && inst.has("wait") => Ok(Op::Wait),
            ("barrier", _) if inst.has("aligned") && inst.has("arrive") => {
                Ok(Op::Arrive { release: !inst.has("relaxed") })
            }
            ("mapa", "shared::cluster") => {
                count(inst, 3..=3)?;
                Ok(Op::Map)
            }
            ("setmaxnreg", "inc" | "dec") => {
                count(inst, 1..=1)?;
                let found = constant(inst, 0)?;
                match found % 8 == 0 && (24..=256).contains(&found) {
                    true => Ok(Op::Registers { count: found as u32, more: second == "inc" }),
                    false => Err(unsupported(inst, &format!("{found} registers are no multiple of 8 from 24 to 256"))),
                }
            }
            ("griddepcontrol", "wait") => Ok(Op::Grid { waits: true }),
            ("griddepcontrol", "launch_dependents") => Ok(Op::Grid { waits: false }),
            _ => Err(unsupported(inst, "this form is not supported")),
        }
    }

    pub fn step(
        &self,
        state: &mut State,
        mbarriers: &mut Mbarriers,
        context: &mut Context<'_>,
    ) -> std::result::Result<Next, Trap> {
        let inst = context.inst;
        let (warp, full) = (context.warp.number, context.warp.full);
        match *self {
            Op::Fence => context.world.clock.fence(warp, context.mask, full),
            Op::FenceInit => mbarriers.fence(warp),
            Op::Arrive { release } => {
                context.aligned()?;
                mbarriers.cluster_arrive(warp);
                let now = context.world.clock.tick();
                let seen = match release {
                    true => context.world.clock.clocks.release(warp, full, full, now),
                    false => Seen::default(),
                };
                state.arrive(warp, &seen)?;
                state.turn(mbarriers, context.world);
            }
            Op::Wait => {
                context.aligned()?;
                state.turn(mbarriers, context.world);
                if !state.is_over(warp)? {
                    return Ok(Next::Blocked);
                }
                context.world.clock.clocks.acquire(warp, full, full, &state.done);
            }
            Op::Map => {
                for lane in context.lanes() {
                    let [at, rank] = [1, 2].map(|n| context.value(&inst.operands[n], lane) & 0xffff_ffff);
                    let blocks = context.world.blocks();
                    if rank as usize >= blocks {
                        let message = format!("mapa names block {rank} of a cluster of {blocks}");
                        return Err(Trap::lane(Code::PtxBounds, lane, message));
                    }
                    context.set(&inst.operands[0], lane, World::address_in(at, rank as usize));
                }
            }
            Op::Registers { count, more } => return state.registers(context, count, more),
            Op::Grid { waits } => context.warp.waited |= if waits { context.mask } else { 0 },
        }
        Ok(Next::Go)
    }
}

/// What a warp has asked of the barrier of the cluster.
#[derive(Debug, Clone, Copy, Default)]
struct Arrival {
    arrived: bool,
    /// Phases that were over when it arrived; `None` before the first arrival and after the wait.
    phase: Option<u64>,
}

/// The barrier of a cluster, and the registers of its warps.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    each: usize,
    arrivals: Vec<Arrival>,
    over: u64,
    arriving: Seen,
    done: Seen,
    /// Registers of a thread of each warp, and how many times it has changed them.
    registers: Vec<(u32, u32)>,
    /// Of each block: registers that no warp has.
    free: Vec<u32>,
    /// By block and warpgroup: what its warps have asked for, in turn.
    asked: Vec<Vec<u32>>,
    waiting: Vec<Option<u32>>,
}

impl State {
    /// A cluster of so many warps begins, so many in a block.
    pub fn begin(&mut self, warps: usize, each: usize) {
        let each = each.max(1);
        let blocks = warps / each;
        let share = (REGISTERS / 32 / each as u32 / 8 * 8).min(MOST_REGISTERS);
        *self = State {
            each,
            arrivals: vec![Arrival::default(); warps],
            registers: vec![(share, 0); warps],
            free: vec![0; blocks],
            asked: vec![Vec::new(); blocks * each.div_ceil(WARPS)],
            waiting: vec![None; warps],
            ..State::default()
        };
    }

    fn arrive(&mut self, warp: usize, seen: &Seen) -> std::result::Result<(), Trap> {
        let over = self.over;
        let Some(mine) = self.arrivals.get_mut(warp) else { return Ok(()) };
        if mine.phase.is_some() {
            let message = "the warp arrives at the barrier of the cluster a second time without waiting there";
            return Err(Trap::warp(Code::PtxCluster, message));
        }
        *mine = Arrival { arrived: true, phase: Some(over) };
        self.arriving.join(seen);
        Ok(())
    }

    /// Ends the phase if all warps of blocks that have not ended have arrived.
    fn turn(&mut self, mbarriers: &mut Mbarriers, world: &mut World) {
        let here = |warp: usize| world.ended.get(warp / self.each) == Some(&true);
        if self.arrivals.iter().enumerate().all(|(warp, a)| a.arrived || here(warp)) {
            self.arrivals.iter_mut().for_each(|a| a.arrived = false);
            self.over += 1;
            self.done = std::mem::take(&mut self.arriving);
            mbarriers.cluster_meet();
            world.progress += 1;
        }
    }

    fn is_over(&mut self, warp: usize) -> std::result::Result<bool, Trap> {
        let over = self.over;
        let Some(mine) = self.arrivals.get_mut(warp) else { return Ok(true) };
        let Some(phase) = mine.phase else {
            return Err(Trap::warp(
                Code::PtxCluster,
                "the warp waits at the barrier of the cluster, where it has not arrived",
            ));
        };
        if phase < over {
            mine.phase = None;
        }
        Ok(phase < over)
    }

    fn registers(&mut self, context: &mut Context<'_>, count: u32, more: bool) -> std::result::Result<Next, Trap> {
        context.aligned()?;
        let (warp, place) = (context.warp.number, context.warp.place);
        if place / WARPS * WARPS + WARPS > self.each {
            let message = format!("warp {place} of a block of {} is in no warpgroup of four", self.each);
            return Err(Trap::warp(Code::PtxSetmaxnreg, message));
        }
        let (mine, times) = self.registers[warp];
        let block = warp / self.each;
        if more && count < mine || !more && count > mine {
            let word = if more { "inc to fewer" } else { "dec to more" };
            let message = format!("setmaxnreg.{word} registers than the {mine} that a thread has: {count}");
            return Err(Trap::warp(Code::PtxSetmaxnreg, message));
        }
        let asked = &mut self.asked[block * self.each.div_ceil(WARPS) + place / WARPS];
        match asked.get(times as usize) {
            Some(theirs) if *theirs != count => {
                let message = format!("a warp of the warpgroup asks for {count} registers, another for {theirs}");
                return Err(Trap::warp(Code::PtxSetmaxnreg, message));
            }
            Some(_) => {}
            None => asked.push(count),
        }
        if more {
            let wanted = (count - mine) * 32;
            if wanted > self.free[block] {
                self.waiting[warp] = Some(count);
                return Ok(Next::Blocked);
            }
            self.free[block] -= wanted;
        } else {
            self.free[block] += (mine - count) * 32;
            context.world.progress += 1;
        }
        self.waiting[warp] = None;
        self.registers[warp] = (count, times + 1);
        Ok(Next::Go)
    }

    /// What warps wait for.
    pub fn waits(&self) -> Vec<Waits> {
        let registers = self.waiting.iter().enumerate().filter_map(|(warp, count)| {
            let count = (*count)?;
            let free = self.free[warp / self.each];
            let does = format!("waits for {count} registers a thread, and {free} of the block's are free");
            Some(Waits { warp, does })
        });
        let barrier = self.arrivals.iter().enumerate().filter(|(_, a)| a.phase == Some(self.over));
        let barrier =
            barrier.map(|(warp, _)| Waits { warp, does: "has arrived at the barrier of the cluster".to_string() });
        registers.chain(barrier).collect()
    }
}
