//! Where the elements of an instruction's operand are: which lane has each, in which of its registers or how far behind its
//! address.
//!
//! Opaque fragments are dealt out at random: each kind of matrix and type by a seed of its own, each element to as many lanes
//! and slots as there is room for. What the instruction set does not say a program cannot use here either.

use crate::dtype::DType;
use crate::intrin::{Opaque, Place};
use crate::ir::Held;
use crate::ir::layout::{Coordinate, Layout};

/// The places of a tile's elements.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    /// The extents of the tile.
    pub shape: Vec<usize>,
    /// Those of the first element, then those of the next, row by row.
    places: Vec<Element>,
    /// Places of an element.
    copies: usize,
    /// What the first address of a tile in memory is a multiple of, in elements.
    pub align: i64,
}

/// An element is in a register of a lane, counted from the operand's first, or so many elements behind the lane's address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    pub lane: usize,
    pub behind: usize,
}

impl Spread {
    /// Of an operand that a row says is in `place`; `None` where a call holds it otherwise.
    pub fn of(place: &Place, held: &Held, dtype: DType) -> Option<Spread> {
        match (place, held) {
            (Place::Registers(layout), Held::Registers(elements)) => Spread::of_warp(layout, dtype, elements),
            (Place::Opaque(opaque), Held::Registers(elements)) => dealt_out(opaque, dtype, elements),
            (Place::Addresses(layout), Held::Address(_)) => Some(behind_addresses(&of_one_warp(layout), dtype)),
            (Place::Rows(of), Held::Rows { rows, run, .. }) => {
                let align = of.align * 8 / i64::from(dtype.bits());
                Some(Spread { align, ..row_by_row(*rows as usize, *run as usize) })
            }
            _ => None,
        }
    }

    /// What one warp has of a tile that the warps of a warpgroup share out evenly.
    pub fn of_warp(layout: &Layout, dtype: DType, registers: &[i64]) -> Option<Spread> {
        in_registers(&of_one_warp(layout), dtype, registers)
    }

    /// How many elements the tile has.
    pub fn len(&self) -> usize {
        self.places.len() / self.copies
    }

    /// Every place of an element.
    pub fn all(&self, element: usize) -> &[Element] {
        &self.places[element * self.copies..(element + 1) * self.copies]
    }

    /// One of the places of an element: which is as good as random.
    pub fn one(&self, element: usize) -> Element {
        self.places[element * self.copies + element % self.copies]
    }

    /// The lanes that have a place.
    pub fn lanes(&self) -> u32 {
        self.places.iter().fold(0, |mask, e| mask | 1 << e.lane)
    }
}

fn points(layout: &Layout) -> impl Iterator<Item = (i64, i64)> + use<> {
    let [rows, columns] = [0, 1].map(|d| layout.extent(Coordinate::Index(d)));
    (0..rows).flat_map(move |i| (0..columns).map(move |j| (i, j)))
}

fn spread(layout: &Layout, copies: usize, places: Vec<Element>) -> Spread {
    let shape = [0, 1].map(|d| layout.extent(Coordinate::Index(d)) as usize);
    Spread { shape: shape.to_vec(), places, copies, align: 1 }
}

fn value(layout: &Layout, (i, j): (i64, i64), to: Coordinate) -> i64 {
    layout.value(to, &|from| if from == Coordinate::Index(0) { i } else { j })
}

fn in_registers(layout: &Layout, dtype: DType, registers: &[i64]) -> Option<Spread> {
    let bits = i64::from(dtype.bits());
    let place = |at| {
        let number =
            value(layout, at, Coordinate::Register) * (32 / bits).max(1) + value(layout, at, Coordinate::Bit) / bits;
        let behind = usize::try_from(*registers.get(number as usize)?).ok()?;
        Some(Element { lane: value(layout, at, Coordinate::Lane) as usize, behind })
    };
    Some(spread(layout, 1, points(layout).map(place).collect::<Option<_>>()?))
}

fn dealt_out(opaque: &Opaque, dtype: DType, registers: &[i64]) -> Option<Spread> {
    let (slots, elements) = (opaque.slots(dtype.bits()) as usize, opaque.elements() as usize);
    let seed = opaque
        .kind
        .bytes()
        .chain(dtype.name().bytes())
        .fold(11, |seed: u64, b| seed.wrapping_mul(131).wrapping_add(b.into()));
    let mut deal: Vec<usize> = (0..32 * slots).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut deal);
    let copies = deal.len() / elements.max(1);
    if registers.len() != slots || copies == 0 {
        return None;
    }
    let place = |at: &usize| {
        let behind = usize::try_from(registers[at / 32]).ok()?;
        Some(Element { lane: at % 32, behind })
    };
    let mut places = Vec::with_capacity(deal.len());
    for at in points(&opaque.layout) {
        let first = value(&opaque.layout, at, Coordinate::Element) as usize * copies;
        for at in deal.get(first..first + copies)? {
            places.push(place(at)?);
        }
    }
    Some(spread(&opaque.layout, copies, places))
}

/// The part of a layout that is the same for each warp.
fn of_one_warp(layout: &Layout) -> Layout {
    Layout::new(layout.digits().iter().filter(|d| d.to != Coordinate::Warp).copied())
}

fn behind_addresses(layout: &Layout, dtype: DType) -> Spread {
    let bits = i64::from(dtype.bits());
    let place = |at| {
        let behind = (value(layout, at, Coordinate::Offset) / bits) as usize;
        Element { lane: value(layout, at, Coordinate::Lane) as usize, behind }
    };
    spread(layout, 1, points(layout).map(place).collect())
}

/// Lanes represent rows.
fn row_by_row(rows: usize, run: usize) -> Spread {
    let places = (0..rows).flat_map(|lane| (0..run).map(move |behind| Element { lane, behind })).collect();
    Spread { shape: vec![rows, run], places, copies: 1, align: 1 }
}
