//! The CUDA driver, looked up when first needed: one binary serves machines with and without one.
//!
//! [`load`] loads `libcuda.so.1` once, or what [`load_driver`] names, and fills the table behind the symbols that cust
//! calls; [`driver`] initialises it besides. Entry points newer than cust's bindings are looked up one at a time with
//! [`Driver::late`]: a driver that lacks one refuses that call alone.

pub(crate) mod api;
pub(crate) mod code;
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) mod guard;
mod names;
mod rows;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod trampoline;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "absent.rs"]
mod trampoline;

use crate::error::{Code, Error, Result};
use cust::CudaFlags;
use libloading::Library;
use std::ffi::{OsStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The names under which the driver is looked for, in the loader's path.
const FILES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// The CUDA version whose drivers have every guarded call.
const OLDEST: &str = "11.4";

/// A loaded driver.
#[derive(Debug)]
pub(crate) struct Driver {
    library: Library,
    /// What was asked for.
    asked: PathBuf,
    /// The file that the loader took, where it can be told.
    pub(crate) path: String,
    /// How many of the entry points that cust knows it has.
    pub(crate) found: usize,
    /// Those that we cannot do without and it lacks.
    missing: Vec<&'static str>,
}

static LOADED: OnceLock<Driver> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());
static READY: OnceLock<()> = OnceLock::new();

/// Takes the CUDA driver from this file instead of looking for `libcuda.so.1` in the loader's path. A process has one
/// driver: this has to come before the first use of any other part of this room.
///
/// # Errors
/// `host.no_driver` where the file cannot be loaded or is no driver; `host.driver_loaded` where another one is
/// in use.
pub fn load_driver(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let driver = load_from(&[path.as_os_str()]).map_err(|message| {
        Error::machine(Code::HostNoDriver, format!("{} is not an NVIDIA driver ({message})", path.display()))
            .help("name the file of the driver itself, usually libcuda.so.1, or leave the choice to the loader")
    })?;
    if driver.asked == path {
        return Ok(());
    }
    let message = format!("the driver {} cannot be taken: {} is in use", path.display(), driver.path);
    Err(Error::machine(Code::HostDriverLoaded, message).help("choose the driver before the first use of a device"))
}

/// Loads the library and fills the table, the first time; the loader's message where there is none.
pub(crate) fn load() -> std::result::Result<&'static Driver, String> {
    load_from(&FILES.map(OsStr::new))
}

/// The driver in use, else the first of these files that is one.
fn load_from(files: &[&OsStr]) -> std::result::Result<&'static Driver, String> {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = LOADED.get() {
        return Ok(driver);
    }
    let mut message = None;
    for file in files {
        match open(file) {
            Ok(library) => return Ok(LOADED.get_or_init(|| Driver::fill(library, file))),
            Err(words) => message = message.or(Some(words)),
        }
    }
    Err(message.unwrap_or_default())
}

fn open(file: &OsStr) -> std::result::Result<Library, String> {
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return Err("devices are driven on Linux alone, on x86_64 and aarch64".to_string());
    }
    // SAFETY: the driver's library has no initialiser that asks anything of its caller.
    let library = unsafe { Library::new(file) }.map_err(|error| loader_words(&error))?;
    match address(&library, "cuInit") {
        Some(_) => Ok(library),
        None => Err("it has no cuInit".to_string()),
    }
}

/// The driver in use, if there is one yet.
fn loaded() -> Option<&'static Driver> {
    LOADED.get()
}

/// The driver, loaded and initialised.
pub(crate) fn driver() -> Result<&'static Driver> {
    let driver = load().map_err(|message| {
        Error::machine(Code::HostNoDriver, format!("no NVIDIA driver was found ({message})"))
            .help("install the NVIDIA driver; it brings libcuda.so.1")
            .help("run on the simulator instead: --device cpu")
    })?;
    if READY.get().is_some() {
        return Ok(driver);
    }
    if let Some(symbol) = driver.missing.first() {
        return Err(too_old(symbol, OLDEST, version().unwrap_or(0)));
    }
    code::check(cust::init(CudaFlags::empty()), "initialising the driver")?;
    let _ = READY.set(());
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
    fn fill(library: Library, file: &OsStr) -> Driver {
        let found = trampoline::fill(|name| address(&library, name));
        let missing = guard::NAMES.iter().copied().filter(|name| address(&library, name).is_none()).collect();
        let asked = PathBuf::from(file);
        let path = address(&library, "cuInit").and_then(file_of).unwrap_or_else(|| asked.display().to_string());
        Driver { library, asked, path, found, missing }
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
    Error::machine(Code::HostDriverTooOld, message).help(format!("update the NVIDIA driver to one for CUDA {needs}"))
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
        assert_eq!((error.fault(), error.code()), (Fault::Machine, Code::HostDriverTooOld));
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
        if load().is_ok() {
            return; // tests/it/gpu.rs covers machines that have one
        }
        assert_eq!(driver().err().map(|e| e.code().to_string()), Some("host.no_driver".to_string()));
        assert_eq!(version().err().map(|e| e.code().to_string()), Some("driver.100".to_string()));
        let through_cust = cust::quick_init();
        assert!(matches!(through_cust, Err(cust::error::CudaError::NoDevice)), "{through_cust:?}");
    }
}
