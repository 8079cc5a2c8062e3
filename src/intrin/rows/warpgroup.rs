//! wgmma: products of tiles in shared memory, by warpgroups.
//!
//! B comes from shared memory, A from there or from registers. k runs along the rows of tiles; across them it may run where elements
//! have 16 bits. Of tf32 the hardware reads the upper 19 bits. An instruction takes 32 bytes along k. The sum stays in registers, each warp holding 16 of its 64 rows: mma.sync's
//! accumulators next to each other (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", "... m64nNk32").

use crate::dtype::DType;
use crate::intrin::{Action, Emit, Init, Level, Operand, Place, Row};
use crate::ir::layout::Coordinate::{Bit, Index, Lane, Register, Warp};
use crate::ir::layout::{Digit, Layout};
use crate::target::Features;

const FLOATS: &str = include_str!("../../../ptx-templates/wgmma.ptx");
pub(super) const K_MAJOR: &str = include_str!("../../../ptx-templates/wgmma_k_major.ptx");
const INTEGERS: &str = include_str!("../../../ptx-templates/wgmma_integer.ptx");

/// Where A comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Shared,
    Registers,
}

impl Source {
    pub(super) const BOTH: [Source; 2] = [Source::Shared, Source::Registers];
}

pub(super) fn rows() -> Vec<Row> {
    use DType::{Bf16, F16, F32, S8, S32, Tf32, U8};
    let mut out = Vec::new();
    for source in Source::BOTH {
        for (d, ab) in [(F32, F16), (F16, F16), (F32, Bf16), (F32, Tf32)] {
            out.extend((1..=32).map(|n| row(source, 8 * n, [d, ab, ab])));
        }
        for (a, b) in [(S8, S8), (U8, U8), (U8, S8), (S8, U8)] {
            // Columns of integers: few, or a multiple of 16.
            let columns = [8, 24].into_iter().chain((1..=16).map(|n| 16 * n));
            out.extend(columns.map(|n| row(source, n, [S32, a, b])));
        }
    }
    out
}

pub(super) fn row(source: Source, n: i64, [d, a, b]: [DType; 3]) -> Row {
    let wide = |x: &str, t: DType| if t == d { x.to_string() } else { format!("{d}({x})") };
    let (x, y) = (wide("A[m, k]", a), wide("B[n, k]", b));
    let k = 256 / i64::from(a.bits());
    let tile = Place::Descriptor { across: a.bits() == 16 };
    let held = if source == Source::Shared { tile.clone() } else { Place::Registers(factor(a)) };
    let (word, about) = match source {
        Source::Shared => {
            ("wgmma", "A warpgroup multiplies tiles of shared memory into its registers (PTX ISA, wgmma.mma_async).")
        }
        Source::Registers => (
            "wgmma_rs",
            "A warpgroup multiplies its registers with a tile of shared memory (PTX ISA, wgmma.mma_async with A in registers).",
        ),
    };
    Row {
        name: format!("{word}.m64n{n}k{k}.{d}.{a}.{b}"),
        about,
        level: Level::Warpgroup,
        dims: vec![("m", 64), ("n", n), ("k", k)],
        operands: vec![
            Operand::new("D", Place::Registers(accumulator(n, d))),
            Operand::new("A", held),
            Operand::new("B", tile),
        ],
        init: Init::ScaleD,
        meaning: format!(
            "program wgmma\ninput A {a}[64, {k}]; input B {b}[{n}, {k}]\n\
             D: output D[m 64, n {n}] {d} = sum(k {k}) {x} * {y}"
        ),
        action: Action::MultiplyAdd,
        needs: if a == b { Features::WGMMA } else { Features::WGMMA | Features::WGMMA_MIXED },
        emulated_from: None,
        emit: Some(Emit::Product {
            text: match a {
                _ if d == DType::S32 => INTEGERS,
                DType::Tf32 => K_MAJOR,
                _ => FLOATS,
            },
            fields: vec![("n", n.to_string()), ("k", k.to_string()), ("types", format!("{d}.{a}.{b}"))],
        }),
    }
}

/// Two neighbours of a row in a lane; two 16-bit ones share a register.
fn accumulator(n: i64, dtype: DType) -> Layout {
    let packed = dtype.bits() == 16;
    let (pair, rows, columns) = if packed { ((Bit, 16), 1, 2) } else { ((Register, 1), 2, 4) };
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 4),
        Digit::new(Index(0), 8, 2, Register, rows),
        Digit::new(Index(0), 16, 4, Warp, 1),
        Digit::new(Index(1), 1, 2, pair.0, pair.1),
        Digit::new(Index(1), 2, 4, Lane, 1),
        Digit::new(Index(1), 8, n / 8, Register, columns),
    ])
}

/// A in registers: each warp holds mma.sync's fragment of its 16 rows.
fn factor(dtype: DType) -> Layout {
    let bits = i64::from(dtype.bits());
    let word = 32 / bits;
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 4),
        Digit::new(Index(0), 8, 2, Register, 1),
        Digit::new(Index(0), 16, 4, Warp, 1),
        Digit::new(Index(1), 1, word, Bit, bits),
        Digit::new(Index(1), word, 4, Lane, 1),
        Digit::new(Index(1), 4 * word, 2, Register, 2),
    ])
}
