//! `bind L warpgroup pingpong` from end to end: two consumer warpgroups run ping-pong on tiles that one producer warp fills.

use super::ptxas::{assemble, tools};
use super::sample::drawn;
use warploom::error::Code;
use warploom::gemm::{Gemm, candidates};
use warploom::lower::lower;
use warploom::sim::mutate;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};
use warploom::te::Layout;
use warploom::{DType, Fault, Schedule, Target};

fn text() -> String {
    crate::cases::examples().into_iter().find(|(n, _)| n == "wgmma_f16_pingpong").expect("the example").1
}

fn at(m: i64, n: i64, k: i64) -> Schedule {
    Schedule::parse(&text().replace("256x256x256", &format!("{m}x{n}x{k}"))).unwrap()
}

/// Trips that the slots divide and that they do not, one trip, and more tiles than blocks at once.
#[test]
fn turns_give_the_naive_result_in_every_order() {
    for (m, n, k) in [(128, 128, 64), (128, 128, 320), (256, 128, 512), (256, 256, 192)] {
        let schedule = at(m, n, k);
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let naive = naive_integers(&schedule.program, 5).unwrap();
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3), Policy::Random(4)] {
            let options = Options::new(Mode::Integer).with_policy(policy);
            let found = integers_with(&lowered, &options, 5);
            assert!(found.unwrap_or_else(|e| panic!("{m}x{n}x{k} {policy:?}: {e}")) == naive, "{m}x{n}x{k} {policy:?}");
        }
    }
}

/// Accumulators of 32 bits leave as they are, 32 columns at a time, beside the MMAs of the other warpgroup. The smallest size, and a sample of the
/// others.
#[test]
fn sums_of_bytes_leave_in_turns() {
    let whole = (Gemm::new(4096, 4096, 4096), vec![[256, 128, 512], [512, 256, 384]]);
    let ragged = (Gemm::new(4100, 4112, 4112), vec![[300, 144, 640]]);
    for (gemm, mut sizes) in [whole, ragged] {
        sizes.retain(|size| size[0] == 256 || drawn(&format!("sums of bytes {size:?}"), 3));
        if sizes.is_empty() {
            continue;
        }
        let all = candidates(&gemm.of(DType::S8).layout(Layout::NT), &Target::sm_90a()).unwrap();
        let (_, pingpong) = all.iter().find(|(name, _)| name == "wgmma 256x128 in ping-pong").expect("a candidate");
        for size in sizes {
            let schedule = pingpong.resized(&size).unwrap();
            let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
            let naive = naive_integers(&schedule.program, 5).unwrap();
            for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3)] {
                let options = Options::new(Mode::Integer).with_policy(policy);
                let found = integers_with(&lowered, &options, 5);
                assert!(found.unwrap_or_else(|e| panic!("{size:?} {policy:?}: {e}")) == naive, "{size:?} {policy:?}");
            }
        }
    }
}

/// A warpgroup that does not wait for its turn may take another one's phase for its own: a third of the mutants, and the first.
#[test]
fn a_missing_turn_is_found() {
    let schedule = at(1024, 128, 320);
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let print = warploom::lower::print(&lowered);
    assert!(print.contains("mbarrier ia_pingpong[2]"), "{print}");
    let of_turns = |m: &&mutate::Mutant| ["ping-pong", "pingpong"].iter().any(|w| m.what.contains(w));
    let mutants = mutate::mutants(&lowered);
    let damaged: Vec<&mutate::Mutant> = mutants.iter().filter(of_turns).collect();
    assert!(!damaged.is_empty());
    let naive = naive_integers(&schedule.program, 5).unwrap();
    let tried = |(n, mutant): &(usize, &mutate::Mutant)| *n == 0 || drawn(&format!("missing turn {}", mutant.what), 3);
    for (_, mutant) in damaged.into_iter().enumerate().filter(tried) {
        let found = [Policy::InOrder, Policy::Reverse, Policy::Random(3)].into_iter().any(|policy| {
            let options = Options::new(Mode::Integer).with_policy(policy);
            integers_with(&mutant.lowered, &options, 5).map_or(true, |result| result != naive)
        });
        assert!(found, "{}", mutant.what);
    }
}

/// A turn that is passed on before its last slot is full lets the next warpgroup take that phase for its own. The result is wrong
/// only where that slot's copies land behind those of the slots after it; every order finds that nothing keeps them from it.
#[test]
fn a_turn_passed_on_too_early_is_found() {
    let text = text()
        .replace("256x256x256", "128x32x192")
        .replace("split j ? 128", "split j ? 16")
        .replace("split en ? 64", "split en ? 16")
        .replace("m64n128k16", "m64n16k16")
        .replace("swizzle A_s B_s C_s 128", "swizzle A_s B_s 128; swizzle C_s 32")
        .replace("stages=4 in_flight=1", "stages=2");
    let schedule = Schedule::parse(&text).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let early = |m: &mutate::Mutant| m.kind == "wait moved" && m.what.contains("the stage is full) moved down");
    let mutants = mutate::mutants(&lowered);
    let damaged: Vec<&mutate::Mutant> = mutants.iter().filter(|m| early(m)).collect();
    assert!(!damaged.is_empty());
    for mutant in damaged {
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(3)] {
            let options = Options::new(Mode::Integer).with_policy(policy);
            let error = integers_with(&mutant.lowered, &options, 5).expect_err(&mutant.what);
            assert_eq!(error.code(), Code::SimMbarrier, "{policy:?}: {error}");
        }
    }
}

#[test]
fn turns_whose_stages_no_role_fills_are_refused() {
    let both = "specialize A_s B_s -> load warps=4 regs=40";
    let stores = format!("{both}\nsplit s1 ? 32 -> s1o s1i; bind s1i threadIdx.x");
    for (roles, message) in [
        ("", "loop ia is pingpong, but no role fills a staged buffer inside it"),
        ("specialize A_s -> load warps=4 regs=40", "no role fills staged buffer B_s inside it"),
        (&stores, "loop ia is pingpong, but loop s1i inside it is bound to the threadIdx.x of all warpgroups"),
    ] {
        let text = text()
            .replace(both, roles)
            .replace("copy_with C_s tma", if roles == stores { "" } else { "copy_with C_s tma" });
        let schedule = Schedule::parse(&text).unwrap();
        let error = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err();
        assert_eq!((error.fault(), error.code()), (Fault::Input, Code::LowerPingpong));
        assert!(error.message().contains(message), "{error}");
    }
}

/// The ping-pong tiles among the candidates, with swapped operands too (NN), at a size with more tiles than blocks at once.
/// A part of the widths, and of the other layouts than NN, as the commit draws them, and the first of each layout. ptxas keeps the
/// large products in registers.
#[test]
fn every_width_of_the_recipe_is_right_in_every_order() {
    let tools = tools();
    let layouts = [Layout::NT, Layout::TN, Layout::NN];
    let chosen = |layout: &Layout| *layout == Layout::NN || drawn(&format!("ping-pong {}", layout.name()), 4);
    for layout in layouts.into_iter().filter(chosen) {
        let gemm = Gemm::new(5120, 5120, 5120).of(DType::F16).layout(layout);
        let all = candidates(&gemm, &Target::sm_90a()).unwrap();
        let pingpong: Vec<_> = all.into_iter().filter(|(name, _)| name.contains("in ping-pong")).collect();
        assert!(pingpong.len() >= 2, "{layout:?}");
        let is_swapped = |name: &str| name.ends_with("A and B swapped");
        assert_eq!(pingpong.iter().any(|(name, _)| is_swapped(name)), layout == Layout::NN, "{layout:?}");
        let rate = |name: &str| if is_swapped(name) { 2 } else { 6 };
        let tried = |n: usize, name: &str| n == 0 || drawn(&format!("{name} {}", layout.name()), rate(name));
        for (n, (name, large)) in pingpong.into_iter().enumerate().filter(|(n, (name, _))| tried(*n, name)) {
            let lowered = lower(&large.scheduled().unwrap(), &large.target).unwrap();
            assemble(&tools, &lowered, &large.target, true).unwrap_or_else(|e| panic!("{name}: {e}"));
            // A tile and a part of one, or two where tiles divide the large product, which is not padded then; more and fewer terms than the
            // stages hold.
            let divides = |width: &i64| name.contains(&format!("x{width} ")) || name.contains(&format!(" {width}x"));
            let width = [128, 160].into_iter().find(divides).map_or(208, |width| 2 * width);
            let [rows, columns] = if is_swapped(&name) { [width, 512] } else { [512, width] };
            let schedule = large.resized(&[rows, columns, 64 * (2 + 3 * (n as i64 % 3))]).unwrap();
            let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
            let naive = naive_integers(&schedule.program, 7).unwrap();
            for policy in [Policy::Reverse, Policy::Random(5)] {
                let options = Options::new(Mode::Integer).with_policy(policy);
                let found = integers_with(&lowered, &options, 7).unwrap_or_else(|e| panic!("{name} {policy:?}: {e}"));
                assert!(found == naive, "{name} {policy:?}");
            }
        }
    }
}

/// A loop with barriers is written out as often as it is asked to be, and no more often by itself.
#[test]
fn slots_are_written_out_where_they_are_asked_to_be() {
    let products = |text: &str| {
        let schedule = Schedule::parse(text).unwrap();
        warploom::compile(&schedule).unwrap().text.matches("wgmma.mma_async").count()
    };
    let asked = text().replace("pipeline k0", "annotate k0 unroll_limit 4\npipeline k0");
    assert_eq!(products(&asked), 4 * products(&text()));
}

/// Ping-pong tiles of `width` rows and 2 x 128 columns of C with swapped operands (C^T = B^T A^T): any multiple of 8 rows where A's
/// rows run along k, which B's need not. Each warpgroup stores `rows` rows of its tile at once.
fn swapped(layout: Layout, width: i64, rows: i64, k: i64) -> Schedule {
    let matrix = if rows % 16 == 0 { 16 } else { 8 };
    let text = format!(
        "gemm {m}x512x{k} f16>f32>f16 {layout}
        target sm_90a
        split i ? {width} -> i0 in; split j ? 2 2 64 -> j0 ja jo jm; split k ? 4 16 -> k0 kk ki
        reorder i0 j0 ja k0 kk jo jm in ki
        rasterize i0 j0 group=8 -> tile; bind tile blockIdx.x persistent; bind ja warpgroup pingpong
        cache_read mma A shared -> A_s; compute_at A_s k0
        cache_read mma B shared -> B_s; compute_at B_s k0
        set_scope acc fragment
        cache_write out C shared -> C_s; cache_write out C_s fragment -> C_f
        reverse_compute_at out ja -> e0 en; split e0 ? {rows} -> ep e1
        reverse_compute_at C_f ep -> f0 f1; reverse_compute_at C_s ep -> s0 s1
        split f0 ? {matrix} -> fc fi; split f1 ? 4 16 -> fo fw fr; reorder fo fw fc fi fr; bind fw warp
        tensorize jm wgmma.m64n{width}k16.f32.f16.f16 m=jm n=in k=ki
        tensorize fi stmatrix.trans.m{matrix}n16.f16
        swizzle A_s B_s C_s 128; copy_with A_s tma; copy_with B_s tma; copy_with C_s tma
        pipeline k0 stages=4 in_flight=1
        specialize A_s B_s -> load warps=4 regs=40",
        m = 2 * width,
        layout = layout.name(),
    );
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// In NN the rows of A run along k, and a tile may have any multiple of 8 rows; in TN it has whole panels of 64. A sample of the forms, and the one
/// with the fewest rows.
#[test]
fn swapped_operands_are_right_in_ping_pong() {
    let forms = [
        (Layout::NN, 168, 56),
        (Layout::NN, 176, 88),
        (Layout::NN, 104, 8),
        (Layout::TN, 128, 64),
        (Layout::TN, 192, 96),
        (Layout::NT, 104, 104),
        (Layout::TT, 192, 48),
    ];
    for (n, (layout, width, rows)) in forms.into_iter().enumerate() {
        let name = format!("{} {width} in parts of {rows}", layout.name());
        if rows != 8 && !drawn(&name, 4) {
            continue;
        }
        // Fewer and more k iterations than stages.
        let schedule = swapped(layout, width, rows, 64 * [3, 4, 7][n % 3]);
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let naive = naive_integers(&schedule.program, 9).unwrap();
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(7)] {
            let options = Options::new(Mode::Integer).with_policy(policy);
            let found = integers_with(&lowered, &options, 9).unwrap_or_else(|e| panic!("{name} {policy:?}: {e}"));
            assert!(found == naive, "{name} {policy:?}");
        }
    }
}
