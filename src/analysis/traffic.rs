//! Sums over a launch: requests, what they cost, instructions.

use super::report::{AccessCost, Cost};
use serde::Serialize;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestKind {
    /// Shared memory; else device memory.
    pub shared: bool,
    /// Whether it stores.
    pub write: bool,
    /// Whether it is half of an asynchronous copy.
    pub asynchronous: bool,
}

/// Requests of warps, what they cost, and instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
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
    /// Instructions of warps on the tensor cores; a product of a warpgroup is one of each of its warps.
    pub tensor_instructions: u64,
    /// Bulk copies into shared memory; a multicast is one.
    pub bulk_loads: u64,
    /// Bytes that they read of device memory.
    pub bulk_load_bytes: u64,
    /// Sectors that hold those.
    pub bulk_load_sectors: u64,
    /// Lines of 128 bytes that hold those, for each row of a box.
    pub bulk_load_lines: u64,
    /// Bytes that they write in shared memory, those of a multicast in each block.
    pub bulk_landed_bytes: u64,
    /// Bulk copies out of shared memory.
    pub bulk_stores: u64,
    /// Bytes that they write.
    pub bulk_store_bytes: u64,
    /// Sectors that hold those.
    pub bulk_store_sectors: u64,
    /// Lines of 128 bytes that hold those, for each row of a box.
    pub bulk_store_lines: u64,
    /// Bytes of shared memory that products read behind descriptors: each tile once for a warpgroup.
    pub descriptor_bytes: u64,
}

impl Traffic {
    /// Adds requests that cost so much together. An asynchronous copy is a load and a store; it counts as a request by its
    /// store.
    pub fn request(&mut self, kind: RequestKind, number: u64, cost: u64) {
        match kind {
            RequestKind { asynchronous: false, .. } => {}
            RequestKind { write: true, .. } => {
                self.copy_requests = self.copy_requests.saturating_add(number);
                self.copy_wavefronts = self.copy_wavefronts.saturating_add(cost);
            }
            RequestKind { write: false, .. } => self.copy_sectors = self.copy_sectors.saturating_add(cost),
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

    /// Adds what TMA or a product does on one side.
    pub fn engine(&mut self, described: bool, write: bool, access: &AccessCost) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        match access.cost {
            Cost::Engine { bytes } if described => add(&mut self.descriptor_bytes, bytes),
            Cost::Engine { bytes } if write => add(&mut self.bulk_landed_bytes, bytes),
            Cost::Box { bytes, sectors, lines, .. } if write => {
                add(&mut self.bulk_stores, access.requests);
                add(&mut self.bulk_store_bytes, bytes);
                add(&mut self.bulk_store_sectors, sectors);
                add(&mut self.bulk_store_lines, lines);
            }
            Cost::Box { bytes, sectors, lines, .. } => {
                add(&mut self.bulk_loads, access.requests);
                add(&mut self.bulk_load_bytes, bytes);
                add(&mut self.bulk_load_sectors, sectors);
                add(&mut self.bulk_load_lines, lines);
            }
            // A bulk store reads in shared memory what it writes in device memory.
            Cost::Engine { .. } | Cost::Shared { .. } | Cost::Global { .. } => {}
        }
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
            (&mut self.tensor_instructions, other.tensor_instructions),
            (&mut self.bulk_loads, other.bulk_loads),
            (&mut self.bulk_load_bytes, other.bulk_load_bytes),
            (&mut self.bulk_load_sectors, other.bulk_load_sectors),
            (&mut self.bulk_load_lines, other.bulk_load_lines),
            (&mut self.bulk_landed_bytes, other.bulk_landed_bytes),
            (&mut self.bulk_stores, other.bulk_stores),
            (&mut self.bulk_store_bytes, other.bulk_store_bytes),
            (&mut self.bulk_store_sectors, other.bulk_store_sectors),
            (&mut self.bulk_store_lines, other.bulk_store_lines),
            (&mut self.descriptor_bytes, other.descriptor_bytes),
        ];
        for (sum, n) in pairs {
            *sum = sum.saturating_add(n.saturating_mul(times));
        }
    }

    /// So many operations for each byte that crosses between device memory and the multiprocessors.
    pub fn per_global_byte(&self, operations: u64) -> Option<f64> {
        let of = [self.global_load_sectors, self.global_store_sectors, self.bulk_load_sectors, self.bulk_store_sectors];
        let sectors = of.into_iter().fold(0, u64::saturating_add);
        (sectors > 0).then(|| operations as f64 / (sectors as f64 * super::request::SECTOR as f64))
    }

    /// Fused multiply-adds as a share of the instructions.
    pub fn fma_share(&self) -> Option<f64> {
        (self.instructions > 0).then(|| self.fma_instructions as f64 / self.instructions as f64)
    }
}
