//! Matrix products as a client of the compiler: what is asked for, and steps that suit it.
//!
//! Nothing here is known to the compiler. [`recommend`] answers with a [`Schedule`], whose steps could have been written
//! by hand and can be edited.

mod candidates;
mod epilogue;
mod gemv;
mod grid;
mod invariant;
mod kind;
mod mma;
mod operand;
mod packing;
mod padding;
mod parts;
mod pipelined;
mod random;
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

pub use candidates::candidates;
pub use invariant::{Order, order, recommend_invariant};
pub use kind::Kind;
use operand::Operand;
#[doc(hidden)]
pub use random::random;
pub use recommend::recommend;

// The parameters of each recipe, for tests and for the ladder: names and fields follow the recipes.
#[doc(hidden)]
pub use {
    epilogue::Epilogue,
    gemv::Gemv,
    mma::{FragmentBuffers, Mma, OperandForm, Tma},
    packing::Source,
    pipelined::{Pipelined, Route},
    simt::Tiles,
    split::Split,
    thread_tiles::ThreadTiles,
    warp_tiles::WarpTiles,
    wgmma::{RUNGS, Rung, SwapAb, Wgmma},
    wmma::Wmma,
};

use crate::dtype::{Class, DType};
use crate::error::{Code, Error, Result};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::{self, GemmSpec, Known, Layout};

/// What is asked for: C[m, n] = A * B, row-major, or so many of them. f32 and layout NN unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemm {
    spec: GemmSpec,
}

impl Gemm {
    /// C has m rows and n columns, the accumulators k terms.
    pub fn new(m: i64, n: i64, k: i64) -> Gemm {
        Gemm { spec: GemmSpec::of(m, n, k, DType::F32, Layout::NN) }
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

    /// So many independent products, one behind the other in a leading dimension of A, B and C.
    #[must_use]
    pub fn batch(mut self, products: i64) -> Gemm {
        self.spec.batch = Some(products);
        self
    }

    /// Whether each row of A, B and C begins at a multiple of 16 bytes, as cp.async and TMA need it.
    pub fn has_aligned_rows(&self) -> bool {
        let c = self.spec.n * i64::from(self.spec.out.bits());
        Operand::BOTH.into_iter().all(|operand| operand.is_aligned(&self.spec)) && c % 128 == 0
    }

    /// As `te` has it.
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
    /// `te.type` where the types make no product.
    pub fn program(&self) -> Result<Func> {
        te::gemm(&self.spec)
    }
}

impl From<GemmSpec> for Gemm {
    fn from(spec: GemmSpec) -> Gemm {
        Gemm { spec }
    }
}

/// The matrix product that a program is, if it is one.
pub fn describe(program: &Func) -> Option<Gemm> {
    match Known::of(program) {
        Some(Known::Gemm(spec)) => Some(spec.into()),
        _ => None,
    }
}

/// A product with the steps of a recipe.
fn schedule(gemm: &Gemm, target: &Target, steps: Steps) -> Result<Schedule> {
    let steps = steps
        .finish()
        .map_err(|e| Error::bug(Code::GemmSteps, format!("the recommended steps are not well formed: {e}")))?;
    Ok(Schedule { program: gemm.program()?, target: *target, steps })
}
