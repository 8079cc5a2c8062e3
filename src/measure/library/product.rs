//! A matrix product as the libraries' calls have it: sizes, leading dimensions, strides, and numbers of types.

use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::runtime::DeviceBuffer;
use crate::te::{GemmSpec, SCALE_BLOCK};
use std::ffi::c_int;

/// The column-major call of a row-major product: sizes, then the first and the second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub batch: c_int,
    pub m: c_int,
    pub n: c_int,
    pub k: c_int,
    pub trans_b: c_int,
    pub ld_b: c_int,
    pub trans_a: c_int,
    pub ld_a: c_int,
    pub ld_c: c_int,
}

/// The library's numbers for a product's types: data types of A, B and C, the compute type, and the constant 1 with its
/// type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types {
    pub a: c_int,
    pub b: c_int,
    pub c: c_int,
    pub compute: c_int,
    pub scale: c_int,
    pub one: [u8; 8],
}

/// Row-major C = A B is column-major C' = B' A', and a row-major matrix read column by column is its transpose:
/// so the operands swap and their transpositions stay.
pub fn call(gemm: &GemmSpec) -> Result<Call> {
    let int = |extent: i64| {
        c_int::try_from(extent).ok().filter(|e| *e > 0).ok_or_else(|| {
            Error::input(Code::MeasureSize, format!("cuBLAS takes extents of 1 to 2^31 - 1, not {extent}"))
        })
    };
    let [a_transposed, b_transposed] = [gemm.layout.a_transposed(), gemm.layout.b_transposed()];
    Ok(Call {
        batch: int(gemm.products())?,
        m: int(gemm.n)?,
        n: int(gemm.m)?,
        k: int(gemm.k)?,
        trans_b: c_int::from(b_transposed),
        ld_b: int(if b_transposed { gemm.k } else { gemm.n })?,
        trans_a: c_int::from(a_transposed),
        ld_a: int(if a_transposed { gemm.m } else { gemm.k })?,
        ld_c: int(gemm.n)?,
    })
}

/// Elements from one product to the next: of the first operand of the call, the second, and the result.
pub fn strides(gemm: &GemmSpec) -> [i64; 3] {
    [gemm.k * gemm.n, gemm.m * gemm.k, gemm.m * gemm.n]
}

/// CUDA_R_* and CUBLAS_COMPUTE_* numbers.
pub fn types(gemm: &GemmSpec) -> Option<Types> {
    use DType::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32};
    let one_f32 = bytes(&1f32.to_le_bytes());
    let (a, b, c, compute, one) = match (gemm.a, gemm.b, gemm.acc, gemm.out) {
        (F32, F32, F32, F32) => (0, 0, 0, 68, one_f32),
        (Tf32, Tf32, F32, F32) => (0, 0, 0, 77, one_f32),
        (F16, F16, F32, F16) => (2, 2, 2, 68, one_f32),
        (F16, F16, F32, F32) => (2, 2, 0, 68, one_f32),
        (F16, F16, F16, F16) => (2, 2, 2, 64, bytes(&half::f16::ONE.to_le_bytes())),
        (Bf16, Bf16, F32, Bf16) => (14, 14, 14, 68, one_f32),
        (Bf16, Bf16, F32, F32) => (14, 14, 0, 68, one_f32),
        (F64, F64, F64, F64) => (1, 1, 1, 70, bytes(&1f64.to_le_bytes())),
        (S8, S8, S32, S32) => (3, 3, 10, 72, bytes(&1i32.to_le_bytes())),
        // cuBLASLt has no product of two e5m2.
        (E5m2, E5m2, ..) => return None,
        (E4m3 | E5m2, E4m3 | E5m2, F32, F16 | Bf16 | F32) => {
            let number = |dtype| if dtype == E4m3 { 28 } else { 29 };
            let result = [(F16, 2), (Bf16, 14)].into_iter().find(|(dtype, _)| *dtype == gemm.out).map_or(0, |(_, n)| n);
            (number(gemm.a), number(gemm.b), result, 68, one_f32)
        }
        _ => return None,
    };
    // CUDA_R_32F, _64F, _16F and _32I: the type in which the compute type has its scalars.
    let scale = match compute {
        64 => 2,
        70 => 1,
        72 => 10,
        _ => 0,
    };
    Some(Types { a, b, c, compute, scale, one })
}

/// Whether cuBLASLt alone multiplies the types: cuBLAS has no products of 8-bit floats.
pub fn is_lt_alone(gemm: &GemmSpec) -> bool {
    gemm.a.is_float8()
}

/// Whether cuBLASLt reads the scales of blocks as they are: it aligns the rows of those of B to four.
pub fn has_block_scales(gemm: &GemmSpec) -> bool {
    gemm.batch.is_none() && gemm.a.is_float8() && gemm.k % (4 * SCALE_BLOCK) == 0
}

/// Whether the buffers hold the scales of blocks.
pub fn check_scales(gemm: &GemmSpec, a_scales: &DeviceBuffer, b_scales: &DeviceBuffer) -> Result<()> {
    for ((name, buffer), shape) in [("a_scales", a_scales), ("b_scales", b_scales)].into_iter().zip(gemm.scale_shapes())
    {
        let count: i64 = shape.iter().product();
        if buffer.dtype() != DType::F32 || (buffer.bytes() as u64) < DType::F32.bytes_of(count as u64) {
            return Err(Error::input(Code::MeasureOperand, format!("{name} is not {count} elements of f32")));
        }
    }
    Ok(())
}

/// Whether the buffers hold the matrices.
pub fn check(gemm: &GemmSpec, a: &DeviceBuffer, b: &DeviceBuffer, c: &DeviceBuffer) -> Result<()> {
    let [of_b, of_a, of_c] = strides(gemm);
    for (name, buffer, dtype, stride) in [("A", a, gemm.a, of_a), ("B", b, gemm.b, of_b), ("C", c, gemm.out, of_c)] {
        let count = gemm.products() * stride;
        let same_bits = buffer.dtype() == dtype || (dtype == DType::Tf32 && buffer.dtype() == DType::F32);
        if !same_bits || (buffer.bytes() as u64) < dtype.bytes_of(count as u64) {
            return Err(Error::input(Code::MeasureOperand, format!("{name} is not {count} elements of {dtype}")));
        }
    }
    Ok(())
}

/// The error for types that the library does not multiply.
pub fn unsupported(gemm: &GemmSpec) -> Error {
    let GemmSpec { a, b, acc, out, .. } = gemm;
    Error::machine(Code::HostNoBaseline, format!("cuBLAS has no plain GEMM {a} x {b} > {acc} > {out}"))
}

/// Up to eight bytes, the rest zero.
fn bytes(value: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    out[..value.len()].copy_from_slice(value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    fn gemm(layout: Layout) -> GemmSpec {
        GemmSpec::of(2, 3, 4, DType::F32, layout)
    }

    /// What a column-major BLAS computes for a call, element by element.
    fn column_major(call: &Call, first: &[f64], second: &[f64]) -> Vec<f64> {
        let (m, n, k) = (call.m as usize, call.n as usize, call.k as usize);
        let at = |x: &[f64], trans: c_int, ld: c_int, row: usize, column: usize| match trans {
            0 => x[row + column * ld as usize],
            _ => x[column + row * ld as usize],
        };
        let mut c = vec![0.0; m * n];
        for (row, column) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
            c[row + column * call.ld_c as usize] = (0..k)
                .map(|p| at(first, call.trans_b, call.ld_b, row, p) * at(second, call.trans_a, call.ld_a, p, column))
                .sum();
        }
        c
    }

    #[test]
    fn row_major_products_come_out_in_every_layout() {
        for layout in Layout::ALL {
            let (ta, tb) = (layout.a_transposed(), layout.b_transposed());
            let (m, n, k) = (2, 3, 4);
            let a: Vec<f64> = (0..m * k).map(|i| (i * 7 % 11) as f64).collect();
            let b: Vec<f64> = (0..k * n).map(|i| (i * 5 % 13) as f64).collect();
            let mut expected = vec![0.0; m * n];
            for (i, j, p) in (0..m).flat_map(|i| (0..n).flat_map(move |j| (0..k).map(move |p| (i, j, p)))) {
                let x = if ta { a[p * m + i] } else { a[i * k + p] };
                let y = if tb { b[j * k + p] } else { b[p * n + j] };
                expected[i * n + j] += x * y;
            }
            assert_eq!(column_major(&call(&gemm(layout)).unwrap(), &b, &a), expected, "{layout:?}");
        }
    }

    #[test]
    fn scales_of_blocks_need_aligned_rows() {
        let of = |k| GemmSpec { k, a: DType::E4m3, b: DType::E4m3, block_scales: true, ..gemm(Layout::NT) };
        assert!(has_block_scales(&of(512)) && !has_block_scales(&of(128)) && !has_block_scales(&of(500)));
        assert!(!has_block_scales(&of(512).batch(Some(2))));
    }

    #[test]
    fn types_have_the_librarys_numbers() {
        let plain = gemm(Layout::NN);
        let numbers = types(&plain).unwrap();
        assert_eq!((numbers.a, numbers.c, numbers.compute, numbers.one), (0, 0, 68, [0, 0, 0x80, 0x3F, 0, 0, 0, 0]));
        let half = types(&GemmSpec { a: DType::F16, b: DType::F16, out: DType::F16, ..plain }).unwrap();
        assert_eq!((half.a, half.c, half.compute), (2, 2, 68));
        assert_eq!(types(&GemmSpec { a: DType::E4m3, ..plain }), None);
        let float8 = |a, b, out| types(&GemmSpec { a, b, out, ..plain }).map(|t| (t.a, t.b, t.c, t.compute, t.scale));
        assert_eq!(float8(DType::E4m3, DType::E5m2, DType::Bf16), Some((28, 29, 14, 68, 0)));
        assert_eq!(float8(DType::E5m2, DType::E4m3, DType::F32), Some((29, 28, 0, 68, 0)));
        assert_eq!(float8(DType::E4m3, DType::E4m3, DType::F16), Some((28, 28, 2, 68, 0)));
        assert_eq!(float8(DType::E5m2, DType::E5m2, DType::F16), None);
        assert_eq!(call(&GemmSpec { m: 1 << 31, ..plain }).unwrap_err().code(), Code::MeasureSize);
    }
}
