//! wgmma: the four warps of a warpgroup multiply tiles, each computing 16 of the 64 rows (PTX ISA, "wgmma.mma_async").
//!
//! A wgmma reads shared memory, and its registers belong to it, from its start until its warp has waited for its group.
//! What is checked besides the bytes:
//!
//! - `wgmma.fence` is between an ordinary access of a register and a wgmma that accumulates in it or takes A from it;
//! - no ordinary instruction touches the registers of a wgmma under way, and no wgmma of another shape does;
//! - the warps of the warpgroup execute the same wgmmas with the same descriptors;
//! - the kernel does not end before its wgmmas have been waited for.

use super::super::inst::{Inst, Operand};
use super::super::trap::Trap;
use super::super::warp::Context;
use super::super::world::Space;
use super::float8::Float8;
use super::fragment::{self, operand_registers};
use super::mma::shape;
use super::number::{Number, elements, is_integer, multiply};
use super::operands::{constant, count, operand, put, registers, uniform, unsupported, whole_warp, words};
use super::owners::Products;
use super::tile::Descriptor;
use crate::dtype::DType;
use crate::error::{Code, Result};
use crate::sim::clocks::{Accessor, Seen};
use std::collections::VecDeque;

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
            return Err(Trap::warp(Code::PtxWgmma, "the warp is not of the cluster that runs"));
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

/// The parts of an opcode; of single bits without what is done with them, which is `and` alone.
fn opcode(inst: &Inst) -> Result<Vec<&str>> {
    let parts: Vec<&str> = inst.opcode.iter().map(String::as_str).collect();
    match parts[..] {
        [ref parts @ .., "b1", "b1", "and", "popc"] => Ok([parts, &["b1", "b1"]].concat()),
        [.., "b1", "b1"] => Err(unsupported(inst, "single bits have .and.popc")),
        _ => Ok(parts),
    }
}

/// Whether the PTX ISA has a wgmma of these types of D, A and B.
fn is_known([d, a, b]: [DType; 3]) -> bool {
    match a {
        DType::F16 => b == a && matches!(d, DType::F16 | DType::F32),
        DType::Bf16 | DType::Tf32 => b == a && d == DType::F32,
        DType::E4m3 | DType::E5m2 => matches!(b, DType::E4m3 | DType::E5m2) && matches!(d, DType::F16 | DType::F32),
        DType::S8 | DType::U8 => matches!(b, DType::S8 | DType::U8) && d == DType::S32,
        DType::B1 => b == a && d == DType::S32,
        _ => false,
    }
}

impl Multiply {
    fn decode(inst: &Inst) -> Result<Multiply> {
        let parts = opcode(inst)?;
        let [_, _, _, _, dims, d, a, b] = parts[..] else {
            return Err(unsupported(inst, "only a shape and three types are supported"));
        };
        let types = [d, a, b].map(DType::parse);
        let (Some([m, columns, depth]), [Some(d), Some(a), Some(b)]) = (shape(dims), types) else {
            return Err(unsupported(inst, "the shape or a type is unknown"));
        };
        let integer = is_integer(a);
        let is_known = is_known([d, a, b]);
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
                    _ => return Err(unsupported(inst, "a scale of A or B is neither 1 nor -1")),
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
            return Err(Trap::warp(
                Code::PtxWgmma,
                format!("warp {place} of a block of {each} is in no warpgroup of four"),
            ));
        }
        let descriptor = |n: usize| uniform(context, &inst.operands[n], "a matrix descriptor");
        let a = if self.registers { None } else { Some(descriptor(1)?) };
        let b = descriptor(2)?;
        let adds = uniform(context, &inst.operands[3], "the predicate of a wgmma")? != 0;
        state.agree(number, Executed { line: inst.line, descriptors: [a.unwrap_or(0), b], adds })?;
        let warp = &mut state.warps[number];
        warp.take(inst, self.columns, self.registers)?;
        let found = match self.types[1] {
            of_a if is_integer(of_a) => self.run::<i32>(context, (a, b), adds)?,
            DType::E4m3 | DType::E5m2 => self.run::<Float8>(context, (a, b), adds)?,
            _ => self.run::<f32>(context, (a, b), adds)?,
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
        let by = Accessor { warp, lane: 0, agent: context.world.clock.clocks.products(warp) };
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
                Code::PtxWgmma,
                "the warps of the warpgroup execute different wgmmas here, or pass different descriptors or predicates",
            )),
        }
    }

    /// All warps have ended.
    pub fn end(&self) -> std::result::Result<(), Trap> {
        if self.warps.iter().any(|w| w.held > 0) {
            return Err(Trap::warp(Code::PtxUnfinished, "the kernel ends, and nothing has waited for its last wgmmas"));
        }
        match self.executed.iter().all(|(_, log)| log.is_empty()) {
            true => Ok(()),
            false => Err(Trap::warp(Code::PtxWgmma, "a wgmma was not executed by all four warps of its warpgroup")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{inst, reg};
    use super::*;

    fn product() -> Multiply {
        let descriptor = || Operand::Reg { reg: 100, bits: 64 };
        let operands = vec![
            Operand::Vector((0..4).map(reg).collect()),
            descriptor(),
            descriptor(),
            Operand::Imm(1),
            Operand::Imm(1),
            Operand::Imm(u64::MAX),
            Operand::Imm(0),
            Operand::Imm(1),
        ];
        Multiply::decode(&inst("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", operands)).unwrap()
    }

    #[test]
    fn operands_are_decoded_in_the_order_of_the_isa() {
        let decoded = product();
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
}
