//! Grids whose blocks walk the tiles of a program together, from end to end: that any number of blocks gives the naive
//! result, where barriers stand between tiles, what is refused, and what the PTX and the launch say.

use crate::lower::{GEMM, lowered, refused, syncs};
use crate::ptxas::{assemble, tools};
use warploom::Target;
use warploom::loom::Schedule;
use warploom::lower::lower;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};

/// The tiled product with all tiles walked by a persistent grid, three rows of tiles at a time.
fn walked(size: &str, more: &str) -> String {
    let tiled = GEMM.replace("64x64x64", size).replace("bind i0 blockIdx.y\nbind j0 blockIdx.x\n", "");
    format!("{tiled}{more}\nrasterize i0 j0 group=3 -> tile; bind tile blockIdx.x persistent\n")
}

/// However many blocks there are, a program gives the bits of the naive one: one, two, a number that does not divide the
/// tiles, and one for each.
fn every_grid_is_right(text: &str) {
    let schedule = Schedule::parse(text).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let naive = naive_integers(&schedule.program, 5).unwrap();
    let random = [1, 2, 3, 8].map(Policy::Random);
    for policy in [Policy::InOrder, Policy::Reverse].into_iter().chain(random) {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let found = integers_with(&lowered, &options, 5).unwrap_or_else(|e| panic!("{text}\n{policy:?}: {e}"));
        assert_eq!(found, naive, "{text}\n{policy:?}");
    }
}

#[test]
fn any_number_of_blocks_walks_all_tiles() {
    every_grid_is_right(
        "vec_add 1000\ntarget sm_80\nsplit i ? 64 -> i0 i1\nbind i0 blockIdx.x persistent; bind i1 threadIdx.x",
    );
    for more in ["", "copy_with A_s B_s cp_async; pipeline k0 stages=3", "pipeline k0 stages=2"] {
        every_grid_is_right(&walked("160x96x40", more));
        every_grid_is_right(&walked("150x91x39", more));
    }
}

/// The slots of a tile are filled again for the next one behind a barrier, as in any loop.
#[test]
fn a_barrier_stands_between_the_readers_of_a_tile_and_the_copies_of_the_next() {
    let steps = "window_sum 1024\ntarget sm_90\nsplit i ? 128 -> i0 i1\nbind i1 threadIdx.x\n\
                 cache_read C A shared -> A_s\ncompute_at A_s i1 -> a\nsplit a ? 128 -> a0 a1\nbind a1 threadIdx.x\n";
    let once = syncs(&lowered(&format!("{steps}bind i0 blockIdx.x\n")));
    assert_eq!(once, ["block: RAW A_s: C reads what A_s wrote"]);
    let several = syncs(&lowered(&format!("{steps}bind i0 blockIdx.x persistent\n")));
    assert_eq!(several, ["block: WAR A_s: A_s writes what C read in the iteration before", &once[0]]);
}

/// The tiled product in clusters of two blocks along i.
fn clustered(more: &str) -> String {
    let steps = "split i0 ? 2 -> ib ic\nbind ib blockIdx.y\nbind ic cluster\n";
    let tiled = GEMM.replace("64x64x64", "128x96x40").replace("sm_80", "sm_90");
    let tiled = tiled.replace("bind i0 blockIdx.y\n", "");
    format!("{tiled}{steps}{more}\n")
}

#[test]
fn blocks_of_a_cluster_are_numbered_along_x() {
    every_grid_is_right(&clustered(""));
    let kernels = warploom::compile(&Schedule::parse(&clustered("")).unwrap()).unwrap();
    let kernel = &kernels.kernels[0];
    assert_eq!((kernel.grid, kernel.cluster), ([6, 2, 1], [2, 1, 1]));
    let ptx = kernels.ptx();
    assert!(
        ptx.contains(".explicitcluster\n.reqnctapercluster 2, 1, 1\n") && ptx.contains("%cluster_ctarank"),
        "{ptx}"
    );
    assert!(ptx.contains(".version 7.8"));
    let func = Schedule::parse(&clustered("")).unwrap().scheduled().unwrap();
    for target in [Target::sm_90(), Target::sm_90a()] {
        assemble(&tools(), &lower(&func, &target).unwrap(), &target, true).unwrap_or_else(|e| panic!("{target}: {e}"));
    }
}

#[test]
fn a_persistent_grid_walks_tiles_by_clusters() {
    let walked = clustered("").replace("bind ib blockIdx.y\n", "").replace("bind j0 blockIdx.x\n", "");
    let walked =
        format!("{walked}reorder ib j0 ic\nrasterize ib j0 group=2 -> tile; bind tile blockIdx.x persistent\n");
    every_grid_is_right(&walked);
    let kernel = &warploom::compile(&Schedule::parse(&walked).unwrap()).unwrap().kernels[0].clone();
    assert_eq!((kernel.grid, kernel.cluster, kernel.persistent), ([12, 1, 1], [2, 1, 1], true));
}

#[test]
fn clusters_need_a_chip_that_has_them() {
    assert_eq!(refused(&clustered("").replace("sm_90", "sm_80")), "admit.cluster");
    let wide = clustered("").replace("128x96", "2176x96").replace("split i0 ? 2", "split i0 ? 17");
    assert_eq!(refused(&wide), "admit.cluster");
}

#[test]
fn what_the_blocks_walk_is_the_whole_kernel() {
    let tiled = GEMM.replace("bind j0 blockIdx.x\n", "bind j0 blockIdx.x persistent\n");
    assert_eq!(refused(&tiled), "lower.persistent");
    assert_eq!(refused(&tiled.replace("bind i0 blockIdx.y\n", "")), "lower.persistent");
}

/// The cost report counts each tile once, whoever walks it.
#[test]
fn a_persistent_kernel_costs_what_its_tiles_cost() {
    let totals = |text: &str| {
        let schedule = Schedule::parse(text).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let report = warploom::analysis::cost_report(&lowered, &schedule.target);
        let kernel = &report.kernels[0];
        (kernel.blocks(), format!("{:?}", kernel.totals))
    };
    let fixed = GEMM.replace("64x64x64", "160x96x40").replace("bind i0 blockIdx.y\nbind j0 blockIdx.x\n", "");
    let rasterized = format!("{fixed}\nrasterize i0 j0 group=3 -> tile; bind tile blockIdx.x\n");
    assert_eq!(totals(&walked("160x96x40", "")), totals(&rasterized));
}

#[test]
fn the_ptx_steps_by_the_number_of_blocks() {
    let schedule = Schedule::parse(&walked("160x96x40", "")).unwrap();
    let kernels = warploom::compile(&schedule).unwrap();
    let kernel = &kernels.kernels[0];
    assert_eq!((kernel.grid, kernel.persistent), ([15, 1, 1], true));
    assert!(kernels.ptx().contains("%nctaid.x") && kernels.ptx().contains("a smaller grid computes the same"));
    let fixed = warploom::compile(&Schedule::parse(GEMM).unwrap()).unwrap();
    assert!(!fixed.kernels[0].persistent && !fixed.ptx().contains("%nctaid"));
}
