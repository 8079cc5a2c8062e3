//! Products whose fragments lanes load element by element: f64, and tf32 whose rows in shared memory do not run along k. Bytes across k, which
//! ldmatrix transposes in pairs.

use super::ptxas::{assemble, tools};
use super::sample::drawn;
use super::tensor::{lowered, right};
use warploom::gemm::{
    Activation, Along, Epilogue, FragmentBuffers, Kind, Mma, Source, SwapAb, Wgmma, describe, recommend,
    recommend_without_workspace,
};
use warploom::lower::print;
use warploom::reference::{Sample, outputs};
use warploom::sim::{Mode, run_lowered};
use warploom::te::Layout;
use warploom::{Array, DType, Gemm, Schedule, Target, te};

fn gemm([m, n, k]: [i64; 3], dtype: DType, layout: Layout) -> Gemm {
    Gemm::new(m, n, k).of(dtype).layout(layout)
}

/// Sizes of whole tiles, of parts of them, and of rows that no copy of 16 bytes reads.
const SIZES: [[i64; 3]; 4] = [[128, 64, 64], [100, 60, 40], [131, 61, 37], [34, 70, 18]];

/// A sample of the layouts and sizes, and the first with the smallest size.
#[test]
fn each_instruction_of_f64_and_tf32_is_right_in_every_layout() {
    let ampere = [(DType::F64, [8, 4]), (DType::Tf32, [16, 8])];
    let hopper = [(DType::F64, [16, 4]), (DType::F64, [16, 8]), (DType::F64, [16, 16])];
    let shapes = ampere.map(|s| (s, Target::sm_80())).into_iter().chain(hopper.map(|s| (s, Target::sm_90())));
    for (n, (((dtype, shape), target), layout)) in shapes.flat_map(|s| Layout::ALL.map(|l| (s, l))).enumerate() {
        let tried = |at: &usize| (n, *at) == (0, 3) || drawn(&format!("elements {n} {at}"), 5);
        for (at, size) in SIZES.into_iter().enumerate().filter(|(at, _)| tried(at)) {
            let product = gemm(size, dtype, layout);
            let fragments = [FragmentBuffers::Single, FragmentBuffers::Double][(n + at) % 2];
            let parts = [1, 1, 1, 2][(n + at) % 4];
            let tiles = Mma::of(product.spec(), &target, [64, 32], [2, 1], parts);
            let steps = Mma { shape, fragments, ..tiles }.steps(product.spec()).finish().unwrap();
            let schedule = Schedule::new(product.program().unwrap(), target, steps);
            let instruction = format!("mma.m{}n8k{}", shape[0], shape[1]);
            assert!(print(&right(&schedule)).contains(&instruction), "{schedule}");
        }
    }
}

/// An operand across k comes through registers where its rows are aligned; where neither lies along k, a kernel transposes the other. A sample of the
/// sizes and layouts, and always the last.
#[test]
fn operands_of_tf32_across_k_come_to_wgmma_through_registers() {
    for (at, size) in [[256, 512, 128], [200, 336, 72], [132, 68, 36]].into_iter().enumerate() {
        for layout in [Layout::NN, Layout::TN, Layout::TT] {
            if (at, layout) != (2, Layout::TT) && !drawn(&format!("registers {at} {layout:?}"), 4) {
                continue;
            }
            let schedule = Kind::Wgmma.schedule(&gemm(size, DType::Tf32, layout), &Target::sm_90a()).unwrap();
            let text = schedule.to_string();
            assert!(text.contains("wgmma_rs.m64n"), "{text}");
            let packed = ["A", "B"].into_iter().filter(|n| text.contains(&format!("global -> {n}_pack\n"))).count();
            assert_eq!(packed, usize::from(layout == Layout::TN), "{text}");
            right(&schedule);
        }
    }
}

/// Bytes across k come through registers without workspace: each mix of types, results of 32, 16 and 8 bits, whole tiles and parts of them. A sample
/// of the cases, and the first of the smallest size.
#[test]
fn operands_of_bytes_across_k_come_to_wgmma_through_registers() {
    let integers = [(DType::S8, DType::S8), (DType::U8, DType::S8), (DType::S8, DType::U8)];
    let floats = [(DType::E4m3, DType::E4m3), (DType::E5m2, DType::E4m3), (DType::E4m3, DType::E5m2)];
    let results = [DType::F32, DType::F16, DType::Bf16, DType::E4m3];
    let sums = integers.map(|pair| (pair, DType::S32, DType::S32));
    let types = sums.into_iter().chain(floats.into_iter().flat_map(|pair| results.map(|out| (pair, DType::F32, out))));
    let sizes = [[256, 512, 256], [208, 336, 144], [144, 80, 48], [512, 128, 640]];
    let cases = types.flat_map(|t| [Layout::NN, Layout::TT].map(|l| (t, l))).flat_map(|c| sizes.map(|s| (c, s)));
    for (n, ((((a, b), acc, out), layout), size)) in
        cases.enumerate().filter(|(n, _)| *n == 2 || drawn(&format!("bytes {n}"), 36))
    {
        let [m, n_, k] = size;
        let program = te::parse(&format!("gemm {m}x{n_}x{k} {a}*{b}>{acc}>{out} {layout:?}")).unwrap();
        let product = describe(&program).unwrap();
        let (target, wide) = (Target::sm_90a(), [64, 128, 256][n % 3]);
        let (swap_ab, block) = match layout {
            Layout::NN => (SwapAb::Swapped, [wide, 128]),
            _ => (SwapAb::Straight, [128, wide]),
        };
        let plain = Wgmma::of(product.spec(), block, 2, &target);
        let tiles = Wgmma { swap_ab, rows_in_registers: true, cluster: [1, 1], routes: [Source::Direct; 2], ..plain };
        let tiles = Wgmma { stages: 3, in_flight: 1, ..tiles };
        let steps = tiles.steps(product.spec()).finish().unwrap();
        let schedule = Schedule::new(product.program().unwrap(), target, steps);
        let (name, text) = (format!("{n} {wide}"), schedule.to_string());
        assert!(text.contains("ldmatrix.trans.quads.m32n64") && text.contains("wgmma_rs.m64n"), "{name} {text}");
        assert!(!text.contains("_pack"), "{name} {text}");
        right(&schedule);
    }
}

/// A case of 192 columns of bytes of which C has 80: the second of two boxes in which they are stored lies beyond C.
const BEYOND: usize = 180;

/// Where neither operand runs along k, one comes through registers and the other is transposed in shared memory by warps of its own: whole tiles whose results leave
/// from registers, and ragged ones. A sample of the cases.
#[test]
fn operands_of_bytes_across_k_are_transposed_for_wgmma() {
    let integers = [((DType::S8, DType::U8), DType::S32, DType::S32), ((DType::U8, DType::U8), DType::S32, DType::S32)];
    let floats = [DType::F32, DType::F16, DType::E4m3].map(|out| ((DType::E4m3, DType::E5m2), DType::F32, out));
    let types = integers.into_iter().chain(floats).chain([((DType::E5m2, DType::E5m2), DType::F16, DType::F16)]);
    let tiles = [([256, 128], 128), ([128, 256], 64), ([128, 192], 64), ([128, 128], 128), ([128, 64], 64)];
    let sizes = [[256, 256, 256], [384, 128, 144], [144, 80, 48], [272, 272, 160]];
    let cases = types.flat_map(|t| tiles.map(|tile| (t, tile))).flat_map(|c| sizes.map(|s| (c, s)));
    let cases = cases.flat_map(|c| [SwapAb::Straight, SwapAb::Swapped].map(|s| (c, s)));
    for (n, (((((a, b), acc, out), ([tall, wide], bk)), size), swap_ab)) in
        cases.enumerate().filter(|(n, _)| *n == BEYOND || drawn(&format!("transposed {n}"), 96))
    {
        let [m, n_, k] = size;
        let program = te::parse(&format!("gemm {m}x{n_}x{k} {a}*{b}>{acc}>{out} TN")).unwrap();
        let (product, target) = (describe(&program).unwrap(), Target::sm_90a());
        let block = if swap_ab.is_swapped() { [wide, tall] } else { [tall, wide] };
        let plain = Wgmma::of(product.spec(), block, 2, &target);
        let whole = m % block[0] == 0 && n_ % block[1] == 0;
        let epilogue = if whole { Epilogue::Direct } else { plain.epilogue };
        let tiles = Wgmma { swap_ab, rows_in_registers: true, cluster: [1, 1], routes: [Source::Direct; 2], ..plain };
        let tiles = Wgmma { bk, stages: 3, in_flight: 1, producer: true, epilogue, out_stages: 1, ..tiles };
        let steps = tiles.steps(product.spec()).finish().unwrap();
        let schedule = Schedule::new(product.program().unwrap(), target, steps);
        let (name, text) = (format!("{n} {tall}x{wide}"), schedule.to_string());
        assert!(text.contains("-> transpose warps=") && text.contains("wgmma_rs.m64n"), "{name} {text}");
        assert!(!text.contains("_pack"), "{name} {text}");
        right(&schedule);
    }
}

/// The same for mma.sync, where both operands may run across k, with long sums and epilogues. Batches have other steps. All cases are counted. The
/// first is run, and a sample of the others.
#[test]
fn operands_of_bytes_across_k_come_to_mma_through_registers() {
    let chips = [
        (Target::sm_80(), "s8*u8>s32"),
        (Target::sm_86(), "u8>s32"),
        (Target::sm_89(), "e4m3>f32>f16"),
        (Target::sm_89(), "e5m2*e4m3>f32"),
        (Target::sm_90(), "s8>s32"),
    ];
    let rest = [
        ("128x96x128", ""),
        ("100x112x64", ""),
        ("64x48x80", "batch"),
        ("32x64x2048", ""),
        ("80x144x96", "bias relu"),
        ("48x48x160", "row_scales column_scales"),
    ];
    let cases = chips.into_iter().flat_map(|c| [Layout::NN, Layout::TN, Layout::TT].map(|l| (c, l)));
    let cases = cases.flat_map(|c| rest.map(|r| (c, r)));
    let (mut transposed, mut tried) = (0, 0);
    for (n, (((target, types), layout), (size, epilogue))) in cases.enumerate() {
        // Rows of 100 bytes are read by no copy of 16.
        let size = if layout.a_transposed() { size.replace("100", "112") } else { size.to_string() };
        let (epilogue, batch) = if epilogue == "batch" { ("", true) } else { (epilogue, false) };
        let types = if epilogue.is_empty() { types.to_string() } else { types.replace(">s32", ">s32>f16") };
        let program = te::parse(&format!("gemm {size} {types} {layout:?} {epilogue}")).unwrap();
        let product = describe(&program).unwrap_or_else(|| panic!("{size} {types} {epilogue}"));
        let product = if batch { product.batch(2) } else { product };
        let schedule = recommend_without_workspace(&product, &target).unwrap();
        let text = schedule.to_string();
        assert!(!text.contains("_pack"), "{n} {text}");
        tried += 1;
        transposed += u32::from(text.contains("ldmatrix.trans.quads.m32n16") || text.contains("ldmatrix.trans.m32n16"));
        if n == 0 || drawn(&format!("transposed for mma {n}"), 15) {
            right(&schedule);
        }
    }
    assert!(transposed * 2 > tried, "{transposed} of {tried}");
}

/// What an epilogue makes of accumulators whose rows have another order than the operand's.
#[test]
fn an_epilogue_follows_operands_in_registers() {
    for layout in [Layout::NN, Layout::TT] {
        let product = gemm([256, 256, 64], DType::Tf32, layout).bias(Along::Columns).activation(Activation::Relu);
        let schedule = Kind::Wgmma.schedule(&product, &Target::sm_90a()).unwrap();
        assert!(schedule.to_string().contains("wgmma_rs.m64n"), "{schedule}");
        right(&schedule);
    }
}

#[test]
fn rows_that_copies_do_not_read_are_packed() {
    for layout in Layout::ALL {
        let product = gemm([131, 61, 37], DType::Tf32, layout);
        let schedule = Kind::Wgmma.schedule(&product, &Target::sm_90a()).unwrap();
        assert!(print(&right(&schedule)).contains(" wgmma.m64n"), "{schedule}");
    }
}

/// A sample of the products, and the first.
#[test]
fn large_products_of_f64_and_tf32_come_to_tensor_cores_and_assemble_clean() {
    let tools = tools();
    for (dtype, layout) in [DType::F64, DType::Tf32].into_iter().flat_map(|d| Layout::ALL.map(|l| (d, l))) {
        for target in [Target::sm_80(), Target::sm_90(), Target::sm_90a()] {
            let sizes = [[4096; 3], [1500; 3], [4095, 4097, 4099]];
            let is_first = (dtype, layout, target) == (DType::F64, Layout::NN, Target::sm_80());
            let tried = |size: &[i64; 3]| {
                is_first && size[0] == 4096 || drawn(&format!("{size:?} {dtype} {layout:?} {target}"), 12)
            };
            for size in sizes.into_iter().filter(tried) {
                let schedule = recommend(&gemm(size, dtype, layout), &target).unwrap();
                let lowered = lowered(&schedule);
                let by = ["mma.m16n8", "mma.m8n8k4", "wgmma"];
                assert!(by.iter().any(|instruction| print(&lowered).contains(instruction)), "{schedule}");
                assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{schedule}\n{e}"));
            }
        }
    }
}

/// C by the steps that are recommended for a program whose product's operands are made from A and B.
fn computed(operands: &str, k: usize, arguments: &[Array]) -> Array {
    let text = format!(
        "program p\ninput A f32[48, 40]; input B f32[40, 56]\n{operands}
         C: output C[i 48, j 56] f32 = sum(k {k}) f32(A3[i, k])*f32(B3[k, j])\ntarget sm_90\nrecommend"
    );
    let mut after = arguments.to_vec();
    run_lowered(&lowered(&Schedule::parse(&text).unwrap()), Mode::Real, &mut after).unwrap();
    after.pop().unwrap()
}

/// The sum of three products of tf32 is as near as a sum in f32 may be, that of one is not.
#[test]
fn three_products_of_tf32_have_the_accuracy_of_f32() {
    let arguments = [
        Array::random(DType::F32, &[48, 40], 1).unwrap(),
        Array::random(DType::F32, &[40, 56], 2).unwrap(),
        Array::poisoned(DType::F32, &[48, 56]).unwrap(),
    ];
    let plain = Gemm::new(48, 56, 40).of(DType::F32).program().unwrap();
    let expected = outputs(&plain, &arguments, Sample::All).unwrap();
    let rest = |x: &str| format!("{x} - f32(tf32({x}))");
    let (a, b) = ("A[i, k % 40]", "B[k % 40, j]");
    let three = format!(
        "A3: A3[i 48, k 120] tf32 = tf32(select(k >= 40 and k < 80, {}, {a}))
         B3: B3[k 120, j 56] tf32 = tf32(select(k >= 80, {}, {b}))",
        rest(a),
        rest(b)
    );
    assert!(expected[0].bound(&computed(&three, 120, &arguments)).unwrap().ratio < 1.0);
    let one = "A3: A3[i 48, k 40] tf32 = tf32(A[i, k])\nB3: B3[k 40, j 56] tf32 = tf32(B[k, j])";
    assert!(expected[0].bound(&computed(one, 40, &arguments)).is_err());
}
