//! DLPack: device arrays of other libraries as [`DeviceBuffer`]s, and the other way round, without a copy.
//!
//! The structures are those of `dlpack.h`, version 1.1. A producer hands over a managed tensor; the consumer calls its deleter exactly
//! once, when no work uses the memory any more. Neither side waits for the other's streams: the caller orders the work of the two
//! libraries, by waiting or by using one stream for both ([`Device::raw_stream`], [`super::Program::launch_raw`]).

use super::buffer::{DeviceBuffer, describe};
use super::device::Device;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use std::ffi::c_void;
use std::ptr::NonNull;

/// The version of the structures; a tensor of another major version has another layout.
pub const DLPACK_VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };
/// The consumer must not write (DLPACK_FLAG_BITMASK_READ_ONLY).
pub const DLPACK_READ_ONLY: u64 = 1;
/// Elements below a byte take a byte each (DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED).
pub const DLPACK_PADDED: u64 = 1 << 2;

/// The most dimensions of an array that is taken.
const MOST_DIMENSIONS: i32 = 64;

/// DLDeviceType: device memory, and memory that the driver moves between host and device.
const CUDA: i32 = 2;
const CUDA_MANAGED: i32 = 13;

/// DLPackVersion.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DLPackVersion {
    pub major: u32,
    pub minor: u32,
}

/// DLDevice.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DLDevice {
    pub device_type: i32,
    pub device_id: i32,
}

/// DLDataType.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// DLTensor: strides in elements, null where the array is packed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// DLManagedTensor: the structure before version 1.0, which most producers still have.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct DLManagedTensor {
    pub dl_tensor: DLTensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// DLManagedTensorVersioned.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct DLManagedTensorVersioned {
    pub version: DLPackVersion,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    pub flags: u64,
    pub dl_tensor: DLTensor,
}

/// Who owns the memory of an array of another library: a managed tensor that this side has to give back, once, by [`Foreign::give_back`], or the caller.
#[derive(Debug)]
pub(super) enum Foreign {
    Borrowed,
    Legacy(NonNull<DLManagedTensor>),
    Versioned(NonNull<DLManagedTensorVersioned>),
}

// SAFETY: the caller of `from_dlpack` promises that any thread may call the deleter.
unsafe impl Send for Foreign {}
// SAFETY: a shared reference to it does nothing.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Calls the deleter.
    pub(super) fn give_back(self) {
        // SAFETY: the tensor lives until its deleter is called, which happens here alone: `self` is consumed.
        unsafe {
            match self {
                Foreign::Borrowed => {}
                Foreign::Legacy(tensor) => {
                    (&raw const (*tensor.as_ptr()).deleter)
                        .read()
                        .into_iter()
                        .for_each(|delete| delete(tensor.as_ptr()));
                }
                // The deleter has the same offset in every major version; the rest of the structure may be shorter.
                Foreign::Versioned(tensor) => {
                    (&raw const (*tensor.as_ptr()).deleter)
                        .read()
                        .into_iter()
                        .for_each(|delete| delete(tensor.as_ptr()));
                }
            }
        }
    }
}

impl DeviceBuffer {
    /// A view of a device array of another library. It is given back (the deleter is called) when the buffer is dropped and the work on the
    /// device's stream is done; here, if it is refused.
    ///
    /// The array must be packed row-major; its type, shape and alignment are checked again by each launch. An array that the producer
    /// marks as read-only is no output of a launch.
    ///
    /// # Errors
    /// `dlpack.*` of a structure of another major version, an array on another device, of a type that warploom has not, or with strides
    /// that are not packed.
    ///
    /// # Safety
    /// The tensor must be one as `dlpack.h` says, in device memory of this device's primary context, that nothing else consumes; its
    /// deleter may be called on any thread. Work of the producer that writes the array must be done, or ordered before the launches.
    pub unsafe fn from_dlpack(device: &Device, tensor: NonNull<DLManagedTensorVersioned>) -> Result<DeviceBuffer> {
        let foreign = Foreign::Versioned(tensor);
        // SAFETY: the version is the first field of every layout, and the rest is read only where the layout is this one.
        let read = unsafe {
            let version = (&raw const (*tensor.as_ptr()).version).read();
            match version.major == DLPACK_VERSION.major {
                true => Array::read(&tensor.as_ref().dl_tensor, tensor.as_ref().flags, device.info().ordinal),
                false => Err(version_error(version)),
            }
        };
        imported(device, foreign, read)
    }

    /// As [`DeviceBuffer::from_dlpack`], for the structure before version 1.0. It has no mark for read-only arrays.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn from_dlpack_legacy(device: &Device, tensor: NonNull<DLManagedTensor>) -> Result<DeviceBuffer> {
        // SAFETY: the caller's tensor is as `dlpack.h` says.
        let read = unsafe { Array::read(&tensor.as_ref().dl_tensor, 0, device.info().ordinal) };
        imported(device, Foreign::Legacy(tensor), read)
    }

    /// A view of a device array that its owner keeps: nothing is given back, and the drop of the buffer waits for nothing.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::from_dlpack`] but for the version.
    ///
    /// # Safety
    /// The tensor must be as `dlpack.h` says, and its memory must stay as it is until the buffer is dropped and all work that uses it is done.
    pub unsafe fn borrow_dlpack(device: &Device, tensor: &DLTensor) -> Result<DeviceBuffer> {
        // SAFETY: the caller's tensor is as `dlpack.h` says.
        imported(device, Foreign::Borrowed, unsafe { Array::read(tensor, 0, device.info().ordinal) })
    }

    /// Gives an array of another library back at once; a drop waits for the work on the device's stream first. The memory of an array of this
    /// crate is freed as by a drop.
    ///
    /// # Safety
    /// No work on the device's stream uses the array, and its library keeps the memory for the work on other streams that does.
    pub unsafe fn give_back(mut self) {
        if let Some(foreign) = self.take_foreign() {
            foreign.give_back();
        }
    }

    /// Hands the array to another library: whoever takes it calls its deleter once, which frees the memory when the work on the device's
    /// stream is done. The consumer orders its work after the work that writes the array.
    pub fn into_dlpack(self) -> NonNull<DLManagedTensorVersioned> {
        let flags = if self.is_read_only() { DLPACK_READ_ONLY } else { 0 };
        exported(self, |dl_tensor, manager_ctx| DLManagedTensorVersioned {
            version: DLPACK_VERSION,
            manager_ctx,
            deleter: Some(delete_versioned),
            flags,
            dl_tensor,
        })
    }

    /// As [`DeviceBuffer::into_dlpack`], as the structure before version 1.0.
    ///
    /// # Errors
    /// `dlpack.read_only` of an array that came as read-only, which that structure cannot say.
    pub fn into_dlpack_legacy(self) -> Result<NonNull<DLManagedTensor>> {
        if self.is_read_only() {
            let message = "an array that must not be written cannot be handed over as a DLManagedTensor";
            return Err(Error::input(Code::DlpackReadOnly, message).help("hand it over as a DLManagedTensorVersioned"));
        }
        let legacy = |dl_tensor, manager_ctx| DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete_legacy) };
        Ok(exported(self, legacy))
    }
}

/// A buffer of what was read; what was refused is given back.
fn imported(device: &Device, foreign: Foreign, read: Result<Array>) -> Result<DeviceBuffer> {
    match read {
        Ok(Array { dtype, shape, address, bytes, read_only }) => {
            Ok(DeviceBuffer::of_foreign(device.clone(), (dtype, shape), (address, bytes), read_only, foreign))
        }
        Err(error) => {
            foreign.give_back();
            Err(error)
        }
    }
}

fn version_error(DLPackVersion { major, minor }: DLPackVersion) -> Error {
    let own = DLPACK_VERSION.major;
    Error::input(Code::DlpackVersion, format!("the array is one of DLPack {major}.{minor}, and version {own} is read"))
        .help("have the producer hand over an array of DLPack 1 (`max_version` of `__dlpack__`)")
}

/// What a tensor describes.
#[derive(Debug, PartialEq, Eq)]
struct Array {
    dtype: DType,
    shape: Vec<usize>,
    address: u64,
    bytes: usize,
    read_only: bool,
}

impl Array {
    /// Checks everything that a tensor says.
    ///
    /// # Safety
    /// Its shape and its strides are null or have as many numbers as it has dimensions.
    unsafe fn read(tensor: &DLTensor, flags: u64, ordinal: u32) -> Result<Array> {
        let DLDevice { device_type, device_id } = tensor.device;
        let here = device_type == CUDA && u32::try_from(device_id) == Ok(ordinal) || device_type == CUDA_MANAGED;
        if !here {
            let message = format!(
                "the array is on DLPack device type {device_type}, number {device_id}, and CUDA device {ordinal} (type {CUDA}) is needed"
            );
            return Err(Error::input(Code::DlpackDevice, message).help("copy the array to the device first"));
        }
        let dtype = read_type(tensor.dtype)?;
        if dtype.bits() < 8 && flags & DLPACK_PADDED != 0 {
            let message =
                format!("the array is one of {dtype} with a byte for each element, and packed elements are needed");
            return Err(Error::input(Code::DlpackType, message));
        }
        let ndim =
            Some(tensor.ndim).filter(|n| (0..=MOST_DIMENSIONS).contains(n) && (*n == 0 || !tensor.shape.is_null()));
        let ndim = ndim.ok_or_else(|| {
            Error::input(
                Code::DlpackShape,
                format!("the array says that it has {} dimensions without a shape", tensor.ndim),
            )
        })? as usize;
        // SAFETY: the caller vouches for the lengths; neither is null where it is read.
        let list = |numbers: *mut i64| match ndim {
            0 => Vec::new(),
            _ => unsafe { std::slice::from_raw_parts(numbers, ndim) }.to_vec(),
        };
        let extents = list(tensor.shape);
        let (shape, bytes) = sized(dtype, &extents)?;
        if !tensor.strides.is_null() {
            check_packed(dtype, &shape, &list(tensor.strides))?;
        }
        let address = (tensor.data.addr() as u64).checked_add(tensor.byte_offset);
        let address = address.filter(|at| at.checked_add(bytes as u64).is_some() && (bytes == 0 || *at != 0));
        let address = address.ok_or_else(|| {
            let message =
                format!("the array of {bytes} bytes is at {:?} plus {} bytes", tensor.data, tensor.byte_offset);
            Error::input(Code::DlpackShape, message)
        })?;
        Ok(Array { dtype, shape, address, bytes, read_only: flags & DLPACK_READ_ONLY != 0 })
    }
}

/// The extents, and the bytes of all elements.
fn sized(dtype: DType, extents: &[i64]) -> Result<(Vec<usize>, usize)> {
    let odd = || Error::input(Code::DlpackShape, format!("the array has the shape {extents:?}"));
    let shape: Vec<usize> = extents
        .iter()
        .map(|extent| usize::try_from(*extent))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| odd())?;
    let count = shape.iter().try_fold(1u64, |n, extent| n.checked_mul(*extent as u64)).filter(|n| *n < 1 << 48);
    let bytes = dtype.bytes_of(count.ok_or_else(odd)?);
    Ok((shape, bytes as usize))
}

/// That strides are those of a packed array; a dimension of one element may have any.
fn check_packed(dtype: DType, shape: &[usize], strides: &[i64]) -> Result<()> {
    let mut next = 1i64;
    for (extent, stride) in shape.iter().zip(strides).rev() {
        if *extent > 1 && *stride != next && !shape.contains(&0) {
            let message =
                format!("the array {} has the strides {strides:?}, and is not packed", describe(dtype, shape));
            return Err(Error::input(Code::DlpackStrides, message)
                .help("make it contiguous first, or hand over the array that it is a view of"));
        }
        next = next.saturating_mul(*extent as i64);
    }
    Ok(())
}

/// DLDataTypeCode and bits of each type; 32-bit floats are not tf32.
const TYPES: [(DType, u8, u8); 15] = [
    (DType::S4, 0, 4),
    (DType::S8, 0, 8),
    (DType::S32, 0, 32),
    (DType::S64, 0, 64),
    (DType::B1, 1, 1),
    (DType::U4, 1, 4),
    (DType::U8, 1, 8),
    (DType::U32, 1, 32),
    (DType::F16, 2, 16),
    (DType::F32, 2, 32),
    (DType::F64, 2, 64),
    (DType::Bf16, 4, 16),
    (DType::Bool, 6, 8),
    // float8_e4m3fn, which has no infinities, and float8_e5m2.
    (DType::E4m3, 10, 8),
    (DType::E5m2, 12, 8),
];

fn read_type(dtype: DLDataType) -> Result<DType> {
    let DLDataType { code, bits, lanes } = dtype;
    let found = TYPES.iter().find(|row| (row.1, row.2, 1) == (code, bits, lanes));
    found.map(|row| row.0).ok_or_else(|| {
        let message =
            format!("the array has DLPack type code {code} of {bits} bits in {lanes} lanes, which is no type here");
        Error::input(Code::DlpackType, message)
    })
}

impl DLDataType {
    /// The type of an element as DLPack has it: a tf32 is stored as an f32.
    pub fn of(dtype: DType) -> DLDataType {
        let stored = if dtype == DType::Tf32 { DType::F32 } else { dtype };
        let row = TYPES.iter().find(|row| row.0 == stored);
        // Every type but tf32 has a row: the test below goes through all.
        let (code, bits) = row.map_or((3, 0), |row| (row.1, row.2));
        DLDataType { code, bits, lanes: 1 }
    }
}

/// A buffer that another library holds, with the structure that describes it.
struct Exported<T> {
    tensor: Option<T>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    buffer: DeviceBuffer,
}

/// Puts a buffer behind a structure, which is given back by [`delete_versioned`] or [`delete_legacy`].
fn exported<T>(buffer: DeviceBuffer, make: impl FnOnce(DLTensor, *mut c_void) -> T) -> NonNull<T> {
    let shape: Vec<i64> = buffer.shape().iter().map(|extent| *extent as i64).collect();
    let mut strides = vec![1i64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d]);
    }
    let all = Box::leak(Box::new(Exported { tensor: None, shape, strides, buffer }));
    let data = if all.buffer.bytes() == 0 { 0 } else { all.buffer.address() as usize };
    let tensor = DLTensor {
        data: std::ptr::with_exposed_provenance_mut(data),
        device: DLDevice { device_type: CUDA, device_id: all.buffer.device().info().ordinal as i32 },
        ndim: all.shape.len() as i32,
        dtype: DLDataType::of(all.buffer.dtype()),
        shape: all.shape.as_mut_ptr(),
        strides: all.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context: *mut Exported<T> = all;
    // SAFETY: the box was leaked above, and nothing else refers to it.
    unsafe { NonNull::from((*context).tensor.insert(make(tensor, context.cast()))) }
}

/// Frees what [`exported`] made. Null is no tensor.
///
/// # Safety
/// As `dlpack.h` says: the tensor is one that [`DeviceBuffer::into_dlpack`] made, and is not used again.
unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    if !tensor.is_null() {
        // SAFETY: the context is the box that `exported` leaked.
        drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported<DLManagedTensorVersioned>>()) });
    }
}

/// As [`delete_versioned`].
///
/// # Safety
/// As there, of [`DeviceBuffer::into_dlpack_legacy`].
unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    if !tensor.is_null() {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported<DLManagedTensor>>()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor whose shape and strides live on.
    fn tensor<const N: usize>(shape: [i64; N], strides: Option<[i64; N]>) -> DLTensor {
        let kept = |numbers: [i64; N]| Box::leak(Box::new(numbers)).as_mut_ptr();
        DLTensor {
            data: std::ptr::without_provenance_mut(0x1000),
            device: DLDevice { device_type: CUDA, device_id: 0 },
            ndim: N as i32,
            dtype: DLDataType { code: 2, bits: 16, lanes: 1 },
            shape: kept(shape),
            strides: strides.map_or(std::ptr::null_mut(), kept),
            byte_offset: 0,
        }
    }

    fn read(tensor: &DLTensor, flags: u64) -> Result<Array> {
        // SAFETY: the tests' shapes have as many numbers as they say.
        unsafe { Array::read(tensor, flags, 0) }
    }

    #[test]
    fn every_type_goes_out_and_comes_back() {
        for dtype in DType::ALL {
            let back = read_type(DLDataType::of(dtype)).unwrap();
            assert!(back == dtype || dtype.reads(back), "{dtype} comes back as {back}");
        }
        for (code, bits, lanes) in [(2, 16, 2), (5, 64, 1), (8, 8, 1), (0, 16, 1), (2, 0, 1)] {
            assert_eq!(read_type(DLDataType { code, bits, lanes }).unwrap_err().code(), Code::DlpackType);
        }
    }

    #[test]
    fn packed_arrays_are_read() {
        let whole = Array { dtype: DType::F16, shape: vec![2, 1, 3], address: 0x1000, bytes: 12, read_only: false };
        assert_eq!(read(&tensor([2, 1, 3], None), 0).as_ref(), Ok(&whole));
        // The stride of a dimension of one element says nothing.
        assert_eq!(read(&tensor([2, 1, 3], Some([3, 77, 1])), 0).as_ref(), Ok(&whole));
        let moved = DLTensor { byte_offset: 32, ..tensor([2, 1, 3], None) };
        assert_eq!(read(&moved, DLPACK_READ_ONLY), Ok(Array { address: 0x1020, read_only: true, ..whole }));
        let empty = DLTensor { data: std::ptr::null_mut(), ..tensor([0, 4], Some([9, 9])) };
        assert_eq!(read(&empty, 0).map(|array| (array.bytes, array.shape)), Ok((0, vec![0, 4])));
        let scalar = DLTensor { ndim: 0, shape: std::ptr::null_mut(), ..tensor([1], None) };
        assert_eq!(read(&scalar, 0).map(|array| array.bytes), Ok(2));
        let managed = DLDevice { device_type: CUDA_MANAGED, device_id: 7 };
        assert!(read(&DLTensor { device: managed, ..tensor([1], None) }, 0).is_ok());
    }

    #[test]
    fn what_is_no_packed_array_of_this_device_is_refused() {
        let refused = |tensor: &DLTensor, flags| read(tensor, flags).map(drop).unwrap_err().code().to_string();
        let good = || tensor([2, 3], None);
        let strided = |strides: [i64; 2]| tensor([2, 3], Some(strides));
        for (device_type, device_id) in [(1, 0), (CUDA, 1), (CUDA, -1), (3, 0), (10, 0)] {
            let other = DLTensor { device: DLDevice { device_type, device_id }, ..good() };
            assert_eq!(refused(&other, 0), "dlpack.device");
        }
        for strides in [[1, 2], [4, 1], [3, 2], [0, 1], [-3, 1]] {
            assert_eq!(refused(&strided(strides), 0), "dlpack.strides", "{strides:?}");
        }
        let nibbles = DLDataType { code: 0, bits: 4, lanes: 1 };
        assert_eq!(refused(&DLTensor { dtype: nibbles, ..good() }, DLPACK_PADDED), "dlpack.type");
        let null = std::ptr::null_mut();
        for odd in [
            DLTensor { ndim: -1, ..good() },
            DLTensor { ndim: 65, ..good() },
            DLTensor { shape: null, ..good() },
            DLTensor { data: null.cast(), ..good() },
            DLTensor { byte_offset: u64::MAX, ..good() },
            tensor([-1, 3], None),
            tensor([1 << 40, 1 << 40], None),
        ] {
            assert_eq!(refused(&odd, 0), "dlpack.shape", "{odd:?}");
        }
    }
}
