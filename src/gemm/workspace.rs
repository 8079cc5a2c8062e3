//! Schedules that need no workspace: one kernel, from the operands to the results.

use super::kind::naive;
use super::recipe::Recipe;
use super::recommend::{lowering, scheduled};
use super::{Gemm, Gemv, Mma, Pipelined, Product, Tiles, WarpTiles, Wgmma, Wmma};
use crate::error::{Code, Error, Result};
use crate::ir::Scope;
use crate::loom::Schedule;
use crate::schedule::Steps;
use crate::target::Target;
use crate::te::GemmSpec;

/// The schedule without workspace that takes the fewest cycles by the model: no kernel packs an operand, and no second kernel adds up parts of k. A
/// framework that records launches in a graph, or has no device memory to spare, asks for it. Operands of 8 bits across k come through registers, and to wgmma
/// also through tiles that warps of their own transpose in shared memory.
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
/// Those of [`recommend`](super::recommend), and `gemm.program` where every recipe needs workspace.
pub fn recommend_without_workspace(gemm: &Gemm, target: &Target) -> Result<Schedule> {
    let product = Product::of_gemm(gemm)?;
    let spec = &product.spec;
    let steps = recipes(spec, target).into_iter().map(|recipe| recipe.steps(spec)).chain([naive(spec)]);
    for steps in steps {
        if let Some(schedule) = alone(&product, target, steps)? {
            return Ok(schedule);
        }
    }
    let message = format!("no recipe has steps without workspace on {target}");
    Err(Error::input(Code::GemmProgram, message)
        .help("recommend, whose kernels pass intermediate results through workspace"))
}

/// The recipes that need no workspace, the cheapest first.
fn recipes(spec: &GemmSpec, target: &Target) -> Vec<Recipe> {
    let mut all: Vec<Recipe> = Wgmma::candidates(spec, target).into_iter().map(Recipe::Wgmma).collect();
    all.extend(
        Mma::candidates(spec, target).into_iter().chain(Mma::with_transposed_operands(spec, target)).map(Recipe::Mma),
    );
    all.retain(|recipe| !recipe.needs_workspace());
    // As in a recommendation: the model of wmma does not compare with those of the others.
    if all.is_empty() {
        all.extend(Wmma::candidates(spec, target).into_iter().map(Recipe::Wmma));
    }
    all.extend(Gemv::candidates(spec, target).into_iter().map(|(_, g)| Recipe::Gemv(g)));
    all.extend(Tiles::candidates(spec, target).into_iter().map(|(_, t)| Recipe::Tiles(t)));
    if spec.batch.is_none() {
        all.extend(Pipelined::candidates(spec, target).into_iter().map(|(_, p)| Recipe::Pipelined(p)));
        all.extend(WarpTiles::choose(spec, target).map(|(_, w)| Recipe::WarpTiles(w)));
    }
    all.retain(|recipe| !recipe.needs_workspace());
    let mut ranked: Vec<(f64, Recipe)> = all.into_iter().map(|recipe| (recipe.cycles(spec, target), recipe)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranked.into_iter().map(|(_, recipe)| recipe).collect()
}

/// The schedule of a product by these steps, if it lowers for the chip and has no workspace.
fn alone(product: &Product, target: &Target, steps: Steps) -> Result<Option<Schedule>> {
    let Some(schedule) = scheduled(product, target, steps)? else { return Ok(None) };
    let Ok(func) = schedule.scheduled() else { return Ok(None) };
    let numbered = func.buffers.iter().enumerate();
    let is_param = |at: usize| func.params.iter().any(|id| id.0 as usize == at);
    let has_workspace = numbered.into_iter().any(|(at, buffer)| buffer.scope == Scope::Global && !is_param(at));
    Ok(if has_workspace { None } else { lowering(schedule) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::te::Layout;

    #[test]
    fn every_product_has_steps_without_workspace() {
        let chips = [Target::sm_70(), Target::sm_80(), Target::sm_89(), Target::sm_90a()];
        let types = [DType::F16, DType::F32, DType::S8, DType::E4m3, DType::S4, DType::F64];
        let sizes = [[100, 72, 34], [512, 512, 512], [64, 64, 8192], [2, 300, 700]];
        for (n, ((dtype, target), [m, n_, k])) in
            types.into_iter().flat_map(|t| chips.map(|c| (t, c))).flat_map(|c| sizes.map(|s| (c, s))).enumerate()
        {
            let gemm = Gemm::new(m, n_, k).of(dtype).layout(Layout::ALL[(n + n / 4) % 4]);
            let schedule = recommend_without_workspace(&gemm, &target).unwrap();
            let func = schedule.scheduled().unwrap();
            let global = func.buffers.iter().filter(|b| b.scope == Scope::Global).count();
            assert_eq!(global, func.params.len(), "{schedule}");
        }
    }

    #[test]
    fn bytes_across_k_come_to_tensor_cores() {
        let rows = |dtype, layout, target: Target| {
            let gemm = Gemm::new(4096, 4096, 4096).of(dtype).layout(layout);
            recommend_without_workspace(&gemm, &target).unwrap().to_string()
        };
        for layout in [Layout::NN, Layout::TT] {
            assert!(rows(DType::E4m3, layout, Target::sm_90a()).contains("wgmma_rs.m64n256k32.f32.e4m3.e4m3"));
        }
        for layout in [Layout::NN, Layout::TT] {
            assert!(rows(DType::S8, layout, Target::sm_80()).contains("ldmatrix.trans.quads.m32n16.s8"));
        }
        // Where both operands come so, any order of k does.
        assert!(rows(DType::S8, Layout::TN, Target::sm_80()).contains("ldmatrix.trans.m32n16.s8"));
        for dtype in [DType::S8, DType::E4m3] {
            assert!(rows(dtype, Layout::TN, Target::sm_90a()).contains("specialize B_s -> transpose warps="));
        }
    }
}
