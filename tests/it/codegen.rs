//! What the PTX looks like: instructions, launch bounds, comments, and what is refused.

use super::handmade::{self, Make};
use warploom::DType;
use warploom::codegen::compile;
use warploom::error::Fault;
use warploom::ir::{Axis, Cond, Expr, Index, UnOp};
use warploom::lower::Lowered;
use warploom::target::Target;

fn ptx(lowered: &Lowered, target: Target) -> String {
    compile(lowered, &target).unwrap_or_else(|e| panic!("{}: {e}", lowered.name)).text
}

fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn every_chip_gets_its_name_and_the_lowest_version() {
    let versions = ["6.0", "6.3", "7.0", "7.1", "7.8", "7.8", "8.0"];
    for (target, version) in Target::ALL.into_iter().zip(versions) {
        for lowered in handmade::all() {
            let text = ptx(&lowered, target);
            holds(&text, &[&format!(".version {version}\n"), &format!(".target {target}\n")]);
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for lowered in handmade::all() {
        assert_eq!(compile(&lowered, &Target::sm_90()), compile(&lowered, &Target::sm_90()));
    }
}

#[test]
fn the_launch_is_described_and_bounded() {
    let kernels = compile(&handmade::tiled_gemm("gemm", DType::F32, 4), &Target::sm_80()).unwrap();
    let kernel = &kernels.kernels[0];
    assert_eq!((kernel.entry.as_str(), kernel.grid, kernel.block), ("gemm", [16, 16, 1], [16, 16, 1]));
    assert_eq!(kernel.shared_bytes, 2 * 64 * 16 * 4);
    assert_eq!(kernels.args.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["A", "B", "C"]);
    holds(
        &kernels.text,
        &[".reqntid 16, 16, 1", ".minnctapersm 1", ".extern .shared .align 1024 .b8 shared_memory[];"],
    );
}

/// Names that PTX or the module defines are no entries; what users read has the program's own name.
#[test]
fn entries_are_names_that_ptx_leaves_free() {
    for name in ["WARP_SZ", "shared_memory", "add", "_"] {
        let text = format!(
            "program {name}\ninput A f32[4]\noutput B[i 4] f32 = exp(A[i])\ntarget sm_80\nbind i threadIdx.x
             cache_read B A shared -> S\ncompute_at S i"
        );
        let schedule = warploom::Schedule::parse(&text).unwrap();
        let kernels = warploom::compile(&schedule).unwrap();
        let entry = &kernels.kernels[0].entry;
        assert_eq!((kernels.name.as_str(), entry != "WARP_SZ" && entry != "shared_memory"), (name, true), "{entry}");
        holds(&kernels.text, &[&format!(".visible .entry {entry}("), &format!("// kernel {name}")]);
    }
}

#[test]
fn indices_are_32_bits_and_guards_are_kept() {
    let text = ptx(&handmade::vec_add(), Target::sm_80());
    holds(&text, &["setp.gt.u32", "mul.wide.u32", "ld.global.nc.f32", "add.rn.f32", "st.global.f32"]);
}

#[test]
fn offsets_beyond_32_bits_are_exact() {
    let mut k = Make::new("far");
    let (bx, tx) = (k.axis(Axis::BlockX, 1 << 20), k.axis(Axis::ThreadX, 1024));
    let [a, b] = ["A", "B"].map(|n| k.param(n, DType::F32, 8 << 30));
    let at = bx * 8192 + tx * 8;
    let text = ptx(&k.done(vec![handmade::store(b, at.clone(), handmade::load(a, at))]), Target::sm_80());
    // 2^20 blocks times 8192 elements do not fit: the block's part is computed in 64 bits.
    holds(&text, &["u64", "ld.global.nc.f32"]);
    assert!(!text.contains("shl.b32 \t%r3, %r1, 13"), "{text}");
}

#[test]
fn wide_accesses_are_one_instruction() {
    holds(&ptx(&handmade::copy(), Target::sm_75()), &["ld.global.nc.v4", "st.global.v4"]);
}

#[test]
fn sums_of_products_stay_in_registers_and_are_fused() {
    let naive = ptx(&handmade::naive_gemm(), Target::sm_80());
    // Eight iterations a trip; the sum is written once, after the loop.
    assert_eq!(naive.matches("fma.rn.f32").count(), 8, "{naive}");
    assert_eq!(naive.matches("st.global").count(), 1, "{naive}");
    let tiled = ptx(&handmade::tiled_gemm("gemm", DType::F32, 4), Target::sm_80());
    assert_eq!(tiled.matches("fma.rn.f32").count(), 16 * 16, "{tiled}");
    assert_eq!(tiled.matches("bar.sync").count(), 2, "{tiled}");
    holds(&tiled, &["ld.shared.v4.f32", "st.shared.v4.f32"]);
    assert!(!tiled.contains(".local"), "{tiled}");
}

#[test]
fn every_second_pass_of_a_zigzag_loop_runs_backwards() {
    let text = "program p\ninput A f32[4, 2]\nC: output C[j 4, i 2] f32 = A[j, i] + 1.0\ntarget sm_80\n\
                bind i threadIdx.x; split j 2 2 -> a b; unroll a; unroll b; annotate b zigzag 1";
    let kernels = warploom::compile(&text.parse().unwrap()).unwrap();
    let stores = kernels.ptx().lines().filter(|l| l.contains("st.global.f32"));
    let offsets: Vec<_> =
        stores.map(|l| l.split(']').next().and_then(|l| l.split('+').nth(1)).unwrap_or("0")).collect();
    assert_eq!(offsets, ["0", "8", "24", "16"], "{}", kernels.ptx());
}

#[test]
fn comments_lead_back_to_the_program() {
    let text = ptx(&handmade::naive_gemm(), Target::sm_80());
    holds(
        &text,
        &[
            "// kernel naive_gemm: grid 64 x 32 x 1, block 16 x 16 x 1, 0 bytes shared\n",
            "//     block C_update\n",
            "// loop k in 0..2048, 8 at a time: C_update\n",
        ],
    );
    holds(&ptx(&handmade::vec_add(), Target::sm_80()), &["// where blockIdx.x*128 + threadIdx.x < 1000\n"]);
}

#[test]
fn a_guarded_read_is_behind_a_branch() {
    let mut k = Make::new("padded");
    let tx = k.axis(Axis::ThreadX, 128);
    let (a, b) = (k.param("A", DType::F32, 100), k.param("B", DType::F32, 128));
    let inside = Expr::Cond(Box::new(Cond::lt(tx, 100)));
    let value = Expr::select(inside, handmade::load(a, tx), Expr::constant(DType::F32, 0.0));
    let text = ptx(&k.done(vec![handmade::store(b, tx, value)]), Target::sm_80());
    let (branch, load) = (text.find("bra").unwrap(), text.find("ld.global").unwrap());
    assert!(branch < load, "{text}");
}

#[test]
fn names_become_identifiers() {
    let mut k = Make::new("3 gemms/b");
    let tx = k.axis(Axis::ThreadX, 32);
    let a = k.param("A", DType::F32, 32);
    let mut lowered = k.done(vec![handmade::store(a, tx, Expr::constant(DType::F32, 1.0))]);
    lowered.kernels.push(lowered.kernels[0].clone());
    let kernels = compile(&lowered, &Target::sm_80()).unwrap();
    let entries: Vec<&str> = kernels.kernels.iter().map(|k| k.entry.as_str()).collect();
    assert_eq!(entries, ["kernel_3_gemms_b", "kernel_3_gemms_b_"]);
    entries.iter().for_each(|e| holds(&kernels.text, &[&format!(".visible .entry {e}(")]));
}

fn refused(lowered: &Lowered) -> (Fault, String) {
    match compile(lowered, &Target::sm_80()) {
        Err(e) => (e.fault(), e.code().to_string()),
        Ok(k) => panic!("compiled:\n{}", k.text),
    }
}

/// A kernel of one store that is wrong in some way.
fn wrong(dtype: DType, index: impl FnOnce(&mut Make) -> Index, value: Expr) -> Lowered {
    let mut k = Make::new("wrong");
    k.axis(Axis::ThreadX, 32);
    let out = k.local("out", dtype, 4);
    let index = index(&mut k);
    k.done(vec![handmade::store(out, index, value)])
}

#[test]
fn what_cannot_be_translated_is_an_error_and_nothing_worse() {
    let one = || Expr::constant(DType::F32, 1.0);
    let zero = |_: &mut Make| Index::Int(0);
    let bug = |code: &str| (Fault::Bug, code.to_string());
    // A value of another type, an operation that the type lacks, a register outside, a variable of no loop.
    assert_eq!(refused(&wrong(DType::S32, zero, one())), bug("codegen.llvm"));
    assert_eq!(refused(&wrong(DType::F32, zero, Expr::un(UnOp::Not, one()))), bug("codegen.llvm"));
    assert_eq!(refused(&wrong(DType::F32, |_| Index::Int(4), one())), bug("codegen.llvm"));
    assert_eq!(refused(&wrong(DType::F32, |k| k.var("x").into(), one())), bug("codegen.llvm"));
    let mixed = Expr::bin(warploom::ir::BinOp::Add, one(), Expr::constant(DType::S32, 1.0));
    assert_eq!(refused(&wrong(DType::F32, zero, mixed)), bug("codegen.llvm"));
}

#[test]
fn a_kernel_that_is_too_long_to_write_out_is_refused() {
    let mut k = Make::new("long");
    let tx = k.axis(Axis::ThreadX, 32);
    let [i, j] = ["i", "j"].map(|n| k.var(n));
    let out = k.param("out", DType::F32, 32);
    let body = vec![handmade::store(out, tx, Expr::constant(DType::F32, 0.0))];
    let long = k.done(vec![handmade::unrolled(i, 1 << 20, vec![handmade::unrolled(j, 1 << 20, body)])]);
    assert_eq!(refused(&long), (Fault::Bug, "codegen.size".to_string()));
}

/// What a launch checks is what the program says, not what the kernels see.
#[test]
fn arguments_have_the_shapes_and_strides_of_the_parameters() {
    let text = "program apart\ninput A f32[100, 60] strides [128, 1]\n\
                output B[i 60, j 100] f32 = A[j, i]\ntarget sm_80\nbind i blockIdx.x; bind j threadIdx.x\n";
    let kernels = warploom::compile(&text.parse().unwrap()).unwrap();
    let of = |n: usize| (&kernels.args[n].shape[..], &kernels.args[n].strides[..], kernels.args[n].bytes);
    assert_eq!(of(0), (&[100, 60][..], &[128, 1][..], 4 * (99 * 128 + 60)));
    assert_eq!(of(1), (&[60, 100][..], &[100, 1][..], 4 * 6000));
}
