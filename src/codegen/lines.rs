//! Lines of the lowered text as debug locations: LLVM carries them through its passes and prints `.file` and `.loc`.
//!
//! The emission kind of the compile unit is DebugDirectivesOnly: `.loc` lines and no DWARF sections, so that ptxas optimises as
//! it does without them. LLVM's C interface cannot make such a unit, so [`module`] parses it from text.

use super::builder::Builder;
use super::session::bug;
use crate::error::Result;
use crate::ir::lowered::{self, Lowered, LoweredKernel};
use crate::ir::{Stmt, visit};
use inkwell::context::Context;
use inkwell::llvm_sys::core::{LLVMSetCurrentDebugLocation2, LLVMValueAsMetadata};
use inkwell::llvm_sys::debuginfo::{LLVMDIBuilderCreateDebugLocation, LLVMSetSubprogram};
use inkwell::llvm_sys::prelude::LLVMMetadataRef;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::values::{AsValueRef, FunctionValue};
use std::collections::HashMap;
use std::fmt::Write;

/// The named metadata that holds a subprogram for each kernel, in launch order.
const SUBPROGRAMS: &str = "warploom.subprograms";

/// The lines of one kernel's statements in the text of the whole lowered program.
#[derive(Debug, Default)]
pub struct Lines {
    /// The line of `func NAME(..)`, from 1.
    func: u32,
    /// Line and column of each statement by its address: the kernel outlives its translation, and nothing changes it.
    statements: HashMap<usize, (u32, u32)>,
}

/// The lines of each kernel's statements in [`lower::print`].
pub fn of(lowered: &Lowered) -> Vec<Lines> {
    let mut first = 1;
    let mut out = Vec::new();
    for kernel in &lowered.kernels {
        out.push(Lines::of_kernel(kernel, first));
        // Kernels are printed with an empty line between them.
        first += lowered::print_kernel(kernel).lines().count() + 1;
    }
    out
}

impl Lines {
    fn of_kernel(kernel: &LoweredKernel, first: usize) -> Lines {
        let text = lowered::print_kernel(kernel);
        let columns: Vec<usize> = text.lines().map(|l| l.len() - l.trim_start().len() + 1).collect();
        let func = text.lines().position(|l| l.starts_with("func ")).unwrap_or(0);
        let mut statements = HashMap::new();
        let mut all = Vec::new();
        visit::walk(&kernel.func.body, &mut |s| all.push(s));
        for (stmt, line) in all.into_iter().zip(lowered::statement_lines(kernel)) {
            let place = ((first + line) as u32, columns.get(line).map_or(1, |c| *c as u32));
            statements.insert(address(stmt), place);
            if let Stmt::Store(store) = stmt {
                statements.insert(address(store), place);
            }
        }
        Lines { func: (first + func) as u32, statements }
    }
}

fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of) as usize
}

/// An empty module with a compile unit for a file of that name, and a subprogram for each kernel.
pub fn module<'c>(context: &'c Context, lowered: &Lowered, lines: &[Lines], file: &str) -> Result<Module<'c>> {
    let first = 6;
    let nodes: Vec<String> = (0..lines.len()).map(|n| format!("!{}", first + n)).collect();
    let mut text = format!(
        "!llvm.dbg.cu = !{{!0}}\n!llvm.module.flags = !{{!1}}\n!{SUBPROGRAMS} = !{{{}}}\n\
         !0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !2, producer: \"warploom\", isOptimized: true, \
         runtimeVersion: 0, emissionKind: DebugDirectivesOnly)\n\
         !1 = !{{i32 2, !\"Debug Info Version\", i32 3}}\n!2 = !DIFile(filename: \"{}\", directory: \"\")\n\
         !3 = !DISubroutineType(types: !4)\n!4 = !{{null}}\n",
        nodes.join(", "),
        escaped(file)
    );
    for ((node, kernel), lines) in nodes.iter().zip(&lowered.kernels).zip(lines) {
        let (name, line) = (escaped(&kernel.func.name), lines.func);
        let _ = writeln!(
            text,
            "{node} = distinct !DISubprogram(name: \"{name}\", scope: !2, file: !2, line: {line}, type: !3, scopeLine: {line}, \
             spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)"
        );
    }
    let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "lines");
    let module = context.create_module_from_ir(buffer).map_err(|e| bug(format!("debug locations: {e}")))?;
    module.set_name(&lowered.name);
    Ok(module)
}

/// A string of LLVM's assembly language: every byte but letters, digits and `._-/` in hexadecimal.
fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("\\{b:02X}") }).collect()
}

/// The debug locations of the kernel that is being written.
pub struct Locations<'l> {
    lines: &'l Lines,
    subprogram: LLVMMetadataRef,
}

impl<'l> Locations<'l> {
    /// Gives the function of the n-th kernel its subprogram.
    pub fn attach(
        module: &Module,
        function: FunctionValue,
        kernel: usize,
        lines: &'l [Lines],
    ) -> Result<Locations<'l>> {
        let nodes = module.get_global_metadata(SUBPROGRAMS);
        let (Some(node), Some(lines)) = (nodes.get(kernel), lines.get(kernel)) else {
            return Err(bug("a kernel without a subprogram"));
        };
        // SAFETY: the node is a live DISubprogram of this module, which `module` made, and the function is one of it.
        let subprogram = unsafe {
            let subprogram = LLVMValueAsMetadata(node.as_value_ref());
            LLVMSetSubprogram(function.as_value_ref(), subprogram);
            subprogram
        };
        Ok(Locations { lines, subprogram })
    }

    /// The location of the kernel itself.
    pub fn func(&self, b: &Builder) -> LLVMMetadataRef {
        self.at(b, (self.lines.func, 1))
    }

    /// The location of a statement, or of a store inside one; none where the text has no line for it.
    pub fn statement<T>(&self, b: &Builder, stmt: &T) -> Option<LLVMMetadataRef> {
        Some(self.at(b, *self.lines.statements.get(&address(stmt))?))
    }

    fn at(&self, b: &Builder, (line, column): (u32, u32)) -> LLVMMetadataRef {
        // SAFETY: context and subprogram are alive as long as the builder's module.
        unsafe {
            LLVMDIBuilderCreateDebugLocation(b.context.raw(), line, column, self.subprogram, std::ptr::null_mut())
        }
    }
}

/// Gives a location to what an LLVM builder writes from now on.
pub fn set(ir: &inkwell::builder::Builder, location: LLVMMetadataRef) {
    // SAFETY: the builder is alive; the location is a DILocation of its context, or null for none.
    unsafe { LLVMSetCurrentDebugLocation2(ir.as_mut_ptr(), location) }
}
