//! Evaluating definitions by demand, a row (all values of the last index) at a time, long rows in segments.

use super::Program;
use super::definition::Definition;
use super::float8;
use super::joint::{self, Joint};
use super::pair::{self, Pair};
use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use crate::ir::{BinOp, BufferId, Expr, Index, Var, layout};
use std::collections::HashMap;
use std::rc::Rc;

/// Values of a type along a row, and how far a result may be from each.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub dtype: DType,
    pub v: Vec<f64>,
    pub e: Vec<f64>,
}

impl Row {
    fn same(dtype: DType, n: usize, v: f64) -> Row {
        Row { dtype, v: vec![v; n], e: vec![0.0; n] }
    }

    fn of(dtype: DType, pairs: impl Iterator<Item = Pair>) -> Row {
        let (v, e) = pairs.unzip();
        Row { dtype, v, e }
    }

    fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.v.iter().copied().zip(self.e.iter().copied())
    }
}

/// Values of variables; the one that runs along the row is given apart.
#[derive(Debug, Clone)]
struct Point {
    vars: Vec<(Var, i64)>,
    along: Option<Var>,
    from: usize,
    length: usize,
    /// Values along the row of variables that represent data.
    data: Vec<(Var, Rc<[i64]>)>,
}

impl Point {
    fn eval(&self, index: &Index, at: usize) -> Option<i64> {
        index.eval(&|v| self.value(v, at))
    }

    fn value(&self, var: Var, at: usize) -> Option<i64> {
        if let Some((_, data)) = self.data.iter().rev().find(|(v, _)| *v == var) {
            return data.get(at).copied();
        }
        if Some(var) == self.along {
            return Some((self.from + at) as i64);
        }
        self.vars.iter().find(|(v, _)| *v == var).map(|(_, value)| *value)
    }

    /// Puts iterators at the `t`-th of their points.
    fn stand(&mut self, iterators: &[(Var, i64)], mut t: i64) {
        for (var, extent) in iterators.iter().rev() {
            self.set(*var, t % extent);
            t /= extent;
        }
    }

    /// Few variables have values at a time: a list is faster than a table.
    fn set(&mut self, var: Var, value: i64) {
        match self.vars.iter_mut().find(|(v, _)| *v == var) {
            Some((_, known)) => *known = value,
            None => self.vars.push((var, value)),
        }
    }

    fn mentions(&self, index: &Index) -> bool {
        self.along.is_some_and(|v| index.mentions(v)) || self.data.iter().any(|(v, _)| index.mentions(*v))
    }
}

/// Elements that rows kept for later use may have together, of all threads.
const MOST_KEPT: usize = 1 << 24;

/// Elements of a long row that are evaluated at a time.
const SEGMENT: usize = 1 << 16;

/// Elements of a buffer's row, of so many, that are evaluated at a time: products of matrices make whole rows.
pub(super) fn segment(program: &Program<'_>, id: BufferId, row: usize) -> usize {
    if program.products.contains_key(&id) { row.max(1) } else { SEGMENT }
}

/// A buffer, its leading indices, and which segment of the row.
type Key = (BufferId, Vec<i64>, usize);

/// A thread's evaluator with the rows that it has computed.
pub(super) struct Evaluator<'p, 'a> {
    program: &'p Program<'a>,
    kept: HashMap<Key, Rc<Row>>,
    size: usize,
    most: usize,
    depth: usize,
}

impl<'p, 'a> Evaluator<'p, 'a> {
    /// One of so many threads.
    pub fn new(program: &'p Program<'a>, threads: usize) -> Self {
        Evaluator { program, kept: HashMap::new(), size: 0, most: MOST_KEPT / threads.max(1), depth: 0 }
    }

    /// Computes the products that rows of an output will ask for, all rows together: each operand is then read once
    /// for the group. A product of another shape is left for when it is asked for.
    pub fn prepare(&mut self, output: BufferId, prefixes: &[Vec<i64>]) -> Result<()> {
        let shape = &self.program.func.buffer(output).shape;
        let leading = shape.len().saturating_sub(1);
        for (id, product) in &self.program.products {
            let own = &self.program.func.buffer(*id).shape;
            // The segments of a long row ask one after the other.
            let kept = prefixes.iter().all(|prefix| self.kept.contains_key(&(*id, prefix.clone(), 0)));
            if own.get(..leading) == shape.get(..leading) && own.len() == shape.len() && !kept {
                for (prefix, row) in prefixes.iter().zip(product.rows(prefixes)?) {
                    self.keep((*id, prefix.clone(), 0), Rc::new(row));
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, key: Key, row: Rc<Row>) {
        if self.size > self.most {
            self.kept.clear();
            self.size = 0;
        }
        self.size += row.v.len();
        self.kept.insert(key, row);
    }

    /// The row of a defined buffer at its leading indices, or a segment of it.
    pub fn row(&mut self, id: BufferId, prefix: &[i64], segment: usize) -> Result<Rc<Row>> {
        let key = (id, prefix.to_vec(), segment);
        if let Some(row) = self.kept.get(&key) {
            return Ok(row.clone());
        }
        let program = self.program;
        let definition = program.definitions.get(&id).ok_or_else(|| self.undefined(id))?;
        self.deeper()?;
        let row = Rc::new(match program.products.get(&id) {
            Some(product) => product.rows(&[prefix.to_vec()])?.pop().ok_or_else(|| self.undefined(id))?,
            None => self.define(id, definition, prefix, segment)?,
        });
        self.depth -= 1;
        self.keep(key, row.clone());
        Ok(row)
    }

    fn undefined(&self, id: BufferId) -> Error {
        let name = self.program.func.buffers.get(id.0 as usize).map_or("?", |b| &b.name);
        Error::input(Code::ReferenceForm, format!("buffer {name} is read, but nothing defines it"))
    }

    fn define(&mut self, id: BufferId, definition: &Definition<'_>, prefix: &[i64], segment: usize) -> Result<Row> {
        let shape = self.program.func.buffer(id).const_shape().unwrap_or_default();
        let whole = shape.last().map_or(1, |n| (*n).max(0) as usize);
        let from = segment.saturating_mul(SEGMENT).min(whole);
        let length = (whole - from).min(SEGMENT);
        let vars = definition.spatial.iter().copied().zip(prefix.iter().copied()).collect();
        let along = definition.spatial.last().copied();
        let mut point = Point { vars, along, from, length, data: Vec::new() };
        // The terms of a single element are a row.
        let is_element = length == 1;
        if let Some((joint, component)) = &definition.joint {
            let rows = match is_element {
                true => self.joint_along(joint, definition, &mut point)?,
                false => self.joint(joint, definition, &mut point)?,
            };
            for (buffer, row) in joint.buffers.iter().zip(&rows) {
                self.keep((*buffer, prefix.to_vec(), segment), Rc::new(row.clone()));
            }
            return rows.into_iter().nth(*component).ok_or_else(|| self.undefined(id));
        }
        let Some((op, init)) = definition.combine else { return self.expr(definition.value, &point) };
        let first = self.expr(init, &point)?;
        match is_element {
            true => self.combine_along(op, definition, first, &mut point),
            false => self.combine(op, definition, first, &mut point),
        }
    }

    /// One element of a defined buffer: what else is in its row is not computed.
    fn element(&mut self, id: BufferId, prefix: &[i64], last: usize) -> Result<Pair> {
        let program = self.program;
        let key = (id, [prefix, &[last as i64]].concat(), usize::MAX);
        if let Some(row) = self.kept.get(&key) {
            return Ok((row.v[0], row.e[0]));
        }
        let definition = program.definitions.get(&id).ok_or_else(|| self.undefined(id))?;
        self.deeper()?;
        let vars = definition.spatial.iter().copied().zip(prefix.iter().copied()).collect();
        let mut point =
            Point { vars, along: definition.spatial.last().copied(), from: last, length: 1, data: Vec::new() };
        if let Some((joint, component)) = &definition.joint {
            let rows = self.joint_along(joint, definition, &mut point)?;
            self.depth -= 1;
            let found = rows.get(*component).map(|row| (row.v[0], row.e[0])).ok_or_else(|| self.undefined(id))?;
            for (buffer, row) in joint.buffers.iter().zip(rows) {
                self.keep((*buffer, key.1.clone(), usize::MAX), Rc::new(row));
            }
            return Ok(found);
        }
        let row = match definition.combine {
            None => self.expr(definition.value, &point)?,
            Some((op, init)) => {
                let first = self.expr(init, &point)?;
                self.combine_along(op, definition, first, &mut point)?
            }
        };
        self.depth -= 1;
        let pair = (row.v[0], row.e[0]);
        self.keep(key, Rc::new(row));
        Ok(pair)
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > 64 {
            return Err(Error::input(Code::ReferenceForm, "buffers are defined by each other too deeply"));
        }
        Ok(())
    }

    /// Combines the terms of one element: those of the innermost reduce iterator are a row.
    fn combine_along(&mut self, op: BinOp, d: &Definition<'_>, first: Row, point: &mut Point) -> Result<Row> {
        let Some((inner, outer)) = d.reduce.split_last() else { return self.combine(op, d, first, point) };
        let (mut total, dtype) = ((first.v[0], first.e[0]), self.dtype_of_terms(d));
        let mut mass = total.0.abs();
        let terms: i64 = outer.iter().map(|(_, n)| *n).product();
        // What runs along the row from here on is the iterator of the terms.
        if let Some(own) = point.along.take() {
            point.set(own, point.from as i64);
        }
        for t in 0..terms {
            point.stand(outer, t);
            let whole = inner.1.max(0) as usize;
            for from in (0..whole).step_by(SEGMENT) {
                let (vars, length) = (point.vars.clone(), (whole - from).min(SEGMENT));
                let row = self.expr(d.value, &Point { vars, along: Some(inner.0), from, length, data: Vec::new() })?;
                for (v, e) in row.pairs() {
                    if op == BinOp::Add && row.dtype.is_float() {
                        total = (total.0 + v, total.1 + e);
                        mass += v.abs() + e;
                    } else {
                        total = pair::bin(op, row.dtype, total, (v, e));
                    }
                }
            }
        }
        if op == BinOp::Add && mass != 0.0 {
            total.1 += self.gamma(d, dtype.unwrap_or(first.dtype), terms * inner.1) * mass;
        }
        Ok(Row { dtype: first.dtype, v: vec![total.0], e: vec![total.1] })
    }

    /// Combines over the reduce iterators. Terms of a sum may be added in any order: the bound does not depend on it.
    fn combine(&mut self, op: BinOp, d: &Definition<'_>, first: Row, point: &mut Point) -> Result<Row> {
        let (mut total, dtype) = (first, self.dtype_of_terms(d));
        let mut mass: Vec<f64> = total.v.iter().map(|v| v.abs()).collect();
        let terms: i64 = d.reduce.iter().map(|(_, n)| *n).product();
        for t in 0..terms {
            point.stand(&d.reduce, t);
            let term = self.expr(d.value, point)?;
            for (j, (v, e)) in term.pairs().enumerate() {
                if op == BinOp::Add && term.dtype.is_float() {
                    total.v[j] += v;
                    total.e[j] += e;
                    mass[j] += v.abs() + e;
                } else {
                    (total.v[j], total.e[j]) = pair::bin(op, term.dtype, (total.v[j], total.e[j]), (v, e));
                }
            }
        }
        if op == BinOp::Add {
            let gamma = self.gamma(d, dtype.unwrap_or(total.dtype), terms);
            total.e.iter_mut().zip(&mass).for_each(|(e, m)| *e += if *m == 0.0 { 0.0 } else { gamma * m });
        }
        Ok(total)
    }

    /// Combines tuples over the reduce iterators: a row for each component.
    fn joint(&mut self, joint: &Joint, d: &Definition<'_>, point: &mut Point) -> Result<Vec<Row>> {
        let mut totals = joint.first.iter().map(|e| self.expr(e, point)).collect::<Result<Vec<Row>>>()?;
        let terms: i64 = d.reduce.iter().map(|(_, n)| *n).product();
        for t in 0..terms {
            point.stand(&d.reduce, t);
            let rows = joint.terms.iter().map(|e| self.expr(e, point)).collect::<Result<Vec<Row>>>()?;
            for at in 0..point.length {
                combine_at(joint, &mut totals, at, &rows, at);
            }
        }
        finish(&mut totals);
        Ok(totals)
    }

    /// [`Evaluator::joint`] of one element: the terms of the innermost reduce iterator are a row.
    fn joint_along(&mut self, joint: &Joint, d: &Definition<'_>, point: &mut Point) -> Result<Vec<Row>> {
        let Some((inner, outer)) = d.reduce.split_last() else { return self.joint(joint, d, point) };
        let mut totals = joint.first.iter().map(|e| self.expr(e, point)).collect::<Result<Vec<Row>>>()?;
        if let Some(own) = point.along.take() {
            point.set(own, point.from as i64);
        }
        let (terms, whole): (i64, _) = (outer.iter().map(|(_, n)| *n).product(), inner.1.max(0) as usize);
        for t in 0..terms {
            point.stand(outer, t);
            for from in (0..whole).step_by(SEGMENT) {
                let (vars, length) = (point.vars.clone(), (whole - from).min(SEGMENT));
                let along = Point { vars, along: Some(inner.0), from, length, data: Vec::new() };
                let rows = joint.terms.iter().map(|e| self.expr(e, &along)).collect::<Result<Vec<Row>>>()?;
                for at in 0..length {
                    combine_at(joint, &mut totals, 0, &rows, at);
                }
            }
        }
        finish(&mut totals);
        Ok(totals)
    }

    /// The error of a sum of so many terms, relative to the sum of their magnitudes.
    fn gamma(&self, d: &Definition<'_>, dtype: DType, terms: i64) -> f64 {
        let float8 = float8::is_product(self.program.func, d.value);
        pair::gamma(dtype, (terms - 1).max(0) as f64) + if float8 { float8::gamma(terms as f64) } else { 0.0 }
    }

    fn dtype_of_terms(&self, d: &Definition<'_>) -> Option<DType> {
        crate::ir::typing::dtype_of(self.program.func, d.value).ok()
    }

    fn expr(&mut self, e: &Expr, at: &Point) -> Result<Row> {
        let n = at.length;
        Ok(match e {
            Expr::Const(dtype, literal) => {
                let v = literal.number();
                let mut rounded = Array::zeros(*dtype, &[1])?;
                rounded.set(0, v);
                Row::same(*dtype, n, rounded.get(0))
            }
            Expr::Index(dtype, index) => {
                let value = |j| (at.eval(index, j).map_or(f64::NAN, |v| v as f64), 0.0);
                Row::of(*dtype, (0..n).map(|j| pair::cast(DType::S64, *dtype, value(j))))
            }
            Expr::Cond(c) => {
                let truth = |j| f64::from(u8::from(c.eval(&|v| at.value(v, j)).unwrap_or(false)));
                Row::of(DType::Bool, (0..n).map(|j| (truth(j), 0.0)))
            }
            Expr::Load { buffer, indices, .. } => self.load(*buffer, indices, at)?,
            Expr::Splat(_, a) | Expr::Shuffle(_, a) => self.expr(a, at)?,
            Expr::Un(op, a) => {
                let a = self.expr(a, at)?;
                Row::of(a.dtype, a.pairs().map(|p| pair::un(*op, a.dtype, p)))
            }
            Expr::Bin(op, a, b) => {
                let (a, b) = (self.expr(a, at)?, self.expr(b, at)?);
                Row::of(a.dtype, a.pairs().zip(b.pairs()).map(|(x, y)| pair::bin(*op, a.dtype, x, y)))
            }
            Expr::Cmp(op, a, b) => {
                let (a, b) = (self.expr(a, at)?, self.expr(b, at)?);
                Row::of(DType::Bool, a.pairs().zip(b.pairs()).map(|(a, b)| pair::compare(*op, a, b)))
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.expr(c, at)?, self.expr(a, at)?, self.expr(b, at)?);
                let sides = a.pairs().zip(b.pairs());
                Row::of(a.dtype, c.pairs().zip(sides).map(|(c, (a, b))| pair::choose(c, a, b)))
            }
            Expr::Cast(to, a) => {
                let a = self.expr(a, at)?;
                Row::of(*to, a.pairs().map(|p| pair::cast(a.dtype, *to, p)))
            }
            Expr::Gather { var, low, index, value, .. } => {
                let index = self.expr(index, at)?;
                self.gather((*var, *low), &index, value, at)?
            }
        })
    }

    /// A value at an index that is a datum: its elements are told apart by it.
    fn gather(&mut self, (var, low): (Var, i64), index: &Row, value: &Expr, at: &Point) -> Result<Row> {
        let data: Rc<[i64]> = index.v.iter().map(|v| (*v as i64).saturating_sub(low)).collect();
        let mut inside = at.clone();
        inside.data.push((var, data));
        self.expr(value, &inside)
    }

    fn load(&mut self, id: BufferId, indices: &[Index], at: &Point) -> Result<Row> {
        let Some(array) = self.program.inputs.get(&id) else { return self.load_defined(id, indices, at) };
        let buffer = self.program.func.buffer(id);
        let (shape, strides) = (buffer.const_shape().unwrap_or_default(), layout::strides(buffer).unwrap_or_default());
        // What is outside is NaN: a select around it does not choose it.
        let element = |j: usize| {
            let mut flat = 0;
            for ((index, extent), stride) in indices.iter().zip(&shape).zip(&strides) {
                let i = at.eval(index, j).filter(|i| (0..*extent).contains(i))?;
                flat += i * stride;
            }
            Some(array.get(flat as usize))
        };
        if indices.iter().any(|i| at.mentions(i)) {
            Ok(Row::of(buffer.dtype, (0..at.length).map(|j| (element(j).unwrap_or(f64::NAN), 0.0))))
        } else {
            Ok(Row::same(buffer.dtype, at.length, element(0).unwrap_or(f64::NAN)))
        }
    }

    fn load_defined(&mut self, id: BufferId, indices: &[Index], at: &Point) -> Result<Row> {
        let buffer = self.program.func.buffer(id);
        let shape = buffer.const_shape().unwrap_or_default();
        let dtype = buffer.dtype;
        let Some((last, leading)) = indices.split_last() else {
            let row = self.row(id, &[], 0)?;
            let pair = row.v.first().copied().zip(row.e.first().copied()).unwrap_or((f64::NAN, 0.0));
            return Ok(Row::of(dtype, std::iter::repeat_n(pair, at.length)));
        };
        // One element needs no row: the row of a sum of each row of a matrix would be sums of the whole matrix.
        let is_element = at.length == 1 || !indices.iter().any(|i| at.mentions(i));
        if is_element && !self.program.products.contains_key(&id) {
            let inside = |(i, n): (&Index, &i64)| at.eval(i, 0).filter(|v| (0..*n).contains(v));
            let place: Option<Vec<i64>> = indices.iter().zip(&shape).map(inside).collect();
            let pair = match place.as_deref().and_then(<[i64]>::split_last) {
                Some((last, prefix)) => self.element(id, prefix, usize::try_from(*last).unwrap_or(0))?,
                None => (f64::NAN, 0.0),
            };
            return Ok(Row::of(dtype, std::iter::repeat_n(pair, at.length)));
        }
        let mut pairs = Vec::with_capacity(at.length);
        let length = segment(self.program, id, shape.last().map_or(1, |n| (*n).max(0) as usize));
        let mut held: Option<(usize, Rc<Row>)> = None;
        let fixed = !leading.iter().any(|i| at.mentions(i));
        let mut prefix: Option<Vec<i64>> = None;
        for j in 0..at.length {
            if !fixed || j == 0 {
                let inside = |(i, n): (&Index, &i64)| at.eval(i, j).filter(|v| (0..*n).contains(v));
                let next = leading.iter().zip(&shape).map(inside).collect::<Option<Vec<i64>>>();
                held = held.filter(|_| next == prefix);
                prefix = next;
            }
            let whole = shape.last().copied().unwrap_or(1);
            let place = at.eval(last, j).filter(|i| (0..whole).contains(i)).and_then(|i| usize::try_from(i).ok());
            let found = match (&prefix, place) {
                (Some(prefix), Some(i)) => {
                    if held.as_ref().is_none_or(|(s, _)| *s != i / length) {
                        held = Some((i / length, self.row(id, prefix, i / length)?));
                    }
                    held.as_ref().and_then(|(_, row)| Some((*row.v.get(i % length)?, *row.e.get(i % length)?)))
                }
                _ => None,
            };
            pairs.push(found.unwrap_or((f64::NAN, 0.0)));
        }
        // A stored intermediate is rounded to its type; sums and operations have counted that already.
        Ok(Row::of(dtype, pairs.into_iter()))
    }
}

/// Combines the elements at `to` of all components with those of the terms at `from`.
fn combine_at(joint: &Joint, totals: &mut [Row], to: usize, terms: &[Row], from: usize) {
    let at = |rows: &[Row], n: usize| rows.iter().map(|r| (r.v[n], r.e[n])).collect::<Vec<Pair>>();
    let mut total = at(totals, to);
    joint.combine(&mut total, &at(terms, from));
    for (row, (v, e)) in totals.iter_mut().zip(total) {
        (row.v[to], row.e[to]) = (v, e);
    }
}

fn finish(totals: &mut [Row]) {
    for row in totals {
        *row = Row::of(row.dtype, row.pairs().map(joint::in_any_order).collect::<Vec<Pair>>().into_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::definition;

    /// A row of a softmax needs the maximum and the sum of this row: not those of all rows, which are one row of `M` and of `S`.
    #[test]
    fn one_row_does_not_evaluate_the_sums_of_the_others() {
        let (rows, columns) = (512usize, 64usize);
        let text = format!(
            "program softmax\n input X f32[{rows}, {columns}]\n M[i {rows}] f32 = max(k {columns}) X[i, k]\n \
             S[i {rows}] f32 = sum(k {columns}) exp(X[i, k] - M[i])\n D[i {rows}] f32 = 1.0 / S[i]\n \
             output Y[i {rows}, j {columns}] f32 = exp(X[i, j] - M[i]) * D[i]\ntarget sm_90\n"
        );
        let func = crate::loom::Schedule::parse(&text).unwrap().program;
        let x = Array::random(DType::F32, &[rows, columns], 1).unwrap();
        let inputs = HashMap::from([(func.params[0], &x)]);
        let definitions = definition::of(&func).unwrap();
        let program = Program { func: &func, definitions, inputs, products: HashMap::new() };
        let mut evaluator = Evaluator::new(&program, 1);
        let row = evaluator.row(func.params[1], &[3], 0).unwrap();
        let own: Vec<f64> = (0..columns).map(|j| x.get(3 * columns + j)).collect();
        let sum: f64 = own.iter().map(|v| v.exp()).sum();
        for (found, x) in row.v.iter().zip(&own) {
            assert!((found - x.exp() / sum).abs() < 1e-12, "{found} {x} {sum}");
        }
        // The row itself, and one element each of M, S and D.
        assert_eq!((evaluator.kept.len(), evaluator.size), (4, columns + 3));
    }
}
