//! The types of expressions: every operand of an operation has the operation's type, conversions are explicit.

use super::{BinOp, BufferId, Expr, Func, Literal, UnOp, print};
use crate::dtype::{Class, DType};
use crate::error::{Code, Error, Result};

impl Func {
    /// The type of an expression; an error where operands disagree or an operation does not exist on its type.
    pub fn dtype_of(&self, expr: &Expr) -> Result<DType> {
        dtype_of(self, expr)
    }
}

/// The type of an expression; an error (`type.operand`, `type.operation`, `type.lanes`, `type.buffer`, `type.literal`)
/// where operands disagree or an operation does not exist on its type.
pub fn dtype_of(func: &Func, expr: &Expr) -> Result<DType> {
    type_of(func, expr).map(|(dtype, _)| dtype)
}

/// The type of an expression and its number of lanes; errors as [`dtype_of`].
pub fn type_of(func: &Func, expr: &Expr) -> Result<(DType, u32)> {
    match expr {
        Expr::Const(dtype, literal) => literal_type(*dtype, *literal).map(|t| (t, 1)),
        Expr::Index(dtype, _) => match dtype.class() {
            Class::Bool => {
                Err(wrong(func, expr, Code::TypeOperation, "an index is not a truth value; compare it instead"))
            }
            _ => Ok((*dtype, 1)),
        },
        Expr::Cond(_) => Ok((DType::Bool, 1)),
        Expr::Load { buffer, lanes, .. } => Ok((buffer_type(func, *buffer)?, *lanes)),
        Expr::Splat(lanes, a) => match type_of(func, a)? {
            (dtype, 1) => Ok((dtype, *lanes)),
            _ => Err(wrong(func, expr, Code::TypeLanes, "splat repeats one value, but its operand has several lanes")),
        },
        Expr::Shuffle(_, a) => type_of(func, a),
        Expr::Un(op, a) => {
            let (dtype, lanes) = type_of(func, a)?;
            unary_exists(*op, dtype).then_some((dtype, lanes)).ok_or_else(|| no_operation(func, expr, dtype))
        }
        Expr::Bin(op, a, b) => {
            let (dtype, lanes) = same(func, expr, a, b)?;
            binary_exists(*op, dtype).then_some((dtype, lanes)).ok_or_else(|| no_operation(func, expr, dtype))
        }
        Expr::Cmp(_, a, b) => same(func, expr, a, b).map(|(_, lanes)| (DType::Bool, lanes)),
        Expr::Select(c, a, b) => match type_of(func, c)? {
            (DType::Bool, condition_lanes) => {
                let (dtype, lanes) = same(func, expr, a, b)?;
                if condition_lanes != 1 && condition_lanes != lanes {
                    return Err(wrong(
                        func,
                        expr,
                        Code::TypeLanes,
                        "the condition and the values of select differ in their lanes",
                    ));
                }
                Ok((dtype, lanes))
            }
            (other, _) => {
                let message = format!("the condition of select is {other}, not bool");
                Err(wrong(func, expr, Code::TypeOperand, &message))
            }
        },
        Expr::Cast(dtype, a) => type_of(func, a).map(|(_, lanes)| (*dtype, lanes)),
        Expr::Gather { low, extent, index, value, .. } => match type_of(func, index)? {
            (dtype, 1) if gather_range(dtype).is_some() => {
                if *extent < 1 || low.checked_add(*extent).is_none() {
                    let message = format!("{low} and the {extent} values from it on are no range of an index");
                    return Err(wrong(func, expr, Code::TypeOperand, &message));
                }
                type_of(func, value)
            }
            (dtype, _) => {
                Err(wrong(func, expr, Code::TypeOperand, &format!("an index is an integer, but this is {dtype}")))
            }
        },
    }
}

/// The first value of a type whose data can be indices, and how many there are as far as 64 bits count them.
pub fn gather_range(dtype: DType) -> Option<(i64, i64)> {
    match dtype.class() {
        Class::Float | Class::Bool => None,
        _ if dtype == DType::S64 => Some((0, i64::MAX)),
        _ => integer_range(dtype).map(|(low, high)| (low, high - low + 1)),
    }
}

/// The type that an expression shows without the help of its surroundings: `None` for literals and what is made of
/// literals alone. Checks nothing.
pub fn evident(func: &Func, expr: &Expr) -> Option<DType> {
    match expr {
        Expr::Const(..) => None,
        Expr::Index(dtype, _) | Expr::Cast(dtype, _) => Some(*dtype),
        Expr::Cond(_) | Expr::Cmp(..) => Some(DType::Bool),
        Expr::Load { buffer, .. } => func.buffers.get(buffer.0 as usize).map(|b| b.dtype),
        Expr::Splat(_, a) | Expr::Shuffle(_, a) | Expr::Un(_, a) | Expr::Gather { value: a, .. } => evident(func, a),
        Expr::Bin(_, a, b) | Expr::Select(_, a, b) => evident(func, a).or_else(|| evident(func, b)),
    }
}

/// The smallest and largest integer of an integer type (or bool).
pub fn integer_range(dtype: DType) -> Option<(i64, i64)> {
    Some(match (dtype.class(), dtype) {
        (Class::Float, _) => return None,
        (Class::Bool, _) | (_, DType::B1) => (0, 1),
        (Class::Signed, DType::S64) => (i64::MIN, i64::MAX),
        (Class::Signed, _) => (-(1 << (dtype.bits() - 1)), (1 << (dtype.bits() - 1)) - 1),
        (Class::Unsigned, _) => (0, (1 << dtype.bits()) - 1),
    })
}

fn literal_type(dtype: DType, literal: Literal) -> Result<DType> {
    let fits = match (literal, integer_range(dtype)) {
        (Literal::Int(v), Some((low, high))) => (low..=high).contains(&v),
        (Literal::Float(_), None) | (Literal::Any, _) => true,
        _ => false,
    };
    let text = match literal {
        Literal::Int(v) => v.to_string(),
        Literal::Float(v) => format!("{v:?}"),
        Literal::Any => "any".to_string(),
    };
    fits.then_some(dtype)
        .ok_or_else(|| Error::input(Code::TypeLiteral, format!("{text} is not a value of type {dtype}")))
}

fn buffer_type(func: &Func, buffer: BufferId) -> Result<DType> {
    let found = func.buffers.get(buffer.0 as usize).map(|b| b.dtype);
    found.ok_or_else(|| Error::bug(Code::TypeBuffer, format!("buffer {} does not exist in {}", buffer.0, func.name)))
}

fn same(func: &Func, whole: &Expr, a: &Expr, b: &Expr) -> Result<(DType, u32)> {
    let ((left, left_lanes), (right, right_lanes)) = (type_of(func, a)?, type_of(func, b)?);
    if left != right {
        let message = format!("{} is {left}, but {} is {right}", print::expr(func, a), print::expr(func, b));
        let error = wrong(func, whole, Code::TypeOperand, &message);
        return Err(error.help(format!("convert one of them, for example {left}({})", print::expr(func, b))));
    }
    if left_lanes != right_lanes {
        let message = format!("operands of {left_lanes} and {right_lanes} lanes");
        return Err(wrong(func, whole, Code::TypeLanes, &message));
    }
    Ok((left, left_lanes))
}

/// Whether the operation exists on a type.
pub fn unary_exists(op: UnOp, dtype: DType) -> bool {
    match op {
        UnOp::Neg | UnOp::Abs => dtype != DType::Bool,
        UnOp::Not => !dtype.is_float(),
        _ => dtype.is_float(),
    }
}

/// Whether the operation exists on a type.
pub fn binary_exists(op: BinOp, dtype: DType) -> bool {
    match op {
        BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Min | BinOp::Max => dtype != DType::Bool,
        BinOp::And | BinOp::Or | BinOp::Xor => !dtype.is_float(),
        BinOp::Shl | BinOp::Shr => !dtype.is_float() && dtype != DType::Bool,
        BinOp::Pow => dtype.is_float(),
    }
}

fn no_operation(func: &Func, expr: &Expr, dtype: DType) -> Error {
    wrong(func, expr, Code::TypeOperation, &format!("this operation does not exist on {dtype}"))
}

fn wrong(func: &Func, expr: &Expr, code: Code, message: &str) -> Error {
    Error::input(code, format!("in `{}`: {message}", print::expr(func, expr)))
}
