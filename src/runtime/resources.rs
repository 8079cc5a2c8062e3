//! What a kernel takes of the device: registers, memory, and how many blocks run at once.

use super::device::{Device, DeviceInfo};
use super::driver::{self, api, api::CUfunction};
use crate::error::{Code, Error, Result};
use crate::kernel::Kernel;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ffi::c_int;

/// The figures of one kernel as compiled for the device at hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resources {
    /// The entry's name.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: spilled registers or a stack frame. Good code has none.
    pub local_bytes: u32,
    /// Shared memory of a block in bytes, static and dynamic.
    pub shared_bytes: u32,
    /// Threads that a block may have at most with these registers.
    pub max_threads: u32,
    /// Threads of a block as launched.
    pub threads: u32,
    /// Blocks that a multiprocessor holds at once.
    pub blocks_per_multiprocessor: u32,
    /// Resident threads over those that the multiprocessor can hold, 0 to 1.
    pub occupancy: f64,
    /// Clusters that the device holds at once; none for a kernel without clusters.
    pub clusters: Option<u32>,
    /// The architecture that it was compiled for: 90.
    pub binary_version: u32,
}

impl Resources {
    pub(super) fn query(device: &Device, function: CUfunction, kernel: &Kernel) -> Result<Resources> {
        let get = |attribute: api::function::Attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: writes one int; the function lives as long as its module.
            let ask = || unsafe { api::cuFuncGetAttribute(&mut value, attribute, function) };
            device.inner.call("asking for a kernel's resources", ask)?;
            let odd = |_| {
                Error::bug(Code::DriverMade, format!("asking for a kernel's resources: the driver answers {value}"))
            };
            u32::try_from(value).map_err(odd)
        };
        let threads: u32 = kernel.block.iter().product();
        let max_threads = get(api::function::MAX_THREADS_PER_BLOCK)?;
        if threads > max_threads {
            let message = format!(
                "kernel {} is launched with {threads} threads a block, and as compiled it may have {}",
                kernel.entry, max_threads
            );
            return Err(
                Error::chip(Code::LaunchThreads, message).help("use fewer threads a block, or smaller register tiles")
            );
        }
        let blocks = blocks_per_multiprocessor(device, function, kernel)?;
        let resident = device.info().threads_per_multiprocessor.max(1);
        Ok(Resources {
            entry: kernel.entry.clone(),
            registers: get(api::function::NUM_REGS)?,
            local_bytes: get(api::function::LOCAL_SIZE_BYTES)?,
            shared_bytes: get(api::function::SHARED_SIZE_BYTES)?.saturating_add(kernel.shared_bytes),
            max_threads,
            threads,
            blocks_per_multiprocessor: blocks,
            occupancy: f64::from(blocks) * f64::from(threads) / f64::from(resident),
            clusters: clusters(device, function, kernel)?,
            binary_version: get(api::function::BINARY_VERSION)?,
        })
    }
}

/// The blocks to launch in x, y, z: of a persistent kernel as many as the device holds at once, and no more than have
/// something to do.
pub(super) fn launched(kernel: &Kernel, whole: [u32; 3], resources: &Resources, multiprocessors: u32) -> [u32; 3] {
    let [x, y, z] = whole;
    if !kernel.persistent {
        return [x, y, z];
    }
    let clusters = resources.clusters.map(|n| n.saturating_mul(kernel.cluster[0]));
    let resident = clusters.unwrap_or(resources.blocks_per_multiprocessor.saturating_mul(multiprocessors));
    [x.min(resident), y, z]
}

fn blocks_per_multiprocessor(device: &Device, function: CUfunction, kernel: &Kernel) -> Result<u32> {
    let threads: u32 = kernel.block.iter().product();
    let mut blocks = 0;
    // SAFETY: writes one int.
    device.inner.call("asking for a kernel's occupancy", || unsafe {
        let shared = kernel.shared_bytes as usize;
        api::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, threads as c_int, shared)
    })?;
    if blocks < 1 {
        let message = format!("not one block of kernel {} fits on a multiprocessor", kernel.entry);
        return Err(
            Error::chip(Code::LaunchFit, message).help("use smaller tiles, fewer stages or fewer threads a block")
        );
    }
    Ok(blocks.unsigned_abs())
}

fn clusters(device: &Device, function: CUfunction, kernel: &Kernel) -> Result<Option<u32>> {
    if kernel.cluster == [1, 1, 1] {
        return Ok(None);
    }
    let driver = driver::driver()?;
    // SAFETY: the type is the entry point's prototype.
    let ask = unsafe { driver.late::<api::MaxActiveClusters>("cuOccupancyMaxActiveClusters", "11.8")? };
    let mut attributes = launch_attributes(kernel);
    let config = launch_config(kernel, kernel.grid, std::ptr::null_mut(), &mut attributes);
    let mut count = 0;
    // SAFETY: writes one int; the configuration and its attributes outlive the call.
    let run = || unsafe { ask(&mut count, function, &config) };
    device.inner.call("asking how many clusters fit", run)?;
    if count < 1 {
        let message = format!("not one cluster {:?} of kernel {} fits on the device", kernel.cluster, kernel.entry);
        return Err(Error::chip(Code::LaunchFit, message).help("use a smaller cluster or smaller tiles"));
    }
    Ok(u32::try_from(count).ok())
}

/// What a launch says of a kernel besides its extents: its cluster, and that it may begin early.
pub(super) fn launch_attributes(kernel: &Kernel) -> SmallVec<[api::LaunchAttribute; 2]> {
    let clusters = kernel.cluster != [1, 1, 1];
    let cluster = clusters.then(|| api::LaunchAttribute::new(api::LAUNCH_CLUSTER_DIMENSION, kernel.cluster));
    let early = kernel.early.then(|| api::LaunchAttribute::new(api::LAUNCH_PROGRAMMATIC_SERIALIZATION, [1]));
    cluster.into_iter().chain(early).collect()
}

/// A launch with these attributes, which must outlive the configuration.
pub(super) fn launch_config(
    kernel: &Kernel,
    grid: [u32; 3],
    stream: api::CUstream,
    attributes: &mut [api::LaunchAttribute],
) -> api::LaunchConfig {
    api::LaunchConfig {
        grid,
        block: kernel.block,
        shared_bytes: kernel.shared_bytes,
        stream,
        attribute_count: attributes.len() as u32,
        attributes: attributes.as_mut_ptr(),
    }
}

/// The limits of the device that hold whatever the code is.
pub(super) fn check_limits(kernel: &Kernel, device: &DeviceInfo) -> Result<()> {
    if kernel.shared_bytes > device.shared_per_block {
        let message = format!(
            "kernel {} needs {} bytes of shared memory a block, and {} gives at most {}",
            kernel.entry, kernel.shared_bytes, device.name, device.shared_per_block
        );
        return Err(Error::chip(Code::LaunchShared, message).help("use smaller tiles or fewer stages"));
    }
    if kernel.cluster != [1, 1, 1] && !device.clusters {
        let message = format!("kernel {} runs in clusters of blocks, which {} lacks", kernel.entry, device.name);
        return Err(Error::chip(Code::LaunchCluster, message).help("remove the cluster axis from the schedule"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        let entry = "main".to_string();
        let (grid, block, cluster) = ([4, 2, 1], [32, 4, 1], [2, 1, 1]);
        Kernel { cluster, shared_bytes: 60000, ..Kernel::new(entry, vec![], grid, block) }
    }

    fn device() -> DeviceInfo {
        let name = "a device".to_string();
        DeviceInfo {
            ordinal: 0,
            name,
            pci_bus: String::new(),
            capability: (8, 0),
            multiprocessors: 1,
            memory_bytes: 0,
            clock_khz: 0,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
            l2_bytes: 0,
            threads_per_multiprocessor: 2048,
            registers_per_multiprocessor: 65536,
            shared_per_multiprocessor: 167936,
            shared_per_block: 49152,
            clusters: false,
            driver_version: 12000,
        }
    }

    #[test]
    fn limits_are_told_with_both_numbers() {
        let error = check_limits(&kernel(), &device()).unwrap_err();
        assert_eq!(
            error.message(),
            "kernel main needs 60000 bytes of shared memory a block, and a device gives at most 49152"
        );
        let small = Kernel { shared_bytes: 49152, ..kernel() };
        assert_eq!(check_limits(&small, &device()).unwrap_err().code(), Code::LaunchCluster);
        assert_eq!(check_limits(&small, &DeviceInfo { clusters: true, ..device() }), Ok(()));
        assert_eq!(check_limits(&Kernel { cluster: [1, 1, 1], ..small }, &device()), Ok(()));
    }

    #[test]
    fn a_persistent_kernel_has_as_many_blocks_as_the_device_holds() {
        let resources = |clusters| Resources {
            entry: "main".to_string(),
            registers: 32,
            local_bytes: 0,
            shared_bytes: 0,
            max_threads: 1024,
            threads: 128,
            blocks_per_multiprocessor: 2,
            occupancy: 0.1,
            clusters,
            binary_version: 90,
        };
        let of = |tiles: u32, persistent| Kernel { grid: [tiles, 1, 1], persistent, ..kernel() };
        assert_eq!(launched(&of(1000, false), [1000, 1, 1], &resources(None), 132), [1000, 1, 1]);
        assert_eq!(launched(&of(1000, true), [1000, 1, 1], &resources(None), 132), [264, 1, 1]);
        assert_eq!(launched(&of(100, true), [100, 1, 1], &resources(None), 132), [100, 1, 1]);
        // Some multiprocessors are left over where their number is no multiple of a cluster's.
        assert_eq!(launched(&of(1000, true), [1000, 1, 1], &resources(Some(64)), 132), [128, 1, 1]);
    }

    #[test]
    fn attributes_are_packed_as_the_driver_reads_them() {
        let plain = Kernel { cluster: [1, 1, 1], ..kernel() };
        assert!(launch_attributes(&plain).is_empty());
        let mut attributes = launch_attributes(&Kernel { early: true, ..kernel() });
        let packed: Vec<(u32, [u32; 3])> =
            attributes.iter().map(|a| (a.id, [a.value[0], a.value[1], a.value[2]])).collect();
        assert_eq!(packed, [(4, [2, 1, 1]), (6, [1, 0, 0])]);
        let config = launch_config(&kernel(), kernel().grid, std::ptr::null_mut(), &mut attributes);
        assert_eq!((config.grid, config.block), ([4, 2, 1], [32, 4, 1]));
        assert_eq!((config.shared_bytes, config.attribute_count), (60000, 2));
        assert!(std::ptr::eq(config.attributes, attributes.as_ptr()));
        assert_eq!(launch_attributes(&Kernel { early: true, ..plain }).len(), 1);
    }
}
