//! Conflicts counted out: which threads touch which elements, for every value of the loops that an index mentions.

use super::{Flat, Level, Site, Sites};
use crate::ir::Var;
use crate::lower::units::GROUP;
use std::collections::HashMap;

/// Evaluations of one index that an enumeration may take.
const BUDGET: i64 = 1 << 16;

impl Sites<'_> {
    /// Whether two accesses of one run of a statement, in the same iteration of the `depth` outermost loops, provably
    /// touch an element from two threads. Undecided counts as no: the order of the threads is then left to chance only
    /// in programs too large to be counted out.
    pub fn meet(&self, a: usize, b: usize, depth: usize) -> bool {
        let (a, b) = (&self.sites[a], &self.sites[b]);
        if !(a.write || b.write) || a.buffer != b.buffer {
            return false;
        }
        if let Some((a, b)) = self.same_block(a, b)
            && self.same_digits(&a, &b)
        {
            return false;
        }
        let blocks = self.kernel.launch.iter().filter(|l| l.axis.is_block_level());
        let mut around: Vec<(Var, i64)> = blocks.map(|l| (l.var, i64::from(l.extent))).collect();
        around.extend(&a.loops[..depth.min(a.loops.len())]);
        around.retain(|(v, _)| a.mentions(*v) || b.mentions(*v));
        self.meet_within(a, b, &around).unwrap_or(false)
    }

    /// [`Sites::meet`] with the variables that both share; `None` where it cannot be decided.
    fn meet_within(&self, a: &Site, b: &Site, around: &[(Var, i64)]) -> Option<bool> {
        let inner = |s: &Site| {
            let free = |v: &&(Var, i64)| s.mentions(v.0) && !around.iter().any(|(w, _)| *w == v.0);
            s.loops.iter().filter(free).chain(&self.threads).copied().collect::<Vec<(Var, i64)>>()
        };
        let (of_a, of_b) = (inner(a), inner(b));
        let size = |vars: &[(Var, i64)]| vars.iter().try_fold(1i64, |n, (_, e)| n.checked_mul(*e));
        let each = size(&of_a)?.checked_add(size(&of_b)?)?;
        let runs = size(around)?.min(BUDGET / each.max(1));
        if runs < 1 {
            return None;
        }
        (0..runs).try_fold(false, |met, n| Some(met || self.meet_once((a, &of_a), (b, &of_b), &point(n, around))?))
    }

    fn meet_once(&self, a: Ranged, b: Ranged, around: &[(Var, i64)]) -> Option<bool> {
        let mut owners: HashMap<i64, Owner> = HashMap::new();
        self.run(a, around, &mut |thread, element| {
            owners.entry(element).and_modify(|o| o.add(thread)).or_insert_with(|| Owner::new(thread));
        })?;
        let mut met = false;
        self.run(b, around, &mut |thread, element| {
            met |= owners.get(&element).is_some_and(|o| !matches!(o.seen_from(thread), Level::Apart | Level::Own));
        })?;
        Some(met)
    }

    /// Calls `f(thread, element)` for every access while some variables keep their values; `None` where a condition or an
    /// index cannot be evaluated.
    fn run(&self, (site, vars): Ranged, around: &[(Var, i64)], f: &mut dyn FnMut(i64, i64)) -> Option<()> {
        let total: i64 = vars.iter().map(|(_, e)| *e).product();
        for n in 0..total {
            let here = point(n, vars);
            let value = |v: Var| here.iter().chain(around).find(|(w, _)| *w == v).map(|(_, x)| *x);
            if !site.cond.eval(&value)? {
                continue;
            }
            let element = site.index.eval(&value)?;
            let thread = self.threads.iter().rev().fold(0, |id, (v, e)| id * e + value(*v).unwrap_or(0));
            // What lanes do together is done by one of them as far as they themselves are concerned.
            let thread = if site.together { thread / 32 * 32 } else { thread };
            (0..i64::from(site.lanes)).for_each(|lane| f(thread, element + lane));
        }
        Some(())
    }

    pub(super) fn enumerate(&self, a: &Flat, b: &Flat) -> Level {
        let mut owners: HashMap<i64, Owner> = HashMap::new();
        let filled = self.each(a, &mut |thread, element| {
            owners.entry(element).and_modify(|o| o.add(thread)).or_insert_with(|| Owner::new(thread));
            true
        });
        if !filled {
            return Level::Unknown;
        }
        let mut level = Level::Apart;
        let finished = self.each(b, &mut |thread, element| {
            let seen = owners.get(&element).map_or(Level::Apart, |o| o.seen_from(thread));
            let seen = if seen == Level::Group && !self.grouped { Level::Block } else { seen };
            if distance(seen) > distance(level) {
                level = seen;
            }
            level != Level::Block
        });
        if finished || level == Level::Block { level } else { Level::Unknown }
    }

    /// Calls `f(thread, element)` for every access; stops early where `f` says so. False if over budget or undecidable.
    fn each(&self, flat: &Flat, f: &mut dyn FnMut(i64, i64) -> bool) -> bool {
        let mut vars = self.threads.clone();
        let mut known = true;
        for (atom, _) in &flat.affine.terms {
            atom.for_each_var(&mut |v| {
                if vars.iter().all(|(w, _)| *w != v) {
                    match flat.site.loops.iter().find(|(w, _)| *w == v) {
                        Some(l) => vars.push(*l),
                        None => known = false,
                    }
                }
            });
        }
        let total = vars.iter().try_fold(1i64, |n, (_, e)| n.checked_mul(*e)).filter(|n| *n <= BUDGET);
        let (true, Some(total)) = (known, total) else { return false };
        let mut values: Vec<(Var, i64)> = vars.iter().map(|(v, _)| (*v, 0)).collect();
        for n in 0..total {
            // Threads vary slowest: a dependence between threads shows early.
            let mut rest = n;
            for (slot, (_, extent)) in values.iter_mut().zip(&vars).rev() {
                slot.1 = rest % extent;
                rest /= extent;
            }
            let value = |v: Var| values.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
            // A condition on what is not enumerated is taken to hold.
            if flat.site.cond.conjuncts().iter().any(|c| c.eval(&value) == Some(false)) {
                continue;
            }
            let Some(element) = flat.element(&value) else { return false };
            let thread = self.threads.iter().rev().fold(0, |id, (v, e)| id * e + value(*v).unwrap_or(0));
            // Two lanes stand for all of them: no thread is both.
            let threads = if flat.site.together { [thread / 32 * 32, thread / 32 * 32 + 31] } else { [thread, thread] };
            for (lane, thread) in (0..i64::from(flat.site.lanes)).flat_map(|lane| threads.map(|t| (lane, t))) {
                if !f(thread, element + lane) {
                    return true;
                }
            }
        }
        true
    }

    /// Whether no element is touched by two warps or in two iterations: what lanes do together they never do again.
    pub(super) fn once(&self, flat: &Flat) -> bool {
        // In the iterations of a loop that the index does not mention each lane does what it did before.
        let told = flat.site.loops.iter().filter(|(v, _)| flat.affine.terms.iter().any(|(atom, _)| atom.mentions(*v)));
        let told: Vec<(Var, i64)> = told.copied().collect();
        let vars: Vec<(Var, i64)> = self.threads.iter().chain(&told).copied().collect();
        let runs = vars.iter().try_fold(1i64, |n, (_, e)| n.checked_mul(*e)).filter(|n| *n <= BUDGET);
        let mut owners: HashMap<i64, i64> = HashMap::new();
        (0..runs.unwrap_or(0)).all(|n| {
            let here = point(n, &vars);
            let value = |v: Var| here.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
            let Some(first) = flat.element(&value) else { return false };
            // Loops count upwards of the threads, whose lanes are one.
            let digit = |id: i64, (v, e): &(Var, i64)| id * e + value(*v).unwrap_or(0);
            let thread = self.threads.iter().rev().fold(0, digit);
            let run = told.iter().fold(thread / 32, digit);
            (0..i64::from(flat.site.lanes)).all(|k| *owners.entry(first + k).or_insert(run) == run)
        }) && runs.is_some()
    }
}

/// A site with the variables that its accesses run through.
type Ranged<'a> = (&'a Site, &'a [(Var, i64)]);

/// The n-th assignment, the last variable fastest.
fn point(mut n: i64, vars: &[(Var, i64)]) -> Vec<(Var, i64)> {
    let mut out = vars.to_vec();
    for (_, extent) in out.iter_mut().rev() {
        (n, *extent) = (n / (*extent).max(1), n % (*extent).max(1));
    }
    out
}

/// Which threads touched an element.
struct Owner {
    thread: i64,
    several: bool,
    several_warps: bool,
    several_groups: bool,
}

/// Levels from near to far.
fn distance(level: Level) -> u8 {
    match level {
        Level::Apart => 0,
        Level::Own => 1,
        Level::Warp => 2,
        Level::Group => 3,
        Level::Block | Level::Cluster | Level::Unknown => 4,
    }
}

impl Owner {
    fn new(thread: i64) -> Owner {
        Owner { thread, several: false, several_warps: false, several_groups: false }
    }

    fn add(&mut self, thread: i64) {
        self.several |= thread != self.thread;
        self.several_warps |= thread / 32 != self.thread / 32;
        self.several_groups |= thread / GROUP != self.thread / GROUP;
    }

    fn seen_from(&self, thread: i64) -> Level {
        if self.several_groups || thread / GROUP != self.thread / GROUP {
            Level::Block
        } else if self.several_warps || thread / 32 != self.thread / 32 {
            Level::Group
        } else if self.several || thread != self.thread {
            Level::Warp
        } else {
            Level::Own
        }
    }
}
