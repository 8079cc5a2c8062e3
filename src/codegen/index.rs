//! Index arithmetic: 32 bits wherever the ranges of variables prove that every part fits, 64 bits elsewhere.
//!
//! An index is emitted as a sum whose terms are in the order in which their variables come to be (hardware indices,
//! then loops from the outside in), so that what an inner loop does not change is one prefix that moves out of it.

use super::body::Body;
use super::builder::Value;
use super::session::bug;
use crate::error::Result;
use crate::ir::lowered::threads::LANES;
use crate::ir::simplify::{Affine, affine};
use crate::ir::{CmpOp, Cond, Index, IndexOp, Var, visit};
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode, IntValue};

/// Smallest and largest value, inclusive. Kept in 128 bits so that computing it cannot overflow.
type Range = (i128, i128);

/// An emitted index.
#[derive(Debug, Clone, Copy)]
pub struct Number<'c> {
    /// In 32 or 64 bits.
    pub value: IntValue<'c>,
    /// What it can be.
    pub range: Range,
}

/// A variable in scope.
#[derive(Debug, Clone, Copy)]
pub struct Variable<'c> {
    /// Its value.
    pub number: Number<'c>,
    /// How deep it was introduced.
    pub depth: u32,
}

impl<'c> Number<'c> {
    fn bits(self) -> u32 {
        self.value.get_type().get_bit_width()
    }

    fn is_natural(self) -> bool {
        self.range.0 >= 0
    }

    fn constant(self) -> Option<i128> {
        (self.range.0 == self.range.1).then_some(self.range.0)
    }
}

fn fits_i32(r: Range) -> bool {
    r.0 >= i128::from(i32::MIN) && r.1 <= i128::from(i32::MAX)
}

/// What a wrapped 64-bit value can be, where nothing better is known.
const ANY: Range = (i64::MIN as i128, i64::MAX as i128);

fn clamp(r: Range) -> Range {
    if r.0 < ANY.0 || r.1 > ANY.1 { ANY } else { r }
}

fn hull(values: &[i128]) -> Range {
    values.iter().fold((i128::MAX, i128::MIN), |(lo, hi), &v| (lo.min(v), hi.max(v)))
}

fn times(a: Range, b: Range) -> Range {
    hull(&[a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1])
}

impl<'c> Body<'c, '_, '_> {
    /// With unrolled variables replaced, as a sum.
    pub fn sum(&self, index: &Index) -> Affine {
        affine(&visit::subst_index(index, &self.unrolled))
    }

    /// Emits an index.
    pub fn index(&mut self, index: &Index) -> Result<Number<'c>> {
        let sum = self.sum(index);
        self.emit_sum(&sum)
    }

    /// Emits a sum, in the order of its variables' depth.
    pub fn emit_sum(&mut self, sum: &Affine) -> Result<Number<'c>> {
        let mut terms: Vec<(u32, &Index, i64)> =
            sum.terms.iter().map(|(atom, factor)| (self.depth(atom), atom, *factor)).collect();
        terms.sort_by_key(|t| t.0);
        let mut total: Option<Number<'c>> = None;
        for (_, atom, factor) in terms {
            let atom = self.atom(atom)?;
            total = Some(match (total, factor) {
                // a - b rather than a + b * -1.
                (Some(sum), -1) => self.arithmetic(IndexOp::Sub, sum, atom)?,
                (sum, factor) => {
                    let factor = self.constant(factor.into());
                    let term = self.arithmetic(IndexOp::Mul, atom, factor)?;
                    match sum {
                        Some(sum) => self.arithmetic(IndexOp::Add, sum, term)?,
                        None => term,
                    }
                }
            });
        }
        let constant = self.constant(sum.constant.into());
        match total {
            Some(total) => self.arithmetic(IndexOp::Add, total, constant),
            None => Ok(constant),
        }
    }

    /// A constant.
    pub fn constant(&self, value: i128) -> Number<'c> {
        let range = (value, value);
        let bits = if fits_i32(range) { 32 } else { 64 };
        Number { value: self.b.int(bits, value as i64), range }
    }

    /// The index in a width; it must fit.
    pub fn widened(&self, number: Number<'c>, bits: u32) -> Result<IntValue<'c>> {
        let op = match bits.cmp(&number.bits()) {
            std::cmp::Ordering::Equal => return Ok(number.value),
            std::cmp::Ordering::Less => InstructionOpcode::Trunc,
            std::cmp::Ordering::Greater if number.is_natural() => InstructionOpcode::ZExt,
            std::cmp::Ordering::Greater => InstructionOpcode::SExt,
        };
        let to = self.b.int(bits, 0).get_type();
        Ok(self.b.cast(op, number.value.into(), to.into())?.into_int_value())
    }

    pub(super) fn depth(&self, index: &Index) -> u32 {
        let mut deepest = 0;
        index.for_each_var(&mut |v| deepest = deepest.max(self.variables.get(&v).map_or(0, |x| x.depth)));
        deepest
    }

    /// Emits what a variable that represents a datum is in scope of.
    pub fn with_datum<T>(
        &mut self,
        var: Var,
        number: Number<'c>,
        emit: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outside = self.variables.insert(var, Variable { number, depth: u32::MAX });
        let emitted = emit(self);
        match outside {
            Some(variable) => self.variables.insert(var, variable),
            None => self.variables.remove(&var),
        };
        emitted
    }

    fn variable(&self, var: Var) -> Result<Number<'c>> {
        let known = self.variables.get(&var).map(|v| v.number);
        known.ok_or_else(|| bug(format!("variable {} is used outside its loop", self.name_of(var))))
    }

    fn atom(&mut self, atom: &Index) -> Result<Number<'c>> {
        match atom {
            Index::Int(v) => Ok(self.constant(i128::from(*v))),
            Index::Var(v) => self.variable(*v),
            Index::Bin(IndexOp::FloorDiv, a, b)
                if let Some(lanes) = b.as_int().filter(|n| n % LANES == 0)
                    && let Some(warps) = self.in_warps(a) =>
            {
                let warps = self.emit_sum(&affine(&warps))?;
                self.arithmetic(IndexOp::FloorDiv, warps, self.constant((lanes / LANES).into()))
            }
            Index::Bin(IndexOp::FloorMod, a, b)
                if let Some(modulus) = b.as_int()
                    && let Some(counted) = self.counted(&affine(a), modulus)? =>
            {
                Ok(counted)
            }
            Index::Bin(op, a, b) => {
                let (a, b) = (self.emit_sum(&affine(a))?, self.emit_sum(&affine(b))?);
                self.arithmetic(*op, a, b)
            }
        }
    }

    /// What 32 divides a number of threads to, in terms of the number of the warp. All lanes have that alike, and ptxas knows it:
    /// what it cannot tell to be the same for all keeps a loop around it from addresses in uniform registers.
    fn in_warps(&self, threads: &Index) -> Option<Index> {
        let (thread, warp) = self.warp?;
        let sum = affine(threads);
        // One term has the lane, whole warps are the rest.
        let mut lanes = 0;
        let mut warps = Index::Int(Some(sum.constant).filter(|c| c % LANES == 0)? / LANES);
        for (atom, factor) in &sum.terms {
            let term = match atom {
                _ if factor % LANES == 0 => atom.clone() * (factor / LANES),
                _ if *factor != 1 => return None,
                Index::Var(v) if *v == thread => Index::Var(warp),
                Index::Bin(IndexOp::FloorMod, a, b) => {
                    let modulus = b.as_int().filter(|n| n % LANES == 0)?;
                    self.in_warps(a)?.floormod(modulus / LANES)
                }
                _ => return None,
            };
            lanes += i32::from(factor % LANES != 0);
            warps = warps + term;
        }
        (lanes == 1).then_some(warps)
    }

    fn arithmetic(&mut self, op: IndexOp, a: Number<'c>, b: Number<'c>) -> Result<Number<'c>> {
        match (op, a.constant(), b.constant()) {
            (IndexOp::Add | IndexOp::Sub, _, Some(0)) | (IndexOp::Mul | IndexOp::FloorDiv, _, Some(1)) => Ok(a),
            (IndexOp::Add, Some(0), _) => Ok(b),
            (IndexOp::Add | IndexOp::Sub | IndexOp::Mul, ..) => self.ring(op, a, b),
            (IndexOp::FloorDiv | IndexOp::FloorMod, ..) => self.divide(op, a, b),
            (IndexOp::Xor, ..) => self.exclusive(a, b),
            (IndexOp::Min | IndexOp::Max, ..) => self.extreme(op, a, b),
        }
    }

    /// Both in the width that holds them and the result.
    fn together(&self, a: Number<'c>, b: Number<'c>, result: Range) -> Result<(u32, IntValue<'c>, IntValue<'c>)> {
        let narrow = fits_i32(a.range) && fits_i32(b.range) && fits_i32(result);
        let bits = if narrow { 32 } else { 64 };
        Ok((bits, self.widened(a, bits)?, self.widened(b, bits)?))
    }

    fn ring(&self, op: IndexOp, a: Number<'c>, b: Number<'c>) -> Result<Number<'c>> {
        let (exact, opcode) = match op {
            IndexOp::Add => ((a.range.0 + b.range.0, a.range.1 + b.range.1), InstructionOpcode::Add),
            IndexOp::Sub => ((a.range.0 - b.range.1, a.range.1 - b.range.0), InstructionOpcode::Sub),
            _ => (times(a.range, b.range), InstructionOpcode::Mul),
        };
        let range = clamp(exact);
        let (_, x, y) = self.together(a, b, range)?;
        let value = match range == exact {
            true => {
                let natural = a.is_natural() && b.is_natural() && range.0 >= 0;
                self.b.exact(opcode, x, y, natural)?
            }
            false => self.b.binary(opcode, x.into(), y.into())?.into_int_value(),
        };
        Ok(Number { value, range })
    }

    /// Quotient or remainder with floor rounding. Unsigned where both sides are known not to be negative.
    pub(super) fn divide(&mut self, op: IndexOp, a: Number<'c>, b: Number<'c>) -> Result<Number<'c>> {
        let range = divided(op, a.range, b.range);
        if a.is_natural() && b.range.0 > 0 {
            if op == IndexOp::FloorMod && a.range.1 < b.range.0 {
                return Ok(a);
            }
            let (bits, x, y) = self.together(a, b, range)?;
            let shifts = b.constant().is_some_and(|by| by & (by - 1) == 0);
            if op == IndexOp::FloorDiv && range == (0, 1) && !shifts {
                let once = self.b.compare_int(IntPredicate::UGE, x.into(), y.into())?;
                let (one, none) = (self.b.int(bits, 1).into(), self.b.int(bits, 0).into());
                return Ok(Number { value: self.b.select(once, one, none)?.into_int_value(), range });
            }
            // The quotient is 0 or 1, so a comparison and a subtraction are enough.
            if op == IndexOp::FloorMod && b.constant().is_none() && a.range.1 < 2 * b.range.0 {
                let once = self.b.compare_int(IntPredicate::UGE, x.into(), y.into())?;
                let less = self.b.binary(InstructionOpcode::Sub, x.into(), y.into())?;
                return Ok(Number { value: self.b.select(once, less, x.into())?.into_int_value(), range });
            }
            let opcode = if op == IndexOp::FloorDiv { InstructionOpcode::UDiv } else { InstructionOpcode::URem };
            return Ok(Number { value: self.b.binary(opcode, x.into(), y.into())?.into_int_value(), range });
        }
        let (bits, x, y) = self.together(a, b, range)?;
        if let Some(power) = b.constant().filter(|&b| b > 0 && b & (b - 1) == 0) {
            // Two's complement shifts and masks round down.
            let (op, by) = match op {
                IndexOp::FloorDiv => (InstructionOpcode::AShr, i64::from(power.trailing_zeros())),
                _ => (InstructionOpcode::And, power as i64 - 1),
            };
            let value = self.b.binary(op, x.into(), self.b.int(bits, by).into())?;
            return Ok(Number { value: value.into_int_value(), range });
        }
        let y = if b.range.0 <= 0 && b.range.1 >= 0 { self.nonzero(bits, y)? } else { y.into() };
        let value = self.floor_divide(op, bits, x.into(), y)?.into_int_value();
        Ok(Number { value, range })
    }

    /// LLVM's division by zero is undefined; ours is by 1 instead, and its value is never used.
    fn nonzero(&self, bits: u32, y: IntValue<'c>) -> Result<Value<'c>> {
        let (zero, one) = (self.b.int(bits, 0).into(), self.b.int(bits, 1).into());
        let is_zero = self.b.compare_int(IntPredicate::EQ, y.into(), zero)?;
        self.b.select(is_zero, one, y.into())
    }

    /// Signed floor division: the truncated one, corrected where the remainder's sign is not the divisor's.
    fn floor_divide(&self, op: IndexOp, bits: u32, x: Value<'c>, y: Value<'c>) -> Result<Value<'c>> {
        let zero: Value = self.b.int(bits, 0).into();
        let remainder = self.b.binary(InstructionOpcode::SRem, x, y)?;
        let mixed = self.b.binary(InstructionOpcode::Xor, remainder, y)?;
        let other_sign = self.b.compare_int(IntPredicate::SLT, mixed, zero)?;
        let uneven = self.b.compare_int(IntPredicate::NE, remainder, zero)?;
        let correct = self.b.binary(InstructionOpcode::And, other_sign, uneven)?;
        match op {
            IndexOp::FloorDiv => {
                let quotient = self.b.binary(InstructionOpcode::SDiv, x, y)?;
                let less = self.b.binary(InstructionOpcode::Sub, quotient, self.b.int(bits, 1).into())?;
                self.b.select(correct, less, quotient)
            }
            _ => {
                let more = self.b.binary(InstructionOpcode::Add, remainder, y)?;
                self.b.select(correct, more, remainder)
            }
        }
    }

    /// Of numbers that are not negative.
    fn exclusive(&self, a: Number<'c>, b: Number<'c>) -> Result<Number<'c>> {
        let bits = 128 - (a.range.1.max(0) | b.range.1.max(0)).leading_zeros();
        let range = clamp((0, (1 << bits.min(100)) - 1));
        let (_, x, y) = self.together(a, b, range)?;
        Ok(Number { value: self.b.binary(InstructionOpcode::Xor, x.into(), y.into())?.into_int_value(), range })
    }

    fn extreme(&self, op: IndexOp, a: Number<'c>, b: Number<'c>) -> Result<Number<'c>> {
        let (range, name) = match op {
            IndexOp::Min => ((a.range.0.min(b.range.0), a.range.1.min(b.range.1)), "llvm.smin"),
            _ => ((a.range.0.max(b.range.0), a.range.1.max(b.range.1)), "llvm.smax"),
        };
        let (_, x, y) = self.together(a, b, range)?;
        let value = self.b.intrinsic(name, &[x.get_type().into()], &[x.into(), y.into()])?.into_int_value();
        Ok(Number { value, range })
    }

    /// Emits a condition: one truth value. All parts are evaluated; none has an effect.
    pub fn condition(&mut self, cond: &Cond) -> Result<Value<'c>> {
        match cond {
            Cond::Const(c) => Ok(self.b.truth(*c).into()),
            Cond::Cmp(op, a, b) => {
                let (a, b) = (self.index(a)?, self.index(b)?);
                if let Some(known) = decided(*op, a.range, b.range) {
                    return Ok(self.b.truth(known).into());
                }
                let (_, x, y) = self.together(a, b, a.range)?;
                self.b.compare_int(signed(*op), x.into(), y.into())
            }
            Cond::And(a, b) => {
                let (a, b) = (self.condition(a)?, self.condition(b)?);
                self.b.binary(InstructionOpcode::And, a, b)
            }
            Cond::Or(a, b) => {
                let (a, b) = (self.condition(a)?, self.condition(b)?);
                self.b.binary(InstructionOpcode::Or, a, b)
            }
            Cond::Not(a) => {
                let a = self.condition(a)?;
                self.b.binary(InstructionOpcode::Xor, a, self.b.truth(true).into())
            }
        }
    }
}

/// What a quotient or remainder can be.
fn divided(op: IndexOp, a: Range, b: Range) -> Range {
    let floor = |x: i128, y: i128| x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0);
    match op {
        IndexOp::FloorDiv if b.0 > 0 || b.1 < 0 => {
            clamp(hull(&[floor(a.0, b.0), floor(a.0, b.1), floor(a.1, b.0), floor(a.1, b.1)]))
        }
        IndexOp::FloorMod if b.0 > 0 => (0, if a.0 >= 0 { a.1.min(b.1 - 1) } else { b.1 - 1 }),
        IndexOp::FloorMod if b.1 < 0 => (b.0 + 1, 0),
        _ => ANY,
    }
}

/// The verdict of a comparison, where the ranges alone tell.
fn decided(op: CmpOp, a: Range, b: Range) -> Option<bool> {
    let always = |yes: bool, no: bool| if yes { Some(true) } else { no.then_some(false) };
    match op {
        CmpOp::Lt => always(a.1 < b.0, a.0 >= b.1),
        CmpOp::Le => always(a.1 <= b.0, a.0 > b.1),
        CmpOp::Gt => always(a.0 > b.1, a.1 <= b.0),
        CmpOp::Ge => always(a.0 >= b.1, a.1 < b.0),
        CmpOp::Eq => always(a.0 == a.1 && a == b, a.1 < b.0 || b.1 < a.0),
        CmpOp::Ne => always(a.1 < b.0 || b.1 < a.0, a.0 == a.1 && a == b),
    }
}

/// The comparison of signed numbers.
pub fn signed(op: CmpOp) -> IntPredicate {
    match op {
        CmpOp::Lt => IntPredicate::SLT,
        CmpOp::Le => IntPredicate::SLE,
        CmpOp::Eq => IntPredicate::EQ,
        CmpOp::Ne => IntPredicate::NE,
        CmpOp::Ge => IntPredicate::SGE,
        CmpOp::Gt => IntPredicate::SGT,
    }
}

/// The comparison of unsigned numbers.
pub fn unsigned(op: CmpOp) -> IntPredicate {
    match op {
        CmpOp::Lt => IntPredicate::ULT,
        CmpOp::Le => IntPredicate::ULE,
        CmpOp::Eq => IntPredicate::EQ,
        CmpOp::Ne => IntPredicate::NE,
        CmpOp::Ge => IntPredicate::UGE,
        CmpOp::Gt => IntPredicate::UGT,
    }
}
