//! Claims about all values of some variables, as questions to [`crate::index`]: the one place that translates.
//!
//! A claim is proved by the simplifier, which is quick, or by asking for values that break it. Values that are found are tried on
//! the claim itself before they are returned. [`always`] is for claims of the verifier, [`proves`] and [`equal`] for side
//! conditions of steps, which know an [`Env`].

use super::simplify::{self, Env, holds_in_ranges, prove};
use super::{CmpOp, Cond, Index, IndexOp, Var};
use crate::index::{Answer, Compare, Formula, Int, Linear, POINTS, Points, Question, STEPS};
use std::collections::BTreeSet;
use std::slice;

/// A variable that runs from 0 to an extent.
pub type Ranged = (Var, i64);

/// What is known of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds for all values.
    Proved,
    /// It does not hold for these.
    Refuted(Vec<Ranged>),
    /// Not decided within the budget.
    Undecided,
}

/// Whether `cond` holds wherever `given` does, for all values of the variables.
pub fn always(cond: &Cond, given: &Cond, vars: &[Ranged]) -> Verdict {
    if cond.is_true() {
        return Verdict::Proved;
    }
    let mut env = Env::new();
    for (var, extent) in vars {
        env.bind(*var, 0, extent.saturating_sub(1));
    }
    if holds_in_ranges(cond, &env) {
        return Verdict::Proved;
    }
    if !given.is_true() {
        env.assume(given);
    }
    if prove(cond, &env) {
        return Verdict::Proved;
    }
    let vars = mentioned(&[cond, given], vars);
    let breaks = |point: &[Ranged]| {
        let value = |v: Var| point.iter().find(|(p, _)| *p == v).map(|(_, x)| *x);
        given.eval(&value) == Some(true) && cond.eval(&value) != Some(true)
    };
    match asked(cond, given, &vars) {
        Some(None) => return Verdict::Proved,
        Some(Some(point)) if breaks(&point) => return Verdict::Refuted(point),
        _ => {}
    }
    // All assignments, where they are few, are a proof.
    match Points::within(&vars, POINTS) {
        Some(mut points) => points.find(|p| breaks(p)).map_or(Verdict::Proved, Verdict::Refuted),
        None => Verdict::Undecided,
    }
}

/// The budget of one side condition, in steps of the procedure. A step of a schedule asks many.
const STEPS_OF_SIDE_CONDITION: u64 = 1 << 16;

/// Whether the condition holds for all values that satisfy the ranges and facts of `env`. A condition over a variable without a range
/// is left to the simplifier.
pub fn proves(cond: &Cond, env: &Env) -> bool {
    prove(cond, env) || never_broken(cond, env).unwrap_or(false)
}

/// Whether both indices are equal for all values that satisfy the ranges and facts of `env`.
pub fn equal(a: &Index, b: &Index, env: &Env) -> bool {
    simplify::equal(a, b, env) || never_broken(&Cond::eq(a.clone(), b.clone()), env).unwrap_or(false)
}

/// Whether the procedure shows that nothing breaks the condition; `None` where it has a form that questions do not have.
fn never_broken(cond: &Cond, env: &Env) -> Option<bool> {
    let (vars, facts) = related(cond, env);
    let mut terms = Terms::new();
    let mut values = Values::new();
    for var in vars {
        let (low, high) = env.range(var)?;
        values.push((var, Linear::from(terms.question.variable(low, high))));
    }
    Some(terms.violation(cond, &facts, &values, STEPS_OF_SIDE_CONDITION)? == Answer::Impossible)
}

/// Whether the map from `vars` to the indices is injective, for every value of the other variables. The indices are integers of
/// unlimited size here.
pub fn one_to_one(indices: &[Index], vars: &[Ranged]) -> bool {
    never_equal(indices, vars).unwrap_or(false)
}

fn never_equal(indices: &[Index], vars: &[Ranged]) -> Option<bool> {
    let mut others = BTreeSet::new();
    indices.iter().for_each(|i| i.for_each_var(&mut |v| others.extend([v])));
    others.retain(|v| vars.iter().all(|(own, _)| own != v));
    let mut terms = Terms::new();
    let any = |terms: &mut Terms, v: Var| (v, Linear::from(terms.question.variable(-(1 << 62), 1 << 62)));
    let shared: Values = others.into_iter().map(|v| any(&mut terms, v)).collect();
    let mut point = || -> Option<(Vec<Linear>, Vec<Linear>)> {
        let own = terms.bind(vars);
        let values = [own.as_slice(), &shared].concat();
        let at = indices.iter().map(|i| terms.index(i, &values)).collect::<Option<_>>()?;
        Some((own.into_iter().map(|(_, v)| v).collect(), at))
    };
    let (a, b) = (point()?, point()?);
    terms.question.require(Terms::equal(&a.1, &b.1)?);
    terms.question.require(Terms::different(&a.0, &b.0)?);
    Some(terms.question.decide(STEPS_OF_SIDE_CONDITION).0 == Answer::Impossible)
}

fn variables_of(cond: &Cond) -> BTreeSet<Var> {
    let mut out = BTreeSet::new();
    cond.for_each_index(&mut |i| i.for_each_var(&mut |v| out.extend([v])));
    out
}

/// The variables of a condition and of the facts that share variables with it, directly or through others, and these facts. Facts
/// over a variable without a range are left out.
fn related(cond: &Cond, env: &Env) -> (BTreeSet<Var>, Vec<Cond>) {
    let mut vars = variables_of(cond);
    let facts = env.facts().map(|fact| (variables_of(&fact), fact));
    let mut left: Vec<_> = facts.filter(|(of, _)| of.iter().all(|v| env.range(*v).is_some())).collect();
    let mut facts = Vec::new();
    loop {
        let (near, far): (Vec<_>, Vec<_>) = left.into_iter().partition(|(of, _)| !of.is_disjoint(&vars));
        if near.is_empty() {
            return (vars, facts);
        }
        left = far;
        for (of, fact) in near {
            vars.extend(of);
            facts.push(fact);
        }
    }
}

/// The variables that the conditions mention.
pub fn mentioned(conds: &[&Cond], vars: &[Ranged]) -> Vec<Ranged> {
    let found: BTreeSet<Var> = conds.iter().flat_map(|c| variables_of(c)).collect();
    vars.iter().filter(|(v, _)| found.contains(v)).copied().collect()
}

/// Values for which the procedure finds the claim broken; the inner `None` where it shows that there are none.
fn asked(cond: &Cond, given: &Cond, vars: &[Ranged]) -> Option<Option<Vec<Ranged>>> {
    let mut terms = Terms::new();
    let values = terms.bind(vars);
    match terms.violation(cond, slice::from_ref(given), &values, STEPS)? {
        Answer::Impossible => Some(None),
        Answer::Undecided => None,
        Answer::Point(point) => Some(Some(terms.read(&point, vars, &values)?)),
    }
}

/// What variables of the program are in a question.
pub type Values = Vec<(Var, Linear)>;

/// A question in the making, over indices and conditions of a program.
#[derive(Default)]
pub struct Terms {
    /// The question.
    pub question: Question,
    /// Where a value does not fit into 64 bits.
    overflows: Vec<Formula>,
}

impl Terms {
    /// Without variables.
    pub fn new() -> Terms {
        Terms::default()
    }

    /// A variable of the question for each of the program's.
    pub fn bind(&mut self, vars: &[Ranged]) -> Values {
        vars.iter().map(|(v, extent)| (*v, Linear::from(self.question.variable(0, extent.saturating_sub(1))))).collect()
    }

    /// The values of variables at a point.
    pub fn read(&self, point: &[Int], vars: &[Ranged], values: &Values) -> Option<Vec<Ranged>> {
        let value =
            |v: Var| values.iter().find(|(w, _)| *w == v).and_then(|(_, term)| self.question.value(point, term));
        vars.iter().map(|(v, _)| Some((*v, i64::try_from(value(*v)?).ok()?))).collect()
    }

    /// The term of an index; `None` where it has a form that questions do not have.
    pub fn index(&mut self, index: &Index, values: &Values) -> Option<Linear> {
        let (op, a, b) = match index {
            Index::Int(c) => return Some(Linear::from(*c)),
            Index::Var(v) => return values.iter().find(|(w, _)| w == v).map(|(_, term)| term.clone()),
            Index::Bin(op, a, b) => (op, self.index(a, values)?, self.index(b, values)?),
        };
        let term = match op {
            IndexOp::Add => a.plus(&b, 1),
            IndexOp::Sub => a.plus(&b, -1),
            IndexOp::Mul => self.question.multiply(&a, &b),
            IndexOp::FloorDiv => Some(self.question.divide_by(&a, &b)?.0),
            IndexOp::FloorMod => Some(self.question.divide_by(&a, &b)?.1),
            IndexOp::Min => self.question.min(&a, &b),
            IndexOp::Max => self.question.max(&a, &b),
            IndexOp::Xor => self.question.xor(&a, &b),
        }?;
        let (low, high) = self.question.range(&term)?;
        if low < Int::from(i64::MIN) || high > Int::from(i64::MAX) {
            let (least, most) = (Linear::from(i64::MIN), Linear::from(i64::MAX));
            self.overflows.push(Formula::compare(Compare::Less, &term, &least)?);
            self.overflows.push(Formula::compare(Compare::Less, &most, &term)?);
        }
        Some(term)
    }

    /// The formula of a condition; `None` where it has a form that questions do not have.
    pub fn cond(&mut self, cond: &Cond, values: &Values) -> Option<Formula> {
        Some(match cond {
            Cond::Const(c) => Formula::Const(*c),
            Cond::Cmp(op, a, b) => {
                let (a, b) = (self.index(a, values)?, self.index(b, values)?);
                match op {
                    CmpOp::Lt => Formula::compare(Compare::Less, &a, &b)?,
                    CmpOp::Le => Formula::compare(Compare::AtMost, &a, &b)?,
                    CmpOp::Eq => Formula::compare(Compare::Equal, &a, &b)?,
                    CmpOp::Ne => Formula::compare(Compare::Different, &a, &b)?,
                    CmpOp::Ge => Formula::compare(Compare::AtMost, &b, &a)?,
                    CmpOp::Gt => Formula::compare(Compare::Less, &b, &a)?,
                }
            }
            Cond::And(a, b) => Formula::all(vec![self.cond(a, values)?, self.cond(b, values)?]),
            Cond::Or(a, b) => Formula::any(vec![self.cond(a, values)?, self.cond(b, values)?]),
            Cond::Not(a) => self.cond(a, values)?.negated()?,
        })
    }

    /// Where a condition may hold: where it does, and where computing it overflows.
    pub fn possible(&mut self, cond: &Cond, values: &Values) -> Option<Formula> {
        let before = self.overflows.len();
        let mut parts = vec![self.cond(cond, values)?];
        parts.extend(self.overflows.drain(before..));
        Some(Formula::any(parts))
    }

    /// Where a condition is not known to hold: where it does not, and where computing it overflows.
    pub fn broken(&mut self, cond: &Cond, values: &Values) -> Option<Formula> {
        let before = self.overflows.len();
        let mut parts = vec![self.cond(cond, values)?.negated()?];
        parts.extend(self.overflows.drain(before..));
        Some(Formula::any(parts))
    }

    /// Values for which all of `given` may hold and the condition may not; `None` where one has a form that questions do not have.
    fn violation(&mut self, cond: &Cond, given: &[Cond], values: &Values, steps: u64) -> Option<Answer> {
        for fact in given {
            let holds = self.possible(fact, values)?;
            self.question.require(holds);
        }
        let breaks = self.broken(cond, values)?;
        self.question.require(breaks);
        Some(self.question.decide(steps).0)
    }

    /// Where two lists of terms are equal; `None` on overflow.
    pub fn equal(a: &[Linear], b: &[Linear]) -> Option<Formula> {
        let each = a.iter().zip(b).map(|(x, y)| Formula::compare(Compare::Equal, x, y));
        Some(Formula::all(each.collect::<Option<_>>()?))
    }

    /// Where two lists of terms are not equal; `None` on overflow.
    pub fn different(a: &[Linear], b: &[Linear]) -> Option<Formula> {
        let each = a.iter().zip(b).map(|(x, y)| Formula::compare(Compare::Different, x, y));
        Some(Formula::any(each.collect::<Option<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(i*7 + 3) % 1000003` over so many elements.
    #[test]
    fn an_index_is_outside_at_one_point_of_a_million() {
        let i = Var(0);
        let index = (i * 7 + 3).floormod(1_000_003);
        let inside = |n: i64| Cond::ge(index.clone(), 0).and(Cond::lt(index.clone(), n));
        assert_eq!(always(&inside(1_000_002), &Cond::TRUE, &[(i, 1_000_003)]), Verdict::Refuted(vec![(i, 142_857)]));
        assert_eq!(always(&inside(1_000_003), &Cond::TRUE, &[(i, 1_000_003)]), Verdict::Proved);
        let before = Cond::lt(i, 142_857);
        assert_eq!(always(&inside(1_000_002), &before, &[(i, 1_000_003)]), Verdict::Proved);
    }

    #[test]
    fn what_is_not_decided_and_has_too_many_points_says_so() {
        // Of x * x == 2 * y * y with x > 0 there is no solution, which no step of the procedure shows.
        let (x, y) = (Var(0), Var(1));
        let claim = Cond::cmp(CmpOp::Ne, x * x, y * y * 2);
        let vars = [(x, 1 << 20), (y, 1 << 20)];
        assert_eq!(always(&claim, &Cond::ge(x, 1), &vars), Verdict::Undecided);
        let few = [(x, 1 << 7), (y, 1 << 7)];
        assert_eq!(always(&claim, &Cond::ge(x, 1), &few), Verdict::Proved);
    }

    #[test]
    fn side_conditions_follow_from_ranges_and_facts() {
        let (i, j, free) = (Var(0), Var(1), Var(2));
        let mut env = Env::new();
        env.bind(i, 0, 1);
        env.bind(j, 0, 3);
        let f = i * 4 + j;
        let turned = f.clone().floormod(3) * 2 + f.clone().floordiv(3);
        assert!(!prove(&Cond::lt(turned.clone(), 6), &env));
        assert!(proves(&Cond::lt(turned.clone(), 6), &env));
        assert!(!proves(&Cond::lt(turned, 5), &env));
        // 2 and 5 are the values of f that satisfy the fact below.
        let odd = Cond::eq(f.clone().floormod(2), f.clone().floordiv(3));
        assert!(!proves(&odd, &env));
        env.assume(&Cond::eq(f.clone().floormod(3), 2));
        assert!(proves(&odd, &env) && !prove(&odd, &env));
        assert!(equal(&f.clone().floordiv(3), &(f.clone() - 2).floordiv(3), &env));
        assert!(!equal(&f.clone().floordiv(3), &(f - 3).floordiv(3), &env));
        assert!(!proves(&Cond::lt(free, 5), &env));
    }

    #[test]
    fn indices_may_be_one_to_one() {
        let (i, j, base) = (Var(0), Var(1), Var(2));
        let vars = [(i, 1000), (j, 700)];
        assert!(one_to_one(&[i * 700 + j + base], &vars));
        assert!(!one_to_one(&[i * 699 + j + base], &vars));
        let digits = [(i * 700 + j + base).floordiv(77), (i * 700 + j + base).floormod(77)];
        assert!(one_to_one(&digits, &vars));
        assert!(!one_to_one(&digits[..1], &vars));
    }
}
