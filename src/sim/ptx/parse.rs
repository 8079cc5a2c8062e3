//! From text to [`Module`]: directives, entries, declarations, labels and scopes. Operands are in `operand`.

mod operand;

use super::inst::{Entry, Guard, Inst, Module, ParamDecl};
use super::token::{Comment, Token, tokens, wrong};
use super::world::SHARED;
use crate::error::Result;
use std::collections::HashMap;

/// Registers that an entry may use.
const MOST_REGISTERS: u32 = 1 << 18;
/// Bytes of local memory of a thread (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
const MOST_LOCAL_BYTES: u32 = 512 << 10;

/// What a name represents.
#[derive(Debug, Clone, Copy)]
enum Name {
    /// A register, once it is used, and its bits.
    Reg {
        slot: Option<u32>,
        bits: u32,
    },
    Pred {
        slot: Option<u32>,
    },
    /// The address of a variable in its state space.
    Symbol(u64),
    Param(u32),
}

/// A block of braces: its names, its labels, and the labels that its instructions branch to.
#[derive(Debug, Default)]
struct Scope<'a> {
    names: HashMap<&'a str, Name>,
    /// `%r<38>`: names of a prefix with a number below a count.
    ranges: Vec<(&'a str, u32, u32)>,
    labels: HashMap<&'a str, u32>,
    branches: Vec<(usize, &'a str)>,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    scopes: Vec<Scope<'a>>,
    entry: Entry,
    /// Predicates have a width of 0 bits.
    shared_end: u64,
}

/// Parses a module.
///
/// # Errors
/// A text that is no PTX, or that has a declaration that is not supported.
pub(in crate::sim::ptx) fn module(text: &str) -> Result<Module> {
    let (tokens, comments) = tokens(text)?;
    let mut parser =
        Parser { tokens, at: 0, scopes: vec![Scope::default()], entry: Entry::default(), shared_end: SHARED };
    let mut entries = Vec::new();
    while let Some(token) = parser.next() {
        match token.text {
            ".version" | ".target" | ".address_size" | ".file" => parser.skip_line(token.line),
            ".visible" | ".weak" => {}
            ".extern" | ".shared" => parser.shared()?,
            ".entry" => entries.push(parser.entry(token.line)?),
            other => return Err(wrong(token.line, &format!("`{other}` is no directive that is supported here"))),
        }
    }
    let mut from = 0;
    for entry in &mut entries {
        let to = entry.insts.last().map_or(entry.line, |i| i.line);
        entry.notes = notes(&comments, (from, to));
        from = to + 1;
    }
    Ok(Module { entries })
}

/// The comments between two lines.
fn notes(comments: &[Comment<'_>], (from, to): (u32, u32)) -> Vec<(u32, String)> {
    let own = comments.iter().filter(|(line, _)| (from..=to).contains(line));
    own.map(|(line, text)| (*line, text.strip_prefix(' ').unwrap_or(text).to_string())).collect()
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |t| t.text)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.line)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).copied();
        self.at += usize::from(token.is_some());
        token
    }

    fn word(&mut self) -> Result<Token<'a>> {
        self.next().ok_or_else(|| wrong(self.line(), "the text ends where more was expected"))
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.peek() == text;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        let token = self.word()?;
        match token.text == text {
            true => Ok(()),
            false => Err(wrong(token.line, &format!("`{text}` was expected, and `{}` found", token.text))),
        }
    }

    fn skip_line(&mut self, line: u32) {
        while self.tokens.get(self.at).is_some_and(|t| t.line == line) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<u32> {
        let token = self.word()?;
        let value = operand::integer(token.text).and_then(|n| u32::try_from(n).ok());
        value.ok_or_else(|| wrong(token.line, &format!("`{}` is no count", token.text)))
    }

    /// `.shared .align 1024 .b8 name[bytes];`: the dynamic shared memory begins behind what is declared with a size.
    fn shared(&mut self) -> Result<()> {
        let line = self.line();
        self.eat(".shared");
        let (name, align, bytes) = self.variable()?;
        self.shared_end = self.shared_end.next_multiple_of(u64::from(align));
        if bytes != 0 {
            return Err(wrong(line, &format!("shared memory of a fixed size ({name}) is not supported")));
        }
        self.declare(name, Name::Symbol(self.shared_end));
        Ok(())
    }

    /// `.align 16 .b8 name[bytes];`: name, alignment and bytes (0 without a size).
    fn variable(&mut self) -> Result<(&'a str, u32, u32)> {
        let mut align = 1;
        if self.eat(".align") {
            align = self.number()?;
        }
        let kind = self.word()?;
        let each = operand::bits(kind.text).map(|b| b.div_ceil(8)).filter(|b| *b > 0);
        let each = each.ok_or_else(|| wrong(kind.line, &format!("`{}` is no type", kind.text)))?;
        let name = self.word()?;
        let mut bytes = each;
        if self.eat("[") {
            bytes = 0;
            if self.peek() != "]" {
                bytes = self.number()?.saturating_mul(each);
            }
            self.expect("]")?;
        }
        self.expect(";")?;
        if !align.is_power_of_two() || align > 1 << 16 {
            return Err(wrong(name.line, "an alignment is no power of two"));
        }
        Ok((name.text, align.max(each), bytes))
    }

    fn declare(&mut self, text: &'a str, name: Name) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(text, name);
        }
    }

    fn entry(&mut self, line: u32) -> Result<Entry> {
        let name = self.word()?;
        self.entry = Entry { name: name.text.to_string(), line, ..Entry::default() };
        self.scopes.push(Scope::default());
        if self.eat("(") {
            self.params()?;
        }
        loop {
            let token = self.word()?;
            match token.text {
                "{" => break,
                ".reqntid" | ".maxntid" | ".reqnctapercluster" => {
                    let mut sizes = [1; 3];
                    for (n, size) in sizes.iter_mut().enumerate() {
                        if n > 0 && !self.eat(",") {
                            break;
                        }
                        *size = self.number()?;
                    }
                    match token.text {
                        ".reqntid" => self.entry.threads = Some(sizes),
                        ".reqnctapercluster" => self.entry.cluster = Some(sizes),
                        _ => {}
                    }
                }
                ".minnctapersm" | ".maxnreg" | ".maxclusterrank" => drop(self.number()?),
                ".explicitcluster" => {}
                other => return Err(wrong(token.line, &format!("`{other}` is no directive of an entry"))),
            }
        }
        self.scopes.push(Scope::default());
        let outside = self.scopes.len() - 1;
        while self.scopes.len() > outside {
            self.statement()?;
        }
        self.scopes.pop();
        Ok(std::mem::take(&mut self.entry))
    }

    fn params(&mut self) -> Result<()> {
        let mut offset = 0u32;
        while !self.eat(")") {
            self.expect(".param")?;
            let mut align = 1;
            let mut kind = self.word()?;
            // `.param .align 64 .b8 name[128]`, and LLVM's `.param .u64 .ptr .global .align 4 name`.
            if kind.text == ".align" {
                align = self.number()?;
                kind = self.word()?;
            }
            let each = operand::bits(kind.text).map(|b| b / 8);
            let each = each.ok_or_else(|| wrong(kind.line, &format!("`{}` is no type", kind.text)))?;
            while matches!(self.peek(), ".ptr" | ".global" | ".shared" | ".align") {
                let is_align = self.peek() == ".align";
                self.at += 1;
                if is_align {
                    self.number()?;
                }
            }
            let name = self.word()?;
            let mut bytes = each;
            if self.eat("[") {
                bytes = self.number()?.saturating_mul(each);
                self.expect("]")?;
            }
            self.eat(",");
            offset = offset.next_multiple_of(align.clamp(1, 1 << 12).next_power_of_two().max(each.max(1)));
            self.declare(name.text, Name::Param(offset));
            self.entry.params.push(ParamDecl { name: name.text.to_string(), bytes, offset });
            offset = offset.saturating_add(bytes);
            if offset > 1 << 16 {
                return Err(wrong(name.line, "an entry has more bytes of parameters than a launch can pass"));
            }
        }
        Ok(())
    }

    /// A declaration, a label, a brace or an instruction.
    fn statement(&mut self) -> Result<()> {
        let token = self.word()?;
        match token.text {
            "{" => self.scopes.push(Scope::default()),
            "}" => self.leave(token.line)?,
            ".reg" => self.registers()?,
            ".local" => {
                let (name, align, bytes) = self.variable()?;
                let at = self.entry.local_bytes.next_multiple_of(align);
                self.declare(name, Name::Symbol(u64::from(at)));
                self.entry.local_bytes = at.saturating_add(bytes);
                if self.entry.local_bytes > MOST_LOCAL_BYTES {
                    return Err(wrong(token.line, "an entry has more local memory than a thread can have"));
                }
            }
            ".pragma" | ".loc" | ".file" => {
                self.skip_line(token.line);
            }
            ";" => {}
            text if self.peek() == ":" && !text.starts_with(['@', '.']) => {
                self.at += 1;
                let place = self.entry.insts.len() as u32;
                let scope = self.scopes.last_mut();
                if scope.is_some_and(|s| s.labels.insert(text, place).is_some()) {
                    return Err(wrong(token.line, &format!("the label {text} is defined twice in a scope")));
                }
            }
            _ => self.instruction(token)?,
        }
        Ok(())
    }

    /// A scope ends: branches to its labels are known now; the others name labels further out.
    fn leave(&mut self, line: u32) -> Result<()> {
        let Some(scope) = self.scopes.pop() else { return Err(wrong(line, "a brace closes nothing")) };
        for (inst, name) in scope.branches {
            match scope.labels.get(name) {
                Some(place) => self.entry.insts[inst].operands = vec![super::inst::Operand::Label(*place)],
                // The scope of the parameters is outside of the body.
                None if self.scopes.len() > 2 => {
                    self.scopes.last_mut().into_iter().for_each(|s| s.branches.push((inst, name)));
                }
                None => return Err(wrong(self.entry.insts[inst].line, &format!("there is no label {name}"))),
            }
        }
        Ok(())
    }

    /// `.reg .b32 %r<38>;` or `.reg .pred over, again;`
    fn registers(&mut self) -> Result<()> {
        let kind = self.word()?;
        let bits = if kind.text == ".pred" { Some(0) } else { operand::bits(kind.text).filter(|b| *b >= 8) };
        let bits =
            bits.ok_or_else(|| wrong(kind.line, &format!("registers of type {} are not supported", kind.text)))?;
        loop {
            let name = self.word()?;
            if self.eat("<") {
                let count = self.number()?;
                self.expect(">")?;
                self.scopes.last_mut().into_iter().for_each(|s| s.ranges.push((name.text, count, bits)));
            } else {
                let named = if bits == 0 { Name::Pred { slot: None } } else { Name::Reg { slot: None, bits } };
                self.declare(name.text, named);
            }
            if !self.eat(",") {
                return self.expect(";");
            }
        }
    }

    /// What a name represents; a register has its place from here on.
    fn lookup(&mut self, text: &'a str, line: u32) -> Result<Option<Name>> {
        let (registers, predicates) = (&mut self.entry.registers, &mut self.entry.predicates);
        for scope in self.scopes.iter_mut().rev() {
            let mut found = scope.names.get(text).copied();
            if found.is_none() {
                let split = text.trim_end_matches(|c: char| c.is_ascii_digit());
                let number = text[split.len()..].parse::<u32>().ok();
                let range = scope.ranges.iter().find(|r| r.0 == split && number.is_some_and(|n| n < r.1));
                found = range.map(|r| match r.2 {
                    0 => Name::Pred { slot: None },
                    bits => Name::Reg { slot: None, bits },
                });
            }
            let Some(name) = found else { continue };
            let fresh = |count: &mut u32| {
                *count += 1;
                Some(*count - 1)
            };
            let name = match name {
                Name::Reg { slot: None, bits } => Name::Reg { slot: fresh(registers), bits },
                Name::Pred { slot: None } => Name::Pred { slot: fresh(predicates) },
                known => return Ok(Some(known)),
            };
            if *registers.max(predicates) > MOST_REGISTERS {
                return Err(wrong(line, "an entry has too many registers"));
            }
            scope.names.insert(text, name);
            return Ok(Some(name));
        }
        Ok(None)
    }

    fn instruction(&mut self, first: Token<'a>) -> Result<()> {
        let mut token = first;
        let mut guard = None;
        if token.text == "@" {
            let negated = self.eat("!");
            let name = self.word()?;
            guard = match self.lookup(name.text, name.line)? {
                Some(Name::Pred { slot: Some(predicate) }) => Some(Guard { predicate, negated }),
                _ => return Err(wrong(name.line, &format!("the guard {} is no predicate", name.text))),
            };
            token = self.word()?;
        }
        if !token.text.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(wrong(token.line, &format!("`{}` is no instruction", token.text)));
        }
        let opcode: Vec<String> = token.text.split('.').map(str::to_string).collect();
        let mut inst = Inst { line: token.line, guard, opcode, operands: Vec::new() };
        if inst.opcode[0] == "bra" {
            let label = self.word()?;
            let at = self.entry.insts.len();
            self.scopes.last_mut().into_iter().for_each(|s| s.branches.push((at, label.text)));
        } else {
            while self.peek() != ";" {
                inst.operands.push(self.operand(token.line)?);
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.expect(";")?;
        self.entry.insts.push(inst);
        Ok(())
    }
}
