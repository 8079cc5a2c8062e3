//! Promise 16: no two blocks write one element of global memory, not even with the same value.
//!
//! The boxes that blocks write are told apart by the block's indices, which must be digits of where a box begins; else by
//! laying the boxes of all blocks on a grid. Where neither succeeds, it is decided for all pairs of writes and of blocks.

use super::judge::Judge;
use super::points::{Ranged, sample, show};
use super::safety::{COUNTED, Units};
use super::sites::{Site, Touches, elements, sites};
use super::wrong;
use crate::error::{Code, Error, Result};
use crate::index::{Answer, Compare, Formula, Linear, Points, STEPS};
use crate::ir::decide::{Terms, Values};
use crate::ir::print::{Node, underline};
use crate::ir::region::{Region, Touch, touched};
use crate::ir::simplify::affine;
use crate::ir::visit::{Map, subst_body, subst_index, writes};
use crate::ir::{Axis, BufferId, Func, Index, Scope, Stmt, Var};
use std::collections::{HashMap, HashSet};

/// As many blocks are laid on a grid, or counted out.
const BLOCKS: i64 = 1 << 12;

/// Checks every nest of the root.
pub fn check(judge: &Judge<'_>) -> Result<()> {
    let func = judge.func;
    for nest in &func.body {
        let mut units = Units::new(func, Scope::Global);
        let body = units.strip(vec![nest.clone()]);
        // A loop of one iteration tells no blocks apart, but its variable has a value.
        let single = units.vars.iter().filter(|(_, extent)| *extent <= 1).map(|(v, _)| (*v, Index::Int(0))).collect();
        let body = subst_body(body, &single);
        units.numbers.iter_mut().for_each(|(_, number)| *number = subst_index(number, &single));
        units.vars.retain(|(_, extent)| *extent > 1);
        for buffer in writes(&body) {
            if func.buffer(buffer).scope == Scope::Global && !units.vars.is_empty() {
                let region = touched(func, &body, buffer, Touch::Writes, &units.env());
                let alike = units.numbers.len() == axes(&units).len();
                if alike && region.is_some_and(|r| apart(&r, &units.vars) || on_a_grid(&r, &units.vars)) {
                    judge.proved();
                } else {
                    decided(judge, &body, buffer, &units)?;
                }
            }
        }
    }
    Ok(())
}

/// The axes of the units, each once.
fn axes(units: &Units) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for (axis, _) in &units.numbers {
        if !axes.contains(axis) {
            axes.push(*axis);
        }
    }
    axes
}

/// Decides for each two writes whether they touch one element from two blocks. What refutes it is told by the first blocks that a
/// count finds.
fn decided(judge: &Judge<'_>, body: &[Stmt], buffer: BufferId, units: &Units) -> Result<()> {
    let func = judge.func;
    let single = axes(units).len() == units.numbers.len();
    let mut met = None;
    let mut known = true;
    let all = sites(body, buffer).unwrap_or_default();
    let written: Vec<&Site> = all.iter().filter(|s| matches!(s.touches, Touches::Writes | Touches::Sums)).collect();
    known &= !written.is_empty();
    'pairs: for (n, a) in written.iter().enumerate() {
        for b in &written[n..] {
            match meet(a, b, units) {
                Some(None) => {}
                Some(Some(found)) => {
                    met = Some(found);
                    break 'pairs;
                }
                None => known = false,
            }
        }
    }
    if met.is_none() && known {
        judge.proved();
        return Ok(());
    }
    if single {
        let largest: Map = units.sizes.iter().map(|(v, extent)| (*v, Index::Int(extent - 1))).collect();
        counted(func, &subst_body(body.to_vec(), &largest), buffer, &units.vars)?;
    }
    match met {
        Some((points, element)) => Err(overlapping(func, buffer, [&points[0], &points[1]], &element)),
        None => {
            let claim = || format!("no two blocks write one element of {}", func.buffer(buffer).name);
            let found = judge.undecided(Code::VerifyOverlap, BLOCKS as usize, &claim);
            found.map_err(|e| underline(e, func, &[(Node::Buffer(buffer), "this buffer")]))
        }
    }
}

/// Two blocks, and an element that both write.
type Met = ([Vec<Ranged>; 2], Vec<i64>);

/// Blocks in which two writes touch one element; the inner `None` where there are none, the outer where that is not decided.
fn meet(a: &Site, b: &Site, units: &Units) -> Option<Option<Met>> {
    let mut terms = Terms::new();
    let mut sides = Vec::new();
    let sizes = terms.bind(&units.sizes);
    for site in [a, b] {
        let mut vars = units.vars.clone();
        vars.extend(site.vars.iter().filter(|(v, _)| units.vars.iter().all(|(w, _)| w != v)));
        let values = [terms.bind(&vars), sizes.clone()].concat();
        let happens = terms.possible(&site.given, &values)?;
        terms.question.require(happens);
        let element = site.indices.iter().map(|i| terms.index(i, &values)).collect::<Option<Vec<_>>>()?;
        // Loops that walk one axis in different orders are at one block.
        let mut numbers: Vec<(Axis, Linear)> = Vec::new();
        for (axis, number) in &units.numbers {
            let number = terms.index(number, &values)?;
            match numbers.iter().find(|(other, _)| other == axis) {
                Some((_, first)) => {
                    let same = Formula::compare(Compare::Equal, first, &number)?;
                    terms.question.require(same);
                }
                None => numbers.push((*axis, number)),
            }
        }
        let own: Vec<Linear> =
            units.vars.iter().map(|(v, _)| terms.index(&Index::Var(*v), &values)).collect::<Option<_>>()?;
        sides.push((values, element, numbers, own));
    }
    let [x, y] = sides.as_slice() else { return None };
    terms.question.require(Terms::equal(&x.1, &y.1)?);
    let different = match axes(units).len() == units.numbers.len() {
        // The variables count the blocks, without the products that numbers of pairs may have.
        true => Terms::different(&x.3, &y.3)?,
        false => {
            let of = |side: &[(Axis, Linear)]| side.iter().map(|n| n.1.clone()).collect::<Vec<Linear>>();
            Terms::different(&of(&x.2), &of(&y.2))?
        }
    };
    terms.question.require(different);
    match terms.question.decide(STEPS).0 {
        Answer::Impossible => Some(None),
        Answer::Undecided => None,
        Answer::Point(point) => {
            let of = |values: &Values| terms.read(&point, &units.vars, values);
            let element = x.1.iter().map(|e| i64::try_from(terms.question.value(&point, e)?).ok());
            Some(Some(([of(&x.0)?, of(&y.0)?], element.collect::<Option<_>>()?)))
        }
    }
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
    let points = Points::within(vars, BLOCKS);
    let extents: Option<Vec<i64>> = region.iter().map(|r| r.extent.as_int().filter(|e| *e > 0)).collect();
    let (Some(points), Some(extents)) = (points, extents) else { return false };
    let mut cells: HashSet<Vec<i64>> = HashSet::new();
    let mut offset: Option<Vec<i64>> = None;
    points.all(|point| {
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
    for point in neighbours(vars).into_iter().chain(Points::of(vars).take(BLOCKS as usize)) {
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
    nodes.extend(points[0].iter().map(|(v, _)| (Node::Loop(*v), "its iterations run in parallel")));
    wrong(func, Code::VerifyOverlap, message, &nodes).help(help(func, buffer))
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
