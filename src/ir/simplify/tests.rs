//! Against brute force: random indices and conditions over small ranges, every point evaluated.

use super::affine::gcd;
use super::*;
use crate::ir::{CmpOp, Cond, Var};
use fastrand::Rng;

/// A variable's values: from, to (inclusive).
type Ranges = Vec<(i64, i64)>;

fn env_of(ranges: &Ranges) -> Env {
    let mut env = Env::new();
    for (i, (lo, hi)) in ranges.iter().enumerate() {
        env.bind(Var(i as u32), *lo, *hi);
    }
    env
}

fn points(ranges: &Ranges) -> Vec<Vec<i64>> {
    ranges.iter().fold(vec![Vec::new()], |all, (lo, hi)| {
        all.iter().flat_map(|p| (*lo..=*hi).map(|v| [p.as_slice(), &[v]].concat())).collect()
    })
}

fn at(point: &[i64]) -> impl Fn(Var) -> Option<i64> {
    move |v| point.get(v.0 as usize).copied()
}

fn random_ranges(rng: &mut Rng) -> Ranges {
    (0..3)
        .map(|_| {
            let lo = if rng.u8(..4) == 0 { rng.i64(-5..4) } else { 0 };
            (lo, lo + [0, 1, 2, 3, 3, 4, 7, 7, 9][rng.usize(..9)])
        })
        .collect()
}

fn random_index(rng: &mut Rng, depth: u32) -> Index {
    const CONSTANTS: [i64; 12] = [1, 2, 2, 3, 4, 4, 6, 8, 8, 16, 32, 5];
    let constant = |rng: &mut Rng| Index::Int(CONSTANTS[rng.usize(..12)]);
    if depth == 0 {
        return if rng.u8(..6) == 0 { Index::Int(rng.i64(-9..10)) } else { Index::Var(Var(rng.u32(..3))) };
    }
    let a = random_index(rng, depth - 1);
    let op = match rng.u8(..16) {
        0..=4 => IndexOp::Add,
        5 => IndexOp::Sub,
        6..=8 => IndexOp::Mul,
        9..=11 => IndexOp::FloorDiv,
        12..=13 => IndexOp::FloorMod,
        14 => [IndexOp::Min, IndexOp::Xor][rng.usize(..2)],
        _ => IndexOp::Max,
    };
    let b = match op {
        IndexOp::Mul | IndexOp::FloorDiv | IndexOp::FloorMod if rng.u8(..20) > 0 => match rng.u8(..25) {
            0 => Index::Int(-CONSTANTS[rng.usize(..12)]),
            _ => constant(rng),
        },
        _ => {
            let depth = rng.u32(..depth);
            random_index(rng, depth)
        }
    };
    Index::Bin(op, Box::new(a), Box::new(b))
}

fn random_cond(rng: &mut Rng, depth: u32) -> Cond {
    if depth == 0 || rng.u8(..3) == 0 {
        const OPS: [CmpOp; 6] = [CmpOp::Lt, CmpOp::Le, CmpOp::Eq, CmpOp::Ne, CmpOp::Ge, CmpOp::Gt];
        let (d, e) = (rng.u32(..4), rng.u32(..2));
        return Cond::Cmp(OPS[rng.usize(..6)], random_index(rng, d), random_index(rng, e));
    }
    let a = Box::new(random_cond(rng, depth - 1));
    match rng.u8(..5) {
        0..=2 => Cond::And(a, Box::new(random_cond(rng, depth - 1))),
        3 => Cond::Or(a, Box::new(random_cond(rng, depth - 1))),
        _ => Cond::Not(a),
    }
}

/// The verdict where every compared index has a value, also those that a short circuit would skip.
fn verdict(cond: &Cond, point: &[i64]) -> Option<bool> {
    let mut defined = true;
    cond.for_each_index(&mut |i| defined &= i.eval(&at(point)).is_some());
    if defined { cond.eval(&at(point)) } else { None }
}

fn check_index(index: &Index, env: &Env, points: &[Vec<i64>]) {
    let (simple, range, step) = (simplify(index, env), bounds(index, env), divisor(index, env));
    for p in points {
        let Some(value) = index.eval(&at(p)) else { continue };
        let context = || format!("{index:?}\n -> {simple:?}\nat {p:?} of {env:?}");
        assert_eq!(simple.eval(&at(p)), Some(value), "value of {}", context());
        if let Some((lo, hi)) = range {
            assert!(lo <= value && value <= hi, "{value} outside {lo}..={hi}: {}", context());
        }
        assert!(if step == 0 { value == 0 } else { value % step == 0 }, "{step} divides {value}: {}", context());
    }
}

#[test]
fn simplified_indices_keep_their_values_within_their_bounds() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..8000 {
        let ranges = random_ranges(&mut rng);
        let depth = rng.u32(1..6);
        check_index(&random_index(&mut rng, depth), &env_of(&ranges), &points(&ranges));
    }
}

#[test]
fn simplification_uses_assumed_facts_soundly() {
    let mut rng = Rng::with_seed(2);
    for _ in 0..4000 {
        let ranges = random_ranges(&mut rng);
        let mut env = env_of(&ranges);
        let mut points = points(&ranges);
        for _ in 0..rng.u32(1..4) {
            let fact = random_cond(&mut rng, 1);
            env.assume(&fact);
            points.retain(|p| verdict(&fact, p) == Some(true));
        }
        let depth = rng.u32(1..5);
        check_index(&random_index(&mut rng, depth), &env, &points);
        let cond = random_cond(&mut rng, 2);
        let simple = simplify_cond(&cond, &env);
        for p in &points {
            let Some(value) = verdict(&cond, p) else { continue };
            assert_eq!(simple.eval(&at(p)), Some(value), "{cond:?}\n -> {simple:?}\nat {p:?} of {env:?}");
        }
    }
}

#[test]
fn simplified_conditions_keep_their_verdicts() {
    let mut rng = Rng::with_seed(3);
    let mut decided = 0;
    for _ in 0..8000 {
        let ranges = random_ranges(&mut rng);
        let env = env_of(&ranges);
        let cond = random_cond(&mut rng, 3);
        let simple = simplify_cond(&cond, &env);
        decided += usize::from(matches!(simple, Cond::Const(_)));
        let proven = prove(&cond, &env);
        for p in points(&ranges) {
            let Some(value) = verdict(&cond, &p) else { continue };
            assert_eq!(simple.eval(&at(&p)), Some(value), "{cond:?}\n -> {simple:?}\nat {p:?} of {env:?}");
            assert!(value || !proven, "proven but false: {cond:?} at {p:?} of {env:?}");
        }
    }
    assert!(decided > 1000, "only {decided} of 8000 decided");
}

#[test]
fn equal_is_never_wrong_and_sees_rewritten_sums() {
    let mut rng = Rng::with_seed(4);
    let mut seen = 0;
    for _ in 0..4000 {
        let ranges = random_ranges(&mut rng);
        let (env, points) = (env_of(&ranges), points(&ranges));
        let (a, b) = (random_index(&mut rng, 3), random_index(&mut rng, 3));
        let all_equal = points.iter().all(|p| match (a.eval(&at(p)), b.eval(&at(p))) {
            (Some(x), Some(y)) => x == y,
            _ => true,
        });
        assert!(all_equal || !equal(&a, &b, &env), "{a:?} and {b:?} of {env:?}");
        let c = Index::Int(rng.i64(2..9));
        let rejoined = a.clone().floordiv(c.clone()) * c.clone() + a.clone().floormod(c);
        seen += usize::from(equal(&a, &rejoined, &env));
    }
    assert!(seen > 3900, "only {seen} of 4000 sums of digits recognised");
}

#[test]
fn extreme_numbers_are_left_alone() {
    let mut rng = Rng::with_seed(5);
    let extreme = [i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1, 1 << 62, -(1 << 62), 1 << 40, -1, 0, 3];
    let mut env = Env::new();
    env.bind(Var(0), i64::MIN, i64::MAX);
    env.bind(Var(1), i64::MAX - 1, i64::MAX);
    env.bind(Var(2), 0, 1 << 40);
    for _ in 0..4000 {
        let mut index = Index::Var(Var(rng.u32(..4)));
        for _ in 0..rng.u32(1..6) {
            let other = match rng.u8(..3) {
                0 => Index::Var(Var(rng.u32(..4))),
                _ => Index::Int(extreme[rng.usize(..10)]),
            };
            let op = [IndexOp::Add, IndexOp::Sub, IndexOp::Mul, IndexOp::FloorDiv, IndexOp::FloorMod, IndexOp::Min];
            let op = op[rng.usize(..6)];
            index = match rng.bool() {
                true => Index::Bin(op, Box::new(index), Box::new(other)),
                false => Index::Bin(op, Box::new(other), Box::new(index)),
            };
        }
        let cond = Cond::lt(index.clone(), extreme[rng.usize(..10)]);
        let mut facts = env.clone();
        facts.assume(&cond);
        for env in [&env, &facts] {
            let _ = (bounds(&index, env), divisor(&index, env), simplify_cond(&cond, env), simplify(&index, env));
        }
    }
}

/// Four loops with the ranges of a blocked GEMM: f in 0..64, t in 0..64, v in 0..4, others unbounded from above.
struct Gemm {
    env: Env,
    i: Var,
    f: Var,
    t: Var,
    v: Var,
    j: Var,
}

fn gemm() -> Gemm {
    let mut env = Env::new();
    let [i, f, t, v, j] = [0, 1, 2, 3, 4].map(Var);
    env.bind(i, 0, 15);
    env.bind(f, 0, 63);
    env.bind(t, 0, 63);
    env.bind(v, 0, 3);
    env.bind(j, 0, 7);
    Gemm { env, i, f, t, v, j }
}

fn text(index: &Index) -> String {
    match index {
        Index::Int(v) => v.to_string(),
        Index::Var(v) => ["i", "f", "t", "v", "j"].get(v.0 as usize).unwrap_or(&"?").to_string(),
        Index::Bin(op, a, b) => {
            let symbol = match op {
                IndexOp::Add => "+",
                IndexOp::Sub => "-",
                IndexOp::Mul => "*",
                IndexOp::FloorDiv => "/",
                IndexOp::FloorMod => "%",
                IndexOp::Min => "min",
                IndexOp::Max => "max",
                IndexOp::Xor => "xor",
            };
            format!("({} {symbol} {})", text(a), text(b))
        }
    }
}

#[test]
fn the_indices_of_blocked_programs_come_out_short() {
    let Gemm { env, i, f, t, v, j } = gemm();
    let n = || Index::from(v);
    let cases = [
        (i * 64 + Index::from(f).floordiv(8) * 8 + j, "(((i * 64) + ((f / 8) * 8)) + j)"),
        ((i * 256 + t * 4 + v).floordiv(64), "((i * 4) + (t / 16))"),
        ((i * 256 + t * 4 + v).floormod(8), "(((t % 2) * 4) + v)"),
        ((i * 256 + t * 4 + v).floormod(64), "(((t % 16) * 4) + v)"),
        ((t * 6).floordiv(3), "(t * 2)"),
        ((t * 8 + j).floordiv(8), "t"),
        ((t * 8 + j).floormod(8), "j"),
        (Index::from(t).floordiv(8) * 8 + Index::from(t).floormod(8), "t"),
        (Index::from(t) - Index::from(t).floordiv(8) * 8, "(t % 8)"),
        (Index::from(t).floordiv(4).floordiv(4), "(t / 16)"),
        (Index::from(t).floordiv(4).floormod(4), "((t % 16) / 4)"),
        (Index::from(t).floormod(16).floormod(4), "(t % 4)"),
        (Index::from(t).floordiv(64), "0"),
        (Index::from(t).floormod(64), "t"),
        ((t + n()).floordiv(8) * 8 + (n() + t).floormod(8), "(t + v)"),
        ((i * 64 + t).floordiv(8).floormod(8) * 8 + (i * 64 + t).floormod(8), "t"),
        (Index::from(v).min(4), "v"),
        (Index::from(v).max(4), "4"),
        ((i * 8 + j).min(i * 8 + 7), "((i * 8) + j)"),
        (n() - t + 3, "((v - t) + 3)"),
        (Index::from(3) - t, "(3 - t)"),
        (Index::from(0) - t, "(t * -1)"),
    ];
    for (index, expected) in cases {
        assert_eq!(text(&simplify(&index, &env)), expected, "{}", text(&index));
    }
}

#[test]
fn conditions_settle_quotients_and_remainders() {
    let Gemm { env, t, j, .. } = gemm();
    for (digit, least) in [(Index::from(t).floordiv(8), "0"), (Index::from(t).floormod(8), "0")] {
        let mut few = env.clone();
        few.assume(&Cond::lt(digit.clone() * 8 + j, 3));
        assert_eq!(text(&simplify(&digit, &few)), least);
        assert_eq!(text(&simplify(&(digit.clone() * 8 + j), &few)), "j");
        let mut more = env.clone();
        more.assume(&Cond::lt(digit.clone() * 8 + j, 9));
        assert_eq!(simplify(&digit, &more), simplify(&digit, &env));
    }
}

#[test]
fn simplifying_again_changes_nothing() {
    let mut rng = Rng::with_seed(6);
    for _ in 0..10000 {
        let env = env_of(&random_ranges(&mut rng));
        let index = random_index(&mut rng, 6);
        let once = simplify(&index, &env);
        assert_eq!(simplify(&once, &env), once, "{}", text(&index));
    }
}

#[test]
fn predicates_tighten_ranges() {
    let (a, b) = (Var(0), Var(1));
    let mut env = Env::new();
    env.bind(a, 0, 9);
    env.bind(b, 0, 127);
    env.assume(&Cond::lt(a * 128 + b, 130));
    assert_eq!(env.range(a), Some((0, 1)));
    assert_eq!(bounds(&(a * 128 + b), &env), Some((0, 129)));
    assert!(prove(&Cond::lt(a * 128 + b, 130), &env));
    assert!(prove(&Cond::lt(b + a * 128 + 5, 135), &env));
    assert!(!prove(&Cond::lt(a * 128 + b, 129), &env));
}

#[test]
fn conjuncts_that_others_imply_go() {
    let Gemm { env, i, t, v, .. } = gemm();
    let cond = Cond::lt(i * 64 + t, 1000).and(Cond::lt(i * 64 + t, 900)).and(Cond::lt(t, 64));
    assert_eq!(simplify_cond(&cond, &env), Cond::lt(i * 64 + t, 900));
    let vector = Cond::lt(i * 256 + t * 4 + v, 1028);
    assert_eq!(simplify_cond(&vector, &env), Cond::lt(i * 64 + t, 257));
    assert_eq!(simplify_cond(&Cond::lt(i * 64 + t, 1024), &env), Cond::TRUE);
}

#[test]
fn divisors_see_through_digits() {
    let Gemm { env, i, t, v, .. } = gemm();
    assert_eq!(divisor(&(i * 256 + t * 4), &env), 4);
    assert_eq!(divisor(&(i * 256 + t * 4 + v), &env), 1);
    assert_eq!(divisor(&((t * 8).floormod(32) + i * 16), &env), 8);
    assert_eq!(divisor(&Index::from(0), &env), 0);
    assert_eq!(gcd(0, -6), 6);
}

#[test]
fn deep_nests_cost_their_size() {
    // Each level twice, or both ends of each level, would never come to an end.
    let Gemm { env, i, f, t, v, .. } = gemm();
    let (mut digits, mut smallest, mut sum) = (Index::from(t), Index::from(t), Index::Int(0));
    for n in 0..40 {
        let var = [i, f, t, v][n as usize % 4];
        digits = (digits.floordiv(3) + var).floormod(7 + n);
        smallest = (smallest.floordiv(3) + var).min(Index::from(f) * 3 + n);
        sum = sum + (t + n).floordiv(n + 3).min(var * (n + 1));
    }
    for index in [digits, smallest, sum] {
        assert!(bounds(&index, &env).is_some());
        assert!(simplify_cond(&Cond::lt(index, 1 << 20), &env).is_true());
    }
}

#[test]
fn contradicting_facts_do_no_harm() {
    // Reached only in dead code; the ends of t cross, and its largest value is no divisor.
    let (i, t) = (Var(0), Var(1));
    let mut env = Env::new();
    env.bind(i, 0, 9);
    env.assume_simplified(&Cond::ge(t, 1));
    env.assume_simplified(&Cond::lt(t, 1));
    let digits = Index::from(i).floordiv(t) + Index::from(i).floormod(t);
    assert_eq!(bounds(&digits, &env), None);
}
