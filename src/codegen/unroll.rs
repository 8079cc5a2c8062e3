//! Which loops are written out.
//!
//! Loops of kind `Unrolled` are written out whole: local buffers are registers, and a register has no index. A serial
//! loop is written out where that pays: loads of several iterations run at once, addresses become a base and a
//! constant, and the loop's own instructions vanish beside a small body. LLVM's unrolling is off, so that what is
//! written here is what runs.

use crate::ir::{For, LoopKind, Note, Stmt};

/// A serial loop is written out whole if it comes to at most this many statements.
const WHOLE: i64 = 512;
/// Copies of the body of a larger loop come to at most this many statements ..
const PART: i64 = 256;
/// .. and are at most this many.
const MOST_COPIES: i64 = 8;

/// How many iterations stand in the body of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// All of them, so there is no loop.
    All,
    /// This many, which divides the extent; 1 leaves the loop as it is.
    Some(i64),
}

/// What becomes of a loop.
pub fn copies(l: &For, extent: i64) -> Copies {
    let limit = l.notes.get(&Note::UnrollLimit).copied().unwrap_or(i64::MAX).max(1);
    if extent <= 1 {
        return Copies::All;
    }
    if l.kind != LoopKind::Serial {
        return if limit >= extent { Copies::All } else { Copies::Some(divisor(extent, limit)) };
    }
    // A loop around a loop or a barrier has enough in it; its copies would only be long.
    let Some(size) = straight_size(&l.body) else { return Copies::Some(1) };
    if size.saturating_mul(extent) <= WHOLE && limit >= extent {
        return Copies::All;
    }
    Copies::Some(divisor(extent, limit.min(MOST_COPIES).min(PART / size.max(1))))
}

/// The largest divisor of the extent that is not above the limit.
fn divisor(extent: i64, limit: i64) -> i64 {
    (1..=limit.clamp(1, extent.max(1)).min(1024)).rev().find(|d| extent % d == 0).unwrap_or(1)
}

/// Statements of a body once its inner loops are written out; `None` if a loop or a barrier is left.
fn straight_size(body: &[Stmt]) -> Option<i64> {
    body.iter().try_fold(0i64, |sum, stmt| {
        let size = match stmt {
            Stmt::Store(_) => 1,
            Stmt::Sync(_) => return None,
            Stmt::Block(b) => straight_size(&b.body)?,
            Stmt::If(i) => straight_size(&i.body)?,
            Stmt::For(l) => {
                let extent = l.extent.as_int()?;
                match copies(l, extent) {
                    Copies::All => straight_size(&l.body)?.saturating_mul(extent),
                    Copies::Some(_) => return None,
                }
            }
        };
        Some(sum.saturating_add(size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ir::{BufferId, Expr, Store, Sync, Var};

    fn statements(count: usize) -> Vec<Stmt> {
        let value = Expr::constant(DType::F32, 0.0);
        vec![Stmt::Store(Store { buffer: BufferId(0), indices: vec![], value, lanes: 1 }); count]
    }

    fn nest(extent: i64, kind: LoopKind, body: Vec<Stmt>) -> For {
        For::new(Var(0), extent, kind, body)
    }

    #[test]
    fn small_loops_are_written_out_and_long_ones_in_part() {
        assert_eq!(copies(&nest(8, LoopKind::Serial, statements(64)), 8), Copies::All);
        assert_eq!(copies(&nest(2048, LoopKind::Serial, statements(1)), 2048), Copies::Some(8));
        assert_eq!(copies(&nest(32, LoopKind::Serial, statements(64)), 32), Copies::Some(4));
        assert_eq!(copies(&nest(1027, LoopKind::Serial, statements(1)), 1027), Copies::Some(1));
        assert_eq!(copies(&nest(32, LoopKind::Serial, statements(200)), 32), Copies::Some(1));
    }

    #[test]
    fn unrolled_loops_are_written_out_up_to_their_limit() {
        let mut l = nest(64, LoopKind::Unrolled, statements(64));
        assert_eq!(copies(&l, 64), Copies::All);
        l.notes.insert(Note::UnrollLimit, 10);
        assert_eq!(copies(&l, 64), Copies::Some(8));
    }

    #[test]
    fn a_limit_of_one_keeps_a_serial_loop() {
        let mut l = nest(4, LoopKind::Serial, statements(1));
        l.notes.insert(Note::UnrollLimit, 1);
        assert_eq!(copies(&l, 4), Copies::Some(1));
    }

    #[test]
    fn loops_around_loops_and_barriers_stay() {
        let inner = Stmt::For(nest(1000, LoopKind::Serial, statements(4)));
        assert_eq!(copies(&nest(4, LoopKind::Serial, vec![inner]), 4), Copies::Some(1));
        let barrier = Stmt::Sync(Sync::Block { reason: String::new() });
        assert_eq!(copies(&nest(4, LoopKind::Serial, vec![barrier]), 4), Copies::Some(1));
        let small = Stmt::For(nest(4, LoopKind::Serial, statements(4)));
        assert_eq!(copies(&nest(4, LoopKind::Serial, vec![small]), 4), Copies::All);
    }
}
