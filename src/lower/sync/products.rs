//! Asynchronous MMAs (wgmma): a run of them is one group, with a fence before it, and a commit and a wait after it.
//!
//! The MMAs of a run follow each other on the same accumulators and need nothing between them. The fence orders the warps' earlier
//! accesses of these registers before the MMAs; the wait orders their later accesses after the MMAs, and says that the operand tiles
//! in shared memory have been read.
//!
//! A group is straight-line code: in a loop that is not unrolled, each iteration is a group of its own, and the wait for all groups
//! follows the loop. ptxas follows the registers of a group from its fence to its commit; where a jump leads back in between it
//! would insert both (C7519), with an empty MMA to close the last group.
//!
//! Where groups stay in flight and an MMA reads operand A from registers, the next access of these registers waits for all earlier
//! groups: there is one set of registers, which the latest group reads. That group's own run then needs no wait.

use crate::intrin::{self, Row};
use crate::ir::{BufferId, Func, Held, Stmt, SyncKind, visit};
use crate::lower::finalize::unroll;
use std::collections::BTreeSet;

/// Whether a statement is asynchronous MMAs alone.
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

/// Whether a body has asynchronous MMAs.
pub fn any(body: &[Stmt]) -> bool {
    body.iter().any(|s| only_products(s) || visit::children(s).into_iter().any(|c| any(c)))
}

/// Inserts the fences, commits and waits of every run of MMAs. In a pipelined loop with `in_flight` so many groups stay in flight
/// from iteration to iteration, and the wait for all of them follows the loop.
pub fn group(body: Vec<Stmt>, func: &Func) -> Vec<Stmt> {
    let runs = Runs { func, operands: register_operands(&body) };
    runs.list(body, 0, true)
}

/// The registers that MMAs read operands from.
fn register_operands(body: &[Stmt]) -> BTreeSet<BufferId> {
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
    operands: BTreeSet<BufferId>,
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
            if let Some(factor) = self.operand_of(&stmt).filter(|_| !idle && !products) {
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

    /// The registers of an operand that a statement touches.
    fn operand_of(&self, stmt: &Stmt) -> Option<BufferId> {
        let stmt = std::slice::from_ref(stmt);
        visit::writes(stmt).into_iter().chain(visit::reads(stmt)).find(|b| self.operands.contains(b))
    }

    /// A run of MMAs and the wait after it, which a run does not need that begins while no group is in flight. Where it is several
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
