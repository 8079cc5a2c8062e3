//! How much arithmetic a program asks for.

use crate::ir::{BinOp, Block, Expr, Func, Index, IndexOp, IterKind, Stmt, Var, visit};

/// Operations on data that a program as te writes it asks for: each on one or two operands counts as one, so a multiply-add as
/// two. Conversions, comparisons and choices are none. A factor that several terms of a sum share, such as a scale for each 128 terms, may
/// multiply their sum: it counts once for them. Dynamic sizes count with their largest values.
pub fn operations(func: &Func) -> f64 {
    visit::blocks(&func.body).into_iter().map(|block| of_block(func, block)).sum()
}

fn of_block(func: &Func, block: &Block) -> f64 {
    let runs = block.iters.iter().fold(1.0, |runs, iter| runs * func.most(&iter.extent).unwrap_or(1) as f64);
    let mut once = 0.0;
    visit::walk(&block.body, &mut |stmt| {
        let Stmt::Store(store) = stmt else { return };
        visit::walk_expr(&store.value, &mut |e| {
            once += match e {
                Expr::Bin(BinOp::Mul, a, b) => 1.0 / shared_by(block, a).max(shared_by(block, b)),
                Expr::Un(..) | Expr::Bin(..) => 1.0,
                _ => 0.0,
            }
        });
    });
    runs * once
}

/// The number of consecutive terms that read the same element: n where an index is a reduce iterator divided by n, else 1.
fn shared_by(block: &Block, value: &Expr) -> f64 {
    let Expr::Load { indices, .. } = value else { return 1.0 };
    let reduces = |v: Var| block.iters.iter().any(|it| it.kind == IterKind::Reduce && it.var == v);
    let quotient = |index: &Index| match index {
        Index::Bin(IndexOp::FloorDiv, v, by) if v.as_var().is_some_and(reduces) => by.as_int(),
        _ => None,
    };
    indices.iter().filter_map(quotient).fold(1, i64::max) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::te::{self, GemmSpec, Layout};

    #[test]
    fn multiplications_and_additions_count() {
        let spec = GemmSpec { out: DType::F16, ..GemmSpec::of(8, 12, 20, DType::F32, Layout::NT) };
        assert_eq!(operations(&te::gemm(&spec).unwrap()), 2.0 * 8.0 * 12.0 * 20.0);
        assert_eq!(operations(&te::batched_gemm(3, &spec).unwrap()), 6.0 * 8.0 * 12.0 * 20.0);
        assert_eq!(operations(&te::vec_add(7).unwrap()), 7.0);
        assert_eq!(operations(&te::window_sum(9).unwrap()), 2.0 * 9.0);
        let scaled = spec.block_scales(true);
        let scaled = GemmSpec { k: 256, ..scaled };
        assert_eq!(operations(&te::gemm(&scaled).unwrap()), (2.0 + 2.0 / 128.0) * 8.0 * 12.0 * 256.0);
        let repeated = "program p\ninput A f16[16, 4]\ninput B f16[8, 4]\n\
                        acc: output C[i 16, j 8] f32 = sum(r 5, k 4) f32(A[i, k])*f32(B[j, k])\n";
        assert_eq!(operations(&te::parse(repeated).unwrap()), 2.0 * 16.0 * 8.0 * 5.0 * 4.0);
    }
}
