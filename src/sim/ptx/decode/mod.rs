//! From instructions to operations: which forms there are, and what their operands have to be.

mod control;
mod data;
mod memory;

use super::code::{Code, Fill, NONE, Op, OpKind, Truth};
use super::inst::{Entry, Inst, Operand};
use super::tensor;
use crate::error::{self, Error, Result};
use std::collections::HashMap;

/// Decodes an entry.
///
/// # Errors
/// An instruction that the simulator does not have: its line and its text are named.
pub(in crate::sim::ptx) fn entry(entry: &Entry) -> Result<Code> {
    let code = Code { registers: entry.registers, predicates: entry.predicates, unit: 16, ..Code::default() };
    let mut decoder = Decoder { entry, code, pool: HashMap::new() };
    for inst in &entry.insts {
        let op = decoder.op(inst).map_err(|e| e.within(format!("line {}: {}", inst.line, inst.name())))?;
        decoder.code.ops.push(op);
    }
    // Matrix and asynchronous instructions name elements of their own.
    if !decoder.code.tensor.is_empty() {
        decoder.code.unit = decoder.code.unit.min(4);
    }
    Ok(decoder.code)
}

struct Decoder<'a> {
    entry: &'a Entry,
    code: Code,
    pool: HashMap<Fill, u32>,
}

/// An instruction that the simulator does not have.
fn unknown(inst: &Inst) -> Error {
    let message = format!("the simulator has no instruction {} (line {} of the PTX)", inst.name(), inst.line);
    Error::bug(error::Code::PtxUnknown, message)
}

fn wrong(inst: &Inst, what: &str) -> Error {
    Error::bug(error::Code::PtxOperand, format!("{}, line {} of the PTX: {what}", inst.name(), inst.line))
}

impl Decoder<'_> {
    fn op(&mut self, inst: &Inst) -> Result<Op> {
        let mut op = Op { guard: inst.guard, kind: OpKind::Nothing, dst: NONE, a: NONE, b: NONE, c: NONE, d: NONE };
        let done = self.data(inst, &mut op)? || self.memory(inst, &mut op)? || self.control(inst, &mut op)?;
        if !done {
            let Some(found) = tensor::decode(inst, self.entry)? else { return Err(unknown(inst)) };
            self.code.precise |= tensor::needs_clocks(&found);
            op.kind = OpKind::Tensor(self.code.tensor.len() as u32);
            self.code.tensor.push(found);
        }
        Ok(op)
    }

    /// The register that holds a value from the start on.
    fn fill(&mut self, fill: Fill) -> u32 {
        let (next, code) = (self.code.registers, &mut self.code);
        *self.pool.entry(fill).or_insert_with(|| {
            code.registers += 1;
            code.fills.push((next, fill));
            next
        })
    }

    /// A source of a width.
    fn source(&mut self, inst: &Inst, n: usize, bits: u32) -> Result<u32> {
        let operand = inst.operands.get(n).ok_or_else(|| wrong(inst, "an operand is missing"))?;
        self.value(inst, operand, bits, false)
    }

    /// The register of a value; `wider`: a register may be wider than the type.
    fn value(&mut self, inst: &Inst, operand: &Operand, bits: u32, wider: bool) -> Result<u32> {
        match operand {
            Operand::Reg { reg, bits: own } if *own == bits || wider && *own > bits => Ok(*reg),
            Operand::Reg { bits: own, .. } => {
                Err(wrong(inst, &format!("the register has {own} bits, the instruction needs {bits}")))
            }
            Operand::Imm(value) => {
                let cut = if bits >= 64 { *value } else { value & ((1 << bits) - 1) };
                Ok(self.fill(Fill::Constant(cut)))
            }
            Operand::Special(special) => Ok(self.fill(Fill::Special(*special))),
            _ => Err(wrong(inst, "an operand is no value")),
        }
    }

    /// A destination of a width; [`NONE`] for `_`.
    fn target(&self, inst: &Inst, n: usize, bits: u32) -> Result<u32> {
        let operand = inst.operands.get(n).ok_or_else(|| wrong(inst, "an operand is missing"))?;
        self.written(inst, operand, bits, false)
    }

    fn written(&self, inst: &Inst, operand: &Operand, bits: u32, wider: bool) -> Result<u32> {
        match operand {
            Operand::Reg { reg, bits: own } if *own == bits || wider && *own > bits => Ok(*reg),
            Operand::Sink => Ok(NONE),
            _ => Err(wrong(inst, &format!("the destination is no register of {bits} bits"))),
        }
    }

    fn predicate(&self, inst: &Inst, operand: Option<&Operand>) -> Result<u32> {
        match operand {
            Some(Operand::Pred { reg, negated: false }) => Ok(*reg),
            Some(Operand::Sink) => Ok(NONE),
            _ => Err(wrong(inst, "the destination is no predicate")),
        }
    }

    fn truth(&self, inst: &Inst, operand: Option<&Operand>) -> Result<Truth> {
        match operand {
            Some(Operand::Pred { reg, negated }) => Ok(Truth::Reg { reg: *reg, negated: *negated }),
            Some(Operand::Imm(value)) => Ok(Truth::Constant(*value != 0)),
            _ => Err(wrong(inst, "an operand is no predicate")),
        }
    }

    /// The number of operands has to be this.
    fn count(&self, inst: &Inst, count: usize) -> Result<()> {
        match inst.operands.len() == count {
            true => Ok(()),
            false => Err(wrong(inst, &format!("{} operands are given where {count} are needed", inst.operands.len()))),
        }
    }
}
