//! warploom for Python: `compile` and `gemm` make [`Kernels`], which are called with numpy arrays (they run on the simulator) or with device
//! arrays of any library (they run on the GPU, on a stream of the caller's).

mod device;
mod error;
mod host;
mod ranges;

use device::Given;
use error::raised_in;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyRange, PyTuple};
use ranges::Ranges;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use warploom::artifact::Cache;
use warploom::build;
use warploom::kernel::{Access, Arg, Size};
use warploom::runtime::Program;
use warploom::{DType, Gemm, Schedule};

/// Compiled kernels. A call takes the arguments of the program, in order: numpy arrays run on the simulator, device arrays (of PyTorch, CuPy
/// or any library with `__dlpack__` or `__cuda_array_interface__`) on their device, on `stream`. Outputs are written in place.
#[pyclass(frozen, module = "warploom")]
struct Kernels {
    kernels: warploom::Kernels,
    schedule: String,
    /// The program on each device; with workspace on each stream, because launches that share workspace must not overlap.
    loaded: Mutex<BTreeMap<(u32, usize), Arc<Program>>>,
}

#[pymethods]
impl Kernels {
    /// The PTX of the module.
    #[getter]
    fn ptx(&self) -> &str {
        self.kernels.ptx()
    }

    /// The name of the program.
    #[getter]
    fn name(&self) -> &str {
        &self.kernels.name
    }

    /// The chip that the kernels are compiled for, such as `sm_90a`.
    #[getter]
    fn target(&self) -> &str {
        &self.kernels.target
    }

    /// The schedule, with the choices that the compiler made in it.
    #[getter]
    fn schedule(&self) -> &str {
        &self.schedule
    }

    /// What a call takes, in order: (name, type, shape, "read", "write" or "read_write"). A dynamic extent is the name of its size.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Vec<Argument<'py>>> {
        let access = |access| match access {
            Access::Read => "read",
            Access::Write => "write",
            _ => "read_write",
        };
        let one = |arg: &Arg| {
            let mut shape = arg.shape.iter().map(|n| n.into_bound_py_any(py)).collect::<PyResult<Vec<_>>>()?;
            if let (Some(size), Some(first)) = (arg.dynamic.and_then(|n| self.kernels.sizes.get(n)), shape.first_mut())
            {
                *first = size.name.as_str().into_bound_py_any(py)?;
            }
            Ok((arg.name.clone(), arg.dtype.to_string(), shape, access(arg.access)))
        };
        self.kernels.args.iter().map(one).collect()
    }

    /// The values that each dynamic size can have: `{"M": range(1, 8193)}`. A call reads the sizes off its arrays.
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values_of(py, &self.kernels.sizes)
    }

    /// Runs the kernels. `stream` is the CUDA stream of a launch as an address (`torch.cuda.current_stream().cuda_stream`); 0 is the
    /// default stream. A launch does not wait for the kernels.
    #[pyo3(signature = (*arrays, stream = 0))]
    fn __call__(&self, arrays: &Bound<'_, PyTuple>, stream: usize) -> PyResult<()> {
        let choose = |shapes: &[&[usize]]| Ok((self, self.kernels.sizes_of(shapes)?));
        call(&self.kernels, &choose, arrays, stream)
    }

    fn __repr__(&self) -> String {
        shown("Kernels", &self.kernels)
    }
}

/// An argument for Python: its name, type, shape and access.
type Argument<'py> = (String, String, Vec<Bound<'py, PyAny>>, &'static str);

/// The values of each size as a `range`.
fn values_of<'py>(py: Python<'py>, sizes: &[Size]) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for size in sizes {
        let first = (size.low + size.by - 1) / size.by * size.by;
        let values = PyRange::new_with_step(py, first as isize, size.high as isize + 1, size.by as isize)?;
        out.set_item(&size.name, values)?;
    }
    Ok(out)
}

/// `f16[1..=8192, 4096]`
fn words(kernels: &warploom::Kernels, arg: &Arg) -> String {
    format!("{}[{}]", arg.dtype, kernels.extents(arg).join(", "))
}

/// `<warploom.Kernels gemm(A f16[1..=64, 64], ..) for sm_80>`
fn shown(class: &str, kernels: &warploom::Kernels) -> String {
    let args = kernels.args.iter().map(|arg| format!("{} {}", arg.name, words(kernels, arg)));
    let args = args.collect::<Vec<_>>().join(", ");
    format!("<warploom.{class} {}({args}) for {}>", kernels.name, kernels.target)
}

/// Finds the kernels for arrays of these shapes, and the value of each dynamic size.
type Choose<'a, 'k> = &'a dyn Fn(&[&[usize]]) -> warploom::Result<(&'k Kernels, Vec<i64>)>;

/// Runs the kernels that are chosen for the shapes of the arrays: on the device of the arrays, or on the simulator. `kernels` has the arguments
/// of all that can be chosen, and the values of the sizes.
fn call(
    kernels: &warploom::Kernels,
    choose: Choose<'_, '_>,
    arrays: &Bound<'_, PyTuple>,
    stream: usize,
) -> PyResult<()> {
    let arrays: Vec<Bound<'_, PyAny>> = arrays.iter().collect();
    if arrays.len() != kernels.args.len() {
        let names: Vec<&str> = kernels.args.iter().map(|arg| arg.name.as_str()).collect();
        let message = format!("{} takes {}, and {} arrays were given", kernels.name, names.join(", "), arrays.len());
        return Err(PyTypeError::new_err(message));
    }
    let given: Vec<Given> = arrays.iter().map(Given::of).collect();
    if given.iter().any(Given::is_on_device) {
        device::launch(kernels, choose, &arrays, given, stream)
    } else {
        host::simulate(kernels, choose, &arrays)
    }
}

impl Kernels {
    /// The program on a device for launches on a stream, loaded at the first call.
    fn on(&self, ordinal: u32, stream: usize) -> warploom::Result<Arc<Program>> {
        let key = (ordinal, if self.kernels.workspace.is_empty() { 0 } else { stream });
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = loaded.get(&key).filter(|program| !program.device().is_lost()) {
            return Ok(program.clone());
        }
        let program = Arc::new(device::opened(ordinal)?.load(&self.kernels)?);
        loaded.insert(key, program.clone());
        Ok(program)
    }
}

/// The cache of compiled kernels that the command line uses. Where it cannot be used a warning says why, and kernels are compiled without it.
fn user_cache(py: Python<'_>) -> PyResult<Option<Cache>> {
    build::user_cache().or_else(|error| {
        let text = CString::new(format!("kernels are compiled without a cache: {error}")).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1).map(|()| None)
    })
}

/// Compiles the text of a schedule: a program, a target and steps. The kernels come from the cache where the text was compiled before: from
/// the folder that WARPLOOM_CACHE names, else from `~/.cache/warploom`; WARPLOOM_CACHE=off is none.
#[pyfunction]
fn compile(py: Python<'_>, text: &str) -> PyResult<Kernels> {
    let cache = user_cache(py)?;
    let compiled = py.detach(|| {
        let schedule: Schedule = text.parse()?;
        let kernels = match &cache {
            Some(cache) => warploom::compile_cached(&schedule, cache, None)?,
            None => warploom::compile(&schedule)?,
        };
        Ok((kernels, schedule.resolved()?.to_string()))
    });
    let (kernels, schedule) = compiled.map_err(|error| raised_in(&error, text))?;
    Ok(Kernels { kernels, schedule, loaded: Mutex::default() })
}

/// Kernels of a matrix product with recommended steps: C[m, n] = A B. `dtype` is the type of the inputs (`f16`: sums in f32,
/// C in f16) or has those of the accumulators and of C, too (`f16>f32>f32`); `layout` has a letter for A and one for B, N as it is and T transposed.
/// `m` is a number of rows, or a range of them as a text, `"1..=8192"`: the kernels take A and C with each number of rows in the range.
/// With `ranges` the range is divided into so many parts at most, each with kernels of its own.
#[pyfunction]
#[pyo3(signature = (m, n, k, dtype = "f16", layout = "NN", target = "sm_90a", ranges = None))]
#[allow(clippy::too_many_arguments)]
fn gemm(
    py: Python<'_>,
    m: &Bound<'_, PyAny>,
    n: u64,
    k: u64,
    dtype: &str,
    layout: &str,
    target: &str,
    ranges: Option<i64>,
) -> PyResult<Py<PyAny>> {
    let m = rows(m)?;
    // In a program's line one type is that of the sums, too.
    let of_inputs = |inputs| {
        let gemm = Gemm::new(1, 1, 1).of(inputs);
        format!("{}>{}>{}", gemm.spec().a, gemm.spec().acc, gemm.spec().out)
    };
    let types = DType::parse(dtype).map_or_else(|| dtype.to_string(), of_inputs);
    let program = format!("gemm {m}x{n}x{k} {types} {layout}\ntarget {target}\n");
    match ranges {
        Some(most) => Ranges::of(py, &program, most)?.into_py_any(py),
        None => compile(py, &format!("{program}recommend\n"))?.into_py_any(py),
    }
}

/// The rows of a product in words: a number, or a range.
fn rows(m: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(range) = m.extract::<String>() {
        return Ok(range);
    }
    m.extract::<i64>().map(|rows| rows.to_string()).map_err(|_| {
        let kind = m.get_type().name().map_or_else(|_| String::from("?"), |name| name.to_string());
        PyTypeError::new_err(format!(
            "m is a number of rows or a range of them, such as \"1..=8192\", and a {kind} was given"
        ))
    })
}

/// Compiles scheduled loop nests to PTX, and runs them on the simulator or on a GPU.
#[pymodule]
#[pyo3(name = "warploom")]
fn warploom_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Kernels>()?;
    module.add_class::<Ranges>()?;
    module.add("Error", module.py().get_type::<error::Error>())?;
    module.add_function(wrap_pyfunction!(compile, module)?)?;
    module.add_function(wrap_pyfunction!(gemm, module)?)
}
