//! Runoffs: two schedules are timed in turn on a device, where the times of single trials have too much noise to compare them.

use super::protocol::{Found, Job, Status, Task};
use super::records::{Journal, Runoff, ranked};
use super::search::{Event, Outcome, Tuner};
use crate::error::Result;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The name of the jobs of a runoff.
pub(super) const RUNOFF: &str = "runoff";

/// A runoff without a result. No record holds it, so the next run tries it again.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FailedRunoff {
    /// The schedules, sorted.
    pub schedules: [String; 2],
    /// The schedule that did not compile; none if the measurement failed.
    pub uncompiled: Option<usize>,
    /// The status and the error.
    pub found: Found,
}

/// None where there is nothing to time in turn.
type RunoffResult = Option<Result<Runoff, FailedRunoff>>;

impl Tuner<'_> {
    /// Runs a runoff between the best two, then in a ranked space one between its first configuration and the winner.
    pub(super) fn decide(
        &mut self,
        out: &mut Outcome,
        mut journal: Option<&mut Journal>,
        stop: &AtomicBool,
        say: &mut dyn FnMut(&Event<'_>) -> Result<()>,
    ) -> Result<()> {
        self.run_off(best_two(out), out, journal.as_deref_mut(), stop, say)?;
        let first = self.space.configuration(0).filter(|_| self.space.is_ranked() && out.failed_runoff.is_none());
        let pair = first.and_then(|first| with_winner(out, &first.text));
        self.run_off(pair, out, journal, stop, say)
    }

    /// Times a pair in turn that has no runoff yet. Keeps the result, or why there is none.
    fn run_off(
        &mut self,
        pair: Option<[String; 2]>,
        out: &mut Outcome,
        journal: Option<&mut Journal>,
        stop: &AtomicBool,
        say: &mut dyn FnMut(&Event<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(mut schedules) = pair else { return Ok(()) };
        schedules.sort();
        if out.runoffs.iter().any(|r| r.schedules == schedules) {
            return Ok(());
        }
        match self.runoff(schedules, stop)? {
            Some(Ok(runoff)) => {
                if let Some(journal) = journal {
                    journal.runoff(runoff.clone())?;
                }
                say(&Event::Runoff(&runoff))?;
                out.runoffs.push(runoff);
            }
            Some(Err(failed)) => {
                say(&Event::RunoffFailed(&failed))?;
                out.failed_runoff = Some(failed);
            }
            None => {}
        }
        Ok(())
    }

    /// Times two schedules in turn, if there is a device.
    fn runoff(&mut self, schedules: [String; 2], stop: &AtomicBool) -> Result<RunoffResult> {
        let Some((_, folder)) = &self.clock else { return Ok(None) };
        let folder = folder.clone();
        let (seed, is_tested) = (self.seed, self.space.is_tested());
        let of = |number: u64, task: Task, schedule: &str, folders: Vec<PathBuf>| Job {
            is_tested,
            seed,
            folders,
            ..Job::new(number, task, RUNOFF, schedule)
        };
        let mut folders = Vec::new();
        let mut place = (self.place)();
        for (n, schedule) in schedules.iter().enumerate() {
            let own = vec![folder.join(format!("runoff-{n}"))];
            folders.extend(own.iter().cloned());
            let job = of(n as u64, Task::Compile, schedule, own);
            let found = place.ask(&job, stop)?.found;
            if found.status != Status::Ok {
                return Ok(failed(schedules, Some(n), found));
            }
        }
        let job = of(2, Task::Runoff, &schedules[0], folders);
        let answer = self.asked(&job, stop)?;
        Ok(match answer.ratio {
            Some(ratio) => Some(Ok(Runoff { schedules, ratio })),
            None => failed(schedules, None, answer.found),
        })
    }
}

/// The best two schedules.
fn best_two(out: &Outcome) -> Option<[String; 2]> {
    match ranked(&out.trials).as_slice() {
        [(_, first), (_, second), ..] => Some([first.schedule.clone(), second.schedule.clone()]),
        _ => None,
    }
}

/// A schedule that has a value, and the winner if that is another one.
fn with_winner(out: &Outcome, schedule: &str) -> Option<[String; 2]> {
    out.trials.iter().find(|t| t.schedule == schedule && t.value().is_some())?;
    out.winner().filter(|w| w.schedule != schedule).map(|w| [schedule.to_string(), w.schedule.clone()])
}

/// A runoff that failed; none where an interrupt stopped it.
fn failed(schedules: [String; 2], uncompiled: Option<usize>, found: Found) -> RunoffResult {
    let is_stopped = found.status == Status::Stopped;
    (!is_stopped).then_some(Err(FailedRunoff { schedules, uncompiled, found }))
}
