//! 8-bit floats: conversions to them saturate, and tensor cores add their products with fewer bits than those of other types.

use crate::dtype::{DType, FLOAT8_SUM_FRACTION};
use crate::ir::{BinOp, Expr, Func};

/// Products that an instruction of a tensor core adds.
const AT_ONCE: f64 = 32.0;

/// The largest finite number in place of what is beyond it.
pub(super) fn saturated(to: DType, v: f64) -> f64 {
    let largest = match to {
        DType::E4m3 => 448.0,
        DType::E5m2 => 57344.0,
        _ => return v,
    };
    if v.is_nan() { v } else { v.clamp(-largest, largest) }
}

/// The error of a sum of `n` products on a tensor core, relative to the sum of their magnitudes (`sim/float8.rs` has the model). Each of `n` terms
/// and of the accumulators of all instructions is truncated below the largest exponent, and so is each result. What is truncated towards zero
/// is no larger than the sum of the magnitudes: there is no term of second order.
pub(super) fn gamma(n: f64) -> f64 {
    (n + 2.0 * (n / AT_ONCE).ceil()) * 2f64.powi(-FLOAT8_SUM_FRACTION)
}

/// Whether an expression multiplies two values of these types, which may have been widened.
pub(super) fn is_product(func: &Func, e: &Expr) -> bool {
    matches!(e, Expr::Bin(BinOp::Mul, a, b) if is_value(func, a) && is_value(func, b))
}

fn is_value(func: &Func, e: &Expr) -> bool {
    match e {
        Expr::Cast(to, a) => to.is_float8() || to.is_float() && is_value(func, a),
        Expr::Load { buffer, .. } => func.buffer(*buffer).dtype.is_float8(),
        _ => false,
    }
}
