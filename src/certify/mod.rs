//! What a lowered program will cost, without running it: bank conflicts, sectors, bounds, registers, occupancy.
//!
//! [`certify`] looks at every load and store of shared and device memory, in every warp of every block and every
//! iteration (`count`: exact, without enumerating what repeats), and judges each request by the hardware's rules
//! (`request`). A count covers the accesses of the *lowered* program, as `warploom dump --emit lowered` prints them: LLVM and
//! ptxas may merge neighbours into one wider access, load an equal value once, and take a load out of a loop. What is left
//! after LLVM is counted in the PTX ([`Certificate::compiled`]).
//!
//! [`Observed`] counts the same on the CPU machine, where a program runs; tests hold one against the other.

mod access;
mod advice;
mod bounds;
mod compiled;
mod count;
mod geometry;
mod interval;
mod kernel;
mod observe;
mod print;
mod registers;
mod report;
mod request;
mod site;

pub use access::Runs;
pub use observe::{Observed, observe};
pub use print::print;
pub use report::{
    AccessCertificate, Advice, Assembled, Bounds, Certificate, Compiled, Cost, Counted, KernelCertificate, Kind,
    Occupancy, Registers, Totals, Traffic,
};
pub use request::{Conflicts, Lanes, Sectors, bank_conflicts, sectors};

use crate::assemble::Usage;
use crate::kernel::Kernels;
use crate::lower::{self, Lowered};
use crate::target::Target;

/// What every certificate rests on.
const ASSUMES: [&str; 3] = [
    "counts are of the lowered program's accesses; the compiler may merge neighbours, load equal values once, and take \
     loads out of loops",
    "buffers in device memory begin at multiples of 256 bytes, as allocations do",
    "registers are estimated from what the lowered program keeps in them, unless ptxas was asked; issue slots of the \
     lowered program leave out address arithmetic and loop control",
];

/// Certifies a lowered program. Nothing is run, and no program makes it fail.
pub fn certify(lowered: &Lowered, target: &Target) -> Certificate {
    let device = target.device();
    let mut line = 1;
    let mut kernels = Vec::new();
    for kernel in &lowered.kernels {
        kernels.push(kernel::certify(kernel, line, target, device));
        // Kernels are printed with an empty line between them.
        line += lower::print_kernel(kernel).lines().count() + 1;
    }
    Certificate {
        program: lowered.name.clone(),
        target: target.name.to_string(),
        device,
        assumes: ASSUMES.to_vec(),
        kernels,
    }
}

impl Certificate {
    /// Adds what is left of the accesses in the compiled kernels.
    #[must_use]
    pub fn compiled(mut self, kernels: &Kernels) -> Certificate {
        for (kernel, certificate) in kernels.kernels.iter().zip(&mut self.kernels) {
            let cluster = kernel.cluster[0];
            certificate.compiled = compiled::count(kernels.ptx(), &kernel.entry, kernel.grid, kernel.block, cluster);
        }
        self
    }

    /// Adds what ptxas says of the compiled kernels, and works out occupancy from it.
    #[must_use]
    pub fn assembled(mut self, compiled: &Kernels, version: &str, usage: &[Usage], target: &Target) -> Certificate {
        for (kernel, certificate) in compiled.kernels.iter().zip(&mut self.kernels) {
            let Some(u) = usage.iter().find(|u| u.entry == kernel.entry) else { continue };
            certificate.registers.ptxas = Some(Assembled {
                version: version.to_string(),
                registers: u.registers,
                spill_stores: u.spill_stores,
                spill_loads: u.spill_loads,
                stack_frame: u.stack_frame,
            });
            certificate.fill(target, self.device);
        }
        self
    }
}
