//! What a program's outputs should be, in f64, and how far from it a result may be.
//!
//! [`outputs`] evaluates a program as te writes it (each buffer defined by one block over its elements) by demand, row
//! by row; sums of products of inputs run as a blocked, threaded matrix product. With [`Sample::Rows`] only some rows
//! of each output are computed, so that results of any size can be checked in seconds.
//!
//! Two checks:
//! - [`Output::exact`]: every element is the reference rounded once to the output's type, bit for bit. For operands
//!   small enough that no sum rounds.
//! - [`Output::bound`]: every element lies within `gamma_k(u) * (|A||B|) + u_out * |C|` of the reference, computed along
//!   the program (Higham, Accuracy and Stability of Numerical Algorithms, sections 2.2, 3.1 and 4.2): each rounding
//!   adds `u` of its result, a sum of k terms in any order `gamma_(k-1)` of the sum of their magnitudes. In sums `u` is
//!   twice the unit roundoff, because tensor cores may truncate; sums of products of 8-bit floats have the wider bound of `float8`, which
//!   follows from the bits that tensor cores keep of them. The largest ratio of error to bound is returned.
//!
//! Values are f64 throughout: s64 beyond 2^53 is not exact here.

mod definition;
mod evaluate;
mod float8;
mod joint;
mod operands;
mod pair;
mod product;

use crate::array::{Array, filled, room_for};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{BufferId, Func, layout};
use definition::Definition;
use evaluate::Evaluator;
use std::collections::HashMap;

/// Which rows (leading indices of an output) are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Every row.
    All,
    /// At most so many rows, the first and the last among them, the others drawn with the seed.
    Rows {
        /// How many.
        count: usize,
        /// Which.
        seed: u64,
    },
}

/// The reference of an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Its position among the parameters.
    pub param: usize,
    /// Its name.
    pub name: String,
    /// Its type.
    pub dtype: DType,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its strides in elements.
    strides: Vec<i64>,
    /// The rows that were computed, ascending: positions in row-major order of all dimensions but the last.
    pub rows: Vec<usize>,
    /// The elements of those rows, unrounded.
    pub values: Vec<f64>,
    /// How far a result may be from each value.
    pub bounds: Vec<f64>,
}

/// The element that lies farthest from its reference, measured by its bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// Error over bound; at most 1 for a right result.
    pub ratio: f64,
    /// Its index.
    pub index: Vec<usize>,
    /// What was found.
    pub found: f64,
    /// The reference.
    pub expected: f64,
    /// How far it may be.
    pub bound: f64,
}

/// Everything that evaluating a program needs, shared by threads.
struct Program<'a> {
    func: &'a Func,
    definitions: HashMap<BufferId, Definition<'a>>,
    inputs: HashMap<BufferId, &'a Array>,
    products: HashMap<BufferId, product::Product<'a>>,
}

/// The references of a program's outputs; `args` are all parameters in order, of which only the inputs are read.
///
/// # Errors
/// `reference.arguments` where the arguments do not fit the parameters, `reference.shape` where an output has no constant shape; what
/// of a program is not as te writes it.
pub fn outputs(func: &Func, args: &[Array], sample: Sample) -> Result<Vec<Output>> {
    if !func.sizes.is_empty() {
        let shapes: Vec<&[usize]> = args.iter().map(|a| a.shape.as_slice()).collect();
        return outputs(&func.at(&func.sizes_of(&shapes)?)?, args, sample);
    }
    if args.len() != func.params.len() {
        let message = format!(
            "the program has {}, and {} were given",
            crate::error::counted(func.params.len(), "parameter"),
            crate::error::counted(args.len(), "argument")
        );
        return Err(Error::input(Code::ReferenceArguments, message));
    }
    let definitions = definition::of(func)?;
    let mut inputs = HashMap::new();
    for (id, arg) in func.params.iter().zip(args) {
        let buffer = func.buffer(*id);
        let spans = layout::span(buffer).is_some_and(|n| buffer.dtype.bytes_of(n as u64) <= arg.bytes.len() as u64);
        if !definitions.contains_key(id) {
            if arg.dtype != buffer.dtype || !spans {
                let message = format!("argument {} has not the parameter's type and size", buffer.name);
                return Err(Error::input(Code::ReferenceArguments, message));
            }
            inputs.insert(*id, arg);
        }
    }
    let operands = operands::of(func, &definitions, &inputs)?;
    let sources = product::Sources { inputs: &inputs, operands: &operands };
    let products = product::find(func, &definitions, &sources);
    let program = Program { func, definitions, inputs, products };
    let written = func.params.iter().enumerate().filter(|(_, id)| program.definitions.contains_key(id));
    written.map(|(param, id)| output(&program, param, *id, sample)).collect()
}

fn output(program: &Program<'_>, param: usize, id: BufferId, sample: Sample) -> Result<Output> {
    let buffer = program.func.buffer(id);
    let size = || Error::input(Code::ReferenceShape, format!("{} has no constant shape", buffer.name));
    let mut shape: Vec<usize> = buffer.const_shape().ok_or_else(size)?.into_iter().map(|n| n.max(0) as usize).collect();
    if shape.is_empty() {
        // A scalar is a row of one element.
        shape.push(1);
    }
    let Some((&last, leading)) = shape.split_last() else { return Err(size()) };
    let all = leading.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent)).ok_or_else(size)?;
    let rows = sample.rows(all)?;
    let (values, mut bounds) = in_threads(program, id, leading, &rows, last)?;
    bounds.iter_mut().zip(&values).for_each(|(bound, v)| *bound = pair::stored(buffer.dtype, *v, *bound));
    Ok(Output {
        param,
        name: buffer.name.clone(),
        dtype: buffer.dtype,
        strides: layout::strides(buffer).ok_or_else(size)?,
        shape,
        rows,
        values,
        bounds,
    })
}

impl Sample {
    fn rows(self, all: usize) -> Result<Vec<usize>> {
        match self {
            Sample::Rows { count, seed } if count < all => {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut rows = room_for(count.max(2))?;
                rows.extend((2..count).map(|_| rng.usize(..all)).chain([0, all - 1]));
                rows.sort_unstable();
                rows.dedup();
                Ok(rows)
            }
            _ => {
                let mut rows = room_for(all)?;
                rows.extend(0..all);
                Ok(rows)
            }
        }
    }
}

/// Rows that a thread computes at a time, where there are enough for all threads.
const GROUP: usize = 8;

type Columns = (Vec<f64>, Vec<f64>);

/// Some rows, or a segment of one, with the places of their elements in the columns.
struct Piece<'a> {
    rows: &'a [usize],
    segment: usize,
    values: &'a mut [f64],
    bounds: &'a mut [f64],
}

/// Computes rows, shared out among threads in groups, long rows in segments.
fn in_threads(program: &Program<'_>, id: BufferId, leading: &[usize], rows: &[usize], last: usize) -> Result<Columns> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let elements = rows.len().saturating_mul(last);
    let mut all: Columns = (filled(0.0, elements)?, filled(0.0, elements)?);
    let segment = evaluate::segment(program, id, last);
    let together = if segment < last { 1 } else { rows.len().div_ceil(processors).clamp(1, GROUP) };
    let (mut values, mut bounds) = (all.0.chunks_mut(together * last), all.1.chunks_mut(together * last));
    let groups = rows.chunks(together).map_while(|rows| Some((rows, values.next()?, bounds.next()?)));
    let pieces = groups.flat_map(|(rows, values, bounds)| {
        let length = if segment < last { segment } else { values.len().max(1) };
        let both = values.chunks_mut(length).zip(bounds.chunks_mut(length)).enumerate();
        both.map(move |(segment, (values, bounds))| Piece { rows, segment, values, bounds })
    });
    let threads = processors.min(elements.div_ceil(together * segment.min(last).max(1))).max(1);
    let next = std::sync::Mutex::new(pieces);
    let work = || {
        let mut evaluator = Evaluator::new(program, threads);
        while let Some(piece) = next.lock().ok().and_then(|mut pieces| pieces.next()) {
            piece.fill(&mut evaluator, id, leading)?;
        }
        Ok(())
    };
    let done: Vec<Result<()>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let lost = |_| Err(Error::bug(Code::ReferenceThread, "a thread of the reference panicked"));
        handles.into_iter().map(|h| h.join().unwrap_or_else(lost)).collect()
    });
    done.into_iter().collect::<Result<()>>().map(|()| all)
}

impl Piece<'_> {
    fn fill(self, evaluator: &mut Evaluator<'_, '_>, id: BufferId, leading: &[usize]) -> Result<()> {
        let prefixes: Vec<Vec<i64>> = self.rows.iter().map(|r| unflatten(*r, leading)).collect();
        evaluator.prepare(id, &prefixes)?;
        let (mut values, mut bounds) = (self.values.iter_mut(), self.bounds.iter_mut());
        for prefix in &prefixes {
            let row = evaluator.row(id, prefix, self.segment)?;
            for (((v, e), value), bound) in row.v.iter().zip(&row.e).zip(&mut values).zip(&mut bounds) {
                (*value, *bound) = (*v, *e);
            }
        }
        Ok(())
    }
}

fn unflatten(mut flat: usize, shape: &[usize]) -> Vec<i64> {
    let mut index = vec![0; shape.len()];
    for (i, extent) in index.iter_mut().zip(shape).rev() {
        *i = (flat % extent) as i64;
        flat /= extent;
    }
    index
}

impl Output {
    /// The index and the place in an array of each computed element, in the order of `values`.
    fn elements(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (last, leading) = self.shape.split_last().map_or((0, &[][..]), |(l, rest)| (*l, rest));
        let stride = self.strides.last().copied().unwrap_or(1);
        self.rows.iter().enumerate().flat_map(move |(n, row)| {
            let base: i64 = unflatten(*row, leading).iter().zip(&self.strides).map(|(i, s)| i * s).sum();
            (0..last).map(move |j| (n * last + j, *row, (base + j as i64 * stride) as usize))
        })
    }

    fn index(&self, row: usize, n: usize) -> Vec<usize> {
        let (last, leading) = self.shape.split_last().map_or((1, &[][..]), |(l, rest)| (*l, rest));
        let mut index: Vec<usize> = unflatten(row, leading).into_iter().map(|i| i as usize).collect();
        index.push(n % last.max(1));
        index
    }

    fn check_size(&self, got: &Array) -> Result<()> {
        let needed = self.elements().map(|(_, _, at)| at + 1).max().unwrap_or(0) as u64;
        if got.dtype == self.dtype && got.bytes.len() as u64 >= self.dtype.bytes_of(needed) {
            return Ok(());
        }
        Err(Error::input(
            Code::ReferenceArguments,
            format!("the result {} has not its parameter's type and size", self.name),
        ))
    }

    /// Demands that every computed element of a result is the reference, rounded once.
    ///
    /// # Errors
    /// `reference.arguments` where the result has another type or size; `reference.exact` with the first element that differs.
    pub fn exact(&self, got: &Array) -> Result<()> {
        self.check_size(got)?;
        let mut rounded = Array::zeros(self.dtype, &[1])?;
        for (n, row, at) in self.elements() {
            rounded.set(0, self.values[n]);
            let (expected, found) = (rounded.get(0), got.get(at));
            if found != expected && !(found.is_nan() && expected.is_nan()) {
                let index = self.index(row, n);
                let message = format!("{}{index:?} is {found}, should be {expected}", self.name);
                return Err(Error::bug(Code::ReferenceExact, message));
            }
        }
        Ok(())
    }

    /// Demands that every computed element of a result lies within its bound, and returns the worst one.
    ///
    /// # Errors
    /// `reference.arguments` where the result has another type or size; `reference.bound` with the worst element.
    pub fn bound(&self, got: &Array) -> Result<Worst> {
        self.check_size(got)?;
        let mut worst = Worst { ratio: 0.0, index: Vec::new(), found: 0.0, expected: 0.0, bound: 0.0 };
        let mut element = Array::zeros(self.dtype, &[1])?;
        for (n, row, at) in self.elements() {
            let (expected, bound, found) = (self.values[n], self.bounds[n], got.get(at));
            let ratio = match ratio(found, expected, bound) {
                f64::INFINITY if overflows(&mut element, expected, bound, found) => 0.0,
                ratio => ratio,
            };
            if ratio > worst.ratio || worst.index.is_empty() {
                worst = Worst { ratio, index: self.index(row, n), found, expected, bound };
            }
        }
        if worst.ratio <= 1.0 {
            return Ok(worst);
        }
        let Worst { ratio, index, found, expected, bound } = worst;
        let message = format!(
            "{}{index:?} is {found}, should be {expected} within {bound:.3e}: {ratio:.3} times the bound",
            self.name
        );
        Err(Error::bug(Code::ReferenceBound, message))
    }
}

/// Whether a value within the bound is too large for the type of `element`, which then holds what was found.
fn overflows(element: &mut Array, expected: f64, bound: f64, found: f64) -> bool {
    element.set(0, expected + bound.copysign(expected));
    let largest = element.get(0);
    expected.is_finite() && !largest.is_finite() && (largest == found || (largest.is_nan() && found.is_nan()))
}

/// Error over bound; infinite for a wrong special value, 0 for an equal one.
fn ratio(found: f64, expected: f64, bound: f64) -> f64 {
    if found == expected || (found.is_nan() && expected.is_nan()) {
        0.0
    } else if found.is_finite() && expected.is_finite() && bound > 0.0 {
        (found - expected).abs() / bound
    } else if bound == f64::INFINITY {
        1.0
    } else {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests;
