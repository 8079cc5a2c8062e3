//! Input data for a program, and the check of its outputs against a reference in f64.

use crate::array::Array;
use crate::error::{Code, Error, Result};
use crate::ir::{BufferId, Func, layout, visit};
use crate::loom::Schedule;
use crate::lower::lower;
use crate::reference::{self, Output, Sample};
use crate::te::{self, Known};

/// Operations up to which every element of a result is checked; beyond, some rows.
const CHECKED_OPERATIONS: f64 = 2.0 * 1024.0 * 1024.0 * 1024.0;
const SAMPLED_ROWS: usize = 64;
const CHECKED_ROWS: usize = 1 << 16;
/// Operations beyond which a row alone is as much as whole products of the size above.
const HUGE_OPERATIONS: f64 = (1u64 << 40) as f64;
const SAMPLED_OF_HUGE: usize = 16;

/// Random inputs for a program's parameters, at the largest value of each dynamic size. Outputs hold a poison pattern.
///
/// # Errors
/// A bug where a parameter has no constant shape; what arrays of the host refuse.
pub fn arguments(program: &Func, seed: u64) -> Result<Vec<Array>> {
    let written = visit::writes(&program.body);
    let one = |(n, id): (usize, &BufferId)| {
        let buffer = &program.largest(program.buffer(*id));
        // Strides leave gaps, which belong to the array: it is as long as all that the parameter spans.
        let shape = match &buffer.strides {
            Some(_) => layout::span(buffer).map(|n| vec![n]),
            None => buffer.const_shape(),
        };
        let shape = shape.and_then(|s| s.into_iter().map(|e| usize::try_from(e).ok()).collect::<Option<Vec<usize>>>());
        let Some(shape) = shape else {
            return Err(Error::bug(Code::ReferenceShape, format!("parameter {} has no constant shape", buffer.name)));
        };
        if written.contains(id) {
            return Array::poisoned(buffer.dtype, &shape);
        }
        let seed = seed.wrapping_add(n as u64);
        match buffer.values {
            Some(values) => Array::random_values(buffer.dtype, &shape, values, seed),
            None => Array::random(buffer.dtype, &shape, seed),
        }
    };
    program.params.iter().enumerate().map(one).collect()
}

/// The schedule at a size that is not too large, or as small as it becomes: sizes are halved, the largest first, while the steps still apply
/// and lower; a half that does not is rounded up to a multiple of 8, as rows that are copied need.
pub fn halved(schedule: &Schedule, too_large: &dyn Fn(&Schedule) -> bool) -> Schedule {
    let lowered = |s: &Schedule| s.scheduled().and_then(|func| lower(&func, &s.target)).is_ok();
    // What lowers at no size is run as it is scheduled.
    let whole = lowered(schedule);
    let suits = |s: &Schedule| if whole { lowered(s) } else { s.scheduled().is_ok() };
    let mut best = schedule.clone();
    while let Some(known) = Known::of(&best.program).filter(|_| too_large(&best)) {
        let mut sizes = known.sizes();
        let Some(largest) = (0..sizes.len()).max_by_key(|i| (sizes[*i], std::cmp::Reverse(*i))) else { break };
        let (own, half) = (sizes[largest], sizes[largest] / 2);
        let smaller = [half, (half + 7) / 8 * 8].into_iter().filter(|size| *size < own).find_map(|size| {
            sizes[largest] = size;
            best.resized(&sizes).ok().filter(&suits)
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => break,
        }
    }
    best
}

/// A check of a program's results against f64, computed once.
pub struct Judge {
    outputs: Vec<Output>,
}

impl Judge {
    /// Computes the references. Of a large program some rows, the first and the last among them.
    ///
    /// # Errors
    /// What [`mod@crate::reference`] cannot evaluate.
    pub fn new(program: &Func, inputs: &[Array]) -> Result<Judge> {
        let sample = match te::operations(program) {
            n if n > HUGE_OPERATIONS => Sample::Rows { count: SAMPLED_OF_HUGE, seed: 1 },
            n if n > CHECKED_OPERATIONS => Sample::Rows { count: SAMPLED_ROWS, seed: 1 },
            // Short rows cost as much as long ones: of millions, not all are computed.
            _ => Sample::Rows { count: CHECKED_ROWS, seed: 1 },
        };
        Ok(Judge { outputs: reference::outputs(program, inputs, sample)? })
    }

    /// The largest error over its bound among all outputs.
    ///
    /// # Errors
    /// Where an output has another type or shape than its reference.
    pub fn worst(&self, after: &[Array]) -> Result<f64> {
        let mut worst = 0.0f64;
        for output in &self.outputs {
            let Some(got) = after.get(output.param) else { continue };
            // NaN must not be swallowed, as f64::max would.
            let ratio = output.bound(got)?.ratio;
            worst = if ratio > worst || ratio.is_nan() { ratio } else { worst };
        }
        Ok(worst)
    }
}
