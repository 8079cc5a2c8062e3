//! Boxes whose rows lie apart, and tiles of rows that begin alike in the cache's lines: sums begin earlier by a shift of their row,
//! windows reach beyond both ends of both factors, and nothing of neighbouring rows comes in.

use crate::analysis::compare;
use crate::ptxas::{assemble, tools};
use crate::tensor::{arguments, right};
use warploom::analysis::{Cost, cost_report, observe};
use warploom::gemm::{Gemm, Wgmma};
use warploom::lower::{Lowered, TensorMap, lower};
use warploom::sim::{Mode, Options, Policy, run_lowered_with};
use warploom::te::Layout;
use warploom::{Array, DType, Schedule, Target};

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

/// Rows that are alike modulo 4, into shared memory and out of it.
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

/// A step that does not divide the array leaves a copy for each row: what is behind the end would be no row of it.
#[test]
fn steps_that_do_not_divide_are_copied_row_by_row() {
    let found = right(&Schedule::parse(&GATHERED.replace("33", "34")).unwrap());
    assert_eq!(maps(&found), [[vec![34, 32], vec![32, 1], vec![1, 32]]]);
}

/// A product with rows apart, of tiles that the simulator can run.
fn product(size: [i64; 3], dtype: DType, layout: Layout, parts: impl Fn(Wgmma) -> Wgmma) -> Schedule {
    let gemm = Gemm::new(size[0], size[1], size[2]).of(dtype).layout(layout);
    let whole = Wgmma::of(gemm.spec(), [64, 64], 1, &Target::sm_90a());
    let found = parts(Wgmma { stages: 3, in_flight: 1, ..whole }).by_residues(gemm.spec());
    let steps = found.unwrap_or_else(|| panic!("{size:?} {layout:?}")).steps(gemm.spec());
    let steps = warploom::schedule::parse(&steps).unwrap();
    Schedule::new(gemm.program().unwrap(), Target::sm_90a(), steps)
}

/// Sums shorter than the shift, of one period of rows, with whole tiles and with ends of all kinds.
#[test]
fn products_of_rows_apart_are_right() {
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
    for (size, apart, dtype, layout) in cases {
        let found = right(&product(size, dtype, layout, |w| Wgmma { cluster: [1, 1], ..w }));
        let [m, n, k] = size;
        let a = [vec![m / apart, apart, k], vec![apart * k, k, 1], vec![64, 1, 64]];
        let c = [vec![m / apart, apart, n], vec![apart * n, n, 1], vec![64, 1, 64]];
        let all = maps(&found);
        assert!(all.len() == 3 && all[0] == a && all[2] == c, "{size:?}: {all:?}");
    }
}

/// Blocks of a cluster have the same shift, and share what they read of the other factor.
#[test]
fn blocks_of_a_residue_share_tiles() {
    let variants: [fn(Wgmma) -> Wgmma; 4] = [
        |w| Wgmma { cluster: [2, 1], loader: true, ..w },
        |w| Wgmma { cluster: [1, 2], loader: true, persistent: true, ..w },
        |w| Wgmma { block: [128, 64], groups: 2, cluster: [1, 1], loader: true, ..w },
        |w| Wgmma { cluster: [2, 1], loader: false, stages: 2, in_flight: 0, out_stages: 1, group: 0, ..w },
    ];
    for (n, parts) in variants.into_iter().enumerate() {
        let layout = [Layout::NN, Layout::NT][n % 2];
        let text = warploom::lower::print(&right(&product([260, 136, 80], DType::F16, layout, parts)));
        assert_eq!(text.contains("to 2 blocks"), n != 2, "{text}");
        // All blocks of a cluster begin a slot at the same terms.
        assert!(text.contains(" <- B(") && !text.contains("k0*64 - cluster"), "{text}");
    }
}

/// Rows of A that are not numbers spoil their rows of C and nothing else, and columns of B their columns: what windows reach beyond
/// a row is in the memory of its neighbours.
#[test]
fn neighbours_do_not_come_in() {
    for (layout, [m, n, k]) in [(Layout::NN, [24, 40, 72]), (Layout::NT, [24, 72, 40])] {
        let schedule = product([m, n, k], DType::F16, layout, |w| w);
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

/// Each row of a box of A is one line, where neighbouring rows take two; the simulator counts the same.
#[test]
fn rows_apart_are_read_line_by_line() {
    let lines = |schedule: &Schedule, compared: bool| {
        let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
        let report = cost_report(&lowered, &schedule.target);
        if compared {
            let options = Options::new(Mode::Real).with_races(false).with_policy(Policy::Random(0));
            let ran = observe(&lowered, &options, &mut arguments(schedule)).unwrap();
            compare(&report, &ran).unwrap();
        }
        let a = report.kernels[0].accesses.iter().find(|a| a.buffer == "A").unwrap().cost;
        let Cost::Box { lines, ideal_lines, .. } = a else { panic!("{a:?}") };
        (lines, ideal_lines)
    };
    for layout in [Layout::NN, Layout::NT] {
        let (found, ideal) = lines(&product([264, 64, 200], DType::F16, layout, |w| w), true);
        assert_eq!(found, ideal);
    }
    let large = Gemm::new(1000, 1000, 1000).of(DType::F16);
    let plain = Wgmma::of(large.spec(), [64, 128], 1, &Target::sm_90a());
    let steps = |w: Wgmma| {
        let steps = warploom::schedule::parse(&w.steps(large.spec())).unwrap();
        Schedule::new(large.program().unwrap(), Target::sm_90a(), steps)
    };
    let apart = steps(plain.by_residues(large.spec()).unwrap());
    // 8 columns of blocks read 1000 rows of 1000 elements: of 64, or of what is left of them at both ends.
    let touched: i64 = (0..1000i64).map(|i| 8 * ((i * 40 % 64 + 1000 + 63) / 64)).sum();
    assert_eq!(lines(&apart, false), (touched as u64, touched as u64));
    let (found, ideal) = lines(&steps(plain), false);
    assert!(ideal == 128_000 && found > 9 * ideal / 5, "{found} {ideal}");
}

/// Clean code for what is measured.
#[test]
fn rows_apart_assemble_without_a_spill() {
    let (tools, target) = (tools(), Target::sm_90a());
    for (n, layout) in [Layout::NN, Layout::NT].into_iter().enumerate() {
        let gemm = Gemm::new(1000, 1000, 1000).of([DType::F16, DType::Bf16][n]).layout(layout);
        for (block, groups) in [([64, 128], 1), ([128, 128], 2)] {
            let parts = Wgmma::of(gemm.spec(), block, groups, &target).by_residues(gemm.spec()).unwrap();
            let steps = warploom::schedule::parse(&parts.steps(gemm.spec())).unwrap();
            let schedule = Schedule::new(gemm.program().unwrap(), target, steps);
            let lowered = lower(&schedule.scheduled().unwrap(), &target).unwrap();
            assemble(&tools, &lowered, &target, true).unwrap_or_else(|e| panic!("{layout:?} {block:?}: {e}"));
        }
    }
}
