//! What the checks find: every example's kernels at small sizes, damaged one thing at a time as a faulty pass could.

use crate::cases::compiling_examples;
use std::collections::BTreeMap;
use std::time::Instant;
use warploom::lower::mutate::{Mutant, mutants};
use warploom::lower::{Lowered, lower, verify};
use warploom::machine::{Mode, Options, Policy, ring, ring_lowered_with};
use warploom::te::{Known, Layout};
use warploom::{DType, Gemm, Result, Schedule, Target, gemm};

const POLICIES: [Policy; 3] = [Policy::InOrder, Policy::Reverse, Policy::Random(3)];

/// A program to damage, with the elements that the naive program computes.
struct Subject {
    name: String,
    lowered: Lowered,
    naive: Vec<Vec<u32>>,
}

fn subject(name: String, schedule: &Schedule) -> Result<Subject> {
    let lowered = lower(&schedule.scheduled()?, &schedule.target)?;
    Ok(Subject { name, lowered, naive: ring(&schedule.program, 9)? })
}

fn subjects() -> Vec<Subject> {
    let mut out = Vec::new();
    for (name, schedule) in compiling_examples() {
        let product = matches!(Known::of(&schedule.program), Some(Known::Gemm(_)));
        let sizes: [&[i64]; 2] = if product { [&[64, 64, 32], &[35, 34, 18]] } else { [&[256], &[333]] };
        for (n, size) in sizes.into_iter().enumerate() {
            let made = schedule.resized(size).and_then(|s| subject(format!("{name} {size:?}"), &s));
            match made {
                Ok(s) => out.push(s),
                // Some steps demand sizes that they divide.
                Err(e) => assert!(n > 0, "{name}: {e}"),
            }
        }
    }
    for (m, n, k, dtype, layout) in [
        (64, 64, 32, DType::F32, Layout::NN),
        (33, 35, 18, DType::F32, Layout::NT),
        (64, 32, 16, DType::F16, Layout::TN),
    ] {
        let product = Gemm::new(m, n, k).of(dtype).layout(layout);
        let schedule = gemm::recommend(&product, &Target::sm_80()).unwrap();
        out.push(subject(format!("recommended {dtype} {} {m}x{n}x{k}", layout.name()), &schedule).unwrap());
    }
    out
}

/// What finds a mutant: the verifier, a code of the machine, or the result; `None` where nothing does.
fn found(lowered: &Lowered, naive: &[Vec<u32>], policy: Policy) -> Option<String> {
    if let Some(error) = lowered.kernels.iter().find_map(|k| verify(k).err()) {
        return Some(error.code().to_string());
    }
    let options = Options { policy, ..Options::new(Mode::Ring) };
    match ring_lowered_with(lowered, &options, 9) {
        Err(error) => Some(error.code().to_string()),
        Ok(elements) => (elements != naive).then(|| "other result".to_string()),
    }
}

#[test]
fn damage_is_found() {
    let start = Instant::now();
    let mut by_kind: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut by_check: BTreeMap<String, u32> = BTreeMap::new();
    let mut survivors = Vec::new();
    for s in subjects() {
        for policy in POLICIES {
            assert_eq!(found(&s.lowered, &s.naive, policy), None, "{} is not damaged", s.name);
        }
        for Mutant { kind, what, lowered } in mutants(&s.lowered) {
            let entry = by_kind.entry(kind).or_default();
            entry.1 += 1;
            match found(&lowered, &s.naive, Policy::InOrder) {
                Some(check) => {
                    entry.0 += 1;
                    *by_check.entry(check).or_default() += 1;
                }
                None => survivors.push(format!("{}: {kind}: {what}", s.name)),
            }
        }
    }
    for (kind, (caught, all)) in &by_kind {
        eprintln!("{kind:>16}: {caught} of {all}");
    }
    eprintln!("{by_check:?}, {:?}", start.elapsed());
    eprintln!("{}", survivors.join("\n"));
}
