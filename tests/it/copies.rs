//! Asynchronous copies from end to end: what `copy_with STAGE cp_async` becomes, alone and in pipelines, where waits and
//! barriers stand and why, what is refused, and that every chip that has them assembles the result.

use crate::lower::{GEMM, lanes, lowered, refused, syncs};
use crate::ptxas::{assemble, tools};
use warploom::error::Code;
use warploom::ir::Scope;
use warploom::loom::Schedule;
use warploom::lower::{LoweredKernel, lower};
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};
use warploom::{Error, Fault, Target};

fn gemm(size: &str, more: &str) -> String {
    format!("{}{more}\n", GEMM.replace("64x64x64", size))
}

/// Steps of the tiled product: registers are loaded ahead from slot to slot, and copies start between.
const REGISTERS: &str = "copy_with A_s B_s cp_async; cache_read C A_s local -> A_r; compute_at A_r k1
cache_read C B_s local -> B_r; compute_at B_r k1; pipeline k1 stages=2; annotate k0 spread 1
";

/// Programs that copy in every form, for other tests.
pub fn programs() -> [(&'static str, String); 7] {
    [
        ("copies through L1", gemm("32x64x24", "copy_with A_s cp_async cache=l1; copy_with B_s cp_async")),
        ("copies alone", gemm("32x64x24", "copy_with A_s B_s cp_async")),
        ("a ring of copies", gemm("32x64x56", "copy_with A_s B_s cp_async; pipeline k0 stages=4")),
        ("a ring with an ordinary stage", gemm("32x64x40", "copy_with B_s cp_async; pipeline k0 stages=3")),
        ("copies between the steps of registers", gemm("32x64x32", &format!("{REGISTERS}pipeline k0 stages=2"))),
        ("rows filled up", filled_up(60)),
        ("rows filled up by elements", filled_up(61)),
    ]
}

/// How many stores start copies of so many elements.
fn started(kernel: &LoweredKernel) -> Vec<u32> {
    let mut out = Vec::new();
    warploom::ir::visit::walk(&kernel.func.body, &mut |s| {
        if let warploom::ir::Stmt::Store(s) = s
            && s.asynchronous
        {
            out.push(s.lanes);
        }
    });
    out
}

/// Whenever copies land, and whichever warp comes first, a program gives the bits of the naive one.
fn lands_right(text: &str) {
    let schedule = Schedule::parse(text).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let naive = naive_integers(&schedule.program, 5).unwrap();
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(1)] {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let found = integers_with(&lowered, &options, 5).unwrap_or_else(|e| panic!("{text}\n{policy:?}: {e}"));
        assert_eq!(found, naive, "{text}\n{policy:?}");
    }
}

fn error(text: &str) -> Error {
    let schedule = Schedule::parse(text).unwrap();
    lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err()
}

#[test]
fn copies_of_16_bytes_go_through_l1_where_the_schedule_says_so() {
    let text = gemm("64x64x64", "copy_with A_s cp_async cache=l1; copy_with B_s cp_async");
    let schedule = Schedule::parse(&text).unwrap();
    let kernels = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let ptx = warploom::codegen::compile(&kernels, &schedule.target).unwrap().text;
    let copies = |way: &str| ptx.matches(&format!("cp.async.{way}.shared.global")).count();
    assert_eq!((copies("ca"), copies("cg")), (1, 1), "{ptx}");
    let shown = schedule.to_string();
    assert!(shown.contains("copy_with A_s cp_async cache=l1"), "{shown}");
}

#[test]
fn only_cp_async_chooses_a_cache() {
    for kind in ["sync", "tma"] {
        let text = gemm("64x64x64", &format!("copy_with A_s {kind} cache=l1")).replace("sm_80", "sm_90a");
        let error = Schedule::parse(&text).unwrap().scheduled().unwrap_err();
        assert!(error.to_string().contains("only cp_async chooses a cache"), "{error}");
    }
}

#[test]
fn a_copy_is_committed_and_waited_for_before_the_barrier() {
    let k = lowered(&gemm("64x64x64", "copy_with A_s B_s cp_async"));
    assert_eq!(started(&k), [4, 4]);
    assert_eq!(
        syncs(&k),
        [
            "block: WAR B_s: B_s writes what C read in the iteration before",
            "commit: A_s, B_s",
            "wait 0: RAW A_s: C reads what A_s copied",
            "block: RAW B_s: C reads what B_s copied"
        ]
    );
}

#[test]
fn an_ordinary_stage_beside_a_copy_shares_its_barriers() {
    let k = lowered(&gemm("64x64x64", "copy_with B_s cp_async"));
    assert_eq!(syncs(&k).len(), 4, "{:?}", syncs(&k));
    let k = lowered(&gemm("64x64x64", "copy_with B_s cp_async; pipeline k0 stages=2"));
    assert_eq!(syncs(&k).iter().filter(|s| s.starts_with("block")).count(), 2, "{:?}", syncs(&k));
}

/// One wait and one barrier an iteration: the tile of the iteration has landed, those after it are under way, and the
/// slot that is refilled is the one that everybody left before the barrier.
#[test]
fn a_ring_of_copies_has_one_wait_and_one_barrier_an_iteration() {
    for stages in 2..=6 {
        let size = format!("64x64x{}", 8 * stages * 2);
        let k = lowered(&gemm(&size, &format!("copy_with A_s B_s cp_async; pipeline k0 stages={stages}")));
        let all = syncs(&k);
        let kinds: Vec<&str> = all.iter().map(|s| s.split(": ").next().unwrap()).collect();
        let (wait, ahead) = (format!("wait {}", stages - 2), stages - 1);
        let round = [wait.as_str(), "block", "commit"].repeat(stages);
        assert_eq!(kinds, [vec!["commit"; ahead], round].concat(), "{stages}");
        assert!(all[ahead].contains("RAW") && all[ahead + 1].contains("WAR"), "{all:?}");
    }
}

/// Copies that start one after the other between the steps of an iteration are one group.
#[test]
fn copies_spread_over_an_iteration_keep_one_wait_and_one_barrier() {
    let k = lowered(&gemm("64x64x96", &format!("{REGISTERS}pipeline k0 stages=3")));
    let all = syncs(&k);
    let kinds: Vec<&str> = all.iter().map(|s| s.split(": ").next().unwrap()).collect();
    // Two tiles ahead and the first registers; three iterations in a loop; one that copies the last tile, one that waits
    // for it.
    let body = ["commit", "wait 1", "block"];
    let loops = body.repeat(3);
    assert_eq!(kinds[..4], ["commit", "commit", "wait 1", "block"], "{all:?}");
    assert_eq!(kinds[4..13], loops, "{all:?}");
    assert_eq!(kinds[13..], [&body[..], &["wait 0", "block"]].concat(), "{all:?}");
}

#[test]
fn rings_of_every_depth_give_the_naive_result() {
    // Many tiles, less than the depth, one, and ragged ones.
    for size in ["64x64x104", "64x64x16", "64x64x8", "61x67x45", "64x64x44"] {
        for stages in 2..=6 {
            for stage in ["A_s B_s", "A_s"] {
                lands_right(&gemm(size, &format!("copy_with {stage} cp_async; pipeline k0 stages={stages}")));
            }
        }
    }
}

/// Rows of 45 elements begin at any multiple of 4 bytes.
#[test]
fn rows_that_are_not_aligned_are_copied_element_by_element() {
    let k = lowered(&gemm("64x64x45", "copy_with A_s B_s cp_async; pipeline k0 stages=3"));
    let widths = started(&k);
    assert!(widths.contains(&1) && widths.contains(&4), "{widths:?}");
    assert!(lanes(&k).contains(&1));
}

/// Rows of a length, filled up with zeros to 64, and their sums by the four threads of a row.
fn filled_up(length: u32) -> String {
    format!(
        "program filled
  input A f32[64, {length}]
  S: S[i 64, k 64] f32 = select(k < {length}, A[i, k], 0)
  C: output C[i 64] f32 = sum(k 64) S[i, k]
target sm_80
set_scope S shared
split C_i ? 32 -> b t
split C_k ? 16 -> k0 k1
reorder b t k0 k1
bind b blockIdx.x
bind t threadIdx.x
compute_at S k0 -> r c
fuse r c -> f
split f ? 32 4 -> f0 f1 f2
vectorize f2
bind f1 threadIdx.x
copy_with S cp_async
pipeline k0 stages=3
"
    )
}

/// Of the copies between the steps of an iteration some lie beyond the edge as a whole.
#[test]
fn copies_beyond_the_edge_are_plain_zeros() {
    let text = "program filled
input A f32[64, 40]
S: S[i 64, k 64] f32 = select(k < 40, A[i, k], 0)
C: output C[i 64] f32 = sum(k 64) S[i, k]
target sm_80
set_scope S shared
split C_i ? 32 -> b t
split C_k ? 32 -> k0 k1
reorder b t k0 k1
bind b blockIdx.x
bind t threadIdx.x
compute_at S k0 -> r c
split c ? 8 -> c0 c1
reorder c0 r c1
fuse r c1 -> f
fuse c0 f -> g
split g ? 32 4 -> f0 f1 f2
vectorize f2
bind f1 threadIdx.x
copy_with S cp_async
cache_read C S local -> S_r
compute_at S_r k1
pipeline k1 stages=2
annotate k0 spread 1
pipeline k0 stages=2
";
    lands_right(text);
    let kernel = lowered(text);
    let (mut zeros, shared) = (0, kernel.func.buffers.iter().position(|b| b.scope == Scope::Shared));
    warploom::ir::visit::walk(&kernel.func.body, &mut |s| {
        if let warploom::ir::Stmt::Store(s) = s {
            zeros += usize::from(!s.asynchronous && Some(s.buffer.0 as usize) == shared);
        }
    });
    // Of the second tile only the first vector of a row's four is there: two copies of eight, and those of the first tile.
    assert_eq!((zeros, started(&kernel)), (6, vec![4; 3]));
}

#[test]
fn a_select_with_zero_is_the_zero_filled_form() {
    for (length, width) in [(60, 4), (61, 1)] {
        let text = filled_up(length);
        let k = lowered(&text);
        assert!(started(&k).iter().all(|n| *n == width), "{:?}", started(&k));
        let schedule = Schedule::parse(&text).unwrap();
        for target in [Target::sm_80(), Target::sm_90a()] {
            let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
            assemble(&tools(), &lowered, &target, true).unwrap_or_else(|e| panic!("{length} for {target}: {e}"));
            let ptx = warploom::codegen::compile(&lowered, &target).unwrap().text;
            assert!(ptx.contains(&format!("], {}, %r", width * 4)), "the size of the source is a register: {ptx}");
        }
    }
}

/// What instructions of a whole warp read from shared memory is copied there as anything else.
#[test]
fn tensor_cores_read_what_was_copied() {
    let text = include_str!("../../examples/mma_f16.loom");
    let text =
        |size| format!("{text}copy_with A_s B_s cp_async; pipeline k0 stages=3\n").replace("1024x1024x1024", size);
    lands_right(&text("128x128x160"));
    let schedule = Schedule::parse(&text("1024x1024x1024")).unwrap();
    let func = schedule.scheduled().unwrap();
    for target in [Target::sm_80(), Target::sm_89(), Target::sm_90a()] {
        assemble(&tools(), &lower(&func, &target).unwrap(), &target, true).unwrap_or_else(|e| panic!("{target}: {e}"));
    }
}

/// The example at another size, its summed dimension filled up with zeros.
fn padded(size: &str) -> String {
    let text = include_str!("../../examples/gemm_cp_async.loom");
    text.replace("4096x4096x4096", size)
        .replace("cache_write C C", "pad C k=8\ncache_write C C")
        .replace("C A shared", "C A_pad shared")
        .replace("C B shared", "C B_pad shared")
        .replace("copy_with A_s", "compute_inline A_pad; compute_inline B_pad\ncopy_with A_s")
        .replace("stages=3", "stages=4")
}

/// Rows that are aligned to 4 bytes alone: A goes element by element, B sixteen bytes at a time, the compute asks nothing.
#[test]
fn large_products_of_any_depth_stay_in_registers() {
    let k = lowered(&padded("128x128x43"));
    let (narrow, wide): (Vec<u32>, Vec<u32>) = started(&k).into_iter().partition(|n| *n == 1);
    assert!(!narrow.is_empty() && wide.iter().all(|n| *n == 4), "{narrow:?} {wide:?}");
    let schedule = Schedule::parse(&padded("4096x4096x4099")).unwrap();
    let func = schedule.scheduled().unwrap();
    for target in [Target::sm_80(), Target::sm_86(), Target::sm_89(), Target::sm_90(), Target::sm_90a()] {
        assemble(&tools(), &lower(&func, &target).unwrap(), &target, true).unwrap_or_else(|e| panic!("{target}: {e}"));
    }
}

#[test]
fn chips_without_copies_refuse_the_step_and_replace_nothing() {
    let text = gemm("64x64x64", "copy_with A_s B_s cp_async");
    for chip in ["sm_70", "sm_75"] {
        let e = error(&text.replace("sm_80", chip));
        assert_eq!((e.fault(), e.code()), (Fault::Chip, Code::AdmitCopy));
        let message =
            format!("copy_with A_s B_s cp_async: {chip} has no asynchronous copies; sm_80 is the first chip with them");
        assert_eq!(e.message(), message);
        assert_eq!(e.helps(), ["copy_with A_s B_s sync copies through registers, in a pipeline too"]);
    }
}

#[test]
fn what_cannot_be_copied_asynchronously_is_refused() {
    let narrow = gemm("64x64x64", "copy_with A_s cp_async").replace("f32 NN", "f16 NN").replace("vectorize a4\n", "");
    let e = error(&narrow);
    assert_eq!((e.fault(), e.code()), (Fault::Input, Code::LowerCopySize));
    assert_eq!(
        e.message(),
        "copy_with A_s cp_async: a thread copies one element of A, 16 bits, and not 4, 8 or 16 bytes"
    );
    let within = "program two
  input A f32[256]
  T: T[i 256] f32 = A[i] * 2
  B: output B[i 256] f32 = T[i // 128 * 128 + (127 - i % 128)]
target sm_80
split B_i ? 128 -> x t
bind x blockIdx.x
cache_read B T shared -> S
compute_at S x -> s
compute_at T x -> tt
bind t threadIdx.x; bind s threadIdx.x; bind tt threadIdx.x
copy_with S cp_async
";
    assert_eq!(refused(within), "lower.copy_source");
    let early = gemm("64x64x64", "copy_with A_s B_s cp_async; pipeline k0 stages=3 in_flight=1");
    assert_eq!(refused(&early), "lower.pipeline");
}

/// A tile of T is computed in shared memory from what the ring copied: it has one place, between barriers, while copies run ahead.
const COMPUTED: &str = "program doubled
  input A f32[32, 64]
  input B f32[64, 32]
  T: T[i 32, q 64] f32 = A[i, q] * 2
  C: output C[i 32, j 32] f32 = sum(k 64) T[i, k] * B[k, j]
target sm_80
split C_i ? 16 -> i0 i1; split k ? 16 -> k0 k1; reorder i0 k0 i1 j k1
bind i0 blockIdx.x; bind j threadIdx.x
cache_read T A shared -> A_s; cache_read C B shared -> B_s; set_scope T shared
compute_at B_s k0 -> b0 b1; compute_at T k0 -> t0 t1
compute_at A_s k0 -> a0 a1
bind b1 threadIdx.x
split a1 ? 16 -> ax ay; fuse a0 ax -> a; split a 8 2 -> ao at; fuse at ay -> av; bind av threadIdx.x
split t1 ? 16 -> tx ty; fuse t0 tx -> t; split t 8 2 -> to tt; fuse tt ty -> tv; bind tv threadIdx.x
pipeline k0 stages=3
";

#[test]
fn a_ring_goes_around_what_is_computed_in_shared_memory() {
    lands_right(COMPUTED);
    lands_right(&format!("{COMPUTED}copy_with A_s B_s cp_async\n"));
    let k = lowered(COMPUTED);
    let elements = |name: &str| k.func.buffer(k.func.find_buffer(name).unwrap()).elements();
    assert_eq!(["T", "A_s", "B_s"].map(elements), [Some(256), Some(768), Some(1536)]);
    // A copy behind what is computed would not run ahead.
    let late = COMPUTED.replace(
        "compute_at B_s k0 -> b0 b1; compute_at T k0 -> t0 t1",
        "compute_at T k0 -> t0 t1; compute_at B_s k0 -> b0 b1",
    );
    assert_eq!(refused(&late), "lower.pipeline");
}

#[test]
fn every_chip_with_copies_assembles_them() {
    let tools = tools();
    for (size, bytes) in [("64x64x64", 16), ("64x64x45", 4)] {
        for more in ["", "; pipeline k0 stages=3", "; pipeline k0 stages=6"] {
            let text = gemm(size, &format!("copy_with A_s B_s cp_async{more}"));
            let schedule = Schedule::parse(&text).unwrap();
            let func = schedule.scheduled().unwrap();
            for target in [Target::sm_80(), Target::sm_86(), Target::sm_89(), Target::sm_90(), Target::sm_90a()] {
                let lowered = lower(&func, &target).unwrap();
                assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{size}{more} for {target}: {e}"));
                let ptx = warploom::codegen::compile(&lowered, &target).unwrap().text;
                let cache = if bytes == 16 { "cg" } else { "ca" };
                assert!(ptx.contains(&format!("cp.async.{cache}.shared.global [")), "{ptx}");
                assert!(ptx.contains(&format!("], {bytes};")), "{ptx}");
            }
        }
    }
}
