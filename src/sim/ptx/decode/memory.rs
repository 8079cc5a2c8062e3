//! Loads, stores and copies of cp.async.

use super::super::code::{Access, Fill, NONE, Op, OpKind};
use super::super::inst::{Inst, Operand};
use super::super::world::Space;
use super::{Decoder, wrong};
use crate::error::Result;

fn space(name: &str) -> Option<Space> {
    Some(match name {
        "global" => Space::Global,
        "shared" | "shared::cta" | "shared::cluster" => Space::Shared,
        "local" => Space::Local,
        "param" => Space::Param,
        _ => return None,
    })
}

/// Modifiers that say how a cache is used, or that an access is not to be left out: hints here.
fn is_hint(name: &str) -> bool {
    matches!(name, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "volatile" | "weak")
        || name.starts_with("L1::")
        || name.starts_with("L2::")
}

impl Decoder<'_> {
    /// Decodes an access of memory; false if the instruction is none.
    pub(super) fn memory(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        match inst.opcode[0].as_str() {
            "ld" | "st" => self.access(inst, op),
            "cp" if inst.has("async") && !inst.has("bulk") => self.copy(inst, op),
            "prefetch" | "prefetchu" if !inst.has("tensormap") => Ok(true),
            _ => Ok(false),
        }
    }

    fn access(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        let loads = inst.opcode[0] == "ld";
        let Some((kind, rest)) = inst.opcode[1..].split_last() else { return Ok(false) };
        let mut access =
            Access { space: Space::Generic, offset: 0, bytes: 0, values: Vec::new(), signed: None, constant: false };
        let mut count = 1;
        for modifier in rest {
            match modifier.as_str() {
                "v2" => count = 2,
                "v4" => count = 4,
                "nc" if loads => access.constant = true,
                name if space(name).is_some() => access.space = space(name).unwrap_or(Space::Generic),
                name if is_hint(name) => {}
                _ => return Ok(false),
            }
        }
        let Some((sign, bits)) = kind.split_at_checked(1) else { return Ok(false) };
        let Some(bits) = bits.parse::<u32>().ok().filter(|b| [8, 16, 32, 64].contains(b)) else { return Ok(false) };
        if !matches!(sign, "b" | "u" | "s" | "f") || sign == "f" && bits < 32 {
            return Ok(false);
        }
        self.count(inst, 2)?;
        let (value, address) = if loads { (0, 1) } else { (1, 0) };
        let parts = match &inst.operands[value] {
            Operand::Vector(parts) if count > 1 => parts.clone(),
            one if count == 1 => vec![one.clone()],
            _ => return Err(wrong(inst, "the number of registers is not that of the vector")),
        };
        if parts.len() != count || count as u32 * bits > 128 {
            return Err(wrong(inst, "the number of registers is not that of the vector, or it has more than 128 bits"));
        }
        if loads && access.space == Space::Param {
            return self.param(inst, op, bits);
        }
        for part in &parts {
            // A register may be wider than what is loaded or stored, for integers.
            let wider = sign != "f";
            let slot = match loads {
                true => self.written(inst, part, bits, wider)?,
                false => self.value(inst, part, bits, wider)?,
            };
            access.values.push(slot);
            if let (true, "s", Operand::Reg { bits: own, .. }) = (loads, sign, part) {
                access.signed = Some(*own);
            }
        }
        access.bytes = bits / 8;
        (op.a, access.offset) = self.address(inst, address)?;
        if access.space != Space::Local {
            self.code.unit = self.code.unit.min(access.bytes);
        }
        op.kind = if loads { OpKind::Load(Box::new(access)) } else { OpKind::Store(Box::new(access)) };
        Ok(true)
    }

    fn param(&mut self, inst: &Inst, op: &mut Op, bits: u32) -> Result<bool> {
        let (Operand::Param { offset }, Some(to)) = (&inst.operands[1], inst.operands.first()) else {
            return Err(wrong(inst, "the address is no parameter"));
        };
        let bytes = bits / 8;
        let holds = |p: &&super::super::inst::ParamDecl| p.offset <= *offset && offset + bytes <= p.offset + p.bytes;
        if !self.entry.params.iter().any(|p| holds(&p)) || offset % bytes != 0 {
            return Err(wrong(inst, "the address is not that of a parameter of this size"));
        }
        op.dst = self.written(inst, to, bits, false)?;
        op.a = self.constant(Fill::Param { offset: *offset, bytes });
        op.kind = OpKind::Move;
        Ok(true)
    }

    /// The register and the offset of an address.
    fn address(&mut self, inst: &Inst, n: usize) -> Result<(u32, i64)> {
        match inst.operands.get(n) {
            Some(Operand::Address { base: Some(base), offset }) => Ok((*base, *offset)),
            Some(Operand::Address { base: None, offset }) => Ok((self.fill(Fill::Constant(*offset as u64)), 0)),
            _ => Err(wrong(inst, "an address is missing")),
        }
    }

    fn copy(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        let rest: Vec<&str> = inst.opcode[2..].iter().map(String::as_str).collect();
        match rest.first() {
            Some(&"commit_group") if rest.len() == 1 => {
                self.count(inst, 0)?;
                op.kind = OpKind::Commit;
                return Ok(true);
            }
            Some(&"wait_all") if rest.len() == 1 => {
                self.count(inst, 0)?;
                op.kind = OpKind::Wait(None);
                return Ok(true);
            }
            Some(&"wait_group") if rest.len() == 1 => {
                self.count(inst, 1)?;
                let Operand::Imm(groups) = inst.operands[0] else { return Err(wrong(inst, "no number of groups")) };
                op.kind = OpKind::Wait(Some(groups));
                return Ok(true);
            }
            _ => {}
        }
        let own: Vec<&str> = rest.iter().copied().filter(|m| !m.starts_with("L2::")).collect();
        let (true, cg) =
            (matches!(own[..], ["ca" | "cg", "shared" | "shared::cta", "global"]), own.first() == Some(&"cg"))
        else {
            return Ok(false);
        };
        let Some(Operand::Imm(bytes)) = inst.operands.get(2) else { return Err(wrong(inst, "no number of bytes")) };
        if !matches!((bytes, cg), (16, _) | (4 | 8, false)) || !(3..=4).contains(&inst.operands.len()) {
            return Err(wrong(inst, "a copy has 16 bytes, or 4 or 8 with .ca"));
        }
        let source = match inst.operands.get(3) {
            Some(operand) => Some(self.value(inst, operand, 32, false)?),
            None => None,
        };
        let ((to, first), (from, second)) = (self.address(inst, 0)?, self.address(inst, 1)?);
        (op.dst, op.a) = (to, from);
        // Offsets of both addresses, which are constant.
        (op.b, op.c) = (self.fill(Fill::Constant(first as u64)), self.fill(Fill::Constant(second as u64)));
        self.code.unit = self.code.unit.min(*bytes as u32).min(if source.is_some() { 1 } else { 16 });
        op.kind = OpKind::Copy { bytes: *bytes as u32, source };
        op.d = NONE;
        Ok(true)
    }
}
