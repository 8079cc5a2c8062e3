//! Tensor maps as the driver takes them: from the innermost dimension on, strides in bytes.

use crate::error::{Code, Error, Result};
use crate::kernel::{TensorMap, tensor_map_promotion, tensor_map_swizzle, tensor_map_type};

/// The arguments of cuTensorMapEncodeTiled but for the address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DriverMap {
    pub(super) data_type: i32,
    pub(super) extents: Vec<i64>,
    /// Of all dimensions but the innermost, in bytes.
    pub(super) strides: Vec<i64>,
    pub(super) tile: Vec<i64>,
    pub(super) swizzle: u32,
    pub(super) promotion: u32,
}

impl DriverMap {
    pub(super) fn of(map: &TensorMap) -> Result<DriverMap> {
        let wrong = |what: String| Error::input(Code::ArtifactLauncher, format!("a tensor map with {what}"));
        let data_type = tensor_map_type(map.dtype)
            .ok_or_else(|| wrong(format!("elements of {}, which TMA does not copy", map.dtype)))?;
        let bytes = i64::from(map.dtype.bits() / 8);
        let swizzle = tensor_map_swizzle(map.swizzle);
        let swizzle = swizzle.ok_or_else(|| wrong(format!("a swizzle of {} bytes", map.swizzle)))?;
        let promotion = tensor_map_promotion(map.promotion);
        let promotion = promotion.ok_or_else(|| wrong(format!("an L2 promotion of {} bytes", map.promotion)))?;
        Ok(DriverMap {
            data_type,
            extents: map.extents.iter().rev().copied().collect(),
            strides: map.strides.iter().rev().skip(1).map(|stride| stride * bytes).collect(),
            tile: map.tile.iter().rev().copied().collect(),
            swizzle,
            promotion,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::kernel::Param;

    #[test]
    fn maps_begin_with_the_innermost_dimension() {
        let map = TensorMap::new(Param::Arg(0), DType::F16, [&[64, 256], &[512, 1], &[128, 32]], 64, 128);
        let wanted = DriverMap {
            data_type: 6,
            extents: vec![256, 64],
            strides: vec![1024],
            tile: vec![32, 128],
            swizzle: 2,
            promotion: 2,
        };
        assert_eq!(DriverMap::of(&map).ok(), Some(wanted));
        for odd in [
            TensorMap { dtype: DType::S4, ..map.clone() },
            TensorMap { swizzle: 48, ..map.clone() },
            TensorMap { promotion: 32, ..map },
        ] {
            assert_eq!(DriverMap::of(&odd).unwrap_err().code(), Code::ArtifactLauncher);
        }
    }
}
