//! What a kernel asks of its launch as a whole: `launch LOOP min_blocks=N grid_dependency=N concurrent=1 l2_prefetch=1`.
//!
//! A kernel is a nest of the root. A loop of the nest names it.

use super::{BufferId, Func, Stmt, Var, visit};

/// How a kernel overlaps with the kernels before and after it in the stream (programmatic dependent launch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GridDependency {
    /// The kernel may begin while the previous kernel runs. It waits for the end of the previous kernel itself.
    Waits,
    /// As `Waits`; and the next kernel may begin once each block of this kernel has begun.
    Releases,
}

impl GridDependency {
    /// Its value in steps and dumps.
    pub fn value(self) -> i64 {
        match self {
            GridDependency::Waits => 1,
            GridDependency::Releases => 2,
        }
    }
}

/// Values that a kernel is compiled and launched with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchOptions {
    /// Resident blocks per multiprocessor to compile the kernel for.
    pub min_blocks: Option<u32>,
    /// Whether the kernel overlaps with the kernels before and after it in the stream.
    pub grid_dependency: Option<GridDependency>,
    /// Whether the kernel runs concurrently with the preceding kernels: it waits for them at its end.
    pub concurrent: bool,
    /// Before the kernel waits for anything, its blocks prefetch its inputs to L2, each block its share.
    pub l2_prefetch: bool,
}

impl LaunchOptions {
    /// The options that have a value, by name, in the order of the step.
    pub fn stated(&self) -> Vec<(&'static str, i64)> {
        let options = [
            ("min_blocks", self.min_blocks.map(i64::from)),
            ("grid_dependency", self.grid_dependency.map(GridDependency::value)),
            ("concurrent", self.concurrent.then_some(1)),
            ("l2_prefetch", self.l2_prefetch.then_some(1)),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// These options, and those of another step for the same kernel.
    pub fn and(self, other: LaunchOptions) -> LaunchOptions {
        LaunchOptions {
            min_blocks: self.min_blocks.or(other.min_blocks),
            grid_dependency: self.grid_dependency.or(other.grid_dependency),
            concurrent: self.concurrent || other.concurrent,
            l2_prefetch: self.l2_prefetch || other.l2_prefetch,
        }
    }
}

/// `launch LOOP ..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// A loop of the kernel.
    pub of: Var,
    /// What the step states.
    pub options: LaunchOptions,
}

impl Launch {
    /// `launch tile min_blocks=2`.
    pub fn text(&self, func: &Func) -> String {
        let values = self.options.stated().into_iter().map(|(name, value)| format!(" {name}={value}"));
        format!("launch {}{}", func.var_name(self.of), values.collect::<String>())
    }
}

/// A buffer for which two kernels must run one after the other: one of them writes it, and the other one reads or writes it.
pub fn conflict(one: &[Stmt], other: &[Stmt]) -> Option<BufferId> {
    let of = |writer: &[Stmt], other: &[Stmt]| {
        let accessed = [visit::reads(other), visit::writes(other)].concat();
        visit::writes(writer).into_iter().find(|id| accessed.contains(id))
    };
    of(one, other).or_else(|| of(other, one))
}

impl Func {
    /// The launches of the kernel that a nest of the root becomes.
    pub fn launches_of(&self, nest: &Stmt) -> Vec<&Launch> {
        let loops = visit::loops(std::slice::from_ref(nest));
        let named = |launch: &&Launch| loops.iter().any(|l| l.var == launch.of);
        self.launches.iter().filter(named).collect()
    }
}
