//! What schedules for Hopper are made of, and how often two of it came together.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// A feature: its name in tables, and words of which a step has all.
struct Feature {
    name: &'static str,
    words: &'static [&'static str],
}

const fn feature(name: &'static str, words: &'static [&'static str]) -> Feature {
    Feature { name, words }
}

const FEATURES: [Feature; 23] = [
    feature("wgmma", &["tensorize ", " wgmma"]),
    feature("A in registers", &["tensorize ", " wgmma_rs"]),
    feature("stmatrix", &["tensorize ", " stmatrix"]),
    feature("warpgroups", &["bind ", " warpgroup"]),
    feature("pingpong", &["bind ", " pingpong"]),
    feature("cluster", &["bind ", " cluster"]),
    feature("multicast", &["copy_with ", " multicast="]),
    feature("persistent", &["bind ", " persistent"]),
    feature("rasterize", &["rasterize "]),
    feature("role", &["specialize "]),
    feature("second role", &["specialize ", "-> second"]),
    feature("registers of roles", &["specialize ", " regs="]),
    feature("tma load", &["copy_with ", "_s tma"]),
    feature("tma store", &["copy_with C_s tma"]),
    feature("cp.async", &["copy_with ", " cp_async"]),
    feature("ring", &["pipeline "]),
    feature("ring of fragments", &["pipeline kk "]),
    feature("in flight", &["pipeline ", " in_flight="]),
    feature("swizzle", &["swizzle "]),
    feature("pad", &["pad "]),
    feature("packed", &["cache_read ", " global ->"]),
    feature("bias or residual", &["compute_inline add_"]),
    feature("l2_promotion", &["annotate ", " l2_promotion"]),
];

/// The features of steps, as numbers.
fn of(steps: &[String]) -> Vec<usize> {
    let has = |f: &Feature| steps.iter().any(|s| f.words.iter().all(|w| s.contains(w)));
    (0..FEATURES.len()).filter(|n| has(&FEATURES[*n])).collect()
}

/// How often features came together; a feature with itself is how often it came.
#[derive(Debug, Clone, Default)]
pub struct Together(BTreeMap<[usize; 2], usize>);

impl Together {
    /// Counts the features of steps.
    pub fn add(&mut self, steps: &[String]) {
        let found = of(steps);
        let pairs = found.iter().flat_map(|a| found.iter().map(move |b| [*a, *b]));
        pairs.for_each(|pair| *self.0.entry(pair).or_default() += 1);
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &Together) {
        other.0.iter().for_each(|(pair, n)| *self.0.entry(*pair).or_default() += n);
    }
}

/// A row for each feature, a column for each in the same order.
impl Display for Together {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        writeln!(f, "  came together, in schedules that ran: each with those above it, then how often it came")?;
        for (n, feature) in FEATURES.iter().enumerate() {
            write!(f, "  {:>2} {:18}", n + 1, feature.name)?;
            (0..=n).try_for_each(|m| write!(f, " {:5}", self.0.get(&[m, n]).copied().unwrap_or(0)))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
