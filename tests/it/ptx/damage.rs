//! Damaged PTX: every instruction of a text with an operand, a predicate, the opcode, a width or an offset exchanged, or left out.

use std::collections::{BTreeMap, BTreeSet};

/// A damaged text.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The line of the instruction, counted from 1.
    pub line: u32,
    /// The instruction, and what stands in its place.
    pub what: String,
    pub text: String,
}

/// An instruction in its parts.
struct Inst<'a> {
    guard: Option<&'a str>,
    opcode: &'a str,
    operands: Vec<String>,
}

/// Exchanges of opcodes: each in both directions.
const OPCODES: [(&str, &str); 42] = [
    ("add.", "sub."),
    ("mul.lo", "mul.hi"),
    ("mul.wide.u", "mul.wide.s"),
    ("mad.lo", "mad.hi"),
    ("shl.", "shr."),
    ("shr.u", "shr.s"),
    ("and.b", "or.b"),
    ("or.b", "xor.b"),
    ("and.pred", "or.pred"),
    ("or.pred", "xor.pred"),
    ("min.", "max."),
    ("bfe.u", "bfe.s"),
    ("setp.eq", "setp.ne"),
    ("setp.lt", "setp.le"),
    ("setp.gt", "setp.ge"),
    ("setp.lt", "setp.gt"),
    ("setp.le", "setp.ge"),
    ("setp.lt.u", "setp.lt.s"),
    ("setp.gt.u", "setp.gt.s"),
    ("setp.eq", "setp.lt"),
    ("fma.rn.f32", "add.rn.f32"),
    ("add.rn.f32", "mul.rn.f32"),
    ("add.f32", "mul.f32"),
    ("cvt.u64.u32", "cvt.s64.s32"),
    ("cvt.u32.u16", "cvt.s32.s16"),
    ("cvt.rn", "cvt.rz"),
    ("ld.global", "ld.shared"),
    ("st.global", "st.shared"),
    (".nc.", "."),
    ("shared.f32", "global.f32"),
    ("bar.sync", "bar.warp.sync"),
    ("ld.shared.f32", "ld.shared.u16"),
    ("st.shared.f32", "st.shared.b16"),
    ("st.global.f32", "st.global.b16"),
    ("ld.global.nc.u16", "ld.global.nc.u8"),
    ("st.shared.b32", "st.shared.b16"),
    ("st.global.b32", "st.global.b16"),
    ("cp.async.ca.", "cp.async.cg."),
    ("tid.x", "ctaid.x"),
    ("tid.x", "tid.y"),
    ("ctaid.x", "ctaid.y"),
    ("shfl.sync.bfly", "shfl.sync.idx"),
];

/// Names that may stand for each other.
fn class(name: &str) -> Option<&str> {
    let rest = name.strip_prefix('%')?;
    let class = rest.trim_end_matches(|c: char| c.is_ascii_digit());
    (class.len() < rest.len() && matches!(class, "p" | "r" | "rs" | "rd" | "f" | "fd" | "h" | "hh")).then_some(class)
}

/// The registers in a text, in order.
fn registers(text: &str) -> Vec<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '.' | '$');
    text.split(|c: char| !word(c)).filter(|w| class(w).is_some()).collect()
}

fn parse(line: &str) -> Option<Inst<'_>> {
    let line = line.split("//").next()?.trim();
    let body = line.strip_suffix(';')?;
    let (guard, body) = match body.strip_prefix('@') {
        Some(rest) => rest.split_once(char::is_whitespace).map(|(g, b)| (Some(g), b.trim()))?,
        None => (None, body),
    };
    let (opcode, rest) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
    if !opcode.starts_with(|c: char| c.is_ascii_lowercase()) {
        return None;
    }
    let (mut operands, mut depth, mut own) = (Vec::new(), 0, String::new());
    for c in rest.chars() {
        depth += i32::from(matches!(c, '{' | '[')) - i32::from(matches!(c, '}' | ']'));
        if c == ',' && depth == 0 {
            operands.push(std::mem::take(&mut own).trim().to_string());
        } else {
            own.push(c);
        }
    }
    if !own.trim().is_empty() {
        operands.push(own.trim().to_string());
    }
    Some(Inst { guard, opcode, operands })
}

fn render(inst: &Inst<'_>) -> String {
    let guard = inst.guard.map_or(String::new(), |g| format!("@{g} "));
    format!("{guard}{} {};", inst.opcode, inst.operands.join(", "))
}

/// The register behind another in its class, going round.
fn another<'a>(name: &'a str, used: &BTreeMap<String, BTreeSet<&'a str>>) -> Option<&'a str> {
    let all = used.get(class(name)?)?;
    all.range(name..).find(|r| **r != name).or_else(|| all.iter().find(|r| **r != name)).copied()
}

/// Whether operands may change places without a difference.
fn commutes(opcode: &str) -> bool {
    ["add.", "mul.", "and.", "or.", "xor.", "min.", "max.", "setp.eq", "setp.ne", "fma.", "mad."]
        .iter()
        .any(|o| opcode.starts_with(o))
}

/// What may stand in the place of an instruction.
fn changes<'a>(inst: &'a Inst<'a>, used: &BTreeMap<String, BTreeSet<&'a str>>) -> Vec<String> {
    let mut out = vec![String::new()];
    let with = |operands: Vec<String>| {
        render(&Inst { operands, ..Inst { guard: inst.guard, opcode: inst.opcode, operands: Vec::new() } })
    };
    let guarded = |guard: Option<&str>| render(&Inst { guard, opcode: inst.opcode, operands: inst.operands.clone() });
    if let Some(guard) = inst.guard {
        out.push(guarded(None));
        let other = guard.strip_prefix('!').map_or_else(|| format!("!{guard}"), str::to_string);
        out.push(guarded(Some(&other)));
        if let Some(other) = another(guard.trim_start_matches('!'), used) {
            out.push(guarded(Some(other)));
        }
    }
    for (n, operand) in inst.operands.iter().enumerate() {
        let mut put = |text: String| {
            let mut operands = inst.operands.clone();
            operands[n] = text;
            out.push(with(operands));
        };
        for (k, register) in registers(operand).into_iter().enumerate() {
            // Of a vector the first register is enough.
            if k < 2
                && let Some(other) = another(register, used)
            {
                let at = operand.find(register).unwrap_or(0);
                put(format!("{}{other}{}", &operand[..at], &operand[at + register.len()..]));
            }
        }
        if let Some((base, rest)) =
            operand.strip_prefix('[').and_then(|o| o.strip_suffix(']')).map(|o| o.split_once('+').unwrap_or((o, "0")))
            && let Ok(offset) = rest.parse::<i64>()
            && !base.contains(',')
        {
            put(format!("[{base}+{}]", offset + 4));
            put(format!("[{base}+{}]", offset - 16));
        }
        if let Ok(number) = operand.parse::<i64>() {
            put((number + 1).to_string());
            if number != 0 {
                put((number - 1).to_string());
                put((number * 2).to_string());
            }
        }
        if let Some(special) = operand.strip_prefix("%tid.x").or(operand.strip_prefix("%ctaid.x")) {
            put(format!("%{}.x{special}", if operand.starts_with("%tid") { "ctaid" } else { "tid" }));
            put(operand.replace(".x", ".y"));
        }
    }
    let sources = 1..inst.operands.len().saturating_sub(1);
    for n in sources.filter(|n| inst.operands[*n] != inst.operands[n + 1]) {
        let fused = inst.opcode.starts_with("fma") || inst.opcode.starts_with("mad");
        if !commutes(inst.opcode) || fused && n > 1 {
            let mut operands = inst.operands.clone();
            operands.swap(n, n + 1);
            out.push(with(operands));
        }
    }
    for (one, two) in OPCODES {
        for (from, to) in [(one, two), (two, one)] {
            // `ld.global` for `ld.global.nc` is the same instruction to all who may use the second.
            if inst.opcode.contains(from) && (from, to) != (".nc.", ".") && from != "." {
                let opcode = inst.opcode.replacen(from, to, 1);
                let mut operands = inst.operands.clone();
                if opcode.starts_with("add.rn.f32") && operands.len() == 4 {
                    operands.pop();
                }
                if opcode.starts_with("bar.warp") {
                    operands = vec!["-1".to_string()];
                }
                out.push(render(&Inst { guard: inst.guard, opcode: &opcode, operands }));
            }
        }
    }
    out.sort();
    out.dedup();
    out.retain(|o| *o != render(inst));
    out
}

/// All damaged texts.
pub fn mutants(text: &str) -> Vec<Mutant> {
    let lines: Vec<&str> = text.lines().collect();
    let mut used: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for register in
        lines.iter().filter(|l| parse(l).is_some()).flat_map(|l| registers(l.split("//").next().unwrap_or("")))
    {
        used.entry(class(register).unwrap_or("").to_string()).or_default().insert(register);
    }
    let mut out = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let Some(inst) = parse(line) else { continue };
        for change in changes(&inst, &used) {
            let mut all = lines.clone();
            all[n] = &change;
            out.push(Mutant {
                line: n as u32 + 1,
                what: format!("`{}` -> `{change}`", render(&inst)),
                text: all.join("\n") + "\n",
            });
        }
    }
    out
}
