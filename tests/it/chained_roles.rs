//! Roles that read what another role loads: a ring of stages between each two of them, and one between the last and the consumers.

use warploom::error::{Code, Fault};
use warploom::gemm::{Gemm, recommend_without_workspace};
use warploom::lower::{Lowered, lower, print};
use warploom::sim::mutate::mutants;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};
use warploom::te::Layout;
use warploom::{DType, Schedule, Target};

/// Sums of three elements in a row: one role loads a tile of 130, another one copies it, and the consumers read the copy.
fn window(stages: &str, roles: &str, copies: &str) -> Schedule {
    let text = format!(
        "window_sum 2048
        target sm_90a
        split i ? 8 128 -> i_0 i_t i_1; bind i_0 blockIdx.x; bind i_1 threadIdx.x
        cache_read C A shared -> A_r; compute_at A_r i_t -> ax
        cache_read C A_r shared -> A_s bx
        {stages}
        pipeline i_t stages=3
        {roles}
        {copies}"
    );
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

fn lowered(schedule: &Schedule) -> Lowered {
    lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_or_else(|e| panic!("{schedule}\n{e}"))
}

/// The kernels as text, after they have computed what the program means in every order of warps.
fn run(schedule: &Schedule) -> String {
    let (lowered, naive) = (lowered(schedule), naive_integers(&schedule.program, 3).unwrap());
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3), Policy::Random(4)] {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let found = integers_with(&lowered, &options, 3).unwrap_or_else(|e| panic!("{schedule}\n{policy:?}: {e}"));
        assert!(found == naive, "{schedule}\n{policy:?}");
    }
    print(&lowered)
}

const BY_THREADS: &str = "split bx ? 32 -> b0 b1; bind b1 threadIdx.x";

#[test]
fn a_role_may_copy_what_another_one_loads() {
    for (copies, roles) in [
        (BY_THREADS, "specialize A_r -> load warps=1; specialize A_s -> copy warps=1"),
        (BY_THREADS, "specialize A_s -> copy warps=2; specialize A_r -> load warps=4"),
        (
            "split ax ? 32 -> a0 a1; bind a1 threadIdx.x; copy_with A_r cp_async",
            "specialize A_r -> load warps=1; specialize A_s -> copy warps=1",
        ),
        ("split bx ? 2 -> b0 b1; bind b1 warp", "specialize A_r -> load warps=1; specialize A_s -> copy warps=2"),
    ] {
        let text = run(&window("", roles, copies));
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}\n{text}"));
        // The copying role waits for both of its rings, and releases the one that it reads.
        let copy = &text[at("role copy, warps")..];
        let places = ["mbarrier.wait A_r_full", "] = A_r[", "mbarrier.arrive A_r_empty", "mbarrier.arrive A_s_full"];
        let places = places.map(|what| copy.find(what).unwrap_or_else(|| panic!("{what}\n{text}")));
        assert!(places.is_sorted() && copy.contains("mbarrier.wait A_s_empty"), "{text}");
        assert!(text.contains("A_r: shared f32[") && text.contains("A_s: shared f32["), "{text}");
    }
}

/// A role that fills stages for the consumers and for another role.
const BRANCHES: &str = "gemm 32x64x64 f32>f32>f32 NN
target sm_90a
split i ? 8 -> i0 i1; split k ? 16 -> k0 ki
reorder i0 j k0 i1 ki
bind i0 blockIdx.x; bind j threadIdx.x
cache_write C C local -> C_l; reverse_compute_at C_l j
cache_read C A shared -> A_r; cache_read C A_r shared -> A_s
cache_read C B shared -> B_r; cache_read C B_r shared -> B_s; cache_read C B_s shared -> B_t
compute_at B_t k0; compute_at B_s k0; compute_at B_r k0; compute_at A_s k0; compute_at A_r k0
decompose_reduction C k0
pipeline k0 stages=3
specialize A_r B_r -> load warps=1
specialize A_s B_s -> copy warps=1
specialize B_t -> again warps=1
";

/// Three roles in a row, and a role whose buffers the consumers and another role read: each reader has a ring of its own.
#[test]
fn chains_may_be_longer_and_branch() {
    let longer = window(
        "cache_read C A_s shared -> A_t cx",
        "specialize A_r -> load warps=1; specialize A_s -> copy warps=1; specialize A_t -> again warps=1",
        &format!("{BY_THREADS}; split cx ? 32 -> c0 c1; bind c1 threadIdx.x"),
    );
    let text = run(&longer);
    for ring in ["A_r_full[3]", "A_r_empty[3]", "A_s_full[3]", "A_s_empty[3]", "A_t_full[3]", "A_t_empty[3]"] {
        assert!(text.contains(&format!("mbarrier {ring}")), "{ring}\n{text}");
    }
    let text = run(&Schedule::parse(BRANCHES).unwrap());
    // The role copies A for the consumers and B for another role: it releases what it has read behind both.
    let copy = &text[text.find("role copy, warps").unwrap()..text.find("role again, warps").unwrap()];
    let release = copy.find("mbarrier.arrive B_r_empty").unwrap_or_else(|| panic!("{text}"));
    assert!(copy.rfind("] = A_r[").is_some_and(|read| read < release), "{text}");
    for ring in ["B_r_full[3]", "A_s_full[3]", "B_s_full[3]", "B_t_full[3]"] {
        assert!(text.contains(&format!("mbarrier {ring}")), "{ring}\n{text}");
    }
    let gemm = Gemm::new(256, 256, 1024).of(DType::E4m3).layout(Layout::TN);
    let text = run(&recommend_without_workspace(&gemm, &Target::sm_90a()).unwrap());
    for ring in ["A_s_full", "A_s_empty", "B_across_full", "B_across_empty", "B_s_full", "B_s_empty"] {
        assert!(text.contains(&format!("mbarrier {ring}[")), "{ring}\n{text}");
    }
}

/// Each wait and each arrival of the rings is needed: without one the simulator finds a race, a deadlock or another result.
#[test]
fn what_orders_the_rings_is_needed() {
    let schedule = window("", "specialize A_r -> load warps=1; specialize A_s -> copy warps=1", BY_THREADS);
    let (lowered, naive) = (lowered(&schedule), naive_integers(&schedule.program, 3).unwrap());
    let all: Vec<_> = mutants(&lowered).into_iter().filter(|m| m.what.contains("mbarrier.")).collect();
    assert!(all.len() >= 8, "{}", print(&lowered));
    for mutant in all {
        let policies = [Policy::InOrder, Policy::Reverse, Policy::Random(3)];
        let found = policies.into_iter().any(|policy| {
            let found = integers_with(&mutant.lowered, &Options::new(Mode::Integer).with_policy(policy), 3);
            found.is_err() || found.unwrap() != naive
        });
        assert!(found, "{}", mutant.description());
    }
}

/// Blocks that fill registers for a role alone belong to it.
#[test]
fn registers_of_a_role_are_filled_by_it() {
    let through_registers = "cache_read A_s A_r local -> A_l; compute_at A_l bx";
    let roles = "specialize A_r -> load warps=1; specialize A_s -> copy warps=1";
    let text = run(&window(through_registers, roles, ""));
    let copy = &text[text.find("role copy, warps").unwrap()..];
    assert!(copy.contains("A_l["), "{text}");
}

/// No role of two could begin. A third one, which reads the stages of one of them, is not at fault.
#[test]
fn roles_that_read_the_stages_of_each_other_are_refused() {
    let text = BRANCHES.replace("specialize A_r B_r -> load", "specialize A_r B_s -> load");
    let schedule = Schedule::parse(&text.replace("specialize A_s B_s -> copy", "specialize A_s B_r -> copy")).unwrap();
    let error = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err();
    assert_eq!((error.code(), error.fault()), (Code::LowerRole, Fault::Input));
    assert_eq!(error.message(), "roles load and copy read staged buffers of each other");
}

#[test]
fn a_role_that_the_consumers_fill_for_is_refused() {
    let schedule = window("", "specialize A_s -> copy warps=1", "");
    let error = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err();
    assert_eq!((error.fault(), error.code()), (Fault::Input, Code::LowerRole), "{error}");
    assert!(error.to_string().contains("specialize"), "{error}");
}
