//! One set of registers, reloaded in place: each piece of a load follows the last piece of the compute that reads the registers it
//! fills.
//!
//! ```text
//! for fm in 0..2: load A_f[fm]              mma 0 0: A_f[0], B_f[0]
//! for gm in 0..2: load B_f[gm]              mma 0 1: A_f[0], B_f[1]
//! for im in 0..2                     ->     load A_f[0]
//!   for jm in 0..2                          mma 1 0: A_f[1], B_f[0]
//!     mma im jm: A_f[im], B_f[jm]           load B_f[0]
//!                                           mma 1 1: A_f[1], B_f[1]
//!                                           load A_f[1]; load B_f[1]
//! ```
//!
//! A tile whose accumulators leave no room for double-buffered fragments still loads them ahead of their use.

use crate::ir::simplify::{self, Env};
use crate::ir::{BufferId, Call, Expr, For, Held, If, Index, LoopKind, Note, Stmt, visit};
use std::collections::HashMap;

/// Pieces into which the compute of a step, or its loads, are written out at most.
const MOST: usize = 1024;

/// The compute of a step with the loads of the next one, each as early as the registers allow that it fills. Loads keep their
/// order where the compute leaves a choice.
pub fn refilled(compute: Vec<Stmt>, loads: Vec<Stmt>, env: &Env) -> Vec<Stmt> {
    let (compute, loads) = (pieces(compute, env), pieces(loads, env));
    // The last piece that touches a register; what is not known touches all of a buffer, and is under `None`.
    let mut last: HashMap<(BufferId, Option<i64>), usize> = HashMap::new();
    let mut all: HashMap<BufferId, usize> = HashMap::new();
    for (n, piece) in compute.iter().enumerate() {
        for (buffer, registers) in touched(piece) {
            all.insert(buffer, n);
            match registers {
                Some(registers) => last.extend(registers.into_iter().map(|r| ((buffer, Some(r)), n))),
                None => drop(last.insert((buffer, None), n)),
            }
        }
    }
    // The piece that each load precedes.
    let mut places: Vec<Vec<Stmt>> = vec![Vec::new(); compute.len() + 1];
    for load in loads {
        let behind = |(buffer, registers): (BufferId, Option<Vec<i64>>)| match registers {
            None => all.get(&buffer).copied(),
            Some(registers) => {
                let known = registers.into_iter().map(|r| (buffer, Some(r))).chain([(buffer, None)]);
                known.filter_map(|key| last.get(&key).copied()).max()
            }
        };
        let place = touched(&load).into_iter().filter_map(behind).max().map_or(0, |n| n + 1);
        places[place].push(load);
    }
    let mut out = std::mem::take(&mut places[0]);
    for (piece, loads) in compute.into_iter().zip(places.into_iter().skip(1)) {
        out.push(piece);
        out.extend(loads);
    }
    out
}

/// Statements without the loops of a thread around them, if that makes few enough.
fn pieces(stmts: Vec<Stmt>, env: &Env) -> Vec<Stmt> {
    let count: Option<usize> = stmts.iter().map(count).sum();
    match count {
        Some(n) if n <= MOST => stmts.into_iter().flat_map(|s| apart(s, env)).collect(),
        _ => stmts,
    }
}

/// How many pieces a statement makes; nothing where it has a loop of many iterations.
fn count(stmt: &Stmt) -> Option<usize> {
    match stmt {
        Stmt::For(l) if opens(l) => {
            let inside: usize = l.body.iter().map(count).sum::<Option<usize>>()?;
            inside.checked_mul(usize::try_from(l.extent.as_int()?).ok()?)
        }
        Stmt::If(i) => i.body.iter().map(count).sum(),
        _ => Some(1),
    }
}

/// Whether a loop may be unrolled: code generation decides the direction of a zigzag loop.
fn opens(l: &For) -> bool {
    matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled)
        && l.pipeline.is_none()
        && !l.notes.contains_key(&Note::Zigzag)
        && l.extent.as_int().is_some_and(|n| (0..=MOST as i64).contains(&n))
}

fn apart(stmt: Stmt, env: &Env) -> Vec<Stmt> {
    match stmt {
        Stmt::For(l) if opens(&l) => {
            let extent = l.extent.as_int().unwrap_or(0);
            let once = |i: i64| {
                let body = visit::subst_body(l.body.clone(), &[(l.var, Index::Int(i))].into());
                body.into_iter().map(|s| visit::map_stmt(s, &mut |i| simplify::simplify(i, env), &mut |e| e))
            };
            (0..extent).flat_map(once).flat_map(|s| apart(s, env)).collect()
        }
        Stmt::If(i) => {
            let inside = i.body.into_iter().flat_map(|s| apart(s, env));
            inside.map(|s| Stmt::If(If { cond: i.cond.clone(), body: vec![s] })).collect()
        }
        other => vec![other],
    }
}

/// The elements of buffers that a piece touches; `None` where they are not known.
fn touched(piece: &Stmt) -> Vec<(BufferId, Option<Vec<i64>>)> {
    let mut out = Vec::new();
    let run = |indices: &[Index], lanes: u32| match indices {
        [Index::Int(first)] => Some((*first..first + i64::from(lanes)).collect()),
        _ => None,
    };
    visit::walk(std::slice::from_ref(piece), &mut |s| match s {
        Stmt::Call(Call { operands, .. }) => {
            out.extend(operands.iter().map(|o| match (&o.held, o.indices.as_slice()) {
                (Held::Registers(elements), [Index::Int(first)]) => {
                    (o.buffer, Some(elements.iter().map(|e| first + e).collect()))
                }
                _ => (o.buffer, None),
            }))
        }
        Stmt::Store(s) => {
            out.push((s.buffer, run(&s.indices, s.lanes)));
            visit::walk_expr(&s.value, &mut |e| {
                if let Expr::Load { buffer, indices, lanes } = e {
                    out.push((*buffer, run(indices, *lanes)));
                }
            });
        }
        _ => {}
    });
    out
}
