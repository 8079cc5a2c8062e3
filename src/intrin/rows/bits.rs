//! Products of single bits: what two bits have in common is counted (`and`), or in how many places they differ (`xor`).
//!
//! The fragments are those of every type ([`super::multiply_add`]), 32 bits to a register. `and` is the product of numbers that are 0 or 1:
//! `sum(k) s32(A) * s32(B)`. From sm_90 on `xor` is emulated: the assembler writes two products with `and` for it.

use super::multiply_add::row as mma;
use super::warpgroup::{Source, row as warpgroup};
use super::wmma::{Geometry, Matrix, Tile, geometry, product as opaque_product};
use crate::dtype::DType::{B1, S32};
use crate::intrin::{Action, Emit, Row};
use crate::target::Features;

const WGMMA: &str = include_str!("../../../ptx-templates/wgmma_bits.ptx");

/// The compute capability from which on `xor` is emulated.
const WITHOUT_XOR: u32 = 90;

/// The shape of opaque fragments.
const OPAQUE: Geometry = geometry(8, 8, 128);

/// What is done with two bits before the ones are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    And,
    Xor,
}

impl Of {
    const BOTH: [Of; 2] = [Of::And, Of::Xor];

    /// In the PTX ISA.
    fn name(self) -> &'static str {
        match self {
            Of::And => "and",
            Of::Xor => "xor",
        }
    }

    /// The family of rows: the product of numbers has no word of its own.
    fn family(self, word: &str) -> String {
        match self {
            Of::And => word.to_string(),
            Of::Xor => format!("{word}_xor"),
        }
    }

    /// What mma.sync needs. Of `xor` sm_75 has 8 rows too, which LLVM 19 selects for sm_80 and later chips alone; wmma has them.
    fn needs(self) -> Features {
        match self {
            Of::And => Features::MMA_BITS_AND,
            Of::Xor => Features::MMA_AMPERE,
        }
    }

    /// The row with this operation.
    fn of(self, row: Row) -> Row {
        match self {
            Of::And => row,
            Of::Xor => Row {
                meaning: row.meaning.replace("s32(A[m, k]) * s32(B[n, k])", "s32(A[m, k] ^ B[n, k])"),
                action: Action::XorAdd,
                emulated_from: Some(WITHOUT_XOR),
                ..row
            },
        }
    }
}

pub(super) fn rows() -> Vec<Row> {
    let shapes = [(8, 128), (16, 128), (16, 256)];
    let mut out: Vec<Row> =
        Of::BOTH.into_iter().flat_map(|of| shapes.map(|shape| of.of(multiply_add(of, shape)))).collect();
    out.extend(opaque());
    out.extend([Source::Shared, Source::Registers].into_iter().flat_map(of_warpgroups));
    out
}

/// mma.sync.
fn multiply_add(of: Of, shape: (i64, i64)) -> Row {
    let row = mma(shape, [S32, B1, B1], of.needs(), "b1");
    Row {
        name: row.name.replacen("mma", &of.family("mma"), 1),
        about: match of {
            Of::And => "A warp multiplies fragments of bits and adds to a fragment (PTX ISA, mma.sync, .and.popc).",
            Of::Xor => {
                "A warp counts where fragments of bits differ and adds to a fragment (PTX ISA, mma.sync, .xor.popc)."
            }
        },
        emit: Some(Emit::Intrinsic {
            name: format!("llvm.nvvm.mma.{}.popc.m{}n8k{}.row.col.b1", of.name(), shape.0, shape.1),
            operands: &["A", "B", "D"],
        }),
        ..row
    }
}

/// wmma.
fn opaque() -> Vec<Row> {
    let needs = Features::MMA_INT;
    let sum = Tile { matrix: Matrix::Sum, geometry: OPAQUE, dtype: S32 };
    let mut out: Vec<Row> =
        [false, true].into_iter().flat_map(|store| ["row", "col"].map(|major| sum.copy(major, store, needs))).collect();
    for (matrix, major) in [(Matrix::A, "row"), (Matrix::B, "col")] {
        out.push(Tile { matrix, geometry: OPAQUE, dtype: B1 }.copy(major, false, needs));
    }
    for of in Of::BOTH {
        let needs = if of == Of::And { Features::MMA_BITS_AND } else { needs };
        let row = opaque_product(OPAQUE, [S32, B1], ["row", "col"], needs, "b1");
        let name = row.name.replacen("wmma", &of.family("wmma"), 1);
        let emit = Some(Emit::Intrinsic {
            name: format!("llvm.nvvm.wmma.m8n8k128.mma.{}.popc.row.col.b1", of.name()),
            operands: &["A", "B", "D"],
        });
        out.push(of.of(Row { name, emit, ..row }));
    }
    out
}

/// wgmma, which has `and` alone; its columns are those of 8-bit integers.
fn of_warpgroups(source: Source) -> impl Iterator<Item = Row> {
    let columns = [8, 24].into_iter().chain((1..=16).map(|n| 16 * n));
    columns.map(move |n| Row {
        emit: Some(Emit::Product { text: WGMMA, fields: vec![("n", n.to_string())] }),
        ..warpgroup(source, n, [S32, B1, B1])
    })
}
