//! Ranges of the integers of an LLVM function that hold for every thread, whatever branch it takes.
//!
//! LLVM's passes infer flags from the branches that dominate an instruction. This analysis does not look at branches, apart
//! from the back edge of a loop, which bounds the loop's own counters: a header executes once per trip, and only the
//! back edge leads from one trip to the next.

use super::poison::called_name;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::context::ContextRef;
use inkwell::values::{
    AsValueRef, BasicValue, BasicValueEnum, FunctionValue, InstructionOpcode as Op, InstructionValue, IntValue,
    Operand, PhiValue,
};
use std::collections::HashMap;

/// What is known of an integer of at most 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Smallest value, read as signed.
    pub low: i128,
    /// Largest value, read as signed.
    pub high: i128,
    /// Bits that are zero.
    pub zeros: u64,
}

/// The bits of a width.
fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The smallest and the largest signed value of a width.
fn signed(bits: u32) -> (i128, i128) {
    (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
}

impl Range {
    fn any(bits: u32) -> Range {
        let (low, high) = signed(bits);
        Range { low, high, zeros: 0 }
    }

    /// Between two bounds, which the width holds; otherwise any value.
    fn between(bits: u32, low: i128, high: i128, zeros: u64) -> Range {
        let (least, most) = signed(bits);
        if low < least || high > most || low > high {
            return Range { zeros: zeros & mask(bits), ..Range::any(bits) };
        }
        let mut zeros = zeros & mask(bits);
        let mut high = high;
        if low >= 0 {
            high = high.min(i128::from(mask(bits) & !zeros)).max(low);
            zeros |= mask(bits) & !mask(128 - high.leading_zeros());
        }
        Range { low, high, zeros }
    }

    fn constant(bits: u32, value: i64) -> Range {
        Range { low: value.into(), high: value.into(), zeros: !(value as u64) & mask(bits) }
    }

    fn as_constant(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    fn is_natural(self) -> bool {
        self.low >= 0
    }

    fn trailing(self) -> u32 {
        self.zeros.trailing_ones()
    }

    fn hull(self, other: Range, bits: u32) -> Range {
        Range::between(bits, self.low.min(other.low), self.high.max(other.high), self.zeros & other.zeros)
    }
}

/// The ranges of a function's integers.
pub struct Ranges(HashMap<usize, Range>);

/// Sweeps over a function. The second one knows of values that later blocks define.
const SWEEPS: usize = 2;

impl Ranges {
    /// Computes the ranges.
    pub fn of(function: FunctionValue) -> Ranges {
        let mut ranges = Ranges(HashMap::new());
        for _ in 0..SWEEPS {
            for block in function.get_basic_block_iter() {
                for instruction in block.get_instructions() {
                    if let Some(range) = ranges.evaluate(instruction) {
                        ranges.0.insert(instruction.as_value_ref() as usize, range);
                    }
                }
            }
        }
        ranges
    }

    /// The range of a value; `None` for vectors, floats, pointers and wide integers.
    pub fn get(&self, value: BasicValueEnum) -> Option<Range> {
        let BasicValueEnum::IntValue(value) = value else { return None };
        let bits = width(value)?;
        let known = || self.0.get(&(value.as_value_ref() as usize)).copied().unwrap_or(Range::any(bits));
        Some(value.get_sign_extended_constant().map_or_else(known, |c| Range::constant(bits, c)))
    }

    /// The range of an operand.
    pub fn operand(&self, of: InstructionValue, at: u32) -> Option<Range> {
        self.get(operand(of, at)?)
    }

    fn evaluate(&self, i: InstructionValue) -> Option<Range> {
        let bits = width(IntValue::try_from(i).ok()?)?;
        let any = Range::any(bits);
        Some(match i.get_opcode() {
            op @ (Op::Add | Op::Sub | Op::Mul) => {
                let (low, high) = exact(op, self.operand(i, 0)?, self.operand(i, 1)?);
                Range::between(bits, low, high, self.zeros_of_integers(op, i))
            }
            Op::Shl => self
                .shifted(i, bits, |a, by| Range::between(bits, a.low << by, a.high << by, a.zeros << by | mask(by)))?,
            Op::LShr => self.shifted(i, bits, |a, by| {
                let (low, high) = if a.is_natural() { (a.low, a.high) } else { (0, mask(bits).into()) };
                Range::between(bits, low >> by, high >> by, a.zeros >> by)
            })?,
            Op::AShr => self.shifted(i, bits, |a, by| Range::between(bits, a.low >> by, a.high >> by, 0))?,
            Op::And => {
                let (a, b) = (self.operand(i, 0)?, self.operand(i, 1)?);
                let naturals = [a, b].into_iter().filter(|r| r.is_natural()).map(|r| r.high).min();
                naturals.map_or(Range { zeros: a.zeros | b.zeros, ..any }, |high| {
                    Range::between(bits, 0, high, a.zeros | b.zeros)
                })
            }
            op @ (Op::Or | Op::Xor) => {
                let (a, b) = (self.operand(i, 0)?, self.operand(i, 1)?);
                let zeros = a.zeros & b.zeros;
                match a.is_natural() && b.is_natural() {
                    true => {
                        let low = if op == Op::Or { a.low.max(b.low) } else { 0 };
                        Range::between(bits, low, i128::from(mask(bits) & !zeros), zeros)
                    }
                    false => Range { zeros, ..any },
                }
            }
            Op::UDiv | Op::URem => self.divided(i, bits)?,
            Op::SDiv | Op::SRem => {
                let natural = self.operand(i, 0)?.is_natural() && self.operand(i, 1)?.low > 0;
                let by = self.operand(i, 1)?.as_constant();
                match (natural, i.get_opcode(), by) {
                    (true, ..) => self.divided(i, bits)?,
                    (_, Op::SRem, Some(by)) if by > 0 => Range::between(bits, 1 - by, by - 1, 0),
                    _ => any,
                }
            }
            Op::ZExt => {
                let from = width(int(operand(i, 0)?)?)?;
                let a = self.operand(i, 0)?;
                let zeros = a.zeros | (mask(bits) & !mask(from));
                let (low, high) = if a.is_natural() { (a.low, a.high) } else { (0, mask(from).into()) };
                Range::between(bits, low, high, zeros)
            }
            Op::SExt => {
                let a = self.operand(i, 0)?;
                Range::between(bits, a.low, a.high, if a.is_natural() { a.zeros } else { a.zeros & (mask(bits) >> 1) })
            }
            Op::Trunc => {
                let a = self.operand(i, 0)?;
                Range::between(bits, a.low, a.high, a.zeros)
            }
            Op::Select => self.chosen(i, bits)?,
            Op::Phi => self.phi(i, bits)?,
            Op::Call => self.called(i, bits)?,
            _ => any,
        })
    }

    /// Bits that are zero in a sum, a difference or a product modulo the width: those below the lowest one of an operand.
    fn zeros_of_integers(&self, op: Op, i: InstructionValue) -> u64 {
        let [a, b] = [0, 1].map(|n| self.operand(i, n).map_or(0, Range::trailing));
        mask(if op == Op::Mul { (a + b).min(64) } else { a.min(b) })
    }

    /// A shift by a constant below the width.
    fn shifted(&self, i: InstructionValue, bits: u32, shift: impl FnOnce(Range, u32) -> Range) -> Option<Range> {
        let by = self.operand(i, 1)?.as_constant().and_then(|by| u32::try_from(by).ok()).filter(|by| *by < bits);
        let a = self.operand(i, 0)?;
        Some(by.map_or(Range::any(bits), |by| shift(a, by)))
    }

    /// An unsigned quotient or remainder.
    fn divided(&self, i: InstructionValue, bits: u32) -> Option<Range> {
        let (a, b) = (self.operand(i, 0)?, self.operand(i, 1)?);
        if b.low <= 0 {
            return Some(Range::any(bits));
        }
        let (low, high) = if a.is_natural() { (a.low, a.high) } else { (0, mask(bits).into()) };
        Some(match i.get_opcode() {
            Op::UDiv | Op::SDiv => Range::between(bits, low / b.high, high / b.low, 0),
            _ => Range::between(bits, 0, high.min(b.high - 1), 0),
        })
    }

    /// A select. Where an arm is the number that its condition compares, or that number and a constant, the condition bounds it.
    fn chosen(&self, i: InstructionValue, bits: u32) -> Option<Range> {
        let condition = operand(i, 0)?.as_instruction_value().filter(|c| c.get_opcode() == Op::ICmp);
        let arm = |at: u32, holds: bool| {
            let value = operand(i, at)?;
            let own = self.get(value)?;
            let Some(c) = condition else { return Some(own) };
            let compared = operand(c, 0)?;
            let bound = self.get(operand(c, 1)?)?.as_constant();
            let (Some(bound), Some(predicate)) = (bound, c.get_icmp_predicate()) else { return Some(own) };
            let (base, offset) = if value == compared { (value, 0) } else { plus_constant(value) };
            if base != compared {
                return Some(own);
            }
            let narrowed = narrowed(self.get(compared)?, predicate, holds, bound);
            let (low, high) = (narrowed.0 + i128::from(offset), narrowed.1 + i128::from(offset));
            // The sum wraps for no value of the narrowed range, if its bounds are values of the type.
            let (least, most) = signed(bits);
            let fits = low >= least && high <= most && low <= high;
            Some(if fits { Range::between(bits, low.max(own.low), high.min(own.high), own.zeros) } else { own })
        };
        Some(arm(1, true)?.hull(arm(2, false)?, bits))
    }

    /// The number that a loop's header takes from the block before and from the loop's end, or the join of two values.
    fn phi(&self, i: InstructionValue, bits: u32) -> Option<Range> {
        let phi = PhiValue::try_from(i).ok()?;
        let header = i.get_parent()?;
        let incoming: Vec<(BasicValueEnum, BasicBlock)> = phi.get_incomings().collect();
        let known = |v: BasicValueEnum| {
            v.as_instruction_value().is_none_or(|i| self.0.contains_key(&(i.as_value_ref() as usize)))
        };
        let this = i.as_value_ref();
        if let [(a, from_a), (b, from_b)] = incoming[..] {
            for (start, next, latch) in [(a, b, from_b), (b, a, from_a)] {
                if let Some(range) = self.counter(this as usize, header, start, next, latch, bits) {
                    return Some(range);
                }
            }
        }
        if !incoming.iter().all(|(v, _)| known(*v)) {
            return Some(Range::any(bits));
        }
        let mut ranges = incoming.iter().map(|(v, _)| self.get(*v));
        let first = ranges.next()??;
        ranges.try_fold(first, |all, one| Some(all.hull(one?, bits)))
    }

    /// A counter: `next` is the phi and a step that is not negative, or goes back below a modulus.
    fn counter(
        &self,
        phi: usize,
        header: BasicBlock,
        start: BasicValueEnum,
        next: BasicValueEnum,
        latch: BasicBlock,
        bits: u32,
    ) -> Option<Range> {
        let first = self.get(start).filter(|r| r.is_natural())?;
        let next = next.as_instruction_value()?;
        if next.get_opcode() == Op::Select {
            return self.ring(phi, first, next, bits);
        }
        let step = self.step(phi, next)?;
        let end = self.last(header, latch, next)?;
        let by_trips = || Some(first.high + end.trips?.checked_sub(1)?.checked_mul(step.high)?);
        let high = match end.next_below {
            Some(below) => [Some(below - 1), by_trips()].into_iter().flatten().min()?.max(first.high),
            None => by_trips()?.max(first.high),
        };
        // The phi and a step do not wrap, so every value of the phi is at least the first one.
        let fits = high + step.high <= signed(bits).1;
        fits.then(|| Range::between(bits, first.low, high, mask(first.trailing().min(step.trailing()))))
    }

    /// What a phi grows by, if `next` is its sum with a number that is not negative.
    fn step(&self, phi: usize, next: InstructionValue) -> Option<Range> {
        if next.get_opcode() != Op::Add {
            return None;
        }
        let (a, b) = (operand(next, 0)?, operand(next, 1)?);
        let other = match (a.as_value_ref() as usize == phi, b.as_value_ref() as usize == phi) {
            (true, false) => b,
            (false, true) => a,
            _ => return None,
        };
        self.get(other).filter(|r| r.is_natural())
    }

    /// `next = sum < modulus ? sum : sum - modulus`, where `sum` is the phi and a step of at most the modulus.
    fn ring(&self, phi: usize, first: Range, next: InstructionValue, bits: u32) -> Option<Range> {
        let condition = operand(next, 0)?.as_instruction_value().filter(|c| c.get_opcode() == Op::ICmp)?;
        let sum = operand(condition, 0)?;
        let step = self.step(phi, sum.as_instruction_value()?)?;
        let bound = self.operand(condition, 1)?.as_constant()?;
        let (kept, reduced, modulus) = match condition.get_icmp_predicate()? {
            IntPredicate::ULT => (1, 2, bound),
            IntPredicate::UGE => (2, 1, bound),
            IntPredicate::UGT => (2, 1, bound + 1),
            _ => return None,
        };
        let (base, offset) = plus_constant(operand(next, reduced)?);
        let same = operand(next, kept)?.as_value_ref() == sum.as_value_ref();
        // The difference may have been folded into the sum: phi + (step - modulus).
        let folded = base.as_value_ref() as usize == phi
            && step.as_constant().is_some_and(|s| i128::from(offset) == s - modulus);
        let plain = base.as_value_ref() == sum.as_value_ref() && i128::from(offset) == -modulus;
        let fits = first.high < modulus && step.high <= modulus && modulus * 2 <= signed(bits).1;
        (same && (plain || folded) && fits).then(|| Range::between(bits, 0, modulus - 1, 0))
    }

    /// How far a loop goes, by the branch at its end.
    fn last(&self, header: BasicBlock, latch: BasicBlock, of: InstructionValue) -> Option<End> {
        let branch = latch.get_terminator()?;
        let (Op::Br, 3) = (branch.get_opcode(), branch.get_num_operands()) else { return None };
        // Operands of a conditional branch: the condition, where it goes if that is false, and if it is true.
        let (Operand::Block(no), Operand::Block(yes)) = (branch.get_operand(1)?, branch.get_operand(2)?) else {
            return None;
        };
        if (no == header) == (yes == header) {
            return None;
        }
        let condition = operand(branch, 0)?.as_instruction_value().filter(|c| c.get_opcode() == Op::ICmp)?;
        let bound = self.operand(condition, 1)?.as_constant()?;
        let holds = yes == header;
        let compared = operand(condition, 0)?;
        // The number compared counts the trips of this loop: a phi of the header, or the next value of one.
        let (start, step, ahead) = self.primary(header, latch, compared)?;
        let below = match (condition.get_icmp_predicate()?, holds) {
            (IntPredicate::ULT | IntPredicate::SLT, true) | (IntPredicate::UGE | IntPredicate::SGE, false) => bound,
            (IntPredicate::ULE | IntPredicate::SLE, true) | (IntPredicate::UGT | IntPredicate::SGT, false) => bound + 1,
            (IntPredicate::NE, true) | (IntPredicate::EQ, false) => {
                let first = start.as_constant()? + ahead.high;
                let step = step.as_constant().filter(|s| *s > 0)?;
                (bound >= first && (bound - first) % step == 0).then_some(bound)?
            }
            _ => return None,
        };
        // The number that leaves the loop is below the bound and a step, and does not wrap.
        let (_, most) = signed(width(int(compared)?)?);
        if below < 0 || below + step.high > most {
            return None;
        }
        // After a trip that is followed by another one, what was compared is below the bound.
        let trips = (step.low > 0).then(|| {
            let first = start.low + ahead.low;
            if below <= first { 1 } else { (below - first + step.low - 1) / step.low + 1 }
        });
        let same = of.as_value_ref() == compared.as_value_ref();
        Some(End { trips, next_below: same.then_some(below) })
    }

    /// Of a number that a loop's end compares: the first value of its phi, the step, and how far ahead of the phi it is.
    fn primary(
        &self,
        header: BasicBlock,
        latch: BasicBlock,
        compared: BasicValueEnum,
    ) -> Option<(Range, Range, Range)> {
        let compared = compared.as_instruction_value()?;
        for i in header.get_instructions().take_while(|i| i.get_opcode() == Op::Phi) {
            let incoming: Vec<_> = PhiValue::try_from(i).ok()?.get_incomings().collect();
            let [(a, from_a), (b, from_b)] = incoming[..] else { continue };
            let (start, next) = if from_b == latch {
                (a, b)
            } else if from_a == latch {
                (b, a)
            } else {
                continue;
            };
            let id = i.as_value_ref() as usize;
            let Some(step) = next.as_instruction_value().and_then(|n| self.step(id, n)) else { continue };
            let Some(start) = self.get(start).filter(|r| r.is_natural()) else { continue };
            if compared.as_value_ref() == next.as_value_ref() {
                return Some((start, step, step));
            }
            if compared.as_value_ref() as usize == id {
                return Some((start, step, Range { low: 0, high: 0, zeros: 0 }));
            }
        }
        None
    }

    /// A special register, whose range codegen states, or an extreme of two numbers.
    fn called(&self, i: InstructionValue, bits: u32) -> Option<Range> {
        if let Some(range) = stated(i, bits) {
            return Some(range);
        }
        let name = called_name(i);
        let name = name.as_deref().unwrap_or_default();
        let is = |prefix: &str| name.starts_with(prefix);
        if is("llvm.smin.") || is("llvm.smax.") || is("llvm.umin.") || is("llvm.umax.") {
            let (a, b) = (self.operand(i, 0)?, self.operand(i, 1)?);
            let natural = a.is_natural() && b.is_natural();
            let zeros = a.zeros & b.zeros;
            return Some(match (is("llvm.smin.") || is("llvm.umin."), is("llvm.s") || natural) {
                (_, false) => Range { zeros, ..Range::any(bits) },
                (true, _) => Range::between(bits, a.low.min(b.low), a.high.min(b.high), zeros),
                (false, _) => Range::between(bits, a.low.max(b.low), a.high.max(b.high), zeros),
            });
        }
        // A lane gets the value of some lane.
        if name == "llvm.nvvm.shfl.sync.idx.i32" {
            return self.operand(i, 1);
        }
        Some(Range::any(bits))
    }
}

/// How far a loop goes.
struct End {
    /// At most how often its body executes.
    trips: Option<i128>,
    /// A bound of the counter's next value wherever another trip follows.
    next_below: Option<i128>,
}

fn width(value: IntValue) -> Option<u32> {
    Some(value.get_type().get_bit_width()).filter(|bits| (1..=64).contains(bits))
}

fn int(value: BasicValueEnum) -> Option<IntValue> {
    match value {
        BasicValueEnum::IntValue(value) => Some(value),
        _ => None,
    }
}

/// An operand that is a value.
pub fn operand(of: InstructionValue<'_>, at: u32) -> Option<BasicValueEnum<'_>> {
    match of.get_operand(at)? {
        Operand::Value(value) => Some(value),
        Operand::Block(_) => None,
    }
}

/// The exact range of a sum, a difference or a product.
pub fn exact(op: Op, a: Range, b: Range) -> (i128, i128) {
    match op {
        Op::Add => (a.low + b.low, a.high + b.high),
        Op::Sub => (a.low - b.high, a.high - b.low),
        _ => {
            let all = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high];
            all.iter().fold((i128::MAX, i128::MIN), |(low, high), v| (low.min(*v), high.max(*v)))
        }
    }
}

/// A value as another one and a constant.
fn plus_constant(value: BasicValueEnum<'_>) -> (BasicValueEnum<'_>, i64) {
    let added = || {
        let i = value.as_instruction_value()?;
        let by = int(operand(i, 1)?)?.get_sign_extended_constant()?;
        match i.get_opcode() {
            Op::Add => Some((operand(i, 0)?, by)),
            Op::Sub => Some((operand(i, 0)?, by.checked_neg()?)),
            _ => None,
        }
    };
    added().unwrap_or((value, 0))
}

/// The bounds of a number that compares so with a constant.
fn narrowed(of: Range, predicate: IntPredicate, holds: bool, bound: i128) -> (i128, i128) {
    use IntPredicate::*;
    let unsigned = matches!(predicate, ULT | ULE | UGT | UGE);
    // Unsigned and signed comparisons are the same for numbers that are not negative.
    if unsigned && !(of.is_natural() && bound >= 0) {
        return (of.low, of.high);
    }
    match (predicate, holds) {
        (ULT | SLT, true) | (UGE | SGE, false) => (of.low, of.high.min(bound - 1)),
        (ULE | SLE, true) | (UGT | SGT, false) => (of.low, of.high.min(bound)),
        (UGT | SGT, true) | (ULE | SLE, false) => (of.low.max(bound + 1), of.high),
        (UGE | SGE, true) | (ULT | SLT, false) => (of.low.max(bound), of.high),
        (EQ, true) | (NE, false) => (of.low.max(bound), of.high.min(bound)),
        _ => (of.low, of.high),
    }
}

/// The range that the metadata of an instruction states.
fn stated(i: InstructionValue, bits: u32) -> Option<Range> {
    let context: ContextRef = i.get_parent()?.get_context();
    let node = i.get_metadata(context.get_kind_id("range"))?;
    let values = node.get_node_values()?;
    let number = |at: usize| match values.get(at)? {
        inkwell::values::BasicMetadataValueEnum::IntValue(v) => v.get_sign_extended_constant(),
        _ => None,
    };
    let (low, end) = (number(0)?, number(1)?);
    (values.len() == 2 && low < end).then(|| Range::between(bits, low.into(), i128::from(end) - 1, 0))
}
