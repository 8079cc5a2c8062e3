//! Tensor cores by one step: the schedules of TVM's tutorial on automatic tensor cores, over its whole space of knobs, on the
//! simulator: every one computes what the naive program computes, on tensor cores or with a reason for ordinary code; what was
//! chosen replays for every chip.

use crate::sample::{drawn, everything};
use warploom::gemm::ThreadTiles;
use warploom::lower::{lower, print};
use warploom::sim::{integers, naive_integers};
use warploom::te::{GemmSpec, Layout};
use warploom::{DType, Schedule, Target};

/// The tutorial's types, and how wide the sums are.
const TYPES: [(DType, DType); 3] = [(DType::F16, DType::F32), (DType::S8, DType::S32), (DType::Bf16, DType::F32)];

fn schedule(tiles: ThreadTiles, [m, n, k]: [i64; 3], (dtype, acc): (DType, DType), layout: Layout) -> Schedule {
    let spec = GemmSpec::of(m, n, k, dtype, layout).types(dtype, dtype, acc, acc);
    let text = format!("gemm {m}x{n}x{k} {dtype}>{acc}>{acc} {}\ntarget sm_80\n{}", layout.name(), tiles.steps(&spec));
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// What was chosen for the last step, and why.
fn chosen(schedule: &Schedule) -> (String, String) {
    let resolved = schedule.resolved().unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    let step = resolved.steps.last().unwrap();
    let row = step.args().find_word("row").unwrap_or_else(|| panic!("nothing is chosen in {step}"));
    (row.to_string(), step.remark().unwrap_or_default().to_string())
}

/// The lowered kernels compute what the naive program does, bit by bit in integer mode.
fn computes(schedule: &Schedule) -> String {
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    let lowered = lower(&func, &schedule.target).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    let text = print(&lowered);
    let found = integers(&lowered, 3).unwrap_or_else(|e| panic!("{schedule}\n{text}\n{e}"));
    assert!(found == naive_integers(&schedule.program, 3).unwrap(), "{schedule}\n{text}");
    text
}

/// A third of the space, as the commit draws it.
#[test]
fn the_tutorials_space_computes_products() {
    let cases: Vec<(DType, DType, Layout)> =
        TYPES.into_iter().flat_map(|(d, a)| Layout::ALL.map(|layout| (d, a, layout))).collect();
    let (mut fast, mut volta, mut reasons) = (0, 0, std::collections::BTreeMap::new());
    for (n, tiles) in ThreadTiles::space().enumerate().filter(|(n, _)| drawn(&format!("tutorial {n}"), 3)) {
        // Every knob meets every type and layout; sizes below, at and above the tiles'.
        let (dtype, acc, layout) = cases[(n + n / cases.len()) % cases.len()];
        let size = [[32, 64, 32], [16, 32, 64], [64, 64, 16], [48, 80, 48], [48, 96, 48]][n / 7 % 5];
        let target = [Target::sm_70(), Target::sm_75(), Target::sm_80(), Target::sm_90()][(n + n / 4) % 4];
        let schedule = schedule(tiles, size, (dtype, acc), layout).for_target(target);
        let (row, reason) = chosen(&schedule);
        let text = computes(&schedule);
        assert_eq!(row != "none", text.contains(&row), "{schedule}\n{text}");
        // The first chip with tensor cores has opaque fragments alone, the others know better.
        assert_eq!(row.starts_with("wmma."), row != "none" && target == Target::sm_70(), "{schedule}");
        if row == "none" {
            *reasons.entry(reason).or_insert(0) += 1;
        } else {
            fast += 1;
            volta += usize::from(row.starts_with("wmma."));
        }
    }
    let listed = [
        "ordinary code: the 16 threads of a block are not whole warps of 32",
        "ordinary code: sm_75 does not have mma of m16n8k16 and on bf16, tf32 and f64, which sm_80 introduced",
        "ordinary code: sm_70 does not have mma of m16n8k16 and on bf16, tf32 and f64, which sm_80 introduced",
        "ordinary code: sm_70 does not have wmma on integers, which sm_72 introduced",
        // Warps of 8 x 32.
        "ordinary code: `vj` of block `C_init` has 80 values, no multiple of the 32 of a warp's tile",
    ];
    assert!(reasons.keys().all(|r| listed.contains(&r.as_str())), "{reasons:#?}");
    assert!(
        !everything() || fast >= 192 && volta >= 20,
        "{fast} of 288 use tensor cores, {volta} by wmma: {reasons:#?}"
    );
}

/// 4-bit integers: warps of 8 x 8, where a chip has their instructions and not the name alone.
#[test]
fn the_tutorials_4_bit_products() {
    let (mut fast, mut reasons) = (0, std::collections::BTreeSet::new());
    for (n, tiles) in ThreadTiles::space().enumerate().filter(|(n, _)| n % 5 == 0) {
        let target = [Target::sm_75(), Target::sm_80(), Target::sm_89(), Target::sm_90()][n / 5 % 4];
        let layout = Layout::ALL[n / 20 % 4];
        let schedule = schedule(tiles, [32, 32, 64], (DType::S4, DType::S32), layout).for_target(target);
        let (row, reason) = chosen(&schedule);
        let text = computes(&schedule);
        assert_eq!(row != "none", text.contains("mma."), "{schedule}\n{text}");
        fast += usize::from(row == "mma.m8n8k32.s32.s4.s4");
        if row == "none" {
            reasons.insert(reason);
        }
    }
    let listed = [
        "ordinary code: the 16 threads of a block are not whole warps of 32",
        "ordinary code: a warp owns 16 x 4 x 32, which no instruction on s4 and s4 divides: they are",
        "ordinary code: sm_90 has mma.m8n8k32.s32.s4.s4 in name only, as a sequence of other instructions",
        "ordinary code: sm_90 has mma.m8n8k32.s32.s4.s4 and wmma.mma.row.col.m8n8k32.s32.s4.s4 in name only",
    ];
    assert!(reasons.iter().all(|r| listed.iter().any(|l| r.starts_with(l))), "{reasons:#?}");
    assert!(fast >= 20, "{fast} of 58 use tensor cores: {reasons:#?}");
}

/// Single bits: warps of 8 x 8, from sm_80 on, and in every layout; only rows along k have loads.
#[test]
fn the_tutorials_1_bit_products() {
    let (mut fast, mut reasons) = (0, std::collections::BTreeSet::new());
    for (n, tiles) in ThreadTiles::space().enumerate().filter(|(n, _)| n % 11 == 0) {
        let target = [Target::sm_75(), Target::sm_80(), Target::sm_90()][n / 11 % 3];
        let layout = Layout::ALL[n / 33 % 4];
        // Rows of four columns are no whole bytes.
        if tiles.bx == 2 && !layout.b_transposed() {
            continue;
        }
        let schedule = schedule(tiles, [32, 32, 256], (DType::B1, DType::S32), layout).for_target(target);
        let (row, reason) = chosen(&schedule);
        let text = computes(&schedule);
        assert_eq!(row != "none", text.contains("mma."), "{schedule}\n{text}");
        assert!(row == "none" || row == "mma.m8n8k128.s32.b1.b1", "{row}");
        fast += usize::from(row != "none");
        if row == "none" {
            reasons.insert(reason);
        }
    }
    let listed = [
        "ordinary code: the 16 threads of a block are not whole warps of 32",
        "ordinary code: a warp owns 16 x 4 x 128, which no instruction on b1 and b1 divides: they are",
        "ordinary code: sm_75 does not have mma with and on single bits, which sm_80 introduced",
    ];
    assert!(reasons.iter().all(|r| listed.iter().any(|l| r.starts_with(l))), "{reasons:#?}");
    assert!(fast >= 8, "{fast} use tensor cores: {reasons:#?}");
}

/// The page's sizes, on the page's machine's successors: which instruction each type gets.
#[test]
fn types_and_chips_get_their_instructions() {
    let best = |types, target| {
        let schedule = schedule(ThreadTiles::BEST, [32, 512, 512], types, Layout::NN).for_target(target);
        chosen(&schedule).0
    };
    let [half, bytes, brain] = TYPES;
    assert_eq!(best(half, Target::sm_70()), "wmma.mma.row.row.m16n16k16.f32.f16.f16");
    assert_eq!(best(half, Target::sm_75()), "mma.m16n8k8.f32.f16.f16");
    assert_eq!(best(half, Target::sm_80()), "mma.m16n8k16.f32.f16.f16");
    assert_eq!(best(bytes, Target::sm_75()), "mma.m8n8k16.s32.s8.s8");
    assert_eq!(best(bytes, Target::sm_90a()), "mma.m16n8k16.s32.s8.s8");
    assert_eq!(best(brain, Target::sm_86()), "mma.m16n8k16.f32.bf16.bf16");
}

/// The steps with one thread for all columns of a warp.
fn as_tall_warps(text: &str) -> String {
    ["j", "ac", "bc"]
        .into_iter()
        .fold(text.to_string(), |text, l| text.replace(&format!("split {l} ? 1 2 "), &format!("split {l} ? 2 1 ")))
}

/// A warp of 8 x 32, as the tutorial's by=8 gives it, of 16 x 16, and of 32 x 8.
#[test]
fn warps_own_matrices_of_three_shapes() {
    let owns = |bx, by| {
        let tiles = ThreadTiles { bx, by, step_k: 2, v: 8 };
        let schedule = schedule(tiles, [32, 64, 64], TYPES[0], Layout::NT);
        computes(&schedule);
        chosen(&schedule).1
    };
    assert_eq!(owns(4, 8), "a warp owns 8 x 32 x 16");
    assert_eq!(owns(8, 8), "a warp owns 8 x 32 x 16");
    assert_eq!(owns(2, 16), "a warp owns 16 x 16 x 16");
    let schedule = schedule(ThreadTiles { bx: 2, by: 32, step_k: 2, v: 8 }, [64, 64, 64], TYPES[0], Layout::NT);
    let tall = Schedule::parse(&as_tall_warps(&schedule.to_string())).unwrap();
    computes(&tall);
    assert_eq!(chosen(&tall).1, "a warp owns 32 x 8 x 16");
}

/// The same with opaque fragments alone: each shape has an instruction, whose loads take both majors.
#[test]
fn the_first_tensor_cores_have_all_three_shapes() {
    let chosen = |bx, by, size, layout, tall| {
        let asked =
            schedule(ThreadTiles { bx, by, step_k: 2, v: 4 }, size, TYPES[0], layout).for_target(Target::sm_70());
        let text = if tall { as_tall_warps(&asked.to_string()) } else { asked.to_string() };
        let asked = Schedule::parse(&text).unwrap();
        let (row, text) = (chosen(&asked).0, computes(&asked));
        assert_eq!(row != "none", text.contains("wmma.store.d.row"), "{text}");
        row
    };
    let rows = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")];
    for (layout, (a, b)) in [Layout::NN, Layout::NT, Layout::TN, Layout::TT].into_iter().zip(rows) {
        let row = |shape: &str| format!("wmma.mma.{a}.{b}.{shape}.f32.f16.f16");
        assert_eq!(chosen(4, 8, [32, 64, 64], layout, false), row("m8n32k16"));
        assert_eq!(chosen(2, 16, [32, 64, 64], layout, false), row("m16n16k16"));
        // Eight columns of f16 in a row: where memory has them side by side, every other tile begins between 32 bytes.
        let tall = if b == "row" { "none".to_string() } else { row("m32n8k16") };
        assert_eq!(chosen(2, 32, [64, 64, 64], layout, true), tall);
    }
}

/// What no chip here prefers: bytes and 4-bit integers by opaque fragments.
#[test]
fn integers_go_through_opaque_fragments_too() {
    let computes = |types, size, layout, target, row: &str| {
        let asked = schedule(ThreadTiles { bx: 4, by: 16, step_k: 2, v: 16 }, size, types, layout).for_target(target);
        let text = asked.to_string().replace("tensor_core ko", &format!("tensor_core ko = {row}"));
        let text = computes(&Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}")));
        assert!(text.contains(row), "{text}");
    };
    for (layout, a, b) in [(Layout::NN, "row", "row"), (Layout::NT, "row", "col"), (Layout::TT, "col", "col")] {
        let row = format!("wmma.mma.{a}.{b}.m16n16k16.s32.s8.s8");
        computes(TYPES[1], [32, 64, 64], layout, Target::sm_75(), &row);
    }
    let row = "wmma.mma.row.col.m8n8k32.s32.s4.s4";
    computes((DType::S4, DType::S32), [32, 32, 128], Layout::NT, Target::sm_75(), row);
}

/// Where memory does not lie as the instructions take it, code stays ordinary, and the remark says what is in the way.
#[test]
fn what_opaque_fragments_cannot_be_loaded_from_or_stored_to() {
    let tiles = ThreadTiles { bx: 4, by: 32, step_k: 2, v: 8 };
    let reason = |size, change: &dyn Fn(String) -> String| {
        let asked = schedule(tiles, size, TYPES[0], Layout::NN).for_target(Target::sm_70());
        let asked = Schedule::parse(&change(asked.to_string())).unwrap();
        computes(&asked);
        chosen(&asked)
    };
    let (row, why) = reason([32, 64, 64], &|t| t.replace("storage_align AA 0 16 8", "storage_align AA 0 16 4"));
    let rows = "rows of AA are 36 elements apart, not a multiple of 16 bytes (8 elements)";
    assert!(row == "none" && why.ends_with(rows) && why.contains("finds no load for `AL`"), "{row} {why}");
    let (row, why) = reason([32, 64, 64], &|t| t.replace("bind xo", "swizzle BB 64; bind xo"));
    assert!(row == "none" && why.ends_with("rows of BB, which is swizzled, are not a stride apart"), "{row} {why}");
    // Sums that are converted on their way out.
    let asked = format!(
        "gemm 32x64x64 f16>f32>f16 NN\ntarget sm_70\n{}",
        tiles.steps(&GemmSpec::of(32, 64, 64, DType::F16, Layout::NN).types(
            DType::F16,
            DType::F16,
            DType::F32,
            DType::F16
        ))
    );
    let asked = Schedule::parse(&asked).unwrap();
    computes(&asked);
    let (row, why) = chosen(&asked);
    assert!(row == "none" && why.contains("finds no store for the accumulator in block `out`"), "{row} {why}");
}

/// What was chosen is text: it parses back, and replays to the same program for every chip.
#[test]
fn choices_replay_anywhere() {
    let volta = "wmma.mma.col.row.m16n16k16.f32.f16.f16";
    for (size, row, early) in [([32, 64, 64], "mma.m16n8k16.f32.f16.f16", volta), ([30, 64, 64], "none", "none")] {
        let asked = schedule(ThreadTiles { step_k: 2, ..ThreadTiles::BEST }, size, TYPES[0], Layout::TN);
        assert_eq!(Schedule::parse(&asked.to_string()).unwrap(), asked);
        let resolved = asked.resolved().unwrap();
        let text = resolved.to_string();
        assert!(text.contains(&format!("\ntensor_core ko = {row}  # ")), "{text}");
        let again = Schedule::parse(&text).unwrap();
        assert_eq!(again, resolved);
        for target in Target::ALL {
            let there = again.clone().for_target(target);
            assert_eq!(there.scheduled().unwrap(), asked.scheduled().unwrap(), "{target}");
            assert_eq!(there.completed().unwrap().scheduled().unwrap(), asked.scheduled().unwrap(), "{target}");
        }
        // Another size, or another chip: asked again.
        assert_eq!(chosen(&asked.clone().for_target(Target::sm_70())).0, early);
    }
}
