//! What each chip can do, as data: limits, features and the lowest PTX ISA version that suffices.
//!
//! A [`Target`] is a row of [`Target::ALL`]. Facts of a [`Device`] (how many multiprocessors) are
//! apart: two devices of one chip compile to the same PTX. PTX asks for the lowest ISA version that a program needs, because
//! a driver refuses every version newer than itself: [`Target::ptx_for`].

mod chips;
pub(crate) mod devices;
mod features;
mod occupancy;
mod rates;
pub(crate) mod runs;

pub use chips::{REGISTERS_PER_SM, REGISTERS_PER_THREAD};
pub use devices::Device;
pub(crate) use devices::GPC;
pub use features::{FEATURES, Feature, Features};
pub use occupancy::{Occupancy, Reason};
pub use rates::operations_per_clock;

use crate::error::{Code, Error, Result};

/// Bytes of a line of the second-level cache, on every chip.
pub const LINE: i64 = 128;
/// Elements of a side of a TMA box at most, on every chip.
pub const BOX_SIDE: i64 = 256;
/// Rows after which the pattern of a swizzle repeats.
pub(crate) const SWIZZLED_ROWS: i64 = 8;
/// TMA boxes at most of a load whose rows may be beyond a dynamic size. Rows of a box beyond the size take long though TMA reads nothing for them: 100x8192x2048
/// NN of bf16 takes 12.2 us on an H200 in boxes of 24 rows, of which 20 lie beyond, 104 rows 11.2, and 112 to 120 rows 10.9 (h200-2026-11-30/rows.jsonl).
const MOST_PIECES: i64 = 16;

/// The rows of each of the boxes of a load of so many rows, some of which may be beyond a dynamic size: the fewest that divide them into
/// few boxes. `None` where only one box has all of them.
pub(crate) fn piece_rows(rows: i64) -> Option<i64> {
    let divides = |piece: &i64| rows % piece == 0 && rows / piece <= MOST_PIECES;
    (1..).map(|n| n * SWIZZLED_ROWS).take_while(|piece| *piece < rows).find(divides)
}

/// Threads of a warp, on every chip.
pub const LANES: i64 = 32;
/// Schedulers of a multiprocessor, each with tensor cores and a quarter of the registers of its own.
pub const SCHEDULERS: i64 = 4;

/// A chip to compile for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// The name that PTX and the tools use, `sm_90a`.
    pub name: &'static str,
    /// Compute capability times ten.
    pub sm: u32,
    /// Whether it is the architecture-specific variant (`a`), whose PTX runs on that chip alone.
    pub accelerated: bool,
    /// The lowest PTX ISA version that knows the chip, times ten.
    pub ptx: u32,
    /// What it can do.
    pub features: Features,
    /// What it has.
    pub limits: Limits,
}

/// The limits of a chip (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Threads of a block.
    pub threads: u32,
    /// Extents of a block in x, y, z.
    pub block_dims: [u32; 3],
    /// Extents of a grid in x, y, z.
    pub grid_dims: [u64; 3],
    /// Bytes of shared memory that a block can use without asking.
    pub shared_static: u32,
    /// Bytes of shared memory that a block can use if the launch asks for it.
    pub shared_optin: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_per_sm: u32,
    /// Bytes of shared memory that the system takes from each block.
    pub shared_reserved: u32,
    /// Shared memory is handed out in multiples of this many bytes.
    pub shared_granularity: u32,
    /// 32-bit registers of a thread.
    pub registers_per_thread: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_sm: u32,
    /// Registers are handed out to warps in multiples of this.
    pub register_granularity: u32,
    /// Threads resident on a multiprocessor.
    pub threads_per_sm: u32,
    /// Blocks resident on a multiprocessor.
    pub blocks_per_sm: u32,
    /// Blocks of a cluster that every launch may ask for; 1 without clusters.
    pub cluster: u32,
    /// Blocks of a cluster that a kernel may have if it says that it needs no other device (and the device has room).
    pub cluster_optin: u32,
}

impl Target {
    /// Every chip, oldest first.
    pub const ALL: [Target; 7] = chips::ALL;

    /// Volta.
    pub const fn sm_70() -> Target {
        chips::SM_70
    }

    /// Turing.
    pub const fn sm_75() -> Target {
        chips::SM_75
    }

    /// Ampere, data centre.
    pub const fn sm_80() -> Target {
        chips::SM_80
    }

    /// Ampere, desktop.
    pub const fn sm_86() -> Target {
        chips::SM_86
    }

    /// Ada.
    pub const fn sm_89() -> Target {
        chips::SM_89
    }

    /// Hopper, portable PTX.
    pub const fn sm_90() -> Target {
        chips::SM_90
    }

    /// Hopper with its own instructions (wgmma, setmaxnreg).
    pub const fn sm_90a() -> Target {
        chips::SM_90A
    }

    /// The chip of that name.
    ///
    /// # Errors
    /// `target.name` if there is none; the message lists those that there are.
    pub fn parse(name: &str) -> Result<Target> {
        if let Some(target) = Target::ALL.into_iter().find(|t| t.name == name) {
            return Ok(target);
        }
        let known = Target::ALL.map(|t| t.name).join(", ");
        let error = Error::input(Code::TargetName, format!("no target is called `{name}`; the targets are {known}"));
        Err(match Target::nearest(name) {
            Some(near) => error.help(near.name),
            None => error,
        })
    }

    /// The newest chip whose PTX a device of that compute capability (times ten) can run.
    pub fn for_device(capability: u32) -> Option<Target> {
        Target::ALL.into_iter().rev().find(|t| t.runs_on(capability))
    }

    /// Whether a device of that compute capability (times ten) runs PTX for the chip.
    pub fn runs_on(&self, capability: u32) -> bool {
        runs::ptx_devices(self.sm, self.accelerated).contains(&capability)
    }

    /// What was probably meant: the same number in another spelling, or the newest chip below that number.
    fn nearest(name: &str) -> Option<Target> {
        let digits: String = name.chars().filter(char::is_ascii_digit).take(4).collect();
        let sm: u32 = digits.parse().ok()?;
        let wants_a = name.ends_with('a');
        let exact = Target::ALL.into_iter().find(|t| t.sm == sm && t.accelerated == wants_a);
        exact.or_else(|| Target::ALL.into_iter().rev().find(|t| t.sm <= sm && !t.accelerated))
    }

    /// Whether it has all of these features.
    pub fn has(&self, features: Features) -> bool {
        self.features.contains(features)
    }

    /// The lowest PTX ISA version (times ten) for a program that uses these features on this chip.
    pub fn ptx_for(&self, used: Features) -> u32 {
        let needed = FEATURES.iter().filter(|f| used.contains(f.flag)).map(|f| f.ptx);
        needed.fold(self.ptx, u32::max)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for target in Target::ALL {
            assert_eq!(Target::parse(target.name).map(|t| t.name), Ok(target.name));
            assert_eq!(target.to_string(), format!("sm_{}{}", target.sm, if target.accelerated { "a" } else { "" }));
        }
    }

    #[test]
    fn an_unknown_name_lists_the_targets_and_the_nearest() {
        let told = |name| Target::parse(name).map_err(|e| (e.message().to_string(), e.helps().to_vec()));
        let list = "the targets are sm_70, sm_75, sm_80, sm_86, sm_89, sm_90, sm_90a";
        assert_eq!(told("sm90a"), Err((format!("no target is called `sm90a`; {list}"), vec!["sm_90a".to_string()])));
        assert_eq!(told("8.7"), Err((format!("no target is called `8.7`; {list}"), vec!["sm_86".to_string()])));
        assert_eq!(told("gpu"), Err((format!("no target is called `gpu`; {list}"), vec![])));
    }

    #[test]
    fn the_ptx_version_rises_with_what_is_used_alone() {
        assert_eq!(Target::sm_75().ptx_for(Features::empty()), 63);
        assert_eq!(Target::sm_75().ptx_for(Features::LDMATRIX), 65);
        assert_eq!(Target::sm_90a().ptx_for(Features::LDMATRIX), 80);
    }

    #[test]
    fn a_device_runs_the_newest_ptx_that_is_not_newer() {
        assert_eq!(Target::for_device(90), Some(Target::sm_90a()));
        assert_eq!(Target::for_device(87), Some(Target::sm_86()));
        assert_eq!(Target::for_device(100), Some(Target::sm_90()));
        assert_eq!(Target::for_device(61), None);
    }

    #[test]
    fn a_chip_has_the_features_whose_lowest_chip_it_reaches() {
        for target in Target::ALL {
            for feature in FEATURES {
                let reached = target.sm >= feature.sm && (target.accelerated || !feature.accelerated);
                assert_eq!(target.has(feature.flag), reached, "{target} {}", feature.name);
            }
        }
    }
}
