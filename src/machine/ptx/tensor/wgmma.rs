//! wgmma: the four warps of a warpgroup multiply tiles, each computing 16 of the 64 rows (PTX ISA, "wgmma.mma_async").
//!
//! A wgmma reads shared memory, and its registers belong to it, from its start until its warp has waited for its group.
//! What is checked besides the bytes:
//!
//! - `wgmma.fence` lies between an ordinary access of a register and a wgmma that accumulates in it or takes A from it;
//! - no ordinary instruction touches the registers of a wgmma under way, and no wgmma of another shape does;
//! - the warps of the warpgroup execute the same wgmmas with the same descriptors;
//! - the kernel does not end before its wgmmas have been waited for.

use super::super::inst::{Inst, Operand, Reg};
use super::super::trap::Trap;
use super::super::warp::Context;
use super::super::world::Space;
use super::fragment::{self, operand_registers};
use super::mma::shape;
use super::number::{Number, elements, is_integer, multiply};
use super::operands::{constant, count, list, operand, put, registers, uniform, unsupported, whole_warp, words};
use super::tile::Descriptor;
use crate::dtype::DType;
use crate::error::Result;
use crate::machine::clocks::{By, Seen};
use std::collections::{BTreeMap, VecDeque};

/// Rows of the accumulators that a warp has, and warps of a warpgroup.
const ROWS: usize = 16;
const WARPS: usize = 4;

/// A decoded instruction of this module.
#[derive(Debug, Clone)]
pub(super) enum Wgmma {
    Fence,
    Commit,
    Wait(u64),
    Multiply(Multiply),
}

/// A decoded `wgmma.mma_async`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Multiply {
    columns: usize,
    depth: usize,
    /// D, A, B.
    types: [DType; 3],
    /// A is in registers.
    registers: bool,
    /// A and B are negated.
    negated: [bool; 2],
    /// k runs across the rows of A and B.
    across: [bool; 2],
}

impl Wgmma {
    pub fn decode(inst: &Inst) -> Result<Wgmma> {
        if !inst.has("sync") || !inst.has("aligned") {
            return Err(unsupported(inst, ".sync.aligned is missing"));
        }
        match inst.opcode[1].as_str() {
            "fence" => Ok(Wgmma::Fence),
            "commit_group" => Ok(Wgmma::Commit),
            "wait_group" => {
                count(inst, 1..=1)?;
                Ok(Wgmma::Wait(constant(inst, 0)?))
            }
            "mma_async" => Ok(Wgmma::Multiply(Multiply::decode(inst)?)),
            _ => Err(unsupported(inst, "this operation is not supported")),
        }
    }

    pub fn step(&self, state: &mut State, context: &mut Context<'_>) -> std::result::Result<(), Trap> {
        whole_warp(context)?;
        let number = context.warp.number;
        let Some(warp) = state.warps.get_mut(number) else {
            return Err(Trap::warp("wgmma", "the warp is not of the cluster that runs"));
        };
        match self {
            Wgmma::Fence => warp.fence(),
            Wgmma::Commit => warp.commit(context.world.clock.tick()),
            Wgmma::Wait(groups) => {
                if let Some(at) = warp.wait(*groups) {
                    let mut seen = Seen::default();
                    seen.add(context.world.clock.clocks.products(number), at);
                    context.world.clock.clocks.acquire(number, context.warp.full, context.warp.full, &seen);
                }
            }
            Wgmma::Multiply(multiply) => return multiply.step(state, context),
        }
        Ok(())
    }
}

impl Multiply {
    fn decode(inst: &Inst) -> Result<Multiply> {
        let parts: Vec<&str> = inst.opcode.iter().map(String::as_str).collect();
        let [_, _, _, _, dims, d, a, b] = parts[..] else {
            return Err(unsupported(inst, "only a shape and three types are supported"));
        };
        let types = [d, a, b].map(DType::parse);
        let (Some([m, columns, depth]), [Some(d), Some(a), Some(b)]) = (shape(dims), types) else {
            return Err(unsupported(inst, "the shape or a type is unknown"));
        };
        let integer = is_integer(a);
        let is_known = match a {
            DType::F16 => b == a && matches!(d, DType::F16 | DType::F32),
            DType::Bf16 | DType::Tf32 => b == a && d == DType::F32,
            DType::E4m3 | DType::E5m2 => matches!(b, DType::E4m3 | DType::E5m2) && matches!(d, DType::F16 | DType::F32),
            DType::S8 | DType::U8 => matches!(b, DType::S8 | DType::U8) && d == DType::S32,
            _ => false,
        };
        let most = (8..=256).contains(&columns) && columns % 8 == 0;
        let few = !integer || columns % 16 == 0 || columns == 8 || columns == 24;
        if !is_known || m != 64 || !most || !few || depth * a.bits() as usize != 256 {
            return Err(unsupported(inst, "the PTX ISA has no such shape with these types"));
        }
        registers(inst, 0, fragment::accumulator_registers(ROWS, columns, d))?;
        let in_registers = matches!(operand(inst, 1)?, Operand::Vector(_));
        if in_registers {
            registers(inst, 1, operand_registers(ROWS, depth, a))?;
        }
        for n in usize::from(in_registers) + 1..=2 {
            match operand(inst, n)? {
                Operand::Reg { bits: 64, .. } | Operand::Imm(_) => {}
                _ => return Err(unsupported(inst, &format!("operand {} is no descriptor", n + 1))),
            }
        }
        match operand(inst, 3)? {
            Operand::Pred { .. } | Operand::Imm(_) => {}
            _ => return Err(unsupported(inst, "operand 4 is no predicate")),
        }
        // Floats have two factors of 1 or -1, 16-bit elements besides a major for each tile in memory.
        let majors = if a.bits() == 16 { 2 - usize::from(in_registers) } else { 0 };
        let wanted = if integer { 4 } else { 6 + majors };
        count(inst, wanted..=wanted)?;
        let (mut negated, mut across) = ([false; 2], [false; 2]);
        if !integer {
            for (n, negated) in negated.iter_mut().enumerate() {
                *negated = match constant(inst, 4 + n)? as i64 {
                    1 => false,
                    -1 => true,
                    _ => return Err(unsupported(inst, "a factor is neither 1 nor -1")),
                };
            }
            for n in 0..majors {
                across[2 - majors + n] = match constant(inst, 6 + n)? {
                    0 => false,
                    1 => true,
                    _ => return Err(unsupported(inst, "a major is neither 0 nor 1")),
                };
            }
        }
        Ok(Multiply { columns, depth, types: [d, a, b], registers: in_registers, negated, across })
    }

    fn step(&self, state: &mut State, context: &mut Context<'_>) -> std::result::Result<(), Trap> {
        let inst = context.inst;
        let number = context.warp.number;
        let (place, each) = (context.warp.place, state.each);
        if place / WARPS * WARPS + WARPS > each {
            return Err(Trap::warp("wgmma", format!("warp {place} of a block of {each} is in no warpgroup of four")));
        }
        let descriptor = |n: usize| uniform(context, &inst.operands[n], "a matrix descriptor");
        let a = if self.registers { None } else { Some(descriptor(1)?) };
        let b = descriptor(2)?;
        let adds = uniform(context, &inst.operands[3], "the predicate of a wgmma")? != 0;
        state.agree(number, Executed { line: inst.line, descriptors: [a.unwrap_or(0), b], adds })?;
        let warp = &mut state.warps[number];
        warp.take(inst, self)?;
        let found = match is_integer(self.types[1]) {
            true => self.run::<i32>(context, (a, b), adds)?,
            false => self.run::<f32>(context, (a, b), adds)?,
        };
        put(context, 0, &found);
        Ok(())
    }

    fn run<N: Number>(
        &self,
        context: &mut Context<'_>,
        (a, b): (Option<u64>, u64),
        adds: bool,
    ) -> std::result::Result<Vec<fragment::Lanes>, Trap> {
        let (columns, depth, [d, of_a, of_b]) = (self.columns, self.depth, self.types);
        let first = context.warp.place % WARPS * ROWS;
        let mut x = match a {
            None => fragment::a_rows(&words(context, 1), ROWS, depth, of_a),
            Some(bits) => {
                let mut x = vec![N::default(); ROWS * depth];
                let tile = Tile { bits, across: self.across[0], dtype: of_a, lines: first..first + ROWS, depth };
                tile.read(context, |line, k, value| x[(line - first) * depth + k] = value)?;
                x
            }
        };
        let mut y = vec![N::default(); depth * columns];
        let tile = Tile { bits: b, across: self.across[1], dtype: of_b, lines: 0..columns, depth };
        tile.read(context, |column, k, value| y[k * columns + column] = value)?;
        for (negated, values) in self.negated.iter().zip([&mut x, &mut y]) {
            if *negated {
                values.iter_mut().for_each(|v| *v = v.negated());
            }
        }
        let mut sums = match adds {
            true => fragment::accumulators(&words(context, 0), ROWS, columns, d),
            false => vec![N::default(); ROWS * columns],
        };
        multiply(&mut sums, &x, &y, columns, depth);
        Ok(fragment::to_registers(&sums, ROWS, columns, d))
    }
}

/// Some rows of A (or columns of B) of a tile in shared memory.
struct Tile {
    bits: u64,
    across: bool,
    dtype: DType,
    lines: std::ops::Range<usize>,
    depth: usize,
}

impl Tile {
    /// Reads the elements chunk by chunk, as the agent of the warp's wgmmas.
    fn read<N: Number>(
        &self,
        context: &mut Context<'_>,
        mut take: impl FnMut(usize, usize, N),
    ) -> std::result::Result<(), Trap> {
        let descriptor = Descriptor::decode(self.bits);
        let warp = context.warp.number;
        let by = By { warp, lane: 0, agent: context.world.clock.clocks.products(warp) };
        let raw = context.world.access(by, true);
        let in_chunk = (128 / self.dtype.bits()) as usize;
        let (rows, chunks) = match self.across {
            false => (self.lines.clone(), 0..self.depth / in_chunk),
            true => (0..self.depth, self.lines.start / in_chunk..self.lines.end / in_chunk),
        };
        let mut bytes = [0; 16];
        for row in rows {
            for chunk in chunks.clone() {
                let at = descriptor.address(!self.across, row as u64, chunk as u64);
                let spot = context.world.locate((Space::Shared, context.warp.rank, 0), at, 16, 16)?;
                context.world.read(&raw, 0, spot, &mut bytes)?;
                elements(self.dtype, &bytes, |n, value| match self.across {
                    false => take(row, chunk * in_chunk + n, value),
                    true => take(chunk * in_chunk + n, row, value),
                });
            }
        }
        Ok(())
    }
}

/// A wgmma as a warp executed it: what its warpgroup has to agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Executed {
    line: u32,
    descriptors: [u64; 2],
    adds: bool,
}

/// What the warps of a cluster have under way.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    warps: Vec<Products>,
    each: usize,
    /// Of each warpgroup: what the first of its warps has executed and the last has not, and how many are gone.
    executed: Vec<(u64, VecDeque<Executed>)>,
}

impl State {
    /// A cluster of so many warps begins, so many in a block.
    pub fn begin(&mut self, warps: usize, each: usize) {
        self.warps = vec![Products::default(); warps];
        self.each = each;
        let groups = each.div_ceil(WARPS).max(1);
        self.executed = vec![(0, VecDeque::new()); warps / each.max(1) * groups];
    }

    pub fn is_watching(&self, warp: usize) -> bool {
        self.warps.get(warp).is_some_and(|w| w.watching)
    }

    pub fn touch(&mut self, warp: usize, inst: &Inst) -> std::result::Result<(), Trap> {
        self.warps.get_mut(warp).map_or(Ok(()), |w| w.touch(inst))
    }

    /// A warp executes a wgmma: the same as the others of its warpgroup.
    fn agree(&mut self, number: usize, mine: Executed) -> std::result::Result<(), Trap> {
        let groups = self.each.div_ceil(WARPS);
        let (block, place) = (number / self.each, number % self.each);
        let count = self.warps[number].executed;
        self.warps[number].executed += 1;
        let members = block * self.each + place / WARPS * WARPS;
        let slowest = self.warps[members..members + WARPS].iter().map(|w| w.executed).min().unwrap_or(0);
        let (gone, log) = &mut self.executed[block * groups + place / WARPS];
        let at = (count - *gone) as usize;
        let same = match log.get(at) {
            Some(theirs) => *theirs == mine,
            None => {
                log.push_back(mine);
                true
            }
        };
        while *gone < slowest {
            log.pop_front();
            *gone += 1;
        }
        match same {
            true => Ok(()),
            false => Err(Trap::warp(
                "wgmma",
                "the warps of the warpgroup execute different wgmmas here, or pass different descriptors or predicates",
            )),
        }
    }

    /// All warps have ended.
    pub fn end(&self) -> std::result::Result<(), Trap> {
        if self.warps.iter().any(|w| w.held > 0) {
            return Err(Trap::warp("unfinished", "the kernel ends, and nothing has waited for its last wgmmas"));
        }
        match self.executed.iter().all(|(_, log)| log.is_empty()) {
            true => Ok(()),
            false => Err(Trap::warp("wgmma", "a wgmma was not executed by all four warps of its warpgroup")),
        }
    }
}

/// Who has a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Owner {
    #[default]
    Nobody,
    /// An accumulator of wgmmas under way of that many columns, the last of which is in that group.
    Accumulator { group: u64, columns: usize },
    /// A register of A.
    Factor { group: u64 },
}

/// What ordinary instructions have done to a register since the last `wgmma.fence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Touched {
    #[default]
    Not,
    Read,
    Written,
}

/// The wgmmas of a warp.
#[derive(Debug, Clone, Default)]
struct Products {
    watching: bool,
    fenced: bool,
    /// How many it has executed.
    executed: u64,
    /// Groups that it has closed, and when each that nothing has waited for was.
    closed: u64,
    ends: BTreeMap<u64, u64>,
    owners: Vec<Owner>,
    held: usize,
    touched: Vec<Touched>,
}

fn at<T: Copy + Default>(values: &mut Vec<T>, reg: Reg) -> &mut T {
    let n = reg as usize;
    if values.len() <= n {
        values.resize(n + 1, T::default());
    }
    &mut values[n]
}

impl Products {
    fn fence(&mut self) {
        (self.watching, self.fenced) = (true, true);
        self.touched.fill(Touched::Not);
    }

    fn commit(&mut self, now: u64) {
        self.ends.insert(self.closed, now);
        self.closed += 1;
    }

    /// Waits until at most so many groups are under way; when the last that is done was closed.
    fn wait(&mut self, groups: u64) -> Option<u64> {
        let open = self.closed.saturating_sub(groups);
        let rest = self.ends.split_off(&open);
        let done = std::mem::replace(&mut self.ends, rest);
        if self.held > 0 {
            for owner in &mut self.owners {
                let group = match owner {
                    Owner::Accumulator { group, .. } | Owner::Factor { group } => *group,
                    Owner::Nobody => continue,
                };
                if group < open {
                    *owner = Owner::Nobody;
                    self.held -= 1;
                }
            }
        }
        done.values().max().copied()
    }

    /// The registers of a wgmma belong to it from now on.
    fn take(&mut self, inst: &Inst, multiply: &Multiply) -> std::result::Result<(), Trap> {
        if !self.fenced {
            return Err(Trap::warp("wgmma", "no wgmma.fence comes before the warp's first wgmma"));
        }
        let group = self.closed;
        let unfenced = |what: &str| {
            let message = format!("{what} has been accessed since the last wgmma.fence");
            Err(Trap::warp("wgmma", message))
        };
        if multiply.registers {
            for reg in list(&inst.operands[1]).iter().filter_map(register) {
                match at(&mut self.owners, reg) {
                    Owner::Accumulator { .. } => {
                        let message = "a register of A is an accumulator of a wgmma that has not been waited for";
                        return Err(Trap::warp("wgmma", message));
                    }
                    owner => {
                        self.held += usize::from(*owner == Owner::Nobody);
                        *owner = Owner::Factor { group };
                    }
                }
                if *at(&mut self.touched, reg) == Touched::Written {
                    return unfenced("a register of A");
                }
            }
        }
        for reg in list(&inst.operands[0]).iter().filter_map(register) {
            let columns = multiply.columns;
            match at(&mut self.owners, reg) {
                Owner::Factor { .. } => {
                    let message = "an accumulator is a register of A of a wgmma that has not been waited for";
                    return Err(Trap::warp("wgmma", message));
                }
                Owner::Accumulator { columns: other, .. } if *other != columns => {
                    let message = "an accumulator is one of a wgmma of another shape that has not been waited for";
                    return Err(Trap::warp("wgmma", message));
                }
                owner => {
                    self.held += usize::from(*owner == Owner::Nobody);
                    *owner = Owner::Accumulator { group, columns };
                }
            }
            if *at(&mut self.touched, reg) != Touched::Not {
                return unfenced("an accumulator");
            }
        }
        Ok(())
    }

    /// An ordinary instruction accesses its registers.
    fn touch(&mut self, inst: &Inst) -> std::result::Result<(), Trap> {
        for (n, operand) in inst.operands.iter().enumerate() {
            let how = match operand {
                Operand::Reg { .. } | Operand::Vector(_) | Operand::Pair(..) if n == 0 => Touched::Written,
                _ => Touched::Read,
            };
            self.touch_operand(operand, how)?;
        }
        Ok(())
    }

    fn touch_operand(&mut self, operand: &Operand, how: Touched) -> std::result::Result<(), Trap> {
        match operand {
            Operand::Reg { reg, .. } => self.touch_register(*reg, how),
            Operand::Address { base: Some(reg), .. } => self.touch_register(*reg, Touched::Read),
            Operand::Vector(parts) => parts.iter().try_for_each(|p| self.touch_operand(p, how)),
            Operand::Tensor { map, coordinates } => {
                self.touch_operand(map, Touched::Read)?;
                coordinates.iter().try_for_each(|p| self.touch_operand(p, Touched::Read))
            }
            Operand::Pair(first, second) => {
                self.touch_operand(first, how)?;
                self.touch_operand(second, how)
            }
            _ => Ok(()),
        }
    }

    fn touch_register(&mut self, reg: Reg, how: Touched) -> std::result::Result<(), Trap> {
        let done = if how == Touched::Written { "written" } else { "read" };
        let what = match self.owners.get(reg as usize) {
            Some(Owner::Accumulator { .. }) => "an accumulator",
            Some(Owner::Factor { .. }) => "a register of A",
            _ => {
                let touched = at(&mut self.touched, reg);
                *touched = (*touched).max(how);
                return Ok(());
            }
        };
        Err(Trap::warp(
            "wgmma",
            format!("{what} of a wgmma is {done}, but its group has not been waited for (wgmma.wait_group)"),
        ))
    }
}

fn register(operand: &Operand) -> Option<Reg> {
    match operand {
        Operand::Reg { reg, .. } => Some(*reg),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reg(reg: u32) -> Operand {
        Operand::Reg { reg, bits: 32 }
    }

    fn inst(opcode: &str, operands: Vec<Operand>) -> Inst {
        let opcode = opcode.split('.').map(str::to_string).collect();
        Inst { line: 1, guard: None, opcode, operands }
    }

    fn product(first: u32) -> (Inst, Multiply) {
        let descriptor = || Operand::Reg { reg: 100, bits: 64 };
        let operands = vec![
            Operand::Vector((first..first + 4).map(reg).collect()),
            descriptor(),
            descriptor(),
            Operand::Imm(1),
            Operand::Imm(1),
            Operand::Imm(u64::MAX),
            Operand::Imm(0),
            Operand::Imm(1),
        ];
        let inst = inst("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", operands);
        let decoded = Multiply::decode(&inst).unwrap();
        (inst, decoded)
    }

    #[test]
    fn operands_are_decoded_in_the_order_of_the_isa() {
        let (_, decoded) = product(0);
        assert_eq!((decoded.negated, decoded.across), ([false, true], [false, true]));
        assert_eq!((decoded.columns, decoded.depth, decoded.registers), (8, 16, false));
        let a = Operand::Vector((0..4).map(reg).collect());
        let d = Operand::Vector((8..12).map(reg).collect());
        let from = vec![d, a, Operand::Reg { reg: 5, bits: 64 }, Operand::Imm(0)];
        let decoded = Multiply::decode(&inst("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8", from.clone()));
        assert!(decoded.is_ok_and(|d| d.registers && d.depth == 32));
        for wrong in ["m64n8k16.s32.s8.s8", "m64n40k32.s32.s8.s8", "m64n8k32.s32.s8.f16"] {
            assert!(Multiply::decode(&inst(&format!("wgmma.mma_async.sync.aligned.{wrong}"), from.clone())).is_err());
        }
    }

    #[test]
    fn registers_of_a_wgmma_are_untouchable_until_its_group_is_waited_for() {
        let (first, decoded) = product(0);
        let mut warp = Products::default();
        assert!(warp.take(&first, &decoded).unwrap_err().message.contains("no wgmma.fence"));
        warp.fence();
        warp.take(&first, &decoded).unwrap();
        warp.commit(5);
        warp.take(&first, &decoded).unwrap();
        warp.commit(6);
        let reads = inst("add.f32", vec![reg(50), reg(3), reg(51)]);
        assert_eq!(warp.wait(1), Some(5));
        // The second group has the same accumulators.
        assert!(warp.touch(&reads).unwrap_err().message.contains("an accumulator of a wgmma is read"));
        assert_eq!(warp.wait(0), Some(6));
        warp.touch(&reads).unwrap();
        assert!(warp.take(&first, &decoded).unwrap_err().message.contains("since the last wgmma.fence"));
        warp.fence();
        warp.take(&first, &decoded).unwrap();
        let (mut other, mut wide) = product(2);
        wide.columns = 16;
        other.operands[0] = Operand::Vector((2..10).map(reg).collect());
        assert!(warp.take(&other, &wide).unwrap_err().message.contains("another shape"));
    }
}
