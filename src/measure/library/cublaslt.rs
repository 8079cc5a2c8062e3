//! cuBLASLt, loaded at run time: products by the algorithms that its heuristic ranks first.
//!
//! Prototypes and numbers are those of the cuBLASLt reference (cublasLt.h). As with [`super::cublas`] a row-major product is
//! the column-major product of the transposes with the operands swapped.

use super::cublas::{WORKSPACE_BYTES, at, status};
use super::product::{self, Call, Types, unsupported};
use super::{function, open};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::runtime::{Device, DeviceBuffer};
use crate::te::GemmSpec;
use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

type Opaque = *mut c_void;
type Create = unsafe extern "C" fn(*mut Opaque) -> c_int;
type Destroy = unsafe extern "C" fn(Opaque) -> c_int;
type MatmulDescCreate = unsafe extern "C" fn(*mut Opaque, c_int, c_int) -> c_int;
type SetAttribute = unsafe extern "C" fn(Opaque, c_int, *const c_void, usize) -> c_int;
type LayoutCreate = unsafe extern "C" fn(*mut Opaque, c_int, u64, u64, i64) -> c_int;
type GetHeuristic = unsafe extern "C" fn(
    handle: Opaque,
    desc: Opaque,
    a: Opaque,
    b: Opaque,
    c: Opaque,
    d: Opaque,
    preference: Opaque,
    requested: c_int,
    results: *mut Heuristic,
    returned: *mut c_int,
) -> c_int;
type Matmul = unsafe extern "C" fn(
    handle: Opaque,
    desc: Opaque,
    alpha: *const c_void,
    a: *const c_void,
    a_layout: Opaque,
    b: *const c_void,
    b_layout: Opaque,
    beta: *const c_void,
    c: *const c_void,
    c_layout: Opaque,
    d: *mut c_void,
    d_layout: Opaque,
    algorithm: *const Algorithm,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: *mut c_void,
) -> c_int;

/// cublasLtMatmulAlgo_t.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Algorithm([u64; 8]);

/// cublasLtMatmulHeuristicResult_t.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Heuristic {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// CUBLASLT_MATMUL_DESC_TRANSA and _TRANSB.
const TRANS: [c_int; 2] = [3, 4];
/// CUBLASLT_MATMUL_DESC_FAST_ACCUM (int8): products of 8-bit floats are added as the tensor cores do it, without partial sums in f32, as
/// ours are.
const FAST_ACCUMULATION: c_int = 25;
/// CUBLASLT_MATMUL_DESC_A_SCALE_POINTER and _B_SCALE_POINTER, and CUBLASLT_MATMUL_DESC_A_SCALE_MODE and _B_SCALE_MODE (int32).
const SCALE_POINTER: [c_int; 2] = [17, 18];
const SCALE_MODE: [c_int; 2] = [31, 32];
/// CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F for the first operand of the call, which is B, and _VEC128_32F for the second.
const BLOCK_SCALES: [c_int; 2] = [5, 4];
/// CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.
const MAX_WORKSPACE: c_int = 1;

/// CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT (int32) and _STRIDED_BATCH_OFFSET (int64, in elements).
const BATCH_COUNT: c_int = 5;
const BATCH_STRIDE: c_int = 6;

/// A loaded cuBLASLt with its own workspace.
#[derive(Debug)]
pub struct CublasLt {
    handle: Opaque,
    device: Device,
    workspace: DeviceBuffer,
    /// Never unloaded: its threads and exit handlers would outlive it.
    library: ManuallyDrop<Library>,
}

impl CublasLt {
    /// Loads the library beside a cuBLAS that was loaded from `cublas`.
    ///
    /// # Errors
    /// The library is missing, or does not start.
    pub fn beside(device: &Device, cublas: &Path) -> Result<CublasLt> {
        device.make_current()?;
        let name = cublas.file_name().and_then(|n| n.to_str()).unwrap_or("libcublas.so");
        let library = ManuallyDrop::new(open(&cublas.with_file_name(name.replace("libcublas", "libcublasLt")))?);
        let workspace = device.alloc(DType::U8, &[WORKSPACE_BYTES])?;
        let mut handle: Opaque = std::ptr::null_mut();
        // SAFETY: the type is the function's prototype; the context is current.
        unsafe { status(function::<Create>(&library, "cublasLtCreate")?(&mut handle), "cublasLtCreate")? };
        Ok(CublasLt { handle, device: device.clone(), workspace, library })
    }

    /// A product with at most `most` algorithms, the one that the library would take first.
    ///
    /// # Errors
    /// The library has no such product.
    pub fn product(&self, gemm: &GemmSpec, most: usize) -> Result<Product<'_>> {
        let types = product::types(gemm).filter(|_| !gemm.block_scales || product::has_block_scales(gemm));
        let types = types.ok_or_else(|| unsupported(gemm))?;
        let call = product::call(gemm)?;
        self.device.make_current()?;
        let mut product = Product { lt: self, gemm: *gemm, types, objects: Vec::new(), algorithms: Vec::new() };
        let desc = product.object("cublasLtMatmulDescDestroy", |library, to| {
            // SAFETY: the type is the function's prototype.
            unsafe {
                let create = function::<MatmulDescCreate>(library, "cublasLtMatmulDescCreate")?;
                status(create(to, types.compute, types.scale), "cublasLtMatmulDescCreate")
            }
        })?;
        for (attribute, trans) in TRANS.into_iter().zip([call.trans_b, call.trans_a]) {
            self.set("cublasLtMatmulDescSetAttribute", desc, attribute, &trans.to_ne_bytes())?;
        }
        if gemm.block_scales {
            // The heuristic asks for pointers, which every run replaces.
            for (attribute, mode) in SCALE_MODE.into_iter().zip(BLOCK_SCALES) {
                self.set("cublasLtMatmulDescSetAttribute", desc, attribute, &mode.to_ne_bytes())?;
            }
            self.set_scales(desc, [&self.workspace, &self.workspace])?;
        } else if product::is_lt_alone(gemm) {
            self.set("cublasLtMatmulDescSetAttribute", desc, FAST_ACCUMULATION, &[1])?;
        }
        for ((ty, rows, columns, ld), stride) in layouts(&call, &types).into_iter().zip(product::strides(gemm)) {
            let layout = product.object("cublasLtMatrixLayoutDestroy", |library, to| {
                // SAFETY: the type is the function's prototype.
                unsafe {
                    let create = function::<LayoutCreate>(library, "cublasLtMatrixLayoutCreate")?;
                    status(create(to, ty, rows, columns, ld), "cublasLtMatrixLayoutCreate")
                }
            })?;
            if call.batch > 1 {
                let name = "cublasLtMatrixLayoutSetAttribute";
                self.set(name, layout, BATCH_COUNT, &call.batch.to_ne_bytes())?;
                self.set(name, layout, BATCH_STRIDE, &stride.to_ne_bytes())?;
            }
        }
        let preference = product.object("cublasLtMatmulPreferenceDestroy", |library, to| {
            // SAFETY: the type is the function's prototype.
            unsafe {
                let create = function::<Create>(library, "cublasLtMatmulPreferenceCreate")?;
                status(create(to), "cublasLtMatmulPreferenceCreate")
            }
        })?;
        let room = WORKSPACE_BYTES.to_ne_bytes();
        self.set("cublasLtMatmulPreferenceSetAttribute", preference, MAX_WORKSPACE, &room)?;
        product.rank(most)?;
        Ok(product)
    }

    /// Sets where the scales of the first and second operand of the call are.
    fn set_scales(&self, desc: Opaque, scales: [&DeviceBuffer; 2]) -> Result<()> {
        for (attribute, scales) in SCALE_POINTER.into_iter().zip(scales) {
            self.set("cublasLtMatmulDescSetAttribute", desc, attribute, &scales.address().to_ne_bytes())?;
        }
        Ok(())
    }

    fn set(&self, name: &'static str, object: Opaque, attribute: c_int, value: &[u8]) -> Result<()> {
        // SAFETY: the type is the function's prototype; the value lives through the call.
        unsafe {
            let set = function::<SetAttribute>(&self.library, name)?;
            status(set(object, attribute, value.as_ptr().cast(), value.len()), name)
        }
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: the type is the function's prototype; the handle is destroyed once, after all products, which borrow it.
        unsafe {
            if self.device.make_current().is_ok()
                && let Ok(destroy) = function::<Destroy>(&self.library, "cublasLtDestroy")
            {
                destroy(self.handle);
            }
        }
    }
}

/// A product that the library has, with its algorithms.
#[derive(Debug)]
pub struct Product<'l> {
    lt: &'l CublasLt,
    gemm: GemmSpec,
    types: Types,
    /// The operation, the layouts of the first and second operand and of the result, and the preference; each with the
    /// function that destroys it.
    objects: Vec<(Opaque, &'static str)>,
    algorithms: Vec<Algorithm>,
}

impl Product<'_> {
    /// How many algorithms there are: at least one.
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Puts C = A * B on the device's stream, by an algorithm in the library's order: A, B, the scales of blocks if there are any, and C.
    ///
    /// # Errors
    /// Operands of other types or sizes, or what the library answers.
    pub fn run(&self, algorithm: usize, set: &[DeviceBuffer]) -> Result<()> {
        let (a, b, scales, c) = match set {
            [a, b, c] if !self.gemm.block_scales => (a, b, None, c),
            [a, b, a_scales, b_scales, c] if self.gemm.block_scales => (a, b, Some([a_scales, b_scales]), c),
            _ => return Err(Error::input(Code::MeasureOperand, format!("{} buffers are no operands", set.len()))),
        };
        product::check(&self.gemm, a, b, c)?;
        let [(desc, _), (first, _), (second, _), (result, _), _] = self.objects[..] else {
            return Err(Error::bug(Code::MeasureLibrary, "a GEMM of cuBLASLt was not finished"));
        };
        let Some(algorithm) = self.algorithms.get(algorithm) else {
            return Err(Error::input(
                Code::MeasureAlgorithm,
                format!("there are {} algorithms", self.algorithms.len()),
            ));
        };
        let (zero, lt) = ([0u8; 8], self.lt);
        lt.device.make_current()?;
        if let Some([a_scales, b_scales]) = scales {
            product::check_scales(&self.gemm, a_scales, b_scales)?;
            lt.set_scales(desc, [b_scales, a_scales])?;
        }
        // SAFETY: the layouts describe the three buffers, whose sizes were checked; the scalars are read before the call
        // returns (pointer mode host, the default); the workspace has the size that the algorithms were asked for with.
        unsafe {
            let run = function::<Matmul>(&lt.library, "cublasLtMatmul")?;
            #[rustfmt::skip]
            let code = run(
                lt.handle, desc, self.types.one.as_ptr().cast(), at(b.address()), first, at(a.address()), second,
                zero.as_ptr().cast(), at(c.address()), result, at(c.address()), result, algorithm,
                at(lt.workspace.address()), WORKSPACE_BYTES, lt.device.raw_stream(),
            );
            status(code, "cublasLtMatmul")
        }
    }

    /// Keeps an object that `make` makes, until the product is dropped.
    fn object(
        &mut self,
        destroy: &'static str,
        make: impl FnOnce(&Library, *mut Opaque) -> Result<()>,
    ) -> Result<Opaque> {
        let mut made: Opaque = std::ptr::null_mut();
        make(&self.lt.library, &mut made)?;
        self.objects.push((made, destroy));
        Ok(made)
    }

    /// Asks for algorithms.
    fn rank(&mut self, most: usize) -> Result<()> {
        let [(desc, _), (first, _), (second, _), (result, _), (preference, _)] = self.objects[..] else {
            return Err(Error::bug(Code::MeasureLibrary, "a GEMM of cuBLASLt was not finished"));
        };
        let nothing = Heuristic { algorithm: Algorithm([0; 8]), workspace: 0, state: 15, waves: 0.0, reserved: [0; 4] };
        let (mut results, mut count) = (vec![nothing; most.max(1)], 0);
        // SAFETY: the type is the function's prototype; there is room for as many results as are asked for.
        unsafe {
            let ask = function::<GetHeuristic>(&self.lt.library, "cublasLtMatmulAlgoGetHeuristic")?;
            #[rustfmt::skip]
            let code = ask(
                self.lt.handle, desc, first, second, result, result, preference,
                results.len() as c_int, results.as_mut_ptr(), &mut count,
            );
            status(code, "cublasLtMatmulAlgoGetHeuristic")?;
        }
        let found = results.iter().take(usize::try_from(count).unwrap_or(0));
        self.algorithms = found.filter(|r| r.state == 0).map(|r| r.algorithm).collect();
        if self.algorithms.is_empty() { Err(unsupported(&self.gemm)) } else { Ok(()) }
    }
}

impl Drop for Product<'_> {
    fn drop(&mut self) {
        for (object, destroy) in self.objects.drain(..).rev() {
            // SAFETY: the type is the function's prototype; each object is destroyed once.
            unsafe {
                if let Ok(destroy) = function::<Destroy>(&self.lt.library, destroy) {
                    destroy(object);
                }
            }
        }
    }
}

/// Type, rows, columns and leading dimension of the first and second operand and the result, column by column.
fn layouts(call: &Call, types: &Types) -> [(c_int, u64, u64, i64); 3] {
    let sides = |trans: c_int, rows: c_int, columns: c_int| if trans == 0 { (rows, columns) } else { (columns, rows) };
    let (first, second) = (sides(call.trans_b, call.m, call.k), sides(call.trans_a, call.k, call.n));
    let of = |ty: c_int, (rows, columns): (c_int, c_int), ld: c_int| (ty, rows as u64, columns as u64, i64::from(ld));
    [of(types.b, first, call.ld_b), of(types.a, second, call.ld_a), of(types.c, (call.m, call.n), call.ld_c)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::Layout;

    #[test]
    fn what_the_library_fills_in_has_its_size() {
        assert_eq!(size_of::<Heuristic>(), 96);
        assert_eq!(size_of::<Algorithm>(), 64);
    }

    #[test]
    fn layouts_are_those_of_the_stored_matrices() {
        let of = |layout| {
            let gemm = GemmSpec::of(2, 3, 4, DType::F32, layout);
            layouts(&product::call(&gemm).unwrap(), &product::types(&gemm).unwrap()).map(|l| (l.1, l.2, l.3))
        };
        // B [4, 3] row by row is 3 x 4 column by column; A [2, 4] is 4 x 2; C [2, 3] is 3 x 2.
        assert_eq!(of(Layout::NN), [(3, 4, 3), (4, 2, 4), (3, 2, 3)]);
        assert_eq!(of(Layout::TT), [(4, 3, 4), (2, 4, 2), (3, 2, 3)]);
    }
}
