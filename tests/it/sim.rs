//! The simulator on real kernels: what it must find when a kernel is damaged, and how fast it is.

use crate::{
    cases::{compiling_examples, product_size},
    programs,
    sample::drawn,
};
use warploom::error::Code;
use warploom::ir::{Stmt, visit};
use warploom::lower::{Lowered, lower};
use warploom::sim::{Limits, Mode, Options, Policy, integers_with, naive_integers};
use warploom::te::{Known, Layout};
use warploom::{Error, Gemm, Result, Target, gemm};

const POLICIES: [Policy; 4] = [Policy::InOrder, Policy::Reverse, Policy::Random(1), Policy::Random(2)];

/// The kernels of the chosen examples at a small size, with the naive program's elements.
fn kernels(chosen: impl Fn(&str) -> bool) -> Vec<(String, Lowered, Vec<Vec<u32>>)> {
    let make = |(name, schedule): (String, warploom::loom::Schedule)| -> Result<_> {
        let size = match Known::of(&schedule.program) {
            Some(Known::Gemm(_)) => product_size(&schedule, [64, 128, 32]).to_vec(),
            _ => vec![512],
        };
        let small = schedule.resized(&size)?;
        Ok((name, lower(&small.scheduled()?, &schedule.target)?, naive_integers(&small.program, 9)?))
    };
    // Programs of their own have their sizes in their text; `bulk` runs them at small ones.
    let known = compiling_examples().filter(|(name, s)| chosen(name) && Known::of(&s.program).is_some());
    known.map(make).collect::<Result<_>>().unwrap_or_else(|e| panic!("{e}"))
}

fn runs_right(lowered: &Lowered, naive: &[Vec<u32>], policy: Policy) -> Result<()> {
    let options = Options::new(Mode::Integer).with_policy(policy);
    if integers_with(lowered, &options, 9)? == naive { Ok(()) } else { Err(Error::bug(Code::SimResult, "other bits")) }
}

/// The reasons of all barriers.
fn barriers(body: &[Stmt]) -> Vec<String> {
    let mut out = Vec::new();
    visit::walk(body, &mut |s| out.extend(barrier(s).map(str::to_string)));
    out
}

fn barrier(s: &Stmt) -> Option<&str> {
    match s {
        Stmt::Sync(s) if s.kind.is_meeting() => Some(&s.reason),
        _ => None,
    }
}

fn without_barrier(lowered: &Lowered, which: usize) -> Lowered {
    let mut damaged = lowered.clone();
    for kernel in &mut damaged.kernels {
        let mut n = 0;
        kernel.func.body = visit::rewrite(std::mem::take(&mut kernel.func.body), &mut |s| {
            let barrier = barrier(&s).is_some();
            n += usize::from(barrier);
            if barrier && n == which + 1 { Vec::new() } else { vec![s] }
        });
    }
    damaged
}

/// The barriers that others make needless, by the example's name and the reason; the table of `mutation` says why.
const NEEDLESS: [(&str, &str); 3] = [
    ("wgmma_f16_staged", "WAR C_s: C_f writes bytes that mma used as A_s"),
    ("wgmma_", "all lanes have waited for the last slot"),
    ("wgmma_", "WAR A_s, B_s: all lanes have read the stage"),
];

/// Of the barriers with the orders of warps the commit draws a twelfth; the first barrier is tried in every run. All barriers are counted.
#[test]
fn a_missing_barrier_is_found() {
    let (mut tried, mut needless) = (0, 0);
    // Of the worked example `mutation` damages the same parts with smaller tiles.
    for (name, lowered, naive) in kernels(|name| name != "worked_example") {
        let all: Vec<Vec<String>> = lowered.kernels.iter().map(|k| barriers(&k.func.body)).collect();
        // What orders warps by mbarriers may show first that a phase ends too early.
        let rings = lowered.kernels.iter().any(|k| !k.func.mbarriers.is_empty());
        let found = |code: &str| code == "sim.race" || rings && code.starts_with("sim.");
        for which in 0..all.iter().map(Vec::len).max().unwrap_or(0) {
            let damaged = without_barrier(&lowered, which);
            let known = |reason: &String| NEEDLESS.iter().any(|n| name.starts_with(n.0) && n.1 == reason.as_str());
            let equal = all.iter().filter_map(|k| k.get(which)).any(known);
            needless += usize::from(equal);
            let is_tried = |p: &Policy| tried == 0 || drawn(&format!("{name} {which} {p:?}"), 12);
            for policy in POLICIES.into_iter().filter(is_tried) {
                let error = runs_right(&damaged, &naive, policy).err().map(|e| e.code().to_string());
                let right = if equal { error.is_none() } else { error.as_deref().is_some_and(found) };
                assert!(right, "{name} without barrier {which} of {all:?}, {policy:?}: {error:?}");
            }
            tried += 1;
        }
    }
    assert!(tried >= 6 && needless > 0, "{tried} barriers, {needless} of them needless");
}

/// Half of the statements of a third of the examples, as the commit draws them, and all of one.
#[test]
fn a_missing_statement_is_found() {
    let is_whole = |name: &str| name == "gpu_v3";
    for (name, lowered, naive) in kernels(|name| is_whole(name) || drawn(&format!("statements of {name}"), 3)) {
        let mut stores = 0;
        visit::walk(&lowered.kernels[0].func.body, &mut |s| stores += usize::from(matches!(s, Stmt::Store(_))));
        for which in (0..stores).filter(|which| is_whole(&name) || drawn(&format!("{name} {which}"), 2)) {
            let mut damaged = lowered.clone();
            let (body, mut n) = (std::mem::take(&mut damaged.kernels[0].func.body), 0);
            damaged.kernels[0].func.body = visit::rewrite(body, &mut |s| {
                let store = matches!(s, Stmt::Store(_));
                n += usize::from(store);
                if store && n == which + 1 { Vec::new() } else { vec![s] }
            });
            assert!(runs_right(&damaged, &naive, Policy::InOrder).is_err(), "{name} without store {which}");
        }
    }
}

/// The loop-carried dependence of a tiled product: the barrier at the head of its loop.
#[test]
fn a_race_of_an_example_is_explained() {
    let (_, lowered, naive) = kernels(|name| name == "gpu_v3").remove(0);
    let error = runs_right(&without_barrier(&lowered, 0), &naive, Policy::InOrder).unwrap_err();
    let text = error.source_text().unwrap();
    let labels: Vec<String> =
        error.labels().iter().map(|l| format!("{}: {}", &text[l.span.clone()], l.message)).collect();
    assert_eq!(error.message(), "A_shared[0] is read by one thread and written by another, and nothing orders them");
    assert_eq!(error.helps(), ["a barrier of the block in each iteration of loop ko, before block A_shared"]);
    assert!(error.context()[0].ends_with("ko = 0, ki = 0") && error.context()[1].ends_with("ko = 1"), "{error}");
    assert_eq!(labels.len(), 3);
    assert!(labels[0].starts_with("A_shared[threadIdx.x*8 + ki]: block (0, 0, 0), thread ("), "{labels:?}");
    assert!(labels[0].ends_with("reads this") && labels[1].ends_with("writes this"), "{labels:?}");
    assert_eq!(labels[2], "block A_shared: the barrier must be before this");
}

/// A few blocks of each: what they leave unwritten is then the only complaint.
#[test]
fn handmade_kernels_raise_no_alarm() {
    for mut lowered in crate::handmade::all() {
        for axis in &mut lowered.kernels[0].launch {
            axis.extent = if axis.axis.is_block_level() { axis.extent.min(2) } else { axis.extent };
        }
        let func = &mut lowered.kernels[0].func;
        // Four of the many iterations over the depth of a product.
        func.body = visit::rewrite(std::mem::take(&mut func.body), &mut |mut s| {
            if let Stmt::For(l) = &mut s
                && l.extent.as_int().is_some_and(|n| n >= 128)
            {
                l.extent = 4.into();
                l.code.copies = None;
            }
            vec![s]
        });
        for policy in POLICIES {
            let options = Options::new(Mode::Integer).with_policy(policy);
            if let Err(error) = integers_with(&lowered, &options, 1) {
                assert_eq!(error.code(), Code::SimUnwritten, "{}: {error}", lowered.name);
            }
        }
    }
}

/// A quarter of the products with the orders of warps, as the commit draws them, and the first product in every order.
#[test]
fn recommended_products_raise_no_alarm() {
    let small = Layout::ALL.into_iter().flat_map(|layout| {
        [(128, 128, 32), (65, 33, 17)].map(|(m, n, k)| {
            let schedule = gemm::recommend(&Gemm::new(m, n, k).layout(layout), &Target::sm_90()).unwrap();
            (format!("{m}x{n}x{k} {layout:?}"), schedule)
        })
    });
    for (n, (name, schedule)) in small.chain(programs::tiles_of_large_products()).enumerate() {
        let is_tried = |p: &Policy| n == 0 || drawn(&format!("no alarm {name} {p:?}"), 4);
        let policies: Vec<Policy> = POLICIES.into_iter().filter(is_tried).collect();
        if policies.is_empty() {
            continue;
        }
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let naive = naive_integers(&schedule.program, 9).unwrap();
        for policy in policies {
            runs_right(&lowered, &naive, policy).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

#[test]
fn limits_stop_kernels() {
    let (_, lowered, _) = kernels(|name| name == "gpu_v3").remove(0);
    let limits = Limits { statements: 100, ..Limits::default() };
    let error = integers_with(&lowered, &Options::new(Mode::Integer).with_limits(limits), 9).unwrap_err();
    assert_eq!(error.code(), Code::SimLimit);
}
