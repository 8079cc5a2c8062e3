//! Decides the direction of unrolled loops: of a loop with `zigzag`, every second copy runs backwards.
//!
//! Copies are numbered in the order in which they are written out, from 0 on. The outermost loop with `zigzag` is numbered; those inside it
//! have its direction.

use crate::error::Result;
use crate::ir::lowered::LoweredKernel;
use crate::ir::{For, Index, Note, Stmt, Var, visit};
use crate::target::Target;
use std::collections::BTreeMap;

/// Of each outermost loop with `zigzag`, a number modulo 2, in terms of the loops around it.
type Parities = BTreeMap<Var, Index>;

/// Runs the pass.
pub fn run(kernel: &mut LoweredKernel, _: &Target) -> Result<()> {
    set(&mut kernel.func.body, &mut Parities::new());
    Ok(())
}

/// Sets the direction of each loop with `zigzag`; `copies` is how many of it have been written out before.
fn set(body: &mut [Stmt], copies: &mut Parities) {
    for stmt in body {
        match stmt {
            Stmt::For(l) if is_zigzag(l) => {
                let number = copies.entry(l.var).or_insert(Index::Int(0));
                let backwards = number.clone();
                *number = sum(number.clone(), Index::Int(1));
                if backwards != Index::Int(0) {
                    set_all(stmt, &backwards);
                }
            }
            Stmt::For(l) => set_inside(l, copies),
            other => visit::children_mut(other).into_iter().for_each(|child| set(child, copies)),
        }
    }
}

/// Sets the directions inside a loop, each of whose written iterations has equally many copies.
fn set_inside(l: &mut For, copies: &mut Parities) {
    let (iterations, iteration) = (l.copies(), Index::Var(l.var));
    let iteration = if l.is_written_out() { iteration } else { iteration.floormod(iterations) };
    let mut odd = BTreeMap::new();
    count(&l.body, &mut odd);
    odd.retain(|_, copies| *copies % 2 == 1);
    let mut inside = copies.clone();
    for var in odd.keys() {
        let before = copies.remove(var).unwrap_or(Index::Int(0));
        if iterations > 1 {
            inside.insert(*var, sum(before.clone(), iteration.clone()));
        }
        copies.insert(*var, sum(before, Index::Int(iterations % 2)));
    }
    set(&mut l.body, &mut inside);
}

/// Adds the copies of each outermost loop with `zigzag` in a body.
fn count(body: &[Stmt], copies: &mut BTreeMap<Var, i64>) {
    for stmt in body {
        match stmt {
            Stmt::For(l) if is_zigzag(l) => *copies.entry(l.var).or_default() += 1,
            Stmt::For(l) => {
                let mut inside = BTreeMap::new();
                count(&l.body, &mut inside);
                inside.into_iter().for_each(|(var, n)| *copies.entry(var).or_default() += n % 2 * (l.copies() % 2));
            }
            other => visit::children(other).into_iter().for_each(|child| count(child, copies)),
        }
    }
}

fn is_zigzag(l: &For) -> bool {
    l.is_written_out() && l.notes.contains_key(&Note::Zigzag)
}

/// The sum of two numbers modulo 2.
fn sum(a: Index, b: Index) -> Index {
    match (a, b) {
        (Index::Int(a), Index::Int(b)) => Index::Int((a + b).rem_euclid(2)),
        (a, Index::Int(0)) => a,
        (a, b) => (a + b).floormod(2),
    }
}

/// Sets the direction of all loops with `zigzag` in a statement.
fn set_all(stmt: &mut Stmt, backwards: &Index) {
    if let Stmt::For(l) = stmt
        && is_zigzag(l)
    {
        l.code.backwards = Some(backwards.clone());
    }
    visit::children_mut(stmt).into_iter().flatten().for_each(|inner| set_all(inner, backwards));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::LoopKind;

    fn nest(n: u32, extent: i64, copies: u32, zigzag: bool, body: Vec<Stmt>) -> Stmt {
        let mut l = For::new(Var(n), extent, LoopKind::Serial, body);
        l.code.copies = Some(copies);
        if zigzag {
            l.notes.insert(Note::Zigzag, 1);
        }
        Stmt::For(l)
    }

    /// The direction of each copy of the loops with `zigzag`, in the order in which code generation writes them out.
    fn directions(body: &[Stmt], values: &visit::Map, out: &mut Vec<(u32, i64)>) {
        for stmt in body {
            let Stmt::For(l) = stmt else { continue };
            if is_zigzag(l) {
                let backwards = l.code.backwards.clone().unwrap_or(Index::Int(0));
                out.push((l.var.0, visit::subst_index(&backwards, values).eval(&|_| None).unwrap()));
            }
            for n in 0..l.copies() {
                let mut inside = values.clone();
                inside.insert(l.var, Index::Int(n));
                directions(&l.body, &inside, out);
            }
        }
    }

    #[test]
    fn every_second_copy_runs_backwards_whatever_is_around_it() {
        let zigzag = || nest(9, 4, 4, true, vec![nest(8, 2, 2, true, Vec::new())]);
        for [a, b] in [[1, 1], [2, 3], [3, 2], [3, 3], [4, 1], [1, 5]] {
            for (extent, twice) in [(a, false), (a, true), (2 * a, false), (2 * a, true)] {
                let inner = nest(2, b.into(), b, false, vec![zigzag()]);
                let inside = if twice { vec![inner, zigzag()] } else { vec![inner] };
                let mut body = vec![zigzag(), nest(1, extent.into(), a, false, inside), zigzag()];
                set(&mut body, &mut Parities::new());
                let mut found = Vec::new();
                directions(&body, &visit::Map::new(), &mut found);
                let outer: Vec<i64> = found.iter().filter(|(var, _)| *var == 9).map(|(_, d)| *d).collect();
                assert!(
                    outer.iter().enumerate().all(|(n, d)| *d == n as i64 % 2),
                    "{a} {b} {extent} {twice}: {outer:?}"
                );
                // The four copies of the loop inside have the direction of the one around them.
                let with_inner = found.chunks(5).all(|copy| copy.iter().all(|(_, d)| *d == copy[0].1));
                assert!(with_inner, "{found:?}");
            }
        }
    }
}
