//! Tiles of rows of A that begin alike in the cache's lines.
//!
//! Where a row of A is no multiple of a line long, the rows of a box begin anywhere in lines, and each is fetched as parts of
//! two. Rows whose numbers are alike modulo a period begin alike: a block takes rows of one residue, and its sums begin so much
//! earlier that every slot begins where a line does. What is before and behind the rows is zero in both factors.
//!
//! The rows of C lie apart as those of A do. Of B there is no such tile: its rows are columns of C, and a bulk store takes
//! neighbours along a row alone.

use super::{LINE, Source, Wgmma, along_k, bytes, converts, up};
use crate::ir::simplify::gcd;
use crate::te::GemmSpec;
use std::fmt::Write as _;

impl Wgmma {
    /// The same tiles with rows of one residue; `None` where rows of A do not run along k, begin with lines or between what
    /// copies can begin at, or come in no whole number of periods, where columns take the part of rows, and where C does not
    /// leave by bulk stores.
    pub fn by_residues(&self, spec: &GemmSpec) -> Option<Wgmma> {
        let row = spec.k * bytes(spec.a);
        let residues = LINE / gcd(row, LINE);
        let apart = along_k(spec)[0] && row % 16 == 0 && residues > 1 && spec.m % residues == 0;
        let leaves = converts(spec) && self.bulk_store && spec.batch.is_none();
        if !apart || !leaves || self.turned || self.routes != [Source::Direct; 2] {
            return None;
        }
        // The blocks of a cluster share tiles of B, and so the shift: they are of one residue.
        let tiles = up(spec.m / residues, self.block[0]);
        let [rows, columns] = self.cluster;
        let cluster = [if tiles % rows == 0 { rows } else { 1 }, columns];
        Some(Wgmma { residues, cluster, ..*self })
    }

    /// Whether it has such tiles.
    pub(super) fn is_skewed(&self) -> bool {
        self.residues > 1
    }

    /// Slots' worth of terms of a sum: where they begin earlier, the most that a block has.
    pub(super) fn slots_of_k(&self, spec: &GemmSpec) -> i64 {
        let line = LINE / bytes(spec.a);
        let earlier = if self.is_skewed() { line - gcd(spec.k, line) } else { 0 };
        up(spec.k + earlier, self.bk)
    }

    /// Residues and shifts, with zeros around everything.
    pub(super) fn skewed(&self, spec: &GemmSpec) -> String {
        let (by, r) = ([self.whole(0), self.whole(1)], self.residues);
        let line = LINE / bytes(spec.a);
        let mut out = format!(
            "pad mma i={} j={} -> A_pad B_pad acc_pad; compute_inline acc_pad\n\
             pad out out_i={} out_j={} -> acc_out C_pad; compute_inline acc_out\n",
            by[0], by[1], by[0], by[1]
        );
        for (block, row) in [("A_pad", "A_pad_0"), ("out", "out_i"), ("C_pad", "C_pad_0")] {
            let _ = writeln!(out, "transform_block_layout {block} [{row}] -> [{row} % {r}, {row} // {r}]");
        }
        for (buffer, column) in [("A_pad", "k"), ("acc_pad", "j"), ("C_pad", "j")] {
            let _ = writeln!(out, "transform_layout {buffer} [i, {column}] -> [i % {r}, i // {r}, {column}]");
        }
        let _ = writeln!(
            out,
            "transform_block_layout mma [i] -> [i % {r}, i // {r}] -> s q\n\
             skew mma k [s] -> [s * {} % {line}] multiple={} -> A_skew B_skew",
            spec.k % line,
            self.bk
        );
        out
    }
}
