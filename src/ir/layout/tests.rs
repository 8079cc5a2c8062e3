//! Layouts by enumeration: every function on digits against the same function on points.

use super::Coordinate::{Bit, Index, Lane, Offset, Register};
use super::*;
use crate::dtype::DType;
use crate::ir::{Buffer, Scope, StorageAlign, Var};
use std::collections::{BTreeMap, BTreeSet};

type Point = BTreeMap<Coordinate, i64>;

fn inputs(layout: &Layout) -> Vec<Coordinate> {
    layout.digits().iter().map(|d| d.from).collect::<BTreeSet<_>>().into_iter().collect()
}

fn outputs(layout: &Layout) -> Vec<Coordinate> {
    layout.digits().iter().map(|d| d.to).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Every point that the digits of the inputs tell apart.
fn points(layout: &Layout) -> Vec<Point> {
    let mut all = vec![Point::new()];
    for c in inputs(layout) {
        let values: BTreeSet<i64> = layout.digits().iter().filter(|d| d.from == c).fold([0].into(), |values, d| {
            values.iter().flat_map(|v: &i64| (0..d.extent).map(move |x| v + x * d.at)).collect()
        });
        let with =
            |p: &Point| values.iter().map(|v| p.iter().map(|(k, v)| (*k, *v)).chain([(c, *v)]).collect()).collect();
        all = all.iter().flat_map(|p| -> Vec<Point> { with(p) }).collect();
    }
    all
}

fn apply(layout: &Layout, point: &Point) -> Point {
    let from = |c: Coordinate| point.get(&c).copied().unwrap_or(0);
    outputs(layout).into_iter().map(|c| (c, layout.value(c, &from))).collect()
}

fn without_zeros(point: &Point) -> Point {
    point.iter().filter(|(_, v)| **v != 0).map(|(k, v)| (*k, *v)).collect()
}

/// A bijection between `from` and `to`, its digits drawn at random.
fn random_bijection(rng: &mut fastrand::Rng, from: &[Coordinate], to: &[Coordinate]) -> Layout {
    let mut next: BTreeMap<Coordinate, i64> = BTreeMap::new();
    let mut digits = Vec::new();
    for _ in 0..rng.usize(1..6) {
        let (f, t) = (from[rng.usize(..from.len())], to[rng.usize(..to.len())]);
        let extent = [2, 2, 3, 4][rng.usize(..4)];
        // The two sides count apart, also where they share a name.
        let at = *next.entry(f).and_modify(|v| *v *= extent).or_insert(extent) / extent;
        digits.push((f, at, extent, t));
    }
    rng.shuffle(&mut digits);
    let mut end: BTreeMap<Coordinate, i64> = BTreeMap::new();
    Layout::new(digits.into_iter().map(|(f, at, extent, t)| {
        let stride = *end.entry(t).and_modify(|v| *v *= extent).or_insert(extent) / extent;
        Digit::new(f, at, extent, t, stride)
    }))
}

#[test]
fn random_bijections_are_bijective_and_their_inverses_undo_them() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let layout = random_bijection(&mut rng, &[Index(0), Index(1)], &[Lane, Register, Bit]);
        assert!(layout.is_bijective(), "{layout:?}");
        let all = points(&layout);
        let images: BTreeSet<Point> = all.iter().map(|p| apply(&layout, p)).collect();
        assert_eq!(images.len(), all.len(), "{layout:?}");
        let size: i64 = outputs(&layout).iter().map(|c| layout.span(*c)).product();
        assert_eq!(size as usize, all.len(), "{layout:?}");
        let inverse = layout.inverse().unwrap();
        for p in &all {
            assert_eq!(without_zeros(&apply(&inverse, &apply(&layout, p))), without_zeros(p), "{layout:?}");
        }
        assert_eq!(inverse.inverse(), Some(layout));
    }
}

#[test]
fn compositions_are_those_of_points() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut made = 0;
    for _ in 0..600 {
        let first = random_bijection(&mut rng, &[Lane, Register], &[Index(0), Index(1)]);
        let second = random_bijection(&mut rng, &[Index(0), Index(1)], &[Offset]);
        let fits = [Index(0), Index(1)].into_iter().all(|c| first.span(c) <= second.extent(c));
        let Some(both) = first.then(&second) else { continue };
        assert!(fits, "{first:?} then {second:?}");
        made += 1;
        for p in points(&first) {
            let expected = apply(&second, &apply(&first, &p));
            assert_eq!(without_zeros(&apply(&both, &p)), without_zeros(&expected), "{first:?} then {second:?}");
        }
    }
    assert!(made > 50, "{made} compositions");
}

#[test]
fn symbolic_indices_have_the_values_of_the_layout() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..100 {
        let layout = random_bijection(&mut rng, &[Lane, Register], &[Index(0), Index(1)]);
        let var = |c: Coordinate| crate::ir::Index::Var(Var(if c == Lane { 0 } else { 1 }));
        for to in outputs(&layout) {
            let index = layout.symbolic(to, &var).unwrap();
            for p in points(&layout) {
                let get = |c: Coordinate| p.get(&c).copied().unwrap_or(0);
                let value = index.eval(&|v| Some(get(if v == Var(0) { Lane } else { Register })));
                assert_eq!(value, Some(layout.value(to, &get)));
            }
        }
    }
}

fn buffer(dtype: DType, shape: &[i64]) -> Buffer {
    Buffer::new("b", dtype, shape.iter().map(|e| crate::ir::Index::Int(*e)).collect(), Scope::Shared)
}

fn offset(layout: &Layout, row: i64, column: i64) -> i64 {
    layout.value(Offset, &|c| if c == Index(0) { row } else { column })
}

#[test]
fn buffers_lie_as_their_strides_say() {
    let mut b = buffer(DType::F16, &[6, 32]);
    b.storage_align = Some(StorageAlign { dim: 0, factor: 32, offset: 8 });
    let layout = Layout::of(&b).unwrap();
    for (r, c) in (0..6).flat_map(|r| (0..32).map(move |c| (r, c))) {
        assert_eq!(offset(&layout, r, c), (r * 40 + c) * 16);
    }
    // A row of 40 holds 32: no digits lead back.
    assert_eq!((layout.inverse(), layout.is_bijective()), (None, false));
    assert!(Layout::of(&buffer(DType::S4, &[6, 32])).unwrap().is_bijective());
}

#[test]
fn swizzled_chunks_lie_where_the_instruction_set_says() {
    for (width, rows) in [(32, 64), (64, 64), (128, 64)] {
        for (dtype, columns) in [(DType::F16, 64), (DType::F16, 256), (DType::S8, 256), (DType::F32, 64)] {
            let mut b = buffer(dtype, &[rows, columns]);
            b.swizzle = Some(width);
            let layout = Layout::of(&b).unwrap();
            let (width, size) = (i64::from(width), i64::from(dtype.bits()) / 8);
            let mut seen = BTreeSet::new();
            for (r, c) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                let (panel, byte) = (c * size / width, c * size % width);
                let flip = match width {
                    128 => r % 8,
                    64 => r / 2 % 4,
                    _ => r / 4 % 2,
                };
                let expected = (panel * rows + r) * width + ((byte / 16) ^ flip) * 16 + byte % 16;
                assert_eq!(offset(&layout, r, c), expected * 8, "{width} {dtype} at {r}, {c}");
                seen.insert(expected);
            }
            assert_eq!(seen.len() as i64, rows * columns);
            assert_eq!(layout.vector_width(Index(1), i64::from(dtype.bits())), 16 / size);
            let inverse = layout.inverse().unwrap();
            let back = |c| inverse.value(c, &|_| offset(&layout, 13, 27));
            assert_eq!((back(Index(0)), back(Index(1))), (13, 27));
        }
    }
    let mut odd = buffer(DType::F16, &[8, 96]);
    odd.swizzle = Some(128);
    assert_eq!(Layout::of(&odd), None);
}

#[test]
fn vectors_are_what_stands_side_by_side() {
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..200 {
        let shape = [rng.i64(1..9), [1, 2, 4, 6, 8, 12, 16][rng.usize(..7)]];
        let pitch = shape[1] + rng.i64(0..9);
        let layout = Layout::strided(&shape, &[pitch, 1], 16);
        let width = layout.vector_width(Index(1), 16);
        assert!(shape[1] % width == 0);
        for (r, c) in (0..shape[0]).flat_map(|r| (0..shape[1]).map(move |c| (r, c))) {
            let start = offset(&layout, r, c / width * width);
            assert_eq!(start % (16 * width), 0, "{shape:?} {pitch}");
            assert_eq!(offset(&layout, r, c), start + c % width * 16);
        }
    }
    assert_eq!(Layout::strided(&[8, 32], &[40, 1], 16).vector_width(Index(1), 16), 8);
    assert_eq!(Layout::strided(&[8, 32], &[1, 8], 16).vector_width(Index(1), 16), 1);
}

/// The rows of a tile that lanes 0..8 read, 16 bytes each, as one phase of a matrix load.
fn rows_of(layout: &Layout) -> i64 {
    let lanes = Layout::new([Digit::new(Lane, 1, 8, Index(0), 1)]);
    lanes.then(layout).map_or(0, |l| l.bank_conflicts(16))
}

#[test]
fn bank_conflicts_are_those_of_the_handbook() {
    let padded = |pitch| rows_of(&Layout::strided(&[64, 32], &[pitch, 1], 16));
    assert_eq!((padded(32), padded(40), padded(48), padded(64), padded(128)), (4, 1, 2, 8, 8));
    for (width, columns) in [(64, 32), (128, 64), (32, 16)] {
        let mut b = buffer(DType::F16, &[64, columns]);
        b.swizzle = Some(width);
        assert_eq!(rows_of(&Layout::of(&b).unwrap()), 1, "{width}");
    }
    let words = |stride: i64| Layout::new([Digit::new(Lane, 1, 32, Offset, stride * 32)]).bank_conflicts(4);
    assert_eq!((words(0), words(1), words(2), words(32), words(33)), (1, 1, 2, 32, 1));
    // A lane of 8 bytes takes two banks; halves of the warp go one after the other.
    assert_eq!(Layout::new([Digit::new(Lane, 1, 32, Offset, 64)]).bank_conflicts(8), 1);
    assert_eq!(Layout::new([Digit::new(Lane, 1, 32, Offset, 128)]).bank_conflicts(8), 2);
}

#[test]
fn layouts_have_one_form() {
    let split = [Digit::new(Index(0), 4, 2, Offset, 64), Digit::new(Index(0), 1, 4, Offset, 16)];
    assert_eq!(Layout::new(split), Layout::strided(&[8], &[1], 16));
    let exchanged = Layout::strided(&[4, 8], &[8, 1], 16).renamed(|c| match c {
        Index(d) => Index(1 - d),
        other => other,
    });
    assert_eq!(exchanged, Layout::strided(&[8, 4], &[1, 8], 16));
    assert_eq!(Layout::strided(&[8, 4], &[3, 1], 16).inverse(), None);
}

/// The order of 4-bit integers: two to a byte, the lower index in the lower bits; host arrays have it too.
#[test]
fn small_elements_are_packed_lowest_bits_first() {
    for dtype in [DType::S4, DType::U4, DType::B1] {
        let (shape, bits) = ([3, 32], i64::from(dtype.bits()));
        let layout = Layout::of(&buffer(dtype, &shape)).unwrap();
        let array = crate::Array::random(dtype, &[3, 32], 9).unwrap();
        for (i, j) in (0..3).flat_map(|i| (0..32).map(move |j| (i, j))) {
            let offset = layout.value(Offset, &|c| if c == Index(0) { i } else { j });
            assert_eq!(offset, (i * 32 + j) * bits);
            let value = i64::from(array.bytes[offset as usize / 8]) >> (offset % 8) & ((1 << bits) - 1);
            assert_eq!(value, array.get((i * 32 + j) as usize) as i64 & ((1 << bits) - 1), "{dtype} {i} {j}");
        }
    }
}
