//! A lowered program: its kernels in launch order, and what a chip must have to run them.

use super::LoweredKernel;
use super::verify::is_relaxed;
use crate::error::Result;
use crate::ir::verify::Assurance;
use crate::ir::visit::{subst_body, subst_index};
use crate::ir::{Axis, DynamicSize, Func, Index, Stmt, visit};
use crate::size::{self, Size};
use crate::target::Features;

/// A lowered program: its kernels in launch order. Only [`crate::lower::lower`] makes one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Lowered {
    /// The program's name.
    pub name: String,
    /// Names of the program's parameters, in the caller's order.
    pub params: Vec<String>,
    /// Extents and strides of each parameter in elements, outermost first, as the program states them: kernels address
    /// parameters by one index. Empty for kernels that are made by hand.
    pub shapes: Vec<Shape>,
    /// Its dynamic sizes; shapes and launches have the largest values.
    pub sizes: Vec<DynamicSize>,
    /// Of each parameter the number of the dynamic size that its outermost extent is.
    pub dynamic: Vec<Option<usize>>,
    /// In launch order.
    pub kernels: Vec<LoweredKernel>,
}

/// The extents of an array and its strides in elements, outermost first.
pub type Shape = (Vec<i64>, Vec<i64>);

impl Lowered {
    /// A program of kernels that are made by hand, for tests of what runs, checks and translates kernels.
    #[doc(hidden)]
    pub fn new(name: impl Into<String>, params: Vec<String>, kernels: Vec<LoweredKernel>) -> Lowered {
        let (shapes, sizes, dynamic) = Default::default();
        Lowered { name: name.into(), params, shapes, sizes, dynamic, kernels }
    }

    /// The value of each dynamic size, from the extents of the arrays that are given for the parameters, in order.
    ///
    /// # Errors
    /// `size.value` where two arrays disagree, or a size cannot have the value.
    pub fn sizes_of(&self, shapes: &[&[usize]]) -> Result<Vec<i64>> {
        let mut arrays = Vec::new();
        for (((name, (shape, strides)), dynamic), given) in
            self.params.iter().zip(&self.shapes).zip(&self.dynamic).zip(shapes)
        {
            if let Some(size) = *dynamic {
                arrays.push(size::Sized { name, size, shape, strides, given });
            }
        }
        size::values(self.sizes.iter().map(|s| &s.size), &arrays)
    }

    /// The program at one value of each dynamic size, in order.
    ///
    /// # Errors
    /// `size.value` where a size cannot have the value, or where their number is another.
    pub fn at(&self, values: &[i64]) -> Result<Lowered> {
        Size::check_all(self.sizes.iter().map(|s| &s.size), values)?;
        let mut out = Lowered { sizes: Vec::new(), dynamic: vec![None; self.dynamic.len()], ..self.clone() };
        for (shape, size) in out.shapes.iter_mut().zip(&self.dynamic) {
            if let (Some(size), Some(extent)) = (size, shape.0.first_mut()) {
                *extent = values[*size];
            }
        }
        out.kernels.iter_mut().for_each(|k| at(k, values));
        Ok(out)
    }

    /// The program at the largest value of each dynamic size.
    pub fn at_most(&self) -> Lowered {
        let largest: Vec<i64> = self.sizes.iter().map(|s| s.size.high).collect();
        self.at(&largest).unwrap_or_else(|_| self.clone())
    }

    /// How the legality of the program, and of its kernels, is known.
    ///
    /// # Errors
    /// What the verifier refuses.
    pub fn assurance(&self, scheduled: &Func) -> Result<Assurance> {
        let mut all = crate::ir::verify::assurance(scheduled)?;
        all.tested.extend(self.kernels.iter().flat_map(|k| k.tested.iter().cloned()));
        Ok(all)
    }

    /// What a chip must have to run the program; ordinary code needs nothing.
    pub fn features(&self) -> Features {
        self.kernels.iter().fold(Features::empty(), |all, kernel| all | features(kernel))
    }
}

/// Gives a kernel the values of its dynamic sizes.
fn at(kernel: &mut LoweredKernel, values: &[i64]) {
    let sizes = std::mem::take(&mut kernel.func.sizes);
    let map = DynamicSize::at(&sizes, values);
    for (buffer, dims) in kernel.func.buffers.iter_mut().zip(&mut kernel.dims) {
        let Some(outermost) = dims.first_mut() else { continue };
        let Some(value) = outermost.dynamic.take().map(|size| values[size]) else { continue };
        let missing = (outermost.extent - value) * outermost.stride;
        outermost.extent = value;
        buffer.shape = buffer.shape.iter().map(|span| span.clone() - Index::Int(missing)).collect();
    }
    for map in &mut kernel.maps {
        if let Some((dim, size)) = map.dynamic.take() {
            map.extents[dim] = values[size];
        }
    }
    for clipped in std::mem::take(&mut kernel.clipped) {
        let extent = u32::try_from(clipped.at(values[clipped.size])).unwrap_or(u32::MAX);
        let axis = kernel.launch.iter_mut().find(|l| l.axis == clipped.axis);
        axis.into_iter().for_each(|l| l.extent = l.extent.min(extent));
    }
    for derived in &mut kernel.derived {
        derived.value = subst_index(&derived.value, &map);
    }
    kernel.func.body = subst_body(std::mem::take(&mut kernel.func.body), &map);
    if let Some((walk, _)) = kernel.persistent() {
        let blocks = kernel.extent(Axis::BlockX);
        visit::change_loop(&mut kernel.func.body, walk, &mut |l| l.extent = Index::Int(blocks.into()));
    }
}

/// What a chip must have to run a kernel.
fn features(kernel: &LoweredKernel) -> Features {
    let (mut cp_async, mut relaxed, mut store_async) = (false, false, false);
    visit::walk(&kernel.func.body, &mut |s| {
        relaxed |= is_relaxed(s);
        if let Stmt::Store(s) = s {
            cp_async |= s.asynchronous;
            store_async |= s.remote.as_ref().is_some_and(|to| to.full.is_some());
        }
    });
    let sets_registers = kernel.func.body.iter().any(|s| matches!(s, Stmt::Role(r) if r.regs.is_some()));
    let uses = [
        (Features::CLUSTER, kernel.cluster() > 1),
        (Features::CP_ASYNC, cp_async),
        (Features::GRID_DEPENDENCY, kernel.grid_dependency.is_some()),
        (Features::TMA, !kernel.maps.is_empty() || kernel.l2_prefetch),
        (Features::MBARRIER, !kernel.func.mbarriers.is_empty()),
        (Features::STORE_ASYNC, store_async),
        (Features::RELAXED_BARRIER, relaxed),
        (Features::SET_REGISTERS, sets_registers),
    ];
    let used = uses.into_iter().filter(|(_, used)| *used).fold(Features::empty(), |all, (feature, _)| all | feature);
    kernel.instructions().iter().fold(used, |all, row| all | row.needs)
}
