//! GEMMs with too few tiles to fill a device: warps or blocks divide the sum over k of a tile.
//!
//! *Slices* (sliced-K): groups of warps of a block alternate along k, each with the whole tile in its registers; the block adds their
//! tiles in shared memory. *Parts* (split-K): each block sums over a part of k. A second kernel adds the parts up from workspace, or the blocks
//! of a cluster add them up through distributed shared memory.
//! Both add in one fixed order. Slices keep a multiprocessor busy whose block has a small tile,
//! parts give work to multiprocessors that have none.

use super::epilogue::Accumulators;
use super::grid::bind_blocks;
use super::operand::up;
use super::padding::Padding;
use super::staging::{divide_among_threads, present};
use super::tuning;
use super::work::Passes;
use crate::ir::{Axis, Scope};
use crate::schedule::{IndexMap, Steps};
use crate::target::LANES;
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
        split_k(s, self.parts, Combine::Kernel);
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

/// Who adds up parts of k.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// A second kernel, from workspace.
    Kernel,
    /// The blocks of a cluster, through distributed shared memory. Each adds up its share of the rows or columns of the tile.
    Cluster,
}

/// Divides k among so many blocks (split-K), whose accumulators are block `parts`.
pub(super) fn split_k(s: &mut Steps, parts: i64, combine: Combine) {
    if parts == 1 {
        return;
    }
    let names = ["parts", "part", "ci", "cj", "cp"];
    match combine {
        Combine::Kernel => s.split_k("k", parts).made(names).bind("part", Axis::BlockZ),
        Combine::Cluster => s.split_k("k", parts).by_cluster().made(names),
    };
}

/// Where the loop over parts belongs: outside the loops over tiles (a grid axis), or inside them (the cluster). The other name is empty.
pub(super) fn part_loops(parts: i64, combine: Combine) -> [&'static str; 2] {
    match (parts, combine) {
        (1, _) => ["", ""],
        (_, Combine::Kernel) => ["part", ""],
        (_, Combine::Cluster) => ["", "part"],
    }
}

/// Numbers of parts that candidates have: at most 1.5 apart from each other.
pub(super) const PARTS: [i64; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];

/// Threads of a block that adds parts, one and several for an element of C.
const ADDING: i64 = 128;
const ADDING_SHARES: i64 = 256;
/// Threads that add the parts of an element where several do, and parts that each of them adds at least. Two of them gain nothing: of 12 and 16 parts they take
/// 1.002 and 1.004 times as long as one on an H200; of 32 parts four take 0.975 of the time, of 128 parts eight 0.79 (h200-2026-11-29/adders.jsonl).
const ADDERS: [i64; 2] = [8, 4];
const LEAST_SHARE: i64 = 6;
/// Banks of shared memory, each of an element of 32 bits.
const BANKS: i64 = 32;
/// The row pitch of accumulators in shared memory, modulo the banks, at which a warp's stores have no bank conflicts. A warp stores 8 rows by 4
/// pairs of adjacent columns, with swapped operands 8 columns by 8 rows, one element at a time.
pub(super) const PITCH_OF_PAIRS: i64 = 8;
pub(super) const PITCH_OF_ELEMENTS: i64 = 4;
/// Rows up to which the blocks of a cluster divide the columns of a tile. Some of so few rows may be padding, which would leave blocks idle.
const FEW_ROWS: i64 = 16;
/// Elements that a thread reads at once to add parts up.
const VECTOR: i64 = 4;

/// Adds up parts in a kernel of its own. A thread adds the parts of one element of C. Of many parts several threads add a share each, in the order of
/// the parts, and one of them adds the shares: so more loads are on their way at once. It converts to C and leaves out what lies beyond it.
pub(super) fn combine_parts(s: &mut Steps, accumulators: Accumulators, padding: &Padding, parts: i64) {
    let adders = adders(parts);
    let (thread, added) = if adders > 1 { ("rf", "hq") } else { ("c1", "cp") };
    if adders > 1 {
        s.split("cp", [parts / adders], ["cq", "cr"]).rfactor(accumulators.block(), "cq");
        s.made(["shares", "hi", "hj", "hq"]).set_scope("shares", Scope::Shared);
        s.cache_write("shares", "shares", Scope::Local, "S_l");
        let block = share_out(s, padding.result(), ADDING_SHARES / adders, adders);
        s.reorder([block, "cq", "c1", "cr"]).bind("cq", Axis::ThreadY);
        s.reverse_compute_at("S_l", "c1").made(["h0", "h1", "h2"]).unroll("cr");
        s.reverse_compute_at(accumulators.block(), block).made(["ri", "rj"]).fuse(["ri", "rj"], "rf");
        s.bind("rf", Axis::ThreadX);
    } else {
        share_out(s, padding.result(), ADDING, adders);
    }
    let stored = accumulators.keep_padded_in_registers(s, padding, "C_l");
    s.reverse_compute_at(stored, thread).unroll(added);
    if !accumulators.converts() {
        padding.crop(s);
    }
}

/// Threads that add the parts of an element. They depend on the number of parts alone, and so does the order of the sum: bits of a row do not depend
/// on how many rows there are.
pub(super) fn adders(parts: i64) -> i64 {
    let suits = |n: &i64| parts % n == 0 && parts / n >= LEAST_SHARE;
    ADDERS.into_iter().find(suits).unwrap_or(1)
}

/// How the blocks of a cluster divide a tile to add up its parts: the dimension (rows 0, columns 1), and its extent in a block. Rows come first,
/// because a block then stores longer contiguous runs of C.
pub(super) fn share(tile: [i64; 2], parts: i64) -> Option<(usize, i64)> {
    let order = if tile[0] > FEW_ROWS { [0, 1] } else { [1, 0] };
    order.into_iter().find(|d| tile[*d] % parts == 0).map(|d| (d, tile[d] / parts))
}

/// Whether the blocks of a cluster can add up so many parts of a tile, with equally many elements for each of their threads.
pub(super) fn shares_out(tile: [i64; 2], parts: i64, threads: i64) -> bool {
    parts > 1 && share(tile, parts).is_some() && tile[0] * tile[1] / parts % threads == 0
}

/// A tile of C whose parts the blocks of a cluster add up.
pub(super) struct ClusterTile {
    /// Rows and columns.
    pub tile: [i64; 2],
    /// Parts, and blocks of the cluster.
    pub parts: i64,
    /// Threads of a block.
    pub threads: i64,
    /// The row pitch in shared memory, modulo the banks.
    pub pitch: i64,
    /// Whether a part is copied to the block's own shared memory first, and stored to the other blocks in vectors.
    pub is_staged: bool,
}

impl ClusterTile {
    /// Keeps the accumulators of a part in registers. Loop `at` runs over warps or warpgroups.
    pub fn keep(&self, s: &mut Steps, at: &str) {
        if self.is_staged {
            s.cache_write("parts", "parts", Scope::Shared, "C_s").cache_write("parts", "C_s", Scope::Fragment, "C_f");
            s.reverse_compute_at("C_f", at).reverse_compute_at("C_s", "part").made(["s0", "s1"]);
            s.storage_align("C_s", 1, BANKS, self.pitch);
        } else {
            s.cache_write("parts", "parts", Scope::Fragment, "C_f").reverse_compute_at("C_f", at);
        }
    }

    /// Adds up the parts of a tile, under loop `tile`. Each block adds up an equal share of its rows or columns.
    pub fn combine(&self, s: &mut Steps, accumulators: Accumulators, padding: &Padding) {
        let (along, share) = share(self.tile, self.parts).unwrap_or((0, self.tile[0]));
        let by_block = IndexMap::new(["p", "i", "j"], |[p, i, j]| {
            let mut at = [i, j];
            let block = at[along].clone().floordiv(share);
            at[along] = at[along].clone().floormod(share);
            let [i, j] = at;
            vec![block, p, i, j]
        });
        s.transform_layout("parts", by_block).storage_align("parts", 2, BANKS, self.pitch);
        let stored = accumulators.keep_padded_in_registers(s, padding, "C_l");
        s.reverse_compute_at(accumulators.block(), "tile").made(["ci", "cj"]);
        if self.is_staged {
            s.fuse(["s0", "s1"], "s").split("s", [self.threads, VECTOR], ["s_0", "s_1", "s_2"]);
            s.bind("s_1", Axis::ThreadX).vectorize("s_2");
        }
        s.split(["ci", "cj"][along], [share], ["cr", "cs"]).bind("cr", Axis::Cluster);
        let own = if along == 0 { ["cs", "cj"] } else { ["ci", "cs"] };
        s.reorder(["cr", own[0], own[1]]);
        let elements = self.tile[0] * self.tile[1] / self.parts;
        let divides = |vector: &i64| elements % (self.threads * vector) == 0;
        let vector = [VECTOR, 2].into_iter().find(divides).unwrap_or(1);
        divide_among_threads(s, own, "cf", self.threads, vector, ["c0", "c1", "cv"].map(str::to_string));
        s.reorder(["cp", "cv"]).bind("c1", Axis::ThreadX);
        s.reverse_compute_at(stored, "c1").made(["yi", "yj"]).vectorize("yj").vectorize("cv").unroll("cp");
        if !accumulators.converts() {
            padding.crop(s);
        }
    }
}

/// Threads along a dimension of C: the largest power of two that divides its extent, so that no bound is checked. If that is less than a warp,
/// a whole block.
fn adding(side: i64, most: i64) -> i64 {
    let divisor = (1i64 << side.trailing_zeros()).min(most);
    if divisor >= LANES { divisor } else { most.min(side) }
}

/// Shares the elements of C out to blocks of so many threads: all of them in their order where whole blocks cover them, else those of its longer
/// side. Several adders need whole rows, or a part of one row, in each block. Returns the inner loop over blocks.
fn share_out(s: &mut Steps, [rows, columns]: [i64; 2], most: i64, adders: i64) -> &'static str {
    let mut inner = "c0";
    let boxes = adders == 1 || columns % most == 0 || most % columns == 0;
    if boxes && rows.saturating_mul(columns) % most == 0 {
        s.fuse(["ci", "cj"], "c").split("c", [most], ["c0", "c1"]).bind("c0", Axis::BlockX);
    } else if columns >= rows {
        let threads = adding(columns, most);
        s.split("cj", [threads], ["c0", "c1"]);
        bind_blocks(s, ("ci", rows), ("c0", up(columns, threads)));
    } else {
        let threads = adding(rows, most);
        s.split("ci", [threads], ["c0", "c1"]).reorder(["cj", "c1"]);
        bind_blocks(s, ("c0", up(rows, threads)), ("cj", columns));
        inner = "cj";
    }
    s.bind("c1", Axis::ThreadX);
    inner
}

/// Bytes of shared memory for the parts of a tile that a block of a cluster adds up.
pub(super) fn parts_bytes(tile: [i64; 2], parts: i64) -> i64 {
    match share(tile, parts) {
        Some((1, columns)) => parts * staged_bytes([tile[0], columns]),
        _ => parts * staged_bytes([up(tile[0], parts), tile[1]]),
    }
}

/// Bytes of shared memory for the accumulators of a tile, with padded rows.
pub(super) fn staged_bytes([rows, columns]: [i64; 2]) -> i64 {
    4 * rows * (up(columns, BANKS) * BANKS + PITCH_OF_PAIRS)
}

/// Bytes of the accumulators of a tile.
fn tile_bytes(tile: [i64; 2]) -> i64 {
    4 * tile[0] * tile[1]
}

/// Whether a part is copied to the block's own shared memory first. Its columns are a power of two, so that indices divide by shifts and
/// the verifier can prove the layout.
pub(super) fn stages_parts(tile: [i64; 2]) -> bool {
    tile_bytes(tile) >= tuning::STAGED_PARTS && tile[1].count_ones() == 1
}

/// Cycles in which a block stores its part of a tile to the other blocks of its cluster and waits for theirs.
pub(super) fn sharing_out(tile: [i64; 2], parts: i64) -> f64 {
    tuning::CLUSTER_BLOCK * parts as f64 + tile_bytes(tile) as f64 / tuning::CLUSTER_BYTES
}

/// What parts on tensor cores take besides the GEMM's own kernel: they are written to workspace, read by a kernel that adds them up, and C
/// is written.
pub(super) fn combining(spec: &GemmSpec, parts: i64, combine: Combine) -> Passes {
    match (parts, combine) {
        (1, _) | (_, Combine::Cluster) => Passes::default(),
        _ => Passes {
            kernels: tuning::COMBINING_LAUNCH,
            memory_bytes: (i64::from(spec.acc.bits()) / 8 * (2 * parts + 1)) as f64 * spec.m as f64 * spec.n as f64,
            ..Passes::default()
        },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::recommend::{offered, ordinary, scheduled};
    use crate::gemm::{Gemm, Product};
    use crate::lower::lower;
    use crate::sample::drawn;
    use crate::target::Target;
    use crate::te::Layout;
    use std::collections::BTreeMap;

    /// Recipes of each kind and number of parts that are lowered.
    const MOST: usize = 2;
    /// Numbers of parts of each kind of which recipes are lowered in every run.
    const LEAST: usize = 2;

    /// A sample of the kinds, numbers of parts and GEMMs, and the first ones of each kind.
    #[test]
    fn several_threads_add_the_parts_of_every_recipe() {
        let target = Target::sm_90a();
        let sizes = [[60, 500, 7000], [33, 17, 15120], [1, 4099, 9000], [5000, 3, 12001], [128, 72, 16384]];
        let types = [DType::F16, DType::F32, DType::S8, DType::F64];
        let mut kinds: BTreeMap<(String, i64, usize, usize), usize> = BTreeMap::new();
        let count = |kinds: &BTreeMap<(String, i64, usize, usize), usize>, kind: &str| {
            kinds.iter().filter(|((k, ..), lowered)| k == kind && **lowered > 0).count()
        };
        for (n, [m, n_, k]) in sizes.into_iter().enumerate() {
            for (t, dtype) in types.into_iter().enumerate() {
                let gemm = Gemm::new(m, n_, k).of(dtype).layout(Layout::ALL[(n + t) % 4]);
                let product = Product::of_gemm(&gemm).unwrap();
                let ordinary = ordinary(&product.spec, &target).into_iter().map(|ranked| ranked.recipe);
                for recipe in offered(&product.spec, &target, 99).into_iter().chain(ordinary) {
                    let steps = recipe.steps(&product.spec);
                    let text = steps.to_string();
                    let Some(parts) = text.split("split_k k ").nth(1).and_then(|t| t.split_once(' ')) else { continue };
                    let parts: i64 = parts.0.parse().unwrap();
                    if adders(parts) == 1 || text.contains("cluster") {
                        continue;
                    }
                    assert!(text.contains("rfactor"), "{text}");
                    let kind = recipe.name().split(' ').next().unwrap().to_string();
                    let is_tried = count(&kinds, &kind) < LEAST || drawn(&format!("{kind} {parts} {gemm:?}"), 4);
                    let lowered = kinds.entry((kind, parts, n, t)).or_default();
                    if *lowered == MOST || !is_tried {
                        continue;
                    }
                    let schedule = scheduled(&product, &target, steps).unwrap().unwrap();
                    match schedule.scheduled().and_then(|func| lower(&func, &target)) {
                        Ok(_) => *lowered += 1,
                        // Some candidates do not lower, whoever adds their parts.
                        Err(e) => assert!(!e.to_string().contains("S_l") && !e.to_string().contains("shares"), "{e}"),
                    }
                }
            }
        }
        assert!(["wgmma", "mma", "tiles", "pipelined", "gemv"].iter().all(|k| count(&kinds, k) > 1), "{kinds:?}");
    }

    #[test]
    fn the_number_of_adders_follows_from_the_parts() {
        let of = |parts: &[i64]| parts.iter().map(|parts| adders(*parts)).collect::<Vec<_>>();
        assert_eq!(of(&[2, 12, 16, 24, 32, 48, 64, 96, 128]), [1, 1, 1, 4, 4, 8, 8, 8, 8]);
        assert!(PARTS.into_iter().all(|parts| parts % adders(parts) == 0));
    }
}
