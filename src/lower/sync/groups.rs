//! Closes the groups of cp.async copies: a run of statements that start copies is one group, and a staged buffer that is filled
//! again begins the next one. Passes that split such a run close its groups themselves.

use crate::ir::{BlockId, BufferId, Func, Scope, Stmt, Sync, SyncKind, visit};
use std::collections::BTreeSet;

/// Whether a statement starts asynchronous copies.
pub fn starts(stmt: &Stmt) -> bool {
    let mut found = false;
    visit::walk(std::slice::from_ref(stmt), &mut |s| found |= matches!(s, Stmt::Store(s) if s.asynchronous));
    found
}

/// Whether a statement only starts copies, into shared memory or into registers.
pub fn only_starts(stmt: &Stmt, func: &Func) -> bool {
    let mut only = true;
    visit::walk(std::slice::from_ref(stmt), &mut |s| match s {
        Stmt::Store(s) => {
            let to_registers = || func.buffer(s.buffer).scope == Scope::Local;
            let from_memory = |b: BufferId| func.buffer(b).scope == Scope::Global;
            only &= s.asynchronous || to_registers() && s.source().is_some_and(from_memory);
        }
        Stmt::Call(_) => only = false,
        _ => {}
    });
    only
}

/// Whether no synchronisation is needed between the statements inside: all statements but loops, and loops of copies alone.
pub fn runs_as_a_whole(stmt: &Stmt) -> bool {
    let Stmt::For(l) = stmt else { return true };
    let mut only = true;
    visit::walk(&l.body, &mut |s| {
        only &= !matches!(s, Stmt::Call(_) | Stmt::Sync(_)) && !matches!(s, Stmt::Store(s) if !s.asynchronous);
    });
    only && starts(stmt)
}

/// Inserts a commit after every run of copies, up to the last commit that a list has already: the pass that split its copies has
/// grouped them.
pub fn close(body: Vec<Stmt>, func: &Func) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    let mut open: Vec<BlockId> = Vec::new();
    let own = body.iter().rposition(|s| matches!(s, Stmt::Sync(Sync { kind: SyncKind::Commit, .. })));
    for (n, mut stmt) in body.into_iter().enumerate() {
        let whole = runs_as_a_whole(&stmt);
        let stages = if whole { stages(&stmt) } else { BTreeSet::new() };
        if stages.is_empty() || open.iter().any(|b| stages.contains(b)) {
            out.extend(commit(&mut open, func));
        }
        if own.is_none_or(|own| n > own) {
            open.extend(stages);
        }
        if let (Stmt::For(l), false) = (&mut stmt, whole) {
            l.body = close(std::mem::take(&mut l.body), func);
        }
        out.push(stmt);
    }
    out.extend(commit(&mut open, func));
    out
}

fn commit(open: &mut Vec<BlockId>, func: &Func) -> Option<Stmt> {
    let names: Vec<&str> = open.drain(..).map(|b| func.block_name(b)).collect();
    (!names.is_empty()).then(|| Stmt::Sync(SyncKind::Commit.because(names.join(", "))))
}

/// The blocks that start copies.
fn stages(stmt: &Stmt) -> BTreeSet<BlockId> {
    let blocks = visit::blocks(std::slice::from_ref(stmt));
    blocks.into_iter().filter(|b| b.body.iter().any(starts)).map(|b| b.name).collect()
}
