//! Quantised weights on Hopper's tensor cores: wgmma with the dequantised weights as operand A from registers.
//!
//! A and B are swapped (C^T = D X^T), so that rows of the instruction are rows of W and its n extent is the rows of X: 8 to 256. TMA fills a
//! ring of stages with tiles of X, packed weights, scales and zero points. In each stage a lane loads its weights, 16 bytes at a time, and
//! dequantises them to the fragment of the instruction. While one warpgroup dequantises, the tensor cores run the wgmmas of another
//! warpgroup, or of another block of the multiprocessor.

use super::{Quantized, ROWS, Tiles};
use crate::gemm::epilogue::Accumulators;
use crate::gemm::grid::{ClusterLoops, group_of, walk};
use crate::gemm::operand::Operand;
use crate::gemm::padding::Padding;
use crate::gemm::split::{ClusterTile, Combine, PITCH_OF_ELEMENTS, part_loops, shares_out, split_k};
use crate::gemm::staging::present;
use crate::ir::{Axis, BindMode, CopyKind, Note, Scope};
use crate::schedule::Steps;
use crate::target::{LANES, Target};

/// Terms of an instruction.
pub(super) const TERMS: i64 = 16;
/// Bytes of the rows of a swizzled tile, and bits of an element of X.
const PANEL: i64 = 128;
/// Rows of X that are stored at once from a tile of more.
const STORED_ROWS: i64 = 64;
/// Registers of a thread that loads.
pub(super) const PRODUCER_REGISTERS: i64 = 24;
/// Rows of the largest matrix of stmatrix.trans, and columns of C that a warp has of 64.
const MATRIX: i64 = 16;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FromRegisters {
    /// Rows of X of a tile: the n extent of the instruction.
    pub rows: i64,
    /// Rows of W of a tile: those of an instruction, times these of a warpgroup, times the warpgroups.
    pub tall: i64,
    /// Warpgroups that multiply.
    pub warpgroups: i64,
    /// k extent of a stage.
    pub bk: i64,
    /// Stages of the ring.
    pub stages: i64,
    /// Parts of k, which the blocks of a cluster add up.
    pub parts: i64,
    /// Blocks of a cluster that share the tile of X.
    pub sharing: i64,
    /// As many blocks as fit at once walk the tiles.
    pub persistent: bool,
    /// A producer warpgroup issues the TMA loads; without one the warpgroups meet at a barrier in each stage.
    pub has_producer: bool,
    /// Blocks that share a multiprocessor.
    pub resident: i64,
    /// The next kernel may begin beside this one.
    pub releases_early: bool,
    /// Scales multiply partial sums, not weights. With one part of k alone.
    pub promoted: bool,
}

impl FromRegisters {
    /// Rows of W of a tile.
    pub fn weights(&self) -> i64 {
        ROWS * self.tall * self.warpgroups
    }

    /// Whether the body of the loop over stages has an iteration for each stage of the ring, so that slots are constants: 1x28672x8192 takes 37.5 us
    /// on an H200 in 64 rows of W with eight stages, and 39.5 without (h200-2026-11-30/weights.jsonl). With a producer it was not measured.
    fn unrolls(&self, q: &Quantized) -> bool {
        let iterations = q.sizes[2] / self.bk / self.parts;
        !self.has_producer && self.stages > 1 && iterations % self.stages == 0
    }

    /// Rows of C that are stored at once.
    pub(super) fn stored_rows(&self) -> i64 {
        if self.rows % STORED_ROWS == 0 { STORED_ROWS } else { self.rows }
    }

    /// The steps, for [`Quantized::program`] with packed weights.
    pub fn steps(&self, q: &Quantized) -> Steps {
        let spec = q.product();
        let padding = Padding::new(&spec, [self.rows, 1], 1);
        let mut s = Steps::new();
        padding.pad(&mut s, "mma");
        s.compute_inline(if self.promoted { "D" } else { "U" });
        if self.parts == 1 {
            self.pad_conversion(&mut s, q, &padding);
        }
        split_k(&mut s, self.parts, Combine::Cluster);
        self.nest(&mut s, q);
        self.operands(&mut s, q, &padding);
        self.epilogue(&mut s, q, &padding);
        if self.stages > 1 {
            // Partial sums are complete in each stage.
            s.pipeline("k0", self.stages).in_flight(i64::from(self.stages > 2 && !self.promoted));
        }
        if self.unrolls(q) {
            s.annotate("k0", Note::UnrollLimit, self.stages);
        }
        if self.has_producer {
            let zeros = if q.has_zeros { Some("Z_s") } else { None };
            let copied: Vec<&str> = ["X_s", "P_s", "S_s"].into_iter().chain(zeros).collect();
            s.specialize(copied, "load", 4).registers(PRODUCER_REGISTERS);
        }
        s
    }

    /// Whether the tiles reach beyond C.
    fn crops(&self, q: &Quantized, padding: &Padding) -> bool {
        padding.pads_result() || q.sizes[1] % ROWS != 0
    }

    /// Stages whole tiles of C.
    fn pad_conversion(&self, s: &mut Steps, q: &Quantized, padding: &Padding) {
        if padding.pads_result() {
            s.compute_inline("acc_pad");
        }
        if self.crops(q, padding) {
            let uneven = [("i", q.sizes[0], self.rows), ("j", q.sizes[1], ROWS)];
            let is_open = |side: &str| side == "i" && q.least.is_some();
            let uneven = uneven.into_iter().filter(|(side, size, multiple)| size % multiple != 0 || is_open(side));
            s.pad("out", uneven.map(|(l, _, multiple)| (format!("out_{l}"), multiple))).made(["acc_out", "C_pad"]);
            s.compute_inline("acc_out");
        }
    }

    /// The block that sums.
    fn sums(&self) -> &'static str {
        if self.parts > 1 { "parts" } else { "mma" }
    }

    fn cluster(&self) -> ClusterLoops {
        ClusterLoops::new([1, self.sharing])
    }

    /// The loops of blocks, warpgroups and instructions.
    fn nest(&self, s: &mut Steps, q: &Quantized) {
        let [_, (cj, jc)] = self.cluster().factors();
        let (tall, io) = if self.tall > 1 { (Some(self.tall), "io") } else { (None, "") };
        let (terms, kb) = (q.partial_terms(self.bk), q.group_loop(self.bk));
        let [i, j] = if self.promoted { ["ri", "rj"] } else { ["i", "j"] };
        if self.promoted {
            s.split("k", [terms], ["kg", "kt"]).promote("mma", "kg").made(["part", i, j, "k0"]);
            if kb != "k0" {
                s.split("k0", [self.bk / terms], ["k0", kb]);
            }
        }
        s.split(i, [self.rows], ["i0", "in"]);
        let factors = cj.into_iter().chain([self.warpgroups]).chain(tall).chain([ROWS]);
        s.split(j, factors, present(["j0", jc, "jw", io, "jm"]));
        let [_, part] = part_loops(self.parts, Combine::Cluster);
        if self.promoted {
            s.reorder(present(["i0", "j0", jc, "jw", "k0", if kb == "k0" { "" } else { kb }, io, "jm", "in"]));
        } else {
            s.split("k", [self.bk / TERMS, TERMS], ["k0", "kk", "ki"]);
            s.reorder(present(["i0", "j0", jc, part, "jw", "k0", "kk", io, "jm", "in", "ki"]));
        }
        let mode = if self.persistent { BindMode::Persistent } else { BindMode::Plain };
        walk(s, "i0", group_of(&q.product(), RASTER_GROUP), mode);
        s.bind("jw", Axis::Warpgroup);
        if self.resident > 1 || self.releases_early {
            s.launch("tile");
        }
        if self.resident > 1 {
            s.min_blocks(self.resident);
        }
        if self.releases_early {
            s.grid_dependency(2);
        }
        self.cluster().bind(s);
    }

    /// X in shared memory, and the weights on their way to registers.
    fn operands(&self, s: &mut Steps, q: &Quantized, padding: &Padding) {
        let (sums, x) = (self.sums(), q.activations);
        let (products, weights, scaled) = if self.promoted { ("part", "U", sums) } else { (sums, "D", "D") };
        if self.promoted {
            let at = if self.tall > 1 { "io" } else { q.group_loop(self.bk) };
            s.compute_at("part", at).made(["p0", "p1"]).set_scope("part", Scope::Fragment);
            s.split("kt", [TERMS], ["kk", "ki"]).reorder(["kk", "p1", "p0", "ki"]);
        }
        let pads = padding.pads_result();
        let source = if pads { "X_pad" } else { "X" };
        s.cache_read(products, source, Scope::Shared, "X_s").compute_at("X_s", "k0");
        if pads {
            s.compute_inline("X_pad");
        }
        s.swizzle("X_s", PANEL.min(self.bk * i64::from(x.bits()) / 8)).copy_with("X_s", CopyKind::Tma);
        if let Some(sharing) = self.cluster().sharing(Operand::A) {
            s.multicast(sharing);
        }
        s.set_scope(weights, Scope::Fragment);
        if self.parts > 1 {
            self.parts_tile().keep(s, "jw");
        } else {
            s.set_scope(padding.converted(), Scope::Fragment);
        }
        s.compute_at(weights, if self.promoted { q.group_loop(self.bk) } else { "k0" }).made(["d0", "d1"]);
        if self.promoted {
            s.decompose_reduction(sums, "k0");
        }
        let [j, i] = if self.promoted { ["p1", "p0"] } else { ["jm", "in"] };
        s.tensorize_by(j, &format!("wgmma_rs.m64n{}k16.f32.{x}.{x}", self.rows), [j, i, "ki"]);
        let zeros = q.has_zeros.then_some([weights, "Z", "Z_s"]);
        for [of, from, to] in [[weights, "P", "P_s"], [scaled, "S", "S_s"]].into_iter().chain(zeros) {
            s.cache_read(of, from, Scope::Shared, to).compute_at(to, "k0").copy_with(to, CopyKind::Tma);
        }
        s.cache_read(weights, "P_s", Scope::Fragment, "P_f");
    }

    fn parts_tile(&self) -> ClusterTile {
        ClusterTile {
            tile: [self.rows, self.weights()],
            parts: self.parts,
            threads: 4 * LANES * self.warpgroups,
            pitch: PITCH_OF_ELEMENTS,
            is_staged: false,
        }
    }

    /// Whether the blocks of a cluster can add up the parts.
    pub(super) fn adds_up(&self) -> bool {
        self.parts == 1 || shares_out([self.rows, self.weights()], self.parts, 4 * LANES * self.warpgroups)
    }

    /// From accumulators, whose rows are columns of C, to C.
    fn epilogue(&self, s: &mut Steps, q: &Quantized, padding: &Padding) {
        if self.parts > 1 {
            return self.parts_tile().combine(s, Accumulators::Converted, padding);
        }
        let crops = self.crops(q, padding);
        let c = if crops { "C_pad" } else { "C" };
        s.cache_write("out", c, Scope::Shared, "C_s").cache_write("out", "C_s", Scope::Fragment, "C_f");
        s.reverse_compute_at("out", "jw").made(["e0", "en"]);
        let at = if self.stored_rows() < self.rows { "ep" } else { "jw" };
        if at == "ep" {
            s.split("e0", [self.stored_rows()], ["ep", "e1"]);
        }
        s.reverse_compute_at("C_f", at).made(["f0", "f1"]);
        let matrix = if self.stored_rows() % MATRIX == 0 { MATRIX } else { MATRIX / 2 };
        let (tall, fo) = if self.tall > 1 { (Some(ROWS / MATRIX), "fo") } else { (None, "") };
        s.split("f0", [matrix], ["fc", "fi"]);
        s.split("f1", tall.into_iter().chain([MATRIX]), present([fo, "fw", "fr"]));
        s.reorder(present([fo, "fw", "fc", "fi", "fr"])).bind("fw", Axis::Warp);
        s.tensorize("fi", &format!("stmatrix.trans.m{matrix}n{MATRIX}.{}", q.activations)).swizzle("C_s", PANEL);
        s.reverse_compute_at("C_s", at).made(["s0", "s1"]).copy_with("C_s", CopyKind::Tma);
        if at == "ep" {
            s.pipeline("ep", 2);
        }
        if crops {
            s.reverse_compute_inline("C_pad");
        }
    }

    /// The tiles, the cheapest first; none where the chip or the product has no form for them.
    pub fn candidates(q: &Quantized, target: &Target) -> Vec<FromRegisters> {
        let own = |tiles| if let Tiles::Registers(tiles) = tiles { Some(tiles) } else { None };
        super::cost::tiles(q, target).into_iter().filter_map(|(_, tiles)| own(tiles)).collect()
    }
}

/// Rows of blocks that are walked together.
const RASTER_GROUP: i64 = 8;
