//! Two programs that compute the same, timed in turn on the same buffers.

use super::super::check;
use super::super::row;
use super::super::timer::Subject;
use super::{Bench, Job, Set};
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// What two programs took in ABBA blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InTurn {
    /// Median of microseconds a launch, of each.
    pub us: [f64; 2],
    /// The median over the pairs of the time of the second over that of the first.
    pub ratio: f64,
    /// How far the first strays from itself in the same blocks.
    pub noise: f64,
}

impl Bench {
    /// Checks two programs with the same arguments, then times them in turn.
    ///
    /// # Errors
    /// What loading, checking and launching them says.
    pub fn runoff(&self, jobs: [&Job<'_>; 2]) -> Result<InTurn> {
        let [a, b] = jobs.map(|job| self.device.load(job.kernels));
        let programs = [a?, b?];
        let mut ours = Vec::new();
        for (program, job) in programs.iter().zip(jobs) {
            ours = check::upload(&self.device, program.args(), &job.args)?;
            check::check_uploaded(program, &ours, &job.args, job.judge)?;
        }
        let sets = [Set { ours, library: Vec::new() }];
        let launch = |n: usize, set: &Set| programs[n].launch(&set.ours.iter().collect::<Vec<_>>());
        let (first, second) = (|set: usize| launch(0, &sets[set]), |set: usize| launch(1, &sets[set]));
        let mut timer = self.timer(4)?;
        let (a, b) = (Subject::single(&first, 1), Subject::single(&second, 1));
        timer.block(&[&a, &b])?;
        let times = timer.block(&[&a, &b, &a, &b])?;
        let roughly = (times[0].min(times[2]), times[1].min(times[3]));
        let short = self.is_short(roughly.0, roughly.1);
        let sets = self.sets(sets.iter().map(Set::duplicate).collect::<Result<Vec<_>>>()?, roughly)?;
        let (first, second) = (|set: usize| launch(0, &sets[set]), |set: usize| launch(1, &sets[set]));
        let a = self.subject(&first, sets.len(), short, roughly.0)?;
        let b = self.subject(&second, sets.len(), short, roughly.1)?;
        let (first, second) = self.samples(&mut timer, &[&a, &b, &b, &a])?;
        let summary = row::summarise(&first, &second);
        let us = [summary.us, summary.library_us.unwrap_or(f64::NAN)];
        Ok(InTurn { us, ratio: summary.ratio.unwrap_or(f64::NAN), noise: summary.noise })
    }
}
