//! How many cycles each engine is busy for a kernel, and the least cycles of a multiprocessor that follow.

use super::report::KernelCost;
use super::request::SECTOR;
use super::traffic::Traffic;
use crate::target::devices::L1_BYTES_PER_CYCLE;
use crate::target::{Device, LANES, SCHEDULERS};
use serde::Serialize;

/// Cycles that the engines are busy. Those of the engines of multiprocessors are sums over all multiprocessors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy {
    /// The schedulers of warps.
    pub issue: f64,
    /// The lanes of multiply-adds.
    pub lanes: f64,
    /// The tensor cores, where the rate of the types is known.
    pub tensor: Option<f64>,
    /// Shared memory: one wavefront a cycle, for requests of lanes and for tiles behind descriptors.
    pub shared: f64,
    /// L1: the sectors of all requests of lanes.
    pub l1: f64,
    /// L2: what L1 misses, all stores, and TMA.
    pub l2: f64,
    /// Device memory, which all multiprocessors share.
    pub memory: f64,
}

impl Busy {
    /// Of a kernel.
    pub fn of(kernel: &KernelCost, device: &Device) -> Busy {
        let (t, engines) = (of_lanes(kernel), &kernel.totals.traffic);
        let bytes = |sectors: u64| sectors as f64 * SECTOR as f64;
        let misses = kernel.caches.l1_miss_sectors.min(t.global_load_sectors);
        let bulk = engines.bulk_load_sectors.saturating_add(engines.bulk_store_sectors);
        let l2 = misses.saturating_add(t.global_store_sectors).saturating_add(bulk);
        let memory = kernel.caches.device_load_sectors.saturating_add(kernel.caches.device_store_sectors);
        let wavefronts = t.shared_load_wavefronts.saturating_add(t.shared_store_wavefronts);
        Busy {
            issue: t.instructions as f64 / SCHEDULERS as f64,
            lanes: t.fma_instructions as f64 * LANES as f64 / f64::from(device.lanes.max(1)),
            tensor: kernel.totals.product_clocks,
            shared: wavefronts as f64 + engines.descriptor_bytes as f64 / f64::from(device.shared_bytes_per_cycle),
            l1: bytes(t.global_load_sectors.saturating_add(t.global_store_sectors)) / L1_BYTES_PER_CYCLE,
            l2: bytes(l2) / device.l2_rate(),
            memory: bytes(memory) / device.memory_bytes_per_cycle(),
        }
    }
}

/// What the lanes of a kernel do: of the PTX where the warps could be followed in it.
pub(super) fn of_lanes(kernel: &KernelCost) -> &Traffic {
    kernel.compiled.as_ref().and_then(|c| c.traffic.as_ref()).unwrap_or(&kernel.totals.traffic)
}

/// Cycles of a multiprocessor, where all multiprocessors share the work evenly. No launch takes fewer than the most of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AtLeast {
    /// The tensor cores, for the products of instructions, where the chip's rate is known.
    pub products: Option<f64>,
    /// Its share of what L2 gives to TMA, where that is known. Loads of lanes may hit in L1 and are left out.
    pub l2: Option<f64>,
    /// Shared memory: a wavefront of all banks a cycle, for requests of lanes and for tiles behind descriptors. Whether the reads and
    /// writes of TMA take turns with them is not documented, so they are left out.
    pub shared: f64,
}

impl AtLeast {
    /// Of a kernel.
    pub(super) fn of(kernel: &KernelCost, device: &Device) -> AtLeast {
        let t = &kernel.totals.traffic;
        let all = f64::from(device.multiprocessors.max(1));
        let busy = Busy::of(kernel, device);
        let l2 = t.bulk_load_sectors as f64 * SECTOR as f64;
        AtLeast {
            products: busy.tensor.map(|cycles| cycles / all),
            l2: device.l2_bytes_per_cycle.filter(|_| t.bulk_loads > 0).map(|rate| l2 / rate / all),
            shared: busy.shared / all,
        }
    }
}
