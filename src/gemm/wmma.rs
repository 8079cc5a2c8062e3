//! The recipe for products on tensor cores through opaque fragments (wmma): f16, bf16 and 8-bit integers, from the first chips
//! that have such cores.
//!
//! Tiles of both operands lie in shared memory as they lie in device memory, in rows padded by 16 bytes; the instruction's own
//! loads take either major, so no layout is turned on the way. Chips without asynchronous copies load the next tile into
//! registers while one is multiplied, others keep several in flight. What the cores have summed can be read by no thread, so
//! it is stored to shared memory, in bytes that held the operands, and copied out from there: cast, and cut off where the tiles
//! reach beyond C. Only accumulators that need neither go straight to device memory.

use super::grid::{bound_batch, rows_of};
use super::operand::{Operand, along_k, contiguous, up};
use super::tuning;
use super::work::{Work, cycles};
use crate::dtype::DType;
use crate::target::{Features, REGISTERS_PER_SM, Target};
use crate::te::GemmSpec;
use std::fmt::Write as _;

/// What the recipe decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wmma {
    /// Rows and columns of C of a block.
    pub block: [i64; 2],
    /// Warps of a block, along rows and columns of C.
    pub warps: [i64; 2],
    /// m, n and k of the instruction.
    pub shape: [i64; 3],
    /// Terms of the accumulators in a stage of shared memory.
    pub bk: i64,
    /// Stages.
    pub stages: i64,
    /// Whether tiles are copied asynchronously.
    pub asynchronous: bool,
    /// Whether a warp loads operands one step of k ahead.
    pub ahead: bool,
    /// Rows of blocks that are walked together.
    pub group: i64,
}

/// Tiles and warps to choose from, with the share of the rate of the largest that they reach: a guess by the bytes that a
/// product moves, not measured.
const CANDIDATES: [([i64; 2], [i64; 2], f64); 5] = [
    ([128, 128], [2, 4], 1.0),
    ([128, 64], [2, 2], 0.85),
    ([64, 128], [2, 2], 0.85),
    ([64, 64], [2, 2], 0.65),
    ([32, 32], [2, 1], 0.35),
];
/// Registers of a thread besides accumulators and operands.
const ADDRESSES: i64 = 48;
/// More of them where the tiles reach beyond the product: conditions, and addresses that they keep apart.
const EDGE_ADDRESSES: i64 = 40;

impl Wmma {
    /// The cheapest tiles; `None` where the chip or its tensor cores have no such product, or it is smaller than a tile.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Wmma> {
        Wmma::candidates(spec, target).first().copied()
    }

    /// All tiles that suit the product and fit on the chip, the cheapest first.
    pub(super) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<Wmma> {
        let known = needs(spec).is_some_and(|features| target.has(features));
        if !known || spec.m.min(spec.n) < 16 || spec.k < 16 {
            return Vec::new();
        }
        let device = target.device();
        let cost = |(block, _, share): &([i64; 2], [i64; 2], f64)| cycles(&work(spec, *block, *share), &device);
        let all = CANDIDATES.iter().map(|c| (c, Wmma::of(spec, target, c.0, c.1)));
        let mut fitting: Vec<_> =
            all.filter(|(_, w)| w.shared(spec) <= i64::from(target.limits.shared_optin)).collect();
        fitting.sort_by(|(a, _), (b, _)| cost(a).total_cmp(&cost(b)));
        fitting.into_iter().map(|(_, w)| w).collect()
    }

    /// These tiles, with stages that suit them and the chip.
    pub fn of(spec: &GemmSpec, target: &Target, block: [i64; 2], warps: [i64; 2]) -> Wmma {
        let asynchronous = target.has(Features::CP_ASYNC);
        // An unaligned row is loaded element by element, and each element of the prefetched k tile occupies a register. A k tile of 64
        // bytes spills (batch of 7 of 2880x2594x169051 u8 NT on sm_90: 192 bytes; 195 registers with 32).
        let aligned = Operand::BOTH.into_iter().all(|operand| is_aligned(spec, operand));
        let bk = if aligned { 512 / i64::from(spec.a.bits()) } else { 32 };
        let stages = if asynchronous { 3 } else { 2 };
        let mut wmma = Wmma { block, warps, shape: [16, 16, 16], bk, stages, asynchronous, ahead: true, group: 8 };
        wmma.ahead = wmma.registers(spec) <= 224;
        wmma
    }

    /// Threads of a block.
    pub fn threads(&self) -> i64 {
        32 * self.warps[0] * self.warps[1]
    }

    /// Bytes of shared memory of a block.
    pub fn shared(&self, spec: &GemmSpec) -> i64 {
        let slot: i64 = Operand::BOTH
            .into_iter()
            .map(|operand| {
                let (rows, row) = self.tile(spec, operand);
                rows * (row + chunk(spec)) * bits(spec) / 8
            })
            .sum();
        let sums = if self.is_direct(spec) { 0 } else { self.block[0] * (self.block[1] + 8) * 4 };
        (slot * self.stages).max(sums)
    }

    /// Registers of a thread, estimated.
    fn registers(&self, spec: &GemmSpec) -> i64 {
        let [tm, tn] = self.tiles();
        let sums = tm * tn * self.shape[0] * self.shape[1] * i64::from(spec.acc.bits()) / 1024;
        // Of f16 operands eight for any shape, of others what they hold.
        let factor = |rows: i64| match spec.a {
            DType::F16 => 8,
            _ => rows * self.shape[2] * bits(spec) / 1024,
        };
        let factors = tm * factor(self.shape[0]) + tn * factor(self.shape[1]);
        // A tile on its way through registers.
        let copied = if self.asynchronous {
            0
        } else {
            (self.block[0] + self.block[1]) * self.bk * bits(spec) / 32 / self.threads()
        };
        sums + factors * if self.ahead { 2 } else { 1 } + copied + ADDRESSES
    }

    /// Blocks that a multiprocessor has registers for.
    fn resident(&self, spec: &GemmSpec) -> i64 {
        let edges = if Operand::BOTH.into_iter().any(|operand| self.pads(spec, operand)) { EDGE_ADDRESSES } else { 0 };
        (i64::from(REGISTERS_PER_SM) / (up(self.registers(spec) + edges, 8) * 8 * self.threads())).max(1)
    }

    /// Tiles of the instruction that a warp has, along rows and columns.
    fn tiles(&self) -> [i64; 2] {
        [0, 1].map(|d| self.block[d] / self.warps[d] / self.shape[d])
    }

    /// Rows of an operand's tile in shared memory, and elements of one.
    fn tile(&self, spec: &GemmSpec, operand: Operand) -> (i64, i64) {
        if along_k(spec)[operand as usize] {
            (self.block[operand as usize], self.bk)
        } else {
            (self.bk, self.block[operand as usize])
        }
    }

    /// Whether an operand is read beyond its ends.
    fn pads(&self, spec: &GemmSpec, operand: Operand) -> bool {
        spec.k % self.bk != 0 || [spec.m, spec.n][operand as usize] % self.block[operand as usize] != 0
    }

    /// Whether the tiles reach beyond C.
    fn grows(&self, spec: &GemmSpec) -> bool {
        spec.m % self.block[0] != 0 || spec.n % self.block[1] != 0
    }

    /// Whether accumulators are stored as they are: of C's type, to rows that are aligned.
    fn is_direct(&self, spec: &GemmSpec) -> bool {
        spec.acc == spec.out && !self.grows(spec)
    }
}

/// The steps.
impl Wmma {
    /// The steps as text, for a program of [`crate::te::gemm`] of types that the instruction has.
    pub fn steps(&self, spec: &GemmSpec) -> String {
        let sums = if spec.acc == spec.out { "C" } else { "mma" };
        let mut out = self.pad(spec, sums);
        out += &self.nest(spec, sums);
        for operand in Operand::BOTH {
            out += &self.stage(spec, operand, sums);
        }
        let _ = writeln!(out, "pipeline k0 stages={}", self.stages);
        for operand in Operand::BOTH {
            out += &self.fragment(spec, operand, sums);
        }
        if self.ahead {
            out.push_str("pipeline kk stages=2\n");
        }
        let majors = [major(spec, Operand::A), major(spec, Operand::B)].join(".");
        let types = format!("{}.{}.{}", spec.acc, spec.a, spec.b);
        let _ = writeln!(
            out,
            "decompose_reduction {sums} k0 -> zero\ntensorize ii wmma.mma.{majors}.{}.{types}",
            self.geometry()
        );
        out + bound_batch(spec)
    }

    fn geometry(&self) -> String {
        let [m, n, k] = self.shape;
        format!("m{m}n{n}k{k}")
    }

    fn pad(&self, spec: &GemmSpec, sums: &str) -> String {
        let sizes = [("i", spec.m, self.block[0]), ("j", spec.n, self.block[1]), ("k", spec.k, self.bk)];
        let pads: Vec<String> =
            sizes.iter().filter(|(_, size, by)| size % by != 0).map(|(l, _, by)| format!("{l}={by}")).collect();
        if pads.is_empty() { String::new() } else { format!("pad {sums} {}\n", pads.join(" ")) }
    }

    /// The loops of blocks, warps and instructions, and how the accumulators of a block leave it.
    fn nest(&self, spec: &GemmSpec, sums: &str) -> String {
        let ([wi, wj], [ti, tj], [m, n, k]) = (self.warps, self.tiles(), self.shape);
        // Tiles that pass through registers: left alone, ptxas spills a few values to fit one more block.
        let bound = match self.resident(spec) {
            _ if self.asynchronous => String::new(),
            blocks => format!("; launch tile min_blocks={blocks}"),
        };
        let (converts, grows, geometry) = (spec.acc != spec.out, self.grows(spec), self.geometry());
        let mut out = String::new();
        let (fused, (rows, _)) = rows_of(spec, ("i0", up(spec.m, self.block[0])));
        // The buffer that the fragment is stored to, and the block that copies it on.
        let (stored, last) = match (converts, grows) {
            (true, true) => ("acc_pad", "out"),
            (true, false) => ("acc", "out"),
            (false, true) => ("C_pad", "C_pad"),
            (false, false) => ("C", ""),
        };
        if converts && grows {
            out.push_str("compute_inline acc_pad\n");
        }
        if !self.is_direct(spec) {
            let _ = writeln!(out, "set_scope {stored} shared");
        }
        let _ = write!(
            out,
            "cache_write {sums} {stored} fragment -> C_f\n\
             split i ? {wi} {ti} {m} -> i0 iw im ii; split j ? {wj} {tj} {n} -> j0 jw jm ji\n\
             split k ? {} {k} -> k0 kk ki\nreorder i0 j0 iw jw k0 kk im jm ii ji ki\n{fused}\
             rasterize {rows} j0 group={} -> tile; bind tile blockIdx.x{bound}; fuse iw jw -> w; bind w warp\n\
             reverse_compute_at C_f w -> o0 o1; split o0 ? {m} -> om oi; split o1 ? {n} -> on oj; reorder om on oi oj\n\
             tensorize oi wmma.store.d.row.{geometry}.{}\n",
            self.bk / k,
            self.group,
            spec.acc
        );
        if !self.is_direct(spec) {
            let vector = 128 / i64::from(spec.out.bits());
            let _ = write!(
                out,
                "storage_align {stored} {} {} 8\nreverse_compute_at {last} tile -> s0 s1; fuse s0 s1 -> s\n\
                 split s ? {} {vector} -> s_0 s_1 s_2; bind s_1 threadIdx.x; {} s_2\n",
                row_dimension(spec),
                self.block[1],
                self.threads(),
                if spec.n % vector == 0 { "vectorize" } else { "unroll" },
            );
        }
        out
    }

    /// A operand's tile in shared memory.
    fn stage(&self, spec: &GemmSpec, operand: Operand, sums: &str) -> String {
        let (name, x) = (operand.name(), operand.lower());
        let (vector, (_, row)) = (chunk(spec), self.tile(spec, operand));
        let source = if self.pads(spec, operand) { format!("{name}_pad") } else { name.to_string() };
        let mut out = format!("cache_read {sums} {source} shared -> {name}_s\n");
        if self.pads(spec, operand) {
            let _ = writeln!(out, "compute_inline {source}");
        }
        let _ = writeln!(
            out,
            "compute_at {name}_s k0 -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}e; split {x}e ? {} {vector} -> {x}_0 {x}_1 {x}_2\n\
             bind {x}_1 threadIdx.x; vectorize {x}_2; storage_align {name}_s {} {row} {vector}",
            self.threads(),
            row_dimension(spec),
        );
        // Threads copy unaligned rows through registers, element by element.
        if self.asynchronous && is_aligned(spec, operand) {
            let _ = writeln!(out, "copy_with {name}_s cp_async");
        }
        out
    }

    /// What a warp has of an operand in registers, tile by tile of the instruction.
    fn fragment(&self, spec: &GemmSpec, operand: Operand, sums: &str) -> String {
        let (name, f, size) = (operand.name(), ["f", "g"][operand as usize], self.shape[operand as usize]);
        let load = format!("wmma.load.{}.{}.{}.{}", operand.lower(), major(spec, operand), self.geometry(), spec.a);
        let tiles = match along_k(spec)[operand as usize] {
            true => format!("split {f}0 ? {size} -> {f}m {f}i; tensorize {f}i {load}"),
            false => format!("split {f}1 ? {size} -> {f}m {f}i; reorder {f}m {f}0 {f}i; tensorize {f}0 {load}"),
        };
        format!("cache_read {sums} {name}_s fragment -> {name}_f; compute_at {name}_f kk -> {f}0 {f}1; {tiles}\n")
    }
}

/// What a GEMM asks of the device in blocks of this tile, which reach a share of the rate of the largest.
fn work(spec: &GemmSpec, block: [i64; 2], share: f64) -> Work {
    let mma = (block[0] * block[1]) as f64 / share;
    Work {
        mma,
        iterations: spec.k as f64,
        prologue: tuning::WMMA_EDGES * mma,
        tiles: up(spec.m, block[0]).saturating_mul(up(spec.n, block[1])).saturating_mul(spec.products()),
        ..Work::NONE
    }
}

/// What a chip must have; `None` where no chip has the instruction.
fn needs(spec: &GemmSpec) -> Option<Features> {
    use DType::{Bf16, F16, F32, S8, S32, U8};
    match (spec.a, spec.b, spec.acc) {
        (F16, F16, F16 | F32) => Some(Features::WMMA),
        (Bf16, Bf16, F32) => Some(Features::WMMA | Features::MMA_AMPERE),
        (S8, S8, S32) | (U8, U8, S32) => Some(Features::WMMA_INT),
        _ => None,
    }
}

/// In the instruction's words: of A rows run along k, of B columns.
fn major(spec: &GemmSpec, operand: Operand) -> &'static str {
    if along_k(spec)[operand as usize] == (operand == Operand::A) { "row" } else { "col" }
}

/// The dimension that counts rows of an operand or of C.
fn row_dimension(spec: &GemmSpec) -> i64 {
    i64::from(spec.batch.is_some())
}

fn bits(spec: &GemmSpec) -> i64 {
    i64::from(spec.a.bits())
}

/// Whether each row of an operand begins at a multiple of 16 bytes.
fn is_aligned(spec: &GemmSpec, operand: Operand) -> bool {
    contiguous(spec, operand) % chunk(spec) == 0
}

/// Elements of 16 bytes.
fn chunk(spec: &GemmSpec) -> i64 {
    128 / i64::from(spec.a.bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    fn choice(m: i64, n: i64, k: i64, dtype: DType, target: Target) -> Option<Wmma> {
        Wmma::choose(crate::gemm::Gemm::new(m, n, k).of(dtype).layout(Layout::NN).spec(), &target)
    }

    #[test]
    fn large_products_get_large_tiles() {
        let volta = choice(4096, 4096, 4096, DType::F16, Target::sm_70()).unwrap();
        assert_eq!((volta.block, volta.stages, volta.asynchronous), ([128, 128], 2, false));
        // The accumulators of such a tile in f32 are more than a block of this chip has shared memory for.
        assert_eq!(choice(4096, 4096, 4096, DType::F16, Target::sm_75()).map(|w| w.block), Some([128, 64]));
        let ampere = choice(4096, 4096, 4096, DType::S8, Target::sm_80()).unwrap();
        assert_eq!((ampere.block, ampere.stages, ampere.asynchronous), ([128, 128], 3, true));
        assert_eq!(choice(128, 128, 512, DType::F16, Target::sm_70()).map(|w| w.block), Some([32, 32]));
    }

    #[test]
    fn what_no_instruction_has_is_left_to_others() {
        assert_eq!(choice(4096, 4096, 4096, DType::S8, Target::sm_70()), None);
        assert_eq!(choice(4096, 4096, 4096, DType::Bf16, Target::sm_75()), None);
        assert_eq!(choice(4096, 4096, 4096, DType::F32, Target::sm_90()), None);
        assert_eq!(choice(8, 4096, 4096, DType::F16, Target::sm_70()), None);
    }
}
