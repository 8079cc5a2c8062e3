//! The step `skew` with TMA copies: boxes that step over rows, and a GEMM whose k loop begins earlier by a shift that depends on
//! the row. The windows reach beyond both ends of A and B, and no element of a neighbouring row enters a sum.

use crate::tensor::{arguments, right};
use warploom::lower::{Lowered, TensorMap};
use warploom::sim::{Mode, Options, Policy, run_lowered_with};
use warploom::te::Layout;
use warploom::{Array, DType, Schedule};

/// Every third row of an array through shared memory.
const GATHERED: &str = "program every
  input A f32[33, 32]
  X: X[i 11, j 32] f32 = A[i*3 + 1, j]
  Y: output Y[i 11, j 32] f32 = X[i, j] * 2.0
target sm_90
set_scope X shared
bind Y_j threadIdx.x
split Y_i ? 4 -> a b; bind a blockIdx.x
compute_at X a; copy_with X tma
";

/// Rows that are equal modulo 4, into shared memory and out of it.
const BOTH_WAYS: &str = "program rows
  input A f32[36, 32]
  B: output B[i 36, j 32] f32 = A[i, j] * 2.0
target sm_90
transform_block_layout B [i] -> [i % 4, i // 4] -> s q
bind s blockIdx.x
cache_read B A shared -> A_s
transform_layout A_s [i, j] -> [i % 4, i // 4, j]
transform_block_layout A_s [A_s_0] -> [A_s_0 % 4, A_s_0 // 4]
compute_at A_s s; copy_with A_s tma
cache_write B B shared -> B_s
transform_layout B_s [i, j] -> [i % 4, i // 4, j]
transform_block_layout B_s [B_s_0] -> [B_s_0 % 4, B_s_0 // 4]
reverse_compute_at B_s s; copy_with B_s tma
bind j threadIdx.x
";

/// Of each map the extents, the strides and the box.
fn maps(lowered: &Lowered) -> Vec<[Vec<i64>; 3]> {
    let of = |m: &TensorMap| [m.extents.clone(), m.strides.clone(), m.tile.clone()];
    lowered.kernels[0].maps.iter().map(of).collect()
}

#[test]
fn boxes_step_over_rows() {
    let found = right(&Schedule::parse(GATHERED).unwrap());
    assert_eq!(maps(&found), [[vec![11, 3, 32], vec![96, 32, 1], vec![4, 1, 32]]]);
    let found = right(&Schedule::parse(BOTH_WAYS).unwrap());
    let rows = [vec![9, 4, 32], vec![128, 32, 1], vec![9, 1, 32]];
    assert_eq!(maps(&found), [rows.clone(), rows]);
}

/// Where the step does not divide the array, each row has a copy of its own: a box would reach beyond the last row.
#[test]
fn steps_that_do_not_divide_are_copied_row_by_row() {
    let found = right(&Schedule::parse(&GATHERED.replace("33", "34")).unwrap());
    assert_eq!(maps(&found), [[vec![34, 32], vec![32, 1], vec![1, 32]]]);
}

/// Steps of a GEMM by wgmma in blocks of 64 x 64 whose rows are equal modulo PERIOD, for which k begins SHIFT * row earlier.
const STEPS: &str = "target sm_90a
pad mma i=ROWS j=64 -> A_pad B_pad acc_pad; compute_inline acc_pad
pad out out_i=ROWS out_j=64 -> acc_out C_pad; compute_inline acc_out
transform_block_layout A_pad [A_pad_0] -> [A_pad_0 % PERIOD, A_pad_0 // PERIOD]
transform_block_layout out [out_i] -> [out_i % PERIOD, out_i // PERIOD]
transform_block_layout C_pad [C_pad_0] -> [C_pad_0 % PERIOD, C_pad_0 // PERIOD]
transform_layout A_pad [i, k] -> [i % PERIOD, i // PERIOD, k]
transform_layout acc_pad [i, j] -> [i % PERIOD, i // PERIOD, j]
transform_layout C_pad [i, j] -> [i % PERIOD, i // PERIOD, j]
transform_block_layout mma [i] -> [i % PERIOD, i // PERIOD] -> s q
skew mma k [s] -> [s * SHIFT % 64] multiple=64 -> A_skew B_skew
split q ? 1 64 -> i0 iw im; split j ? 64 -> j0 jn
split k ? 4 16 -> k0 kk ki; reorder s i0 j0 iw k0 kk im jn ki
fuse s i0 -> si; rasterize si j0 group=8 -> tile; bind tile blockIdx.x; bind iw warpgroup
cache_read mma A_skew shared -> A_s; compute_at A_s k0; compute_inline A_skew; compute_inline A_pad
swizzle A_s 128; copy_with A_s tma
cache_read mma B_skew shared -> B_s; compute_at B_s k0; compute_inline B_skew; compute_inline B_pad
swizzle B_s 128; copy_with B_s tma
set_scope acc_pad fragment
cache_write out C_pad shared -> C_s; cache_write out C_s fragment -> C_f
reverse_compute_at out iw -> e0 en; split en ? 64 -> ep e1; reorder ep e0 e1
reverse_compute_at C_f ep -> f0 f1
split f0 ? 16 -> fw fr; split f1 ? 16 -> fc fi; reorder fw fc fr fi; bind fw warp
tensorize fr stmatrix.m16n16.DTYPE; swizzle C_s 128
reverse_compute_at C_s ep -> s0 s1; copy_with C_s tma; pipeline ep stages=2
reverse_compute_inline C_pad
tensorize im wgmma.m64n64k16.f32.DTYPE.DTYPE m=im n=jn k=ki
pipeline k0 stages=3 in_flight=1
";

/// A GEMM whose rows of A begin at the same offset in a 128-byte line every `period` rows.
fn product([m, n, k]: [i64; 3], period: i64, dtype: DType, layout: Layout) -> Schedule {
    let steps = STEPS
        .replace("ROWS", &(64 * period).to_string())
        .replace("PERIOD", &period.to_string())
        .replace("SHIFT", &(k % 64).to_string())
        .replace("DTYPE", &dtype.to_string());
    let program = format!("gemm {m}x{n}x{k} {dtype}>f32>{dtype} {}\n", layout.name());
    Schedule::parse(&(program + &steps)).unwrap_or_else(|e| panic!("{m}x{n}x{k}: {e}"))
}

/// k shorter than the shift, one period of rows, whole tiles, and sizes that tiles do not divide.
#[test]
fn skewed_gemms_are_right() {
    let cases = [
        ([8, 64, 8], 8, DType::F16, Layout::NN),
        ([8, 8, 40], 8, DType::Bf16, Layout::NT),
        ([24, 72, 72], 8, DType::F16, Layout::NT),
        ([1040, 16, 24], 8, DType::F16, Layout::NN),
        ([512, 64, 136], 8, DType::Bf16, Layout::NN),
        ([12, 40, 80], 4, DType::F16, Layout::NN),
        ([260, 64, 16], 4, DType::Bf16, Layout::NT),
        ([2, 136, 96], 2, DType::F16, Layout::NT),
        ([130, 64, 160], 2, DType::F16, Layout::NN),
    ];
    for (size, period, dtype, layout) in cases {
        let found = right(&product(size, period, dtype, layout));
        let [m, n, k] = size;
        let a = [vec![m / period, period, k], vec![period * k, k, 1], vec![64, 1, 64]];
        let c = [vec![m / period, period, n], vec![period * n, n, 1], vec![64, 1, 64]];
        let all = maps(&found);
        assert!(all.len() == 3 && all[0] == a && all[2] == c, "{size:?}: {all:?}");
    }
}

/// A NaN in a row of A changes that row of C alone, and a NaN in a column of B that column: the windows read memory of neighbouring
/// rows, and these elements enter no sum.
#[test]
fn no_element_of_a_neighbouring_row_enters_a_sum() {
    for (layout, [m, n, k]) in [(Layout::NN, [24, 40, 72]), (Layout::NT, [24, 72, 40])] {
        let schedule = product([m, n, k], 8, DType::F16, layout);
        let lowered = right(&schedule);
        let run = |args: &[Array], policy| {
            let mut args = args.to_vec();
            args[2] = Array::poisoned(DType::F16, &[m as usize, n as usize]).unwrap();
            let options = Options::new(Mode::Real).with_policy(policy);
            run_lowered_with(&lowered, &options, &mut args).unwrap();
            args.remove(2)
        };
        let mut args: Vec<Array> = arguments(&schedule);
        let clean = run(&args, Policy::InOrder);
        let (rows, columns) = ([3, 9, 10, 23], [0, 7, 8, 31]);
        for t in 0..k {
            for (i, bad) in rows.into_iter().zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]) {
                args[0].set((i * k + t) as usize, bad);
            }
            for j in columns {
                let at = if layout == Layout::NN { t * n + j } else { j * k + t };
                args[1].set(at as usize, f64::NAN);
            }
        }
        for policy in [Policy::InOrder, Policy::Random(3)] {
            let spoilt = run(&args, policy);
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let at = (i * n + j) as usize;
                match rows.contains(&i) || columns.contains(&j) {
                    true => assert!(!spoilt.get(at).is_finite(), "C[{i}, {j}] = {}", spoilt.get(at)),
                    false => assert_eq!(spoilt.get(at), clean.get(at), "C[{i}, {j}], {layout:?}"),
                }
            }
        }
    }
}
