//! Checks the promises of [`LoweredKernel`]: code generation and the simulator rely on them.

use super::threads::{self, LANES};
use super::{LoweredKernel, exit};
use crate::error::{Code, Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{
    Axis, BufferId, BulkCopy, Cond, Expr, For, Held, Index, LoopKind, Operand, Peers, RoleBody, Scope, Slot, Stmt,
    Store, Sync, SyncKind, Var, Way, visit,
};

/// Bits that one cp.async can copy.
pub const CP_ASYNC_BITS: [u32; 3] = [32, 64, 128];

/// Checks every promise; a broken one is a fault of a pass.
///
/// # Errors
/// `lower.verify`, a fault of warploom.
pub fn verify(kernel: &LoweredKernel) -> Result<()> {
    let written = visit::writes(&kernel.func.body);
    let mut check =
        Check { kernel, written, unrolled: Vec::new(), divergent: false, apart: false, elected: false, warps: 0 };
    check.buffers()?;
    check.relaxed()?;
    check.waits()?;
    check.stays()?;
    check.body(&kernel.func.body, &kernel.env())?;
    check.roles()
}

pub(super) fn is_relaxed(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Sync(Sync { kind: SyncKind::ClusterRelaxed, .. }))
}

/// Whether statements read or write memory.
fn touches(body: &[Stmt]) -> bool {
    let mut found = false;
    visit::walk(body, &mut |s| found |= matches!(s, Stmt::Store(_) | Stmt::Call(_) | Stmt::Bulk(_)));
    found
}

/// Whether a list, or one inside of it, releases the next kernel before it waits.
fn releases_first(body: &[Stmt]) -> bool {
    let is_release = |s: &Stmt| matches!(s, Stmt::Sync(Sync { kind: SyncKind::GridRelease, .. }));
    let (wait, release) = (body.iter().position(is_wait), body.iter().position(is_release));
    let own = release.zip(wait).is_some_and(|(release, wait)| release < wait);
    own || body.iter().flat_map(visit::children).any(|child| releases_first(child))
}

fn is_wait(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Sync(Sync { kind: SyncKind::GridWait, .. }))
}

/// The waits of PDL, if each memory access of a list is behind one: in the list, or in the conditions that all accesses are under.
fn waits_first(body: &[Stmt]) -> Option<usize> {
    let mut waits = 0;
    for stmt in body {
        match stmt {
            s if is_wait(s) => return Some(waits + 1),
            Stmt::If(i) if touches(&i.body) => waits += waits_first(&i.body)?,
            s if touches(std::slice::from_ref(s)) => return None,
            _ => {}
        }
    }
    (waits > 0).then_some(waits)
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
    /// One thread runs what is here.
    elected: bool,
    /// Warps that the roles so far have.
    warps: u32,
}

impl Check<'_> {
    fn broken(&self, message: impl std::fmt::Display) -> Error {
        Error::bug(Code::LowerVerify, message.to_string())
    }

    fn buffers(&self) -> Result<()> {
        let func = &self.kernel.func;
        let used: Vec<BufferId> = visit::reads(&func.body).into_iter().chain(visit::writes(&func.body)).collect();
        for id in used {
            let b = func.buffer(id);
            let Some(elements) = b.elements().filter(|_| b.shape.len() == 1) else {
                return Err(self.broken(format!("{} is not flat", b.name)).about_buffer(&b.name));
            };
            match b.scope {
                Scope::Global if !func.params.contains(&id) => {
                    return Err(self
                        .broken(format!("{} is global but no parameter of {}", b.name, func.name))
                        .about_buffer(&b.name));
                }
                Scope::Shared => {
                    let end = b.offset.map(|o| u64::from(o) + b.dtype.bytes_of(elements as u64));
                    if end.is_none_or(|e| e > u64::from(self.kernel.shared_bytes)) {
                        return Err(self
                            .broken(format!("{} has no place in shared memory", b.name))
                            .about_buffer(&b.name));
                    }
                }
                Scope::Fragment => {
                    return Err(self.broken(format!("{} is still a fragment", b.name)).about_buffer(&b.name));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A relaxed cluster barrier orders no memory accesses, so the kernel has none before it.
    fn relaxed(&self) -> Result<()> {
        let body = &self.kernel.func.body;
        let (mut all, mut first) = (0, 0);
        visit::walk(body, &mut |s| all += usize::from(is_relaxed(s)));
        for (n, _) in body.iter().enumerate().filter(|(_, s)| is_relaxed(s)) {
            first += usize::from(!touches(&body[..n]));
        }
        if all == first { Ok(()) } else { Err(self.broken("a relaxed cluster barrier has memory accesses before it")) }
    }

    /// A kernel with PDL has one wait, by all threads: before its first memory access, which may be where a condition chooses between lists, or, if it is
    /// concurrent, at its end. The kernel before a concurrent kernel releases it after its own wait.
    fn waits(&self) -> Result<()> {
        let (kernel, body, mut all) = (self.kernel, &self.kernel.func.body, 0);
        visit::walk(body, &mut |s| all += usize::from(is_wait(s)));
        let at = body.iter().position(is_wait);
        let last = at.is_some_and(|n| n + 1 == body.len()).then_some(1);
        let in_place = if kernel.concurrent { last } else { waits_first(body) };
        match (kernel.grid_dependency.is_some(), all, in_place) {
            (false, 0, _) => {}
            (true, all, Some(waits)) if all == waits => {}
            _ if kernel.concurrent => {
                return Err(self.broken("a concurrent kernel does not wait at its end"));
            }
            _ => return Err(self.broken("a kernel with programmatic dependent launch does not wait first")),
        }
        match kernel.precedes_concurrent && !kernel.concurrent && releases_first(body) {
            true => Err(self.broken("a kernel releases a concurrent kernel before its own wait")),
            false => Ok(()),
        }
    }

    /// A block that others of its cluster reach ends behind all that they do there: it waits for each of it, or for them.
    fn stays(&self) -> Result<()> {
        let body = &self.kernel.func.body;
        match exit::reach(body) && !exit::meet_last(body) && !exit::are_awaited(self.kernel) {
            true => Err(self.broken("a block may end while another one of its cluster still reaches it")),
            false => Ok(()),
        }
    }

    fn body(&mut self, body: &[Stmt], env: &Env) -> Result<()> {
        body.iter().try_for_each(|s| self.stmt(s, env))
    }

    fn stmt(&mut self, stmt: &Stmt, env: &Env) -> Result<()> {
        if self.elected && matches!(stmt, Stmt::Store(_) | Stmt::Call(_)) {
            return Err(self.broken("an elected thread runs a statement of other threads"));
        }
        match stmt {
            Stmt::For(l) => self.looped(l, env),
            Stmt::Block(b) => {
                if !b.iters.is_empty() || b.init.is_some() || b.predicate != Cond::TRUE {
                    return Err(self
                        .broken(format!("block {} is more than a label", self.kernel.func.block_name(b.name)))
                        .about_block(self.kernel.func.block_name(b.name)));
                }
                self.body(&b.body, env)
            }
            Stmt::If(i) => {
                let before = (self.divergent, self.apart);
                self.divergent |= self.kernel.thread_vars().iter().any(|(v, _)| i.cond.mentions(*v));
                self.apart |= !threads::is_uniform(&i.cond, self.kernel);
                let mut inner = env.clone();
                inner.assume(&i.cond);
                self.body(&i.body, &inner)?;
                (self.divergent, self.apart) = before;
                Ok(())
            }
            Stmt::Store(s) => {
                self.access(s.buffer, &s.indices, s.lanes, env)?;
                self.copy(s, env)?;
                let mut result = Ok(());
                let mut env = env.clone();
                for (var, extent) in visit::gathered(&s.value) {
                    env.bind(var, 0, extent.saturating_sub(1));
                }
                visit::walk_expr(&s.value, &mut |e| {
                    result = match (e, &result) {
                        (Expr::Load { buffer, indices, lanes }, Ok(())) => self.access(*buffer, indices, *lanes, &env),
                        (Expr::Shuffle(..), Ok(())) if self.apart => {
                            Err(self.broken("a shuffle inside a branch that depends on the lane"))
                        }
                        (_, Ok(())) => Ok(()),
                        (_, Err(e)) => Err(e.clone()),
                    };
                });
                result
            }
            Stmt::Sync(Sync { kind: SyncKind::PrefetchLine { buffer, at }, .. }) => {
                self.access(*buffer, std::slice::from_ref(at), 1, env)
            }
            Stmt::Sync(s) if self.divergent => {
                Err(self.broken(format!("synchronisation inside a branch that depends on the thread: {}", s.reason)))
            }
            Stmt::Sync(s) => self.sync(s),
            Stmt::Elect(_) if self.apart || self.elected => {
                Err(self.broken("a thread is elected in code that not all lanes of its warp reach"))
            }
            Stmt::Elect(e) => {
                self.elected = true;
                let inside = self.body(&e.body, env);
                self.elected = false;
                inside
            }
            Stmt::Bulk(copy) => self.bulk(copy, env),
            Stmt::Call(call) if self.apart => {
                Err(self.broken(format!("{} inside a branch that depends on the lane", call.row)))
            }
            Stmt::Call(call) => call.operands.iter().try_for_each(|o| self.operand(o, env)),
            Stmt::Role(r) => self.role(r, env),
        }
    }

    /// The slices are whole warps of the block, one after the other, and their threads are numbered along one axis.
    fn role(&mut self, r: &RoleBody, env: &Env) -> Result<()> {
        let [(thread, threads)] = self.kernel.thread_vars()[..] else {
            return Err(self.broken("the threads of roles are numbered along several axes"));
        };
        let last = i64::from(r.first + r.warps) * LANES;
        if r.first != self.warps || r.warps == 0 || last > threads || self.divergent || self.elected {
            return Err(self.broken(format!("a role begins at warp {} and has {}", r.first, r.warps)));
        }
        self.warps = r.first + r.warps;
        let mut inner = env.clone();
        inner.bind(thread, 0, i64::from(r.warps) * LANES - 1);
        self.body(&r.body, &inner)
    }

    /// Roles have all warps of the block, and together no more registers than the block was launched with.
    fn roles(&self) -> Result<()> {
        let role = |s: &Stmt| match s {
            Stmt::Role(r) => Some((r.warps, r.regs)),
            _ => None,
        };
        let roles: Vec<(u32, Option<u32>)> = self.kernel.func.body.iter().filter_map(role).collect();
        let threads = self.kernel.threads();
        if !roles.is_empty() && self.warps.saturating_mul(LANES as u32) != threads {
            return Err(self.broken(format!("the roles have {} warps of a block of {threads} threads", self.warps)));
        }
        if roles.iter().all(|(_, regs)| regs.is_none()) {
            return Ok(());
        }
        let mut sum = 0;
        for (warps, regs) in roles {
            let Some(regs) = regs.filter(|n| n.is_multiple_of(8) && (24..=256).contains(n) && warps.is_multiple_of(4))
            else {
                return Err(self.broken(format!("a role of {warps} warps cannot have {regs:?} registers a thread")));
            };
            sum += warps * regs;
        }
        let all = self.kernel.registers_at_start() * self.warps;
        if sum > all {
            let message = format!("the roles ask for {sum} registers a lane of their warps, and the block has {all}");
            return Err(self.broken(message));
        }
        Ok(())
    }

    /// One thread does what is one thread's, all do the rest; every mbarrier has its place.
    fn sync(&self, s: &Sync) -> Result<()> {
        let anyone = matches!(s.kind, SyncKind::Arrive { .. } | SyncKind::Await { .. });
        if !anyone && s.kind.is_of_one_thread() != self.elected {
            return Err(self.broken(format!("{} is executed by the wrong threads: {}", s.kind.word(), s.reason)));
        }
        match s.kind.clone().slot_mut() {
            Some(slot) => self.slot(slot),
            None => Ok(()),
        }
    }

    fn slot(&self, slot: &Slot) -> Result<()> {
        let array = self.kernel.func.mbarriers.get(slot.barrier as usize);
        let end = array.and_then(|a| Some(u64::from(a.offset?) + 8 * u64::from(a.slots)));
        let whole = array.is_some_and(|a| a.offset.is_some_and(|o| o % 8 == 0) && a.slots > 0 && a.arrivals > 0);
        if !whole || end.is_none_or(|e| e > u64::from(self.kernel.shared_bytes)) {
            return Err(self.broken(format!("mbarrier {} has no place in shared memory", slot.barrier)));
        }
        Ok(())
    }

    /// A box of the map's array from a multiple of 16 bytes of a row on, from or to a multiple of 128 bytes of shared memory.
    fn bulk(&self, copy: &BulkCopy, env: &Env) -> Result<()> {
        let func = &self.kernel.func;
        let (stage, name) = (func.buffer(copy.shared), &func.buffer(copy.shared).name);
        let map = self.kernel.maps.get(copy.map as usize).filter(|m| m.buffer == copy.global);
        let Some(map) = map.filter(|m| m.tile.len() == copy.coordinates.len() && m.extents.len() == m.tile.len())
        else {
            return Err(self.broken(format!("the copy of {name} has no tensor map")).about_buffer(name));
        };
        if !self.elected || stage.scope != Scope::Shared || func.buffer(copy.global).scope != Scope::Global {
            return Err(self
                .broken(format!("{name} is copied in bulk by several threads, or from elsewhere"))
                .about_buffer(name));
        }
        if let Way::Load { full, .. } = &copy.way {
            self.slot(full)?;
        }
        let [index] = copy.indices.as_slice() else {
            return Err(self.broken(format!("{name} has {} indices", copy.indices.len())).about_buffer(name));
        };
        let bits = i64::from(stage.dtype.bits());
        let aligned = stage.offset.is_some_and(|o| o % 128 == 0 && o % (8 * map.swizzle).max(1) == 0);
        if !aligned || simplify::divisor(index, env) * bits % 1024 != 0 {
            return Err(self
                .broken(format!("a TMA box in {name} does not begin at a multiple of 128 bytes"))
                .about_buffer(name));
        }
        let array = func.buffer(copy.global);
        let first = copy.coordinates.last().map_or(0, |first| simplify::divisor(first, env));
        if i128::from(first) * i128::from(array.dtype.bits()) % 128 != 0 {
            return Err(self
                .broken(format!("a TMA box of {} does not begin at a multiple of 16 bytes of a row", array.name))
                .about_buffer(&array.name));
        }
        Ok(())
    }

    fn copy(&self, s: &Store, env: &Env) -> Result<()> {
        let shared = self.kernel.func.buffer(s.buffer).scope == Scope::Shared && !s.asynchronous;
        if let Some(to) = &s.remote {
            let cluster = i64::from(self.kernel.cluster());
            let reached = match &to.peers {
                Peers::First(blocks) => i64::from(*blocks) <= cluster,
                Peers::One(rank) => simplify::bounds(rank, env).is_some_and(|(low, high)| low >= 0 && high < cluster),
            };
            if !shared || !reached {
                let name = &self.kernel.func.buffer(s.buffer).name;
                return Err(self.broken(format!("{name} is stored to blocks that it cannot reach")).about_buffer(name));
            }
            to.full.iter().try_for_each(|full| self.slot(full))?;
        }
        if !s.asynchronous {
            return Ok(());
        }
        let func = &self.kernel.func;
        let to = func.buffer(s.buffer);
        let from = s.source().filter(|b| func.buffer(*b).scope == Scope::Global && !self.written.contains(b));
        let same = from.is_some_and(|b| func.buffer(b).dtype == to.dtype);
        if !same || to.scope != Scope::Shared || !CP_ASYNC_BITS.contains(&(to.dtype.bits() * s.lanes)) {
            return Err(self
                .broken(format!("{} is filled by no copy of 4, 8 or 16 bytes", to.name))
                .about_buffer(&to.name));
        }
        Ok(())
    }

    /// The largest extent of a persistent loop whose blocks follow from a dynamic size.
    fn walked(&self, l: &For) -> Option<i64> {
        let is_clipped = |c: &&super::Clipped| c.axis == Axis::BlockX && c.value(&self.kernel.func) == l.extent;
        let walks = matches!(l.kind, LoopKind::Persistent { .. });
        self.kernel.clipped.iter().find(is_clipped).filter(|_| walks)?;
        self.kernel.launch.iter().find(|x| x.axis == Axis::BlockX).map(|x| i64::from(x.extent))
    }

    fn looped(&mut self, l: &For, env: &Env) -> Result<()> {
        let name = self.kernel.func.var_name(l.var);
        let Some(extent) = l.extent.as_int().or_else(|| self.walked(l)).filter(|n| *n > 0) else {
            return Err(self.broken(format!("loop {name} has no constant positive extent")).about_loop(name));
        };
        let copies = l.copies();
        if copies < 1 || extent % copies != 0 {
            return Err(self
                .broken(format!("{extent} iterations of loop {name} do not come in bodies of {copies}"))
                .about_loop(name));
        }
        match l.kind {
            LoopKind::Serial => {}
            LoopKind::Unrolled => self.unrolled.push(l.var),
            LoopKind::Persistent { .. } => {
                let x = self.kernel.launch.iter().find(|x| x.axis == Axis::BlockX);
                if x.is_none_or(|x| x.var != l.var || i64::from(x.extent) != extent) {
                    return Err(self
                        .broken(format!("persistent loop {name} does not match the grid"))
                        .about_loop(name));
                }
            }
            LoopKind::Vectorized | LoopKind::Bound { .. } => {
                return Err(self.broken(format!("loop {name} is still {:?}", l.kind)).about_loop(name));
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
                    return Err(self.broken(format!("rows of {name} are {stride} elements apart")).about_buffer(name));
                }
                self.access(o.buffer, &o.indices, chunk as u32, env)
            }
            (Held::Descriptor(_), Scope::Shared) => {
                let chunk = 128 / self.kernel.func.buffer(o.buffer).dtype.bits();
                self.access(o.buffer, &o.indices, chunk, env)
            }
            _ => Err(self.broken(format!(
                "an instruction reads {name}, which is {}, in another layout than it has",
                scope.name()
            ))),
        }
    }

    fn access(&self, buffer: BufferId, indices: &[Index], lanes: u32, env: &Env) -> Result<()> {
        let b = self.kernel.func.buffer(buffer);
        let [index] = indices else {
            return Err(self.broken(format!("{} has {} indices", b.name, indices.len())).about_buffer(&b.name));
        };
        if b.scope == Scope::Local {
            let mut constant = true;
            index.for_each_var(&mut |v| constant &= self.unrolled.contains(&v));
            if !constant {
                return Err(self
                    .broken(format!("local {} is indexed by what is not unrolled", b.name))
                    .about_buffer(&b.name));
            }
        }
        let aligned = b.scope == Scope::Local || simplify::divisor(index, env) % i64::from(lanes.max(1)) == 0;
        if lanes == 0 || !aligned {
            return Err(self
                .broken(format!("{lanes} lanes of {} at an index that alignment does not prove", b.name))
                .about_buffer(&b.name));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
