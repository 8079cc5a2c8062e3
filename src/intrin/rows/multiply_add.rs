//! mma.sync: products of fragments, by warps.
//!
//! One rule gives the fragments of every shape and type (PTX ISA, "Matrix Fragments for mma.m8n8k16 .. mma.m16n8k64"). With
//! g = lane / 4, t = lane % 4, and k counted in 32-bit words:
//!
//! - A, register r: row g + 8 (r % 2), word t + 4 (r / 2); with 8 rows word t + 4 r;
//! - B, register r: word t + 4 r, column g;
//! - C and D: rows g and g + 8, columns 2 t and 2 t + 1, in the order of the registers; two 16-bit values share one;
//! - inside a word the lowest k is in the lowest bits.
//!
//! Elements of f64 have registers of 64 bits, and k is counted in elements.

use crate::dtype::DType;
use crate::intrin::{Action, Emit, Init, Level, Operand, Place, Row};
use crate::ir::layout::Coordinate::{Bit, Index, Lane, Register};
use crate::ir::layout::{Digit, Layout};
use crate::target::Features;

/// The compute capability from which on 4-bit integers are multiplied as 8-bit ones: ptxas writes two instructions and their
/// unpacking in a routine that it calls.
pub(super) const WITHOUT_INT4: u32 = 90;

/// Rows of D, which B has columns 8 of, and the extent of k.
pub(super) type Shape = (i64, i64);

const F16: [(Shape, Features); 2] = [((16, 8), Features::MMA_F16), ((16, 16), Features::MMA_AMPERE)];
const BF16: [(Shape, Features); 2] = [((16, 8), Features::MMA_AMPERE), ((16, 16), Features::MMA_AMPERE)];
const INT8: [(Shape, Features); 3] =
    [((8, 16), Features::MMA_INT), ((16, 16), Features::MMA_AMPERE), ((16, 32), Features::MMA_AMPERE)];

const INT4: [(Shape, Features); 3] =
    [((8, 32), Features::MMA_INT), ((16, 32), Features::MMA_AMPERE), ((16, 64), Features::MMA_AMPERE)];

const TF32: [(Shape, Features); 2] = [((16, 4), Features::MMA_AMPERE), ((16, 8), Features::MMA_AMPERE)];

/// LLVM 19 has an intrinsic for the first shape alone.
const F64: [(Shape, Features); 4] = [
    ((8, 4), Features::MMA_AMPERE),
    ((16, 4), Features::MMA_F64),
    ((16, 8), Features::MMA_F64),
    ((16, 16), Features::MMA_F64),
];

pub(super) const TEMPLATE: &str = include_str!("../../../ptx-templates/mma.ptx");

pub(super) fn rows() -> Vec<Row> {
    use DType::{Bf16, F16 as Half, F32, F64 as Double, S4, S8, S32, Tf32, U4, U8};
    let mut out = Vec::new();
    for (shape, needs) in F16 {
        out.extend([F32, Half].map(|d| row(shape, [d, Half, Half], needs, &format!("{d}.{d}"))));
    }
    for (shape, needs) in BF16 {
        out.push(row(shape, [F32, Bf16, Bf16], needs, "bf16"));
    }
    for (shape, needs) in TF32 {
        out.push(row(shape, [F32, Tf32, Tf32], needs, "tf32"));
    }
    for (shape, needs) in F64 {
        let plain = row(shape, [Double; 3], needs, "f64");
        let fields = vec![("shape", format!("m{}n8k{}", shape.0, shape.1)), ("types", "f64.f64.f64.f64".to_string())];
        let written = Emit::Template { text: TEMPLATE, fields, operands: &["A", "B", "D"] };
        out.push(if shape.0 == 8 { plain } else { Row { emit: Some(written), ..plain } });
    }
    for (shape, needs) in INT8 {
        for (a, b, types) in [(S8, S8, "s8"), (U8, U8, "u8"), (S8, U8, "s8.u8"), (U8, S8, "u8.s8")] {
            out.push(row(shape, [S32, a, b], needs, types));
        }
    }
    for (shape, needs) in INT4 {
        for (a, b, types) in [(S4, S4, "s4"), (U4, U4, "u4"), (S4, U4, "s4.u4"), (U4, S4, "u4.s4")] {
            out.push(Row { emulated_from: Some(WITHOUT_INT4), ..row(shape, [S32, a, b], needs, types) });
        }
    }
    out
}

/// The row of one shape for types of D, A and B; `types` as LLVM's intrinsic has them.
pub(super) fn row((m, k): Shape, [d, a, b]: [DType; 3], needs: Features, types: &str) -> Row {
    let shape = format!("m{m}n8k{k}");
    let wide = |t: DType, x: &str| if t == d { x.to_string() } else { format!("{d}({x})") };
    let (x, y) = (wide(a, "A[m, k]"), wide(b, "B[n, k]"));
    Row {
        name: format!("mma.{shape}.{d}.{a}.{b}"),
        about: "A warp multiplies fragments and adds to a fragment (PTX ISA, mma.sync).",
        level: Level::Warp,
        dims: vec![("m", m), ("n", 8), ("k", k)],
        operands: vec![
            Operand::new("D", Place::Registers(accumulator(m, d))),
            Operand::new("A", Place::Registers(words(m, k, a))),
            Operand::new("B", Place::Registers(words(8, k, b))),
        ],
        init: Init::None,
        meaning: format!(
            "program mma\ninput A {a}[{m}, {k}]; input B {b}[8, {k}]\nD: output D[m {m}, n 8] {d} = sum(k {k}) {x} * {y}"
        ),
        action: Action::MultiplyAdd,
        needs,
        emulated_from: None,
        // D, A, B and the C that D is added to: the same registers as D.
        emit: Some(Emit::Intrinsic {
            name: format!("llvm.nvvm.mma.{shape}.row.col.{types}"),
            operands: &["A", "B", "D"],
        }),
    }
}

/// A factor: rows over lanes, k in words.
fn words(rows: i64, k: i64, dtype: DType) -> Layout {
    let bits = i64::from(dtype.bits());
    let (word, halves) = ((32 / bits).max(1), rows / 8);
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 4),
        Digit::new(Index(0), 8, halves, Register, 1),
        Digit::new(Index(1), 1, word, Bit, bits),
        Digit::new(Index(1), word, 4, Lane, 1),
        Digit::new(Index(1), 4 * word, k / (4 * word), Register, halves),
    ])
}

/// The sum: two neighbours of a row in a lane.
fn accumulator(rows: i64, dtype: DType) -> Layout {
    let bits = i64::from(dtype.bits());
    let packed = bits == 16;
    let pair = if packed { (Bit, bits) } else { (Register, 1) };
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 4),
        Digit::new(Index(0), 8, rows / 8, Register, if packed { 1 } else { 2 }),
        Digit::new(Index(1), 1, 2, pair.0, pair.1),
        Digit::new(Index(1), 2, 4, Lane, 1),
    ])
}
