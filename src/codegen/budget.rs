//! How large a kernel may be once its loops are written out, counted before LLVM sees any of it.
//!
//! LLVM takes time in proportion to operations, and in proportion to the square of the number of loops: it keeps track of
//! memory over the whole kernel while it moves stores out of each. 3,072 loops of eight steps took 40 s, 512 take 2.

use super::session::bug;
use crate::error::{Code, Error, Result};
use crate::ir::lowered::LoweredKernel;
use crate::ir::lowered::unroll::{self, Copies};
use crate::ir::{Expr, Func, LoopKind, Stmt, Var, visit};

/// Operations, loads and stores of a kernel, with what loops and conditions count for. The largest recommended kernels have a
/// quarter of it.
const MOST_OPERATIONS: u64 = 1 << 18;
/// What a loop at run time counts for.
const LOOP: u64 = 256;
/// What a condition counts for.
const CONDITION: u64 = 8;

/// Refuses a kernel that is too large.
pub fn check(kernel: &LoweredKernel) -> Result<()> {
    let mut count = Count { func: &kernel.func, loops: 0 };
    let operations = count.body(&kernel.func.body, 1, None)?;
    if operations <= MOST_OPERATIONS {
        return Ok(());
    }
    let (name, loops) = (&kernel.func.name, count.loops);
    let message = format!(
        "written out, kernel {name} has {operations} operations and loads, {loops} loops counted as {LOOP} each; \
         {MOST_OPERATIONS} are allowed"
    );
    Err(Error::input(Code::CodegenSize, message)
        .help("unroll fewer loops, or split them and unroll the inner part")
        .help("annotate a loop `unroll_limit 1`, and it is not written out"))
}

struct Count<'a> {
    func: &'a Func,
    loops: u64,
}

impl Count<'_> {
    /// What so many copies of a body come to inside the serial loop `around`.
    fn body(&mut self, body: &[Stmt], copies: u64, around: Option<Var>) -> Result<u64> {
        body.iter().try_fold(0u64, |sum, stmt| Ok(sum.saturating_add(self.stmt(stmt, copies, around)?)))
    }

    fn stmt(&mut self, stmt: &Stmt, copies: u64, around: Option<Var>) -> Result<u64> {
        Ok(match stmt {
            Stmt::Store(store) => copies.saturating_mul(operations(&store.value).saturating_add(1)),
            Stmt::Call(_) | Stmt::Sync(_) | Stmt::Bulk(_) => copies,
            Stmt::Block(b) => self.body(&b.body, copies, around)?,
            Stmt::Elect(e) => self.body(&e.body, copies, around)?.saturating_add(copies),
            Stmt::Role(r) => self.body(&r.body, copies, around)?,
            Stmt::If(i) => self.body(&i.body, copies, around)?.saturating_add(copies.saturating_mul(CONDITION)),
            Stmt::For(l) => {
                let extent = l.extent.as_int();
                let extent = extent.ok_or_else(|| bug("a loop has no constant extent"))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;
    use crate::lower::lower;

    fn refusal(text: &str) -> Option<String> {
        let schedule: Schedule = text.parse().unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        lowered.kernels.iter().find_map(|k| check(k).err()).map(|e| e.message().to_string())
    }

    #[test]
    fn loops_and_operations_that_are_written_out_count() {
        let unrolled = |i| format!("gemm {i}x1024x1024 f32 NN\ntarget sm_90\nunroll i\nunroll j");
        let said = refusal(&unrolled(3)).unwrap();
        assert!(said.contains("3072 loops") && said.contains("262144 are allowed"), "{said}");
        assert_eq!(refusal("gemm 16x16x1024 f32 NN\ntarget sm_90\nunroll i\nunroll j"), None);
        assert_eq!(refusal("gemm 1024x1024x1024 f32 NN\ntarget sm_90"), None);
    }
}
