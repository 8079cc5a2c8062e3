//! Instructions that the lanes of a warp execute together, lane by lane.
//!
//! A call is compiled to tables: for each element of an operand's tile, the lane that holds it and which of the call's
//! registers it is, or the lane whose address leads to it and how far it follows. They come from the row's layouts, and
//! nothing else of the row is used but its action: data move between the bytes and registers that the call names, so what
//! `lower` got wrong of addresses, lanes or registers shows in the result.
//!
//! A product is summed in order of k, floats in f32 and rounded once to the accumulator's type.

use super::access::failure;
use super::code::{Access, Code, Location, Op, SiteKind};
use super::compile::Compiler;
use super::float8;
use super::product::{self, Product};
use super::race::{self, Touch};
use super::spread::{Element, Spread};
use super::value::{self, NumberKind, f32_of, kind_of};
use super::warp::{Trap, Warp};
use super::{access::World, integer};
use crate::dtype::DType;
use crate::error::{self, Error, Result};
use crate::intrin::{self, Action};
use crate::ir::{Axis, BinOp, Call, Held, Index};

/// A compiled call.
#[derive(Debug, Clone)]
pub(super) enum Collective {
    /// Of a warp.
    Warp {
        /// What it does.
        action: Action,
        /// In the row's order.
        operands: Vec<Operand>,
        /// Integer mode.
        integer: bool,
    },
    /// An asynchronous product of a warpgroup.
    Product(Box<Product>),
}

#[derive(Debug, Clone)]
pub(super) struct Operand {
    /// A position in [`Code::accesses`]: the lane's first register, or its address.
    pub access: u32,
    pub dtype: DType,
    /// Where each element of the tile is.
    pub tile: Spread,
}

fn broken(call: &Call) -> Error {
    Error::bug(error::Code::SimCall, format!("{} is called with operands that it does not take", call.row))
}

impl Compiler<'_> {
    /// The number of a lane in its warp: threads are numbered x fastest.
    fn lane(&self) -> Index {
        let (mut number, mut before) = (Index::Int(0), 1);
        for axis in [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ] {
            for (_, var, extent) in self.plan.launch.iter().filter(|l| l.0 == axis) {
                number = number + Index::Var(*var) * before;
                before *= extent;
            }
        }
        number.floormod(super::code::LANES as i64)
    }

    /// Compiles an instruction of the warp.
    pub fn call(&mut self, call: &Call) -> Result<()> {
        self.here(SiteKind::Call(call.clone()));
        let row = intrin::find(&call.row).filter(|r| r.operands.len() == call.operands.len());
        let row = row.ok_or_else(|| broken(call))?;
        if row.is_asynchronous() {
            let product = self.product(call, row)?;
            self.collective(Collective::Product(Box::new(product)));
            return Ok(());
        }
        let mut operands = Vec::new();
        for (operand, theirs) in call.operands.iter().zip(&row.operands) {
            let dtype = self.buffer(operand.buffer)?.dtype;
            let access = match (operand.run_of(&self.lane()), &operand.held) {
                (Some((first, run)), _) => self.access(operand.buffer, &[first], run)?,
                (None, Held::Registers(elements)) => {
                    let last = elements.iter().max().ok_or_else(|| broken(call))? + 1;
                    self.access(operand.buffer, &operand.indices, last as u32)?
                }
                _ => return Err(broken(call)),
            };
            if let (Held::Rows { .. }, intrin::Place::Rows(rows)) = (&operand.held, &theirs.place) {
                // Rows are as aligned as the distance between them, not as they are long.
                let buffer = self.buffer(operand.buffer)?;
                let base = i64::from(buffer.align) % rows.align == 0
                    && i64::from(buffer.offset.unwrap_or(0)) % rows.align == 0;
                self.accesses[access as usize].align = if base { rows.step * 8 / i64::from(dtype.bits()) } else { 0 };
            }
            let tile = Spread::of(&theirs.place, &operand.held, dtype).ok_or_else(|| broken(call))?;
            operands.push(Operand { access, dtype, tile });
        }
        self.collective(Collective::Warp { action: row.action, operands, integer: self.plan.integer });
        Ok(())
    }

    fn collective(&mut self, collective: Collective) {
        let number = self.collectives.len() as u32;
        self.collectives.push(collective);
        self.emit(Op::Collective(number));
    }
}

/// Runs a call; every lane of the warp takes part.
pub(super) fn run(warp: &mut Warp, code: &Code, world: &mut World, number: u32) -> Result<(), Trap> {
    let (action, operands, integer) = match &code.collectives[number as usize] {
        Collective::Product(product) => return product::run(warp, code, world, product),
        Collective::Warp { action, operands, integer } => (action, operands, *integer),
    };
    match (action, operands.as_slice()) {
        (Action::Copy, [to, from]) => copy(warp, code, world, to, from),
        (Action::MultiplyAdd | Action::XorAdd, [d, a, b]) => multiply_add(warp, code, [d, a, b], (*action, integer)),
        _ => Err(Trap::Broken("an instruction has operands that its action does not take")),
    }
}

fn copy(warp: &mut Warp, code: &Code, world: &mut World, to: &Operand, from: &Operand) -> Result<(), Trap> {
    if is_memory(code, from) {
        let values = load(warp, code, world, from)?;
        return put_all(warp, code, to, values);
    }
    let values = get_all(warp, code, from)?;
    if !is_memory(code, to) {
        return put_all(warp, code, to, values);
    }
    store(warp, code, world, to, &values)
}

fn is_memory(code: &Code, operand: &Operand) -> bool {
    !matches!(code.accesses[operand.access as usize].place, Location::Local(_))
}

/// Every element of a tile in registers.
fn get_all(warp: &Warp, code: &Code, operand: &Operand) -> Result<Vec<u64>, Trap> {
    (0..operand.tile.len()).map(|n| get(warp, code, operand, operand.tile.one(n))).collect()
}

fn put_all(warp: &mut Warp, code: &Code, operand: &Operand, values: Vec<u64>) -> Result<(), Trap> {
    warp.products.fenced = false;
    for (n, value) in values.into_iter().enumerate() {
        operand.tile.all(n).iter().try_for_each(|e| put(warp, code, operand, *e, value))?;
    }
    Ok(())
}

/// The element of a lane's registers.
fn get(warp: &Warp, code: &Code, operand: &Operand, e: Element) -> Result<u64, Trap> {
    let (slot, element) = register(warp, code, operand, e)?;
    if warp.local_marks.get(slot).is_none_or(|m| m >> e.lane & 1 == 0) {
        let touch = Touch { lane: e.lane, access: operand.access, element, unit: slot, write: false };
        return Err(if warp.products.hold(slot) { Trap::Held(touch) } else { Trap::Uninitialised(touch) });
    }
    Ok(warp.locals[slot][e.lane])
}

fn put(warp: &mut Warp, code: &Code, operand: &Operand, e: Element, value: u64) -> Result<(), Trap> {
    let (slot, element) = register(warp, code, operand, e)?;
    if warp.products.hold(slot) {
        return Err(Trap::Held(Touch { lane: e.lane, access: operand.access, element, unit: slot, write: true }));
    }
    let outside = Trap::OutOfBounds { lane: e.lane, access: operand.access };
    *warp.local_marks.get_mut(slot).ok_or(outside)? |= 1 << e.lane;
    warp.locals[slot][e.lane] = value;
    Ok(())
}

pub(super) fn register(warp: &Warp, code: &Code, operand: &Operand, e: Element) -> Result<(usize, i64), Trap> {
    let access = &code.accesses[operand.access as usize];
    let Location::Local(base) = access.place else { return Err(Trap::Broken("a register is in memory")) };
    let element = warp.value(access.at, e.lane) + e.behind as i64;
    Ok((base as usize + element as usize, element))
}

/// The lanes whose addresses count, and that they are aligned.
fn addresses(warp: &Warp, access: &Access, operand: &Operand) -> Result<u32, Trap> {
    let active = operand.tile.lanes();
    for lane in (0..32).filter(|l| active >> l & 1 == 1) {
        let element = warp.value(access.at, lane);
        let first = lane == 0 && element % operand.tile.align != 0;
        if access.align == 0 || element % access.align != 0 || first {
            return Err(Trap::Misaligned { lane, access: operand.access, element });
        }
    }
    Ok(active)
}

/// Tells who listens, and notes the access: whichever lane gives the address, all lanes read what follows it. The first
/// and the last lane represent all: no thread is both.
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
    lanes.observe(&mut memory.cells, &mut memory.starts, clock, all)
}

/// Reads every element of a tile in memory.
fn load(warp: &Warp, code: &Code, world: &mut World, from: &Operand) -> Result<Vec<u64>, Trap> {
    let access = &code.accesses[from.access as usize];
    addresses(warp, access, from)?;
    let (memory, _, span) = world.memory(access.place)?;
    let mut out = Vec::with_capacity(from.tile.len());
    for e in (0..from.tile.len()).map(|n| from.tile.one(n)) {
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
    for (n, value) in values.iter().enumerate() {
        let e = to.tile.one(n);
        let element = warp.value(access.at, e.lane) + e.behind as i64;
        let unit = span.base + element as usize * span.units;
        let outside = Trap::OutOfBounds { lane: e.lane, access: to.access };
        memory.write(access.dtype, unit, *value).ok_or(outside)?;
        let touch = Touch { lane: e.lane, access: to.access, element, unit, write: true };
        memory.mark(unit, span.units).map_err(|f| failure(f, touch))?;
    }
    observe(warp, code, world, to, true)
}

/// `D[m, n] = D[m, n] + sum A[m, k] * B[n, k]`, or with an exclusive or.
fn multiply_add(
    warp: &mut Warp,
    code: &Code,
    operands: [&Operand; 3],
    (action, integer): (Action, bool),
) -> Result<(), Trap> {
    let [d, a, b] = operands;
    let (mut sums, x, y) = (get_all(warp, code, d)?, get_all(warp, code, a)?, get_all(warp, code, b)?);
    let ([columns, depth], types) = ([d.tile.shape[1], a.tile.shape[1]], [d.dtype, a.dtype, b.dtype]);
    for (at, sum) in sums.iter_mut().enumerate() {
        let (i, j) = (at / columns, at % columns);
        let (x, y) = (&x[i * depth..(i + 1) * depth], &y[j * depth..(j + 1) * depth]);
        *sum = match action {
            Action::XorAdd => differing(types, *sum, x, y, integer),
            _ => summed(types, *sum, x, y, integer)?,
        };
    }
    put_all(warp, code, d, sums)
}

/// A sum with products added, in order of k; `types` are those of the sum and of the factors.
pub(super) fn summed(types: [DType; 3], sum: u64, x: &[u64], y: &[u64], integer: bool) -> Result<u64, Trap> {
    if integer { Ok(integer_sum(types, sum, x, y)) } else { real_sum(types, sum, x, y) }
}

/// A sum with the exclusive ors of single bits added.
fn differing([d, a, _]: [DType; 3], sum: u64, x: &[u64], y: &[u64], integer: bool) -> u64 {
    let pairs = x.iter().zip(y);
    if integer {
        let wide = integer::conversion(a, d);
        let add =
            |sum: u32, (x, y): (&u64, &u64)| sum.wrapping_add(wide(integer::bin(BinOp::Xor, a, *x as u32, *y as u32)));
        return u64::from(pairs.fold(sum as u32, add));
    }
    value::wrap(d, pairs.fold(sum as i64, |sum, (x, y)| sum.wrapping_add((x ^ y) as i64))) as u64
}

fn integer_sum([d, a, b]: [DType; 3], sum: u64, x: &[u64], y: &[u64]) -> u64 {
    let (of_a, of_b) = (integer::conversion(a, d), integer::conversion(b, d));
    let add = |sum: u32, (x, y): (&u64, &u64)| sum.wrapping_add(of_a(*x as u32).wrapping_mul(of_b(*y as u32)));
    u64::from(x.iter().zip(y).fold(sum as u32, add))
}

fn real_sum([d, a, b]: [DType; 3], sum: u64, x: &[u64], y: &[u64]) -> Result<u64, Trap> {
    match kind_of(d) {
        NumberKind::F32 if a.is_float8() && b.is_float8() => {
            let products = x.iter().zip(y).map(|(x, y)| f32_of(*x) * f32_of(*y));
            Ok(u64::from(value::round_f32(d, float8::add(f32_of(sum), products)).to_bits()))
        }
        NumberKind::F32 => {
            let sum = x.iter().zip(y).fold(f32_of(sum), |sum, (x, y)| sum + f32_of(*x) * f32_of(*y));
            Ok(u64::from(value::round_f32(d, sum).to_bits()))
        }
        NumberKind::F64 => {
            let add = |sum: f64, (x, y): (&u64, &u64)| f64::from_bits(*x).mul_add(f64::from_bits(*y), sum);
            Ok(x.iter().zip(y).fold(f64::from_bits(sum), add).to_bits())
        }
        NumberKind::Integer => Err(Trap::Broken("an MMA of a type that no row has")),
        _ => {
            let add = |sum: i64, (x, y): (&u64, &u64)| sum.wrapping_add((*x as i64).wrapping_mul(*y as i64));
            Ok(value::wrap(d, x.iter().zip(y).fold(sum as i64, add)) as u64)
        }
    }
}
