//! From Scheduled to Lowered: threads, memory and synchronisation made explicit, one named pass a line.
//!
//! [`lower`] first asks `admit` whether the chip and this version can run the program at all, then makes one kernel of
//! every nest of the root (`kernels`) and runs [`PASSES`] on each. No pass knows what a GEMM is. The result says
//! everything: code generation only translates.

mod admit;
mod bind;
mod blocks;
mod bulk;
mod compact;
mod copies;
mod cross_thread;
mod flatten;
mod fragments;
mod grid;
mod guards;
mod kernels;
#[doc(hidden)]
pub mod mutate;
mod order;
mod pipeline;
mod plan;
mod point;
mod print;
mod registers;
mod roles;
mod units;
pub(crate) mod unroll;
mod vectors;
mod verify;
mod walks;

pub(crate) use units::LANES;

use crate::error::{Error, Result};
use crate::intrin;
use crate::ir::simplify::Env;
use crate::ir::verify::{Assurance, Tested};
use crate::ir::{Axis, Buffer, BufferId, Func, Index, LoopKind, RoleId, Stmt, Var, layout, visit};
use crate::target::{Features, Target};
use std::time::{Duration, Instant};

pub use print::{print, print_bulk, print_derived, print_kernel, print_walk, statement_lines};
pub use verify::verify;

/// The most slices of a kernel that run side by side, its roles and what no role took: each has a barrier of its own, of the 16
/// that a block has, and so has each warpgroup.
pub const SLICES: u32 = 7;

/// A lowered program: its kernels in launch order. Made by [`lower`] alone.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Lowered {
    /// The program's name.
    pub name: String,
    /// Names of the program's parameters, in the caller's order.
    pub params: Vec<String>,
    /// Extents and strides of each in elements, outermost first, as the program states them: kernels address parameters by
    /// one index. Empty of kernels that no program was lowered to.
    pub shapes: Vec<Shape>,
    /// In launch order.
    pub kernels: Vec<LoweredKernel>,
}

/// The extents of an array and its strides in elements, outermost first.
pub type Shape = (Vec<i64>, Vec<i64>);

impl Lowered {
    /// A program of kernels that are made by hand, for tests of what runs, checks and translates kernels. [`lower`] makes all others.
    #[doc(hidden)]
    pub fn new(name: impl Into<String>, params: Vec<String>, kernels: Vec<LoweredKernel>) -> Lowered {
        Lowered { name: name.into(), params, shapes: Vec::new(), kernels }
    }

    /// How the legality of the program, and of what it was lowered to, is known.
    ///
    /// # Errors
    /// What the verifier refuses.
    pub fn assurance(&self, scheduled: &Func) -> Result<Assurance> {
        let mut all = crate::ir::verify::assurance(scheduled)?;
        all.tested.extend(self.kernels.iter().flat_map(|k| k.tested.iter().cloned()));
        Ok(all)
    }

    /// What a chip must have to run it; ordinary code needs nothing.
    pub fn features(&self) -> Features {
        let mut needed = Features::empty();
        for kernel in &self.kernels {
            needed.set(Features::CLUSTER, needed.contains(Features::CLUSTER) || kernel.cluster() > 1);
            needed.set(Features::CP_ASYNC, needed.contains(Features::CP_ASYNC) || order::copies(&kernel.func.body));
            let depends = kernel.grid_dependency.is_some();
            needed.set(Features::GRID_DEPENDENCY, needed.contains(Features::GRID_DEPENDENCY) || depends);
            needed.set(Features::TMA, needed.contains(Features::TMA) || !kernel.maps.is_empty() || kernel.l2_prefetch);
            needed.set(Features::MBARRIER, needed.contains(Features::MBARRIER) || !kernel.func.mbarriers.is_empty());
            let sets = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(r) if r.regs.is_some()));
            let (mut relaxed, mut sends) = (false, false);
            visit::walk(&kernel.func.body, &mut |s| {
                relaxed |= verify::is_relaxed(s);
                sends |= matches!(s, Stmt::Store(s) if s.broadcast.as_ref().is_some_and(|to| to.full.is_some()));
            });
            needed.set(Features::STORE_ASYNC, needed.contains(Features::STORE_ASYNC) || sends);
            needed.set(Features::RELAXED_BARRIER, needed.contains(Features::RELAXED_BARRIER) || relaxed);
            needed.set(Features::SET_REGISTERS, needed.contains(Features::SET_REGISTERS) || sets);
            needed |= kernel.instructions().iter().fold(Features::empty(), |all, row| all | row.needs);
        }
        needed
    }
}

/// One kernel.
///
/// The body of `func` is what every thread runs. Its statements are [`crate::ir::Stmt`] with these promises:
/// - no loop is bound or rasterized; the variables of `launch` stand for the hardware's indices, those of `derived` for
///   what each block computes from them first;
/// - loops are serial or unrolled, with constant extents; a `Vectorized` loop is gone (lanes say its width);
/// - a `Persistent` loop stands around everything that its role does; its variable is that of blockIdx.x in `launch`, whose
///   extent is then the number of iterations, and what is `derived` from it is computed at the start of each;
/// - blocks have no iterators, no predicate and no init: they are labels;
/// - every buffer has one flat extent, and each access one flat element index with `lanes` consecutive elements whose
///   address is a multiple of their size in bytes;
/// - a `Local` buffer is registers: its indices are constants once the unrolled loops around are written out;
/// - a `Shared` buffer has a byte `offset`;
/// - an asynchronous store copies 4, 8 or 16 bytes of a global buffer that the kernel does not write to a shared one;
/// - a `Call` stands only where all lanes of a warp come; its registers are those of local buffers, its addresses elements of
///   shared ones, as aligned as the run of elements behind them is long;
/// - a `Sync` stands only where all threads of its unit come; groups of copies are committed and waited for by all threads
///   of the block alike;
/// - roles have all warps of the block, one after the other, and ask for no more registers together than the block was
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
    /// Indices of the block that are no axis of the hardware.
    pub derived: Vec<Derived>,
    /// The dimensions that each buffer had before it became flat, by its number: what explanations speak of. A slot of a
    /// pipelined stage has them all.
    pub dims: Vec<Vec<Dim>>,
    /// Shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Resident blocks per multiprocessor to compile for, if annotated.
    pub min_blocks: Option<u32>,
    /// How it may overlap with its neighbours in the stream, if annotated.
    pub grid_dependency: Option<GridDependency>,
    /// Whether its blocks ask the second-level cache for what its bulk copies read before it waits for anything.
    pub l2_prefetch: bool,
    /// Tensor maps; [`crate::ir::BulkCopy::map`] is the position.
    pub maps: Vec<TensorMap>,
    /// Parameters that are workspace, not arguments of the program.
    pub workspace: Vec<BufferId>,
    /// Parameters through which threads of a block pass values: their accesses stay on their side of a barrier. Every
    /// other parameter's element belongs to one thread, or is only read, and may be kept in a register across barriers.
    pub exchanged: Vec<BufferId>,
    /// The threads of the roles that stages have, until `roles` makes a slice of each.
    pub roles: Vec<RoleThreads>,
    /// What `order` could not decide, where the program allows that.
    pub tested: Vec<Tested>,
}

/// How a kernel overlaps with its neighbours in the stream (programmatic dependent launch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GridDependency {
    /// It may begin while the kernel before it runs, and waits for the end of that one itself.
    Waits,
    /// Besides, the next kernel may begin once each of its blocks has begun.
    Releases,
}

/// The threads of a role: its stages count them, as the others count those of `launch`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoleThreads {
    /// Which role.
    pub role: RoleId,
    /// Its thread axes.
    pub axes: Vec<LaunchAxis>,
}

/// What bulk copies know of a buffer in device memory: its box, and how that lies in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorMap {
    /// The buffer.
    pub buffer: BufferId,
    /// Extents of the array, outermost first; a dimension of which boxes take every so-many-th index is two.
    pub extents: Vec<i64>,
    /// Strides in elements, outermost first; the last is 1.
    pub strides: Vec<i64>,
    /// Extents of the box, outermost first; of the last one whole rows of shared memory.
    pub tile: Vec<i64>,
    /// Bytes of a row of shared memory whose chunks of 16 bytes are swizzled: 128, 64, 32, or 16, whose rows are one chunk; 0 without panels.
    pub swizzle: u32,
    /// Bytes that the second-level cache fetches together: 64, 128 or 256; 0 leaves it alone.
    pub promotion: u32,
}

/// A dimension of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dim {
    /// Its extent.
    pub extent: i64,
    /// Elements from one index to the next.
    pub stride: i64,
}

/// A hardware axis of a kernel: blockIdx, the rank in the cluster, or threadIdx. Where there are clusters, blockIdx.x counts
/// clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchAxis {
    /// Which.
    pub axis: Axis,
    /// The variable that stands for it in the body.
    pub var: Var,
    /// How many.
    pub extent: u32,
}

/// A variable that is the same for all threads of a block: the row or column of a block in a rasterized walk.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Derived {
    /// Which.
    pub var: Var,
    /// Its value, from the block axes of `launch`.
    pub value: Index,
    /// The value lies in 0 to this, exclusive.
    pub extent: i64,
}

impl LaunchAxis {
    /// An axis with its variable and extent.
    #[doc(hidden)]
    pub fn new(axis: Axis, var: Var, extent: u32) -> LaunchAxis {
        LaunchAxis { axis, var, extent }
    }
}

impl LoweredKernel {
    /// A kernel that is made by hand: of this program alone, without axes, memory or placements.
    #[doc(hidden)]
    pub fn new(func: Func) -> LoweredKernel {
        LoweredKernel {
            func,
            launch: Vec::new(),
            derived: Vec::new(),
            dims: Vec::new(),
            shared_bytes: 0,
            min_blocks: None,
            grid_dependency: None,
            l2_prefetch: false,
            maps: Vec::new(),
            workspace: Vec::new(),
            exchanged: Vec::new(),
            roles: Vec::new(),
            tested: Vec::new(),
        }
    }

    /// Blocks in x, y, z; of a persistent kernel the most that have something to do.
    pub fn grid(&self) -> [u32; 3] {
        let [x, y, z] = [Axis::BlockX, Axis::BlockY, Axis::BlockZ].map(|a| self.extent(a));
        [x.saturating_mul(self.cluster()), y, z]
    }

    /// Blocks of a cluster; 1 without clusters.
    pub fn cluster(&self) -> u32 {
        self.extent(Axis::Cluster)
    }

    /// The loop that the blocks of the grid walk together, if there is one: its variable and the variable that counts its
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

    /// The extent of a hardware axis, 1 if it does not occur.
    pub fn extent(&self, axis: Axis) -> u32 {
        self.launch.iter().find(|l| l.axis == axis).map_or(1, |l| l.extent)
    }

    /// The ranges of the variables of the launch and of what is derived from them.
    pub fn env(&self) -> Env {
        let mut env = Env::new();
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
        env
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
        units::lane(&self.launch)
    }

    /// The number of a thread's warp.
    pub fn warp(&self) -> Index {
        units::warp(&self.launch)
    }

    /// The variables that tell blocks apart.
    pub fn block_vars(&self) -> Vec<Var> {
        let axes = self.launch.iter().filter(|l| l.axis.is_block_level()).map(|l| l.var);
        axes.chain(self.derived.iter().map(|d| d.var)).collect()
    }

    /// The loops whose iterations are the turns of warpgroups, with their extents; none after the pass `roles`.
    pub(crate) fn turns(&self) -> Vec<(Var, i64)> {
        let turns = visit::loops(&self.func.body).into_iter().filter(|l| l.pingpong);
        turns.filter_map(|l| Some((l.var, l.extent.as_int()?))).collect()
    }

    /// The variables of the thread axes with their extents, those of roles included.
    pub fn thread_vars(&self) -> Vec<(Var, i64)> {
        let of_roles = self.roles.iter().flat_map(|r| &r.axes);
        let threads = self.launch.iter().filter(|l| !l.axis.is_block_level()).chain(of_roles);
        threads.map(|l| (l.var, i64::from(l.extent))).collect()
    }

    /// The axes that count the threads of a role's stages, or of everything else.
    pub fn axes_of(&self, role: Option<RoleId>) -> &[LaunchAxis] {
        let found = self.roles.iter().find(|r| Some(r.role) == role);
        found.map_or(&self.launch, |r| &r.axes)
    }
}

/// A pass over one kernel.
pub struct Pass {
    /// Its name in dumps.
    pub name: &'static str,
    /// What it promises of the program after it.
    pub promise: &'static str,
    run: fn(&mut LoweredKernel, &Target) -> Result<()>,
}

/// The passes, in order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "cross_thread",
        promise: "no block reduces over a bound loop: threads combine partial results by shuffles and shared memory",
        run: cross_thread::run,
    },
    Pass {
        name: "blocks",
        promise: "blocks are labels: bindings, predicates and inits are written out",
        run: blocks::run,
    },
    Pass {
        name: "bind",
        promise: "bound loops are hardware indices; a block that does not use an axis runs on one of its threads",
        run: bind::run,
    },
    Pass { name: "compact", promise: "buffers within the block hold only what is in use at a time", run: compact::run },
    Pass {
        name: "bulk",
        promise: "staged buffers that TMA copies are TMA boxes, issued by one thread",
        run: bulk::run,
    },
    Pass {
        name: "fragments",
        promise: "nests of instructions are calls, the elements of fragments belong to lanes and their registers",
        run: fragments::run,
    },
    Pass { name: "flatten", promise: "every buffer is flat, every access one element index", run: flatten::run },
    Pass { name: "guards", promise: "no condition is left that always holds", run: guards::run },
    Pass {
        name: "vectors",
        promise: "vectorized loops are accesses of a width that alignment proves",
        run: vectors::run,
    },
    Pass {
        name: "copies",
        promise: "asynchronous copies into staged buffers are of 4, 8 or 16 bytes",
        run: copies::run,
    },
    Pass {
        name: "roles",
        promise: "the warps of a role run a slice of the kernel; rings of stages connect the slices",
        run: roles::run,
    },
    Pass {
        name: "pipeline",
        promise: "pipelined loops fill stages of shared memory ahead: asynchronously, or through registers",
        run: pipeline::run,
    },
    Pass {
        name: "registers",
        promise: "local buffers are indexed by constants once unrolled loops are written out",
        run: registers::run,
    },
    Pass {
        name: "plan",
        promise: "shared buffers have offsets; buffers not in use together may share bytes",
        run: plan::run,
    },
    Pass {
        name: "order",
        promise: "synchronisation between accesses that depend on each other, and nowhere else",
        run: order::run,
    },
];

/// Lowers a Scheduled program for a target.
///
/// # Errors
/// The input's fault where the program does not verify or a stage cannot be shared between threads as it is placed; the chip's where it lacks
/// an instruction or room (threads, shared memory, registers).
pub fn lower(func: &Func, target: &Target) -> Result<Lowered> {
    lower_traced(func, target, &mut |_| {})
}

/// What a pass did, for dumps.
pub struct Trace<'a> {
    /// The pass.
    pub pass: &'static str,
    /// The kernel after it.
    pub kernel: &'a LoweredKernel,
    /// How long it took.
    pub time: Duration,
}

/// [`lower`], with `trace` called after every pass on every kernel.
///
/// # Errors
/// As [`lower`]; the passes before the failing one have been shown.
pub fn lower_traced(func: &Func, target: &Target, trace: &mut dyn FnMut(&Trace)) -> Result<Lowered> {
    crate::ir::verify::verify(func)?;
    pass_by_pass(func, target, trace).map_err(|e| point::point(e, func))
}

fn pass_by_pass(func: &Func, target: &Target, trace: &mut dyn FnMut(&Trace)) -> Result<Lowered> {
    admit::admit(func, target)?;
    let mut kernels = kernels::split(func)?;
    for kernel in &mut kernels {
        for pass in PASSES {
            let start = Instant::now();
            (pass.run)(kernel, target)
                .map_err(|e| e.within(format!("lowering {}, pass {}", kernel.func.name, pass.name)))?;
            trace(&Trace { pass: pass.name, kernel, time: start.elapsed() });
        }
        admit::admit_kernel(kernel, target)?;
        verify(kernel).map_err(|e| e.within(format!("lowering {}", kernel.func.name)))?;
    }
    let params = func.params.iter().map(|p| func.buffer(*p).name.clone()).collect();
    let shape = |buffer: &Buffer| Some((buffer.const_shape()?, layout::strides(buffer)?));
    let shapes = func.params.iter().map(|p| shape(func.buffer(*p)).unwrap_or_default()).collect();
    Ok(Lowered { name: func.name.clone(), params, shapes, kernels })
}

/// A fault of a pass itself.
fn bug(pass: &str, message: impl std::fmt::Display) -> Error {
    Error::bug(format!("lower.{pass}"), message.to_string())
}
