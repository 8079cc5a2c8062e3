//! Ranges of a dynamic number of rows, each with the schedule that loses least in it by the cost model.
//!
//! Candidates are what the recipes offer at values of M across the range. The model predicts the cycles of each candidate at each value, where
//! only the blocks with work run, beside those of the schedule recommended for that value alone. A cut of the range into parts, with a
//! candidate for each part, is chosen by dynamic programming: the sum of squares of the logarithms of these ratios is least, with weights
//! by which M is uniform on a logarithmic scale. Squares keep the largest loss small, too.

use super::recipe::Recipe;
use super::recommend::{offered, recipe_schedule, recommend_product, simt_schedule};
use super::{Gemm, Product, Quantized, Wgmma};
use crate::error::{Code, Error, Result};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::target::Target;
use crate::te::GemmSpec;

/// The most ranges that [`recommend_ranges`] makes.
pub const MOST_RANGES: usize = 16;
/// Values of M in each octave where a range may end, and for a single range where its candidates are compared.
const ENDS_PER_OCTAVE: i64 = 4;
const VALUES_PER_OCTAVE: i64 = 2;
/// Recipes of each kind that are candidates at a value of M.
const OFFERED: usize = 6;
/// Root mean square of the logarithms of ratios that another range must gain: half a per cent.
const WORTH: f64 = 0.005;
/// The weight of the cycles themselves beside the squared loss: candidates without a loss are ordered by their cycles.
const TIE: f64 = 1e-4;

/// The logarithm of the ratio of cycles of a tile that does not fit on the chip, in place of infinity.
const FAR: f64 = 20.0;

/// A range of a dynamic M with the schedule for it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RowRange {
    /// The least M.
    pub low: i64,
    /// The largest M.
    pub high: i64,
    /// The tiles in words: `wgmma 128x256`.
    pub tiles: String,
    /// The predicted speed over that of the schedule recommended for each M alone: the geometric mean over the range.
    pub share: f64,
    /// The same at the M where it is least.
    pub least_share: f64,
    /// The schedule, of the program with this range of M.
    pub schedule: Schedule,
}

/// At most `most` ranges of M that follow one another and cover that of the GEMM, each with a schedule. Fewer where another range gains less
/// than half a per cent by the model. A GEMM of fixed M has one range.
///
/// The predictions are those by which [`recommend`](super::recommend) chooses: cycles of the cost model on the target's device. An artefact with one variant for
/// each range launches the variant whose range has the M of the arrays.
///
/// ```
/// use warploom::{DType, Target, gemm::{Gemm, recommend_ranges}, te::Layout};
///
/// let gemm = Gemm::new(512, 256, 256).of(DType::F16).layout(Layout::NT).rows_from(1);
/// let ranges = recommend_ranges(&gemm, &Target::sm_90a(), 3)?;
/// assert!(ranges.len() <= 3 && ranges[0].low == 1 && ranges.last().is_some_and(|r| r.high == 512));
/// # Ok::<(), warploom::Error>(())
/// ```
///
/// # Errors
/// Those of [`recommend`](super::recommend).
pub fn recommend_ranges(gemm: &Gemm, target: &Target, most: usize) -> Result<Vec<RowRange>> {
    let part = |low: i64, high: i64| {
        let rows = |s: &GemmSpec| GemmSpec { m: high, least_m: Some(low), ..*s };
        Product::of_gemm(&Gemm { spec: rows(&gemm.spec), ..*gemm })
    };
    divided(&Product::of_gemm(gemm)?, target, most, &part)
}

/// [`recommend_ranges`] for any program with one product, as [`recommend_for`](super::recommend_for) takes it: the ranges of the dynamic size that is
/// M.
///
/// # Errors
/// Those of [`recommend_for`](super::recommend_for), and `gemm.program` where the program has packed weights: no model compares their tiles at
/// several M.
pub fn recommend_ranges_for(program: &Func, target: &Target, most: usize) -> Result<Vec<RowRange>> {
    if Quantized::describe(program).is_some() {
        let message = format!("program {}: tiles of packed weights are not compared at several M", program.name);
        return Err(Error::input(Code::GemmProgram, message)
            .help("one kernel for the range: recommend_for, or build without --ranges"));
    }
    let part = |low: i64, high: i64| match rows(program) {
        Some(size) => Product::of(&program.narrowed(size, low, high)?),
        None => Product::of(program),
    };
    divided(&Product::of(program)?, target, most, &part)
}

/// The number of the dynamic size that is M: the outermost extent of the last output, as of every output.
fn rows(program: &Func) -> Option<usize> {
    program.size_of(program.buffer(*program.params.last()?).shape.first()?)
}

/// The ranges of a product; `part` is the product with a part of the range.
fn divided(
    product: &Product,
    target: &Target,
    most: usize,
    part: &dyn Fn(i64, i64) -> Result<Product>,
) -> Result<Vec<RowRange>> {
    let spec = &product.spec;
    let Some(low) = spec.least_m else {
        let (schedule, tiles) = (recommend_product(product, target)?, "recommended".to_string());
        return Ok(vec![RowRange { low: spec.m, high: spec.m, tiles, share: 1.0, least_share: 1.0, schedule }]);
    };
    let per_octave = if most > 1 { ENDS_PER_OCTAVE } else { VALUES_PER_OCTAVE };
    let mut model = Model::new(product, (low, spec.m), per_octave, target);
    model.schedules(most.clamp(1, MOST_RANGES), target, part)
}

/// The schedule for the whole range of a product with a dynamic number of rows.
pub(super) fn recommend_range(product: &Product, target: &Target) -> Result<Schedule> {
    let spec = &product.spec;
    let mut model = Model::new(product, (spec.least_m.unwrap_or(spec.m), spec.m), VALUES_PER_OCTAVE, target);
    let whole = |_, _| Ok(product.clone());
    let mut all = model.schedules(1, target, &whole)?;
    all.pop().map_or_else(|| simt_schedule(product, target), |range| Ok(range.schedule))
}

/// A value of M.
#[derive(Debug, Clone, Copy)]
struct Sample {
    m: i64,
    /// Its share of the logarithmic scale.
    weight: f64,
    /// Predicted cycles of the schedule recommended for it alone.
    alone: f64,
}

/// The predictions for a range of M.
struct Model {
    spec: GemmSpec,
    /// What every M is a multiple of.
    by: i64,
    samples: Vec<Sample>,
    candidates: Vec<Candidate>,
}

/// A recipe with its predictions.
struct Candidate {
    recipe: Recipe,
    /// Cycles at each sample.
    cycles: Vec<f64>,
    /// The objective over the samples before each.
    before: Vec<f64>,
}

/// Samples from the first to the last, and the candidate for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    first: usize,
    last: usize,
    candidate: usize,
}

impl Model {
    fn new(product: &Product, (low, high): (i64, i64), per_octave: i64, target: &Target) -> Model {
        let spec = &product.spec;
        let by = rows(&product.program).map_or(1, |size| product.program.sizes[size].size.by);
        let ends = ends(low, high, per_octave, by);
        let at = |m: i64| GemmSpec { m, least_m: None, ..*spec };
        let alone = |m: i64| {
            let first = offered(&at(m), target, 1).into_iter().next();
            first.map_or(f64::INFINITY, |recipe| recipe.cycles(&at(m), target))
        };
        let samples = weighted(&ends, high);
        let samples: Vec<Sample> =
            samples.into_iter().map(|(m, weight)| Sample { m, weight, alone: alone(m) }).collect();
        let mut recipes: Vec<Recipe> = Vec::new();
        for m in ends {
            // Tiles of a kernel for a range ask whether a row is below M.
            let open = GemmSpec { m, least_m: Some(low), ..*spec };
            let interleaved = Wgmma::interleaved(&open, target).into_iter().map(Recipe::Wgmma);
            for recipe in offered(&open, target, OFFERED).into_iter().chain(interleaved) {
                // Warp tiles divide M. The cycles of ping-pong compare it with cooperative warpgroups at one M: 168 x 256, predicted at 0.91
                // of the speed for each M of 769..=8192x4096x4096, reached 0.62 at 1500 on an H100.
                let at_one = matches!(recipe, Recipe::WarpTiles(_)) || recipe.is_pingpong();
                if !recipes.contains(&recipe) && !at_one {
                    recipes.push(recipe);
                }
            }
        }
        let candidate = |recipe: Recipe| {
            let cycles: Vec<f64> = samples.iter().map(|s| recipe.cycles_at(&at(s.m), target)).collect();
            let mut before = vec![0.0];
            for (sample, cycles) in samples.iter().zip(&cycles) {
                before.push(before[before.len() - 1] + sample.objective(*cycles));
            }
            Candidate { recipe, cycles, before }
        };
        let candidates = recipes.into_iter().map(candidate).collect();
        Model { spec: *spec, by, samples, candidates }
    }

    /// The ranges with their schedules. A candidate that does not lower for its range is none, and the ranges are chosen anew.
    fn schedules(
        &mut self,
        most: usize,
        target: &Target,
        product: &dyn Fn(i64, i64) -> Result<Product>,
    ) -> Result<Vec<RowRange>> {
        loop {
            let parts = self.chosen(most);
            let mut out = Vec::new();
            for part in &parts {
                let (low, high) = self.bounds(*part);
                let Some(schedule) = recipe_schedule(&product(low, high)?, target, &self.recipe(*part))? else {
                    self.candidates.remove(part.candidate);
                    break;
                };
                let (share, least_share) = self.shares(*part);
                let tiles = self.recipe(*part).name();
                out.push(RowRange { low, high, tiles, share, least_share, schedule });
            }
            if out.len() == parts.len() && !out.is_empty() {
                return Ok(out);
            }
            if self.candidates.is_empty() {
                let (low, high) = (self.spec.least_m.unwrap_or(self.spec.m), self.spec.m);
                let schedule = simt_schedule(&product(low, high)?, target)?;
                let tiles = "without a recipe".to_string();
                return Ok(vec![RowRange { low, high, tiles, share: 1.0, least_share: 1.0, schedule }]);
            }
        }
    }

    fn recipe(&self, part: Part) -> Recipe {
        self.candidates[part.candidate].recipe
    }

    /// The least and the largest M of a part.
    fn bounds(&self, part: Part) -> (i64, i64) {
        (self.samples[part.first].m, self.samples[part.last].m)
    }

    /// The fewest ranges that lose no more than [`WORTH`] against the most.
    fn chosen(&self, most: usize) -> Vec<Part> {
        let Some(costs) = self.costs() else { return Vec::new() };
        let mut cuts = vec![Cut::whole(&costs)];
        while cuts.len() < most {
            let next = cuts[cuts.len() - 1].refined(&costs, &|at| self.may_cut(at));
            cuts.push(next);
        }
        let total: f64 = self.samples.iter().map(|s| s.weight).sum();
        let mean = |cut: &Cut| (cut.cost().max(0.0) / total).sqrt();
        let least = cuts.iter().map(mean).fold(f64::INFINITY, f64::min);
        let ranges = cuts.iter().position(|cut| mean(cut) <= least + WORTH).unwrap_or(0);
        parts_of(&cuts[..=ranges], &costs)
    }

    /// Whether a range may begin with the sample.
    fn may_cut(&self, at: usize) -> bool {
        at > 0 && self.samples[at].m == self.samples[at - 1].m + 1 && self.samples[at - 1].m % self.by == 0
    }

    /// The best candidate for the samples from one to another, with its objective; `None` without candidates.
    fn costs(&self) -> Option<Costs> {
        let n = self.samples.len();
        let mut costs = Costs { n, best: vec![(f64::INFINITY, 0); n * n] };
        for first in 0..n {
            for last in first..n {
                let all = self.candidates.iter().enumerate().map(|(at, c)| (self.objective(c, first, last), at));
                costs.best[first * n + last] = all.min_by(|a, b| a.0.total_cmp(&b.0))?;
            }
        }
        Some(costs)
    }

    /// The objective of a candidate for the samples from one to another.
    fn objective(&self, candidate: &Candidate, first: usize, last: usize) -> f64 {
        match candidate.recipe {
            // A thread has accumulators for all rows of the range.
            Recipe::Gemv(_) => {
                let cycles = candidate.cycles[last];
                self.samples[first..=last].iter().map(|s| s.objective(cycles)).sum()
            }
            // The same tiles without a walk have more stages, and share operands in clusters.
            Recipe::Wgmma(w) if w.has_one_group(self.samples[last].m) => f64::INFINITY,
            _ => candidate.before[last + 1] - candidate.before[first],
        }
    }

    /// The predicted speed over that of the schedules for each M alone: the geometric mean, and the least.
    fn shares(&self, part: Part) -> (f64, f64) {
        let candidate = &self.candidates[part.candidate];
        let (mut sum, mut weights, mut least) = (0.0, 0.0, 1.0f64);
        for at in part.first..=part.last {
            let (sample, own) = (&self.samples[at], matches!(candidate.recipe, Recipe::Gemv(_)));
            let loss = sample.loss(candidate.cycles[if own { part.last } else { at }]);
            (sum, weights, least) = (sum + sample.weight * loss, weights + sample.weight, least.min((-loss).exp()));
        }
        ((-sum / weights).exp(), least)
    }
}

impl Sample {
    /// The logarithm of the cycles over those of the schedule for this M alone; 0 where they are fewer.
    fn loss(&self, cycles: f64) -> f64 {
        self.ratio(cycles).max(0.0)
    }

    fn ratio(&self, cycles: f64) -> f64 {
        if self.alone.is_finite() { (cycles / self.alone).ln().min(FAR) } else { 0.0 }
    }

    /// What the choice of candidates minimises, at this M.
    fn objective(&self, cycles: f64) -> f64 {
        self.weight * (self.loss(cycles).powi(2) + TIE * self.ratio(cycles))
    }
}

/// The best candidate for each first and last sample.
struct Costs {
    n: usize,
    best: Vec<(f64, usize)>,
}

impl Costs {
    fn of(&self, first: usize, last: usize) -> (f64, usize) {
        self.best[first * self.n + last]
    }
}

/// The best division of the first samples into at most so many ranges: for each last sample the objective, and where the last range begins;
/// `None` where a range fewer is as good.
struct Cut(Vec<(f64, Option<usize>)>);

impl Cut {
    fn whole(costs: &Costs) -> Cut {
        Cut((0..costs.n).map(|last| (costs.of(0, last).0, Some(0))).collect())
    }

    /// With a range more.
    fn refined(&self, costs: &Costs, may_cut: &dyn Fn(usize) -> bool) -> Cut {
        let best = |last: usize| {
            let cut =
                (1..=last).filter(|at| may_cut(*at)).map(|at| (self.0[at - 1].0 + costs.of(at, last).0, Some(at)));
            cut.fold((self.0[last].0, None), |a, b| if b.0 < a.0 { b } else { a })
        };
        Cut((0..costs.n).map(best).collect())
    }

    /// The objective for all samples.
    fn cost(&self) -> f64 {
        self.0.last().map_or(0.0, |last| last.0)
    }
}

/// The ranges of the last of the cuts.
fn parts_of(cuts: &[Cut], costs: &Costs) -> Vec<Part> {
    let (mut out, mut end) = (Vec::new(), costs.n);
    for cut in cuts.iter().rev() {
        let Some(last) = end.checked_sub(1) else { break };
        let Some(first) = cut.0[last].1 else { continue };
        out.push(Part { first, last, candidate: costs.of(first, last).1 });
        end = first;
    }
    out.reverse();
    out
}

/// Values of M where ranges may end: so many in each octave, of multiples of 8 from 8 on, where the rows of tiles end; all but the first are
/// multiples of `by`, as `high` is.
fn ends(low: i64, high: i64, per_octave: i64, by: i64) -> Vec<i64> {
    let mut out = if low < high { vec![low] } else { Vec::new() };
    let mut octave = 1i64;
    while octave <= high {
        for step in 0..per_octave {
            let value = octave + octave * step / per_octave;
            let value = if value > 8 { value / 8 * 8 } else { value } / by * by;
            if value < high && out.last().is_some_and(|last| *last < value) {
                out.push(value);
            }
        }
        octave = octave.saturating_mul(2);
    }
    out.push(high);
    out
}

/// The ends with the values behind them, where the next range begins, and their shares of the logarithmic scale. The first is the least M.
fn weighted(ends: &[i64], high: i64) -> Vec<(i64, f64)> {
    let mut values: Vec<i64> = ends.iter().flat_map(|end| [*end, (end + 1).min(high)]).collect();
    values.sort_unstable();
    values.dedup();
    let logarithm = |at: usize| (values[at.min(values.len() - 1)] as f64).ln();
    let weight = |at: usize| (logarithm(at + 1) - logarithm(at.saturating_sub(1))).max(1e-3);
    values.iter().enumerate().map(|(at, m)| (*m, weight(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gemm::{Along, recommend};
    use crate::te::Layout;

    fn open(dtype: DType, [m, n, k]: [i64; 3]) -> Gemm {
        Gemm::new(m, n, k).of(dtype).layout(Layout::NT).rows_from(1)
    }

    #[test]
    fn ranges_follow_one_another_and_lower() {
        let cases = [
            (DType::F16, Target::sm_90a(), [600, 512, 256], 4),
            (DType::Bf16, Target::sm_80(), [300, 256, 128], 3),
            (DType::F32, Target::sm_90(), [130, 64, 100], 2),
            (DType::S8, Target::sm_75(), [40, 64, 64], 2),
            (DType::F16, Target::sm_70(), [7, 33, 65], MOST_RANGES),
        ];
        for (dtype, target, size, most) in cases {
            let ranges = recommend_ranges(&open(dtype, size), &target, most).unwrap();
            assert!((1..=most).contains(&ranges.len()) && ranges[0].low == 1, "{ranges:?}");
            assert_eq!(ranges.last().map(|range| range.high), Some(size[0]));
            assert!(ranges.windows(2).all(|pair| pair[0].high + 1 == pair[1].low), "{ranges:?}");
            for range in &ranges {
                let size = &range.schedule.program.sizes[0].size;
                assert_eq!((size.low, size.high), (range.low, range.high));
                assert!(0.0 < range.least_share && range.least_share <= range.share && range.share <= 1.0, "{range:?}");
                let lowered = range.schedule.scheduled().and_then(|func| crate::lower::lower(&func, &target));
                assert!(lowered.is_ok(), "{}: {}", range.tiles, lowered.unwrap_err());
            }
        }
    }

    /// The blocks that follow a product keep their place; a range ends at a multiple of what M is one of.
    #[test]
    fn any_program_with_a_product_is_divided() {
        let text = "program mlp
  size M in 1..=640 by 16
  input A f16[M, 256]; input B f16[512, 256]; input bias f16[512]
  C[i M, j 512] f32 = sum(k 256) f32(A[i, k])*f32(B[j, k])
  output D[i M, j 512] f16 = f16(max(C[i, j] + f32(bias[j]), 0))";
        let program = crate::te::parse(text).unwrap();
        let ranges = recommend_ranges_for(&program, &Target::sm_90a(), 3).unwrap();
        assert!(ranges.len() > 1 && ranges[0].low == 1 && ranges.last().unwrap().high == 640, "{ranges:?}");
        for range in &ranges {
            let (size, by) = (&range.schedule.program.sizes[0].size, 16);
            assert_eq!((size.low, size.high, size.by, range.high % by), (range.low, range.high, by, 0));
            let lowered = range.schedule.scheduled().and_then(|func| crate::lower::lower(&func, &Target::sm_90a()));
            assert!(lowered.is_ok(), "{}: {}", range.tiles, lowered.unwrap_err());
            let again: Schedule = range.schedule.to_string().parse().unwrap();
            assert_eq!(again, range.schedule);
        }
        let weights = Quantized::new(80, 128, 256).groups(128).packed().rows_from(1).program().unwrap();
        let error = recommend_ranges_for(&weights, &Target::sm_90a(), 2).unwrap_err();
        assert!(error.code() == Code::GemmProgram && !error.helps().is_empty(), "{error}");
        // As a GEMM with the same epilogue is.
        let gemm = open(DType::F16, [600, 512, 256]).bias(Along::Columns);
        let of_program = recommend_ranges_for(&gemm.program().unwrap(), &Target::sm_90a(), 4).unwrap();
        assert_eq!(of_program, recommend_ranges(&gemm, &Target::sm_90a(), 4).unwrap());
    }

    #[test]
    fn a_fixed_m_has_one_range() {
        let (gemm, target) = (Gemm::new(64, 64, 64).of(DType::F16), Target::sm_80());
        let ranges = recommend_ranges(&gemm, &target, 6).unwrap();
        let [range] = &ranges[..] else { panic!("{ranges:?}") };
        assert_eq!((range.low, range.high, &range.schedule), (64, 64, &recommend(&gemm, &target).unwrap()));
    }

    /// The predicted speeds over those of the schedules for each M alone, or of tiles that a range may have, at 120 values of M on a logarithmic
    /// scale.
    fn shares(model: &Model, most: usize, target: &Target, least_m: Option<i64>) -> Vec<f64> {
        let (parts, mut rng) = (model.chosen(most), fastrand::Rng::with_seed(5));
        let share = |_| {
            let m = (rng.f64() * (model.spec.m as f64 + 0.5).ln()).exp().round() as i64;
            let at = |spec: &GemmSpec| GemmSpec { m, least_m: None, ..*spec };
            let part = parts.iter().find(|part| model.bounds(**part).1 >= m).unwrap();
            let alone =
                offered(&GemmSpec { least_m, ..at(&model.spec) }, target, 1)[0].cycles(&at(&model.spec), target);
            (alone / model.recipe(*part).cycles_at(&at(&model.spec), target)).min(1.0)
        };
        (0..120).map(share).collect()
    }

    fn mean(shares: &[f64]) -> f64 {
        (shares.iter().map(|share| share.ln()).sum::<f64>() / shares.len() as f64).exp()
    }

    /// The values are not those at which candidates were compared. No range has tiles of one wave, which the schedules for one M have on Hopper:
    /// beside these six ranges lose more.
    #[test]
    fn the_predicted_loss_at_any_m_is_bounded() {
        for (target, one, six, least) in [(Target::sm_90a(), 0.5, 0.9, 0.65), (Target::sm_80(), 0.5, 0.9, 0.65)] {
            let product = Product::of_gemm(&open(DType::F16, [8192, 4096, 4096])).unwrap();
            let model = Model::new(&product, (1, 8192), ENDS_PER_OCTAVE, &target);
            let all = [1, 2, 4, 6].map(|most| shares(&model, most, &target, Some(1)));
            let means = all.each_ref().map(|shares| mean(shares));
            assert!(means.windows(2).all(|pair| pair[1] > 0.99 * pair[0]), "{target}: {means:?}");
            let worst = all[3].iter().copied().fold(1.0, f64::min);
            assert!(means[0] > one && means[3] > six && worst > least, "{target}: {means:?}, {worst}");
            let alone = shares(&model, 6, &target, None);
            let worst = alone.iter().copied().fold(1.0, f64::min);
            assert!(mean(&alone) > six && worst > 0.5, "{target}: {}, {worst}", mean(&alone));
        }
    }

    /// One kernel for all M is better over the range than the one that is best at its end.
    #[test]
    fn a_single_kernel_weighs_all_of_the_range() {
        let target = Target::sm_90a();
        let product = Product::of_gemm(&open(DType::F16, [8192, 4096, 4096])).unwrap();
        let model = Model::new(&product, (1, 8192), VALUES_PER_OCTAVE, &target);
        let (last, whole) = (model.samples.len() - 1, model.chosen(1)[0]);
        let of_largest = model.costs().unwrap().of(last, last).1;
        let objective = |at: usize| model.objective(&model.candidates[at], 0, last);
        assert!(objective(whole.candidate) < objective(of_largest));
        assert!(model.shares(whole).0 > model.shares(Part { candidate: of_largest, ..whole }).0);
        let gemm = open(DType::F16, [8192, 4096, 4096]);
        let ranges = recommend_ranges(&gemm, &target, 1).unwrap();
        assert_eq!(ranges[0].tiles, model.recipe(whole).name());
        assert_eq!(ranges[0].schedule, recommend(&gemm, &target).unwrap());
    }

    #[test]
    fn ends_are_multiples_of_eight_and_the_largest_value() {
        assert_eq!(ends(1, 40, 4, 1), [1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 40]);
        assert_eq!(ends(65, 100, 2, 1), [65, 96, 100]);
        assert_eq!(ends(9, 9, 4, 1), [9]);
        assert_eq!(ends(1, 64, 2, 16), [1, 16, 32, 48, 64]);
        let weights = weighted(&ends(1, 8192, 4, 1), 8192);
        assert!(weights.windows(2).all(|pair| pair[0].0 < pair[1].0) && weights.iter().all(|(_, w)| *w > 0.0));
        assert_eq!((weights[0].0, weights[weights.len() - 1].0), (1, 8192));
    }
}
