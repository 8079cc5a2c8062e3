//! Operands: registers, numbers, addresses, vectors, special registers.

use super::super::inst::{Operand, Special};
use super::super::token::wrong;
use super::{Name, Parser};
use crate::error::Result;

/// Operands in braces or coordinates in brackets.
const MOST_PARTS: usize = 256;

/// The bits of a type.
pub(super) fn bits(kind: &str) -> Option<u32> {
    Some(match kind.trim_start_matches('.') {
        "b8" | "u8" | "s8" => 8,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "s16x2" | "u16x2" => 32,
        "b64" | "u64" | "s64" | "f64" => 64,
        _ => return None,
    })
}

/// An integer literal: decimal, hexadecimal or octal.
pub(super) fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8).ok(),
        None => text.parse().ok(),
    }
}

/// `0f3F800000` or `0d3FF0000000000000`: the bits of a floating-point number.
fn float(text: &str) -> Option<u64> {
    let (head, digits) = text.split_at_checked(2)?;
    match (head, digits.len()) {
        ("0f" | "0F", 8) | ("0d" | "0D", 16) => u64::from_str_radix(digits, 16).ok(),
        _ => None,
    }
}

fn special(text: &str) -> Option<Special> {
    let (name, axis) = match text.rsplit_once('.') {
        Some((name, "x")) => (name, Some(0)),
        Some((name, "y")) => (name, Some(1)),
        Some((name, "z")) => (name, Some(2)),
        Some(_) => return None,
        None => (text, None),
    };
    Some(match (name, axis) {
        ("%tid", Some(n)) => Special::Tid(n),
        ("%ntid", Some(n)) => Special::Ntid(n),
        ("%ctaid", Some(n)) => Special::Ctaid(n),
        ("%nctaid", Some(n)) => Special::Nctaid(n),
        ("%clusterid", Some(n)) => Special::ClusterId(n),
        ("%nclusterid", Some(n)) => Special::NclusterId(n),
        ("%cluster_ctaid", Some(n)) => Special::ClusterCtaid(n),
        ("%cluster_nctaid", Some(n)) => Special::ClusterNctaid(n),
        ("%cluster_ctarank", None) => Special::ClusterCtarank,
        ("%cluster_nctarank", None) => Special::ClusterNctarank,
        ("%laneid", None) => Special::LaneId,
        ("%warpid", None) => Special::WarpId,
        ("%lanemask_eq", None) => Special::LanemaskEq,
        ("%lanemask_le", None) => Special::LanemaskLe,
        ("%lanemask_lt", None) => Special::LanemaskLt,
        ("%lanemask_ge", None) => Special::LanemaskGe,
        ("%lanemask_gt", None) => Special::LanemaskGt,
        ("%dynamic_smem_size", None) => Special::DynamicShared,
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    /// An operand of the instruction on a line.
    pub(super) fn operand(&mut self, line: u32) -> Result<Operand> {
        match self.peek() {
            "{" => {
                self.at += 1;
                Ok(Operand::Vector(self.list("}")?))
            }
            "[" => {
                self.at += 1;
                self.address(line)
            }
            _ => {
                let first = self.plain()?;
                if self.eat("|") {
                    let second = self.plain()?;
                    return Ok(Operand::Pair(Box::new(first), Box::new(second)));
                }
                Ok(first)
            }
        }
    }

    fn list(&mut self, close: &str) -> Result<Vec<Operand>> {
        let mut out = Vec::new();
        loop {
            out.push(self.plain()?);
            if out.len() > MOST_PARTS {
                return Err(wrong(self.line(), "an operand has too many parts"));
            }
            if !self.eat(",") {
                self.expect(close)?;
                return Ok(out);
            }
        }
    }

    /// A register, a number or a name.
    fn plain(&mut self) -> Result<Operand> {
        let not = self.eat("!");
        let minus = self.eat("-");
        let token = self.word()?;
        if token.text == "_" {
            return Ok(Operand::Sink);
        }
        if let Some(number) = integer(token.text) {
            return Ok(Operand::Imm(if minus { number.wrapping_neg() } else { number }));
        }
        if let (Some(bits), false) = (float(token.text), minus) {
            return Ok(Operand::Imm(bits));
        }
        let name = self.lookup(token.text, token.line)?;
        Ok(match name {
            Some(Name::Reg { slot: Some(reg), bits }) if !not && !minus => Operand::Reg { reg, bits },
            Some(Name::Pred { slot: Some(reg) }) if !minus => Operand::Pred { reg, negated: not },
            Some(Name::Symbol(at)) if !not && !minus => Operand::Imm(at),
            Some(Name::Param(at)) if !not && !minus => Operand::Imm(u64::from(at)),
            _ => match special(token.text) {
                Some(special) if !not && !minus => Operand::Special(special),
                _ => return Err(wrong(token.line, &format!("`{}` is no operand", token.text))),
            },
        })
    }

    /// The text in brackets.
    fn address(&mut self, line: u32) -> Result<Operand> {
        let text = self.peek();
        let is_param = match self.lookup(text, line)? {
            Some(Name::Param(at)) => Some(at),
            _ => None,
        };
        let base = self.plain()?;
        if self.eat(",") {
            let coordinates = match self.eat("{") {
                true => self.list("}")?,
                false => vec![self.plain()?],
            };
            self.expect("]")?;
            return Ok(Operand::Tensor { map: Box::new(base), coordinates });
        }
        let mut offset = 0i64;
        while self.eat("+") || self.peek() == "-" {
            let minus = self.eat("-");
            let token = self.word()?;
            let number = integer(token.text).and_then(|n| i64::try_from(n).ok());
            let number = number.ok_or_else(|| wrong(line, &format!("`{}` is no offset", token.text)))?;
            offset = offset.wrapping_add(if minus { -number } else { number });
        }
        self.expect("]")?;
        match (base, is_param) {
            (_, Some(at)) => {
                let at = i64::from(at).wrapping_add(offset);
                let at = u32::try_from(at).map_err(|_| wrong(line, "an offset in a parameter is negative"))?;
                Ok(Operand::Param { offset: at })
            }
            (Operand::Reg { reg, .. }, None) => Ok(Operand::Address { base: Some(reg), offset }),
            (Operand::Imm(at), None) => Ok(Operand::Address { base: None, offset: (at as i64).wrapping_add(offset) }),
            _ => Err(wrong(line, &format!("`{text}` is no address"))),
        }
    }
}
