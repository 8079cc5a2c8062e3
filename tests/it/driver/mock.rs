//! The mock driver as a test sees it: built once, loaded where libcuda would be, configured, and read.
//!
//! A process has one driver, so every scenario runs in a process of its own: the test starts its own binary with its own
//! name as the filter, and there the scenario runs. The child must say that it came to the end, in time, and nothing may
//! be left on the device.

use libloading::Library;
use std::ffi::{CString, c_char};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use warploom::runtime::load_driver;

/// The library's path, in the environment of a child.
const LIBRARY: &str = "WARPLOOM_MOCK_DRIVER";
/// What a scenario may take: one that hangs is ended.
const LIMIT: Duration = Duration::from_secs(240);
/// What `live` says when everything was given back.
pub const NOTHING: &str = "allocations 0, modules 0, streams 0, events 0, graphs 0, contexts 0";

/// The mock driver in this process.
pub struct Mock {
    library: Library,
}

/// A launch as the driver passes it to an executor (`tests/mock-driver/state.rs`).
#[repr(C)]
pub struct Launch {
    entry: *const c_char,
    text: *const c_char,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared_bytes: u32,
    values: *const u8,
    sizes: *const usize,
    count: usize,
}

/// Runs a scenario in a process of its own with these settings; nothing may be left on the device at the end.
pub fn alone<F: FnOnce(&Mock)>(settings: &str, scenario: F) {
    leaving(NOTHING, settings, scenario);
}

/// As [`alone`], with a driver of an earlier CUDA version.
pub fn aged<F: FnOnce(&Mock)>(age: Age, scenario: F) {
    with(age, NOTHING, "", scenario);
}

/// As [`alone`], with what the scenario leaves behind.
pub fn leaving<F: FnOnce(&Mock)>(left: &str, settings: &str, scenario: F) {
    with(Age::New, left, settings, scenario);
}

/// Runs a scenario in a process of its own that has taken no driver yet; it gets the path of one.
pub fn bare<F: FnOnce(&Path)>(scenario: F) {
    child::<F>(Age::New, scenario);
}

fn with<F: FnOnce(&Mock)>(age: Age, left: &str, settings: &str, scenario: F) {
    child::<F>(age, |library| {
        let mock = Mock::load(library);
        mock.configure(settings);
        scenario(&mock);
        assert_eq!(mock.live(), left, "left on the device");
    });
}

/// The test that holds the scenario `F` is started anew as a process; there, the scenario runs.
fn child<F>(age: Age, scenario: impl FnOnce(&Path)) {
    let path = std::any::type_name::<F>();
    let name = path.split_once("::").map_or(path, |(_, rest)| rest).trim_end_matches("::{{closure}}");
    let end = format!("scenario {name} is over");
    let Some(library) = std::env::var_os(LIBRARY) else { return in_child(age, name, &end) };
    scenario(Path::new(&library));
    println!("{end}");
}

/// Starts this binary for one test.
fn in_child(age: Age, name: &str, end: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(LIBRARY, library(age))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let errors = std::thread::spawn(move || text_of(&mut errors));
    let output = std::thread::spawn(move || text_of(&mut out));
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > LIMIT => {
                let _ = (child.kill(), child.wait());
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let (output, errors) = (output.join().unwrap(), errors.join().unwrap());
    let over = output.lines().any(|line| line.ends_with(end));
    assert!(status.is_some_and(|s| s.success()) && over, "{name}: {status:?}\n{output}\n{errors}");
}

fn text_of(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Which entry points the driver has: all, or those of an earlier CUDA version.
#[derive(Debug, Clone, Copy)]
pub enum Age {
    New,
    Cuda11_7,
    Cuda11_3,
}

/// The built library; its name holds what it was built from, so that a build serves until a source changes.
pub fn library(age: Age) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    // The tests of examples have manifests of their own below the repository.
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests/mock-driver"));
    let folder = above.find(|folder| folder.is_dir()).unwrap();
    let mut sources: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    sources.sort();
    let mut hash = DefaultHasher::new();
    sources.iter().for_each(|s| fs::read(s).unwrap().hash(&mut hash));
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = place.join(format!("libmock_driver-{age:?}-{:016x}.so", hash.finish()));
    if !built.exists() {
        // Under a name of its own first: another test run may be building the same.
        let draft = place.join(format!("libmock_driver-{}.so", std::process::id()));
        build(age, &folder.join("lib.rs"), &draft);
        fs::rename(&draft, &built).unwrap();
    }
    built
}

fn build(age: Age, source: &Path, to: &Path) {
    let lacks: &[&str] = match age {
        Age::New => &[],
        Age::Cuda11_7 => &["-Adead-code", "-Aunused-imports", "--cfg", "age=\"11.7\""],
        Age::Cuda11_3 => &["-Adead-code", "-Aunused-imports", "--cfg", "age=\"11.3\""],
    };
    let built = Command::new(rustc())
        .args(["--edition", "2024", "--crate-name", "mock_driver", "--crate-type", "cdylib", "-D", "warnings"])
        .args(["--check-cfg", "cfg(age, values(\"11.3\", \"11.7\"))"])
        // Who opens libcuda.so.1 in a process that has this library gets it.
        .args(["-C", "link-arg=-Wl,-soname,libcuda.so.1"])
        .args(lacks)
        .args([source.as_os_str(), "-o".as_ref(), to.as_os_str()])
        .output()
        .unwrap_or_else(|e| panic!("rustc, which builds the mock driver, does not start: {e}"));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// The compiler that built the tests: named by the environment, beside cargo, or in the path.
fn rustc() -> PathBuf {
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("rustc"));
    let named = std::env::var_os("RUSTC").map(PathBuf::from);
    named.or(beside.filter(|path| path.exists())).unwrap_or_else(|| "rustc".into())
}

impl Mock {
    fn load(path: &Path) -> Mock {
        // SAFETY: the library was built from `tests/mock-driver`, which asks nothing of who loads it.
        let library = unsafe { Library::new(path) }.unwrap();
        load_driver(path).unwrap();
        Mock { library }
    }

    /// Replaces the settings (`tests/mock-driver/settings.rs`); calls are counted anew.
    pub fn configure(&self, settings: &str) {
        let text = CString::new(settings).unwrap();
        // SAFETY: the prototype is the library's.
        let code = unsafe {
            let configure = self.library.get::<extern "C" fn(*const c_char) -> i32>("mock_configure").unwrap();
            configure(text.as_ptr())
        };
        assert_eq!(code, 0, "settings that say nothing:\n{settings}");
    }

    /// The calls since the last look, a line each: `cuMemAlloc_v2 512 -> 0`.
    pub fn journal(&self) -> Vec<String> {
        self.text("mock_journal").lines().map(str::to_string).collect()
    }

    /// The calls of one function since the last look; others are forgotten.
    pub fn calls(&self, function: &str) -> Vec<String> {
        let of = |line: &String| line.split_whitespace().next() == Some(function);
        self.journal().into_iter().filter(of).collect()
    }

    /// What has not been given back.
    pub fn live(&self) -> String {
        self.text("mock_live")
    }

    /// A function of the driver's, called past the runtime; the caller names its type.
    pub fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the tests name the prototypes of cuda.h.
        *unsafe { self.library.get::<T>(name) }.unwrap()
    }

    /// Sets the function that runs kernels.
    pub fn executor(&self, executor: extern "C" fn(&Launch) -> i32) {
        // SAFETY: the prototype is the library's; it passes a launch that lives through the call.
        unsafe {
            let set = self.library.get::<extern "C" fn(extern "C" fn(&Launch) -> i32)>("mock_executor").unwrap();
            set(executor);
        }
    }

    fn text(&self, of: &str) -> String {
        // SAFETY: the prototype is the library's; the buffer is as large as it is told.
        unsafe {
            let ask = self.library.get::<extern "C" fn(*mut u8, usize) -> usize>(of).unwrap();
            let mut bytes = vec![0u8; ask(std::ptr::null_mut(), 0)];
            ask(bytes.as_mut_ptr(), bytes.len());
            String::from_utf8(bytes).unwrap()
        }
    }
}

impl Launch {
    /// The kernel's name.
    pub fn entry(&self) -> &str {
        // SAFETY: the driver passes a C string that lives through the call.
        unsafe { std::ffi::CStr::from_ptr(self.entry) }.to_str().unwrap()
    }

    /// The text of the module that the kernel is in.
    pub fn text(&self) -> &str {
        // SAFETY: as above.
        unsafe { std::ffi::CStr::from_ptr(self.text) }.to_str().unwrap()
    }

    /// The parameters that are addresses.
    pub fn addresses(&self) -> Vec<u64> {
        self.parameters().into_iter().filter_map(|(address, is_map)| (!is_map).then_some(address)).collect()
    }

    /// The parameters: an address, or that of the array of a tensor map, and whether it is one.
    pub fn parameters(&self) -> Vec<(u64, bool)> {
        // SAFETY: there are `count` sizes, and as many bytes of values as they add up to.
        let (sizes, values) = unsafe {
            let sizes = std::slice::from_raw_parts(self.sizes, self.count);
            (sizes, std::slice::from_raw_parts(self.values, sizes.iter().sum()))
        };
        assert!(sizes.iter().all(|s| [8, 128].contains(s)), "{sizes:?}");
        let mut rest = values;
        let mut next = |size: &usize| {
            let (value, more) = rest.split_at(*size);
            rest = more;
            (u64::from_le_bytes(value[..8].try_into().unwrap()), *size == 128)
        };
        sizes.iter().map(&mut next).collect()
    }

    /// The device memory at an address: host memory.
    ///
    /// # Safety
    /// The kernel must own so many bytes there, and no other view of them may be in use.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn memory(&self, address: u64, bytes: usize) -> &mut [u8] {
        // SAFETY: the caller vouches for it.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
    }
}
