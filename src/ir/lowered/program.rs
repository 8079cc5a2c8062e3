//! A lowered program: its kernels in launch order, and what a chip must have to run them.

use super::LoweredKernel;
use super::verify::is_relaxed;
use crate::error::Result;
use crate::ir::verify::Assurance;
use crate::ir::{Func, Stmt, visit};
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
    /// In launch order.
    pub kernels: Vec<LoweredKernel>,
}

/// The extents of an array and its strides in elements, outermost first.
pub type Shape = (Vec<i64>, Vec<i64>);

impl Lowered {
    /// A program of kernels that are made by hand, for tests of what runs, checks and translates kernels.
    #[doc(hidden)]
    pub fn new(name: impl Into<String>, params: Vec<String>, kernels: Vec<LoweredKernel>) -> Lowered {
        Lowered { name: name.into(), params, shapes: Vec::new(), kernels }
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
