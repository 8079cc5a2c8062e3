//! Sums of products of inputs, some of which do not vary along the row: matrix products of any layout and batch, with scales of blocks,
//! blocked, in f64.

use super::definition::Definition;
use super::evaluate::Row;
use super::float8;
use super::pair;
use crate::array::{Array, filled};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, BufferId, Expr, Func, Index, IndexOp, Literal, Var, layout};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A definition of that form.
pub(super) struct Product<'a> {
    definition: Definition<'a>,
    dtype: DType,
    length: usize,
    terms: usize,
    /// The factor that is the same along the row, and the one that is not.
    fixed: Factor<'a>,
    varying: Factor<'a>,
    /// `varying` as a matrix of terms x length, by the values of the leading indices that it mentions.
    packed: Mutex<HashMap<Vec<i64>, Arc<Vec<f32>>>>,
    packed_wide: Mutex<HashMap<Vec<i64>, Arc<Vec<f64>>>>,
}

/// A product of elements of inputs: an operand, and what scales it.
struct Factor<'a> {
    parts: Vec<Part<'a>>,
}

/// An element of an input.
struct Part<'a> {
    array: &'a Array,
    flat: Index,
    /// How many neighbours along the row have one element, from every multiple of that number on.
    same: i64,
}

/// The products among the definitions.
pub(super) fn find<'a>(
    func: &'a Func,
    definitions: &HashMap<BufferId, Definition<'a>>,
    inputs: &HashMap<BufferId, &'a Array>,
) -> HashMap<BufferId, Product<'a>> {
    let product = |(id, d): (&BufferId, &Definition<'a>)| Some((*id, read(func, *id, d, inputs)?));
    definitions.iter().filter_map(product).collect()
}

fn read<'a>(
    func: &'a Func,
    id: BufferId,
    d: &Definition<'a>,
    inputs: &HashMap<BufferId, &'a Array>,
) -> Option<Product<'a>> {
    let zero = matches!(d.combine?.1, Expr::Const(_, Literal::Float(0.0) | Literal::Int(0)));
    if d.combine?.0 != BinOp::Add || !zero {
        return None;
    }
    let along = *d.spatial.last()?;
    let mut parts = Vec::new();
    parts_of(func, d.value, inputs, along, &mut parts)?;
    let (varying, fixed): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.flat.mentions(along));
    if varying.is_empty() || fixed.is_empty() {
        return None;
    }
    let [fixed, varying] = [fixed, varying].map(|parts| Factor { parts });
    let terms = d.reduce.iter().try_fold(1usize, |n, (_, e)| n.checked_mul(usize::try_from(*e).ok()?))?;
    let length = usize::try_from(*func.buffer(id).const_shape()?.last()?).ok()?;
    terms.checked_mul(length).filter(|n| *n < 1 << 31)?;
    Some(Product {
        definition: d.clone(),
        dtype: func.buffer(id).dtype,
        length,
        terms,
        fixed,
        varying,
        packed: Mutex::default(),
        packed_wide: Mutex::default(),
    })
}

/// The factors of a product of inputs, of which there are several.
fn parts_of<'a>(
    func: &'a Func,
    e: &'a Expr,
    inputs: &HashMap<BufferId, &'a Array>,
    along: Var,
    out: &mut Vec<Part<'a>>,
) -> Option<()> {
    match e {
        Expr::Bin(BinOp::Mul, a, b) => {
            parts_of(func, a, inputs, along, out)?;
            parts_of(func, b, inputs, along, out)
        }
        other => {
            out.push(part(func, other, inputs, along)?);
            Some(())
        }
    }
}

/// A load of an input that is only widened, all of whose elements lie inside.
fn part<'a>(func: &'a Func, e: &'a Expr, inputs: &HashMap<BufferId, &'a Array>, along: Var) -> Option<Part<'a>> {
    match e {
        Expr::Cast(to, a) => {
            let inner = part(func, a, inputs, along)?;
            let from = inner.array.dtype;
            let widens = match (from.is_float(), to.is_float()) {
                (true, true) => pair::unit(from) >= pair::unit(*to) && *to != DType::F16,
                (false, false) => to.bits() > from.bits(),
                _ => false,
            };
            widens.then_some(inner)
        }
        Expr::Load { buffer, indices, .. } => {
            let strides = layout::strides(func.buffer(*buffer))?;
            let flat = indices.iter().zip(strides).fold(Index::Int(0), |f, (i, s)| f + i.clone() * s);
            // Plain iterators, and quotients of them, cannot leave the buffer that was declared with their extents.
            let plain = |i: &Index| match i {
                Index::Bin(IndexOp::FloorDiv, v, by) => Some((v.as_var()?, by.as_int().filter(|by| *by > 0)?)),
                other => Some((other.as_var()?, 1)),
            };
            let plain = indices.iter().map(plain).collect::<Option<Vec<_>>>()?;
            // An iterator that occurs twice would have two strides.
            let mut of_row = plain.iter().filter(|(v, _)| *v == along);
            let same = of_row.next().map_or(1, |(_, by)| *by);
            Some(Part { array: inputs.get(buffer)?, flat, same }).filter(|_| of_row.all(|(_, by)| *by == same))
        }
        _ => None,
    }
}

impl Factor<'_> {
    fn at(&self, point: &HashMap<Var, i64>) -> f64 {
        self.parts.iter().map(|part| part.at(point)).product()
    }

    fn mentions(&self, var: Var) -> bool {
        self.parts.iter().any(|part| part.flat.mentions(var))
    }

    fn fits_f32(&self) -> bool {
        matches!(&self.parts[..], [one] if one.fits_f32())
    }
}

impl Part<'_> {
    /// The element at a point; NaN where it is outside.
    fn at(&self, point: &HashMap<Var, i64>) -> f64 {
        let flat = self.flat.eval(&|v| point.get(&v).copied()).and_then(|i| usize::try_from(i).ok());
        let bits = self.array.bytes.len() * 8 / self.array.dtype.bits() as usize;
        flat.filter(|i| *i < bits).map_or(f64::NAN, |i| self.array.get(i))
    }

    fn fits_f32(&self) -> bool {
        !matches!(self.array.dtype, DType::F64 | DType::S32 | DType::U32 | DType::S64)
    }
}

impl Product<'_> {
    /// The rows at some leading indices.
    pub fn rows(&self, prefixes: &[Vec<i64>]) -> Result<Vec<Row>> {
        let mut out = Vec::with_capacity(prefixes.len());
        let mut rest = prefixes;
        while let Some(first) = rest.first() {
            // Rows that share the varying factor go together.
            let key = self.key(first);
            let together = rest.iter().take_while(|p| self.key(p) == key).count();
            let (now, later) = rest.split_at(together);
            rest = later;
            let fixed: Vec<Vec<f64>> = now.iter().map(|p| self.fixed_row(p)).collect();
            out.extend(if self.varying.fits_f32() {
                self.multiply(&fixed, &pack(self, &self.packed, &key, |v| v as f32)?)?
            } else {
                self.multiply(&fixed, &pack(self, &self.packed_wide, &key, |v| v)?)?
            });
        }
        Ok(out)
    }

    /// The leading indices that the varying factor mentions.
    fn key(&self, prefix: &[i64]) -> Vec<i64> {
        let pairs = self.definition.spatial.iter().zip(prefix);
        pairs.map(|(var, v)| if self.varying.mentions(*var) { *v } else { 0 }).collect()
    }

    fn point(&self, prefix: &[i64]) -> HashMap<Var, i64> {
        self.definition.spatial.iter().copied().zip(prefix.iter().copied()).collect()
    }

    fn set_term(&self, point: &mut HashMap<Var, i64>, term: usize) {
        let mut rest = term as i64;
        for (var, extent) in self.definition.reduce.iter().rev() {
            point.insert(*var, rest % extent);
            rest /= extent;
        }
    }

    fn fixed_row(&self, prefix: &[i64]) -> Vec<f64> {
        let mut point = self.point(prefix);
        let element = |t| {
            self.set_term(&mut point, t);
            self.fixed.at(&point)
        };
        (0..self.terms).map(element).collect()
    }

    fn multiply<T: Copy + Into<f64>>(&self, fixed: &[Vec<f64>], varying: &[T]) -> Result<Vec<Row>> {
        let n = self.length;
        let empty = |_| Ok((filled(0.0, n)?, filled(0.0, n)?));
        let mut rows = fixed.iter().map(empty).collect::<Result<Vec<(Vec<f64>, Vec<f64>)>>>()?;
        // A strip of columns of all rows stays in the first cache while the terms go by.
        const STRIP: usize = 256;
        for start in (0..n).step_by(STRIP) {
            let end = (start + STRIP).min(n);
            for t in 0..self.terms {
                let b = &varying[t * n + start..t * n + end];
                for ((sum, mass), a) in rows.iter_mut().zip(fixed) {
                    add_scaled(&mut sum[start..end], &mut mass[start..end], a[t], b);
                }
            }
        }
        Ok(rows.into_iter().map(|(sum, mass)| self.finish(sum, &mass)).collect())
    }

    fn finish(&self, mut sum: Vec<f64>, mass: &[f64]) -> Row {
        if !self.dtype.is_float() {
            sum.iter_mut().for_each(|v| *v = pair::wrap(self.dtype, *v));
            return Row { dtype: self.dtype, e: vec![0.0; sum.len()], v: sum };
        }
        let terms = self.terms as f64;
        let parts = || self.fixed.parts.iter().chain(&self.varying.parts);
        let float8 = parts().filter(|part| part.array.dtype.is_float8()).count() > 1;
        // Each scale is one more rounding of a term.
        let scales = (parts().count() - 2) as f64;
        let gamma = pair::gamma(self.dtype, terms + scales) + if float8 { float8::gamma(terms) } else { 0.0 };
        Row { dtype: self.dtype, v: sum, e: mass.iter().map(|m| gamma * m).collect() }
    }
}

#[inline(always)]
fn add_scaled<T: Copy + Into<f64>>(sum: &mut [f64], mass: &mut [f64], a: f64, b: &[T]) {
    for ((s, m), b) in sum.iter_mut().zip(mass).zip(b) {
        let product = a * (*b).into();
        *s += product;
        *m += product.abs();
    }
}

type Packed<T> = Mutex<HashMap<Vec<i64>, Arc<Vec<T>>>>;

/// The varying factor at some leading indices, made once.
fn pack<T>(p: &Product<'_>, packed: &Packed<T>, key: &[i64], convert: impl Fn(f64) -> T + Sync) -> Result<Arc<Vec<T>>>
where
    T: Copy + Default + Send,
{
    let poisoned = |_| Error::bug(Code::ReferenceThread, "a thread of the reference panicked");
    let mut packed = packed.lock().map_err(poisoned)?;
    if let Some(found) = packed.get(key) {
        return Ok(found.clone());
    }
    let mut point = p.point(key);
    let Some(along) = p.definition.spatial.last().copied() else {
        return Err(Error::bug(Code::ReferenceForm, "a product without indices"));
    };
    let mut row = |t: usize| {
        p.set_term(&mut point, t);
        // A flat index is linear in the elements along the row that differ: two of them give its stride.
        let mut of = |part: &Part| {
            let mut place = |at: i64| {
                point.insert(along, at);
                part.flat.eval(&|v| point.get(&v).copied()).unwrap_or(0)
            };
            let start = place(0);
            (start, place(part.same) - start)
        };
        p.varying.parts.iter().map(&mut of).collect()
    };
    let rows: Vec<Vec<(i64, i64)>> = (0..p.terms).map(&mut row).collect();
    let element = |row: &Vec<(i64, i64)>, j: usize| {
        let value = |(part, (start, stride)): (&Part, &(i64, i64))| {
            part.array.get((start + j as i64 / part.same * stride) as usize)
        };
        convert(p.varying.parts.iter().zip(row).map(value).product())
    };
    let mut matrix = filled(T::default(), p.terms * p.length)?;
    fill(&mut matrix, &rows, p.length, &element);
    // Batches come in order: what came long before is not asked for again.
    if packed.len() >= 4 {
        packed.clear();
    }
    let matrix = Arc::new(matrix);
    packed.insert(key.to_vec(), matrix.clone());
    Ok(matrix)
}

/// Fills a matrix of so many columns, whose rows begin in an array somewhere and go on in strides, by all threads. Squares
/// at a time: the elements of a column may be neighbours in the array.
fn fill<T: Send, R: Sync>(matrix: &mut [T], rows: &[R], columns: usize, element: &(impl Fn(&R, usize) -> T + Sync)) {
    const SQUARE: usize = 64;
    let square = |rows: &[R], part: &mut [T]| {
        for from in (0..columns).step_by(SQUARE) {
            let to = (from + SQUARE).min(columns);
            for (line, row) in part.chunks_mut(columns).zip(rows) {
                line[from..to].iter_mut().zip(from..).for_each(|(place, j)| *place = element(row, j));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = matrix.chunks_mut((SQUARE * columns).max(1)).zip(rows.chunks(SQUARE));
    if threads == 1 || matrix_is_small(rows, columns) {
        return parts.for_each(|(part, rows)| square(rows, part));
    }
    let next = Mutex::new(parts);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((part, rows)) = next.lock().ok().and_then(|mut parts| parts.next()) {
                    square(rows, part);
                }
            });
        }
    });
}

/// Whether threads would take longer to start than to work.
fn matrix_is_small<R>(rows: &[R], columns: usize) -> bool {
    rows.len() * columns < 1 << 18
}
