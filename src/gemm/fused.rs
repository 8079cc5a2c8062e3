//! The usual epilogues of a GEMM, as methods of [`Gemm`].
//!
//! They have one order, whatever order the methods are called in: scales of rows and columns, alpha, beta * C, biases, the activation, the
//! residual, saturation. Each is an elementwise block of the program ([`crate::te::Epilogue`]). The inputs that they add to the kernel are
//! between B and C, in the same order.

use super::Gemm;
use crate::te::Epilogue;

/// Which lines of C have one value each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Along {
    /// A value for each row.
    Rows,
    /// A value for each column.
    Columns,
}

/// A function of each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x/2 * (1 + erf(x / sqrt 2)).
    Gelu,
    /// x / (1 + exp(-x)).
    Silu,
}

impl Activation {
    fn step(self) -> Epilogue {
        match self {
            Activation::Relu => Epilogue::Relu,
            Activation::Gelu => Epilogue::Gelu,
            Activation::Silu => Epilogue::Silu,
        }
    }
}

/// What follows the product.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Fused {
    row_scales: bool,
    column_scales: bool,
    alpha: Option<f64>,
    beta: Option<f64>,
    bias: bool,
    row_bias: bool,
    activation: Option<Activation>,
    residual: bool,
    saturate: bool,
}

impl Fused {
    /// The steps in their order.
    pub fn steps(&self) -> Vec<Epilogue> {
        let all = [
            self.row_scales.then_some(Epilogue::RowScales),
            self.column_scales.then_some(Epilogue::ColumnScales),
            self.alpha.map(Epilogue::Scale),
            self.beta.map(Epilogue::Beta),
            self.bias.then_some(Epilogue::Bias),
            self.row_bias.then_some(Epilogue::RowBias),
            self.activation.map(Activation::step),
            self.residual.then_some(Epilogue::Residual),
            self.saturate.then_some(Epilogue::Saturate),
        ];
        all.into_iter().flatten().collect()
    }

    /// What has these steps; `None` where they are in another order.
    pub fn of(steps: &[Epilogue]) -> Option<Fused> {
        let mut fused = Fused::default();
        for step in steps {
            match step {
                Epilogue::RowScales => fused.row_scales = true,
                Epilogue::ColumnScales => fused.column_scales = true,
                Epilogue::Scale(alpha) => fused.alpha = Some(*alpha),
                Epilogue::Beta(beta) => fused.beta = Some(*beta),
                Epilogue::Bias => fused.bias = true,
                Epilogue::RowBias => fused.row_bias = true,
                Epilogue::Relu => fused.activation = Some(Activation::Relu),
                Epilogue::Gelu => fused.activation = Some(Activation::Gelu),
                Epilogue::Silu => fused.activation = Some(Activation::Silu),
                Epilogue::Residual => fused.residual = true,
                Epilogue::Saturate => fused.saturate = true,
            }
        }
        (fused.steps() == steps).then_some(fused)
    }
}

/// The usual epilogues. They compute in the type of the accumulators, those after scales of integers in f32; each method a second time
/// replaces what it said before.
///
/// ```
/// use warploom::gemm::{Activation, Along, Gemm};
/// use warploom::{DType, Target, te};
///
/// let layer = Gemm::new(256, 512, 128).of(DType::F16).bias(Along::Columns).activation(Activation::Gelu).residual();
/// assert!(te::print(&layer.program()?).contains("out: output C[i 256, j 512] f16 = f16(add_residual[i, j])"));
/// let schedule = warploom::gemm::recommend(&layer, &Target::sm_90a())?;
/// // Parameters: A, B, bias, residual, C.
/// assert_eq!(schedule.program.params.len(), 5);
/// # Ok::<(), warploom::Error>(())
/// ```
impl Gemm {
    /// Multiplies each row by its element of input `row_scales` \[M\] (\[B, M\] of a batch). Scales are of the accumulators' type, of f32 for
    /// integers.
    #[must_use]
    pub fn row_scales(mut self) -> Gemm {
        self.fused.row_scales = true;
        self
    }

    /// Multiplies each column by its element of input `column_scales` \[N\] (\[B, N\] of a batch). Scales are of the accumulators' type, of
    /// f32 for integers.
    #[must_use]
    pub fn column_scales(mut self) -> Gemm {
        self.fused.column_scales = true;
        self
    }

    /// Multiplies by a constant.
    #[must_use]
    pub fn alpha(mut self, alpha: f64) -> Gemm {
        self.fused.alpha = Some(alpha);
        self
    }

    /// Adds a constant times input `C_in`, of C's type and extents.
    #[must_use]
    pub fn beta(mut self, beta: f64) -> Gemm {
        self.fused.beta = Some(beta);
        self
    }

    /// Adds input `bias` \[N\] to each row, or input `row_bias` \[M\] to each column, of C's type. Both may be asked for.
    #[must_use]
    pub fn bias(mut self, along: Along) -> Gemm {
        match along {
            Along::Columns => self.fused.bias = true,
            Along::Rows => self.fused.row_bias = true,
        }
        self
    }

    /// Applies a function to each element.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> Gemm {
        self.fused.activation = Some(activation);
        self
    }

    /// Adds input `residual`, of C's type and extents, after the activation.
    #[must_use]
    pub fn residual(mut self) -> Gemm {
        self.fused.residual = true;
        self
    }

    /// Clamps to the finite values of C's type before the conversion to it.
    #[must_use]
    pub fn saturate(mut self) -> Gemm {
        self.fused.saturate = true;
        self
    }

    /// Whether something follows the product.
    pub fn has_epilogue(&self) -> bool {
        self.fused != Fused::default()
    }

    /// What follows the product, in its order.
    pub fn epilogues(&self) -> Vec<Epilogue> {
        self.fused.steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::describe;

    #[test]
    fn methods_are_described_again_whatever_their_order() {
        let plain = Gemm::new(8, 12, 20).of(crate::DType::F16);
        let both = plain.residual().activation(Activation::Silu).bias(Along::Rows).bias(Along::Columns).alpha(0.5);
        let all = both.beta(2.0).saturate().column_scales().row_scales();
        for gemm in [plain, plain.beta(-1.0), both, all, all.batch(3)] {
            assert_eq!(describe(&gemm.program().unwrap()), Some(gemm), "{gemm:?}");
        }
        assert_eq!(all.epilogues().len(), 9);
        let names: Vec<&str> = all.epilogues().into_iter().map(Epilogue::name).collect();
        assert_eq!(names.join(" "), "row_scales column_scales scale beta bias row_bias silu residual saturate");
        // Another order is another program.
        assert_eq!(Fused::of(&[Epilogue::Relu, Epilogue::Bias]), None);
    }
}
