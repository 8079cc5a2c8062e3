//! Tensor maps: where the bytes of a box are in an array (CUDA Driver API, `cuTensorMapEncodeTiled`; PTX ISA,
//! "Tensors").
//!
//! A map counts dimensions from the innermost, whose elements are adjacent. A box begins at any coordinates, also
//! negative ones; what it has outside of the array is read as zero and is not written. In shared memory a box is dense,
//! its innermost dimension fastest, before the swizzle.

use crate::kernel::TensorMap;

/// A map with the dimensions as the hardware counts them, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Map {
    /// Of an element.
    pub bytes: i64,
    pub extents: Vec<i64>,
    /// Of all dimensions; the first is that of an element.
    pub strides: Vec<i64>,
    pub tile: Vec<i64>,
    /// Bytes of a row that the swizzle permutes; 16 without.
    pub width: u64,
}

/// A run of bytes that are adjacent in the array and in the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The first byte in the box, before the swizzle.
    pub in_box: usize,
    pub in_array: usize,
    pub bytes: usize,
}

/// Most elements of a box along a dimension, and most dimensions.
const MOST_TILE: i64 = 256;
const MOST_DIMENSIONS: usize = 5;

impl Map {
    /// What the driver would encode.
    ///
    /// # Errors
    /// What the driver would refuse.
    pub fn encode(map: &TensorMap) -> Result<Map, String> {
        let bits = i64::from(map.dtype.bits());
        let rank = map.extents.len();
        if !(1..=MOST_DIMENSIONS).contains(&rank) || map.strides.len() != rank || map.tile.len() != rank || bits < 8 {
            return Err(format!("a tensor map of {rank} dimensions of {} is none", map.dtype));
        }
        let bytes = bits / 8;
        let turned = |v: &[i64]| v.iter().rev().copied().collect::<Vec<i64>>();
        let strides: Vec<i64> = turned(&map.strides).into_iter().map(|s| s.saturating_mul(bytes)).collect();
        let (extents, tile) = (turned(&map.extents), turned(&map.tile));
        let width = match map.swizzle {
            0 | 16 => 16,
            32 | 64 | 128 => u64::from(map.swizzle),
            other => return Err(format!("a tensor map has a swizzle of {other} bytes")),
        };
        if strides[0] != bytes {
            return Err("the innermost elements of a tensor map are not adjacent".to_string());
        }
        if let Some(stride) = strides[1..].iter().find(|s| **s % 16 != 0 || !(0..1 << 40).contains(*s)) {
            return Err(format!("a tensor map has a stride of {stride} bytes, not a multiple of 16 below 2^40"));
        }
        if let Some(extent) = extents.iter().find(|e| !(1..=1 << 32).contains(*e)) {
            return Err(format!("a tensor map has an extent of {extent}"));
        }
        if let Some(extent) = tile.iter().find(|e| !(1..=MOST_TILE).contains(*e)) {
            return Err(format!("a tensor map has boxes of {extent} elements along a dimension"));
        }
        let row = tile[0] * bytes;
        if row % 16 != 0 || width > 16 && row as u64 > width {
            return Err(format!("a tensor map has boxes with rows of {row} bytes, which its swizzle does not allow"));
        }
        Ok(Map { bytes, extents, strides, tile, width })
    }

    /// Bytes of a box.
    pub fn box_bytes(&self) -> usize {
        (self.tile.iter().product::<i64>() * self.bytes) as usize
    }

    /// What of the box at some coordinates is inside of the array.
    pub fn runs(&self, first: &[i64]) -> Vec<Run> {
        let mut out = Vec::new();
        let row = self.tile[0] * self.bytes;
        let from = first[0].clamp(0, self.extents[0]);
        let to = (first[0] + self.tile[0]).clamp(0, self.extents[0]);
        let rows: i64 = self.tile[1..].iter().product();
        for n in 0..rows {
            let (mut rest, mut at, mut inside) = (n, from * self.bytes, from < to);
            let outer = first.iter().zip(&self.tile).zip(&self.extents).zip(&self.strides).skip(1);
            for (((first, tile), extent), stride) in outer {
                let place = first + rest % tile;
                rest /= tile;
                inside &= (0..*extent).contains(&place);
                at += if inside { place * stride } else { 0 };
            }
            if inside {
                let in_box = (n * row + (from - first[0]) * self.bytes) as usize;
                out.push(Run { in_box, in_array: at as usize, bytes: ((to - from) * self.bytes) as usize });
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::kernel::Param;

    fn map(extents: &[i64], strides: &[i64], tile: &[i64], swizzle: u32) -> TensorMap {
        TensorMap::new(Param::Arg(0), DType::F16, [extents, strides, tile], swizzle, 0)
    }

    #[test]
    fn boxes_are_cut_at_the_ends_of_the_array() {
        let found = Map::encode(&map(&[5, 24], &[24, 1], &[4, 16], 32)).unwrap();
        assert_eq!((found.extents.clone(), found.strides.clone(), found.width), (vec![24, 5], vec![2, 48], 32));
        assert_eq!(found.box_bytes(), 128);
        // Rows 3 to 6, columns 16 to 31: rows 3 and 4 with columns 16 to 23 are inside.
        let runs = found.runs(&[16, 3]);
        assert_eq!(runs[0], Run { in_box: 0, in_array: 3 * 48 + 32, bytes: 16 });
        assert_eq!(runs[1], Run { in_box: 32, in_array: 4 * 48 + 32, bytes: 16 });
        assert_eq!(runs.len(), 2);
        // In front of the array, too.
        let runs = found.runs(&[-4, -3]);
        assert_eq!(runs, [Run { in_box: 3 * 32 + 8, in_array: 0, bytes: 24 }]);
        assert_eq!(found.runs(&[24, 0]), []);
        assert_eq!(found.runs(&[i64::from(i32::MIN), 0]), []);
    }

    #[test]
    fn three_dimensions_have_the_innermost_fastest() {
        let found = Map::encode(&map(&[3, 4, 8], &[64, 16, 1], &[2, 2, 8], 0)).unwrap();
        let runs = found.runs(&[0, 3, 1]);
        // Boxes of 8 by 2 by 2 elements: of the middle dimension only index 3 is inside.
        let expected = [(0, 128 + 3 * 32), (2 * 16, 2 * 128 + 3 * 32)];
        assert_eq!(runs, expected.map(|(in_box, in_array)| Run { in_box, in_array, bytes: 16 }));
    }

    #[test]
    fn what_the_driver_refuses_is_refused() {
        let refused = |m: TensorMap| Map::encode(&m).unwrap_err();
        assert!(refused(map(&[4, 20], &[20, 1], &[4, 16], 0)).contains("40 bytes"));
        assert!(refused(map(&[4, 64], &[64, 1], &[4, 64], 64)).contains("rows of 128 bytes"));
        assert!(refused(map(&[4, 64], &[64, 1], &[257, 16], 0)).contains("257"));
        assert!(refused(map(&[4, 64], &[128, 2], &[4, 16], 0)).contains("adjacent"));
        assert!(refused(map(&[4, 64], &[64, 1], &[4, 4], 0)).contains("rows of 8 bytes"));
    }
}
