//! The recipe for products on tensor cores through opaque fragments (wmma): f16, bf16 and 8-bit integers, from the first chips
//! that have such cores.
//!
//! Tiles of both operands lie in shared memory as they lie in device memory, in rows padded by 16 bytes; the instruction's own
//! loads take either major, so no layout is transposed on the way. Chips without asynchronous copies load the next tile into
//! registers while one is multiplied, others keep several in flight. What the cores have summed can be read by no thread, so
//! it is stored to shared memory, in bytes that held the operands, and copied out from there: cast, and cut off where the tiles
//! reach beyond C. Only accumulators that need neither go straight to device memory.

use super::epilogue::{Accumulators, divide_rows};
use super::grid::{bind_batch, group_of, rows_of, walk};
use super::operand::{Operand, multiple_of_result, up};
use super::padding::Padding;
use super::staging::{Fragment, STAGED, Staging, source};
use super::tiles;
use super::work::{MMA_DEPTH, MMA_ELEMENTS, Work, cycles, mma_cycles};
use crate::dtype::DType;
use crate::ir::{Axis, BindMode, CopyKind, Scope};
use crate::schedule::Steps;
use crate::target::{Features, REGISTERS_PER_SM, SCHEDULERS, Target};
use crate::te::GemmSpec;

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

/// Registers of a thread besides accumulators and operands.
const ADDRESSES: i64 = 48;
/// More of them where the tiles reach beyond the product: conditions, and addresses that they keep apart.
const EDGE_ADDRESSES: i64 = 40;
/// Rows and columns of C that candidates have at least.
const LEAST_SIDE: i64 = 16;
/// Cycles of a step of k for the loads of its operands, and before the first MMA of a block; the share of the bytes from L2, and bytes of
/// accumulators that a multiprocessor stores in a cycle. Estimates.
const LATENCY: f64 = 60.0;
const PROLOGUE: f64 = 1500.0;
const L2_SHARE: f64 = 32.0 / 61.0;
const STORE_BYTES: f64 = 32.0;

impl Wmma {
    /// The cheapest tiles; `None` where the chip or its tensor cores have no such product, or it is smaller than a tile.
    pub fn choose(spec: &GemmSpec, target: &Target) -> Option<Wmma> {
        Wmma::candidates(spec, target).first().copied()
    }

    /// All tiles that suit the product and fit on the chip, the cheapest first.
    pub(super) fn candidates(spec: &GemmSpec, target: &Target) -> Vec<Wmma> {
        if spec.m < LEAST_SIDE || !Wmma::suits_every_m(spec, target) {
            return Vec::new();
        }
        Wmma::of_any_rows(spec, target)
    }

    /// Whether the recipe has tiles for these types, N and K on the chip.
    pub(super) fn suits_every_m(spec: &GemmSpec, target: &Target) -> bool {
        let known = !spec.block_scales && needs(spec).is_some_and(|features| target.has(features));
        known && spec.n >= LEAST_SIDE && spec.k >= Wmma::DEPTH
    }

    /// k extent of an instruction.
    pub(super) const DEPTH: i64 = 16;

    /// k extent of a stage.
    pub(super) fn stage_depth(spec: &GemmSpec) -> i64 {
        // An unaligned row is loaded element by element, and each element of the prefetched k tile occupies a register. A k tile of 64
        // bytes spills (batch of 7 of 2880x2594x169051 u8 NT on sm_90: 192 bytes; 195 registers with 32).
        let aligned = Operand::BOTH.into_iter().all(|operand| operand.is_aligned(spec));
        if aligned { 512 / i64::from(spec.a.bits()) } else { 32 }
    }

    /// All tiles for a product that suits the recipe, of however few rows, the cheapest first. Where A's rows are rows of C, the k extent
    /// of a stage depends on whether M is a multiple of 8; of 16-bit elements it is 32 in both cases.
    pub(super) fn of_any_rows(spec: &GemmSpec, target: &Target) -> Vec<Wmma> {
        let all = tiles::wmma().into_iter().map(|(block, warps)| Wmma::of(spec, target, block, warps));
        let mut fitting: Vec<_> = all.filter(|w| w.shared(spec) <= i64::from(target.limits.shared_optin)).collect();
        let cost = |w: &Wmma| cycles(&w.work(spec, target), &target.device());
        fitting.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        fitting
    }

    /// What the GEMM asks of the device in these tiles.
    pub(super) fn work(&self, spec: &GemmSpec, target: &Target) -> Work {
        let [bm, bn] = self.block;
        let [wm, wn] = [0, 1].map(|d| self.block[d] / self.warps[d]);
        let (device, warps) = (target.device(), self.warps[0] * self.warps[1]);
        let mma = mma_cycles(spec, &device) * (wm * wn / MMA_ELEMENTS) as f64;
        let number = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        let by_shared = target.occupancy(number(self.threads()), 1, number(self.shared(spec))).blocks;
        Work {
            mma: mma * warps as f64 / SCHEDULERS as f64,
            latency: mma + LATENCY,
            // Fragments are read once for each warp, and tiles written once.
            shared_bytes: (MMA_DEPTH * (warps * (wm + wn) + bm + bn)) as f64,
            l2_bytes: (MMA_DEPTH * (bm + bn)) as f64,
            l2_share: L2_SHARE,
            iterations: up(spec.k * bits(spec), 8 * MMA_DEPTH) as f64,
            prologue: PROLOGUE,
            epilogue: (4 * bm * bn) as f64 / STORE_BYTES,
            tiles: up(spec.m, bm).saturating_mul(up(spec.n, bn)).saturating_mul(spec.products()),
            resident: self.resident(spec).min(by_shared.into()).max(1),
            ..Work::NONE
        }
    }

    /// These tiles, with stages that suit them and the chip.
    pub fn of(spec: &GemmSpec, target: &Target, block: [i64; 2], warps: [i64; 2]) -> Wmma {
        let asynchronous = target.has(Features::CP_ASYNC);
        let bk = Wmma::stage_depth(spec);
        let stages = if asynchronous { 3 } else { 2 };
        let mut wmma =
            Wmma { block, warps, shape: [16, 16, Wmma::DEPTH], bk, stages, asynchronous, ahead: true, group: 8 };
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
        let padding = self.padding(spec);
        let ragged = Operand::BOTH.into_iter().any(|operand| padding.pads_operand(operand));
        let edges = if ragged { EDGE_ADDRESSES } else { 0 };
        (i64::from(REGISTERS_PER_SM) / (up(self.registers(spec) + edges, 8) * 8 * self.threads())).max(1)
    }

    /// Tiles of the instruction that a warp has, along rows and columns.
    fn tiles(&self) -> [i64; 2] {
        [0, 1].map(|d| self.block[d] / self.warps[d] / self.shape[d])
    }

    /// Rows of an operand's tile in shared memory, and elements of one.
    fn tile(&self, spec: &GemmSpec, operand: Operand) -> (i64, i64) {
        if operand.along_k(spec) {
            (self.block[operand as usize], self.bk)
        } else {
            (self.bk, self.block[operand as usize])
        }
    }

    /// What the tiles add to the GEMM.
    fn padding(&self, spec: &GemmSpec) -> Padding {
        Padding::new(spec, self.block, self.bk)
    }

    /// Whether accumulators are stored as they are: of C's type, to rows that are aligned.
    fn is_direct(&self, spec: &GemmSpec) -> bool {
        !Accumulators::of(spec).converts() && !self.padding(spec).pads_result()
    }
}

/// The steps.
impl Wmma {
    /// The steps, for a program of [`crate::te::gemm`] of types that the instruction has.
    pub fn steps(&self, spec: &GemmSpec) -> Steps {
        let (mut s, block) = (Steps::new(), Accumulators::of(spec).block());
        self.padding(spec).pad(&mut s, block);
        self.nest(&mut s, spec);
        for operand in Operand::BOTH {
            self.stage(&mut s, spec, operand);
        }
        s.pipeline("k0", self.stages);
        for operand in Operand::BOTH {
            let fragment = self.fragment(spec, operand);
            fragment.read(&mut s);
            fragment.load(&mut s);
        }
        if self.ahead {
            s.pipeline("kk", 2);
        }
        let majors = [major(spec, Operand::A), major(spec, Operand::B)].join(".");
        let types = format!("{}.{}.{}", spec.acc, spec.a, spec.b);
        s.decompose_reduction(block, "k0").made(["zero"]);
        s.tensorize("ii", &format!("wmma.mma.{majors}.{}.{types}", self.geometry()));
        bind_batch(&mut s, spec);
        s
    }

    fn geometry(&self) -> String {
        let [m, n, k] = self.shape;
        format!("m{m}n{n}k{k}")
    }

    /// The loops of blocks, warps and instructions, and how the accumulators of a block leave it.
    fn nest(&self, s: &mut Steps, spec: &GemmSpec) {
        let ([wi, wj], [ti, tj], [m, n, k]) = (self.warps, self.tiles(), self.shape);
        let (accumulators, padding) = (Accumulators::of(spec), self.padding(spec));
        let grows = padding.pads_result();
        // The buffer that the fragment is stored to, and the block that copies it on.
        let (stored, last) = match (accumulators.converts(), grows) {
            (true, _) => (padding.converted(), "out"),
            (false, _) => (padding.written(), padding.written()),
        };
        if accumulators.converts() && grows {
            s.compute_inline("acc_pad");
        }
        if !self.is_direct(spec) {
            s.set_scope(stored, Scope::Shared);
        }
        s.cache_write(accumulators.block(), stored, Scope::Fragment, "C_f");
        s.split("i", [wi, ti, m], ["i0", "iw", "im", "ii"]).split("j", [wj, tj, n], ["j0", "jw", "jm", "ji"]);
        s.split("k", [self.bk / k, k], ["k0", "kk", "ki"]);
        s.reorder(["i0", "j0", "iw", "jw", "k0", "kk", "im", "jm", "ii", "ji", "ki"]);
        let (rows, _) = rows_of(s, spec, ("i0", up(spec.m, self.block[0])));
        walk(s, rows, group_of(spec, self.group), BindMode::Plain);
        if !self.asynchronous {
            // Tiles that pass through registers: left alone, ptxas spills a few values to fit one more block.
            s.launch("tile").min_blocks(self.resident(spec));
        }
        s.fuse(["iw", "jw"], "w").bind("w", Axis::Warp).reverse_compute_at("C_f", "w").made(["o0", "o1"]);
        s.split("o0", [m], ["om", "oi"]).split("o1", [n], ["on", "oj"]).reorder(["om", "on", "oi", "oj"]);
        s.tensorize("oi", &format!("wmma.store.d.row.{}.{}", self.geometry(), spec.acc));
        if self.is_direct(spec) {
            return;
        }
        let vector = 128 / i64::from(spec.out.bits());
        s.storage_align(stored, row_dimension(spec), self.block[1], 8);
        divide_rows(s, last, "tile", self.threads(), vector);
        s.bind("s_1", Axis::ThreadX);
        if multiple_of_result(spec) % vector == 0 {
            s.vectorize("s_2")
        } else {
            s.unroll("s_2")
        };
    }

    /// An operand's tile in shared memory.
    fn stage(&self, s: &mut Steps, spec: &GemmSpec, operand: Operand) {
        let (vector, (_, row)) = (chunk(spec), self.tile(spec, operand));
        let is_padded = self.padding(spec).pads_operand(operand);
        let staging = Staging {
            operand,
            buffer: STAGED[operand as usize],
            accumulators: Accumulators::of(spec).block(),
            source: &source(operand.name(), is_padded, false),
            fills_zeros: is_padded,
        };
        staging.read(s);
        staging.inline_padding(s);
        staging.copy_by_threads(s, self.threads(), vector);
        s.storage_align(staging.buffer, row_dimension(spec), row, vector);
        // Threads copy unaligned rows through registers, element by element.
        if self.asynchronous && operand.is_aligned(spec) {
            s.copy_with(staging.buffer, CopyKind::CpAsync);
        }
    }

    /// What a warp has of an operand in registers, tile by tile of the instruction.
    fn fragment(&self, spec: &GemmSpec, operand: Operand) -> Fragment<'static> {
        let [name, major, geometry] = [operand.lower(), major(spec, operand), &self.geometry()];
        Fragment {
            operand,
            accumulators: Accumulators::of(spec).block(),
            rows: self.shape[operand as usize],
            along_k: operand.along_k(spec),
            load: format!("wmma.load.{name}.{major}.{geometry}.{}", spec.a),
        }
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
    if operand.along_k(spec) == (operand == Operand::A) { "row" } else { "col" }
}

/// The dimension that counts rows of an operand or of C.
fn row_dimension(spec: &GemmSpec) -> i64 {
    i64::from(spec.batch.is_some())
}

fn bits(spec: &GemmSpec) -> i64 {
    i64::from(spec.a.bits())
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
