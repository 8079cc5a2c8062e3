//! Mbarriers: phases that end when all arrivals have come and all bytes that they wait for have landed (PTX ISA,
//! "Parallel Synchronization and Communication Instructions: mbarrier").
//!
//! The count of bytes may be negative while arrivals are pending: copies may land before the arrival that expects them.
//! A wait that sees a phase end learns what all who arrived in it had seen, and the copies that landed in it.
//!
//! The instruction waits for a parity, not for a phase. So a wait for phase p is right in every order only if its thread knows
//! that phase p-1 has ended, and if phase p+1 cannot end before that thread has passed. Both are decided by what happens
//! before what, so the verdict does not depend on the order that is drawn.

use super::clocks::{Accessor, Clocks, Life, Seen};
use super::listen;
use super::scene::MbarrierState;
use super::warp::Trap;
use crate::ir::Func;

/// The largest count of bytes, either way.
const MOST_BYTES: i64 = (1 << 20) - 1;

/// One mbarrier.
#[derive(Debug, Clone, Default)]
pub(super) struct Mbarrier {
    /// When it was initialised, as a stamp; 0 if it was not.
    init: u64,
    arrivals: u32,
    pending: u32,
    bytes: i64,
    /// Phases that are over.
    over: i64,
    /// Phases up to the last one that bytes have landed in, and up to the last one that somebody has seen end.
    filled: i64,
    seen: i64,
    arriving: Seen,
    done: Seen,
    /// Who has waited for the last phase that is over.
    waited: Vec<Party>,
    /// The warp and lane that arrived last.
    last: Option<(usize, usize)>,
}

/// The mbarriers of the blocks of a cluster, block after block, array after array.
#[derive(Debug, Clone, Default)]
pub(super) struct Mbarriers {
    /// Slots and arrivals of each array, and the number of its first mbarrier.
    arrays: Vec<(i64, u32, usize)>,
    slots: Vec<Mbarrier>,
    /// Of a block.
    each: usize,
    /// The rank of the block whose warp runs.
    pub rank: usize,
    /// The ranks of the blocks that have ended: their shared memory is nobody's any more.
    ended: Vec<usize>,
}

/// The lanes that do something to an mbarrier, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Party {
    pub warp: usize,
    pub mask: u32,
    pub full: u32,
    pub now: u64,
}

impl Party {
    fn lane(self) -> usize {
        (self.mask.trailing_zeros() as usize).min(31)
    }

    fn lanes(self) -> impl Iterator<Item = usize> {
        (0..32).filter(move |l| self.mask >> l & 1 == 1)
    }
}

fn wrong(lane: usize, slot: usize, what: &'static str) -> Trap {
    Trap::Mbarrier { lane, slot, what }
}

impl Mbarriers {
    /// Those of a kernel with so many blocks in a cluster, none initialised.
    pub fn of(func: &Func, blocks: usize) -> Mbarriers {
        let mut out = Mbarriers::default();
        for b in &func.mbarriers {
            out.arrays.push((i64::from(b.slots), b.arrivals, out.each));
            out.each += b.slots as usize;
        }
        out.slots = vec![Mbarrier::default(); out.each * blocks.max(1)];
        out
    }

    /// Forgets everything: a block begins.
    pub fn reset(&mut self) {
        self.slots.fill(Mbarrier::default());
        self.ended.clear();
    }

    /// A block of the cluster has ended.
    pub fn end(&mut self, rank: usize) {
        self.ended.push(rank);
    }

    /// Nobody may reach a block that has ended.
    pub fn reach(&self, rank: usize, lane: usize, slot: usize) -> Result<(), Trap> {
        match self.ended.contains(&rank) {
            true => Err(wrong(lane, slot, "is of a block that may have ended before it is reached")),
            false => Ok(()),
        }
    }

    /// The number of a slot of an array of the block whose warp runs.
    pub fn number(&self, array: u32, index: i64, lane: usize) -> Result<usize, Trap> {
        self.number_in(self.rank, array, index, lane)
    }

    /// The number of a slot of an array of a block of the cluster.
    pub fn number_in(&self, rank: usize, array: u32, index: i64, lane: usize) -> Result<usize, Trap> {
        let (slots, _, first) =
            self.arrays.get(array as usize).ok_or(Trap::Broken("an array of mbarriers is missing"))?;
        if (rank + 1) * self.each > self.slots.len() {
            return Err(Trap::Broken("an mbarrier of a block that the cluster does not have"));
        }
        self.reach(rank, lane, *first)?;
        match (0..*slots).contains(&index) {
            true => Ok(rank * self.each + first + index as usize),
            false => Err(wrong(lane, *first, "is indexed outside its array")),
        }
    }

    /// Every mbarrier of a block of the cluster.
    pub fn states(&self, rank: usize) -> Vec<MbarrierState> {
        let own = (rank * self.each..(rank + 1) * self.each).filter_map(|n| Some((n, self.slots.get(n)?)));
        let state = |(number, slot): (usize, &Mbarrier)| MbarrierState {
            at: self.place(number),
            phase: (slot.init != 0).then_some(slot.over),
            arrived: slot.arrivals - slot.pending,
            of: slot.arrivals,
            bytes: slot.bytes,
        };
        own.map(state).collect()
    }

    /// Where the mbarrier of a number is.
    pub fn place(&self, number: usize) -> listen::Mbarrier {
        let (rank, inside) = (number / self.each.max(1), number % self.each.max(1));
        let array = self.arrays.iter().rposition(|(_, _, first)| *first <= inside).unwrap_or(0);
        let first = self.arrays.get(array).map_or(0, |a| a.2);
        listen::Mbarrier { rank, array: array as u32, index: (inside - first) as i64 }
    }

    /// A thread initialises them all.
    pub fn init(&mut self, party: Party) -> Result<(), Trap> {
        for (slots, arrivals, first) in &self.arrays {
            let first = self.rank * self.each + first;
            for number in first..first + *slots as usize {
                let slot = &mut self.slots[number];
                if slot.init != 0 || party.mask.count_ones() > 1 {
                    return Err(wrong(party.lane(), number, "is initialised more than once"));
                }
                let init = Accessor::thread(party.warp, party.lane()).stamp(party.now);
                *slot = Mbarrier { init, arrivals: *arrivals, pending: *arrivals, ..Mbarrier::default() };
            }
        }
        Ok(())
    }

    fn slot(&mut self, number: usize, party: Party, clocks: &Clocks) -> Result<&mut Mbarrier, Trap> {
        let slot = self.slots.get_mut(number).ok_or(Trap::Broken("an mbarrier is missing"))?;
        if slot.init == 0 {
            return Err(wrong(party.lane(), number, "is used, but nothing has initialised it"));
        }
        let life = Life { born: 0, ordered: true };
        if party.lanes().any(|l| !clocks.after(slot.init, Accessor::thread(party.warp, l), life)) {
            return Err(wrong(party.lane(), number, "is used, and nothing orders the use after its initialisation"));
        }
        Ok(slot)
    }

    /// Lanes arrive, each expecting so many bytes besides.
    pub fn arrive(&mut self, number: usize, bytes: u32, party: Party, clocks: &Clocks) -> Result<(), Trap> {
        let slot = self.slot(number, party, clocks)?;
        let arrivals = party.mask.count_ones();
        slot.bytes += i64::from(bytes) * i64::from(arrivals);
        if arrivals > slot.pending {
            return Err(wrong(party.lane(), number, "has more arrivals in a phase than it was initialised with"));
        }
        slot.pending -= arrivals;
        slot.arriving.join(&clocks.release(party.warp, party.mask, party.full, party.now));
        slot.last = Some((party.warp, party.lane()));
        self.turn(number, party.lane(), clocks)
    }

    /// So many bytes of a bulk copy have landed.
    pub fn land(&mut self, number: usize, bytes: u32, now: u64, clocks: &Clocks) -> Result<(), Trap> {
        let slot = self.slots.get_mut(number).ok_or(Trap::Broken("an mbarrier is missing"))?;
        slot.bytes -= i64::from(bytes);
        slot.filled = slot.over + 1;
        slot.arriving.add(clocks.landing(number), now);
        self.turn(number, 0, clocks)
    }

    /// Ends the phase if all has come.
    fn turn(&mut self, number: usize, lane: usize, clocks: &Clocks) -> Result<(), Trap> {
        let phases = clocks.phases(number, self.slots.len());
        let slot = &mut self.slots[number];
        if slot.bytes.abs() > MOST_BYTES {
            return Err(wrong(lane, number, "counts more bytes than it can"));
        }
        if slot.pending == 0 && slot.bytes < 0 {
            return Err(wrong(lane, number, "has more bytes landing in a phase than its arrivals expect"));
        }
        if slot.pending == 0 && slot.bytes == 0 {
            slot.over += 1;
            slot.pending = slot.arrivals;
            slot.done = std::mem::take(&mut slot.arriving);
            let passed = |p: &Party| slot.done.has((p.warp, p.mask, p.full), p.now);
            if !slot.waited.iter().all(passed) {
                let what = "may end its next phase before a thread that waits for this one has seen it end: the parity no longer \
                            tells the two apart";
                return Err(wrong(lane, number, what));
            }
            slot.waited.clear();
            slot.done.add(phases, slot.over as u64);
        }
        Ok(())
    }

    /// Whether bytes have landed that no thread has waited for: only by chance did they land before the end.
    pub fn is_left_alone(&self) -> bool {
        self.slots.iter().any(|s| s.filled > s.seen)
    }

    /// How many phases of an mbarrier are over.
    pub fn over(&self, number: usize) -> i64 {
        self.slots.get(number).map_or(0, |s| s.over)
    }

    /// Lanes wait for a phase; false if it is not over. What the instruction knows of it is its parity, so a phase further on
    /// or further back would be taken for another.
    pub fn wait(&mut self, number: usize, phase: i64, party: Party, clocks: &mut Clocks) -> Result<bool, Trap> {
        let over = self.slot(number, party, clocks)?.over;
        if over >= phase + 2 {
            let what = "has ended two phases since the one that is waited for, whose parity no longer tells them apart";
            return Err(wrong(party.lane(), number, what));
        }
        if over < phase {
            let what = "is not yet in the phase that is waited for: one with the same parity is over";
            return Err(wrong(party.lane(), number, what));
        }
        let phases = clocks.phases(number, self.slots.len());
        if !party.lanes().all(|l| clocks.knows((party.warp, l), phases, phase.max(0) as u64)) {
            let what = "may not be in the phase that is waited for when the wait begins: nothing orders the wait after \
                        the end of the previous phase, and one with the same parity is over";
            return Err(wrong(party.lane(), number, what));
        }
        if over == phase {
            return Ok(false);
        }
        let slot = &mut self.slots[number];
        slot.seen = slot.seen.max(phase + 1);
        slot.waited.push(party);
        clocks.acquire(party.warp, party.mask, party.full, &slot.done);
        Ok(true)
    }

    /// `full[1], which is in phase 2 with 3 of 4 arrivals`, and who arrived last.
    pub fn state(&self, func: &Func, number: usize) -> String {
        let name = name(func, number);
        let Some(slot) = self.slots.get(number) else { return name };
        let bytes = match slot.bytes {
            0 => String::new(),
            n if n > 0 => format!(", {n} bytes missing"),
            n => format!(", {} bytes too many", -n),
        };
        let last = match slot.last {
            None => "no thread has arrived".to_string(),
            Some((warp, lane)) => format!("the last to arrive was lane {lane} of warp {warp}"),
        };
        format!(
            "{name}, which is in phase {} with {} of {} arrivals{bytes}; {last}",
            slot.over,
            slot.arrivals - slot.pending,
            slot.arrivals
        )
    }
}

/// `full[1]`: the name of an mbarrier of a block.
pub(super) fn name(func: &Func, slot: usize) -> String {
    let each: u32 = func.mbarriers.iter().map(|b| b.slots).sum();
    let mut rest = slot % (each as usize).max(1);
    for b in &func.mbarriers {
        match rest.checked_sub(b.slots as usize) {
            None => return format!("{}[{rest}]", b.name),
            Some(more) => rest = more,
        }
    }
    "of no array".to_string()
}
