//! Host arrays by numpy's `__array_interface__`: the simulator runs the kernels on them.

use crate::Choose;
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
    /// That it has the type of an argument and no gaps.
    pub fn check_type(&self, kernels: &Kernels, arg: &Arg) -> PyResult<()> {
        let wanted = || format!("argument {} is {}", arg.name, crate::words(kernels, arg));
        if !is_of(arg.dtype, &self.typestr) {
            let message = format!("{}, and an array of type {} was given", wanted(), self.typestr);
            return Err(PyTypeError::new_err(message));
        }
        if !self.packed {
            let message = format!("{}, and an array that is not contiguous was given", wanted());
            return Err(PyValueError::new_err(message));
        }
        Ok(())
    }

    /// The extents in elements of an array for an argument. Elements below a byte are given as the bytes that hold them, in any shape: those
    /// of the argument with as many rows as the bytes hold, where its rows are a dynamic size. Bytes that hold no such array are one row.
    pub fn extents(&self, arg: &Arg) -> Vec<usize> {
        if arg.dtype.bits() >= 8 {
            return self.shape.clone();
        }
        let (bits, bytes) = (i128::from(arg.dtype.bits()), self.shape.iter().product::<usize>());
        let missing = (i128::from(arg.bytes) - bytes as i128) * 8;
        let row = bits * i128::from(arg.strides.first().copied().unwrap_or(1).max(1));
        let mut extents: Vec<i128> = arg.shape.iter().copied().map(i128::from).collect();
        match extents.first_mut() {
            Some(rows) if missing == 0 || arg.dynamic.is_some() && missing % row == 0 => *rows -= missing / row,
            _ => extents = vec![bytes as i128 * 8 / bits],
        }
        extents.iter().map(|extent| usize::try_from(*extent).unwrap_or(0)).collect()
    }

    /// That it has the shape of an argument at its sizes, and may be written where the argument is.
    fn check_shape(&self, arg: &Arg) -> PyResult<()> {
        let Described { shape, .. } = self;
        let wanted = || format!("argument {} is {}{:?}", arg.name, arg.dtype, arg.shape);
        let fits = if arg.dtype.bits() < 8 {
            shape.iter().product::<usize>() as u64 == arg.bytes
        } else {
            arg.takes_shape(shape)
        };
        if !fits {
            return Err(PyValueError::new_err(format!("{}, and an array of shape {shape:?} was given", wanted())));
        }
        if self.read_only && arg.access != Access::Read {
            return Err(PyValueError::new_err(format!("{} and is written, and a read-only array was given", wanted())));
        }
        Ok(())
    }
}

/// Runs the kernels that are chosen for the arrays on the simulator.
pub fn simulate(kernels: &Kernels, choose: Choose<'_, '_>, arrays: &[Bound<'_, PyAny>]) -> PyResult<()> {
    let given = all_described(kernels, arrays)?;
    let extents: Vec<Vec<usize>> = kernels.args.iter().zip(&given).map(|(arg, found)| found.extents(arg)).collect();
    let shapes: Vec<&[usize]> = extents.iter().map(Vec::as_slice).collect();
    let (chosen, sizes) = choose(&shapes).map_err(|error| raised(&error))?;
    let kernels = &chosen.kernels;
    let args: Vec<Arg> = kernels.args.iter().map(|arg| arg.at(&sizes)).collect();
    args.iter().zip(&given).try_for_each(|(arg, found)| found.check_shape(arg))?;
    let mut values: Vec<Array> = Vec::new();
    for (arg, found) in args.iter().zip(&given) {
        let shape = arg.shape.iter().map(|extent| *extent as usize).collect();
        // SAFETY: the interpreter lock is held and the caller holds the array, which has as many bytes as its shape says.
        let bytes = unsafe { bytes_at(found.address, arg.bytes as usize) }.to_vec();
        values.push(Array { dtype: arg.dtype, shape, bytes });
    }
    kernels.check_values(&values).and_then(|()| warploom::simulate(kernels, &mut values)).map_err(|e| raised(&e))?;
    for ((arg, found), value) in args.iter().zip(&given).zip(&values).filter(|((arg, _), _)| arg.access != Access::Read)
    {
        // SAFETY: as above; the array may be written, and the view of before is gone.
        unsafe { bytes_at(found.address, arg.bytes as usize) }.copy_from_slice(&value.bytes);
    }
    Ok(())
}

/// What the interface of each array says, with the types of the arguments.
fn all_described(kernels: &Kernels, arrays: &[Bound<'_, PyAny>]) -> PyResult<Vec<Described>> {
    let mut given = Vec::new();
    for (arg, array) in kernels.args.iter().zip(arrays) {
        let found = described(array, "__array_interface__").map_err(|_| {
            let kind = array.get_type().name().map_or_else(|_| String::from("?"), |name| name.to_string());
            let takes = "numpy arrays, and arrays with __dlpack__ or __cuda_array_interface__ are taken";
            PyTypeError::new_err(format!("argument {} is no array but a {kind}: {takes}", arg.name))
        })?;
        found.check_type(kernels, arg)?;
        given.push(found);
    }
    Ok(given)
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
