//! Batch invariance: the bits of a row of C are the same however many rows run with it.
//!
//! The simulator and the tensor cores of a device add in other orders and round otherwise; here each is compared with itself.

use super::sample::drawn;
use std::cell::RefCell;
use std::collections::BTreeMap;
use warploom::gemm::{self, Gemm};
use warploom::lower::lower;
use warploom::measure::run_once;
use warploom::runtime::Device;
use warploom::sim::{Mode, Options, run_lowered_with};
use warploom::te::Layout;
use warploom::{Array, DType, Result, Schedule, Target, compile};

/// Numbers of rows, with edges of tiles, warps and instructions.
const ROWS: [i64; 11] = [1, 2, 7, 8, 16, 33, 64, 65, 100, 129, 200];
/// Reals between -1 and 1, of as many digits as the type has.
const SEED: u64 = 18;

/// Row `i` of A has the same elements for every M, and so has B.
fn operands(gemm: &Gemm) -> Vec<Array> {
    let spec = gemm.spec();
    let [m, n, k] = [spec.m, spec.n, spec.k].map(|extent| extent as usize);
    let at = |seed: u64, row: usize, term: usize| {
        let mut rng = fastrand::Rng::with_seed(seed ^ (row as u64) << 32 ^ term as u64);
        rng.f64() * 2.0 - 1.0
    };
    let matrix = |dtype, seed, rows: usize, along_k: bool| match along_k {
        true => Array::from_fn(dtype, &[rows, k], |i| at(seed, i / k, i % k)),
        false => Array::from_fn(dtype, &[k, rows], |i| at(seed, i % rows, i / rows)),
    };
    let a = matrix(spec.a, SEED, m, !spec.layout.a_transposed());
    let b = matrix(spec.b, SEED + 1, n, spec.layout.b_transposed());
    vec![a.unwrap(), b.unwrap(), Array::zeros(spec.out, &[m, n]).unwrap()]
}

/// C on the simulator.
fn simulated(schedule: &Schedule, gemm: &Gemm) -> Array {
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    let mut arguments = operands(gemm);
    let options = Options::new(Mode::Real).with_races(false);
    run_lowered_with(&lowered, &options, &mut arguments).unwrap_or_else(|e| panic!("{gemm:?}: {e}\n{schedule}"));
    arguments.pop().unwrap()
}

/// The bytes of the rows that both arrays have.
fn first_rows_agree(c: &Array, all: &Array) -> bool {
    c.bytes[..] == all.bytes[..c.bytes.len()]
}

/// The numbers of rows whose first rows have other bits than the same rows of the largest number.
fn differing(gemm: impl Fn(i64) -> Gemm, recommend: impl Fn(&Gemm) -> Schedule) -> Vec<i64> {
    let c = |m: i64| simulated(&recommend(&gemm(m)), &gemm(m));
    let all = c(ROWS[ROWS.len() - 1]);
    ROWS.into_iter().filter(|m| !first_rows_agree(&c(*m), &all)).collect()
}

/// A third of the products, as the commit draws them, and one of the smallest.
#[test]
fn rows_have_the_same_bits_for_every_m() {
    let cases = [
        (DType::F16, Layout::NT, [72, 200], Target::sm_90a()),
        (DType::F16, Layout::TN, [40, 99], Target::sm_90a()),
        (DType::Bf16, Layout::NN, [64, 144], Target::sm_80()),
        (DType::Bf16, Layout::TT, [17, 96], Target::sm_90a()),
        (DType::F16, Layout::NN, [24, 72], Target::sm_75()),
        (DType::F16, Layout::NN, [24, 72], Target::sm_70()),
        (DType::F32, Layout::NN, [20, 88], Target::sm_90a()),
        (DType::F32, Layout::TT, [33, 61], Target::sm_80()),
        (DType::S8, Layout::NT, [40, 64], Target::sm_90a()),
    ];
    for (at, (dtype, layout, [n, k], target)) in cases.into_iter().enumerate() {
        if at != 4 && !drawn(&format!("same bits {at}"), 3) {
            continue;
        }
        let of = |m| Gemm::new(m, n, k).of(dtype).layout(layout);
        let others = differing(of, |gemm| gemm::recommend_invariant(gemm, &target).unwrap());
        assert!(others.is_empty(), "{n}x{k} {dtype} {} on {target}: {others:?}", layout.name());
    }
}

/// What the test above would find without a fixed order: for f32, and where the commit draws it for f16.
#[test]
fn the_free_choice_has_other_bits_for_some_m() {
    for (dtype, [n, k]) in [(DType::F16, [40, 4096]), (DType::F32, [40, 1024])] {
        if dtype == DType::F16 && !drawn("the free choice", 4) {
            continue;
        }
        let of = |m| Gemm::new(m, n, k).of(dtype).output(DType::F32).layout(Layout::NT);
        let target = Target::sm_90a();
        let others = differing(of, |gemm| gemm::recommend(gemm, &target).unwrap());
        assert!(!others.is_empty(), "{dtype}: all choices sum in one order");
        let others = differing(of, |gemm| gemm::recommend_invariant(gemm, &target).unwrap());
        assert!(others.is_empty(), "{dtype}: {others:?}");
    }
}

/// Columns and k of the products on a device: aligned and not, and with parts of k.
const ON_DEVICE: [(DType, Layout, [i64; 2]); 7] = [
    (DType::F16, Layout::NT, [512, 1024]),
    (DType::Bf16, Layout::NN, [384, 1000]),
    (DType::F16, Layout::TN, [520, 512]),
    (DType::Bf16, Layout::TT, [129, 777]),
    (DType::F16, Layout::NT, [128, 16384]),
    (DType::F16, Layout::NN, [24, 1024]),
    (DType::F32, Layout::NN, [256, 512]),
];
const MOST_ROWS: i64 = 4096;

/// The numbers of rows from 1 to [`MOST_ROWS`] before and after which the steps differ in more than their sizes, and some between.
fn sampled(gemm: impl Fn(i64) -> Gemm, target: &Target) -> Vec<i64> {
    let known = RefCell::new(BTreeMap::<i64, String>::new());
    let steps = |m: i64| -> String {
        let recommended = || gemm::recommend_invariant(&gemm(m), target).unwrap();
        let text = || recommended().steps.iter().map(|step| format!("{step}\n")).collect();
        known.borrow_mut().entry(m).or_insert_with(text).clone()
    };
    // The edges between two numbers by bisection: in between, the steps may change and change back.
    let mut edges = Vec::new();
    let marks: Vec<i64> =
        (0..=12).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + 1]).filter(|m| (1..=MOST_ROWS).contains(m)).collect();
    for pair in marks.windows(2) {
        let (mut low, mut high) = (pair[0], pair[1]);
        while high - low > 1 && steps(low) != steps(high) {
            let middle = (low + high) / 2;
            if steps(middle) == steps(low) { low = middle } else { high = middle }
        }
        edges.extend([low, high]);
    }
    let mut all: Vec<i64> = marks.into_iter().chain(edges).chain([33, 65, 100, 1000, 3000, MOST_ROWS]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The bits of the first rows of C for numbers of rows from 1 to [`MOST_ROWS`]: powers of two with their neighbours, where the steps
/// change between two of these, and some others.
pub fn on_device(device: &Device, say: &dyn Fn(&str)) {
    let target = Target::for_device(device.info().sm()).unwrap();
    for (dtype, layout, [n, k]) in ON_DEVICE {
        let of = |m| Gemm::new(m, n, k).of(dtype).layout(layout);
        let rows = sampled(of, &target);
        let c = |m: i64| -> Result<Array> {
            let program = device.load(&compile(&gemm::recommend_invariant(&of(m), &target)?)?)?;
            Ok(run_once(&program, &operands(&of(m)))?.pop().expect("C"))
        };
        let all = c(MOST_ROWS).unwrap();
        for m in &rows {
            let rows = c(*m).unwrap_or_else(|e| panic!("{m}x{n}x{k} {dtype}: {e}"));
            assert!(
                first_rows_agree(&rows, &all),
                "{m}x{n}x{k} {dtype} {}: other bits than with {MOST_ROWS} rows",
                layout.name()
            );
        }
        let order = gemm::order(&of(1), &target).map_or("every order is exact".to_string(), |order| order.to_string());
        say(&format!(
            "    {n}x{k} {dtype} {}: the same bits for {} of 1..={MOST_ROWS} rows; {order}",
            layout.name(),
            rows.len()
        ));
    }
}
