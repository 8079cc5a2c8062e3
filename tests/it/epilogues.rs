//! How the results of tensor cores leave: straight from fragments or through shared memory, with further blocks on the way,
//! at sizes that tiles divide and at others.

use super::tensor::{right, right_and_clean};
use warploom::gemm::Kind;
use warploom::lower::{Lowered, lower, print};
use warploom::te::Layout;
use warploom::{DType, Gemm, Schedule, Target};

/// How sums leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// From the lanes to device memory.
    Direct,
    /// From the lanes to shared memory, from there by all threads in vectors.
    Staged,
    /// By stmatrix to shared memory, from there by all threads in vectors.
    Stmatrix,
}

/// Blocks behind the product, and what else each reads.
type Blocks = [(&'static str, &'static str, Option<&'static str>)];

const NONE: &Blocks = &[];
const ALL: &Blocks = &[
    ("bias", "add_bias", Some("bias")),
    ("relu", "relu", None),
    ("residual", "add_residual", Some("residual")),
    ("scale 0.5", "scale", None),
];

/// A product in tiles of 32 x 32 x 32 by two warps of 16 x 32; where it is `ragged`, its domains are padded, and only the last
/// copy (from lanes to device memory: each store) is cut off.
pub fn product(size: &str, blocks: &Blocks, way: Way, ragged: bool) -> String {
    let words: Vec<&str> = blocks.iter().map(|b| b.0).collect();
    let inlined: String = blocks.iter().map(|b| format!("compute_inline {}; ", b.1)).collect();
    let whole = way != Way::Direct && ragged;
    let (mut padded, [a, b, acc]) = (String::new(), if ragged { ["A_p", "B_p", "acc_p"] } else { ["A", "B", "acc"] });
    if ragged {
        padded += "pad mma i=32 j=32 k=32 -> A_p B_p acc_p; compute_inline acc_p\n";
    }
    if whole {
        let others: Vec<String> = blocks.iter().filter_map(|b| b.2).map(|b| format!("{b}_p")).collect();
        let inline: String = others.iter().map(|o| format!("; compute_inline {o}")).collect();
        let names = others.join(" ");
        padded += &format!("pad out out_i=32 out_j=32 -> acc_q {names} C_p; compute_inline acc_q{inline}\n");
    }
    let load = |x: &str, from: &str| {
        format!(
            "cache_read mma {from} shared -> {x}_s; {inline}compute_at {x}_s ko -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}e\n\
             split {x}e ? 64 8 -> {x}q {x}t {x}v; bind {x}t threadIdx.x; vectorize {x}v; storage_align {x}_s 0 32 8\n\
             cache_read mma {x}_s fragment -> {x}_f; compute_at {x}_f kk -> {x}f0 {x}f1; split {x}f0 ? 16 -> {x}fq {x}fr\n\
             tensorize {x}fr ldmatrix.m16n16.f16\n",
            inline = if ragged { format!("compute_inline {from}; ") } else { String::new() },
        )
    };
    format!(
        "gemm {size} f16>f32>f16 NT {words}\ntarget {target}\n{inlined}{padded}set_scope {acc} fragment\n\
         split i ? 2 16 -> io iw ii; split j ? 4 8 -> jo jm ji; split k ? 2 16 -> ko kk ki\n\
         reorder io jo iw ko kk jm ii ji ki; bind io blockIdx.y; bind jo blockIdx.x; bind iw warp\n\
         {leave}{of_a}{of_b}decompose_reduction mma ko -> zero; tensorize ii mma.m16n8k16.f32.f16.f16",
        words = words.join(" "),
        target = if way == Way::Stmatrix { "sm_90" } else { "sm_80" },
        leave = leave(way, whole),
        of_a = load("A", a),
        of_b = load("B", b),
    )
}

/// The steps of the result; `whole` where it leaves in whole tiles, of which the last copy takes what there is.
fn leave(way: Way, whole: bool) -> String {
    let c = if whole { "C_p" } else { "C" };
    let cut = if whole { "reverse_compute_inline C_p; " } else { "" };
    let rows = format!(
        "reverse_compute_at C_s jo -> s0 s1; {cut}fuse s0 s1 -> s; split s ? 64 8 -> sq st sv\n\
         bind st threadIdx.x; vectorize sv; storage_align C_s 0 32 8\n"
    );
    let tiles =
        |width: i64| format!("reverse_compute_at out iw -> o0 o1; split o1 ? {width} -> on oj; reorder on o0 oj\n");
    match way {
        Way::Direct => tiles(8),
        Way::Staged => format!("cache_write out {c} shared -> C_s\n{}{rows}", tiles(8)),
        Way::Stmatrix => format!(
            "cache_write out {c} shared -> C_s; cache_write out C_s fragment -> C_f\n{}\
             reverse_compute_at C_f iw -> f0 f1; split f1 ? 16 -> fn fi; reorder fn f0 fi\n\
             tensorize f0 stmatrix.m16n16.f16\n{rows}",
            tiles(16)
        ),
    }
}

fn lowered(text: &str) -> (Schedule, Lowered) {
    let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{text}\n{e}"));
    let kernels = lower(&func, &schedule.target).unwrap_or_else(|e| panic!("{text}\n{e}"));
    (schedule, kernels)
}

const WAYS: [Way; 3] = [Way::Direct, Way::Staged, Way::Stmatrix];

#[test]
fn sums_leave_every_way_with_every_block_behind_them() {
    for way in WAYS {
        for blocks in [NONE, ALL, &ALL[..2]] {
            right_and_clean(&product("64x64x64", blocks, way, false));
        }
    }
}

/// Rows that vectors divide, pairs divide, and nothing divides; k that ends inside a vector.
#[test]
fn sizes_that_tiles_do_not_divide_come_in_filled_up_and_leave_cut_off() {
    for way in WAYS {
        for (size, blocks) in [
            ("50x40x40", if way == Way::Direct { NONE } else { ALL }),
            ("33x46x48", NONE),
            ("63x31x45", ALL),
            ("32x64x33", NONE),
        ] {
            right_and_clean(&product(size, blocks, way, true));
        }
    }
}

#[test]
fn copies_that_land_later_fill_tiles_up_too() {
    for way in [Way::Staged, Way::Stmatrix] {
        let later = "copy_with A_s B_s cp_async; pipeline ko stages=3";
        right_and_clean(&format!("{}\n{later}", product("50x40x72", ALL, way, true)));
    }
}

/// Where rows are whole vectors they stay whole, and what is stored to shared memory is not cut off at all.
#[test]
fn whole_tiles_go_through_shared_memory_without_a_condition() {
    let text = print(&right_and_clean(&product("50x40x40", NONE, Way::Stmatrix, true)));
    assert!(!text.contains("select(blockIdx.y*32 + threadIdx.x // 32*16"), "{text}");
    let copy = &text[text.find("block C_s").unwrap()..];
    assert!(copy.contains("if blockIdx.y*32") && copy.contains("..+8] = C_s["), "{text}");
}

#[test]
fn the_stage_of_the_result_lies_where_the_factors_lay() {
    let (_, kernels) = lowered(&product("64x64x64", NONE, Way::Staged, false));
    let offset = |name: &str| {
        let func = &kernels.kernels[0].func;
        func.buffer(func.find_buffer(name).unwrap()).offset
    };
    assert!(offset("C_s") == offset("A_s") || offset("C_s") == offset("B_s"));
    let text = print(&kernels);
    assert!(text.contains("# WAR C_s: out writes bytes that"), "{text}");
}

/// Steps after which blocks stay what they are and run one after the other on the sums.
const ON_FRAGMENTS: &str = "set_scope acc fragment; set_scope add_bias fragment; set_scope relu fragment
split i ? 2 16 -> io iw ii; split j ? 4 8 -> jo jm ji; split k ? 16 -> ko ki; reorder io jo iw ko jm ii ji ki
bind io blockIdx.y; bind jo blockIdx.x; bind iw warp
reverse_compute_at add_bias iw -> b0 b1; split b1 ? 8 -> bn bj; reorder bn b0 bj
reverse_compute_at relu iw -> r0 r1; split r1 ? 16 -> rn rj; reorder rn r0 rj
reverse_compute_at out iw -> o0 o1; split o1 ? 8 -> on oj; reorder on o0 oj
cache_read mma A fragment -> A_f; compute_at A_f ko; cache_read mma B fragment -> B_f; compute_at B_f ko -> f0 f1
split f0 ? 8 -> fq fr
decompose_reduction mma ko -> zero; tensorize ii mma.m16n8k16.f32.f16.f16";

#[test]
fn blocks_run_on_fragments_that_no_instruction_uses() {
    right_and_clean(&format!("gemm 64x64x32 f16>f32>f16 NT bias relu\ntarget sm_80\n{ON_FRAGMENTS}"));
}

fn refused(text: &str) -> String {
    let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let lowered = schedule.scheduled().and_then(|f| lower(&f, &schedule.target));
    let error = lowered.expect_err(text);
    format!("{}: {}", error.code(), error.message())
}

#[test]
fn fragments_that_lie_differently_do_not_share_a_nest() {
    let text =
        product("64x64x64", NONE, Way::Stmatrix, false).replace("stmatrix.m16n16.f16", "stmatrix.trans.m16n16.f16");
    let error = refused(&text);
    assert!(error.starts_with("lower.distribute: in the nest of loop "), "{error}");
    assert!(error.contains("mma.m16n8k16.f32.f16.f16") && error.contains("stmatrix.trans.m16n16.f16"), "{error}");
}

#[test]
fn instructions_take_whole_tiles() {
    // Cut off at the sum already, a tile of the result is not whole.
    let cut = product("50x40x40", NONE, Way::Stmatrix, true)
        .replace("pad out out_i=32 out_j=32 -> acc_q  C_p; compute_inline acc_q\n", "")
        .replace("reverse_compute_inline C_p; ", "")
        .replace("C_p", "C");
    let error = refused(&cut);
    assert!(error.contains("predicated along"), "{error}");
}

/// Scales of rows and of columns behind tensor cores that multiply 8-bit floats.
#[test]
fn products_of_8_bit_floats_are_scaled_by_rows_and_columns() {
    for (target, instruction) in [(Target::sm_90a(), "wgmma."), (Target::sm_89(), "mma.m16n8k32")] {
        let product = Gemm::new(128, 128, 96).of(DType::E4m3).output(DType::F32).layout(Layout::NT);
        let kind = if target.sm >= 90 { Kind::Wgmma } else { Kind::Mma };
        let schedule = kind.schedule(&product.row_scales().column_scales(), &target);
        let schedule = schedule.unwrap_or_else(|e| panic!("{target}: {e}"));
        assert!(schedule.to_string().contains(instruction), "{schedule}");
        right(&schedule);
    }
}
