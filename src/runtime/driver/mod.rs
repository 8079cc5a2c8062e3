//! The CUDA driver, looked up when first needed: one binary serves machines with and without one.
//!
//! [`driver`] loads `libcuda.so.1` once, fills the table behind the symbols that cust calls, and initialises the
//! driver. Entry points newer than cust's bindings are looked up one at a time with [`Driver::late`]: a driver that
//! lacks one refuses that call alone.

pub(crate) mod api;
pub(crate) mod code;
mod names;
mod trampoline;

use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// The names under which the driver is looked for, in the loader's path.
const FILES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// A loaded driver.
#[derive(Debug)]
pub(crate) struct Driver {
    library: Library,
    /// The file that the loader took, where it can be told.
    pub(crate) path: String,
    /// How many of the entry points that cust knows it has.
    pub(crate) found: usize,
}

static LOADED: OnceLock<std::result::Result<Driver, String>> = OnceLock::new();
static READY: OnceLock<c_int> = OnceLock::new();

/// Loads the library and fills the table, the first time; the loader's message where there is none.
pub(crate) fn load_once() -> &'static std::result::Result<Driver, String> {
    LOADED.get_or_init(|| {
        let mut message = String::new();
        for file in FILES {
            // SAFETY: the driver's library has no initialiser that asks anything of its caller.
            match unsafe { Library::new(file) } {
                Ok(library) => return Ok(Driver::fill(library, file)),
                Err(error) if message.is_empty() => message = loader_words(&error),
                Err(_) => {}
            }
        }
        Err(message)
    })
}

/// The driver, loaded and initialised.
pub(crate) fn driver() -> Result<&'static Driver> {
    let driver = load_once().as_ref().map_err(|message| {
        Error::machine("machine.no_driver", format!("no NVIDIA driver was found ({message})"))
            .help("install the NVIDIA driver; it brings libcuda.so.1")
            .help("run on the CPU machine instead: --device cpu")
    })?;
    // SAFETY: cuInit may be called at any time, from any thread.
    let code = *READY.get_or_init(|| unsafe { api::cuInit(0) });
    code::check(code, "initialising the driver")?;
    Ok(driver)
}

/// The CUDA version that the driver supports, times 1000 for the major and times 10 for the minor part: 13000.
pub(crate) fn version() -> Result<i32> {
    let mut version = 0;
    // SAFETY: writes one int; allowed before cuInit.
    code::check(unsafe { api::cuDriverGetVersion(&mut version) }, "asking for the driver's version")?;
    Ok(version)
}

impl Driver {
    fn fill(library: Library, file: &str) -> Driver {
        let found = trampoline::fill(|name| address(&library, name));
        let path = address(&library, "cuInit").and_then(file_of).unwrap_or_else(|| file.to_string());
        Driver { library, path, found }
    }

    /// An entry point that not every driver has, as the function type `F`.
    ///
    /// # Safety
    /// `F` must be an `extern "C"` function pointer type with the prototype of `symbol`.
    pub(crate) unsafe fn late<F: Copy>(&self, symbol: &str, needs: &str) -> Result<F> {
        let found = address(&self.library, symbol).ok_or_else(|| too_old(symbol, needs, version().unwrap_or(0)))?;
        debug_assert_eq!(size_of::<F>(), size_of::<*const c_void>());
        // SAFETY: the caller vouches for the type; a function pointer has the size of the address.
        Ok(unsafe { std::mem::transmute_copy::<*const c_void, F>(&found) })
    }
}

fn too_old(symbol: &str, needs: &str, has: i32) -> Error {
    let message = format!(
        "the driver lacks {symbol}: it comes with drivers for CUDA {needs}, this one is for CUDA {}",
        version_text(has)
    );
    Error::machine("machine.driver_too_old", message).help(format!("update the NVIDIA driver to one for CUDA {needs}"))
}

/// 13000 as `13.0`; 0 as `an unknown version`.
pub(crate) fn version_text(version: i32) -> String {
    match version {
        0 => "an unknown version".to_string(),
        v => format!("{}.{}", v / 1000, v % 1000 / 10),
    }
}

/// The loader's own words: the error's text is only the name of the call that failed.
fn loader_words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn address(library: &Library, name: &str) -> Option<*const c_void> {
    // SAFETY: only the address is taken; what is done with it is the business of the two callers above.
    let symbol = unsafe { library.get::<*const c_void>(name) }.ok()?;
    let address = *symbol;
    (!address.is_null()).then_some(address)
}

/// The file that holds an address, from the process's own memory map.
fn file_of(address: *const c_void) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (low, high) = range.split_once('-')?;
        let (low, high) = (usize::from_str_radix(low, 16).ok()?, usize::from_str_radix(high, 16).ok()?);
        let path = rest.find('/').map(|at| &rest[at..])?;
        (low..high).contains(&(address as usize)).then(|| path.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;

    #[test]
    fn a_missing_entry_point_is_named_with_the_version_that_has_it() {
        let error = too_old("cuLaunchKernelEx", "11.8", 11040);
        assert_eq!((error.fault(), error.code()), (Fault::Machine, "machine.driver_too_old"));
        assert_eq!(
            error.message(),
            "the driver lacks cuLaunchKernelEx: it comes with drivers for CUDA 11.8, this one is for CUDA 11.4"
        );
    }

    #[test]
    fn the_file_of_an_address_is_found() {
        let own = file_of(the_file_of_an_address_is_found as *const c_void);
        assert!(own.is_some_and(|path| path.contains("warploom")));
        assert_eq!(file_of(std::ptr::null()), None);
    }

    #[test]
    fn without_a_driver_every_way_in_says_so() {
        if load_once().is_ok() {
            return; // tests/it/gpu.rs covers machines that have one
        }
        assert_eq!(driver().err().map(|e| e.code().to_string()), Some("machine.no_driver".to_string()));
        assert_eq!(version().err().map(|e| e.code().to_string()), Some("driver.100".to_string()));
        let through_cust = cust::quick_init();
        assert!(matches!(through_cust, Err(cust::error::CudaError::NoDevice)), "{through_cust:?}");
    }
}
