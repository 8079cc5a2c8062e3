//! Kernels for the ranges of a dynamic M: a call runs those whose range has the M of its arrays.

use crate::error::{raised, raised_in};
use crate::{Kernels, call, shown, user_cache, values_of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Mutex;
use warploom::build::Builder;
use warploom::gemm::{MOST_RANGES, recommend_ranges_for};
use warploom::{Error, Schedule};

/// Kernels of one product for ranges of M that follow one another. A call is one of [`Kernels`], at the M of the arrays.
#[pyclass(frozen, module = "warploom")]
pub struct Ranges {
    /// One for each range, at least one, the least M first.
    all: Vec<Py<Kernels>>,
    /// The first, with the whole range of M and without code.
    whole: warploom::Kernels,
}

#[pymethods]
impl Ranges {
    /// The kernels of each range, the least M first.
    #[getter]
    fn kernels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.all)
    }

    /// The values that M can have: `{"M": range(1, 8193)}`.
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values_of(py, &self.whole.sizes)
    }

    /// Runs the kernels whose range has the M of the arrays, as `Kernels` are called.
    #[pyo3(signature = (*arrays, stream = 0))]
    fn __call__(&self, arrays: &Bound<'_, PyTuple>, stream: usize) -> PyResult<()> {
        let choose = |shapes: &[&[usize]]| {
            let m = self.whole.sizes_of(shapes)?;
            let all = self.all.iter().map(Py::get);
            let taking = all.into_iter().find(|one| one.kernels.sizes.iter().zip(&m).all(|(size, m)| size.takes(*m)));
            taking.map(|one| (one, m)).ok_or_else(|| gap(shapes))
        };
        call(&self.whole, &choose, arrays, stream)
    }

    fn __repr__(&self) -> String {
        shown("Ranges", &self.whole)
    }
}

/// The ranges follow one another, so this is no input's fault.
fn gap(shapes: &[&[usize]]) -> Error {
    Error::bug(warploom::error::Code::SizeValue, format!("no range of M has arrays of {shapes:?}"))
}

impl Ranges {
    /// At most `most` ranges of the M of a program, each with the steps that lose least in it by the cost model.
    pub fn of(py: Python<'_>, program: &str, most: i64) -> PyResult<Ranges> {
        let Some(most) = usize::try_from(most).ok().filter(|most| (1..=MOST_RANGES).contains(most)) else {
            let message = format!("ranges is a number from 1 to {MOST_RANGES}, and {most} was given");
            return Err(PyValueError::new_err(message));
        };
        let cache = user_cache(py)?;
        let described = |error: Error| raised_in(&error, program);
        let schedule: Schedule = program.parse().map_err(described)?;
        if schedule.program.sizes.is_empty() {
            let message = "ranges divides a range of m, and m is a number: give m as \"1..=8192\", or no ranges";
            return Err(PyValueError::new_err(message));
        }
        let built = py.detach(|| {
            let mut builder = Builder::new();
            for range in recommend_ranges_for(&schedule.program, &schedule.target, most)? {
                builder.schedule(format!("M {}..={}", range.low, range.high), range.schedule);
            }
            builder.cache(cache).build(&|_| ())
        });
        let variants = built.map_err(|error| raised(&error))?.variants;
        let (Some(first), Some(last)) = (variants.first(), variants.last()) else {
            return Err(PyValueError::new_err("the product has no range"));
        };
        let mut whole = first.kernels.clone();
        whole.text.clear();
        for (size, last) in whole.sizes.iter_mut().zip(&last.kernels.sizes) {
            size.high = last.high;
        }
        let kernels = variants
            .into_iter()
            .map(|one| Py::new(py, Kernels { kernels: one.kernels, schedule: one.schedule, loaded: Mutex::default() }));
        Ok(Ranges { all: kernels.collect::<PyResult<_>>()?, whole })
    }
}
