//! Fourier-Motzkin elimination with integer tightening: shows that rows have no point, or finds one.

use super::linear::{Int, Linear, Variable, content, gcd};
use super::state::{State, Stop};
use std::collections::{BTreeMap, HashMap};

/// What was found.
pub(super) enum Projected {
    /// No rational point, after tightening, satisfies the rows.
    Empty,
    /// Values of the variables in rows that satisfy all of them.
    Point(HashMap<Variable, Int>),
    /// Neither: values for the variables chosen before this one leave it none, or there are too many rows.
    Unclear(Option<Variable>),
}

/// More inequalities than this are not combined further.
const MOST: usize = 160;

/// `sum of terms + constant >= 0`, by terms.
type Inequalities = BTreeMap<Vec<(Variable, Int)>, Int>;

/// The inequalities that held a variable when it was eliminated.
struct Eliminated {
    variable: Variable,
    bounds: Vec<Linear>,
}

enum Added {
    Kept,
    Impossible,
}

/// Adds an inequality, tightened to integers.
fn add(into: &mut Inequalities, form: Linear) -> Added {
    let factor = content(&form.terms);
    if factor == 0 {
        return if form.constant < 0 { Added::Impossible } else { Added::Kept };
    }
    let constant = form.constant.div_euclid(factor);
    let terms: Vec<(Variable, Int)> = form.terms.into_iter().map(|(v, c)| (v, c / factor)).collect();
    let opposite: Vec<(Variable, Int)> = terms.iter().map(|(v, c)| (*v, -c)).collect();
    if into.get(&opposite).is_some_and(|other| other.saturating_add(constant) < 0) {
        return Added::Impossible;
    }
    let entry = into.entry(terms).or_insert(constant);
    *entry = constant.min(*entry);
    Added::Kept
}

impl State<'_> {
    /// Looks for a point of the rows, without regard to disjunctions and products.
    pub(super) fn project(&self) -> Result<Projected, Stop> {
        let mut all = Inequalities::new();
        let mut variables: Vec<Variable> = Vec::new();
        for row in &self.rows {
            variables.extend(row.terms.iter().map(|t| t.0));
            let sum = Linear { terms: row.terms.clone(), constant: 0 };
            let ends = [sum.offset(-row.low), sum.times(-1).and_then(|s| s.offset(row.high))];
            for form in ends {
                if let Added::Impossible = add(&mut all, form.ok_or(Stop::Spent)?) {
                    return Ok(Projected::Empty);
                }
            }
        }
        variables.sort_unstable();
        variables.dedup();
        for v in &variables {
            let (low, high) = self.ranges[v.0 as usize];
            add(&mut all, Linear { terms: vec![(*v, 1)], constant: -low });
            add(&mut all, Linear { terms: vec![(*v, -1)], constant: high });
        }
        let mut order: Vec<Eliminated> = Vec::new();
        while !variables.is_empty() {
            let (at, bounds) = self.cheapest(&variables, &all)?;
            let v = variables.swap_remove(at);
            all.retain(|terms, _| terms.iter().all(|t| t.0 != v));
            let (from, to): (Vec<&Linear>, Vec<&Linear>) = bounds.iter().partition(|b| b.coefficient(v) > 0);
            for a in &from {
                for b in &to {
                    self.budget.spend(a.terms.len() + b.terms.len())?;
                    let combined = combine(a, b, v).ok_or(Stop::Spent)?;
                    if !combined.terms.is_empty() && self.range(&combined)?.0 >= 0 {
                        continue;
                    }
                    if let Added::Impossible = add(&mut all, combined) {
                        return Ok(Projected::Empty);
                    }
                }
            }
            if all.len() > MOST {
                return Ok(Projected::Unclear(None));
            }
            order.push(Eliminated { variable: v, bounds });
        }
        self.values(&order)
    }

    /// The variable whose elimination adds the fewest inequalities, and the inequalities that contain the variable.
    fn cheapest(&self, variables: &[Variable], all: &Inequalities) -> Result<(usize, Vec<Linear>), Stop> {
        // Lower bounds, upper bounds, and whether a coefficient on each side is not 1.
        let mut counts: HashMap<Variable, [usize; 4]> = HashMap::new();
        for terms in all.keys() {
            self.budget.spend(1)?;
            for (v, c) in terms {
                let count = counts.entry(*v).or_default();
                let side = usize::from(*c < 0);
                count[side] += 1;
                count[2 + side] += usize::from(c.abs() != 1);
            }
        }
        let cost = |v: &Variable| {
            let [a, b, x, y] = counts.get(v).copied().unwrap_or_default();
            // An elimination with coefficients 1 on one side loses no integer.
            (x.min(y) > 0, (a * b) as i64 - (a + b) as i64, *v)
        };
        let at = (0..variables.len()).min_by_key(|at| cost(&variables[*at])).unwrap_or(0);
        let v = variables[at];
        let holding = all.iter().filter(|(terms, _)| terms.iter().any(|t| t.0 == v));
        let bounds = holding.map(|(terms, constant)| Linear { terms: terms.clone(), constant: *constant }).collect();
        Ok((at, bounds))
    }

    /// Integers for the eliminated variables, from the last one on.
    fn values(&self, order: &[Eliminated]) -> Result<Projected, Stop> {
        let mut point: HashMap<Variable, Int> = HashMap::new();
        for e in order.iter().rev() {
            let (mut low, mut high) = self.ranges[e.variable.0 as usize];
            for bound in &e.bounds {
                self.budget.spend(bound.terms.len())?;
                let c = bound.coefficient(e.variable);
                let known = |v: Variable| if v == e.variable { Some(0) } else { point.get(&v).copied() };
                let rest = bound.eval(&known).ok_or(Stop::Spent)?;
                // c * v + rest >= 0.
                match c > 0 {
                    true => low = low.max(-(rest.div_euclid(c))),
                    false => high = high.min(rest.div_euclid(-c)),
                }
            }
            if low > high {
                return Ok(Projected::Unclear(Some(e.variable)));
            }
            point.insert(e.variable, low);
        }
        Ok(Projected::Point(point))
    }
}

/// The sum of both in which a variable, that one bounds below and the other above, does not occur.
fn combine(lower: &Linear, upper: &Linear, v: Variable) -> Option<Linear> {
    let (a, b) = (lower.coefficient(v), -upper.coefficient(v));
    let g = gcd(a, b).max(1);
    lower.times(b / g)?.plus(upper, a / g)
}
