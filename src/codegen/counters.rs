//! Where rings go round: remainders that a loop counts instead of dividing.
//!
//! The slot of a run of a loop is a remainder by the number of slots. Where that is no power of two, each division is a chain of
//! multiplications, and a warpgroup that multiplies alone leaves the tensor cores idle for as long. A remainder of a sum that
//! grows by the same amount from run to run is carried from one to the next instead: what it begins with is computed in front
//! of the loop, its next value at the loop's end.

use super::body::Body;
use super::index::Number;
use crate::error::Result;
use crate::ir::simplify::Affine;
use crate::ir::{Index, IndexOp, Var};
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{InstructionOpcode, IntValue};

/// A loop at run time around what is being written.
pub struct Rolled<'c> {
    /// What counts its trips.
    pub var: Var,
    /// How deep what precedes it was introduced at most.
    pub depth: u32,
    /// The block in front of it, and its first one.
    pub from: BasicBlock<'c>,
    pub body: BasicBlock<'c>,
    counters: Vec<Counter<'c>>,
}

/// A remainder that a loop counts.
struct Counter<'c> {
    of: Affine,
    modulus: i64,
    /// How much it grows in a trip; less than the modulus.
    step: i64,
    number: Number<'c>,
}

impl<'c> Rolled<'c> {
    /// A loop that counts nothing yet.
    pub fn new(var: Var, depth: u32, from: BasicBlock<'c>, body: BasicBlock<'c>) -> Rolled<'c> {
        Rolled { var, depth, from, body, counters: Vec::new() }
    }
}

impl<'c> Body<'c, '_, '_> {
    /// The remainder of a sum as the loop around counts it; `None` where it has to be divided. Masks are left as they are.
    pub(super) fn counted(&mut self, sum: &Affine, modulus: i64) -> Result<Option<Number<'c>>> {
        if self.func.mbarriers.is_empty() || modulus < 3 || modulus & (modulus - 1) == 0 {
            return Ok(None);
        }
        let Some(at) = self.rolled.iter().rposition(|l| sum.mentions(l.var)) else { return Ok(None) };
        let Rolled { var, depth, from, body, ref counters } = self.rolled[at];
        if let Some(known) = counters.iter().find(|c| c.modulus == modulus && c.of == *sum) {
            return Ok(Some(known.number));
        }
        let rest: Vec<(Index, i64)> =
            sum.terms.iter().filter(|(atom, _)| atom.as_var() != Some(var)).cloned().collect();
        let step = sum.coefficient(var);
        if !(1..modulus).contains(&step) || rest.iter().any(|(atom, _)| self.depth(atom) > depth) {
            return Ok(None);
        }
        let here = self.b.here()?;
        self.b.before_end(from);
        let first = self.emit_sum(&Affine { terms: rest, constant: sum.constant })?;
        if first.range.0 < 0 {
            self.b.before_end(here);
            return Ok(None);
        }
        let first = self.remainder(first, modulus)?;
        self.b.before_first(body);
        let value = self.b.induction(first, from, "")?.into_int_value();
        // Where what is in front of a loop is itself counted by one around it, the block has its end already.
        self.b.before_end(here);
        let number = Number { value, range: (0, i128::from(modulus) - 1) };
        self.rolled[at].counters.push(Counter { of: sum.clone(), modulus, step, number });
        Ok(Some(number))
    }

    /// A number that is not negative by a constant, in 32 bits.
    fn remainder(&mut self, number: Number<'c>, modulus: i64) -> Result<IntValue<'c>> {
        let by = self.constant(modulus.into());
        let remainder = self.divide(IndexOp::FloorMod, number, by)?;
        self.widened(remainder, 32)
    }

    /// Ends a loop: its counters go on.
    pub(super) fn count_on(&mut self, ended: &Rolled<'c>) -> Result<()> {
        for c in &ended.counters {
            let by = self.b.int(32, c.modulus).into();
            let next = self.b.exact(InstructionOpcode::Add, c.number.value, self.b.int(32, c.step), true)?.into();
            let less = self.b.binary(InstructionOpcode::Sub, next, by)?;
            let over = self.b.compare_int(IntPredicate::UGE, next, by)?;
            let next = self.b.select(over, less, next)?.into_int_value();
            self.b.step(c.number.value.into(), next)?;
        }
        Ok(())
    }
}
