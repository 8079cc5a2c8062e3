//! ptxas assembles what code generation writes: in one of two versions and for some chips, drawn for the commit, or for every chip and in
//! both versions where `WARPLOOM_ALL` is set. ptxas knows instructions that LLVM
//! does not check, and it says whether everything is in registers.

use super::handmade::{self, Make};
use super::hopper::{self, Subset};
use super::sample::{commit, drawn, everything};
use warploom::assemble::{Ptxas, VERSIONS};
use warploom::codegen::compile;
use warploom::error::{Code, Fault};
use warploom::gemm::{Kind, Wgmma};
use warploom::ir::{Axis, BinOp, CmpOp, Expr, UnOp};
use warploom::loom::Schedule;
use warploom::lower::{Lowered, lower};
use warploom::target::Target;
use warploom::te::Layout;
use warploom::{DType, Error};

/// Set to anything to let the tests of this file pass where ptxas is missing; they say so.
const ALLOW_MISSING: &str = "WARPLOOM_WITHOUT_PTXAS";

/// Both versions, or none if that is allowed.
pub fn tools() -> Vec<Ptxas> {
    let found = Ptxas::find(None).unwrap_or_default();
    let missing: Vec<&str> = VERSIONS.into_iter().filter(|v| found.iter().all(|f| f.version != *v)).collect();
    if missing.is_empty() {
        return found.into_iter().filter(|f| VERSIONS.contains(&f.version.as_str())).collect();
    }
    let words = format!("ptxas {} is missing: run `sh .ci/tools.sh`", missing.join(" and "));
    assert!(std::env::var_os(ALLOW_MISSING).is_some(), "{words}, or set {ALLOW_MISSING}=1 to do without these tests");
    eprintln!("SKIPPED: {words}");
    Vec::new()
}

/// Assembles for a chip with a version that knows it, drawn for the commit; with every one where `WARPLOOM_ALL` is set. `clean` demands no
/// spill, no stack frame and no warning.
pub fn assemble(tools: &[Ptxas], lowered: &Lowered, target: &Target, clean: bool) -> Result<(), Error> {
    let kernels = compile(lowered, target)?;
    let known: Vec<&Ptxas> = tools.iter().filter(|p| p.knows(target.name)).collect();
    let one = usize::from(drawn(&format!("{} {target}", lowered.name), 2)).min(known.len().saturating_sub(1));
    let chosen = if everything() { &known[..] } else { known.get(one..=one).unwrap_or(&[]) };
    for ptxas in chosen {
        let assembled = ptxas.assemble(&kernels.text, target.name)?;
        let context = format!("{} for {target} with ptxas {}", lowered.name, ptxas.version);
        assert_eq!(assembled.usage.len(), kernels.kernels.len(), "{context}");
        if clean {
            assert!(assembled.usage.iter().all(|u| u.is_clean()), "{context}: {:#?}", assembled.usage);
            assert_eq!(assembled.warnings, [""; 0], "{context}");
        }
    }
    Ok(())
}

#[test]
fn handmade_kernels_assemble_into_registers_alone() {
    let tools = tools();
    for lowered in handmade::all() {
        for target in Target::ALL {
            assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{} for {target}: {e}", lowered.name));
        }
    }
}

/// The types that ordinary code computes with.
const TYPES: [DType; 13] = [
    DType::F16,
    DType::Bf16,
    DType::Tf32,
    DType::F32,
    DType::F64,
    DType::S8,
    DType::U8,
    DType::S4,
    DType::U4,
    DType::B1,
    DType::S32,
    DType::U32,
    DType::S64,
];

const ARITHMETIC: [BinOp; 6] = [BinOp::Add, BinOp::Sub, BinOp::Mul, BinOp::Div, BinOp::Min, BinOp::Max];
const BITS: [BinOp; 5] = [BinOp::And, BinOp::Or, BinOp::Xor, BinOp::Shl, BinOp::Shr];
const FUNCTIONS: [UnOp; 11] = [
    UnOp::Exp,
    UnOp::Exp2,
    UnOp::Log,
    UnOp::Log2,
    UnOp::Sqrt,
    UnOp::Rsqrt,
    UnOp::Tanh,
    UnOp::Erf,
    UnOp::Log1p,
    UnOp::Sin,
    UnOp::Cos,
];

/// A kernel that stores the result of every operation on a type, in vectors of `lanes` and at most 16 bytes.
pub fn every_operation(dtype: DType, lanes: u32) -> Lowered {
    let mut k = Make::new(&format!("every_{dtype}_{lanes}"));
    let tx = k.axis(Axis::ThreadX, 32);
    let width = 32 * i64::from(lanes);
    let (a, b) = (k.param("A", dtype, width), k.param("B", dtype, width));
    let at = tx * i64::from(lanes);
    let load = |buffer| handmade::load_lanes(buffer, at.clone(), lanes);
    let mut results = operations(dtype, load(a), load(b));
    results.push((dtype, Expr::Splat(lanes, Box::new(Expr::Index(dtype, Box::new(tx * 3))))));
    // Whole bytes, and at most 16 of them.
    results.retain(|(t, _)| t.bits() * lanes <= 128 && (t.bits() * lanes).is_multiple_of(8));
    let mut stores = Vec::new();
    for t in TYPES {
        let of_type: Vec<&Expr> = results.iter().filter(|r| r.0 == t).map(|r| &r.1).collect();
        if !of_type.is_empty() {
            let out = k.param(&format!("out_{t}"), t, width * of_type.len() as i64);
            let store = |(i, e): (usize, &&Expr)| {
                handmade::store_lanes(out, at.clone() + width * i as i64, (*e).clone(), lanes)
            };
            stores.extend(of_type.iter().enumerate().map(store));
        }
    }
    k.done(stores)
}

/// Every operation on two operands of a type, with the type of its result.
fn operations(dtype: DType, x: Expr, y: Expr) -> Vec<(DType, Expr)> {
    let mut out = Vec::new();
    let bits: &[BinOp] = if dtype.is_float() { &[] } else { &BITS };
    for op in ARITHMETIC.iter().chain(bits) {
        out.push((dtype, Expr::bin(*op, x.clone(), y.clone())));
    }
    if dtype.is_float() {
        out.push((dtype, Expr::bin(BinOp::Pow, x.clone(), y.clone())));
    }
    out.push((dtype, handmade::multiply_add(x.clone(), y.clone(), y.clone())));
    out.push((dtype, Expr::bin(BinOp::Sub, y.clone(), Expr::bin(BinOp::Mul, x.clone(), y.clone()))));
    let functions: &[UnOp] = if dtype.is_float() { &FUNCTIONS } else { &[UnOp::Not] };
    for op in [UnOp::Neg, UnOp::Abs].iter().chain(functions) {
        out.push((dtype, Expr::un(*op, x.clone())));
    }
    for op in [CmpOp::Lt, CmpOp::Le, CmpOp::Eq, CmpOp::Ne, CmpOp::Ge, CmpOp::Gt] {
        let holds = Expr::Cmp(op, Box::new(x.clone()), Box::new(y.clone()));
        out.push((dtype, Expr::select(holds.clone(), x.clone(), y.clone())));
        out.push((DType::S32, Expr::cast(DType::S32, holds)));
    }
    for to in TYPES {
        out.push((to, Expr::cast(to, x.clone())));
    }
    let truth = Expr::cast(DType::Bool, x);
    out.push((DType::F32, Expr::cast(DType::F32, truth)));
    out
}

/// For one of the chips, as the commit draws it.
#[test]
fn every_operation_assembles_on_every_type_and_width() {
    let tools = tools();
    let mut all: Option<Lowered> = None;
    for dtype in TYPES {
        for lanes in [8u32.div_ceil(dtype.bits()), 128 / dtype.bits()] {
            let one = every_operation(dtype, lanes);
            match &mut all {
                // One module of many kernels; they take the same parameters by name, of one type each.
                Some(all) => {
                    all.params.extend(one.params.into_iter().filter(|p| !all.params.contains(p)).collect::<Vec<_>>());
                    all.kernels.extend(one.kernels);
                }
                None => all = Some(one),
            }
        }
    }
    let all = all.unwrap();
    let one = Target::ALL[commit() as usize % Target::ALL.len()];
    for target in Target::ALL.into_iter().filter(|t| *t == one || everything()) {
        assemble(&tools, &all, &target, false).unwrap_or_else(|e| panic!("{target}: {e}"));
    }
}

/// A third of the examples for their own chips, and fewer for others, as the commit draws them. The first is tried for its chip in every run.
#[test]
fn every_example_assembles_into_registers_alone() {
    let tools = tools();
    for (n, (name, text)) in super::cases::examples().into_iter().enumerate() {
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let func = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
        let chosen = |t: &Target| match *t == schedule.target {
            true => n == 0 || drawn(&format!("{name} {t}"), 3),
            false => drawn(&format!("{name} {t}"), 24),
        };
        for target in Target::ALL.into_iter().filter(chosen) {
            match lower(&func, &target) {
                Ok(lowered) => {
                    assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{name} for {target}: {e}"))
                }
                // What is not lowered yet has goldens that say so; a chip may lack what a schedule asks for, but the
                // chip that it names may not.
                Err(e) if e.code() == Code::AdmitPlacement => {}
                Err(e) if e.fault() == Fault::Chip && target != schedule.target => {}
                Err(e) => panic!("{name} for {target}: {e}"),
            }
        }
    }
}

/// A third of the programs and chips, as the commit draws them, and the first.
#[test]
fn other_programs_and_products_of_every_type_assemble_into_registers_alone() {
    let tools = tools();
    let programs = super::programs::PROGRAMS.map(|(name, _, text)| (name.to_string(), Schedule::parse(text).unwrap()));
    let product = |p: warploom::Gemm| (format!("{:?}", p.spec()), Kind::Simt.schedule(&p, &Target::sm_80()).unwrap());
    let all = programs.into_iter().chain(super::programs::products().into_iter().map(product));
    for (n, (name, schedule)) in all.enumerate() {
        let func = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}"));
        // Types differ from chip to chip up to sm_90; the examples are assembled for all of them.
        let chosen = |t: &Target| (n, t.sm) == (0, 80) || drawn(&format!("other {n} {name} {t}"), 3);
        for target in [Target::sm_70(), Target::sm_80(), Target::sm_90()].into_iter().filter(chosen) {
            let assembled = lower(&func, &target).and_then(|lowered| assemble(&tools, &lowered, &target, true));
            assembled.unwrap_or_else(|e| panic!("{name} for {target}: {e}"));
        }
    }
}

/// A tenth of the products and chips, as the commit draws them, and the first.
#[test]
fn recommended_products_assemble_into_registers_alone() {
    let tools = tools();
    let sizes = [(DType::F32, &[512, 1024, 4096][..]), (DType::F64, &[1024, 4095])];
    let sizes = sizes.into_iter().flat_map(|(dtype, sizes)| sizes.iter().map(move |n| (dtype, *n)));
    for (layout, (dtype, n)) in Layout::ALL.into_iter().flat_map(|l| sizes.clone().map(move |s| (l, s))) {
        let is_first = |t: &Target| (layout, n, t.sm) == (Layout::NN, 512, 80);
        let part = |t: &Target| is_first(t) || drawn(&format!("{dtype} {n} {} {t}", layout.name()), 10);
        for target in [Target::sm_80(), Target::sm_90()].into_iter().filter(part) {
            let product = warploom::Gemm::new(n, n, n).of(dtype).layout(layout);
            let schedule = warploom::gemm::recommend(&product, &target).unwrap();
            let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
            let mut lowered = lowered;
            lowered.name = format!("{dtype} {n} {}", layout.name());
            assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{} for {target}: {e}", lowered.name));
        }
    }
}

/// Products of the mma and wmma recipes that ptxas spilled by up to 748 bytes. In iterations unrolled after the main loop ptxas hoists
/// fragment loads and the addresses of the epilogue.
#[test]
fn products_of_few_tiles_along_k_assemble_into_registers_alone() {
    let tools = tools();
    let (f16, s8, u8) = (DType::F16, DType::S8, DType::U8);
    let cases = [
        (warploom::Gemm::new(1171, 3390, 576).of(s8), Layout::NT, Target::sm_89()),
        (warploom::Gemm::new(2829, 683, 748).of(f16), Layout::NN, Target::sm_89()),
        (warploom::Gemm::new(2000, 4040, 256).of(f16), Layout::NN, Target::sm_86()),
        (warploom::Gemm::new(777, 3333, 555).of(f16), Layout::NT, Target::sm_80()),
        (warploom::Gemm::new(768, 3328, 768).of(f16), Layout::NT, Target::sm_80()),
        (warploom::Gemm::new(777, 3334, 556).of(DType::S4), Layout::NN, Target::sm_80()),
        // Many copies of four bytes, and elements on their way through registers.
        (warploom::Gemm::new(1408, 1663, 2794).of(f16).output(DType::F32), Layout::NT, Target::sm_86()),
        (warploom::Gemm::new(5290, 128, 4655).of(f16), Layout::NT, Target::sm_80()),
        (warploom::Gemm::new(5290, 128, 4655).of(f16), Layout::NT, Target::sm_90a()),
        // wmma with unaligned rows of bytes.
        (warploom::Gemm::new(2880, 2594, 169051).batch(7).of(u8), Layout::NT, Target::sm_90()),
    ];
    for (product, layout, target) in cases {
        let product = product.layout(layout);
        let schedule = warploom::gemm::recommend(&product, &target).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
        assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{product:?} for {target}: {e}"));
    }
}

/// Products of packed weights, of which blocks with roles share a multiprocessor. A sample of the sizes and chips, and the first size.
#[test]
fn products_of_packed_weights_assemble_into_registers_alone() {
    let tools = tools();
    let sizes = [[28672, 8192], [4096, 4096], [11008, 4096], [5120, 13824]];
    for (m, [n, k]) in [1, 8, 16, 32, 64, 256].into_iter().flat_map(|m| sizes.map(|size| (m, size))) {
        let weights = if (m + n) % 3 == 0 { DType::S8 } else { DType::S4 };
        let q = warploom::gemm::Quantized::new(m, n, k).weights(weights).groups(128).packed();
        for target in [Target::sm_90a(), Target::sm_90(), Target::sm_80()] {
            let is_first = (m, n) == (1, 28672) && target == Target::sm_90a();
            if !is_first && !drawn(&format!("packed {m} {n} {target}"), 12) {
                continue;
            }
            let schedule = warploom::gemm::recommend_quantized(&q, &target).unwrap();
            let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
            assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{q:?} for {target}: {e}"));
        }
    }
}

/// The kernels for ranges of a dynamic M by tensor cores: conditions on the rows of a tile take no registers that accumulators need. A sample of the
/// chips and types, and one in every run.
#[test]
fn kernels_of_dynamic_size_assemble_into_registers_alone() {
    let tools = tools();
    let cases = Target::ALL.into_iter().flat_map(|target| [(target, DType::F16), (target, DType::S8)]);
    // Chips before sm_75 multiply few rows of bytes without tensor cores, with 148 bytes of spills.
    let cases = cases.filter(|(target, dtype)| *dtype == DType::F16 || target.sm >= 75);
    let is_first = |target: &Target, dtype: DType| *target == Target::sm_75() && dtype == DType::F16;
    let tried =
        |(target, dtype): &(Target, DType)| is_first(target, *dtype) || drawn(&format!("ranges {target} {dtype}"), 12);
    for (target, dtype) in cases.filter(tried) {
        let product = warploom::Gemm::new(8192, 4096, 4096).of(dtype).layout(Layout::NT).rows_from(1);
        for range in warploom::gemm::recommend_ranges(&product, &target, 3).unwrap() {
            let lowered = lower(&range.schedule.scheduled().unwrap(), &target).unwrap();
            let context = format!("M in {}..={} {dtype} for {target}: {}", range.low, range.high, range.tiles);
            assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{context}: {e}"));
        }
    }
}

/// A ninth of what is measured beside the library on Hopper, and the first: no spill, and no product of asynchronous ones in sequence (C75xx).
#[test]
fn products_of_record_assemble_into_registers_alone() {
    let (tools, target) = (tools(), Target::sm_90a());
    let text = std::fs::read_to_string("benches/hopper.suite").unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with(['#', 'm']) && !l.is_empty()).collect();
    assert!(lines.len() >= 100, "{} products", lines.len());
    let check = |line: &&str| {
        if *line != lines[0] && !drawn(line, 9) {
            return;
        }
        let (product, _) = super::instructions::of_suite(line);
        let schedule = warploom::gemm::recommend(&product, &target).unwrap_or_else(|e| panic!("{line}: {e}"));
        let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap_or_else(|e| panic!("{line}: {e}"));
        assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{line}: {e}"));
    };
    let (first, second) = lines.split_at(lines.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| first.iter().for_each(check));
        second.iter().for_each(check);
    });
}

/// Three warpgroups beside a producer, which leave 128 registers to a thread: the 192 columns that the recipe has at most, and about every
/// eighth width below, drawn for the commit.
#[test]
fn tiles_of_three_warpgroups_assemble_into_registers_alone() {
    let (tools, target) = (tools(), Target::sm_90a());
    let widths = (72..=192).step_by(8).filter(|w| *w == 192 || drawn(&format!("three warpgroups {w}"), 8));
    // Rows of B that run along n are whole panels of 64 columns.
    let layouts = |width: i64| [Layout::NT, Layout::TN].into_iter().take(if width % 64 == 0 { 2 } else { 1 });
    for (width, layout) in widths.flat_map(|width| layouts(width).map(move |layout| (width, layout))) {
        let parts = Wgmma { block: [192, width], warpgroups: 3, stages: 3, out_stages: 1, ..Wgmma::LARGE };
        let subset = Subset { name: format!("192x{width} {}", layout.name()), parts, layout };
        let schedule = hopper::schedule(&subset, [768, 4 * width, 512]).unwrap();
        let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap_or_else(|e| panic!("{}: {e}", subset.name));
        assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{}: {e}", subset.name));
    }
}

/// Tiles of threads for which ptxas, left alone, keeps a few values in memory to fit one more block of threads. A sixth of the products and chips, as
/// the commit draws them, and one product in every run.
#[test]
fn tiles_of_threads_leave_nothing_in_memory() {
    use warploom::gemm::{Kind, Tiles};
    let tools = tools();
    let check = |schedule: &Schedule| {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        assemble(&tools, &lowered, &schedule.target, true).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
    };
    let sampled = |schedule: &Schedule| {
        if drawn(&format!("tiles {schedule}"), 6) {
            check(schedule);
        }
    };
    for target in [Target::sm_75(), Target::sm_80(), Target::sm_90()] {
        let product = |m, n, k, dtype, layout| warploom::Gemm::new(m, n, k).of(dtype).layout(layout);
        for (n, (layout, dtype)) in Layout::ALL.into_iter().flat_map(|l| [(l, DType::F64), (l, DType::F32)]).enumerate()
        {
            sampled(&warploom::gemm::recommend(&product(16, 1024, 1024, dtype, layout), &target).unwrap());
            let odd = product(255, 131, 67, dtype, layout);
            sampled(&Kind::Simt.schedule(&odd, &target).unwrap());
            let (bm, bn, bk, tm, tn) = [(128, 64, 16, 8, 4), (64, 32, 8, 4, 4), (32, 64, 16, 2, 8)][n % 3];
            let steps = Tiles { bm, bn, bk, tm, tn, stages: 1 + n as i64 % 2, parts: 1 }.steps(odd.spec());
            let text = format!("gemm 255x131x67 {dtype} {}\ntarget {target}\n{steps}", layout.name());
            sampled(&Schedule::parse(&text).unwrap());
        }
        let tiles = Tiles { bm: 128, bn: 64, bk: 16, tm: 8, tn: 4, stages: 1, parts: 1 };
        let steps = tiles.steps(product(255, 131, 67, DType::F32, Layout::TN).spec());
        check(&Schedule::parse(&format!("gemm 255x131x67 f32 TN\ntarget {target}\n{steps}")).unwrap());
    }
}

/// Products with few rows or columns, or with long sums of few elements, of every type and layout: a sample, and the first.
#[test]
fn thin_products_assemble_into_registers_alone() {
    let tools = tools();
    let types = [DType::F16, DType::Bf16, DType::F32, DType::F64, DType::S8, DType::U8];
    let sizes = [
        [1, 4096, 4096],
        [4096, 1, 4096],
        [1, 1, 65537],
        [8, 15048, 3200],
        [9, 3200, 5024],
        [1600, 1, 1600],
        [13, 1031, 4099],
        [12553, 8, 3744],
        [32, 39, 4496],
        [15, 1275, 5504],
        [1021, 15, 31],
        [130, 70, 9000],
    ];
    let cases = types.into_iter().flat_map(|t| Layout::ALL.map(|l| (t, l))).flat_map(|c| sizes.map(|s| (c, s)));
    for (at, ((dtype, layout), [m, n, k])) in cases.enumerate() {
        for target in [Target::sm_75(), Target::sm_80(), Target::sm_90a()] {
            let product = warploom::Gemm::new(m, n, k).of(dtype).layout(layout);
            let is_tried = (at, target.sm) == (0, 80) || drawn(&format!("thin {product:?} {target}"), 48);
            if !is_tried || dtype == DType::Bf16 && target.sm < 80 {
                continue;
            }
            // Printed where it fails.
            eprintln!("{product:?} for {target}");
            let schedule = warploom::gemm::recommend(&product, &target).unwrap();
            let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
            assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{product:?} for {target}: {e}"));
        }
    }
}
