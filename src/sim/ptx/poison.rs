//! Values that nothing has written. LLVM may load in front of the condition under which the value is used, so a load of bytes that
//! nothing has written is no fault: its value is poison. What is computed of poison is poison, and a fault is where poison is stored,
//! branched on, used as an address, or given to an instruction of the whole warp.

use super::code::{Logic, NONE, Op, OpKind, Truth};
use super::inst::{Inst, Operand};
use super::trap::Trap;
use super::warp::Warp;

/// The poison of a warp: a bit for each lane of each register and predicate. Without any, the lists are empty.
#[derive(Debug, Clone, Default)]
pub(in crate::sim::ptx) struct Poison {
    registers: Vec<u32>,
    predicates: Vec<u32>,
    /// The load that the first came from: its fault and its line.
    origin: Option<(Trap, u32)>,
}

impl Poison {
    /// Whether there is any.
    pub fn is_any(&self) -> bool {
        self.origin.is_some()
    }

    fn register(&self, reg: u32) -> u32 {
        self.registers.get(reg as usize).copied().unwrap_or(0)
    }

    fn set(list: &mut [u32], reg: u32, mask: u32, poison: u32) {
        if let Some(own) = list.get_mut(reg as usize) {
            *own = *own & !mask | poison & mask;
        }
    }

    fn truth(&self, truth: Truth) -> u32 {
        match truth {
            Truth::Constant(_) => 0,
            Truth::Reg { reg, .. } => self.predicates.get(reg as usize).copied().unwrap_or(0),
        }
    }

    /// The fault of a use on a line.
    fn fault(&self, mask: u32, what: &str) -> Result<(), Trap> {
        match (mask, &self.origin) {
            (0, _) | (_, None) => Ok(()),
            (_, Some((trap, line))) => {
                let message = format!("{}; line {line} loads it, and here it is {what}", trap.message);
                let lane = Some(mask.trailing_zeros() as usize);
                Err(Trap { message, lane, other: Some(*line), ..trap.clone() })
            }
        }
    }
}

impl Warp {
    /// A lane has loaded bytes that nothing has written into these registers.
    #[cold]
    pub(super) fn poison(&mut self, (registers, lane): (&[u32], usize), trap: Trap, line: u32) {
        let poison = &mut self.poison;
        poison.registers.resize(self.registers.len(), 0);
        poison.predicates.resize(self.predicates.len(), 0);
        registers.iter().for_each(|r| Poison::set(&mut poison.registers, *r, 1 << lane, u32::MAX));
        poison.origin.get_or_insert((trap, line));
    }

    /// What an operation that is about to run does to poison.
    #[cold]
    pub(super) fn spread(&mut self, op: &Op, inst: &Inst, (mask, all): (u32, u32)) -> Result<(), Trap> {
        let poison = &self.poison;
        let of = |reg: u32| if reg == NONE { 0 } else { poison.register(reg) };
        if let Some(guard) = op.guard {
            let guard = poison.predicates.get(guard.predicate as usize).copied().unwrap_or(0);
            poison.fault(guard & all, "a condition")?;
        }
        if mask == 0 {
            return Ok(());
        }
        let (mut out, mut whole) = (0, Vec::new());
        match &op.kind {
            OpKind::Move | OpKind::Map1(_) | OpKind::Convert(_) | OpKind::Unpair { .. } | OpKind::Tag { .. } => {
                out = of(op.a)
            }
            OpKind::Add32 | OpKind::Add64 | OpKind::Map2(_) | OpKind::ConvertPair { .. } => out = of(op.a) | of(op.b),
            OpKind::Fma32 | OpKind::Map3(_) => out = of(op.a) | of(op.b) | of(op.c),
            OpKind::Map4(_) => out = of(op.a) | of(op.b) | of(op.c) | of(op.d),
            OpKind::Select(truth) => {
                let holds = truth.mask(&self.predicates);
                out = of(op.a) & holds | of(op.b) & !holds | poison.truth(*truth);
            }
            OpKind::Pack { parts, .. } => out = parts.iter().fold(0, |all, p| all | of(*p)),
            OpKind::Unpack { parts, .. } => {
                out = of(op.a);
                whole.clone_from(parts);
            }
            OpKind::Compare { complement, with, .. } => {
                let found = of(op.a) | of(op.b) | with.map_or(0, |(_, truth)| poison.truth(truth));
                Poison::set(&mut self.poison.predicates, op.dst, mask, found);
                Poison::set(&mut self.poison.predicates, *complement, mask, found);
                return Ok(());
            }
            OpKind::Predicate(logic, a, b, _) => {
                let (known_a, known_b) = (a.mask(&self.predicates), b.mask(&self.predicates));
                let (a, b) = (poison.truth(*a), poison.truth(*b));
                // One operand that decides the result makes the other's value unused.
                let found = match logic {
                    Logic::And => a & (known_b | b) | b & (known_a | a),
                    Logic::Or => a & (!known_b | b) | b & (!known_a | a),
                    Logic::Xor => a | b,
                };
                Poison::set(&mut self.poison.predicates, op.dst, mask, found);
                return Ok(());
            }
            OpKind::Load(access) => {
                poison.fault(of(op.a) & mask, "an address")?;
                whole.clone_from(&access.values);
            }
            OpKind::Store(access) => {
                poison.fault(of(op.a) & mask, "an address")?;
                let values = access.values.iter().fold(0, |all, v| all | of(*v));
                poison.fault(values & mask, "stored")?;
            }
            OpKind::Nothing | OpKind::Branch(_) | OpKind::End | OpKind::Commit | OpKind::Wait(_) => return Ok(()),
            _ => return self.spread_all(inst, mask),
        }
        Poison::set(&mut self.poison.registers, op.dst, mask, out);
        whole.into_iter().for_each(|r| Poison::set(&mut self.poison.registers, r, mask, out));
        Ok(())
    }

    /// An instruction of the whole warp: its sources are no poison; its first operand is what it writes, if it writes registers.
    fn spread_all(&mut self, inst: &Inst, mask: u32) -> Result<(), Trap> {
        fn visit(operand: &Operand, f: &mut impl FnMut(u32)) {
            match operand {
                Operand::Reg { reg, .. } => f(*reg),
                Operand::Address { base: Some(reg), .. } => f(*reg),
                Operand::Vector(parts) => parts.iter().for_each(|p| visit(p, f)),
                Operand::Pair(a, b) => [a, b].into_iter().for_each(|p| visit(p, f)),
                Operand::Tensor { map, coordinates } => {
                    visit(map, f);
                    coordinates.iter().for_each(|p| visit(p, f));
                }
                _ => {}
            }
        }
        let writes =
            matches!(inst.operands.first(), Some(Operand::Reg { .. } | Operand::Vector(_) | Operand::Pair(..)));
        let mut found = 0;
        for operand in inst.operands.iter().skip(usize::from(writes)) {
            visit(operand, &mut |reg| found |= self.poison.register(reg));
        }
        self.poison.fault(found & mask, "given to an instruction of the whole warp")?;
        if let Some(first) = inst.operands.first().filter(|_| writes) {
            let registers = &mut self.poison.registers;
            visit(first, &mut |reg| Poison::set(registers, reg, mask, 0));
        }
        Ok(())
    }

    /// A block begins: nothing is poison.
    pub(super) fn forget_poison(&mut self) {
        self.poison = Poison::default();
    }
}
