//! Dynamic sizes: extents that are known at launch alone, with the values that they can have.
//!
//! A dynamic size is the extent of the outermost dimension of global buffers, so every stride is a constant. In the program it is a
//! variable around everything. Loops run to its largest value; a block whose iterator has the size as its domain has the predicate
//! that the iterator stays below. So steps see constant loops, and what they prove holds for every value of the size.

use super::visit::{Map, subst_index};
use super::{Block, Buffer, BufferId, CmpOp, Cond, Func, Index, Stmt, Var, layout, visit};
use crate::error::{Code, Error, Result};
use crate::size::{self, Size};

/// The most dynamic sizes of a program.
pub const MAX_SIZES: usize = 4;

/// A size that is known at launch, as a variable of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DynamicSize {
    /// Its name and its values.
    pub size: Size,
    /// The variable that counts its multiples: the size is `size.by` times it.
    pub var: Var,
}

impl DynamicSize {
    /// A size with its variable.
    pub fn new(size: Size, var: Var) -> DynamicSize {
        DynamicSize { size, var }
    }

    /// The size as an index.
    pub fn value(&self) -> Index {
        Index::Var(self.var) * self.size.by
    }

    /// The range of the variable: from 0 to this, exclusive. Claims are proved for the empty array, too.
    pub fn extent(&self) -> i64 {
        self.size.high / self.size.by + 1
    }

    /// The variables of the sizes at values of the sizes.
    pub fn at(sizes: &[DynamicSize], values: &[i64]) -> Map {
        sizes.iter().zip(values).map(|(s, v)| (s.var, Index::Int(v / s.size.by))).collect()
    }
}

impl Func {
    /// The dynamic size of that name.
    pub fn find_size(&self, name: &str) -> Option<&DynamicSize> {
        self.sizes.iter().find(|s| s.size.name == name)
    }

    /// The variables of its dynamic sizes with their extents: they are around everything.
    pub fn size_vars(&self) -> Vec<(Var, i64)> {
        self.sizes.iter().map(|s| (s.var, s.extent())).collect()
    }

    /// The dynamic size that an extent is, by its number.
    pub fn size_of(&self, extent: &Index) -> Option<usize> {
        self.sizes.iter().position(|s| s.value() == *extent)
    }

    /// An extent, or the largest value of the dynamic size that it is.
    pub fn most(&self, extent: &Index) -> Option<i64> {
        self.size_of(extent).map_or_else(|| extent.as_int(), |n| Some(self.sizes[n].size.high))
    }

    /// An extent in words: a number, or the name of a dynamic size.
    pub fn extent_text(&self, extent: &Index) -> String {
        self.size_of(extent).map_or_else(|| super::print::index(self, extent), |n| self.sizes[n].size.name.clone())
    }

    /// The block as it is at the largest sizes: its domains and its predicate. Loops run to the largest size, so an iteration that runs at
    /// any size runs there.
    pub fn largest_block(&self, block: &Block) -> Block {
        if self.sizes.is_empty() {
            return block.clone();
        }
        let largest: Vec<i64> = self.sizes.iter().map(|s| s.size.high).collect();
        let map = DynamicSize::at(&self.sizes, &largest);
        match visit::subst_body(vec![Stmt::Block(block.clone())], &map).pop() {
            Some(Stmt::Block(block)) => block,
            _ => block.clone(),
        }
    }

    /// The buffer with the largest extents that it can have.
    pub fn largest(&self, buffer: &Buffer) -> Buffer {
        let extent = |e: &Index| self.most(e).map_or_else(|| e.clone(), Index::Int);
        Buffer { shape: buffer.shape.iter().map(extent).collect(), ..buffer.clone() }
    }

    /// The value of each dynamic size, from the extents of the arrays that are given for the parameters, in order.
    ///
    /// # Errors
    /// `size.value` where two arrays disagree, or a size cannot have the value.
    pub fn sizes_of(&self, shapes: &[&[usize]]) -> Result<Vec<i64>> {
        let of = |id: &BufferId| {
            let buffer = self.buffer(*id);
            let size = self.size_of(buffer.shape.first()?)?;
            let largest = self.largest(buffer);
            Some((buffer.name.as_str(), size, largest.const_shape()?, layout::strides(&largest)?))
        };
        let params: Vec<_> = self.params.iter().map(of).collect();
        let mut arrays = Vec::new();
        for (param, given) in params.iter().zip(shapes) {
            if let Some((name, size, shape, strides)) = param {
                arrays.push(size::Sized { name, size: *size, shape, strides, given });
            }
        }
        size::values(self.sizes.iter().map(|s| &s.size), &arrays)
    }

    /// The program at one value of each dynamic size, in order: a program of constant extents.
    ///
    /// # Errors
    /// `size.value` where a size cannot have the value, or where their number is another.
    pub fn at(&self, values: &[i64]) -> Result<Func> {
        Size::check_all(self.sizes.iter().map(|s| &s.size), values)?;
        let map = DynamicSize::at(&self.sizes, values);
        let mut func = self.clone();
        func.sizes.clear();
        for buffer in &mut func.buffers {
            buffer.shape = buffer.shape.iter().map(|e| subst_index(e, &map)).collect();
        }
        let body = std::mem::take(&mut func.body);
        func.body = visit::subst_body(body, &map).into_iter().map(shortened).collect();
        Ok(func)
    }

    /// The program with a smaller range of a dynamic size, by its number: from `low` to the last multiple up to `high`. Loops over the size end
    /// there. For a program without steps, where each loop over the size is that of an iterator.
    ///
    /// # Errors
    /// `size.range` where the size has no value from `low` to `high`.
    pub fn narrowed(&self, size: usize, low: i64, high: i64) -> Result<Func> {
        let mut func = self.clone();
        let Some(dynamic) = func.sizes.get_mut(size) else {
            return Err(Error::bug(Code::SizeRange, format!("the program has no dynamic size {size}")));
        };
        let (old, value) = (dynamic.size.clone(), dynamic.value());
        let last = high.min(old.high) / old.by * old.by;
        dynamic.size = Size::new(old.name, low.max(old.low), last, old.by)?;
        let iters = visit::blocks(&func.body).into_iter().flat_map(|block| &block.iters);
        let loops: Vec<Var> = iters.filter(|it| it.extent == value).filter_map(|it| it.binding.as_var()).collect();
        func.body = visit::rewrite(std::mem::take(&mut func.body), &mut |stmt| match stmt {
            Stmt::For(mut l) => {
                if loops.contains(&l.var) {
                    l.extent = Index::Int(last);
                }
                vec![Stmt::For(l)]
            }
            stmt => vec![stmt],
        });
        Ok(func)
    }

    /// The program at the largest value of each dynamic size.
    ///
    /// # Errors
    /// None for a program that is well-formed.
    pub fn at_most(&self) -> Result<Func> {
        self.at(&self.sizes.iter().map(|s| s.size.high).collect::<Vec<_>>())
    }
}

/// A loop whose blocks all run below one value of its variable runs to that value, and the predicates say no more of it.
fn shortened(stmt: Stmt) -> Stmt {
    let Stmt::For(mut l) = stmt else { return stmt };
    l.body = std::mem::take(&mut l.body).into_iter().map(shortened).collect();
    let ends: Option<Vec<i64>> = visit::blocks(&l.body).iter().map(|b| end(&b.predicate, l.var)).collect();
    let most = ends.and_then(|ends| ends.into_iter().max()).filter(|_| l.raster.is_none() && l.tensorize.is_none());
    if let (Some(most), Some(extent)) = (most, l.extent.as_int()) {
        let (var, extent) = (l.var, extent.min(most.max(1)));
        l.extent = Index::Int(extent);
        l.body = visit::rewrite(std::mem::take(&mut l.body), &mut |s| match s {
            Stmt::Block(mut b) => {
                let needed = |part: &&Cond| below(part, var).is_none_or(|end| end < extent);
                b.predicate = b.predicate.conjuncts().into_iter().filter(needed).cloned().fold(Cond::TRUE, Cond::and);
                vec![Stmt::Block(b)]
            }
            s => vec![s],
        });
    }
    Stmt::For(l)
}

/// The end that a predicate sets for a plain variable.
fn end(predicate: &Cond, var: Var) -> Option<i64> {
    predicate.conjuncts().into_iter().filter_map(|part| below(part, var)).min()
}

/// The end of a variable that a condition says: `var < end`.
fn below(part: &Cond, var: Var) -> Option<i64> {
    match part {
        Cond::Cmp(CmpOp::Lt, a, b) if a.as_var() == Some(var) => b.as_int(),
        _ => None,
    }
}
