//! ldmatrix and stmatrix: one, two or four matrices of 8 rows by 16 bytes between shared memory and a fragment.
//!
//! Lane i gives the address of row i % 8 of matrix i / 8. Register r of a lane holds, of matrix r, word t of row g (g = lane /
//! 4, t = lane % 4); transposed, the 16-bit elements in rows 2 t and 2 t + 1 of column g (PTX ISA, ldmatrix, stmatrix).
//!
//! The matrices of a tile are numbered down its rows first, so that m16n16 of 16-bit elements (m16n32 of 8-bit ones) is the
//! A fragment of mma.sync; as a B fragment its registers are those of two neighbours.

use crate::dtype::DType;
use crate::intrin::{Action, Emit, Init, Level, Operand, Place, Row};
use crate::ir::layout::Coordinate::{Bit, Index, Lane, Offset, Register};
use crate::ir::layout::{Digit, Layout};
use crate::target::Features;

/// Matrices of a tile: down and across.
const TILES: [(i64, i64); 6] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4)];

const STMATRIX: &str = include_str!("../../../ptx-templates/stmatrix.ptx");

pub(super) fn rows() -> Vec<Row> {
    use DType::{Bf16, F16, S8, U8};
    let mut out = Vec::new();
    for store in [false, true] {
        for dtype in [F16, Bf16, S8, U8] {
            for trans in [false, true] {
                // Transposed are elements of 16 bits, whatever they hold.
                if !trans || dtype.bits() == 16 {
                    out.extend(TILES.map(|tile| row(store, dtype, trans, tile)));
                }
            }
        }
    }
    out
}

fn row(store: bool, dtype: DType, trans: bool, (down, across): (i64, i64)) -> Row {
    let (m, n) = (8 * down, columns(dtype) * across);
    let word = if store { "stmatrix" } else { "ldmatrix" };
    let dot_trans = if trans { ".trans" } else { "" };
    let count = down * across;
    let shared = Place::Addresses(addresses(dtype, down, across));
    let registers = Place::Registers(if trans { transposed(dtype, down, across) } else { plain(dtype, down, across) });
    let (to, from) = if store { (shared, registers) } else { (registers, shared) };
    let loads = Emit::Intrinsic {
        name: format!("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{dot_trans}.b16"),
        operands: &["S"],
    };
    let stores = || Emit::Template {
        text: STMATRIX,
        fields: vec![("count", count.to_string()), ("trans", dot_trans.to_string())],
        operands: &["D", "S"],
    };
    Row {
        name: format!("{word}{dot_trans}.m{m}n{n}.{dtype}"),
        about: match store {
            true => "A warp stores a fragment to shared memory, matrix by matrix (PTX ISA, stmatrix).",
            false => "A warp loads a fragment from shared memory, matrix by matrix (PTX ISA, ldmatrix).",
        },
        level: Level::Warp,
        dims: vec![("m", m), ("n", n)],
        operands: vec![Operand::new("D", to), Operand::new("S", from)],
        init: Init::None,
        meaning: format!("program {word}\ninput S {dtype}[{m}, {n}]\nD: output D[m {m}, n {n}] {dtype} = S[m, n]"),
        action: Action::Copy,
        needs: if store { Features::STMATRIX } else { Features::LDMATRIX },
        emit: Some(if store { stores() } else { loads }),
    }
}

/// Elements of a row of a matrix.
fn columns(dtype: DType) -> i64 {
    128 / i64::from(dtype.bits())
}

/// Rows over lanes, words along a row.
fn plain(dtype: DType, down: i64, across: i64) -> Layout {
    let (bits, row) = (i64::from(dtype.bits()), columns(dtype));
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 4),
        Digit::new(Index(0), 8, down, Register, 1),
        Digit::new(Index(1), 1, row / 4, Bit, bits),
        Digit::new(Index(1), row / 4, 4, Lane, 1),
        Digit::new(Index(1), row, across, Register, down),
    ])
}

/// Columns over lanes, words down a column.
fn transposed(dtype: DType, down: i64, across: i64) -> Layout {
    let bits = i64::from(dtype.bits());
    Layout::new([
        Digit::new(Index(0), 1, 2, Bit, bits),
        Digit::new(Index(0), 2, 4, Lane, 1),
        Digit::new(Index(0), 8, down, Register, 1),
        Digit::new(Index(1), 1, 8, Lane, 4),
        Digit::new(Index(1), 8, across, Register, down),
    ])
}

/// Which lane's address an element lies behind, and how far.
fn addresses(dtype: DType, down: i64, across: i64) -> Layout {
    let (bits, row) = (i64::from(dtype.bits()), columns(dtype));
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 1),
        Digit::new(Index(0), 8, down, Lane, 8),
        Digit::new(Index(1), 1, row, Offset, bits),
        Digit::new(Index(1), row, across, Lane, 8 * down),
    ])
}
