//! Promise 16: no two blocks write one element of global memory, not even with the same value.
//!
//! The boxes that blocks write are told apart by the block's indices, which must be digits of where a box begins; else by
//! laying the boxes of all blocks on a grid. Where neither succeeds, the elements that some blocks write are counted out.

use super::exact::elements;
use super::points::{Ranged, digits, sample, show};
use super::safety::{COUNTED, Units};
use super::wrong;
use crate::error::{Error, Result};
use crate::ir::print::Node;
use crate::ir::region::{Region, Touch, touched};
use crate::ir::simplify::affine;
use crate::ir::visit::{Map, subst_body, writes};
use crate::ir::{BufferId, Func, Index, Scope, Stmt, Var};
use std::collections::{HashMap, HashSet};

/// As many blocks are laid on a grid, or counted out.
const BLOCKS: i64 = 1 << 12;

/// Checks every nest of the root.
pub fn check(func: &Func) -> Result<()> {
    for nest in &func.body {
        let mut units = Units::new(Scope::Global);
        let body = units.strip(vec![nest.clone()]);
        // A loop of one iteration tells no blocks apart, but its variable has a value.
        let single = units.vars.iter().filter(|(_, extent)| *extent <= 1).map(|(v, _)| (*v, Index::Int(0))).collect();
        let body = subst_body(body, &single);
        units.vars.retain(|(_, extent)| *extent > 1);
        for buffer in writes(&body) {
            if func.buffer(buffer).scope == Scope::Global && !units.vars.is_empty() && !units.mixed {
                let region = touched(func, &body, buffer, Touch::Writes, &units.env());
                if !region.is_some_and(|r| apart(&r, &units.vars) || on_a_grid(&r, &units.vars)) {
                    counted(func, &body, buffer, &units.vars)?;
                }
            }
        }
    }
    Ok(())
}

/// Whether where the box begins tells the variables, each as a digit of one of its dimensions.
fn apart(region: &Region, vars: &[Ranged]) -> bool {
    let mut told: HashSet<Var> = HashSet::new();
    for range in region {
        let Some(mut span) = range.extent.as_int() else { continue };
        let mut terms = affine(&range.min).terms;
        terms.sort_by_key(|(_, c)| c.abs());
        for (atom, c) in &terms {
            let digit = atom.as_var().and_then(|v| vars.iter().find(|(w, _)| *w == v));
            // What is above a part that is no digit cannot be read off.
            let Some((var, extent)) = digit.filter(|_| c.abs() >= span) else { break };
            told.insert(*var);
            span = span.saturating_add(c.abs().saturating_mul(extent - 1));
        }
    }
    vars.iter().all(|(v, _)| told.contains(v))
}

/// Whether all boxes are different cells of one grid.
fn on_a_grid(region: &Region, vars: &[Ranged]) -> bool {
    let count = vars.iter().try_fold(1i64, |n, (_, extent)| n.checked_mul(*extent)).filter(|n| *n <= BLOCKS);
    let extents: Option<Vec<i64>> = region.iter().map(|r| r.extent.as_int().filter(|e| *e > 0)).collect();
    let (Some(count), Some(extents)) = (count, extents) else { return false };
    let mut cells: HashSet<Vec<i64>> = HashSet::new();
    let mut offset: Option<Vec<i64>> = None;
    (0..count).all(|n| {
        let point = digits(n, vars);
        let value = |v: Var| point.iter().find(|(p, _)| *p == v).map(|(_, x)| *x);
        let Some(begin) = region.iter().map(|r| r.min.eval(&value)).collect::<Option<Vec<i64>>>() else { return false };
        let within: Vec<i64> = begin.iter().zip(&extents).map(|(b, e)| b.rem_euclid(*e)).collect();
        *offset.get_or_insert_with(|| within.clone()) == within && cells.insert(begin)
    })
}

/// Counts out what some blocks write: the first ones, the last ones and some others, then as many as the budget allows.
fn counted(func: &Func, body: &[Stmt], buffer: BufferId, vars: &[Ranged]) -> Result<()> {
    let mut budget = COUNTED;
    let mut owners: HashMap<Vec<i64>, Vec<Ranged>> = HashMap::new();
    let count = vars.iter().fold(1i64, |n, (_, extent)| n.saturating_mul(*extent)).min(BLOCKS);
    for point in neighbours(vars).into_iter().chain((0..count).map(|n| digits(n, vars))) {
        let map: Map = point.iter().map(|(v, x)| (*v, Index::Int(*x))).collect();
        // Too many elements to count: then nothing speaks against it.
        let Some(found) = elements(&subst_body(body.to_vec(), &map), buffer, &mut budget) else { break };
        let mut written: Vec<Vec<i64>> = found.writes.into_iter().chain(found.sums.unwrap_or_default()).collect();
        written.sort_unstable();
        for element in written {
            match owners.get(&element) {
                Some(other) if *other != point => return Err(overlapping(func, buffer, [other, &point], &element)),
                Some(_) => {}
                None => drop(owners.insert(element, point.clone())),
            }
        }
    }
    Ok(())
}

fn overlapping(func: &Func, buffer: BufferId, points: [&Vec<Ranged>; 2], element: &[i64]) -> Error {
    let name = &func.buffer(buffer).name;
    let [a, b] = points.map(|p| show(func, p));
    let message = format!(
        "{name} is global memory, which no order of the blocks protects, and the blocks {a} and {b} both write {name}{element:?}"
    );
    let mut nodes = vec![(Node::Buffer(buffer), "this buffer")];
    nodes.extend(points[0].iter().map(|(v, _)| (Node::Loop(*v), "its iterations run apart")));
    wrong(func, "overlap", message, &nodes).help(help(func, buffer))
}

fn help(func: &Func, buffer: BufferId) -> String {
    let name = &func.buffer(buffer).name;
    match func.params.contains(&buffer) {
        true => format!("bind to blocks only loops around every statement that writes {name}"),
        false => {
            format!("set_scope {name} shared, so that each block has its own, or compute {name} in a kernel before")
        }
    }
}

/// The first block and its neighbours, the last and its neighbours, and some between.
fn neighbours(vars: &[Ranged]) -> Vec<Vec<Ranged>> {
    let first: Vec<Ranged> = vars.iter().map(|(v, _)| (*v, 0)).collect();
    let last: Vec<Ranged> = vars.iter().map(|(v, extent)| (*v, extent - 1)).collect();
    let moved = |from: &[Ranged], n: usize, by: i64| {
        let mut point = from.to_vec();
        point[n].1 += by;
        point
    };
    let mut out = vec![first.clone()];
    out.extend((0..vars.len()).map(|n| moved(&first, n, 1)));
    out.push(last.clone());
    out.extend((0..vars.len()).map(|n| moved(&last, n, -1)));
    out.extend(sample(vars, 4).into_iter().rev().take(4));
    out
}
