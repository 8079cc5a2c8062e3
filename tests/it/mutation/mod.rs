//! What the checks find: every example's kernels at small sizes, damaged one thing at a time as a faulty pass could.

mod by_hand;
mod classes;
mod equal;
mod named;
mod subjects;

use crate::sample::{drawn, everything};
use classes::Classes;
use equal::Pin;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use subjects::{Subject, subjects};
use warploom::lower::{Lowered, verify};
use warploom::sim::mutate::{Mutant, mutants};
use warploom::sim::{Mode, Options, Policy, integers_with};

const POLICIES: [Policy; 3] = [Policy::InOrder, Policy::Reverse, Policy::Random(3)];

/// What finds a mutant: the verifier, a code of the simulator, or the result; `None` where nothing does.
fn found(lowered: &Lowered, naive: &[Vec<Vec<u32>>], policy: Policy) -> Option<String> {
    if let Some(error) = lowered.kernels.iter().find_map(|k| verify(k).err()) {
        return Some(error.code().to_string());
    }
    found_by_machine(lowered, naive, policy)
}

/// What of the simulator finds a mutant, or the result.
fn found_by_machine(lowered: &Lowered, naive: &[Vec<Vec<u32>>], policy: Policy) -> Option<String> {
    let options = Options::new(Mode::Integer).with_policy(policy);
    naive.iter().zip(1..).find_map(|(wanted, seed)| match integers_with(lowered, &options, seed) {
        Err(error) => Some(error.code().to_string()),
        Ok(elements) => (elements != *wanted).then(|| "other result".to_string()),
    })
}

/// Counts what was found.
#[derive(Default)]
struct Score {
    by_kind: BTreeMap<&'static str, (u32, u32)>,
    by_check: BTreeMap<String, u32>,
    /// The subject and the description of each mutant that nothing finds.
    survivors: Vec<(String, String)>,
}

impl Score {
    fn count(&mut self, subject: &Subject, mutant: Mutant, found: Option<String>) {
        let entry = self.by_kind.entry(mutant.kind).or_default();
        entry.1 += 1;
        match found {
            Some(check) => {
                entry.0 += 1;
                *self.by_check.entry(check).or_default() += 1;
            }
            None => self.survivors.push((subject.name.clone(), mutant.description())),
        }
    }

    fn totals(&self) -> (u32, u32) {
        self.by_kind.values().fold((0, 0), |(a, b), (caught, all)| (a + caught, b + all))
    }
}

/// What finds a mutant first. Of every eighth one, of all where `WARPLOOM_ALL` is set, each order must find it, or none: the
/// verdict is the program's, not the order's. Only in which phase of an mbarrier a thread arrives, the order may decide.
fn verdict(subject: &Subject, number: usize, mutant: &Mutant) -> Option<String> {
    let mut orders = POLICIES.map(|p| move || found(&mutant.lowered, &subject.naive, p)).into_iter();
    if !number.is_multiple_of(8) && !everything() {
        return orders.find_map(|find| find());
    }
    let all: Vec<_> = orders.map(|find| find()).collect();
    let same = all.iter().all(|o| o.is_some() == all[0].is_some());
    let phases = |o: &String| ["sim.mbarrier", "sim.deadlock"].contains(&o.as_str());
    assert!(
        same || all.iter().flatten().all(phases),
        "{}: {}: the order drawn decides: {all:?}",
        subject.name,
        mutant.what
    );
    all.into_iter().flatten().next()
}

/// Whether the simulator finds a mutant of a class by itself, where the verifier has found it first.
fn by_machine(subject: &Subject, mutant: &Mutant, verdict: Option<&str>) -> bool {
    match verdict {
        Some("lower.verify" | "lower.bug") if classes::of(mutant).is_some() => {
            POLICIES.iter().any(|p| found_by_machine(&mutant.lowered, &subject.naive, *p).is_some())
        }
        found => found.is_some(),
    }
}

/// Does the work of each number below `count` on all processors, in order of the numbers.
fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                break;
            }
            let result = work(n);
            done.lock().unwrap().push((n, result));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..threads).for_each(|_| drop(scope.spawn(worker)));
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A small program that is damaged in every run.
const ALWAYS: &str = "swap";

/// `WARPLOOM_SUBJECTS=wgmma` damages only the programs with that in their names; otherwise [`ALWAYS`] and about every 20th are damaged,
/// drawn for the commit, or all of them where `WARPLOOM_ALL` is set.
#[test]
fn damage_is_found() {
    let (start, mut score, mut classes) = (Instant::now(), Score::default(), Classes::default());
    let chosen = std::env::var("WARPLOOM_SUBJECTS").unwrap_or_default();
    let named = |name: &str| match chosen.is_empty() {
        true => name == ALWAYS || drawn(name, 20),
        false => name.contains(&chosen),
    };
    let subjects = subjects(&named);
    let pins = equal::pins();
    for s in &subjects {
        for verdict in each(POLICIES.len(), |n| found(&s.lowered, &s.naive, POLICIES[n])) {
            assert_eq!(verdict, None, "{} is not damaged", s.name);
        }
        let (before, mutants) = (start.elapsed(), mutants(&s.lowered));
        let names: BTreeSet<String> = mutants.iter().map(Mutant::description).collect();
        assert_eq!(names.len(), mutants.len(), "{}: two mutants have one description", s.name);
        let verdicts = each(mutants.len(), |n| verdict(s, n, &mutants[n]));
        let by_machine = each(mutants.len(), |n| by_machine(s, &mutants[n], verdicts[n].as_deref()));
        eprintln!("{}: {} mutants in {:.1?}", s.name, mutants.len(), start.elapsed() - before);
        for ((mutant, found), by_machine) in mutants.into_iter().zip(verdicts).zip(by_machine) {
            let is_pinned = |p: &Pin| p.subject == s.name && p.mutant == mutant.description();
            let equal = found.is_none() && pins.iter().any(is_pinned);
            classes.count(&s.name, &mutant, found.is_some(), by_machine, equal);
            score.count(s, mutant, found);
        }
    }
    eprintln!("{}", classes.table());
    for (kind, (caught, all)) in &score.by_kind {
        eprintln!("{kind:>16}: {caught} of {all}");
    }
    let (caught, all) = score.totals();
    eprintln!("{caught} of {all} mutants found, {:.1?}; by {:?}", start.elapsed(), score.by_check);
    let names: Vec<&str> = subjects.iter().map(|s| s.name.as_str()).collect();
    let whole = chosen.is_empty() && everything();
    equal::check(&pins, (!whole).then_some(&names), &score.survivors);
    classes.check(if whole { 1 } else { 20 });
    if !whole {
        return;
    }
    assert!(all > 1500 && caught * 100 >= all * 95, "{caught} of {all}");
}
