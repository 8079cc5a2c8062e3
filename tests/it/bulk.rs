//! Bulk tensor copies from end to end: what `copy_with STAGE tma` becomes, alone and in rings, what orders it and why, what is
//! refused, that it runs on the simulator in every order, and that every version of ptxas assembles it.

use crate::lower::{lowered, syncs};
use crate::ptxas::{assemble, tools};
use crate::tensor::arguments;
use warploom::ir::{Stmt, visit};
use warploom::loom::Schedule;
use warploom::lower::{LoweredKernel, lower};
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers, run_lowered_with, run_ptx};
use warploom::{Fault, Target};

fn example(name: &str) -> String {
    crate::cases::examples().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name}")).1
}

/// An example at another size.
fn at(name: &str, rows: i64, columns: i64) -> String {
    example(name).replace("1000", &rows.to_string()).replace("1096", &columns.to_string())
}

/// A ring that comes again in each iteration of a loop around, with a number of tiles that its slots do not divide.
pub const AGAIN: &str = "program again
  input A f32[2, 96, 128]
  B: output B[b 2, i 96, j 128] f32 = A[b, i, j] * 2.0
target sm_90
split i ? 32 -> i0 i1; split j ? 32 -> j0 j1
reorder i0 b j0 i1 j1
bind i0 blockIdx.x
cache_read B A shared -> A_s; compute_at A_s j0
swizzle A_s 128
copy_with A_s tma
fuse i1 j1 -> t; split t 16 64 -> u v; bind v threadIdx.x
pipeline j0 stages=3
";

/// Warps that store strips of their own, tile after tile in two slots each.
const STRIPS: &str = "gemm 64x64x16 f16>f32>f16 NT
target sm_90
set_scope acc fragment
cache_write out C shared -> C_s
cache_write out C_s fragment -> C_f
split i ? 2 16 -> i0 iw ii; split j ? 2 8 -> jt jm ji
reorder i0 iw jt jm ii ji k
bind i0 blockIdx.x; bind iw warp
reverse_compute_at out jt -> o0 o1; split o1 ? 8 -> on oj; reorder on o0 oj
reverse_compute_at C_f jt -> d0 d1; tensorize d0 stmatrix.m16n16.f16
reverse_compute_at C_s jt -> s0 s1
copy_with C_s tma
pipeline jt stages=2
cache_read mma A fragment -> A_f; compute_at A_f iw
cache_read mma B fragment -> B_f; compute_at B_f jm
decompose_reduction mma jm -> zero
tensorize ii mma.m16n8k16.f32.f16.f16
";

/// Programs that copy in every form, for other tests.
pub fn programs() -> Vec<(&'static str, String)> {
    vec![
        ("boxes turned", at("transpose_tma", 72, 132)),
        ("boxes of 16-bit floats turned", at("transpose_tma_f16", 72, 80)),
        ("a ring of boxes", at("scale_tma", 40, 200)),
        ("a ring of boxes again and again", AGAIN.to_string()),
        ("strips that warps store by themselves", STRIPS.to_string()),
        ("a ring of boxes again and again, beside the kernel in front", crate::dependent_launch::early()),
    ]
}

/// Whenever copies land, and whichever warp comes first, a program gives the bits of the naive one.
#[test]
fn boxes_land_right_in_every_order() {
    for (name, text) in programs() {
        let schedule = Schedule::parse(&text).unwrap();
        let scheduled = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
        let lowered = lower(&scheduled, &schedule.target).unwrap_or_else(|e| panic!("{name}: {e}"));
        let naive = naive_integers(&schedule.program, 5).unwrap();
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(1), Policy::Random(2)] {
            let options = Options::new(Mode::Integer).with_policy(policy);
            let found = integers_with(&lowered, &options, 5).unwrap_or_else(|e| panic!("{name}, {policy:?}: {e}"));
            assert!(found == naive, "{name}, {policy:?}");
        }
    }
}

fn kernel(name: &str) -> LoweredKernel {
    lowered(&at(name, 128, 256))
}

#[test]
fn a_box_is_expected_waited_for_fenced_and_stored() {
    let words: Vec<String> = syncs(&kernel("transpose_tma")).into_iter().collect();
    let kinds: Vec<&str> = words.iter().map(|s| s.split([':', ' ']).next().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "prefetch_map",
            "prefetch_map",
            "mbarrier.init",
            "block",
            "mbarrier.expect_tx",
            "mbarrier.wait",
            "proxy_fence",
            "block",
            "bulk_commit",
            "bulk_wait_read"
        ],
        "{words:#?}"
    );
    let maps = kernel("transpose_tma").maps;
    assert_eq!((maps[0].tile.as_slice(), maps[0].swizzle), (&[64, 32][..], 128));
    assert_eq!((maps[1].tile.as_slice(), maps[1].swizzle), (&[64, 64][..], 0));
}

#[test]
fn slots_of_a_ring_have_an_mbarrier_each() {
    let k = kernel("scale_tma");
    assert_eq!((k.func.mbarriers.len(), k.func.mbarriers[0].slots, k.func.mbarriers[0].arrivals), (1, 3, 1));
    let offset = k.func.mbarriers[0].offset.unwrap();
    assert!(offset.is_multiple_of(8) && k.shared_bytes == offset + 24);
    let text = warploom::lower::print_kernel(&k);
    assert!(text.contains("mbarrier.wait A_s_full[j0 % 3], phase j0 // 3"), "{text}");
}

/// A warp that stores what it staged itself waits for no other warp, be there warpgroups or not.
#[test]
fn warps_store_their_own_strips_by_themselves() {
    let words: Vec<String> = syncs(&lowered(STRIPS)).into_iter().collect();
    let kinds: Vec<&str> = words.iter().map(|s| s.split([':', ' ']).next().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|k| **k == "bulk_wait_read").count(), 3, "the third and the fourth, and the end");
    assert!(kinds.contains(&"warp") && !kinds.contains(&"block"), "{words:#?}");
    // Two warpgroups at once, and in turns, which come back to their strips.
    let turns = [
        ("256x256x256", "128x32x192"),
        ("split j ? 128", "split j ? 16"),
        ("split en ? 64", "split en ? 16"),
        ("m64n128k16", "m64n16k16"),
        ("swizzle A_s B_s C_s 128", "swizzle A_s B_s 128; swizzle C_s 32"),
        ("; reverse_compute_at C_s ep -> s0 s1", ""),
        ("bind fw warp", "bind fw warp; reverse_compute_at C_s fw -> s0 s1"),
    ];
    let text = turns.iter().fold(example("wgmma_f16_pingpong"), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    for text in [text.replace(" pingpong", "").replace(" persistent", ""), text] {
        let kernel = lowered(&text);
        let words = syncs(&kernel);
        let near = |s: &&String| ["warp:", "proxy_fence:", "bulk_"].iter().any(|kind| s.starts_with(kind));
        let of_stage: Vec<&String> = words.iter().filter(|s| s.contains("C_s")).collect();
        assert!(of_stage.len() >= 4 && of_stage.iter().all(near), "{words:#?}");
        let again = of_stage.iter().any(|s| s.contains("WAR C_s"));
        assert_eq!(again, text.contains("pingpong"), "{words:#?}");
    }
}

fn refused(text: &str) -> (Fault, String, String) {
    let schedule = Schedule::parse(text).unwrap();
    let error = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err();
    (error.fault(), error.code().to_string(), error.message().to_string())
}

#[test]
fn what_the_copy_engine_cannot_do_is_refused() {
    let text = at("transpose_tma", 128, 256);
    let (fault, code, message) = refused(&text.replace("sm_90", "sm_80"));
    assert_eq!((fault, code.as_str()), (Fault::Chip, "admit.copy"));
    assert_eq!(message, "copy_with A_s B_s tma: sm_80 has no bulk tensor copies; sm_90 is the first chip with them");
    // Rows with gaps are no box.
    let (fault, code, message) = refused(&text.replace("swizzle A_s 128", "storage_align A_s 0 32 4"));
    assert_eq!((fault, code.as_str()), (Fault::Input, "lower.bulk_rows"), "{message}");
    assert!(message.contains("of A_s are 68 elements apart"), "{message}");
}

/// Rows of an array from a column on, through shared memory.
fn from_column(column: i64) -> String {
    format!(
        "program every
  input A f32[32, 40]
  X: X[i 32, j 32] f32 = A[i, j + {column}]
  Y: output Y[i 32, j 32] f32 = X[i, j] * 2.0
target sm_90
set_scope X shared
bind Y_j threadIdx.x
split Y_i ? 4 -> a b; bind a blockIdx.x
compute_at X a; copy_with X tma
"
    )
}

/// Moves each box by an element along its rows.
fn move_boxes(body: &mut [Stmt]) {
    for stmt in body {
        if let Stmt::Bulk(copy) = stmt {
            let last = copy.coordinates.len() - 1;
            copy.coordinates[last] = copy.coordinates[last].clone() + 1;
        }
        visit::children_mut(stmt).into_iter().for_each(|child| move_boxes(child));
    }
}

/// An H200 answers a box that begins between units of 16 bytes of a row with an illegal instruction. Lowering refuses it, and both simulators stop.
#[test]
fn boxes_begin_at_multiples_of_16_bytes_of_a_row() {
    let (_, code, message) = refused(&from_column(2));
    assert_eq!(code, "lower.bulk_align");
    assert!(message.contains("at a multiple of 8 bytes in a row of A"), "{message}");
    let schedule = Schedule::parse(&from_column(4)).unwrap();
    let mut lowered = lower(&schedule.scheduled().unwrap(), &Target::sm_90()).unwrap();
    let mut kernels = warploom::compile(&schedule).unwrap();
    let args = || arguments(&schedule);
    let options = Options::new(Mode::Real);
    run_lowered_with(&lowered, &options, &mut args()).unwrap();
    run_ptx(&kernels, &options, &mut args()).unwrap();
    move_boxes(&mut lowered.kernels[0].func.body);
    let error = run_lowered_with(&lowered, &options, &mut args()).unwrap_err();
    assert_eq!(error.code().to_string(), "sim.alignment");
    kernels.text = kernels.text.replace("mov.b32 \t%r8, 4;", "mov.b32 \t%r8, 5;");
    let error = run_ptx(&kernels, &options, &mut args()).unwrap_err();
    assert_eq!(error.code().to_string(), "ptx.misaligned");
    assert!(error.message().contains("begins 20 bytes from the beginning of a row"), "{error}");
}

#[test]
fn every_assembler_takes_boxes() {
    let tools = tools();
    for (name, text) in programs() {
        let schedule = Schedule::parse(&text).unwrap();
        for target in [Target::sm_90(), Target::sm_90a()] {
            let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
            let kernels = warploom::codegen::compile(&lowered, &target).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(kernels.ptx().contains("cp.async.bulk.tensor"), "{name}");
            assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
