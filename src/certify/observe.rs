//! The same counts by running: the CPU machine tells of every request, and each is judged by the same rules.

use super::request::{self, Lanes};
use super::site::Sites;
use crate::array::Array;
use crate::error::Result;
use crate::ir::Scope;
use crate::lower::Lowered;
use crate::machine::{self, Options};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the requests of one access came to in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// Requests of warps.
    pub requests: u64,
    /// Wavefronts of shared memory, or sectors of device memory.
    pub cost: u64,
    /// Those without conflicts, or of the same bytes together.
    pub ideal: u64,
}

/// How an access goes from elements to bytes.
#[derive(Debug, Clone, Copy)]
struct Shape {
    bits: i64,
    offset: i64,
    width: i64,
    write: bool,
    shared: bool,
}

/// Runs a lowered program and counts the requests of each access, by kernel and number of the access.
///
/// # Errors
/// As [`machine::run_lowered_with`].
pub fn observe(lowered: &Lowered, options: &Options, args: &mut [Array]) -> Result<BTreeMap<(usize, u32), Observed>> {
    let shapes: Vec<BTreeMap<u32, Shape>> = lowered.kernels.iter().map(shapes).collect();
    let counts = Rc::new(RefCell::new(BTreeMap::<(usize, u32), Observed>::new()));
    let heard = Rc::clone(&counts);
    machine::run_lowered_observed(lowered, options, args, move |request| {
        let Some(shape) = shapes.get(request.kernel).and_then(|k| k.get(&request.access)) else { return };
        let byte = |e: i64| (e * shape.bits).div_euclid(8) + shape.offset;
        let lanes = Lanes { at: request.elements.map(byte), active: request.active };
        let (cost, ideal) = if shape.shared {
            let c = request::bank_conflicts(&lanes, shape.width, shape.write);
            (c.wavefronts, c.ideal)
        } else {
            let s = request::sectors(&lanes, shape.width);
            (s.touched, s.ideal)
        };
        let mut counts = heard.borrow_mut();
        let one = counts.entry((request.kernel, request.access)).or_default();
        *one = Observed { requests: one.requests + 1, cost: one.cost + cost, ideal: one.ideal + ideal };
    })?;
    Ok(counts.take())
}

fn shapes(kernel: &crate::lower::LoweredKernel) -> BTreeMap<u32, Shape> {
    let func = &kernel.func;
    let sites = Sites::of(kernel, 1);
    let memory = sites.accesses.iter().filter(|a| matches!(a.scope(func), Scope::Shared | Scope::Global));
    let shape = |a: &super::site::Site<'_>| Shape {
        bits: a.dtype(func).bits().into(),
        offset: func.buffer(a.buffer).offset.unwrap_or(0).into(),
        width: a.width(func),
        write: a.write,
        shared: a.scope(func) == Scope::Shared,
    };
    memory.map(|a| (a.number, shape(a))).collect()
}
