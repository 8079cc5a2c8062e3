//! Fragments that lanes load element by element: ldmatrix exchanges 16 bits, and has no transposed form for wider elements.
//!
//! Lane 4 g + t reads the element in row g and at k = t of a tile in shared memory. Rows of a multiple of 128 bytes with 32 bytes more
//! between them let the lanes that a cycle serves, 32 of 4 bytes or 16 of 8, lie in different banks, whichever way the rows run.

use super::{Mma, Operand, up};
use crate::ir::Scope;
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// Bytes between the rows of a tile beyond whole lines of banks, and such a line.
const PAD: i64 = 32;
const BANKS: i64 = 128;

impl Mma {
    /// Whether ldmatrix loads an operand's fragments.
    pub(super) fn loads_matrices(&self, spec: &GemmSpec, operand: Operand) -> bool {
        let bits = self.form.bits(spec);
        bits <= 16 || bits == 32 && operand.runs_along_k(spec)
    }

    /// Whether a tile of each operand is a number of copies for each thread, and the rows that ldmatrix loads from are whole panels, as banks and
    /// swizzles have powers of two. So have rows across k that come in pieces: each piece would divide by the number of columns (9704x507x128 TN of
    /// tf32 takes 25.7 us on an H200 in 96 x 96, and 16.6 in 128 x 128).
    pub(super) fn divides_stages(&self, spec: &GemmSpec) -> bool {
        Operand::BOTH.into_iter().all(|operand| {
            let (side, bits) = (self.block[operand as usize], self.form.bits(spec));
            let row = self.row(spec, operand) * bits / 8;
            let panels = !self.loads_matrices(spec, operand) || row % BANKS == 0 || row.count_ones() == 1;
            let in_pieces = self.copies_by_bytes(spec, operand) && !operand.runs_along_k(spec);
            let copies = side * self.bk * bits / (8 * self.copied_bytes(spec, operand));
            let [fewer, more] = [copies.min(self.threads()), copies.max(self.threads())];
            more % fewer.max(1) == 0 && panels && (side.count_ones() == 1 || !in_pieces)
        })
    }

    /// Bytes of an operand that a thread copies at once to shared memory.
    pub(super) fn copied_bytes(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        if self.copies_by_bytes(spec, operand) { operand.piece(spec) } else { 16 }
    }

    /// Elements of a row of an operand's tile in shared memory.
    pub(super) fn row(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        if operand.runs_along_k(spec) && !self.transposes(spec, operand) {
            self.bk
        } else {
            self.block[operand as usize]
        }
    }

    /// Bytes of an operand's tile in shared memory.
    pub(super) fn tile_bytes(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        let row = self.row(spec, operand) * self.form.bits(spec) / 8;
        let rows = self.block[operand as usize] * self.bk / self.row(spec, operand);
        let pitch = if self.loads_matrices(spec, operand) { row } else { up(row - PAD, BANKS) * BANKS + PAD };
        rows * pitch
    }

    /// Lets the rows of a tile lie in different banks.
    pub(super) fn pad_rows<'s>(&self, s: &'s mut Steps, spec: &GemmSpec, tile: &str) -> &'s mut Steps {
        let elements = |bytes: i64| 8 * bytes / self.form.bits(spec);
        s.storage_align(tile, 0, elements(BANKS), elements(PAD))
    }

    /// What a warp has of an operand in registers, a tile of the instruction at a time.
    pub(super) fn fragment_of_elements(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand, accumulators: &str) {
        let ([tile, fragment], rows) = match operand {
            Operand::A => (["A_s", "A_f"], self.shape[0]),
            Operand::B => (["B_s", "B_f"], 8),
        };
        let [f0, f1, fm, fi, fk, fq] =
            [["f0", "f1", "fm", "fi", "fk", "fq"], ["g0", "g1", "gm", "gi", "gk", "gq"]][operand as usize];
        s.cache_read(accumulators, tile, Scope::Fragment, fragment).compute_at(fragment, "kk").made([f0, f1]);
        let (along, across) = if operand.runs_along_k(spec) { (f1, f0) } else { (f0, f1) };
        s.split(across, [rows], [fm, fi]).split(along, [self.shape[1]], [fq, fk]).reorder([fq, fm, fi, fk]);
    }
}
