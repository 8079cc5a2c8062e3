//! `pipeline L stages=N` over staged buffers that TMA fills or empties, without a role.
//!
//! The loop stays a loop: iteration `it` uses stage `it % N` of a [`Ring`]. The loads of the first iterations are issued before the
//! loop, the later ones N - 1 - in_flight iterations ahead; one mbarrier of each stage counts the bytes of all its buffers.
//! An iteration waits for its stage before the first statement that touches a buffer of the ring. Buffers that TMA stores
//! empty use the stages in the same order.

use super::copy::{self, Kind};
use super::ring::{self, Ring, iteration_number};
use crate::error::{Code, Error, Result};
use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Cond, Elect, For, Func, Index, LoopKind, Stmt, Way, visit};
use crate::lower::data::bulk;
use crate::lower::map::blocks::guarded;

/// Iterations of a ring that only stores up to which its loop is written out.
const WRITTEN_OUT: i64 = 16;

/// Pipelines every loop whose staged buffers TMA copies.
pub fn rings(body: Vec<Stmt>, func: &mut Func, written: &[BufferId], env: &Env) -> Result<Vec<Stmt>> {
    list(body, func, written, env, &Index::Int(0))
}

/// `number` is the number of iterations of the enclosing loops that have begun before this one.
fn list(body: Vec<Stmt>, func: &mut Func, written: &[BufferId], env: &Env, number: &Index) -> Result<Vec<Stmt>> {
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body {
        let (mut inner, mut inside) = (env.clone(), number.clone());
        if let Stmt::For(l) = &stmt {
            inner.bind_loop(l.var, &l.extent);
            inside = iteration_number(l, number);
        }
        for child in visit::children_mut(&mut stmt) {
            *child = list(std::mem::take(child), func, written, &inner, &inside)?;
        }
        match stmt {
            Stmt::For(l) if l.pipeline.is_some() && l.body.iter().any(is_copy) => {
                out.extend(Pipelined::new(l, func, written, number)?.statements(func, env));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

fn is_copy(stmt: &Stmt) -> bool {
    let mut copies = false;
    if let Stmt::Elect(e) = stmt {
        visit::walk(&e.body, &mut |s| copies |= matches!(s, Stmt::Bulk(_)));
    }
    copies
}

/// A pipelined loop, taken apart.
struct Pipelined {
    l: For,
    extent: i64,
    ring: Ring,
    /// Iterations that loads are ahead.
    ahead: i64,
    /// The number of the loop's first iteration.
    first: Index,
    /// Issues the loads of an iteration, if there are any.
    fill: Option<Elect>,
    compute: Vec<Stmt>,
}

impl Pipelined {
    fn new(mut l: For, func: &mut Func, written: &[BufferId], number: &Index) -> Result<Pipelined> {
        let name = func.var_name(l.var).to_string();
        let refuse =
            |why: String| Error::input(Code::LowerPipeline, format!("pipeline {name}: {why}")).about_loop(&name);
        let (Some(p), Some(extent)) = (l.pipeline.take(), l.extent.as_int()) else {
            return Err(refuse("the loop has no constant extent".to_string()).help("remove the step"));
        };
        let body = std::mem::take(&mut l.body);
        let other = body.iter().filter_map(|s| copy::filled(s, func, written)).find(|f| f.kind == Kind::Shared);
        if let Some(other) = other {
            let buffer = &func.buffer(other.buffer).name;
            return Err(refuse(format!("{buffer} is copied by threads, and another staged buffer by tma"))
                .about_buffer(buffer)
                .help("give all staged buffers under the loop one kind of copy"));
        }
        let stages = i64::from(p.stages.max(2));
        let in_flight = ring::in_flight(p, stages, &name, &body)?;
        // `order` waits for the groups accordingly.
        l.pipeline = (in_flight > 0).then_some(p);
        let ring = Ring::new(stages, Vec::new());
        let (ahead, first) = ((stages - 1 - in_flight).max(0), number.clone() * extent);
        let mut pipelined = Pipelined { l, extent, ring, ahead, first, fill: None, compute: Vec::new() };
        for stmt in body {
            pipelined.add(stmt, func)?;
        }
        pipelined.set_up(func);
        Ok(pipelined)
    }

    /// Adds a statement of the loop to the loads or to the compute.
    fn add(&mut self, mut stmt: Stmt, func: &Func) -> Result<()> {
        if is_copy(&stmt) {
            let (buffers, mut copied) = (&mut self.ring.buffers, Vec::new());
            bulk::each_copy(&mut stmt, &mut |copy| copied.push(copy.shared));
            for shared in copied {
                if buffers.iter().all(|(b, _)| *b != shared) {
                    buffers.push((shared, ring::elements_of_stage(func, shared, Code::LowerPipeline)?));
                }
            }
        }
        match (stmt, &mut self.fill) {
            (Stmt::Elect(e), fill) if bulk::is_load(&Stmt::Elect(e.clone())) => match fill {
                Some(fill) if fill.warps == e.warps => fill.body.extend(e.body),
                Some(_) => self.compute.push(Stmt::Elect(e)),
                None => *fill = Some(e),
            },
            (other, _) => self.compute.push(other),
        }
        Ok(())
    }

    /// Completes the ring: the mbarrier of the first load counts the bytes of all.
    fn set_up(&mut self, func: &mut Func) {
        if let Some(fill) = &mut self.fill {
            let loaded = visit::writes(&fill.body);
            let names: Vec<&str> = loaded.into_iter().map(|b| func.buffer(b).name.as_str()).collect();
            self.ring.names = names.join(", ");
            visit::walk(&fill.body, &mut |s| {
                if let Stmt::Bulk(copy) = s
                    && let Way::Load { full, .. } = &copy.way
                {
                    self.ring.full.get_or_insert(full.barrier);
                }
            });
            self.ring.signal(&mut fill.body);
        }
        self.ring.allot(func);
    }

    /// The statements that replace the loop.
    fn statements(mut self, func: &mut Func, env: &Env) -> Vec<Stmt> {
        let mut out = Vec::new();
        let mut inner = env.clone();
        inner.bind(self.l.var, 0, self.extent - 1);
        let compute = std::mem::take(&mut self.compute);
        if self.fill.is_none() && self.extent <= WRITTEN_OUT {
            // Constant stages: `order` then sees how many stores are between two uses of a stage.
            let all = (0..self.extent).flat_map(|k| compute.iter().map(move |s| (k, s)));
            return all.map(|(k, s)| self.at(s.clone(), &Index::Int(k), env)).collect();
        }
        let mut body = Vec::new();
        if self.fill.is_some() {
            out.extend(self.prologue(func, env));
            let later = Index::Var(self.l.var) + self.ahead;
            let more = simplify::simplify_cond(&Cond::lt(later.clone(), self.extent), &inner);
            if more != Cond::Const(false) {
                body.extend(guarded(more, self.fill_at(&later, &inner)));
            }
        }
        let k = Index::Var(self.l.var);
        let mut wait = self.ring.await_full(&self.number(&k), &inner, "the loads of the stage are complete");
        for stmt in compute {
            if wait.is_some() && touches(&stmt, &self.ring) {
                body.extend(wait.take());
            }
            body.push(self.at(stmt, &k, &inner));
        }
        body.extend(wait);
        self.l.body = body;
        out.push(Stmt::For(self.l));
        out
    }

    /// The loads of the first iterations.
    fn prologue(&self, func: &mut Func, env: &Env) -> Vec<Stmt> {
        let count = self.ahead.min(self.extent);
        if count <= 1 {
            return (0..count).flat_map(|k| self.fill_at(&Index::Int(k), env)).collect();
        }
        let var = func.add_var(format!("{}_first", func.var_name(self.l.var)));
        let mut inner = env.clone();
        inner.bind(var, 0, count - 1);
        vec![Stmt::For(For::new(var, count, LoopKind::Serial, self.fill_at(&Index::Var(var), &inner)))]
    }

    fn fill_at(&self, k: &Index, env: &Env) -> Vec<Stmt> {
        self.fill.iter().map(|fill| self.at(Stmt::Elect(fill.clone()), k, env)).collect()
    }

    /// The number of iteration k over all enclosing loops.
    fn number(&self, k: &Index) -> Index {
        self.first.clone() + k.clone()
    }

    /// A statement of iteration k.
    fn at(&self, stmt: Stmt, k: &Index, env: &Env) -> Stmt {
        let map: visit::Map = [(self.l.var, k.clone())].into();
        let index = &mut |i: &Index| simplify::simplify(&visit::subst_index(i, &map), env);
        self.ring.moved(visit::map_stmt(stmt, index, &mut |e| e), &self.number(k), env)
    }
}

/// Whether a statement touches a buffer of the ring.
fn touches(stmt: &Stmt, ring: &Ring) -> bool {
    let body = std::slice::from_ref(stmt);
    let all: Vec<BufferId> = visit::reads(body).into_iter().chain(visit::writes(body)).collect();
    ring.buffers.iter().any(|(s, _)| all.contains(s))
}
