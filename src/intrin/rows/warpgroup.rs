//! wgmma: products of tiles in shared memory, by warpgroups.

use crate::intrin::{Action, Init, Level, Operand, Place, Row};
use crate::ir::layout::Coordinate::{Index, Lane, Register, Warp};
use crate::ir::layout::{Digit, Layout};
use crate::target::Features;

/// The one shape so far. It has no emission yet, so `lower` refuses it.
pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        name: "wgmma.m64n256k16.f32.f16.f16".into(),
        about: "A warpgroup multiplies tiles of shared memory into its registers (PTX ISA, wgmma.mma_async).",
        level: Level::Warpgroup,
        dims: vec![("m", 64), ("n", 256), ("k", 16)],
        operands: vec![
            Operand::new("D", Place::Registers(accumulator(256))),
            Operand::new("A", Place::Descriptor),
            Operand::new("B", Place::Descriptor),
        ],
        init: Init::ScaleD,
        meaning: "program wgmma\n\
                  input A f16[64, 16]; input B f16[256, 16]\n\
                  D: output D[m 64, n 256] f32 = sum(k 16) f32(A[m, k]) * f32(B[n, k])"
            .into(),
        action: Action::MultiplyAdd,
        needs: Features::WGMMA,
        emulated_from: None,
        emit: None,
    }]
}

/// Each warp holds 16 rows as mma.sync's m16n8 accumulators side by side (PTX ISA, "Register Fragments for
/// wgmma.mma_async.m64nNk16", D in f32).
fn accumulator(n: i64) -> Layout {
    Layout::new([
        Digit::new(Index(0), 1, 8, Lane, 4),
        Digit::new(Index(0), 8, 2, Register, 2),
        Digit::new(Index(0), 16, 4, Warp, 1),
        Digit::new(Index(1), 1, 2, Register, 1),
        Digit::new(Index(1), 2, 4, Lane, 1),
        Digit::new(Index(1), 8, n / 8, Register, 4),
    ])
}
