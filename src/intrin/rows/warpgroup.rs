//! wgmma: products of tiles in shared memory, by warpgroups.
//!
//! B comes from shared memory, A from there or from registers, and k runs along rows of either or across them. The sum stays in
//! registers, each warp holding 16 of its 64 rows: mma.sync's accumulators side by side (PTX ISA, "Register Fragments for
//! wgmma.mma_async.m64nNk16").

use crate::dtype::DType;
use crate::intrin::{Action, Emit, Init, Level, Operand, Place, Row};
use crate::ir::layout::Coordinate::{Bit, Index, Lane, Register, Warp};
use crate::ir::layout::{Digit, Layout};
use crate::target::Features;

const WGMMA: &str = include_str!("../../../ptx-templates/wgmma.ptx");

/// Where A comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Shared,
    Registers,
}

pub(super) fn rows() -> Vec<Row> {
    use DType::{Bf16, F16, F32};
    let mut out = Vec::new();
    for source in [Source::Shared, Source::Registers] {
        for (d, ab) in [(F32, F16), (F16, F16), (F32, Bf16)] {
            out.extend((1..=32).map(|n| row(source, 8 * n, d, ab)));
        }
    }
    out
}

fn row(source: Source, n: i64, d: DType, ab: DType) -> Row {
    let wide = |x: &str| if ab == d { x.to_string() } else { format!("{d}({x})") };
    let (x, y) = (wide("A[m, k]"), wide("B[n, k]"));
    let a = if source == Source::Shared { Place::Descriptor } else { Place::Registers(factor(ab)) };
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
        name: format!("{word}.m64n{n}k16.{d}.{ab}.{ab}"),
        about,
        level: Level::Warpgroup,
        dims: vec![("m", 64), ("n", n), ("k", 16)],
        operands: vec![
            Operand::new("D", Place::Registers(accumulator(n, d))),
            Operand::new("A", a),
            Operand::new("B", Place::Descriptor),
        ],
        init: Init::ScaleD,
        meaning: format!(
            "program wgmma\ninput A {ab}[64, 16]; input B {ab}[{n}, 16]\n\
             D: output D[m 64, n {n}] {d} = sum(k 16) {x} * {y}"
        ),
        action: Action::MultiplyAdd,
        needs: Features::WGMMA,
        emulated_from: None,
        emit: Some(Emit::Product {
            text: WGMMA,
            fields: vec![("n", n.to_string()), ("types", format!("{d}.{ab}.{ab}"))],
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
