//! GEMMs with too few tiles to fill a device: warps or blocks divide the sum over k of a tile.
//!
//! *Slices* (sliced-K): groups of warps of a block alternate along k, each with the whole tile in its registers; the block adds their
//! tiles in shared memory. *Parts* (split-K): blocks sum over parts of k into a workspace, and a second kernel adds the parts.
//! Both add in one fixed order. Slices keep a multiprocessor busy whose block has a small tile,
//! parts give work to multiprocessors that have none.

use super::staging::{divide_among_threads, present};
use super::tiles;
use super::tuning;
use super::warp_tiles::{WIDE, WarpTiles};
use super::work::{Passes, Work, cycles};
use crate::dtype::DType;
use crate::ir::{Axis, Scope};
use crate::schedule::Steps;
use crate::target::{Device, Target};
use crate::te::GemmSpec;

/// How the sum over k of a tile is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Parts of k, each summed by a block of its own (split-K).
    pub parts: i64,
    /// Groups of warps of a block that alternate along k (sliced-K).
    pub slices: i64,
}

/// Threads of a block that adds up parts.
const COMBINING: i64 = 128;

impl Split {
    /// Each thread sums over all of k.
    pub const NONE: Split = Split { parts: 1, slices: 1 };

    /// The block whose accumulators are in registers.
    pub(super) fn sums(&self) -> &'static str {
        if self.slices > 1 { "slices" } else { self.whole() }
    }

    /// The block that has the accumulators of a kernel's tile.
    fn whole(&self) -> &'static str {
        if self.parts > 1 { "parts" } else { "C" }
    }

    /// Makes the loops k0 and k1 of the accumulators, and those of the split.
    pub(super) fn cut(&self, s: &mut Steps, bk: i64) {
        split_k(s, self.parts);
        if self.slices == 1 {
            s.split("k", [bk], ["k0", "k1"]);
            return;
        }
        s.split("k", [self.slices, bk], ["k0", "ks", "k1"]);
        let own = if self.parts > 1 { "tp" } else { "" };
        s.rfactor(self.whole(), "ks")
            .made(present(["slices", own, "ti", "tj", "ts"]))
            .set_scope("slices", Scope::Shared);
    }

    /// The loop over parts, before those of a tile; empty without.
    pub(super) fn part(&self) -> &'static str {
        if self.parts > 1 { "part" } else { "" }
    }

    /// The loop over slices, and that of their copies; empty without.
    pub(super) fn slice(&self) -> [&'static str; 2] {
        if self.slices > 1 { ["ks", "us"] } else { ["", ""] }
    }

    /// The dimensions of the accumulators before rows and columns.
    pub(super) fn dims(&self) -> &'static [&'static str] {
        match (self.slices > 1, self.parts > 1) {
            (false, false) => &[],
            (true, true) => &["s", "p"],
            _ => &["s"],
        }
    }

    /// Adds up slices under the loop `inner` over blocks, and parts in a kernel of their own, in vectors of `wide` elements.
    pub(super) fn combine(&self, s: &mut Steps, tile: [i64; 2], threads: i64, wide: i64, inner: &str) {
        if self.slices > 1 {
            let (whole, own) = (self.whole(), if self.parts > 1 { "xp" } else { "" });
            let vector = wide.min((tile[0] * tile[1] / threads).max(1));
            combine_slices(s, [whole, whole, &format!("{whole}_s")], inner, own, [threads, vector]);
        }
        if self.parts > 1 {
            s.cache_write("C", "C", Scope::Local, "C_l");
            divide_among_threads(s, ["ci", "cj"], "cf", COMBINING, wide, ["c0", "c1", "cv"].map(str::to_string));
            s.reorder(["cp", "cv"]).bind("c0", Axis::BlockX).bind("c1", Axis::ThreadX);
            s.reverse_compute_at("C_l", "c1").made(["di", "dj"]).vectorize("dj").vectorize("cv").unroll("cp");
        }
    }
}

/// Divides k among so many blocks (split-K), whose accumulators are block `parts`.
pub(super) fn split_k(s: &mut Steps, parts: i64) {
    if parts > 1 {
        s.split_k("k", parts).made(["parts", "part", "ci", "cj", "cp"]).bind("part", Axis::BlockZ);
    }
}

/// Adds up the slices of a tile under the loop `inner` over blocks: block `whole` sums in registers (`copy`) and writes `written`. `own`
/// is the loop over the dimension of parts, or empty.
pub(super) fn combine_slices(
    s: &mut Steps,
    [whole, written, copy]: [&str; 3],
    inner: &str,
    own: &str,
    [threads, vector]: [i64; 2],
) {
    s.cache_write(whole, written, Scope::Local, copy).reverse_compute_at(whole, inner).made(["xi", "xj"]);
    divide_among_threads(s, ["xi", "xj"], "xf", threads, vector, ["x0", "x1", "xv"].map(str::to_string));
    s.reorder(["ts", "xv"]).bind("x1", Axis::ThreadX);
    s.reverse_compute_at(copy, "x1").made(present([own, "yi", "yj"])).vectorize("yj").vectorize("xv").unroll("ts");
}

/// Numbers of warps of a block.
const WARPS: [i64; 4] = [8, 4, 2, 1];
/// The numbers of slices.
const SLICES: [i64; 5] = [1, 2, 4, 8, 16];
/// The numbers of parts.
const PARTS: [i64; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];
/// Tiles of 128 x 128 for each multiprocessor from which on waves are full enough anyway.
const MANY: i64 = 4;

/// The cheapest tiles for a product of f32 that has few, with what the model takes them to cost; `None` where it has many or none
/// fit.
pub fn choose(spec: &GemmSpec, target: &Target) -> Option<(f64, WarpTiles)> {
    let f32_alone = [spec.a, spec.b, spec.acc, spec.out].iter().all(|d| *d == DType::F32);
    let tiles = u64::try_from(spec.m).ok()?.div_ceil(128) * u64::try_from(spec.n).ok()?.div_ceil(128);
    let device = target.device();
    if !f32_alone || tiles >= (MANY as u64) * u64::from(device.multiprocessors) {
        return None;
    }
    let mut best: Option<(f64, WarpTiles)> = None;
    let tile = WarpTiles { warps: [1, 1], ..WIDE }.block();
    let warps: Vec<_> = WARPS.into_iter().flat_map(|warps| tiles::arrangements(warps, tile)).collect();
    let splits = PARTS.iter().flat_map(|parts| SLICES.map(|slices| Split { parts: *parts, slices }));
    for split in splits {
        for warps in &warps {
            let Some(tiles) = candidate(spec, *warps, split) else { continue };
            let Some(work) = work(spec, &tiles, target, &device) else { continue };
            let cycles = cycles(&work, &device);
            if best.is_none_or(|(least, _)| cycles < least) {
                best = Some((cycles, tiles));
            }
        }
    }
    best.map(|(cycles, tiles)| (cycles, tiles.fitted(spec)))
}

/// Tiles of 8 x 8 elements a thread, where they divide the product.
fn candidate(spec: &GemmSpec, warps: [i64; 2], split: Split) -> Option<WarpTiles> {
    let mut tiles = WarpTiles { warps, min_blocks: None, split, ..WIDE };
    tiles.bk = match (tiles.threads(), split.slices) {
        (..=64, 1) => 16,
        (_, ..=8) => 8,
        _ => 4,
    };
    // Two such blocks fit if each thread makes do with 128 registers, of which it wants a few more.
    tiles.min_blocks = (tiles.threads() == 256).then_some(2);
    let ([bm, bn], bk) = (tiles.block(), tiles.bk * split.slices * split.parts);
    let divide = spec.m % bm == 0 && spec.n % bn == 0 && spec.k % bk == 0;
    (divide && (64..=512).contains(&tiles.threads())).then_some(tiles)
}

/// What the GEMM asks of the device in these tiles; `None` where a block does not fit or half of the device has nothing to do.
fn work(spec: &GemmSpec, tiles: &WarpTiles, target: &Target, device: &Device) -> Option<Work> {
    let Split { parts, slices } = tiles.split;
    let ([bm, bn], threads) = (tiles.block(), tiles.threads());
    let blocks = (spec.m / bm) * (spec.n / bn) * parts;
    if blocks * 2 < i64::from(device.multiprocessors) {
        return None;
    }
    let slots = 2 * (bm + bn) * tiles.bk * slices;
    let gathered = if slices > 1 { slices * bm * bn } else { 0 };
    let shared = u32::try_from(4 * slots.max(gathered)).ok()?;
    // Besides 64 accumulators a thread has 16 operands, what it loads ahead, and addresses.
    let registers = if threads >= 256 { 128 } else { 160 };
    let resident = i64::from(target.occupancy(u32::try_from(threads).ok()?, registers, shared).blocks);
    if resident == 0 {
        return None;
    }
    let fetch = 1.0 + tuning::SIMT_FETCH * ((bm + bn) * slices) as f64 / (64 * threads) as f64;
    let mma = (bm * bn) as f64 / f64::from(device.lanes);
    let issue = mma * fetch / tuning::SIMT_ISSUE_SHARE;
    // Latency of a warp that others hide: a scheduler issues from `threads / 128` warps.
    let latency = issue * 128.0 / threads as f64;
    Some(Work {
        mma,
        issue,
        latency,
        bubble: tuning::SIMT_LATENCY_WARPS * latency,
        l2_bytes: (4 * (bm + bn)) as f64,
        l2_share: tuning::SIMT_L2_SHARE,
        iterations: (spec.k / parts) as f64,
        prologue: tuning::SIMT_EDGES,
        epilogue: (8 * gathered) as f64 / f64::from(device.shared_bytes_per_cycle),
        tiles: blocks,
        resident,
        passes: match parts {
            1 => Passes::default(),
            _ => Passes { kernels: 1.0, l2_bytes: (4 * (2 * parts + 1) * spec.m * spec.n) as f64, ..Passes::default() },
        },
        ..Work::NONE
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    #[test]
    fn few_tiles_share_their_sums_out() {
        let h200 = |m, n, k| {
            let spec = GemmSpec::of(m, n, k, DType::F32, Layout::NN);
            choose(&spec, &Target::sm_90a()).map(|(_, t)| (t.block(), t.split.slices, t.split.parts))
        };
        // 128 blocks of 512 threads for 132 multiprocessors.
        assert_eq!(h200(1024, 512, 2048), Some(([64, 64], 8, 1)));
        assert_eq!(h200(1024, 1024, 1024), Some(([64, 128], 4, 1)));
        assert_eq!(h200(512, 512, 512), Some(([32, 64], 8, 1)));
        // Without parts there would be 32 and 8 blocks.
        assert_eq!(h200(256, 256, 256), Some(([32, 64], 4, 4)));
        assert_eq!(h200(128, 128, 65536), Some(([64, 64], 8, 32)));
        // Enough tiles, and too few terms.
        assert_eq!(h200(2048, 2048, 2048), Some(([128, 128], 1, 1)));
        assert_eq!(h200(4096, 4096, 64), None);
        assert_eq!(h200(64, 64, 64), None);
        assert_eq!(h200(1000, 1024, 1024), None);
    }

    #[test]
    fn warps_hide_latency() {
        let device = Target::sm_90a().device();
        let spec = GemmSpec::of(1024, 1024, 1024, DType::F32, Layout::NN);
        let tiles = candidate(&spec, [2, 2], Split::NONE).unwrap();
        let work = work(&spec, &tiles, &Target::sm_90a(), &device).unwrap();
        // Without the instructions that fetch operands: the share of FMAs among the cycles, by warps of a scheduler.
        let alone = Work { issue: work.mma / tuning::SIMT_ISSUE_SHARE, ..work };
        let share = |blocks: i64, threads: f64| {
            let latency = alone.issue * 128.0 / threads;
            let bubble = tuning::SIMT_LATENCY_WARPS * latency;
            let (cycles, _) = Work { latency, bubble, l2_bytes: 0.0, ..alone }.iteration(blocks, &device);
            blocks as f64 * alone.mma / cycles
        };
        assert_eq!(tiles.threads(), 128);
        for (blocks, threads, expected) in [(1, 64.0, 0.31), (1, 128.0, 0.62), (4, 128.0, 0.78)] {
            assert!((share(blocks, threads) - expected).abs() < 0.01, "{blocks} of {threads}");
        }
    }
}
