//! Linear forms over numbered variables, in checked 128-bit arithmetic.

/// The numbers that the procedure computes with: wide enough that questions over 64-bit indices do not overflow in practice.
pub type Int = i128;

/// Coefficients and constants beyond this end a question as undecided.
const LIMIT: Int = 1 << 120;

/// A variable of a question, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variable(pub u32);

/// The sum of `coefficient * variable` over the terms, plus the constant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Linear {
    /// Each variable once, in order, with a coefficient that is not 0.
    pub(super) terms: Vec<(Variable, Int)>,
    /// What is added.
    pub(super) constant: Int,
}

impl From<i64> for Linear {
    fn from(value: i64) -> Linear {
        Linear { terms: Vec::new(), constant: Int::from(value) }
    }
}

impl From<Variable> for Linear {
    fn from(variable: Variable) -> Linear {
        Linear { terms: vec![(variable, 1)], constant: 0 }
    }
}

/// The value, unless it is too large to go on with.
fn fits(value: Int) -> Option<Int> {
    (-LIMIT..=LIMIT).contains(&value).then_some(value)
}

impl Linear {
    /// A form without variables.
    pub(super) fn constant(value: Int) -> Linear {
        Linear { terms: Vec::new(), constant: value }
    }

    /// The value, if no variable occurs.
    pub fn as_constant(&self) -> Option<Int> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// `self + other * scale`; `None` on overflow.
    pub fn plus(&self, other: &Linear, scale: Int) -> Option<Linear> {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut a, mut b) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let from_a = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) => Some(x.0.cmp(&y.0)),
                (Some(_), None) => Some(std::cmp::Ordering::Less),
                (None, Some(_)) => Some(std::cmp::Ordering::Greater),
                (None, None) => None,
            };
            let (variable, coefficient) = match from_a {
                None => break,
                Some(order) => {
                    let x = if order.is_le() { a.next() } else { None };
                    let y = if order.is_ge() { b.next() } else { None };
                    let scaled = y.map_or(Some(0), |y| y.1.checked_mul(scale))?;
                    let Some((variable, _)) = x.or(y) else { break };
                    (*variable, x.map_or(0, |x| x.1).checked_add(scaled)?)
                }
            };
            if coefficient != 0 {
                terms.push((variable, fits(coefficient)?));
            }
        }
        let constant = fits(self.constant.checked_add(other.constant.checked_mul(scale)?)?)?;
        Some(Linear { terms, constant })
    }

    /// `self * factor`; `None` on overflow.
    pub fn times(&self, factor: Int) -> Option<Linear> {
        Linear::default().plus(self, factor)
    }

    /// `self + value`; `None` on overflow.
    pub fn offset(&self, value: Int) -> Option<Linear> {
        Some(Linear { terms: self.terms.clone(), constant: fits(self.constant.checked_add(value)?)? })
    }

    /// The coefficient of a variable; 0 where it does not occur.
    pub(super) fn coefficient(&self, variable: Variable) -> Int {
        self.terms.binary_search_by_key(&variable, |t| t.0).map_or(0, |at| self.terms[at].1)
    }

    /// The value for values of the variables; `None` on overflow.
    pub(super) fn eval(&self, value: &dyn Fn(Variable) -> Option<Int>) -> Option<Int> {
        self.terms.iter().try_fold(self.constant, |sum, (v, c)| sum.checked_add(value(*v)?.checked_mul(*c)?))
    }

    /// The smallest and the largest value over ranges of the variables; `None` on overflow.
    pub(super) fn range(&self, ends: &dyn Fn(Variable) -> (Int, Int)) -> Option<(Int, Int)> {
        sum_range(&self.terms, ends).and_then(|(low, high)| {
            Some((fits(low.checked_add(self.constant)?)?, fits(high.checked_add(self.constant)?)?))
        })
    }
}

/// The smallest and the largest value of a sum of terms; `None` on overflow.
pub(super) fn sum_range(terms: &[(Variable, Int)], ends: &dyn Fn(Variable) -> (Int, Int)) -> Option<(Int, Int)> {
    terms.iter().try_fold((0, 0), |(low, high): (Int, Int), (v, c)| {
        let (x, y) = ends(*v);
        let (x, y) = (x.checked_mul(*c)?, y.checked_mul(*c)?);
        Some((fits(low.checked_add(x.min(y))?)?, fits(high.checked_add(x.max(y))?)?))
    })
}

/// The greatest common divisor of two magnitudes; `gcd(0, x)` is the magnitude of x.
pub(super) fn gcd(a: Int, b: Int) -> Int {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The greatest common divisor of the coefficients; 0 without terms.
pub(super) fn content(terms: &[(Variable, Int)]) -> Int {
    let mut all = 0;
    for (_, c) in terms {
        all = gcd(all, *c);
        if all == 1 {
            break;
        }
    }
    all
}

/// Quotient rounded up, for a positive divisor.
pub(super) fn div_ceil(a: Int, b: Int) -> Int {
    -(-a).div_euclid(b)
}
