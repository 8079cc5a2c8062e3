//! Products on both sides of each size at which the recommended kind or tiles change.
//!
//! The edges are found, not listed. A product is drawn; one extent is doubled, then halved, until the recommendation changes; bisection
//! finds two extents one step apart with different recommendations. The commit seeds the draws, and `WARPLOOM_EDGES_SEED=7` takes another
//! seed.

use super::device::{run, target};
use super::judge::{SAMPLE_ROWS, exact_trial};
use super::table::{Case, TYPES, Types};
use super::{Summary, in_parallel, ready};
use std::fmt;
use warploom::error::Code;
use warploom::gemm::{self, Gemm};
use warploom::runtime::Device;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};
use warploom::te::Layout;
use warploom::{Error, Func, Result, Target, codegen};

/// f16, bf16, f32 and s8 with the usual accumulators.
const EDGE_TYPES: [Types; 4] = [TYPES[0], TYPES[3], TYPES[11], TYPES[5]];

/// The multiples that a walk visits. By steps of 1 many edges are where rows stop to be aligned; larger steps pass over these.
const STEPS: [i64; 3] = [1, 16, 64];

/// The steps that say the kind and the tiles: the instruction, how loops are split and bound, parts of k, and how operands are copied.
/// Steps that follow from these and from the extents, such as `pad`, are not among them.
const DECIDING: [&str; 8] =
    ["split", "split_k", "bind", "tensorize", "pipeline", "copy_with", "specialize", "transform_layout"];

/// Products that are drawn for an edge before the search is given up.
const DRAWS: usize = 200;

/// Edges on a device: two cases each.
const ON_DEVICE: usize = 150;
/// Edges that the simulator tries for each chip.
const SIMULATED: usize = 6;

/// Cases that are made ready at a time: all of their arrays are in memory.
const TOGETHER: usize = 16;

/// Which products are tried.
#[derive(Clone, Copy)]
struct Limits {
    multiply_adds: i64,
    /// Elements of A, of B and of C.
    elements: i64,
}

/// Products for a device, whose reference takes the host seconds at most, and products for the simulator.
const LARGE: Limits = Limits { multiply_adds: 1 << 33, elements: 1 << 26 };
const SMALL: Limits = Limits { multiply_adds: 1 << 22, elements: 1 << 17 };

/// Multiply-adds up to which every element of C is compared on a device; of larger products some rows are.
const CHECKED: i64 = 1 << 30;

impl Limits {
    fn hold(self, case: &Case) -> bool {
        let [m, n, k] = size(case);
        case.volume() <= self.multiply_adds && [m * k, k * n, m * n].iter().all(|elements| *elements <= self.elements)
    }
}

fn size(case: &Case) -> [i64; 3] {
    [case.spec.m, case.spec.n, case.spec.k]
}

/// Two products that differ in one extent by a step, and in the kind or the tiles that are recommended.
struct Edge {
    below: Case,
    above: Case,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {}", self.below, self.above)
    }
}

/// The deciding steps of what is recommended for a product.
fn choice(case: &Case, target: &Target) -> String {
    let schedule = gemm::recommend(&Gemm::from(case.spec), target).unwrap_or_else(|e| panic!("{case}: {e}"));
    let deciding = schedule.steps.iter().filter(|step| DECIDING.contains(&step.primitive().name));
    deciding.map(|step| format!("{step}\n")).collect()
}

/// The first edge on a walk along one extent, through multiples of `step`; `at` is the product with so many of them.
fn walk(at: &dyn Fn(i64) -> Case, start: i64, target: &Target, limits: Limits) -> Option<Edge> {
    let first = choice(&at(start), target);
    let differs = |n: i64| choice(&at(n), target) != first;
    let up = std::iter::successors(Some(start), |n| Some(2 * n)).take_while(|n| limits.hold(&at(*n)));
    let down = std::iter::successors(Some(start), |n| Some(n / 2)).take_while(|n| *n > 0);
    // Two successive extents of which the second changes the choice.
    let change = |way: &[i64]| way.windows(2).map(|pair| (pair[0], pair[1])).find(|(_, next)| differs(*next));
    let (mut same, mut other) = change(&up.collect::<Vec<_>>()).or_else(|| change(&down.collect::<Vec<_>>()))?;
    while same.abs_diff(other) > 1 {
        let middle = (same + other) / 2;
        if differs(middle) { other = middle } else { same = middle }
    }
    Some(Edge { below: at(same.min(other)), above: at(same.max(other)) })
}

/// The n-th edge: types, layouts and extents take each combination in turn.
fn edge(n: usize, seed: u64, target: &Target, limits: Limits) -> Edge {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n as u64));
    let (types, layout, extent) = (EDGE_TYPES[n % 4], Layout::ALL[n / 4 % 4], n / 16 % 3);
    let found = (0..DRAWS).find_map(|_| {
        let (size, step) = (gemm::random(&mut rng).1, STEPS[rng.usize(..STEPS.len())]);
        let start = (size[extent] / step).max(1);
        let at = |multiple: i64| {
            let mut size = size;
            size[extent] = multiple * step;
            Case::new(types, layout, size)
        };
        if limits.hold(&at(start)) { walk(&at, start, target, limits) } else { None }
    });
    found.unwrap_or_else(|| panic!("no edge of {} {} in {DRAWS} walks", types.name(), layout.name()))
}

/// So many edges; each seed begins with another combination.
fn edges(count: usize, seed: u64, target: &Target, limits: Limits) -> Vec<Edge> {
    // 48 combinations and 13 have no common divisor.
    in_parallel(count, |n| edge(seed as usize % 48 + 13 * n, seed, target, limits))
}

fn seed() -> u64 {
    let named = std::env::var("WARPLOOM_EDGES_SEED").ok().and_then(|seed| seed.parse().ok());
    named.unwrap_or_else(crate::sample::commit)
}

/// Every case of the edges on a device: launched on poisoned outputs and compared with the reference bit by bit.
pub fn on_device(device: &Device, say: &dyn Fn(&str)) {
    let (target, seed) = (target(device).unwrap(), seed());
    say(&format!("    WARPLOOM_EDGES_SEED={seed}"));
    let edges = edges(ON_DEVICE, seed, &target, LARGE);
    let cases: Vec<Case> = edges.into_iter().flat_map(|edge| [edge.below, edge.above]).collect();
    let trials = |case: &Case, program: &Func| Ok(vec![exact_trial(case, program, CHECKED)?]);
    let mut summary = Summary::default();
    cases.chunks(TOGETHER).for_each(|cases| run(device, cases, &trials, &mut summary));
    summary.to_string().lines().for_each(|line| say(&format!("    {line}")));
    let sampled: Vec<String> = cases.iter().filter(|c| c.volume() > CHECKED).map(Case::to_string).collect();
    say(&format!("    {SAMPLE_ROWS} rows of C are compared of {} products: {}", sampled.len(), sampled.join(", ")));
    summary.finish(cases.len());
}

/// Lowers and compiles a product, and runs it in integer mode.
fn simulate(case: &Case, target: Target, policy: Policy) -> Result<()> {
    let ready = ready(case, target)?;
    codegen::compile(&ready.lowered, &target)?;
    let found = integers_with(&ready.lowered, &Options::new(Mode::Integer).with_policy(policy), 5)?;
    match found == naive_integers(&ready.schedule.program, 5)? {
        true => Ok(()),
        false => Err(Error::bug(Code::MeasureWrong, format!("{policy:?}: another result than the naive program's"))),
    }
}

#[test]
fn small_products_are_exact_where_the_recommended_tiles_change() {
    let seed = seed();
    println!("WARPLOOM_EDGES_SEED={seed}");
    let policies = [Policy::InOrder, Policy::Reverse, Policy::Random(seed)];
    let count = if crate::sample::everything() { 48 } else { SIMULATED };
    for target in [Target::sm_90a(), Target::sm_80()] {
        let edges = edges(count, seed, &target, SMALL);
        for edge in &edges {
            println!("{target}: {edge}");
            assert_ne!(choice(&edge.below, &target), choice(&edge.above, &target), "{edge}");
        }
        let wrong = in_parallel(2 * count, |n| {
            let edge = &edges[n / 2];
            let case = if n % 2 == 0 { &edge.below } else { &edge.above };
            simulate(case, target, policies[n % 3]).err().map(|e| format!("{case} for {target}: {e}"))
        });
        let wrong: Vec<String> = wrong.into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
