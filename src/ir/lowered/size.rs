//! How large a kernel is once its loops are written out, and how large it may be.
//!
//! LLVM takes time in proportion to operations, and in proportion to the square of the number of loops: it keeps track of
//! memory over the whole kernel while it moves stores out of each. 3,072 loops of eight steps took 40 s, 512 take 2.

use crate::ir::lowered::LoweredKernel;
use crate::ir::{Expr, LoopKind, Stmt, visit};

/// Operations, loads and stores of a kernel, with what loops and conditions count for. The largest recommended kernels have a
/// quarter of it.
pub const MOST_OPERATIONS: u64 = 1 << 18;
/// What a loop at run time counts for.
pub const LOOP: u64 = 256;
/// What a condition counts for.
const CONDITION: u64 = 8;

/// How large a kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Operations, loads and stores, with what loops and conditions count for.
    pub operations: u64,
    /// Loops that are left at run time.
    pub loops: u64,
}

impl Size {
    /// That of a kernel; `None` where a loop has no constant extent.
    pub fn of(kernel: &LoweredKernel) -> Option<Size> {
        let mut count = Count { loops: 0 };
        let operations = count.body(&kernel.func.body, 1)?;
        Some(Size { operations, loops: count.loops })
    }

    /// Whether the compiler takes it.
    pub fn fits(&self) -> bool {
        self.operations <= MOST_OPERATIONS
    }
}

struct Count {
    loops: u64,
}

impl Count {
    /// What so many copies of a body come to.
    fn body(&mut self, body: &[Stmt], copies: u64) -> Option<u64> {
        body.iter().try_fold(0u64, |sum, stmt| Some(sum.saturating_add(self.stmt(stmt, copies)?)))
    }

    fn stmt(&mut self, stmt: &Stmt, copies: u64) -> Option<u64> {
        Some(match stmt {
            Stmt::Store(store) => copies.saturating_mul(operations(&store.value).saturating_add(1)),
            Stmt::Call(_) | Stmt::Sync(_) | Stmt::Bulk(_) => copies,
            Stmt::Block(b) => self.body(&b.body, copies)?,
            Stmt::Elect(e) => self.body(&e.body, copies)?.saturating_add(copies),
            Stmt::Role(r) => self.body(&r.body, copies)?,
            Stmt::If(i) => self.body(&i.body, copies)?.saturating_add(copies.saturating_mul(CONDITION)),
            Stmt::For(l) => {
                // The tiles of a persistent loop may follow from a dynamic size: its body is written once.
                if !matches!(l.kind, LoopKind::Persistent { .. }) {
                    l.extent.as_int()?;
                }
                let inside = self.body(&l.body, copies.saturating_mul(u64::try_from(l.copies()).ok()?))?;
                if l.is_written_out() {
                    return Some(inside);
                }
                self.loops = self.loops.saturating_add(copies);
                inside.saturating_add(copies.saturating_mul(LOOP))
            }
        })
    }
}

/// Operations and loads of a value.
fn operations(value: &Expr) -> u64 {
    let mut out = 0;
    visit::walk_expr(value, &mut |_| out += 1);
    out
}
