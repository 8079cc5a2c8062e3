//! Compiling indices: linear forms over slots, computed where their innermost variable changes, each once.
//!
//! Arithmetic stays exact because no index compiles whose value, or any part of it, could leave 62 bits.

use super::code::{Op, Operand, Slot};
use super::compile::{Compiler, IN_PLACE};
use crate::error::{Code, Error, Result};
use crate::ir::{CmpOp, Cond, Index, IndexOp, Var};
use std::collections::BTreeMap;

/// What a variable represents.
#[derive(Debug, Clone)]
pub(super) enum Meaning {
    /// Slots.
    Slots(Operand),
    /// An index over other variables.
    Index(Index),
}

/// A sum of slots with coefficients. The keys carry the level first: sums are built from outside inwards.
#[derive(Debug, Clone, Default)]
struct Linear {
    scalars: BTreeMap<(u32, Slot), i64>,
    vectors: BTreeMap<(u32, Slot), i64>,
    constant: i64,
}

/// What a slot holds: the key under which a value is computed only once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum IndexValue {
    Constant(i64),
    Mad { vector: bool, base: Slot, src: Slot, coeff: i64 },
    Bin { op: IndexOp, a: Operand, b: Operand },
}

fn overflow() -> Error {
    Error::input(Code::SimOverflow, "an index could exceed 62 bits")
}

/// The largest magnitude that an index may reach.
const LARGEST: i128 = 1 << 62;

impl Compiler<'_> {
    /// The slots of an index.
    pub fn operand(&mut self, index: &Index) -> Result<Operand> {
        self.interval(index)?;
        let linear = self.linear(index)?;
        Ok(self.place(&linear))
    }

    fn linear(&mut self, index: &Index) -> Result<Linear> {
        match index {
            Index::Int(v) => Ok(Linear { constant: *v, ..Linear::default() }),
            Index::Var(v) => match self.vars.get(v).cloned() {
                Some(Meaning::Slots(o)) => Ok(self.term(o)),
                Some(Meaning::Index(i)) => self.linear(&i),
                None => Err(self.unbound(*v)),
            },
            Index::Bin(op, a, b) => {
                let (a, b) = (self.linear(a)?, self.linear(b)?);
                match op {
                    IndexOp::Add => sum(a, &b, 1),
                    IndexOp::Sub => sum(a, &b, -1),
                    IndexOp::Mul if b.is_constant() => sum(Linear::default(), &a, b.constant),
                    IndexOp::Mul if a.is_constant() => sum(Linear::default(), &b, a.constant),
                    _ => {
                        let (a, b) = (self.place(&a), self.place(&b));
                        let o = self.bin(*op, a, b);
                        Ok(self.term(o))
                    }
                }
            }
        }
    }

    pub(super) fn unbound(&self, var: Var) -> Error {
        let name = self.func.vars.get(var.0 as usize).map_or("?", String::as_str);
        Error::input(Code::SimUnbound, format!("variable {name} is used outside its loop"))
    }

    fn term(&self, o: Operand) -> Linear {
        let mut out = Linear::default();
        if o.scalar != 0 {
            out.scalars.insert((self.scalar_level[o.scalar as usize], o.scalar), 1);
        }
        if o.vector != 0 {
            out.vectors.insert((self.vector_level[o.vector as usize], o.vector), 1);
        }
        out
    }

    /// Slots for a sum.
    fn place(&mut self, linear: &Linear) -> Operand {
        let mut scalar = self.constant(linear.constant);
        for (&(_, src), &coeff) in &linear.scalars {
            scalar = self.mad(false, scalar, src, coeff);
        }
        let mut vector = 0;
        for (&(_, src), &coeff) in &linear.vectors {
            vector = self.mad(true, vector, src, coeff);
        }
        Operand { scalar, vector }
    }

    pub(super) fn constant(&mut self, v: i64) -> Slot {
        if v == 0 {
            return 0;
        }
        if let Some(&s) = self.memo.get(&IndexValue::Constant(v)) {
            return s;
        }
        let slot = self.new_scalar(0);
        self.scalars[slot as usize] = v;
        self.memo.insert(IndexValue::Constant(v), slot);
        slot
    }

    fn mad(&mut self, vector: bool, base: Slot, src: Slot, coeff: i64) -> Slot {
        if coeff == 0 {
            return base;
        }
        if base == 0 && coeff == 1 {
            return src;
        }
        let key = IndexValue::Mad { vector, base, src, coeff };
        if let Some(&s) = self.memo.get(&key) {
            return s;
        }
        let levels = if vector { &self.vector_level } else { &self.scalar_level };
        let level = levels[base as usize].max(levels[src as usize]);
        let dst = if vector { self.new_vector(level) } else { self.new_scalar(level) };
        let op = if vector { Op::VectorMad { dst, base, src, coeff } } else { Op::Mad { dst, base, src, coeff } };
        self.emit_at(level, op);
        // What is computed in one branch is not there in another.
        if level != IN_PLACE {
            self.memo.insert(key, dst);
        }
        dst
    }

    fn bin(&mut self, op: IndexOp, a: Operand, b: Operand) -> Operand {
        let vector = a.vector != 0 || b.vector != 0;
        let level = self.level(a).max(self.level(b));
        let key = IndexValue::Bin { op, a, b };
        let dst = match self.memo.get(&key) {
            Some(&s) => s,
            None => {
                let dst = if vector { self.new_vector(level) } else { self.new_scalar(level) };
                self.emit_at(
                    level,
                    if vector {
                        Op::Vector { op, dst, a, b }
                    } else {
                        Op::Scalar { op, dst, a: a.scalar, b: b.scalar }
                    },
                );
                if level != IN_PLACE {
                    self.memo.insert(key, dst);
                }
                dst
            }
        };
        if vector { Operand { scalar: 0, vector: dst } } else { Operand { scalar: dst, vector: 0 } }
    }

    fn level(&self, o: Operand) -> u32 {
        self.scalar_level[o.scalar as usize].max(self.vector_level[o.vector as usize])
    }

    /// The least and the largest value that an index can have, not minding conditions. An error where a part could
    /// overflow or a divisor be zero.
    pub fn interval(&self, index: &Index) -> Result<(i128, i128)> {
        let range = match index {
            Index::Int(v) => (i128::from(*v), i128::from(*v)),
            Index::Var(v) => *self.ranges.get(v).ok_or_else(|| self.unbound(*v))?,
            Index::Bin(op, a, b) => {
                let (a, b) = (self.interval(a)?, self.interval(b)?);
                if matches!(op, IndexOp::FloorDiv | IndexOp::FloorMod) && b.0 <= 0 && b.1 >= 0 {
                    return Err(Error::input(Code::SimDivision, "an index could be divided by zero"));
                }
                combine(*op, a, b)
            }
        };
        if range.0 < -LARGEST || range.1 > LARGEST { Err(overflow()) } else { Ok(range) }
    }

    /// Compiles a condition: one mask more on the stack of conditions.
    pub fn cond(&mut self, cond: &Cond) -> Result<()> {
        match cond {
            Cond::Const(c) => self.emit(Op::TestConst(*c)),
            Cond::Cmp(op, a, b) => {
                let (a, b) = (self.operand(a)?, self.operand(b)?);
                self.emit(Op::Test { op: *op, a, b });
            }
            Cond::And(a, b) | Cond::Or(a, b) => {
                self.cond(a)?;
                self.cond(b)?;
                self.emit(if matches!(cond, Cond::And(..)) { Op::TestAnd } else { Op::TestOr });
            }
            Cond::Not(a) => {
                self.cond(a)?;
                self.emit(Op::TestNot);
            }
        }
        Ok(())
    }

    /// Whether a condition holds wherever it is evaluated.
    pub fn always(&self, cond: &Cond) -> Result<bool> {
        Ok(match cond {
            Cond::Const(c) => *c,
            Cond::Cmp(op, a, b) => {
                let (a, b) = (self.interval(a)?, self.interval(b)?);
                match op {
                    CmpOp::Lt => a.1 < b.0,
                    CmpOp::Le => a.1 <= b.0,
                    CmpOp::Ge => a.0 >= b.1,
                    CmpOp::Gt => a.0 > b.1,
                    CmpOp::Eq => a.0 == a.1 && a == b,
                    CmpOp::Ne => a.1 < b.0 || a.0 > b.1,
                }
            }
            Cond::And(a, b) => self.always(a)? && self.always(b)?,
            Cond::Or(a, b) => self.always(a)? || self.always(b)?,
            Cond::Not(_) => false,
        })
    }
}

fn combine(op: IndexOp, a: (i128, i128), b: (i128, i128)) -> (i128, i128) {
    let corners = |f: &dyn Fn(i128, i128) -> i128| {
        let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
        (all.into_iter().fold(i128::MAX, i128::min), all.into_iter().fold(i128::MIN, i128::max))
    };
    match op {
        IndexOp::Add => (a.0 + b.0, a.1 + b.1),
        IndexOp::Sub => (a.0 - b.1, a.1 - b.0),
        IndexOp::Mul => corners(&|x, y| x * y),
        IndexOp::FloorDiv => corners(&floor_div),
        // A divisor of one sign gives remainders of that sign; a dividend already within them is left as it is.
        IndexOp::FloorMod if b.0 > 0 => {
            if a.0 >= 0 && a.1 < b.0 {
                a
            } else {
                (0, (b.1 - 1).min(if a.0 >= 0 { a.1 } else { b.1 }))
            }
        }
        IndexOp::FloorMod => (b.0 + 1, 0),
        IndexOp::Min => (a.0.min(b.0), a.1.min(b.1)),
        IndexOp::Max => (a.0.max(b.0), a.1.max(b.1)),
        // Of numbers that are not negative; anything else the simulator refuses to compute.
        IndexOp::Xor => (0, ((a.1.max(0) | b.1.max(0)) as u128 + 1).next_power_of_two() as i128 - 1),
    }
}

fn floor_div(a: i128, b: i128) -> i128 {
    let q = a / b;
    if a % b != 0 && ((a < 0) != (b < 0)) { q - 1 } else { q }
}

impl Linear {
    fn is_constant(&self) -> bool {
        self.scalars.is_empty() && self.vectors.is_empty()
    }
}

/// `a + b * factor`.
fn sum(mut a: Linear, b: &Linear, factor: i64) -> Result<Linear> {
    let add = |x: i64, y: i64| y.checked_mul(factor).and_then(|y| x.checked_add(y)).ok_or_else(overflow);
    a.constant = add(a.constant, b.constant)?;
    for (mine, theirs) in [(&mut a.scalars, &b.scalars), (&mut a.vectors, &b.vectors)] {
        for (key, coeff) in theirs {
            let entry = mine.entry(*key).or_insert(0);
            *entry = add(*entry, *coeff)?;
            if *entry == 0 {
                mine.remove(key);
            }
        }
    }
    Ok(a)
}
