//! A warp: its own slots, registers and place in the code, and the interpreter that runs it.
//!
//! [`Warp::run`] goes on until the warp has ended, waits at a barrier, or has used up its turn; so the block decides
//! in which order warps take effect. Lanes of a warp run together; a lane takes part where its bit in the mask is set.

use super::access::{self, World};
use super::alu;
use super::bulk::{self, Stores};
use super::code::{Code, LANES, Op, Operand, Slot};
use super::collective;
use super::compile::LANE;
use super::fault::Waits;
use super::flight::CopiesInFlight;
use super::inspect;
use super::listen::{EventKind, Statement};
use super::product::{self, Products};
use super::race::Touch;
use super::scene;
use super::slices::Meeting;
use super::value;
use crate::ir::{CmpOp, IndexOp};

/// A register: 64 bits a lane.
pub(super) type Register = [u64; LANES];

/// What stopped a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It has run all its code.
    Done,
    /// It waits at a barrier at this operation.
    Barrier(usize, Meeting),
    /// It is before a wait for an mbarrier's phase.
    Blocked { slot: usize, phase: i64 },
    /// Its turn is over.
    Paused,
    /// It is in front of a statement, where warps stop there.
    At(u32),
}

/// What went wrong in a lane; the place is the warp's operation at the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trap {
    /// An index of an access is outside.
    OutOfBounds { lane: usize, access: u32 },
    /// An element was read that nothing has written.
    Uninitialised(Touch),
    /// A vector access at an address that is not a multiple of its size.
    Misaligned { lane: usize, access: u32, element: i64 },
    /// A TMA box that begins between the units of a row of its array.
    Row { lane: usize, access: u32, bytes: i64 },
    /// An access that another thread's is not ordered with; while that one is looked for, this is it.
    Race(Touch),
    /// A datum that is an index is not among the values that are stated.
    Range { lane: usize, value: i64, range: (i64, i64), what: u32 },
    /// An integer was divided by zero.
    Division { lane: usize },
    /// An asynchronous product that is not ordered with what its warp does to registers.
    Product(&'static str),
    /// A register of such a product is touched, and nothing has waited for its group.
    Held(Touch),
    /// A barrier, or an instruction of the whole warp, reached by part of its threads.
    Divergence { mask: u32 },
    /// A barrier that another warp of the block will not reach.
    Stuck { other: usize, what: &'static str },
    /// An mbarrier, by its number, that is used wrongly.
    Mbarrier { lane: usize, slot: usize, what: &'static str },
    /// An access to global memory while the kernel in front may still run.
    Early,
    /// The threads of a block end, and what one of them has started does not.
    Unfinished { lane: usize, what: &'static str },
    /// No warp can go on.
    Deadlock(Vec<Waits>),
    /// More statements than allowed.
    Limit,
    /// Who watches the run has ended it.
    Stopped,
    /// The compiler of the simulator made bad code.
    Broken(&'static str),
}

/// The state of a warp.
#[derive(Debug, Clone)]
pub(super) struct Warp {
    /// Its number among the warps of its cluster; without clusters, of its block.
    pub number: usize,
    /// The number of its block's first warp.
    pub base: usize,
    /// Warps of its cluster.
    pub of: usize,
    pub scalars: Vec<i64>,
    pub vectors: Vec<[i64; LANES]>,
    pub registers: Vec<Register>,
    pub locals: Vec<Register>,
    /// Which lanes of a local element have been written.
    pub local_marks: Vec<u32>,
    /// The lanes that exist.
    pub full: u32,
    /// The lanes that run.
    pub mask: u32,
    /// Lanes beyond this one do not run.
    pub width: usize,
    /// The lane that it elects.
    pub elected: usize,
    /// Its copies under way.
    pub flights: CopiesInFlight,
    /// Its products under way.
    pub products: Products,
    /// Its bulk stores under way.
    pub stores: Stores,
    masks: Vec<u32>,
    conds: Vec<u32>,
    /// More conditions were taken than made, or more branches ended than begun.
    underflow: bool,
    /// It has not waited yet for the kernels in front of its own.
    early: bool,
    /// The statement that it runs, where statements are announced; and that it may begin the next one.
    pub statement: u32,
    pub begins: bool,
    pub pc: usize,
}

impl Warp {
    /// A warp before its first operation, with `threads` lanes.
    pub fn new(code: &Code, locals: usize, number: usize, threads: usize) -> Warp {
        let mut vectors = vec![[0; LANES]; code.vectors as usize];
        if let Some(lane) = vectors.get_mut(LANE as usize) {
            *lane = std::array::from_fn(|l| l as i64);
        }
        let full = lanes(threads);
        Warp {
            number,
            base: 0,
            of: 1,
            scalars: code.scalars.clone(),
            vectors,
            registers: vec![[0; LANES]; code.registers as usize],
            locals: vec![[0; LANES]; locals],
            local_marks: vec![0; locals],
            full,
            mask: full,
            width: threads,
            elected: 0,
            flights: CopiesInFlight::default(),
            products: Products::default(),
            stores: Stores::default(),
            masks: Vec::new(),
            conds: Vec::new(),
            underflow: false,
            early: code.early,
            statement: 0,
            begins: false,
            pc: 0,
        }
    }

    /// Its number in its block.
    pub fn place(&self) -> usize {
        self.number - self.base
    }

    /// Back to the first operation, nothing written.
    pub fn reset(&mut self, code: &Code) {
        self.early = code.early;
        self.local_marks.fill(0);
        self.stores = Stores::default();
        self.mask = self.full;
        self.masks.clear();
        self.conds.clear();
        self.products = Products::default();
        self.begins = false;
        self.pc = 0;
    }

    /// The value of an operand in a lane.
    pub fn value(&self, o: Operand, lane: usize) -> i64 {
        self.scalars[o.scalar as usize].wrapping_add(self.vectors[o.vector as usize][lane])
    }

    /// Runs until something stops it or it has ended `turn` statements.
    pub fn run(&mut self, code: &Code, world: &mut World, mut turn: u64) -> Result<Event, Trap> {
        world.early = self.early;
        while let Some(op) = code.ops.get(self.pc) {
            match *op {
                Op::Mad { dst, base, src, coeff } => {
                    let product = self.scalars[src as usize].wrapping_mul(coeff);
                    let v = self.scalars[base as usize].wrapping_add(product);
                    self.scalars[dst as usize] = v;
                }
                Op::LoopNext { var, extent, back } => {
                    let next = self.scalars[var as usize] + 1;
                    if next < self.scalars[extent as usize] {
                        self.scalars[var as usize] = next;
                        self.pc -= back as usize;
                        world.step()?;
                        continue;
                    }
                }
                Op::WalkNext { var, round, step, extent, back } => {
                    let next = self.scalars[var as usize] + self.scalars[step as usize];
                    if next < self.scalars[extent as usize] {
                        self.scalars[var as usize] = next;
                        self.scalars[round as usize] += 1;
                        self.pc -= back as usize;
                        world.step()?;
                        continue;
                    }
                }
                Op::LanesNext { var, extent, back } => {
                    let next = self.scalars[var as usize] + LANES as i64;
                    let rest = self.scalars[extent as usize] - next;
                    if rest > 0 {
                        self.scalars[var as usize] = next;
                        self.set_width(rest);
                        self.pc -= back as usize;
                        world.step()?;
                        continue;
                    }
                    self.set_width(1);
                }
                Op::Load { dst, access } => access::load(self, code, world, dst, access)?,
                Op::Store { src, access } => {
                    access::store(self, code, world, src, access)?;
                    if world.watcher.is_there() {
                        inspect::wrote(self, code, world, access)?;
                    }
                    self.show(code, world, op)?;
                    if self.ends_turn(world, &mut turn)? {
                        return Ok(Event::Paused);
                    }
                }
                Op::Remote { src, access, to, full } => {
                    access::remote(self, code, world, (src, to, full), access)?;
                    self.show(code, world, op)?;
                    if self.ends_turn(world, &mut turn)? {
                        return Ok(Event::Paused);
                    }
                }
                Op::Copy { src, access } => {
                    access::copy(self, code, world, src, access)?;
                    self.show(code, world, op)?;
                    if self.ends_turn(world, &mut turn)? {
                        return Ok(Event::Paused);
                    }
                }
                Op::Statement(_) if world.listener.has_enough => return Err(Trap::Limit),
                Op::Statement(number) if world.stops && !self.begins => return Ok(Event::At(number)),
                Op::Statement(number) => {
                    (self.statement, self.begins) = (number, false);
                    world.tell(EventKind::Statement(Statement { number, active: self.mask }));
                    inspect::before(self, code, world, number)?;
                }
                Op::Commit => self.flights.commit(self.mask, world, &code.accesses)?,
                Op::Wait { groups } => {
                    self.flights.wait((self.number, self.mask), groups, world, &code.accesses)?;
                }
                Op::Reduce { src, access, op: combined, dtype, kind } => {
                    let combine = alu::Combine { op: combined, dtype, kind };
                    access::reduce(self, code, world, src, access, combine)?;
                    self.show(code, world, op)?;
                    world.count(self.mask.count_ones())?;
                }
                Op::Collective(number) if self.mask == u32::MAX => {
                    collective::run(self, code, world, number)?;
                    self.show(code, world, op)?;
                    world.count(self.mask.count_ones())?;
                    turn -= 1;
                    if turn == 0 {
                        self.pc += 1;
                        return Ok(Event::Paused);
                    }
                }
                Op::Barrier { first, every, most } if self.mask == self.full => {
                    self.pc += 1;
                    return Ok(Event::Barrier(self.pc - 1, self.meeting(first, every, most)));
                }
                Op::ClusterBarrier if self.mask == self.full => {
                    self.pc += 1;
                    return Ok(Event::Barrier(self.pc - 1, Meeting { first: 0, warps: self.of }));
                }
                Op::WarpBarrier if self.mask == self.full => world.clock.warp_barrier(self.number),
                Op::Barrier { .. } | Op::ClusterBarrier | Op::WarpBarrier | Op::Collective(_) => {
                    return Err(Trap::Divergence { mask: self.mask });
                }
                Op::Role { first, warps, exit } => {
                    if !(first as usize..(first + warps) as usize).contains(&self.place()) {
                        self.pc += exit as usize - 1;
                    }
                }
                Op::Elect { first, warps, exit } => self.elect(first, warps, exit)?,
                Op::InitBarriers => self.init_barriers(world)?,
                Op::Arrive { array, at, bytes, blocks } => self.arrive(world, (array, at), bytes, blocks)?,
                Op::Await { array, at, phase } => {
                    if let Some((slot, phase)) = self.await_phase(world, array, at, phase)? {
                        return Ok(Event::Blocked { slot, phase });
                    }
                }
                // PTX ISA: "The mandatory .sync and .aligned qualifiers .. all threads in the warp must execute the same" fence,
                // commit and wait.
                Op::ProductFence | Op::ProductCommit | Op::ProductWait { .. } if self.mask != self.full => {
                    return Err(Trap::Divergence { mask: self.mask });
                }
                Op::ProductFence => self.products.fenced = true,
                Op::ProductCommit => self.products.commit(world.clock.tick()),
                Op::ProductWait { groups } => product::wait(self, world, groups)?,
                Op::Bulk(number) => {
                    bulk::run(self, code, world, number)?;
                    self.show(code, world, op)?;
                    if self.ends_turn(world, &mut turn)? {
                        return Ok(Event::Paused);
                    }
                }
                Op::BulkCommit => self.bulk_commit(code, world)?,
                Op::BulkWait { groups, read } => self.bulk_wait(code, world, groups, read)?,
                Op::Grid { waits } => {
                    self.early &= !waits;
                    world.early = self.early;
                }
                Op::ProxyFence => world.clock.fence(self.number, self.mask, self.full),
                Op::Check { access, at, extent } => self.check(access, at, extent)?,
                Op::Gather { src, dst, range, dtype, integer, what } => {
                    let of = |bits: u64| if integer { super::integer::index(dtype, bits as u32) } else { bits as i64 };
                    self.gather((src, dst), range, what, of)?;
                }
                ref other => {
                    if !self.control(other) && !self.slots(other) {
                        alu::run(other, self)?;
                    }
                }
            }
            self.pc += 1;
        }
        self.bulk_end()?;
        self.done()
    }

    /// Shows what an operation wrote to who watches.
    #[inline(always)]
    fn show(&self, code: &Code, world: &mut World, op: &Op) -> Result<(), Trap> {
        if world.onlooker.is_there() { scene::wrote(self, code, world, op) } else { Ok(()) }
    }

    /// Counts a statement; whether it was the last of the turn, and the warp follows it.
    #[inline(always)]
    fn ends_turn(&mut self, world: &mut World, turn: &mut u64) -> Result<bool, Trap> {
        world.count(self.mask.count_ones())?;
        *turn -= 1;
        self.pc += usize::from(*turn == 0);
        Ok(*turn == 0)
    }

    /// Indices of data.
    fn gather(
        &mut self,
        (src, dst): (Slot, Slot),
        range: (i64, i64),
        what: u32,
        of: impl Fn(u64) -> i64,
    ) -> Result<(), Trap> {
        for lane in 0..LANES {
            let runs = self.mask >> lane & 1 == 1;
            let value = if runs { of(self.registers[src as usize][lane]) } else { range.0 };
            if value < range.0 || value >= range.1 {
                return Err(Trap::Range { lane, value, range, what });
            }
            self.vectors[dst as usize][lane] = value - range.0;
        }
        Ok(())
    }

    fn check(&self, access: u32, at: Operand, extent: i64) -> Result<(), Trap> {
        let scalar = self.scalars[at.scalar as usize];
        for (lane, v) in self.vectors[at.vector as usize].iter().enumerate().take(self.width) {
            let v = scalar.wrapping_add(*v);
            if self.mask >> lane & 1 == 1 && (v < 0 || v >= extent) {
                return Err(Trap::OutOfBounds { lane, access });
            }
        }
        Ok(())
    }

    /// Loops, conditions and branches; false for any other operation.
    fn control(&mut self, op: &Op) -> bool {
        match *op {
            Op::LoopBegin { var, extent, exit } => {
                self.scalars[var as usize] = 0;
                if self.scalars[extent as usize] <= 0 {
                    self.pc += exit as usize - 1;
                }
            }
            Op::WalkBegin { var, round, first, extent, exit } => {
                self.scalars[round as usize] = 0;
                self.scalars[var as usize] = self.scalars[first as usize];
                if self.scalars[first as usize] >= self.scalars[extent as usize] {
                    self.pc += exit as usize - 1;
                }
            }
            Op::LanesBegin { var, extent, exit } => {
                self.scalars[var as usize] = 0;
                let extent = self.scalars[extent as usize];
                if extent <= 0 {
                    self.pc += exit as usize - 1;
                } else {
                    self.set_width(extent);
                }
            }
            Op::Test { op, a, b } => {
                let mask = self.test(op, a, b);
                self.conds.push(mask);
            }
            Op::TestConst(c) => self.conds.push(if c { u32::MAX } else { 0 }),
            Op::TestAnd => self.two_conds(|a, b| a & b),
            Op::TestOr => self.two_conds(|a, b| a | b),
            Op::TestNot => {
                let mask = !self.pop_cond();
                self.conds.push(mask);
            }
            Op::TestRegister { src, lanes, want } => {
                let registers = &self.registers[src as usize..(src + lanes) as usize];
                let any = |l: usize| u32::from(registers.iter().any(|r| (r[l] != 0) == want)) << l;
                let mask = (0..self.width).fold(0, |m, l| m | any(l));
                self.conds.push(mask);
            }
            Op::Branch { exit } => {
                let inside = self.pop_cond() & self.mask;
                if inside == 0 {
                    self.pc += exit as usize - 1;
                } else {
                    self.enter(inside);
                }
            }
            Op::Rejoin => self.rejoin(),
            Op::Truth { dst } => {
                let mask = self.pop_cond();
                self.registers[dst as usize] = std::array::from_fn(|l| u64::from(mask >> l & 1));
            }
            _ => return false,
        }
        true
    }

    /// Only the lanes of a mask run until the next rejoin.
    pub fn enter(&mut self, mask: u32) {
        self.masks.push(self.mask);
        self.mask = mask;
    }

    fn rejoin(&mut self) {
        let mask = self.masks.pop();
        self.underflow |= mask.is_none();
        self.mask = mask.unwrap_or(self.full);
    }

    /// The end of the code: each branch has taken a condition and has ended.
    fn done(&self) -> Result<Event, Trap> {
        match self.underflow || !self.conds.is_empty() || !self.masks.is_empty() {
            true => Err(Trap::Broken("conditions are made that no branch takes, or taken that none made")),
            false => Ok(Event::Done),
        }
    }

    fn set_width(&mut self, rest: i64) {
        self.width = rest.clamp(1, LANES as i64) as usize;
        self.mask = lanes(self.width);
    }

    pub fn pop_cond(&mut self) -> u32 {
        let cond = self.conds.pop();
        self.underflow |= cond.is_none();
        cond.unwrap_or(0)
    }

    fn two_conds(&mut self, f: fn(u32, u32) -> u32) {
        let (b, a) = (self.pop_cond(), self.pop_cond());
        self.conds.push(f(a, b));
    }

    fn test(&self, op: CmpOp, a: Operand, b: Operand) -> u32 {
        let compare = |x: i64, y: i64| op.holds(Some(x.cmp(&y)));
        if a.vector == 0 && b.vector == 0 {
            let holds = compare(self.scalars[a.scalar as usize], self.scalars[b.scalar as usize]);
            return if holds { u32::MAX } else { 0 };
        }
        (0..LANES).fold(0, |m, l| m | u32::from(compare(self.value(a, l), self.value(b, l))) << l)
    }

    /// Index arithmetic; false for any other operation.
    fn slots(&mut self, op: &Op) -> bool {
        match *op {
            Op::Scalar { op, dst, a, b } => {
                let (a, b) = (self.scalars[a as usize], self.scalars[b as usize]);
                self.scalars[dst as usize] = op.eval(a, b).unwrap_or(0);
            }
            Op::VectorMad { dst, base, src, coeff } => {
                let (base, src) = (self.vectors[base as usize], self.vectors[src as usize]);
                // Lanes beyond the width may hold anything.
                let mad = |l: usize| base[l].wrapping_add(src[l].wrapping_mul(coeff));
                self.vectors[dst as usize] = std::array::from_fn(mad);
            }
            Op::Vector { op, dst, a, b } => self.vector(op, dst, a, b),
            Op::Datum { dst, at, dtype, kind } => {
                let datum = |l: usize| match kind {
                    value::NumberKind::Integer => u64::from(self.value(at, l) as u32),
                    _ => value::from_index(dtype, self.value(at, l)),
                };
                self.registers[dst as usize] = std::array::from_fn(datum);
            }
            _ => return false,
        }
        true
    }

    fn vector(&mut self, op: IndexOp, dst: Slot, a: Operand, b: Operand) {
        let eval = |l: usize| op.eval(self.value(a, l), self.value(b, l)).unwrap_or(0);
        self.vectors[dst as usize] = std::array::from_fn(eval);
    }
}

/// The mask of the first `n` lanes.
fn lanes(n: usize) -> u32 {
    if n >= LANES { u32::MAX } else { (1 << n) - 1 }
}
