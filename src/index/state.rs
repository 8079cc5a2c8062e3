//! What is known in one branch of the search: ranges of variables, rows between them, and what is left to choose.

use super::linear::{Int, Linear, Variable, content, div_ceil, sum_range};
use super::question::{Formula, Meaning, Question, product_range};
use std::cell::Cell;
use std::rc::Rc;

/// Why a branch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// No point satisfies it.
    Conflict,
    /// The budget is spent, or a number is too large.
    Spent,
}

/// Steps left.
pub(super) struct Budget(Cell<u64>);

impl Budget {
    pub(super) fn new(steps: u64) -> Budget {
        Budget(Cell::new(steps))
    }

    /// What is left.
    pub(super) fn left(&self) -> u64 {
        self.0.get()
    }

    /// Takes steps.
    pub(super) fn spend(&self, steps: usize) -> Result<(), Stop> {
        match self.0.get().checked_sub(steps as u64) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                self.0.set(0);
                Err(Stop::Spent)
            }
        }
    }
}

/// `low <= sum of terms <= high`: at least two terms, of which the first has a positive coefficient and all no common factor.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) terms: Vec<(Variable, Int)>,
    pub(super) low: Int,
    pub(super) high: Int,
}

/// A branch.
#[derive(Clone)]
pub(super) struct State<'q> {
    pub(super) question: &'q Question,
    pub(super) budget: &'q Budget,
    /// The range of each variable, both ends inclusive. Variables beyond those of the question were introduced to solve equations.
    pub(super) ranges: Vec<(Int, Int)>,
    /// What a variable that was solved for is.
    solved: Vec<Option<Rc<Linear>>>,
    /// Whether the meaning of a variable counts.
    active: Vec<bool>,
    pub(super) rows: Vec<Row>,
    /// Disjunctions of which no alternative has been chosen.
    pub(super) clauses: Vec<&'q [Formula]>,
    /// Products whose factors are not constant.
    pub(super) products: Vec<Variable>,
    pending: Vec<&'q Formula>,
}

/// Rounds over all rows before the search goes on another way: narrowing may go in small steps.
const ROUNDS: usize = 16;

impl<'q> State<'q> {
    pub(super) fn new(question: &'q Question, budget: &'q Budget) -> State<'q> {
        let count = question.definitions.len();
        State {
            question,
            budget,
            ranges: question.definitions.iter().map(|d| (d.low, d.high)).collect(),
            solved: vec![None; count],
            active: vec![false; count],
            rows: Vec::new(),
            clauses: Vec::new(),
            products: Vec::new(),
            pending: question.formula.iter().collect(),
        }
    }

    /// Demands a formula.
    pub(super) fn demand(&mut self, formula: &'q Formula) {
        self.pending.push(formula);
    }

    /// A new variable.
    pub(super) fn introduce(&mut self, range: (Int, Int)) -> Variable {
        self.ranges.push(range);
        self.solved.push(None);
        self.active.push(true);
        Variable(self.ranges.len() as u32 - 1)
    }

    /// The range of a form; fails on overflow.
    pub(super) fn range(&self, a: &Linear) -> Result<(Int, Int), Stop> {
        a.range(&|v| self.ranges[v.0 as usize]).ok_or(Stop::Spent)
    }

    pub(super) fn sum_range(&self, terms: &[(Variable, Int)]) -> Result<(Int, Int), Stop> {
        sum_range(terms, &|v| self.ranges[v.0 as usize]).ok_or(Stop::Spent)
    }

    /// The form over variables that have not been solved for.
    pub(super) fn resolve(&self, a: &Linear) -> Result<Linear, Stop> {
        let mut out = a.clone();
        while let Some((v, by)) = out.terms.iter().find_map(|(v, _)| Some((*v, self.solved[v.0 as usize].clone()?))) {
            self.budget.spend(1 + by.terms.len())?;
            out = replaced(&out, v, &by).ok_or(Stop::Spent)?;
        }
        Ok(out)
    }

    /// Lets the meanings of the variables in a form count.
    fn activate(&mut self, a: &Linear) {
        for (v, _) in &a.terms {
            let at = v.0 as usize;
            if std::mem::replace(&mut self.active[at], true) {
                continue;
            }
            let Some(d) = self.question.definitions.get(at) else { continue };
            self.pending.push(&d.formula);
            if let Meaning::Product(..) = d.meaning {
                self.products.push(*v);
            }
        }
    }

    fn assert(&mut self, formula: &'q Formula) -> Result<(), Stop> {
        self.budget.spend(1)?;
        match formula {
            Formula::Const(true) => Ok(()),
            Formula::Const(false) => Err(Stop::Conflict),
            Formula::Zero(a) => {
                self.activate(a);
                let a = self.resolve(a)?;
                self.add_row(&a, 0, Some(0))
            }
            Formula::AtLeastZero(a) => {
                self.activate(a);
                let a = self.resolve(a)?;
                self.add_row(&a, 0, None)
            }
            Formula::All(parts) => {
                self.pending.extend(parts.iter().rev());
                Ok(())
            }
            Formula::Any(parts) => {
                self.clauses.push(parts);
                Ok(())
            }
        }
    }

    /// Demands `low <= form <= high` of variables that have not been solved for.
    pub(super) fn add_row(&mut self, form: &Linear, low: Int, high: Option<Int>) -> Result<(), Stop> {
        self.budget.spend(1 + form.terms.len())?;
        let (least, most) = self.sum_range(&form.terms)?;
        let low = (low - form.constant).max(least);
        let high = high.map_or(most, |h| (h - form.constant).min(most));
        if low > high {
            return Err(Stop::Conflict);
        }
        let factor = content(&form.terms);
        if factor == 0 || (low == least && high == most) {
            return Ok(());
        }
        let factor = if form.terms.first().is_some_and(|t| t.1 < 0) { -factor } else { factor };
        let (low, high) = if factor > 0 { (low, high) } else { (-high, -low) };
        let (low, high) = (div_ceil(low, factor.abs()), high.div_euclid(factor.abs()));
        if low > high {
            return Err(Stop::Conflict);
        }
        let terms: Vec<(Variable, Int)> = form.terms.iter().map(|(v, c)| (*v, c / factor)).collect();
        if let [(v, _)] = terms.as_slice() {
            return self.narrow(*v, low, high).map(|_| ());
        }
        match self.rows.iter_mut().find(|r| r.terms == terms) {
            Some(row) => {
                (row.low, row.high) = (row.low.max(low), row.high.min(high));
                if row.low > row.high { Err(Stop::Conflict) } else { Ok(()) }
            }
            None => {
                self.rows.push(Row { terms, low, high });
                Ok(())
            }
        }
    }

    /// Demands that a variable is in a range; says whether that is news.
    pub(super) fn narrow(&mut self, v: Variable, low: Int, high: Int) -> Result<bool, Stop> {
        let (a, b) = self.ranges[v.0 as usize];
        let (low, high) = (low.max(a), high.min(b));
        if low > high {
            return Err(Stop::Conflict);
        }
        self.ranges[v.0 as usize] = (low, high);
        Ok((low, high) != (a, b))
    }

    /// Replaces a variable everywhere.
    pub(super) fn solve(&mut self, v: Variable, by: Linear) -> Result<(), Stop> {
        let (low, high) = self.ranges[v.0 as usize];
        let (touched, kept): (Vec<Row>, Vec<Row>) =
            std::mem::take(&mut self.rows).into_iter().partition(|r| r.terms.iter().any(|t| t.0 == v));
        self.budget.spend(kept.len() + 1)?;
        self.rows = kept;
        for row in touched {
            let sum = Linear { terms: row.terms, constant: 0 };
            let sum = replaced(&sum, v, &by).ok_or(Stop::Spent)?;
            self.add_row(&sum, row.low, Some(row.high))?;
        }
        self.add_row(&by, low, Some(high))?;
        self.solved[v.0 as usize] = Some(Rc::new(by));
        Ok(())
    }

    /// Draws conclusions until there are no more.
    pub(super) fn settle(&mut self) -> Result<(), Stop> {
        let mut rounds = 0;
        loop {
            while let Some(formula) = self.pending.pop() {
                self.assert(formula)?;
            }
            if self.equations(false)? {
                continue;
            }
            let fixed = |v: &Variable| self.ranges[v.0 as usize].0 == self.ranges[v.0 as usize].1;
            if let Some(v) = self.rows.iter().flat_map(|r| r.terms.iter().map(|t| t.0)).find(fixed) {
                let value = self.ranges[v.0 as usize].0;
                self.solve(v, Linear::constant(value))?;
                continue;
            }
            let news = rounds < ROUNDS && self.propagate()?;
            rounds += 1;
            if news || self.equations(true)? {
                continue;
            }
            if !self.choose()? && !self.multiply()? {
                return Ok(());
            }
            rounds = 0;
        }
    }

    /// Narrows ranges by rows and rows by ranges; says whether anything changed.
    fn propagate(&mut self) -> Result<bool, Stop> {
        let mut changed = false;
        let mut at = 0;
        while at < self.rows.len() {
            let row = self.rows[at].clone();
            self.budget.spend(2 * row.terms.len())?;
            let (least, most) = self.sum_range(&row.terms)?;
            if least > row.high || most < row.low {
                return Err(Stop::Conflict);
            }
            if least >= row.low && most <= row.high {
                self.rows.swap_remove(at);
                continue;
            }
            for (v, c) in &row.terms {
                let (low, high) = self.ranges[v.0 as usize];
                let (x, y) = if *c > 0 { (c * low, c * high) } else { (c * high, c * low) };
                // c * v is between what the row leaves when the others are largest and smallest.
                let (from, to) = (row.low - (most - y), row.high - (least - x));
                let (from, to) = match *c > 0 {
                    true => (div_ceil(from, *c), to.div_euclid(*c)),
                    false => (div_ceil(-to, -c), (-from).div_euclid(-c)),
                };
                if from > low || to < high {
                    changed |= self.narrow(*v, from, to)?;
                }
            }
            let (least, most) = self.sum_range(&row.terms)?;
            let row = &mut self.rows[at];
            (row.low, row.high) = (row.low.max(least), row.high.min(most));
            changed |= row.low == row.high;
            if row.low > row.high {
                return Err(Stop::Conflict);
            }
            at += 1;
        }
        Ok(changed)
    }

    /// Drops disjunctions that hold, and takes the only alternative that is left; says whether there was one.
    fn choose(&mut self) -> Result<bool, Stop> {
        let clauses = std::mem::take(&mut self.clauses);
        let mut kept = Vec::with_capacity(clauses.len());
        let mut taken = false;
        for parts in clauses {
            let mut open = Vec::new();
            let mut holds = false;
            for part in parts {
                match self.judge(part)? {
                    Some(true) => {
                        holds = true;
                        break;
                    }
                    Some(false) => {}
                    None => open.push(part),
                }
            }
            match open.as_slice() {
                _ if holds => {}
                [] => return Err(Stop::Conflict),
                [only] => {
                    self.pending.push(only);
                    taken = true;
                }
                _ => kept.push(parts),
            }
        }
        self.clauses.extend(kept);
        Ok(taken)
    }

    /// Whether a formula holds in the whole branch, or nowhere in it, as far as ranges and single rows tell.
    pub(super) fn judge(&self, formula: &Formula) -> Result<Option<bool>, Stop> {
        match formula {
            Formula::Const(c) => Ok(Some(*c)),
            Formula::Zero(a) => {
                let (low, high) = self.known_range(a)?;
                Ok(match () {
                    () if low > 0 || high < 0 => Some(false),
                    // A meaning that does not count yet says more than the range.
                    () if low == 0 && high == 0 => Some(true),
                    () => None,
                })
            }
            Formula::AtLeastZero(a) => {
                let (low, high) = self.known_range(a)?;
                Ok(match () {
                    () if high < 0 => Some(false),
                    () if low >= 0 => Some(true),
                    () => None,
                })
            }
            Formula::All(parts) => {
                let mut all = Some(true);
                for part in parts {
                    match self.judge(part)? {
                        Some(false) => return Ok(Some(false)),
                        None => all = None,
                        Some(true) => {}
                    }
                }
                Ok(all)
            }
            Formula::Any(parts) => {
                let mut any = Some(false);
                for part in parts {
                    match self.judge(part)? {
                        Some(true) => return Ok(Some(true)),
                        None => any = None,
                        Some(false) => {}
                    }
                }
                Ok(any)
            }
        }
    }

    /// The range of a form, as ranges of variables and single rows give it.
    pub(super) fn known_range(&self, a: &Linear) -> Result<(Int, Int), Stop> {
        let a = self.resolve(a)?;
        self.budget.spend(1 + a.terms.len())?;
        let (low, high) = self.range(&a)?;
        // A row over the same variables, or a multiple of them, may say more.
        let factor = content(&a.terms);
        let Some(first) = a.terms.first().filter(|_| a.terms.len() > 1) else { return Ok((low, high)) };
        let factor = if first.1 < 0 { -factor } else { factor };
        let same = |r: &&Row| {
            r.terms.len() == a.terms.len()
                && r.terms.iter().zip(&a.terms).all(|(x, y)| x.0 == y.0 && x.1 * factor == y.1)
        };
        let Some(row) = self.rows.iter().find(same) else { return Ok((low, high)) };
        let (x, y) = (row.low * factor + a.constant, row.high * factor + a.constant);
        Ok((low.max(x.min(y)), high.min(x.max(y))))
    }

    /// Products with a factor that has become constant are linear; ranges of the others follow their factors. Says whether a product
    /// went.
    fn multiply(&mut self) -> Result<bool, Stop> {
        let products = std::mem::take(&mut self.products);
        let mut changed = false;
        for v in products {
            let Meaning::Product(a, b) = &self.question.definitions[v.0 as usize].meaning else { continue };
            self.activate(a);
            self.activate(b);
            let (a, b) = (self.resolve(a)?, self.resolve(b)?);
            let product = match (a.as_constant(), b.as_constant()) {
                (Some(c), _) => b.times(c),
                (_, Some(c)) => a.times(c),
                _ => {
                    let (low, high) = product_range(self.known_range(&a)?, self.known_range(&b)?).ok_or(Stop::Spent)?;
                    let own = self.resolve(&Linear::from(v))?;
                    self.add_row(&own, low, Some(high))?;
                    self.products.push(v);
                    continue;
                }
            };
            let difference = Linear::from(v).plus(&product.ok_or(Stop::Spent)?, -1).ok_or(Stop::Spent)?;
            let difference = self.resolve(&difference)?;
            self.add_row(&difference, 0, Some(0))?;
            changed = true;
        }
        Ok(changed || !self.pending.is_empty())
    }
}

/// The form with a variable replaced; `None` on overflow.
fn replaced(form: &Linear, v: Variable, by: &Linear) -> Option<Linear> {
    let c = form.coefficient(v);
    let terms = form.terms.iter().filter(|t| t.0 != v).copied().collect();
    Linear { terms, constant: form.constant }.plus(by, c)
}
