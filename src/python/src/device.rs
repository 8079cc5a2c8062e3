//! Device arrays by DLPack, or by `__cuda_array_interface__` where a library has no DLPack: launches on their device.

use crate::Choose;
use crate::error::raised;
use crate::host::{Described, described};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use warploom::kernel::Arg;
use warploom::runtime::dlpack::{DLDataType, DLDevice, DLPACK_VERSION, DLPackVersion, DLTensor};
use warploom::runtime::{DeviceBuffer, RawStream, Workspace};
use warploom::{Device, Kernels};

/// kDLCUDA and kDLCUDAManaged.
const DEVICE_TYPES: [i32; 2] = [2, 13];
const CUDA: &str = "__cuda_array_interface__";

/// An array as it is given.
pub enum Given {
    /// What its library's exchange in C says. It has ordered nothing for another stream than its own.
    Exchanged(Exchange, DLTensor),
    /// An array with `__dlpack__`, and its DLPack device.
    Tensor(i32, i32),
    /// An array with `__cuda_array_interface__`, or none of a device.
    Other(bool),
}

impl Given {
    pub fn of(array: &Bound<'_, PyAny>) -> Given {
        if let Some((exchange, tensor)) =
            Exchange::of(array).and_then(|exchange| Some((exchange, exchange.tensor(array)?)))
        {
            return Given::Exchanged(exchange, tensor);
        }
        let device = || array.call_method0("__dlpack_device__").ok()?.extract().ok();
        device().map_or_else(
            || Given::Other(array.hasattr(CUDA).unwrap_or(false)),
            |(kind, number)| Given::Tensor(kind, number),
        )
    }

    pub fn is_on_device(&self) -> bool {
        match self {
            Given::Exchanged(_, DLTensor { device, .. }) => DEVICE_TYPES.contains(&device.device_type),
            Given::Tensor(kind, _) => DEVICE_TYPES.contains(kind),
            Given::Other(has_interface) => *has_interface,
        }
    }
}

/// Where the memory of an array is known from.
enum Found<'a, 'py> {
    Exchanged(DLTensor),
    Tensor(&'a Bound<'py, PyAny>),
    /// The extents in elements, and the number of the device.
    Interface(Described, Vec<usize>, i32),
}

/// The devices that are open in this process. Kernels and arrays share the handle of a device.
static DEVICES: Mutex<BTreeMap<u32, Device>> = Mutex::new(BTreeMap::new());

/// The handle of a device; a new one where a fault has cost the last one.
pub fn opened(ordinal: u32) -> warploom::Result<Device> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = devices.get(&ordinal).filter(|device| !device.is_lost()) {
        return Ok(device.clone());
    }
    let device = Device::open(ordinal)?;
    devices.insert(ordinal, device.clone());
    Ok(device)
}

/// The number of the device whose memory is at an address.
fn ordinal_of(address: u64) -> warploom::Result<u32> {
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = devices.values().find(|device| !device.is_lost()).cloned();
    drop(devices);
    known.map_or_else(|| opened(0), Ok)?.ordinal_of(address)
}

/// Puts the kernels that are chosen for the arrays on the stream.
pub fn launch(
    kernels: &Kernels,
    choose: Choose<'_, '_>,
    arrays: &[Bound<'_, PyAny>],
    given: Vec<Given>,
    stream: usize,
) -> PyResult<()> {
    let mut ordinal = None;
    let mut all = Vec::with_capacity(arrays.len());
    for ((arg, array), given) in kernels.args.iter().zip(arrays).zip(given) {
        let (found, number) = found(kernels, arg, array, given, stream)?;
        ordinal.get_or_insert(number);
        all.push(found);
    }
    let ordinal = ordinal.unwrap_or(0).max(0) as u32;
    let device = opened(ordinal).map_err(|error| raised(&error))?;
    let views = kernels.args.iter().zip(all).map(|(arg, found)| match found {
        // SAFETY: the library describes its own array, which the caller holds.
        Found::Exchanged(tensor) => {
            unsafe { DeviceBuffer::borrow_dlpack(&device, &tensor) }.map_err(|error| raised(&error))
        }
        Found::Tensor(array) => imported(&device, array, stream),
        Found::Interface(interface, extents, number) => viewed(&device, arg, &interface, &extents, number),
    });
    let views = views.collect::<PyResult<Vec<DeviceBuffer>>>()?;
    let launched = enqueue(choose, &views, ordinal, stream);
    // A wait for the device's own stream would end the recording of a graph.
    // SAFETY: the launch is the only work here, and it is on the caller's stream.
    views.into_iter().for_each(|view| unsafe { view.give_back() });
    launched.map_err(|error| raised(&error))
}

/// Checks the arrays, and launches the kernels at the sizes that their shapes state.
fn enqueue(choose: Choose<'_, '_>, views: &[DeviceBuffer], ordinal: u32, stream: usize) -> warploom::Result<()> {
    let shapes: Vec<&[usize]> = views.iter().map(DeviceBuffer::shape).collect();
    let (kernels, sizes) = choose(&shapes)?;
    let program = kernels.on(ordinal, stream)?;
    program.check(&views.iter().collect::<Vec<_>>())?;
    let addresses: Vec<u64> = views.iter().map(DeviceBuffer::address).collect();
    let stream: RawStream = std::ptr::with_exposed_provenance_mut(stream);
    // SAFETY: the caller names a stream of the device; the arrays are as large as their shapes say, which are those of the program at
    // these sizes, and live as long as the caller holds them.
    unsafe { program.launch_raw_sized(stream, &addresses, &sizes, Workspace::Loaded) }
}

/// Where the memory of an array is, and the number of its device.
fn found<'a, 'py>(
    kernels: &Kernels,
    arg: &Arg,
    array: &'a Bound<'py, PyAny>,
    given: Given,
    stream: usize,
) -> PyResult<(Found<'a, 'py>, i32)> {
    let elsewhere = || PyTypeError::new_err(format!("argument {} is no device array as the others are", arg.name));
    if matches!(given, Given::Exchanged(..) | Given::Tensor(..)) && !given.is_on_device() {
        return Err(elsewhere());
    }
    Ok(match given {
        // Elements below a byte may be padded to one, which only the other way says.
        Given::Exchanged(exchange, tensor) if exchange.is_on(tensor.device, stream) && tensor.dtype.bits >= 8 => {
            (Found::Exchanged(tensor), tensor.device.device_id)
        }
        Given::Exchanged(_, DLTensor { device: DLDevice { device_id: number, .. }, .. }) | Given::Tensor(_, number) => {
            (Found::Tensor(array), number)
        }
        Given::Other(_) => {
            let interface = described(array, CUDA).map_err(|_| elsewhere())?;
            interface.check_type(kernels, arg)?;
            let number = ordinal_of(interface.address as u64).map_err(|error| raised(&error))? as i32;
            let extents = interface.extents(arg);
            (Found::Interface(interface, extents, number), number)
        }
    })
}

/// The table of functions by which a library describes its arrays in C (DLPack 1.3, DLPackExchangeAPI). The library keeps it for ever.
#[derive(Clone, Copy)]
pub struct Exchange(NonNull<Table>);

#[repr(C)]
struct Table {
    version: DLPackVersion,
    previous: *const c_void,
    allocator: *const c_void,
    from_object: *const c_void,
    to_object: *const c_void,
    tensor: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut DLTensor) -> c_int>,
    stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

impl Exchange {
    /// The table of the library of an array, if it has one of this version.
    fn of(array: &Bound<'_, PyAny>) -> Option<Exchange> {
        let capsule = array.get_type().getattr(pyo3::intern!(array.py(), "__dlpack_c_exchange_api__")).ok()?;
        // SAFETY: the interpreter lock is held. The version is the first field of every layout, and the rest is read only where the layout is this one.
        unsafe {
            let name = c"dlpack_exchange_api".as_ptr();
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), name) == 0 {
                return None;
            }
            let table: NonNull<Table> = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name))?.cast();
            let version = (&raw const (*table.as_ptr()).version).read();
            (version.major == DLPACK_VERSION.major).then_some(Exchange(table))
        }
    }

    /// What the library says of an array, which keeps the shape and the strides.
    fn tensor(self, array: &Bound<'_, PyAny>) -> Option<DLTensor> {
        let mut tensor = MaybeUninit::<DLTensor>::uninit();
        // SAFETY: the array is of the type that has the table, and the function fills the tensor where it returns 0.
        unsafe {
            if self.0.as_ref().tensor?(array.as_ptr(), tensor.as_mut_ptr()) == 0 {
                return Some(tensor.assume_init());
            }
            // Whoever asks `__dlpack__` next gets the reason.
            ffi::PyErr_Clear();
        }
        None
    }

    /// Whether the library's current stream on a device is this one: it has then ordered its work before what comes next there.
    fn is_on(self, device: DLDevice, stream: usize) -> bool {
        let mut current = std::ptr::null_mut();
        // SAFETY: the function stores a stream, which is compared alone.
        let code =
            unsafe { self.0.as_ref().stream.map(|of| of(device.device_type, device.device_id, &raw mut current)) };
        if code.is_some_and(|code| code != 0) {
            // SAFETY: the interpreter lock is held.
            unsafe { ffi::PyErr_Clear() };
        }
        code == Some(0) && current.addr() == stream
    }
}

/// A view of what an interface describes. Its type has been compared with the argument's: numpy has fewer types.
fn viewed(device: &Device, arg: &Arg, interface: &Described, extents: &[usize], number: i32) -> PyResult<DeviceBuffer> {
    let mut shape: Vec<i64> = extents.iter().map(|extent| *extent as i64).collect();
    let tensor = DLTensor {
        data: std::ptr::with_exposed_provenance_mut(interface.address),
        device: DLDevice { device_type: DEVICE_TYPES[0], device_id: number },
        ndim: shape.len() as i32,
        dtype: DLDataType::of(arg.dtype),
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    // SAFETY: the shape lives as long as it is read; the caller holds the array.
    let view = unsafe { DeviceBuffer::borrow_dlpack(device, &tensor) }.map_err(|error| raised(&error))?;
    Ok(if interface.read_only { view.read_only() } else { view })
}

/// A view of an array that its library has made ready for the stream.
fn imported(device: &Device, array: &Bound<'_, PyAny>, stream: usize) -> PyResult<DeviceBuffer> {
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
fn taken(capsule: &Bound<'_, PyAny>, name: &CStr, used: &'static CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the interpreter lock is held; the new name lives for ever.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return None;
        }
        let tensor = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))?;
        (ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) == 0).then_some(tensor)
    }
}
