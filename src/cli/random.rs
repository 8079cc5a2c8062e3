//! `warploom bench --random N --seed S`: products of random sizes, types and layouts.
//!
//! Extents and layouts are those of [`gemm::random`], types take turns. The same seed gives the same list.

use super::data::{self, Place};
use super::subject::BenchArgs;
use super::suite::{self, Entry};
use crate::error::Result;
use crate::gemm;
use std::process::ExitCode;

/// So many products of these types; a type has its own draws, so that another list of types keeps them.
pub fn drawn(count: usize, seed: u64, types: &[String]) -> Result<Vec<Entry>> {
    let mut rngs: Vec<fastrand::Rng> = types.iter().map(|t| fastrand::Rng::with_seed(seed_of(seed, t))).collect();
    let each = |n: usize| {
        let at = n % types.len().max(1);
        let (layout, [m, n, k]) = gemm::random(&mut rngs[at]);
        Entry::parse(&format!("{} {} {m}x{n}x{k}", types[at], layout.name()))
    };
    (0..count).map(each).collect()
}

/// The seed of a type's draws.
fn seed_of(seed: u64, types: &str) -> u64 {
    types.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Draws and measures.
pub fn run(args: &BenchArgs, count: usize) -> Result<ExitCode> {
    let entries = drawn(count, args.seed, &args.types)?;
    match data::place(args.device.as_deref())? {
        Place::Cpu => suite::on_cpu(args, &entries),
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => super::drawn::on_gpu(args, &entries, &device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::{GemmSpec, Layout};

    fn types(list: &[&str]) -> Vec<String> {
        list.iter().map(|t| t.to_string()).collect()
    }

    #[test]
    fn draws_are_those_of_the_seed_and_within_their_bounds() {
        let all = types(&["f16", "bf16", "f32", "s8"]);
        let list = drawn(400, 7, &all).unwrap();
        assert_eq!(list, drawn(400, 7, &all).unwrap());
        assert_ne!(list, drawn(400, 8, &all).unwrap());
        // Another list of types has the same products of each type.
        let halves = drawn(100, 7, &types(&["f32"])).unwrap();
        assert!(halves.iter().eq(list.iter().skip(2).step_by(4)));
        let specs: Vec<&GemmSpec> = list.iter().map(|e| e.gemm.spec()).collect();
        let extents = || specs.iter().flat_map(|s| [s.m, s.n, s.k]);
        assert!(extents().all(|e| (1..=16384).contains(&e)));
        let even = extents().filter(|e| e % 8 == 0).count();
        assert!((600..1000).contains(&even), "{even} of 1200");
        let operations = |s: &&GemmSpec| 2.0 * (s.m * s.n) as f64 * s.k as f64;
        assert!(specs.iter().map(operations).all(|n| (1e6..=4e12).contains(&n)));
        assert!(Layout::ALL.iter().all(|l| specs.iter().filter(|s| s.layout == *l).count() > 60));
    }
}
