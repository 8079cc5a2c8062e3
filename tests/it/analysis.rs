//! Cost reports count what the simulator does: every access of every kernel, request by request.

mod compare;

pub use compare::compare;

use crate::cases::{compiling_examples, product_size, small_example};
use crate::programs::{PROGRAMS, products};
use crate::sample::{drawn, everything};
use warploom::analysis::{AccessCost, Cost, CostReport, Counted, KernelCost, Ran, Traffic, cost_report, observe};
use warploom::lower::{Lowered, lower};
use warploom::sim::{Mode, Options, Policy};
use warploom::te::{Known, Layout};
use warploom::{Array, Gemm, Schedule, Target, gemm};

fn arguments(schedule: &Schedule) -> Vec<Array> {
    let shape = |b: &warploom::ir::Buffer| b.const_shape().unwrap().iter().map(|n| *n as usize).collect::<Vec<_>>();
    let buffers = schedule.program.params.iter().map(|p| schedule.program.buffer(*p));
    buffers.zip(1..).map(|(b, seed)| Array::random(b.dtype, &shape(b), seed).unwrap()).collect()
}

/// Runs and counts; the number of accesses.
fn agrees(name: &str, schedule: &Schedule) -> usize {
    let report = cost_of(schedule);
    compare(&report, &ran(name, schedule)).unwrap_or_else(|e| panic!("{name}: {e}"));
    report.kernels.iter().map(|k| k.accesses.len()).sum()
}

fn ran(name: &str, schedule: &Schedule) -> Ran {
    let lowered: Lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    // With a block for each tile of a persistent kernel.
    let options = Options::new(Mode::Real).with_races(false).with_policy(Policy::Random(0));
    observe(&lowered, &options, &mut arguments(schedule)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A quarter of the examples, as the commit draws them.
#[test]
fn examples_cost_what_the_simulator_counts() {
    let mut accesses = 0;
    for (name, schedule) in compiling_examples().filter(|(name, _)| drawn(name, 4)) {
        let mut compared = 0;
        let product = matches!(Known::of(&schedule.program), Some(Known::Gemm(_)));
        let whole = product_size(&schedule, [64, 128, 32]).to_vec();
        for size in if product { vec![whole, vec![61, 70, 19]] } else { vec![vec![512], vec![300]] } {
            // Steps that split without a remainder refuse odd sizes.
            let Ok(small) = schedule.resized(&size) else { continue };
            if small.scheduled().is_ok_and(|f| lower(&f, &small.target).is_ok()) {
                compared += agrees(&format!("{name} {size:?}"), &small);
            }
        }
        accesses += if compared == 0 { agrees(&name, &small_example(&name, &schedule)) } else { compared };
    }
    assert!(accesses > if everything() { 150 } else { 20 }, "only {accesses} accesses");
}

/// Asynchronous copies are a load and a store, also where a condition leaves some out.
#[test]
fn copies_cost_what_the_simulator_counts() {
    for (size, more) in
        [("64x64x64", "copy_with A_s B_s cp_async"), ("61x67x45", "copy_with B_s cp_async; pipeline k0 stages=3")]
    {
        let text = format!("{}{more}\n", crate::lower::GEMM.replace("64x64x64", size));
        let schedule = Schedule::parse(&text).unwrap();
        agrees(more, &schedule);
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let traffic = &cost_report(&lowered, &schedule.target).kernels[0].totals.traffic;
        assert!(traffic.copy_requests > 0 && traffic.copy_sectors > 0, "{traffic:?}");
    }
}

#[test]
fn programs_of_other_kinds_cost_what_the_simulator_counts() {
    for (name, _, text) in PROGRAMS {
        agrees(name, &Schedule::parse(text).unwrap());
    }
}

/// A third of the products and layouts, as the commit draws them, and one in every run.
#[test]
fn recommended_products_cost_what_the_simulator_counts() {
    for product in products() {
        for layout in Layout::ALL {
            if !drawn(&format!("recommended {:?} {}", product.spec(), layout.name()), 3) {
                continue;
            }
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
    for (name, schedule) in compiling_examples() {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        for a in cost_report(&lowered, &schedule.target).kernels.iter().flat_map(|k| &k.accesses) {
            assert_eq!(a.method, Counted::Exact, "{name}, {}", a.text);
            let (total, ideal) = a.cost.total();
            assert!(a.requests > 0 && ideal > 0 && total >= ideal, "{name}, {}", a.text);
            if let Cost::Shared { degree, worst, worst_ideal, .. } = a.cost {
                assert_eq!(degree > 1, worst > worst_ideal, "{name}, {}", a.text);
            }
        }
    }
}

/// Products of warpgroups: with A in registers and in shared memory, k along the rows of the tiles and across them, every
/// swizzle. The forms are counted; a quarter of them runs, as the commit draws it, and the first.
#[test]
fn products_of_warpgroups_cost_what_the_simulator_counts() {
    let mut forms = std::collections::BTreeMap::<&str, u32>::new();
    let probes = crate::warpgroup::probes().into_iter().filter(|(row, _)| [8, 64].contains(&row.dims[1].1));
    for (at, (row, form)) in probes.enumerate() {
        *forms.entry(row.name.split('.').next().unwrap()).or_default() += 1;
        if at > 0 && !drawn(&format!("{} {form:?} costs", row.name), 4) {
            continue;
        }
        let schedule = crate::warpgroup::probe(row, form);
        agrees(&format!("{} {form:?}", row.name), &schedule);
        let report = cost_of(&schedule);
        let traffic = &report.kernels[0].totals.traffic;
        let [m, n, k] = [0, 1, 2].map(|d| row.dims[d].1 as u64);
        let of_a = if row.name.starts_with("wgmma_rs") { 0 } else { m };
        // Four steps of k, 32 bytes of each row.
        assert_eq!(traffic.descriptor_bytes, 4 * 32 * (of_a + n), "{} {form:?}", row.name);
        assert_eq!(traffic.tensor_instructions, 4 * 4, "{} {form:?}", row.name);
        assert_eq!(report.kernels[0].totals.operations, 4 * 2 * m * n * k, "{} {form:?}", row.name);
    }
    assert!(forms["wgmma"] > 20 && forms["wgmma_rs"] > 20, "{forms:?}");
}

#[test]
fn cost_reports_of_gemms_match_their_goldens() {
    for name in ["wgmma.m64n64k16.f32.f16.f16", "wgmma_rs.m64n64k16.f32.f16.f16"] {
        let all = crate::warpgroup::probes();
        let (row, form) = all.into_iter().find(|(row, form)| row.name == name && form.swizzle == 128).unwrap();
        let schedule = crate::warpgroup::probe(row, form);
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let text = warploom::analysis::print(&cost_of(&schedule), &warploom::lower::print(&lowered));
        crate::cases::golden(&format!("cost/{}.txt", name.split('.').next().unwrap()), &text);
    }
}

fn cost_of(schedule: &Schedule) -> CostReport {
    cost_report(&lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap(), &schedule.target)
}

/// The figures of an access, one after the other.
fn wrong(access: &AccessCost) -> Vec<AccessCost> {
    let changed = |change: &dyn Fn(&mut AccessCost)| {
        let mut access = access.clone();
        change(&mut access);
        access
    };
    let mut out = vec![changed(&|a| a.requests += 1)];
    let mut with = |cost: Cost| out.push(changed(&move |a| a.cost = cost));
    match access.cost {
        Cost::Box { bytes, sectors, ideal, lines, ideal_lines } => {
            with(Cost::Box { bytes: bytes + 1, sectors, ideal, lines, ideal_lines });
            with(Cost::Box { bytes, sectors: sectors + 1, ideal, lines, ideal_lines });
            with(Cost::Box { bytes, sectors, ideal: ideal + 1, lines, ideal_lines });
            with(Cost::Box { bytes, sectors, ideal, lines: lines + 1, ideal_lines });
            with(Cost::Box { bytes, sectors, ideal, lines, ideal_lines: ideal_lines + 1 });
        }
        Cost::Engine { bytes } => with(Cost::Engine { bytes: bytes + 1 }),
        Cost::Shared { wavefronts, ideal, worst, worst_ideal, degree } => {
            with(Cost::Shared { wavefronts: wavefronts + 1, ideal, worst, worst_ideal, degree });
            with(Cost::Shared { wavefronts, ideal, worst, worst_ideal, degree: degree + 1 });
        }
        Cost::Global { sectors, ideal, worst, worst_ideal } => {
            with(Cost::Global { sectors: sectors + 1, ideal, worst, worst_ideal });
        }
        ref other => panic!("nothing changes {other:?}"),
    }
    out
}

/// A figure that is wrong by one is found: of each access, and of how often each statement runs.
#[test]
fn a_wrong_count_is_found() {
    for name in ["worked_example", "transpose_tma", "window_sum_roles"] {
        let text = crate::cases::examples().into_iter().find(|(n, _)| n == name).expect("the example").1;
        let whole = Schedule::parse(&text).unwrap();
        let schedule = whole.resized(&product_size(&whole, [64, 128, 32])).unwrap_or(whole);
        let (right, ran) = (cost_of(&schedule), ran(name, &schedule));
        compare(&right, &ran).unwrap();
        for (n, access) in right.kernels[0].accesses.iter().enumerate() {
            for one in wrong(access) {
                let mut report = right.clone();
                report.kernels[0].accesses[n] = one.clone();
                assert!(compare(&report, &ran).is_err(), "{name}: {one:?}");
            }
        }
        for n in 0..right.kernels[0].statements.len() {
            for more in [(1, 0), (0, 1)] {
                let mut report = right.clone();
                let runs = &mut report.kernels[0].statements[n].runs;
                (runs.warps, runs.threads) = (runs.warps + more.0, runs.threads + more.1);
                assert!(compare(&report, &ran).is_err(), "{name}: statement {n}");
            }
        }
        let flying = ran.in_flight.get(&0).copied().unwrap_or(0);
        assert!(flying <= right.kernels[0].bytes_in_flight, "{name}");
    }
}

/// What cannot be counted is in the cost report with its reason, and in no total.
#[test]
fn what_cannot_be_counted_is_named() {
    let of = |name: &str| {
        let text = crate::cases::examples().into_iter().find(|(n, _)| n == name).expect("the example").1;
        let schedule = Schedule::parse(&text).unwrap();
        (lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap(), schedule.target)
    };
    let (mut lowered, target) = of("window_sum_roles");
    let whole = cost_report(&lowered, &target).kernels[0].totals.traffic.global_load_requests;
    for stmt in &mut lowered.kernels[0].func.body {
        if let warploom::ir::Stmt::Role(role) = stmt {
            role.first += if role.role.is_some() { 1 } else { 0 };
        }
    }
    let report = cost_report(&lowered, &target);
    let kernel = &report.kernels[0];
    assert!(whole > 0 && kernel.totals.traffic.global_load_requests == 0, "{:?}", kernel.totals);
    assert!(kernel.uncounted.iter().all(|u| u.ends_with("threadIdx.x alone")), "{:?}", kernel.uncounted);
    let text = warploom::analysis::print(&report, &warploom::lower::print(&lowered));
    assert!(text.contains("not counted") && text.contains("no total includes it"), "{text}");
    let (mut lowered, target) = of("transpose_tma");
    lowered.kernels[0].maps.clear();
    let kernel = &cost_report(&lowered, &target).kernels[0];
    assert_eq!((kernel.totals.traffic.bulk_load_bytes, kernel.uncounted.len()), (0, 6), "{:?}", kernel.uncounted);
    assert!(kernel.uncounted.iter().all(|u| u.ends_with("its tensor map is missing")), "{:?}", kernel.uncounted);
}

/// A role that fills a ring has all of its slots under way at one time, where nobody has read any.
#[test]
fn a_ring_of_boxes_is_in_flight_as_a_whole() {
    let text = crate::cases::examples().into_iter().find(|(n, _)| n == "worked_example").expect("the example").1;
    let whole = Schedule::parse(&text).unwrap();
    let schedule = whole.resized(&[256, 256, 512]).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    // In order, loads land when nothing else can go on.
    let options = Options::new(Mode::Real).with_races(false);
    let ran = observe(&lowered, &options, &mut arguments(&schedule)).unwrap();
    let said = cost_report(&lowered, &schedule.target).kernels[0].bytes_in_flight;
    assert_eq!((said, ran.in_flight[&0]), (4 * 49152, 4 * 49152));
}

/// The traffic of a schedule's kernels as lowered, and in its PTX.
fn traffic(schedule: &Schedule) -> (Traffic, Traffic) {
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let kernels = warploom::codegen::compile(&lowered, &schedule.target).unwrap();
    let (mut written, mut left) = (Traffic::default(), Traffic::default());
    for kernel in cost_report(&lowered, &schedule.target).compiled(&kernels).kernels {
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
/// A quarter of the examples, as the commit draws them, and one where nothing can be merged.
#[test]
fn compiled_kernels_are_followed_and_cost_no_more_than_was_written() {
    for (name, schedule) in compiling_examples().filter(|(name, _)| name == "vec_add" || drawn(name, 4)) {
        let (written, left) = traffic(&schedule);
        for (w, l) in costs(&written).into_iter().zip(costs(&left)) {
            assert!(l <= w && (l > 0) == (w > 0), "{name}: {written:?} {left:?}");
        }
        if ["vec_add", "window_sum", "window_sum_cooperative"].contains(&name.as_str()) {
            assert_eq!(costs(&written), costs(&left), "{name}");
        }
    }
}

/// The kinds of machine code by which roles are told apart.
const KINDS: [&str; 14] = [
    "HGMMA",
    "IGMMA",
    "QGMMA",
    "UTMALDG",
    "UTMASTG",
    "SYNCS",
    "ELECT",
    "USETMAXREG",
    "BAR",
    "UCGABAR_ARV",
    "UCGABAR_WAIT",
    "LDSM",
    "STSM",
    "LDGSTS",
];

/// What the PTX was said to become is what ptxas makes of it.
/// An eighth of the examples, as the commit draws them, and one in every run.
#[test]
fn machine_code_is_what_ptxas_writes() {
    let tools = crate::ptxas::tools();
    let mut seen = std::collections::BTreeSet::new();
    // nvdisasm does not read the machine code of older chips.
    let tried = |name: &str| name == "mma_f16" || drawn(name, 8);
    for (name, schedule) in compiling_examples().filter(|(name, s)| s.target.sm >= 80 && tried(name)) {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let kernels = warploom::codegen::compile(&lowered, &schedule.target).unwrap();
        let report = cost_report(&lowered, &schedule.target).compiled(&kernels);
        let of = |k: &KernelCost| k.compiled.clone().into_iter().flat_map(|c| c.machine_code);
        let said: std::collections::BTreeSet<&str> =
            report.kernels.iter().flat_map(of).flat_map(|(_, kinds)| kinds.into_keys()).collect();
        // Barriers alone tell nothing apart.
        let telling = said.iter().any(|kind| *kind != "BAR");
        for ptxas in tools.iter().filter(|p| telling && p.knows(schedule.target.name)) {
            let cubin = ptxas.assemble(&kernels.text, schedule.target.name).unwrap().cubin;
            let text = warploom::assemble::sass(&cubin).unwrap();
            let words = |kind: &&&str| text.split([' ', '.', ';']).any(|w| w == **kind);
            let mut written: std::collections::BTreeSet<&str> = KINDS.iter().filter(words).copied().collect();
            // ptxas may load a fragment that the instruction set does not describe as matrices, or as words.
            if kernels.text.contains("wmma.load") {
                written.remove("LDSM");
            }
            assert_eq!(said, written, "{name}, ptxas {}", ptxas.version);
        }
        seen.extend(said);
    }
    assert!(tools.is_empty() || !everything() || KINDS.iter().all(|k| seen.contains(k) || *k == "QGMMA"), "{seen:?}");
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

/// Examples whose swizzle the cost report finds again.
const UNSWIZZLED: [(&str, &str); 2] =
    [("transpose_tma", "swizzle A_s 128\n"), ("transpose_tma_f16", "swizzle A_s 128\n")];

fn unswizzled((name, step): (&str, &str)) -> (String, Schedule) {
    let text = crate::cases::examples().into_iter().find(|(n, _)| n == name).expect("the example").1;
    assert!(text.contains(step));
    (format!("{name} without {step}"), Schedule::parse(&text.replace(step, "")).unwrap())
}

/// A step that a cost report advises can be taken, and the access costs less then; where it promises no conflict there is
/// none.
#[test]
fn advice_is_true() {
    let mut taken = std::collections::BTreeMap::<String, u32>::new();
    for (name, schedule) in compiling_examples().chain(UNSWIZZLED.map(unswizzled)) {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let report = cost_report(&lowered, &schedule.target);
        let written: Vec<_> = report.kernels.iter().flat_map(|k| k.accesses.clone()).collect();
        for a in &written {
            let Some(step) = a.advice.as_ref().and_then(|advice| advice.step.as_ref()) else { continue };
            let text = format!("{schedule}{step}\n");
            let after = Schedule::parse(&text).unwrap_or_else(|e| panic!("{name}: {step}: {e}"));
            let func = after.scheduled().unwrap_or_else(|e| panic!("{name}: {step}: {e}"));
            let report = cost_report(&lower(&func, &after.target).unwrap(), &after.target);
            let accesses = report.kernels.iter().flat_map(|k| &k.accesses);
            // The same access, which may be of vectors now, and behind more or fewer bulk copies.
            let alike = |b: &AccessCost| (&b.buffer, b.kind, b.by) == (&a.buffer, a.kind, a.by);
            let before = written.iter().filter(|b| alike(b) && b.number < a.number).count();
            let better = accesses.filter(|b| alike(b)).nth(before).unwrap_or_else(|| panic!("{name}: {step}: gone"));
            assert!(better.cost.total().0 < a.cost.total().0, "{name}: {step}: {:?} {:?}", a.cost, better.cost);
            let promises = a.advice.as_ref().and_then(|advice| advice.then.as_deref()).unwrap_or("");
            if promises.ends_with("without conflict") {
                assert!(matches!(better.cost, Cost::Shared { degree: 1, .. }), "{name}: {step}: {:?}", better.cost);
            }
            *taken.entry(step.split(' ').next().unwrap().to_string()).or_default() += 1;
        }
    }
    assert!(taken["vectorize"] >= 3 && taken["storage_align"] >= 3, "{taken:?}");
    assert!(taken["swizzle"] >= 2, "{taken:?}");
}

/// Blocks of 512 threads with 512 sums each: a compiler keeps to the registers that there are, and spills the rest.
#[test]
fn more_registers_than_there_are_are_spilled_and_said() {
    let text = "gemm 256x1024x64 f32 NN\ntarget sm_90\ncache_write C C local -> C_local\n\
                split i ? 16 16 -> i_0 i_1 i_2\nsplit j ? 32 32 -> j_0 j_1 j_2\n\
                reorder i_0 j_0 i_1 j_1 k i_2 j_2\nreverse_compute_at C_local j_1 -> ax0 ax1\n\
                bind i_0 blockIdx.y; bind j_0 blockIdx.x; bind i_1 threadIdx.y; bind j_1 threadIdx.x\n\
                decompose_reduction C k\n";
    let schedule: Schedule = text.parse().unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let report = cost_report(&lowered, &schedule.target);
    let kernel = &report.kernels[0];
    assert!(kernel.registers.estimate > 512, "{:?}", kernel.registers);
    assert_eq!(kernel.registers.spilled, kernel.registers.estimate - 128);
    assert_eq!((kernel.occupancy.registers, kernel.occupancy.blocks), (128, 1));
    let text = warploom::analysis::print(&report, &warploom::lower::print(&lowered));
    let said = format!("a thread of 512 gets 128 at most: spills about {} registers", kernel.registers.spilled);
    assert!(text.contains(&said) && text.contains("try: smaller tiles of each thread"), "{text}");
    assert!(!text.contains("none fits"), "{text}");
}
