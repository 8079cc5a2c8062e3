//! Statements: loops, blocks, stores and conditions. The statements of Lowered alone are in [`super::call`] and [`super::sync`].

use super::call::Call;
use super::sync::{BulkCopy, Elect, RoleBody, Slot, Sync};
use super::{BufferId, Cond, Expr, Index, Var};
use std::collections::BTreeMap;

/// The name of a block; the text is in [`super::Func::blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// A warp role; described in [`super::Func::roles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleId(pub u32);

/// A statement. A body is a list of statements that run in order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Stmt {
    /// A loop.
    For(For),
    /// A unit of scheduling; in Lowered a label.
    Block(Block),
    /// Writes a buffer.
    Store(Store),
    /// Runs its body where the condition holds.
    If(If),
    /// Orders accesses of different threads (Lowered).
    Sync(Sync),
    /// An instruction that a warp or a warpgroup executes together (Lowered).
    Call(Call),
    /// A copy of a box that one thread starts (Lowered).
    Bulk(BulkCopy),
    /// What one thread of several warps runs (Lowered).
    Elect(Elect),
    /// What the warps of one role run (Lowered).
    Role(RoleBody),
}

/// How a loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoopKind {
    /// One iteration after the other.
    Serial,
    /// Written out; local buffers may be indexed by its variable and stay in registers.
    Unrolled,
    /// As one vector access where alignment proves it, in pieces or by aligned words where not.
    Vectorized,
    /// Spread over the units of an axis. A ping-pong loop stays bound until the pass `roles` gives each warpgroup its iterations.
    Bound {
        /// Which.
        axis: Axis,
        /// How its units share the iterations.
        mode: BindMode,
    },
    /// The blocks of the grid walk it together (Lowered): a block, or a cluster, runs the iteration of its own number, then every
    /// one that is a multiple of the grid further on.
    Persistent {
        /// How many iterations this block has run before.
        round: Var,
    },
}

impl LoopKind {
    /// Bound to an axis: each unit runs the iteration of its own number.
    pub fn bound(axis: Axis) -> LoopKind {
        LoopKind::Bound { axis, mode: BindMode::Plain }
    }
}

/// How the units of an axis share the iterations of a loop that is bound to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BindMode {
    /// Each unit runs the iteration of its own number.
    #[default]
    Plain,
    /// `bind L blockIdx.x persistent`: as many blocks as fit at once walk the iterations.
    Persistent,
    /// `bind L warpgroup pingpong`: each warpgroup runs its own iterations, and one computes while another stores its tile. Cooperative
    /// unions leave them out. The pass `roles` gives each warpgroup its iteration.
    PingPong,
}

/// What a loop can be bound to. Levels from outermost: grid, cluster, warpgroup, warp, thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Axis {
    /// `blockIdx.x`, fastest.
    BlockX,
    /// `blockIdx.y`.
    BlockY,
    /// `blockIdx.z`.
    BlockZ,
    /// The blocks of a cluster.
    Cluster,
    /// 128 consecutive threads.
    Warpgroup,
    /// 32 consecutive threads.
    Warp,
    /// `threadIdx.x`, fastest.
    ThreadX,
    /// `threadIdx.y`.
    ThreadY,
    /// `threadIdx.z`.
    ThreadZ,
}

impl Axis {
    /// Every axis, outermost level first.
    pub const ALL: [Axis; 9] = [
        Axis::BlockX,
        Axis::BlockY,
        Axis::BlockZ,
        Axis::Cluster,
        Axis::Warpgroup,
        Axis::Warp,
        Axis::ThreadX,
        Axis::ThreadY,
        Axis::ThreadZ,
    ];

    /// The name in steps and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Axis::BlockX => "blockIdx.x",
            Axis::BlockY => "blockIdx.y",
            Axis::BlockZ => "blockIdx.z",
            Axis::Cluster => "cluster",
            Axis::Warpgroup => "warpgroup",
            Axis::Warp => "warp",
            Axis::ThreadX => "threadIdx.x",
            Axis::ThreadY => "threadIdx.y",
            Axis::ThreadZ => "threadIdx.z",
        }
    }

    /// The axis of that name.
    pub fn parse(name: &str) -> Option<Axis> {
        Axis::ALL.into_iter().find(|a| a.name() == name)
    }

    /// The level of the units that the axis tells apart: 0 grid (blocks of a grid), 1 cluster, 2 warpgroup, 3 warp, 4 thread.
    pub fn level(self) -> u8 {
        match self {
            Axis::BlockX | Axis::BlockY | Axis::BlockZ => 0,
            Axis::Cluster => 1,
            Axis::Warpgroup => 2,
            Axis::Warp => 3,
            Axis::ThreadX | Axis::ThreadY | Axis::ThreadZ => 4,
        }
    }

    /// Whether it tells blocks apart (a blockIdx or the cluster's blocks), rather than threads inside one.
    pub fn is_block_level(self) -> bool {
        self.level() <= 1
    }
}

/// A loop from 0 to `extent`.
#[derive(Debug, Clone, PartialEq)]
pub struct For {
    /// Its variable, which is also its name.
    pub var: Var,
    /// The number of iterations.
    pub extent: Index,
    /// How it runs.
    pub kind: LoopKind,
    /// This loop walks two loops in a grouped order; their variables, not its own, are in the body.
    pub raster: Option<Raster>,
    /// Placement: stages under this loop get slots.
    pub pipeline: Option<Pipeline>,
    /// Placement: the nest from here on is one instruction; the nest stays as its meaning.
    pub tensorize: Option<Tensorize>,
    /// Placement: annotations from the closed list of keys.
    pub notes: BTreeMap<Note, i64>,
    /// How it is written as code (Lowered).
    pub code: LoopCode,
    /// What runs.
    pub body: Vec<Stmt>,
}

/// How a loop is written as code: what the passes of `lower/finalize` decide and code generation obeys. None of it changes what the
/// loop computes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoopCode {
    /// How many iterations are written out in its body, in place of [`For::copies`]'s default; they divide the extent.
    pub copies: Option<u32>,
    /// An index that is 0 where the iterations of an unrolled loop run forwards and 1 where they run backwards; `None` if they never
    /// run backwards.
    pub backwards: Option<Index>,
    /// The nest copies elements from registers to registers, each register by a permutation of the bytes of two.
    pub permutes: bool,
    /// An unaligned vector load of elements narrower than a word: aligned 32-bit loads, and a PRMT for each register. The pass `vectors` sets it.
    pub realigns: bool,
    /// Remainders that grow by the same amount in every iteration: counted, not divided.
    pub counters: Vec<Index>,
}

impl For {
    /// A plain loop.
    pub fn new(var: Var, extent: impl Into<Index>, kind: LoopKind, body: Vec<Stmt>) -> For {
        For {
            var,
            extent: extent.into(),
            kind,
            raster: None,
            pipeline: None,
            tensorize: None,
            notes: BTreeMap::new(),
            code: LoopCode::default(),
            body,
        }
    }

    /// Whether the blocks that fit at once walk its iterations.
    pub fn is_persistent(&self) -> bool {
        matches!(self.kind, LoopKind::Bound { mode: BindMode::Persistent, .. })
    }

    /// Whether its warpgroups run ping-pong.
    pub fn is_pingpong(&self) -> bool {
        matches!(self.kind, LoopKind::Bound { mode: BindMode::PingPong, .. })
    }

    /// Whether its iterations run next to each other in the threads of a block. Those of a ping-pong loop follow each other.
    pub fn is_of_threads(&self) -> bool {
        self.axis().is_some_and(|axis| !axis.is_block_level()) && !self.is_pingpong()
    }

    /// How many iterations are written out in its body: where nothing is decided, all of an unrolled loop and one of any other.
    pub fn copies(&self) -> i64 {
        let all = if self.kind == LoopKind::Unrolled { self.extent.as_int() } else { None };
        self.code.copies.map(i64::from).or(all).unwrap_or(1)
    }

    /// Whether all iterations are written out, so that no loop is left.
    pub fn is_written_out(&self) -> bool {
        let whole = self.extent.as_int() == Some(self.copies());
        whole && (self.kind == LoopKind::Unrolled || self.code.copies.is_some())
    }

    /// The axis it is bound to, if any.
    pub fn axis(&self) -> Option<Axis> {
        match self.kind {
            LoopKind::Bound { axis, .. } => Some(axis),
            _ => None,
        }
    }

    /// What counts the loop's iterations, in terms of what the body sees.
    pub fn number(&self) -> Index {
        self.raster.as_ref().map_or(Index::Var(self.var), Raster::number)
    }

    /// The variables that the body sees with their extents: the loop's own, or the rasterized pair.
    pub fn defines(&self) -> Vec<(Var, Index)> {
        match &self.raster {
            None => vec![(self.var, self.extent.clone())],
            Some(r) => vec![(r.outer, r.outer_extent.clone()), (r.inner, r.inner_extent.clone())],
        }
    }
}

/// `rasterize I J group=G`: groups of `group` rows of I, inside a group J outer and I inner.
///
/// Iteration t of the loop represents `g = t / (group * J)`, `rows = min(group, I - g * group)`,
/// `r = t - g * group * J`, `i = g * group + r % rows`, `j = r / rows`.
#[derive(Debug, Clone, PartialEq)]
pub struct Raster {
    /// I.
    pub outer: Var,
    /// Extent of I.
    pub outer_extent: Index,
    /// J.
    pub inner: Var,
    /// Extent of J.
    pub inner_extent: Index,
    /// Rows of I in a group.
    pub group: i64,
}

impl Raster {
    /// The iteration of the rasterized loop as an index of its outer and inner variables.
    pub fn number(&self) -> Index {
        let (group, i) = (self.group, Index::from(self.outer));
        let first = i.clone().floordiv(group) * group;
        let whole = self.outer_extent.as_int().is_some_and(|n| n % group == 0);
        let rows = if whole { Index::Int(group) } else { (self.outer_extent.clone() - first.clone()).min(group) };
        first * self.inner_extent.clone() + self.inner * rows + i.floormod(group)
    }

    /// Whether the other one represents the same pairs in the same order.
    pub fn walks_like(&self, other: &Raster) -> bool {
        (&self.outer_extent, &self.inner_extent, self.group) == (&other.outer_extent, &other.inner_extent, other.group)
    }
}

/// `pipeline L stages=N in_flight=M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipeline {
    /// Slots of each stage directly under the loop.
    pub stages: u32,
    /// Batches of asynchronous instructions left running.
    pub in_flight: u32,
}

/// `tensorize L ROW m=.. n=.. k=..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensorize {
    /// The instruction row's name.
    pub row: String,
    /// Which loop plays which of the row's dimensions, in the row's order.
    pub dims: Vec<(String, Var)>,
}

/// The closed list of annotation keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Note {
    /// Loop: unroll at most this many copies of the body.
    UnrollLimit,
    /// Loop over a stage: L2 eviction hint (0 normal, 1 first, 2 last).
    L2Hint,
    /// Loop over a stage: L2 promotion in bytes (64, 128, 256; 0 for none).
    L2Promotion,
    /// Loop that is written out: every second pass over it runs backwards, so that neighbouring statements share an
    /// operand also where the loop around turns.
    Zigzag,
    /// Pipelined loop around a pipelined loop: copies start between the iterations of the inner one, not all at once.
    Spread,
}

impl Note {
    /// Every key.
    pub const ALL: [Note; 5] = [Note::UnrollLimit, Note::L2Hint, Note::L2Promotion, Note::Zigzag, Note::Spread];

    /// The name in steps and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Note::UnrollLimit => "unroll_limit",
            Note::L2Hint => "l2_hint",
            Note::L2Promotion => "l2_promotion",
            Note::Zigzag => "zigzag",
            Note::Spread => "spread",
        }
    }

    /// The key of that name.
    pub fn parse(name: &str) -> Option<Note> {
        Note::ALL.into_iter().find(|n| n.name() == name)
    }
}

/// Whether an iterator of a block spans outputs or is summed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IterKind {
    /// Each value writes its own elements.
    Spatial,
    /// The values combine into one element.
    Reduce,
}

/// An iterator of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct Iter {
    /// The variable that the block's body uses.
    pub var: Var,
    /// Its kind.
    pub kind: IterKind,
    /// Its domain is 0..extent.
    pub extent: Index,
    /// Its value, over the loops around the block.
    pub binding: Index,
}

/// The unit of scheduling.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Its name.
    pub name: BlockId,
    /// Its iterators; empty in Lowered.
    pub iters: Vec<Iter>,
    /// Over the loops around the block; the block runs where it holds.
    pub predicate: Cond,
    /// Runs before the body whenever every reduce iterator is 0.
    pub init: Option<Vec<Stmt>>,
    /// Over the iterators.
    pub body: Vec<Stmt>,
    /// Placement: how this stage's copy is done.
    pub copy_with: Option<CopyWith>,
    /// Placement: the role whose warps run this stage.
    pub role: Option<RoleId>,
}

/// `copy_with STAGE KIND [multicast=L] [cache=l1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyWith {
    /// The mechanism.
    pub kind: CopyKind,
    /// The cluster loop whose blocks receive one copy together.
    pub multicast: Option<Var>,
    /// Whether copies of 16 bytes by cp.async go through the L1 cache, which then has what other blocks of the multiprocessor read, too. Shorter
    /// ones always do.
    pub through_l1: bool,
}

/// The mechanisms of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyKind {
    /// Loads and stores through registers.
    Sync,
    /// cp.async of 4, 8 or 16 bytes a thread.
    CpAsync,
    /// One bulk tensor copy.
    Tma,
}

impl CopyKind {
    /// The name in steps and dumps.
    pub fn name(self) -> &'static str {
        match self {
            CopyKind::Sync => "sync",
            CopyKind::CpAsync => "cp_async",
            CopyKind::Tma => "tma",
        }
    }

    /// The mechanism of that name.
    pub fn parse(name: &str) -> Option<CopyKind> {
        [CopyKind::Sync, CopyKind::CpAsync, CopyKind::Tma].into_iter().find(|k| k.name() == name)
    }
}

/// `specialize STAGES -> ROLE warps=W [regs=R]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Its number of warps.
    pub warps: u32,
    /// Registers a thread, if stated.
    pub regs: Option<u32>,
}

/// `buffer[indices] = value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Store {
    /// What is written.
    pub buffer: BufferId,
    /// One index per dimension; in Lowered one flat element index.
    pub indices: Vec<Index>,
    /// Of the buffer's type, with `lanes` lanes.
    pub value: Expr,
    /// How many consecutive elements (Lowered; else 1).
    pub lanes: u32,
    /// Whether the thread only starts a copy from global to shared memory, which lands when the thread waits for the
    /// group of copies that it belongs to (Lowered; else false). The value is then a load, or a select between a load and
    /// zero: where the condition does not hold nothing is read, and zeros land.
    pub asynchronous: bool,
    /// Whether an asynchronous copy of 16 bytes goes through the L1 cache (Lowered; else false).
    pub through_l1: bool,
    /// It goes to the same place in the shared memory of other blocks of the cluster (Lowered).
    pub remote: Option<Remote>,
}

/// The blocks of the cluster whose shared memory a store goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// So many, the first ones.
    First(u32),
    /// The block of that rank.
    One(Index),
}

/// The other blocks that a store goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Which they are.
    pub peers: Peers,
    /// The mbarrier at the same place in each block that counts the bytes that arrive (st.async). `None`: a barrier of the cluster
    /// orders the store (st.shared::cluster).
    pub full: Option<Slot>,
}

impl Store {
    /// Writes one element, at once.
    pub fn new(buffer: BufferId, indices: Vec<Index>, value: Expr) -> Store {
        Store { buffer, indices, value, lanes: 1, asynchronous: false, through_l1: false, remote: None }
    }

    /// The buffer that it copies, if its value is a load, or a select between a load and zero.
    pub fn source(&self) -> Option<BufferId> {
        match self.value.zero_filled().map_or(&self.value, |(_, load)| load).ungathered() {
            Expr::Load { buffer, lanes, .. } if *lanes == self.lanes => Some(*buffer),
            _ => None,
        }
    }
}

/// A condition around statements.
#[derive(Debug, Clone, PartialEq)]
pub struct If {
    /// The condition.
    pub cond: Cond,
    /// What runs where it holds.
    pub body: Vec<Stmt>,
}
