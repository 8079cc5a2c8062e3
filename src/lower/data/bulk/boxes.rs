//! The box that a nest copies, read off its loops and indices.
//!
//! Where a loop takes every so-many-th index of a dimension, that dimension is seen as two, the digits of its index: box and
//! tensor map have both.

use super::all;
use crate::error::{Code, Subject};
use crate::index::Digit;
use crate::ir::simplify::{self, Env};
use crate::ir::{
    Block, Buffer, BufferId, Cond, Expr, For, Func, Index, LoopKind, Scope, Stmt, Store, Var, layout, visit,
};
use crate::lower::point;

/// Dimensions of a tensor map (CUDA Driver API, cuTensorMapEncodeTiled).
const RANK: usize = 5;

/// A nest that is one bulk copy, or several: loops around one block.
pub struct Nest<'a> {
    /// Outermost first.
    pub loops: Vec<&'a For>,
    /// What holds where it copies.
    conds: Vec<&'a Cond>,
    pub block: &'a Block,
    store: &'a Store,
}

impl<'a> Nest<'a> {
    /// The nest that a statement is.
    pub fn of(stmt: &'a Stmt) -> Option<Nest<'a>> {
        let (mut loops, mut conds, mut block, mut at) = (Vec::new(), Vec::new(), None, stmt);
        loop {
            let body = match at {
                Stmt::For(l) if l.kind == LoopKind::Serial && l.pipeline.is_none() => {
                    loops.push(l);
                    &l.body
                }
                Stmt::Block(b) if super::is_bulk(b) => {
                    block = Some(b);
                    &b.body
                }
                Stmt::If(i) => {
                    conds.push(&i.cond);
                    &i.body
                }
                Stmt::Store(store) => return block.map(|block| Nest { loops, conds, block, store }),
                _ => return None,
            };
            let [one] = body.as_slice() else { return None };
            at = one;
        }
    }
}

/// A box of an array in device memory and its place in shared memory.
pub struct CopyBox {
    pub global: BufferId,
    pub shared: BufferId,
    /// From shared to device memory.
    pub store: bool,
    /// The dimensions in which the box lies: those of the array, or digits of them, in the order that the box has in the stage.
    pub view: Vec<Digit<usize>>,
    /// Its first element, along these dimensions.
    pub coordinates: Vec<Index>,
    /// Its first element, in the stage.
    pub indices: Vec<Index>,
    /// Its extents, along these dimensions.
    pub tile: Vec<i64>,
    /// The dimension of the stage that goes with each of them, and how far the box moves there from one index to the next:
    /// dimensions that share one of the stage are the digits of its index.
    pub dims: Vec<Option<Along>>,
    /// How many of the nest's loops, the innermost ones, it stands for.
    pub loops: usize,
    /// Zeros may land where the program leaves the stage as it was.
    pub zeros: bool,
    /// Values beyond the array are undefined: no result depends on them.
    pub any: bool,
    /// The elements of the array, over the nest's loops.
    elements: Vec<Index>,
}

/// A dimension of a stage, and a step along it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Along {
    pub dim: usize,
    pub step: i64,
}

/// Why a nest is no TMA box, or why a box cannot be copied as it is.
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// What to try instead of an ordinary copy.
    pub help: Option<String>,
    /// What the message speaks of, besides the block.
    pub about: Vec<Subject>,
}

impl Refusal {
    /// A refusal for which only an ordinary copy is to be tried.
    pub fn new(code: Code, message: String, about: Vec<Subject>) -> Refusal {
        Refusal { code, message, help: None, about }
    }

    fn of(buffer: &Buffer, code: Code, message: String) -> Refusal {
        Refusal::new(code, message, vec![Subject::Buffer(buffer.name.clone())])
    }
}

impl CopyBox {
    /// The box of a nest, of its innermost loops as far as it can be of them. `env` knows all its loops.
    pub fn of(func: &Func, nest: &Nest, env: &Env) -> Result<CopyBox, Refusal> {
        CopyBox::of_loops(func, nest, nest.loops.len(), env)
    }

    /// The share of a box that a block of a cluster copies to all of its blocks. Rows that they cannot divide are left to the
    /// loops around a smaller box.
    pub fn shared(self, func: &Func, nest: &Nest, env: &Env, blocks: (Var, u32)) -> Result<CopyBox, Refusal> {
        let smaller = |loops: &usize| CopyBox::of_loops(func, nest, *loops, env).ok();
        let fits = |found: &CopyBox| found.shares(blocks.1).is_ok();
        let refused = match self.shares(blocks.1) {
            Ok(()) => return Ok(self.share(blocks)),
            Err(refusal) => refusal,
        };
        let found = (1..self.loops).rev().filter_map(|n| smaller(&n)).find(fits).ok_or(refused)?;
        Ok(found.share(blocks))
    }

    fn of_loops(func: &Func, nest: &Nest, most: usize, env: &Env) -> Result<CopyBox, Refusal> {
        let value = nest.store.value.zero_filled().map_or(&nest.store.value, |(_, load)| load);
        let Expr::Load { buffer, indices, .. } = value else {
            let message = "what it stores is not a copy".to_string();
            return Err(Refusal::new(Code::LowerBulkCopy, message, Vec::new()));
        };
        let clean = |indices: &[Index]| indices.iter().map(|i| simplify::simplify(i, env)).collect::<Vec<Index>>();
        let (to, from) = ((nest.store.buffer, clean(&nest.store.indices)), (*buffer, clean(indices)));
        let store = func.buffer(to.0).scope == Scope::Global;
        let ((global, elements), (shared, places)) = if store { (to, from) } else { (from, to) };
        let (view, coordinates) = digits(func, global, nest, &elements, env)?;
        let mut found = CopyBox {
            global,
            shared,
            store,
            tile: vec![1; view.len()],
            dims: vec![None; view.len()],
            view,
            coordinates,
            indices: places,
            loops: 0,
            zeros: false,
            any: matches!(&nest.store.value, Expr::Select(_, _, fill) if fill.is_any()),
            elements,
        };
        nest.loops.iter().rev().take(most).take_while(|l| found.take(l)).count();
        found.order(func);
        found.fill_row(func);
        found.check(func, env)?;
        Ok(found)
    }

    /// Makes a loop part of the box, if it moves by one along a dimension of the array that no other loop moves along, and along
    /// one dimension of the stage by what the loops inside it fill there.
    fn take(&mut self, l: &For) -> bool {
        let Some(extent) = l.extent.as_int() else { return false };
        if extent > 1 {
            let moves = (moves(&self.coordinates, l.var), moves(&self.indices, l.var));
            let (Some(array), Some(stage)) = moves else { return false };
            if array.step != 1 || self.dims[array.dim].is_some() || stage.step != self.filled(stage.dim) {
                return false;
            }
            (self.tile[array.dim], self.dims[array.dim]) = (extent, Some(stage));
        }
        let first: visit::Map = [(l.var, Index::Int(0))].into();
        for i in self.coordinates.iter_mut().chain(&mut self.indices) {
            *i = visit::subst_index(i, &first);
        }
        self.loops += 1;
        true
    }

    /// How many indices of a dimension of the stage the box fills.
    fn filled(&self, dim: usize) -> i64 {
        let along = self.dims.iter().zip(&self.tile).filter(|(a, _)| a.is_some_and(|a| a.dim == dim));
        along.fold(1, |n, (_, extent)| n.saturating_mul(*extent))
    }

    /// Gives the dimensions between which the box's elements go on the order that they have in the stage: a tensor map may have the
    /// array's in any order but for the last one.
    fn order(&mut self, func: &Func) {
        let Some(strides) = strides(func.buffer(self.shared)) else { return };
        let last = self.tile.len() - 1;
        let places: Vec<usize> = (0..last).filter(|d| self.tile[*d] > 1).collect();
        let apart = |d: &usize| self.dims[*d].map_or(0, |along| strides[along.dim].saturating_mul(along.step));
        let mut sorted = places.clone();
        sorted.sort_by_key(|d| std::cmp::Reverse(apart(d)));
        let old = (self.view.clone(), self.coordinates.clone(), self.tile.clone(), self.dims.clone());
        for (to, from) in places.into_iter().zip(sorted) {
            (self.view[to], self.coordinates[to]) = (old.0[from], old.1[from].clone());
            (self.tile[to], self.dims[to]) = (old.2[from], old.3[from]);
        }
    }

    /// A load that begins with the rows of its stage fills them to the end of their last panel: what it reads beyond its own columns is not used.
    fn fill_row(&mut self, func: &Func) {
        let stage = func.buffer(self.shared);
        let last = self.tile.len() - 1;
        let (Some(width), Some(along), false) = (stage.swizzle, self.dims[last], self.store) else { return };
        let columns = i64::from(width) * 8 / i64::from(stage.dtype.bits());
        let row = stage.shape.last().and_then(Index::as_int).unwrap_or(0);
        let panels = self.tile[last].saturating_add(columns - 1) / columns;
        let begins = along.dim + 1 == stage.shape.len() && self.indices[along.dim].as_int() == Some(0);
        if begins && self.tile[last] % columns != 0 && panels.checked_mul(columns) == Some(row) {
            self.tile[last] = row;
            self.zeros = true;
        }
    }

    /// The stage holds the box, row after row.
    fn check(&self, func: &Func, env: &Env) -> Result<(), Refusal> {
        let stage = func.buffer(self.shared);
        let refused = |code: Code, message: String| Refusal::of(stage, code, message);
        let Some(shape) = stage.const_shape() else {
            return Err(refused(Code::LowerBulkSize, format!("{} has no constant size", stage.name)));
        };
        let last = self.tile.len() - 1;
        if stage.swizzle.is_some() && self.dims[last].map(|a| a.dim) != Some(shape.len() - 1) {
            return Err(refused(Code::LowerBulkRows, format!("the rows of {} are not those of the array", stage.name)));
        }
        let bits = i64::from(stage.dtype.bits());
        let columns = stage.swizzle.map_or(self.tile[last], |width| i64::from(width) * 8 / bits);
        if self.tile[last] % columns != 0 {
            let (bytes, width) = (self.tile[last] * bits / 8, columns * bits / 8);
            let name = &stage.name;
            let fitting = [64, 32].into_iter().find(|w| *w < width && bytes % w == 0);
            let help = fitting.map(|w| format!("swizzle {name} {w}, whose panels divide its rows"));
            let message = format!("rows of {name}, {bytes} bytes, are not whole panels of {width} bytes");
            return Err(Refusal { help, ..refused(Code::LowerBulkSwizzle, message) });
        }
        let strides = strides(stage)
            .ok_or_else(|| refused(Code::LowerBulkSize, format!("{} has no constant size", stage.name)))?;
        let mut dense = 1;
        for d in (0..=last).rev() {
            let rows = if d == last { columns } else { self.tile[d] };
            let Some(along) = self.dims[d].filter(|_| self.tile[d] > 1) else { continue };
            let s = along.dim;
            let is = strides[s].saturating_mul(along.step);
            if is != dense {
                let wanted = dense;
                let message = format!(
                    "adjacent elements along dimension {s} of {} are {is} elements apart, and those of a TMA box \
                     {wanted}",
                    stage.name
                );
                return Err(refused(Code::LowerBulkRows, message));
            }
            dense *= rows;
            let rows = self.filled(s);
            if !simplify::prove(&Cond::ge(shape[s], self.indices[s].clone() + rows), env) {
                let message = format!("a box of {rows} along dimension {s} does not fit into {}", stage.name);
                return Err(refused(Code::LowerBulkSize, message));
            }
        }
        Ok(())
    }

    /// What has to hold for the box to be copied at all; what only keeps it inside of the array is left out.
    pub fn conditions(&mut self, func: &Func, nest: &Nest, env: &Env, threads: &[Var]) -> Result<Cond, Refusal> {
        let mut inside = env.clone();
        for (i, extent) in self.elements.iter().zip(&func.buffer(self.global).shape) {
            inside.assume(&Cond::ge(i.clone(), 0));
            inside.assume(&Cond::lt(i.clone(), extent.clone()));
        }
        let implied = |c: &Cond| simplify::prove(c, &inside);
        if let Some((Expr::Cond(c), _)) = nest.store.value.zero_filled()
            && let Some(odd) = c.conjuncts().into_iter().find(|c| !implied(c))
        {
            let text = crate::ir::print::cond(func, odd);
            let message = format!("it writes zeros where not `{text}`, and a TMA box has zeros only outside the array");
            return Err(Refusal::new(Code::LowerBulkCondition, message, point::of_cond(func, odd)));
        }
        let mut outer = Vec::new();
        for part in nest.conds.iter().flat_map(|c| c.conjuncts()) {
            if simplify::prove(part, env) {
                continue;
            }
            if implied(part) {
                self.zeros = true;
                continue;
            }
            let own = nest.loops.iter().any(|l| part.mentions(l.var)) || threads.iter().any(|v| part.mentions(*v));
            if own {
                let text = crate::ir::print::cond(func, part);
                let message =
                    format!("it copies where `{text}`, and a TMA box is clipped only at the ends of the array");
                return Err(Refusal::new(Code::LowerBulkCondition, message, point::of_cond(func, part)));
            }
            outer.push(part.clone());
        }
        Ok(all(outer))
    }

    /// The dimension that the blocks of a cluster divide: the outermost one, whose parts lie one after the other in the stage.
    pub fn divided(&self) -> Option<(usize, Along)> {
        (0..self.tile.len() - 1).find_map(|d| Some((d, self.dims[d].filter(|_| self.tile[d] > 1)?)))
    }

    /// Whether as many blocks can divide it.
    fn shares(&self, blocks: u32) -> Result<(), Refusal> {
        let rows = match self.divided() {
            None => "one row".to_string(),
            Some((d, _)) if self.tile[d] % i64::from(blocks) == 0 => return Ok(()),
            Some((d, _)) => format!("{} rows", self.tile[d]),
        };
        let message = format!("{rows} cannot be divided among {blocks} blocks");
        Err(Refusal::new(Code::LowerBulkMulticast, message, Vec::new()))
    }

    /// Leaves the block its share of the outer rows.
    fn share(mut self, (rank, blocks): (Var, u32)) -> CopyBox {
        if let Some((d, along)) = self.divided() {
            self.tile[d] /= i64::from(blocks);
            self.coordinates[d] = self.coordinates[d].clone() + rank * self.tile[d];
            self.indices[along.dim] = self.indices[along.dim].clone() + rank * (self.tile[d] * along.step);
        }
        self
    }
}

/// The dimensions in which the box of a nest lies, and where its elements are along them. A dimension along which the
/// innermost loop that moves there takes longer steps is two, if the step divides its extent: how many steps, and what is left.
/// A step that does not divide it, or one along rows, whose elements lie side by side in a box, leaves the loop to copies of
/// their own.
fn digits(
    func: &Func,
    array: BufferId,
    nest: &Nest,
    elements: &[Index],
    env: &Env,
) -> Result<(Vec<Digit<usize>>, Vec<Index>), Refusal> {
    let array = func.buffer(array);
    let dynamic = |dim: usize| func.size_of(&array.shape[dim]).is_some();
    let Some(shape) = func.largest(array).const_shape() else {
        return Err(Refusal::of(array, Code::LowerBulkSize, format!("{} has no constant size", array.name)));
    };
    let (mut view, mut coordinates) = (Vec::new(), Vec::new());
    let (rows, mut room) = (shape.len().saturating_sub(1), RANK.saturating_sub(shape.len()));
    for (dim, (index, extent)) in elements.iter().zip(shape).enumerate() {
        let along = nest.loops.iter().rev().find(|l| index.mentions(l.var));
        let step = along.map_or(1, |l| simplify::affine(index).coefficient(l.var));
        let digits = [index.clone().floordiv(step.max(1)), index.clone().floormod(step.max(1))];
        let digits = digits.map(|i| simplify::simplify(&i, env));
        let apart = along.is_some_and(|l| moves(&digits, l.var) == Some(Along { dim: 0, step: 1 }));
        if dim < rows && step > 1 && !dynamic(dim) && extent % step == 0 && apart && room > 0 {
            room -= 1;
            view.extend([
                Digit { of: dim, low: step, high: Some(extent) },
                Digit { of: dim, low: 1, high: Some(step) },
            ]);
            coordinates.extend(digits);
        } else {
            view.push(Digit { of: dim, low: 1, high: Some(extent) });
            coordinates.push(index.clone());
        }
    }
    Ok((view, coordinates))
}

/// The one dimension along which a variable moves, forwards by a constant.
fn moves(indices: &[Index], var: Var) -> Option<Along> {
    let mut mentioned = indices.iter().enumerate().filter(|(_, i)| i.mentions(var));
    let (dim, index) = mentioned.next()?;
    let sum = simplify::affine(index);
    let step = sum.coefficient(var);
    let plain = sum.terms.iter().filter(|(atom, _)| atom.mentions(var)).count() == 1 && step > 0;
    (mentioned.next().is_none() && plain).then_some(Along { dim, step })
}

/// Elements from one index to the next, within a panel where there are panels.
fn strides(stage: &Buffer) -> Option<Vec<i64>> {
    let Some(width) = stage.swizzle else { return layout::strides(stage) };
    let shape = stage.const_shape()?;
    let (_, rows) = shape.split_last()?;
    let mut strides = vec![1];
    let mut stride = i64::from(width) * 8 / i64::from(stage.dtype.bits());
    for extent in rows.iter().rev() {
        strides.insert(0, stride);
        stride = stride.checked_mul(*extent)?;
    }
    Some(strides)
}

/// How far an element of a stage lies from its first, flips left aside: those of panels come one after the other.
pub fn offset(stage: &Buffer, indices: &[Index]) -> Option<Index> {
    let strides = strides(stage)?;
    let mut sum = indices.iter().zip(&strides).fold(Index::Int(0), |sum, (i, s)| sum + i.clone() * *s);
    if stage.swizzle.is_some() {
        let (last, shape) = (indices.last()?, stage.const_shape()?);
        let columns = strides.get(strides.len().checked_sub(2)?)?;
        let panel = shape[..shape.len() - 1].iter().try_fold(*columns, |n, e| n.checked_mul(*e))?;
        sum = sum - last.clone() + last.clone().floormod(*columns) + last.clone().floordiv(*columns) * panel;
    }
    Some(sum)
}
