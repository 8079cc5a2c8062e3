//! Trials of the tuner as a person and a program read them: progress, tables, rows of JSON, the best schedule.

use super::show;
use crate::error::{Result, counted};
use crate::tune::{Event, FailedRunoff, Outcome, Runoff, Space, Status, Trial, reason, records};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// Rows of a table of trials.
const ROWS: usize = 16;

/// Shows a search as it goes: a bar on a terminal, lines on standard error elsewhere, rows of JSON on standard output.
pub struct Shown {
    is_json: bool,
    bar: ProgressBar,
    trials: usize,
}

impl Shown {
    /// Nothing yet.
    pub fn new(is_json: bool) -> Shown {
        Shown { is_json, bar: show::bar(0), trials: 0 }
    }

    /// Shows an event.
    pub fn event(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Planned { trials, known } => {
                self.trials = *trials;
                self.begin(*trials, "");
                self.bar.set_position(*known as u64);
                // What is known already took no time.
                self.bar.reset_eta();
                if *known > 0 {
                    self.bar.suspend(|| show::note(format_args!("{known} of {trials} are in the record")));
                }
            }
            Event::Predicted { done, of } => self.step(*done, *of, "predicting"),
            Event::Trial { number, trial, best } => return self.trial(*number, trial, *best),
            Event::Retrying { trials } => {
                let words = format!(
                    "{} without an answer: each runs again, alone, with twice the time",
                    counted(*trials, "trial")
                );
                self.bar.suspend(|| show::note(words));
            }
            Event::Runoff(runoff) => {
                let words =
                    format!("runoff: the second of two in turn takes {:.4} of the first one's time", runoff.ratio);
                self.bar.suspend(|| show::note(words));
            }
            Event::RunoffFailed(failed) => {
                let words = format!("a runoff of two failed: {}", reason(&failed.found));
                self.bar.suspend(|| show::note(words));
            }
        }
        Ok(())
    }

    /// Takes the bar away.
    pub fn close(&self) {
        self.bar.finish_and_clear();
    }

    fn begin(&self, length: usize, what: &'static str) {
        self.bar.set_length(length as u64);
        self.bar.set_message(what);
    }

    fn step(&self, done: usize, of: usize, what: &'static str) {
        self.begin(of, what);
        self.bar.set_position(done as u64);
    }

    fn trial(&self, number: usize, trial: &Trial, best: Option<&Trial>) -> Result<()> {
        self.bar.set_position(number as u64);
        let best = best.map_or("none so far".into(), |b| format!("best {}: {}", value(b), b.name));
        self.bar.set_message(best.clone());
        if self.is_json {
            self.bar.suspend(|| show::json(trial))?;
        } else if !std::io::stderr().is_terminal() {
            show::note(format_args!("{number}/{} {}: {}; {best}", self.trials, trial.name, became(trial)));
        }
        Ok(())
    }
}

/// Microseconds, or predicted cycles.
fn value(trial: &Trial) -> String {
    match (trial.found.us, trial.found.cycles) {
        (Some(us), _) => format!("{us:.2} us"),
        (None, Some(cycles)) => format!("{cycles:.0} cycles"),
        (None, None) => "-".into(),
    }
}

/// The value of a trial, or why it has none.
fn became(trial: &Trial) -> String {
    let again = if trial.found.attempts.is_some() { ", at the second attempt" } else { "" };
    let found = if trial.found.status == Status::Ok { value(trial) } else { reason(&trial.found) };
    format!("{found}{again}")
}

/// The last line of JSON.
pub fn result(space: &Space, outcome: &Outcome) -> serde_json::Value {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for trial in &outcome.trials {
        *counts.entry(trial.found.status.name()).or_default() += 1;
    }
    let names = |schedules: &[String; 2]| schedules.each_ref().map(|s| name(&outcome.trials, s).to_string());
    let runoff = |r: &Runoff| serde_json::json!({ "names": names(&r.schedules), "ratio": r.ratio });
    let runoffs: Vec<_> = outcome.runoffs.iter().map(runoff).collect();
    let failed = outcome.failed_runoff.as_ref().map(|f| {
        let uncompiled = f.uncompiled.map(|n| name(&outcome.trials, &f.schedules[n]));
        serde_json::json!({
            "names": names(&f.schedules), "status": f.found.status, "code": f.found.code, "error": f.found.error,
            "uncompiled": uncompiled,
        })
    });
    serde_json::json!({
        "best": outcome.winner(), "configurations": space.count(), "predicted": outcome.predicted, "trials": outcome.trials.len(),
        "counts": counts, "runoffs": runoffs, "failed_runoff": failed, "stopped": outcome.is_stopped,
    })
}

/// The name of a schedule's first trial.
pub fn name<'t>(trials: &'t [Trial], schedule: &str) -> &'t str {
    trials.iter().find(|t| t.schedule == schedule).map_or("-", |t| &t.name)
}

/// Prints the runoffs below the table.
pub fn runoffs(trials: &[Trial], all: &[Runoff], failed: Option<&FailedRunoff>) {
    for runoff in all {
        let [first, second] = runoff.schedules.each_ref().map(|s| name(trials, s));
        show::line(format_args!("runoff: {second} takes {:.4} of the time of {first}", runoff.ratio));
    }
    if let Some(failed) = failed {
        let [first, second] = failed.schedules.each_ref().map(|s| name(trials, s));
        let which = failed.uncompiled.map_or(String::new(), |n| format!(", {} does not compile", [first, second][n]));
        let why = reason(&failed.found);
        show::line(format_args!("runoff of {first} and {second} failed{which}: {why}; their medians decide"));
    }
}

/// Prints how many there were, why some have no value, and the best.
pub fn report(space: &Space, outcome: &Outcome) {
    let valued = outcome.trials.iter().filter(|t| t.value().is_some()).count();
    let unchecked = outcome.trials.iter().filter(|t| t.value().is_some() && t.found.error_ratio.is_none()).count();
    let right = valued - unchecked;
    let not_checked = if unchecked > 0 { format!(", {unchecked} not checked") } else { String::new() };
    let tried = counted(outcome.trials.len(), "trial");
    let stopped = if outcome.is_stopped { ", then interrupted" } else { "" };
    let predicted = if outcome.predicted > 0 {
        format!("{} of {} predicted, ", outcome.predicted, space.count())
    } else {
        String::new()
    };
    show::line(format_args!(
        "{predicted}{tried}: {right} right{not_checked}, {} without a value{stopped}",
        outcome.trials.len() - valued
    ));
    reasons(outcome.unpredicted.clone(), &outcome.trials);
    if unchecked > 0 {
        show::line("  not checked: no instance that the simulator runs takes these steps");
    }
    table(&outcome.trials, outcome.winner());
    runoffs(&outcome.trials, &outcome.runoffs, outcome.failed_runoff.as_ref());
}

/// Prints why trials have no value, with counts. `counts` has earlier counts. Reasons with one error code share a line and show one message.
pub fn reasons(mut counts: BTreeMap<String, usize>, trials: &[Trial]) {
    for trial in trials.iter().filter(|t| t.value().is_none()) {
        *counts.entry(reason(&trial.found)).or_default() += 1;
    }
    let mut groups: BTreeMap<&str, (usize, usize, &str)> = BTreeMap::new();
    for (reason, count) in &counts {
        let (group, message) = reason.split_once("]: ").unwrap_or((reason, ""));
        let (all, messages, _) = groups.entry(group).or_insert((0, 0, message));
        (*all, *messages) = (*all + count, *messages + 1);
    }
    for (group, (count, messages, message)) in groups {
        match messages {
            _ if message.is_empty() => show::line(format_args!("  {count} {group}")),
            1 => show::line(format_args!("  {count} {group}]: {message}")),
            _ => show::line(format_args!("  {count} {group}], such as: {message}")),
        }
    }
}

/// The best schedules with the medians of their trials: the winner first, then the least median.
pub fn table(trials: &[Trial], winner: Option<&Trial>) {
    let mut ranked = records::ranked(trials);
    let is_winner = |t: &Trial| winner.is_some_and(|w| w.schedule == t.schedule);
    // The order of the medians stays behind the winner, because the sort is stable.
    ranked.sort_by_key(|r| !is_winner(r.1));
    let Some((best, first)) = ranked.first().copied() else { return };
    let unit = if first.found.us.is_some() { "us" } else { "predicted cycles" };
    let mut table = show::table(&["", "configuration", unit, "of the best"]);
    let digits = if first.found.us.is_some() { 2 } else { 0 };
    for (n, (own, trial)) in ranked.iter().take(ROWS).enumerate() {
        table.add_row([
            (n + 1).to_string(),
            trial.name.clone(),
            format!("{own:.digits$}"),
            format!("{:.3}", own / best),
        ]);
    }
    show::line(table);
    if ranked.len() > ROWS {
        show::line(format_args!("and {} more", ranked.len() - ROWS));
    }
}

/// The median of a schedule's trials with its unit.
pub fn median(trials: &[Trial], of: &Trial) -> String {
    let ranked = records::ranked(trials);
    let median = ranked.into_iter().find(|r| r.1.schedule == of.schedule).map(|r| r.0);
    let unit = |value: f64| if of.found.us.is_some() { format!("{value:.2} us") } else { format!("{value:.0} cycles") };
    median.map_or("-".into(), unit)
}

/// A schedule with a comment that gives the name of its configuration and the median of its trials.
pub fn exported(trials: &[Trial], of: &Trial) -> String {
    format!("# {}: {}\n{}", of.name, median(trials, of), of.schedule)
}
