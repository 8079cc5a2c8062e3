//! Instructions of warps: a kernel for each row, by the same path as every other kernel, and what lowering says where
//! fragments do not fit.

use super::ptxas::{assemble, tools};
use super::sample::{drawn, everything};
use warploom::intrin::{self, Action, Level, Place, Row};
use warploom::lower::{Lowered, lower, print};
use warploom::reference::{Sample, outputs};
use warploom::sim::{Mode, Options, Policy, integers, integers_with, naive_integers, run_lowered};
use warploom::target::Target;
use warploom::te::Layout;
use warploom::{Array, DType, Result, Schedule, compile};

/// The rows that are emitted and have a kernel of their own. Opaque factors have not: what was loaded can only be multiplied,
/// so their loads stand in the kernels of products.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let emitted = |r: &&Row| r.emit.is_some() && r.level == Level::Warp;
    intrin::all().iter().filter(emitted).filter(|r| !super::wmma_fragments::is_load_of_factor(r))
}

/// A kernel of one warp around an instruction, and what it is to compute.
pub fn probe(row: &Row, target: Target) -> Schedule {
    let opaque = row.operands.iter().any(|o| matches!(o.place, Place::Opaque(_)));
    let text = match row.action {
        Action::MultiplyAdd | Action::XorAdd if opaque => super::wmma_fragments::product(row),
        Action::Copy if opaque => super::wmma_fragments::copy(row),
        Action::MultiplyAdd | Action::XorAdd => product(row),
        Action::Copy => copy(row),
    };
    let text = format!("{}\ntarget {target}\n{}", text.0, text.1);
    Schedule::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", row.name))
}

/// Two steps of k, so that the second one adds to something; factors are read from device memory element by element.
fn product(row: &Row) -> (String, String) {
    let [m, n, k] = [0, 1, 2].map(|d| row.dims[d].1);
    let program = row.program().unwrap();
    let dtype = |name: &str| program.buffer(program.find_buffer(name).unwrap()).dtype;
    let [d, a, b] = ["D", "A", "B"].map(dtype);
    let depth = 2 * k;
    let text = format!(
        "program probe\ninput A {a}[{m}, {depth}]; input B {b}[{n}, {depth}]\n\
         D: output D[m {m}, n {n}] {d} = sum(k {depth}) {}",
        term(row, [d, a, b], ["A[m, k]", "B[n, k]"])
    );
    let steps = format!(
        "split m ? {m} -> b mi; split k ? {k} -> ko ki; reorder b ko mi n ki; bind b blockIdx.x\n\
         cache_read D A fragment -> A_f; compute_at A_f ko; cache_read D B fragment -> B_f; compute_at B_f ko\n\
         cache_write D D fragment -> sum; reverse_compute_at sum b\n\
         decompose_reduction D ko -> zero; tensorize mi {}",
        row.name
    );
    (text, steps)
}

/// What a row adds up of two elements.
pub fn term(row: &Row, [d, a, b]: [DType; 3], [x, y]: [&str; 2]) -> String {
    let cast = |t: DType, x: &str| if t == d { x.to_string() } else { format!("{d}({x})") };
    match row.action {
        Action::XorAdd => format!("{d}({x} ^ {y})"),
        _ => format!("{} * {}", cast(a, x), cast(b, y)),
    }
}

/// From device memory through shared memory and a fragment back, the instruction on the one way or the other.
fn copy(row: &Row) -> (String, String) {
    let [m, n] = [0, 1].map(|d| row.dims[d].1);
    let dtype = row.program().unwrap().buffers[0].dtype;
    let text = format!("program probe\ninput S {dtype}[{m}, {n}]\nD: output D[m {m}, n {n}] {dtype} = S[m, n]");
    // A thread writes whole bytes.
    let per = if dtype.bits() < 8 { 8 / dtype.bits() } else { 1 };
    let threads = |block: &str, i: &str, j: &str| {
        format!(
            "fuse {i} {j} -> {block}_e; split {block}_e ? 32 {per} -> {block}_o {block}_t {block}_v; bind {block}_t threadIdx.x; vectorize {block}_v"
        )
    };
    let shared = "split m ? {m} -> b mi; bind b blockIdx.x; cache_read D S shared -> S_s; compute_at S_s b -> s0 s1";
    let shared = shared.replace("{m}", &m.to_string());
    let in_registers = |n: usize| matches!(row.operands[n].place, Place::Registers(_));
    let steps = match [in_registers(0), in_registers(1)] {
        [true, true] => format!(
            "split m ? {m} -> b mi; bind b blockIdx.x; cache_read D S fragment -> S_f; compute_at S_f b\n\
             cache_read D S_f fragment -> D_f f0 f1; tensorize f0 {}",
            row.name
        ),
        [true, false] => format!(
            "{shared}; {}\ncache_read D S_s fragment -> S_f f0 f1; tensorize f0 {}",
            threads("S_s", "s0", "s1"),
            row.name
        ),
        _ => format!(
            "{shared}; {}\ncache_read S_s S fragment -> S_f; compute_at S_f b; tensorize s0 {}",
            threads("D", "mi", "n"),
            row.name
        ),
    };
    (text, steps)
}

/// The first chip that has a row.
pub fn first_chip(row: &Row) -> Target {
    Target::ALL.into_iter().find(|t| t.has(row.needs)).unwrap_or_else(|| panic!("no chip has {}", row.name))
}

pub fn lowered(schedule: &Schedule) -> Lowered {
    let func = schedule.scheduled().unwrap_or_else(|e| panic!("{e}"));
    lower(&func, &schedule.target).unwrap_or_else(|e| panic!("{e}"))
}

/// The arguments of a probe: small integers, so that every sum is exact.
pub fn arguments(schedule: &Schedule) -> Vec<Array> {
    let params = schedule.program.params.iter().map(|p| schedule.program.buffer(*p));
    let shape = |b: &warploom::ir::Buffer| b.const_shape().unwrap().iter().map(|n| *n as usize).collect::<Vec<_>>();
    params.zip(1..).map(|(b, seed)| Array::random_integers(b.dtype, &shape(b), 5, seed).unwrap()).collect()
}

/// The kernels of a schedule, which compute what the naive program computes: bit by bit in integer mode, whichever warp comes
/// first, and exactly on the arguments, which are small integers. Of the orders of warps a sample is tried, and always the first.
pub fn right_on(schedule: &Schedule, mut args: Vec<Array>) -> Lowered {
    let kernels = lowered(schedule);
    let text = || format!("{schedule}\n{}", print(&kernels));
    let naive = naive_integers(&schedule.program, 5).unwrap();
    let tried = |policy: &Policy| *policy == Policy::InOrder || drawn(&format!("{policy:?} {schedule}"), 2);
    for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(2)].into_iter().filter(tried) {
        let options = Options::new(Mode::Integer).with_policy(policy);
        let found = integers_with(&kernels, &options, 5).unwrap_or_else(|e| panic!("{}\n{policy:?}: {e}", text()));
        assert!(found == naive, "{}\n{policy:?}", text());
    }
    run_lowered(&kernels, Mode::Real, &mut args).unwrap_or_else(|e| panic!("{}\n{e}", text()));
    for output in outputs(&schedule.program, &args, Sample::All).unwrap() {
        output.exact(&args[output.param]).unwrap_or_else(|e| panic!("{}\n{e}", text()));
    }
    kernels
}

/// [`right_on`] arguments of its own.
pub fn right(schedule: &Schedule) -> Lowered {
    right_on(schedule, arguments(schedule))
}

/// [`right`], and everything in registers.
pub fn right_and_clean(text: &str) -> Lowered {
    let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let kernels = right(&schedule);
    assemble(&tools(), &kernels, &schedule.target, true).unwrap_or_else(|e| panic!("{text}\n{e}"));
    kernels
}

/// A third of the rows, as the commit draws them, and the first.
#[test]
fn every_row_computes_what_it_means_lane_by_lane() {
    for (_, row) in rows().enumerate().filter(|(at, row)| *at == 0 || drawn(&format!("{} computes", row.name), 3)) {
        let text = print(&right(&probe(row, first_chip(row))));
        assert!(text.contains(&row.name), "{}:\n{text}", row.name);
    }
}

/// The instruction in the PTX ISA's own words; with `aligned` as it is written from PTX 6.3 on.
fn mnemonic(row: &Row, aligned: &str) -> String {
    let parts: Vec<&str> = row.name.split('.').collect();
    match parts.as_slice() {
        ["wmma", "mma", a, b, shape, d, "f16", "f16"] => format!("wmma.mma.sync{aligned}.{a}.{b}.{shape}.{d}.{d}"),
        [word @ ("wmma" | "wmma_xor"), "mma", a, b, shape, d, x @ "b1", y] => {
            format!("wmma.mma.{}.popc.sync{aligned}.{a}.{b}.{shape}.{d}.{x}.{y}.{d}", of_bits(word))
        }
        ["wmma", "mma", a, b, shape, d, x, y] => format!("wmma.mma.sync{aligned}.{a}.{b}.{shape}.{d}.{x}.{y}.{d}"),
        ["wmma", word, matrix, major, shape, dtype] => {
            let memory = if *word == "load" { "shared" } else { "global" };
            format!("wmma.{word}.{matrix}.sync{aligned}.{major}.{shape}.{memory}.{dtype}")
        }
        [word @ ("mma" | "mma_xor"), shape, d, a @ "b1", b] => {
            format!("mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d}.{}.popc", of_bits(word))
        }
        ["mma", shape, d, a, b] => format!("mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d}"),
        ["movmatrix", ..] => "movmatrix.sync.aligned.m8n8.trans.b16".to_string(),
        [word, rest @ ..] => {
            let matrices: i64 = row.dims.iter().map(|d| d.1).product::<i64>()
                * i64::from(row.program().unwrap().buffers[0].dtype.bits())
                / (8 * 128);
            let trans = if rest.contains(&"trans") { ".trans" } else { "" };
            format!("{word}.sync.aligned.m8n8.x{matrices}{trans}.shared.b16")
        }
        [] => String::new(),
    }
}

fn of_bits(word: &str) -> &str {
    if word.ends_with("xor") { "xor" } else { "and" }
}

/// An eighth of the rows, each for one of two chips, as the commit draws them, and the first.
#[test]
fn every_row_is_written_as_its_instruction() {
    let tools = tools();
    for (_, row) in rows().enumerate().filter(|(at, row)| *at == 0 || drawn(&format!("{} is written", row.name), 8)) {
        let chips = [first_chip(row), Target::sm_90a()];
        let first = drawn(&row.name, 2);
        let chosen = |n: &usize| everything() || first == (*n == 0);
        for target in (0..2).filter(chosen).map(|n| chips[n]) {
            let schedule = probe(row, target);
            let ptx = compile(&schedule).unwrap_or_else(|e| panic!("{} for {target}: {e}", row.name)).text;
            let code: Vec<&str> = ptx.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
            let name = mnemonic(row, if target.sm > 70 { ".aligned" } else { "" });
            assert!(code.iter().any(|l| l.contains(&name)), "{} for {target}: {name}\n{ptx}", row.name);
            assemble(&tools, &lowered(&schedule), &target, true)
                .unwrap_or_else(|e| panic!("{} for {target}: {e}", row.name));
        }
    }
}

/// A product of 64 x 32 x 64 by two warps of 16 x 16 a block, from shared memory. Factors whose k is contiguous are loaded
/// matrix by matrix; 16-bit ones whose k is not, with rows and columns exchanged; 8-bit ones then element by element.
fn small_product(layout: Layout, [a, b, d]: [&str; 3], row: &str) -> String {
    let (wide, k) = (a.ends_with('8'), if row.contains("k32") { 32 } else { 16 });
    let factor = |x: &str, dtype: &str, transposed: bool| {
        let rows = if transposed { "f1" } else { "f0" };
        let (tile, load) = match (transposed, wide) {
            (false, _) => (16, format!("tensorize {x}r ldmatrix.m16n{k}.{dtype}")),
            (true, false) => (16, format!("tensorize {x}f0 ldmatrix.trans.m16n16.{dtype}")),
            (true, true) => (if x == "A" { 16 } else { 8 }, String::new()),
        };
        let order = if transposed { format!("{x}q {x}f0 {x}r") } else { format!("{x}q {x}r {x}f1") };
        format!(
            "cache_read C {x} shared -> {x}_s; compute_at {x}_s ko -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}e; split {x}e ? 64 -> {x}o {x}t\n\
             bind {x}t threadIdx.x; storage_align {x}_s 0 16 {pad}\n\
             cache_read C {x}_s fragment -> {x}_f {x}f0 {x}f1; split {x}{rows} ? {tile} -> {x}q {x}r\n\
             reorder {order}; {load}\n",
            pad = if wide { 0 } else { 8 },
        )
    };
    let (of_a, of_b) = (factor("A", a, layout.a_transposed()), factor("B", b, !layout.b_transposed()));
    format!(
        "program gemm\ninput A {a}[{}]; input B {b}[{}]\n\
         C: output C[i 64, j 32] {d} = sum(k 64) {} * {}\ntarget sm_80\n\
         split i ? 2 16 -> io iw ii; split j ? 2 8 -> jo jm ji; split k ? {k} -> ko ki; reorder io jo iw ko jm ii ji ki\n\
         bind io blockIdx.y; bind jo blockIdx.x; bind iw warp; cache_write C C fragment -> sum; reverse_compute_at sum iw\n\
         {of_a}{of_b}decompose_reduction C ko -> zero; tensorize ii {row}",
        "64, 64",
        if layout.b_transposed() { "32, 64" } else { "64, 32" },
        cast(d, a, if layout.a_transposed() { "A[k, i]" } else { "A[i, k]" }),
        cast(d, b, if layout.b_transposed() { "B[j, k]" } else { "B[k, j]" }),
    )
}

fn cast(to: &str, from: &str, x: &str) -> String {
    if to == from { x.to_string() } else { format!("{to}({x})") }
}

/// A third of the types and layouts, as the commit draws them, and the first.
#[test]
fn products_of_every_type_and_layout_come_through_fragments() {
    let types = [
        (["f16", "f16", "f32"], "mma.m16n8k16.f32.f16.f16"),
        (["f16", "f16", "f16"], "mma.m16n8k16.f16.f16.f16"),
        (["bf16", "bf16", "f32"], "mma.m16n8k16.f32.bf16.bf16"),
        (["s8", "s8", "s32"], "mma.m16n8k32.s32.s8.s8"),
        (["u8", "s8", "s32"], "mma.m16n8k32.s32.u8.s8"),
    ];
    let cases = Layout::ALL.into_iter().flat_map(|l| types.map(|t| (l, t))).enumerate();
    for (_, (layout, (types, row))) in cases.filter(|(at, case)| *at == 0 || drawn(&format!("{case:?}"), 3)) {
        right_and_clean(&small_product(layout, types, row));
    }
}

/// Padded and swizzled rows are read and written without bank conflicts, plain ones are not: as cost reports count them.
#[test]
fn matrix_loads_meet_no_bank_twice() {
    let degrees = |layout: Layout, how: &str| {
        let text = small_product(layout, ["f16", "f16", "f32"], "mma.m16n8k16.f32.f16.f16");
        // Tiles as wide as a row of all banks, so that plain rows collide.
        let (one, two) =
            ("split k ? 16 -> ko ki; reorder io jo iw ko jm", "split k 1 4 16 -> ko kk ki; reorder io jo iw ko kk jm");
        let text = ["A", "B"].iter().fold(text.replace(one, two), |text, x| {
            let deeper = format!("fragment -> {x}_f; compute_at {x}_f kk -> {x}f0 {x}f1;");
            text.replace(&format!("fragment -> {x}_f {x}f0 {x}f1;"), &deeper)
                .replace(&format!("storage_align {x}_s 0 16 8"), &how.replace('X', x))
        });
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let kernels = lowered(&schedule);
        assert!(naive_integers(&schedule.program, 1).unwrap() == integers(&kernels, 1).unwrap(), "{how}");
        let report = warploom::analysis::cost_report(&kernels, &schedule.target);
        let shared = report.kernels[0].accesses.iter().filter_map(|a| match a.cost {
            warploom::analysis::Cost::Shared { degree, .. } => Some(degree),
            _ => None,
        });
        shared.max().unwrap()
    };
    for layout in [Layout::NT, Layout::TN] {
        let padded = if layout == Layout::NT { "storage_align X_s 0 64 8" } else { "storage_align X_s 0 32 8" };
        assert_eq!(degrees(layout, padded), 1, "{layout:?}");
        assert!(degrees(layout, "unroll Xo") > 1, "{layout:?}");
    }
    assert_eq!(degrees(Layout::NT, "swizzle X_s 128"), 1);
}

/// The message with which lowering refuses a schedule.
pub fn refused(text: &str) -> String {
    let schedule = Schedule::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let lowered: Result<Lowered> = schedule.scheduled().and_then(|f| lower(&f, &schedule.target));
    let error = lowered.expect_err(text);
    format!("{}: {}", error.code(), error.message())
}

const HEAD: &str = "gemm 32x16x16 f16>f32>f32 NT\ntarget sm_80\n\
    split i ? 16 -> io ii; split j ? 8 -> jo ji; reorder io jo ii ji k; bind io blockIdx.x\n";
const SUM: &str = "cache_write C C fragment -> acc; reverse_compute_at acc io\n";
const TAIL: &str = "decompose_reduction C ii -> zero; tensorize ii mma.m16n8k16.f32.f16.f16\n";

#[test]
fn factors_that_do_not_lie_as_the_instruction_has_them_are_refused() {
    let plain = format!("{HEAD}{SUM}cache_read C A fragment -> A_f; compute_at A_f jo; {TAIL}");
    assert_eq!(
        refused(&plain),
        "lower.operand: operand B of mma.m16n8k16.f32.f16.f16 is a fragment buffer, but B is global"
    );
    let nn = format!("{HEAD}{SUM}").replace(" NT", " NN");
    let loads = |row: &str| {
        format!(
            "{nn}cache_read C A fragment -> A_f; compute_at A_f jo\ncache_read C B shared -> B_s; compute_at B_s io\n\
             cache_read C B_s fragment -> B_f b0 b1; tensorize b0 {row}\n{TAIL}"
        )
    };
    let error = refused(&loads("ldmatrix.m16n16.f16"));
    assert!(error.starts_with("lower.fragment: fragment B_f has different layouts for two instructions"), "{error}");
    assert!(error.contains("operand B of mma.m16n8k16.f32.f16.f16"), "{error}");
    assert!(error.contains("operand D of ldmatrix.m16n16.f16"), "{error}");
    // Exchanged on the way, it fits.
    lowered(&Schedule::parse(&loads("ldmatrix.trans.m16n16.f16")).unwrap());
}

#[test]
fn fragments_belong_to_instructions_and_whole_tiles() {
    let factors =
        "cache_read C A fragment -> A_f; compute_at A_f jo; cache_read C B fragment -> B_f; compute_at B_f jo\n";
    let with = |more: &str| format!("{HEAD}{SUM}{factors}{more}\n{TAIL}");
    lowered(&Schedule::parse(&with("")).unwrap());
    // One that no instruction uses lies as the one that it is copied from; with none beside it it has no place.
    lowered(&Schedule::parse(&with("cache_read acc acc fragment -> copy")).unwrap());
    let lonely = "vec_add 64\ntarget sm_80\nsplit i ? 32 -> io ii; bind io blockIdx.x\n\
        cache_read C A fragment -> A_f; compute_at A_f io";
    assert!(refused(lonely).starts_with("lower.fragment: no instruction uses fragment A_f"), "{}", refused(lonely));
    // The sum of a warp is stored by rows of half a tile.
    let halves = with("").replace(
        "reverse_compute_at acc io",
        "reverse_compute_at acc io -> e0 e1; split e1 ? 4 -> ea eb; reorder ea e0 eb; unroll ea",
    );
    lowered(&Schedule::parse(&halves).unwrap());
    let threads = with("").replace(
        "reverse_compute_at acc io",
        "reverse_compute_at acc io -> e0 e1; fuse e0 e1 -> e; split e ? 32 -> eo et; bind et threadIdx.x",
    );
    assert!(
        refused(&threads)
            .starts_with("verify.levels: the lanes of a warp run block acc together, but it mentions thread loop et"),
        "{}",
        refused(&threads)
    );
}

#[test]
fn warps_and_threads_of_a_kernel_are_the_same() {
    let two = |threads: i64| {
        format!(
            "gemm 64x16x16 f16>f32>f32 NT\ntarget sm_80\n\
             split i ? 2 16 -> io iw ii; split j ? 8 -> jo ji; reorder io iw jo ii ji k; bind io blockIdx.x; bind iw warp\n\
             cache_write C C fragment -> acc; reverse_compute_at acc iw\n\
             cache_read C A shared -> A_s; compute_at A_s io -> a0 a1; fuse a0 a1 -> a; split a ? {threads} -> ao at; bind at threadIdx.x\n\
             cache_read C A_s fragment -> A_f; compute_at A_f jo; cache_read C B fragment -> B_f; compute_at B_f jo\n{TAIL}"
        )
    };
    lowered(&Schedule::parse(&two(64)).unwrap());
    assert_eq!(refused(&two(32)), "lower.warps: the 2 warps of loop iw are 64 threads, the threadIdx loops 32");
    assert!(refused(&two(16)).starts_with("lower.warps: warps work together in a kernel of 16 threads a block"));
}

#[test]
fn chips_without_an_instruction_say_what_they_have() {
    let text = format!(
        "{HEAD}{SUM}cache_read C A fragment -> A_f; compute_at A_f jo; cache_read C B fragment -> B_f; compute_at B_f jo\n{TAIL}"
    );
    let turing = text.replace("sm_80", "sm_75");
    assert_eq!(
        refused(&turing),
        "admit.instruction: tensorize ii mma.m16n8k16.f32.f16.f16: sm_75 does not have mma of m16n8k16 and on bf16, \
         tf32 and f64, which sm_80 introduced"
    );
    let schedule = Schedule::parse(&turing).unwrap();
    let error = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err();
    assert_eq!(error.helps(), ["sm_75 has mma.m16n8k8.f32.f16.f16"]);
}

/// Steps that turn a factor whose k is not contiguous in a kernel of its own: 8 x 8 elements a thread, in registers.
fn turned(x: &str, kernel: &str) -> String {
    let names = |text: &str| text.replace('%', x);
    names(&format!(
        "cache_read C % global -> %_t %t0 %t1; transform_layout %_t [k, n] -> [n, k]; split %t0 ? 64 -> %tk %tki\n\
         reorder %tk %t1 %tki; bind %tk blockIdx.{kernel}; cache_read %_t % shared -> %_p; transform_layout %_p [k, n] -> [n, k]\n\
         cache_read %_p % local -> %_r; cache_read %_p %_r local -> %_c; transform_layout %_c [k, n] -> [n, k]\n\
         fuse %t1 %tki -> %t; split %t ? 128 32 -> %ta %tb %tc; bind %tb threadIdx.x; vectorize %tc\n\
         compute_at %_p %tk -> %p0 %p1; split %p0 ? 8 -> %pk %pi; split %p1 ? 8 -> %pn %pj; reorder %pk %pn %pj %pi\n\
         fuse %pk %pn -> %pt; bind %pt threadIdx.x; unroll %pj; vectorize %pi\n\
         compute_at %_c %pt -> %c0 %c1; unroll %c0; unroll %c1; compute_at %_r %pt -> %r0 %r1; unroll %r0; vectorize %r1\n"
    ))
}

/// A product of 128 x 128 x 128 of 4-bit integers: multiplied as they are, or unpacked to 8 bits in registers.
fn small_bits(layout: Layout, [a, b]: [&str; 2], unpacked: bool) -> String {
    let turn = |x: &str, k_contiguous: bool| {
        if k_contiguous { (String::new(), x.to_string()) } else { (turned(x, "x"), format!("{x}_t")) }
    };
    let (turn_a, from_a) = turn("A", !layout.a_transposed());
    let (turn_b, from_b) = turn("B", layout.b_transposed());
    let factor = |x: &str, from: &str, dtype: &str| {
        let wide = dtype.replace('4', "8");
        let (unpack, place) = match unpacked {
            true => (
                format!("cache_read C {x}_f fragment as={wide} -> {x}_u; compute_at {x}_u kk\n"),
                format!("transform_layout {x}_u [i, k] -> [i, k // 64 * 64 + k % 2 * 32 + k % 64 // 2]\n"),
            ),
            false => (String::new(), String::new()),
        };
        format!(
            "cache_read C {from} shared -> {x}_s; compute_at {x}_s io -> {x}0 {x}1; fuse {x}0 {x}1 -> {x}e; split {x}e ? 128 32 -> {x}x {x}y {x}z\n\
             bind {x}y threadIdx.x; vectorize {x}z; swizzle {x}_s 64; cache_read C {x}_s fragment -> {x}_f; {unpack}compute_at {x}_f kk -> {x}f0 {x}f1\n\
             split {x}f0 ? 16 -> {x}fm {x}fi; tensorize {x}fi ldmatrix.m16n64.{dtype}; {place}\n"
        )
    };
    let (loops, row) = match unpacked {
        true => ("split k ? 32 2 -> kk ki k1; reorder io w kk k1 im jm ii ji ki", "m16n8k32"),
        false => ("split k ? 64 -> kk ki; reorder io w kk im jm ii ji ki", "m16n8k64"),
    };
    let types = if unpacked { [a.replace('4', "8"), b.replace('4', "8")] } else { [a.to_string(), b.to_string()] };
    format!(
        "gemm 128x128x128 {a}*{b}>s32 {}\ntarget sm_80\n{turn_a}{turn_b}\
         split i ? 4 32 -> io w im; split im ? 16 -> im ii; split j ? 8 -> jm ji; {loops}; bind io blockIdx.x; bind w warp\n\
         cache_write C C fragment -> sum; reverse_compute_at sum w\n{}{}decompose_reduction C kk -> zero; tensorize ii mma.{row}.s32.{}.{}",
        layout.name(),
        factor("A", &from_a, a),
        factor("B", &from_b, b),
        types[0],
        types[1],
    )
}

/// A third of the cases, as the commit draws them, and the first.
#[test]
fn four_bits_are_multiplied_as_they_are_and_as_eight_in_every_layout() {
    let signs = [["s4", "s4"], ["u4", "s4"], ["s4", "u4"], ["u4", "u4"]];
    let cases = Layout::ALL.into_iter().zip(signs).flat_map(|c| [(c, false), (c, true)]).enumerate();
    for (_, ((layout, types), unpacked)) in cases.filter(|(at, case)| *at == 0 || drawn(&format!("{case:?}"), 3)) {
        let text = small_bits(layout, types, unpacked);
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let params = schedule.program.params.iter().map(|p| schedule.program.buffer(*p));
        let args = params.map(|b| Array::random(b.dtype, &[128, 128], 3).unwrap()).collect();
        let kernels = right_on(&schedule, args);
        assemble(&tools(), &kernels, &schedule.target, true).unwrap_or_else(|e| panic!("{text}\n{e}"));
    }
}

/// Eight elements of a word cost two words' masks, signs and shifts, not an extraction each.
#[test]
fn unpacking_costs_a_handful_of_operations_a_word() {
    for (types, most) in [(["s4", "s4"], 9), (["u4", "u4"], 3)] {
        let text = small_bits(Layout::NT, types, true);
        let ptx = compile(&Schedule::parse(&text).unwrap()).unwrap().text;
        // Behind the first matrix in registers only fragments are worked on; loops are written out.
        let body = ptx.split("ldmatrix").skip(1).collect::<String>();
        let of = |words: &[&str]| {
            let starts = |l: &str| words.iter().any(|w| l.trim_start().starts_with(w));
            body.lines().filter(|l| starts(l)).count()
        };
        let words = 4 * ptx.matches("ldmatrix.sync").count();
        let bits =
            of(&["and.b32", "or.b32", "xor.b32", "prmt", "mul.lo", "mad.lo", "shr.", "shl.", "bfe.", "bfi.", "cvt."]);
        assert!(bits <= most * words + 40, "{types:?}: {bits} operations for {words} words\n{ptx}");
    }
}
