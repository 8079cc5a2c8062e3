//! `warploom bench --random N --seed S`: products of random sizes, types and layouts.
//!
//! Extents and layouts are those of [`gemm::random`], types take turns. The same seed gives the same list. With `--edges` the rows are pairs of
//! neighbouring sizes with different tiles, near what was drawn.

use super::data::{self, Place};
use super::subject::BenchArgs;
use super::suite::{self, Entry};
use crate::error::Result;
use crate::gemm;
use crate::target::Target;
use crate::te::GemmSpec;
use std::process::ExitCode;

/// Draws for each product of a pair: not every draw has an edge near it.
const MOST_DRAWS: usize = 8;

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

/// So many products in pairs ([`gemm::edge`]), one for each draw that has an edge; the extents take turns.
fn at_edges(count: usize, (seed, types): (u64, &[String]), target: &Target) -> Result<Vec<Entry>> {
    let mut out = Vec::new();
    for (n, entry) in drawn(MOST_DRAWS * count, seed, types)?.iter().enumerate() {
        if out.len() >= count {
            break;
        }
        for gemm in gemm::edge(&entry.gemm, n / types.len().max(1), target).into_iter().flatten() {
            let GemmSpec { m, n, k, layout, .. } = gemm.spec();
            let words = entry.line.split(' ').next().unwrap_or_default();
            out.push(Entry::parse(&format!("{words} {} {m}x{n}x{k}", layout.name()))?);
        }
    }
    out.truncate(count);
    Ok(out)
}

/// The seed of a type's draws.
fn seed_of(seed: u64, types: &str) -> u64 {
    types.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Draws and measures.
pub fn run(args: &BenchArgs, count: usize) -> Result<ExitCode> {
    let entries = |own: Option<Target>| match args.edges {
        true => at_edges(count, (args.seed, &args.types), &args.target(own, &[])?),
        false => drawn(count, args.seed, &args.types),
    };
    match data::place(args.device.as_deref())? {
        Place::Cpu => suite::on_cpu(args, &entries(None)?),
        #[cfg(feature = "runtime")]
        Place::Gpu(device) => super::drawn::on_gpu(args, &entries(Some(data::chip(device.info())?))?, &device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

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

    #[test]
    fn edges_are_pairs_of_neighbours() {
        let list = at_edges(8, (3, &types(&["f16", "s8"])), &Target::sm_90a()).unwrap();
        assert_eq!(list.len(), 8);
        for pair in list.chunks(2) {
            let [a, b] = [0, 1].map(|n| pair[n].gemm.spec());
            assert_eq!([b.m - a.m, b.n - a.n, b.k - a.k].iter().sum::<i64>(), 1, "{pair:?}");
            assert_eq!((a.a, a.layout), (b.a, b.layout));
        }
    }
}
