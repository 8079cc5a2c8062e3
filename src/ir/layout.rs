//! How data lies: the one type for paddings, panels, swizzles, fragment maps and packed integers.
//!
//! A [`Layout`] takes coordinates to coordinates. Each coordinate that it takes is split into mixed-radix digits, and each
//! digit adds a multiple of itself to one coordinate that it gives: a [`Digit`] is `(from / at) % extent * stride -> to`. Bits
//! of an address may then be flipped by other bits of it ([`Flip`]). So a row-major array with padded rows, a tile cut into
//! panels, a swizzle, and the map of a matrix fragment to lanes and registers are all lists of digits; their inverses,
//! their compositions, what is contiguous in them and which banks they meet are functions on those lists.
//!
//! The layout of a buffer takes its indices to an [`Coordinate::Offset`] in bits; that of a fragment takes the indices of a
//! tile to a lane, a register and a bit of the register. A value outside of what the digits cover wraps around.

mod banks;
mod memory;
#[cfg(test)]
mod tests;

pub use banks::conflict_degree;
pub use memory::{span, strides};

use super::Index;

/// What a layout takes or gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Coordinate {
    /// An index of an array or a tile, or a loop's variable, by its position.
    Index(usize),
    /// A distance in memory, in bits.
    Offset,
    /// The warp inside its warpgroup.
    Warp,
    /// The lane inside its warp.
    Lane,
    /// The register of the lane.
    Register,
    /// The bit of the register.
    Bit,
    /// The number of an element in a matrix whose fragments are opaque: which lane and register hold it is not said.
    Element,
}

impl Coordinate {
    /// In messages.
    pub fn name(self) -> String {
        match self {
            Coordinate::Index(n) => format!("index {n}"),
            Coordinate::Offset => "offset".to_string(),
            Coordinate::Warp => "warp".to_string(),
            Coordinate::Lane => "lane".to_string(),
            Coordinate::Register => "register".to_string(),
            Coordinate::Bit => "bit".to_string(),
            Coordinate::Element => "element".to_string(),
        }
    }
}

/// `(from / at) % extent * stride -> to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digit {
    /// The coordinate that it is a digit of.
    pub from: Coordinate,
    /// What one step of the digit is in that coordinate.
    pub at: i64,
    /// How many values it has.
    pub extent: i64,
    /// The coordinate that it adds to.
    pub to: Coordinate,
    /// What one step of the digit adds.
    pub stride: i64,
}

impl Digit {
    /// A digit.
    pub const fn new(from: Coordinate, at: i64, extent: i64, to: Coordinate, stride: i64) -> Digit {
        Digit { from, at, extent, to, stride }
    }

    fn swapped(self) -> Digit {
        Digit { from: self.to, at: self.stride, extent: self.extent, to: self.from, stride: self.at }
    }

    /// Where it ends in the coordinate that it is a digit of.
    fn end(self) -> i64 {
        self.at.saturating_mul(self.extent)
    }
}

/// Bits `from .. from + bits` of a coordinate flip its bits `to .. to + bits`; the two ranges are disjoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flip {
    /// Whose bits.
    pub of: Coordinate,
    /// The lowest bit that decides.
    pub from: u32,
    /// The lowest bit that is flipped.
    pub to: u32,
    /// How many.
    pub bits: u32,
}

impl Flip {
    fn apply(self, value: i64) -> i64 {
        value ^ (((value >> self.from) & ((1 << self.bits) - 1)) << self.to)
    }
}

/// Digits in the order of what they are digits of, lowest first; none of one value, none that goes on where the one before
/// it ends. Flips of coordinates that it gives come after the digits, those of coordinates that it takes before them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Layout {
    digits: Vec<Digit>,
    flips: Vec<Flip>,
}

impl Layout {
    /// The layout with these digits, in any order.
    pub fn new(digits: impl IntoIterator<Item = Digit>) -> Layout {
        let mut sorted: Vec<Digit> = digits.into_iter().filter(|d| d.extent != 1).collect();
        sorted.sort_unstable();
        let mut digits: Vec<Digit> = Vec::with_capacity(sorted.len());
        for digit in sorted {
            match digits.last_mut() {
                Some(last) if continues(*last, digit) => last.extent *= digit.extent,
                _ => digits.push(digit),
            }
        }
        Layout { digits, flips: Vec::new() }
    }

    /// With bits flipped after all that there is.
    #[must_use]
    pub fn flipped(mut self, flip: Flip) -> Layout {
        self.flips.push(flip);
        self
    }

    /// The digits, by the coordinate that they are digits of, lowest first.
    pub fn digits(&self) -> &[Digit] {
        &self.digits
    }

    /// The flips, in their order.
    pub fn flips(&self) -> &[Flip] {
        &self.flips
    }

    /// How many values of a coordinate that it takes the digits tell apart: 1 where it has none.
    pub fn extent(&self, from: Coordinate) -> i64 {
        self.digits.iter().filter(|d| d.from == from).map(|d| d.end()).fold(1, i64::max)
    }

    /// One more than the largest value of a coordinate that it gives, flips left aside.
    pub fn span(&self, to: Coordinate) -> i64 {
        self.digits.iter().filter(|d| d.to == to).map(|d| (d.extent - 1) * d.stride).sum::<i64>() + 1
    }

    /// A coordinate that it gives.
    pub fn value(&self, to: Coordinate, from: &impl Fn(Coordinate) -> i64) -> i64 {
        let taken = |c: Coordinate| self.flips.iter().filter(|f| f.of == c).fold(from(c), |v, f| f.apply(v));
        let digits = self.digits.iter().filter(|d| d.to == to);
        let sum = digits.map(|d| taken(d.from).div_euclid(d.at).rem_euclid(d.extent) * d.stride).sum();
        self.flips.iter().filter(|f| f.of == to).fold(sum, |v, f| f.apply(v))
    }

    /// A coordinate that it gives, as an index; `None` where bits are flipped.
    pub fn symbolic(&self, to: Coordinate, from: &impl Fn(Coordinate) -> Index) -> Option<Index> {
        let mut sum = Index::Int(0);
        for d in self.digits.iter().filter(|d| d.to == to) {
            if self.flips.iter().any(|f| f.of == to || f.of == d.from) {
                return None;
            }
            sum = sum + from(d.from).floordiv(d.at).floormod(d.extent) * d.stride;
        }
        Some(sum)
    }

    /// From what it gives to what it takes; `None` where that is no layout: two points go to one place, or a digit carries
    /// into another (as rows of 40 elements do, of which 32 are used).
    pub fn inverse(&self) -> Option<Layout> {
        if !self.is_separated() {
            return None;
        }
        let mut inverse = Layout::new(self.digits.iter().map(|d| d.swapped()));
        inverse.flips = self.flips.iter().rev().copied().collect();
        Some(inverse)
    }

    /// Whether it takes a box to a box, one to one: in every coordinate that it takes or gives, each digit begins where the
    /// one below it ends. (The lowest may begin above 1, where elements are wider than a bit.)
    pub fn is_bijective(&self) -> bool {
        self.is_separated() && [false, true].into_iter().all(|side| self.chains(side).all(|c| c.windows(2).all(meet)))
    }

    /// First this layout, then another that takes what this one gives; `None` where that is no layout, or where this one
    /// gives more than the other takes.
    pub fn then(&self, next: &Layout) -> Option<Layout> {
        let between = |c: Coordinate| next.digits.iter().any(|n| n.from == c) || self.digits.iter().any(|d| d.to == c);
        let own = |f: &Flip| self.digits.iter().any(|d| d.from == f.of) && !between(f.of);
        let theirs = |f: &Flip| next.digits.iter().any(|n| n.to == f.of) && !next.digits.iter().any(|n| n.from == f.of);
        if !self.is_separated() || !self.flips.iter().all(own) || !next.flips.iter().all(theirs) {
            return None;
        }
        let mut digits = Vec::new();
        for d in &self.digits {
            let mut covered = 1;
            for n in next.digits.iter().filter(|n| n.from == d.to) {
                let Some(part) = overlap(*d, *n)? else { continue };
                covered *= part.extent;
                digits.push(part);
            }
            if covered != d.extent {
                return None;
            }
        }
        let mut both = Layout::new(digits);
        both.flips = self.flips.iter().chain(&next.flips).copied().collect();
        Some(both)
    }

    /// With other names for coordinates: of exchanged indices, for example.
    #[must_use]
    pub fn renamed(&self, name: impl Fn(Coordinate) -> Coordinate) -> Layout {
        let digits = self.digits.iter().map(|d| Digit { from: name(d.from), to: name(d.to), ..*d });
        let flips = self.flips.iter().map(|f| Flip { of: name(f.of), ..*f }).collect();
        Layout { flips, ..Layout::new(digits) }
    }

    /// How many consecutive values of an index stand next to each other in memory, from any multiple of that number on.
    pub fn vector_width(&self, index: Coordinate, bits: i64) -> i64 {
        let run = self.digits.iter().find(|d| d.from == index && d.at == 1);
        let run = run.filter(|d| d.to == Coordinate::Offset && d.stride == bits).map_or(1, |d| d.extent);
        let others = self.digits.iter().filter(|d| (d.from, d.at) != (index, 1) && d.to == Coordinate::Offset);
        let aligned = others.fold(run, |run, d| gcd(run, d.stride / bits.max(1)));
        self.flips
            .iter()
            .filter(|f| f.of == Coordinate::Offset)
            .fold(aligned, |run, f| gcd(run, (1 << f.to) / bits.max(1)))
    }

    /// How often the busiest bank of shared memory is asked for another word while the lanes read or write `bytes` each at
    /// the offset that this layout gives for them: 1 is free of conflicts.
    pub fn bank_conflicts(&self, bytes: i64) -> i64 {
        let lanes = self.extent(Coordinate::Lane);
        let address =
            |lane: i64| self.value(Coordinate::Offset, &|c| if c == Coordinate::Lane { lane } else { 0 }).div_euclid(8);
        conflict_degree(bytes, &(0..lanes).map(address).collect::<Vec<_>>())
    }

    /// Whether no digit carries into another, neither in what it takes nor in what it gives.
    fn is_separated(&self) -> bool {
        let apart = |w: &[Digit]| w[0].at > 0 && w[1].at % w[0].end() == 0;
        [false, true].into_iter().all(|side| self.chains(side).all(|c| c.windows(2).all(apart)))
    }

    /// The digits of each coordinate that it takes, lowest first; with `given`, of each that it gives, as digits of that.
    fn chains(&self, given: bool) -> impl Iterator<Item = Vec<Digit>> {
        let mut all: Vec<Digit> = self.digits.iter().map(|d| if given { d.swapped() } else { *d }).collect();
        all.sort_unstable();
        let mut names: Vec<Coordinate> = all.iter().map(|d| d.from).collect();
        names.dedup();
        names.into_iter().map(move |c| all.iter().filter(|d| d.from == c).copied().collect())
    }
}

fn continues(last: Digit, next: Digit) -> bool {
    (last.from, last.to) == (next.from, next.to) && next.at == last.end() && next.stride == last.stride * last.extent
}

fn meet(pair: &[Digit]) -> bool {
    pair[1].at == pair[0].end()
}

/// What digit `d` adds through a digit of what it gives: `Some(None)` where the two do not meet, `None` where they meet in
/// part of a digit.
fn overlap(d: Digit, next: Digit) -> Option<Option<Digit>> {
    let ends = (d.swapped().end(), next.end());
    let (low, high) = (d.stride.max(next.at), ends.0.min(ends.1));
    if low >= high {
        return Some(None);
    }
    let whole =
        low % d.stride == 0 && low % next.at == 0 && high % low == 0 && ends.0 % high == 0 && ends.1 % high == 0;
    whole.then(|| {
        Some(Digit {
            from: d.from,
            at: d.at * (low / d.stride),
            extent: high / low,
            to: next.to,
            stride: next.stride * (low / next.at),
        })
    })
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
