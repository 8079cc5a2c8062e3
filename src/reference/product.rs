//! Sums of products of inputs and of computed operands, some of which do not vary along the row: matrix products of any layout and
//! batch, with scales of blocks, blocked, in f64.

use super::definition::Definition;
use super::evaluate::Row;
use super::float8;
use super::operands::Operand;
use super::pair;
use crate::array::{Array, filled};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, BufferId, Expr, Func, Index, IndexOp, Literal, Var, layout};
use std::collections::{BTreeSet, HashMap};
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
    /// The magnitudes of the varying factor plus its error bounds; see [`Part::weight`].
    packed_weights: Mutex<HashMap<Vec<i64>, Arc<Vec<f32>>>>,
}

/// A product of elements of inputs: an operand, and what scales it.
struct Factor<'a> {
    parts: Vec<Part<'a>>,
}

/// An element of an input, or of a computed operand.
struct Part<'a> {
    array: &'a Array,
    /// The error bounds of a computed operand's elements.
    errors: Option<&'a Array>,
    /// The type that the program gives it.
    dtype: DType,
    flat: Index,
    /// How many neighbours along the row have one element, from every multiple of that number on.
    same: i64,
}

/// The products among the definitions.
pub(super) fn find<'a>(
    func: &'a Func,
    definitions: &HashMap<BufferId, Definition<'a>>,
    sources: &Sources<'_, 'a>,
) -> HashMap<BufferId, Product<'a>> {
    let product = |(id, d): (&BufferId, &Definition<'a>)| Some((*id, read(func, *id, d, sources)?));
    definitions.iter().filter_map(product).collect()
}

/// The arrays of inputs and of computed operands.
pub(super) struct Sources<'s, 'a> {
    pub inputs: &'s HashMap<BufferId, &'a Array>,
    pub operands: &'a HashMap<BufferId, Operand>,
}

/// The buffers among the factors of sums of products that the program itself defines.
pub(super) fn factors(definitions: &HashMap<BufferId, Definition<'_>>) -> BTreeSet<BufferId> {
    let mut out = BTreeSet::new();
    for d in definitions.values().filter(|d| d.combine.is_some_and(|(op, _)| op == BinOp::Add)) {
        loads(d.value, &mut out);
    }
    out.into_iter().filter(|id| definitions.contains_key(id)).collect()
}

/// The buffers that the factors of a product load.
fn loads(e: &Expr, out: &mut BTreeSet<BufferId>) {
    match e {
        Expr::Bin(BinOp::Mul, a, b) => [a, b].into_iter().for_each(|e| loads(e, out)),
        Expr::Cast(_, a) => loads(a, out),
        Expr::Load { buffer, .. } => {
            out.insert(*buffer);
        }
        _ => {}
    }
}

fn read<'a>(func: &'a Func, id: BufferId, d: &Definition<'a>, sources: &Sources<'_, 'a>) -> Option<Product<'a>> {
    let zero = matches!(d.combine?.1, Expr::Const(_, Literal::Float(0.0) | Literal::Int(0)));
    if d.combine?.0 != BinOp::Add || !zero {
        return None;
    }
    let along = *d.spatial.last()?;
    let mut parts = Vec::new();
    parts_of(func, d.value, sources, along, &mut parts)?;
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
        packed_weights: Mutex::default(),
    })
}

/// The factors of a product of inputs, of which there are several.
fn parts_of<'a>(
    func: &'a Func,
    e: &'a Expr,
    sources: &Sources<'_, 'a>,
    along: Var,
    out: &mut Vec<Part<'a>>,
) -> Option<()> {
    match e {
        Expr::Bin(BinOp::Mul, a, b) => {
            parts_of(func, a, sources, along, out)?;
            parts_of(func, b, sources, along, out)
        }
        other => {
            out.push(part(func, other, sources, along)?);
            Some(())
        }
    }
}

/// A load of an input or operand that is only widened, all of whose elements lie inside.
fn part<'a>(func: &'a Func, e: &'a Expr, sources: &Sources<'_, 'a>, along: Var) -> Option<Part<'a>> {
    match e {
        Expr::Cast(to, a) => {
            let inner = part(func, a, sources, along)?;
            let from = inner.dtype;
            let widens = match (from.is_float(), to.is_float()) {
                (true, true) => pair::unit(from) >= pair::unit(*to) && *to != DType::F16,
                (false, false) => to.bits() > from.bits(),
                _ => false,
            };
            widens.then_some(inner)
        }
        Expr::Load { buffer, indices, .. } => {
            let of = func.buffer(*buffer);
            let (array, errors, strides) = match (sources.inputs.get(buffer), sources.operands.get(buffer)) {
                (Some(input), _) => (*input, None, layout::strides(of)?),
                (None, Some(o)) => (&o.values, Some(&o.errors), o.strides.clone()),
                (None, None) => return None,
            };
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
            let part = Part { array, errors, dtype: of.dtype, flat, same };
            Some(part).filter(|_| of_row.all(|(_, by)| *by == same))
        }
        _ => None,
    }
}

impl Factor<'_> {
    fn at(&self, point: &HashMap<Var, i64>) -> f64 {
        self.parts.iter().map(|part| part.at(point)).product()
    }

    /// The product of the weights of the parts.
    fn weight_at(&self, point: &HashMap<Var, i64>, gamma: f64) -> f64 {
        self.parts.iter().map(|part| part.place(point).map_or(f64::NAN, |i| part.weight(i, gamma))).product()
    }

    fn mentions(&self, var: Var) -> bool {
        self.parts.iter().any(|part| part.flat.mentions(var))
    }

    /// Whether it is exact: no computed operand.
    fn is_exact(&self) -> bool {
        self.parts.iter().all(|part| part.errors.is_none())
    }

    fn fits_f32(&self) -> bool {
        matches!(&self.parts[..], [one] if one.fits_f32())
    }
}

impl Part<'_> {
    /// The element at a point; NaN where it is outside.
    fn at(&self, point: &HashMap<Var, i64>) -> f64 {
        self.place(point).map_or(f64::NAN, |i| self.array.get(i))
    }

    /// The place of the element at a point, where it is inside.
    fn place(&self, point: &HashMap<Var, i64>) -> Option<usize> {
        let flat = self.flat.eval(&|v| point.get(&v).copied()).and_then(|i| usize::try_from(i).ok());
        let elements = self.array.bytes.len() * 8 / self.array.dtype.bits() as usize;
        flat.filter(|i| *i < elements)
    }

    /// |x| + e/gamma for an element x with error bound e. gamma (|a| + e_a/gamma)(|b| + e_b/gamma) bounds the rounding error of the sum, gamma |a||b|,
    /// and the errors of both operands, |a| e_b + |b| e_a + e_a e_b.
    fn weight(&self, at: usize, gamma: f64) -> f64 {
        self.array.get(at).abs() + self.errors.map_or(0.0, |errors| errors.get(at) / gamma)
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
            let fixed: Vec<Vec<f64>> = now.iter().map(|p| self.fixed_row(p, |point| self.fixed.at(point))).collect();
            let value = |part: &Part, at| part.array.get(at);
            let mut sums = if self.varying.fits_f32() {
                self.multiply(&fixed, &pack(self, &self.packed, &key, value, |v| v as f32)?)?
            } else {
                self.multiply(&fixed, &pack(self, &self.packed_wide, &key, value, |v| v)?)?
            };
            if !(self.fixed.is_exact() && self.varying.is_exact()) {
                let gamma = self.gamma();
                let fixed: Vec<Vec<f64>> =
                    now.iter().map(|p| self.fixed_row(p, |point| self.fixed.weight_at(point, gamma))).collect();
                let weight = |part: &Part, at| part.weight(at, gamma);
                let weights = pack(self, &self.packed_weights, &key, weight, |v| (v as f32).next_up())?;
                let masses = self.multiply(&fixed, &weights)?;
                sums.iter_mut().zip(masses).for_each(|((_, mass), (_, with_errors))| *mass = with_errors);
            }
            out.extend(sums.into_iter().map(|(sum, mass)| self.finish(sum, &mass)));
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

    /// A number for each term of a row.
    fn fixed_row(&self, prefix: &[i64], of: impl Fn(&HashMap<Var, i64>) -> f64) -> Vec<f64> {
        let mut point = self.point(prefix);
        let element = |t| {
            self.set_term(&mut point, t);
            of(&point)
        };
        (0..self.terms).map(element).collect()
    }

    /// The sum, and the sum of magnitudes, of each element of some rows.
    fn multiply<T: Copy + Into<f64>>(&self, fixed: &[Vec<f64>], varying: &[T]) -> Result<Vec<Sums>> {
        let n = self.length;
        let empty = |_| Ok((filled(0.0, n)?, filled(0.0, n)?));
        let mut rows = fixed.iter().map(empty).collect::<Result<Vec<Sums>>>()?;
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
        Ok(rows)
    }

    /// The error of a sum relative to the magnitudes of its terms.
    fn gamma(&self) -> f64 {
        let terms = self.terms as f64;
        let parts = || self.fixed.parts.iter().chain(&self.varying.parts);
        let float8 = parts().filter(|part| part.dtype.is_float8()).count() > 1;
        // Each scale is one more rounding of a term.
        let scales = (parts().count() - 2) as f64;
        pair::gamma(self.dtype, terms + scales) + if float8 { float8::gamma(terms) } else { 0.0 }
    }

    fn finish(&self, mut sum: Vec<f64>, mass: &[f64]) -> Row {
        if !self.dtype.is_float() {
            sum.iter_mut().for_each(|v| *v = pair::wrap(self.dtype, *v));
            return Row { dtype: self.dtype, e: vec![0.0; sum.len()], v: sum };
        }
        let gamma = self.gamma();
        Row { dtype: self.dtype, v: sum, e: mass.iter().map(|m| gamma * m).collect() }
    }
}

/// The sums of a row, and the sums of the magnitudes of their terms.
type Sums = (Vec<f64>, Vec<f64>);

#[inline(always)]
fn add_scaled<T: Copy + Into<f64>>(sum: &mut [f64], mass: &mut [f64], a: f64, b: &[T]) {
    for ((s, m), b) in sum.iter_mut().zip(mass).zip(b) {
        let product = a * (*b).into();
        *s += product;
        *m += product.abs();
    }
}

type Packed<T> = Mutex<HashMap<Vec<i64>, Arc<Vec<T>>>>;

/// The varying factor at some leading indices, made once: products of what `of` says of an element of each part.
fn pack<T>(
    p: &Product<'_>,
    packed: &Packed<T>,
    key: &[i64],
    of: impl Fn(&Part, usize) -> f64 + Sync,
    convert: impl Fn(f64) -> T + Sync,
) -> Result<Arc<Vec<T>>>
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
        let mut line = |part: &Part| {
            let mut place = |at: i64| {
                point.insert(along, at);
                part.flat.eval(&|v| point.get(&v).copied()).unwrap_or(0)
            };
            let start = place(0);
            (start, place(part.same) - start)
        };
        p.varying.parts.iter().map(&mut line).collect()
    };
    let rows: Vec<Vec<(i64, i64)>> = (0..p.terms).map(&mut row).collect();
    let element = |row: &Vec<(i64, i64)>, j: usize| {
        let value =
            |(part, (start, stride)): (&Part, &(i64, i64))| of(part, (start + j as i64 / part.same * stride) as usize);
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
