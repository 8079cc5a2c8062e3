//! Digits of numbers in a mixed radix: `(of % high) // low`.

/// A digit of something: it counts in units of `low` and begins again at `high`, a multiple of `low`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digit<T> {
    /// What it is a digit of.
    pub of: T,
    /// Its unit.
    pub low: i64,
    /// Where it begins again; `None` for the highest digit.
    pub high: Option<i64>,
}

impl<T> Digit<T> {
    /// The whole number.
    pub fn whole(of: T) -> Digit<T> {
        Digit { of, low: 1, high: None }
    }

    /// The digit of so many values; `None` where its end does not fit.
    pub fn sized(of: T, low: i64, size: i64) -> Option<Digit<T>> {
        Some(Digit { of, low, high: Some(low.checked_mul(size)?) })
    }

    /// How many values it has; `None` for the highest digit.
    pub fn size(&self) -> Option<i64> {
        self.high.map(|high| high / self.low)
    }

    /// `self // by`, if that is a digit.
    pub fn quotient(self, by: i64) -> Option<Digit<T>> {
        let low = self.unit(by)?;
        Some(Digit { low, ..self })
    }

    /// `self % by`, if that is a digit.
    pub fn remainder(self, by: i64) -> Option<Digit<T>> {
        let high = self.unit(by)?;
        Some(Digit { high: Some(high), ..self })
    }

    /// So many of its units, if they divide it.
    fn unit(&self, by: i64) -> Option<i64> {
        let unit = self.low.checked_mul(by).filter(|unit| *unit > 0)?;
        self.high.is_none_or(|high| high % unit == 0).then_some(unit)
    }

    /// Whether the other one, of the same number, begins where this one ends.
    pub fn ends_at<U>(&self, other: &Digit<U>) -> bool {
        self.high == Some(other.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(digit: &Digit<()>, of: i64) -> i64 {
        digit.high.map_or(of, |high| of % high) / digit.low
    }

    #[test]
    fn quotients_and_remainders_of_digits_are_digits() {
        let chains = [
            [(true, 4), (false, 6), (true, 2)],
            [(false, 24), (true, 3), (false, 4)],
            [(true, 2), (true, 3), (false, 5)],
        ];
        for chain in chains {
            let digit = chain
                .iter()
                .try_fold(Digit::whole(()), |d, (divide, by)| if *divide { d.quotient(*by) } else { d.remainder(*by) });
            let digit = digit.unwrap();
            for n in 0..500 {
                let stated = chain.iter().fold(n, |n, (divide, by)| if *divide { n / by } else { n % by });
                assert_eq!(value(&digit, n), stated, "{n} of {chain:?}");
            }
        }
        assert_eq!(Digit::whole(()).remainder(10).and_then(|d| d.quotient(3)), None);
        assert_eq!(Digit::whole(()).remainder(10).and_then(|d| d.remainder(4)), None);
        assert_eq!(Digit::whole(()).quotient(0), None);
    }
}
