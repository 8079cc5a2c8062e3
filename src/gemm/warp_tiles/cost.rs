//! Warp tiles to choose from, and what they ask of a device: [`Work`].

use super::{Split, WarpTiles, base};
use crate::gemm::work::{Passes, Work, cycles};
use crate::gemm::{tiles, tuning};
use crate::target::{Device, Target};
use crate::te::GemmSpec;

/// Numbers of warps of a block.
const WARPS: [i64; 4] = [8, 4, 2, 1];
/// Numbers of slices.
const SLICES: [i64; 5] = [1, 2, 4, 8, 16];
/// Numbers of parts.
const PARTS: [i64; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];

impl WarpTiles {
    /// What the GEMM asks of the device in these tiles; `None` where a block does not fit or half of the device has nothing to do.
    pub(in crate::gemm) fn work(&self, spec: &GemmSpec, target: &Target) -> Option<Work> {
        work(spec, self, target, &target.device())
    }

    /// The cheapest tiles that divide the product, with their cycles; `None` where none do, half of the device would have
    /// nothing to do, or the product is not one of f32 alone or of f64 alone.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<(f64, WarpTiles)> {
        // Slices of f64 spill: 40 bytes of 128 registers at 1024^3 on sm_90a, which takes 127 us on an H100 and without slices 118.
        let slices = if spec.a.bits() == 64 { &SLICES[..1] } else { &SLICES };
        let splits =
            PARTS.iter().flat_map(|parts| slices.iter().map(|slices| Split { parts: *parts, slices: *slices }));
        WarpTiles::choose_of(spec, target, splits)
    }

    /// The cheapest tiles of these splits.
    pub(in crate::gemm) fn choose_of(
        spec: &GemmSpec,
        target: &Target,
        splits: impl Iterator<Item = Split>,
    ) -> Option<(f64, WarpTiles)> {
        let base = base(spec)?;
        let device = target.device();
        let tile = WarpTiles { warps: [1, 1], ..base }.block();
        let mut warps: Vec<_> = WARPS.into_iter().flat_map(|warps| tiles::arrangements(warps, tile)).collect();
        // Of tiles with equal cost those of more warps are first, then the squarest arrangements, then the tallest.
        warps.sort_by_key(|[rows, columns]| (-rows * columns, *rows.max(columns), -rows));
        let mut best: Option<(f64, WarpTiles)> = None;
        for split in splits {
            for warps in &warps {
                let Some(tiles) = divided(WarpTiles { warps: *warps, split, ..base }, spec) else { continue };
                let Some(work) = work(spec, &tiles, target, &device) else { continue };
                let cycles = cycles(&work, &device);
                if best.is_none_or(|(least, _)| cycles < least) {
                    best = Some((cycles, tiles));
                }
            }
        }
        best.map(|(cycles, tiles)| (cycles, tiles.fitted(spec)))
    }
}

/// The tiles with a k extent of a stage, where they divide the product.
fn divided(mut tiles: WarpTiles, spec: &GemmSpec) -> Option<WarpTiles> {
    tiles.bk = match (tiles.threads(), tiles.split.slices) {
        (..=64, 1) => 16,
        (_, ..=8) => 8,
        _ => 4,
    };
    // Two such blocks fit if each thread makes do with 128 registers, of which it wants a few more.
    tiles.min_blocks = (tiles.threads() == 256).then_some(2);
    let ([bm, bn], bk) = (tiles.block(), tiles.bk * tiles.split.slices * tiles.split.parts);
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
    let bytes = i64::from(spec.a.bits()) / 8;
    let slots = 2 * (bm + bn) * tiles.bk * slices;
    let gathered = if slices > 1 { slices * bm * bn } else { 0 };
    let shared = u32::try_from(bytes * slots.max(gathered)).ok()?;
    // Besides 64 registers of accumulators a thread has 16 of operands, what it loads ahead, and addresses.
    let registers = if threads >= 256 { 128 } else { 160 };
    let resident = i64::from(target.occupancy(u32::try_from(threads).ok()?, registers, shared).blocks);
    if resident == 0 {
        return None;
    }
    let elements: i64 = tiles.groups.iter().chain(&tiles.per).product();
    let fetch = 1.0 + tuning::SIMT_FETCH * ((bm + bn) * slices) as f64 / (elements * threads) as f64;
    // A lane adds one product of f32 in a cycle, and takes two for one of f64.
    let mma = (bm * bn) as f64 * bytes as f64 / 4.0 / f64::from(device.lanes);
    let issue = mma * fetch / tuning::SIMT_ISSUE_SHARE;
    // Latency of a warp that others hide: a scheduler issues from `threads / 128` warps.
    let latency = issue * 128.0 / threads as f64;
    Some(Work {
        mma,
        issue,
        latency,
        bubble: tuning::SIMT_LATENCY_WARPS * latency,
        l2_bytes: (bytes * (bm + bn)) as f64,
        l2_share: tuning::GEMV_L2_SHARE,
        iterations: (spec.k / parts) as f64,
        prologue: tuning::GEMV_EDGES,
        epilogue: (2 * bytes * gathered) as f64 / f64::from(device.shared_bytes_per_cycle),
        tiles: blocks,
        resident,
        passes: match parts {
            1 => Passes::default(),
            _ => Passes {
                kernels: 1.0,
                l2_bytes: (bytes * (2 * parts + 1) * spec.m * spec.n) as f64,
                ..Passes::default()
            },
        },
        ..Work::NONE
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::te::Layout;

    #[test]
    fn few_tiles_share_their_sums_out() {
        let h200 = |m, n, k, dtype| {
            let spec = GemmSpec::of(m, n, k, dtype, Layout::NN);
            WarpTiles::choose(&spec, &Target::sm_90a()).map(|(_, t)| (t.block(), t.split.slices, t.split.parts))
        };
        let f32 = |m, n, k| h200(m, n, k, DType::F32);
        // 128 blocks of 512 threads for 132 multiprocessors.
        assert_eq!(f32(1024, 512, 2048), Some(([64, 64], 8, 1)));
        assert_eq!(f32(1024, 1024, 1024), Some(([64, 128], 4, 1)));
        assert_eq!(f32(512, 512, 512), Some(([32, 64], 8, 1)));
        // Without parts there would be 32 and 8 blocks.
        assert_eq!(f32(256, 256, 256), Some(([32, 64], 4, 4)));
        assert_eq!(f32(128, 128, 65536), Some(([64, 64], 8, 32)));
        // Enough tiles, too few terms, and sizes that no tile divides.
        assert_eq!(f32(2048, 2048, 2048), Some(([128, 128], 1, 1)));
        assert_eq!(f32(4096, 4096, 64), Some(([128, 128], 1, 1)));
        assert_eq!(f32(64, 64, 64), None);
        assert_eq!(f32(1000, 1024, 1024), None);
        assert_eq!(h200(4096, 4096, 4096, DType::F64), Some(([128, 64], 1, 1)));
        assert_eq!(h200(4096, 4096, 4096, DType::F16), None);
    }

    #[test]
    fn warps_hide_latency() {
        let device = Target::sm_90a().device();
        let spec = GemmSpec::of(1024, 1024, 1024, DType::F32, Layout::NN);
        let tiles = divided(WarpTiles { warps: [2, 2], ..base(&spec).unwrap() }, &spec).unwrap();
        let work = work(&spec, &tiles, &Target::sm_90a(), &device).unwrap();
        // Without the instructions that fetch operands: the share of FMAs among the cycles, by warps of a scheduler.
        let alone = Work { issue: work.mma / tuning::SIMT_ISSUE_SHARE, ..work };
        let share = |blocks: i64, threads: f64| {
            let latency = alone.issue * 128.0 / threads;
            let bubble = tuning::SIMT_LATENCY_WARPS * latency;
            let (cycles, _) = Work { latency, bubble, l2_bytes: 0.0, ..alone }.iteration(blocks, 1, &device);
            blocks as f64 * alone.mma / cycles
        };
        assert_eq!(tiles.threads(), 128);
        for (blocks, threads, expected) in [(1, 64.0, 0.31), (1, 128.0, 0.62), (4, 128.0, 0.78)] {
            assert!((share(blocks, threads) - expected).abs() < 0.01, "{blocks} of {threads}");
        }
    }
}
