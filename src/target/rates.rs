//! How fast multiprocessors compute.

use crate::dtype::DType;

/// Operations (a multiply-add counts as two) that a multiprocessor can do each clock with plain or tensor instructions,
/// by compute capability, from the CUDA C++ Programming Guide (arithmetic throughput) and NVIDIA's architecture papers.
/// `None` for what is not listed.
pub fn operations_per_clock(capability: (u32, u32), input: DType, accumulate: DType) -> Option<f64> {
    let rate = match (capability, input, accumulate) {
        ((7, 0 | 5), DType::F32, DType::F32) => 128.0,
        ((8, 0), DType::F32, DType::F32) => 128.0,
        ((8, 6 | 7 | 9) | (9, 0), DType::F32, DType::F32) => 256.0,
        ((9, 0), DType::F16 | DType::Bf16, DType::F32 | DType::F16) => 4096.0,
        ((9, 0), DType::Tf32, DType::F32) => 2048.0,
        ((9, 0), DType::E4m3 | DType::E5m2, DType::F32 | DType::F16) => 8192.0,
        // 4-bit integers are multiplied as 8-bit ones: the chip has no instruction for them.
        ((9, 0), DType::S8 | DType::U8 | DType::S4 | DType::U4, DType::S32) => 8192.0,
        // Not measured: 4 times the rate of 8-bit integers, of which sm_80 has 8 times.
        ((9, 0), DType::B1, DType::S32) => 32768.0,
        ((9, 0), DType::F64, DType::F64) => 256.0,
        ((8, 0), DType::F64, DType::F64) => 128.0,
        ((8, 6 | 7 | 9), DType::F64, DType::F64) => 4.0,
        ((8, 0), DType::F16 | DType::Bf16, DType::F32 | DType::F16) => 2048.0,
        ((8, 0), DType::Tf32, DType::F32) => 1024.0,
        ((8, 0), DType::S8 | DType::U8, DType::S32) => 4096.0,
        ((8, 0), DType::S4 | DType::U4, DType::S32) => 8192.0,
        // 4992 TOPS beside 624 of 8-bit integers ("NVIDIA A100 Tensor Core GPU Architecture", table of formats).
        ((8, 0), DType::B1, DType::S32) => 32768.0,
        ((7, 0), DType::F16, DType::F32 | DType::F16) => 1024.0,
        _ => return None,
    };
    Some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h200_does_67_teraflops_in_f32() {
        let rate = operations_per_clock((9, 0), DType::F32, DType::F32).unwrap() * 132.0 * 1.98e9;
        assert!((66e12..68e12).contains(&rate));
        assert_eq!(operations_per_clock((3, 5), DType::F32, DType::F32), None);
    }
}
