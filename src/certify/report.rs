//! What a certificate says: plain data, written as JSON by serde.

use serde::Serialize;

/// What is known of a lowered program without running it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Certificate {
    /// The program's name.
    pub program: String,
    /// The chip it is for.
    pub target: String,
    /// The device that waves are counted on.
    pub device: crate::target::Device,
    /// What the counts cover and rest on.
    pub assumes: Vec<&'static str>,
    /// In launch order.
    pub kernels: Vec<KernelCertificate>,
}

/// Of one kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelCertificate {
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
    /// Loads and stores of shared and device memory, in the order of the text; a statement's loads before its store.
    pub accesses: Vec<AccessCertificate>,
}

/// Registers of a thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Registers {
    /// The sum of the following.
    pub estimate: u32,
    /// Local buffers that are live together at most.
    pub local: u32,
    /// Values that are loaded from memory before they are used.
    pub loaded: u32,
    /// Pointers, indices and loop counters.
    pub addresses: u32,
    /// What ptxas came to, where it was asked.
    pub ptxas: Option<Assembled>,
}

/// What ptxas says of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Shared memory; else device memory.
    pub shared: bool,
    /// Whether it stores.
    pub write: bool,
    /// Whether it is half of an asynchronous copy.
    pub asynchronous: bool,
}

/// Requests of warps, what they cost, and instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Requests of warps that load from shared memory.
    pub shared_load_requests: u64,
    /// Their wavefronts.
    pub shared_load_wavefronts: u64,
    /// Requests of warps that store to shared memory.
    pub shared_store_requests: u64,
    /// Their wavefronts.
    pub shared_store_wavefronts: u64,
    /// Requests of warps that load from device memory.
    pub global_load_requests: u64,
    /// Their sectors.
    pub global_load_sectors: u64,
    /// Requests of warps that store to device memory.
    pub global_store_requests: u64,
    /// Their sectors.
    pub global_store_sectors: u64,
    /// Of these, asynchronous copies: a load of device memory and a store to shared memory in one.
    pub copy_requests: u64,
    /// Their sectors.
    pub copy_sectors: u64,
    /// Their wavefronts.
    pub copy_wavefronts: u64,
    /// Instructions of warps. Of the lowered program those on data and memory alone; of PTX all.
    pub instructions: u64,
    /// Those of them that are fused multiply-adds.
    pub fma_instructions: u64,
    /// Fused multiply-adds of single threads.
    pub fma: u64,
}

impl Traffic {
    /// Adds requests that cost so much together. An asynchronous copy is a load and a store; it counts as a request by its
    /// store.
    pub fn request(&mut self, kind: Kind, number: u64, cost: u64) {
        match kind {
            Kind { asynchronous: false, .. } => {}
            Kind { write: true, .. } => {
                self.copy_requests = self.copy_requests.saturating_add(number);
                self.copy_wavefronts = self.copy_wavefronts.saturating_add(cost);
            }
            Kind { write: false, .. } => self.copy_sectors = self.copy_sectors.saturating_add(cost),
        }
        let (requests, total) = match (kind.shared, kind.write) {
            (true, false) => (&mut self.shared_load_requests, &mut self.shared_load_wavefronts),
            (true, true) => (&mut self.shared_store_requests, &mut self.shared_store_wavefronts),
            (false, false) => (&mut self.global_load_requests, &mut self.global_load_sectors),
            (false, true) => (&mut self.global_store_requests, &mut self.global_store_sectors),
        };
        *requests = requests.saturating_add(number);
        *total = total.saturating_add(cost);
    }

    /// Adds `times` of the other.
    pub fn add(&mut self, other: &Traffic, times: u64) {
        let pairs = [
            (&mut self.shared_load_requests, other.shared_load_requests),
            (&mut self.shared_load_wavefronts, other.shared_load_wavefronts),
            (&mut self.shared_store_requests, other.shared_store_requests),
            (&mut self.shared_store_wavefronts, other.shared_store_wavefronts),
            (&mut self.global_load_requests, other.global_load_requests),
            (&mut self.global_load_sectors, other.global_load_sectors),
            (&mut self.global_store_requests, other.global_store_requests),
            (&mut self.global_store_sectors, other.global_store_sectors),
            (&mut self.copy_requests, other.copy_requests),
            (&mut self.copy_sectors, other.copy_sectors),
            (&mut self.copy_wavefronts, other.copy_wavefronts),
            (&mut self.instructions, other.instructions),
            (&mut self.fma_instructions, other.fma_instructions),
            (&mut self.fma, other.fma),
        ];
        for (sum, n) in pairs {
            *sum = sum.saturating_add(n.saturating_mul(times));
        }
    }

    /// So many operations for each byte that crosses between device memory and the multiprocessors.
    pub fn per_global_byte(&self, operations: u64) -> Option<f64> {
        let sectors = self.global_load_sectors.saturating_add(self.global_store_sectors);
        (sectors > 0).then(|| operations as f64 / (sectors as f64 * super::request::SECTOR as f64))
    }

    /// Fused multiply-adds as a share of the instructions.
    pub fn fma_share(&self) -> Option<f64> {
        (self.instructions > 0).then(|| self.fma_instructions as f64 / self.instructions as f64)
    }
}

/// What is left of a kernel's accesses in its PTX.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compiled {
    /// Registers of a thread that hold something at one time, at most.
    pub live_registers: u32,
    /// Blocks of the launch.
    pub blocks: u64,
    /// Blocks whose warps were followed: the first, the last and some between along each axis stand for the others.
    pub blocks_followed: u64,
    /// Sums over the launch, if the warps could be followed.
    pub traffic: Option<Traffic>,
    /// Why they could not.
    pub why: Option<String>,
}

/// Sums over a launch of the lowered program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Requests, their cost, and issue slots: instructions of warps on data and memory.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Floating-point operations; a fused multiply-add is two.
    pub operations: u64,
    /// Floating-point operations for a byte that crosses between device memory and the multiprocessors (sectors times 32).
    pub operations_per_global_byte: Option<f64>,
    /// Floating-point operations for a byte that each parameter holds, as if it crossed once.
    pub operations_per_argument_byte: Option<f64>,
    /// Fused multiply-adds as a share of the instructions.
    pub fma_share: Option<f64>,
}

/// Of one load or store of shared or device memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccessCertificate {
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
    /// Whether it is half of an asynchronous copy.
    pub asynchronous: bool,
    /// Bytes that one thread moves.
    pub width: i64,
    /// How it was counted.
    pub method: Counted,
    /// Requests of warps in the launch.
    pub requests: u64,
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
pub struct Advice {
    /// How the lanes of a warp move.
    pub because: String,
    /// A step that helps, as it stands behind the others.
    pub step: Option<String>,
    /// What it does, or what may help where no step by itself does.
    pub then: Option<String>,
}

/// How an access was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// Every warp of every block in every iteration.
    Exact,
    /// As if a condition on data held in every lane; else every warp.
    EveryLane,
    /// The first, a middle and the last value of the variables that matter stand for the others.
    Sampled,
    /// Not at all: its arithmetic overflows.
    Not,
}

/// What the requests of an access cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
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
}

impl Cost {
    /// The total, and what it is at best.
    pub fn total(&self) -> (u64, u64) {
        match *self {
            Cost::Shared { wavefronts, ideal, .. } => (wavefronts, ideal),
            Cost::Global { sectors, ideal, .. } => (sectors, ideal),
        }
    }
}

/// Why an access stays inside its buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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
    /// Some lane may leave the buffer.
    Open {
        /// First and last element that ranges show.
        range: Option<(i64, i64)>,
        /// Elements of the buffer.
        elements: i64,
    },
}
