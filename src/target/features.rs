//! The features that chips differ in, each with its lowest chip and PTX ISA version (PTX ISA, "PTX ISA Notes" and
//! "Target ISA Notes" of each instruction).

use bitflags::bitflags;

bitflags! {
    /// A set of features.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// wmma on f16 (16x16x16 from PTX 6.0 on, the other shapes from 6.1 on).
        const WMMA = 1 << 0;
        /// mma.m8n8k4 on f16 (one per quad pair).
        const MMA_QUAD = 1 << 1;
        /// mma.m16n8k8 on f16.
        const MMA_F16 = 1 << 2;
        /// mma on 8-bit and 4-bit integers.
        const MMA_INT = 1 << 3;
        /// ldmatrix.
        const LDMATRIX = 1 << 4;
        /// tanh.approx.f32.
        const TANH = 1 << 5;
        /// mma.m16n8k16 and larger on f16 and 8-bit integers; mma on bf16, tf32 and f64.
        const MMA_AMPERE = 1 << 6;
        /// Conversions between f32 and bf16, and fma on bf16.
        const BF16 = 1 << 7;
        /// cp.async.
        const CP_ASYNC = 1 << 8;
        /// mbarrier objects.
        const MBARRIER = 1 << 9;
        /// createpolicy and L2 eviction hints.
        const L2_HINTS = 1 << 10;
        /// mma.sp.
        const MMA_SPARSE = 1 << 11;
        /// mma on e4m3 and e5m2.
        const MMA_FP8 = 1 << 12;
        /// Conversions to and from e4m3 and e5m2.
        const FP8 = 1 << 13;
        /// add, sub and mul on bf16.
        const BF16_ARITHMETIC = 1 << 14;
        /// Clusters and distributed shared memory.
        const CLUSTER = 1 << 15;
        /// stmatrix.
        const STMATRIX = 1 << 16;
        /// Bulk tensor copies (TMA) and transaction counts.
        const TMA = 1 << 17;
        /// griddepcontrol.
        const GRID_DEPENDENCY = 1 << 18;
        /// wgmma.
        const WGMMA = 1 << 19;
        /// setmaxnreg.
        const SET_REGISTERS = 1 << 20;
        /// movmatrix.
        const MOVMATRIX = 1 << 21;
        /// wmma on 8-bit integers.
        const WMMA_INT = 1 << 22;
        /// wgmma on signed bytes and unsigned ones.
        const WGMMA_MIXED = 1 << 23;
        /// barrier.cluster.arrive.relaxed.
        const RELAXED_BARRIER = 1 << 24;
        /// st.async.
        const STORE_ASYNC = 1 << 25;
        /// mma.sync on f64 of 16 rows.
        const MMA_F64 = 1 << 26;
        /// mma and wmma on single bits, with and.
        const MMA_BITS_AND = 1 << 31;
    }
}

/// A feature: what must be there for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feature {
    /// Its bit.
    pub flag: Features,
    /// Its name in messages.
    pub name: &'static str,
    /// The lowest compute capability, times ten.
    pub sm: u32,
    /// Whether only the architecture-specific variant of that chip has it.
    pub accelerated: bool,
    /// The lowest PTX ISA version, times ten.
    pub ptx: u32,
}

const fn row(flag: Features, name: &'static str, sm: u32, ptx: u32) -> Feature {
    Feature { flag, name, sm, accelerated: false, ptx }
}

const fn accelerated(flag: Features, name: &'static str, sm: u32, ptx: u32) -> Feature {
    Feature { flag, name, sm, accelerated: true, ptx }
}

/// Every feature, by the chip that brought it.
pub const FEATURES: [Feature; 28] = [
    row(Features::WMMA, "wmma", 70, 61),
    row(Features::MMA_QUAD, "mma.m8n8k4", 70, 64),
    row(Features::WMMA_INT, "wmma on integers", 72, 63),
    row(Features::MMA_F16, "mma.m16n8k8 on f16", 75, 65),
    row(Features::MMA_INT, "mma on integers", 75, 65),
    row(Features::LDMATRIX, "ldmatrix", 75, 65),
    row(Features::MOVMATRIX, "movmatrix", 75, 78),
    row(Features::TANH, "tanh.approx", 75, 70),
    row(Features::MMA_AMPERE, "mma of m16n8k16 and on bf16, tf32 and f64", 80, 70),
    row(Features::BF16, "bf16 conversions", 80, 70),
    row(Features::CP_ASYNC, "cp.async", 80, 70),
    row(Features::MBARRIER, "mbarrier", 80, 71),
    row(Features::MMA_BITS_AND, "mma with and on single bits", 80, 71),
    row(Features::L2_HINTS, "L2 eviction hints", 80, 74),
    row(Features::MMA_SPARSE, "mma.sp", 80, 71),
    row(Features::MMA_FP8, "mma on 8-bit floats", 89, 84),
    row(Features::FP8, "8-bit float conversions", 89, 81),
    row(Features::BF16_ARITHMETIC, "bf16 arithmetic", 90, 78),
    row(Features::CLUSTER, "clusters", 90, 78),
    row(Features::RELAXED_BARRIER, "relaxed cluster barriers", 90, 80),
    row(Features::STMATRIX, "stmatrix", 90, 78),
    row(Features::MMA_F64, "mma of m16n8 on f64", 90, 78),
    row(Features::TMA, "bulk tensor copies", 90, 80),
    row(Features::STORE_ASYNC, "st.async", 90, 81),
    row(Features::GRID_DEPENDENCY, "griddepcontrol", 90, 78),
    accelerated(Features::WGMMA, "wgmma", 90, 80),
    accelerated(Features::WGMMA_MIXED, "wgmma on signed and unsigned bytes", 90, 84),
    accelerated(Features::SET_REGISTERS, "setmaxnreg", 90, 80),
];
