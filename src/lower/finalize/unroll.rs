//! Which loops are written out, and how many iterations the bodies of the others hold.
//!
//! After the pass [`For::copies`] says how many iterations the body of each loop holds; one that holds all of them is no loop any more.
//!
//! Loops of kind `Unrolled` are written out whole: local buffers are registers, and a register has no index. A serial
//! loop is written out where that pays: loads of several iterations run at once, addresses become a base and a
//! constant, and the loop's own instructions vanish beside a small body. LLVM's unrolling is off, and a loop with a
//! limit tells ptxas not to unroll it (`.pragma "nounroll"`).

use crate::error::{Code, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::{BufferId, Expr, For, Func, Index, LoopKind, Note, Scope, Stmt, Var, visit};
use crate::lower::bug;
use crate::target::Target;

/// A serial loop is written out whole if it comes to at most this many statements.
const WHOLE: i64 = 512;
/// Copies of the body of a larger loop come to at most this many statements ..
const PART: i64 = 256;
/// .. and are at most this many.
const MOST_COPIES: i64 = 8;
/// Elements read in a loop that is written out, but the same in each iteration of the loop around it: LLVM reads them
/// before that loop and keeps them in registers, of which a thread has 255.
const HELD: i64 = 128;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    let mut body = std::mem::take(&mut kernel.func.body);
    decide(&kernel.func, &mut body, None)?;
    kernel.func.body = body;
    Ok(())
}

/// Decides on every loop of a body inside the serial loop `around`, outer ones first: what is decided of an inner loop depends on what is
/// left around it.
fn decide(func: &Func, body: &mut [Stmt], around: Option<Var>) -> Result<()> {
    for stmt in body {
        let mut inside = around;
        if let Stmt::For(l) = stmt {
            inside = decided(func, l, around)?;
        }
        for child in visit::children_mut(stmt) {
            decide(func, child, inside)?;
        }
    }
    Ok(())
}

/// Decides on a loop; the serial loop that its body is in.
fn decided(func: &Func, l: &mut For, around: Option<Var>) -> Result<Option<Var>> {
    if matches!(l.kind, LoopKind::Persistent { .. }) {
        return Ok(None);
    }
    let extent = l.extent.as_int();
    let extent = extent.ok_or_else(|| {
        bug(Code::LowerOperations, format!("loop {} has no constant extent", func.var_name(l.var)))
            .about_loop(func.var_name(l.var))
    })?;
    let copies = copies(func, l, extent, around);
    l.code.copies = u32::try_from(copies).ok();
    Ok(if copies == extent { around } else { Some(l.var) })
}

/// Whether no loop is left of a body.
pub fn is_straight(func: &Func, body: &[Stmt]) -> bool {
    straight_size(func, body, None).is_some()
}

/// How many iterations are in the body of a loop inside the serial loop `around`: all, so that there is no loop, or a divisor of the
/// extent; 1 leaves the loop as it is.
fn copies(func: &Func, l: &For, extent: i64, around: Option<Var>) -> i64 {
    let limit = l.notes.get(&Note::UnrollLimit).copied().unwrap_or(i64::MAX).max(1);
    if extent <= 1 {
        return extent;
    }
    if l.kind != LoopKind::Serial {
        return if limit >= extent { extent } else { divisor(extent, limit) };
    }
    // A loop around a loop or a barrier has enough in it; its copies would only be long, unless they are asked for: the slots of
    // a ring have constant addresses in as many copies.
    let Some(size) = straight_size(func, &l.body, Some(l.var)) else {
        let asked = if limit == i64::MAX { 1 } else { limit.min(MOST_COPIES) };
        return divisor(extent, asked);
    };
    let whole = size.saturating_mul(extent) <= WHOLE && around.is_none_or(|a| held(func, l, a) <= HELD);
    if whole && limit >= extent {
        return extent;
    }
    let most = limit.min(MOST_COPIES).min(PART / size.max(1)).min(extent - 1);
    divisor(extent, most)
}

/// The largest divisor of the extent that is not above the limit.
fn divisor(extent: i64, limit: i64) -> i64 {
    (1..=limit.clamp(1, extent.max(1)).min(1024)).rev().find(|d| extent % d == 0).unwrap_or(1)
}

/// Statements of a body once its inner loops are written out; `None` if a loop or a barrier is left.
fn straight_size(func: &Func, body: &[Stmt], around: Option<Var>) -> Option<i64> {
    body.iter().try_fold(0i64, |sum, stmt| {
        let size = match stmt {
            Stmt::Store(_) | Stmt::Call(_) => 1,
            Stmt::Sync(_) | Stmt::Bulk(_) | Stmt::Elect(_) | Stmt::Role(_) => return None,
            Stmt::Block(b) => straight_size(func, &b.body, around)?,
            Stmt::If(i) => straight_size(func, &i.body, around)?,
            Stmt::For(l) => {
                let extent = l.extent.as_int()?;
                if copies(func, l, extent, around) < extent {
                    return None;
                }
                straight_size(func, &l.body, around)?.saturating_mul(extent)
            }
        };
        Some(sum.saturating_add(size))
    })
}

/// Elements that the loop reads, once written out, at addresses that do not depend on the loop around it.
fn held(func: &Func, l: &For, around: Var) -> i64 {
    let inner: Vec<(Var, i64)> =
        std::iter::once(l).chain(visit::loops(&l.body)).map(|l| (l.var, l.extent.as_int().unwrap_or(1))).collect();
    let mut reads: Vec<(BufferId, &Index, u32)> = Vec::new();
    visit::walk(&l.body, &mut |s| {
        let Stmt::Store(store) = s else { return };
        visit::walk_expr(&store.value, &mut |e| {
            if let Expr::Load { buffer, indices, lanes } = e
                && let [index] = indices.as_slice()
                && func.buffers.get(buffer.0 as usize).is_some_and(|b| b.scope != Scope::Local)
                && !index.mentions(around)
                && !reads.contains(&(*buffer, index, *lanes))
            {
                reads.push((*buffer, index, *lanes));
            }
        });
    });
    let copies = |index: &Index| {
        inner.iter().filter(|(v, _)| index.mentions(*v)).fold(1i64, |n, (_, extent)| n.saturating_mul(*extent))
    };
    reads.iter().fold(0, |sum, (_, index, lanes)| sum + copies(index).saturating_mul(i64::from(*lanes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ir::{Buffer, Store, SyncKind};

    fn statements(count: usize) -> Vec<Stmt> {
        let value = Expr::constant(DType::F32, 0.0);
        vec![Stmt::Store(Store::new(BufferId(0), vec![], value)); count]
    }

    fn nest(extent: i64, kind: LoopKind, body: Vec<Stmt>) -> For {
        For::new(Var(0), extent, kind, body)
    }

    fn copies(l: &For, extent: i64) -> i64 {
        super::copies(&Func::default(), l, extent, None)
    }

    #[test]
    fn small_loops_are_written_out_and_long_ones_in_part() {
        assert_eq!(copies(&nest(8, LoopKind::Serial, statements(64)), 8), 8);
        assert_eq!(copies(&nest(2048, LoopKind::Serial, statements(1)), 2048), 8);
        assert_eq!(copies(&nest(32, LoopKind::Serial, statements(64)), 32), 4);
        assert_eq!(copies(&nest(1027, LoopKind::Serial, statements(1)), 1027), 1);
        assert_eq!(copies(&nest(32, LoopKind::Serial, statements(200)), 32), 1);
    }

    #[test]
    fn unrolled_loops_are_written_out_up_to_their_limit() {
        let mut l = nest(64, LoopKind::Unrolled, statements(64));
        assert_eq!(copies(&l, 64), 64);
        l.notes.insert(Note::UnrollLimit, 10);
        assert_eq!(copies(&l, 64), 8);
    }

    #[test]
    fn a_limit_of_one_keeps_a_serial_loop() {
        let mut l = nest(4, LoopKind::Serial, statements(1));
        l.notes.insert(Note::UnrollLimit, 1);
        assert_eq!(copies(&l, 4), 1);
    }

    #[test]
    fn loops_around_loops_and_barriers_stay() {
        let inner = Stmt::For(nest(1000, LoopKind::Serial, statements(4)));
        assert_eq!(copies(&nest(4, LoopKind::Serial, vec![inner]), 4), 1);
        let barrier = Stmt::Sync(SyncKind::Block.because(String::new()));
        assert_eq!(copies(&nest(4, LoopKind::Serial, vec![barrier]), 4), 1);
        let small = Stmt::For(nest(4, LoopKind::Serial, statements(4)));
        assert_eq!(copies(&nest(4, LoopKind::Serial, vec![small]), 4), 4);
    }

    #[test]
    fn a_loop_whose_reads_would_fill_the_registers_of_the_loop_around_it_stays() {
        let mut func = Func::default();
        let shape = vec![Index::Int(1 << 20)];
        let [a, c] = ["A", "C"].map(|n| func.add_buffer(Buffer::new(n, DType::F32, shape.clone(), Scope::Global)));
        let [i, j] = ["i", "j"].map(|n| func.add_var(n));
        let read = |index: Index| {
            let value = Expr::load(a, vec![index]);
            For::new(j, 256, LoopKind::Serial, vec![Stmt::Store(Store::new(c, vec![Index::Var(j)], value))])
        };
        assert_eq!(super::copies(&func, &read(Index::Var(j)), 256, Some(i)), 8);
        assert_eq!(super::copies(&func, &read(i * 256 + Index::Var(j)), 256, Some(i)), 256);
        assert_eq!(super::copies(&func, &read(Index::Var(j)), 256, None), 256);
    }
}
