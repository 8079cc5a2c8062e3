//! Mbarriers: phases that end when all arrivals have come and all bytes that they expect have landed (PTX ISA,
//! "mbarrier").
//!
//! An mbarrier is where `mbarrier.init` has put it; its 8 bytes hold a pattern, so that whatever else is written there
//! is found. A wait that sees a phase end learns what all who arrived in it had seen, and the copies that landed in it.
//!
//! A wait is told the parity of a phase alone: it passes when the phase that is current has the other parity. So a wait
//! that passes behind phase p is right in every order only if its thread knows that phase p-1 is over, and if phase
//! p+1 cannot end before the thread has passed; one that blocks in phase p, only if its thread knows that phase p-1 is
//! over. What happens before what decides both.
//!
//! A try_wait blocks until the phase is over. So does a test_wait that is repeated although nothing has changed since
//! it failed: it is the wait of a loop, and a deadlock is then seen as one.

use super::super::inst::{Entry, Inst};
use super::super::trap::Trap;
use super::super::warp::{Context, LANES, Next};
use super::super::world::{Space, World};
use super::operands::{address, count, unsupported};
use crate::error::{Code, Result};
use crate::sim::clocks::{Accessor, Clocks, Life, Seen};
use crate::sim::fault::Waits;
use std::collections::BTreeMap;

/// The largest number of arrivals, and of bytes either way.
const MOST: u64 = (1 << 20) - 1;
const MOST_BYTES: i64 = (1 << 20) - 1;
/// What the bytes of an mbarrier hold, besides its number.
const PATTERN: u64 = 0xb4a7_51c3_0000_0000;

/// A decoded instruction of this module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Init,
    Inval,
    /// `tx`: bytes are expected besides, as many as the third operand says.
    Arrive {
        tx: bool,
        remote: bool,
    },
    /// Bytes are expected, without an arrival.
    Expect {
        remote: bool,
    },
    Wait {
        parity: bool,
        tests: bool,
    },
}

impl Op {
    pub fn decode(inst: &Inst) -> Result<Op> {
        if !inst.has("b64") && !inst.has("expect_tx") || inst.has("noComplete") {
            return Err(unsupported(inst, "this form is not supported"));
        }
        let remote = inst.has("shared::cluster");
        if !remote && !inst.has("shared") && !inst.has("shared::cta") {
            return Err(unsupported(inst, "only mbarriers at shared addresses are supported"));
        }
        let (op, operands, at) = match (inst.opcode[1].as_str(), inst.has("expect_tx")) {
            ("init", _) => (Op::Init, 2..=2, 0),
            ("inval", _) => (Op::Inval, 1..=1, 0),
            ("arrive", true) => (Op::Arrive { tx: true, remote }, 3..=3, 1),
            ("arrive", false) => (Op::Arrive { tx: false, remote }, 2..=3, 1),
            ("expect_tx", _) => (Op::Expect { remote }, 2..=2, 0),
            ("test_wait", _) => (Op::Wait { parity: inst.has("parity"), tests: true }, 3..=3, 1),
            ("try_wait", _) => (Op::Wait { parity: inst.has("parity"), tests: false }, 3..=4, 1),
            _ => return Err(unsupported(inst, "this operation on mbarriers is not supported")),
        };
        count(inst, operands)?;
        address(inst, at)?;
        Ok(op)
    }

    pub fn step(&self, state: &mut Mbarriers, context: &mut Context<'_>) -> std::result::Result<Next, Trap> {
        let operands = &context.inst.operands;
        match *self {
            Op::Init => {
                for lane in context.lanes() {
                    let arrivals = context.value(&operands[1], lane) & 0xffff_ffff;
                    state.init(context, lane, context.value(&operands[0], lane), arrivals)?;
                }
            }
            Op::Inval => {
                for (mask, number) in state.named(context, 0, false)? {
                    let spot = (state.all[number].rank, state.all[number].offset);
                    state.by_place.remove(&spot);
                    let lane = mask.trailing_zeros() as usize % LANES;
                    context.write(Space::Shared, lane, context.value(&operands[0], lane), 8, &[0; 8])?;
                }
            }
            Op::Arrive { tx, remote } => {
                for (mask, number) in state.named(context, 1, remote)? {
                    let mut bytes = 0;
                    let mut arrivals = 0;
                    for lane in (0..LANES).filter(|l| mask >> l & 1 == 1) {
                        let third = operands.get(2).map(|o| context.value(o, lane) & 0xffff_ffff);
                        bytes += if tx { third.unwrap_or(0) as i64 } else { 0 };
                        arrivals += if tx { 1 } else { third.unwrap_or(1) };
                    }
                    let before = state.all[number].over;
                    state.arrive(number, bytes, arrivals, mask, context)?;
                    for lane in (0..LANES).filter(|l| mask >> l & 1 == 1) {
                        context.set(&operands[0], lane, before);
                    }
                }
            }
            Op::Expect { remote } => {
                for (mask, number) in state.named(context, 0, remote)? {
                    for lane in (0..LANES).filter(|l| mask >> l & 1 == 1) {
                        let bytes = context.value(&operands[1], lane) & 0xffff_ffff;
                        state.arrive(number, bytes as i64, 0, 1 << lane, context)?;
                    }
                }
            }
            Op::Wait { parity, tests } => return state.wait(context, parity, tests),
        }
        Ok(Next::Go)
    }
}

/// One mbarrier.
#[derive(Debug, Clone)]
struct Mbarrier {
    rank: usize,
    offset: usize,
    /// Its name in the kernel's comments, or where it is.
    name: String,
    /// When it was initialised, as a stamp, and by which warp.
    init: u64,
    by: usize,
    /// Its thread has fenced the initialisation; has arrived at the barrier of the cluster since; all have met there.
    fenced: bool,
    arrived: bool,
    published: bool,
    arrivals: u64,
    left: u64,
    bytes: i64,
    /// Phases that are over.
    over: u64,
    /// Phases up to the last one that bytes have landed in, and up to the last one that somebody has seen end.
    filled: u64,
    seen: u64,
    arriving: Seen,
    done: Seen,
    /// The warp, its lanes, all that it has and the time of each wait that passed behind the last phase that is over.
    waited: Vec<((usize, u32, u32), u64)>,
    last: String,
}

/// The mbarriers of a cluster, and who waits for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Mbarriers {
    all: Vec<Mbarrier>,
    /// By rank and offset in shared memory.
    by_place: BTreeMap<(usize, usize), usize>,
    /// What each warp (and line of the text) waits for.
    waiting: BTreeMap<(usize, u32), (usize, u64)>,
    /// The last failure of a test_wait, by warp and line: what had happened until then.
    failed: BTreeMap<(usize, u32), u64>,
}

/// The agent of the copies that complete on an mbarrier.
pub(super) fn landing(number: usize, clocks: &Clocks) -> usize {
    clocks.landing(2 * number)
}

/// The agent that ends the phases of an mbarrier; its times are numbers of phases.
fn phases(number: usize, clocks: &Clocks) -> usize {
    clocks.landing(2 * number + 1)
}

fn wrong(code: Code, lane: usize, name: &str, what: &str) -> Trap {
    Trap::lane(code, lane, format!("{name} {what}"))
}

/// `A_s_full[1]`, from the comment `# mbarrier A_s_full[4] @131072: ..`; without it, where the mbarrier is.
fn name(entry: &Entry, offset: usize, rank: usize, blocks: usize) -> String {
    let found = entry.notes.iter().filter_map(|(_, text)| text.strip_prefix("# mbarrier ")).find_map(|text| {
        let (array, rest) = text.split_once(" @")?;
        let first: usize = rest.split(':').next()?.trim().parse().ok()?;
        let (array, slots) = array.strip_suffix(']')?.split_once('[')?;
        let slot = offset.checked_sub(first)? / 8;
        (slot < slots.parse().ok()?).then(|| format!("mbarrier {array}[{slot}]"))
    });
    let plain = found.unwrap_or_else(|| format!("the mbarrier at byte {offset} of shared memory"));
    if blocks > 1 { format!("{plain} of block {rank} of the cluster") } else { plain }
}

impl Mbarriers {
    fn init(
        &mut self,
        context: &mut Context<'_>,
        lane: usize,
        at: u64,
        arrivals: u64,
    ) -> std::result::Result<(), Trap> {
        let spot = context.world.locate((Space::Shared, context.warp.rank, lane), at, 8, 8)?;
        let rank = spot.memory - context.world.buffers;
        let name = name(context.entry, spot.offset, rank, context.world.blocks());
        if !(1..=MOST).contains(&arrivals) {
            return Err(wrong(Code::PtxMbarrier, lane, &name, &format!("is initialised with {arrivals} arrivals")));
        }
        if self.by_place.contains_key(&(rank, spot.offset)) {
            return Err(wrong(Code::PtxMbarrier, lane, &name, "is initialised more than once"));
        }
        let known = self.all.iter().position(|m| (m.rank, m.offset) == (rank, spot.offset));
        let number = known.unwrap_or(self.all.len());
        context.write(Space::Shared, lane, at, 8, &(PATTERN | number as u64).to_le_bytes())?;
        let init = context.by(lane).stamp(context.world.clock.tick());
        let fresh = Mbarrier {
            rank,
            offset: spot.offset,
            name,
            init,
            by: context.warp.number,
            fenced: false,
            arrived: false,
            published: false,
            arrivals,
            left: arrivals,
            bytes: 0,
            over: 0,
            filled: 0,
            seen: 0,
            arriving: Seen::default(),
            done: Seen::default(),
            waited: Vec::new(),
            last: String::new(),
        };
        match self.all.get_mut(number) {
            Some(old) => *old = fresh,
            None => self.all.push(fresh),
        }
        self.by_place.insert((rank, spot.offset), number);
        Ok(())
    }

    /// The mbarrier at an address, for a lane of a warp: it has to be one, still, and its initialisation has to come
    /// first. `remote`: it may be of another block.
    pub fn at(
        &self,
        context: &Context<'_>,
        (lane, address, remote): (usize, u64, bool),
    ) -> std::result::Result<usize, Trap> {
        let world = &context.world;
        let spot = world.locate((Space::Shared, context.warp.rank, lane), address, 8, 8)?;
        let rank = spot.memory - world.buffers;
        let missing = || name(context.entry, spot.offset, rank, world.blocks());
        let Some(number) = self.by_place.get(&(rank, spot.offset)).copied() else {
            return Err(wrong(Code::PtxMbarrier, lane, &missing(), "is used, but nothing has initialised it"));
        };
        let found = &self.all[number];
        if rank != context.warp.rank && !remote {
            return Err(wrong(
                Code::PtxMbarrier,
                lane,
                &found.name,
                "is of another block than the instruction may reach",
            ));
        }
        let bytes = &world.memories[spot.memory].bytes[spot.offset..spot.offset + 8];
        if bytes != (PATTERN | number as u64).to_le_bytes() {
            return Err(wrong(Code::PtxMbarrier, lane, &found.name, "has been overwritten since it was initialised"));
        }
        let life = Life { born: 0, ordered: true };
        let ordered = world.clock.clocks.after(found.init, context.by(lane), life);
        if world.races && !ordered && !found.published {
            let what = "is used, and nothing orders the use after its initialisation";
            return Err(wrong(Code::PtxMbarrier, lane, &found.name, what));
        }
        Ok(number)
    }

    /// Whether TMA sees the initialisation: `fence.mbarrier_init` or a proxy fence follows it.
    pub fn is_visible_to_copies(&self, number: usize, by: Accessor, clocks: &Clocks) -> bool {
        let found = &self.all[number];
        found.fenced || clocks.after(found.init, by, Life { born: 0, ordered: true })
    }

    /// The number of the mbarrier at an offset of a block's shared memory.
    pub fn in_block(&self, rank: usize, offset: usize) -> Option<usize> {
        self.by_place.get(&(rank, offset)).copied()
    }

    pub fn place(&self, number: usize) -> (usize, usize) {
        (self.all[number].rank, self.all[number].offset)
    }

    pub fn name(&self, number: usize) -> &str {
        &self.all[number].name
    }

    /// The mbarriers that operand `n` names, each with its lanes.
    fn named(&self, context: &Context<'_>, n: usize, remote: bool) -> std::result::Result<Vec<(u32, usize)>, Trap> {
        let mut out: Vec<(u32, usize)> = Vec::new();
        for lane in context.lanes() {
            let at = context.value(&context.inst.operands[n], lane);
            let number = self.at(context, (lane, at, remote))?;
            match out.iter_mut().find(|(_, known)| *known == number) {
                Some((mask, _)) => *mask |= 1 << lane,
                None => out.push((1 << lane, number)),
            }
        }
        Ok(out)
    }

    fn arrive(
        &mut self,
        number: usize,
        bytes: i64,
        arrivals: u64,
        mask: u32,
        context: &mut Context<'_>,
    ) -> std::result::Result<(), Trap> {
        let (warp, full) = (context.warp.number, context.warp.full);
        let now = context.world.clock.tick();
        let lane = mask.trailing_zeros() as usize % LANES;
        let slot = &mut self.all[number];
        slot.bytes += bytes;
        if arrivals > slot.left {
            let what = format!("has more arrivals in a phase than the {} it was initialised with", slot.arrivals);
            return Err(wrong(Code::PtxMbarrier, lane, &slot.name, &what));
        }
        slot.left -= arrivals;
        if arrivals > 0 {
            slot.arriving.join(&context.world.clock.clocks.release(warp, mask, full, now));
            slot.last = format!("lane {lane} of warp {warp}");
        }
        self.turn(number, lane, context.world)
    }

    /// So many bytes of a bulk copy have landed.
    pub fn land(&mut self, number: usize, bytes: u64, lane: usize, world: &mut World) -> std::result::Result<(), Trap> {
        let now = world.clock.tick();
        let agent = landing(number, &world.clock.clocks);
        let slot = &mut self.all[number];
        slot.bytes -= bytes as i64;
        slot.filled = slot.over + 1;
        slot.arriving.add(agent, now);
        self.turn(number, lane, world)
    }

    /// Ends the phase if all has come.
    fn turn(&mut self, number: usize, lane: usize, world: &mut World) -> std::result::Result<(), Trap> {
        let slot = &mut self.all[number];
        if slot.bytes.abs() > MOST_BYTES {
            return Err(wrong(Code::PtxMbarrier, lane, &slot.name, "counts more bytes than it can"));
        }
        if slot.left == 0 && slot.bytes < 0 {
            let what = format!("has {} bytes more landing in a phase than its arrivals expect", -slot.bytes);
            return Err(wrong(Code::PtxMbarrier, lane, &slot.name, &what));
        }
        if slot.left == 0 && slot.bytes == 0 {
            slot.over += 1;
            slot.left = slot.arrivals;
            slot.done = std::mem::take(&mut slot.arriving);
            if world.races && !slot.waited.iter().all(|(who, at)| slot.done.has(*who, *at)) {
                let what = "may end a phase before a thread that waits for the previous phase has passed: the parity \
                            no longer tells the two apart";
                return Err(wrong(Code::PtxPhase, lane, &slot.name, what));
            }
            slot.waited.clear();
            slot.done.add(phases(number, &world.clock.clocks), slot.over);
            world.progress += 1;
        }
        Ok(())
    }

    fn wait(&mut self, context: &mut Context<'_>, parity: bool, tests: bool) -> std::result::Result<Next, Trap> {
        let operands = &context.inst.operands;
        let at = (context.warp.number, context.inst.line);
        let (warp, full) = (context.warp.number, context.warp.full);
        let mut open = None;
        let mut passed = Vec::new();
        for lane in context.lanes() {
            let number = self.at(context, (lane, context.value(&operands[1], lane), false))?;
            let wanted = context.value(&operands[2], lane);
            let over = self.all[number].over;
            let is_over = if parity { over % 2 != wanted & 1 } else { over > wanted };
            let ended = if is_over { over.saturating_sub(1) } else { over };
            let clocks = &context.world.clock.clocks;
            if parity && context.world.races && !clocks.knows((warp, lane), phases(number, clocks), ended) {
                let what = format!(
                    "is waited for by a thread that does not know that {ended} of its phases are over: the wait may see a phase of the \
                     same parity that is not its own"
                );
                return Err(wrong(Code::PtxPhase, lane, &self.all[number].name, &what));
            }
            match is_over {
                true => passed.push((lane, number)),
                false => open = Some((number, wanted)),
            }
        }
        if let Some(found) = open {
            self.waiting.insert(at, found);
            let progress = context.world.progress;
            if !tests || self.failed.get(&at) == Some(&progress) {
                return Ok(Next::Blocked);
            }
            self.failed.insert(at, progress);
        }
        for lane in context.lanes() {
            context.set(&operands[0], lane, 0);
        }
        let mut masks: BTreeMap<usize, u32> = BTreeMap::new();
        for (lane, number) in passed {
            context.set(&operands[0], lane, 1);
            *masks.entry(number).or_default() |= 1 << lane;
        }
        let now = context.world.clock.tick();
        for (number, mask) in masks {
            let slot = &mut self.all[number];
            slot.seen = slot.seen.max(slot.over);
            slot.waited.push(((warp, mask, full), now));
            context.world.clock.clocks.acquire(warp, mask, full, &slot.done);
        }
        if open.is_none() {
            self.waiting.remove(&at);
            self.failed.remove(&at);
        }
        Ok(Next::Go)
    }

    /// `fence.mbarrier_init` of a warp.
    pub fn fence(&mut self, warp: usize) {
        self.all.iter_mut().filter(|m| m.by == warp).for_each(|m| m.fenced = true);
    }

    /// A warp arrives at the barrier of the cluster.
    pub fn cluster_arrive(&mut self, warp: usize) {
        self.all.iter_mut().filter(|m| m.by == warp && m.fenced).for_each(|m| m.arrived = true);
    }

    /// All warps of the cluster have arrived at its barrier.
    pub fn cluster_meet(&mut self) {
        self.all.iter_mut().filter(|m| m.arrived).for_each(|m| m.published = true);
    }

    /// Bytes that landed, but no thread waited for: only by chance did they land before the end.
    pub fn end(&self) -> std::result::Result<(), Trap> {
        match self.all.iter().find(|m| m.filled > m.seen) {
            Some(found) => {
                let message =
                    format!("the kernel ends, and nothing has waited for the copies that complete on {}", found.name);
                Err(Trap::warp(Code::PtxUnfinished, message))
            }
            None => Ok(()),
        }
    }

    /// What warps wait for.
    pub fn waits(&self) -> Vec<Waits> {
        let mut out = Vec::new();
        for ((warp, line), (number, wanted)) in &self.waiting {
            let slot = &self.all[*number];
            let bytes = match slot.bytes {
                0 => String::new(),
                n if n > 0 => format!(", {n} bytes missing"),
                n => format!(", {} bytes too many", -n),
            };
            let last = match slot.last.as_str() {
                "" => "nothing has arrived".to_string(),
                last => format!("the last to arrive was {last}"),
            };
            let does = format!(
                "(line {line}) waits for a phase of parity {} of {}, which is in phase {} with {} of {} arrivals{bytes}; \
                 {last}",
                wanted & 1,
                slot.name,
                slot.over,
                slot.arrivals - slot.left,
                slot.arrivals
            );
            out.push(Waits { warp: *warp, does });
        }
        out
    }
}
