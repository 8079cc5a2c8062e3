//! What a lowered program will cost, without running it: bank conflicts, sectors, bounds, registers, occupancy.
//!
//! [`cost_report`] looks at every load and store of shared and device memory, in every warp of every block and every
//! iteration (`count`: exact, without enumerating what repeats), and judges each request by the hardware's rules
//! (`request`). What lanes do not access themselves is counted beside: boxes of bulk copies (`boxes`) in sectors and lines of
//! device memory and in bytes of the shared memory of each block that receives them, tiles behind descriptors in bytes, each
//! once for the warpgroup that reads it. Every statement counts for the role whose warps run it (`roles`). A count covers the accesses of the *lowered* program, as `warploom dump --emit lowered` prints them: LLVM and
//! ptxas may merge neighbours into one wider access, load an equal value once, and take a load out of a loop. What is left
//! after LLVM is counted in the PTX ([`CostReport::compiled`]).
//!
//! Traffic between L1, L2 and device memory (`caches`) and predicted cycles (`predicted`) are estimates. `ceilings` turns counts into
//! cycles of engines with the figures of the device.
//!
//! [`observe`] counts the same on the simulator, where a program runs; tests hold one against the other.

mod access;
mod advice;
mod bounds;
mod boxes;
mod caches;
mod ceilings;
mod compiled;
mod count;
mod geometry;
mod interval;
mod kernel;
mod observe;
mod predicted;
mod print;
mod registers;
mod report;
pub(crate) mod request;
mod roles;
mod site;
mod sums;
mod traffic;

pub use access::Runs;
pub use caches::CacheTraffic;
pub use ceilings::AtLeast;
pub use observe::{Observed, Ran, observe};
pub use predicted::Predicted;
pub use print::{Remark, print, remarks, summary};
pub use report::{
    AccessCost, Advice, Assembled, Bounds, Compiled, Cost, CostReport, Counted, KernelCost, Occupancy, Registers,
    Totals,
};
pub use request::{Conflicts, Lanes, Sectors, bank_conflicts, sectors};
pub use roles::{MbarrierCost, RoleCost, StatementCost};
pub use traffic::{RequestKind, Traffic};

use crate::assemble::Usage;
use crate::ir::Func;
use crate::ir::lowered::{self, Lowered};
use crate::kernel::Kernels;
use crate::target::Target;

/// What every cost report assumes.
const ASSUMES: [&str; 6] = [
    "counts are of the lowered program's accesses; the compiler may merge adjacent accesses, load equal values once, \
     and hoist loads out of loops",
    "buffers in device memory begin at multiples of 256 bytes, as allocations do",
    "registers are estimated from what the lowered program keeps in them, unless ptxas was asked; issue slots of the \
     lowered program exclude address arithmetic, loop control and synchronisation",
    "a persistent kernel is counted with one block for each tile: its real grid has fewer blocks and runs the code \
     outside the persistent loop less often",
    "TMA fetches each row of a box separately; an mbarrier wait counts once, however often it polls; the minimum \
     cycles of an engine assume that all multiprocessors share the work evenly",
    "traffic between caches and predicted cycles are estimates: no data is in L2 when a kernel begins, and blocks that run at once \
     walk their loops in step; predicted cycles order schedules and are not times",
];

/// Counts what a lowered program costs. Nothing is run, and no program makes it fail: what cannot be counted is named in
/// [`KernelCost::uncounted`], with the reason, and no total includes it.
pub fn cost_report(lowered: &Lowered, target: &Target) -> CostReport {
    let device = target.device();
    let mut line = 1;
    let mut kernels = Vec::new();
    for kernel in &lowered.kernels {
        kernels.push(kernel::cost_report(kernel, line, target, device));
        // Kernels are printed with an empty line between them.
        line += lowered::print_kernel(kernel).lines().count() + 1;
    }
    let mut report = CostReport {
        program: lowered.name.clone(),
        target: target.name.to_string(),
        device,
        assumes: ASSUMES.to_vec(),
        sums: None,
        predicted_cycles: 0.0,
        kernels,
    };
    report.predict();
    report
}

impl CostReport {
    /// Adds the order in which the scheduled program sums.
    #[must_use]
    pub fn summed(mut self, func: &Func) -> CostReport {
        self.sums = sums::sums(func);
        self
    }

    /// Adds what is left of the accesses in the compiled kernels.
    #[must_use]
    pub fn compiled(mut self, kernels: &Kernels) -> CostReport {
        for (kernel, report) in kernels.kernels.iter().zip(&mut self.kernels) {
            let cluster = kernel.cluster[0];
            // What all warps run is last.
            let roles = report.roles.iter().map(|r| (r.name.clone(), r.first..r.first + r.warps));
            let roles: Vec<_> = roles.collect();
            let launch = [kernel.grid, kernel.block];
            report.compiled = compiled::count(kernels.ptx(), &kernel.entry, launch, cluster, &roles);
        }
        self.predict();
        self
    }

    /// Adds what ptxas says of the compiled kernels, and works out occupancy from it.
    #[must_use]
    pub fn assembled(mut self, compiled: &Kernels, version: &str, usage: &[Usage], target: &Target) -> CostReport {
        for (kernel, report) in compiled.kernels.iter().zip(&mut self.kernels) {
            let Some(u) = usage.iter().find(|u| u.entry == kernel.entry) else { continue };
            report.registers.ptxas = Some(Assembled {
                version: version.to_string(),
                registers: u.registers,
                spill_stores: u.spill_stores,
                spill_loads: u.spill_loads,
                stack_frame: u.stack_frame,
            });
            report.fill(target, self.device);
        }
        self
    }
}
