//! A device: what it is, its context and its one stream, and whether it can still be used.

use super::driver::{self, api, api::Handle, code, guard};
use crate::error::{Error, Result};
use cust::context::Context;
use cust::stream::{Stream, StreamFlags};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// What a device is. Numbers that a driver does not tell are 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its number among the visible devices.
    pub ordinal: u32,
    /// `NVIDIA H200`.
    pub name: String,
    /// Its place on the bus, `0000:1B:00.0`.
    pub pci_bus: String,
    /// Compute capability, (9, 0).
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// The usual clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// The memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: u64,
    /// Resident threads of a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Shared memory of a multiprocessor in bytes.
    pub shared_per_multiprocessor: u32,
    /// Shared memory that a block may have in bytes.
    pub shared_per_block: u32,
    /// Whether it runs clusters of blocks.
    pub clusters: bool,
    /// The CUDA version of the driver: 13000 is 13.0.
    pub driver_version: i32,
}

impl DeviceInfo {
    /// 90 for compute capability 9.0.
    pub fn sm(&self) -> u32 {
        self.capability.0 * 10 + self.capability.1
    }

    /// Asks the driver, without a context.
    pub(super) fn query(ordinal: u32) -> Result<DeviceInfo> {
        let raw = raw_device(ordinal)?;
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the driver writes at most the given length and ends with a zero.
        code::check(unsafe { api::cuDeviceGetName(name.as_mut_ptr(), 255, raw) }, "asking for the device's name")?;
        // SAFETY: the last byte was never written, so there is a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut bus: [c_char; 32] = [0; 32];
        // SAFETY: as above. Without an answer the text stays empty.
        unsafe { api::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 31, raw) };
        // SAFETY: as above.
        let pci_bus = unsafe { CStr::from_ptr(bus.as_ptr()) }.to_string_lossy().into_owned();
        let mut memory = 0usize;
        // SAFETY: writes one size.
        code::check(unsafe { api::cuDeviceTotalMem_v2(&mut memory, raw) }, "asking for the device's memory")?;
        let get = |attribute| attribute_of(raw, attribute);
        Ok(DeviceInfo {
            ordinal,
            name,
            pci_bus,
            capability: (get(api::device::COMPUTE_CAPABILITY_MAJOR), get(api::device::COMPUTE_CAPABILITY_MINOR)),
            multiprocessors: get(api::device::MULTIPROCESSOR_COUNT),
            memory_bytes: memory as u64,
            clock_khz: get(api::device::CLOCK_RATE),
            memory_clock_khz: get(api::device::MEMORY_CLOCK_RATE),
            memory_bus_bits: get(api::device::GLOBAL_MEMORY_BUS_WIDTH),
            l2_bytes: u64::from(get(api::device::L2_CACHE_SIZE)),
            threads_per_multiprocessor: get(api::device::MAX_THREADS_PER_MULTIPROCESSOR),
            registers_per_multiprocessor: get(api::device::MAX_REGISTERS_PER_MULTIPROCESSOR),
            shared_per_multiprocessor: get(api::device::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            shared_per_block: get(api::device::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            clusters: get(api::device::CLUSTER_LAUNCH) != 0,
            driver_version: driver::version()?,
        })
    }
}

/// An attribute of a device; 0 where the driver does not know it.
fn attribute_of(raw: c_int, attribute: c_int) -> u32 {
    let mut value = 0;
    // SAFETY: writes one int.
    let code = unsafe { api::cuDeviceGetAttribute(&mut value, attribute, raw) };
    if code == 0 { u32::try_from(value).unwrap_or(0) } else { 0 }
}

/// The driver's handle of a device that exists.
fn raw_device(ordinal: u32) -> Result<c_int> {
    let count = Device::count()?;
    let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count).ok_or_else(|| {
        Error::machine("machine.no_device", format!("there is no device {ordinal}: the driver sees {count}"))
            .help("choose an existing device (warploom doctor lists them), or run on the CPU machine: --device cpu")
    })?;
    let mut raw = 0;
    // SAFETY: writes one int.
    code::check(unsafe { api::cuDeviceGet(&mut raw, number) }, "opening the device")?;
    Ok(raw)
}

/// A GPU with its context and one stream. Clones share them; they are released with the last user.
#[derive(Debug, Clone)]
pub struct Device {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    info: DeviceInfo,
    context: ManuallyDrop<Context>,
    stream: ManuallyDrop<Stream>,
    /// The code after which the driver refuses all work, or 0.
    lost: AtomicI32,
}

impl Device {
    /// How many devices the driver sees.
    pub fn count() -> Result<u32> {
        driver::driver()?;
        let mut count = 0;
        // SAFETY: writes one int; the driver is initialised.
        code::check(unsafe { api::cuDeviceGetCount(&mut count) }, "counting the devices")?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Opens a device: retains its primary context and makes a stream.
    pub fn open(ordinal: u32) -> Result<Device> {
        let raw = raw_device(ordinal)?;
        let info = DeviceInfo::query(ordinal)?;
        let mut probe: Handle = std::ptr::null_mut();
        // Our prototype asks first: the codes with which this fails on a machine in trouble are not all in cust's enum.
        // SAFETY: writes one handle.
        code::check(unsafe { api::cuDevicePrimaryCtxRetain(&mut probe, raw) }, "opening the device's context")?;
        let opened = Inner::open(ordinal, info);
        // SAFETY: gives back the one retain above; cust's own keeps the context alive.
        unsafe { api::cuDevicePrimaryCtxRelease_v2(raw) };
        Ok(Device { inner: Arc::new(opened?) })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// Bytes of device memory that are free now.
    pub fn free_memory(&self) -> Result<u64> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two sizes; `call` has made the context current.
        self.inner.call("asking for free memory", || unsafe { api::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    /// Waits for everything on the device's stream and reports what went wrong in it.
    pub fn synchronize(&self) -> Result<()> {
        let stream = self.raw_stream();
        // SAFETY: the stream lives as long as the device.
        self.inner.call("waiting for the device", || unsafe { api::cuStreamSynchronize(stream) })
    }

    /// The device's stream, for libraries that take one; valid as long as the device.
    pub fn raw_stream(&self) -> super::RawStream {
        self.inner.stream.as_inner().cast()
    }

    /// Makes the device's context current on this thread, for libraries that use the current one.
    pub fn make_current(&self) -> Result<()> {
        self.inner.call("making the device current", || 0)
    }

    pub(super) fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.info().ordinal == other.info().ordinal
    }
}

impl Inner {
    fn open(ordinal: u32, info: DeviceInfo) -> Result<Inner> {
        // cust does not know every answer of a driver: the guard has kept it.
        let failed = |doing: &str, _: cust::error::CudaError| code::error(guard::answer(), doing);
        let device = cust::device::Device::get_device(ordinal).map_err(|e| failed("opening the device", e))?;
        let context = Context::new(device).map_err(|e| failed("opening the device's context", e))?;
        // Context::new does not look whether the context became current; this does.
        // SAFETY: the handle is of a live context.
        code::check(unsafe { api::cuCtxSetCurrent(context.as_raw().cast()) }, "making the device current")?;
        // A blocking stream: plain copies, which run on the default stream, wait for it and it for them.
        let stream = Stream::new(StreamFlags::DEFAULT, None).map_err(|e| failed("making a stream", e))?;
        let (context, stream) = (ManuallyDrop::new(context), ManuallyDrop::new(stream));
        Ok(Inner { info, context, stream, lost: AtomicI32::new(0) })
    }

    /// Makes the context current and runs one driver call, unless an earlier error has ended all work.
    pub(super) fn call(&self, doing: &str, call: impl FnOnce() -> c_int) -> Result<()> {
        self.alive(doing)?;
        // SAFETY: the handle is of a live context.
        let mut result = unsafe { api::cuCtxSetCurrent(self.context.as_raw().cast()) };
        if result == 0 {
            result = call();
        }
        if code::is_sticky(result) {
            self.lost.store(result, Ordering::Release);
        }
        code::check(result, doing)
    }

    fn alive(&self, doing: &str) -> Result<()> {
        match self.lost.load(Ordering::Acquire) {
            0 => Ok(()),
            lost => Err(code::error(lost, "an earlier kernel").within(format!("so this cannot be done now: {doing}"))),
        }
    }

    /// Runs a call that gives something back; its failure changes nothing for anyone.
    pub(super) fn release(&self, call: impl FnOnce() -> c_int) {
        let _ = self.call("releasing", call);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // After a sticky error the handles are dead, and cust would take the driver's answer for its own enum.
        if self.lost.load(Ordering::Acquire) != 0 {
            return;
        }
        // SAFETY: neither field is used again.
        unsafe {
            if api::cuCtxSetCurrent(self.context.as_raw().cast()) == 0 {
                api::cuStreamSynchronize(self.stream.as_inner().cast());
                ManuallyDrop::drop(&mut self.stream);
            }
            ManuallyDrop::drop(&mut self.context);
        }
    }
}
