//! Branches, barriers, fences, and instructions by which the lanes of a warp exchange values.

use super::super::code::{Fill, NONE, Op, OpKind, Shuffle, Vote};
use super::super::inst::{Inst, Operand};
use super::{Decoder, wrong};
use crate::error::Result;

impl Decoder<'_> {
    /// Decodes an instruction of control; false if it is none.
    pub(super) fn control(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        let parts: Vec<&str> = inst.opcode.iter().map(String::as_str).collect();
        op.kind = match parts[..] {
            ["bra"] | ["bra", "uni"] => match inst.operands[..] {
                [Operand::Label(to)] => OpKind::Branch(to),
                _ => return Err(wrong(inst, "the target is no label")),
            },
            ["ret"] | ["exit"] | ["ret", "uni"] => {
                self.count(inst, 0)?;
                OpKind::End
            }
            ["bar" | "barrier", "sync"] | ["barrier", "sync", "aligned"] | ["bar" | "barrier", "cta", "sync"] => {
                if !(1..=2).contains(&inst.operands.len()) {
                    return Err(wrong(inst, "a barrier has its number, and the threads that join it or all"));
                }
                op.a = self.source(inst, 0, 32)?;
                if inst.operands.len() == 2 {
                    op.b = self.source(inst, 1, 32)?;
                    self.code.precise = true;
                }
                if !matches!(inst.operands[0], Operand::Imm(_)) {
                    self.code.precise = true;
                }
                OpKind::Barrier
            }
            ["bar", "warp", "sync"] => {
                self.count(inst, 1)?;
                op.a = self.source(inst, 0, 32)?;
                if inst.operands[0] != Operand::Imm(0xffff_ffff) && inst.operands[0] != Operand::Imm(u64::MAX) {
                    self.code.precise = true;
                }
                OpKind::WarpBarrier
            }
            // Threads run one after the other here, and what orders them is looked for by its own account.
            ["membar", "cta" | "gl" | "sys"] | ["fence", "acq_rel" | "sc", "cta" | "gpu" | "sys" | "cluster"] => {
                OpKind::Nothing
            }
            ["shfl", "sync", mode, "b32"] => {
                self.count(inst, 5)?;
                let mode = match mode {
                    "up" => Shuffle::Up,
                    "down" => Shuffle::Down,
                    "bfly" => Shuffle::Bfly,
                    "idx" => Shuffle::Idx,
                    _ => return Ok(false),
                };
                let mut predicate = NONE;
                op.dst = match &inst.operands[0] {
                    Operand::Pair(value, truth) => {
                        predicate = self.predicate(inst, Some(truth))?;
                        self.written(inst, value, 32, false)?
                    }
                    value => self.written(inst, value, 32, false)?,
                };
                (op.a, op.b) = (self.source(inst, 1, 32)?, self.source(inst, 2, 32)?);
                (op.c, op.d) = (self.source(inst, 3, 32)?, self.source(inst, 4, 32)?);
                OpKind::Shuffle { mode, predicate }
            }
            ["vote", "sync", mode, kind @ ("pred" | "b32")] => {
                self.count(inst, 3)?;
                let truth = self.truth(inst, inst.operands.get(1))?;
                op.a = self.source(inst, 2, 32)?;
                let vote = match (mode, kind) {
                    ("all", "pred") => Vote::All(truth),
                    ("any", "pred") => Vote::Any(truth),
                    ("uni", "pred") => Vote::Uni(truth),
                    ("ballot", "b32") => Vote::Ballot(truth),
                    _ => return Ok(false),
                };
                op.dst = match vote {
                    Vote::Ballot(_) => self.target(inst, 0, 32)?,
                    _ => self.predicate(inst, inst.operands.first())?,
                };
                OpKind::Vote(vote)
            }
            ["activemask", "b32"] => {
                self.count(inst, 1)?;
                op.dst = self.target(inst, 0, 32)?;
                OpKind::ActiveMask
            }
            ["elect", "sync"] => {
                self.count(inst, 2)?;
                let Operand::Pair(lane, truth) = &inst.operands[0] else { return Err(wrong(inst, "no predicate")) };
                op.dst = self.predicate(inst, Some(truth))?;
                op.a = self.written(inst, lane, 32, false)?;
                op.b = self.source(inst, 1, 32)?;
                OpKind::Elect
            }
            _ => return Ok(false),
        };
        if let OpKind::Barrier = op.kind
            && op.a == NONE
        {
            op.a = self.constant(Fill::Constant(0));
        }
        Ok(true)
    }
}
