//! Whether two accesses of one run of a statement touch an element from two threads: asked of [`crate::ir::decide`].

use super::{Site, Sites};
use crate::index::{Answer, Compare, Formula, Int, Linear, STEPS};
use crate::ir::decide::{Terms, Values};
use crate::ir::lowered::threads::LANES;
use crate::ir::{Index, Var};

/// What is known of two accesses in one run of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meets {
    /// No element is touched from two threads.
    Never,
    /// One is.
    Somewhere,
    /// Not decided.
    Undecided,
}

impl Sites<'_> {
    /// Whether two accesses of one run of a statement, in the same iteration of the `depth` outermost loops, touch an element from two
    /// threads; lanes of a warp that work together count as one.
    pub fn meet(&self, a: usize, b: usize, depth: usize) -> Meets {
        let (a, b) = (&self.sites[a], &self.sites[b]);
        if !(a.write || b.write) || a.buffer != b.buffer {
            return Meets::Never;
        }
        if let Some((a, b)) = self.same_block(a, b)
            && self.same_digits(&a, &b)
        {
            return Meets::Never;
        }
        // The bits of swizzled addresses are counted faster than they are asked about.
        match self.counted(a, b, depth).or_else(|| self.asked(a, b, depth)) {
            Some(true) => Meets::Somewhere,
            Some(false) => Meets::Never,
            None => Meets::Undecided,
        }
    }

    /// The answer of the procedure; `None` where it has none.
    fn asked(&self, a: &Site, b: &Site, depth: usize) -> Option<bool> {
        let mut terms = Terms::new();
        // The dynamic sizes, the block, and the iteration of the loops around, are the same for both.
        let blocks = self.kernel.launch.iter().filter(|l| l.axis.is_block_level());
        let mut around: Vec<(Var, i64)> = blocks.map(|l| (l.var, i64::from(l.extent))).collect();
        around.extend(self.kernel.func.size_vars());
        around.extend(&a.loops[..depth.min(a.loops.len())]);
        let mut shared = terms.bind(&around);
        for derived in &self.kernel.derived {
            let value = terms.index(&derived.value, &shared)?;
            shared.push((derived.var, value));
        }
        let (first, one) = self.side(a, &around, &shared, &mut terms)?;
        let (second, other) = self.side(b, &around, &shared, &mut terms)?;
        terms.question.require(Formula::compare(Compare::Equal, &first, &second)?);
        // Of one access the order of the threads makes no difference.
        let apart = if std::ptr::eq(a, b) { Compare::Less } else { Compare::Different };
        terms.question.require(Formula::compare(apart, &one, &other)?);
        match terms.question.decide(STEPS).0 {
            Answer::Impossible => Some(false),
            Answer::Point(_) => Some(true),
            Answer::Undecided => None,
        }
    }

    /// An element that an access touches, and who touches it, for a thread and inner iterations of its own.
    fn side(&self, site: &Site, around: &[(Var, i64)], shared: &Values, terms: &mut Terms) -> Option<(Linear, Linear)> {
        let inner = site.loops.iter().filter(|(v, _)| around.iter().all(|(w, _)| w != v));
        let own: Vec<(Var, i64)> = self.threads.iter().chain(inner).copied().collect();
        let mut values = terms.bind(&own);
        values.extend(shared.iter().cloned());
        let happens = terms.possible(&site.cond, &values)?;
        terms.question.require(happens);
        let lane = Linear::from(terms.question.variable(0, i64::from(site.lanes) - 1));
        let element = terms.index(&site.index, &values)?.plus(&lane, 1)?;
        // Threads count with the first axis fastest.
        let mut thread = Linear::default();
        for (v, extent) in self.threads.iter().rev() {
            thread = thread.times(Int::from(*extent))?.plus(&terms.index(&Index::Var(*v), &values)?, 1)?;
        }
        let who = if site.together { terms.question.divide(&thread, Int::from(LANES))?.0 } else { thread };
        Some((element, who))
    }
}
