//! The survivors: mutants that nothing finds, because they compute the same as the program.
//!
//! `equal.txt` has a line for each, `SUBJECT | KIND: DESCRIPTION | REASON`, and no line excuses more than one. A survivor without
//! a line fails the test, and so do a line without a survivor and a line without a reason. `WARPLOOM_BLESS=1` writes the lines of
//! new survivors with no reason and takes away those of mutants that are found; the reasons are then for a person to write.

use std::fmt::Write as _;
use std::path::PathBuf;

/// Between the parts of a line.
const BAR: &str = " | ";

/// A mutant that is excused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    pub subject: String,
    /// Its kind and what was damaged.
    pub mutant: String,
    /// Why it computes the same; empty where nobody has said so yet.
    pub reason: String,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/mutation/equal.txt")
}

/// Every line of the file.
pub fn pins() -> Vec<Pin> {
    let text = std::fs::read_to_string(path()).unwrap();
    let pin = |line: &str| {
        let parts: Vec<&str> = line.splitn(3, BAR.trim_end()).collect();
        let &[subject, mutant, reason] = parts.as_slice() else { panic!("equal.txt: `{line}` has no two bars") };
        Pin { subject: subject.trim().into(), mutant: mutant.trim().into(), reason: reason.trim().into() }
    };
    let pins: Vec<Pin> = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(pin).collect();
    for (n, pin) in pins.iter().enumerate() {
        let twice = pins[..n].iter().any(|p| (&p.subject, &p.mutant) == (&pin.subject, &pin.mutant));
        assert!(!twice, "equal.txt has {} of {} twice", pin.mutant, pin.subject);
    }
    pins
}

/// Holds the survivors of the subjects that ran to their lines, or rewrites the lines; `None` stands for all subjects.
pub fn check(pins: &[Pin], subjects: Option<&[&str]>, survivors: &[(String, String)]) {
    let ran = |p: &&Pin| subjects.is_none_or(|subjects| subjects.contains(&p.subject.as_str()));
    let of = |(subject, mutant): &(String, String)| pins.iter().find(|p| p.subject == *subject && p.mutant == *mutant);
    if std::env::var_os("WARPLOOM_BLESS").is_some() {
        let kept = pins.iter().filter(|p| !ran(p)).cloned();
        let new = survivors.iter().map(|s| {
            let reason = of(s).map_or(String::new(), |p| p.reason.clone());
            Pin { subject: s.0.clone(), mutant: s.1.clone(), reason }
        });
        write(kept.chain(new).collect());
    }
    let mut faults = String::new();
    for survivor in survivors {
        match of(survivor) {
            None => writeln!(faults, "nothing finds {}: {}", survivor.0, survivor.1).unwrap(),
            Some(pin) if pin.reason.is_empty() => {
                writeln!(faults, "no reason is given for {}: {}", survivor.0, survivor.1).unwrap();
            }
            Some(_) => {}
        }
    }
    let survives = |p: &Pin| survivors.iter().any(|(subject, mutant)| p.subject == *subject && p.mutant == *mutant);
    for pin in pins.iter().filter(ran).filter(|p| !survives(p)) {
        writeln!(faults, "found, or no mutant any more: {}: {}", pin.subject, pin.mutant).unwrap();
    }
    assert!(faults.is_empty(), "{faults}");
}

fn write(mut pins: Vec<Pin>) {
    pins.sort_by(|a, b| a.subject.cmp(&b.subject));
    let mut text = String::from(
        "# Mutants that compute the same as the program: subject | kind: what was damaged | why (tests/it/mutation/equal.rs).\n",
    );
    for Pin { subject, mutant, reason } in pins {
        assert!(!subject.contains(BAR) && !mutant.contains(BAR.trim_end()), "{subject}: {mutant}: a bar in a name");
        writeln!(text, "{}", format!("{subject}{BAR}{mutant}{BAR}{reason}").trim_end()).unwrap();
    }
    std::fs::write(path(), text).unwrap();
}
