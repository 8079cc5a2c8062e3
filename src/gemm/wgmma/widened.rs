//! 4-bit integers for wgmma, which multiplies bytes: kernels of their own make bytes along k of both operands first (*widened*), in workspace. What
//! is left is a GEMM of bytes in NT.

use super::{Packing, Padding, Wgmma};
use crate::dtype::DType;
use crate::gemm::epilogue::Accumulators;
use crate::gemm::operand::Operand;
use crate::gemm::packing::Source;
use crate::gemm::work::{Passes, Work, passes};
use crate::ir::Scope;
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::{GemmSpec, Layout};

/// The GEMM of bytes that is left of one of 4-bit integers; `None` for other types, and where rows of bytes are not aligned to the 16 bytes that TMA
/// needs.
pub(super) fn of_bytes(spec: &GemmSpec) -> Option<GemmSpec> {
    let narrow = [spec.a, spec.b].iter().all(|dtype| matches!(dtype, DType::S4 | DType::U4));
    let suits = spec.batch.is_none() && spec.least_m.is_none() && spec.k % 16 == 0;
    let [_, _, of_c] = spec.row_strides;
    let bytes = GemmSpec { a: DType::S8, b: DType::S8, layout: Layout::NT, row_strides: [None, None, of_c], ..*spec };
    (narrow && suits).then_some(bytes)
}

/// The buffer of an operand's bytes.
pub(super) fn name(operand: Operand) -> &'static str {
    ["A_wide", "B_wide"][operand as usize]
}

impl Wgmma {
    /// The tiles of a GEMM of bytes whose operands are widened first, the cheapest first.
    pub(super) fn widened_tiles(bytes: &GemmSpec, target: &Target) -> Vec<Wgmma> {
        let all = Wgmma::candidates(bytes, target).into_iter();
        let direct = all.filter(|w| w.routes == [Source::Direct; 2] && !w.rows_in_registers);
        direct.map(|w| Wgmma { widened: true, l2_prefetch: false, ..w }.with_early_release(bytes, target)).collect()
    }

    /// The GEMM that the instructions multiply: of bytes, where kernels widen the operands.
    pub(super) fn multiplied(&self, spec: &GemmSpec) -> GemmSpec {
        self.widened.then(|| of_bytes(spec)).flatten().unwrap_or(*spec)
    }

    /// Whether kernels of their own pack or widen an operand.
    pub(in crate::gemm) fn needs_packing(&self) -> bool {
        self.widened || self.routes.contains(&Source::Packed)
    }

    /// How an operand comes: of bytes that a kernel makes L2 keeps as much as of packed ones.
    pub(super) fn read_from(&self, operand: Operand) -> Source {
        if self.widened { Source::Packed } else { self.routes[operand as usize] }
    }

    /// The kernels that widen the operands of a GEMM of 4-bit integers, where it has them.
    pub(super) fn widen(&self, s: &mut Steps, spec: &GemmSpec) {
        for operand in Operand::BOTH.into_iter().filter(|_| self.widened) {
            let packed = name(operand);
            s.cache_read_as(Accumulators::of(spec).block(), operand.name(), Scope::Global, DType::S8, packed);
            let is_transposed = !operand.along_k(spec);
            let padding = Padding::new(spec, [1, 1], 1);
            Packing { operand, packed, padding, is_transposed, releasing: 0 }.widen(s, spec);
        }
    }

    /// Cycles of the kernels that widen the operands.
    pub(super) fn widening(&self, spec: &GemmSpec, target: &Target) -> f64 {
        let operands = Operand::BOTH.into_iter().filter(|_| self.widened);
        let packed_bytes = operands.clone().map(|operand| operand.packing_bytes(spec, 8)).sum();
        let own = Passes { packs: operands.count(), packed_bytes, ..Passes::default() };
        passes(&Work { passes: own, ..Work::NONE }, &target.device())
    }
}
