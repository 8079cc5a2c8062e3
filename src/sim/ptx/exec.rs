//! The loop that runs a warp: which group of lanes is next, guards, control flow, and operations on registers.

use super::alu::int::cut;
use super::code::{Code, Logic, NONE, Op, OpKind, Truth};
use super::flow::{END, State};
use super::inst::Entry;
use super::tensor;
use super::trap::Trap;
use super::warp::{Context, LANES, Lanes, Next, Warp};
use super::world::World;
use crate::error;
use crate::sim::Policy;

/// An entry that can run.
pub(in crate::sim::ptx) struct Program<'a> {
    pub entry: &'a Entry,
    pub code: Code,
    /// The immediate post-dominator of each branch.
    pub joins: Vec<u32>,
}

/// Why a warp does not run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Pause {
    /// Its turn is over.
    Turn,
    /// All its groups wait.
    Waits,
    /// All its lanes have ended.
    Done,
}

/// A fault with the place of the instruction.
#[derive(Debug)]
pub(in crate::sim::ptx) struct Halt {
    pub trap: Trap,
    pub pc: usize,
}

/// What an operation does to control.
pub(super) enum Flow {
    Next,
    /// To another place.
    Jump(u32),
    /// The group waits; it goes on behind the operation.
    Wait(State),
    /// The group waits; it runs the operation again.
    Retry(State),
    End,
    /// Part of the lanes go to another place.
    Part {
        taken: u32,
        to: u32,
    },
}

pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

#[inline(always)]
fn put(registers: &mut [Lanes], mask: u32, dst: u32, value: impl Fn(usize) -> u64) {
    let Some(to) = registers.get_mut(dst as usize) else { return };
    if mask == u32::MAX {
        for (lane, slot) in to.iter_mut().enumerate() {
            *slot = value(lane);
        }
    } else {
        for lane in lanes(mask) {
            to[lane] = value(lane);
        }
    }
}

impl Truth {
    /// The lanes in which it holds.
    pub fn mask(self, predicates: &[u32]) -> u32 {
        match self {
            Truth::Constant(value) => {
                if value {
                    u32::MAX
                } else {
                    0
                }
            }
            Truth::Reg { reg, negated } => predicates[reg as usize] ^ if negated { u32::MAX } else { 0 },
        }
    }
}

impl Warp {
    /// Writes a predicate of the lanes of a mask.
    pub fn put_predicate(&mut self, mask: u32, dst: u32, value: u32) {
        if let Some(to) = self.predicates.get_mut(dst as usize) {
            *to = *to & !mask | value & mask;
        }
    }

    /// Whether a group can run.
    pub fn is_ready(&self, progress: u64) -> bool {
        self.groups.iter().any(|g| ready(g.state, progress))
    }

    /// Runs until its turn is over, it ends, or it has to wait.
    pub fn run(
        &mut self,
        program: &Program<'_>,
        world: &mut World,
        turn: u64,
        (policy, rng): (Policy, &mut fastrand::Rng),
    ) -> Result<Pause, Halt> {
        let mut left = turn;
        loop {
            if self.groups.is_empty() {
                return Ok(Pause::Done);
            }
            let Some(group) = self.choose(world.progress, policy, rng) else { return Ok(Pause::Waits) };
            self.run_group(program, world, group, &mut left)?;
            if left == 0 {
                return Ok(if self.groups.is_empty() { Pause::Done } else { Pause::Turn });
            }
        }
    }

    fn choose(&self, progress: u64, policy: Policy, rng: &mut fastrand::Rng) -> Option<usize> {
        if let [only] = &self.groups[..] {
            return ready(only.state, progress).then_some(0);
        }
        let mut all = (0..self.groups.len()).filter(|g| ready(self.groups[*g].state, progress));
        match policy {
            Policy::InOrder => all.min_by_key(|g| self.groups[*g].pc),
            Policy::Reverse => all.max_by_key(|g| self.groups[*g].pc),
            Policy::Random(_) => {
                let count = all.clone().count();
                if count == 0 { None } else { all.nth(rng.usize(..count)) }
            }
        }
    }

    /// Runs a group until it parts, joins another, waits or ends, or the turn is over.
    fn run_group(
        &mut self,
        program: &Program<'_>,
        world: &mut World,
        group: usize,
        left: &mut u64,
    ) -> Result<(), Halt> {
        let mask = self.groups[group].mask;
        let join = self.groups[group].join;
        let mut pc = self.groups[group].pc as usize;
        self.groups[group].state = State::Ready;
        loop {
            if *left == 0 {
                self.groups[group].pc = pc as u32;
                return Ok(());
            }
            *left -= 1;
            let Some(op) = program.code.ops.get(pc) else {
                let message = "control runs past the last instruction of the entry, where no ret is";
                return Err(Halt { trap: Trap::warp(error::Code::PtxEnd, message), pc: pc.saturating_sub(1) });
            };
            world.steps += 1;
            if world.steps > world.limit {
                let message = "the program runs more instructions than the simulator was allowed";
                return Err(Halt { trap: Trap::warp(error::Code::PtxLimit, message), pc });
            }
            let active = match op.guard {
                None => mask,
                Some(guard) => {
                    let holds = self.predicates[guard.predicate as usize];
                    mask & if guard.negated { !holds } else { holds }
                }
            };
            if world.tensor.is_watching(self.number) && active != 0 && !matches!(op.kind, OpKind::Tensor(_)) {
                let touched = world.tensor.touch(self.number, &program.entry.insts[pc]);
                touched.map_err(|trap| Halt { trap, pc })?;
            }
            if self.poison.is_any() {
                let spread = self.spread(op, &program.entry.insts[pc], (active, mask));
                spread.map_err(|trap| Halt { trap, pc })?;
            }
            let flow = match active {
                0 => Flow::Next,
                _ => self.step(program, world, (op, pc), (active, mask)).map_err(|trap| Halt { trap, pc })?,
            };
            if world.trace.is_some() {
                self.trace(program, world, (op, pc), active);
            }
            match flow {
                Flow::Next => pc += 1,
                Flow::Jump(to) => pc = to as usize,
                Flow::Wait(state) => {
                    self.groups[group].pc = pc as u32 + 1;
                    self.groups[group].state = state;
                    return Ok(());
                }
                Flow::Retry(state) => {
                    self.groups[group].pc = pc as u32;
                    self.groups[group].state = state;
                    return Ok(());
                }
                Flow::End => {
                    self.groups[group].pc = pc as u32 + 1;
                    let ended = self.ends(world, active).map(|()| self.end(group, active));
                    return ended.map_err(|trap| Halt { trap, pc });
                }
                Flow::Part { taken, to } => {
                    self.groups[group].pc = pc as u32;
                    self.part(group, taken, to, program.joins.get(pc).copied().unwrap_or(END));
                    return Ok(());
                }
            }
            if pc as u32 == join {
                self.groups[group].pc = pc as u32;
                self.arrive(group);
                return Ok(());
            }
        }
    }

    /// Traps if a thread of a concurrent kernel ends without griddepcontrol.wait.
    fn ends(&self, world: &World, lanes: u32) -> Result<(), Trap> {
        let early = lanes & !self.waited;
        if !world.concurrent || early == 0 {
            return Ok(());
        }
        let message = "a thread of a concurrent kernel ends without griddepcontrol.wait";
        Err(Trap::lane(error::Code::PtxPdl, early.trailing_zeros() as usize, message))
    }

    /// Runs an operation for the lanes of a mask; `all` are those of the group.
    #[inline(always)]
    fn step(
        &mut self,
        program: &Program<'_>,
        world: &mut World,
        (op, pc): (&Op, usize),
        (mask, all): (u32, u32),
    ) -> Result<Flow, Trap> {
        let registers = &mut self.registers;
        match &op.kind {
            OpKind::Move => {
                let a = registers[op.a as usize];
                put(registers, mask, op.dst, |l| a[l]);
            }
            OpKind::Add32 => {
                let (a, b) = (registers[op.a as usize], registers[op.b as usize]);
                put(registers, mask, op.dst, |l| u64::from((a[l] as u32).wrapping_add(b[l] as u32)));
            }
            OpKind::Add64 => {
                let (a, b) = (registers[op.a as usize], registers[op.b as usize]);
                put(registers, mask, op.dst, |l| a[l].wrapping_add(b[l]));
            }
            OpKind::Fma32 => {
                let [a, b, c] = [op.a, op.b, op.c].map(|r| registers[r as usize]);
                let f = |n: u64| f32::from_bits(n as u32);
                put(registers, mask, op.dst, |l| u64::from(f(a[l]).mul_add(f(b[l]), f(c[l])).to_bits()));
            }
            OpKind::Map1(map) => {
                let a = registers[op.a as usize];
                put(registers, mask, op.dst, |l| map(a[l]));
            }
            OpKind::Map2(map) => {
                let (a, b) = (registers[op.a as usize], registers[op.b as usize]);
                put(registers, mask, op.dst, |l| map(a[l], b[l]));
            }
            OpKind::Map3(map) => {
                let [a, b, c] = [op.a, op.b, op.c].map(|r| registers[r as usize]);
                put(registers, mask, op.dst, |l| map(a[l], b[l], c[l]));
            }
            OpKind::Compare { compare, complement, with } => {
                let (a, b) = (&registers[op.a as usize], &registers[op.b as usize]);
                let mut found = lanes(mask).fold(0, |m, l| m | u32::from(compare(a[l], b[l])) << l);
                let mut other = !found;
                if let Some((logic, truth)) = with {
                    let with = truth.mask(&self.predicates);
                    (found, other) = (logic.of(found, with), logic.of(other, with));
                }
                self.put_predicate(mask, op.dst, found);
                self.put_predicate(mask, *complement, other);
            }
            OpKind::Branch(to) if mask == all => return Ok(Flow::Jump(*to)),
            OpKind::Branch(to) => return Ok(Flow::Part { taken: mask, to: *to }),
            OpKind::End => return Ok(Flow::End),
            OpKind::Load(access) => {
                world.line = program.entry.insts[pc].line;
                self.load(world, access, op, mask)?;
            }
            OpKind::Store(access) => {
                world.line = program.entry.insts[pc].line;
                self.store(world, access, op, mask)?;
            }
            _ => return self.rest(program, world, (op, pc), (mask, all)),
        }
        Ok(Flow::Next)
    }

    /// The less common operations.
    fn rest(
        &mut self,
        program: &Program<'_>,
        world: &mut World,
        (op, pc): (&Op, usize),
        (mask, all): (u32, u32),
    ) -> Result<Flow, Trap> {
        world.line = program.entry.insts[pc].line;
        let registers = &mut self.registers;
        match &op.kind {
            OpKind::Map4(map) => {
                let [a, b, c, d] = [op.a, op.b, op.c, op.d].map(|r| registers[r as usize]);
                put(registers, mask, op.dst, |l| map(a[l], b[l], c[l], d[l]));
            }
            OpKind::Convert(convert) => {
                let a = registers[op.a as usize];
                put(registers, mask, op.dst, |l| convert.apply(a[l]));
            }
            OpKind::ConvertPair { convert, bits } => {
                let (a, b) = (registers[op.a as usize], registers[op.b as usize]);
                put(registers, mask, op.dst, |l| convert.apply(a[l]) << bits | convert.apply(b[l]));
            }
            OpKind::Unpair { convert, bits } => {
                let (a, from, to) = (registers[op.a as usize], bits >> 8, bits & 255);
                let ones = (1u64 << from) - 1;
                put(registers, mask, op.dst, |l| convert.apply(a[l] >> from) << to | convert.apply(a[l] & ones));
            }
            OpKind::Select(truth) => {
                let holds = truth.mask(&self.predicates);
                let (a, b) = (registers[op.a as usize], registers[op.b as usize]);
                put(registers, mask, op.dst, |l| if holds >> l & 1 == 1 { a[l] } else { b[l] });
            }
            OpKind::Predicate(logic, a, b, not) => {
                let value = logic.of(a.mask(&self.predicates), b.mask(&self.predicates));
                self.put_predicate(mask, op.dst, if *not { !value } else { value });
            }
            OpKind::Pack { parts, bits } => {
                let parts: Vec<Lanes> = parts.iter().map(|p| registers[*p as usize]).collect();
                let whole = |l: usize| parts.iter().rev().fold(0, |out, p| out << bits | p[l]);
                put(registers, mask, op.dst, whole);
            }
            OpKind::Unpack { parts, bits } => {
                let a = registers[op.a as usize];
                for (n, part) in parts.iter().enumerate() {
                    let ones = if *bits == 32 { cut::<32>(u64::MAX) } else { (1 << bits) - 1 };
                    put(registers, mask, *part, |l| a[l] >> (n as u32 * bits) & ones);
                }
            }
            OpKind::Tag { set, tag } => {
                let a = registers[op.a as usize];
                put(registers, mask, op.dst, |l| if *set { a[l] | tag } else { a[l] & !tag });
            }
            OpKind::Tensor(n) => {
                let inst = &program.entry.insts[pc];
                let mut context = Context { entry: program.entry, inst, warp: self, mask, world };
                return match tensor::step(&program.code.tensor[*n as usize], &mut context)? {
                    Next::Go => Ok(Flow::Next),
                    Next::Blocked if mask == all => Ok(Flow::Retry(State::Blocked { progress: world.progress })),
                    Next::Blocked => Err(Trap::warp(error::Code::PtxDivergence, "part of a group waits under a guard")),
                };
            }
            _ => return self.collective(world, op, (mask, all), &program.entry.insts[pc]),
        }
        Ok(Flow::Next)
    }

    /// Barriers, copies, and what lanes exchange.
    fn collective(
        &mut self,
        world: &mut World,
        op: &Op,
        (mask, all): (u32, u32),
        inst: &super::inst::Inst,
    ) -> Result<Flow, Trap> {
        match &op.kind {
            OpKind::Barrier => {
                Context { entry: &Entry::default(), inst, warp: self, mask, world }.aligned()?;
                return self.barrier(op, world).map(Flow::Wait);
            }
            OpKind::WarpBarrier => {
                let lanes = self.uniform(op.a, mask, "the mask")? as u32 & self.full;
                if lanes != mask {
                    return Err(self.apart("bar.warp.sync", lanes, mask));
                }
                world.clock.raw_meet_lanes(self.number, mask, self.full);
            }
            OpKind::Copy { bytes, source } => self.copy(world, op, (*bytes, *source), mask)?,
            OpKind::Commit => {
                let mut copies = std::mem::take(&mut self.copies);
                copies.commit(world, mask);
                self.copies = copies;
            }
            OpKind::Wait(groups) => {
                let mut copies = std::mem::take(&mut self.copies);
                copies.wait(world, self.number, mask, *groups);
                self.copies = copies;
            }
            OpKind::Shuffle { mode, predicate } => self.shuffle(op, (*mode, *predicate), mask)?,
            OpKind::Vote(vote) => self.vote(op, *vote, mask)?,
            OpKind::ActiveMask => put(&mut self.registers, mask, op.dst, |_| u64::from(all)),
            OpKind::Elect => {
                let members = self.uniform(op.b, mask, "the mask")? as u32 & self.full;
                if members != mask {
                    return Err(self.apart("elect.sync", members, mask));
                }
                let lane = if mask >> self.elected & 1 == 1 { self.elected } else { mask.trailing_zeros() as usize };
                self.put_predicate(mask, op.dst, 1 << lane);
                put(&mut self.registers, mask, op.a, |_| lane as u64);
            }
            _ => {}
        }
        Ok(Flow::Next)
    }

    /// Error: the active lanes differ from the lanes that the instruction requires.
    pub(super) fn apart(&self, what: &str, members: u32, mask: u32) -> Trap {
        let message = format!("{what} of lanes {members:#010x} is executed by lanes {mask:#010x}");
        Trap::warp(error::Code::PtxDivergence, message)
    }

    /// The value of a register that is the same in all lanes of a mask.
    pub(super) fn uniform(&self, reg: u32, mask: u32, what: &str) -> Result<u64, Trap> {
        let values = &self.registers[reg as usize];
        let first = values[(mask.trailing_zeros() as usize).min(LANES - 1)];
        match lanes(mask).find(|l| values[*l] != first) {
            None => Ok(first),
            Some(lane) => {
                Err(Trap::lane(error::Code::PtxDivergence, lane, format!("{what} differs between the lanes of a warp")))
            }
        }
    }

    fn barrier(&self, op: &Op, world: &World) -> Result<State, Trap> {
        let number = self.uniform(op.a, self.full, "the number of the barrier")? as u32;
        let threads: u32 = world.block.iter().product::<u32>().next_multiple_of(LANES as u32);
        let threads = match op.b {
            NONE => threads,
            reg => {
                let stated = self.uniform(reg, self.full, "the number of threads")? as u32;
                if stated == 0 || stated > threads || !stated.is_multiple_of(LANES as u32) {
                    let message = format!("{stated} threads join a barrier of a block of {threads}");
                    return Err(Trap::warp(error::Code::PtxBarrier, message));
                }
                stated
            }
        };
        if number > 15 {
            return Err(Trap::warp(error::Code::PtxBarrier, format!("a block has barriers 0 to 15, and not {number}")));
        }
        Ok(State::Barrier { number, threads })
    }
}

impl Logic {
    fn of(self, a: u32, b: u32) -> u32 {
        match self {
            Logic::And => a & b,
            Logic::Or => a | b,
            Logic::Xor => a ^ b,
        }
    }
}

fn ready(state: State, progress: u64) -> bool {
    match state {
        State::Ready => true,
        State::Blocked { progress: seen } => seen != progress,
        State::Barrier { .. } => false,
    }
}
