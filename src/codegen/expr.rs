//! Data expressions.
//!
//! A product that is added or subtracted is one fused operation with one rounding; no other arithmetic is rewritten.
//! bf16 is computed in f32 and rounded after every operation, which gives the same bits as arithmetic in bf16 and runs
//! on every chip; 8-bit floats are computed so too. Integers wrap; a division by zero gives 0.

use super::body::Body;
use super::builder::{Type, Value};
use super::index::{Number, signed, unsigned};
use super::packed::is_packed;
use super::session::bug;
use super::value::{Data, computed_in, is_unsigned};
use crate::dtype::{Class, DType};
use crate::error::Result;
use crate::ir::{BinOp, CmpOp, Expr, UnOp, visit};
use inkwell::FloatPredicate;
use inkwell::IntPredicate;
use inkwell::values::InstructionOpcode as Op;

impl<'c> Body<'c, '_, '_> {
    /// Emits an expression.
    pub fn expr(&mut self, expr: &Expr) -> Result<Data<'c>> {
        match expr {
            Expr::Const(dtype, literal) => {
                Ok(Data { value: self.b.literal(*dtype, *literal)?, dtype: *dtype, lanes: 1 })
            }
            Expr::Index(dtype, index) => {
                let number = self.index(index)?;
                let value = self.widened(number, 64)?.into();
                self.cast(*dtype, Data { value, dtype: DType::S64, lanes: 1 })
            }
            Expr::Cond(cond) => Ok(Data { value: self.condition(cond)?, dtype: DType::Bool, lanes: 1 }),
            Expr::Load { buffer, indices, lanes } => self.load(*buffer, indices, *lanes),
            Expr::Splat(lanes, a) => {
                let a = self.expr(a)?;
                self.splat(a, *lanes)
            }
            Expr::Shuffle(mask, a) => {
                let a = self.expr(a)?;
                self.shuffle(*mask, a)
            }
            Expr::Un(op, a) => {
                let a = self.expr(a)?;
                self.unary(*op, a)
            }
            Expr::Bin(op, a, b) => self.binary_expr(*op, a, b),
            Expr::Cmp(op, a, b) => {
                let (a, b) = self.pair(a, b)?;
                self.compare(*op, a, b)
            }
            Expr::Select(c, a, b) => self.select(c, a, b),
            Expr::Cast(dtype, a) => {
                if let Some(wide) = self.part_to_halves(*dtype, a)? {
                    return Ok(wide);
                }
                let a = self.expr(a)?;
                self.cast(*dtype, a)
            }
            Expr::Gather { var, low, extent, index, value } => {
                let number = self.datum_index(index, (*low, *extent))?;
                self.with_datum(*var, number, |body| body.expr(value))
            }
        }
    }

    /// A datum as an index, less its least value. That it is one of the values is the program's contract.
    pub fn datum_index(&mut self, index: &Expr, (low, extent): (i64, i64)) -> Result<Number<'c>> {
        let datum = self.expr(index)?;
        if datum.lanes != 1 {
            return Err(bug(format!("{} lanes of an index", datum.lanes)));
        }
        let wide = self.cast(DType::S64, datum)?.value;
        let last = low.saturating_add(extent - 1);
        let narrow = [low, last, extent - 1].iter().all(|v| i32::try_from(*v).is_ok());
        let bits = if narrow { 32 } else { 64 };
        let whole = self.b.int(bits, 0).get_type();
        let value = if narrow { self.b.cast(Op::Trunc, wide, whole.into())? } else { wide };
        let value = match low {
            0 => value,
            _ => self.b.binary(Op::Sub, value, self.b.int(bits, low).into())?,
        };
        Ok(Number { value: value.into_int_value(), range: (0, i128::from(extent) - 1) })
    }

    /// A scalar in every lane; a vector of as many lanes as it is.
    pub fn splat(&self, a: Data<'c>, lanes: u32) -> Result<Data<'c>> {
        match (a.lanes, lanes) {
            (from, to) if from == to => Ok(a),
            (1, 1..) if is_packed(a.dtype) => Ok(Data { value: self.b.repeated(a.value, a.dtype, lanes)?, lanes, ..a }),
            (1, 1..) => Ok(Data { value: self.b.gather(&vec![a.value; lanes as usize])?, lanes, ..a }),
            _ => Err(bug(format!("{} lanes where {lanes} are needed", a.lanes))),
        }
    }

    /// The value of the lane of the warp whose number differs in the bits of the mask, 32 bits at a time.
    fn shuffle(&self, mask: u32, a: Data<'c>) -> Result<Data<'c>> {
        let bits = a.dtype.bits();
        if a.lanes != 1 || is_packed(a.dtype) || !matches!(bits, 8 | 16 | 32 | 64) {
            return Err(bug(format!("a shuffle of {} of {} lanes", a.dtype, a.lanes)));
        }
        let function = self.b.declared("llvm.nvvm.shfl.sync.bfly.i32", &[])?;
        let exchange = |word: Value<'c>| {
            let all =
                [self.b.int(32, -1).into(), word, self.b.int(32, i64::from(mask)).into(), self.b.int(32, 31).into()];
            match self.b.together(function, &all)? {
                inkwell::values::ValueKind::Basic(value) => Ok(value),
                inkwell::values::ValueKind::Instruction(_) => Err(bug("a shuffle has no value")),
            }
        };
        let (plain, word): (Type<'c>, Type<'c>) = (self.b.int(bits, 0).get_type().into(), self.b.i32().into());
        let ty = a.value.get_type();
        let value = self.b.reinterpret(a.value, plain)?;
        let moved = match bits {
            32 => exchange(value)?,
            64 => {
                let half = self.b.int(64, 32).into();
                let low = exchange(self.b.cast(Op::Trunc, value, word)?)?;
                let high = self.b.binary(Op::LShr, value, half)?;
                let high = exchange(self.b.cast(Op::Trunc, high, word)?)?;
                let (low, high) = (self.b.cast(Op::ZExt, low, plain)?, self.b.cast(Op::ZExt, high, plain)?);
                self.b.binary(Op::Or, low, self.b.binary(Op::Shl, high, half)?)?
            }
            _ => {
                let wide = exchange(self.b.cast(Op::ZExt, value, word)?)?;
                self.b.cast(Op::Trunc, wide, plain)?
            }
        };
        Ok(Data { value: self.b.reinterpret(moved, ty)?, ..a })
    }

    /// Two operands of one type; a scalar beside a vector is in every lane.
    fn pair(&mut self, a: &Expr, b: &Expr) -> Result<(Data<'c>, Data<'c>)> {
        let (a, b) = (self.expr(a)?, self.expr(b)?);
        self.alike(a, b)
    }

    fn alike(&self, a: Data<'c>, b: Data<'c>) -> Result<(Data<'c>, Data<'c>)> {
        if a.dtype != b.dtype {
            return Err(bug(format!("one operation on {} and {}", a.dtype, b.dtype)));
        }
        let lanes = a.lanes.max(b.lanes);
        Ok((self.splat(a, lanes)?, self.splat(b, lanes)?))
    }

    fn binary_expr(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Result<Data<'c>> {
        let product = |e: &Expr| matches!(e, Expr::Bin(BinOp::Mul, ..));
        if matches!(op, BinOp::Add | BinOp::Sub) && (product(a) || product(b)) {
            return self.multiply_add(op, a, b);
        }
        let (x, y) = self.pair(a, b)?;
        match self.on_small_pairs(op, (a, b), x, y)? {
            Some(small) => Ok(small),
            None => self.binary(op, x, y),
        }
    }

    /// `x * y + c`, `x * y - c`, `c + x * y` and `c - x * y`, fused for floats. A product on the right goes first.
    fn multiply_add(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Result<Data<'c>> {
        let (left, right, product_right) = match (a, b) {
            (_, Expr::Bin(BinOp::Mul, x, y)) => (self.expr(a)?, self.pair(x, y)?, true),
            (Expr::Bin(BinOp::Mul, x, y), _) => {
                let product = self.pair(x, y)?;
                (self.expr(b)?, product, false)
            }
            _ => return Err(bug("no multiplication to fuse")),
        };
        let (addend, (x, y)) = (left, right);
        if !x.dtype.is_float() {
            let product = self.binary(BinOp::Mul, x, y)?;
            let (a, b) = if product_right { (addend, product) } else { (product, addend) };
            let (a, b) = self.alike(a, b)?;
            return self.binary(op, a, b);
        }
        let (x, addend) = match (op, product_right) {
            (BinOp::Sub, true) => (self.unary(UnOp::Neg, x)?, addend),
            (BinOp::Sub, false) => (x, self.unary(UnOp::Neg, addend)?),
            _ => (x, addend),
        };
        let (x, addend) = self.alike(x, addend)?;
        let y = self.splat(y, x.lanes)?;
        self.fused(x, y, addend)
    }

    fn fused(&self, x: Data<'c>, y: Data<'c>, c: Data<'c>) -> Result<Data<'c>> {
        self.wide(&[x, y, c], |values, ty| self.b.intrinsic("llvm.fma", &[ty], values))
    }

    /// Runs a float operation in the operands' type, or for bf16, tf32 and 8-bit floats in f32 with one rounding after it.
    fn wide(
        &self,
        operands: &[Data<'c>],
        f: impl FnOnce(&[Value<'c>], super::builder::Type<'c>) -> Result<Value<'c>>,
    ) -> Result<Data<'c>> {
        let Some(first) = operands.first().copied() else { return Err(bug("an operation on nothing")) };
        let dtype = computed_in(first.dtype);
        let values: Vec<Value> =
            operands.iter().map(|o| self.cast(dtype, *o).map(|d| d.value)).collect::<Result<_>>()?;
        let value = f(&values, self.b.shape(dtype, first.lanes)?)?;
        self.cast(first.dtype, Data { value, dtype, lanes: first.lanes })
    }

    fn binary(&self, op: BinOp, a: Data<'c>, b: Data<'c>) -> Result<Data<'c>> {
        match a.dtype.class() {
            _ if is_packed(a.dtype) => self.in_bytes(&[a, b], |v| self.binary(op, v[0], v[1])),
            Class::Float => self.float_binary(op, a, b),
            _ => {
                let value = self.int_binary(op, a, b)?;
                Ok(Data { value, ..a })
            }
        }
    }

    fn float_binary(&self, op: BinOp, a: Data<'c>, b: Data<'c>) -> Result<Data<'c>> {
        if op == BinOp::Pow {
            return self.power(a, b);
        }
        // f16 has no division, and minimum and maximum only from sm_80 on; in f32 they are exact or round the same.
        if a.dtype == DType::F16 && matches!(op, BinOp::Div | BinOp::Min | BinOp::Max) {
            let (wide_a, wide_b) = (self.cast(DType::F32, a)?, self.cast(DType::F32, b)?);
            let wide = self.float_binary(op, wide_a, wide_b)?;
            return self.cast(DType::F16, wide);
        }
        self.wide(&[a, b], |v, ty| match op {
            BinOp::Add => self.b.binary(Op::FAdd, v[0], v[1]),
            BinOp::Sub => self.b.binary(Op::FSub, v[0], v[1]),
            BinOp::Mul => self.b.binary(Op::FMul, v[0], v[1]),
            BinOp::Div => self.b.binary(Op::FDiv, v[0], v[1]),
            BinOp::Min => self.b.intrinsic("llvm.minnum", &[ty], v),
            BinOp::Max => self.b.intrinsic("llvm.maxnum", &[ty], v),
            BinOp::And | BinOp::Or | BinOp::Xor | BinOp::Shl | BinOp::Shr | BinOp::Pow => {
                Err(bug(format!("a bit operation on {}", a.dtype)))
            }
        })
    }

    fn int_binary(&self, op: BinOp, a: Data<'c>, b: Data<'c>) -> Result<Value<'c>> {
        let (x, y) = (a.value, b.value);
        let is_unsigned = is_unsigned(a.dtype);
        let extreme = |signed: &str, unsigned: &str| {
            let name = if is_unsigned { unsigned } else { signed };
            self.b.intrinsic(name, &[x.get_type()], &[x, y])
        };
        match op {
            BinOp::Add => self.b.binary(Op::Add, x, y),
            BinOp::Sub => self.b.binary(Op::Sub, x, y),
            BinOp::Mul => self.b.binary(Op::Mul, x, y),
            BinOp::And => self.b.binary(Op::And, x, y),
            BinOp::Or => self.b.binary(Op::Or, x, y),
            BinOp::Xor => self.b.binary(Op::Xor, x, y),
            BinOp::Min => extreme("llvm.smin", "llvm.umin"),
            BinOp::Max => extreme("llvm.smax", "llvm.umax"),
            BinOp::Div => self.divide_data(a, b),
            BinOp::Shl | BinOp::Shr => self.shift(op, a, b),
            BinOp::Pow => Err(bug(format!("a power of {}", a.dtype))),
        }
    }

    /// Rounds towards zero. LLVM leaves division by zero, and the smallest number by -1, undefined; here they are 0
    /// and the smallest number.
    fn divide_data(&self, a: Data<'c>, b: Data<'c>) -> Result<Value<'c>> {
        let number = |v: f64| self.b.number(a.dtype, a.lanes, v);
        let zero = number(0.0)?;
        let by_zero = self.b.compare_int(IntPredicate::EQ, b.value, zero)?;
        let divisor = self.b.select(by_zero, number(1.0)?, b.value)?;
        if is_unsigned(a.dtype) {
            let quotient = self.b.binary(Op::UDiv, a.value, divisor)?;
            return self.b.select(by_zero, zero, quotient);
        }
        let by_minus_one = self.b.compare_int(IntPredicate::EQ, b.value, number(-1.0)?)?;
        let divisor = self.b.select(by_minus_one, number(1.0)?, divisor)?;
        let quotient = self.b.binary(Op::SDiv, a.value, divisor)?;
        let negated = self.b.binary(Op::Sub, zero, a.value)?;
        let quotient = self.b.select(by_minus_one, negated, quotient)?;
        self.b.select(by_zero, zero, quotient)
    }

    /// Shifts left by the width or more, or by negative amounts, push every bit out; shifts right by more than the last
    /// bit are by the last bit, by negative amounts by none.
    fn shift(&self, op: BinOp, a: Data<'c>, b: Data<'c>) -> Result<Value<'c>> {
        let bits = if a.dtype == DType::Bool { 1 } else { a.dtype.bits() };
        let (ty, unsigned) = (a.value.get_type(), is_unsigned(a.dtype));
        let last = self.b.number(a.dtype, a.lanes, f64::from(bits - 1))?;
        let by = self.b.intrinsic("llvm.umin", &[ty], &[b.value, last])?;
        if op == BinOp::Shr && !unsigned {
            let zero = self.b.number(a.dtype, a.lanes, 0.0)?;
            let positive = self.b.intrinsic("llvm.smax", &[ty], &[b.value, zero])?;
            return self.b.binary(Op::AShr, a.value, self.b.intrinsic("llvm.smin", &[ty], &[positive, last])?);
        }
        let inside = self.b.compare_int(IntPredicate::ULE, b.value, last)?;
        let opcode = if op == BinOp::Shr { Op::LShr } else { Op::Shl };
        self.or_zero(inside, self.b.binary(opcode, a.value, by)?, a)
    }

    fn or_zero(&self, keep: Value<'c>, value: Value<'c>, like: Data<'c>) -> Result<Value<'c>> {
        self.b.select(keep, value, self.b.number(like.dtype, like.lanes, 0.0)?)
    }

    fn compare(&self, op: CmpOp, a: Data<'c>, b: Data<'c>) -> Result<Data<'c>> {
        if is_packed(a.dtype) {
            return self.compare(op, self.spread_out(a)?, self.spread_out(b)?);
        }
        let value = if a.dtype.is_float() {
            let dtype = computed_in(a.dtype);
            let (a, b) = (self.cast(dtype, a)?, self.cast(dtype, b)?);
            self.b.compare_float(ordered(op), a.value, b.value)?
        } else {
            let predicate = if is_unsigned(a.dtype) { unsigned(op) } else { signed(op) };
            self.b.compare_int(predicate, a.value, b.value)?
        };
        Ok(Data { value, dtype: DType::Bool, lanes: a.lanes })
    }

    /// A choice. A side that reads memory is evaluated only where it is chosen if the condition is about indices: such
    /// a condition may be what keeps the access inside its buffer.
    fn select(&mut self, condition: &Expr, a: &Expr, b: &Expr) -> Result<Data<'c>> {
        let mut about_indices = false;
        visit::walk_expr(condition, &mut |e| about_indices |= matches!(e, Expr::Cond(_)));
        let reads = |e: &Expr| {
            let mut found = false;
            visit::walk_expr(e, &mut |e| found |= matches!(e, Expr::Load { .. }));
            found
        };
        if let Expr::Cond(cond) = condition
            && (reads(a) || reads(b))
            && let Some(known) = self.decided(cond)
        {
            return self.expr(if known { a } else { b });
        }
        let c = self.expr(condition)?;
        if c.dtype != DType::Bool {
            return Err(bug(format!("a condition of type {}", c.dtype)));
        }
        if about_indices && c.lanes == 1 && (reads(a) || reads(b)) {
            return self.choose(c.value, a, b);
        }
        let (a, b) = self.pair(a, b)?;
        let c = if c.lanes == 1 { c } else { self.splat(c, a.lanes)? };
        if is_packed(a.dtype) && c.lanes > 1 {
            let by_lane = |v: &[Data<'c>]| Ok(Data { value: self.b.select(c.value, v[0].value, v[1].value)?, ..v[0] });
            return self.in_bytes(&[a, b], by_lane);
        }
        Ok(Data { value: self.b.select(c.value, a.value, b.value)?, ..a })
    }

    fn choose(&mut self, condition: Value<'c>, a: &Expr, b: &Expr) -> Result<Data<'c>> {
        if let Value::IntValue(c) = condition
            && let Some(known) = c.get_zero_extended_constant()
        {
            return self.expr(if known != 0 { a } else { b });
        }
        let (yes, no, after) = (self.new_block("chosen"), self.new_block("other"), self.new_block("joined"));
        self.b.branch(condition, yes, no)?;
        self.conditions += 1;
        self.b.at_end(yes);
        let a = self.expr(a)?;
        let yes_end = self.b.here()?;
        self.b.at_end(no);
        let b = self.expr(b)?;
        self.conditions -= 1;
        // A scalar beside a vector is widened in its own block.
        let b = self.splat(b, a.lanes.max(b.lanes))?;
        let no_end = self.b.here()?;
        self.b.jump(after)?;
        self.b.at_end(yes_end);
        let a = self.splat(a, b.lanes)?;
        self.b.jump(after)?;
        self.b.at_end(after);
        if a.dtype != b.dtype {
            return Err(bug(format!("a choice between {} and {}", a.dtype, b.dtype)));
        }
        Ok(Data { value: self.b.join((a.value, yes_end), (b.value, no_end))?, ..a })
    }

    /// An operation on one operand.
    pub fn unary(&self, op: UnOp, a: Data<'c>) -> Result<Data<'c>> {
        match (op, a.dtype.class()) {
            _ if is_packed(a.dtype) => self.in_bytes(&[a], |v| self.unary(op, v[0])),
            (UnOp::Neg | UnOp::Abs, Class::Float) => self.sign(op, a),
            (UnOp::Not, Class::Float) => Err(bug(format!("not of {}", a.dtype))),
            (_, Class::Float) => self.function(op, a),
            (UnOp::Not, _) => {
                let ones = self.b.number(a.dtype, a.lanes, -1.0)?;
                Ok(Data { value: self.b.binary(Op::Xor, a.value, ones)?, ..a })
            }
            (UnOp::Neg, _) => {
                let zero = self.b.number(a.dtype, a.lanes, 0.0)?;
                Ok(Data { value: self.b.binary(Op::Sub, zero, a.value)?, ..a })
            }
            (UnOp::Abs, _) if is_unsigned(a.dtype) => Ok(a),
            (UnOp::Abs, _) => {
                let wraps = self.b.truth(false).into();
                let value = self.b.intrinsic("llvm.abs", &[a.value.get_type()], &[a.value, wraps])?;
                Ok(Data { value, ..a })
            }
            _ => Err(bug(format!("{op:?} of {}", a.dtype))),
        }
    }

    /// Negation and magnitude: of the sign bit alone.
    fn sign(&self, op: UnOp, a: Data<'c>) -> Result<Data<'c>> {
        self.wide(&[a], |v, ty| match op {
            UnOp::Abs => self.b.intrinsic("llvm.fabs", &[ty], v),
            _ => self.b.negate(v[0]),
        })
    }
}

/// Comparisons are false with a NaN, except "not equal".
fn ordered(op: CmpOp) -> FloatPredicate {
    match op {
        CmpOp::Lt => FloatPredicate::OLT,
        CmpOp::Le => FloatPredicate::OLE,
        CmpOp::Eq => FloatPredicate::OEQ,
        CmpOp::Ne => FloatPredicate::UNE,
        CmpOp::Ge => FloatPredicate::OGE,
        CmpOp::Gt => FloatPredicate::OGT,
    }
}
