//! Decides which way unrolled loops run: of a loop with `zigzag`, every second copy runs backwards.
//!
//! The copies are counted in the order in which they are written out. The outermost loop with `zigzag` is counted; those inside it turn
//! with it.

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::{For, Index, Note, Stmt, Var, visit};
use crate::target::Target;
use std::collections::BTreeMap;

/// Of each counted loop, how many copies of it have been written, modulo 2: in terms of the loops around.
type Turns = BTreeMap<Var, Index>;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    if !visit::loops(&kernel.func.body).into_iter().any(is_zigzag) {
        return Ok(());
    }
    let mut turns = Turns::new();
    list(&mut kernel.func.body, &mut turns);
    Ok(())
}

fn list(body: &mut [Stmt], turns: &mut Turns) {
    for stmt in body {
        match stmt {
            Stmt::For(l) if is_zigzag(l) => {
                let turn = turns.entry(l.var).or_insert(Index::Int(0));
                let now = turn.clone();
                *turn = next(now.clone(), Index::Int(1));
                turned(l, &now);
            }
            Stmt::For(l) => looped(l, turns),
            other => visit::children_mut(other).into_iter().for_each(|child| list(child, turns)),
        }
    }
}

/// A loop around: each of its copies writes those of the loops inside.
fn looped(l: &mut For, turns: &mut Turns) {
    let copies = l.copies();
    let number = if l.is_written_out() { Index::Var(l.var) } else { Index::Var(l.var).floormod(copies) };
    let before = turns.clone();
    let mut inside = Turns::new();
    list(&mut l.body.clone(), &mut inside);
    // Loops inside whose copies are odd in number turn from one iteration to the next.
    let odd: Vec<Var> =
        inside.iter().filter(|(_, n)| n.as_int().is_none_or(|n| n % 2 == 1)).map(|(var, _)| *var).collect();
    if copies > 1 {
        for var in &odd {
            let turn = turns.entry(*var).or_insert(Index::Int(0));
            *turn = next(turn.clone(), number.clone());
        }
    }
    list(&mut l.body, turns);
    for (var, turn) in turns.iter_mut() {
        let first = before.get(var).cloned().unwrap_or(Index::Int(0));
        let all = if odd.contains(var) { copies % 2 } else { 0 };
        *turn = next(first, Index::Int(all));
    }
}

fn is_zigzag(l: &For) -> bool {
    l.is_written_out() && l.notes.contains_key(&Note::Zigzag)
}

/// The sum of two numbers modulo 2.
fn next(turn: Index, more: Index) -> Index {
    match (turn, more) {
        (Index::Int(a), Index::Int(b)) => Index::Int((a + b).rem_euclid(2)),
        (turn, Index::Int(0)) => turn,
        (Index::Int(0), more) => more.floormod(2),
        (turn, more) => (turn + more).floormod(2),
    }
}

/// Sets the way of a loop, and of the loops with `zigzag` inside it.
fn turned(l: &mut For, turn: &Index) {
    if is_zigzag(l) && *turn != Index::Int(0) {
        l.code.backwards = Some(turn.clone());
    }
    inner(&mut l.body, turn);
}

fn inner(body: &mut [Stmt], turn: &Index) {
    for stmt in body {
        match stmt {
            Stmt::For(l) => turned(l, turn),
            other => visit::children_mut(other).into_iter().for_each(|child| inner(child, turn)),
        }
    }
}
