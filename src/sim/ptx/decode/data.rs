//! Arithmetic, comparisons, moves and conversions.

use super::super::alu::convert::{Convert, CvtType as Data};
use super::super::alu::round::{Format, Mode};
use super::super::alu::{float, int};
use super::super::code::{Fill, Logic, NONE, Op, OpKind, Truth};
use super::super::inst::{Inst, Operand};
use super::super::world::{GENERIC_LOCAL, GENERIC_PARAM, GENERIC_SHARED};
use super::{Decoder, wrong};
use crate::error::Result;

/// Integer types, and whether they are signed.
fn integer(kind: &str) -> Option<(u32, bool)> {
    let bits = kind.strip_prefix(['b', 'u', 's'])?.parse().ok().filter(|b| [16, 32, 64].contains(b))?;
    Some((bits, kind.starts_with('s')))
}

/// Bits of a type of moves and selections.
fn width(kind: &str) -> Option<u32> {
    match kind {
        "f16" | "bf16" => Some(16),
        "f32" | "f16x2" | "bf16x2" | "s16x2" | "u16x2" => Some(32),
        "f64" => Some(64),
        _ => integer(kind).map(|k| k.0),
    }
}

/// The opcode without its type, and without `ftz`.
fn stem(inst: &Inst) -> (String, bool) {
    let own = &inst.opcode[..inst.opcode.len() - 1];
    let ftz = own.iter().any(|m| m == "ftz");
    (own.iter().filter(|m| *m != "ftz").map(String::as_str).collect::<Vec<_>>().join("."), ftz)
}

impl Decoder<'_> {
    /// Decodes an instruction that works on registers alone; false if it is none.
    pub(super) fn data(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        let kind = inst.opcode.last().map_or("", String::as_str);
        if inst.opcode.len() < 2 {
            return Ok(false);
        }
        match inst.opcode[0].as_str() {
            "mov" if inst.opcode.len() == 2 => self.mov(inst, op, kind),
            "cvt" => self.cvt(inst, op),
            "setp" => self.setp(inst, op, kind),
            "selp" => self.selp(inst, op, kind),
            "and" | "or" | "xor" | "not" if kind == "pred" => self.logic(inst, op),
            "cvta" => self.cvta(inst, op),
            "shl" | "shr" => self.shift(inst, op, kind),
            "shf" => {
                self.count(inst, 4)?;
                let Some(map) = int::funnel(&inst.opcode[1..inst.opcode.len() - 1].join(".")) else { return Ok(false) };
                self.three(inst, op, kind == "b32", [32; 4])?;
                op.kind = OpKind::Map3(map);
                Ok(kind == "b32")
            }
            "prmt" => {
                self.count(inst, 4)?;
                self.three(inst, op, true, [32; 4])?;
                op.kind = OpKind::Map3(int::prmt);
                Ok(inst.opcode.len() == 2 && kind == "b32")
            }
            "lop3" => {
                self.count(inst, 5)?;
                self.three(inst, op, true, [32; 4])?;
                op.d = self.source(inst, 4, 32)?;
                op.kind = OpKind::Map4(int::lop3);
                Ok(inst.opcode.len() == 2 && kind == "b32")
            }
            "bfi" => {
                self.count(inst, 5)?;
                let Some((bits, _)) = integer(kind) else { return Ok(false) };
                let Some(map) = int::insert(bits) else { return Ok(false) };
                (op.dst, op.a, op.b) =
                    (self.target(inst, 0, bits)?, self.source(inst, 1, bits)?, self.source(inst, 2, bits)?);
                (op.c, op.d) = (self.source(inst, 3, 32)?, self.source(inst, 4, 32)?);
                op.kind = OpKind::Map4(map);
                Ok(true)
            }
            "bfe" => {
                self.count(inst, 4)?;
                let Some((bits, signed)) = integer(kind).filter(|_| inst.opcode.len() == 2) else { return Ok(false) };
                let Some(map) = int::ternary("bfe", signed, bits) else { return Ok(false) };
                self.three(inst, op, true, [bits, bits, 32, 32])?;
                op.kind = OpKind::Map3(map);
                Ok(true)
            }
            "dp4a" | "dp2a" => self.dot(inst, op),
            _ => self.arithmetic(inst, op, kind),
        }
    }

    fn three(&mut self, inst: &Inst, op: &mut Op, good: bool, bits: [u32; 4]) -> Result<()> {
        if good {
            op.dst = self.target(inst, 0, bits[0])?;
            op.a = self.source(inst, 1, bits[1])?;
            op.b = self.source(inst, 2, bits[2])?;
            op.c = self.source(inst, 3, bits[3])?;
        }
        Ok(())
    }

    fn arithmetic(&mut self, inst: &Inst, op: &mut Op, kind: &str) -> Result<bool> {
        let (name, ftz) = stem(inst);
        let wide = name.ends_with(".wide");
        if let Some((bits, signed)) = integer(kind) {
            let result = match name.as_str() {
                "popc" | "clz" | "bfind" => 32,
                _ if wide => 2 * bits,
                _ => bits,
            };
            if let Some(map) = int::unary(&name, signed, bits) {
                self.count(inst, 2)?;
                (op.dst, op.a, op.kind) =
                    (self.target(inst, 0, result)?, self.source(inst, 1, bits)?, OpKind::Map1(map));
            } else if let Some(map) = int::binary(&name, signed, bits) {
                self.count(inst, 3)?;
                (op.dst, op.a) = (self.target(inst, 0, result)?, self.source(inst, 1, bits)?);
                op.b = self.source(inst, 2, bits)?;
                op.kind = match (name.as_str(), bits) {
                    ("add", 32) => OpKind::Add32,
                    ("add", 64) => OpKind::Add64,
                    _ => OpKind::Map2(map),
                };
            } else if let Some(map) = int::ternary(&name, signed, bits) {
                self.count(inst, 4)?;
                self.three(inst, op, true, [result, bits, bits, result])?;
                op.kind = OpKind::Map3(map);
            } else {
                return Ok(false);
            }
            return Ok(true);
        }
        let Some(bits) = width(kind) else { return Ok(false) };
        if let Some(map) = float::unary(&name, kind, ftz) {
            self.count(inst, 2)?;
            (op.dst, op.a, op.kind) = (self.target(inst, 0, bits)?, self.source(inst, 1, bits)?, OpKind::Map1(map));
        } else if let Some(map) = float::binary(&name, kind, ftz).or_else(|| int::pair(&name, kind)) {
            self.count(inst, 3)?;
            (op.dst, op.a) = (self.target(inst, 0, bits)?, self.source(inst, 1, bits)?);
            (op.b, op.kind) = (self.source(inst, 2, bits)?, OpKind::Map2(map));
        } else if let Some(map) = float::ternary(&name, kind, ftz) {
            self.count(inst, 4)?;
            self.three(inst, op, true, [bits; 4])?;
            op.kind = if kind == "f32" && !ftz { OpKind::Fma32 } else { OpKind::Map3(map) };
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn shift(&mut self, inst: &Inst, op: &mut Op, kind: &str) -> Result<bool> {
        let Some((bits, signed)) = integer(kind).filter(|_| inst.opcode.len() == 2) else { return Ok(false) };
        let Some(map) = int::binary(&inst.opcode[0], signed, bits) else { return Ok(false) };
        self.count(inst, 3)?;
        (op.dst, op.a, op.b) = (self.target(inst, 0, bits)?, self.source(inst, 1, bits)?, self.source(inst, 2, 32)?);
        op.kind = OpKind::Map2(map);
        Ok(true)
    }

    fn dot(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        let types: Vec<&str> = inst.opcode[1..].iter().map(String::as_str).collect();
        let sign = |t: &str| match t {
            "s32" => Some(true),
            "u32" => Some(false),
            _ => None,
        };
        let map = match (inst.opcode[0].as_str(), &types[..]) {
            ("dp4a", [a, b]) => sign(a).zip(sign(b)).map(|(a, b)| int::dot4(a, b)),
            ("dp2a", [part @ ("lo" | "hi"), a, b]) => sign(a).zip(sign(b)).map(|(a, b)| int::dot2(a, b, *part == "hi")),
            _ => None,
        };
        let Some(map) = map else { return Ok(false) };
        self.count(inst, 4)?;
        self.three(inst, op, true, [32; 4])?;
        op.kind = OpKind::Map3(map);
        Ok(true)
    }

    fn mov(&mut self, inst: &Inst, op: &mut Op, kind: &str) -> Result<bool> {
        self.count(inst, 2)?;
        if kind == "pred" {
            op.dst = self.predicate(inst, inst.operands.first())?;
            let truth = self.truth(inst, inst.operands.get(1))?;
            op.kind = OpKind::Predicate(Logic::And, truth, truth, false);
            return Ok(true);
        }
        let Some(bits) = width(kind) else { return Ok(false) };
        let part = |parts: usize| match bits % parts.max(1) as u32 {
            0 if [2, 4].contains(&parts) && bits / parts as u32 >= 8 => Ok(bits / parts as u32),
            _ => Err(wrong(inst, "a register does not divide into so many parts")),
        };
        match (&inst.operands[0], &inst.operands[1]) {
            (Operand::Vector(to), from) => {
                let each = part(to.len())?;
                op.a = self.value(inst, from, bits, false)?;
                let parts = to.iter().map(|t| self.written(inst, t, each, false)).collect::<Result<_>>()?;
                op.kind = OpKind::Unpack { parts, bits: each };
            }
            (_, Operand::Vector(from)) => {
                let each = part(from.len())?;
                op.dst = self.target(inst, 0, bits)?;
                let parts = from.iter().map(|f| self.value(inst, f, each, false)).collect::<Result<_>>()?;
                op.kind = OpKind::Pack { parts, bits: each };
            }
            _ => {
                (op.dst, op.a, op.kind) = (self.target(inst, 0, bits)?, self.source(inst, 1, bits)?, OpKind::Move);
            }
        }
        Ok(true)
    }

    fn setp(&mut self, inst: &Inst, op: &mut Op, kind: &str) -> Result<bool> {
        let own: Vec<&str> = inst.opcode[1..inst.opcode.len() - 1].iter().map(String::as_str).collect();
        let ftz = own.last() == Some(&"ftz");
        let own = &own[..own.len() - usize::from(ftz)];
        let logic = match own.get(1) {
            None => None,
            Some(&"and") => Some(Logic::And),
            Some(&"or") => Some(Logic::Or),
            Some(&"xor") => Some(Logic::Xor),
            Some(_) => return Ok(false),
        };
        let Some(name) = own.first().filter(|_| own.len() <= 2) else { return Ok(false) };
        let (compare, bits) = match integer(kind) {
            Some((bits, signed)) => (int::compare(name, signed, bits), bits),
            None => (float::compare(name, kind, ftz), width(kind).unwrap_or(0)),
        };
        let Some(compare) = compare else { return Ok(false) };
        self.count(inst, if logic.is_some() { 4 } else { 3 })?;
        let mut complement = NONE;
        op.dst = match &inst.operands[0] {
            Operand::Pair(first, second) => {
                complement = self.predicate(inst, Some(second))?;
                self.predicate(inst, Some(first))?
            }
            _ => self.predicate(inst, inst.operands.first())?,
        };
        (op.a, op.b) = (self.source(inst, 1, bits)?, self.source(inst, 2, bits)?);
        let with = logic.map(|l| self.truth(inst, inst.operands.get(3)).map(|t| (l, t))).transpose()?;
        op.kind = OpKind::Compare { compare, complement, with };
        Ok(true)
    }

    fn selp(&mut self, inst: &Inst, op: &mut Op, kind: &str) -> Result<bool> {
        let Some(bits) = width(kind).filter(|_| inst.opcode.len() == 2) else { return Ok(false) };
        self.count(inst, 4)?;
        (op.dst, op.a, op.b) = (self.target(inst, 0, bits)?, self.source(inst, 1, bits)?, self.source(inst, 2, bits)?);
        op.kind = OpKind::Select(self.truth(inst, inst.operands.get(3))?);
        Ok(true)
    }

    fn logic(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        let logic = match inst.opcode[0].as_str() {
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            _ => Logic::And,
        };
        let not = inst.opcode[0] == "not";
        self.count(inst, if not { 2 } else { 3 })?;
        op.dst = self.predicate(inst, inst.operands.first())?;
        let a = self.truth(inst, inst.operands.get(1))?;
        let b = if not { Truth::Constant(true) } else { self.truth(inst, inst.operands.get(2))? };
        op.kind = OpKind::Predicate(logic, a, b, not);
        Ok(inst.opcode.len() == 2)
    }

    /// Between addresses of a state space and generic ones.
    fn cvta(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        self.count(inst, 2)?;
        let to = inst.opcode.get(1).is_some_and(|m| m == "to");
        let Some(space) = inst.opcode.get(if to { 2 } else { 1 }) else { return Ok(false) };
        let tag = match space.as_str() {
            "global" | "const" => 0,
            "shared" | "shared::cta" | "shared::cluster" => GENERIC_SHARED,
            "local" => GENERIC_LOCAL,
            "param" => GENERIC_PARAM,
            _ => return Ok(false),
        };
        (op.dst, op.a) = (self.target(inst, 0, 64)?, self.source(inst, 1, 64)?);
        op.kind = OpKind::Tag { set: !to, tag };
        Ok(inst.opcode.last().is_some_and(|t| t == "u64"))
    }

    fn cvt(&mut self, inst: &Inst, op: &mut Op) -> Result<bool> {
        let [rest @ .., to, from] = &inst.opcode[1..] else { return Ok(false) };
        let mut convert = Convert {
            to: Data::F64,
            from: Data::F64,
            mode: Mode::Zero,
            integral: false,
            ftz: false,
            saturate: false,
            finite: false,
            relu: false,
            register: 32,
        };
        let mut rounded = false;
        for modifier in rest {
            let mode = match modifier.as_str() {
                "rn" | "rni" => Some(Mode::Nearest),
                "rna" => Some(Mode::Away),
                "rz" | "rzi" => Some(Mode::Zero),
                "rm" | "rmi" => Some(Mode::Down),
                "rp" | "rpi" => Some(Mode::Up),
                _ => None,
            };
            match (mode, modifier.as_str()) {
                (Some(mode), _) => {
                    (convert.mode, rounded) = (mode, true);
                    convert.integral = modifier.ends_with('i');
                }
                (None, "ftz") => convert.ftz = true,
                (None, "sat") => convert.saturate = true,
                (None, "satfinite") => convert.finite = true,
                (None, "relu") => convert.relu = true,
                _ => return Ok(false),
            }
        }
        if let Some((format, bits)) = pair(to) {
            return self.cvt_pair(inst, op, convert, (format, bits), from);
        }
        let (Some(to), Some(from)) = (Data::of(to), Data::of(from)) else { return Ok(false) };
        self.count(inst, 2)?;
        (convert.to, convert.from) = (to, from);
        let exact = match (from, to) {
            (Data::Int { .. }, Data::Int { .. }) => true,
            (Data::Float(a), Data::Float(b)) => a.exponent <= b.exponent && a.fraction <= b.fraction,
            (Data::Float(_), Data::F64) | (Data::F64, Data::F64) => true,
            _ => false,
        };
        if rounded == (exact && !convert.integral) && from != to {
            return Err(wrong(inst, "the rounding modifier is missing, or the conversion does not round"));
        }
        op.dst = self.written(inst, &inst.operands[0], to.bits(), matches!(to, Data::Int { .. }))?;
        if let Operand::Reg { bits, .. } = &inst.operands[0] {
            convert.register = *bits;
        }
        op.a = self.value(inst, &inst.operands[1], from.bits(), matches!(from, Data::Int { .. }))?;
        op.kind = OpKind::Convert(Box::new(convert));
        Ok(true)
    }

    /// Conversions of pairs: `cvt.rn.f16x2.f32 d, a, b` and those from and to pairs of 8 bits.
    fn cvt_pair(
        &mut self,
        inst: &Inst,
        op: &mut Op,
        mut convert: Convert,
        (format, bits): (Format, u32),
        from: &str,
    ) -> Result<bool> {
        convert.to = Data::Float(format);
        if from == "f32" {
            self.count(inst, 3)?;
            convert.from = Data::Float(Format::F32);
            op.dst = self.target(inst, 0, 2 * bits)?;
            (op.a, op.b) = (self.source(inst, 1, 32)?, self.source(inst, 2, 32)?);
            op.kind = OpKind::ConvertPair { convert: Box::new(convert), bits };
            return Ok(true);
        }
        let Some((source, source_bits)) = pair(from) else { return Ok(false) };
        self.count(inst, 2)?;
        convert.from = Data::Float(source);
        (op.dst, op.a) = (self.target(inst, 0, 2 * bits)?, self.source(inst, 1, 2 * source_bits)?);
        op.kind = OpKind::Unpair { convert: Box::new(convert), bits: source_bits << 8 | bits };
        Ok(true)
    }

    /// The register of a value that stays the same through a launch.
    pub(super) fn constant(&mut self, fill: Fill) -> u32 {
        self.fill(fill)
    }
}

/// A type of two numbers in a register: the format of each, and its bits.
fn pair(name: &str) -> Option<(Format, u32)> {
    Some(match name {
        "f16x2" => (Format::F16, 16),
        "bf16x2" => (Format::BF16, 16),
        "e4m3x2" => (Format::E4M3, 8),
        "e5m2x2" => (Format::E5M2, 8),
        _ => return None,
    })
}
