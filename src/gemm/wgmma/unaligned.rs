//! Tiles of one wave whose operands have rows that begin anywhere in the lines of the second-level cache.
//!
//! Such a row of 128 bytes comes as two pieces, each of which costs a multiprocessor as much to ask for as a whole line, and
//! more than half of one to receive. Blocks of a cluster ask for the tile that they share together, so four of them share the
//! longer side of a tile; and as a chip holds fewer blocks in clusters of four than alone, tiles are as wide as makes them
//! fit at once. The side that is shared has any width, which a panel of the other kind has not: its rows run along k. Where
//! that is A, A and B are swapped (C^T = B^T A^T), 64 columns of C at a time, and the epilogue transposes the accumulators.
//!
//! At 1000^3 on an H200 that takes 6.25 us, where two blocks that share 64 x 128 take 6.65, and one alone 9.6.

use super::{Accumulators, LINE, Operand, ROWS, SwapAb, Wgmma, bytes, in_bytes, processors, runs_along_k, up};
use crate::gemm::packing::Source;
use crate::target::Target;
use crate::te::GemmSpec;

/// Blocks that share a tile.
const SHARERS: i64 = 4;
/// Rows of clusters that are walked together, and stages: more of either take no less (products_small.jsonl of the records).
const GROUP: i64 = 4;
const SLOTS: i64 = 6;
/// Narrower tiles leave shared memory busier than the tensor cores, wider ones leave no registers.
const WIDTHS: std::ops::RangeInclusive<i64> = 80..=208;
/// What widths are multiples of: a matrix that leaves the registers at once.
const STEP: i64 = 16;

impl Wgmma {
    /// Whether an operand has rows that cross lines.
    pub(super) fn has_unaligned_rows(spec: &GemmSpec, routes: [Source; 2]) -> bool {
        Operand::BOTH.into_iter().any(|operand| {
            in_bytes(operand.multiple(spec), spec) % LINE != 0 && routes[operand as usize] == Source::Direct
        })
    }

    /// Whether it has the tiles of [`Wgmma::unaligned_tiles`].
    pub(super) fn shares_with_four(&self) -> bool {
        self.cluster.contains(&SHARERS)
    }

    /// The tiles that four blocks share, if the product has an operand for them and fills the chip with them.
    pub(super) fn unaligned_tiles(spec: &GemmSpec, target: &Target) -> Option<Wgmma> {
        let clusters = i64::from(target.device().clusters_of_four?);
        let plain = Wgmma::of(spec, [ROWS, 128], 1, target);
        let suited = spec.batch.is_none()
            && spec.a.bits() == 16
            && bytes(spec.out) == 2
            && Accumulators::of(spec).converts()
            && plain.stores_by_tma();
        if !suited || plain.routes != [Source::Direct; 2] || !Wgmma::has_unaligned_rows(spec, plain.routes) {
            return None;
        }
        // The operand whose tile is shared: A where both could, as accumulators then leave in whole lines.
        let operand = Operand::BOTH.into_iter().find(|operand| runs_along_k(*operand, spec))?;
        let sharers = up(up(operand.other().rows(spec), ROWS), SHARERS);
        let width = up(up(operand.rows(spec), clusters.checked_div(sharers)?.max(1)), STEP) * STEP;
        let swap_ab = if operand == Operand::A { SwapAb::Swapped } else { SwapAb::Straight };
        // A swapped tile leaves as a whole: ptxas spills 260 bytes of bias, gelu and residual at 1000^3.
        if spec.epilogue && swap_ab.is_swapped() {
            return None;
        }
        let (mut block, mut cluster) = ([ROWS, width], [SHARERS, 1]);
        if swap_ab.is_swapped() {
            block.reverse();
            cluster.reverse();
        }
        // Other tiles may make more waves than one, with blocks that stay.
        let own = Wgmma::of(spec, block, 1, target);
        let mut w = Wgmma { cluster, swap_ab, producer: true, raster_group: GROUP, ..own };
        // A transposed tile leaves as a whole.
        w.out_stages = if swap_ab.is_swapped() { 1 } else { 2 };
        let busy = 4 * w.blocks(spec) >= 3 * i64::from(processors(target));
        if !WIDTHS.contains(&width) || sharers > clusters || !busy {
            return None;
        }
        Some(w.with_slots(spec, target, SLOTS))
    }

    /// Whether each warp stores the rows that it has staged, by itself and in turns. All that a block of one wave does behind its
    /// accumulators is waited for, and so is a warpgroup that meets to store: at 1000^3 on an H200 it takes 0.07 us of 6.4 where four
    /// blocks share a side, and 0.08 of 6.8 where two do. Nor has a warpgroup that takes turns anyone to meet. Other tiles store
    /// while they go on, or were not measured.
    pub(super) fn stores_by_warp(&self) -> bool {
        let one_wave = self.producer && !self.persistent && self.warpgroups == 1 && self.tall() == 1;
        self.stores_by_tma() && (one_wave || self.pingpong) && !self.swap_ab.is_swapped()
    }
}
