//! Instructions on 8-bit floats: wgmma, mma.sync, and ldmatrix for its fragments. They have the shapes and the fragments of 8-bit
//! integers; A and B may have different formats.

use super::{matrix_copy, multiply_add, warpgroup};
use crate::dtype::DType;
use crate::intrin::{Emit, Row};
use crate::target::Features;

const FORMATS: [DType; 2] = [DType::E4m3, DType::E5m2];

/// The compute capability from which on mma.sync converts 8-bit floats to f16 and runs two instructions on f16 (ptxas 12.9, 13.0).
const EMULATED_FROM: u32 = 90;

/// Formats of A and B.
fn mixes() -> impl Iterator<Item = [DType; 2]> {
    FORMATS.into_iter().flat_map(|a| FORMATS.map(|b| [a, b]))
}

/// mma.sync.
pub(super) fn multiply_add() -> Vec<Row> {
    let row = |[a, b]: [DType; 2]| Row {
        emulated_from: Some(EMULATED_FROM),
        emit: Some(Emit::Template {
            text: multiply_add::TEMPLATE,
            fields: vec![("shape", "m16n8k32".to_string()), ("types", format!("f32.{a}.{b}.f32"))],
            operands: &["A", "B", "D"],
        }),
        ..multiply_add::row((16, 32), [DType::F32, a, b], Features::MMA_FP8, "")
    };
    mixes().map(row).collect()
}

/// ldmatrix.
pub(super) fn matrix_copies() -> Vec<Row> {
    let loads = |dtype| {
        matrix_copy::loads(dtype)
            .into_iter()
            .chain(matrix_copy::transposed_bytes(dtype))
            .chain([matrix_copy::store(dtype)])
    };
    FORMATS.into_iter().flat_map(loads).collect()
}

/// wgmma.
pub(super) fn warpgroup() -> Vec<Row> {
    let row = |source, n: i64, [d, a, b]: [DType; 3]| Row {
        needs: Features::WGMMA,
        emit: Some(Emit::Product {
            text: warpgroup::K_MAJOR,
            fields: vec![("n", n.to_string()), ("k", "32".to_string()), ("types", format!("{d}.{a}.{b}"))],
        }),
        ..warpgroup::row(source, n, [d, a, b])
    };
    let mut out = Vec::new();
    for source in warpgroup::Source::BOTH {
        for d in [DType::F32, DType::F16] {
            out.extend(mixes().flat_map(|[a, b]| (1..=32).map(move |n| row(source, 8 * n, [d, a, b]))));
        }
    }
    out
}
