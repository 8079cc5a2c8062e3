//! Device arrays by DLPack, or by `__cuda_array_interface__` where a library has no DLPack: launches on their device.

use crate::Kernels;
use crate::error::raised;
use crate::host::{Described, described};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::CStr;
use std::ptr::NonNull;
use warploom::kernel::Arg;
use warploom::runtime::dlpack::{
    DLDataType, DLDevice, DLManagedTensorVersioned, DLPACK_READ_ONLY, DLPACK_VERSION, DLTensor,
};
use warploom::runtime::{DeviceBuffer, Program, RawStream};

/// kDLCUDA and kDLCUDAManaged.
const DEVICES: [i32; 2] = [2, 13];
const CUDA: &str = "__cuda_array_interface__";

/// The DLPack device of an array; none where it has no DLPack.
fn dlpack_device(array: &Bound<'_, PyAny>) -> Option<(i32, i32)> {
    array.call_method0("__dlpack_device__").ok()?.extract().ok()
}

pub fn is_on_device(array: &Bound<'_, PyAny>) -> bool {
    match dlpack_device(array) {
        Some((kind, _)) => DEVICES.contains(&kind),
        None => array.hasattr(CUDA).unwrap_or(false),
    }
}

/// An argument as it is given: the array itself, or what its interface says, with the number of the device that has the memory.
enum Given<'a, 'py> {
    Tensor(&'a Bound<'py, PyAny>),
    Interface(Described, i32),
}

/// Puts the kernels on the stream.
pub fn launch(kernels: &Kernels, arrays: &[Bound<'_, PyAny>], stream: usize) -> PyResult<()> {
    let mut ordinal = None;
    let mut given = Vec::new();
    for (arg, array) in kernels.kernels.args.iter().zip(arrays) {
        let elsewhere = || PyTypeError::new_err(format!("argument {} is no device array as the others are", arg.name));
        let (one, number) = match dlpack_device(array) {
            Some((kind, _)) if !DEVICES.contains(&kind) => return Err(elsewhere()),
            Some((_, number)) => (Given::Tensor(array), number),
            None => {
                let interface = described(array, CUDA).map_err(|_| elsewhere())?;
                interface.check(arg)?;
                let number = kernels.ordinal_of(interface.address as u64).map_err(|error| raised(&error))? as i32;
                (Given::Interface(interface, number), number)
            }
        };
        ordinal.get_or_insert(number);
        given.push(one);
    }
    let program = kernels.on(ordinal.unwrap_or(0).max(0) as u32, stream).map_err(|error| raised(&error))?;
    // The views are given back after the launch.
    let views = program.args().iter().zip(given).map(|(arg, one)| match one {
        Given::Tensor(array) => imported(&program, array, stream),
        Given::Interface(interface, number) => viewed(&program, arg, &interface, number),
    });
    let views = views.collect::<PyResult<Vec<DeviceBuffer>>>()?;
    program.check(&views.iter().collect::<Vec<_>>()).map_err(|error| raised(&error))?;
    let addresses: Vec<u64> = views.iter().map(DeviceBuffer::address).collect();
    let stream: RawStream = std::ptr::with_exposed_provenance_mut(stream);
    // SAFETY: the caller names a stream of the device; the arrays are as large as their shapes say, which are those of the program, and
    // live as long as the caller holds them.
    unsafe { program.launch_raw(stream, &addresses) }.map_err(|error| raised(&error))
}

/// A tensor for what an interface describes, with the shape that it points to.
struct Tensor {
    tensor: DLManagedTensorVersioned,
    shape: Vec<i64>,
}

/// The deleter of [`viewed`]: the memory stays the caller's.
unsafe extern "C" fn forget(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the context is the box that `viewed` has made; the deleter is called once.
    drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Tensor>()) });
}

/// A view of what an interface describes, as one of DLPack. Its type has been compared with the argument's: numpy has fewer types.
fn viewed(program: &Program, arg: &Arg, interface: &Described, number: i32) -> PyResult<DeviceBuffer> {
    // Elements below a byte are given as the bytes that hold them, in any shape.
    let shape =
        if arg.dtype.bits() < 8 { arg.shape.clone() } else { interface.shape.iter().map(|n| *n as i64).collect() };
    let made = Box::leak(Box::new(Tensor {
        tensor: DLManagedTensorVersioned {
            version: DLPACK_VERSION,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(forget),
            flags: if interface.read_only { DLPACK_READ_ONLY } else { 0 },
            dl_tensor: DLTensor {
                data: std::ptr::with_exposed_provenance_mut(interface.address),
                device: DLDevice { device_type: DEVICES[0], device_id: number },
                ndim: shape.len() as i32,
                dtype: DLDataType::of(arg.dtype),
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        },
        shape,
    }));
    made.tensor.dl_tensor.shape = made.shape.as_mut_ptr();
    let context: *mut Tensor = made;
    // SAFETY: the box lives until its deleter is called, once, which gives it back.
    let imported = unsafe {
        (*context).tensor.manager_ctx = context.cast();
        DeviceBuffer::from_dlpack(program.device(), NonNull::from(&mut (*context).tensor))
    };
    imported.map_err(|error| raised(&error))
}

/// A view of an array that its library has made ready for the stream.
fn imported(program: &Program, array: &Bound<'_, PyAny>, stream: usize) -> PyResult<DeviceBuffer> {
    let py = array.py();
    // The protocol calls the legacy default stream 1.
    let ready = |versioned: bool| {
        let words = PyDict::new(py);
        words.set_item("stream", if stream == 0 { 1 } else { stream })?;
        if versioned {
            words.set_item("max_version", (1, 1))?;
        }
        array.call_method("__dlpack__", (), Some(&words))
    };
    let capsule =
        ready(true).or_else(|error| if error.is_instance_of::<PyTypeError>(py) { ready(false) } else { Err(error) })?;
    let device = program.device();
    let imported = if let Some(tensor) = taken(&capsule, c"dltensor_versioned", c"used_dltensor_versioned") {
        // SAFETY: the capsule has handed the tensor over, and is marked as used.
        unsafe { DeviceBuffer::from_dlpack(device, tensor.cast()) }
    } else if let Some(tensor) = taken(&capsule, c"dltensor", c"used_dltensor") {
        // SAFETY: as above.
        unsafe { DeviceBuffer::from_dlpack_legacy(device, tensor.cast()) }
    } else {
        return Err(PyTypeError::new_err("__dlpack__ returned no DLPack capsule"));
    };
    imported.map_err(|error| raised(&error))
}

/// The tensor of a capsule of this name, which is renamed: whoever consumes a capsule does that.
fn taken(capsule: &Bound<'_, PyAny>, name: &CStr, used: &'static CStr) -> Option<NonNull<std::ffi::c_void>> {
    // SAFETY: the interpreter lock is held; the new name lives for ever.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return None;
        }
        let tensor = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))?;
        (ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) == 0).then_some(tensor)
    }
}
