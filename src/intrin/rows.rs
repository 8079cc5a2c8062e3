//! The rows. A new instruction is a row here; its meaning is checked against its facts by the tests of this room.

use super::{Init, Level, Operand, Row};
use crate::ir::Scope;

/// Every row, in the order of the reference table.
pub static ALL: &[Row] = &[
    Row {
        name: "wgmma.m64n256k16.f32.f16.f16",
        about: "A warpgroup multiplies tiles of shared memory into its registers (PTX ISA, wgmma.mma_async).",
        level: Level::Warpgroup,
        dims: &[("m", 64), ("n", 256), ("k", 16)],
        operands: &[
            Operand { name: "D", scope: Scope::Fragment, either_major: true },
            Operand { name: "A", scope: Scope::Shared, either_major: true },
            Operand { name: "B", scope: Scope::Shared, either_major: true },
        ],
        init: Init::ScaleD,
        meaning: "program wgmma\n\
                  input A f16[64, 16]; input B f16[256, 16]\n\
                  D: output D[m 64, n 256] f32 = sum(k 16) f32(A[m, k]) * f32(B[n, k])",
    },
    Row {
        name: "stmatrix.m16n16.f16",
        about: "A warp stores a fragment of 16 x 16 halves to shared memory (PTX ISA, stmatrix .x4).",
        level: Level::Warp,
        dims: &[("m", 16), ("n", 16)],
        operands: &[
            Operand { name: "D", scope: Scope::Shared, either_major: true },
            Operand { name: "S", scope: Scope::Fragment, either_major: true },
        ],
        init: Init::None,
        meaning: "program stmatrix\n\
                  input S f16[16, 16]\n\
                  D: output D[m 16, n 16] f16 = S[m, n]",
    },
];
