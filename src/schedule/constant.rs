//! What a value is where some of its loads are known to yield a constant.

use crate::ir::{BinOp, BufferId, Expr, Func, Index, Literal, UnOp};

/// A number, the same in real types and in integer mode; none where it depends on what is unknown.
type Known = Option<f64>;

/// The value of an expression where the loads that `fill` answers for yield that number, whatever all others yield. In
/// floating-point types 0 times something unknown is unknown: it may be infinite.
pub fn value(func: &Func, expr: &Expr, fill: &dyn Fn(BufferId, &[Index]) -> Known) -> Known {
    let of = |e: &Expr| value(func, e, fill);
    match expr {
        Expr::Const(_, literal) => number(*literal),
        Expr::Load { buffer, indices, .. } => fill(*buffer, indices),
        Expr::Cast(to, a) => of(a).filter(|_| func.dtype_of(a).is_ok_and(|from| from.widens_to(*to))),
        Expr::Un(UnOp::Neg, a) => of(a).filter(|v| *v == 0.0),
        Expr::Bin(op, a, b) => {
            let float = func.dtype_of(a).is_ok_and(|t| t.is_float());
            binary(*op, of(a), of(b), float)
        }
        Expr::Select(_, a, b) => of(a).filter(|v| of(b) == Some(*v)),
        _ => None,
    }
}

/// The number that a literal represents.
pub fn number(literal: Literal) -> Known {
    match literal {
        Literal::Int(v) => Some(v as f64),
        Literal::Float(v) => (!v.is_nan()).then_some(v),
        Literal::Any => None,
    }
}

fn binary(op: BinOp, a: Known, b: Known, float: bool) -> Known {
    let zero = |v: Known| v == Some(0.0);
    let finite = |v: Known| v.is_some_and(f64::is_finite);
    // Results of 0 and 1 are exact in every type.
    let small = |v: f64| (v == 0.0 || v == 1.0).then_some(v);
    let whole = |v: Known| v.filter(|v| v.fract() == 0.0);
    match op {
        BinOp::Mul if (zero(a) || zero(b)) && (!float || finite(a) && finite(b)) => Some(0.0),
        BinOp::Mul => whole(a).zip(whole(b)).and_then(|(a, b)| small(a * b)),
        BinOp::Add => whole(a).zip(whole(b)).and_then(|(a, b)| small(a + b)),
        BinOp::Min | BinOp::Max if a == b => a,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::analyze::update;
    use crate::schedule::testing::program;

    /// The term of the block S where A yields the number.
    fn term(inputs: &str, term: &str, fill: f64) -> Known {
        let func = program(&format!("program p\n{inputs}\nS: output S[i 8] f32 = sum(k 4) {term}"));
        let block = func.find_block("S").unwrap();
        let a = func.find_buffer("A").unwrap();
        let (_, _, term) = update(block).unwrap();
        value(&func, term, &|b, _| (b == a).then_some(fill))
    }

    #[test]
    fn zero_wins_only_where_the_other_factor_is_finite() {
        let both = "input A f32[8, 4]; input B f32[4]";
        assert_eq!(term(both, "A[i, k]*A[i, k]", 0.0), Some(0.0));
        assert_eq!(term(both, "A[i, k]*0.5", 0.0), Some(0.0));
        assert_eq!(term(both, "A[i, k]*B[k]", 0.0), None);
        assert_eq!(term(both, "A[i, k] + 1.0", 0.0), Some(1.0));
        assert_eq!(term(both, "A[i, k]*0.5", 2.0), None);
        assert_eq!(term(both, "exp(A[i, k])", 0.0), None);
        assert_eq!(term(both, "max(A[i, k], A[0, k])", 3.0), Some(3.0));
        assert_eq!(term(both, "select(k < 2, A[i, k], 0)", 0.0), Some(0.0));
    }

    #[test]
    fn conversions_keep_a_number_where_they_widen() {
        assert_eq!(term("input A f16[8, 4]", "f32(A[i, k])", 0.0), Some(0.0));
        assert_eq!(term("input A f64[8, 4]", "f32(A[i, k])", 0.0), None);
    }
}
