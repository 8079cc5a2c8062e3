//! A question: variables with ranges, terms over them, and a formula that some point shall satisfy.
//!
//! Terms are linear forms. A quotient, a remainder, a minimum, a maximum, a bit pattern or a product of two variables is a variable
//! of its own with a [`Meaning`]; equal terms share it.

use super::linear::{Int, Linear, Variable, gcd};
use std::collections::HashMap;

/// A formula over terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Formula {
    /// Always or never.
    Const(bool),
    /// The form is 0.
    Zero(Linear),
    /// The form is at least 0.
    AtLeastZero(Linear),
    /// All of them hold.
    All(Vec<Formula>),
    /// At least one of them holds.
    Any(Vec<Formula>),
}

/// How two terms compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Less.
    Less,
    /// Less or equal.
    AtMost,
    /// Equal.
    Equal,
    /// Not equal.
    Different,
}

impl Formula {
    /// `a op b`; `None` on overflow.
    pub fn compare(op: Compare, a: &Linear, b: &Linear) -> Option<Formula> {
        let up = b.plus(a, -1)?;
        Some(
            match op {
                Compare::Less => Formula::AtLeastZero(up.offset(-1)?),
                Compare::AtMost => Formula::AtLeastZero(up),
                Compare::Equal => Formula::Zero(up),
                Compare::Different => Formula::Any(vec![
                    Formula::AtLeastZero(up.offset(-1)?),
                    Formula::AtLeastZero(up.times(-1)?.offset(-1)?),
                ]),
            }
            .folded(),
        )
    }

    /// `low <= a < end`; `None` on overflow.
    pub fn within(a: &Linear, low: &Linear, end: &Linear) -> Option<Formula> {
        Some(Formula::all(vec![Formula::compare(Compare::AtMost, low, a)?, Formula::compare(Compare::Less, a, end)?]))
    }

    /// The conjunction, without constants.
    pub fn all(parts: Vec<Formula>) -> Formula {
        let mut kept = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Formula::Const(true) => {}
                Formula::Const(false) => return part,
                Formula::All(inner) => kept.extend(inner),
                part => kept.push(part),
            }
        }
        match kept.len() {
            0 => Formula::Const(true),
            1 => kept.swap_remove(0),
            _ => Formula::All(kept),
        }
    }

    /// The disjunction, without constants.
    pub fn any(parts: Vec<Formula>) -> Formula {
        let mut kept = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Formula::Const(false) => {}
                Formula::Const(true) => return part,
                Formula::Any(inner) => kept.extend(inner),
                part => kept.push(part),
            }
        }
        match kept.len() {
            0 => Formula::Const(false),
            1 => kept.swap_remove(0),
            _ => Formula::Any(kept),
        }
    }

    /// The opposite; `None` on overflow.
    pub fn negated(&self) -> Option<Formula> {
        let each = |parts: &[Formula]| parts.iter().map(Formula::negated).collect::<Option<Vec<_>>>();
        Some(match self {
            Formula::Const(c) => Formula::Const(!c),
            Formula::Zero(a) => Formula::compare(Compare::Different, a, &Linear::default())?,
            Formula::AtLeastZero(a) => Formula::AtLeastZero(a.times(-1)?.offset(-1)?).folded(),
            Formula::All(parts) => Formula::any(each(parts)?),
            Formula::Any(parts) => Formula::all(each(parts)?),
        })
    }

    fn folded(self) -> Formula {
        let known = match &self {
            Formula::Zero(a) => a.as_constant().map(|v| v == 0),
            Formula::AtLeastZero(a) => a.as_constant().map(|v| v >= 0),
            _ => None,
        };
        known.map_or(self, Formula::Const)
    }

    fn eval(&self, value: &dyn Fn(Variable) -> Option<Int>) -> Option<bool> {
        Some(match self {
            Formula::Const(c) => *c,
            Formula::Zero(a) => a.eval(value)? == 0,
            Formula::AtLeastZero(a) => a.eval(value)? >= 0,
            Formula::All(parts) => {
                for part in parts {
                    if !part.eval(value)? {
                        return Some(false);
                    }
                }
                true
            }
            Formula::Any(parts) => {
                for part in parts {
                    if part.eval(value)? {
                        return Some(true);
                    }
                }
                false
            }
        })
    }
}

/// What the value of a variable is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Meaning {
    /// Any value of its range.
    Free,
    /// `form // by`, rounded towards minus infinity.
    Quotient(Linear, Int),
    /// `form - by * (form // by)`.
    Remainder(Linear, Int),
    /// The smaller of two.
    Min(Linear, Linear),
    /// 1 where two forms with values 0 and 1 differ, else 0.
    Differ(Linear, Linear),
    /// The product.
    Product(Linear, Linear),
}

/// A variable.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub(super) low: Int,
    pub(super) high: Int,
    pub(super) meaning: Meaning,
    /// What the meaning says as a formula; of a product nothing.
    pub(super) formula: Formula,
}

/// Variables, terms and what is asked of them.
#[derive(Debug, Clone, Default)]
pub struct Question {
    pub(super) definitions: Vec<Definition>,
    known: HashMap<Meaning, Variable>,
    /// What a point has to satisfy.
    pub(super) formula: Vec<Formula>,
}

/// The most bits that an exclusive or is taken apart into.
const BITS: u32 = 40;

impl Question {
    /// Without variables.
    pub fn new() -> Question {
        Question::default()
    }

    /// A new variable with values from `low` to `high`, both inclusive; of an empty range `low` alone.
    pub fn variable(&mut self, low: i64, high: i64) -> Variable {
        self.define(Int::from(low), Int::from(high.max(low)), Meaning::Free, Formula::Const(true))
    }

    /// A new variable with values from `low` to `high` that `divisor` divides: a size of which bounds and divisibility are known.
    /// `None` where no value is left or the divisor is not positive.
    pub fn multiple(&mut self, low: i64, high: i64, divisor: i64) -> Option<Linear> {
        let first = Int::from(low).checked_add(Int::from(divisor) - 1)?.checked_div_euclid(Int::from(divisor))?;
        let last = Int::from(high).div_euclid(Int::from(divisor));
        if divisor < 1 || first > last {
            return None;
        }
        let quotient = self.define(first, last, Meaning::Free, Formula::Const(true));
        Linear::from(quotient).times(Int::from(divisor))
    }

    /// Demands that a point satisfies the formula.
    pub fn require(&mut self, formula: Formula) {
        self.formula.push(formula);
    }

    fn define(&mut self, low: Int, high: Int, meaning: Meaning, formula: Formula) -> Variable {
        let variable = Variable(self.definitions.len() as u32);
        self.definitions.push(Definition { low, high, meaning, formula });
        variable
    }

    /// The smallest and the largest value that the ranges of the variables allow; `None` on overflow.
    pub fn range(&self, a: &Linear) -> Option<(Int, Int)> {
        a.range(&|v| {
            let d = &self.definitions[v.0 as usize];
            (d.low, d.high)
        })
    }

    /// Quotient, rounded towards minus infinity, and remainder; `None` where the divisor is 0, and on overflow.
    pub fn divide(&mut self, a: &Linear, by: Int) -> Option<(Linear, Linear)> {
        if by == 0 {
            return None;
        }
        if by < 0 {
            // a // -b is -a // b, and a % -b is -(-a % b).
            let (quotient, remainder) = self.divide(&a.times(-1)?, by.checked_neg()?)?;
            return Some((quotient, remainder.times(-1)?));
        }
        // What the divisor divides is taken out of the quotient.
        let (whole, rest): (Vec<_>, Vec<_>) = a.terms.iter().partition(|(_, c)| c % by == 0);
        let whole = Linear {
            terms: whole.into_iter().map(|(v, c)| (v, c / by)).collect(),
            constant: a.constant.div_euclid(by),
        };
        let rest = Linear { terms: rest, constant: a.constant.rem_euclid(by) };
        let (quotient, remainder) = self.divide_rest(&rest, by)?;
        Some((whole.plus(&quotient, 1)?, remainder))
    }

    fn divide_rest(&mut self, a: &Linear, by: Int) -> Option<(Linear, Linear)> {
        let (low, high) = self.range(a)?;
        let (first, last) = (low.div_euclid(by), high.div_euclid(by));
        if first == last {
            return Some((Linear::constant(first), a.offset(-(first.checked_mul(by)?))?));
        }
        if let Some((factor, multiples, below)) = self.separate(a, by) {
            // (g * A + B) // by is A // (by / g) where B stays below g.
            let (quotient, remainder) = self.divide(&multiples, by / factor)?;
            return Some((quotient, below.plus(&remainder, factor)?));
        }
        if let Some((inner, n)) = self.remainder_of(a).filter(|(_, n)| n % by == 0) {
            return self.quotient_of(a, &inner, n, by);
        }
        // (x // n) // by is x // (n * by).
        let (quotient, own) = match self.number_of_quotient(a, by) {
            Some((number, by)) => (self.divide(&number, by)?.0, None),
            None => {
                let own = self.known_or(Meaning::Quotient(a.clone(), by), first, last);
                (Linear::from(own), Some(own))
            }
        };
        let remainder = self.known_or(Meaning::Remainder(a.clone(), by), 0, by - 1);
        let sum = a.plus(&quotient, -by)?.plus(&Linear::from(remainder), -1)?;
        for v in own.into_iter().chain([remainder]) {
            self.definitions[v.0 as usize].formula = Formula::Zero(sum.clone());
        }
        Some((quotient, Linear::from(remainder)))
    }

    /// The variable with this meaning. The caller states the formula of a new one.
    fn known_or(&mut self, meaning: Meaning, low: Int, high: Int) -> Variable {
        if let Some(v) = self.known.get(&meaning) {
            return *v;
        }
        let v = self.define(low, high, meaning.clone(), Formula::Const(true));
        self.known.insert(meaning, v);
        v
    }

    /// For a form `x // n + c`: a number and a divisor with `(x // n + c) // by == number // divisor`.
    fn number_of_quotient(&self, a: &Linear, by: Int) -> Option<(Linear, Int)> {
        let [(v, 1)] = a.terms.as_slice() else { return None };
        let Meaning::Quotient(x, n) = &self.definitions[v.0 as usize].meaning else { return None };
        Some((x.offset(a.constant.checked_mul(*n)?)?, n.checked_mul(by)?))
    }

    /// A factor of the divisor, the form's multiples of it divided by it, and the rest, if that is from 0 to below the factor.
    fn separate(&self, a: &Linear, by: Int) -> Option<(Int, Linear, Linear)> {
        let mut factors: Vec<Int> = a.terms.iter().map(|(_, c)| gcd(*c, by)).filter(|g| *g > 1).collect();
        factors.sort_unstable();
        factors.dedup();
        factors.into_iter().rev().find_map(|factor| {
            let (multiples, rest): (Vec<_>, Vec<_>) = a.terms.iter().partition(|(_, c)| c % factor == 0);
            let rest = Linear { terms: rest, constant: a.constant.rem_euclid(factor) };
            let (low, high) = self.range(&rest)?;
            let terms = multiples.into_iter().map(|(v, c)| (v, c / factor)).collect();
            let multiples = Linear { terms, constant: a.constant.div_euclid(factor) };
            (low >= 0 && high < factor).then_some((factor, multiples, rest))
        })
    }

    /// The form and the divisor, if this is a remainder.
    fn remainder_of(&self, a: &Linear) -> Option<(Linear, Int)> {
        let [(v, 1)] = a.terms.as_slice() else { return None };
        match &self.definitions[v.0 as usize].meaning {
            Meaning::Remainder(x, n) if a.constant == 0 => Some((x.clone(), *n)),
            _ => None,
        }
    }

    /// Quotient and remainder of `a`, which is `x % n`, by a divisor of n: the remainder is the one of x.
    fn quotient_of(&mut self, a: &Linear, x: &Linear, n: Int, by: Int) -> Option<(Linear, Linear)> {
        let (_, remainder) = self.divide(x, by)?;
        let meaning = Meaning::Quotient(a.clone(), by);
        if let Some(q) = self.known.get(&meaning) {
            return Some((Linear::from(*q), remainder));
        }
        let q = self.define(0, n / by - 1, meaning.clone(), Formula::Const(true));
        let rest = a.plus(&remainder, -1)?.plus(&Linear::from(q), -by)?;
        self.definitions[q.0 as usize].formula = Formula::Zero(rest);
        self.known.insert(meaning, q);
        Some((Linear::from(q), remainder))
    }

    /// The smaller; `None` on overflow.
    pub fn min(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        let (low, high) = self.range(&b.plus(a, -1)?)?;
        if low >= 0 {
            return Some(a.clone());
        }
        if high <= 0 {
            return Some(b.clone());
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let meaning = Meaning::Min(a.clone(), b.clone());
        if let Some(v) = self.known.get(&meaning) {
            return Some(Linear::from(*v));
        }
        let (x, y) = (self.range(a)?, self.range(b)?);
        let v = self.define(x.0.min(y.0), x.1.min(y.1), meaning.clone(), Formula::Const(true));
        let below = |side: &Linear| side.plus(&Linear::from(v), -1);
        let formula = Formula::All(vec![
            Formula::AtLeastZero(below(a)?),
            Formula::AtLeastZero(below(b)?),
            Formula::Any(vec![Formula::Zero(below(a)?), Formula::Zero(below(b)?)]),
        ]);
        self.definitions[v.0 as usize].formula = formula;
        self.known.insert(meaning, v);
        Some(Linear::from(v))
    }

    /// The larger; `None` on overflow.
    pub fn max(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        self.min(&a.times(-1)?, &b.times(-1)?)?.times(-1)
    }

    /// The exclusive or of two that are not negative; `None` where one may be or where there are too many bits.
    pub fn xor(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        let (x, y) = (self.range(a)?, self.range(b)?);
        if x.0 < 0 || y.0 < 0 {
            return None;
        }
        let (mut a, mut b, mut high, mut weight) = (a.clone(), b.clone(), x.1.min(y.1), 1);
        let mut out = Linear::default();
        for _ in 0..BITS {
            if high == 0 {
                // One of them has no more bits.
                return out.plus(&a, weight)?.plus(&b, weight);
            }
            let ((qa, ra), (qb, rb)) = (self.divide(&a, 2)?, self.divide(&b, 2)?);
            out = out.plus(&self.differ(&ra, &rb)?, weight)?;
            (a, b, high, weight) = (qa, qb, high / 2, weight * 2);
        }
        None
    }

    /// 1 where two bits differ, else 0.
    fn differ(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        match (a.as_constant(), b.as_constant()) {
            (Some(0), _) => return Some(b.clone()),
            (_, Some(0)) => return Some(a.clone()),
            (Some(_), _) => return Linear::constant(1).plus(b, -1),
            (_, Some(_)) => return Linear::constant(1).plus(a, -1),
            _ => {}
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let meaning = Meaning::Differ(a.clone(), b.clone());
        if let Some(v) = self.known.get(&meaning) {
            return Some(Linear::from(*v));
        }
        let v = self.define(0, 1, meaning.clone(), Formula::Const(true));
        let (own, sum) = (Linear::from(v), a.plus(b, 1)?);
        let formula = Formula::All(vec![
            Formula::AtLeastZero(sum.plus(&own, -1)?),
            Formula::AtLeastZero(own.plus(a, -1)?.plus(b, 1)?),
            Formula::AtLeastZero(own.plus(a, 1)?.plus(b, -1)?),
            Formula::AtLeastZero(Linear::constant(2).plus(&own, -1)?.plus(&sum, -1)?),
        ]);
        self.definitions[v.0 as usize].formula = formula;
        self.known.insert(meaning, v);
        Some(own)
    }

    /// The product; `None` on overflow.
    pub fn multiply(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        match (a.as_constant(), b.as_constant()) {
            (Some(c), _) => return b.times(c),
            (_, Some(c)) => return a.times(c),
            _ => {}
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let meaning = Meaning::Product(a.clone(), b.clone());
        if let Some(v) = self.known.get(&meaning) {
            return Some(Linear::from(*v));
        }
        let (low, high) = product_range(self.range(a)?, self.range(b)?)?;
        let v = self.define(low, high, meaning.clone(), Formula::Const(true));
        self.known.insert(meaning, v);
        Some(Linear::from(v))
    }

    /// Quotient and remainder by a term with positive values; `None` where it may not be positive, and on overflow.
    pub fn divide_by(&mut self, a: &Linear, by: &Linear) -> Option<(Linear, Linear)> {
        if let Some(by) = by.as_constant() {
            return self.divide(a, by);
        }
        let ((low, high), (least, most)) = (self.range(a)?, self.range(by)?);
        if least < 1 {
            return None;
        }
        let ends = [low.div_euclid(least), low.div_euclid(most), high.div_euclid(least), high.div_euclid(most)];
        let first = ends.iter().copied().min()?;
        let last = ends.iter().copied().max()?;
        // The quotient is the free variable that makes the remainder one: it exists and is unique.
        let q = self.define(first, last, Meaning::Free, Formula::Const(true));
        let product = self.multiply(&Linear::from(q), by)?;
        let remainder = a.plus(&product, -1)?;
        let inside = Formula::within(&remainder, &Linear::default(), by)?;
        self.require(inside);
        Some((Linear::from(q), remainder))
    }

    /// Values of all variables from those of the free ones; `None` on overflow.
    pub(super) fn completed(&self, free: &dyn Fn(Variable) -> Int) -> Option<Vec<Int>> {
        let mut values: Vec<Int> = Vec::with_capacity(self.definitions.len());
        for (n, d) in self.definitions.iter().enumerate() {
            let value = |v: Variable| values.get(v.0 as usize).copied();
            let of = |a: &Linear| a.eval(&value);
            let v = match &d.meaning {
                Meaning::Free => free(Variable(n as u32)),
                Meaning::Quotient(a, by) => of(a)?.div_euclid(*by),
                Meaning::Remainder(a, by) => of(a)?.rem_euclid(*by),
                Meaning::Min(a, b) => of(a)?.min(of(b)?),
                Meaning::Differ(a, b) => Int::from(of(a)? != of(b)?),
                Meaning::Product(a, b) => of(a)?.checked_mul(of(b)?)?,
            };
            values.push(v);
        }
        Some(values)
    }

    /// Whether values of all variables satisfy what is required.
    pub(super) fn holds(&self, values: &[Int]) -> bool {
        let value = |v: Variable| values.get(v.0 as usize).copied();
        let in_range = self.definitions.iter().zip(values).all(|(d, v)| (d.low..=d.high).contains(v));
        in_range && self.formula.iter().all(|f| f.eval(&value) == Some(true))
    }
}

/// The smallest and the largest product of two numbers from ranges; `None` on overflow.
pub(super) fn product_range(a: (Int, Int), b: (Int, Int)) -> Option<(Int, Int)> {
    let corners = [a.0.checked_mul(b.0)?, a.0.checked_mul(b.1)?, a.1.checked_mul(b.0)?, a.1.checked_mul(b.1)?];
    Some((corners.iter().copied().min()?, corners.iter().copied().max()?))
}
