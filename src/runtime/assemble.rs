//! Cubins by the driver's own assembler, for the cache: a later process loads them without compiling.

use super::arguments;
use super::device::Device;
use super::driver::api;
use super::logs::Logs;
use crate::error::Result;
use crate::kernel::{Assembler, Cubin, Kernels};
use std::ffi::{c_uint, c_void};

impl Assembler for Device {
    /// Driver version and device: both determine the cubin.
    fn name(&self) -> String {
        format!("driver {} for sm_{}", self.info().driver_text(), self.info().sm())
    }

    /// Has the driver compile and link the PTX (`cuLinkAddData`, `cuLinkComplete`).
    fn cubin(&self, kernels: &Kernels) -> Result<Cubin> {
        let within = |e: crate::Error| e.within(format!("assembling {} for {}", kernels.name, kernels.target));
        arguments::check_target(&kernels.target, &self.info().name, self.info().capability).map_err(within)?;
        // The driver finds the end of PTX by a zero.
        let text = format!("{}\0", kernels.ptx());
        let mut logs = Logs::new();
        let linked = self.link(&text, &mut logs);
        let linked = linked.map_err(|error| logs.explain(error, kernels, self.info().driver_version));
        let exact = kernels.target.ends_with('a');
        let chip = if exact { kernels.target.clone() } else { format!("sm_{}", self.info().sm()) };
        linked.map(|bytes| Cubin::new(chip, Assembler::name(self), bytes)).map_err(within)
    }
}

/// A link in the making, which the driver holds until it is dropped.
struct Link<'a>(&'a Device, api::CUlinkState);

impl Drop for Link<'_> {
    fn drop(&mut self) {
        let state = self.1;
        // Its failure changes nothing: the code has been copied.
        // SAFETY: the state was made by the driver and is given back once.
        let _ = self.0.inner.call("releasing a link", || unsafe { api::cuLinkDestroy(state) });
    }
}

impl Device {
    /// Assembles PTX that ends with a zero. The logs get the messages of the driver's compiler.
    fn link(&self, text: &str, logs: &mut Logs) -> Result<Vec<u8>> {
        const DOING: &str = "linking machine code";
        let (mut options, mut values) = logs.options();
        let (count, mut state) = (options.len() as c_uint, std::ptr::null_mut());
        // SAFETY: there are as many values as options; they and the logs outlive the link, which is destroyed below.
        let create = || unsafe { api::cuLinkCreate_v2(count, options.as_mut_ptr(), values.as_mut_ptr(), &mut state) };
        self.inner.call(DOING, create)?;
        let link = Link(self, state);
        let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
        let data = text.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the driver copies the text, which is as long as said; a link needs neither a name for it nor options of its own.
        let add =
            || unsafe { api::cuLinkAddData_v2(state, api::jit::PTX, data, text.len(), c"".as_ptr(), 0, none, nothing) };
        self.inner.call(DOING, add)?;
        let (mut code, mut bytes) = (std::ptr::null_mut::<c_void>(), 0usize);
        // SAFETY: writes an address and a size.
        self.inner.call(DOING, || unsafe { api::cuLinkComplete(state, &mut code, &mut bytes) })?;
        // SAFETY: the driver's code is as long as it says, and lives as long as the link.
        let code = unsafe { std::slice::from_raw_parts(code.cast::<u8>(), bytes) }.to_vec();
        drop(link);
        Ok(code)
    }
}
