//! The decoded form of an entry: one operation an instruction, all operands registers. Immediates, special registers and
//! parameters are registers that are filled when a block begins.

use super::alu::convert::Convert;
use super::alu::{Compare, Map1, Map2, Map3, Map4};
use super::inst::{Guard, Special};
use super::tensor;
use super::world::Space;

/// No destination.
pub(in crate::sim::ptx) const NONE: u32 = u32::MAX;

/// What a register holds from the start of a block on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::sim::ptx) enum Fill {
    Constant(u64),
    Special(Special),
    /// Bytes of the parameter space, from an offset.
    Param {
        offset: u32,
        bytes: u32,
    },
}

/// A decoded entry.
#[derive(Debug, Clone, Default)]
pub(in crate::sim::ptx) struct Code {
    pub ops: Vec<Op>,
    pub fills: Vec<(u32, Fill)>,
    pub registers: u32,
    pub predicates: u32,
    pub tensor: Vec<tensor::Op>,
    /// Whether barriers of the block and the warp are not all that orders accesses.
    pub precise: bool,
    /// The smallest access of memory, in bytes.
    pub unit: u32,
}

/// An operation: its guard and its operands; which of them count is the kind's.
#[derive(Debug, Clone)]
pub(in crate::sim::ptx) struct Op {
    pub guard: Option<Guard>,
    pub kind: OpKind,
    pub dst: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub d: u32,
}

/// A predicate as a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Truth {
    Constant(bool),
    Reg { reg: u32, negated: bool },
}

/// How predicates are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Logic {
    And,
    Or,
    Xor,
}

/// What an operation does.
#[derive(Debug, Clone)]
pub(in crate::sim::ptx) enum OpKind {
    /// Nothing that this simulator sees: fences are implied by how it runs threads, prefetches are hints.
    Nothing,
    Move,
    Map1(Map1),
    Map2(Map2),
    Map3(Map3),
    Map4(Map4),
    /// The commonest operations, written out.
    Add32,
    Add64,
    Fma32,
    Convert(Box<Convert>),
    /// Two values of a into parts of a register of 32 bits or of 16: `first` becomes the high part.
    ConvertPair {
        convert: Box<Convert>,
        bits: u32,
    },
    /// The two parts of a into those of a register of 32 bits.
    Unpair {
        convert: Box<Convert>,
        bits: u32,
    },
    /// `setp`: the predicate, its complement, and what it is combined with.
    Compare {
        compare: Compare,
        complement: u32,
        with: Option<(Logic, Truth)>,
    },
    Select(Truth),
    /// A predicate from predicates; one operand: both are the same.
    Predicate(Logic, Truth, Truth, bool),
    /// `mov.b32 d, {a, b}`: parts from low to high.
    Pack {
        parts: Vec<u32>,
        bits: u32,
    },
    Unpack {
        parts: Vec<u32>,
        bits: u32,
    },
    Load(Box<Access>),
    Store(Box<Access>),
    /// To a tag of generic addresses, or from it.
    Tag {
        set: bool,
        tag: u64,
    },
    Branch(u32),
    End,
    /// A barrier of the block: its number is in a, the threads that join it in b (or all).
    Barrier,
    /// A barrier of the lanes of the mask in a.
    WarpBarrier,
    /// dst is the address in shared memory, a that in global memory.
    Copy {
        bytes: u32,
        source: Option<u32>,
    },
    Commit,
    Wait(Option<u64>),
    Shuffle {
        mode: Shuffle,
        predicate: u32,
    },
    Vote(Vote),
    ActiveMask,
    /// The predicate dst is true in one lane; a, if there is one, its number.
    Elect,
    Tensor(u32),
}

/// How shfl finds its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

/// What vote gives, and of which predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim::ptx) enum Vote {
    All(Truth),
    Any(Truth),
    Uni(Truth),
    Ballot(Truth),
}

/// An access of memory: the address is a + offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sim::ptx) struct Access {
    pub space: Space,
    pub offset: i64,
    /// Bytes of an element.
    pub bytes: u32,
    /// The registers of the elements; [`NONE`] for `_`.
    pub values: Vec<u32>,
    /// Sign-extended to so many bits.
    pub signed: Option<u32>,
    /// `ld.global.nc`.
    pub constant: bool,
}
