//! Asynchronous products: a run of them is one group, fenced before, closed and waited for behind.
//!
//! Products of one run follow each other on the same registers and need nothing between them. The fence in front orders what the
//! warps themselves did to these registers; the wait behind, what they will do, and that the tiles in shared memory have been read.
//!
//! A group is straight code: of a loop that stays one, each iteration is a group of its own, and the wait for all of them stands
//! behind the loop. ptxas follows the registers of a group from its fence to its end and would put in both where a jump leads
//! back in between (C7519), with an empty product to close the last group.

use crate::intrin::{self, Row};
use crate::ir::{Func, Stmt, SyncKind, visit};
use crate::lower::unroll;

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
    list(body, func, 0)
}

fn list(body: Vec<Stmt>, func: &Func, in_flight: u32) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    let mut run = Vec::new();
    for mut stmt in body {
        if only_products(&stmt) {
            run.push(stmt);
            continue;
        }
        out.extend(whole(std::mem::take(&mut run), func, in_flight));
        let pipeline = if let Stmt::For(l) = &mut stmt { l.pipeline.take() } else { None };
        let inside = pipeline.map_or(in_flight, |p| p.in_flight);
        for child in visit::children_mut(&mut stmt) {
            *child = list(std::mem::take(child), func, inside);
        }
        out.push(stmt);
        if inside > in_flight {
            let all = SyncKind::ProductWait { groups: in_flight };
            out.push(Stmt::Sync(all.because("RAW the sum; WAR the tiles: the products in flight")));
        }
    }
    out.extend(whole(run, func, in_flight));
    out
}

/// A run of products and the wait behind it. Where it is several groups, the wait leaves no more of them in flight than it
/// would of groups that are runs: it waits for more, never for less.
fn whole(run: Vec<Stmt>, func: &Func, in_flight: u32) -> Vec<Stmt> {
    if run.is_empty() {
        return run;
    }
    let mut out = groups(run, func);
    let wait = SyncKind::ProductWait { groups: in_flight };
    out.push(Stmt::Sync(wait.because(match in_flight {
        0 => "RAW the sum; WAR the tiles",
        _ => "WAR the tiles of the groups before",
    })));
    out
}

/// The groups of a run, each between its fence and its end.
fn groups(run: Vec<Stmt>, func: &Func) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(run.len() + 2);
    let mut open = false;
    for mut stmt in run {
        let straight = unroll::is_straight(func, std::slice::from_ref(&stmt));
        if straight && !open {
            out.push(Stmt::Sync(SyncKind::ProductFence.because("the registers of the sum, before the products")));
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
    Stmt::Sync(SyncKind::ProductCommit.because("the products"))
}
