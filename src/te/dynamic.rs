//! Dynamic sizes of a program: the extents that become variables once all blocks are there.
//!
//! A program is made with the largest value of each size. When it is finished, the outermost dimensions that are dynamic get the
//! variable: those of inputs as stated, and with them each iterator that runs over such a dimension and the buffer that it writes.

use super::program::Program;
use crate::error::{Code, Error, Result};
use crate::ir::dynamic::MAX_SIZES;
use crate::ir::print::Node;
use crate::ir::{Block, BufferId, Cond, DynamicSize, Expr, Func, Index, IterKind, Stmt, Var, print, verify, visit};
use crate::size::Size;

/// The number of a dynamic size in its program.
pub type SizeId = usize;

/// Where dynamic sizes are stated as extents.
#[derive(Debug, Clone, Default)]
pub struct Stated {
    /// Inputs whose outermost extent is dynamic.
    inputs: Vec<(BufferId, SizeId)>,
    /// Blocks by name, with the number of an iterator.
    iterators: Vec<(String, usize, SizeId)>,
}

impl Program {
    /// Adds a dynamic size: at launch a multiple of `by` from `low` to `high`, both inclusive. Buffers and iterators are made with
    /// the extent `high`; [`Program::dynamic_input`] and [`Program::dynamic_iterator`] state which of them have the size.
    ///
    /// # Errors
    /// `te.name` where it is no name, or one that a buffer has; `size.range` where there is no such multiple, or `high` is none.
    pub fn size(&mut self, name: &str, low: i64, high: i64, by: i64) -> Result<SizeId> {
        super::program::check_name("size", name)?;
        if self.func().find_size(name).is_some() || self.func().find_buffer(name).is_some() {
            return Err(Error::input(Code::TeName, format!("there is already a size or a buffer {name}")));
        }
        if self.func().sizes.len() == MAX_SIZES {
            return Err(Error::input(Code::TeLimit, format!("a program has at most {MAX_SIZES} dynamic sizes")));
        }
        let size = Size::new(name, low, high, by)?;
        let func = self.func_mut();
        let var = func.add_var(if by == 1 { name.to_string() } else { format!("{name}_{by}") });
        func.sizes.push(DynamicSize::new(size, var));
        Ok(func.sizes.len() - 1)
    }

    /// States that the outermost extent of an input is the size.
    pub fn dynamic_input(&mut self, input: BufferId, size: SizeId) {
        self.stated.inputs.push((input, size));
    }

    /// States that the domain of an iterator of a block, spatial ones first, is the size. Iterators that index the outermost
    /// dimension of a dynamic buffer have it without that.
    pub fn dynamic_iterator(&mut self, block: &str, iterator: usize, size: SizeId) {
        self.stated.iterators.push((block.to_string(), iterator, size));
    }
}

impl Stated {
    /// The program with its dynamic extents.
    pub fn apply(&self, mut func: Func) -> Result<Func> {
        if func.sizes.is_empty() {
            return Ok(func);
        }
        let mut buffers = self.inputs.clone();
        for (buffer, size) in &buffers {
            give(&mut func, *buffer, *size);
        }
        let names: Vec<_> = visit::blocks(&func.body).iter().map(|b| b.name).collect();
        for name in names {
            let Some(block) = func.find_block(&func.blocks[name.0 as usize].clone()).cloned() else { continue };
            for (at, size) in self.iterators_of(&func, &block, &buffers)? {
                let written = run_by(&mut func, &block, at, size)?;
                written.iter().for_each(|b| give(&mut func, *b, size));
                buffers.extend(written.into_iter().map(|b| (b, size)));
            }
        }
        if let Some(unused) = func.sizes.iter().enumerate().find(|(n, _)| buffers.iter().all(|(_, size)| size != n)) {
            let name = &unused.1.size.name;
            let message = format!("no outermost dimension of a buffer has the size {name}");
            return Err(Error::input(Code::SizeForm, message).help(format!("input A f32[{name}, 64]")));
        }
        verify::well_formed(&func)?;
        Ok(func)
    }

    /// The iterators of a block whose domain is a size.
    fn iterators_of(&self, func: &Func, block: &Block, buffers: &[(BufferId, SizeId)]) -> Result<Vec<(usize, SizeId)>> {
        let label = func.block_name(block.name);
        let mut found: Vec<(usize, SizeId)> =
            self.iterators.iter().filter(|(b, ..)| b == label).map(|(_, at, size)| (*at, *size)).collect();
        for (var, size) in outermost(block, buffers) {
            let Some(at) = block.iters.iter().position(|it| it.var == var) else { continue };
            match found.iter().find(|(a, _)| *a == at) {
                Some((_, other)) if *other != size => {
                    let (a, b) = (&func.sizes[*other].size.name, &func.sizes[size].size.name);
                    let name = func.var_name(var).trim_start_matches('v');
                    let message = format!("iterator {name} of block {label} runs over size {a} and over size {b}");
                    return Err(print::underline(
                        Error::input(Code::SizeForm, message).help("state one size for both dimensions"),
                        func,
                        &[(Node::Block(block.name), "this block")],
                    ));
                }
                Some(_) => {}
                None => found.push((at, size)),
            }
        }
        Ok(found)
    }
}

/// The variables that alone index the outermost dimension of dynamic buffers.
fn outermost(block: &Block, buffers: &[(BufferId, SizeId)]) -> Vec<(Var, SizeId)> {
    let mut out = Vec::new();
    visit::walk(&block.body, &mut |s| {
        if let Stmt::Store(store) = s {
            visit::walk_expr(&store.value, &mut |e| {
                if let Expr::Load { buffer, indices, .. } = e
                    && let Some(var) = indices.first().and_then(Index::as_var)
                {
                    out.extend(buffers.iter().filter(|(b, _)| b == buffer).map(|(_, size)| (var, *size)));
                }
            });
        }
    });
    out
}

/// Gives the outermost dimension of a buffer the size.
fn give(func: &mut Func, buffer: BufferId, size: SizeId) {
    let value = func.sizes[size].value();
    if let Some(extent) = func.buffer_mut(buffer).shape.first_mut() {
        *extent = value;
    }
}

/// Gives an iterator the size as its domain; the buffers whose outermost dimension it writes.
fn run_by(func: &mut Func, block: &Block, at: usize, size: SizeId) -> Result<Vec<BufferId>> {
    let value = func.sizes[size].value();
    let iter = &block.iters[at];
    let refused = |func: &Func, what: &str| {
        let (label, name) = (func.block_name(block.name), &func.sizes[size].size.name);
        let message = format!("block {label} has the dynamic size {name} {what}");
        let error = Error::input(Code::SizeForm, message);
        let error = error.help("a dynamic size is the outermost extent of what a block writes");
        print::underline(error, func, &[(Node::Block(block.name), "this block")])
    };
    if iter.kind == IterKind::Reduce {
        return Err(refused(func, "as an extent that it reduces over"));
    }
    if at != 0 {
        return Err(refused(func, "as an extent that is not its outermost"));
    }
    let inside = Cond::lt(iter.binding.clone(), value.clone());
    visit::change_block(&mut func.body, block.name, &mut |b| {
        b.iters[at].extent = value.clone();
        b.predicate = std::mem::replace(&mut b.predicate, Cond::TRUE).and(inside.clone());
    });
    Ok(visit::writes(&block.body))
}
