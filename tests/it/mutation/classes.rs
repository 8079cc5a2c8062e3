//! The classes of damage that matter where copies and products run by themselves, each scored apart, with and without the verifier.

use std::collections::BTreeMap;
use warploom::sim::mutate::Mutant;

/// A class, and whether damage of a kind to what a text names is of it. The first that holds counts.
type Class = (&'static str, fn(kind: &str, what: &str) -> bool);

const CLASSES: [Class; 7] = [
    ("divergent synchronisation", |kind, _| kind == "divergence"),
    ("wrong byte count", |kind, _| kind == "bytes"),
    ("wrong phase", |kind, _| kind == "phase"),
    ("missing fence", |kind, _| kind.starts_with("fence")),
    ("registers of an MMA in flight", |kind, what| {
        let words = ["wgmma_wait", "wgmma_commit"];
        (kind.starts_with("wait") || kind.starts_with("commit")) && words.iter().any(|w| what.starts_with(w))
    }),
    ("stage refilled too early", |kind, what| {
        let left = kind == "wait removed" && what.starts_with("mbarrier.wait (WAR");
        kind == "arrival moved" && what.starts_with("mbarrier.arrive") || kind == "stage" || left
    }),
    ("deadlock", |kind, what| {
        let waits = kind == "wait removed" && what.starts_with("mbarrier.wait");
        let elected = kind.starts_with("election") && what.contains("mbarrier.");
        kind.starts_with("arrival") || waits || elected
    }),
];

/// The class of a mutant.
pub fn of(mutant: &Mutant) -> Option<&'static str> {
    CLASSES.iter().find(|(_, is)| is(mutant.kind, &mutant.what)).map(|(name, _)| *name)
}

/// Mutants of a class: those that are not equal to the program, those that are, what is found of the former, and what the simulator
/// finds of them by itself.
#[derive(Debug, Default, Clone)]
struct Counts {
    damaged: u32,
    equal: u32,
    found: u32,
    by_machine: u32,
    missed: Vec<String>,
}

/// The score of each class.
#[derive(Debug, Default)]
pub struct Classes(BTreeMap<&'static str, Counts>);

impl Classes {
    /// Counts a mutant: whether anything finds it, whether the simulator alone does, and whether it computes the same.
    pub fn count(&mut self, subject: &str, mutant: &Mutant, found: bool, by_machine: bool, equal: bool) {
        let Some(class) = of(mutant) else { return };
        let counts = self.0.entry(class).or_default();
        if equal {
            counts.equal += 1;
            return;
        }
        counts.damaged += 1;
        counts.found += u32::from(found);
        counts.by_machine += u32::from(by_machine);
        if !by_machine {
            counts.missed.push(format!("{subject}: {}: {}", mutant.kind, mutant.what));
        }
    }

    /// A line for each class, and what the simulator alone does not find.
    pub fn table(&self) -> String {
        let mut out = format!("{:>33} {:>8} {:>6} {:>6} {:>11}\n", "class", "mutants", "equal", "found", "simulated");
        for (name, c) in &self.0 {
            let all = c.damaged + c.equal;
            out += &format!("{name:>33} {all:>8} {:>6} {:>6} {:>11}\n", c.equal, c.found, c.by_machine);
        }
        for (name, c) in &self.0 {
            c.missed.iter().for_each(|m| out += &format!("only the verifier finds, {name}: {m}\n"));
        }
        out
    }

    /// Of each class of at least so many mutants 95 in 100 are found, and by the simulator alone.
    pub fn check(&self, least: u32) {
        for (name, c) in self.0.iter().filter(|(_, c)| c.damaged >= least) {
            let enough = |found: u32| found * 100 >= c.damaged * 95;
            assert!(enough(c.found) && enough(c.by_machine), "{name}: {c:#?}");
        }
    }
}
