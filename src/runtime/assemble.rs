//! Cubins by the driver's own assembler, for the cache: a later process loads them without compiling.

use super::arguments;
use super::device::Device;
use crate::error::Result;
use crate::kernel::{Assembler, Cubin, Kernels};
use cust::link::Linker;

impl Assembler for Device {
    /// Driver version and device: both determine the cubin.
    fn name(&self) -> String {
        let (info, version) = (self.info(), self.info().driver_version);
        format!("driver {}.{} for sm_{}", version / 1000, version % 1000 / 10, info.sm())
    }

    /// Has the driver compile and link the PTX (`cuLinkAddData`, `cuLinkComplete`).
    fn cubin(&self, kernels: &Kernels) -> Result<Cubin> {
        let within = |e: crate::Error| e.within(format!("assembling {} for {}", kernels.name, kernels.target));
        arguments::check_target(&kernels.target, &self.info().name, self.info().capability).map_err(within)?;
        // The driver finds the end of PTX by a zero.
        let text = format!("{}\0", kernels.ptx());
        let linked = self.inner.make("linking machine code", || {
            let mut linker = Linker::new()?;
            linker.add_ptx(&text)?;
            linker.complete()
        });
        let exact = kernels.target.ends_with('a');
        let chip = if exact { kernels.target.clone() } else { format!("sm_{}", self.info().sm()) };
        linked.map(|bytes| Cubin::new(chip, Assembler::name(self), bytes)).map_err(within)
    }
}
