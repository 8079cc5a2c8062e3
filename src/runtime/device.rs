//! A device: what it is, and waiting for it.

use super::context::Inner;
use super::driver::{self, api, api::Answer, code};
use crate::error::{Code, Error, Result};
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

/// What a device is. Numbers that a driver does not tell are 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
    /// The chip to compile for: the device's own, or of a newer device the newest chip whose PTX it runs.
    ///
    /// # Errors
    /// `device.target` where the device is older than every chip that warploom knows.
    pub fn target(&self) -> Result<Target> {
        Target::for_device(self.sm())
            .ok_or_else(|| Error::chip(Code::DeviceTarget, format!("{} (sm_{}) has no target", self.name, self.sm())))
    }

    /// The CUDA version of the driver, such as `13.0`.
    pub fn driver_text(&self) -> String {
        driver::version_text(self.driver_version)
    }

    /// 90 for compute capability 9.0.
    pub fn sm(&self) -> u32 {
        self.capability.0 * 10 + self.capability.1
    }

    /// Asks the driver, without a context.
    pub(super) fn query(ordinal: u32) -> Result<DeviceInfo> {
        let device = found(ordinal)?;
        let raw = device.as_raw();
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
        let memory = code::value(device.total_memory(), "asking for the device's memory")?;
        let get = |attribute| attribute_of(raw, attribute).map(Option::unwrap_or_default);
        let must = |attribute| attribute_of(raw, attribute)?.ok_or_else(|| code::error(INVALID_VALUE, ATTRIBUTES));
        Ok(DeviceInfo {
            ordinal,
            name,
            pci_bus,
            capability: (must(api::device::COMPUTE_CAPABILITY_MAJOR)?, must(api::device::COMPUTE_CAPABILITY_MINOR)?),
            multiprocessors: get(api::device::MULTIPROCESSOR_COUNT)?,
            memory_bytes: memory as u64,
            clock_khz: get(api::device::CLOCK_RATE)?,
            memory_clock_khz: get(api::device::MEMORY_CLOCK_RATE)?,
            memory_bus_bits: get(api::device::GLOBAL_MEMORY_BUS_WIDTH)?,
            l2_bytes: u64::from(get(api::device::L2_CACHE_SIZE)?),
            threads_per_multiprocessor: get(api::device::MAX_THREADS_PER_MULTIPROCESSOR)?,
            registers_per_multiprocessor: get(api::device::MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            shared_per_multiprocessor: get(api::device::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            shared_per_block: get(api::device::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            clusters: get(api::device::CLUSTER_LAUNCH)? != 0,
            driver_version: driver::version()?,
        })
    }
}

/// The driver's answer to an attribute that it does not know.
const INVALID_VALUE: c_int = 1;
const ATTRIBUTES: &str = "asking for the device's attributes";

/// An attribute of a device; none where the driver does not know it.
fn attribute_of(raw: c_int, attribute: api::device::Attribute) -> Result<Option<u32>> {
    let mut value = 0;
    // SAFETY: writes one int.
    match unsafe { api::cuDeviceGetAttribute(&mut value, attribute, raw) }.code() {
        INVALID_VALUE => Ok(None),
        code => code::check(code, ATTRIBUTES).map(|()| u32::try_from(value).ok()),
    }
}

/// A device that exists.
fn found(ordinal: u32) -> Result<cust::device::Device> {
    let count = Device::count()?;
    if ordinal >= count {
        let message = format!("there is no device {ordinal}: the driver sees {count}");
        return Err(Error::machine(Code::HostNoDevice, message)
            .help("choose an existing device (warploom doctor lists them), or run on the simulator: --device cpu"));
    }
    code::value(cust::device::Device::get_device(ordinal), "opening the device")
}

/// A GPU with its context and one stream. Clones share them; they are released with the last user.
#[derive(Debug, Clone)]
pub struct Device {
    pub(super) inner: Arc<Inner>,
}

impl Device {
    /// [`DeviceInfo::target`] of this device.
    ///
    /// # Errors
    /// As there.
    pub fn target(&self) -> Result<Target> {
        self.info().target()
    }

    /// How many devices the driver sees.
    ///
    /// # Errors
    /// `host.*` where there is no driver; `driver.*` of its answer.
    pub fn count() -> Result<u32> {
        driver::driver()?;
        code::value(cust::device::Device::num_devices(), "counting the devices")
    }

    /// Opens a device and makes a stream in its primary context; in a new context where a kernel has broken that one or
    /// keeps it.
    ///
    /// # Errors
    /// `host.no_device`; what the driver answers; after a kernel that hangs, `launch.timeout` where it keeps the
    /// whole device.
    pub fn open(ordinal: u32) -> Result<Device> {
        let device = found(ordinal)?;
        let info = DeviceInfo::query(ordinal)?;
        Ok(Device { inner: Arc::new(Inner::open(device, info)?) })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// Bytes of device memory that are free now.
    ///
    /// # Errors
    /// `driver.*` of the driver's answer.
    pub fn free_memory(&self) -> Result<u64> {
        let (free, _) = self.inner.make("asking for free memory", cust::memory::mem_get_info)?;
        Ok(free as u64)
    }

    /// The number of the device whose memory is at an address, which may be another one than this. For arrays of libraries that tell no
    /// device.
    ///
    /// # Errors
    /// `driver.1` where no memory of a device is at the address.
    pub fn ordinal_of(&self, address: u64) -> Result<u32> {
        let mut ordinal: c_int = -1;
        // SAFETY: writes one int.
        let ask =
            || unsafe { api::cuPointerGetAttribute((&raw mut ordinal).cast(), api::POINTER_DEVICE_ORDINAL, address) };
        let nowhere = |error: Error| error.within(format!("no memory of a device is at {address:#x}"));
        self.inner.call("asking which device an address is on", ask).map_err(nowhere)?;
        let odd = |_| Error::bug(Code::DriverMade, format!("the driver says that {address:#x} is on device {ordinal}"));
        u32::try_from(ordinal).map_err(odd)
    }

    /// Waits for everything on the device's stream and reports what went wrong in it; as long as it takes, or as long as
    /// [`Device::set_time_limit`] allows.
    ///
    /// # Errors
    /// `driver.*` of what went wrong in the work; `launch.timeout` when the limit is over.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.waiting("waiting for the device", || self.inner.queue().synchronize())
    }

    /// As [`Device::synchronize`], for at most `limit`.
    ///
    /// # Errors
    /// `launch.timeout` when the limit is over. Nothing ends a kernel that hangs: it keeps its context, so that this
    /// device answers every later call with the same error at once, and gives nothing back until the kernel ends.
    /// [`Device::open`] then makes a new context.
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        self.inner.wait_within("waiting for the device", limit)
    }

    /// Whether everything on the device's stream is done, without waiting; reports what went wrong in it.
    ///
    /// # Errors
    /// `driver.*` of what went wrong in the work.
    pub fn is_idle(&self) -> Result<bool> {
        let stream = self.inner.stream();
        // SAFETY: the stream lives as long as the device.
        self.inner.asks("asking whether the device is idle", || unsafe { api::cuStreamQuery(stream) })
    }

    /// Whether a kernel that faulted or hung has ended the use of this device, so that it has to be opened again.
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// What each wait on this device may take, also those inside [`super::DeviceBuffer::download`] and where something
    /// is given back; none, as at first, for as long as it takes. When the limit is over, that is the end of the device,
    /// as [`Device::synchronize_within`] says.
    pub fn set_time_limit(&self, limit: Option<Duration>) {
        self.inner.set_limit(limit);
    }

    /// The device's stream, for libraries that take one; valid as long as the device.
    pub fn raw_stream(&self) -> super::RawStream {
        self.inner.stream().cast()
    }

    /// Makes the device's context current on this thread, for libraries that use the current one.
    ///
    /// # Errors
    /// `driver.*` where the device is lost.
    pub fn make_current(&self) -> Result<()> {
        self.inner.call("making the device current", || 0)
    }

    pub(super) fn is(&self, other: &Device) -> bool {
        self.inner.is(&other.inner)
    }
}
