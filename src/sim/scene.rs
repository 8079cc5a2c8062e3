//! A run of a lowered program that somebody watches: each write with its thread, and one block walked statement by statement,
//! with the state of its warps, mbarriers and copies.
//!
//! The watcher changes nothing but the order of warps in the block that is walked, and may end the run.

use super::access::World;
use super::bulk::{self, Load};
use super::code::{Access, Code, LANES, Location, Op, Reached};
use super::collective::{self, Collective, Operand};
use super::grid::State;
use super::inspect::Datum;
use super::listen::Mbarrier;
use super::memory::kind_in;
use super::warp::{Trap, Warp};
use crate::dtype::DType;
use crate::ir::{BufferId, Var};
use std::ops::ControlFlow;

/// What is to be seen of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The block that is walked statement by statement; `None`: none is.
    pub block: Option<[u32; 3]>,
    /// The buffers whose writes are shown; `None`: all.
    pub buffers: Option<Vec<BufferId>>,
}

impl View {
    /// The writes of some buffers by all blocks.
    pub fn writes(buffers: Vec<BufferId>) -> View {
        View { block: None, buffers: Some(buffers) }
    }

    /// A block, statement by statement, with every write.
    pub fn walk(block: [u32; 3]) -> View {
        View { block: Some(block), buffers: None }
    }
}

/// A moment of the run.
pub struct Scene<'m> {
    /// The kernel, by its place in the program.
    pub kernel: usize,
    /// The block of the warps that run.
    pub block: [u32; 3],
    /// What happens.
    pub sight: Sight<'m>,
    code: &'m Code,
    world: &'m World,
    /// Those of the cluster, or the one that writes.
    warps: &'m [Warp],
    states: &'m [State],
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Sight<'m> {
    /// These warps of the block that is walked run a statement next.
    Before {
        /// The statement, counted from 0 among the stores, instructions, bulk copies and synchronisation of the kernel's text.
        statement: u32,
        /// Each warp of the block, with a bit for each lane that takes part.
        warps: &'m [(usize, u32)],
    },
    /// A statement has written an element.
    Wrote(Write),
}

/// A write of an element.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Write {
    /// The statement, as in [`Sight::Before`].
    pub statement: u32,
    /// The buffer.
    pub buffer: BufferId,
    /// Its element.
    pub element: i64,
    /// The value.
    pub value: Datum,
    /// The block whose memory it is: with clusters it can be another one than the thread's.
    pub block: [u32; 3],
    /// The thread that runs the statement, by its number in its block, x fastest.
    pub thread: usize,
    /// An engine writes: the value is there when the thread has waited for it.
    pub in_flight: bool,
}

/// Where a warp is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum At {
    /// It runs this statement next.
    Statement(u32),
    /// At a barrier, for so many warps that have not come.
    Barrier {
        /// The statement.
        statement: u32,
        /// So many.
        missing: usize,
    },
    /// At a wait for a phase of an mbarrier.
    Phase {
        /// The statement.
        statement: u32,
        /// The mbarrier.
        mbarrier: Mbarrier,
        /// The phase.
        phase: i64,
    },
    /// It has run all.
    End,
}

/// A warp, and what it has started and not waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarpState {
    /// Its number in the block.
    pub warp: usize,
    /// Where it is.
    pub at: At,
    /// Elements of cp.async copies.
    pub copies: usize,
    /// Groups of cp.async copies that are closed.
    pub copy_groups: usize,
    /// Registers of accumulators of wgmma.
    pub accumulators: usize,
    /// Groups of wgmma that are closed.
    pub product_groups: usize,
    /// Bulk stores.
    pub bulk_stores: usize,
}

/// An mbarrier of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MbarrierState {
    /// Which.
    pub at: Mbarrier,
    /// The phase that it is in, from 0; `None` before it is initialised.
    pub phase: Option<i64>,
    /// Arrivals of the phase.
    pub arrived: u32,
    /// Arrivals that end it.
    pub of: u32,
    /// Bytes that the phase waits for.
    pub bytes: i64,
}

/// A bulk load that has not landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadState {
    /// The buffer in shared memory.
    pub buffer: BufferId,
    /// The first element.
    pub element: i64,
    /// Bytes.
    pub bytes: u32,
    /// The mbarrier that counts them.
    pub full: Mbarrier,
}

impl Scene<'_> {
    /// The loops around the statement and the axes, with their values in a lane of a warp of the block, outermost first.
    pub fn loops(&self, warp: usize, lane: usize) -> Vec<(Var, i64)> {
        let Some(warp) = self.warp(warp) else { return Vec::new() };
        let site = self.code.site_of.get(warp.pc).and_then(|s| self.code.sites.get(*s as usize));
        site.map_or_else(Vec::new, |s| s.loops.iter().map(|(v, o)| (*v, warp.value(*o, lane))).collect())
    }

    fn warp(&self, number: usize) -> Option<&Warp> {
        self.own().find(|w| w.place() == number)
    }

    /// The warps of the block.
    fn own(&self) -> impl Iterator<Item = &Warp> {
        let (rank, each) = (self.world.clock.rank, self.world.each.max(1));
        self.warps.iter().filter(move |w| w.number / each == rank)
    }

    /// Every warp of the block that is walked.
    pub fn warps(&self) -> Vec<WarpState> {
        let state = |warp: &Warp| {
            let statement = warp.statement;
            let at = match self.states.get(warp.number) {
                Some(State::At(next)) => At::Statement(*next),
                Some(State::Waiting(_, meeting)) => {
                    let there = |w: &usize| self.states.get(*w) == self.states.get(warp.number);
                    At::Barrier { statement, missing: meeting.warps - meeting.range().filter(there).count() }
                }
                Some(State::Blocked { slot, phase, .. }) => {
                    At::Phase { statement, mbarrier: self.world.barriers.place(*slot), phase: *phase }
                }
                _ => At::End,
            };
            let (copies, copy_groups) = warp.flights.under_way();
            let (accumulators, product_groups) = warp.products.under_way();
            WarpState {
                warp: warp.place(),
                at,
                copies,
                copy_groups,
                accumulators,
                product_groups,
                bulk_stores: warp.stores.under_way(),
            }
        };
        self.own().map(state).collect()
    }

    /// Every mbarrier of the block.
    pub fn mbarriers(&self) -> Vec<MbarrierState> {
        self.world.barriers.states(self.world.clock.rank)
    }

    /// The bulk loads to the block that have not landed.
    pub fn loads(&self) -> Vec<LoadState> {
        let rank = self.world.clock.rank;
        self.world.loads.iter().filter(|l| l.rank == rank).filter_map(|l| self.load(l)).collect()
    }

    fn load(&self, load: &Load) -> Option<LoadState> {
        let access = self.code.accesses.get(load.access as usize)?;
        let full = self.world.barriers.place(load.slot);
        let element = element(access, load.first_unit());
        Some(LoadState { buffer: access.buffer, element, bytes: load.bytes, full })
    }

    /// What an element of a buffer holds, in registers those of a thread of the block; `None` where nothing has written it, where it is on its
    /// way, or where there is no such element.
    pub fn read(&self, buffer: BufferId, element: i64, thread: usize) -> Option<Datum> {
        let access = self.code.accesses.iter().find(|a| a.buffer == buffer)?;
        let warp = self.warp(thread / LANES);
        let length = self.code.func.buffers.get(buffer.0 as usize)?.elements()?;
        if !(0..length).contains(&element) {
            return None;
        }
        held(access, (element, thread % LANES), warp, self.world)
    }

    /// Whether each thread has a buffer of its own.
    pub fn is_of_threads(&self, buffer: BufferId) -> bool {
        let access = self.code.accesses.iter().find(|a| a.buffer == buffer);
        access.is_some_and(|a| matches!(a.place, Location::Local(_)))
    }
}

/// The element of the access's buffer at a unit of its memory.
fn element(access: &Access, unit: usize) -> i64 {
    match access.place {
        Location::Shared { base, units } => (unit as i64 - i64::from(base)).div_euclid(i64::from(units.max(1))),
        _ => unit as i64,
    }
}

/// What is in the memory of an access, or in a lane's registers.
fn held(access: &Access, (element, lane): (i64, usize), warp: Option<&Warp>, world: &World) -> Option<Datum> {
    let at = usize::try_from(element).ok()?;
    let (integer, bits) = match access.place {
        Location::Local(base) => {
            let (warp, slot) = (warp?, base as usize + at);
            if warp.local_marks.get(slot)? >> lane & 1 == 0 {
                return None;
            }
            (world.globals.first().is_some_and(|m| m.integer), *warp.locals.get(slot)?.get(lane)?)
        }
        place => {
            let memory = world.memory_of(place)?;
            let (base, units) = match place {
                Location::Shared { base, units } => (base as usize, units as usize),
                _ => (0, 1),
            };
            let unit = base + at * units;
            memory.check(unit, units).ok()?;
            (memory.integer, memory.read(access.dtype, unit)?)
        }
    };
    Some(datum(access.dtype, integer, bits))
}

fn datum(dtype: DType, integer: bool, bits: u64) -> Datum {
    Datum { dtype, kind: kind_in(integer, dtype), bits }
}

type Watch = dyn FnMut(&Scene<'_>) -> ControlFlow<()>;

/// Who watches a run of a lowered program.
#[derive(Default)]
pub(super) struct Onlooker {
    watch: Option<Box<Watch>>,
    view: Option<View>,
    /// The cluster that runs, or without clusters the block; and the blocks of a cluster.
    pub cluster: ([u32; 3], u32),
}

impl Onlooker {
    /// One that sees so much.
    pub fn new(view: View, watch: impl FnMut(&Scene<'_>) -> ControlFlow<()> + 'static) -> Onlooker {
        Onlooker { watch: Some(Box::new(watch)), view: Some(view), cluster: ([0; 3], 1) }
    }

    /// Whether anybody watches.
    #[inline(always)]
    pub fn is_there(&self) -> bool {
        self.watch.is_some()
    }

    /// The rank of the block that is walked in the cluster that runs, if it is one of its blocks.
    pub fn walks(&self) -> Option<usize> {
        let ([x, y, z], blocks) = self.cluster;
        let walked = self.view.as_ref().and_then(|v| v.block).filter(|_| self.is_there())?;
        let rank = walked[0].checked_sub(x * blocks).filter(|rank| *rank < blocks)?;
        (walked[1..] == [y, z]).then_some(rank as usize)
    }

    /// The block of that rank in the cluster that runs.
    fn block(&self, rank: usize) -> [u32; 3] {
        let ([x, y, z], blocks) = self.cluster;
        [x * blocks + rank as u32, y, z]
    }

    fn wants(&self, buffer: BufferId, rank: usize) -> bool {
        let Some(view) = &self.view else { return false };
        let is_here = view.block.is_none() || self.walks() == Some(rank);
        is_here && view.buffers.as_ref().is_none_or(|b| b.contains(&buffer))
    }
}

impl std::fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_there() { "Onlooker" } else { "nobody" })
    }
}

/// Shows what happens.
fn show(world: &mut World, code: &Code, (warps, states): (&[Warp], &[State]), sight: Sight<'_>) -> Result<(), Trap> {
    let Some(mut watch) = world.onlooker.watch.take() else { return Ok(()) };
    let block = world.onlooker.block(world.clock.rank);
    let flow = watch(&Scene { kernel: world.kernel, block, sight, code, world, warps, states });
    world.onlooker.watch = Some(watch);
    if flow.is_break() { Err(Trap::Stopped) } else { Ok(()) }
}

/// Shows the warps that run a statement next; `world` has entered their block.
pub(super) fn before(
    world: &mut World,
    code: &Code,
    all: (&[Warp], &[State]),
    statement: u32,
    warps: &[(usize, u32)],
) -> Result<(), Trap> {
    show(world, code, all, Sight::Before { statement, warps })
}

/// Shows what an operation that the warp has just run wrote.
pub(super) fn wrote(warp: &Warp, code: &Code, world: &mut World, op: &Op) -> Result<(), Trap> {
    let (number, ranks) = match *op {
        Op::Remote { access, to: Reached::First(blocks), .. } => (access, 0..blocks as usize),
        Op::Remote { access, .. } => (access, 0..world.onlooker.cluster.1 as usize),
        Op::Store { access, .. } | Op::Copy { access, .. } | Op::Reduce { access, .. } => {
            (access, world.clock.rank..world.clock.rank + 1)
        }
        Op::Collective(number) => return called(warp, code, world, &code.collectives[number as usize]),
        Op::Bulk(number) => return copied(warp, code, world, number),
        _ => return Ok(()),
    };
    let Some(access) = code.accesses.get(number as usize) else { return Ok(()) };
    let ranks: Vec<usize> = ranks.filter(|rank| world.onlooker.wants(access.buffer, *rank)).collect();
    for rank in ranks {
        let reaches = |lane: usize| match *op {
            Op::Remote { to: Reached::One(to), .. } => warp.value(to, lane) == rank as i64,
            _ => true,
        };
        for lane in (0..LANES).filter(|l| warp.mask >> l & 1 == 1 && reaches(*l)) {
            for n in 0..i64::from(access.lanes) {
                let element = warp.value(access.at, lane) + n;
                let value = match *op {
                    // In memory there is poison until it lands, or the memory is another block's.
                    Op::Copy { src, .. }
                    | Op::Remote { src, full: Some(_), .. }
                    | Op::Remote { src, to: Reached::One(_), .. } => {
                        let bits = warp.registers.get(src as usize + n as usize).map(|r| r[lane]);
                        bits.map(|bits| datum(access.dtype, world.shared.integer, bits))
                    }
                    _ => held(access, (element, lane), Some(warp), world),
                };
                let value = value.ok_or(Trap::Broken("a write left no value"))?;
                let in_flight = matches!(op, Op::Copy { .. });
                tell(warp, code, world, (access.buffer, element, value), (rank, lane, in_flight))?;
            }
            // The lanes reduce into one element.
            if matches!(op, Op::Reduce { .. }) {
                break;
            }
        }
    }
    Ok(())
}

/// Shows an element that a lane of a warp has written.
fn tell(
    warp: &Warp,
    code: &Code,
    world: &mut World,
    (buffer, element, value): (BufferId, i64, Datum),
    (rank, lane, in_flight): (usize, usize, bool),
) -> Result<(), Trap> {
    let (thread, block) = (warp.place() * LANES + lane, world.onlooker.block(rank));
    let write = Write { statement: warp.statement, buffer, element, value, block, thread, in_flight };
    show(world, code, (std::slice::from_ref(warp), &[]), Sight::Wrote(write))
}

/// Shows what an instruction of the warp wrote: every element of the tile of its first operand.
fn called(warp: &Warp, code: &Code, world: &mut World, collective: &Collective) -> Result<(), Trap> {
    let (operand, in_flight): (&Operand, bool) = match collective {
        Collective::Warp { operands, .. } => match operands.first() {
            Some(first) => (first, false),
            None => return Ok(()),
        },
        Collective::Product(product) => (product.sum(), true),
    };
    let access = &code.accesses[operand.access as usize];
    let rank = world.clock.rank;
    if !world.onlooker.wants(access.buffer, rank) {
        return Ok(());
    }
    for n in 0..operand.tile.len() {
        let is_memory = !matches!(access.place, Location::Local(_));
        let all = operand.tile.all(n);
        for e in all.iter().take(if is_memory { 1 } else { all.len() }) {
            let element = warp.value(access.at, e.lane) + e.behind as i64;
            let value = if is_memory {
                held(access, (element, e.lane), Some(warp), world)
            } else {
                let (slot, _) = collective::register(warp, code, operand, *e)?;
                warp.locals
                    .get(slot)
                    .map(|r| datum(access.dtype, world.globals.first().is_some_and(|m| m.integer), r[e.lane]))
            };
            let value = value.ok_or(Trap::Broken("an instruction left no value"))?;
            tell(warp, code, world, (access.buffer, element, value), (rank, e.lane, in_flight))?;
        }
    }
    Ok(())
}

/// Shows what a bulk copy that the warp has just started will write.
fn copied(warp: &Warp, code: &Code, world: &mut World, number: u32) -> Result<(), Trap> {
    let bulk = &code.bulks[number as usize];
    let lane = (warp.mask.trailing_zeros() as usize).min(LANES - 1);
    let to = &code.accesses[bulk.written() as usize];
    let ranks = bulk.receivers(world.clock.rank);
    let ranks: Vec<usize> = ranks.filter(|rank| world.onlooker.wants(to.buffer, *rank)).collect();
    if ranks.is_empty() {
        return Ok(());
    }
    for (unit, bits) in bulk::values(warp, lane, code, world, number)? {
        let value = datum(to.dtype, world.shared.integer, bits);
        for rank in &ranks {
            tell(warp, code, world, (to.buffer, element(to, unit), value), (*rank, lane, true))?;
        }
    }
    Ok(())
}
