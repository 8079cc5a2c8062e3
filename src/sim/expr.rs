//! Compiling data expressions for the register stack: operands from the top, the result in the place of the first.

use super::code::{Op, Operand, Slot};
use super::compile::{Compiler, IN_PLACE};
use super::index::Meaning;
use super::memory::kind_in;
use super::value::NumberKind;
use super::{integer, value};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::typing::gather_range;
use crate::ir::{Expr, Literal, Var, print};

/// The type of a value and its number of lanes (of the vector, not of the warp).
type Typed = (DType, u32);

/// The most lanes of a vector: single bits of 16 bytes.
const MOST_LANES: u32 = 128;

/// The most registers that one statement may need.
const MOST_REGISTERS: u32 = 1 << 12;

impl Compiler<'_> {
    /// Compiles a value into register 0 and demands a type.
    pub fn typed(&mut self, e: &Expr, expected: Typed) -> Result<DType> {
        let found = self.expr(e, 0)?;
        if found != expected {
            return Err(self.mismatch(e, found, expected));
        }
        Ok(found.0)
    }

    fn mismatch(&self, e: &Expr, found: Typed, expected: Typed) -> Error {
        let text = print::expr(self.func, e);
        let message = format!("{text} is {} of {} lanes, expected {} of {}", found.0, found.1, expected.0, expected.1);
        Error::input(Code::SimType, message)
    }

    fn kind(&self, dtype: DType) -> NumberKind {
        kind_in(self.plan.integer, dtype)
    }

    /// Compiles an expression; the result is in registers from `dst` on.
    fn expr(&mut self, e: &Expr, dst: Slot) -> Result<Typed> {
        if dst > MOST_REGISTERS {
            return Err(Error::input(Code::SimSize, "an expression is too deep for the simulator"));
        }
        let typed = self.expr_inner(e, dst)?;
        self.registers = self.registers.max(dst + typed.1);
        Ok(typed)
    }

    fn expr_inner(&mut self, e: &Expr, dst: Slot) -> Result<Typed> {
        match e {
            Expr::Const(dtype, literal) => self.literal(*dtype, *literal, dst),
            Expr::Index(dtype, index) => {
                let at = self.operand(index)?;
                self.emit(Op::Datum { dst, at, dtype: *dtype, kind: self.kind(*dtype) });
                Ok((*dtype, 1))
            }
            Expr::Cond(cond) => {
                self.cond(cond)?;
                self.emit(Op::Truth { dst });
                Ok((DType::Bool, 1))
            }
            Expr::Load { buffer, indices, lanes } => {
                let access = self.access(*buffer, indices, *lanes)?;
                self.emit(Op::Load { dst, access });
                Ok((self.buffer(*buffer)?.dtype, *lanes))
            }
            Expr::Splat(lanes, a) => self.splat(*lanes, a, dst),
            Expr::Shuffle(mask, a) => {
                let (dtype, lanes) = self.expr(a, dst)?;
                self.emit(Op::Shuffle { dst, lanes, mask: *mask });
                Ok((dtype, lanes))
            }
            Expr::Un(op, a) => {
                let (dtype, lanes) = self.expr(a, dst)?;
                self.emit(Op::Un { op: *op, dtype, kind: self.kind(dtype), dst, lanes });
                Ok((dtype, lanes))
            }
            Expr::Bin(op, a, b) => {
                let (dtype, lanes) = self.pair(a, b, dst)?;
                self.emit(Op::Bin { op: *op, dtype, kind: self.kind(dtype), dst, lanes });
                Ok((dtype, lanes))
            }
            Expr::Cmp(op, a, b) => {
                let (dtype, lanes) = self.pair(a, b, dst)?;
                self.emit(Op::Cmp { op: *op, kind: self.kind(dtype), dst, lanes });
                Ok((DType::Bool, lanes))
            }
            Expr::Select(c, a, b) => self.select(c, a, b, dst),
            Expr::Cast(to, a) => {
                let (from, lanes) = self.expr(a, dst)?;
                self.emit(Op::Cast { from, to: *to, integer: self.plan.integer, dst, lanes });
                Ok((*to, lanes))
            }
            Expr::Gather { var, low, extent, index, value } => self.gather(*var, (*low, *extent), index, value, dst),
        }
    }

    /// Gives a variable the value of a datum and compiles what is read there.
    fn gather(&mut self, var: Var, (low, extent): (i64, i64), index: &Expr, value: &Expr, dst: Slot) -> Result<Typed> {
        let (dtype, lanes) = self.expr(index, dst)?;
        if lanes != 1 || gather_range(dtype).is_none() {
            return Err(self.mismatch(index, (dtype, lanes), (DType::S32, 1)));
        }
        let slot = self.new_vector(IN_PLACE);
        let what = self.gathers.len() as u32;
        self.gathers.push(print::expr(self.func, index));
        let range = (low, low.saturating_add(extent));
        self.emit(Op::Gather { src: dst, dst: slot, range, dtype, integer: self.plan.integer, what });
        let meaning = Meaning::Slots(Operand { scalar: 0, vector: slot });
        let outside = self.vars.insert(var, meaning);
        self.ranges.insert(var, (0, i128::from(extent) - 1));
        let typed = self.expr(value, dst);
        match outside {
            Some(meaning) => self.vars.insert(var, meaning),
            None => self.vars.remove(&var),
        };
        typed
    }

    fn literal(&mut self, dtype: DType, literal: Literal, dst: Slot) -> Result<Typed> {
        let integer = || u64::from(integer::literal(literal));
        let bits = if self.plan.integer { integer() } else { value::literal(dtype, literal) };
        self.emit(Op::Const { dst, bits });
        Ok((dtype, 1))
    }

    fn splat(&mut self, lanes: u32, a: &Expr, dst: Slot) -> Result<Typed> {
        let (dtype, one) = self.expr(a, dst)?;
        if one != 1 || lanes == 0 || lanes > MOST_LANES {
            return Err(self.mismatch(a, (dtype, one), (dtype, 1)));
        }
        self.emit(Op::Splat { dst, lanes });
        Ok((dtype, lanes))
    }

    fn pair(&mut self, a: &Expr, b: &Expr, dst: Slot) -> Result<Typed> {
        let left = self.expr(a, dst)?;
        let right = self.expr(b, dst + left.1)?;
        if left == right { Ok(left) } else { Err(self.mismatch(b, right, left)) }
    }

    fn select(&mut self, c: &Expr, a: &Expr, b: &Expr, dst: Slot) -> Result<Typed> {
        let (truth, masks) = self.expr(c, dst)?;
        if truth != DType::Bool {
            return Err(self.mismatch(c, (truth, masks), (DType::Bool, masks)));
        }
        let mut sides = [(DType::Bool, 0); 2];
        let mut next = dst + masks;
        for (i, side) in [a, b].into_iter().enumerate() {
            self.emit(Op::TestRegister { src: dst, lanes: masks, want: i == 0 });
            self.inside_branch(|compiler| {
                sides[i] = compiler.expr(side, next)?;
                Ok(())
            })?;
            next += sides[i].1;
        }
        let [left, right] = sides;
        if left != right || (masks != 1 && masks != left.1) {
            return Err(self.mismatch(b, right, left));
        }
        self.emit(Op::Select { dst, masks, lanes: left.1 });
        Ok(left)
    }
}
