//! What is said of a fault names it: the fence, the wait or the product that is missing, and not merely that nothing orders two
//! accesses.

use super::subjects::narrow_schedule;
use crate::cases::examples;
use warploom::error::Code;
use warploom::lower::{Lowered, lower};
use warploom::sim::mutate::{Mutant, mutants};
use warploom::sim::{Mode, Options, integers_with};
use warploom::{Error, Schedule};

fn example(name: &str) -> Lowered {
    let text = examples().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name}")).1;
    lowered(&Schedule::parse(&text).unwrap())
}

fn lowered(schedule: &Schedule) -> Lowered {
    lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap()
}

/// What the simulator says of each mutant that these words describe.
fn said(of: &Lowered, words: &str) -> Vec<(Mutant, Error)> {
    let meant: Vec<Mutant> = mutants(of).into_iter().filter(|m| m.description().contains(words)).collect();
    assert!(!meant.is_empty(), "no mutant is {words}");
    let run = |m: &Mutant| integers_with(&m.lowered, &Options::new(Mode::Integer), 1).err();
    meant
        .into_iter()
        .map(|m| (run(&m).unwrap_or_else(|| panic!("{}: not found", m.what)), m))
        .map(|(e, m)| (m, e))
        .collect()
}

fn has(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|w| text.contains(w)), "{words:?} in\n{text}");
}

#[test]
fn a_missing_proxy_fence_is_named() {
    let transpose = example("transpose_tma");
    for (_, error) in said(&transpose, "fence removed: proxy_fence (RAW") {
        has(
            &error,
            &[
                "[sim.race]",
                "is written by a thread and read by the copy engine, and no proxy fence is between them",
                "try: a proxy_fence (fence.proxy.async) by each thread that wrote B_s",
            ],
        );
        assert_eq!(error.labels().len(), 3, "both accesses, and where the fence has to be");
    }
}

#[test]
fn a_missing_wait_for_products_names_the_product() {
    let turns = lowered(&narrow_schedule("wgmma_f16_pingpong"));
    for (mutant, error) in said(&turns, "wait removed: wgmma_wait") {
        has(&error, &["wgmma.m64n16k16.f32.f16.f16"]);
        match error.code() {
            Code::SimRace => {
                has(&error, &["the group of wgmma.m64n16k16.f32.f16.f16 has not been waited for", "try: a wgmma_wait"])
            }
            Code::SimWgmma => has(&error, &["no wgmma_wait has waited for its group"]),
            code => panic!("{}: {code}: {error}", mutant.what),
        }
    }
}

#[test]
fn synchronisation_of_a_warp_under_odd_lanes_is_found_by_the_simulator() {
    let turns = lowered(&narrow_schedule("wgmma_f16_pingpong"));
    for what in ["wgmma_fence", "wgmma_commit", "wgmma_wait"] {
        for (_, error) in said(&turns, &format!("divergence: {what}")) {
            has(&error, &["[sim.divergence]", &format!("{what} is reached by lanes 0xaaaaaaaa of a warp")]);
        }
    }
}
