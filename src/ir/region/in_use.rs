//! Which box of a buffer within a block is in use at a time.
//!
//! A buffer is in use inside the innermost body that holds all its accesses. The loops around that body are at one iteration
//! at a time, so their variables stay symbolic in the box. A shared buffer belongs to the block: its box is taken over all
//! threads, whether they are loops of the program still or variables of a launch.

use super::{Counted, Range, Region, Touch, contains, search, touched};
use crate::ir::simplify::Env;
use crate::ir::{BufferId, For, Func, LoopKind, Scope, Stmt, Var, visit};

/// The box of a buffer that is in use at a time; `None` if it is not used or its size is not constant. `env` knows the
/// variables that no loop defines; it is taken over all values of those in `threads`, below their extents, and over the loops
/// bound to threads if it is shared.
pub fn in_use(func: &Func, id: BufferId, threads: &[(Var, i64)], env: &Env) -> Option<Region> {
    let shared = func.buffer(id).scope == Scope::Shared;
    let mut search = Search { func, id, shared, threads: threads.to_vec(), env: env.clone() };
    let body = search.innermost(&func.body)?;
    let region = search.region(body, Touch::Both, &search.env)?;
    let region: Region =
        region.into_iter().zip(search.unconditional(body)?).map(|(r, plain)| smaller(r, plain)).collect();
    region.iter().all(|r| r.extent.as_int().is_some()).then_some(region)
}

/// The smaller of two ranges that both hold every index in use. A condition on a thread's own index may leave a few indices near
/// zero of one access, which together with those of another access are more than the thread has.
fn smaller(narrowed: Range, plain: Range) -> Range {
    match (narrowed.extent.as_int(), plain.extent.as_int()) {
        (Some(n), Some(p)) if p < n => plain,
        _ => narrowed,
    }
}

struct Search<'a> {
    func: &'a Func,
    id: BufferId,
    /// Whether the box is taken over all threads.
    shared: bool,
    threads: Vec<(Var, i64)>,
    /// Knows the loops around.
    env: Env,
}

impl<'a> Search<'a> {
    fn region(&self, body: &[Stmt], touch: Touch, env: &Env) -> Option<Region> {
        touched(self.func, &self.by_threads(body), self.id, touch, env)
    }

    /// The box whatever conditions leave of it.
    fn unconditional(&self, body: &[Stmt]) -> Option<Region> {
        let counted = Counted { conditions: false, empty: true };
        search(self.func, &self.by_threads(body), self.id, Touch::Both, &self.env, counted)
    }

    /// The body in loops over the threads, so that conditions on them tighten the box.
    fn by_threads(&self, body: &[Stmt]) -> Vec<Stmt> {
        let wrap = |b, &(var, n): &(Var, i64)| vec![Stmt::For(For::new(var, n, LoopKind::Serial, b))];
        self.threads.iter().fold(body.to_vec(), wrap)
    }

    /// The innermost body that holds all accesses, with the loops around it added to what is known.
    fn innermost(&mut self, body: &'a [Stmt]) -> Option<&'a [Stmt]> {
        let id = self.id;
        let mut users = body.iter().filter(|s| uses(s, id));
        let (first, second) = (users.next()?, users.next());
        if second.is_some() {
            return Some(body);
        }
        match first {
            Stmt::For(l) => {
                let extent = l.extent.as_int()?;
                let mut inner = self.env.clone();
                inner.bind(l.var, 0, extent - 1);
                if l.is_of_threads() {
                    self.threads.extend(self.shared.then_some((l.var, extent)));
                } else if self.carried(l, &inner) {
                    return Some(body);
                }
                self.env = inner;
                self.innermost(&l.body)
            }
            Stmt::Block(b) if b.iters.is_empty() => self.innermost(&b.body),
            Stmt::If(i) => self.innermost(&i.body),
            Stmt::Elect(e) => self.innermost(&e.body),
            Stmt::Role(r) => self.innermost(&r.body),
            Stmt::Block(_) | Stmt::Store(_) | Stmt::Sync(_) | Stmt::Call(_) | Stmt::Bulk(_) => Some(body),
        }
    }

    /// Whether an iteration may read what an earlier one wrote at a place that moves with the loop.
    fn carried(&self, l: &For, env: &Env) -> bool {
        let Some(reads) = self.region(&l.body, Touch::Reads, env) else { return false };
        let Some(writes) = self.region(&l.body, Touch::Writes, env) else { return false };
        let moves = |r: &Region| r.iter().any(|d| d.min.mentions(l.var) || d.extent.mentions(l.var));
        if !moves(&reads) && !moves(&writes) {
            return false;
        }
        // Of two boxes that hold what an iteration reads either may be known to be in what it writes: a condition that excludes all iterations but the
        // first leaves a box that does not move.
        let counted = Counted { conditions: false, empty: true };
        let anyway = search(self.func, &self.by_threads(&l.body), self.id, Touch::Reads, env, counted);
        !contains(&writes, &reads, env) && !anyway.is_some_and(|reads| contains(&writes, &reads, env))
    }
}

fn uses(stmt: &Stmt, id: BufferId) -> bool {
    let body = std::slice::from_ref(stmt);
    visit::reads(body).contains(&id) || visit::writes(body).contains(&id)
}
