//! Where the elements of mma fragments are (PTX ISA, "Matrix Fragments for mma.m8n8k16" to "mma.m16n8k64" and "Register
//! Fragments for wgmma.mma_async").
//!
//! With g = lane / 4 and t = lane % 4, and k counted in registers of 32 bits:
//!
//! | fragment | register r of a lane holds |
//! |---|---|
//! | A of 16 rows | row g + 8 (r mod 2), word t + 4 (r div 2) of k |
//! | A of 8 rows | row g, word t + 4 r of k |
//! | B | column g, word t + 4 r of k |
//! | C and D of 32 bits | row g + 8 (r div 2 mod 2), column 8 (r div 4) + 2 t + r mod 2 |
//! | C and D of f16 | row g + 8 (r mod 2), columns 8 (r div 2) + 2 t and the next one |
//!
//! In a word the lowest k is in the lowest bits. wgmma's accumulators are those of m16n8, one after the other, and a
//! warp of the warpgroup has the 16 rows that its number says.

use super::number::Number;
use crate::dtype::DType;

/// A register of all lanes.
pub(super) type Lanes = [u32; 32];

/// The registers of an operand with so many rows of A (or columns of B) and so many elements along k.
pub(super) fn operand_registers(lines: usize, depth: usize, dtype: DType) -> usize {
    lines * depth * dtype.bits() as usize / 1024
}

/// The registers of an accumulator of so many rows and columns.
pub(super) fn accumulator_registers(rows: usize, columns: usize, dtype: DType) -> usize {
    rows * columns * dtype.bits() as usize / 1024
}

/// The elements of A, row by row.
pub(super) fn a_rows<N: Number>(registers: &[Lanes], rows: usize, depth: usize, dtype: DType) -> Vec<N> {
    let mut out = vec![N::default(); rows * depth];
    walk_operand(registers, rows / 8, dtype, |row, k, value| out[row * depth + k] = value);
    out
}

/// The elements of B, the 8 columns of each k after one another.
pub(super) fn b_rows<N: Number>(registers: &[Lanes], depth: usize, dtype: DType) -> Vec<N> {
    let mut out = vec![N::default(); 8 * depth];
    walk_operand(registers, 1, dtype, |column, k, value| out[k * 8 + column] = value);
    out
}

fn walk_operand<N: Number>(registers: &[Lanes], eights: usize, dtype: DType, mut take: impl FnMut(usize, usize, N)) {
    let bits = dtype.bits();
    let per_word = (32 / bits) as usize;
    for (r, register) in registers.iter().enumerate() {
        for (lane, word) in register.iter().enumerate() {
            let (line, first) = (lane / 4 + 8 * (r % eights), (lane % 4 + 4 * (r / eights)) * per_word);
            for e in 0..per_word {
                let bits = word >> (e as u32 * bits) & (u32::MAX >> (32 - bits));
                take(line, first + e, N::operand(dtype, bits));
            }
        }
    }
}

/// Visits the accumulator's elements: the register, the lane, the lowest bit in the register, the row and the column.
fn walk_accumulator(registers: usize, dtype: DType, mut visit: impl FnMut([usize; 3], usize, usize)) {
    for r in 0..registers {
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            if dtype == DType::F16 {
                let (row, column) = (g + 8 * (r % 2), 8 * (r / 2) + 2 * t);
                visit([r, lane, 0], row, column);
                visit([r, lane, 16], row, column + 1);
            } else {
                visit([r, lane, 0], g + 8 * (r / 2 % 2), 8 * (r / 4) + 2 * t + r % 2);
            }
        }
    }
}

/// The accumulators in registers, row by row.
pub(super) fn accumulators<N: Number>(registers: &[Lanes], rows: usize, columns: usize, dtype: DType) -> Vec<N> {
    let mut out = vec![N::default(); rows * columns];
    walk_accumulator(registers.len(), dtype, |[r, lane, shift], row, column| {
        let word = registers[r][lane] >> shift;
        let word = if dtype == DType::F16 { word & 0xffff } else { word };
        out[row * columns + column] = N::accumulator(dtype, word);
    });
    out
}

/// The registers of accumulators given row by row.
pub(super) fn to_registers<N: Number>(sums: &[N], rows: usize, columns: usize, dtype: DType) -> Vec<Lanes> {
    let mut out = vec![[0; 32]; accumulator_registers(rows, columns, dtype)];
    walk_accumulator(out.len(), dtype, |[r, lane, shift], row, column| {
        out[r][lane] |= sums[row * columns + column].bits(dtype) << shift;
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas of the PTX ISA for element `i` of a lane's fragment, in the words of its sections: (row, column) by
    /// (groupID, threadID_in_group, i).
    type Place = fn(usize, usize, usize) -> (usize, usize);

    struct Shape {
        name: &'static str,
        dtype: DType,
        rows: usize,
        depth: usize,
        a: (usize, Place),
        b: (usize, Place),
    }

    const fn shape(
        name: &'static str,
        dtype: DType,
        [rows, depth]: [usize; 2],
        a: (usize, Place),
        b: (usize, Place),
    ) -> Shape {
        Shape { name, dtype, rows, depth, a, b }
    }

    /// "Matrix Fragments for mma.NAME": the number of elements and where each of them is.
    fn shapes() -> Vec<Shape> {
        vec![
            shape(
                "m16n8k8 .f16",
                DType::F16,
                [16, 8],
                (4, |g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))),
                (2, |g, t, i| (t * 2 + i, g)),
            ),
            shape(
                "m16n8k16 .f16",
                DType::F16,
                [16, 16],
                (8, |g, t, i| {
                    let row = if i < 2 || (4..6).contains(&i) { g } else { g + 8 };
                    (row, if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 })
                }),
                (4, |g, t, i| (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g)),
            ),
            shape(
                "m16n8k4 .tf32",
                DType::Tf32,
                [16, 4],
                (2, |g, t, i| (if i == 0 { g } else { g + 8 }, t)),
                (1, |g, t, _| (t, g)),
            ),
            shape(
                "m16n8k8 .tf32",
                DType::Tf32,
                [16, 8],
                (4, |g, t, i| (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 })),
                (2, |g, t, i| (if i == 0 { t } else { t + 4 }, g)),
            ),
            shape("m8n8k16 .s8", DType::S8, [8, 16], (4, |g, t, i| (g, t * 4 + i)), (4, |g, t, i| (t * 4 + i, g))),
            shape(
                "m16n8k16 .u8",
                DType::U8,
                [16, 16],
                (8, |g, t, i| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3))),
                (4, |g, t, i| (t * 4 + (i & 3), g)),
            ),
            shape(
                "m16n8k32 .s8",
                DType::S8,
                [16, 32],
                (16, |g, t, i| {
                    let row = if i < 4 || (8..12).contains(&i) { g } else { g + 8 };
                    (row, if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 })
                }),
                (8, |g, t, i| (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g)),
            ),
            shape(
                "m8n8k32 .s4",
                DType::S4,
                [8, 32],
                (8, |g, t, i| (g, t * 8 + (i & 7))),
                (8, |g, t, i| (t * 8 + (i & 7), g)),
            ),
            shape(
                "m16n8k32 .u4",
                DType::U4,
                [16, 32],
                (16, |g, t, i| (if i < 8 { g } else { g + 8 }, t * 8 + (i & 7))),
                (8, |g, t, i| (t * 8 + (i & 7), g)),
            ),
            shape(
                "m16n8k64 .s4",
                DType::S4,
                [16, 64],
                (32, |g, t, i| {
                    let row = if i < 8 || (16..24).contains(&i) { g } else { g + 8 };
                    (row, if i < 16 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 })
                }),
                (16, |g, t, i| (if i < 8 { t * 8 + (i & 7) } else { t * 8 + (i & 7) + 32 }, g)),
            ),
            shape(
                "m8n8k128 .b1",
                DType::B1,
                [8, 128],
                (32, |g, t, i| (g, t * 32 + i)),
                (32, |g, t, i| (t * 32 + i, g)),
            ),
            shape(
                "m16n8k128 .b1",
                DType::B1,
                [16, 128],
                (64, |g, t, i| (if i < 32 { g } else { g + 8 }, t * 32 + (i & 31))),
                (32, |g, t, i| (t * 32 + i, g)),
            ),
            shape(
                "m16n8k256 .b1",
                DType::B1,
                [16, 256],
                (128, |g, t, i| {
                    let row = if i < 32 || (64..96).contains(&i) { g } else { g + 8 };
                    (row, t * 32 + (i & 31) + if i < 64 { 0 } else { 128 })
                }),
                (64, |g, t, i| (t * 32 + (i & 31) + if i < 32 { 0 } else { 128 }, g)),
            ),
        ]
    }

    /// The bits of an element that no neighbour has, and what it represents.
    fn mark(dtype: DType, row: usize, column: usize) -> u32 {
        let n = (row * 7 + column * 3 + row * column) as u32;
        match dtype {
            DType::F16 => u32::from(half::f16::from_f32(n as f32).to_bits()),
            DType::Tf32 => (n as f32).to_bits(),
            DType::S4 | DType::U4 => n & 15,
            DType::B1 => n.wrapping_mul(0x9E37_79B9) >> 31,
            _ => n & 255,
        }
    }

    fn registers(dtype: DType, count: usize, place: Place) -> Vec<Lanes> {
        let bits = dtype.bits() as usize;
        let mut out = vec![[0; 32]; count * bits / 32];
        for (lane, i) in (0..32).flat_map(|lane| (0..count).map(move |i| (lane, i))) {
            let (row, column) = place(lane / 4, lane % 4, i);
            out[i * bits / 32][lane] |= mark(dtype, row, column) << (i * bits % 32);
        }
        out
    }

    fn check<N: Number + std::fmt::Debug>(s: &Shape) {
        let a = registers(s.dtype, s.a.0, s.a.1);
        assert_eq!(a.len(), operand_registers(s.rows, s.depth, s.dtype), "{}", s.name);
        let found = a_rows::<N>(&a, s.rows, s.depth, s.dtype);
        for (at, value) in found.iter().enumerate() {
            let bits = mark(s.dtype, at / s.depth, at % s.depth);
            assert_eq!(*value, N::operand(s.dtype, bits), "A of {} at {at}", s.name);
        }
        let b = registers(s.dtype, s.b.0, s.b.1);
        assert_eq!(b.len(), operand_registers(8, s.depth, s.dtype), "{}", s.name);
        for (at, value) in b_rows::<N>(&b, s.depth, s.dtype).iter().enumerate() {
            assert_eq!(*value, N::operand(s.dtype, mark(s.dtype, at / 8, at % 8)), "B of {} at {at}", s.name);
        }
    }

    #[test]
    fn operands_are_where_the_isa_has_them() {
        for s in shapes() {
            if super::super::number::is_integer(s.dtype) { check::<i32>(&s) } else { check::<f32>(&s) }
        }
    }

    #[test]
    fn accumulators_are_where_the_isa_has_them() {
        // "row = groupID for ci where i < 2, groupID + 8 for i >= 2; col = (threadID_in_group * 2) + (i & 0x1)".
        let place: Place = |g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1));
        let wide: Vec<Lanes> = (0..4)
            .map(|i| std::array::from_fn(|l| (place(l / 4, l % 4, i).0 * 8 + place(l / 4, l % 4, i).1) as u32))
            .collect();
        assert_eq!(accumulators::<i32>(&wide, 16, 8, DType::S32), (0..128).collect::<Vec<_>>());
        let narrow = registers(DType::F16, 4, place);
        let found = accumulators::<f32>(&narrow, 16, 8, DType::F16);
        for (at, value) in found.iter().enumerate() {
            assert_eq!(*value, f32::operand(DType::F16, mark(DType::F16, at / 8, at % 8)));
        }
        // m8n8: "row = groupID; col = (threadID_in_group * 2) + (i & 0x1)".
        let small: Vec<Lanes> = (0..2).map(|i| std::array::from_fn(|l| (l / 4 * 8 + l % 4 * 2 + i) as u32)).collect();
        assert_eq!(accumulators::<i32>(&small, 8, 8, DType::S32), (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn accumulators_of_wgmma_are_where_the_isa_has_them() {
        // "Register Fragments for D": d(4 j + 0), d(4 j + 1) are of row groupID, columns 8 j + 2 t and the next; the
        // next two of row groupID + 8; in f16, register 2 j and 2 j + 1.
        for columns in [8, 24, 256] {
            let count = columns / 2;
            let wide: Vec<Lanes> = (0..count)
                .map(|d| {
                    std::array::from_fn(|l| {
                        let row = l / 4 + if d % 4 < 2 { 0 } else { 8 };
                        (row * columns + d / 4 * 8 + l % 4 * 2 + d % 2) as u32
                    })
                })
                .collect();
            assert_eq!(accumulator_registers(16, columns, DType::S32), count);
            let all: Vec<i32> = (0..16 * columns as i32).collect();
            assert_eq!(accumulators::<i32>(&wide, 16, columns, DType::S32), all);
            assert_eq!(to_registers(&all, 16, columns, DType::S32), wide);
            let packed: Vec<Lanes> = (0..columns / 4)
                .map(|d| {
                    std::array::from_fn(|l| {
                        let (row, column) = (l / 4 + d % 2 * 8, d / 2 * 8 + l % 4 * 2);
                        mark(DType::F16, row, column) | mark(DType::F16, row, column + 1) << 16
                    })
                })
                .collect();
            let found = accumulators::<f32>(&packed, 16, columns, DType::F16);
            for (at, value) in found.iter().enumerate() {
                let bits = mark(DType::F16, at / columns, at % columns);
                assert_eq!(*value, f32::operand(DType::F16, bits));
            }
            assert_eq!(to_registers(&found, 16, columns, DType::F16), packed);
        }
    }
}
