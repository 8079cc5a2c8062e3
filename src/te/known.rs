//! [`Known`]: which ready-made program a program is, so that it can be made again at another size.

use super::{GemmSpec, Layout, gemm, vec_add, window_sum};
use crate::error::{Error, Result};
use crate::ir::Func;

/// A program of the builders, with what it was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// [`vec_add`] of so many elements.
    VecAdd(i64),
    /// [`window_sum`] of so many elements.
    WindowSum(i64),
    /// [`gemm`].
    Gemm(GemmSpec),
}

impl Known {
    /// Recognises a program: what a builder makes, however it was written down. `None` for every other program.
    pub fn of(func: &Func) -> Option<Known> {
        let extent = |param: usize, dim: usize| func.buffer(*func.params.get(param)?).const_shape()?.get(dim).copied();
        let candidates = match func.params.len() {
            2 => vec![Known::WindowSum(extent(1, 0)?)],
            3 if extent(2, 1).is_none() => vec![Known::VecAdd(extent(2, 0)?)],
            3 => Layout::ALL.into_iter().filter_map(|layout| gemm_of(func, layout)).map(Known::Gemm).collect(),
            _ => Vec::new(),
        };
        candidates.into_iter().find(|c| c.build().is_ok_and(|built| built == *func))
    }

    /// Builds the program.
    pub fn build(&self) -> Result<Func> {
        match self {
            Known::VecAdd(n) => vec_add(*n),
            Known::WindowSum(n) => window_sum(*n),
            Known::Gemm(spec) => gemm(spec),
        }
    }

    /// The extents that a size names: n; or m, n and k, behind the batch of a product that has one.
    pub fn sizes(&self) -> Vec<i64> {
        match self {
            Known::VecAdd(n) | Known::WindowSum(n) => vec![*n],
            Known::Gemm(s) => s.sizes(),
        }
    }

    /// The same at another size: as many numbers as [`Self::sizes`] has; of a product one for m, n and k, or these three
    /// with the batch as it is.
    pub fn resized(&self, sizes: &[i64]) -> Result<Known> {
        Ok(match (self, sizes) {
            (Known::VecAdd(_), [n]) => Known::VecAdd(*n),
            (Known::WindowSum(_), [n]) => Known::WindowSum(*n),
            (Known::Gemm(s), [n]) => Known::Gemm(GemmSpec { m: *n, n: *n, k: *n, ..*s }),
            (Known::Gemm(s), [m, n, k]) => Known::Gemm(GemmSpec { m: *m, n: *n, k: *k, ..*s }),
            (Known::Gemm(s), [batch, m, n, k]) if s.batch.is_some() => {
                Known::Gemm(GemmSpec { batch: Some(*batch), m: *m, n: *n, k: *k, ..*s })
            }
            _ => {
                let message = format!("the program has {} sizes, {} are given", self.sizes().len(), sizes.len());
                return Err(Error::input("te.size", message));
            }
        })
    }
}

/// What the product would be if the parameters lay so.
fn gemm_of(func: &Func, layout: Layout) -> Option<GemmSpec> {
    let [a, b, c] = func.params[..] else { return None };
    let shape = |id| func.buffer(id).const_shape();
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
    let acc = func.buffers.iter().find(|b| b.name == "acc").map_or(out, |b| b.dtype);
    Some(GemmSpec { batch, m, n, k, a: func.buffer(a).dtype, b: func.buffer(b).dtype, acc, out, layout })
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
            "error in the input [te.size]: the program has 3 sizes, 2 are given"
        );
        let b = Known::Gemm(GemmSpec { batch: Some(3), ..GemmSpec::of(8, 12, 20, DType::F32, Layout::NN) });
        assert_eq!(b.resized(&[4]).unwrap().sizes(), [3, 4, 4, 4]);
        assert_eq!(b.resized(&[2, 4, 5, 6]).unwrap().sizes(), [2, 4, 5, 6]);
        assert_eq!(g.resized(&[2, 4, 5, 6]).unwrap_err().code(), "te.size");
        assert_eq!(Known::VecAdd(8).resized(&[1, 2]).unwrap_err().code(), "te.size");
    }
}
