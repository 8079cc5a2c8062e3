//! Conflicts counted out: which threads touch which elements, for every value of the loops that an index mentions.

use super::{Flat, Level, Site, Sites};
use crate::index::{POINTS, Points, volume};
use crate::ir::lowered::threads::WARPGROUP;
use crate::ir::simplify::{self, Affine, gcd};
use crate::ir::visit::{Map, subst_cond, subst_index};
use crate::ir::{Cond, Index, Var};
use std::collections::HashMap;
use std::rc::Rc;

/// As many elements have a place of their own while they are counted.
const DENSE: usize = 1 << 17;
/// What a site touches is kept for its next pair if it is so many numbers at most: 16 bytes each, for some hundred sites.
const KEPT: usize = 1 << 13;

impl Sites<'_> {
    /// [`Sites::meet`] by counting out what both touch; `None` where that takes too many evaluations, or where something cannot be
    /// evaluated.
    pub(super) fn counted(&self, a: &Site, b: &Site, depth: usize) -> Option<bool> {
        let blocks = self.kernel.launch.iter().filter(|l| l.axis.is_block_level());
        let mut around: Vec<(Var, i64)> = blocks.map(|l| (l.var, i64::from(l.extent))).collect();
        around.extend(&a.loops[..depth.min(a.loops.len())]);
        around.retain(|(v, _)| a.mentions(*v) || b.mentions(*v));
        let inner = |s: &Site| {
            let free = |v: &&(Var, i64)| s.mentions(v.0) && !around.iter().any(|(w, _)| *w == v.0);
            s.loops.iter().filter(free).copied().collect::<Vec<(Var, i64)>>()
        };
        let (of_a, of_b) = (inner(a), inner(b));
        let (x, y) = self.without_shared(a, b, &around);
        around.retain(|(v, _)| [(a, &x), (b, &y)].iter().any(|(s, e)| e.mentions(*v) || s.cond.mentions(*v)));
        let threads = volume(&self.threads)?;
        let each = volume(&of_a)?.checked_mul(threads)?.checked_add(volume(&of_b)?.checked_mul(threads)?)?;
        let runs = volume(&around)?;
        if runs.checked_mul(each)? > POINTS {
            return None;
        }
        Points::within(&around, runs)?.try_fold(false, |met, point| {
            if met {
                return Some(true);
            }
            let at: Map = point.into_iter().map(|(v, x)| (v, Index::Int(x))).collect();
            let of_first = self.accesses_at(a, &x, &of_a, &at)?;
            // One access is counted out once.
            match std::ptr::eq(a, b) {
                true => Some(self.meet_once((a, &of_first), (b, &of_first))),
                false => Some(self.meet_once((a, &of_first), (b, &self.accesses_at(b, &y, &of_b, &at)?))),
            }
        })
    }

    /// What a site touches at some values of the variables around.
    fn accesses_at(&self, site: &Site, sum: &Affine, loops: &[(Var, i64)], at: &Map) -> Option<Accesses> {
        let conds: Vec<Cond> = site.cond.conjuncts().into_iter().map(|c| subst_cond(c, at)).collect();
        let sum = if at.is_empty() { sum.clone() } else { simplify::affine(&subst_index(&sum.to_index(), at)) };
        Accesses::new(self, site, sum, &conds, loops, Unknown::Undecided)
    }

    /// The indices of two accesses without the terms that both take from the variables that they share: those move both
    /// by as much.
    fn without_shared(&self, a: &Site, b: &Site, around: &[(Var, i64)]) -> (Affine, Affine) {
        let (mut x, mut y) = (simplify::affine(&a.index), simplify::affine(&b.index));
        let shared = |(atom, _): &(Index, i64)| {
            let mut only = true;
            atom.for_each_var(&mut |v| only &= around.iter().any(|(w, _)| *w == v));
            only
        };
        let both: Vec<(Index, i64)> = x.terms.iter().filter(|t| shared(t) && y.terms.contains(t)).cloned().collect();
        [&mut x, &mut y].into_iter().for_each(|sum| sum.terms.retain(|t| !both.contains(t)));
        (x, y)
    }

    fn meet_once(&self, (of_a, a): (&Site, &Accesses), (of_b, b): (&Site, &Accesses)) -> bool {
        let mut owners = Owners::of(a, b);
        // What lanes do together is done by one of them as far as they themselves are concerned.
        let whole = |s: &Site, thread: i64| if s.together { thread / 32 * 32 } else { thread };
        a.all(&mut |thread, first, count| {
            owners.add([whole(of_a, thread); 2], first, count);
            true
        });
        !b.all(&mut |thread, first, count| {
            matches!(owners.seen_from(whole(of_b, thread), first, count), Level::Apart | Level::Own)
        })
    }

    pub(super) fn enumerate(&self, a: &Flat, b: &Flat) -> Level {
        let (Some(of_a), Some(of_b)) = (self.known_accesses(a), self.known_accesses(b)) else { return Level::Unknown };
        let mut owners = Owners::of(&of_a, &of_b);
        // Two lanes stand for all of them: no thread is both.
        let lanes =
            |s: &Site, thread: i64| if s.together { [thread / 32 * 32, thread / 32 * 32 + 31] } else { [thread; 2] };
        of_a.all(&mut |thread, first, count| {
            owners.add(lanes(a.site, thread), first, count);
            true
        });
        let mut level = Level::Apart;
        of_b.all(&mut |thread, first, count| {
            for thread in lanes(b.site, thread) {
                let seen = owners.seen_from(thread, first, count);
                let seen = if seen == Level::Group && !self.grouped { Level::Block } else { seen };
                if distance(seen) > distance(level) {
                    level = seen;
                }
            }
            level != Level::Block
        });
        level
    }

    /// [`Sites::accesses`] of a site without what depends on the block, found once where it takes little memory.
    fn known_accesses(&self, flat: &Flat) -> Option<Rc<Accesses>> {
        if let Some(known) = flat.site.accesses.get() {
            return known.clone();
        }
        let found = self.accesses(flat).map(Rc::new);
        if found.as_ref().is_none_or(|accesses| accesses.numbers() <= KEPT) {
            flat.site.accesses.get_or_init(|| found.clone());
        }
        found
    }

    /// What a site touches in all iterations of the loops that its index mentions; `None` if over budget or undecidable.
    fn accesses(&self, flat: &Flat) -> Option<Accesses> {
        let mut loops: Vec<(Var, i64)> = Vec::new();
        let mut known = true;
        for (atom, _) in &flat.affine.terms {
            atom.for_each_var(&mut |v| {
                if self.threads.iter().chain(&loops).all(|(w, _)| *w != v) {
                    match flat.site.loops.iter().find(|(w, _)| *w == v) {
                        Some(l) => loops.push(*l),
                        None => known = false,
                    }
                }
            });
        }
        let total = volume(&loops)?.checked_mul(volume(&self.threads)?)?;
        let conds: Vec<Cond> = flat.site.cond.conjuncts().into_iter().cloned().collect();
        if !known || total > POINTS {
            return None;
        }
        // A condition on what is not enumerated is taken to hold.
        Accesses::new(self, flat.site, flat.affine.clone().into_owned(), &conds, &loops, Unknown::Holds)
    }

    /// Whether no element is touched by two warps or in two iterations: what lanes do together they never do again.
    pub(super) fn once(&self, flat: &Flat) -> bool {
        // In the iterations of a loop that the index does not mention each lane does what it did before.
        let told = flat.site.loops.iter().filter(|(v, _)| flat.affine.terms.iter().any(|(atom, _)| atom.mentions(*v)));
        let told: Vec<(Var, i64)> = told.copied().collect();
        let threads = self.threads.clone();
        let vars: Vec<(Var, i64)> = threads.iter().chain(&told).copied().collect();
        if volume(&vars).is_none_or(|n| n > POINTS) {
            return false;
        }
        let Some(accesses) =
            Accesses::new(self, flat.site, flat.affine.clone().into_owned(), &[], &told, Unknown::Holds)
        else {
            return false;
        };
        let mut owners = Owners::of(&accesses, &accesses);
        let iterations = volume(&told).unwrap_or(1);
        let mut run = 0;
        accesses.all(&mut |thread, first, count| {
            // Without conditions every thread goes through all iterations, one after the other.
            let number = thread / 32 * iterations + run % iterations;
            run += 1;
            owners.claim(number, first, count)
        })
    }
}

/// What becomes of an access whose condition cannot be evaluated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// It happens.
    Holds,
    /// Nothing is decided.
    Undecided,
}

/// The accesses of a site: its index as a sum of what the thread gives, what the loops give, and what both give together.
/// So what is known of a thread or of an iteration is evaluated once.
#[derive(Debug)]
pub(super) struct Accesses {
    /// Elements that an access touches.
    lanes: i64,
    /// For each thread its part; `None` where it makes no access.
    by_thread: Vec<Option<i64>>,
    /// For each iteration its part.
    by_loop: Vec<Option<i64>>,
    /// For each thread, each iteration: the rest.
    mixed: Vec<Option<i64>>,
    /// Every first element is a multiple of this many, up to one number for all, and so is the count of elements.
    granule: i64,
    /// The smallest first element and the largest one; `None` if there is no access.
    span: Option<(i64, i64)>,
}

impl Accesses {
    /// `None` if something cannot be evaluated.
    fn new(
        sites: &Sites,
        site: &Site,
        sum: Affine,
        conds: &[Cond],
        loops: &[(Var, i64)],
        unknown: Unknown,
    ) -> Option<Accesses> {
        let threads = &sites.threads;
        // Whether threads matter to it, and whether anything else does.
        let kind = |vars: Vec<Var>| {
            let thread = |v: &Var| threads.iter().any(|(w, _)| w == v);
            (vars.iter().any(thread), !vars.iter().all(thread))
        };
        let of_atom = |atom: &Index| {
            let mut vars = Vec::new();
            atom.for_each_var(&mut |v| vars.push(v));
            kind(vars)
        };
        let of_cond = |cond: &Cond| {
            let mut vars = Vec::new();
            cond.for_each_index(&mut |i| i.for_each_var(&mut |v| vars.push(v)));
            kind(vars)
        };
        let part = |which: (bool, bool)| Sum {
            terms: sum.terms.iter().filter(|(atom, _)| of_atom(atom) == which).cloned().collect(),
            conds: conds.iter().filter(|c| of_cond(c) == which).cloned().collect(),
        };
        // Threads count with the first axis fastest.
        let axes: Vec<(Var, i64)> = threads.iter().rev().copied().collect();
        let by_thread = part((true, false)).along(&axes, unknown)?;
        let alone = part((false, true)).along(loops, unknown)?;
        let constant = part((false, false)).along(&[], unknown)?[0].map(|c| c + sum.constant);
        let by_loop: Vec<Option<i64>> = alone.into_iter().map(|x| x?.checked_add(constant?)).collect();
        let both = part((true, true));
        let all: Vec<(Var, i64)> = axes.iter().chain(loops).copied().collect();
        let mixed = if both.is_empty() { Vec::new() } else { both.along(&all, unknown)? };
        let lanes = i64::from(site.lanes);
        let mut out = Accesses { lanes, by_thread, by_loop, mixed, granule: lanes, span: None };
        let (mut granule, mut span) = (out.granule, None);
        out.all(&mut |_, first, _| {
            let (low, high) = span.unwrap_or((first, first));
            granule = if granule == 1 { 1 } else { gcd(granule, first - low) };
            span = Some((low.min(first), high.max(first)));
            true
        });
        (out.granule, out.span) = (granule, span);
        Some(out)
    }

    /// How many numbers it has.
    fn numbers(&self) -> usize {
        self.by_thread.len() + self.by_loop.len() + self.mixed.len()
    }

    /// Calls `f(thread, first element, number of elements)` for every access, all iterations of a thread one after the
    /// other; stops where `f` says so, and says whether it never did.
    fn all(&self, f: &mut dyn FnMut(i64, i64, i64) -> bool) -> bool {
        self.by_thread.iter().enumerate().all(|(thread, of_thread)| {
            let Some(of_thread) = of_thread else { return true };
            self.by_loop.iter().enumerate().all(|(n, of_loop)| {
                let mixed = self.mixed.get(thread * self.by_loop.len() + n).copied().unwrap_or(Some(0));
                let (Some(of_loop), Some(mixed)) = (of_loop, mixed) else { return true };
                f(thread as i64, of_thread.saturating_add(*of_loop).saturating_add(mixed), self.lanes)
            })
        })
    }
}

/// Some terms of an index, and conditions.
struct Sum {
    terms: Vec<(Index, i64)>,
    conds: Vec<Cond>,
}

impl Sum {
    fn is_empty(&self) -> bool {
        self.terms.is_empty() && self.conds.is_empty()
    }

    /// The values for all assignments, the last variable fastest; `None` for those that a condition excludes. None in all
    /// if a value is not known.
    fn along(&self, vars: &[(Var, i64)], unknown: Unknown) -> Option<Vec<Option<i64>>> {
        let points = Points::within(vars, i64::MAX)?;
        let mut out = Vec::new();
        let known = points.all(|here| {
            let found = self.at(here, unknown);
            out.extend(found);
            found.is_some()
        });
        known.then_some(out)
    }

    /// The value at some values of the variables; the inner `None` where a condition excludes them.
    fn at(&self, here: &[(Var, i64)], unknown: Unknown) -> Option<Option<i64>> {
        let value = |v: Var| here.iter().find(|(w, _)| *w == v).map(|(_, x)| *x);
        let mut holds = true;
        for c in &self.conds {
            match c.eval(&value) {
                Some(yes) => holds &= yes,
                None if unknown == Unknown::Holds => {}
                None => return None,
            }
        }
        let add = |sum: i64, (atom, c): &(Index, i64)| sum.checked_add(atom.eval(&value)?.checked_mul(*c)?);
        Some(if holds { Some(self.terms.iter().try_fold(0, add)?) } else { None })
    }
}

/// Which threads touched which elements. Elements that every access touches or leaves together are counted as one.
struct Owners {
    granule: i64,
    first: i64,
    /// By number, where they lie close enough together.
    dense: Vec<Option<Owner>>,
    /// The others.
    sparse: HashMap<i64, Option<Owner>>,
}

impl Owners {
    /// For all that two sites touch.
    fn of(a: &Accesses, b: &Accesses) -> Owners {
        // A site that makes no access has no span.
        let spans = [a.span, b.span];
        let first = spans.iter().flatten().map(|s| s.0).min().unwrap_or(0);
        let end = [a, b].iter().filter_map(|s| s.span?.1.checked_add(s.lanes)).max().unwrap_or(0);
        let granule = spans.iter().flatten().fold(gcd(a.granule, b.granule), |g, s| gcd(g, s.0 - first)).max(1);
        let count = usize::try_from((end - first) / granule).ok().filter(|n| *n <= DENSE).unwrap_or(0);
        Owners { granule, first, dense: std::iter::repeat_with(|| None).take(count).collect(), sparse: HashMap::new() }
    }

    fn run(&self, first: i64, count: i64) -> std::ops::Range<i64> {
        let from = (first - self.first) / self.granule;
        from..from + count / self.granule
    }

    fn owner(&mut self, n: i64) -> &mut Option<Owner> {
        match self.dense.get_mut(n as usize) {
            Some(owner) => owner,
            None => self.sparse.entry(n).or_default(),
        }
    }

    /// Two threads, or one twice, touch some elements.
    fn add(&mut self, [low, high]: [i64; 2], first: i64, count: i64) {
        for n in self.run(first, count) {
            let owner = self.owner(n).get_or_insert_with(|| Owner::new(low));
            owner.add(low);
            owner.add(high);
        }
    }

    /// How far the farthest of those that touched some elements is from a thread.
    fn seen_from(&self, thread: i64, first: i64, count: i64) -> Level {
        let owner = |n: i64| self.dense.get(n as usize).or_else(|| self.sparse.get(&n))?.as_ref();
        let levels = self.run(first, count).filter_map(owner).map(|o| o.seen_from(thread));
        levels.max_by_key(|l| distance(*l)).unwrap_or(Level::Apart)
    }

    /// Takes some elements for one, unless they are somebody else's.
    fn claim(&mut self, number: i64, first: i64, count: i64) -> bool {
        let mut run = self.run(first, count);
        run.all(|n| self.owner(n).get_or_insert_with(|| Owner::new(number)).thread == number)
    }
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
        self.several_groups |= thread / WARPGROUP != self.thread / WARPGROUP;
    }

    fn seen_from(&self, thread: i64) -> Level {
        if self.several_groups || thread / WARPGROUP != self.thread / WARPGROUP {
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
