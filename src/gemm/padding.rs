//! Tiles that do not divide a GEMM: which operands are read beyond their ends, and the steps that pad them with zeros.

use super::operand::{Operand, up};
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// The sizes m, n and k of a GEMM, and the multiples that tiles pad them to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    sizes: [i64; 3],
    multiples: [i64; 3],
    /// The number of rows is known at launch alone, so that tiles divide it by chance alone.
    open_rows: bool,
}

impl Padding {
    /// Padding to tiles of so many rows and columns of C, and to multiples of a k extent.
    pub fn new(spec: &GemmSpec, [rows, columns]: [i64; 2], k: i64) -> Padding {
        Padding { sizes: [spec.m, spec.n, spec.k], multiples: [rows, columns, k], open_rows: spec.least_m.is_some() }
    }

    fn pads(&self, size: usize) -> bool {
        self.sizes[size] % self.multiples[size] != 0 || size == 0 && self.open_rows
    }

    /// Whether an operand is read beyond its ends.
    pub fn pads_operand(&self, operand: Operand) -> bool {
        self.pads(operand as usize) || self.pads(2)
    }

    /// Whether the tiles reach beyond the last row of C.
    pub fn pads_rows(&self) -> bool {
        self.pads(0)
    }

    /// Whether the tiles reach beyond C.
    pub fn pads_result(&self) -> bool {
        self.pads(0) || self.pads(1)
    }

    fn padded(&self, size: usize) -> i64 {
        up(self.sizes[size], self.multiples[size]) * self.multiples[size]
    }

    /// Extents of an operand with its zeros: along k, and along its rows or columns of C.
    pub fn operand(&self, operand: Operand) -> [i64; 2] {
        [self.padded(2), self.padded(operand as usize)]
    }

    /// Extents of C with what the tiles add: rows and columns.
    pub fn result(&self) -> [i64; 2] {
        [self.padded(0), self.padded(1)]
    }

    fn uneven<'a>(&'a self, loops: &'a [&'a str]) -> Vec<(&'a str, i64)> {
        let all = loops.iter().zip(self.multiples).enumerate();
        all.filter(|(size, _)| self.pads(*size)).map(|(_, (name, multiple))| (*name, multiple)).collect()
    }

    /// Pads the block that has the accumulators: operands `A_pad` and `B_pad` with zeros, and its output.
    pub fn pad(&self, s: &mut Steps, block: &str) {
        let uneven = self.uneven(&["i", "j", "k"]);
        if !uneven.is_empty() {
            s.pad(block, uneven);
        }
    }

    /// Pads the block that converts accumulators to C, so that whole tiles of C are staged.
    pub fn pad_conversion(&self, s: &mut Steps) {
        s.pad("out", self.uneven(&["out_i", "out_j"])).made(["acc_out", "C_pad"]).compute_inline("acc_out");
    }

    /// The buffer that a tile of C is stored to.
    pub fn written(&self) -> &'static str {
        if self.pads_result() { "C_pad" } else { "C" }
    }

    /// The buffer of accumulators that are converted.
    pub fn converted(&self) -> &'static str {
        if self.pads_result() { "acc_pad" } else { "acc" }
    }

    /// Leaves out what is beyond C, where the tiles reach beyond it.
    pub fn crop(&self, s: &mut Steps) {
        if self.pads_result() {
            s.reverse_compute_inline("C_pad");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::te::Layout;

    #[test]
    fn what_tiles_do_not_divide_is_padded() {
        let padding = |m, n, k| Padding::new(&GemmSpec::of(m, n, k, DType::F16, Layout::NN), [128, 64], 32);
        let steps = |padding: &Padding| {
            let mut s = Steps::new();
            padding.pad(&mut s, "mma");
            s.to_string()
        };
        let even = padding(256, 64, 32);
        assert!(
            !even.pads_result() && Operand::BOTH.into_iter().all(|o| !even.pads_operand(o)) && steps(&even).is_empty()
        );
        let ragged = padding(100, 64, 33);
        assert_eq!(steps(&ragged), "pad mma i=128 k=32\n");
        assert_eq!(
            [ragged.operand(Operand::A), ragged.operand(Operand::B), ragged.result()],
            [[64, 128], [64, 64], [128, 64]]
        );
        let columns = padding(128, 65, 32);
        assert!(columns.pads_operand(Operand::B) && !columns.pads_operand(Operand::A) && columns.pads_result());
    }
}
