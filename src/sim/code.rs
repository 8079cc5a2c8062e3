//! The bytecode: what a warp runs, a lane a thread. It holds no pointers and knows no thread; every warp of every
//! block runs the same code over its own slots and registers.
//!
//! Three kinds of storage, all the warp's own:
//! - **scalar slots**: an `i64` for the whole warp (loop variables, blockIdx, what follows from them);
//! - **vector slots**: an `i64` a lane (threadIdx, what follows from it);
//! - **registers**: 64 bits a lane, used as a stack: operations take their operands from the top and leave the result
//!   in the place of the first ([`super::value`] says how data are in them).
//!
//! An address is the sum of one scalar slot and one vector slot ([`Operand`]), both kept up to date where their
//! innermost variable changes, not where they are used. Jumps are relative, so code can be put together in any order.

use super::bulk::Bulk;
use super::collective::Collective;
use super::value::NumberKind;
use crate::dtype::DType;
use crate::ir::{BinOp, BufferId, BulkCopy, Call, CmpOp, Cond, Func, Index, IndexOp, Store, UnOp, Var};

/// A position in a file of slots or registers.
pub(super) type Slot = u32;

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// An index: `scalars[scalar] + vectors[vector][lane]`. Slot 0 of either file is always zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Operand {
    pub scalar: Slot,
    pub vector: Slot,
}

/// Which memory an access goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// A memory of the grid (parameter, workspace; any buffer of a program run in sequence) and the first element.
    Global(u32),
    /// The block's shared memory, from a unit on; each element takes `units`.
    Shared { base: u32, units: u32 },
    /// Registers of the thread, from a slot of the warp's local file on.
    Local(u32),
}

/// A typed access to a buffer; [`Code::accesses`] holds it, operations name it.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub place: Location,
    pub dtype: DType,
    pub at: Operand,
    /// Consecutive elements.
    pub lanes: u32,
    /// Another thread may write there: races are looked for.
    pub watched: bool,
    /// Barriers order it: shared memory, and parameters through which the kernel says that threads pass values.
    pub ordered: bool,
    /// What the address has to be a multiple of, in elements; 0 where no address will do.
    pub align: i64,
    /// It writes by a copy.
    pub copies: bool,
    /// TMA makes it.
    pub engine: bool,
    /// For messages.
    pub buffer: BufferId,
    /// For messages: the indices over loop variables, one per dimension.
    pub indices: Vec<Index>,
}

impl Access {
    /// Units of an element in its memory.
    pub fn units(&self) -> usize {
        if let Location::Shared { units, .. } = self.place { units as usize } else { 1 }
    }
}

/// The blocks of the cluster that a store goes to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reached {
    /// So many, the first ones.
    First(u32),
    /// Of each lane the block of that rank.
    One(Operand),
}

/// One operation.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// The statement of that number begins; there only where somebody listens.
    Statement(u32),
    /// `scalars[dst] = scalars[base] + scalars[src] * coeff`.
    Mad {
        dst: Slot,
        base: Slot,
        src: Slot,
        coeff: i64,
    },
    /// `scalars[dst] = a op b`.
    Scalar {
        op: IndexOp,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    /// `vectors[dst] = vectors[base] + vectors[src] * coeff`.
    VectorMad {
        dst: Slot,
        base: Slot,
        src: Slot,
        coeff: i64,
    },
    /// `vectors[dst] = a op b`.
    Vector {
        op: IndexOp,
        dst: Slot,
        a: Operand,
        b: Operand,
    },

    /// Starts a loop, or jumps over it if it has no iteration.
    LoopBegin {
        var: Slot,
        extent: Slot,
        exit: u32,
    },
    /// The next iteration, if there is one.
    LoopNext {
        var: Slot,
        extent: Slot,
        back: u32,
    },
    /// Starts a loop that the blocks of the grid walk together with the block's number, or jumps over it.
    WalkBegin {
        var: Slot,
        round: Slot,
        first: Slot,
        extent: Slot,
        exit: u32,
    },
    /// The iteration as many further on as there are blocks, if there is one.
    WalkNext {
        var: Slot,
        round: Slot,
        step: Slot,
        extent: Slot,
        back: u32,
    },
    /// Starts a loop whose iterations run as lanes, 32 at a time, and the next 32.
    LanesBegin {
        var: Slot,
        extent: Slot,
        exit: u32,
    },
    LanesNext {
        var: Slot,
        extent: Slot,
        back: u32,
    },

    /// Conditions are masks on a stack of their own.
    Test {
        op: CmpOp,
        a: Operand,
        b: Operand,
    },
    TestConst(bool),
    TestAnd,
    TestOr,
    TestNot,
    /// Where any of `lanes` registers is the truth value `want`.
    TestRegister {
        src: Slot,
        lanes: u32,
        want: bool,
    },
    /// Narrows the active lanes to the popped condition; jumps where none is left.
    Branch {
        exit: u32,
    },
    /// Back to the lanes before the branch.
    Rejoin,

    /// An index of a dimension must be in `0..extent`.
    Check {
        access: u32,
        at: Operand,
        extent: i64,
    },
    Const {
        dst: Slot,
        bits: u64,
    },
    /// An index as a datum.
    Datum {
        dst: Slot,
        at: Operand,
        dtype: DType,
        kind: NumberKind,
    },
    /// A datum as an index, less its least value: an error where it is not one of the values that are stated.
    Gather {
        src: Slot,
        dst: Slot,
        range: (i64, i64),
        dtype: DType,
        integer: bool,
        /// A position in [`Code::gathers`].
        what: u32,
    },
    /// The popped condition as a truth value.
    Truth {
        dst: Slot,
    },
    Load {
        dst: Slot,
        access: u32,
    },
    /// Ends a statement: it counts, and the warp may be made to wait after it.
    Store {
        src: Slot,
        access: u32,
    },
    /// As a store, but the bytes are under way until the thread has waited for them.
    Copy {
        src: Slot,
        access: u32,
    },
    /// `element = element op register`, lane after lane, on one element for all lanes. Ends a statement.
    Reduce {
        src: Slot,
        access: u32,
        op: BinOp,
        dtype: DType,
        kind: NumberKind,
    },
    /// Writes to the same place in the shared memory of other blocks of the cluster, at once or with an mbarrier there that counts the
    /// bytes. Ends a statement.
    Remote {
        src: Slot,
        access: u32,
        to: Reached,
        full: Option<(u32, Operand)>,
    },
    /// Each lane takes the value of the lane whose number differs in the bits of the mask.
    Shuffle {
        dst: Slot,
        lanes: u32,
        mask: u32,
    },
    Splat {
        dst: Slot,
        lanes: u32,
    },
    Un {
        op: UnOp,
        dtype: DType,
        kind: NumberKind,
        dst: Slot,
        lanes: u32,
    },
    Bin {
        op: BinOp,
        dtype: DType,
        kind: NumberKind,
        dst: Slot,
        lanes: u32,
    },
    Cmp {
        op: CmpOp,
        kind: NumberKind,
        dst: Slot,
        lanes: u32,
    },
    Cast {
        from: DType,
        to: DType,
        integer: bool,
        dst: Slot,
        lanes: u32,
    },
    /// `dst = dst ? dst + masks .. : ..`: the condition has `masks` registers (1 or `lanes`), then both sides follow.
    Select {
        dst: Slot,
        masks: u32,
        lanes: u32,
    },

    /// The lanes of the warp execute an instruction together: a position in [`Code::collectives`]. Ends a statement.
    Collective(u32),

    /// Each thread closes the group of the copies that it has started since it last closed one.
    Commit,
    /// Each thread waits until at most so many of its closed groups are under way.
    Wait {
        groups: u32,
    },
    /// The threads of every so many warps, counted from the first one, or of as many as there are up to the most.
    Barrier {
        first: u32,
        every: u32,
        most: u32,
    },
    /// All threads of all blocks of the cluster.
    ClusterBarrier,
    /// All threads of the warp.
    WarpBarrier,
    /// Jumps where the warp is none of these.
    Role {
        first: u32,
        warps: u32,
        exit: u32,
    },
    /// One lane goes on in the first of every so many warps, counted from the first one; the others jump.
    Elect {
        first: u32,
        warps: u32,
        exit: u32,
    },
    /// One thread sets up the mbarriers.
    InitBarriers,
    /// Arrives at an mbarrier of an array, which then expects so many bytes more.
    Arrive {
        array: u32,
        at: Operand,
        bytes: Operand,
        /// In so many blocks of the cluster; 0 in its own.
        blocks: u32,
    },
    /// Waits until a phase is over.
    Await {
        array: u32,
        at: Operand,
        phase: Operand,
    },
    /// What the threads did to memory comes before what the other engines do to it.
    ProxyFence,
    /// The warp waits for the kernels in front of its own in the stream, or lets the one behind begin.
    Grid {
        waits: bool,
    },
    /// Registers are fenced for products, a group of products is closed, groups are waited for.
    ProductFence,
    ProductCommit,
    ProductWait {
        groups: u32,
    },
    /// The elected thread starts a bulk copy: a position in [`Code::bulks`]. Ends a statement.
    Bulk(u32),
    /// It closes the group of its bulk stores.
    BulkCommit,
    /// It waits until at most so many of its groups are under way, or have not read.
    BulkWait {
        groups: u32,
        read: bool,
    },
}

/// A statement, for messages.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub statement: SiteKind,
    /// How many stores and instructions precede it in the text.
    pub stores: u32,
    /// The loops around it, outermost first.
    pub loops: Vec<(Var, Operand)>,
}

/// What is at a [`Site`].
#[derive(Debug, Clone)]
pub(super) enum SiteKind {
    Store(Store),
    If(Cond),
    Sync(String),
    Call(Call),
    Bulk(BulkCopy),
    Other,
}

/// A compiled body.
#[derive(Debug, Clone)]
pub(super) struct Code {
    pub ops: Vec<Op>,
    /// The site of each operation, a position in `sites`.
    pub site_of: Vec<u32>,
    pub sites: Vec<Site>,
    pub accesses: Vec<Access>,
    /// The data that are indices, as text for messages.
    pub gathers: Vec<String>,
    pub collectives: Vec<Collective>,
    pub bulks: Vec<Bulk>,
    /// Starting values; constants stay.
    pub scalars: Vec<i64>,
    pub vectors: u32,
    pub registers: u32,
    /// Scalar slots of variables that the launch sets.
    pub launch_scalars: Vec<(Var, Slot)>,
    /// Vector slots of variables that the launch sets.
    pub launch_vectors: Vec<(Var, Slot)>,
    /// The scalar slot that holds how many blocks walk a persistent loop, if there is one.
    pub step: Option<Slot>,
    /// Whether the kernel begins while the one in front of it in the stream may still run.
    pub early: bool,
    /// The names.
    pub func: Func,
}
