//! Buffers that one reducer combines together: their elements are tuples.
//!
//! Terms are combined in the order of the program. A schedule may combine them in any order and grouping, so the bound is that of
//! this order, doubled; components that no rounding has touched are exact.

use super::pair::{self, Pair};
use crate::array::Array;
use crate::dtype::DType;
use crate::ir::reducer::TupleReducer;
use crate::ir::{BufferId, Expr};

/// A value and its type.
type Typed = (DType, Pair);

/// Buffers with their reducer, in the order of the stores that write them.
#[derive(Debug)]
pub(super) struct Joint {
    reducer: TupleReducer,
    /// The buffers.
    pub buffers: Vec<BufferId>,
    /// What each begins from.
    pub first: Vec<Expr>,
    /// What each is combined with.
    pub terms: Vec<Expr>,
}

impl Joint {
    pub fn new(reducer: &TupleReducer, buffers: Vec<BufferId>, first: Vec<Expr>, terms: Vec<Expr>) -> Joint {
        Joint { reducer: reducer.clone(), buffers, first, terms }
    }

    /// Combines a tuple with another one.
    pub fn combine(&self, total: &mut [Pair], term: &[Pair]) {
        let dtypes = self.reducer.dtypes();
        let (mut numbers, count) = (vec![(DType::F32, (0.0, 0.0)); 2 * dtypes.len()], dtypes.len());
        for (n, component) in self.reducer.order().iter().enumerate() {
            numbers[*component] = (dtypes[*component], total[n]);
            numbers[count + component] = (dtypes[*component], term[n]);
        }
        let (_, combine) = self.reducer.parts();
        for (n, component) in self.reducer.order().iter().enumerate() {
            total[n] = value(&combine[*component], &numbers).1;
        }
    }
}

/// How far a component of any order may be from that of one order, whose bound is `e`.
pub(super) fn in_any_order((v, e): Pair) -> Pair {
    (v, 2.0 * e)
}

fn value(e: &Expr, numbers: &[Typed]) -> Typed {
    let nothing = (DType::F32, (f64::NAN, 0.0));
    match e {
        Expr::Const(dtype, literal) => {
            let v = literal.number();
            let Ok(mut rounded) = Array::zeros(*dtype, &[1]) else { return nothing };
            rounded.set(0, v);
            (*dtype, (rounded.get(0), 0.0))
        }
        Expr::Load { buffer, .. } => numbers.get(buffer.0 as usize).copied().unwrap_or(nothing),
        Expr::Un(op, a) => {
            let (dtype, a) = value(a, numbers);
            (dtype, pair::un(*op, dtype, a))
        }
        Expr::Bin(op, a, b) => {
            let ((dtype, a), (_, b)) = (value(a, numbers), value(b, numbers));
            (dtype, pair::bin(*op, dtype, a, b))
        }
        Expr::Cmp(op, a, b) => {
            let ((_, a), (_, b)) = (value(a, numbers), value(b, numbers));
            (DType::Bool, pair::compare(*op, a, b))
        }
        Expr::Select(c, a, b) => {
            let ((_, c), (dtype, a), (_, b)) = (value(c, numbers), value(a, numbers), value(b, numbers));
            (dtype, pair::choose(c, a, b))
        }
        Expr::Cast(to, a) => {
            let (from, a) = value(a, numbers);
            (*to, pair::cast(from, *to, a))
        }
        _ => nothing,
    }
}
