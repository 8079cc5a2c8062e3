//! cuBLAS, loaded at run time: the peer that every matrix product is measured beside.
//!
//! Prototypes and numbers are those of the cuBLAS reference (cublas_api.h, library_types.h). cuBLAS is column-major;
//! a row-major product is the column-major product of the transposes with the operands swapped ([`product::call`]).

use super::product::{self, Call, Types};
use super::{folders, function, open};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::runtime::{Device, DeviceBuffer};
use crate::te::GemmSpec;
use libloading::os::unix::Library;
use std::ffi::{c_int, c_longlong, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
type Destroy = unsafe extern "C" fn(Handle) -> c_int;
type SetStream = unsafe extern "C" fn(Handle, *mut c_void) -> c_int;
type SetWorkspace = unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int;
type SetMode = unsafe extern "C" fn(Handle, c_int) -> c_int;
type GetVersion = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Asum = unsafe extern "C" fn(Handle, c_int, *const c_void, c_int, *mut c_void) -> c_int;
type Sgemm = unsafe extern "C" fn(
    handle: Handle,
    trans_a: c_int,
    trans_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    lda: c_int,
    b: *const c_void,
    ldb: c_int,
    beta: *const c_void,
    c: *mut c_void,
    ldc: c_int,
) -> c_int;
type GemmEx = unsafe extern "C" fn(
    handle: Handle,
    trans_a: c_int,
    trans_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    lda: c_int,
    b: *const c_void,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: *mut c_void,
    c_type: c_int,
    ldc: c_int,
    compute_type: c_int,
    algorithm: c_int,
) -> c_int;

type GemmStridedBatchedEx = unsafe extern "C" fn(
    handle: Handle,
    trans_a: c_int,
    trans_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    lda: c_int,
    stride_a: c_longlong,
    b: *const c_void,
    b_type: c_int,
    ldb: c_int,
    stride_b: c_longlong,
    beta: *const c_void,
    c: *mut c_void,
    c_type: c_int,
    ldc: c_int,
    stride_c: c_longlong,
    batch: c_int,
    compute_type: c_int,
    algorithm: c_int,
) -> c_int;

/// CUBLAS_DEFAULT_MATH: f32 products in f32, never in tf32.
const DEFAULT_MATH: c_int = 0;
const POINTERS_ON_HOST: c_int = 0;
const POINTERS_ON_DEVICE: c_int = 1;
/// CUBLAS_GEMM_DEFAULT: the library's heuristic chooses.
const HEURISTIC: c_int = -1;
/// What NVIDIA recommends for Hopper is 32 MiB; more does no harm.
pub(super) const WORKSPACE_BYTES: usize = 64 << 20;
/// Newest first.
const FILES: [&str; 4] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"];

/// A loaded cuBLAS with a handle on a device's stream and its own workspace.
#[derive(Debug)]
pub struct Cublas {
    handle: Handle,
    device: Device,
    _workspace: DeviceBuffer,
    /// Never unloaded: its threads and exit handlers would outlive it.
    library: ManuallyDrop<Library>,
    file: PathBuf,
    version: i32,
}

impl Cublas {
    /// Finds and loads the library: `file` (a file, or a folder that holds it) if given, else the environment's
    /// WARPLOOM_CUBLAS, else the loader's path, CUDA's folders and Python's packages.
    pub fn open(device: &Device, file: Option<&Path>) -> Result<Cublas> {
        let mut first = None;
        for candidate in candidates(file) {
            match Self::load(device, &candidate) {
                Ok(cublas) => return Ok(cublas),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let why = first.map_or_else(|| "no file of that name".to_string(), |e| e.message().to_string());
        Err(Error::machine(Code::HostNoCublas, format!("cuBLAS was not found: {why}"))
            .help("install CUDA's libcublas (the toolkit, or Python's nvidia-cublas), or set WARPLOOM_CUBLAS to it"))
    }

    fn load(device: &Device, file: &Path) -> Result<Cublas> {
        device.make_current()?;
        // libcublas needs its sibling libcublasLt; where the loader would not look beside it, it is there already.
        let named = file.parent().zip(file.file_name().and_then(|name| name.to_str()));
        if let Some((dir, name)) = named.filter(|(dir, _)| !dir.as_os_str().is_empty()) {
            let _ = open(&dir.join(name.replace("libcublas", "libcublasLt"))).map(std::mem::forget);
        }
        let library = ManuallyDrop::new(open(file)?);
        let workspace = device.alloc(DType::U8, &[WORKSPACE_BYTES])?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: the type is the function's prototype; the context is current.
        unsafe { status(function::<Create>(&library, "cublasCreate_v2")?(&mut handle), "cublasCreate")? };
        let version = set_up(&library, handle, device, &workspace).inspect_err(|_| destroy(&library, handle))?;
        let (device, file) = (device.clone(), file.to_path_buf());
        Ok(Cublas { handle, device, _workspace: workspace, library, file, version })
    }

    /// The file that was loaded, as it was named.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// 130000 for 13.0.0.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Puts C = A * B on the device's stream.
    pub fn gemm(&self, gemm: &GemmSpec, a: &DeviceBuffer, b: &DeviceBuffer, c: &DeviceBuffer) -> Result<()> {
        let types = product::types(gemm).filter(|_| !product::is_lt_alone(gemm));
        let types = types.ok_or_else(|| product::unsupported(gemm))?;
        let call = product::call(gemm)?;
        product::check(gemm, a, b, c)?;
        self.device.make_current()?;
        self.pointers(POINTERS_ON_HOST)?;
        // SAFETY: sizes, strides and types describe the three buffers, whose sizes were checked; the scalars are
        // read before the call returns (pointer mode host).
        unsafe { self.enqueue(&call, product::strides(gemm), &types, [a.address(), b.address(), c.address()]) }
    }

    unsafe fn enqueue(&self, call: &Call, strides: [i64; 3], types: &Types, [a, b, c]: [u64; 3]) -> Result<()> {
        let zero = [0u8; 8];
        let (one, zero) = (types.one.as_ptr().cast::<c_void>(), zero.as_ptr().cast::<c_void>());
        let Call { batch, m, n, k, trans_b, ld_b, trans_a, ld_a, ld_c } = *call;
        // SAFETY: the types are the functions' prototypes; the rest is the caller's promise.
        unsafe {
            if batch > 1 {
                let run = function::<GemmStridedBatchedEx>(&self.library, "cublasGemmStridedBatchedEx")?;
                let [of_b, of_a, of_c] = strides;
                #[rustfmt::skip]
                let code = run(
                    self.handle, trans_b, trans_a, m, n, k, one, at(b), types.b, ld_b, of_b, at(a), types.a, ld_a, of_a,
                    zero, at(c), types.c, ld_c, of_c, batch, types.compute, HEURISTIC,
                );
                return status(code, "cublasGemmStridedBatchedEx");
            }
            if (types.a, types.c, types.compute) == (0, 0, 68) {
                let run = function::<Sgemm>(&self.library, "cublasSgemm_v2")?;
                let code =
                    run(self.handle, trans_b, trans_a, m, n, k, one, at(b), ld_b, at(a), ld_a, zero, at(c), ld_c);
                return status(code, "cublasSgemm");
            }
            let run = function::<GemmEx>(&self.library, "cublasGemmEx")?;
            #[rustfmt::skip]
            let code = run(
                self.handle, trans_b, trans_a, m, n, k, one, at(b), types.b, ld_b, at(a), types.a, ld_a, zero,
                at(c), types.c, ld_c, types.compute, HEURISTIC,
            );
            status(code, "cublasGemmEx")
        }
    }

    /// Reads a buffer of f32 from end to end on the device's stream; the sum of magnitudes goes to `result`.
    pub fn read_through(&self, buffer: &DeviceBuffer, result: &DeviceBuffer) -> Result<()> {
        let count = c_int::try_from(buffer.bytes() / 4)
            .map_err(|_| Error::input(Code::MeasureSize, "the buffer to read is too large for cuBLAS"))?;
        if result.bytes() < 4 {
            return Err(Error::input(Code::MeasureOperand, "the sum needs space for one f32"));
        }
        self.device.make_current()?;
        self.pointers(POINTERS_ON_DEVICE)?;
        // SAFETY: the type is the function's prototype; both buffers have the room that it uses.
        unsafe {
            let run = function::<Asum>(&self.library, "cublasSasum_v2")?;
            status(run(self.handle, count, at(buffer.address()), 1, at(result.address())), "cublasSasum")
        }
    }

    fn pointers(&self, mode: c_int) -> Result<()> {
        // SAFETY: the type is the function's prototype.
        unsafe {
            let set = function::<SetMode>(&self.library, "cublasSetPointerMode_v2")?;
            status(set(self.handle, mode), "cublasSetPointerMode")
        }
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        if self.device.make_current().is_ok() {
            destroy(&self.library, self.handle);
        }
    }
}

/// A device's address as the library takes it.
pub(super) fn at(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Puts a new handle on the device's stream, with our workspace and plain f32 arithmetic; yields the version.
fn set_up(library: &Library, handle: Handle, device: &Device, workspace: &DeviceBuffer) -> Result<i32> {
    let mut version = 0;
    // SAFETY: the types are the functions' prototypes; stream and workspace outlive the handle: they are fields of the
    // same value, whose drop destroys the handle first.
    unsafe {
        // The stream comes first: setting it resets the workspace.
        let stream = function::<SetStream>(library, "cublasSetStream_v2")?;
        status(stream(handle, device.raw_stream()), "cublasSetStream")?;
        let room = std::ptr::with_exposed_provenance_mut(workspace.address() as usize);
        let set = function::<SetWorkspace>(library, "cublasSetWorkspace_v2")?;
        status(set(handle, room, WORKSPACE_BYTES), "cublasSetWorkspace")?;
        let math = function::<SetMode>(library, "cublasSetMathMode")?;
        status(math(handle, DEFAULT_MATH), "cublasSetMathMode")?;
        let get = function::<GetVersion>(library, "cublasGetVersion_v2")?;
        status(get(handle, &mut version), "cublasGetVersion")?;
    }
    Ok(version)
}

fn destroy(library: &Library, handle: Handle) {
    // SAFETY: the type is the function's prototype; the handle was made by cublasCreate and is destroyed once.
    unsafe {
        if let Ok(run) = function::<Destroy>(library, "cublasDestroy_v2") {
            run(handle);
        }
    }
}

/// The files to try, best first.
fn candidates(file: Option<&Path>) -> Vec<PathBuf> {
    let chosen = file.map(Path::to_path_buf).or_else(|| std::env::var_os("WARPLOOM_CUBLAS").map(PathBuf::from));
    match chosen {
        Some(dir) if dir.is_dir() => FILES.iter().map(|name| dir.join(name)).filter(|f| f.exists()).collect(),
        Some(file) => vec![file],
        None => {
            let folders = folders();
            let all = FILES.iter().flat_map(|name| {
                let beside = folders.iter().map(|dir| dir.join(name)).filter(|f| f.exists());
                std::iter::once(PathBuf::from(name)).chain(beside.collect::<Vec<_>>())
            });
            all.collect()
        }
    }
}

/// `Ok` for 0, else an error with the status's name (cublasStatus_t).
pub(super) fn status(code: c_int, doing: &str) -> Result<()> {
    let name = match code {
        0 => return Ok(()),
        1 => "NOT_INITIALIZED",
        3 => "ALLOC_FAILED",
        7 => "INVALID_VALUE",
        8 => "ARCH_MISMATCH",
        11 => "MAPPING_ERROR",
        13 => "EXECUTION_FAILED",
        14 => "INTERNAL_ERROR",
        15 => "NOT_SUPPORTED",
        16 => "LICENSE_ERROR",
        _ => "an unknown status",
    };
    Err(Error::machine(Code::HostCublas, format!("{doing} answers {name} ({code})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_file_is_the_only_candidate() {
        assert_eq!(candidates(Some(Path::new("/x/libcublas.so.13"))), [PathBuf::from("/x/libcublas.so.13")]);
        assert_eq!(status(15, "cublasGemmEx").unwrap_err().message(), "cublasGemmEx answers NOT_SUPPORTED (15)");
    }
}
