//! Tensor maps: the descriptors by which a Hopper kernel copies boxes of an array (TMA).
//!
//! The rules checked here are those of `cuTensorMapEncodeTiled` in the CUDA Driver API reference; the driver itself
//! answers all of them with "invalid value".

use super::driver::{self, api, api::TensorMap, code};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::kernel;
use crate::target::BOX_SIDE;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the bytes of a box are permuted in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Swizzle {
    /// Not at all.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

impl Swizzle {
    const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// The bytes that it permutes within; 0 for none.
    fn bytes(self) -> u32 {
        match self {
            Swizzle::None => 0,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// The swizzle of a compiled kernel's map.
    fn of(bytes: u32) -> Option<Swizzle> {
        let number = kernel::tensor_map_swizzle(bytes)?;
        Swizzle::ALL.into_iter().find(|swizzle| kernel::tensor_map_swizzle(swizzle.bytes()) == Some(number))
    }
}

/// What a tensor map describes; everything innermost dimension first, as the driver wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMapSpec {
    /// The type of an element.
    pub dtype: DType,
    /// Extents of the array.
    pub extents: Vec<u64>,
    /// Strides in bytes of all dimensions but the innermost, which is contiguous.
    pub strides_bytes: Vec<u64>,
    /// Extents of a box.
    pub box_extents: Vec<u32>,
    /// The permutation in shared memory.
    pub swizzle: Swizzle,
    /// Bytes that the second-level cache fetches together: 64, 128 or 256; 0 leaves it alone.
    pub promotion: u32,
}

/// A map as it was encoded: for this address, and for this extent where that is dynamic.
#[derive(Debug)]
struct Kept {
    address: u64,
    extent: Option<i64>,
    map: TensorMap,
}

/// The tensor maps of a kernel as they were encoded for the last launch, with a place for each parameter.
#[derive(Debug)]
pub(super) struct Encoded(Mutex<Vec<Option<Kept>>>);

/// The maps of one launch: they stay where they are until this is dropped.
pub(super) struct Maps<'a>(MutexGuard<'a, Vec<Option<Kept>>>);

impl Encoded {
    /// Room for the maps of so many parameters.
    pub(super) fn new(parameters: usize) -> Encoded {
        Encoded(Mutex::new(std::iter::repeat_with(|| None).take(parameters).collect()))
    }

    /// The maps, for one launch at a time.
    pub(super) fn lock(&self) -> Maps<'_> {
        Maps(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Maps<'_> {
    /// Encodes the map of an array anew where its address was another before, or the value of its dynamic size. `parameter` is the position among
    /// the kernel's.
    pub(super) fn encode(
        &mut self,
        parameter: usize,
        map: &kernel::TensorMap,
        address: u64,
        sizes: &[i64],
    ) -> Result<()> {
        let extent = map.dynamic.and_then(|(_, size)| sizes.get(size).copied());
        let known = |kept: &Kept| kept.address == address && kept.extent == extent;
        match self.0.get_mut(parameter) {
            Some(Some(kept)) if known(kept) => Ok(()),
            Some(kept) => {
                let map = specified(map, extent)?.encode(address)?;
                *kept = Some(Kept { address, extent, map });
                Ok(())
            }
            None => Err(Error::bug(Code::TensorMapShape, "a tensor map of no parameter")),
        }
    }

    /// The map that was encoded for a parameter.
    pub(super) fn get(&self, parameter: usize) -> Option<&TensorMap> {
        self.0.get(parameter)?.as_ref().map(|kept| &kept.map)
    }
}

/// What a map is encoded from, with this extent where it has a dynamic one.
fn specified(map: &kernel::TensorMap, extent: Option<i64>) -> Result<TensorMapSpec> {
    let mut spec = TensorMapSpec::of(map)?;
    if let (Some((dim, _)), Some(size)) = (map.dynamic, extent) {
        // Innermost first.
        let extent = spec.extents.iter_mut().rev().nth(dim);
        extent.into_iter().for_each(|extent| *extent = u64::try_from(size).unwrap_or(0));
    }
    Ok(spec)
}

impl TensorMapSpec {
    /// What the driver is told of a compiled kernel's map.
    ///
    /// # Errors
    /// `tensor_map.shape` of a map that no kernel has.
    pub fn of(map: &kernel::TensorMap) -> Result<TensorMapSpec> {
        let odd = |what: &str| Error::bug(Code::TensorMapShape, format!("a tensor map with {what}"));
        let bits = i64::from(map.dtype.bits());
        let extents = map.extents.iter().rev().map(|e| u64::try_from(*e).map_err(|_| odd("a negative extent")));
        let strides = map.strides.iter().rev().skip(1);
        let strides = strides.map(|s| u64::try_from(s.saturating_mul(bits) / 8).map_err(|_| odd("a negative stride")));
        let tile = map.tile.iter().rev().map(|e| u32::try_from(*e).map_err(|_| odd("a negative box")));
        Ok(TensorMapSpec {
            dtype: map.dtype,
            extents: extents.collect::<Result<_>>()?,
            strides_bytes: strides.collect::<Result<_>>()?,
            box_extents: tile.collect::<Result<_>>()?,
            swizzle: Swizzle::of(map.swizzle).ok_or_else(|| odd(&format!("a swizzle of {} bytes", map.swizzle)))?,
            promotion: map.promotion,
        })
    }

    /// Encodes the map of an array at a device address. What lies outside the array reads as zero.
    ///
    /// # Errors
    /// `tensor_map.shape` where the hardware has no such map; `driver.*` where the driver is older than CUDA 12.0 or refuses it.
    pub fn encode(&self, address: u64) -> Result<TensorMap> {
        let [data_type, swizzle, promotion] = self.check(address)?;
        // SAFETY: the type is the entry point's prototype.
        let encode = unsafe { driver::driver()?.late::<api::TensorMapEncodeTiled>("cuTensorMapEncodeTiled", "12.0")? };
        let mut map = TensorMap([0; 16]);
        let ones = [1u32; 5];
        // No interleaving; zeros outside.
        // SAFETY: every array has the length that the rank says (`check`); the map is aligned by its type.
        let result = unsafe {
            encode(
                &mut map,
                data_type,
                self.extents.len() as u32,
                std::ptr::with_exposed_provenance_mut(address as usize),
                self.extents.as_ptr(),
                self.strides_bytes.as_ptr(),
                self.box_extents.as_ptr(),
                ones.as_ptr(),
                0,
                swizzle,
                promotion,
                0,
            )
        };
        code::check(result, "encoding a tensor map")?;
        Ok(map)
    }

    /// The driver's numbers of the element type, the swizzle and the promotion, if everything else is as the driver wants it.
    fn check(&self, address: u64) -> Result<[i32; 3]> {
        let refuse = |what: String| Err(Error::bug(Code::TensorMapShape, what));
        let rank = self.extents.len();
        if !(1..=5).contains(&rank) || self.strides_bytes.len() + 1 != rank || self.box_extents.len() != rank {
            return refuse(format!(
                "a tensor map of {rank} dimensions with {} strides and a box of {}",
                self.strides_bytes.len(),
                self.box_extents.len()
            ));
        }
        if !address.is_multiple_of(16) {
            return refuse(format!("a tensor map of an array at {address:#x}, not a multiple of 16"));
        }
        if let Some(stride) = self.strides_bytes.iter().find(|s| !s.is_multiple_of(16) || **s >= 1 << 40) {
            return refuse(format!("a tensor map with a stride of {stride} bytes, not a multiple of 16 below 2^40"));
        }
        if let Some(extent) = self.extents.iter().find(|e| !(1..=1 << 32).contains(*e)) {
            return refuse(format!("a tensor map with an extent of {extent}"));
        }
        if let Some(extent) = self.box_extents.iter().find(|e| !(1..=BOX_SIDE).contains(&i64::from(**e))) {
            return refuse(format!("a tensor map with a box extent of {extent}: 1 to {BOX_SIDE} are possible"));
        }
        let Some(data_type) = kernel::tensor_map_type(self.dtype) else {
            return refuse(format!("a tensor map of {}", self.dtype));
        };
        let row = self.box_extents[0] * (self.dtype.bits() / 8);
        let numbers = (kernel::tensor_map_swizzle(self.swizzle.bytes()), kernel::tensor_map_promotion(self.promotion));
        let (Some(swizzle), Some(promotion)) = numbers else {
            return refuse(format!("a tensor map with an L2 promotion of {} bytes: 0, 64, 128 or 256", self.promotion));
        };
        let limit = if self.swizzle == Swizzle::None { u32::MAX } else { self.swizzle.bytes() };
        if !row.is_multiple_of(16) || row > limit {
            return refuse(format!("a tensor map with box rows of {row} bytes: a multiple of 16 up to the swizzle"));
        }
        Ok([data_type, swizzle as i32, promotion as i32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_would_refuse_is_refused_with_the_reason() {
        let good = TensorMapSpec {
            dtype: DType::F16,
            extents: vec![4096, 4096],
            strides_bytes: vec![8192],
            box_extents: vec![64, 128],
            swizzle: Swizzle::B128,
            promotion: 256,
        };
        assert_eq!(good.check(0x1000).ok(), Some([6, 3, 3]));
        assert_eq!([16, 64, 48].map(Swizzle::of), [Some(Swizzle::None), Some(Swizzle::B64), None]);
        let refused = |spec: TensorMapSpec, address| spec.check(address).unwrap_err().message().to_string();
        assert!(refused(good.clone(), 8).contains("0x8"));
        assert!(refused(TensorMapSpec { strides_bytes: vec![8200], ..good.clone() }, 0).contains("8200"));
        assert!(refused(TensorMapSpec { strides_bytes: vec![], ..good.clone() }, 0).contains("0 strides"));
        assert!(refused(TensorMapSpec { box_extents: vec![64, 257], ..good.clone() }, 0).contains("257"));
        assert!(refused(TensorMapSpec { box_extents: vec![128, 64], ..good.clone() }, 0).contains("256 bytes"));
        assert!(refused(TensorMapSpec { promotion: 32, ..good.clone() }, 0).contains("promotion of 32 bytes"));
        assert!(refused(TensorMapSpec { extents: vec![0, 1], ..good.clone() }, 0).contains("extent of 0"));
        assert!(refused(TensorMapSpec { dtype: DType::S4, ..good }, 0).contains("s4"));
    }
}
