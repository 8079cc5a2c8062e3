//! Schedules that need no workspace: one kernel, from the operands to the results.

use super::candidates::compared;
use super::recommend::{first_that_lowers, lowering, scheduled, simt};
use super::{Gemm, Product};
use crate::error::Result;
use crate::ir::Scope;
use crate::loom::Schedule;
use crate::schedule::Steps;
use crate::target::Target;

/// The schedule without workspace that takes the fewest cycles by the model: no kernel of it packs an operand or sums over parts of k. A
/// framework that records launches in a graph, or has no device memory to spare, asks for it; [`recommend`](super::recommend) is never slower by the
/// model.
///
/// ```
/// use warploom::{DType, Target, gemm::{Gemm, recommend_without_workspace}};
///
/// let gemm = Gemm::new(1000, 520, 264).of(DType::S8);
/// let kernels = warploom::compile(&recommend_without_workspace(&gemm, &Target::sm_90a())?)?;
/// assert!(kernels.workspace.is_empty() && kernels.kernels.len() == 1);
/// # Ok::<(), warploom::Error>(())
/// ```
///
/// # Errors
/// Those of [`recommend`](super::recommend).
pub fn recommend_without_workspace(gemm: &Gemm, target: &Target) -> Result<Schedule> {
    let product = Product::of_gemm(gemm)?;
    let spec = &product.spec;
    let mut recipes = compared(spec, target);
    recipes.sort_by(|a, b| a.cycles(spec, target).total_cmp(&b.cycles(spec, target)));
    let mut found = recipes.iter().map(|recipe| recipe.steps(spec)).map(|steps| alone(&product, target, steps));
    if let Some(schedule) = found.find_map(Result::transpose) {
        return schedule;
    }
    for steps in simt(spec, target) {
        if let Some(schedule) = alone(&product, target, steps)? {
            return Ok(schedule);
        }
    }
    first_that_lowers(&product, target, simt(spec, target))
}

/// The schedule of a product by these steps, if it lowers for the chip and has no workspace.
fn alone(product: &Product, target: &Target, steps: Steps) -> Result<Option<Schedule>> {
    let Some(schedule) = scheduled(product, target, steps)? else { return Ok(None) };
    let func = schedule.scheduled()?;
    let numbered = func.buffers.iter().enumerate();
    let is_param = |at: usize| func.params.iter().any(|id| id.0 as usize == at);
    let has_workspace = numbered.into_iter().any(|(at, buffer)| buffer.scope == Scope::Global && !is_param(at));
    Ok(if has_workspace { None } else { lowering(schedule) })
}
