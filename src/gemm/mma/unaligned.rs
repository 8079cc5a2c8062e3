//! Tiles of the recipe by mma.sync whose operands have rows that are not aligned to 16 bytes, without a kernel that packs them.

use super::{Mma, Operand, OperandForm, Source};
use crate::target::Target;
use crate::te::GemmSpec;

/// Bytes of the narrowest copies by cp.async.
pub(super) const LEAST_PIECE: i64 = 4;
/// Registers of a thread for operands on their way at most: beside more, ptxas spills addresses. 12553x8x3744 TN of f16 spilled 8 bytes for sm_80
/// with 128 elements of A in flight.
const MOST_ON_THE_WAY: i64 = 96;
/// Bits of the shortest row of a stage through registers.
const LEAST_ROW: i64 = 512;
/// Registers of a thread with them at most, as they are counted: 5290x128x4655 NT of f16 to f32 spilled 80 bytes for sm_90a with 248, in 128 x 64.
const MOST_COUNTED: i64 = 240;
/// Registers of a thread, as they are counted, and for its copies of less than 16 bytes for a stage at most. 1408x1663x2794 NT of f16 to f32 spilled
/// 280 bytes for sm_86 with 264, in 128 x 128 of four warps.
const MOST_WITH_PIECES: i64 = 256;

impl Mma {
    /// The same tiles from operands that would be packed because their rows are not aligned to 16 bytes, in copies of 8 or 4 bytes; `None`
    /// where there are none.
    pub(super) fn in_pieces(self, spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let out = self.unpacked(spec, LEAST_PIECE).filter(|m| *m != self)?;
        let fits = out.registers(spec) + out.piece_registers(spec) <= MOST_WITH_PIECES;
        fits.then(|| out.with_early_start(spec, target))
    }

    /// The same tiles from operands that would be packed and that no asynchronous copy can read: threads load aligned words, shift them, and
    /// store them to shared memory. `None` where there are none. On an H100 26x4111x4704 TN of bf16 took 23.4 us element by element, 42.3 packed;
    /// 1000x1870x17 NT of f16 4.4 and 6.3 (no record was kept).
    pub(super) fn through_registers(self, spec: &GemmSpec, target: &Target) -> Option<Mma> {
        let out = self.unpacked(spec, 1)?;
        let narrow = |operand: &Operand| out.copies_pieces(spec, *operand) && operand.begins_between_words(spec);
        let any = Operand::BOTH.iter().any(narrow);
        // Half a row has half as many elements on their way; of bytes as many as a whole row of 16 bits.
        let rows = [out.bk, out.bk / 2].into_iter().filter(|bk| bk * self.form.bits(spec) >= LEAST_ROW);
        let mut all = rows.map(|bk| Mma { asynchronous: false, stages: 2, bk, ..out });
        let out = all.find(|m| m.on_the_way(spec) <= MOST_ON_THE_WAY && m.registers(spec) <= MOST_COUNTED)?;
        let out = Mma { min_blocks: out.told_blocks(spec, target), ..out };
        any.then(|| out.with_early_start(spec, target))
    }

    /// The same tiles from operands as they are, where their rows consist of pieces of so many bytes at least; `None` where copies have one
    /// way alone.
    fn unpacked(self, spec: &GemmSpec, piece: i64) -> Option<Mma> {
        let suits = |operand: Operand| {
            let packed = self.routes[operand as usize] == Source::Packed;
            packed && operand.runs_along_k(spec) == operand.along_k(spec) && operand.piece(spec) >= piece
        };
        let known = self.asynchronous && self.form == OperandForm::Stored && spec.a.bits() >= 8;
        let mut out = self;
        for operand in Operand::BOTH.into_iter().filter(|operand| suits(*operand)) {
            out.routes[operand as usize] = Source::Direct;
        }
        known.then_some(out)
    }

    /// Registers of a thread for its copies of less than 16 bytes for a stage: each has an address, and its own bound where its rows are terms.
    /// 7590x1792x4562 TN of f16 spilled 8 bytes for sm_86 with 16 copies of A, in 128 x 128 of four warps.
    fn piece_registers(&self, spec: &GemmSpec) -> i64 {
        let all = Operand::BOTH.into_iter().filter(|operand| self.copies_pieces(spec, *operand));
        let each = |o: Operand| if o.runs_along_k(spec) { 1 } else { 2 };
        all.map(|o| each(o) * self.tile_bytes(spec, o) / o.piece(spec) / self.threads()).sum()
    }

    /// Whether an operand comes in copies of less than 16 bytes, which one instruction makes, or a load and a store.
    pub(super) fn copies_by_bytes(&self, spec: &GemmSpec, operand: Operand) -> bool {
        self.copies_pieces(spec, operand) && !self.realigns(spec, operand)
    }

    /// Whether threads read an operand in aligned words, and shift them on the way to shared memory.
    pub(super) fn realigns(&self, spec: &GemmSpec, operand: Operand) -> bool {
        !self.asynchronous && self.copies_pieces(spec, operand) && operand.begins_between_words(spec)
    }

    /// Whether copies of less than 16 bytes bring an operand.
    pub(super) fn copies_pieces(&self, spec: &GemmSpec, operand: Operand) -> bool {
        self.routes[operand as usize] == Source::Direct && !operand.is_aligned(spec)
    }
}
