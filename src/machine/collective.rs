//! Instructions that the lanes of a warp execute together, lane by lane.
//!
//! A call is compiled to tables: for each element of an operand's tile, the lane that holds it and which of the call's
//! registers it is, or the lane whose address leads to it and how far it lies behind. They come from the row's layouts, and
//! nothing else of the row is used but its action: data move between the bytes and registers that the call names, so what
//! `lower` got wrong of addresses, lanes or registers shows in the result.
//!
//! A product is summed in order of k, floats in f32 and rounded once to the accumulator's type.

use super::access::failure;
use super::code::{Access, Code, Op, Place, SiteKind};
use super::compile::Compiler;
use super::race::{self, Touch};
use super::value::{self, Kind, f32_of, kind_of};
use super::warp::{Trap, Warp};
use super::{access::World, ring};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::intrin::{self, Action};
use crate::ir::layout::{Coordinate, Layout};
use crate::ir::{Call, Held};

/// A compiled call.
#[derive(Debug, Clone)]
pub(super) struct Collective {
    action: Action,
    /// In the row's order.
    operands: Vec<Operand>,
    ring: bool,
}

#[derive(Debug, Clone)]
struct Operand {
    /// A position in [`Code::accesses`]: the lane's first register, or its address.
    access: u32,
    dtype: DType,
    /// Where each element of the tile is, row by row.
    elements: Vec<Element>,
    /// The extents of the tile.
    shape: Vec<usize>,
}

/// An element is in a register of a lane, counted from the operand's first, or so many elements behind the lane's address.
#[derive(Debug, Clone, Copy)]
struct Element {
    lane: usize,
    behind: usize,
}

fn broken(call: &Call) -> Error {
    Error::bug("machine.call", format!("{} is called with operands that it does not take", call.row))
}

impl Compiler<'_> {
    /// Compiles an instruction of the warp.
    pub fn call(&mut self, call: &Call) -> Result<()> {
        self.here(SiteKind::Call(call.clone()));
        let row = intrin::find(&call.row).filter(|r| r.operands.len() == call.operands.len());
        let row = row.ok_or_else(|| broken(call))?;
        let mut operands = Vec::new();
        for (operand, theirs) in call.operands.iter().zip(&row.operands) {
            let dtype = self.buffer(operand.buffer)?.dtype;
            let lanes = match &operand.held {
                Held::Registers(elements) => elements.iter().max().map_or(1, |last| last + 1) as u32,
                Held::Address(lanes) => *lanes,
            };
            let access = self.access(operand.buffer, &operand.indices, lanes)?;
            let table = match (&theirs.place, &operand.held) {
                (intrin::Place::Registers(layout), Held::Registers(elements)) => in_registers(layout, dtype, elements),
                (intrin::Place::Addresses(layout), Held::Address(_)) => Some(behind_addresses(layout, dtype)),
                _ => None,
            };
            let (shape, elements) = table.ok_or_else(|| broken(call))?;
            operands.push(Operand { access, dtype, elements, shape });
        }
        let number = self.collectives.len() as u32;
        self.collectives.push(Collective { action: row.action, operands, ring: self.plan.ring });
        self.emit(Op::Collective(number));
        Ok(())
    }
}

type Table = (Vec<usize>, Vec<Element>);

fn table(layout: &Layout, of: impl Fn(&dyn Fn(Coordinate) -> i64) -> Option<Element>) -> Option<Table> {
    let [rows, columns] = [0, 1].map(|d| layout.extent(Coordinate::Index(d)));
    let points = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
    let elements = points.map(|(i, j)| of(&|c| if c == Coordinate::Index(0) { i } else { j }));
    Some((vec![rows as usize, columns as usize], elements.collect::<Option<_>>()?))
}

fn in_registers(layout: &Layout, dtype: DType, registers: &[i64]) -> Option<Table> {
    let bits = i64::from(dtype.bits());
    table(layout, |at| {
        let value = |c| layout.value(c, &|from| at(from));
        let number = value(Coordinate::Register) * (32 / bits) + value(Coordinate::Bit) / bits;
        let behind = usize::try_from(*registers.get(number as usize)?).ok()?;
        Some(Element { lane: value(Coordinate::Lane) as usize, behind })
    })
}

fn behind_addresses(layout: &Layout, dtype: DType) -> Table {
    let bits = i64::from(dtype.bits());
    let element = |at: &dyn Fn(Coordinate) -> i64| {
        let value = |c| layout.value(c, &|from| at(from));
        Some(Element { lane: value(Coordinate::Lane) as usize, behind: (value(Coordinate::Offset) / bits) as usize })
    };
    table(layout, element).unwrap_or_default()
}

/// Runs a call; every lane of the warp takes part.
pub(super) fn run(warp: &mut Warp, code: &Code, world: &mut World, number: u32) -> Result<(), Trap> {
    let call = &code.collectives[number as usize];
    match (call.action, call.operands.as_slice()) {
        (Action::Copy, [to, from]) => copy(warp, code, world, to, from),
        (Action::MultiplyAdd, [d, a, b]) => multiply_add(warp, code, [d, a, b], call.ring),
        _ => Err(Trap::Broken("an instruction has operands that its action does not take")),
    }
}

fn copy(warp: &mut Warp, code: &Code, world: &mut World, to: &Operand, from: &Operand) -> Result<(), Trap> {
    if is_memory(code, from) {
        let values = load(warp, code, world, from)?;
        for (to_element, value) in to.elements.iter().zip(values) {
            put(warp, code, to, *to_element, value)?;
        }
        return Ok(());
    }
    let values = from.elements.iter().map(|f| get(warp, code, from, *f)).collect::<Result<Vec<u64>, Trap>>()?;
    if !is_memory(code, to) {
        return to.elements.iter().zip(values).try_for_each(|(e, v)| put(warp, code, to, *e, v));
    }
    store(warp, code, world, to, &values)
}

fn is_memory(code: &Code, operand: &Operand) -> bool {
    !matches!(code.accesses[operand.access as usize].place, Place::Local(_))
}

/// The element of a lane's registers.
fn get(warp: &Warp, code: &Code, operand: &Operand, e: Element) -> Result<u64, Trap> {
    let (slot, element) = register(warp, code, operand, e)?;
    if warp.local_marks.get(slot).is_none_or(|m| m >> e.lane & 1 == 0) {
        let touch = Touch { lane: e.lane, access: operand.access, element, unit: slot, write: false };
        return Err(Trap::Uninitialised(touch));
    }
    Ok(warp.locals[slot][e.lane])
}

fn put(warp: &mut Warp, code: &Code, operand: &Operand, e: Element, value: u64) -> Result<(), Trap> {
    let (slot, _) = register(warp, code, operand, e)?;
    let outside = Trap::OutOfBounds { lane: e.lane, access: operand.access };
    *warp.local_marks.get_mut(slot).ok_or(outside)? |= 1 << e.lane;
    warp.locals[slot][e.lane] = value;
    Ok(())
}

fn register(warp: &Warp, code: &Code, operand: &Operand, e: Element) -> Result<(usize, i64), Trap> {
    let access = &code.accesses[operand.access as usize];
    let Place::Local(base) = access.place else { return Err(Trap::Broken("a register is in memory")) };
    let element = warp.value(access.at, e.lane) + e.behind as i64;
    Ok((base as usize + element as usize, element))
}

/// The lanes whose addresses count, and that they are aligned.
fn addresses(warp: &Warp, access: &Access, operand: &Operand) -> Result<u32, Trap> {
    let active = operand.elements.iter().fold(0u32, |mask, e| mask | 1 << e.lane);
    for lane in (0..32).filter(|l| active >> l & 1 == 1) {
        let element = warp.value(access.at, lane);
        if access.align == 0 || element % access.align != 0 {
            return Err(Trap::Misaligned { lane, access: operand.access, element });
        }
    }
    Ok(active)
}

/// Tells who listens, and notes the access: whichever lane gives the address, all lanes read what lies behind it. The first
/// and the last lane stand for all: no thread is both.
fn observe(warp: &Warp, code: &Code, world: &mut World, operand: &Operand, write: bool) -> Result<(), Trap> {
    let access = &code.accesses[operand.access as usize];
    let active = addresses(warp, access, operand)?;
    world.tell_of(active, |lane| warp.value(access.at, lane), operand.access);
    if !access.watched {
        return Ok(());
    }
    let (memory, clock, span) = world.memory(access.place)?;
    let lanes =
        race::Lanes { number: operand.access, access, warp: warp.number, write, units: span.units, base: span.base };
    let given = (0..32).filter(|l| active >> l & 1 == 1).map(|l| (l, warp.value(access.at, l)));
    // A write by all lanes is one write: noted of the lane that gives the address, or it would race with itself.
    let by = |lane: usize| if write { [lane, lane] } else { [0, 31] };
    let all = given.flat_map(|(lane, element)| by(lane).map(|lane| (lane, element)));
    lanes.observe(&mut memory.cells, clock, all)
}

/// Reads every element of a tile in memory.
fn load(warp: &Warp, code: &Code, world: &mut World, from: &Operand) -> Result<Vec<u64>, Trap> {
    let access = &code.accesses[from.access as usize];
    addresses(warp, access, from)?;
    let (memory, _, span) = world.memory(access.place)?;
    let mut out = Vec::with_capacity(from.elements.len());
    for e in &from.elements {
        let element = warp.value(access.at, e.lane) + e.behind as i64;
        let unit = span.base + element as usize * span.units;
        let touch = Touch { lane: e.lane, access: from.access, element, unit, write: false };
        memory.check(unit, span.units).map_err(|f| failure(f, touch))?;
        let value = memory.read(access.dtype, unit);
        out.push(value.ok_or(Trap::OutOfBounds { lane: e.lane, access: from.access })?);
    }
    observe(warp, code, world, from, false)?;
    Ok(out)
}

fn store(warp: &Warp, code: &Code, world: &mut World, to: &Operand, values: &[u64]) -> Result<(), Trap> {
    let access = &code.accesses[to.access as usize];
    addresses(warp, access, to)?;
    let (memory, _, span) = world.memory(access.place)?;
    for (e, value) in to.elements.iter().zip(values) {
        let element = warp.value(access.at, e.lane) + e.behind as i64;
        let unit = span.base + element as usize * span.units;
        let outside = Trap::OutOfBounds { lane: e.lane, access: to.access };
        memory.write(access.dtype, unit, *value).ok_or(outside)?;
        let touch = Touch { lane: e.lane, access: to.access, element, unit, write: true };
        memory.mark(unit, span.units).map_err(|f| failure(f, touch))?;
    }
    observe(warp, code, world, to, true)
}

/// `D[m, n] = D[m, n] + sum A[m, k] * B[n, k]`.
fn multiply_add(warp: &mut Warp, code: &Code, operands: [&Operand; 3], ring: bool) -> Result<(), Trap> {
    let [d, a, b] = operands;
    let all =
        |warp: &Warp, o: &Operand| o.elements.iter().map(|e| get(warp, code, o, *e)).collect::<Result<Vec<_>, _>>();
    let (sums, x, y) = (all(warp, d)?, all(warp, a)?, all(warp, b)?);
    let ([columns, depth], types) = ([d.shape[1], a.shape[1]], [d.dtype, a.dtype, b.dtype]);
    for (at, (e, sum)) in d.elements.iter().zip(sums).enumerate() {
        let (i, j) = (at / columns, at % columns);
        let (x, y) = (&x[i * depth..(i + 1) * depth], &y[j * depth..(j + 1) * depth]);
        let result = if ring { ring_sum(types, sum, x, y) } else { real_sum(types[0], sum, x, y)? };
        put(warp, code, d, *e, result)?;
    }
    Ok(())
}

fn ring_sum([d, a, b]: [DType; 3], sum: u64, x: &[u64], y: &[u64]) -> u64 {
    let add = |sum: u32, (x, y): (&u64, &u64)| {
        sum.wrapping_add(ring::cast(a, d, *x as u32).wrapping_mul(ring::cast(b, d, *y as u32)))
    };
    u64::from(x.iter().zip(y).fold(sum as u32, add))
}

fn real_sum(d: DType, sum: u64, x: &[u64], y: &[u64]) -> Result<u64, Trap> {
    match kind_of(d) {
        Kind::F32 => {
            let sum = x.iter().zip(y).fold(f32_of(sum), |sum, (x, y)| sum + f32_of(*x) * f32_of(*y));
            Ok(u64::from(value::round_f32(d, sum).to_bits()))
        }
        Kind::F64 | Kind::Ring => Err(Trap::Broken("a product of a type that no row has")),
        _ => {
            let add = |sum: i64, (x, y): (&u64, &u64)| sum.wrapping_add((*x as i64).wrapping_mul(*y as i64));
            Ok(value::wrap(d, x.iter().zip(y).fold(sum as i64, add)) as u64)
        }
    }
}
