//! PTX text, as far as addresses and branches need it (PTX ISA, "Instruction Set").
//!
//! Integer arithmetic, predicates, branches, loads and stores are decoded; every other instruction is data: its result is
//! not known, which only matters where an address or a branch depends on it. What an instruction does is read from its name
//! and arguments (`decode`); here are the text around them, labels and registers.

mod decode;
mod scope;

pub use super::tile::Space;
use super::tile::Tile;
use scope::Scopes;
use std::collections::HashMap;

/// A register, by number within its function.
pub type Reg = usize;

/// A type: what it holds and how wide it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// Whether it is signed.
    pub signed: bool,
    /// Bits; 1 for predicates.
    pub bits: u32,
}

/// An operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// A register.
    Reg(Reg),
    /// A number.
    Int(i64),
    /// An index of the hardware: `tid`, `ctaid`, `ntid` or `nctaid` with its axis, `laneid` or `cluster_ctarank`.
    Special(String),
    /// A name: shared memory, or a parameter.
    Name(String),
    /// Anything else; its value is not known.
    Other,
}

/// Operations on integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alu {
    Add,
    Sub,
    Mul,
    MulHigh,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Min,
    Max,
    Div,
    Rem,
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What an instruction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// `dst = src`.
    Move { dst: Reg, src: Arg },
    /// `dst = a op b`.
    Alu { op: Alu, ty: Type, dst: Reg, a: Arg, b: Arg },
    /// `dst` = `length` bits of `a` from bit `from` on.
    Field { ty: Type, dst: Reg, a: Arg, from: Arg, length: Arg },
    /// `dst` = 32 bits of `high:low`, shifted left (its upper half) or right (its lower half).
    Funnel { left: bool, wrap: bool, dst: Reg, low: Arg, high: Arg, by: Arg },
    /// `dst = a * b + c`; the product of twice the bits where it is wide.
    Mad { ty: Type, wide: bool, dst: Reg, a: Arg, b: Arg, c: Arg },
    /// `dst = ~a`, of predicates too.
    Not { ty: Type, dst: Reg, a: Arg },
    /// `dst = a cmp b`.
    Set { cmp: Compare, ty: Type, dst: Reg, a: Arg, b: Arg },
    /// `dst = p ? a : b`.
    Select { dst: Reg, a: Arg, b: Arg, p: Arg },
    /// Widens or narrows.
    Convert { to: Type, from: Type, dst: Reg, a: Arg },
    /// Reads or writes `bytes` at an address; the registers read into are not known afterwards.
    Access { space: Space, write: bool, bytes: i64, base: Arg, offset: i64, dst: Vec<Reg> },
    /// A warp reads or writes matrices of shared memory: each of the first `lanes` lanes gives the address of 16 bytes.
    Matrices { write: bool, lanes: u32, base: Arg, offset: i64, dst: Vec<Reg> },
    /// A warp reads or writes a tile whose rows are `stride` elements apart.
    Tile { tile: Tile, base: Arg, offset: i64, stride: Arg, dst: Vec<Reg> },
    /// cp.async: `bytes` of shared memory, of which `filled` (all, if absent) come from device memory.
    Copy { bytes: i64, to: (Arg, i64), from: (Arg, i64), filled: Option<Arg> },
    /// One lane of the warp is elected: the first of those that run.
    Elect { dst: Vec<Reg> },
    /// All lanes get what a register holds in one of them.
    Shuffle { dst: Reg, a: Arg, lane: Arg },
    /// Whether a phase of an mbarrier is over: each wait is taken to pass at its first look.
    Over { dst: Vec<Reg> },
    /// A product of a warpgroup, which reads tiles of shared memory by itself.
    Product { dst: Vec<Reg> },
    /// A bulk copy of a box.
    Bulk { write: bool },
    /// Goes to the instruction of that number.
    Branch { to: usize },
    /// Ends the thread.
    Return,
    /// Orders and waits; nothing for one warp alone.
    Wait,
    /// A fused multiply-add on data.
    Fma { dst: Vec<Reg> },
    /// Another operation on data.
    Data { dst: Vec<Reg> },
    /// Touches memory or goes somewhere in a way that is not followed.
    Foreign { op: String },
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// A predicate, and the value of it for which the instruction runs.
    pub guard: Option<(Reg, bool)>,
    /// Its name.
    pub op: String,
    /// What it does.
    pub what: What,
    /// Registers that it writes.
    pub defines: Vec<Reg>,
    /// Registers that it reads, besides the guard.
    pub uses: Vec<Reg>,
}

/// An entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Names of its parameters, in order.
    pub params: Vec<String>,
    /// Its instructions.
    pub code: Vec<Instruction>,
    /// Of each register, how many of 32 bits it takes; predicates take none.
    pub widths: Vec<u32>,
}

/// The entry points of a module.
pub fn entries(text: &str) -> Vec<Entry> {
    let plain: String = text.lines().map(|l| l.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let mut rest = plain.as_str();
    let mut out = Vec::new();
    while let Some((_, after)) = rest.split_once(".entry ") {
        let Some((name, after)) = after.split_once('(') else { break };
        let Some((params, after)) = after.split_once(')') else { break };
        let Some((_, after)) = after.split_once('{') else { break };
        let end = closing(after);
        let params = params.split(',').filter_map(|p| p.split_whitespace().last()).map(str::to_string).collect();
        out.push(entry(name.trim(), params, &after[..end]));
        rest = &after[end..];
    }
    out
}

/// Where the brace that was opened before the text closes.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn entry(name: &str, params: Vec<String>, body: &str) -> Entry {
    let mut names = Names::default();
    let mut code = Vec::new();
    let mut labels = HashMap::new();
    let mut jumps = Vec::new();
    let mut scopes = Scopes::default();
    for piece in body.split(';') {
        let piece = scopes.enter(piece, |label| {
            labels.insert(label, code.len());
        });
        if piece.is_empty() || piece.starts_with('.') {
            continue;
        }
        let (guard, words) = names.guard(&piece);
        let (op, args) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        if op.split('.').next() == Some("bra") {
            jumps.push((code.len(), scopes.label(args.trim())));
        }
        let args = split(args);
        let what = names.decode(op, &args);
        let (defines, uses) = names.flow(&what, &args);
        code.push(Instruction { guard, op: op.to_string(), what, defines, uses });
    }
    for (at, label) in jumps {
        code[at].what = labels.get(&label).map_or(What::Return, |to| What::Branch { to: *to });
    }
    Entry { name: name.to_string(), params, code, widths: names.widths() }
}

/// Arguments at the top level: neither inside braces nor brackets.
fn split(args: &str) -> Vec<&str> {
    let (mut out, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in args.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                out.push(args[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    let last = args[from..].trim();
    if !last.is_empty() {
        out.push(last);
    }
    out
}

/// The names of registers in an argument; those of the hardware's indices have a point behind them.
fn registers_in(text: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || "%_.".contains(c));
    text.split(word).filter(|w| w.starts_with('%') && !w.contains('.') && *w != "%laneid")
}

/// Registers by name.
#[derive(Default)]
struct Names(HashMap<String, Reg>);

impl Names {
    fn register(&mut self, name: &str) -> Reg {
        let next = self.0.len();
        *self.0.entry(name.to_string()).or_insert(next)
    }

    /// The guard of an instruction, and the rest of it.
    fn guard<'t>(&mut self, piece: &'t str) -> (Option<(Reg, bool)>, &'t str) {
        let Some(guarded) = piece.strip_prefix('@') else { return (None, piece) };
        let (name, rest) = guarded.split_once(char::is_whitespace).unwrap_or((guarded, ""));
        let (name, wanted) = name.strip_prefix('!').map_or((name, true), |n| (n, false));
        (Some((self.register(name), wanted)), rest.trim())
    }

    /// The registers that an instruction writes and reads: it writes its first argument, unless it has no result.
    fn flow(&mut self, what: &What, args: &[&str]) -> (Vec<Reg>, Vec<Reg>) {
        let silent = matches!(
            what,
            What::Access { write: true, .. }
                | What::Matrices { write: true, .. }
                | What::Tile { tile: Tile { write: true, .. }, .. }
                | What::Copy { .. }
                | What::Branch { .. }
                | What::Return
                | What::Wait
                | What::Bulk { .. }
        );
        let (results, mut operands) = args.split_at(usize::from(!silent).min(args.len()));
        if let What::Product { .. } = what {
            // It adds to its first argument.
            operands = args;
        }
        let all = |names: &mut Names, texts: &[&str]| {
            texts.iter().flat_map(|t| registers_in(t)).map(|n| names.register(n)).collect::<Vec<Reg>>()
        };
        (all(self, results), all(self, operands))
    }

    fn widths(&self) -> Vec<u32> {
        let mut widths = vec![1; self.0.len()];
        for (name, reg) in &self.0 {
            widths[*reg] = match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
                "%p" => 0,
                "%rd" | "%fd" => 2,
                "%rq" => 4,
                _ => 1,
            };
        }
        widths
    }

    fn arg(&mut self, text: &str) -> Arg {
        let special = ["%tid.", "%ntid.", "%ctaid.", "%nctaid.", "%laneid", "%cluster_ctarank"];
        if special.iter().any(|s| text.starts_with(s)) {
            return Arg::Special(text[1..].to_string());
        }
        if text.starts_with('%') && !text.contains('.') {
            return Arg::Reg(self.register(text));
        }
        if let Some(n) = number(text) {
            return Arg::Int(n);
        }
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let named = text.starts_with(|c: char| !c.is_ascii_digit()) && text.chars().all(name);
        if named { Arg::Name(text.to_string()) } else { Arg::Other }
    }

    /// The registers that an argument names: one, or several in braces.
    fn registers(&mut self, text: &str) -> Vec<Reg> {
        let inside = text.trim_start_matches('{').trim_end_matches('}');
        inside.split([',', '|']).map(str::trim).filter(|n| n.starts_with('%')).map(|n| self.register(n)).collect()
    }

    /// `[base+offset]`.
    fn address(&mut self, text: &str) -> (Arg, i64) {
        let inside = text.trim_start_matches('[').trim_end_matches(']');
        let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
        (self.arg(base.trim()), number(offset.trim()).unwrap_or(0))
    }
}

fn number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |d| (-1, d));
    let digits = digits.trim_end_matches('U');
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse::<u64>().ok()? as i64,
    };
    Some(value.wrapping_mul(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 7.8
.visible .entry k(
	.param .u64 k_param_0, // the first
	.param .u64 k_param_1
)
.reqntid 16, 16, 1
{
	.reg .pred 	%p<4>;
	ld.param.u64 	%rd1, [k_param_1];
$L__BB0_1:                              // loop
	mad.lo.s32 	%r3, %r1, -4, %r2;
	@!%p1 bra 	$L__BB0_1;
	ld.global.nc.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1+16];
	cp.async.cg.shared.global 	[%rd2], [%rd1+32], 16, %r3;
	cp.async.wait_group 	0;
	fma.rn.f32 	%f1, %f2, %f3, %f4;
	setp.lo.u32 	%p1, %r1, 0x10;
	ret;
}
";

    #[test]
    fn instructions_are_read() {
        let all = entries(TEXT);
        assert_eq!((all.len(), all[0].name.as_str()), (1, "k"));
        assert_eq!(all[0].params, ["k_param_0", "k_param_1"]);
        let code: Vec<&What> = all[0].code.iter().map(|i| &i.what).collect();
        assert!(matches!(code[0], What::Access { space: Space::Param, base: Arg::Name(n), .. } if n == "k_param_1"));
        assert!(matches!(code[1], What::Mad { wide: false, b: Arg::Int(-4), .. }));
        assert_eq!((code[2], all[0].code[2].guard.map(|g| g.1)), (&What::Branch { to: 1 }, Some(false)));
        assert!(matches!(code[3], What::Access { bytes: 16, offset: 16, write: false, dst, .. } if dst.len() == 4));
        assert!(matches!(code[4], What::Copy { bytes: 16, to: (_, 0), from: (_, 32), filled: Some(Arg::Reg(_)) }));
        assert_eq!(code[5], &What::Wait);
        assert!(matches!(code[6], What::Fma { .. }));
        assert!(matches!(code[7], What::Set { cmp: Compare::Lt, b: Arg::Int(16), .. }));
        assert_eq!(code[8], &What::Return);
    }
}
