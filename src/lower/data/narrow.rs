//! Narrow elements stay narrow in registers across barriers and shuffles.
//!
//! A thread that keeps f16 elements in registers reads them again after a reduction over threads. Code generation would convert each element
//! once and hold the f32 copy until the last reader, which takes twice the registers, and with them occupancy. A [`SyncKind::Narrow`] before
//! the later readers makes the compiler convert again. It then also computes again what the readers have in common, such as an
//! exponential, so the pass leaves threads of few elements alone.
//!
//! On one H200 layer normalisation of 2048 x 131072 elements (8 blocks a row, 128 threads, 128 elements a thread) took 271 us with the pass
//! and 347 us without. Softmax of 8192 x 4096 (32 elements a thread) took 34.8 us with it and, on another H200, 34.3 us without.

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::permute;
use crate::ir::{BufferId, Expr, Func, Scope, Stmt, Sync, SyncKind, visit};
use crate::target::{REGISTERS_PER_THREAD, Target};
use std::collections::BTreeMap;

/// The most elements of a thread whose f32 copies may stay in registers: an eighth of all that it can have. Measured were 32 elements, which
/// lose by the pass, and 64 and 128, which gain.
const MOST_COPIES: i64 = (REGISTERS_PER_THREAD as i64 + 1) / 8;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let body = std::mem::take(&mut kernel.func.body);
    kernel.func.body = kept(body, &kernel.func);
    Ok(())
}

/// The body with the statements that it still lacks.
pub fn kept(body: Vec<Stmt>, func: &Func) -> Vec<Stmt> {
    let candidates = candidates(&body, func);
    if candidates.is_empty() { body } else { list(body, &candidates, func) }
}

/// Local buffers of many elements, and of whole registers of 8-bit or 16-bit elements that no instruction of a warp holds.
fn candidates(body: &[Stmt], func: &Func) -> Vec<BufferId> {
    let held = permute::held(body);
    let narrow = |id: &BufferId| {
        let buffer = func.buffer(*id);
        let bits = i64::from(buffer.dtype.bits());
        let whole = buffer.elements().filter(|n| *n > MOST_COPIES).and_then(|n| n.checked_mul(bits));
        let whole = whole.is_some_and(|bits| bits % 32 == 0);
        buffer.scope == Scope::Local && matches!(bits, 8 | 16) && whole && !held.contains(id)
    };
    (0..func.buffers.len() as u32).map(BufferId).filter(narrow).collect()
}

/// What has happened to a buffer since it was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// Its elements were converted.
    Converted,
    /// Its elements were converted, and threads have waited for each other since.
    Waited,
}

fn list(body: Vec<Stmt>, candidates: &[BufferId], func: &Func) -> Vec<Stmt> {
    let mut since: BTreeMap<BufferId, Since> = BTreeMap::new();
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body {
        let one = std::slice::from_ref(&stmt);
        let (written, converted) = (visit::writes(one), converted(one, func));
        let waits = waits(one);
        if let Stmt::Sync(Sync { kind: SyncKind::Narrow { buffer }, .. }) = &stmt {
            since.remove(buffer);
        }
        for id in candidates {
            if written.contains(id) {
                since.remove(id);
            } else if converted.contains(id) && since.insert(*id, Since::Converted) == Some(Since::Waited) {
                let name = func.buffer(*id).dtype;
                let narrow = SyncKind::Narrow { buffer: *id };
                out.push(Stmt::Sync(narrow.because(format!("its elements stay {name} in registers until here"))));
            }
        }
        if waits {
            since.values_mut().for_each(|s| *s = Since::Waited);
        }
        for child in visit::children_mut(&mut stmt) {
            *child = list(std::mem::take(child), candidates, func);
        }
        out.push(stmt);
    }
    out
}

/// The buffers whose elements statements convert to a wider type.
fn converted(body: &[Stmt], func: &Func) -> Vec<BufferId> {
    let mut out = Vec::new();
    visit::walk(body, &mut |s| {
        let Stmt::Store(s) = s else { return };
        visit::walk_expr(&s.value, &mut |e| {
            if let Expr::Cast(to, inner) = e
                && let Expr::Load { buffer, .. } = &**inner
                && to.bits() > func.buffer(*buffer).dtype.bits()
            {
                out.push(*buffer);
            }
        });
    });
    out
}

/// Whether threads wait there for others, or exchange registers.
fn waits(body: &[Stmt]) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| match s {
        Stmt::Sync(s) => found |= s.kind.is_meeting() || matches!(s.kind, SyncKind::Await { .. }),
        Stmt::Store(s) => visit::walk_expr(&s.value, &mut |e| found |= matches!(e, Expr::Shuffle(..))),
        _ => {}
    });
    found
}
