//! A small instance of a schedule: the same statements and steps at other extents.
//!
//! Extents that lie near each other belong together (1024 and 1026, of an input that a window reads) and move by the same
//! amount, with every number of the program's text beside them. A new extent has the same greatest common divisor with a number
//! of the steps, and with the product of two, as the old one, and is larger than each of these numbers that the old one exceeds. The
//! smallest extents at which the steps apply are taken; if the schedule lowers, the instance has to.

use crate::error::Result;
use crate::ir::Func;
use crate::ir::simplify::gcd;
use crate::loom::Schedule;
use crate::lower::lower;
use crate::te;
use std::collections::BTreeSet;

/// Extents up to this stay as they are.
const SMALL: i64 = 16;

/// Extents at most this far apart move together.
const NEAR: i64 = 8;

/// So many sizes are tried.
const TRIES: usize = 8;

/// A program with more groups of extents is not reduced.
const CLASSES: usize = 8;

/// So many numbers of the steps, and products of two, are looked at.
const DIVISORS: [usize; 2] = [256, 32];

/// Extents above this are not tried: no tile is so large.
const LARGEST: i64 = 1 << 14;

/// Extents that move together.
struct Class {
    /// The smallest and the largest.
    low: i64,
    high: i64,
    /// What the one that the most loops have may become, ascending; that one itself.
    choices: Vec<i64>,
    main: i64,
}

/// The smallest instance of at most so many operations; the schedule itself where it is as small and no other takes the steps.
///
/// # Errors
/// What the steps refuse at the sizes of the schedule.
pub fn of(schedule: &Schedule, operations: f64) -> Result<Option<Schedule>> {
    let small = |program: &Func| match program.at_most() {
        Ok(program) => te::operations(&program).max(elements(&program)) <= operations,
        Err(_) => false,
    };
    let whole = small(&schedule.program);
    let found = smaller(schedule);
    let mut found = found.into_iter().filter(|s| small(&s.program)).peekable();
    if found.peek().is_none() && !whole {
        return Ok(None);
    }
    let lowers = lower(&schedule.scheduled()?, &schedule.target).is_ok();
    let suits = |s: &Schedule| match s.scheduled() {
        Ok(func) => !lowers || lower(&func, &s.target).is_ok(),
        Err(_) => false,
    };
    Ok(found.find(suits).or(whole.then(|| schedule.clone())))
}

/// The schedule at smaller sizes, ascending, whether or not its steps take them.
pub fn smaller(schedule: &Schedule) -> Vec<Schedule> {
    let classes = classes(schedule);
    if classes.is_empty() || classes.len() > CLASSES {
        return Vec::new();
    }
    let text = te::print(&schedule.program);
    let most = classes.iter().map(|c| c.choices.len()).max().unwrap_or(0);
    let round = |round: usize| {
        let size = |c: &Class| *c.choices.get(round).or(c.choices.last()).unwrap_or(&c.main);
        let sizes: Vec<i64> = classes.iter().map(size).collect();
        let mut program = te::parse(&moved(&text, &classes, &sizes)).ok()?;
        // The text does not say it.
        program.allow_tested = schedule.program.allow_tested;
        Some(Schedule { program, ..schedule.clone() })
    };
    (0..most.min(TRIES)).filter_map(round).collect()
}

/// Elements of all parameters, which a run holds.
fn elements(program: &Func) -> f64 {
    let of = |id: &crate::ir::BufferId| crate::ir::layout::span(program.buffer(*id)).unwrap_or(i64::MAX) as f64;
    program.params.iter().map(of).sum()
}

/// Extents of the program in groups, each with what it can become.
fn classes(schedule: &Schedule) -> Vec<Class> {
    let program = &schedule.program;
    let mut extents: Vec<i64> = Vec::new();
    for block in crate::ir::visit::blocks(&program.body) {
        extents.extend(block.iters.iter().filter_map(|it| it.extent.as_int()));
    }
    extents
        .extend(program.params.iter().flat_map(|id| program.buffer(*id).shape.iter().filter_map(|e| program.most(e))));
    extents.retain(|e| *e > SMALL);
    extents.sort_unstable();
    let divisors = divisors(schedule);
    let mut out: Vec<Class> = Vec::new();
    for group in extents.chunk_by(|a, b| b - a <= NEAR) {
        let (Some(low), Some(high)) = (group.first(), group.last()) else { continue };
        let count = |e: &&i64| group.iter().filter(|x| x == e).count();
        let main = group.iter().max_by_key(|e| (count(e), -**e)).copied().unwrap_or(*low);
        let choices = choices(main, (main - low).max(0), &divisors);
        out.push(Class { low: *low, high: *high, choices, main });
    }
    out
}

/// The numbers that steps cut extents by, and the products of two.
fn divisors(schedule: &Schedule) -> [BTreeSet<i64>; 2] {
    let numbers = |step: &crate::schedule::Step| -> Vec<i64> {
        let text = step.to_string();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter_map(|w| w.parse().ok()).filter(|n| *n >= 2).collect()
    };
    let mut singles = BTreeSet::new();
    for step in &schedule.steps {
        singles.extend(numbers(step));
        // What nested factors of one split cut together.
        let cut = numbers(step);
        singles.extend(cut.iter().copied().reduce(|a, b| a.saturating_mul(b)));
    }
    let singles: BTreeSet<i64> = singles.into_iter().take(DIVISORS[1]).collect();
    let products = singles.iter().flat_map(|a| singles.iter().map(|b| a.saturating_mul(*b)));
    let pairs: BTreeSet<i64> = products.chain(singles.iter().copied()).collect();
    [pairs.into_iter().take(DIVISORS[0]).collect(), singles]
}

/// What an extent can become: first by all products, then by the numbers alone.
fn choices(extent: i64, least: i64, divisors: &[BTreeSet<i64>; 2]) -> Vec<i64> {
    let [pairs, singles] = divisors;
    let beyond = singles.iter().copied().filter(|d| *d < extent).max().unwrap_or(1);
    let floor = beyond.max(least).max(1) + 1;
    let alike = |of: &BTreeSet<i64>, n: i64| of.iter().all(|d| gcd(n, *d) == gcd(extent, *d));
    let until = extent.min(LARGEST);
    let mut out: Vec<i64> = Vec::new();
    for of in [pairs, singles] {
        out.extend((floor..until).filter(|n| alike(of, *n)).take(TRIES / 2));
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// The text with every number near an extent moved with it.
fn moved(text: &str, classes: &[Class], sizes: &[i64]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        let length = rest[start..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        let word = &rest[start..start + length.unwrap_or(rest.len() - start)];
        // The ends of a range are two numbers.
        let word = word.split_once("..").map_or(word, |(low, _)| low);
        out.push_str(&rest[..start]);
        match word.parse::<i64>() {
            Ok(n) => out.push_str(&number(n, classes, sizes).to_string()),
            Err(_) => out.push_str(word),
        }
        rest = &rest[start + word.len()..];
        let between = rest.len() - rest.trim_start_matches('.').len();
        out.push_str(&rest[..between]);
        rest = &rest[between..];
    }
    out + rest
}

fn number(n: i64, classes: &[Class], sizes: &[i64]) -> i64 {
    let near = |c: &&(&Class, &i64)| (c.0.low - NEAR..=c.0.high + NEAR).contains(&n);
    let pairs: Vec<(&Class, &i64)> = classes.iter().zip(sizes).collect();
    let distance = |c: &&(&Class, &i64)| (n - c.0.main).abs();
    match pairs.iter().filter(near).min_by_key(distance) {
        Some((class, size)) if n > SMALL => n - class.main + **size,
        _ => n,
    }
}
