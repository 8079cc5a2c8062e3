//! Recommended schedules of random products: each lowers for its chip, and ptxas keeps all of it in registers.
//!
//! 40 products of all types, layouts and chips are drawn a run, by a seed that the commit gives and the output shows.
//! `WARPLOOM_RECOMMENDED=1000` draws so many, and `WARPLOOM_RECOMMENDED_SEED=7` takes that seed. `WARPLOOM_RECOMMENDED_ROWS=0..10640` tries
//! these rows of a table of all types, layouts, chips and [`SIZES`] instead, and appends the counts to `target/tmp/recommended.txt`.

use super::gemms::{TYPES, Types};
use super::ptxas;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use warploom::DType::{Bf16, F16, S8, S32, S64, U32};
use warploom::assemble::Ptxas;
use warploom::codegen::compile;
use warploom::lower::lower;
use warploom::te::{GemmSpec, Layout};
use warploom::{Gemm, Target, gemm};

/// Products that a run draws.
const DRAWN: usize = 40;
/// One in so many drawn products is assembled, and one in so many rows of the table. The second number and the number of sizes have
/// no common factor, so that each size is assembled.
const ASSEMBLED: [usize; 2] = [4, 7];
/// The seed where git does not tell the commit.
const SEED: u64 = 0x5eed;

/// Types that have recipes of ordinary code alone.
const ORDINARY: [Types; 6] = [
    Types(S32, S32, S32, S32),
    Types(U32, U32, U32, U32),
    Types(S64, S64, S64, S64),
    Types(S8, S8, S32, S8),
    Types(F16, Bf16, warploom::DType::F32, F16),
    Types(F16, S8, warploom::DType::F32, F16),
];

/// The sizes of the whole table: m, n, k. Besides usual ones, those at which a recommended schedule has not compiled.
const SIZES: [[i64; 3]; 20] = [
    [512, 512, 512],
    [1024, 1024, 1024],
    [4096, 4096, 4096],
    [1000, 1000, 1000],
    [1024, 512, 2048],
    [16, 4096, 4096],
    [4096, 16, 4096],
    [1, 4096, 4096],
    [4095, 4097, 4099],
    [777, 3333, 555],
    [250, 1194, 199_159],
    [3928, 1768, 180_115],
    [3968, 3, 34],
    [2636, 2, 4096],
    [6784, 4096, 279],
    [4640, 1152, 1023],
    [1968, 4448, 38],
    [179, 4400, 8],
    [63, 8191, 128],
    [8_400_000, 24, 40],
];

/// A product for a chip.
#[derive(Debug, Clone, Copy)]
struct Case {
    spec: GemmSpec,
    target: Target,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GemmSpec { a, b, acc, out, layout, .. } = self.spec;
        let sizes = self.spec.sizes().iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        write!(f, "--gemm {sizes} --dtype '{a}*{b}>{acc}>{out}' --layout {} --target {}", layout.name(), self.target)
    }
}

/// Rows of elements of less than a byte end with a byte; products whose rows do not are refused (`admit.row`).
fn whole_rows(mut spec: GemmSpec) -> GemmSpec {
    if spec.a.bits() < 8 {
        let multiple = 8 / u64::from(spec.a.bits());
        let whole = |extent: &mut i64| *extent = (*extent as u64).next_multiple_of(multiple) as i64;
        whole(if spec.layout.a_transposed() { &mut spec.m } else { &mut spec.k });
        whole(if spec.layout.b_transposed() { &mut spec.k } else { &mut spec.n });
    }
    spec
}

fn case(Types(a, b, acc, out): Types, layout: Layout, target: Target, [m, n, k]: [i64; 3], batch: Option<i64>) -> Case {
    Case { spec: whole_rows(GemmSpec::of(m, n, k, a, layout).types(a, b, acc, out).batch(batch)), target }
}

fn types() -> Vec<Types> {
    TYPES.into_iter().chain(ORDINARY).collect()
}

/// A random product whose arrays a program can have.
fn draw(random: &mut fastrand::Rng) -> Case {
    let extent = |random: &mut fastrand::Rng| match random.u32(0..16) {
        0..4 => random.i64(1..=64),
        4..8 => random.i64(1..=8192),
        8..11 => 64 * random.i64(1..=128),
        11..14 => 1 << random.u32(0..14),
        14 => random.i64(1..=1 << 18),
        _ => 1 << random.u32(0..24),
    };
    loop {
        let size = [(); 3].map(|()| extent(random));
        let batch = match random.u32(0..16) {
            0 => Some(random.i64(1..=300)),
            1 => Some(random.i64(1..=1 << 20)),
            _ => None,
        };
        let all = types();
        let types = all[random.usize(..all.len())];
        let case =
            case(types, Layout::ALL[random.usize(..4)], Target::ALL[random.usize(..Target::ALL.len())], size, batch);
        if Gemm::from(case.spec).program().is_ok() {
            return case;
        }
    }
}

/// What became of a product: nothing, or why it is not right, after so much time in `recommend`.
fn fault(case: &Case, tools: &[Ptxas], assembled: bool) -> (Option<String>, Duration) {
    let start = Instant::now();
    let recommended = gemm::recommend(&case.spec.into(), &case.target);
    let time = start.elapsed();
    let checked = recommended.and_then(|schedule| lower(&schedule.scheduled()?, &case.target)).and_then(|lowered| {
        if !assembled {
            return Ok(None);
        }
        let kernels = compile(&lowered, &case.target)?;
        let newest = tools.iter().rev().find(|p| p.knows(case.target.name));
        let Some(ptxas) = newest else { return Ok(None) };
        let result = ptxas.assemble(&kernels.text, case.target.name)?;
        let spills: Vec<_> = result.usage.iter().filter(|u| !u.is_clean()).collect();
        Ok(match (spills.is_empty(), result.warnings.is_empty()) {
            (true, true) => None,
            (false, _) => Some(format!("[spill] {spills:?}")),
            _ => Some(format!("[warning] {:?}", result.warnings)),
        })
    });
    (checked.unwrap_or_else(|e| Some(format!("[{}] {}", e.code(), e.message()))), time)
}

/// Tries cases on all cores; the faults by code, and the times of `recommend` in order.
fn judge(cases: &[Case], every: usize) -> (BTreeMap<String, Vec<String>>, Vec<Duration>) {
    let tools = ptxas::tools();
    let (next, faults, times) =
        (AtomicUsize::new(0), Mutex::new(BTreeMap::<String, Vec<String>>::new()), Mutex::<Vec<Duration>>::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some((n, case)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, cases.get(n)?)))
                {
                    let (fault, time) = fault(case, &tools, n % every == 0);
                    times.lock().unwrap().push(time);
                    if let Some(fault) = fault {
                        let code = fault.split(']').next().unwrap_or("").trim_start_matches('[').to_string();
                        faults.lock().unwrap().entry(code).or_default().push(format!("{case}: {fault}"));
                    }
                }
            });
        }
    });
    let mut times = times.into_inner().unwrap();
    times.sort();
    (faults.into_inner().unwrap(), times)
}

/// A number that differs from commit to commit.
fn seed() -> u64 {
    let named = std::env::var("WARPLOOM_RECOMMENDED_SEED").ok().and_then(|s| s.parse().ok());
    let head = || Command::new("git").args(["rev-parse", "HEAD"]).output().ok().filter(|o| o.status.success());
    let of_commit = || u64::from_str_radix(String::from_utf8(head()?.stdout).ok()?.get(..12)?, 16).ok();
    named.or_else(of_commit).unwrap_or(SEED)
}

fn report(cases: usize, faults: &BTreeMap<String, Vec<String>>, times: &[Duration]) -> String {
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
    let mut out = format!(
        "{cases} products, {} faults; `recommend` took {:.1} ms at the median, {:.1} at the 99th percentile, {:.1} at most\n",
        faults.values().map(Vec::len).sum::<usize>(),
        at(50),
        at(99),
        at(100)
    );
    for (code, all) in faults {
        out += &format!("{code}: {}\n", all.len());
        all.iter().for_each(|f| out += &format!("    {f}\n"));
    }
    out
}

#[test]
fn what_is_recommended_lowers_and_stays_in_registers() {
    let rows = crate::schedules::numbers("recommended_rows");
    let cases: Vec<Case> = match &rows {
        Some(rows) => {
            let all = types().into_iter().flat_map(|t| Layout::ALL.map(|l| (t, l)));
            let all = all.flat_map(|(t, l)| Target::ALL.map(|target| (t, l, target)));
            let all = all.flat_map(|(t, l, target)| SIZES.map(|size| case(t, l, target, size, None)));
            all.take(rows.end as usize).skip(rows.start as usize).collect()
        }
        None => {
            let seed = seed();
            let drawn = std::env::var("WARPLOOM_RECOMMENDED").ok().and_then(|n| n.parse().ok()).unwrap_or(DRAWN);
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            (0..drawn).map(|_| draw(&mut random)).collect()
        }
    };
    assert!(!cases.is_empty(), "no such rows");
    let (faults, times) = judge(&cases, ASSEMBLED[usize::from(rows.is_some())]);
    let report = report(cases.len(), &faults, &times);
    println!("{report}");
    if let Some(rows) = rows {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/recommended.txt");
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        write!(log, "{rows:?}: {report}").unwrap();
    }
    assert!(faults.is_empty(), "{report}");
}
