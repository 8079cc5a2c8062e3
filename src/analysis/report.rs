//! A cost report: plain data, written as JSON by serde.

use super::caches::CacheTraffic;
use super::ceilings::AtLeast;
use super::predicted::Predicted;
use super::roles::{MbarrierCost, RoleCost, StatementCost};
use super::traffic::Traffic;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is known of a lowered program without running it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CostReport {
    /// The program's name.
    pub program: String,
    /// The chip it is for.
    pub target: String,
    /// The device that waves are counted on.
    pub device: crate::target::Device,
    /// What the counts cover and rest on.
    pub assumes: Vec<&'static str>,
    /// The order in which it sums, in one sentence, where it was asked for and sums anything ([`CostReport::summed`]).
    pub sums: Option<String>,
    /// Cycles that the cost model predicts for all kernels, one after the other. The tuner orders configurations by this figure.
    pub predicted_cycles: f64,
    /// In launch order.
    pub kernels: Vec<KernelCost>,
}

/// Of one kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KernelCost {
    /// Its name.
    pub name: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Warps of a block.
    pub warps: u64,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Of a thread.
    pub registers: Registers,
    /// Blocks of a multiprocessor at once.
    pub occupancy: Occupancy,
    /// How often the device is filled: blocks over the blocks that are resident at once.
    pub waves: Option<f64>,
    /// Sums over the launch.
    pub totals: Totals,
    /// The same of the compiled kernel, where it was compiled.
    pub compiled: Option<Compiled>,
    /// What the warps of each role run; of all warps where there are no roles.
    pub roles: Vec<RoleCost>,
    /// What is waited for, and what arrives.
    pub mbarriers: Vec<MbarrierCost>,
    /// Traffic between L1, L2 and device memory.
    pub caches: CacheTraffic,
    /// How long a multiprocessor's engines are busy at least.
    pub at_least: AtLeast,
    /// Predicted cycles and the engine that limits them.
    pub predicted: Predicted,
    /// What the kernel as a whole suffers from, and what to try.
    pub advice: Vec<Advice>,
    /// Bytes of bulk loads that can be under way to a block at one time: what its mbarriers can expect together.
    pub bytes_in_flight: u64,
    /// Loads and stores of shared and device memory, in the order of the text; a statement's loads before its store.
    pub accesses: Vec<AccessCost>,
    /// Every statement, by its number.
    pub statements: Vec<StatementCost>,
    /// What no sum holds, and why it was not counted.
    pub uncounted: Vec<String>,
}

/// Registers of a thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Registers {
    /// The sum of the following.
    pub estimate: u32,
    /// Local buffers that are live together at most.
    pub local: u32,
    /// Values that are loaded from memory before they are used.
    pub loaded: u32,
    /// Pointers, indices and loop counters.
    pub addresses: u32,
    /// What the estimate exceeds the registers by that a thread of so large a block can have: about so many are spilled. 0
    /// where ptxas was asked, which says it itself.
    pub spilled: u32,
    /// What ptxas came to, where it was asked.
    pub ptxas: Option<Assembled>,
}

/// What ptxas says of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Assembled {
    /// Its version.
    pub version: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that registers are spilled to.
    pub spill_stores: u32,
    /// Bytes of spilled registers that are read again.
    pub spill_loads: u32,
    /// Bytes of local memory of a thread.
    pub stack_frame: u32,
}

/// Blocks of a multiprocessor at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Occupancy {
    /// Resident blocks.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// Warps that a multiprocessor can hold.
    pub max_warps: u32,
    /// What stops one more block.
    pub limited_by: &'static str,
    /// Registers of a thread that this was computed with: ptxas's where it was asked, else the estimate.
    pub registers: u32,
}

/// What is left of a kernel's accesses in its PTX.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compiled {
    /// Registers of a thread that hold something at one time, at most.
    pub live_registers: u32,
    /// Blocks of the launch.
    pub blocks: u64,
    /// Blocks whose warps were followed: the first, the last and some between along each axis represent the others.
    pub blocks_followed: u64,
    /// Sums over the launch, if the warps could be followed. What bulk copies and descriptors move is not said in the PTX.
    pub traffic: Option<Traffic>,
    /// Instructions of warps by role, and by their names in the machine code that ptxas makes of them: products, bulk copies,
    /// matrices in shared memory, barriers. Each wait for an mbarrier is taken to pass at its first look.
    pub machine_code: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Why they could not.
    pub why: Option<String>,
}

/// Sums over a launch of the lowered program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Requests, their cost, and issue slots: instructions of warps on data and memory.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Floating-point operations; a fused multiply-add is two.
    pub operations: u64,
    /// Clocks that the tensor cores of one multiprocessor take for the products among them; none where a type's rate is not
    /// known.
    pub product_clocks: Option<f64>,
    /// Floating-point operations for a byte that crosses between device memory and the multiprocessors (sectors times 32).
    pub operations_per_global_byte: Option<f64>,
    /// Floating-point operations for a byte that each parameter holds, as if it crossed once.
    pub operations_per_argument_byte: Option<f64>,
    /// Fused multiply-adds as a share of the instructions.
    pub fma_share: Option<f64>,
}

/// Of one load or store of shared or device memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AccessCost {
    /// Its number among the loads and stores of the kernel, those of registers included.
    pub number: u32,
    /// The line in the lowered program as printed, from 1.
    pub line: usize,
    /// The column of its first character, from 1.
    pub column: usize,
    /// The block around it.
    pub block: Option<String>,
    /// The access as printed.
    pub text: String,
    /// What is accessed.
    pub buffer: String,
    /// `load` or `store`.
    pub kind: &'static str,
    /// Who makes it, if not the lanes of a warp each for itself: `cp.async`, `bulk copy`, `descriptor`.
    pub by: Option<&'static str>,
    /// The role whose warps do.
    pub role: Option<String>,
    /// Bytes that one thread moves.
    pub width: i64,
    /// How it was counted.
    pub method: Counted,
    /// Why it was not.
    pub why: Option<&'static str>,
    /// Requests of warps in the launch; of bulk copies boxes, in shared memory one for each block that receives it; of
    /// descriptors tiles.
    pub requests: u64,
    /// Lanes that take part in requests of warps.
    pub lanes: u64,
    /// The same for one warp, on average.
    pub requests_per_warp: f64,
    /// What the requests cost.
    pub cost: Cost,
    /// Why it stays inside the buffer.
    pub bounds: Bounds,
    /// What makes it cost more than it must, and what to try.
    pub advice: Option<Advice>,
}

/// Why an access costs more than it must.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// How the lanes of a warp move.
    pub because: String,
    /// A step that helps, as it follows the others.
    pub step: Option<String>,
    /// What it does, or what may help where no step by itself does.
    pub then: Option<String>,
}

/// How an access was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counted {
    /// Every warp of every block in every iteration.
    Exact,
    /// As if a condition on data held in every lane; else every warp.
    EveryLane,
    /// The first, a middle and the last value of the variables that matter represent the others.
    Sampled,
    /// Not at all.
    Not,
}

/// What the requests of an access cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cost {
    /// Shared memory.
    Shared {
        /// Wavefronts of all requests.
        wavefronts: u64,
        /// Without conflicts.
        ideal: u64,
        /// Wavefronts of the worst request.
        worst: u64,
        /// What that request takes without conflicts.
        worst_ideal: u64,
        /// The most different words that one bank is asked for at once.
        degree: u64,
    },
    /// Device memory.
    Global {
        /// Sectors of all requests.
        sectors: u64,
        /// If the same bytes lay together.
        ideal: u64,
        /// Sectors of the worst request.
        worst: u64,
        /// What the bytes of that request fill.
        worst_ideal: u64,
    },
    /// Device memory, by TMA: a row of a box after the other.
    Box {
        /// Bytes inside the array.
        bytes: u64,
        /// Sectors of 32 bytes that the rows touch.
        sectors: u64,
        /// As few as hold the bytes of each.
        ideal: u64,
        /// Lines of 128 bytes that the rows touch.
        lines: u64,
        /// As few as hold the bytes of each.
        ideal_lines: u64,
    },
    /// Shared memory, by TMA or by a product behind a descriptor, which take whole rows of banks.
    Engine {
        /// Bytes; those of a multicast in every block that receives it.
        bytes: u64,
    },
}

impl Cost {
    /// The total (wavefronts, sectors or bytes), and what it is at best.
    pub fn total(&self) -> (u64, u64) {
        match *self {
            Cost::Shared { wavefronts, ideal, .. } => (wavefronts, ideal),
            Cost::Global { sectors, ideal, .. } | Cost::Box { sectors, ideal, .. } => (sectors, ideal),
            Cost::Engine { bytes } => (bytes, bytes),
        }
    }
}

/// Why an access stays inside its buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bounds {
    /// The ranges of loops and hardware indices prove it.
    Proved {
        /// First and last element.
        range: (i64, i64),
        /// Elements of the buffer.
        elements: i64,
    },
    /// With these conditions around it.
    Predicated {
        /// First and last element where they hold.
        range: (i64, i64),
        /// Elements of the buffer.
        elements: i64,
        /// The conditions.
        by: String,
    },
    /// Counting every lane has shown it.
    Counted {
        /// First and last element.
        range: (i64, i64),
        /// Elements of the buffer.
        elements: i64,
    },
    /// TMA leaves out what is outside of the array.
    Clipped,
    /// Where a tile behind a descriptor ends is not judged here; the simulator finds one that leaves shared memory.
    NotJudged,
    /// Some lane may leave the buffer.
    Open {
        /// First and last element that ranges show.
        range: Option<(i64, i64)>,
        /// Elements of the buffer.
        elements: i64,
    },
}
