//! What a recommendation chose from.

use super::recipe::Recipe;
use super::recommend::{Ranked, lowering, merged, offered, ordinary, scheduled};
use super::{Gemm, Mma, Product, Wgmma, recommend, recommend_ranges};
use crate::error::{Code, Error, Result};
use crate::loom::Schedule;
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::GemmSpec;
use std::collections::HashSet;
use std::sync::Mutex;

/// Recipes whose choices are many are asked for so many of them.
const MOST: usize = 8;
/// The cycles of candidates of other kinds than the recommended one, at most, over those of that one.
const MOST_CYCLES: f64 = 2.0;
/// Terms of a stage, and clusters, of tiles that come by TMA copies.
const BOXES: [(i64, [i64; 2]); 4] = [(64, [1, 1]), (32, [1, 1]), (64, [2, 1]), (64, [1, 2])];

/// The schedules that [`recommend`] compared for a GEMM and that lower for the chip, each under a name that says its tiles: the
/// recommended one first, and then by what the recipes take them to cost. Those of other kinds than the recommended one are among them up to
/// twice its cost. Where a recipe has nothing to choose, the recommended one is alone.
///
/// What the recipes take them to cost is a model; on the chip another one may be faster, and measuring them tells:
/// `warploom bench --gemm 4096 --dtype f16 --candidates`.
///
/// # Errors
/// What [`Gemm::program`] refuses.
pub fn candidates(gemm: &Gemm, target: &Target) -> Result<Vec<(String, Schedule)>> {
    let product = Product::of_gemm(gemm)?;
    let spec = &product.spec;
    let named = |recipe: Recipe| (recipe.name(), recipe.steps(spec));
    let recipes = compared(spec, target);
    let boxed = match recipes.first() {
        Some(Recipe::Mma(m)) => boxed(*m, spec, target),
        _ => Vec::new(),
    };
    let steps: Vec<(String, Steps)> = recipes.into_iter().map(named).chain(boxed).collect();
    if steps.is_empty() {
        return Ok(vec![("recommended".into(), recommend(gemm, target)?)]);
    }
    let made = |(name, steps): (String, Steps)| {
        let schedule = scheduled(&product, target, steps).transpose()?;
        Some(schedule.map(|schedule| (name, schedule)))
    };
    let mut all = steps.into_iter().filter_map(made).collect::<Result<Vec<_>>>()?;
    // Two ways to the same tiles give the same steps.
    let mut seen = HashSet::new();
    all.retain(|(_, schedule)| seen.insert(schedule.to_string()));
    let mut all = that_lower(all)?;
    if spec.least_m.is_some()
        && let Some(range) = recommend_ranges(gemm, target, 1)?.pop()
    {
        all.retain(|(name, _)| *name != range.tiles);
        all.insert(0, (range.tiles, range.schedule));
    }
    match all.is_empty() {
        true => Ok(vec![("recommended".into(), recommend(gemm, target)?)]),
        false => Ok(all),
    }
}

/// What the recipes compare, the recommended first, and then the cheapest; those of one kind in the order of the kind. Empty where the product
/// has tensor cores by wmma alone, whose recipe has nothing to choose.
fn compared(spec: &GemmSpec, target: &Target) -> Vec<Recipe> {
    let Some(first) = offered(spec, target, 1).into_iter().next().filter(|first| !matches!(first, Recipe::Wmma(_)))
    else {
        return Vec::new();
    };
    let paying = Wgmma::paying(spec, target);
    let mut wgmma = Wgmma::candidates(spec, target);
    wgmma.sort_by_key(|w| paying.iter().position(|p| p == w).unwrap_or(paying.len()));
    let kinds: [Vec<Recipe>; 3] = [
        wgmma.into_iter().map(Recipe::Wgmma).collect(),
        Mma::candidates(spec, target).into_iter().take(MOST).map(Recipe::Mma).collect(),
        ordinary(spec, target).into_iter().map(|ranked| ranked.recipe).collect(),
    ];
    let most = MOST_CYCLES * first.cycles(spec, target);
    let is_tried = |ranked: &Ranked| ranked.cycles < most || ranked.recipe.is_like(&first);
    let tried = |kind: Vec<Recipe>| {
        let all = kind.into_iter().map(|recipe| Ranked { cycles: recipe.cycles(spec, target), recipe });
        all.filter(is_tried).collect()
    };
    let all = merged(kinds.map(tried).into());
    varied(first, all.into_iter().filter(|ranked| ranked.recipe != first).collect())
}

/// The first candidate, then in each step the one with the fewest cycles, weighted by its [likeness](Recipe::likeness) to those before it: the model's
/// errors are alike for alike recipes.
fn varied(first: Recipe, all: Vec<Ranked>) -> Vec<Recipe> {
    let mut left: Vec<(f64, Ranked)> = all.into_iter().map(|ranked| (1.0, ranked)).collect();
    let mut out = vec![first];
    while let Some(last) = out.last().filter(|_| !left.is_empty()).copied() {
        left.iter_mut().for_each(|(times, ranked)| *times += last.likeness(&ranked.recipe));
        let cost = |(times, ranked): &(f64, Ranked)| times * ranked.cycles;
        let least = (0..left.len()).min_by(|a, b| cost(&left[*a]).total_cmp(&cost(&left[*b])));
        out.extend(least.map(|n| left.remove(n).1.recipe));
    }
    out
}

/// Those of the schedules that lower for their chip, with kernels that begin early. Threads share them out.
fn that_lower(all: Vec<(String, Schedule)>) -> Result<Vec<(String, Schedule)>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, kept) = (Mutex::new(all.into_iter().enumerate()), Mutex::new(Vec::new()));
    let work = || {
        while let Some((number, (name, schedule))) = next.lock().ok().and_then(|mut next| next.next()) {
            if let Some(schedule) = lowering(schedule)
                && let Ok(mut kept) = kept.lock()
            {
                kept.push((number, (name, schedule)));
            }
        }
    };
    let joined = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().all(|thread| thread.join().is_ok())
    });
    let kept = kept.into_inner().ok().filter(|_| joined);
    let mut kept = kept.ok_or_else(|| Error::bug(Code::BuildThread, "a thread that lowered candidates panicked"))?;
    kept.sort_by_key(|(number, _)| *number);
    Ok(kept.into_iter().map(|(_, named)| named).collect())
}

/// The first tiles by TMA copies, in each way that fits: started by the block or by a producer, in stages of either length, for
/// a block or a cluster.
fn boxed(mma: Mma, spec: &GemmSpec, target: &Target) -> Vec<(String, Steps)> {
    let mut out = Vec::new();
    for (loader, bk, cluster) in [false, true].into_iter().flat_map(|l| BOXES.map(|(bk, cluster)| (l, bk, cluster))) {
        let Some(m) = mma.by_tma(spec, target, bk, loader, cluster).filter(|m| *m != mma) else { continue };
        let [rows, columns] = m.block;
        let who = if loader { ", producer warps" } else { "" };
        let shared =
            if cluster == [1, 1] { String::new() } else { format!(", clusters of {} x {}", cluster[0], cluster[1]) };
        out.push((format!("mma {rows}x{columns} by tma, {} stages of {bk}{who}{shared}", m.stages), m.steps(spec)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::sample::drawn;

    /// The first GEMM, and a sample of the others: all candidates of a GEMM are lowered.
    #[test]
    fn the_recommended_steps_come_first_and_all_lower() {
        let without_remarks = |s: &Schedule| s.steps.iter().map(|step| format!("{step}\n")).collect::<String>();
        let chips =
            [(DType::F16, Target::sm_90a(), 8), (DType::F16, Target::sm_80(), 4), (DType::F32, Target::sm_80(), 1)];
        let sizes = [[1000, 520, 264], [1000, 1000, 1000], [512, 512, 512], [4096, 768, 1024], [255, 131, 67]];
        let cases = chips.into_iter().flat_map(|c| sizes.map(|s| (c, s))).enumerate();
        for (at, ((dtype, target, least), [m, n, k])) in cases {
            let gemm = Gemm::new(m, n, k).of(dtype);
            if at > 0 && !drawn(&format!("candidates {gemm:?} {target}"), 5) {
                continue;
            }
            let all = candidates(&gemm, &target).unwrap();
            assert!(all.len() >= least, "{}", all.len());
            let recommended = recommend(&gemm, &target).unwrap();
            assert_eq!(without_remarks(&all[0].1), without_remarks(&recommended));
            // `candidates` leaves out what does not lower.
            for recipe in compared(gemm.spec(), &target) {
                let name = recipe.name();
                let found = all.iter().find(|(kept, _)| *kept == name);
                assert!(found.is_some(), "{name} of {m}x{n}x{k} does not lower");
            }
        }
    }
}
