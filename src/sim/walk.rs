//! Loops that the blocks of the grid walk together, and what follows from a block's indices.

use super::code::{Op, Operand, Slot};
use super::compile::Compiler;
use super::index::Meaning;
use crate::error::{Code, Error, Result};
use crate::ir::{For, LoopKind, Stmt, Var, visit};

/// Whether the blocks of the grid walk a loop together.
pub(super) fn walks(body: &[Stmt]) -> bool {
    visit::loops(body).iter().any(|l| matches!(l.kind, LoopKind::Persistent { .. }))
}

impl Compiler<'_> {
    /// What each block computes from its indices, or for each of its tiles.
    pub fn derive(&mut self) -> Result<()> {
        for d in self.plan.derived {
            // Its range is what the value's parts say, not what the kernel claims.
            let range = self.interval(&d.value)?;
            let operand = self.operand(&d.value)?;
            self.vars.insert(d.var, Meaning::Slots(operand));
            self.ranges.insert(d.var, range);
            self.loops.push((d.var, operand));
        }
        Ok(())
    }

    /// A loop that the blocks of the grid walk together: each begins with its own number.
    pub fn walk(&mut self, l: &For, round: Var) -> Result<()> {
        let launched = self.vars.get(&l.var).cloned();
        let Some(Meaning::Slots(Operand { scalar: first, vector: 0 })) = launched else {
            return Err(Error::bug(Code::SimWalk, "a persistent loop is not over blockIdx.x"));
        };
        let extent = self.uniform(&l.extent)?;
        let step = *self.step.get_or_insert(self.scalars.len() as Slot);
        if step as usize == self.scalars.len() {
            self.new_scalar(0);
        }
        let level = self.prologues.len() as u32;
        let (var, count) = (self.new_scalar(level), self.new_scalar(level));
        let tiles = self.interval(&l.extent)?.1;
        let outside = self.loops.clone();
        self.loops.retain(|(v, _)| *v != l.var);
        for (of, slot) in [(l.var, var), (round, count)] {
            let operand = Operand { scalar: slot, vector: 0 };
            self.vars.insert(of, Meaning::Slots(operand));
            self.ranges.insert(of, (0, tiles - 1));
            self.loops.push((of, operand));
        }
        self.prologues.push(Vec::new());
        self.derive()?;
        let before = std::mem::take(&mut self.body);
        self.body(&l.body)?;
        let mut prologue = self.prologue()?;
        let mut inside = std::mem::replace(&mut self.body, before);
        self.loops = outside;
        let length = (prologue.len() + inside.len()) as u32;
        self.emit(Op::WalkBegin { var, round: count, first, extent, exit: length + 2 });
        self.body.append(&mut prologue);
        self.body.append(&mut inside);
        self.emit(Op::WalkNext { var, round: count, step, extent, back: length });
        // Another role walks it again from the start.
        self.vars.extend(launched.map(|meaning| (l.var, meaning)));
        Ok(())
    }
}
