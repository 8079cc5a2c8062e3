//! Which steps are recommended: the first that lower for the chip, of all recipes in the order of what they take to cost.

use super::early::begin_early;
use super::recipe::Recipe;
use super::{Gemm, Gemv, Mma, Pipelined, Product, Tiles, WarpTiles, Wgmma, Wmma};
use super::{quantized, ranges, schedule, tuning};
use crate::error::{Code, Error, Fault, Result};
use crate::ir::Func;
use crate::loom::Schedule;
use crate::lower;
use crate::schedule::{Step, Steps};
use crate::target::Target;
use crate::te::GemmSpec;
use std::collections::VecDeque;

/// A schedule for the product: tiles in shared memory that all threads fetch, and a tile of C in the registers of each. It lowers
/// for the chip: of the recipes below, the first is taken that does.
///
/// Products of 16-bit floats, of bytes and of 4-bit integers get tensor cores where the chip has them: [`Mma`] from sm_75 on,
/// else [`Wmma`]; on sm_90a 16-bit floats and bytes get [`Wgmma`] where that takes fewer cycles by the model. Integers of 4 bits become bytes
/// where a chip multiplies nothing smaller ([`super::OperandForm`]).
///
/// Products of f32 that can fill a chip with asynchronous copies get [`Pipelined`] ones. Other products of f32 or f64 that warp
/// tiles divide get [`WarpTiles`], and where they have few tiles a [`super::Split`] of their accumulators. [`Tiles`] apply at every size, with
/// parts of k where C is small, and [`Gemv`] where C has few rows or columns: the cheapest by the model is taken. The products of a batch get
/// the tiles that suit all of them together, and blocks of their own: of f32 and f64 [`Tiles`].
///
/// What was chosen is written into the steps; of wgmma a remark says why. A product that no recipe lowers for the chip, such as
/// one of 8-bit floats, keeps the steps of the first: `lower` says what the chip lacks.
///
/// # Errors
/// What [`Gemm::program`] refuses, such as `te.limit` for arrays of more than 2^36 elements.
pub fn recommend(gemm: &Gemm, target: &Target) -> Result<Schedule> {
    // The program is made first: recipes count with extents that a program can have.
    recommend_product(&Product::of_gemm(gemm)?, target)
}

/// [`recommend`] for any program with one product: a sum over one dimension of products of elements of two operands, with at most one
/// dimension for a batch, in one of the four layouts. The elementwise blocks between the accumulators and the outputs are inlined into the
/// kernel's epilogue. Other elementwise blocks, such as those that compute an operand, get kernels of their own.
///
/// Names are those of the program. Rows may be strided.
///
/// ```
/// use warploom::{Target, gemm, te};
///
/// let program = te::parse(
///     "program layer
///      input X f16[100, 64]
///      input W f16[72, 64]
///      input b f16[72]
///      dot: acc[row 100, unit 72] f32 = sum(k 64) f32(X[row, k])*f32(W[unit, k])
///      Y: output Y[row 100, unit 72] f16 = f16(max(acc[row, unit] + f32(b[unit]), 0.0))",
/// )?;
/// let schedule = gemm::recommend_for(&program, &Target::sm_80())?;
/// assert!(schedule.to_string().contains("mma.m16n8k16.f32.f16.f16"));
/// # Ok::<(), warploom::Error>(())
/// ```
///
/// # Errors
/// `gemm.program` where the program has no product, several, or other reductions; `gemm.layout` where the dimensions of the operands or of
/// the result are not those of a GEMM, or rows are not contiguous.
pub fn recommend_for(program: &Func, target: &Target) -> Result<Schedule> {
    if let Some(schedule) = quantized::recommended(program, target)? {
        return Ok(schedule);
    }
    recommend_product(&Product::of(program)?, target)
}

/// [`recommend`] with promotion of the accumulators (two-level accumulation). Tensor cores keep 13 fraction bits in sums of 8-bit floats, so wgmma
/// accumulates 128 elements of k, and CUDA cores add each partial accumulator to f32 accumulators. Other types, and GEMMs without a recipe by
/// wgmma, get the steps of [`recommend`].
///
/// # Errors
/// Those of [`recommend`].
pub fn recommend_promoted(gemm: &Gemm, target: &Target) -> Result<Schedule> {
    let product = Product::of_gemm(gemm)?;
    let tiles = Wgmma::promoted_tiles(&product.spec, target);
    match with_reason(&product, target, tiles.first())? {
        Some(out) => Ok(out),
        None => recommend_product(&product, target),
    }
}

/// The schedule of tiles by wgmma, with a remark that says why, if it lowers.
fn with_reason(product: &Product, target: &Target, tiles: Option<&Wgmma>) -> Result<Option<Schedule>> {
    let Some(chosen) = tiles else { return Ok(None) };
    let spec = &product.spec;
    let Some(mut out) = scheduled(product, target, chosen.steps(spec))? else { return Ok(None) };
    // The instruction's step says why the tiles are as they are.
    let multiplies = |step: &&mut Step| step.args().find_word("row").is_some_and(|row| row.starts_with("wgmma."));
    if let Some(step) = out.steps.iter_mut().find(multiplies) {
        *step = step.clone().with_remark(chosen.reason(spec, target));
    }
    Ok(lowering(out))
}

pub(super) fn recommend_product(product: &Product, target: &Target) -> Result<Schedule> {
    let spec = &product.spec;
    if spec.least_m.is_some() {
        return ranges::recommend_range(product, target);
    }
    let wgmma = Wgmma::paying(spec, target);
    let ordinary = cheaper(spec, target, wgmma.first());
    if let Some(out) = with_reason(product, target, wgmma.first().filter(|_| ordinary.is_empty()))? {
        return Ok(out);
    }
    let ordinary = ordinary.into_iter().map(|ranked| ranked.recipe.steps(spec));
    first_that_lowers(product, target, ordinary.chain(tensor(spec, target)).chain(simt(spec, target)))
}

/// The recipes without tensor cores that take fewer cycles than the best with them, `wgmma` or one by mma.sync: operands of small and thin
/// GEMMs need no kernel that packs or transposes them. None where there is no recipe with tensor cores.
pub(super) fn cheaper(spec: &GemmSpec, target: &Target, wgmma: Option<&Wgmma>) -> Vec<Ranked> {
    // Ordinary code scales each term instead of 128 at a time.
    if spec.block_scales && wgmma.is_some() {
        return Vec::new();
    }
    let least = match wgmma {
        Some(wgmma) => Some(wgmma.cycles_with_packing(spec, target)),
        None => Mma::least_cycles(spec, target),
    };
    let Some(least) = least else { return Vec::new() };
    let mut all = ordinary(spec, target);
    all.retain(|ranked| ranked.cycles < least);
    all
}

/// What the recipes offer for a product, the recommended first, at most so many of a kind. Ordinary code where no tensor cores multiply its types.
pub(super) fn offered(spec: &GemmSpec, target: &Target, most: usize) -> Vec<Recipe> {
    let wgmma = Wgmma::paying(spec, target);
    let mut out: Vec<Recipe> = cheaper(spec, target, wgmma.first()).into_iter().take(most).map(|r| r.recipe).collect();
    out.extend(wgmma.into_iter().take(most).map(Recipe::Wgmma));
    if out.len() < most {
        out.extend(Mma::candidates(spec, target).into_iter().take(most).map(Recipe::Mma));
    }
    if out.is_empty() {
        out.extend(Wmma::candidates(spec, target).into_iter().take(most).map(Recipe::Wmma));
    }
    if out.is_empty() {
        out.extend(ordinary(spec, target).into_iter().take(most).map(|r| r.recipe));
    }
    out
}

/// The schedule of a recipe's choice, if it lowers for the chip; of wgmma with a remark that says why.
pub(super) fn recipe_schedule(product: &Product, target: &Target, recipe: &Recipe) -> Result<Option<Schedule>> {
    match recipe {
        Recipe::Wgmma(w) => with_reason(product, target, Some(w)),
        other => Ok(scheduled(product, target, other.steps(&product.spec))?.and_then(lowering)),
    }
}

/// The first steps of ordinary code that lower for the chip.
pub(super) fn simt_schedule(product: &Product, target: &Target) -> Result<Schedule> {
    first_that_lowers(product, target, simt(&product.spec, target))
}

/// The steps of every recipe with tensor cores that suits a product, best first.
fn tensor<'a>(spec: &'a GemmSpec, target: &'a Target) -> impl Iterator<Item = Steps> + 'a {
    let wgmma = std::iter::once_with(|| Wgmma::paying(spec, target)).flatten().map(|w| w.steps(spec));
    let mma = std::iter::once_with(|| Mma::candidates(spec, target)).flatten().map(|m| m.steps(spec));
    let wmma = std::iter::once_with(|| Wmma::candidates(spec, target)).flatten().map(|w| w.steps(spec));
    wgmma.chain(mma).chain(wmma)
}

/// The steps of every recipe without tensor cores that suits a product, best first; the last ones suit every product.
pub(super) fn simt<'a>(spec: &'a GemmSpec, target: &'a Target) -> impl Iterator<Item = Steps> + 'a {
    let ranked = std::iter::once_with(|| ordinary(spec, target)).flatten().map(|ranked| ranked.recipe.steps(spec));
    ranked.chain(std::iter::once_with(|| super::kind::naive(spec)))
}

/// What a recipe decided, with the cycles that the recipe's model takes it to cost.
pub(super) struct Ranked {
    pub cycles: f64,
    pub recipe: Recipe,
}

/// Tiles of ordinary code that are tried at most.
const MOST: usize = 8;

/// The recipes without tensor cores, the cheapest first; of those of one kind in the order of that kind.
pub(super) fn ordinary(spec: &GemmSpec, target: &Target) -> Vec<Ranked> {
    let gemvs = Gemv::candidates(spec, target).into_iter().take(MOST);
    let gemvs = gemvs.map(|(_, g)| Recipe::Gemv(g)).map(|g| Ranked { cycles: g.cycles(spec, target), recipe: g });
    let tiles = Tiles::candidates(spec, target).into_iter().take(MOST);
    let tiles = tiles.map(|(cycles, t)| Ranked { cycles, recipe: Recipe::Tiles(t) });
    let mut kinds: Vec<VecDeque<Ranked>> = vec![gemvs.collect(), tiles.collect()];
    // Products of a batch have tiles of their own alone.
    if spec.batch.is_none() {
        let pipelined = Pipelined::cheapest_of_each_shape(Pipelined::candidates(spec, target));
        kinds.push(pipelined.map(|(cycles, p)| Ranked { cycles, recipe: Recipe::Pipelined(p) }).collect());
        let shared_out = WarpTiles::choose(spec, target).into_iter();
        let slower = |cycles: f64| tuning::WARP_TILES_SLOWER * cycles;
        kinds.push(
            shared_out.map(|(cycles, w)| Ranked { cycles: slower(cycles), recipe: Recipe::WarpTiles(w) }).collect(),
        );
    }
    merged(kinds)
}

/// Choices of several kinds, the cheapest first; those of one kind in the order of that kind.
pub(super) fn merged(mut kinds: Vec<VecDeque<Ranked>>) -> Vec<Ranked> {
    let mut all = Vec::new();
    let least = |kind: &&mut VecDeque<Ranked>| kind.front().map_or(f64::INFINITY, |ranked| ranked.cycles);
    while let Some(next) = kinds.iter_mut().min_by(|a, b| least(a).total_cmp(&least(b))).and_then(VecDeque::pop_front) {
        all.push(next);
    }
    all
}

/// The schedule of the first steps that lower for the chip, else of the first.
pub(super) fn first_that_lowers(
    product: &Product,
    target: &Target,
    recipes: impl Iterator<Item = Steps>,
) -> Result<Schedule> {
    let (mut first, mut refused) = (None, None);
    for steps in recipes {
        let schedule = match schedule(product, target, steps) {
            Err(error) if error.fault() == Fault::Input => {
                refused = Some(error);
                continue;
            }
            made => made?,
        };
        match lowering(schedule.clone()) {
            Some(schedule) => return Ok(schedule),
            None => first = first.or(Some(schedule)),
        }
    }
    first.ok_or_else(|| {
        let last = refused.map_or(String::new(), |error| format!("; the last one: {}", error.message()));
        Error::bug(Code::GemmRecipes, format!("no recipe has steps for the GEMM{last}"))
    })
}

/// The schedule of a product by the steps of a recipe; `None` where the program around the product does not take them.
///
/// # Errors
/// Bugs of the recipe.
pub(super) fn scheduled(product: &Product, target: &Target, steps: Steps) -> Result<Option<Schedule>> {
    match schedule(product, target, steps) {
        Ok(schedule) => Ok(Some(schedule)),
        Err(error) if error.fault() == Fault::Input => Ok(None),
        Err(error) => Err(error),
    }
}

/// The schedule with kernels that begin early, if it lowers for its chip.
pub(super) fn lowering(schedule: Schedule) -> Option<Schedule> {
    let func = schedule.scheduled().ok()?;
    let all = schedule.steps.len();
    let early = begin_early(schedule, &func);
    let func = crate::schedule::apply_all(&func, &early.steps[all..]).ok()?;
    lower::lower(&func, &early.target).ok()?;
    Some(early)
}
