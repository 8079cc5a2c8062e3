//! Scales of blocks of a matrix product: one for each row of A and [`SCALE_BLOCK`] of k, and one for each square of B.

use super::build::{GemmSpec, SCALE_BLOCK};
use super::program::Program;
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, BufferId, Expr, Index, Var};

/// The two inputs.
pub(super) struct BlockScales {
    a: BufferId,
    b: BufferId,
}

impl GemmSpec {
    /// The extents of the scales of blocks: of those of A, and of those of B.
    pub fn scale_shapes(&self) -> [Vec<i64>; 2] {
        let blocks = |extent: i64| extent / SCALE_BLOCK + i64::from(extent % SCALE_BLOCK != 0);
        let (m, n, k) = (self.m, blocks(self.n), blocks(self.k));
        [[k, m], [n, k]].map(|dims| self.batch.into_iter().chain(dims).collect())
    }
}

impl BlockScales {
    /// The word in builder lines.
    pub const NAME: &'static str = "block_scales";
    /// The names of the inputs.
    pub const INPUTS: [&'static str; 2] = ["a_scales", "b_scales"];

    /// Refuses scales of terms that are no floats.
    pub fn check(spec: &GemmSpec) -> Result<()> {
        if !spec.block_scales || spec.acc.is_float() {
            return Ok(());
        }
        let message =
            format!("block_scales are for floating-point accumulators, but the accumulators are of type {}", spec.acc);
        let error = Error::input(Code::TeEpilogue, message);
        Err(error.help("row_scales or column_scales: they multiply the sums of integers in f32"))
    }

    /// Declares the inputs.
    pub fn of(p: &mut Program, spec: &GemmSpec) -> Result<BlockScales> {
        let ([a, b], [of_a, of_b]) = (BlockScales::INPUTS, spec.scale_shapes());
        Ok(BlockScales { a: p.input(a, spec.acc, &of_a)?, b: p.input(b, spec.acc, &of_b)? })
    }

    /// A term at i, j and k times its scales.
    pub fn of_term(&self, term: Expr, lead: &[Var], [i, j, k]: [Var; 3]) -> Expr {
        let lead = || lead.iter().map(|v| Index::Var(*v));
        let block = |v: Var| Index::Var(v).floordiv(SCALE_BLOCK);
        let a = Expr::load(self.a, lead().chain([block(k), Index::Var(i)]).collect());
        let b = Expr::load(self.b, lead().chain([block(j), block(k)]).collect());
        Expr::bin(BinOp::Mul, Expr::bin(BinOp::Mul, term, a), b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::te::{Layout, gemm, parse, print};

    #[test]
    fn each_term_is_scaled() {
        let spec =
            GemmSpec::of(5, 300, 256, DType::F32, Layout::NT).types(DType::E4m3, DType::E4m3, DType::F32, DType::F16);
        let text = print(&gemm(&spec.block_scales(true)).unwrap());
        for line in [
            "input a_scales f32[2, 5]",
            "input b_scales f32[3, 2]",
            "sum(k 256) f32(A[i, k])*f32(B[j, k])*a_scales[k // 128, i]*b_scales[j // 128, k // 128]",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(parse("gemm 5x300x256 e4m3>f32>f16 NT block_scales").unwrap(), parse(&text).unwrap());
        let batch = print(&gemm(&spec.batch(Some(3)).block_scales(true)).unwrap());
        assert!(batch.contains("input a_scales f32[3, 2, 5]") && batch.contains("a_scales[b, k // 128, i]"), "{batch}");
    }

    #[test]
    fn integers_have_none() {
        let error = parse("gemm 8x8x8 s8>s32>s32 NT block_scales").unwrap_err();
        assert_eq!(error.code(), Code::TeEpilogue);
        assert_eq!(
            error.message(),
            "block_scales are for floating-point accumulators, but the accumulators are of type s32"
        );
        let twice = parse("gemm 8x8x8 f32 NT block_scales relu block_scales").unwrap_err();
        assert!(twice.message().contains("block_scales is given twice"), "{twice}");
    }
}
