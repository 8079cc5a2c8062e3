//! Matrix products as a client of the compiler: what is asked for, and steps that suit it.
//!
//! Nothing here is known to the compiler. [`recommend`] answers with a [`crate::Schedule`], whose steps could have been written
//! by hand and can be edited.

mod adapt;
mod candidates;
mod early;
mod epilogue;
mod fused;
mod gemv;
mod grid;
mod invariant;
mod kind;
mod line;
mod mma;
mod operand;
mod order;
mod packing;
mod padding;
mod parts;
mod pipelined;
mod program;
mod quantized;
mod random;
mod ranges;
mod recipe;
mod recommend;
mod simt;
mod split;
mod staging;
mod thread_tiles;
mod tiles;
mod tuning;
mod warp_tiles;
mod wgmma;
mod wmma;
mod work;
mod workspace;

use adapt::schedule;
pub use candidates::candidates;
use fused::Fused;
pub use fused::{Activation, Along};
pub use invariant::{Order, order, recommend_invariant};
pub use kind::Kind;
use operand::Operand;
use program::Product;
#[doc(hidden)]
pub use quantized::{ByWarps, FromRegisters};
pub use quantized::{Packing as WeightPacking, Quantized, from_awq, from_gptq, recommend_quantized};
#[doc(hidden)]
pub use random::{edge, random};
pub use ranges::{MOST_RANGES, RowRange, recommend_ranges, recommend_ranges_for};
pub use recommend::{recommend, recommend_for, recommend_promoted};
pub use workspace::recommend_without_workspace;

// The parameters of each recipe, for tests and for the ladder: names and fields follow the recipes.
#[doc(hidden)]
pub use {
    epilogue::Epilogue,
    gemv::Gemv,
    mma::{FragmentBuffers, Mma, OperandForm, Tma},
    packing::Source,
    pipelined::{Pipelined, Route},
    simt::Tiles,
    split::{Combine, Split},
    thread_tiles::ThreadTiles,
    warp_tiles::WarpTiles,
    wgmma::{RUNGS, Rung, SwapAb, Wgmma},
    wmma::Wmma,
};

use crate::dtype::{Class, DType};
use crate::error::Result;
use crate::ir::Func;
use crate::target::Target;
use crate::te::{self, GemmSpec, Known, Layout};

/// What is asked for: C[m, n] = A * B, row-major, or so many of them, with what follows it. f32 and layout NN unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    spec: GemmSpec,
    fused: Fused,
}

impl Gemm {
    /// C has m rows and n columns, the accumulators k terms.
    pub fn new(m: i64, n: i64, k: i64) -> Gemm {
        GemmSpec::of(m, n, k, DType::F32, Layout::NN).into()
    }

    /// The usual combination for a type of inputs: accumulators in f32 (s32 for integers) unless the inputs are wider, and a
    /// result that is not narrower than 16 bits. f16 means f16>f32>f16, s8 means s8>s32>s32, f64 means f64 alone.
    #[must_use]
    pub fn of(self, dtype: DType) -> Gemm {
        let acc = match (dtype, dtype.class()) {
            (DType::F64 | DType::S64 | DType::U32, _) => dtype,
            (_, Class::Float) => DType::F32,
            _ => DType::S32,
        };
        let out = match dtype {
            DType::F16 | DType::Bf16 => dtype,
            DType::E4m3 | DType::E5m2 => DType::F16,
            _ => acc,
        };
        self.inputs(dtype).accumulate(acc).output(out)
    }

    /// The type of A and B.
    #[must_use]
    pub fn inputs(mut self, dtype: DType) -> Gemm {
        (self.spec.a, self.spec.b) = (dtype, dtype);
        self
    }

    /// The type of products and accumulators.
    #[must_use]
    pub fn accumulate(mut self, dtype: DType) -> Gemm {
        self.spec.acc = dtype;
        self
    }

    /// The type of C.
    #[must_use]
    pub fn output(mut self, dtype: DType) -> Gemm {
        self.spec.out = dtype;
        self
    }

    /// How A and B lie.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Gemm {
        self.spec.layout = layout;
        self
    }

    /// Multiplies each term by the scales of its blocks: a value for each row of A and 128 of k in input `a_scales` \[K / 128, M\], and one for
    /// each 128 columns of B and 128 of k in input `b_scales` \[N / 128, K / 128\], behind the dimension of a batch. Extents are rounded up, and
    /// scales are of the accumulators' type. The inputs are between B and those of the epilogue.
    #[must_use]
    pub fn block_scales(mut self) -> Gemm {
        self.spec.block_scales = true;
        self
    }

    /// So many independent products, one behind the other in a leading dimension of A, B and C.
    #[must_use]
    pub fn batch(mut self, products: i64) -> Gemm {
        self.spec.batch = Some(products);
        self
    }

    /// M is known at launch alone: a number of rows from `least` to the M of [`Gemm::new`]. A and C have it as their outermost extent, so A
    /// is stored \[M, K\].
    #[must_use]
    pub fn rows_from(mut self, least: i64) -> Gemm {
        self.spec.least_m = Some(least);
        self
    }

    /// Of the numbers of rows from [`Gemm::rows_from`] on, the multiples of this alone. The M of [`Gemm::new`] is one.
    #[must_use]
    pub fn rows_by(mut self, multiple: i64) -> Gemm {
        self.spec.m_by = multiple;
        self
    }

    /// The GEMM of this number of rows alone.
    #[must_use]
    pub fn at_rows(mut self, rows: i64) -> Gemm {
        (self.spec.m, self.spec.least_m, self.spec.m_by) = (rows, None, 1);
        self
    }

    /// Whether each row of A, B and C begins at a multiple of 16 bytes, as cp.async and TMA need it.
    pub fn has_aligned_rows(&self) -> bool {
        let c = operand::multiple_of_result(&self.spec) * i64::from(self.spec.out.bits());
        Operand::BOTH.into_iter().all(|operand| operand.is_aligned(&self.spec)) && c % 128 == 0
    }

    /// The product as `te` has it, without what follows it.
    pub fn spec(&self) -> &GemmSpec {
        &self.spec
    }

    /// The default target if the user names none and no device is present: sm_90a if wgmma multiplies these types,
    /// else sm_90. With a device, [`Target::for_device`] tells.
    pub fn default_target(&self) -> Target {
        if wgmma::known(&self.spec) { Target::sm_90a() } else { Target::sm_90() }
    }

    /// The program.
    ///
    /// # Errors
    /// `te.extent` and `te.limit`, the input's fault, where an extent is not positive or an array has more than 2^36 elements;
    /// `te.type` where the types make no product; `te.epilogue` where the types cannot express an epilogue.
    pub fn program(&self) -> Result<Func> {
        te::gemm_with(&self.spec, &self.epilogues())
    }
}

impl From<GemmSpec> for Gemm {
    fn from(spec: GemmSpec) -> Gemm {
        Gemm { spec, fused: Fused::default() }
    }
}

/// The matrix product that a program is, with what follows it, if it is one that [`Gemm::program`] makes.
pub fn describe(program: &Func) -> Option<Gemm> {
    match Known::of(program) {
        Some(Known::Gemm(spec)) => Some(spec.into()),
        Some(Known::GemmWith(spec, steps)) => Some(Gemm { spec, fused: Fused::of(&steps)? }),
        _ => None,
    }
}

#[cfg(test)]
mod program_tests;
