//! Products of 8-bit floats, which tensor cores add with fewer bits than those of wider types ([`crate::sim::float8`]).

use super::number::Number;
use crate::dtype::DType;
use crate::sim::float8;

/// A number of the model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Float8(f32);

impl Number for Float8 {
    fn operand(dtype: DType, bits: u32) -> Float8 {
        Float8(f32::operand(dtype, bits))
    }

    fn accumulator(dtype: DType, bits: u32) -> Float8 {
        Float8(f32::accumulator(dtype, bits))
    }

    fn bits(self, dtype: DType) -> u32 {
        self.0.bits(dtype)
    }

    fn plus(self, x: Float8, y: Float8) -> Float8 {
        Float8(float8::add(self.0, std::iter::once(x.0 * y.0)))
    }

    fn negated(self) -> Float8 {
        Float8(-self.0)
    }

    /// The products of an instruction at once.
    fn multiply(sums: &mut [Float8], a: &[Float8], b: &[Float8], columns: usize, depth: usize) {
        for (sums, a) in sums.chunks_exact_mut(columns).zip(a.chunks_exact(depth)) {
            for (column, sum) in sums.iter_mut().enumerate() {
                let products = a.iter().enumerate().map(|(k, x)| x.0 * b[k * columns + column].0);
                *sum = Float8(float8::add(sum.0, products));
            }
        }
    }
}
