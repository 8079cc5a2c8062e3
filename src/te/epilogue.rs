//! Elementwise steps after a matrix product, each a block of its own.

use super::build::{GemmSpec, add, at, convert};
use super::program::Program;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, BufferId, Expr, UnOp, Var, typing};

/// An elementwise step after a matrix product. It computes in the type of the accumulators; from the first scales of rows or columns on,
/// integers are f32.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Epilogue {
    /// Multiplies by input `row_scales`, one for each row of C (of each product of a batch), of f32 where the accumulators are integers.
    RowScales,
    /// Multiplies by input `column_scales`, one for each column of C (of each product of a batch), of f32 where the accumulators are
    /// integers.
    ColumnScales,
    /// Multiplies by a constant.
    Scale(f64),
    /// Adds a constant times input `C_in` of C's extents, converted from C's type.
    Beta(f64),
    /// Adds input `bias` of N elements, converted from C's type.
    Bias,
    /// Adds input `row_bias` of M elements, converted from C's type.
    RowBias,
    /// max(x, 0).
    Relu,
    /// x/2 * (1 + erf(x / sqrt 2)); in floating point only.
    Gelu,
    /// x / (1 + exp(-x)); in floating point only.
    Silu,
    /// Adds input `residual` of C's extents, converted from C's type.
    Residual,
    /// Clamps to the finite values of C's type, so that the conversion to C saturates.
    Saturate,
}

impl Epilogue {
    /// One of every kind, in the order of [`crate::Gemm`]'s methods.
    pub const ALL: [Epilogue; 11] = [
        Epilogue::RowScales,
        Epilogue::ColumnScales,
        Epilogue::Scale(1.0),
        Epilogue::Beta(1.0),
        Epilogue::Bias,
        Epilogue::RowBias,
        Epilogue::Relu,
        Epilogue::Gelu,
        Epilogue::Silu,
        Epilogue::Residual,
        Epilogue::Saturate,
    ];

    /// The name in builder lines.
    pub fn name(self) -> &'static str {
        match self {
            Epilogue::RowScales => "row_scales",
            Epilogue::ColumnScales => "column_scales",
            Epilogue::Scale(_) => "scale",
            Epilogue::Beta(_) => "beta",
            Epilogue::Bias => "bias",
            Epilogue::RowBias => "row_bias",
            Epilogue::Relu => "relu",
            Epilogue::Gelu => "gelu",
            Epilogue::Silu => "silu",
            Epilogue::Residual => "residual",
            Epilogue::Saturate => "saturate",
        }
    }

    /// The name of its block and of the buffer that the block writes.
    pub fn label(self) -> &'static str {
        match self {
            Epilogue::RowScales => "scale_rows",
            Epilogue::ColumnScales => "scale_columns",
            Epilogue::Beta(_) => "add_beta",
            Epilogue::Bias => "add_bias",
            Epilogue::RowBias => "add_row_bias",
            Epilogue::Residual => "add_residual",
            other => other.name(),
        }
    }

    /// The step whose block has this name; a constant is that of the block.
    pub(super) fn of_label(label: &str, constant: impl FnOnce() -> Option<f64>) -> Option<Epilogue> {
        let found = Epilogue::ALL.into_iter().find(|e| e.label() == label)?;
        Some(match found {
            Epilogue::Scale(_) => Epilogue::Scale(constant()?),
            Epilogue::Beta(_) => Epilogue::Beta(constant()?),
            other => other,
        })
    }

    /// Whether it scales rows or columns.
    fn scales(self) -> bool {
        matches!(self, Epilogue::RowScales | Epilogue::ColumnScales)
    }

    /// The type of scales, and of what has been scaled.
    fn scaled(acc: DType) -> DType {
        if acc.is_float() { acc } else { DType::F32 }
    }

    /// The type of its value, from the type of the value before it.
    pub(super) fn dtype(self, before: DType) -> DType {
        if self.scales() { Epilogue::scaled(before) } else { before }
    }

    /// The input that it takes.
    pub(super) fn input(self, p: &mut Program, spec: &GemmSpec) -> Result<Option<BufferId>> {
        let lead: Vec<i64> = spec.batch.into_iter().collect();
        let whole = |dims: &[i64]| [lead.as_slice(), dims].concat();
        let input = |p: &mut Program, dtype, shape: &[i64]| p.input(self.input_name(), dtype, shape).map(Some);
        match self {
            Epilogue::RowScales => input(p, Epilogue::scaled(spec.acc), &whole(&[spec.m])),
            Epilogue::ColumnScales => input(p, Epilogue::scaled(spec.acc), &whole(&[spec.n])),
            Epilogue::Bias => input(p, spec.out, &[spec.n]),
            Epilogue::RowBias => input(p, spec.out, &[spec.m]),
            Epilogue::Beta(_) | Epilogue::Residual => input(p, spec.out, &whole(&[spec.m, spec.n])),
            _ => Ok(None),
        }
    }

    /// Whether the outermost extent of its input is M.
    pub(super) fn has_rows(self) -> bool {
        matches!(self, Epilogue::RowScales | Epilogue::RowBias | Epilogue::Beta(_) | Epilogue::Residual)
    }

    fn input_name(self) -> &'static str {
        if matches!(self, Epilogue::Beta(_)) { "C_in" } else { self.name() }
    }

    /// What it makes of a value of type `dtype` before it, with its input, at iterators `v`.
    pub(super) fn apply(self, spec: &GemmSpec, dtype: DType, x: Expr, input: Option<BufferId>, v: &[Var]) -> Expr {
        let own = self.dtype(dtype);
        let number = |value: f64| Expr::constant(own, value);
        let mul = |a, b| Expr::bin(BinOp::Mul, a, b);
        let (lead, row, column) = (&v[..v.len() - 2], v[v.len() - 2], v[v.len() - 1]);
        let rows = [lead, &[row]].concat();
        let columns = [lead, &[column]].concat();
        let read = |from: DType, indices: &[Var]| match input {
            Some(b) => convert(from, own, at(b, indices)),
            None => number(0.0),
        };
        let scales = Epilogue::scaled(spec.acc);
        match self {
            Epilogue::RowScales => mul(convert(dtype, own, x), read(scales, &rows)),
            Epilogue::ColumnScales => mul(convert(dtype, own, x), read(scales, &columns)),
            Epilogue::Scale(factor) => mul(x, number(factor)),
            Epilogue::Beta(factor) => add(x, mul(read(spec.out, v), number(factor))),
            Epilogue::Bias => add(x, read(spec.out, &[column])),
            Epilogue::RowBias => add(x, read(spec.out, &[row])),
            Epilogue::Residual => add(x, read(spec.out, v)),
            Epilogue::Relu => Expr::bin(BinOp::Max, x, number(0.0)),
            Epilogue::Gelu => {
                let scaled = mul(x.clone(), number(std::f64::consts::FRAC_1_SQRT_2));
                mul(mul(x, number(0.5)), add(number(1.0), Expr::un(UnOp::Erf, scaled)))
            }
            Epilogue::Silu => {
                let below = add(number(1.0), Expr::un(UnOp::Exp, Expr::un(UnOp::Neg, x.clone())));
                Expr::bin(BinOp::Div, x, below)
            }
            Epilogue::Saturate => {
                let (least, most) = bounds(spec.out, own);
                Expr::bin(BinOp::Min, Expr::bin(BinOp::Max, x, number(least)), number(most))
            }
        }
    }
}

/// The finite values of a type that another one has too: the least and the largest.
fn bounds(of: DType, within: DType) -> (f64, f64) {
    let range = |dtype: DType| match typing::integer_range(dtype) {
        Some((low, high)) => (low as f64, high as f64),
        None => (-largest(dtype), largest(dtype)),
    };
    let ((low, high), (least, most)) = (range(of), range(within));
    (low.max(least), high.min(most))
}

/// The largest finite value of a floating-point type.
fn largest(dtype: DType) -> f64 {
    let of = |precision: i32, exponent: i32| (2.0 - 2f64.powi(1 - precision)) * 2f64.powi(exponent);
    match dtype {
        DType::F16 => of(11, 15),
        DType::Bf16 => of(8, 127),
        DType::Tf32 => of(11, 127),
        DType::E5m2 => of(3, 15),
        // The largest pattern is NaN.
        DType::E4m3 => 448.0,
        DType::F64 => f64::MAX,
        _ => f32::MAX.into(),
    }
}

/// Each step at most once, and none that the type of the value before it cannot express.
pub(super) fn check(spec: &GemmSpec, epilogues: &[Epilogue]) -> Result<()> {
    let mut dtype = spec.acc;
    for (n, e) in epilogues.iter().enumerate() {
        if epilogues[..n].iter().any(|earlier| earlier.name() == e.name()) {
            return Err(Error::input(Code::TeEpilogue, format!("{} is given twice", e.name())));
        }
        let problem = match e {
            Epilogue::Saturate if dtype.widens_to(spec.out) => {
                Some(format!("{} has every value of {dtype}: there is nothing to saturate", spec.out))
            }
            _ if dtype.is_float() => None,
            Epilogue::Scale(factor) | Epilogue::Beta(factor) if factor.fract() != 0.0 => {
                Some(format!("{factor} is not an integer"))
            }
            Epilogue::Gelu | Epilogue::Silu => Some(format!("{} is for floating-point accumulators", e.name())),
            _ => None,
        };
        if let Some(problem) = problem {
            let message = format!("{problem}, but the accumulators are of type {}", spec.acc);
            let error = Error::input(Code::TeEpilogue, message);
            return Err(error.help("row_scales or column_scales before it: the steps after them are in f32"));
        }
        dtype = e.dtype(dtype);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::{Layout, gemm_with, print};

    #[test]
    fn every_step_is_one_block() {
        let spec = GemmSpec::of(8, 16, 4, DType::S8, Layout::NT).types(DType::S8, DType::S8, DType::S32, DType::S8);
        let steps: Vec<Epilogue> = Epilogue::ALL.into_iter().collect();
        let text = print(&gemm_with(&spec.batch(Some(3)), &steps).unwrap());
        for line in [
            "input row_scales f32[3, 8]",
            "input column_scales f32[3, 16]",
            "input C_in s8[3, 8, 16]",
            "scale_rows[b 3, i 8, j 16] f32 = f32(acc[b, i, j])*row_scales[b, i]",
            "add_row_bias[b 3, i 8, j 16] f32 = add_bias[b, i, j] + f32(row_bias[i])",
            "silu[b 3, i 8, j 16] f32 = gelu[b, i, j] / (1.0 + exp(-gelu[b, i, j]))",
            "saturate[b 3, i 8, j 16] f32 = min(max(add_residual[b, i, j], -128.0), 127.0)",
            "out: output C[b 3, i 8, j 16] s8 = s8(saturate[b, i, j])",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn steps_that_the_type_cannot_express_are_refused() {
        let spec = |out| GemmSpec::of(8, 8, 8, DType::S8, Layout::NN).types(DType::S8, DType::S8, DType::S32, out);
        let refused = |out, steps: &[Epilogue]| gemm_with(&spec(out), steps).unwrap_err().to_string();
        assert!(refused(DType::S32, &[Epilogue::Silu]).contains("silu is for floating-point accumulators"));
        assert!(refused(DType::S32, &[Epilogue::Beta(0.5)]).contains("0.5 is not an integer"));
        assert!(refused(DType::S32, &[Epilogue::Saturate]).contains("there is nothing to saturate"));
        assert!(gemm_with(&spec(DType::S32), &[Epilogue::RowScales, Epilogue::Silu, Epilogue::Saturate]).is_ok());
        assert!(gemm_with(&spec(DType::S8), &[Epilogue::Saturate]).is_ok());
    }

    #[test]
    fn the_largest_values_are_those_of_the_types() {
        let rounded = |dtype, value| {
            let mut element = crate::Array::zeros(dtype, &[1]).unwrap();
            element.set(0, value);
            element.get(0)
        };
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64, DType::E4m3, DType::E5m2] {
            assert_eq!(rounded(dtype, largest(dtype)), largest(dtype), "{dtype}");
        }
        assert_eq!(largest(DType::F16), 65504.0);
    }
}
