//! Roles, elected threads and mbarriers: compiling them, and running what is not plain control.

use super::access::World;
use super::code::{LANES, Op, Operand, SiteKind};
use super::compile::Compiler;
use super::index::Meaning;
use super::listen::{Arrival, EventKind, Phase};
use super::mbarrier::Party;
use super::warp::{Trap, Warp};
use crate::error::{Code, Error, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{Axis, Elect, Index, RoleBody, Slot, Stmt, Sync, SyncKind, visit};

/// The warps that wait at a barrier, counted in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meeting {
    pub first: usize,
    pub warps: usize,
}

impl Meeting {
    pub fn range(self) -> std::ops::Range<usize> {
        self.first..self.first + self.warps
    }
}

/// The warps that run the code being compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub first: u32,
    pub warps: u32,
    pub is_role: bool,
}

/// Whether what orders the kernel's accesses is more than barriers of the block and the warp.
pub(super) fn needs_clocks(kernel: &LoweredKernel) -> bool {
    let mut found = !kernel.func.mbarriers.is_empty() || kernel.cluster() > 1;
    visit::walk(&kernel.func.body, &mut |s| {
        found |= match s {
            Stmt::Role(_) | Stmt::Elect(_) | Stmt::Bulk(_) => true,
            Stmt::Sync(s) => {
                !matches!(s.kind, SyncKind::Block | SyncKind::Warp | SyncKind::Commit | SyncKind::Wait { .. })
            }
            _ => false,
        };
    });
    found
}

impl Compiler<'_> {
    /// Compiles what the warps of a role run: the variable of their threads, and what is derived from it, count in the role.
    pub fn role(&mut self, r: &RoleBody) -> Result<()> {
        if self.slice.is_role {
            return Err(Error::bug(Code::SimRole, "a role is inside a role"));
        }
        let all = self.slice;
        let threads: Vec<_> = self.plan.launch.iter().filter(|(a, ..)| !a.is_block_level()).copied().collect();
        let &[(Axis::ThreadX, var, _)] = threads.as_slice() else {
            return Err(Error::bug(Code::SimRole, "a kernel of roles numbers its threads along threadIdx.x alone"));
        };
        let outside = (self.vars.get(&var).cloned(), self.ranges.get(&var).copied(), self.loops.clone());
        let at = self.body_len();
        self.emit(Op::Role { first: r.first, warps: r.warps, exit: 0 });
        let own = self.operand(&(Index::Var(var) - i64::from(r.first) * LANES as i64))?;
        self.rename(var, own, i128::from(r.warps) * LANES as i128);
        self.slice = Slice { first: r.first, warps: r.warps, is_role: true };
        self.body(&r.body)?;
        self.slice = all;
        if let (Some(meaning), Some(range)) = (outside.0, outside.1) {
            self.vars.insert(var, meaning);
            self.ranges.insert(var, range);
        }
        self.loops = outside.2;
        self.close(at, false);
        Ok(())
    }

    fn rename(&mut self, var: crate::ir::Var, own: Operand, extent: i128) {
        self.vars.insert(var, Meaning::Slots(own));
        self.ranges.insert(var, (0, extent - 1));
        self.loops.iter_mut().filter(|(v, _)| *v == var).for_each(|(_, o)| *o = own);
    }

    /// Compiles what one thread of several warps runs.
    pub fn elect(&mut self, e: &Elect) -> Result<()> {
        let at = self.body_len();
        self.here(SiteKind::Sync("one thread is elected".to_string()));
        self.emit(Op::Elect { first: self.slice.first, warps: e.warps.max(1), exit: 0 });
        self.body(&e.body)?;
        self.close(at, true);
        Ok(())
    }

    /// Where what began at `at` ends.
    fn close(&mut self, at: usize, rejoins: bool) {
        if rejoins {
            self.emit(Op::Rejoin);
        }
        let length = (self.body_len() - at) as u32;
        if let Some(Op::Role { exit, .. } | Op::Elect { exit, .. }) = self.op_mut(at) {
            *exit = length;
        }
    }

    /// Compiles synchronisation.
    pub fn sync(&mut self, sync: &Sync) -> Result<()> {
        let op = match &sync.kind {
            // A hint, of which no memory knows.
            SyncKind::Prefetch { .. }
            | SyncKind::PrefetchLine { .. }
            | SyncKind::PrefetchMap { .. }
            | SyncKind::Narrow { .. } => return Ok(()),
            SyncKind::Block => self.meeting(self.slice.warps),
            SyncKind::Warpgroup => self.meeting(4),
            // `verify` has seen that nothing but mbarriers needs the order.
            SyncKind::Cluster | SyncKind::ClusterRelaxed => Op::ClusterBarrier,
            SyncKind::Warp => Op::WarpBarrier,
            SyncKind::Commit => Op::Commit,
            SyncKind::Wait { groups } => Op::Wait { groups: *groups },
            SyncKind::ProxyFence => Op::ProxyFence,
            // The kernels run one after the other here: when the next one begins changes nothing.
            SyncKind::GridWait | SyncKind::GridRelease => Op::Grid { waits: sync.kind == SyncKind::GridWait },
            SyncKind::BulkCommit => Op::BulkCommit,
            SyncKind::BulkWait { groups, read } => Op::BulkWait { groups: *groups, read: *read },
            SyncKind::InitBarriers => Op::InitBarriers,
            SyncKind::Expect { slot, bytes } => self.arrive(slot, bytes, 0)?,
            SyncKind::Arrive { slot, blocks } => self.arrive(slot, &Index::Int(0), blocks.unwrap_or(0))?,
            SyncKind::Await { slot, phase } => {
                let at = self.slot(slot)?;
                Op::Await { array: slot.barrier, at, phase: self.operand(phase)? }
            }
            SyncKind::ProductFence => Op::ProductFence,
            SyncKind::ProductCommit => Op::ProductCommit,
            SyncKind::ProductWait { groups } => Op::ProductWait { groups: *groups },
        };
        let reason = match &sync.kind {
            SyncKind::Block | SyncKind::Warp | SyncKind::Commit | SyncKind::Wait { .. } => sync.reason.clone(),
            kind => format!("{} ({})", kind.word(), sync.reason),
        };
        self.here(SiteKind::Sync(reason));
        self.emit(op);
        Ok(())
    }

    fn meeting(&self, every: u32) -> Op {
        Op::Barrier { first: self.slice.first, every: every.max(1), most: self.slice.warps }
    }

    fn slot(&mut self, slot: &Slot) -> Result<Operand> {
        self.operand(&slot.index)
    }

    fn arrive(&mut self, slot: &Slot, bytes: &Index, blocks: u32) -> Result<Op> {
        let (at, bytes) = (self.slot(slot)?, self.operand(bytes)?);
        Ok(Op::Arrive { array: slot.barrier, at, bytes, blocks })
    }
}

impl Warp {
    /// Those who meet where this warp stands.
    pub fn meeting(&self, first: u32, every: u32, most: u32) -> Meeting {
        let [first, every, most] = [first, every, most].map(|n| n as usize);
        let from = self.place().saturating_sub(first) / every * every;
        Meeting { first: self.base + first + from, warps: every.min(most.saturating_sub(from)) }
    }

    /// Of so many warps from `first` on, the first runs what follows with one lane.
    pub fn elect(&mut self, first: u32, warps: u32, exit: u32) -> Result<(), Trap> {
        if !self.place().saturating_sub(first as usize).is_multiple_of(warps as usize) {
            self.pc += exit as usize - 1;
        } else if self.mask != self.full {
            return Err(Trap::Divergence { mask: self.mask });
        } else {
            self.enter(1 << self.elected);
        }
        Ok(())
    }

    fn party(&self, mask: u32, world: &mut World) -> Party {
        Party { warp: self.number, mask, full: self.full, now: world.clock.tick() }
    }

    fn active(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask;
        (0..LANES).filter(move |l| mask >> l & 1 == 1)
    }

    /// Sets up the mbarriers.
    pub fn init_barriers(&self, world: &mut World) -> Result<(), Trap> {
        let party = self.party(self.mask, world);
        world.barriers.init(party)
    }

    /// Arrives with the active lanes, each at the mbarrier that it names: in the first `blocks` blocks of the cluster, or
    /// (for 0) in its own.
    pub fn arrive(
        &self,
        world: &mut World,
        (array, at): (u32, Operand),
        bytes: Operand,
        blocks: u32,
    ) -> Result<(), Trap> {
        let ranks = if blocks == 0 { world.barriers.rank..world.barriers.rank + 1 } else { 0..blocks as usize };
        let lanes: Vec<usize> = self.active().collect();
        let mut rest = self.mask;
        for lane in lanes {
            if rest >> lane & 1 == 0 {
                continue;
            }
            let index = self.value(at, lane);
            let bytes = u32::try_from(self.value(bytes, lane))
                .map_err(|_| Trap::Broken("an mbarrier expects no number of bytes"))?;
            let alike = self.active().filter(|l| self.value(at, *l) == index).fold(0, |m, l| m | 1 << l);
            rest &= !alike;
            let party = self.party(alike, world);
            for rank in ranks.clone() {
                let slot = world.barriers.number_in(rank, array, index, lane)?;
                let over = world.barriers.over(slot);
                if world.is_heard() {
                    let at = world.barriers.place(slot);
                    world.tell(EventKind::Arrival(Arrival { at, bytes }));
                }
                world.barriers.arrive(slot, bytes, party, &world.clock.clocks)?;
                world.tell_over(slot, over);
            }
        }
        Ok(())
    }

    /// Waits with the active lanes; the mbarrier and phase if they cannot go on.
    pub fn await_phase(
        &self,
        world: &mut World,
        array: u32,
        at: Operand,
        phase: Operand,
    ) -> Result<Option<(usize, i64)>, Trap> {
        let lane = (self.mask.trailing_zeros() as usize).min(31);
        let named = |l: usize| (self.value(at, l), self.value(phase, l));
        if self.active().any(|l| named(l) != named(lane)) {
            return Err(Trap::Broken("the lanes of a warp wait for different phases"));
        }
        let (index, phase) = named(lane);
        let slot = world.barriers.number(array, index, lane)?;
        let party = self.party(self.mask, world);
        let over = world.barriers.wait(slot, phase, party, &mut world.clock.clocks)?;
        if over && world.is_heard() {
            let at = world.barriers.place(slot);
            world.tell(EventKind::Passed(Phase { at, phase }));
        }
        Ok((!over).then_some((slot, phase)))
    }
}
