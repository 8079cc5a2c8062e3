//! How much arithmetic a program asks for.

use crate::ir::{Block, Expr, Func, Stmt, visit};

/// Operations on data that a program as te writes it asks for: each on one or two operands counts as one, so a multiply-add as
/// two. Conversions, comparisons and choices are none.
pub fn operations(func: &Func) -> f64 {
    visit::blocks(&func.body).into_iter().map(of_block).sum()
}

fn of_block(block: &Block) -> f64 {
    let runs = block.iters.iter().fold(1.0, |runs, iter| runs * iter.extent.as_int().unwrap_or(1) as f64);
    let mut once = 0.0;
    visit::walk(&block.body, &mut |stmt| {
        let Stmt::Store(store) = stmt else { return };
        visit::walk_expr(&store.value, &mut |e| once += f64::from(u8::from(matches!(e, Expr::Un(..) | Expr::Bin(..)))));
    });
    runs * once
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
        let repeated = "program p\ninput A f16[16, 4]\ninput B f16[8, 4]\n\
                        acc: output C[i 16, j 8] f32 = sum(r 5, k 4) f32(A[i, k])*f32(B[j, k])\n";
        assert_eq!(operations(&te::parse(repeated).unwrap()), 2.0 * 16.0 * 8.0 * 5.0 * 4.0);
    }
}
