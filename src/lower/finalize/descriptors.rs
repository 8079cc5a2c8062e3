//! Splits the address of a wgmma tile: the inline PTX of the MMA adds what is constant of it, where a loop at run time changes the rest.
//!
//! Added in front of the instruction, LLVM would take the sums of all tiles out of loops, each into a register that has to become
//! uniform again; ptxas adds a constant to a register that is uniform already.

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::simplify::affine;
use crate::ir::{Held, Index, LoopKind, Stmt, Var, visit};
use crate::target::Target;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    split(&mut kernel.func.body, &mut Vec::new());
    Ok(())
}

/// `serial` are the loops at run time around, with the iterations in their bodies.
fn split(body: &mut [Stmt], serial: &mut Vec<(Var, i64)>) {
    for stmt in body {
        let before = serial.len();
        match stmt {
            Stmt::For(l) if !l.is_written_out() && !matches!(l.kind, LoopKind::Persistent { .. }) => {
                serial.push((l.var, l.copies()));
            }
            Stmt::Call(call) => {
                for operand in &mut call.operands {
                    if let (Held::Descriptor(d), [index]) = (&mut operand.held, operand.indices.as_slice()) {
                        d.adds_constant = varies(index, serial);
                    }
                }
            }
            _ => {}
        }
        visit::children_mut(stmt).into_iter().for_each(|child| split(child, serial));
        serial.truncate(before);
    }
}

/// Whether an index varies with a loop, once the iterations in the loop's body are written out.
fn varies(index: &Index, serial: &[(Var, i64)]) -> bool {
    let written: visit::Map = serial.iter().map(|(var, copies)| (*var, *var * *copies)).collect();
    let sum = affine(&visit::subst_index(index, &written));
    serial.iter().any(|(var, _)| sum.mentions(*var))
}
