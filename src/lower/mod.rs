//! From Scheduled to Lowered: threads, memory and synchronisation made explicit, one named pass a line.

use crate::ir::{Axis, BufferId, Func, Var};

/// A lowered program: its kernels in launch order. Made by [`lower`] alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    /// The program's name.
    pub name: String,
    /// Names of the program's parameters, in the caller's order.
    pub params: Vec<String>,
    /// In launch order.
    pub kernels: Vec<LoweredKernel>,
}

/// One kernel.
///
/// The body of `func` is what every thread runs. Its statements are [`crate::ir::Stmt`] with these promises:
/// - no loop is bound; the variables of `launch` stand for the hardware's indices;
/// - loops are serial or unrolled, with constant extents; a `Vectorized` loop is gone (lanes say its width);
/// - blocks have no iterators, no predicate and no init: they are labels;
/// - every buffer has one flat extent, and each access one flat element index with `lanes` consecutive elements whose
///   address is a multiple of their size in bytes;
/// - a `Local` buffer is registers: its indices are constants once the unrolled loops around are written out;
/// - a `Shared` buffer has a byte `offset`;
/// - a `Sync` stands only where all threads of its unit come.
///
/// `func.params` are the kernel's parameters: global buffers of the program or workspace, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct LoweredKernel {
    /// Name, parameters, buffers and body.
    pub func: Func,
    /// The hardware axes that occur, with their variable and extent. Axes not listed have extent 1.
    pub launch: Vec<LaunchAxis>,
    /// Shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Resident blocks per multiprocessor to compile for, if annotated.
    pub min_blocks: Option<u32>,
    /// Parameters that are workspace, not arguments of the program.
    pub workspace: Vec<BufferId>,
}

/// A hardware axis of a kernel: blockIdx or threadIdx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchAxis {
    /// Which.
    pub axis: Axis,
    /// The variable that stands for it in the body.
    pub var: Var,
    /// How many.
    pub extent: u32,
}

impl LoweredKernel {
    /// Blocks in x, y, z.
    pub fn grid(&self) -> [u32; 3] {
        [Axis::BlockX, Axis::BlockY, Axis::BlockZ].map(|a| self.extent(a))
    }

    /// Threads in x, y, z.
    pub fn block(&self) -> [u32; 3] {
        [Axis::ThreadX, Axis::ThreadY, Axis::ThreadZ].map(|a| self.extent(a))
    }

    fn extent(&self, axis: Axis) -> u32 {
        self.launch.iter().find(|l| l.axis == axis).map_or(1, |l| l.extent)
    }
}
