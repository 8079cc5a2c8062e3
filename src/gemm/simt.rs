//! Steps for a matrix product without tensor cores: the two-level blocking of the field, for any size and type.
//!
//! A block of threads computes `bm` x `bn` elements of C, each thread `tm` x `tn` of them in registers; A and B come in
//! slices of `bk` through shared memory, fetched by all threads in pieces of up to 16 bytes.

use super::epilogue::Accumulators;
use super::grid::{bind_batch, bind_blocks, rows_of};
use super::operand::{Operand, up};
use super::padding::Padding;
use super::staging::{divide_among_threads, present};
use crate::dtype::DType;
use crate::ir::{Axis, Note, Scope};
use crate::schedule::Steps;
use crate::te::GemmSpec;

/// The sizes of the tiles. All are powers of two; `tm` divides `bm`, `tn` divides `bn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiles {
    /// Rows of C of a block.
    pub bm: i64,
    /// Columns of C of a block.
    pub bn: i64,
    /// Terms of the accumulators in shared memory at a time.
    pub bk: i64,
    /// Rows of C of a thread.
    pub tm: i64,
    /// Columns of C of a thread.
    pub tn: i64,
}

/// The results of a thread take fewer bits: half of the registers that it can have.
const RESULT_BITS: i64 = 128 * 32;

/// `.minnctapersm`, the blocks for each multiprocessor that ptxas is asked for. Without it ptxas lowers the register count until one
/// more block fits, even if the kernel then spills. With a count estimated from the tile's registers 16 of 240 kernels spilled (six
/// combinations of types, five sizes, four layouts, sm_75 and sm_80); with one block none did.
const MIN_BLOCKS: i64 = 1;

/// Steps of k written out at a time where loads have conditions or results are converted: of more, ptxas takes all loads in front
/// (63x8191x128 of s32: 152 registers for 16 steps, 64 for four).
const UNROLLED: i64 = 4;

/// Terms of a sum below which a thread has few results: there is little to multiply, and ragged tiles of 8 x 8 spill.
const FEW_TERMS: i64 = 16;
const FEW_RESULTS: i64 = 16;

/// Blocks below which a smaller tile is taken: about one for each multiprocessor of a large chip.
const ENOUGH_BLOCKS: i64 = 128;

impl Tiles {
    /// The largest tiles that still give enough blocks and leave a thread registers, cut down to the product where that
    /// is smaller.
    pub fn choose(spec: &GemmSpec) -> Tiles {
        let ladder = [(128, 128, 8, 8), (128, 64, 8, 4), (64, 64, 4, 4), (32, 32, 2, 2)];
        let blocks = |bm: i64, bn: i64| {
            (spec.m as u64).div_ceil(bm as u64) * (spec.n as u64).div_ceil(bn as u64) * spec.products() as u64
        };
        let most = if spec.k < FEW_TERMS { FEW_RESULTS } else { i64::MAX };
        let fits = |tm: i64, tn: i64| tm * tn * i64::from(spec.acc.bits()) < RESULT_BITS && tm * tn <= most;
        let suits = |t: &&(i64, i64, i64, i64)| fits(t.2, t.3) && blocks(t.0, t.1) >= ENOUGH_BLOCKS as u64;
        let enough = ladder.iter().find(suits).copied();
        let (mut bm, mut bn, mut tm, mut tn) = enough.unwrap_or((32, 32, 2, 2));
        while bm > 1 && bm / 2 >= spec.m {
            (bm, tm) = (bm / 2, (tm / 2).max(1));
        }
        while bn > 1 && bn / 2 >= spec.n {
            (bn, tn) = (bn / 2, (tn / 2).max(1));
        }
        let bk = [16, 8, 4, 2].into_iter().find(|bk| *bk <= spec.k).unwrap_or(1);
        Tiles { bm, bn, bk, tm, tn }
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        (self.bm / self.tm) * (self.bn / self.tn)
    }

    /// The steps, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let Tiles { bm, bn, bk, tm, tn } = *self;
        let (mut s, accumulators) = (Steps::new(), Accumulators::of(spec));
        let stored = accumulators.keep_in_registers(&mut s, "C_local");
        s.split("i", [bm / tm, tm], ["i_0", "i_1", "i_2"]).split("j", [bn / tn, tn], ["j_0", "j_1", "j_2"]);
        s.split("k", [bk], ["k_0", "k_1"]);
        s.reorder(["i_0", "j_0", "i_1", "j_1", "k_0", "k_1", "i_2", "j_2"]).fuse(["i_1", "j_1"], "t");
        let rows = rows_of(&mut s, spec, ("i_0", up(spec.m, bm)));
        bind_blocks(&mut s, rows, ("j_0", up(spec.n, bn)));
        s.bind("t", Axis::ThreadX).launch("j_0").min_blocks(MIN_BLOCKS);
        let batch = if spec.batch.is_some() { "c_b" } else { "" };
        s.reverse_compute_at(stored, "t").made(present([batch, "c_0", "c_1"]));
        for operand in Operand::BOTH {
            self.stage(&mut s, spec, operand);
        }
        s.decompose_reduction(accumulators.block(), "k_0");
        let floats = [DType::F32, DType::F64].contains(&spec.a) && spec.a == spec.b && spec.a == spec.acc;
        let padding = Padding::new(spec, [bm, bn], bk);
        let divides = Operand::BOTH.into_iter().all(|operand| !padding.pads_operand(operand));
        if bk > UNROLLED && !(floats && !accumulators.converts() && divides) {
            s.annotate("k_1", Note::UnrollLimit, UNROLLED);
        }
        bind_batch(&mut s, spec);
        s
    }

    /// An operand's tile in shared memory.
    fn stage(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        let (name, x) = (operand.name(), operand.lower());
        let bits = i64::from(operand.dtype(spec).bits());
        let tile = [[self.bm, self.bk], [self.bk, self.bn]][operand as usize];
        let transposed = [spec.layout.a_transposed(), spec.layout.b_transposed()][operand as usize];
        let (elements, row) = (tile[0] * tile[1], tile[usize::from(!transposed)]);
        let per_byte = 8 / bits;
        // As wide as 16 bytes and a whole share for each thread allow. Of elements that share bytes no fewer than those
        // of one byte, none of another row, and none behind the end of the operand's row.
        let vector = match (128 / bits).min((elements / self.threads()).max(1)) {
            vector if per_byte > 1 => {
                vector.min(row).min(1 << operand.contiguous(spec).trailing_zeros().min(5)).max(per_byte)
            }
            vector => vector,
        };
        let loop_ = |end: &str| format!("{x}{end}");
        let staged = format!("{name}_shared");
        // With a name for each dimension those of one element have a loop, too.
        let batch = if spec.batch.is_some() { loop_("_b") } else { String::new() };
        let [first, second] = [loop_("0"), loop_("1")];
        s.cache_read(Accumulators::of(spec).block(), name, Scope::Shared, &staged);
        s.compute_at(&staged, "k_0").made(present([&*batch, &first, &second]));
        divide_among_threads(s, [&first, &second], &loop_("e"), self.threads(), vector, ["_0", "_1", "_2"].map(loop_));
        s.vectorize(&loop_("_2")).bind(&loop_("_1"), Axis::ThreadX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::te::Layout;

    #[test]
    fn small_products_get_small_tiles() {
        let tiles = |m, n, k| Tiles::choose(&GemmSpec::of(m, n, k, DType::F32, Layout::NN));
        assert_eq!(tiles(4096, 4096, 4096), Tiles { bm: 128, bn: 128, bk: 16, tm: 8, tn: 8 });
        assert_eq!(tiles(1024, 1024, 1024), Tiles { bm: 128, bn: 64, bk: 16, tm: 8, tn: 4 });
        let doubles = Tiles::choose(&GemmSpec::of(4095, 4095, 4095, DType::F64, Layout::NN));
        assert_eq!((doubles.tm, doubles.tn), (8, 4));
        assert_eq!(tiles(4095, 4095, 15), Tiles { bm: 64, bn: 64, bk: 8, tm: 4, tn: 4 });
        assert_eq!(tiles(1, 100, 3), Tiles { bm: 1, bn: 32, bk: 2, tm: 1, tn: 2 });
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (17, 4096, 4096), (4095, 4097, 4099)] {
            let t = tiles(m, n, k);
            assert!(t.bm % t.tm == 0 && t.bn % t.tn == 0 && t.threads() <= 256, "{t:?}");
        }
    }
}
