//! NVML, loaded at run time: the clock and the power of a device while it works. Optional everywhere.
//!
//! Prototypes and numbers are those of the NVML reference (nvml.h).

use super::{function, open};
use crate::error::{Code, Error, Result};
use crate::runtime::Device;
use libloading::os::unix::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

type Handle = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type ByBus = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
type Clock = unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> c_int;
type Power = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;

/// NVML_CLOCK_SM.
const CLOCK_SM: c_int = 1;

/// One look at a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The clock of the multiprocessors in MHz.
    pub clock_mhz: f64,
    /// Power in watts.
    pub watts: f64,
}

/// NVML with the device it watches.
#[derive(Debug)]
pub struct Nvml {
    handle: Handle,
    clock: Clock,
    power: Power,
    /// Never unloaded: the two functions are its own.
    _library: ManuallyDrop<Library>,
}

impl Nvml {
    /// Loads the library and finds the device by its place on the bus.
    pub fn open(device: &Device) -> Result<Nvml> {
        let library = open(Path::new("libnvidia-ml.so.1"))?;
        let bus = CString::new(device.info().pci_bus.as_str())
            .map_err(|_| Error::bug(Code::MeasureBus, "the device's bus name holds a zero byte"))?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: the types are the functions' prototypes; the string ends with a zero.
        unsafe {
            status(function::<Init>(&library, "nvmlInit_v2")?(), "nvmlInit")?;
            let find = function::<ByBus>(&library, "nvmlDeviceGetHandleByPciBusId_v2")?;
            status(find(bus.as_ptr(), &mut handle), "nvmlDeviceGetHandleByPciBusId")?;
            Ok(Nvml {
                handle,
                clock: function::<Clock>(&library, "nvmlDeviceGetClockInfo")?,
                power: function::<Power>(&library, "nvmlDeviceGetPowerUsage")?,
                _library: ManuallyDrop::new(library),
            })
        }
    }

    /// The clock and the power now; `None` where the device does not tell.
    pub fn read(&self) -> Option<Reading> {
        let (mut mhz, mut milliwatts) = (0, 0);
        // SAFETY: each writes one unsigned int; the library stays loaded with this value.
        let codes =
            unsafe { ((self.clock)(self.handle, CLOCK_SM, &mut mhz), (self.power)(self.handle, &mut milliwatts)) };
        let watts = if codes.1 == 0 { f64::from(milliwatts) / 1000.0 } else { f64::NAN };
        (codes.0 == 0).then_some(Reading { clock_mhz: f64::from(mhz), watts })
    }
}

fn status(code: c_int, doing: &str) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::machine(Code::HostNvml, format!("{doing} answers {code}")))
}
