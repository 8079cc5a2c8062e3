//! One program alone, checked and timed as a trial of a search.

use super::super::check;
use super::super::row;
use super::{Bench, Job, Set, Sides};
use crate::error::Result;

/// A program that takes longer than so many times the least time is timed in few samples: it is not the fastest.
const CLEARLY_SLOWER: f64 = 1.5;

/// What a program took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Median of microseconds a launch.
    pub us: f64,
    /// How far the program strays from itself.
    pub noise: f64,
    /// The largest error over its bound.
    pub error: f64,
}

impl Bench {
    /// Checks a program and times it, without the library. `least_us` is the least time of a program that computes the same.
    ///
    /// # Errors
    /// What loading, checking and launching it says.
    pub fn trial(&self, job: &Job<'_>, least_us: Option<f64>) -> Result<Timed> {
        let program = self.device.load(job.kernels)?;
        let ours = check::upload(&self.device, program.args(), &job.args)?;
        let (error, _) = check::check_uploaded(&program, &ours, &job.args, job.judge)?;
        let sides = Sides { program: &program, peer: None };
        let first = vec![Set { ours, library: Vec::new() }];
        let roughly = self.estimate(&sides, &first)?;
        let is_slow = least_us.is_some_and(|least| roughly.0 - self.launch_us[0] > CLEARLY_SLOWER * least);
        let (sets, short) = (self.sets(first, roughly)?, self.is_short(roughly.0, roughly.1));
        let launch = |set: usize| sides.ours(&sets[set]);
        let subject = self.subject(&launch, sets.len(), short, roughly.0)?;
        let mut timer = self.timer(2)?;
        let seconds = if is_slow { 0.0 } else { self.plan.row_s };
        let (samples, none) = self.samples_for(seconds, &mut timer, &[&subject, &subject])?;
        self.warm.set(true);
        let summary = row::summarise(&samples, &none);
        Ok(Timed { us: summary.us, noise: summary.noise, error })
    }
}
