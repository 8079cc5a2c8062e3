//! Finds remainders that a loop counts instead of dividing: where rings go round.
//!
//! The stage of an iteration is a remainder by the number of stages. Where that is no power of two, each division is a chain of
//! multiplications, and a warpgroup that multiplies alone leaves the tensor cores idle for as long. A remainder of a sum that
//! grows by the same amount from iteration to iteration is carried from one to the next instead.

use crate::error::Result;
use crate::index::Points;
use crate::ir::lowered::{LoweredKernel, parity};
use crate::ir::simplify::{Affine, Env, affine, bounds};
use crate::ir::{For, Index, IndexOp, LoopKind, Stmt, Sync, SyncKind, Var, visit};
use crate::target::Target;

/// The most values of unrolled loops that a remainder is counted for.
const MOST_VALUES: i64 = 1 << 8;

/// A loop around, with its iterations: those in its body, where it is one at run time.
struct Around {
    var: Var,
    iterations: i64,
    serial: bool,
    /// The remainders that it counts.
    counters: Vec<Index>,
}

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    if kernel.func.mbarriers.is_empty() {
        return Ok(());
    }
    let mut found = Counters { env: kernel.env_of_loops(), around: Vec::new() };
    let mut body = std::mem::take(&mut kernel.func.body);
    found.list(&mut body);
    kernel.func.body = body;
    Ok(())
}

struct Counters {
    env: Env,
    around: Vec<Around>,
}

impl Counters {
    /// Roles have loops of the same variable: each loop counts what its own body has.
    fn list(&mut self, body: &mut [Stmt]) {
        for stmt in body {
            let before = self.around.len();
            match &*stmt {
                Stmt::For(l) => self.around.extend(around(l)),
                other => indices(other, &self.env).iter().for_each(|index| self.index(index)),
            }
            visit::children_mut(stmt).into_iter().for_each(|child| self.list(child));
            if let (Stmt::For(l), Some(own)) = (stmt, self.around.get_mut(before)) {
                l.code.counters = std::mem::take(&mut own.counters);
            }
            self.around.truncate(before);
        }
    }

    /// The remainders inside an index, inner ones too.
    fn index(&mut self, index: &Index) {
        for (atom, _) in affine(index).terms {
            let Index::Bin(op, a, b) = &atom else { continue };
            if let (IndexOp::FloorMod, Some(modulus)) = (op, b.as_int()) {
                self.remainder(a, modulus);
            }
            self.index(a);
            self.index(b);
        }
    }

    /// Adds a remainder to the innermost loop at run time that changes it, if it grows by less than the modulus there.
    fn remainder(&mut self, dividend: &Index, modulus: i64) {
        if modulus < 3 || modulus & (modulus - 1) == 0 {
            return;
        }
        let Some(at) = self.around.iter().rposition(|l| l.serial && dividend.mentions(l.var)) else { return };
        let Around { var, iterations, .. } = self.around[at];
        let inside = self.around[at + 1..].iter().filter(|l| dividend.mentions(l.var));
        let inside: Vec<(Var, i64)> = inside.map(|l| (l.var, l.iterations)).collect();
        for point in Points::within(&inside, MOST_VALUES).into_iter().flatten() {
            let values = point.into_iter().map(|(var, value)| (var, Index::Int(value))).collect();
            let sum = affine(&visit::subst_index(dividend, &values));
            let step = sum.coefficient(var).saturating_mul(iterations);
            let mut rest = sum.clone();
            rest.terms.retain(|(atom, _)| atom.as_var() != Some(var));
            if (1..modulus).contains(&step) && !rest.mentions(var) && self.is_natural(&rest) {
                let counted = sum.to_index().floormod(modulus);
                let counters = &mut self.around[at].counters;
                if !counters.contains(&counted) {
                    counters.push(counted);
                }
            }
        }
    }

    fn is_natural(&self, sum: &Affine) -> bool {
        bounds(&sum.to_index(), &self.env).is_some_and(|(least, _)| least >= 0)
    }
}

/// A loop as the indices inside it see it; the walk of a persistent kernel counts nothing.
fn around(l: &For) -> Option<Around> {
    let walk = matches!(l.kind, LoopKind::Persistent { .. });
    let serial = !l.is_written_out();
    (!walk).then(|| Around { var: l.var, iterations: l.copies(), serial, counters: Vec::new() })
}

/// The indices of a statement itself, without those of what it contains, as code generation has them.
fn indices(stmt: &Stmt, env: &Env) -> Vec<Index> {
    let mut out = Vec::new();
    let mut add = |index: &Index| {
        out.push(index.clone());
        index.clone()
    };
    match stmt {
        Stmt::If(i) => {
            visit::map_cond(&i.cond, &mut add);
        }
        Stmt::Sync(Sync { kind: SyncKind::Await { slot, phase }, .. }) => {
            add(&slot.index);
            add(&parity(phase, env));
        }
        Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_) | Stmt::Sync(_) => {
            visit::map_stmt(stmt.clone(), &mut add, &mut |expr| expr);
        }
        Stmt::For(_) | Stmt::Block(_) | Stmt::Elect(_) | Stmt::Role(_) => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::print;
    use crate::loom::Schedule;

    #[test]
    fn the_loops_of_roles_count_what_their_own_bodies_have() {
        let schedule: Schedule = include_str!("../../../examples/window_sum_roles.loom").parse().unwrap();
        let lowered = crate::lower::lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let func = &lowered.kernels[0].func;
        let loops = visit::loops(&func.body).into_iter().map(|l| &l.code.counters).filter(|c| !c.is_empty());
        let counted = loops.map(|all| all.iter().map(|i| print::index(func, i)).collect::<Vec<_>>());
        assert_eq!(counted.collect::<Vec<_>>(), [["i_t % 3", "i_t % 6"], ["i_t % 3", "(i_t + 3) % 6"]]);
    }
}
