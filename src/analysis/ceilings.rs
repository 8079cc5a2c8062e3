//! How long each engine of a multiprocessor is busy at least, where all multiprocessors share the work evenly.

use super::report::KernelCost;
use super::request::{LANES, SECTOR, WORD};
use crate::target::Device;
use serde::Serialize;

/// Clocks of a multiprocessor. No launch takes fewer than the most of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AtLeast {
    /// The tensor cores, for the products of instructions, where the chip's rate is known.
    pub products: Option<f64>,
    /// Its share of what the second-level cache gives to bulk copies, where that is known. What lanes load may come from the
    /// first-level cache and is left out.
    pub l2: Option<f64>,
    /// Shared memory: a wavefront of all banks a clock, for requests of lanes and for tiles behind descriptors. Whether what the
    /// copy engine reads and writes takes turns with them is not documented, so it is left out.
    pub shared: f64,
}

impl AtLeast {
    /// Of a kernel whose products take so many clocks of one multiprocessor.
    pub fn of(kernel: &KernelCost, products: Option<f64>, device: Device) -> AtLeast {
        let t = &kernel.totals.traffic;
        let all = f64::from(device.multiprocessors.max(1));
        let wavefronts = t.shared_load_wavefronts.saturating_add(t.shared_store_wavefronts);
        let rows = t.descriptor_bytes as f64 / (LANES as f64 * WORD as f64);
        let l2 = t.bulk_load_sectors as f64 * SECTOR as f64;
        AtLeast {
            products: products.map(|clocks| clocks / all),
            l2: device.l2_bytes_per_cycle.filter(|_| t.bulk_loads > 0).map(|rate| l2 / rate / all),
            shared: (wavefronts as f64 + rows) / all,
        }
    }
}
