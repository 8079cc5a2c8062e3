//! One row of facts per chip.

use super::{FEATURES, Features, Limits, Target};

const KIB: u32 = 1024;

/// The 32-bit registers that a thread can have on every chip here (CUDA C++ Programming Guide, "Compute Capabilities").
pub const REGISTERS_PER_THREAD: u32 = 255;

/// The 32-bit registers of a multiprocessor of every chip here (the same table).
pub const REGISTERS_PER_SM: u32 = 65536;

/// What all chips here have in common.
const COMMON: Limits = Limits {
    threads: 1024,
    block_dims: [1024, 1024, 64],
    grid_dims: [(1 << 31) - 1, 65535, 65535],
    shared_static: 48 * KIB,
    shared_optin: 0,
    shared_per_sm: 0,
    shared_reserved: KIB,
    shared_granularity: 128,
    registers_per_thread: REGISTERS_PER_THREAD,
    registers_per_sm: REGISTERS_PER_SM,
    register_granularity: 256,
    threads_per_sm: 2048,
    blocks_per_sm: 32,
    cluster: 1,
    cluster_optin: 1,
};

const fn chip(name: &'static str, sm: u32, ptx: u32, limits: Limits) -> Target {
    Target { name, sm, accelerated: false, ptx, features: features(sm, false), limits }
}

/// The features whose lowest chip is reached.
const fn features(sm: u32, accelerated: bool) -> Features {
    let mut bits = 0;
    let mut i = 0;
    while i < FEATURES.len() {
        if FEATURES[i].sm <= sm && (accelerated || !FEATURES[i].accelerated) {
            bits |= FEATURES[i].flag.bits();
        }
        i += 1;
    }
    Features::from_bits_truncate(bits)
}

/// Before sm_80 the system reserved no shared memory, and it was handed out more coarsely.
const EARLY: Limits = Limits { shared_reserved: 0, shared_granularity: 256, ..COMMON };

pub(super) const SM_70: Target =
    chip("sm_70", 70, 60, Limits { shared_optin: 96 * KIB, shared_per_sm: 96 * KIB, ..EARLY });

pub(super) const SM_75: Target = chip(
    "sm_75",
    75,
    63,
    Limits { shared_optin: 64 * KIB, shared_per_sm: 64 * KIB, threads_per_sm: 1024, blocks_per_sm: 16, ..EARLY },
);

pub(super) const SM_80: Target =
    chip("sm_80", 80, 70, Limits { shared_optin: 163 * KIB, shared_per_sm: 164 * KIB, ..COMMON });

pub(super) const SM_86: Target = chip(
    "sm_86",
    86,
    71,
    Limits { shared_optin: 99 * KIB, shared_per_sm: 100 * KIB, threads_per_sm: 1536, blocks_per_sm: 16, ..COMMON },
);

pub(super) const SM_89: Target = chip(
    "sm_89",
    89,
    78,
    Limits { shared_optin: 99 * KIB, shared_per_sm: 100 * KIB, threads_per_sm: 1536, blocks_per_sm: 24, ..COMMON },
);

pub(super) const SM_90: Target = chip(
    "sm_90",
    90,
    78,
    Limits { shared_optin: 227 * KIB, shared_per_sm: 228 * KIB, cluster: 8, cluster_optin: 16, ..COMMON },
);

pub(super) const SM_90A: Target =
    Target { name: "sm_90a", accelerated: true, ptx: 80, features: features(90, true), ..SM_90 };

pub(super) const ALL: [Target; 7] = [SM_70, SM_75, SM_80, SM_86, SM_89, SM_90, SM_90A];
