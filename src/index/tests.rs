//! The procedure against brute force over small ranges, and on the shapes of questions that programs ask.

use super::*;
use fastrand::Rng;

/// A term, evaluated here and built into a question.
#[derive(Debug, Clone)]
enum Term {
    Int(i64),
    Var(usize),
    Add(Box<Term>, Box<Term>),
    Scaled(Box<Term>, i64),
    Div(Box<Term>, i64),
    Mod(Box<Term>, i64),
    Min(Box<Term>, Box<Term>),
    Max(Box<Term>, Box<Term>),
    Xor(Box<Term>, Box<Term>),
    Mul(Box<Term>, Box<Term>),
}

impl Term {
    fn eval(&self, at: &[i64]) -> i64 {
        match self {
            Term::Int(c) => *c,
            Term::Var(v) => at[*v],
            Term::Add(a, b) => a.eval(at) + b.eval(at),
            Term::Scaled(a, c) => a.eval(at) * c,
            Term::Div(a, c) => floor_div(a.eval(at), *c),
            Term::Mod(a, c) => a.eval(at) - c * floor_div(a.eval(at), *c),
            Term::Min(a, b) => a.eval(at).min(b.eval(at)),
            Term::Max(a, b) => a.eval(at).max(b.eval(at)),
            Term::Xor(a, b) => a.eval(at) ^ b.eval(at),
            Term::Mul(a, b) => a.eval(at) * b.eval(at),
        }
    }

    fn build(&self, q: &mut Question, vars: &[Linear]) -> Option<Linear> {
        let mut of = |t: &Term| t.build(q, vars);
        match self {
            Term::Int(c) => Some(Linear::from(*c)),
            Term::Var(v) => Some(vars[*v].clone()),
            Term::Add(a, b) => of(a)?.plus(&of(b)?, 1),
            Term::Scaled(a, c) => of(a)?.times(Int::from(*c)),
            Term::Div(a, c) => {
                let a = of(a)?;
                Some(q.divide(&a, Int::from(*c))?.0)
            }
            Term::Mod(a, c) => {
                let a = of(a)?;
                Some(q.divide(&a, Int::from(*c))?.1)
            }
            Term::Min(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                q.min(&a, &b)
            }
            Term::Max(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                q.max(&a, &b)
            }
            Term::Xor(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                q.xor(&a, &b)
            }
            Term::Mul(a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                q.multiply(&a, &b)
            }
        }
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    (a as f64 / b as f64).floor() as i64
}

/// A condition, evaluated here and built into a question.
#[derive(Debug, Clone)]
enum Cond {
    Cmp(Compare, Term, Term),
    And(Box<Cond>, Box<Cond>),
    Or(Box<Cond>, Box<Cond>),
    Not(Box<Cond>),
}

impl Cond {
    fn eval(&self, at: &[i64]) -> bool {
        match self {
            Cond::Cmp(op, a, b) => {
                let (a, b) = (a.eval(at), b.eval(at));
                match op {
                    Compare::Less => a < b,
                    Compare::AtMost => a <= b,
                    Compare::Equal => a == b,
                    Compare::Different => a != b,
                }
            }
            Cond::And(a, b) => a.eval(at) && b.eval(at),
            Cond::Or(a, b) => a.eval(at) || b.eval(at),
            Cond::Not(a) => !a.eval(at),
        }
    }

    fn build(&self, q: &mut Question, vars: &[Linear]) -> Option<Formula> {
        Some(match self {
            Cond::Cmp(op, a, b) => Formula::compare(*op, &a.build(q, vars)?, &b.build(q, vars)?)?,
            Cond::And(a, b) => Formula::all(vec![a.build(q, vars)?, b.build(q, vars)?]),
            Cond::Or(a, b) => Formula::any(vec![a.build(q, vars)?, b.build(q, vars)?]),
            Cond::Not(a) => a.build(q, vars)?.negated()?,
        })
    }
}

fn random_term(rng: &mut Rng, depth: u32, vars: usize, wild: bool) -> Term {
    const CONSTANTS: [i64; 12] = [2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16];
    if depth == 0 {
        return if rng.u8(..6) == 0 { Term::Int(rng.i64(-9..20)) } else { Term::Var(rng.usize(..vars)) };
    }
    let a = Box::new(random_term(rng, depth - 1, vars, wild));
    let constant = CONSTANTS[rng.usize(..12)];
    let other = |rng: &mut Rng| {
        let depth = rng.u32(..depth);
        Box::new(random_term(rng, depth, vars, wild))
    };
    match rng.u8(..if wild { 18 } else { 13 }) {
        0..=4 => Term::Add(a, other(rng)),
        5..=7 => Term::Scaled(a, if rng.u8(..5) == 0 { -constant } else { constant }),
        8..=10 => Term::Div(a, if rng.u8(..16) == 0 { -constant } else { constant }),
        11..=12 => Term::Mod(a, constant),
        13 => Term::Min(a, other(rng)),
        14 => Term::Max(a, other(rng)),
        15 => Term::Xor(Box::new(Term::Mod(a, 32)), Box::new(Term::Mod(other(rng), 16))),
        16 => Term::Mul(a, other(rng)),
        _ => Term::Add(a, other(rng)),
    }
}

fn random_cond(rng: &mut Rng, depth: u32, vars: usize, wild: bool) -> Cond {
    if depth == 0 || rng.u8(..4) == 0 {
        const OPS: [Compare; 5] = [Compare::Less, Compare::AtMost, Compare::Equal, Compare::Equal, Compare::Different];
        let (d, e) = (rng.u32(1..4), rng.u32(..3));
        return Cond::Cmp(OPS[rng.usize(..5)], random_term(rng, d, vars, wild), random_term(rng, e, vars, wild));
    }
    let a = Box::new(random_cond(rng, depth - 1, vars, wild));
    match rng.u8(..6) {
        0..=3 => Cond::And(a, Box::new(random_cond(rng, depth - 1, vars, wild))),
        4 => Cond::Or(a, Box::new(random_cond(rng, depth - 1, vars, wild))),
        _ => Cond::Not(a),
    }
}

/// Every point of the ranges.
fn points(ranges: &[(i64, i64)]) -> Vec<Vec<i64>> {
    ranges.iter().fold(vec![Vec::new()], |all, (lo, hi)| {
        all.iter().flat_map(|p| (*lo..=*hi).map(|v| [p.as_slice(), &[v]].concat())).collect()
    })
}

/// Asks `count` random questions of both, and returns how many were not decided, and how many had a point.
fn against_brute_force(seed: u64, count: usize, wild: bool) -> (usize, usize) {
    let mut rng = Rng::with_seed(seed);
    let (mut undecided, mut possible) = (0, 0);
    for n in 0..count {
        let vars = rng.usize(2..5);
        let ranges: Vec<(i64, i64)> = (0..vars)
            .map(|_| {
                let lo = if rng.u8(..4) == 0 { rng.i64(-6..4) } else { 0 };
                (lo, lo + [0, 1, 2, 3, 5, 7, 8, 11][rng.usize(..8)])
            })
            .collect();
        let cond = random_cond(&mut rng, 3, vars, wild);
        let mut q = Question::new();
        let own: Vec<Linear> = ranges.iter().map(|(lo, hi)| Linear::from(q.variable(*lo, *hi))).collect();
        let Some(formula) = cond.build(&mut q, &own) else {
            undecided += 1;
            continue;
        };
        q.require(formula);
        let found = points(&ranges).into_iter().find(|p| cond.eval(p));
        possible += usize::from(found.is_some());
        match q.decide(STEPS).0 {
            Answer::Impossible => assert_eq!(found, None, "question {n} of seed {seed}: {cond:?} over {ranges:?}"),
            Answer::Point(p) => {
                let at: Vec<i64> = own.iter().map(|v| q.value(&p, v).unwrap() as i64).collect();
                assert!(cond.eval(&at), "question {n} of seed {seed}: {cond:?} at {at:?}");
                assert!(at.iter().zip(&ranges).all(|(v, (lo, hi))| (*lo..=*hi).contains(v)), "{at:?} of {ranges:?}");
            }
            Answer::Undecided => {
                undecided += 1;
                println!("undecided: question {n} of seed {seed}: {cond:?} over {ranges:?}");
            }
        }
    }
    (undecided, possible)
}

#[test]
fn quasi_affine_questions_agree_with_brute_force() {
    let (undecided, possible) = against_brute_force(1, 6000, false);
    assert!((1500..5500).contains(&possible), "{possible} of 6000 have a point");
    assert_eq!(undecided, 0);
}

#[test]
fn questions_with_minima_bits_and_products_agree_with_brute_force() {
    let (undecided, possible) = against_brute_force(2, 4000, true);
    assert!((1000..3700).contains(&possible), "{possible} of 4000 have a point");
    assert!(undecided <= 4, "{undecided} of 4000 undecided");
}

/// Conditions of a claim, each `a op b`.
fn ask(build: impl FnOnce(&mut Question) -> Option<()>) -> (Answer, Question, u64) {
    let mut q = Question::new();
    build(&mut q).expect("the terms fit");
    let (answer, steps) = q.decide(STEPS);
    (answer, q, steps)
}

fn var(q: &mut Question, extent: i64) -> Linear {
    Linear::from(q.variable(0, extent - 1))
}

#[test]
fn one_point_of_a_million_is_found() {
    let (answer, _, steps) = ask(|q| {
        let i = var(q, 1_000_003);
        let (_, at) = q.divide(&i.times(7)?.offset(3)?, 1_000_003)?;
        q.require(Formula::compare(Compare::AtMost, &Linear::from(1_000_002), &at)?);
        Some(())
    });
    let Answer::Point(p) = answer else { panic!("{answer:?}") };
    assert_eq!(p[0], 142_857);
    assert!(steps < 1000, "{steps}");
}

#[test]
fn flattened_addresses_are_one_to_one() {
    // ((a * 128 + b) // 100, % 100) under a * 128 + b < 10000, of two threads.
    let (answer, _, steps) = ask(|q| {
        let sides: Vec<(Linear, Linear, Linear)> = (0..2)
            .map(|_| {
                let (a, b) = (var(q, 79), var(q, 128));
                let f = a.times(128)?.plus(&b, 1)?;
                q.require(Formula::compare(Compare::Less, &f, &Linear::from(10000))?);
                Some((a, b, f))
            })
            .collect::<Option<_>>()?;
        let (x, y) = (q.divide(&sides[0].2, 100)?, q.divide(&sides[1].2, 100)?);
        q.require(Formula::compare(Compare::Equal, &x.0, &y.0)?);
        q.require(Formula::compare(Compare::Equal, &x.1, &y.1)?);
        let differ = [
            Formula::compare(Compare::Different, &sides[0].0, &sides[1].0)?,
            Formula::compare(Compare::Different, &sides[0].1, &sides[1].1)?,
        ];
        q.require(Formula::any(differ.to_vec()));
        Some(())
    });
    assert_eq!(answer, Answer::Impossible);
    assert!(steps < 20_000, "{steps}");
}

#[test]
fn swizzled_addresses_are_one_to_one() {
    // row * 64 + (chunk ^ row % 8) * 8 + byte, of 64 rows.
    let (answer, _, steps) = ask(|q| {
        let mut sides = Vec::new();
        for _ in 0..2 {
            let (row, chunk, byte) = (var(q, 64), var(q, 8), var(q, 8));
            let (_, low) = q.divide(&row, 8)?;
            let moved = q.xor(&chunk, &low)?;
            let at = row.times(64)?.plus(&moved, 8)?.plus(&byte, 1)?;
            sides.push((at, [row, chunk, byte]));
        }
        q.require(Formula::compare(Compare::Equal, &sides[0].0, &sides[1].0)?);
        let differ = (0..3).map(|n| Formula::compare(Compare::Different, &sides[0].1[n], &sides[1].1[n]));
        q.require(Formula::any(differ.collect::<Option<_>>()?));
        Some(())
    });
    assert_eq!(answer, Answer::Impossible);
    assert!(steps < 100_000, "{steps}");
}

#[test]
fn sizes_may_be_symbols_with_bounds_and_divisibility() {
    // M: 1..=8192, M % 8 == 0. A tile of 128 rows, in vectors of 8: the vector is inside where its first row is.
    let tile = |divisor: i64, guarded: bool| {
        ask(|q| {
            let m = q.multiple(1, 8192, divisor)?;
            let (i0, i1, lane) = (var(q, 64), var(q, 16), var(q, 8));
            let first = i0.times(128)?.plus(&i1, 8)?;
            if guarded {
                q.require(Formula::compare(Compare::Less, &first, &m)?);
            }
            q.require(Formula::compare(Compare::AtMost, &m, &first.plus(&lane, 1)?)?);
            Some(())
        })
        .0
    };
    assert_eq!(tile(8, true), Answer::Impossible);
    assert!(matches!(tile(4, true), Answer::Point(_)));
    assert!(matches!(tile(8, false), Answer::Point(_)));
    // ceil(M / 128) tiles have every row.
    let (answer, ..) = ask(|q| {
        let m = q.multiple(1, 8192, 8)?;
        let (tiles, _) = q.divide(&m.offset(127)?, 128)?;
        let i = var(q, 8192);
        q.require(Formula::compare(Compare::Less, &i, &m)?);
        let (at, _) = q.divide(&i, 128)?;
        q.require(Formula::compare(Compare::AtMost, &tiles, &at)?);
        Some(())
    });
    assert_eq!(answer, Answer::Impossible);
}

#[test]
fn wedges_that_narrowing_would_crawl_through_are_refuted_at_once() {
    let (answer, _, steps) = ask(|q| {
        let (x, y, z) = (var(q, 1 << 40), var(q, 1 << 40), var(q, 1 << 40));
        q.require(Formula::compare(Compare::Less, &x, &y)?);
        q.require(Formula::compare(Compare::Less, &y, &z)?);
        q.require(Formula::compare(Compare::Less, &z, &x)?);
        Some(())
    });
    assert_eq!(answer, Answer::Impossible);
    assert!(steps < 2000, "{steps}");
}

#[test]
fn extreme_numbers_end_undecided_or_right() {
    let mut rng = Rng::with_seed(3);
    let extreme = [i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1, 1 << 62, -(1 << 62), 1 << 40, -1, 0, 3];
    for _ in 0..2000 {
        let mut q = Question::new();
        let mut terms = vec![
            Linear::from(q.variable(i64::MIN, i64::MAX)),
            Linear::from(q.variable(i64::MAX - 1, i64::MAX)),
            Linear::from(q.variable(0, 1 << 40)),
        ];
        for _ in 0..rng.u32(1..8) {
            let (a, b) = (terms[rng.usize(..terms.len())].clone(), terms[rng.usize(..terms.len())].clone());
            let c = Int::from(extreme[rng.usize(..10)]);
            let made = match rng.u8(..7) {
                0 => a.plus(&b, c),
                1 => a.times(c),
                2 => q.divide(&a, c).map(|d| d.0),
                3 => q.divide(&a, c).map(|d| d.1),
                4 => q.min(&a, &b),
                5 => q.multiply(&a, &b),
                _ => q.xor(&a, &b),
            };
            terms.extend(made);
        }
        let (a, b) = (&terms[terms.len() - 1], &terms[rng.usize(..terms.len())]);
        for op in [Compare::Less, Compare::Different] {
            if let Some(f) = Formula::compare(op, a, b) {
                q.require(f);
            }
        }
        let _ = q.decide(1 << 16);
    }
}
