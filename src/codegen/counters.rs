//! Remainders that loops count: what each begins with is computed in front of the loop, its next value at the loop's end.
//!
//! Which ones these are, the pass `counters` has written to [`crate::ir::LoopCode::counters`].

use super::body::Body;
use super::index::Number;
use super::session::bug;
use crate::error::Result;
use crate::ir::simplify::{Affine, affine};
use crate::ir::{For, Index, IndexOp, Var, print, visit};
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{InstructionOpcode, IntValue};

/// A loop at run time around what is being written.
pub struct Rolled<'c> {
    /// What counts its trips.
    pub var: Var,
    /// The block in front of it, and its first one.
    pub from: BasicBlock<'c>,
    pub body: BasicBlock<'c>,
    /// The sums whose remainders it counts, with the moduli.
    declared: Vec<(Affine, i64)>,
    counters: Vec<Counter<'c>>,
    /// Statements of its body whose condition never holds have no code.
    pub leaves_out: bool,
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
    /// A loop that has counted nothing yet: its first block, and the one in front of it.
    pub fn new(var: Var, (from, body): (BasicBlock<'c>, BasicBlock<'c>), declared: Vec<(Affine, i64)>) -> Rolled<'c> {
        Rolled { var, from, body, declared, counters: Vec::new(), leaves_out: false }
    }
}

impl<'c> Body<'c, '_, '_> {
    /// What a loop counts, for each iteration in its body, in terms of the variable that counts its trips.
    pub(super) fn declared(&self, l: &For, trip: Var) -> Vec<(Affine, i64)> {
        let copies = l.copies();
        let mut out = Vec::new();
        for (c, counter) in (0..copies).flat_map(|c| l.code.counters.iter().map(move |counter| (c, counter))) {
            let Index::Bin(IndexOp::FloorMod, dividend, modulus) = counter else { continue };
            let mut written = self.unrolled.clone();
            written.insert(l.var, trip * copies + c);
            out.extend(modulus.as_int().map(|modulus| (affine(&visit::subst_index(dividend, &written)), modulus)));
        }
        out
    }

    /// The remainder of a sum as the loop around counts it; `None` where it has to be divided.
    pub(super) fn counted(&mut self, sum: &Affine, modulus: i64) -> Result<Option<Number<'c>>> {
        let Some(at) = self.rolled.iter().rposition(|l| sum.mentions(l.var)) else { return Ok(None) };
        let Rolled { var, from, body, ref declared, ref counters, .. } = self.rolled[at];
        if let Some(known) = counters.iter().find(|c| c.modulus == modulus && c.of == *sum) {
            return Ok(Some(known.number));
        }
        if !declared.iter().any(|(of, by)| *by == modulus && of == sum) {
            return Ok(None);
        }
        let rest: Vec<(Index, i64)> =
            sum.terms.iter().filter(|(atom, _)| atom.as_var() != Some(var)).cloned().collect();
        let step = sum.coefficient(var);
        let here = self.b.here()?;
        self.b.before_end(from);
        let first = self.emit_sum(&Affine { terms: rest, constant: sum.constant })?;
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
        if cfg!(debug_assertions) && !ended.leaves_out {
            self.counts_all(ended)?;
        }
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

    /// That an index of the body has each remainder that the loop declares. Otherwise the pass `counters` and code generation disagree on
    /// the indices, and the one that was meant is divided.
    fn counts_all(&self, ended: &Rolled<'c>) -> Result<()> {
        let is_counted = |of: &Affine, by: i64| ended.counters.iter().any(|c| c.modulus == by && c.of == *of);
        match ended.declared.iter().find(|(of, modulus)| !is_counted(of, *modulus)) {
            None => Ok(()),
            Some((of, modulus)) => {
                let remainder = print::index(&self.kernel.func, &of.to_index().floormod(*modulus));
                Err(bug(format!("a loop counts {remainder}, and no index in the loop has this remainder")))
            }
        }
    }
}
