//! Pipelines of registers inside rings of mbarriers: they run on from slot to slot, at every number of trips, whoever fills
//! the slots; what is missing or misplaced in between is found.

use crate::sample::{drawn, everything};
use warploom::gemm::{Mma, Source};
use warploom::lower::{Lowered, lower, print};
use warploom::sim::mutate;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};
use warploom::te::{GemmSpec, Layout};
use warploom::{DType, Gemm, Schedule, Target};

/// Four tiles of 32 x 16, or two clusters of two, each the sum of `trips` slots of 32 terms.
struct Product {
    trips: usize,
    slots: usize,
    /// Behind `bind tile blockIdx.x`.
    walk: &'static str,
    cluster: bool,
    /// Steps of a slot, and sets of fragments that are loaded ahead.
    ahead: usize,
    /// One set instead: fragments are loaded anew in place.
    in_place: bool,
    /// What fills the slots.
    fill: &'static str,
    /// Fragments come by ldmatrix, or by ordinary loads.
    matrices: bool,
    /// What stands between slots stands between products.
    spread: bool,
}

const BY_ROLE: &str = "copy_with A_s tma; copy_with B_s tma; specialize A_s B_s -> load warps=1";
const OWN: &str = "copy_with A_s tma; copy_with B_s tma";
const TWO_ROLES: &str =
    "copy_with A_s tma; copy_with B_s tma; specialize A_s -> load warps=1; specialize B_s -> second warps=2";
const BY_THREADS: &str = "fuse a0 a1 -> ae; split ae ? 32 8 -> a_0 a_1 a_2; bind a_1 threadIdx.x; vectorize a_2
copy_with A_s cp_async
fuse b0 b1 -> be; split be ? 32 8 -> b_0 b_1 b_2; bind b_1 threadIdx.x; vectorize b_2
copy_with B_s cp_async
specialize A_s B_s -> load warps=1";
const SHARED: &str = "copy_with A_s tma; copy_with B_s tma multicast=ic; specialize A_s B_s -> load warps=1";
const SHARED_OWN: &str = "copy_with A_s tma; copy_with B_s tma multicast=ic";

const PLAIN: Product = Product {
    trips: 5,
    slots: 3,
    walk: "",
    cluster: false,
    ahead: 2,
    in_place: false,
    fill: BY_ROLE,
    matrices: true,
    spread: false,
};

impl Product {
    fn schedule(&self) -> Schedule {
        let Product { trips, slots, walk, ahead, fill, .. } = self;
        let sets = if self.in_place { 1 } else { *ahead };
        let spread = if self.spread { "; annotate k0 spread 1" } else { "" };
        let [a, b] = match self.matrices {
            true => [
                "split f0 ? 16 -> fm fi; tensorize fi ldmatrix.m16n16.f16",
                "split g0 ? 16 -> gm gi; tensorize gi ldmatrix.row.m16n16.f16",
            ],
            false => ["", ""],
        };
        let (clusters, ic, bound) = if self.cluster { ("2 ", " ic", "; bind ic cluster") } else { ("", "", "") };
        let text = format!(
            "gemm 64x32x{} f16>f32>f16 NT
            target sm_90a
            set_scope acc fragment
            split i ? {clusters}2 16 -> i0{ic} iw ii; split j ? 2 8 -> j0 jm ji; split k ? {ahead} 16 -> k0 kk ki
            reorder i0 j0{ic} iw k0 kk jm ii ji ki
            fuse i0 j0 -> tile; bind tile blockIdx.x{walk}; bind iw warp{bound}
            reverse_compute_at out iw
            cache_read mma A shared -> A_s; compute_at A_s k0 -> a0 a1
            cache_read mma B shared -> B_s; compute_at B_s k0 -> b0 b1
            {fill}
            pipeline k0 stages={slots}
            cache_read mma A_s fragment -> A_f; compute_at A_f kk -> f0 f1; {a}
            cache_read mma B_s fragment -> B_f; compute_at B_f kk -> g0 g1; {b}
            pipeline kk stages={sets}{spread}
            decompose_reduction mma k0 -> zero
            tensorize ii mma.m16n8k16.f32.f16.f16",
            trips * ahead * 16
        );
        Schedule::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }
}

/// Crossings to damage: a ring that a role fills, and one that the block fills itself, both with rounds and what is behind them.
pub fn subjects() -> Vec<(&'static str, Schedule)> {
    let own = Product { fill: OWN, slots: 2, trips: 7, ..PLAIN };
    vec![
        ("fragments across the slots of a role", Product { trips: 8, ..PLAIN }.schedule()),
        ("fragments across the slots of a block", own.schedule()),
        ("fragments in place across slots", Product { in_place: true, ..own }.schedule()),
        ("fragments across slots between products", Product { spread: true, trips: 8, ..PLAIN }.schedule()),
        (
            "fragments across the slots of a cluster",
            Product { fill: SHARED, cluster: true, trips: 4, ..PLAIN }.schedule(),
        ),
    ]
}

fn lowered(schedule: &Schedule) -> Lowered {
    lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_or_else(|e| panic!("{e}\n{schedule}"))
}

/// Whether the lowered program computes what the naive one does; what went wrong if not.
fn wrong(schedule: &Schedule, lowered: &Lowered, policies: &[Policy]) -> Option<String> {
    let naive = naive_integers(&schedule.program, 5).unwrap();
    policies.iter().find_map(|policy| {
        let options = Options::new(Mode::Integer).with_policy(*policy);
        match integers_with(lowered, &options, 5) {
            Err(e) => Some(format!("{policy:?}: {e}")),
            Ok(found) => (found != naive).then(|| format!("{policy:?}: another result")),
        }
    })
}

const POLICIES: [Policy; 4] = [Policy::InOrder, Policy::Reverse, Policy::Random(3), Policy::Random(4)];

/// The lines of what multiplies.
fn multipliers(lowered: &Lowered) -> Vec<String> {
    let text = print(lowered);
    let own = text.split("  role load, warps").next().unwrap_or_default();
    own.lines().map(|l| l.trim().to_string()).filter(|l| !l.starts_with('#')).collect()
}

/// Between the waits for two slots all products of the first one are made but those of its last loads, which are made behind
/// the second wait; and where a role fills the slots, the first one is left before it.
fn crosses(lowered: &Lowered) {
    let lines = multipliers(lowered);
    let text = lines.join("\n");
    let waits: Vec<usize> = (0..lines.len()).filter(|n| lines[*n].starts_with("mbarrier.wait")).collect();
    assert!(waits.len() > 1, "{text}");
    let count = |part: &[String], word: &str| part.iter().filter(|l| l.starts_with(word)).count();
    for (n, at) in waits.iter().enumerate() {
        let to = waits.get(n + 1).copied().unwrap_or(lines.len());
        let between = &lines[*at..to];
        // The last step of each slot but the last is behind the wait for the next one.
        let steps = if n == 0 { 1 } else { 2 } + usize::from(n + 1 == waits.len());
        assert_eq!(count(between, "mma."), steps, "{text}");
        let left = between.iter().position(|l| l.starts_with("mbarrier.arrive"));
        let read = between.iter().rposition(|l| l.contains("A_s[") || l.contains("B_s["));
        assert!(left.is_none() || left > read, "{text}");
        // Nothing is computed between the last read of a slot and its end but the products of the step before.
        let last = left.zip(read).map_or(0, |(left, read)| count(&between[read..left], "mma."));
        assert!(last <= 1, "{text}");
    }
}

/// An eighth of the trip counts of each form, as the commit draws them, and the first of the first form.
#[test]
fn every_number_of_trips_is_right_in_every_order() {
    let forms = [
        ("a role", PLAIN),
        ("the block itself", Product { fill: OWN, ..PLAIN }),
        ("two roles", Product { fill: TWO_ROLES, ..PLAIN }),
        ("a role's threads", Product { fill: BY_THREADS, ..PLAIN }),
        ("a role for a cluster", Product { fill: SHARED, cluster: true, ..PLAIN }),
        ("a cluster itself", Product { fill: SHARED_OWN, cluster: true, ..PLAIN }),
        ("a role of blocks that stay", Product { walk: " persistent", ..PLAIN }),
        ("blocks that stay", Product { walk: " persistent", fill: OWN, ..PLAIN }),
        ("four fragments", Product { ahead: 4, ..PLAIN }),
        ("ordinary loads", Product { matrices: false, ..PLAIN }),
        ("in place, by a role", Product { in_place: true, ..PLAIN }),
        ("in place, by the block itself", Product { in_place: true, ahead: 4, fill: OWN, ..PLAIN }),
        ("in place, by a role's threads", Product { in_place: true, fill: BY_THREADS, ..PLAIN }),
        (
            "in place, ordinary loads of blocks that stay",
            Product { in_place: true, matrices: false, walk: " persistent", ..PLAIN },
        ),
        ("in place, for a cluster", Product { in_place: true, fill: SHARED_OWN, cluster: true, ..PLAIN }),
        ("a role, between products", Product { spread: true, ..PLAIN }),
        ("the block itself, between products", Product { spread: true, fill: OWN, ..PLAIN }),
        ("blocks that stay, between products", Product { spread: true, walk: " persistent", ahead: 4, ..PLAIN }),
    ];
    for (name, form) in forms {
        for slots in [2, 3] {
            let trips = [1, 2, slots - 1, slots, slots + 1, 2 * slots, 2 * slots + 1, 3 * slots + 2];
            let is_first = |trips: usize| name == "a role" && (slots, trips) == (2, 1);
            let tried = |trips: &usize| is_first(*trips) || drawn(&format!("{name} {slots} {trips}"), 8);
            for trips in trips.into_iter().filter(tried) {
                let schedule = Product { trips, slots, ..form }.schedule();
                let found = lowered(&schedule);
                assert_eq!(wrong(&schedule, &found, &POLICIES), None, "{name}, {trips} trips: {}", print(&found));
            }
        }
    }
}

/// In the text of rings that are written out as a whole.
#[test]
fn a_slot_is_waited_for_before_the_products_of_the_last_one_end() {
    for fill in [BY_ROLE, OWN, BY_THREADS] {
        crosses(&lowered(&Product { fill, ..PLAIN }.schedule()));
    }
}

/// In place every load stands right behind the last product that reads the registers it fills, and a slot is left behind the last
/// load of it, before its last products.
#[test]
fn in_place_a_fragment_is_loaded_behind_its_last_product() {
    let lines = multipliers(&lowered(&Product { in_place: true, fill: OWN, ..PLAIN }.schedule()));
    let text = lines.join("\n");
    let of = |line: &str, buffer: &str| line.split_once(&format!("{buffer}[")).map(|(_, rest)| rest.to_string());
    let first = |rest: &str| rest.split([' ', ']']).next().and_then(|n| n.parse::<i64>().ok());
    let held = |line: &str, buffer: &str| of(line, buffer).and_then(|rest| first(&rest));
    let ends = lines.iter().rposition(|l| l.starts_with("ldmatrix")).unwrap();
    let begins = lines.iter().position(|l| l.starts_with("mma.")).unwrap();
    let mut checked = 0;
    for at in begins..=ends {
        let Some(buffer) =
            ["A_f", "B_f"].into_iter().find(|b| lines[at].starts_with("ldmatrix") && held(&lines[at], b).is_some())
        else {
            continue;
        };
        // The loads beside it aside, what stands in front is a product with these very registers, or a slot's end.
        let before =
            lines[..at].iter().rev().find(|l| l.starts_with("mma.") || l.starts_with("mbarrier.wait")).unwrap();
        let width = if buffer == "A_f" { 8 } else { 4 };
        let loaded = held(&lines[at], buffer).unwrap()..held(&lines[at], buffer).unwrap() + 8;
        let reads = held(before, buffer).is_some_and(|n| loaded.contains(&n) || loaded.contains(&(n + width - 1)));
        assert!(before.starts_with("mma.") && reads, "{}\n{text}", lines[at]);
        checked += 1;
    }
    // Steps of five slots but the first, of A and of B.
    assert_eq!(checked, 2 * (2 * 5 - 1), "{text}");
}

/// Threads that read a slot by themselves fence their reads before it is filled again: an arrival or a barrier alone lets a read
/// pass that is on its way still, as an H200 shows where blocks beside fill its queues with stores.
#[test]
fn reads_are_fenced_before_a_slot_is_filled_again() {
    for (form, fences) in [
        (Product { trips: 8, ..PLAIN }, true),
        (Product { trips: 8, fill: OWN, ..PLAIN }, true),
        (Product { trips: 8, in_place: true, fill: OWN, ..PLAIN }, true),
        (Product { trips: 8, fill: SHARED_OWN, cluster: true, ..PLAIN }, true),
        // Copies by threads stand in line with their reads.
        (Product { trips: 8, fill: BY_THREADS, ..PLAIN }, false),
    ] {
        let schedule = form.schedule();
        let whole = lowered(&schedule);
        let removed = |m: &mutate::Mutant| m.kind.starts_with("fence") && m.what.contains("WAR");
        let mutants: Vec<_> = mutate::mutants(&whole).into_iter().filter(removed).collect();
        assert_eq!(!mutants.is_empty(), fences, "{}", print(&whole));
        let found =
            |m: &mutate::Mutant| wrong(&schedule, &m.lowered, &POLICIES).is_some_and(|why| why.contains("race"));
        assert!(mutants.is_empty() || mutants.iter().any(found), "{}", print(&whole));
    }
}

/// With `spread` the arrival for a slot and the wait for the next stand between two products of one step, behind its last read.
#[test]
fn what_stands_between_slots_can_stand_between_products() {
    let lines = multipliers(&lowered(&Product { spread: true, ..PLAIN }.schedule()));
    let text = lines.join("\n");
    let waits: Vec<usize> = (0..lines.len()).filter(|n| lines[*n].starts_with("mbarrier.wait")).collect();
    assert_eq!(waits.len(), 5, "{text}");
    for at in &waits[1..] {
        let last = |word: &str| lines[..*at].iter().rposition(|l| l.contains(word));
        let (read, product, left) = (last("ldmatrix"), last("mma."), last("mbarrier.arrive"));
        assert!(read < product && product < left, "{text}");
        // The other product of the step comes before the next slot is read.
        let next = |word: &str| lines[*at..].iter().position(|l| l.contains(word));
        assert!(next("mma.") < next("ldmatrix"), "{text}");
    }
}

/// No remainder is computed where the trips allow it, and a round waits for each slot once.
#[test]
fn slots_are_constants_where_the_trips_allow_it() {
    let lines = multipliers(&lowered(&Product { trips: 64, ..PLAIN }.schedule()));
    let text = lines.join("\n");
    assert!(text.contains("for k0_round in 0..21") && !text.contains("% 3*"), "{text}");
    for slot in 0..3 {
        let phase = if slot == 0 { "k0_round + 1" } else { "k0_round" };
        assert_eq!(text.matches(&format!("mbarrier.wait A_s_full[{slot}], phase {phase}  #")).count(), 1, "{text}");
    }
    // Blocks that stay go on where the tile before ended: with 5 trips in another slot each time.
    let stays = |trips| multipliers(&lowered(&Product { walk: " persistent", trips, ..PLAIN }.schedule())).join("\n");
    let (odd, even) = (stays(5), stays(9));
    assert!(odd.contains("% 3]") && !even.contains("% 3]"), "{odd}\n{even}");
}

/// What says that a slot is full, or read, is needed wherever the slot is used again: of 8 slots of a ring of 3 all but the last
/// ones behind the rounds.
#[test]
fn what_stands_between_slots_is_needed() {
    let schedule = Product { trips: 8, ..PLAIN }.schedule();
    let (mut all, mut survived) = (0, Vec::new());
    let whose = [
        "mbarrier.arrive (WAR A_s, B_s: a consumer releases the stage)",
        "mbarrier.wait (RAW A_s, B_s: the stage is full)",
    ];
    for mutant in mutate::mutants(&lowered(&schedule)) {
        let damaged = ["arrival", "wait", "phase"].iter().any(|kind| mutant.kind.starts_with(kind));
        if damaged && whose.iter().any(|w| mutant.what.starts_with(w)) {
            all += 1;
            if wrong(&schedule, &mutant.lowered, &POLICIES).is_none() {
                survived.push(mutant.what);
            }
        }
    }
    // Two arrivals behind the rounds, each missing, and each in front of the last read.
    let of_the_last = |what: &String| {
        let what = what.split(" (place").next().unwrap_or(what);
        what.ends_with("removed") || what.ends_with("before the last read")
    };
    assert!(all > 20 && survived.len() == 4 && survived.iter().all(of_the_last), "of {all}: {survived:#?}");
}

/// The recipe's tiles by bulk copies: their schedule, and whether a kernel of its own packs a factor.
fn boxed(spec: &GemmSpec, tiles: Mma) -> (Schedule, bool) {
    let steps = tiles.steps(spec).finish().unwrap_or_else(|e| panic!("{e}\n{}", tiles.steps(spec)));
    let program = Gemm::from(*spec).program().unwrap();
    (Schedule::new(program, Target::sm_90a(), steps), tiles.routes.contains(&Source::Packed))
}

/// Whole tiles, ragged ones whose rows copies can read, and such that have to be packed; by the block, a loader, for a cluster.
/// A sixth of the forms, as the commit draws them, and those of the first size and layout.
#[test]
fn the_recipe_by_boxes_is_right_in_every_layout() {
    let ways = [(false, [1, 1], 32), (true, [1, 1], 64), (true, [2, 1], 32), (true, [1, 2], 32), (false, [2, 1], 64)];
    for (n, layout) in Layout::ALL.into_iter().enumerate() {
        for (s, [m, columns, k]) in [[128, 128, 224], [72, 136, 80], [50, 66, 70]].into_iter().enumerate() {
            let dtype = [DType::F16, DType::Bf16][(n + s) % 2];
            let spec = *Gemm::new(m, columns, k).of(dtype).layout(layout).spec();
            let tiles = Mma::of(&spec, &Target::sm_90a(), [32, 64], [1, 2], 1);
            let mut tried = 0;
            for (loader, cluster, bk) in ways {
                if (n, s) != (0, 0) && !drawn(&format!("{} {m} {loader} {cluster:?} {bk}", layout.name()), 6) {
                    continue;
                }
                let Some(tiles) = tiles.by_tma(&spec, &Target::sm_90a(), bk, loader, cluster) else { continue };
                let (schedule, packed) = boxed(&spec, tiles);
                let found = lowered(&schedule);
                let name = format!("{m}x{columns}x{k} {dtype} {} {tiles:?}", layout.name());
                assert!(print(&found).contains("bulk A_s") && packed == (s == 2), "{name}");
                assert_eq!(wrong(&schedule, &found, &[Policy::InOrder, Policy::Random(5)]), None, "{name}");
                tried += 1;
            }
            assert!(!everything() || tried >= 3, "{tried}");
        }
    }
}

/// Large tiles with a loader and without: clean code, whose products wait for nothing that was loaded in their own step. A third of the forms, as the
/// commit draws them, and the first.
#[test]
fn large_tiles_by_boxes_assemble_without_a_spill() {
    let (tools, target) = (super::ptxas::tools(), Target::sm_90a());
    for (n, layout) in Layout::ALL.into_iter().enumerate() {
        let spec = *Gemm::new(4096, 4096, 4096).of([DType::F16, DType::Bf16][n % 2]).layout(layout).spec();
        let large = Mma::of(&spec, &target, [128, 256], [2, 4], 1);
        let all = [(n % 2 == 0, [1, 1], 64), (true, [1, 1], 32), (true, [[2, 1], [1, 2]][n % 2], 64)];
        for (loader, cluster, bk) in all {
            let tiles = large.by_tma(&spec, &target, bk, loader, cluster).unwrap();
            let found = lowered(&boxed(&spec, tiles).0);
            let is_first = n == 0 && bk == 64 && cluster == [1, 1];
            if !is_first && !drawn(&format!("large tiles {} {bk} {cluster:?}", layout.name()), 3) {
                continue;
            }
            super::ptxas::assemble(&tools, &found, &target, true).unwrap_or_else(|e| panic!("{tiles:?}: {e}"));
        }
    }
}

/// A ninth warp would leave the others too few registers: a warpgroup gives them its own, where the chip can move them.
#[test]
fn loaders_leave_the_registers_that_tiles_need() {
    let spec = *Gemm::new(4096, 4096, 4096).of(DType::F16).spec();
    let warps = |target: Target, block, warps| {
        let tiles = Mma::of(&spec, &target, block, warps, 1).by_tma(&spec, &target, 64, true, [1, 1]);
        tiles.and_then(|m| m.tma).map(|b| b.warps)
    };
    assert_eq!(warps(Target::sm_90a(), [128, 256], [2, 4]), Some(4));
    assert_eq!(warps(Target::sm_90(), [128, 256], [2, 4]), None);
    assert_eq!(warps(Target::sm_90(), [128, 128], [2, 2]), Some(1));
    assert_eq!(warps(Target::sm_80(), [128, 128], [2, 2]), None);
    let of = |dtype| *Gemm::new(4096, 4096, 4096).of(dtype).layout(Layout::NT).spec();
    let bytes = Mma::of(&of(DType::S8), &Target::sm_90a(), [128, 128], [2, 2], 1);
    assert_eq!(bytes.by_tma(&of(DType::S8), &Target::sm_90a(), 64, true, [1, 1]), None);
}

/// On the device: two blocks of a multiprocessor, each of which fills the queues of its loads with stores of four bytes when it
/// ends, while the other one reads slots that copies fill again. Small integers, so that every bit counts, beside the product of
/// the recipe. Without fences such kernels lose parts of sums: that is how the need of them was found.
pub fn on_device(device: &warploom::Device) {
    use warploom::Array;
    let (n, k) = (2640, 4096);
    let text = format!(
        "gemm {n}x{n}x{k} f16>f32>f16 NT
        target sm_90a
        pad mma i=80 j=256; compute_inline acc_pad; set_scope acc_pad fragment
        split i ? 1 5 16 -> i0 iw im ii; split j ? 4 8 8 -> j0 jw jm ji; split k ? 4 16 -> k0 kk ki
        reorder i0 j0 iw jw k0 kk jm im ii ji ki
        rasterize i0 j0 group=16 -> tile; bind tile blockIdx.x; fuse iw jw -> w; bind w warp
        reverse_compute_at out w -> o0 o1; split o0 ? 16 -> om oi; split o1 ? 8 -> on oj; reorder om on oi oj
        cache_read mma A_pad shared -> A_s; compute_inline A_pad; compute_at A_s k0; swizzle A_s 128; copy_with A_s tma
        cache_read mma B_pad shared -> B_s; compute_inline B_pad; compute_at B_s k0; swizzle B_s 128; copy_with B_s tma
        pipeline k0 stages=2
        cache_read mma A_s fragment -> A_f; compute_at A_f kk -> f0 f1; split f0 ? 16 -> fm fi
        tensorize fi ldmatrix.m16n16.f16
        cache_read mma B_s fragment -> B_f; compute_at B_f kk -> g0 g1; split g0 ? 16 -> gm gi
        tensorize gi ldmatrix.row.m16n16.f16
        pipeline kk stages=1
        decompose_reduction mma k0 -> zero
        tensorize ii mma.m16n8k16.f32.f16.f16"
    );
    let own = Schedule::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let gemm = Gemm::new(n, n, k).of(DType::F16).layout(Layout::NT);
    let recommended = warploom::gemm::recommend(&gemm, &Target::sm_90a()).unwrap();
    let mut seed = fastrand::Rng::with_seed(11);
    let mut factor = || {
        let array = Array::from_fn(DType::F16, &[n as usize, k as usize], |_| f64::from(seed.i8(-1..=1))).unwrap();
        device.upload(&array).unwrap()
    };
    let (a, b) = (factor(), factor());
    let c = device.alloc(DType::F16, &[n as usize, n as usize]).unwrap();
    let product = |schedule: &Schedule| {
        c.poison().unwrap();
        let program = device.load(&warploom::compile_gemm(schedule).unwrap()).unwrap();
        program.launch(&[&a, &b, &c]).unwrap();
        c.download().unwrap()
    };
    let wanted = product(&recommended);
    for round in 0..5 {
        assert!(product(&own) == wanted, "round {round}");
    }
}
