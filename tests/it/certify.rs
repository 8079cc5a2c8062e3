//! Certificates count what the CPU machine does: every access of every kernel, request by request.

use crate::cases::{product_size, uniform_examples};
use crate::programs::{PROGRAMS, products};
use std::collections::BTreeMap;
use warploom::certify::{Certificate, Cost, Counted, Observed, Traffic, certify, observe};
use warploom::lower::{Lowered, lower};
use warploom::machine::{Mode, Options};
use warploom::te::{Known, Layout};
use warploom::{Array, Gemm, Schedule, Target, gemm};

fn arguments(schedule: &Schedule) -> Vec<Array> {
    let shape = |b: &warploom::ir::Buffer| b.const_shape().unwrap().iter().map(|n| *n as usize).collect::<Vec<_>>();
    let buffers = schedule.program.params.iter().map(|p| schedule.program.buffer(*p));
    buffers.zip(1..).map(|(b, seed)| Array::random(b.dtype, &shape(b), seed).unwrap()).collect()
}

/// Whether each access was certified as it ran: accesses that depend on data at most what was said, all others exactly
/// that.
pub fn compare(certificate: &Certificate, ran: &BTreeMap<(usize, u32), Observed>) -> Result<(), String> {
    let mut certified = 0;
    for (kernel, k) in certificate.kernels.iter().enumerate() {
        for a in &k.accesses {
            let (cost, ideal) = a.cost.total();
            let said = Observed { requests: a.requests, cost, ideal };
            let ran = ran.get(&(kernel, a.number));
            certified += usize::from(ran.is_some());
            let ran = ran.copied().unwrap_or_default();
            let same = match a.method {
                Counted::Exact => said == ran,
                Counted::EveryLane => ran.requests <= said.requests,
                Counted::Sampled | Counted::Not => false,
            };
            if !same {
                let what = format!("{} of {} in line {}, {:?}", a.kind, a.text, a.line, a.method);
                return Err(format!("{what}: certified {said:?}, ran {ran:?}"));
            }
        }
    }
    if certified == ran.len() { Ok(()) } else { Err("an access has no certificate".to_string()) }
}

/// Runs and counts; the number of accesses.
fn agrees(name: &str, schedule: &Schedule) -> usize {
    let lowered: Lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let certificate = certify(&lowered, &schedule.target);
    let options = Options { races: false, ..Options::new(Mode::Real) };
    let ran = observe(&lowered, &options, &mut arguments(schedule)).unwrap_or_else(|e| panic!("{name}: {e}"));
    compare(&certificate, &ran).unwrap_or_else(|e| panic!("{name}: {e}"));
    certificate.kernels.iter().map(|k| k.accesses.len()).sum()
}

#[test]
fn examples_cost_what_the_machine_counts() {
    let mut accesses = 0;
    for (name, schedule) in uniform_examples() {
        let product = matches!(Known::of(&schedule.program), Some(Known::Gemm(_)));
        let whole = product_size(&schedule, [64, 128, 32]).to_vec();
        for size in if product { vec![whole, vec![61, 70, 19]] } else { vec![vec![512], vec![300]] } {
            // Steps that split without a remainder refuse odd sizes.
            let Ok(small) = schedule.resized(&size) else { continue };
            if small.scheduled().is_ok_and(|f| lower(&f, &small.target).is_ok()) {
                accesses += agrees(&format!("{name} {size:?}"), &small);
            }
        }
    }
    assert!(accesses > 150, "only {accesses} accesses");
}

/// Asynchronous copies are a load and a store, also where a condition leaves some out.
#[test]
fn copies_cost_what_the_machine_counts() {
    for (size, more) in
        [("64x64x64", "copy_with A_s B_s cp_async"), ("61x67x45", "copy_with B_s cp_async; pipeline k0 stages=3")]
    {
        let text = format!("{}{more}\n", crate::lower::GEMM.replace("64x64x64", size));
        let schedule = Schedule::parse(&text).unwrap();
        agrees(more, &schedule);
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let traffic = &certify(&lowered, &schedule.target).kernels[0].totals.traffic;
        assert!(traffic.copy_requests > 0 && traffic.copy_sectors > 0, "{traffic:?}");
    }
}

#[test]
fn programs_of_other_kinds_cost_what_the_machine_counts() {
    for (name, _, text) in PROGRAMS {
        agrees(name, &Schedule::parse(text).unwrap());
    }
}

#[test]
fn recommended_products_cost_what_the_machine_counts() {
    for product in products() {
        for layout in Layout::ALL {
            let schedule = gemm::recommend(&product.layout(layout), &Target::sm_80()).unwrap();
            agrees(&format!("{:?} {}", product.spec(), layout.name()), &schedule);
        }
    }
    let product = Gemm::new(150, 141, 40);
    agrees("150x141x40", &gemm::recommend(&product, &Target::sm_80()).unwrap());
}

/// At their full size, where nothing could be counted one by one.
#[test]
fn examples_are_counted_exactly_at_full_size() {
    for (name, schedule) in uniform_examples() {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        for a in certify(&lowered, &schedule.target).kernels.iter().flat_map(|k| &k.accesses) {
            assert_eq!(a.method, Counted::Exact, "{name}, {}", a.text);
            let (total, ideal) = a.cost.total();
            assert!(a.requests > 0 && ideal > 0 && total >= ideal, "{name}, {}", a.text);
            if let Cost::Shared { degree, worst, worst_ideal, .. } = a.cost {
                assert_eq!(degree > 1, worst > worst_ideal, "{name}, {}", a.text);
            }
        }
    }
}

/// The traffic of a schedule's kernels as lowered, and in its PTX.
fn traffic(schedule: &Schedule) -> (Traffic, Traffic) {
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let kernels = warploom::codegen::compile(&lowered, &schedule.target).unwrap();
    let (mut written, mut left) = (Traffic::default(), Traffic::default());
    for kernel in certify(&lowered, &schedule.target).compiled(&kernels).kernels {
        written.add(&kernel.totals.traffic, 1);
        let compiled = kernel.compiled.expect("every kernel is in the PTX");
        left.add(&compiled.traffic.unwrap_or_else(|| panic!("{}: {:?}", kernel.name, compiled.why)), 1);
    }
    (written, left)
}

/// The cost of all requests: what the memory system sees.
fn costs(t: &Traffic) -> [u64; 4] {
    [t.shared_load_wavefronts, t.shared_store_wavefronts, t.global_load_sectors, t.global_store_sectors]
}

/// Compiling leaves no more accesses than were written, and where nothing can be merged, just those.
#[test]
fn compiled_kernels_are_followed_and_cost_no_more_than_was_written() {
    for (name, schedule) in uniform_examples() {
        let (written, left) = traffic(&schedule);
        for (w, l) in costs(&written).into_iter().zip(costs(&left)) {
            assert!(l <= w && (l > 0) == (w > 0), "{name}: {written:?} {left:?}");
        }
        if ["vec_add", "window_sum", "window_sum_cooperative"].contains(&name.as_str()) {
            assert_eq!(costs(&written), costs(&left), "{name}");
        }
    }
}

/// Kernels with guards and other types.
#[test]
fn compiled_products_are_followed() {
    for product in products() {
        let schedule = gemm::recommend(&product.layout(Layout::NT), &Target::sm_80()).unwrap();
        let (written, left) = traffic(&schedule);
        assert!(left.global_store_sectors <= written.global_store_sectors, "{:?}", product.spec());
        assert!(left.global_store_sectors > 0 && left.instructions > 0, "{:?}", product.spec());
    }
}

/// A step that a certificate advises can be taken, and the access costs less then; where it promises no conflict there is
/// none.
#[test]
fn advice_is_true() {
    let mut taken = std::collections::BTreeMap::<String, u32>::new();
    for (name, schedule) in uniform_examples() {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let certificate = certify(&lowered, &schedule.target);
        for a in certificate.kernels.iter().flat_map(|k| &k.accesses) {
            let Some(step) = a.advice.as_ref().and_then(|advice| advice.step.as_ref()) else { continue };
            let text = format!("{schedule}{step}\n");
            let after = Schedule::parse(&text).unwrap_or_else(|e| panic!("{name}: {step}: {e}"));
            let func = after.scheduled().unwrap_or_else(|e| panic!("{name}: {step}: {e}"));
            let certificate = certify(&lower(&func, &after.target).unwrap(), &after.target);
            let accesses = certificate.kernels.iter().flat_map(|k| &k.accesses);
            // The same access, which may be of vectors now.
            let same = |b: &&warploom::certify::AccessCertificate| b.number == a.number && b.buffer == a.buffer;
            let better = accesses.into_iter().find(same).unwrap_or_else(|| panic!("{name}: {step}: gone"));
            assert!(better.cost.total().0 < a.cost.total().0, "{name}: {step}: {:?} {:?}", a.cost, better.cost);
            let promises = a.advice.as_ref().and_then(|advice| advice.then.as_deref()).unwrap_or("");
            if promises.ends_with("without conflict") {
                assert!(matches!(better.cost, Cost::Shared { degree: 1, .. }), "{name}: {step}: {:?}", better.cost);
            }
            *taken.entry(step.split(' ').next().unwrap().to_string()).or_default() += 1;
        }
    }
    assert!(taken["vectorize"] >= 3 && taken["storage_align"] >= 3, "{taken:?}");
}
