//! [`Known`]: which ready-made program a program is, so that it can be made again at another size.

use super::block_scales::BlockScales;
use super::{Epilogue, GemmSpec, Layout, gemm, gemm_with, vec_add, window_sum};
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, Block, Expr, Func, Literal, Stmt, visit};

/// A program of the builders, with what it was built from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Known {
    /// [`vec_add`] of so many elements.
    VecAdd(i64),
    /// [`window_sum`] of so many elements.
    WindowSum(i64),
    /// [`gemm`].
    Gemm(GemmSpec),
    /// [`gemm_with`] these steps behind it, of which there are some.
    GemmWith(GemmSpec, Vec<Epilogue>),
}

impl Known {
    /// Recognises a program: what a builder makes, however it was written down. `None` for every other program.
    pub fn of(func: &Func) -> Option<Known> {
        let shape = |param: usize| func.largest(func.buffer(*func.params.get(param)?)).const_shape();
        let extent = |param: usize, dim: usize| shape(param)?.get(dim).copied();
        let candidates = match func.params.len() {
            2 => vec![Known::WindowSum(extent(1, 0)?)],
            3 if extent(2, 1).is_none() => vec![Known::VecAdd(extent(2, 0)?)],
            0..3 => Vec::new(),
            _ => {
                let steps = epilogues(func)?;
                let product = |spec: GemmSpec| match steps.is_empty() {
                    // Accumulators of C's own type are a buffer of their own only in this form.
                    true => {
                        let epilogue = spec.acc == spec.out && func.find_buffer("acc").is_some();
                        Known::Gemm(GemmSpec { epilogue, ..spec })
                    }
                    false => Known::GemmWith(spec, steps.clone()),
                };
                Layout::ALL.into_iter().filter_map(|layout| gemm_of(func, layout)).map(product).collect()
            }
        };
        candidates.into_iter().find(|c| c.build().is_ok_and(|built| built == *func))
    }

    /// Builds the program.
    ///
    /// # Errors
    /// `te.extent`, `te.limit`, `te.type`: sizes and types that the program does not have.
    pub fn build(&self) -> Result<Func> {
        match self {
            Known::VecAdd(n) => vec_add(*n),
            Known::WindowSum(n) => window_sum(*n),
            Known::Gemm(spec) => gemm(spec),
            Known::GemmWith(spec, steps) => gemm_with(spec, steps),
        }
    }

    /// The extents that a size names: n; or m, n and k, behind the batch of a product that has one.
    pub fn sizes(&self) -> Vec<i64> {
        match self {
            Known::VecAdd(n) | Known::WindowSum(n) => vec![*n],
            Known::Gemm(s) | Known::GemmWith(s, _) => s.sizes(),
        }
    }

    /// What the sizes are, in their order.
    fn size_names(&self) -> &'static str {
        match self {
            Known::VecAdd(_) | Known::WindowSum(_) => "its elements",
            Known::Gemm(s) | Known::GemmWith(s, _) if s.batch.is_some() => "batch, M, N and K",
            Known::Gemm(_) | Known::GemmWith(..) => "M, N and K",
        }
    }

    /// The same at another size: as many numbers as [`Self::sizes`] has; of a product one for m, n and k, or these three
    /// with the batch as it is.
    ///
    /// # Errors
    /// `te.size` where there are more numbers than sizes, or fewer.
    pub fn resized(&self, sizes: &[i64]) -> Result<Known> {
        let product = |s: &GemmSpec| match *sizes {
            [n] => Some(GemmSpec { m: n, n, k: n, ..*s }),
            [m, n, k] => Some(GemmSpec { m, n, k, ..*s }),
            [batch, m, n, k] if s.batch.is_some() => Some(GemmSpec { batch: Some(batch), m, n, k, ..*s }),
            _ => None,
        };
        let resized = match (self, sizes) {
            (Known::VecAdd(_), [n]) => Some(Known::VecAdd(*n)),
            (Known::WindowSum(_), [n]) => Some(Known::WindowSum(*n)),
            (Known::VecAdd(_) | Known::WindowSum(_), _) => None,
            (Known::Gemm(s), _) => product(s).map(Known::Gemm),
            (Known::GemmWith(s, steps), _) => product(s).map(|s| Known::GemmWith(s, steps.clone())),
        };
        resized.ok_or_else(|| {
            let own = self.sizes();
            let given: Vec<String> = sizes.iter().map(i64::to_string).collect();
            let message = format!("{} states {}", given.join("x"), crate::error::counted(sizes.len(), "size"));
            let message = format!("{message}, and the program has {}: {}", own.len(), self.size_names());
            Error::input(Code::TeSize, message)
        })
    }
}

/// What the product would be if the parameters lay so.
fn gemm_of(func: &Func, layout: Layout) -> Option<GemmSpec> {
    let [a, b, .., c] = func.params[..] else { return None };
    let shape = |id| func.largest(func.buffer(id)).const_shape();
    let (a_shape, c_shape) = (shape(a)?, shape(c)?);
    let ([lead @ .., a0, a1], [.., m, n]) = (&a_shape[..], &c_shape[..]) else { return None };
    let batch = match lead {
        [] => None,
        [batch] => Some(*batch),
        _ => return None,
    };
    let (a0, a1, m, n) = (*a0, *a1, *m, *n);
    let k = if layout.a_transposed() { a0 } else { a1 };
    let out = func.buffer(c).dtype;
    let sums = func.buffers.iter().find(|b| b.name == "acc").map(|b| b.dtype);
    let block_scales = BlockScales::INPUTS.into_iter().all(|name| func.find_buffer(name).is_some());
    Some(GemmSpec {
        batch,
        m,
        least_m: func.sizes.first().map(|s| s.size.low),
        m_by: func.sizes.first().map_or(1, |s| s.size.by),
        n,
        k,
        a: func.buffer(a).dtype,
        b: func.buffer(b).dtype,
        acc: sums.unwrap_or(out),
        out,
        layout,
        row_strides: [None; 3],
        block_scales,
        epilogue: false,
    })
}

/// The steps that the blocks behind a product would be, by their names; `None` where a block has none of these names.
fn epilogues(func: &Func) -> Option<Vec<Epilogue>> {
    let step = |block: &Block| Epilogue::of_label(func.block_name(block.name), || factor(block));
    let product = |block: &&Block| !matches!(func.block_name(block.name), "C" | "mma" | "out");
    visit::blocks(&func.body).into_iter().filter(product).map(step).collect()
}

/// The constant that a block multiplies with, or that what it adds is multiplied with.
fn factor(block: &Block) -> Option<f64> {
    let [Stmt::Store(store)] = &block.body[..] else { return None };
    let scaled = match &store.value {
        Expr::Bin(BinOp::Add, _, scaled) => scaled,
        other => other,
    };
    match scaled {
        Expr::Bin(BinOp::Mul, _, by) => match **by {
            Expr::Const(_, Literal::Float(value)) => Some(value),
            Expr::Const(_, Literal::Int(value)) => Some(value as f64),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn builders_are_recognised_and_nothing_else() {
        let (f16, f32) = (DType::F16, DType::F32);
        let mixed = |layout| GemmSpec { a: f16, b: f16, out: f16, ..GemmSpec::of(8, 12, 20, f32, layout) };
        let mut all = vec![Known::VecAdd(7), Known::WindowSum(9)];
        for layout in Layout::ALL {
            let batched = GemmSpec { batch: Some(3), ..mixed(layout) };
            all.extend([mixed(layout), GemmSpec::of(8, 8, 8, f32, layout), batched].map(Known::Gemm));
            let (bias, relu, scale) = (Epilogue::Bias, Epilogue::Relu, Epilogue::Scale(0.5));
            for steps in [vec![relu], vec![bias, relu], vec![scale, Epilogue::Gelu, Epilogue::Residual, bias]] {
                all.push(Known::GemmWith(batched, steps.clone()));
                all.push(Known::GemmWith(GemmSpec::of(8, 12, 20, f32, layout), steps));
            }
            let integers = GemmSpec { a: DType::S8, b: DType::S8, ..GemmSpec::of(8, 12, 20, DType::S32, layout) };
            all.push(Known::GemmWith(integers, vec![Epilogue::Scale(3.0), relu]));
            all.push(Known::GemmWith(batched, Epilogue::ALL.to_vec()));
            all.push(Known::Gemm(mixed(layout).block_scales(true)));
            all.push(Known::GemmWith(batched.block_scales(true), Epilogue::ALL.to_vec()));
            let own = GemmSpec { epilogue: true, ..GemmSpec::of(8, 12, 20, f32, layout) };
            all.push(Known::Gemm(own));
            // Sizes alone do not make a program with strides again.
            let strided = gemm(&batched.row_strides([Some(24), None, Some(16)])).unwrap();
            assert_eq!(Known::of(&strided), None);
        }
        for known in all {
            let mut func = known.build().unwrap();
            assert_eq!(Known::of(&func), Some(known));
            func.name.push('2');
            assert_eq!(Known::of(&func), None);
        }
    }

    #[test]
    fn sizes_change() {
        let g = Known::Gemm(GemmSpec::of(8, 12, 20, DType::F32, Layout::NN));
        assert_eq!(g.resized(&[4]).unwrap().sizes(), [4, 4, 4]);
        assert_eq!(g.resized(&[4, 5, 6]).unwrap().sizes(), [4, 5, 6]);
        assert_eq!(
            g.resized(&[4, 5]).unwrap_err().to_string(),
            "error in the input [te.size]: 4x5 states 2 sizes, and the program has 3: M, N and K"
        );
        let b = Known::Gemm(GemmSpec { batch: Some(3), ..GemmSpec::of(8, 12, 20, DType::F32, Layout::NN) });
        assert_eq!(b.resized(&[4]).unwrap().sizes(), [3, 4, 4, 4]);
        assert_eq!(b.resized(&[2, 4, 5, 6]).unwrap().sizes(), [2, 4, 5, 6]);
        assert_eq!(g.resized(&[2, 4, 5, 6]).unwrap_err().code(), Code::TeSize);
        assert_eq!(Known::VecAdd(8).resized(&[1, 2]).unwrap_err().code(), Code::TeSize);
    }
}
