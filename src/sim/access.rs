//! Loads and stores of a warp, and the world that they reach: global and shared memory, counts and limits.
//!
//! Every access of every lane passes through this file with its warp, operation and element: what is to be known of
//! accesses (races, bank conflicts, sectors) is observed here.

use super::alu::{self, Combine};
use super::bulk::{self, Load};
use super::code::{Access, Code, LANES, Location, Operand, Reached, Slot};
use super::flight::{self, Landing};
use super::inspect::Watcher;
use super::listen::Listener;
use super::mbarrier::Mbarriers;
use super::memory::{Failure, Memory};
use super::product::Products;
use super::race::{self, Cell, Clock, Touch, Watch};
use super::scene::Onlooker;
use super::warp::{Register, Trap, Warp};
use crate::dtype::DType;

/// What the warps of a block share.
#[derive(Debug, Default)]
pub(super) struct World {
    /// The memories of the grid.
    pub globals: Vec<Memory>,
    /// The shared memory of the block whose warp runs.
    pub shared: Memory,
    /// That of the blocks of its cluster by rank; its own is `shared`.
    peers: Vec<Memory>,
    /// Its rank.
    rank: usize,
    /// What is ordered with what.
    pub clock: Clock,
    /// When copies land.
    pub landing: Landing,
    /// Bulk loads under way.
    pub loads: Vec<Load>,
    /// The block's mbarriers.
    pub barriers: Mbarriers,
    /// Statements of single threads that have run.
    pub statements: u64,
    steps: u64,
    /// The most of `statements`, and of loop iterations.
    pub limit: u64,
    /// The kernel in front may still run, as far as the warp knows that runs.
    pub early: bool,
    /// The kernel that runs, by its place in the program.
    pub kernel: usize,
    /// The warp of its block that runs, and the warps of a block: for who listens.
    pub warp: usize,
    pub each: usize,
    /// Who hears of what runs.
    pub listener: Listener,
    /// Who watches it: in sequence, and by threads.
    pub watcher: Watcher,
    pub onlooker: Onlooker,
    /// Warps stop in front of each statement.
    pub stops: bool,
}

impl World {
    /// Without memory, and with a limit to what may run.
    pub fn new(limit: u64) -> World {
        World { limit, ..World::default() }
    }

    /// Shared memory for each block of a cluster.
    pub fn share(&mut self, blocks: usize, memory: Memory) {
        self.peers = vec![memory.clone(); blocks];
        self.shared = memory;
        self.rank = 0;
        self.clock.rank = 0;
    }

    /// From here on a warp of that block of the cluster runs.
    #[inline(always)]
    pub fn enter(&mut self, rank: usize) {
        if rank != self.rank && rank < self.peers.len() {
            std::mem::swap(&mut self.shared, &mut self.peers[self.rank]);
            std::mem::swap(&mut self.shared, &mut self.peers[rank]);
            self.rank = rank;
            (self.clock.rank, self.barriers.rank) = (rank, rank);
        }
    }

    /// Forgets what the blocks of a cluster wrote.
    pub fn poison_shared(&mut self) {
        self.shared.poison();
        self.peers.iter_mut().for_each(Memory::poison);
    }

    /// The shared memory of a block of the cluster that runs: where copies to all blocks, and arrivals in other blocks, go.
    /// A place in it is the same as in the running block's own.
    pub fn shared_of(&mut self, rank: usize) -> Result<(&mut Memory, &mut Clock), Trap> {
        let memory = if rank == self.rank { Some(&mut self.shared) } else { self.peers.get_mut(rank) };
        Ok((memory.ok_or(Trap::Broken("a block that the cluster does not have"))?, &mut self.clock))
    }

    /// Back to the start of the kernel, to look for one access or for races again; what has been written no longer
    /// matters.
    pub fn again(&mut self, watch: Option<Watch>) {
        (self.statements, self.steps) = (0, 0);
        self.clock.rewind();
        self.clock.watch = watch;
        for memory in self.globals.iter_mut().chain([&mut self.shared]).chain(&mut self.peers) {
            memory.marks.clear();
            memory.cells.fill(Cell::default());
        }
    }

    #[inline(always)]
    pub fn count(&mut self, lanes: u32) -> Result<(), Trap> {
        self.statements += u64::from(lanes);
        if self.statements > self.limit { Err(Trap::Limit) } else { Ok(()) }
    }

    #[inline(always)]
    pub fn step(&mut self) -> Result<(), Trap> {
        self.steps += 1;
        if self.steps > self.limit { Err(Trap::Limit) } else { Ok(()) }
    }

    /// The memory of a place.
    pub fn memory_of(&self, place: Location) -> Option<&Memory> {
        match place {
            Location::Global(m) => self.globals.get(m as usize),
            Location::Shared { .. } => Some(&self.shared),
            Location::Local(_) => None,
        }
    }

    pub fn memory(&mut self, place: Location) -> Result<(&mut Memory, &mut Clock, Span), Trap> {
        let clock = &mut self.clock;
        match place {
            Location::Global(_) if self.early => Err(Trap::Early),
            Location::Global(m) => {
                let memory = self.globals.get_mut(m as usize).ok_or(Trap::Broken("a memory is missing"))?;
                Ok((memory, clock, Span { base: 0, units: 1 }))
            }
            Location::Shared { base, units } => {
                Ok((&mut self.shared, clock, Span { base: base as usize, units: units as usize }))
            }
            Location::Local(_) => Err(Trap::Broken("a local buffer has no memory")),
        }
    }
}

/// Where a buffer begins in its memory and how many units an element takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub base: usize,
    pub units: usize,
}

/// The lanes that take part in an access and where each goes.
struct Lanes<'w> {
    scalar: i64,
    vector: &'w [i64; LANES],
    mask: u32,
    width: usize,
    uniform: bool,
    warp: usize,
}

impl Lanes<'_> {
    /// Lets the clock and the cells of a memory know of the access.
    #[inline(never)]
    fn observe(
        &self,
        memory: &mut Memory,
        clock: &mut Clock,
        span: Span,
        a: &Access,
        it: AccessId,
    ) -> Result<(), Trap> {
        let (cells, starts, warp) = (&mut memory.cells[..], &mut memory.starts[..], self.warp);
        let all =
            race::Lanes { number: it.number, access: a, warp, write: it.write, units: span.units, base: span.base };
        if self.uniform && !it.write && self.mask != 0 {
            // The first and the last lane represent all that read one element.
            let (first, last) = (self.mask.trailing_zeros() as usize, 31 - self.mask.leading_zeros() as usize);
            let ends = [first, last].into_iter().take(if first == last { 1 } else { 2 });
            return all.observe(cells, starts, clock, ends.map(|l| (l, self.element(l))));
        }
        let each = (0..self.width).filter(|l| self.runs(*l)).map(|l| (l, self.element(l)));
        if a.copies { all.start(cells, starts, clock, each) } else { all.observe(cells, starts, clock, each) }
    }

    #[inline(always)]
    fn element(&self, lane: usize) -> i64 {
        self.scalar.wrapping_add(self.vector[lane])
    }

    #[inline(always)]
    fn runs(&self, lane: usize) -> bool {
        self.mask >> lane & 1 == 1
    }
}

impl Warp {
    /// The lanes of an access, and the warp's own storage beside them.
    #[inline(always)]
    fn split(&mut self, a: &Access) -> (Lanes<'_>, &mut [Register], Locals<'_>) {
        let lanes = Lanes {
            scalar: self.scalars[a.at.scalar as usize],
            vector: &self.vectors[a.at.vector as usize],
            mask: self.mask,
            width: self.width,
            uniform: a.at.vector == 0,
            warp: self.number,
        };
        let locals = Locals { values: &mut self.locals, marks: &mut self.local_marks, products: &self.products };
        (lanes, &mut self.registers, locals)
    }
}

/// The registers of local buffers, and which lanes have written them.
struct Locals<'w> {
    values: &'w mut [Register],
    marks: &'w mut [u32],
    products: &'w Products,
}

/// Which access of the code, and what it does.
#[derive(Debug, Clone, Copy)]
struct AccessId {
    number: u32,
    write: bool,
}

pub(super) fn failure(failure: Failure, touch: Touch) -> Trap {
    match failure {
        Failure::OutOfBounds => Trap::OutOfBounds { lane: touch.lane, access: touch.access },
        Failure::Uninitialised => Trap::Uninitialised(touch),
    }
}

/// A vector access must be at a multiple of its size.
fn aligned(lanes: &Lanes<'_>, a: &Access, access: u32) -> Result<(), Trap> {
    if a.lanes == 1 || matches!(a.place, Location::Local(_)) {
        return Ok(());
    }
    let bad = |l: &usize| lanes.runs(*l) && (a.align == 0 || lanes.element(*l) % a.align != 0);
    match (0..lanes.width).find(bad) {
        Some(lane) => Err(Trap::Misaligned { lane, access, element: lanes.element(lane) }),
        None => Ok(()),
    }
}

/// Reads `lanes` elements a thread into as many registers.
pub(super) fn load(warp: &mut Warp, code: &Code, world: &mut World, dst: Slot, number: u32) -> Result<(), Trap> {
    let a = &code.accesses[number as usize];
    let (lanes, registers, locals) = warp.split(a);
    aligned(&lanes, a, number)?;
    let registers = &mut registers[dst as usize..(dst + a.lanes) as usize];
    if let Location::Local(base) = a.place {
        return load_local(&locals, &lanes, base as usize, registers, number);
    }
    world.tell_of(lanes.mask, |lane| lanes.element(lane), number);
    let (memory, clock, span) = world.memory(a.place)?;
    for (j, register) in registers.iter_mut().enumerate() {
        let gather = Gather { memory, span, lanes: &lanes, shift: j as i64, number };
        match (memory.integer, a.dtype) {
            (true, DType::Bool) => gather.each(register, |m, u| m.read(DType::U32, u).map(|v| u64::from(v != 0)))?,
            (true, _) => gather.each(register, |m, u| m.read(DType::U32, u))?,
            (_, DType::F32) => gather.each(register, |m, u| m.read(DType::F32, u))?,
            (_, DType::F16) => gather.each(register, |m, u| m.read(DType::F16, u))?,
            _ => gather.each(register, |m, u| m.read(a.dtype, u))?,
        }
    }
    if a.watched {
        lanes.observe(memory, clock, span, a, AccessId { number, write: false })?;
    }
    Ok(())
}

struct Gather<'a> {
    memory: &'a Memory,
    span: Span,
    lanes: &'a Lanes<'a>,
    shift: i64,
    number: u32,
}

impl Gather<'_> {
    #[inline(always)]
    fn each(&self, out: &mut Register, read: impl Fn(&Memory, usize) -> Option<u64>) -> Result<(), Trap> {
        if self.lanes.uniform {
            if self.lanes.mask != 0 {
                let first = self.lanes.mask.trailing_zeros() as usize;
                out[..self.lanes.width].fill(self.one(first, &read)?);
            }
            return Ok(());
        }
        for (lane, out) in out.iter_mut().enumerate().take(self.lanes.width) {
            if self.lanes.runs(lane) {
                *out = self.one(lane, &read)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn one(&self, lane: usize, read: &impl Fn(&Memory, usize) -> Option<u64>) -> Result<u64, Trap> {
        let element = self.lanes.element(lane) + self.shift;
        let unit = self.span.base + element as usize * self.span.units;
        if let Err(f) = self.memory.check(unit, self.span.units) {
            return Err(failure(f, Touch { lane, access: self.number, element, unit, write: false }));
        }
        read(self.memory, unit).ok_or(Trap::OutOfBounds { lane, access: self.number })
    }
}

/// Writes `lanes` elements a thread from as many registers. Where lanes meet in an element, the last one stays.
pub(super) fn store(warp: &mut Warp, code: &Code, world: &mut World, src: Slot, number: u32) -> Result<(), Trap> {
    let a = &code.accesses[number as usize];
    if let Location::Local(_) = a.place {
        warp.products.fenced = false;
    }
    let (lanes, registers, mut locals) = warp.split(a);
    aligned(&lanes, a, number)?;
    let registers = &registers[src as usize..(src + a.lanes) as usize];
    if let Location::Local(base) = a.place {
        return store_local(&mut locals, &lanes, base as usize, registers, number);
    }
    world.tell_of(lanes.mask, |lane| lanes.element(lane), number);
    let (memory, clock, span) = world.memory(a.place)?;
    write(memory, span, &lanes, a, registers, number)?;
    if a.watched {
        lanes.observe(memory, clock, span, a, AccessId { number, write: true })?;
    }
    Ok(())
}

/// Writes the registers of the lanes that run.
#[inline(always)]
fn write(
    memory: &mut Memory,
    span: Span,
    lanes: &Lanes<'_>,
    a: &Access,
    registers: &[Register],
    number: u32,
) -> Result<(), Trap> {
    for (j, register) in registers.iter().enumerate() {
        for (lane, value) in register.iter().enumerate().take(lanes.width) {
            if lanes.runs(lane) {
                let unit = span.base + (lanes.element(lane) + j as i64) as usize * span.units;
                let written = match a.dtype {
                    DType::F32 => memory.write(DType::F32, unit, *value),
                    _ => memory.write(a.dtype, unit, *value),
                };
                written.ok_or(Trap::OutOfBounds { lane, access: number })?;
                let touch = Touch { lane, access: number, element: 0, unit, write: true };
                memory.mark(unit, span.units).map_err(|f| failure(f, touch))?;
            }
        }
    }
    Ok(())
}

/// The values that a lane is about to store.
pub(super) fn stored(warp: &Warp, a: &Access, src: Slot, lane: usize) -> Vec<u64> {
    (src..src + a.lanes).map(|register| warp.registers[register as usize][lane]).collect()
}

/// Stores to the same place in other blocks of the cluster.
pub(super) fn remote(
    warp: &mut Warp,
    code: &Code,
    world: &mut World,
    (src, to, full): (Slot, Reached, Option<(u32, Operand)>),
    number: u32,
) -> Result<(), Trap> {
    let blocks = match to {
        Reached::First(blocks) => (0..blocks as usize).map(|rank| (rank, warp.mask)).collect(),
        Reached::One(rank) => by_rank(warp, rank)?,
    };
    if let Some(full) = full {
        return bulk::send(warp, code, world, (src, &blocks, full), number);
    }
    let a = &code.accesses[number as usize];
    let Location::Shared { base, units } = a.place else {
        return Err(Trap::Broken("a store to other blocks goes to shared memory"));
    };
    let span = Span { base: base as usize, units: units as usize };
    let (lanes, registers, _) = warp.split(a);
    aligned(&lanes, a, number)?;
    world.tell_of(lanes.mask, |lane| lanes.element(lane), number);
    let registers = &registers[src as usize..(src + a.lanes) as usize];
    for (rank, mask) in blocks {
        let lanes = Lanes { mask, ..lanes };
        let (memory, clock) = world.shared_of(rank)?;
        write(memory, span, &lanes, a, registers, number)?;
        if a.watched {
            lanes.observe(memory, clock, span, a, AccessId { number, write: true })?;
        }
    }
    Ok(())
}

/// The ranks that the active lanes name, each with the lanes that name it.
fn by_rank(warp: &Warp, rank: Operand) -> Result<Vec<(usize, u32)>, Trap> {
    let mut out: Vec<(usize, u32)> = Vec::new();
    for lane in (0..LANES).filter(|lane| warp.mask >> lane & 1 == 1) {
        let rank = warp.value(rank, lane);
        let rank = usize::try_from(rank).map_err(|_| Trap::Broken("a store names a block that is none"))?;
        match out.iter_mut().find(|(known, _)| *known == rank) {
            Some((_, lanes)) => *lanes |= 1 << lane,
            None => out.push((rank, 1 << lane)),
        }
    }
    Ok(out)
}

/// Starts the copy of `lanes` elements a thread.
pub(super) fn copy(warp: &mut Warp, code: &Code, world: &mut World, src: Slot, number: u32) -> Result<(), Trap> {
    let a = &code.accesses[number as usize];
    let mut flights = std::mem::take(&mut warp.flights);
    let (lanes, registers, _) = warp.split(a);
    aligned(&lanes, a, number)?;
    world.tell_of(lanes.mask, |lane| lanes.element(lane), number);
    let (memory, clock, span) = world.memory(a.place)?;
    if a.watched {
        lanes.observe(memory, clock, span, a, AccessId { number, write: true })?;
    }
    let registers = &registers[src as usize..(src + a.lanes) as usize];
    for lane in (0..lanes.width).filter(|l| lanes.runs(*l)) {
        let unit = span.base + lanes.element(lane) as usize * span.units;
        let values = registers.iter().map(|r| r[lane]).collect();
        flights.start(flight::Copy::new(lane, number, unit, values), world, a, span.units)?;
    }
    warp.flights = flights;
    Ok(())
}

/// Combines the active lanes, in order, into the one element they all name.
pub(super) fn reduce(
    warp: &mut Warp,
    code: &Code,
    world: &mut World,
    src: Slot,
    number: u32,
    c: Combine,
) -> Result<(), Trap> {
    let a = &code.accesses[number as usize];
    let (lanes, registers, _) = warp.split(a);
    let (memory, clock, span) = world.memory(a.place)?;
    let first = lanes.mask.trailing_zeros() as usize;
    let gather = Gather { memory, span, lanes: &lanes, shift: 0, number };
    let mut total = gather.one(first.min(LANES - 1), &|m, u| m.read(a.dtype, u))?;
    let register = &registers[src as usize];
    for (lane, value) in register.iter().enumerate().take(lanes.width) {
        if lanes.runs(lane) {
            total = alu::combine(c, total, *value);
        }
    }
    let unit = span.base + lanes.scalar as usize * span.units;
    memory.write(a.dtype, unit, total).ok_or(Trap::OutOfBounds { lane: first, access: number })?;
    if a.watched {
        lanes.observe(memory, clock, span, a, AccessId { number, write: true })?;
    }
    Ok(())
}

fn load_local(
    locals: &Locals<'_>,
    lanes: &Lanes<'_>,
    base: usize,
    registers: &mut [Register],
    number: u32,
) -> Result<(), Trap> {
    for (j, register) in registers.iter_mut().enumerate() {
        let at = base + (lanes.scalar + j as i64) as usize;
        if lanes.uniform && locals.marks.get(at).is_some_and(|m| m & lanes.mask == lanes.mask) {
            register[..lanes.width].copy_from_slice(&locals.values[at][..lanes.width]);
            continue;
        }
        for (lane, out) in register.iter_mut().enumerate().take(lanes.width).filter(|(l, _)| lanes.runs(*l)) {
            let element = lanes.element(lane) + j as i64;
            let at = base + element as usize;
            let outside = Trap::OutOfBounds { lane, access: number };
            if locals.marks.get(at).ok_or(outside)? >> lane & 1 == 0 {
                let touch = Touch { lane, access: number, element, unit: at, write: false };
                return Err(if locals.products.hold(at) { Trap::Held(touch) } else { Trap::Uninitialised(touch) });
            }
            *out = locals.values[at][lane];
        }
    }
    Ok(())
}

fn store_local(
    locals: &mut Locals<'_>,
    lanes: &Lanes<'_>,
    base: usize,
    registers: &[Register],
    number: u32,
) -> Result<(), Trap> {
    for (j, register) in registers.iter().enumerate() {
        for (lane, value) in register.iter().enumerate().take(lanes.width).filter(|(l, _)| lanes.runs(*l)) {
            let element = lanes.element(lane) + j as i64;
            let at = base + element as usize;
            if locals.products.hold(at) {
                return Err(Trap::Held(Touch { lane, access: number, element, unit: at, write: true }));
            }
            let outside = Trap::OutOfBounds { lane, access: number };
            *locals.marks.get_mut(at).ok_or(outside)? |= 1 << lane;
            locals.values[at][lane] = *value;
        }
    }
    Ok(())
}
