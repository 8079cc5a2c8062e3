//! The worked example taken apart: every subset of its parts is a program of its own, which lowers, or is refused with a reason,
//! runs without a race on the simulator, and computes the product.

use super::ptxas::tools;
use super::sample::{drawn, everything};
use warploom::gemm::{Epilogue, Gemm, SwapAb, Wgmma};
use warploom::lower::{Lowered, lower, print, verify};
use warploom::reference::{Sample, outputs};
use warploom::sim::mutate::mutants;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers, run_lowered};
use warploom::te::Layout;
use warploom::{Array, DType, Error, Fault, Schedule, Target};

/// A subset: its name, what it is, and how A and B lie.
pub struct Subset {
    pub name: String,
    pub parts: Wgmma,
    pub layout: Layout,
}

/// Every subset of {swizzle, cluster with multicast, persistent with rasterize, roles, bulk store, in_flight} with one to four
/// slots, of tiles of 64 x 64 for the simulator or of 128 x 256 for a GPU. The layouts take turns.
pub fn subsets(small: bool) -> Vec<Subset> {
    let mut out = Vec::new();
    for bits in 0..64u32 {
        let has = |n: u32| bits >> n & 1 == 1;
        for stages in 1..=4 {
            let (block, warpgroups) = if small { ([64, 64], 1) } else { ([128, 256], 2) };
            let parts = Wgmma {
                block,
                warpgroups,
                bk: 64,
                stages,
                in_flight: i64::from(has(5)),
                swizzle: if has(0) { 128 } else { 0 },
                cluster: if has(1) { [2, 1] } else { [1, 1] },
                raster_group: if has(2) { 8 } else { 0 },
                persistent: has(2),
                producer: has(3),
                epilogue: if has(4) { Epilogue::Tma } else { Epilogue::Direct },
                out_stages: stages.min(2),
                ..Wgmma::LARGE
            };
            let layout = Layout::ALL[(bits as usize + stages as usize) % 4];
            let names = ["swizzle", "cluster", "persistent", "roles", "bulk_store", "in_flight"];
            let chosen: Vec<&str> = (0..6u32).filter(|n| has(*n)).map(|n| names[n as usize]).collect();
            let name = format!("{{{}}}, {stages} slots, {}", chosen.join(" "), layout.name());
            out.push(Subset { name, parts, layout });
        }
    }
    out
}

/// The schedule of a subset at a size.
pub fn schedule(subset: &Subset, size: [i64; 3]) -> Result<Schedule, Error> {
    let gemm = Gemm::new(size[0], size[1], size[2]).of(DType::F16).layout(subset.layout);
    let steps = subset.parts.steps(gemm.spec()).finish()?;
    Ok(Schedule::new(gemm.program()?, Target::sm_90a(), steps))
}

/// With which code a subset has to be refused: products in flight leave no slot to load where there are no more than two.
fn refusal(parts: &Wgmma) -> Option<&'static str> {
    match (parts.in_flight, parts.stages, parts.producer) {
        (1, 1, _) => Some("pipeline.1"),
        (1, 2, _) => Some("lower.pipeline"),
        _ => None,
    }
}

/// What came of a subset.
enum Outcome {
    Right,
    Refused(String),
}

fn outcome(subset: &Subset) -> Outcome {
    let schedule = schedule(subset, [256, 128, 320]).unwrap_or_else(|e| panic!("{}: {e}", subset.name));
    tried(&subset.name, &schedule)
}

/// Runs a schedule in order and in a sample of the other orders, in integer mode, and on small integers.
fn tried(name: &str, schedule: &Schedule) -> Outcome {
    let made = schedule.scheduled().and_then(|func| lower(&func, &schedule.target));
    let lowered = match made {
        Ok(lowered) => lowered,
        Err(e) => {
            assert_ne!(e.fault(), Fault::Bug, "{name}: {e}");
            return Outcome::Refused(format!("{}: {}", e.code(), e.message()));
        }
    };
    let naive = naive_integers(&schedule.program, 3).unwrap();
    let orders = |policy: &Policy| *policy == Policy::InOrder || drawn(&format!("{policy:?} {schedule}"), 2);
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(7)].into_iter().filter(orders) {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let found = integers_with(&lowered, &options, 3)
            .unwrap_or_else(|e| panic!("{name}: {e}\n{}", warploom::lower::print(&lowered)));
        assert!(found == naive, "{name} {policy:?}");
    }
    let mut args: Vec<Array> = super::tensor::arguments(schedule);
    run_lowered(&lowered, Mode::Real, &mut args).unwrap();
    for output in outputs(&schedule.program, &args, Sample::All).unwrap() {
        output.exact(&args[output.param]).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    Outcome::Right
}

/// `WARPLOOM_ALL=1` tries all of them; otherwise about every fortieth, drawn for the commit, and the last, which has all parts.
#[test]
fn every_subset_of_the_worked_example_is_right_or_refused() {
    let all = subsets(true);
    assert_eq!(all.len(), 256);
    let (mut right, mut refused) = (0, Vec::new());
    for (_, subset) in all.iter().enumerate().filter(|(n, s)| *n == 255 || drawn(&s.name, 40)) {
        match (outcome(subset), refusal(&subset.parts)) {
            (Outcome::Right, None) => right += 1,
            (Outcome::Refused(why), Some(code)) => {
                assert!(why.starts_with(&format!("{code}: ")), "{}: {why}", subset.name);
                refused.push(format!("{}: {why}", subset.name));
            }
            (Outcome::Refused(why), None) => panic!("{}: {why}", subset.name),
            (Outcome::Right, Some(code)) => panic!("{} is not refused with {code}", subset.name),
        }
    }
    println!("{right} are right, {} are refused:\n{}", refused.len(), refused.join("\n"));
    assert!(!everything() || [right, refused.len()] == [192, 64]);
}

/// Of those of large tiles that a GPU tries, and of the others without a swizzle, whose copies are many, a sixth, as the commit draws them. The first
/// in every run.
#[test]
fn subsets_of_large_tiles_assemble_into_registers_alone() {
    let tools = tools();
    let mut unclean = Vec::new();
    let chosen = |n: &usize, subset: &Subset| n.is_multiple_of(11) || n.is_multiple_of(3) && subset.parts.swizzle == 0;
    for (_, subset) in
        subsets(false).into_iter().enumerate().filter(|(n, s)| *n == 0 || chosen(n, s) && drawn(&s.name, 6))
    {
        let schedule = schedule(&subset, [512, 512, 448]).unwrap();
        let Ok(kernels) = warploom::compile(&schedule) else { continue };
        for ptxas in &tools {
            let made = ptxas.assemble(&kernels.text, schedule.target.name).unwrap();
            if made.usage.iter().any(|u| !u.is_clean()) || !made.warnings.is_empty() {
                unclean.push(format!("{} by ptxas {}: {:?}", subset.name, ptxas.version, made.usage));
            }
        }
    }
    assert!(unclean.is_empty(), "{unclean:#?}");
}

/// A batch of products, by the steps that are recommended and by the tiles of large products at a small size.
/// A fifth of the sizes and layouts, as the commit draws them, and the smallest size in the first layout.
#[test]
fn batches_are_right_at_every_size_and_layout() {
    let sizes = [[128, 128, 192], [100, 72, 40], [65, 33, 47]];
    for (n, layout) in Layout::ALL.into_iter().enumerate() {
        let dtype = [DType::F16, DType::Bf16][n % 2];
        let chosen = |m: i64| (n, m) == (0, 65) || drawn(&format!("batches {m} {}", layout.name()), 5);
        for [m, n, k] in sizes.into_iter().filter(|[m, ..]| chosen(*m)) {
            let gemm = Gemm::new(m, n, k).of(dtype).layout(layout).batch(3);
            let spec = gemm.spec();
            let whole = Wgmma::of(spec, [64, 64], 1, &Target::sm_90a());
            let parts = Wgmma { persistent: true, producer: true, stages: 3, in_flight: 1, ..whole };
            for steps in [Wgmma::choose(spec, &Target::sm_90a()).unwrap(), parts].map(|w| w.steps(spec)) {
                let schedule = Schedule::new(gemm.program().unwrap(), Target::sm_90a(), steps.finish().unwrap());
                let name = format!("3 x {m}x{n}x{k} {dtype} {}", layout.name());
                if let Outcome::Refused(why) = tried(&name, &schedule) {
                    panic!("{name}: {why}\n{schedule}");
                }
            }
        }
    }
}

/// Four blocks share the longer side of a tile: that of B, or that of A where columns take the part of rows. A fifth of the forms, as the commit
/// draws them, and one in every run.
#[test]
fn tiles_that_four_blocks_share_are_right() {
    use SwapAb::{Straight, Swapped};
    let forms = [(Layout::NN, Swapped), (Layout::NT, Swapped), (Layout::NT, Straight), (Layout::TT, Straight)];
    for (layout, swap_ab) in forms {
        for ([m, n, k], wide) in [([144, 264, 136], 144), ([296, 152, 72], 144), ([72, 248, 200], 80)] {
            let is_first = (layout, m) == (Layout::TT, 72);
            if !is_first && !drawn(&format!("{m} {} {}", layout.name(), swap_ab.is_swapped()), 5) {
                continue;
            }
            let dtype = [DType::F16, DType::Bf16][usize::from(k == 72)];
            let gemm = Gemm::new(m, n, k).of(dtype).layout(layout);
            let plain = Wgmma::of(gemm.spec(), [64, 128], 1, &Target::sm_90a());
            let mut parts = Wgmma { block: [64, wide], cluster: [4, 1], swap_ab, producer: true, stages: 3, ..plain };
            parts.in_flight = 1;
            if swap_ab.is_swapped() {
                parts.block.reverse();
                parts.cluster.reverse();
            }
            for out_stages in [1, 2] {
                let steps = Wgmma { out_stages, ..parts }.steps(gemm.spec());
                let schedule = Schedule::new(gemm.program().unwrap(), Target::sm_90a(), steps.finish().unwrap());
                let name = format!("{m}x{n}x{k} {dtype} {}", layout.name());
                if let Outcome::Refused(why) = tried(&name, &schedule) {
                    panic!("{name}: {why}\n{schedule}");
                }
            }
        }
    }
}

/// Cooperative warpgroups of persistent blocks store swapped tiles in equal parts of their rows, two at a time; a tile whose rows have no such parts
/// leaves as a whole. Of 140 tiles some blocks have two. These run in every run, and a sample of the others.
#[test]
fn swapped_tiles_of_several_waves_are_right() {
    let forms = [
        (Layout::NT, [48, 64], 1, [667, 616, 136], Some(6)),
        (Layout::NN, [144, 192], 3, [282, 376, 200], Some(6)),
        (Layout::TN, [64, 128], 2, [120, 248, 264], Some(4)),
        (Layout::NT, [88, 128], 2, [170, 256, 320], None),
    ];
    for (layout, block, warpgroups, [m, n, k], stored) in forms {
        let gemm = Gemm::new(m, n, k).of(DType::F16).layout(layout);
        let plain = Wgmma::of(gemm.spec(), block, warpgroups, &Target::sm_90a());
        let parts = Wgmma {
            swap_ab: SwapAb::Swapped,
            persistent: true,
            producer: true,
            stages: 3,
            in_flight: 1,
            out_stages: if stored.is_some() { 2 } else { 1 },
            ..plain
        };
        let steps = parts.steps(gemm.spec()).finish().unwrap();
        let schedule = Schedule::new(gemm.program().unwrap(), Target::sm_90a(), steps);
        let rows = stored.map(|parts| format!("split e0 ? {} -> ep e1", block[0] / parts));
        assert_eq!(schedule.to_string().contains("-> ep e1"), rows.is_some(), "{schedule}");
        assert!(rows.is_none_or(|rows| schedule.to_string().contains(&rows)), "{schedule}");
        if warpgroups > 1 && !drawn(&format!("several waves {}", layout.name()), 4) {
            continue;
        }
        if let Outcome::Refused(why) = tried(layout.name(), &schedule) {
            panic!("{}: {why}\n{schedule}", layout.name());
        }
    }
}

/// The ring of a producer continues from tile to tile of a persistent block: where a tile has one stage, which leaves no loop over k, and where it has
/// fewer stages than the ring. One block walks all six tiles, and several walk some. The first form, and a sample of the others.
#[test]
fn a_ring_continues_from_tile_to_tile() {
    let forms = [([128, 32], 2, 64, 2), ([128, 32], 2, 50, 3), ([64, 32], 1, 64, 4), ([128, 32], 2, 128, 5)];
    for (block, warpgroups, k, stages) in forms {
        let gemm = Gemm::new(2 * block[0] - 8, 88, k).of(DType::F16).layout(Layout::NT);
        let plain = Wgmma::of(gemm.spec(), block, warpgroups, &Target::sm_90a());
        let parts = Wgmma {
            bk: 64,
            persistent: true,
            producer: true,
            stages,
            in_flight: i64::from(stages > 2),
            out_stages: 1,
            ..plain
        };
        let steps = parts.steps(gemm.spec()).finish().unwrap();
        let schedule = Schedule::new(gemm.program().unwrap(), Target::sm_90a(), steps);
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let text = warploom::lower::print(&lowered);
        assert!(text.contains(&format!("A_s_full[{stages}]")), "{text}");
        if stages > 2 && !drawn(&format!("a ring of {stages}"), 3) {
            continue;
        }
        if let Outcome::Refused(why) = tried("a ring", &schedule) {
            panic!("{why}\n{schedule}");
        }
    }
}

/// Rows of an operand's tile across k are loaded in whole panels, of which instructions read the last in part: straight and swapped, in one block and
/// in clusters that share the tile. The first form runs, and a sample of the others.
#[test]
fn the_last_panel_of_a_row_may_be_used_in_part() {
    let forms = [
        (Layout::NN, SwapAb::Straight, [64, 80], 1, [1, 1], [120, 232, 136]),
        (Layout::TN, SwapAb::Straight, [128, 160], 2, [2, 1], [248, 312, 200]),
        (Layout::TN, SwapAb::Swapped, [72, 64], 1, [1, 1], [136, 120, 136]),
        (Layout::TT, SwapAb::Swapped, [136, 128], 2, [1, 2], [264, 248, 200]),
    ];
    for ((layout, swap_ab, block, warpgroups, cluster, [m, n, k]), persistent) in
        forms.into_iter().flat_map(|form| [(form, false), (form, true)])
    {
        let gemm = Gemm::new(m, n, k).of(DType::Bf16).layout(layout);
        let plain = Wgmma::of(gemm.spec(), block, warpgroups, &Target::sm_90a());
        let producer = persistent || cluster != [1, 1];
        let parts = Wgmma { swap_ab, cluster, persistent, producer, stages: 3, in_flight: 1, out_stages: 1, ..plain };
        let steps = parts.steps(gemm.spec()).finish().unwrap();
        let schedule = Schedule::new(gemm.program().unwrap(), Target::sm_90a(), steps);
        let name = format!("{} {block:?}, persistent: {persistent}", layout.name());
        let lowered = print(&lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap());
        let columns = block[usize::from(!swap_ab.is_swapped())];
        let padded = (columns + 63) / 64 * 64;
        let stage = if swap_ab.is_swapped() { "A_s" } else { "B_s" };
        assert!(lowered.contains(&format!("{stage}: shared bf16[{}]", padded * 64 * 3)), "{name}: {lowered}");
        if (layout, persistent) != (Layout::NN, false) && !drawn(&format!("the last panel {name}"), 4) {
            continue;
        }
        if let Outcome::Refused(why) = tried(&name, &schedule) {
            panic!("{name}: {why}\n{schedule}");
        }
    }
}

/// Where a producer loads one tile alone, C takes the place of a ring that leaves it no room, and a missing barrier in between is found. The last
/// form runs, and a sample of the others.
#[test]
fn c_takes_the_place_of_a_ring() {
    let target = Target::sm_90a();
    let forms = [(Layout::TT, SwapAb::Swapped, [160, 256], [1, 2]), (Layout::TN, SwapAb::Straight, [256, 192], [2, 1])];
    for ((layout, swap_ab, block, cluster), stages) in forms.into_iter().flat_map(|form| [(form, 2), (form, 4)]) {
        let gemm = Gemm::new(block[0] * cluster[0], block[1] * cluster[1] - 24, 320).of(DType::Bf16).layout(layout);
        let plain = Wgmma::of(gemm.spec(), block, 2, &target);
        let parts = Wgmma {
            swap_ab,
            cluster,
            stages,
            producer: true,
            persistent: false,
            in_flight: i64::from(stages > 2),
            ..plain
        };
        let steps = parts.steps(gemm.spec()).finish().unwrap();
        let schedule = Schedule::new(gemm.program().unwrap(), target, steps);
        let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
        // Rows of 160 columns have three panels.
        let ring = 128 * block.map(|side| (side + 63) / 64 * 64).iter().sum::<i64>() * stages;
        assert_eq!(i64::from(lowered.kernels[0].shared_bytes) < ring + 1024, stages == 4, "{}", print(&lowered));
        let is_run =
            (layout, stages) == (Layout::TN, 4) || drawn(&format!("C in a ring {} {stages}", layout.name()), 4);
        if is_run && let Outcome::Refused(why) = tried(layout.name(), &schedule) {
            panic!("{why}");
        }
        let missing =
            mutants(&lowered).into_iter().find(|m| m.what.contains("C_f writes bytes") && m.what.ends_with("removed"));
        assert_eq!(missing.is_some(), stages == 4, "{}", print(&lowered));
        if let Some(missing) = missing {
            let options = |policy| Options::new(Mode::Integer).with_policy(policy);
            let run = |policy| integers_with(&missing.lowered, &options(policy), 3).err().map(|e| e.code().to_string());
            let codes = [Policy::InOrder, Policy::Reverse].map(run);
            assert!(codes.iter().flatten().any(|code| code == "sim.race"), "{}: {codes:?}", missing.what);
        }
    }
}

/// Tiles of 64 x 64 in clusters of two, with three slots for seven trips.
fn in_clusters(persistent: bool, trips: i64) -> Lowered {
    let parts = Wgmma { block: [64, 64], warpgroups: 1, stages: 3, persistent, ..Wgmma::LARGE };
    let subset = Subset { name: String::new(), parts, layout: Layout::NT };
    lower(&schedule(&subset, [128, 128, 64 * trips]).unwrap().scheduled().unwrap(), &Target::sm_90a()).unwrap()
}

/// Slots that are not filled again are not left. So a block waits for each arrival and each copy of another one, and ends when it
/// likes; blocks that walk tiles do not know which slots come last, and meet at the end.
#[test]
fn blocks_that_wait_for_all_that_reaches_them_end_alone() {
    let text = |persistent, trips| print(&in_clusters(persistent, trips));
    let wave = text(false, 7);
    assert_eq!(wave.matches("cluster_barrier").count(), 1, "{wave}");
    assert_eq!(wave.matches("mbarrier.arrive").count(), 1, "{wave}");
    assert!(wave.contains("if k0 >= 1 and k0 < 5\n"), "{wave}");
    // Slots that are filled once are never left.
    let once = text(false, 3);
    assert!(!once.contains("mbarrier.arrive") && once.matches("cluster_barrier").count() == 1, "{once}");
    let stays = text(true, 7);
    assert_eq!(stays.matches("mbarrier.arrive").count(), 2, "{stays}");
    assert!(
        stays.contains(
            "cluster_barrier  # no block exits while another block of the cluster may access its shared memory"
        ),
        "{stays}"
    );
}

/// A block that could end too early is refused, and found where it does.
#[test]
fn blocks_that_end_too_early_are_found() {
    let damaged = |lowered: &Lowered, what: &str| {
        let found = mutants(lowered).into_iter().find(|m| m.what.contains(what));
        let damaged = found.unwrap_or_else(|| panic!("{what}: {}", print(lowered))).lowered;
        let refused = verify(&damaged.kernels[0]).unwrap_err();
        assert!(refused.message().contains("may end while another one of its cluster"), "{what}: {refused}");
        damaged
    };
    let wave = in_clusters(false, 7);
    for what in [
        "mbarrier.wait (RAW A_s, B_s: the stage is full) removed",
        "mbarrier.wait (WAR A_s, B_s: all consumers have released the stage) removed",
    ] {
        damaged(&wave, what);
    }
    // One run more arrives where nobody waits.
    let late = damaged(&wave, "became `if k0 >= 1 and k0 < 6`");
    for lowered in [late, damaged(&in_clusters(true, 7), "may access its shared memory) removed")] {
        let codes = [Policy::InOrder, Policy::Reverse].map(|policy| {
            let options = Options::new(Mode::Integer).with_policy(policy);
            integers_with(&lowered, &options, 3).err().map(|e| e.to_string())
        });
        let found = |e: &String| e.contains("is of a block that may have ended before it is reached");
        assert!(codes.iter().flatten().any(found), "{codes:?}");
    }
}

/// What is recommended where rows cross lines of the cache: four blocks share a tile whose rows run along k, and the code is clean: that of the first
/// form, and of a sample of the others.
#[test]
fn rows_that_cross_lines_are_shared_by_four() {
    let (tools, target) = (super::ptxas::tools(), Target::sm_90a());
    for (layout, cluster, wide) in
        [(Layout::NN, 4, 144), (Layout::NT, 4, 144), (Layout::TN, 2, 128), (Layout::TT, 4, 144)]
    {
        for dtype in [DType::F16, DType::Bf16] {
            let gemm = Gemm::new(1000, 1000, 1000).of(dtype).layout(layout);
            let schedule = warploom::gemm::recommend(&gemm, &target).unwrap();
            let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
            let kernel = &lowered.kernels[0];
            assert_eq!((kernel.cluster(), kernel.grid()[0] <= 132), (cluster, true), "{schedule}");
            let text = schedule.to_string();
            assert!(text.contains(&format!("wgmma.m64n{wide}k16.")), "{schedule}");
            // Where rows are rows, each warp stores its own.
            assert_eq!(text.contains("reverse_compute_at C_s fw"), layout.name().starts_with('T'), "{schedule}");
            let is_first = (layout, dtype) == (Layout::NN, DType::F16);
            if !is_first && !drawn(&format!("four blocks {dtype} {}", layout.name()), 4) {
                continue;
            }
            super::ptxas::assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{gemm:?}: {e}"));
        }
    }
}

/// What is recommended for batches of record is clean code.
#[test]
fn recommended_batches_assemble_without_a_spill() {
    let (tools, target) = (super::ptxas::tools(), Target::sm_90a());
    for (n, layout) in Layout::ALL.into_iter().enumerate() {
        let [batch, size] = [[64, 512], [8, 1024]][n % 2];
        let gemm = Gemm::new(size, size, size).of([DType::F16, DType::Bf16][n / 2]).layout(layout).batch(batch);
        let lowered = lower(&warploom::gemm::recommend(&gemm, &target).unwrap().scheduled().unwrap(), &target).unwrap();
        assert!(warploom::lower::print(&lowered).contains("wgmma."));
        super::ptxas::assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{gemm:?}: {e}"));
    }
}

/// The rungs of the ladder by wgmma are clean code, too: the first, and a sample of the others.
#[test]
fn rungs_assemble_without_a_spill() {
    let (tools, target) = (super::ptxas::tools(), Target::sm_90a());
    let gemm = Gemm::new(4096, 4096, 4096).of(DType::F16);
    for (n, rung) in warploom::gemm::RUNGS.into_iter().enumerate() {
        if n > 0 && !drawn(&format!("rung {}", rung.name), 3) {
            continue;
        }
        let schedule = rung.schedule(&gemm, &target).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap_or_else(|e| panic!("{}: {e}", rung.name));
        super::ptxas::assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{}: {e}", rung.name));
    }
}
