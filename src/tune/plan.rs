//! Chooses the configurations of a large space to try. The cost model predicts a random sample, then configurations next to the best predictions;
//! the tuner tries the configurations with the fewest predicted cycles.

use super::space::Space;
use std::collections::{BTreeMap, BTreeSet};

/// Configurations whose cycles are predicted for each trial: a prediction compiles, in some tens of milliseconds; a trial on a
/// device takes about a second.
const PREDICTED_PER_TRIAL: u64 = 8;

/// The best configurations whose adjacent configurations are predicted in a round.
const BEST_OF_A_ROUND: usize = 8;

/// Half of the predictions are a random sample, the others are adjacent to the best.
const SAMPLED_SHARE: u64 = 2;

/// What has been predicted of a space, and what is next.
pub struct Plan<'s> {
    space: &'s Space,
    budget: u64,
    rng: fastrand::Rng,
    seen: BTreeSet<u64>,
    /// By cycles as ordered bits, then by a random number: ties are in no order of the text.
    ranked: BTreeMap<(u64, u64), u64>,
}

impl<'s> Plan<'s> {
    /// A plan for so many trials. The seed draws the sample and orders ties.
    pub fn new(space: &'s Space, trials: usize, seed: u64) -> Plan<'s> {
        let budget = space.count().min(PREDICTED_PER_TRIAL.saturating_mul(trials as u64));
        let rng = fastrand::Rng::with_seed(seed);
        Plan { space, budget, rng, seen: BTreeSet::new(), ranked: BTreeMap::new() }
    }

    /// The most configurations to predict.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Adds what was predicted for a configuration.
    pub fn add(&mut self, number: u64, cycles: f64) {
        if !cycles.is_finite() {
            return;
        }
        // Positive numbers order as their bits do.
        let tie = self.rng.u64(..);
        self.ranked.insert((cycles.max(0.0).to_bits(), tie), number);
    }

    /// The configurations to predict next; none once the budget is spent or nothing is beside the best.
    pub fn next(&mut self) -> Vec<u64> {
        let left = self.budget.saturating_sub(self.seen.len() as u64);
        let mut out: Vec<u64> = Vec::new();
        if self.budget == self.space.count() {
            out.extend((0..self.space.count()).take(left as usize));
        } else if self.seen.is_empty() {
            // The budget is below the number of configurations, so there are always some that are not drawn yet.
            let wanted = (self.budget / SAMPLED_SHARE).max(1) as usize;
            while out.len() < wanted {
                let number = self.rng.u64(..self.space.count());
                if self.seen.insert(number) {
                    out.push(number);
                }
            }
        } else {
            let best: Vec<u64> = self.ranked.values().copied().take(BEST_OF_A_ROUND).collect();
            let near = best.into_iter().flat_map(|n| self.space.adjacent(n));
            let mut near: Vec<u64> = near.filter(|n| !self.seen.contains(n)).collect();
            near.sort_unstable();
            near.dedup();
            self.rng.shuffle(&mut near);
            out.extend(near.into_iter().take(left as usize));
        }
        self.seen.extend(&out);
        out
    }

    /// The configurations to try, the least cycles first.
    pub fn best(&self, trials: usize) -> Vec<u64> {
        self.ranked.values().copied().take(trials).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best by a model that is smooth in each knob, found among many.
    #[test]
    fn the_best_of_a_smooth_model_is_found_with_few_predictions() {
        let choices = (1..=40).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let text = format!(
            "gemm 64x64x64 f32 NN\ntarget sm_80\nsplit i ? {{{choices}}} -> a b; split j ? {{{choices}}} -> c d; \
             split k ? {{{choices}}} -> e f"
        );
        let space = Space::parse(&text, None, None).unwrap();
        assert_eq!(space.count(), 64_000);
        let cycles = |n: u64| {
            [n / 1600, n / 40 % 40, n % 40]
                .into_iter()
                .zip([11.0, 29.0, 3.0])
                .map(|(x, best)| (x as f64 - best).abs())
                .sum()
        };
        let found = |seed| {
            let mut plan = Plan::new(&space, 64, seed);
            let mut predicted = 0;
            loop {
                let next = plan.next();
                if next.is_empty() {
                    break;
                }
                predicted += next.len() as u64;
                next.into_iter().for_each(|n| plan.add(n, cycles(n)));
            }
            assert!(predicted <= plan.budget() && plan.budget() == 512, "{predicted}");
            plan.best(4)
        };
        let best: Vec<f64> = (1..=8).map(|seed| cycles(found(seed)[0])).collect();
        // A random sample of 512 has a distance of about 6.
        assert!(best.iter().all(|d| *d <= 2.0), "{best:?}");
        assert_eq!(found(3), found(3));
    }

    #[test]
    fn a_small_space_is_predicted_whole() {
        let space = Space::parse("vec_add 64\ntarget sm_80\nsplit i ? {2,4,8,16} -> a b", None, None).unwrap();
        let mut plan = Plan::new(&space, 2, 1);
        assert_eq!(plan.next(), [0, 1, 2, 3]);
        [(0, 5.0), (1, 3.0), (2, 9.0)].into_iter().for_each(|(n, cycles)| plan.add(n, cycles));
        assert_eq!((plan.next(), plan.best(2)), (Vec::new(), vec![1, 0]));
    }
}
