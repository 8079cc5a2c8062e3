//! From Scheduled to Lowered: the list of passes, which make threads, memory and synchronisation explicit.
//!
//! [`lower()`] makes a kernel of every nest of the root and runs [`PASSES`] on each, in order. No pass knows what a GEMM is.
//! Debug builds check the promise of each pass after it (`promise`), the unit tests those of the passes before it, too. The passes are
//! grouped by what they decide:
//!
//! - `target`: whether the chip and this version can run the program
//! - `map`: which threads run a statement: blocks, bound loops, units, grids, guards
//! - `data`: where data is: TMA boxes, fragments, flat buffers, vectors, cp.async copies, the shared-memory plan
//! - `pipeline`: software pipelining and warp specialization
//! - `sync`: dependences, and the barriers, mbarriers, fences and waits that order them
//! - `finalize`: how loops, addresses and hints become code: which loops are written out, where conditions are asked, which remainders are
//!   counted, how large the kernel is

mod data;
mod finalize;
mod map;
mod pipeline;
mod point;
mod promise;
mod run;
mod sync;
mod target;

use crate::error::Result;
use crate::target::Target;

pub use crate::ir::lowered::{
    Clipped, Derived, Dim, GridDependency, LaunchAxis, Lowered, LoweredKernel, RoleThreads, Shape, TensorMap, print,
    print_bulk, print_derived, print_kernel, print_walk, printed_kernel, statement_lines, verify,
};
pub use run::{Trace, lower, lower_traced};
use run::{bug, elements};

/// A pass over one kernel.
pub struct Pass {
    /// Its name in dumps.
    pub name: &'static str,
    /// What it promises of the program after it.
    pub promise: &'static str,
    /// Checks the promise.
    holds: fn(&LoweredKernel) -> promise::Kept,
    run: fn(&mut LoweredKernel, &Target) -> Result<()>,
}

/// The passes, in order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "cross_thread",
        promise: "no block reduces over a bound loop: threads combine partial results by shuffles and shared memory",
        holds: promise::no_reduction_over_threads,
        run: map::cross_thread::run,
    },
    Pass {
        name: "blocks",
        promise: "blocks are labels: bindings, predicates and inits are written out",
        holds: promise::labels,
        run: map::blocks::run,
    },
    Pass {
        name: "bind",
        promise: "bound loops are hardware indices; a block that does not use an axis runs on one of its threads",
        holds: promise::no_bound_loop,
        run: map::bind::run,
    },
    Pass {
        name: "compact",
        promise: "buffers within the block hold only what is in use at a time",
        holds: promise::constant_sizes,
        run: data::compact::run,
    },
    Pass {
        name: "bulk",
        promise: "staged buffers that TMA copies are TMA boxes, issued by one thread",
        holds: promise::boxes,
        run: data::bulk::run,
    },
    Pass {
        name: "fragments",
        promise: "nests of instructions are calls, the elements of fragments belong to lanes and their registers",
        holds: promise::no_fragment,
        run: data::fragments::run,
    },
    Pass {
        name: "peers",
        promise: "a buffer of a cluster is shared memory of each block, and a store says which block it goes to",
        holds: promise::no_cluster_buffer,
        run: data::peers::run,
    },
    Pass {
        name: "flatten",
        promise: "every buffer is flat, every access one element index",
        holds: promise::flat,
        run: data::flatten::run,
    },
    Pass {
        name: "clip",
        promise: "the grid has no more blocks than write something at the launch's value of a dynamic size",
        holds: map::clip::kept,
        run: map::clip::run,
    },
    Pass {
        name: "guards",
        promise: "no condition is left that always holds",
        holds: promise::needed_conditions,
        run: map::guards::run,
    },
    Pass {
        name: "vectors",
        promise: "vectorized loops are accesses of a width that alignment proves, or read aligned words that are shifted",
        holds: promise::no_vector_loop,
        run: data::vectors::run,
    },
    Pass {
        name: "copies",
        promise: "asynchronous copies into staged buffers are of 4, 8 or 16 bytes",
        holds: promise::copies,
        run: data::copies::run,
    },
    Pass {
        name: "roles",
        promise: "the warps of a role run a slice of the kernel; rings of stages connect the slices",
        holds: promise::roles,
        run: pipeline::roles::run,
    },
    Pass {
        name: "pipeline",
        promise: "pipelined loops fill stages of shared memory ahead: asynchronously, or through registers",
        holds: promise::pipelined,
        run: pipeline::run,
    },
    Pass {
        name: "registers",
        promise: "local buffers are indexed by constants once unrolled loops are written out",
        holds: promise::constant_registers,
        run: data::registers::run,
    },
    Pass {
        name: "plan",
        promise: "shared buffers have offsets; buffers not in use together may share bytes",
        holds: promise::planned,
        run: data::plan::run,
    },
    Pass {
        name: "order",
        promise: "synchronisation between accesses that depend on each other, and nowhere else",
        holds: promise::verified,
        run: sync::run,
    },
    Pass {
        name: "narrow",
        promise: "where a thread has many elements of 8 or 16 bits and reads them again after a barrier or a shuffle, they stay as narrow in registers",
        holds: promise::narrow,
        run: data::narrow::run,
    },
    Pass {
        name: "permute",
        promise: "each nest that is marked as byte permutations is some",
        holds: promise::permuted,
        run: finalize::permute::run,
    },
    Pass {
        name: "columns",
        promise: "an MMA uses all its columns; where that depends on a dynamic size, there is one for each number of columns",
        holds: promise::used_columns,
        run: finalize::columns::run,
    },
    Pass {
        name: "unroll",
        promise: "every loop says how many iterations are written out in its body",
        holds: promise::unrolled,
        run: finalize::unroll::run,
    },
    Pass {
        name: "conditions",
        promise: "no loop that is written out asks one condition around loads from device memory in each iteration",
        holds: promise::conditions_outside,
        run: finalize::conditions::run,
    },
    Pass {
        name: "zigzag",
        promise: "the direction of a loop with `zigzag` is known where it is written out",
        holds: promise::directed,
        run: finalize::zigzag::run,
    },
    Pass {
        name: "counters",
        promise: "a counted remainder is that of a sum with the variable of its loop",
        holds: promise::counted,
        run: finalize::counters::run,
    },
    Pass {
        name: "descriptors",
        promise: "the inline PTX of wgmma adds the constant part of an address that a loop changes",
        holds: promise::split,
        run: finalize::descriptors::run,
    },
    Pass {
        name: "launch",
        promise: "the launch is complete: uniform warp numbers, the bound on registers",
        holds: promise::launched,
        run: finalize::launch::run,
    },
    Pass {
        name: "size",
        promise: "the kernel is no larger, once its loops are written out, than the compiler takes",
        holds: promise::fits,
        run: finalize::size::run,
    },
];
