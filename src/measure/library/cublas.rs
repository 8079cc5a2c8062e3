//! cuBLAS, loaded at run time: the peer that every matrix product is measured beside.
//!
//! Prototypes and numbers are those of the cuBLAS reference (cublas_api.h, library_types.h). cuBLAS is column-major;
//! a row-major product is the column-major product of the transposes with the operands swapped ([`Gemm::call`]).

use super::{folders, function, open};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::runtime::{Device, DeviceBuffer};
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

/// A matrix product as the library sees it: C[m, n] = A * B, all row-major, sums in `acc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemm {
    /// Products, whose matrices lie one behind the other.
    pub batch: i64,
    /// Rows of C.
    pub m: i64,
    /// Columns of C.
    pub n: i64,
    /// Length of the sums.
    pub k: i64,
    /// The type of A.
    pub a: DType,
    /// The type of B.
    pub b: DType,
    /// The type of the sums.
    pub acc: DType,
    /// The type of C.
    pub out: DType,
    /// Whether A is stored [k, m].
    pub a_transposed: bool,
    /// Whether B is stored [n, k].
    pub b_transposed: bool,
}

/// The column-major call of a row-major product: sizes, then the first and the second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub batch: c_int,
    pub m: c_int,
    pub n: c_int,
    pub k: c_int,
    pub trans_b: c_int,
    pub ld_b: c_int,
    pub trans_a: c_int,
    pub ld_a: c_int,
    pub ld_c: c_int,
}

/// The library's numbers for a product's types: data types of A, B and C, the compute type, and the constant 1 with its
/// type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types {
    pub a: c_int,
    pub b: c_int,
    pub c: c_int,
    pub compute: c_int,
    pub scale: c_int,
    pub one: [u8; 8],
}

impl Gemm {
    /// Row-major C = A B is column-major C' = B' A', and a row-major matrix read column by column is its transpose:
    /// so the operands swap and their transpositions stay.
    pub(super) fn call(&self) -> Result<Call> {
        let int = |extent: i64| {
            c_int::try_from(extent).ok().filter(|e| *e > 0).ok_or_else(|| {
                Error::input("measure.size", format!("cuBLAS takes extents of 1 to 2^31 - 1, not {extent}"))
            })
        };
        Ok(Call {
            batch: int(self.batch)?,
            m: int(self.n)?,
            n: int(self.m)?,
            k: int(self.k)?,
            trans_b: c_int::from(self.b_transposed),
            ld_b: int(if self.b_transposed { self.k } else { self.n })?,
            trans_a: c_int::from(self.a_transposed),
            ld_a: int(if self.a_transposed { self.m } else { self.k })?,
            ld_c: int(self.n)?,
        })
    }

    /// Elements from one product to the next: of the first operand of the call, the second, and the result.
    pub(super) fn strides(&self) -> [i64; 3] {
        [self.k * self.n, self.m * self.k, self.m * self.n]
    }

    /// CUDA_R_* and CUBLAS_COMPUTE_* numbers.
    pub(super) fn types(&self) -> Option<Types> {
        use DType::{Bf16, F16, F32, F64, S8, S32, Tf32};
        let one_f32 = bytes(&1f32.to_le_bytes());
        let (a, b, c, compute, one) = match (self.a, self.b, self.acc, self.out) {
            (F32, F32, F32, F32) => (0, 0, 0, 68, one_f32),
            (Tf32, Tf32, F32, F32) => (0, 0, 0, 77, one_f32),
            (F16, F16, F32, F16) => (2, 2, 2, 68, one_f32),
            (F16, F16, F32, F32) => (2, 2, 0, 68, one_f32),
            (F16, F16, F16, F16) => (2, 2, 2, 64, bytes(&half::f16::ONE.to_le_bytes())),
            (Bf16, Bf16, F32, Bf16) => (14, 14, 14, 68, one_f32),
            (Bf16, Bf16, F32, F32) => (14, 14, 0, 68, one_f32),
            (F64, F64, F64, F64) => (1, 1, 1, 70, bytes(&1f64.to_le_bytes())),
            (S8, S8, S32, S32) => (3, 3, 10, 72, bytes(&1i32.to_le_bytes())),
            _ => return None,
        };
        // CUDA_R_32F, _64F, _16F and _32I: the type in which the compute type has its scalars.
        let scale = match compute {
            64 => 2,
            70 => 1,
            72 => 10,
            _ => 0,
        };
        Some(Types { a, b, c, compute, scale, one })
    }

    /// Whether the buffers hold the matrices.
    pub(super) fn check(&self, a: &DeviceBuffer, b: &DeviceBuffer, c: &DeviceBuffer) -> Result<()> {
        let [of_b, of_a, of_c] = self.strides();
        for (name, buffer, dtype, stride) in [("A", a, self.a, of_a), ("B", b, self.b, of_b), ("C", c, self.out, of_c)]
        {
            let count = self.batch * stride;
            let same_bits = buffer.dtype() == dtype || (dtype == DType::Tf32 && buffer.dtype() == DType::F32);
            if !same_bits || (buffer.bytes() as u64) < dtype.bytes_of(count as u64) {
                return Err(Error::input("measure.operand", format!("{name} is not {count} elements of {dtype}")));
            }
        }
        Ok(())
    }
}

/// Up to eight bytes, the rest zero.
fn bytes(value: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    out[..value.len()].copy_from_slice(value);
    out
}

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
        Err(Error::machine("machine.no_cublas", format!("cuBLAS was not found: {why}"))
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
    pub fn gemm(&self, gemm: &Gemm, a: &DeviceBuffer, b: &DeviceBuffer, c: &DeviceBuffer) -> Result<()> {
        let types = gemm.types().ok_or_else(|| unsupported(gemm))?;
        let call = gemm.call()?;
        gemm.check(a, b, c)?;
        self.device.make_current()?;
        self.pointers(POINTERS_ON_HOST)?;
        // SAFETY: sizes, strides and types describe the three buffers, whose sizes were checked; the scalars are
        // read before the call returns (pointer mode host).
        unsafe { self.enqueue(&call, gemm.strides(), &types, [a.address(), b.address(), c.address()]) }
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
            .map_err(|_| Error::input("measure.size", "the buffer to read is too large for cuBLAS"))?;
        if result.bytes() < 4 {
            return Err(Error::input("measure.operand", "the sum needs room for one f32"));
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

/// The error for types that the library does not multiply.
pub(super) fn unsupported(gemm: &Gemm) -> Error {
    let Gemm { a, b, acc, out, .. } = gemm;
    Error::machine("machine.no_peer", format!("cuBLAS has no plain product {a} x {b} > {acc} > {out}"))
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
    Err(Error::machine("machine.cublas", format!("{doing} answers {name} ({code})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemm(a_transposed: bool, b_transposed: bool) -> Gemm {
        let (a, b, acc, out) = (DType::F32, DType::F32, DType::F32, DType::F32);
        Gemm { batch: 1, m: 2, n: 3, k: 4, a, b, acc, out, a_transposed, b_transposed }
    }

    /// What a column-major BLAS computes for a call, element by element.
    fn column_major(call: &Call, first: &[f64], second: &[f64]) -> Vec<f64> {
        let (m, n, k) = (call.m as usize, call.n as usize, call.k as usize);
        let at = |x: &[f64], trans: c_int, ld: c_int, row: usize, column: usize| match trans {
            0 => x[row + column * ld as usize],
            _ => x[column + row * ld as usize],
        };
        let mut c = vec![0.0; m * n];
        for (row, column) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
            c[row + column * call.ld_c as usize] = (0..k)
                .map(|p| at(first, call.trans_b, call.ld_b, row, p) * at(second, call.trans_a, call.ld_a, p, column))
                .sum();
        }
        c
    }

    #[test]
    fn row_major_products_come_out_in_every_layout() {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let g = gemm(ta, tb);
            let (m, n, k) = (2, 3, 4);
            let a: Vec<f64> = (0..m * k).map(|i| (i * 7 % 11) as f64).collect();
            let b: Vec<f64> = (0..k * n).map(|i| (i * 5 % 13) as f64).collect();
            let mut expected = vec![0.0; m * n];
            for (i, j, p) in (0..m).flat_map(|i| (0..n).flat_map(move |j| (0..k).map(move |p| (i, j, p)))) {
                let x = if ta { a[p * m + i] } else { a[i * k + p] };
                let y = if tb { b[j * k + p] } else { b[p * n + j] };
                expected[i * n + j] += x * y;
            }
            assert_eq!(column_major(&g.call().unwrap(), &b, &a), expected, "{ta} {tb}");
        }
    }

    #[test]
    fn types_have_the_librarys_numbers() {
        let types = gemm(false, false).types().unwrap();
        assert_eq!((types.a, types.c, types.compute, types.one), (0, 0, 68, [0, 0, 0x80, 0x3F, 0, 0, 0, 0]));
        let half = Gemm { a: DType::F16, b: DType::F16, out: DType::F16, ..gemm(false, false) }.types().unwrap();
        assert_eq!((half.a, half.c, half.compute), (2, 2, 68));
        assert_eq!(Gemm { a: DType::E4m3, ..gemm(false, false) }.types(), None);
        assert_eq!(Gemm { m: 1 << 31, ..gemm(false, false) }.call().unwrap_err().code(), "measure.size");
    }

    #[test]
    fn a_chosen_file_is_the_only_candidate() {
        assert_eq!(candidates(Some(Path::new("/x/libcublas.so.13"))), [PathBuf::from("/x/libcublas.so.13")]);
        assert_eq!(status(15, "cublasGemmEx").unwrap_err().message(), "cublasGemmEx answers NOT_SUPPORTED (15)");
    }
}
