//! Products of warpgroups: each warp computes its own 16 rows of the sum.
//!
//! A product reads shared memory from its start on until its warp has waited for its group: the reads are an agent's of their own
//! ([`super::clocks`]), of which a warp knows only behind that wait, and which sees of other threads' writes only what follows
//! a fence between the proxies. As long, the registers of its sum are nobody's but those of products that follow on the same
//! registers, and those of a factor nobody's but those of products that read them, too: whatever else touches them is a fault
//! (PTX ISA, `wgmma.wait_group`). The warp must have fenced its registers before the first product of a run.
//!
//! A tile behind a descriptor is found as the hardware finds it: from the start address and the two offsets, whose bits are then
//! swizzled by where in shared memory they lead. Which buffer the bytes belong to is not asked.

use super::access::{World, failure};
use super::clocks::{Accessor, Seen};
use super::code::{Code, Location};
use super::collective::{self, Operand};
use super::compile::Compiler;
use super::listen::{EventKind, Tile};
use super::race::Touch;
use super::spread::Spread;
use super::warp::{Trap, Warp};
use crate::error::{self, Error, Result};
use crate::intrin::{self, Row};
use crate::ir::{Call, Descriptor, Held};
use std::collections::BTreeMap;

/// Rows of the sum that a warp has, and the extent of k.
const ROWS: usize = 16;

/// A compiled product.
#[derive(Debug, Clone)]
pub(super) struct Product {
    sum: Operand,
    a: Factor,
    b: Factor,
    /// The columns of the sum, and the terms.
    shape: [usize; 2],
    /// Whether a condition was tested in front.
    tested: bool,
    integer: bool,
}

/// Where a factor is.
#[derive(Debug, Clone)]
enum Factor {
    Registers(Operand),
    Memory(Described),
}

/// A tile behind a descriptor.
#[derive(Debug, Clone)]
struct Described {
    access: u32,
    tile: Descriptor,
    /// Bytes from the start of shared memory to the buffer.
    base: i64,
    /// Bits of an element.
    bits: i64,
}

impl Described {
    /// The element, counted from the buffer's first, at `row` of the tile's m or n and at `k`. `start` is that of the tile.
    fn element(&self, start: i64, row: i64, k: i64) -> i64 {
        let (d, width) = (&self.tile, i64::from(self.tile.swizzle));
        let (eights, leading) = (i64::from(d.stride), i64::from(d.leading));
        // Elements of a chunk, and the bits of an element in front of others.
        let (chunk, columns, in_bytes) = (16, 128 / self.bits, |n: i64| n * self.bits / 8);
        let behind = match d.along_k {
            // Without a swizzle tiles are made of 8 rows of 16 bytes, 8 more rows a stride and 16 more bytes of k a leading offset
            // away; across, k and columns change their parts.
            true if width == chunk => {
                row / 8 * eights + row % 8 * chunk + k / columns * leading + in_bytes(k % columns)
            }
            false if width == chunk => {
                k / 8 * leading + k % 8 * chunk + row / columns * eights + in_bytes(row % columns)
            }
            true => row / 8 * eights + row % 8 * width + in_bytes(k),
            false => {
                let columns = width * 8 / self.bits;
                k / 8 * eights + k % 8 * width + row / columns * leading + in_bytes(row % columns)
            }
        };
        let address = self.base + in_bytes(start) + behind;
        let mask = width / 16 - 1;
        let swizzled = address ^ (((address >> 7) & mask) << 4);
        // Elements that share a byte are in the order of k.
        let within = if self.bits < 8 { k % (8 / self.bits) } else { 0 };
        (swizzled - self.base) * 8 / self.bits + within
    }
}

impl Compiler<'_> {
    /// Compiles an asynchronous product of a warpgroup.
    pub fn product(&mut self, call: &Call, row: &Row) -> Result<Product> {
        let broken =
            || Error::bug(error::Code::SimWgmma, format!("{} is called with operands that it does not take", call.row));
        let mut factors = Vec::new();
        let [d, ..] = call.operands.as_slice() else { return Err(broken()) };
        let sum = self.in_registers(d, &row.operands[0]).ok_or_else(broken)??;
        for (operand, theirs) in call.operands.iter().zip(&row.operands).skip(1) {
            let buffer = self.buffer(operand.buffer)?;
            let (dtype, offset) = (buffer.dtype, i64::from(buffer.offset.unwrap_or(0)));
            factors.push(match &operand.held {
                Held::Descriptor(tile) => {
                    let access = self.access(operand.buffer, &operand.indices, 1)?;
                    self.accesses[access as usize].engine = true;
                    Factor::Memory(Described { access, tile: *tile, base: offset, bits: i64::from(dtype.bits()) })
                }
                _ => Factor::Registers(self.in_registers(operand, theirs).ok_or_else(broken)??),
            });
        }
        let (Some(b), Some(a)) = (factors.pop(), factors.pop()) else { return Err(broken()) };
        let extent = |name: &str| row.dims.iter().find(|x| x.0 == name).map(|x| x.1 as usize).ok_or_else(broken);
        if let Some(adds) = &call.adds {
            self.cond(adds)?;
        }
        Ok(Product {
            sum,
            a,
            b,
            shape: [extent("n")?, extent("k")?],
            tested: call.adds.is_some(),
            integer: self.plan.integer,
        })
    }

    /// The registers of one warp.
    fn in_registers(&mut self, operand: &crate::ir::Operand, theirs: &intrin::Operand) -> Option<Result<Operand>> {
        let (Held::Registers(elements), intrin::Place::Registers(layout)) = (&operand.held, &theirs.place) else {
            return None;
        };
        let dtype = self.buffer(operand.buffer).ok()?.dtype;
        let tile = Spread::of_warp(layout, dtype, elements)?;
        let last = elements.iter().max()? + 1;
        let access = self.access(operand.buffer, &operand.indices, last as u32);
        Some(access.map(|access| Operand { access, dtype, tile }))
    }
}

/// What a warp has under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Products {
    /// The warp has fenced its registers since it last touched them, or waited.
    pub fenced: bool,
    /// Groups that it has closed.
    closed: u64,
    /// When each group that nothing has waited for was closed.
    ends: BTreeMap<u64, u64>,
    /// The registers of sums under way, with their last product.
    sums: BTreeMap<usize, InFlight>,
    /// Those of factors.
    factors: BTreeMap<usize, InFlight>,
}

/// A product under way: its group, and its place in the code.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    group: u64,
    pc: usize,
}

impl Product {
    /// The accumulators.
    pub fn sum(&self) -> &Operand {
        &self.sum
    }
}

impl Products {
    /// Registers of accumulators under way, and the groups that are closed.
    pub fn under_way(&self) -> (usize, usize) {
        (self.sums.len(), self.ends.len())
    }

    /// The warp closes a group.
    pub fn commit(&mut self, now: u64) {
        self.ends.insert(self.closed, now);
        self.closed += 1;
    }

    /// Whether a register is one of products that nothing has waited for.
    #[inline(always)]
    pub fn hold(&self, slot: usize) -> bool {
        !(self.sums.is_empty() && self.factors.is_empty())
            && (self.sums.contains_key(&slot) || self.factors.contains_key(&slot))
    }

    /// The place in the code of the product that a register is one of.
    pub fn holder(&self, slot: usize) -> Option<usize> {
        self.sums.get(&slot).or_else(|| self.factors.get(&slot)).map(|product| product.pc)
    }

    /// The registers of products of groups before `open`, which are done.
    fn landed(&mut self, open: u64) -> Vec<usize> {
        let mut out = Vec::new();
        for registers in [&mut self.sums, &mut self.factors] {
            out.extend(registers.iter().filter(|(_, p)| p.group < open).map(|(slot, _)| *slot));
            registers.retain(|_, p| p.group >= open);
        }
        out
    }
}

/// The warp waits until at most `groups` of its closed groups are under way.
pub(super) fn wait(warp: &mut Warp, world: &mut World, groups: u32) -> Result<(), Trap> {
    let open = warp.products.closed.saturating_sub(u64::from(groups));
    let rest = warp.products.ends.split_off(&open);
    let done = std::mem::replace(&mut warp.products.ends, rest);
    if let Some(at) = done.values().max() {
        let agent = world.clock.clocks.products(warp.number);
        let mut seen = Seen::default();
        seen.add(agent, *at);
        world.clock.clocks.acquire(warp.number, warp.full, warp.full, &seen);
    }
    warp.products.fenced = false;
    for slot in warp.products.landed(open) {
        *warp.local_marks.get_mut(slot).ok_or(Trap::Broken("a wgmma has no registers"))? = warp.full;
    }
    Ok(())
}

/// The registers of a sum belong to a product from now on; those that it adds to must have been written, or be a product's.
fn take(warp: &mut Warp, code: &Code, product: &Product, adds: bool) -> Result<(), Trap> {
    if !warp.products.fenced {
        return Err(Trap::Product("starts although the warp has not fenced the registers that it accessed"));
    }
    let mut mine = Vec::new();
    for n in 0..product.sum.tile.len() {
        let e = product.sum.tile.one(n);
        let (slot, element) = collective::register(warp, code, &product.sum, e)?;
        let known = warp.products.sums.contains_key(&slot);
        mine.push(slot);
        let mark = warp.local_marks.get_mut(slot).ok_or(Trap::Broken("an accumulator has no registers"))?;
        if adds && !known && *mark >> e.lane & 1 == 0 {
            let touch = Touch { lane: e.lane, access: product.sum.access, element, unit: slot, write: false };
            return Err(Trap::Uninitialised(touch));
        }
        if warp.products.factors.contains_key(&slot) {
            return Err(Trap::Product(
                "writes registers that another wgmma reads, whose group has not been waited for",
            ));
        }
    }
    let product = InFlight { group: warp.products.closed, pc: warp.pc };
    warp.products.sums.extend(mine.into_iter().map(|slot| (slot, product)));
    Ok(())
}

/// The registers of a factor belong to a product from now on; they must have been written.
fn hold(warp: &mut Warp, code: &Code, factor: &Operand) -> Result<(), Trap> {
    let mut mine = Vec::new();
    for e in (0..factor.tile.len()).flat_map(|n| factor.tile.all(n)) {
        let (slot, element) = collective::register(warp, code, factor, *e)?;
        if warp.products.sums.contains_key(&slot) {
            return Err(Trap::Product("reads the accumulators of another wgmma, whose group has not been waited for"));
        }
        let mark = warp.local_marks.get(slot).ok_or(Trap::Broken("an operand has no registers"))?;
        if !warp.products.factors.contains_key(&slot) && mark >> e.lane & 1 == 0 {
            let touch = Touch { lane: e.lane, access: factor.access, element, unit: slot, write: false };
            return Err(Trap::Uninitialised(touch));
        }
        mine.push(slot);
    }
    let product = InFlight { group: warp.products.closed, pc: warp.pc };
    for slot in mine {
        warp.local_marks[slot] = 0;
        warp.products.factors.insert(slot, product);
    }
    Ok(())
}

/// What is in the registers of a tile, whatever their marks.
fn held(warp: &Warp, code: &Code, tile: &Operand) -> Result<Vec<u64>, Trap> {
    let one = |n| {
        let e = tile.tile.one(n);
        let (slot, _) = collective::register(warp, code, tile, e)?;
        Ok(warp.locals[slot][e.lane])
    };
    (0..tile.tile.len()).map(one).collect()
}

/// Runs a product; every lane of the warp takes part.
pub(super) fn run(warp: &mut Warp, code: &Code, world: &mut World, product: &Product) -> Result<(), Trap> {
    let adds = if product.tested { warp.pop_cond() } else { u32::MAX };
    if adds != 0 && adds & warp.full != warp.full {
        return Err(Trap::Divergence { mask: adds });
    }
    take(warp, code, product, adds != 0)?;
    for factor in [&product.a, &product.b] {
        if let Factor::Registers(operand) = factor {
            hold(warp, code, operand)?;
        }
    }
    let [columns, depth] = product.shape;
    let group = warp.place() % 4;
    let x = factor(warp, code, world, &product.a, (group * ROWS, ROWS, depth))?;
    let y = factor(warp, code, world, &product.b, (0, columns, depth))?;
    let mut sums = match adds {
        0 => vec![0; ROWS * columns],
        _ => held(warp, code, &product.sum)?,
    };
    let types = [product.sum.dtype, code_dtype(code, &product.a), code_dtype(code, &product.b)];
    // Where only the order of events counts, the numbers do not.
    let computes = !world.listener.first_cluster;
    for (at, sum) in sums.iter_mut().enumerate().filter(|_| computes) {
        let (i, j) = (at / columns, at % columns);
        let (x, y) = (&x[i * depth..(i + 1) * depth], &y[j * depth..(j + 1) * depth]);
        *sum = collective::summed(types, *sum, x, y, product.integer)?;
    }
    for (n, sum) in sums.into_iter().enumerate() {
        for e in product.sum.tile.all(n) {
            let (slot, _) = collective::register(warp, code, &product.sum, *e)?;
            warp.locals[slot][e.lane] = sum;
            // Nobody else's until the wait.
            warp.local_marks[slot] = 0;
        }
    }
    Ok(())
}

fn code_dtype(code: &Code, factor: &Factor) -> crate::dtype::DType {
    match factor {
        Factor::Registers(operand) => operand.dtype,
        Factor::Memory(described) => code.accesses[described.access as usize].dtype,
    }
}

/// The elements of some rows, row by row.
fn factor(
    warp: &Warp,
    code: &Code,
    world: &mut World,
    factor: &Factor,
    (first, rows, depth): (usize, usize, usize),
) -> Result<Vec<u64>, Trap> {
    let described = match factor {
        Factor::Registers(operand) => return held(warp, code, operand),
        Factor::Memory(described) => described,
    };
    let access = &code.accesses[described.access as usize];
    let Location::Shared { .. } = access.place else {
        return Err(Trap::Broken("a descriptor reaches outside shared memory"));
    };
    let start = warp.value(access.at, 0);
    let uniform = (0..32).all(|lane| warp.value(access.at, lane) == start);
    if !uniform || start * described.bits % 128 != 0 {
        return Err(Trap::Misaligned { lane: 0, access: described.access, element: start });
    }
    let (memory, _, span) = world.memory(access.place)?;
    let outside = Trap::OutOfBounds { lane: 0, access: described.access };
    let mut values = Vec::with_capacity(rows * depth);
    let mut touched = Vec::with_capacity(rows * depth);
    for row in first..first + rows {
        for k in 0..depth {
            let element = described.element(start, row as i64, k as i64);
            let unit = usize::try_from(span.base as i64 + element * span.units as i64).map_err(|_| outside.clone())?;
            let touch = Touch { lane: 0, access: described.access, element, unit, write: false };
            memory.check(unit, span.units).map_err(|f| failure(f, touch))?;
            values.push(memory.read(access.dtype, unit).ok_or(outside.clone())?);
            touched.push(element);
        }
    }
    if world.is_heard() {
        let warp = warp.place() % 4;
        world.tell(EventKind::Tile(Tile { access: described.access, elements: &touched, warp }));
    }
    if access.watched {
        let (memory, clock, _) = world.memory(access.place)?;
        let by = Accessor { warp: warp.number, lane: 0, agent: clock.clocks.products(warp.number) };
        let rank = clock.rank;
        let first = |element: &i64| (span.base as i64 + element * span.units as i64) as usize;
        let units = touched.iter().map(first).flat_map(|u| u..u + span.units);
        clock.observe_engine(memory, (access, rank), by, false, units).map_err(|unit| {
            let element = (unit as i64 - span.base as i64).div_euclid(span.units as i64);
            Trap::Race(Touch { lane: 0, access: described.access, element, unit, write: false })
        })?;
    }
    Ok(values)
}
