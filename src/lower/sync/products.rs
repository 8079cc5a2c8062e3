//! Asynchronous products: a run of them is one group, fenced before, closed and waited for behind.
//!
//! Products of one run follow each other on the same registers and need nothing between them. The fence in front orders what the
//! warps themselves did to these registers; the wait behind, what they will do, and that the tiles in shared memory have been read.
//!
//! A group is straight code: of a loop that stays one, each iteration is a group of its own, and the wait for all of them stands
//! behind the loop. ptxas follows the registers of a group from its fence to its end and would put in both where a jump leads
//! back in between (C7519), with an empty product to close the last group.
//!
//! Where groups stay in flight and a product reads a factor from registers, what touches these registers next waits for all groups
//! in front: there is one set of them, which the latest group reads. So no wait is left to do behind that group's own run.

use crate::intrin::{self, Row};
use crate::ir::lowered::unroll;
use crate::ir::{BufferId, Func, Held, Stmt, SyncKind, visit};
use std::collections::BTreeSet;

/// Whether a statement is products alone.
fn only_products(stmt: &Stmt) -> bool {
    let inside = |body: &[Stmt]| !body.is_empty() && body.iter().all(only_products);
    match stmt {
        Stmt::Call(call) => intrin::find(&call.row).is_some_and(Row::is_asynchronous),
        Stmt::For(l) => inside(&l.body),
        Stmt::Block(b) => inside(&b.body),
        Stmt::If(i) => inside(&i.body),
        _ => false,
    }
}

/// Whether a body holds products.
pub fn any(body: &[Stmt]) -> bool {
    body.iter().any(|s| only_products(s) || visit::children(s).into_iter().any(|c| any(c)))
}

/// Puts fences, ends of groups and waits around every run of products. In a pipelined loop that says so some groups stay in
/// flight from iteration to iteration, and all are waited for behind it.
pub fn group(body: Vec<Stmt>, func: &Func) -> Vec<Stmt> {
    let runs = Runs { func, factors: factors(&body) };
    runs.list(body, 0, true)
}

/// The registers that products read factors from.
fn factors(body: &[Stmt]) -> BTreeSet<BufferId> {
    let mut out = BTreeSet::new();
    visit::walk(body, &mut |s| {
        if let Stmt::Call(call) = s
            && only_products(s)
        {
            let read = call.operands.iter().filter(|o| !o.writes && matches!(o.held, Held::Registers(_)));
            out.extend(read.map(|o| o.buffer));
        }
    });
    out
}

struct Runs<'f> {
    func: &'f Func,
    factors: BTreeSet<BufferId>,
}

impl Runs<'_> {
    /// A list of which so many groups may stay in flight; `idle`: none is as it begins.
    fn list(&self, body: Vec<Stmt>, in_flight: u32, mut idle: bool) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(body.len());
        let mut run = Vec::new();
        for mut stmt in body {
            if only_products(&stmt) {
                run.push(stmt);
                continue;
            }
            if !run.is_empty() {
                out.extend(self.whole(std::mem::take(&mut run), in_flight, idle));
                idle = in_flight == 0;
            }
            let products = any(std::slice::from_ref(&stmt));
            if let Some(factor) = self.factor_of(&stmt).filter(|_| !idle && !products) {
                let all = SyncKind::ProductWait { groups: 0 };
                let name = &self.func.buffer(factor).name;
                out.push(Stmt::Sync(all.because(format!("WAR {name}: MMAs in flight read the registers"))));
                idle = true;
            }
            let pipeline = if let Stmt::For(l) = &mut stmt { l.pipeline.take() } else { None };
            let inside = pipeline.map_or(in_flight, |p| p.in_flight);
            for child in visit::children_mut(&mut stmt) {
                *child = self.list(std::mem::take(child), inside, !products || idle && inside == 0);
            }
            out.push(stmt);
            if inside > in_flight {
                let all = SyncKind::ProductWait { groups: in_flight };
                out.push(Stmt::Sync(all.because("RAW accumulators; WAR operand tiles: the MMAs in flight")));
            }
            idle = if products { in_flight == 0 } else { idle };
        }
        out.extend(self.whole(run, in_flight, idle));
        out
    }

    /// The registers of a factor that a statement touches.
    fn factor_of(&self, stmt: &Stmt) -> Option<BufferId> {
        let stmt = std::slice::from_ref(stmt);
        visit::writes(stmt).into_iter().chain(visit::reads(stmt)).find(|b| self.factors.contains(b))
    }

    /// A run of products and the wait behind it, which those need not that begin while nothing is in flight. Where it is several
    /// groups, the wait leaves no more of them in flight than it would of groups that are runs: it waits for more, never for less.
    fn whole(&self, run: Vec<Stmt>, in_flight: u32, idle: bool) -> Vec<Stmt> {
        if run.is_empty() {
            return run;
        }
        let mut out = groups(run, self.func);
        if in_flight == 0 || !idle {
            let wait = SyncKind::ProductWait { groups: in_flight };
            out.push(Stmt::Sync(wait.because(match in_flight {
                0 => "RAW accumulators; WAR operand tiles",
                _ => "WAR operand tiles of the previous MMA groups",
            })));
        }
        out
    }
}

/// The groups of a run, each between its fence and its end.
fn groups(run: Vec<Stmt>, func: &Func) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(run.len() + 2);
    let mut open = false;
    for mut stmt in run {
        let straight = unroll::is_straight(func, std::slice::from_ref(&stmt));
        if straight && !open {
            out.push(Stmt::Sync(SyncKind::ProductFence.because("accumulator registers, before the MMAs")));
        } else if !straight && open {
            out.push(end());
        }
        open = straight;
        if !straight {
            for child in visit::children_mut(&mut stmt) {
                *child = groups(std::mem::take(child), func);
            }
        }
        out.push(stmt);
    }
    out.extend(open.then(end));
    out
}

fn end() -> Stmt {
    Stmt::Sync(SyncKind::ProductCommit.because("the MMAs"))
}
