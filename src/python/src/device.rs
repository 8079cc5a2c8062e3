//! Device arrays by DLPack, or by `__cuda_array_interface__` where a library has no DLPack: launches on their device.

use crate::Kernels;
use crate::error::raised;
use crate::host::described;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::CStr;
use std::ptr::NonNull;
use warploom::kernel::{Access, Arg};
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

/// Puts the kernels on the stream.
pub fn launch(kernels: &Kernels, arrays: &[Bound<'_, PyAny>], stream: usize) -> PyResult<()> {
    let place = arrays.iter().filter_map(dlpack_device).find(|(kind, _)| DEVICES.contains(kind));
    let ordinal = place.map_or(0, |(_, number)| number.max(0) as u32);
    let program = kernels.on(ordinal, stream).map_err(|error| raised(&error))?;
    let is_mixed = arrays.iter().any(|array| dlpack_device(array).is_none());
    // The views are given back after the launch.
    let mut views = Vec::new();
    let mut addresses = Vec::new();
    for (arg, array) in program.args().iter().zip(arrays) {
        let elsewhere = || PyTypeError::new_err(format!("argument {} is no device array as the others are", arg.name));
        let address = match dlpack_device(array) {
            Some((kind, _)) if !DEVICES.contains(&kind) => return Err(elsewhere()),
            Some(_) => {
                let view = imported(&program, array, stream)?;
                if is_mixed {
                    fits(arg, &view)?;
                }
                let address = view.address();
                views.push(view);
                address
            }
            None => {
                let interface = described(array, CUDA).map_err(|_| elsewhere())?;
                interface.check(arg)?;
                interface.address as u64
            }
        };
        addresses.push(address);
    }
    if views.len() == arrays.len() {
        program.check(&views.iter().collect::<Vec<_>>()).map_err(|error| raised(&error))?;
    }
    let stream: RawStream = std::ptr::with_exposed_provenance_mut(stream);
    // SAFETY: the caller names a stream of the device; the arrays are as large as their shapes say, which are those of the program, and
    // live as long as the caller holds them.
    unsafe { program.launch_raw(stream, &addresses) }.map_err(|error| raised(&error))
}

/// Checks a view by itself: [`warploom::runtime::Program::check`] takes arguments that are all views.
fn fits(arg: &Arg, view: &DeviceBuffer) -> PyResult<()> {
    let is_large = view.bytes() as u64 >= arg.bytes;
    let is_writable = arg.access == Access::Read || !view.is_read_only();
    if arg.takes_type(view.dtype()) && arg.takes_shape(view.shape()) && is_large && is_writable {
        return Ok(());
    }
    let (wanted, given) = (format!("{}{:?}", arg.dtype, arg.shape), format!("{}{:?}", view.dtype(), view.shape()));
    let read_only = if is_writable { "" } else { ", read-only" };
    Err(PyTypeError::new_err(format!("argument {} is {wanted}, and {given}{read_only} was given", arg.name)))
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
