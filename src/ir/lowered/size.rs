//! How large a kernel is once its loops are written out, and how large it may be.
//!
//! LLVM takes time in proportion to operations, and in proportion to the square of the number of loops: it keeps track of
//! memory over the whole kernel while it moves stores out of each. 3,072 loops of eight steps took 40 s, 512 take 2.

use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::unroll::{self, Copies};
use crate::ir::{Expr, Func, LoopKind, Stmt, Var, visit};

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
        let mut count = Count { func: &kernel.func, loops: 0 };
        let operations = count.body(&kernel.func.body, 1, None)?;
        Some(Size { operations, loops: count.loops })
    }

    /// Whether the compiler takes it.
    pub fn fits(&self) -> bool {
        self.operations <= MOST_OPERATIONS
    }
}

struct Count<'a> {
    func: &'a Func,
    loops: u64,
}

impl Count<'_> {
    /// What so many copies of a body come to inside the serial loop `around`.
    fn body(&mut self, body: &[Stmt], copies: u64, around: Option<Var>) -> Option<u64> {
        body.iter().try_fold(0u64, |sum, stmt| Some(sum.saturating_add(self.stmt(stmt, copies, around)?)))
    }

    fn stmt(&mut self, stmt: &Stmt, copies: u64, around: Option<Var>) -> Option<u64> {
        Some(match stmt {
            Stmt::Store(store) => copies.saturating_mul(operations(&store.value).saturating_add(1)),
            Stmt::Call(_) | Stmt::Sync(_) | Stmt::Bulk(_) => copies,
            Stmt::Block(b) => self.body(&b.body, copies, around)?,
            Stmt::Elect(e) => self.body(&e.body, copies, around)?.saturating_add(copies),
            Stmt::Role(r) => self.body(&r.body, copies, around)?,
            Stmt::If(i) => self.body(&i.body, copies, around)?.saturating_add(copies.saturating_mul(CONDITION)),
            Stmt::For(l) => {
                let extent = l.extent.as_int()?;
                let written = match unroll::copies(self.func, l, extent, around) {
                    _ if matches!(l.kind, LoopKind::Persistent { .. }) => Copies::Some(1),
                    written => written,
                };
                match written {
                    Copies::All => {
                        self.body(&l.body, copies.saturating_mul(u64::try_from(extent).unwrap_or(0)), around)?
                    }
                    Copies::Some(n) => {
                        self.loops = self.loops.saturating_add(copies);
                        let inside = copies.saturating_mul(u64::try_from(n).unwrap_or(1));
                        self.body(&l.body, inside, Some(l.var))?.saturating_add(copies.saturating_mul(LOOP))
                    }
                }
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
