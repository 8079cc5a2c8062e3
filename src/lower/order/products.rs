//! Asynchronous products: a run of them is one group, fenced before, closed and waited for behind.
//!
//! Products of one run follow each other on the same registers and need nothing between them. The fence in front orders what the
//! warps themselves did to these registers; the wait behind, what they will do, and that the tiles in shared memory have been read.

use crate::intrin::{self, Row};
use crate::ir::{Stmt, SyncKind, visit};

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
pub fn group(body: Vec<Stmt>) -> Vec<Stmt> {
    list(body, 0)
}

fn list(body: Vec<Stmt>, in_flight: u32) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    let mut open = false;
    for mut stmt in body {
        let products = only_products(&stmt);
        if products && !open {
            out.push(Stmt::Sync(SyncKind::ProductFence.because("the registers of the sum, before the products")));
        } else if !products && open {
            out.extend(closed(in_flight));
        }
        open = products;
        if !products {
            let pipeline = if let Stmt::For(l) = &mut stmt { l.pipeline.take() } else { None };
            let inside = pipeline.map_or(in_flight, |p| p.in_flight);
            for child in visit::children_mut(&mut stmt) {
                *child = list(std::mem::take(child), inside);
            }
            out.push(stmt);
            if inside > in_flight {
                let all = SyncKind::ProductWait { groups: in_flight };
                out.push(Stmt::Sync(all.because("RAW the sum; WAR the tiles: the products in flight")));
            }
            continue;
        }
        out.push(stmt);
    }
    if open {
        out.extend(closed(in_flight));
    }
    out
}

fn closed(in_flight: u32) -> [Stmt; 2] {
    [
        Stmt::Sync(SyncKind::ProductCommit.because("the products")),
        Stmt::Sync(SyncKind::ProductWait { groups: in_flight }.because(match in_flight {
            0 => "RAW the sum; WAR the tiles",
            _ => "WAR the tiles of the groups before",
        })),
    ]
}
