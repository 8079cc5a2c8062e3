//! Devices, apart from the chips that they have. Nothing that compiles a program asks for one: only what recommends,
//! analyses, measures and searches may.

use super::Target;
use crate::dtype::DType;
use serde::Serialize;

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Compute capability of its chip, times ten.
    pub sm: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Multiply-adds of f32 that a multiprocessor does in a clock (CUDA C++ Programming Guide, "Arithmetic
    /// Instructions").
    pub lanes: u32,
    /// Bytes that the second-level cache gives all multiprocessors together in a clock, at most, where that was measured.
    pub l2_bytes: Option<u32>,
    /// Clusters of four blocks that run at once where each block has a multiprocessor to itself, where that was measured
    /// (cuOccupancyMaxActiveClusters): fewer than a quarter of the multiprocessors, as no cluster spans two of their groups.
    pub clusters_of_four: Option<u32>,
}

/// One device for each chip, by NVIDIA's data sheets; what Hopper's second-level cache gives by Luo et al., "Benchmarking and
/// Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (arXiv 2402.13499: 4000 to 4500 bytes).
const DEVICES: [Device; 6] = [
    Device { name: "V100", sm: 70, multiprocessors: 80, lanes: 64, l2_bytes: None, clusters_of_four: None },
    Device { name: "T4", sm: 75, multiprocessors: 40, lanes: 64, l2_bytes: None, clusters_of_four: None },
    Device { name: "A100", sm: 80, multiprocessors: 108, lanes: 64, l2_bytes: None, clusters_of_four: None },
    Device { name: "A40", sm: 86, multiprocessors: 84, lanes: 128, l2_bytes: None, clusters_of_four: None },
    Device { name: "L40S", sm: 89, multiprocessors: 142, lanes: 128, l2_bytes: None, clusters_of_four: None },
    Device { name: "H200", sm: 90, multiprocessors: 132, lanes: 128, l2_bytes: Some(4500), clusters_of_four: Some(30) },
];

impl Device {
    /// Operations that a multiprocessor does in a clock with products of these types.
    pub fn operations_per_clock(&self, factor: DType, sum: DType) -> Option<f64> {
        super::operations_per_clock((self.sm / 10, self.sm % 10), factor, sum)
    }
}

impl Target {
    /// The device that recommendations and cost reports for the chip are made for.
    pub fn device(&self) -> Device {
        let [.., newest] = DEVICES;
        DEVICES.into_iter().find(|d| d.sm == self.sm).unwrap_or(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chip_has_a_device() {
        for target in Target::ALL {
            assert_eq!(target.device().sm, target.sm);
        }
        assert_eq!(Target::sm_90a().device().multiprocessors, 132);
    }
}
