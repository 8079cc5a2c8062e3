//! `copy_with BUFFER cp_async`: the stores of the buffer become cp.async copies.
//!
//! A copy moves 4, 8 or 16 bytes from global to shared memory: the width that `vectors` proved for the innermost loop. It may read its
//! source at any time until the thread has waited for it, so the kernel must not write the source.

use crate::error::{Code, Error, Result};
use crate::ir::lowered::{CP_ASYNC_BITS, LoweredKernel};
use crate::ir::{Block, BufferId, CopyKind, Func, Stmt, Store, visit};
use crate::lower::bug;
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let mut body = std::mem::take(&mut kernel.func.body);
    let written = visit::writes(&body);
    stages(&mut body, &kernel.func, &written)?;
    kernel.func.body = body;
    Ok(())
}

fn stages(body: &mut [Stmt], func: &Func, written: &[BufferId]) -> Result<()> {
    for stmt in body {
        match stmt {
            Stmt::Block(b) if b.copy_with.as_ref().is_some_and(|c| c.kind == CopyKind::CpAsync) => {
                start(b, func, written)?;
            }
            other => {
                for child in visit::children_mut(other) {
                    stages(child, func, written)?;
                }
            }
        }
    }
    Ok(())
}

/// Makes each store of a stage the start of a copy.
fn start(block: &mut Block, func: &Func, written: &[BufferId]) -> Result<()> {
    let stage = func.block_name(block.name);
    let through_l1 = block.copy_with.as_ref().is_some_and(|c| c.through_l1);
    let mut result = Ok(());
    visit::each_store(&mut block.body, &mut |s| {
        if result.is_ok() {
            result = check(s, stage, func, written);
        }
        s.asynchronous = true;
        s.through_l1 = through_l1;
    });
    result
}

fn check(s: &Store, stage: &str, func: &Func, written: &[BufferId]) -> Result<()> {
    let Some(source) = s.source() else {
        return Err(bug(Code::LowerCopies, format!("block {stage} is not a copy")).about_block(stage));
    };
    let name = &func.buffer(source).name;
    let refuse = |code: Code, message: String| {
        let step = format!("copy_with {stage} cp_async");
        Error::input(code, format!("{step}: {message}"))
            .about_block(stage)
            .about_buffer(name)
            .of_step(step)
            .help(format!("copy_with {stage} sync copies through registers"))
    };
    if written.contains(&source) {
        return Err(refuse(
            Code::LowerCopySource,
            format!("the kernel writes {name}, which a copy may read at any time until the copy is complete"),
        ));
    }
    let bits = func.buffer(s.buffer).dtype.bits() * s.lanes;
    if !CP_ASYNC_BITS.contains(&bits) {
        let what = if s.lanes == 1 {
            format!("one element of {name}, {bits} bits")
        } else {
            format!("{} elements of {name}, {bits} bits", s.lanes)
        };
        return Err(refuse(Code::LowerCopySize, format!("a thread copies {what}, and not 4, 8 or 16 bytes"))
            .help("vectorize the innermost loop of the copy; rows must be aligned to the vectors in both memories"));
    }
    Ok(())
}
