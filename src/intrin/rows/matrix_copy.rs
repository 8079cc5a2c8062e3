//! ldmatrix and stmatrix: one, two or four matrices of 8 rows by 16 bytes between shared memory and a fragment; movmatrix:
//! one from fragment to fragment, its rows and columns exchanged.
//!
//! Lane i gives the address of row i % 8 of matrix i / 8. Register r of a lane holds, of matrix r, word t of row g (g = lane /
//! 4, t = lane % 4); transposed, the 16 bits in rows 2 t and 2 t + 1 of column g, which are pairs where elements have 8 (PTX
//! ISA, ldmatrix, stmatrix).
//!
//! The matrices of a tile are numbered down its columns first, so that m16n16 of 16-bit elements (m16n32 of 8-bit, m16n64
//! of 4-bit ones, m16n256 of single bits) is the A fragment of mma.sync. Those of a `.row` form are numbered along its rows first: a B fragment of
//! two neighbours whose k runs along rows, or an A fragment read with rows and columns exchanged. Either way registers that
//! one instruction takes together then follow each other, as they must in the machine's code.

use crate::dtype::DType;
use crate::intrin::{Action, Emit, Init, Level, Operand, Place, Row};
use crate::ir::layout::Coordinate::{Bit, Index, Lane, Offset, Register, Warp};
use crate::ir::layout::{Coordinate, Digit, Layout};
use crate::target::Features;

/// Matrices of a tile: down and across.
const TILES: [(i64, i64); 6] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4)];

/// In which order the matrices of a tile are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Down a column of matrices, then the next column.
    Columns,
    /// Along a row of matrices, then the next row.
    Rows,
}

impl Order {
    /// The numbers by which a matrix is ahead of its neighbour above, and of the one to its left.
    fn steps(self, down: i64, across: i64) -> (i64, i64) {
        match self {
            Order::Columns => (1, down),
            Order::Rows => (across, 1),
        }
    }
}

const STMATRIX: &str = include_str!("../../../ptx-templates/stmatrix.ptx");
const MOVMATRIX: &str = include_str!("../../../ptx-templates/movmatrix.ptx");

pub(super) fn rows() -> Vec<Row> {
    use DType::{B1, Bf16, F16, F32, S4, S8, Tf32, U4, U8};
    let mut out = Vec::new();
    for store in [false, true] {
        for dtype in [F16, Bf16, S8, U8, S4, U4, B1] {
            for trans in [false, true] {
                out.extend(TILES.map(|tile| row(store, dtype, trans, Order::Columns, tile)));
                out.push(row(store, dtype, trans, Order::Rows, (2, 2)));
            }
        }
    }
    // No matrix of 32-bit elements is transposed: `trans` exchanges 16 bits. stmatrix would store words of one row from four lanes,
    // and accumulators of f32 lie in pairs.
    for dtype in [F32, Tf32] {
        out.extend(TILES.map(|tile| row(false, dtype, false, Order::Columns, tile)));
        out.push(row(false, dtype, false, Order::Rows, (2, 2)));
    }
    out.extend([F16, Bf16].map(exchange));
    out.extend([S8, U8].into_iter().flat_map(transposed_bytes));
    out
}

/// Loads of matrices of a type.
pub(super) fn loads(dtype: DType) -> Vec<Row> {
    let all = [false, true].into_iter().flat_map(|trans| {
        let columns = TILES.map(|tile| row(false, dtype, trans, Order::Columns, tile));
        columns.into_iter().chain([row(false, dtype, trans, Order::Rows, (2, 2))])
    });
    all.collect()
}

/// The store of two matrices down and two across, of a type.
pub(super) fn store(dtype: DType) -> Row {
    row(true, dtype, false, Order::Columns, (2, 2))
}

/// Loads of 16 columns of bytes for a warp, transposed, with the rows of k that a lane holds in a register.
///
/// In *quads* matrices 2 h and 2 h + 1 take the rows of half h of k in turn, two by two, so that lane 4 g + t gets rows 4 t to 4 t + 3 of columns 2 g and
/// 2 g + 1: what it holds of an operand of mma.sync and wgmma, once its bytes are in order. Each warp of a warpgroup loads its own 16 columns.
///
/// The other form for a warpgroup has eight rows of k in each matrix, as that for a warp has.
pub(super) fn transposed_bytes(dtype: DType) -> Vec<Row> {
    const QUADS: [(i64, i64, Coordinate, i64); 2] = [(2, 2, Register, 1), (4, 4, Lane, 1)];
    const PLAIN: [(i64, i64, Coordinate, i64); 2] = [(2, 4, Lane, 1), (8, 2, Register, 1)];
    let forms = [("quads.", Level::Warp, QUADS), ("quads.", Level::Warpgroup, QUADS), ("", Level::Warpgroup, PLAIN)];
    forms.map(|(word, level, rows)| columns_of_bytes(dtype, word, level, rows)).into()
}

/// One of them, of so many rows of k as digits: those between the first of a pair and the halves.
fn columns_of_bytes(dtype: DType, word: &str, level: Level, rows: [(i64, i64, Coordinate, i64); 2]) -> Row {
    let plain = row(false, dtype, true, Order::Columns, (4, 1));
    let (about, warps) = match (level, word) {
        (Level::Warpgroup, "") => {
            ("Each warp of a warpgroup loads a fragment from shared memory, matrix by matrix (PTX ISA, ldmatrix).", 4)
        }
        (Level::Warpgroup, _) => (
            "Each warp of a warpgroup loads a fragment from shared memory, four matrices of bytes in turn (PTX ISA, ldmatrix).",
            4,
        ),
        _ => ("A warp loads a fragment from shared memory, four matrices of bytes in turn (PTX ISA, ldmatrix).", 1),
    };
    let n = 16 * warps;
    let of_warps = Digit::new(Index(1), 16, warps, Warp, 1);
    let in_columns = [Digit::new(Index(1), 1, 2, Bit, 8), Digit::new(Index(1), 2, 8, Lane, 4), of_warps];
    let behind = [Digit::new(Index(1), 1, 16, Offset, 8), of_warps];
    // The two rows of a pair, what is between, and the halves. A lane gives the address of a row of a matrix: of the pairs that it holds itself,
    // and of the matrix whose register they come to.
    let halves = |to: Coordinate, stride: i64| Digit::new(Index(0), 16, 2, to, stride);
    let held = rows.map(|(at, extent, to, stride)| Digit::new(Index(0), at, extent, to, stride));
    let named = rows.map(|(at, extent, to, _)| Digit::new(Index(0), at, extent, Lane, if to == Lane { 2 } else { 8 }));
    let registers =
        [Digit::new(Index(0), 1, 2, Bit, 16), halves(Register, 2)].into_iter().chain(held).chain(in_columns);
    let addresses = [Digit::new(Index(0), 1, 2, Lane, 1), halves(Lane, 16)].into_iter().chain(named).chain(behind);
    Row {
        name: format!("ldmatrix.trans.{word}m32n{n}.{dtype}"),
        about,
        level,
        dims: vec![("m", 32), ("n", n)],
        operands: vec![
            Operand::new("D", Place::Registers(Layout::new(registers))),
            Operand::new("S", Place::Addresses(Layout::new(addresses))),
        ],
        meaning: format!("program ldmatrix\ninput S {dtype}[32, {n}]\nD: output D[m 32, n {n}] {dtype} = S[m, n]"),
        ..plain
    }
}

/// What a load with `trans` does on the way, from fragment to fragment.
fn exchange(dtype: DType) -> Row {
    let tile = Tile { down: 1, across: 1, steps: (1, 1) };
    Row {
        name: format!("movmatrix.trans.m8n8.{dtype}"),
        about: "A warp transposes a matrix that its lanes hold (PTX ISA, movmatrix).",
        level: Level::Warp,
        dims: vec![("m", 8), ("n", 8)],
        operands: vec![
            Operand::new("D", Place::Registers(transposed(dtype, tile))),
            Operand::new("S", Place::Registers(plain(dtype, tile))),
        ],
        init: Init::None,
        meaning: format!("program movmatrix\ninput S {dtype}[8, 8]\nD: output D[m 8, n 8] {dtype} = S[m, n]"),
        action: Action::Copy,
        needs: Features::MOVMATRIX,
        emulated_from: None,
        emit: Some(Emit::Template { text: MOVMATRIX, fields: Vec::new(), operands: &["S"] }),
    }
}

fn row(store: bool, dtype: DType, trans: bool, order: Order, (down, across): (i64, i64)) -> Row {
    let (m, n) = (8 * down, columns(dtype) * across);
    let word = if store { "stmatrix" } else { "ldmatrix" };
    let dot_trans = if trans { ".trans" } else { "" };
    let count = down * across;
    let dot_row = if order == Order::Rows { ".row" } else { "" };
    let tile = Tile { down, across, steps: order.steps(down, across) };
    let shared = Place::Addresses(addresses(dtype, tile));
    let registers = Place::Registers(if trans { transposed(dtype, tile) } else { plain(dtype, tile) });
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
        name: format!("{word}{dot_trans}{dot_row}.m{m}n{n}.{dtype}"),
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
        emulated_from: None,
        emit: Some(if store { stores() } else { loads }),
    }
}

/// Matrices of a tile, and how they are numbered.
#[derive(Clone, Copy)]
struct Tile {
    down: i64,
    across: i64,
    steps: (i64, i64),
}

/// Elements of a row of a matrix.
fn columns(dtype: DType) -> i64 {
    128 / i64::from(dtype.bits())
}

/// Rows over lanes, words along a row.
fn plain(dtype: DType, tile: Tile) -> Layout {
    let (bits, row) = (i64::from(dtype.bits()), columns(dtype));
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 4),
        Digit::new(Index(0), 8, tile.down, Register, tile.steps.0),
        Digit::new(Index(1), 1, row / 4, Bit, bits),
        Digit::new(Index(1), row / 4, 4, Lane, 1),
        Digit::new(Index(1), row, tile.across, Register, tile.steps.1),
    ])
}

/// Columns of 16 bits over lanes, words down a column.
fn transposed(dtype: DType, tile: Tile) -> Layout {
    let (bits, row) = (i64::from(dtype.bits()), columns(dtype));
    Layout::new([
        Digit::new(Index(0), 1, 2, Bit, 16),
        Digit::new(Index(0), 2, 4, Lane, 1),
        Digit::new(Index(0), 8, tile.down, Register, tile.steps.0),
        Digit::new(Index(1), 1, 16 / bits, Bit, bits),
        Digit::new(Index(1), 16 / bits, 8, Lane, 4),
        Digit::new(Index(1), row, tile.across, Register, tile.steps.1),
    ])
}

/// Which lane's address an element follows, and how far.
fn addresses(dtype: DType, tile: Tile) -> Layout {
    let (bits, row) = (i64::from(dtype.bits()), columns(dtype));
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 1),
        Digit::new(Index(0), 8, tile.down, Lane, 8 * tile.steps.0),
        Digit::new(Index(1), 1, row, Offset, bits),
        Digit::new(Index(1), row, tile.across, Lane, 8 * tile.steps.1),
    ])
}
