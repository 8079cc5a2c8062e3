//! From Lowered to PTX. Translates, decides nothing, and never fails on what `lower` made.
//!
//! [`compile`] makes one LLVM module per program: an entry point per kernel, all shared memory one dynamic array at the
//! offsets of the plan, local buffers as registers. LLVM 19 optimizes it and writes PTX for the lowest ISA version that
//! the target and the features in use need. The same input gives the same text, byte for byte. Whatever LLVM says
//! against it is an [`Error`]; nothing ends the process.

mod access;
mod body;
mod builder;
mod bulk;
mod cast;
mod choice;
mod copy;
mod counters;
mod describe;
mod expr;
mod float8;
mod halves;
mod index;
mod instruction;
mod launch;
mod lines;
mod listing;
mod math;
mod packed;
mod pairs;
#[cfg(test)]
mod pairs_tests;
mod permute;
mod poison;
#[cfg(test)]
mod poison_tests;
mod product;
mod ranges;
mod realign;
mod session;
mod slices;
mod value;
mod words;

#[cfg(all(feature = "cli", feature = "runtime"))]
pub(crate) use session::has_compiled;

use crate::error::{Code, Error, Result};
use crate::ir::lowered::{Lowered, LoweredKernel};
use crate::kernel::Kernels;
use crate::target::{Features, Target};
use inkwell::AddressSpace;
use inkwell::context::Context;
use inkwell::module::{Linkage, Module};
use inkwell::values::PointerValue;

/// The address space of shared memory.
const SHARED: u16 = 3;
/// The name of the array of all shared memory.
const SHARED_MEMORY: &str = "shared_memory";
/// The alignment of shared memory: what the widest swizzle needs.
const SHARED_ALIGN: u32 = 1024;

/// Compiles a lowered program for a target.
///
/// # Errors
/// [`crate::error::Fault::Bug`] for anything that `lower` should have refused, and for anything that LLVM refuses.
pub fn compile(lowered: &Lowered, target: &Target) -> Result<Kernels> {
    build(lowered, target, None, |_| ())
}

/// Like [`compile`], with `.loc` directives that lead from each instruction to the line of [`crate::ir::lowered::print`] that it comes from;
/// `.file` names `file`, which is to hold that text. The instructions are the same.
///
/// # Errors
/// As [`compile`].
pub fn compile_with_lines(lowered: &Lowered, target: &Target, file: &str) -> Result<Kernels> {
    build(lowered, target, Some(file), |_| ())
}

/// Compiles, and shows the module as the backend gets it.
fn build(lowered: &Lowered, target: &Target, file: Option<&str>, show: impl FnOnce(&Module)) -> Result<Kernels> {
    let mut used = lowered.features();
    // Kernels with mbarriers use what came with bulk copies where the chip has it: elections, waits that sleep.
    used.set(
        Features::TMA,
        used.contains(Features::TMA) || used.contains(Features::MBARRIER) && target.has(Features::TMA),
    );
    used.set(Features::FP8, target.has(Features::FP8) && lowered.kernels.iter().any(float8::is_used_by));
    let ptx_version = target.ptx_for(used);
    let machine = session::machine(target, ptx_version)?;
    // Before the context, which it outlives.
    let log = session::Diagnostics::default();
    let context = Context::create();
    log.listen(&context);
    let lines = if file.is_some() { lines::of(lowered) } else { Vec::new() };
    let module = match file {
        Some(file) => lines::module(&context, lowered, &lines, file)?,
        None => context.create_module(&lowered.name),
    };
    session::prepare(&module, &machine);
    let mut listing = listing::Listing::default();
    let entries = describe::entries(lowered);
    let builder = builder::Builder::new(&context, &module, target.features);
    emit(&builder, lowered, &entries, (&lines, &mut listing))?;
    module.verify().map_err(|e| Error::bug(Code::CodegenVerify, e.to_string()))?;
    let llvm = module.print_to_string().to_string();
    session::optimize(&module, target, ptx_version, &log)?;
    show(&module);
    let ptx = session::to_ptx(&module, target, ptx_version, &log)?;
    let heads: Vec<_> = entries.iter().zip(&lowered.kernels).map(|(e, k)| describe::head(e, k, target)).collect();
    let text = listing.annotate(&ptx, &heads);
    describe::kernels(lowered, target, ptx_version, entries, text, llvm)
}

/// The version of the LLVM that is linked: `19.1.7`.
pub fn llvm_version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

fn emit<'c>(
    builder: &builder::Builder<'c, '_>,
    lowered: &Lowered,
    entries: &[String],
    (lines, listing): (&[lines::Lines], &mut listing::Listing),
) -> Result<()> {
    let shared = || shared_memory(builder.context, builder.module);
    let shared = lowered.kernels.iter().any(uses_shared).then(shared);
    for (number, entry) in entries.iter().enumerate() {
        let kernel = &lowered.kernels[number];
        body::emit(builder, (kernel, number, entry), shared, (lines, listing))
            .map_err(|e| e.within(format!("generating code for {}", kernel.func.name)))?;
    }
    Ok(())
}

fn uses_shared(kernel: &LoweredKernel) -> bool {
    let buffers = kernel.func.buffers.iter().any(|b| b.scope == crate::ir::Scope::Shared);
    buffers || !kernel.func.mbarriers.is_empty()
}

/// `.extern .shared .align 1024 .b8 shared_memory[]`: its size is the launch's.
fn shared_memory<'c>(context: &'c Context, module: &Module<'c>) -> PointerValue<'c> {
    let bytes = context.i8_type().array_type(0);
    let global = module.add_global(bytes, Some(AddressSpace::from(SHARED)), SHARED_MEMORY);
    global.set_linkage(Linkage::External);
    global.set_alignment(SHARED_ALIGN);
    global.as_pointer_value()
}
