//! Tiles to choose from, enumerated from what instructions, warps and registers allow. The model of `work` orders them.

use crate::target::SCHEDULERS;

/// Rows or columns of C that the fragments of mma.sync and wmma come in.
pub(super) const FRAGMENT: i64 = 16;
/// Sides of a block's tile by mma.sync: of more than 32, whole panels of 128 bytes of 16-bit elements in shared memory.
const SIDES: [i64; 5] = [256, 128, 64, 32, 16];
/// The sides with elements of 32 and 64 bits. A warp's tile is whole fragments, so not all of them go with all others. On an H200 90 products of f64
/// whose tiles these change have 1.047 of the speed, 21 of tf32 1.031, and 26 of 8 and 16 bits, which keep powers of two, had 0.966
/// (h200-2026-11-29/sides.jsonl).
const FINE_SIDES: [i64; 9] = [256, 128, 112, 96, 80, 64, 48, 32, 16];
/// Bits of the elements that have these.
const FINE_BITS: i64 = 32;
/// The sides by wmma.
const WMMA_SIDES: [i64; 4] = [256, 128, 64, 32];
/// Warps of a block by mma.sync: of more, a thread has fewer registers than its accumulators and fragments take.
const WARPS: [i64; 4] = [1, 2, 4, 8];
/// The least longer side of a warp's tile by mma.sync: two matrices of 16 rows, so that a fragment of one operand is used with two of the
/// other.
const LEAST_SIDE: i64 = 32;
/// The same by wmma, whose tiles of 16 x 16 a warp has one of at least.
const WMMA_SIDE: i64 = 16;
/// The most rows and columns of a warp's tile by wmma, whose fragments of f16 take twice the registers on the first chips.
const WMMA_MOST: [i64; 2] = [64, 32];
/// How much longer the longer side of a tile is at most: at four times, a tile of the same area moves 1.25 times the bytes from L2.
const MOST_RATIO: i64 = 2;

/// The same of a warp's tile that has more columns than the most and fewer rows, or the other way round. With 16 x 80, 16 x 112 or 112 x 16 of
/// tf32 and f64, and 32 x 112 of tf32, 26 random products had 0.68 to 1.4 of the speed of powers of two on an H200, 0.99 at the geometric mean
/// (h200-2026-11-29/sides.jsonl).
const MOST_WARP_RATIO: i64 = 3;

fn is_compact([m, n]: [i64; 2]) -> bool {
    m.max(n) <= MOST_RATIO * m.min(n)
}

/// Tiles of a block and its warps by mma.sync, where a warp has at most the accumulators of `most` rows and columns of C: as few warps as give
/// each scheduler one. Where C has fewer rows or columns than a tile's shorter side, the tile is as long as one has it: what lies beyond C moves
/// no bytes. Of tiles with equal cost those of more elements are first, then those with a number of rows next to 128.
pub(super) fn mma(most: [i64; 2], [m, n]: [i64; 2], bits: i64) -> Vec<([i64; 2], [i64; 2])> {
    let covers = |block: [i64; 2]| block[0] < block[1] && m <= block[0] || block[1] < block[0] && n <= block[1];
    let is_wanted = |block: [i64; 2]| is_compact(block) || covers(block);
    if bits < FINE_BITS {
        return warp_tiles(&SIDES, is_wanted, most, LEAST_SIDE);
    }
    let all = warp_tiles(&FINE_SIDES, is_wanted, most, LEAST_SIDE);
    let is_needed = |block: [i64; 2]| {
        // With a shorter side that has all of C a block loads as many bytes and multiplies less.
        let shorter = |d: usize| FINE_SIDES.into_iter().filter(move |side| *side < block[d] && [m, n][d] <= *side);
        let with = |d: usize, side: i64| if d == 0 { [side, block[1]] } else { [block[0], side] };
        !(0..2).any(|d| shorter(d).any(|side| all.iter().any(|(other, _)| *other == with(d, side))))
    };
    all.iter().filter(|(block, _)| is_needed(*block)).copied().collect()
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
    let mut all: Vec<_> = blocks.filter_map(|block| Some((block, warps(block, most, least)?))).collect();
    all.sort_by_key(|([m, n], _)| (-m * n, (m - 128).abs()));
    all
}

/// The fewest warps of a block, along rows and columns of C, whose tiles are within `most` and are as square as they can be: one for each
/// scheduler, or fewer with tiles of `least` rows and columns at most. `None` where no number of warps divides the block so.
fn warps(block: [i64; 2], most: [i64; 2], least: i64) -> Option<[i64; 2]> {
    let tile = |warps: &[i64; 2]| [0, 1].map(|d| block[d] / warps[d]);
    let is_within = |warps: &[i64; 2]| (0..2).all(|d| tile(warps)[d] <= most[d]);
    let suits = |warps: &[i64; 2]| {
        let [rows, columns] = tile(warps);
        let (longer, shorter) = (rows.max(columns), rows.min(columns));
        let whole = (0..2).all(|d| block[d] % (warps[d] * FRAGMENT) == 0);
        let fills = warps[0] * warps[1] >= SCHEDULERS || longer <= least;
        let is_even = rows * columns <= most[0] * most[1] && longer <= MOST_WARP_RATIO * shorter;
        whole && fills && (is_within(warps) || is_even)
    };
    // Of tiles with equal sides those of a square of warps come first.
    let order =
        |warps: &[i64; 2]| (!is_within(warps), tile(warps).iter().sum::<i64>(), warps[0].max(warps[1]), warps[0]);
    WARPS.into_iter().find_map(|number| all_arrangements(number).filter(suits).min_by_key(order))
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
        for (most, bits) in [([64, 64], 16), ([64, 32], 16), ([64, 64], 32), ([64, 32], 64)] {
            for (block, warps) in mma(most, [64, 4096], bits) {
                let tile = [0, 1].map(|d| block[d] / warps[d]);
                assert!(tile[0] * tile[1] <= most[0] * most[1], "{block:?} {warps:?}");
                assert!((0..2).all(|d| warps[d] * tile[d] == block[d] && tile[d] % 16 == 0), "{block:?} {warps:?}");
                let least = tile[0].max(tile[1]) <= LEAST_SIDE;
                assert!(warps[0] * warps[1] >= SCHEDULERS || least, "{block:?} {warps:?}");
            }
        }
        let large = [([128, 256], [2, 4]), ([256, 128], [4, 2]), ([128, 128], [2, 2])];
        assert_eq!(mma([64, 64], [4096; 2], 16)[..3], large);
        assert_eq!(mma([64, 32], [4096; 2], 16)[..2], [([128, 128], [2, 4]), ([128, 64], [2, 2])]);
        assert!(mma([64, 64], [4096; 2], 16).contains(&([32, 64], [1, 2])));
        // Sides that are no powers of two.
        let odd = [([96, 128], [2, 4]), ([96, 64], [2, 2]), ([64, 48], [4, 1]), ([48, 64], [1, 4])];
        assert!(odd.iter().all(|tiles| mma([64, 32], [4096; 2], 64).contains(tiles)));
        // 40 rows need no tile of 64 where there is one of 48.
        let sides: Vec<_> = mma([64, 32], [40, 4096], 64).into_iter().map(|(block, _)| block).collect();
        assert!(sides.contains(&[48, 64]) && sides.contains(&[64, 32]) && !sides.contains(&[64, 64]), "{sides:?}");
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
