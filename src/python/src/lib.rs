//! warploom for Python: `compile` and `gemm` make [`Kernels`], which are called with numpy arrays (they run on the simulator) or with device
//! arrays of any library (they run on the GPU, on a stream of the caller's).

mod device;
mod error;
mod host;

use device::Given;
use error::raised;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use warploom::kernel::Access;
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

    /// What a call takes, in order: (name, type, shape, "read", "write" or "read_write").
    #[getter]
    fn arguments(&self) -> Vec<(String, String, Vec<i64>, &'static str)> {
        let access = |access| match access {
            Access::Read => "read",
            Access::Write => "write",
            _ => "read_write",
        };
        let args = self.kernels.args.iter();
        args.map(|arg| (arg.name.clone(), arg.dtype.to_string(), arg.shape.clone(), access(arg.access))).collect()
    }

    /// Runs the kernels. `stream` is the CUDA stream of a launch as an address (`torch.cuda.current_stream().cuda_stream`); 0 is the
    /// default stream. A launch does not wait for the kernels.
    #[pyo3(signature = (*arrays, stream = 0))]
    fn __call__(&self, arrays: &Bound<'_, PyTuple>, stream: usize) -> PyResult<()> {
        let arrays: Vec<Bound<'_, PyAny>> = arrays.iter().collect();
        if arrays.len() != self.kernels.args.len() {
            let names: Vec<&str> = self.kernels.args.iter().map(|arg| arg.name.as_str()).collect();
            let message =
                format!("{} takes {}, and {} arrays were given", self.kernels.name, names.join(", "), arrays.len());
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        }
        let given: Vec<Given> = arrays.iter().map(Given::of).collect();
        if given.iter().any(Given::is_on_device) {
            device::launch(self, &arrays, given, stream)
        } else {
            host::simulate(&self.kernels, &arrays)
        }
    }

    fn __repr__(&self) -> String {
        let args = self.kernels.args.iter().map(|arg| format!("{} {}{:?}", arg.name, arg.dtype, arg.shape));
        format!(
            "<warploom.Kernels {}({}) for {}>",
            self.kernels.name,
            args.collect::<Vec<_>>().join(", "),
            self.kernels.target
        )
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
        let program = Arc::new(warploom::Device::open(ordinal)?.load(&self.kernels)?);
        loaded.insert(key, program.clone());
        Ok(program)
    }
}

impl Kernels {
    /// The number of the device whose memory is at an address.
    fn ordinal_of(&self, address: u64) -> warploom::Result<u32> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let known = loaded.values().map(|program| program.device()).find(|device| !device.is_lost()).cloned();
        drop(loaded);
        match known {
            Some(device) => device.ordinal_of(address),
            None => warploom::Device::open(0)?.ordinal_of(address),
        }
    }
}

/// Compiles the text of a schedule: a program, a target and steps.
#[pyfunction]
fn compile(py: Python<'_>, text: &str) -> PyResult<Kernels> {
    let compiled = py.detach(|| {
        let schedule: Schedule = text.parse()?;
        let kernels = warploom::compile(&schedule)?;
        Ok((kernels, schedule.resolved()?.to_string()))
    });
    let (kernels, schedule) = compiled.map_err(|error| raised(&error))?;
    Ok(Kernels { kernels, schedule, loaded: Mutex::default() })
}

/// Kernels of a matrix product with recommended steps: C[m, n] = A B. `dtype` is the type of the inputs (`f16`: sums in f32,
/// C in f16) or has those of the accumulators and of C, too (`f16>f32>f32`); `layout` has a letter for A and one for B, N as it is and T transposed.
#[pyfunction]
#[pyo3(signature = (m, n, k, dtype = "f16", layout = "NN", target = "sm_90a"))]
fn gemm(py: Python<'_>, m: u64, n: u64, k: u64, dtype: &str, layout: &str, target: &str) -> PyResult<Kernels> {
    // In a program's line one type is that of the sums, too.
    let of_inputs = |inputs| {
        let gemm = Gemm::new(1, 1, 1).of(inputs);
        format!("{}>{}>{}", gemm.spec().a, gemm.spec().acc, gemm.spec().out)
    };
    let types = DType::parse(dtype).map_or_else(|| dtype.to_string(), of_inputs);
    compile(py, &format!("gemm {m}x{n}x{k} {types} {layout}\ntarget {target}\nrecommend\n"))
}

/// Compiles scheduled loop nests to PTX, and runs them on the simulator or on a GPU.
#[pymodule]
#[pyo3(name = "warploom")]
fn warploom_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Kernels>()?;
    module.add("Error", module.py().get_type::<error::Error>())?;
    module.add_function(wrap_pyfunction!(compile, module)?)?;
    module.add_function(wrap_pyfunction!(gemm, module)?)
}
