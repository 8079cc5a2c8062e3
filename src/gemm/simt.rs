//! Steps for a matrix product without tensor cores: the two-level blocking of the field, for any size and type.
//!
//! A block of threads computes `bm` x `bn` elements of C, each thread `tm` x `tn` of them in registers; A and B come in
//! slices of `bk` through shared memory, fetched by all threads in pieces of up to 16 bytes. Shared memory has k outermost, so that the
//! rows and columns of a thread are vectors: an operand whose rows run along k is transposed on its way there. Where C has few tiles,
//! blocks have parts of k.

pub(super) mod cost;

use super::epilogue::{digits, has_unaligned_rows, store_rows};
use super::grid::{bind_batch, bind_blocks, rows_of};
use super::operand::{Operand, up};
use super::padding::Padding;
use super::parts::Sums;
use super::staging::{divide_among_threads, present};
use crate::dtype::DType;
use crate::ir::{Axis, Index, Note, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// The sizes of the tiles. All are powers of two but `parts`; `tm` divides `bm`, `tn` divides `bn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiles {
    /// Rows of C of a block.
    pub bm: i64,
    /// Columns of C of a block.
    pub bn: i64,
    /// Terms of the accumulators in a stage of shared memory.
    pub bk: i64,
    /// Rows of C of a thread.
    pub tm: i64,
    /// Columns of C of a thread.
    pub tn: i64,
    /// Stages of shared memory: with two, the loads of the next slice are in flight during the multiply-adds of this one.
    pub stages: i64,
    /// Parts of k, each summed by a block of its own (split-K).
    pub parts: i64,
}

/// `.minnctapersm`, the blocks for each multiprocessor that ptxas is asked for. Without it ptxas lowers the register count until one
/// more block fits, even if the kernel then spills. With a count estimated from the tile's registers 16 of 240 kernels spilled (six
/// combinations of types, five sizes, four layouts, sm_75 and sm_80); with one block none did.
pub(super) const MIN_BLOCKS: i64 = 1;

/// Steps of k written out at a time where operands or results are converted: of more, ptxas takes all loads in front
/// (63x8191x128 of s32: 152 registers for 16 steps, 64 for four).
const UNROLLED: i64 = 4;
/// The same of floats alone (1088x39x96 of f32 on sm_75: 255 registers and spills for 32 steps, 82 for eight).
const MOST_UNROLLED: i64 = 16;
/// k iterations that ptxas writes out all together, with the loads of all of them in front (13x11216x48 of f32 on sm_70: 255 registers and
/// spills for three iterations of 16 steps).
const FEW_ITERATIONS: i64 = 4;

impl Tiles {
    /// The cheapest tiles for the chip's device.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Tiles {
        let cheapest = Tiles::candidates(spec, target).first().map(|(_, tiles)| *tiles);
        cheapest.unwrap_or(Tiles { bm: 1, bn: 1, bk: 1, tm: 1, tn: 1, stages: 1, parts: 1 })
    }

    /// The tiles in words.
    pub(super) fn name(&self) -> String {
        let Tiles { bm, bn, bk, tm, tn, stages, parts } = *self;
        let split = if parts > 1 { format!(", split-K by {parts}") } else { String::new() };
        format!("tiles {bm}x{bn}x{bk} of {tm}x{tn} a thread, {stages} stages{split}")
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        (self.bm / self.tm) * (self.bn / self.tn)
    }

    /// What the tiles add to the GEMM. Elements that share a byte are read under conditions instead: no copy fills in one of them.
    fn padding(&self, spec: &GemmSpec) -> Padding {
        match shares_bytes(spec) {
            true => Padding::new(spec, [1, 1], 1),
            false => Padding::new(spec, [self.bm, self.bn], self.bk * self.parts),
        }
    }

    /// Whether the epilogue stores the tile of C through shared memory, so that stores are coalesced.
    fn rows(&self, spec: &GemmSpec) -> bool {
        let tile = self.bm * self.bn * i64::from(spec.out.bits()) / 8;
        self.parts == 1 && self.tn > 1 && has_unaligned_rows(spec) && !shares_bytes(spec) && tile <= cost::SHARED
    }

    /// The steps, for a program of [`crate::te::gemm`].
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let bk = self.bk;
        let (mut s, sums) = (Steps::new(), Sums::new(spec, self.padding(spec), self.parts).in_rows(self.rows(spec)));
        sums.divide(&mut s);
        self.nest(&mut s, spec, &sums);
        if self.rows(spec) {
            store_rows(&mut s, spec, "j_0", sums.leading("s_b"), self.threads());
        }
        for operand in Operand::BOTH {
            self.stage(&mut s, spec, operand, &sums);
        }
        s.decompose_reduction(sums.block(), "k_0");
        if self.stages > 1 {
            s.pipeline("k_0", self.stages);
        }
        let floats = [DType::F32, DType::F64].contains(&spec.a) && [spec.a; 3] == [spec.b, spec.acc, spec.out];
        let unrolled = match floats {
            true if bk <= MOST_UNROLLED && up(spec.k, bk * self.parts) > FEW_ITERATIONS => bk,
            true => MOST_UNROLLED / 2,
            false => UNROLLED,
        };
        if unrolled < bk {
            s.annotate("k_1", Note::UnrollLimit, unrolled);
        }
        sums.finish(&mut s);
        bind_batch(&mut s, spec);
        s
    }

    /// The loops of blocks and threads, and those of what stores the accumulators.
    fn nest(&self, s: &mut Steps, spec: &GemmSpec, sums: &Sums) {
        let Tiles { bm, bn, bk, tm, tn, .. } = *self;
        let stored = sums.keep_in_registers(s);
        let [gi, gj] = self.groups(spec);
        // Loops over groups that there may be.
        let [ig, jg] = [(gi, "i_g"), (gj, "j_g")].map(|(groups, name)| if groups > 1 { name } else { "" });
        let factors = |groups: i64, threads: i64, thread: i64| {
            let groups_first = (groups > 1).then_some(groups);
            groups_first.into_iter().chain([threads, thread / groups])
        };
        s.split("i", factors(gi, bm / tm, tm), present(["i_0", ig, "i_1", "i_2"]));
        s.split("j", factors(gj, bn / tn, tn), present(["j_0", jg, "j_1", "j_2"]));
        s.split("k", [bk], ["k_0", "k_1"]);
        s.reorder(present([sums.part(), "i_0", "j_0", "i_1", "j_1", "k_0", "k_1", ig, "i_2", jg, "j_2"]));
        s.fuse(["i_1", "j_1"], "t");
        let rows = rows_of(s, spec, ("i_0", up(spec.m, bm)));
        bind_blocks(s, rows, ("j_0", up(spec.n, bn)));
        s.bind("t", Axis::ThreadX).launch("j_0").min_blocks(MIN_BLOCKS);
        let first = sums.leading("c_p");
        if [gi, gj] == [1, 1] {
            s.reverse_compute_at(stored, "t").made(present([first, "c_0", "c_1"]));
            return;
        }
        // What a thread has are several boxes of C.
        let [ig, jg] = [(gi, "c_ig"), (gj, "c_jg")].map(|(groups, name)| if groups > 1 { name } else { "" });
        s.reverse_compute_at(stored, "j_0").made(present([first, "c_0", "c_1"]));
        s.split_all("c_0", factors(gi, bm / tm, tm), present([ig, "c_i", "c_ie"]));
        s.split_all("c_1", factors(gj, bn / tn, tn), present([jg, "c_j", "c_je"]));
        s.reorder(present([first, "c_i", "c_j", ig, "c_ie", jg, "c_je"]));
        s.fuse(["c_i", "c_j"], "c_t").bind("c_t", Axis::ThreadX);
        s.transform_layout(sums.registers(), self.layout(spec, sums));
    }

    /// Groups of 16 bytes in which a thread has its rows and its columns, one behind those of the threads next to it: adjacent lanes
    /// then read all banks of shared memory at once, and store whole sectors of C.
    fn groups(&self, spec: &GemmSpec) -> [i64; 2] {
        Operand::BOTH.map(|operand| {
            let [block, thread] = [[self.bm, self.tm], [self.bn, self.tn]][operand as usize];
            let wide = (128 / i64::from(operand.dtype(spec).bits())).max(1);
            if block > thread { (thread / wide).max(1) } else { 1 }
        })
    }

    /// The layout of the accumulators, by which threads and what each has are told apart.
    fn layout(&self, spec: &GemmSpec, sums: &Sums) -> IndexMap {
        let [gi, gj] = self.groups(spec);
        let both = |i: Index, j: Index| {
            let rows = digits(i, [gi, self.bm / self.tm, self.tm / gi]);
            [rows, digits(j, [gj, self.bn / self.tn, self.tn / gj])].concat()
        };
        match sums.leading("p") {
            "" => IndexMap::new(["i", "j"], |[i, j]| both(i, j)),
            _ => IndexMap::new(["p", "i", "j"], |[p, i, j]| [vec![p], both(i, j)].concat()),
        }
    }

    /// An operand's tile in shared memory.
    fn stage(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand, sums: &Sums) {
        let (name, x) = (operand.name(), operand.lower());
        let vector = self.vector(spec, operand);
        let loop_ = |end: &str| format!("{x}{end}");
        let staged = format!("{name}_shared");
        // With a name for each dimension those of one element have a loop, too.
        let batch = if spec.batch.is_some() { loop_("_b") } else { String::new() };
        let [first, second] = [loop_("0"), loop_("1")];
        sums.read(s, sums.block(), operand, Scope::Shared, &staged);
        s.compute_at(&staged, "k_0").made(present([&*batch, &first, &second]));
        divide_among_threads(s, [&first, &second], &loop_("e"), self.threads(), vector, ["_0", "_1", "_2"].map(loop_));
        s.vectorize(&loop_("_2")).bind(&loop_("_1"), Axis::ThreadX);
        if operand.along_k(spec) && !shares_bytes(spec) {
            let wide = 128 / i64::from(operand.dtype(spec).bits());
            let (map, dim) = match spec.batch {
                Some(_) => (IndexMap::new(["b", "i", "j"], |[b, i, j]| vec![b, j, i]), 1),
                None => (IndexMap::new(["i", "j"], |[i, j]| vec![j, i]), 0),
            };
            // Neighbours that store k outermost then use different banks.
            s.transform_layout(&staged, map).storage_align(&staged, dim, 2 * wide, wide);
        }
    }

    /// Elements that a thread copies at once: as many as 16 bytes and a whole share for each thread allow. Of elements that share bytes
    /// no fewer than those of one byte, none of another row, and none behind the end of the operand's row.
    fn vector(&self, spec: &GemmSpec, operand: Operand) -> i64 {
        let bits = i64::from(operand.dtype(spec).bits());
        let tile = [self.bm, self.bn][operand as usize] * self.bk;
        let row = if operand.along_k(spec) { self.bk } else { [self.bm, self.bn][operand as usize] };
        match ((128 / bits).min((tile / self.threads()).max(1)), 8 / bits) {
            (vector, per_byte) if per_byte > 1 => {
                vector.min(row).min(1 << operand.multiple(spec).trailing_zeros().min(7)).max(per_byte)
            }
            // Loads of unaligned rows are coalesced: adjacent lanes read adjacent elements.
            (vector, _) => vector.min(1 << operand.multiple(spec).trailing_zeros().min(6)),
        }
    }
}

/// Whether elements of an operand are smaller than a byte.
fn shares_bytes(spec: &GemmSpec) -> bool {
    spec.a.bits().min(spec.b.bits()) < 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    fn chosen(m: i64, n: i64, k: i64, dtype: DType, layout: Layout) -> Tiles {
        Tiles::choose(&GemmSpec::of(m, n, k, dtype, layout), &Target::sm_90a())
    }

    #[test]
    fn long_sums_of_few_tiles_are_divided_among_blocks() {
        for (m, n, k, layout) in [
            (32, 39, 4496, Layout::TT),
            (1472, 44, 7104, Layout::NT),
            (128, 64, 1334, Layout::TT),
            (16, 1275, 5504, Layout::TN),
            (1, 1, 65536, Layout::NN),
        ] {
            let t = chosen(m, n, k, DType::F32, layout);
            let blocks = up(m, t.bm) * up(n, t.bn) * t.parts;
            assert!(t.parts > 1, "{m}x{n}x{k}: {t:?}");
            assert!(blocks >= 16 && k / t.parts >= t.bk, "{m}x{n}x{k}: {blocks} blocks of {t:?}");
        }
        // Blocks enough, or too few terms.
        assert_eq!(chosen(4095, 4097, 4099, DType::F32, Layout::NN).parts, 1);
        assert_eq!(chosen(64, 64, 32, DType::F32, Layout::NN).parts, 1);
        let batch = GemmSpec::of(32, 39, 4496, DType::F32, Layout::TT).batch(Some(3));
        assert_eq!(Tiles::choose(&batch, &Target::sm_90a()).parts, 1);
    }

    #[test]
    fn threads_have_their_rows_and_columns_in_vectors() {
        let tiles = |tm, tn| Tiles { bm: 64, bn: 64, bk: 16, tm, tn, stages: 2, parts: 1 };
        let groups = |dtype, tm, tn| tiles(tm, tn).groups(&GemmSpec::of(256, 256, 256, dtype, Layout::NN));
        assert_eq!(groups(DType::F32, 8, 8), [2, 2]);
        assert_eq!(groups(DType::F32, 8, 4), [2, 1]);
        assert_eq!(groups(DType::F64, 4, 4), [2, 2]);
        assert_eq!(groups(DType::F16, 8, 8), [1, 1]);
        // A thread that has all columns of the tile reads one box.
        let whole = Tiles { bn: 8, ..tiles(8, 8) };
        assert_eq!(whole.groups(&GemmSpec::of(256, 8, 256, DType::F32, Layout::NN)), [2, 1]);
        let steps = tiles(8, 8).steps(&GemmSpec::of(256, 256, 256, DType::F32, Layout::NN)).to_string();
        assert!(steps.contains("split j ? 2 8 4 -> j_0 j_g j_1 j_2"), "{steps}");
    }

    #[test]
    fn large_products_have_large_tiles() {
        for (dtype, least) in [(DType::F32, 64 * 64), (DType::F64, 32 * 32), (DType::S32, 32 * 32)] {
            let t = chosen(4095, 4095, 4095, dtype, Layout::NN);
            assert!(t.bm * t.bn >= least && t.parts == 1, "{dtype}: {t:?}");
        }
        let few_terms = chosen(4095, 4095, 15, DType::F32, Layout::NN);
        assert!(few_terms.tm * few_terms.tn <= 16 && few_terms.bk <= 8, "{few_terms:?}");
    }

    #[test]
    fn tiles_suit_every_size_on_every_chip() {
        let most = crate::te::MAX_ELEMENTS;
        let sizes =
            [[1, 1, 1], [3, 5, 7], [1, 100, 3], [17, 4096, 4096], [4095, 4097, 4099], [most, 1, 1], [1, 1, most]];
        for ([m, n, k], target) in sizes.into_iter().flat_map(|size| Target::ALL.map(|target| (size, target))) {
            for dtype in [DType::F16, DType::F64, DType::S8, DType::S4] {
                let all = Tiles::candidates(&GemmSpec::of(m, n, k, dtype, Layout::NT), &target);
                let suits = |t: &Tiles| t.bm % t.tm == 0 && t.bn % t.tn == 0 && (1..=256).contains(&t.threads());
                assert!(
                    !all.is_empty() && all.iter().all(|(cycles, t)| suits(t) && cycles.is_finite()),
                    "{m}x{n}x{k} {dtype}"
                );
            }
        }
    }
}
