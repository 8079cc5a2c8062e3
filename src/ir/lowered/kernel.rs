//! One kernel of a lowered program: launch, body, memory, and the promises that every pass after it relies on.

use super::launch::registers_at_start;
use super::threads::{self, LANES};
use super::{Clipped, Derived, GridDependency, LaunchAxis, RoleThreads};
use crate::intrin;
use crate::ir::simplify::{self, Env};
use crate::ir::verify::Tested;
use crate::ir::{Axis, BufferId, Columns, Cond, Func, Index, LoopKind, RoleId, Stmt, Var, visit};

/// One kernel.
///
/// Every thread runs the body of `func`. Its statements are [`crate::ir::Stmt`] with these promises:
/// - no loop is bound or rasterized; the variables of `launch` represent the hardware's indices, and each block computes
///   those of `derived` from them first;
/// - loops are serial or unrolled, with constant extents; no loop is `Vectorized` (`lanes` of an access says its width);
/// - a `Persistent` loop encloses all statements of its role; its variable is that of blockIdx.x in `launch`, whose
///   extent is then the number of iterations, and the variables of `derived` are computed at the start of each;
/// - blocks have no iterators, no predicate and no init: they are labels;
/// - every buffer has one flat extent, and each access one flat element index with `lanes` consecutive elements whose
///   address is a multiple of their size in bytes;
/// - a `Local` buffer is registers: its indices are constants once the unrolled loops around are written out;
/// - a `Shared` buffer has a byte `offset`;
/// - an asynchronous store copies 4, 8 or 16 bytes of a global buffer that the kernel does not write to a shared one;
/// - all lanes of a warp execute a `Call`; its registers are those of local buffers, its addresses elements of
///   shared ones, aligned to the length of the run of elements that begins there;
/// - all threads of its unit execute a `Sync`; all threads of the block commit and await groups of copies alike;
/// - the roles have all warps of the block, in order, and together ask for no more registers than the block was
///   launched with.
///
/// `func.params` are the kernel's parameters: global buffers of the program or workspace, by name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LoweredKernel {
    /// Name, parameters, buffers and body.
    pub func: Func,
    /// The hardware axes that occur, with their variable and extent. Axes not listed have extent 1.
    pub launch: Vec<LaunchAxis>,
    /// The block axes whose extent follows from a dynamic size; `launch` has the largest.
    pub clipped: Vec<Clipped>,
    /// Indices of the block that are no axis of the hardware.
    pub derived: Vec<Derived>,
    /// The dimensions that each buffer had before it became flat, by its number: explanations name them. They are those of one
    /// stage where the buffer is a ring of stages.
    pub dims: Vec<Vec<Dim>>,
    /// Shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// The axis that alone numbers the threads, where every index takes the number of a warp from the warp's first lane: ptxas then
    /// knows that the number is the same for all lanes.
    pub uniform_warp: Option<Var>,
    /// Resident blocks per multiprocessor to compile for, if stated or if roles move registers.
    pub min_blocks: Option<u32>,
    /// How it overlaps with the kernels before and after it in the stream, if stated.
    pub grid_dependency: Option<GridDependency>,
    /// Whether it runs concurrently with the preceding kernels: it waits for them at its end.
    pub concurrent: bool,
    /// Whether the next kernel is concurrent: this kernel releases it after its own wait.
    pub precedes_concurrent: bool,
    /// Whether its blocks prefetch the inputs of its TMA loads to L2 before they wait for anything.
    pub l2_prefetch: bool,
    /// Tensor maps; [`crate::ir::BulkCopy::map`] is the position.
    pub maps: Vec<TensorMap>,
    /// Parameters that are workspace, not arguments of the program.
    pub workspace: Vec<BufferId>,
    /// Parameters through which threads of a block pass values: their accesses do not move across a barrier. Every
    /// other parameter's element belongs to one thread, or is only read, and may be kept in a register across barriers.
    pub exchanged: Vec<BufferId>,
    /// The thread axes of roles, until the pass `roles` makes the kernel warp-specialized.
    pub roles: Vec<RoleThreads>,
    /// What the pass `order` could not decide, where the program allows that.
    pub tested: Vec<Tested>,
    /// The stages of which TMA loads only the rows below a dynamic size, until the pass `fragments` tells their MMAs.
    pub loaded: Vec<LoadedRows>,
}

/// The rows of a stage that TMA loads; no result depends on the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedRows {
    /// The stage.
    pub buffer: BufferId,
    /// Its dimension of rows.
    pub dim: usize,
    /// How many, the first ones: the columns of an MMA whose operand B they are.
    pub columns: Columns,
}

/// The tensor map of a buffer in device memory: the array, the TMA box, and the layout of the box in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorMap {
    /// The buffer.
    pub buffer: BufferId,
    /// Extents of the array, outermost first; a dimension of which boxes take every n-th index is two.
    pub extents: Vec<i64>,
    /// Strides in elements, outermost first; the last is 1.
    pub strides: Vec<i64>,
    /// Extents of the box, outermost first; the last one is whole rows of shared memory.
    pub tile: Vec<i64>,
    /// Bytes of a row of shared memory whose chunks of 16 bytes are swizzled: 128, 64, 32, or 16, whose rows are one chunk; 0 without
    /// panels.
    pub swizzle: u32,
    /// L2 promotion in bytes: 64, 128 or 256; 0 without.
    pub promotion: u32,
    /// The dimension whose extent is a dynamic size, and the number of the size; `extents` has its largest value.
    pub dynamic: Option<(usize, usize)>,
}

/// The parity of a phase of an mbarrier, which is what the instruction that waits for it has.
pub(crate) fn parity(phase: &Index, env: &Env) -> Index {
    simplify::simplify(&phase.clone().floormod(2), env)
}

/// A dimension of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dim {
    /// Its extent.
    pub extent: i64,
    /// Elements from one index to the next.
    pub stride: i64,
    /// The number of the dynamic size that the extent is; `extent` is its largest value.
    pub dynamic: Option<usize>,
}

impl LoweredKernel {
    /// A kernel that is made by hand: this function, without axes, memory or placements.
    #[doc(hidden)]
    pub fn new(func: Func) -> LoweredKernel {
        LoweredKernel {
            func,
            launch: Vec::new(),
            clipped: Vec::new(),
            derived: Vec::new(),
            dims: Vec::new(),
            shared_bytes: 0,
            uniform_warp: None,
            min_blocks: None,
            grid_dependency: None,
            concurrent: false,
            precedes_concurrent: false,
            l2_prefetch: false,
            maps: Vec::new(),
            workspace: Vec::new(),
            exchanged: Vec::new(),
            roles: Vec::new(),
            tested: Vec::new(),
            loaded: Vec::new(),
        }
    }

    /// Blocks in x, y, z; of a persistent kernel the most that have something to do.
    pub fn grid(&self) -> [u32; 3] {
        let [x, y, z] = [Axis::BlockX, Axis::BlockY, Axis::BlockZ].map(|a| self.extent(a));
        [x.saturating_mul(self.cluster()), y, z]
    }

    /// The grid in words: `128 x 1 x 1`, or what it follows from: `2*ceil(M/128) x 1 x 1`.
    pub fn grid_text(&self) -> String {
        let axes = [Axis::BlockX, Axis::BlockY, Axis::BlockZ].into_iter().zip(self.grid());
        let one = |(axis, extent): (Axis, u32)| match self.clipped.iter().find(|c| c.axis == axis) {
            None => extent.to_string(),
            Some(c) => {
                let blocks = if axis == Axis::BlockX { i64::from(self.cluster()) } else { 1 };
                let name = self.func.sizes.get(c.size).map_or("?", |s| s.size.name.as_str());
                let parts = if c.per == 1 { name.to_string() } else { format!("ceil({name}/{})", c.per) };
                if c.times * blocks == 1 { parts } else { format!("{}*{parts}", c.times * blocks) }
            }
        };
        axes.map(one).collect::<Vec<_>>().join(" x ")
    }

    /// Blocks of a cluster; 1 without clusters.
    pub fn cluster(&self) -> u32 {
        self.extent(Axis::Cluster)
    }

    /// The loop whose iterations the blocks of the grid share, if there is one: its variable and the variable that counts its
    /// rounds. (With roles each has the same loop.)
    pub fn persistent(&self) -> Option<(Var, Var)> {
        visit::loops(&self.func.body).into_iter().find_map(|l| match l.kind {
            LoopKind::Persistent { round } => Some((l.var, round)),
            _ => None,
        })
    }

    /// Threads in x, y, z.
    pub fn block(&self) -> [u32; 3] {
        [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ].map(|a| self.extent(a))
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block().iter().fold(1, |n, extent| n.saturating_mul(*extent))
    }

    /// Warps of a block, the last one perhaps in part.
    pub fn warps(&self) -> u32 {
        self.threads().div_ceil(LANES as u32)
    }

    /// The registers that each thread has at its start.
    pub(crate) fn registers_at_start(&self) -> u32 {
        registers_at_start(self.warps(), self.min_blocks.unwrap_or(1))
    }

    /// The extent of a hardware axis, 1 if it does not occur.
    pub fn extent(&self, axis: Axis) -> u32 {
        self.launch.iter().find(|l| l.axis == axis).map_or(1, |l| l.extent)
    }

    /// The ranges of the variables of the launch and of what is derived from them.
    pub fn env(&self) -> Env {
        let mut env = Env::new();
        for s in &self.func.sizes {
            env.bind(s.var, s.size.low.div_euclid(s.size.by), s.extent() - 1);
        }
        for l in &self.launch {
            env.bind(l.var, 0, i64::from(l.extent) - 1);
        }
        for l in self.roles.iter().flat_map(|r| &r.axes) {
            env.bind(l.var, 0, i64::from(l.extent) - 1);
        }
        for d in &self.derived {
            env.bind(d.var, 0, d.extent - 1);
        }
        if let Some((_, round)) = self.persistent() {
            env.bind(round, 0, i64::from(self.extent(Axis::BlockX)) - 1);
        }
        for c in &self.clipped {
            if let Some(l) = self.launch.iter().find(|l| l.axis == c.axis) {
                env.assume(&Cond::lt(l.var, c.value(&self.func)));
            }
        }
        env
    }

    /// As [`LoweredKernel::env`], with the ranges of all loops.
    pub(crate) fn env_of_loops(&self) -> Env {
        let mut env = self.env();
        for l in visit::loops(&self.func.body) {
            env.bind_loop(l.var, &l.extent);
        }
        env
    }

    /// The numbers of the dynamic sizes that its code mentions: parameters behind those of buffers and maps.
    pub fn sizes(&self) -> Vec<usize> {
        let mut mentioned: Vec<Var> = Vec::new();
        let mut index = |i: &Index| {
            i.for_each_var(&mut |v| mentioned.push(v));
            i.clone()
        };
        visit::map_body(self.func.body.clone(), &mut index, &mut |e| e);
        let sizes = self.func.sizes.iter().enumerate();
        sizes.filter(|(_, s)| mentioned.contains(&s.var)).map(|(n, _)| n).collect()
    }

    /// The instructions that it calls, each once, in the order of the text.
    pub fn instructions(&self) -> Vec<&'static intrin::Row> {
        let mut out: Vec<&intrin::Row> = Vec::new();
        visit::walk(&self.func.body, &mut |s| {
            if let Stmt::Call(call) = s {
                out.extend(intrin::find(&call.row).filter(|row| out.iter().all(|r| r.name != row.name)));
            }
        });
        out
    }

    /// The number of a thread in its warp.
    pub fn lane(&self) -> Index {
        threads::lane(&self.launch)
    }

    /// The number of a thread's warp.
    pub fn warp(&self) -> Index {
        threads::warp(&self.launch)
    }

    /// The variables that tell blocks apart.
    pub fn block_vars(&self) -> Vec<Var> {
        let axes = self.launch.iter().filter(|l| l.axis.is_block_level()).map(|l| l.var);
        axes.chain(self.derived.iter().map(|d| d.var)).collect()
    }

    /// The ping-pong loops with their extents: each warpgroup runs its own iterations. None after the pass `roles`.
    pub(crate) fn pingpong_loops(&self) -> Vec<(Var, i64)> {
        let loops = visit::loops(&self.func.body).into_iter().filter(|l| l.is_pingpong());
        loops.filter_map(|l| Some((l.var, l.extent.as_int()?))).collect()
    }

    /// The variables of the thread axes with their extents, those of roles included.
    pub fn thread_vars(&self) -> Vec<(Var, i64)> {
        let of_roles = self.roles.iter().flat_map(|r| &r.axes);
        let threads = self.launch.iter().filter(|l| !l.axis.is_block_level()).chain(of_roles);
        threads.map(|l| (l.var, i64::from(l.extent))).collect()
    }

    /// The thread axes of a role, or of the consumers.
    pub fn axes_of(&self, role: Option<RoleId>) -> &[LaunchAxis] {
        let found = self.roles.iter().find(|r| Some(r.role) == role);
        found.map_or(&self.launch, |r| &r.axes)
    }
}
