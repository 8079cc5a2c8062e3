//! The parsed form of a PTX module: entries, registers, instructions and operands. The text is the only source.

/// A register: its place in the register file of a warp. Predicates are counted apart from the other registers.
pub(in crate::sim::ptx) type Reg = u32;

/// A module.
#[derive(Debug, Clone, Default)]
pub(in crate::sim::ptx) struct Module {
    /// The entries, in the order of the text.
    pub entries: Vec<Entry>,
}

/// An entry: one kernel.
#[derive(Debug, Clone, Default)]
pub(in crate::sim::ptx) struct Entry {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<ParamDecl>,
    /// `.reqntid`.
    pub threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
    /// Registers that hold values.
    pub registers: u32,
    /// Registers that hold predicates.
    pub predicates: u32,
    /// Bytes of local memory of a thread.
    pub local_bytes: u32,
    /// Instructions, in the order of the text.
    pub insts: Vec<Inst>,
    /// The comments that codegen wrote for blocks of the text: the line, and what is said there.
    pub notes: Vec<(u32, String)>,
    /// The line of `.entry`, and the lines of comment in front of it that print the kernel.
    pub line: u32,
}

/// A parameter of an entry.
#[derive(Debug, Clone)]
pub(in crate::sim::ptx) struct ParamDecl {
    pub name: String,
    pub bytes: u32,
    /// Where it begins in the parameter space.
    pub offset: u32,
}

/// An instruction.
#[derive(Debug, Clone)]
pub(in crate::sim::ptx) struct Inst {
    /// The line of the text, counted from 1.
    pub line: u32,
    /// The predicate that guards it.
    pub guard: Option<Guard>,
    /// The opcode split at its dots: `ld`, `global`, `v4`, `f32`. `::` does not split.
    pub opcode: Vec<String>,
    /// The operands, from left to right.
    pub operands: Vec<Operand>,
}

impl Inst {
    /// The opcode as the text has it.
    pub fn name(&self) -> String {
        self.opcode.join(".")
    }

    /// Whether the opcode has a modifier.
    pub fn has(&self, modifier: &str) -> bool {
        self.opcode.iter().skip(1).any(|m| m == modifier)
    }
}

/// `@%p1` or `@!%p1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Guard {
    pub predicate: Reg,
    pub negated: bool,
}

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sim::ptx) enum Operand {
    /// A register of 16, 32 or 64 bits. Bits above its width are zero.
    Reg { reg: Reg, bits: u32 },
    /// A predicate.
    Pred { reg: Reg, negated: bool },
    /// An integer (sign-extended), the bits of a floating-point number, or the address of a symbol in its own state space.
    Imm(u64),
    /// A special register.
    Special(Special),
    /// `[%rd1+16]`; without a base, an address that is constant.
    Address { base: Option<Reg>, offset: i64 },
    /// `[gemm_param_0+8]`: the offset in the parameter space.
    Param { offset: u32 },
    /// `[%rd1, {%r1, %r2}]`: a tensor map and coordinates, innermost first.
    Tensor { map: Box<Operand>, coordinates: Vec<Operand> },
    /// `{%r1, %r2}`.
    Vector(Vec<Operand>),
    /// `%p1|%p2`.
    Pair(Box<Operand>, Box<Operand>),
    /// The place of a label among the instructions.
    Label(u32),
    /// `_`.
    Sink,
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::sim::ptx) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    ClusterId(u8),
    NclusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    LaneId,
    WarpId,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicShared,
}
