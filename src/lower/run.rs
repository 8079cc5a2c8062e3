//! Runs the passes on the kernels of a program, and traces each for dumps.

use super::map::kernels;
use super::target::admit;
use super::{PASSES, point, promise};
use crate::error::{Code, Error, Result};
use crate::ir::lowered::{Lowered, LoweredKernel, verify};
use crate::ir::{Buffer, BufferId, Func, layout};
use crate::target::Target;
use std::time::{Duration, Instant};

/// Lowers a Scheduled program for a target.
///
/// # Errors
/// The input's fault where the program does not verify or a staged buffer cannot be shared between threads as it is placed; the chip's
/// where it lacks an instruction or room (threads, shared memory, registers).
pub fn lower(func: &Func, target: &Target) -> Result<Lowered> {
    lower_traced(func, target, &mut |_| {})
}

/// What a pass did, for dumps.
pub struct Trace<'a> {
    /// The pass.
    pub pass: &'static str,
    /// The kernel after it.
    pub kernel: &'a LoweredKernel,
    /// How long it took.
    pub time: Duration,
}

/// [`lower`], with `trace` called after every pass on every kernel.
///
/// # Errors
/// As [`lower`]; the passes before the failing one have been shown.
pub fn lower_traced(func: &Func, target: &Target, trace: &mut dyn FnMut(&Trace)) -> Result<Lowered> {
    crate::ir::verify::verify(func)?;
    pass_by_pass(func, target, trace).map_err(|e| point::point(e, func))
}

fn pass_by_pass(func: &Func, target: &Target, trace: &mut dyn FnMut(&Trace)) -> Result<Lowered> {
    admit::admit(func, target)?;
    let mut kernels = kernels::split(func)?;
    for kernel in &mut kernels {
        for (n, pass) in PASSES.iter().enumerate() {
            let start = Instant::now();
            (pass.run)(kernel, target)
                .map_err(|e| e.within(format!("lowering {}, pass {}", kernel.func.name, pass.name)))?;
            trace(&Trace { pass: pass.name, kernel, time: start.elapsed() });
            promise::check(kernel, n)
                .map_err(|e| e.within(format!("lowering {}, pass {}", kernel.func.name, pass.name)))?;
        }
        admit::admit_kernel(kernel, target)?;
        verify(kernel).map_err(|e| e.within(format!("lowering {}", kernel.func.name)))?;
    }
    let params = func.params.iter().map(|p| func.buffer(*p).name.clone()).collect();
    let shape = |buffer: &Buffer| {
        let found = || Some((func.largest(buffer).const_shape()?, layout::strides(buffer)?));
        found().ok_or_else(|| {
            bug(Code::LowerFlatten, format!("parameter {} has no constant shape", buffer.name))
                .about_buffer(&buffer.name)
        })
    };
    let shapes = func.params.iter().map(|p| shape(func.buffer(*p))).collect::<Result<_>>()?;
    let outermost = |id: &BufferId| func.buffer(*id).shape.first().and_then(|e| func.size_of(e));
    let dynamic = func.params.iter().map(outermost).collect();
    Ok(Lowered { name: func.name.clone(), params, shapes, sizes: func.sizes.clone(), dynamic, kernels })
}

/// A fault of a pass itself.
pub fn bug(pass: Code, message: impl std::fmt::Display) -> Error {
    Error::bug(pass, message.to_string())
}

/// The elements of a buffer that pass `flatten` has made flat, for a later pass.
///
/// # Errors
/// A fault of `flatten`.
pub fn elements(buffer: &Buffer, pass: Code) -> Result<i64> {
    buffer
        .elements()
        .ok_or_else(|| bug(pass, format!("{} has no constant size", buffer.name)).about_buffer(&buffer.name))
}
