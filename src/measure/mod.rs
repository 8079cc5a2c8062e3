//! Measuring: ours and the vendor's library in one process on one device, in paired blocks, after a check.
//!
//! What is promised here (the reasons are in [`Bench`]):
//! - Nothing is timed before its result was checked; the library's counterpart is checked the same way.
//! - Times are compared, never quoted alone: ABBA blocks, the median of the paired ratios, and the noise that the same
//!   pairs show between ours and ours.
//! - Before every sample the L2 cache is made cold by *reading* a large buffer, the same way for all rows; where
//!   nothing can read, buffers are rotated beyond twice its size.
//! - The library is cuBLASLt by its heuristic's first choice, for f32 and f64 cuBLAS; what else it has is tried briefly, and
//!   named where it is faster.
//! - Libraries (cuBLAS, NVML) are looked up at run time; without them there are times but no ratios or clocks.
//!
//! `unsafe` is used in `library/` alone.

mod bench;
mod check;
mod cold;
mod floor;
mod launch;
mod library;
mod peer;
mod row;
mod timer;

pub use bench::{Bench, Beside, InTurn, Job, TimeBudget, Timed};
pub use check::{check, run_once};
pub use cold::Cold;
pub use floor::{floor_us, nothing};
#[cfg(feature = "cli")]
pub(crate) use launch::zeroed;
pub use launch::{LaunchPath, LaunchRow, Launches};
pub use library::cublas::Cublas;
pub use library::nvml::{Nvml, Reading};
pub use row::{Alone, Best, Row};
