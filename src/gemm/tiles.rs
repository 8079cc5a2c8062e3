//! Tiles to choose from, enumerated from what instructions, warps and registers allow. The model of `work` orders them.

use crate::target::SCHEDULERS;

/// Sides of a block's tile by mma.sync: of more than 32, whole panels of 128 bytes of 16-bit elements in shared memory.
const SIDES: [i64; 5] = [256, 128, 64, 32, 16];
/// The sides by wmma.
const WMMA_SIDES: [i64; 4] = [256, 128, 64, 32];
/// The most warps of a block by mma.sync: of more, a thread has fewer registers than its accumulators and fragments take.
const MOST_WARPS: i64 = 8;
/// The least longer side of a warp's tile by mma.sync: two matrices of 16 rows, so that a fragment of one operand is used with two of the
/// other.
const LEAST_SIDE: i64 = 32;
/// The same by wmma, whose tiles of 16 x 16 a warp has one of at least.
const WMMA_SIDE: i64 = 16;
/// The most rows and columns of a warp's tile by wmma, whose fragments of f16 take twice the registers on the first chips.
const WMMA_MOST: [i64; 2] = [64, 32];
/// How much longer the longer side of a tile is at most: at four times, a tile of the same area moves 1.25 times the bytes from L2.
const MOST_RATIO: i64 = 2;

fn is_compact([m, n]: [i64; 2]) -> bool {
    m.max(n) <= MOST_RATIO * m.min(n)
}

/// Tiles of a block and its warps by mma.sync, where a warp has at most `most` rows and columns of C: as few warps as give each
/// scheduler one. Where C has fewer rows or columns than a tile's shorter side, the tile is as long as one has it: what lies beyond C moves
/// no bytes. Of tiles with equal cost those of more elements are first, then those with a number of rows next to 128.
pub(super) fn mma(most: [i64; 2], [m, n]: [i64; 2]) -> Vec<([i64; 2], [i64; 2])> {
    let covers = |block: [i64; 2]| block[0] < block[1] && m <= block[0] || block[1] < block[0] && n <= block[1];
    warp_tiles(&SIDES, |block| is_compact(block) || covers(block), most, LEAST_SIDE)
}

/// The same by wmma.
pub(super) fn wmma() -> Vec<([i64; 2], [i64; 2])> {
    warp_tiles(&WMMA_SIDES, is_compact, WMMA_MOST, WMMA_SIDE)
}

fn warp_tiles(
    sides: &[i64],
    is_wanted: impl Fn([i64; 2]) -> bool,
    most: [i64; 2],
    least: i64,
) -> Vec<([i64; 2], [i64; 2])> {
    let blocks = sides.iter().flat_map(|m| sides.iter().map(move |n| [*m, *n])).filter(|block| is_wanted(*block));
    let all = blocks.map(|block| (block, warps(block, most, least)));
    let mut all: Vec<_> = all.filter(|(_, [rows, columns])| rows * columns <= MOST_WARPS).collect();
    all.sort_by_key(|([m, n], _)| (-m * n, (m - 128).abs()));
    all
}

/// The warps of a block, along rows and columns of C.
fn warps(block: [i64; 2], most: [i64; 2], least: i64) -> [i64; 2] {
    let mut warps = [0, 1].map(|d| (block[d] / most[d]).max(1));
    while warps[0] * warps[1] < SCHEDULERS {
        let tile = [0, 1].map(|d| block[d] / warps[d]);
        // The longer side of a warp's tile is divided; of a square one the side with fewer warps.
        let longer = usize::from(tile[1] > tile[0] || tile[1] == tile[0] && warps[1] < warps[0]);
        if tile[longer] <= least {
            break;
        }
        warps[longer] *= 2;
    }
    warps
}

/// Rows of C of a wgmma.
const WGMMA_ROWS: i64 = 64;
/// Columns of C of a wgmma at most, and a panel of 128 bytes of 16-bit elements, whose multiples tiles have.
const WGMMA_COLUMNS: i64 = 256;
const PANEL: i64 = 64;
/// Elements of C of a thread at most: half of its registers hold accumulators, and the rest addresses.
const ELEMENTS: i64 = 128;
/// Threads of a warpgroup.
pub(super) const WARPGROUP: i64 = 128;

/// Tiles of a block by wgmma and the warpgroups that share it. Of tiles with equal cost those of more elements are first, then those
/// with shorter sides, fewer rows, and more warpgroups: they move fewer bytes, and store whole rows.
pub(super) fn wgmma() -> Vec<([i64; 2], i64)> {
    let rows =
        [1, 2].into_iter().flat_map(|warpgroups| [1, 2].map(|tall| (warpgroups * tall * WGMMA_ROWS, warpgroups)));
    let columns = (1..=WGMMA_COLUMNS / PANEL).map(|panels| panels * PANEL);
    let all = rows.flat_map(|(m, warpgroups)| columns.clone().map(move |n| ([m, n], warpgroups)));
    let mut all: Vec<_> = all.filter(|([m, n], warpgroups)| m * n <= ELEMENTS * WARPGROUP * warpgroups).collect();
    all.sort_by_key(|([m, n], warpgroups)| (-m * n, m + n, *m, -warpgroups));
    all
}

/// Arrangements of so many warps along rows and columns of C, where a warp has a tile of this size.
pub(super) fn arrangements(warps: i64, tile: [i64; 2]) -> impl Iterator<Item = [i64; 2]> {
    all_arrangements(warps).filter(move |warps| is_compact([0, 1].map(|d| warps[d] * tile[d])))
}

/// Arrangements of so many warps along rows and columns of C.
pub(super) fn all_arrangements(warps: i64) -> impl Iterator<Item = [i64; 2]> {
    (1..=warps).filter(move |rows| warps % rows == 0).map(move |rows| [rows, warps / rows])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_have_tiles_within_their_limit_and_each_scheduler_has_one() {
        for most in [[64, 64], [64, 32]] {
            for (block, warps) in mma(most, [64, 4096]) {
                let tile = [0, 1].map(|d| block[d] / warps[d]);
                assert!((0..2).all(|d| (16..=most[d]).contains(&tile[d])), "{block:?} {warps:?}");
                let least = tile[0].max(tile[1]) <= LEAST_SIDE;
                assert!(warps[0] * warps[1] >= SCHEDULERS || least, "{block:?} {warps:?}");
            }
        }
        let large = [([128, 256], [2, 4]), ([256, 128], [4, 2]), ([128, 128], [2, 2])];
        assert_eq!(mma([64, 64], [4096; 2])[..3], large);
        assert_eq!(mma([64, 32], [4096; 2])[..2], [([128, 128], [2, 4]), ([128, 64], [2, 2])]);
        assert!(mma([64, 64], [4096; 2]).contains(&([32, 64], [1, 2])));
    }

    #[test]
    fn arrangements_are_compact() {
        let all = |warps, tile| arrangements(warps, tile).collect::<Vec<_>>();
        assert_eq!(all(8, [64, 64]), [[2, 4], [4, 2]]);
        assert_eq!(all(8, [32, 64]), [[4, 2]]);
        assert_eq!(all(4, [32, 64]), [[2, 2], [4, 1]]);
    }

    #[test]
    fn accumulators_of_wgmma_fit_in_half_of_the_registers() {
        let all = wgmma();
        assert_eq!(all.first(), Some(&([128, 256], 2)));
        assert!(all.iter().all(|([m, n], w)| m * n / (128 * w) <= ELEMENTS && m % (64 * w) == 0));
        assert!(all.contains(&([64, 256], 1)) && !all.contains(&([128, 256], 1)));
    }
}
