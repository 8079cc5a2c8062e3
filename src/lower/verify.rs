//! Holds a lowered kernel to the promises of [`LoweredKernel`]: code generation and the machine rely on them.

use super::copies::SIZES;
use super::{LoweredKernel, bug, units};
use crate::error::{Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Cond, Expr, For, Held, Index, LoopKind, Operand, Scope, Stmt, Store, Sync, Var, visit};

/// Checks every promise; a broken one is a fault of a pass.
pub fn verify(kernel: &LoweredKernel) -> Result<()> {
    let written = visit::writes(&kernel.func.body);
    let mut check = Check { kernel, written, unrolled: Vec::new(), divergent: false, apart: false };
    check.buffers()?;
    check.body(&kernel.func.body, &kernel.env())
}

struct Check<'a> {
    kernel: &'a LoweredKernel,
    /// Buffers that the kernel writes.
    written: Vec<BufferId>,
    unrolled: Vec<Var>,
    /// Threads of a block may be told apart here.
    divergent: bool,
    /// Lanes of a warp may be.
    apart: bool,
}

impl Check<'_> {
    fn broken(&self, message: impl std::fmt::Display) -> Error {
        bug("verify", message)
    }

    fn buffers(&self) -> Result<()> {
        let func = &self.kernel.func;
        let used: Vec<BufferId> = visit::reads(&func.body).into_iter().chain(visit::writes(&func.body)).collect();
        for id in used {
            let b = func.buffer(id);
            let Some(elements) = b.elements().filter(|_| b.shape.len() == 1) else {
                return Err(self.broken(format!("{} is not flat", b.name)));
            };
            match b.scope {
                Scope::Global if !func.params.contains(&id) => {
                    return Err(self.broken(format!("{} is global but no parameter of {}", b.name, func.name)));
                }
                Scope::Shared => {
                    let end = b.offset.map(|o| u64::from(o) + b.dtype.bytes_of(elements as u64));
                    if end.is_none_or(|e| e > u64::from(self.kernel.shared_bytes)) {
                        return Err(self.broken(format!("{} has no place in shared memory", b.name)));
                    }
                }
                Scope::Fragment => return Err(self.broken(format!("{} is still a fragment", b.name))),
                _ => {}
            }
        }
        Ok(())
    }

    fn body(&mut self, body: &[Stmt], env: &Env) -> Result<()> {
        body.iter().try_for_each(|s| self.stmt(s, env))
    }

    fn stmt(&mut self, stmt: &Stmt, env: &Env) -> Result<()> {
        match stmt {
            Stmt::For(l) => self.looped(l, env),
            Stmt::Block(b) => {
                if !b.iters.is_empty() || b.init.is_some() || b.predicate != Cond::TRUE {
                    return Err(
                        self.broken(format!("block {} is more than a label", self.kernel.func.block_name(b.name)))
                    );
                }
                self.body(&b.body, env)
            }
            Stmt::If(i) => {
                let before = (self.divergent, self.apart);
                self.divergent |= self.kernel.thread_vars().iter().any(|(v, _)| i.cond.mentions(*v));
                self.apart |= !units::is_uniform(&i.cond, self.kernel);
                let mut inner = env.clone();
                inner.assume(&i.cond);
                self.body(&i.body, &inner)?;
                (self.divergent, self.apart) = before;
                Ok(())
            }
            Stmt::Store(s) => {
                self.access(s.buffer, &s.indices, s.lanes, env)?;
                self.copy(s)?;
                let mut result = Ok(());
                visit::walk_expr(&s.value, &mut |e| {
                    if let (Expr::Load { buffer, indices, lanes }, true) = (e, result.is_ok()) {
                        result = self.access(*buffer, indices, *lanes, env);
                    }
                });
                result
            }
            Stmt::Sync(s) if self.divergent => {
                let (Sync::Block { reason }
                | Sync::Warp { reason }
                | Sync::Commit { reason }
                | Sync::Wait { reason, .. }) = s;
                Err(self.broken(format!("synchronisation stands under a condition on the thread: {reason}")))
            }
            Stmt::Sync(_) => Ok(()),
            Stmt::Call(call) if self.apart => {
                Err(self.broken(format!("{} stands under a condition that tells lanes apart", call.row)))
            }
            Stmt::Call(call) => call.operands.iter().try_for_each(|o| self.operand(o, env)),
        }
    }

    fn copy(&self, s: &Store) -> Result<()> {
        if !s.asynchronous {
            return Ok(());
        }
        let func = &self.kernel.func;
        let to = func.buffer(s.buffer);
        let from = s.source().filter(|b| func.buffer(*b).scope == Scope::Global && !self.written.contains(b));
        let same = from.is_some_and(|b| func.buffer(b).dtype == to.dtype);
        if !same || to.scope != Scope::Shared || !SIZES.contains(&(to.dtype.bits() * s.lanes)) {
            return Err(self.broken(format!("{} is filled by no copy of 4, 8 or 16 bytes", to.name)));
        }
        Ok(())
    }

    fn looped(&mut self, l: &For, env: &Env) -> Result<()> {
        let name = self.kernel.func.var_name(l.var);
        let Some(extent) = l.extent.as_int().filter(|n| *n > 0) else {
            return Err(self.broken(format!("loop {name} has no constant positive extent")));
        };
        match l.kind {
            LoopKind::Serial => {}
            LoopKind::Unrolled => self.unrolled.push(l.var),
            LoopKind::Vectorized | LoopKind::Bound(_) => {
                return Err(self.broken(format!("loop {name} is still {:?}", l.kind)));
            }
        }
        let mut inner = env.clone();
        inner.bind(l.var, 0, extent - 1);
        self.body(&l.body, &inner)
    }

    fn operand(&self, o: &Operand, env: &Env) -> Result<()> {
        let (scope, name) = (self.kernel.func.buffer(o.buffer).scope, &self.kernel.func.buffer(o.buffer).name);
        match (&o.held, scope) {
            (Held::Registers(_), Scope::Local) => self.access(o.buffer, &o.indices, 1, env),
            (Held::Address(lanes), Scope::Shared) => self.access(o.buffer, &o.indices, *lanes, env),
            (Held::Rows { stride, .. }, Scope::Shared | Scope::Global) => {
                let chunk = 128 / i64::from(self.kernel.func.buffer(o.buffer).dtype.bits());
                if stride % chunk != 0 {
                    return Err(self.broken(format!("rows of {name} are {stride} elements apart")));
                }
                self.access(o.buffer, &o.indices, chunk as u32, env)
            }
            _ => {
                Err(self
                    .broken(format!("an instruction takes {name}, which is {}, otherwise than it lies", scope.name())))
            }
        }
    }

    fn access(&self, buffer: BufferId, indices: &[Index], lanes: u32, env: &Env) -> Result<()> {
        let b = self.kernel.func.buffer(buffer);
        let [index] = indices else { return Err(self.broken(format!("{} has {} indices", b.name, indices.len()))) };
        if b.scope == Scope::Local {
            let mut constant = true;
            index.for_each_var(&mut |v| constant &= self.unrolled.contains(&v));
            if !constant {
                return Err(self.broken(format!("local {} is indexed by what is not unrolled", b.name)));
            }
        }
        let aligned = b.scope == Scope::Local || simplify::divisor(index, env) % i64::from(lanes.max(1)) == 0;
        if lanes == 0 || !aligned {
            return Err(self.broken(format!("{lanes} lanes of {} at an index that alignment does not prove", b.name)));
        }
        Ok(())
    }
}
