//! Programs that no example has: further blocks behind a matrix product, batches, reductions other than sums, several
//! kernels with memory between them, and products of every type in every layout.

use crate::sample::drawn;
use std::fmt::Write;
use warploom::gemm::Kind;
use warploom::lower::{Lowered, lower};
use warploom::reference::{Sample, outputs};
use warploom::sim::{Mode, integers, naive_integers, run_lowered};
use warploom::te::Layout;
use warploom::{Array, DType, Gemm, Result, Schedule, Target, codegen, gemm};

/// With the number of kernels that they come to.
pub const PROGRAMS: [(&str, usize, &str); 10] = [
    (
        "blocks behind blocks, with memory between",
        6,
        "gemm 33x18x9 f16>f32>f16 TT bias gelu scale 0.5 residual\ntarget sm_80",
    ),
    (
        "elementwise blocks inlined into the last",
        1,
        "gemm 65x70x33 f16>f32>f16 NT bias relu residual
         target sm_80
         compute_inline add_bias; compute_inline relu; compute_inline add_residual
         set_scope acc local
         split i ? 8 4 -> i_0 i_1 i_2; split j ? 8 4 -> j_0 j_1 j_2; split k ? 8 -> k_0 k_1
         reorder i_0 j_0 i_1 j_1 k_0 k_1 i_2 j_2
         bind i_0 blockIdx.y; bind j_0 blockIdx.x; bind i_1 threadIdx.y; bind j_1 threadIdx.x
         reverse_compute_at out j_1
         cache_read mma A shared -> A_s; compute_at A_s k_0 -> a_0 a_1
         fuse a_0 a_1 -> a; split a ? 8 8 -> a_r a_y a_x; bind a_y threadIdx.y; bind a_x threadIdx.x",
    ),
    (
        "integers behind integers",
        1,
        "gemm 20x12x30 s8>s32>s8 NN bias scale 3 relu
         target sm_80
         compute_inline add_bias; compute_inline scale; compute_inline relu
         set_scope acc local
         bind i blockIdx.x; bind j threadIdx.x; reverse_compute_at out j",
    ),
    ("a batch, unscheduled", 1, "batched_gemm 3x17x10x9 f32 NT\ntarget sm_70"),
    (
        "a batch over blockIdx.z",
        1,
        "batched_gemm 3x33x30x9 f16>f32>f16 TN
         target sm_80
         set_scope acc local
         split i ? 8 2 -> i_0 i_1 i_2; split j ? 8 2 -> j_0 j_1 j_2
         reorder b i_0 j_0 i_1 j_1 k i_2 j_2
         bind b blockIdx.z; bind i_0 blockIdx.y; bind j_0 blockIdx.x; bind i_1 threadIdx.y; bind j_1 threadIdx.x
         reverse_compute_at out j_1",
    ),
    (
        "blocks walked in groups, the last of them lower",
        1,
        "gemm 38x20x9 f32 NT
         target sm_80
         cache_write C C local -> C_l
         split i ? 4 2 -> i_0 i_1 i_2; split j ? 4 -> j_0 j_1; split k ? 4 -> k_0 k_1
         reorder i_0 j_0 i_1 j_1 k_0 k_1 i_2
         rasterize i_0 j_0 group=2 -> tile
         bind tile blockIdx.x; bind i_1 threadIdx.y; bind j_1 threadIdx.x
         reverse_compute_at C_l j_1
         cache_read C A shared -> A_s; compute_at A_s k_0 -> a_0 a_1
         fuse a_0 a_1 -> a; split a ? 4 4 -> a_r a_y a_x; bind a_y threadIdx.y; bind a_x threadIdx.x",
    ),
    (
        "a maximum of maxima",
        2,
        "program row_max
           input A f32[40, 101]
           m: output M[i 40] f32 = max(k 101) A[i, k]
         target sm_70
         split k ? 25 -> k_0 k_1
         rfactor m k_0 -> part
         bind i blockIdx.x; bind k_0 threadIdx.x; bind m_0 threadIdx.x",
    ),
    (
        "a sum in parts, and their combination before the epilogue",
        2,
        "gemm 20x32x37 f16>f32>f16 TN bias relu
         target sm_80
         compute_inline add_bias; compute_inline relu
         split k ? 4 -> k0 k1
         split_k k0 3 -> part s ci cj cs
         set_scope acc local
         bind s blockIdx.z; bind i blockIdx.x; bind j threadIdx.x
         split out_j ? 8 4 -> b t v
         bind out_i blockIdx.y; bind b blockIdx.x; bind t threadIdx.x
         compute_at mma t",
    ),
    (
        "a minimum over shared memory",
        1,
        "program row_min
           input A s32[40, 100]
           m: output M[i 40] s32 = min(k 100) A[i, k]
         target sm_70
         cache_read m A shared -> A_s
         bind i blockIdx.x
         compute_at A_s i -> a; bind a threadIdx.x",
    ),
    (
        "softmax in one kernel",
        1,
        "program softmax
           input A f32[20, 100]
           m: M[i 20] f32 = max(k 100) A[i, k]
           s: S[i 20] f32 = sum(k 100) exp(A[i, k] - M[i])
           o: output O[i 20, j 100] f32 = exp(A[i, j] - M[i]) / S[i]
         target sm_70
         set_scope M shared; set_scope S shared
         bind o_i blockIdx.x; bind j threadIdx.x
         compute_at s o_i; compute_at m o_i",
    ),
];

type Fill<'a> = &'a dyn Fn(DType, &[usize], u64) -> Result<Array>;

/// Bit-equal in integer mode, exact on small integers (unless functions are computed), within bounds on reals.
fn computes(schedule: &Schedule, lowered: &Lowered, exact: bool) -> Result<()> {
    let naive = naive_integers(&schedule.program, 3)?;
    assert!(naive_integers(&schedule.scheduled()?, 3)? == naive, "the scheduled program differs from the naive one");
    assert!(integers(lowered, 3)? == naive, "the kernels differ from the naive program");
    let shapes: Vec<(DType, Vec<usize>)> = schedule
        .program
        .params
        .iter()
        .map(|p| schedule.program.buffer(*p))
        .map(|b| (b.dtype, b.const_shape().unwrap().iter().map(|n| *n as usize).collect()))
        .collect();
    let arrays = |make: Fill<'_>| -> Result<Vec<Array>> {
        shapes.iter().zip(1..).map(|((dtype, shape), seed)| make(*dtype, shape, seed)).collect()
    };
    if exact {
        let mut args = arrays(&|dtype, shape, seed| Array::random_integers(dtype, shape, 2, seed))?;
        run_lowered(lowered, Mode::Real, &mut args)?;
        for output in outputs(&schedule.program, &args, Sample::All)? {
            output.exact(&args[output.param])?;
        }
    }
    let mut args = arrays(&Array::random)?;
    run_lowered(lowered, Mode::Real, &mut args)?;
    for output in outputs(&schedule.program, &args, Sample::All)? {
        output.bound(&args[output.param])?;
    }
    Ok(())
}

fn for_every_chip(schedule: &Schedule) -> Result<()> {
    for target in Target::ALL {
        let lowered = lower(&schedule.scheduled()?, &target)?;
        let kernels = codegen::compile(&lowered, &target)?;
        assert_eq!(kernels.kernels.len(), lowered.kernels.len());
    }
    Ok(())
}

#[test]
fn programs_compute_what_their_text_says() {
    let mut failures = String::new();
    for (name, kernels, text) in PROGRAMS {
        let functions = text.contains("gelu") || text.contains("exp(");
        let result = Schedule::parse(text).and_then(|schedule| {
            let lowered = lower(&schedule.scheduled()?, &schedule.target)?;
            assert_eq!(lowered.kernels.len(), kernels, "{name}");
            computes(&schedule, &lowered, !functions)?;
            for_every_chip(&schedule)
        });
        if let Err(e) = result {
            writeln!(failures, "{name}: {e}").unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The types that ordinary code computes with, and some of their combinations.
pub fn products() -> Vec<Gemm> {
    let small = Gemm::new(19, 13, 11);
    let mixed = |a, acc, out| small.inputs(a).accumulate(acc).output(out);
    use DType::*;
    [F16, Bf16, F32, F64, S8, U8, S32, U32, S64]
        .map(|dtype| small.of(dtype))
        .into_iter()
        .chain([mixed(F16, F16, F16), mixed(S8, S32, S8), mixed(F32, F64, F32), mixed(S8, F32, Bf16)])
        .collect()
}

#[test]
fn products_of_every_type_and_layout_are_right() {
    let mut failures = String::new();
    for product in products() {
        for layout in Layout::ALL {
            let product = product.layout(layout);
            let result = Kind::Simt.schedule(&product, &Target::sm_80()).and_then(|schedule| {
                computes(&schedule, &lower(&schedule.scheduled()?, &schedule.target)?, true)?;
                // The chips differ in what their types allow, not in how a layout is addressed.
                if layout == Layout::NT { for_every_chip(&schedule) } else { Ok(()) }
            });
            if let Err(e) = result {
                writeln!(failures, "{:?}: {e}", product.spec()).unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The steps recommended for products that fill a chip, on a few tiles.
pub fn tiles_of_large_products() -> Vec<(String, Schedule)> {
    let mut out = Vec::new();
    for (dtype, layout) in [DType::F32, DType::F64].into_iter().flat_map(|d| Layout::ALL.map(|l| (d, l))) {
        for (m, n, k) in [(4096, 4096, 4096), (512, 1024, 512)] {
            let product = Gemm::new(m, n, k).of(dtype).layout(layout);
            let large = gemm::recommend(&product, &Target::sm_90()).unwrap();
            assert!(large.to_string().contains("\npipeline "), "{dtype} {m}x{n}x{k}");
            let name = format!("steps of {m}x{n}x{k} {dtype} {}", layout.name());
            out.push((name, large.resized(&[128, 256, 64]).unwrap()));
        }
    }
    out
}

/// A third of the tiles, as the commit draws them.
#[test]
fn recommended_tiles_of_large_products_are_right() {
    for (name, schedule) in tiles_of_large_products().into_iter().filter(|(name, _)| drawn(name, 3)) {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        computes(&schedule, &lowered, true).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
