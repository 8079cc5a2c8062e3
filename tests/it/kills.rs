//! Processes that tests kill: how many, and at which stage of their work each was killed.
//!
//! `WARPLOOM_ALL=1 cargo test --test it killed -- --nocapture` kills 1000 builds and 1000 tuners, and prints the stages. Its output is kept
//! under benches/results as `kills-DATE.txt`.

use super::sample::everything;
use std::collections::BTreeMap;

/// Kills where everything is tried.
const MANY: usize = 1000;

/// No stage of a kill.
pub const ENDED: &str = "(no kill: the process ended before it)";

/// How many processes a test kills: `usual`, or 1000 where everything is tried.
pub fn wanted(usual: usize) -> usize {
    if everything() { MANY } else { usual }
}

/// Kills by stage.
#[derive(Default)]
pub struct Stages(BTreeMap<String, usize>);

impl Stages {
    /// Counts a kill.
    pub fn count(&mut self, stage: impl Into<String>) {
        *self.0.entry(stage.into()).or_default() += 1;
    }

    /// Adds the kills of another thread.
    pub fn add(&mut self, other: Stages) {
        other.0.into_iter().for_each(|(stage, kills)| *self.0.entry(stage).or_default() += kills);
    }

    /// The number of processes that the signal killed. It leaves out processes that had exited before the signal.
    pub fn kills(&self) -> usize {
        self.0.iter().filter(|(stage, _)| *stage != ENDED).map(|(_, kills)| kills).sum()
    }

    /// Prints a line for each stage.
    pub fn print(&self, what: &str) {
        println!("{what}: {} kills", self.kills());
        self.0.iter().for_each(|(stage, kills)| println!("  {kills:4} {stage}"));
    }
}
