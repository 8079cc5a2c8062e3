//! Figures of devices, apart from the chips that they have. Nothing that compiles a program asks for one: only what recommends,
//! analyses, measures and searches may. No other file holds such a figure.

use super::Target;
use crate::dtype::DType;
use serde::Serialize;

/// Bytes that the L1 cache of a multiprocessor reads in a cycle (NVIDIA, "Volta architecture white paper": 128 bytes; also later chips).
pub const L1_BYTES_PER_CYCLE: f64 = 128.0;
/// Cycles between two dependent instructions of a warp (Jia et al., "Dissecting the NVIDIA Volta GPU architecture via
/// microbenchmarking", table 4.1: 4 for a multiply-add of f32).
pub const DEPENDENT_CYCLES: f64 = 4.0;
/// Cycles from a load of shared memory to its value (same source, table 3.1: 19; later chips 23 to 30).
pub const SHARED_LATENCY_CYCLES: f64 = 25.0;
/// Bytes per cycle from L2 to a multiprocessor of a device whose row has no figure: those of the H200.
const L2_BYTES_PER_CYCLE: f64 = 61.0;

/// A device. A figure is `None` where neither NVIDIA nor a measurement gives it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Compute capability of its chip, times ten.
    pub sm: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Multiply-adds of f32 that a multiprocessor does in a cycle (CUDA C++ Programming Guide, "Arithmetic
    /// Instructions").
    pub lanes: u32,
    /// The same of f64, without tensor cores.
    pub double_lanes: u32,
    /// The same of 32-bit integers.
    pub integer_lanes: u32,
    /// Highest clock of the multiprocessors in MHz.
    pub clock_mhz: u32,
    /// Power limit in watts.
    pub watts: u32,
    /// Bytes of device memory that all multiprocessors together read in a nanosecond (GB/s).
    pub memory_gb_per_s: u32,
    /// Bytes that L1 and the shared memory of a multiprocessor have together (NVIDIA's tuning guides, "Unified Shared Memory/L1/Texture
    /// Cache": Volta 128 KB, Turing 96 KB, Ampere 192 KB on sm_80 and 128 KB on sm_86, Ada 128 KB, Hopper 256 KB).
    pub l1_bytes: u32,
    /// Bytes of L2 (the white paper that the row names).
    pub l2_bytes: u32,
    /// Cycles from a load that L1 answers to its value. NVIDIA publishes no latencies: rows have those of the pointer chases of
    /// github.com/markdewing/AI_kernels, `latency/README.md`, where it has the device or its chip.
    pub l1_latency_cycles: u32,
    /// Cycles from a load that L2 answers to its value (same source).
    pub l2_latency_cycles: u32,
    /// Bytes that L2 gives one multiprocessor in a cycle while all of them read.
    pub l2_bytes_per_cycle: Option<f64>,
    /// Bytes that the shared memory of a multiprocessor reads or writes in a cycle: 32 banks of 4 bytes.
    pub shared_bytes_per_cycle: u32,
    /// Cycles from a load of device memory to its bytes.
    pub memory_latency_cycles: u32,
    /// Cycles from the last block of a kernel to the first of the next kernel in the stream, with the time in which the device is not
    /// full.
    pub launch_cycles: u32,
    /// Clusters of four blocks that run at once where each block has a multiprocessor to itself
    /// (cuOccupancyMaxActiveClusters): fewer than a quarter of the multiprocessors, as no cluster spans two of their groups.
    pub clusters_of_four: Option<u32>,
    /// Whether the figures of this row were confirmed by measurement (benches/results). The others are NVIDIA's.
    pub measured: bool,
}

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// What the rows have in common. The cycles between kernels are an estimate for every device, and so are those of a load: between
/// the 600 of a lone load and the 1500 after which 25 KB in flight on each multiprocessor yield the 4.4 TB/s of an H200. Latencies of L1 and
/// L2 are those of a GH200, which has the chip of the H200; an A100 is between it and a V100.
const COMMON: Device = Device {
    name: "",
    sm: 0,
    multiprocessors: 0,
    lanes: 128,
    double_lanes: 2,
    integer_lanes: 64,
    clock_mhz: 0,
    watts: 0,
    memory_gb_per_s: 0,
    l1_bytes: 128 * KIB,
    l2_bytes: 0,
    l1_latency_cycles: 40,
    l2_latency_cycles: 281,
    l2_bytes_per_cycle: None,
    shared_bytes_per_cycle: 128,
    memory_latency_cycles: 1000,
    launch_cycles: 4000,
    clusters_of_four: None,
    measured: false,
};

/// NVIDIA H200 SXM data sheet: 132 multiprocessors, 1980 MHz, 700 W, 4.8 TB/s; H100 architecture white paper: 50 MB of L2. Measured (benches/results/h200-2026-11-22/limits,
/// ceilings.jsonl): 4.4 TB/s of device memory, 61 bytes a cycle from L2 by TMA (50 to 55 where blocks of a cluster share them).
/// Clusters of four: cuOccupancyMaxActiveClusters.
const H200: Device = Device {
    name: "H200",
    sm: 90,
    multiprocessors: 132,
    double_lanes: 64,
    clock_mhz: 1980,
    watts: 700,
    memory_gb_per_s: 4400,
    l1_bytes: 256 * KIB,
    l2_bytes: 50 * MIB,
    l2_bytes_per_cycle: Some(61.0),
    clusters_of_four: Some(30),
    measured: true,
    ..COMMON
};

/// NVIDIA H100 SXM5 data sheet and architecture white paper: 132 multiprocessors, 1980 MHz, 700 W, 3.35 TB/s. Unmeasured but for
/// cuOccupancyMaxActiveClusters (66, 30 and 15 clusters of 2, 4 and 8 blocks); L2 as on the H200, which has the same chip.
const H100_SXM: Device = Device { name: "H100 SXM", memory_gb_per_s: 3350, measured: false, ..H200 };

/// NVIDIA A100 SXM 80 GB data sheet and architecture white paper: 108 multiprocessors, 1410 MHz, 400 W, 2039 GB/s, 5120 bytes a cycle from
/// L2 to all multiprocessors, 40960 KB of L2. Unmeasured.
const A100_SXM: Device = Device {
    name: "A100",
    sm: 80,
    multiprocessors: 108,
    lanes: 64,
    double_lanes: 32,
    clock_mhz: 1410,
    watts: 400,
    memory_gb_per_s: 2039,
    l1_bytes: 192 * KIB,
    l2_bytes: 40 * MIB,
    l2_bytes_per_cycle: Some(5120.0 / 108.0),
    ..COMMON
};

/// NVIDIA L40S data sheet and Ada architecture white paper: 142 multiprocessors, 2520 MHz, 350 W, 864 GB/s, 98304 KB of L2.
/// Unmeasured.
const L40S: Device = Device {
    name: "L40S",
    sm: 89,
    multiprocessors: 142,
    clock_mhz: 2520,
    watts: 350,
    memory_gb_per_s: 864,
    l2_bytes: 96 * MIB,
    ..COMMON
};

/// NVIDIA Ada architecture white paper: 128 multiprocessors, 2520 MHz, 450 W, 1008 GB/s, 73728 KB of L2. Unmeasured.
const RTX_4090: Device = Device {
    name: "RTX 4090",
    sm: 89,
    multiprocessors: 128,
    clock_mhz: 2520,
    watts: 450,
    memory_gb_per_s: 1008,
    l2_bytes: 72 * MIB,
    l2_latency_cycles: 296,
    ..COMMON
};

/// NVIDIA A40 data sheet and Ampere GA102 architecture white paper: 84 multiprocessors, 1740 MHz, 300 W, 696 GB/s, 6144 KB of L2. Unmeasured.
const A40: Device = Device {
    name: "A40",
    sm: 86,
    multiprocessors: 84,
    clock_mhz: 1740,
    watts: 300,
    memory_gb_per_s: 696,
    l2_bytes: 6 * MIB,
    ..COMMON
};

/// NVIDIA Ampere GA102 architecture white paper: 82 multiprocessors, 1695 MHz, 350 W, 936 GB/s, 6144 KB of L2. Unmeasured.
const RTX_3090: Device = Device {
    name: "RTX 3090",
    sm: 86,
    multiprocessors: 82,
    clock_mhz: 1695,
    watts: 350,
    memory_gb_per_s: 936,
    l2_bytes: 6 * MIB,
    ..COMMON
};

/// NVIDIA T4 data sheet and Turing architecture white paper: 40 multiprocessors, 1590 MHz, 70 W, 320 GB/s, 4096 KB of L2. Latencies
/// of an RTX 2070 (github.com/sjfeng1999/gpu-arch-microbenchmark): the same multiprocessor. Unmeasured.
const T4: Device = Device {
    name: "T4",
    sm: 75,
    multiprocessors: 40,
    lanes: 64,
    clock_mhz: 1590,
    watts: 70,
    memory_gb_per_s: 320,
    l1_bytes: 96 * KIB,
    l2_bytes: 4 * MIB,
    l1_latency_cycles: 32,
    l2_latency_cycles: 236,
    ..COMMON
};

/// NVIDIA V100 SXM2 data sheet and Volta architecture white paper: 80 multiprocessors, 1530 MHz, 300 W, 900 GB/s, 6144 KB of L2.
/// Unmeasured.
const V100: Device = Device {
    name: "V100",
    sm: 70,
    multiprocessors: 80,
    lanes: 64,
    double_lanes: 32,
    clock_mhz: 1530,
    watts: 300,
    memory_gb_per_s: 900,
    l2_bytes: 6 * MIB,
    l1_latency_cycles: 36,
    l2_latency_cycles: 221,
    ..COMMON
};

/// Multiprocessors of a GPC of Hopper, of which some have 18.
pub const GPC: i64 = 16;

impl Device {
    /// Whether a kernel may begin while the one before it in the stream runs (programmatic dependent launch, from compute capability 9.0 on).
    pub fn begins_early(&self) -> bool {
        self.sm >= 90
    }

    /// Bytes that L2 gives one multiprocessor in a cycle while all of them read; an estimate for devices without a figure.
    pub fn l2_rate(&self) -> f64 {
        self.l2_bytes_per_cycle.unwrap_or(L2_BYTES_PER_CYCLE)
    }

    /// Multiprocessors that resident clusters of so many blocks use at most, one block on each. A cluster lies in one GPC, of which 16
    /// multiprocessors are counted.
    pub fn multiprocessors_in_clusters(&self, blocks: i64) -> i64 {
        let all = i64::from(self.multiprocessors);
        let Some(of_four) = self.clusters_of_four.filter(|_| blocks > 2) else { return all / blocks * blocks };
        let (usable, whole) = (4 * i64::from(of_four), |n: i64| n / blocks * blocks);
        usable / GPC * whole(GPC) + whole(usable % GPC)
    }

    /// Every device; of each chip first the one that recommendations are made for.
    pub const ALL: [Device; 9] = [V100, T4, A100_SXM, A40, RTX_3090, L40S, RTX_4090, H200, H100_SXM];

    /// Operations that a multiprocessor does in a cycle with products of these types.
    pub fn operations_per_clock(&self, factor: DType, sum: DType) -> Option<f64> {
        super::operations_per_clock((self.sm / 10, self.sm % 10), factor, sum)
    }

    /// Bytes of device memory that all multiprocessors together read in a cycle.
    pub fn memory_bytes_per_cycle(&self) -> f64 {
        f64::from(self.memory_gb_per_s) * 1e3 / f64::from(self.clock_mhz)
    }
}

impl Target {
    /// The device that recommendations and cost reports for the chip are made for.
    pub fn device(&self) -> Device {
        Device::ALL.into_iter().find(|d| d.sm == self.sm).unwrap_or(H200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cuOccupancyMaxActiveClusters of an H100: 66, 30 and 15.
    #[test]
    fn clusters_leave_multiprocessors_idle() {
        let used = [1, 2, 4, 8].map(|blocks| H100_SXM.multiprocessors_in_clusters(blocks));
        assert_eq!(used, [132, 2 * 66, 4 * 30, 8 * 15]);
        assert_eq!(A100_SXM.multiprocessors_in_clusters(1), 108);
    }

    #[test]
    fn every_chip_has_a_device() {
        for target in Target::ALL {
            assert_eq!(target.device().sm, target.sm);
        }
        assert_eq!(Target::sm_90a().device().multiprocessors, 132);
        assert_eq!(Target::sm_80().device().name, "A100");
    }

    #[test]
    fn rows_are_whole_and_only_the_h200_is_measured() {
        for device in Device::ALL {
            let figures =
                [device.multiprocessors, device.clock_mhz, device.watts, device.memory_gb_per_s, device.l2_bytes];
            assert!(figures.iter().all(|f| *f > 0), "{device:?}");
            let [l1, l2] = [device.l1_latency_cycles, device.l2_latency_cycles];
            let is_ordered = SHARED_LATENCY_CYCLES < l1.into() && l1 < l2 && l2 < device.memory_latency_cycles;
            assert!(is_ordered && device.l1_bytes < device.l2_bytes, "{device:?}");
            assert_eq!(device.measured, device.name == "H200", "{device:?}");
            assert!(Target::ALL.iter().any(|t| t.sm == device.sm), "{device:?}");
        }
        let names: std::collections::BTreeSet<_> = Device::ALL.iter().map(|d| d.name).collect();
        assert_eq!(names.len(), Device::ALL.len());
        // 4.4 TB/s at 1.98 GHz.
        assert_eq!(Target::sm_90().device().memory_bytes_per_cycle().round(), 2222.0);
    }
}
