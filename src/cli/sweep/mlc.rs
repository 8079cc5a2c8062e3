//! The schedules of the MLC course's chapter on GPUs at 1024 x 1024 x 1024 of f32, and a search of as many trials as its automatic
//! optimisation has. The course prints no figures.

use super::{Searched, Session, figure, listed, show};
use crate::error::Result;
use crate::target::Target;
use crate::tune::Space;

const SPACE: &str = include_str!("../../../examples/spaces/mlc_tiles.loom");

/// `max_trials_global` of the course.
const TRIALS: usize = 64;

/// The schedules by hand.
const BY_HAND: [(&str, &str); 2] = [
    ("GEMM-Blocking (local)", include_str!("../../../examples/mlc_local.loom")),
    ("GEMM-Blocking (shared memory)", include_str!("../../../examples/mlc_shared.loom")),
];

fn spaces(target: Option<Target>) -> Result<[Space; 2]> {
    Ok([listed(&BY_HAND, target)?, Space::parse(SPACE, None, target)?])
}

/// Tries the schedules by hand and the best of a search, and prints their speeds.
pub fn run(session: &mut Session<'_>) -> Result<()> {
    let [hand, space] = spaces(session.target)?;
    session.line(format_args!("mlc: {}; {TRIALS} trials", space.describe()));
    let (target, count) = (space.target(), hand.count() as usize);
    let mut found = Vec::new();
    for (name, space, trials) in [("mlc-by-hand", hand, count), ("mlc-64", space, TRIALS)] {
        found.extend(session.searched(name, space, trials)?);
    }
    let [hand, tuned] = &found[..] else { return Ok(()) };
    session.line(format_args!("{}: {}", hand.title(), session.unit(target)));
    let mut table = show::table(&["schedule", "us", "GFLOPS"]);
    let mut row = |name: String, searched: &Searched, trial: Option<&crate::tune::Trial>| {
        let us = trial.and_then(|t| searched.seconds(t)).map(|s| s * 1e6);
        table.add_row([name, figure(us, 1), figure(trial.and_then(|t| searched.gflops(t)), 0)]);
    };
    for (name, _) in BY_HAND {
        row(name.into(), hand, hand.trial(name));
    }
    let best = tuned.outcome.winner();
    let name = best.map_or("MetaSchedule".into(), |b| format!("MetaSchedule: {}", b.name));
    row(name, tuned, best);
    session.line(table);
    let (tried, predicted) = (tuned.outcome.trials.len(), tuned.outcome.predicted);
    session.line(format_args!("search: {predicted} configurations predicted, {tried} tried"));
    session.reasons(&found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_is_of_the_program_by_hand() {
        let [hand, space] = spaces(None).unwrap();
        assert_eq!(hand.program(), space.program());
        assert!(space.count() > TRIALS as u64);
    }
}
