//! Typed arrays in device memory: upload, download, poison.

use super::context::Owned;
use super::device::Device;
use super::dlpack::Foreign;
use super::driver::api::{self, Answer};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use cust::memory::{cuda_malloc, memcpy_htod};
use std::ffi::c_void;

/// A packed row-major array in device memory; freed when dropped. Its content changes through launches, which take it
/// by shared reference: it is the program's access list that says what is written.
#[derive(Debug)]
pub struct DeviceBuffer {
    device: Device,
    dtype: DType,
    shape: Vec<usize>,
    address: u64,
    bytes: usize,
    /// The memory's owner, where another library has allocated it.
    foreign: Option<Foreign>,
    /// Whether that library forbids writing.
    read_only: bool,
}

impl Device {
    /// Room for an array; its content is whatever lay there.
    ///
    /// # Errors
    /// `array.size` where no memory holds it; the driver's, such as `driver.2` with what is free.
    pub fn alloc(&self, dtype: DType, shape: &[usize]) -> Result<DeviceBuffer> {
        let count = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64)).filter(|n| *n < 1 << 40);
        let count =
            count.ok_or_else(|| Error::input(Code::ArraySize, format!("an array of shape {shape:?} is too large")))?;
        let bytes = dtype.bytes_of(count) as usize;
        let doing = format!("allocating {bytes} bytes on the device");
        // The driver refuses an allocation of nothing; an empty array gets a byte that nobody uses.
        // SAFETY: the memory is given back once, by `release`.
        let allocated = self.inner.make(&doing, || unsafe { cuda_malloc::<u8>(bytes.max(1)) });
        let memory = allocated.map_err(|error| match self.free_memory() {
            Ok(free) if error.code() == Code::Driver(2) => {
                error.within(format!("{free} of {} bytes are free on {}", self.info().memory_bytes, self.info().name))
            }
            _ => error,
        })?;
        let (device, shape, address) = (self.clone(), shape.to_vec(), memory.as_raw());
        Ok(DeviceBuffer { device, dtype, shape, address, bytes, foreign: None, read_only: false })
    }

    /// A copy of a host array on the device.
    ///
    /// # Errors
    /// As [`Device::alloc`]; the driver's.
    pub fn upload(&self, array: &Array) -> Result<DeviceBuffer> {
        let buffer = self.alloc(array.dtype, &array.shape)?;
        buffer.write(array)?;
        Ok(buffer)
    }
}

impl DeviceBuffer {
    /// A view of memory that another library owns.
    pub(super) fn of_foreign(
        device: Device,
        (dtype, shape): (DType, Vec<usize>),
        (address, bytes): (u64, usize),
        read_only: bool,
        foreign: Foreign,
    ) -> DeviceBuffer {
        DeviceBuffer { device, dtype, shape, address, bytes, foreign: Some(foreign), read_only }
    }

    /// The memory's owner, where another library has allocated it: the buffer is then a view without one.
    pub(super) fn take_foreign(&mut self) -> Option<Foreign> {
        self.foreign.as_mut().map(|foreign| std::mem::replace(foreign, Foreign::Borrowed))
    }

    /// The same buffer, as one that must not be written: uploads and kernels that write it are refused.
    pub fn read_only(mut self) -> DeviceBuffer {
        self.read_only = true;
        self
    }

    /// Whether the memory must not be written, by what another library or the caller says.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The refusal to write what another library has handed over as read-only.
    fn check_writable(&self) -> Result<()> {
        if !self.read_only {
            return Ok(());
        }
        let message = format!("{} came as read-only and cannot be filled", describe(self.dtype, &self.shape));
        Err(Error::input(Code::DlpackReadOnly, message))
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of an element.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its device address; valid as long as the buffer.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Replaces the content by that of a host array of the same type and shape.
    ///
    /// # Errors
    /// Where type or shape differ; the driver's.
    pub fn write(&self, array: &Array) -> Result<()> {
        if array.dtype != self.dtype || array.shape != self.shape || array.bytes.len() != self.bytes {
            let (given, own) = (describe(array.dtype, &array.shape), describe(self.dtype, &self.shape));
            let message = format!(
                "an array {given} of {} bytes cannot fill a device buffer {own} of {} bytes",
                array.bytes.len(),
                self.bytes
            );
            return Err(Error::input(Code::BufferWrite, message));
        }
        self.check_writable()?;
        let from = array.bytes.as_ptr().cast::<c_void>();
        // SAFETY: both sides have `bytes` bytes. The copy may return before it has landed: the default stream, on
        // which it runs, is waited for, so that streams of other libraries see the data too.
        self.device.inner.waiting("copying to the device", || unsafe {
            match memcpy_htod(self.address, from, self.bytes).code() {
                0 => api::cuStreamSynchronize(std::ptr::null_mut()).code(),
                code => code,
            }
        })
    }

    /// Copies the content to the host when all work on the device's stream is done.
    ///
    /// # Errors
    /// What went wrong on the device before, and the driver's; `launch.timeout` where the device has a limit.
    pub fn download(&self) -> Result<Array> {
        let mut array = Array { dtype: self.dtype, shape: self.shape.clone(), bytes: vec![0; self.bytes] };
        let to = array.bytes.as_mut_ptr().cast::<c_void>();
        let stream = self.device.inner.queue();
        let copy = || match stream.synchronize().code() {
            // SAFETY: both sides have `bytes` bytes; this copy returns when it has landed.
            0 => unsafe { api::cuMemcpyDtoH_v2(to, self.address, self.bytes) }.code(),
            code => code,
        };
        self.device.inner.waiting("copying from the device", copy)?;
        Ok(array)
    }

    /// Fills every byte with 0xA5 (as [`Array::poisoned`]), on the device's stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn poison(&self) -> Result<()> {
        self.fill_bytes(0xA5)
    }

    /// Fills every byte, on the device's stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill_bytes(&self, byte: u8) -> Result<()> {
        self.check_writable()?;
        let stream = self.device.inner.stream();
        // SAFETY: the buffer has `bytes` bytes.
        let fill = || unsafe { api::cuMemsetD8Async(self.address, byte, self.bytes, stream) };
        self.device.inner.call("filling device memory", fill)
    }

    /// Another buffer with the same content, copied on the device's stream.
    ///
    /// # Errors
    /// As [`Device::alloc`].
    pub fn duplicate(&self) -> Result<DeviceBuffer> {
        let copy = self.device.alloc(self.dtype, &self.shape)?;
        let stream = self.device.inner.stream();
        // SAFETY: both have `bytes` bytes and do not overlap.
        let run = || unsafe { api::cuMemcpyDtoDAsync_v2(copy.address, self.address, self.bytes, stream) };
        self.device.inner.call("copying on the device", run)?;
        Ok(copy)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        match self.foreign.take() {
            Some(Foreign::Borrowed) => {}
            owner => self.device.inner.release(owner.map_or(Owned::Memory(self.address), Owned::Foreign)),
        }
    }
}

/// `f32[1024, 512]`.
pub(super) fn describe(dtype: DType, shape: &[usize]) -> String {
    format!("{dtype}{shape:?}")
}
