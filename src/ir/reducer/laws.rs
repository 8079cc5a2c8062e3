//! Whether the tuples of a reducer may be regrouped and exchanged, and its neutral tuple changes nothing: tried on random tuples.
//!
//! Each law is tried in integer mode, in which schedules are compared bit for bit, and in f64, on small multiples of 1/2 with a
//! tolerance: integer mode has no infinities, signs and quotients. The trials are the same on every host.

use super::TupleReducer;
use crate::dtype::DType;
use crate::ir::{BinOp, CmpOp, Expr, Literal, UnOp, integer, typing};

/// How many tuples each law is tried on, in each of both arithmetics.
pub const TRIALS: usize = 256;

/// Numbers that combinations are tried with.
trait Number: Copy {
    const NAME: &'static str;
    /// A random one for a component of the type.
    fn random(dtype: DType, word: u64) -> Self;
    fn literal(literal: Literal) -> Self;
    fn bin(op: BinOp, dtype: DType, a: Self, b: Self) -> Self;
    fn un(op: UnOp, dtype: DType, a: Self) -> Self;
    fn cast(from: DType, to: DType, a: Self) -> Self;
    fn holds(op: CmpOp, a: Self, b: Self) -> bool;
    fn is_true(self) -> bool;
    fn truth(value: bool) -> Self;
    fn same(self, other: Self) -> bool;
    fn show(self) -> String;
}

impl Number for u32 {
    const NAME: &'static str = "modulo 2^32";

    /// Small ones too, so that equal ones meet.
    fn random(dtype: DType, word: u64) -> u32 {
        match (dtype, word >> 62) {
            (DType::Bool, _) => word as u32 & 1,
            (_, 0) => word as u32 & 3,
            _ => word as u32,
        }
    }

    fn literal(literal: Literal) -> u32 {
        integer::literal(literal)
    }

    fn bin(op: BinOp, dtype: DType, a: u32, b: u32) -> u32 {
        integer::bin(op, dtype, a, b)
    }

    fn un(op: UnOp, dtype: DType, a: u32) -> u32 {
        integer::un(op, dtype, a)
    }

    fn cast(from: DType, to: DType, a: u32) -> u32 {
        integer::cast(from, to, a)
    }

    fn holds(op: CmpOp, a: u32, b: u32) -> bool {
        op.holds(Some(a.cmp(&b)))
    }

    fn is_true(self) -> bool {
        self != 0
    }

    fn truth(value: bool) -> u32 {
        u32::from(value)
    }

    fn same(self, other: u32) -> bool {
        self == other
    }

    fn show(self) -> String {
        self.to_string()
    }
}

impl Number for f64 {
    const NAME: &'static str = "in f64";

    fn random(dtype: DType, word: u64) -> f64 {
        let small = (word % 33) as f64;
        match typing::integer_range(dtype) {
            None => small / 2.0 - 8.0,
            Some((low, high)) => (small - 16.0).clamp(low as f64, high as f64),
        }
    }

    fn literal(literal: Literal) -> f64 {
        literal.number()
    }

    fn bin(op: BinOp, dtype: DType, a: f64, b: f64) -> f64 {
        let whole = !dtype.is_float();
        let (x, y) = (a as i64, b as i64);
        match op {
            BinOp::Add => a + b,
            BinOp::Sub => a - b,
            BinOp::Mul => a * b,
            BinOp::Div if whole => (a / b).trunc(),
            BinOp::Div => a / b,
            BinOp::Min => a.min(b),
            BinOp::Max => a.max(b),
            BinOp::And => (x & y) as f64,
            BinOp::Or => (x | y) as f64,
            BinOp::Xor => (x ^ y) as f64,
            BinOp::Shl => u32::try_from(y).ok().and_then(|y| x.checked_shl(y)).unwrap_or(0) as f64,
            BinOp::Shr => (x >> y.clamp(0, 63)) as f64,
            BinOp::Pow => a.powf(b),
        }
    }

    fn un(op: UnOp, dtype: DType, a: f64) -> f64 {
        match op {
            UnOp::Neg => -a,
            UnOp::Abs => a.abs(),
            UnOp::Exp => a.exp(),
            UnOp::Exp2 => a.exp2(),
            UnOp::Log => a.ln(),
            UnOp::Log2 => a.log2(),
            UnOp::Sqrt => a.sqrt(),
            UnOp::Rsqrt => 1.0 / a.sqrt(),
            UnOp::Tanh => a.tanh(),
            UnOp::Erf => crate::array::erf(a),
            UnOp::Log1p => a.ln_1p(),
            UnOp::Sin => a.sin(),
            UnOp::Cos => a.cos(),
            UnOp::Not if dtype == DType::Bool => f64::from(u8::from(a == 0.0)),
            UnOp::Not => !(a as i64) as f64,
        }
    }

    fn cast(_: DType, to: DType, a: f64) -> f64 {
        match typing::integer_range(to) {
            None => a,
            Some((low, high)) => a.trunc().clamp(low as f64, high as f64),
        }
    }

    fn holds(op: CmpOp, a: f64, b: f64) -> bool {
        op.holds(a.partial_cmp(&b))
    }

    fn is_true(self) -> bool {
        self != 0.0
    }

    fn truth(value: bool) -> f64 {
        f64::from(u8::from(value))
    }

    fn same(self, other: f64) -> bool {
        self == other || (self - other).abs() <= 1e-9 * (1.0 + self.abs().max(other.abs()))
    }

    fn show(self) -> String {
        format!("{self:?}")
    }
}

/// Tries all laws; the first counterexample in words.
///
/// # Errors
/// The law that does not hold, and where.
pub fn check(of: &TupleReducer) -> Result<(), String> {
    tried::<u32>(of)?;
    tried::<f64>(of)
}

fn tried<N: Number>(of: &TupleReducer) -> Result<(), String> {
    let dtypes = of.dtypes();
    let neutral: Vec<N> = of.neutral.iter().map(|e| value(of, e, &[])).collect();
    let mut state = 0u64;
    let mut tuple = || -> Vec<N> {
        let mut one = |dtype: &DType| {
            state += 1;
            N::random(*dtype, integer::mix(state))
        };
        dtypes.iter().map(&mut one).collect()
    };
    let combined = |a: &[N], b: &[N]| -> Vec<N> {
        let both = [a, b].concat();
        of.combine.iter().map(|e| value(of, e, &both)).collect()
    };
    let is = |a: &[N], b: &[N]| a.iter().zip(b).all(|(a, b)| a.same(*b));
    let show = |t: &[N]| format!("({})", t.iter().map(|n| n.show()).collect::<Vec<_>>().join(", "));
    let changed =
        |a: &[N], left: &[N]| format!("{}, {} and the neutral tuple combine to {}", N::NAME, show(a), show(left));
    for trial in 0..TRIALS {
        let a = if trial == 0 { neutral.clone() } else { tuple() };
        for found in [combined(&a, &neutral), combined(&neutral, &a)] {
            if !is(&found, &a) {
                return Err(changed(&a, &found));
            }
        }
        let (b, c) = (tuple(), tuple());
        let (ab, ba) = (combined(&a, &b), combined(&b, &a));
        if !is(&ab, &ba) {
            return Err(format!(
                "tuples may not be exchanged: {}, {} and {} combine to {}, the other way round to {}",
                N::NAME,
                show(&a),
                show(&b),
                show(&ab),
                show(&ba)
            ));
        }
        let (first, last) = (combined(&ab, &c), combined(&a, &combined(&b, &c)));
        if !is(&first, &last) {
            return Err(format!(
                "tuples may not be regrouped: {}, {}, {} and {} combine to {} from the left and to {} from the right",
                N::NAME,
                show(&a),
                show(&b),
                show(&c),
                show(&first),
                show(&last)
            ));
        }
    }
    Ok(())
}

/// A combination of numbers; what a reducer cannot have is 0.
fn value<N: Number>(of: &TupleReducer, e: &Expr, numbers: &[N]) -> N {
    let dtype = |e: &Expr| typing::dtype_of(&of.numbers, e).unwrap_or(DType::F32);
    let at = |e: &Expr| value(of, e, numbers);
    match e {
        Expr::Const(_, literal) => N::literal(*literal),
        Expr::Load { buffer, .. } => numbers.get(buffer.0 as usize).copied().unwrap_or(N::truth(false)),
        Expr::Un(op, a) => N::un(*op, dtype(a), at(a)),
        Expr::Bin(op, a, b) => N::bin(*op, dtype(a), at(a), at(b)),
        Expr::Cmp(op, a, b) => N::truth(N::holds(*op, at(a), at(b))),
        Expr::Select(c, a, b) => at(if at(c).is_true() { a } else { b }),
        Expr::Cast(to, a) => N::cast(dtype(a), *to, at(a)),
        Expr::Cond(c) => N::truth(c.eval(&|_| None).unwrap_or(false)),
        Expr::Index(..) | Expr::Splat(..) | Expr::Shuffle(..) | Expr::Gather { .. } => N::truth(false),
    }
}
