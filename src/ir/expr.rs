//! Expressions: [`Index`] addresses, [`Cond`] decides, [`Expr`] computes.
//!
//! Indices are exact 64-bit integers with floor division and a modulus of the divisor's sign. The constructors here
//! fold constants and drop neutral elements, nothing more; [`super::simplify`] does the rest.

mod compare;

pub use compare::CmpOp;

use super::BufferId;
use crate::dtype::DType;

/// A loop variable or a block's iteration variable; its name is in [`super::Func`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

/// Integer arithmetic over variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Index {
    /// A constant.
    Int(i64),
    /// A variable.
    Var(Var),
    /// An operation.
    Bin(IndexOp, Box<Index>, Box<Index>),
}

/// The operations on indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum IndexOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient rounded towards minus infinity.
    FloorDiv,
    /// Remainder of [`IndexOp::FloorDiv`].
    FloorMod,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Bitwise exclusive or of numbers that are not negative: what a swizzle does to addresses (Lowered).
    Xor,
}

impl IndexOp {
    /// The value on constants; `None` on overflow or division by zero.
    pub fn eval(self, a: i64, b: i64) -> Option<i64> {
        match self {
            IndexOp::Add => a.checked_add(b),
            IndexOp::Sub => a.checked_sub(b),
            IndexOp::Mul => a.checked_mul(b),
            IndexOp::FloorDiv => {
                let q = a.checked_div(b)?;
                Some(if a % b != 0 && ((a < 0) != (b < 0)) { q - 1 } else { q })
            }
            IndexOp::FloorMod => {
                let q = IndexOp::FloorDiv.eval(a, b)?;
                a.checked_sub(q.checked_mul(b)?)
            }
            IndexOp::Min => Some(a.min(b)),
            IndexOp::Max => Some(a.max(b)),
            IndexOp::Xor => (a >= 0 && b >= 0).then_some(a ^ b),
        }
    }
}

impl From<i64> for Index {
    fn from(v: i64) -> Self {
        Index::Int(v)
    }
}

impl From<Var> for Index {
    fn from(v: Var) -> Self {
        Index::Var(v)
    }
}

impl Index {
    /// An operation, folded where both sides are constants or one is neutral.
    pub fn bin(op: IndexOp, a: Index, b: Index) -> Index {
        use IndexOp::*;
        match (op, &a, &b) {
            (_, Index::Int(x), Index::Int(y)) => {
                if let Some(v) = op.eval(*x, *y) {
                    return Index::Int(v);
                }
            }
            (Add | Sub | Xor, _, Index::Int(0)) | (Mul | FloorDiv, _, Index::Int(1)) => return a,
            (Add | Xor, Index::Int(0), _) | (Mul, Index::Int(1), _) => return b,
            (Mul, Index::Int(0), _) | (Mul, _, Index::Int(0)) | (FloorMod, _, Index::Int(1)) => return Index::Int(0),
            _ => {}
        }
        Index::Bin(op, Box::new(a), Box::new(b))
    }

    /// Floor division.
    pub fn floordiv(self, other: impl Into<Index>) -> Index {
        Index::bin(IndexOp::FloorDiv, self, other.into())
    }

    /// Floor modulus.
    pub fn floormod(self, other: impl Into<Index>) -> Index {
        Index::bin(IndexOp::FloorMod, self, other.into())
    }

    /// The smaller of two.
    pub fn min(self, other: impl Into<Index>) -> Index {
        Index::bin(IndexOp::Min, self, other.into())
    }

    /// The larger of two.
    pub fn max(self, other: impl Into<Index>) -> Index {
        Index::bin(IndexOp::Max, self, other.into())
    }

    /// Bitwise exclusive or.
    pub fn xor(self, other: impl Into<Index>) -> Index {
        Index::bin(IndexOp::Xor, self, other.into())
    }

    /// The constant, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Index::Int(v) => Some(*v),
            _ => None,
        }
    }

    /// The variable, if it is one.
    pub fn as_var(&self) -> Option<Var> {
        match self {
            Index::Var(v) => Some(*v),
            _ => None,
        }
    }

    /// The value under an assignment; `None` where a variable is missing or arithmetic fails.
    pub fn eval(&self, value: &impl Fn(Var) -> Option<i64>) -> Option<i64> {
        match self {
            Index::Int(v) => Some(*v),
            Index::Var(v) => value(*v),
            Index::Bin(op, a, b) => op.eval(a.eval(value)?, b.eval(value)?),
        }
    }

    /// Whether the variable occurs.
    pub fn mentions(&self, var: Var) -> bool {
        match self {
            Index::Int(_) => false,
            Index::Var(v) => *v == var,
            Index::Bin(_, a, b) => a.mentions(var) || b.mentions(var),
        }
    }

    /// Whether a quotient or remainder of the variable occurs.
    pub fn divides(&self, var: Var) -> bool {
        match self {
            Index::Int(_) | Index::Var(_) => false,
            Index::Bin(IndexOp::FloorDiv | IndexOp::FloorMod, a, _) if a.mentions(var) => true,
            Index::Bin(_, a, b) => a.divides(var) || b.divides(var),
        }
    }

    /// Calls `f` on each variable, left to right.
    pub fn for_each_var(&self, f: &mut impl FnMut(Var)) {
        match self {
            Index::Int(_) => {}
            Index::Var(v) => f(*v),
            Index::Bin(_, a, b) => {
                a.for_each_var(f);
                b.for_each_var(f);
            }
        }
    }
}

macro_rules! index_operator {
    ($trait:ident, $method:ident, $op:ident) => {
        impl<R: Into<Index>> std::ops::$trait<R> for Index {
            type Output = Index;
            fn $method(self, other: R) -> Index {
                Index::bin(IndexOp::$op, self, other.into())
            }
        }
        impl<R: Into<Index>> std::ops::$trait<R> for Var {
            type Output = Index;
            fn $method(self, other: R) -> Index {
                Index::bin(IndexOp::$op, Index::Var(self), other.into())
            }
        }
    };
}
index_operator!(Add, add, Add);
index_operator!(Sub, sub, Sub);
index_operator!(Mul, mul, Mul);

/// A condition over indices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cond {
    /// Always or never.
    Const(bool),
    /// A comparison.
    Cmp(CmpOp, Index, Index),
    /// Both.
    And(Box<Cond>, Box<Cond>),
    /// Either.
    Or(Box<Cond>, Box<Cond>),
    /// The opposite.
    Not(Box<Cond>),
}

impl Cond {
    /// Always true.
    pub const TRUE: Cond = Cond::Const(true);

    /// `a op b`, folded on constants.
    pub fn cmp(op: CmpOp, a: impl Into<Index>, b: impl Into<Index>) -> Cond {
        match (a.into(), b.into()) {
            (Index::Int(x), Index::Int(y)) => Cond::Const(op.holds(Some(x.cmp(&y)))),
            (a, b) => Cond::Cmp(op, a, b),
        }
    }

    /// `a < b`.
    pub fn lt(a: impl Into<Index>, b: impl Into<Index>) -> Cond {
        Cond::cmp(CmpOp::Lt, a, b)
    }

    /// `a == b`.
    pub fn eq(a: impl Into<Index>, b: impl Into<Index>) -> Cond {
        Cond::cmp(CmpOp::Eq, a, b)
    }

    /// `a >= b`.
    pub fn ge(a: impl Into<Index>, b: impl Into<Index>) -> Cond {
        Cond::cmp(CmpOp::Ge, a, b)
    }

    /// Conjunction, without constants.
    #[must_use]
    pub fn and(self, other: Cond) -> Cond {
        match (self, other) {
            (Cond::Const(true), c) | (c, Cond::Const(true)) => c,
            (Cond::Const(false), _) | (_, Cond::Const(false)) => Cond::Const(false),
            (a, b) => Cond::And(Box::new(a), Box::new(b)),
        }
    }

    /// Whether it is the constant true.
    pub fn is_true(&self) -> bool {
        matches!(self, Cond::Const(true))
    }

    /// The conditions that all must hold, in order; none for true.
    pub fn conjuncts(&self) -> Vec<&Cond> {
        match self {
            Cond::Const(true) => Vec::new(),
            Cond::And(a, b) => {
                let mut all = a.conjuncts();
                all.extend(b.conjuncts());
                all
            }
            c => vec![c],
        }
    }

    /// Whether the variable occurs.
    pub fn mentions(&self, var: Var) -> bool {
        let mut found = false;
        self.for_each_index(&mut |i| found |= i.mentions(var));
        found
    }

    /// Calls `f` on each compared index.
    pub fn for_each_index(&self, f: &mut impl FnMut(&Index)) {
        match self {
            Cond::Const(_) => {}
            Cond::Cmp(_, a, b) => {
                f(a);
                f(b);
            }
            Cond::And(a, b) | Cond::Or(a, b) => {
                a.for_each_index(f);
                b.for_each_index(f);
            }
            Cond::Not(a) => a.for_each_index(f),
        }
    }

    /// The verdict under an assignment.
    pub fn eval(&self, value: &impl Fn(Var) -> Option<i64>) -> Option<bool> {
        Some(match self {
            Cond::Const(c) => *c,
            Cond::Cmp(op, a, b) => op.holds(Some(a.eval(value)?.cmp(&b.eval(value)?))),
            Cond::And(a, b) => a.eval(value)? && b.eval(value)?,
            Cond::Or(a, b) => a.eval(value)? || b.eval(value)?,
            Cond::Not(a) => !a.eval(value)?,
        })
    }
}

/// A literal number; its type stands beside it in [`Expr::Const`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Literal {
    /// For integer types and bool.
    Int(i64),
    /// For floating-point types.
    Float(f64),
    /// An undefined value: no output of the program depends on it. The compiler may choose any.
    Any,
}

impl Literal {
    /// The number; zero where it is undefined.
    pub fn number(self) -> f64 {
        match self {
            Literal::Int(v) => v as f64,
            Literal::Float(v) => v,
            Literal::Any => 0.0,
        }
    }
}

/// The binary operations on data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BinOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient; integers round towards zero.
    Div,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Bitwise and (integers, bool).
    And,
    /// Bitwise or (integers, bool).
    Or,
    /// Bitwise exclusive or (integers, bool).
    Xor,
    /// Shift left (integers).
    Shl,
    /// Shift right, arithmetic for signed types (integers).
    Shr,
    /// The first to the power of the second, with the special cases of IEEE 754 (floating point).
    Pow,
}

/// The unary operations on data. The transcendental ones are for floating-point types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnOp {
    /// Negation.
    Neg,
    /// Magnitude.
    Abs,
    /// e^x.
    Exp,
    /// 2^x.
    Exp2,
    /// Natural logarithm.
    Log,
    /// Base-2 logarithm.
    Log2,
    /// Square root.
    Sqrt,
    /// 1 / sqrt(x).
    Rsqrt,
    /// Hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// ln(1 + x), exact near 0.
    Log1p,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Logical or bitwise complement (bool, integers).
    Not,
}

/// A data expression.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Expr {
    /// A literal of a type.
    Const(DType, Literal),
    /// An index as a datum of an integer or floating-point type (exact in s64; the simulator and the GPU convert).
    Index(DType, Box<Index>),
    /// A condition over indices, of type bool.
    Cond(Box<Cond>),
    /// Reads a buffer: one index per dimension; in Lowered one flat element index and `lanes` >= 1 consecutive elements.
    Load {
        /// What is read.
        buffer: BufferId,
        /// Where.
        indices: Vec<Index>,
        /// How many consecutive elements (Lowered; else 1).
        lanes: u32,
    },
    /// One value in every lane (Lowered).
    Splat(u32, Box<Expr>),
    /// The value that the lane of the warp has whose number differs from this lane's in the bits of the mask (Lowered).
    Shuffle(u32, Box<Expr>),
    /// An operation on one operand.
    Un(UnOp, Box<Expr>),
    /// An operation on two operands of one type.
    Bin(BinOp, Box<Expr>, Box<Expr>),
    /// A comparison of data, of type bool.
    Cmp(CmpOp, Box<Expr>, Box<Expr>),
    /// `condition ? a : b`; only the chosen side is evaluated.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// An index that is a datum: indices in `value` mention `var`, which is `index - low`.
    Gather {
        /// The variable: not one of a loop, and in scope in `value` alone.
        var: Var,
        /// The least value of `index`.
        low: i64,
        /// How many values there are from `low` on. That `index` is one of them is a contract, which the simulator checks.
        extent: i64,
        /// The datum, of an integer type.
        index: Box<Expr>,
        /// What is read at it.
        value: Box<Expr>,
    },
    /// Converts: floats round to nearest even, floats to integers truncate and saturate, integers wrap.
    Cast(DType, Box<Expr>),
}

impl Expr {
    /// A literal of the type, converted from f64.
    pub fn constant(dtype: DType, value: f64) -> Expr {
        let literal = if dtype.is_float() { Literal::Float(value) } else { Literal::Int(value as i64) };
        Expr::Const(dtype, literal)
    }

    /// Whether it is the constant zero, an undefined value, or a vector of it; a negative zero is not.
    pub fn is_zero(&self) -> bool {
        match self {
            Expr::Const(_, Literal::Int(v)) => *v == 0,
            Expr::Const(_, Literal::Float(v)) => v.to_bits() == 0,
            Expr::Const(_, Literal::Any) => true,
            Expr::Splat(_, one) => one.is_zero(),
            _ => false,
        }
    }

    /// Whether it is an undefined value ([`Literal::Any`]).
    pub fn is_any(&self) -> bool {
        matches!(self, Expr::Const(_, Literal::Any))
    }

    /// The condition and the value, if it is a value where the condition holds and else zero.
    pub fn zero_filled(&self) -> Option<(&Expr, &Expr)> {
        match self {
            Expr::Select(c, value, zero) if zero.is_zero() => Some((c, value)),
            _ => None,
        }
    }

    /// What is read, without the data that are indices in it.
    pub fn ungathered(&self) -> &Expr {
        match self {
            Expr::Gather { value, .. } => value.ungathered(),
            other => other,
        }
    }

    /// Reads one element.
    pub fn load(buffer: BufferId, indices: Vec<Index>) -> Expr {
        Expr::Load { buffer, indices, lanes: 1 }
    }

    /// A binary operation.
    pub fn bin(op: BinOp, a: Expr, b: Expr) -> Expr {
        Expr::Bin(op, Box::new(a), Box::new(b))
    }

    /// A unary operation.
    pub fn un(op: UnOp, a: Expr) -> Expr {
        Expr::Un(op, Box::new(a))
    }

    /// A conversion.
    pub fn cast(dtype: DType, a: Expr) -> Expr {
        Expr::Cast(dtype, Box::new(a))
    }

    /// What is read at an index that is a datum of the values `low..low + extent`: indices in `value` mention `var + low`.
    pub fn gather(var: Var, (low, extent): (i64, i64), index: Expr, value: Expr) -> Expr {
        Expr::Gather { var, low, extent, index: Box::new(index), value: Box::new(value) }
    }

    /// A choice.
    pub fn select(cond: Expr, a: Expr, b: Expr) -> Expr {
        Expr::Select(Box::new(cond), Box::new(a), Box::new(b))
    }
}
