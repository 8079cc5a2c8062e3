//! Which steps are recommended: the first that lower for the chip, of all recipes in the order of what they take to cost.

use super::{Gemm, Mma, Pipelined, Tiles, WarpTiles, Wgmma, Wmma, schedule};
use crate::error::{Code, Error, Result};
use crate::loom::Schedule;
use crate::lower;
use crate::schedule::{Step, Steps};
use crate::target::Target;
use crate::te::GemmSpec;

/// A schedule for the product: tiles in shared memory that all threads fetch, and a tile of C in the registers of each. It lowers
/// for the chip: of the recipes below, the first is taken that does.
///
/// Products of 16-bit floats, of bytes and of 4-bit integers get tensor cores where the chip has them: [`Mma`] from sm_75 on,
/// else [`Wmma`]; on sm_90a 16-bit floats and bytes get [`Wgmma`] where that takes fewer cycles by the model. Integers of 4 bits become bytes
/// where a chip multiplies nothing smaller ([`super::OperandForm`]).
///
/// Products of f32 that can fill a chip with asynchronous copies get [`Pipelined`] ones. Other products of f32 or f64 that warp
/// tiles divide get [`WarpTiles`], and where they have few tiles a [`super::Split`] of their accumulators; [`Tiles`] apply at every
/// size. The products of a batch get the tiles that suit all of them together, and blocks of their own: of f32 and f64 [`Tiles`].
///
/// What was chosen is written into the steps; of wgmma a remark says why. A product that no recipe lowers for the chip, such as
/// one of 8-bit floats, keeps the steps of the first: `lower` says what the chip lacks.
///
/// # Errors
/// What [`Gemm::program`] refuses, such as `te.limit` for arrays of more than 2^36 elements.
pub fn recommend(gemm: &Gemm, target: &Target) -> Result<Schedule> {
    gemm.program()?; // Recipes count with extents that a program can have.
    let spec = gemm.spec();
    if let Some(chosen) = Wgmma::paying(spec, target).first() {
        let mut out = schedule(gemm, target, chosen.steps(spec))?;
        // The instruction's step says why the tiles are as they are.
        let multiplies = |step: &&mut Step| step.args().find_word("row").is_some_and(|row| row.starts_with("wgmma."));
        if let Some(step) = out.steps.iter_mut().find(multiplies) {
            *step = step.clone().with_remark(chosen.reason(spec, target));
        }
        if lowers(&out) {
            return Ok(out);
        }
    }
    first_that_lowers(gemm, target, tensor(spec, target).chain(simt(spec, target)))
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
    let tiles = std::iter::once_with(|| Tiles::choose(spec).steps(spec));
    let plain = std::iter::once_with(|| super::kind::naive(spec));
    let large = std::iter::once_with(|| if spec.batch.is_some() { Vec::new() } else { whole(spec, target) });
    large.flatten().chain(tiles).chain(plain)
}

/// The steps for a product alone, no batch, that can fill a chip.
fn whole(spec: &GemmSpec, target: &Target) -> Vec<Steps> {
    let pipelined = Pipelined::candidates(spec, target);
    let shared_out = WarpTiles::choose(spec, target);
    // The models of both recipes are compared where a chip has no room for the slices of the first.
    let cheaper = |(cycles, _): &(f64, WarpTiles)| pipelined.first().is_none_or(|(least, _)| cycles < least);
    let first = shared_out.filter(|s| !Pipelined::slices_fit(target) && cheaper(s));
    let rest = shared_out.map(|(_, s)| s);
    let first = first.map(|(_, s)| s.steps(spec)).into_iter();
    first.chain(pipelined.iter().map(|(_, p)| p.steps(spec))).chain(rest.map(|w| w.steps(spec))).collect()
}

/// The schedule of the first steps that lower for the chip, else of the first.
pub(super) fn first_that_lowers(
    gemm: &Gemm,
    target: &Target,
    recipes: impl Iterator<Item = Steps>,
) -> Result<Schedule> {
    let mut first = None;
    for steps in recipes {
        let schedule = schedule(gemm, target, steps)?;
        if lowers(&schedule) {
            return Ok(schedule);
        }
        first = first.or(Some(schedule));
    }
    first.ok_or_else(|| Error::bug(Code::GemmRecipes, "no recipe has steps for the GEMM"))
}

/// Whether a schedule lowers for its chip.
pub(super) fn lowers(schedule: &Schedule) -> bool {
    schedule.scheduled().and_then(|func| lower::lower(&func, &schedule.target)).is_ok()
}
