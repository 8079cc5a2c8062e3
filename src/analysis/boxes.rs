//! What a bulk copy moves: boxes between device memory, row after row, and the shared memory of one block or several.
//!
//! Each row of a box is fetched by itself: the sectors of 32 bytes and the lines of 128 bytes that its part inside the array
//! touches. What is outside is filled with zeros, or not written, and costs nothing there.

use super::access::{Counter, Measured};
use super::count::Method;
use super::report::Cost;
use super::request::{LINE, SECTOR};
use super::site::Site;
use crate::ir::lowered::TensorMap;
use crate::ir::{BulkCopy, Cond, Way};
use std::collections::HashMap;

/// What boxes come to in device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rows {
    /// Bytes inside the array.
    pub bytes: u64,
    /// Sectors that the rows touch, and as few as hold their bytes.
    pub sectors: [u64; 2],
    /// The same of lines.
    pub lines: [u64; 2],
}

impl Rows {
    /// Adds a row of so many bytes that begins at a byte.
    pub fn row(&mut self, start: i64, bytes: i64) {
        if bytes < 1 {
            return;
        }
        let touched = |unit: i64| ((start + bytes - 1).div_euclid(unit) - start.div_euclid(unit) + 1) as u64;
        let least = |unit: i64| (bytes as u64).div_ceil(unit as u64);
        self.bytes += bytes as u64;
        for (of, unit) in [(&mut self.sectors, SECTOR), (&mut self.lines, LINE)] {
            of[0] += touched(unit);
            of[1] += least(unit);
        }
    }

    /// Adds so many times the other.
    pub fn add(&mut self, other: &Rows, times: u64) {
        let of = [(&mut self.sectors, other.sectors), (&mut self.lines, other.lines)];
        for (sum, n) in of.into_iter().flat_map(|(a, b)| a.iter_mut().zip(b)).chain([(&mut self.bytes, other.bytes)]) {
            *sum = sum.saturating_add(n.saturating_mul(times));
        }
    }

    fn cost(&self) -> Cost {
        let ([sectors, ideal], [lines, ideal_lines]) = (self.sectors, self.lines);
        Cost::Box { bytes: self.bytes, sectors, ideal, lines, ideal_lines }
    }
}

/// Both sides of a bulk copy: boxes that land in shared memory, by the blocks that receive them, or rows of device memory.
pub fn measure(counter: &Counter<'_>, site: &Site<'_>, copy: &BulkCopy) -> Measured {
    let Some(map) = counter.kernel.maps.get(copy.map as usize) else {
        return Measured::refused("its tensor map is missing");
    };
    let bits = i64::from(site.dtype(&counter.kernel.func).bits());
    let (mut boxes, mut rows) = (0u64, Rows::default());
    let method = each(counter, site, copy, map, &mut |times, part| {
        boxes = boxes.saturating_add(times);
        rows.add(&part.rows(map, bits), times);
    });
    let whole = map.tile.iter().fold(bits as u64, |n, e| n.saturating_mul(e.unsigned_abs())) / 8;
    let of_device = site.buffer == copy.global;
    let (requests, cost) = match copy.way {
        _ if of_device => (boxes, rows.cost()),
        // All of a box is written, with zeros for what is outside; what is outside is not read.
        Way::Load { multicast, .. } => {
            let landing = boxes.saturating_mul(multicast.unwrap_or(1).into());
            (landing, Cost::Engine { bytes: landing.saturating_mul(whole) })
        }
        Way::Store => (boxes, Cost::Engine { bytes: rows.bytes }),
    };
    Measured { method, requests, lanes: 0, cost, range: None, worst: None }
}

/// The part of a box that is inside the array.
struct Part {
    /// The byte at which the box begins, up to multiples of a line.
    start: i64,
    /// Of each dimension the first index inside the box, and how many.
    inside: Vec<(i64, i64)>,
}

impl Part {
    fn rows(&self, map: &TensorMap, bits: i64) -> Rows {
        let Some(((first, columns), outer)) = self.inside.split_last() else { return Rows::default() };
        // Rows that begin alike in their lines cost alike.
        let mut starts = HashMap::from([((self.start + first * bits / 8).rem_euclid(LINE), 1u64)]);
        for ((first, count), stride) in outer.iter().zip(&map.strides) {
            let mut next = HashMap::new();
            for n in *first..first + count {
                let behind = (n % (8 * LINE) * (stride % (8 * LINE))) % (8 * LINE) * bits / 8;
                for (start, times) in &starts {
                    *next.entry((start + behind).rem_euclid(LINE)).or_default() += times;
                }
            }
            starts = next;
        }
        let mut all = Rows::default();
        for (start, times) in starts {
            let mut one = Rows::default();
            one.row(start, columns * bits / 8);
            all.add(&one, times);
        }
        all
    }
}

/// Calls `f` on the parts of boxes inside the array, with how often each occurs.
fn each(
    counter: &Counter<'_>,
    site: &Site<'_>,
    copy: &BulkCopy,
    map: &TensorMap,
    f: &mut dyn FnMut(u64, &Part),
) -> Method {
    let bits = i64::from(site.dtype(&counter.kernel.func).bits());
    let bytes = |elements: i64| (elements.wrapping_mul(bits) / 8).rem_euclid(LINE);
    let strided = copy.coordinates.iter().zip(&map.strides).map(|(c, s)| c.clone() * *s);
    let flat = strided.fold(0.into(), |all: crate::ir::Index, term| all + term);
    let mut whole = Cond::TRUE;
    for ((at, tile), extent) in copy.coordinates.iter().zip(&map.tile).zip(&map.extents) {
        whole = whole.and(Cond::ge(at.clone(), 0)).and(Cond::lt(at.clone(), extent - tile + 1));
    }
    let around = |cond| {
        let mut around = site.around.clone();
        around.conds.push(cond);
        around
    };
    let full: Vec<(i64, i64)> = map.tile.iter().map(|t| (0, *t)).collect();
    let most = counter.classes(&around(whole.clone()), (&flat, (LINE * 8 / bits).max(1)), &[], &mut |class| {
        let start = class.elements[class.active.trailing_zeros() as usize % 32];
        let start = bytes(start);
        f(class.times, &Part { start, inside: full.clone() });
    });
    let outside = Cond::Not(Box::new(whole));
    let edges = counter.classes(&around(outside), (&0.into(), 1), &copy.coordinates, &mut |class| {
        let dims = class.values.iter().zip(&map.tile).zip(&map.extents);
        let inside: Vec<(i64, i64)> = dims
            .map(|((at, tile), extent)| {
                let first = at.saturating_neg().max(0);
                (first, extent.saturating_sub(*at).min(*tile).saturating_sub(first).max(0))
            })
            .collect();
        let start = class.values.iter().zip(&map.strides).map(|(c, s)| c.wrapping_mul(*s)).fold(0, i64::wrapping_add);
        f(class.times, &Part { start: bytes(start), inside });
    });
    match (most, edges) {
        (Method::Exact, other) | (other, Method::Exact) => other,
        (Method::Unknown(why), _) | (_, Method::Unknown(why)) => Method::Unknown(why),
        (Method::Sampled, Method::Sampled) => Method::Sampled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(strides: [i64; 2], tile: [i64; 2]) -> TensorMap {
        let extents = vec![1000, 1000];
        TensorMap {
            buffer: crate::ir::BufferId(0),
            extents,
            strides: strides.to_vec(),
            tile: tile.to_vec(),
            swizzle: 0,
            promotion: 0,
            dynamic: None,
        }
    }

    /// Sectors and lines of each row on its own.
    fn one_by_one(start: i64, rows: (i64, i64), columns: (i64, i64), stride: i64, bytes: i64) -> Rows {
        let mut all = Rows::default();
        for row in rows.0..rows.0 + rows.1 {
            all.row(start + (row * stride + columns.0) * bytes, columns.1 * bytes);
        }
        all
    }

    #[test]
    fn rows_cost_the_sectors_and_lines_that_they_touch() {
        let mut row = Rows::default();
        row.row(0, 128);
        assert_eq!((row.sectors, row.lines), ([4, 4], [1, 1]));
        row.row(112, 128);
        assert_eq!((row.bytes, row.sectors, row.lines), (256, [9, 8], [3, 2]));
        row.row(64, 0);
        assert_eq!((row.bytes, row.lines), (256, [3, 2]));
        row.row(-16, 32);
        assert_eq!((row.sectors, row.lines), ([11, 9], [5, 3]));
    }

    #[test]
    fn parts_of_boxes_are_their_rows() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let (bytes, stride) = (1 << rng.i64(0..4), rng.i64(1..5000));
            let tile = [rng.i64(1..200), rng.i64(1..200)];
            let rows = (rng.i64(0..tile[0]), rng.i64(0..tile[0]));
            let columns = (rng.i64(0..tile[1]), rng.i64(0..tile[1]));
            let start = rng.i64(0..LINE);
            let part = Part { start, inside: vec![rows, columns] };
            let found = part.rows(&map([stride, 1], tile), 8 * bytes);
            assert_eq!(found, one_by_one(start, rows, columns, stride, bytes), "{stride} {bytes} {rows:?} {columns:?}");
        }
    }
}
