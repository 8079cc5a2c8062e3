//! Assignments of values to variables, counted out.

/// The most assignments that are counted out to answer a question. What costs more than an evaluation each has a smaller budget of its own.
pub const POINTS: i64 = 1 << 16;

/// A variable with the number of its values, or with one of them.
type Of<V> = (V, i64);

/// How many assignments there are; `None` where the number does not fit.
pub fn volume<V>(vars: &[Of<V>]) -> Option<i64> {
    vars.iter().try_fold(1i64, |n, (_, extent)| n.checked_mul((*extent).max(0)))
}

/// All assignments of values from 0 to each variable's extent, the last variable fastest.
#[derive(Debug, Clone)]
pub struct Points<V> {
    vars: Vec<Of<V>>,
    /// The assignment that is next.
    at: Vec<Of<V>>,
    left: i64,
}

impl<V: Copy> Points<V> {
    /// The assignments of these variables, however many.
    pub fn of(vars: &[Of<V>]) -> Points<V> {
        let left = volume(vars).unwrap_or(i64::MAX);
        Points { vars: vars.to_vec(), at: vars.iter().map(|(v, _)| (*v, 0)).collect(), left }
    }

    /// The assignments of these variables, if they are at most so many.
    pub fn within(vars: &[Of<V>], most: i64) -> Option<Points<V>> {
        volume(vars).is_some_and(|n| n <= most).then(|| Points::of(vars))
    }

    /// How many are left.
    pub fn left(&self) -> i64 {
        self.left
    }

    /// Calls `f` with one after the other as long as it says so; says whether it always did.
    pub fn all(mut self, mut f: impl FnMut(&[Of<V>]) -> bool) -> bool {
        while self.left > 0 {
            if !f(&self.at) {
                return false;
            }
            self.advance();
        }
        true
    }

    fn advance(&mut self) {
        self.left -= 1;
        for ((_, value), (_, extent)) in self.at.iter_mut().zip(&self.vars).rev() {
            *value += 1;
            if *value < *extent {
                return;
            }
            *value = 0;
        }
    }
}

impl<V: Copy> Iterator for Points<V> {
    type Item = Vec<Of<V>>;

    fn next(&mut self) -> Option<Vec<Of<V>>> {
        if self.left <= 0 {
            return None;
        }
        let point = self.at.clone();
        self.advance();
        Some(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_variable_counts_fastest() {
        let points: Vec<_> = Points::within(&[('i', 2), ('j', 3)], POINTS).unwrap().collect();
        assert_eq!(points.len(), 6);
        assert_eq!((&points[1], &points[3]), (&vec![('i', 0), ('j', 1)], &vec![('i', 1), ('j', 0)]));
        assert_eq!(Points::<char>::within(&[], 1).unwrap().collect::<Vec<_>>(), [vec![]]);
        assert_eq!(Points::within(&[('i', 0), ('j', 3)], 1).unwrap().count(), 0);
    }

    #[test]
    fn what_is_beyond_the_budget_is_not_begun() {
        assert!(Points::within(&[('i', 300), ('j', 300)], POINTS).is_none());
        assert!(Points::within(&[('i', i64::MAX), ('j', 3)], i64::MAX).is_none());
        let mut seen = 0;
        assert!(!Points::within(&[('i', 10)], POINTS).unwrap().all(|p| {
            seen += 1;
            p[0].1 < 4
        }));
        assert_eq!(seen, 5);
    }
}
