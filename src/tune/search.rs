//! The search: chooses configurations, sends them to worker processes, and collects the trials.

use super::plan::Plan;
use super::protocol::{Answer, Found, Job, Status, Task};
use super::records::{Journal, Runoff, Trial, ranked, winner};
use super::runoffs::FailedRunoff;
use super::space::{Configuration, Space};
use super::worker::{LOOK, Place};
use crate::error::{Code, Error, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Seed of the sample of a large space, and of the order of ties.
const SAMPLE_SEED: u64 = 1;

/// What happens while a space is searched.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// So many configurations will be tried, so many of them are in the record already.
    Planned {
        /// Configurations to try.
        trials: usize,
        /// Those of them that the record has.
        known: usize,
    },
    /// So many configurations of a large space have been predicted, of so many at most.
    Predicted {
        /// Configurations so far.
        done: usize,
        /// At most.
        of: usize,
    },
    /// A trial is done and in the record.
    Trial {
        /// Its number, from 1.
        number: usize,
        /// The trial.
        trial: &'a Trial,
        /// The best so far.
        best: Option<&'a Trial>,
    },
    /// So many trials had no answer at the deadline: each runs again, alone, with twice the time.
    Retrying {
        /// Trials.
        trials: usize,
    },
    /// Two have been timed in turn: the best two, or in a ranked space its first configuration and the winner.
    Runoff(&'a Runoff),
    /// These two could not be timed in turn: their medians decide.
    RunoffFailed(&'a FailedRunoff),
}

/// A space and how it is searched.
pub struct Tuner<'a> {
    /// The schedules.
    pub space: &'a Space,
    /// Trials at most. A space with no more configurations is tried whole.
    pub trials: usize,
    /// Trials besides these, drawn at random from the other configurations of a space whose order is that of the cost model.
    pub drawn: usize,
    /// Worker processes at a time that compile, predict and simulate.
    pub jobs: usize,
    /// Seed of the data.
    pub seed: u64,
    /// Makes a worker that predicts, checks and compiles.
    pub place: &'a (dyn Fn() -> Box<dyn Place + 'a> + Sync),
    /// The worker that measures, and the folder for compiled kernels; without a device none.
    pub clock: Option<(&'a mut dyn Place, PathBuf)>,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Every configuration that was tried, those that the record had already among them.
    pub trials: Vec<Trial>,
    /// Runoffs between the best two, and in a ranked space between its first configuration and the winner.
    pub runoffs: Vec<Runoff>,
    /// The runoff of this search, if it failed.
    pub failed_runoff: Option<FailedRunoff>,
    /// Configurations that were predicted, and why some have no prediction.
    pub predicted: usize,
    /// Reasons and how often they occurred, of configurations that were not tried because they have no prediction.
    pub unpredicted: BTreeMap<String, usize>,
    /// Whether it was interrupted.
    pub is_stopped: bool,
}

impl Outcome {
    /// The best trial.
    pub fn winner(&self) -> Option<&Trial> {
        winner(&self.trials, &self.runoffs)
    }
}

/// Trials as they end: they go to the outcome, the record, and whoever listens.
struct Trials<'o, 'a, 's> {
    out: &'o mut Outcome,
    journal: Option<&'a mut Journal>,
    say: Said<'s>,
    /// How many are known.
    done: usize,
    /// Configurations whose worker had no answer, for a second attempt.
    hung: Vec<Configuration>,
}

impl Trials<'_, '_, '_> {
    /// Keeps the first attempt at a configuration, unless there will be a second.
    fn first(&mut self, configuration: &Configuration, answer: Answer) -> Result<()> {
        if answer.found.status == Status::Hung {
            self.hung.push(configuration.clone());
            return Ok(());
        }
        self.keep(configuration, answer)
    }

    /// Keeps a trial; of an interrupted one nothing.
    fn keep(&mut self, configuration: &Configuration, answer: Answer) -> Result<()> {
        if answer.found.status == Status::Stopped {
            return Ok(());
        }
        let trial = trial(configuration, answer);
        if let Some(journal) = self.journal.as_deref_mut() {
            journal.trial(trial.clone())?;
        }
        self.out.trials.push(trial);
        self.done += 1;
        let (number, last) = (self.done, self.out.trials.last());
        last.map_or(Ok(()), |trial| (self.say)(&Event::Trial { number, trial, best: best(&self.out.trials) }))
    }
}

type Said<'s> = &'s mut dyn FnMut(&Event<'_>) -> Result<()>;

impl Tuner<'_> {
    /// Searches. `stop` ends the search with what there is by then.
    ///
    /// # Errors
    /// `tune.worker` where no worker can be started, `tune.record` where the record cannot be written, and what `say` returns. What goes
    /// wrong with a configuration is its [`Status`].
    pub fn run(mut self, journal: Option<&mut Journal>, stop: &AtomicBool, say: Said<'_>) -> Result<Outcome> {
        let mut out = Outcome::default();
        let numbers = self.planned(&mut out, stop, say)?;
        let mut known: HashMap<String, Vec<Trial>> = HashMap::new();
        if let Some(record) = journal.as_deref().map(Journal::record) {
            out.runoffs.clone_from(&record.runoffs);
            for trial in &record.trials {
                known.entry(trial.schedule.clone()).or_default().push(trial.clone());
            }
        }
        let (mut left, mut texts): (Vec<Configuration>, HashSet<String>) = Default::default();
        for configuration in numbers.iter().filter_map(|n| self.space.configuration(*n)) {
            // Choices may make one schedule in two ways.
            if texts.insert(configuration.text.clone()) {
                match known.remove(&configuration.text) {
                    Some(trials) => out.trials.extend(trials),
                    None => left.push(configuration),
                }
            }
        }
        let done = texts.len() - left.len();
        say(&Event::Planned { trials: texts.len(), known: done })?;
        let mut trials = Trials { out: &mut out, journal, say, done, hung: Vec::new() };
        self.tried(&left, stop, &mut trials)?;
        self.retried(stop, &mut trials)?;
        let Trials { journal, say, .. } = trials;
        if !stop.load(Ordering::Relaxed) {
            self.decide(&mut out, journal, stop, say)?;
        }
        out.is_stopped = stop.load(Ordering::Relaxed);
        Ok(out)
    }

    /// Tries configurations: in parallel without a device; else compiles in parallel and measures one after the other.
    fn tried(&mut self, left: &[Configuration], stop: &AtomicBool, trials: &mut Trials<'_, '_, '_>) -> Result<()> {
        if self.clock.is_none() {
            return self.all(Task::Check, left, None, stop, &mut |c, answer| trials.first(c, answer));
        }
        let compiled = self.compiled(left, stop, &mut |c, answer| trials.first(c, answer))?;
        for (number, (configuration, folder)) in compiled.into_iter().enumerate() {
            let job = job((self.space, self.seed), number as u64, Task::Measure, configuration, vec![folder]);
            let answer = self.asked(&job, stop)?;
            trials.first(configuration, answer)?;
        }
        Ok(())
    }

    /// Tries each configuration again whose worker had no answer: the load of the host or the device may have been the cause, so the second
    /// attempt runs alone.
    fn retried(&mut self, stop: &AtomicBool, trials: &mut Trials<'_, '_, '_>) -> Result<()> {
        let hung = std::mem::take(&mut trials.hung);
        if hung.is_empty() || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        (trials.say)(&Event::Retrying { trials: hung.len() })?;
        for (number, configuration) in hung.iter().enumerate() {
            let mut answer = self.again(number as u64, configuration, stop)?;
            answer.found.attempts = Some(2);
            trials.keep(configuration, answer)?;
        }
        Ok(())
    }

    /// The second attempt at a configuration.
    fn again(&mut self, number: u64, configuration: &Configuration, stop: &AtomicBool) -> Result<Answer> {
        let folder = self.clock.as_ref().map(|(_, folder)| folder.join(format!("again-{number}")));
        let task = if folder.is_some() { Task::Compile } else { Task::Check };
        let of = |task: Task| {
            let folders = folder.iter().cloned().collect();
            Job { is_retry: true, ..job((self.space, self.seed), number, task, configuration, folders) }
        };
        let (first, measure) = (of(task), of(Task::Measure));
        // Each attempt has a new worker, and no other worker runs.
        let answer = (self.place)().ask(&first, stop)?;
        match answer.found.status {
            Status::Ok if folder.is_some() => self.asked(&measure, stop),
            _ => Ok(answer),
        }
    }

    /// The numbers of the configurations to try: all of a small space, the first of a ranked one, of any other those that are predicted
    /// to be fastest.
    fn planned(&self, out: &mut Outcome, stop: &AtomicBool, say: Said<'_>) -> Result<Vec<u64>> {
        let (count, trials) = (self.space.count(), self.trials as u64);
        if count <= trials || self.space.is_ranked() {
            let mut rest: Vec<u64> = (trials.min(count)..count).collect();
            fastrand::Rng::with_seed(self.seed).shuffle(&mut rest);
            rest.truncate(self.drawn);
            rest.sort_unstable();
            return Ok((0..count.min(trials)).chain(rest).collect());
        }
        let mut plan = Plan::new(self.space, self.trials, SAMPLE_SEED);
        loop {
            let next: Vec<_> = plan.next().into_iter().filter_map(|n| self.space.configuration(n)).collect();
            if next.is_empty() || stop.load(Ordering::Relaxed) {
                return Ok(plan.best(self.trials));
            }
            let of = plan.budget() as usize;
            let mut found = Vec::new();
            self.all(Task::Predict, &next, None, stop, &mut |c, answer| {
                out.predicted += usize::from(answer.found.status != Status::Stopped);
                match (answer.found.status, answer.found.cycles) {
                    (Status::Stopped, _) => {}
                    (Status::Ok, Some(cycles)) => found.push((c.number, cycles)),
                    _ => *out.unpredicted.entry(reason(&answer.found)).or_default() += 1,
                }
                say(&Event::Predicted { done: out.predicted, of })
            })?;
            // Answers come in any order; ties are drawn in that of the space.
            found.sort_by_key(|f| f.0);
            found.into_iter().for_each(|(number, cycles)| plan.add(number, cycles));
        }
    }

    /// Compiles in parallel. Failures go to `keep`. Returns the compiled configurations with their folders, fewest predicted cycles first.
    fn compiled<'c>(
        &self,
        left: &'c [Configuration],
        stop: &AtomicBool,
        keep: &mut dyn FnMut(&Configuration, Answer) -> Result<()>,
    ) -> Result<Vec<(&'c Configuration, PathBuf)>> {
        let Some((_, folder)) = &self.clock else { return Ok(Vec::new()) };
        let mut compiled: Vec<(u64, &Configuration)> = Vec::new();
        self.all(Task::Compile, left, Some(folder), stop, &mut |c, answer| match answer.found.status {
            Status::Ok => {
                let own = left.iter().find(|own| own.number == c.number);
                compiled.extend(own.map(|own| (answer.found.cycles.unwrap_or(f64::INFINITY).max(0.0).to_bits(), own)));
                Ok(())
            }
            _ => keep(c, answer),
        })?;
        compiled.sort_by_key(|(cycles, c)| (if self.space.is_ranked() { 0 } else { *cycles }, c.number));
        Ok(compiled.into_iter().map(|(_, c)| (c, folder.join(c.number.to_string()))).collect())
    }

    /// The answer of the worker that measures.
    pub(super) fn asked(&mut self, job: &Job, stop: &AtomicBool) -> Result<Answer> {
        let Some((place, _)) = &mut self.clock else {
            return Err(Error::bug(Code::TuneProtocol, "no worker measures"));
        };
        match stop.load(Ordering::Relaxed) {
            true => Ok(Answer::new(job.number, Found::new(Status::Stopped))),
            false => place.ask(job, stop),
        }
    }

    /// Asks some workers to do a task with all configurations, each compiled into a folder of its own where one is given.
    fn all(
        &self,
        task: Task,
        all: &[Configuration],
        folder: Option<&PathBuf>,
        stop: &AtomicBool,
        done: &mut dyn FnMut(&Configuration, Answer) -> Result<()>,
    ) -> Result<()> {
        let (next, halt) = (Mutex::new(0..all.len()), AtomicBool::new(false));
        let (space, seed, place) = (self.space, self.seed, self.place);
        let (send, answers) = channel::<Result<(usize, Answer)>>();
        thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, all.len().max(1)) {
                let (send, next, halt) = (send.clone(), &next, &halt);
                scope.spawn(move || {
                    let mut place = place();
                    loop {
                        let number = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some(at) = number.filter(|_| !halt.load(Ordering::Relaxed)) else { return };
                        let answer = match &all[at].schedule {
                            Err(e) => Ok(Answer::new(at as u64, Found::of_error(e))),
                            Ok(_) => {
                                let folders = folder.map(|f| f.join(all[at].number.to_string())).into_iter().collect();
                                place.ask(&job((space, seed), at as u64, task, &all[at], folders), halt)
                            }
                        };
                        if send.send(answer.map(|a| (at, a))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(send);
            let result = received(&answers, stop, &halt, &mut |(at, answer)| done(&all[at], answer));
            halt.store(true, Ordering::Relaxed);
            result
        })
    }
}

fn job((space, seed): (&Space, u64), number: u64, task: Task, c: &Configuration, folders: Vec<PathBuf>) -> Job {
    Job { is_tested: space.is_tested(), seed, folders, ..Job::new(number, task, &c.name, &c.text) }
}

/// Hands on what workers send until all have ended; halts them at an interrupt.
fn received<T>(
    answers: &std::sync::mpsc::Receiver<Result<T>>,
    stop: &AtomicBool,
    halt: &AtomicBool,
    done: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    loop {
        if stop.load(Ordering::Relaxed) {
            halt.store(true, Ordering::Relaxed);
        }
        match answers.recv_timeout(LOOK) {
            Ok(answer) => done(answer?)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn trial(configuration: &Configuration, answer: Answer) -> Trial {
    Trial { name: configuration.name.clone(), found: answer.found, schedule: configuration.text.clone() }
}

/// The schedule with the least median.
fn best(trials: &[Trial]) -> Option<&Trial> {
    ranked(trials).first().map(|r| r.1)
}

/// Why a trial or a runoff has no value, as counts are kept: `refused [split.2]: ..`.
pub fn reason(found: &Found) -> String {
    let code = found.code.as_ref().map_or(String::new(), |code| format!(" [{code}]"));
    let error = found.error.as_ref().map_or(String::new(), |error| format!(": {error}"));
    format!("{}{code}{error}", found.status.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::records::{Header, NO_DEVICE, Record, Run};
    use crate::tune::runoffs::RUNOFF;

    /// Answers without a process: cycles are the product of the numbers of the name; a name with 13 is refused, one with 7 hangs.
    struct Product;

    impl Place for Product {
        fn ask(&mut self, job: &Job, stop: &AtomicBool) -> Result<Answer> {
            if stop.load(Ordering::Relaxed) {
                return Ok(Answer::new(job.number, Found::new(Status::Stopped)));
            }
            let numbers = job.name.split(' ').filter_map(|word| word.split_once('=')?.1.parse::<f64>().ok());
            let numbers: Vec<f64> = numbers.collect();
            if numbers.contains(&13.0) {
                return Ok(Answer::because(job.number, Status::Refused, "unlucky"));
            }
            if numbers.contains(&7.0) && job.task == Task::Check {
                return Ok(Answer::because(job.number, Status::Hung, "no answer"));
            }
            if numbers.contains(&17.0) && !job.is_retry && job.task != Task::Predict {
                return Ok(Answer::because(job.number, Status::Hung, "the host is busy"));
            }
            let (cycles, us) =
                (Some(numbers.iter().product()), (job.task == Task::Measure).then(|| numbers.iter().sum()));
            let ratio = (job.task == Task::Runoff).then_some(2.0);
            let found = Found { cycles, us, ..Found::new(Status::Ok) };
            Ok(Answer { ratio, ..Answer::new(job.number, found) })
        }
    }

    fn space(first: &str, second: &str) -> Space {
        let text = format!(
            "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? {{a: {first}}} -> x y; split j ? {{b: {second}}} -> z w"
        );
        Space::parse(&text, None, None).unwrap()
    }

    fn tuner<'a>(space: &'a Space, trials: usize, is_clocked: bool) -> Tuner<'a> {
        // A place without state has no size, so nothing is kept.
        let product: &'a mut dyn Place = Box::leak(Box::new(Product));
        let clock = is_clocked.then(|| (product, "/nowhere".into()));
        Tuner { space, trials, drawn: 0, jobs: 2, seed: 1, place: &|| Box::new(Product), clock }
    }

    fn names(trials: &[Trial]) -> Vec<(&str, Status)> {
        let mut all: Vec<_> = trials.iter().map(|t| (t.name.as_str(), t.found.status)).collect();
        all.sort();
        all
    }

    #[test]
    fn a_small_space_is_tried_whole_and_failures_cost_themselves() {
        let space = space("3,7,13", "2,5");
        let mut said = Vec::new();
        let outcome = tuner(&space, 6, false).run(None, &AtomicBool::new(false), &mut |event| {
            said.push(match event {
                Event::Planned { trials, known } => format!("planned {trials} {known}"),
                Event::Trial { number, best, .. } => format!("{number} {}", best.map_or("-", |b| &b.name)),
                _ => "other".into(),
            });
            Ok(())
        });
        let outcome = outcome.unwrap();
        use Status::{Hung, Ok as Done, Refused};
        let wanted = [
            ("a=13 b=2", Refused),
            ("a=13 b=5", Refused),
            ("a=3 b=2", Done),
            ("a=3 b=5", Done),
            ("a=7 b=2", Hung),
            ("a=7 b=5", Hung),
        ];
        assert_eq!(names(&outcome.trials), wanted);
        assert_eq!(outcome.winner().unwrap().name, "a=3 b=2");
        assert_eq!((said.len(), said[0].as_str(), said[7].as_str()), (8, "planned 6 0", "6 a=3 b=2"));
        assert_eq!(
            reason(&outcome.trials.iter().find(|t| t.found.status == Refused).unwrap().found),
            "refused: unlucky"
        );
    }

    /// A trial without an answer has a second attempt, after all others; the record says how many there were.
    #[test]
    fn a_hung_trial_runs_again_alone() {
        for is_clocked in [false, true] {
            let space = space("17,7,3", "2,5");
            let (mut order, mut retrying) = (Vec::new(), 0);
            let outcome = tuner(&space, 6, is_clocked).run(None, &AtomicBool::new(false), &mut |event| {
                match event {
                    Event::Trial { trial, .. } => order.push(trial.name.clone()),
                    Event::Retrying { trials } => retrying += trials,
                    _ => {}
                }
                Ok(())
            });
            let outcome = outcome.unwrap();
            let of = |name: &str| outcome.trials.iter().find(|t| t.name == name).unwrap();
            for name in ["a=17 b=2", "a=17 b=5"] {
                assert_eq!((of(name).found.status, of(name).found.attempts), (Status::Ok, Some(2)), "{name}");
                assert_eq!(of(name).found.us.is_some(), is_clocked, "{name}");
                assert!(order.iter().position(|n| n == name).unwrap() >= 2, "{order:?}");
            }
            assert_eq!(of("a=3 b=2").found.attempts, None);
            // Without a device 7 hangs both times.
            let wanted = if is_clocked { (Status::Ok, None) } else { (Status::Hung, Some(2)) };
            assert_eq!((of("a=7 b=2").found.status, of("a=7 b=2").found.attempts), wanted);
            assert_eq!((outcome.trials.len(), retrying), (6, if is_clocked { 2 } else { 4 }));
        }
    }

    #[test]
    fn an_interrupt_keeps_no_hung_trial() {
        let (space, stop) = (space("17,3", "2,5"), AtomicBool::new(false));
        let outcome = tuner(&space, 4, false).run(None, &stop, &mut |event| {
            stop.fetch_or(matches!(event, Event::Retrying { .. }), Ordering::Relaxed);
            Ok(())
        });
        let outcome = outcome.unwrap();
        assert!(outcome.is_stopped && names(&outcome.trials) == [("a=3 b=2", Status::Ok), ("a=3 b=5", Status::Ok)]);
    }

    #[test]
    fn of_a_large_space_the_best_predictions_are_tried() {
        let many = (1..=40).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let space = space(&many, &many);
        let outcome = tuner(&space, 16, false).run(None, &AtomicBool::new(false), &mut |_| Ok(())).unwrap();
        assert_eq!(outcome.trials.len(), 16);
        assert!(outcome.predicted <= 128 && outcome.predicted > 64, "{}", outcome.predicted);
        assert!(outcome.winner().unwrap().found.cycles.unwrap() <= 8.0, "{:?}", outcome.winner());
        let again = tuner(&space, 16, false).run(None, &AtomicBool::new(false), &mut |_| Ok(())).unwrap();
        assert_eq!(names(&again.trials), names(&outcome.trials));
    }

    #[test]
    fn on_a_device_times_decide_and_the_best_two_run_off() {
        let space = space("3,13,20", "2,5");
        let outcome = tuner(&space, 6, true).run(None, &AtomicBool::new(false), &mut |_| Ok(())).unwrap();
        let timed: Vec<&str> =
            outcome.trials.iter().filter(|t| t.found.us.is_some()).map(|t| t.name.as_str()).collect();
        // Compiled first, then timed in the order of the predictions.
        assert_eq!(timed, ["a=3 b=2", "a=3 b=5", "a=20 b=2", "a=20 b=5"]);
        let [runoff] = &outcome.runoffs[..] else { panic!("{:?}", outcome.runoffs) };
        assert!(runoff.schedules.is_sorted());
        // The first in the order of the texts is twice as fast.
        assert_eq!(outcome.winner().unwrap().schedule, runoff.schedules[0]);
    }

    #[test]
    fn of_a_ranked_space_the_first_are_tried_and_some_of_the_rest() {
        let of = |n: usize| {
            let text = format!("gemm 64x64x64 f32 NN; target sm_80; split i ? {} -> a b", n + 2);
            (format!("number {n}"), crate::loom::Schedule::parse(&text).unwrap())
        };
        let space = Space::list((0..40).map(of).collect()).unwrap();
        let planned = |drawn: usize| {
            let tuner = Tuner { drawn, ..tuner(&space, 3, false) };
            tuner.planned(&mut Outcome::default(), &AtomicBool::new(false), &mut |_| Ok(())).unwrap()
        };
        assert_eq!(planned(0), [0, 1, 2]);
        let some = planned(5);
        assert!(some.len() == 8 && some.starts_with(&[0, 1, 2]) && some.is_sorted() && some[7] < 40, "{some:?}");
        assert!(some != [0, 1, 2, 3, 4, 5, 6, 7] && planned(5) == some, "{some:?}");
        assert_eq!(planned(100).len(), 40);
    }

    #[test]
    fn the_first_of_a_ranked_space_runs_off_against_the_winner() {
        let of = |b: usize| {
            let text = format!("gemm 64x64x64 f32 NN; target sm_80; split i ? 2 -> a b; split j ? {b} -> c d");
            (format!("b={b}"), crate::loom::Schedule::parse(&text).unwrap())
        };
        let pairs = |of_first: &[usize]| {
            let space = Space::list(of_first.iter().copied().map(of).collect()).unwrap();
            let outcome = tuner(&space, 8, true).run(None, &AtomicBool::new(false), &mut |_| Ok(())).unwrap();
            let text = |b: usize| of(b).1.to_string();
            let named = |schedule: &String| of_first.iter().copied().find(|b| text(*b) == *schedule).unwrap();
            let both = outcome.runoffs.iter().map(|r| r.schedules.each_ref().map(named)).collect::<Vec<_>>();
            (named(&outcome.winner().unwrap().schedule), both)
        };
        // The times are 8, 2 and 4; each runoff is for the first by its text.
        assert_eq!(pairs(&[8, 2, 4]), (2, vec![[2, 4], [2, 8]]));
        // A runoff between the best two is one with the first already.
        assert_eq!(pairs(&[4, 2, 8]), (2, vec![[2, 4]]));
    }

    /// Answers as [`Product`], except that runoffs end with this status.
    struct NoRunoff(Task, Status);

    impl Place for NoRunoff {
        fn ask(&mut self, job: &Job, stop: &AtomicBool) -> Result<Answer> {
            match job.name == RUNOFF && job.task == self.0 {
                true => Ok(Answer::because(job.number, self.1, "the clock fails")),
                false => Product.ask(job, stop),
            }
        }
    }

    #[test]
    fn a_runoff_that_fails_is_said_and_the_medians_decide() {
        let space = space("3,20", "2,5");
        let run = |task: Task, status: Status| {
            let place = move || Box::new(NoRunoff(task, status)) as Box<dyn Place>;
            let mut measuring = NoRunoff(task, status);
            let clock: Option<(&mut dyn Place, PathBuf)> = Some((&mut measuring, "/nowhere".into()));
            let tuner = Tuner { space: &space, trials: 4, drawn: 0, jobs: 2, seed: 1, place: &place, clock };
            let mut said = 0;
            let outcome = tuner.run(None, &AtomicBool::new(false), &mut |event| {
                said += usize::from(matches!(event, Event::RunoffFailed(_)));
                Ok(())
            });
            (outcome.unwrap(), said)
        };
        for (task, uncompiled) in [(Task::Runoff, None), (Task::Compile, Some(0))] {
            let (outcome, said) = run(task, Status::Failed);
            let failed = outcome.failed_runoff.as_ref().unwrap();
            assert_eq!((failed.uncompiled, reason(&failed.found).as_str()), (uncompiled, "failed: the clock fails"));
            assert!(outcome.runoffs.is_empty() && failed.schedules.is_sorted() && said == 1, "{outcome:?}");
            assert_eq!(outcome.winner().unwrap().name, "a=3 b=2");
        }
        let (stopped, said) = run(Task::Runoff, Status::Stopped);
        assert!(stopped.failed_runoff.is_none() && said == 0, "{stopped:?}");
    }

    #[test]
    fn a_runoff_of_the_record_decides_again() {
        let (space, path) =
            (space("3,20", "2,5"), std::env::temp_dir().join(format!("warploom-runoff-{}", std::process::id())));
        let run = Run { space: String::new(), seed: 1, compiler: String::new(), driver: None, clocks: None };
        let header = Header::new(space.program(), &space.target(), "a device", run);
        let found = || {
            let (mut journal, _) = Journal::open(&path, &header).unwrap();
            tuner(&space, 4, true).run(Some(&mut journal), &AtomicBool::new(false), &mut |_| Ok(())).unwrap()
        };
        let (first, second) = (found(), found());
        assert_eq!((first.runoffs.len(), &second.runoffs), (1, &first.runoffs));
        assert_eq!(first.winner().unwrap(), second.winner().unwrap());
        assert_eq!(first.winner().unwrap().schedule, first.runoffs[0].schedules[0]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_record_is_continued_and_an_interrupt_keeps_what_was_tried() {
        let space = space("3,5,7", "2,5");
        let run = Run { space: String::new(), seed: 1, compiler: String::new(), driver: None, clocks: None };
        let header = Header::new(space.program(), &space.target(), NO_DEVICE, run);
        let path = std::env::temp_dir().join(format!("warploom-search-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (mut journal, _) = Journal::open(&path, &header).unwrap();
        let stop = AtomicBool::new(false);
        let first = tuner(&space, 6, false).run(Some(&mut journal), &stop, &mut |event| {
            if matches!(event, Event::Trial { number: 2, .. }) {
                stop.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        let first = first.unwrap();
        assert!(first.is_stopped && first.trials.len() >= 2, "{first:?}");
        assert_eq!(journal.record().trials, first.trials);
        drop(journal);
        let (mut journal, _) = Journal::open(&path, &header).unwrap();
        let mut asked = 0;
        let second = tuner(&space, 6, false).run(Some(&mut journal), &AtomicBool::new(false), &mut |event| {
            asked += usize::from(matches!(event, Event::Trial { .. }));
            Ok(())
        });
        assert_eq!((second.unwrap().trials.len(), asked), (6, 6 - first.trials.len()));
        assert_eq!(Record::read(&path).unwrap().trials.len(), 6);
        std::fs::remove_file(&path).unwrap();
    }
}
