//! LLVM itself: target machines, diagnostics as errors, the pass pipeline and the way to text.
//!
//! LLVM prints a diagnostic and ends the process unless a handler is installed; with one, emission reports success
//! although it failed, so the log is the verdict. Target machines are kept per thread: making one costs more than a
//! small kernel.

use super::{pairs, poison};
use crate::error::{Code, Error, Result};
use crate::target::Target;
use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription, LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use inkwell::llvm_sys::{LLVMDiagnosticSeverity, LLVMDiagnosticSeverity::*};
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine, TargetTriple,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::rc::Rc;
use std::sync::Once;

const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// The passes: registers from slots, one of equal reads, what a loop does not change out of it, no write that another
/// overwrites unread, loop counters, and the alignments that let the backend make vectors of neighbouring accesses.
/// On every example here the machine code is as long as after LLVM's O1 and O3, in half and a third of the time. Loops
/// are unrolled at emission, where local buffers need it anyway, and no pass here duplicates a loop or a barrier.
const PASSES: &str = "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,reassociate,\
    loop-mssa(licm),early-cse<memssa>,dse,loop(indvars),infer-alignment,instcombine<no-verify-fixpoint>,simplifycfg)";

/// More instructions than this make a module large.
const LARGE: usize = 1000;

/// What LLVM said, in order. Must outlive the context that it listens to.
#[derive(Default)]
pub struct Diagnostics(Box<RefCell<Vec<String>>>);

impl Diagnostics {
    /// Listens to a context.
    pub fn listen(&self, context: &Context) {
        let log: *const RefCell<Vec<String>> = &*self.0;
        // SAFETY: the log is boxed, so its address is stable, and it outlives the context: `compile` declares it
        // first. The handler casts the pointer back to the type it has here.
        unsafe { LLVMContextSetDiagnosticHandler(context.raw(), Some(record), log.cast_mut().cast()) }
    }

    /// An error if LLVM said anything.
    pub fn check(&self, what: &str) -> Result<()> {
        let log = self.0.borrow();
        if log.is_empty() { Ok(()) } else { Err(bug(format!("{what}: {}", log.join("; ")))) }
    }
}

/// Keeps errors and warnings; remarks and notes say nothing of correctness.
extern "C" fn record(info: LLVMDiagnosticInfoRef, log: *mut c_void) {
    // SAFETY: LLVM passes a live diagnostic and the pointer of `listen`; the description is a C string that is ours
    // to dispose of. Nothing in here unwinds: the cell is borrowed for this push alone.
    unsafe {
        let severity: LLVMDiagnosticSeverity = LLVMGetDiagInfoSeverity(info);
        if !matches!(severity, LLVMDSError | LLVMDSWarning) {
            return;
        }
        let text = LLVMGetDiagInfoDescription(info);
        let words = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeMessage(text);
        if let Ok(mut log) = (*log.cast::<RefCell<Vec<String>>>()).try_borrow_mut() {
            log.push(words);
        }
    }
}

/// The target machine for a chip and a PTX ISA version.
pub fn machine(target: &Target, ptx: u32) -> Result<Rc<TargetMachine>> {
    machine_of(target, ptx, OptimizationLevel::Aggressive)
}

/// The machine that writes a module. At the highest level the backend numbers values globally, twice: it takes most of the
/// time of large modules, in which it finds nothing after the passes here.
fn writer(module: &Module, target: &Target, ptx: u32) -> Result<Rc<TargetMachine>> {
    let blocks = module.get_functions().flat_map(|f| f.get_basic_block_iter());
    let large = blocks.flat_map(|b| b.get_instructions()).nth(LARGE).is_some();
    machine_of(target, ptx, if large { OptimizationLevel::Default } else { OptimizationLevel::Aggressive })
}

/// LLVM is initialised when the first kernel is compiled.
static INITIALIZE: Once = Once::new();

/// Whether this process has compiled a kernel by LLVM.
#[cfg(all(feature = "cli", feature = "runtime"))]
pub fn has_compiled() -> bool {
    INITIALIZE.is_completed()
}

fn machine_of(target: &Target, ptx: u32, level: OptimizationLevel) -> Result<Rc<TargetMachine>> {
    type Kept = HashMap<(&'static str, u32, u32), Rc<TargetMachine>>;
    thread_local! {
        static MACHINES: RefCell<Kept> = RefCell::default();
    }
    MACHINES.with_borrow_mut(|known| {
        if let Some(machine) = known.get(&(target.name, ptx, level as u32)) {
            return Ok(Rc::clone(machine));
        }
        let machine = Rc::new(make_machine(target, ptx, level)?);
        known.insert((target.name, ptx, level as u32), Rc::clone(&machine));
        Ok(machine)
    })
}

fn make_machine(target: &Target, ptx: u32, level: OptimizationLevel) -> Result<TargetMachine> {
    INITIALIZE.call_once(|| LlvmTarget::initialize_nvptx(&InitializationConfig::default()));
    let triple = TargetTriple::create(TRIPLE);
    let backend = LlvmTarget::from_triple(&triple).map_err(|e| bug(e.to_string()))?;
    let features = format!("+ptx{ptx}");
    let made =
        backend.create_target_machine(&triple, target.name, &features, level, RelocMode::PIC, CodeModel::Default);
    let machine = made.ok_or_else(|| bug(format!("LLVM has no target machine for {} {features}", target.name)))?;
    machine.set_asm_verbosity(true);
    Ok(machine)
}

/// Sets what the passes and the backend must know before anything is built.
pub fn prepare(module: &Module, machine: &TargetMachine) {
    module.set_triple(&TargetTriple::create(TRIPLE));
    module.set_data_layout(&machine.get_target_data().get_data_layout());
}

/// Runs the passes and leaves no flag to the backend that depends on a branch, and no pair of bytes.
pub fn optimize(module: &Module, target: &Target, ptx: u32, log: &Diagnostics) -> Result<()> {
    let machine = machine(target, ptx)?;
    module.run_passes(PASSES, &machine, PassBuilderOptions::create()).map_err(|e| bug(e.to_string()))?;
    log.check("optimizing")?;
    poison::keep_what_holds_for_all(module)?;
    pairs::as_words(module)
}

/// Writes an optimized module as PTX.
pub fn to_ptx(module: &Module, target: &Target, ptx: u32, log: &Diagnostics) -> Result<String> {
    let machine = writer(module, target, ptx)?;
    let buffer = machine.write_to_memory_buffer(module, FileType::Assembly).map_err(|e| bug(e.to_string()))?;
    log.check("writing PTX")?;
    let text = buffer.as_slice();
    Ok(String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned())
}

/// A fault of the translation.
pub fn bug(message: impl Into<String>) -> Error {
    Error::bug(Code::CodegenLlvm, message)
}
