//! A histogram of durations.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

/// How many runs took each number of whole microseconds.
#[derive(Debug, Clone, Default)]
pub struct Times(BTreeMap<u64, usize>);

impl Times {
    /// Runs `f` and counts its duration.
    pub fn of<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = f();
        *self.0.entry(start.elapsed().as_micros() as u64).or_default() += 1;
        out
    }

    /// Adds what another worker counted.
    pub fn merge(&mut self, other: &Times) {
        other.0.iter().for_each(|(time, n)| *self.0.entry(*time).or_default() += n);
    }

    /// The duration that `share` percent of the runs do not exceed.
    fn within(&self, share: usize) -> Duration {
        let mut left = self.0.values().sum::<usize>() * share / 100;
        let reached = |(_, n): &(&u64, &usize)| {
            let here = left < **n;
            left = left.saturating_sub(**n);
            here
        };
        let longest = self.0.last_key_value().map_or(0, |(time, _)| *time);
        Duration::from_micros(self.0.iter().find(reached).map_or(longest, |(time, _)| *time))
    }
}

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [median, most, longest] = [50, 99, 100].map(|share| self.within(share));
        write!(f, "{median:?} at the median, {most:?} at the 99th percentile, {longest:?} at most")
    }
}
