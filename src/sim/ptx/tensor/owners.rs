//! The registers of wgmmas under way, and what ordinary instructions may do to them (PTX ISA, "wgmma.fence", "wgmma.wait_group").

use super::super::inst::{Inst, Operand, Reg};
use super::super::trap::Trap;
use super::operands::list;
use crate::error::Code;
use std::collections::BTreeMap;

/// Who has a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Owner {
    #[default]
    Nobody,
    /// An accumulator of wgmmas under way of that many columns, the last of which is in that group.
    Accumulator { group: u64, columns: usize },
    /// A register of A.
    Factor { group: u64 },
}

/// What ordinary instructions have done to a register since the last `wgmma.fence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Touched {
    #[default]
    Not,
    Read,
    Written,
}

/// The wgmmas of a warp.
#[derive(Debug, Clone, Default)]
pub(super) struct Products {
    /// Ordinary instructions have to be watched: the warp has fenced its registers.
    pub watching: bool,
    fenced: bool,
    /// How many it has executed.
    pub executed: u64,
    /// Groups that it has closed, and when each that nothing has waited for was.
    closed: u64,
    ends: BTreeMap<u64, u64>,
    owners: Vec<Owner>,
    /// Registers that a wgmma has.
    pub held: usize,
    touched: Vec<Touched>,
}

fn at<T: Copy + Default>(values: &mut Vec<T>, reg: Reg) -> &mut T {
    let n = reg as usize;
    if values.len() <= n {
        values.resize(n + 1, T::default());
    }
    &mut values[n]
}

impl Products {
    pub fn fence(&mut self) {
        (self.watching, self.fenced) = (true, true);
        self.touched.fill(Touched::Not);
    }

    pub fn commit(&mut self, now: u64) {
        self.ends.insert(self.closed, now);
        self.closed += 1;
    }

    /// Waits until at most so many groups are under way; when the last that is done was closed.
    pub fn wait(&mut self, groups: u64) -> Option<u64> {
        let open = self.closed.saturating_sub(groups);
        let rest = self.ends.split_off(&open);
        let done = std::mem::replace(&mut self.ends, rest);
        if self.held > 0 {
            for owner in &mut self.owners {
                let group = match owner {
                    Owner::Accumulator { group, .. } | Owner::Factor { group } => *group,
                    Owner::Nobody => continue,
                };
                if group < open {
                    *owner = Owner::Nobody;
                    self.held -= 1;
                }
            }
        }
        done.values().max().copied()
    }

    /// The registers of a wgmma of so many columns belong to it from now on; `factor`: so do those of A.
    pub fn take(&mut self, inst: &Inst, columns: usize, factor: bool) -> std::result::Result<(), Trap> {
        if !self.fenced {
            return Err(Trap::warp(Code::PtxWgmma, "no wgmma.fence is before the warp's first wgmma"));
        }
        let group = self.closed;
        let unfenced = |what: &str| {
            let message = format!("{what} has been accessed since the last wgmma.fence");
            Err(Trap::warp(Code::PtxWgmma, message))
        };
        if factor {
            for reg in list(&inst.operands[1]).iter().filter_map(register) {
                match at(&mut self.owners, reg) {
                    Owner::Accumulator { .. } => {
                        let message = "a register of A is an accumulator of a wgmma that has not been waited for";
                        return Err(Trap::warp(Code::PtxWgmma, message));
                    }
                    owner => {
                        self.held += usize::from(*owner == Owner::Nobody);
                        *owner = Owner::Factor { group };
                    }
                }
                if *at(&mut self.touched, reg) == Touched::Written {
                    return unfenced("a register of A");
                }
            }
        }
        for reg in list(&inst.operands[0]).iter().filter_map(register) {
            match at(&mut self.owners, reg) {
                Owner::Factor { .. } => {
                    let message = "an accumulator is a register of A of a wgmma that has not been waited for";
                    return Err(Trap::warp(Code::PtxWgmma, message));
                }
                Owner::Accumulator { columns: other, .. } if *other != columns => {
                    let message = "an accumulator is one of a wgmma of another shape that has not been waited for";
                    return Err(Trap::warp(Code::PtxWgmma, message));
                }
                owner => {
                    self.held += usize::from(*owner == Owner::Nobody);
                    *owner = Owner::Accumulator { group, columns };
                }
            }
            if *at(&mut self.touched, reg) != Touched::Not {
                return unfenced("an accumulator");
            }
        }
        Ok(())
    }

    /// An ordinary instruction accesses its registers.
    pub fn touch(&mut self, inst: &Inst) -> std::result::Result<(), Trap> {
        for (n, operand) in inst.operands.iter().enumerate() {
            let how = match operand {
                Operand::Reg { .. } | Operand::Vector(_) | Operand::Pair(..) if n == 0 => Touched::Written,
                _ => Touched::Read,
            };
            self.touch_operand(operand, how)?;
        }
        Ok(())
    }

    fn touch_operand(&mut self, operand: &Operand, how: Touched) -> std::result::Result<(), Trap> {
        match operand {
            Operand::Reg { reg, .. } => self.touch_register(*reg, how),
            Operand::Address { base: Some(reg), .. } => self.touch_register(*reg, Touched::Read),
            Operand::Vector(parts) => parts.iter().try_for_each(|p| self.touch_operand(p, how)),
            Operand::Tensor { map, coordinates } => {
                self.touch_operand(map, Touched::Read)?;
                coordinates.iter().try_for_each(|p| self.touch_operand(p, Touched::Read))
            }
            Operand::Pair(first, second) => {
                self.touch_operand(first, how)?;
                self.touch_operand(second, how)
            }
            _ => Ok(()),
        }
    }

    fn touch_register(&mut self, reg: Reg, how: Touched) -> std::result::Result<(), Trap> {
        let done = if how == Touched::Written { "written" } else { "read" };
        let what = match self.owners.get(reg as usize) {
            Some(Owner::Accumulator { .. }) => "an accumulator",
            Some(Owner::Factor { .. }) => "a register of A",
            _ => {
                let touched = at(&mut self.touched, reg);
                *touched = (*touched).max(how);
                return Ok(());
            }
        };
        Err(Trap::warp(
            Code::PtxWgmma,
            format!("{what} of a wgmma is {done}, but its group has not been waited for (wgmma.wait_group)"),
        ))
    }
}

fn register(operand: &Operand) -> Option<Reg> {
    match operand {
        Operand::Reg { reg, .. } => Some(*reg),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{inst, reg};
    use super::*;

    fn product(registers: std::ops::Range<u32>) -> Inst {
        inst("wgmma.mma_async", vec![Operand::Vector(registers.map(reg).collect())])
    }

    #[test]
    fn registers_of_a_wgmma_are_untouchable_until_its_group_is_waited_for() {
        let first = product(0..4);
        let mut warp = Products::default();
        assert!(warp.take(&first, 8, false).unwrap_err().message.contains("no wgmma.fence"));
        warp.fence();
        warp.take(&first, 8, false).unwrap();
        warp.commit(5);
        warp.take(&first, 8, false).unwrap();
        warp.commit(6);
        let reads = inst("add.f32", vec![reg(50), reg(3), reg(51)]);
        assert_eq!(warp.wait(1), Some(5));
        // The second group has the same accumulators.
        assert!(warp.touch(&reads).unwrap_err().message.contains("an accumulator of a wgmma is read"));
        assert_eq!(warp.wait(0), Some(6));
        warp.touch(&reads).unwrap();
        assert!(warp.take(&first, 8, false).unwrap_err().message.contains("since the last wgmma.fence"));
        warp.fence();
        warp.take(&first, 8, false).unwrap();
        let other = product(2..10);
        assert!(warp.take(&other, 16, false).unwrap_err().message.contains("another shape"));
    }
}
