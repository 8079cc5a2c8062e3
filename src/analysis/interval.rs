//! Conditions and indices over ranges of their variables.

use crate::ir::{CmpOp, Cond, Index, IndexOp, Var};

/// Whether a condition holds for all values in the ranges (`Some(Some(..))`), or for some only (`Some(None)`). `None` where
/// arithmetic overflows.
pub fn truth(cond: &Cond, range: &dyn Fn(Var) -> (i64, i64)) -> Option<Option<bool>> {
    Some(match cond {
        Cond::Const(c) => Some(*c),
        Cond::Cmp(op, a, b) => compare(*op, interval(a, range)?, interval(b, range)?),
        Cond::And(a, b) => match (truth(a, range)?, truth(b, range)?) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        },
        Cond::Or(a, b) => match (truth(a, range)?, truth(b, range)?) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        },
        Cond::Not(a) => truth(a, range)?.map(|t| !t),
    })
}

fn compare(op: CmpOp, a: (i64, i64), b: (i64, i64)) -> Option<bool> {
    match op {
        CmpOp::Lt if a.1 < b.0 => Some(true),
        CmpOp::Lt if a.0 >= b.1 => Some(false),
        CmpOp::Le if a.1 <= b.0 => Some(true),
        CmpOp::Le if a.0 > b.1 => Some(false),
        CmpOp::Eq if a.0 == a.1 && a == b => Some(true),
        CmpOp::Eq if a.1 < b.0 || a.0 > b.1 => Some(false),
        CmpOp::Ne => compare(CmpOp::Eq, a, b).map(|t| !t),
        CmpOp::Ge => compare(CmpOp::Le, b, a),
        CmpOp::Gt => compare(CmpOp::Lt, b, a),
        _ => None,
    }
}

/// The values of an index, both ends inclusive; exact where no variable occurs twice.
pub fn interval(index: &Index, range: &dyn Fn(Var) -> (i64, i64)) -> Option<(i64, i64)> {
    let Index::Bin(op, a, b) = index else {
        return Some(match index {
            Index::Int(v) => (*v, *v),
            Index::Var(v) => range(*v),
            Index::Bin(..) => return None,
        });
    };
    let (a, b) = (interval(a, range)?, interval(b, range)?);
    let corners = || {
        let all = [op.eval(a.0, b.0)?, op.eval(a.0, b.1)?, op.eval(a.1, b.0)?, op.eval(a.1, b.1)?];
        Some((all.into_iter().min()?, all.into_iter().max()?))
    };
    match op {
        IndexOp::Add | IndexOp::Mul | IndexOp::Min | IndexOp::Max => corners(),
        IndexOp::Sub => Some((a.0.checked_sub(b.1)?, a.1.checked_sub(b.0)?)),
        IndexOp::FloorDiv if b.0 > 0 || b.1 < 0 => corners(),
        IndexOp::FloorMod if b.0 == b.1 && b.0 > 0 => {
            let same = a.0.div_euclid(b.0) == a.1.div_euclid(b.0);
            Some(if same { (a.0.rem_euclid(b.0), a.1.rem_euclid(b.0)) } else { (0, b.0 - 1) })
        }
        IndexOp::FloorMod if b.0 > 0 => Some((0, b.1 - 1)),
        IndexOp::Xor if a.0 >= 0 && b.0 >= 0 => Some((0, ((a.1 | b.1) as u64 + 1).next_power_of_two() as i64 - 1)),
        _ => None,
    }
}
