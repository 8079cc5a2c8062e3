//! The search: conclusions, then cases.

use super::Answer;
use super::linear::{Int, Linear, Variable};
use super::project::Projected;
use super::question::{Formula, Meaning, Question};
use super::state::{Budget, State, Stop};

/// Cases inside cases.
const DEPTH: usize = 400;

/// A range of at most so many values is tried value by value, else halved.
const FEW: Int = 6;

/// Looks for a point with values of the question's variables.
pub(super) fn search(question: &Question, budget: &Budget) -> Answer {
    let mut state = State::new(question, budget);
    match cases(&mut state, DEPTH) {
        Ok(Some(values)) => Answer::Point(values),
        Ok(None) => Answer::Impossible,
        Err(()) => Answer::Undecided,
    }
}

/// Values of all variables of the question; `None` where there are none, an error where that is not decided.
fn cases(state: &mut State<'_>, depth: usize) -> Result<Option<Vec<Int>>, ()> {
    match step(state, depth) {
        Ok(found) => Ok(found),
        Err(Stop::Conflict) => Ok(None),
        Err(Stop::Spent) => Err(()),
    }
}

/// How a branch is divided.
enum Split<'q> {
    /// One alternative of the disjunction of that number holds.
    Alternatives(usize, &'q [Formula]),
    /// The form has one of the values of a range.
    Values(Linear, Int, Int),
}

fn step(state: &mut State<'_>, depth: usize) -> Result<Option<Vec<Int>>, Stop> {
    state.settle()?;
    let mut unclear = None;
    match state.project()? {
        Projected::Empty => return Ok(None),
        Projected::Point(point) => {
            let value = |v: Variable| point.get(&v).copied().unwrap_or(state.ranges[v.0 as usize].0);
            if let Some(found) = witness(state, &value)? {
                return Ok(Some(found));
            }
        }
        Projected::Unclear(v) => unclear = v,
    }
    if depth == 0 {
        return Err(Stop::Spent);
    }
    match split(state, unclear)? {
        Some(Split::Alternatives(at, parts)) => {
            for part in parts {
                if state.judge(part)? == Some(false) {
                    continue;
                }
                let mut branch = state.clone();
                branch.clauses.swap_remove(at);
                branch.demand(part);
                if let Some(found) = branched(&mut branch, depth)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        }
        Some(Split::Values(form, low, high)) => {
            let parts: Vec<(Int, Int)> = match high - low < FEW {
                true => (low..=high).map(|v| (v, v)).collect(),
                false => {
                    let middle = low + (high - low) / 2;
                    vec![(low, middle), (middle + 1, high)]
                }
            };
            for (from, to) in parts {
                let mut branch = state.clone();
                match branch.add_row(&form, from, Some(to)) {
                    Err(Stop::Conflict) => continue,
                    other => other?,
                }
                if let Some(found) = branched(&mut branch, depth)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        }
        // Nothing is left to choose, and yet the point was not found to hold: evaluating it overflowed.
        None => Err(Stop::Spent),
    }
}

fn branched(branch: &mut State<'_>, depth: usize) -> Result<Option<Vec<Int>>, Stop> {
    branch.budget.spend(8 + branch.ranges.len() + branch.rows.len() * 4)?;
    cases(branch, depth - 1).map_err(|()| Stop::Spent)
}

/// The point with these values of the variables that were not solved for, if it satisfies the question.
fn witness(state: &State<'_>, value: &dyn Fn(Variable) -> Int) -> Result<Option<Vec<Int>>, Stop> {
    let mut failed = false;
    let free = |v: Variable| {
        let form = state.resolve(&Linear::from(v)).ok();
        form.and_then(|form| form.eval(&|w| Some(value(w))))
    };
    let mut values = Vec::new();
    for n in 0..state.question.definitions.len() as u32 {
        state.budget.spend(2)?;
        let v = Variable(n);
        let is_free = state.question.definitions[n as usize].meaning == Meaning::Free;
        let found = if is_free { free(v) } else { Some(0) };
        failed |= found.is_none();
        values.push(found.unwrap_or(0));
    }
    let completed = state.question.completed(&|v| values[v.0 as usize]).filter(|_| !failed);
    Ok(completed.filter(|all| state.question.holds(all)))
}

/// Where to divide: at the disjunction with the fewest alternatives, at the smaller factor of a product, at a row with few
/// values, at a variable.
fn split<'q>(state: &State<'q>, unclear: Option<Variable>) -> Result<Option<Split<'q>>, Stop> {
    let mut best: Option<(usize, usize, &'q [Formula])> = None;
    for (at, parts) in state.clauses.iter().enumerate() {
        let mut open = 0;
        for part in *parts {
            open += usize::from(state.judge(part)? != Some(false));
        }
        if best.is_none_or(|b| open < b.0) {
            best = Some((open, at, parts));
        }
    }
    if let Some((_, at, parts)) = best {
        return Ok(Some(Split::Alternatives(at, parts)));
    }
    let mut factor: Option<(Int, Linear, Int, Int)> = None;
    for v in &state.products {
        let Meaning::Product(a, b) = &state.question.definitions[v.0 as usize].meaning else { continue };
        for side in [a, b] {
            let form = state.resolve(side)?;
            let (low, high) = state.known_range(&form)?;
            if high > low && factor.as_ref().is_none_or(|f| high - low < f.0) {
                factor = Some((high - low, form, low, high));
            }
        }
    }
    if let Some((_, form, low, high)) = factor {
        return Ok(Some(Split::Values(form, low, high)));
    }
    let width = |v: &Variable| state.ranges[v.0 as usize].1 - state.ranges[v.0 as usize].0;
    let smallest = state
        .rows
        .iter()
        .flat_map(|r| r.terms.iter().map(|t| t.0))
        .filter(|v| width(v) > 0)
        .min_by_key(|v| (width(v), *v));
    let thin = state.rows.iter().min_by_key(|r| r.high - r.low).map(|r| (r.high - r.low, r));
    if let Some((_, row)) = thin.filter(|(w, _)| *w < FEW && smallest.is_none_or(|v| *w < width(&v))) {
        let form = Linear { terms: row.terms.clone(), constant: 0 };
        return Ok(Some(Split::Values(form, row.low, row.high)));
    }
    let few = smallest.filter(|v| width(v) < FEW);
    let at = few.or(unclear.filter(|v| width(v) > 0)).or(smallest);
    Ok(at.map(|v| {
        let (low, high) = state.ranges[v.0 as usize];
        Split::Values(Linear::from(v), low, high)
    }))
}
