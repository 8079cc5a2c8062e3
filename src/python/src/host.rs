//! Host arrays by numpy's `__array_interface__`: the simulator runs the kernels on them.

use crate::error::raised;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use warploom::kernel::{Access, Arg};
use warploom::{Array, DType, Kernels};

/// What an array interface says of an array.
pub struct Described {
    pub address: usize,
    pub read_only: bool,
    typestr: String,
    pub shape: Vec<usize>,
    packed: bool,
}

/// Reads `__array_interface__` or `__cuda_array_interface__`, which have the same fields.
pub fn described(array: &Bound<'_, PyAny>, attribute: &str) -> PyResult<Described> {
    let interface = array.getattr(attribute)?.cast_into::<PyDict>()?;
    let field = |name: &str| {
        interface.get_item(name)?.ok_or_else(|| PyValueError::new_err(format!("{attribute} has no {name}")))
    };
    let (address, read_only): (Option<usize>, bool) = field("data")?.extract()?;
    let typestr: String = field("typestr")?.extract()?;
    let shape: Vec<usize> = field("shape")?.extract()?;
    let strides: Option<Vec<i64>> = interface.get_item("strides")?.map_or(Ok(None), |strides| strides.extract())?;
    let bytes: i64 = typestr.get(2..).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let mut next = bytes;
    let mut packed = true;
    for (extent, stride) in shape.iter().zip(strides.as_deref().unwrap_or_default()).rev() {
        packed &= *extent <= 1 || *stride == next;
        next *= *extent as i64;
    }
    Ok(Described { address: address.unwrap_or(0), read_only, typestr, shape, packed })
}

/// Whether an element of numpy is one of a type: types that numpy lacks are bytes or words of their size.
fn is_of(dtype: DType, typestr: &str) -> bool {
    let kinds: &[&str] = match dtype {
        DType::F16 => &["f2"],
        DType::Bf16 => &["V2", "u2"],
        DType::F32 | DType::Tf32 => &["f4"],
        DType::F64 => &["f8"],
        DType::S8 => &["i1"],
        DType::S32 => &["i4"],
        DType::U32 => &["u4"],
        DType::S64 => &["i8"],
        DType::Bool => &["b1", "u1"],
        DType::E4m3 | DType::E5m2 => &["V1", "u1"],
        DType::U8 | DType::S4 | DType::U4 | DType::B1 => &["u1"],
        _ => &[],
    };
    !typestr.starts_with('>') && typestr.get(1..).is_some_and(|kind| kinds.contains(&kind))
}

impl Described {
    /// That it can be given for an argument. Elements below a byte are given as the bytes that hold them, in any shape.
    pub fn check(&self, arg: &Arg) -> PyResult<()> {
        let Described { typestr, shape, .. } = self;
        let wanted = format!("argument {} is {}{:?}", arg.name, arg.dtype, arg.shape);
        if !is_of(arg.dtype, typestr) {
            return Err(PyTypeError::new_err(format!("{wanted}, and an array of type {typestr} was given")));
        }
        let fits = if arg.dtype.bits() < 8 {
            shape.iter().product::<usize>() as u64 == arg.bytes
        } else {
            arg.takes_shape(shape)
        };
        if !fits {
            return Err(PyValueError::new_err(format!("{wanted}, and an array of shape {shape:?} was given")));
        }
        if !self.packed {
            return Err(PyValueError::new_err(format!("{wanted}, and an array that is not contiguous was given")));
        }
        if self.read_only && arg.access != Access::Read {
            return Err(PyValueError::new_err(format!("{wanted} and is written, and a read-only array was given")));
        }
        Ok(())
    }
}

/// Runs the kernels on the simulator.
pub fn simulate(kernels: &Kernels, arrays: &[Bound<'_, PyAny>]) -> PyResult<()> {
    let mut given = Vec::new();
    for (arg, array) in kernels.args.iter().zip(arrays) {
        let found = described(array, "__array_interface__").map_err(|_| {
            let kind = array.get_type().name().map_or_else(|_| String::from("?"), |name| name.to_string());
            let takes = "numpy arrays, and arrays with __dlpack__ or __cuda_array_interface__ are taken";
            PyTypeError::new_err(format!("argument {} is no array but a {kind}: {takes}", arg.name))
        })?;
        found.check(arg)?;
        given.push(found);
    }
    let mut values: Vec<Array> = Vec::new();
    for (arg, found) in kernels.args.iter().zip(&given) {
        let shape = arg.shape.iter().map(|extent| *extent as usize).collect();
        // SAFETY: the interpreter lock is held and the caller holds the array, which has as many bytes as its shape says.
        let bytes = unsafe { bytes_at(found.address, arg.bytes as usize) }.to_vec();
        values.push(Array { dtype: arg.dtype, shape, bytes });
    }
    kernels.check_values(&values).and_then(|()| warploom::simulate(kernels, &mut values)).map_err(|e| raised(&e))?;
    for ((arg, found), value) in
        kernels.args.iter().zip(&given).zip(&values).filter(|((arg, _), _)| arg.access != Access::Read)
    {
        // SAFETY: as above; the array may be written, and the view of before is gone.
        unsafe { bytes_at(found.address, arg.bytes as usize) }.copy_from_slice(&value.bytes);
    }
    Ok(())
}

/// # Safety
/// There must be so many bytes at the address, which nothing else uses while the slice lives.
unsafe fn bytes_at<'a>(address: usize, bytes: usize) -> &'a mut [u8] {
    match bytes {
        0 => &mut [],
        // SAFETY: the caller vouches for it.
        _ => unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(address), bytes) },
    }
}
